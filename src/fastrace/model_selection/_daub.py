"""DAUB: train next the learner whose projected score on all rows is the highest."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence

from fastrace import _checks
from fastrace.model_selection._scheduler import Allocation, Scheduler, grid


class DAUB(Scheduler):
    r"""Choose the learner that is best on all rows, most learners trained on few of them.

    Every learner is trained on the first three sizes of a geometric grid. From then on the learner with the largest
    projected score at `n_rows` gets its next size, until one has been trained on all rows: that one is chosen.

    Parameters
    ----------
    n_learners : int
        Learners to choose from, at least 1 (M in [1]_).
    n_rows : int
        Rows of a full training (N).
    first : int, default 500
        Rows of the first training (b).
    ratio : float, default 1.5
        Factor between sizes, above 1 (r).
    training_bound : bool, default True
        Bound the projection by the training score, which is an upper bound in expectation where training and
        held-out rows come from one distribution. Learners that fit their rows perfectly are not bounded by it.
    clip_slope : bool, default True
        Take a falling slope for a level one. False is the rule as printed in [1]_.
    curve : float, default 1.0
        Scale of rows on which learning curves are taken for straight: slope and projection are linear in
        ``(n**curve - 1) / curve``. 1 is the rule of [1]_, 0 is ``log(n)``, and negative exponents saturate, as power
        laws do. See Notes and `DAUB.saturating`.
    verify : bool, default False
        Do not stop at the first learner trained in full while the projection of another is above its score.
    rounding : {"ceil", "multiple"}, default "ceil"
        Sizes are rounded up, or to the nearest multiple of `first`, as in the experiments of [1]_.
    sizes : sequence of int, optional
        The grid itself, increasing, its last size `n_rows`; `first`, `ratio` and `rounding` then do not matter.
    direction : {"maximize", "minimize"}, default "maximize"
        Whether large or small scores are good. Scores may have any scale: decisions are the same for s and a s + b.
    cost : {"rows", "seconds"} or callable, default "rows"
        What a training costs: its rows, the seconds between `ask` and `tell`, or ``cost(learner, n)``. Costs are
        reported and count against the budget; they do not guide the choice.
    budget : float, optional
        Total cost after which to stop with the best validation score so far.
    names : sequence of str, optional
        Names of the learners, for printing.

    Raises
    ------
    ValueError
        If a parameter is out of range, or a training is told that was not asked for; nothing is changed then.

    Notes
    -----
    The bound of a learner trained on n rows is :math:`\min(f^T, f^V + (N - n) f')`, with f' the least-squares slope
    through its last three validation scores. A score below the one before moves both to their mean. If curves are
    known without noise, are non-decreasing and concave, and `f'` is a one-sided difference, then a learner more than
    :math:`\Delta` worse than the best costs at most :math:`\frac{r}{r-1} c_j(r n_j^\Delta)`, where
    :math:`n_j^\Delta` is the first n with :math:`f_j'(n) \le \Delta / N` (Theorem 2 of [1]_); with slopes over three
    sizes, as here, read :math:`r^2 n_j^\Delta` for :math:`n_j^\Delta`. The one chosen costs at most
    :math:`\frac{r}{r-1} + 1` full trainings: one more than in [1]_, where `n_rows` is a size of the geometric grid.
    With noise there is no proof. The same holds for curves concave in
    another scale of rows, `curve`: the smaller the exponent, the tighter the projection and the more is assumed. A
    learner that leaves chance late has a convex curve, and no method that looks at small samples first can see that.

    All learners are trained on the first three sizes: with ``first * (1 + ratio + ratio**2)`` above a quarter of
    `n_rows` little can be won, and the result says so. If the third size is `n_rows` already, all are trained in full.
    A decision costs O(log n_learners).

    Ties go to the learner with the smaller number. With several trainings outstanding the next best learners are
    trained too, and the rule stops only when nothing of the first three sizes is outstanding.

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
    (2, 0.35)
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
        rounding: str = "ceil",
        sizes: Sequence[int] | None = None,
        direction: str = "maximize",
        cost: str | Callable[[int, int], float] = "rows",
        budget: float | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        super().__init__(n_learners, n_rows, direction=direction, cost=cost, budget=budget, names=names)
        self._training_bound = bool(training_bound)
        self._clip_slope = bool(clip_slope)
        self._verify = bool(verify)
        self._curve = _checks.real(curve, "curve")
        if not -10.0 <= self._curve <= 10.0:
            raise ValueError(f"curve is {curve}; an exponent from -10 to 10 is needed, 1 for the rule of the paper")
        self._sizes = checked_sizes(first, ratio, self._n_rows, rounding, sizes)
        top = self._sizes[-1]
        power = self._curve
        self._x = [math.log(n / top) if power == 0.0 else math.expm1(power * math.log(n / top)) / power
                   for n in self._sizes]          # rows on the scale of `curve`, 0 at n_rows
        self._steps = {n: k for k, n in enumerate(self._sizes)}
        self._reach = projections(self._x)
        self._n_first = min(3, len(self._sizes))
        self._handed_out = 0                      # of the n_first * n_learners trainings everyone gets
        self._n_ready = 0                         # learners that have had them, or were dropped
        self._valid: list[list[float]] = [[] for _ in range(self._n_learners)]
        self._train = [math.inf] * self._n_learners
        self._early: dict[Allocation, tuple[float, float]] = {}
        self._heap: list[tuple[float, int]] = []
        self._fresh: list[tuple[float, int]] = []     # told since the last training was handed out; not in the heap yet
        self._finished: list[tuple[float, int]] = []

    @property
    def sizes(self) -> list[int]:
        """The grid of training sizes."""
        return list(self._sizes)

    def peek(self, k: int) -> list[Allocation]:
        """The next `k` trainings if none of them changed anything, the most likely first; for speculative workers."""
        ahead: list[Allocation] = []
        at = self._handed_out
        while len(ahead) < k and at < self._n_first * self._n_learners:
            i, step = divmod(at, self._n_first)
            at += 1
            if i not in self._dropped:
                ahead.append((i, self._sizes[step]))
        best = heapq.nsmallest(k - len(ahead), [*self._heap, *self._fresh]) if len(ahead) < k else []
        return ahead + [(i, self._sizes[len(self._valid[i])]) for _, i in best if self._waits(i)]

    def _waits(self, i: int) -> bool:
        return i not in self._dropped and len(self._valid[i]) < len(self._sizes)

    def _propose(self) -> Allocation | None:
        while self._handed_out < self._n_first * self._n_learners:
            i, step = divmod(self._handed_out, self._n_first)
            self._handed_out += 1
            if i not in self._dropped:
                if self._fresh:
                    self._sort_in()
                return i, self._sizes[step]
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
                step = len(self._valid[i])
                if step < len(self._sizes):
                    return i, self._sizes[step]
                heapq.heappush(heap, top)         # trained in full, and on top: others are outstanding
                return None
            if not heap:
                return None
            top = heapq.heappop(heap)

    def _sort_in(self) -> None:
        """Put bounds told since the last call into the heap."""
        for bound in self._fresh:
            heapq.heappush(self._heap, bound)
        self._fresh.clear()

    def _take(self, learner: int, n: int, train: float, valid: float) -> float:
        step = self._steps[n]
        if step != len(self._valid[learner]):     # a smaller size of this learner is outstanding
            self._early[learner, step] = train, valid
            return math.nan
        bound = self._add(learner, step, train, valid)
        while self._early and (learner, step + 1) in self._early:
            step += 1
            bound = self._add(learner, step, *self._early.pop((learner, step)))
        if self._finished:
            self._settle()
        return bound

    def _add(self, i: int, step: int, train: float, valid: float) -> float:
        """Add a score to a learner's curve; its new bound, nan before there is one."""
        values = self._valid[i]
        raw = valid
        if values and valid < values[-1]:
            values[-1] = valid = 0.5 * (values[-1] + valid)
        values.append(valid)
        self._train[i] = train
        if step == self._n_first - 1:
            self._n_ready += 1
        if step == len(self._sizes) - 1:
            self._finished.append((-raw, i))
            if self._verify:
                self._fresh.append((-raw, i))
            return raw
        if step < 2:
            return math.nan
        first, second = self._reach[step]
        rise = first * (values[step - 2] - valid) + second * (values[step - 1] - valid)
        bound = valid + rise if rise > 0.0 or not self._clip_slope else valid
        if train < bound and self._training_bound:
            bound = train
        self._fresh.append((-bound, i))
        return bound

    def _left(self, learner: int) -> None:
        if len(self._valid[learner]) < self._n_first:
            self._n_ready += 1
        if self._finished:
            self._finished = [one for one in self._finished if one[1] != learner]
        self._settle()

    def _settle(self) -> None:
        """Stop if the choice can be made."""
        if not self._finished or self._n_ready < self._n_learners:
            return
        if self._n_first == len(self._sizes) or not self._verify:
            self._stop("complete", min(self._finished)[1])
            return
        self._sort_in()
        while self._heap[0][1] in self._dropped:
            heapq.heappop(self._heap)
        top = self._heap[0][1]
        if len(self._valid[top]) == len(self._sizes) and not self._outstanding:
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
        return ", ".join(said)

    def _warnings(self) -> tuple[str, ...]:
        start = sum(self._sizes[: self._n_first])
        if start <= self._n_rows / 4:
            return ()
        return (f"the first {self._n_first} sizes take {start} of {self._n_rows} rows for every learner, so little can "
                f"be won; a smaller first size, or training all in full, may be better",)


