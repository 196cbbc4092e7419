"""The released PyMC: models taken as they are, and steps of `pymc.sample`; skipped without it."""

import pickle

import numpy as np
import pytest
from by_pymc import pm, pt
from scipy import stats

from fastrace import mcmc
from fastrace.mcmc.doors.pymc import CategoricalStep, MetropolisStep, _expansions

cloudpickle = pytest.importorskip("cloudpickle")

QUIET = {"progressbar": False, "compute_convergence_checks": False, "quiet": True, "random_seed": 3}
N = 1500


def agrees(draws, mean, sd, tests=20):
    """The mean of draws of shape (chains, draws) within Monte Carlo error, and of a tenth of an sd for the race."""
    error = draws.std() / np.sqrt(mcmc.effective_sample_size(draws))
    assert abs(draws.mean() - mean) < stats.norm.isf(1e-6 / tests) * error + 0.1 * sd, (draws.mean(), mean, error)
    np.testing.assert_allclose(draws.std(), sd, rtol=0.3)


@pytest.fixture(autouse=True)
def no_search(monkeypatch):
    """Without a compiler a search for other modes takes a second; tests/mcmc/test_mcmc_pymc_seen.py has one."""
    monkeypatch.setattr(_expansions, "_FEW", 0)


# Models taken as they are.


def logistic():
    """A prior that is not normal, a hyperparameter that no row knows, and a categorical predictor."""
    rng = np.random.default_rng(0)
    x, group = rng.normal(size=N), rng.integers(0, 3, N)
    y = (rng.random(N) < 1 / (1 + np.exp(-(0.8 * x + np.array([-1.0, 0.5, 1.2])[group])))).astype(np.int64)
    with pm.Model() as model:
        X, G, Y = pm.Data("X", x), pm.Data("G", group), pm.Data("Y", y)
        tau = pm.HalfNormal("tau", 1.0)
        a = pm.Normal("a", 0.0, tau, shape=3)
        b = pm.Laplace("b", 0.0, 1.0)
        pm.Deterministic("odds", pm.math.exp(b))
        pm.Deterministic("by_row", b * X)
        pm.Bernoulli("obs", logit_p=a[G] + b * X, observed=Y)
    return model, x, group, y


@pytest.fixture(scope="module")
def made():
    model, x, group, y = logistic()
    return mcmc.from_pymc(model), model, x, group, y


def terms(theta, x, group, y):
    eta = theta[1:4][group] + theta[4] * x
    return y * eta - np.logaddexp(0.0, eta)


def test_terms_and_prior_are_those_of_the_model(made):
    ours, model, x, group, y = made
    assert ours.names == ("tau_log__", "a[0]", "a[1]", "a[2]", "b") and ours.dim == 5 and ours.n_rows == N
    theta = np.array([0.2, -0.5, 0.3, 0.1, 0.7])
    rows = np.random.default_rng(1).integers(0, N, 40)
    np.testing.assert_allclose(ours.terms(theta, rows), terms(theta, x, group, y)[rows], rtol=1e-12)
    tau = np.exp(0.2)
    prior = (stats.halfnorm.logpdf(tau) + 0.2 + stats.norm.logpdf(theta[1:4], 0.0, tau).sum()
             + stats.laplace.logpdf(theta[4]))
    np.testing.assert_allclose(ours.rest(theta), prior, rtol=1e-8)
    np.testing.assert_array_equal(ours.pack(ours.point(theta)), theta)


def test_what_is_left_of_the_terms_and_of_the_prior(made):
    """Both expansions, by finite differences, and the mode."""
    ours, _, x, group, y = made
    reference = ours.reference()
    hat, step, rows = reference.theta_hat, np.array([0.1, 0.05, -0.1, 0.02, 0.03]), np.arange(7)

    def slope_of(f, at):
        return np.array([(f(at + d) - f(at - d)) / 2e-5 for d in 1e-5 * np.eye(5)]).T

    def f(at):
        return terms(at, x, group, y)[rows]

    eta = hat[1:4][group] + hat[4] * x
    p, along = (1 / (1 + np.exp(-eta)))[rows], (step[1:4][group] + step[4] * x)[rows]
    second_order = f(hat) + slope_of(f, hat) @ step - 0.5 * p * (1 - p) * along**2
    np.testing.assert_allclose(ours.left(hat + step, rows, hat), f(hat + step) - second_order, atol=1e-9)
    whole = slope_of(lambda at: terms(at, x, group, y).sum() + ours.rest(at), hat)
    assert np.abs(whole @ reference.factor).max() < 1e-3
    rest = ours.log_prior_beside(reference)
    sizes = [abs(rest(hat + s * step)) for s in (0.2, 0.1)]
    assert sizes[1] < sizes[0] / 6 and ours.log_prior_beside(None)(hat) == ours.rest(hat)
    again = ours.reference(ours.point(hat))
    np.testing.assert_array_equal(again.factor, reference.factor)


