"""PyMC models that are no GLM as a `Compressed`: the expansion, the model without rows, and corrected draws."""

import pickle

import numpy as np
import pytest
from by_pymc import DATA, N, made, pm
from scipy import special, stats

from fastrace import mcmc
from fastrace.mcmc.doors import compressed as doors
from fastrace.mcmc.doors.pymc import _mapped

RNG = np.random.default_rng(11)
AT = RNG.uniform(0.0, 5.0, 400)
GROWN = 3.0 * (1.0 - np.exp(-AT)) + 0.5 * RNG.normal(size=400)
GROUP, SLOPE = RNG.integers(0, 4, 300), RNG.normal(size=300)
YES = (RNG.random(300) < special.expit(0.3 + np.array([0.8, -0.6, 0.3, -0.5])[GROUP] + 0.4 * SLOPE)).astype(float)


def curve():
    """Two parameters in a function that no linear predictor is."""
    with pm.Model() as model:
        x, y = pm.Data("x", AT), pm.Data("y", GROWN)
        top, rate = pm.HalfNormal("top", 5.0), pm.HalfNormal("rate", 1.0)
        mean = pm.Deterministic("mean", top * (1.0 - pm.math.exp(-rate * x)))
        pm.Normal("obs", mean, 0.5, observed=y)
        pm.Deterministic("half_time", np.log(2.0) / rate)
    return model


def zero_sum():
    """Effects that sum to 0, of a learned scale: eight numbers that rows see span seven dimensions."""
    with pm.Model() as model:
        g, x, y = pm.Data("g", GROUP), pm.Data("x", SLOPE), pm.Data("y", YES)
        a, b, sd = pm.Normal("a"), pm.Normal("b"), pm.HalfNormal("sd")
        e = pm.ZeroSumNormal("e", sigma=1.0, shape=4)
        pm.Bernoulli("obs", logit_p=a + sd * e[g] + b * x, observed=y)
    return model


@pytest.fixture(scope="module")
def short():
    """Without a compiler a gradient takes most of a millisecond: what is settled here need not be good."""
    with pytest.MonkeyPatch.context() as patch:
        for owner, name, value in ((_mapped, "EFFORT", 0.03), (_mapped.MappedModel, "_effort", 0.03),
                                   (_mapped, "_MOVES", 60), (_mapped, "_ARRIVING", 10), (_mapped, "_ROUNDS", 2)):
            patch.setattr(owner, name, value)
        yield


@pytest.fixture(scope="module")
def curved(short):
    model = mcmc.from_pymc(curve(), through=["top", "rate"])
    return model, mcmc.compress(model)


@pytest.fixture(scope="module")
def summed(short):
    model = mcmc.from_pymc(zero_sum())
    return model, mcmc.compress(model)


def seen_of(compressed, at):
    """What the rows see, by hand, of variables on their own scales."""
    if "top" in at:
        return np.log([at["top"], at["rate"]])
    effects = at["sd"] * np.asarray(at["e"])
    by_name = {"a": at["a"], "b": at["b"], **{f"f(e, sd)[{j}]": effects[j] for j in range(4)}}
    return np.array([by_name[name] for name in compressed.names])


def log_likelihood(at):
    """Of all rows, by SciPy."""
    if "top" in at:
        return stats.norm.logpdf(GROWN, at["top"] * -np.expm1(-at["rate"] * AT), 0.5).sum()
    eta = at["a"] + at["sd"] * np.asarray(at["e"])[GROUP] + at["b"] * SLOPE
    return (YES * eta - np.logaddexp(0.0, eta)).sum()


def at_hat(compressed):
    """Variables of which the rows see what was expanded at."""
    psi = dict(zip(compressed.names, compressed.psi_hat, strict=True))
    if "top_log__" in psi:
        return {"top": np.exp(psi["top_log__"]), "rate": np.exp(psi["rate_log__"])}
    return {"a": psi["a"], "b": psi["b"], "sd": 0.5, "e": np.array([psi[f"f(e, sd)[{j}]"] for j in range(4)]) / 0.5}


def moved(at, by, rng):
    """Variables a little elsewhere, which they can have."""
    if "top" in at:
        return {name: value * np.exp(by * rng.normal()) for name, value in at.items()}
    step = rng.normal(size=4)
    return {"a": at["a"] + by * rng.normal(), "b": at["b"] + by * rng.normal(), "sd": at["sd"] * np.exp(by),
            "e": at["e"] + by * (step - step.mean())}


