"""Sums over populations of different size: equal to the twin, exact where it must be, error below delta."""

import copy
import ctypes
import mmap
import pickle
import sys
import threading
import tracemalloc

import numpy as np
import pytest

import ctrl_c
import elsewhere
import fastrace as fr
from fastrace.control_variates import ControlVariate
from fastrace.races import _unequal
from fastrace.sources import ArraySource, as_source
from guarantee import assert_rate_at_most, few_or_many
from reference import lil as reference


def sampled(rewards, *args, **options):
    """A race that reads arms only as far as their comparisons need."""
    return fr.race_sums(rewards, *args, **{"scan_advantage": 1, **options})


def racer(sizes, *args, **options):
    return fr.UnequalRace(sizes, *args, **{"scan_advantage": 1, **options})


def clusters(rng, n_arms=None, most=2000):
    """Normal factors in clusters whose sizes follow a power law, and the constants of a Gibbs step."""
    n_arms = int(rng.integers(2, 60)) if n_arms is None else n_arms
    sizes = np.minimum(most, np.floor(rng.random(n_arms) ** -1.0)).astype(int)
    return [rng.normal(rng.normal(0.0, 0.2), 1.0, n) for n in sizes], rng.gumbel(size=n_arms)


def exact(vectors, offset, temperature=1.0):
    return int(np.argmax([c + v.sum() / temperature for v, c in zip(vectors, offset, strict=True)]))


def same(a, b):
    assert (a.best, a.stopped_by, a.n_looks) == (b.best, b.stopped_by, b.n_looks)
    for name in ("pulls", "total", "half_width", "active", "lower", "upper", "n_rows"):
        assert np.array_equal(getattr(a, name), getattr(b, name), equal_nan=True), name


def by_hand(race, vectors):
    while not race.done:
        arms, rows = race.ask()
        race.tell([vectors[arm][row] for arm, row in zip(arms, rows, strict=True)])
    return race.result()


@pytest.mark.parametrize("options", [
    {}, {"kind": "union"}, {"student": True}, {"first": 3}, {"temperature": 0.2}, {"delta": 0.4}, {"delta": 1e-10},
])
def test_equals_the_plain_twin(options, seed):
    for k in range(25):
        vectors, offset = clusters(np.random.default_rng([seed, k]), most=300)
        delta = options.get("delta", 0.05)
        rest = {name: value for name, value in options.items() if name != "delta"}
        best, pulls, n_looks = reference.race_unequal(vectors, offset, delta, np.random.default_rng(k), **rest)
        rest["first_look"] = rest.pop("first", 10)
        result = sampled(vectors, delta=delta, offset=offset, rng=k, **rest)
        assert (result.best, result.n_looks) == (best, n_looks)
        assert result.pulls.tolist() == pulls


@pytest.mark.parametrize("options", [
    {}, {"kind": "union"}, {"student": True}, {"first": 3}, {"temperature": 0.2}, {"delta": 1e-10},
    {"support": (-7, 7)}, {"support": (-7, 7), "first": 3, "pooling": 4.0}, {"support": (-7, 7), "temperature": 3.0},
])
def test_adaptive_race_equals_the_plain_twin(options, seed):
    for k in range(25):
        vectors, offset = clusters(np.random.default_rng([seed, k]), most=300)
        rest = dict(options)
        delta, shared = rest.pop("delta", 0.05), rest.pop("pooling", 0.0)
        best, pulls, n_looks = reference.race_unequal_adaptive(vectors, offset, delta, np.random.default_rng(k),
                                                               shared=shared, **rest)
        rest["first_look"] = rest.pop("first", 10)
        result = sampled(vectors, delta=delta, offset=offset, rng=k, allocation="adaptive", pooling=shared, **rest)
        assert (result.best, result.n_looks) == (best, n_looks)
        assert result.pulls.tolist() == pulls


@pytest.mark.parametrize("options", [
    {}, {"bound": "serfling", "support": (-10, 10)}, {"bound": "hoeffding-serfling", "support": (-10, 10)},
    {"bound": "empirical-bernstein-serfling", "support": (-10, 10)}, {"student": True, "temperature": 3.0},
    {"pooling": 3.0}, {"allocation": "adaptive"}, {"allocation": "adaptive", "support": (-10, 10), "pooling": 3.0},
    {"allocation": "adaptive", "bound": "serfling", "support": (-10, 10)},
])
def test_ask_tell_equals_run(options, seed):
    for k in range(10):
        vectors, offset = clusters(np.random.default_rng([seed, k]))
        sizes = [len(v) for v in vectors]
        race = racer(sizes, offset=offset, rng=k, **options)
        same(by_hand(race, vectors), sampled(vectors, offset=offset, rng=k, **options))


