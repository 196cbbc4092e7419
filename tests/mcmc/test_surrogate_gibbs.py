"""Mixtures over groups: exact against enumeration and the twin, calibrated, and nothing made is lost."""

import itertools
import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy import special, stats

from chains import assert_runs_continue, outcomes, scale_of
from fastrace import mcmc
from fastrace.mcmc._convergence import each_rhat
from fastrace.mcmc._diagnosis import diagnosis
from fastrace.mcmc.protocol import from_flags
from guarantee import assert_fits, assert_mean, assert_rate_at_most, assert_uniform, few_or_many
from reference import mcmc as rows_twin
from reference import surrogate_gibbs as twin

FAMILIES = ["logistic", "gaussian", "poisson", "student-t"]
DECISIONS = ["poisson", "exact"]


def mixture(family="logistic", sizes=(300,) * 6, dim=2, n_classes=2, spread=0.3, seed=0, shuffled=False, **options):
    """Groups of these sizes whose classes go round, and the classes' parameters."""
    rng = np.random.default_rng(seed)
    theta = spread * rng.standard_normal((n_classes, dim))
    group = np.repeat(np.arange(len(sizes)), sizes)
    X = rng.standard_normal((len(group), dim))
    y = np.concatenate([outcomes(family, X[group == g], theta[g % n_classes], rng) for g in range(len(sizes))])
    if shuffled:
        order = rng.permutation(len(y))
        X, y, group = X[order], y[order], group[order]
    model = mcmc.GLM(X, y, family, **scale_of(family), prior_sd=1.0)
    return mcmc.MixtureOf(model, group, n_classes, **options), theta


def totals(mix, theta):
    """The log-likelihood of each group at each state."""
    source, X, y = mix.model._glm, np.asarray(mix.model._glm.X), np.asarray(mix.model._glm.y)
    out = np.zeros((mix.n_groups, len(theta)))
    for g in range(mix.n_groups):
        rows = mix._order[mix.expansions.starts[g] : mix.expansions.starts[g + 1]]
        for k, at in enumerate(theta):
            out[g, k] = rows_twin.log_terms(source.family, X[rows], y[rows], at, source.scale, source.df).sum()
    return out


# Expansions.


@pytest.mark.parametrize("family", FAMILIES)
def test_expansions_follow_the_groups_and_add_up(family):
    mix, theta = mixture(family, sizes=(2000, 1500, 3000), shuffled=True)
    groups = mix.expansions
    near = theta[0] + 0.002 * np.random.default_rng(1).standard_normal((4, 2))
    own = groups.values_at(np.asarray(groups.hats))
    change = groups.values_at(near) - groups.values_at(near[:1])
    exact = totals(mix, near) - totals(mix, near[:1])
    assert np.allclose(change[0], exact[0], atol=0.01)
    assert np.allclose(np.diag(own), [totals(mix, hat[None])[g, 0] for g, hat in enumerate(groups.hats)], atol=1e-6)
    assert np.allclose(groups.values_at_hats(), np.diag(own))
    slope, curvature = groups.derivatives(groups.coefficients.sum(axis=0))
    step = near[0] - groups.origin
    whole = groups.coefficients[:, 0].sum() + slope[0] @ step - 0.5 * step @ curvature[0] @ step
    assert np.isclose(whole, groups.values_at(near[:1]).sum())


def test_expansions_survive_pickling_bit_for_bit():
    groups = mixture()[0].expansions
    again = pickle.loads(pickle.dumps(groups))
    point = np.random.default_rng(0).standard_normal((3, 2))
    assert (again.values_at(point) == groups.values_at(point)).all()
    assert (again.totals == groups.totals).all()


def test_rows_in_the_order_of_groups_are_not_copied():
    mix, _ = mixture()
    assert np.shares_memory(mix.rows_by_group()._glm.X, mix.model._glm.X)
    other, _ = mixture(shuffled=True)
    assert not np.shares_memory(other.rows_by_group()._glm.X, other.model._glm.X)


# Against the twin.


@pytest.mark.parametrize("hierarchical", [False, True])
@pytest.mark.parametrize("decision", DECISIONS)
def test_sweeps_are_those_of_the_twin(decision, hierarchical):
    mix, _ = mixture(sizes=(30, 33, 1, 25, 12), n_classes=3, hierarchical=hierarchical, sd_scale=0.5)
    kernel = mcmc.SurrogateGibbs(mix, decision)
    state = kernel.init(rng=2)
    found = kernel._split(state.position)
    _, steps = kernel.run(np.random.default_rng(3), state, 60)
    first, X, y = mix.expansions.starts, mix.model._glm.X, mix.model._glm.y
    precision = mix.model.prior_precision
    groups = [twin.Group(X[a:b], y[a:b], hat, precision)
              for a, b, hat in zip(first[:-1], first[1:], mix.expansions.hats, strict=True)]
    draws, read = twin.sweeps(
        groups, found["label"].astype(int).tolist(), found["theta"], found["weight"], found.get("mean", np.zeros(2)),
        found.get("sd", np.ones(2)), np.random.default_rng(3), 60, most=0.3 if decision == "poisson" else 0.0,
        concentration=1.0, prior=(mix.model.prior_mean, precision), sd_scale=0.5 if hierarchical else None)
    assert np.allclose(steps.draws, draws, rtol=1e-9, atol=1e-9)
    assert (steps.rows == read).all()
    assert len(np.unique(steps.draws[:, :5], axis=0)) > 5


