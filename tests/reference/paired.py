"""LUCB in common rounds: all evidence of all pairs computed anew at each decision."""

import math

import numpy as np

from reference.duels import Duels
from reference.pairs import Arms, log_wealth, moments, stand_ins

KEPT = 0.2


class PairedArms(Arms):
    """Arms with the pulls of each outside common rounds, and the duels of the rounds."""

    def __init__(self, low, high, n_best, epsilon, delta):
        super().__init__(low, high, n_best, epsilon, delta)
        self.need = self.goal + math.log(n_best * (self.n - n_best))
        self.duels, self.kind = Duels(low, high, n_best, epsilon), int(epsilon > 0)
        self.alone = [[] for _ in range(self.n)]
        self.most, self.out, self.sure = np.zeros((self.n, self.n)), set(), set()

    def take_rounds(self, arms, block, best):
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

    def least_alone(self, i, j):
        a, b, ends, least, lower = self.low[i], self.high[j] - self.epsilon, [None, None], math.inf, math.inf
        if not a < b:
            return math.inf
        if not self.alone[i] or not self.alone[j]:
            return math.log(KEPT)
        for _ in range(60):
            cut = 0.5 * (a + b)
            (up, rise), (down, fall) = self.single(i, 0, cut), self.single(j, 1, cut)
            if up + down == math.inf:
                a, b = (cut, b) if cut - self.low[i] <= self.high[j] - self.epsilon - cut else (a, cut)
                continue
            least, tangent = min(least, up + down), (cut, up + down, rise + fall)
            if rise + fall < 0:
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
        return max(lower, 2 * math.log(KEPT))

    def now(self, i, j):
        d = self.duels
        if not self.alone[i] and not self.alone[j]:
            return d.evidence(i, j, self.kind)
        share = 0.0 if d.seats >= d.n else -math.log(2) * d.turns[i]
        if d.seated[i]:
            share += math.inf if d.impossible[i, j, self.kind] else np.logaddexp.reduce(d.wealth[i, j, self.kind])
        return share + self.least_alone(i, j)

    def choose(self):
        opened = sorted(set(range(self.n)) - self.out - self.sure, key=lambda i: (-self.means[i], i))
        return self.sure | set(opened[:self.n_best - len(self.sure)])

    def judge(self):
        before = len(self.out) + len(self.sure)
        for i in sorted(set(range(self.n)) - self.out - self.sure):
            above = sum(self.most[j, i] >= self.need for j in range(self.n) if j != i and j not in self.out)
            below = sum(self.most[i, j] >= self.need for j in range(self.n) if j != i and j not in self.sure)
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
                 if self.means[j] > self.means[i] and self.most[i, j] < self.need and {i, j} & (self.out | self.sure)]
        self.out -= {j for _, j in pairs}
        self.sure -= {i for i, _ in pairs}
        return bool(pairs)

    def review(self, best):
        """Pairs that lack evidence, with the rate of what they lack; and whether one has enough that had not."""
        lack, news = {}, False
        for i in sorted(best):
            for j in sorted(set(range(self.n)) - best):
                if self.most[i, j] >= self.need:
                    continue
                now = self.now(i, j)
                self.most[i, j] = max(self.most[i, j], now)
                if now >= self.need:
                    news = True
                    continue
                gap = self.means[i] - self.means[j] + self.epsilon
                lack[i, j] = (max(gap * gap, self.variance(i) + self.variance(j))
                              / (2 * max(self.need - max(now, 0.0), 1.0)))
        return lack, news

    def price_together(self, lack):
        rounds = np.zeros(self.n)
        for (i, j), rate in lack.items():
            n = self.duels.seen[i, j, 0] if self.duels.seated[i] else 0
            more = 0.25 * (self.span[i] ** 2 + self.span[j] ** 2)
            spread = (self.duels.square[i, j, 0] + more) / (n + 1) if n else more
            rounds[[i, j]] = np.maximum(rounds[[i, j]], spread * (1 - math.sqrt(2 / (n + 2))) / rate)
        return rounds.sum()

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


def paired(values, low, high, n_best, epsilon, delta, batch=0, max_pulls=math.inf):
    """Run the rule on rows in order; returns (chosen, requests as (arms, count), why it stopped, arms)."""
    arms, made, row = PairedArms(low, high, n_best, epsilon, delta), [], 0
    rounds = grid = 1
    common, carry, single = 0, 0.0, False

    def ask(wanted, count):
        nonlocal row, common
        made.append((tuple(wanted), count))
        block = values[row:row + count][:, wanted]
        if len(wanted) > 1:
            arms.take_rounds(list(wanted), block, best)
            common += count
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
            return best, made, "bound", arms
        if arms.pulls.sum() > max_pulls:
            return best, made, "max_pulls", arms
        single = common >= 16 and (arms.price_together(lack) > (0.5 if single else 0.8) * arms.price_single(lack))
        if not single:
            count = batch or max(1, min(common // 100, 4096))
            ask(sorted({i for pair in lack for i in pair}), count)
            rounds += count
            continue
        level = arms.goal + 0.5 * math.log(grid)
        i, j = max(lack, key=lambda pair: arms.bounds(pair[1], level)[1] - arms.bounds(pair[0], level)[0])
        count = batch or max(1, min(arms.pulls[i], arms.pulls[j]) // 100)
        wanted = 2 * count * arms.variance(i) / (arms.variance(i) + arms.variance(j)) + carry
        ours = int(min(max(math.floor(wanted + 0.5), 0), 2 * count))
        carry = wanted - ours
        rounds += count
        for arm, n in ((i, ours), (j, 2 * count - ours)):
            if n:
                ask([arm], n)
