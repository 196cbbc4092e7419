"""One categorical draw, beside the exact draw that reads every factor."""

import numpy as np

import fastrace as fr
from fastrace.likelihoods import GLMSource

SEED = 20160623


def choice(n_rows, n_arms, n_columns, spread):
    """A categorical variable whose states are coefficient vectors, `spread` / sqrt(n_rows) apart."""
    rng = np.random.default_rng([SEED, n_rows, n_arms])
    x = rng.standard_normal((n_rows, n_columns))
    centre = rng.standard_normal(n_columns)
    y = x @ centre + rng.standard_normal(n_rows)
    theta = centre + spread * rng.standard_normal((n_arms, n_columns)) / np.sqrt(n_rows)
    return x, y, theta


class CategoricalDraw:
    """K = 10 states, N = 10^5 Gaussian factors: 1, all states have real mass; 30, one has all."""

    params = ([1.0, 3.0, 30.0], ["normal", "exact"], ["model", "table"])
    param_names = ["spread", "rule", "factors"]
    n_rows, n_arms, n_columns, draws = 100_000, 10, 5, 20
    timeout = 120

    def setup(self, spread, rule, factors):
        x, y, theta = choice(self.n_rows, self.n_arms, self.n_columns, spread)
        self.x, self.y, self.theta = x, y, theta
        self.source = GLMSource(x, y, theta, "gaussian", 1.0)
        if factors == "table":
            self.source = fr.sources.ArraySource(self.source.read(np.arange(self.n_rows)))
        self.rng = np.random.default_rng(1)
        first_look = self.n_rows if rule == "exact" else None
        self.sampler = fr.DiscreteSampler(self.source, bound="normal", first_look=first_look, rng=self.rng)

    def time_20_draws(self, spread, rule, factors):
        self.sampler.draw_many(self.draws)

    def time_20_draws_numpy(self, spread, rule, factors):
        for _ in range(self.draws):
            if factors == "table":
                total = self.source.values.sum(axis=0)
            else:
                total = -0.5 * ((self.y[:, None] - self.x @ self.theta.T) ** 2).sum(axis=0)
            (total + self.rng.gumbel(size=self.n_arms)).argmax()

    def track_fraction_read(self, spread, rule, factors):
        self.sampler.draw_many(self.draws)
        return self.sampler.stats.fraction_read