# The right law.


def counts_of_labels(kernel, sweeps, thin, portions=1):
    """How often each group has each label, in thinned draws: as many of each portion of a run."""
    counts = np.zeros((kernel.model.n_groups, kernel.model.n_classes), int)
    rng = np.random.default_rng(5)
    state, _ = kernel.run(rng, kernel.init(rng=1), 200)
    for _ in range(portions):
        state, steps = kernel.run(rng, state, sweeps)
        for own, column in zip(counts, steps.draws[::thin].T, strict=True):
            own += np.bincount(column.astype(int), minlength=len(own))
    return counts


def assert_labels_fit(counts, law):
    """Of each group, labels that are not rare."""
    for own, chances in zip(counts, law, strict=True):
        likely = chances > 1e-3
        if likely.sum() > 1:
            assert_fits(own[likely], chances[likely] / chances[likely].sum())


@pytest.mark.parametrize("decision", DECISIONS)
@pytest.mark.parametrize("family", FAMILIES)
def test_labels_have_their_exact_law(family, decision):
    """Where groups are small the expansions alone are far off, which the same test sees."""
    sizes = (12, 40, 5, 1)
    theta = np.array([[0.0, 0.0], [1.8, -0.9], [-0.8, 2.4]])
    mix, _ = mixture(family, sizes, n_classes=3, parameters=theta, weights=[0.5, 0.3, 0.2], spread=0.2)
    exact = special.softmax(np.log(mix.weights) + totals(mix, theta), axis=1)
    assert_labels_fit(counts_of_labels(mcmc.SurrogateGibbs(mix, decision), 40_000, 20), exact)
    if family == "logistic":
        proposal = special.softmax(np.log(mix.weights) + mix.expansions.values_at(theta), axis=1)
        assert np.abs(proposal - exact).sum(axis=1).max() > 0.02


@pytest.mark.long
def test_labels_of_large_groups_have_their_exact_law():
    """100 users with 10,000 events each, 20 logistic regressions: expansions alone, off by 0.007 at most, are told."""
    rng = np.random.default_rng(20160624)
    group, X = np.repeat(np.arange(100), 10_000), rng.standard_normal((1_000_000, 20))
    theta = rng.standard_normal(20) / np.sqrt(20.0) + 0.02 * rng.standard_normal((20, 20))
    X[:, 0] = 1.0
    label = rng.integers(20, size=100)
    y = np.concatenate([outcomes("logistic", rows, theta[k], rng)
                        for rows, k in zip(np.split(X, 100), label, strict=True)])
    mix = mcmc.MixtureOf(mcmc.GLM(X, y, prior_sd=2.5), group, 20, parameters=theta, weights=np.ones(20))
    exact, proposal = (special.softmax(sums, axis=1) for sums in (totals(mix, theta), mix.expansions.values_at(theta)))
    assert np.abs(proposal - exact).max() < 0.01 and ((exact > 1e-3).sum(axis=1) > 1).sum() > 40
    counts = counts_of_labels(mcmc.SurrogateGibbs(mix), 50_000, 2, portions=8)
    assert_labels_fit(counts, exact)
    with pytest.raises(AssertionError, match="counts"):
        assert_labels_fit(counts, proposal)


def test_offsets_and_weights_of_rows_count():
    """Integer weights are repeated rows, an offset is a column whose coefficient is 1."""
    rng = np.random.default_rng(3)
    group, times = np.repeat(np.arange(3), 40), rng.integers(0, 4, 120)
    X, offset = rng.standard_normal((120, 2)), rng.standard_normal(120)
    y = (rng.random(120) < 0.4).astype(float)
    theta = np.array([[0.3, -0.2], [-0.4, 0.1]])
    order = rng.permutation(120)
    short = mcmc.GLM(X[order], y[order], offset=offset[order], weights=times[order])
    rows = np.repeat(np.arange(120), times)
    long = mcmc.GLM(np.column_stack([X, offset])[rows], y[rows])
    short = mcmc.MixtureOf(short, group[order], 2, parameters=theta)
    long = mcmc.MixtureOf(long, group[rows], 2, parameters=np.column_stack([theta, np.ones(2)]))
    exact = totals(long, long.parameters)
    kernel = mcmc.SurrogateGibbs(short)
    source, at = short.rows_by_group()._arms(2)
    at[:] = theta
    sums = np.add.reduceat(source.read(np.arange(120)), short.expansions.starts[:-1], axis=0)
    assert np.allclose(np.diff(sums), np.diff(exact))
    free, fixed = short.expansions.values_at(theta), long.expansions.values_at(long.parameters)
    assert np.allclose(np.diff(free), np.diff(fixed), atol=0.3)
    _, steps = kernel.run(rng, kernel.init(rng=0), 200)
    assert np.isfinite(steps.draws).all()


