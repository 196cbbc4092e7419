"""Gaussian and Student-t models whose scale is learned: a surrogate that is normal given the scale."""

import pickle

import numpy as np
import pytest
from scipy import special, stats

from fastrace import mcmc
from fastrace.mcmc.kernels import _surrogate_moves
from fastrace.mcmc.models._modes import QuadraticPart
from reference import surrogate as twin

SEED = 20261122


def hierarchy(family="gaussian", n_groups=6, per=4, **options):
    """Intercepts and slopes of few groups with few rows each; offset and weights of the rows."""
    rng = np.random.default_rng(SEED)
    codes = np.tile(np.arange(n_groups), per)
    x = rng.standard_normal(len(codes))
    X, offset = np.column_stack([np.ones(len(codes)), x]), rng.standard_normal(len(codes))
    weights = rng.integers(1, 4, len(codes)).astype(float)
    effects = rng.standard_normal((n_groups, 2)) * [0.8, 0.4]
    y = offset + X @ [1.0, -0.5] + effects[codes, 0] + effects[codes, 1] * x + 0.7 * rng.standard_normal(len(codes))
    table = np.zeros((len(codes), 2 * n_groups))
    table[np.arange(len(codes)), 2 * codes], table[np.arange(len(codes)), 2 * codes + 1] = 1.0, x
    groups = mcmc.Groups(codes, slopes=x[:, None], correlated=False)
    model = mcmc.GLM(X, y, family, offset=offset, weights=weights, groups=groups, prior=mcmc.Normal(0.0, 2.0),
                     group_prior=mcmc.HalfNormal(1.0), scale_prior=mcmc.HalfCauchy(1.0), **options)
    return model, np.hstack([X, table]), y - offset, weights


def log_scale(s):
    return stats.halfcauchy.logpdf(np.exp(s)) + s


@pytest.mark.parametrize("far", [False, True])
def test_the_marginal_of_scales_is_that_of_a_normal_outcome(far):
    """Rows of weight w are normal with variance sigma^2 / w, times sigma^(1 - w): all of it, and no expansion."""
    model, table, y, weights = hierarchy()
    made = mcmc.compress(model)
    if far:
        made = mcmc.compress(model, made.psi_hat + 0.05)
    inner = mcmc.SurrogateMetropolis(model, psi_hat=made)._inner()

    def closed(phi):
        sigma, variances = np.exp(phi[0]), np.r_[4.0, 4.0, np.tile(np.exp(2.0 * phi[1:]), 6)]
        whole = np.diag(sigma**2 / weights) + (table * variances) @ table.T
        hyper = stats.halfnorm.logpdf(np.exp(phi[1:])) + phi[1:]
        return (stats.multivariate_normal(np.zeros(len(y)), whole).logpdf(y) + (1.0 - weights).sum() * phi[0]
                + log_scale(phi[0]) + hyper.sum())

    points = np.random.default_rng(0).standard_normal((6, 3))
    ours, truth = ([f(x) for x in points] for f in (inner.marginal_of, closed))
    np.testing.assert_allclose(np.diff(ours), np.diff(truth), rtol=1e-9, atol=1e-8)
    theta = np.r_[made.psi_hat + 0.1, 0.2, -0.3]
    apart = inner.log_density_of(theta) - model.log_posteriors(theta[None])[0]
    other = np.r_[made.psi_hat - 0.2, -0.1, 0.4]
    assert inner.log_density_of(other) - model.log_posteriors(other[None])[0] == pytest.approx(apart, rel=1e-9)


@pytest.mark.parametrize("decision", ["auto", "exact"])
def test_a_quadratic_part_of_the_prior_does_not_follow_the_scale(decision):
    """As of an intercept whose prior stands where columns have their means."""
    model, *_ = hierarchy()
    turn = np.array([1.0, 0.7])
    model.prior_part = QuadraticPart(3.0 * np.outer(turn, turn), 2.0 * turn)
    inner = mcmc.SurrogateMetropolis(model, decision=decision)._inner()
    draws = inner.draws(np.r_[np.zeros(14), 0.0, 0.0, 0.0], 8, np.random.default_rng(0))
    moved_for = np.array([inner.log_density_of(x) for x in draws])    # with what rows decide on, the posterior
    if decision == "exact":
        made = mcmc.compress(model)
        moved_for += model._log_likelihoods(draws[:, :15]) - [made.log_likelihood(x[:15]) for x in draws]
    apart = moved_for - model.log_posteriors(draws)
    np.testing.assert_allclose(apart, apart[0], rtol=1e-9, atol=1e-8)
    marginals = [inner.marginal_of(x[14:]) for x in draws]      # joint over conditional, which is normal
    for x, top in zip(draws, marginals, strict=True):
        table = np.array([inner.mean_of(x[14:]), x[:14]])
        middle, end = (inner.log_density_of(np.r_[row, x[14:]]) - inner.beside_of(np.r_[row, x[14:]]) * (
            decision == "exact") for row in table)
        assert middle >= end and np.isfinite(top)


