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
