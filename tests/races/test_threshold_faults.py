"""Decisions about a sum: faults, many rows, saved states, and what is refused."""

import copy
import math
import pickle
import re
import threading

import numpy as np
import pytest
from scipy import stats

import ctrl_c
import fastrace as fr
from fastrace.sources import ArraySource, CallableSource
from guarantee import few_or_many
from resident import assert_grows_at_most

RIGOROUS = ["betting", "hoeffding-serfling", "empirical-bernstein-serfling", "serfling"]


class Boom(Exception):
    pass


@pytest.mark.parametrize("at", [0, 1, 3, "total"])
def test_a_callback_raises(rng, at):
    d = rng.normal(0.0, 1.0, 2000)
    calls = [0]
    fails = [True]

    def rewards(arms, rows):
        calls[0] += 1
        if fails[0] and (rows.size >= 1000 if at == "total" else calls[0] == at + 1):
            raise Boom("mine")
        return d[rows][:, None]

    generator = np.random.default_rng(1)
    advantage = 8.0 if at == "total" else 1.0
    source = CallableSource(rewards, 1, 2000)
    test = fr.AcceptTest(source, delta=1e-6, first_look=20, rng=generator, scan_advantage=advantage)
    with pytest.raises(Boom, match="^mine$"):
        test.decide(d.sum() + 1e-3)
    assert test.stopped_by == "" and test.n_read == 0
    with pytest.raises(ValueError, match="nothing has been decided"):
        test.result()
    assert not is_locked(generator)
    fails[0] = False
    for near in (1e-3, -1e-3):
        right = [test.decide(d.sum() + near) == (near < 0) for _ in range(100)]
        assert sum(right) > 80


def is_locked(generator):
    """Whether another thread finds the generator's lock taken."""
    free = []

    def other():
        free.append(generator.bit_generator.lock.acquire(timeout=1.0))
        if free[0]:
            generator.bit_generator.lock.release()

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    return not free[0]


@few_or_many("times", 4, 20)
@pytest.mark.parametrize("access", ["random", "shuffled"])
@pytest.mark.resources
def test_interrupts(access, times):
    """Ctrl-C comes through in 100 ms, leaves no lock behind and the object usable."""
    endless = np.broadcast_to(np.array([[0.0]]), (2**33, 1))
    generator = np.random.default_rng(1)
    test = fr.AcceptTest(endless, bound="normal", access=access, rng=generator, scan_advantage=1.0)
    assert ctrl_c.press(lambda: test.decide(1.0), times) == times
    assert not is_locked(generator) and test.stopped_by == ""
    assert test.decide(-math.inf)


def test_nan_and_infinite_rewards_name_their_row(rng):
    d = rng.normal(0.0, 1.0, 500)
    d -= d.mean()
    for bad in (math.nan, math.inf):
        for access in ("random", "shuffled"):
            for advantage in (1.0, 100.0):
                spoiled = d.copy()
                spoiled[123] = bad
                test = fr.AcceptTest(spoiled, rng=1, access=access, scan_advantage=advantage)
                with pytest.raises(ValueError, match="row 123 is (nan|inf)"):
                    for _ in range(200):
                        test.decide(0.0)
                spoiled[123] = 0.0
                test.decide(0.0)
    pair = np.stack([d, d + 0.01], axis=1)
    pair[77, 0] = -math.inf
    with pytest.raises(ValueError, match=r"rewards of row 77 are -inf now and .* for the proposal"):
        fr.metropolis_accept(pair, 0.0, first_look=500, rng=1)


@pytest.mark.parametrize("options", [{}, {"support": (-10.0, 10.0)}], ids=str)
def test_impossible_proposals_are_rejected_with_certainty(rng, options):
    d = rng.normal(5.0, 1.0, 500)
    d[::2] = -math.inf
    assert not fr.metropolis_accept(d, -100.0, rng=1, **options)
    test = fr.AcceptTest(d, rng=1, scan_advantage=1.0, **options)
    assert not test.decide(-100.0)
    assert test.stopped_by == "exact" and test.mean == -math.inf and test.n_read == 50
    d[:] = 5.0
    assert test.decide(-100.0)
    full = np.zeros(500)
    full[3] = -math.inf
    assert not fr.metropolis_accept(full, -1.0, first_look=2, scan_advantage=1e6, rng=1)


