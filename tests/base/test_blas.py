"""BLAS is held to one thread while chains and their set-up are at work, and has its own number again afterwards."""

import os
import sys
import threading
import warnings

import numpy as np
import pytest

import elsewhere
from chains import logistic
from fastrace import mcmc
from fastrace._base import _blas
from fastrace._base._blas import one_blas_thread

threadpoolctl = pytest.importorskip("threadpoolctl")

TABLE = np.random.default_rng(0).normal(size=(200, 2))
OWNED = hasattr(threadpoolctl.OpenBLASController, "clear_controlling_thread")  # by the thread that sets them first
NUMBERS = (2, 3, 2, 3)  # of the libraries in turn: NumPy and SciPy bring one each


LOADED = threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers


def numbers():
    """Threads of each BLAS that is loaded."""
    return [lib.num_threads for lib in LOADED]


def set_numbers(wanted):
    """As the main thread does once, which then leaves them to other threads."""
    for lib, n in zip(LOADED, wanted, strict=False):
        lib.set_num_threads(n)
    if OWNED:
        threadpoolctl.OpenBLASController.clear_controlling_thread(force=True)


@pytest.fixture
def own():
    """Numbers that a user has asked for, and that no other test leaves changed."""
    before = numbers()
    set_numbers(NUMBERS)
    yield numbers()
    set_numbers(before)


def model(found):
    """A normal density of the columns' means, whose functions note how many threads there are."""

    def terms(theta, rows):
        found.append(numbers())
        return -0.5 * np.square(TABLE[rows] - theta).sum(axis=1)

    def derivatives(theta, rows):
        found.append(numbers())
        return TABLE[rows] - theta, np.broadcast_to(-np.eye(2), (len(rows), 2, 2))

    return mcmc.FunctionModel(terms, 2, len(TABLE), derivatives=derivatives, prior_sd=10.0)


