"""Streams that are observed: intervals of arms, differences and ratios as of their twins, and what becomes of them."""

import copy
import itertools
import json
import math
import pickle

import numpy as np
import pytest

import fastrace as fr
from comparisons import MAKERS, events, given, observe
from fastrace.streams._sequences import differences
from reference import bounds
from reference import comparison as twin
from reference.sequences import portfolio_difference as twin_difference

# Twins

def test_exact_intervals_equal_the_twin():
    """At every so many rewards, and at the looks that are kept."""
    arms, x = events(np.random.default_rng(1), 70, (0.5, 0.3, 0.2))
    test = fr.Comparison(3, support=(0, 1), reference=0)
    alone = [fr.ConfidenceSequence(delta=0.01 / 3) for _ in range(3)]
    for first, last in itertools.pairwise((0, 4, 20, 39, 70)):      # looks are at 20, 39 and others
        test.observe_many(arms[first:last], x[first:last])
        result = test.result()
        rewards = [x[:last][arms[:last] == k] for k in range(3)]
        for k in range(3):
            alone[k].update_many(x[first:last][arms[first:last] == k])
            assert result.lower[k] <= alone[k].interval[0] + 1e-12
            assert result.upper[k] >= alone[k].interval[1] - 1e-12
        ends = list(zip(result.lower, result.upper, strict=True))
        found = twin.exact_differences(rewards, ends, 0.05, result.pairs.tolist())
        now = np.c_[result.difference_lower, result.difference_upper]
        assert np.allclose(now, found, atol=1e-6)
        past = test.history
        for look in np.flatnonzero(past["n_read"] == last):
            assert np.array_equal(np.c_[past["difference_lower"][look], past["difference_upper"][look]], now)
    assert set(test.history["n_read"]) > {20, 39}


HARD = {        # two streams in [0, 1] whose product of wealths has its least value near or at an end, or bends sharply
    "zeros and rare ones": (lambda rng, n: np.zeros(n), lambda rng, n: (rng.random(n) < 0.05).astype(float)),
    "zeros and zeros": (lambda rng, n: np.zeros(n), lambda rng, n: np.zeros(n)),
    "ones and zeros": (lambda rng, n: np.ones(n), lambda rng, n: np.zeros(n)),
    "constant and ones": (lambda rng, n: np.full(n, 0.3), lambda rng, n: np.ones(n)),
    "ends": (lambda rng, n: rng.beta(0.1, 0.1, n), lambda rng, n: (rng.random(n) < 0.9).astype(float)),
    "narrow": (lambda rng, n: 0.5 + 0.01 * rng.random(n), lambda rng, n: 0.52 + 0.01 * rng.random(n)),
}


@pytest.mark.parametrize("law", HARD)
def test_differences_of_hard_laws_equal_the_twin(law, seed):
    level = math.log(2 * 1 / (0.8 * 0.05))
    for n, m in ((4, 3), (30, 30), (200, 12)):
        rng = np.random.default_rng([seed, n])
        rewards = [draw(rng, count) for draw, count in zip(HARD[law], (n, m), strict=True)]
        test = fr.Comparison(2, support=(0, 1))
        for arm in range(2):
            test.observe_many(arm, rewards[arm])
        result = test.result()
        low, high, above, below = twin_difference(rewards[1], rewards[0], level)
        wide = max(low, result.lower[1] - result.upper[0]), min(high, result.upper[1] - result.lower[0])
        assert np.allclose([result.difference_lower[0], result.difference_upper[0]], wide, rtol=0, atol=1e-7)
        p_value = min(1.0, math.exp(math.log(2 / 0.8) - max(above, below)))
        assert result.error_bound[0] == pytest.approx(p_value, rel=1e-6)


