"""Model selection under a budget of time over nested classes: the coarse grid of Agarwal, Duchi, Bartlett, Levrard."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from fastrace._base import _checks
from fastrace.model_selection._penalties import Penalties, Penalty
from fastrace.model_selection.schedulers._budgeted_ucb import checked_rates
from fastrace.model_selection.schedulers._scheduler import Allocation, Scheduler


def cover(g: ArrayLike, slack: float = 1.0) -> list[int]:
    """The fewest places of an increasing sequence such that every value has one at or above it, at most 1 + slack times
    as large; from the last place down.

    Parameters
    ----------
    g : array_like, shape (k,)
        Penalties of nested classes, not decreasing.
    slack : float, default 1.0
        Lambda, above 0.

    Examples
    --------
    >>> from fastrace.model_selection import cover
    >>> [i + 1 for i in cover(range(1, 41))]
    [40, 19, 9, 4, 1]
    """
    values = np.maximum.accumulate(_checks.reals(g, "g"))
    chosen: list[int] = []
    for j in range(values.size - 1, -1, -1):
        if not chosen or (1.0 + slack) * values[j] < values[chosen[-1]]:
            chosen.append(j)
    return chosen


class CoarseGrid(Scheduler):
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
        Lambda: a class may stand for those whose penalty is at most 1 + slack times smaller. The larger it is, the
        fewer classes are trained, on more rows each.
    criterion : {"penalized", "held-out"}, default "penalized"
        Choose by training risk plus penalty, as in [1]_, or by the risk on held-out rows; penalties then only shape the
        grid, and the choice no longer hangs on their scale.
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
        rates = checked_rates(rows_per_quantum)
        quanta = _checks.real(budget, "budget")
        if not 0.0 < quanta < math.inf:
            raise ValueError(f"budget is {budget}; a positive number of quanta is needed")
        most = max(1, math.floor(quanta * max(rates)))
        super().__init__(
            len(rates), most if n_rows is None else n_rows, direction="minimize", cost="rows", budget=None, names=names
        )
        self._slack = _checks.real(slack, "slack")
        if not 0.0 < self._slack < math.inf:
            raise ValueError(f"slack is {slack}; a positive number is needed")
        self._held_out = _checks.choice(criterion, "criterion", ("penalized", "held-out")) == "held-out"
        self._kappa2_select = _checks.real(kappa2_select, "kappa2_select")
        self._failure = _checks.real(failure, "failure")
        if self._kappa2_select < 0.0 or self._failure < 0.0:
            raise ValueError(f"kappa2_select is {kappa2_select} and failure {failure}; numbers >= 0 are needed")
        checked = Penalties(penalties, len(rates))
        self._grid, self._share = self._build(rates, quanta, checked)
        self._gamma = {i: checked(i, n) for i, n in self._share.items()}
        self._handed_out = 0
        self._criteria: dict[int, float] = {}

    def _build(self, rates: list[int], quanta: float, penalties: Penalties) -> tuple[list[int], dict[int, int]]:
        """The grid, and the rows of each of its classes."""
        def rows(i: int, s: int) -> int:
            return min(math.floor(quanta * rates[i] / s), self._n_rows)

        def chosen(s: int) -> list[int]:
            for i in range(len(rates)):
                if rows(i, s) < 1:
                    raise ValueError(
                        f"budget is {quanta:g}: a share of 1/{s} of it does not do for one row of class {i}, which "
                        f"takes {rates[i]} rows a quantum"
                    )
            return cover([penalties(i, rows(i, s)) for i in range(len(rates))], self._slack)

        s = 1
        while len(found := chosen(s)) > s:
            s += 1
        while len(found) < s:                     # more time for each, if the grid holds for that as well
            smaller = chosen(len(found))
            if len(smaller) > len(found):
                spare = [i for i in range(len(rates) - 1, -1, -1) if i not in found]
                found = sorted([*found, *spare[: s - len(found)]], reverse=True)
            else:
                s, found = len(found), smaller
        return found, {i: rows(i, s) for i in found}

    @property
    def grid(self) -> list[int]:
        """Classes that are trained (S), the largest first."""
        return list(self._grid)

    @property
    def share(self) -> dict[int, int]:
        """Rows of each of them."""
        return dict(self._share)

    def tell(
        self, learner: int, n: int, train_score: float | None, valid_score: float | None = None,
        cost: float | None = None,
    ) -> None:
        """Take the risks of a training that was asked for, small ones good.

        Parameters
        ----------
        learner, n : int
            The training, as `ask` returned it.
        train_score, valid_score : float or None
            Risk on the rows trained on, and on held-out rows; the one that the criterion uses is needed.
        cost : float, optional
            Rows by default.
        """
        needed = valid_score if self._held_out else train_score
        if needed is None:
            which = "valid_score" if self._held_out else "train_score"
            raise TypeError(f"{which} is None; the risk that the criterion uses is needed")
        super().tell(learner, n, train_score, needed if valid_score is None else valid_score, cost)

    def _propose(self) -> Allocation | None:
        if self._handed_out == len(self._grid):
            return None
        self._handed_out += 1
        i = self._grid[self._handed_out - 1]
        return i, self._share[i]

    def _take(self, learner: int, n: int, train: float, valid: float) -> float:
        value = -valid if self._held_out else -train + self._gamma[learner]
        if self._kappa2_select:
            value += self._kappa2_select * math.sqrt((math.log(len(self._grid)) + self._failure) / n)
        self._criteria[learner] = value
        self._settle()
        return -value

    def _left(self, learner: int) -> None:
        self._settle()

    def _settle(self) -> None:
        if self._handed_out == len(self._grid) and not self._outstanding:
            best = self._leader()
            self._stop("complete" if best >= 0 else "all dropped", best)

    def _leader(self) -> int:
        return min(self._criteria, key=lambda i: (self._criteria[i], i), default=-1)

    def _method(self) -> str:
        return f"CoarseGrid of {len(self._grid)} of {self._n_learners} classes"
