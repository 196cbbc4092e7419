"""Before a chain begins: modes are modes, improper posteriors have a name, scales are given."""

import importlib
import sys
import warnings

import numpy as np
import pytest
from scipy import stats

from fastrace import mcmc
from fastrace.likelihoods import GLMSource
from fastrace.mcmc.models import model as models


def columns(n, *, seed=0):
    rng = np.random.default_rng(seed)
    return np.column_stack([np.ones(n), rng.normal(size=n)]), rng


def gradient_in_sd(model, reference):
    """Length of the posterior's gradient at the point of expansion, by the twin formula L' g."""
    _, gradient, hessian = model._with_prior(reference.theta_hat, *model._expand(reference.theta_hat))
    return np.sqrt(gradient @ np.linalg.solve(-hessian, gradient))


# Scales of outcomes.


@pytest.mark.parametrize(("family", "estimate"), [("gaussian", "X.shape"), ("student-t", r"stats.t.ppf\(0.75, df\)")])
def test_families_with_a_scale_ask_for_it(family, estimate):
    X, rng = columns(50)
    with pytest.raises(ValueError, match=f"scale is missing.*{estimate}.*learn_scale"):
        GLMSource(X, rng.normal(size=50), None, family)
    assert mcmc.GLM(X, rng.normal(size=50), family).learns_scale


@pytest.mark.parametrize("family", ["logistic", "poisson"])
def test_families_without_a_scale_refuse_one(family):
    X, rng = columns(50)
    with pytest.raises(ValueError, match="scale is 1.0; .* has none"):
        mcmc.GLM(X, rng.random(50) < 0.5, family, 1.0)


def test_the_estimates_that_the_message_names_give_the_right_widths():
    X, rng = columns(4000)
    for family, noise, df in (("gaussian", rng.normal(size=4000), 4.0), ("student-t", rng.standard_t(3.0, 4000), 3.0)):
        y = X @ [1.0, -0.5] + 5.0 * noise
        left = y - X @ np.linalg.lstsq(X, y)[0]
        scale = {
            "gaussian": np.sqrt(left @ left / (len(y) - X.shape[1])),
            "student-t": np.median(np.abs(left)) / stats.t.ppf(0.75, df),
        }[family]
        assert abs(scale - 5.0) < 0.4
        ours, true = (mcmc.GLM(X, y, family, s, df).reference().factor for s in (scale, 5.0))
        np.testing.assert_allclose(ours, true, rtol=0.1, atol=1e-3)


# Modes.


@pytest.mark.parametrize("prior_mean", [[0.0, 0.0], [1.0, 0.0], [-5.0, 0.0], [0.0, 0.3]])
def test_newton_finds_modes_beside_a_coefficient_that_is_all_but_fixed(prior_mean):
    X, rng = columns(2000)
    y = rng.poisson(np.exp(X @ [1.0, 0.5]))
    for prior_sd in ([1e-8, 10.0], [10.0, 1e-8]):
        model = mcmc.GLM(X, y, "poisson", prior_mean=prior_mean, prior_sd=prior_sd)
        reference = model.reference()
        assert gradient_in_sd(model, reference) < 1e-3
        fixed = int(np.argmin(prior_sd))
        assert abs(reference.center[fixed] - prior_mean[fixed]) < 1e-6


