"""LUCB by pairs: every wealth from three moments of the rewards, everything computed anew in each round."""

import math

import numpy as np
from scipy import special

from reference import bounds
from reference.lucb import kl_bounds

ODDS = 16.0 * 0.5 ** np.arange(40)         # logs of them
SCALES = tuple((15 / 2.5**s, share) for s, share in enumerate(
    [0.05, 0.1, 0.2, 0.6, 1, 1, *(0.6 * k**-1.5 for k in range(1, 21))]))
KEPT = 1 / 3        # of the first unit of wealth, by who splits the rest among several


def weights():
    """Of the bets: half-normal laws over their log odds, one per scale."""
    total = np.zeros(ODDS.size)
    for scale, share in SCALES:
        law = ODDS * np.exp(-0.5 * (ODDS / scale) ** 2)
        total += share * law / law.sum()
    return total / total.sum()


def log_betting_wealth(rewards, floor, idle=False):
    """Log of the mean wealth of bettors on each reward in [0, 1] in turn, that the mean is above `floor`.

    With `idle`, those of the smallest odds have what they have at least, whatever the rewards are.
    """
    x = np.asarray(rewards, float)
    growth = (np.log1p(np.expm1(ODDS)[:, None] * x) - np.log1p(np.expm1(ODDS)[:, None] * floor)).sum(axis=1)
    if idle:
        few = np.expm1(ODDS) * x.size <= 1
        growth[few] = np.log1p(-np.expm1(ODDS[few]) * x.size)
    return special.logsumexp(growth, b=weights())


def moments(rewards):
    """How many rewards in [0, 1], and their sums of x, x (1 - x) and x^2 (1 - x)."""
    x = np.asarray(rewards, float)
    return x.size, x.sum(), (x * (1 - x)).sum(), (x * x * (1 - x)).sum()


def stand_ins(n, total, first, second):
    """Values 0, point, 1 and how many of each have the first three moments of the rewards."""
    point, inner, ones = 0.5, 0.0, total
    if first > 1e-12 * n and 1e-9 < second / first < 1 - 1e-9:
        point = second / first
        inner = first / (point * (1 - point))
        ones = max(total - first / (1 - point), 0.0)
    return np.array([0.0, point, 1.0]), np.array([max(n - inner - ones, 0.0), inner, ones])


def log_wealth(value, count, floor):
    """At most log_betting_wealth of the rewards that `stand_ins` stand for; and its derivative in `floor`.

    Bettors whose odds ratio is at most 1 + 1 / n count as if their wealth had fallen by as much at every reward.
    """
    n, law, gain = count.sum(), weights(), np.expm1(ODDS)
    awake = gain * n > 1
    parts = np.append(np.log1p(gain[awake, None] * value) @ count - n * np.log1p(gain[awake] * floor), 0.0)
    rises = np.append(-n * gain[awake] / (1 + gain[awake] * floor), 0.0)
    law = np.append(law[awake], (law * (1 - gain * n))[~awake].sum())
    found = special.logsumexp(parts, b=law)
    return found, float((law * np.exp(parts - found) * rises).sum())


