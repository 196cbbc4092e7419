"""Sources of rewards refuse what they cannot do, serve one user at a time, hear Ctrl-C, and are saved whole."""

import copy
import pickle
import sys
import threading

import numpy as np
import pytest

import ctrl_c
import fastrace as fr
from fastrace.pulls import (
    BernoulliPulls,
    CallablePulls,
    PullSource,
    RandomPulls,
    RecordedPulls,
    ResampledPulls,
    UniformPulls,
)

TABLE = np.random.default_rng(20160619).random((500, 2))


def bernoulli():
    return BernoulliPulls([0.5, 0.2], rng=1)


def uniform():
    return UniformPulls([0.0, 0.5], [1.0, 0.75], rng=1)


def resampled():
    return ResampledPulls(TABLE, rng=1)


def recorded():
    return RecordedPulls(TABLE)


def repeated(arms, counts):
    return np.repeat(arms, counts) / 10


def called():
    return CallablePulls(repeated, 2)


every_source = pytest.mark.parametrize("make", [bernoulli, uniform, resampled, recorded, called])
drawing = pytest.mark.parametrize("make", [bernoulli, uniform, resampled])


# What is read.


@every_source
@pytest.mark.parametrize(("arms", "counts"), [
    ([0, 0, 1, 1], [2**62] * 3 + [2**62 + 5]),          # their sum is 5 in 64 bits
    ([0, 1], [2**53, 1]), ([0], [2**63]), ([0], [2**64]), ([0], [-1]), ([0], [0]), ([2], [1]), ([-1], [1]),
    ([0], [1.5]), ([0.0], [1]), ([0], [np.nan]), ([0, 1], [1]), ([[0]], [[1]]), (0, 1), (["0"], [1]), ([True], [1]),
    (np.array([2**64 - 1], dtype=np.uint64), [1]), ([0], np.array([2**64 - 1], dtype=np.uint64)),
])
def test_reads_that_cannot_be_are_refused(make, arms, counts):
    source = make()
    with pytest.raises(ValueError, match=r"arms|counts"):
        source.read(arms, counts)
    assert np.array_equal(source.read([0, 1], [3, 2]), make().read([0, 1], [3, 2]))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.uint32, np.int64, np.uint64])
def test_whole_numbers_of_any_size_say_what_to_read(dtype):
    wanted = bernoulli().read([1, 0], [3, 4])
    assert np.array_equal(bernoulli().read(np.array([1, 0], dtype), np.array([3, 4], dtype)), wanted)


@every_source
def test_nothing_is_read_of_no_arms(make):
    assert make().read([], []).shape == (0,)


@drawing
def test_a_long_read_is_that_of_its_parts(make):
    whole, parts, counts = make(), make(), [70_000, 3, 1, 140_000, 65_535]
    arms = [0, 1, 0, 1, 1]
    wanted = np.concatenate([parts.read([arm], [count]) for arm, count in zip(arms, counts, strict=True)])
    assert np.array_equal(whole.read(arms, counts), wanted)


def test_recorded_rewards_are_read_all_or_none():
    source = RecordedPulls(np.zeros((100_000, 2)))
    with pytest.raises(ValueError, match="arm 1 is to be pulled 100001 times"):
        source.read([0, 1], [90_000, 100_001])
    assert source.read([0, 1], [100_000, 100_000]).shape == (200_000,)


def test_a_function_is_called_once_per_read():
    sizes = []

    def pull(arms, counts):
        sizes.append(counts.tolist())
        return np.zeros(counts.sum())

    CallablePulls(pull, 2).read([0, 1], [100_000, 200_000])
    assert sizes == [[100_000, 200_000]]


@drawing
@pytest.mark.resources
def test_interrupt_is_heard_while_many_rewards_are_read(make):
    source = make()
    assert ctrl_c.press(lambda: source.read([0, 1], [2 * 10**7, 10**7]), 3) == 3
    assert source.read([0], [10]).shape == (10,)


# One user at a time.


def beside(source, work, most=2000):
    """Call `work` in another thread while this one reads, ten times and until one of the two is refused; the errors."""
    errors, stop = [], threading.Event()

    def keep(call):
        try:
            call()
        except RuntimeError as error:
            errors.append(error)

    def again():
        while not stop.is_set():
            keep(work)

    thread = threading.Thread(target=again)
    thread.start()
    for k in range(most):
        keep(lambda: source.read([0, 1], [100_000, 100_000]))
        if errors and k >= 10:
            break
    stop.set()
    thread.join()
    return errors


@drawing
def test_a_source_shared_by_threads_refuses_and_stays_whole(make):
    source = make()
    for work in (lambda: source.read([0], [100_000]), lambda: pickle.dumps(source),
                 lambda: fr.LUCB(2, 1).run(source, 20_000)):
        errors = beside(source, work)
        assert errors and all("in use" in str(error) for error in errors)
        assert source.read([0, 1], [300, 300]).shape == (600,)
        assert source._saved()[1].size <= 256
        assert np.isin(source.read([0], [1000]), [0.0, 1.0]).all() or not isinstance(source, BernoulliPulls)


