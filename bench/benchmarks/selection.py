"""ADAPT beside the same policy in NumPy, which sorts the means at every pull; and rules fed by a Python function."""

import time

import numpy as np

import fastrace as fr
from fastrace.pulls import BernoulliPulls, UniformPulls

PULLS = 50_000


def numpy_policy(draw, n, m, epsilon, width, n_pulls, rng):
    """ADAPT (tightest) as one would write it in NumPy."""
    u, mean, m2 = np.full(n, 2), np.zeros(n), np.zeros(n)
    for i in range(n):
        pair = np.array([draw(i), draw(i)])
        mean[i], m2[i] = pair.mean(), pair.var() * 2
    for _ in range(n_pulls):
        order = np.argsort(-mean, kind="stable")
        h, low = order[m - 1], order[m]
        se = np.maximum(np.sqrt(m2) / u, width / u)
        c = mean[low] + (mean[h] + epsilon - mean[low]) * se[low] / (se[h] + se[low])
        gap = c - mean
        gap[order[:m]] = mean[order[:m]] + epsilon - c
        gap = np.maximum(gap, 0.0)
        a, b = np.sqrt(2 * m2) / u, 3 * width / u
        y = 2 * gap / (a + np.sqrt(a * a + 4 * b * gap) + 1e-300)
        level = np.minimum(np.exp(-2 * u * (gap / width) ** 2), np.minimum(1.0, 3 * np.exp(-y * y)))
        i = np.searchsorted(level.cumsum(), rng.random() * level.sum())
        reward = draw(i)
        u[i] += 1
        step = reward - mean[i]
        mean[i] += step / u[i]
        m2[i] += step * (reward - mean[i])
    return u


class Pulls:
    """Time per pull on a compiled Bernoulli source: at most 0.5 us at 50 arms and 1.5 us at 10 000 are wanted.

    One by one, in blocks of 1 %, and by the plain policy. Processor time: the loops run in one thread.
    """

    params = [50, 10_000]
    param_names = ["n_arms"]

    def setup(self, n_arms):
        self.means = np.random.default_rng(20100621).random(n_arms)
        self.rules = {}
        for batch in (1, 0.01):
            rule = fr.Adapt(n_arms, 3 * n_arms // 10, 0.0, 1e-12, batch=batch, rng=1)
            source = BernoulliPulls(self.means, rng=2)
            rule.run(source, max_pulls=4 * n_arms + PULLS)
            self.rules[batch] = rule, source

    def per_pull(self, batch):
        rule, source = self.rules[batch]
        best = np.inf
        for _ in range(5):
            made, start = rule.n_pulls, time.process_time()
            rule._core.run(source, made + PULLS)
            best = min(best, (time.process_time() - start) / (rule.n_pulls - made))
        return 1e6 * best

    def track_one_by_one(self, n_arms):
        return self.per_pull(1)

    def track_in_blocks(self, n_arms):
        return self.per_pull(0.01)

    def track_numpy_policy(self, n_arms):
        rng = np.random.default_rng(3)
        pulls = 500 if n_arms < 1000 else 50
        cost = []
        for made in (0, pulls):
            start = time.process_time()
            numpy_policy(lambda i: float(rng.random() < self.means[i]), n_arms, 3 * n_arms // 10, 0.0, 1.0, made, rng)
            cost.append(time.process_time() - start)
        return 1e6 * (cost[1] - cost[0]) / pulls

    track_one_by_one.unit = track_in_blocks.unit = track_numpy_policy.unit = "us"


class PythonFunction:
    """Million pulls a second with a Python function, 100 pulls a call; 1 is wanted."""

    params = ["Adapt", "Adapt anytime", "OCBA", "Direct"]
    param_names = ["rule"]

    def setup(self, rule):
        self.means = np.random.default_rng(20100621).random(50)
        rng = np.random.default_rng(2)
        self.pull = lambda arms, counts: np.repeat(self.means[arms], counts) > rng.random(counts.sum())
        self.make = {
            "Adapt": lambda: fr.Adapt(50, 15, 0.0, 1e-12, batch=100, rng=1),
            "Adapt anytime": lambda: fr.Adapt(50, 15, 0.0, 1e-12, batch=100, anytime=True, rng=1),
            "OCBA": lambda: fr.OCBA(50, 15, 10**9, n0=10, batch=100, rng=1),
            "Direct": lambda: fr.Direct(50, 15, 0.005),
        }[rule]

    def track_million_pulls_per_second(self, rule):
        run, best = self.make(), np.inf
        for _ in range(4):
            made, start = run.n_pulls, time.process_time()
            run.run(self.pull, max_pulls=made + 40_000)
            best = min(best, (time.process_time() - start) / (run.n_pulls - made))
        return 1e-6 / best

    track_million_pulls_per_second.unit = "1e6 / s"


class PaperInstance:
    """n = 50, m = 15, epsilon = 0.1, delta = 0.15, uniform rewards of standard deviation 1: pulls to the promise."""

    params = ["tightest", "tightest, anytime", "tightest, blocks of 1 %", "hoeffding", "colliding"]
    param_names = ["rule"]

    def run(self, rule, trial):
        means = np.random.default_rng(20100621).random(50)
        support = (means - np.sqrt(3.0), means + np.sqrt(3.0))
        kw = {"batch": 0.01} if "blocks" in rule or rule == "colliding" else {}
        policy = rule.split(",")[0]
        made = fr.Adapt(50, 15, 0.1, 0.15, support, policy=policy, anytime="anytime" in rule, rng=[1, trial], **kw)
        return made.run(UniformPulls(*support, rng=[2, trial])).n_read

    def time_to_the_promise(self, rule):
        self.run(rule, 0)

    def track_pulls(self, rule):
        return float(np.mean([self.run(rule, trial) for trial in range(10)]))

    track_pulls.unit = "pulls"
