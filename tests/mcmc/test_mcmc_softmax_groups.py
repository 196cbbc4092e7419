"""Effects of groups on the classes of a multinomial regression."""

import pickle
import warnings

import numpy as np
import pytest
from scipy import sparse, special, stats

from fastrace import mcmc
from tests.chains import Sabotaged, by_turns, departure
from tests.guarantee import assert_centred, assert_mean, assert_uniform, few_or_many

SEED = 20261128


def classes_of(eta, rng):
    return (eta + rng.gumbel(size=eta.shape)).argmax(axis=1)


def data(n_rows=300, n_groups=6, seed=SEED):
    """Three classes, an intercept and a slope."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n_rows), rng.normal(size=n_rows)])
    codes = rng.integers(n_groups, size=n_rows)
    eta = np.zeros((n_rows, 3))
    eta[:, 1:] = X @ [[0.3, -0.2], [1.0, -0.5]] + 0.8 * rng.normal(size=(n_groups, 2))[codes]
    return X, codes, classes_of(eta, rng)


def log_posterior(theta, X, codes, y, offset=0.0, times=1.0):
    """Of three classes, coefficients with sd 2 and half-normal scales of sd 1, on the scale on which chains move."""
    p = X.shape[1]
    table, effects, logs = theta[: 2 * p].reshape(2, p), theta[2 * p : -2].reshape(-1, 2), theta[-2:]
    eta = np.zeros((len(y), 3))
    eta[:, 1:] = X @ table.T + effects[codes]
    eta = eta + offset
    likelihood = times * (eta[np.arange(len(y)), y] - special.logsumexp(eta, axis=1))
    prior = stats.norm.logpdf(table, scale=2.0).sum() + stats.halfnorm.logpdf(np.exp(logs)).sum() + logs.sum()
    return np.sum(likelihood) + prior + stats.norm.logpdf(effects, scale=np.exp(logs)).sum()


PRIORS = {"prior": mcmc.Normal(0.0, 2.0), "group_prior": mcmc.HalfNormal(1.0)}


@pytest.mark.parametrize("table", [np.asarray, sparse.csr_array, np.float32])
def test_the_log_posterior_is_its_formula(table):
    X, codes, y = data()
    rng = np.random.default_rng(1)
    offset, times = rng.normal(size=(300, 3)), rng.integers(0, 3, 300)
    given = np.asarray(X, dtype=np.float32) if table is np.float32 else table(X)
    exact = np.asarray(given.toarray() if hasattr(given, "toarray") else given, dtype=np.float64)
    model = mcmc.Softmax(given, y, groups=codes, offset=offset, weights=times, shuffle=3, **PRIORS)
    points = 0.7 * rng.normal(size=(20, model.dim))
    ours = model.log_posteriors(points)
    theirs = np.array([log_posterior(point, exact, codes, y, offset, times) for point in points])
    np.testing.assert_allclose(ours - ours[0], theirs - theirs[0], rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize("prior", [None, "weak", mcmc.Normal(0.0, 2.0), {"x": mcmc.StudentT(3.0, 0.0, 1.0)},
                                   mcmc.Normal(0.0, mcmc.HalfNormal(1.0))])
def test_two_classes_are_a_logistic_regression_with_groups(prior):
    """The same parameters in the same order under the same priors; intercepts of columns away from 0 too."""
    X, codes, y = data()
    X[:, 1] += 5.0
    options = {"groups": {"g": codes}, "prior": prior, "names": ["one", "x"]}
    ours = mcmc.Softmax(X, y > 0, 2, **options)
    glm = mcmc.GLM(X, y > 0, **options, group_prior=mcmc.HalfNormal(2.5))
    assert ours.dim == glm.dim
    points = 0.7 * np.random.default_rng(1).normal(size=(20, glm.dim))
    levels = [model.log_posteriors(points) for model in (ours, glm)]
    np.testing.assert_allclose(*[level - level[0] for level in levels], rtol=1e-9, atol=1e-8)


def test_names_variables_and_what_is_printed_last():
    X, codes, y = data()
    words = np.array(["low", "mid", "top"])[codes // 2]
    model = mcmc.Softmax(X, y, groups={"g": codes, "level": words}, names=["one", "x"])
    assert model.dim == 2 * (2 + 6 + 3) + 4 and "6 groups of 'g', 3 groups of 'level'" in repr(model)
    assert model.names[:6] == ("one[1]", "x[1]", "one[2]", "x[2]", "1|g[0][1]", "1|g[0][2]")
    assert model.names[-5] == "1|level[top][2]"
    assert model.names[-4:] == ("sd(1|g)[1]", "sd(1|g)[2]", "sd(1|level)[1]", "sd(1|level)[2]")
    trace = mcmc.sample(model, n_draws=200, n_chains=2, n_tune=100, rng=1)
    found = trace.to_arrays()["posterior"]
    assert {name: values.shape[2:] for name, values in found.items()} == {
        "one": (2,), "x": (2,), "1|g": (6, 2), "1|g_sigma": (2,), "1|level": (3, 2), "1|level_sigma": (2,)}
    places = [model.names.index(f"1|level[mid][{k}]") for k in (1, 2)]
    np.testing.assert_array_equal(found["1|level"][..., 1, :], trace.draws[..., places])
    np.testing.assert_array_equal(found["1|g_sigma"], trace.draws[..., -4:-2])
    assert (trace.draws[..., -4:] > 0.0).all() and str(trace).index("sd(1|g)[1]") < str(trace).index("1|g[0][1]")
    unnamed = mcmc.Softmax(X, y, groups=codes)
    assert [v.name for v in unnamed._variables_of(unnamed.names)] == ["theta", "1|group", "1|group_sigma"]
    again = pickle.loads(pickle.dumps(model))
    assert again.names == model.names and again.factors[1].start == model.factors[1].start == 4 + 12


def test_chains_and_weighted_draws_agree():
    X, codes, y = data(600)
    model = mcmc.Softmax(X, y, groups=codes)
    trace = mcmc.sample(model, n_draws=3000, n_chains=2, rng=SEED)
    assert "SurrogateMetropolis" in trace.kernel["kernel"] and not trace.warnings
    answer = mcmc.laplace(model, 8000, rng=2)
    assert answer.pareto_k < 0.7
    error = np.hypot(trace.draws.std(axis=(0, 1)) / np.sqrt(trace.ess()), answer.sd / np.sqrt(answer.ess))
    assert (np.abs(trace.draws.mean(axis=(0, 1)) - answer.mean) < 6.0 * error).all()


def test_many_rows_are_read_by_few():
    X, codes, y = data(20_000)
    model = mcmc.Softmax(X, y, groups=codes, **PRIORS)
    kernel = mcmc.SurrogateMetropolis(model)
    trace = mcmc.sample(kernel, n_draws=1000, n_chains=2, rng=1)
    assert kernel.decision == "poisson" and trace.rows.mean() < 500.0 and not trace.warnings
    exact = mcmc.sample(mcmc.SurrogateMetropolis(model, decision="exact"), n_draws=1000, n_chains=1, rng=2)
    error = np.hypot(*[t.draws.std(axis=(0, 1)) / np.sqrt(t.ess()) for t in (trace, exact)])
    assert (np.abs(trace.draws.mean(axis=(0, 1)) - exact.draws.mean(axis=(0, 1))) < 6.0 * error).all()


@pytest.mark.parametrize(("fits", "draws", "cells"), [
    pytest.param(40, 19, 5, id="small"), pytest.param(1000, 99, 20, id="full", marks=pytest.mark.long)])
@pytest.mark.parametrize("decision", ["exact", "poisson"])
def test_simulation_based_calibration(decision, fits, draws, cells):
    """Ranks of parameters drawn from the prior among draws of their posterior are uniform."""
    rng, ranks, thin = np.random.default_rng(SEED), [], 20
    X, codes = rng.standard_normal((60, 1)), np.arange(60) % 4
    for _ in range(fits):
        sds = np.abs(rng.standard_normal(2))
        slopes, effects = rng.standard_normal(2), sds * rng.standard_normal((4, 2))
        theta = np.concatenate([slopes, effects.ravel(), sds])
        eta = np.zeros((60, 3))
        eta[:, 1:] = X * slopes + effects[codes]
        model = mcmc.Softmax(X, classes_of(eta, rng), 3, groups=codes, prior=mcmc.Normal(0.0, 1.0),
                             group_prior={"group": mcmc.HalfNormal(1.0)})
        kernel = mcmc.SurrogateMetropolis(model, decision=decision)
        _, steps = kernel.run(rng, kernel.init(theta), draws * thin)
        ranks.append((steps.draws[thin - 1 :: thin] < theta).sum(axis=0))
    assert_uniform(np.array(ranks), draws, cells)


class Drawn:
    """Two slopes and effects of four groups on three classes, with half-normal scales, drawn from their prior."""

    def __init__(self, rng):
        self.X, self.codes, sds = rng.standard_normal((60, 1)), np.arange(60) % 4, np.abs(rng.standard_normal(2))
        self.theta = np.concatenate([rng.standard_normal(2), (sds * rng.standard_normal((4, 2))).ravel(), sds])

    def eta(self, points):
        """Of shape (n_points, 60, 3)."""
        eta = np.zeros((len(points), 60, 3))
        eta[..., 1:] = self.X * points[:, None, :2] + points[:, 2:10].reshape(-1, 4, 2)[:, self.codes]
        return eta

    def outcomes(self, theta, rng):
        return classes_of(self.eta(theta[None])[0], rng)

    def log_likelihoods(self, points, y):
        return special.log_softmax(self.eta(points), axis=2)[:, np.arange(60), y].sum(axis=1)

    def kernel(self, y, decision):
        model = mcmc.Softmax(self.X, y, 3, groups=self.codes, prior=mcmc.Normal(0.0, 1.0),
                             group_prior={"group": mcmc.HalfNormal(1.0)})
        return mcmc.SurrogateMetropolis(model, decision=decision)

    def shares(self, theta):
        """Functions in [0, 1]: slopes and scales as uniform shares, how large slopes are, and effects of a class."""
        sds = theta[10:]
        slopes, effects = stats.norm.cdf(theta[:2]), stats.norm.cdf(theta[2:10].reshape(4, 2) / sds)
        return [*slopes, np.abs(2.0 * slopes - 1.0).mean(), *np.abs(2.0 * effects - 1.0).mean(axis=0),
                *(2.0 * stats.norm.cdf(sds) - 1.0)]


def departures(decision, fits, rng, made=lambda kernel, pilot: kernel):
    """Of `made`, a kernel made of the right one and of draws of it."""
    rows = []
    for _ in range(fits):
        case = Drawn(rng)
        y = case.outcomes(case.theta, rng)
        kernel = case.kernel(y, decision)
        pilot = kernel.run(rng, kernel.init(rng=rng), 80)[1].draws[20:]
        rows.append(departure(made(kernel, pilot), case.theta, pilot,
                              lambda points, case=case, y=y: case.log_likelihoods(points, y), 60, rng))
    return rows


@few_or_many("fits", 60, 600)
@pytest.mark.parametrize("decision", ["exact", "poisson"])
def test_draws_of_the_posterior_are_followed_by_others(decision, fits):
    assert_centred(departures(decision, fits, np.random.default_rng(SEED)))


@pytest.mark.parametrize(("fits", "shift", "spread"), [
    (60, 1.0, 1.0), (60, 0.0, 2.0), *(pytest.param(150, *wrong, marks=pytest.mark.long) for wrong in (
        (0.5, 1.0), (0.0, 1.3), (0.0, 0.5)))])
def test_draws_that_are_wrong_are_told(fits, shift, spread):
    def made(kernel, pilot):
        seen = np.arange(12) < 10           # not standard deviations, which stay above 0
        return Sabotaged(kernel, pilot.mean(axis=0), pilot.std(axis=0), shift * seen, np.where(seen, spread, 1.0))

    with pytest.raises(AssertionError, match="together p"):
        assert_centred(departures("exact", fits, np.random.default_rng(2), made))


def joint_departures(decision, fits, rng, made=lambda kernel: kernel):
    """What `by_turns` says of fits, by a kernel made of the right one."""
    rows = []
    for _ in range(fits):
        case = Drawn(rng)
        rows.append(by_turns(
            case.theta, lambda theta, case=case: case.outcomes(theta, rng),
            lambda y, case=case: made(case.kernel(y, decision)), case.shares,
            lambda theta, y, case=case: np.exp(case.log_likelihoods(theta[None], y)[0] / 60), 3, 4, rng))
    return rows


@few_or_many("fits", 25, 400)
@pytest.mark.parametrize("decision", ["exact", "poisson"])
def test_geweke_joint_distribution(decision, fits):
    """Outcomes and parameters drawn in turn keep the prior of parameters, and how well they fit the outcomes."""
    assert_centred(joint_departures(decision, fits, np.random.default_rng(SEED)))


@pytest.mark.long
def test_the_joint_test_tells_slopes_and_effects_that_are_too_large(fits=40):
    def made(kernel):
        return Sabotaged(kernel, np.zeros(12), np.zeros(12), spread=np.where(np.arange(12) < 10, 1.5, 1.0))

    with pytest.raises(AssertionError, match="together p"):
        assert_centred(joint_departures("exact", fits, np.random.default_rng(SEED), made))


@pytest.mark.long
def test_nuts_on_all_rows_has_the_same_posterior():
    draws, numpyro = 4000, pytest.importorskip("numpyro")
    import jax
    import jax.numpy as jnp
    import numpyro.distributions as dist

    X, codes, y = data(200, 5)

    def written():
        b = numpyro.sample("b", dist.Normal(0.0, 2.0).expand([2, 2]).to_event(2))
        sd = numpyro.sample("sd", dist.HalfNormal(1.0).expand([2]).to_event(1))
        z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([2, 5]).to_event(2))
        effects = numpyro.deterministic("effects", z * sd[:, None])
        eta = jnp.asarray(X) @ b.T + effects.T[codes]
        numpyro.sample("y", dist.Categorical(logits=jnp.column_stack([jnp.zeros(200), eta])), obs=jnp.asarray(y))

    nuts = numpyro.infer.MCMC(numpyro.infer.NUTS(written, target_accept_prob=0.95), num_warmup=500, num_samples=draws,
                              progress_bar=False)
    nuts.run(jax.random.key(0))
    found = {name: np.asarray(values, dtype=np.float64) for name, values in nuts.get_samples().items()}
    effects = found["effects"].transpose(0, 2, 1)
    theirs = np.concatenate([found["b"].reshape(draws, -1), effects.reshape(draws, -1), found["sd"]], axis=1)
    trace = mcmc.sample(mcmc.Softmax(X, y, groups=codes, **PRIORS), n_draws=4 * draws, n_chains=2, rng=1)
    ours = trace.draws.mean(axis=(0, 1))
    for j, column in enumerate(theirs.T):           # the error of ours is small beside theirs, and counted too
        shift = trace.draws[..., j].std() / np.sqrt(trace.ess()[j]) / (column.std() / np.sqrt(draws))
        assert_mean((column - ours[j]) / np.hypot(1.0, shift), 0.0, 1e-6 / len(ours))


@pytest.mark.parametrize(("options", "words"), [
    ({"groups": mcmc.Groups(np.arange(300) % 5, [1], correlated=False),
      "group_prior": {"correlation": mcmc.LKJ(1.0)}}, "has a 'correlation', and its groups were given with correlated"),
    ({"groups": {"g": np.arange(300), "h": mcmc.Groups(np.arange(300) % 150, [1], correlated=False)}},
     "300 of 'g', 150 of 'h' with 2 effects each.*make 604 .* beside the factor.* at most 500.*GLM.X, y, groups"),
    ({"groups": np.arange(300), "prior_sd": np.ones(604)}, "300 of 'group'.*make 604.* prior_sd or log_prior fixes.*"
                                                           "at most 500.* Leave prior_sd out"),
    ({"groups": np.arange(300) % 5, "group_prior": {"group": {"x1": mcmc.HalfNormal(1.0)}}}, "names 'x1'; its effects"),
    ({"groups": np.arange(299)}, "have 299 rows; 300, as many as X, are needed"),
    ({"group_prior": mcmc.HalfNormal(1.0)}, "the model has no groups"),
    ({"groups": np.arange(300) % 5, "group_prior": {"h": mcmc.HalfNormal(1.0)}}, "names 'h'; the factors are 'group'"),
    ({"groups": np.arange(300) % 5, "group_prior": mcmc.Normal(0.0, 1.0)}, "a prior of a scale such as HalfNormal"),
    ({"groups": np.arange(300) % 5, "prior": mcmc.Normal(0.0, 1.0), "prior_sd": 1.0}, "say all in one way"),
    ({"groups": np.arange(300) % 5, "prior_sd": [1.0] + [np.inf] * 13}, "have a flat prior"),
    ({"groups": np.arange(300) % 5, "log_prior": lambda theta: 0.0}, "have a flat prior"),
])
def test_what_cannot_be_is_refused_with_what_to_do(options, words):
    X, _, y = data()
    with pytest.raises((ValueError, TypeError), match=words):
        mcmc.Softmax(X, y, **options)


def test_fixed_standard_deviations_need_no_hyperparameters():
    X, codes, y = data()
    model = mcmc.Softmax(X, y, groups=codes, prior_sd=np.ones(16))
    assert model.dim == 16 and model.joint_prior is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mcmc.sample(mcmc.PoissonMinibatchMetropolis(model), n_draws=200, n_chains=2, rng=1)


def columns_of(X):
    return {"one": X[:, 0], "x": X[:, 1]}


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_slopes_vary_as_those_of_a_logistic_regression_with_groups(own, intercept):
    """Two classes: the same parameters, names, priors and predictions; slopes on columns of X, or of their own."""
    X, codes, y = data()
    X[:, 1] = 3.0 * X[:, 1] + 5.0
    table = np.random.default_rng(2).normal(size=(300, 2))
    groups = {"g": mcmc.Groups(codes, table if own else ["x"], intercept, correlated=False)}
    options = {"groups": groups, "prior": mcmc.Normal(0.0, 2.0)}
    ours = mcmc.Softmax(columns_of(X), y > 0, 2, **options)
    glm = mcmc.GLM(columns_of(X), y > 0, **options)
    assert [name.removesuffix("[1]") for name in ours.names] == list(glm.names)
    points = 0.7 * np.random.default_rng(1).normal(size=(20, glm.dim))
    levels = [model.log_posteriors(points) for model in (ours, glm)]
    np.testing.assert_allclose(*[level - level[0] for level in levels], rtol=1e-9, atol=1e-8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trace = mcmc.sample(mcmc.SurrogateMetropolis(ours, decision="exact"), n_draws=50, n_chains=1, rng=1)
    new = {"g": mcmc.Groups(codes[:9], table[:9]) if own else codes[:9]}
    across = np.column_stack([np.ones((9, int(intercept))), table[:9] if own else X[:9, 1:]])
    effects = trace.draws[0, :, 2 : ours.n_seen].reshape(50, 6, -1)[:, codes[:9]]
    eta = trace.draws[0, :, :2] @ X[:9].T + (effects * across).sum(axis=2)
    means = ours.predict(trace, columns_of(X[:9]), groups=new)
    np.testing.assert_allclose(means[..., 1], special.expit(eta), rtol=1e-9)


def test_slopes_of_three_classes_have_their_formula_names_and_variables():
    X, codes, y = data()
    groups = {"g": mcmc.Groups(codes, ["x"], correlated=False), "h": codes % 2}
    priors = {"g": {"1": mcmc.HalfNormal(1.0), "x": mcmc.Exponential(2.0)}, "h": mcmc.HalfNormal(0.5)}
    model = mcmc.Softmax(columns_of(X), y, groups=groups, prior=mcmc.Normal(0.0, 2.0), group_prior=priors)
    assert model.dim == 2 * (2 + 12 + 2) + 6
    assert model.names[4:8] == ("1|g[0][1]", "1|g[0][2]", "x|g[0][1]", "x|g[0][2]")
    assert model.names[-6:] == ("sd(1|g)[1]", "sd(1|g)[2]", "sd(x|g)[1]", "sd(x|g)[2]", "sd(1|h)[1]", "sd(1|h)[2]")

    def formula(theta):
        table, logs = theta[:4].reshape(2, 2), theta[-6:].reshape(3, 2)
        eta, sd = np.zeros((300, 3)), np.exp(logs)
        out = stats.norm.logpdf(table, scale=2.0).sum() + logs.sum()
        for k in range(2):
            b, h = theta[4:28].reshape(6, 2, 2)[..., k], theta[28:32].reshape(2, 2)[:, k]
            eta[:, k + 1] = X @ table[k] + (b[codes] * X).sum(axis=1) + h[codes % 2]
            out += stats.norm.logpdf(b, scale=sd[:2, k]).sum() + stats.norm.logpdf(h, scale=sd[2, k]).sum()
        out += stats.halfnorm.logpdf(sd[0]).sum() + stats.expon.logpdf(sd[1], scale=0.5).sum()
        out += stats.halfnorm.logpdf(sd[2], scale=0.5).sum()
        return out + (eta[np.arange(300), y] - special.logsumexp(eta, axis=1)).sum()

    points = 0.7 * np.random.default_rng(1).normal(size=(20, model.dim))
    ours, theirs = model.log_posteriors(points), np.array([formula(point) for point in points])
    np.testing.assert_allclose(ours - ours[0], theirs - theirs[0], rtol=1e-9, atol=1e-8)
    found = {v.name: v for v in model._variables_of(model.names)}
    assert list(found) == ["one", "x", "1|g", "x|g", "1|h", "1|g_sigma", "x|g_sigma", "1|h_sigma"]
    row = np.arange(model.dim, dtype=float)
    slopes = found["x|g"].of(row[None, None])[0, 0]
    assert [[model.names[int(j)] for j in group] for group in slopes] == [
        [f"x|g[{g}][{k}]" for k in (1, 2)] for g in range(6)]
    assert [model.names[int(j)] for j in found["x|g_sigma"].of(row[None, None])[0, 0]] == ["sd(x|g)[1]", "sd(x|g)[2]"]
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.log_posteriors(points), ours)
