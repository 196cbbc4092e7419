"""One use of an object at a time, after it has been set up, once: whoever comes in between is refused.

Who may come in between: another thread, a callback, `__array__` or `__float__` of what the user passes, a signal
handler, pickling. What a subclass may forget: `super().__init__()`.
"""

import copy
import pickle
import threading

import numpy as np
import pytest

import fastrace as fr

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


class Reenters:
    """An array_like or number that runs `act` while it is converted."""

    def __init__(self, value, act):
        self.value, self.act = value, act

    def __array__(self, dtype=None, copy=None):
        self.act()
        return np.array(self.value, dtype=dtype)

    def __float__(self):
        self.act()
        return float(self.value)


# Moments.

class Forgetful(fr.RunningMoments):
    def __init__(self):
        pass


class ForgetfulComoments(fr.RunningComoments):
    def __init__(self):
        pass


@pytest.mark.parametrize("use", [
    lambda m: m.update(1.0), lambda m: m.update_many([1.0]), lambda m: m.merge(fr.RunningMoments()),
    lambda m: fr.RunningMoments().merge(m), lambda m: m + m, lambda m: m.count, lambda m: m.mean,
    lambda m: m.variance(), lambda m: m.std(), repr, pickle.dumps, copy.copy, lambda m: m.copy()])
def test_moments_that_were_never_set_up_are_refused(use):
    with pytest.raises(RuntimeError, match=NEVER_SET_UP):
        use(Forgetful())


@pytest.mark.parametrize("use", [
    lambda m: m.update_many([[1.0]]), lambda m: m.merge(fr.RunningComoments(1)), lambda m: m.count,
    lambda m: m.leader, lambda m: m.difference_mean, lambda m: m.difference_variance(), repr, pickle.dumps])
def test_comoments_that_were_never_set_up_are_refused(use):
    with pytest.raises(RuntimeError, match=NEVER_SET_UP):
        use(ForgetfulComoments())


def test_moments_count_what_comes_in_while_an_argument_is_converted():
    m = fr.RunningMoments()
    m.update(Reenters(2.0, lambda: m.update_many([1.0, 3.0])))
    m.update_many(Reenters([4.0], lambda: m.update(0.0)))
    assert m.count == 5 and m.mean == 2.0


def test_moments_of_two_threads_are_all_counted():
    m, other = fr.RunningMoments(), fr.RunningMoments()
    x = np.arange(300_000.0)

    def one_by_one():
        for value in range(20_000):
            m.update(value)

    def in_blocks():
        for _ in range(10):
            m.update_many(x)

    def looks():
        for _ in range(2000):
            other.merge(m)
            pickle.loads(pickle.dumps(m))

    assert in_threads(one_by_one, in_blocks, in_blocks, looks) == [None] * 4
    assert m.count == 20_000 + 20 * x.size
    assert m.mean == pytest.approx((20 * x.sum() + sum(range(20_000))) / m.count, rel=1e-12)