@pytest.mark.parametrize("which", ["curved", "summed"])
def test_the_expansion_agrees_with_the_terms_to_second_order(which, request):
    """What it leaves of SciPy's log-likelihood, through the map by hand, falls by eight where steps are halved."""
    model, compressed = request.getfixturevalue(which)
    assert compressed.n_rows == model.n_rows and model.dim == (2 if which == "curved" else 6)
    at = at_hat(compressed)
    np.testing.assert_allclose(seen_of(compressed, at), compressed.psi_hat, atol=1e-9)
    for seed in range(4):
        left, size = [], 0.02
        for by in (0.0, size, size / 2.0):
            there = moved(at, by, np.random.default_rng(seed))
            left.append(log_likelihood(there) - compressed.log_likelihood(seen_of(compressed, there)))
        whole, half = np.abs(np.array(left[1:]) - left[0])
        assert whole < 0.2 and 7.0 < whole / half < 9.0


@pytest.mark.parametrize("which", ["curved", "summed"])
def test_gradient_and_product_are_those_of_the_value(which, request):
    _, compressed = request.getfixturevalue(which)
    rng, n = np.random.default_rng(3), compressed.n_seen
    psi, v = compressed.psi_hat + 0.1 * rng.normal(size=n), rng.normal(size=n)
    up, down = (compressed.log_likelihood(psi + h * v) for h in (1e-4, -1e-4))
    assert (up - down) / 2e-4 == pytest.approx(compressed.gradient(psi) @ v, rel=1e-6)
    change = compressed.gradient(psi + v) - compressed.gradient(psi)
    np.testing.assert_allclose(change, compressed.hessian_product(v), atol=1e-9 * np.abs(compressed.slope).max() + 1e-9)
    np.testing.assert_allclose(compressed.hessian_product(v), -compressed.curvature.to_dense() @ v)
    root = compressed.covariance_root()
    np.testing.assert_allclose(root @ root.T @ compressed.metric().to_dense(), np.eye(n), atol=1e-8)
    data = doors.stan_data(compressed)
    assert data["n_seen"] == n and np.array_equal(data["curvature"], compressed.curvature.to_dense())


@pytest.mark.parametrize("which", ["curved", "summed"])
def test_a_compressed_model_pickles_as_numbers_alone(which, request):
    _, compressed = request.getfixturevalue(which)
    saved = pickle.dumps(compressed)
    again, v = pickle.loads(saved), np.ones(compressed.n_seen)
    assert b"pymc" not in saved and again.names == compressed.names
    assert again.log_likelihood(v) == compressed.log_likelihood(v)
    assert again.distance(v) == compressed.distance(v) > 0.0


@pytest.mark.parametrize("which", ["curved", "summed"])
def test_the_pymc_model_without_rows_has_priors_and_the_expansion(which, request):
    model, compressed = request.getfixturevalue(which)
    whole = model.pymc_model
    without = doors.pymc_model(compressed, model, "expanded")
    assert not without.observed_RVs and not without.data_vars and "expanded" in without.named_vars
    assert [v.name for v in without.deterministics] == (["half_time"] if which == "curved" else [])
    assert set(whole.named_vars) >= {"obs", "y"}  # as it was
    ours = without.compile_logp(mode="FAST_COMPILE")
    prior = whole.compile_logp(vars=whole.free_RVs, mode="FAST_COMPILE")
    at = {name: np.asarray(value)[None] for name, value in at_hat(compressed).items()}
    rng, differences = np.random.default_rng(6), []
    for _ in range(4):
        point = model.point(model.packed(at)[0] + 0.3 * rng.normal(size=model.dim))
        psi = seen_of(compressed, {n: v[0] for n, v in model.unpack(model.pack(point)[None]).items()})
        differences.append(ours(point) - prior(point) - compressed.log_likelihood(psi))
    np.testing.assert_allclose(differences, differences[0], atol=1e-9)


def by_importance(log_density, center, spread, count, rng):
    """Points of t densities about a center, and normalised weights of a density there."""
    steps = rng.standard_t(5.0, size=(count, len(center)))
    weights = special.softmax([log_density(point) for point in center + steps * spread]
                              - stats.t.logpdf(steps, 5.0).sum(axis=1))
    assert 1.0 / np.square(weights).sum() > 0.02 * count
    return center + steps * spread, weights


BASIS = np.linalg.svd(np.ones((1, 4)))[2][1:].T  # of vectors of four numbers whose sum is 0


