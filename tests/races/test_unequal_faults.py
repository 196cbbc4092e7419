"""Races of sums: faults change nothing, saved races go on exactly, and what is refused."""

import copy
import ctypes
import mmap
import pickle
import sys
import tracemalloc

import numpy as np
import pytest

import ctrl_c
import elsewhere
import fastrace as fr
from clusters import by_hand, clusters, racer, same, sampled
from fastrace.races import _unequal
from fastrace.sources import as_source
from in_use import assert_refuses_another_thread


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_infinite_rewards_change_nothing(bad, seed):
    vectors, offset = clusters(np.random.default_rng(seed), 6)
    sizes = [len(v) for v in vectors]
    wanted = sampled(vectors, offset=offset, rng=3)
    race = racer(sizes, offset=offset, rng=3)
    arms, rows = race.ask()
    spoilt = [v.copy() for v in vectors]
    spoilt[arms[-1]][rows[-1]] = bad
    message = rf"arm {arms[-1]} on row {rows[-1]} is {bad}"
    with pytest.raises(ValueError, match=message):
        race.tell([spoilt[arm][row] for arm, row in zip(arms, rows, strict=True)])
    assert race.result().pulls.sum() == 0
    with pytest.raises(ValueError, match=message):
        race.run(spoilt)
    same(race.run(vectors), wanted)


@pytest.mark.parametrize("j", [0, 1, 5, 20])
def test_an_exception_of_a_callback_leaves_the_race_usable(j, seed):
    vectors = [np.random.default_rng([seed, i]).normal(size=9000) for i in range(4)]
    sizes = [9000] * 4
    wanted = sampled(vectors, rng=3)
    read = calls = 0

    class Stop(Exception):
        pass

    def rewards(arm, rows):
        nonlocal calls, read
        calls += 1
        if calls == j + 1:
            raise Stop("one")
        read += len(rows)
        return vectors[arm][rows]

    race = racer(sizes, rng=3)
    with pytest.raises(Stop, match="^one$"):
        race.run(rewards)
    assert race.result().pulls.sum() == read
    same(race.run(rewards), wanted)
    assert wanted.pulls.sum() == read       # no row was read twice


@pytest.mark.parametrize("broken", [1, 2, 3])
def test_a_run_cut_short_after_an_arm_was_read_in_full_goes_on_by_hand(broken, seed):
    """Such an arm is beyond what the look asks for; it must not count as rows to be given back."""
    vectors = [np.random.default_rng([seed, i]).normal(size=9000) for i in range(4)]
    race = fr.UnequalRace([9000] * 4, scan_advantage=1e9, rng=3)

    def rewards(arm, rows):
        if arm == broken:
            raise KeyError("mine")
        return vectors[arm][rows]

    with pytest.raises(KeyError):
        race.run(rewards)
    assert race.result().pulls.tolist() == [9000 * (arm < broken) for arm in range(4)]
    while not race.done:
        arms, rows = race.ask()
        assert set(arms.tolist()) <= set(range(broken, 4))
        race.tell(np.array([vectors[arm][row] for arm, row in zip(arms, rows, strict=True)]))
    wanted = fr.UnequalRace([9000] * 4, scan_advantage=1e9, rng=3).run(vectors)
    assert race.result().best == wanted.best


def test_a_race_begun_by_one_hand_ends_by_the_other(seed):
    vectors = [np.random.default_rng([seed, i]).normal(size=9000) for i in range(4)]
    wanted = sampled(vectors, rng=3)

    def rewards(arm, rows):
        if arm == 2:
            raise KeyError
        return vectors[arm][rows]

    race = racer([9000] * 4, rng=3)
    with pytest.raises(KeyError):
        race.run(rewards)
    arms, _ = race.ask()
    assert set(arms) == {2, 3}
    same(by_hand(race, vectors), wanted)


@pytest.mark.resources
def test_interrupt_stops_the_loop_within_100_ms(seed):
    vectors = [np.random.default_rng([seed, i]).normal(size=300_000) for i in range(6)]
    wanted = sampled(vectors, delta=1e-12, rng=3)
    race = racer([300_000] * 6, 1e-12, rng=3)
    assert ctrl_c.press(lambda: race.run(vectors), 8, 0.003)
    same(race.run(vectors), wanted)


