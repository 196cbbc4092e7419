"""Laplace approximations with Pareto-smoothed weights: the weights, the answers, and what they say of themselves."""

import dataclasses
import json
import math
import pickle
import warnings

import numpy as np
import pytest
from scipy import special, stats

from chains import logistic_model
from fastrace import mcmc
from fastrace.mcmc import _pareto
from guarantee import few_or_many
from reference import pareto


def rare(n_rows=3000, positives=1):
    rng = np.random.default_rng(8)
    X = np.column_stack([np.ones(n_rows), rng.normal(size=n_rows)])
    return mcmc.GLM(X, np.arange(n_rows) < positives, prior_sd=10.0)


def test_a_group_of_one_outcome_is_not_left_to_k():
    """Weighted draws rarely reach the tail of its effect, and k is small where they have not."""
    rng = np.random.default_rng(2)
    g, x = np.arange(40) % 5, rng.normal(size=40)
    y = np.where(g == 0, 1.0, rng.random(40) < 0.5)
    X = np.column_stack([np.ones(40), x])
    with pytest.warns(UserWarning, match="outcomes are alike: such effects have a long tail.*mcmc.sample"):
        answer = mcmc.laplace(mcmc.GLM(X, y, groups={"g": g}), rng=1)
    assert "no chain is needed" not in answer.verdict and any("alike" in words for words in answer.warnings)
    y[0], y[1::5] = 0.0, np.arange(8) % 2
    mixed = mcmc.laplace(mcmc.GLM(X, y, groups={"g": g}), n_draws=400, rng=1)
    assert not any("alike" in words for words in mixed.warnings)


def ratios(n, sd, seed=1):
    return sd * np.random.default_rng(seed).normal(size=n)


@pytest.mark.parametrize("n", [25, 100, 224, 225, 226, 1000])
@pytest.mark.parametrize("sd", [0.01, 0.5, 3.0])
def test_smoothed_weights_are_those_of_the_twin(n, sd):
    weights, k = pareto.smooth(ratios(n, sd))
    log_weights, shape = _pareto.smoothed(ratios(n, sd))
    assert shape == pytest.approx(k, abs=1e-9)
    np.testing.assert_allclose(np.exp(log_weights), weights, rtol=1e-8)


@pytest.mark.parametrize("sd", [0.1, 1.0, 3.0])
def test_smoothed_weights_are_those_of_arviz(sd):
    arviz = pytest.importorskip("arviz")
    x = ratios(900, sd)     # a tail of 90, on whose size all versions agree
    if hasattr(arviz, "psislw"):
        expected, k = arviz.psislw(x.copy())
    else:
        expected, k = pytest.importorskip("arviz_stats.base").array_stats.psislw(-x)
    log_weights, shape = _pareto.smoothed(x)
    assert shape == pytest.approx(float(k), abs=1e-8)
    np.testing.assert_allclose(log_weights, expected, atol=1e-8)


@pytest.mark.parametrize("k", [0.2, 0.5, 0.9])
def test_the_shape_of_a_known_tail_is_found(k):
    weights = stats.genpareto.rvs(k, size=100_000, random_state=1)
    assert _pareto.smoothed(np.log(weights))[1] == pytest.approx(k, abs=0.15)


def test_weights_without_a_tail():
    log_weights, k = _pareto.smoothed(np.full(100, -3.0))
    assert k == 0.0
    np.testing.assert_allclose(log_weights, -math.log(100.0))
    impossible = np.where(np.arange(1000) < 400, -np.inf, ratios(1000, 0.1))
    log_weights, k = _pareto.smoothed(impossible)
    assert k < 0.5 and np.exp(log_weights).sum() == pytest.approx(1.0) and np.isneginf(log_weights[:400]).all()
    few = np.full(1000, -np.inf)
    few[:3] = [0.0, 0.1, 0.2]
    assert _pareto.smoothed(few)[1] == math.inf


def test_trust_asks_more_of_fewer_draws():
    assert _pareto.trusted_below(100) == pytest.approx(0.5)
    assert _pareto.trusted_below(10_000) == 0.7


