"""Processes, threads and limits: the serial answer in each, one user at a time, and honest answers when cut short.

Classes are found by inspection, so a new one is held to this without a line here.
"""

import faulthandler
import functools
import inspect
import multiprocessing
import pickle
import re
import sys
import threading
import time
from concurrent.futures.process import BrokenProcessPool

import numpy as np
import pytest

import catalogue
import elsewhere
import fastrace as fr
from catalogue import STEPS
from fastrace import mcmc
from fastrace.streams._stopping import Stream

SLOW = ("model_selection.DAUBSearchCV", "model_selection.RacingSearchCV", "boosting.FilterBoostClassifier")
OBJECTS = [name for name in catalogue.OBJECTS if name not in SLOW]


def life(name):
    thing = catalogue.made(name)
    return [catalogue.step(thing, k) for k in range(STEPS)]


def lives():
    return [life(name) for name in OBJECTS]


def forked_lives():
    """In a process that is begun anew: one with threads, as that of the tests may be by now, must not fork."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(lives)


@functools.cache
def serial():
    return lives()


@pytest.mark.parametrize("way", ["fork", "spawn", "threads"])
def test_every_class_gives_its_serial_answer(way):
    if way == "threads":
        found = [None] * len(OBJECTS)

        def work(part):
            for i in range(part, len(OBJECTS), 4):
                found[i] = life(OBJECTS[i])

        _all_at_once(work, 4)
    else:
        if way not in multiprocessing.get_all_start_methods():
            pytest.skip(f"no {way} here")
        found = elsewhere.call(forked_lives if way == "fork" else lives)
    for name, facts, expected in zip(OBJECTS, found, serial(), strict=True):
        assert facts == expected, name


def _all_at_once(work, number):
    threads = [threading.Thread(target=work, args=(part,)) for part in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


FINITE = {"pulls.RecordedPulls"}        # runs out of records in some 50 rounds


def shared(name, rounds):
    """Four threads work one object: what they raised, by type and words."""
    rounds = min(rounds, 12) if name in FINITE else rounds
    thing, errors = catalogue.made(name), set()

    def work(part):
        for k in range(rounds):
            try:
                catalogue.step(thing, (part + k) % STEPS)
            except Exception as error:
                errors.add((type(error).__name__, str(error)))
            if k % 5 == part:
                try:
                    pickle.dumps(thing)
                except Exception as error:
                    errors.add((type(error).__name__, str(error)))

    _all_at_once(work, 4)
    other = pickle.loads(pickle.dumps(thing))           # what is left works, and goes on as its copy does
    assert [catalogue.step(thing, k) for k in range(3)] == [catalogue.step(other, k) for k in range(3)]
    return errors


# Refused in the middle of another call; or, between ask() and tell(), after another thread's tell().
REFUSED = {
    "RuntimeError": [r"this \w+ is in use, in another thread or in a call around this one; .*",
                     r"the selection is over, stopped by .*"],
    "ValueError": [
        r"the (race|selection) is over; (it takes no more rewards|there is nothing left to ask for)",
        r"every hypothesis is decided; .*",
        r"tell\(\) came before ask\(\); ask\(\) says which rewards are wanted",
        r"statistics has shape \([\d, ]+\); \(k, \d+\) is needed, one column per hypothesis not decided, .*",
        r"rewards ha(s|ve) shape \([\d, ]+\)( and dtype float64)?; .*(is needed|are needed|ask\(\) wanted).*"],
}


def shared_in_turn(names, rounds, path):
    """What `shared` finds of each class; the file says which one is at work, and where a crash was."""
    with open(path, "w", encoding="utf-8") as file:
        faulthandler.enable(file)
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            found = []
            for name in names:
                print(name, file=file, flush=True)
                found.append((name, shared(name, rounds)))
            return found
        finally:
            sys.setswitchinterval(interval)
            faulthandler.disable()


@pytest.mark.parametrize(("part", "parts", "rounds"), [
    pytest.param(0, 1, 12, id="12 rounds"),
    *(pytest.param(part, 4, 400, id=f"part {part + 1}, 400 rounds", marks=pytest.mark.long) for part in range(4))])
def test_one_object_in_four_threads_is_refused_or_serial(part, parts, rounds, tmp_path):
    """In another process, which a damaged object would end."""
    try:
        found = elsewhere.call(shared_in_turn, OBJECTS[part::parts], rounds, tmp_path / "crash")
    except BrokenProcessPool:
        pytest.fail(f"a crash in the last class of these:\n{(tmp_path / 'crash').read_text()}")
    for name, errors in found:
        for kind, words in errors:
            assert any(re.fullmatch(form, words) for form in REFUSED.get(kind, ())), (name, kind, words)


SCHEDULERS = [name for name in OBJECTS if issubclass(catalogue.public_classes()[name], fr.model_selection.Scheduler)]


@pytest.mark.parametrize("name", SCHEDULERS)
def test_workers_share_a_scheduler_and_wait_for_each_other(name):
    """Its user's price is asked for in the middle of ask() and tell(): nobody else may be there meanwhile."""
    scheduler, inside, crowds, failures = catalogue.made(name), [], [], []
    if not scheduler._limited:
        scheduler._budget, scheduler._limited = 1e6, True

    def price(learner, n):
        inside.append(learner)
        time.sleep(5e-4)
        crowds.append(len(inside))
        inside.pop()
        return 1e-3

    scheduler._price, scheduler._cost, scheduler._by_rows = price, "own", False

    def work(part):
        try:
            while not scheduler.done:
                item = scheduler.ask()
                if item is None:
                    time.sleep(1e-4)
                else:
                    scheduler.tell(*item, *catalogue.scores_of(*item))
        except RuntimeError as error:
            failures.extend([] if "the selection is over" in str(error) else [error])
        except Exception as error:
            failures.append(error)

    _all_at_once(work, 4)
    assert failures == []
    told = [(line.learner, line.n) for line in scheduler.result().history]
    assert set(crowds) == {1} and len(told) == len(set(told)) and scheduler.outstanding == []


