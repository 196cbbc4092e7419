"""lil'UCB: equal to its twins pull by pull, exact when arms are read in full, and undisturbed by faults."""

import copy
import pickle
import sys

import numpy as np
import pytest

import ctrl_c
import fastrace as fr
from fastrace.races import lil_ucb as module
from fastrace.races._lil import _keyed_rows
from fastrace.sources import ArraySource, as_source
from guarantee import assert_rate_at_most, few_or_many
from in_use import assert_refuses_another_thread
from reference.lil import keyed_order, lil_ucb, lil_ucb_by_sorting


def pulls_of(race, values):
    """Drive a race by hand; its (arm, row) pairs."""
    made = []
    while not race.done:
        arms, rows = race.ask()
        made.append((int(arms[0]), int(rows[0])))
        race.tell(values[np.ix_(rows, arms)])
    return made


def same(a, b):
    assert (a.best, a.stopped_by, a.n_looks) == (b.best, b.stopped_by, b.n_looks)
    assert np.array_equal(a.pulls, b.pulls)
    assert np.array_equal(a.mean, b.mean, equal_nan=True)
    assert np.array_equal(a.half_width, b.half_width)


@pytest.mark.parametrize("n", [1, 2, 5, 50, 1000, (1 << 33) + 5])
def test_keyed_order_equals_its_twin(n, seed):
    rng = np.random.default_rng(seed)
    keys = tuple(int(rng.bit_generator.random_raw()) for _ in range(2))
    count = min(n, 200)
    assert _keyed_rows(n, 0, count, np.random.default_rng(seed)).tolist() == [
        keyed_order(n, keys, i) for i in range(count)
    ]


