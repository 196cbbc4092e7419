"""Algorithm 1 of Chen & Ghahramani (2016), word for word, over a table."""

import math
from types import SimpleNamespace

import numpy as np

from reference import betting, bounds
from reference.bounds import sample_skewness
from reference.draws import Window


def race(values, looks, quantiles, log_inv_delta, *, bound, pairwise, order, rng, offset=None, low=None, high=None,
         guarded=False, tails=False, advantage=1.0, epsilon=0.0, n_best=1, scores=None, still=()):
    """Return best, pulls per arm, looks taken and what stopped the race. `order` says which rows come next.

    The arms with the largest means lead, as many as are wanted and not chosen yet. An arm leaves that all of them have
    beaten; one that leads is chosen once it has beaten all others. The race ends once all that lead are within epsilon.
    """
    n_rows, n_arms = values.shape
    constant = np.zeros(n_arms) if offset is None else np.asarray(offset, float)
    alive = [i for i in range(n_arms) if constant[i] > -math.inf]
    pulls, chosen = np.zeros(n_arms, int), []

    def found(heads, k, why):
        arms = sorted([*chosen, *heads], key=lambda i: -mean[i])
        return SimpleNamespace(best=arms[0] if n_best == 1 else arms, pulls=pulls, n_looks=k, stopped_by=why,
                               active=sorted([*chosen, *alive]))

    if len(alive) <= n_best:
        mean = constant
        return found(alive, 0, "single")
    adjusted = None if scores is None else Adjusted(values, scores, low, high)
    rows, full_pass, window, mean = [], False, isinstance(order, Window), np.full(n_arms, -math.inf)
    for k, look in enumerate(looks):
        n = n_rows if full_pass else int(look)
        in_order = n == n_rows and not window and advantage * (n_rows - len(rows)) >= n_rows
        if n == n_rows:
            if not in_order:
                order.advance(rng, len(rows), n)
            mean[alive] = (values.sum(axis=0) / n_rows + constant / n_rows)[alive]
            pulls[alive] = n_rows
            alive = sorted(alive, key=lambda i: (-mean[i], i))[:n_best - len(chosen)]
            return found(alive, k + 1, "exact")
        rows += order.advance(rng, len(rows), n)
        seen = values[rows]
        mean[alive] = (seen.mean(axis=0) + constant / n_rows)[alive]
        if scores is not None:
            adjusted.learn(rows, alive)
            mean[alive] -= (adjusted.slope * adjusted.q[rows].mean(axis=0))[alive]
        pulls[alive] = n
        heads = sorted(alive, key=lambda i: (-mean[i], i))[:n_best - len(chosen)]
        others = [i for i in alive if i not in heads]
        beaten, within, needed = set(), set(), 0.0
        pairs = [(h, i) for h in heads for i in others]
        lacks = {}
        for leader, i in pairs:
            gap = mean[leader] - mean[i]
            if pairwise:
                d = seen[:, leader] - seen[:, i]
                span = 0.0 if low is None else high[leader] - low[leader] + high[i] - low[i]
                width = half_width(d, n_rows, bound, log_inv_delta, quantiles[k], span)
                width = 0.0 if leader in still and i in still else width
            else:
                spans = np.zeros(n_arms) if low is None else high - low
                d = -seen[:, i]
                width = sum(half_width(seen[:, j], n_rows, bound, log_inv_delta, quantiles[k], spans[j])
                            for j in (leader, i))
            stands, wait = [], 0.0
            for shift in (epsilon, 0.0) if epsilon else (0.0,):
                wide, rest = width, 0.0
                if bound == "betting":
                    known = (constant[leader] - constant[i]) / n_rows + shift
                    if scores is None:
                        _, peak, impossible = betting.wealth(list(d + known), n_rows, low[leader] - high[i] + known)
                    else:
                        _, peak, impossible = adjusted.wealth(rows, leader, i, known)
                    stands.append(impossible or peak >= log_inv_delta)
                else:
                    stands.append(gap + shift > width)
                    if stands[-1] and tails and bound == "normal":
                        reach = [0.0 if a in still else math.inf if low is None else high[a] - low[a]
                                 for a in (leader, i)]
                        wide, rest = tail_evidence(seen, leader, i, gap + shift, width, n_rows, quantiles[k], pairwise,
                                                   reach)
                        stands[-1] = gap + shift > wide and rest <= n
                    if bound == "normal" and guarded:
                        # What makes a lead look too large: differences, or one of two means, skewed the wrong way.
                        skewness = sample_skewness(d)
                        if not pairwise:
                            skewness = min(skewness, sample_skewness(seen[:, leader]))
                        stands[-1] &= bool(bounds.skewness_inflation(skewness, n, n_rows, quantiles[k]) <= 0.25)
                if len(stands) == 1:
                    wait, lacks[leader, i] = rest, (gap + epsilon, wide, rest)
            if stands[0]:
                within.add((leader, i))
            if all(stands):
                beaten.add((leader, i))
        out = [i for i in others if all((h, i) in beaten for h in heads)]
        left = [i for i in others if i not in out]
        if not left:
            alive = heads
            return found(heads, k + 1, "bound")
        sure = [h for h in heads if all((h, i) in beaten for i in others)]
        alive = [i for i in alive if i not in out and i not in sure]
        chosen += sure
        if epsilon > 0 and within >= {(h, i) for h in heads for i in left}:
            return found([h for h in heads if h not in sure], k + 1, "epsilon")
        for (h, i), (gap, width, wait) in lacks.items():
            if h in alive and i in alive:
                needed = max(needed, rows_needed(gap, width, n, n_rows), wait)
        to_pass = n_rows - n if window else n_rows      # a window goes on in order from where it is
        full_pass = advantage > 1 and advantage * looks[k + 1] > 0.05 * n_rows and advantage * (needed - n) > to_pass
    raise AssertionError("the last look reads every row")


