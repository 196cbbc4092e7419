"""Log-likelihoods over rows, with what is known of their derivatives, as kernels want them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace._base import _checks
from fastrace._base._words import counted
from fastrace._models._expansion import ExpandedSource, packed
from fastrace.control_variates import TaylorSurrogate, cubic_weights, residual_rounding
from fastrace.likelihoods import GLMSource, require_finite
from fastrace.mcmc.kernels._chain import Residual, parameters_of
from fastrace.sources import CallableSource, Source

__all__ = ["GLM", "FunctionModel", "Reference", "SourceModel"]

_CHUNK = 4096
_NEWTON_STEPS = 100
_FAR = 0.01  # squared gradient per posterior standard deviation at which no mode has been found
_ROUNDING = 1e-11  # relative error of a log-posterior
_COLLINEAR = 1e-11  # relative movement of the predictors that is rounding
_SINGULAR = 1e-14  # eigenvalue, the diagonal being 1, that is rounding

LogPrior = Callable[[NDArray[np.float64]], float]
Terms = Callable[[NDArray[np.float64], NDArray[np.int64]], ArrayLike]
Derivatives = Callable[[NDArray[np.float64], NDArray[np.int64]], tuple[ArrayLike, ArrayLike]]


class NoModeError(ValueError):
    """A log-posterior has no mode that a normal density could follow, or none was found."""


@dataclass(frozen=True, eq=False)
class Reference:
    r"""A normal density that follows a posterior, from a second-order expansion of the log-likelihood at one point.

    Attributes
    ----------
    theta_hat : ndarray of shape (dim,)
        Where the log-likelihoods are expanded.
    center, factor : ndarray of shape (dim,) and (dim, dim)
        Mean and Cholesky factor of the covariance of the normal density: expansion times normal prior, if any.
    weights : ndarray of shape (n_rows,) or None
        Bound on the third derivative of each row's term along whitened directions, to the third power of a unit
        length: what an exact minibatch needs. None where none is known.
    radius : float
        Distance from `theta_hat`, whitened, up to which `weights` holds.
    rounding : float, default 0.0
        How far rounding may move the change of a row's residual: about 1e-13 times the largest absolute term at
        `theta_hat`. Chains allow for it where they check rows against `weights`, and for 1e-10 at least.
    """

    theta_hat: NDArray[np.float64]
    center: NDArray[np.float64]
    factor: NDArray[np.float64]
    weights: NDArray[np.float64] | None
    radius: float
    rounding: float = field(default=0.0, kw_only=True)

    def __repr__(self) -> str:
        rows = "no weights" if self.weights is None else f"weights of {counted(len(self.weights), 'row')}"
        return f"{type(self).__name__}({counted(len(self.center), 'parameter')}, {rows}, radius={self.radius:.4g})"

    @property
    def from_hat(self) -> NDArray[np.float64]:
        """The whitened center as seen from `theta_hat`."""
        return np.asarray(np.linalg.solve(self.factor, self.center - self.theta_hat), dtype=np.float64)


class Model:
    """What kernels ask of a model. Subclass it, or use `GLM`, `FunctionModel` or `SourceModel`."""

    def __init__(
        self,
        dim: int,
        n_rows: int,
        prior_mean: ArrayLike = 0.0,
        prior_sd: ArrayLike = math.inf,
        log_prior: LogPrior | None = None,
    ) -> None:
        self.dim = _checks.integer(dim, "dim", 1, "a chain needs something to move")
        self.n_rows = _checks.integer(n_rows, "n_rows", 1, "a likelihood needs rows")
        self.prior_mean = _checks.arm_values(prior_mean, "prior_mean", self.dim, "parameter")
        sd = _checks.arm_values(prior_sd, "prior_sd", self.dim, "parameter")
        if not (sd > 0.0).all() or not np.isfinite(self.prior_mean).all():
            raise ValueError(
                f"prior_mean is {prior_mean!r} and prior_sd {prior_sd!r}; finite means and positive standard "
                f"deviations are needed, infinite ones for a flat prior"
            )
        self.prior_precision = 1.0 / sd**2
        if log_prior is not None and not callable(log_prior):
            raise TypeError(f"log_prior is {log_prior!r}; a function of the parameters is needed")
        if log_prior is not None:
            _checks.takes(log_prior, "log_prior", "theta")
        self.log_prior = log_prior

    @property
    def has_derivatives(self) -> bool:
        """Whether `reference` works."""
        return False

    def engine(self, reference: Reference | None) -> tuple[Source, NDArray[np.float64]]:
        """A new source of two arms, and the float64 array of shape (2, dim) it reads its parameters from.

        With a reference the source gives what the second-order expansion at ``reference.theta_hat`` leaves.
        """
        raise NotImplementedError

    def reference(self, theta_hat: ArrayLike | None = None) -> Reference:
        """Expand the log-likelihood at a point, by default the posterior mode."""
        raise ValueError(f"{type(self).__name__} has no derivatives to expand; use control_variate=None")

    def log_prior_beside(self, reference: Reference | None) -> LogPrior | None:
        """What the normal density of a reference leaves of the log prior: `log_prior` unless it is expanded too."""
        return self.log_prior

    def slopes(self, reference: Reference) -> NDArray[np.float64]:
        """Bound on the change of each row's term per whitened unit of length, shape (n_rows,), for TunaMH."""
        raise ValueError(f"no bound on the slope of the terms of {type(self).__name__} is known")

    def _newton(
        self,
        expand: Callable[[NDArray[np.float64]], tuple[float, NDArray[np.float64], NDArray[np.float64]]],
        start: NDArray[np.float64],
        tolerance: float = 1e-9,
        check: Callable[[NDArray[np.float64], NDArray[np.float64]], None] | None = None,
    ) -> NDArray[np.float64]:
        """Mode of the log-likelihood times the normal prior, by damped Newton steps.

        `check` is given the last point and the Newton step there, and may raise before `NoModeError` does. The squared
        gradient, in units of the posterior's standard deviations, falls below `tolerance`, or, where rounding of the
        log-posterior stops the search earlier, below `_FAR`.
        """
        mode = start
        with np.errstate(all="ignore"):  # a step too far may overflow; it is then halved
            value, gradient, hessian = self._with_prior(mode, *expand(mode))
            step = _ascent(hessian, gradient)
            for _ in range(_NEWTON_STEPS):
                promised = float(gradient @ step)
                if promised < tolerance:
                    break
                size = 1.0
                while size > 1e-8:
                    new = mode + size * step
                    parts = self._with_prior(new, *expand(new))
                    gain = parts[0] - value
                    if np.isfinite(parts[0]) and np.isfinite(parts[1]).all() and np.isfinite(parts[2]).all():
                        next_step = _ascent(parts[2], parts[1])
                        if gain >= 1e-4 * size * promised or (
                            gain >= -_ROUNDING * abs(value) and float(parts[1] @ next_step) < 0.5 * promised
                        ):
                            break
                    size /= 2.0
                else:
                    break
                mode, step = new, next_step
                value, gradient, hessian = parts
        if check is not None:
            check(mode, step)
        squared = float(gradient @ step)
        if not squared < max(_FAR, 1000.0 * tolerance):
            raise NoModeError(
                f"Newton's method found no mode of the posterior: where it stopped, the gradient is "
                f"{math.sqrt(squared) if squared >= 0.0 else math.nan:.3g} per posterior standard deviation, and 0 is "
                f"needed. Start nearer the mode, centre and scale columns, give a proper prior, or give the "
                f"point to expand at as control_variate; control_variate=None needs no mode"
            )
        return mode

    def _with_prior(
        self, at: NDArray[np.float64], value: float, gradient: NDArray[np.float64], hessian: NDArray[np.float64]
    ) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
        step = at - self.prior_mean
        pull = self.prior_precision * step
        return value - 0.5 * float(step @ pull), gradient - pull, hessian - np.diag(self.prior_precision)

    def _moved(self, direction: NDArray[np.float64]) -> float:
        """How far a step moves the predictors, over the sum of what its components move them; nan if unknown."""
        return math.nan

    def _normal(
        self, at: NDArray[np.float64], gradient: NDArray[np.float64], hessian: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Center and Cholesky factor of the covariance of the expansion at a point, prior included."""
        _, slope, curvature = self._with_prior(at, 0.0, gradient, hessian)
        if not (np.isfinite(slope).all() and np.isfinite(curvature).all()):
            raise NoModeError(f"the derivatives of the log-posterior at theta_hat {at} are not finite: give theta_hat "
                              f"nearer the mode, or control_variate=None")
        scale, values, vectors = _scaled(-curvature)
        if values[0] < -1e-9:
            raise NoModeError(
                "the log-posterior is not curved downwards in every direction at theta_hat, so no normal density "
                "follows it: give theta_hat nearer the mode, a proper prior, or control_variate=None"
            )
        if values[0] <= _SINGULAR * len(at):
            weight = np.abs(vectors[:, 0])
            flat = ", ".join(map(str, np.flatnonzero(weight > 0.1 * weight.max())))
            silent = f"the data and the normal prior say nothing about one direction of parameters {flat}"
            moved = self._moved(vectors[:, 0] / scale)
            if moved > _COLLINEAR:
                raise NoModeError(
                    f"in double precision {silent}: their columns are nearly collinear, as numbers far from 0, such as "
                    f"time stamps, are beside an intercept. Centre and scale the columns, give a finite prior_sd, or "
                    f"control_variate=None"
                )
            silent += ", as with collinear columns or a column of zeros"
            if self.log_prior is not None:
                raise NoModeError(f"{silent}, and log_prior is not expanded; leave a column out, give a finite "
                                  f"prior_sd too, or control_variate=None")
            improper = "improper" if moved <= _COLLINEAR else "improper, or too nearly so for double precision"
            raise ValueError(f"the posterior is {improper}: {silent}; leave a column out, or give a finite prior_sd")
        covariance = (vectors / values) @ vectors.T / np.outer(scale, scale)
        whole = np.linalg.cholesky((covariance + covariance.T) / 2.0 * np.outer(scale, scale))
        return at + covariance @ slope, np.asarray(whole / scale[:, None], dtype=np.float64)


def _scaled(
    matrix: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Scales that bring the diagonal of a symmetric matrix to 1 or -1; eigenvalues and -vectors of what they leave."""
    scale = np.sqrt(np.abs(np.diag(matrix)))
    scale[scale == 0.0] = 1.0
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2.0 / np.outer(scale, scale))
    return scale, values, vectors


