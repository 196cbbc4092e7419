"""Chains over tall data, in effective samples per CPU second, beside the chains people write by hand."""

import time

import numpy as np

from fastrace import mcmc
from fastrace.likelihoods import GLMSource
from fastrace.sampling import DiscreteSampler


def logistic(n_rows, dim):
    """The task that the peers ran: an intercept and standard normal columns."""
    rng = np.random.default_rng([20160623, n_rows, dim])
    X = rng.standard_normal((n_rows, dim))
    X[:, 0] = 1.0
    eta = X @ rng.normal(0.0, 0.5, dim)
    return X, (rng.random(n_rows) < 1.0 / (1.0 + np.exp(-eta))).astype(float)


def kernel_of(name, model, reference):
    kind, _, proposal = name.partition("/")
    options = {"control_variate": reference, "proposal": proposal or "auto"}
    if kind == "race":
        return mcmc.RacingMetropolis(model, **options)
    if kind == "race-10":
        return mcmc.RacingMetropolis(model, first_look=10, **options)
    if kind == "poisson":
        return mcmc.PoissonMinibatchMetropolis(model, **options)
    if kind == "slice":
        return mcmc.RacingSlice(model, control_variate=reference)
    return mcmc.Metropolis(model, control_variate=None, proposal="random-walk")


class Logistic:
    """Effective samples per CPU second of the slowest coordinate, and rows read per step. "random-walk" proposals are
    those of the hand-written chains; "exact" reads all rows in every step, by vector code."""

    params = (
        ["poisson", "poisson/random-walk", "race", "race/random-walk", "race-10", "slice", "exact"],
        [(100_000, 10), (1_000_000, 10), (100_000, 50), (100_000, 100)],
    )
    param_names = ["kernel", "size"]
    timeout = 600

    def setup_cache(self):
        made = {}
        for size in self.params[1]:
            model = mcmc.GLM(*logistic(*size), prior_sd=10.0)
            made[size] = (model, model.reference())
        return made

    def setup(self, made, name, size):
        if name == "exact" and size != (100_000, 10):
            raise NotImplementedError("a chain of full passes is timed at one size")
        self.kernel = kernel_of(name, *made[size])
        rng = np.random.default_rng(1)
        self.state, _ = self.kernel.run(rng, self.kernel.init(rng=rng), 50 if name == "exact" else 500, tune=True)
        n = {"exact": 200, "slice": 300}.get(name, 4000 if size[1] > 50 else 20_000)
        started = time.process_time()
        _, self.steps = self.kernel.run(rng, self.state, n)
        self.seconds = time.process_time() - started

    def track_ess_per_second(self, made, name, size):
        draws = self.steps.draws
        return min(mcmc.effective_sample_size(draws[:, j]) for j in range(draws.shape[1])) / self.seconds

    def track_rows_per_step(self, made, name, size):
        return self.steps.rows.mean()

    def track_microseconds_per_step(self, made, name, size):
        return 1e6 * self.seconds / len(self.steps)


class StepOverhead:
    """A step whose rows cost nothing: a Gaussian likelihood, whose expansion leaves no remainder."""

    params = ["race", "poisson"]
    param_names = ["kernel"]

    def setup(self, name):
        X, y = logistic(10_000, 10)
        model = mcmc.GLM(X, y, "gaussian", prior_sd=10.0)
        self.kernel = kernel_of(name, model, model.reference())
        self.state = self.kernel.init(rng=1)
        self.rng = np.random.default_rng(1)

    def time_ten_thousand_steps(self, name):
        self.kernel.run(self.rng, self.state, 10_000)


class Choice:
    """One categorical variable of ten states and 10^5 Gaussian factors. `spread` 1: states of real mass; 30: one state
    has nearly all. "numpy": all factors by matrix product, as a hand-written Gibbs step."""

    params = (["race", "exact", "numpy"], [1.0, 30.0])
    param_names = ["draw", "spread"]

    def setup(self, name, spread):
        rng = np.random.default_rng([20160623, 100_000, 10, 5, 1])
        self.x = rng.standard_normal((100_000, 5))
        w = rng.normal(0.0, 1.0, 5)
        self.y = self.x @ w + rng.standard_normal(100_000)
        self.w = w + spread * rng.standard_normal((10, 5)) / np.sqrt(100_000)
        self.source = GLMSource(self.x, self.y, self.w, "gaussian")
        self.sampler = DiscreteSampler(self.source, rng=1)
        self.rng = np.random.default_rng(1)

    def time_draw(self, name, spread):
        if name == "race":
            self.sampler.draw()
        elif name == "exact":
            (self.source.totals() - np.log(self.rng.standard_exponential(10))).argmax()
        else:
            sums = -0.5 * np.square(self.y[:, None] - self.x @ self.w.T).sum(axis=0)
            (sums - np.log(self.rng.standard_exponential(10))).argmax()
