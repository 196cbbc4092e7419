"""Stopping rules beside the same rules as straight Numba loops, and one reward at a time."""

import math

import numpy as np

import fastrace as fr

try:
    import numba
except ImportError:
    numba = None

REWARDS = 10_000_000


def straight_ebgstop(x, epsilon, delta, span, beta, power):
    """EBGStop* as one would write it for Numba."""
    low, high, mean, m2, inner, end, t, k = 0.0, np.inf, x[0], 0.0, 0.0, 1.0, 1, 0
    share = delta * (power - 1.0) / power
    for i in range(1, len(x)):
        t += 1
        step = x[i] - mean
        mean += step / t
        m2 += step * (x[i] - mean)
        if t > end:
            while t > end:
                k += 1
                end = math.floor(beta**k)
            inner = end / math.floor(beta ** (k - 1)) * math.log(3.0 * k**power / share)
        c = math.sqrt(m2 / t) * math.sqrt(2.0 * inner / t) + 3.0 * span * inner / t
        low = max(low, abs(mean) - c)
        high = min(high, abs(mean) + c)
        if (1.0 + epsilon) * low >= (1.0 - epsilon) * high:
            break
    return t


class UpdateMany:
    """10^7 rewards on which nothing stops: the target is 4 ns a reward for EBGStop, and 2.5 times Numba's speed."""

    params = (["mean zero", "uniform", "small variance"],)
    param_names = ["law"]

    def setup(self, law):
        x = np.random.default_rng(20080705).random(REWARDS)
        self.x = {"mean zero": 2 * x - 1, "uniform": x, "small variance": 0.5 + 1e-3 * x}[law]
        self.support = (-1, 1) if law == "mean zero" else (0, 1)
        self.narrow = self.x[: REWARDS // 4].astype(np.float32)
        self.straight = None if numba is None else numba.njit(straight_ebgstop)
        if self.straight is not None:
            self.time_straight_numba_loop(law)

    def rule(self, kind=fr.EBGStop):
        return kind(1e-7, 0.05, self.support)

    def time_ebgstop(self, law):
        assert self.rule().update_many(self.x) == REWARDS

    def time_straight_numba_loop(self, law):
        if self.straight is not None:
            assert self.straight(self.x, 1e-7, 0.05, self.support[1] - self.support[0], 1.1, 1.1) == REWARDS

    def time_numpy_sum(self, law):
        self.x.sum()

    def time_ebgstop_float32_quarter(self, law):
        self.rule().update_many(self.narrow)

    def time_ebstop_quarter(self, law):
        self.rule(fr.EBStop).update_many(self.x[: REWARDS // 4])

    def time_nas_quarter(self, law):
        self.rule(fr.NAS).update_many(self.x[: REWARDS // 4])


class Update:
    """10^5 single rewards: the target is 100 ns each, the loop of Python included."""

    params = (["NAS", "GeometricNAS", "SRA", "AA", "EBStop", "EBGStop", "AbsoluteStop"],)
    param_names = ["rule"]

    def setup(self, rule):
        self.x = np.random.default_rng(1).random(100_000).tolist()
        self.make = getattr(fr, rule)

    def time_update(self, rule):
        update = self.make(1e-4, 0.05).update
        for value in self.x:
            update(value)

    def time_empty_loop(self, rule):
        for value in self.x:
            abs(value)


class SamplesToStop:
    """Rewards until a relative accuracy of 0.1 at delta 0.1 is certain, mean over 20 streams; they never jitter."""

    params = (["uniform", "mean of 10 uniforms", "Bernoulli 0.1"], ["TargetEBStop", "EBGStop", "EBStop", "NAS", "AA"])
    param_names = ["law", "rule"]

    def setup(self, law, rule):
        rng = np.random.default_rng(1)
        draw = {"uniform": lambda k: rng.random(k), "mean of 10 uniforms": lambda k: rng.random((k, 10)).mean(1),
                "Bernoulli 0.1": lambda k: (rng.random(k) < 0.1).astype(float)}[law]
        self.used = []
        for _ in range(20):
            stream = getattr(fr, rule)(0.1, 0.1)
            while not stream.done:
                stream.update_many(draw(5000))
            self.used.append(stream.n_samples)

    def track_samples(self, law, rule):
        return float(np.mean(self.used))


class AbsoluteToStop:
    """Rewards until an absolute accuracy is certain at delta 0.05, a mean over streams; they never jitter."""

    params = (["0/1, mean .01", "0/1, mean .5", "beta(10, 30)", "beta(1/2, 1/2)", "uniform", "constant"],
              [0.1, 0.05, 0.02, 0.01], ["target-odds", "target", "universal"])
    param_names = ["law", "epsilon", "bound"]

    def setup(self, law, epsilon, bound, delta=0.05):
        draw = {"0/1, mean .01": lambda rng: (rng.random(4000) < 0.01).astype(float),
                "0/1, mean .5": lambda rng: (rng.random(4000) < 0.5).astype(float),
                "beta(10, 30)": lambda rng: rng.beta(10, 30, 4000),
                "beta(1/2, 1/2)": lambda rng: rng.beta(0.5, 0.5, 4000),
                "uniform": lambda rng: rng.random(4000), "constant": lambda rng: np.full(4000, 0.5)}[law]
        self.used = []
        for seed in range(1 if law == "constant" else 60 if epsilon >= 0.05 else 16):
            rule, rng = fr.AbsoluteStop(epsilon, delta, bound=bound), np.random.default_rng([seed, 1])
            while not rule.done:
                rule.update_many(draw(rng))
            self.used.append(rule.n_samples)

    def track_rewards(self, law, epsilon, bound):
        return float(np.mean(self.used))


def print_absolute():
    """The table in the docstring of `AbsoluteStop`."""
    laws, accuracies, bounds = AbsoluteToStop.params
    track = AbsoluteToStop()
    for law in laws:
        for epsilon in accuracies:
            found = []
            for bound in bounds:
                track.setup(law, epsilon, bound)
                found.append(track.track_rewards(law, epsilon, bound))
            print(f"{law:14}  {epsilon:<7g}" + "".join(f"  {value:>11,.0f}" for value in found), flush=True)


if __name__ == "__main__":
    print_absolute()
