"""Mixtures whose classes have scales, of their own or one: exact against quadrature and the twin, calibrated."""

import itertools
import math
import time
from dataclasses import replace

import numpy as np
import pytest
from scipy import special, stats

from chains import Sabotaged, assert_runs_continue, by_turns
from ctrl_c import press
from fastrace import mcmc
from fastrace.mcmc.kernels import surrogate_gibbs
from guarantee import assert_centred, assert_mean, assert_uniform, few_or_many
from reference import mcmc as rows_twin
from reference import sources
from reference import surrogate_gibbs as twin

FAMILIES = ["gaussian", "student-t", "gamma", "negative-binomial"]
REAL = FAMILIES[:2]
DECISIONS = ["poisson", "exact"]
DF = 4.0
WORD = {"gaussian": "scale", "student-t": "scale", "gamma": "dispersion", "negative-binomial": "dispersion"}


def outcomes(family, eta, scale, rng):
    if family == "gamma":
        return rng.gamma(1.0 / scale, scale * np.exp(eta)) + 1e-12
    if family == "negative-binomial":
        return rng.poisson(rng.gamma(1.0 / scale, scale * np.exp(eta))).astype(float)
    return eta + scale * (rng.standard_normal(len(eta)) if family == "gaussian" else rng.standard_t(DF, len(eta)))


def log_terms(family, X, y, theta, scale):
    """Terms of some rows, to a constant of each: log densities."""
    if family in REAL:
        return rows_twin.log_terms(family, X, y, theta, scale, DF)
    return np.array([sources.log_likelihood(family, eta, of, scale) + sources.left_out(family, of, scale)
                     for eta, of in zip(X @ theta, y, strict=True)])


def mixture(family="gaussian", sizes=(300,) * 6, dim=2, n_classes=2, spread=0.3, seed=0, scale_prior=None, **options):
    """Groups of these sizes whose classes go round, and the classes' coefficients and scales."""
    rng = np.random.default_rng(seed)
    theta = spread * rng.standard_normal((n_classes, dim))
    scale = np.exp(spread * rng.standard_normal(n_classes))
    label = np.arange(len(sizes)) % n_classes
    group = np.repeat(np.arange(len(sizes)), sizes)
    X = rng.standard_normal((len(group), dim))
    y = outcomes(family, np.einsum("ij,ij->i", X, theta[label[group]]), scale[label[group]], rng)
    model = mcmc.GLM(X, y, family, prior=mcmc.Normal(0.0, 1.0), scale_prior=scale_prior or mcmc.HalfStudentT(4.0, 1.0))
    return mcmc.MixtureOf(model, group, n_classes, **options), theta, scale


def totals(mix, theta, scale):
    """The log-likelihood of each group at each class."""
    source, first = mix.model._glm, mix.expansions.starts
    X, y = np.asarray(source.X)[mix._order], np.asarray(source.y)[mix._order]
    return np.array([[log_terms(source.family, X[a:b], y[a:b], t, s).sum() for t, s in zip(theta, scale, strict=True)]
                     for a, b in zip(first[:-1], first[1:], strict=True)])


@pytest.fixture(params=[0, 25], ids=["groups expanded", "groups read"])
def small_rows(request, monkeypatch):
    monkeypatch.setattr(surrogate_gibbs, "SMALL_GROUP", request.param)
    return request.param


# Expansions and bounds.


@pytest.mark.parametrize("family", FAMILIES)
def test_expansions_follow_the_groups_in_the_scale_too(family):
    mix, theta, scale = mixture(family, sizes=(2000, 1500, 3000))
    groups, rng = mix.expansions, np.random.default_rng(1)
    near = np.append(theta[0], math.log(scale[0])) + 0.002 * rng.standard_normal((4, 3))
    exact = totals(mix, near[:, :2], np.exp(near[:, 2]))
    change = groups.values_at(near) - groups.values_at(near[:1])
    np.testing.assert_allclose(change[0], exact[0] - exact[0, 0], atol=0.02)
    hats = np.asarray(groups.hats)
    own = np.diag(totals(mix, hats[:, :2], np.exp(hats[:, 2])))
    assert np.ptp(groups.values_at_hats() - own) < 1e-6 * np.abs(own).max() or family not in REAL
    whole = np.diag(groups.values_at(hats))
    np.testing.assert_allclose(whole, groups.values_at_hats())