def test_every_kind_of_rewards_gives_the_same_race(seed):
    vectors, offset = clusters(np.random.default_rng(seed), 12)
    vectors = [v.astype(np.float32) for v in vectors]
    sizes = [len(v) for v in vectors]
    wanted = sampled([v.astype(float) for v in vectors], offset=offset, rng=1)
    table = np.full((max(sizes), len(sizes)), np.nan)
    for i, v in enumerate(vectors):
        table[: len(v), i] = v
    read_only = [v.copy() for v in vectors]
    for v in read_only:
        v.setflags(write=False)
    strided = [np.repeat(v, 3)[::3] for v in vectors]
    backward = [v[::-1].copy()[::-1] for v in vectors]
    for rewards in (
        vectors,
        tuple(vectors),
        read_only,
        strided,
        backward,
        [v.astype(">f8") for v in vectors],
        [v.tolist() for v in vectors],
        np.concatenate(vectors),
        lambda arm, rows: vectors[arm][rows],
        as_source(table),
    ):
        same(sampled(rewards, sizes, offset=offset, rng=1), wanted)


def test_small_delta_is_exact(seed):
    for k in range(300):
        vectors, offset = clusters(np.random.default_rng([seed, k]), most=200)
        result = sampled(vectors, delta=1e-300, offset=offset, rng=k)
        assert result.best == exact(vectors, offset)


@pytest.mark.parametrize("temperature", [0.25, 4.0])
def test_temperature_divides_rewards_and_not_offsets(temperature, seed):
    differ = 0
    for k in range(100):
        vectors, offset = clusters(np.random.default_rng([seed, k]), 10, most=50)
        result = sampled(vectors, delta=1e-12, offset=offset, temperature=temperature, rng=k)
        assert result.best == exact(vectors, offset, temperature)
        full = result.pulls == result.n_rows
        totals = np.array([c + v.sum() / temperature for v, c in zip(vectors, offset, strict=True)])
        assert np.allclose(result.total[full], totals[full])
        differ += result.best != exact(vectors, offset)
    assert differ


@pytest.mark.parametrize(("first_look", "most_missed", "least_saved"), [(3, 0.05, 0.25), (10, 0.01, 0.2)])
def test_error_and_cost_on_clusters_of_power_law_sizes(first_look, most_missed, least_saved, seed):
    trials, missed, read, rows = 600, 0, 0, 0
    for child in np.random.SeedSequence(seed).spawn(trials):
        vectors, offset = clusters(np.random.default_rng(child))
        result = sampled(vectors, offset=offset, kind="union", first_look=first_look, rng=child)
        missed += result.best != exact(vectors, offset)
        read += result.pulls.sum()
        rows += result.n_rows.sum()
    assert_rate_at_most(missed, trials, most_missed)
    assert read / rows < 1 - least_saved


@pytest.mark.parametrize("allocation", ["even", "adaptive"])
def test_nothing_is_decided_before_what_a_source_knows_is_known(allocation):
    """Arms without rows could win by the support alone; the source knows that the first is ahead by fifty."""
    rewards = np.column_stack([np.full(5, 9.5), np.zeros(5), np.zeros(5)])
    known = np.column_stack([np.full(5, 10.0), np.zeros(5), np.zeros(5)])
    source = ControlVariate(ArraySource(rewards), ArraySource(known), totals=[50.0, 0.0, 0.0])
    race = fr.UnequalRace([5, 0, 0], support=(-1, 0), offset=[0.0, 1.0, 0.5], allocation=allocation, rng=1)
    assert race.run(source).best == 0


def test_an_arm_that_cannot_win_is_never_read():
    race = fr.UnequalRace([5, 0], support=(-1, 0), offset=[0.0, 1.0], allocation="adaptive", rng=1)
    assert race.done and race.result().best == 1
    result = fr.UnequalRace([5, 0, 4], support=(-1, 0), offset=[0.0, 1.0, 2.0], allocation="adaptive", rng=1).run(
        [np.full(5, -0.1), np.empty(0), np.full(4, -0.5)])
    assert result.best == 1 and result.pulls.tolist() == [0, 0, 4]


