"""Rewards adjusted by a proxy: equal to the plain twin, of the right mean given the past, and of less variance."""

import copy
import pickle

import numpy as np
import pytest

import fastrace as fr
from fastrace.streams import proxies
from guarantee import assert_rate_at_most, few_or_many
from reference import proxies as reference
from reference import sequences as rules


def population(law, n_rows, rng):
    """Rewards in [0, 1] and scores of all rows."""
    p = rng.random(n_rows)
    if law == "good":
        return np.clip(p + rng.normal(0.05, 0.1, n_rows), 0, 1), p
    if law == "useless":
        return rng.random(n_rows), p
    if law == "against":
        return 1 - p, p
    if law == "rare":
        p = (rng.random(n_rows) < 0.02).astype(float)
        return np.where(rng.random(n_rows) < 0.8, p, (rng.random(n_rows) < 0.01) * 1.0), p
    if law == "constant":
        return (p < 0.3) * 1.0, np.full(n_rows, 7.0)
    if law == "other units":
        return np.clip(p + rng.normal(0, 0.1, n_rows), 0, 1), -50.0 + 1e-3 * np.round(p, 1)
    return p, p                                         # the reward itself


LAWS = ["good", "useless", "against", "rare", "constant", "other units", "itself"]


@pytest.mark.parametrize("law", LAWS)
def test_adjusted_rewards_equal_the_twin_in_any_portions(law):
    rng = np.random.default_rng(3)
    y, p = population(law, 300, rng)
    order = rng.permutation(300)
    whole, parts = fr.Proxy(p), fr.Proxy(p)
    least, most = whole.support
    ratio = 1.0 / (np.ptp(p) or np.inf)
    found = whole.adjust(y[order], rows=order)
    want, used = reference.adjusted(y[order], p[order], p.mean(), ratio, 300, 0.02)
    assert np.allclose(found, want, rtol=0, atol=1e-8)
    assert ((found >= least) & (found <= most)).all()
    assert found.mean() == pytest.approx(y.mean(), abs=1e-9)
    assert whole.coefficient == pytest.approx(used[-1], rel=1e-6, abs=1e-9)
    cuts = [0, 1, 9, 10, 123, 123, 300]
    again = []
    for a, b in zip(cuts, cuts[1:], strict=False):
        again += parts.adjust(y[order[a:b]], rows=order[a:b]).tolist()
        parts = pickle.loads(pickle.dumps(parts))
    assert again == found.tolist()
    stream = fr.Proxy(mean=p.mean(), proxy_support=(p.min(), p.max() + 1e-9))
    apart = stream.adjust(y[order], scores=p[order])
    assert np.allclose(apart, reference.adjusted(y[order], p[order], p.mean(), ratio, None, 0.0)[0], atol=1e-5)


@pytest.mark.parametrize("law", LAWS)
def test_given_the_past_the_mean_is_that_of_a_population(law):
    rng = np.random.default_rng(4)
    y, p = population(law, 24, rng)
    order, proxy, past = rng.permutation(24), fr.Proxy(p), []
    for t in range(24):
        left = order[t:]
        nexts = [copy.deepcopy(proxy).adjust(y[[row]], rows=[row])[0] for row in left]
        assert np.mean(nexts) == pytest.approx((y.sum() - sum(past)) / left.size, abs=1e-9)
        past += proxy.adjust(y[[order[t]]], rows=[order[t]]).tolist()


@pytest.mark.parametrize("law", LAWS)
@few_or_many("trials", 60, 1000)
def test_intervals_of_adjusted_rewards_hold_at_all_times(law, trials, seed):
    missed, delta = 0, 0.2
    for child in np.random.SeedSequence(seed).spawn(trials):
        rng = np.random.default_rng(child)
        y, p = population(law, 200, rng)
        order, proxy = rng.permutation(200), fr.Proxy(p)
        cs = fr.ConfidenceSequence(delta=delta, support=proxy.support, n_rows=200)
        cs.update_many(proxy.adjust(y[order[:190]], rows=order[:190]))
        low, high = cs.interval
        missed += not low - 1e-9 <= y.mean() <= high + 1e-9
    assert_rate_at_most(missed, trials, delta)


