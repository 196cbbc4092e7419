"""Where the likelihood is highest under normal priors whose scales are estimated on the way, by empirical Bayes."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from fastrace._models._arrow import Arrow, ArrowFactor
from fastrace._models._priors import JointPrior
from fastrace.mcmc.models._modes import ImproperError, NoModeError, QuadraticPart

__all__ = ["CLOSE", "NEAR", "WEAK", "Parts", "Scales", "bent", "empirical_bayes", "expansion_or_none", "factored",
           "first_point", "negative", "parts_of", "with_part"]

Array = NDArray[np.float64]
Parts = tuple[float, Array, Arrow]  # value, gradient and minus the Hessian

_STEPS = 60  # Newton steps with the scales of the effects estimated on the way,
_HELD, _FIXED = 30, 45  # from the one on by their priors too, and from the other on as they are then
CLOSE = 1e-4  # squared length of the last step, in posterior standard deviations, over the number of parameters
NEAR = 1e-2  # the same where a pass over many rows is not worth while for the rest of the way
_SETTLED = 0.02  # relative change of those scales
_DAMPING = (0.0, 1.0, 10.0, 100.0)  # times its own size that a curvature gets where it is not positive definite
_APART = 3.0  # standard deviations of the likelihood that a coefficient is from the prior mean, to be moved as it is
WEAK = 1e-8  # precision, as a share of the curvature, of what has no proper prior


def _first_variance(sd: tuple[str, float, float]) -> float:
    """Of effects, before anything is known but the prior of their standard deviation, which knows their units.

    The estimate rises slowly from far below what the data say.
    """
    return (0.4 * sd[1]) ** 2 if sd[0] in ("half-normal", "half-student") else 1.0


def _held(sd: tuple[str, float, float], n: int, variance: float) -> float:
    """The likeliest variance of n effects whose mean square is `variance`, under the prior of its root's logarithm."""
    density = JointPrior((), aux=sd)

    def slope(s: float) -> float:
        by_prior = density.value_and_gradient(np.array([s]))[1]
        return n * variance * math.exp(-2.0 * s) - n + float(by_prior[0])

    low = high = 0.5 * math.log(variance)
    while slope(low) < 0.0:
        low -= 1.0
    while slope(high) > 0.0:
        high += 1.0
    return math.exp(2.0 * float(brentq(slope, low, high)))