def test_a_normal_posterior_has_equal_weights():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    model = mcmc.GLM(X, X.sum(axis=1) + rng.normal(size=200), family="gaussian", scale=1.0, prior_sd=3.0)
    answer = mcmc.laplace(model, 500, rng=1)
    covariance = np.linalg.inv(X.T @ X + np.eye(3) / 9.0)
    np.testing.assert_allclose(answer.center, covariance @ (X.T @ model._glm.y))
    assert answer.pareto_k == 0.0 and answer.ess == pytest.approx(500.0) and answer.df == math.inf
    assert answer.verdict.startswith("no chain is needed") and answer.warnings == ()
    assert "Pareto k is 0.49, below 0.5" in dataclasses.replace(answer, pareto_k=0.4996).verdict


def by_quadrature(model, half_width, count=161):
    """Mean and deviation of each of two parameters by sums on a grid about the mode."""
    about = model.reference()
    z = np.linspace(-half_width, half_width, count)
    grid = np.stack([axis.ravel() for axis in np.meshgrid(z, z)], axis=1) @ about.factor.T + about.center
    density = model.log_posteriors(grid)
    weights = np.exp(density - density.max())
    mean = weights @ grid / weights.sum()
    return mean, np.sqrt(weights @ np.square(grid - mean) / weights.sum())


@pytest.mark.parametrize("make", [logistic_model, rare], ids=["near normal", "one positive"])
def test_moments_are_those_of_a_sum_over_a_grid(make):
    model = make()
    mean, sd = by_quadrature(model, 9.0)
    answer = mcmc.laplace(model, 2000, rng=2)
    error = sd / math.sqrt(answer._columns()["ess"].min())
    assert (np.abs(answer.mean - mean) < 5.0 * error).all()         # 5 sd: by error once in 10^6
    np.testing.assert_allclose(answer.sd, sd, rtol=6.0 / math.sqrt(answer._columns()["ess"].min()))
    assert (np.abs(answer.resampled.mean(axis=0) - mean) < 7.0 * error).all()
    assert math.isfinite(answer.df) == (make is rare)              # where tails are long, the density that has them


def test_log_posteriors_are_sums_of_terms_and_prior():
    rng = np.random.default_rng(3)
    X, classes = rng.normal(size=(50, 2)), rng.integers(0, 3, 50)
    y = rng.normal(size=80)
    pairs = {"prior_mean": 0.5, "prior_sd": 2.0}
    models = [mcmc.GLM(X, classes > 0, log_prior=lambda theta: -abs(theta[0]), **pairs),
              mcmc.Softmax(X, classes, **pairs), mcmc.ARCH(y, 2),
              mcmc.FunctionModel(lambda theta, rows: -0.5 * (y[rows] - theta[0]) ** 2, 1, 80, **pairs)]
    for model in models:
        points = 0.3 * rng.normal(size=(70, model.dim))
        found = model.log_posteriors(points)
        source, theta = model.engine(None)
        for i in (0, 1, 63, 64, 69):
            theta[:] = points[i]
            own = source.read(np.arange(model.n_rows), [0]).sum()
            own -= 0.5 * (np.square(points[i] - model.prior_mean) * model.prior_precision).sum()
            own += model.log_prior(points[i]) if model.log_prior else 0.0
            assert found[i] == pytest.approx(own, rel=1e-12)
        with pytest.raises(ValueError, match=r"\(k, \d\) finite parameters are needed"):
            model.log_posteriors(points[0])


def test_a_log_prior_enters_the_weights():
    free, held = logistic_model(), logistic_model(log_prior=lambda theta: 0.0 if theta[1] < 1.0 else -np.inf)
    answer = mcmc.laplace(held, 1000, rng=1)
    assert answer.resampled[:, 1].max() < 1.0 < mcmc.laplace(free, 1000, rng=1).resampled[:, 1].max()
    nowhere = logistic_model(log_prior=lambda theta: -np.inf)
    with pytest.raises(ValueError, match="the posterior is 0 at all 100 draws"):
        mcmc.laplace(nowhere, 100, rng=1)


def test_weights_that_cannot_be_trusted_are_warned_of():
    model = rare()
    with pytest.warns(UserWarning, match="a chain is needed: Pareto k is"):
        answer = mcmc.laplace(model, 1000, rng=1, df=math.inf)
    assert answer.pareto_k > 0.66 and answer.warnings == (answer.verdict,)
    assert str(answer).count("a chain is needed") == 1
    with pytest.warns(UserWarning, match=r"only \d+ of 300 draws are effective"):
        mcmc.laplace(logistic_model(), 300, rng=1, df=0.1)