@pytest.mark.parametrize("family", FAMILIES)
def test_changes_of_rows_stay_within_their_bounds(family):
    """Moves to all sides, of the scale alone and of coefficients alone too, up to the radius."""
    mix, _, _ = mixture(family, sizes=(30, 400), seed=2)
    groups, rng = mix.expansions, np.random.default_rng(3)
    glm = mix.rows_by_group()._glm
    source, at = mix.rows_by_group()._arms(2)
    worst = 0.0
    for g in np.flatnonzero(np.asarray(groups.radii) > 0.0):
        rows = np.arange(groups.starts[g], groups.starts[g + 1])
        root = np.linalg.cholesky(groups.metrics[g]).T
        hat, x = groups.hats[g], np.asarray(glm.X[rows])
        slope, bend = glm.derivatives(hat, rows[0], len(rows))[1:]
        of_scale, mixed, twice = glm.mixed_derivatives(hat, rows[0], len(rows))
        for _ in range(300):
            ends = rng.standard_normal((2, 3)) * rng.choice([1.0, 1.0, 1e-9], size=3)
            ends *= (groups.radii[g] * rng.random(2) / np.linalg.norm(ends, axis=1))[:, None]
            at[:] = hat + np.linalg.solve(root, ends.T).T
            step = at - hat
            a, t = x @ step[:, :2].T, step[:, 2]
            left = source.read(rows) - (slope[:, None] * a + of_scale[:, None] * t + 0.5 * (
                bend[:, None] * a**2 + 2.0 * mixed[:, None] * a * t + twice[:, None] * t**2))
            change, bound = np.abs(left[:, 1] - left[:, 0]), groups.weights[rows] * rows_twin.size_of_move(*ends)
            assert (change <= bound * (1.0 + 1e-9) + 1e-9 * np.abs(left).max()).all()
            worst = max(worst, float((change / bound).max()))
    assert worst > 0.01    # they are bounds on this, and not on anything


# Against the twin.


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("hierarchical", "noise"), [(False, 1.0), (True, 0.6)])
@pytest.mark.parametrize("decision", DECISIONS)
@pytest.mark.parametrize("family", REAL)
def test_sweeps_are_those_of_the_twin(family, decision, hierarchical, noise, shared, small_rows, monkeypatch):
    monkeypatch.setattr(surrogate_gibbs, "ALL_ROWS_FROM", 0.07)    # the twin draws Poisson numbers below 10
    mix, _, _ = mixture(family, sizes=(30, 133, 1, 125, 12, 90), spread=0.15, n_classes=3, hierarchical=hierarchical,
                        sd_scale=0.5, shared_scale=shared)
    kernel = mcmc.SurrogateGibbs(mix, decision)
    state = replace(kernel.init(rng=2), noise=np.full(3 + shared, noise))
    found = kernel._split(state.position)
    scale = np.broadcast_to(found["scale"], 3)
    _, steps = kernel.run(np.random.default_rng(3), state, 60)
    e, X, y = mix.expansions, mix.model._glm.X, mix.model._glm.y
    groups = [twin.ScaledGroup(X[a:b], y[a:b], e.hats[g], e.metrics[g], e.weights[a:b], e.radii[g],
                               None if family == "gaussian" else DF)
              for g, (a, b) in enumerate(zip(e.starts[:-1], e.starts[1:], strict=True))]
    draws, read = twin.sweeps(
        groups, found["label"].astype(int).tolist(), np.column_stack([found["theta"], np.log(scale)]),
        found["weight"], found.get("mean", np.zeros(2)), found.get("sd", np.ones(2)), np.random.default_rng(3), 60,
        most=0.07 if decision == "poisson" else 0.0, concentration=1.0, prior=(np.zeros(2), np.ones(2)),
        sd_scale=0.5 if hierarchical else None, scale=twin.HalfStudentScale(4.0, 1.0), small_rows=3 * small_rows,
        noise=noise, shared=shared)
    np.testing.assert_allclose(steps.draws, draws, rtol=1e-8, atol=1e-8)
    assert (steps.rows == read).all()
    assert len(np.unique(steps.draws[:, :6], axis=0)) > 3
    assert len(np.unique(steps.draws[:, kernel.names.index("weight[0]") - 1])) > 9     # the last scale
    whole = {sum(some) for n in range(8) for some in itertools.combinations_with_replacement([133, 125, 90, 43], n)}
    assert decision == "exact" or not set(read.tolist()) <= whole      # some groups were read in part


# The right law.


@pytest.mark.parametrize("decision", DECISIONS)
@pytest.mark.parametrize("family", FAMILIES)
def test_labels_have_their_exact_law(family, decision, small_rows):
    """Where groups are small the expansions alone are far off, which the same test sees."""
    sizes = (12, 40, 5, 1)
    given = np.array([[0.0, 0.0, 1.0], [0.6, -0.3, 1.3], [-0.3, 0.5, 0.8]])
    mix, _, _ = mixture(family, sizes, n_classes=3, parameters=given, weights=[0.5, 0.3, 0.2], spread=0.2)
    exact = special.softmax(np.log(mix.weights) + totals(mix, given[:, :2], given[:, 2]), axis=1)
    kernel = mcmc.SurrogateGibbs(mix, decision)
    assert kernel.names == tuple(f"label[{g}]" for g in range(4))
    _, steps = kernel.run(np.random.default_rng(5), kernel.init(rng=1), 40_000)
    labels = steps.draws[200:].astype(int)
    g, k = np.nonzero((exact > 0.01) & (exact < 0.99))
    assert_means((labels[:, g] == k).astype(float), exact[g, k])
    proposal = special.softmax(np.log(mix.weights) + mix.expansions.values_at(mix._points()), axis=1)
    assert np.abs(proposal - exact).sum(axis=1).max() > 0.02


def assert_means(values, expected):
    """Means of a chain's draws, which must be worth enough independent ones to tell."""
    assert min(mcmc.effective_sample_size(column) for column in values.T) > 50.0
    assert_mean(values, expected)