class Arms:
    """What the rule knows of its arms."""

    def __init__(self, low, high, n_best, epsilon, delta):
        self.low, self.high, self.n_best, self.epsilon = np.asarray(low), np.asarray(high), n_best, epsilon
        self.n, self.span, self.goal = len(low), self.high - self.low, math.log(1 / delta)
        self.pulls, self.held, self.failed = np.zeros(self.n, int), None, None
        self.spent, self.origin = 0, 0.0
        self.means, self.squares, self.first, self.second = np.zeros((4, self.n))
        self.begin, self.small, self.budget = 1, False, 512

    def ready(self):
        """The first pulls of all arms are made."""

    def take(self, i, rewards):
        for reward in rewards:
            step = reward - self.means[i]
            self.pulls[i] += 1
            self.means[i] += step / self.pulls[i]
            self.squares[i] += step * (reward - self.means[i])
            x = min(max((reward - self.low[i]) / self.span[i], 0.0), 1.0)
            self.first[i] += x * (1 - x)
            self.second[i] += x * (x * (1 - x))

    def evidence(self, i, side, cut):
        """Log wealth for "the mean is above the cut" (side 0), or "below cut + epsilon"; and its derivative."""
        at = (cut - self.low[i]) / self.span[i] if side == 0 else (self.high[i] - cut - self.epsilon) / self.span[i]
        if not at > 1e-12:
            return math.inf, 0.0
        n = self.pulls[i]
        value, count = stand_ins(n, (self.means[i] - self.low[i]) / self.span[i] * n, self.first[i], self.second[i])
        log, slope = log_wealth(value, count, at) if side == 0 else log_wealth(1 - value, count, at)
        slope *= (1 if side == 0 else -1) / self.span[i]
        others = self.n - self.n_best if side == 0 else self.n_best
        if others == 1:
            return log, slope
        both = np.logaddexp(log + math.log((1 - KEPT) / others), math.log(KEPT))
        return both, slope * math.exp(log + math.log((1 - KEPT) / others) - both)

    def share(self, i, j, pulls):
        if self.small and min(self.pulls[i], self.pulls[j]) < 16:
            return 0.5 * pulls
        return pulls * self.variance(i) / (self.variance(i) + self.variance(j))

    def variance(self, i):
        return (self.squares[i] + 0.25 * self.span[i] ** 2) / ((self.pulls[i] + 1.0) * self.pulls[i])

    def bounds(self, i, level):
        """The wider of two score bounds: roots u of (u - mean)^2 = 2 s v(u), v the variance that u would have.

        Of a small budget, the mean of the first and of where a divergence of Bernoulli laws is as large.
        """
        n, mean = self.pulls[i], (self.means[i] - self.low[i]) / self.span[i]
        middle, varies = (n * mean + 0.5) / (n + 1), max(mean * (1 - mean), 0)
        s = min((self.squares[i] / self.span[i] ** 2 + 0.5) / ((n + 1) * middle * (1 - middle)), 1) * level / n
        ends = []
        for share in (1.0, 0.5):     # of u (1 - u) in v(u); the rest is that at the mean
            a, b, c = 1 + 2 * s * share, -(2 * mean + 2 * s * share), mean**2 - 2 * s * (1 - share) * varies
            root = math.sqrt(max(b * b - 4 * a * c, 0))
            ends.append(((-b - root) / (2 * a), (-b + root) / (2 * a)))
        lower, upper = min(ends)[0], max(end[1] for end in ends)
        if self.small:
            lower, upper = np.mean([ends[0], kl_bounds(min(max(mean, 0.0), 1.0), s)], axis=0)
        return self.low[i] + self.span[i] * lower, self.low[i] + self.span[i] * upper

    def hardest(self, i, j):
        """Evidence that a normal law would have for the order of i and j, and the cut where it would be least."""
        gap, ours, its = self.means[i] - self.means[j] + self.epsilon, self.variance(i), self.variance(j)
        return (gap * gap / (ours + its) / 2 if gap > 0 else 0.0), self.means[i] - gap * ours / (ours + its)

    def passes(self, i, j):
        size, cut = self.hardest(i, j)
        if size < self.goal / 2:
            return False
        curved = 1 / self.variance(i) + 1 / self.variance(j)
        for _ in range(4):
            (ours, up), (its, down) = self.evidence(i, 0, cut), self.evidence(j, 1, cut)
            if ours + its < self.goal:
                return False
            if ours + its == math.inf:
                break
            cut -= (up + down) / curved
        if self.failed is None:
            return True
        return self.evidence(i, 0, self.failed)[0] + self.evidence(j, 1, self.failed)[0] >= self.goal

    def least(self, i, j, a, b):
        """Evidence of a pair where it is least in [a, b], by twelve halvings; `failed` becomes that cut."""
        found = math.inf
        for _ in range(12):
            middle = 0.5 * (a + b)
            (ours, up), (its, down) = self.evidence(i, 0, middle), self.evidence(j, 1, middle)
            if ours + its < found:
                found, self.failed = ours + its, middle
            a, b = (a, middle) if up + down > 0 else (middle, b)
        return found

    def line(self, i, side, a, b):
        """Evidence in the middle of [a, b], and the ends of a line below it."""
        value, slope = self.evidence(i, side, 0.5 * (a + b))
        if value == math.inf:
            end = self.evidence(i, side, b if side == 0 else a)[0]
            return value, (end, end)
        return value, (value - slope * 0.5 * (b - a), value + slope * 0.5 * (b - a))

    def suffices(self, best, rest, a, b, depth):
        """Whether all pairs have evidence of at least `goal` at all cuts in [a, b]; tangents of convex functions."""
        middle, ends, arms = 0.5 * (a + b), [], []
        for side, group in ((0, best), (1, rest)):
            lines, values = [], []
            for i in group:
                value, line = self.line(i, side, a, b)
                if value < math.inf:
                    values.append((value, i))
                lines.append(line)
            ends.append(np.min(lines, axis=0))
            arms.append(min(values, default=None))
        if None not in arms and (arms[0][0] + arms[1][0] < self.goal or depth == 0):
            self.held = (arms[0][1], arms[1][1])
            return self.least(*self.held, a, b) >= self.goal
        if depth == 0 or (ends[0] + ends[1] >= self.goal).all():
            return True
        return (self.suffices(best, rest, a, middle, depth - 1) and self.suffices(best, rest, middle, b, depth - 1))

    def over(self, best, rest, weakest, rival):
        """Whether the rule stops; if not, `held` is a pair that refuses."""
        if self.spent > 100 * self.pulls.sum() or not self.passes(*self.held):
            return False
        first = self.held
        for i in np.roll(np.arange(self.n), -first[1] - 1):
            self.spent += 10
            if i in rest and not self.passes(weakest, i):
                self.held = (weakest, int(i))
                return False
        for i in np.roll(np.arange(self.n), -first[0] - 1):
            self.spent += 10
            if i in best and not self.passes(i, rival):
                self.held = (int(i), rival)
                return False
        self.spent += 10 * self.n
        return self.search(best, rest, weakest, rival)

    def search(self, best, rest, weakest, rival):
        """Whether all pairs have enough evidence at all cuts."""
        a, b = float(self.low.min()), float(self.high.max()) - self.epsilon
        if a >= b:
            return True
        cut = min(max(self.hardest(weakest, rival)[1], a), b)
        return (self.suffices(best, rest, cut, cut, 1) and self.suffices(best, rest, a, cut, 60)
                and self.suffices(best, rest, cut, b, 60))