@pytest.mark.parametrize("n", [50, 400])
def test_draws_are_few_by_one_rule_however_many_were_asked_for(n):
    with pytest.warns(UserWarning, match=r"only \d+ of \d+ draws are effective, and 100 are needed"):
        answer = mcmc.laplace(logistic_model(), n, rng=1, **({} if n == 50 else {"df": 0.1}))
    assert answer.ess < 100.0 and "practical purposes" not in answer.verdict
    if answer.pareto_k < 0.5:
        assert answer.verdict.startswith("more draws are needed")


def test_a_tail_that_an_estimate_of_k_hides_is_met_by_student_draws():
    rng = np.random.default_rng(77)
    X, y = rng.normal(size=(100, 20)), (np.arange(100) < 3).astype(float)
    model = mcmc.GLM(X, y, prior_sd=2.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")         # few of the normal draws are effective
        normal, found = (mcmc.laplace(model, 4000, rng=0, df=df) for df in (np.inf, "auto"))
    assert normal.pareto_k < 0.5                # and yet their means are 0.2 standard deviations off, five errors
    assert found.df == 5.0 and found.n_passes == 8000


def test_an_answer_prints_exports_draws_itself_and_pickles():
    answer = mcmc.laplace(logistic_model(names=["base", "age"]), 400, rng=1)
    assert "age" in str(answer) and "no chain is needed" in str(answer) and len(repr(answer)) < 200
    assert json.loads(json.dumps(answer.to_dict()))["names"] == ["base", "age"]
    again = pickle.loads(pickle.dumps(answer))
    np.testing.assert_array_equal(again.resampled, answer.resampled)
    same = mcmc.laplace(logistic_model(names=["base", "age"]), 400, rng=1)
    np.testing.assert_array_equal(same.draws, answer.draws)
    pytest.importorskip("pandas")
    assert list(answer.to_frame()["coordinate"]) == ["base", "age"]
    plt = pytest.importorskip("matplotlib.pyplot")
    assert len(answer.plot()) == 2
    plt.close("all")


def test_arviz_takes_the_resampled_draws():
    pytest.importorskip("arviz")
    answer = mcmc.laplace(logistic_model(names=["base", "age"]), 200, rng=1)
    kept = answer.to_arviz()["posterior"]
    for j, name in enumerate(["base", "age"]):
        np.testing.assert_array_equal(np.asarray(kept[name])[0], answer.resampled[:, j])


@pytest.mark.parametrize(("wrong", "words"), [
    ({"n_draws": 24}, "n_draws is 24"),
    ({"df": 0.0}, "df is 0.0; positive degrees"),
    ({"df": "t"}, "df is 't'"),
])
def test_bad_arguments(wrong, words):
    with pytest.raises(ValueError, match=words):
        mcmc.laplace(logistic_model(), **wrong)


def test_models_without_a_mode_are_refused_by_name():
    with pytest.raises(TypeError, match="model is 3"):
        mcmc.laplace(3)
    terms = mcmc.FunctionModel(lambda theta, rows: -theta[0] ** 2 * np.ones(len(rows)), 1, 10)
    with pytest.raises(ValueError, match="FunctionModel has no derivatives"):
        mcmc.laplace(terms)
    x = np.linspace(-1.0, 1.0, 50)
    with pytest.raises(ValueError, match="improper: the outcomes are separated"):
        mcmc.laplace(mcmc.GLM(x[:, None], x > 0.0))


def test_models_of_many_coordinates_print_some():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        text = str(mcmc.laplace(logistic_model(500, 25), 200, rng=1))
    assert "... and 5 more; smallest ess" in text


def test_scales_of_group_effects_are_drawn_with_the_rest():
    """Normal outcomes: given the logarithm of the scale the marginal likelihood is closed, and a sum over it exact."""
    rng = np.random.default_rng(4)
    codes = np.repeat(np.arange(8), 12)
    x = np.ones((96, 1))
    y = 0.3 + 0.8 * rng.normal(size=8)[codes] + rng.normal(size=96)
    model = mcmc.GLM(x, y, family="gaussian", scale=1.0, groups=codes, prior=mcmc.Normal(0.0, 2.0),
                     group_prior={"sd": mcmc.HalfNormal(1.0)})
    taus = np.linspace(0.005, 4.0, 800)
    same = (codes[:, None] == codes).astype(float)
    logs = np.empty(len(taus))
    for i, tau in enumerate(taus):
        covariance = np.eye(96) + 4.0 + tau**2 * same
        logs[i] = -0.5 * (np.linalg.slogdet(covariance)[1] + y @ np.linalg.solve(covariance, y) + tau**2)
    weights = special.softmax(logs)
    mean = weights @ taus
    sd = math.sqrt(weights @ (taus - mean) ** 2)
    answer = mcmc.laplace(model, 2000, rng=1)
    assert answer.pareto_k < 0.5 and answer.draws.shape == (2000, model.dim) and answer.draws[:, -1].min() > 0.0
    assert abs(answer.mean[-1] - mean) < 5.5 * sd / math.sqrt(answer.ess)
    assert answer.sd[-1] == pytest.approx(sd, rel=8.0 / math.sqrt(answer.ess))
    assert "nested normal" in str(answer) and answer.n_passes == 2000


def test_hierarchies_whose_weights_are_not_equal_agree_with_a_chain():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 5, 400)
    x = rng.normal(size=(400, 1))
    y = rng.random(400) < special.expit(x[:, 0] - 1.0 + 0.5 * rng.normal(size=5)[codes])
    model = mcmc.GLM(x, y, groups=codes)
    answer = mcmc.laplace(model, 2000, rng=1)
    trace = mcmc.sample(mcmc.SurrogateMetropolis(model, decision="exact"), n_draws=2000, n_chains=2, rng=1)
    n = model.n_seen        # the scale's tail is long
    flat = trace._flat()[:, :, :n]
    error = flat.std(axis=(0, 1)) * np.sqrt(1.0 / trace.ess()[:n] + 1.0 / answer.ess)
    assert (np.abs(flat.mean(axis=(0, 1)) - answer.mean[:n]) < 6.0 * error).all()


