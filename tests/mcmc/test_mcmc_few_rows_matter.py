"""Races whose residuals are held by a few rows: by kernels that expand once, with learned scales, under any prior."""

import warnings

import numpy as np
import pytest

from fastrace import mcmc
from fastrace.mcmc.kernels import _choice
from fastrace.mcmc.kernels._rows import ChainState
from fastrace.mcmc.protocol import from_flags
from guarantee import assert_rate_at_most, few_or_many

SEED = 20161126


def rare_columns(family, each, n_columns, n_rows=10_000):
    """Dummies of a few rows each, whose outcomes are not what the others' are."""
    rng = np.random.default_rng(SEED)
    X = np.column_stack([np.ones(n_rows), rng.standard_normal(n_rows)])
    own = np.zeros((n_rows, n_columns))
    own[np.arange(each * n_columns), np.arange(each * n_columns) % n_columns] = 1.0
    few, eta = own.any(axis=1), 0.5 + 0.3 * X[:, 1]
    if family == "negative-binomial":
        y = rng.poisson(np.exp(eta) * rng.standard_exponential(n_rows)) * ~few
    elif family == "gamma":
        y = np.exp(eta) * rng.standard_exponential(n_rows)
        y[few] *= 3.0 * rng.gamma(0.1, size=few.sum())
    else:
        y = eta + rng.standard_t(2.0, n_rows)
        y[few] = rng.choice([-8.0, 8.0], few.sum()) + rng.standard_normal(few.sum())
    return mcmc.GLM(np.column_stack([X, own]), y, family, prior=mcmc.Normal(0.0, 3.0))


def share_wrong(kernel, n_checks):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trace = mcmc.sample(kernel, n_draws=300, n_chains=1, n_tune=200, rng=1)
        found = mcmc.check_bias(kernel, trace, n_checks, rng=1)
    return found.n_wrong


@pytest.mark.parametrize(("family", "each", "n_columns"), [
    ("negative-binomial", 30, 1), ("negative-binomial", 15, 4), ("gamma", 15, 4), ("student-t", 15, 4)])
@few_or_many(("delta", "n_checks"), (0.05, 300), (0.01, 10_000))
def test_races_with_a_learned_scale_err_as_promised(family, each, n_columns, delta, n_checks):
    """They erred 14 to 78 times in a hundred, for a delta of .05 and of .01 alike."""
    model = rare_columns(family, each, n_columns)
    kernel = mcmc.SurrogateMetropolis(model, decision="race", delta=delta)
    assert kernel._apart is not None or kernel._first_look is not None
    assert not kernel.decision_advice
    assert_rate_at_most(share_wrong(kernel, n_checks), n_checks, delta)


def test_rows_far_from_quadratic_are_found_by_reading_them():
    """What is measured is what a formula says where there is one: up to noise, the same rows."""
    rng = np.random.default_rng(SEED)
    X, own = np.column_stack([np.ones(8000), rng.standard_normal(8000)]), np.arange(8000) < 30
    y = (rng.random(8000) < 1.0 / (1.0 + np.exp(2.0 - 0.3 * X[:, 1]))) & ~own
    model = mcmc.GLM(np.column_stack([X, own]), y, prior_sd=3.0)
    measured = mcmc.RacingMetropolis(model, bound="normal")
    by_formula = mcmc.SurrogateMetropolis(model, "normal", "race")
    assert len(set(measured._apart) & set(by_formula._apart)) >= 25
    assert len(measured._apart) <= 60
    assert_rate_at_most(share_wrong(measured, 300), 300, 0.05)


def test_separated_outcomes_under_a_prior_with_long_tails_are_not_raced_in_silence():
    """A few rows beside the gap hold all of it. Races found R-hat 1.00 and quantiles four times too small."""
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(3000), rng.standard_normal(3000)])
    model = mcmc.GLM(X, X[:, 1] > 0, prior=mcmc.StudentT(1.0, 0.0, 2.5))
    kernel = mcmc.RacingMetropolis(model)
    assert "a few rows hold most" in kernel.decision_advice and "Poisson" in kernel.decision_advice
    with pytest.warns(UserWarning, match="races err more often than delta"):
        mcmc.sample(kernel, n_draws=20, n_chains=2, n_tune=20, rng=1)
    chosen, _ = _choice.kernel_for(model)
    assert not getattr(chosen, "decision_advice", "")


def test_races_that_would_miss_rows_are_not_tried(monkeypatch):
    """A pilot of them ran, and was thrown away."""
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(3000), rng.standard_normal(3000)])
    model = mcmc.GLM(X, X[:, 1] > 0, prior=mcmc.StudentT(1.0, 0.0, 2.5))
    piloted, pilot = [], _choice._Pilot
    monkeypatch.setattr(_choice, "_Pilot", lambda kernel: piloted.append(kernel) or pilot(kernel))
    monkeypatch.setattr(_choice, "LITTLE", 0.0)
    _, why = _choice.kernel_for(model)
    assert "RacingMetropolis, whose races would miss" in why
    assert piloted and not any(isinstance(kernel, mcmc.RacingMetropolis) for kernel in piloted)


