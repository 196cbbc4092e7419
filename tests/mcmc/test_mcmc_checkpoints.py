"""No finished run is lost, no damaged or strange file is taken, and none is overwritten."""

import copy
import os
import pickle
import warnings

import numpy as np
import pytest

from fastrace import mcmc
from fastrace._base import _files
from fastrace.mcmc import _checkpoints
from fastrace.mcmc.kernels._rows import Tuning
from fastrace.mcmc.protocol import StepInfo, Steps


def raced(n_rows=200, prior_sd=10.0):
    rng = np.random.default_rng(7)
    X = np.column_stack([np.ones(n_rows), rng.normal(size=n_rows)])
    return mcmc.RacingMetropolis(mcmc.GLM(X, rng.random(n_rows) < 0.4, prior_sd=prior_sd))


OPTIONS = {"n_chains": 2, "n_tune": 5, "rng": 5}


class Counter:
    """A kernel of a user's own, with states of a class that nobody here knows."""

    variable = "n"

    def __init__(self, make):
        self.make = make

    def init(self, position=None, rng=None):
        return self.make(0 if position is None else position)

    def step(self, rng, state):
        return self.run(rng, state, 1)[0], StepInfo(0, 0, True, False, False)

    def run(self, rng, state, n, *, tune=False):
        numbers = state.position + np.arange(1.0, n + 1.0)
        ones = np.ones(n, np.int64)
        return self.make(state.position + n), Steps(numbers, ones, ones.astype(np.int32), *(ones > 0,) * 3)

    def describe(self):
        return {"kernel": "Counter"}


class Own:
    def __init__(self, position):
        self.position = position


# What can go wrong with a disk.


@pytest.fixture
def full_disk(monkeypatch):
    """Switches the failure of writes on and off."""
    real, on = os.fsync, []

    def fsync(handle):
        if on:
            raise OSError(28, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    return on


@pytest.mark.parametrize("threads", [1, 2])
def test_a_finished_run_is_returned_though_its_checkpoint_cannot_be_written(tmp_path, full_disk, threads):
    path, kernel = tmp_path / "chains", raced()
    whole = mcmc.sample(kernel, n_draws=400, **OPTIONS)

    def callback(chain, steps):
        full_disk.append(1)

    with pytest.warns(UserWarning, match="could not be written .*No space left.*the draws are in the trace"):
        trace = mcmc.sample(kernel, n_draws=400, checkpoint=path, checkpoint_every=1e-9, callback=callback,
                            threads=threads, **OPTIONS)
    np.testing.assert_array_equal(trace.draws, whole.draws)
    full_disk.clear()
    assert os.listdir(tmp_path) == ["chains"]       # what was there at the start
    again = mcmc.sample(kernel, n_draws=400, checkpoint=path, **OPTIONS)
    np.testing.assert_array_equal(again.draws, whole.draws)


def test_ctrl_c_in_the_last_save_has_the_finished_trace(tmp_path, monkeypatch):
    calls, real = [], os.fsync

    def fsync(handle):
        calls.append(handle)
        if len(calls) == 3:     # file and folder at the start, then the file at the end
            raise KeyboardInterrupt
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(KeyboardInterrupt) as caught:
        mcmc.sample(raced(), n_draws=400, checkpoint=tmp_path / "chains", threads=1, **OPTIONS)
    assert caught.value.trace.n_draws == 400


def test_an_exception_keeps_its_trace_though_the_checkpoint_cannot_be_written(tmp_path, full_disk):
    def callback(chain, steps):
        full_disk.append(1)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as caught:
        mcmc.sample(raced(), n_draws=400, checkpoint=tmp_path / "chains", callback=callback, threads=1, **OPTIONS)
    assert caught.value.trace.n_chains == 2
    assert any("could not be written" in note for note in caught.value.__notes__)


def test_a_checkpoint_that_cannot_be_written_at_all_is_told_before_the_first_step(tmp_path, full_disk):
    full_disk.append(1)
    with pytest.raises(OSError, match="No space"):
        mcmc.sample(raced(), n_draws=10, checkpoint=tmp_path / "chains", callback=lambda *a: 1 / 0, **OPTIONS)
    assert os.listdir(tmp_path) == []


# Damage.


def test_changed_bytes_and_cut_files_are_refused(tmp_path):
    path, kernel = tmp_path / "chains", raced()
    mcmc.sample(kernel, n_draws=4, checkpoint=path, **OPTIONS)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    places = np.unique(np.concatenate([np.arange(130), rng.integers(0, len(whole), 150)]))
    broken = [whole[:i] + bytes([whole[i] ^ int(rng.integers(1, 256))]) + whole[i + 1 :] for i in places]
    broken += [whole[:i] for i in rng.integers(0, len(whole), 40)] + [whole + b"\0"]
    for content in broken:
        path.write_bytes(content)
        with pytest.raises(ValueError, match="damaged|holds no chains"):
            mcmc.sample(kernel, n_draws=8, checkpoint=path, callback=lambda *a: 1 / 0, **OPTIONS)
        assert path.read_bytes() == content


@pytest.mark.parametrize("content", [b"", b"hello", pickle.dumps((2, {}, [])), b"\x93NUMPY"])
def test_other_files_are_refused_and_stay(tmp_path, content):
    path = tmp_path / "chains"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="holds no chains of this fastrace.*another path"):
        mcmc.sample(raced(), n_draws=8, checkpoint=path, **OPTIONS)
    assert path.read_bytes() == content