def one_way(n_groups=8, rows=12, intercept_sd=2.0):
    """A balanced layout of Gaussian outcomes with both scales learned, and its moments by sums over a grid of them.

    Given the scales the sums of squares within groups, between them and of the mean are independent.
    """
    rng = np.random.default_rng(4)
    codes = np.repeat(np.arange(n_groups), rows)
    y = 0.3 + 0.8 * rng.normal(size=n_groups)[codes] + 1.5 * rng.normal(size=len(codes))
    model = mcmc.GLM(np.ones((len(y), 1)), y, "gaussian", groups=codes, prior=mcmc.Normal(0.0, intercept_sd),
                     scale_prior=mcmc.HalfNormal(2.0), group_prior={"sd": mcmc.HalfNormal(1.0)})
    means = np.bincount(codes, y) / rows
    within, between = np.square(y - means[codes]).sum(), rows * np.square(means - means.mean()).sum()
    scale, sd = np.linspace(0.8, 2.6, 300)[:, None], np.linspace(0.003, 6.0, 700)
    spread, one = scale**2 + rows * sd**2, len(y) * intercept_sd**2
    logs = -0.5 * ((len(y) - n_groups) * np.log(scale**2) + within / scale**2 + (n_groups - 1) * np.log(spread)
                   + between / spread + np.log(spread + one) + len(y) * y.mean() ** 2 / (spread + one)
                   + scale**2 / 4.0 + sd**2)
    weights = special.softmax(logs)
    pull = one / (spread + one) * y.mean()          # mean of the intercept given the scales, and of an effect
    of_first = pull + rows * sd**2 / spread * (means[0] - pull) - pull
    spread_of_intercept = intercept_sd**2 * spread / (spread + one)
    values = {"x0": (pull, spread_of_intercept), "scale": (scale, 0.0), "sd(1|group)": (sd, 0.0)}
    moments = {}
    for name, (mean, variance) in values.items():
        whole = float((weights * mean).sum())
        moments[name] = whole, math.sqrt(float((weights * (variance + np.square(mean - whole))).sum()))
    return model, moments, float((weights * of_first).sum())


