"""Chains over tall data, in effective samples per CPU second, beside the chains people write by hand."""

import time

import numpy as np

from fastrace import mcmc
from fastrace.control_variates import taylor_glm
from fastrace.likelihoods import GLMSource
from fastrace.races.sampling import DiscreteSampler

from . import _by_hand


def logistic(n_rows, dim):
    """The task that the peers ran: an intercept and standard normal columns."""
    rng = np.random.default_rng([20160623, n_rows, dim])
    X = rng.standard_normal((n_rows, dim))
    X[:, 0] = 1.0
    eta = X @ rng.normal(0.0, 0.5, dim)
    return X, (rng.random(n_rows) < 1.0 / (1.0 + np.exp(-eta))).astype(float)


def softmax(n_rows=100_000, n_classes=5, dim=20):
    """Columns and classes of a multinomial regression."""
    rng = np.random.default_rng([20161125, n_rows, dim])
    X = rng.standard_normal((n_rows, dim))
    X[:, 0] = 1.0
    eta = X @ np.column_stack([np.zeros(dim), rng.normal(0.0, 0.3, (dim, n_classes - 1))])
    return X, np.argmax(eta + rng.gumbel(size=eta.shape), axis=1)


def softmax_of_groups(n_groups, n_classes, n_rows=100_000, dim=3, sd=0.6, skewed=False):
    """An intercept, columns, and intercepts of each group and class, with a standard deviation of `sd`; codes last.

    Groups are as likely as each other, or the k-th in proportion to 1 / k, beside one row of each.
    """
    rng = np.random.default_rng(20261128)
    X = np.column_stack([np.ones(n_rows), rng.standard_normal((n_rows, dim - 1))])
    codes = rng.integers(n_groups, size=n_rows)
    if skewed:
        share = 1.0 / np.arange(1, n_groups + 1)
        codes = np.r_[np.arange(n_groups), rng.choice(n_groups, n_rows - n_groups, p=share / share.sum())]
    eta = np.zeros((n_rows, n_classes))
    eta[:, 1:] = X @ (0.5 * rng.standard_normal((dim, n_classes - 1)))
    eta[:, 1:] += (sd * rng.standard_normal((n_groups, n_classes - 1)))[codes]
    return X, np.argmax(eta + rng.gumbel(size=eta.shape), axis=1), codes


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
        model = mcmc.GLM(X, y, "gaussian", scale=1.0, prior_sd=10.0)
        self.kernel = kernel_of(name, model, model.reference())
        self.state = self.kernel.init(rng=1)
        self.rng = np.random.default_rng(1)

    def time_ten_thousand_steps(self, name, dim):
        if name == "normal draws":      # what NumPy takes for the random numbers of the proposals alone
            self.rng.standard_normal((10_000, dim))
        else:
            self.kernel.run(self.rng, self.state, 10_000)


def by_hand():
    """The hand-written rivals; they need Numba."""
    if _by_hand.njit is None:
        raise NotImplementedError("Numba is not installed")
    return _by_hand


class ByHand:
    """Hand-written Numba chains with the same expansion, at the sizes of `Logistic`: effective samples per CPU second
    of the slowest coordinate."""

    params = (["race", "poisson"], [(100_000, 10), (100_000, 50)])
    param_names = ["kernel", "size"]
    timeout = 600

    def setup_cache(self):
        found = {}
        try:
            rivals = by_hand()
        except NotImplementedError:
            return found
        for size, n in zip(self.params[1], (20_000, 10_000), strict=True):
            X, y = logistic(*size)
            reference = mcmc.GLM(X, y, prior_sd=10.0).reference()
            p = 1.0 / (1.0 + np.exp(-X @ reference.theta_hat))
            mode, gradient = reference.theta_hat, X.T @ (y - p)
            hessian = -np.ascontiguousarray((X * (p * (1.0 - p))[:, None]).T @ X)
            bound = np.sqrt(np.square(X).sum(axis=1)) ** 3 / (6.0 * np.sqrt(3.0))
            factor = 2.38 / np.sqrt(size[1]) * reference.factor
            quantile = rivals.union_quantile(0.05, size[0], 50)
            known = (mode, gradient, hessian)
            more = {"race": (50, quantile, *known), "poisson": (*known, bound, np.cumsum(bound))}
            for name in self.params[0]:
                run = rivals.race_chain if name == "race" else rivals.poisson_chain
                run(X, y, mode, factor, 1, 1, *more[name])
                started = time.process_time()
                draws, read = run(X, y, mode, factor, n, 1, *more[name])
                spent = time.process_time() - started
                ess = min(mcmc.effective_sample_size(draws[:, j]) for j in range(size[1]))
                found[name, size] = ess / spent, read / n, 1e6 * spent / n
        return found

    def setup(self, found, name, size):
        if (name, size) not in found:
            raise NotImplementedError("Numba is not installed")

    def track_ess_per_second(self, found, name, size):
        return found[name, size][0]

    def track_rows_per_step(self, found, name, size):
        return found[name, size][1]

    def track_microseconds_per_step(self, found, name, size):
        return found[name, size][2]


class Choice:
    """One categorical variable of ten states and 10^5 factors. `spread` 1: states of real mass; 30: one state has
    nearly all. "race on a remainder": with a second-order control variate; "numpy": all factors by matrix product, as a
    hand-written Gibbs step; "numba", "numba race": hand-written loops over Gaussian factors."""

    params = (
        ["race", "race on a remainder", "exact", "numpy", "numba", "numba race"],
        [1.0, 30.0],
        ["gaussian", "student-t"],
    )
    param_names = ["draw", "spread", "factors"]

    def setup(self, name, spread, family):
        rng = np.random.default_rng([20160623, 100_000, 10, 5, 1])
        self.x = rng.standard_normal((100_000, 5))
        centre = rng.normal(0.0, 1.0, 5)
        self.y = self.x @ centre + rng.standard_normal(100_000)
        self.w = centre + spread * rng.standard_normal((10, 5)) / np.sqrt(100_000)
        self.source = GLMSource(self.x, self.y, self.w, family, 1.0)
        if name.startswith("numba"):
            if family != "gaussian":
                raise NotImplementedError("the hand-written loops have Gaussian factors")
            rivals = by_hand()
            first = 50 if name == "numba race" else 100_000
            quantile = rivals.union_quantile(0.05 / 9, 100_000, 50)
            self.rival = lambda: rivals.choice_draws(self.x, self.y, self.w, 1, 1, first, quantile)
            self.rival()
        factors = taylor_glm(self.source, centre) if name == "race on a remainder" else self.source
        self.sampler = DiscreteSampler(factors, rng=1)
        self.rng = np.random.default_rng(1)

    def time_draw(self, name, spread, family):
        if name.startswith("race"):
            self.sampler.draw()
        elif name == "exact":
            (self.source.totals() - np.log(self.rng.standard_exponential(10))).argmax()
        elif name == "numpy":
            left = self.y[:, None] - self.x @ self.w.T
            terms = -0.5 * left * left if family == "gaussian" else -2.5 * np.log1p(left * left / 4.0)
            (terms.sum(axis=0) - np.log(self.rng.standard_exponential(10))).argmax()
        else:
            self.rival()