@few_or_many("trials", 200, 2000)
@pytest.mark.parametrize("pooling", [0.0, 4.0])
def test_adaptive_race_errs_no_more_and_reads_less(pooling, trials, seed):
    missed, read, even = 0, 0, 0
    for child in np.random.SeedSequence(seed).spawn(trials):
        vectors, offset = clusters(np.random.default_rng(child))
        vectors = [v.clip(-3.0, 3.0) for v in vectors]
        result = sampled(vectors, offset=offset, allocation="adaptive", support=(-3, 3), pooling=pooling, rng=child)
        missed += result.best != exact(vectors, offset)
        read += result.pulls.sum()
        even += sampled(vectors, offset=offset, rng=child).pulls.sum()
    assert_rate_at_most(missed, trials, 0.01)
    assert read < 0.95 * even


def test_adaptive_race_does_not_read_what_cannot_win(seed):
    rng = np.random.default_rng(seed)
    vectors = [rng.uniform(0, 1, n) for n in (5000, 40, 30, 0)]
    result = sampled(vectors, support=(0, 1), allocation="adaptive", rng=1)
    assert (result.best, result.stopped_by) == (0, "bound")
    assert result.pulls.tolist() == [10, 0, 0, 0]
    assert np.isnan(result.total[1:3]).all()
    assert result.total[3] == 0.0
    assert sampled(vectors, rng=1).pulls.tolist() == [10, 10, 10, 0]
    # Without a support nothing is known of an arm that has not been read.
    assert (sampled(vectors, allocation="adaptive", rng=1).pulls[:3] >= 10).all()


def test_adaptive_race_ties_constants_and_impossible_arms(seed):
    equal = [np.full(300, 0.1)] * 3
    result = sampled(equal, allocation="adaptive", rng=1)
    assert (result.best, result.stopped_by) == (0, "exact")
    assert result.pulls.tolist() == [300] * 3
    assert sampled([np.zeros(0)] * 3, offset=[0, 2, 1], allocation="adaptive").best == 1
    # A support, or the variance of the other arms, speaks where an arm's own rewards do not differ.
    vectors = [np.random.default_rng(seed).normal(1.0, 0.1, 1000).clip(0, 2), np.full(800, 0.5)]
    for options in ({"support": (0, 0.9), "offset": [0, -500], "outside": "warn"}, {"pooling": 4.0}):
        assert sampled(vectors, allocation="adaptive", rng=1, **options).pulls.sum() < 200
    vectors[0][:] = -np.inf
    assert sampled(vectors, allocation="adaptive", rng=1).best == 1
    race = racer([500] * 3, allocation="adaptive", rng=1)
    for _ in range(2):
        with pytest.raises(ValueError, match="no arm is possible"):
            race.run([np.full(500, -np.inf)] * 3)


@pytest.mark.parametrize("allocation", ["even", "adaptive"])
@pytest.mark.parametrize("law", ["uniform", "skewed", "rare"])
@pytest.mark.parametrize("bound", ["hoeffding-serfling", "empirical-bernstein-serfling", "serfling"])
@few_or_many("trials", 100, 1000)
def test_rigorous_bounds_keep_their_promise(bound, law, allocation, trials, seed):
    delta, missed, saved = 0.1, 0, 0
    for child in np.random.SeedSequence(seed).spawn(trials):
        rng = np.random.default_rng(child)
        draw = {
            "uniform": lambda n, rng=rng: rng.random(n),
            "skewed": lambda n, rng=rng: rng.random(n) ** 20,
            "rare": lambda n, rng=rng: (rng.random(n) < 0.01).astype(float),
        }[law]
        vectors = [draw(n) for n in (1500, 900, 1500, 40)]
        offset = np.array([0.0, vectors[0].sum() - vectors[1].sum() + 1.0, -600.0, -900.0])
        result = sampled(vectors, delta=delta, bound=bound, support=(0, 1), offset=offset, allocation=allocation,
                         rng=rng)
        missed += result.best != exact(vectors, offset)
        saved += result.fraction_read < 1
        assert result.warnings == ()
    assert saved == trials
    assert_rate_at_most(missed, trials, delta)


def test_normal_rule_with_student_quantiles_keeps_delta_at_a_first_look_of_three(seed):
    # Two arms, equal sums: the worst case. Three rewards are too few for their own standard deviation.
    trials, missed = 1500, {False: 0, True: 0}
    for child in np.random.SeedSequence(seed).spawn(trials):
        rng = np.random.default_rng(child)
        a, b = rng.normal(size=(2, 400))
        vectors = [a - a.mean(), b - b.mean() - 1e-6]
        for student in missed:
            missed[student] += sampled(vectors, first_look=3, student=student, rng=rng).best != 0
    assert_rate_at_most(missed[True], trials, 0.05)
    assert missed[False] > 0.05 * trials