def projections(x: Sequence[float]) -> list[tuple[float, float]]:
    """By how much the least-squares line through three points, moved to the last of them, rises on its way to 0.

    With the last score as the origin the rise is ``first * y1 + second * y2``; answered for each place `x` that has two
    before it, (0, 0) for the others.
    """
    found = [(0.0, 0.0)] * min(2, len(x))
    for x1, x2, x3 in zip(x, x[1:], x[2:], strict=False):
        mean = (x1 + x2 + x3) / 3.0
        d1, d2, d3 = x1 - mean, x2 - mean, x3 - mean
        share = -x3 / (d1 * d1 + d2 * d2 + d3 * d3)
        found.append((share * d1, share * d2))
    return found


def checked_sizes(
    first: int, ratio: float, n_rows: int, rounding: str = "ceil", sizes: Sequence[int] | None = None
) -> list[int]:
    """A checked grid of training sizes that ends at `n_rows`."""
    if sizes is not None:
        found = [_checks.integer(n, "sizes", 1, "learners are trained on rows") for n in sizes]
        if not found or found[-1] != n_rows or any(a >= b for a, b in zip(found, found[1:], strict=False)):
            raise ValueError(f"sizes is {list(sizes)!r}; increasing sizes that end at n_rows, {n_rows}, are needed")
        return found
    first = _checks.integer(first, "first", 1, "learners are trained on rows")
    ratio = _checks.real(ratio, "ratio")
    if not 1.0 < ratio < math.inf:
        raise ValueError(f"ratio is {ratio}; a finite factor above 1 is needed, so that sizes grow")
    return grid(first, ratio, n_rows, _checks.choice(rounding, "rounding", ("ceil", "multiple")))