@pytest.mark.parametrize(("first", "second"), [([1.0], [1.0]), ([0.9999], [0.5]), ([0.0, 1.0], [0.0])])
@pytest.mark.parametrize("doubled", [(20, 3), (27, 7)])
def test_differences_of_millions_of_rewards_and_few_equal_the_twin(first, second, doubled):
    """What bettors lose at once as a candidate moves is far more than two derivatives promise."""
    level, ends = math.log(2 / (0.8 * 0.05)), []
    test = fr.Comparison(2, support=(0, 1))
    for arm, x in enumerate((first, second)):
        more = fr.Comparison(2, support=(0, 1))
        more.observe_many(arm, x)
        for _ in range(doubled[arm]):
            more.merge(copy.copy(more))
        test.merge(more)
        ends.append(np.array([own.interval for own in test._arms]))
    found = np.zeros((1, 4))
    differences(test._arms, np.array([[0, 1]]), *ends[-1].T.copy(), level, True, found)
    expected = twin_difference(first, second, level, [2.0**k for k in doubled])
    assert np.allclose(found[0, :2], expected[:2], rtol=0, atol=2e-7)
    assert np.allclose(found[0, 2:], expected[2:], rtol=1e-6, atol=0.01)        # the twin's search is no finer


@pytest.mark.parametrize("clusters", [False, True])
@pytest.mark.parametrize("rate", [1.0, 0.15, 0.02])
def test_asymptotic_intervals_equal_the_twin(clusters, rate):
    rng = np.random.default_rng(2)
    arms, _ = events(rng, 900)
    keys = rng.integers(0, 60, size=900)
    x = rng.exponential(size=900) * (rng.random(900) < rate) + (0.3 * arms + np.sin(keys) * clusters) * rate**2
    test = fr.Comparison(3, delta=0.1, reference=0, clusters=clusters, first_look=40)
    test.observe_many(arms, x, clusters=keys if clusters else None)
    result, past = test.result(), test.history
    answers = [(900, result.lower, result.upper, result.difference_lower, result.difference_upper)]
    answers += [(n, *(past[name][look] for name in ("lower", "upper", "difference_lower", "difference_upper")))
                for look, n in enumerate(past["n_read"].tolist()) if look % 4 == 0]
    finite = 0
    for n, *ends in answers:
        now, code, key = x[:n], arms[:n], keys[:n]
        if min((code == k).sum() for k in range(3)) < 2:
            continue
        moments = []
        for k in range(3):
            mine = now[code == k]
            plain = mine.size, mine.mean(), mine.var(ddof=1), bounds.sample_skewness(mine)
            moments.append(twin.by_cluster(mine, key[code == k]) if clusters else plain)
        common = {(a, b): twin.shared(now[code == a], key[code == a], now[code == b], key[code == b])
                  for a, b in [(1, 0), (2, 0)]} if clusters else None
        own, differences = twin.asymptotic(moments, 0.1, 40, [(1, 0), (2, 0)], common)
        assert np.allclose(np.array(ends[:2]).T, own, rtol=1e-9)
        assert np.allclose(np.array(ends[2:]).T, differences, rtol=1e-9)
        finite += np.isfinite(differences).all()
    assert finite >= 2
    assert (result.n_clusters is None) == (not clusters) and result.kind == "asymptotic"


def test_the_error_bound_is_the_delta_at_which_the_interval_ends_at_zero():
    rng = np.random.default_rng(3)
    arms, x = events(rng, 3000, (0.5, 0.5), (0.0, 0.11))
    rare = 2 * x * (rng.random(x.size) < 0.08 + 0.06 * arms)
    for support, rewards in ((None, x), (None, rare), (None, -rare), ((0, 1), x)):
        test = fr.Comparison(2, support=support)
        test.observe_many(arms, rewards)
        bound = float(np.exp(-test._intervals(evidence=True)["pairs"][3][0]))
        assert test.result().error_bound[0] == pytest.approx(bound if support else max(bound, test.delta), rel=1e-12)
        assert 1e-12 < bound < 0.5
        for delta, clear in ((bound * 1.1, True), (bound * 0.9, False)):
            again = fr.Comparison(2, delta, support, smaller_is_better=(rewards < 0).any())
            again.observe_many(arms, rewards)
            assert (again.result().verdict == ("better",)) == clear


