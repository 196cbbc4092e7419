"""Modes of log-posteriors, the normal densities there, and what to say where there is none."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastrace._models.grouping import Factor
from fastrace._models.rows import products

__all__ = ["CORRELATED", "ImproperError", "NoModeError", "PrecisionError", "QuadraticPart", "ascent", "called",
           "find_mode", "movement", "normal_density", "require_precision"]

Array = NDArray[np.float64]
Parts = tuple[float, Array, Array]  # value, gradient, Hessian

_NEWTON_STEPS = 100
_FAR = 0.01  # squared gradient per posterior standard deviation at which no mode has been found
_ROUNDING = 1e-11  # relative error of a log-posterior
_COLLINEAR = 1e-11  # relative movement of the predictors that is rounding
_SINGULAR = 1e-14  # eigenvalue, the diagonal being 1, that is rounding
_NEARLY = 1e-13  # the same, where rounding has a share in it that shows


@dataclass(frozen=True, eq=False)
class QuadraticPart:
    """A part of a log prior: ``shift @ b - b @ precision @ b / 2`` of the first parameters b; it may be convex."""

    precision: Array
    shift: Array
    centred: tuple[tuple[int, float, float], ...] = ()  # intercepts of centred columns: place, mean and deviation
    _computed: ClassVar[tuple[str, ...]] = ("centred",)

    def expansion(self, at: Array) -> Parts:
        """Value, gradient and Hessian at a point that has further parameters too."""
        p, dim = len(self.shift), len(at)
        gradient, hessian = np.zeros(dim), np.zeros((dim, dim))
        pull = self.precision @ at[:p]
        gradient[:p], hessian[:p, :p] = self.shift - pull, -self.precision
        return float(at[:p] @ (self.shift - 0.5 * pull)), gradient, hessian

    def __call__(self, at: Array) -> float:
        return self.expansion(at)[0]


CORRELATED = (
    "{}, and the model puts the intercept's prior where columns have their means, so that it depends on their "
    "coefficients: give the intercept a prior of its own, prior={{'Intercept': mcmc.Normal(0.0, 2.5)}} of "
    "GLM.from_formula and {{'intercept': ...}} of GLM, or centre the columns"
)


class ImproperError(ValueError):
    """A posterior is improper, or the likelihood has no bound: no kernel's draws would mean anything."""


class NoModeError(ValueError):
    """A log-posterior has no mode that a normal density could follow, or none was found."""


class PrecisionError(NoModeError):
    """Columns are so nearly collinear, under a flat prior, that double precision does not suffice."""


def find_mode(
    expand: Callable[[Array], Parts],
    start: Array,
    tolerance: float = 1e-9,
    check: Callable[[Array, Array], None] | None = None,
) -> Array:
    """Mode of a log-posterior by damped Newton steps; `expand` gives its value, gradient and Hessian.

    `check` is given the last point and the Newton step there, and may raise before `NoModeError` does. The squared
    gradient, in units of the posterior's standard deviations, falls below `tolerance`, or, where rounding of the
    log-posterior stops the search earlier, below `_FAR`.
    """
    mode = start
    with np.errstate(all="ignore"):  # a step too far may overflow; it is then halved
        value, gradient, hessian = expand(mode)
        step = ascent(hessian, gradient)
        for _ in range(_NEWTON_STEPS):
            promised = float(gradient @ step)
            if promised < tolerance:
                break
            size = 1.0
            while size > 1e-8:
                new = mode + size * step
                parts = expand(new)
                gain = parts[0] - value
                if np.isfinite(parts[0]) and np.isfinite(parts[1]).all() and np.isfinite(parts[2]).all():
                    next_step = ascent(parts[2], parts[1])
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
    with np.errstate(over="ignore", invalid="ignore"):
        squared = float(gradient @ step)
    if not squared < max(_FAR, 1000.0 * tolerance):
        raise NoModeError(
            f"Newton's method found no mode of the posterior: where it stopped, the gradient is "
            f"{math.sqrt(squared) if squared >= 0.0 else math.nan:.3g} per posterior standard deviation, and 0 is "
            f"needed. Start nearer the mode, centre and scale columns, give a proper prior, or give the "
            f"point to expand at as control_variate; control_variate=None needs no mode"
        )
    return mode


