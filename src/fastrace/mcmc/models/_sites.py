"""Rows and groups whose terms are far from quadratic, and the normal factors that stand for them in a surrogate."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastrace._models._arrow import Arrow, ArrowFactor
from fastrace._models.rows import CHUNK

if TYPE_CHECKING:
    from fastrace.mcmc.models.glm import GLM

__all__ = ["Sites", "flat_effects", "held_apart", "left_of_rows", "matched", "replaced"]

Array = NDArray[np.float64]

LEAST = 0.02  # change of a term's curvature over its own spread, times its variance / 6, from which on it is replaced
_SOME = 1000  # rows whose outcomes say whether there are few of them
MOST_SITES = 16  # that are replaced, and
MOST_OF_FEW, READ = 64, 1 << 12  # where rows are few; and rows that the walks of a step may read, of two walks or more
OUT, FALL = 20.0, 2.0  # a predictor this far out takes less of the log-likelihood: an effect has a flat side
AT_ONCE = 256  # points at which the log-likelihood is taken
BINS, MOST_OUTCOMES = 128, 8  # of rows that stand for a large group's, for each outcome; more outcomes: all rows
MOST_ROWS = 20_000  # of groups with more outcomes, together
NODES, FAR = 61, 7.0  # of a quadrature in the predictor, and how many standard deviations they reach
SWEEPS, DAMPING, SETTLED = 30, 0.5, 1e-3
STEP = 2.4  # of random walks along a direction, in its standard deviations


class Sites(NamedTuple):
    """What comes to an expansion for its sites.

    tilt, shape (n_seen,), comes to the gradient and bend to the curvature. rows, of bool and shape (n_rows,), says
    which rows belong to a site. walks, shape (n_sites, n_seen), are steps of a random walk along each site's direction.
    effects, shape (n_seen,), are 1 for effects of groups that are sites.
    alone, of bool and shape (n_sites,), says which sites are one row of a group of several.
    """

    tilt: Array
    bend: Arrow
    rows: NDArray[np.bool_]
    walks: Array
    effects: Array
    alone: NDArray[np.bool_]


def replaced(
    model: GLM, hat: Array, factor: ArrowFactor, spread: Array, flat: NDArray[np.intp] | None = None
) -> Sites | None:
    r"""What rows and groups far from quadratic add to gradient and curvature of an expansion; None if there are none.

    Notes
    -----
    A site is one row, or all rows of a group with an intercept alone as a function of its effect. Let t = a'd be its
    predictor, for a step d from `hat`, and f(t) its log-likelihood there, the group's shared parameters held. Where f
    is far from its expansion :math:`s t - w t^2 / 2`, as for groups with one outcome alone and rows of great leverage,
    the posterior has other moments than the surrogate. Expectation propagation (Minka 2001) puts
    :math:`\nu t - \lambda t^2 / 2` in its place, with which t has mean and variance of f times the normal density that
    all else makes.
    That takes the sites' t alone, which are normal together.

    Of a group with a flat side, such as one of a single row or one outcome, the posterior reaches as far out there as
    the scale's prior lets it, however well the expansion fits near its mean.

    Parameters
    ----------
    spread : ndarray of shape (n_rows,)
        Standard deviation of each row's predictor.
    flat : ndarray of int, optional
        Effects with a flat side, where rows are so few that decisions read them all: groups with one are sites too.
    """
    sites = _found(model, hat, spread, flat)
    if not sites:
        return None
    directions, rows = np.array([a for a, _ in sites]), [own for _, own in sites]
    center = model._predictors(hat)
    times = np.ones(model.n_rows) if model._glm.term_weights is None else np.asarray(model._glm.term_weights)
    whole = [(np.asarray(model._glm.y)[own], center[own], times[own]) for own in rows]
    moments = [model._glm.expand(y, eta)[1:] @ w for y, eta, w in whole]
    terms = [_thinned(*parts) for parts in whole]
    slope, bend = np.array([m[0] for m in moments]), -np.array([m[1] for m in moments])
    spreads = directions @ np.array([factor.solve(a) for a in directions]).T

    def value(k: int, t: Array) -> Array:
        y, eta, w = terms[k]
        at = np.add.outer(t, eta).ravel()
        return np.asarray(model._glm.expand(np.tile(y, len(t)), at)[0].reshape(len(t), -1) @ w)

    found = matched(spreads, slope, bend, value)
    if found is None:
        return None
    more, less = found[0] - slope, found[1] - bend
    of_sites = np.zeros(model.n_rows, dtype=bool)
    of_sites[np.concatenate(rows)] = True
    covariance = np.linalg.solve(np.eye(len(less)) + spreads * less, spreads)
    ways = np.array([factor.solve(a) for a in directions])  # t_k moves, and all else as it does on the mean
    walks = STEP * (np.sqrt(np.diagonal(covariance)) / np.diagonal(spreads))[:, None] * ways
    effects = np.zeros(model.n_seen)
    for f in model.factors:
        for own in rows:
            if len(own) > 1 and f.terms == ("1",) and (f.codes[own] == f.codes[own[0]]).all():
                effects[f.start + f.codes[own[0]]] = 1.0
    alone = np.array([len(own) == 1 and all((f.codes == f.codes[own[0]]).sum() > 1 for f in model.factors)
                      for own in rows])
    return Sites(more @ directions, _outer(factor.base, directions, less), of_sites, walks, effects, alone)


def _thinned(y: Array, eta: Array, times: Array) -> tuple[Array, Array, Array]:
    """Nearly the same terms from fewer rows: of each outcome, means of rows with predictors next to each other."""
    values = np.unique(y)
    if len(y) <= BINS or len(values) > MOST_OUTCOMES:
        return y, eta, times
    parts = []
    for value in values:
        own = np.flatnonzero(y == value)
        own = own[np.argsort(eta[own], kind="stable")]
        starts = np.unique(np.linspace(0, len(own), min(len(own), BINS) + 1).astype(np.intp)[:-1])
        weight = np.add.reduceat(times[own], starts)
        mean = np.add.reduceat(times[own] * eta[own], starts) / np.where(weight > 0.0, weight, 1.0)
        parts.append((np.full(len(starts), value), mean, weight))
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))  # type: ignore[return-value]


def _bends(model: GLM, hat: Array, spread: Array) -> tuple[Array, list[Array]]:
    """Curvature of each row's term at `hat`, weighted, and its changes a standard deviation up and down from there."""
    y, center, times = np.asarray(model._glm.y), model._predictors(hat), model._glm.term_weights

    def bends(step: Array | float) -> Array:
        out = np.asarray(model._glm.expand(y, center + step)[2])
        return out if times is None else out * np.asarray(times)

    here = bends(0.0)
    return here, [bends(spread) - here, bends(-spread) - here]


