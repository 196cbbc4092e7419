"""The finite-population race: against its twin, at its edges, and what its rewards cost."""

import copy
import pickle

import numpy as np
import pytest

import fastrace as fr
from by_hand import RULES, drive, same
from fastrace.races._options import RIGOROUS
from guarantee import few_or_many
from reference import racing as twin
from reference.draws import Order, Window


@pytest.mark.parametrize("order", ["random", "given"])
@pytest.mark.parametrize("bound", RULES)
@pytest.mark.parametrize("variance", ["pairwise", "marginal"])
@pytest.mark.parametrize("n_arms", [2, 5])
def test_race_equals_its_twin(bound, variance, order, n_arms, seed):
    if bound == "betting" and variance == "marginal":
        pytest.skip("bets are placed on paired differences only")
    for child in np.random.SeedSequence([seed, n_arms]).spawn(4 if bound == "betting" else 12):
        rng = np.random.default_rng(child)
        values = rng.random((400, n_arms)) + rng.random(n_arms) * rng.choice([0.0, 0.1, 0.5])
        offset = rng.normal(size=n_arms) * 10
        support = (values.min(axis=0), values.max(axis=0))
        race = fr.FiniteRace(n_arms, 400, 0.1, bound, variance, 20, support=support, offset=offset, order=order,
                             scan_advantage=1.0, skewness_guard=bool(rng.random() < 0.5), rng=copy.deepcopy(rng))
        looks, quantiles, log_inv_delta = race._options.plan(n_arms)
        ours = race.run(values)
        theirs = twin.race(values, looks, quantiles, log_inv_delta, bound=bound, pairwise=variance == "pairwise",
                           order=Order(400) if order == "random" else Window(400), rng=rng, offset=offset,
                           low=support[0], high=support[1], guarded=race._options.skewness_guard)
        assert (ours.best, ours.stopped_by, ours.n_looks) == (theirs.best, theirs.stopped_by, theirs.n_looks)
        np.testing.assert_array_equal(ours.pulls, theirs.pulls)


def skewed_columns(n_rows, n_arms, rng):
    """Columns of different laws: some of which few values carry the mean, some that are zero but for a few rows."""
    laws = [lambda: rng.normal(size=n_rows), lambda: rng.exponential(size=n_rows),
            lambda: -rng.exponential(size=n_rows),
            lambda: rng.lognormal(0, 2, n_rows) / 8, lambda: (rng.random(n_rows) < 0.02) * rng.exponential(50, n_rows),
            lambda: (rng.random(n_rows) < 0.02) * -rng.exponential(50, n_rows), lambda: np.full(n_rows, 0.5)]
    return np.column_stack([laws[k]() for k in rng.integers(len(laws), size=n_arms)]) + rng.normal(size=n_arms)


@pytest.mark.parametrize("advantage", [1.0, 6.0])
@pytest.mark.parametrize(("variance", "bounded"), [("pairwise", False), ("marginal", False), ("pairwise", True)])
def test_tail_guard_equals_the_twin(variance, bounded, advantage, seed):
    """Where a support is known it bounds what an arm hides whose rewards have all been equal."""
    held = full = 0
    for child in np.random.SeedSequence(seed).spawn(100):
        rng = np.random.default_rng(child)
        n_arms = int(rng.integers(2, 5))
        values = skewed_columns(2000, n_arms, rng)
        ends = (values.min(axis=0), values.max(axis=0)) if bounded else (None, None)
        race = fr.FiniteRace(n_arms, 2000, 0.05, "normal", variance=variance, support=ends if bounded else None,
                             scan_advantage=advantage, rng=copy.deepcopy(rng))
        looks, quantiles, log_inv_delta = race._options.plan(n_arms)
        ours = race.run(values)
        theirs = twin.race(values, looks, quantiles, log_inv_delta, bound="normal", pairwise=variance == "pairwise",
                           order=Order(2000), rng=rng, tails=True, advantage=advantage, low=ends[0], high=ends[1])
        assert (ours.best, ours.stopped_by, ours.n_looks) == (theirs.best, theirs.stopped_by, theirs.n_looks)
        np.testing.assert_array_equal(ours.pulls, theirs.pulls)
        held += ours.held_back.size > 0
        full += ours.n_looks < looks.size and ours.stopped_by == "exact"
        decided = not (ours.pulls == 2000).all()
        assert (ours.held_back.size > 0 and decided) == any("held back" in text for text in ours.warnings)
    assert held > 10
    assert (full > 10) == (advantage > 1)