def test_raced_chains_agree_with_exact_ones_and_read_less(made):
    ours = made[0]
    raced = mcmc.RacingMetropolis(ours, 0.01)
    exact = mcmc.sample(mcmc.Metropolis(ours, control_variate=raced.reference), n_draws=300, n_chains=1,
                        n_tune=50, rng=1)
    trace = mcmc.sample(raced, n_draws=400, n_chains=1, n_tune=100, rng=2)
    assert trace.rows.mean() < N / 3
    for j in range(5):
        a, b = exact.draws[0, :, j], trace.draws[0, :, j]
        error = np.hypot(*(c.std() / np.sqrt(mcmc.effective_sample_size(c)) for c in (a, b)))
        assert abs(a.mean() - b.mean()) < stats.norm.isf(1e-6 / 10) * error + 0.1 * a.std()
    named = ours.unpack(trace.draws[:, :20])
    assert {name: v.shape for name, v in named.items()} == {
        "tau": (1, 20), "a": (1, 20, 3), "b": (1, 20), "odds": (1, 20)
    }
    np.testing.assert_allclose(named["odds"], np.exp(trace.draws[:, :20, 4]))
    np.testing.assert_allclose(named["tau"], np.exp(trace.draws[:, :20, 0]))
    assert ours.unpack(trace.draws[0, :2], ["by_row"])["by_row"].shape == (2, N)
    with pytest.raises(ValueError, match="nothing"):
        ours.unpack(trace.draws, ["nothing"])


def test_a_copy_gives_the_same_chain(made):
    ours = made[0]
    kernel = mcmc.RacingMetropolis(ours, control_variate=ours.reference())
    other = cloudpickle.loads(cloudpickle.dumps(kernel))
    one, two = (mcmc.sample(k, n_draws=20, n_chains=1, n_tune=0, rng=1) for k in (kernel, other))
    np.testing.assert_array_equal(one.draws, two.draws)


def test_a_simplex_has_its_jacobian():
    """Counts of three categories: the posterior is Dirichlet."""
    y = np.random.default_rng(1).choice(3, size=N, p=[0.2, 0.3, 0.5])
    with pm.Model() as model:
        Y = pm.Data("Y", y)
        w = pm.Dirichlet("w", np.array([2.0, 1.0, 4.0]))
        pm.Categorical("obs", p=w, observed=Y)
    ours = mcmc.from_pymc(model)
    trace = mcmc.sample(mcmc.RacingMetropolis(ours, 0.01), n_draws=400, n_chains=1, n_tune=100, rng=2)
    assert ours.dim == 2 and trace.rows.mean() < N / 3
    drawn, alpha = ours.unpack(trace.draws)["w"], np.array([2.0, 1.0, 4.0]) + np.bincount(y)
    for k in range(3):
        known = stats.beta(alpha[k], alpha.sum() - alpha[k])
        agrees(drawn[:, :, k], known.mean(), known.std())


def test_parameters_out_of_range_are_impossible_and_not_an_error():
    with pm.Model() as model:
        Y = pm.Data("Y", np.random.default_rng(0).normal(0.0, 0.3, 200))
        s = pm.Normal("s", 1.0, 1.0)
        pm.Normal("obs", 0.0, s, observed=Y)
    ours = mcmc.from_pymc(model)
    assert (ours.terms(np.array([-0.5]), np.arange(5)) == -np.inf).all()
    trace = mcmc.sample(mcmc.Metropolis(ours, control_variate=None, proposal="random-walk", size=20.0), [0.3],
                        n_draws=50, n_chains=1, n_tune=0, rng=1)
    assert (trace.draws > 0.0).all() and not trace.accepted.all()