def movement(table: NDArray[np.generic], steps: NDArray[np.float64]) -> float:
    """Largest predictor of steps of shape (p, k), over the largest sum of absolute parts of one."""
    whole = parts = 0.0
    for first in range(0, len(table), _CHUNK):
        x = np.asarray(table[first : first + _CHUNK], dtype=np.float64)
        whole = max(whole, float(np.abs(x @ steps).max()))
        parts = max(parts, float((np.abs(x) @ np.abs(steps)).max()))
    return whole / parts if parts > 0.0 else 0.0


def _ascent(hessian: NDArray[np.float64], gradient: NDArray[np.float64]) -> NDArray[np.float64]:
    """The Newton step, upwards also where the Hessian is curved up or not at all."""
    if not (np.isfinite(hessian).all() and np.isfinite(gradient).all()):
        return np.full(len(gradient), np.nan)
    scale, values, vectors = _scaled(-hessian)
    values = np.maximum(np.abs(values), _SINGULAR)
    return np.asarray(vectors @ ((vectors.T @ (gradient / scale)) / values) / scale)


def require_proper(model: Model, least: float, most: float, step: NDArray[np.float64]) -> None:
    """Raise if a step from the supposed mode moves predictors as if the likelihood had none.

    `least` and `most` are the extremes over rows of how far the step moves predictors in the direction that raises
    the likelihood. Where a likelihood rises for ever, Newton's steps keep moving some predictors by about 1, all of
    them the right way, however small the gradient has become. At a mode a step is almost 0.
    """
    if most > 0.1 and least >= -1e-3 * most:
        sizes = np.where(model.prior_precision > 0.0, 0.0, np.abs(step))
        columns = ", ".join(map(str, np.flatnonzero(sizes > 0.1 * sizes.max())))
        rises = (f"the outcomes are separated: the likelihood rises for ever as theta moves along parameters "
                 f"{columns}, on which the normal prior is flat")
        if model.log_prior is not None:
            raise NoModeError(f"{rises}, and log_prior is not expanded. Give a finite prior_sd too, or "
                              f"control_variate=None")
        raise ValueError(f"the posterior is improper: {rises}. Give a finite prior_sd, such as 2.5 for columns of "
                         f"standard deviation 1, or leave out what separates the outcomes")