def flat_effects(model: GLM, hat: Array) -> NDArray[np.intp]:
    """Places of effects that may go far to one side and take little of the log-likelihood, the flattest first.

    Effects that it does not depend on are none of them: they have their prior.
    """
    layout = model._layout()
    step = np.zeros(model.n_seen)
    for f, effects in zip(model.factors, layout.factors, strict=True):
        for k, spread in enumerate(effects.spreads):
            step[f.start + k : f.start + f.n_groups * f.width : f.width] = OUT * layout.noise / (spread or 1.0)
    places = np.flatnonzero(step)
    here, falls = model._log_likelihoods(hat[None])[0], np.full(model.n_seen, np.inf)
    for first in range(0, len(places), AT_ONCE):
        some = places[first : first + AT_ONCE]
        far = np.zeros((len(some), model.n_seen))
        far[np.arange(len(some)), some] = step[some]
        with np.errstate(all="ignore"):
            ends = np.fmax(model._log_likelihoods(hat + far), model._log_likelihoods(hat - far))
        falls[some] = np.where(np.isnan(ends) | (ends == here), np.inf, here - ends)
    return np.argsort(falls, kind="stable")[: int((falls < FALL).sum())]


def _sums(f: Any, values: Array) -> Array:
    """Of each group's rows."""
    return np.asarray(np.bincount(f.codes, values, f.n_groups), dtype=np.float64)


