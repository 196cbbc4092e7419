"""The quantile of Racing-Normal and half-widths over arrays, beside the same written with NumPy and SciPy."""

import numpy as np
from scipy import stats

from fastrace import bounds


class NormalQuantile:
    """A first and a repeated solve, beside the closed union over looks and a simulation of the walk."""

    params = ([1.1, 1.35, 2.0], ["first-exit", "one-sided"])
    param_names = ["growth", "kind"]

    def setup(self, growth, kind):
        self.v = bounds.variance_factor(bounds.looks(1_000_000, 50, growth)[:-1], 1_000_000)
        self.delta = 0.05
        bounds.normal_quantile(0.05, 1_000_000, 50, growth, kind)

    def time_cold(self, growth, kind):
        self.delta *= 1.0 - 1e-9  # never seen before
        bounds.normal_quantile(self.delta, 1_000_000, 50, growth, kind)

    def time_cached(self, growth, kind):
        bounds.normal_quantile(0.05, 1_000_000, 50, growth, kind)

    def time_union_by_scipy(self, growth, kind):
        stats.norm.isf(0.05 / len(self.v))

    def time_simulation_of_10000_walks(self, growth, kind):
        """Gives B to about 0.02; the solve above gives ten digits."""
        rng = np.random.default_rng(1)
        z = rng.standard_normal(10_000)
        high = z.copy()
        for r2 in self.v[1:] / self.v[:-1]:
            z = np.sqrt(r2) * z + np.sqrt(1 - r2) * rng.standard_normal(10_000)
            np.maximum(high, z, out=high)
        np.quantile(high, 0.95)

    def track_excess_of_the_union(self, growth, kind):
        """Rewards that a race with the union draws, over those with B: the square of the ratio."""
        exact = bounds.normal_quantile(0.05, 1_000_000, 50, growth, kind)
        return (bounds.normal_quantile(0.05, 1_000_000, 50, growth, "union") / exact) ** 2


class HalfWidths:
    params = [1, 1_000_000]
    param_names = ["size"]

    def setup(self, size):
        self.n = np.arange(1, size + 1)

    def time_serfling(self, size):
        bounds.serfling(self.n, 2_000_000, 0.3, 0.05, (0.0, 1.0))

    def time_serfling_by_numpy(self, size):
        n, x = self.n, np.log(10 / 0.05)
        rho = np.where(n <= 1_000_000, 1 - (n - 1) / 2e6, (1 - n / 2e6) * (1 + 1 / n))
        by_range = np.sqrt(rho * np.log(2 / 0.05) / (2 * n))
        by_variance = 0.3 * np.sqrt(2 * rho * x / n) + (7 / 3 + 3 / np.sqrt(2)) * x / n
        np.minimum(by_range, by_variance)
