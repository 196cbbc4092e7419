"""Runs of chains: threads, callbacks and checkpoints lose nothing; traces and their statistics."""

import copy
import json
import pickle
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from chains import KERNELS, logistic, raced
from fastrace import mcmc
from fastrace.mcmc import _convergence, sampling
from fastrace.mcmc.protocol import STATISTICS
from fastrace.sources import CallableSource


def test_threads_make_the_chains_that_one_thread_makes():
    for kernel in (raced(), mcmc.PoissonMinibatchMetropolis(raced().model)):
        a = mcmc.sample(kernel, n_draws=3000, n_chains=3, rng=5, threads=1)
        b = mcmc.sample(kernel, n_draws=3000, n_chains=3, rng=5, threads=3)
        np.testing.assert_array_equal(a.draws, b.draws)
        np.testing.assert_array_equal(a.rows, b.rows)
        assert not np.array_equal(a.draws[0], a.draws[1])


@pytest.mark.parametrize("name", [*KERNELS, "frames", "shared", "slice", "race-slice"])
def test_every_kernel_goes_on_bit_for_bit_and_in_threads_as_in_turn(name, tmp_path):
    def frames(model):
        return mcmc.Metropolis(model, proposal="independent", batch=32, walk_share=0.01, frames=True)

    def shared(model):
        return mcmc.PoissonMinibatchMetropolis(model, proposal="independent", batch=32, walk_share=0.05)

    model = mcmc.GLM(*logistic(400, 3, 7), prior_sd=10.0)
    make = {**KERNELS, "frames": frames, "shared": shared, "slice": mcmc.Slice, "race-slice": mcmc.RacingSlice}[name]
    options = {"size": 0.05} if name == "tuna" else {}
    kernel = make(model, **options)
    whole = mcmc.sample(kernel, n_draws=90, n_chains=2, n_tune=60, rng=5, threads=1)
    side_by_side = mcmc.sample(kernel, n_draws=90, n_chains=2, n_tune=60, rng=5, threads=2)
    start = mcmc.sample(kernel, n_draws=40, n_chains=2, n_tune=60, rng=5, checkpoint=tmp_path / "chains")
    rest = mcmc.sample(make(model, **options), pickle.loads(pickle.dumps(start)), n_draws=50)
    resumed = mcmc.sample(make(model, **options), n_draws=90, n_chains=2, n_tune=60, checkpoint=tmp_path / "chains")
    for part in ("draws", "rows", "looks", "accepted", "full_pass", "undecided"):
        expected = getattr(whole, part)
        np.testing.assert_array_equal(getattr(side_by_side, part), expected)
        np.testing.assert_array_equal(getattr(resumed, part), expected)
        joined = np.concatenate([getattr(start, part), getattr(rest, part)], axis=1)
        np.testing.assert_array_equal(joined, expected)
    assert whole.accepted.any()


def test_chains_of_one_thread_take_turns_so_that_each_has_draws_when_sampling_is_cut_short():
    calls = []

    def callback(chain, steps):
        calls.append(chain)
        if len(calls) == 9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        mcmc.sample(raced(300), n_draws=10**8, n_chains=3, n_tune=0, rng=5, threads=1, callback=callback)
    assert calls == [0, 1, 2] * 3 and caught.value.trace.n_draws >= 3 * 32


def cut_short(monkeypatch=None, **replaced):
    """The exception of Ctrl-C in the ninth slice, or where a replaced part of `sample` raises it."""
    calls = []

    def callback(chain, steps):
        calls.append(chain)
        if not replaced and len(calls) == 9:
            raise KeyboardInterrupt

    for name, function in replaced.items():
        monkeypatch.setattr(sampling, name, function)
    with pytest.raises(KeyboardInterrupt) as caught:
        mcmc.sample(raced(300), n_draws=400 if replaced else 10**8, n_chains=3, n_tune=0, rng=5, threads=1,
                    callback=callback)
    return caught.value


