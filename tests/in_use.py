"""What tests of guards share: what their errors say, threads that meet, generators."""

import threading

import numpy as np

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


def bernoulli(arms, counts):
    return np.random.default_rng(1).random(int(counts.sum())) < 0.5


def generator():
    return np.random.default_rng(1)
