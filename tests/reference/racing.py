"""Algorithm 1 of Chen & Ghahramani (2016), word for word, over a table."""

import math
from types import SimpleNamespace

import numpy as np

from reference import betting, bounds
from reference.bounds import sample_skewness
from reference.draws import Window


def race(values, looks, quantiles, log_inv_delta, *, bound, pairwise, order, rng, offset=None, low=None, high=None,
         guarded=False, tails=False, advantage=1.0):
    """Return best, pulls per arm, looks taken and what stopped the race. `order` says which rows come next."""
    n_rows, n_arms = values.shape
    constant = np.zeros(n_arms) if offset is None else np.asarray(offset, float)
    alive = [i for i in range(n_arms) if constant[i] > -math.inf]
    pulls = np.zeros(n_arms, int)
    if len(alive) == 1:
        return SimpleNamespace(best=alive[0], pulls=pulls, n_looks=0, stopped_by="single")
    rows, full_pass, window = [], False, isinstance(order, Window)
    for k, look in enumerate(looks):
        n = n_rows if full_pass else int(look)
        in_order = n == n_rows and not window and advantage * (n_rows - len(rows)) >= n_rows
        if n == n_rows:
            if not in_order:
                order.advance(rng, len(rows), n)
            mean = values.sum(axis=0) / n_rows + constant / n_rows
            best = max(alive, key=lambda i: (mean[i], -i))
            pulls[alive] = n_rows
            return SimpleNamespace(best=best, pulls=pulls, n_looks=k + 1, stopped_by="exact")
        rows += order.advance(rng, len(rows), n)
        seen = values[rows]
        mean = seen.mean(axis=0) + constant / n_rows
        pulls[alive] = n
        leader = max(alive, key=lambda i: (mean[i], -i))
        needed, out, wait = 0.0, [], 0.0
        for i in alive:
            if i == leader:
                continue
            gap = mean[leader] - mean[i]
            if pairwise:
                d = seen[:, leader] - seen[:, i]
                span = 0.0 if low is None else high[leader] - low[leader] + high[i] - low[i]
                width = half_width(d, n_rows, bound, log_inv_delta, quantiles[k], span)
            else:
                spans = np.zeros(n_arms) if low is None else high - low
                d = -seen[:, i]
                width = sum(half_width(seen[:, j], n_rows, bound, log_inv_delta, quantiles[k], spans[j])
                            for j in (leader, i))
            if bound == "betting":
                shift = (constant[leader] - constant[i]) / n_rows
                _, peak, impossible = betting.wealth(list(d + shift), n_rows, low[leader] - high[i] + shift)
                beaten = impossible or peak >= log_inv_delta
            else:
                beaten = gap > width
                if beaten and tails and bound == "normal":
                    width, wait = tail_evidence(seen, leader, i, gap, width, n_rows, quantiles[k], pairwise)
                    beaten = gap > width and wait <= n
                if bound == "normal" and guarded:
                    # What makes a lead look too large: differences, or one of two means, skewed the wrong way.
                    skewness = sample_skewness(d)
                    if not pairwise:
                        skewness = min(skewness, sample_skewness(seen[:, leader]))
                    beaten = beaten and bounds.skewness_inflation(skewness, n, n_rows, quantiles[k]) <= 0.25
            if beaten:
                out.append(i)
            else:
                needed = max(needed, rows_needed(gap, width, n, n_rows), wait)
        alive = [i for i in alive if i not in out]
        if len(alive) == 1:
            return SimpleNamespace(best=leader, pulls=pulls, n_looks=k + 1, stopped_by="bound")
        to_pass = n_rows - n if window else n_rows      # a window goes on in order from where it is
        full_pass = advantage > 1 and advantage * looks[k + 1] > 0.05 * n_rows and advantage * (needed - n) > to_pass
    raise AssertionError("the last look reads every row")


def tail_evidence(seen, leader, i, gap, width, n_rows, quantile, pairwise):
    """Half-width of a lead, what may be missing of tails considered, and the rows to read before it is believed."""
    n, x, y = len(seen), seen[:, leader], seen[:, i]
    d = x - y
    if pairwise:
        width = bounds.tail_half_width(width, d.std(), -sample_skewness(d), n, n_rows, quantile)
    else:
        width = 0.0
        for c, side in ((x, -1), (y, 1)):
            half = bounds.normal(n, n_rows, c.std(), quantile)
            width += bounds.tail_half_width(half, c.std(), side * sample_skewness(c), n, n_rows, quantile)
    wait = 0.0
    for c, side in ((x, -1), (y, 1)):
        if c.std() <= 1e-12 * abs(c.mean()):
            wait = n_rows
            continue
        square = (c - c.mean()) ** 2
        size = -((d - d.mean()) * square).sum() / square.sum() if pairwise else c.std() * side * sample_skewness(c)
        rows = bounds.tail_rows(c, side, size, gap)
        wait = max(wait, rows if rows > n else 0.0)
    return width, wait


def half_width(x, n_rows, bound, log_inv_delta, quantile, span):
    n, std, delta = len(x), x.std(), math.exp(-log_inv_delta)
    if bound == "hoeffding-serfling":
        return bounds.hoeffding_serfling(n, n_rows, delta, (0, span))
    if bound == "empirical-bernstein-serfling":
        return bounds.empirical_bernstein_serfling(n, n_rows, std, delta, (0, span))
    if bound == "serfling":
        return bounds.serfling(n, n_rows, std, delta, (0, span))
    if bound == "betting":
        return bounds.normal(n, n_rows, std, math.sqrt(2 * (log_inv_delta + 2)))
    if std <= 1e-12 * abs(x.mean()):
        return math.inf
    return bounds.normal(n, n_rows, std, quantile)


def interval(x, looks, bound, delta, n_arms, *, constant=0.0, low=None, high=None, cut=False, first=None):
    """Interval of an arm's mean from its rewards x: delta is shared among arms, sides and looks.

    If the race may be cut short, the half-width is that of the rows before the look before, with which it holds until
    the next look; `first` is the number of rows that all arms have read where the budget ends before the first look.
    """
    n_rows, n, std, mean = int(looks[-1]), len(x), np.std(x), np.mean(x) + constant / looks[-1]
    if n == n_rows:
        return mean, mean
    rows = max(max([k for k in looks if k <= n], default=first) - 1, 1) if cut else n
    share = delta / (2 * n_arms)
    if bound == "normal":
        width = math.inf                # means of fewer rows than the first look's are not taken as normal
        if n >= looks[0] and std > 1e-12 * abs(mean):
            quantile = bounds.normal_isf(share / (len(looks) - 1) / (2 if cut else 1))
            width = bounds.normal(rows, n_rows, std, quantile)
    else:
        bound = {"hoeffding-serfling": bounds.hoeffding_serfling, "serfling": bounds.serfling,
                 "empirical-bernstein-serfling": bounds.empirical_bernstein_serfling, "betting": bounds.serfling}[bound]
        known = (rows, n_rows, share / len(looks), (low, high))
        width = bound(*(known if bound is bounds.hoeffding_serfling else (*known[:2], std, *known[2:])))
    lower, upper = mean - width, mean + width
    if low is not None:         # rows not read lie within the support
        lower = max(lower, (constant + np.sum(x) + (n_rows - n) * low) / n_rows)
        upper = min(upper, (constant + np.sum(x) + (n_rows - n) * high) / n_rows)
    return lower, upper


def rows_needed(gap, width, n, n_rows):
    if gap <= 0:
        return float(n_rows)
    v = (1 / n - 1 / n_rows) * (gap / width) ** 2
    return 1 / (v + 1 / n_rows)