@pytest.mark.parametrize("options", [{"student": True}, {"allocation": "adaptive", "pooling": 2.0}])
@pytest.mark.parametrize("cut", [0, 1, 2, 3])
def test_pickles_and_copies_continue_exactly(cut, options, seed):
    vectors = [np.random.default_rng([seed, i]).normal(size=3000 - i) for i in range(4)]
    race = racer([len(v) for v in vectors], rng=3, **options)
    for _ in range(cut):
        arms, rows = race.ask()
        race.tell([vectors[arm][row] for arm, row in zip(arms, rows, strict=True)])
    twins = [pickle.loads(pickle.dumps(race)), copy.copy(race), copy.deepcopy(race)]
    wanted = race.run(vectors)
    for twin in twins:
        same(twin.run(vectors), wanted)
    same(pickle.loads(pickle.dumps(race)).result(), wanted)
    rebuild, (_, *rest) = race.__reduce__()
    with pytest.raises(ValueError, match="version 3"):
        rebuild(3, *rest)


def between_fences(sizes, first, options):
    """A race whose quantiles lie at an end of a page, with pages on either side that must not be read."""
    race = fr.UnequalRace(sizes, student=True, first_look=10, **options)
    page, quantile = mmap.PAGESIZE, race._options["quantile"]
    memory = mmap.mmap(-1, 3 * page)
    fenced = np.frombuffer(memory, np.float64, page // 8, page)
    fenced = fenced[: quantile.size] if first else fenced[fenced.size - quantile.size:]
    fenced = fenced.reshape(quantile.shape)
    fenced[:] = quantile
    start = fenced.ctypes.data // page * page
    for fence in (start - page, start + page):
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(fence), ctypes.c_size_t(page), 0) == 0
    race._race = _unequal.UnequalCore(race._sizes, **race._options | {"quantile": fenced})
    race._race.begin(np.random.default_rng(1))
    rng = np.random.default_rng(2)
    race.run([rng.random(size) for size in sizes])
    return race.result().stopped_by, race.result().pulls.tolist()


@pytest.mark.skipif(sys.platform == "win32", reason="pages are closed by mprotect")
@pytest.mark.parametrize(("sizes", "first", "options"), [
    ([100, 100], False, {}), ([0, 100, 100], True, {"allocation": "adaptive", "offset": [50.0, 0.0, 0.0]}),
], ids=["last arm read in full", "first arm empty"])
def test_quantiles_of_no_look_are_not_read(sizes, first, options):
    assert elsewhere.call(between_fences, sizes, first, options) == ("exact", sizes)


def test_one_race_in_two_threads_or_inside_itself_is_refused(seed):
    vectors = [np.random.default_rng([seed, i]).normal(size=20_000) for i in range(3)]
    race = racer([20_000] * 3, 1e-12, rng=3)
    with pytest.raises(RuntimeError, match="in use"):
        race.run(lambda arm, rows: race.ask())

    def rewards(arm, rows):
        return vectors[arm][rows]

    assert_refuses_another_thread(race, rewards)
    same(race.result(), racer([20_000] * 3, 1e-12, rng=3).run(rewards))


@pytest.mark.resources
def test_more_than_2_to_31_rows():
    seen = []

    def rewards(arm, rows):
        seen.append(int(rows.max()))
        return rows % 1009 / 504 - 1 + (0.5 if arm == 1 else 0.0)

    sizes = [1 << 13, 1 << 12, 1 << 33]
    result = sampled(rewards, sizes, offset=[0, 0, -1e12], rng=1)
    assert (result.best, result.stopped_by) == (1, "bound")
    assert max(seen) > 1 << 31
    assert result.pulls[2] == 10


