"""Gibbs draws on what expansions leave: of the user's own factors and of models, quick and rigorous races."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import special

import fastrace as fr
from chains import outcomes, scale_of
from fastrace import mcmc
from fastrace.control_variates import SoftmaxSource, TaylorSurrogate, taylor_glm
from fastrace.likelihoods import GLMSource
from fastrace.sources import ArraySource
from guarantee import assert_fits, assert_rate_at_most
from reference import gibbs as gibbs_twin


def own_factors(n=4000, n_states=6, seed=0):
    """Terms of a Student-t location, and their second-order expansions at its mode, in NumPy; the exact law."""
    rng = np.random.default_rng(seed)
    y = rng.standard_t(5.0, n)
    states = np.linspace(-0.05, 0.05, n_states)
    hat = y.mean()
    z = y - hat
    table = np.stack([-3.0 * np.log1p(z**2 / 5.0), 6.0 * z / (5.0 + z**2), 3.0 * (z**2 - 5.0) / (5.0 + z**2) ** 2])
    powers = np.stack([np.ones(n_states), states - hat, (states - hat) ** 2])
    sums = table.sum(axis=1) @ powers

    def factors(chosen, rows, z):
        return -3.0 * np.log1p((y[rows, None] - states[chosen]) ** 2 / 5.0)

    def expansions(chosen, rows, z):
        return table[:, rows].T @ powers[:, chosen]

    variable = mcmc.Categorical(n_states, factors, n, expansions=expansions, expansion_sums=lambda z: sums)
    whole = factors(np.arange(n_states), np.arange(n), None).sum(axis=0)
    return variable, special.softmax(whole), special.softmax(sums)


def test_own_expansions_propose_and_a_race_of_two_states_decides():
    variable, law, _ = own_factors()
    kernel = mcmc.RacingGibbs([variable], 0.01, first_look=20, student=True)
    trace = mcmc.sample(kernel, n_draws=6000, n_chains=1, n_tune=0, rng=1)
    assert_fits(np.bincount(trace.draws[0, ::3, 0], minlength=6), law)
    assert trace.rows.mean() < 0.02 * 6 * 4000
    whole = mcmc.sample(mcmc.Gibbs([variable]), n_draws=300, n_chains=1, n_tune=0, rng=1)
    assert_fits(np.bincount(whole.draws[0, :, 0], minlength=6), law)


def test_poor_expansions_are_corrected():
    """Where what they leave is large, decisions read all factors and are exact; `check_bias` sees that they are."""
    variable, law, _ = own_factors(n=300, n_states=3, seed=3)
    bent = [0.0, 0.7, -0.7]
    wrong = mcmc.Categorical(
        3, variable.factors, 300, log_prior=[0.0, 0.3, 0.0],
        expansions=lambda s, rows, z: variable.expansions(s, rows, z) + np.array(bent)[s] / 300.0,
        expansion_sums=lambda z: variable.expansion_sums(z) + bent)
    kernel = mcmc.RacingGibbs([wrong], 1e-6)
    trace = mcmc.sample(kernel, n_draws=4000, n_chains=1, n_tune=0, rng=2)
    target = law * np.exp([0.0, 0.3, 0.0])
    assert_fits(np.bincount(trace.draws[0, ::4, 0], minlength=3), target / target.sum())
    assert mcmc.check_bias(kernel, trace, n=100, rng=1).n_wrong == 0


def test_runs_with_own_expansions_continue_bit_for_bit(tmp_path):
    kernel = mcmc.RacingGibbs([own_factors()[0], own_factors(seed=1)[0]], 0.05)
    whole = mcmc.sample(kernel, n_draws=60, n_chains=2, rng=1, n_tune=0)
    for n in (20, 60):
        resumed = mcmc.sample(kernel, n_draws=n, n_chains=2, rng=1, n_tune=0, checkpoint=tmp_path / "run", threads=1)
    assert (whole.draws == resumed.draws).all()


def test_bad_expansions_are_refused():
    variable, *_ = own_factors(n=50)
    for words, make in [
        ("belong together", lambda: mcmc.Categorical(6, variable.factors, 50, expansions=variable.expansions)),
        ("residual_support came without", lambda: mcmc.Categorical(6, variable.factors, 50, residual_support=(0, 1))),
        ("residual_support|one value per arm", lambda: replace(variable, residual_support=([0.0] * 5, [1.0] * 5))),
        ("no support", lambda: mcmc.RacingGibbs([variable], bound="betting")),
        ("sizes", lambda: mcmc.Categorical(6, variable.factors, sizes=lambda z: [1] * 6, expansions=variable.expansions,
                                           expansion_sums=variable.expansion_sums)),
        ("support", lambda: mcmc.RacingGibbs([variable], support=(-9.0, 0.0))),
        ("known sums", lambda: mcmc.PoissonMinibatchGibbs([variable], (-9.0, 0.0))),
        ("one finite sum", lambda: mcmc.sample(mcmc.RacingGibbs([mcmc.Categorical(
            6, variable.factors, 50, expansions=variable.expansions, expansion_sums=lambda z: np.full(6, np.nan))]))),
    ]:
        with pytest.raises(ValueError, match=words):
            make()


def test_a_known_interval_of_what_expansions_leave_makes_races_rigorous():
    variable, law, _ = own_factors()
    rows = np.arange(4000)
    left = variable.factors(np.arange(6), rows, None) - variable.expansions(np.arange(6), rows, None)
    known = replace(variable, residual_support=(left.min(axis=0), left.max(axis=0)))
    kernel = mcmc.RacingGibbs([known], 0.01, "betting")
    trace = mcmc.sample(kernel, n_draws=6000, n_chains=1, n_tune=0, rng=1)
    assert_fits(np.bincount(trace.draws[0, ::3, 0], minlength=6), law)
    assert trace.rows.mean() < 0.2 * 2 * 4000 and not kernel.outside
    nothing = {"expansions": lambda states, rows, z: np.zeros((len(rows), len(states))),
               "expansion_sums": lambda z: np.zeros(6)}
    wrong = mcmc.RacingGibbs([replace(variable, residual_support=(-0.01, 0.0), **nothing)], 0.01)
    with pytest.warns(UserWarning, match="outside support"):
        mcmc.sample(wrong, n_draws=20, n_chains=1, n_tune=0, rng=1)


# States that are parameters of a model.


def states_of(family, n=5000, n_states=4, seed=0, at_hat=True):
    """A GLM at states drawn from its posterior about `hat`; the first of them is the point of expansion, if so said."""
    rng = np.random.default_rng(seed)
    hat, X = np.array([0.3, -0.2, 0.5]), rng.standard_normal((n, 3))
    if family == "softmax":
        hat, X = np.array([0.3, -0.2, 0.5, 0.2]), X[:, :2]
        eta = np.column_stack([np.zeros(n), X @ hat[:2], X @ hat[2:]])
        glm = SoftmaxSource(X, np.argmax(eta + rng.gumbel(size=(n, 3)), axis=1), np.zeros((n_states, 4)))
    else:
        glm = GLMSource(X, outcomes(family, X, hat, rng), np.zeros((n_states, 3)), family, **scale_of(family))
    near = TaylorSurrogate(glm, hat)
    glm.theta = rng.multivariate_normal(hat, np.linalg.inv(-np.asarray(near.hessian)), n_states)
    if at_hat:
        glm.theta = np.vstack([hat, glm.theta[1:]])
    law = special.softmax(glm.totals())
    return glm, hat, law


def by_expansions(glm, hat):
    near = TaylorSurrogate(glm, hat)
    return mcmc.Categorical(glm.n_arms, glm, expansions=near, expansion_sums=lambda z: near.totals())


@pytest.mark.parametrize("tail_guard", [True, False])
def test_a_state_at_the_point_of_expansion_is_raced(tail_guard):
    """Its residuals are 0 in every row, known and not merely unseen: the guard used to read all rows there."""
    glm, hat, law = states_of("student-t", n=20_000)
    kernel = mcmc.RacingGibbs([mcmc.Categorical(4, taylor_glm(glm, hat))], 0.01, tail_guard=tail_guard)
    trace = mcmc.sample(kernel, n_draws=2000, n_chains=1, n_tune=0, rng=1)
    assert_fits(np.bincount(trace.draws[0, :, 0], minlength=4), law)
    assert trace.rows.mean() < 0.02 * 4 * 20_000 and trace.full_pass.mean() < 0.02 and not trace.warnings


def test_two_states_at_the_point_of_expansion_differ_by_their_priors_alone():
    glm, hat, _ = states_of("logistic", n_states=2)
    glm.theta = [hat, hat]
    variable = mcmc.Categorical(2, taylor_glm(glm, hat), log_prior=np.log([0.3, 0.7]))
    trace = mcmc.sample(mcmc.RacingGibbs([variable]), n_draws=1000, n_chains=1, n_tune=0, rng=1)
    assert_fits(np.bincount(trace.draws[0, :, 0], minlength=2), [0.3, 0.7])
    assert trace.rows.max() <= 2 * 50


@pytest.mark.parametrize("bound", ["normal", "betting"])
@pytest.mark.parametrize("family", ["logistic", "student-t", "poisson", "softmax"])
def test_races_of_states_about_an_expansion_are_their_twins(family, bound):
    glm, hat, _ = states_of(family, n=1500)
    control = taylor_glm(glm, hat, 0.02)
    left, sums = control.read(np.arange(control.n_rows)), control.shifts()
    kernel = mcmc.RacingGibbs([mcmc.Categorical(4, control)], 0.05, bound, first_look=20)
    growth = {} if bound == "normal" else {"growth": 1.1}       # races for draws look less often than others
    plan = fr.FiniteRace(4, control.n_rows, 0.05, bound, first_look=20, support=(-1, 1), **growth)._options.plan(4)
    known = {} if bound == "normal" else dict(zip(("low", "high"), control.residual_support(), strict=True))
    advantage = control.scan_advantage + (13.0 if bound == "betting" else 0.6) / (control.reward_cost * 4)
    draw = gibbs_twin.Racing([plan], [advantage], bound=bound, still=[0], **known)
    _, steps = kernel.run(np.random.default_rng(5), kernel.init([1]), 150)
    expected = gibbs_twin.sweeps([(lambda z: left, lambda z: sums)], [1], np.random.default_rng(5), 150, draw)
    np.testing.assert_array_equal(steps.draws, expected)
    assert (np.bincount(steps.draws[:, 0], minlength=4) > 0).sum() > 1 and draw.n_raced > 20


@pytest.mark.parametrize("family", ["logistic", "student-t", "poisson", "softmax"])
def test_rigorous_draws_need_no_interval_spelled_for_them(family):
    """Each draw takes the bounds of its parameters: states that move far out are read in full."""
    glm, hat, law = states_of(family, n=20_000)
    factors = mcmc.RacingGibbs([mcmc.Categorical(4, taylor_glm(glm, hat, 0.01))], 0.01, "betting")
    pairs = mcmc.RacingGibbs([by_expansions(glm, hat)], 0.01, "betting")
    for kernel in (factors, pairs):
        trace = mcmc.sample(kernel, n_draws=1500, n_chains=1, n_tune=0, rng=1)
        assert_fits(np.bincount(trace.draws[0, :: 1 if kernel is factors else 3, 0], minlength=4), law)
        assert trace.rows.mean() < 0.2 * 4 * 20_000 and not kernel.outside
    assert mcmc.RacingGibbs([by_expansions(glm, hat)])._engine(pairs.variables[0], [0])[1].bound == "normal"
    if family == "poisson":
        glm.theta = glm.theta + 3.0
        assert factors._engine(factors.variables[0], [0])[0].residual_support()[1].max() == np.inf
        trace = mcmc.sample(factors, n_draws=20, n_chains=1, n_tune=0, rng=1)
        assert trace.full_pass.mean() > 0.5


@pytest.mark.parametrize("family", ["logistic", "student-t", "poisson", "softmax"])
def test_bets_on_residuals_keep_delta_at_ties(family, seed):
    """Offsets that leave one of two states a lead of almost nothing: races that never turn to a full pass."""
    wrong = early = trials = 0
    for child in np.random.SeedSequence(seed).spawn(20):
        rng = np.random.default_rng(child)
        glm, hat, _ = states_of(family, n=1000, n_states=3, seed=child, at_hat=False)
        control = taylor_glm(glm, hat, 0.02)
        low, high = control.residual_support()
        left = control.read(np.arange(control.n_rows))
        assert (low <= left.min(axis=0)).all() and (left.max(axis=0) <= high).all()
        for _ in range(10):
            best = int(rng.integers(3))
            offset = -left.sum(axis=0) + 1e-9 * (np.arange(3) == best)
            offset[(best + 1) % 3] -= 3.0 * left.std() * np.sqrt(control.n_rows)
            race = fr.FiniteRace(3, control.n_rows, 0.1, "betting", support=(low, high), offset=offset,
                                 scan_advantage=1.0, rng=rng)
            result = race.run(left)
            wrong += result.best != best
            early += result.pulls.min() < control.n_rows
            trials += 1
    assert early > 0
    assert_rate_at_most(wrong, trials, 0.1)


# What is said of full passes.


def test_draws_that_read_everything_are_spoken_of():
    rng = np.random.default_rng(6)
    flat = rng.standard_normal((3000, 2))
    flat[:, 1] = flat[rng.permutation(3000), 0]
    still = 0.001 * rng.standard_normal((3000, 2)) * [0.0, 1.0]
    for table, support, words in [(flat, None, "give Categorical expansions"), (still, None, r"\(0, 0\) for one"),
                                  (still, ([0.0, -0.01], [0.0, 0.01]), None)]:
        variable = mcmc.Categorical(2, ArraySource(table), log_prior=[0.0, -2.0])
        kernel = mcmc.RacingGibbs([variable], bound="normal", support=support)
        if words is None:
            trace = mcmc.sample(kernel, n_draws=100, n_chains=1, n_tune=0, rng=1)
            assert trace.full_pass.mean() < 0.2
        else:
            with pytest.warns(UserWarning, match=words):
                trace = mcmc.sample(kernel, n_draws=100, n_chains=1, n_tune=0, rng=1)
            assert trace.full_pass.mean() > 0.9 and any("in most steps" in said for said in trace.warnings)


def test_one_variable_of_many_that_reads_everything_is_no_problem():
    rng = np.random.default_rng(6)
    table = rng.standard_normal((3000, 2))
    dear = mcmc.Categorical(2, ArraySource(table - table.mean(axis=0)))
    cheap = mcmc.Categorical(2, ArraySource(0.001 * table), log_prior=[0.0, 5.0])
    trace = mcmc.sample(mcmc.RacingGibbs([dear, cheap, cheap]), n_draws=100, n_chains=1, n_tune=0, rng=1)
    assert not trace.full_pass.any() and not any("all rows" in said for said in trace.warnings)