def test_several_observed_variables_share_their_rows():
    rng = np.random.default_rng(4)
    u, v = rng.normal(1.0, 1.0, 300), rng.poisson(3.0, (300, 2))
    with pm.Model() as model:
        U, V = pm.Data("U", u), pm.Data("V", v)
        mu = pm.Normal("mu")
        pm.Normal("first", mu, 1.0, observed=U)
        pm.Poisson("second", pm.math.exp(mu), observed=V)
        pm.Normal("prior_only", mu, 2.0, observed=[0.3, 0.1])
    ours = mcmc.from_pymc(model, ["first", "second"])
    at, rows = np.array([0.7]), np.array([5, 0, 299])
    expected = stats.norm.logpdf(u, 0.7) + stats.poisson.logpmf(v, np.exp(0.7)).sum(axis=1)
    np.testing.assert_allclose(ours.terms(at, rows), expected[rows])
    np.testing.assert_allclose(ours.rest(at), stats.norm.logpdf(0.7) + stats.norm.logpdf([0.3, 0.1], 0.7, 2.0).sum())
    with pytest.raises(ValueError, match="numbers of rows"):
        mcmc.from_pymc(model, ["first", "second", "prior_only"])


# Models that have no rows.


def refused(build, match, **options):
    y, x = np.random.default_rng(0).normal(size=(2, 50))
    with pm.Model() as model:
        build(y, x)
    with pytest.raises(ValueError, match=match):
        mcmc.from_pymc(model, **options)


def test_what_is_no_observed_variable_is_refused():
    for name in ("mu", "weight"):
        refused(lambda y, x: pm.Normal("height", pm.Normal("mu"), 1.0, observed=pm.Data("Y", y)),
                f"observed .*{name}", observed=name)


def test_likelihoods_that_are_not_one_factor_a_row_are_refused():
    def gaussian(y, x):
        pm.MvNormal("height", pm.Normal("mu") * np.ones(50), np.eye(50), observed=pm.Data("Y", y))

    def averaged(y, x):
        Y = pm.Data("Y", y)
        pm.Normal("height", pm.Normal("mu") * Y.mean(), 1.0, observed=Y)

    def scanned(y, x):
        import pytensor

        X, b = pm.Data("X", x), pm.Normal("b")
        start = pt.as_tensor(np.array(0.0))
        level = pytensor.scan(lambda now, last, b: b * last + now, [X], [start], [b], return_updates=False)
        pm.Normal("height", level, 1.0, observed=pm.Data("Y", y))

    def latent(y, x):
        z = pm.Normal("z", shape=50)
        pm.Normal("height", z, 1.0, observed=pm.Data("Y", y))

    def potential(y, x):
        Y, mu = pm.Data("Y", y), pm.Normal("mu")
        pm.Normal("height", mu, 1.0, observed=Y)
        pm.Potential("extra", -pt.square(Y - mu).sum())

    def nothing_observed(y, x):
        pm.Potential("extra", -pt.square(pm.Data("Y", y) - pm.Normal("mu")).sum())

    refused(gaussian, r"'height' \(MvNormal\) is one number")
    refused(averaged, "'height' .* changes with the rows asked for beside it")
    refused(scanned, "'height' .* row's term")
    refused(latent, "'height' .* no parameter with one entry for each row")
    refused(potential, "potential 'extra' depends on the rows of Y")
    refused(nothing_observed, "potential, such as 'extra'")


def test_priors_of_rows_and_discrete_variables_are_refused():
    def prior_by_rows(y, x):
        z = pm.Normal("z", pm.Data("X", x), 1.0, shape=50)
        pm.Normal("height", z + 0.0 * pm.Data("X2", x), 1.0, observed=pm.Data("Y", y))

    def same_length(y, x):
        pm.Normal("height", pm.Normal("mu") + pm.Data("table", x)[7], 1.0, observed=pm.Data("Y", y))

    def discrete(y, x):
        pm.Normal("height", pm.Poisson("k", 2.0), 1.0, observed=pm.Data("Y", y))

    refused(prior_by_rows, "'height' .* row by row")
    refused(same_length, "'height' .* row by row")
    refused(discrete, "k: .*CategoricalStep")
    y, x = np.random.default_rng(0).normal(size=(2, 50))
    with pm.Model() as model:
        same_length(y, x)
    ours = mcmc.from_pymc(model, rows=["Y"])
    np.testing.assert_allclose(ours.terms(np.array([0.4]), np.array([3])), stats.norm.logpdf(y[[3]], 0.4 + x[7]))


