"""Stopping rules under faults: bad rewards and arguments, Ctrl-C, a second caller; saved, and kept in little memory."""

import copy
import math
import pickle
import threading
import tracemalloc

import numpy as np
import pytest

import ctrl_c
import fastrace as fr
from stopping_rules import ALL, outcome


def test_and_23_bad_rewards_change_nothing(seed):
    x = np.random.default_rng(seed).random(5000)
    for make in ALL.values():
        rule = make()
        rule.update_many(x[:700] * 0.8 + 0.1)
        before = pickle.dumps(rule)
        for bad in (np.nan, np.inf, -np.inf, *((1.5, -0.1) if rule.arguments["outside"] == "raise" else ())):
            if rule.done:
                break
            with pytest.raises(ValueError, match="support="):
                rule.update(bad)
            assert pickle.dumps(rule) == before
            for place in (0, 1, 600, 3000):
                fresh = make()
                if fresh.update_many(x * 0.8 + 0.1) <= place + 700:
                    continue
                y = x * 0.8 + 0.1
                y[place] = bad
                with pytest.raises(ValueError, match=rf"xs\[{place}\] is "):
                    rule.update_many(y)
                assert pickle.dumps(rule) == before


def test_bad_rewards_behind_the_stop_are_not_looked_at():
    x = np.r_[np.full(2000, 0.5), np.nan]
    rule = fr.EBGStop(0.1, 0.05)
    assert rule.update_many(x) == 738
    rule = fr.EBGStop(0.1, 0.05, max_samples=100)
    assert rule.update_many(np.r_[np.full(100, 0.5), 7.0]) == 100
    x = np.full(2000, 0.5)
    x[738] = np.nan
    assert fr.EBGStop(0.1, 0.05).update_many(x) == 738
    x[737] = np.nan
    with pytest.raises(ValueError, match=r"xs\[737\] is nan"):
        fr.EBGStop(0.1, 0.05).update_many(x)


def test_clipping_counts(seed):
    x = np.random.default_rng(seed).normal(0.5, 0.5, 4000)
    rule = fr.EBGStop(1e-3, 0.05, outside="clip")
    assert rule.update_many(x) == 4000
    assert rule.n_clipped == np.count_nonzero((x < 0) | (x > 1)) > 0
    assert rule.estimate == pytest.approx(np.clip(x, 0, 1).mean(), rel=1e-13)
    assert "clipped" in str(rule.result())
    with pytest.raises(ValueError, match="nan"):
        rule.update(np.nan)
    edge = fr.EBGStop(0.1, 0.05, (0, 2))
    edge.update(2 + 1e-12), edge.update_many([2 + 1e-12, -1e-12])       # rounding is forgiven
    assert edge.n_clipped == 0


@pytest.mark.parametrize(("make", "said"), [
    (lambda: fr.EBGStop(0.0), "epsilon is 0.0"),
    (lambda: fr.EBGStop(1), "epsilon is 1"),
    (lambda: fr.NAS(-1.0), "epsilon is -1.0"),
    (lambda: fr.NAS(math.inf), "epsilon is inf"),
    (lambda: fr.AA(math.nan), "epsilon is nan"),
    (lambda: fr.EBStop("0.1"), "epsilon is '0.1'"),
    (lambda: fr.EBStop(0.1, 0.0), "delta is 0.0"),
    (lambda: fr.SRA(0.1, 1), "delta is 1"),
    (lambda: fr.SRA(0.1, -0.1), "delta is -0.1"),
    (lambda: fr.AA(0.1, math.nan), "delta is nan"),
    (lambda: fr.AA(0.1, "0.1"), "delta is '0.1'"),
    (lambda: fr.EBGStop(0.1, 0.05, (1, 1)), "support is"),
    (lambda: fr.EBGStop(0.1, 0.05, (2, 1)), "support is"),
    (lambda: fr.EBGStop(0.1, 0.05, (0, math.inf)), "support is"),
    (lambda: fr.EBGStop(0.1, 0.05, 1.0), "support is 1.0"),
    (lambda: fr.EBGStop(0.1, beta=1.0), "beta is 1.0"),
    (lambda: fr.GeometricNAS(0.1, beta=0.5), "beta is 0.5"),
    (lambda: fr.EBStop(0.1, power=1.0), "power is 1.0"),
    (lambda: fr.EBStop(0.1, spending="all"), "spending is 'all'"),
    (lambda: fr.EBGStop(0.1, preset="best"), "preset is 'best'"),
    (lambda: fr.EBGStop(0.1, max_samples=0), "max_samples is 0"),
    (lambda: fr.EBGStop(0.1, max_samples=1.5), "max_samples is 1.5"),
    (lambda: fr.EBGStop(0.1, max_samples=2**62), "max_samples is"),
    (lambda: fr.EBGStop(0.1, outside="ignore"), "outside is 'ignore'"),
    (lambda: fr.EBGStop(0.1, floor=0.0), "floor is 0.0"),
    (lambda: fr.AbsoluteStop(0.0), "epsilon is 0.0"),
    (lambda: fr.AbsoluteStop(math.inf), "epsilon is inf"),
    (lambda: fr.AbsoluteStop(0.1, bound="nonsense"), "bound is 'nonsense'"),
    (lambda: fr.SignStop(math.inf), "threshold is inf"),
    (lambda: fr.SignStop(bound="fixed-size"), "bound is 'fixed-size'"),
])
def test_bad_arguments(make, said):
    with pytest.raises((ValueError, TypeError)) as raised:
        make()
    assert said in str(raised.value)