def test_a_checkpoint_of_something_else_is_refused_by_name(tmp_path):
    path = tmp_path / "chains"
    _files.write(path, "trainings", 3, "run", b"theirs")
    with pytest.raises(ValueError, match="holds trainings, not chains"):
        mcmc.sample(raced(), n_draws=8, checkpoint=path, **OPTIONS)
    assert _files.read(path, "trainings", 3) == b"theirs"


def test_a_run_that_came_between_is_not_overwritten(tmp_path):
    """Two runs begin with no file there: the second to write is not the one whose file it is."""
    path, ours, theirs = tmp_path / "chains", raced(), raced(prior_sd=3.0)

    def callback(chain, steps):
        if not moved:
            moved.append(path.rename(tmp_path / "moved away"))
            mcmc.sample(theirs, n_draws=6, checkpoint=path, **OPTIONS)

    moved = []
    with pytest.warns(UserWarning, match="of another run and is not overwritten"):
        trace = mcmc.sample(ours, n_draws=50, checkpoint=path, callback=callback, threads=1, **OPTIONS)
    assert trace.n_draws == 50
    assert mcmc.sample(theirs, n_draws=6, checkpoint=path, **OPTIONS).n_draws == 6


# Formats.


@pytest.mark.parametrize("bits", [np.random.MT19937, np.random.PCG64, np.random.PCG64DXSM, np.random.Philox,
                                  np.random.SFC64])
def test_checkpoints_of_kernels_of_ours_hold_no_code(tmp_path, bits):
    path, kernel = tmp_path / "chains", raced()
    options = {"n_chains": 2, "n_tune": 60}
    whole = mcmc.sample(kernel, n_draws=90, rng=np.random.Generator(bits(5)), **options)
    mcmc.sample(kernel, n_draws=40, rng=np.random.Generator(bits(5)), checkpoint=path, **options)
    assert _files.unpack(_files.read(path, "chains", 3))["chains"][0]["generator"] == bits.__name__
    again = mcmc.sample(kernel, n_draws=90, checkpoint=path, **options)
    np.testing.assert_array_equal(again.draws, whole.draws)
    assert type(again.rngs[0].bit_generator) is bits


def test_states_of_a_users_own_kernel_are_pickled_and_kernels_of_ours_read_no_pickles(tmp_path):
    path, kernel = tmp_path / "chains", Counter(Own)
    mcmc.sample(kernel, n_draws=10, checkpoint=path, **OPTIONS)
    with pytest.raises(ValueError, match="holds pickled chains, not chains"):
        mcmc.sample(raced(), n_draws=20, checkpoint=path, **OPTIONS)
    trace = mcmc.sample(kernel, n_draws=20, checkpoint=path, **OPTIONS)
    np.testing.assert_array_equal(trace.draws, [np.arange(6.0, 26.0)] * 2)


def test_states_that_cannot_be_pickled_are_told_before_the_first_step(tmp_path):
    class Local(Own):
        pass

    with pytest.raises((AttributeError, pickle.PicklingError), match="Local"):
        mcmc.sample(Counter(Local), n_draws=10, checkpoint=tmp_path / "chains", callback=lambda *a: 1 / 0, **OPTIONS)
    assert os.listdir(tmp_path) == []


# States of other kernels.


def test_states_of_another_kernel_are_refused_before_memory_is_read(tmp_path):
    trace = mcmc.sample(raced(), n_draws=5, **OPTIONS)
    wide = mcmc.RacingMetropolis(mcmc.GLM(np.random.default_rng(0).normal(size=(50, 9)), np.arange(50) % 2))
    with pytest.raises(ValueError, match=r"(\(2,\)|\(9,\)).*needed"):
        wide.run(np.random.default_rng(1), trace.states[0], 5)
    with pytest.raises(ValueError, match="has 2 parameters, and the kernel's model 9"):
        mcmc.sample(wide, trace, n_draws=5)
    X = np.random.default_rng(0).normal(size=(20, 2))
    small = mcmc.FireflyMetropolis(mcmc.GLM(X, np.arange(20) % 2, prior_sd=1.0), fraction=0.5)
    state = copy.copy(small.init(rng=1))
    for cache in ((399,), (3, 3), (-1,), (5, 2)):
        object.__setattr__(state, "cache", cache)
        with pytest.raises(ValueError, match="bright row"):
            small.run(np.random.default_rng(1), state, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        object.__setattr__(state, "cache", (3, 7))
        small.run(np.random.default_rng(1), state, 5)


def test_a_state_saved_before_a_field_was_there_is_taken_up():
    tuning = Tuning(1.0, 5, 2, np.zeros(1), np.eye(1), 0, np.zeros(1), np.zeros((1, 1)))
    plain = _checkpoints._plain(tuning)
    del plain["best"]
    assert _checkpoints._whole(plain).best is None
    for other in ({**plain, "another": 1}, {key: value for key, value in plain.items() if key != "size"}):
        with pytest.raises(ValueError, match="other fields"):
            _checkpoints._whole(other)


def test_how_long_a_kernel_took_to_make_is_no_part_of_its_run(tmp_path):
    rng = np.random.default_rng(1)
    model = mcmc.GLM(np.ones((300, 1)), rng.random(300) < 0.5, groups=rng.integers(6, size=300))
    whole = mcmc.sample(mcmc.SurrogateMetropolis(model), n_draws=40, n_chains=2, n_tune=20, rng=1)
    for n_draws in (25, 40):            # each with a kernel of its own, as in another process
        path = tmp_path / "run.npz"
        again = mcmc.sample(mcmc.SurrogateMetropolis(model), n_draws=n_draws, n_chains=2, n_tune=20, rng=1,
                            checkpoint=path)
    np.testing.assert_array_equal(again.draws, whole.draws)