@pytest.mark.parametrize("size", [1 << 40, 1 << 62])
@pytest.mark.resources
def test_memory_does_not_grow_with_the_population(size):
    def told(race):
        arms, rows = race.ask()
        assert arms.size <= 1 << 20
        race.tell(np.sin(rows * 1.7) + 0.01 * arms)

    tracemalloc.start()
    race = fr.UnequalRace([size, size, size, 5], rng=1)
    told(race)
    assert not race.done and race.result().n_looks == 1
    told(race)      # the first of a tenth of all rows
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 1 << 27
    result = race.result()
    assert 0.0 < result.fraction_read < 1e-5 and result.n_looks == 1
    assert result.pulls.tolist() == [10 + (1 << 20), 10, 10, 5]
    assert pickle.loads(pickle.dumps(race)).result().pulls.tolist() == result.pulls.tolist()


def test_sizes_that_sum_beyond_64_bits_are_not_taken_for_none():
    with pytest.raises(ValueError, match="add up to 18446744073709551616"):
        fr.UnequalRace([1 << 62] * 4, rng=1).run(np.empty(0))


def test_a_reward_outside_the_support_is_named(seed):
    vectors = [np.random.default_rng([seed, i]).random(500) for i in range(3)]
    for advantage in (1, 24):
        with pytest.raises(ValueError, match="reward of arm 2 on row .* outside support=") as caught:
            fr.race_sums(vectors, bound="serfling", support=(0, [1, 1, 0.1]), scan_advantage=advantage, rng=1)
        row = int(str(caught.value).split("row ")[1].split()[0])
        assert vectors[2][row] > 0.1
    result = sampled(vectors, bound="serfling", support=(0, [1, 1, 0.1]), outside="warn", rng=1)
    assert "outside support" in result.warnings[0]
    assert "outside support" in str(result)


def test_faults_while_an_arm_is_read_in_full_change_nothing(seed):
    values = np.random.default_rng(seed).normal(size=(5000, 3))
    vectors = list(values.T)
    wanted = fr.race_sums(vectors, delta=1e-9, rng=1)
    race = fr.UnequalRace([5000] * 3, 1e-9, rng=1)
    arms, _ = race.ask()
    race.tell(np.concatenate([vectors[i][race.ask()[1][arms == i]] for i in range(3)]))
    before = race.result()
    spoilt = [v.copy() for v in vectors]
    spoilt[0][4321] = np.nan
    with pytest.raises(ValueError, match="arm 0 on row 4321 is nan"):
        race.run(spoilt)
    same(race.result(), before)
    spoilt[0][4321] = 0.0
    spoilt[1][4321] = -np.inf
    out = pickle.loads(pickle.dumps(race)).run(spoilt)
    assert (out.total[1], out.best != 1) == (-np.inf, True)
    result = race.run(vectors)
    assert (result.best, result.n_looks) == (wanted.best, wanted.n_looks)
    assert np.array_equal(result.total, wanted.total)


