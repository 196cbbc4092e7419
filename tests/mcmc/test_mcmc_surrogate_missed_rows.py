"""Races on surrogates that could miss a few rows that matter: which rows are always read, and what is said."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest

from fastrace import mcmc
from fastrace.mcmc.kernels import _racing, _surrogate_decisions
from fastrace.mcmc.models import _sites
from guarantee import assert_rate_at_most, few_or_many
from reference import surrogate as twin
from surrogates import SEED, far_from_normal, grouped


def with_few_rows_that_matter(grouped=True):
    """A group of 27 rows of one outcome, or a column for them, and a row of great leverage."""
    rng = np.random.default_rng(0)
    X, codes = np.column_stack([np.ones(6000), rng.normal(size=6000)]), rng.integers(0, 5, size=6000)
    X[0, 1], few = 25.0, codes == 4
    codes[few] = np.where(rng.random(few.sum()) < 0.02, 4, 0)
    chance = 1.0 / (1.0 + np.exp(-(X @ [-2.5, 0.3] + np.array([0.3, -0.3, 0.0, 0.4, 0.0])[codes])))
    y = (rng.random(6000) < chance) & (codes != 4)
    return mcmc.GLM(X, y, groups=codes) if grouped else mcmc.GLM(np.column_stack([X, codes == 4]), y, prior_sd=3.0)


def test_a_kernel_says_what_its_pilots_chose():
    model = with_few_rows_that_matter()
    race = mcmc.SurrogateMetropolis(model, decision="race")
    assert race.describe()["rows_always_read"] == len(race._apart) > 0 and race.describe()["size"] == 1.0
    swept = mcmc.SurrogateMetropolis(model)
    assert {"groups_swept": 5, "tilted": True}.items() <= swept.describe().items()
    rng = np.random.default_rng(1)
    X = np.column_stack([np.ones(100), rng.standard_normal((100, 19))])
    walked = mcmc.SurrogateMetropolis(mcmc.GLM(X, np.arange(100) < 3, prior_sd=10.0))
    assert walked.describe()["walks"] == 64 and "groups_swept" not in walked.describe()
    trace = mcmc.sample(walked, n_draws=20, n_chains=2, n_tune=200, rng=1)
    assert trace.kernel["size"] == min(state.tuning.size for state in trace.states) < 1.0
    by_bounds = mcmc.SurrogateMetropolis(model, decision="poisson")
    assert by_bounds.describe().get("bounds_widened", 1.0) == by_bounds._wider
    by_bounds._wider = 3.0
    assert by_bounds.describe()["bounds_widened"] == 3.0


def test_races_that_miss_a_few_rows_are_not_chosen_and_warned_of(monkeypatch):
    model = with_few_rows_that_matter()
    assert not mcmc.SurrogateMetropolis(model, decision="race").decision_advice
    assert not mcmc.SurrogateMetropolis(model, decision="poisson").decision_advice
    with monkeypatch.context() as some:
        some.setattr(_racing, "MOST_APART", 0.001)
        kernel = mcmc.SurrogateMetropolis(model, decision="race")
    with pytest.warns(UserWarning, match="races err more often than delta"):
        mcmc.sample(kernel, n_draws=20, n_chains=2, n_tune=20, rng=1)
    monkeypatch.setattr(_surrogate_decisions, "WORTH", 0.0)
    assert mcmc.SurrogateMetropolis(model).decision == "exact"


def wrong_decisions(kernel, model, inner, steps):
    """How many of a chain's decisions are not those by all rows, and the rows that it read."""
    exact = mcmc.SurrogateMetropolis(model, inner, "exact")
    for name in ("_tilt", "_bend", "_walks", "_stay", *(["_trajectories"] if inner == "hmc" else [])):
        setattr(exact, name, getattr(kernel, name))
    exact._engines = []
    rng, wrong, read = np.random.default_rng(SEED), 0, 0
    state = kernel.init(None, rng)
    for _ in range(steps):
        again = copy.deepcopy(rng)
        _, by_race = kernel.step(again, replace(state, cache=None))
        state, by_all = exact.step(rng, replace(state, cache=None))
        wrong, read = wrong + (by_race.accepted != by_all.accepted), read + by_race.rows
    return wrong, read