def test_a_pilot_meets_what_few_steps_read():
    """Softmax: races read 106 rows in the median step and all in two of a hundred, which 60 steps did not show."""

    class Rare(_choice.RowKernel):
        calls_python = False

        def __init__(self, often):
            self.often, self.made, self.seen = often, 0, 0

        def init(self, position=None, rng=None):
            return self._state_at(np.zeros(2))

        def _state_at(self, theta):
            return ChainState(theta, theta, None, None)

        def _recorded(self, draws):
            return draws

        def run(self, rng, state, n, *, tune=False):
            k = 0 if tune else self.made
            self.made += 0 if tune else n
            steps = np.arange(k, k + n)
            rows = np.where(steps % self.often == self.often - 1, 100_000, 10)
            return state, from_flags(rng.standard_normal((n, 2)), rows, np.ones(n, np.int32), np.ones(n, np.uint8))

    ahead = 1.0 / 600.0
    pilot = _choice._Pilot(Rare(90))
    assert pilot.rows == 10.0 and pilot.worth > ahead
    pilot.confirm(ahead)
    assert pilot.rows > 500.0 and pilot.worth < ahead
    pilot = _choice._Pilot(Rare(10**6))
    pilot.confirm(ahead)
    assert pilot.rows == 10.0 and pilot.worth > ahead and pilot.kernel.made == _choice.CONFIRMED
    pilot = _choice._Pilot(Rare(1))
    pilot.confirm(ahead)
    assert pilot.kernel.made == _choice.STEPS
    rare, other = _choice._Pilot(Rare(90)), _choice._Pilot(Rare(10**6))
    assert _choice._cheapest([rare, other]) is other and rare.confirmed and other.confirmed


@pytest.mark.parametrize(("family", "prior", "n"), [
    ("logistic", mcmc.StudentT(1.0, 0.0, 0.02), 3000), ("gaussian", mcmc.StudentT(1.0, 0.0, 0.02), 3000),
    ("logistic", mcmc.Laplace(0.0, 0.1), 800), ("logistic", mcmc.Laplace(0.0, 0.02), 2000)])
def test_a_kernel_whose_chains_get_stuck_is_not_taken_for_reading_little(family, prior, n):
    """7 and 50 effective draws of 2,400 were taken for .06 and .6 of a draw a step; surrogates gave 470 and 580."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(n, 6))
    y = X[:, 0] + rng.normal(size=n) if family == "gaussian" else rng.random(n) < 1.0 / (1.0 + np.exp(-X[:, 0]))
    model = mcmc.GLM(X, y, family, prior=prior)
    chosen, why = _choice.kernel_for(model)
    assert type(chosen) is mcmc.SurrogateMetropolis, why
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sizes = [mcmc.sample(kernel, n_chains=2, rng=1).ess().min()
                 for kernel in (chosen, mcmc.PoissonMinibatchMetropolis(model))]
    assert sizes[0] > 3.0 * sizes[1]


def test_races_are_not_tried_beside_an_exact_kernel_that_reads_little(monkeypatch):
    rng = np.random.default_rng(SEED)
    X = rng.standard_normal((20_000, 2))
    model = mcmc.GLM(X, rng.random(20_000) < 1.0 / (1.0 + np.exp(-X @ [1.0, -0.5])), prior_sd=10.0)
    _, why = _choice.kernel_for(model)
    assert "Racing" not in why and "Poisson" in why
    monkeypatch.setattr(_choice, "LITTLE", 0.0)
    chosen, why = _choice.kernel_for(model)
    assert "RacingMetropolis" in why
    assert not isinstance(chosen, mcmc.RacingMetropolis)


def test_a_coordinate_that_stands_still_counts():
    moving = np.random.default_rng(SEED).standard_normal((60, 4))
    assert _choice._share(moving) > 0.7
    moving[:, 2] = 1.0
    assert _choice._share(moving) == 0.0


def test_nothing_is_missed_where_the_expansion_leaves_nothing():
    rng = np.random.default_rng(SEED)
    X = rng.standard_normal((6000, 2))
    model = mcmc.GLM(X, X @ [1.0, 2.0] + rng.standard_normal(6000), "gaussian", scale=1.0, prior_sd=3.0)
    assert not mcmc.RacingMetropolis(model, bound="normal").decision_advice
    assert not mcmc.SurrogateMetropolis(model, decision="race").decision_advice


def test_separated_outcomes_under_a_laplace_prior_are_sampled_from_all_rows():
    """The posterior is proper, but no expansion follows it: it was called improper, or refused for a log_prior."""
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(200), rng.standard_normal(200)])
    model = mcmc.GLM(X, X[:, 1] > 0, prior=mcmc.Laplace(0.0, 2.5))
    with pytest.raises(ValueError, match="separated.*kink or a long tail.*normal prior"):
        model.reference()
    chosen, why = _choice.kernel_for(model)
    assert type(chosen) is mcmc.Metropolis and "no mode" in why
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        draws = mcmc.sample(model, n_draws=6000, n_chains=2, rng=1).draws[..., 1]
    assert np.quantile(draws, [0.1, 0.5, 0.9]) == pytest.approx([14.4, 19.8, 27.8], rel=0.06)     # by a grid


def test_groups_with_a_flat_side_among_more_rows_have_walks_too():
    """Five groups of one outcome and at most five rows beside large ones: sds were .88 to .97 of the posterior's."""
    rng = np.random.default_rng(2)
    group = np.repeat(np.arange(13), [1, 1, 2, 3, 5] + 8 * [600])
    y = rng.random(len(group)) < 1.0 / (1.0 + np.exp(-2.0 * rng.standard_normal(13)[group]))
    tiny = group < 5
    y[tiny] = (group[tiny] % 2) == 0
    X = np.ones((len(group), 1))
    kernel = mcmc.SurrogateMetropolis(mcmc.GLM(X, y, groups={"g": group}, group_prior=mcmc.HalfNormal(10.0)))
    assert kernel.decision == "exact" and kernel.walks_along_rows
    large = ~tiny
    plain = mcmc.GLM(X[large], y[large], groups={"g": group[large]}, group_prior=mcmc.HalfNormal(10.0))
    assert mcmc.SurrogateMetropolis(plain).decision != "exact"
