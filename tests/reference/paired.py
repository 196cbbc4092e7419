"""LUCB in common rounds: all evidence of all pairs computed anew at each decision."""

import math

import numpy as np
from scipy import special

from reference.duels import Duels
from reference.pairs import Arms, log_wealth, moments, stand_ins

KEPT, SPLIT = 0.05, 1 / 3


class PairedArms(Arms):
    """Arms with the pulls of each outside common rounds, and the duels of the rounds."""

    def __init__(self, low, high, n_best, epsilon, delta):
        super().__init__(low, high, n_best, epsilon, delta)
        self.n_best, rest = n_best, self.n - n_best
        self.idle = SPLIT if rest > 1 else 0.0, SPLIT if n_best > 1 else 0.0
        self.duels, self.kind = Duels(low, high, n_best, epsilon), int(epsilon > 0)
        self.alone, self.common = [[] for _ in range(self.n)], 0
        self.most, self.out, self.sure = np.zeros((self.n, self.n)), set(), set()

    def take_rounds(self, arms, block, best):
        self.common += len(block)
        for row in block:
            rewards = np.zeros(self.n)
            rewards[arms] = row
            standing = np.where([i in self.out for i in range(self.n)], -math.inf, self.means)
            self.duels.seat(standing, arms, max(len(best & set(arms)), 1))
            self.duels.push(rewards, arms)
        for i, rewards in zip(arms, np.transpose(block), strict=True):
            self.take(i, rewards)

    def take_alone(self, i, rewards):
        self.alone[i] += list(np.clip((rewards - self.low[i]) / self.span[i], 0, 1))
        self.take(i, rewards)

    def single(self, i, side, cut):
        """Evidence of pulls outside common rounds, and its derivative."""
        at = (cut - self.low[i]) / self.span[i] if side == 0 else (self.high[i] - cut - self.epsilon) / self.span[i]
        if not at > 1e-12:
            return math.inf, 0.0
        value, count = stand_ins(*moments(self.alone[i]))
        log, slope = log_wealth(value if side == 0 else 1 - value, count, at)
        both = np.logaddexp(log + math.log(1 - KEPT), math.log(KEPT))
        return both, slope * (1 if side == 0 else -1) / self.span[i] * math.exp(log + math.log(1 - KEPT) - both)

    def whole(self, ours, its, together, up=0.0, down=0.0):
        """Log of the wealth of a pair as a mean over what is staked, and its derivative."""
        (h, g), m, rest = self.idle, self.n_best, self.n - self.n_best
        shares = np.array([h * g, (1 - h) * g / rest, h * (1 - g) / m, (1 - h) * (1 - g) / (m * rest)])
        logs = np.array([0.0, ours, its, ours + its + together])
        log = special.logsumexp(logs, b=shares)
        return log, float((shares * np.exp(logs - log) * np.array([0.0, up, down, up + down])).sum())

    def least_whole(self, i, j, together):
        a, b, ends, least, lower = self.low[i], self.high[j] - self.epsilon, [None, None], math.inf, math.inf
        if not a < b:
            return math.inf
        if not self.alone[i] or not self.alone[j]:
            return self.whole(*(math.log(KEPT) if self.alone[k] else 0.0 for k in (i, j)), together)[0]
        for _ in range(60):
            cut = 0.5 * (a + b)
            (up, rise), (down, fall) = self.single(i, 0, cut), self.single(j, 1, cut)
            if up + down == math.inf:
                a, b = (cut, b) if cut - self.low[i] <= self.high[j] - self.epsilon - cut else (a, cut)
                continue
            value, slope = self.whole(up, down, together, rise, fall)
            least, tangent = min(least, value), (cut, value, slope)
            if slope < 0:
                a, ends[0] = cut, tangent
            else:
                b, ends[1] = cut, tangent
            if None not in ends:
                (x, v, s), (y, w, t) = ends
                lower = v + s * (w - t * (y - x) - v) / (s - t)
            else:
                lower = ends[0][1] + ends[0][2] * (b - a) if ends[0] else ends[1][1] - ends[1][2] * (b - a)
            if least - lower < 1e-3:
                break
        return max(lower, self.whole(math.log(KEPT), math.log(KEPT), together)[0])

    def now(self, i, j):
        """Each turn in a seat begins with half of what was left, so that as much is left."""
        d, seats = self.duels, self.duels.seats < self.duels.n
        share = -math.log(2) * d.turns[i] if seats else 0.0
        if not self.alone[i] and not self.alone[j]:
            together = d.evidence(i, j, self.kind)
        elif not d.seated[i]:
            together = share
        else:
            wealth = np.logaddexp.reduce(d.wealth[i, j, self.kind])
            together = share + (math.inf if d.impossible[i, j, self.kind] else wealth)
        if together == math.inf:
            return math.inf
        if seats and d.seated[i]:
            together = np.logaddexp(together, share)
        return self.least_whole(i, j, np.logaddexp(together + math.log(1 - KEPT), math.log(KEPT)))

    def choose(self):
        opened = sorted(set(range(self.n)) - self.out - self.sure, key=lambda i: (-self.means[i], i))
        return self.sure | set(opened[:self.n_best - len(self.sure)])

    def judge(self):
        before = len(self.out) + len(self.sure)
        for i in sorted(set(range(self.n)) - self.out - self.sure):
            above = sum(self.most[j, i] >= self.goal for j in range(self.n) if j != i and j not in self.out)
            below = sum(self.most[i, j] >= self.goal for j in range(self.n) if j != i and j not in self.sure)
            if above >= self.n_best and len(self.out) < self.n - self.n_best:
                self.out.add(i)
            elif below >= self.n - self.n_best and len(self.sure) < self.n_best:
                self.sure.add(i)
        return len(self.out) + len(self.sure) > before

    def reopen(self, best):
        """If nothing else could be chosen, take back verdicts that a pair without evidence speaks against."""
        if len(self.out) < self.n - self.n_best and len(self.sure) < self.n_best:
            return False
        pairs = [(i, j) for i in best for j in set(range(self.n)) - best
                 if self.means[j] > self.means[i] and self.most[i, j] < self.goal and {i, j} & (self.out | self.sure)]
        self.out -= {j for _, j in pairs}
        self.sure -= {i for i, _ in pairs}
        return bool(pairs)

    def review(self, best):
        """Pairs that lack evidence, with the rate of what they lack; and whether one has enough that had not."""
        lack, news = {}, False
        for i in sorted(best):
            for j in sorted(set(range(self.n)) - best):
                if self.most[i, j] >= self.goal:
                    continue
                now = self.now(i, j)
                self.most[i, j] = max(self.most[i, j], now)
                if now >= self.goal:
                    news = True
                    continue
                gap = self.means[i] - self.means[j] + self.epsilon
                lack[i, j] = (max(gap * gap, self.variance(i) + self.variance(j))
                              / (2 * max(self.goal - now, 1.0)))
        return lack, news

    def price_together(self, lack):
        rounds = np.zeros(self.n)
        for (i, j), rate in lack.items():
            n = self.duels.seen[i, j, 0] if self.duels.seated[i] else 0
            more = self.variance(i) * self.pulls[i] + self.variance(j) * self.pulls[j]
            spread = (self.duels.square[i, j, 0] + more) / (n + 1) if n else more
            rounds[[i, j]] = np.maximum(rounds[[i, j]], spread / rate)
        shown = self.common * math.sqrt(np.count_nonzero(rounds) - 1)
        return rounds.sum() * (1 - math.sqrt(2 / (shown + 2)))

    def price_single(self, lack):
        """The smaller side has a lead over what its pairs alone would ask for."""
        std = [math.sqrt(self.variance(i) * self.pulls[i]) for i in range(self.n)]
        first = 1 if self.n_best > self.n - self.n_best else 0
        base = {}
        for pair, rate in lack.items():
            i, j = pair[first], pair[1 - first]
            base[i] = max(base.get(i, 0), std[i] * (std[i] + std[j]) / rate)
        totals = []
        for lead in 1.5 ** np.arange(8):
            its = {}
            for pair, rate in lack.items():
                i, j = pair[first], pair[1 - first]
                its[j] = max(its.get(j, 0), std[j] ** 2 / (rate - std[i] ** 2 / (lead * base[i])))
            totals.append(lead * sum(base.values()) + sum(its.values()))
        return min(totals)