@pytest.mark.parametrize("setting", ["heuristic", "theory"])
@pytest.mark.parametrize(("n_rows", "n_arms", "gap"), [
    (400, 5, 0.5), (60, 7, 0.0), (300, 2, 0.9), (1, 4, 0.1), (2, 3, 0.0),
])
def test_every_pull_equals_the_plain_twin(setting, n_rows, n_arms, gap, seed):
    values = np.random.default_rng(seed).random((n_rows, n_arms))
    values[:, n_arms // 2] += gap
    offset = np.linspace(0.0, 0.1 * n_rows, n_arms)
    if n_arms > 3:
        offset[1] = -np.inf
    expected, best, why = lil_ucb(values, (1 + gap) / 2, 0.1, setting, np.random.default_rng(seed + 1), offset)
    race = fr.LilUCB(
        n_arms, n_rows, 0.1, (0, 1 + gap), setting, offset=offset, rng=np.random.default_rng(seed + 1)
    )
    assert pulls_of(race, values) == expected
    assert (race.result().best, race.result().stopped_by) == (best, why)


@pytest.mark.parametrize("setting", ["heuristic", "theory"])
def test_equals_the_history_sorted(setting, seed):
    for k in range(20):
        values = np.random.default_rng([seed, k]).random((150, 6)) + 0.15 * np.arange(6)
        counts, best, why = lil_ucb_by_sorting(values, 0.9, 0.05, setting, np.random.default_rng(k))
        result = fr.LilUCB(6, 150, support=(0, 1.8), setting=setting, rng=k).run(values)
        assert result.pulls.tolist() == counts.tolist()
        assert (result.best, result.stopped_by) == (best, why)


def test_both_stopping_rules_occur(seed):
    values = np.random.default_rng(seed).random((2000, 5))
    assert fr.LilUCB(5, 2000, support=(0, 1), rng=0).run(values).stopped_by == "exact"
    values[:, 3] += 2
    result = fr.LilUCB(5, 2000, support=(0, 3), rng=0).run(values)
    assert (result.stopped_by, result.best) == ("bound", 3)
    assert result.fraction_read < 0.5
    assert "lil'UCB heuristic" in str(result)


def test_ask_tell_equals_run(seed):
    values = np.random.default_rng(seed).random((3000, 8)) + 0.1 * np.arange(8)
    by_hand = fr.LilUCB(8, 3000, support=(0, 1.7), rng=5)
    pulls_of(by_hand, values)
    same(by_hand.result(), fr.LilUCB(8, 3000, support=(0, 1.7), rng=5).run(values))


def test_every_kind_of_source_gives_the_same_race(seed):
    values = np.random.default_rng(seed).random((2000, 6)).astype("f4") + np.arange(6, dtype="f4") / 4
    wanted = fr.LilUCB(6, 2000, support=(0, 3), rng=5).run(values.astype(np.float64))
    wide = np.zeros((4000, 12), dtype=np.float32)
    wide[::2, ::2] = values
    read_only = values.copy()
    read_only.setflags(write=False)
    for rewards in (
        values,
        np.asfortranarray(values),
        wide[::2, ::2],
        read_only,
        values.astype(">f8"),
        lambda arms, rows: values[np.ix_(rows, arms)].astype(np.float64),
    ):
        same(fr.LilUCB(6, 2000, support=(0, 3), rng=5).run(rewards), wanted)


def test_reading_everything_is_exact_and_ends(seed):
    # Every arm read in full has its exact mean and no width; no row is read twice; the best is the argmax.
    rng = np.random.default_rng(seed)
    for k in range(1000):
        n_rows, n_arms = int(rng.integers(1, 12)), int(rng.integers(1, 6))
        values = rng.integers(0, 3, (n_rows, n_arms)).astype(float)
        # So wide a support that bounds say nothing until an arm has been read in full.
        result = fr.LilUCB(n_arms, n_rows, 1e-9, (0, 1000.0), "theory", rng=k).run(values)
        assert result.best == values.mean(axis=0).argmax()      # ties to the lowest arm
        assert (result.pulls <= n_rows).all()
        full = result.pulls == n_rows
        assert np.allclose(result.mean[full], values.mean(axis=0)[full], rtol=1e-15, atol=0)
        assert (result.half_width[full] == 0).all()
        assert result.stopped_by == ("single" if n_arms == 1 else "exact")


def test_rows_of_an_arm_are_distinct(seed):
    values = np.random.default_rng(seed).random((50, 3))
    made = pulls_of(fr.LilUCB(3, 50, 1e-6, (0, 1), rng=3), values)
    assert len(set(made)) == len(made)


def test_exact_ties_go_to_the_lowest_arm():
    for value in (0.1, 1 / 3, 1e300):
        result = fr.LilUCB(4, 777, support=(0, 2e300), rng=0).run(np.full((777, 4), value))
        assert result.best == 0
    assert fr.LilUCB(3, 500, support=(0, 1), offset=[0, 0, 1], rng=0).run(np.full((500, 3), 0.1)).best == 2


def test_no_rows_one_arm_and_impossible_arms():
    empty = np.empty((0, 3))
    result = fr.LilUCB(3, 0, support=(0, 1), offset=[1, 3, 2]).run(empty)
    assert (result.best, result.stopped_by, result.fraction_read) == (1, "exact", 0.0)
    result = fr.LilUCB(1, 100, support=(0, 1)).run(np.ones((100, 1)))
    assert (result.best, result.stopped_by, result.n_looks) == (0, "single", 0)
    result = fr.LilUCB(3, 10, support=(0, 1), offset=[-np.inf, 2, -np.inf]).run(np.ones((10, 3)))
    assert (result.best, result.n_looks, result.mean[0]) == (1, 0, -np.inf)
    with pytest.raises(ValueError, match="every arm"):
        fr.LilUCB(2, 10, support=(0, 1), offset=[-np.inf, -np.inf])


def test_offsets_count_as_sums_over_all_rows(seed):
    # Adding c to every reward is an offset of c times the number of rows.
    values = np.random.default_rng(seed).random((1000, 4))
    a = fr.LilUCB(4, 1000, support=(0, 1.5), offset=[0, 500, 0, 100], rng=1).run(values)
    b = fr.LilUCB(4, 1000, support=(0, 1.5), rng=1).run(values + [0, 0.5, 0, 0.1])
    assert (a.best, a.stopped_by) == (b.best, b.stopped_by) == (1, "bound")
    assert np.array_equal(a.pulls, b.pulls)
    assert np.allclose(a.mean, b.mean)


def test_known_parts_of_a_source_count(seed):
    # A source may know part of each arm's sum, such as a control variate; its rewards are then the rest.
    values = np.random.default_rng(seed).random((400, 3))

    class KnownTable(ArraySource):
        def shifts(self, arms=None):
            return np.array([0.0, 0.0, 400.0])

    known = fr.LilUCB(3, 400, support=(0, 1), rng=1).run(KnownTable(values))
    offset = fr.LilUCB(3, 400, support=(0, 1), offset=[0, 0, 400], rng=1).run(values)
    same(known, offset)
    assert known.best == 2


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_infinite_rewards_change_nothing(bad, seed):
    values = np.random.default_rng(seed).random((200, 3))
    wanted = fr.LilUCB(3, 200, support=(0, 1), rng=1).run(values)
    race = fr.LilUCB(3, 200, support=(0, 1), rng=1)
    race.run(values, max_pulls=100)
    arms, rows = race.ask()
    with pytest.raises(ValueError, match=rf"arm {arms[0]} on row {rows[0]} is {bad}"):
        race.tell(bad)
    spoilt = values.copy()
    spoilt[rows[0], arms[0]] = bad
    with pytest.raises(ValueError, match=rf"arm {arms[0]} on row {rows[0]} is {bad}"):
        race.run(spoilt)
    assert race.result().n_looks == 100
    assert np.array_equal(race.ask()[1], rows)
    same(race.run(values), wanted)


def test_minus_infinity_takes_an_arm_out(seed):
    values = np.random.default_rng(seed).random((300, 3)) + [0, 1, 0]
    values[:, 1] = -np.inf
    result = fr.LilUCB(3, 300, support=(0, 2), rng=1).run(values)
    assert result.best != 1
    assert result.pulls[1] == 1
    assert result.mean[1] == -np.inf
    values[:] = -np.inf
    race = fr.LilUCB(3, 300, support=(0, 2), rng=1)
    with pytest.raises(ValueError, match="no arm is possible"):
        race.run(values)
    assert race.result().n_looks == 2


def test_a_reward_outside_the_support_is_named(seed):
    values = np.random.default_rng(seed).random((300, 3))
    assert fr.LilUCB(3, 300, support=(0, 1), rng=1).run(values).warnings == ()
    narrow = ([0, 0, 0], [1, 1, 0.01])
    with pytest.raises(ValueError, match="reward of arm 2 on row .* outside support="):
        fr.LilUCB(3, 300, support=narrow, rng=1).run(values)
    warned = fr.LilUCB(3, 300, support=narrow, outside="warn", rng=1).run(values)
    assert "outside support" in warned.warnings[0]
    assert "outside support" in str(warned)


@pytest.mark.parametrize("j", [0, 1, 1000, -1])
def test_an_exception_of_a_callback_leaves_the_race_usable(j, seed):
    values = np.random.default_rng(seed).random((1500, 4)) + [0, 0.3, 0, 0]
    wanted = fr.LilUCB(4, 1500, support=(0, 1.3), rng=2).run(values)
    j %= wanted.n_looks
    calls = 0

    class Stop(Exception):
        pass

    def rewards(arms, rows):
        nonlocal calls
        calls += 1
        if calls == j + 1:
            raise Stop("one")
        return values[np.ix_(rows, arms)]

    race = fr.LilUCB(4, 1500, support=(0, 1.3), rng=2)
    with pytest.raises(Stop, match="^one$"):
        race.run(rewards)
    assert race.result().n_looks == j
    assert race.result().stopped_by == ""
    same(race.run(rewards), wanted)
    assert calls == wanted.n_looks + 1


@pytest.mark.resources
def test_interrupt_stops_the_loop_within_100_ms(seed):
    values = np.random.default_rng(seed).random((20_000, 50))
    wanted = fr.LilUCB(50, 20_000, 1e-9, (0, 1), rng=2).run(values)
    race = fr.LilUCB(50, 20_000, 1e-9, (0, 1), rng=2)
    source = as_source(values)
    assert ctrl_c.press(lambda: race.run(source), 10, 0.004)
    same(race.run(source), wanted)


@pytest.mark.parametrize("cut", [0, 1, 3, 4, 700])
def test_pickles_and_copies_continue_exactly(cut, seed):
    values = np.random.default_rng(seed).random((1000, 4)) + [0, 0.2, 0, 0]
    wanted = fr.LilUCB(4, 1000, support=(0, 1.2), rng=2).run(values)
    race = fr.LilUCB(4, 1000, support=(0, 1.2), rng=2)
    race.run(values, max_pulls=cut)
    for twin in (pickle.loads(pickle.dumps(race)), copy.copy(race), copy.deepcopy(race)):
        assert repr(twin) == repr(race)
        same(twin.result(), race.result())
        same(twin.run(values), wanted)
    same(race.run(values), wanted)
    same(pickle.loads(pickle.dumps(race)).result(), wanted)


def test_a_pickle_of_another_version_is_refused():
    rebuild, (_, *rest) = fr.LilUCB(2, 10, support=(0, 1)).__reduce__()
    with pytest.raises(ValueError, match="version 2"):
        rebuild(2, *rest)


def test_max_pulls_cuts_short_and_says_so(seed):
    values = np.random.default_rng(seed).random((5000, 3)) + [0, 0.02, 0]
    race = fr.LilUCB(3, 5000, support=(0, 1.1), rng=2)
    cut = race.run(values, max_pulls=200)
    assert (cut.stopped_by, cut.n_looks, race.done) == ("max_pulls", 200, False)
    assert cut.warnings == ("max_pulls was reached: best is the arm pulled most so far, and nothing is promised of it",)
    assert cut.best == int(np.lexsort((-cut.mean, -cut.pulls))[0])
    assert cut.active.tolist() == [0, 1, 2]
    assert race.run(values, max_pulls=100).n_looks == 200
    same(race.run(values), fr.LilUCB(3, 5000, support=(0, 1.1), rng=2).run(values))
    race = fr.LilUCB(3, 5000, support=(0, 1.1), rng=2)
    race.run(values, max_pulls=200)
    arms, rows = race.ask()
    race.tell(values[rows, arms])
    assert race.result().stopped_by == ""


def test_one_race_in_two_threads_or_inside_itself_is_refused(seed):
    values = np.random.default_rng(seed).random((3000, 3))
    race = fr.LilUCB(3, 3000, 1e-9, (0, 1), rng=2)

    def inside(arms, rows):
        race.tell(0.5)
        return values[np.ix_(rows, arms)]

    with pytest.raises(RuntimeError, match="in use"):
        race.run(inside)

    def rewards(arms, rows):
        return values[np.ix_(rows, arms)]

    assert_refuses_another_thread(race, rewards)
    same(race.result(), fr.LilUCB(3, 3000, 1e-9, (0, 1), rng=2).run(rewards))


@pytest.mark.resources
def test_more_than_2_to_31_rows():
    n_rows = (1 << 33) + 7
    seen = []

    def rewards(arms, rows):
        seen.append(int(rows[0]))
        return np.full((1, 1), 0.9 if arms[0] == 1 else 0.1) + 1e-3 * (rows[:, None] % 3)

    result = fr.LilUCB(3, n_rows, support=(0, 1), rng=1).run(rewards)
    assert (result.best, result.stopped_by) == (1, "bound")
    assert max(seen) > 1 << 32
    assert all(0 <= row < n_rows for row in seen)


@pytest.mark.parametrize("bad", [
    {"n_arms": 0}, {"n_rows": -1}, {"n_rows": 2**62 + 1}, {"delta": 0}, {"delta": 1}, {"delta": np.nan},
    {"delta": -0.1}, {"support": None}, {"support": (1, 0)}, {"support": (0, np.inf)}, {"support": 1},
    {"setting": "best"}, {"offset": [0, np.nan, 0]}, {"offset": [0, 0]}, {"offset": np.inf},
])
def test_bad_arguments(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        fr.LilUCB(**({"n_arms": 3, "n_rows": 10, "support": (0, 1)} | bad))


def test_bad_calls():
    race = fr.LilUCB(3, 10, support=(0, 1), rng=1)
    with pytest.raises(ValueError, match="10"):
        race.run(np.ones((11, 3)))
    with pytest.raises(ValueError, match="shape"):
        race.tell([0.1, 0.2])
    with pytest.raises(ValueError, match="max_pulls"):
        race.run(np.ones((10, 3)), max_pulls=-1)
    race.run(np.ones((10, 3)))
    for call in (race.ask, lambda: race.tell(0.5)):
        with pytest.raises(ValueError, match="over"):
            call()
    assert race.run(np.ones((10, 3))).best == 0


def test_theory_constants_spend_delta():
    # 4 sqrt(c delta_0) + 4 c delta_0 is the probability of error of the theory setting.
    for delta in (1e-12, 0.05, 0.9):
        _, epsilon, patience, log_share = module.parameters("theory", delta, 7)
        c = (2 + epsilon) / epsilon * (1 / np.log(1 + epsilon)) ** (1 + epsilon)
        product = c * np.exp(log_share)
        assert patience == 9
        assert 4 * np.sqrt(product) + 4 * product == pytest.approx(delta, rel=1e-9)
    assert np.isfinite(module.parameters("theory", 1e-300, 7)[3])


@few_or_many("most", 100, 400)
@pytest.mark.parametrize(("setting", "law", "share"), [
    ("theory", "uniform", 0.5), ("theory", "rare", 0.5), ("heuristic", "uniform", 1.0), ("heuristic", "coin", 1.0),
])
def test_the_best_arm_is_missed_at_most_delta(setting, law, share, most, seed):
    # The hardest gap is the one that bounds of the middle of the race cannot see.
    n_rows, n_arms, delta, trials = 2000, 10, 0.1, int(share * most)
    missed = 0
    for child in np.random.SeedSequence(seed).spawn(trials):
        rng = np.random.default_rng(child)
        if law == "uniform":
            values = rng.random((n_rows, n_arms)) + np.where(np.arange(n_arms) == 3, 0.1, 0.0)
            high = 1.1
        elif law == "coin":
            values = (rng.random((n_rows, n_arms)) < np.where(np.arange(n_arms) == 3, 0.6, 0.4)).astype(float)
            high = 1.0
        else:
            values = np.full((n_rows, n_arms), 0.01)
            values[: n_rows // 50, 3] = 1.0
            high = 1.0
        result = fr.LilUCB(n_arms, n_rows, delta, (0, high), setting, rng=rng).run(values)
        missed += result.best != values.mean(axis=0).argmax()
    assert_rate_at_most(missed, trials, delta)


@pytest.mark.skipif(sys.platform == "win32", reason="needs the resource module")
@pytest.mark.resources
def test_races_do_not_grow_memory(seed):
    import resource

    values = as_source(np.random.default_rng(seed).random((100, 5)) + [0, 1, 0, 0, 0])

    def many(count):
        for k in range(count):
            race = fr.LilUCB(5, 100, support=(0, 2), rng=k)
            race.run(values, max_pulls=20)
            pickle.loads(pickle.dumps(race))
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    before = many(300)
    assert (many(1500) - before) * (1 if sys.platform == "darwin" else 1024) < 1 << 20


def test_bounds_of_an_answer_stay_within_what_the_support_leaves():
    values = np.random.default_rng(0).random((300, 3)) + [0.0, 0.1, 0.3]
    race = fr.LilUCB(3, 300, support=(0, 1.3), offset=[0.0, 3.0, 0.0], rng=1)
    for _ in range(40):
        arms, rows = race.ask()
        race.tell(values[rows, arms])
        result = race.result()
        read = result.pulls > 0
        assert (result.lower[read] >= np.array([0.0, 0.01, 0.0])[read] - 1e-12).all()
        assert (result.upper[read] <= np.array([1.3, 1.31, 1.3])[read] + 1e-12).all()
        assert (result.lower[read] <= result.mean[read]).all() and (result.mean[read] <= result.upper[read]).all()