def test_turning_to_a_full_pass_equals_the_twin(seed):
    turned = 0
    for child in np.random.SeedSequence(seed).spawn(30):
        rng = np.random.default_rng(child)
        values = rng.standard_normal((3000, 3))
        race = fr.FiniteRace(3, 3000, 0.1, "normal", scan_advantage=6.0, rng=copy.deepcopy(rng))
        looks, quantiles, log_inv_delta = race._options.plan(3)
        ours = race.run(values)
        theirs = twin.race(values, looks, quantiles, log_inv_delta, bound="normal", pairwise=True, order=Order(3000),
                           rng=rng, advantage=6.0)
        assert (ours.best, ours.stopped_by, ours.n_looks) == (theirs.best, theirs.stopped_by, theirs.n_looks)
        turned += ours.stopped_by == "exact" and ours.n_looks < looks.size
    assert turned > 5


@pytest.mark.parametrize("bound", RULES)
@pytest.mark.parametrize("advantage", [1.0, 5.0])
def test_ask_and_tell_equals_run(bound, advantage, rng):
    values = rng.random((3000, 4)) + [0.0, 0.02, 0.0, 0.05]
    made = [fr.FiniteRace(4, 3000, 0.05, bound, support=(0, 1.05), scan_advantage=advantage, rng=7) for _ in range(2)]
    same(drive(made[0], values), made[1].run(values))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_same_answer_for_any_layout(dtype, rng):
    values = rng.random((2000, 6)).astype(dtype)
    expected = fr.race(values, rng=3)
    for other in (np.asfortranarray(values), values[::-1].copy()[::-1], values.astype(np.float64)):
        got = fr.race(other, rng=3)
        same(got, expected)


def test_exhaustive_race_is_exact(rng):
    for _ in range(200):
        values = rng.standard_normal((60, 5))
        assert fr.race(values, first_look=60, rng=rng).best == values.mean(axis=0).argmax()
        result = fr.race(values, bound="hoeffding-serfling", support=(-1e3, 1e3), rng=rng)
        assert result.best == values.mean(axis=0).argmax()
        assert result.stopped_by == "exact"
        assert result.fraction_read == 1.0
        np.testing.assert_allclose(result.mean, values.mean(axis=0), atol=1e-12)
        np.testing.assert_array_equal(result.half_width, 0.0)


@few_or_many("instances", 1500, 10_000)
def test_finite_population_is_exact_at_the_end(instances, rng):
    for _ in range(instances):
        n, d = rng.integers(1, 30), rng.integers(1, 5)
        values = rng.integers(0, 3, size=(n, d)).astype(float)
        result = fr.race(values, bound="hoeffding-serfling", support=(0, 1e6), first_look=2, rng=rng)
        sums = values.sum(axis=0)
        assert sums[result.best] == sums.max()
        assert result.pulls.sum() <= n * d
        if d > 1:
            assert result.best == sums.argmax()     # ties: the lowest index


@pytest.mark.parametrize("bound", RULES)
def test_permuted_arms_give_permuted_answers(bound, rng):
    values = rng.random((500, 5)) + np.linspace(0, 0.4, 5)
    order = rng.permutation(5)
    one = fr.race(values, bound=bound, support=(0, 1.4), rng=5)
    other = fr.race(values[:, order], bound=bound, support=(0, 1.4), rng=5)
    assert order[other.best] == one.best
    np.testing.assert_array_equal(one.pulls[order], other.pulls)