# Steps.


def test_a_metropolis_step_in_pymc():
    """Statistics, posterior, state and its round trip, pickling."""
    y = np.random.default_rng(1).normal(1.0, 2.0, N)
    with pm.Model() as model:
        Y = pm.Data("Y", y)
        mu, sigma = pm.Normal("mu", 0.0, 10.0), pm.HalfNormal("sigma", 5.0)
        pm.Normal("obs", mu, sigma, observed=Y)
        step = MetropolisStep([mu, sigma], delta=0.01, n_steps=2)
        assert step.rows.names == ("mu", "sigma_log__")
        kept = pm.sample(draws=300, tune=100, chains=2, cores=1, step=[step], **QUIET)
        other = cloudpickle.loads(cloudpickle.dumps(step))
        other.sampling_state = step.sampling_state
        point, state = model.initial_point(), pickle.dumps(step.sampling_state)
        there, said = step.step(point)
        assert point == model.initial_point() and set(said[0]) == set(step.stats_dtypes_shapes)
        for again in (other, step):
            again.sampling_state = pickle.loads(state)
            np.testing.assert_equal(again.step(point), (there, said))
    statistics = kept["sample_stats"]
    assert {"n_rows", "n_looks", "accepted", "full_pass", "undecided"} <= set(statistics.data_vars)
    assert 0 < statistics["n_rows"].values.mean() < N / 2 and 0.2 < statistics["accepted"].values.mean() < 1.0
    assert statistics["n_rows"].values.dtype == np.int64 and statistics["full_pass"].values.dtype == bool
    agrees(kept["posterior"]["mu"].values, y.mean(), y.std() / np.sqrt(N))
    agrees(kept["posterior"]["sigma"].values, y.std(), y.std() / np.sqrt(2 * N))


def test_a_step_beside_nuts_has_a_control_variate_that_follows_its_variables():
    """Regression with a known error: the posterior is normal; slopes are raced, the intercept is NUTS's."""
    rng = np.random.default_rng(5)
    x = rng.normal(1.0, 1.0, (400, 2))
    y = 0.3 + x @ [1.0, -0.5] + rng.normal(size=400)
    with pm.Model():
        X, Y = pm.Data("X", x), pm.Data("Y", y)
        a, b = pm.Normal("a", 0.0, 2.0), pm.Normal("b", 0.0, 2.0, shape=2)
        pm.StudentT("obs", nu=200.0, mu=a + X @ b, sigma=1.0, observed=Y)
        step = MetropolisStep([b], n_steps=3)
        assert step.kernel.controlled and step.rows.others.keys() == {"a"}
        kept = pm.sample(draws=300, tune=100, chains=1, step=[step], **QUIET)
    design = np.column_stack([np.ones(400), x])
    covariance = np.linalg.inv(design.T @ design + np.eye(3) / 4.0)
    mean = covariance @ design.T @ y
    statistics = kept["sample_stats"]
    assert statistics["n_rows"].values.mean() < 3 * 400
    posterior = kept["posterior"]
    agrees(posterior["a"].values, mean[0], np.sqrt(covariance[0, 0]))
    for j in range(2):
        agrees(posterior["b"].values[:, :, j], mean[j + 1], np.sqrt(covariance[j + 1, j + 1]))


@pytest.mark.parametrize(("kernel", "beside"), [
    pytest.param(mcmc.RacingMetropolis, False, id="RacingMetropolis alone"),
    pytest.param(mcmc.RacingMetropolis, True, id="RacingMetropolis joint", marks=pytest.mark.long),
    pytest.param(mcmc.Metropolis, False, id="Metropolis alone", marks=pytest.mark.long),
    pytest.param(mcmc.Metropolis, True, id="Metropolis joint", marks=pytest.mark.long)])
