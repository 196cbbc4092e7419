"""Requests in flight of rules over streams: pulls that are out, and rewards that have come before their turn.

Pull k of an arm is its k-th request, counted from 0. Rewards enter the rule in the order of its requests, and only once
all that it asks for has come. So what it decides depends neither on how many requests are out nor on which of them
answers first, even where slow answers are other ones than quick ones: it is the rule that asks for one pull at a time,
of the same rewards. Only its price depends on that: pulls that were asked for ahead, and that it then did not want.

Where rewards come in rounds of common draws, k counts the draws: a request of several arms takes the next draws for all
of them, and no other request has a part in these. Which arms will be asked about the draws after them is not known, so
nothing is asked for ahead. Where every round is of all arms still in a race, k counts the rounds, and later rounds of
the same arms are asked for ahead.
"""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace._base import _checks, _clock
from fastrace._base._checks import DamagedError
from fastrace._base._requests import AHEAD, InFlight
from fastrace._base._words import doubtful_after, undecided

FADES = 0.9             # of what says which arms the rule asks for: per request
SHARE = 16              # of the pulls made, one in so many may be asked for ahead
FARTHEST = 8            # but no more than so many times what may be ahead of a short run
Cells = tuple[NDArray[np.intp], NDArray[np.int64]]
Cell = tuple[int, int, float]       # pull, arm and reward


Pull = Callable[[NDArray[np.intp], NDArray[np.int64]], NDArray[np.float64]]


