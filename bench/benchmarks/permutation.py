"""Permutation tests that stop early, beside scipy.stats.permutation_test with every permutation."""

import numpy as np
from scipy import stats

import fastrace as fr
from fastrace.streams._counts import at_least, fewer

N = 99_999


def difference(x, y, axis):
    return x.mean(axis=axis) - y.mean(axis=axis)


def next_look(read):
    return min(N, read + max(16, read // 8))


class Decisions:
    """Permutations to a decision at level 0.05, by the p-value that all 99,999 permutations give, and wrong ones."""

    params = ([0.0, 0.001, 0.01, 0.02, 0.03, 0.04, 0.045, 0.049, 0.05, 0.051, 0.055, 0.06, 0.07, 0.1, 0.2, 0.5],)
    param_names = ["p by all"]
    runs = 400

    def setup(self, p):
        """Runs side by side: counts at looks are hypergeometric."""
        rng = np.random.default_rng(20160619)
        ones = np.full(self.runs, round(p * (N + 1)) - 1 if p else 0)
        cut, bar = int(0.05 * 0.999 * (N + 1) + 1e-9), np.log(1000 / 0.05)
        count, used, decided, read = np.zeros(self.runs, int), np.full(self.runs, N), np.zeros(self.runs), 0
        while not decided.all():
            look = next_look(read)
            left = ones - count
            count += rng.hypergeometric(left, N - read - left, look - read)
            read = look
            found = np.where(fewer(count, read, N, cut, bar), 1, 0) - at_least(count, read, N, cut, bar)
            used[(decided == 0) & (found != 0)] = read
            decided = np.where(decided == 0, found, decided)
        self.used, self.wrong = used, decided != np.where(ones + 1 <= 0.05 * (N + 1), 1, -1)

    def track_mean_permutations(self, p):
        return self.used.mean()

    def track_wrong_of_400(self, p):
        return int(self.wrong.sum())


class TwoSamples:
    """One test of 40 against 40 numbers."""

    params = ([0.0, 0.3, 0.5, 0.8],)
    param_names = ["shift"]

    def setup(self, shift):
        x, y = np.random.default_rng(3).normal(size=(2, 40))
        self.data = x, y + shift

    def time_permutation_test(self, shift):
        fr.permutation_test(self.data, difference, rng=1)

    def time_scipy(self, shift):
        stats.permutation_test(self.data, difference, n_resamples=N, batch=2000)

    def track_share_of_permutations(self, shift):
        return fr.permutation_test(self.data, difference, rng=1).n_permutations / N


class ManyHypotheses:
    """1000 tests of 40 against 40 numbers, 50 of them shifted, by Benjamini and Hochberg."""

    params = ([0.6, 1.0],)
    param_names = ["shift"]
    timeout = 600

    def setup(self, shift):
        x, y = np.random.default_rng(4).normal(size=(2, 40, 1000))
        x[:, :50] += shift
        self.data = x, y

    def by_all(self):
        """Decisions by all permutations, in the order of `permutation_test`: sums of a group as products of matrices.

        Another seed changes some of these decisions next to the level: there a p-value of 20 / 1e5 has an error of a
        fifth.
        """
        x, y = self.data
        both, rng = np.concatenate([x, y]), np.random.default_rng(1)
        low, high, observed = np.zeros(1000), np.zeros(1000), x.sum(axis=0)
        whole = both.sum(axis=0)
        for start in range(0, N, 5000):
            count = min(5000, N - start)
            order, member = rng.permuted(np.broadcast_to(np.arange(80), (count, 80)), axis=1), np.zeros((count, 80))
            np.put_along_axis(member, order[:, :40], 1.0, axis=1)
            sums = member @ both
            high += (2 * sums - whole >= 2 * observed - whole - 1e-9).sum(axis=0)
            low += (2 * sums - whole <= 2 * observed - whole + 1e-9).sum(axis=0)
        p = np.minimum(1.0, 2 * (np.minimum(low, high) + 1) / (N + 1))
        return stats.false_discovery_control(p, method="bh") <= 0.05

    def time_permutation_test(self, shift):
        fr.permutation_test(self.data, difference, rng=1)

    def track_share_of_permutations(self, shift):
        return fr.permutation_test(self.data, difference, rng=1).n_permutations.mean() / N

    def track_decisions_that_differ(self, shift):
        return int((fr.permutation_test(self.data, difference, rng=1).rejected != self.by_all()).sum())