def left_of_rows(model: GLM, hat: Array, spread: Array) -> Array:
    """What an expansion at `hat` leaves of each row: the change of its curvature over its spread, times its variance.

    Of models whose scale is known.
    """
    return np.asarray(np.maximum(*np.abs(_bends(model, hat, spread)[1])) * np.square(spread))


def held_apart(left: Array, share: float, most: float) -> tuple[NDArray[np.intp], float]:
    """Rows that hold what an expansion leaves, ascending, and the effective share of the others.

    Rows of which most is `left` are taken until the effective number of the others is `share` of all rows, at most the
    part `most` of them. None are where it is that without, or where that is not enough: then the share is 0.
    """
    squares = np.square(left / max(float(left.max()), np.finfo(float).tiny))
    order = np.argsort(-squares, kind="stable")
    tails = np.cumsum(squares[order][::-1])[::-1]  # of the rows from each on
    fourth = np.cumsum(np.square(squares[order])[::-1])[::-1]
    effective = np.square(tails) / np.maximum(fourth, np.finfo(float).tiny)
    count = int(most * len(left)) + 1
    enough = effective[:count] >= share * len(left)
    if not enough.any():
        return np.zeros(0, dtype=np.intp), 0.0
    taken = int(enough.argmax())
    return np.sort(order[:taken]), min(1.0, float(effective[taken]) / len(left))


def _found(
    model: GLM, hat: Array, spread: Array, flat: NDArray[np.intp] | None
) -> list[tuple[Array, NDArray[np.intp]]]:
    """Direction and rows of each site: groups of one effect first, the worst of them first, then rows."""
    sites: list[tuple[Array, NDArray[np.intp]]] = []
    if flat is None and _none_bends(model, spread):
        return sites
    y, (here, ends) = np.asarray(model._glm.y), _bends(model, hat, spread)
    taken, n_rows = np.zeros(model.n_rows, dtype=bool), 0
    any_size = len(np.unique(y[:_SOME])) <= MOST_OUTCOMES
    most = MOST_SITES if flat is None else MOST_OF_FEW
    for f in model.factors:
        if f.terms != ("1",):
            continue
        counts, curved = np.bincount(f.codes, minlength=f.n_groups), -_sums(f, here)
        variance = _sums(f, -here * np.square(spread)) / np.where(curved > 0.0, curved, np.inf)
        bad = np.maximum(*(np.abs(_sums(f, end)) for end in ends)) * variance / 6.0
        if flat is not None:
            bad += LEAST * (np.isin(np.arange(f.start, f.start + f.n_groups), flat) & (curved > 0.0))
        for g in np.argsort(-bad, kind="stable")[: most - len(sites)]:
            if bad[g] < LEAST:
                break
            rows = np.flatnonzero(f.codes == g)
            if (any_size or n_rows + counts[g] <= MOST_ROWS) and not taken[rows].any():
                share = -here[rows] / curved[g]
                sites.append((_mean_row(model, rows, share), rows))
                taken[rows], n_rows = True, n_rows + counts[g]
    bad = np.where(taken, 0.0, np.maximum(*np.abs(ends)) * np.square(spread) / 6.0)
    worst = np.flatnonzero(~(bad < LEAST))
    for i in worst[np.argsort(-bad[worst], kind="stable")][: most - len(sites)]:
        sites.append((_mean_row(model, np.array([i]), np.ones(1)), np.array([i])))
    return sites


