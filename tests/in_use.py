"""What tests of guards share: what their errors say, threads that meet, generators."""

import threading

import numpy as np
import pytest

NEVER_SET_UP = "never set up: a subclass must call super"


def in_threads(*calls):
    """Run the calls at once, each in a thread of its own; return what each raised, or None."""
    raised = [None] * len(calls)
    start = threading.Barrier(len(calls))

    def guarded(k):
        start.wait()
        try:
            calls[k]()
        except BaseException as error:
            raised[k] = error

    threads = [threading.Thread(target=guarded, args=(k,)) for k in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


def assert_refuses_another_thread(race, rewards):
    """Run a race, which another thread cannot ask meanwhile."""
    asked, refused = threading.Event(), threading.Event()

    def waiting(arms, rows):        # until the other thread has been refused
        asked.set()
        assert refused.wait(60.0)
        return rewards(arms, rows)

    thread = threading.Thread(target=race.run, args=(waiting,))
    thread.start()
    assert asked.wait(60.0)
    with pytest.raises(RuntimeError, match="in use"):
        race.ask()
    refused.set()
    thread.join()


def bernoulli(arms, counts):
    return np.random.default_rng(1).random(int(counts.sum())) < 0.5


def generator():
    return np.random.default_rng(1)