def one_dimensional(n_classes, concentration, seed=3):
    """Four groups with one slope, and the posterior of their labels by sums over all labels and a grid of slopes."""
    rng = np.random.default_rng(seed)
    sizes = (8, 15, 5, 10)
    group = np.repeat(np.arange(4), sizes)
    X = rng.standard_normal((len(group), 1))
    y = (rng.random(len(X)) < special.expit(X[:, 0] * np.array([1.5, -1.0, 1.0, 0.0])[group])).astype(float)
    mix = mcmc.MixtureOf(mcmc.GLM(X, y, prior_sd=1.5), group, n_classes, concentration=concentration)
    grid = np.linspace(-9.0, 9.0, 2001)
    loss = np.stack([rows_twin.log_terms("logistic", X[group == g], y[group == g][:, None], grid[None]).sum(axis=0)
                     for g in range(4)])
    prior = stats.norm.logpdf(grid, 0.0, 1.5)
    law, means = {}, {}
    for labels in itertools.product(range(n_classes), repeat=4):
        own = [prior + loss[[g for g in range(4) if labels[g] == k]].sum(axis=0) for k in range(n_classes)]
        counts = np.bincount(labels, minlength=n_classes)
        law[labels] = (sum(special.logsumexp(part) for part in own) + special.gammaln(counts + concentration).sum())
        means[labels] = [special.softmax(part) @ grid for part in own]
    keys = list(law)
    share = special.softmax([law[key] for key in keys])
    return mix, keys, share, np.array([means[key] for key in keys])


@pytest.mark.parametrize("decision", DECISIONS)
def test_whole_mixture_has_its_exact_law(decision):
    """Labels with parameters and weights integrated out, by enumeration, and the first class's slope."""
    mix, keys, share, means = one_dimensional(2, 0.7)
    kernel = mcmc.SurrogateGibbs(mix, decision)
    _, steps = kernel.run(np.random.default_rng(8), kernel.init(rng=1), 60_000)
    draws = steps.draws[100::15]
    code = draws[:, :4].astype(int) @ [8, 4, 2, 1]
    assert_fits(np.bincount(code, minlength=16), share)
    mean = share @ means[:, 0]
    error = draws[:, 4].std() / np.sqrt(mcmc.effective_sample_size(steps.draws[:, 4]))
    assert abs(draws[:, 4].mean() - mean) < stats.norm.isf(5e-7) * error
    occupied = np.bincount([len(set(key)) for key in keys], share, minlength=3)[1:]
    found = np.bincount([len(set(row)) for row in draws[:, :4].tolist()], minlength=3)[1:]
    assert_fits(found, occupied)


def test_one_class_of_a_gaussian_model_has_its_closed_form_and_reads_no_row():
    mix, _ = mixture("gaussian", n_classes=1)
    kernel = mcmc.SurrogateGibbs(mix)
    state, steps = kernel.run(np.random.default_rng(1), kernel.init(rng=1), 12_000)
    X, y = mix.model._glm.X, mix.model._glm.y
    covariance = np.linalg.inv(X.T @ X + np.eye(2))
    draws = steps.draws[::4, 6:8]
    z = (draws - covariance @ X.T @ y) @ np.linalg.inv(np.linalg.cholesky(covariance)).T
    assert steps.rows.sum() == 0
    assert state.decisions[2] == state.decisions[3] > 10_000
    for column in (*z.T, (z @ [1.0, 1.0]) / np.sqrt(2.0)):
        assert stats.kstest(column, "norm").pvalue > 1e-6


def calibrated_ranks(decision, fits, draws, **wrong):
    """Ranks of what was drawn from the prior among draws of the posterior, whose mixture may have `wrong` options."""
    rng = np.random.default_rng(21)
    ranks = []
    group = np.repeat(np.arange(4), 12)
    for _ in range(fits):
        mean, sd = rng.standard_normal(1), np.abs(0.5 * rng.standard_cauchy(1))
        theta = mean + sd * rng.standard_normal((2, 1))
        weight = rng.dirichlet([1.0, 1.0])
        label = rng.choice(2, 4, p=weight)
        X = rng.standard_normal((48, 1))
        y = (rng.random(48) < special.expit(X[:, 0] * theta[label[group], 0])).astype(float)
        options = {"hierarchical": True, "sd_scale": 0.5} | wrong
        kernel = mcmc.SurrogateGibbs(mcmc.MixtureOf(mcmc.GLM(X, y, prior_sd=1.0), group, 2, **options), decision)
        truth = np.concatenate([label, theta.ravel(), weight, mean, sd])
        _, steps = kernel.run(rng, kernel.init(truth), draws * 20)
        found, own = facts(steps.draws[19::20]), facts(truth[None])
        ranks.append([(found < own).sum(axis=0) + rng.integers(0, (found == own).sum(axis=0) + 1)])  # ties by chance
    return np.concatenate(ranks)


@few_or_many(("fits", "draws", "cells"), (60, 19, 5), (1500, 99, 20))
@pytest.mark.parametrize("decision", DECISIONS)
def test_simulation_based_calibration(decision, fits, draws, cells):
    """Of what does not depend on names: a group's slope, whether two groups are of one class, mean and spread."""
    assert_uniform(calibrated_ranks(decision, fits, draws), draws, cells)