class PullFlight:
    """The pulls of a rule that it has not taken.

    The rule is a compiled one that can say `n_arms`, `total`, `done`, `takes_missing`, how many pulls of each arm it
    has made, `_made()`, and what it wants next, `ask()`; that can `check` a reward and take rewards, `tell`. In rounds
    of all its arms (`whole`) it can say which round is the `last`. `stop` ends it, with a pull and the pulls it may
    have made then.

    Of each arm, pulls before `taken` are taken, or passed over. Of those from there on, `here` has the rewards that
    have come, `free` the pulls that are to be asked for again, the first last, and pulls from `next` on were never
    asked for. All others are out.
    """

    def __init__(self, rule: Any, run: Callable[[Pull, int, bool], None], *, rounds: bool, whole: bool = False) -> None:
        n = rule.n_arms
        self.rule, self.run = rule, run
        self.rounds, self.whole = rounds, whole # of common draws; of all arms still in a race
        self.unit = "round" if whole else "pull"
        self.missing = rule.takes_missing       # accept nan
        made: list[int] = rule._made().tolist()
        # A draw has a pull or more, also where arms were asked for alone: as many draws were never used.
        self.taken = [int(rule.total)] * n if rounds else made
        self.next = list(self.taken)
        self.here: list[dict[int, float]] = [{} for _ in range(n)]
        self.free: list[list[int]] = [[] for _ in range(n)]
        self.weight = [1.0] * n
        self.paid = np.zeros(n, np.int64)       # pulls of each arm that were handed out
        self.used = np.zeros(n, np.int64)       # those of them that the rule has taken
        self.failed = np.zeros(n, np.int64)     # calls for rewards of each arm that gave none
        self.n_out = 0
        self.limit: float = np.inf              # pulls that may be paid for in all
        self.spent = False                      # they are, and the rule has what it can use of them
        self.by_run = False                     # all that is out was asked for by a run that was cut short
        self.aim()

    def aim(self) -> None:
        """See up to which pull of each arm the rule asks, and how many of these rewards have not come."""
        self.need: dict[int, int] = {}
        if not self.rule.done:
            arms, counts = self.rule.ask()
            asked = zip(arms.tolist(), counts.tolist(), strict=True)
            self.need = {arm: self.taken[arm] + count for arm, count in asked}
        self.left = sum(end - self.taken[arm] - sum(k < end for k in self.here[arm]) for arm, end in self.need.items())
        if self.whole:                          # nothing is wanted any more of arms that have left
            self.n_out = self.out()[0].size

    @property
    def live(self) -> list[int]:
        """Arms of which rewards may still be of use."""
        return list(self.need) if self.whole else list(range(len(self.next)))

    @property
    def start(self) -> int:
        """Pulls that the rule has taken."""
        return int(self.rule.total)

    @property
    def over(self) -> bool:
        """Whether nothing more is to be asked for."""
        return self.spent or self.rule.done

    @property
    def idle(self) -> bool:
        """Whether no pull that may be of use is out, and none is held back."""
        return all(self.next[arm] - self.taken[arm] == len(self.free[arm]) for arm in self.live)

    @property
    def unused(self) -> NDArray[np.int64]:
        """Pulls of each arm that were handed out and that the rule has not taken, once it has stopped."""
        return self.paid - self.used if self.over else np.zeros_like(self.paid)

    @property
    def waiting(self) -> NDArray[np.int64]:
        """Rewards of each arm that have come, may be of use, and that the rule has not taken."""
        return np.array([0 if self.over or self.whole and arm not in self.need else len(here)
                         for arm, here in enumerate(self.here)], np.int64)

    def out(self) -> Cells:
        """Arms and pulls that are out and may be of use, a pair each."""
        return _pairs([(arm, k) for arm in self.live for k in range(self.taken[arm], self.next[arm])
                       if self._awaited(k, arm)])

    def _awaited(self, k: int, arm: int) -> bool:
        return self.taken[arm] <= k < self.next[arm] and k not in self.here[arm] and k not in self.free[arm]

    # Asking.

    def allow(self, limit: int | None) -> None:
        """Let so many pulls be paid for in all, those before this flight included."""
        self.limit, self.spent = np.inf if limit is None else limit, False

    def follow(self) -> None:
        """See what the rule has taken while nothing of use was in flight; answers of arms that left may yet come."""
        taken = [self.start] * len(self.taken) if self.rounds else self.rule._made().tolist()
        for arm, made in enumerate(taken):
            if made > self.taken[arm]:
                self.taken[arm] = self.next[arm] = made
                self.free[arm] = []
        self.spent = False
        self.aim()

    def lost(self) -> int:
        """Calls that were paid for and whose rewards the rule has not taken, those that failed included."""
        return int((self.paid - self.used + self.failed).sum())

    def remaining(self) -> float:
        """Calls that may still be paid for."""
        return self.limit - self.start - self.lost()

    def record(
        self, rewards: Mapping[int, Mapping[int, float]], failed: ArrayLike = 0, unused: ArrayLike = 0
    ) -> None:
        """Take rewards that an earlier run of the same rule has paid for, by pull and arm; before anything is asked.

        So many of its calls `failed` of each arm, and so many were `unused`. Of several such runs, a call each in their
        order.
        """
        self.failed += np.asarray(failed, np.int64)
        self.paid += np.asarray(unused, np.int64)
        for k, of_pull in rewards.items():
            for arm, value in of_pull.items():
                self.rule.check(arm, value, k)
                self.here[arm][k] = value
                self.paid[arm] += 1
        for arm, here in enumerate(self.here):
            self.next[arm] = max(self.next[arm], max(here, default=-1) + 1)
            self.free[arm] = [k for k in range(self.next[arm] - 1, self.taken[arm] - 1, -1) if k not in here]
        self.aim()
        self.forward()

    def again(self) -> None:
        """Forget what is out, which nobody will answer: it is handed out again."""
        for arm, k in zip(*(cells.tolist() for cells in self.out()), strict=True):
            self.free[arm].append(k)
            self.paid[arm] -= 1
        for ks in self.free:
            ks.sort(reverse=True)
        self.n_out, self.by_run = 0, False

    def ask(self, n: int | None) -> Cells:
        """Hand out so many pulls, or the rest of what the rule asks for."""
        if self.rule.done:
            raise ValueError(f"the {'race' if self.whole else 'selection'} is over; there is nothing left to ask for")
        self.by_run = False
        cells: list[tuple[int, int]] = []
        most_ahead = 0 if n is None else AHEAD * (self.n_out + n)
        while (n is None or len(cells) < n) and (cell := self.next_cell(most_ahead)) is not None:
            cells.append(cell)
        return _pairs(cells)

    def next_cell(self, most_ahead: int) -> tuple[int, int] | None:
        """Hand out an arm and a pull: what the rule asks for first, then what it is most likely to ask for next.

        None where `most_ahead`, or a share of the pulls made if that is more, are handed out beyond what the rule asks
        for, and where no more may be paid for. One slow answer holds a rule up unless much is ahead; all that is ahead
        at the end has been paid for in vain.
        """
        if self.over:
            return None
        remaining = self.remaining()
        wanted = [(k, arm) for arm, end in self.need.items() if (k := self._first(arm)) < end]
        if remaining < (len(wanted) if self.whole and wanted else 1):       # no part of a round is of any use
            if not self.n_out:
                self.spend()
            return None
        if wanted:
            return self._hand((min(wanted) if self.rounds else wanted[0])[1])
        if self.rounds:
            return None
        ahead = [max(end - self.need.get(arm, start), 0)
                 for arm, (end, start) in enumerate(zip(self.next, self.taken, strict=True))]
        most_ahead = max(most_ahead, min(FARTHEST * most_ahead, self.start // SHARE))
        if sum(ahead[arm] for arm in self.live) >= min(most_ahead, remaining):
            return None
        if self.whole:                          # the first arm of those that lack the next round
            arm = min(self.need, key=self._first)
            begun = self._first(arm) < max(map(self._first, self.need))
            return self._hand(arm) if self._first(arm) < self.rule.last and (
                begun or remaining >= len(self.need)) else None
        return self._hand(max(range(len(ahead)), key=lambda arm: self.weight[arm] / (ahead[arm] + 1)))

    def _first(self, arm: int) -> int:
        """The first pull of an arm that may be handed out."""
        return self.free[arm][-1] if self.free[arm] else self.next[arm]

    def _hand(self, arm: int) -> tuple[int, int]:
        self.paid[arm] += 1
        self.n_out += 1
        if self.free[arm]:
            return arm, self.free[arm].pop()
        self.next[arm] += 1
        return arm, self.next[arm] - 1

    # Calls that fail.

    def wants(self, arm: int, k: int) -> bool:
        """Whether the reward of a pull that is out may be of use."""
        return not self.over and arm in self.live and self.taken[arm] <= k

    def fail(self, arm: int, k: int) -> bool:
        """Charge a call that failed, for a pull that is out; whether one more can be paid for."""
        self.failed[arm] += 1
        return self.remaining() >= 0

    def recover(self, arm: int, k: int) -> None:
        """A call that was taken to have failed has answered."""
        self.failed[arm] -= 1

    def drop(self, arm: int, k: int) -> None:
        """No call is made for a pull that is out: it is to be asked for again, if at all."""
        self.paid[arm] -= 1
        if self.taken[arm] <= k:
            self.n_out -= arm in self.live
            self.free[arm] = sorted([*self.free[arm], k], reverse=True)

    # A run that was cut short.

    def keep(self, cells: list[Cell], read: NDArray[np.bool_] | None, silent: Sequence[int]) -> bool:
        """Take what a source has answered to a run that was cut short, the next pulls of the arms; whether any is good.

        A reward that is refused is out, as is an answer that is none, by `read`, and what arms that are `silent` did
        not answer, so that only they are asked for again.
        """
        good = [(k, arm, value) for (k, arm, value), there in zip(cells, _all_true(read, cells), strict=True)
                if there and not (math.isnan(value) and arm in silent) and self._why_bad(k, arm, value) is None]
        if not good:
            return False
        self.follow()
        for k, arm, _ in cells:
            self.paid[arm] += 1
            self.next[arm] = max(self.next[arm], k + 1)
        for k, arm, value in good:
            self.here[arm][k] = value
        self.aim()
        self.n_out, self.by_run = self.out()[0].size, True
        return True

    def _why_bad(self, k: int, arm: int, value: float) -> ValueError | None:
        """The error with which the rule refuses a reward, if it does."""
        try:
            self.rule.check(arm, value, k)
        except ValueError as error:
            return error
        return None

    def finish(
        self, read: Callable[[NDArray[np.intp], NDArray[np.int64]], NDArray[np.float64]],
        read_apart: Callable[[BaseException], tuple[NDArray[np.float64], NDArray[np.bool_]] | None],
    ) -> None:
        """Complete what a run was cut short in: `read` what is out, arms on the same pulls at once.

        ``read(arms, pulls)`` gives a reward of each arm on each of the pulls, those of the first arm first. Where it
        raises, ``read_apart(error)`` gives what it has read, and where that is a reward; or None.
        """
        while self.by_run and not self.over:
            pulls_of: dict[int, list[int]] = {}
            for arm, k in zip(*(cells.tolist() for cells in self.out()), strict=True):
                pulls_of.setdefault(arm, []).append(k)
            pulls = next(iter(pulls_of.values()), [])
            arms = [arm for arm, ks in pulls_of.items() if ks == pulls]
            found, there, refused = np.zeros(0), None, None
            try:
                found = read(np.array(arms, np.intp), np.array(pulls, np.int64)) if arms else found
            except Exception as failure:
                if (answered := read_apart(failure)) is None:
                    raise
                (found, there), refused = answered, failure
            cells = list(zip(pulls * len(arms), np.repeat(arms, len(pulls)).tolist(), found.tolist(), strict=True))
            bad = [self._why_bad(*cell) if come else refused
                   for cell, come in zip(cells, _all_true(there, cells), strict=True)]
            self.take([cell for cell, error in zip(cells, bad, strict=True) if error is None])
            for error in bad:
                if error is not None:
                    raise error

    # Answers.

    def tell(self, cells: list[Cell]) -> None:
        """Take rewards of pulls that are out."""
        if len({cell[:2] for cell in cells}) < len(cells):
            raise ValueError(f"arms and {self.unit}s have a pair twice; tell each reward once")
        for k, arm, value in cells:
            if not self._awaited(k, arm):
                raise ValueError(f"the reward of {self.unit} {k} of arm {arm} is not awaited: ask() has not handed it "
                                 f"out, or its reward has been told; `pending` lists what is out")
            self.rule.check(arm, value, k)
        self.take(cells)

    def check(self, values: NDArray[np.float64], arms: NDArray[np.intp], pulls: NDArray[np.int64]) -> None:
        """Refuse rewards, of an arm and a pull each, as the rule would refuse them later, when their turn comes."""
        for value, arm, k in zip(values.tolist(), arms.tolist(), pulls.tolist(), strict=True):
            self.rule.check(arm, value, k)

    def take(self, cells: list[Cell]) -> None:
        """Take checked rewards."""
        for k, arm, value in cells:
            self.here[arm][k] = value
            self.left -= k < self.need.get(arm, 0)
        live = set(self.live)
        self.n_out -= sum(arm in live for _, arm, _ in cells)
        try:
            self.forward()
        except BaseException:                   # the rewards cannot be used: they are out again
            self.n_out += sum(self.here[arm].pop(k, None) is not None for k, arm, _ in cells)
            self.aim()
            raise
        if self.by_run and not self.n_out:      # what a run has asked for is there: let another one go on
            self.by_run = False
            self._use(self._usable(), False)

    def forward(self) -> None:
        """Give the rule what it asks for, as long as all of it has come."""
        while self.left == 0 and not self.rule.done:
            rewards = [self.here[arm][k] for arm, end in self.need.items() for k in range(self.taken[arm], end)]
            made = self.rule._made()
            try:
                self.rule.tell(np.array(rewards))
            finally:                            # Ctrl-C may come while the rule makes its next request
                self._took(self.rule._made() - made)
                self.aim()

    def _took(self, counts: NDArray[np.int64]) -> None:
        """The rule has taken so many pulls of each arm. Draws that a request has used are over for all arms."""
        total = int(counts.sum())
        if total == 0:
            return
        self.used += counts
        for arm, count in enumerate(counts.tolist()):
            self.weight[arm] = FADES * self.weight[arm] + count / total
            for k in range(self.taken[arm], self.taken[arm] + count):
                del self.here[arm][k]
            self.taken[arm] += count
        if self.rounds:
            end = max(self.taken)
            self.taken = [end] * len(self.taken)
            self.next = [max(end, k) for k in self.next]
            self.free = [[k for k in ks if k >= end] for ks in self.free]

    def _usable(self) -> int:
        """How many of the rewards that have come the rule can take without the rest of its request."""
        asked = [(arm, range(self.taken[arm], end)) for arm, end in self.need.items()]
        counts = [next((k for k in ks if k not in self.here[arm]), ks.stop) - ks.start for arm, ks in asked]
        if self.whole or not asked:             # what is whole is taken
            return 0
        if self.rounds:                         # whole rounds
            return min(counts) * len(counts)
        # an arm after the other
        n_whole = next((i for i, (arm, ks) in enumerate(asked) if counts[i] < len(ks)), len(asked) - 1)
        return sum(counts[: n_whole + 1])

    def _use(self, usable: int, stop: bool) -> None:
        """Give the rule so many rewards that have come, and `stop` it or not."""
        at, made = list(self.taken), self.rule._made()

        def pull(arms: NDArray[np.intp], counts: NDArray[np.int64]) -> NDArray[np.float64]:
            found = []
            for arm, count in zip(arms.tolist(), counts.tolist(), strict=True):
                found += [self.here[arm][k] for k in range(at[arm], at[arm] + count)]
                at[arm] += count
            return np.array(found)

        try:
            self.run(pull, int(self.rule.total) + usable, stop)
        finally:
            self._took(self.rule._made() - made)
            self.aim()

    def spend(self) -> None:
        """Nothing more may be paid for: give the rule what it can use without the rest of its request, and stop it."""
        self._use(self._usable(), True)
        self.spent = True

    # Saving.

    def saved(self) -> dict[str, Any]:
        """What is out and what is held back, as plain objects."""
        return {"taken": list(self.taken), "next": list(self.next), "here": [dict(here) for here in self.here],
                "free": [list(ks) for ks in self.free], "weight": list(self.weight), "paid": self.paid.copy(),
                "used": self.used.copy(), "failed": self.failed.copy(), "spent": self.spent, "by_run": self.by_run}

    def restore(self, saved: dict[str, Any]) -> None:
        """Take what `saved` gave, beside the same rule."""
        n = len(self.taken)
        parts = [saved[name] for name in ("taken", "next", "here", "free", "weight")]
        good = all(isinstance(part, list) and len(part) == n for part in parts) and type(saved["spent"]) is bool
        for start, end, here, free, weight in zip(*parts, strict=True) if good else ():
            good = good and type(start) is int and type(end) is int and 0 <= start <= end
            good = good and type(weight) is float and 0.0 <= weight < np.inf
            good = good and all(type(k) is int and start <= k < end for k in (*here, *free))
            good = good and not set(here) & set(free) and free == sorted(set(free), reverse=True)
            good = good and all(type(value) is float for value in here.values())
        if good:
            least = max(self.rule._made().tolist())
            good = least <= min(parts[0]) == max(parts[0]) if self.rounds else parts[0] == self.taken
        failed = saved.get("failed", np.zeros(n, np.int64))     # rules that an earlier version saved have none
        for counts in (saved["paid"], saved["used"], failed):
            good = good and counts.shape == (n,) and counts.dtype == np.int64 and bool((counts >= 0).all())
        if not good or not bool((saved["paid"] >= saved["used"]).all()):
            raise DamagedError("the saved rule is damaged: what it says of requests in flight cannot be right")
        self.taken, self.next, self.here, self.free, self.weight = (list(part) for part in parts)
        self.paid, self.used, self.spent = saved["paid"].copy(), saved["used"].copy(), saved["spent"]
        self.failed = failed.copy()
        self.by_run = saved.get("by_run", False) is True        # nor this
        for arm, here in enumerate(self.here):
            for k, value in here.items():
                self.rule.check(arm, value, k)
        self.n_out = self.out()[0].size
        self.aim()


class PullsInFlight(InFlight):
    """Base of rules whose requests in flight are those of a `PullFlight`."""

    _takes_budget = True

    @abstractmethod
    def _shape(self) -> tuple[int, bool]:
        """The number of arms, and whether some of those that can win were never asked for."""

    @abstractmethod
    def _at_the_cut(self, result: Any) -> tuple[int, int, Sequence[float] | None]:
        """The last of the best arms, the best of the others, and the ends of the other's mean less the first's."""

    def _in_parts(
        self, run: Callable[[int, bool], bool], made: Callable[[], int], least: int, limit: int, end: float,
        show: Callable[[int], None], shown: bool, endless: str = "", more: str = "",
    ) -> bool:
        """Run up to `limit` in parts, looking at the clock between them; whether the time `end` came first.

        ``run(part, last)`` goes on until `made` rewards reach the part, which may be the `last` one, and says if it is
        over. A part is at least `least` rewards long. Where nothing but time may ever end it, `endless` is what it
        counts, and it warns in time; `more` is what else to say then.
        """
        doubt = doubtful_after(self._shape()[0]) if endless else limit
        parts, now = _clock.Parts(least, end, shown), made()
        try:
            while True:
                part = min(limit, parts.next(now), max(doubt, now + least))
                over = run(part, part == limit)
                show(now := made())
                if over or part == limit:
                    return False
                parts.over(now)
                if endless and now >= doubt:
                    doubt *= 10
                    self._doubt(f"{now:,} {endless}", more, end < math.inf)
        except _clock.OutOfTime:
            return not self._compiled_race().done

    def _doubt(self, made: str, more: str = "", timed: bool = False) -> None:
        result = self.result()
        last, rival, ends = self._at_the_cut(result)
        if ends is not None and ends[0] <= 0.0 <= ends[1]:
            means = float(result.mean[last]), float(result.mean[rival])
            said = undecided(made, (result._name(last), result._name(rival)), means, ends, timed)
            warnings.warn(said + more, RuntimeWarning, stacklevel=_checks.users_level())

    def _allow(self, max_pulls: int | None) -> None:
        """Let so many pulls be paid for in all, by requests."""
        self._fly().allow(_checks.budget(max_pulls, *self._shape()))

    def _ask_pending(self, n: int | None) -> Cells:
        """Hand out `n` more requests, or all that the rule asks for."""
        flight = self._fly()
        flight.allow(None)
        asked: Cells = flight.ask(None if n is None else _checks.integer(n, "n", 1, f"it counts {flight.unit}s"))
        return asked

    def _tell_pending(self, rewards: Any, arms: ArrayLike | None, pulls: ArrayLike | None) -> None:
        """Take rewards of an arm and a pull each, as `ask` has handed them out."""
        flight = self._flight if self._flight is not None else self._new_flight()
        unit = f"{flight.unit}s"
        if self._flight is None or arms is None or pulls is None:
            raise ValueError(f"arms and {unit} go together, and with rewards that ask(pending=True) has handed out")
        n_arms = self._shape()[0]
        which = _checks.indices(arms, "arms", n_arms), _checks.indices(pulls, unit, _checks.MOST_PULLS)
        values = np.atleast_1d(_checks.numbers_of(rewards, "rewards"))
        if (values.dtype.kind not in "fiub" or not values.shape == which[0].shape == which[1].shape):
            raise ValueError(f"rewards has shape {values.shape} and dtype {values.dtype}, arms {which[0].shape} and "
                             f"{unit} {which[1].shape}; a real number, an arm and a {flight.unit} each are needed")
        with _checks.named_arms(self._names, self._compiled_race()):
            self._flight.tell(list(zip(which[1].tolist(), which[0].tolist(), values.astype(np.float64).tolist(),
                                       strict=True)))


def _all_true(read: NDArray[np.bool_] | None, cells: list[Cell]) -> list[bool]:
    """Which of the cells were read: all, if `read` does not say."""
    return [True] * len(cells) if read is None else read.tolist()


def _pairs(cells: list[tuple[int, int]]) -> Cells:
    """Arms and pulls as two vectors."""
    table = np.array(cells, np.int64).reshape(-1, 2)
    return table[:, 0].astype(np.intp), table[:, 1].copy()