def one_dimensional(family, scale_prior, log_prior, n_classes=2, concentration=0.7, seed=3, shared=False):
    """Three groups with one slope, and the posterior of their labels by sums over all labels and a grid of classes.

    Also the mean of the logarithm of each class's scale, or that of the scale of all, given labels.
    """
    rng = np.random.default_rng(seed)
    sizes = (4, 7, 5)
    group = np.repeat(np.arange(3), sizes)
    X = rng.standard_normal((len(group), 1))
    y = outcomes(family, X[:, 0] * np.array([0.6, -0.2, 0.3])[group], np.array([0.8, 1.2, 1.0])[group], rng)
    model = mcmc.GLM(X, y, family, prior=mcmc.Normal(0.0, 1.5), scale_prior=scale_prior)
    mix = mcmc.MixtureOf(model, group, n_classes, concentration=concentration, shared_scale=shared)
    slope, t = np.linspace(-9.0, 9.0, 401), np.linspace(-5.5, 7.0, 401)
    of_slope = stats.norm.logpdf(slope, 0.0, 1.5)[:, None]
    prior = of_slope if shared else of_slope + log_prior(t)
    loss = np.zeros((3, len(slope), len(t)))
    for x, of, g in zip(X[:, 0], y, group, strict=True):
        u = (of - x * slope[:, None]) * np.exp(-t)
        loss[g] += -t + (-0.5 * u**2 if family == "gaussian" else -0.5 * (DF + 1.0) * np.log1p(u**2 / DF))
    law, scales = {}, {}
    for labels in itertools.product(range(n_classes), repeat=3):
        own = [prior + loss[[g for g in range(3) if labels[g] == k]].sum(axis=0) for k in range(n_classes)]
        counts = np.bincount(labels, minlength=n_classes)
        if shared:                              # slopes of the classes are independent given the scale
            own = [log_prior(t) + sum(special.logsumexp(part, axis=0) for part in own)]
        law[labels] = sum(special.logsumexp(part) for part in own) + special.gammaln(counts + concentration).sum()
        scales[labels] = [np.atleast_2d(special.softmax(part)).sum(axis=0) @ t for part in own]
    keys = list(law)
    return mix, keys, special.softmax([law[key] for key in keys]), np.array([scales[key] for key in keys])


def half_student(t, df=4.0, scale=1.5):
    return t - 0.5 * (df + 1.0) * np.log1p((np.exp(t) / scale) ** 2 / df)


PRIORS = {
    "half-student": (mcmc.HalfStudentT(4.0, 1.5), half_student),
    "half-normal": (mcmc.HalfNormal(2.0), lambda t: t - 0.5 * (np.exp(t) / 2.0) ** 2),
    "gamma": (mcmc.Gamma(3.0, 2.0), lambda t: 3.0 * t - 2.0 * np.exp(t)),
    "log-normal": (mcmc.LogNormal(0.3, 0.7), lambda t: -0.5 * ((t - 0.3) / 0.7) ** 2),
}


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("decision", DECISIONS)
@pytest.mark.parametrize(("family", "prior"), [("gaussian", "half-student"), ("gaussian", "gamma"),
                                               ("student-t", "half-normal"), ("student-t", "log-normal")])
def test_whole_mixture_has_its_exact_law(family, prior, decision, shared, small_rows):
    """Labels with coefficients, scales and weights integrated out, and the first class's scale; moves short or not."""
    mix, keys, share, scales = one_dimensional(family, *PRIORS[prior], shared=shared)
    kernel = mcmc.SurrogateGibbs(mix, decision)
    start = replace(kernel.init(rng=1), noise=np.full(2 + shared, 1.0 if decision == "exact" else 0.7))
    _, steps = kernel.run(np.random.default_rng(8), start, 60_000)
    code = steps.draws[100:, :3].astype(int) @ [4, 2, 1]
    assert keys[1] == (0, 0, 1) and 0.01 < share.min() < share.max() < 0.4
    logs = np.log(steps.draws[100:, kernel.names.index("scale" if shared else "scale[0]")])
    assert_means(np.column_stack([code[:, None] == np.arange(8), logs]), np.append(share, share @ scales[:, 0]))


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("noise", [1.0, 0.5])
@pytest.mark.parametrize("prior", PRIORS)
def test_one_class_of_a_gaussian_model_has_its_closed_form(prior, noise, shared, small_rows):
    """Given the scale the coefficients are normal; integrated out, the scale has a density on a line."""
    of_scale, log_prior = PRIORS[prior]
    mix, _, _ = mixture(sizes=(9, 5), n_classes=1, scale_prior=of_scale, shared_scale=shared)
    kernel = mcmc.SurrogateGibbs(mix)
    start = replace(kernel.init(rng=1), noise=np.full(1 + shared, noise))
    _, steps = kernel.run(np.random.default_rng(1), start, 60_000)
    X, y = np.asarray(mix.model._glm.X), np.asarray(mix.model._glm.y)
    t = np.linspace(-4.0, 4.0, 4001)
    density = log_prior(t)
    for i, at in enumerate(t):
        precision = np.eye(2) + X.T @ X * math.exp(-2.0 * at)
        b = X.T @ y * math.exp(-2.0 * at)
        density[i] += (-len(y) * at - 0.5 * (y @ y) * math.exp(-2.0 * at) + 0.5 * b @ np.linalg.solve(precision, b)
                       - 0.5 * np.linalg.slogdet(precision)[1])
    below = np.cumsum(special.softmax(density))
    kept = steps.draws[40::40]
    scale, theta = kept[:, 4], kept[:, 2:4]
    assert kernel.names[2:5] == ("theta[0, x0]", "theta[0, x1]", "scale" if shared else "scale[0]")
    assert stats.kstest(np.interp(np.log(scale), t, below), "uniform").pvalue > 1e-6
    precision = np.eye(2) + X.T @ X / scale[:, None, None] ** 2
    center = np.linalg.solve(precision, (X.T @ y / scale[:, None] ** 2)[:, :, None])[:, :, 0]
    z = np.einsum("nji,nj->ni", np.linalg.cholesky(precision), theta - center)
    for column in (*z.T, (z @ [1.0, 1.0]) / np.sqrt(2.0)):
        assert stats.kstest(column, "norm").pvalue > 1e-6