@pytest.mark.parametrize("wrong", [{"concentration": 0.6}, {"concentration": 1.7}, {"sd_scale": 1.25}], ids=str)
def test_ranks_tell_a_prior_of_classes_that_is_wrong(wrong):
    with pytest.raises(AssertionError, match="counts"):
        assert_uniform(calibrated_ranks("poisson", 400, 19, **wrong), 19, 5)


def joint_draws(steps, prior_sd=1.0, **wrong):
    """Data and state drawn in turn: functions whose means are known; the kernel may have another prior than states."""
    rng = np.random.default_rng(31)
    group, kept = np.repeat(np.arange(3), 8), []
    X = rng.standard_normal((24, 1))
    state = np.concatenate([rng.integers(0, 2, 3), rng.standard_normal(2), [0.5, 0.5]])
    for i in range(steps):
        family = FAMILIES[i % 4]
        label = state[:3].astype(int)
        y = np.concatenate([outcomes(family, X[group == g], state[3:5][label[g]][None], rng) for g in range(3)])
        mix = mcmc.MixtureOf(mcmc.GLM(X, y, family, **scale_of(family), prior_sd=prior_sd), group, 2, **wrong)
        kernel = mcmc.SurrogateGibbs(mix)
        before, state = state, kernel.run(rng, kernel.init(state), 3)[1].draws[-1]
        change = state[3:5][int(state[0])] - before[3:5][int(before[0])]    # given the data, both have one law
        kept.append([*state[3:5], *state[3:5] ** 2, state[5], state[0] == state[1], change * np.tanh(X[0, 0] * y[0])])
    return np.array(kept)


JOINT_MEANS = [0.0, 0.0, 1.0, 1.0, 0.5, 2.0 / 3.0, 0.0]


@few_or_many("steps", 150, 6000)
def test_geweke_joint_distribution(steps):
    """Data and state drawn in turn must keep the prior of the state, and what it has with the data."""
    assert_mean(joint_draws(steps), JOINT_MEANS)


@few_or_many(("steps", "wrong"), (400, {"prior_sd": 0.65}), (6000, {"prior_sd": 0.9}))
def test_the_joint_test_tells_parameters_that_are_wrong(steps, wrong):
    with pytest.raises(AssertionError, match=" against .* standard error "):
        assert_mean(joint_draws(steps, **wrong), JOINT_MEANS)


@few_or_many(("steps", "wrong"), (400, {"concentration": 0.3}), (6000, {"concentration": 0.6}))
def test_the_joint_test_tells_labels_that_are_wrong(steps, wrong):
    with pytest.raises(AssertionError, match=" against .* standard error "):
        assert_mean(joint_draws(steps, **wrong), JOINT_MEANS)


def facts(draws):
    slope = np.take_along_axis(draws[:, 4:6], draws[:, :1].astype(int), 1)[:, 0]
    same = (draws[:, 0] == draws[:, 1]) + 1e-3 * draws[:, 8]
    return np.stack([slope, same, draws[:, 8], draws[:, 9], draws[:, 6:8].max(axis=1)], axis=1)


# Chains.


def test_checkpoints_threads_and_pickles_continue_bit_for_bit(tmp_path):
    mix, _ = mixture(sizes=(80,) * 5, hierarchical=True)
    kernel = mcmc.SurrogateGibbs(mix, order_by=1)
    other = mcmc.SurrogateGibbs(mixture(sizes=(80,) * 5, hierarchical=True, seed=1)[0], order_by=1)
    assert_runs_continue(kernel, other, tmp_path / "run")


def test_a_trace_names_its_variables_and_orders_classes():
    mix, theta = mixture(sizes=(500,) * 6, spread=2.0, hierarchical=True)
    trace = mcmc.sample(mcmc.SurrogateGibbs(mix, order_by=0), n_draws=50, n_chains=2, rng=1, n_tune=50)
    found = trace.to_arrays()["posterior"]
    assert {name: array.shape[2:] for name, array in found.items()} == {
        "label": (6,), "theta": (2, 2), "weight": (2,), "mean": (2,), "sd": (2,)}
    assert found["label"].dtype == np.int64
    assert (np.diff(found["theta"][..., 0], axis=2) > 0.0).all()
    rank = np.argsort(np.argsort(theta[:, 0]))
    assert (found["label"] == rank[np.arange(6) % 2]).all()
    assert trace.names[:2] == ("label[0]", "label[1]")
    assert trace.names[6:8] == ("theta[0, x0]", "theta[0, x1]")
    assert len(trace.names) == trace.draws.shape[2]
    assert (mix.together(trace) == np.equal.outer(np.arange(6) % 2, np.arange(6) % 2)).all()
    assert (mix.occupied(trace) == 2).all()