@pytest.mark.parametrize("clusters", [False, True])
@pytest.mark.parametrize("offset", [1e12, 1e13, 1e14, 1e15])
def test_far_from_0_differences_are_those_near_it(offset, clusters):
    rng = np.random.default_rng(14)
    rewards = {arm: np.round(4 * rng.normal(mean, 1.0, 900)) / 4 for arm, mean in (("a", 0.0), ("b", 0.5), ("c", 9.0))}
    keys = rng.integers(0, 300, 900).tolist() if clusters else None
    near, far, halves = (fr.Comparison(list(rewards), clusters=clusters) for _ in range(3))
    rest = fr.Comparison(list(rewards), clusters=clusters)
    for arm, x in rewards.items():
        near.observe_many(arm, x, clusters=keys)
        far.observe_many(arm, x + offset, clusters=keys)
        halves.observe_many(arm, x[:400] + offset, clusters=keys and keys[:400])
        rest.observe_many(arm, x[400:] + offset, clusters=keys and keys[400:])
    halves.merge(pickle.loads(pickle.dumps(rest)))
    here = near.result()
    for there in (far.result(), halves.result()):
        assert np.allclose(there.difference, here.difference, rtol=1e-9)
        assert np.allclose(there.difference_upper, here.difference_upper, rtol=1e-9)
        assert np.allclose(there.difference_lower, here.difference_lower, rtol=1e-9)
        assert there.verdict == here.verdict == ("better", "better", "better")
        assert ((there.lower <= here.lower + offset) & (here.upper + offset <= there.upper)).all()


# Verdicts

def test_verdicts():
    rng = np.random.default_rng(5)
    test = fr.Comparison(["base", "up", "down", "same", "rare"], support=(0, 1), reference="base", epsilon=0.05)
    for arm, rate in (("base", 0.3), ("up", 0.4), ("down", 0.2), ("same", 0.3)):
        test.observe_many(arm, rng.random(20_000) < rate)
    test.observe("rare", 1)
    result = test.result()
    assert result.verdict == ("better", "worse", "equivalent", "not known yet")
    assert [result.names[arm] for arm in result.pairs[:, 0]] == ["up", "down", "same", "rare"]
    assert set(result.pairs[:, 1]) == {0}
    other = fr.Comparison(["base", "up"], smaller_is_better=True)
    for arm, mean in (("base", 5.0), ("up", 6.0)):
        other.observe_many(arm, rng.normal(mean, 1.0, 500))
    assert other.result().verdict == ("worse",)


def test_all_pairs_without_a_reference():
    test = fr.Comparison(4)
    assert [(a, b) for a, b in test.result().pairs.tolist()] == [
        (a, b) for a, b in itertools.product(range(4), repeat=2) if b < a]


def test_rare_events_and_constants_are_warned_of_by_name():
    test = fr.Comparison(["x", "y"])
    test.observe_many("x", np.r_[np.zeros(399), 1.0])
    test.observe_many("y", np.zeros(400))
    result = test.result()
    assert "arm 'x': few of the 400 rewards" in result.warnings[0] and "arm 'y': all 400 rewards" in result.warnings[1]
    assert math.isinf(result.upper[1]) and result.verdict == ("not known yet",)
    assert not fr.Comparison(2, support=(0, 1)).result().warnings


def test_a_single_arm_is_said_to_be_compared_with_nothing():
    result = fr.Comparison(["x"], support=(0, 1)).result()
    assert result.warnings == ("'x' is the only arm, so nothing is compared: give two or more",)
    assert "): no pair\n" in str(result) and result.warnings[0] in str(result)


# The same, however it came

@pytest.mark.parametrize("name", MAKERS)
def test_any_portions_pickles_and_copies_give_the_same_bits(name):
    arms, x, keys = given(400)
    whole, single, parts = (MAKERS[name]() for _ in range(3))
    observe(whole, arms, x, keys)
    for arm, value, key in zip(arms.tolist(), x.tolist(), keys.tolist(), strict=True):
        single.observe(arm, value, cluster=key if single.clusters else None)
    for start in range(0, 400, 37):
        part = slice(start, start + 37)
        observe(parts, arms[part], x[part], keys[part])
        parts = pickle.loads(pickle.dumps(copy.deepcopy(parts)))
    assert whole.result() == single.result() == parts.result()


