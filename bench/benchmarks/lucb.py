"""LUCB on compiled and Python sources, beside a rescan of all arms per round and beside the best-arm package."""

import os
import tempfile
import time
from importlib.util import find_spec

import numpy as np

import fastrace as fr
from fastrace.pulls import BernoulliPulls, UniformPulls

SEED = 20160619


def rescan(means, n_best, rng, n_pulls, delta=0.05):
    """LUCB with Hoeffding bounds in NumPy: a partition and two scans of all arms per round of two pulls."""
    n = means.size
    sums, pulls = (rng.random(n) < means).astype(float), np.ones(n)
    for t in range(n, n_pulls, 2):
        mean = sums / pulls
        width = np.sqrt(np.log(1.25 * n * float(t) ** 4 / delta) / (2 * pulls))
        chosen = np.zeros(n, bool)
        chosen[np.argpartition(-mean, n_best)[:n_best]] = True
        weakest = np.where(chosen, mean - width, np.inf).argmin()
        rival = np.where(chosen, -np.inf, mean + width).argmax()
        for i in (weakest, rival):
            sums[i] += rng.random() < means[i]
            pulls[i] += 1
    return pulls


class Pulls:
    """200 000 pulls amid near ties: at least 10 million a second at 50 arms, 1 million at 10 000."""

    params = ([50, 10_000], ["auto", 1])
    param_names = ["n_arms", "batch"]
    number = 1
    made = 200_000

    def setup(self, n_arms, batch):
        self.means = 0.5 + 0.001 * np.random.default_rng(SEED).standard_normal(n_arms)
        self.source = BernoulliPulls(self.means, rng=1)
        self.rule = fr.LUCB(n_arms, n_arms // 3, batch=batch)
        self.rule.run(self.source, 20 * n_arms)

    def more(self, count):
        self.rule._core.run(self.source, self.rule.n_pulls + count)     # without the answer, which costs as well

    def time_lucb(self, n_arms, batch):
        self.more(self.made)

    def time_rescan_of_2000_pulls(self, n_arms, batch):
        rescan(self.means, n_arms // 3, np.random.default_rng(1), n_arms + 2000)

    def track_million_pulls_per_second(self, n_arms, batch):
        best = np.inf
        for _ in range(8):
            start = time.perf_counter()
            self.more(self.made)
            best = min(best, time.perf_counter() - start)
        return self.made / best / 1e6

    track_million_pulls_per_second.unit = "1e6 / s"


def bernoulli_divergence(p, q):
    return p * np.log(p / q) + (1.0 - p) * np.log((1.0 - p) / (1.0 - q))


def bernoulli_evidence(best, mean, share):
    """Evidence of a pull of the best arm and `share` pulls of another, at the common mean that is hardest on it."""
    both = (best + share * mean) / (1.0 + share)
    return bernoulli_divergence(best, both) + share * bernoulli_divergence(mean, both)


def characteristic_time(means):
    """T*(mu) of Garivier & Kaufmann (2016), Theorem 5, for one best of Bernoulli arms.

    No rule that is wrong with a probability of at most delta makes fewer pulls on average than about
    T* log(1 / delta), as delta goes to 0.
    """
    best, *others = np.sort(means)[::-1]

    def shares(height):     # pulls of each other arm per pull of the best at which its evidence has that height
        found = []
        for mean in others:
            low, high = -25.0, 12.0
            for _ in range(60):
                share = np.exp(0.5 * (low + high))
                evidence = bernoulli_evidence(best, mean, share)
                low, high = (low, 0.5 * (low + high)) if evidence > height else (0.5 * (low + high), high)
            both = (best + share * mean) / (1.0 + share)
            found.append((share, bernoulli_divergence(best, both) / bernoulli_divergence(mean, both)))
        return np.array(found).T

    low, high = 0.0, bernoulli_divergence(best, others[0])
    for _ in range(40):
        height = 0.5 * (low + high)
        low, high = (low, height) if shares(height)[1].sum() > 1.0 else (height, high)
    return (1.0 + shares(height)[0].sum()) / height


class Distance:
    """Mean pulls of 40 runs at delta 0.05, over T*(mu) log(1 / delta)."""

    instances = {
        "sparse of 10": np.r_[0.55, np.full(9, 0.45)],
        "sparse of 50": np.r_[0.6, np.full(49, 0.4)],
        "linear of 10": np.linspace(0.75, 0.25, 10),
        "linear of 50": np.linspace(0.9, 0.1, 50),
    }
    params = (list(instances), ["pairs", "intervals"])
    param_names = ["instance", "rule"]
    delta = 0.05

    def track_pulls_over_lower_bound(self, instance, rule):
        means = self.instances[instance]
        pulls = [fr.LUCB(means.size, 1, 0.0, self.delta, rule=rule).run(BernoulliPulls(means, rng=k)).n_read
                 for k in range(40)]
        return np.mean(pulls) / (characteristic_time(means) * np.log(1.0 / self.delta))

    track_pulls_over_lower_bound.unit = "times"


def normal_time(means, scales):
    """T*(mu) for one best of normal arms: the least pulls whose evidence against each other arm is 1."""
    best, *others = np.argsort(-means)
    halves, squares = (means[best] - means[others]) ** 2 / 2, scales**2

    def pulls(log_share):
        left = halves - squares[best] / np.exp(log_share)
        return np.exp(log_share) + (squares[others] / left).sum()

    low = np.log(squares[best] / halves.min()) + 1e-9
    high = low + 12.0
    for _ in range(80):
        first, second = low + 0.382 * (high - low), low + 0.618 * (high - low)
        low, high = (low, second) if pulls(first) < pulls(second) else (first, high)
    return pulls(low)


class NormalDistance:
    """As `Distance`, for normal rewards: of known scales, of learned ones, and with a support of 8 scales around 0."""

    instances = {
        "sparse of 10": (np.r_[0.2, np.zeros(9)], np.ones(10)),
        "sparse of 50": (np.r_[0.3, np.zeros(49)], np.ones(50)),
        "linear of 10": (np.linspace(0.9, 0.0, 10), np.ones(10)),
        "two": (np.array([0.1, 0.0]), np.ones(2)),
        "unequal scales": (np.r_[0.3, np.zeros(9)], np.r_[1.0, np.repeat([0.2, 3.0, 1.0], 3)]),
    }
    params = (list(instances), ["sub_gaussian", "symmetric", "support"])
    param_names = ["instance", "given"]
    delta, runs = 0.05, 20

    def track_pulls_over_lower_bound(self, instance, given):
        means, scales = self.instances[instance]
        known = {"sub_gaussian": {"sub_gaussian": scales}, "symmetric": {"symmetric": True},
                 "support": {"support": (means - 8.0 * scales, means + 8.0 * scales)}}[given]
        pulls = []
        for k in range(self.runs):
            rng = np.random.default_rng(k)

            def pull(arms, counts, rng=rng):
                return rng.normal(np.repeat(means[arms], counts), np.repeat(scales[arms], counts))

            pulls.append(fr.LUCB(means.size, 1, 0.0, self.delta, **known).run(pull).n_read)
        return np.mean(pulls) / (normal_time(means, scales) * np.log(1.0 / self.delta))

    track_pulls_over_lower_bound.unit = "times"


class PythonSource:
    """A Python function as the source, 100 pulls of each arm of a decision: at least 1 million pulls a second."""

    params = ["lucb", "kl-lucb", "sar", "direct"]
    param_names = ["method"]
    made = 100_000

    def setup(self, method):
        rng = np.random.default_rng(1)
        means = np.full(50, 0.5)
        self.pull = lambda arms, counts: (rng.random(int(counts.sum())) < np.repeat(means[arms], counts)).astype(float)
        rules = {
            "lucb": lambda: fr.LUCB(50, 15, batch=100),
            "kl-lucb": lambda: fr.KLLUCB(50, 15, batch=100),
            "sar": lambda: fr.SAR(50, 15, self.made),
            "direct": lambda: fr.Direct(50, 15, 0.01),
        }
        self.make = rules[method]

    def time_pulls(self, method):
        self.make()._core.run(fr.pulls.as_pulls(self.pull, 50), self.made)

    def track_million_pulls_per_second(self, method):
        best = np.inf
        for _ in range(3):
            start = time.perf_counter()
            self.time_pulls(method)
            best = min(best, time.perf_counter() - start)
        return self.made / best / 1e6

    track_million_pulls_per_second.unit = "1e6 / s"


class ToThePromise:
    """Mean pulls until each rule stops on ten draws of the paper's instance: 15 of 50, epsilon 0.1, delta 0.15."""

    params = ["eb-mix", "hoeffding-mix", "lucb1", "kl"]
    param_names = ["bound"]
    number = 1

    def setup(self, bound):
        self.means = np.random.default_rng(SEED).random((10, 50))

    def rule(self, bound, k):
        low = self.means[k] - np.sqrt(3.0)
        high = low + np.sqrt(12.0)
        return fr.LUCB(50, 15, 0.1, 0.15, (low, high), bound=bound), UniformPulls(low, high, rng=k)

    def time_one_selection(self, bound):
        rule, source = self.rule(bound, 0)
        rule.run(source)

    def track_pulls(self, bound):
        return sum(rule.run(source).n_read for rule, source in (self.rule(bound, k) for k in range(10))) / 10


class BesideBestArm:
    """One best of ten Bernoulli arms at delta 0.1, beside the same algorithm of the best-arm package (0.1.1)."""

    params = ["lucb", "lil-ucb"]
    param_names = ["algorithm"]
    number = 1
    means = np.array([0.9, 0.8] + [0.5] * 8)

    def setup(self, algorithm):
        self.values = (np.random.default_rng(SEED).random((200_000, 10)) < self.means).astype(float)

    def ours(self, algorithm, k):
        if algorithm == "lucb":
            return fr.LUCB(10, 1, 0.0, 0.1).run(BernoulliPulls(self.means, rng=k)).n_read
        return fr.LilUCB(10, 200_000, 0.1, support=(0, 1), rng=k).run(self.values).n_looks

    def theirs(self, algorithm, k):
        from best_arm.bandit import Bandit
        from best_arm.environment import BaseEnvironment

        arms = BaseEnvironment.from_dict({"env_name": "bernoulli", "state": {"probs": self.means.tolist()}})
        np.random.seed(k)       # noqa: NPY002  (theirs)
        before = os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                if algorithm == "lucb":
                    bandit = Bandit(env_instance=arms, algo_name="lucb", algo_args={"confidence": 0.1},
                                    stopping_name="lucb")
                else:
                    bandit = Bandit(env_instance=arms, algo_name="lil_ucb",
                                    algo_args={"confidence": 0.1, "mode": "heuristic"})
                return int(bandit.run()[1].sum())
            finally:
                os.chdir(before)

    def time_ours(self, algorithm):
        self.ours(algorithm, 1)

    def track_pulls(self, algorithm):
        return sum(self.ours(algorithm, k) for k in range(20)) / 20

    def _rate(self, pulls, algorithm, runs):
        start = time.process_time()
        total = sum(pulls(algorithm, k) for k in range(runs))
        return total / (time.process_time() - start), total / runs

    def track_pulls_per_second_over_theirs(self, algorithm):
        if find_spec("best_arm") is None:
            return np.nan
        return self._rate(self.ours, algorithm, 100)[0] / self._rate(self.theirs, algorithm, 1)[0]

    def track_pulls_over_theirs(self, algorithm):
        if find_spec("best_arm") is None:
            return np.nan
        runs = 2 if algorithm == "lucb" else 10
        return self._rate(self.ours, algorithm, 10 * runs)[1] / self._rate(self.theirs, algorithm, runs)[1]
