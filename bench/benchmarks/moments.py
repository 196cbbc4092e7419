"""Running moments beside NumPy's passes and Welford's update in plain Python."""

import numpy as np

from fastrace.moments import RunningComoments, RunningMoments


def welford(values):
    n, mean, m2 = 0, 0.0, 0.0
    for x in values:
        n += 1
        step = x - mean
        mean += step / n
        m2 += step * (x - mean)
    return mean, m2


class Array:
    """One arm, many rewards: time_update_many is to stay below 1.3 x time_numpy_sum."""

    params = (["float64", "float32", "every second float64", "int32"], [10_000, 10_000_000])
    param_names = ["kind", "n"]

    def setup(self, kind, n):
        values = np.random.default_rng(20160619).random(n)
        self.values = {
            "float64": lambda: values,
            "float32": lambda: values.astype(np.float32),
            "every second float64": lambda: np.repeat(values, 2)[::2],
            "int32": lambda: (1000 * values).astype(np.int32),
        }[kind]()

    def time_update_many(self, kind, n):
        RunningMoments().update_many(self.values)

    def time_numpy_sum(self, kind, n):
        self.values.sum()

    def time_numpy_mean_and_var(self, kind, n):
        np.mean(self.values)
        np.var(self.values)


class Single:
    """10 000 rewards, one call each."""

    def setup(self):
        self.values = np.random.default_rng(20160619).random(10_000).tolist()

    def time_update(self):
        update = RunningMoments().update
        for x in self.values:
            update(x)

    def time_update_of_the_second_arm(self):
        update = RunningMoments(2).update
        for x in self.values:
            update(x, 1)

    def time_plain_welford(self):
        welford(self.values)


class Table:
    """10^6 rewards in rows of 3, 10 or 100 arms."""

    params = ([3, 10, 100], ["C", "F"])
    param_names = ["n_arms", "order"]

    def setup(self, n_arms, order):
        self.values = np.asarray(np.random.default_rng(20160619).random((10**6 // n_arms, n_arms)), order=order)

    def time_moments(self, n_arms, order):
        RunningMoments(n_arms).update_many(self.values)

    def time_comoments(self, n_arms, order):
        RunningComoments(n_arms).update_many(self.values)

    def time_numpy_mean_and_var(self, n_arms, order):
        self.values.mean(axis=0)
        self.values.var(axis=0)

    def time_numpy_differences(self, n_arms, order):
        (self.values[:, :1] - self.values).var(axis=0)
