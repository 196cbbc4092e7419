"""What kernels ask of a model, and the normal density that follows its posterior."""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from fastrace._base import _checks, _frames
from fastrace._base._blas import one_blas_thread
from fastrace._base._words import counted
from fastrace._models._expanded import Expanded, TermSource
from fastrace._models._priors import JointPrior
from fastrace._models._slopes import AskedSlopes, Slopes
from fastrace._models.rows import CHUNK
from fastrace.control_variates import residual_rounding
from fastrace.mcmc._variables import Variable
from fastrace.mcmc.models._joint import (
    DensityOf,
    Layout,
    constrained,
    joint_prior,
    refuse_means_alone,
    smooth_part,
    unconstrained,
    without_densities,
)
from fastrace.mcmc.models._modes import (
    ImproperError,
    NoModeError,
    Parts,
    QuadraticPart,
    called,
    find_mode,
    normal_density,
    require_precision,
)
from fastrace.mcmc.models.priors import Scale
from fastrace.sources import Source

__all__ = ["LogPrior", "Model", "Reference"]

Array = NDArray[np.float64]
LogPrior = Callable[[Array], float]

_AT_ONCE = 64  # points whose terms are evaluated in one pass


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
    shells : tuple of (float, ndarray of shape (n_rows,)), default ()
        Radii of smaller balls about `theta_hat` and weights that hold in them, where these are much smaller; the
        smallest first. An exact decision takes those of the smallest ball that holds both points.
    with_prior : bool, default False
        Whether the normal density holds a normal approximation at `theta_hat` of a prior that is not normal itself.
    rounding : float, default 0.0
        How far rounding may move the change of a row's residual: about 1e-13 times the largest absolute term at
        `theta_hat`. Chains allow for it where they check rows against `weights`, and for 1e-10 at least.
    """

    theta_hat: Array
    center: Array
    factor: Array
    weights: Array | None
    radius: float
    rounding: float = field(default=0.0, kw_only=True)
    shells: tuple[tuple[float, Array], ...] = field(default=(), kw_only=True)
    with_prior: bool = field(default=False, kw_only=True)

    def __repr__(self) -> str:
        rows = "no weights" if self.weights is None else f"weights of {counted(len(self.weights), 'row')}"
        return f"{type(self).__name__}({counted(len(self.center), 'parameter')}, {rows}, radius={self.radius:.4g})"

    @property
    def from_hat(self) -> Array:
        """The whitened center as seen from `theta_hat`."""
        return np.asarray(np.linalg.solve(self.factor, self.center - self.theta_hat), dtype=np.float64)


def _left(prior: JointPrior, theta: Array) -> float:
    """What normal approximations leave of the log density of a prior."""
    return float(prior.beside_of(theta))


def left_of_prior(prior: JointPrior) -> LogPrior:
    """`_left` of a prior, as a function that can be pickled."""
    return partial(_left, prior)


class Model:
    """What kernels ask of a model. Subclass it, or use `GLM`, `FunctionModel` or `SourceModel`.

    Attributes
    ----------
    dim, n_rows : int
        Numbers of parameters and of rows.
    n_seen : int
        How many parameters the rows see. They stand first; those that only the prior sees follow.
    names : tuple of str, or None
        What each parameter is called, in errors and in the traces of chains.
    """

    names: tuple[str, ...] | None = None  # of models saved before they had names
    _computed: tuple[str, ...] = ("names", "_row_order")  # attributes that do not change the draws
    _row_order: NDArray[np.int64] | None = None  # of rows that were put in random order: where each was before
    joint_prior: JointPrior | None = None  # where the prior is more than independent normal densities
    prior_part: QuadraticPart | None = None  # of the log prior, beside all else that it has
    _shown_last: tuple[int, ...] = ()  # parameters that tables print after all others: effects of groups
    _effort = 1.0  # share of the usual moves in pilots on a surrogate, less where each gradient is a call of Python
    _most_gradients = math.inf  # of such a pilot
    own_surrogate: Callable[..., Any] | None = None  # of a model whose rows see a map of its parameters
    _positive = False  # whether the likelihood is above 0 everywhere
    _most_expansions = 300  # of a search for other modes
    _concave = False  # whether the log-likelihood is, so that it has one mode at most

    def __init__(
        self,
        dim: int,
        n_rows: int,
        prior_mean: ArrayLike = 0.0,
        prior_sd: ArrayLike = math.inf,
        log_prior: LogPrior | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        self.dim = _checks.integer(dim, "dim", 1, "a chain needs something to move")
        self.n_rows = _checks.integer(n_rows, "n_rows", 1, "a likelihood needs rows")
        for name, given in (("prior_mean", prior_mean), ("prior_sd", prior_sd)):
            if np.asarray(_checks.as_array(given, name)).dtype.kind == "b":
                raise TypeError(f"{name} is {_checks.shown(given)}; numbers are needed, and a truth value would be "
                                f"read as 1 or 0. prior='weak' asks for weakly informative priors")
        if names is not None:
            prior_mean = _frames.in_order(prior_mean, names, "prior_mean", "parameters")
            prior_sd = _frames.in_order(prior_sd, names, "prior_sd", "parameters")
        self.prior_mean = _checks.arm_values(prior_mean, "prior_mean", self.dim, "parameter")
        sd = _checks.arm_values(prior_sd, "prior_sd", self.dim, "parameter")
        if not (sd > 0.0).all() or not np.isfinite(self.prior_mean).all():
            raise ValueError(
                f"prior_mean is {_checks.shown(prior_mean)} and prior_sd {_checks.shown(prior_sd)}; finite means and "
                f"positive standard "
                f"deviations are needed, infinite ones for a flat prior"
            )
        with np.errstate(over="ignore", divide="ignore"):
            self.prior_precision = 1.0 / sd**2
        if log_prior is not None:
            if not callable(log_prior):
                objects = "prior" in inspect.signature(type(self)).parameters
                raise TypeError(f"log_prior is {_checks.shown(log_prior)}; a function of the parameters is needed"
                                + (": objects, such as a LogDensity, are given as prior=" if objects else ""))
            _checks.takes(log_prior, "log_prior", "theta")
        self.log_prior = log_prior
        self.names = _checks.arm_names(names, self.dim, "parameter")

    @property
    def natural_names(self) -> tuple[str, ...] | None:
        """Names of what `constrain` returns."""
        return self.names

    def _variables_of(self, names: Sequence[str]) -> tuple[Variable, ...]:
        """The variables that draws with these names, or none, hold; empty if they are one vector."""
        return ()

    @property
    def n_seen(self) -> int:
        """How many parameters the rows see, which stand first."""
        return self.dim - self.n_hyper

    @property
    def n_hyper(self) -> int:
        """How many parameters only the prior sees."""
        return 0 if self.joint_prior is None else int(self.joint_prior.n_hyper)

    def constrain(self, theta: ArrayLike) -> Array:
        """From the coordinates in which chains move to natural ones.

        Parameters
        ----------
        theta : array_like of shape (..., dim)
            Parameters, with logarithms in place of scales and unbounded numbers in place of correlations.

        Returns
        -------
        ndarray of shape (..., dim)
            Scales and correlations themselves; all else as it was.
        """
        point = _frames.floats_in_order(theta, self.names, "theta")
        return point if self.joint_prior is None else constrained(self.joint_prior, point)

    def unconstrain(self, values: ArrayLike) -> Array:
        """From natural coordinates to those in which chains move, the inverse of `constrain`.

        Parameters
        ----------
        values : array_like of shape (..., dim)
            Parameters on their natural scales.

        Returns
        -------
        ndarray of shape (..., dim)
            The same with logarithms of scales, as chains move them.

        Raises
        ------
        ValueError
            If a scale is not positive, or correlations are impossible.
        """
        point = _frames.floats_in_order(values, self.natural_names, "values")
        return point if self.joint_prior is None else unconstrained(self.joint_prior, point, self.natural_names)

    def _settling(self) -> contextlib.AbstractContextManager[None]:
        """What is entered while trajectories on a surrogate are settled, such as what shows their gradients."""
        return contextlib.nullcontext()

    def _surrogate_form(self) -> Model:
        """The model in coordinates in which what the rows see stands first, as chains on surrogates need it."""
        return self

    def _row_form(self) -> Model:
        """The model in the coordinates in which chains of kernels over rows move fastest; draws are the same."""
        return self

    @property
    def has_derivatives(self) -> bool:
        """Whether `reference` works."""
        return False

    def engine(self, reference: Reference | None) -> tuple[Source, Array]:
        """A new source of two arms, and the float64 array of shape (2, dim) it reads its parameters from.

        With a reference the source gives what the second-order expansion at ``reference.theta_hat`` leaves.
        """
        raise NotImplementedError

    def _slopes(self) -> Slopes:
        """The log-likelihood of all rows at a point, with its gradient: what chains may share."""
        return AskedSlopes(self._value_and_slope, self.n_seen, self.n_rows)

    def _value_and_slope(self, at: Array) -> tuple[float, Array]:
        """Log-likelihood and its gradient at a point of shape (n_seen,)."""
        value, slope, _ = self._expand(at)
        return value, slope

    def _arms(self, count: int) -> tuple[Source, Array]:
        """A source of the terms at up to `count` points at once, and the array that it reads them from."""
        return self.engine(None)

    def _pairs(self, count: int, middle: Array) -> tuple[Source, Array]:
        """The same for pairs of points, which stand side by side, that are mirror images about `middle`."""
        return self._arms(count)

    def _lean(self, reference: Reference) -> Array:
        """Mean of the posterior as seen from the center of a reference, whitened, to third order; zeros if unknown."""
        return np.zeros(self.dim)

    def log_posteriors(self, theta: ArrayLike) -> Array:
        """Log-posterior density at several points, up to a constant.

        Parameters
        ----------
        theta : array_like of shape (k, dim)
            Where.

        Returns
        -------
        ndarray of shape (k,)
            -inf where the parameters are impossible.

        Raises
        ------
        ValueError
            If a point does not have `dim` finite parameters, or a density is nan or infinite.

        Notes
        -----
        Generalised linear models take one pass over the rows for every 64 points, by a product of matrices.
        """
        points = _frames.floats_in_order(theta, self.names, "theta")
        if points.ndim != 2 or points.shape[1] != self.dim or not np.isfinite(points).all():
            raise ValueError(f"theta has shape {points.shape}; (k, {self.dim}) finite parameters are needed")
        out = self._plus_log_prior(points, self._log_likelihoods(points[:, : self.n_seen]))
        if np.isnan(out).any() or (out == math.inf).any():
            bad = int(np.argmax(np.isnan(out) | (out == math.inf)))
            raise ValueError(f"the log-posterior is {out[bad]} at {points[bad]}; a finite number is needed, or -inf "
                             f"where the parameters are impossible")
        return out

    def _plus_log_prior(self, points: Array, out: Array) -> Array:
        """With the log prior at points of shape (k, dim), added in place."""
        if self.joint_prior is not None and self.log_prior is None:
            out += [self.joint_prior.value_of(point) for point in points]
        else:
            out -= 0.5 * np.square(points - self.prior_mean) @ self.prior_precision
        for own in (self.log_prior, self.prior_part):
            if own is not None:
                out += [_checks.log_density_at(own, point.copy()) for point in points]
        return out

    def _log_likelihoods(self, points: Array) -> Array:
        """Log-likelihood at points of shape (k, n_seen), up to a constant."""
        source, arms = self._arms(min(_AT_ONCE, max(1, len(points))))
        out = np.empty(len(points))
        for first in range(0, len(points), len(arms)):
            some = points[first : first + len(arms)]
            arms[: len(some)] = some
            out[first : first + len(some)] = source.totals(np.arange(len(some)))
        return out

    def possible(self, theta: ArrayLike) -> bool:
        """Whether a chain can stand at a point of shape (dim,): the posterior is not 0 there, and can be evaluated."""
        _checks.unmasked(theta, "theta")
        theta = _frames.in_order(theta, self.names or (), "theta", "parameters")
        try:
            at = np.atleast_2d(theta)
            found = self._plus_log_prior(at, np.zeros(len(at))) if self._positive else self.log_posteriors(at)
            return bool(np.isfinite(found[0]))
        except (ValueError, ArithmeticError):
            return False

    @one_blas_thread()
    def reference(self, theta_hat: ArrayLike | None = None) -> Reference:
        """Expand the log-likelihood at a point, by default the posterior mode."""
        if not self.has_derivatives:
            raise ValueError(f"{type(self).__name__} has no derivatives to expand; use control_variate=None")
        if self.n_hyper:
            raise ValueError(f"the prior has {counted(self.n_hyper, 'hyperparameter')}, such as "
                             f"{(self.names or ['a scale'])[-1]!r}, and this kernel's moves are normal in all "
                             f"parameters: use SurrogateMetropolis(model), or give priors without any")
        if theta_hat is None:
            try:
                hat = find_mode(self._log_posterior, self._start(), check=self._require_proper)
            except NoModeError:
                self._require_precision()
                self._explain_no_mode()
                raise
        else:
            hat = _frames.floats_in_order(theta_hat, self.names, "theta_hat")
        if hat.shape != (self.dim,) or not np.isfinite(hat).all():
            raise ValueError(f"theta_hat has shape {hat.shape}; {self.dim} finite parameters are needed")
        center, factor = self._normal_at(hat)
        weights, radius, rounding, *shells = self._bounds(hat, factor)
        return Reference(hat, center, factor, weights, radius, rounding=rounding, shells=tuple(shells),
                         with_prior=self.joint_prior is not None)

    def _normal_at(self, hat: Array) -> tuple[Array, Array]:
        """Mean and Cholesky factor of the normal density of a `Reference` that expands at a point."""
        _, slope, curvature = self._with_part(hat, *self._expand(hat))
        mean, precision = self._normal_prior(hat)
        slope, curvature = slope - precision * (hat - mean), curvature - np.diag(precision)
        return normal_density(hat, slope, curvature, self._moved, self._more_prior, self.names)

    def log_prior_beside(self, reference: Reference | None) -> LogPrior | None:
        """What the normal density of a reference leaves of the log prior: `log_prior` unless it is expanded too.

        Without a reference, all that is not made of independent normal densities.
        """
        own, part = self.log_prior, self.prior_part
        if reference is None and part is not None:
            return part if own is None else lambda theta: own(theta) + part(theta)
        if self.joint_prior is None or reference is None or not reference.with_prior:
            return own
        return left_of_prior(self._prior_expanded(reference.theta_hat))

    def _normal_prior(self, at: Array) -> tuple[Array, Array]:
        """Mean and precision of the normal part of the prior, or of its normal approximation about a point."""
        if self.joint_prior is None:
            return self.prior_mean, self.prior_precision
        mean, precision = self._prior_expanded(at).conditional_of(())
        return mean, precision

    def _prior_expanded(self, at: Array) -> JointPrior:
        """The joint prior, with its normal approximations at a point."""
        assert self.joint_prior is not None
        joint = self.joint_prior.copy()
        joint.expand_at(at)
        return joint

    @property
    def _more_prior(self) -> bool:
        """Whether a part of the prior is never expanded."""
        return self.log_prior is not None and (
            self.joint_prior is None or smooth_part(self.joint_prior).given != self.joint_prior.given)

    def slopes(self, reference: Reference) -> Array:
        """Bound on the change of each row's term per whitened unit of length, shape (n_rows,), for TunaMH."""
        raise ValueError(f"no bound on the slope of the terms of {type(self).__name__} is known")

    def _look(self, priors_of: Callable[[Layout], tuple[JointPrior, Any, QuadraticPart | None]]) -> None:
        """What a model of many rows does before priors are put on a layout; `priors_of` puts them on that of some."""

    def _layout(self) -> Layout:
        """What priors as objects are put on."""
        raise NotImplementedError

    def _take_priors(
        self, prior: Any, group_prior: Any = None, scale_prior: Scale | None = None, weak: bool = False
    ) -> Layout | None:
        """Make the joint prior where priors are given as objects, or by default if `weak` is set and there is no other.

        Returns
        -------
        Layout or None
            What these priors are put on; None if none were made.

        Raises
        ------
        ValueError, TypeError
            If priors are given in two ways, name what is not there, or are not priors.
        """
        flat = not (self.prior_precision > 0.0).any() and self.log_prior is None
        asked = not (prior is None and group_prior is None and scale_prior is None)
        if asked and not (flat and (self.prior_mean == 0.0).all()):
            raise ValueError("priors came as objects, and prior_mean, prior_sd or log_prior too: say all in one way; "
                             "a log density of your own is a LogDensity")
        if not asked and not (flat and weak):
            return None
        if not asked:
            refuse_means_alone(self.prior_mean, self.names)
        prior, own = without_densities(prior)
        self._look(lambda layout: joint_prior(layout, prior, group_prior, scale_prior))
        layout = self._layout()
        names = list(self.names or layout.columns)
        joint, hyper, self.prior_part = joint_prior(layout, prior, group_prior, scale_prior, own, names)
        n_seen = joint.n_seen
        kinds = [c[0] for c in joint.given[0]]
        if joint.normal and not joint.n_hyper and joint.given[3] is None:
            # independent normal densities, as before there were others
            normal = np.array([kind == "normal" for kind in kinds])
            self.prior_mean = np.where(normal, [c[1] for c in joint.given[0]], 0.0)
            self.prior_precision = np.where(normal, [c[2] ** -2.0 for c in joint.given[0]], 0.0)
            return layout
        self.joint_prior = joint
        if not joint.n_hyper:
            self.log_prior = DensityOf(joint)
        self.dim = n_seen + joint.n_hyper
        self.names = _checks.arm_names([*names, *hyper], self.dim, "parameter")
        return layout

    # What a subclass with derivatives tells `reference`.

    def _expand(self, at: Array) -> Parts:
        """Sums of the terms, their gradients and Hessians."""
        raise NotImplementedError

    def _expand_some(self, at: Array, rows: NDArray[np.int64]) -> Parts | None:
        """The same of some rows; None if that takes a pass over all."""
        return None

    def _start(self) -> Array:
        """Where to look for the mode from."""
        return np.zeros(self.n_seen)

    def _margins(self, at: Array) -> tuple[float, float] | None:
        """Extremes over rows of how far `at` moves predictors in the direction that raises the likelihood.

        None if outcomes cannot be separated.
        """
        return None

    def _require_proper(self, hat: Array, step: Array) -> None:
        """Raise if the outcomes are separated in a direction in which the prior is flat.

        Where a likelihood rises for ever, Newton's steps keep moving some predictors by about 1, all of them the right
        way, however small the gradient has become. At a mode a step is almost 0.
        """
        _, precision = self._normal_prior(hat)
        own = None if (precision > 0.0).all() else self._margins(hat)
        if own is None:
            return
        if not (precision > 0.0).any() and own[0] > 0.0:
            step = hat  # it separates all rows itself
        least, most = self._margins(step) or own
        if not (most > 0.1 and least >= -1e-3 * most):
            return
        along = called(np.where(precision > 0.0, 0.0, np.abs(step)), self.names)
        rises = f"the outcomes are separated: the likelihood rises for ever as theta moves along parameters {along}"
        if self.joint_prior is not None:
            raise NoModeError(f"{rises}, and the prior there has a kink or a long tail, so that no normal density "
                              f"follows the posterior. Give them a normal prior, such as Normal(0, 2.5) for columns "
                              f"of standard deviation 1, or take mcmc.Metropolis(model, control_variate=None), which "
                              f"reads all rows")
        rises += ", on which the normal prior is flat"
        if self._more_prior:
            raise NoModeError(f"{rises}, and log_prior is not expanded. Give a finite prior_sd too, or "
                              f"control_variate=None")
        raise ImproperError(f"the posterior is improper: {rises}. Give a finite prior_sd, such as 2.5 for columns of "
                         f"standard deviation 1, or leave out what separates the outcomes")

    def _require_precision(self) -> None:
        """Raise if columns are too nearly collinear for double precision, which is why no mode was found."""
        start = self._start()
        with np.errstate(all="ignore"):
            curvature = -self._log_posterior(start)[2]
        if not self._more_prior:
            require_precision(curvature, self._moved, self.names, "give a finite prior_sd, or control_variate=None")

    def _explain_no_mode(self) -> None:
        """Raise what says more of why there is no mode, if anything does."""

    @property
    def _against_peaks(self) -> str:
        """Why the likelihood may not be curved downwards where it is expanded, and what to do, after a sentence."""
        return ". Give psi_hat elsewhere, or narrower priors"

    def _moved(self, direction: Array) -> float:
        """How far a step moves the predictors, over the sum of what its components move them; nan if unknown."""
        return math.nan

    def _bounds(self, hat: Array, factor: Array) -> tuple[Any, ...]:
        """`weights`, `radius` and `rounding` of a `Reference`, then its `shells` one by one."""
        return None, math.inf, 0.0

    def _inverse_cubes(self, reference: Reference, lengths: Array | None = None) -> NDArray[np.float32] | None:
        """What each row's weight is to be multiplied by for a bound on its third derivative in its own predictors.

        `lengths`, how far a step of length 1 moves each row's one predictor, where they are known.
        """
        return None

    def _likely_bounds(self, reference: Reference, middle: Array, delta: float) -> Array | None:
        """Bounds on what the expansion leaves of each row's term; None where there are none.

        At a draw from the normal density about `middle` with the reference's factor, all of them hold with probability
        ``1 - delta`` at least.
        """
        return None

    @contextlib.contextmanager
    def _keeping(self) -> Iterator[None]:
        """What a pass over the rows about a point has found is kept as long as a kernel is made, where it may serve."""
        yield

    def _rounding(self, hat: Array) -> float:
        """`rounding` of a `Reference`, in one pass."""
        source, theta = self.engine(None)
        theta[0] = hat
        parts = np.array_split(np.arange(self.n_rows), range(CHUNK, self.n_rows, CHUNK))
        return residual_rounding(max(float(np.abs(source.read(rows, [0])).max()) for rows in parts))

    def _log_posterior(self, at: Array) -> Parts:
        return self._with_prior(at, *self._expand(at))

    def _some_log_posterior(self, at: Array, rows: NDArray[np.int64]) -> Parts | None:
        """The same estimated from some rows; None if that takes a pass over all."""
        parts = self._expand_some(at, rows)
        if parts is None:
            return None
        times = self.n_rows / len(rows)
        return self._with_prior(at, times * parts[0], times * parts[1], times * parts[2])

    def _with_prior(
        self, at: Array, value: float, gradient: Array, hessian: Array
    ) -> tuple[float, Array, Array]:
        value, gradient, hessian = self._with_part(at, value, gradient, hessian)
        mean, precision = self._normal_prior(at)
        if self.joint_prior is not None:
            level, slope = smooth_part(self.joint_prior).value_and_gradient(at)
            return value + level, gradient + slope, hessian - np.diag(precision)
        step = at - mean
        pull = precision * step
        return value - 0.5 * float(step @ pull), gradient - pull, hessian - np.diag(precision)

    def _with_part(self, at: Array, value: float, gradient: Array, hessian: Array) -> Parts:
        """With `prior_part`."""
        if self.prior_part is None:
            return value, gradient, hessian
        more = self.prior_part.expansion(at)
        return value + more[0], gradient + more[1], hessian + more[2]


class _CompiledModel(Model):
    """A model whose terms are a compiled source, which knows their derivatives; `_arms` of a subclass makes it."""

    @property
    def has_derivatives(self) -> bool:
        return True

    def engine(self, reference: Reference | None) -> tuple[Source, Array]:
        own, theta = self._arms(2)
        return own if reference is None else Expanded(own, reference.theta_hat), theta

    def _arms(self, count: int) -> tuple[TermSource, Array]:
        raise NotImplementedError


def normal_reach(delta: float, count: int) -> float:
    """Size that all of `count` standard normal variates stay within, with probability ``1 - delta`` at least."""
    return -float(ndtri(0.5 * delta / count))


def quotients(above: ArrayLike, below: ArrayLike) -> NDArray[np.float32]:
    """Of numbers from 0 up, in single precision: 0 where `below` is 0, and nowhere else for rounding."""
    found = np.divide(above, below, out=np.zeros(np.shape(below)), where=np.asarray(below) > 0.0)
    limits = np.finfo(np.float32)
    return np.where(found > 0.0, np.clip(found, limits.tiny, limits.max), 0.0).astype(np.float32)
