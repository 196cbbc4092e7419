"""How long Hamiltonian trajectories on a surrogate are, and in which coordinates: settled before a chain begins."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastrace._models._arrow import Quadratic
from fastrace._models._priors import JointPrior
from fastrace.mcmc._convergence import effective_sample_size
from fastrace.mcmc._scales import first_point
from fastrace.mcmc.compression import with_precision
from fastrace.mcmc.kernels._hamiltonian import HamiltonianInner
from fastrace.mcmc.kernels._nested_normal import layout_of

__all__ = ["TRIED", "UNSTABLE", "Purse", "Trajectories", "trajectories_of", "unstable_share"]

Array = NDArray[np.float64]
TARGET = 0.8  # mean probability of acceptance
ROUNDS = (150, 300, 600)  # moves of the pilot; each round measures the spreads that the next one moves by
LENGTHS = (0.8, 1.5, 3.0)  # of trajectories, in standard deviations
TRIAL = 300  # moves by each
WIDEST = 300  # coordinates, up to which a dense root pays
UNSTABLE = 0.01  # share of draws in parts too narrow for the step, from which on more is likely to be missed
STABLE = 4.0  # squared step times curvature, above which a leapfrog trajectory leaves for good
TRIED, TURNS, BESIDE = 300, 3, 1e-4  # draws looked at, turns of a power iteration at each, and the steps of differences
SHARES = 0.15, 0.35, 0.65, 0.8, 1.0  # of the gradients a pilot may take, after each round, the fourth one, and lengths
FEWEST = 20  # draws that tell spreads
OTHERS, MOST_AWAY = 400, 3.0  # points tried where the first is impossible, and how far from it the last are
CORRELATED = 10.0  # condition number of the scaled curvature from which on one is needed


@dataclass(frozen=True, eq=False)
class Trajectories:
    """Settings of a `HamiltonianInner`, and a point where the surrogate has its mass.

    Attributes
    ----------
    prior : JointPrior
        With its choice of standardised coordinates.
    step, length : float
    root : ndarray of shape (dim,) or (dim, dim)
    start : ndarray of shape (dim,)
    settled : bool
        Whether the pilot made all its moves, and was not ended by the gradients that it may take.
    """

    prior: JointPrior
    step: float
    length: float
    root: Array
    start: Array
    settled: bool = True

    def inner(self, surrogate: Quadratic) -> HamiltonianInner:
        """A move of its own for one chain."""
        return HamiltonianInner(surrogate, self.prior, self.step, self.length, self.root)


class Purse:
    """Gradients that the moves of a pilot may take; the move that passes the limit is the last.

    Parameters
    ----------
    most : float
        Of all, but for the rest of the last move.

    Attributes
    ----------
    emptied : bool
        Whether a move that was asked for was not made.
    """

    def __init__(self, most: float = math.inf) -> None:
        self.most, self.limit, self.spent, self.emptied = most, most, 0, False

    def until(self, share: float) -> None:
        """Let what follows take so much of the whole, with all that came before."""
        self.limit = share * self.most

    def moves(self, inner: HamiltonianInner, theta: Array, count: int, rng: np.random.Generator) -> Iterator[Array]:
        """Up to so many draws, one after the other."""
        for _ in range(count):
            if self.spent >= self.limit:
                self.emptied = True
                return
            before = inner.n_gradients
            theta = inner.draws(theta, 1, rng)[0]
            self.spent += inner.n_gradients - before
            yield theta


def trajectories_of(
    surrogate: Quadratic, prior: JointPrior, seed: int = 0, effort: float = 1.0, most: float = math.inf
) -> Trajectories:
    """Settle coordinates, spreads, step and length on the surrogate alone, which reads no row.

    A coefficient or a group's effects with a learned scale are standardised where the likelihood says less of them than
    the prior, and moved as they are elsewhere. The pilot's draws are thrown away: chains that follow are not adapted.
    Where gradients are dear it makes a share `effort` of its moves, which take at most about `most` of them.
    """
    rng, purse = np.random.default_rng(seed), Purse(most)
    prior = prior.copy()
    sd = _spreads(surrogate, prior)
    hat = np.asarray(surrogate.center, dtype=np.float64)
    theta, free = first_point(prior, hat, sd)
    theta = _inside(prior, theta, seed)
    prior.set_free(free)
    moved = ~_standardised(prior)
    root = np.ones(prior.dim)
    root[: prior.n_seen][moved] = np.minimum(sd[moved], 10.0)
    step = 0.1
    if prior.given[4] and prior.value_of(theta) == -math.inf:   # no move leaves that, and each one would halve the step
        return Trajectories(prior, step, LENGTHS[1], root, theta, True)
    rounds = [int(effort * count) for count in ROUNDS]
    for count, share in zip(rounds, SHARES, strict=False):
        inner = HamiltonianInner(surrogate, prior, step, LENGTHS[1], root)
        purse.until(share)
        theta, step, draws = _search(inner, theta, step, count, rng, purse)
        if count != rounds[-1] and len(draws) >= FEWEST:
            spread = np.std([prior.free_of(draw) for draw in draws[len(draws) // 3 :]], axis=0)
            root = np.where(spread > 0.0, spread, root)
    covariance = _covariance(surrogate, prior, theta[prior.n_seen :]) if prior.dim <= WIDEST else None
    purse.until(SHARES[-2])
    if covariance is not None:
        root, step, theta = _with_correlations(surrogate, prior, root, covariance, moved, theta, step, rounds[-1], rng,
                                               purse)
    inner = HamiltonianInner(surrogate, prior, step, LENGTHS[1], root)
    length, theta = _best_length(inner, theta, step, int(effort * TRIAL), rng, purse)
    return Trajectories(prior, step, length, root, theta, not purse.emptied)


def _inside(prior: JointPrior, theta: Array, seed: int) -> Array:
    """The point, with hyperparameters elsewhere where a density of the user's own rules these out: no move leaves that.

    As it is if none of those tried is allowed.
    """
    if not (prior.given[4] and prior.n_hyper) or prior.value_of(theta) > -math.inf:
        return theta
    rng, n = np.random.default_rng(seed), prior.n_seen
    for k in range(OTHERS):
        other = theta.copy()
        other[n:] *= rng.random()           # between its own values and scales of 1,
        other[n:] += MOST_AWAY * k / OTHERS * rng.standard_normal(prior.n_hyper)    # and ever farther from there
        if prior.value_of(other) > -math.inf:
            return other
    return theta


def unstable_share(
    gradient: Callable[[Array], Array], settled: Trajectories, draws: Array, most: float | None = None,
) -> float:
    """Share of draws, about, at which the density is too narrow for the step: trajectories are refused there.

    Chains that reach such points stop short of narrower ones. The largest curvature, in the coordinates of trajectories
    that move all parameters as they are, is found from below by power iteration on differences of gradients. `most` is
    the largest curvature at which steps are stable, that of leapfrog steps if it is not given.
    """
    root, diagonal = settled.root, settled.root.ndim == 1
    points = draws[:: max(1, len(draws) // TRIED)]
    way: Array = np.asarray(np.random.default_rng(0).normal(size=draws.shape[1]))
    unstable, most = 0, STABLE / settled.step**2 if most is None else most
    for point in points:
        size = 0.0
        for _ in range(TURNS):
            way = way / np.linalg.norm(way)
            step = BESIDE * (root * way if diagonal else root @ way)
            change = (gradient(point - step) - gradient(point + step)) / (2.0 * BESIDE)
            bent: Array = root * change if diagonal else root.T @ change
            size = float(way @ bent)
            if not (np.isfinite(size) and np.any(bent)):
                size = 0.0
                break
            way = bent
        unstable += bool(size > most)
    return unstable / max(1, len(points))


def _spreads(surrogate: Quadratic, prior: JointPrior) -> Array:
    """Standard deviations that the likelihood gives what the rows see; those of effects of groups given all else."""
    arrow, p = surrogate.curvature, len(prior.given[0])
    own = 1.0 / np.sqrt(np.maximum(arrow.diagonal(), 1e-300))
    if arrow.dim > 4 * WIDEST:
        return np.asarray(own)
    _, scaled = _scaled(arrow.to_dense(), own)
    own[:p] = np.sqrt(np.diagonal(scaled))[:p] * own[:p]
    return np.asarray(own)


def _scaled(precision: Array, sd: Array) -> tuple[Array, Array]:
    """Eigenvalues of a precision matrix in units of `sd`, and the inverse in these."""
    values, vectors = np.linalg.eigh(precision * np.outer(sd, sd))
    return values, (vectors / np.maximum(values, 1e-12)) @ vectors.T


def _covariance(surrogate: Quadratic, prior: JointPrior, phi: Array) -> Array | None:
    """Covariance of what the rows see given hyperparameters, where correlations are strong enough to matter."""
    _, precision = prior.conditional_of(phi)
    whole = with_precision(surrogate.curvature, layout_of(prior), precision).to_dense()
    sd = 1.0 / np.sqrt(np.maximum(np.diagonal(whole), 1e-300))
    values, scaled = _scaled(whole, sd)
    correlated = values[-1] > CORRELATED * max(values[0], 0.0)
    return scaled * np.outer(sd, sd) if correlated else None


def _standardised(prior: JointPrior) -> NDArray[np.bool_]:
    """Which of what the rows see are standardised: a coordinate that is moves with its scale."""
    theta = np.concatenate([np.full(prior.n_seen, 0.5), np.full(prior.n_hyper, 0.7)])
    return np.asarray((prior.free_of(theta) != theta)[: prior.n_seen])


def _search(
    inner: HamiltonianInner, theta: Array, step: float, count: int, rng: np.random.Generator, purse: Purse
) -> tuple[Array, float, Array]:
    """Dual averaging of the step (Hoffman & Gelman, 2014, section 3.2): last point, averaged step, draws."""
    middle, error, level = np.log(10.0 * step), 0.0, 0.0
    draws = []
    for t, draw in enumerate(purse.moves(inner, theta, count, rng), 1):
        draws.append(draw)
        error += (TARGET - inner.acceptance - error) / (t + 10.0)
        log_step = min(middle - np.sqrt(t) / 0.05 * error, 0.5)
        level += t**-0.75 * (log_step - level)
        inner.use(float(np.exp(log_step)), inner.length)
    if not draws:
        return theta, step, np.empty((0, len(theta)))
    return draws[-1], float(np.exp(level)), np.array(draws)


def _with_correlations(
    surrogate: Quadratic, prior: JointPrior, root: Array, covariance: Array, moved: NDArray[np.bool_], theta: Array,
    step: float, count: int, rng: np.random.Generator, purse: Purse,
) -> tuple[Array, float, Array]:
    """The root with the correlations of what is moved as it is."""
    places = np.flatnonzero(moved)
    whole = np.diag(root)
    own = covariance[np.ix_(places, places)]
    scale = root[places] / np.sqrt(np.diagonal(own))
    whole[np.ix_(places, places)] = np.linalg.cholesky(own * np.outer(scale, scale))
    inner = HamiltonianInner(surrogate, prior, step, LENGTHS[1], whole)
    theta, step, _ = _search(inner, theta, step, count, rng, purse)
    return whole, step, theta


def _best_length(
    inner: HamiltonianInner, theta: Array, step: float, count: int, rng: np.random.Generator, purse: Purse
) -> tuple[float, Array]:
    """The length with most effective draws, of the worst parameter, for a gradient; the middle one where moves end."""
    found: list[float] = []
    for k, length in enumerate(LENGTHS, 1):
        inner.use(step, length)
        purse.until(SHARES[-2] + (SHARES[-1] - SHARES[-2]) * k / len(LENGTHS))
        before = inner.n_gradients
        draws = np.array(list(purse.moves(inner, theta, count, rng))).reshape(-1, len(theta))
        theta = draws[-1] if len(draws) else theta
        if len(draws) < count:
            return LENGTHS[1], theta
        least = min(effective_sample_size(draws[None, :, j]) for j in range(draws.shape[1]))
        found.append(least / (inner.n_gradients - before))
    return LENGTHS[int(np.argmax(found))], theta