def normal_density(
    at: Array, slope: Array, curvature: Array, moved: Callable[[Array], float], more_prior: bool,
    names: Sequence[str] | None = None,
) -> tuple[Array, Array]:
    """Center and Cholesky factor of the covariance of the expansion of a log-posterior at a point.

    `moved` says how far a step moves the predictors, over the sum of what its components move them; nan if unknown.
    `more_prior` says that a part of the prior is not in the expansion.
    """
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
        silent = _silent(vectors[:, 0], names)
        share = moved(vectors[:, 0] / scale)
        if share > _COLLINEAR:
            raise (NoModeError if more_prior else PrecisionError)(_nearly_collinear(silent))
        silent += ", as with collinear columns or a column of zeros"
        if more_prior:
            raise NoModeError(f"{silent}, and log_prior is not expanded; leave a column out, give a finite "
                              f"prior_sd too, or control_variate=None")
        improper = "improper" if share <= _COLLINEAR else "improper, or too nearly so for double precision"
        raise ImproperError(f"the posterior is {improper}: {silent}; leave a column out, or give a finite prior_sd")
    covariance = (vectors / values) @ vectors.T / np.outer(scale, scale)
    whole = np.linalg.cholesky((covariance + covariance.T) / 2.0 * np.outer(scale, scale))
    return at + covariance @ slope, np.asarray(whole / scale[:, None], dtype=np.float64)


def require_precision(
    curvature: Array, moved: Callable[[Array], float], names: Sequence[str] | None, remedy: str = ""
) -> None:
    """Raise if columns are so nearly collinear that sums over rows in double precision cannot tell them apart.

    `curvature` is minus the Hessian of a log-posterior in their coefficients, the first of `names`; `moved` is as of
    `normal_density`. `remedy` is what to do besides.
    """
    if not (len(curvature) and np.isfinite(curvature).all()):
        return
    scale, values, vectors = _scaled(curvature)
    if abs(values[0]) <= _NEARLY * len(curvature) and moved(vectors[:, 0] / scale) > _COLLINEAR:
        raise PrecisionError(_nearly_collinear(_silent(vectors[:, 0], names), remedy))


def _silent(direction: Array, names: Sequence[str] | None) -> str:
    named = called(np.abs(direction), names)
    return f"the data and the normal prior say nothing about one direction of parameters {named}"


def _nearly_collinear(silent: str, remedy: str = "give a finite prior_sd, or control_variate=None") -> str:
    return (f"in double precision {silent}: their columns are nearly collinear, as numbers far from 0, such as time "
            f"stamps, are beside an intercept. Centre and scale the columns, {remedy}")


def called(sizes: Array, names: Sequence[str] | None) -> str:
    """The parameters of the largest sizes, by name if they have names."""
    large = np.flatnonzero(sizes > 0.1 * sizes.max())
    return ", ".join(str(j) if names is None else repr(names[j]) for j in large.tolist())


def _scaled(matrix: Array) -> tuple[Array, Array, Array]:
    """Scales that bring the diagonal of a symmetric matrix to 1 or -1; eigenvalues and -vectors of what they leave."""
    scale = np.sqrt(np.abs(np.diag(matrix)))
    scale[scale == 0.0] = 1.0
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2.0 / np.outer(scale, scale))
    return scale, values, vectors


def movement(table: Any, steps: Array, factors: Sequence[Factor] = ()) -> float:
    """Largest predictor of steps of shape (p, k), over the largest sum of absolute parts of one."""
    whole = parts = 0.0
    for _, moved in products(table, factors, steps):
        whole = max(whole, float(np.abs(moved).max()))
    for _, moved in products(table, factors, np.abs(steps), abs):
        parts = max(parts, float(moved.max()))
    return whole / parts if parts > 0.0 else 0.0


def ascent(hessian: Array, gradient: Array) -> Array:
    """The Newton step, upwards also where the Hessian is curved up or not at all."""
    if not (np.isfinite(hessian).all() and np.isfinite(gradient).all()):
        return np.full(len(gradient), np.nan)
    scale, values, vectors = _scaled(-hessian)
    values = np.maximum(np.abs(values), _SINGULAR)
    return np.asarray(vectors @ ((vectors.T @ (gradient / scale)) / values) / scale)
