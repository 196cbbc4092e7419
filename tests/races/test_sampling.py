"""Draws from discrete distributions: their law, their promise, their memory."""

import copy
import gc
import pickle
import sys

import numpy as np
import pytest

import fastrace as fr
from guarantee import assert_fits, assert_rate_at_most, few_or_many
from reference.draws import gumbel
from resident import assert_grows_at_most


def law(log_factors, log_prior=0.0):
    weights = log_factors.sum(axis=0) + log_prior
    p = np.exp(weights - weights.max())
    return p / p.sum()


@pytest.mark.parametrize("n_draws", [100_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_draws_that_read_everything_are_exact(n_draws, seed):
    values = np.random.default_rng(seed).normal(size=(40, 8)) * 0.15
    sampler = fr.DiscreteSampler(values, log_prior=np.linspace(0, 1, 8), first_look=40, rng=seed)
    counts = np.bincount(sampler.draw_many(n_draws), minlength=8)
    assert_fits(counts, law(values, np.linspace(0, 1, 8)))
    assert sampler.stats.fraction_exact == 1.0


@pytest.mark.parametrize("n_draws", [4000, pytest.param(1_000_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("bound", ["normal", "betting", "serfling"])
@pytest.mark.parametrize("order", ["random", "given"])
def test_total_variation_is_at_most_delta(bound, order, n_draws, seed):
    """Beyond delta only by what the draws scatter: each state's share is tested against its share plus delta."""
    delta, n_rows = 0.05, 2000
    rng = np.random.default_rng(seed)
    values = rng.permutation(rng.normal(size=(n_rows, 5)) * 0.02)
    support = (values.min(axis=0), values.max(axis=0))
    sampler = fr.DiscreteSampler(values, bound=bound, delta=delta, order=order, support=support, rng=seed)
    shares = np.bincount(sampler.draw_many(n_draws), minlength=5) / n_draws
    distance = 0.5 * np.abs(shares - law(values)).sum()
    scatter = 0.5 * np.sqrt(5 / n_draws) + np.sqrt(np.log(1e6) / (2 * n_draws))     # mean, and tail by McDiarmid
    assert distance <= delta + scatter


def test_easy_draws_read_little_and_agree_with_exact_ones(seed):
    """The same noise gives the same state, raced or exact, but for one draw in 1 / delta."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(20_000, 4)) * 1e-4
    sampler = fr.DiscreteSampler(values, delta=0.01, rng=seed)
    exact = fr.DiscreteSampler(values, delta=0.01, first_look=20_000, rng=seed)
    differ = 0
    for _ in range(500):
        sampler._core.rng.bit_generator.state = exact._core.rng.bit_generator.state
        differ += sampler.draw() != exact.draw()
    assert differ <= 20
    assert sampler.stats.fraction_read < 0.2


@pytest.mark.parametrize("share", [1 / 50, 1 / 100, 1 / 500])
def test_draws_keep_delta_where_few_rows_carry_a_state(share, seed):
    """Two states of nearly equal sums, one of them of rare large factors: each draw equals the exact one."""
    trials, delta, n_rows, wrong = 60, 0.05, 10_000, dict.fromkeys((False, True), 0)
    for child in np.random.SeedSequence(seed).spawn(trials):
        rng = np.random.default_rng(child)
        rare = np.zeros(n_rows)
        rare[rng.choice(n_rows, round(n_rows * share), replace=False)] = 0.01 / share
        values = np.column_stack([rng.normal(0.008, 0.001, n_rows), rare])
        exact = fr.DiscreteSampler(values, first_look=n_rows, rng=child).draw()
        for guard, options in ((True, {}), (False, {"tail_guard": False})):
            wrong[guard] += fr.DiscreteSampler(values, delta=delta, rng=child, **options).draw() != exact
    assert wrong[False] > 2 * delta * trials
    assert_rate_at_most(wrong[True], trials, delta)


def test_draws_equal_the_plain_gumbel_trick(seed):
    values = np.random.default_rng(seed).normal(size=(30, 6))
    ours = fr.DiscreteSampler(values, first_look=30, rng=seed).draw_many(200)
    rng, theirs = np.random.default_rng(seed), []
    sums = values.sum(axis=0)
    for _ in range(200):
        theirs.append(int(np.argmax(sums + [gumbel(rng) for _ in range(6)])))
    np.testing.assert_array_equal(ours, theirs)


def test_states_without_prior_are_never_drawn(rng):
    values = rng.normal(size=(200, 4))
    sampler = fr.DiscreteSampler(values, log_prior=[0.0, -np.inf, 0.0, -np.inf], rng=1)
    assert set(sampler.draw_many(200)) <= {0, 2}
    sampler.log_prior = [-np.inf, -np.inf, -np.inf, 3.0]
    assert set(sampler.draw_many(10)) == {3}
    with pytest.raises(ValueError, match="every arm"):
        sampler.log_prior = -np.inf
    assert set(sampler.draw_many(10)) == {3}


def test_draws_follow_a_source_whose_terms_change():
    class Terms:
        shift = np.zeros(3)

        def __call__(self, arms, rows):
            return np.broadcast_to(self.shift[arms] / 500, (rows.size, arms.size))

    terms = Terms()
    sampler = fr.DiscreteSampler(terms, n_arms=3, n_rows=500, rng=1)
    for best in range(3):
        terms.shift = np.where(np.arange(3) == best, 200.0, 0.0)
        assert set(sampler.draw_many(20)) == {best}


def test_same_seed_same_draws_however_they_are_asked_for(rng):
    values = rng.normal(size=(5000, 4)) * 1e-3
    whole = fr.DiscreteSampler(values, rng=5).draw_many(60)
    sampler = fr.DiscreteSampler(values, rng=5)
    np.testing.assert_array_equal(whole, [sampler.draw() for _ in range(60)])
    np.testing.assert_array_equal(whole, fr.DiscreteSampler(values, rng=5).draw_many(60, progress=True))
    assert sampler.stats.n_draws == 60
    assert "60 draws" in str(sampler.stats)


def test_bad_arguments_are_named(rng):
    values = rng.normal(size=(100, 3))
    for options, words in [
        ({"log_prior": [0.0, 1.0]}, "log_prior has shape"),
        ({"log_prior": np.nan}, "log_prior is nan"),
        ({"delta": 2.0}, "delta is 2.0"),
        ({"bound": "betting"}, "needs support"),
    ]:
        with pytest.raises(ValueError, match=words):
            fr.DiscreteSampler(values, **options)
    with pytest.raises(ValueError, match="size is -1"):
        fr.DiscreteSampler(values).draw_many(-1)
    assert fr.DiscreteSampler(values).draw_many(0).size == 0
    values[:, 1] = np.nan
    with pytest.raises(ValueError, match="arm 1 on row"):
        fr.DiscreteSampler(values, rng=1).draw()


def test_a_sampler_pickles_and_goes_on(rng):
    values = rng.normal(size=(5000, 4)) * 1e-3
    sampler = fr.DiscreteSampler(values, rng=5)
    sampler.draw_many(7)
    copies = [pickle.loads(pickle.dumps(sampler)), copy.deepcopy(sampler)]
    expected = sampler.draw_many(30)
    for other in copies:
        np.testing.assert_array_equal(other.draw_many(30), expected)
        assert other.stats.n_draws == 37


def test_a_sampler_pickles_after_an_exact_draw(rng):
    sampler = fr.DiscreteSampler(rng.normal(size=(100_000, 3)), rng=1)
    sampler.draw_many(3)
    other = pickle.loads(pickle.dumps(sampler))
    np.testing.assert_array_equal(sampler.draw_many(5), other.draw_many(5))


def test_the_cost_of_a_draw_does_not_grow(rng):
    """Each draw has another leader; what earlier draws have compared must not be carried along."""
    sampler = fr.DiscreteSampler(rng.normal(size=(2000, 1000)) * 1e-3, rng=1)
    sampler.draw_many(100)
    assert_grows_at_most(3_000_000, lambda: sampler.draw_many(600))


def test_warnings_of_all_draws_are_kept(rng):
    values = rng.random((3000, 2)) * 1e-5
    values[5, 0] = 1e-4
    with pytest.raises(ValueError, match="reward of arm 0 on row 5 .* outside support="):
        fr.DiscreteSampler(values, support=(0, 1e-5), rng=0).draw_many(2000)
    sampler = fr.DiscreteSampler(values, support=(0, 1e-5), outside="warn", rng=0)
    sampler.draw_many(2000)
    assert any("outside the support" in warning for warning in sampler.stats.warnings)


def test_what_a_source_always_reads_counts(rng):
    from fastrace.control_variates import ControlVariate

    values = rng.random((6, 3)) + [0, 0, 5.0]
    zeros = fr.sources.ArraySource(np.zeros_like(values))
    control = ControlVariate(fr.sources.ArraySource(values), zeros, always_read=np.arange(6))
    result = fr.race(control, rng=1)
    assert (result.best, result.fraction_read) == (2, 1.0)
    sampler = fr.DiscreteSampler(control, rng=1)
    assert_fits(np.bincount(sampler.draw_many(2000), minlength=3), law(values))
    assert sampler.stats.evaluations == 2000 * 18

    for bad, words in [(np.nan, "known part of the sum of arm 1 is nan"), (np.inf, "arm 1 is inf")]:
        spoilt = values.copy()
        spoilt[3, 1] = bad
        control = ControlVariate(fr.sources.ArraySource(spoilt), zeros, always_read=np.arange(6))
        with pytest.raises(ValueError, match=words):
            fr.race(control, rng=1)
    spoilt[3, 1] = -np.inf
    control = ControlVariate(fr.sources.ArraySource(spoilt), zeros, always_read=[2, 3])
    assert fr.race(control, rng=1).best == 2
    spoilt[3] = [-np.inf, -np.inf, 0.0]
    assert fr.race(control, rng=1).stopped_by == "single"
    race = fr.FiniteRace(3, 4, first_look=2, rng=1)
    arms, rows = race.ask()
    race.tell(control.read(rows, arms))
    if not race.done:
        with pytest.raises(ValueError, match="known part|knows part"):
            race.run(control)


@pytest.mark.resources
@few_or_many("draws", 100_000, 1_000_000)
def test_many_races_take_no_memory(draws, rng):
    """A block has 16 bytes at least: one lost in each draw, or in each race, is more than is let pass."""
    sampler = fr.DiscreteSampler(rng.normal(size=(200, 3)) * 1e-6, rng=1)
    values = rng.normal(size=(200, 3))
    sampler.draw_many(10_000)
    for _ in range(200):
        fr.race(values, rng=1)
    gc.collect()
    blocks = sys.getallocatedblocks()

    def many():
        for _ in range(10):
            sampler.draw_many(draws // 10)
        for _ in range(draws // 250):
            fr.race(values, rng=1)

    assert_grows_at_most(1_500_000, many)
    assert sys.getallocatedblocks() - blocks < draws // 500


def test_what_draws_found_are_fields_of_the_stats(rng):
    def found(values, **options):
        sampler = fr.DiscreteSampler(values, rng=1, **options)
        sampler.draw_many(50)
        stats = sampler.stats
        return {name for name in ("outside", "constant", "held_back", "skewed", "impossible") if getattr(stats, name)}

    plain = rng.normal(size=(3000, 3)) * 1e-3
    assert found(plain) == set()
    assert found(plain, support=(-1e-3, 1e-3), outside="warn") >= {"outside"}
    rare = np.where(rng.random((20_000, 3)) < [1e-2, 2e-2, 5e-2], 0.1, 0.0)
    assert found(rare, first_look=10, tail_guard=False) >= {"constant"}
    skewed = rng.lognormal(0, 1.5, (4000, 3)) * [1.0, 1.01, 0.7] / 40
    assert found(skewed) >= {"held_back"}
    losses = rng.normal(size=(20_000, 3)) * 0.01
    losses[:, 0] += 1.0 - 15.0 * (rng.random(20_000) < 0.01)
    assert found(losses, tail_guard=False) >= {"skewed"}
    assert found(np.where(np.arange(3) == 0, -np.inf, plain)) == {"impossible"}