def test_a_mixed_model_with_both_scales_learned_has_its_closed_form():
    """Prior times expansion is the posterior itself: all weights are equal."""
    model, moments, of_first = one_way()
    answer = mcmc.laplace(model, 4000, rng=1)
    assert answer.pareto_k == 0.0 and answer.warnings == () and answer.verdict.startswith("no chain is needed")
    assert 0.5 * 4000 < answer.ess <= 4000.0
    for name, (mean, sd) in moments.items():
        place = answer.names.index(name)
        assert abs(answer.mean[place] - mean) < 5.5 * sd / math.sqrt(answer.ess)
        assert answer.sd[place] == pytest.approx(sd, rel=8.0 / math.sqrt(answer.ess))
    first = answer.names.index("1|group[0]")
    assert abs(answer.mean[first] - of_first) < 5.5 * answer.sd[first] / math.sqrt(answer.ess)


LEARNED = {
    "student-t": lambda rng, eta: eta + rng.standard_t(4.0, len(eta)),
    "negative-binomial": lambda rng, eta: rng.negative_binomial(2.0, 2.0 / (2.0 + np.exp(eta))),
    "gamma": lambda rng, eta: rng.gamma(2.0, np.exp(eta) / 2.0),
    "gaussian": lambda rng, eta: eta + rng.normal(size=len(eta)),
}


def learned(family, n_rows=600, n_groups=8, **options):
    rng = np.random.default_rng(0)
    codes = np.arange(n_rows) % n_groups
    x = np.column_stack([np.ones(n_rows), rng.normal(size=(n_rows, 2))])
    eta = x @ [0.5, -0.5, 0.0] + 0.5 * rng.normal(size=n_groups)[codes]
    return mcmc.GLM(x, LEARNED[family](rng, eta), family, groups=codes, **options)


@pytest.mark.parametrize(("family", "prior"), [
    ("student-t", None), ("negative-binomial", None), ("gamma", None), ("gaussian", mcmc.Laplace(0.0, 0.05)),
    ("negative-binomial", mcmc.Horseshoe(expected_nonzero=1.0)), ("gaussian", mcmc.StudentT(3.0, 0.0, 0.05))])
@few_or_many("n", 1500, 20_000)
@pytest.mark.filterwarnings("ignore:R-hat")
def test_learned_scales_and_any_prior_beside_groups_agree_with_a_long_exact_chain(n, family, prior):
    """Means, and those of squared deviations; logarithms of scales, whose tails are long."""
    model = learned(family, **({} if prior is None else {"prior": prior}))
    answer = mcmc.laplace(model, n, rng=1)
    assert answer.pareto_k < 0.7 and answer.ess > 0.1 * n
    trace = mcmc.sample(mcmc.SurrogateMetropolis(model, decision="exact"), n_draws=2 * n, n_chains=2, rng=2)
    draws, own = model.unconstrain(trace._flat()).reshape(-1, model.dim), model.unconstrain(answer.draws)
    center, spread = draws.mean(axis=0), draws.std(axis=0)
    for power in (1, 2):
        theirs, ours = (((values - center) / spread) ** power for values in (draws, own))
        shaped = theirs.reshape(2, -1, model.dim)
        ess = np.array([mcmc.effective_sample_size(shaped[:, :, k]) for k in range(model.dim)])
        mean = answer.weights @ ours
        error = np.sqrt(theirs.var(axis=0) / ess + (answer.weights @ np.square(ours - mean)) / answer.ess)
        assert (np.abs(mean - theirs.mean(axis=0)) < 6.0 * error).all()