class Scales:
    """Normal priors whose scales are estimated: one covariance per factor, one variance per pool of coefficients."""

    hold = False  # by their own priors: with groups of one outcome the likelihood alone may lead them nowhere

    def __init__(self, prior: JointPrior) -> None:
        coefficients, pools, factors, aux, _ = prior.given
        self.aux = None if aux is None else JointPrior((), aux=aux)
        self.of_aux = np.zeros(int(aux is not None))
        self.mean = np.array([c[1] for c in coefficients], dtype=np.float64)
        fixed = [0.0 if c[0] == "flat" or c[4] >= 0 else 1.0 / c[2] ** 2 for c in coefficients]
        self.fixed = np.array(fixed, dtype=np.float64)
        self.pools = [np.array([j for j, c in enumerate(coefficients) if c[4] == k]) for k in range(len(pools))]
        self.variances = [1.0] * len(pools)
        self.factors = [(count, len(sds)) for count, sds, _ in factors]
        self.of_scales = [sds for _, sds, _ in factors]
        self.covariances = [np.diag([_first_variance(sd) for sd in sds]) for _, sds, _ in factors]
        self.n_seen = prior.n_seen

    def precision(self) -> Array:
        coefficients = self.fixed.copy()
        for members, variance in zip(self.pools, self.variances, strict=True):
            coefficients[members] = 1.0 / variance
        parts = [coefficients]
        for (count, _), covariance in zip(self.factors, self.covariances, strict=True):
            parts.append(np.tile(np.linalg.inv(covariance).ravel(), count))
        return np.concatenate([*parts, self.of_aux])

    def bend(self, psi: Array) -> None:
        """Take up the curvature at psi of the log prior of an auxiliary parameter."""
        if self.aux is not None:
            self.aux.expand_at(psi[-1:])
            _, self.of_aux = self.aux.conditional_of(())

    def pulled(self, factor: ArrowFactor, psi: Array) -> tuple[float, Array]:
        """Log density, without its constant, and gradient at psi."""
        step, level = psi.copy(), 0.0
        step[: len(self.mean)] -= self.mean
        if self.aux is not None:
            step[-1] = 0.0
            level, slope = self.aux.value_and_gradient(psi[-1:])
        pull = factor.prior_times(self.precision(), step)
        if self.aux is not None:
            pull[-1] = -slope[0]
        return level - 0.5 * float(step @ pull), -pull

    def estimate(self, psi: Array, factor: ArrowFactor) -> float:
        """Take up the second moments of the posterior about psi; the largest relative change of a scale."""
        dense, blocks = factor.block_covariances()
        arrow, change = factor.base, 0.0
        _, outside = arrow.block_coordinates()
        place = {int(c): k for k, c in enumerate(outside)}
        for k, members in enumerate(self.pools):
            own = [place[int(j)] for j in members]
            new = float(np.mean((psi[members] - self.mean[members]) ** 2 + np.diagonal(dense)[own]))
            change, self.variances[k] = max(change, abs(new / self.variances[k] - 1.0)), new
        first = len(self.mean)
        for k, (count, q) in enumerate(self.factors):
            effects = psi[first : first + count * q].reshape(count, q)
            if arrow.n_blocks and first == arrow.start:
                spread = blocks.sum(axis=0)
            else:
                here = place[first]
                table = dense[here : here + count * q, here : here + count * q].reshape(count, q, count, q)
                spread = np.einsum("gigj->ij", table)
            new = (effects.T @ effects + spread) / max(count, 1)
            if self.hold:
                held = [_held(sd, count, v) / v for sd, v in zip(self.of_scales[k], np.diagonal(new), strict=True)]
                new = new * np.sqrt(np.outer(held, held))
            old = np.diagonal(self.covariances[k])
            change = max(change, float(np.abs(np.diagonal(new) / old - 1.0).max()))
            self.covariances[k] = new
            first += count * q
        return change

    def about(self, psi: Array, curvature: Arrow) -> Array:
        """The precision with scales estimated about a given point."""
        self.bend(psi)
        for _ in range(10):
            factor = factored(curvature, self)
            if self.estimate(psi, factor) < _SETTLED:
                break
        return self.precision()

    @property
    def layout(self) -> list[tuple[int, int]]:
        return [(len(self.mean), 1), *self.factors, *([(1, 1)] if self.aux is not None else [])]


def factored(curvature: Arrow, scales: Scales) -> ArrowFactor:
    """Factor of curvature and prior. Where a term is convex it has no curvature, and a weak prior stands in."""
    factor = ArrowFactor(curvature, scales.layout)
    precision = scales.precision()
    diagonal = np.abs(curvature.diagonal())
    ends = np.cumsum([0] + [count * width for count, width in scales.layout])
    for times in _DAMPING:
        parts, taken = [], 0
        for (count, width), first in zip(scales.layout, ends[:-1], strict=True):
            size = count * width * width
            block = precision[taken : taken + size].reshape(count, width, width).copy()
            more = diagonal[first : first + count * width].reshape(count, width) + WEAK
            block[:, np.arange(width), np.arange(width)] += times * more
            parts.append(block.ravel())
            taken += size
        with contextlib.suppress(np.linalg.LinAlgError):
            factor.factor(np.concatenate(parts))
            return factor
    raise NoModeError("the log-likelihood is not curved downwards where Newton's method went: centre and scale "
                      "columns, give proper priors, or give psi_hat")


def empirical_bayes(
    expand: Callable[[Array], Parts], psi: Array, scales: Scales, close: float = CLOSE
) -> tuple[Array, Parts, Scales]:
    """Mode of the likelihood under normal priors whose scales are estimated on the way, and the expansion there.

    A last step of squared length `close` times the number of parameters, in posterior standard deviations, is not made.
    """
    parts, learned = expand(psi), bool(psi.any())
    for t in range(_STEPS):
        scales.hold = t >= _HELD
        scales.bend(psi)
        change = math.inf if t == 0 else 0.0
        if t < _FIXED and (t > 0 or learned):
            change = scales.estimate(psi, factored(parts[2], scales))
        factor = factored(parts[2], scales)
        level, pull = scales.pulled(factor, psi)
        step = factor.solve(parts[1] + pull)
        promised = float(step @ (parts[1] + pull))
        if promised < close * len(psi) and change < _SETTLED:
            return psi, parts, scales
        size = 1.0
        while True:
            with np.errstate(all="ignore"):
                new = expansion_or_none(expand, psi + size * step)
            if new is not None:
                gain = new[0] + scales.pulled(factor, psi + size * step)[0] - parts[0] - level
                if gain >= 1e-4 * size * promised - 1e-9 * abs(parts[0]):
                    break
            size /= 2.0
            if size < 1e-6:
                raise NoModeError("Newton's method found no point to expand at: centre and scale columns, give proper "
                                  "priors, or give psi_hat")
        psi, parts = psi + size * step, new
    raise NoModeError(f"no point to expand at was found in {_STEPS} Newton steps: the outcomes may be separated, or "
                      f"columns collinear or all 0, under a flat prior; give proper priors, or psi_hat")


