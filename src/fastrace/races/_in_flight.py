"""Requests in flight: which rewards of a race are out, which have come before their turn, and when a look is complete.

The order of rows is fixed beforehand, and rewards enter the race in that order, look by look. So what a race decides
depends neither on how many requests are out nor on which of them answers first. Only its price does: rewards that were
asked for ahead, of arms that then left, are paid for and not used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import fastrace._core as _core
from fastrace._base import _checks
from fastrace._base._checks import DamagedError
from fastrace.sources import first_outside, reward_outside

FREE, OUT, HERE = 0, 1, 2       # of a cell: not asked for, asked for, and answered
ROOM = 256                      # rows that the arrays grow by, where cells are handed out singly
AT_ONCE = 512                   # rows of a block, as compiled races read them
Cells = tuple[NDArray[np.intp], NDArray[np.int64]]


class Flight:
    """The cells of a race, a row and an arm each, that no look has taken.

    Row k of the arrays is position ``start + k`` of the order of rows; looks have taken all positions before `start`.
    Position `target` is the end of the next look, which lacks `left` answers; `most` is what `max_pulls` allows.
    """

    unit = "row"

    def __init__(self, race: _core.Race, *, strict: bool, missing: bool = False) -> None:
        n = race.n_arms
        self.race, self.strict, self.missing = race, strict, missing    # refuse rewards outside the support; accept nan
        self.start = race.progress()[0]
        self.touched = self.cursor = self.start         # positions from here on: no cell asked for; maybe a free cell
        self.rows = np.zeros(0, np.int64)
        self.state = np.zeros((0, n), np.int8)
        self.reward = np.zeros((0, n))
        self.place: dict[int, int] = {}                 # position of each row in the arrays
        self.paid = np.zeros(n, np.int64)               # cells of each arm that were handed out
        self.used = np.zeros(n, np.int64)               # those of them that looks have taken
        self.failed = np.zeros(n, np.int64)             # calls for rewards of each arm that gave none
        self.charged = 0                                # these, and cells that no look will take, charged to the race
        self.late: set[tuple[int, int]] = set()         # (row, arm) that are out, of positions before `start`
        self.recorded: Mapping[int, Mapping[int, float]] = {}    # rewards by row and arm, paid for in an earlier run
        self.by_run = False                             # all that is out was asked for by a `run` that was cut short
        self.aim()

    def aim(self, took: NDArray[np.intp] | None = None) -> None:
        """Ask the race where it stands: leave behind what looks have taken, and see what the next look lacks.

        `took` are the arms whose cells a look has just taken from here.
        """
        self.running = self.race.running()
        self.in_race = set(self.running.tolist())
        now, self.target, self.most = self.race.progress()
        if took is not None:
            self.used[took] += now - self.start
        gone = min(now - self.start, self.rows.size)
        for k, arm in np.argwhere(self.state[:gone] == OUT).tolist():
            self.late.add((int(self.rows[k]), arm))
        for row in self.rows[:gone].tolist():
            del self.place[row]
        self.rows, self.state, self.reward = self.rows[gone:], self.state[gone:], self.reward[gone:]
        self.start = now
        self.touched, self.cursor = max(self.touched, now), max(self.cursor, now)
        lost = int(self.unused.sum() + self.failed.sum())
        if lost != self.charged:
            self.race.charge(lost - self.charged)
            self.charged = lost
            _, self.target, self.most = self.race.progress()
        here = self.state[: self.target - now, self.running] == HERE
        self.left = int((self.target - now) * self.running.size - here.sum())

    @property
    def unused(self) -> NDArray[np.int64]:
        """Cells of each arm that were handed out and that no look has taken or will take."""
        waste: NDArray[np.int64] = self.paid - self.used
        if not self.race.done:
            waste[self.running] = 0
        return waste

    @property
    def waiting(self) -> NDArray[np.int64]:
        """Rewards of each arm in the race that have come, and that no look has taken."""
        here: NDArray[np.int64] = (self.state == HERE).sum(axis=0)
        return np.where(np.isin(np.arange(here.size), self.running), here, 0)

    @property
    def over(self) -> bool:
        """Whether nothing more is to be asked for."""
        return bool(self.race.done)

    @property
    def idle(self) -> bool:
        """Whether no cell is out and none is held back."""
        return not self.late and not self.state.any()

    def ahead(self) -> int:
        """Cells of arms in the race that were handed out beyond the next look."""
        return int(np.count_nonzero(self.state[max(self.target - self.start, 0) :, self.running]))

    def out(self) -> Cells:
        """Arms and rows of the cells that are out, a pair each: the first in the order of rows first."""
        k, arms = np.nonzero(self.state == OUT)
        late = np.array(sorted(self.late), np.int64).reshape(-1, 2)
        return np.concatenate([late[:, 1], arms]).astype(np.intp), np.concatenate([late[:, 0], self.rows[k]])

    # Asking.

    def remaining(self) -> float:
        """Calls that may still be paid for."""
        left = self.race.affordable()
        return math.inf if left is None else left - int((self.paid - self.used)[self.running].sum())

    def record(
        self, rewards: Mapping[int, Mapping[int, float]], failed: ArrayLike = 0, unused: ArrayLike = 0
    ) -> None:
        """Take rewards that an earlier run of the same race has paid for, by row and arm; before anything is asked.

        So many of its calls `failed` of each arm, and so many were `unused`.
        """
        cells = [(value, arm, row) for row, of_row in rewards.items() for arm, value in of_row.items()]
        if cells:
            value, arm, row = map(np.array, zip(*cells, strict=True))
            self.check(value, arm, row)
            self.paid += np.bincount(arm, minlength=self.paid.size)
        self.recorded = rewards
        self.failed += np.asarray(failed, np.int64)
        self.paid += np.asarray(unused, np.int64)
        self.aim()

    def keep(
        self, blocks: list[tuple[NDArray[np.intp], NDArray[np.int64], NDArray[np.float64]]], silent: list[int]
    ) -> None:
        """Take what a source has answered to a look that was cut short, in blocks of arms, rows and rewards.

        A reward that is refused is out, as is what was passed over and what arms that are `silent` did not answer, so
        that only they are asked for again.
        """
        self.aim()
        self._reach(min(self.start + sum(rows.size for _, rows, _ in blocks), self.race.n_rows))
        if not all(int(row) in self.place for _, rows, _ in blocks for row in rows):    # they came in another order
            self._reach(self.race.n_rows)
        for arms, rows, block in blocks:
            whole = self._good(block.ravel(), np.tile(arms, rows.size), np.repeat(rows, arms.size))
            for row, of_row in zip(rows.tolist(), block.tolist(), strict=True):
                position = self.place.get(row, -1)
                if position < self.start:               # a pass in order read it a second time
                    continue
                self.touched = max(self.touched, position + 1)
                for arm, value in zip(arms.tolist(), of_row, strict=True):
                    before = self.state[position - self.start, arm]
                    if before != HERE and not (math.isnan(value) and arm in silent) and (
                            whole or self._good(np.array([value]), np.array([arm]), np.array([row]))):
                        self._put(position, arm, value)
                        self.paid[arm] += before == FREE
        k, j = np.nonzero(self.state[: self.touched - self.start, self.running] == FREE)
        self.state[k, self.running[j]] = OUT
        np.add.at(self.paid, self.running[j], 1)
        self.by_run = True

    def _good(self, values: NDArray[np.float64], arms: NDArray[np.intp], rows: NDArray[np.int64]) -> bool:
        try:
            self.check(values, arms, rows)
        except ValueError:
            return False
        return True

    def finish(self, read: Callable[[NDArray[np.int64], NDArray[np.intp]], NDArray[np.float64]]) -> None:
        """Complete a look that was cut short: `read` rows and arms that it lacks, what is out first."""
        self.forward()
        while not self.idle and not self.race.done:
            arms, rows = self.out()
            if arms.size:
                of_row: dict[int, list[int]] = {}
                for arm, row in zip(arms.tolist(), rows.tolist(), strict=True):
                    of_row.setdefault(row, []).append(arm)
                wanted = of_row[rows[0]]
                asked = np.array(wanted, np.intp), np.array([row for row in of_row if of_row[row] == wanted], np.int64)
            else:
                asked = self.ask(min(AT_ONCE, self.target - self.touched))
            self.tell(read(asked[1], asked[0]), *asked)

    def again(self) -> None:
        """Forget what is out, which nobody will answer: it is handed out again."""
        k, arms = np.nonzero(self.state == OUT)
        self.state[k, arms] = FREE
        np.subtract.at(self.paid, arms, 1)
        self.late.clear()
        self.cursor, self.by_run = self.start, False

    def ask(self, n: int | None) -> Cells:
        """Hand out the next `n` rows, or the rest of the look, of all arms in the race."""
        if self.race.done:
            raise ValueError("the race is over; there is nothing left to ask for")
        first = self.touched
        end = max(first, self.target if n is None else min(first + n, self.most))
        self._reach(end)
        k = slice(first - self.start, end - self.start)
        self.state[k, self.running] = OUT
        self.paid[self.running] += end - first
        self.touched = end
        return self.running.copy(), self.rows[k].copy()

    def next_cell(self, most_ahead: int) -> tuple[int, int] | None:
        """Hand out one arm and row, in the order of rows.

        None where `most_ahead` are handed out beyond the look, and where no more may be paid for.
        """
        while not self.race.done:
            if self.left == 0:                          # by answers of an earlier run
                self.forward()
                continue
            if self.remaining() < 1:
                if self.recorded and self.start + self.rows.size < self.target:
                    self._reach(self.target)            # what came in an earlier run may be all that lacks
                    continue
                if not (self.state[:, self.running] == OUT).any():
                    self.spend()
                return None
            room = self.start + self.rows.size - self.target        # positions that may be ahead: counted if need be
            if self.cursor >= self.most or (self.cursor >= self.target and room * self.running.size >= most_ahead
                                            and self.ahead() >= most_ahead):
                return None
            self._reach(self.cursor + 1, ROOM)
            k = self.cursor - self.start
            free = self.running[self.state[k, self.running] == FREE]
            if free.size:
                self.state[k, free[0]] = OUT
                self.paid[free[0]] += 1
                self.touched = max(self.touched, self.cursor + 1)
                return int(free[0]), int(self.rows[k])
            self.cursor += 1
        return None

    def spend(self) -> None:
        """Nothing more may be paid for: give the race the rows that lack no answer, and let it end there."""
        n = self.running.size
        lacking = (self.state[: self.target - self.start, self.running] != HERE).any(axis=1)
        whole = int(lacking.argmax()) if lacking.any() else lacking.size
        self.race.charge(self.race.affordable() - whole * n)
        self.aim()
        self.forward()

    # Calls that fail.

    def wants(self, arm: int, row: int) -> bool:
        """Whether the reward of a cell that is out may be of use."""
        return not self.race.done and row in self.place and arm in self.in_race

    def fail(self, arm: int, row: int) -> bool:
        """Charge a call that failed, for a cell that is out; whether one more can be paid for."""
        self.failed[arm] += 1
        self.aim()
        return self.remaining() >= 0

    def recover(self, arm: int, row: int) -> None:
        """A call that was taken to have failed has answered."""
        self.failed[arm] -= 1
        self.aim()

    def drop(self, arm: int, row: int) -> None:
        """No call is made for a cell that is out: it is to be asked for again, if at all."""
        self.paid[arm] -= 1
        position = self.place.get(row)
        if position is None:
            self.late.discard((row, arm))
        else:
            self.state[position - self.start, arm] = FREE
            self.cursor = min(self.cursor, position)

    def _reach(self, end: int, room: int = 0) -> None:
        """Let the arrays reach position `end`; if they must grow, by at least `room` rows."""
        have = self.start + self.rows.size
        if end <= have:
            return
        rows = self.race.rows_between(have, min(max(end, have + room), self.race.n_rows))
        state, reward = np.zeros((rows.size, self.paid.size), np.int8), np.zeros((rows.size, self.paid.size))
        self.place |= zip(rows.tolist(), range(have, have + rows.size), strict=True)
        self.rows = np.concatenate([self.rows, rows])
        self.state, self.reward = np.concatenate([self.state, state]), np.concatenate([self.reward, reward])
        for position, row in enumerate(rows.tolist() if self.recorded else (), have):
            for arm, value in self.recorded.get(row, {}).items():
                self._put(position, arm, value)

    # Answers.

    def _put(self, position: int, arm: int, value: float) -> None:
        self.state[position - self.start, arm] = HERE
        self.reward[position - self.start, arm] = value
        self.left -= position < self.target and arm in self.in_race

    def tell(self, block: NDArray[np.float64], arms: NDArray[np.intp], rows: NDArray[np.int64]) -> None:
        """Take rewards of cells that are out, rows by arms; those that come before their turn are held back."""
        cells = [(row, arm, value) for row, of_row in zip(rows.tolist(), block.tolist(), strict=True)
                 for arm, value in zip(arms.tolist(), of_row, strict=True)]
        if len({cell[:2] for cell in cells}) < len(cells):
            raise ValueError("arms or rows has an entry twice; tell each reward once")
        for row, arm, _ in cells:
            if not self._awaited(row, arm):
                raise ValueError(f"the reward of arm {arm} on row {row} is not awaited: ask() has not handed it out, "
                                 f"or its reward has been told; `pending` lists what is out")
        self.check(block.ravel(), np.tile(arms, rows.size), np.repeat(rows, arms.size))
        self.take(cells)

    def _awaited(self, row: int, arm: int) -> bool:
        position = self.place.get(row)
        return (row, arm) in self.late if position is None else bool(self.state[position - self.start, arm] == OUT)

    def take(self, cells: list[tuple[int, int, float]]) -> None:
        """Take checked rewards: row, arm and reward of each."""
        for row, arm, value in cells:
            position = self.place.get(row)
            if position is None:
                self.late.remove((row, arm))
            else:
                self._put(position, arm, value)
        try:
            self.forward()
        except BaseException as error:          # the rewards cannot be used: they are out again
            for row, arm, _ in () if _checks.silent_arms(error) else cells:
                position = self.place.get(row, -1)
                if position >= self.start:
                    self.state[position - self.start, arm] = OUT
            self.aim()
            raise

    def check(self, values: NDArray[np.float64], arms: NDArray[np.intp], rows: NDArray[np.int64]) -> None:
        """Refuse rewards, of an arm and a row each, as the race would refuse them later, when their turn comes."""
        race, low, high = self.race, self.race._low[arms], self.race._high[arms]
        if ((values >= low) & (values <= high)).all() and np.isfinite(values).all():
            return
        bad = np.flatnonzero((np.isnan(values) & (not self.missing)) | (values == np.inf))
        if bad.size:
            arm, row = int(arms[bad[0]]), int(rows[bad[0]])
            raise _checks.arm_error(race, arm, _core.bad_reward(values[bad[0]], arm, row))
        if self.strict:
            found = first_outside(np.where(np.isnan(values), low, values)[None], low, high)
            if found is not None:
                k = found[1]
                arm, row = int(arms[k]), int(rows[k])
                said = reward_outside(float(values[k]), arm, row, float(low[k]), float(high[k]))
                raise _checks.arm_error(race, arm, said)

    def forward(self) -> None:
        """Give the race every look that is complete."""
        while not self.race.done and self.left == 0:
            running = self.running
            try:
                self.race.tell(self.reward[: self.target - self.start, running])
            except ValueError as error:
                silent = _checks.silent_arms(error)     # what they did not answer is to be asked again
                look = np.ix_(range(self.target - self.start), silent)
                self.state[look] = np.where(np.isnan(self.reward[look]), OUT, self.state[look])
                raise
            finally:
                self.aim(running)

    # Saving.

    def saved(self) -> dict[str, Any]:
        """What is out and what is held back, as plain objects."""
        return {"start": self.start, "touched": self.touched, "charged": self.charged, "late": sorted(self.late),
                "state": self.state.copy(), "reward": self.reward.copy(), "paid": self.paid.copy(),
                "used": self.used.copy(), "failed": self.failed.copy(), "by_run": self.by_run}

    def restore(self, saved: dict[str, Any]) -> None:
        """Take what `saved` gave, beside the same race."""
        state, reward = saved["state"], saved["reward"]
        good = state.shape == reward.shape and state.shape[1:] == self.paid.shape and state.dtype == np.int8
        good = good and reward.dtype == np.float64 and saved["start"] == self.start
        good = good and bool(((state >= FREE) & (state <= HERE)).all()) and not bool((reward == np.inf).any())
        good = good and self.start <= saved["touched"] <= self.start + len(state) <= self.race.n_rows
        failed = saved.get("failed", np.zeros_like(self.paid))      # races that an earlier version saved have none
        for counts in (saved["paid"], saved["used"], failed):
            good = good and counts.shape == self.paid.shape and counts.dtype == np.int64 and bool((counts >= 0).all())
        good = good and bool((saved["paid"] >= saved["used"]).all()) and saved["charged"] >= 0
        good = good and all(0 <= row < self.race.n_rows and 0 <= arm < self.paid.size for row, arm in saved["late"])
        if not good:
            raise DamagedError("the saved race is damaged: what it says of requests in flight cannot be right")
        self._reach(self.start + len(state))
        self.state, self.reward = state.copy(), reward.copy()
        self.paid, self.used, self.failed = saved["paid"].copy(), saved["used"].copy(), failed.copy()
        self.charged, self.touched = int(saved["charged"]), int(saved["touched"])
        self.late = {(int(row), int(arm)) for row, arm in saved["late"]}
        self.by_run = saved.get("by_run", False) is True        # nor this
        self.aim()
