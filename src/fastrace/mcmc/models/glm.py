"""Generalised linear models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace._base import _checks
from fastrace._base._words import counted
from fastrace._models._expanded import Expanded
from fastrace.control_variates import cubic_weights
from fastrace.likelihoods import SCALED, GLMSource
from fastrace.mcmc.kernels._chain import parameters_of
from fastrace.mcmc.models._modes import Parts, ascent, movement
from fastrace.mcmc.models._rows import chunks, lengths
from fastrace.mcmc.models.base import LogPrior, Model, Reference
from fastrace.results.columns import model_names
from fastrace.sources import Source, column_names

__all__ = ["GLM"]

Array = NDArray[np.float64]


class GLM(Model):
    r"""A generalised linear model with a normal, flat or user-given prior.

    Parameters
    ----------
    X, y, family
        As in `fastrace.likelihoods.GLMSource`: "logistic", "gaussian", "poisson" or "student-t" regression. An array
        `X` is read in place.
    scale : float, optional
        Of the "gaussian" and "student-t" families, which need it: the standard deviation of the outcome about its mean,
        or the scale of the Student distribution, in units of `y`. It is taken as given, not learned: the standard
        deviations of the coefficients are in proportion to it. See the examples for an estimate.
    df : float, default 4.0
        Degrees of freedom of the "student-t" family.
    prior_mean, prior_sd : float or array_like of shape (p,), default 0 and infinity
        Independent normal priors; an infinite standard deviation is a flat prior.
    log_prior : callable, optional
        ``log_prior(theta)``, in place of the normal prior or besides. Python code: about a microsecond a step.
    shuffle : None, int, SeedSequence or Generator, optional
        Copy the rows in random order. Races then read consecutive rows, which is much faster where the data are far
        larger than the cache; see ``access`` in `RacingMetropolis`.
    names : sequence of str of length p, optional
        What the parameters are called in errors and in traces; by default the columns of a frame or dict `X`.

    Raises
    ------
    ValueError
        If an argument is out of range, or `scale` is missing where the family needs it or given where it has none.
        `reference`, and so every kernel, raises where the posterior is improper: columns are collinear, or outcomes
        separated, under a flat prior. It also raises where columns are so nearly collinear that double precision does
        not suffice, such as time stamps beside an intercept: centre and scale the columns.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace import mcmc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(1000, 2))
    >>> y = rng.random(1000) < 1 / (1 + np.exp(-X @ [1.0, -0.5]))
    >>> model = mcmc.GLM(X, y, prior_sd=10.0)
    >>> model.reference().center.round(1)
    array([ 1. , -0.4])

    The scale of a Gaussian outcome from the residuals of least squares, or of a Student one from their quartiles:

    >>> z = X @ [1.0, -0.5] + rng.normal(scale=3.0, size=1000)
    >>> left = z - X @ np.linalg.lstsq(X, z)[0]
    >>> model = mcmc.GLM(X, z, family="gaussian", scale=np.sqrt(left @ left / (len(z) - 2)))
    >>> model.reference().factor.diagonal().round(1)  # standard deviations, about 3 / sqrt(1000)
    array([0.1, 0.1])
    >>> from scipy import stats
    >>> scale = np.median(np.abs(left)) / stats.t.ppf(0.75, df=4.0)
    >>> model = mcmc.GLM(X, z, family="student-t", scale=scale, df=4.0)
    """

    def __init__(
        self,
        X: ArrayLike,
        y: ArrayLike,
        family: str = "logistic",
        scale: float | None = None,
        df: float = 4.0,
        *,
        prior_mean: ArrayLike = 0.0,
        prior_sd: ArrayLike = math.inf,
        log_prior: LogPrior | None = None,
        shuffle: _checks.RngLike = None,
        names: Sequence[str] | None = None,
    ) -> None:
        if scale is not None and family not in SCALED:
            raise ValueError(f"scale is {scale!r}; the {family!r} family has none: leave it out")
        self._glm = GLMSource(X, y, None, family, scale, df)
        self.shuffled = shuffle is not None
        if self.shuffled:
            order = _checks.generator(shuffle, "shuffle").permutation(self._glm.n_rows)
            self._glm = self._source(self._glm.X[order], self._glm.y[order], None)
        names = model_names(column_names(X)) if names is None else names
        super().__init__(self._glm.X.shape[1], self._glm.n_rows, prior_mean, prior_sd, log_prior, names)

    def __repr__(self) -> str:
        return f"GLM({counted(self.n_rows, 'row')}, {counted(self.dim, 'column')}, family={self._glm.family!r})"

    _positive = True

    @property
    def _concave(self) -> bool:  # type: ignore[override]
        return self._glm.family != "student-t"

    @property
    def has_derivatives(self) -> bool:
        return True

    def engine(self, reference: Reference | None) -> tuple[Source, Array]:
        own, theta = self._arms(2)
        return own if reference is None else Expanded(own, reference.theta_hat), theta

    def _arms(self, count: int) -> tuple[GLMSource, Array]:
        own = self._source(self._glm.X, self._glm.y, np.zeros((count, self.dim)))
        return own, parameters_of(own)

    def _source(self, X: NDArray[Any], y: Array, theta: Array | None) -> GLMSource:
        g = self._glm
        return GLMSource(X, y, theta, g.family, g.scale, g.df, check_finite=False)

    def _expand_some(self, at: Array, rows: NDArray[np.int64]) -> Parts:
        x = np.ascontiguousarray(self._glm.X[rows])
        level, slope, curvature = self._source(x, self._glm.y[rows], None).derivatives(at, 0, len(rows))
        x = np.asarray(x, dtype=np.float64)
        return float(level.sum()), slope @ x, x.T @ (curvature[:, None] * x)

    def _expand(self, at: Array) -> Parts:
        value, gradient, hessian = 0.0, np.zeros(self.dim), np.zeros((self.dim, self.dim))
        for part, x in chunks(self._glm.X):
            level, slope, curvature = self._glm.derivatives(at, part.start, len(x))
            value += level.sum()
            gradient += slope @ x
            hessian += x.T @ (curvature[:, None] * x)
        return float(value), gradient, hessian

    def _bounds(self, hat: Array, factor: Array) -> tuple[Array | None, float, float]:
        weights, radius = cubic_weights(self._glm, self._lengths(factor), lambda: self._predictors(hat))
        return weights, radius, self._rounding(hat)

    def _start(self) -> Array:
        """Where to look for the mode from: for counts, the weighted least squares fit of their logarithms."""
        if self._glm.outcomes != "count":
            return np.zeros(self.dim)
        gradient, hessian = np.zeros(self.dim), np.zeros((self.dim, self.dim))
        for part, x in chunks(self._glm.X):
            mean = np.asarray(self._glm.y[part], dtype=np.float64) + 0.5
            gradient += (mean * np.log(mean)) @ x
            hessian -= x.T @ (mean[:, None] * x)
        _, gradient, hessian = self._with_prior(np.zeros(self.dim), 0.0, gradient, hessian)
        return ascent(hessian, gradient)

    def _margins(self, at: Array) -> tuple[float, float] | None:
        if self._glm.outcomes == "real":
            return None
        y, moved = np.asarray(self._glm.y), self._predictors(at)
        if self._glm.outcomes == "count":  # rows with a count hold their predictors
            right = np.where(y > 0.0, -np.abs(moved), -moved)
        else:
            right = np.where(y > 0.5, moved, -moved)
        return float(right.min()), float(right.max())

    def _moved(self, direction: Array) -> float:
        return movement(self._glm.X, direction[:, None])

    def slopes(self, reference: Reference) -> Array:
        steepest = self._glm.steepest
        if steepest == math.inf:
            raise ValueError(
                f"the slope of the {self._glm.family} family's terms is not bounded, and TunaMH needs a bound; use "
                f"PoissonMinibatchMetropolis or RacingMetropolis"
            )
        return steepest * self._lengths(reference.factor)

    def _lengths(self, factor: Array) -> Array:
        """Norm of each whitened row: x . (theta - hat) is at most this times the whitened distance."""
        return lengths(self._glm.X, factor)

    def _predictors(self, at: Array) -> Array:
        return np.concatenate([x @ at for _, x in chunks(self._glm.X)])
