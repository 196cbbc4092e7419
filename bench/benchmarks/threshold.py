"""Decisions about one mean and a threshold, beside the same decision by a full pass, compiled and in NumPy."""

import numpy as np

from fastrace.likelihoods import GLMSource
from fastrace.races._threshold import _wealth
from fastrace.races.acceptance import AcceptTest
from fastrace.sources import ArraySource


class LogisticRegression:
    """A Metropolis-Hastings step on 10^6 rows and 20 parameters; `gap` is the mean difference less the threshold's
    share of a row, in standard deviations of the differences.

    The race is to take at most T_compiled * (rows read / n_rows) / 0.7: compare `time_race`, `time_exact_compiled` and
    `track_fraction_read`, and `time_exact_numpy` for what most people do.
    """

    params = ([0.003, 0.01, 0.03, 0.1, 0.3], ["random", "shuffled"])
    param_names = ["gap", "access"]
    timeout = 300

    def setup(self, gap, access):
        rng = np.random.default_rng(20160619)
        n_rows, p = 1_000_000, 20
        self.X = rng.standard_normal((n_rows, p)) / np.sqrt(p)
        centre = rng.standard_normal(p)
        self.y = (rng.random(n_rows) < 1 / (1 + np.exp(-self.X @ centre))).astype(float)
        self.theta = np.stack([centre, centre + 0.05 * rng.standard_normal(p)])
        self.source = GLMSource(self.X, self.y, self.theta)
        d = np.diff(self.source.read(np.arange(n_rows)), axis=1)
        self.threshold = n_rows * (d.mean() - gap * d.std())
        self.test = AcceptTest(self.source, delta=0.01, access=access, rng=1)

    def time_race(self, gap, access):
        self.test.decide(self.threshold)

    def time_exact_compiled(self, gap, access):
        known, proposed = self.source.totals()
        return proposed - known > self.threshold

    def time_exact_numpy(self, gap, access):
        eta = self.X @ self.theta.T
        terms = self.y[:, None] * eta - np.logaddexp(0.0, eta)
        return np.diff(terms.sum(axis=0)) > self.threshold

    def track_fraction_read(self, gap, access):
        return np.mean([self._one(self.test.source.n_rows) for _ in range(20)])

    def _one(self, n_rows):
        self.test.decide(self.threshold)
        return self.test.n_evaluated / n_rows


class Step:
    """What a decision costs that reads only the first look: 50 rows of an array in memory."""

    params = ["normal", "betting", "shuffled"]
    param_names = ["rule"]

    def setup(self, rule):
        d = np.random.default_rng(20160619).normal(0.0, 1.0, 10_000)
        options = {"support": (-6.0, 6.0)} if rule == "betting" else {"bound": "normal"}
        access = "shuffled" if rule == "shuffled" else "random"
        self.test = AcceptTest(d, rng=1, access=access, **options)
        self.threshold = -5.0 * d.size

    def time_decide(self, rule):
        self.test.decide(self.threshold)

    def time_unread(self, rule):
        self.test.decide(-np.inf)


class ReadAll:
    """A mean that ties with the threshold: the race must turn to one pass and cost little more than it."""

    params = ["normal", "betting"]
    param_names = ["rule"]

    def setup(self, rule):
        d = np.random.default_rng(20160619).normal(0.0, 1.0, 1_000_000)
        self.source = ArraySource(d[:, None])
        options = {"support": (-6.0, 6.0)} if rule == "betting" else {"bound": "normal"}
        self.test = AcceptTest(self.source, rng=1, **options)
        self.threshold = d.sum() + 1e-6

    def time_race(self, rule):
        self.test.decide(self.threshold)

    def time_exact_compiled(self, rule):
        return self.source.totals()[0] > self.threshold


class Betting:
    """The gambler alone, per 10^5 rewards with 7 bettors."""

    def setup(self):
        self.x = np.random.default_rng(20160619).normal(0.0, 1.0, 100_000)

    def time_wealth(self):
        _wealth(self.x, 100_000, -6.0)