def variables(point):
    if len(point) == 2:
        return {"top": np.exp(point[0]), "rate": np.exp(point[1])}
    return {"a": point[0], "b": point[1], "sd": np.exp(point[2]), "e": BASIS @ point[3:] * np.exp(-point[2])}


def log_prior(point):
    """By SciPy, of logarithms of scales; zero-sum effects are normal in any basis of theirs, here not standardised."""
    if len(point) == 2:
        return stats.halfnorm.logpdf(np.exp(point), scale=[5.0, 1.0]).sum() + point.sum()
    return (stats.norm.logpdf(point[:2]).sum() + stats.norm.logpdf(point[3:], 0.0, np.exp(point[2])).sum()
            + stats.halfnorm.logpdf(np.exp(point[2])) + point[2])


@pytest.mark.parametrize("decision", ["exact", pytest.param("race", marks=pytest.mark.long)])
@pytest.mark.parametrize("which", ["curved", "summed"])
def test_corrected_draws_are_the_posterior_with_rows(which, decision, request):
    """Draws of prior times expansion by importance, against moments of the posterior by importance."""
    model, compressed = request.getfixturevalue(which)
    rng = np.random.default_rng(8)
    if which == "curved":
        center, spread = np.array(compressed.psi_hat), np.array([0.03, 0.08])
    else:
        at = at_hat(compressed)
        center = np.r_[at["a"], at["b"], np.log(at["sd"]), BASIS.T @ at["e"] * at["sd"]]
        spread = np.array([0.14, 0.14, 0.5, 0.25, 0.25, 0.25])
    surrogate = lambda p: log_prior(p) + compressed.log_likelihood(seen_of(compressed, variables(p)))  # noqa: E731
    points, weights = by_importance(surrogate, center, spread, 20_000, rng)
    chosen = points[rng.choice(len(points), size=(2, 1500), p=weights)]
    draws = [variables(point) for point in chosen.reshape(-1, chosen.shape[-1])]
    draws = {name: np.array([d[name] for d in draws]).reshape(2, 1500, *np.shape(draws[0][name])) for name in draws[0]}
    trace = mcmc.correct(draws, compressed, model, 1, decision=decision, delta=0.01)
    assert trace.names == model.names and trace.accepted.mean() > 0.7
    points, weights = by_importance(lambda p: log_prior(p) + log_likelihood(variables(p)), center, spread, 20_000, rng)
    free = model.packed({name: np.array([variables(p)[name] for p in points]) for name in draws})
    mean, size = weights @ free, 1.0 / np.square(weights).sum()
    sd = np.sqrt(weights @ np.square(free - mean))
    error = sd * np.sqrt(1.0 / trace.ess() + 2.0 / size)
    assert (np.abs(trace.draws.mean(axis=(0, 1)) - mean) < 5.5 * error).all()
    again = model.unpack(trace)
    assert all(again[name].shape == values.shape for name, values in draws.items())
    assert set(trace.to_arrays()["posterior"]) == set(model._value_names)


@pytest.mark.filterwarnings("ignore:Pareto k")  # these draws are not those of the surrogate
def test_draws_may_come_in_several_forms(curved):
    model, compressed = curved
    rng = np.random.default_rng(4)
    theta = np.asarray(compressed.psi_hat) + [0.02, 0.05] * rng.normal(size=(2, 60, 2))
    assert model.names == compressed.names == ("top_log__", "rate_log__")
    natural = {"top": np.exp(theta[:, :, 0]), "rate": np.exp(theta[:, :, 1]), "half_time": theta[:, :, 1]}

    class Inference:
        posterior = natural

    truth = mcmc.correct(theta, compressed, model, 1, decision="exact")
    own = {name: theta[:, :, j] for j, name in enumerate(model.names)}
    for form in (natural, Inference, own, model.packed(natural)):
        trace = mcmc.correct(form, compressed, model, 1, decision="exact")
        np.testing.assert_allclose(trace.draws, truth.draws, rtol=1e-12)
    trace = mcmc.correct(truth, compressed, model, 1, decision="exact")
    assert trace.names == model.names and trace.draws.shape == (2, 60, 2)
    raced = mcmc.correct(natural, compressed, model, 1)
    assert mcmc.check_bias(model, raced, 50, 1, draws=natural, surrogate=compressed).n_checked == 50


