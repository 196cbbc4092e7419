"""Multinomial logistic regression."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace._base import _checks, _frames
from fastrace._base._words import counted
from fastrace._models._softmax import SoftmaxSource, offset_table
from fastrace._models.glm_inputs import refuse_nothing, refuse_overflow
from fastrace.likelihoods import GLMSource
from fastrace.mcmc._variables import Variable
from fastrace.mcmc.models._joint import Layout, layout_of
from fastrace.mcmc.models._modes import ImproperError, Parts, movement
from fastrace.mcmc.models._rows import chunks, lengths
from fastrace.mcmc.models._variables import softmax_variables
from fastrace.mcmc.models.base import LogPrior, Reference, _CompiledModel
from fastrace.results.columns import model_names
from fastrace.sources import column_names

__all__ = ["Softmax"]

Array = NDArray[np.float64]


MOST_GAPS = 10_000      # classes beyond twice the rows, which nobody has meant


class Softmax(_CompiledModel):
    r"""Multinomial logistic regression with a normal, flat or user-given prior.

    Class k of a row x has probability proportional to :math:`\exp(o_k + x \cdot \theta_k)`, where
    :math:`\theta_0 = 0` and :math:`o_k` is an offset, 0 by default. The parameters of a chain are
    :math:`\theta_1, \theta_2, \ldots` one after the other.

    Parameters
    ----------
    X : array_like of real numbers, shape (n_rows, p), frame, or dict of columns
        Explanatory variables; float32 and float64 are read in place. Sparse tables of SciPy in rows (CSR) too.
    y : array_like of int, shape (n_rows,)
        Classes 0, 1, ..., n_classes - 1.
    n_classes : int, optional
        At least 2; by default one more than the largest of `y`.
    offset : array_like of real numbers, shape (n_rows, n_classes), optional
        Added to each row's predictor of each class, such as the logarithms of how often classes were offered.
    weights : array_like of whole numbers from 0 up, shape (n_rows,), optional
        How many times each row was seen, by its likelihood and by priors in units of the data, as in `GLM`.
    prior : Normal, StudentT, Laplace, Horseshoe, LogDensity, dict or sequence of these, or "weak", optional
        As in `GLM`. A dict names a coefficient, "age[2]", or those of a column for all classes, "age"; "intercept" is
        a constant column. Flat by default.
    prior_mean, prior_sd, log_prior
        As in `GLM`; arrays have shape ((n_classes - 1) p,).
    shuffle : None, int, SeedSequence or Generator, optional
        As in `GLM`.
    names : sequence of str of length p, optional
        What the columns are called, as in `GLM`; "x0", "x1" and so on by default. The parameter of column "age" and
        class 2 is then "age[2]".

    Raises
    ------
    ValueError
        If shapes or pandas indexes disagree, `X` or `offset` is not finite, a class or a weight is out of range, or
        priors are given in two ways.

    Warns
    -----
    UserWarning
        If a class has no row, unless `n_classes` was given: labels that begin at 1 leave class 0 empty.

    Notes
    -----
    Terms and their second-order expansions are compiled vector code. Rows have bounds, so that every kernel takes this
    model, `PoissonMinibatchMetropolis` and `TunaMetropolis` too: along a direction in which the predictors of a row's
    classes spread by s, the third derivative of its term is a third cumulant of a variable of range s, at most
    :math:`s^3 / (6 \sqrt 3)`; mixed derivatives are bounded by the same number [1]_. The spread is that of
    the two classes farthest apart, so setting up takes O(n_rows p^2 n_classes^2).

    References
    ----------
    .. [1] Banach, "Über homogene Polynome in (L^2)", Studia Mathematica 7, 1938.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace import mcmc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 2))
    >>> eta = X @ np.array([[0.0, 1.0, -1.0], [0.0, 0.5, 0.5]])
    >>> y = np.argmax(eta + rng.gumbel(size=eta.shape), axis=1)
    >>> kernel = mcmc.PoissonMinibatchMetropolis(mcmc.Softmax(X, y))
    >>> trace = mcmc.sample(kernel, n_draws=1000, n_chains=2, rng=1)
    >>> trace.draws.mean(axis=(0, 1)).round(1)
    array([ 1. ,  0.5, -1. ,  0.5])
    """

    def __init__(
        self,
        X: ArrayLike,
        y: ArrayLike,
        n_classes: int | None = None,
        *,
        offset: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        prior: Any = None,
        prior_mean: ArrayLike = 0.0,
        prior_sd: ArrayLike = math.inf,
        log_prior: LogPrior | None = None,
        shuffle: _checks.RngLike = None,
        names: Sequence[str] | None = None,
    ) -> None:
        _frames.require_same_rows(X=X, offset=offset)
        labels = _checks.as_array(y, "y")
        kind = labels.dtype.kind if labels.ndim == 1 else "f"
        if kind in "OUS":
            first = labels[0]
            raise ValueError(f"y holds {first!r}; classes are whole numbers from 0 up. np.unique(y, "
                             f"return_inverse=True)[1] numbers labels, if these are of one type")
        rows = GLMSource(X, y, None, "gaussian", 1.0, weights=weights)
        refuse_overflow(rows.X, rows.y)
        refuse_nothing(rows.weights, "weights")
        counted_classes = n_classes is None
        if n_classes is None:
            n_classes = max(2, int(np.minimum(rows.y, 2**31 - 2).max(initial=0.0)) + 1)
            if n_classes > MOST_GAPS + 2 * rows.n_rows:
                raise ValueError(f"the largest class of y is {n_classes - 1}, and y has {rows.n_rows} rows, so that "
                                 f"most classes have none. Classes are numbered from 0 without gaps: "
                                 f"np.unique(y, return_inverse=True)[1] are such numbers")
        self.n_classes = _checks.integer(n_classes, "n_classes", 2, "a class to tell apart from another")
        self.n_columns = rows.X.shape[1]
        _checks.room(64.0 * self.n_classes * self.n_columns, f"n_classes is {n_classes}: their parameters")
        apart = None if offset is None else _from_first(offset, (rows.n_rows, self.n_classes))
        beside = {"offset": apart, "weights": rows.weights}
        self._data = self._source(rows.X, rows.y, np.zeros((1, self._width)), beside)
        self.shuffled = shuffle is not None
        if self.shuffled:
            self._row_order = _checks.generator(shuffle, "shuffle").permutation(rows.n_rows)
            self._data = self._taken(self._row_order)
        self._classes = self._data.rows.y.astype(np.int32)
        given = model_names(column_names(X)) if names is None else names
        columns = _checks.arm_names(given, self.n_columns, "column")
        if columns is None:
            columns = tuple(f"x{k}" for k in range(self.n_columns))
        names = [f"{column}[{k}]" for k in range(1, self.n_classes) for column in columns]
        super().__init__(self._width, rows.n_rows, prior_mean, prior_sd, log_prior, names)
        self._take_priors(prior)
        if counted_classes and self._empty():
            warnings.warn(f"{self._empty()}. If there are classes without rows, give n_classes={self.n_classes}: the "
                          f"prior alone then says what their parameters are", stacklevel=2)

    def _empty(self) -> str:
        """Which classes have no row, in words; "" if none."""
        empty = np.flatnonzero(np.bincount(self._classes, self._data.rows.weights, self.n_classes) == 0.0)
        if not len(empty):
            return ""
        some = ", ".join(map(str, empty[:5].tolist())) + (", ..." if len(empty) > 5 else "")
        return (f"no row of y is of {'class' if len(empty) == 1 else 'classes'} {some}. Classes are numbered from 0 to "
                f"n_classes - 1 = {self.n_classes - 1}; np.unique(y, return_inverse=True)[1] are such numbers without "
                f"gaps")

    def _require_proper(self, hat: Array, step: Array) -> None:
        try:
            super()._require_proper(hat, step)
        except ImproperError as error:
            if not self._empty():
                raise
            raise ImproperError(f"{self._empty()}. So {error}") from None

    def _source(self, x: Any, y: Array, theta: Array, beside: dict[str, Any]) -> SoftmaxSource:
        return SoftmaxSource(x, y, theta, self.n_classes, check_finite=False, **beside)

    def _taken(self, rows: NDArray[np.intp]) -> SoftmaxSource:
        """These rows in this order, with all that each has."""
        data = self._data
        beside = {name: value[rows] for name, value in data.beside().items()}
        return self._source(data.rows.X[rows], data.rows.y[rows], np.zeros((1, self._width)), beside)

    @property
    def _width(self) -> int:
        """Number of coefficients."""
        return (self.n_classes - 1) * self.n_columns

    def _variables_of(self, names: Sequence[str]) -> tuple[Variable, ...]:
        columns = [name[: -len("[1]")] for name in names[: self.n_columns]]
        return softmax_variables(names, columns, self.n_classes)

    def _layout(self) -> Layout:
        """Of the coefficients, class by class."""
        free, times = self.n_classes - 1, self._data.rows.weights
        columns = [name[: -len("[1]")] for name in (self.names or ())[: self.n_columns]]
        layout = layout_of(self._data.rows, columns, learns_scale=False)
        share = np.bincount(self._classes, times, self.n_classes) / (self.n_rows if times is None else times.sum())
        return replace(
            layout, columns=tuple(self.names or ()), means=layout.means * free, spreads=layout.spreads * free,
            center=0.0, noise=1.0, owners=tuple(columns * free), width=self.n_columns,
            row_noise=1.0 / math.sqrt(max(float(np.mean(share * (1.0 - share))), 1.0 / layout.n_observations)),
        )

    def __repr__(self) -> str:
        return f"Softmax({counted(self.n_rows, 'row')}, {counted(self.n_columns, 'column')}, {self.n_classes} classes)"

    _positive = _concave = True

    def _arms(self, count: int) -> tuple[SoftmaxSource, Array]:
        theta = np.zeros((count, self.n_seen))
        return self._source(self._data.rows.X, self._classes, theta, self._data.beside()), theta

    def _expand(self, at: Array) -> Parts:
        p, free = self.n_columns, self.n_classes - 1
        value, gradient, hessian = 0.0, np.zeros((free, p)), np.zeros((free, p, free, p))
        table = at.reshape(free, p)
        offset, times = self._data.offset, self._data.rows.weights
        for part, x in chunks(self._data.rows.X):
            eta = np.zeros((len(x), free + 1))
            eta[:, 1:] = x @ table.T
            if offset is not None:
                eta[:, 1:] += offset[part]
            eta -= eta.max(axis=1, keepdims=True)
            share = np.exp(eta)
            total = share.sum(axis=1)
            share /= total[:, None]
            label = self._classes[part]
            own = np.arange(len(x)), label
            count = None if times is None else times[part]
            level = eta[own] - np.log(total)
            value += float(level.sum() if count is None else count @ level)
            left = -share
            left[own] += 1.0
            if count is not None:
                left *= count[:, None]
            gradient += left[:, 1:].T @ x
            for k in range(free):
                for j in range(k + 1):
                    weight = share[:, k + 1] * ((k == j) - share[:, j + 1])
                    if count is not None:
                        weight *= count
                    hessian[k, :, j] -= x.T @ (weight[:, None] * x)
        for k in range(free):
            for j in range(k):
                hessian[j, :, k] = hessian[k, :, j].T
        return value, gradient.ravel(), hessian.reshape(self._width, self._width)

    def _bounds(self, hat: Array, factor: Array) -> tuple[Array | None, float, float]:
        spread = np.zeros(self.n_rows)
        for j, k in combinations(range(self.n_classes), 2):
            np.maximum(spread, self._lengths(factor, j, k), out=spread)
        return self._times_weights(spread**3 / (6.0 * math.sqrt(3.0))), math.inf, self._rounding(hat)

    def _times_weights(self, values: Array) -> Array:
        """A number for each row, times how often it was seen."""
        times = self._data.rows.weights
        return values if times is None else values * times

    def _moved(self, direction: Array) -> float:
        return movement(self._data.rows.X, direction.reshape(self.n_classes - 1, self.n_columns).T)

    def _margins(self, at: Array) -> tuple[float, float]:
        """Extremes over rows and other classes of the own class's predictor less the other's."""
        least, most = math.inf, -math.inf
        table = at.reshape(self.n_classes - 1, self.n_columns)
        for part, x in chunks(self._data.rows.X):
            eta = np.zeros((len(x), self.n_classes))
            eta[:, 1:] = x @ table.T
            label = self._classes[part]
            margin = eta[np.arange(len(x)), label][:, None] - eta
            margin[np.arange(len(x)), label] = np.nan
            if self._data.rows.weights is not None:
                margin = margin[self._data.rows.weights[part] > 0.0]
            if len(margin) == 0:
                continue
            least, most = min(least, float(np.nanmin(margin))), max(most, float(np.nanmax(margin)))
        return least, most

    def slopes(self, reference: Reference) -> Array:
        """The log of the sum moves by no more than the predictors, so a term by no more than they move apart."""
        out = np.zeros(self.n_rows)
        for j, k in combinations(range(self.n_classes), 2):
            own = (self._classes == j) | (self._classes == k)
            out[own] = np.maximum(out[own], self._lengths(reference.factor, j, k)[own])
        return self._times_weights(out)

    def _lengths(self, factor: Array, j: int, k: int) -> Array:
        """How far a whitened step of unit length moves the predictors of classes j < k apart, at most."""
        p = self.n_columns
        apart = factor[(k - 1) * p : k * p]
        if j:
            apart = apart - factor[(j - 1) * p : j * p]
        return lengths(self._data.rows.X, np.linalg.qr(apart.T)[1].T)  # of as many columns as X


def _from_first(offset: ArrayLike, shape: tuple[int, int]) -> Array:
    """Offsets of all classes but the first, from that of the first."""
    table = offset_table(offset, shape)
    return np.ascontiguousarray(table[:, 1:] - table[:, :1])
