"""What tests of chains share: models, kernels, an enumerable target, checks of derivatives and of posteriors."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from scipy import special, stats

from fastrace import mcmc
from reference import mcmc as twin


def logistic(n_rows, dim, seed=0, spread=0.5):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_rows, dim))
    X[:, 0] = 1.0
    theta = spread * rng.standard_normal(dim)
    return X, (rng.random(n_rows) < 1.0 / (1.0 + np.exp(-X @ theta))).astype(float)


def logistic_model(n_rows=1000, dim=2, **options):
    """All coefficients are 1, and the first column is constant."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(n_rows, dim))
    X[:, 0] = 1.0
    return mcmc.GLM(X, rng.random(n_rows) < special.expit(X.sum(axis=1)), **options)


def mostly_ones(n_rows=60, seed=3, **options):
    """Some four outcomes in five are 1; of 60 rows, a normal density follows the posterior badly."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n_rows), rng.normal(size=n_rows)])
    return mcmc.GLM(X, rng.random(n_rows) < special.expit(1.5 + X[:, 1]), **({"prior_sd": 2.5} | options))


def outcomes(family, X, theta, rng):
    eta = X @ theta
    if family == "logistic":
        return (rng.random(len(X)) < 1.0 / (1.0 + np.exp(-eta))).astype(float)
    if family == "poisson":
        return rng.poisson(np.exp(eta)).astype(float)
    return eta + (rng.standard_normal(len(X)) if family == "gaussian" else rng.standard_t(4.0, len(X)))


def scale_of(family):
    return {"scale": 1.0} if family in ("gaussian", "student-t") else {}


KERNELS = {
    "exact": lambda model, **o: mcmc.Metropolis(model, **o),
    "exact-plain": lambda model, **o: mcmc.Metropolis(model, control_variate=None, **o),
    "poisson": lambda model, **o: mcmc.PoissonMinibatchMetropolis(model, **o),
    "poisson-one-stage": lambda model, **o: mcmc.PoissonMinibatchMetropolis(model, delayed=False, **o),
    "race": lambda model, **o: mcmc.RacingMetropolis(model, 0.01, **o),
    "race-normal": lambda model, **o: mcmc.RacingMetropolis(model, 0.01, "normal", **o),
    "race-plain": lambda model, **o: mcmc.RacingMetropolis(model, 0.01, control_variate=None, **o),
    "tuna": lambda model, **o: mcmc.TunaMetropolis(model, chi=1e-2, full_pass_at=1e9, **o),
    "firefly": lambda model, **o: mcmc.FireflyMetropolis(model, full_pass_at=1e9, **o),
    "firefly-half": lambda model, **o: mcmc.FireflyMetropolis(model, fraction=0.5, full_pass_at=2.0, **o),
}
EXACT = ["exact", "exact-plain", "poisson", "poisson-one-stage", "tuna", "firefly", "firefly-half"]
RACES = ["race", "race-normal", "race-plain"]


class Sabotaged:
    """A kernel whose law is that of another, stretched about a center and shifted: draws that are wrong by so much."""

    def __init__(self, kernel, center, sd, shift=0.0, spread=1.0):
        self.kernel, self.center, self.shift, self.spread = kernel, center, shift * sd, spread

    def init(self, theta=None, **options):
        if theta is not None:
            theta = self.center + (theta - self.center - self.shift) / self.spread
        return self.kernel.init(theta, **options)

    def run(self, rng, state, steps):
        state, made = self.kernel.run(rng, state, steps)
        return state, replace(made, draws=self.center + self.shift + self.spread * (made.draws - self.center))


def departure(kernel, theta, pilot, value, steps, rng):
    """What a chain changes in functions of parameters and data that were drawn from their joint law: means are 0.

    Given the data `theta` is a draw of the posterior, and a right kernel that starts there makes others, however slowly
    it moves. Functions are bounded: each parameter, and how far below its top `value` is, a function of points and
    data, as shares of normal and gamma laws with the moments of the pilot's draws, and how far the parameters are from
    their means. The pilot knows the data, not `theta`; one that stood still has no moments, and 1 takes their place.
    """
    center, sd, values = pilot.mean(axis=0), pilot.std(axis=0), value(pilot)
    top, mean, variance = values.max(), (values.max() - values).mean(), values.var()
    still = (pilot == pilot[0]).all(axis=0)
    sd = np.where(still, 1.0, sd)
    mean, variance = (1.0, 1.0) if still.all() else (mean, variance)

    def of(points):
        shares = stats.norm.cdf((points - center) / sd)
        depths = stats.gamma.cdf(top - value(points), mean**2 / variance, scale=variance / mean)
        return np.column_stack([shares, depths, np.abs(2.0 * shares - 1.0).mean(axis=1)])

    _, made = kernel.run(rng, kernel.init(theta), steps)
    return of(made.draws[steps // 2 :: max(1, steps // 20)]).mean(axis=0) - of(theta[None])[0]


def by_turns(theta, outcomes_at, kernel_of, of_parameters, of_both, turns, steps, rng):
    """What the joint test of Geweke (2004) changes in functions whose means the joint law keeps: means are 0.

    From parameters of the prior, outcomes and parameters are drawn in turn, the latter by some steps of a chain, which
    may be slow. `of_parameters` is compared with the start, `of_both` after each turn with before it: bounded
    functions, such as how well parameters fit the outcomes.
    """
    start, moved = np.array(of_parameters(theta)), []
    for _ in range(turns):
        y = outcomes_at(theta)
        kernel = kernel_of(y)
        before = theta
        theta = kernel.run(rng, kernel.init(before), steps)[1].draws[-1]
        moved.append(of_both(theta, y) - of_both(before, y))
    return np.append(of_parameters(theta) - start, np.mean(moved))


def slots_from_exact_draws(kernel, grid, log_density, rng):
    """Chains that begin at 3,000 exact draws of one parameter: in which fifth of its law each of 4 steps ends.

    The law has this log density on a fine, even grid. Counts of shape (4, 5): each step, and each fifth.
    """
    density = np.exp(log_density - np.max(log_density))
    cumulative = np.cumsum(density) / density.sum()
    edges = np.interp(np.linspace(0.0, 1.0, 6)[1:-1], cumulative, grid)
    counts = np.zeros((4, 5), int)
    for start in np.interp(rng.random(3000), cumulative, grid):
        _, steps = kernel.run(rng, kernel.init([start]), 4)
        for slot, place in enumerate(np.searchsorted(edges, steps.draws[:, 0])):
            counts[slot, place] += 1
    return counts


class Lattice:
    """Four parameter vectors, and proposals that draw one of the three others."""

    def __init__(self, n_rows=60, seed=3):
        self.X, self.y = logistic(n_rows, 2, seed)
        self.model = mcmc.GLM(self.X, self.y, prior_sd=2.0)
        center, factor = self.model.reference().center, self.model.reference().factor
        self.points = center + np.array([[0.0, 0.0], [1.5, -0.5], [-1.0, 1.2], [0.4, 1.9]]) @ factor.T
        log_p = [twin.log_terms("logistic", self.X, self.y, p).sum() - p @ p / 8.0 for p in self.points]
        self.p = np.exp(log_p - np.max(log_p))
        self.p /= self.p.sum()

    def number(self, theta):
        return int(np.abs(self.points - theta).sum(axis=1).argmin())

    def propose(self, rng, theta):
        other = (self.number(theta) + rng.integers(1, 4)) % 4
        return self.points[other], 0.0

    def counts(self, kernel, trials, steps, rng):
        out = np.zeros(4, int)
        states = [kernel.init(p) for p in self.points]
        for start in rng.choice(4, size=trials, p=self.p):
            _, made = kernel.run(rng, states[start], steps)
            out[self.number(made.draws[-1])] += 1
        return out


def rare(n_rows, dim, seed=0, intercept=-4.0):
    """Few outcomes of 1: third derivatives near the mode are far smaller than elsewhere."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n_rows), rng.standard_normal((n_rows, dim - 1))])
    return X, (rng.random(n_rows) < 1.0 / (1.0 + np.exp(-intercept - 0.5 * X[:, 1:].sum(axis=1)))).astype(float)