def test_arviz_has_a_variable_for_each_part():
    pytest.importorskip("arviz")
    mix, _ = mixture()
    trace = mcmc.sample(mcmc.SurrogateGibbs(mix, order_by=0), n_draws=20, n_chains=2, rng=1, n_tune=20)
    posterior = trace.to_arviz()["posterior"]
    assert posterior["theta"].dims == ("chain", "draw", "class", "coefficient")
    assert posterior["label"].dims == ("chain", "draw", "group")
    assert posterior["label"].dtype.kind == "i"


def test_a_mixture_is_sampled_by_its_kernel():
    mix, _ = mixture(sizes=(50,) * 4)
    options = {"n_draws": 10, "n_chains": 2, "rng": 1, "n_tune": 10}
    assert (mcmc.sample(mix, **options).draws == mcmc.sample(mcmc.SurrogateGibbs(mix), **options).draws).all()


@pytest.mark.parametrize("sizes", [(300,) * 2, (300,) * 7])
def test_chains_have_starts_of_their_own_about_what_the_groups_say(sizes):
    """Where groups are few, points drawn apart are the same ones: chains began at one point, up to names of classes."""
    mix, _ = mixture(sizes=sizes, spread=2.0)
    kernel = mcmc.SurrogateGibbs(mix)
    starts = np.array([kernel.dispersed(np.random.default_rng(seed)) for seed in range(400)])
    for n_tune in (0, 50):
        trace = mcmc.sample(mix, n_draws=50, n_tune=n_tune, rng=1)
        assert not any("one point" in words for words in trace.warnings)
    X, y = (np.concatenate([np.asarray(v[g * 300 : (g + 1) * 300]) for g in range(0, len(sizes), 2)])
            for v in (mix.model._glm.X, mix.model._glm.y))
    exact = mcmc.GLM(X, y, prior_sd=1.0).reference()
    theta = starts[:, len(sizes) : len(sizes) + 4].reshape(-1, 2, 2)[np.arange(400), starts[:, 0].astype(int)]
    z = np.linalg.solve(exact.factor, (theta - exact.center).T)
    assert 1.7 < z.std() < 2.3 and abs(z.mean()) < 0.3


def test_labels_may_be_left_out_of_the_trace():
    mix, _ = mixture()
    kernels = [mcmc.SurrogateGibbs(mix, keep_labels=keep) for keep in (True, False)]
    full, bare = (mcmc.sample(kernel, n_draws=20, n_chains=1, rng=1, n_tune=0) for kernel in kernels)
    assert (full.draws[:, :, 6:] == bare.draws).all()
    with pytest.raises(ValueError, match="holds no labels"):
        mix.occupied(bare)


def test_labels_are_not_judged_and_exchanged_names_are_explained():
    mix, _ = mixture(sizes=(30,) * 24)
    kernel = mcmc.SurrogateGibbs(mix)
    start = kernel.init(rng=0).position
    start[24:28] = -3.0, -3.0, 3.0, 3.0
    start[28:30] = 0.4, 0.6
    other = start.copy()
    other[:24] = 1.0 - start[:24]
    rng = np.random.default_rng(0)

    def chain(at):
        draws = np.tile(at, (200, 1))
        draws[:, 24:] += 0.01 * rng.standard_normal((200, len(at) - 24))
        none = np.zeros(200, np.int64)
        return from_flags(draws, none, none.astype(np.int32), np.ones(200, np.uint8))

    same = mcmc.Trace((chain(start), chain(other)), kernel.describe(), (), (), 0.0, "state", (), kernel.names,
                      kernel.parts)
    assert np.isinf(same.rhat()).any()
    assert not [words for words in diagnosis(same, None, False) if "R-hat" in words or "effective" in words]
    printed = str(same)
    assert printed.index("theta[0, x0]") < printed.index("weight[1]") < printed.index("label[0]")
    other[24:28] = start[[26, 27, 24, 25]]
    swapped = replace(same, chains=(chain(start), chain(other)))
    assert "R-hat of theta" in " ".join(diagnosis(swapped, None, False))    # as it was: by the names of classes
    other[28:30] = start[[29, 28]]
    swapped = replace(same, chains=(chain(start), chain(other)))
    assert not [words for words in diagnosis(swapped, None, False, judged=kernel.judged(swapped)) if "R-hat" in words]
    assert "order_by" in str(swapped)
    other[:6], other[24:28] = 0.0, start[24:28]                              # another partition
    apart = replace(same, chains=(chain(start), chain(other)))
    assert "R-hat of" in " ".join(diagnosis(apart, None, False, judged=kernel.judged(apart)))
    named = mcmc.SurrogateGibbs(mix, order_by=0)
    assert named.judged(same) is None and "order_by" not in str(replace(same, kernel=named.describe()))


