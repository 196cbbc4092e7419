"""Confidence sequences and the rules on them, as printed: one reward at a time, logarithms, nothing rescaled.

Plug-in, betting and the test of a threshold: Waudby-Smith & Ramdas (2024), sections 3 to 5. Stitching and mixtures:
Howard, Ramdas, McAuliffe & Sekhon (2021). Universal portfolios: Orabona & Jun (2024). Shares of ones: Ryu & Wornell
(2024). Bets that aim: the inequality of Fan, Grama & Liu (2015), Theorem 2.

Rewards are in [0, 1] and bounds are running intersections, unless the name says otherwise.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from scipy import optimize, special

from reference import bounds


@dataclass
class Guess:
    """Mean and variance of the rewards so far and of one made-up reward 1/2 with variance 1/4."""

    n: int = 0
    total: float = 0.5
    square: float = 0.25

    @property
    def mean(self):
        return self.total / (self.n + 1)

    @property
    def variance(self):
        return self.square / (self.n + 1)

    @property
    def sum(self):
        return self.total - 0.5

    def see(self, z):
        self.n += 1
        self.total += z
        self.square += (z - self.mean) ** 2


def plug_in_bet(guess, level):
    t = guess.n + 1
    return math.sqrt(2 * level / (guess.variance * t * math.log(1 + t)))


def psi(u):
    return -math.log1p(-u) - u


def _next(z, bet, guess, n_rows):
    """The reward and the bet as they count for the mean, with or without replacement."""
    if n_rows is None:
        return z, bet
    left = n_rows - guess.n
    return z + guess.sum / left, bet * n_rows / left


def _certain(guess, n_rows, under=0.0, over=0.0):
    if n_rows is None:
        return 0.0, 1.0
    left = n_rows - guess.n
    return (guess.sum - left * under) / n_rows, (guess.sum + left * (1 + over)) / n_rows


def plug_in(rewards, delta, cap=0.5, n_rows=None):
    """Bounds after each reward, not intersected."""
    level = math.log(2 / delta)
    guess = Guess()
    weight = centre = penalty = 0.0
    out = []
    for z in rewards:
        bet = min(plug_in_bet(guess, level), cap)
        reward, count = _next(z, bet, guess, n_rows)
        weight += count
        centre += bet * reward
        penalty += (z - guess.mean) ** 2 * psi(bet)
        guess.see(z)
        low, high = _certain(guess, n_rows)
        out.append((max(low, (centre - level - penalty) / weight), min(high, (centre + level + penalty) / weight)))
    return out


def target(rewards, delta, wanted, cap=0.9, n_rows=None):
    """Bounds after each reward, not intersected; `wanted` gives the half-width wanted at a mean."""
    level = math.log(2 / delta)
    guess = Guess()
    sums = {"low": [0.0, 0.0, 0.0], "high": [0.0, 0.0, 0.0]}
    out = []
    for z in rewards:
        g = wanted(guess.mean)
        for side, scale in (("low", guess.mean), ("high", 1 - guess.mean)):
            bet = min(g / (guess.variance + scale * g), cap / scale)
            reward, count = _next(z, bet, guess, n_rows)
            sums[side][0] += count
            sums[side][1] += bet * reward
            sums[side][2] += (z - guess.mean) ** 2 * psi(bet * scale) / scale**2
        guess.see(z)
        low, high = _certain(guess, n_rows)
        weight, centre, penalty = sums["low"]
        low = max(low, (centre - level - penalty) / weight)
        weight, centre, penalty = sums["high"]
        out.append((low, min(high, (centre + level + penalty) / weight)))
    return out


def stitched_boundary(v, level, eta=2.0, s=1.4, start=1.0, scale=1.0):
    v = max(v, start)
    k1 = (eta**0.25 + eta**-0.25) / math.sqrt(2)
    k2 = (math.sqrt(eta) + 1) / 2
    ell = s * math.log(math.log(eta * v / start)) + math.log(special.zeta(s) / math.log(eta) ** s) + level
    return math.sqrt(k1**2 * v * ell + (k2 * scale * ell) ** 2) + k2 * scale * ell


def mixture_rho(level, best_at):
    both = max(2 * (level - math.log(2)), 0.1)
    return best_at / (both + math.log(1 + both))


def log_mixture(u, v, rho):
    """Log of the gamma-exponential mixture at a sum u of intrinsic time v."""
    a, y = v + rho, u + v + rho
    return (rho * math.log(rho) - math.lgamma(rho) - math.log(special.gammainc(rho, rho)) + math.lgamma(a)
            + math.log(special.gammainc(a, y)) - a * math.log(y) + u + v)


def mixture_boundary(v, level, rho):
    """By bisection."""
    low, high = 0.0, 1.0
    while log_mixture(high, v, rho) < level:
        low, high = high, 2 * high
    for _ in range(100):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if log_mixture(middle, v, rho) < level else (low, middle)
    return high


def _curved(rewards, boundary):
    guess, v, out = Guess(), 0.0, []
    for z in rewards:
        v += (z - guess.mean) ** 2
        guess.see(z)
        half = boundary(v, guess.n) / guess.n
        out.append((guess.sum / guess.n - half, guess.sum / guess.n + half))
    return out


def stitched(rewards, delta):
    return _curved(rewards, lambda v, n: stitched_boundary(v, math.log(2 / delta)))


def hoeffding(rewards, delta, best_at=25.0):
    rho = mixture_rho(math.log(2 / delta), best_at)
    return _curved(rewards, lambda v, n: math.sqrt((n / 4 + rho) * math.log((n / 4 + rho) / (delta**2 * rho))))


def mixture(rewards, delta, best_at=25.0):
    """Looked at after 1, 2, 3, ... rewards, and later where their number has grown by 0.2 %; else (0, 1)."""
    level = math.log(2 / delta)
    rho = mixture_rho(level, best_at)
    look, guess, v, out = 1, Guess(), 0.0, []
    for z in rewards:
        v += (z - guess.mean) ** 2
        guess.see(z)
        if guess.n < look:
            out.append((0.0, 1.0))
            continue
        look = max(guess.n + 1, math.floor(1.002 * guess.n))
        half = mixture_boundary(v, level, rho) / guess.n
        out.append((guess.sum / guess.n - half, guess.sum / guess.n + half))
    return out


# Betting

def hedged_bets(guess, level):
    bet = plug_in_bet(guess, level)
    return bet, bet


def target_bets(epsilon, offset=0.0, absolute=None):
    """The gambler who aims: at epsilon |mean + offset|, or at the half-width `absolute`."""

    def bets(guess, level):
        away = abs(guess.mean + offset)
        below = absolute if absolute is not None else max(epsilon * away / (1 + epsilon), 1e-12)
        above = absolute if absolute is not None else max(epsilon * away / (1 - epsilon), 1e-12)
        return below / (guess.variance + below**2), above / (guess.variance + above**2)

    return bets


def first_passages(rewards, m, bets, level, cap):
    """When the capitals of who bets above and below m first reach exp(level), infinite if never."""
    guess, above, below = Guess(), 0.0, 0.0
    when = [math.inf, math.inf]
    for t, z in enumerate(rewards, 1):
        up, down = bets(guess, level)
        if m < 1:
            above += math.log1p(min(up, cap / m) * (z - m))
            below += math.log1p(-min(down, cap / (1 - m)) * (z - m))
        if above >= level and when[0] > t:
            when[0] = t
        if (below >= level or m >= 1) and when[1] > t:
            when[1] = 0 if m >= 1 else t
        guess.see(z)
    return when


def exact_betting_stop(rewards, epsilon, delta, bets, cap, steps=40):
    """Samples at which betting on every candidate at once stops at relative accuracy, by bisection on log m."""
    level = math.log(2 / delta)
    low, high = math.log(1e-6), 0.0
    best = math.inf
    for _ in range(steps):
        middle = 0.5 * (low + high)
        m = math.exp(middle)
        up = first_passages(rewards, m / (1 + epsilon), bets, level, cap)[0]
        down = first_passages(rewards, m / (1 - epsilon), bets, level, cap)[1]
        best = min(best, max(up, down))
        low, high = (middle, high) if up < down else (low, middle)
    return best


def _between(low, high):
    if high <= 0.5:
        middle = math.sqrt(low * high) if low > 0 else high / 16
    elif low >= 0.5:
        middle = 1 - math.sqrt((1 - low) * (1 - high)) if high < 1 else 1 - (1 - low) / 16
    else:
        middle = (low + high) / 2
    return middle if low < middle < high else (low + high) / 2


@dataclass
class Grid:
    """Candidates [mean, log capital above, log capital below] from the lower bound to the upper one, both included."""

    points: list = field(default_factory=lambda: [[0.0, 0.0, 0.0], *(
        [odds / (1 + odds), 0.0, 0.0] for odds in (math.exp(math.log(1e9) * (2 * j - 1023) / 1023) for j in range(1024))
    ), [1.0, 0.0, 0.0]])
    refuted: bool = False

    def advance(self, level, surely=0.0, at_most=1.0):
        points = self.points
        while len(points) > 2 and (points[1][1] >= level or points[1][0] < surely):
            del points[0]
        while len(points) > 2 and (points[-2][2] >= level or points[-2][0] > at_most):
            del points[-1]
        self.refuted = ((points[-1][0] < 1 and points[-1][1] >= level) or (points[0][0] > 0 and points[0][2] >= level))

    def refine(self):
        points = self.points
        if 2 * len(points) - 1 > 513 or points[-1][0] - points[0][0] <= 1e-12:
            return
        fresh = [points[0]]
        for low, high in zip(points, points[1:], strict=False):
            fresh += [[_between(low[0], high[0]), high[1], low[2]], high]
        self.points = fresh


def betting(rewards, delta, bets=hedged_bets, cap=0.5, n_rows=None):
    """Running bounds after each reward; (1, 0) once every candidate is refuted."""
    level = math.log(2 / delta)
    grid, guess, out = Grid(), Guess(), []
    for z in rewards:
        up, down = bets(guess, level)
        left = None if n_rows is None else n_rows - guess.n
        for point in grid.points:
            m = point[0] if left is None else (n_rows * point[0] - guess.sum) / left
            bet = min(up, cap / m) if m > 0 else up
            point[1] += math.log1p(bet * (z - m))
            bet = min(down, cap / (1 - m)) if m < 1 else down
            point[2] += math.log1p(-bet * (z - m)) if bet * (z - m) < 1 else -math.inf
        guess.see(z)
        surely, at_most = _certain(guess, n_rows)
        grid.advance(level, surely, at_most)
        if grid.refuted:
            return out + [(1.0, 0.0)] * (len(rewards) - len(out))
        out.append((max(grid.points[0][0], surely), min(grid.points[-1][0], at_most)))
        if guess.n % 16 == 0:
            grid.refine()
    return out


# A universal portfolio

BETTORS = 25 * np.exp(np.append(-0.5 * np.arange(16), -7.5 - 0.8 * np.arange(1, 9)))       # logs of odds ratios
PLAIN = np.array([3, 32, 74, 292, 46, 0, 1691, 1039, 561, 437, 548, 478, 217, 157, 87, 35, 27, 22, 18, 15, 13, 11, 10,
                  9]) / 10_000
TILTED = np.array([5, 44, 236, 969, 1504, 1420] + [0] * 18) / 10_000


def shares(m):
    """Money of the bettors on a mean above m, of one unit for both sides: half of what is plain, and of what is tilted
    the more the more room there is."""
    return PLAIN / 2 + TILTED * (1 - m)


def means_of_rewards(rewards, m, n_rows=None):
    """What each reward would be on average, given those before it, if m were the mean of all."""
    rewards = np.asarray(rewards, dtype=float)
    if n_rows is None:
        return np.full(len(rewards), m)
    before = np.append(0.0, np.cumsum(rewards)[:-1])
    return (n_rows * m - before) / (n_rows - np.arange(len(rewards)))


def won_above(rewards, m, n_rows=None):
    """Log of what the bettors on a mean above m have now: the product of 1 + bet (reward - its mean), bet by bet."""
    odds = np.exp(BETTORS)[:, None]
    means = means_of_rewards(rewards, m, n_rows)
    factors = 1 + (odds - 1) / (1 - means + means * odds) * (np.asarray(rewards) - means)
    return special.logsumexp(np.log(factors).sum(axis=1), b=shares(m))


def _least(rewards, delta, n_rows):
    """After each reward, the smallest mean that bettors on a larger one do not refute, by bisection; what each reward
    would be on average enters by the average over the rewards so far."""
    t, before = np.arange(1, len(rewards) + 1), np.append(0.0, np.cumsum(rewards)[:-1])
    left = np.full(len(rewards), math.inf) if n_rows is None else n_rows - t + 1
    reach = t if n_rows is None else np.cumsum(n_rows / left)
    drawn = np.cumsum(before / left)
    log_sums = np.cumsum(np.log1p(np.expm1(-BETTORS) * (1 - rewards[:, None])), axis=0)
    low, high = np.zeros(len(rewards)), np.ones(len(rewards))
    for _ in range(50):
        m = 0.5 * (low + high)
        average = np.maximum((reach * m - drawn) / t, 0.0)[:, None]
        logs = log_sums - t[:, None] * np.log1p(np.expm1(-BETTORS) * (1 - average))
        most = logs.max(axis=1)
        money = (np.exp(logs - most[:, None]) * np.array([shares(each) for each in m])).sum(axis=1)
        refuted = most + np.log(money) >= math.log(1 / delta)
        low, high = np.where(refuted, m, low), np.where(refuted, high, m)
    return low


def universal(rewards, delta, n_rows=None):
    """Bounds after each reward, not intersected."""
    rewards = np.asarray(rewards, dtype=float)
    out, guess = [], Guess()
    for z, least, rest in zip(rewards, _least(rewards, delta, n_rows), _least(1 - rewards, delta, n_rows), strict=True):
        guess.see(z)
        low, high = _certain(guess, n_rows)
        out.append((max(low, least), min(high, 1 - rest)))
    return out


def arcsine_portfolio(rewards, delta, times):
    """Bounds after so many rewards, not intersected: money on all bets at once by a prior Beta(1/2, 1/2), by search.

    The share b of the money on an end of the support multiplies itself by (b z / m + (1 - b) (1 - z) / (1 - m)). Sums
    over logs of odds ratios u = logit b - logit m, as many a unit of log |u| everywhere.
    """
    sizes = np.exp(np.arange(-11.5, 3.7, 0.05))
    u = np.append(-sizes[::-1], sizes)
    sums, seen, out = 0.0, 0, []
    for t in times:
        rest = np.clip(rewards[seen:t], 1e-300, 1.0 - 1e-16)        # neither end loses all of the money
        sums = sums + sum(np.log1p(np.expm1(u) * part[:, None]).sum(axis=0)
                          for part in np.array_split(rest, 1 + len(rest) // 1000))
        seen, mean, ends = t, float(np.mean(rewards[:t])), []

        def log_money(m, t=t, sums=sums):
            paid = np.log1p(np.expm1(u) * m)
            prior = 0.5 * (math.log(m) + math.log1p(-m) + u) - paid + np.log(0.05 * np.abs(u) / math.pi)
            return special.logsumexp(sums - t * paid + prior)

        for end in (0.0, 1.0):
            inside = mean
            for _ in range(50):
                m = 0.5 * (inside + end)
                if not 0.0 < m < 1.0:
                    break
                inside, end = (inside, m) if log_money(m) >= -math.log(delta) else (m, end)
            ends.append(end)
        out.append(tuple(ends))
    return out


def tangent_step(rewards, m, delta):
    """Money of the bettors above candidate m over what refutes it, and a step to a larger candidate that is refuted for
    sure if m is: there the shares, and a tangent of the log of the wealth, leave at least as much as is needed."""
    n, least = len(rewards), np.exp(-BETTORS)
    paid = least + (1 - least) * m
    won = delta * np.exp(np.log(least + (1 - least) * rewards[:, None]).sum(axis=0) - n * np.log(paid))
    money = shares(m) * won
    pulled, lost = (money * (1 - least) / paid).sum(), (TILTED * won).sum()
    money = money.sum()
    return money, 2 * (money - 1) * money / ((money + 1) * n * pulled + 2 * (2 * money - 1) * lost)


def watched(rewards, delta, near=1.3, far=10.0):
    """Lower ends that looks after each reward keep, running. A look takes the tangent from the watched candidate, or
    from where that leads to if the candidate has more money than `near`; the exact end if it has more than `far`."""
    end = kept = 0.0
    out = []
    for n in range(1, len(rewards) + 1):
        seen = rewards[:n]
        while True:
            money, step = tangent_step(seen, kept, delta)
            if money < 1:
                break
            if money > far:
                end = kept = max(end, _least(seen, delta, None)[-1])
                break
            found = kept + step
            if found <= end and kept == end:
                break
            if found > end and money <= near:
                end = found
                break
            kept = max(found, end)
        out.append(end)
    return np.array(out)


def target_odds(rewards, delta, below, above, cap=0.9, n_rows=None, reach=None, squares=None):
    """Bounds after each reward, not intersected, of who aims: at `below` the guessed mean, and `above` it.

    Reward t lies in [-reach[t][0], 1 + reach[t][1]]; `squares` has new guesses of the squared distances by reward.
    """
    odds = 25 * np.exp(-0.1 * np.arange(192))
    reach = [(0.0, 0.0)] * len(rewards) if reach is None else reach
    level, guess, rewards = math.log(2 / delta), Guess(), np.asarray(rewards, dtype=float)
    taken, before, out = ([], []), [], []
    for t, z in enumerate(rewards):
        left = 1.0 if n_rows is None else (n_rows - t) / n_rows
        guess.square = (squares or {}).get(t, guess.square)
        variance = (guess.square - 0.125) / (t + 0.5)
        guessed = min(max(guess.mean, 0.5 / (t + 1)), (t + 0.5) / (t + 1))
        for side, middle, wanted in ((0, guessed, below), (1, 1 - guessed, above)):
            distance = wanted(guessed) / left
            m = max(middle - distance, middle / 2)
            logits = special.logit(middle) - special.logit(m)
            bet = cap / (m + reach[t][side])
            u = min(logits * max(middle * (1 - middle) / variance, 1), math.log((1 + bet * (1 - m)) / (1 - bet * m)))
            k = int(np.abs(np.log(odds / u)).argmin()) if u > 0 else 191
            taken[side].append(k + (math.expm1(odds[k]) * reach[t][side] > cap))
        before.append(guess.sum)
        guess.see(z)
        ends = []
        done, sums = np.arange(t + 1), np.array(before)
        for side, seen, rest in ((0, rewards[: t + 1], sums), (1, 1 - rewards[: t + 1], done - sums)):
            u, k = odds[taken[side]], np.array(taken[side])
            gained = np.log1p((1 - seen) * np.expm1(-u)).sum()
            low, high = 0.0, 1.0
            for _ in range(50):
                middle = 0.5 * (low + high)
                means = np.full(t + 1, middle) if n_rows is None else (n_rows * middle - rest) / (n_rows - done)
                average = np.bincount(k, means, 192) / np.maximum(np.bincount(k, minlength=192), 1)
                least = (1 - cap) * np.exp(-u)      # where a bet has lost, and a mean of rewards is impossible
                paid = np.log(np.maximum(1 + (1 - average[k]) * np.expm1(-u), least)).sum()
                low, high = (middle, high) if gained - paid >= level else (low, middle)
            ends.append(low)
        surely, at_most = _certain(guess, n_rows, *reach[t])
        out.append((max(surely, ends[0]), min(at_most, 1 - ends[1])))
    return out


def beta_binomial(rewards, delta, n_rows=None):
    """Bounds for the share of ones, not intersected: evidence of Beta(1/2, 1/2) over the likelihood, by search."""
    enough, ones, out = math.log(1 / delta), 0, []
    for t, z in enumerate(rewards, 1):
        ones += round(z)
        zeros = t - ones
        evidence = special.betaln(ones + 0.5, zeros + 0.5) - math.log(math.pi)
        if n_rows is not None:
            logs = [special.gammaln([k + 1, n_rows - k + 1]).sum()
                    - special.gammaln([k - ones + 1, n_rows - k - zeros + 1]).sum()
                    for k in range(ones, n_rows - zeros + 1)]
            whole = special.gammaln(n_rows + 1) - special.gammaln(n_rows - t + 1)
            kept = [ones + i for i, likelihood in enumerate(logs) if evidence + whole - likelihood < enough]
            out.append((kept[0] / n_rows, kept[-1] / n_rows))
            continue
        ends = []
        for won, lost in ((ones, zeros), (zeros, ones)):
            low, high = 0.0, won / t
            for _ in range(60):
                m = 0.5 * (low + high)
                refuted = evidence - special.xlogy(won, m) - special.xlog1py(lost, -m) >= enough
                low, high = (m, high) if refuted else (low, m)
            ends.append(low)
        out.append((ends[0], 1 - ends[1]))
    return out


def sign_test(rewards, threshold, delta, cap=0.5, n_rows=None):
    """(n, side) at the decision, or (len(rewards), 0). A mean within 1e-12 of the threshold is on neither side."""
    enough = math.log(1 / delta)
    guess, above, below, seen = Guess(), 0.0, 0.0, []
    for z in rewards:
        here = threshold if n_rows is None else (n_rows * threshold - guess.sum) / (n_rows - guess.n)
        if 0 < here < 1:
            away = guess.mean - here
            bet = min(max(away / (guess.variance + away**2), -cap / (1 - here)), cap / here)
            if bet > 0:
                above += math.log1p(bet * (z - here))
            else:
                below += math.log1p(bet * (z - here))
        guess.see(z)
        seen.append(z)
        sum_seen, left = math.fsum(seen), 0 if n_rows is None else n_rows - guess.n
        if above >= enough or (n_rows is not None and sum_seen / n_rows > threshold + 1e-12):
            return guess.n, 1
        if below >= enough or (n_rows is not None and (sum_seen + left) / n_rows < threshold - 1e-12):
            return guess.n, -1
    return len(rewards), 0


# Rules

def running(bounds, support=(0.0, 1.0)):
    """Running intersections in reward units, the support included."""
    low, high = support
    lower, upper = low, high
    for a, b in bounds:
        lower, upper = max(lower, low + (high - low) * a), min(upper, low + (high - low) * b)
        yield lower, upper


def stop(bounds, epsilon, support=(0.0, 1.0), absolute=False):
    """(n, estimate) where running bounds first allow the accuracy; None if they do not, or are empty first."""
    for n, (lower, upper) in enumerate(running(bounds, support), 1):
        if lower > upper:
            return None
        if absolute:
            if upper - lower <= 2 * epsilon:
                return n, (lower + upper) / 2
            continue
        near, far = max(lower, -upper, 0.0), max(abs(lower), abs(upper))
        if (1 + epsilon) * near >= (1 - epsilon) * far:
            return n, math.copysign(((1 + epsilon) * near + (1 - epsilon) * far) / 2, lower + upper)
    return None


def gbas_successes(epsilon, delta):
    """Successes to wait for, by trying 1, 2, 3, ..."""
    k = 2
    while True:
        missed = special.gammainc(k, (k - 1) / (1 + epsilon)) + special.gammaincc(k, (k - 1) / (1 - epsilon))
        if missed <= delta:
            return k
        k += 1


def asymptotic(rewards, delta, first_look, best_at):
    """Interval after each reward: every m whose Bayes factor of a t-test is below 1 / delta, by bisection.

    Right Haar prior on the scale of normal rewards, prior N(0, g) on (mean - m) / scale. Then the ends are moved for
    tails.
    """
    spent = 2 * math.log(1 / delta)
    g = (spent + math.log(1 + spent)) / best_at

    def log_factor(x, m):
        n, about = len(x), sum((value - m) ** 2 for value in x)
        explained = g / (1 + n * g) * sum(value - m for value in x) ** 2
        return -0.5 * math.log(1 + n * g) - 0.5 * n * math.log(1 - explained / about)

    out = []
    for n in range(1, len(rewards) + 1):
        x, ends = rewards[:n], []
        mean, size = sum(x) / n, max(map(abs, x)) + 1
        if n < max(first_look, 2) or log_factor(x, mean + 1e9 * size) < math.log(1 / delta):
            out.append((-math.inf, math.inf))
            continue
        for side in (-1, 1):
            near, far = 0.0, 1e9 * size
            for _ in range(200):
                middle = 0.5 * (near + far)
                near, far = (near, middle) if log_factor(x, mean + side * middle) > -math.log(delta) else (middle, far)
            skewness, error = bounds.sample_skewness(np.array(x)), sum((v - mean) ** 2 for v in x) / (n - 1) / n
            ends.append(mean + side * bounds.tail_end(near, error, [(side * skewness, n, error)]))
        out.append(tuple(ends))
    return out


def portfolio_difference(first, second, level, times=(1, 1)):
    """Ends of mean(first) - mean(second), each by two portfolios that bet on one side with all of their money.

    Rewards of the first come `times[0]` times, those of the second `times[1]` times.

    A difference d is refuted from below where, whatever the mean y of the second, the product of two wealths is at
    least exp(level): that against a mean of the first of y + d or less, and that against a second of y or more.
    """

    def wealth_of(x, count, sign):
        """Log of the money of who bets on one side, by candidate."""
        odds = np.exp(sign * BETTORS)
        won = np.log(1 - np.outer(x, 1 - odds)).sum(axis=0)
        return lambda m: float(special.logsumexp(
            np.log(PLAIN + TILTED) + count * (won - len(x) * np.log(1 - m + m * odds))))

    def least(a, b, d):
        low, high = max(0.0, -d), min(1.0, 1.0 - d)
        above, below = wealth_of(*a, 1), wealth_of(*b, -1)

        def product(y):
            return above(y + d) + below(y)

        found = optimize.minimize_scalar(product, bounds=(low, high), method="bounded", options={"xatol": 1e-9})
        return min(found.fun, product(low), product(high))

    def lower_end(a, b):
        if least(a, b, -1.0) < level:
            return -1.0
        return optimize.brentq(lambda d: least(a, b, d) - level, -1.0, np.mean(a[0]) - np.mean(b[0]), xtol=1e-10)

    a, b = (first, times[0]), (second, times[1])
    return lower_end(a, b), -lower_end(b, a), least(a, b, 0.0), least(b, a, 0.0)