@pytest.mark.parametrize(("grouped", "inner"), [(True, "normal"), (True, "hmc"), (False, "normal")])
@few_or_many(("delta", "steps"), (0.01, 3000), (0.001, 60_000))
def test_races_read_the_few_rows_that_matter_and_err_as_promised(grouped, inner, delta, steps):
    model = with_few_rows_that_matter(grouped)
    kernel = mcmc.SurrogateMetropolis(model, inner, "race", delta=delta)
    assert 20 < len(kernel._apart) < 40
    wrong, read = wrong_decisions(kernel, model, inner, steps)
    assert_rate_at_most(wrong, steps, delta)
    assert read < 0.2 * steps * model.n_rows


@few_or_many(("n_few", "delta", "steps"), (90, 0.05, 400), (120, 0.01, 20_000))
def test_first_looks_meet_the_rows_that_matter(n_few, delta, steps):
    """More than are held apart, and still so few that a first look of 50 rows had none of half of the time."""
    rng = np.random.default_rng(0)
    X, own = np.column_stack([np.ones(6000), rng.normal(size=6000)]), np.zeros(6000, dtype=bool)
    own[rng.choice(6000, n_few, replace=False)] = True
    y = (rng.random(6000) < 1.0 / (1.0 + np.exp(2.5 - 0.3 * X[:, 1]))) & ~own
    model = mcmc.GLM(np.column_stack([X, own]), y, prior_sd=3.0)
    kernel = mcmc.SurrogateMetropolis(model, "normal", "race", delta=delta)
    assert kernel._apart is None and kernel._options["first_look"] > 400
    assert mcmc.SurrogateMetropolis(model, "normal", "race", first_look=60)._options["first_look"] == 60
    wrong = wrong_decisions(kernel, model, "normal", steps)[0]
    assert_rate_at_most(wrong, steps, delta)


@pytest.mark.parametrize(("share", "most"), [(0.01, 0.02), (0.3, 0.2), (0.5, 0.02)])
def test_rows_held_apart_are_their_twin(share, most, monkeypatch):
    rng = np.random.default_rng(SEED)
    X, codes, y = far_from_normal(rng, 300)
    model = grouped(X, codes, y)
    hat, spread = np.array(mcmc.compress(model).psi_hat), rng.random(300) + 0.1
    _, ends = _sites._bends(model, hat, spread)
    left = _sites.left_of_rows(model, hat, spread)
    np.testing.assert_array_equal(left, np.maximum(*np.abs(ends)) * spread**2)
    expected = twin.held_apart(left, share, most)
    rows, held = _sites.held_apart(left, share, most)
    assert list(rows) == (expected or [])
    others = np.square(np.delete(left, rows))
    assert held == (0.0 if expected is None else pytest.approx(others.sum() ** 2 / np.square(others).sum() / 300))


@pytest.mark.parametrize("threads", [1, 2])
def test_chains_with_rows_always_read_resume(threads):
    kernel = mcmc.SurrogateMetropolis(with_few_rows_that_matter(), decision="race")
    assert len(kernel._apart) > 1
    whole = mcmc.sample(kernel, n_draws=60, n_chains=2, n_tune=50, rng=3, threads=1).draws
    part = mcmc.sample(pickle.loads(pickle.dumps(kernel)), n_draws=25, n_chains=2, n_tune=50, rng=3, threads=threads)
    rest = mcmc.sample(kernel, pickle.loads(pickle.dumps(part)), n_draws=35, threads=threads)
    np.testing.assert_array_equal(whole, np.concatenate([part.draws, rest.draws], axis=1))
