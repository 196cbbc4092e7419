"""What races share whose rewards may be asked for ahead: many requests under way at once, told in any order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

AHEAD = 2                   # requests beyond what is needed now, in multiples of those under way at once


def charges(flight: Any, n_arms: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Calls of each arm beside those whose rewards a race has used: in vain, failed, and waiting for their turn."""
    if flight is None:
        unused, failed, waiting = np.zeros((3, n_arms), np.int64)
        return unused, failed, waiting
    return flight.unused, flight.failed, flight.waiting


class InFlight(ABC):
    """Base of races with requests in flight.

    The object that `_new_flight` returns knows which rewards are out and which have come before their turn. It hands
    out a cell (`next_cell`), an arm and a number each, checks and takes rewards (`check`, `take`), forgets what is out
    (`again`), and says whether it is `idle` and whether the race is `over`; see `races._in_flight.Flight`.

    A cell that is out is charged for one call: the one under way, or the next one. A call that failed is charged on its
    own, in `failed` of its arm (`fail`, and `recover` if its answer comes after all); a cell that no further call is
    made for is handed back with its charge (`drop`). So rewards used, rewards in vain and `failed` add up to all calls.
    """

    _flight: Any = None
    _takes_budget = False       # whether `max_pulls` is said to a run, as with rules that go on
    _names: tuple[str, ...] | None

    @abstractmethod
    def result(self) -> Any:
        """What is known so far."""

    @abstractmethod
    def _as_it_stands(self, ended: str = "") -> Any:
        """The same of a race that may have been `ended` from without."""

    @abstractmethod
    def _new_flight(self) -> Any:
        """Requests in flight of this race, none so far."""

    @abstractmethod
    def _compiled_race(self) -> Any:
        """The compiled race, which errors about arms name."""

    @abstractmethod
    def _paid(self) -> bool:
        """Whether any reward has been paid for."""

    def _identity(self) -> dict[str, Any] | None:
        """All that decides what a race asks and when it stops, where a journal can begin with it as it stands."""
        return None

    def _suit(self, max_pulls: int | None) -> bool:
        """Let it ask for what suits so many rewards in all, or as many as it takes (None); whether this is different.

        A call says so when it begins, before the race takes any reward, and says None when it ends.
        """
        return False

    def _allow(self, max_pulls: int | None) -> None:
        """Let so many rewards be paid for in all; only where `_takes_budget`."""
        raise NotImplementedError

    def _need_not_end(self) -> bool:
        """Whether only a budget ends this race where the means at the cut are equal."""
        return False

    def _doubt(self, made: str, more: str = "", timed: bool = False) -> None:
        """Say that `made` rewards may never be enough, if the arms at the cut may be equal; where it need not end."""
        raise NotImplementedError

    def _fly(self) -> Any:
        """The requests in flight of this race."""
        if self._flight is None:
            self._flight = self._new_flight()
        return self._flight

    @property
    def _under_way(self) -> bool:
        """Whether a reward is out, or has come before its turn."""
        return self._flight is not None and not self._flight.idle

    @property
    def pending(self) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """Arms and rows, pulls or rounds, a pair for each reward that ``ask(pending=True)`` has handed out.

        It leaves out rewards that have been told, and those that are no longer of use. After you load a pickled race
        or rule, send these requests again.
        """
        if self._flight is None:
            return np.zeros(0, np.intp), np.zeros(0, np.int64)
        out: tuple[NDArray[np.intp], NDArray[np.int64]] = self._flight.out()
        return out

    def _not_in_flight(self, what: str) -> None:
        """Refuse a step that would read the rewards in flight a second time."""
        if self._under_way:
            raise ValueError(f"{what} would ask again for rewards that ask(pending=True) has handed out, or that have "
                             f"come; tell what `pending` lists with its arms and {self._flight.unit}s, and go on with "
                             f"ask(pending=True)")
