"""Penalties gamma(n): how far the risk of a class on n rows may be from its risk on all that there could be."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastrace._base import _checks

Penalty = Callable[[float], float]


@dataclass(frozen=True)
class RootPenalty:
    """The penalty ``constant / sqrt(n)``.

    Examples
    --------
    >>> from fastrace.model_selection import vc_penalty
    >>> vc_penalty(4, scale=0.5)(100)
    0.1
    """

    constant: float

    def __call__(self, n: float) -> float:
        """The penalty on n rows."""
        return self.constant / math.sqrt(n)


def _nonnegative(value: float, name: str) -> float:
    number = _checks.real(value, name)
    if not 0.0 <= number < math.inf:
        raise ValueError(f"{name} is {value}; a finite number of at least 0 is needed")
    return number


def vc_penalty(dimension: float, scale: float = 1.0, loss_bound: float = 1.0) -> RootPenalty:
    """Penalty ``scale * loss_bound * sqrt(dimension / n)`` of a class with a VC dimension or as many parameters.

    Parameters
    ----------
    dimension : float
        Dimension, at least 0.
    scale : float, default 1.0
        Factor; the choice hangs on it, and theory leaves it open.
    loss_bound : float, default 1.0
        Losses lie in [0, loss_bound].

    Returns
    -------
    RootPenalty
        A function of the number of rows.

    Examples
    --------
    >>> from fastrace.model_selection import vc_penalty
    >>> vc_penalty(4)(100)
    0.2
    """
    dimension, scale = _nonnegative(dimension, "dimension"), _nonnegative(scale, "scale")
    return RootPenalty(scale * _nonnegative(loss_bound, "loss_bound") * math.sqrt(dimension))


def norm_ball_penalty(radius: float, row_norm: float, lipschitz: float = 1.0) -> RootPenalty:
    """Penalty ``2 lipschitz radius row_norm / sqrt(n)`` of linear functions of norm at most `radius`.

    Parameters
    ----------
    radius, row_norm : float
        Largest norm of the weights, and of a row.
    lipschitz : float, default 1.0
        Lipschitz constant of the loss.

    Returns
    -------
    RootPenalty
        A function of the number of rows.

    Examples
    --------
    >>> from fastrace.model_selection import norm_ball_penalty
    >>> norm_ball_penalty(radius=0.5, row_norm=2.0)(100)
    0.2
    """
    radius, row_norm = _nonnegative(radius, "radius"), _nonnegative(row_norm, "row_norm")
    return RootPenalty(2.0 * _nonnegative(lipschitz, "lipschitz") * radius * row_norm)


def gap_penalty(train_risk: float, valid_risk: float, n: int) -> RootPenalty:
    """Penalty fitted to the gap between held-out and training risk on n rows, extended as 1 / sqrt(n).

    Parameters
    ----------
    train_risk, valid_risk : float
        Risks of the class trained on n rows.
    n : int
        Rows.

    Returns
    -------
    RootPenalty
        A function of the number of rows.

    Examples
    --------
    >>> from fastrace.model_selection import gap_penalty
    >>> gap_penalty(train_risk=0.25, valid_risk=0.5, n=100)(400)
    0.125
    """
    n = _checks.integer(n, "n", 1, "risks are measured on rows")
    gap = _checks.real(valid_risk, "valid_risk") - _checks.real(train_risk, "train_risk")
    return RootPenalty(math.sqrt(n) * max(0.0, gap))


def rademacher_penalty(
    training_error: Callable[[Any, Any], float], X: Any, n_draws: int = 3, rng: _checks.RngLike = None
) -> RootPenalty:
    """Penalty of a classifier for 0/1 loss, from how well it fits random labels.

    Parameters
    ----------
    training_error : callable
        ``training_error(X, labels)`` fits on rows X with labels -1 and 1 and returns its share of wrong training rows.
    X : array_like
        Rows.
    n_draws : int, default 3
        Fits, averaged.
    rng : None, int, SeedSequence or Generator, optional
        Draws the labels.

    Returns
    -------
    RootPenalty
        A function of the number of rows.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace.model_selection import rademacher_penalty
    >>> rademacher_penalty(lambda X, labels: 0.375, np.zeros((100, 2)), rng=1)(100)
    0.25
    """
    n_draws = _checks.integer(n_draws, "n_draws", 1, "it counts fits")
    _function(training_error)
    shape = getattr(X, "shape", None) or _checks.as_array(X, "X").shape
    if not shape:
        raise TypeError(f"X is {_checks.shown(X)}; rows are needed")
    n_rows = int(shape[0])
    generator = _checks.generator(rng)
    errors = [training_error(X, 2 * generator.integers(0, 2, n_rows) - 1) for _ in range(n_draws)]
    return _from_error(float(np.mean(errors)), n_rows)


def max_discrepancy_penalty(training_error: Callable[[Any, Any], float], X: Any, y: ArrayLike) -> RootPenalty:
    """Penalty of a classifier for 0/1 loss, from one fit with the labels of the first half of the rows flipped.

    Parameters
    ----------
    training_error : callable
        ``training_error(X, labels)`` fits on rows X with labels -1 and 1 and returns its share of wrong training rows.
    X : array_like
        Rows, in random order.
    y : array_like
        Labels -1 and 1.

    Returns
    -------
    RootPenalty
        A function of the number of rows.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace.model_selection import max_discrepancy_penalty
    >>> max_discrepancy_penalty(lambda X, labels: 0.375, np.zeros((100, 2)), np.ones(100))(100)
    0.25
    """
    _function(training_error)
    flipped = np.array(_checks.numbers_of(y, "y"))
    if flipped.ndim != 1 or flipped.dtype.kind not in "fi" or not np.isin(flipped, (-1, 1)).all():
        raise ValueError(f"y is {_checks.shown(y)}; a vector of -1 and 1 is needed: flipped labels are their negatives")
    flipped[: flipped.size // 2] *= -1
    return _from_error(float(training_error(X, flipped)), flipped.size)


def _function(training_error: object) -> None:
    if not callable(training_error):
        raise TypeError(f"training_error is {_checks.shown(training_error)}; a function (X, labels) is needed")


def _from_error(error: float, n_rows: int) -> RootPenalty:
    """The penalty of a class that fits labels which tell nothing with this share of errors."""
    return RootPenalty(math.sqrt(n_rows) * max(0.0, 1.0 - 2.0 * error))


class Penalties:
    """The penalties of all classes, checked wherever they are asked for: finite, not negative, not increasing."""

    def __init__(self, penalties: Sequence[Penalty], n_classes: int) -> None:
        if not isinstance(penalties, Iterable):
            raise TypeError(f"penalties is {_checks.shown(penalties)}; a sequence of functions, one per class, is "
                            f"needed")
        self.functions = tuple(penalties)
        if len(self.functions) != n_classes:
            raise ValueError(f"penalties has {len(self.functions)} entries; {n_classes}, one per class, are needed")
        for i, function in enumerate(self.functions):
            if not callable(function):
                raise TypeError(f"penalty {i} is {_checks.shown(function)}; a function of the number of rows is needed")
        self.seen: list[list[tuple[float, float]]] = [[] for _ in self.functions]

    def __call__(self, i: int, n: float) -> float:
        """The penalty of class i on n rows."""
        value = float(self.functions[i](n))
        if not 0.0 <= value < math.inf:
            raise ValueError(f"the penalty of class {i} on {n:g} rows is {value}; a finite number >= 0 is needed")
        for other, before in self.seen[i]:
            if (value - before) * (n - other) > 1e-9 * max(value, before) * abs(n - other):
                raise ValueError(
                    f"the penalty of class {i} is {before:g} on {other:g} rows and {value:g} on {n:g}; it must not "
                    f"increase with rows"
                )
        self.seen[i] = [*self.seen[i][:1], (n, value)]       # the first and the last point asked for
        return value