CALLS = {
    "sample a model": lambda m: mcmc.sample(m, n_draws=40, n_tune=20, n_chains=2, threads=2, rng=1),
    "sample by a kernel": lambda m: mcmc.sample(mcmc.Metropolis(m), n_draws=40, n_tune=20, n_chains=2, rng=1),
    "laplace": lambda m: mcmc.laplace(m, 100, rng=1),
    "compress": mcmc.compress,
    "correct": lambda m: mcmc.correct(np.random.default_rng(0).normal(0.0, 0.1, (200, 2)), m.reference(), m, rng=1),
    "reference": lambda m: m.reference(),
    "RacingMetropolis": mcmc.RacingMetropolis,
    "RacingSlice": mcmc.RacingSlice,
    "SurrogateMetropolis": mcmc.SurrogateMetropolis,
    "VariableSelection": mcmc.VariableSelection,
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.filterwarnings("ignore")
def test_blas_has_one_thread_within_and_its_own_number_afterwards(name, own):
    found = []
    made = model(found)
    assert max(own) > 1
    CALLS[name](made)
    assert found and all(n == 1 for at in found for n in at)
    assert numbers() == own


def test_a_check_of_bias_and_a_mixture_hold_blas_too(own, monkeypatch):
    entered = []
    monkeypatch.setattr(_blas, "_open", lambda scope: entered.append(scope))
    X, y = logistic(300, 2)
    mcmc.MixtureOf(mcmc.GLM(X, y, prior_sd=2.5), np.arange(300) % 5, 2)
    assert entered
    kernel = mcmc.RacingMetropolis(mcmc.GLM(X, y, prior_sd=2.5))
    trace = mcmc.sample(kernel, n_draws=200, n_chains=1, rng=1)
    entered.clear()
    mcmc.check_bias(kernel, trace, n=5, rng=1)
    assert entered


def test_scopes_of_several_threads_overlap_and_the_last_gives_the_numbers_back(own):
    begun, end = threading.Event(), threading.Event()

    def other():
        with one_blas_thread():
            begun.set()
            assert end.wait(60.0)

    thread = threading.Thread(target=other)
    with one_blas_thread():
        thread.start()
        assert begun.wait(60.0)
        with one_blas_thread():
            pass
        assert set(numbers()) == {1}
    assert set(numbers()) == {1}  # the other one is still at work
    end.set()
    thread.join()
    assert numbers() == own


def test_many_scopes_at_once_leave_the_numbers_as_they_were(own):
    wrong = []

    def work():
        for _ in range(20):
            with one_blas_thread():
                wrong.extend(n for n in numbers() if n != 1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and numbers() == own


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_or_an_interrupt_gives_the_numbers_back(error, own):
    def callback(chain, steps):
        assert set(numbers()) == {1}
        raise error

    with pytest.raises(error):
        mcmc.sample(mcmc.Metropolis(model([])), n_draws=100, n_chains=2, rng=1, callback=callback)
    assert numbers() == own and not _blas._scopes


def test_an_interrupt_while_a_scope_begins_leaves_none_open(own, monkeypatch):
    def interrupted():
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(threadpoolctl, "ThreadpoolController", interrupted)
        with pytest.raises(KeyboardInterrupt), one_blas_thread():
            raise AssertionError
    assert not _blas._scopes and numbers() == own
    with one_blas_thread():
        assert set(numbers()) == {1}
    assert numbers() == own


def test_a_limit_of_the_users_own_is_what_comes_back(own):
    with threadpoolctl.threadpool_limits(2, "blas"):
        mcmc.compress(model([]))
        assert set(numbers()) == {2}
    assert numbers() == own


def test_other_threads_may_set_numbers_after_a_scope(own):
    def other():
        threadpoolctl.threadpool_limits(4, "blas")

    with one_blas_thread():
        pass
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert set(numbers()) == {4}


@pytest.mark.skipif(not OWNED, reason="any thread may set numbers")
def test_a_number_that_another_thread_controls_is_left_to_it(own):
    begun, end = threading.Event(), threading.Event()

    def other():
        with threadpoolctl.threadpool_limits(4, "blas"):
            begun.set()
            assert end.wait(60.0)

    thread = threading.Thread(target=other)
    thread.start()
    assert begun.wait(60.0)
    with one_blas_thread():
        end.set()
        thread.join()
    assert numbers() == own


def test_draws_are_the_same_without_threadpoolctl(monkeypatch):
    X, y = logistic(400, 3)
    kernel = mcmc.SurrogateMetropolis(mcmc.GLM(X, y, groups={"g": np.arange(400) % 20}))
    with threadpoolctl.threadpool_limits(1, "blas"):
        held = mcmc.sample(kernel, n_draws=50, n_chains=1, rng=1).draws
        monkeypatch.setitem(sys.modules, "threadpoolctl", None)
        found = mcmc.sample(kernel, n_draws=50, n_chains=1, rng=1).draws
    np.testing.assert_array_equal(found, held)


def forked(held_by_this_thread):
    """Numbers in a process that is forked while a scope is open, before and after it ends; those of the parent last."""
    set_numbers([2] * len(numbers()))
    begun, end = threading.Event(), threading.Event()

    def other():
        with one_blas_thread():
            begun.set()
            end.wait(60.0)

    def ask():
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            with one_blas_thread():  # the lock is free
                pass
            os.write(writer, bytes(numbers()))
            os._exit(0)
        os.close(writer)
        found = list(os.read(reader, 100))
        os.close(reader)
        os.waitpid(child, 0)
        return found

    if held_by_this_thread:
        with one_blas_thread():
            inside = ask()
    else:
        thread = threading.Thread(target=other)
        thread.start()
        begun.wait(60.0)
        inside = ask()
        end.set()
        thread.join()
    return inside, numbers()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("held_by_this_thread", [True, False])
def test_a_forked_process_keeps_the_scopes_of_its_own_thread_alone(held_by_this_thread):
    inside, after = elsewhere.call(forked, held_by_this_thread)
    assert set(inside) == ({1} if held_by_this_thread else {2})
    assert set(after) == {2}


def test_long_chains_without_threadpoolctl_say_what_may_be_slow(monkeypatch):
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(300), rng.standard_normal(300)])
    kernel = mcmc.SurrogateMetropolis(mcmc.GLM(X, rng.integers(2, size=300), groups=rng.integers(8, size=300)))
    for name in _blas._NUMBERS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(_blas, "SLOW", 0.0)
    there = {True: object(), False: None}
    for found in (True, False):
        monkeypatch.setattr(_blas.importlib.util, "find_spec", lambda name, found=found: there[found])
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            trace = mcmc.sample(kernel, n_draws=300, n_chains=2, rng=1)
        said = [str(w.message) for w in told if "BLAS could use threads" in str(w.message)]
        assert len(said) == (not found) and not any("BLAS" in words for words in trace.warnings)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    assert _blas.words_on_threads(60.0) == ""