def test_two_rules_in_two_threads_do_not_draw_from_one_source():
    # Held for the whole run: either a rule ends as it would alone, or it is refused. No rewards are mixed.
    interval, wanted = sys.getswitchinterval(), fr.LUCB(2, 1, 0.0, 1e-9).run(bernoulli(), 200_000)
    sys.setswitchinterval(1e-5)
    try:
        source, start, ended, refused = bernoulli(), threading.Barrier(2), [], []

        def race():
            start.wait()
            try:
                ended.append(fr.LUCB(2, 1, 0.0, 1e-9).run(source, 200_000))
            except RuntimeError as error:
                refused.append(str(error))

        threads = [threading.Thread(target=race) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert len(ended) + len(refused) == 2
    assert all("in use" in text for text in refused)
    # One after the other on a busy machine, and written down in either order: the first of them ends as it would alone.
    assert wanted.mean.tolist() in [result.mean.tolist() for result in ended]


def test_rules_take_turns_with_a_source():
    source, alone = bernoulli(), bernoulli()
    first, second = fr.LUCB(2, 1), fr.LUCB(2, 1)
    first.run(source, 50), second.run(source, 50), first.run(source, 100)
    for limit in (50, 50, 50):
        alone.read([0], [limit])
    assert np.array_equal(source.read([0], [20]), alone.read([0], [20]))


def test_a_source_that_a_rule_holds_is_refused_to_its_own_callback():
    def fill(arms, rows):
        outer.read([0], [1])
        return TABLE[np.ix_(rows, arms)]

    outer = ResampledPulls(fill, rng=1, n_arms=2, n_rows=500)
    with pytest.raises(RuntimeError, match="in use"):
        outer.read([0], [10])


def test_functions_may_be_shared():
    source = called()
    nested = CallablePulls(lambda arms, counts: source.read(arms, counts), 2)
    assert source.read([1], [2]).tolist() == nested.read([1], [2]).tolist()
    assert not beside(source, lambda: source.read([1], [1000]), most=10)


@every_source
def test_a_source_is_set_up_once_and_before_use(make):
    source = make()
    with pytest.raises(TypeError, match="__init__ runs once"):
        source.__init__(*source.__reduce__()[1][2] if isinstance(source, RandomPulls) else (TABLE,)
                        if isinstance(source, RecordedPulls) else (repeated, 2))
    assert np.array_equal(source.read([0, 1], [3, 2]), make().read([0, 1], [3, 2]))

    class Forgetful(type(source)):
        def __init__(self):
            pass

    for call in (lambda x: x.read([0], [1]), lambda x: fr.LUCB(2, 1).run(x), pickle.dumps, copy.copy):
        with pytest.raises((RuntimeError, ValueError), match=r"never set up|have 0 arms"):
            call(Forgetful())


def test_a_source_without_pull_says_so():
    with pytest.raises(NotImplementedError, match="PullSource does not supply pull"):
        PullSource(2).read([0], [1])


# Saved.


@every_source
def test_copies_go_on_alone(make):
    for again in (copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))):
        source = make()
        source.read([0, 1], [100, 70])
        other = again(source)
        wanted = source.read([0, 1], [200, 100])
        assert np.array_equal(other.read([0, 1], [200, 100]), wanted)


@drawing
@pytest.mark.parametrize(("place", "value"), [
    (0, 2), (0, None), (1, RecordedPulls), (1, dict), (1, None), (2, ()), (2, [[0.5, 0.2]]), (2, (None,)),
    (2, (np.array([0.5, np.nan]),)), (2, ("x",)), (2, (0.5, 0.5, 0.5, 0.5)), (3, None), (3, 1), (3, "PCG64"),
    (4, np.zeros(257)), (4, np.array([1.0])), (4, np.array([-0.1])), (4, np.array([np.nan])), (4, np.array([1e300])),
    (4, np.zeros((2, 2))), (4, [0.5]), (4, None), (4, np.array([1], dtype=object)),
])
def test_a_damaged_source_is_refused(make, place, value):
    rebuild, state = make().__reduce__()
    with pytest.raises(ValueError, match=r"damaged|version"):
        rebuild(*state[:place], value, *state[place + 1 :])


@pytest.mark.parametrize(("place", "value"), [
    (0, 2), (1, None), (1, TABLE.T[0]), (1, TABLE.T.astype(complex)), (1, TABLE.T[:1]), (1, TABLE.T.astype(int)),
    (1, TABLE.T[:, :5]), (2, None), (2, np.array([501, 0])), (2, np.array([-1, 0])), (2, np.array([2**62, 0])),
    (2, np.array([0])), (2, np.array([0.5, 0.5])), (2, [10, 10]), (2, np.array([np.nan, 0])),
])
def test_damaged_recorded_rewards_are_refused(place, value):
    source = recorded()
    source.read([0], [10])
    rebuild, state = source.__reduce__()
    with pytest.raises(ValueError, match=r"damaged|version"):
        rebuild(*state[:place], value, *state[place + 1 :])