@pytest.mark.parametrize("epsilon", [0.02, 0.15])
@pytest.mark.parametrize("law", LAWS)
def test_bets_that_know_the_support_of_each_reward_equal_the_twin(law, epsilon):
    rng = np.random.default_rng(5)
    y, p = population(law, 100, rng)
    order, proxy = rng.permutation(100), fr.Proxy(p)
    rule = fr.AbsoluteStop(epsilon, 0.1, n_rows=100, max_samples=60)
    y, p, q = y[order], p[order], p[order] - p.mean()
    part = reference.best_part(epsilon, 0.9, (q.min(), q.max()), 100)
    adjusted, used = reference.adjusted(y, p, p.mean(), 1.0 / (np.ptp(p) or np.inf), 100, 0.02, part)
    shift = adjusted - (y - used * q)
    reach = list(zip(np.maximum(used * q.max() - shift, 0), np.maximum(shift - used * q.min(), 0), strict=True))
    ends = rules.running(rules.target_odds(adjusted[:60], 0.1, lambda mean: epsilon, lambda mean: epsilon, n_rows=100,
                                           reach=reach))
    for t, wanted in enumerate(ends):
        proxies._used(rule, proxy, *proxy._checked(y[[t]], order[[t]], None))
        assert proxy.coefficient == pytest.approx(used[t], abs=1e-9)
        if rule.stopped:
            assert rule.estimate == pytest.approx(np.mean(wanted), abs=1e-9)
            break
        assert rule.interval == pytest.approx(wanted, abs=1e-9)
    assert rule.done


@pytest.mark.parametrize("accuracy", ["absolute", "relative"])
@pytest.mark.parametrize("law", LAWS)
@few_or_many("trials", 60, 1000)
def test_a_mean_by_bets_that_know_each_support_is_as_promised(law, accuracy, trials, seed):
    missed, delta = 0, 0.2
    for child in np.random.SeedSequence(seed).spawn(trials):
        rng = np.random.default_rng(child)
        y, p = population(law, 200, rng)
        epsilon = rng.choice([0.01, 0.05, 0.2])
        result = fr.estimate_mean(y, epsilon, delta, accuracy=accuracy, proxy=p, max_samples=190, rng=rng)
        low, high = result.interval
        missed += not low - 1e-9 <= y.mean() <= high + 1e-9
    assert_rate_at_most(missed, trials, delta)


@pytest.mark.parametrize(("law", "epsilon"), [("beta", 0.1), ("beta", 0.05), ("uniform", 0.1), ("bernoulli", 0.1)])
def test_a_proxy_costs_little_where_it_is_useless_or_bets_are_large(law, epsilon):
    used = np.zeros(3)
    for child in np.random.SeedSequence(7).spawn(40):
        rng = np.random.default_rng(child)
        y = rng.beta(10, 30, 2000) if law == "beta" else rng.random(2000)
        y = (y < 0.5) * 1.0 if law == "bernoulli" else y
        given = {"epsilon": epsilon, "accuracy": "absolute"}
        for k, more in enumerate(({}, {"proxy": rng.random(2000)}, {"proxy": y + y.std() * rng.standard_normal(2000)})):
            used[k] += fr.estimate_mean(y, rng=1, **given, **more).n_samples
    assert used[1] <= 1.05 * used[0] and used[2] <= 1.02 * used[0]


def test_a_rule_that_bets_otherwise_has_one_support_for_all_rewards():
    y, p = population("good", 300, np.random.default_rng(1))
    proxy, narrow = fr.Proxy(p), {"n_rows": 300, "delta": 0.1}
    for rule, knows in ((fr.AbsoluteStop(0.05, **narrow), True), (fr.TargetOddsStop(0.05, **narrow), True),
                        (fr.AbsoluteStop(0.05, support=proxy.support, **narrow), False),
                        (fr.AbsoluteStop(0.05, bound="target", **narrow), False)):
        assert proxies.narrow(rule, proxy) == knows
    with pytest.raises(ValueError, match="another support"):
        fr.estimate_mean(y, method=fr.AbsoluteStop(0.05, bound="target", **narrow), proxy=proxy)
    rule = fr.AbsoluteStop(0.05, **narrow)
    with pytest.raises(ValueError, match="outside support"):
        rule.update(1.1)
    rule._reach(-0.1, 1.2)
    rule.update_many([1.1, -0.1])
    rule._reach(0.0, 1.0)
    with pytest.raises(ValueError, match="outside support"):
        rule.update_many([1.1])


def test_a_good_proxy_saves_rewards_and_a_function_is_asked_for_rows(seed):
    rng = np.random.default_rng(seed)
    y, p = population("good", 20_000, rng)
    asked = []

    def label(rows):
        asked.extend(rows.tolist())
        return y[rows]

    given = {"epsilon": 0.02, "accuracy": "absolute", "rng": 1}
    result, plain = fr.estimate_mean(label, proxy=p, **given), fr.estimate_mean(y, **given)
    assert len(asked) == len(set(asked)) < 0.5 * plain.n_samples
    assert result.n_samples <= len(asked)
    assert abs(result.estimate - y.mean()) < 0.02
    assert "adjusted by a proxy" in result.note
    same = fr.estimate_mean(y, proxy=p, **given)
    assert (same.estimate, same.n_samples) == (result.estimate, result.n_samples)
    y, p = population("useless", 20_000, rng)
    rows = [fr.estimate_mean(y, 0.01, accuracy="absolute", rng=1, **more).n_samples for more in ({}, {"proxy": p})]
    assert rows[1] < 1.15 * rows[0]