LAWS = {
    "half-student": (mcmc.HalfStudentT(4.0, 1.5), lambda s: 2.0 * stats.t.cdf(s / 1.5, 4.0) - 1.0),
    "half-cauchy": (mcmc.HalfCauchy(0.5), stats.halfcauchy(scale=0.5).cdf),
    "half-normal": (mcmc.HalfNormal(2.0), stats.halfnorm(scale=2.0).cdf),
    "exponential": (mcmc.Exponential(3.0), stats.expon(scale=1.0 / 3.0).cdf),
    "gamma": (mcmc.Gamma(3.0, 2.0), stats.gamma(3.0, scale=0.5).cdf),
    "log-normal": (mcmc.LogNormal(0.3, 0.7), stats.lognorm(0.7, scale=math.exp(0.3)).cdf),
}


@pytest.mark.parametrize("prior", LAWS)
def test_a_class_without_groups_has_the_prior_of_its_scale(prior):
    scale_prior, law = LAWS[prior]
    mix, _, _ = mixture(sizes=(10, 10), scale_prior=scale_prior, weights=[1.0, 0.0])
    kernel = mcmc.SurrogateGibbs(mix)
    state = kernel.init(rng=0)
    state.position[:2] = 0.0
    _, steps = kernel.run(np.random.default_rng(2), kernel.init(state.position), 4000)
    assert (steps.draws[:, :2] == 0.0).all()
    scale = steps.draws[:, kernel.names.index("scale[1]")]
    assert stats.kstest(scale, law).pvalue > 1e-6
    assert abs(np.corrcoef(scale[1:], scale[:-1])[0, 1]) < 0.1 or prior == "half-cauchy"


def test_a_number_as_prior_sd_is_the_prior_of_the_logarithm():
    rng = np.random.default_rng(0)
    X, group = rng.standard_normal((20, 1)), np.repeat([0, 1], 10)
    model = mcmc.GLM(X, rng.standard_normal(20), "gaussian", prior_sd=1.5)
    mix = mcmc.MixtureOf(model, group, 2, weights=[1.0, 0.0])
    kernel = mcmc.SurrogateGibbs(mix)
    start = kernel.init(rng=0).position
    start[:2] = 0.0
    _, steps = kernel.run(np.random.default_rng(2), kernel.init(start), 4000)
    assert stats.kstest(np.log(steps.draws[:, kernel.names.index("scale[1]")]) / 1.5, "norm").pvalue > 1e-6


def drawn_from_prior(rng, shared):
    """A draw of the mixture of four groups whose prior is that of `by_group`."""
    mean, sd = rng.standard_normal(1), np.abs(0.5 * rng.standard_cauchy(1))
    theta = mean + sd * rng.standard_normal(2)
    scale = np.abs(rng.standard_t(4.0, 2 - shared))
    weight = rng.dirichlet([1.0, 1.0])
    return np.concatenate([rng.choice(2, 4, p=weight), theta, scale, weight, mean, sd])


def of_rows(X, truth, shared):
    """Means and scales of the rows of four groups of 12."""
    label = truth[:4].astype(int)
    return X[:, 0] * np.repeat(truth[4:6][label], 12), np.repeat(truth[6:8][[0, 0 if shared else 1]][label], 12)


def by_group(X, y, family, shared):
    model = mcmc.GLM(X, y, family, prior=mcmc.Normal(0.0, 1.0), scale_prior=mcmc.HalfStudentT(4.0, 1.0))
    return mcmc.MixtureOf(model, np.repeat(np.arange(4), 12), 2, hierarchical=True, sd_scale=0.5, shared_scale=shared)


