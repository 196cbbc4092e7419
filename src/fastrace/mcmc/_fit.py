"""How well a normal density follows a posterior: the tail of its draws' weights, and modes that it does not see."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrace.mcmc import _pareto
from fastrace.mcmc._diagnosis import SAMPLE_AGAIN
from fastrace.mcmc.compression import Compressed, expansions_apart
from fastrace.mcmc.kernels._nested_normal import NormalInner
from fastrace.mcmc.kernels._surrogate_moves import MOST_BY_SLICES, marginal_of
from fastrace.mcmc.models._modes import find_mode, normal_density
from fastrace.mcmc.models.model import GLM, Model, Reference
from fastrace.sources import Source

__all__ = ["fit_problems", "mode_words", "other_mode", "residual_k", "residuals", "surrogate_k", "tail"]

Array = NDArray[np.float64]

_ROWS = 1000        # rows of a search for modes, at least
_STARTS = 10        # of a search, at most; fewer in many dimensions
_APART = 4.0        # standard deviations between modes that are two
_MASS = 1e-3        # of a mode that matters, beside that of the first
_FOUND = 4          # modes whose masses are compared
_SPREADS = 50       # draws that tell deviations of what the rows see
_DRAWS = 400        # whose weights tell the shape of the tail
_TERMS = 4000       # rows that estimate each of these weights
_FITS = 0.8         # share of proposals from a surrogate that are accepted where it fits
_MORE = 4 * _TERMS, 500_000     # where those were too few, one after the other


def fit_problems(kernel: Any, reference: Reference, accepted: float) -> list[str]:
    """What is wrong with the normal density that a kernel over rows follows, one sentence each.

    `accepted` is the share of proposals accepted: above some, an expansion leaves too little to look at its tail.
    """
    model, out = kernel.model, []
    hierarchy = isinstance(model, GLM) and model.n_hyper and hasattr(kernel, "compressed")
    mode = other_expansion(model, kernel.compressed) if hierarchy else other_mode(model, reference)
    if mode is not None:
        out.append(mode_words(model, *mode, "psi_hat" if hierarchy else "control_variate"))
    advice = getattr(kernel, "decision_advice", "")
    if advice:
        out.append(advice)
    if getattr(kernel, "proposes_reference", False):
        k = kernel.pareto_k if kernel.pareto_k is not None else residual_k(model, reference)
        if not k < _pareto.MOST:
            out.append(
                f"Pareto k of the weights of draws from the normal density is {k:.2g}, above {_pareto.MOST}: "
                f"its tails are too short for independent proposals, and chains get stuck where it has no mass without "
                f"R-hat showing it. Take mcmc.HMC(model), by the gradients of all rows, or "
                f"proposal='crank-nicolson'"
            )
    if getattr(kernel, "rests_on_surrogate", False) and accepted < _FITS:
        k = surrogate_k(kernel)
        if not k < _pareto.MOST:
            out.append(
                f"Pareto k of the weights of draws from prior times expansion is {k:.2g}, above {_pareto.MOST}: the "
                f"expansion misses a part of the posterior, where chains get stuck for long without R-hat showing it. "
                f"{SAMPLE_AGAIN}, or, if rows are few, take mcmc.HMC(model), which reads all of them"
            )
    return out


def mode_words(model: Model, at: Array, share: float, given: str = "control_variate") -> str:
    """Words on another mode of a posterior."""
    at = model.constrain(at) if len(at) == model.dim else at
    values = ", ".join(f"{x:.4g}" for x in at[:6]) + (", ..." if len(at) > 6 else "")
    both = "with psi_hat there, where they then begin" if given == "psi_hat" else f"with init and {given} there"
    return (
        f"the posterior has another mode near theta = ({values}), with about {share:.2g} times the mass of the one "
        f"that the draws were made about, and they may all miss it. Run chains from both, {both}, "
        f"and weigh them by their mass, or write the model so that one mode is left"
    )


def residual_k(model: Model, reference: Reference) -> float:
    """Pareto k of the weights of draws from a reference, by `tail`."""
    rng = np.random.default_rng(0)
    beside = model.log_prior_beside(reference)
    draws = reference.center + rng.standard_normal((_DRAWS, model.dim)) @ reference.factor.T
    return tail(model, reference, draws, 0.0 if beside is None else np.array([beside(draw.copy()) for draw in draws]))


def surrogate_k(kernel: Any) -> float:
    """Pareto k of the weights of draws from the prior times expansion on which a kernel moves, by `tail`."""
    points, beside = kernel.surrogate_draws(_DRAWS, np.random.default_rng(0))
    return tail(kernel.model, kernel.reference, points, beside)


def tail(model: Model, reference: Reference, points: Array, beside: Array | float = 0.0) -> float:
    """Pareto k of the weights of points: what an expansion leaves of the log-likelihood, and what is `beside` it.

    The sum over rows is estimated from a random subset of them, the same for all points. Where the expansion fits, what
    it leaves of a row is small, and so is the error of the estimate, unless few rows hold most of it: a k that is too
    large is looked at again on more rows, which seldom need be all.
    """
    k = math.inf
    for count in (_TERMS, *_MORE):
        out = residuals(model, reference, points, count) + beside
        out = np.where(np.isnan(out), -np.inf, out)
        k = _pareto.smoothed(out)[1] if np.isfinite(out.max()) else math.inf
        if k < _pareto.MOST or model.n_rows <= count:
            break
    return k


def residuals(
    model: Model, reference: Reference, points: Array, count: int | None = _TERMS,
    engine: tuple[Source, Array] | None = None,
) -> Array:
    """What an expansion leaves of the log-likelihood at points of shape (k, n_seen).

    Estimated from `count` random rows, the same for all points; None takes all. An `engine` of the model saves making
    one.
    """
    n = model.n_rows
    rows = None
    if count is not None and n > count:
        rows = np.sort(np.random.default_rng(0).choice(n, count, replace=False)).astype(np.int64)
    source, theta = engine or model.engine(reference)
    out = np.empty(len(points))
    for first in range(0, len(points), 2):
        some = points[first : first + 2]
        theta[: len(some)] = some
        arms = np.arange(len(some))
        if rows is None:
            sums = source.totals(arms)
        else:
            sums = source.read(rows, arms).sum(axis=0) * (n / len(rows)) + source.shifts(arms)
        out[first : first + 2] = sums
    return out


def other_mode(model: Model, reference: Reference) -> tuple[Array, float] | None:
    """Another mode of a posterior, and its mass over that of the mode that a reference follows; None if none is found.

    Newton's method runs from a few points on some of the rows, and goes on from a new mode on all of them. It is
    not tried where the log-likelihood is known to be concave, or where a part of the rows cannot be asked alone.
    """
    if model._concave or not model.has_derivatives or model.n_hyper:
        return None
    rng = np.random.default_rng(0)
    n = min(model.n_rows, max(_ROWS, 10 * model.dim))
    rows = np.sort(rng.choice(model.n_rows, n, replace=False)).astype(np.int64)
    hat = reference.theta_hat
    if model._some_log_posterior(hat, rows) is None:
        return None

    left = iter(range(model._most_expansions))

    def some(at: Array) -> tuple[float, Array, Array]:
        next(left)  # ends the search: what is raised is suppressed
        parts = model._some_log_posterior(at, rows)
        assert parts is not None
        return parts

    found: list[tuple[float, Array]] = []
    with np.errstate(all="ignore"):
        near = hat
        with suppress(Exception):
            near = find_mode(some, hat, 1e-4)
        for start in _starts(model, reference, rng):
            with suppress(Exception):  # terms need not be defined so far out
                at = find_mode(some, start, 1e-4)
                if _apart(reference, at, near) > _APART:
                    at = find_mode(model._log_posterior, at)
                    if _apart(reference, at, hat) > _APART:
                        found.append((_log_mass(model, at), at))
                        break
        if not found:
            return None
        share = math.inf
        with suppress(Exception):
            share = math.exp(min(700.0, found[0][0] - _log_mass(model, hat)))
    return (found[0][1], share) if share > _MASS else None


def other_expansion(model: GLM, compressed: Compressed) -> tuple[Array, float] | None:
    """Another mode of what the rows of a hierarchical model see, and its mass over that of the expansion's.

    Newton's steps with estimated scales run from far starts on some of the rows, and from a new mode on all. Its mass
    is the integral of prior times expansion there: over what the rows see exactly, over scales by a normal density.

    Nothing is looked for where the log-likelihood is concave in what the rows see, or that of a Gaussian outcome, which
    is so given its scale: with normal priors the posterior given all scales then has one mode, and scales, few, move by
    their marginal. Nor with more scales than the nested normal takes. Modes that only a Student-t prior makes are not
    seen, for the steps take a normal one in its place.
    """
    if model._concave or model._glm.family == "gaussian" or compressed.prior.n_hyper > MOST_BY_SLICES:
        return None
    rng = np.random.default_rng(0)
    n = min(model.n_rows, max(_ROWS, 10 * model.n_seen))
    rows = np.sort(rng.choice(model.n_rows, n, replace=False))
    share, best = _MASS, None
    with np.errstate(all="ignore"), suppress(Exception):
        for other in islice(expansions_apart(model, compressed, _far_starts(model, compressed, rng), rows), _FOUND):
            mass = math.exp(min(700.0, _evidence(other) - _evidence(compressed)))
            if mass > share:
                share, best = mass, np.array(other.psi_hat)
    return None if best is None else (best, share)


def _far_starts(model: GLM, compressed: Compressed, rng: np.random.Generator) -> Iterator[Array]:
    """Points 5 to 50 standard deviations away, about as far as the prior reaches; a learned scale stays.

    In every second of them effects stay too: modes of shared coefficients are far apart in all effects at once.
    """
    hat, factor = compressed.psi_hat, compressed.factor()
    sd = np.sqrt(np.mean(np.square([factor.draw(rng.standard_normal(len(hat))) for _ in range(_SPREADS)]), axis=0))
    diagonal = compressed.metric().diagonal() - compressed.curvature.diagonal()
    with np.errstate(divide="ignore"):
        spread = np.clip(1.0 / np.sqrt(np.maximum(diagonal, 0.0)), 5.0 * sd, 50.0 * sd)
    if model.learns_scale:
        spread[-1] = 0.0
    for k in range(max(4, min(_STARTS, 400 // len(hat)))):
        step = spread * rng.standard_normal(len(hat))
        if k % 2 == 0:
            step[model.n_columns :] = 0.0
        yield hat + step


def _evidence(compressed: Compressed) -> float:
    """Log integral of prior times expansion, up to a constant of the model."""
    center, factor, _ = marginal_of(compressed)
    top = NormalInner(compressed.quadratic, compressed.prior).marginal_of(center)
    return compressed.quadratic.value + float(top) + float(np.log(np.diagonal(factor)).sum())


def _starts(model: Model, reference: Reference, rng: np.random.Generator) -> Iterator[Array]:
    """Points from which Newton's method may reach another mode: mirror images, and points at random."""
    base, hat = model._start(), reference.theta_hat
    sd = np.sqrt(np.square(reference.factor).sum(axis=1))
    away = np.maximum(np.abs(hat - base), 5.0 * sd)
    with np.errstate(divide="ignore"):
        prior_sd = 1.0 / np.sqrt(model.prior_precision)
    spread = np.maximum(away, np.minimum(prior_sd, 10.0 * away))
    count = max(2, min(_STARTS, 120 // model.dim))
    yield 2.0 * base - hat
    for j in np.argsort(-np.abs(hat - base) / sd)[: min(3, count // 2, model.dim - 1)]:
        turned = hat.copy()
        turned[j] = 2.0 * base[j] - hat[j]
        yield turned
    for _ in range(count):
        yield base + spread * rng.standard_normal(model.dim)


def _apart(reference: Reference, a: Array, b: Array) -> float:
    return float(np.linalg.norm(np.linalg.solve(reference.factor, a - b)))


def _log_mass(model: Model, mode: Array) -> float:
    """Of the normal density at a mode, up to a constant of the model."""
    _, slope, curvature = model._log_posterior(mode)
    _, factor = normal_density(mode, slope, curvature, model._moved, False, model.names)
    return float(model.log_posteriors(mode[None])[0]) + float(np.log(np.diag(factor)).sum())
