"""Races over finite populations: callbacks that raise, Ctrl-C, threads, pickles, and rewards that are refused."""

import copy
import pickle
import threading

import numpy as np
import pytest

import ctrl_c
import fastrace as fr
from by_hand import RULES, drive, same
from resident import assert_grows_at_most


@pytest.mark.parametrize("fail_at", [0, 1, 2, 3])
def test_callback_raises_and_the_race_goes_on(fail_at, rng):
    values = rng.random((4000, 3)) + [0, 0.0, 0.01]

    class Stop(Exception):
        pass

    calls = {"left": fail_at}

    def rewards(arms, rows):
        if calls["left"] == 0:
            raise Stop("no more")
        calls["left"] -= 1
        return values[np.ix_(rows, arms)]

    source = fr.sources.CallableSource(rewards, 3, 4000)
    race = fr.FiniteRace(3, 4000, rng=11)
    with pytest.raises(Stop, match="no more"):
        race.run(source)
    assert race._race.rng.bit_generator.lock.acquire(blocking=False)
    race._race.rng.bit_generator.lock.release()
    calls["left"] = -1
    same(race.run(source), fr.FiniteRace(3, 4000, rng=11).run(source))


@pytest.mark.resources
def test_interrupt_stops_within_100_ms():
    values = np.zeros((400_000, 20))
    race = fr.FiniteRace(20, 400_000, scan_advantage=1.0, first_look=50, rng=1)

    def races():
        nonlocal race
        for _ in range(1000):
            race = fr.FiniteRace(20, 400_000, scan_advantage=1.0, first_look=50, rng=1)
            race.run(values)

    assert ctrl_c.press(races) == 5
    assert race._race.rng.bit_generator.lock.acquire(blocking=False)
    race._race.rng.bit_generator.lock.release()
    if not race.done:
        assert race.run(values).best == 0


@pytest.mark.parametrize("bound", RULES)
@pytest.mark.parametrize("order", ["random", "given"])
def test_a_race_restored_anywhere_goes_on_exactly(bound, order, rng):
    values = rng.random((3000, 4)) + [0, 0.01, 0, 0.02]
    race = fr.FiniteRace(4, 3000, 0.05, bound, support=(0, 1.02), order=order, rng=9)
    expected = drive(pickle.loads(pickle.dumps(race)), values)
    while not race.done:
        arms, rows = race.ask()
        for other in (pickle.loads(pickle.dumps(race)), copy.copy(race), copy.deepcopy(race)):
            result = drive(other, values)
            same(result, expected)
            np.testing.assert_array_equal(result.mean, expected.mean)
        race.tell(values[np.ix_(rows, arms)])
    same(race.result(), expected)


def test_a_pickle_of_another_version_is_refused():
    rebuild, (version, *rest) = fr.FiniteRace(2, 100).__reduce__()
    with pytest.raises(ValueError, match="pickled as version 2"):
        rebuild(version + 1, *rest)


