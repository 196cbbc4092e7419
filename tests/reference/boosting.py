"""Boosting by filtering in plain Python: brackets of edges, the filter, and a committee of stumps."""

import math

from reference.sequences import Guess, psi


def filter_limit(epsilon, delta_t, call):
    return math.ceil(2 / epsilon * math.log(call * (call + 1) / delta_t))


class Nas:
    """Sizes of edges by Hoeffding's inequality; `schedule` gives (log(1 / share), looks at all) of an n."""

    def __init__(self, tau, delta, geometric=False):
        self.tau, self.delta, self.geometric = tau, delta, geometric
        self.n, self.total, self.k = 0, 0.0, 1
        self.low, self.high, self.fired = 0.0, 0.5, False

    def update(self, z):
        self.n += 1
        self.total += z
        share = self.delta / (self.n * (self.n + 1))
        if self.geometric:
            first = None
            while math.floor(1.5 ** (self.k - 1)) <= self.n:
                first = self.k if first is None and math.floor(1.5 ** (self.k - 1)) == self.n else first
                self.k += 1
            if first is None:
                return
            share = self.delta / (first * (first + 1))
        radius = math.sqrt(math.log(1 / share) / (2 * self.n))
        size = abs(self.total / self.n)
        self.fired = size >= radius * (1 + 1 / self.tau)
        self.low, self.high = size - radius, size + radius
        if self.fired:
            self.low = size / (1 + self.tau)


class EmpiricalBernstein:
    """EBStop, EBGStop and EBGStop*, with the upper bound begun at the largest edge there is."""

    def __init__(self, tau, delta, kind):
        self.tau, self.delta, self.kind = tau, delta, kind
        self.beta = 1.1 if kind == "ebgstop-star" else 1.5
        self.n, self.total, self.squares = 0, 0.0, 0.0
        self.low, self.high, self.fired = 0.0, 0.5, False

    def radius(self):
        n, mean = self.n, self.total / self.n
        std = math.sqrt(max(self.squares / n - mean**2, 0.0))
        ratio = 1.0
        if self.kind == "ebstop":
            share = self.delta * 0.1 / 1.1 / n**1.1
        else:
            k = 0
            while math.floor(self.beta**k) < n:
                k += 1
            ratio = math.floor(self.beta**k) / math.floor(self.beta ** (k - 1))
            share = self.delta * 0.1 / 1.1 / k**1.1 if self.kind == "ebgstop-star" else self.delta / (k * (k + 1))
        x = ratio * math.log(3 / share)
        return std * math.sqrt(2 * x / n) + 3 * x / n

    def update(self, z):
        self.n, self.total, self.squares = self.n + 1, self.total + z, self.squares + z * z
        if self.n == 1:
            return
        size, radius = abs(self.total / self.n), self.radius()
        self.low, self.high = max(self.low, size - radius), min(self.high, size + radius)
        self.fired = self.low > 0 and (1 + self.tau) * self.low >= (1 - self.tau) * self.high


class TargetBets:
    """Bets aimed at a half-width of tau |edge|, on wins and losses; the bet for the next one is known before it."""

    def __init__(self, tau, delta):
        self.tau, self.delta = tau, delta
        self.guess = Guess()
        self.sums = [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
        self.l, self.u = 0.0, 1.0
        self.low, self.high, self.fired = 0.0, 0.5, False

    def update(self, z):
        win, mean, variance = (1 if z > 0 else 0), self.guess.mean, self.guess.variance
        wanted = max(self.tau * abs(mean - 0.5), 1e-12)
        for sums, scale in zip(self.sums, (mean, 1 - mean), strict=True):
            stake = min(wanted / (variance + scale * wanted), 0.9 / scale)
            sums[0] += stake
            sums[1] += stake * win
            sums[2] += (win - mean) ** 2 * psi(stake * scale) / scale**2
        self.guess.see(win)
        threshold = math.log(2 / self.delta)
        (w0, c0, p0), (w1, c1, p1) = self.sums
        self.l, self.u = max(self.l, (c0 - threshold - p0) / w0), min(self.u, (c1 + threshold + p1) / w1)
        self.low = max(self.l - 0.5, 0.5 - self.u, 0.0)
        self.high = max(0.5 - self.l, self.u - 0.5)
        self.fired = self.low > 0 and (1 + self.tau) * self.low >= (1 - self.tau) * self.high


def rule_of(name, tau, delta):
    if name == "nas":
        return Nas(tau, delta)
    if name == "geometric-nas":
        return Nas(tau, delta, geometric=True)
    if name == "target-eb":
        return TargetBets(tau, delta)
    return EmpiricalBernstein(tau, delta, name)


def race_of_edges(wins, name, tau, delta, selection="first"):
    """(examples used, best hypothesis, certified size of its edge) for rows of wins, all looks taken; None if none."""
    n_hypotheses = len(wins[0])
    rules = [rule_of(name, tau, delta / n_hypotheses) for _ in range(n_hypotheses)]
    totals = [0] * n_hypotheses
    looks = {math.floor(1.5**k) for k in range(60)} if name == "geometric-nas" else None
    for n, row in enumerate(wins, 1):
        for h, (rule, win) in enumerate(zip(rules, row, strict=True)):
            rule.update(win - 0.5)
            totals[h] += win
        if looks is not None and n not in looks:
            continue
        lows = [rule.low for rule in rules]
        if selection == "leader":
            if max(lows) > 0 and max(lows) >= (1 - tau) * max(rule.high for rule in rules):
                best = lows.index(max(lows))
                return n, best, lows[best]
        elif any(rule.fired for rule in rules):
            sizes = [abs(total / n - 0.5) for total in totals]
            best = sizes.index(max(sizes))
            return n, best, lows[best]
    return None


def committee(codes, y, stumps, draws, chances, name, tau, epsilon, delta, n_rounds):
    """Rounds (stump, sign, weight, passed, drawn) on rows `draws`, whose filter has uniform numbers `chances`."""
    score = [0.0] * len(y)
    place, out = 0, []
    for t in range(1, n_rounds + 1):
        delta_t = delta / (3 * t * (t + 1))
        rules = [rule_of(name, tau, delta_t / len(stumps)) for _ in stumps]
        totals = [0.0] * len(stumps)
        passed = drawn = refused = 0
        while True:
            row, chance = draws[place], chances[place]
            place, drawn = place + 1, drawn + 1
            if chance >= 1 / (1 + math.exp(min(max(y[row] * score[row], -50), 50))):
                refused += 1
                if refused >= filter_limit(epsilon, delta_t, passed + 1):
                    return out, "error"
                continue
            passed, refused = passed + 1, 0
            for h, (feature, first, last) in enumerate(stumps):
                z = 0.5 if (first <= codes[row][feature] <= last) == (y[row] > 0) else -0.5
                rules[h].update(z)
                totals[h] += z
            if any(rule.fired for rule in rules):
                break
        sizes = [abs(total) for total in totals]
        best = sizes.index(max(sizes))
        edge = min(rules[best].low, 0.5 - 1e-3)
        sign = 1 if totals[best] > 0 else -1
        weight = 0.5 * math.log((0.5 + edge) / (0.5 - edge))
        feature, first, last = stumps[best]
        for i, row_codes in enumerate(codes):
            score[i] += sign * weight * (1 if first <= row_codes[feature] <= last else -1)
        out.append((best, sign, weight, passed, drawn))
    return out, "n_estimators"
