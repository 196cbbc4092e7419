"""Posteriors of PyMC models that no GLM holds, and of a horseshoe, against importance sampling by SciPy."""

import numpy as np
import pytest
from by_pymc import pm, pt
from scipy import optimize, special, stats

from fastrace import mcmc
from reference import pareto

N = 80
X = np.random.default_rng(0).normal(size=(N, 2))
ETA = X @ [0.6, -0.4]
GROUP = np.arange(N) % 4
ORDERED = pm.distributions.transforms.ordered


def slopes():
    return pm.Normal("b", 0.0, 2.0, shape=2)


def by_columns(b):
    """Log density of `slopes`, shape (k, 2), and the predictors, shape (k, N)."""
    return stats.norm.logpdf(b, 0.0, 2.0).sum(axis=1), b @ X.T


class Beta:
    """Each class: a model, and its priors and rows' terms at points of shape (k, free), on PyMC's own scales."""

    free = 4
    y = np.random.default_rng(1).beta(8.0 * special.expit(ETA), 8.0 * special.expit(-ETA))

    def build(self):
        mean = pm.math.sigmoid(pm.Normal("a", 0.0, 2.0) + X @ slopes())
        pm.Beta("obs", mu=mean, nu=pm.Gamma("nu", 2.0, 0.2), observed=self.y)

    def terms(self, t):
        prior, eta = by_columns(t[:, 1:3])
        mean, nu = special.expit(t[:, :1] + eta), np.exp(t[:, 3:])
        prior = prior + stats.norm.logpdf(t[:, 0], 0.0, 2.0) + stats.gamma.logpdf(nu[:, 0], 2.0, scale=5.0) + t[:, 3]
        return prior, stats.beta.logpdf(self.y, mean * nu, (1.0 - mean) * nu)


class HurdleGamma:
    free = 5
    y = np.random.default_rng(2).gamma(2.0, np.exp(0.4 + ETA) / 2.0) * (np.random.default_rng(3).random(N) < 0.7)

    def build(self):
        mean = pm.math.exp(pm.Normal("a", 0.0, 2.0) + X @ slopes())
        shape, psi = pm.Gamma("alpha", 2.0, 1.0), pm.Beta("psi", 2.0, 2.0)
        pm.HurdleGamma("obs", psi=psi, alpha=shape, beta=2.0 / mean, observed=self.y)

    def terms(self, t):
        prior, eta = by_columns(t[:, 1:3])
        shape, psi = np.exp(t[:, 3:4]), special.expit(t[:, 4:])
        prior = prior + stats.norm.logpdf(t[:, 0], 0.0, 2.0) + stats.gamma.logpdf(shape[:, 0], 2.0) + t[:, 3]
        prior = prior + stats.beta.logpdf(psi[:, 0], 2.0, 2.0) + np.log(psi * (1.0 - psi))[:, 0]
        with np.errstate(divide="ignore"):
            above = np.log(psi) + stats.gamma.logpdf(self.y, shape, scale=np.exp(t[:, :1] + eta) / 2.0)
        return prior, np.where(self.y > 0.0, above, np.log1p(-psi))


class Multinomial:
    free = 4
    shares = special.softmax(X @ [[0.5, -0.3, 0.0], [0.2, 0.4, 0.0]], axis=1)
    y = np.random.default_rng(4).multinomial(5, shares)

    def build(self):
        scores = X @ pt.concatenate([pm.Normal("b", 0.0, 2.0, shape=(2, 2)), pt.zeros((2, 1))], axis=1)
        pm.Multinomial("obs", n=5, p=pm.math.softmax(scores, axis=1), observed=self.y)

    def terms(self, t):
        scores = np.einsum("nj,kjc->knc", X, np.pad(t.reshape(-1, 2, 2), ((0, 0), (0, 0), (0, 1))))
        return stats.norm.logpdf(t, 0.0, 2.0).sum(axis=1), (self.y * special.log_softmax(scores, axis=2)).sum(axis=2)


class OrderedProbit:
    free = 4
    y = np.digitize(ETA + np.random.default_rng(5).normal(size=N), [-0.7, 0.6])

    def build(self):
        cuts = pm.Normal("c", [-0.5, 0.5], 2.0, shape=2, transform=ORDERED, initval=np.array([-0.5, 0.5]))
        pm.OrderedProbit("obs", eta=X @ slopes(), cutpoints=cuts, observed=self.y)

    def terms(self, t):
        prior, eta = by_columns(t[:, 2:])
        low, high = t[:, :1], t[:, :1] + np.exp(t[:, 1:2])
        prior = prior + stats.norm.logpdf(np.hstack([low, high]), [-0.5, 0.5], 2.0).sum(axis=1) + t[:, 1]
        below, above = special.ndtr(low - eta), special.ndtr(eta - high)
        return prior, np.log(np.choose(self.y, [below, 1.0 - below - above, above]))