def test_threads_give_the_serial_answer(rng):
    values = rng.random((20_000, 5)) + np.linspace(0, 0.02, 5)
    serial = [fr.race(values, rng=seed) for seed in range(8)]
    threaded = [None] * 8

    def work(seed):
        threaded[seed] = fr.race(values, rng=seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one, other in zip(serial, threaded, strict=True):
        same(one, other)


@pytest.mark.resources
def test_population_beyond_2_to_31_takes_no_memory():
    n_rows, seen = 2**33, []

    def rewards(arms, rows):
        seen.append(rows.max())
        return 0.1 * np.sin(rows[:, None] * (1.0 + arms)) + np.array([0.0, 0.1, 0.05])[arms]

    source = fr.sources.CallableSource(rewards, 3, n_rows)
    assert assert_grows_at_most(10e6, lambda: fr.race(source, rng=1)).best == 1
    assert max(seen) > 2**31
    assert fr.race(source, order="given", rng=1).n_looks >= 1


@pytest.mark.parametrize("share", [1 / 200, 1 / 20, 1 / 9, 1 / 7, 1 / 2, 1])
@pytest.mark.resources
def test_an_order_takes_memory_by_the_rows_read(share):
    n_rows = 8_000_000
    count = round(n_rows * share)
    first = max(2, count - 1)

    def asked():
        race = fr.FiniteRace(2, n_rows, first_look=first, rng=1)
        return race, race.ask()

    _, (_, rows) = assert_grows_at_most(8 * first + min(64 * count, 14 * n_rows) + 2e6, asked)
    assert len(rows) == first


def test_a_race_that_is_over_pickles(rng):
    values = rng.normal(size=(50_000, 3))
    for first_look, stopped_by in [(50_000, "exact"), (50, "bound")]:
        race = fr.FiniteRace(3, 50_000, first_look=first_look, offset=[0, 0, 1e4], rng=1)
        result = race.run(values)
        assert result.stopped_by == stopped_by
        for other in (pickle.loads(pickle.dumps(race)), copy.deepcopy(race)):
            assert other.done
            same(other.result(), result)


def test_a_race_is_used_by_one_caller_at_a_time(rng):
    race = fr.FiniteRace(2, 1000, rng=1)

    def rewards(arms, rows):
        race.ask()
        return np.zeros((rows.size, arms.size))

    with pytest.raises(RuntimeError, match="in use"):
        race.run(fr.sources.CallableSource(rewards, 2, 1000))
    values = rng.random((1000, 2)) + [0, 1]
    assert race.run(values).best == 1


def test_rewards_too_large_to_sum_are_refused():
    for advantage in (1.0, 50.0):
        for sign in (1.0, -1.0):
            race = fr.FiniteRace(2, 1000, scan_advantage=advantage, rng=1)
            with pytest.raises(ValueError, match="scale them down"):
                race.run(np.tile([sign * 1e307, sign * 1.5e307], (1000, 1)))


def test_told_rewards_may_be_read_only(rng):
    values = rng.random((1000, 2)) + [0, 1]
    values.setflags(write=False)
    race = fr.FiniteRace(2, 1000, rng=1)
    while not race.done:
        arms, rows = race.ask()
        block = values[np.ix_(rows, arms)]
        block.setflags(write=False)
        race.tell(block)
    assert race.result().best == 1
    race = fr.FiniteRace(2, 1000)
    arms, rows = race.ask()
    block = values[np.ix_(rows, arms)]
    with pytest.raises(ValueError, match="rewards has masked entries"):
        race.tell(np.ma.masked_equal(block, block[0, 0]))
    race.tell(np.ma.masked_array(values[np.ix_(rows, arms)]))           # nothing is masked


def test_many_looks_and_many_rows_are_refused_or_quick():
    with pytest.raises(ValueError, match="2\\^62"):
        fr.FiniteRace(2, 2**62 + 1)
    fr.FiniteRace(3, 10**6, growth=1.002)


def test_errors_of_a_users_function_reach_the_user_unchanged():
    def broken(arms, rows):
        raise ValueError("no such table")

    with pytest.raises(ValueError) as raised:       # `match` would see the notes that were added too
        fr.race(broken, n_arms=2, n_rows=100)
    assert str(raised.value) == "no such table"


def test_result_may_be_asked_for_in_another_thread_while_the_race_runs(rng):
    """It says what is known, with infinite intervals where the spread is being changed; it crashed before."""
    table = rng.random((300_000, 6))
    race = fr.FiniteRace(6, 300_000, 1e-9, "serfling", support=(0, 1), rng=1)
    found = []
    running = threading.Thread(target=lambda: race.run(table))
    running.start()
    while running.is_alive() and len(found) < 10_000:
        found.append(race.result())
    running.join()
    assert all(not (result.lower > result.upper).any() for result in found)
    assert np.isfinite(race.result().lower).all()


def test_rewards_far_from_zero_are_warned_of():
    right = (np.random.default_rng(0).random((2_000, 3)) < [0.5, 0.6, 0.4]).astype(float)
    for variance in ("pairwise", "marginal"):
        assert "far from 0" in " ".join(fr.race(right + 1e15, variance=variance, rng=1).warnings)
        assert "far from 0" not in " ".join(fr.race(right + 1e9, variance=variance, rng=1).warnings)
    assert not fr.race(np.c_[right[:, 0], right[:, 0]] + 1e15, rng=1).warnings  # no difference to lose
    # A constant on the scale of sums is no part of them.
    assert "far from 0" not in " ".join(fr.race(right, offset=[2e18, 2e18, 2e18], rng=1).warnings)