def test_a_discrete_parent_may_move_before_the_first_step_and_after_pickling(kernel, beside):
    """The prior mean of mu is 0.2 z, plus 0.1 a if another continuous variable stands beside: mu is normal."""
    n, sd = 200, 0.07
    y = np.random.default_rng(0).normal(0.1, 1.0, n)
    with pm.Model() as model:
        Y = pm.Data("Y", y)
        z = pm.Bernoulli("z", 0.5, initval=0)
        a = 0.1 * pm.Normal("a") if beside else 0.0
        mu = pm.Normal("mu", 0.2 * z + a, sd)
        pm.Normal("obs", mu, 1.0, observed=Y)
        step = MetropolisStep([mu], kernel=kernel, rng=1)
    assert step.kernel.controlled and step.rows.others["z"] == 0
    precision = n + sd**-2

    def check(step, z, a):
        step.set_rng(np.random.default_rng(2))
        point, draws = {**model.initial_point(), "z": np.array(z)}, []
        if beside:
            point["a"] = np.array(a)
        for _ in range(400):
            point, _said = step.step(point)
            draws.append(point["mu"])
        mean = (y.sum() + (0.2 * z + 0.1 * a * beside) / sd**2) / precision
        agrees(np.array([draws[50:]]), mean, precision**-0.5)

    untouched = cloudpickle.dumps(step)
    check(step, 1, 0.4)  # no engine was made at z = 0
    early = cloudpickle.loads(untouched)
    early.step(model.initial_point())
    late = cloudpickle.loads(cloudpickle.dumps(early))  # engines stay behind
    check(late, 1, -0.3)


def test_a_reference_that_does_not_say_how_it_expands_the_prior_is_refused():
    with pm.Model():
        Y = pm.Data("Y", np.random.default_rng(0).normal(size=50))
        z = pm.Bernoulli("z", 0.5)
        mu = pm.Normal("mu", z, 1.0)
        pm.Normal("obs", mu, 1.0, observed=Y)
        bare = mcmc.Reference(np.zeros(1), np.zeros(1), np.eye(1), None, np.inf)
        with pytest.raises(ValueError, match="expands the prior, which may depend on z"):
            MetropolisStep([mu], control_variate=bare)


def test_a_step_agrees_with_nuts():
    rng = np.random.default_rng(6)
    x = rng.normal(size=(300, 2))
    y = (rng.random(300) < 1 / (1 + np.exp(-x @ [1.0, -0.5]))).astype(np.int64)
    with pm.Model():
        X, Y = pm.Data("X", x), pm.Data("Y", y)
        b = pm.Normal("b", 0.0, 3.0, shape=2)
        pm.Bernoulli("obs", logit_p=X @ b, observed=Y)
        nuts = pm.sample(draws=200, tune=150, chains=1, **QUIET)["posterior"]["b"].values
        raced = pm.sample(draws=300, tune=100, chains=1, step=MetropolisStep(n_steps=2), **QUIET)
    for j in range(2):
        a, b = nuts[:, :, j], raced["posterior"]["b"].values[:, :, j]
        error = np.hypot(*(c.std() / np.sqrt(mcmc.effective_sample_size(c)) for c in (a, b)))
        assert abs(a.mean() - b.mean()) < stats.norm.isf(1e-6 / 10) * error + 0.1 * a.std()
        np.testing.assert_allclose(a.std(), b.std(), rtol=0.3)


def test_a_categorical_step_draws_the_conditional_beside_another_step():
    """Two binary switches and a mean: the posterior of the switches by enumeration."""
    rng = np.random.default_rng(2)
    y = rng.normal(0.0, 1.0, 60)
    with pm.Model():
        Y = pm.Data("Y", y)
        z = pm.Bernoulli("z", 0.4, shape=2)
        mu = pm.Normal("mu", 0.0, 0.2)
        pm.Normal("obs", mu + 0.15 * z[0] - 0.1 * z[1], 1.0, observed=Y)
        steps = [CategoricalStep([z], delta=0.01), MetropolisStep([mu], kernel=mcmc.Metropolis)]
        kept = pm.sample(draws=1000, tune=100, chains=1, step=steps, **QUIET)
    variance = 1 / 60 + 0.2**2
    weight = np.array([
        stats.norm.pdf(y.mean(), 0.15 * a - 0.1 * b, np.sqrt(variance)) * 0.4 ** (a + b) * 0.6 ** (2 - a - b)
        for a in (0, 1) for b in (0, 1)
    ])
    weight /= weight.sum()
    draws = kept["posterior"]["z"].values[0]
    code = 2 * draws[:, 0] + draws[:, 1]
    for state in range(4):
        hit = (code == state).astype(float)
        error = np.sqrt(weight[state] * (1 - weight[state]) / mcmc.effective_sample_size(hit[None]))
        assert abs(hit.mean() - weight[state]) < stats.norm.isf(1e-6 / 8) * error + 0.02


