"""Model selection under a budget of time (Agarwal, Duchi, Bartlett, Levrard 2011): unrelated and nested classes."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace._base import _checks, _frames
from fastrace.model_selection._penalties import Penalties, Penalty
from fastrace.model_selection.schedulers._scheduler import Allocation, Scheduler


class Budgeted(Scheduler):
    """Base of methods for model classes whose risks, small ones good, guide the choice.

    In one quantum of time a class trains on a number of rows of its own. Subclasses say whether the risk is measured on
    held-out rows (`_on_valid`) or on the rows trained on.
    """

    _on_valid: bool

    def __init__(
        self, rows_per_quantum: ArrayLike, quanta: float, penalties: Sequence[Penalty], n_rows: int | None,
        names: Sequence[str] | None,
    ) -> None:
        names = _frames.arms_called(names, rows_per_quantum=rows_per_quantum)
        rates = _checks.as_array(_frames.of_arms(rows_per_quantum, names, "rows_per_quantum", "classes"),
                                 "rows_per_quantum")
        if rates.ndim != 1 or rates.size == 0 or rates.dtype.kind not in "iu":
            raise ValueError(f"rows_per_quantum is {_checks.shown(rows_per_quantum)}; whole numbers, one per class, "
                             f"are needed")
        if (rates < 1).any():
            raise ValueError(f"rows_per_quantum is {rates.tolist()}; a quantum of time must do for at least one row")
        self._rates, self._quanta = [int(n) for n in rates], quanta
        rows = quanta * float(max(self._rates))
        if not rows <= _checks.MOST:
            raise ValueError(f"budget is {quanta:g} quanta, which do for {rows:.3g} rows; at most 2**63 - 1 are "
                             f"counted")
        most = max(1, math.floor(quanta * max(self._rates)))
        super().__init__(
            rates.size, most if n_rows is None else n_rows, direction="minimize", cost="rows", budget=None, names=names
        )
        self._penalties = Penalties(penalties, rates.size)

    def tell(
        self, learner: int, n: int, train_score: float | None, valid_score: float | None = None,
        cost: float | None = None,
    ) -> None:
        """Take the risks of a training, small ones good, as `DAUB.tell`; the one that guides the choice is needed."""
        needed = valid_score if self._on_valid else train_score
        if needed is None:
            which = "valid_score" if self._on_valid else "train_score"
            raise TypeError(f"{which} is None; the risk that guides the choice is needed")
        super().tell(learner, n, train_score, needed if valid_score is None else valid_score, cost)

    def _left(self, learner: int) -> None:
        self._settle()

    def _settle(self) -> None:
        """Stop if the choice can be made."""
        raise NotImplementedError


class BudgetedUCB(Budgeted):
    r"""Choose among unrelated model classes within a budget of time, by optimism about their penalised risks.

    One quantum of time trains class i on `rows_per_quantum[i]` more rows. Every class gets one; then the class with the
    lowest optimistic risk gets the next, until `budget` quanta are spent. The class queried most often is chosen.

    Parameters
    ----------
    rows_per_quantum : sequence of int, shape (n_classes,)
        Rows of one quantum (n_i).
    budget : int
        Quanta, at least the number of classes (T).
    penalties : sequence of callable
        ``penalty(n)`` of each class (gamma_i), not negative, not increasing; asked for up to ``budget * n_i`` rows.
        `vc_penalty`, `gap_penalty` and others make them.
    n_rows : int, optional
        Rows that there are; more than these are never asked for. A class that has had them all is finished: it is not
        queried again, and its exploration terms are 0.
    loss_bound : float, default 1.0
        Losses lie in [0, loss_bound] (B).
    kappa2 : float, optional
        Weight of the exploration terms; ``sqrt(2) * loss_bound`` by default, for which the proof holds. In practice a
        tenth of it chooses better.
    log_term : {"T", "t"}, default "T"
        ``log(budget)`` in the exploration term, or the logarithm of the quanta spent so far.
    risk : {"train", "valid"}, default "train"
        Which risk guides the choice: that on the rows trained on, as in the paper, or that on held-out rows.
    names : sequence of str, optional
        Names of the classes.

    Raises
    ------
    ValueError
        If a parameter is out of range, or a penalty is nan, negative or increasing.

    Notes
    -----
    The class queried next minimises

    .. math:: \hat R_n - \gamma_i(n) - \kappa_2 \sqrt{\log K / n} + \gamma_i(T n_i) - \kappa_2 \sqrt{\log T / n}

    with n the rows that class i has had. For losses in [0, B] and ``kappa2 = sqrt(2) B`` a class with excess
    :math:`\Delta_i > 0` of penalised risk is queried at most of order
    :math:`((c_i + \kappa_2 \sqrt{\log T}) / \Delta_i)^{2} / n_i` times for penalties :math:`c_i / \sqrt n`, in
    expectation and with high probability (Theorem 1 of [1]_). The weight on the second root is lost in print and
    recovered from the proof.

    `run` takes a function that returns (training risk, held-out risk or None). A decision costs O(log n_classes), or
    O(n_classes) with ``log_term="t"``.

    References
    ----------
    .. [1] Agarwal, Duchi, Bartlett, Levrard, "Oracle inequalities for computationally budgeted model selection", COLT
       2011, Algorithm 1.

    Examples
    --------
    >>> from fastrace.model_selection import BudgetedUCB, vc_penalty
    >>> risks = [0.30, 0.10, 0.20]
    >>> method = BudgetedUCB([100, 50, 20], 200, [vc_penalty(d, 0.1) for d in (1, 2, 5)], kappa2=0.1)
    >>> while not method.done:
    ...     i, n = method.ask()
    ...     method.tell(i, n, risks[i] - 0.1 / n**0.5)
    >>> method.result().best, method.queries.tolist()
    (1, [1, 197, 2])
    """

    def __init__(
        self,
        rows_per_quantum: ArrayLike,
        budget: int,
        penalties: Sequence[Penalty],
        *,
        n_rows: int | None = None,
        loss_bound: float = 1.0,
        kappa2: float | None = None,
        log_term: str = "T",
        risk: str = "train",
        names: Sequence[str] | None = None,
    ) -> None:
        n_classes = _checks.as_array(rows_per_quantum, "rows_per_quantum").size
        quanta = _checks.integer(budget, "budget", max(1, n_classes), "every class is queried once")
        super().__init__(rows_per_quantum, quanta, penalties, n_rows, names)
        bound = _checks.positive(loss_bound, "loss_bound", "it is the largest loss")
        self._kappa2 = math.sqrt(2.0) * bound if kappa2 is None else _checks.real(kappa2, "kappa2")
        if not 0.0 <= self._kappa2 < math.inf:
            raise ValueError(f"kappa2 is {kappa2}; a finite number of at least 0 is needed")
        if not isinstance(log_term, str) or log_term not in ("T", "t"):
            raise ValueError(f"log_term is {_checks.shown(log_term)}; 'T' or 't' is needed")
        self._horizon = log_term == "T"
        self._on_valid = _checks.choice(risk, "risk", ("train", "valid")) == "valid"
        # gamma_i(T n_i), then gamma_i(n_i): both ends, so that every later value is checked against them
        self._far = [self._penalties(i, min(quanta * n, self._n_rows)) for i, n in enumerate(self._rates)]
        self._log_k = math.log(self._n_learners)
        self._queries = [0] * self._n_learners
        self._asked = [0] * self._n_learners
        self._n_answered = self._n_asked = 0
        self._risk = [math.nan] * self._n_learners
        self._heap: list[tuple[float, int]] = []
        self._total: NDArray[np.float64] | None = None

    @property
    def queries(self) -> NDArray[np.int64]:
        """Quanta spent on each class."""
        return np.array(self._queries, np.int64)

    @property
    def average(self) -> NDArray[np.float64]:
        """Mean of the models' parameters over queries; shorter vectors count as padded with zeros."""
        if self._total is None:
            raise RuntimeError("there is no model yet; give tell(..., model=parameters) with each query")
        return self._total / self._n_answered

    def tell(
        self,
        learner: int,
        n: int,
        train_score: float | None,
        valid_score: float | None = None,
        cost: float | None = None,
        *,
        model: ArrayLike | None = None,
    ) -> None:
        """Take the risks of a training, small ones good, as `DAUB.tell`; the one that guides the choice is needed.

        The parameters of its `model` lie in a space that all classes share; their mean over queries is `average`.
        """
        parameters = None if model is None else _checks.reals(model, "model").ravel()
        with self._lock:
            answered = self._n_answered
            super().tell(learner, n, train_score, valid_score, cost)
            if parameters is not None and self._n_answered > answered:
                total = np.zeros(0) if self._total is None else self._total
                self._total = np.zeros(max(total.size, parameters.size))
                self._total[: total.size] = total
                self._total[: parameters.size] += parameters

    def _propose(self) -> Allocation | None:
        while self._n_asked < self._n_learners:
            i = self._n_asked
            self._n_asked += 1
            if i not in self._dropped:
                return self._query(i)
        if self._n_answered + len(self._outstanding) >= self._quanta:
            return None
        if not self._horizon:
            ready = [i for _, i in self._heap if i not in self._dropped]
            self._heap = [(self._criterion(i), i) for i in ready]
            heapq.heapify(self._heap)
        while self._heap:
            i = heapq.heappop(self._heap)[1]
            if i not in self._dropped:
                return self._query(i)
        return None

    def _query(self, i: int) -> Allocation:
        self._asked[i] = min(self._rates[i] * (self._queries[i] + 1), self._n_rows)
        return i, self._asked[i]

    def _criterion(self, i: int) -> float:
        n = self._asked[i]
        value = self._risk[i] - self._penalties(i, n) + self._far[i]
        if n < self._n_rows:
            spent = self._quanta if self._horizon else max(self._n_answered, 2)
            value -= self._kappa2 * (math.sqrt(self._log_k / n) + math.sqrt(math.log(spent) / n))
        return value

    def _take(self, learner: int, n: int, train: float, valid: float) -> float:
        self._queries[learner] += 1
        self._n_answered += 1
        self._risk[learner] = -(valid if self._on_valid else train)
        value = self._criterion(learner)
        if n < self._n_rows:
            heapq.heappush(self._heap, (value, learner))
        self._settle()
        return -value

    def _settle(self) -> None:
        if self._outstanding or self._n_asked < self._n_learners:
            return
        if self._n_answered >= self._quanta or all(i in self._dropped for _, i in self._heap):
            self._stop("complete", self._leader())

    def _leader(self) -> int:
        alive = [i for i in range(self._n_learners) if self._queries[i] and i not in self._dropped]
        full = [i for i in alive if self._asked[i] == self._n_rows]
        if full and len(full) == len(alive):      # every class has had all rows: their risks say it all
            return min(full, key=lambda i: (self._criterion(i), i))
        return max(alive, key=lambda i: (self._queries[i], -i), default=-1)

    def _method(self) -> str:
        return f"BudgetedUCB, {self._quanta} quanta, kappa2 {self._kappa2:g}"

    def _warnings(self) -> tuple[str, ...]:
        finished = sum(n == self._n_rows for n in self._asked)
        if not finished or not self.done:
            return ()
        return (f"{finished} classes ran out of rows, so that numbers of queries do not rank them",)