@pytest.mark.parametrize("accuracy", ["relative", "absolute"])
def test_a_population_read_to_its_end_is_known_exactly(accuracy):
    y, p = population("good", 60, np.random.default_rng(1))
    result = fr.estimate_mean(y, 1e-4, accuracy=accuracy, proxy=p, rng=1)
    assert result.n_samples == 60
    assert result.interval == pytest.approx((y.mean(), y.mean()), abs=1e-9)


def test_bad_input_is_refused_and_changes_nothing():
    y, p = population("good", 30, np.random.default_rng(1))
    proxy = fr.Proxy(p)
    proxy.adjust(y[:10], rows=np.arange(10))
    before = pickle.dumps(proxy)
    for rewards, given, said in (
        ([0.5], {"rows": [3]}, "row 3 comes twice"),
        ([0.5, 0.5], {"rows": [20, 20]}, "row 20 comes twice"),
        ([0.5], {"rows": [30]}, "there are rows 0 to 29"),
        ([0.5], {"rows": [-1]}, "there are rows 0 to 29"),
        ([0.5], {"rows": [0.5]}, "integers of shape"),
        ([0.5, 1.5], {"rows": [20, 21]}, "reward 1 is 1.5, outside"),
        ([np.nan], {"rows": [20]}, "reward 0 is nan"),
        ([0.5], {"scores": [0.2]}, "say which rows"),
        ([0.5], {}, "say which rows"),
    ):
        with pytest.raises(ValueError, match=said):
            proxy.adjust(rewards, **given)
        assert pickle.dumps(proxy) == before
    stream = fr.Proxy(mean=0.5)
    for rewards, given, said in (
        ([0.5], {"rows": [1]}, "score of each reward"),
        ([0.5], {"scores": [2.0]}, "score 0 is"),
        ([0.5], {"scores": [0.1, 0.2]}, "one score per reward"),
    ):
        with pytest.raises(ValueError, match=said):
            stream.adjust(rewards, **given)
    for given, said in (({}, "neither"), ({"scores": p, "mean": 0.5}, "both"), ({"scores": []}, "is empty"),
                        ({"scores": [1.0, np.inf]}, "nan or infinite"), ({"mean": 2.0}, "outside proxy_support"),
                        ({"scores": p, "proxy_support": (0, 1)}, "range is known")):
        with pytest.raises(ValueError, match=said):
            fr.Proxy(**given)
    for given, said in (({"n_rows": 30}, "n_rows is 30"), ({"order": "given"}, "order is 'given'"),
                        ({"proxy": p[:9]}, "one score per row"), ({"method": "ebgstop"}, "n_rows"),
                        ({"accuracy": "absolute", "method": "beta-binomial"}, "beta-binomial")):
        with pytest.raises(ValueError, match=said):
            fr.estimate_mean(y, **{"proxy": p, **given})
    with pytest.raises(ValueError, match=r"returned shape \(2,\)"):
        fr.estimate_mean(lambda rows: [0.1, 0.2], proxy=p, batch=1)


def test_a_damaged_state_is_refused():
    proxy = fr.Proxy(np.linspace(0, 1, 30))
    proxy.adjust(np.full(9, 0.5), rows=np.arange(9))
    rebuild, (version, cls, known, state), *_ = proxy.__reduce__()
    sums, coefficient, count, following, seen = state
    for damaged in ((sums[:4], *state[1:]), (sums, 9.0, *state[2:]), (sums, coefficient, 8, following, seen),
                    (sums, coefficient, count, -1, seen), ([np.nan] * 6, *state[1:])):
        with pytest.raises(ValueError, match="damaged"):
            rebuild(version, cls, known, damaged)
    before = rebuild(version, cls, known, (sums[:5], *state[1:]))       # as saved without the sum of squares
    assert before.adjust([0.5], rows=[20]) == proxy.adjust([0.5], rows=[20])


@pytest.mark.parametrize(("low", "n_rows", "epsilon"), [(1000.0, 3000, 0.01), (100.0, 1000, 1e-9), (1e6, 50, 1e-9)])
@pytest.mark.parametrize("options", [{}, {"outside": "clip"}])
def test_supports_far_from_0_do_not_let_rounding_count(low, n_rows, epsilon, options):
    """Rewards lay a rounding error beyond what the rule was told: they were refused, or clipped to the support."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        y = rng.integers(0, 2, n_rows).astype(float)
        scores, y = np.where(rng.random(n_rows) < 0.3, y, rng.integers(0, 2, n_rows)), y + low
        found = fr.estimate_mean(y, epsilon=epsilon, support=(low, low + 1.0), accuracy="absolute", proxy=scores,
                                 rng=seed, **options)
        assert found.interval[0] - 1e-9 <= y.mean() <= found.interval[1] + 1e-9
        assert found.stopped_by == ("epsilon" if epsilon == 0.01 else "exact")