def test_what_depends_on_no_name_is_printed_first_and_no_rhat_of_what_does():
    mix, _ = mixture(sizes=(40,) * 6)
    kernel = mcmc.SurrogateGibbs(mix)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trace = mcmc.sample(kernel, n_draws=200, n_chains=3, rng=1)
        named = mcmc.sample(mcmc.SurrogateGibbs(mix, order_by=0), n_draws=200, n_chains=3, rng=1)
    judged = kernel.judged(trace)
    assert list(trace.nameless) == list(judged) and named.nameless is None
    frame = trace.to_frame().set_index("coordinate")
    assert list(frame.index) == [*judged, *kernel.names]
    lines = str(trace).splitlines()
    for line, (name, values) in zip(lines[2:], judged.items(), strict=False):
        assert line.strip().startswith(name) and frame["mean"][name] == pytest.approx(values.mean())
        assert frame["rhat"][name] == pytest.approx(each_rhat(values[:, :, None])[0]) and frame["ess"][name] > 0.0
    for name in ("theta[0, x0]", "weight[1]", "label[0]"):
        assert np.isnan(frame["rhat"][name]) and np.isnan(frame["ess"][name]) and np.isfinite(frame["95%"][name])
        assert any(line.split(name)[-1].split()[-2:] == ["-", "-"] for line in lines if name in line)
    assert "and has no ess and rhat" in str(trace) and "has no ess" not in str(named)
    assert np.isfinite(named.to_frame().set_index("coordinate")["rhat"]["theta[0, x0]"])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(trace)).nameless["together"], judged["together"])


@pytest.mark.parametrize("keep_labels", [True, False])
def test_chains_that_exchange_names_are_judged_by_what_depends_on_none(keep_labels):
    """Sweeps from starts of their own name two classes as they like; R-hat of theta and weight was above 1 always."""
    mix, _ = mixture(sizes=(200,) * 10, spread=2.0, hierarchical=True)
    kernel = mcmc.SurrogateGibbs(mix, keep_labels=keep_labels)
    trace = mcmc.sample(kernel, n_draws=400, n_chains=6, rng=1, n_tune=100)
    assert trace.rhat()[-10:-6].max() > 1.5 and not any("R-hat" in words for words in trace.warnings)
    found = mix.nameless(trace)
    assert {a.shape for a in found.values()} == {(6, 400)}
    draws = trace.to_arrays()["posterior"]
    shares, theta = draws["weight"], draws["theta"]
    if keep_labels:
        assert (found["occupied"] == mix.occupied(trace)).all()
        shares = (draws["label"][..., None] == np.arange(2)).mean(axis=2)
        pairs = [np.equal.outer(label, label)[np.triu_indices(10, 1)].mean() for label in draws["label"][0, :20]]
        np.testing.assert_allclose(found["together"][0, :20], pairs)
        whole = np.take_along_axis(theta, draws["label"].astype(int)[..., None], axis=2)
        np.testing.assert_allclose(found["mean over groups of theta[x1]"], whole.mean(axis=2)[..., 1])
        np.testing.assert_allclose(found["sd over groups of theta[x1]"], whole.std(axis=2)[..., 1], atol=1e-12)
    np.testing.assert_allclose(found["mean over groups of theta[x0]"], (shares * theta[..., 0]).sum(axis=2))
    np.testing.assert_array_equal(found["weight, number 1 in size"], draws["weight"].max(axis=2))


def test_advice_on_refused_proposals_is_the_kernels_own():
    kernel = mcmc.SurrogateGibbs(mixture()[0])
    none = np.zeros(200, np.int64)
    draws = np.cumsum(np.random.default_rng(0).standard_normal((200, 12)), axis=0)
    steps = from_flags(draws, none, none.astype(np.int32), np.zeros(200, np.uint8))
    trace = mcmc.Trace((steps, steps), kernel.describe(), (), (), 0.0, "state", (), kernel.names, kernel.parts)
    words = " ".join(diagnosis(trace, None, False, refusal_advice=kernel.refusal_advice))
    assert "accepted less than 10%" in words and "expansions of the groups" in words and "effective" in words
    assert "smaller size" not in words and "another proposal" not in words


def test_chains_of_one_class_may_begin_at_one_point():
    mix, _ = mixture(sizes=(300,), n_classes=1)
    trace = mcmc.sample(mix, n_draws=200, n_chains=2, rng=1, n_tune=50)
    assert not any("one point" in words for words in trace.warnings)
    assert "mcmc.sample of the GLM alone" in mcmc.SurrogateGibbs(mix).exchange_advice


def test_surplus_classes_become_empty():
    two, _ = mixture(sizes=(400,) * 8, spread=1.0)
    many = mcmc.MixtureOf(two.model, np.repeat(np.arange(8), 400), 6, concentration=0.05)
    start = np.concatenate([np.arange(8) % 6, np.zeros(12), np.full(6, 1.0 / 6.0)])
    kernel = mcmc.SurrogateGibbs(many)
    _, steps = kernel.run(np.random.default_rng(1), kernel.init(start), 400)
    assert np.median([len(set(row)) for row in steps.draws[200:, :8].tolist()]) == 2


def test_chains_go_on_where_weights_of_empty_classes_underflow():
    mix, _ = mixture(n_classes=8, concentration=1e-3)
    kernel, rng = mcmc.SurrogateGibbs(mix), np.random.default_rng(1)
    state, zero = kernel.init(rng=0), 0
    for _ in range(20):
        state, steps = kernel.run(rng, state, 1)
        zero += (kernel._split(steps.draws[0])["weight"] == 0.0).any()
    assert zero > 0