def test_ctrl_c_does_not_wait_for_the_parts_of_a_chain_to_be_joined():
    trace = cut_short().trace
    for chain in trace.chains:
        assert "draws" not in vars(chain) and len(chain) >= 3 * 32
        assert chain.draws.shape == (len(chain), raced(300).model.dim)
        assert chain.draws is chain.draws and len(chain[:5]) == 5
        assert all(len(getattr(chain, name)) == len(chain) for name in STATISTICS) and not chain._left
        assert len(replace(chain, draws=chain.draws[:7])) == 7
    whole = mcmc.sample(raced(300), n_draws=3 * 32, n_chains=3, n_tune=0, rng=5)
    for again in (trace, pickle.loads(pickle.dumps(cut_short().trace)), copy.deepcopy(cut_short().trace)):
        np.testing.assert_array_equal(again.draws[:, : 3 * 32], whole.draws)
        np.testing.assert_array_equal(again.rows[:, : 3 * 32], whole.rows)


def test_ctrl_c_says_that_draws_are_kept_and_how_to_go_on():
    error = cut_short()
    note, = error.__notes__
    assert "not lost: error.trace has them" in note and "init=error.trace" in note
    count = error.trace.n_draws
    assert str(count) in note
    longer = mcmc.sample(raced(300), init=error.trace, n_draws=10, n_chains=3)
    whole = mcmc.sample(raced(300), n_draws=count + 10, n_chains=3, n_tune=0, rng=5)
    short = [len(chain) for chain in error.trace.chains]
    for c in range(3):
        assert short[c] > count or np.array_equal(longer.draws[c], whole.draws[c, count:])
    assert count in short