def counts(n_rows=20_000):
    """Poisson regression whose terms are of order 1e7, so that their residuals are rounding."""
    rng = np.random.default_rng(0)
    X = np.stack([np.ones(n_rows), 0.1 * rng.standard_normal(n_rows)], axis=1)
    return mcmc.GLM(X, rng.poisson(np.exp(X @ [13.8, 1.0])), family="poisson")


def shifted(n_rows=2000):
    """Terms with a constant of 1e8, which says nothing, and third derivatives that are what they are said to be."""
    third = 3.0 * np.where(np.arange(n_rows) % 2, 1.0, -1.0)

    def terms(theta, rows):
        return 1e8 - 0.5 * theta[0] ** 2 + third[rows] * theta[0] ** 3 / 6.0

    def derivatives(theta, rows):
        gradient, hessian = -theta[0] + third[rows] * theta[0] ** 2 / 2.0, -1.0 + third[rows] * theta[0]
        return gradient[:, None], hessian[:, None, None]

    return mcmc.FunctionModel(terms, 1, n_rows, derivatives=derivatives, third_derivatives=np.abs(third))


def raced(n_rows=2000):
    return mcmc.RacingMetropolis(mcmc.GLM(*logistic(n_rows, 3, 7), prior_sd=10.0))


def assert_keeps_steps(make, call):
    """A run that fails, at this call of the log prior, keeps the steps before it, and where the chain stood then."""
    X, y = rare(100, 2, 3, -1.5)
    calls = []

    def log_prior(theta):
        calls.append(theta)
        if len(calls) == call:
            raise KeyError("mine")
        return 0.0

    kernel = make(mcmc.GLM(X, y, prior_sd=3.0, log_prior=log_prior))
    calls.clear()
    with pytest.raises(KeyError, match="mine") as caught:
        kernel.run(np.random.default_rng(2), kernel.init(rng=1), 50)
    state, steps = caught.value.partial_run
    assert 0 < len(steps) < 50
    np.testing.assert_array_equal(state.position, steps.draws[-1])