def test_constant_differences_are_an_unknown_spread():
    test = fr.AcceptTest(np.full(3000, 0.25), rng=1, scan_advantage=1.0)
    assert test.decide(0.0) and test.stopped_by == "exact" and test.n_read == 3000
    assert test.constant and "equal" in test.warnings[0]
    tilted = np.full(3000, 0.1) + 0.2  # equal up to rounding only
    tilted[::3] = 0.3
    test = fr.AcceptTest(tilted, rng=1, scan_advantage=1.0)
    assert test.decide(0.0) and test.n_read == 3000


@pytest.mark.parametrize("access", ["random", "shuffled"])
@pytest.mark.parametrize("bound", ["normal", *RIGOROUS])
def test_a_difference_outside_the_support_is_refused(bound, access, rng):
    d = rng.random(2000)
    for rewards in (d, np.column_stack([np.zeros(2000), d])):
        test = fr.AcceptTest(rewards, bound=bound, support=(0.0, 0.9), access=access, rng=1)
        with pytest.raises(ValueError, match="the difference of row .* is 0.9.*outside support=.0.0, 0.9.") as error:
            test.decide(1000.0)
        row, value = re.search(r"row (\d+) is ([\d.]+)", str(error.value)).groups()
        assert d[int(row)] == float(value)
        test.source = fr.sources.ArraySource(0.9 * np.asarray(rewards).reshape(2000, -1))
        assert test.decide(0.0) and not test.outside
    with pytest.raises(ValueError, match="outside support"):
        fr.metropolis_accept(d, 900.0, support=(0.0, 0.5), rng=1)
    with pytest.raises(ValueError, match="raise"):
        fr.AcceptTest(d, support=(0.0, 0.5), outside="clip")


def test_differences_outside_the_support_are_flagged(rng):
    d = rng.random(2000)
    result = fr.metropolis_accept(d, 900.0, support=(0.0, 0.5), outside="warn", rng=1)
    assert "outside the support" in result.warnings[0]
    for bound in RIGOROUS:
        test = fr.AcceptTest(d, bound=bound, support=(0.4, 0.6), outside="warn", rng=1)
        test.decide(1000.0)
        assert test.outside and all(math.isfinite(value) for value in (test.mean, test.skewness))
    within = fr.AcceptTest(d, support=(d.min(), d.max()), rng=1)
    within.decide(1000.0)
    assert not within.outside and within.warnings == ()


def test_reentry_is_refused(rng):
    test = None

    def rewards(arms, rows):
        with pytest.raises(RuntimeError, match="in use"):
            test.decide(0.0)
        return np.ones((rows.size, 1))

    test = fr.AcceptTest(CallableSource(rewards, 1, 100), rng=1)
    assert test.decide(0.0)


def test_a_callback_may_use_the_same_generator(rng):
    def rewards(arms, rows):
        return rng.normal(1.0, 1.0, (rows.size, 1))

    test = fr.AcceptTest(CallableSource(rewards, 1, 10_000), rng=rng)
    assert test.decide(0.0)