def paired(values, low, high, n_best, epsilon, delta, batch=0, max_pulls=math.inf, known=False):
    """Run the rule on rows in order; returns (chosen, requests as (arms, count), why it stopped, arms).

    With `known`, the rule knows `max_pulls` beforehand.
    """
    arms, made, row = PairedArms(low, high, n_best, epsilon, delta), [], 0
    arms.small = known and max_pulls < arms.budget * arms.n
    rounds = grid = 1
    carry, single = 0.0, False

    def ask(wanted, count):
        nonlocal row
        made.append((tuple(wanted), count))
        block = values[row:row + count][:, wanted]
        if len(wanted) > 1:
            arms.take_rounds(list(wanted), block, best)
        else:
            arms.take_alone(wanted[0], block[:, 0])
        row += count

    best = set()
    ask(range(arms.n), 1)
    while True:
        while grid < rounds:
            grid = max(grid + 1, math.ceil(1.02 * grid))
        best = arms.choose()
        while True:
            lack, news = arms.review(best)
            if not (news and arms.judge()):
                break
            best = arms.choose()
        if lack and arms.reopen(best):
            arms.judge()
            news = True
            while news:
                best = arms.choose()
                lack, news = arms.review(best)
                news = news and arms.judge()
        if not lack:
            return best, made, "bound" if epsilon == 0.0 else "epsilon", arms
        if arms.pulls.sum() > max_pulls:
            return best, made, "max_pulls", arms
        single = (arms.common >= 4 and arms.common * (arms.n - 1) >= 32
                  and arms.price_together(lack) > (0.5 if single else 0.8) * arms.price_single(lack))
        in_rounds = arms.pulls.sum() - sum(map(len, arms.alone))
        if not single or in_rounds < 0.04 * arms.pulls.sum():
            count = batch or max(1, min(arms.common // 100, 4096))
            ask(sorted({i for pair in lack for i in pair}), count)
            rounds += count
            continue
        level = arms.goal + 0.5 * math.log(grid)
        i, j = max(lack, key=lambda pair: arms.bounds(pair[1], level)[1] - arms.bounds(pair[0], level)[0])
        count = batch or max(1, min(arms.pulls[i], arms.pulls[j]) // 100)
        wanted = arms.share(i, j, 2 * count) + carry
        ours = int(min(max(math.floor(wanted + 0.5), 0), 2 * count))
        carry = wanted - ours
        rounds += count
        for arm, n in ((i, ours), (j, 2 * count - ours)):
            if n:
                ask([arm], n)
