"""Methods that exist to be compared with: a fixed subset, chance, Hyperband and ASHA."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import Any, Unpack

from fastrace._base import _checks
from fastrace.model_selection.schedulers._halving import SuccessiveHalving
from fastrace.model_selection.schedulers._scheduler import Allocation, Common, Scheduler
from fastrace.model_selection.schedulers._sizes import ceil, checked_factor, checked_first, checked_sizes, floor


class FixedSubset(SuccessiveHalving):
    """Train all on one small subset, then the best of them on all rows: the plain rival of every method here.

    Parameters
    ----------
    {size}
    first : int
        Rows of the subset.
    {common}

    Examples
    --------
    >>> from fastrace.model_selection import FixedSubset
    >>> FixedSubset(3, 1000, 100).run(lambda learner, n: (None, learner + n)).allocations
    [(0, 100), (1, 100), (2, 100), (2, 1000)]
    """

    def __init__(
        self,
        n_learners: int,
        n_rows: int,
        first: int,
        **common: Unpack[Common],
    ) -> None:
        first = checked_first(first)
        n_learners = _checks.integer(n_learners, "n_learners", 1, "there must be something to choose")
        n_rows = _checks.integer(n_rows, "n_rows", 1, "learners are trained on rows")
        sizes = [first, n_rows] if first < n_rows else [n_rows]
        super().__init__(n_learners, n_rows, factor=max(2.0, float(n_learners)), sizes=sizes, **common)
        self._checked_first(first)

    def _method(self) -> str:
        return f"FixedSubset of {self._plan[0][0]} rows"


class RandomChoice(SuccessiveHalving):
    """Train a few learners, drawn at random, on all rows and take the best.

    Parameters
    ----------
    {size}
    n_trained : int, default 1
        Learners that are trained.
    rng : None, int, SeedSequence or Generator, optional
        Draws them, here and only here.
    {common}

    Examples
    --------
    >>> from fastrace.model_selection import RandomChoice
    >>> len(RandomChoice(10, 1000, 3, rng=1).run(lambda learner, n: (None, learner)).allocations)
    3
    """

    def __init__(
        self,
        n_learners: int,
        n_rows: int,
        n_trained: int = 1,
        *,
        rng: _checks.RngLike = None,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(n_learners, n_rows, sizes=[n_rows], **common)
        count = _checks.integer(n_trained, "n_trained", 1, "something must be trained")
        drawn = _checks.generator(rng).permutation(self._n_learners)[:count]
        self._plan = [(self._n_rows, len(drawn))]
        self._begin(0, sorted(int(i) for i in drawn))

    def _method(self) -> str:
        return f"RandomChoice of {self._plan[0][1]} learners"


class Hyperband(Scheduler):
    r"""Brackets of successive halving, from many learners on few rows to few learners on all.

    Made for endless pools of configurations. Here each bracket draws its learners from one pool without replacement, a
    training made in one bracket is not made again in another, and the best learner may never be drawn.

    Parameters
    ----------
    {size}
    first : int
        Fewest rows of a training.
    factor : float, default 3.0
        One of `factor` learners is kept in each round, above 1 (eta).
    rng : None, int, SeedSequence or Generator, optional
        Draws the learners of all brackets, here and only here.
    {common}

    Notes
    -----
    With :math:`s_{max} = \lfloor \log_\eta (N / first) \rfloor`, bracket s starts
    :math:`\lceil \frac{s_{max} + 1}{s + 1} \eta^s \rceil` learners on :math:`N \eta^{-s}` rows. With few learners the
    brackets may need more rows than training all in full; `SuccessiveHalving` never does.

    References
    ----------
    .. [1] Li, Jamieson, DeSalvo, Rostamizadeh, Talwalkar, "Hyperband: A Novel Bandit-Based Approach to Hyperparameter
       Optimization", JMLR 2018.

    Examples
    --------
    >>> from fastrace.model_selection import Hyperband
    >>> Hyperband(20, 8100, 100, rng=1).run(lambda learner, n: (None, learner - 100 / n)).best
    19
    """

    def __init__(
        self,
        n_learners: int,
        n_rows: int,
        first: int,
        factor: float = 3.0,
        *,
        rng: _checks.RngLike = None,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(n_learners, n_rows, **common)
        first, self._factor = self._checked_first(first), checked_factor(factor)
        generator = _checks.generator(rng)
        top = max(0, floor(math.log(self._n_rows / first) / math.log(self._factor)))
        self._brackets: list[tuple[list[int], list[tuple[int, int]]]] = []
        for s in range(top, -1, -1):
            start = ceil((top + 1) / (s + 1) * self._factor**s)
            drawn = sorted(int(i) for i in generator.permutation(self._n_learners)[:start])
            plan = [
                (max(1, floor(self._n_rows * self._factor ** (k - s))), max(1, floor(len(drawn) / self._factor**k)))
                for k in range(s + 1)
            ]
            self._brackets.append((drawn, plan))
        self._scores: dict[Allocation, float] = {}
        self._enter(0, 0, self._brackets[0][0])

    @property
    def brackets(self) -> list[list[tuple[int, int]]]:
        """(rows, learners) of the rounds of each bracket."""
        return [list(plan) for _, plan in self._brackets]

    def _enter(self, bracket: int, number: int, alive: list[int]) -> None:
        """Begin a round."""
        self._bracket, self._round, self._alive, self._handed_out = bracket, number, alive, 0
        rows = self._brackets[bracket][1][number][0]
        self._pending = {i for i in alive if i not in self._dropped and (i, rows) not in self._scores}

    def _propose(self) -> Allocation | None:
        rows = self._brackets[self._bracket][1][self._round][0]
        while self._handed_out < len(self._alive):
            i = self._alive[self._handed_out]
            self._handed_out += 1
            if i not in self._dropped and (i, rows) not in self._scores:
                return i, rows
        return None

    def _take(self, learner: int, n: int, train: float, valid: float) -> float:
        self._scores[learner, n] = valid
        self._pending.discard(learner)
        self._settle()
        return math.nan

    def _left(self, learner: int) -> None:
        self._pending.discard(learner)
        self._settle()

    def _settle(self) -> None:
        """Begin the next round or bracket, or stop, once all of this round have answered."""
        while not self._pending:
            plan = self._brackets[self._bracket][1]
            rows = plan[self._round][0]
            alive = [i for i in self._alive if i not in self._dropped]
            if alive and self._round + 1 < len(plan):
                order = sorted(alive, key=lambda i: (-self._scores[i, rows], i))
                self._enter(self._bracket, self._round + 1, sorted(order[: plan[self._round + 1][1]]))
            elif self._bracket + 1 < len(self._brackets):
                self._enter(self._bracket + 1, 0, self._brackets[self._bracket + 1][0])
            else:
                full = [i for i in range(self._n_learners)
                        if i not in self._dropped and (i, self._n_rows) in self._scores]
                if full:
                    self._stop("complete", max(full, key=lambda i: (self._scores[i, self._n_rows], -i)))
                    return
                rest = self._stand_ins()
                self._brackets.append((rest, [(self._n_rows, len(rest))]))
                self._enter(len(self._brackets) - 1, 0, rest)

    def _method(self) -> str:
        return f"Hyperband, {len(self._brackets)} brackets, factor {self._factor:g}"


class _Rung:
    """Scores of one size as pairs (-score, learner), the best first: of all learners, and of those not promoted.

    The best share and the rest are a heap each, with the pair at the root that is next to change sides; pairs of
    learners that were dropped are left in them until they come to the root.
    """

    def __init__(self, factor: float) -> None:
        self._factor = factor
        self.ranks: dict[int, tuple[float, int]] = {}
        self._waiting: list[tuple[float, int]] = []
        self._best: list[tuple[float, int]] = []            # negated: the worst of the best share is the root
        self._rest: list[tuple[float, int]] = []
        self._chosen: set[int] = set()                      # the learners of the best share

    def __getstate__(self) -> dict[str, Any]:
        return {"_factor": self._factor, "ranks": self.ranks, "_waiting": self._waiting}

    def __setstate__(self, state: dict[str, Any]) -> None:
        _Rung.__init__(self, state["_factor"])
        self.ranks, self._waiting = state["ranks"], state["_waiting"]
        self._rest = sorted(self.ranks.values())
        self._share_out()

    def add(self, i: int, score: float) -> None:
        rank = self.ranks[i] = -score, i
        heapq.heappush(self._waiting, rank)
        worst = self._worst()
        if worst is not None and rank < worst:
            self._choose(rank)
        else:
            heapq.heappush(self._rest, rank)
        self._share_out()

    def drop(self, i: int) -> None:
        if self.ranks.pop(i, None) is not None:
            self._chosen.discard(i)
            self._share_out()

    def promote(self) -> None:
        """The best learner that was not promoted is."""
        if self.best_waiting() is not None:
            heapq.heappop(self._waiting)

    def best_waiting(self) -> int | None:
        """The best learner that was not promoted."""
        return self._first(self._waiting)

    def next_promotion(self) -> int | None:
        """The best learner that was not promoted, if it is among the best share."""
        i = self.best_waiting()
        return i if i in self._chosen else None

    def _first(self, heap: list[tuple[float, int]]) -> int | None:
        """The learner at the root, once those that were dropped are gone."""
        while heap and self.ranks.get(heap[0][1]) != heap[0]:
            heapq.heappop(heap)
        return heap[0][1] if heap else None

    def _worst(self) -> tuple[float, int] | None:
        """The worst pair of the best share."""
        while self._best and -self._best[0][1] not in self._chosen:
            heapq.heappop(self._best)
        return (-self._best[0][0], -self._best[0][1]) if self._best else None

    def _choose(self, rank: tuple[float, int]) -> None:
        heapq.heappush(self._best, (-rank[0], -rank[1]))
        self._chosen.add(rank[1])

    def _share_out(self) -> None:
        """Let as many be in the best share as belong there."""
        share = floor(len(self.ranks) / self._factor)
        while len(self._chosen) < share and self._first(self._rest) is not None:
            self._choose(heapq.heappop(self._rest))
        while len(self._chosen) > share and (worst := self._worst()) is not None:
            heapq.heappop(self._best)
            self._chosen.remove(worst[1])
            heapq.heappush(self._rest, worst)


class ASHA(Scheduler):
    r"""Asynchronous successive halving: a free worker promotes a learner that is among the best of its rung.

    Parameters
    ----------
    {size}
    first : int, optional
        Rows of the lowest rung; not needed with `sizes`.
    factor : float, default 3.0
        The best 1 / `factor` of a rung are promoted to `factor` times as many rows, above 1 (eta).
    sizes : sequence of int, optional
        The sizes of the rungs themselves, increasing, the last one `n_rows`.
    {common}

    Notes
    -----
    Learners enter in their order. The pool is finite: once all have entered and no more than 1 / `factor` of any rung
    is left to promote, the best of the highest rung climbs to the top and the best there is chosen. No promise.

    With few learners the rungs may need more rows than training all in full; `SuccessiveHalving` never does.

    A decision costs O(log n_learners), whatever the number of rounds.

    References
    ----------
    .. [1] Li, Jamieson, Rostamizadeh, Gonina, Ben-Tzur, Hardt, Recht, Talwalkar, "A System for Massively Parallel
       Hyperparameter Tuning", MLSys 2020, Algorithm 2.

    Examples
    --------
    >>> from fastrace.model_selection import ASHA
    >>> ASHA(20, 8100, 100).run(lambda learner, n: (None, learner - 100 / n)).best
    19
    """

    def __init__(
        self,
        n_learners: int,
        n_rows: int,
        first: int | None = None,
        factor: float = 3.0,
        *,
        sizes: Sequence[int] | None = None,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(n_learners, n_rows, **common)
        if first is None and sizes is None:
            raise ValueError("first and sizes are None; the rows of the lowest rung, or of all rungs, are needed")
        self._factor = checked_factor(factor)
        if first is not None and sizes is None:
            first = self._checked_first(first)
        self._sizes = checked_sizes(first or 1, self._factor, self._n_rows, sizes=sizes)
        self._rungs = [_Rung(self._factor) for _ in self._sizes]
        self._level = {n: k for k, n in enumerate(self._sizes)}
        self._promising = 0                       # bit k: rung k has a learner to promote
        self._entered = 0

    def _changed(self, k: int) -> None:
        """Note whether a rung below the last has a learner to promote."""
        bit = 1 << k
        if k + 1 < len(self._sizes) and self._rungs[k].next_promotion() is not None:
            self._promising |= bit
        else:
            self._promising &= ~bit

    def _promote(self, k: int, learner: int) -> Allocation:
        self._rungs[k].promote()
        self._changed(k)
        return learner, self._sizes[k + 1]

    def _propose(self) -> Allocation | None:
        if self._promising:
            k = self._promising.bit_length() - 1
            i = self._rungs[k].next_promotion()
            if i is not None:
                return self._promote(k, i)
        while self._entered < self._n_learners:
            i = self._entered
            self._entered += 1
            if i not in self._dropped:
                return i, self._sizes[0]
        if self._outstanding or self._rungs[-1].ranks:
            return None
        for k in range(len(self._sizes) - 2, -1, -1):
            i = self._rungs[k].best_waiting()
            if i is not None:
                return self._promote(k, i)
        return None

    def _take(self, learner: int, n: int, train: float, valid: float) -> float:
        k = self._level[n]
        self._rungs[k].add(learner, valid)
        self._changed(k)
        self._settle()
        return math.nan

    def _left(self, learner: int) -> None:
        for k, rung in enumerate(self._rungs):
            rung.drop(learner)
            self._changed(k)
        self._settle()

    def _settle(self) -> None:
        top = self._rungs[-1].ranks
        if top and not (self._promising or self._outstanding or self._entered < self._n_learners):
            self._stop("complete", min(top.values())[1])

    def _method(self) -> str:
        return f"ASHA, {self._sizes[0]} to {self._sizes[-1]} rows, factor {self._factor:g}"