@pytest.mark.parametrize("size", [1.0, 0.4])
def test_a_chain_with_a_learned_scale_is_its_twin(size):
    model, table, y, weights = hierarchy()
    kernel = mcmc.SurrogateMetropolis(model)
    assert kernel.describe()["decision"] == "none"
    hat = np.array(kernel.compressed.psi_hat[:-1])
    inner = kernel._inner()
    inner.size = size
    plain = twin.ScaledInner(hat, table, y, weights, log_scale, twin.Prior([2.0, 2.0], [(6, [1.0, 1.0])]),
                             np.r_[2:14, 0:2], kernel._phi_center, kernel._phi_factor, inner.walk_share, size,
                             kernel._phi_stretch)
    theta, stream = np.array(kernel._middle), np.random.default_rng(3)
    for draw in inner.draws(theta, 60, np.random.default_rng(3)):
        psi, phi = theta[:14], theta[14:]
        keep, (L, mean) = np.sqrt(1.0 - size**2), plain.given(phi)
        z = (L.T @ (psi - hat - mean)[plain.order])
        phi = plain.move_phi(phi, stream)
        L, mean = plain.given(phi)
        xi = np.array([stream.standard_normal() for _ in psi])[plain.order]
        psi = np.empty(14)
        psi[plain.order] = np.linalg.solve(L.T, keep * z + size * xi)
        theta = np.concatenate([hat + mean + psi, phi])
        np.testing.assert_allclose(draw, theta, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("decision", ["auto", "exact"])
def test_scales_of_few_rows_have_their_posterior_by_quadrature(decision):
    rng = np.random.default_rng(SEED)
    codes = np.repeat(np.arange(4), [3, 5, 2, 6])
    y = rng.standard_normal(4)[codes] + 0.6 * rng.standard_normal(16)
    model = mcmc.GLM(np.ones((16, 1)), y, "gaussian", groups=codes, prior=mcmc.Normal(0.0, 2.0),
                     group_prior=mcmc.HalfNormal(1.0), scale_prior=mcmc.HalfCauchy(1.0))
    kernel = mcmc.SurrogateMetropolis(model, decision=decision)
    trace = mcmc.sample(kernel, n_draws=4000, n_chains=2, rng=1)
    grid, other = np.linspace(-2.5, 2.5, 121), np.linspace(-7.0, 2.0, 121)
    same = (codes[:, None] == codes) * 1.0
    values, vectors = np.linalg.eigh(same)              # one decomposition: sigma^2 I + tau^2 same, and the intercept
    ours, ones = vectors.T @ y, vectors.T @ np.ones(16)
    variance = np.exp(2.0 * grid)[:, None, None] + np.exp(2.0 * other)[:, None] * values
    a, b, c = ((x / variance).sum(axis=-1) for x in (ones * ones, ones * ours, ours * ours))
    log = 0.5 * (b * b / (a + 0.25) - c - np.log(variance).sum(axis=-1) - np.log1p(4.0 * a))
    log = log + log_scale(grid)[:, None] + stats.halfnorm.logpdf(np.exp(other)) + other
    p = special.softmax(log)
    truths = [(p.sum(axis=1), grid), (p.sum(axis=0), other)]
    draws = model.unconstrain(trace._flat())
    mean = float((p * b / (a + 0.25)).sum())
    for column, moments in ((-2, [q @ truths[0][1] ** k for q in truths[0][:1] for k in (1, 2)]),
                            (-1, [truths[1][0] @ other**k for k in (1, 2)]), (0, [mean])):
        for k, truth in enumerate(moments, 1):
            values = draws[:, :, column] ** k
            error = values.std() / np.sqrt(mcmc.effective_sample_size(values))
            assert abs(values.mean() - truth) < 5.5 * error + 1e-3
    if decision == "auto":
        assert trace.accepted.all() and trace.ess().min() > 1500.0


def test_a_classic_of_repeated_measures_mixes():
    """Ten days of 18 subjects, an intercept and a slope each: 180 rows."""
    rng = np.random.default_rng(0)
    codes, day = np.repeat(np.arange(18), 10), np.tile(np.arange(10.0), 18)
    subjects = np.array([251.0, 10.5]) + rng.normal(size=(18, 2)) * [25.0, 6.0]
    y = subjects[codes, 0] + subjects[codes, 1] * day + 25.6 * rng.normal(size=180)
    trace = mcmc.sample(mcmc.GLM(
        np.column_stack([np.ones(180), day]), y, "gaussian", groups=mcmc.Groups(codes, slopes=day[:, None]),
        prior=mcmc.Normal(0.0, 300.0), group_prior=mcmc.HalfNormal(50.0), scale_prior=mcmc.HalfStudentT(4.0, 50.0),
    ), n_draws=2000, n_chains=2, rng=1)
    assert trace.kernel["decision"] == "none" and not trace.warnings
    assert trace.accepted.all() and trace.ess().min() > 1000.0


@pytest.mark.parametrize("prior", [mcmc.Normal(0.0, 2.0), mcmc.StudentT(3.0, 0.0, 1.0)])
@pytest.mark.parametrize("family", ["gaussian", "student-t"])
def test_the_scale_that_moves_with_hyperparameters_leaves_the_posterior_as_it_is(family, prior, monkeypatch):
    rng = np.random.default_rng(SEED)
    codes = np.tile(np.arange(5), 12)
    X = np.column_stack([np.ones(60), rng.standard_normal(60)])
    y = X @ [0.5, 1.0] + rng.standard_normal(5)[codes] + rng.standard_normal(60)
    model = mcmc.GLM(X, y, family, groups=codes, prior=prior, group_prior=mcmc.HalfNormal(1.0))
    traces = [mcmc.sample(mcmc.SurrogateMetropolis(model), n_draws=3000, n_chains=2, rng=1)]
    assert traces[0].kernel["decision"] == ("none" if family == "gaussian" else "exact")
    monkeypatch.setattr(_surrogate_moves, "SCALED", ())
    traces.append(mcmc.sample(mcmc.SurrogateMetropolis(model), n_draws=8000, n_chains=2, rng=2))
    for power in (1, 2):
        parts = [np.asarray(trace._flat()) ** power for trace in traces]
        error = np.hypot(*(part.std(axis=(0, 1)) / np.sqrt([mcmc.effective_sample_size(part[:, :, j])
                                                           for j in range(part.shape[2])]) for part in parts))
        apart = np.abs(parts[0].mean(axis=(0, 1)) - parts[1].mean(axis=(0, 1)))
        assert (apart < 5.5 * error).all()


def test_a_chain_without_decisions_goes_on_from_a_checkpoint_and_a_pickle():
    model, *_ = hierarchy()
    kernel = mcmc.SurrogateMetropolis(model)
    whole = mcmc.sample(kernel, n_draws=60, n_chains=2, n_tune=60, rng=5, threads=2)
    first = mcmc.sample(kernel, n_draws=25, n_chains=2, n_tune=60, rng=5, threads=1)
    again = pickle.loads(pickle.dumps(kernel))
    rest = mcmc.sample(again, pickle.loads(pickle.dumps(first)), n_draws=35)
    np.testing.assert_array_equal(np.concatenate([first.draws, rest.draws], axis=1), whole.draws)
    assert all((chain.rows == 0).all() for chain in whole.chains)


def test_effects_of_large_crossed_factors_are_drawn_given_the_scale():
    """Other moves had some 3 effective draws of 1,000 there."""
    rng = np.random.default_rng(SEED)
    codes = [rng.integers(200, size=4000), rng.integers(100, size=4000)]
    y = 1.0 + 0.5 * rng.standard_normal(200)[codes[0]] + rng.standard_normal(4000)
    kernel = mcmc.SurrogateMetropolis(mcmc.GLM(np.ones((4000, 1)), y, "gaussian", groups=codes))
    assert kernel.describe()["decision"] == "none"
    trace = mcmc.sample(kernel, n_draws=500, n_chains=2, n_tune=100, rng=1)
    assert trace.ess().min() > 100.0 and not trace.warnings