@pytest.mark.filterwarnings("ignore:R-hat:UserWarning", "ignore:the effective:UserWarning")
@pytest.mark.parametrize("family", FAMILIES)
def test_groups_of_one_row_separated_groups_and_empty_classes(family):
    rng = np.random.default_rng(4)
    group = np.repeat(np.arange(7), [1, 1, 30, 30, 2, 5, 200])
    X = rng.standard_normal((len(group), 3))
    y = outcomes(family, X, np.array([0.5, 0.0, -0.5]), rng)
    if family == "logistic":
        y[group == 2] = X[group == 2, 0] > 0.0      # separated
        y[group == 3] = 1.0
    if family == "poisson":
        y[group == 3] = 0.0                         # a likelihood that rises for ever
    X[group == 5, 2] = 0.0                          # a column that says nothing
    mix = mcmc.MixtureOf(mcmc.GLM(X, y, family, **scale_of(family), prior_sd=2.0), group, 5, hierarchical=True)
    trace = mcmc.sample(mcmc.SurrogateGibbs(mix), n_draws=100, n_chains=1, rng=1, n_tune=50)
    assert np.isfinite(trace.draws).all()
    assert trace.accepted.mean() > 0.3


def test_far_proposals_of_counts_are_refused_and_not_lost():
    """Where the terms overflow, a proposal has probability 0."""
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(3), 20)
    X = np.column_stack([np.ones(60), rng.exponential(50.0, 60)])
    y = rng.poisson(2.0, 60).astype(float)
    mix = mcmc.MixtureOf(mcmc.GLM(X, y, "poisson", prior_sd=5.0), group, 3)
    kernel = mcmc.SurrogateGibbs(mix)
    _, steps = kernel.run(np.random.default_rng(1), kernel.init(rng=1), 300)
    assert np.isfinite(steps.draws).all()


def test_single_precision_and_words_as_groups():
    mix, _ = mixture(seed=2)
    words = np.array(["b", "a", "c", "d", "f", "e"])[np.repeat(np.arange(6), 300)]
    model = mcmc.GLM(np.asarray(mix.model._glm.X, dtype=np.float32), mix.model._glm.y, prior_sd=1.0, names=["x", "z"])
    named = mcmc.MixtureOf(model, words, 2)
    kernel = mcmc.SurrogateGibbs(named, order_by="z")
    assert named.levels == tuple("abcdef")
    assert kernel.names[0] == "label[a]"
    assert kernel.names[7] == "theta[0, z]"
    assert np.isfinite(kernel.run(np.random.default_rng(0), kernel.init(), 50)[1].draws).all()


def test_an_interrupted_run_keeps_what_it_made():
    mix, _ = mixture(sizes=(40,) * 3)
    kernel = mcmc.SurrogateGibbs(mix)

    def stop(chain, steps):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as info:
        mcmc.sample(kernel, n_draws=500, n_chains=1, rng=1, n_tune=0, callback=stop)
    assert info.value.trace.n_draws == 32


def test_groups_go_with_the_rows_that_the_model_was_given():
    """By the pandas index, which the model remembers, and in spite of a shuffle of its own."""
    pandas = pytest.importorskip("pandas")
    mix, theta = mixture(sizes=(60,) * 6)
    X, y, group = np.asarray(mix.model._glm.X), np.asarray(mix.model._glm.y), np.repeat(np.arange(6), 60)
    plain = mcmc.MixtureOf(mix.model, group, 2, parameters=theta)
    shuffled = mcmc.MixtureOf(mcmc.GLM(X, y, prior_sd=1.0, shuffle=3), group, 2, parameters=theta)
    near = theta + 0.1
    np.testing.assert_allclose(shuffled.expansions.values_at(near), plain.expansions.values_at(near), rtol=1e-9)
    frame = pandas.DataFrame(X, columns=["a", "b"]).assign(y=y, g=group).sample(frac=1.0, random_state=1)
    models = [mcmc.GLM(frame[["a", "b"]], y[frame.index], prior_sd=1.0),
              mcmc.GLM(X[frame.index], frame["y"], prior_sd=1.0),
              mcmc.GLM({"a": frame["a"], "b": frame["b"]}, frame["y"].to_numpy(), prior_sd=1.0)]
    for model in models:
        ours = mcmc.MixtureOf(model, frame["g"], 2, parameters=theta)
        np.testing.assert_allclose(ours.expansions.values_at(near), plain.expansions.values_at(near), rtol=1e-9)
        with pytest.raises(ValueError, match=r"indexes of the model and groups differ: row 0 is .*reset_index"):
            mcmc.MixtureOf(model, frame["g"].sort_index(), 2)
        again = pickle.loads(pickle.dumps(model))
        assert again.index is None and model.index is not None
        mcmc.MixtureOf(again, frame["g"].to_numpy(), 2, parameters=theta)
        for values in (pandas.Index(frame["g"]), pandas.Index(list("abcdef"))[frame["g"]]):
            ours = mcmc.MixtureOf(model, values, 2, parameters=theta)
            np.testing.assert_allclose(ours.expansions.values_at(near), plain.expansions.values_at(near), rtol=1e-9)


