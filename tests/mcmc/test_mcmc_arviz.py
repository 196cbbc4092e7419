"""Traces in the released ArviZ, and diagnostics as ArviZ has them; skipped without it."""

import sys

import numpy as np
import pytest
from scipy import special, stats

from fastrace import mcmc
from fastrace.mcmc import _pointwise
from fastrace.mcmc._convergence import _ess, _halves, _ranked_rhat, _rhat
from fastrace.mcmc._moving import moving
from fastrace.mcmc._pointwise import pointwise
from fastrace.mcmc.protocol import Steps
from fastrace.mcmc.trace import Trace

arviz = pytest.importorskip("arviz")


def test_the_released_arviz_takes_a_trace():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 2))
    model = mcmc.GLM(x, x @ [1.0, -0.5] + rng.normal(size=500), family="gaussian", scale=1.0)
    trace = mcmc.sample(mcmc.RacingMetropolis(model), n_draws=100, n_chains=3, rng=1)
    kept = trace.to_arviz()
    np.testing.assert_array_equal(np.asarray(kept["posterior"]["theta"]), trace.draws)
    assert kept["posterior"]["theta"].dims[:2] == ("chain", "draw")
    np.testing.assert_array_equal(np.asarray(kept["sample_stats"]["n_rows"]), trace.rows)
    assert set(kept["sample_stats"].data_vars) == {"n_rows", "n_looks", "accepted", "full_pass", "undecided"}


def test_columns_of_a_frame_are_variables_in_arviz():
    rng = np.random.default_rng(0)
    table = {"age": rng.normal(size=500), "income": rng.normal(size=500)}
    model = mcmc.GLM(table, table["age"] + rng.normal(size=500), family="gaussian", scale=1.0)
    trace = mcmc.sample(mcmc.RacingMetropolis(model), n_draws=100, n_chains=2, rng=1)
    kept = trace.to_arviz()["posterior"]["income"]
    assert kept.dims == ("chain", "draw")
    np.testing.assert_array_equal(kept, trace.draws[:, :, 1])
    assert set(arviz.summary(trace.to_arviz()).index) == {"age", "income"}


def test_effective_sizes_and_rhat_are_those_of_arviz():
    """Own functions, so that the warnings of a run do not depend on what else is installed."""
    noise = np.random.default_rng(1).normal(size=(4, 800, 3))
    x = noise.copy()
    for t in range(1, 800):
        x[:, t] = [0.0, 0.6, 0.95] * x[:, t - 1] + noise[:, t]
    x[0] += 0.3
    data = arviz.convert_to_dataset({"x": x})
    chains = _halves(x)
    np.testing.assert_allclose(_rhat(chains), np.asarray(arviz.rhat(data, method="split")["x"]), rtol=1e-12)
    np.testing.assert_allclose(_ess(chains), np.asarray(arviz.ess(data, method="mean")["x"]), rtol=0.02)


@pytest.mark.parametrize("n_draws", [100, 801])
def test_rhat_of_a_trace_is_ranked_and_folded_as_that_of_arviz(n_draws):
    rng = np.random.default_rng(1)
    x = np.stack([rng.normal(size=(4, n_draws)), rng.standard_cauchy((4, n_draws)), rng.poisson(1.0, (4, n_draws)),
                  rng.normal(size=(4, n_draws)).cumsum(axis=1), rng.normal(size=(4, n_draws))], axis=2)
    x[3, :, 0] *= 5.0
    x[0, :, 4] += 0.4
    count = np.ones(n_draws, int)
    trace = mcmc.Trace(tuple(Steps(d, count, count, *(count > 0,) * 3) for d in x), {}, (None,) * 4, (), 0.0)
    expected = np.asarray(arviz.rhat(arviz.convert_to_dataset({"x": x}), method="rank")["x"])
    np.testing.assert_allclose(trace.rhat(), expected, rtol=1e-10)
    assert expected[0] > 1.2 and _rhat(_halves(x))[0] < 1.01
    np.testing.assert_allclose(_ranked_rhat(_halves(x))[1], expected[1], rtol=1e-10)