def test_hierarchies_say_what_their_weights_may_hide():
    """Groups that merely are small have no flat side; a dispersion that counts leave open has a long tail."""
    rng = np.random.default_rng(1)
    small = mcmc.GLM(np.ones((200, 1)), rng.gamma(2.0, 0.5, 200), "gamma", groups=np.arange(200) % 50)
    assert mcmc.SurrogateMetropolis(small, decision="exact")._swept
    with pytest.warns(UserWarning):
        answer = mcmc.laplace(small, 200, rng=1)
    assert answer.warnings and not any("alike" in words for words in answer.warnings)
    x = np.column_stack([np.ones(60), rng.normal(size=60)])
    counts = mcmc.GLM(x, rng.poisson(np.exp(x @ [0.5, 0.5])), "negative-binomial", groups=np.arange(60) % 6)
    with pytest.warns(UserWarning, match="the rows say little of the learned scale: its logarithm has a long tail"):
        mcmc.laplace(counts, 400, rng=1)
    codes, rng = np.tile(np.arange(3), 30), np.random.default_rng(4)
    y = rng.standard_normal(90) + 10.0 * (np.arange(90) < 45)
    camps = mcmc.GLM(np.ones((90, 1)), y, "student-t", scale=1.0, df=3.0, groups=codes, prior=mcmc.Normal(0.0, 5.0),
                     group_prior=mcmc.HalfNormal(2.0))
    with pytest.warns(UserWarning, match="another mode near theta.*with psi_hat there"):
        mcmc.laplace(camps, 400, rng=1)


@pytest.mark.filterwarnings("ignore:invalid value")
def test_an_impossible_density_of_ones_own_is_an_error_beside_groups_too():
    """Trajectories stand still where it is 0: as many equal draws once looked like an answer."""
    for far in (0.4, math.inf):
        density = mcmc.LogDensity(lambda theta, far=far: 0.0 if theta[0] > far else -math.inf, np.zeros_like)
        with pytest.raises(ValueError, match="the posterior is 0 at all 100 draws of prior times expansion"):
            mcmc.laplace(learned("gaussian", 100, prior=density), 100, rng=1)


def test_a_learned_scale_is_itself_without_hyperparameters_too():
    """Though the normal density is one of its logarithm."""
    y = 5.0 * np.random.default_rng(0).normal(size=400)
    model = mcmc.GLM(np.ones((400, 1)), y, family="gaussian", prior=mcmc.Normal(0.0, 10.0))
    answer = mcmc.laplace(model, n_draws=200, rng=1)
    assert answer.names == ("x0", "scale") and abs(np.log(answer.mean[1] / y.std())) < 0.02


@pytest.mark.parametrize("n", [24, 120, 400])
def test_weights_of_0_leave_the_others_as_they_are(n):
    """Beyond an edge of the target there are any number of draws."""
    inside = ratios(n, 0.7)
    some, k = _pareto.smoothed(inside)
    log_weights, shape = _pareto.smoothed(np.concatenate([np.full(20_000, -np.inf), inside]))
    assert shape == k
    np.testing.assert_allclose(log_weights, np.concatenate([np.full(20_000, -np.inf), some]), rtol=1e-12)


@pytest.mark.parametrize(("edge", "width"), [(2.0, np.inf), (2.3, np.inf), (0.5, 0.03), (-2.0, 0.3), (2.0, 0.3)])
def test_beside_a_hard_edge_moments_are_right(edge, width):
    """By quadrature. Most draws lie beyond the edge, fewer have a weight than a tail of all would hold."""
    y = (np.arange(20) % 5 == 0).astype(float)
    grid = np.linspace(-10.0, 10.0, 400_001)

    def moments(inside):
        level = y.sum() * grid - len(y) * np.log1p(np.exp(grid)) - 0.5 * np.square(grid / 2.5)
        mass = np.where(inside, np.exp(level - level.max()), 0.0)
        mass /= mass.sum()
        return grid @ mass, np.sqrt(np.square(grid - grid @ mass) @ mass)

    mean, sd = moments(True)
    low, high = mean + edge * sd, mean + (edge + width) * sd
    model = mcmc.GLM(np.ones((20, 1)), y, prior_sd=2.5,
                     log_prior=lambda theta: 0.0 if low < theta[0] < high else -np.inf)
    mean, sd = moments((low < grid) & (grid < high))
    found = [mcmc.laplace(model, n_draws=20_000, rng=seed) for seed in range(8)]
    assert all(answer.verdict.startswith("no chain is needed") for answer in found)
    n = sum(answer.ess for answer in found)
    assert abs(np.mean([answer.mean for answer in found]) - mean) < 4.0 * sd / np.sqrt(n)
    assert abs(np.mean([answer.sd for answer in found]) / sd - 1.0) < 4.0 * np.sqrt(2.0 / n)     # a long tail at most
