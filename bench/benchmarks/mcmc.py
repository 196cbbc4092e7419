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
        return mcmc.RacingMetropolis(model, access="random", **options)
    if kind == "race-shuffled":
        return mcmc.RacingMetropolis(model, access="shuffled", **options)
    if kind == "poisson":
        return mcmc.PoissonMinibatchMetropolis(model, **options)
    if kind == "firefly":
        return mcmc.FireflyMetropolis(model, **options)
    return mcmc.Metropolis(model, control_variate=None, proposal="random-walk")


class Logistic:
    """Effective samples per CPU second of the slowest coordinate, and rows read per step. "random-walk" proposals are
    those of the hand-written chains; "exact" reads all rows in every step, by vector code."""

    params = (
        ["poisson", "poisson/random-walk", "firefly", "race", "race-shuffled", "race/random-walk", "exact"],
        [(100_000, 10), (1_000_000, 10), (100_000, 50), (100_000, 100)],
    )
    param_names = ["kernel", "size"]
    timeout = 600
    seconds = 0.15      # CPU time of a chain

    def setup_cache(self):
        """Every chain once: effective samples a second, rows a step, microseconds a step."""
        found = {}
        for size in self.params[1]:
            model = mcmc.GLM(*logistic(*size), prior_sd=10.0, shuffle=1)
            reference = model.reference()
            for name in self.params[0]:
                if name != "exact" or size == (100_000, 10):
                    found[name, size] = self.figures(kernel_of(name, model, reference))
        return found

    def figures(self, kernel):
        rng = np.random.default_rng(1)
        state, parts, spent, n = kernel.init(rng=rng), [], 0.0, 20
        while spent < self.seconds:
            started = time.process_time()
            state, steps = kernel.run(rng, state, n)
            spent += time.process_time() - started
            parts.append(steps)
            n *= 2
        draws = np.concatenate([part.draws for part in parts])
        ess = min(mcmc.effective_sample_size(draws[:, j]) for j in range(draws.shape[1]))
        rows = np.concatenate([part.rows for part in parts]).mean()
        return ess / spent, float(rows), 1e6 * spent / len(draws)

    def setup(self, found, name, size):
        if (name, size) not in found:
            raise NotImplementedError("a chain of full passes is timed at one size")

    def track_ess_per_second(self, found, name, size):
        return found[name, size][0]

    def track_rows_per_step(self, found, name, size):
        return found[name, size][1]

    def track_microseconds_per_step(self, found, name, size):
        return found[name, size][2]


class StepOverhead:
    """A step whose rows cost nothing: a Gaussian likelihood, whose expansion leaves no remainder."""

    params = (["race", "poisson", "firefly", "normal draws"], [2, 10, 50])
    param_names = ["kernel", "dim"]

    def setup(self, name, dim):
        X, y = logistic(10_000, dim)
        model = mcmc.GLM(X, y, "gaussian", prior_sd=10.0)
        self.kernel = kernel_of(name, model, model.reference())
        self.state = self.kernel.init(rng=1)
        self.rng = np.random.default_rng(1)

    def time_ten_thousand_steps(self, name, dim):
        if name == "normal draws":      # what NumPy takes for the random numbers of the proposals alone
            self.rng.standard_normal((10_000, dim))
        else:
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