def test_threads_give_the_serial_answer():
    def chain(seed, out):
        d = np.random.default_rng(seed).normal(0.0, 1.0, 20_000)
        test = fr.AcceptTest(d, rng=seed)
        out[seed] = [(test.accept(), test.n_read) for _ in range(300)]

    serial, parallel = {}, {}
    for seed in range(4):
        chain(seed, serial)
    threads = [threading.Thread(target=chain, args=(seed, parallel)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert parallel == serial


@pytest.mark.resources
def test_more_rows_than_32_bits():
    seen = []

    def rewards(arms, rows):
        seen.append(rows.copy())
        return np.full((rows.size, 1), 1.0) + 1e-3 * (rows % 7)[:, None]

    def decide():
        for access in ("random", "shuffled"):
            test = fr.AcceptTest(CallableSource(rewards, 1, 2**33), bound="normal", access=access, first_look=50, rng=3)
            assert test.decide(0.0) and test.n_read == 50
            read = np.concatenate(seen)
            assert np.unique(read).size == read.size == 50 and read.min() >= 0 and read.max() < 2**33
            if access == "random":
                assert read.max() > 2**31
                assert not test.decide(2.0**35)
                assert not np.array_equal(seen[-1], seen[0]), "a fresh order per decision"
            seen.clear()

    assert_grows_at_most(10e6, decide)


def test_reading_few_of_many_rows_touches_little_memory():
    table = np.broadcast_to(np.array([[1.0]]), (2**30, 1))

    def decide():
        test = fr.AcceptTest(table, bound="serfling", support=(0.0, 2.0), rng=1)
        for _ in range(20):
            assert test.decide(0.2 * 2**30) and test.n_read < 1000
        return test

    assert_grows_at_most(40e6, decide)


@pytest.mark.resources
def test_decisions_do_not_grow_memory(rng):
    d = rng.normal(0.0, 1.0, 300)
    test = fr.AcceptTest(d, bound="normal", rng=1)
    betting = fr.AcceptTest(d, support=(-10.0, 10.0), rng=1)

    def many(count):
        for _ in range(count):
            test.decide(-300.0)
            betting.decide(-300.0)
            test.result()

    many(5000)
    assert_grows_at_most(256 * 1024, lambda: many(50_000))


def test_pickles_and_copies_continue_exactly(rng):
    d = rng.normal(0.01, 1.0, 3000)
    for options in ({}, {"support": (-10, 10)}, {"access": "shuffled", "noise": "barker"}):
        test = fr.AcceptTest(d, rng=7, **options)
        for _ in range(30):
            test.accept()
        twins = [pickle.loads(pickle.dumps(test)), copy.deepcopy(test)]
        want = [(test.accept(-1.0), test.n_read, test.mean) for _ in range(100)]
        for twin in twins:
            assert [(twin.accept(-1.0), twin.n_read, twin.mean) for _ in range(100)] == want
    version = test.__reduce__()
    with pytest.raises(ValueError, match="pickled as version 2"):
        version[0](2, *version[1][1:])


def test_same_seed_same_answer_for_every_layout(rng):
    base = rng.normal(0.0, 1.0, 2000).astype(np.float32)
    wide = np.zeros((2000, 7))
    wide[:, 3] = base
    readonly = base.astype(float)
    readonly.setflags(write=False)
    layouts = [base, base.astype(float), wide[:, 3:4], base[::-1].copy()[::-1], readonly, list(map(float, base)),
               base.astype(">f8")[:, None], np.stack([np.zeros(2000), base], axis=1)]
    answers = []
    for layout in layouts:
        test = fr.AcceptTest(layout, bound="normal", rng=11, scan_advantage=1.0)
        answers.append([(test.decide(t), test.n_read, test.mean) for t in (-100.0, 30.0, 500.0)])
    assert all(answer == answers[0] for answer in answers)


def test_scaling_by_powers_of_two_changes_nothing(rng):
    d = rng.random(2000) - 0.4
    for bound in ["normal", *RIGOROUS]:
        answers = []
        for scale in (1.0, 2.0**-50, 2.0**30):
            support = None if bound == "normal" else (-0.4 * scale, 0.6 * scale)
            test = fr.AcceptTest(d * scale, bound=bound, support=support, rng=1, scan_advantage=1.0)
            answers.append([(test.decide(t * scale), test.n_read) for t in (100.0, 190.0, 210.0, 300.0)])
        assert answers[0] == answers[1] == answers[2]


def test_another_source_takes_its_place(rng):
    test = fr.AcceptTest(np.ones(100), rng=1)
    assert test.decide(0.0)
    test.source = ArraySource(-np.ones((100, 1)))
    assert not test.decide(0.0)
    with pytest.raises(ValueError, match="1 arms of 99 rows"):
        test.source = ArraySource(np.ones((99, 1)))
    with pytest.raises(ValueError, match="2 arms of 100 rows"):
        test.source = ArraySource(np.ones((100, 2)))


def test_support_follows_the_source(rng):
    source = ArraySource(np.stack([np.zeros(1000), rng.random(1000)], axis=1), support=(0.0, 1.0))
    test = fr.AcceptTest(source, rng=1)
    assert test.bound == "betting"
    assert test.decide(-1000.1) and test.n_read == 0  # differences lie in (-1, 1)
    assert test.decide(-999.0) and test.n_read > 0
    source.support = (np.array([0.0, 0.0]), np.array([0.0, 1.0]))
    assert test.decide(-1.0) and test.n_read == 0  # now in (0, 1)
    source.support = None
    with pytest.raises(ValueError, match="no support any more"):
        test.decide(0.0)


def test_result_prints_and_is_true_when_accepted(rng):
    result = fr.metropolis_accept(rng.normal(1.0, 1.0, 100_000), 0.0, rng=1)
    assert result and result.accepted and isinstance(result, fr.AcceptResult)
    assert result.fraction_read == result.n_read / 100_000 == 6400 / 100_000
    assert str(result).startswith("accepted: normal rule") and "stopped by bound" in str(result)
    assert "may have missed 45 rows of one kind (probability 0.05)" in str(result)
    assert result.half_width > 0.0
    with pytest.raises(AttributeError):
        result.accepted = False


@pytest.mark.parametrize(("n_rows", "first", "delta"), [(100_000, 50, 0.05), (2000, 50, 0.01), (100_000, 20_000, 1e-3)])
def test_a_result_says_how_many_rows_of_one_kind_may_be_unread(n_rows, first, delta):
    """By the hypergeometric law, and how far out they must be to turn the answer."""
    d = np.random.default_rng(1).normal(1.0, 1.0, n_rows)
    options = {"delta": delta, "first_look": first, "rng": 1, "scan_advantage": 1.0}
    result = fr.metropolis_accept(d, -1.0 * n_rows, **options)
    missed, reach = result.unseen_rows, result.unseen_reach
    assert (result.n_read, result.stopped_by) == (first, "bound") and str(missed) in str(result)
    none_read = stats.hypergeom(n_rows, np.array([missed - 1, missed + 2]), first).pmf(0)
    assert none_read[0] > delta > none_read[1]
    for beyond in (0.99, 1.01):      # `missed` rows so far below the mean, the others at it
        mean = result.mean - missed / n_rows * beyond * reach
        assert (mean > -1.0) == (beyond < 1.0)
    assert result.to_dict()["unseen_rows"] == missed
    by_betting = fr.metropolis_accept(d, -1.0 * n_rows, support=(-20.0, 20.0), **options)
    exact = fr.metropolis_accept(d, math.fsum(d), **{**options, "scan_advantage": 40.0})
    for certain in (by_betting, exact, fr.metropolis_accept(d, -math.inf, **options)):
        assert (certain.unseen_rows, certain.unseen_reach) == (0, math.inf)
        assert "may have missed" not in str(certain)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delta": 0.0}, "delta is 0.0"),
        ({"delta": math.nan}, "delta is nan"),
        ({"bound": "bernstein"}, "bound is 'bernstein'; one of"),
        ({"bound": "betting"}, "needs support"),
        ({"schedule": "bardenet"}, "needs support"),
        ({"schedule": "bardenet", "bound": "normal"}, "brings its own"),
        ({"schedule": "weekly"}, "schedule is 'weekly'"),
        ({"schedule": "korattikara", "student": True}, "Student quantiles anyway"),
        ({"support": (0.0, 1.0), "student": True}, "belong to the normal rule"),
        ({"support": (1.0, 0.0)}, "support is"),
        ({"support": 1.0}, "support is"),
        ({"noise": "gumbel"}, "noise is 'gumbel'"),
        ({"access": "sequential"}, "access is 'sequential'"),
        ({"first_look": 1}, "first_look is 1"),
        ({"growth": 1.0}, "growth is 1.0"),
        ({"growth": math.inf}, "growth is inf"),
        ({"scan_advantage": 0.5}, "scan_advantage is 0.5"),
    ],
    ids=str,
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        fr.AcceptTest(np.zeros(100), **options)


def test_bad_sources_and_thresholds():
    for table in (np.zeros((10, 3)), np.zeros((10, 2, 2))):
        with pytest.raises(ValueError, match="arms|shape"):
            fr.AcceptTest(table)
    with pytest.raises(TypeError, match="as_source"):
        fr.AcceptTest(lambda arms, rows: rows)
    test = fr.AcceptTest(np.ones(10), rng=1)
    with pytest.raises(ValueError, match="threshold is nan"):
        test.decide(math.nan)
    with pytest.raises(TypeError):
        test.decide("0")
    with pytest.raises(ValueError, match="came together"):
        fr.metropolis_accept(np.ones(10), 0.0, log_prior_ratio=1.0)
    with pytest.raises(ValueError, match="overflows"):
        fr.metropolis_accept(np.tile([1e308, 1.7e308], 500), 0.0, first_look=2, scan_advantage=1e9, rng=1)
    assert test.decide(0.0)


def test_a_source_without_rows_is_decided_by_the_threshold():
    test = fr.AcceptTest(np.zeros(0), rng=1)
    assert test.decide(-1.0) and not test.decide(0.0)
    assert test.result().fraction_read == 0.0


@pytest.mark.parametrize("size", [2, 20, 49])
def test_a_sum_that_overflows_before_the_first_look_is_refused(size):
    with pytest.raises(ValueError, match="the sum of the rewards overflows"):
        fr.AcceptTest(np.full(size, 1e308), rng=1).accept()
