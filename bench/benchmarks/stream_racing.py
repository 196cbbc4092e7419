"""Races on streams, beside adding up the rewards that they read, and beside testing every bound after every round."""

import time

import numpy as np

import fastrace as fr

RACES = {"hoeffding": fr.HoeffdingRace, "bernstein": fr.BernsteinRace, "betting": fr.BettingRace}


def best_of(function, repeats=3):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


class StreamRace:
    """1000 arms: equal ones that all stay to the horizon, and means spread so that arms leave all along."""

    params = (["hoeffding", "bernstein"], ["equal", "spread"])
    param_names = ["bound", "means"]
    n_arms, n_rounds = 1000, 20_000
    timeout = 120

    def setup(self, bound, means):
        rng = np.random.default_rng(20080705)
        self.rewards = 0.5 * rng.random((self.n_rounds, self.n_arms), dtype=np.float64)
        self.rewards += 0.25 if means == "equal" else np.linspace(0.0, 0.5, self.n_arms)
        self.result = self.race(bound)

    def race(self, bound):
        return RACES[bound](self.n_arms, self.n_rounds, 0.05, (0, 1)).run(self.rewards, order="given")

    def time_race(self, bound, means):
        self.race(bound)

    def sums(self):
        """Add up the rewards that the race reads, where they lie: later arms stay longest here."""
        pulls, total = self.result.pulls, 0.0
        for first in range(0, self.result.n_rounds, 500):
            total += self.rewards[first:first + 500, np.argmax(pulls > first):].sum(axis=0).sum()
        return total

    def time_sum(self, bound, means):
        self.sums()

    def track_time_over_summing_what_it_read(self, bound, means):
        """Target: at most 1.5."""
        return best_of(lambda: self.race(bound)) / best_of(self.sums)

    def track_work_saved(self, bound, means):
        return self.result.work_saved


class EveryRound:
    """The dull way: means, deviations and bounds of all arms after every round, in NumPy."""

    params = ["hoeffding", "bernstein", "betting"]
    param_names = ["bound"]
    n_arms, n_rounds = 100, 2000

    def setup(self, bound):
        self.rewards = np.random.default_rng(1).random((self.n_rounds, self.n_arms)) ** np.linspace(0.8, 1.2, 100)

    def time_race(self, bound):
        RACES[bound](self.n_arms, self.n_rounds, 0.05, (0, 1)).run(self.rewards, order="given")

    def time_numpy(self, bound):
        total, square = np.zeros(self.n_arms), np.zeros(self.n_arms)
        alive = np.ones(self.n_arms, dtype=bool)
        log_share = np.log(3 * self.n_arms * self.n_rounds / 0.05)
        for t, x in enumerate(self.rewards, 1):
            total += x
            square += x * x
            mean = total / t
            half = np.sqrt(2 * np.maximum(square / t - mean * mean, 0) * log_share / t) + 3 * log_share / t
            alive &= mean + half >= (mean - half)[alive].max()


class Pulls:
    """Rewards that a race needs: it never jitters."""

    params = (["hoeffding", "bernstein", "betting"], [0.1, 1.0])
    param_names = ["bound", "noise"]

    def setup(self, bound, noise):
        rng = np.random.default_rng(2)
        self.rewards = 0.5 + 0.5 * noise * (rng.random((20_000, 10)) - 0.5) + np.linspace(-0.2, 0.2, 10)

    def track_pulls(self, bound, noise):
        return int(RACES[bound](10, 20_000, 0.05, (0, 1)).run(self.rewards, order="given").pulls.sum())


class SameRows:
    """Rewards until the best of 12 arms is known, each better than the next by the gap: arms that are asked about the
    same of 50,000 rows, correlated or independent. By a race over a population, races on streams and LUCB."""

    params = ([0.02, 0.005], [0.8, 0.0], ["FiniteRace", "differences", "differences, in order", "brackets", "LUCB",
                                          "LUCB, paired"])
    param_names = ["gap", "correlation", "rule"]
    n_arms, n_rows, runs = 12, 50_000, 6
    timeout = 600

    def table(self, gap, correlation, rng):
        noise = np.sqrt(1 - correlation) * rng.standard_normal((self.n_rows, self.n_arms))
        noise += np.sqrt(correlation) * rng.standard_normal((self.n_rows, 1))
        return np.clip(0.7 - gap * np.arange(self.n_arms) + 0.2 * noise, 0, 1)

    def pulls(self, rewards, rule, seed):
        if rule == "FiniteRace":
            race = fr.FiniteRace(self.n_arms, self.n_rows, support=(0, 1), rng=seed)
            return race.run(lambda arms, rows: rewards[np.ix_(rows, arms)]).pulls.sum()
        if rule == "LUCB":
            return fr.LUCB(self.n_arms, 1, rng=seed).run(rewards, 10_000_000).pulls.sum()
        if rule == "LUCB, paired":
            return fr.LUCB(self.n_arms, 1, paired=True, rng=seed).run(rewards, 10_000_000).pulls.sum()
        race = fr.BettingRace(self.n_arms, support=(0, 1), rule=rule.split(",")[0])
        return race.run(rewards, order="given" if "in order" in rule else "random", rng=seed).pulls.sum()

    def track_rewards(self, gap, correlation, rule):
        """Target: differences at most 1.2 times FiniteRace where correlated, and at most LUCB where independent."""
        rngs = [np.random.default_rng([20201204, k]) for k in range(self.runs)]
        return np.mean([self.pulls(self.table(gap, correlation, rng), rule, k) for k, rng in enumerate(rngs)])