def test_groups_of_a_model_made_by_a_formula_go_by_its_frame():
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("formulae")
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame({"x": rng.normal(size=90), "y": rng.normal(size=90)}, index=rng.permutation(90))
    prior = {"Intercept": mcmc.Normal(0.0, 2.0)}
    model = mcmc.GLM.from_formula("y ~ x", frame, family="gaussian", scale=1.0, prior=prior)
    groups = pandas.Series(np.arange(90) % 3, frame.index)
    assert mcmc.MixtureOf(model, groups, 2).n_groups == 3
    with pytest.raises(ValueError, match="indexes of the model and groups differ"):
        mcmc.MixtureOf(model, groups.sort_index(), 2)


def test_bad_input_is_refused():
    mix, theta = mixture()
    model, group = mix.model, np.repeat(np.arange(6), 300)
    X, y = model._glm.X, model._glm.y
    cases = [
        (ValueError, "groups has shape", lambda: mcmc.MixtureOf(model, group[:-1], 2)),
        (ValueError, "not finite", lambda: mcmc.MixtureOf(model, np.where(group > 4, np.inf, group), 2)),
        (ValueError, "group of row 1500 of groups is missing", lambda: mcmc.MixtureOf(
            model, np.where(group > 4, np.nan, group), 2)),
        *[(ValueError, "group of row 1799 of groups is missing; each row must belong to a group", lambda g=g:
           mcmc.MixtureOf(model, g, 2)) for g in ([*group[:-1].tolist(), None], ["a"] * 1799 + [None],
                                                  ["a"] * 1799 + [np.nan], np.array(["a"] * 1799 + [None], object))],
        (TypeError, "groups cannot be sorted", lambda: mcmc.MixtureOf(model, np.array([1, "a"] * 900, object), 2)),
        (ValueError, "n_classes", lambda: mcmc.MixtureOf(model, group, 0)),
        (ValueError, "concentration", lambda: mcmc.MixtureOf(model, group, 2, concentration=0.0)),
        (ValueError, "sd_scale", lambda: mcmc.MixtureOf(model, group, 2, sd_scale=-1.0)),
        (ValueError, "weights", lambda: mcmc.MixtureOf(model, group, 2, weights=[1.0, -1.0])),
        (ValueError, "parameters", lambda: mcmc.MixtureOf(model, group, 3, parameters=theta)),
        (ValueError, "hierarchical", lambda: mcmc.MixtureOf(model, group, 2, parameters=theta, hierarchical=True)),
        (ValueError, "prior_sd", lambda: mcmc.MixtureOf(mcmc.GLM(X, y), group, 2)),
        (ValueError, "log_prior", lambda: mcmc.MixtureOf(
            mcmc.GLM(X, y, prior_sd=1.0, log_prior=lambda theta: 0.0), group, 2)),
        (TypeError, "model is", lambda: mcmc.MixtureOf(mcmc.Softmax(X, y, 2), group, 2)),
        (ValueError, "no grouping factors", lambda: mcmc.MixtureOf(
            mcmc.GLM(X, y, prior_sd=1.0, groups=group), group, 2)),
        (TypeError, "mixture is", lambda: mcmc.SurrogateGibbs(model)),
        (ValueError, "decision", lambda: mcmc.SurrogateGibbs(mix, "coin")),
        (ValueError, "order_by", lambda: mcmc.SurrogateGibbs(mix, order_by=2)),
        (ValueError, "order_by", lambda: mcmc.SurrogateGibbs(mix, order_by="slope")),
        (ValueError, "keep_labels", lambda: mcmc.SurrogateGibbs(
            mcmc.MixtureOf(model, group, 2, parameters=theta, weights=[1, 1]), keep_labels=False)),
    ]
    for error, words, make in cases:
        with pytest.raises(error, match=words):
            make()
    kernel = mcmc.SurrogateGibbs(mix)
    good = kernel.init(rng=0).position
    for place, value, words in [(0, 2.0, "labels"), (0, 0.5, "labels"), (6, np.nan, "position"), (-1, -1.0, "weights")]:
        bad = good.copy()
        bad[place] = value
        with pytest.raises(ValueError, match=words):
            kernel.init(bad)
    with pytest.raises(ValueError, match="position"):
        kernel.init(good[:-1])


def test_acceptance_is_high_where_groups_are_tall():
    mix, _ = mixture(sizes=(4000,) * 6, dim=4, spread=0.02)
    kernel = mcmc.SurrogateGibbs(mix)
    trace = mcmc.sample(kernel, n_draws=300, n_chains=1, rng=1, n_tune=100)
    shares = kernel.acceptance(trace)
    decided = trace.states[0].decisions
    assert_rate_at_most(int(decided[0] - decided[1]), int(decided[0]), 0.1)
    assert shares["parameters"] > 0.6
    assert trace.rows.mean() < 0.05 * mix.n_rows


def test_chains_of_known_classes_may_begin_at_one_point():
    known, theta = mixture(weights=[0.5, 0.5], parameters=0.3 * np.random.default_rng(0).standard_normal((2, 2)))
    assert not any("one point" in words for words in mcmc.sample(known, n_draws=120, n_chains=2, rng=1).warnings)