def test_an_expansion_may_be_made_again_from_another_or_from_draws(curved):
    model, compressed = curved
    again = mcmc.compress(model, compressed)
    np.testing.assert_array_equal(again.psi_hat, compressed.psi_hat)  # its mode, where nothing else is known
    assert again.value == compressed.value and 0.0 <= again.from_mode < 3.0
    assert again.distance(again.mode) == pytest.approx(again.from_mode)
    kernel = mcmc.SurrogateMetropolis(model, psi_hat=compressed, decision="exact")
    np.testing.assert_array_equal(kernel.model.expansion[0], compressed.psi_hat)
    trace = mcmc.sample(kernel, n_draws=30, n_chains=2, n_tune=10, rng=1)
    np.testing.assert_allclose(mcmc.compress(model, trace).psi_hat, trace.draws.mean(axis=(0, 1)))
    far = mcmc.compress(model, np.asarray(compressed.psi_hat) + 0.5)
    assert far.from_mode > 3.0


def test_draws_of_a_recognised_model_may_have_the_names_of_pymc():
    """Decisions are those of the `GLM` that it is."""
    def build(d):
        tau, z = pm.HalfNormal("tau"), pm.Normal("z", shape=3)
        pm.Bernoulli("obs", logit_p=pm.Normal("a") + tau * z[d["g"]], observed=d["k"])

    model = made(build)
    glm, compressed = model.as_glm(), mcmc.compress(model)
    free = 0.3 * np.random.default_rng(1).normal(size=(2, 80, glm.dim))
    natural = np.asarray(glm.constrain(free))
    theta = model.from_glm(natural)
    named = model.unpack(theta)
    truth = mcmc.correct(free, compressed, glm, 1, decision="exact")
    for draws in (named, theta):
        trace = mcmc.correct(draws, compressed, model, 1, decision="exact")
        np.testing.assert_array_equal(trace.accepted, truth.accepted)
        place = np.maximum.accumulate(np.where(trace.accepted, np.arange(80), 0), axis=1)
        np.testing.assert_allclose(trace.draws, np.take_along_axis(theta, place[:, :, None], axis=1), rtol=1e-9)
        assert trace.names == model.names
    with pytest.raises(ValueError, match=r"recognised as a GLM.*through=\[\.\.\.\]"):
        doors.pymc_model(compressed, model)
    with pytest.raises(ValueError, match="k the 5 parameters of the model"):
        mcmc.correct(theta[:, :, :4], compressed, model)


@pytest.mark.filterwarnings("ignore")  # draws of the posterior are not those of the surrogate
def test_a_trace_is_taken_as_draws():
    rng = np.random.default_rng(2)
    model = mcmc.GLM(rng.normal(size=(200, 2)), rng.normal(size=200), family="gaussian", groups=rng.integers(0, 5, 200))
    kernel = mcmc.SurrogateMetropolis(model, decision="exact")
    trace = mcmc.sample(kernel, n_draws=200, n_chains=2, rng=1)
    compressed = mcmc.compress(model)
    again = mcmc.correct(trace, compressed, model, 1, decision="exact")
    assert again.names == trace.names
    place = np.maximum.accumulate(np.where(again.accepted, np.arange(200), 0), axis=1)
    np.testing.assert_allclose(again.draws, np.take_along_axis(trace.draws, place[:, :, None], axis=1), rtol=1e-12)
    raced = mcmc.correct(trace, compressed, model, 1)
    assert mcmc.check_bias(model, raced, 20, 1, draws=trace, surrogate=compressed).n_checked == 20
    with pytest.raises(ValueError, match="the model that was sampled is needed"):
        mcmc.correct(trace, compressed, mcmc.GLM(rng.normal(size=(200, 3)), rng.normal(size=200), family="gaussian"))