def expansion_or_none(expand: Callable[[Array], Parts], psi: Array) -> Parts | None:
    """The expansion, or None where the likelihood overflows."""
    try:
        parts = expand(psi)
    except ImproperError:
        raise
    except ValueError:
        return None
    return parts if math.isfinite(parts[0]) and np.isfinite(parts[1]).all() else None


def first_point(prior: JointPrior, hat: Array, sd: Array) -> tuple[Array, NDArray[np.bool_]]:
    """A point to begin at, and which coordinates are to be standardised.

    Scales are those of their effects, in the units of these.
    """
    coefficients, pools, factors, _, _ = prior.given
    theta, free = np.concatenate([hat, np.zeros(prior.n_hyper)]), np.zeros(prior.n_seen, dtype=bool)
    place = prior.n_seen
    for number, pool in enumerate(pools):
        mine = np.array([j for j, c in enumerate(coefficients) if c[4] == number], dtype=int)
        steps = np.abs(hat[mine] - np.array([coefficients[j][1] for j in mine]))
        if pool[0] == "shared":
            free[mine], theta[place] = _shared(steps, sd[mine])
            place += 1
            continue
        overall = pool[1][1]
        theta[place] = np.log(overall)
        place += 1
        if pool[3] is not None:
            theta[place] = 0.5 * np.log(pool[3][2] / pool[3][1])
            place += 1
        free[mine] = steps < _APART * sd[mine]
        theta[place : place + len(mine)] = np.where(free[mine], 0.0, np.log(np.maximum(steps, 1e-8) / overall))
        place += len(mine)
    first = len(coefficients)
    for n_groups, sds, eta in factors:
        q = len(sds)
        effects = slice(first, first + n_groups * q)
        both = [_shared(np.abs(hat[effects])[k::q], sd[effects][k::q]) for k in range(q)]
        free[effects] = np.repeat(np.mean([mask for mask, _ in both], axis=0) >= 0.5, q)
        theta[place : place + q] = [level for _, level in both]
        place += q + (q * (q - 1) // 2 if eta is not None else 0)
        first += n_groups * q
    return theta, free


def _shared(steps: Array, sd: Array) -> tuple[NDArray[np.bool_], float]:
    """Of parameters with one scale: where the likelihood is wider than that scale, and the scale's logarithm."""
    scale = max(float(np.sqrt(np.mean(np.square(steps)))) if len(steps) else 1.0, 1e-3 * min(float(sd.min()), 1.0))
    return sd > scale, float(np.log(scale))


def parts_of(value: float, slope: Array, hessian: Arrow) -> Parts:
    """An expansion with minus the Hessian."""
    return float(value), np.array(slope, dtype=np.float64), negative(hessian)


def negative(arrow: Arrow) -> Arrow:
    """Minus an arrow."""
    blocks = (-arrow.border, -arrow.blocks, arrow.start) if arrow.n_blocks else ()
    return Arrow(-arrow.dense, *blocks)


def bent(curvature: Arrow, part: QuadraticPart | None) -> Arrow:
    """With that of a part of the prior."""
    if part is None:
        return curvature
    dense, p = np.array(curvature.dense), len(part.shift)
    dense[:p, :p] += part.precision
    blocks = (curvature.border, curvature.blocks, curvature.start) if curvature.n_blocks else ()
    return Arrow(dense, *blocks)


def with_part(part: QuadraticPart | None, parts: Parts, psi: Array) -> Parts:
    """An expansion with a part of the prior, which scales of factors are estimated with."""
    if part is None:
        return parts
    value, slope, _ = part.expansion(psi)
    return parts[0] + value, parts[1] + slope, bent(parts[2], part)