def test_categorical_steps_read_few_rows_where_one_state_dominates():
    y = np.random.default_rng(2).normal(1.0, 1.0, N)
    with pm.Model():
        Y = pm.Data("Y", y)
        z, u = pm.Categorical("z", p=np.full(4, 0.25)), pm.DiscreteUniform("u", 2, 3)
        pm.Normal("obs", z - (u - 2.0) * 1.0, 1.0, observed=Y)
        step = CategoricalStep([z, u], delta=0.01)
        assert [s.tolist() for s in step.states] == [[0, 1, 2, 3], [2, 3]]
        point, statistics = {"z": np.array(1), "u": np.array(2)}, []
        for _ in range(20):
            point, said = step.step(point)
            statistics += said
    assert point["z"] - point["u"] == -1 and point["z"].dtype == np.int64
    assert np.mean([s["n_rows"] for s in statistics]) < 4 * N / 3


@pytest.mark.long
def test_chains_in_processes_are_those_in_turn():
    y = np.random.default_rng(1).normal(1.0, 2.0, 300)
    with pm.Model():
        Y = pm.Data("Y", y)
        mu = pm.Normal("mu", 0.0, 10.0)
        pm.Normal("obs", mu, 2.0, observed=Y)
        step = MetropolisStep([mu])
        options = {"draws": 30, "tune": 20, "chains": 2, "step": [step], **QUIET}
        turn = pm.sample(cores=1, **options)
        side = pm.sample(cores=2, mp_ctx="forkserver", **options)
    np.testing.assert_array_equal(turn["posterior"]["mu"].values, side["posterior"]["mu"].values)
    np.testing.assert_array_equal(turn["sample_stats"]["n_rows"].values, side["sample_stats"]["n_rows"].values)


# What goes wrong.


@pytest.fixture(scope="module")
def small():
    with pm.Model() as model:
        Y = pm.Data("Y", np.random.default_rng(0).normal(0.0, 1.0, 200))
        mu = pm.Normal("mu", 0.0, 1.0)
        pm.Logistic("obs", mu, 1.0, observed=Y)
        return model, MetropolisStep([mu])


def test_ctrl_c_in_mid_chain_leaves_the_trace_so_far(small):
    model, step = small
    seen = []

    def once(trace, draw):
        seen.append(draw.draw_idx)
        if len(seen) == 25:
            raise KeyboardInterrupt

    with model:
        kept = pm.sample(draws=50, tune=10, chains=1, step=[step], callback=once, discard_tuned_samples=False, **QUIET)
        whole = pm.sample(draws=50, tune=10, chains=1, step=[step], discard_tuned_samples=False, **QUIET)
    groups = ("warmup_posterior", "posterior")
    before, after = (np.concatenate([idata[g]["mu"].values[0] for g in groups]) for idata in (kept, whole))
    assert len(before) == 25
    np.testing.assert_array_equal(before, after[:25])


def test_an_exception_in_mid_chain_arrives_unchanged_and_the_step_goes_on(small, monkeypatch):
    model, step = small
    graphs, calls, traces = type(step.rows._graphs), [], []
    call = graphs.call

    def failing(self, name, *args):
        calls.extend([1] if name == "left" else [])
        if len(calls) == 30:
            calls.append(1)
            raise RuntimeError("the disk is gone")
        return call(self, name, *args)

    monkeypatch.setattr(graphs, "call", failing)
    options = {"tune": 0, "chains": 1, "step": [step], "callback": lambda trace, draw: traces.append(trace), **QUIET}
    with model:
        with pytest.raises(RuntimeError, match="the disk is gone"):
            pm.sample(draws=100, **options)
        before = traces[-1].get_values("mu")
        again = pm.sample(draws=100, **options)["posterior"]["mu"].values[0]
    assert 0 < len(before) < 100
    np.testing.assert_array_equal(before, again[: len(before)])


