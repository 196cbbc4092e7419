"""Plain twins of the races on streams: every bound of every arm tested after every round."""

import math

import numpy as np

from reference import bounds
from reference.duels import Duels, decided, least_evidence


def half_width(bound, rewards, span, share):
    """After the rewards of one arm; `share` is the logarithm that the bound uses."""
    t = len(rewards)
    if bound == "hoeffding":
        return span * math.sqrt(share / (2 * t))
    return np.std(rewards) * math.sqrt(2 * share / t) + 3 * span * share / t


class Bets:
    """Bracket of one mean by predictable bets, in reward units; with `n_rows` of a population without replacement."""

    def __init__(self, low, high, share, n_rows=math.inf):
        self.low, self.high, self.share, self.n_rows = low, high, share, n_rows
        self.t, self.total, self.square = 0, 0.5, 0.25
        self.bets, self.won, self.price = [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]
        self.lower, self.upper = low, high

    @property
    def guess(self):
        return self.low + (self.high - self.low) * self.total / (self.t + 1)

    def push(self, x, gap):
        span = self.high - self.low
        z = (x - self.low) / span
        n = self.t + 1
        mu, variance = self.total / n, self.square / n
        aim = max(0.5 * gap / span, 0.25 * math.sqrt(2 * variance * self.share / n))
        for side, scale in ((0, mu), (1, 1 - mu)):
            bet = min(aim / (variance + scale * aim), 0.9 / scale)
            if self.n_rows < math.inf:      # z has the mean of the rows left: (N m - sum) / left if m is that of all
                left = self.n_rows - self.t
                self.bets[side] += bet * self.n_rows / left
                self.won[side] += bet * (z + (self.total - 0.5) / left)
            else:
                self.bets[side] += bet
                self.won[side] += bet * z
            self.price[side] += (z - mu) ** 2 * (-math.log1p(-bet * scale) - bet * scale) / scale**2
        self.t = n
        self.total += z
        self.square += (z - self.total / (n + 1)) ** 2
        low = (self.won[0] - self.share - self.price[0]) / self.bets[0]
        high = (self.won[1] + self.share + self.price[1]) / self.bets[1]
        self.lower = max(self.lower, self.low + span * low)
        self.upper = min(self.upper, self.low + span * high)


def race(bound, rewards, horizon, delta, low, high, epsilon=0.0, n_best=1, population=False, rule="differences"):
    """Return pulls, arms still open, arms chosen, rounds and why it stopped; rewards: rounds by arms.

    With `population` they are all rows of a table in random order. `rule` is that of bets.
    """
    n_arms = rewards.shape[1]
    low, high = np.broadcast_to(low, n_arms), np.broadcast_to(high, n_arms)
    share = {
        "hoeffding": lambda: math.log(2 * n_arms * horizon / delta),
        "empirical-bernstein": lambda: math.log(3 * n_arms * horizon / delta),
        "betting": lambda: math.log(2 * n_arms / delta),
    }[bound]()
    bets = [Bets(low[m], high[m], share, len(rewards) if population else math.inf) for m in range(n_arms)]
    duels = None
    if bound == "betting" and rule == "differences":
        duels = Duels(low, high, n_best, epsilon, len(rewards) if population else math.inf)
        goal = math.log(n_best * max(n_arms - n_best, 1) / delta)
    alive, chosen = list(range(n_arms)), []
    pulls = np.zeros(n_arms, dtype=int)
    ends = {m: (low[m], high[m]) for m in range(n_arms)}        # running intersections of the brackets
    if n_arms == n_best:
        return pulls, [], alive, 0, "single"
    rows = len(rewards) if horizon is None else min(horizon, len(rewards))
    for t in range(1, rows + 1):
        wanted = n_best - len(chosen)
        if duels is not None:
            duels.seat(rewards[: t - 1].mean(axis=0) if t > 1 else np.zeros(n_arms), alive, wanted)
            duels.push(rewards[t - 1], alive)
        if bound == "betting":
            guesses = sorted((bets[m].guess for m in alive), reverse=True)
            above, below = guesses[wanted - 1], guesses[wanted]
            for m in alive:
                guess = bets[m].guess
                bets[m].push(rewards[t - 1, m], guess - below if guess > below else above - guess)
            lower = {m: bets[m].lower for m in alive}
            upper = {m: bets[m].upper for m in alive}
        else:
            lower, upper = {}, {}
            for m in alive:
                seen = rewards[:t, m]
                width = half_width(bound, seen, high[m] - low[m], share)
                lower[m], upper[m] = seen.mean() - width, seen.mean() + width
                if n_best > 1:
                    ends[m] = max(ends[m][0], lower[m]), min(ends[m][1], upper[m])
                    lower[m], upper[m] = ends[m]
        pulls[alive] += 1
        if any(lower[m] > upper[m] + 1e-12 * (high[m] - low[m]) for m in alive):
            return pulls, alive, sorted(chosen), t, "inconsistent"
        if duels is not None:
            means = rewards[:t].mean(axis=0)
            gone, picked = decided(duels, means, alive, wanted, n_best, goal)
            chosen += picked
            alive = [m for m in alive if m not in gone and m not in picked]
        else:
            bar = sorted(lower.values(), reverse=True)[wanted - 1]
            ceiling = sorted(upper.values(), reverse=True)[wanted] if n_best > 1 else math.inf
            chosen += [m for m in alive if upper[m] >= bar and lower[m] > ceiling]
            alive = [m for m in alive if upper[m] >= bar and lower[m] <= ceiling]
        wanted = n_best - len(chosen)
        if wanted == 0:
            return pulls, [], sorted(chosen), t, "bound"
        if len(alive) == wanted:
            return pulls, alive, sorted(chosen), t, "bound"
        if duels is not None and epsilon > 0:
            near = least_evidence(duels, means, alive, wanted, 1) >= goal
        else:
            near = epsilon > 0 and max(upper[m] for m in alive) - bar <= epsilon
        if near:
            return pulls, alive, sorted(chosen), t, "epsilon"
        if population and t == len(rewards):
            last = sorted((rewards[:, m].mean() for m in alive), reverse=True)[wanted - 1]
            alive = [m for m in alive if rewards[:, m].mean() >= last - 1e-12 * (high[m] - low[m])]
            return pulls, alive, sorted(chosen), t, "exact"
        if t == horizon:
            return pulls, alive, sorted(chosen), t, "horizon"
    return pulls, alive, sorted(chosen), rows, ""