@pytest.mark.parametrize("name", MAKERS)
def test_merged_workers_know_what_a_single_one_would(name):
    arms, x, keys = given(500)
    whole, first, second = (MAKERS[name]() for _ in range(3))
    observe(whole, arms, x, keys)
    observe(first, arms[::2], x[::2], keys[::2])
    observe(second, arms[1::2], x[1::2], keys[1::2])
    before = second.result()
    first.merge(second)
    assert second.result() == before
    mine, theirs = first.result(), whole.result()
    for field in ("mean", "lower", "upper", "difference", "difference_lower", "difference_upper", "error_bound"):
        assert np.allclose(getattr(mine, field), getattr(theirs, field), rtol=1e-7, atol=1e-8), field
    assert mine.pulls.tolist() == theirs.pulls.tolist() and first.history["n_read"][-1] == 500
    with pytest.raises(ValueError, match="delta is 0.05 on one side"):
        first.merge(fr.Comparison(["a", "b", "c"], 0.1))
    with pytest.raises(ValueError, match="with itself"):
        first.merge(first)
    with pytest.raises(TypeError, match="only another Comparison"):
        first.merge(3)


def test_copies_go_their_own_way():
    test = MAKERS["exact"]()
    observe(test, *given(30))
    before = test.result()
    for again in (copy.copy(test), copy.deepcopy(test), pickle.loads(pickle.dumps(test))):
        observe(again, *given(30))
        assert test.result() == before and again.n_read == 60


def test_a_damaged_pickle_is_refused():
    function, (version, cls, known, seen) = MAKERS["exact"]().__reduce__()
    for bad in ((seen[0][:2], *seen[1:]), (seen[0], seen[1] + 1, *seen[2:]), (*seen[:2], 0, *seen[3:]),
                (*seen[:3], [(5, None)], None)):
        with pytest.raises(ValueError, match="damaged"):
            function(version, cls, known, bad)
    with pytest.raises(ValueError, match="version 2"):
        function(2, cls, known, seen)


# Histories and answers

def test_the_history_is_thinned():
    test = fr.Comparison(2)
    test.observe_many(np.arange(100_000) % 2, np.random.default_rng(7).normal(size=100_000))
    looks = test.history["n_read"]
    assert looks[0] == 20 and len(looks) < 60 and (np.diff(looks) > 0).all()
    assert test.history["difference_lower"].shape == (len(looks), 1)


@pytest.mark.parametrize("support", [(0, 1), None])
def test_with_many_pairs_the_history_is_kept_where_rewards_doubled(support):
    test = fr.Comparison(142, support=support)          # 10,011 pairs
    test.observe_many(np.arange(320) % 20, np.zeros(320))
    assert test.history["n_read"].tolist() == [20, 40, 80, 160, 320]


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("count", [0, 300])
def test_answers_print_export_and_draw(name, count):
    test = MAKERS[name]()
    observe(test, *(part[:count] for part in given(300)))
    result = test.result()
    exported = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert exported["kind"] == test.kind and exported["n_read"] == count
    for text in (str(result), result._repr_html_()):
        assert test.kind in text and "not known yet" in text and "a: mean" in text
    pytest.importorskip("pandas")
    assert test.to_frame()["against"].tolist() == ["a", "a", "b"]
    plt = pytest.importorskip("matplotlib.pyplot")
    assert len(test.plot()) == 3
    plt.close("all")


def test_one_arm_alone_is_an_interval():
    test = fr.Comparison(["only"], support=(0, 1))
    test.observe_many("only", np.full(50, 0.5))
    result = test.result()
    assert result.verdict == () and result.lower[0] < 0.5 < result.upper[0] and "only" in str(result)


def test_the_printed_table_says_whose_the_intervals_are():
    test = fr.Comparison(["blue", "green"], support=(0, 1))
    test.observe_many("blue", np.tile([0.0, 1.0], 500))
    test.observe_many("green", np.tile([0.25, 0.75], 500))
    result = test.result()
    head, row, *notes = str(result).splitlines()[1:]
    assert head.split("its interval")[0].split() == ["arm", "against", "difference"] and " lower" not in head
    assert f"[{result.difference_lower[0]:.4g}, {result.difference_upper[0]:.4g}]" in row
    assert f"[{result.ratio_lower[0]:.4g}, {result.ratio_upper[0]:.4g}]" in row
    assert f"blue: mean 0.5 in [{result.lower[0]:.5g}, {result.upper[0]:.5g}]" in notes[0]
