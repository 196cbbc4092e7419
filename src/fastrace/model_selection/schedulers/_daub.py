"""DAUB: train next the learner whose projected score on all rows is the highest."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Unpack

from fastrace._base import _checks
from fastrace.model_selection.schedulers._scheduler import IN_FULL, NONE_LEFT, Allocation, Common, Scheduler
from fastrace.model_selection.schedulers._sizes import checked_curve, checked_sizes, on_scale, projections


class DAUB(Scheduler):
    r"""Choose the learner that is best on all rows, most learners trained on few of them.

    Every learner is trained on the first three sizes of a geometric grid. From then on the learner with the largest
    projected score at `n_rows` gets its next size, until one has been trained on all rows: that one is chosen.

    Parameters
    ----------
    {size}
    first : int, default 500
        Rows of the first training (b).
    ratio : float, default 1.5
        Factor between sizes, above 1 (r).
    training_bound : bool, default True
        Bound the projection by the training score, which is an upper bound in expectation where training and
        held-out rows come from one distribution. A learner that fits its rows perfectly is not bounded by it.
    clip_slope : bool, default True
        Take a falling slope for a level one. False is the rule as printed in [1]_.
    curve : float, default 1.0
        Learning curves are projected as straight lines in ``(n**curve - 1) / curve``. 1 is the rule of [1]_ and 0 means
        ``log(n)``. Negative exponents saturate, as power laws do: projections are tighter, and more is assumed.
    verify : bool, default False
        Do not stop at the first learner trained in full while the projection of another is above its score.
    capped : bool, default True
        Never spend more rows than training all learners in full; False is the rule of [1]_, which has no such limit.
        See Notes.
    rounding : {"ceil", "multiple"}, default "ceil"
        Sizes are rounded up, or to the nearest multiple of `first`, as in the experiments of [1]_.
    sizes : sequence of int, optional
        The grid itself, increasing, its last size `n_rows`; `first`, `ratio` and `rounding` then do not matter.
    {common}

    Raises
    ------
    ValueError
        If a parameter is out of range, or `tell` gets a training that was not asked for; nothing is changed then.

    Notes
    -----
    The bound of a learner trained on n rows is :math:`\min(f^T, f^V + (N - n) f')`, with f' the least-squares slope
    through its last three validation scores. A score below the one before moves both to their mean.

    If scores have no noise, curves are non-decreasing and concave (on the scale of `curve`), and `f'` is a one-sided
    difference, then a learner more than :math:`\Delta` worse than the best costs at most
    :math:`\frac{r}{r-1} c_j(r n_j^\Delta)`, where :math:`n_j^\Delta` is the first n with
    :math:`f_j'(n) \le \Delta / N` (Theorem 2 of [1]_); with slopes over three sizes, as here, read
    :math:`r^2 n_j^\Delta` for :math:`n_j^\Delta`. The one chosen costs at most :math:`\frac{r}{r-1} + 1` full
    trainings: one more than in [1]_, where `n_rows` is a size of the geometric grid. With noise there is no proof. A
    learner that leaves chance late has a convex curve, which no method that looks at small samples first can see.

    Where `capped`, and the climb of the learner on top costs more than training it and its rivals in full, these are
    trained in full; rivals are those whose projection is at least its score. They skip sizes, so the choice is made
    once no other projection is above the best of their scores. Where rows for only one full training would be left,
    those with the best scores are trained in full. If the first three sizes are too large for any saving, all learners
    are trained in full at once; the result says so, and warns where they exceed a quarter of `n_rows`.

    A decision costs O(log n_learners), and up to r / (r - 1) looks at rivals where `capped`. Ties go to the learner
    with the smaller number. With several trainings outstanding the next best learners are trained too, and the rule
    stops only when nothing of the first three sizes is outstanding.

    References
    ----------
    .. [1] Sabharwal, Samulowitz, Tesauro, "Selecting Near-Optimal Learners via Incremental Data Allocation", AAAI
       2016, Algorithm 1.

    Examples
    --------
    >>> from fastrace.model_selection import DAUB
    >>> final, speed = [0.90, 0.93, 0.95, *[0.8] * 7], [3.0, 10.0, 30.0, *[1.0] * 7]
    >>> daub = DAUB(10, 1_000_000, first=500)
    >>> while not daub.done:
    ...     learner, n = daub.ask()
    ...     daub.tell(learner, n, 1.0, final[learner] - speed[learner] / n)
    >>> result = daub.result()
    >>> result.best, round(result.fraction, 2)
    (2, 0.19)
    """

    def __init__(
        self,
        n_learners: int,
        n_rows: int,
        first: int = 500,
        ratio: float = 1.5,
        *,
        training_bound: bool = True,
        clip_slope: bool = True,
        curve: float = 1.0,
        verify: bool = False,
        capped: bool = True,
        rounding: str = "ceil",
        sizes: Sequence[int] | None = None,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(n_learners, n_rows, **common)
        self._training_bound = _checks.flag(training_bound, "training_bound")
        self._clip_slope = _checks.flag(clip_slope, "clip_slope")
        self._verify = _checks.flag(verify, "verify")
        self._curve = checked_curve(curve)
        if sizes is None:
            first = self._checked_first(first)
        self._sizes = checked_sizes(first, ratio, self._n_rows, rounding, sizes)
        self._capped = _checks.flag(capped, "capped")
        start = self._n_learners * sum(self._sizes[:3])
        self._in_full = (
            self._capped and len(self._sizes) > 1 and start + self._n_rows >= self._n_learners * self._n_rows
        )
        if self._in_full:
            self._sizes = [self._n_rows]
        self._x = [on_scale(n, self._n_rows, self._curve) for n in self._sizes]
        self._steps = {n: k for k, n in enumerate(self._sizes)}
        self._reach = projections(self._x)
        self._climb = [sum(self._sizes[k:]) for k in range(len(self._sizes))]      # rows from a size to the top
        self._n_first = min(3, len(self._sizes))
        self._handed_out = 0                      # of the n_first * n_learners trainings everyone gets
        self._used = 0                            # rows of all trainings handed out
        # Of each learner: the next size to hand out, the next to be answered, and the sizes and scores it has.
        self._next = [self._n_first] * self._n_learners
        self._answered = [0] * self._n_learners
        self._places: list[list[int]] = [[] for _ in range(self._n_learners)]
        self._valid: list[list[float]] = [[] for _ in range(self._n_learners)]
        self._train = [math.inf] * self._n_learners
        self._ready: set[int] = set()             # learners that have three scores or all rows, or were dropped
        self._lacking: deque[int] = deque()       # learners that failed on some size, and need another for three scores
        self._rest: deque[int] = deque()          # learners to be trained in full now
        self._jumped: set[int] = set()            # learners that were put there
        self._n_rest = 0                          # of these, those not answered yet
        self._final = False                   # when they are, the choice is made
        self._early: dict[Allocation, tuple[float, float] | None] = {}
        self._heap: list[tuple[float, int]] = []
        self._fresh: list[tuple[float, int]] = []     # since the last training was handed out; not in the heap yet
        self._finished: list[tuple[float, int]] = []

    @property
    def sizes(self) -> list[int]:
        """The grid of training sizes."""
        return list(self._sizes)

    def peek(self, k: int) -> list[Allocation]:
        """The next `k` trainings if none of them changed anything, the most likely first; for speculative workers."""
        ahead: list[Allocation] = []
        number = self._handed_out
        while len(ahead) < k and number < self._n_first * self._n_learners:
            i, step = divmod(number, self._n_first)
            number += 1
            if i not in self._dropped:
                ahead.append((i, self._sizes[step]))
        ahead += [(i, self._n_rows) for i in islice(self._rest, k - len(ahead)) if i not in self._dropped]
        best = heapq.nsmallest(k - len(ahead), [*self._heap, *self._fresh]) if len(ahead) < k else []
        return ahead + [(i, self._sizes[self._answered[i]]) for _, i in best if self._waits(i)]

    def _waits(self, i: int) -> bool:
        return i not in self._dropped and i not in self._jumped and self._answered[i] < len(self._sizes)

    def _propose(self) -> Allocation | None:
        found = self._first_sizes() or self._one_more()
        if found is None and not self._stopped_by:
            found = self._in_the_end() or self._climber()
        if found is not None:
            self._used += found[1]
        return found

    def _first_sizes(self) -> Allocation | None:
        """The first three sizes, which everyone gets."""
        while self._handed_out < self._n_first * self._n_learners:
            i, step = divmod(self._handed_out, self._n_first)
            self._handed_out += 1
            if i not in self._dropped:
                if self._fresh:
                    self._sort_in()
                return i, self._sizes[step]
        return None

    def _one_more(self) -> Allocation | None:
        """The next size of a learner that failed on one of its first."""
        while self._lacking:
            i = self._lacking.popleft()
            if i in self._dropped:
                continue
            n = self._sizes[self._next[i]]
            if self._capped and n < self._n_rows and n > self._room():
                n = self._n_rows
            if self._capped and n == self._n_rows and n > self._room() + (0 if self._finished else n):
                self._drop(i, f"failed on fewer rows, and {NONE_LEFT}")
                if self._stopped_by:
                    return None
                continue
            if n == self._n_rows:
                self._to_the_top(i)
                return self._in_the_end()
            self._next[i] += 1
            return i, n
        return None

    def _in_the_end(self) -> Allocation | None:
        """The next learner to be trained in full at once."""
        while self._rest:
            i = self._rest.popleft()
            if i not in self._dropped:
                return i, self._n_rows
        return None

    def _climber(self) -> Allocation | None:
        """The next size of the learner with the largest projection."""
        fresh, heap = self._fresh, self._heap
        if len(fresh) == 1:
            top = heapq.heappushpop(heap, fresh.pop())      # one training at a time: often the same learner again
        else:
            self._sort_in()
            if not heap:
                return None
            top = heapq.heappop(heap)
        while True:
            i = top[1]
            if i not in self._dropped:
                step = self._answered[i]
                if step == len(self._sizes) or self._n_rest:
                    heapq.heappush(heap, top)     # trained in full, and on top: others are outstanding
                    return None
                if self._capped and self._shortcut(top, step):
                    return self._in_the_end()
                self._next[i] = step + 1
                return i, self._sizes[step]
            if not heap:
                return None
            top = heapq.heappop(heap)

    def _room(self) -> int:
        """Rows that may be spent below `n_rows`: those for one full training are kept back until there is one."""
        return self._n_rows * (self._n_learners - (not self._finished)) - self._used

    def _shortcut(self, top: tuple[float, int], step: int) -> bool:
        """Whether the learner on top, and perhaps others, are trained in full instead of climbing on.

        A climb costs less than r / (r - 1) full trainings, so that few of the heap are looked at.
        """
        room = self._room() + (0 if self._finished else self._n_rows)          # for full trainings
        if room < self._n_rows and self._finished:
            self._final = True
            if not self._outstanding:
                self._stop("complete", min(self._finished)[1])
            return True
        if room < self._n_rows and self._outstanding:
            heapq.heappush(self._heap, top)       # the last full training that can be paid is outstanding
            return True
        if step + 1 == len(self._sizes):
            return False
        most = min(self._climb[step], room) // self._n_rows - len(self._outstanding)
        rivals = self._rivals(-self._valid[top[1]][-1], most) if most > 0 else None
        if rivals is not None:
            chosen = [top, *sorted(rivals)]
        elif self._sizes[step] <= self._room():
            return False
        else:                                     # the rows give out: those with the best scores so far
            self._final = True
            left = [entry for entry in [top, *self._heap]
                    if entry[1] not in self._dropped and self._answered[entry[1]] < len(self._sizes)]
            left.sort(key=lambda entry: (-self._valid[entry[1]][-1], entry[1]))
            chosen = left[: max(1, room // self._n_rows)]
            heapq.heappush(self._heap, top)
        for _, j in chosen:
            self._to_the_top(j)
        self._heap = [entry for entry in self._heap
                      if entry[1] not in self._jumped or self._answered[entry[1]] == len(self._sizes)]
        heapq.heapify(self._heap)
        return True

    def _rivals(self, score: float, most: int) -> list[tuple[float, int]] | None:
        """Entries of those not trained in full whose projection is at least a score; None if `most` or more."""
        found, heap, waiting = [], self._heap, [0]
        while waiting:
            k = waiting.pop()
            if k < len(heap) and heap[k][0] <= score:
                j = heap[k][1]
                if j not in self._dropped and self._answered[j] < len(self._sizes):
                    found.append(heap[k])
                    if len(found) >= most:
                        return None
                waiting += (2 * k + 1, 2 * k + 2)
        return found

    def _to_the_top(self, i: int) -> None:
        """Train a learner in full next."""
        self._rest.append(i)
        self._jumped.add(i)
        self._n_rest += 1

    def _sort_in(self) -> None:
        """Put bounds that came since the last call into the heap."""
        for bound in self._fresh:
            heapq.heappush(self._heap, bound)
        self._fresh.clear()

    def _take(self, learner: int, n: int, train: float, valid: float) -> float:
        return self._resolve(learner, self._steps[n], (train, valid))

    def _defer(self, learner: int, n: int) -> bool:
        if n == self._n_rows:
            return False
        self._used -= n
        self._resolve(learner, self._steps[n], None)
        return True

    def _resolve(self, learner: int, step: int, scores: tuple[float, float] | None) -> float:
        """Take the answer of a training, None for a failure, in the order of sizes."""
        if learner in self._jumped:
            self._n_rest -= 1
        elif step != self._answered[learner]:           # a smaller size of this learner is outstanding
            self._early[learner, step] = scores
            return math.nan
        bound = self._add(learner, step, scores)
        while self._early and (learner, step + 1) in self._early:
            step += 1
            bound = self._add(learner, step, self._early.pop((learner, step)))
        if self._finished:
            self._settle()
        return bound

    def _add(self, i: int, step: int, scores: tuple[float, float] | None) -> float:
        """Add a score to a learner's curve; its new bound, nan before there is one."""
        values, places = self._valid[i], self._places[i]
        self._answered[i] = step + 1
        if scores is not None:
            train, raw = scores
            valid = raw
            if values and valid < values[-1]:
                values[-1] = valid = 0.5 * (values[-1] + valid)
            values.append(valid)
            places.append(step)
            self._train[i] = train
            if step == len(self._sizes) - 1:
                self._ready.add(i)
                self._finished.append((-raw, i))
                if self._verify or i in self._jumped:
                    self._fresh.append((-raw, i))
                return raw
        if len(values) < 3:
            if step + 1 == self._next[i] and step + 1 < len(self._sizes):
                self._lacking.append(i)           # all that was handed out is answered, and some of it failed
            return math.nan
        self._ready.add(i)
        valid, last = values[-1], places[-1]
        first, second = (self._reach[last] if last - places[-3] == 2
                         else projections([self._x[k] for k in places[-3:]])[2])
        rise = first * (values[-3] - valid) + second * (values[-2] - valid)
        bound = valid + rise if rise > 0.0 or not self._clip_slope else valid
        if self._train[i] < bound and self._training_bound:
            bound = self._train[i]
        self._fresh.append((-bound, i))
        return bound

    def _left(self, learner: int) -> None:
        self._ready.add(learner)
        if learner in self._jumped and self._answered[learner] < len(self._sizes):
            self._n_rest -= 1
        if self._finished:
            self._finished = [entry for entry in self._finished if entry[1] != learner]
        self._settle()

    def _settle(self) -> None:
        """Stop if the choice can be made."""
        if not self._finished or len(self._ready) < self._n_learners or self._n_rest:
            return
        if self._n_first == len(self._sizes) or self._final or (
            not self._verify and any(i not in self._jumped for _, i in self._finished)
        ):
            self._stop("complete", min(self._finished)[1])
            return
        self._sort_in()
        while self._heap[0][1] in self._dropped:
            heapq.heappop(self._heap)
        top = self._heap[0][1]
        if self._answered[top] == len(self._sizes) and not self._outstanding:
            self._stop("complete", top)

    def _method(self) -> str:
        said = [f"DAUB, {self._sizes[0]} to {self._sizes[-1]} rows in {len(self._sizes)} sizes"]
        if self._curve != 1.0:
            said.append(f"curve {self._curve:g}")
        if not self._training_bound:
            said.append("no training bound")
        if not self._clip_slope:
            said.append("slopes as they are")
        if self._verify:
            said.append("verified")
        if not self._capped:
            said.append("no limit")
        return ", ".join(said)

    def _warnings(self) -> tuple[str, ...]:
        if self._in_full:
            return (f"{IN_FULL}: the first three sizes of all would have cost more",)
        start = sum(self._sizes[: self._n_first])
        if self._first or start <= self._n_rows / 4:
            return super()._warnings()
        return (f"the first {self._n_first} sizes take {start} of {self._n_rows} rows for every learner, so little can "
                f"be won; a smaller first size, or training all in full, may be better",)