@pytest.mark.parametrize("bad", [
    {"scan_advantage": 0.5}, {"scan_advantage": np.nan},
    {"sizes": []}, {"sizes": [-1, 2]}, {"sizes": [0.5, 2.0]}, {"sizes": 3}, {"delta": 0}, {"delta": 1.0},
    {"delta": np.nan}, {"bound": "betting"}, {"bound": "serfling"}, {"first_look": 1}, {"support": (1, 0)},
    {"offset": [np.nan, 0]}, {"offset": [0, 0, 0]}, {"temperature": 0}, {"temperature": np.inf}, {"kind": "exact"},
    {"allocation": "all"}, {"pooling": -1.0}, {"pooling": np.nan},
    {"pooling": 1.0, "bound": "serfling", "support": (0, 1)},
])
def test_bad_arguments(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        racer(**({"sizes": [5, 7]} | bad))


@pytest.mark.parametrize("scan_advantage", [1, 24])
def test_sums_that_overflow_are_refused(scan_advantage):
    with pytest.raises(ValueError, match="scale them down"):
        fr.race_sums([np.full(2000, 1e308), np.ones(2000)], scan_advantage=scan_advantage, rng=1)


def test_bad_rewards():
    race = racer([20, 30], rng=1)
    for rewards, message in (
        ([np.ones(20)], "sizes"), ([np.ones(20), np.ones(29)], "sizes"), (np.ones(51), "add up"),
        ([np.ones(20), np.ones((30, 1))], r"rewards\[1\]"), ([np.ones(20), ["a"] * 30], r"rewards\[1\]"),
        (lambda arm, rows: np.ones(3), "one reward per row"), (as_source(np.ones((29, 2))), "29 rows"),
        (as_source(np.ones((30, 3))), "3 arms"),
    ):
        with pytest.raises(ValueError, match=message):
            race.run(rewards)
    for rewards in (np.ones(19), np.ones((20, 1)), ["a"] * 20):
        with pytest.raises(ValueError, match="rewards"):
            race.tell(rewards)
    assert race.result().pulls.sum() == 0
    with pytest.raises(ValueError, match="sizes is missing"):
        sampled(np.ones(50))
    race.run(np.arange(50.0))
    for call in (race.ask, lambda: race.tell([0.5])):
        with pytest.raises(ValueError, match="over"):
            call()
    assert race.run(np.arange(50.0)).best == 1


@pytest.mark.parametrize("kind", ["array", "frame"])
def test_a_table_is_refused_since_its_arms_could_be_rows_or_columns(kind):
    table = np.array([[1.0, 3.0]] * 6)
    if kind == "frame":
        table = pytest.importorskip("pandas").DataFrame(table, columns=["a", "b"])
    with pytest.raises(ValueError, match=r"a table of shape \(6, 2\), whose arms could be its rows or its columns"):
        fr.race_sums(table)
    assert fr.race_sums(list(np.array([[1.0, 3.0]] * 6).T), first_look=2).best == 1


@pytest.mark.parametrize("rewards", [[], (), {}])
def test_no_arms_are_refused_in_the_words_of_the_call(rewards):
    with pytest.raises(ValueError, match="^race_sums: rewards is empty; a vector of at least one arm is needed$"):
        fr.race_sums(rewards)


@pytest.mark.parametrize("advantage", [1.0, 1000.0])
@pytest.mark.parametrize("allocation", ["even", "adaptive"])
def test_sums_too_far_from_zero_to_be_told_apart_are_warned_of(allocation, advantage):
    """Where rounding turns the answer, and only there: neither ties, nor constants, nor sums that are far apart."""
    rng, options = np.random.default_rng(0), {"allocation": allocation, "scan_advantage": advantage}
    arms = [(rng.random(4000) < p).astype(float) for p in (0.5, 0.52, 0.51)]
    wrong, warned = {}, {}
    for shift in (0.0, 1e6, 1e9, 1e12, 1e13, 1e14, 1e15, 4e15):
        found = [fr.race_sums([arm + shift for arm in arms], bound="normal", rng=seed, **options) for seed in range(5)]
        wrong[shift] = sum(result.best != 1 for result in found)
        warned[shift] = sum("far from 0" in " ".join(result.warnings) for result in found)
    assert all(warned[shift] == 5 for shift in wrong if wrong[shift]) and wrong[1e15] == 5
    assert not any(warned[shift] for shift in (0.0, 1e6, 1e9, 1e12))
    by_offset = fr.race_sums(arms, bound="normal", offset=[1e19] * 3, rng=1, **options)
    assert "far from 0" in " ".join(by_offset.warnings)
    for others in ([arms[0], arms[0][::-1]], [np.full(50, 1e15), np.full(50, 1e15)], [arms[0], arms[1] + 1e15]):
        assert "far from 0" not in " ".join(fr.race_sums(others, bound="normal", rng=1, **options).warnings)


def test_a_saved_race_keeps_that_its_sums_were_too_far_from_zero():
    values = [(np.random.default_rng(0).random(400) < 0.5).astype(float) + 1e15 for _ in range(2)]
    race = fr.UnequalRace([400, 400], rng=1)
    race.run(values)
    assert race._race.far and pickle.loads(pickle.dumps(race)).result() == race.result()
    state = race._race._get_state()
    del state["far"]                        # saved by an earlier version
    race._race._set_state(state)
    assert not race._race.far
    with pytest.raises(ValueError, match="damaged"):
        race._race._set_state(state | {"far": 1})