def test_ctrl_c_again_and_ctrl_c_while_draws_are_checked_lose_no_draw(monkeypatch):
    real, calls = sampling._Work.trace, []

    def trace(work):
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return real(work)

    def impatient(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(sampling._Work, "trace", trace)
        assert cut_short().trace.n_draws >= 3 * 32 and len(calls) == 2
    with monkeypatch.context() as patch:
        error = cut_short(patch, _problems=impatient)
        assert error.trace.n_draws == 400 and "400 draws of each chain" in error.__notes__[0]


def test_what_sample_computes_of_draws_is_kept_and_never_stale(monkeypatch):
    calls, real = [], _convergence._ranked_rhat
    monkeypatch.setattr(_convergence, "_ranked_rhat", lambda chains: (calls.append(chains.shape[2]), real(chains))[1])
    trace = mcmc.sample(raced(300), n_draws=400, n_chains=2, rng=5)
    dim = trace.draws.shape[2]
    assert sum(calls) == dim
    first, shown = trace.rhat(), str(trace)
    trace.rhat()[:] = trace.ess()[:] = np.nan  # copies
    trace.to_frame()
    assert str(trace) == shown and "nan" not in shown and sum(calls) == dim
    other = replace(trace, chains=tuple(chain[:100] for chain in trace.chains))
    fresh = pickle.loads(pickle.dumps(trace))
    assert "_known" not in vars(other) and "_known" not in vars(fresh)
    np.testing.assert_array_equal(fresh.rhat(), first)
    assert sum(calls) == 2 * dim and not np.array_equal(other.rhat(), first) and sum(calls) == 3 * dim


def test_a_trace_says_what_set_up_took_apart_from_sampling(monkeypatch):
    model = mcmc.GLM(*logistic(400, 3, 7), prior_sd=10.0)
    kernel = mcmc.SurrogateMetropolis(model)
    assert kernel.set_up_seconds > 0.0
    kernel.set_up_seconds = 5.0
    trace = mcmc.sample(kernel, n_draws=20, n_chains=2, rng=1)
    assert trace.set_up_seconds == 5.0 and "5.00 s of set-up and 0." in str(trace) and " s of sampling" in str(trace)
    assert trace.to_dict()["set_up_seconds"] == 5.0 and trace.to_dict()["seconds"] == trace.seconds
    assert trace._about()["set_up_time"] == 5.0 and trace._about()["sampling_time"] == trace.seconds
    longer = mcmc.sample(kernel, trace, n_draws=20)
    assert longer.set_up_seconds == 0.0 and "set-up" not in str(longer)  # it stands in the first
    unknown = mcmc.sample(mcmc.Metropolis(model), n_draws=20, n_chains=2, rng=1)
    assert np.isnan(unknown.set_up_seconds) and "set-up" not in str(unknown) and " s of sampling" in str(unknown)
    assert unknown.to_dict()["set_up_seconds"] is None and "set_up_time" not in unknown._about()
    monkeypatch.setattr(sampling, "kernel_for", lambda model: (time.sleep(0.3), (kernel, "so"))[1])
    for init in (None, trace):
        made = mcmc.sample(model, init, n_draws=20, rng=None if init else 1, n_chains=2)
        assert 0.3 <= made.set_up_seconds < 5.0
        assert "kernel chosen: so" in str(made) and "chosen" not in str(made).splitlines()[0]
    with pytest.raises(ZeroDivisionError) as caught:
        mcmc.sample(model, n_draws=20, n_chains=2, rng=1, callback=lambda chain, steps: 1 // 0)
    assert caught.value.trace.set_up_seconds >= 0.3


def test_a_trace_goes_on_as_if_it_had_never_stopped():
    kernel = raced()
    whole = mcmc.sample(kernel, n_draws=700, n_chains=2, rng=5)
    start = mcmc.sample(kernel, n_draws=300, n_chains=2, rng=5)
    for again in (start, pickle.loads(pickle.dumps(start))):
        rest = mcmc.sample(pickle.loads(pickle.dumps(kernel)), again, n_draws=400)
        np.testing.assert_array_equal(np.concatenate([start.draws, rest.draws], axis=1), whole.draws)
        np.testing.assert_array_equal(np.concatenate([start.rows, rest.rows], axis=1), whole.rows)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("when", [2, 6])
def test_a_callback_that_raises_loses_nothing_and_the_checkpoint_goes_on(tmp_path, threads, when):
    kernel = raced(300)
    whole = mcmc.sample(kernel, n_draws=4000, n_chains=2, rng=5)
    path = tmp_path / "chains"
    calls, seen = [], []
    lock = threading.Lock()

    def callback(chain, steps):
        with lock:
            calls.append(chain)
            seen.append((chain, len(steps)))
            if len(calls) == when:
                raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as caught:
        mcmc.sample(kernel, n_draws=4000, n_chains=2, rng=5, checkpoint=path, callback=callback, threads=threads)
    made = caught.value.trace
    assert sum(len(chain) for chain in made.chains) <= 8000
    for ours, right in zip(made.chains, whole.chains, strict=True):
        np.testing.assert_array_equal(ours.draws, right.draws[: len(ours)])
    finished = mcmc.sample(kernel, n_draws=4000, n_chains=2, rng=5, checkpoint=path)
    np.testing.assert_array_equal(finished.draws, whole.draws)
    with pytest.raises(ValueError, match="another run.*RacingMetropolis.*there.*'Metropolis'.*here"):
        mcmc.sample(mcmc.Metropolis(kernel.model), n_draws=4000, n_chains=2, checkpoint=path)


def scaled_terms(y, scale=1.0):
    return lambda theta, rows: -0.5 * (y[rows] - theta[0]) ** 2 / scale


def checkpointed(kind, *, row=0.0, prior_sd=10.0, scale=1.0):
    """A kernel over data of which one row, the prior or a number may be another."""
    if kind == "softmax":
        X, y = logistic(300, 2, 7)
        X[77, 1] += row
        return mcmc.Slice(mcmc.Softmax(X, y.astype(int), prior_sd=prior_sd), width=scale)
    if kind == "arch":
        returns = np.random.default_rng(3).standard_t(6.0, 400)
        returns[77] += row
        return mcmc.RacingMetropolis(mcmc.ARCH(returns, 1, prior_sd=prior_sd), 0.05 * scale)
    if kind in ("glm", "binned", "poisson"):
        X, y = logistic(300, 2, 7)
        y[77] = y[77] if row == 0.0 else 1.0 - y[77]
        model = mcmc.GLM(X, y, prior_sd=prior_sd)
        if kind == "poisson":
            return mcmc.PoissonMinibatchMetropolis(model, size=0.5 * scale)
        return mcmc.Metropolis(mcmc.Binned(model) if kind == "binned" else model, size=0.5 * scale)
    y = np.random.default_rng(1).normal(size=200)
    y[77] += row
    if kind == "gibbs":
        means = np.array([0.0, 0.1, 0.3]) * scale
        factors = lambda states, rows, z: -0.5 * (y[rows, None] - means[states]) ** 2  # noqa: E731
        return mcmc.RacingGibbs([mcmc.Categorical(3, factors, 200, log_prior=[0.0, 0.0, -prior_sd])])
    if kind == "source":
        def make():
            theta = np.zeros((2, 1))
            terms = lambda arms, rows: -0.5 * (y[rows, None] - theta[arms, 0]) ** 2 / scale  # noqa: E731
            return CallableSource(terms, 2, 200), theta
        return mcmc.RacingMetropolis(mcmc.SourceModel(make, prior_sd=prior_sd), covariance=[[0.01]])
    return mcmc.RacingMetropolis(mcmc.FunctionModel(scaled_terms(y, scale), 1, 200, prior_sd=prior_sd))


@pytest.mark.parametrize("kind", ["glm", "softmax", "arch", "binned", "poisson", "function", "source", "gibbs"])
def test_a_checkpoint_is_of_one_run(kind, tmp_path):
    path, options = tmp_path / "chains", {"n_chains": 2, "n_tune": 5, "rng": 5}
    kernel = checkpointed(kind)
    whole = mcmc.sample(kernel, n_draws=20, **options)
    mcmc.sample(kernel, n_draws=12, checkpoint=path, **options)
    before = path.read_bytes()
    wrong = {
        "model": [({"row": 0.5}, {}), ({"prior_sd": 9.0}, {})],
        "kernel|model": [({"scale": 1.5}, {})],
        "seed": [({}, {"rng": 6}), ({}, {"rng": np.random.default_rng(7)})],
        "n_chains 2 there, 3 here": [({}, {"n_chains": 3})],
        "n_tune": [({}, {"n_tune": 6})],
        "init": [({}, {"init": np.zeros_like(kernel.init().position)})],
        "has 12 draws": [({}, {"n_draws": 11})],
    }
    for name, cases in wrong.items():
        for other, asked in cases:
            with pytest.raises(ValueError, match=f"(of another run.*)?({name})(.|\n)*remove it.*another path"):
                mcmc.sample(checkpointed(kind, **other), checkpoint=path, **{"n_draws": 20, **options, **asked})
    assert path.read_bytes() == before
    for asked in (kernel, checkpointed(kind)):
        path.write_bytes(before)
        for rng in (5, None, np.random.SeedSequence(5), np.random.default_rng(5)):
            resumed = mcmc.sample(asked, n_draws=20, checkpoint=path, **{**options, "rng": rng})
            np.testing.assert_array_equal(resumed.draws, whole.draws)


def test_a_trace_goes_on_through_a_checkpoint_of_its_own(tmp_path):
    kernel, path = raced(300), tmp_path / "chains"
    start, other = (mcmc.sample(kernel, n_draws=20, n_chains=2, n_tune=5, rng=rng) for rng in (5, 6))
    mcmc.sample(kernel, start, n_draws=10, checkpoint=path)
    again = mcmc.sample(kernel, pickle.loads(pickle.dumps(start)), n_draws=30, checkpoint=path)
    np.testing.assert_array_equal(again.draws, mcmc.sample(kernel, start, n_draws=30).draws)
    with pytest.raises(ValueError, match="of another run, which differs in init"):
        mcmc.sample(kernel, other, n_draws=30, checkpoint=path)


@pytest.mark.parametrize("content", [b"hello", b"", pickle.dumps((2, {}))])
def test_damaged_checkpoints_and_wrong_places_are_told_before_sampling(content, tmp_path):
    path, calls = tmp_path / "chains", []
    path.write_bytes(content)
    callback = lambda chain, steps: calls.append(chain)  # noqa: E731
    for place, words in ((path, "chains' holds no chains of this fastrace"), (tmp_path, "a folder; the path of a file"),
                         (tmp_path / "none" / "chains", "its folder does not exist")):
        with pytest.raises(ValueError, match=words):
            mcmc.sample(raced(100), n_draws=10, n_chains=1, checkpoint=place, callback=callback)
    assert not calls and path.read_bytes() == content


def test_steps_one_by_one_are_a_run():
    kernel = raced()
    state = kernel.init(rng=1)
    _, steps = kernel.run(np.random.default_rng(2), state, 50)
    rng = np.random.default_rng(2)
    for i in range(50):
        state, info = kernel.step(rng, state)
        np.testing.assert_array_equal(state.position, steps.draws[i])
        assert info == steps.info(i)


def test_statistics_and_containers():
    trace = mcmc.sample(raced(), n_draws=300, n_chains=2, rng=1)
    assert trace.rows.shape == trace.looks.shape == trace.accepted.shape == (2, 300)
    assert ((trace.rows == 0) == (trace.looks == 0)).all()
    assert (trace.undecided >= trace.full_pass).all()
    groups = trace.to_arrays()
    assert set(groups["sample_stats"]) == {"n_rows", "n_looks", "accepted", "full_pass", "undecided"}
    assert groups["posterior"]["theta"].shape == (2, 300, 3)
    assert "rows a step" in str(trace) and "RacingMetropolis" in str(trace)
    plain = json.loads(json.dumps(trace.to_dict(), allow_nan=False))
    assert plain["posterior"]["theta"] == trace.draws.tolist() and plain["kernel"]["kernel"] == "RacingMetropolis"
    frame = trace.to_frame()
    assert list(frame["coordinate"]) == [f"x{j}" for j in range(3)]
    assert list(frame["ess"]) == pytest.approx(trace.ess())
    draws = trace.draws.reshape(-1, 3)
    for name, share in (("5%", 0.05), ("95%", 0.95)):
        np.testing.assert_allclose(frame[name], np.quantile(draws, share, axis=0))
        assert f" {frame[name][1]:.4g} " in str(trace) and name in str(trace)
    assert "included" not in frame and "per coordinate" in mcmc.Trace.to_frame.__doc__
    page = trace._repr_html_()
    assert page.count("<tr>") == 4 and f"{frame['mean'][0]:.4g}" in page
    assert "[[" not in repr(trace) and len(repr(trace)) < 200
    again = pickle.loads(pickle.dumps(trace))
    np.testing.assert_array_equal(again.draws, trace.draws)


def test_effective_sample_size_of_an_autoregression():
    rng = np.random.default_rng(0)
    for rho in (0.0, 0.5, 0.9, -0.4):
        x = np.zeros((4, 20_000))
        noise = rng.standard_normal(x.shape)
        for t in range(1, x.shape[1]):
            x[:, t] = rho * x[:, t - 1] + noise[:, t]
        expected = x.size * (1 - rho) / (1 + rho)
        assert 0.8 < mcmc.effective_sample_size(x) / expected < 1.25
    assert mcmc.effective_sample_size(np.ones((2, 50))) == 100


def test_arviz(monkeypatch):
    """Both lines of ArviZ are asked in their own way."""
    import sys
    import types

    trace = mcmc.sample(raced(300), n_draws=50, n_chains=2, n_tune=0, rng=1)
    for version in ("0.23.4", "1.3.0"):
        asked = {}
        stand_in = types.SimpleNamespace(__version__=version, from_dict=lambda *a, _to=asked, **k: _to.update(a=a, k=k))
        monkeypatch.setitem(sys.modules, "arviz", stand_in)
        trace.to_arviz()
        if version[0] == "0":
            assert set(asked["k"]) == {"posterior", "sample_stats", "attrs", "coords", "dims"}
        else:
            assert set(asked["a"][0]) == {"posterior", "sample_stats"} and "posterior" in asked["k"]["attrs"]
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match="arviz"):
        trace.to_arviz()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda m: mcmc.RacingMetropolis(m, 1.5), "delta"),
        (lambda m: mcmc.RacingMetropolis(m, proposal="guess"), "proposal"),
        (lambda m: mcmc.RacingMetropolis(m, size=0.0), "size"),
        (lambda m: mcmc.RacingMetropolis(m, size=1.5), "at most 1"),
        (lambda m: mcmc.RacingMetropolis(m, walk_share=1.0), "walk_share"),
        (lambda m: mcmc.RacingMetropolis(m, control_variate=[0.0]), "theta_hat"),
        (lambda m: mcmc.RacingMetropolis(m, access="shuffled"), "shuffle"),
        (lambda m: mcmc.RacingMetropolis(m, "x"), "delta"),
        (lambda m: mcmc.RacingMetropolis(m, bound="betting", control_variate=None), "support"),
        (lambda m: mcmc.PoissonMinibatchMetropolis(m, full_pass_at=0.0), "full_pass_at"),
        (lambda m: mcmc.PoissonMinibatchMetropolis(mcmc.FunctionModel(divmod, 1, 5)), "third derivative"),
        (lambda m: mcmc.RacingMetropolis(mcmc.FunctionModel(divmod, 1, 5), proposal="langevin"), "derivatives"),
        (lambda m: mcmc.RacingMetropolis(mcmc.FunctionModel(divmod, 2, 5), covariance=[[1.0]]), "covariance"),
        (lambda m: mcmc.TunaMetropolis(m, chi=0.0), "chi"),
        (lambda m: mcmc.TunaMetropolis(m, proposal="langevin"), "random-walk"),
        (lambda m: mcmc.RacingMetropolis(m).init([0.0]), "position"),
        (lambda m: mcmc.sample(mcmc.RacingMetropolis(m), np.zeros((3, 5)), n_chains=2), "init"),
        (lambda m: mcmc.sample(mcmc.RacingMetropolis(m), n_draws=-1), "n_draws"),
        (lambda m: mcmc.GLM(m._glm.X, m._glm.y, prior_sd=0.0), "prior_sd"),
        (lambda m: mcmc.FunctionModel(None, 1, 5), "terms"),
    ],
)
def test_bad_arguments(make, message):
    model = mcmc.GLM(*logistic(200, 3, 1))
    with pytest.raises((ValueError, TypeError), match=message):
        make(model)


def test_gil_is_released():
    """Another thread makes progress beside a chain of compiled code: beside a longer one, should chance keep it out."""
    kernel = mcmc.Metropolis(mcmc.GLM(*logistic(20_000, 3, 1)), control_variate=None)
    state, ticks = kernel.init(rng=1), 0
    for n_steps in (300, 3000, 30_000):
        done = []
        worker = threading.Thread(
            target=lambda n=n_steps, done=done: done.append(kernel.run(np.random.default_rng(1), state, n)))
        worker.start()
        while worker.is_alive():
            ticks += 1
            worker.join(0.001)
        assert done
        if ticks > 5:
            break
    assert ticks > 5