@pytest.mark.parametrize("bound", RULES)
@pytest.mark.parametrize(("low", "high"), [(0, 10), (-5, 5), (1e6, 1e6 + 1), (-1e-6, 1e-6)])
def test_affine_invariance(bound, low, high, rng):
    x = rng.random((2000, 4)) * 0.8 + [0.0, 0.2, 0.1, 0.05]
    one = fr.race(x, bound=bound, support=(0, 1), rng=2)
    other = fr.race(low + (high - low) * x, bound=bound, support=(low, high), rng=2)
    assert one.best == other.best
    np.testing.assert_array_equal(one.pulls, other.pulls)
    np.testing.assert_allclose(other.mean, low + (high - low) * one.mean, rtol=1e-9)


# Edges.


def test_one_arm_needs_no_draws():
    result = fr.race(np.zeros((10, 1)))
    assert (result.best, result.pulls[0], result.stopped_by) == (0, 0, "single")


@pytest.mark.filterwarnings("error")        # nor is anything divided by their number
def test_no_rows_leaves_the_offsets():
    with pytest.raises(ValueError, match="0 rows"):
        fr.race(np.zeros((0, 3)))
    result = fr.race(np.zeros((0, 3)), offset=[1.0, 3.0, 2.0])
    assert (result.best, result.stopped_by, result.fraction_read) == (1, "exact", 0.0)


@pytest.mark.parametrize("n_rows", [1, 2, 49, 50, 51])
def test_few_rows_are_one_exact_look(n_rows, rng):
    values = rng.standard_normal((n_rows, 3))
    result = fr.race(values, rng=1)
    assert result.best == values.mean(axis=0).argmax()
    if n_rows <= 50:
        assert (result.stopped_by, result.n_looks) == ("exact", 1)


def test_offset_of_minus_infinity_takes_an_arm_out(rng):
    values = rng.random((1000, 3)) + [0.0, 0.1, 5.0]
    result = fr.race(values, offset=[0.0, 0.0, -np.inf], rng=1)
    assert result.best == 1
    assert (result.pulls[2], result.mean[2]) == (0, -np.inf)
    # Two arms are left: the quantile is the one for two.
    assert fr.race(values[:, :2], rng=1).n_looks == result.n_looks
    with pytest.raises(ValueError, match="every arm"):
        fr.race(values, offset=-np.inf)


def test_a_reward_of_minus_infinity_takes_an_arm_out(rng):
    values = rng.random((1000, 3)) + [0.0, 0.0, 0.2]
    values[:, 2] = -np.inf
    values[::2, 1] = -np.inf
    for order in ("random", "given"):
        result = fr.race(values, order=order, rng=1)
        assert result.best == 0
        assert "-inf" in result.warnings[0]
    values[:] = -np.inf
    with pytest.raises(ValueError, match="every arm still in the race"):
        fr.race(values, rng=1)