# Limits: an answer that says what cut it short, and bounds that hold all the same.

SUPPORT = (0.0, 1.2)
MEANS = catalogue.VALUES.mean(axis=0)


@pytest.mark.parametrize("name", [
    name for name in OBJECTS if issubclass(catalogue.public_classes()[name], Stream)])
def test_streams_end_at_max_samples_and_say_so(name):
    cls = catalogue.public_classes()[name]
    given = {"epsilon": 1e-4, "delta": 1e-6, "rng": 1, "threshold": 0.6, "support": (0.0, 1.0), "max_samples": 150}
    rule = cls(**{key: value for key, value in given.items() if key in inspect.signature(cls).parameters})
    assert rule.update_many(catalogue.STREAM[:300]) == 150
    result = rule.result()
    assert (result.stopped_by, result.n_samples, rule.done, result.stopped) == ("max_samples", 150, True, False)
    assert result.interval[0] <= 0.5 <= result.interval[1]
    assert "out of samples after 150" in str(result)


def limited():
    """Classes whose `run` takes `max_pulls`."""
    for name in OBJECTS:
        run = getattr(catalogue.public_classes()[name], "run", None)
        if run is not None and "max_pulls" in inspect.signature(run).parameters:
            yield name


@pytest.mark.parametrize("limit", [0, 1, 4, 37])
@pytest.mark.parametrize("name", list(limited()))
def test_races_end_at_max_pulls_and_say_so(name, limit):
    cls = catalogue.public_classes()[name]
    given = {**catalogue.ARGUMENTS, "delta": 1e-6, "support": SUPPORT, "epsilon": 1e-3, "rng": 1}
    del given["bound"]
    if name in ("HoeffdingRace", "BernsteinRace"):
        given["n_best"] = 1             # with an epsilon they find one arm
    race = cls(**{key: value for key, value in given.items() if key in inspect.signature(cls).parameters})
    selects = isinstance(race, fr.select.selection.Selection)
    source = fr.pulls.ResampledPulls(catalogue.VALUES, rng=1) if selects else catalogue.VALUES
    if limit < 4 and name != "LilUCB":  # no answer rests on fewer than a reward of each arm
        with pytest.raises(ValueError, match=f"max_pulls is {limit}; at least"):
            race.run(source, max_pulls=limit)
        return
    result = race.run(source, max_pulls=limit)
    assert result.pulls.sum() <= limit
    assert result.stopped_by in ("max_pulls", "")
    if selects:
        read = result.pulls > 0
        assert result.pulls.sum() == limit and result.stopped_by == "max_pulls"
        assert (np.isnan(result.lower) | (result.lower <= MEANS))[read].all()
        assert (np.isnan(result.upper) | (result.upper >= MEANS))[read].all()
    again = race.run(source, max_pulls=10)              # it goes on from there
    rounds = isinstance(race, fr.streams.stream_race.StreamRace)      # no round is begun that would exceed it
    assert limit - (result.active.size - 1 if rounds else 0) <= again.pulls.sum() <= limit + 10


def test_a_chain_stopped_by_its_callback_keeps_its_draws():
    class Enough(Exception):
        pass

    def stop(chain, steps):
        raise Enough("enough")

    kernel = mcmc.Metropolis(mcmc.GLM(catalogue.X, catalogue.Y, prior_sd=2.0))
    with pytest.raises(Enough) as raised:
        mcmc.sample(kernel, catalogue.STARTS, n_draws=10**6, n_chains=2, n_tune=0, rng=1, callback=stop)
    draws = [chain.draws for chain in raised.value.trace.chains]
    assert 0 < sum(map(len, draws)) < 2 * 10**6 and all(np.isfinite(part).all() for part in draws)
