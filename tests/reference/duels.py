"""Duels of arms read on the same rounds: all bets of all pairs at once, in logarithms, nothing rescaled."""

import math

import numpy as np
from scipy import special

from reference.betting import bettors
from reference.pairs import log_wealth, moments, stand_ins

STREAM = 2.0**62
SEATS = 16


def bettors_of_a_stream():
    sizes = 16.0 * 4.0 ** np.arange(24)
    weights = np.minimum(sizes / 4096, 4096 / sizes) ** 0.4
    return np.sqrt(2 * math.log(100) / sizes), weights / weights.sum()


class Duels:
    """For arms 0 .. n - 1; wealth[b, c, kind, bettor] bets that b is above c, or above c - epsilon."""

    def __init__(self, low, high, n_best, epsilon, n_rows=math.inf):
        self.n, self.n_rows, self.epsilon = len(low), n_rows, epsilon
        self.low, self.high = np.asarray(low, float), np.asarray(high, float)
        gaps, weights = bettors_of_a_stream() if n_rows == math.inf else bettors(n_rows)
        self.gaps, self.logs = np.array(gaps), np.log(np.array(weights))
        self.seats = min(self.n, max(2**12 // self.n, min(SEATS, 2**16 // self.n), 2 * n_best))
        self.seated, self.turns = np.arange(self.n) < self.seats, (np.arange(self.n) < self.seats).astype(int)
        self.start, self.sum, self.rounds = np.zeros(self.n), np.zeros(self.n), 0
        self.wealth = np.tile(self.logs, (self.n, self.n, 2, 1))
        self.lowest = np.tile((self.low[:, None] - self.high)[..., None], (1, 1, 2))
        self.shift, self.seen, self.total, self.square, self.m1 = np.zeros((5, self.n, self.n, 2))
        self.shift[..., 1] = epsilon
        self.lowest = self.lowest + self.shift
        self.most, self.peak = np.abs(self.lowest), np.zeros((self.n, self.n, 2))
        self.impossible = np.zeros((self.n, self.n, 2), bool)
        self.unbiased = []

    def seat(self, means, open_arms, n_wanted):
        """Before a round: the arms of the largest means take seats, all that fit after 8, 16, 32, ... rounds."""
        t = self.rounds
        if self.seats >= self.n or t == 0 or t >= self.n_rows:
            return
        count = min(len(open_arms), self.seats) if t >= 8 and t & (t - 1) == 0 else n_wanted
        bar = sorted((means[m] for m in open_arms), reverse=True)[count - 1]
        for arm in open_arms:
            if means[arm] < bar or self.seated[arm]:
                continue
            holders = [m for m in open_arms if self.seated[m]]
            if len(holders) == self.seats:
                worst = min(holders, key=lambda m: means[m])
                if not means[worst] < means[arm]:
                    continue
                self.seated[worst] = False
            self._take(arm, means)

    def _take(self, arm, means):
        t, rows = self.rounds, self.n_rows
        self.seated[arm], self.start[arm] = True, t
        self.turns[arm] += 1
        self.wealth[arm] = self.logs
        self.seen[arm] = self.total[arm] = self.square[arm] = self.m1[arm] = self.peak[arm] = 0
        self.impossible[arm] = False
        for c in range(self.n):
            shift = 0.0 if rows == math.inf else (means[arm] - means[c]) * t / (rows - t)
            more = self.epsilon if rows == math.inf else self.epsilon * rows / (rows - t)
            self.shift[arm, c] = shift, shift + more
            self.lowest[arm, c] = self.low[arm] - self.high[c] + self.shift[arm, c]
        self.most[arm] = np.abs(self.lowest[arm])

    def push(self, rewards, open_arms):
        """One round of the open arms; `rewards` of all arms. (An arm's duel with itself counts for nothing.)"""
        seated = [b for b in open_arms if self.seated[b]]
        k = np.ix_(seated, open_arms, range(2 if self.epsilon > 0 else 1))
        rows = np.broadcast_to(STREAM if self.n_rows == math.inf else self.n_rows - self.start, self.n)
        rows = rows[seated][:, None, None]
        d = (rewards[seated][:, None] - rewards[open_arms])[..., None] + self.shift[k]
        n, left = self.seen[k], rows - self.seen[k]
        mean = -self.total[k] / left
        room, slack = mean - self.lowest[k], 1e-9 * self.most[k]
        self.impossible[k] |= room < -slack
        with np.errstate(divide="ignore", invalid="ignore"):
            std = np.sqrt(self.square[k] / n)
            std = np.where(std <= 1e-12 * self.most[k], room / np.sqrt(n), std)
            bets = np.minimum(self.gaps * (rows / left / std)[..., None], 0.9 / room[..., None])
            grown = self.wealth[k] + np.log1p(bets * np.maximum(d - mean, -room)[..., None])
        plays = (n >= 8) & (room > slack)
        self.wealth[k] = np.where(plays[..., None], grown, self.wealth[k])
        together = special.logsumexp(self.wealth[k], axis=-1)
        self.peak[k] = np.where(plays, np.maximum(self.peak[k], together), self.peak[k])
        self.most[k] = np.maximum(self.most[k], np.abs(d))
        self.seen[k] += 1
        self.total[k] += d
        step = d - self.m1[k]
        self.m1[k] += step / self.seen[k]
        self.square[k] += step * (d - self.m1[k])
        with np.errstate(divide="ignore", invalid="ignore"):
            rest = -self.total[k] / (rows - self.seen[k]) - self.lowest[k]
        self.impossible[k] |= (self.seen[k] < rows) & (rest < -1e-9 * self.most[k])
        self.rounds += 1

    def evidence(self, b, c, kind=0):
        if not self.seated[b]:
            return 0.0
        share = 0.0 if self.seats >= self.n else -math.log(2) * self.turns[b]
        return math.inf if self.impossible[b, c, kind] else max(self.peak[b, c, kind] + share, 0.0)


def rank(values, k):
    values = sorted(values, reverse=True)
    return values[k - 1] if len(values) >= k else 0.0


def decided(duels, means, open_arms, n_wanted, n_best, goal):
    """Arms that leave and arms that are chosen after a round."""
    spare = len(open_arms) - n_wanted
    beaten = {c: rank([duels.evidence(b, c) for b in open_arms if b != c and duels.seated[b]], n_wanted)
              for c in open_arms}
    beating = {b: rank([duels.evidence(b, c) for c in open_arms if c != b], spare) for b in open_arms}
    dropped = sorted((c for c in open_arms if beaten[c] >= goal), key=lambda c: (means[c], c))[:spare]
    chosen = [b for b in open_arms if n_best > 1 and b not in dropped and beating[b] >= goal][:n_wanted]
    return dropped, chosen


def least_evidence(duels, means, open_arms, n_wanted, kind):
    order = sorted(open_arms, key=lambda m: (-means[m], m))
    return min((duels.evidence(b, c, kind) for b in order[:n_wanted] for c in order[n_wanted:]), default=math.inf)


def interval(first, second, low, high, level):
    """Of the mean of first - second, in [low, high], each end refuted at exp(-level); both of the same rounds."""
    y = (np.asarray(first) - np.asarray(second) - low) / (high - low)
    ends = []
    for side in (y, 1 - y):
        value, count = stand_ins(*moments(side))
        out, inside = 0.0, side.mean()
        for _ in range(50):
            middle = 0.5 * (out + inside)
            if middle <= 1e-12 or log_wealth(value, count, middle)[0] >= level:
                out = middle
            else:
                inside = middle
        ends.append(out)
    return low + (high - low) * ends[0], high - (high - low) * ends[1]