class Adjusted:
    """Rewards less what a proxy says of them, every sum anew: a coefficient per arm and part of the order of rows."""

    def __init__(self, values, scores, low, high):
        self.values, self.low, self.high = values, low, high
        self.n_rows, self.n_arms = values.shape
        self.shared = scores.ndim == 1 or scores.shape[1] == 1
        self.q = np.broadcast_to(scores.reshape(self.n_rows, -1) - scores.reshape(self.n_rows, -1).mean(axis=0),
                                 values.shape)
        self.slope = np.zeros(self.n_arms)
        self.parts = [(0, self.slope, np.zeros(self.n_arms))]       # first row, coefficients, what is added

    def learn(self, rows, alive):
        """Begin a part if the rows have doubled since the last, up to half of the population."""
        n, y, q = len(rows), self.values[rows], self.q[rows]
        if n < 2 * self.parts[-1][0] or 2 * n > self.n_rows:
            return
        most = (self.high - self.low) / np.maximum(np.ptp(self.q, axis=0), 1e-300)
        slope = self.slope.copy()
        if self.shared:
            for i in alive:
                slope[i] = self.regression(y[:, i], q[:, i], n, most[i], np.ptp(self.q[:, i]))
        else:
            both = [x[:, alive] - x[:, alive].mean(axis=1, keepdims=True) for x in (y, q)]
            slope[:] = self.regression(*both, n, most[alive].min(), np.ptp(self.q[:, alive[0]]))
        shift = ((y - slope * q).sum(axis=0) - self.bets(rows)[0].sum(axis=0)) / (self.n_rows - n)
        self.slope = slope
        self.parts.append((n, slope, shift))

    @staticmethod
    def regression(y, q, n, most, width):
        square = ((q - q.mean(axis=0)) ** 2).sum()
        if not square > 1e-12 * n * width**2:
            return 0.0
        return np.clip((y * (q - q.mean(axis=0))).sum() / square * n / (n + 8), -most, most)

    def bets(self, rows):
        """What is bet on for each row and arm, and the part of each row."""
        begins = np.array([part[0] for part in self.parts])
        which = np.searchsorted(begins, np.arange(len(rows)), "right") - 1
        slope, shift = (np.array([part[k] for part in self.parts])[which] for k in (1, 2))
        return self.values[rows] - slope * self.q[rows] + shift, which

    def wealth(self, rows, a, b, known):
        """The gambler's wealth, for the mean of arm a less that of arm b; either may be None, for zeros."""
        bets, which = self.bets(rows)

        def pair(x):
            return (0.0 if a is None else x[..., a]) - (0.0 if b is None else x[..., b])

        lows = []
        for _, slope, shift in self.parts:
            support = (0.0 if a is None else self.low[a]) - (0.0 if b is None else self.high[b])
            lows.append(support - pair(slope * self.q).max() + pair(shift) + known)

        def anew(n):
            _, slope, shift = self.parts[which[n]]
            return pair(self.values[rows[:n]] - slope * self.q[rows[:n]] + shift)

        return betting.wealth(pair(bets) + known, self.n_rows, np.array(lows)[which], anew=anew)


def difference(x, y, n_rows, bound, delta, n_arms, looks, low, high):
    """Interval of mean(x) - mean(y): any two of the arms may be compared, from both sides, at any look."""
    d, share = x - y, delta / (n_arms * (n_arms - 1))
    rest = (1 - len(d) / n_rows) * (high - low)
    ends = [d.sum() / n_rows - rest, d.sum() / n_rows + rest]
    if bound != "betting":
        width = half_width(d, n_rows, bound, math.log(len(looks) / share), 0.0, 2 * (high - low))
        return max(ends[0], d.mean() - width), min(ends[1], d.mean() + width)
    found = []
    for side, end in ((1, ends[0]), (-1, ends[1])):     # the candidate nearest to the mean that is refuted
        good, bad = side * end, side * d.mean()
        for _ in range(40):
            middle = (good + bad) / 2
            _, peak, impossible = betting.wealth(list(side * d - middle), n_rows, low - high - middle)
            good, bad = (middle, bad) if impossible or peak >= -math.log(share) else (good, middle)
        found.append(side * good)
    return tuple(found)


def tail_evidence(seen, leader, i, gap, width, n_rows, quantile, pairwise, reach):
    """Half-width of a lead, what may be missing of tails considered, and the rows to read before it is believed.

    `reach` says how far off a reward of the leader, and of the arm, may lie that has not been seen.
    """
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
    for c, side, far in ((x, -1, reach[0]), (y, 1, reach[1])):
        if c.std() <= 1e-12 * abs(c.mean()):        # 48 unseen rewards that far off must not close the gap
            wait = max(wait, min(n_rows, 48 * far / gap) if 48 * far > n * gap else 0.0)
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
        width = bound(*(known if bound is bounds.hoeffding_serfling else (*known[:2], std, *known[2:], cut and n > 1)))
    lower, upper = mean - width, mean + width
    if low is not None:         # rows not read lie within the support
        lower = max(lower, (constant + np.sum(x) + (n_rows - n) * low) / n_rows)
        upper = min(upper, (constant + np.sum(x) + (n_rows - n) * high) / n_rows)
    return lower, upper


def rows_needed(gap, width, n, n_rows):
    if gap <= 0 or width <= 0:
        return 0.0 if gap > 0 else float(n_rows)
    v = (1 / n - 1 / n_rows) * (gap / width) ** 2
    return 1 / (v + 1 / n_rows)