class Truncated:
    free = 4
    y = stats.truncnorm.rvs(-(1.5 + ETA) / 0.8, np.inf, 1.5 + ETA, 0.8, random_state=6)

    def build(self):
        mean = pm.Normal("a", 0.0, 3.0) + X @ slopes()
        pm.Truncated("obs", pm.Normal.dist(mean, pm.HalfNormal("s", 2.0)), lower=0.0, observed=self.y)

    def terms(self, t):
        prior, eta = by_columns(t[:, 1:3])
        mean, s = t[:, :1] + eta, np.exp(t[:, 3:])
        prior = prior + stats.norm.logpdf(t[:, 0], 0.0, 3.0) + stats.halfnorm.logpdf(s[:, 0], scale=2.0) + t[:, 3]
        return prior, stats.norm.logpdf(self.y, mean, s) - special.log_ndtr(mean / s)


class ZeroSumNormal:
    """Three numbers make the four effects, by an isometry."""

    free = 6
    y = np.random.default_rng(7).random(N) < special.expit(ETA + np.array([0.5, -0.2, -0.4, 0.1])[GROUP])

    def build(self):
        u = pm.ZeroSumNormal("u", sigma=0.7, shape=4)
        eta = pm.Normal("a", 0.0, 2.0) + X @ slopes() + u[GROUP]
        pm.Bernoulli("obs", logit_p=eta, observed=self.y.astype(int))

    def terms(self, t):
        prior, eta = by_columns(t[:, 4:])
        total = t[:, :3].sum(axis=1, keepdims=True)
        shift = total / 6.0
        u = np.hstack([t[:, :3], shift - total / 2.0]) - shift
        prior = prior + stats.norm.logpdf(t[:, :3], 0.0, 0.7).sum(axis=1) + stats.norm.logpdf(t[:, 3], 0.0, 2.0)
        return prior, special.log_expit((t[:, 3:4] + eta + u[:, GROUP]) * np.where(self.y, 1.0, -1.0))


CASES = [Beta(), HurdleGamma(), Multinomial(), OrderedProbit(), Truncated(), ZeroSumNormal()]
NAMES = [type(case).__name__ for case in CASES]


def weighted(draws, ratios):
    """Means, variances, squared errors of both, and the covariance, by draws of shape (k, dim) and log weights."""
    weights = np.exp(ratios - ratios.max())
    weights /= weights.sum()
    mean = weights @ draws
    squares = (draws - mean) ** 2
    variance = weights @ squares
    errors = weights**2 @ squares, weights**2 @ (squares - variance) ** 2
    return mean, variance, *errors, np.cov(draws.T, aweights=weights)


def importance(case, rows, k=20_000):
    """As `weighted`, of Student-t draws about the mode, and then of draws about the moments of these."""
    def density(t):
        prior, terms = case.terms(t)
        return np.nan_to_num(prior + terms[:, rows].sum(axis=1), nan=-np.inf, posinf=-np.inf)

    found = optimize.minimize(lambda t: min(-density(t[None])[0], 1e10), np.full(case.free, 0.1), method="BFGS")
    mean, covariance, rng = found.x, found.hess_inv, np.random.default_rng(8)
    for n in (2000, k):
        proposal = stats.multivariate_t(mean, 1.2 * covariance, df=8.0)
        draws = proposal.rvs(n, random_state=rng)
        ratios = density(draws) - proposal.logpdf(draws)
        mean, _, _, _, covariance = weighted(draws, ratios)
    assert pareto.smooth(list(ratios))[1] < 0.5
    return weighted(draws, ratios)[:4]


def distances(draws, reference):
    """Of shape (n_chains, n_draws, dim), in standard errors of both sides: means and variances, shape (2, dim)."""
    mean, variance, error, error_of_variance = reference
    squares = (draws - mean) ** 2
    ess = [[mcmc.effective_sample_size(table[:, :, j]) for j in range(len(mean))] for table in (draws, squares)]
    return np.abs([
        (draws.mean(axis=(0, 1)) - mean) / np.sqrt(variance / ess[0] + error),
        (squares.mean(axis=(0, 1)) - variance) / np.sqrt(squares.var(axis=(0, 1)) / ess[1] + error_of_variance)])