def assert_derivatives(model, at, terms):
    """The expansion at a point against differences of the twin's sums, and the residuals against both."""
    value, gradient, hessian = model._expand(at)
    assert value == pytest.approx(terms(at).sum(), rel=1e-12)
    step = 1e-5
    for j in range(model.dim):
        e = step * np.eye(model.dim)[j]
        slope = (terms(at + e).sum() - terms(at - e).sum()) / (2 * step)
        assert slope == pytest.approx(gradient[j], rel=1e-6, abs=1e-6 * np.abs(gradient).max() + 1e-5)
        bend = (model._expand(at + e)[1] - model._expand(at - e)[1]) / (2 * step)
        np.testing.assert_allclose(bend, hessian[j], rtol=1e-5, atol=1e-7 * np.abs(hessian).max())
    reference = mcmc.Reference(at, at, np.eye(model.dim), None, np.inf)
    source, theta = model.engine(reference)
    plain, parameters = model.engine(None)
    rng = np.random.default_rng(9)
    theta[:] = parameters[:] = at + 0.1 * rng.standard_normal((2, model.dim))
    rows = rng.permutation(model.n_rows)
    for arm in (0, 1):
        here, d = terms(theta[arm]), theta[arm] - at
        np.testing.assert_allclose(plain.read(rows)[:, arm], here[rows], rtol=1e-12, atol=1e-12)
        assert plain.totals()[arm] == pytest.approx(here.sum(), rel=1e-12)
        residual = source.read(rows)[:, arm]
        assert source.totals()[arm] == pytest.approx(residual.sum(), rel=1e-9, abs=1e-11)
        rest = here.sum() - (value + gradient @ d + 0.5 * d @ hessian @ d)
        assert residual.sum() == pytest.approx(rest, abs=1e-10 * abs(value))
    return source, theta


def assert_same_posterior(exact, ours, center, alpha=1e-6):
    for j in range(len(center)):
        for power in (1, 2):
            a, b = ((t.draws[0, :, j] - center[j]) ** power for t in (exact, ours))
            error = np.hypot(*(x.std() / np.sqrt(mcmc.effective_sample_size(x)) for x in (a, b)))
            assert abs(a.mean() - b.mean()) < stats.norm.isf(alpha / (4 * len(center))) * error + 0.01 * b.std()


def assert_runs_continue(kernel, other, path):
    """Threads, pickles and checkpoints leave every bit of a mixture's chains; `other` is a kernel of another run."""
    run = {"n_chains": 3, "rng": 1, "n_tune": 40}
    whole = mcmc.sample(kernel, n_draws=60, threads=3, **run)
    turns = mcmc.sample(pickle.loads(pickle.dumps(kernel)), n_draws=60, threads=1, **run)
    assert (whole.draws == turns.draws).all()
    for n in (25, 60):
        resumed = mcmc.sample(kernel, n_draws=n, checkpoint=path, **run)
    assert (whole.draws == resumed.draws).all()
    assert kernel.acceptance(whole) == kernel.acceptance(resumed)
    with pytest.raises(ValueError, match="another run"):
        mcmc.sample(other, n_draws=60, checkpoint=path, **run)
