"""Log-likelihoods that users give, as functions or as compiled sources."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace._base import _checks, _frames
from fastrace._base._words import counted
from fastrace._models._expanded import Expanded, OwnTerms, packed
from fastrace._models.rows import CHUNK
from fastrace.mcmc.models._curves import JaxTerms
from fastrace.mcmc.models._modes import Parts
from fastrace.mcmc.models._row_bounds import weights_of
from fastrace.mcmc.models.base import LogPrior, Model, Reference
from fastrace.sources import CallableSource, Source

__all__ = ["FunctionModel", "SourceModel"]

Array = NDArray[np.float64]
Terms = Callable[[Array, NDArray[np.int64]], ArrayLike]
_MOST_TABLE = 1 << 28  # bytes of a table of derivatives that is kept
_MOST_AT_ONCE = 1 << 23  # entries of Hessians

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
        self.start = np.zeros(self.dim) if start is None else _frames.floats_in_order(start, self.names, "start")
        if self.start.shape != (self.dim,) or not np.isfinite(self.start).all():
            raise ValueError(f"start is {_checks.shown(start)}; {self.dim} finite parameters are needed")
        self.third_derivatives: Array | None = None
        if third_derivatives is not None:
            if not self.has_derivatives:
                raise ValueError("third_derivatives came without derivatives, about whose expansion it bounds the rest")
            bound = np.array(np.broadcast_to(_checks.floats(third_derivatives, "third_derivatives"), (self.n_rows,)))
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
        at_once = max(1, min(CHUNK, _MOST_AT_ONCE // self.dim**2))
        for first in range(0, n, at_once):
            last = min(first + at_once, n)
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
        return weights, math.inf, self._rounding(hat)

    def _table(self, hat: Array) -> Array:
        """Derivatives of each term at a point, kept for the races to come."""
        kept = self._kept
        if kept is None or kept[0] != hat.tobytes():
            kept = self._kept = hat.tobytes(), np.concatenate([packed(*parts) for parts in self._parts(hat)])
        return kept[1]

    def _left(self, hat: Array, theta: Array, rows: NDArray[np.int64]) -> Array:
        """What the expansion at `hat` leaves of the terms of some rows, which are differentiated anew.

        Of rows without end there is no table of derivatives, which takes dim^2 / 2 numbers a row.
        """
        source, arms = self._plain()
        arms[:] = theta
        out, first, step = source.read(rows, [0])[:, 0], 0, theta - hat
        for values, gradients, hessians in self._parts(hat, rows):
            last = first + len(values)
            out[first:last] -= values + (gradients + 0.5 * (hessians @ step)) @ step
            first = last
        return np.asarray(out)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_kept": None}

    def engine(self, reference: Reference | None) -> tuple[Source, Array]:
        source, theta = self._plain()
        if reference is None:
            return source, theta
        if 8 * self.n_rows * (1 + self.dim + self.dim * (self.dim + 1) // 2) > _MOST_TABLE:
            left = partial(self._left, np.array(reference.theta_hat))
            return CallableSource(partial(terms_of_arms, left, theta), 2, self.n_rows), theta
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
        these terms. With it kernels use a control variate. Those at the point of expansion are kept, 8 bytes times
        1 + dim + dim (dim + 1) / 2 a row, where that is less than 256 MB in all; otherwise rows that are read are
        differentiated anew. With ``backend="jax"`` leave it out: JAX derives them, and nothing is kept.
    third_derivatives : array_like of shape (n_rows,), float or "auto", optional
        Bounds, everywhere, on the absolute third derivative of each term along any direction of unit length. With them
        kernels that are exact can be used. "auto" finds bounds with ``backend="jax"``; see Notes.
    start : array_like of shape (dim,), optional
        Where to look for the mode from, and where chains start if none is found near it; zeros by default.
    prior_mean, prior_sd, log_prior, names
        As in `GLM`.
    backend : {"numpy", "jax"}, default "numpy"
        What `terms` is written in; with "jax" in `jax.numpy`, and what it closes over are arrays. Of each row that is
        read JAX makes two derivatives along the step from the point of expansion, one number each.

    See Also
    --------
    PredictorModel : terms that are a function of one linear predictor a row, with bounds for kernels that are exact.

    Notes
    -----
    With ``third_derivatives="auto"`` each row's term is bounded within `sqrt(dim) + 5` standard deviations by interval
    arithmetic on its expression in JAX. It must be a function of at most three linear combinations of the parameters,
    which may differ from row to row: a linear predictor, with or without effects of groups, and the logarithm of a
    scale, for instance. Bounds are proved, but for rounding. The larger they are, the more rows a kernel reads. Of
    10,000 rows their sum was 2.8 times that of the largest values met at random points where there is one combination,
    and 5 to 8 times where there are two or three; finding them took .08 milliseconds a row, and .2 to .7. Of 400 rows,
    whose posterior is wide, it was 4 times and 11 to 59 times (``bench/row_bounds.py``).
    `reference`, and so every kernel, raises ``ValueError`` where no bound is found, and says why: a kink such as
    ``abs`` or a branch such as ``where`` within reach, or a function for which no bounds are known.

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

    backend = "numpy"
    _compiled: JaxTerms | None = None
    _finds_bounds = False
    _computed = (*Model._computed, "_compiled")

    def __init__(
        self,
        terms: Terms,
        dim: int,
        n_rows: int,
        *,
        derivatives: Derivatives | None = None,
        third_derivatives: ArrayLike | str | None = None,
        start: ArrayLike | None = None,
        prior_mean: ArrayLike = 0.0,
        prior_sd: ArrayLike = math.inf,
        log_prior: LogPrior | None = None,
        names: Sequence[str] | None = None,
        backend: str = "numpy",
    ) -> None:
        if not callable(terms):
            raise TypeError(f"terms is {_checks.shown(terms)}; a function of (theta, rows) is needed")
        _checks.takes(terms, "terms", "theta", "rows")
        if _checks.choice(backend, "backend", ("numpy", "jax")) == "jax":
            if derivatives is not None:
                raise ValueError("derivatives came with backend='jax', which makes its own: leave it out")
            self.backend = backend
        self.terms = terms
        if isinstance(third_derivatives, str):
            _checks.choice(third_derivatives, "third_derivatives", ("auto",))
            if backend != "jax":
                raise ValueError(f"third_derivatives is 'auto' and backend is {backend!r}; bounds are found of terms "
                                 f"in JAX: give backend='jax', or bounds as numbers")
            third_derivatives, self._finds_bounds = None, True
        super().__init__(dim, n_rows, derivatives, third_derivatives, start, prior_mean, prior_sd, log_prior, names)

    def __repr__(self) -> str:
        return f"FunctionModel({self.terms!r}, {counted(self.dim, 'parameter')}, {counted(self.n_rows, 'row')})"

    def __getstate__(self) -> dict[str, object]:
        state = super().__getstate__()
        state.pop("_compiled", None)
        return state

    @property
    def _derived(self) -> JaxTerms | None:
        """Terms and derivatives by JAX, compiled when first asked for."""
        if self.backend != "numpy" and self._compiled is None:
            self._compiled = JaxTerms(self.terms)
        return self._compiled

    @property
    def has_derivatives(self) -> bool:
        return self.derivatives is not None or self.backend != "numpy"

    def _bounds(self, hat: Array, factor: Array) -> tuple[Any, ...]:
        if not self._finds_bounds:
            return super()._bounds(hat, factor)
        weights, radius, *shells = weights_of(self.terms, hat, factor, self.n_rows)
        return weights, radius, self._rounding(hat), *shells

    def _plain(self) -> tuple[Source, Array]:
        theta, derived = np.zeros((2, self.dim)), self._derived
        terms = self.terms if derived is None else derived.terms
        return CallableSource(partial(terms_of_arms, terms, theta), 2, self.n_rows), theta

    def engine(self, reference: Reference | None) -> tuple[Source, Array]:
        derived = self._derived
        if derived is None or reference is None:
            return super().engine(reference)
        theta, hat = np.zeros((2, self.dim)), np.array(reference.theta_hat)

        def left(at: Array, rows: NDArray[np.int64]) -> Array:
            return derived.left(at, hat, rows)

        return CallableSource(partial(terms_of_arms, left, theta), 2, self.n_rows), theta

    def _expand_some(self, at: Array, rows: NDArray[np.int64] | None) -> Parts:
        derived = self._derived
        if derived is None:
            return super()._expand_some(at, rows)
        value, gradient, hessian = 0.0, np.zeros(self.dim), np.zeros((self.dim, self.dim))
        rows = np.arange(self.n_rows) if rows is None else rows
        for first in range(0, len(rows), CHUNK):
            parts = derived.sums(at, rows[first : first + CHUNK])
            value, gradient, hessian = value + parts[0], gradient + parts[1], hessian + parts[2]
        return value, gradient, hessian


def terms_of_arms(terms: Terms, theta: Array, arms: NDArray[np.intp], rows: NDArray[np.int64]) -> Array:
    """Rewards of arms that have their parameters in the rows of `theta`."""
    out = np.empty((len(rows), len(arms)))
    for j, arm in enumerate(arms):
        out[:, j] = _shaped(terms(theta[arm].copy(), rows), (len(rows),), "terms")
    return out


def _shaped(values: ArrayLike, shape: tuple[int, ...], name: str) -> Array:
    _checks.unmasked(values, f"what {name} returned")
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
        if not callable(make):
            raise TypeError(f"make is {_checks.shown(make)}; a function without arguments is needed")
        self.make = make
        source, theta = self._plain()
        super().__init__(theta.shape[1], source.n_rows, derivatives, third_derivatives, start, prior_mean, prior_sd,
                         log_prior, names)

    def __repr__(self) -> str:
        return f"SourceModel({self.make!r}, {counted(self.dim, 'parameter')}, {counted(self.n_rows, 'row')})"

    def _plain(self) -> tuple[Source, Array]:
        given = self.make()
        if not isinstance(given, tuple) or len(given) != 2:
            raise TypeError(f"make() returned {_checks.shown(given)}; a pair (source, theta) is needed")
        source, theta = given
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
