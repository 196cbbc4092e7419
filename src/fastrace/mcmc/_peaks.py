"""Where prior times expansion is highest, if the prior has a part that Newton's method leaves out; reads no row."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from fastrace._models._arrow import ArrowFactor, Quadratic
from fastrace._models._priors import JointPrior
from fastrace.mcmc._scales import Scales, first_point
from fastrace.mcmc.models._joint import smooth_part

__all__ = ["has_more", "log_prior_about", "peak_of"]

Array = NDArray[np.float64]
LogPrior = Callable[[Array], tuple[float, Array | None]]  # value, and gradient where one is known

_STEPS = 200  # of a quasi-Newton method, at most
_BESIDE = 1e-3  # of differences, in posterior standard deviations
_IMPOSSIBLE = 1e6  # how far below its start the log density is called where it is minus infinity


def has_more(prior: JointPrior) -> bool:
    """Whether a part of the prior, a density of a user's own or a Laplace one, has no share in Newton's steps."""
    return bool(smooth_part(prior).given != prior.given)


def log_prior_about(prior: JointPrior, scales: Scales, factor: ArrowFactor, at: Array) -> LogPrior:
    """Log prior of what the rows see, up to a constant.

    Learned scales are those of `scales`, and in densities of a user's own those of the effects at a point `at`.
    """
    own, n = prior.given[4], prior.n_seen
    whole, more = prior, np.zeros(0)
    if prior.n_hyper:
        whole = JointPrior([("flat", 0.0, 1.0, 0.0, -1)] * prior.dim, own=own)
        more = first_point(prior, at, 1.0 / np.sqrt(np.maximum(factor.base.diagonal(), 1e-300)))[0][n:]
    theta = np.concatenate([at, more])
    known = all(function(theta if places is None else theta[places])[1] is not None for function, places in own)

    def log_prior(psi: Array) -> tuple[float, Array | None]:
        theta = np.concatenate([psi, more])
        value, slope = whole.value_and_gradient(theta) if known else (whole.value_of(theta), None)
        if prior.n_hyper:
            level, pull = scales.pulled(factor, psi)
            value, slope = value + level, None if slope is None else slope[:n] + pull
        return float(value), slope

    return log_prior


def peak_of(quadratic: Quadratic, log_prior: LogPrior, factor: ArrowFactor, start: Array) -> Array:
    """The highest point that a quasi-Newton method finds, in coordinates that `factor` whitens.

    Without a gradient it goes by differences. A kink may stop it early, at a point that is higher than the start all
    the same. From a start that is impossible there is no way.
    """
    level, (value, slope) = quadratic.evaluate(start)[0], log_prior(start)
    if not math.isfinite(level + value):
        return start
    worst = _IMPOSSIBLE - level - value
    highest: list[Any] = [level + value, start]
    known = slope is not None

    def loss(z: Array) -> Any:
        psi = start + np.asarray(factor.draw(z))
        value, slope = log_prior(psi)
        level, rise = quadratic.evaluate(psi)
        total = level + value
        if total > highest[0]:
            highest[:] = total, psi
        if not math.isfinite(total):
            return (worst, np.zeros(len(z))) if known else worst
        return (-total, -np.asarray(factor.whiten(factor.solve(rise + slope)))) if known else -total

    options: dict[str, Any] = {"maxiter": _STEPS, "maxfun": 10 * _STEPS * (1 if known else len(start))}
    minimize(loss, np.zeros(len(start)), jac=known, method="L-BFGS-B",
             options=options if known else options | {"eps": _BESIDE})
    return np.asarray(highest[1], dtype=np.float64)