def test_small_arms_are_exact_at_the_first_look(seed):
    vectors = [np.arange(n, dtype=float) for n in (0, 1, 2, 10)]
    result = sampled(vectors, offset=[3.0, 2.5, 0.0, -50.0], rng=1)
    assert (result.best, result.stopped_by, result.n_looks) == (0, "exact", 1)
    assert result.total.tolist() == [3.0, 2.5, 1.0, -5.0]
    assert result.pulls.tolist() == result.n_rows.tolist() == [0, 1, 2, 10]
    assert (result.half_width[1:] == 0).all()
    assert "sum" in str(result)


def test_every_look_reads_more_until_all_is_read(seed):
    for size in (11, 12, 15, 20, 29, 1000, 12345):
        race = racer([size, size], 1e-300, rng=1)
        seen = [0]
        rows = [set(), set()]
        while not race.done:
            arms, row = race.ask()
            assert np.array_equal(race.ask()[1], row)
            for arm, r in zip(arms, row, strict=True):
                assert r not in rows[arm]
                rows[arm].add(int(r))
            race.tell(np.where(row % 2, 1.0, -1.0))
            seen.append(int(race.result().pulls[0]))
        assert seen[1:] == sorted(set(reference.looks(size, 10)))
        assert all(r == set(range(size)) for r in rows)
        assert race.result().stopped_by == "exact"


def test_ties_go_to_the_lowest_arm():
    for value in (0.1, 1 / 3):
        vectors = [np.full(300, value), np.full(300, value), np.full(300, value)]
        result = sampled(vectors, rng=1)
        assert (result.best, result.stopped_by) == (0, "exact")
        assert "equal at a look" in result.warnings[0]
    assert sampled([np.zeros(0), np.zeros(0)], offset=[1.0, 1.0]).best == 0


def test_equal_rewards_say_nothing_of_the_rest(seed):
    # The first look sees only zeros; one large reward decides. Without the tolerance arm 1 would win at once.
    for k in range(20):
        rare = np.zeros(3000)
        rare[np.random.default_rng([seed, k]).integers(3000)] = 1e6
        result = sampled([rare, np.random.default_rng(k).normal(0.01, 0.001, 3000)], rng=k)
        assert result.best == 0


def test_one_arm_no_rows_and_impossible_arms():
    one = sampled([np.arange(5.0)])
    assert (one.best, one.stopped_by, one.pulls.sum()) == (0, "single", 0)
    none = sampled([np.zeros(0)] * 3, offset=[0, 2, 1])
    assert (none.best, none.stopped_by, none.fraction_read) == (1, "exact", 0.0)
    vectors = [np.full(100, 5.0) + np.arange(100), np.zeros(100), np.ones(100)]
    dropped = sampled(vectors, offset=[-np.inf, 0.0, 0.0], rng=1)
    assert (dropped.best, dropped.pulls[0], dropped.total[0]) == (2, 0, -np.inf)
    left = sampled(vectors, offset=[-np.inf, 0.0, -np.inf])
    assert (left.best, left.stopped_by, left.pulls.sum()) == (1, "single", 0)
    with pytest.raises(ValueError, match="every arm"):
        sampled(vectors, offset=-np.inf)


def test_minus_infinity_takes_an_arm_out(seed):
    rng = np.random.default_rng(seed)
    vectors = [rng.normal(5, 1, 500), rng.normal(0, 1, 500), rng.normal(-1, 1, 500)]
    vectors[0][:] = -np.inf
    result = sampled(vectors, rng=1)
    assert result.best == 1
    assert (result.total[0], result.pulls[0]) == (-np.inf, 10)
    same(by_hand(racer([500] * 3, rng=1), vectors), result)
    race = racer([500] * 3, rng=1)
    for _ in range(2):
        with pytest.raises(ValueError, match="no arm is possible"):
            race.run([np.full(500, -np.inf)] * 3)


def test_known_parts_of_a_source_count(seed):
    from fastrace.sources import ArraySource

    values = np.random.default_rng(seed).normal(size=(400, 3))

    class Known(ArraySource):
        def shifts(self, arms=None):
            return np.array([0.0, 0.0, 600.0])

    race = racer([400, 200, 300], temperature=2.0, rng=1)
    offset = racer([400, 200, 300], temperature=2.0, offset=[0, 0, 300], rng=1)
    result = race.run(Known(values))
    same(result, offset.run(as_source(values)))
    assert result.best == 2


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
    asked, refused = threading.Event(), threading.Event()

    def rewards(arm, rows):         # the run waits here until the other thread has been refused
        asked.set()
        assert refused.wait(60.0)
        return vectors[arm][rows]

    thread = threading.Thread(target=race.run, args=(rewards,))
    thread.start()
    assert asked.wait(60.0)
    with pytest.raises(RuntimeError, match="in use"):
        race.ask()
    refused.set()
    thread.join()
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