def asymptotic_race(rewards, delta, first_look, best_at, epsilon=0.0, n_best=1):
    """The race without a support: t-mixtures of all differences tested after every round, seats for all."""
    n_arms = rewards.shape[1]
    alive, chosen, pulls = list(range(n_arms)), [], np.zeros(n_arms, dtype=int)
    goal = math.log(n_best * (n_arms - n_best) / delta)
    spread = (2 * goal + math.log1p(2 * goal)) / best_at

    def factor(x, away):
        """Log of the Bayes factor of a t-test of "the mean is `away` lower", with room for a left tail."""
        t, about = len(x), ((x - x.mean()) ** 2).sum()
        about *= 1 + bounds.tail_variance(x, -1, away) / x.var(ddof=1) if about else 1
        if not bounds.varies(x.std(), 0.0):         # as if one value as far off as a hundred leads had come
            about = (t - 1) * (100 * away) ** 2 / t
        about += t * away**2
        explained = spread / (1 + t * spread) * (t * away) ** 2
        return -0.5 * math.log(1 + t * spread) - 0.5 * t * math.log(1 - explained / about) if about else 0.0

    def counts(x, b, c, away):
        """Whether enough values carry the left tail of b and the right one of c, as far as they shrink the lead."""
        lead = x[:, b] - x[:, c]
        if not bounds.varies(lead.std(), np.abs(x.mean(axis=0))[[b, c]].sum()):
            size = max(bounds.tail_size(x[:, b]), bounds.tail_size(x[:, c]))
            if len(x) < 48 * max(size / away, 100):
                return False
        for arm, side, other in ((b, -1, c), (c, 1, b)):
            before = np.cumsum(x[:, arm])[:-1] / np.arange(1, len(x))
            weight = np.concatenate([[0.0], (x[1:, arm] - before) ** 2])
            lost = lead.mean() - (weight @ lead / weight.sum() if weight.sum() else 0.0)
            if not bounds.lead_counts(x[:, arm], side, lost, bounds.tail_size(x[:, other]), away):
                return False
        return True

    peak = np.zeros((n_arms, n_arms, 2))
    for t in range(1, len(rewards) + 1):
        wanted, x = n_best - len(chosen), rewards[:t]
        pulls[alive] += 1
        means = x.mean(axis=0)
        for b in alive:
            for c in alive:
                for kind, more in enumerate((0.0, epsilon)):
                    away = means[b] - means[c] + more
                    if b != c and t >= first_look and away > 0:
                        found = factor(x[:, b] - x[:, c], away)
                        if found > peak[b, c, kind] and counts(x, b, c, away):
                            peak[b, c, kind] = found
        spare = len(alive) - wanted
        beaten = {c: sorted(peak[b, c, 0] for b in alive if b != c)[-wanted] for c in alive}
        beating = {b: sorted(peak[b, c, 0] for c in alive if b != c)[-spare] for b in alive}
        gone = sorted((c for c in alive if beaten[c] >= goal), key=lambda c: (means[c], c))[:spare]
        picked = [b for b in alive if n_best > 1 and b not in gone and beating[b] >= goal][:wanted]
        alive, chosen = [m for m in alive if m not in gone and m not in picked], chosen + picked
        wanted = n_best - len(chosen)
        if wanted == 0 or len(alive) == wanted:
            return pulls, sorted(alive + chosen), t, "bound", peak
        order = sorted(alive, key=lambda m: (-means[m], m))
        if epsilon and min(peak[b, c, 1] for b in order[:wanted] for c in order[wanted:]) >= goal:
            return pulls, sorted(alive + chosen), t, "epsilon", peak
    return pulls, sorted(alive + chosen), len(rewards), "", peak
