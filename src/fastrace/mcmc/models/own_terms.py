"""Log-likelihoods that users give, as functions or as compiled sources."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace._base import _checks
from fastrace._base._words import counted
from fastrace._models._expanded import Expanded, OwnTerms, packed
from fastrace.control_variates import residual_rounding
from fastrace.mcmc.models._modes import Parts
from fastrace.mcmc.models._rows import CHUNK
from fastrace.mcmc.models.base import LogPrior, Model, Reference
from fastrace.sources import CallableSource, Source

__all__ = ["FunctionModel", "SourceModel"]

Array = NDArray[np.float64]
Terms = Callable[[Array, NDArray[np.int64]], ArrayLike]
Derivatives = Callable[[Array, NDArray[np.int64]], tuple[ArrayLike, ArrayLike]]


class _TermsModel(Model):
    """A user's own terms, and what they say of the derivatives."""

    def _plain(self) -> tuple[Source, Array]:
        """A new source of the terms themselves, and where it reads its parameters."""
        raise NotImplementedError

    def __init__(
        self, dim: int, n_rows: int, derivatives: Derivatives | None, third_derivatives: ArrayLike | None,
        start: ArrayLike | None, *prior: Any,
    ) -> None:
        super().__init__(dim, n_rows, *prior)
        if derivatives is not None and not callable(derivatives):
            raise TypeError(f"derivatives is {_checks.shown(derivatives)}; a function of (theta, rows) is needed")
        self.derivatives = derivatives
        self.start = np.zeros(self.dim) if start is None else np.array(start, dtype=np.float64)
        if self.start.shape != (self.dim,) or not np.isfinite(self.start).all():
            raise ValueError(f"start is {_checks.shown(start)}; {self.dim} finite parameters are needed")
        self.third_derivatives: Array | None = None
        if third_derivatives is not None:
            if derivatives is None:
                raise ValueError("third_derivatives came without derivatives, about whose expansion it bounds the rest")
            bound = np.array(np.broadcast_to(np.asarray(third_derivatives, dtype=np.float64), (self.n_rows,)))
            if not (np.isfinite(bound).all() and (bound >= 0.0).all()):
                raise ValueError(f"third_derivatives is {_checks.shown(third_derivatives)}; bounds from 0 up are "
                                 f"needed")
            self.third_derivatives = bound
        self._kept: tuple[bytes, Array] | None = None

    @property
    def has_derivatives(self) -> bool:
        return self.derivatives is not None

    def _parts(
        self, at: Array, some: NDArray[np.int64] | None = None
    ) -> Iterator[tuple[Array, Array, Array]]:
        """Values, gradients and Hessians of all terms, or those of some rows, a few at a time."""
        assert self.derivatives is not None
        source, theta = self._plain()
        theta[:] = at
        n = self.n_rows if some is None else len(some)
        for first in range(0, n, CHUNK):
            last = min(first + CHUNK, n)
            rows = np.arange(first, last) if some is None else some[first:last]
            gradient, hessian = self.derivatives(at.copy(), rows)
            shape = len(rows), self.dim
            yield source.read(rows, [0])[:, 0], _shaped(gradient, shape, "the gradient"), \
                _shaped(hessian, (*shape, self.dim), "the Hessian")

    def _expand(self, at: Array) -> Parts:
        return self._expand_some(at, None)

    def _expand_some(self, at: Array, rows: NDArray[np.int64] | None) -> Parts:
        value, gradient, hessian = 0.0, np.zeros(self.dim), np.zeros((self.dim, self.dim))
        for values, gradients, hessians in self._parts(at, rows):
            value += float(values.sum())
            gradient += gradients.sum(axis=0)
            hessian += hessians.sum(axis=0)
        return value, gradient, hessian

    def _start(self) -> Array:
        return self.start

    def _bounds(self, hat: Array, factor: Array) -> tuple[Array | None, float, float]:
        if self.third_derivatives is None:
            return None, math.inf, 0.0
        weights = self.third_derivatives * (float(np.linalg.norm(factor, 2)) ** 3 * (1.0 + 1e-12))
        return weights, math.inf, residual_rounding(float(np.abs(self._table(hat)[:, 0]).max()))

    def _table(self, hat: Array) -> Array:
        """Derivatives of each term at a point, kept for the races to come."""
        kept = self._kept
        if kept is None or kept[0] != hat.tobytes():
            kept = self._kept = hat.tobytes(), np.concatenate([packed(*parts) for parts in self._parts(hat)])
        return kept[1]

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_kept": None}

    def engine(self, reference: Reference | None) -> tuple[Source, Array]:
        source, theta = self._plain()
        if reference is None:
            return source, theta
        own = OwnTerms(source, theta, self._table(reference.theta_hat))
        return Expanded(own, reference.theta_hat), theta