def made(case):
    with pm.Model() as model:
        case.build()
    return mcmc.from_pymc(model)


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_rows_and_priors_of_other_families_are_those_of_scipy(case):
    """Up to a constant of each row and one of the prior; the root of 2 in PyMC's probit has single precision."""
    model, points = made(case), np.random.default_rng(9).normal(scale=0.4, size=(4, case.free))
    assert model.dim == case.free and "PyTensor" in repr(model)
    prior, terms = case.terms(points)
    rows = np.array([model.terms(point, np.arange(N)) for point in points]) - terms
    rest = np.array([model.rest(point) for point in points]) - prior
    np.testing.assert_allclose(rows, np.tile(rows[0], (4, 1)), atol=1e-6)
    np.testing.assert_allclose(rest, rest[0], atol=1e-9)


@pytest.mark.parametrize("case", [
    pytest.param(case, id=name, marks=[pytest.mark.long] if name == "OrderedProbit" else [])
    for case, name in zip(CASES, NAMES, strict=True)])
def test_races_of_other_families_have_the_posterior_of_importance_sampling(case):
    """Refused by error once in a million; the posterior of half of the rows is refused."""
    draws = mcmc.sample(mcmc.RacingMetropolis(made(case)), n_draws=600, n_chains=2, n_tune=150, rng=1).draws
    limit = stats.norm.isf(1e-6 / (4 * case.free))
    assert distances(draws, importance(case, np.arange(N))).max() < limit
    assert distances(draws, importance(case, np.arange(N // 2))).max() > limit


def horseshoe(y):
    """A regularised one of two columns."""
    sigma, a = pm.HalfNormal("sigma", 2.5), pm.Normal("a", 0.0, 5.0)
    tau, lam, c2 = pm.HalfCauchy("tau", 0.3), pm.HalfCauchy("lam", 1.0, shape=2), pm.InverseGamma("c2", 2.0, 8.0)
    beta = pm.Deterministic("beta", pm.Normal("z", shape=2) * tau * lam * pm.math.sqrt(c2 / (c2 + tau**2 * lam**2)))
    pm.Normal("obs", a + X @ beta, sigma, observed=y)


def of_a_horseshoe(y, k=100_000):
    """By drawing scales from their priors, but sigma, and weighting them by the likelihood without coefficients."""
    rng, columns = np.random.default_rng(8), np.column_stack([np.ones(N), X])
    spread = stats.t(8.0, np.log(np.std(y - columns @ np.linalg.lstsq(columns, y)[0])), 1.2 / np.sqrt(2 * N))
    log_sigma = spread.rvs(k, random_state=rng)
    tau, lam = 0.3 * np.abs(rng.standard_cauchy((k, 1))), np.abs(rng.standard_cauchy((k, 2)))
    c2 = 8.0 / rng.gamma(2.0, size=(k, 1))
    root = np.hstack([np.full((k, 1), 5.0), tau * lam * np.sqrt(c2 / (c2 + tau**2 * lam**2))])
    variance = np.exp(2.0 * log_sigma)[:, None]
    inner = root[:, :, None] * (columns.T @ columns) * root[:, None, :] / variance[:, :, None] + np.eye(3)
    slope = root * (columns.T @ y) / variance
    mean = np.linalg.solve(inner, slope[:, :, None])[:, :, 0]
    ratios = stats.halfnorm.logpdf(np.exp(log_sigma), scale=2.5) + log_sigma - spread.logpdf(log_sigma)
    ratios += 0.5 * (slope * mean).sum(axis=1) - 0.5 * np.linalg.slogdet(inner)[1]
    ratios -= N * log_sigma + 0.5 * y @ y / variance[:, 0]
    noise = np.linalg.solve(np.swapaxes(np.linalg.cholesky(inner), 1, 2), rng.normal(size=(k, 3, 1)))[:, :, 0]
    assert pareto.smooth(list(ratios))[1] < 0.5
    draws = np.column_stack([root * (mean + noise), log_sigma, np.log(np.hstack([tau, lam, c2]))])
    return weighted(draws, ratios)[:4]


def test_chains_of_a_regularised_horseshoe_have_the_posterior_of_importance_sampling():
    """Coefficients and logarithms of all scales; the posterior of outcomes with half the slopes is refused."""
    y = ETA + np.random.default_rng(10).normal(size=N)
    with pm.Model() as model:
        horseshoe(y)
    ours = mcmc.from_pymc(model)
    trace = mcmc.sample(mcmc.SurrogateMetropolis(ours), n_draws=1500, n_chains=2, rng=1)
    named = ours.unpack(trace)
    columns = [named["a"][..., None], named["beta"], *(np.log(named[v])[..., None] for v in ("sigma", "tau")),
               np.log(named["lam"]), np.log(named["c2"])[..., None]]
    draws = np.concatenate(columns, axis=-1)
    limit = stats.norm.isf(1e-6 / (4 * 8))
    assert distances(draws, of_a_horseshoe(y)).max() < limit
    assert distances(draws, of_a_horseshoe(y - 0.5 * ETA)).max() > limit