class FreeArms(Arms):
    """Arms whose rewards have no support: sub-Gaussian of known scales, or symmetric (`scale` None)."""

    def __init__(self, n, scale, n_best, epsilon, delta):
        super().__init__(np.full(n, -1e100), np.full(n, 1e100), n_best, epsilon, delta)
        self.symmetric, self.begin, self.budget = scale is None, 5 if scale is None else 1, 16
        self.unused = 5             # rewards of an arm that only say in which unit to bet
        self.scale, self.centre = np.array(np.broadcast_to(1.0 if scale is None else scale, n), float), np.zeros(n)
        self.tilts = (1.5 if self.symmetric else 4.0) / 1.6 ** np.arange(48)
        self.weights = 1 / (1 + np.log(self.tilts / 0.08) ** 2)
        self.weights /= self.weights.sum()
        self.rewards = [[] for _ in range(n)]       # and all else count from the origin
        self.origin = 0.0

    def take(self, i, rewards):
        rewards = np.asarray(rewards, float) - self.origin
        super().take(i, rewards)
        self.rewards[i] += rewards.tolist()

    def ready(self):
        """Far from 0 count from the mean of the last arm wanted, unless another one is much nearer to 0."""
        means = np.array([math.fsum(rewards) / len(rewards) for rewards in self.rewards])
        last = sorted(range(self.n), key=lambda i: (-means[i], i))[self.n_best - 1]
        scale = np.std(self.rewards[last]) if self.symmetric else self.scale[last]
        if abs(means[last]) > 2**20 * scale and (np.abs(means - means[last]) <= 2 * np.abs(means)).all():
            firsts, self.origin = self.rewards, means[last]
            self.rewards, self.pulls = [[] for _ in range(self.n)], np.zeros(self.n, int)
            self.means, self.squares = np.zeros((2, self.n))
            for i, rewards in enumerate(firsts):
                self.take(i, rewards)
        if self.symmetric:
            firsts = np.array([rewards[: self.begin] for rewards in self.rewards])
            usual = firsts.var(axis=1, ddof=1).mean() or firsts.mean(axis=1).var() or 1.0
            self.centre, self.scale = firsts.mean(axis=1), np.sqrt(firsts.var(axis=1, ddof=1) + 0.01 * usual)

    def awake(self, n):
        """Tilts that are looked at after n rewards: 18, and smaller ones once a mean is known so well."""
        return self.tilts[(np.arange(48) < 18) | (self.tilts**2 * n > 0.1)]

    def bettors(self, i, side, cut):
        """Log wealth of each that is looked at, and its derivative in the cut."""
        sign = 1 - 2 * side
        y = np.array(self.rewards[i][self.unused :] if self.symmetric else self.rewards[i])
        y = sign * (y - self.centre[i]) / self.scale[i]
        tilt = self.awake(y.size)
        cut = np.full(tilt.size, sign * (cut - self.centre[i]) / self.scale[i])
        if not self.symmetric:
            return tilt * (y.sum() - y.size * cut) - tilt**2 / 2 * y.size, -sign * tilt * y.size / self.scale[i]
        held = np.maximum(cut, -1 / tilt)
        gains = y[:, None] - held
        tail = self.tail(i, side) / self.scale[i]
        above = gains.sum(axis=0)
        rise = (tilt**2 * gains - tilt).sum(axis=0) + np.where(above > 0, tilt**2 / 2 * tail * y.size, 0.0)
        squares = (gains**2).sum(axis=0) + tail * np.maximum(above, 0.0)
        return tilt * above - tilt**2 * squares / 2, sign * np.where(cut > -1 / tilt, rise, 0.0) / self.scale[i]

    def tail(self, i, side):
        """Of symmetric rewards, no tail is longer than the other."""
        return 0.0

    def mixed(self, i, side, logs, slopes):
        """Log of the wealth of all with what is kept, and its derivative."""
        weights = self.weights[: len(logs)]
        log = special.logsumexp(logs, b=weights)
        slope = (weights * np.exp(logs - log) * slopes).sum()
        others = self.n_best if side else self.n - self.n_best
        kept = KEPT if others > 1 else 0.05
        both = np.logaddexp(log + math.log((1 - kept) / others), math.log(kept))
        return both, float(slope * math.exp(log + math.log((1 - kept) / others) - both))

    def evidence(self, i, side, cut):
        return self.mixed(i, side, *self.bettors(i, side, cut + self.epsilon * side))

    def line(self, i, side, a, b):
        value = self.evidence(i, side, 0.5 * (a + b))[0]
        left, right = (self.bettors(i, side, end + self.epsilon * side)[0] for end in (a, b))
        if a == b:
            return value, (value, value)
        logs, slopes = 0.5 * (left + right), (right - left) / (b - a)
        if self.symmetric:                  # where the level part ends between: the smaller end
            inner = np.array([1, -1])[side] * (np.array([a, b]) + self.epsilon * side - self.centre[i]) / self.scale[i]
            bent = (inner.min() < -1 / self.tilts[: len(logs)]) & (inner.max() > -1 / self.tilts[: len(logs)])
            logs, slopes = np.where(bent, np.minimum(left, right), logs), np.where(bent, 0.0, slopes)
        value_of_line, slope = self.mixed(i, side, logs, slopes)
        return value, (value_of_line - slope * 0.5 * (b - a), value_of_line + slope * 0.5 * (b - a))

    def outside(self, i, side, cut):
        """The least evidence from the cut outwards: every bettor's is concave beyond its level part."""
        if not self.symmetric:
            return math.inf if math.isinf(cut) else self.evidence(i, side, cut)[0]
        sign = 1 - 2 * side
        logs = [self.bettors(i, side, cut + self.epsilon * side)[0]]
        logs += [np.array([self.bettors(i, side, self.centre[i] - sign * self.scale[i] / tilt)[0][j]
                           for j, tilt in enumerate(self.tilts[: len(logs[0])])])]
        return self.mixed(i, side, np.min(logs, axis=0), 0.0)[0]

    def variance(self, i):
        n, square = self.pulls[i], self.scale[i] ** 2
        return (self.squares[i] + 0.02 * square) / n**2 if self.symmetric else square / n

    def bounds(self, i, level):
        level = 2 * level / self.pulls[i]
        half = math.sqrt(self.pulls[i] * self.variance(i) * (math.expm1(min(level, 100)) if self.symmetric else level))
        return self.means[i] - half, self.means[i] + half

    def search(self, best, rest, weakest, rival):
        cut = self.hardest(weakest, rival)[1]
        if not self.suffices(best, rest, cut, cut, 1):
            return False
        ends = [cut, cut]
        for side, group in ((0, best), (1, rest)):
            sign = 2 * side - 1
            need = self.goal - math.log(KEPT if len(group) > 1 else 0.05)   # the other side keeps that share
            for i in group:
                if self.outside(i, side, sign * math.inf) < need:
                    self.held = (i, rival) if side == 0 else (weakest, i)
                    return False
                step = self.scale[i]
                while self.outside(i, side, ends[side]) < need:
                    ends[side] += sign * step
                    step *= 2
        return (self.suffices(best, rest, ends[0], cut, 60) and self.suffices(best, rest, cut, ends[1], 60))