class FunctionModel(_TermsModel):
    """A log-likelihood given as a Python function of parameters and row numbers.

    Parameters
    ----------
    terms : callable
        ``terms(theta, rows)`` takes parameters of shape (dim,) and row numbers of shape (k,) and returns the
        log-likelihood of each of these rows, shape (k,). -inf is allowed at a proposal, nan and +inf are not.
    dim, n_rows : int
        Numbers of parameters and of rows.
    derivatives : callable, optional
        ``derivatives(theta, rows)`` returns the gradients, shape (k, dim), and the Hessians, shape (k, dim, dim), of
        these terms. With it kernels use a control variate. Those at the point of expansion are kept: 8 bytes times
        1 + dim + dim (dim + 1) / 2 a row.
    third_derivatives : array_like of shape (n_rows,) or float, optional
        Bounds, everywhere, on the absolute third derivative of each term along any direction of unit length. With them
        kernels that are exact can be used.
    start : array_like of shape (dim,), optional
        Where to look for the mode from; zeros by default.
    prior_mean, prior_sd, log_prior, names
        As in `GLM`.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace import mcmc
    >>> y = np.random.default_rng(0).normal(1.0, 2.0, 500)
    >>> def terms(theta, rows):
    ...     return -0.5 * np.square((y[rows] - theta[0]) / np.exp(theta[1])) - theta[1]
    >>> model = mcmc.FunctionModel(terms, dim=2, n_rows=500)
    >>> kernel = mcmc.Metropolis(model)
    >>> trace = mcmc.sample(kernel, [1.0, 0.7], n_draws=800, n_chains=1, rng=1)
    >>> trace.draws.shape
    (1, 800, 2)
    """

    def __init__(
        self,
        terms: Terms,
        dim: int,
        n_rows: int,
        *,
        derivatives: Derivatives | None = None,
        third_derivatives: ArrayLike | None = None,
        start: ArrayLike | None = None,
        prior_mean: ArrayLike = 0.0,
        prior_sd: ArrayLike = math.inf,
        log_prior: LogPrior | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        if not callable(terms):
            raise TypeError(f"terms is {_checks.shown(terms)}; a function of (theta, rows) is needed")
        _checks.takes(terms, "terms", "theta", "rows")
        self.terms = terms
        super().__init__(dim, n_rows, derivatives, third_derivatives, start, prior_mean, prior_sd, log_prior, names)

    def __repr__(self) -> str:
        return f"FunctionModel({self.terms!r}, {counted(self.dim, 'parameter')}, {counted(self.n_rows, 'row')})"

    def _plain(self) -> tuple[Source, Array]:
        theta = np.zeros((2, self.dim))
        return CallableSource(partial(terms_of_arms, self.terms, theta), 2, self.n_rows), theta


def terms_of_arms(terms: Terms, theta: Array, arms: NDArray[np.intp], rows: NDArray[np.int64]) -> Array:
    """Rewards of arms that have their parameters in the rows of `theta`."""
    out = np.empty((len(rows), len(arms)))
    for j, arm in enumerate(arms):
        out[:, j] = _shaped(terms(theta[arm].copy(), rows), (len(rows),), "terms")
    return out


def _shaped(values: ArrayLike, shape: tuple[int, ...], name: str) -> Array:
    array = np.asarray(values, dtype=np.float64)
    if array.shape != shape:
        raise ValueError(f"{name} returned shape {array.shape}; {shape}, one value per row asked for, is needed")
    return array


class SourceModel(_TermsModel):
    """A log-likelihood given as a compiled source: Cython, C, or Numba through `scipy.LowLevelCallable`.

    Parameters
    ----------
    make : callable
        ``make()`` returns a new `Source` with two arms, and the float64 array of shape (2, dim) from which it reads
        the parameters of arm 0, the chain's state, and arm 1, the proposal. Each chain asks once.
    derivatives, third_derivatives, start
        As in `FunctionModel`. The function is asked when the model is set up, not by the chains.
    prior_mean, prior_sd, log_prior, names
        As in `GLM`.

    Notes
    -----
    Give the source a `support` if its terms have one, and the betting rule becomes the default: rigorous.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace import mcmc
    >>> from fastrace.likelihoods import GLMSource
    >>> from fastrace.sources import CallableSource
    >>> y = np.random.default_rng(0).normal(1.0, 1.0, 500)
    >>> def make():
    ...     theta = np.zeros((2, 1))
    ...     return CallableSource(lambda arms, rows: -0.5 * np.square(y[rows, None] - theta[arms, 0]), 2, 500), theta
    >>> model = mcmc.SourceModel(make)
    >>> mcmc.sample(mcmc.RacingMetropolis(model), [1.0], n_draws=100, n_chains=1, rng=1).draws.shape
    (1, 100, 1)
    """

    def __init__(
        self,
        make: Callable[[], tuple[Source, Array]],
        *,
        derivatives: Derivatives | None = None,
        third_derivatives: ArrayLike | None = None,
        start: ArrayLike | None = None,
        prior_mean: ArrayLike = 0.0,
        prior_sd: ArrayLike = math.inf,
        log_prior: LogPrior | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        self.make = make
        source, theta = self._plain()
        super().__init__(theta.shape[1], source.n_rows, derivatives, third_derivatives, start, prior_mean, prior_sd,
                         log_prior, names)

    def __repr__(self) -> str:
        return f"SourceModel({self.make!r}, {counted(self.dim, 'parameter')}, {counted(self.n_rows, 'row')})"

    def _plain(self) -> tuple[Source, Array]:
        source, theta = self.make()
        if not isinstance(source, Source) or source.n_arms != 2:
            raise ValueError(f"make() returned {_checks.shown(source)} first; a Source of two arms, state and "
                             f"proposal, is needed")
        good = isinstance(theta, np.ndarray) and theta.ndim == 2 and theta.shape[0] == 2
        if not good or theta.dtype != np.float64 or not (theta.flags.c_contiguous and theta.flags.writeable):
            raise ValueError(
                "make() must return, second, the writeable float64 array of shape (2, dim) in C order that its source "
                "reads its parameters from"
            )
        return source, theta