def test_every_kind_of_array(seed):
    x = (np.random.default_rng(seed).integers(0, 2, 3000)).astype(np.float64)
    wanted = fr.EBGStop(0.05, 0.05)
    wanted.update_many(x)
    wide = np.zeros((3000, 3))
    wide[:, 1] = x
    read_only = x.copy()
    read_only.setflags(write=False)
    pd = pytest.importorskip("pandas")
    for xs in (
        *(x.astype(kind) for kind in ("f4", "f2", "i4", "u1", "bool", ">f8", ">f4", "<i8", "longdouble")),
        wide[:, 1], x[::-1][::-1], np.asfortranarray(wide)[:, 1], read_only, x.tolist(), tuple(x.tolist()),
        pd.Series(x), np.ma.masked_array(x), x[::-1].copy()[::-1],
        np.frombuffer(b"\0" + x.tobytes(), dtype=np.uint8)[1:].view(np.float64),
    ):
        rule = fr.EBGStop(0.05, 0.05)
        kept = copy.deepcopy(xs)
        assert rule.update_many(xs) == 3000
        assert outcome(rule) == outcome(wanted)
        assert np.array_equal(np.asarray(xs), np.asarray(kept))
    assert fr.EBGStop(0.05).update_many(np.broadcast_to(0.5, (700,))) == 700
    for bad in (0.5, [[0.5]], np.zeros((2, 2)), ["a"], np.array([1j]), np.array([None]), iter([0.5]), "0.5",
                np.ma.masked_array([0.5, 0.5], [0, 1])):
        rule = fr.EBGStop(0.05)
        with pytest.raises((ValueError, TypeError)):
            rule.update_many(bad)
        assert rule.n_samples == 0
    for good in (True, 1, np.float32(0.5), np.int8(1), np.array(0.5), np.bool_(1), np.longdouble(0.5)):
        rule.update(good)
    for bad in ("0.5", None, 1j, [0.5], np.zeros(1), np.complex64(0.5)):
        with pytest.raises(TypeError):
            rule.update(bad)
    assert rule.n_samples == 7


@pytest.mark.parametrize("name", ALL)
def test_and_19_saved_and_restored_it_continues_exactly(name, seed):
    rng = np.random.default_rng(seed)
    x = rng.random(6000)
    whole = ALL[name]()
    whole.update_many(x)
    for cut in (0, 1, 511, 512, 513, int(rng.integers(2, 3000)), 6000):
        rule = ALL[name]()
        used = rule.update_many(x[:cut])
        for again in (pickle.loads(pickle.dumps(rule)), copy.copy(rule), copy.deepcopy(rule)):
            assert type(again) is type(rule) and outcome(again)[:2] == outcome(rule)[:2]
            again.update_many(x[used:])
            assert outcome(again) == outcome(whole)
        assert rule.n_samples == used           # a copy is on its own
    function, (_, *rest) = whole.__reduce__()
    with pytest.raises(ValueError, match="version 2"):
        function(2, *rest)
    cls, arguments, shared, own = rest
    with pytest.raises(ValueError, match="damaged"):
        function(1, cls, arguments, (-1, *shared[1:]), own)


def test_subclasses_keep_what_they_add():
    class Named(fr.EBGStop):
        pass

    Named.__qualname__ = "Named"
    globals()["Named"] = Named
    rule = Named(0.1)
    rule.label = "mine"
    rule.update(0.5)
    for again in (pickle.loads(pickle.dumps(rule)), copy.copy(rule)):
        assert type(again) is Named and again.label == "mine" and again.n_samples == 1


@pytest.mark.resources
def test_ctrl_c_leaves_it_as_it_was():
    x = np.broadcast_to(np.float64(0.0), (1 << 40,))        # would take an hour
    for rule in (fr.EBGStop(0.1, 0.05, (-1, 1)), fr.NAS(0.1, 0.05, (-1, 1)), fr.SRA(0.1),
                 fr.SignStop(bound="empirical-bernstein")):
        rule.update_many(np.zeros(1000))
        before = pickle.dumps(rule)
        assert ctrl_c.press(lambda rule=rule: rule.update_many(x), 2) == 2
        assert pickle.dumps(rule) == before
        assert rule.update(0.0) is False


def test_a_second_caller_is_refused():
    rule, refused = fr.EBGStop(0.1, 0.05, (-1, 1)), []
    for size in (10**7, 10**8, 10**9):          # longer, should this thread not come in between by chance
        x = np.broadcast_to(np.float64(0.0), (size,))
        thread = threading.Thread(target=rule.update_many, args=(x,))
        thread.start()
        while not refused and thread.is_alive():
            try:
                rule.update(0.0)
            except RuntimeError as error:
                refused.append(error)
        thread.join()
        if refused:
            break
    assert refused and "in use" in str(refused[0])
    assert rule.update(0.0) is False


@pytest.mark.resources
def test_updates_allocate_nothing(seed):
    rule = fr.EBGStop(1e-4, 0.05)
    x = np.random.default_rng(seed).random(20_000)
    values = x.tolist()
    for value in values[:1000]:
        rule.update(value)
    tracemalloc.start()
    try:
        start = tracemalloc.get_traced_memory()[0]
        for value in values:
            rule.update(value)
        rule.update_many(x)
        grown, peak = (number - start for number in tracemalloc.get_traced_memory())
    finally:
        tracemalloc.stop()
    assert grown < 500 and peak < 2000


def test_an_array_of_numbers_is_no_number():
    assert fr.EBStop(np.array(0.1)).arguments["epsilon"] == 0.1
    for bad in (np.array([0.1]), np.array([0.1, 0.2]), np.array("0.1"), np.array(0.1 + 0j)):
        with pytest.raises(TypeError, match="epsilon is array.* of type ndarray; a real number is needed"):
            fr.EBStop(bad)