def pairs(pull, low, high, n_best, epsilon, delta, batch=0, max_pulls=math.inf, arms=None, known=False):
    """Run the rule; returns (chosen, list of (arm, count) in order, why it stopped, means, pulls).

    `pull(arm, count)` gives the rewards that came of so many pulls, which may be fewer. With `known`, the rule knows
    `max_pulls` beforehand, as in a call of `run`.
    """
    arms, made = arms or Arms(low, high, n_best, epsilon, delta), []
    arms.small = known and max_pulls < arms.budget * arms.n

    def take(i, count):
        if count:
            arms.take(i, pull(i, count))
            made.append((i, count))

    def pulls():
        return [sum(count for arm, count in made if arm == i) for i in range(arms.n)]

    while min(arms.pulls) < arms.begin:
        for i in range(arms.n):
            take(i, arms.begin - arms.pulls[i])
    arms.ready()
    rounds = grid = 1
    carry, turn = 0.0, 0
    while True:
        means, counts = arms.means.tolist(), arms.pulls.tolist()
        order = sorted(range(arms.n), key=lambda i: (-means[i], i))
        best, rest = order[:n_best], order[n_best:]
        level = arms.goal + 0.5 * math.log(grid)
        weakest = min(best, key=lambda i: (arms.bounds(i, level)[0], -i))
        rival = max(rest, key=lambda i: (arms.bounds(i, level)[1], -i))
        if arms.held is None or arms.held[0] not in best or arms.held[1] not in rest:
            arms.held = (weakest, rival)
        if arms.over(best, rest, weakest, rival):
            arms.epsilon = 0.0
            why = "bound" if epsilon == 0.0 or arms.search(best, rest, weakest, rival) else "epsilon"
            return set(best), made, why, [mean + arms.origin for mean in means], pulls()
        h, j, size = weakest, rival, (weakest, rival)
        if arms.passes(weakest, rival):
            turn = (turn + 1) % 8
            if turn == 0:
                size = arms.held
            elif not arms.passes(arms.held[0], rival):
                size = (h, j) = (arms.held[0], rival)
            elif not arms.passes(weakest, arms.held[1]):
                size = (h, j) = (weakest, arms.held[1])
            else:
                size = (h, j) = arms.held
        count = batch or max(1, min(counts[size[0]], counts[size[1]]) // 100)
        if sum(pulls()) + 2 * count > max_pulls:
            return set(best), made, "max_pulls", [mean + arms.origin for mean in means], pulls()
        wanted = arms.share(h, j, 2 * count) + carry
        ours = int(min(max(math.floor(wanted + 0.5), 0), 2 * count))
        carry = wanted - ours
        take(h, ours)
        take(j, 2 * count - ours)
        rounds += count
        while grid < rounds:
            grid = max(grid + 1, math.ceil(1.02 * grid))


class AsymptoticArms(FreeArms):
    """Arms of unknown support: bets as for symmetric rewards, on all rewards, from the first look on."""

    def __init__(self, n, first_look, n_best, epsilon, delta):
        super().__init__(n, None, n_best, epsilon, delta)
        self.begin, self.unused = first_look, 0

    def tail(self, i, side):
        return bounds.tail_variance(self.rewards[i], 2 * side - 1, 1.0)

    def lacks(self, i, side, rival):
        """Whether arm i, chosen (side 0) or not, lacks pulls for a lead that has enough evidence."""
        x, sign = np.array(self.rewards[i]), 2 * side - 1
        gap = abs(self.means[i] - self.means[rival] - sign * self.epsilon)
        size = sign * np.std(x) * bounds.sample_skewness(x) if np.ptp(x) > 0 else 0.0
        return not bounds.lead_counts(x, sign, size, bounds.tail_size(self.rewards[rival]), gap, self.origin)

    def held_back(self, i, j):
        return self.lacks(i, 0, j) or self.lacks(j, 1, i)

    def passes(self, i, j):
        return super().passes(i, j) and not self.held_back(i, j)

    def share(self, i, j, pulls):
        if super().passes(i, j) and self.lacks(i, 0, j) != self.lacks(j, 1, i):
            return pulls if self.lacks(i, 0, j) else 0.0
        return super().share(i, j, pulls)

    def search(self, best, rest, weakest, rival):
        for i in range(self.n):
            for j in sorted(rest if i in best else best):
                if self.lacks(i, 0 if i in best else 1, j):
                    self.held = (i, j) if i in best else (j, i)
                    return False
        return super().search(best, rest, weakest, rival)