@few_or_many(("fits", "draws", "cells"), (25, 19, 5), (1500, 99, 20))
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("decision", DECISIONS)
def test_simulation_based_calibration(decision, fits, draws, cells, shared, small_rows):
    """Of what does not depend on names: a group's slope and scale, both scales' larger one, mean and spread."""
    rng = np.random.default_rng(21)
    ranks = []
    for i in range(fits):
        family, truth, X = REAL[i % 2], drawn_from_prior(rng, shared), rng.standard_normal((48, 1))
        y = outcomes(family, *of_rows(X, truth, shared), rng)
        kernel = mcmc.SurrogateGibbs(by_group(X, y, family, shared), decision)
        _, steps = kernel.run(rng, kernel.init(truth), draws * 20)
        found, own = (facts(np.insert(of, 7, of[:, 6], axis=1) if shared else of)
                      for of in (steps.draws[19::20], truth[None]))
        ranks.append([(found < own).sum(axis=0) + rng.integers(0, (found == own).sum(axis=0) + 1)])  # ties by chance
    assert_uniform(np.concatenate(ranks), draws, cells)


def facts(draws):
    of = draws[:, :1].astype(int)
    slope, scale = (np.take_along_axis(draws[:, a:b], of, 1)[:, 0] for a, b in ((4, 6), (6, 8)))
    same = (draws[:, 0] == draws[:, 1]) + 1e-3 * draws[:, 10]
    return np.stack([slope, scale, draws[:, 6:8].max(axis=1), same, draws[:, 10], draws[:, 11],
                     draws[:, 8:10].max(axis=1)], axis=1)