class GLM(Model):
    r"""A generalised linear model with a normal, flat or user-given prior.

    Parameters
    ----------
    X, y, family, df
        As in `fastrace.likelihoods.GLMSource`: "logistic", "gaussian", "poisson" or "student-t" regression. `X` is read
        in place.
    scale : float, optional
        Of the "gaussian" and "student-t" families, which need it: the standard deviation of the outcome about its mean,
        or the scale of the Student distribution, in units of `y`. It is taken as given, not learned: the standard
        deviations of the coefficients are in proportion to it. See the examples for an estimate.
    prior_mean, prior_sd : float or array_like of shape (p,), default 0 and infinity
        Independent normal priors; an infinite standard deviation is a flat prior.
    log_prior : callable, optional
        ``log_prior(theta)``, in place of the normal prior or besides. Python code: about a microsecond a step.
    shuffle : None, int, SeedSequence or Generator, optional
        Copy the rows in random order. Races then read consecutive rows, which is much faster where the data are far
        larger than the cache; see ``access`` in `RacingMetropolis`.

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
    ) -> None:
        table, outcome = np.asarray(X), np.asarray(y)
        require_finite(table)                # before the shuffle, so that the error names the row as it was given
        if shuffle is not None and table.ndim == 2 and outcome.shape == table.shape[:1]:
            order = _checks.generator(shuffle, "shuffle").permutation(len(table))
            table, outcome = table[order], outcome[order]
        self.shuffled = shuffle is not None
        columns = table.shape[1] if table.ndim == 2 else 1
        if scale is not None and family in ("logistic", "poisson"):
            raise ValueError(f"scale is {scale!r}; the {family!r} family has none: leave it out")
        self._glm = GLMSource(table, outcome, np.zeros((2, columns)), family, scale, df, check_finite=False)
        super().__init__(columns, self._glm.n_rows, prior_mean, prior_sd, log_prior)

    def __repr__(self) -> str:
        return f"GLM({counted(self.n_rows, 'row')}, {counted(self.dim, 'column')}, family={self._glm.family!r})"

    @property
    def has_derivatives(self) -> bool:
        return True

    def engine(self, reference: Reference | None) -> tuple[Source, NDArray[np.float64]]:
        g = self._glm
        own = GLMSource(g.X, g.y, np.zeros((2, self.dim)), g.family, g.scale, g.df, check_finite=False)
        return own if reference is None else Residual(own, reference.theta_hat), parameters_of(own)

    def _expand(self, at: NDArray[np.float64]) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
        value, gradient, hessian = 0.0, np.zeros(self.dim), np.zeros((self.dim, self.dim))
        for first in range(0, self.n_rows, _CHUNK):
            x = np.asarray(self._glm.X[first : first + _CHUNK], dtype=np.float64)
            level, slope, curvature = self._glm.derivatives(at, first, len(x))
            value += level.sum()
            gradient += slope @ x
            hessian += x.T @ (curvature[:, None] * x)
        return float(value), gradient, hessian

    def reference(self, theta_hat: ArrayLike | None = None) -> Reference:
        if theta_hat is None:
            hat = self._newton(self._expand, self._start(), check=self._require_proper)
        else:
            hat = np.array(theta_hat, dtype=np.float64)
        surrogate = TaylorSurrogate(self._glm, hat)
        center, factor = self._normal(hat, np.asarray(surrogate.gradient), np.asarray(surrogate.hessian))
        weights, radius = cubic_weights(self._glm, self._lengths(factor), lambda: self._predictors(hat))
        return Reference(hat, center, factor, weights, radius, rounding=surrogate.rounding)

    def _start(self) -> NDArray[np.float64]:
        """Where to look for the mode from: for counts, the weighted least squares fit of their logarithms."""
        if self._glm.family != "poisson":
            return np.zeros(self.dim)
        gradient, hessian = np.zeros(self.dim), np.zeros((self.dim, self.dim))
        for first in range(0, self.n_rows, _CHUNK):
            x = np.asarray(self._glm.X[first : first + _CHUNK], dtype=np.float64)
            mean = np.asarray(self._glm.y[first : first + _CHUNK], dtype=np.float64) + 0.5
            gradient += (mean * np.log(mean)) @ x
            hessian -= x.T @ (mean[:, None] * x)
        _, gradient, hessian = self._with_prior(np.zeros(self.dim), 0.0, gradient, hessian)
        return _ascent(hessian, gradient)

    def _require_proper(self, hat: NDArray[np.float64], step: NDArray[np.float64]) -> None:
        """Raise if the outcomes are separated in a direction in which the prior is flat."""
        if self._glm.family not in ("logistic", "poisson") or (self.prior_precision > 0.0).all():
            return
        y = np.asarray(self._glm.y)
        if self._glm.family == "poisson":  # rows with a count hold their predictors
            moved = self._predictors(step)
            right = np.where(y > 0.0, -np.abs(moved), -moved)
        else:
            sign = np.where(y > 0.5, 1.0, -1.0)
            if not (self.prior_precision > 0.0).any() and (sign * self._predictors(hat)).min() > 0.0:
                step = hat  # it separates all rows itself
            right = sign * self._predictors(step)
        require_proper(self, float(right.min()), float(right.max()), step)

    def _moved(self, direction: NDArray[np.float64]) -> float:
        return movement(self._glm.X, direction[:, None])

    def slopes(self, reference: Reference) -> NDArray[np.float64]:
        family, scale, df = self._glm.family, self._glm.scale, self._glm.df
        if family == "logistic":
            steepest = 1.0
        elif family == "student-t":
            steepest = (df + 1.0) / (2.0 * math.sqrt(df) * scale)
        else:
            raise ValueError(
                f"the slope of the {family} family's terms is not bounded, and TunaMH needs a bound; use "
                f"PoissonMinibatchMetropolis or RacingMetropolis"
            )
        return steepest * self._lengths(reference.factor)

    def _lengths(self, factor: NDArray[np.float64]) -> NDArray[np.float64]:
        """Norm of each whitened row: x . (theta - hat) is at most this times the whitened distance."""
        out = np.empty(self.n_rows)
        for first in range(0, self.n_rows, _CHUNK):
            x = np.asarray(self._glm.X[first : first + _CHUNK], dtype=np.float64)
            out[first : first + len(x)] = np.sqrt(np.square(x @ factor).sum(axis=1))
        return out * (1.0 + 1e-12)

    def _predictors(self, at: NDArray[np.float64]) -> NDArray[np.float64]:
        chunks = range(0, self.n_rows, _CHUNK)
        return np.concatenate([np.asarray(self._glm.X[k : k + _CHUNK], dtype=np.float64) @ at for k in chunks])


class _TermsModel(Model):
    """A user's own terms, and what they say of the derivatives."""

    derivatives: Derivatives | None
    third_derivatives: NDArray[np.float64] | None
    start: NDArray[np.float64]

    def _plain(self) -> tuple[Source, NDArray[np.float64]]:
        """A new source of the terms themselves, and where it reads its parameters."""
        raise NotImplementedError

    def _set_derivatives(
        self, derivatives: Derivatives | None, third_derivatives: ArrayLike | None, start: ArrayLike | None
    ) -> None:
        if derivatives is not None and not callable(derivatives):
            raise TypeError(f"derivatives is {derivatives!r}; a function of (theta, rows) is needed")
        self.derivatives = derivatives
        self.start = np.zeros(self.dim) if start is None else np.array(start, dtype=np.float64)
        if self.start.shape != (self.dim,) or not np.isfinite(self.start).all():
            raise ValueError(f"start is {start!r}; {self.dim} finite parameters are needed")
        self.third_derivatives = None
        if third_derivatives is not None:
            if derivatives is None:
                raise ValueError("third_derivatives came without derivatives, about whose expansion it bounds the rest")
            bound = np.array(np.broadcast_to(np.asarray(third_derivatives, dtype=np.float64), (self.n_rows,)))
            if not (np.isfinite(bound).all() and (bound >= 0.0).all()):
                raise ValueError(f"third_derivatives is {third_derivatives!r}; bounds from 0 up are needed")
            self.third_derivatives = bound
        self._kept: tuple[bytes, NDArray[np.float64]] | None = None

    @property
    def has_derivatives(self) -> bool:
        return self.derivatives is not None

    def _parts(
        self, at: NDArray[np.float64], rows: NDArray[np.int64], source: Source
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Values, gradients and Hessians of some terms; `source` has its arm 0 at the same parameters."""
        assert self.derivatives is not None
        k, d = len(rows), self.dim
        gradient, hessian = self.derivatives(at.copy(), rows)
        return source.read(rows, [0])[:, 0], _shaped(gradient, (k, d), "the gradient"), \
            _shaped(hessian, (k, d, d), "the Hessian")

    def _expand(self, at: NDArray[np.float64]) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
        value, gradient, hessian = 0.0, np.zeros(self.dim), np.zeros((self.dim, self.dim))
        source, theta = self._plain()
        theta[:] = at
        for first in range(0, self.n_rows, _CHUNK):
            parts = self._parts(at, np.arange(first, min(first + _CHUNK, self.n_rows)), source)
            value += float(parts[0].sum())
            gradient += parts[1].sum(axis=0)
            hessian += parts[2].sum(axis=0)
        return value, gradient, hessian

    def reference(self, theta_hat: ArrayLike | None = None) -> Reference:
        if self.derivatives is None:
            return super().reference(theta_hat)
        hat = self._newton(self._expand, self.start) if theta_hat is None else np.array(theta_hat, dtype=np.float64)
        if hat.shape != (self.dim,) or not np.isfinite(hat).all():
            raise ValueError(f"theta_hat has shape {hat.shape}; {self.dim} finite parameters are needed")
        _, gradient, hessian = self._expand(hat)
        center, factor = self._normal(hat, gradient, hessian)
        weights, rounding = None, 0.0
        if self.third_derivatives is not None:
            weights = self.third_derivatives * (float(np.linalg.norm(factor, 2)) ** 3 * (1.0 + 1e-12))
            rounding = residual_rounding(float(np.abs(self._table(hat)[:, 0]).max()))
        return Reference(hat, center, factor, weights, math.inf, rounding=rounding)

    def _table(self, hat: NDArray[np.float64]) -> NDArray[np.float64]:
        """Derivatives of each term at a point, kept for the races to come."""
        kept = self._kept
        if kept is None or kept[0] != hat.tobytes():
            source, theta = self._plain()
            theta[:] = hat
            parts = [
                packed(*self._parts(hat, np.arange(first, min(first + _CHUNK, self.n_rows)), source))
                for first in range(0, self.n_rows, _CHUNK)
            ]
            kept = hat.tobytes(), np.concatenate(parts)
            self._kept = kept
        return kept[1]

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_kept": None}

    def engine(self, reference: Reference | None) -> tuple[Source, NDArray[np.float64]]:
        source, theta = self._plain()
        if reference is None:
            return source, theta
        return ExpandedSource(source, theta, reference.theta_hat, self._table(reference.theta_hat)), theta


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
    prior_mean, prior_sd, log_prior
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
    ) -> None:
        super().__init__(dim, n_rows, prior_mean, prior_sd, log_prior)
        if not callable(terms):
            raise TypeError(f"terms is {terms!r}; a function of (theta, rows) is needed")
        _checks.takes(terms, "terms", "theta", "rows")
        self.terms = terms
        self._set_derivatives(derivatives, third_derivatives, start)

    def __repr__(self) -> str:
        return f"FunctionModel({self.terms!r}, {counted(self.dim, 'parameter')}, {counted(self.n_rows, 'row')})"

    def _plain(self) -> tuple[Source, NDArray[np.float64]]:
        theta = np.zeros((2, self.dim))
        return CallableSource(_Terms(self.terms, theta), 2, self.n_rows), theta


class _Terms:
    """Rewards of the two arms of a `FunctionModel`."""

    def __init__(self, terms: Terms, theta: NDArray[np.float64]) -> None:
        self.terms = terms
        self.theta = theta

    def __call__(self, arms: NDArray[np.intp], rows: NDArray[np.int64]) -> NDArray[np.float64]:
        out = np.empty((len(rows), len(arms)))
        for j, arm in enumerate(arms):
            out[:, j] = _shaped(self.terms(self.theta[arm].copy(), rows), (len(rows),), "terms")
        return out


def _shaped(values: ArrayLike, shape: tuple[int, ...], name: str) -> NDArray[np.float64]:
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
    prior_mean, prior_sd, log_prior
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
        make: Callable[[], tuple[Source, NDArray[np.float64]]],
        *,
        derivatives: Derivatives | None = None,
        third_derivatives: ArrayLike | None = None,
        start: ArrayLike | None = None,
        prior_mean: ArrayLike = 0.0,
        prior_sd: ArrayLike = math.inf,
        log_prior: LogPrior | None = None,
    ) -> None:
        self.make = make
        source, theta = self._plain()
        super().__init__(theta.shape[1], source.n_rows, prior_mean, prior_sd, log_prior)
        self._set_derivatives(derivatives, third_derivatives, start)

    def __repr__(self) -> str:
        return f"SourceModel({self.make!r}, {counted(self.dim, 'parameter')}, {counted(self.n_rows, 'row')})"

    def _plain(self) -> tuple[Source, NDArray[np.float64]]:
        source, theta = self.make()
        if not isinstance(source, Source) or source.n_arms != 2:
            raise ValueError(f"make() returned {source!r} first; a Source of two arms, state and proposal, is needed")
        good = isinstance(theta, np.ndarray) and theta.ndim == 2 and theta.shape[0] == 2
        if not good or theta.dtype != np.float64 or not (theta.flags.c_contiguous and theta.flags.writeable):
            raise ValueError(
                "make() must return, second, the writeable float64 array of shape (2, dim) in C order that its source "
                "reads its parameters from"
            )
        return source, theta