@pytest.mark.parametrize("family", ["logistic", "poisson", "gaussian", "softmax"])
def test_newton_finds_modes_on_the_scales_that_data_come_in(family):
    X, rng = columns(3000)
    income, age = rng.lognormal(10.5, 0.6, 3000), rng.integers(18, 90, 3000).astype(float)
    raw = np.column_stack([np.ones(3000), income, age, age**2])
    scale = raw.std(axis=0) + (raw.std(axis=0) == 0.0)
    eta = -1.0 + 1e-5 * income + 0.01 * age
    y = {"logistic": rng.random(3000) < 1 / (1 + np.exp(-eta)), "poisson": rng.poisson(np.exp(eta)),
         "gaussian": eta + rng.normal(size=3000), "softmax": (rng.random(3000) < 0.3) + (eta > 0.0)}[family]

    def make(table):
        if family == "softmax":
            return mcmc.Softmax(table, y)
        return mcmc.GLM(table, y, family, 1.0 if family == "gaussian" else None)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours, standard = make(raw).reference(), make(raw / scale).reference()
    assert gradient_in_sd(make(raw), ours) < 1e-3
    many = np.tile(scale, len(ours.center) // 4)
    sd = np.sqrt((standard.factor**2).sum(axis=1))
    assert np.abs((ours.center * many - standard.center) / sd).max() < 1e-3
    np.testing.assert_allclose(np.sqrt((ours.factor**2).sum(axis=1)) * many, sd, rtol=1e-3)


def test_large_counts_need_no_warnings():
    X, rng = columns(2000)
    for table in (X, X[:, 1:], X * [1.0, 30.0]):
        y = rng.poisson(1e5 * np.exp(0.5 * X[:, 1]))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = mcmc.GLM(table, y, "poisson")
            assert gradient_in_sd(model, model.reference()) < 1e-3


def terms_without_a_mode():
    """Rows whose terms rise for ever, ever more slowly: the gradient of their sum has no root."""
    def terms(theta, rows):
        return np.full(len(rows), np.arcsinh(theta[0]))

    def derivatives(theta, rows):
        whole = 1.0 + theta[0] ** 2
        k = len(rows)
        return np.full((k, 1), whole**-0.5), np.full((k, 1, 1), -theta[0] * whole**-1.5)

    return mcmc.FunctionModel(terms, 1, 100, derivatives=derivatives, start=[1.0])


def test_newton_says_when_it_found_no_mode():
    model = terms_without_a_mode()
    with pytest.raises(ValueError, match="found no mode.*the gradient is .* per posterior standard deviation"):
        model.reference()
    with pytest.raises(ValueError, match="found no mode"):
        mcmc.RacingMetropolis(model)
    assert mcmc.RacingMetropolis(model, control_variate=None).reference is None  # as the message says


# Improper posteriors.


def separated(kind, rng):
    X, _ = columns(2000)
    rare = (rng.random(2000) < 0.01).astype(float)
    marked = np.column_stack([X, rare])
    coin = rng.random(2000) < 0.5
    return {
        "all": (mcmc.GLM, X, X[:, 1] > 0.0, ()),
        "one outcome": (mcmc.GLM, X, np.ones(2000), ()),
        "in one group": (mcmc.GLM, marked, coin | (rare > 0.0), ()),
        "no counts in one group": (mcmc.GLM, marked, rng.poisson(1.0, 2000) * (rare == 0.0), ("poisson",)),
        "no counts": (mcmc.GLM, X, np.zeros(2000), ("poisson",)),
        "all classes": (mcmc.Softmax, X, np.digitize(X[:, 1], [-0.5, 0.5]), ()),
        "no row of a class": (mcmc.Softmax, X, rng.integers(0, 2, 2000), (3,)),
        "a class in one group": (mcmc.Softmax, marked, np.where(rare > 0.0, 2, coin), ()),
    }[kind]


@pytest.mark.parametrize("kind", ["all", "one outcome", "in one group", "no counts in one group", "no counts",
                                  "all classes", "no row of a class", "a class in one group"])
def test_separated_outcomes_under_a_flat_prior_are_refused_by_name(kind):
    make, X, y, more = separated(kind, np.random.default_rng(1))
    for scale in (1.0, [1.0, 1e4, 1.0][: X.shape[1]]):
        with pytest.raises(ValueError, match="improper.*separated.*prior_sd"):
            mcmc.RacingMetropolis(make(X * scale, y, *more))
    for control_variate in (None, "auto"):
        with pytest.raises(ValueError, match="improper.*separated"):
            mcmc.Metropolis(make(X, y, *more), control_variate=control_variate)
    model = make(X, y, *more, prior_sd=2.5)
    assert gradient_in_sd(model, model.reference()) < 1e-3


def test_the_parameters_that_run_away_are_named():
    make, X, y, more = separated("in one group", np.random.default_rng(1))
    with pytest.raises(ValueError, match="along parameters 'x2', "):
        make(X, y, *more).reference()
    flat = [np.inf, np.inf, 2.5]
    make(X, y, *more, prior_sd=flat).reference()
    with pytest.raises(ValueError, match="along parameters 'x2', "):
        make(X, y, *more, prior_sd=[2.5, 2.5, np.inf]).reference()


def test_a_prior_of_ones_own_may_make_separated_outcomes_proper():
    make, X, y, more = separated("all", np.random.default_rng(1))
    model = make(X, y, *more, log_prior=lambda theta: -0.5 * float(theta @ theta))
    with pytest.raises(ValueError, match="log_prior is not expanded.*control_variate=None"):
        mcmc.RacingMetropolis(model)
    trace = mcmc.sample(mcmc.Metropolis(model, control_variate=None), n_draws=200, n_chains=1, rng=1)
    assert np.abs(trace.draws).max() < 30.0


@pytest.mark.parametrize("extra", [lambda X: 2.0 * X[:, 1], lambda X: X[:, 1] - 3.0, lambda X: 0.0 * X[:, 1]])
@pytest.mark.parametrize("family", ["logistic", "gaussian", "poisson", "softmax"])
def test_collinear_columns_under_a_flat_prior_are_refused_by_name(extra, family):
    X, rng = columns(500)
    X = np.column_stack([X, extra(X)])
    y = rng.random(500) < 0.5

    def make(**options):
        if family == "softmax":
            return mcmc.Softmax(X, y, **options)
        return mcmc.GLM(X, y, family, 1.0 if family == "gaussian" else None, **options)

    with pytest.raises(ValueError, match="improper.*parameters .*2.*collinear.*prior_sd"):
        make().reference()
    make(prior_sd=10.0).reference()
    make(prior_sd=[np.inf, np.inf, 10.0]).reference()


@pytest.mark.parametrize("family", ["logistic", "gaussian", "softmax"])
@pytest.mark.parametrize("offset", [1e7, 1e8, 1e9])
def test_a_column_far_from_zero_is_not_called_improper(family, offset):
    rng = np.random.default_rng(3)
    z = rng.standard_normal(2000)
    y = rng.random(2000) < 1.0 / (1.0 + np.exp(-z))

    def make(offset, **options):
        X = np.column_stack([np.ones(2000), offset + z])
        if family == "softmax":
            return mcmc.Softmax(X, y, **options)
        return mcmc.GLM(X, y, family, 1.0 if family == "gaussian" else None, **options)

    with pytest.raises(models.NoModeError, match="[Cc]entre and scale (the )?columns") as caught:
        make(offset).reference()
    assert "improper" not in str(caught.value)
    with pytest.raises(models.NoModeError, match="[Cc]entre and scale (the )?columns"):
        make(offset, log_prior=lambda theta: 0.0).reference()
    make(0.0).reference()


def test_nearly_collinear_columns_are_refused_where_no_kernel_is_named_too():
    """It was a random walk on all rows, R-hat 1.69, and advice to run longer."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=500)
    X, y = np.column_stack([np.ones(500), x, x + 1e-8 * rng.normal(size=500)]), rng.integers(0, 2, 500)
    for refused in (mcmc.sample, mcmc.RacingMetropolis):
        with pytest.raises(models.NoModeError, match="nearly collinear.*Centre and scale the columns"):
            refused(mcmc.GLM(X, y))
    trace = mcmc.sample(mcmc.GLM(X, y, prior_sd=2.0), n_draws=200, n_chains=2, rng=1)
    assert trace.draws[..., 1].std() > 1.0 and not trace.warnings


@pytest.mark.parametrize("offset", [1e7, 1e8, 1e9, 1e10, 1e12])
@pytest.mark.parametrize("family", ["logistic", "gaussian"])
@pytest.mark.parametrize("groups", [None, "clinic"])
def test_columns_far_from_zero_are_refused_by_name_under_weak_priors_too(offset, family, groups):
    """At 1e8 it was a random walk or a LinAlgError, and with groups at 1e10 slopes of 0 without a word."""
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(2, 400))
    y = x + rng.normal(size=400) if family == "gaussian" else rng.random(400) < 1.0 / (1.0 + np.exp(-x))
    given = {"groups": {"clinic": rng.integers(0, 5, 400)}} if groups else {}

    def make(level):
        X = {"one": np.ones(400), "year": level + x, "z": z}
        return mcmc.GLM(X, y, family, prior="weak", **given)

    for refused in (mcmc.sample, mcmc.compress):
        with pytest.raises(ValueError, match="'one', 'year'.*collinear"):
            refused(make(offset))
    if groups:
        with pytest.raises(ValueError, match="'one', 'year'.*Centre and scale the columns"):
            mcmc.compress(make(offset), np.array(mcmc.compress(make(0.0)).psi_hat))
    near, far = (mcmc.compress(make(level)) for level in (0.0, 1e5))
    np.testing.assert_allclose(near.psi_hat[1:3], far.psi_hat[1:3], atol=1e-3)


def test_collinear_columns_under_proper_priors_are_taken():
    rng = np.random.default_rng(0)
    x = rng.normal(size=500)
    X, codes = np.column_stack([np.ones(500), x, x]), rng.integers(0, 5, 500)
    compressed = mcmc.compress(mcmc.GLM(X, x + rng.normal(size=500), "gaussian", groups=codes, prior_sd=10.0))
    assert compressed.psi_hat[1] + compressed.psi_hat[2] == pytest.approx(1.0, abs=0.2)
    assert np.sqrt(np.linalg.inv(compressed.metric().to_dense())[1, 1]) == pytest.approx(10.0 / np.sqrt(2.0), rel=0.01)


def test_a_number_of_draws_in_the_place_of_starts_is_told():
    model = mcmc.GLM(columns(100)[0], np.arange(100) % 3 > 0, prior_sd=2.0)
    with pytest.raises(ValueError, match=r"init has shape \(\).*for a number of draws write n_draws=2000"):
        mcmc.sample(model, 2000)


@pytest.mark.parametrize("n_rows", [30, 3000])
def test_posteriors_that_are_only_nearly_improper_are_taken(n_rows):
    """One row of a thousand keeps the classes apart from separation."""
    X, rng = columns(n_rows, seed=3)
    y = X[:, 1] > 0.0
    y[np.argsort(X[:, 1])[len(y) // 2 - 8]] ^= True
    model = mcmc.GLM(X, y)
    assert gradient_in_sd(model, model.reference()) < 1e-3
    year = np.random.default_rng(0).integers(2000, 2021, n_rows).astype(float)
    model = mcmc.GLM(np.column_stack([np.ones(n_rows), year, year**2]), rng.random(n_rows) < 0.5)  # nearly collinear
    assert gradient_in_sd(model, model.reference()) < 1e-3
    far = np.array(X)
    far[0, 1] = 1e4  # a row far out is not separation
    model = mcmc.GLM(far, rng.random(n_rows) < 0.5)
    assert gradient_in_sd(model, model.reference()) < 1e-3


# Options that are no numbers, or too many of them.


@pytest.mark.parametrize(("options", "error", "words"), [
    ({"scale": "auto"}, TypeError, r"scale is 'auto': the 'gaussian' family needs .*X\.shape"),
    ({"scale": [1.0, 2.0]}, TypeError, r"scale is \[1\.0, 2\.0\] of type list; a real number is needed"),
    ({"scale": np.ones(1)}, TypeError, r"scale is array\(\[1\.\]\) of type ndarray; a real number is needed"),
    ({"scale": -1}, ValueError, "scale is -1; a finite number above 0 is needed"),
    ({"scale": 1, "df": "auto"}, TypeError, "df is 'auto' of type str; a real number is needed"),
    ({"scale": 1, "prior_sd": [1, 2, 3]}, ValueError, r"prior_sd has shape \(3,\); .* one value per parameter"),
    ({"scale": 1, "prior_mean": [[1, 2]]}, ValueError, r"prior_mean has shape \(1, 2\); .* one value per parameter"),
    ({"scale": 1, "shuffle": "yes"}, TypeError, "shuffle is 'yes'; None, an int"),
])
def test_bad_options_of_a_model_are_named_in_its_own_words(options, error, words):
    X, rng = columns(50)
    with pytest.raises(error, match=words) as caught:
        mcmc.GLM(X, rng.normal(size=50), family="gaussian", **options)
    assert "arm" not in str(caught.value)


@pytest.mark.parametrize(("module", "absent", "words"), [
    ("jax", "jax", "fastrace.mcmc.doors.jax needs JAX: python -m pip install jax"),
    ("numpyro", "jax", "fastrace.mcmc.doors.numpyro needs NumPyro, .*: python -m pip install"),
    ("numpyro", "numpyro.infer", "fastrace.mcmc.doors.numpyro needs NumPyro, .*: python -m pip install"),
    ("blackjax", "blackjax.base", "fastrace.mcmc.doors.blackjax needs BlackJAX: python -m pip install"),
    ("emcee", "emcee.moves", "fastrace.mcmc.doors.emcee needs emcee: python -m pip install"),
    ("pymc.steps", "pymc", "fastrace.mcmc.doors.pymc needs PyMC: python -m pip install"),
])
def test_a_module_says_how_to_install_what_it_needs(monkeypatch, module, absent, words):
    for name in list(sys.modules):
        ours = name.startswith(("fastrace.mcmc.doors.jax", f"fastrace.mcmc.doors.{module}"))
        if ours and not name.endswith(".models"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, absent, None)
    with pytest.raises(ImportError, match=words):
        importlib.import_module(f"fastrace.mcmc.doors.{module}")


def test_functions_of_a_model_say_how_they_are_called_and_what_a_proposal_returns():
    def terms(theta, rows):
        return np.zeros(len(rows))

    with pytest.raises(TypeError, match=r"terms is called as terms\(theta, rows\), and it takes \(theta\): too many"):
        mcmc.FunctionModel(lambda theta: 0.0, 1, 9)
    with pytest.raises(TypeError, match=r"log_prior is called as log_prior\(theta\), and it takes \(\)"):
        mcmc.FunctionModel(terms, 1, 9, log_prior=lambda: 0.0)
    model = mcmc.FunctionModel(terms, 1, 9)
    with pytest.raises(TypeError, match=r"proposal is called as proposal\(rng, theta\), and it takes \(theta\)"):
        mcmc.Metropolis(model, proposal=lambda theta: (theta, 0.0))
    for returned in (1.0, None, np.zeros((1, 1)), (np.zeros((1, 1)), 0.0), ("a", 0.0)):
        kernel = mcmc.Metropolis(model, proposal=lambda rng, theta, returned=returned: returned)
        with pytest.raises(ValueError, match="the proposal returned .*; a pair is needed: 1 finite parameters"):
            mcmc.sample(kernel, n_draws=5, n_chains=1, n_tune=0, rng=1)