@pytest.mark.parametrize("order", ["random", "given"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("advantage", [1.0, 50.0])
def test_bad_reward_names_its_place_and_changes_nothing(bad, order, advantage, rng):
    good = rng.random((5000, 3)) * 1e-3
    spoilt = good.copy()
    spoilt[rng.permutation(5000)[:20], 1] = bad
    race = fr.FiniteRace(3, 5000, order=order, scan_advantage=advantage, rng=4)
    with pytest.raises(ValueError, match=f"reward of arm 1 on row .* is {bad}") as caught:
        race.run(spoilt)
    row = int(str(caught.value).split("row ")[1].split()[0])
    assert not np.isfinite(spoilt[row, 1])
    expected = fr.FiniteRace(3, 5000, order=order, scan_advantage=advantage, rng=4).run(good)
    same(race.run(good), expected)


def test_ties_go_to_the_lowest_index(rng):
    column = rng.random(300)
    assert fr.race(np.column_stack([column] * 3), rng=1).best == 0


def test_constant_rewards_end_exactly():
    result = fr.race(np.tile([0.1, 0.3, 0.2], (1000, 1)), rng=1)
    assert (result.best, result.stopped_by) == (1, "exact")
    assert result.warnings == ()                  # no decision rests on a look without spread
    for bound in RIGOROUS:
        result = fr.race(np.tile([0.1, 0.9, 0.2], (1000, 1)), bound=bound, support=(0, 1), rng=1)
        assert result.best == 1
        assert np.isfinite(result.mean).all()
    # Bets are placed on what shows no spread: the rows needed grow as the support over the gap, not with n_rows.
    for gap, most in [(0.1, 400), (0.01, 3200)]:
        result = fr.race(np.tile([0.5, 0.5 + gap], (100_000, 1)), support=(0, 1), rng=1)
        assert (result.best, result.stopped_by) == (1, "bound")
        assert result.pulls.max() <= most, (gap, result.pulls)


@pytest.mark.parametrize("bound", RIGOROUS)
def test_rewards_outside_the_support_are_refused_or_told(bound, rng):
    values = rng.random((1000, 2)) + [0.0, 0.5]
    race = fr.FiniteRace(2, 1000, bound=bound, support=(0, 1), rng=1)
    with pytest.raises(ValueError, match="reward of arm 1 on row .* outside support=") as caught:
        race.run(values)
    row = int(str(caught.value).split("row ")[1].split()[0])
    assert values[row, 1] > 1
    same(race.run(values - [0.0, 0.5]), fr.FiniteRace(2, 1000, bound=bound, support=(0, 1), rng=1).run(
        values - [0.0, 0.5]))
    result = fr.race(values, bound=bound, support=(0, 1), outside="warn", rng=1)
    assert any("outside the support" in warning for warning in result.warnings)
    slightly = np.minimum(values, 1.0) * (1 + 1e-12)        # rounding is no offence
    assert not fr.race(slightly, bound=bound, support=(0, 1), rng=1).warnings
    with pytest.raises(ValueError, match="outside is 'clip'"):
        fr.race(values, bound=bound, support=(0, 1), outside="clip")
    assert not fr.race(values, bound=bound, support=(0, 1.5), rng=1).warnings


def test_rewards_of_wrong_shape_change_nothing(rng):
    values = rng.random((1000, 2)) + [0, 0.2]
    race = fr.FiniteRace(2, 1000, rng=1)
    with pytest.raises(ValueError, match="before ask"):
        race.tell(values[:50])
    arms, rows = race.ask()
    for wrong in (values[:49], values[:50, :1], values[0], values[:50].astype(complex), None, "x"):
        with pytest.raises((ValueError, TypeError)):
            race.tell(wrong)
    np.testing.assert_array_equal(race.ask()[1], rows)
    same(drive(race, values), fr.FiniteRace(2, 1000, rng=1).run(values))
    with pytest.raises(ValueError, match="over"):
        race.ask()
    with pytest.raises(ValueError, match="over"):
        race.tell(values)


# What rewards cost.


@pytest.mark.parametrize("bound", ["normal", "betting"])
def test_a_function_is_never_asked_for_more_than_the_promise_needs(bound, seed):
    """A reward from a Python function costs what it costs: the race may not read all to save its own work."""
    for child in np.random.SeedSequence(seed).spawn(10):
        values = np.random.default_rng(child).random((20_000, 4)) + [0.0, 0.012, 0.0, 0.01]
        asked = []

        def rewards(arms, rows, values=values, asked=asked):
            asked.append(arms.size * rows.size)
            return values[np.ix_(rows, arms)]

        by_run = fr.race(rewards, 0.05, bound, n_arms=4, n_rows=20_000, support=(0, 1.1), rng=child)
        by_hand = drive(fr.FiniteRace(4, 20_000, 0.05, bound, support=(0, 1.1), rng=child), values)
        same(by_run, by_hand)
        assert sum(asked) == by_run.pulls.sum()


@pytest.mark.parametrize("order", ["random", "given"])
@pytest.mark.parametrize("bound", RULES)
@pytest.mark.parametrize("advantage", [1.0, 8.0])
def test_a_budget_ends_the_race(bound, advantage, order, rng):
    values = rng.random((4000, 4)) * [1.0, 1.0, 1.0, 0.4] + [0.0, 0.01, 0.0, 0.0]
    options = {"support": (0, 1.01), "order": order, "scan_advantage": advantage}
    seen = set()
    for budget in (4, 5, 207, 1000, 3333, 9000, 12_000, 16_000, 40_000):
        asked = [0]

        def rewards(arms, rows, asked=asked):
            asked[0] += arms.size * rows.size
            return values[np.ix_(rows, arms)]

        race = fr.FiniteRace(4, 4000, 0.05, bound, max_pulls=budget, rng=5, **options)
        result = race.run(fr.sources.CallableSource(rewards, 4, 4000))
        assert result.pulls.sum() <= asked[0] <= budget
        assert race.done
        seen.add(result.stopped_by)
        if result.stopped_by == "max_pulls":
            assert budget - asked[0] < 2 * result.active.size   # spent, but for a remainder
            assert result.best in result.active
            assert result.active.size > 1
            assert result.mean[result.best] == result.mean[result.active].max()
            assert "max_pulls" in result.warnings[0]
            with pytest.raises(ValueError, match="over"):
                race.ask()
        by_hand = fr.FiniteRace(4, 4000, 0.05, bound, max_pulls=budget, rng=5, **options)
        while not by_hand.done:
            arms, rows = by_hand.ask()
            by_hand = pickle.loads(pickle.dumps(by_hand))
            by_hand.tell(values[np.ix_(rows, arms)])
        same(by_hand.result(), result)
    assert "max_pulls" in seen
    assert "exact" in seen or "bound" in seen


def test_a_budget_is_checked_and_survives_a_pickle(rng):
    values = rng.random((4000, 3))
    for bad, error in ((2, ValueError), (0, ValueError), (2.5, TypeError), (True, TypeError)):
        with pytest.raises(error, match="max_pulls is"):
            fr.race(values, max_pulls=bad)
    assert fr.race(values, max_pulls=2**62, rng=1).stopped_by == "exact"
    assert fr.race(values, max_pulls=100, rng=1).stopped_by == "max_pulls"
    assert fr.race(values[:, :1], max_pulls=1, rng=1).stopped_by == "single"
    race = fr.FiniteRace(3, 4000, max_pulls=500, rng=1)
    race.run(values)
    again = pickle.loads(pickle.dumps(race))
    assert again.done
    same(again.result(), race.result())


# Intervals.


def test_intervals_of_arms_that_cannot_win_or_are_not_known(recwarn):
    values = np.random.default_rng(1).random((500, 3))
    result = fr.race(values, offset=[0.0, -np.inf, 0.0], rng=1)
    assert result.lower[1] == result.upper[1] == -np.inf and not recwarn.list
    fresh = fr.FiniteRace(3, 500).result()
    assert (fresh.lower == -np.inf).all() and (fresh.upper == np.inf).all()
    almost = np.full((100_000, 2), 0.1)
    almost[::2, 0] = np.nextafter(0.1, 1.0)
    core = fr.FiniteRace(2, 100_000, rng=1)
    arms, rows = core.ask()
    core.tell(almost[np.ix_(rows, arms)])
    assert np.isinf(core.result().upper).all()          # rewards that agree to rounding do not show their spread


def test_intervals_of_few_rows_are_those_of_student(rng):
    values = rng.normal(size=(5000, 2))
    wide, narrow = (fr.FiniteRace(2, 5000, first_look=4, student=student, rng=1) for student in (True, False))
    for race in (wide, narrow):
        arms, rows = race.ask()
        race.tell(values[np.ix_(rows, arms)])
    wider = wide.result().upper - wide.result().lower > 1.5 * (narrow.result().upper - narrow.result().lower)
    assert wider.all()