def joint_departures(decision, shared, fits, rng, monkeypatch, made=lambda kernel: kernel):
    """What `by_turns` says of fits, by a kernel made of the right one: by families, and groups expanded or read."""
    rows, last = [], 8 - shared             # where the weights begin
    for i in range(fits):
        monkeypatch.setattr(surrogate_gibbs, "SMALL_GROUP", 25 * (i // 2 % 2))
        family, X = REAL[i % 2], rng.standard_normal((48, 1))
        law = stats.norm if family == "gaussian" else stats.t(DF)

        def uniform(truth):
            mean, sd = truth[last + 2 :]
            return np.array([*stats.norm.cdf((truth[4:6] - mean) / sd), *(2.0 * stats.t.cdf(truth[6:last], 4.0) - 1.0),
                             truth[last], stats.norm.cdf(mean), stats.halfcauchy.cdf(sd, scale=0.5)])

        def fit(truth, y, X=X, law=law):
            eta, scale = of_rows(X, truth, shared)
            return np.abs(2.0 * law.cdf((y - eta) / scale) - 1.0).mean()

        rows.append(by_turns(
            drawn_from_prior(rng, shared),
            lambda truth, X=X, family=family: outcomes(family, *of_rows(X, truth, shared), rng),
            lambda y, X=X, family=family: made(mcmc.SurrogateGibbs(by_group(X, y, family, shared), decision)),
            uniform, fit, 3, 3, rng))
    return rows


@few_or_many("fits", 60, 4000)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("decision", DECISIONS)
def test_geweke_joint_distribution(decision, shared, fits, monkeypatch):
    assert_centred(joint_departures(decision, shared, fits, np.random.default_rng(22), monkeypatch))


@pytest.mark.parametrize(("shared", "times"), [(False, 1.2), (True, 1.0 / 1.2)])
def test_the_joint_test_tells_scales_that_are_wrong(shared, times, monkeypatch):
    spread = np.ones(12 - shared)
    spread[6 : 8 - shared] = times

    def made(kernel):
        return Sabotaged(kernel, np.zeros(len(spread)), np.zeros(len(spread)), spread=spread)

    with pytest.raises(AssertionError, match="together p"):
        assert_centred(joint_departures("poisson", shared, 60, np.random.default_rng(23), monkeypatch, made))


# Chains.


def test_checkpoints_threads_and_pickles_continue_bit_for_bit(tmp_path):
    mix, _, _ = mixture("student-t", sizes=(80, 30, 80, 5, 80), hierarchical=True)
    kernel = mcmc.SurrogateGibbs(mix, order_by="scale")
    other = mixture("student-t", sizes=(80, 30, 80, 5, 80), hierarchical=True, scale_prior=mcmc.HalfNormal(1.0))[0]
    assert_runs_continue(kernel, mcmc.SurrogateGibbs(other, order_by="scale"), tmp_path / "run")
    shared, of_another = (mixture("student-t", sizes=(80, 30, 80, 5, 80), shared_scale=True, scale_prior=prior)[0]
                          for prior in (None, mcmc.HalfNormal(1.0)))
    assert_runs_continue(mcmc.SurrogateGibbs(shared), mcmc.SurrogateGibbs(of_another), tmp_path / "shared")


@pytest.mark.parametrize("shared", [False, True])
def test_steps_one_by_one_are_those_of_a_run(shared):
    """The logarithm of a scale goes on from the scale that is recorded."""
    kernel = mcmc.SurrogateGibbs(mixture(sizes=(50, 8, 100), shared_scale=shared)[0])
    state, rng = kernel.init(rng=0), np.random.default_rng(4)
    _, steps = kernel.run(np.random.default_rng(4), state, 50)
    for draw in steps.draws:
        state, _ = kernel.step(rng, state)
        assert (state.position == draw).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_shared_scale_is_one_number_in_traces_and_starts(family):
    """Families whose scale is correlated with the coefficients of small groups too; chains start apart and agree."""
    word, rng = WORD[family], np.random.default_rng(6)
    group, X = np.repeat(np.arange(20), [400, 30] * 10), rng.standard_normal((4300, 2))
    eta = (X * np.array([[0.8, -0.4], [-0.5, 0.6]])[group % 2]).sum(axis=1)
    model = mcmc.GLM(X, outcomes(family, eta, np.full(4300, 0.7), rng), family, prior=mcmc.Normal(0.0, 1.0))
    mix = mcmc.MixtureOf(model, group, 2, shared_scale=True)
    kernel = mcmc.SurrogateGibbs(mix, order_by=0)
    trace = mcmc.sample(kernel, n_draws=500, n_chains=2, rng=1, n_tune=200)
    found = trace.to_arrays()["posterior"]
    assert found[word].shape == (2, 500) and word in trace.names and f"{word}[0]" not in trace.names
    assert not trace.warnings and kernel.acceptance(trace)["parameters"] > 0.5
    np.testing.assert_allclose(found[word].mean(), 0.7, rtol=0.1)
    np.testing.assert_array_equal(mix.nameless(trace)[word], found[word])
    assert f"mean over groups of {word}" not in mix.nameless(trace)
    starts = [kernel._split(kernel.dispersed(np.random.default_rng(k)))[word] for k in range(2)]
    assert starts[0] != starts[1] and np.shape(starts[0]) == ()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_trace_names_its_variables_and_finds_the_scales(family):
    word, k = WORD[family], 2
    rng = np.random.default_rng(5)
    group, X = np.repeat(np.arange(8), 1000), rng.standard_normal((8000, 2))
    scale = np.array([0.4, 1.2])[np.arange(8) % 2]
    eta = X @ [0.5, -0.3]
    y = np.concatenate([outcomes(family, eta[group == g], scale[g], rng) for g in range(8)])
    model = mcmc.GLM(X, y, family, prior=mcmc.Normal(0.0, 1.0), names=["a", "b"])
    mix = mcmc.MixtureOf(model, group, k, hierarchical=True)
    trace = mcmc.sample(mcmc.SurrogateGibbs(mix, order_by=word), n_draws=1000, n_chains=2, rng=1, n_tune=200)
    found = trace.to_arrays()["posterior"]
    assert {name: array.shape[2:] for name, array in found.items()} == {
        "label": (8,), "theta": (2, 2), word: (2,), "weight": (2,), "mean": (2,), "sd": (2,)}
    assert (np.diff(found[word], axis=2) > 0.0).all()
    assert (found["label"] == np.arange(8) % 2).all()
    np.testing.assert_allclose(found[word].mean(axis=(0, 1)), [0.4, 1.2], rtol=0.1)
    np.testing.assert_allclose(found["theta"].mean(axis=(0, 1)), [[0.5, -0.3]] * 2, atol=0.08)
    assert trace.names[8:16] == ("theta[0, a]", "theta[0, b]", "theta[1, a]", "theta[1, b]", f"{word}[0]",
                                 f"{word}[1]", "weight[0]", "weight[1]")
    assert "mean[a]" in trace.names and f"mean[log({word})]" not in trace.names
    assert trace.rows.mean() < 0.5 * 8000
    judged = mix.nameless(trace)
    np.testing.assert_allclose(judged[f"mean over groups of {word}"], found[word].mean(axis=2))
    np.testing.assert_allclose(judged["mean over groups of theta[b]"], found["theta"][..., 1].mean(axis=2))


def test_arviz_has_the_scales_of_classes():
    pytest.importorskip("arviz")
    trace = mcmc.sample(mixture(sizes=(60,) * 4)[0], n_draws=20, n_chains=2, rng=1, n_tune=20)
    posterior = trace.to_arviz()["posterior"]
    assert posterior["scale"].dims == ("chain", "draw", "class") and posterior["scale"].shape == (2, 20, 2)
    assert posterior["theta"].dims == ("chain", "draw", "class", "coefficient")
    np.testing.assert_array_equal(posterior["scale"], trace.to_arrays()["posterior"]["scale"])


def test_offsets_and_weights_of_rows_count():
    rng = np.random.default_rng(3)
    group, times = np.repeat(np.arange(3), 40), rng.integers(0, 4, 120)
    X, offset = rng.standard_normal((120, 2)), rng.standard_normal(120)
    y = X @ [0.3, -0.2] + offset + 0.8 * rng.standard_normal(120)
    given = np.array([[0.3, -0.2, 0.8], [-0.4, 0.1, 1.3]])
    order, rows = rng.permutation(120), np.repeat(np.arange(120), times)
    short = mcmc.GLM(X[order], y[order], "student-t", offset=offset[order], weights=times[order])
    short = mcmc.MixtureOf(short, group[order], 2, parameters=given)
    long = mcmc.GLM(np.column_stack([X, offset])[rows], y[rows], "student-t")
    long = mcmc.MixtureOf(long, group[rows], 2, parameters=np.insert(given, 2, 1.0, axis=1))
    exact = totals(long, np.insert(given[:, :2], 2, 1.0, axis=1), given[:, 2])
    source, at = short.rows_by_group()._arms(2)
    at[:] = short._points()
    sums = np.add.reduceat(source.read(np.arange(120)), short.expansions.starts[:-1], axis=0)
    np.testing.assert_allclose(np.diff(sums), np.diff(exact))
    for g, hat in enumerate(short.expansions.hats):
        near = hat + [[0.0, 0.0, 0.0], [0.02, -0.02, 0.02], [0.0, 0.0, 0.05]]
        exact = totals(long, np.insert(near[:, :2], 2, 1.0, axis=1), np.exp(near[:, 2]))[g]
        np.testing.assert_allclose(np.diff(short.expansions.values_at(near)[g]), np.diff(exact), atol=0.02)


def test_rows_are_read_as_they_lie():
    """Single precision, columns apart, rows in another order, of small groups and large; a row of weight 2 is two."""
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(8), [20, 150, 12, 90, 5, 33, 60, 120])
    X, times = rng.standard_normal((490, 2)).astype(np.float32).astype(float), rng.integers(1, 3, 490)
    y, order, twice = X @ [1.0, -0.5] + rng.standard_t(DF, 490), rng.permutation(490), np.repeat(np.arange(490), times)
    apart = np.zeros((490, 5))
    apart[:, 1::2] = X

    def draws(X, y, group, **options):
        model = mcmc.GLM(X, y, "student-t", prior=mcmc.Normal(0.0, 2.0), **options)
        kernel = mcmc.SurrogateGibbs(mcmc.MixtureOf(model, group, 2))
        return kernel.run(np.random.default_rng(2), kernel.init(rng=1), 20)[1].draws

    plain = draws(X, y, group)
    for table in (X.astype(np.float32), np.asfortranarray(X), apart[:, 1::2]):
        np.testing.assert_allclose(draws(table, y, group), plain, rtol=1e-9)
    steady = np.argsort(group[order], kind="stable")
    inside = order[steady]
    np.testing.assert_allclose(draws(X[order], y[order], group[order]), draws(X[inside], y[inside], group), rtol=1e-9)
    few = np.isin(group, [0, 2, 4, 5])      # which are small, also with each row twice
    twice = twice[few[twice]]
    np.testing.assert_allclose(draws(X[few], y[few], group[few], weights=times[few]),
                               draws(X[twice], y[twice], group[twice]), rtol=1e-9)


@pytest.mark.filterwarnings("ignore:R-hat:UserWarning", "ignore:the effective:UserWarning", "ignore:chain:UserWarning")
@pytest.mark.parametrize("family", FAMILIES)
def test_groups_of_one_row_and_groups_that_are_fitted_exactly(family):
    rng = np.random.default_rng(4)
    group = np.repeat(np.arange(7), [1, 1, 30, 3, 2, 5, 200])
    X = rng.standard_normal((len(group), 3))
    y = outcomes(family, X @ [0.5, 0.0, -0.5], np.ones(len(group)), rng)
    if family in REAL:
        y[group == 2] = X[group == 2] @ [1.0, 2.0, 3.0]
        y[group == 5] = 0.0
    X[group == 5, 2] = 0.0
    model = mcmc.GLM(X, y, family, prior=mcmc.Normal(0.0, 2.0))
    mix = mcmc.MixtureOf(model, group, 5, hierarchical=True)
    trace = mcmc.sample(mcmc.SurrogateGibbs(mix), n_draws=100, n_chains=1, rng=1, n_tune=50)
    assert np.isfinite(trace.draws).all()
    assert (trace.to_arrays()["posterior"][WORD[family]] > 0.0).all()


def test_vast_priors_of_a_scale_stay_within_what_doubles_hold():
    for options in ({"prior_sd": 500.0}, {"prior": mcmc.Normal(0.0, 1.0), "scale_prior": mcmc.LogNormal(0.0, 500.0)}):
        model = mcmc.GLM(np.ones((30, 1)), np.arange(30.0), "gaussian", **options)
        kernel = mcmc.SurrogateGibbs(mcmc.MixtureOf(model, np.arange(30) % 3, 3))
        _, steps = kernel.run(np.random.default_rng(0), kernel.init(rng=0), 2000)
        scale = steps.draws[:, [kernel.names.index(f"scale[{k}]") for k in range(3)]]
        assert np.isfinite(steps.draws).all() and (scale > 0.0).all() and scale.max() > 1e50


def test_what_cannot_be_had_is_refused():
    rng = np.random.default_rng(0)
    X, y, group = rng.standard_normal((60, 2)), rng.standard_normal(60), np.repeat(np.arange(3), 20)
    mix, _, _ = mixture()
    one = np.column_stack([np.ones(60), X[:, 0] + 5.0])
    cases = [
        ("prior of its own", lambda: mcmc.MixtureOf(mcmc.GLM(one, y, "gaussian"), group, 2)),
        ("not normal", lambda: mcmc.MixtureOf(mcmc.GLM(X, y, "gaussian", prior=mcmc.Laplace(0.0, 1.0)), group, 2)),
        ("not normal", lambda: mcmc.MixtureOf(mcmc.GLM(X, y, "gaussian", prior=[
            mcmc.Normal(0.0, 1.0), mcmc.LogDensity(lambda theta: 0.0)]), group, 2)),
        ("learns scales of its own", lambda: mcmc.MixtureOf(mcmc.GLM(X, y, "gaussian", prior=mcmc.Horseshoe(1.0)),
                                                            group, 2)),
        ("prior_sd of the model is infinite for parameters", lambda: mcmc.MixtureOf(
            mcmc.GLM(X, y, "gaussian", prior_sd=[np.inf] * 3), group, 2)),
        ("scale is highest at", lambda: mcmc.MixtureOf(mcmc.GLM(X, y, "gaussian", prior=mcmc.Normal(0.0, 1.0),
                                                                scale_prior=mcmc.LogNormal(2000.0, 1.0)), group, 2)),
        (r"shape \(2, 3\), one row a class, the last column the scale", lambda: mcmc.MixtureOf(
            mix.model, np.repeat(np.arange(6), 300), 2, parameters=np.ones((2, 2)))),
        ("which is positive", lambda: mcmc.MixtureOf(mix.model, np.repeat(np.arange(6), 300), 2,
                                                     parameters=[[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])),
        ("order_by is 2; classes have coefficients 0 to 1", lambda: mcmc.SurrogateGibbs(mix, order_by=2)),
        (r"order_by is 'log\(scale\)'; .*'x1', 'scale'", lambda: mcmc.SurrogateGibbs(mix, order_by="log(scale)")),
    ]
    known, given = mcmc.GLM(X, y, "gaussian", scale=1.0, prior=mcmc.Normal(0.0, 1.0)), np.ones((2, 3))
    shared = mixture(shared_scale=True)[0]
    cases += [
        ("learns no scale: one that is given is that of all", lambda: mcmc.MixtureOf(known, group, 2,
                                                                                     shared_scale=True)),
        ("shared_scale=True came with parameters", lambda: mcmc.MixtureOf(
            mix.model, np.repeat(np.arange(6), 300), 2, parameters=given, shared_scale=True)),
        (r"order_by is 'scale'; .*'x1'\]", lambda: mcmc.SurrogateGibbs(shared, order_by="scale")),
    ]
    for words, make in cases:
        with pytest.raises(ValueError, match=words):
            make()
    kernel = mcmc.SurrogateGibbs(mix)
    bad = kernel.init(rng=0).position
    bad[kernel.names.index("scale[1]")] = 0.0
    with pytest.raises(ValueError, match="scales of the position are"):
        kernel.init(bad)


def test_classes_of_small_groups_are_found_and_move_freely():
    """Of 20 rows each, whose expansions are no guide in the scale: by these, no proposal of a label was accepted."""
    rng = np.random.default_rng(1)
    theta, scale = 1.5 * rng.standard_normal((3, 3)), np.array([0.3, 1.0, 3.0])
    label, group = np.arange(60) % 3, np.repeat(np.arange(60), 20)
    X = rng.standard_normal((1200, 3))
    y = outcomes("gaussian", np.einsum("ij,ij->i", X, theta[label[group]]), scale[label[group]], rng)
    mix = mcmc.MixtureOf(mcmc.GLM(X, y, "gaussian", prior=mcmc.Normal(0.0, 2.5)), group, 3)
    kernel = mcmc.SurrogateGibbs(mix, order_by="scale")
    trace = mcmc.sample(kernel, n_draws=500, n_chains=2, rng=1, n_tune=200)
    assert not trace.warnings and kernel.acceptance(trace)["parameters"] > 0.8
    found = trace.to_arrays()["posterior"]
    assert (found["label"] == label).mean() > 0.99
    np.testing.assert_allclose(found["scale"].mean(axis=(0, 1)), scale, rtol=0.15)


def test_a_sweep_that_reads_its_groups_hears_ctrl_c_and_is_undone():
    """A sweep of many terms is left in its midst; the state is that after the last whole one, whose draw is kept."""
    rng, group = np.random.default_rng(0), np.repeat(np.arange(500), 50)
    model = mcmc.GLM(np.ones((len(group), 1)), rng.standard_normal(len(group)), "student-t", prior_sd=1.0)
    kernel = mcmc.SurrogateGibbs(mcmc.MixtureOf(model, group, 400))
    start = kernel.init(rng=1)
    begun = time.process_time()
    whole = kernel.run(np.random.default_rng(2), start, 3)[1].draws
    sweep, kept = (time.process_time() - begun) / 3, []

    def run():
        try:
            kernel.run(np.random.default_rng(2), start, 3)
        except KeyboardInterrupt as error:
            kept.append(getattr(error, "partial_run", None))
            raise

    assert press(run, times=3, after=0.3 * sweep) == 3
    assert None in kept                         # within the first sweep
    assert press(run, times=3, after=1.5 * sweep) == 3
    assert any(kept)
    for state, steps in filter(None, kept):
        np.testing.assert_array_equal(steps.draws, whole[: len(steps.draws)])
        there = kernel.run(np.random.default_rng(2), start, len(steps.draws))[0]
        for name in ("position", "noise", "decisions"):
            np.testing.assert_array_equal(getattr(state, name), getattr(there, name))
