"""Reliability of races, draws and decisions: load, faults, odd input and memory."""

import copy
import gc
import math
import pickle
import subprocess
import sys
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import elsewhere
import fastrace as fr
from by_hand import drive
from fastrace.control_variates import ControlVariate
from fastrace.races._options import BOUNDS, RIGOROUS
from fuzz import fuzz_race
from guarantee import assert_rate_at_most, few_or_many
from resident import assert_grows_at_most
from reward_tables import memory_map, read_only, spread, unaligned

RULES = [rule for rule in BOUNDS if rule != "auto"]

LAWS = {
    "coin 0.5": lambda n, rng: (rng.random(n) < 0.5).astype(float),
    "coin 0.05": lambda n, rng: (rng.random(n) < 0.05).astype(float),
    "coin 0.01": lambda n, rng: (rng.random(n) < 0.01).astype(float),
    "uniform": lambda n, rng: rng.random(n),
    "arcsine": lambda n, rng: rng.beta(0.5, 0.5, n),
    "ends": lambda n, rng: np.arange(n) % 2.0,
    "zeros": lambda n, rng: np.zeros(n),
    "constant": lambda n, rng: np.full(n, 0.3),
    "ones": lambda n, rng: np.ones(n),
    "a block, then noise": lambda n, rng: np.concatenate([np.full(n // 2, 0.2), rng.random(n - n // 2)]),
}


@few_or_many("trials", 60, 1000)
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("bound", RIGOROUS)
def test_coverage_under_optional_stopping(bound, law, trials, seed):
    """A decision errs where the interval of some look missed the mean: next to it, on either side."""
    n_rows, delta, wrong = 500, 0.1, 0
    rng = np.random.default_rng(seed)
    for trial in range(trials):
        x = LAWS[law](n_rows, rng)
        near = 1e-9 * n_rows * (1 if trial % 2 else -1)
        test = fr.AcceptTest(x, bound=bound, delta=delta, support=(0.0, 1.0), first_look=2, scan_advantage=1.0, rng=rng)
        wrong += test.decide(math.fsum(x) + near) != (near < 0)
    assert_rate_at_most(wrong, trials, delta)


@pytest.mark.parametrize("bound", RULES)
def test_a_smaller_delta_never_stops_earlier(bound, seed):
    for child in np.random.SeedSequence(seed).spawn(10):
        rng = np.random.default_rng(child)
        values = rng.random((2000, 2)) + [0.0, rng.choice([0.02, 0.1, 0.3])]
        deltas = [0.4, 0.1, 0.01, 1e-4, 1e-9, 1e-30]
        races = [fr.FiniteRace(2, 2000, delta, bound, support=(0, 1.3), rng=5).run(values) for delta in deltas]
        tests = [fr.AcceptTest(values, bound=bound, delta=delta, support=(-1.3, 1.3), scan_advantage=1.0, rng=5)
                 for delta in deltas]
        for test in tests:
            test.decide(0.0)
        for read in ([race.pulls[0] for race in races], [test.n_read for test in tests]):
            assert read == sorted(read)


@pytest.mark.parametrize("bound", RULES)
def test_a_dominated_arm_changes_no_winner(bound, seed):
    rng = np.random.default_rng(seed)
    for _ in range(20):
        values = rng.random((1000, 3)) + [0.0, 0.2, 0.1]
        more = np.column_stack([values, values.min(axis=1) - 0.5])
        one = fr.FiniteRace(3, 1000, 1e-6, bound, support=(-0.5, 1.2), rng=3).run(values)
        other = fr.FiniteRace(4, 1000, 1e-6, bound, support=(-0.5, 1.2), rng=3).run(more)
        assert one.best == other.best == 1


@pytest.mark.parametrize("access", ["random", "shuffled"])
@pytest.mark.parametrize("bound", RULES)
def test_counters_of_2_to_62_rows(bound, access):
    n_rows, seen = 2**62, []

    def rewards(arms, rows):
        assert rows.dtype == np.int64
        seen.append((rows.min(), rows.max()))
        return 0.25 + 0.5 * (arms == 1) + 0.2 * ((rows[:, None] >> 7 * (arms + 1)) % 3 - 1)

    source = fr.sources.CallableSource(rewards, 2, n_rows)
    order = "given" if access == "shuffled" else "random"
    result = fr.race(source, bound=bound, support=(0, 1), order=order, rng=1)
    assert (result.best, result.stopped_by) == (1, "bound")
    assert 0 < result.fraction_read < 1e-10
    test = fr.AcceptTest(source, bound=bound, support=(-1, 1), access=access, rng=1)
    assert test.decide(0.0) and not test.decide(0.99 * n_rows)
    assert np.min(seen) >= 0 and np.max(seen) < n_rows


MILLION = """
import numpy as np, psutil
import fastrace as fr

d = 10**6
source = fr.sources.ArraySource(np.broadcast_to(np.linspace(0.0, 1.0, d), (100, d)))
fr.LilUCB                   # loads the public names
before = psutil.Process().memory_info().rss
race = fr.LilUCB(d, 100, support=(0.0, 1.0), rng=1)
race.run(source, max_pulls=d + 1000)
grown = psutil.Process().memory_info().rss - before
result = race.result()
assert result.pulls.sum() == d + 1000 and result.best in np.flatnonzero(result.pulls == result.pulls.max())
assert grown < 160 * d, grown
"""


@pytest.mark.resources
def test_a_race_of_a_million_arms():
    """lil'UCB keeps at most 64 bytes an arm, a race by looks what it has read besides; in a process of its own."""
    pytest.importorskip("psutil")
    subprocess.run([sys.executable, "-c", MILLION], check=True)


# Faults.


def facts(result):
    return (result.best, result.stopped_by, result.n_looks, result.pulls.tolist(), result.mean.tolist(),
            result.warnings)


def answers(seed):
    """What one process finds."""
    rng = np.random.default_rng(seed)
    values = rng.random((4000, 4)) + [0.0, 0.01, 0.0, 0.02]
    sampler = fr.DiscreteSampler(values * 1e-2, rng=seed)
    test = fr.AcceptTest(values[:, :2], rng=seed)
    lil = fr.LilUCB(4, 4000, support=(0, 1.02), rng=seed).run(values, max_pulls=5000)
    unequal = fr.race_sums([values[: 500 * (i + 1), i] for i in range(4)], rng=seed)
    return (facts(fr.race(values, rng=seed)), facts(fr.race(values, support=(0, 1.02), order="given", rng=seed)),
            sampler.draw_many(50).tolist(), [test.accept() for _ in range(50)], lil.pulls.tolist(),
            unequal.total.tolist())


@pytest.mark.parametrize("way", ["process", "threads"])        # a fork in mid-suite may hang: see test_threads.py
def test_the_serial_answer_in_processes_and_threads(way):
    serial = [answers(seed) for seed in range(4)]
    if way == "threads":
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(answers, range(4)))
    else:
        found = [elsewhere.call(answers, seed) for seed in range(4)]
    assert found == serial


def test_one_object_in_two_threads_is_refused_or_serial(seed):
    """Two callers of one object: each call is refused with RuntimeError, or right."""
    values = np.random.default_rng(seed).normal(size=(20_000, 3))
    test = fr.AcceptTest(values[:, 0], delta=1e-9, rng=1)
    sampler = fr.DiscreteSampler(values * 1e-9, delta=1e-12, log_prior=[0.0, -500.0, -500.0], rng=1)
    total = math.fsum(values[:, 0])
    wrong, done, refused = [], [], []

    def work():
        for k in range(60):
            try:
                if test.decide(total - 100.0 * (-1) ** k) != (k % 2 == 0) or sampler.draw() != 0:
                    wrong.append(k)
                done.append(k)
            except RuntimeError as error:
                refused.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert done and len(done) + len(refused) == 240
    assert all("in use" in text for text in refused)
    assert test.decide(total - 100.0) and sampler.draw() == 0


def finish(saved, values):
    """What races that were saved find."""
    return [facts(drive(pickle.loads(race), values)) for race in saved]


@pytest.mark.parametrize("bound", ["normal", "betting"])
def test_checkpoints_go_on_in_a_new_process(bound, seed):
    """Bit for bit, from every look of 12 races."""
    values = np.random.default_rng(seed).random((3000, 4)) + [0, 0.01, 0, 0.03]
    saved, expected = [], []
    for k in range(12):
        order = ("random", "given")[k % 2]
        race = fr.FiniteRace(4, 3000, 0.05, bound, support=(0, 1.03), growth=2.0, order=order, rng=k)
        looks = 0
        while not race.done:
            saved.append(pickle.dumps(race))
            looks += 1
            arms, rows = race.ask()
            race.tell(values[np.ix_(rows, arms)])
        expected += [facts(race.result())] * looks
    assert elsewhere.call(finish, saved, values) == expected
    assert len(expected) >= 40


@pytest.mark.parametrize("n_rows", [50_000, 100_000, 2**33])
def test_every_kind_of_order_is_restored(n_rows):
    """A permutation, the displaced rows of a long population, and the key of one beyond 2^31 rows."""

    def rewards(arms, rows):
        return 0.5 + 0.4 * np.sin(rows[:, None] * (1.0 + arms)) + 0.02 * (arms == 1)

    race = fr.FiniteRace(3, n_rows, 0.01, rng=1)
    wanted = facts(fr.FiniteRace(3, n_rows, 0.01, rng=1).run(rewards))
    for _ in range(4):
        arms, rows = race.ask()
        for other in (pickle.loads(pickle.dumps(race)), copy.deepcopy(race)):
            assert facts(other.run(rewards)) == wanted
        race.tell(rewards(arms, rows))
    source = fr.sources.CallableSource(rewards, 3, n_rows)
    prior = [0.1 * n_rows, 0.0, 0.0]
    sampler, test = fr.DiscreteSampler(source, prior, rng=1), fr.AcceptTest(differences(source), rng=1)
    for _ in range(3):
        sampler.draw(), test.decide(-0.1 * n_rows)
    others = copy.deepcopy(sampler), copy.deepcopy(test)
    for _ in range(5):
        assert sampler.draw() == others[0].draw() == 0
        assert sampler.stats == others[0].stats
        assert test.decide(-0.1 * n_rows) == others[1].decide(-0.1 * n_rows)
        assert test.mean == others[1].mean


def differences(source):
    """Of its first two arms."""
    return fr.sources.CallableSource(lambda arms, rows: source.read(rows, [1]) - source.read(rows, [0]), 1,
                                     source.n_rows)


def test_a_truncated_checkpoint_raises(seed):
    values = np.random.default_rng(seed).random((2000, 3))
    race = fr.FiniteRace(3, 2000, rng=1)
    arms, rows = race.ask()
    race.tell(values[np.ix_(rows, arms)])
    saved = pickle.dumps(race)
    for cut in np.linspace(0, len(saved) - 1, 60).astype(int):
        with pytest.raises((EOFError, pickle.UnpicklingError, ValueError, IndexError)):
            pickle.loads(saved[:cut])


def test_cloudpickle_and_subclasses(seed):
    cloudpickle = pytest.importorskip("cloudpickle")
    values = np.random.default_rng(seed).random((2000, 3)) + [0, 0, 0.01]

    class Mine(fr.FiniteRace):
        """Known to this test only."""

    for race in (fr.FiniteRace(3, 2000, rng=1), Mine(3, 2000, rng=1)):
        arms, rows = race.ask()
        race.tell(values[np.ix_(rows, arms)])
        other = pickle.loads(cloudpickle.dumps(race))
        assert type(other).__name__ == type(race).__name__
        assert facts(drive(other, values)) == facts(drive(copy.copy(race), values))


def test_a_race_cut_short_says_what_it_knows(seed):
    """Stopping is a matter of asking no more; the answer then says that it is none."""
    values = np.random.default_rng(seed).random((5000, 4)) + [0, 0.01, 0.3, 0.31]
    race = fr.FiniteRace(4, 5000, bound="serfling", support=(0, 1.31), rng=1)
    result = race.result()
    assert (result.stopped_by, result.pulls.sum(), result.active.size) == ("", 0, 4)
    met_two = False
    while not race.done:
        arms, rows = race.ask()
        race.tell(values[np.ix_(rows, arms)])
        result = race.result()
        assert bool(result.stopped_by) == race.done
        assert result.best in result.active
        assert result.fraction_read == result.pulls.sum() / values.size
        assert np.isnan(result.half_width).sum() <= 1 and not (result.half_width < 0).any()
        if not race.done:
            assert result.active.size > 1 and np.array_equal(np.sort(race.ask()[0]), np.sort(result.active))
            assert str(result).splitlines()[0].endswith("still running")
            met_two = met_two or result.active.size == 2
    assert met_two


# Bad input.


def test_a_reward_outside_the_support_is_told(seed):
    """A difference outside the declared range is named in the warnings of each face, and 1e-12 of it is let pass."""
    values = np.random.default_rng(seed).random((1000, 2)) + [0.0, 0.2]
    values[:, 1] = np.minimum(values[:, 1], 1.0)
    for high, told in [(0.9, True), (1.0, False)]:
        warned = [fr.race(values, support=(0, high), outside="warn", rng=1).warnings,
                  fr.AcceptTest(values[:, 1], support=(0, high), outside="warn", rng=1)]
        warned[1].decide(math.fsum(values[:, 1]) * 0.999)
        sampler = fr.DiscreteSampler(values, support=(0, high), outside="warn", rng=1)
        sampler.draw_many(20)
        for warnings in (warned[0], warned[1].result().warnings, sampler.stats.warnings):
            assert any("outside the support" in text for text in warnings) == told


@pytest.mark.parametrize("delta", [0, 1, -0.1, math.nan, "0.1", None])
def test_no_face_takes_a_delta_that_is_none(delta):
    x = np.random.default_rng(0).normal(size=(100, 2))
    calls = [lambda: fr.race(x, delta), lambda: fr.FiniteRace(2, 100, delta),
             lambda: fr.DiscreteSampler(x, delta=delta), lambda: fr.AcceptTest(x, delta=delta),
             lambda: fr.metropolis_accept(x, delta=delta), lambda: fr.in_slice(x, 0.0, delta=delta),
             lambda: fr.gibbs_binary(x, delta=delta),
             lambda: fr.LilUCB(2, 100, delta, (0, 1)), lambda: fr.UnequalRace([100, 50], delta),
             lambda: fr.race_sums([x[:, 0], x[:50, 1]], delta=delta)]
    for call in calls:
        with pytest.raises((ValueError, TypeError), match="delta"):
            call()


@pytest.mark.parametrize("rewards", [[], [[]], np.zeros(5), 1.5, None, "table", np.zeros((3, 0)), np.zeros((2, 2, 2)),
                                     [[1.0, 2.0], [3.0]], {"a": 1.0}, {"a": ["x"]},
                                     {"a": [1.0], "b": [1.0, 2.0]}], ids=repr)
def test_tables_that_are_none(rewards):
    for call in (fr.race, fr.DiscreteSampler, fr.FiniteRace(2, 10).run):
        with pytest.raises((ValueError, TypeError)):
            call(rewards)


def _frame(x):
    return pytest.importorskip("pandas").DataFrame(x)


KINDS = {
    "float32": lambda x, _: x.astype(np.float32),
    "float16": lambda x, _: x.astype(np.float16),
    "int": lambda x, _: x.astype(np.int64),
    "int8": lambda x, _: x.astype(np.int8),
    "uint8": lambda x, _: x.astype(np.uint8),
    "bool": lambda x, _: x > 50,
    "longdouble": lambda x, _: x.astype(np.longdouble),
    "big-endian": lambda x, _: x.astype(">f8"),
    "read-only": lambda x, _: read_only(x),
    "strided": lambda x, _: spread(x),
    "strided float32": lambda x, _: spread(x.astype(np.float32)),
    "reversed": lambda x, _: x[::-1, ::-1].copy()[::-1, ::-1],
    "Fortran": lambda x, _: np.asfortranarray(x),
    "zero stride": lambda x, _: np.broadcast_to(x[:1], x.shape),
    "unaligned": lambda x, _: unaligned(x),
    "nothing masked": lambda x, _: np.ma.masked_array(x, mask=False),
    "memory map": memory_map,
    "pandas": lambda x, _: _frame(x),
    "list": lambda x, _: x.tolist(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_arrays_give_one_answer(kind, tmp_path, seed):
    rng = np.random.default_rng(seed)
    values = KINDS[kind](np.floor(rng.random((1500, 3)) * [60, 90, 100]), tmp_path)
    plain = np.array(values, dtype=np.float64, order="C")
    found = []
    for table in (values, plain):
        sampler = fr.DiscreteSampler(table, rng=2)
        test = fr.AcceptTest(np.asarray(table)[:, :2] if isinstance(table, list) else table[[0, 1]]
                             if hasattr(table, "columns") else table[:, :2], rng=2, scan_advantage=1.0)
        race = fr.FiniteRace(3, 1500, rng=2)
        found.append((facts(race.run(table)), sampler.draw_many(10).tolist(),
                      [(test.accept(), test.n_read, test.mean) for _ in range(10)]))
    assert found[0] == found[1]
    np.testing.assert_array_equal(np.asarray(values, dtype=np.float64), plain)


NONSENSE = {
    "None": lambda block: None,
    "a number": lambda block: 3,
    "0-d": lambda block: np.array(3.0),
    "a vector": lambda block: block[:, 0],
    "turned": lambda block: np.ones((block.shape[1] + 1, block.shape[0])),
    "a row too few": lambda block: block[:-1],
    "an arm too many": lambda block: np.column_stack([block, block]),
    "words": lambda block: block.astype(str),
    "complex": lambda block: block + 0j,
    "objects": lambda block: np.full(block.shape, None),
    "text": lambda block: "rewards",
}


@pytest.mark.parametrize("kind", NONSENSE)
def test_nonsense_from_a_callback_leaves_all_usable(kind, seed):
    values = np.random.default_rng(seed).random((3000, 2)) + [0.0, 0.03]
    mad = [True]

    def rewards(arms, rows):
        block = values[np.ix_(rows, arms)]
        return NONSENSE[kind](block) if mad[0] else block

    def fresh():
        source = fr.sources.CallableSource(rewards, 2, 3000)
        race, test = fr.FiniteRace(2, 3000, rng=1), fr.AcceptTest(source, rng=1)
        lil = fr.LilUCB(2, 3000, support=(0, 1.03), rng=1)
        sampler = fr.DiscreteSampler(source, rng=1)
        return [lambda: facts(race.run(source)), lambda: facts(lil.run(source, max_pulls=1000)),
                lambda: test.decide(0.0), lambda: sampler.draw()]

    calls = fresh()
    for call in calls:
        with pytest.raises((ValueError, TypeError)):
            call()
    mad[0] = False
    for call, other in zip(calls[:2], fresh()[:2], strict=True):
        assert call() == other()
    for call in calls[2:]:
        assert call() in (True, 0, 1)


def test_a_callback_may_change_what_it_is_given(seed):
    values = np.random.default_rng(seed).random((3000, 3)) + [0, 0, 0.05]

    def rude(arms, rows):
        block = values[np.ix_(rows, arms)]
        for array in (arms, rows):
            if array.flags.writeable:
                array[:] = -1
        return block

    def polite(arms, rows):
        return values[np.ix_(rows, arms)]

    for options in ({}, {"support": (0, 1.05)}):
        made = [fr.race(call, n_arms=3, n_rows=3000, rng=1, **options) for call in (rude, polite)]
        assert facts(made[0]) == facts(made[1])
    race = fr.FiniteRace(3, 3000, rng=1)
    while not race.done:
        arms, rows = race.ask()
        block = values[np.ix_(rows, arms)]
        if arms.flags.writeable:
            arms[:] = 10**9
        if rows.flags.writeable:
            rows[:] = -1
        race.tell(block)
        block[:] = np.nan
    assert facts(race.result()) == facts(fr.FiniteRace(3, 3000, rng=1).run(values))


# Memory.


def _ask_and_tell(x):
    race = fr.FiniteRace(2, 60, first_look=20, rng=1)
    arms, rows = race.ask()
    race.tell(x[np.ix_(rows, arms)])
    return pickle.loads(pickle.dumps(race)).result()


def _bad(call, *args, **options):
    with pytest.raises((ValueError, TypeError)):
        call(*args, **options)


CALLS = {
    "race": lambda x: fr.race(x, rng=1),
    "race by betting": lambda x: fr.race(x, support=(-9, 9), rng=1),
    "race of a callback": lambda x: fr.race(lambda arms, rows: x[np.ix_(rows, arms)], n_arms=2, n_rows=60, rng=1),
    "FiniteRace": _ask_and_tell,
    "str": lambda x: str(fr.race(x, rng=1)),
    "bad race": lambda x: _bad(fr.race, x * np.nan, rng=1),
    "bad option": lambda x: _bad(fr.race, x, bound="none"),
    "DiscreteSampler": lambda x: fr.DiscreteSampler(x, rng=1).draw_many(3),
    "AcceptTest": lambda x: fr.AcceptTest(x, rng=1).accept(),
    "AcceptTest, pickled": lambda x: pickle.loads(pickle.dumps(fr.AcceptTest(x, rng=1))).accept(),
    "metropolis_accept": lambda x: fr.metropolis_accept(x, rng=1),
    "in_slice": lambda x: fr.in_slice(x, 0.0, rng=1),
    "gibbs_binary": lambda x: fr.gibbs_binary(x, rng=1),
    "LilUCB": lambda x: fr.LilUCB(2, 60, support=(-9, 9), rng=1).run(x, max_pulls=50),
    "race_sums": lambda x: fr.race_sums([x[:, 0], x[:30, 1]], rng=1),
    "UnequalRace": lambda x: pickle.loads(pickle.dumps(fr.UnequalRace([60, 30], rng=1))).ask(),
    "ControlVariate": lambda x: fr.race(ControlVariate(*map(fr.sources.ArraySource, (x, 0.9 * x))), rng=1),
    "bounds": lambda x: (fr.bounds.serfling(20, 60, 1.0, 0.1, (0, 1)), fr.bounds.looks(60, 10),
                         fr.bounds.normal_quantile(0.1, 60, 20), fr.bounds.student_quantile(2.0, 10)),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.resources
def test_no_public_call_keeps_memory(name, seed, settled):
    psutil = pytest.importorskip("psutil")
    x = np.random.default_rng(seed).normal(size=(60, 2))
    call, process, times = CALLS[name], psutil.Process(), 300
    for _ in range(100):
        call(x)

    def grown():
        gc.collect()
        blocks, resident = sys.getallocatedblocks(), process.memory_info().rss
        for _ in range(times):
            call(x)
        gc.collect()
        return sys.getallocatedblocks() - blocks, process.memory_info().rss - resident

    # A leak grows every time; what other parts of the process keep once does not.
    for _ in range(5):
        blocks, resident = grown()
        if blocks <= 100 and resident <= 256 * 1024:
            return
    raise AssertionError(f"{times} calls kept {blocks} blocks, {resident} bytes, five times over")


@pytest.mark.resources
def test_a_race_on_a_long_memory_map_allocates_by_arms(tmp_path):
    """10^8 rows that the file system has hardly stored."""
    n_rows = 10**8
    with open(tmp_path / "rows", "wb") as file:
        file.truncate(8 * n_rows)
    values = np.memmap(tmp_path / "rows", np.float32, "r", shape=(n_rows, 2))
    offset = [0.0, 0.5 * n_rows]

    def races():
        for order in ("random", "given"):
            result = fr.race(values, bound="serfling", support=(0, 1), offset=offset, order=order, rng=1)
            assert (result.best, result.stopped_by) == (1, "bound") and result.pulls[0] < 5000

    races()                                 # maps the pages that it reads
    assert_grows_at_most(30e6, races)
    tracemalloc.start()
    try:
        races()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * 8 * 16 + 2**20


@pytest.mark.resources
def test_decisions_and_pulls_allocate_nothing(seed):
    x = np.random.default_rng(seed).normal(size=(3000, 1)) + 1.0
    test, sampler = fr.AcceptTest(x, rng=1), fr.DiscreteSampler(np.column_stack([x, -x]), rng=1)
    for _ in range(20):
        test.decide(0.0)
        sampler.draw()
    tracemalloc.start()
    try:
        for many in (200, 2000):
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(many):
                test.decide(0.0)
            sampler.draw_many(many)
            assert tracemalloc.get_traced_memory()[0] - before <= 4096
    finally:
        tracemalloc.stop()


@pytest.mark.filterwarnings("ignore:Precision loss:RuntimeWarning")
@pytest.mark.parametrize("runs", [150, pytest.param(20_000, marks=pytest.mark.long)])
def test_the_fuzz_target_on_random_bytes(runs, seed):
    """Without its fuzzer; `python tests/fuzz/fuzz_race.py` runs it for as long as one likes."""
    rng = np.random.default_rng(seed)
    for _ in range(runs):
        data = rng.bytes(int(rng.integers(4, 200)))
        try:
            fuzz_race.fuzz(data)
        except Exception as error:
            error.add_note(f"bytes.fromhex({data.hex()!r})")
            raise
