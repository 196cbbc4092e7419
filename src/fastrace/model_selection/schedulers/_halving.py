"""Methods with a schedule: successive halving, Hyperband, ASHA, a fixed subset, chance, and halving by DAUB's bound."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence

from fastrace._base import _checks
from fastrace.model_selection.schedulers._daub import checked_sizes
from fastrace.model_selection.schedulers._scheduler import Allocation, Scheduler

Cost = str | Callable[[int, int], float]
TINY = 1e-12            # added before a floor, so that log(243, 3) is 5


def _floor(x: float) -> int:
    return math.floor(x + TINY)


def halving_plan(
    n_learners: int, n_rows: int, factor: float, smallest: int, first: int | str, aggressive: bool
) -> list[tuple[int, int]]:
    """The rounds of scikit-learn's halving searches: rows and learners of each."""
    need = 1 + _floor(math.log(n_learners) / math.log(factor))
    if first == "exhaust":
        start = max(smallest, _floor(n_rows / factor ** (need - 1)))
    elif first == "smallest":
        start = smallest
    else:
        start = int(first)
    start = min(start, n_rows)
    can = 1 + _floor(math.log(n_rows // start) / math.log(factor))
    rounds = need if aggressive else min(need, can)
    plan = []
    for t in range(rounds):
        power = max(0, t - need + can) if aggressive else t
        rows = min(_floor(factor**power * start), n_rows)
        plan.append((rows, math.ceil(n_learners / factor**t - TINY)))
    return plan


class SuccessiveHalving(Scheduler):
    r"""Train all on few rows, keep the best share, go on with more rows; what is dropped never comes back.

    Parameters
    ----------
    n_learners, n_rows : int
        Learners, at least 1, and rows of a full training.
    first : {"exhaust", "smallest"} or int, default "exhaust"
        Rows of the first round. ``"exhaust"`` makes the last round as large as it gets, ``"smallest"`` is `smallest`.
    factor : float, default 3.0
        One of `factor` learners is kept in each round, above 1 (eta).
    growth : float, optional
        Factor between sizes. By default `factor`, with the rounds of scikit-learn's halving searches; otherwise rounds
        go on until `n_rows` or until one learner is left.
    sizes : sequence of int, optional
        The sizes themselves, the last one `n_rows`.
    smallest : int, default 1
        Fewest rows of a round.
    aggressive : bool, default False
        Repeat the first size until as many are left as the rows allow for.
    finish : bool, default True
        Train the winner on all rows at the end, if it has not been.
    direction, cost, budget, names
        As for `DAUB`.

    Raises
    ------
    ValueError
        If a parameter is out of range.

    Notes
    -----
    No promise. Trainings of one round are independent: `ask` hands them all out, then waits.

    No more rows are spent than by training all in full: if the rounds, with the last training of the winner, would need
    more, all are trained in full at once, and the result says so. scikit-learn's searches run such rounds.

    References
    ----------
    .. [1] Jamieson, Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter Optimization", AISTATS 2016.

    Examples
    --------
    >>> from fastrace.model_selection import SuccessiveHalving
    >>> halving = SuccessiveHalving(9, 9000)
    >>> result = halving.run(lambda learner, n: (None, learner - 100 / n))
    >>> result.best, [n for _, n in result.allocations]
    (8, [1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 3000, 3000, 3000, 9000])
    """

    def __init__(
        self,
        n_learners: int,
        n_rows: int,
        first: int | str = "exhaust",
        factor: float = 3.0,
        *,
        growth: float | None = None,
        sizes: Sequence[int] | None = None,
        smallest: int = 1,
        aggressive: bool = False,
        finish: bool = True,
        direction: str = "maximize",
        cost: Cost = "rows",
        budget: float | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        super().__init__(n_learners, n_rows, direction=direction, cost=cost, budget=budget, names=names)
        self._factor = _checks.real(factor, "factor")
        if not 1.0 < self._factor < math.inf:
            raise ValueError(f"factor is {factor}; a finite number above 1 is needed: one of `factor` learners is kept")
        smallest = _checks.integer(smallest, "smallest", 1, "learners are trained on rows")
        if isinstance(first, str):
            first = _checks.choice(first, "first", ("exhaust", "smallest"))
        else:
            first = _checks.integer(first, "first", 1, "learners are trained on rows")
        self._finish = bool(finish)
        self._plan: list[tuple[int, int]]         # rows, learners
        self._in_full = False                     # as the rounds would cost more
        if sizes is None and growth is None:
            self._plan = halving_plan(self._n_learners, self._n_rows, self._factor, smallest, first, bool(aggressive))
            found = sorted({n for n, _ in self._plan})
            if self._finish and found[-1] < self._n_rows:
                found.append(self._n_rows)
        else:
            if sizes is None:
                if isinstance(first, str):
                    first = halving_plan(self._n_learners, self._n_rows, self._factor, smallest, first, False)[0][0]
                found = checked_sizes(first, 2.0 if growth is None else growth, self._n_rows)
            else:
                found = checked_sizes(1, 2.0, self._n_rows, sizes=sizes)
            self._plan, alive = [], self._n_learners
            for n in found:
                if alive > 1 or n == self._n_rows:
                    self._plan.append((n, alive))
                    alive = max(1, math.ceil(alive / self._factor - TINY))
        if self._rows_of(self._plan) > self._n_rows * self._n_learners:
            self._plan, found, self._in_full = [(self._n_rows, self._n_learners)], [self._n_rows], True
        self._ladder = found                      # sizes on which a learner that failed is tried again
        self._begin(0, list(range(self._n_learners)))

    @property
    def plan(self) -> list[tuple[int, int]]:
        """(rows, learners) of each round; fewer learners if some are dropped."""
        return list(self._plan)

    def _rows_of(self, plan: list[tuple[int, int]]) -> int:
        """Rows of all trainings of a plan, with the winner's on all rows at the end."""
        last = self._n_rows if self._finish and plan[-1][0] < self._n_rows else 0
        return sum(n * count for n, count in plan) + last

    def _begin(self, number: int, alive: list[int]) -> None:
        self._round, self._alive = number, alive
        self._handed_out, self._open = 0, set(alive)
        self._told: dict[int, float] = {}
        self._later: list[int] = []               # failed in this round, and are tried again in the next

    def _propose(self) -> Allocation | None:
        if self._handed_out == len(self._alive):
            return None
        self._handed_out += 1
        return self._alive[self._handed_out - 1], self._plan[self._round][0]

    def _take(self, learner: int, n: int, train: float, valid: float) -> float:
        self._told[learner] = valid
        self._answered(learner)
        return math.nan

    def _left(self, learner: int) -> None:
        if learner in self._open:                 # else it was left out of a round
            self._answered(learner)

    def _defer(self, learner: int, n: int) -> bool:
        if n >= self._ladder[-1]:
            return False
        self._later.append(learner)
        self._answered(learner)
        return True

    def _answered(self, learner: int) -> None:
        """Start the next round, or stop, once all of this one have answered."""
        self._open.remove(learner)
        if self._open:
            return
        if not (self._told or self._later):       # the last survivors crashed: the best of those dropped for rank
            self._begin(self._round, self._stand_ins())
            return
        order = sorted(self._told, key=lambda i: (-self._told[i], i))
        number, now = self._round + 1, self._plan[self._round][0]
        new = self._unproven() if self._uncounted and now < self._ladder[-1] else []
        if self._later or new:                    # the next size of the ladder, though the plan may leave it out
            rows = next(n for n in self._ladder if n > now)
            if number == len(self._plan) or self._plan[number][0] > rows:
                self._plan.insert(number, (rows, max(1, math.ceil(len(self._alive) / self._factor - TINY))))
        elif number == len(self._plan):
            if now == self._n_rows or not self._finish:
                self._stop("complete", order[0])
                return
            self._plan.append((self._n_rows, 1))
        kept = self._kept(order) if order else []
        alive = [*kept, *(i for i in new if i not in kept), *self._later]
        lost = self._cut(number, alive) if self._uncounted else []
        self._begin(number, sorted(alive))
        for i in lost:
            self._drop(i, f"failed on {now} rows, and no rows are left within the cost of training all in full")

    def _cut(self, number: int, alive: list[int]) -> list[int]:
        """Fit a round with learners that failed before into what training all in full costs.

        Where the round and a last training would cost more, or more than the rest in full, the rest is trained in full.
        Those for whom no rows are left are taken out of `alive`; answers those of them that failed last.
        """
        rows, top, count = self._plan[number][0], self._ladder[-1], len(alive)
        left = float(self._n_rows) * self._n_learners - self._spent if self._by_rows else math.inf
        if rows < top and (rows * count + top > left or rows * count + top >= top * count):
            rows = top
            self._plan[number:] = [(top, count)]
        room = count if rows * count <= left else max(1, int(left // rows))
        self._plan[number] = rows, min(room, count)
        lost = [i for i in alive[room:] if i in self._later]
        del alive[room:]
        return lost

    def _unproven(self) -> list[int]:
        """Learners that failed before this round, so that they cannot be ranked with the others yet."""
        return []

    def _kept(self, order: list[int]) -> list[int]:
        """Who of this round's learners, the best first, goes on."""
        return order[: self._plan[self._round + 1][1]]

    def _leader(self) -> int:
        known = [i for i in range(self._n_learners) if self._reached[i]]
        return max(known, key=lambda i: (self._reached[i], self._upward * self._last[i], -i)) if known else -1

    def _warnings(self) -> tuple[str, ...]:
        if not self._in_full:
            return ()
        return ("all learners were trained in full at once: the rounds would have cost more",)

    def _method(self) -> str:
        return f"{type(self).__name__}, {self._plan[0][0]} to {self._plan[-1][0]} rows, factor {self._factor:g}"


class DAUBHalving(SuccessiveHalving):
    r"""Successive halving that keeps the learners with the highest projected scores instead of the highest scores.

    The trainings of halving leave two scores of each survivor at growing sizes; DAUB's straight line through them,
    on a scale of rows on which learning curves saturate, projects the score at `n_rows`. Ranking by it costs no
    training more, and learners that are late but climbing are kept. A quarter is kept, for four times the rows: longer
    steps tell more about the slope than many short ones.

    On 369 recorded cases of 74 data sets it loses less on average than `DAUB` at equal rows. Against halving by
    scores with the same rounds the difference is not significant: -0.018 +- 0.017 percentage points of accuracy
    (standard error over data sets) from a 16th of the rows, -0.083 +- 0.054 from a 64th. These are validation losses,
    and `factor` and `curve` were chosen on the same cases; see ``papers/sabharwal_2016`` in the repository.

    Parameters
    ----------
    factor : float, default 4.0
        One of `factor` learners is kept in each round, above 1.
    curve : float, default -0.5
        Scale of rows, as for `DAUB`. -1/2 takes a score for a straight line in 1 / sqrt(n).
    training_bound : bool, default False
        Bound projections by training scores.
    fill : float, default 0.0
        Let the next best learners go on as well while a round is not expected to cost more than `fill` times the first
        round, in what `cost` counts. 1 with ``cost="seconds"``: every round takes as long as the first, so learners
        that are quick to train stay longer. 0 keeps a fixed number, whatever they cost.
    n_learners, n_rows, first, growth, sizes, smallest, aggressive, finish, direction, cost, budget, names
        As for `SuccessiveHalving`.

    Notes
    -----
    No promise with noise, as for its parents.

    Examples
    --------
    >>> from fastrace.model_selection import DAUBHalving, SuccessiveHalving
    >>> final, speed = [0.70, 0.80, 0.85, *[0.5] * 6], [9.0, 2.0, 60.0, *[1.0] * 6]
    >>> for method in SuccessiveHalving, DAUBHalving:
    ...     result = method(9, 50_000, first=200).run(lambda learner, n: (None, final[learner] - speed[learner] / n))
    ...     print(result.best, result.allocations[-1])
    1 (1, 50000)
    2 (2, 50000)
    """

    def __init__(
        self,
        n_learners: int,
        n_rows: int,
        first: int | str = "exhaust",
        factor: float = 4.0,
        *,
        curve: float = -0.5,
        training_bound: bool = False,
        fill: float = 0.0,
        growth: float | None = None,
        sizes: Sequence[int] | None = None,
        smallest: int = 1,
        aggressive: bool = False,
        finish: bool = True,
        direction: str = "maximize",
        cost: Cost = "rows",
        budget: float | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        super().__init__(
            n_learners, n_rows, first, factor, growth=growth, sizes=sizes, smallest=smallest, aggressive=aggressive,
            finish=finish, direction=direction, cost=cost, budget=budget, names=names,
        )
        self._curve = _checks.real(curve, "curve")
        if not -10.0 <= self._curve <= 10.0:
            raise ValueError(f"curve is {curve}; an exponent from -10 to 10 is needed")
        self._training_bound = bool(training_bound)
        self._fill = _checks.real(fill, "fill")
        if not self._fill >= 0.0:
            raise ValueError(f"fill is {fill}; a share of the first round's cost, at least 0, is needed")
        self._before: dict[int, tuple[int, float]] = {}
        self._projected: set[int] = set()         # learners with two scores or more
        self._bills: dict[int, list[tuple[int, float]]] = {}     # rows and cost of each learner's trainings

    def _x(self, n: int) -> float:
        log = math.log(n / self._n_rows)
        return log if self._curve == 0.0 else math.expm1(self._curve * log) / self._curve

    def _unproven(self) -> list[int]:
        new = [i for i in self._told if i not in self._projected]
        return new if len(new) < len(self._told) else []

    def _kept(self, order: list[int]) -> list[int]:
        rows, count = self._plan[self._round + 1]
        kept = order[:count]
        if self._fill:
            first = self._plan[0][0]
            budget = self._fill * sum(price for bills in self._bills.values() for n, price in bills[:1] if n == first)
            expected = {i: _next_bill(self._bills[i], rows) for i in order}
            spent = sum(expected[i] for i in kept)
            room = (self._n_rows * self._n_learners - self._rows_of(self._plan)) // rows    # left of all in full
            for i in order[count:]:
                if room > 0 and spent + expected[i] <= budget:
                    kept.append(i)
                    spent += expected[i]
                    room -= 1
            self._plan[self._round + 1] = rows, len(kept)
        return kept

    def _take(self, learner: int, n: int, train: float, valid: float) -> float:
        bound = valid
        before = self._before.get(learner)
        if before is not None:
            self._projected.add(learner)
        if before is not None and before[0] < n and valid > before[1]:
            x = self._x(n)
            bound = valid - x * (valid - before[1]) / (x - self._x(before[0]))
        if self._training_bound:
            bound = min(bound, train)
        if n == self._n_rows:
            bound = valid
        self._before[learner] = n, valid
        if self._fill:
            self._bills.setdefault(learner, []).append((n, self._paid))
        self._told[learner] = bound
        self._answered(learner)
        return bound


def _next_bill(bills: Sequence[tuple[int, float]], n: int) -> float:
    """What a training on n rows will cost: a power of the rows through the last two bills, linear after the first.

    The power is kept within 0 and 2.
    """
    rows, price = bills[-1]
    power = 1.0
    if len(bills) > 1:
        fewer, cheaper = bills[-2]
        if min(price, cheaper) > 0.0 and rows > fewer:
            power = min(2.0, max(0.0, math.log(price / cheaper) / math.log(rows / fewer)))
    return price * math.pow(n / rows, power)


class FixedSubset(SuccessiveHalving):
    """Train all on one small subset, then the best of them on all rows: the plain rival of every method here.

    Parameters
    ----------
    n_learners, n_rows : int
        Learners, and rows of a full training.
    first : int
        Rows of the subset.
    direction, cost, budget, names
        As for `DAUB`.

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
        *,
        direction: str = "maximize",
        cost: Cost = "rows",
        budget: float | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        first = _checks.integer(first, "first", 1, "learners are trained on rows")
        sizes = [first, n_rows] if first < n_rows else [n_rows]
        super().__init__(
            n_learners, n_rows, factor=max(2.0, float(n_learners)), sizes=sizes, direction=direction, cost=cost,
            budget=budget, names=names,
        )

    def _method(self) -> str:
        return f"FixedSubset of {self._plan[0][0]} rows"


class RandomChoice(SuccessiveHalving):
    """Train a few learners, drawn at random, on all rows and take the best.

    Parameters
    ----------
    n_learners, n_rows : int
        Learners, and rows of a full training.
    n_trained : int, default 1
        Learners that are trained.
    rng : None, int, SeedSequence or Generator, optional
        Draws them, here and only here.
    direction, cost, budget, names
        As for `DAUB`.

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
        direction: str = "maximize",
        cost: Cost = "rows",
        budget: float | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        super().__init__(
            n_learners, n_rows, sizes=[n_rows], direction=direction, cost=cost, budget=budget, names=names
        )
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
    n_learners, n_rows : int
        Learners, and rows of a full training (R).
    first : int
        Fewest rows of a training.
    factor : float, default 3.0
        One of `factor` learners is kept in each round, above 1 (eta).
    rng : None, int, SeedSequence or Generator, optional
        Draws the learners of all brackets, here and only here.
    direction, cost, budget, names
        As for `DAUB`.

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
        direction: str = "maximize",
        cost: Cost = "rows",
        budget: float | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        super().__init__(n_learners, n_rows, direction=direction, cost=cost, budget=budget, names=names)
        first = _checks.integer(first, "first", 1, "learners are trained on rows")
        self._factor = _checks.real(factor, "factor")
        if not 1.0 < self._factor < math.inf:
            raise ValueError(f"factor is {factor}; a finite number above 1 is needed: one of `factor` learners is kept")
        generator = _checks.generator(rng)
        top = max(0, _floor(math.log(self._n_rows / first) / math.log(self._factor)))
        self._brackets: list[tuple[list[int], list[tuple[int, int]]]] = []
        for s in range(top, -1, -1):
            start = math.ceil((top + 1) / (s + 1) * self._factor**s - TINY)
            drawn = sorted(int(i) for i in generator.permutation(self._n_learners)[:start])
            plan = [
                (max(1, _floor(self._n_rows * self._factor ** (k - s))), max(1, _floor(len(drawn) / self._factor**k)))
                for k in range(s + 1)
            ]
            self._brackets.append((drawn, plan))
        self._known: dict[Allocation, float] = {}
        self._enter(0, 0, self._brackets[0][0])

    @property
    def brackets(self) -> list[list[tuple[int, int]]]:
        """(rows, learners) of the rounds of each bracket."""
        return [list(plan) for _, plan in self._brackets]

    def _enter(self, bracket: int, number: int, alive: list[int]) -> None:
        """Begin a round."""
        self._bracket, self._round, self._alive, self._handed_out = bracket, number, alive, 0
        rows = self._brackets[bracket][1][number][0]
        self._pending = {i for i in alive if i not in self._dropped and (i, rows) not in self._known}

    def _propose(self) -> Allocation | None:
        rows = self._brackets[self._bracket][1][self._round][0]
        while self._handed_out < len(self._alive):
            i = self._alive[self._handed_out]
            self._handed_out += 1
            if i not in self._dropped and (i, rows) not in self._known:
                return i, rows
        return None

    def _take(self, learner: int, n: int, train: float, valid: float) -> float:
        self._known[learner, n] = valid
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
                order = sorted(alive, key=lambda i: (-self._known[i, rows], i))
                self._enter(self._bracket, self._round + 1, sorted(order[: plan[self._round + 1][1]]))
            elif self._bracket + 1 < len(self._brackets):
                self._enter(self._bracket + 1, 0, self._brackets[self._bracket + 1][0])
            else:
                full = [i for i in range(self._n_learners)
                        if i not in self._dropped and (i, self._n_rows) in self._known]
                if full:
                    self._stop("complete", max(full, key=lambda i: (self._known[i, self._n_rows], -i)))
                    return
                rest = self._stand_ins()
                self._brackets.append((rest, [(self._n_rows, len(rest))]))
                self._enter(len(self._brackets) - 1, 0, rest)

    def _method(self) -> str:
        return f"Hyperband, {len(self._brackets)} brackets, factor {self._factor:g}"


class _Rung:
    """Scores of one size. It names the best learner that was not promoted, if that one is among the best share.

    Two heaps part the scores: `_top` holds the best share, its worst score first; `_rest` holds the others, the best
    first. `_ready` holds those not promoted, the best first. What was taken out stays in the heaps until it comes up,
    so that each change costs O(log n) and each question O(1), on average over a run.
    """

    def __init__(self, factor: float) -> None:
        self._factor = factor
        self.scores: dict[int, float] = {}
        self.promoted: set[int] = set()
        self._in_top: set[int] = set()
        self._top: list[tuple[float, int]] = []           # (score, -learner)
        self._rest: list[tuple[float, int]] = []          # (-score, learner)
        self._ready: list[tuple[float, int]] = []         # (-score, learner)

    def add(self, i: int, score: float) -> None:
        self.scores[i] = score
        heapq.heappush(self._ready, (-score, i))
        heapq.heappush(self._rest, (-score, i))
        worst = self._worst()
        if worst is not None and (score, -i) > worst:     # the new one and the worst of the share change places
            self._raise()
            self._lower()
        self._balance()

    def drop(self, i: int) -> None:
        if self.scores.pop(i, None) is not None:
            self._in_top.discard(i)
            self._balance()

    def best_waiting(self) -> int | None:
        """The best learner that was not promoted."""
        ready = self._ready
        while ready and (ready[0][1] in self.promoted or ready[0][1] not in self.scores):
            heapq.heappop(ready)
        return ready[0][1] if ready else None

    def next_promotion(self) -> int | None:
        """The best learner that was not promoted, if it is among the best share."""
        i = self.best_waiting()
        return i if i in self._in_top else None

    def _balance(self) -> None:
        share = _floor(len(self.scores) / self._factor)
        while len(self._in_top) < share:
            self._raise()
        while len(self._in_top) > share:
            self._lower()

    def _worst(self) -> tuple[float, int] | None:
        top = self._top
        while top and -top[0][1] not in self._in_top:
            heapq.heappop(top)
        return top[0] if top else None

    def _raise(self) -> None:
        """Move the best of the others into the share."""
        while True:
            lost, i = heapq.heappop(self._rest)
            if i in self.scores and i not in self._in_top:
                break
        self._in_top.add(i)
        heapq.heappush(self._top, (-lost, -i))

    def _lower(self) -> None:
        """Move the worst of the share to the others."""
        self._worst()
        score, minus = heapq.heappop(self._top)
        self._in_top.discard(-minus)
        heapq.heappush(self._rest, (-score, -minus))


class ASHA(Scheduler):
    r"""Asynchronous successive halving: a free worker promotes a learner that is among the best of its rung.

    Parameters
    ----------
    n_learners, n_rows : int
        Learners, and rows of a full training.
    first : int, optional
        Rows of the lowest rung; not needed with `sizes`.
    factor : float, default 3.0
        The best 1 / `factor` of a rung are promoted to `factor` times as many rows, above 1 (eta).
    sizes : sequence of int, optional
        The sizes of the rungs themselves, increasing, the last one `n_rows`.
    direction, cost, budget, names
        As for `DAUB`.

    Notes
    -----
    Learners enter in their order. The pool is finite: once all have entered and no more than 1 / `factor` of any rung
    is left to promote, the best of the highest rung climbs to the top and the best there is chosen. No promise.

    With few learners the rungs may need more rows than training all in full; `SuccessiveHalving` never does.

    A decision costs O(log n_learners) on average over a run, whatever the number of rounds.

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
        direction: str = "maximize",
        cost: Cost = "rows",
        budget: float | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        super().__init__(n_learners, n_rows, direction=direction, cost=cost, budget=budget, names=names)
        self._factor = _checks.real(factor, "factor")
        if first is None and sizes is None:
            raise ValueError("first and sizes are None; the rows of the lowest rung, or of all rungs, are needed")
        self._sizes = checked_sizes(1 if first is None else first, self._factor, self._n_rows, sizes=sizes)
        if not 1.0 < self._factor < math.inf:
            raise ValueError(f"factor is {factor}; a finite number above 1 is needed: one of `factor` is promoted")
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
        self._rungs[k].promoted.add(learner)
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
        if self._outstanding or self._rungs[-1].scores:
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
        top = self._rungs[-1].scores
        if top and not (self._promising or self._outstanding or self._entered < self._n_learners):
            self._stop("complete", max(top, key=lambda i: (top[i], -i)))

    def _method(self) -> str:
        return f"ASHA, {self._sizes[0]} to {self._sizes[-1]} rows, factor {self._factor:g}"
