"""Requests in flight of a race on a stream: rewards of its rounds, asked for ahead and told in any order."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace._base._pull_flight import Pull, PullFlight, PullsInFlight
from fastrace.streams._stream_race import StreamRace


class OneByOne:
    """A race as a rule that asks for one round at a time, for `PullFlight`: round k is pull k of its arms."""

    def __init__(self, race: StreamRace) -> None:
        self.race = race
        self.n_arms, self.last, self.takes_missing = race.n_arms, race.horizon, race.takes_missing
        self.check = race.check

    @property
    def done(self) -> bool:
        return bool(self.race.done)

    @property
    def total(self) -> int:
        return int(self._made().sum())

    def _made(self) -> NDArray[np.int64]:
        return self.race.made()

    def ask(self) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        arms = self.race.asked()
        return arms, np.ones(arms.size, np.int64)

    def tell(self, rewards: NDArray[np.float64]) -> None:
        self.race.tell(rewards[None, :])


class RoundsInFlight(PullsInFlight):
    """Base of races whose requests in flight are those of rounds."""

    _race: StreamRace

    def _of_no_table(self) -> None:
        """Refuse a step that knows no rows."""
        if self._race.reads_rows:
            raise ValueError("this race reads a table in random order; go on with run(table), which knows the rows "
                             "that are left")

    def _tell_pending(self, rewards: Any, arms: ArrayLike | None, pulls: ArrayLike | None) -> None:
        self._of_no_table()
        super()._tell_pending(rewards, arms, pulls)

    def _fly(self) -> PullFlight:
        self._of_no_table()
        flight: PullFlight = super()._fly()
        return flight

    def _new_flight(self) -> PullFlight:
        def run(pull: Pull, limit: int, stop: bool) -> None:
            if stop:
                self._race.pause()

        return PullFlight(OneByOne(self._race), run, rounds=False, whole=True)

    def _compiled_race(self) -> StreamRace:
        return self._race

    def _shape(self) -> tuple[int, bool]:
        return self._race.n_arms, not self._race.done and self._race.position_now == 0

    def _paid(self) -> bool:
        return self._race.position_now > 0 or self._under_way
