"""lil'UCB beside the same policy in NumPy, and sums over unequal populations beside adding them all up."""

import time

import numpy as np

import fastrace as fr
from fastrace.races._lil import _keyed_rows
from fastrace.sources import ArraySource

PULLS = 50_000


def numpy_policy(values, sigma, delta, n_pulls, rng):
    """lil'UCB with one vectorised argmax per pull; orders of rows are NumPy's, and the bonus is kept per arm."""
    n_rows, n_arms = values.shape
    order = rng.integers(n_rows, size=(n_arms, 2 + 2 * n_pulls // n_arms))
    patience = 1 + 10 / n_arms
    sums, pulls = values[order[:, 0], np.arange(n_arms)].copy(), np.ones(n_arms, int)
    upper = np.full(n_arms, np.inf)
    for total in range(n_arms, n_pulls):
        i = upper.argmax()
        sums[i] += values[order[i, pulls[i] % order.shape[1]], i]
        pulls[i] += 1
        t = pulls[i]
        if t >= 1 + patience * (total - t):
            break
        upper[i] = sums[i] / t + 1.5 * sigma * np.sqrt(2 * np.log(np.log(t) / (delta / 5)) / t)
    return pulls


class Pulls:
    """50 000 pulls of 1000 arms: the target is 5 million a second."""

    params = ([1_000, 100_000], ["float64", "float32"])
    param_names = ["n_rows", "dtype"]

    def setup(self, n_rows, dtype):
        self.values = np.random.default_rng(20160619).random((n_rows, 1000), dtype=dtype)
        self.source = ArraySource(self.values)
        self.continued = self.race(n_rows)
        self.made = 30_000
        self.continued.run(self.source, max_pulls=self.made)

    def race(self, n_rows):
        return fr.LilUCB(1000, n_rows, support=(0, 1), rng=1)

    def time_lil_ucb(self, n_rows, dtype):
        self.race(n_rows).run(self.source, max_pulls=PULLS)

    def time_numpy_policy(self, n_rows, dtype):
        numpy_policy(self.values, 0.5, 0.05, PULLS, np.random.default_rng(1))

    def track_million_pulls_per_second(self, n_rows, dtype):
        best = np.inf
        for _ in range(15):
            self.made += PULLS
            start = time.perf_counter()
            self.continued.run(self.source, max_pulls=self.made)
            best = min(best, time.perf_counter() - start)
        return PULLS / best / 1e6

    track_million_pulls_per_second.unit = "1e6 / s"


class KeyedOrder:
    """A million positions, beside drawing as many numbers with replacement."""

    params = [1_000, 131_075, 1 << 33]
    param_names = ["n_rows"]

    def setup(self, n_rows):
        self.rng = np.random.default_rng(1)

    def time_keyed_order(self, n_rows):
        for first in range(0, 1_000_000, 1000):
            _keyed_rows(n_rows, first % n_rows, 1000, self.rng)

    def time_numpy_integers(self, n_rows):
        for _ in range(0, 1_000_000, 1000):
            self.rng.integers(n_rows, size=1000)


class Unequal:
    """One Gibbs step over clusters whose sizes follow a power law, in memory and as a slow function of the rows."""

    params = [100, 10_000, 1_000_000]
    param_names = ["largest"]

    def setup(self, largest):
        rng = np.random.default_rng(20160619)
        sizes = (largest / np.arange(1, 31)).astype(int)
        self.vectors = [rng.normal(rng.normal(0, 0.2), 1.0, n) for n in sizes]
        self.offset = rng.gumbel(size=sizes.size)
        self.sizes = sizes

    def factors(self, arm, rows):
        x = self.vectors[arm][rows]
        for _ in range(20):
            x = np.log1p(np.expm1(x))
        return x

    def time_race(self, largest):
        fr.race_sums(self.vectors, offset=self.offset, rng=1)

    def time_all_sums(self, largest):
        np.argmax([v.sum() + c for v, c in zip(self.vectors, self.offset, strict=True)])

    def time_race_of_slow_factors(self, largest):
        fr.race_sums(self.factors, self.sizes, offset=self.offset, rng=1)

    def time_all_sums_of_slow_factors(self, largest):
        np.argmax([self.factors(i, slice(None)).sum() + c for i, c in enumerate(self.offset)])

    def track_fraction_read(self, largest):
        return fr.race_sums(self.vectors, offset=self.offset, rng=1).fraction_read