def test_what_does_not_fit_is_refused(curved, summed):
    model, compressed = curved
    with pytest.raises(ValueError, match="leave chunks out"):
        mcmc.compress(model, chunks=[(np.ones((5, 1)), np.ones(5))])
    with pytest.raises(ValueError, match="2 finite parameters are needed"):
        mcmc.compress(model, [1.0])
    with pytest.raises(ValueError, match="compress\\(model\\) of this very model"):
        doors.pymc_model(summed[1], model)
    with pytest.raises(ValueError, match="already"):
        doors.pymc_model(compressed, model, "top")
    with pytest.raises(TypeError, match=r"what mcmc\.from_pymc returned"):
        doors.pymc_model(compressed, model.pymc_model)
    with pytest.raises(TypeError, match=r"mcmc\.compress\(model\)"):
        doors.pymc_model(model, model)
    draws = np.asarray(compressed.psi_hat) + 0.01 * np.random.default_rng(1).normal(size=(40, 2))
    with pytest.raises(ValueError, match="expands in 2 parameters and the rows of the model see 6"):
        mcmc.correct(draws, compressed, summed[0])
    with pm.Model() as other:
        x, y = pm.Data("x", AT), pm.Data("y", GROWN + 0.1)
        top, rate = pm.HalfNormal("top", 5.0), pm.HalfNormal("rate", 1.0)
        pm.Normal("obs", top * (1.0 - pm.math.exp(-rate * x)), 0.5, observed=y)
    other = mcmc.from_pymc(other, through=["top", "rate"])
    for use in (lambda: mcmc.correct(draws, compressed, other),
                lambda: mcmc.SurrogateMetropolis(other, psi_hat=compressed)):
        with pytest.raises(ValueError, match="of other rows or another family"):
            use()
    named = {"top": np.exp(draws[:, 0]), "rate": np.exp(draws[:, 1])}
    for wrong, words in (({"top": named["top"][:20]}, "one is needed"), ({"rate": -named["rate"]}, "cannot have"),
                         ({"top": np.ones((40, 2))}, "one is needed")):
        with pytest.raises(ValueError, match=words):
            mcmc.correct(named | wrong, compressed, model)
    with pytest.raises(ValueError, match="the draws lack 'rate'"):
        model.packed({"top": named["top"]})
    with pytest.raises(ValueError, match=r"draws\['e'\] has shape"):
        summed[0].packed({"a": [0.0], "b": [0.0], "sd": [1.0], "e": np.zeros((1, 3))})


def test_a_model_that_pymc_cannot_copy_is_refused_in_words(short):
    with pm.Model() as model:
        pm.NormalMixture("obs", w=[0.3, 0.7], mu=pm.Normal("mu", [-1.0, 1.0], 1.0, shape=2, initval=[-1.0, 1.0]),
                         sigma=pm.HalfNormal("s"), observed=DATA["y"])
    model = mcmc.from_pymc(model)
    compressed = mcmc.compress(model)
    assert compressed.names == ("mu[0]", "mu[1]", "s_log__") and compressed.n_rows == N
    with pytest.raises(ValueError, match=r"PyMC cannot copy the model.*pymc_potential"):
        doors.pymc_model(compressed, model)


@pytest.mark.long
def test_nuts_of_pymc_without_rows_is_corrected_to_the_grid(curved):
    """By the InferenceData that it returns."""
    model, compressed = curved
    with doors.pymc_model(compressed, model):
        idata = pm.sample(1500, tune=500, chains=2, cores=1, random_seed=1, progressbar=False, quiet=True,
                          compute_convergence_checks=False)
    trace = mcmc.correct(idata.sel(draw=slice(None, None, 3)), compressed, model, 1, delta=0.01)
    axes = (hat + width * np.linspace(-6.0, 6.0, 121) for hat, width in zip(compressed.psi_hat, (0.03, 0.08),
                                                                            strict=True))
    grid = np.stack([axis.ravel() for axis in np.meshgrid(*axes)], axis=1)
    weights = special.softmax([log_prior(point) + log_likelihood(variables(point)) for point in grid])
    mean = weights @ grid
    sd = np.sqrt(weights @ np.square(grid - mean))
    assert (np.abs(trace.draws.mean(axis=(0, 1)) - mean) < 5.5 * sd / np.sqrt(trace.ess())).all()


def test_minibatches_need_the_surrogate_in_whose_coordinates_they_decide():
    """The kernel has the parameters of a PyMC model in an order of its own, which a `Reference` does not."""
    x = RNG.normal(size=200)
    with pm.Model() as model:
        sd, slope = pm.HalfNormal("sd"), pm.Normal("slope")
        pm.Normal("obs", slope * x, sd, observed=x + RNG.normal(size=200))
    form = mcmc.from_pymc(model)
    about = form.reference()
    draws = about.center + RNG.standard_normal((2, 200, 2)) @ about.factor.T
    with pytest.raises(ValueError, match=r"needs the surrogate of mcmc.compress\(model\).*a Reference came"):
        mcmc.correct(draws, about, form, 1, decision="poisson")
    found = [mcmc.correct(draws, mcmc.compress(form), form, 1, decision=decision) for decision in ("poisson", "exact")]
    assert np.allclose(*(trace.draws.mean(axis=(0, 1)) for trace in found), atol=0.03)