def log_densities(family, y, mean, scale, trials):
    """Of single rows, by SciPy."""
    r = 1.0 / scale
    return {
        "logistic": lambda: stats.bernoulli.logpmf(y, special.expit(mean)),
        "binomial": lambda: stats.binom.logpmf(y, trials, special.expit(mean)),
        "poisson": lambda: stats.poisson.logpmf(y, np.exp(mean)),
        "negative-binomial": lambda: stats.nbinom.logpmf(y, r, r / (r + np.exp(mean))),
        "gaussian": lambda: stats.norm.logpdf(y, mean, scale),
        "student-t": lambda: stats.t.logpdf(y, 4.0, mean, scale),
        "gamma": lambda: stats.gamma.logpdf(y, r, scale=scale * np.exp(mean)),
    }[family]()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("family", ["logistic", "binomial", "poisson", "negative-binomial", "gaussian", "student-t",
                                    "gamma"])
def test_log_densities_of_rows_have_all_their_constants(family, learned, weighted):
    scaled = family not in ("logistic", "binomial", "poisson")
    if learned and not scaled:
        pytest.skip("no scale to learn")
    rng = np.random.default_rng(0)
    X, offset = rng.normal(size=(40, 2)), 0.1 * rng.normal(size=40)
    trials = rng.integers(3, 9, 40) if family == "binomial" else None
    y = {"logistic": rng.integers(0, 2, 40), "binomial": rng.integers(0, 3, 40), "poisson": rng.poisson(2.0, 40),
         "negative-binomial": rng.poisson(2.0, 40), "gamma": rng.gamma(2.0, size=40)}.get(family, rng.normal(size=40))
    weights = rng.integers(0, 4, 40) if weighted else None
    model = mcmc.GLM(X, y, family, 0.7 if scaled and not learned else None, offset=offset, trials=trials,
                     weights=weights, prior=mcmc.Normal(0.0, 2.0))
    kernel = mcmc.Metropolis(model, control_variate=None)
    start = [0.3, -0.2, 0.9][: model.dim]
    trace = mcmc.sample(kernel, np.array(start), n_draws=3, n_chains=2, n_tune=0, rng=1)
    found = pointwise(model, moving(model, trace))
    for c, t in np.ndindex(2, 3):
        draw = trace.draws[c, t]
        truth = log_densities(family, y, X @ draw[:2] + offset, draw[2] if learned else 0.7, trials)
        np.testing.assert_allclose(found[c, t], truth * (1 if weights is None else weights), rtol=1e-9, atol=1e-9)


def grouped(n=150):
    rng = np.random.default_rng(0)
    g = rng.integers(0, 5, n)
    x = rng.normal(size=(n, 1))
    y = (rng.random(n) < special.expit(x[:, 0] + g - 2.0)).astype(int)
    return x, y, g


def test_models_are_compared_by_leaving_rows_out():
    x, y, g = grouped()
    loo = {}
    for name, model in (("groups", mcmc.GLM(x, y, groups=g)), ("none", mcmc.GLM(x, y, prior_sd=2.5))):
        trace = mcmc.sample(mcmc.SurrogateMetropolis(model), n_draws=400, n_chains=2, rng=1)
        tree = trace.to_arviz(model, log_likelihood=True)
        assert tree["log_likelihood"]["y"].shape == (2, 400, 150)
        found = arviz.loo(tree)
        loo[name] = float(getattr(found, "elpd_loo", None) or found.elpd)
    assert loo["groups"] > loo["none"] + 10.0
    with pytest.raises(TypeError, match="log_likelihood needs the model of the draws"):
        trace.to_arviz(log_likelihood=True)
    with pytest.raises(ValueError, match="the model that was sampled is needed"):
        trace.to_arviz(mcmc.GLM(x, y, groups=g), log_likelihood=True)