def test_a_look_asked_for_in_parts_equals_run(seed):
    vectors = [np.random.default_rng([seed, i]).normal(size=n) for i, n in enumerate((700_000, 3_000_000, 900_000))]
    race = racer([len(v) for v in vectors], 1e-9, rng=3)
    asked = []
    while not race.done:
        arms, rows = race.ask()
        asked.append(arms.size)
        race.tell(np.concatenate([vectors[arm][rows[arms == arm]] for arm in range(3)]))
    same(race.result(), racer([len(v) for v in vectors], 1e-9, rng=3).run(vectors))
    assert len(asked) > race.result().n_looks and max(asked) <= 1 << 20


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


def test_arms_are_read_in_full_where_that_is_cheaper(seed):
    # 8 times cheaper in order: an arm is read in full at its first look of more than an eighth of its rows.
    vectors = [np.random.default_rng([seed, i]).normal(size=n) for i, n in enumerate((3000, 60, 3000, 12))]
    result = fr.race_sums(vectors, delta=1e-9, scan_advantage=8, rng=1)
    assert result.stopped_by == "exact"
    assert np.allclose(result.total, [v.sum() for v in vectors], rtol=1e-13)
    assert result.n_looks == 4                  # a fifth of the rest
    assert sampled(vectors, delta=1e-9, rng=1).n_looks == 6
    easy = fr.race_sums([vectors[0] + 9, *vectors[1:]], scan_advantage=8, rng=1)
    assert (easy.best, easy.pulls.tolist()) == (0, [10, 60, 10, 12])
    # In memory the default is to read in full unless the first look decides.
    assert fr.race_sums(vectors, delta=1e-9, rng=1).n_looks == 2
    for k in range(200):
        vectors, offset = clusters(np.random.default_rng([seed, k]))
        result = fr.race_sums(vectors, delta=1e-300, offset=offset, rng=k)
        assert result.best == exact(vectors, offset)
        assert (result.pulls <= result.n_rows).all()


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


def test_the_largest_sum_wins_not_the_largest_mean():
    few, many = np.full(10, 5.0), np.full(1000, 1.0)
    assert fr.race_sums([few, many], rng=1).best == 1
    assert "largest sum" in fr.race_sums.__doc__.splitlines()[0]
    with pytest.warns(DeprecationWarning, match="race_sums"):
        assert fr.race_unequal([few, many], rng=1).best == 1


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


@pytest.mark.parametrize("allocation", ["even", "adaptive"])
def test_tail_guard_keeps_delta_where_few_rows_carry_a_sum(allocation, seed):
    """A sum of rare large rewards beside a regular one: the first looks have seen little of what carries it."""
    trials, delta, n_rows, wrong, held = 100, 0.05, 10_000, dict.fromkeys((False, True), 0), 0
    for child in np.random.SeedSequence(seed).spawn(trials):
        rng = np.random.default_rng(child)
        rare, noise = np.zeros(n_rows), rng.normal(size=n_rows)
        rare[rng.choice(n_rows, n_rows // 500, replace=False)] = rng.exponential(size=n_rows // 500) + 0.2
        rare *= 1.0 / rare.mean()
        vectors = [0.8 + 0.1 * (noise - noise.mean()), rare]
        for guard, options in ((True, {}), (False, {"tail_guard": False})):
            result = sampled(vectors, delta=delta, allocation=allocation, rng=child, **options)
            wrong[guard] += result.best != exact(vectors, [0.0, 0.0])
            if guard and result.held_back.size:
                assert any("held back" in text for text in result.warnings)
                held += 1
            assert guard or not result.held_back.size
    assert wrong[True] <= wrong[False] and held > 0
    assert_rate_at_most(wrong[True], trials, delta)


def test_tail_guard_costs_next_to_nothing_on_normal_rewards(seed):
    rows = dict.fromkeys((False, True), 0)
    for k in range(60):
        rng = np.random.default_rng([seed, k])
        vectors = [rng.normal(rng.normal(0.0, 0.2), 1.0, int(rng.integers(300, 2000))) for _ in range(4)]
        for guard in rows:
            rows[guard] += sampled(vectors, rng=k, tail_guard=guard).pulls.sum()
    assert rows[True] <= 1.03 * rows[False]


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
