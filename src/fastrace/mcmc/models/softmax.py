"""Multinomial logistic regression."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace._base import _checks
from fastrace._base._words import counted
from fastrace._models._expanded import Expanded
from fastrace._models._softmax import SoftmaxSource
from fastrace.likelihoods import GLMSource
from fastrace.mcmc.models._modes import Parts, movement
from fastrace.mcmc.models._rows import chunks, lengths
from fastrace.mcmc.models.base import LogPrior, Model, Reference
from fastrace.results.columns import model_names
from fastrace.sources import Source, column_names

__all__ = ["Softmax"]

Array = NDArray[np.float64]


class Softmax(Model):
    r"""Multinomial logistic regression with a normal, flat or user-given prior.

    Class k of a row x has probability proportional to :math:`\exp(x \cdot \theta_k)`, where :math:`\theta_0 = 0`. The
    parameters of a chain are :math:`\theta_1, \theta_2, \ldots` one after the other.

    Parameters
    ----------
    X : array_like of real numbers, shape (n_rows, p), frame, or dict of columns
        Explanatory variables; float32 and float64 are read in place.
    y : array_like of int, shape (n_rows,)
        Classes 0, 1, ..., n_classes - 1.
    n_classes : int, optional
        At least 2; by default one more than the largest of `y`.
    prior_mean, prior_sd, log_prior
        As in `GLM`; arrays have shape ((n_classes - 1) p,).
    shuffle : None, int, SeedSequence or Generator, optional
        As in `GLM`.
    names : sequence of str of length p, optional
        What the columns are called, as in `GLM`; the parameter of column "age" and class 2 is then "age[2]".

    Raises
    ------
    ValueError
        If shapes disagree, `X` is not finite, or a class is out of range.

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
        prior_mean: ArrayLike = 0.0,
        prior_sd: ArrayLike = math.inf,
        log_prior: LogPrior | None = None,
        shuffle: _checks.RngLike = None,
        names: Sequence[str] | None = None,
    ) -> None:
        rows = GLMSource(X, y, None, "gaussian", 1.0)
        if n_classes is None:
            n_classes = max(2, int(np.minimum(rows.y, 2**31 - 2).max(initial=0.0)) + 1)
        self.n_classes = _checks.integer(n_classes, "n_classes", 2, "a class to tell apart from another")
        self.n_columns = rows.X.shape[1]
        nothing = np.zeros((1, (self.n_classes - 1) * self.n_columns))
        self._data = SoftmaxSource(rows.X, rows.y, nothing, self.n_classes, check_finite=False)
        self.shuffled = shuffle is not None
        if self.shuffled:
            order = _checks.generator(shuffle, "shuffle").permutation(rows.n_rows)
            self._data = SoftmaxSource(rows.X[order], rows.y[order], nothing, self.n_classes, check_finite=False)
        self._classes = self._data.rows.y.astype(np.int32)
        columns = model_names(column_names(X)) if names is None else names
        if columns is not None:
            names = [f"{column}[{k}]" for k in range(1, self.n_classes) for column in columns]
        super().__init__(nothing.size, rows.n_rows, prior_mean, prior_sd, log_prior, names)

    def __repr__(self) -> str:
        return f"Softmax({counted(self.n_rows, 'row')}, {counted(self.n_columns, 'column')}, {self.n_classes} classes)"

    _positive = _concave = True

    @property
    def has_derivatives(self) -> bool:
        return True

    def engine(self, reference: Reference | None) -> tuple[Source, Array]:
        own, theta = self._arms(2)
        return own if reference is None else Expanded(own, reference.theta_hat), theta

    def _arms(self, count: int) -> tuple[SoftmaxSource, Array]:
        theta = np.zeros((count, self.dim))
        return SoftmaxSource(self._data.rows.X, self._classes, theta, self.n_classes, check_finite=False), theta

    def _expand(self, at: Array) -> Parts:
        p, free = self.n_columns, self.n_classes - 1
        value, gradient, hessian = 0.0, np.zeros((free, p)), np.zeros((free, p, free, p))
        table = at.reshape(free, p)
        for part, x in chunks(self._data.rows.X):
            eta = np.zeros((len(x), free + 1))
            eta[:, 1:] = x @ table.T
            eta -= eta.max(axis=1, keepdims=True)
            share = np.exp(eta)
            total = share.sum(axis=1)
            share /= total[:, None]
            label = self._classes[part]
            own = np.arange(len(x)), label
            value += float((eta[own] - np.log(total)).sum())
            left = -share
            left[own] += 1.0
            gradient += left[:, 1:].T @ x
            for k in range(free):
                for j in range(k + 1):
                    weight = share[:, k + 1] * ((k == j) - share[:, j + 1])
                    hessian[k, :, j] -= x.T @ (weight[:, None] * x)
        for k in range(free):
            for j in range(k):
                hessian[j, :, k] = hessian[k, :, j].T
        return value, gradient.ravel(), hessian.reshape(self.dim, self.dim)

    def _bounds(self, hat: Array, factor: Array) -> tuple[Array | None, float, float]:
        spread = np.zeros(self.n_rows)
        for j, k in combinations(range(self.n_classes), 2):
            np.maximum(spread, self._lengths(factor, j, k), out=spread)
        return spread**3 / (6.0 * math.sqrt(3.0)), math.inf, self._rounding(hat)

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
            least, most = min(least, float(np.nanmin(margin))), max(most, float(np.nanmax(margin)))
        return least, most

    def slopes(self, reference: Reference) -> Array:
        """The log of the sum moves by no more than the predictors, so a term by no more than they move apart."""
        out = np.zeros(self.n_rows)
        for j, k in combinations(range(self.n_classes), 2):
            own = (self._classes == j) | (self._classes == k)
            out[own] = np.maximum(out[own], self._lengths(reference.factor, j, k)[own])
        return out

    def _lengths(self, factor: Array, j: int, k: int) -> Array:
        """How far a whitened step of unit length moves the predictors of classes j < k apart, at most."""
        p = self.n_columns
        apart = factor[(k - 1) * p : k * p]
        if j:
            apart = apart - factor[(j - 1) * p : j * p]
        return lengths(self._data.rows.X, np.linalg.qr(apart.T)[1].T)  # of as many columns as X