def cover(g: ArrayLike, slack: float = 1.0) -> list[int]:
    """The fewest indices of an increasing sequence that cover it, from the last one down.

    Every value then has, at or above it, a chosen value that is at most ``1 + slack`` times as large.

    Parameters
    ----------
    g : array_like, shape (k,)
        Penalties of nested classes, not decreasing.
    slack : float, default 1.0
        Lambda, above 0.

    Returns
    -------
    list of int
        Indices of the chosen values, descending.

    Examples
    --------
    >>> from fastrace.model_selection import cover
    >>> [i + 1 for i in cover(range(1, 41))]
    [40, 19, 9, 4, 1]
    """
    values, slack = _checks.reals(g, "g"), _checks.positive(slack, "slack", "with 0 every value is chosen")
    if values.ndim != 1 or np.isnan(values).any():
        raise ValueError(f"g is {_checks.shown(g)}; a vector of penalties is needed")
    values = np.maximum.accumulate(values)
    chosen: list[int] = []
    for j in range(values.size - 1, -1, -1):
        if not chosen or (1.0 + slack) * values[j] < values[chosen[-1]]:
            chosen.append(j)
    return chosen


class CoarseGrid(Budgeted):
    r"""Choose among nested model classes within a budget of time, by training a few of them on equal shares of it.

    Parameters
    ----------
    rows_per_quantum : sequence of int, shape (n_classes,)
        Rows that class i can be trained on in one quantum of time (n_i); classes in increasing order of complexity.
    budget : float
        Quanta (T).
    penalties : sequence of callable
        ``penalty(n)`` of each class (gamma_i), not negative, not increasing in n. Over classes the running maximum is
        taken.
    slack : float, default 1.0
        Lambda: a class stands for those whose penalty is at most 1 + slack times smaller. The larger, the fewer classes
        are trained, on more rows each.
    criterion : {"penalized", "held-out"}, default "penalized"
        Choose by training risk plus penalty, as in [1]_, or by the risk on held-out rows: the scale of penalties then
        matters for the grid only.
    n_rows : int, optional
        Rows that there are.
    kappa2_select : float, default 0.0
        Adds ``kappa2_select * sqrt((log(s) + failure) / n)``, which makes the promise hold for the class that was
        chosen by the data.
    failure : float, default 3.0
        m in the probability ``exp(-m)`` of failure.
    names : sequence of str, optional
        Names of the classes.

    Raises
    ------
    ValueError
        If a parameter is out of range, a penalty is nan, negative or increasing in n, or a class cannot be trained on
        a single row in its share of the budget.

    Notes
    -----
    The grid S of s classes is the smallest such that each class i has a class j in S with
    :math:`\gamma_i(T n_i / s) \le \gamma_j(T n_j / s) \le (1 + \lambda) \gamma_i(T n_i / s)`. With probability at least
    :math:`1 - (s + 2) \kappa_1 e^{-m}` the risk of the chosen model is at most
    :math:`\min_i \{R_i^* + 2 (1 + \lambda) \gamma_i(T n_i / s)\}` and terms of order :math:`\sqrt{s / (T n_K)}`
    (Theorem 3 of [1]_, with a union over S that its proof leaves out).

    References
    ----------
    .. [1] Agarwal, Duchi, Bartlett, Levrard, "Oracle inequalities for computationally budgeted model selection", COLT
       2011, section 4.

    Examples
    --------
    >>> from fastrace.model_selection import CoarseGrid, vc_penalty
    >>> method = CoarseGrid([40 // d for d in range(1, 11)], 1000, [vc_penalty(d, 0.1) for d in range(1, 11)])
    >>> method.grid
    [9, 4, 1, 0]
    >>> method.run(lambda i, n: ((0.1 if i >= 4 else 0.4 - 0.05 * i), None)).best
    4
    """

    def __init__(
        self,
        rows_per_quantum: ArrayLike,
        budget: float,
        penalties: Sequence[Penalty],
        *,
        slack: float = 1.0,
        criterion: str = "penalized",
        n_rows: int | None = None,
        kappa2_select: float = 0.0,
        failure: float = 3.0,
        names: Sequence[str] | None = None,
    ) -> None:
        quanta = _checks.positive(budget, "budget", "it counts quanta of time")
        super().__init__(rows_per_quantum, quanta, penalties, n_rows, names)
        self._slack = _checks.positive(slack, "slack", "a class stands for others with smaller penalties")
        self._on_valid = _checks.choice(criterion, "criterion", ("penalized", "held-out")) == "held-out"
        self._kappa2_select = _checks.real(kappa2_select, "kappa2_select")
        self._failure = _checks.real(failure, "failure")
        if self._kappa2_select < 0.0 or self._failure < 0.0:
            raise ValueError(f"kappa2_select is {kappa2_select} and failure {failure}; numbers >= 0 are needed")
        self._grid, self._share = self._build()
        self._gamma = {i: self._penalties(i, n) for i, n in self._share.items()}
        self._handed_out = 0
        self._criteria: dict[int, float] = {}

    def _build(self) -> tuple[list[int], dict[int, int]]:
        """The grid, and the rows of each of its classes."""
        rates, quanta = self._rates, self._quanta

        def rows(i: int, s: int) -> int:
            return min(math.floor(quanta * rates[i] / s), self._n_rows)

        def chosen(s: int) -> list[int]:
            for i in range(len(rates)):
                if rows(i, s) < 1:
                    raise ValueError(
                        f"budget is {quanta:g}: a share of 1/{s} of it does not do for one row of class {i}, which "
                        f"takes {rates[i]} rows a quantum"
                    )
            return cover([self._penalties(i, rows(i, s)) for i in range(len(rates))], self._slack)

        s = 1
        while len(found := chosen(s)) > s:
            s += 1
        spare = [i for i in range(len(rates) - 1, -1, -1) if i not in found]      # shares that the grid leaves over
        found = sorted([*found, *spare[: s - len(found)]], reverse=True)
        return found, {i: rows(i, s) for i in found}

    @property
    def grid(self) -> list[int]:
        """Classes that are trained (S), the largest first."""
        return list(self._grid)

    @property
    def share(self) -> dict[int, int]:
        """Rows of each of them."""
        return dict(self._share)

    def _propose(self) -> Allocation | None:
        if self._handed_out == len(self._grid):
            return None
        self._handed_out += 1
        i = self._grid[self._handed_out - 1]
        return i, self._share[i]

    def _take(self, learner: int, n: int, train: float, valid: float) -> float:
        value = -valid if self._on_valid else -train + self._gamma[learner]
        if self._kappa2_select:
            value += self._kappa2_select * math.sqrt((math.log(len(self._grid)) + self._failure) / n)
        self._criteria[learner] = value
        self._settle()
        return -value

    def _settle(self) -> None:
        if self._handed_out == len(self._grid) and not self._outstanding:
            best = self._leader()
            self._stop("complete" if best >= 0 else "all dropped", best)

    def _leader(self) -> int:
        return min(self._criteria, key=lambda i: (self._criteria[i], i), default=-1)

    def _method(self) -> str:
        return f"CoarseGrid of {len(self._grid)} of {self._n_learners} classes"
