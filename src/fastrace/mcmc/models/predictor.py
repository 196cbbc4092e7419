"""Log-likelihoods whose terms are a user's function of one linear predictor a row."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace._base import _checks, _frames
from fastrace._base._words import counted
from fastrace._models.rows import CHUNK, lengths
from fastrace.control_variates import residual_rounding
from fastrace.mcmc.models._curves import ORDERS, curve_of
from fastrace.mcmc.models._modes import Parts
from fastrace.mcmc.models._row_bounds import NEAR, RADIUS, WORTH
from fastrace.mcmc.models.base import LogPrior, Model, Reference
from fastrace.mcmc.models.own_terms import terms_of_arms
from fastrace.results.columns import model_names
from fastrace.sources import CallableSource, Source, column_names

__all__ = ["PredictorModel"]

Array = NDArray[np.float64]
Rows = NDArray[np.int64] | slice

_POINTS = 16  # of a grid over a row's reach
_MARGIN = 1.25  # by which the fourth derivative may be larger between them than at them


class PredictorModel(Model):
    r"""A log-likelihood whose terms are your own function of one linear predictor a row.

    Parameters
    ----------
    term : callable, or sequence of callables
        ``term(eta, *columns)`` takes linear predictors of shape (k,) and k entries of each column, and returns the
        log-likelihood of each of these rows, shape (k,). Each entry may depend on its own row only. It is written in
        `jax.numpy` or PyTensor; with ``backend="numpy"`` it is a sequence of five functions in NumPy: the term and its
        first four derivatives by eta.
    X : array_like or sparse matrix (CSR) of shape (n_rows, dim)
        Explanatory variables, read in place: the predictor of a row is ``X[row] @ theta + offset[row]``.
    columns : sequence of array_like of shape (n_rows,)
        What else the terms depend on, such as outcomes.
    backend : {"jax", "pytensor", "numpy"}, default "jax"
        What `term` is written in.
    offset : array_like of shape (n_rows,), optional
        Added to the predictors.
    prior_mean, prior_sd, log_prior, names
        As in `GLM`; by default the parameters have the names of the columns of a frame `X`.

    Raises
    ------
    ValueError
        If shapes or pandas indexes do not agree, or the backend is unknown.

    Notes
    -----
    Terms are differentiated by the backend. A row keeps five numbers at the point of expansion, whatever `dim` is:
    there is no table of its derivatives by the parameters.

    So that exact kernels can be used, the third derivative of each row's term is bounded as far as the row can reach
    within `sqrt(dim) + 5` standard deviations. Between the points of a grid of 16 over that reach it can grow by half
    their distance times the largest fourth derivative. The fourth derivative itself is taken at the points, times 1.25.
    That last step is an assumption, not a proof: a fourth derivative that is more than a quarter larger between the
    points is missed. It holds for terms that are smooth at the scale of a posterior, and not for kinks or narrow steps
    far from zero. Chains check each row that they read, and raise ``ValueError`` at one beyond its bound, with the
    draws so far in its `trace`. A row that is wrong and never read is not found. Where you can prove bounds, give them
    as `third_derivatives` of a `FunctionModel`.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace import mcmc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 2))
    >>> y = X @ [1.0, -0.5] + rng.logistic(size=2000)
    >>> def value(eta, y):  # logistic errors; u = tanh((y - eta) / 2) is the slope
    ...     return -(y - eta) - 2.0 * np.logaddexp(0.0, eta - y)
    >>> def slopes(order):
    ...     def slope(eta, y):
    ...         u = np.tanh(0.5 * (y - eta))
    ...         v = 1.0 - u**2
    ...         return [u, -0.5 * v, -0.5 * u * v, 0.25 * v * (1.0 - 3.0 * u**2)][order]
    ...     return slope
    >>> model = mcmc.PredictorModel([value, *map(slopes, range(4))], X, [y], backend="numpy", prior_sd=10.0)
    >>> kernel = mcmc.PoissonMinibatchMetropolis(model)
    >>> trace = mcmc.sample(kernel, n_draws=200, n_chains=2, rng=1)
    >>> bool(np.abs(trace.draws.mean(axis=(0, 1)) - [1.0, -0.5]).max() < 0.2)
    True
    """

    _computed = (*Model._computed, "_kept", "_curve")

    def __init__(
        self,
        term: Callable[..., Any] | Sequence[Callable[..., Any]],
        X: Any,
        columns: Sequence[ArrayLike] = (),
        *,
        backend: str = "jax",
        offset: ArrayLike | None = None,
        prior_mean: ArrayLike = 0.0,
        prior_sd: ArrayLike = math.inf,
        log_prior: LogPrior | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        self.backend = _checks.choice(backend, "backend", ("jax", "pytensor", "numpy"))
        self.term: Any = term
        if backend == "numpy":
            self.term = tuple(term) if isinstance(term, Sequence) else ()
            if len(self.term) != ORDERS + 1 or not all(map(callable, self.term)):
                raise ValueError(f"term is {_checks.shown(term)}; backend='numpy' needs {ORDERS + 1} functions, the "
                                 f"term and its first {ORDERS} derivatives")
        elif not callable(term):
            raise TypeError(f"term is {_checks.shown(term)}; a function of (eta, *columns) is needed")
        _checks.unmasked(X, "X")
        _frames.require_same_rows(X=X, columns=columns, offset=offset)
        names = model_names(column_names(X)) if names is None else names
        self.X = X if hasattr(X, "nnz") or isinstance(X, np.ndarray) else _checks.floats(X, "X")
        if self.X.ndim != 2:
            raise ValueError(f"X has shape {self.X.shape}; (n_rows, dim) is needed")
        n = self.X.shape[0]
        if not isinstance(columns, Iterable):
            raise TypeError(f"columns is {_checks.shown(columns)}; a sequence of arrays is needed")
        listed = [_checks.as_array(column, "columns") for column in columns]
        listed += [] if offset is None else [_checks.as_array(offset, "offset")]
        wrong = [column.shape for column in listed if column.shape != (n,)]
        if wrong:
            raise ValueError(f"columns and offset have shapes {wrong}; ({n},), an entry for each row of X, is needed")
        self.offset = None if offset is None else listed.pop().astype(np.float64)
        self.columns = tuple(listed)
        super().__init__(self.X.shape[1], n, prior_mean, prior_sd, log_prior, names)
        self._kept: tuple[bytes, list[Array]] | None = None
        self._curve: Any = None

    def __repr__(self) -> str:
        return (f"PredictorModel({self.term!r}, {counted(self.dim, 'parameter')}, {counted(self.n_rows, 'row')}, "
                f"by {self.backend})")

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_kept": None, "_curve": None}

    @property
    def has_derivatives(self) -> bool:
        return True

    def curve(self, order: int, eta: ArrayLike, rows: Any) -> list[Array]:
        """Terms of some rows at predictors given, and their derivatives by these.

        Parameters
        ----------
        order : int
            How many derivatives, 4 at most.
        eta : array_like of shape (k,)
            Predictors.
        rows : array_like of int, shape (k,), or slice
            The rows.

        Returns
        -------
        list of ndarray of shape (k,)
            The terms, their first derivatives, and so on.
        """
        if self._curve is None:
            self._curve = curve_of(self.term, self.backend)
        _checks.unmasked(eta, "eta")
        _checks.unmasked(rows, "rows")
        eta = np.ascontiguousarray(eta, dtype=np.float64)
        parts = self._curve(order, eta, [column[rows] for column in self.columns])
        if any(part.shape != eta.shape for part in parts):
            raise ValueError(f"term returned shape {parts[0].shape}; {eta.shape}, one value per row asked for, is "
                             f"needed")
        return list(parts)

    def predictors(self, theta: ArrayLike, rows: Any) -> Array:
        """Linear predictors of some rows, row numbers or a slice, at parameters of shape (dim,)."""
        _checks.unmasked(rows, "rows")
        out = np.asarray(self.X[rows] @ _frames.floats_in_order(theta, self.names, "theta"), dtype=np.float64)
        return out if self.offset is None else out + self.offset[rows]

    def terms(self, theta: Array, rows: NDArray[np.int64]) -> Array:
        """Log-likelihood terms of these rows, shape (len(rows),)."""
        return self.curve(0, self.predictors(theta, rows), rows)[0]

    def engine(self, reference: Reference | None) -> tuple[Source, Array]:
        theta = np.zeros((2, self.dim))
        terms = self.terms if reference is None else partial(self._left, self._at(reference.theta_hat))
        return CallableSource(partial(terms_of_arms, terms, theta), 2, self.n_rows), theta

    def _spans(self) -> list[slice]:
        return [slice(first, min(first + CHUNK, self.n_rows)) for first in range(0, self.n_rows, CHUNK)]

    def _at(self, hat: Array) -> list[Array]:
        """Predictors, terms and two derivatives of all rows at a point, kept for the races to come."""
        kept = self._kept
        if kept is None or kept[0] != hat.tobytes():
            parts = []
            for span in self._spans():
                eta = self.predictors(hat, span)
                parts.append([eta, *self.curve(2, eta, span)])
            kept = self._kept = hat.tobytes(), [np.concatenate(part) for part in zip(*parts, strict=True)]
        return kept[1]

    def _left(self, at: list[Array], theta: Array, rows: NDArray[np.int64]) -> Array:
        """What their second-order expansion leaves of the terms of some rows."""
        eta, value, slope, bend = (part[rows] for part in at)
        new = self.predictors(theta, rows)
        step = new - eta
        return np.asarray(self.curve(0, new, rows)[0] - value - step * (slope + 0.5 * step * bend))

    def _expand(self, at: Array) -> Parts:
        return self._summed(at, self._spans())

    def _expand_some(self, at: Array, rows: NDArray[np.int64]) -> Parts:
        return self._summed(at, [rows[first : first + CHUNK] for first in range(0, len(rows), CHUNK)])

    def _summed(self, at: Array, spans: Sequence[Rows]) -> Parts:
        value, gradient, hessian = 0.0, np.zeros(self.dim), np.zeros((self.dim, self.dim))
        for rows in spans:
            some: Any = self.X[rows]
            x = np.asarray(some.toarray() if hasattr(some, "nnz") else some, dtype=np.float64)
            terms, slope, bend = self.curve(2, self.predictors(at, rows), rows)
            value += float(terms.sum())
            gradient += slope @ x
            hessian += x.T @ (bend[:, None] * x)
        return value, gradient, hessian

    def _bounds(self, hat: Array, factor: Array) -> tuple[Any, ...]:
        across, center = lengths(self.X, factor), self._at(hat)
        inner, outer = (math.sqrt(self.dim) + beyond for beyond in (NEAR, RADIUS))
        weights, smaller = (self._bends(center[0], across * radius) * across**3 for radius in (outer, inner))
        if not np.isfinite(weights).all():
            return None, math.inf, 0.0
        rounding = residual_rounding(float(np.abs(center[1]).max()))
        shells = ((inner, smaller),) if math.fsum(smaller) <= WORTH * math.fsum(weights) else ()
        return weights, outer, rounding, *shells

    def _bends(self, center: Array, reach: Array) -> Array:
        """Bounds on the third derivatives within `reach` of `center`, as the class says."""
        grid, out = np.linspace(-1.0, 1.0, _POINTS), np.empty(self.n_rows)
        for span in self._spans():
            eta = center[span, None] + reach[span, None] * grid
            rows = np.repeat(np.arange(span.start, span.stop), _POINTS)
            third, fourth = (np.abs(part).reshape(eta.shape).max(axis=1) for part in
                             self.curve(ORDERS, eta.ravel(), rows)[3:])
            out[span] = third + _MARGIN * fourth * reach[span] / (_POINTS - 1)
        return out