def _none_bends(model: GLM, spread: Array) -> bool:
    """Whether bounds on third derivatives say that no row and no group is a site, without a look at any outcome."""
    third, times = model._glm.third_derivatives(), model._glm.term_weights
    if not math.isfinite(third):
        return False
    change = third * (spread if times is None else spread * np.asarray(times))
    if not float((change * np.square(spread)).max()) < 0.99 * 6.0 * LEAST:
        return False
    for f in model.factors:
        widest = np.zeros(f.n_groups)
        np.maximum.at(widest, f.codes, spread)
        if f.terms == ("1",) and not float((_sums(f, change) * np.square(widest)).max()) < 0.99 * 6.0 * LEAST:
            return False
    return True


def _mean_row(model: GLM, rows: NDArray[np.intp], share: Array) -> Array:
    """What predictors multiply in each parameter that the rows see, summed with these shares."""
    out, X = np.zeros(model.n_seen), model._glm.X
    for first in range(0, len(rows), CHUNK):
        own, part = rows[first : first + CHUNK], share[first : first + CHUNK]
        out[: model.n_columns] += X[own].T @ part
        for f in model.factors:
            values = np.concatenate([f.values(X, slice(int(i), int(i) + 1)) for i in own]) if f.terms != ("1",) else 1.0
            places = f.start + f.codes[own].astype(np.intp)[:, None] * f.width + np.arange(f.width)
            np.add.at(out, places, values * part[:, None])
    return out


def matched(spreads: Array, slope: Array, bend: Array, value: Any) -> tuple[Array, Array] | None:
    """Expectation propagation in the sites' t, whose covariance with the expansion in place is `spreads`."""
    nu, curved, unit = slope.copy(), bend.copy(), np.eye(len(slope))
    grid = np.linspace(-FAR, FAR, NODES)
    for _ in range(SWEEPS):
        both = unit + spreads * (curved - bend)
        covariance, mean = np.linalg.solve(both, spreads), np.linalg.solve(both, spreads @ (nu - slope))
        change = 0.0
        for k, (v, m) in enumerate(zip(np.diagonal(covariance), mean, strict=True)):
            left = 1.0 / v - curved[k]
            if not left > 1e-9 / v:
                continue
            center, sd = (m / v - nu[k]) / left, 1.0 / math.sqrt(left)
            t = center + sd * grid
            weights = value(k, t) - 0.5 * np.square(grid)
            weights = np.exp(weights - weights.max())
            weights /= weights.sum()
            first = float(weights @ t)
            second = float(weights @ np.square(t - first))
            if not (math.isfinite(first) and second > (sd / NODES) ** 2):
                continue
            new = max(1.0 / second - left, 0.0)
            pull = (left + new) * first - left * center
            change = max(change, abs(first - m) / math.sqrt(second), abs(second / v - 1.0))
            nu[k] += DAMPING * (pull - nu[k])
            curved[k] += DAMPING * (new - curved[k])
        if not (np.isfinite(nu).all() and np.isfinite(curved).all()):
            return None
        if change < SETTLED:
            break
    return nu, curved


def _outer(arrow: Arrow, directions: Array, times: Array) -> Arrow:
    """The sum of times_k a_k a_k' in the shape of an arrow: each a_k is of one block at most."""
    first, count, q = arrow.start, arrow.n_blocks, arrow.width
    outside = arrow.block_coordinates()[1]
    rest = directions[:, outside]
    dense = rest.T @ (times[:, None] * rest)
    if not count:
        return Arrow(dense)
    own = directions[:, first : first + count * q]
    border, blocks = rest.T @ (times[:, None] * own), np.zeros((count, q, q))
    for c, a in zip(times, own.reshape(-1, count, q), strict=True):
        for g in np.flatnonzero(a.any(axis=1)):
            blocks[g] += c * np.outer(a[g], a[g])
    return Arrow(dense, border, blocks, first)
