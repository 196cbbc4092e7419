"""Races over rows in proportion to bounds on their terms: the twin, the promise, rounding, when they pay."""

import numpy as np
import pytest

from chains import counts, logistic, shifted
from fastrace import bounds, mcmc
from fastrace.control_variates import TaylorSurrogate
from fastrace.races._weighted import AliasTable, _verdicts
from fastrace.sources import ArraySource
from guarantee import assert_rate_at_most
from populations import POPULATIONS
from reference import mcmc as twin


@pytest.mark.parametrize("advantage", [1.0, 2.5])
def test_chains_by_weighted_races_are_their_twin(advantage):
    X, y = logistic(300, 3, 1)
    model = mcmc.GLM(X, y, prior_sd=3.0)
    reference = model.reference()
    plain = twin.Logistic(X, y, reference)
    kernel = mcmc.RacingMetropolis(model, 0.1, control_variate=reference, size=0.8, scan_advantage=advantage)
    assert kernel.bound == "betting"
    state = kernel.init(reference.center + 0.01)
    _, steps = kernel.run(np.random.default_rng(4), state, 250)
    decide = twin.weighted_decision(plain, 0.1, bounds.looks(300, 16, 1.1), advantage)
    expected = twin.chain(plain, state.whitened, np.random.default_rng(4), 250, decide=decide, size=0.8,
                          walk=2.38 / np.sqrt(3), walk_share=0.1)
    raced = (steps.rows > 0) & ~steps.full_pass
    assert raced.sum() > 50 and len(set(steps.rows[raced])) > 5 and steps.full_pass.any()
    np.testing.assert_allclose(steps.draws, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", ["normal", "lognormal", "1 in 100", "1 in 1000", "two points"])
def test_weighted_races_keep_their_promise_whatever_the_rows(kind):
    """At a tie, where one gambler may be wrong at any look, over any population and any bounds on its rows."""
    trials, delta, n = 500, 0.05, 2000
    wrong = given_up = 0
    for child, loose in zip(np.random.SeedSequence(7).spawn(3), (0.0, 0.5, 3.0), strict=True):
        rng = np.random.default_rng(child)
        d = POPULATIONS[kind](n, rng)
        table = AliasTable((np.abs(d) + 1e-6 * np.ptp(d)) * np.exp(loose * np.abs(rng.standard_normal(n))))
        source = ArraySource(np.stack([np.zeros(n), d], axis=1))
        for side in (1, -1):
            near = d.sum() - side * 1e-9 * np.ptp(d)
            verdicts = _verdicts(source, table, bounds.looks(n, 16, 1.1), delta, near, 1.0, rng, trials)
            wrong += sum(verdict == (side < 0) for verdict, _ in verdicts)
            given_up += sum(verdict < 0 for verdict, _ in verdicts)
    assert_rate_at_most(wrong, 6 * trials, delta)
    assert given_up > trials


def test_weighted_races_at_a_tie_turn_to_the_full_pass_before_they_have_drawn_as_many_rows():
    """Draws with replacement make nothing exact: once they will not do, each further one is lost."""
    n, rng = 2000, np.random.default_rng(3)
    d = rng.standard_normal(n)
    source = ArraySource(np.stack([np.zeros(n), d], axis=1))
    verdicts = _verdicts(source, AliasTable(np.abs(d) + 0.5), bounds.looks(n, 16, 1.1), 0.05, d.sum(), 1.0, rng, 300)
    drawn = np.array([rows for verdict, rows in verdicts if verdict < 0])
    assert len(drawn) > 200 and drawn.mean() < 0.4 * n


def test_chains_over_python_terms_turn_to_the_full_pass_where_a_race_does_not_pay():
    n, rng = 2000, np.random.default_rng(0)
    X = rng.standard_normal((n, 3))
    y = (rng.random(n) < 1.0 / (1.0 + np.exp(-X @ np.full(3, 0.5)))).astype(float)

    def terms(theta, rows):
        return twin.log_terms("logistic", X[rows], y[rows], theta)

    def derivatives(theta, rows):
        x, p = X[rows], 1.0 / (1.0 + np.exp(-X[rows] @ theta))
        return (y[rows] - p)[:, None] * x, -(p * (1.0 - p))[:, None, None] * x[:, :, None] * x[:, None, :]

    third = np.linalg.norm(X, axis=1).max() ** 3 / (6.0 * np.sqrt(3.0))
    model = mcmc.FunctionModel(terms, 3, n, derivatives=derivatives, third_derivatives=third)
    trace = mcmc.sample(mcmc.RacingMetropolis(model, bound="betting"), n_draws=3000, n_chains=1, rng=1)
    raced_in_vain = trace.rows[trace.undecided]
    assert len(raced_in_vain) > 10 and raced_in_vain.mean() < 1.5 * n


def test_weighted_races_refuse_a_row_beyond_its_bound():
    d = np.ones(100)
    source = ArraySource(np.stack([np.zeros(100), d], axis=1))
    with pytest.raises(ValueError, match=r"row \d+ are 0.0 now and 1.0 for the proposal; .* at most 0.5"):
        _verdicts(source, AliasTable(d), [100], 0.05, 0.0, 0.5, np.random.default_rng(1), 1)


@pytest.mark.parametrize("kernel", [mcmc.RacingMetropolis, mcmc.PoissonMinibatchMetropolis, mcmc.FireflyMetropolis])
@pytest.mark.parametrize("make", [counts, shifted])
def test_rounding_of_large_terms_is_not_taken_for_a_wrong_bound(make, kernel):
    k = kernel(make())
    assert isinstance(k, mcmc.RacingMetropolis) <= (getattr(k, "bound", None) == "betting")
    trace = mcmc.sample(k, k.reference.center, n_draws=3000, n_chains=1, rng=1, progress=False)
    assert trace.rows.sum() > 0
    sd = np.sqrt(np.diag(k.reference.factor @ k.reference.factor.T))
    np.testing.assert_allclose(trace.draws[0].std(axis=0), sd, rtol=0.2)


def test_references_know_how_far_terms_round():
    X, y = logistic(300, 3)
    glm = counts(300)
    for model in (mcmc.GLM(X, y, prior_sd=2.0), mcmc.Softmax(X, y.astype(int), prior_sd=2.0), glm, shifted(300)):
        reference = model.reference()
        source, theta = model.engine(None)
        theta[0] = reference.theta_hat
        largest = np.abs(source.read(np.arange(300), [0])).max()
        assert reference.rounding == pytest.approx(2e-13 * (1.0 + largest), rel=1e-12)
    surrogate = TaylorSurrogate(glm._glm, glm.reference().theta_hat)
    assert surrogate.rounding == glm.reference().rounding


def test_the_rule_behind_auto():
    """Rigorous where bounds are known and small; the normal rule where they are large or unknown."""
    X, y = logistic(400, 2)
    assert mcmc.RacingMetropolis(mcmc.GLM(X, y, prior_sd=2.0)).bound == "betting"
    assert mcmc.RacingMetropolis(mcmc.GLM(X, y, prior_sd=2.0), bound="normal").bound == "normal"
    assert mcmc.RacingMetropolis(mcmc.GLM(*logistic(300, 40), prior_sd=2.0)).bound == "normal"
    assert mcmc.RacingMetropolis(mcmc.GLM(X, y, prior_sd=2.0), control_variate=None).bound == "normal"
    assert mcmc.RacingSlice(mcmc.GLM(X, y, prior_sd=2.0)).bound == "betting"


def test_alias_table_has_the_probabilities_asked_for():
    rng = np.random.default_rng(0)
    for weights in (rng.random(1000), rng.lognormal(0, 3, 500), [1.0], [0.0, 2.0, 0.0, 1.0], np.ones(7)):
        table = AliasTable(weights)
        np.testing.assert_allclose(table.probabilities(), np.asarray(weights) / np.sum(weights), atol=1e-14)
        keep, other = twin.alias_table(weights)
        again = np.array(keep) / len(keep)
        np.add.at(again, other, (1.0 - np.array(keep)) / len(keep))
        np.testing.assert_allclose(again, np.asarray(weights) / np.sum(weights), atol=1e-14)
    for bad in ([], [-1.0], [np.nan], [[1.0]]):
        with pytest.raises(ValueError, match="weights"):
            AliasTable(bad)