def test_steps_refuse_what_they_cannot_do():
    with pm.Model():
        Y = pm.Data("Y", np.random.default_rng(0).poisson(2.0, 40))
        k, mu = pm.Poisson("k", 2.0), pm.Normal("mu")
        pm.Poisson("obs", pm.math.exp(mu) + k, observed=Y)
        with pytest.raises(ValueError, match="continuous"):
            MetropolisStep([k])
        with pytest.raises(ValueError, match="n_steps"):
            MetropolisStep([mu], n_steps=0)
        with pytest.raises(ValueError, match="states="):
            CategoricalStep([k])
        with pytest.raises(ValueError, match="delta"):
            CategoricalStep([k], states=[0, 1], delta=1.5)
        with pytest.raises(ValueError, match="control_variate=None"):
            MetropolisStep([mu], control_variate=[0.0])
        step = CategoricalStep([k], states=[0, 1, 2])
        with pytest.raises(ValueError, match="not among its states"):
            step.step({"k": np.array(7), "mu": np.array(0.0)})
        assert not MetropolisStep([mu]).rows.has_derivatives


def test_a_hierarchy_that_is_not_centred_is_warned_of():
    """Its joint mode lies far out in the scale of the groups, where no chain that follows it finds the posterior."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 6, 300)
    y = (rng.random(300) < 1 / (1 + np.exp(-0.5 * rng.normal(size=6)[group]))).astype(np.int64)
    with pm.Model() as model:
        G, Y = pm.Data("G", group), pm.Data("Y", y)
        tau = pm.HalfNormal("tau", 2.0)
        z = pm.Normal("z", 0.0, 1.0, shape=6)
        pm.Bernoulli("obs", logit_p=tau * z[G], observed=Y)
    kernel = mcmc.RacingMetropolis(mcmc.from_pymc(model))
    with pytest.warns(UserWarning, match=r"R-hat of (tau_log__|z.\d.) is"):
        trace = mcmc.sample(kernel, n_draws=150, n_chains=2, n_tune=50, rng=1)
    assert any("effective sample size" in words for words in trace.warnings)


def test_chains_in_a_funnel_are_told_the_way_out():
    """Effects written around their scale: each chain stands still, with all of its steps accepted."""
    rng = np.random.default_rng(21)
    group, x, effects = np.repeat(np.arange(8), 10), rng.normal(size=80), rng.normal(size=8)
    y = (rng.random(80) < 1 / (1 + np.exp(0.3 - 0.8 * x - effects[group]))).astype(np.int64)
    with pm.Model() as model:
        G, X, Y = pm.Data("G", group), pm.Data("X", x), pm.Data("Y", y)
        a, b, sd = pm.Normal("a", 0.0, 1.5), pm.Normal("b", 0.0, 1.0), pm.HalfNormal("sd", 1.0)
        e = pm.StudentT("e", nu=3, mu=0.0, sigma=sd, shape=8)
        pm.Bernoulli("obs", logit_p=a + b * X + e[G], observed=Y)
    kernel = mcmc.SurrogateMetropolis(mcmc.from_pymc(model))
    with pytest.warns(UserWarning, match=r"neck of a funnel.*z \* sd"):
        mcmc.sample(kernel, n_draws=60, n_chains=2, n_tune=0, rng=1)


def test_arviz_has_the_names_dimensions_and_scales_of_the_model():
    pytest.importorskip("arviz")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 2))
    with pm.Model(coords={"column": ["age", "income"]}) as model:
        X, Y = pm.Data("X", x), pm.Data("Y", x @ [1.0, -0.5] + 2.0 * rng.normal(size=300))
        b, sd = pm.Normal("b", 0.0, 10.0, dims="column"), pm.HalfNormal("sd", 5.0)
        pm.Normal("obs", mu=X @ b, sigma=sd, observed=Y)     # a learned scale beside the predictor
    made = mcmc.from_pymc(model)
    trace = mcmc.sample(mcmc.RacingMetropolis(made), n_draws=20, n_chains=2, n_tune=0, rng=1)
    kept = trace.to_arviz(made)["posterior"]
    assert set(kept.data_vars) == {"b", "sd"} and kept["b"].dims == ("chain", "draw", "column")
    assert list(kept["column"].values) == ["age", "income"]
    np.testing.assert_allclose(np.asarray(kept["sd"]), np.exp(trace.draws[:, :, 2]))
    np.testing.assert_allclose(np.asarray(kept["b"]), trace.draws[:, :, :2])
    assert abs(float(kept["sd"].mean()) - 2.0) < 0.5
    named, plain = (set(tree["sample_stats"].data_vars) for tree in (trace.to_arviz(made), trace.to_arviz()))
    assert named == plain | {"lp"} and "lp" not in plain
    with pytest.raises(TypeError, match="model is 3; a PyMCModel, a GLM or another Model"):
        trace.to_arviz(3)