def test_log_densities_stand_in_the_order_of_the_data():
    """Models are compared row by row: one that shuffles its rows, or bins them, agrees with one that does not."""
    x, y, _ = grouped()
    x, draws = np.hstack([x, np.ones_like(x)]), np.random.default_rng(1).normal(size=(2, 30, 2))
    weights, won = np.arange(150) % 3, np.arange(150) % 2 + y
    known = {"trials": np.full(150, 3), "weights": weights}
    plain = pointwise(mcmc.GLM(x, won, "binomial", prior_sd=2.5, **known), draws)
    mixed = pointwise(mcmc.GLM(x, won, "binomial", prior_sd=2.5, shuffle=1, **known), draws)
    np.testing.assert_allclose(mixed, plain, rtol=1e-12, atol=1e-12)
    classes = [pointwise(mcmc.Softmax(x, y, prior_sd=2.5, shuffle=shuffle), draws) for shuffle in (None, 1)]
    np.testing.assert_allclose(*classes, rtol=1e-12, atol=1e-12)
    model = mcmc.GLM(x, y, prior_sd=2.5)
    np.testing.assert_allclose(pointwise(mcmc.Binned(model), draws), pointwise(model, draws), rtol=1e-12, atol=1e-12)


def test_large_log_likelihoods_are_thinned_and_say_so(monkeypatch):
    x, y, _ = grouped()
    model = mcmc.GLM(x, y, prior_sd=2.5)
    trace = mcmc.sample(mcmc.Metropolis(model), n_draws=200, n_chains=2, rng=1)
    monkeypatch.setattr(_pointwise, "_MOST", 20_000)
    whole = moving(model, trace)
    with pytest.warns(UserWarning, match="one draw in 3, 67 of 200 of each chain: for 150 rows they take 0.00016 GB"):
        found = pointwise(model, whole)
    monkeypatch.setattr(_pointwise, "_MOST", 1_000_000)
    np.testing.assert_array_equal(found, pointwise(model, whole)[:, 1::3])
    monkeypatch.setattr(_pointwise, "_MOST", 2000)
    with pytest.raises(ValueError, match="compare models of some of the rows"):
        pointwise(model, whole)


def test_an_arviz_that_cannot_be_imported_is_told(monkeypatch):
    class Broken:
        def find_spec(self, name, path=None, target=None):
            if name == "arviz":
                raise AttributeError("module 'matplotlib.style' has no attribute 'core'")

    model = mcmc.GLM(np.zeros((20, 1)) + np.arange(20)[:, None], np.arange(20) % 2, prior_sd=1.0)
    trace = mcmc.sample(mcmc.Metropolis(model), n_draws=10, n_chains=2, rng=1)
    monkeypatch.delitem(sys.modules, "arviz", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    with pytest.raises(ImportError, match="cannot be imported beside what else is .*matplotlib<3.11"):
        trace.to_arviz()


@pytest.mark.parametrize("kind", ["recognised", pytest.param("of another kind", marks=pytest.mark.long)])
def test_draws_of_a_pymc_model_have_the_log_posterior_of_pymc(kind):
    """Up to a constant, and what the expansion of 4000 rows leaves; standardised effects, a scale's logarithm."""
    pm = pytest.importorskip("pymc")
    rng = np.random.default_rng(2)
    x, g = rng.normal(size=4000), rng.integers(0, 4, 4000)
    y = rng.random(4000) < 0.05 + 0.9 / (1.0 + np.exp(-0.5 * x - 0.3 * g))
    with pm.Model() as whole:
        effects = pm.HalfNormal("tau", 1.0) * pm.Normal("z", shape=4)
        eta = pm.Normal("b") * x + effects[g] + pm.Normal("a")
        if kind == "recognised":
            pm.Bernoulli("obs", logit_p=eta, observed=y)
        else:
            pm.Bernoulli("obs", p=0.05 + 0.9 * pm.math.sigmoid(eta), observed=y)
    model = mcmc.from_pymc(whole)
    centre = model.pack({"tau_log__": 0.0, "z": np.array([0.0, 0.3, 0.6, 0.9]), "b": 0.5, "a": 0.0})
    draws = centre + 0.02 * rng.standard_normal((2, 30, model.dim))
    steps = [Steps(own, *(np.zeros(30, t) for t in (np.int64, np.int32, bool, bool, bool))) for own in draws]
    trace = Trace(tuple(steps), {"kernel": "none"}, (), (), 0.0, names=model.names)
    found = np.asarray(trace.to_arviz(model)["sample_stats"]["lp"])
    exact = whole.compile_logp(mode="FAST_COMPILE")
    off = found - np.array([[float(exact(model.point(theta))) for theta in own] for own in draws])
    assert found.std() > 1.0 and off.std() < 0.02 * found.std()
