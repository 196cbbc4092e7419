"""LUCB and its kin: equal to the plain twin pull by pull, and right as often as promised."""

import math

import numpy as np
import pytest

import fastrace as fr
from fastrace.pulls import BernoulliPulls, CallablePulls, RecordedPulls, UniformPulls
from fastrace.select import _lucb
from guarantee import assert_rate_at_most, few_or_many
from reference import lucb as reference
from selections import assert_same

# The loop against its twin.


@pytest.mark.parametrize("bound", _lucb.BOUNDS)
@pytest.mark.parametrize(("n_arms", "n_best", "batch"), [(2, 1, 1), (6, 2, 1), (7, 6, "auto"), (12, 5, 3)])
def test_every_pull_equals_the_plain_twin(bound, n_arms, n_best, batch, seed):
    rng = np.random.default_rng(seed)
    low = rng.normal(0, 1, n_arms)
    high = low + rng.uniform(0.5, 2.0, n_arms)
    share = np.round(rng.random((4000, n_arms)) ** rng.uniform(0.2, 5, n_arms), 1)      # many ties
    values = np.clip(low + share * (high - low), low, high)
    values[:, 1] = np.clip(values[0, 1], low[1], high[1])                               # one constant arm
    used = np.zeros(n_arms, int)

    def pull(i, count):
        used[i] += count
        return values[used[i] - count : used[i], i]

    split = "auto" if bound == "kl-easy" else "equal"
    alpha = 0.1 if bound == "kl-easy" else 0.1 / n_arms             # its rate has no share of an arm
    rule = fr.LUCB(n_arms, n_best, 0.2, 0.1, (low, high), bound=bound, split=split, batch=batch)
    scales = rule._options["scales"]

    def rounded(kind, n, v, scales, rounds, x):
        if kind != "eb-mix":
            return reference.half_width(kind, n, v, scales, rounds, x)
        return _lucb._mixture_boundary(v, scales, x)[1] / n

    limit = 600
    chosen, made, why, means, pulls = reference.lucb(
        pull, low, high, n_best, 0.2, (alpha,) * 2, bound, scales, 0 if batch == "auto" else batch, limit,
        rounded,
    )
    source = RecordedPulls(values)
    asked = []
    while not rule.done and rule.n_pulls < sum(pulls):
        arms, counts = rule.ask()
        asked += list(zip(arms.tolist(), counts.tolist(), strict=True))
        rule.tell(source.read(arms, counts))
    assert asked == made
    result = rule.result()
    assert result.stopped_by == ("" if why == "max_pulls" else why)
    assert set(np.ravel(result.best).tolist()) == chosen
    assert np.allclose(result.mean, means, rtol=1e-12, atol=1e-12)
    by_run = fr.LUCB(n_arms, n_best, 0.2, 0.1, (low, high), bound=bound, split=split, batch=batch)
    assert_same(by_run.run(RecordedPulls(values), rule.n_pulls if not rule.done else None), result
         if rule.done else by_run.result())
    assert by_run.result().pulls.tolist() == list(pulls)


def test_the_easy_rate_is_that_in_print_and_a_split_adds_a_union_over_the_arms(seed):
    # Spec: u kl(mean, q) <= ln((1 + ln t) / delta), whatever the number of arms.
    for split, share in (("auto", 1.0), ("equal", 8.0)):
        rule = fr.KLLUCB(8, 2, 0.0, 0.1, rate="easy", split=split)
        result = rule.run(BernoulliPulls(np.linspace(0.05, 0.4, 8), rng=seed), 500)
        level_round = rule._core.get_state()["level_round"]
        level = math.log((1.0 + math.log(level_round)) * share / 0.1)
        for i in range(8):
            want = reference.kl_bounds(result.mean[i], level / result.pulls[i])
            assert (result.lower[i], result.upper[i]) == pytest.approx(want, rel=1e-9)
        assert any("no proof" in text for text in result.warnings)


def test_order_is_kept_among_many_arms(seed):
    # Against a rescan of all arms: the tops of the heaps are the extremes, and the choice the largest means.
    rng = np.random.default_rng(seed)
    rule = fr.LUCB(300, 100, 0.0, 0.05, rule="intervals")
    source = BernoulliPulls(rng.random(300), rng=2)
    for limit in (300, 301, 340, 1000, 5000, 20_000):
        result = rule.run(source, limit)
        assert np.ravel(result.best).tolist() == np.argsort(-result.mean, kind="stable")[:100].tolist()
        if limit == 301:                # between the two of a pair
            continue
        weakest, rival = rule.ask()[0]
        chosen = np.isin(np.arange(300), result.best)
        assert chosen[weakest] and not chosen[rival]
        assert result.lower[weakest] == result.lower[chosen].min()
        assert result.upper[rival] == result.upper[~chosen].max()


@pytest.mark.parametrize(("n_arms", "n_best", "budget"), [
    (2, 1, 3), (6, 2, 100), (6, 5, 777), (30, 10, 5000), (9, 1, 64),
])
def test_sar_equals_its_twin_and_keeps_to_its_budget(n_arms, n_best, budget, seed):
    values = np.round(np.random.default_rng(seed).random((budget, n_arms)), 1)
    used = np.zeros(n_arms, int)

    def pull(i, count):
        used[i] += count
        return values[used[i] - count : used[i], i]

    chosen, pulls = reference.sar(pull, n_arms, n_best, budget)
    result = fr.SAR(n_arms, n_best, budget).run(RecordedPulls(values))
    assert sorted(np.ravel(result.best).tolist()) == chosen
    assert result.pulls.tolist() == pulls.tolist()
    assert result.n_read <= budget
    assert result.stopped_by == "budget"
    assert 0.0 < result.error_bound <= 1.0

# Promises.

INSTANCES = {
    "easy": ([0.9, 0.8, 0.3, 0.2, 0.1], 2, 0.05),
    "hard": ([0.52, 0.5, 0.48], 1, 0.0),
    "tied within epsilon": ([0.5, 0.5, 0.5, 0.42], 2, 0.07),
    "rare": ([0.05, 0.02, 0.01, 0.01], 1, 0.02),
}


@pytest.mark.parametrize("bound", _lucb.BOUNDS)
@pytest.mark.parametrize("name", list(INSTANCES))
@few_or_many("trials", 40, 400)
def test_wrong_sets_are_as_rare_as_promised(bound, name, trials, seed):
    means, n_best, epsilon = INSTANCES[name]
    means, delta, wrong = np.array(means), 0.2, 0
    worst = np.sort(means)[-n_best] - epsilon
    for k in range(trials):
        rule = fr.LUCB(len(means), n_best, epsilon, delta, bound=bound)
        result = rule.run(BernoulliPulls(means, rng=[seed, k]), 150_000)
        wrong += result.error_bound <= delta and means[result.best].min() < worst - 1e-12
    assert_rate_at_most(wrong, trials, delta)


def test_heavy_tails_inside_the_support_and_supports_of_their_own(seed):
    # Rewards mostly near 0 and now and then 1000 times as large; each arm has its own interval.
    scale = np.array([1.0, 5.0, 2.0, 1.0])
    low = np.array([0.0, -3.0, 10.0, 0.0]) * 0.01
    shape = np.array([0.3, 0.02, 0.1, 0.25])
    wrong, trials, delta = 0, 60, 0.2
    truth = low + scale * shape
    for k in range(trials):
        g = np.random.default_rng([seed, k])

        def pull(arms, counts, g=g):
            i = np.repeat(arms, counts)
            return low[i] + scale[i] * (g.random(i.size) < shape[i])

        result = fr.LUCB(4, 2, 0.02, delta, (low, low + scale), batch=20).run(pull, 200_000)
        wrong += result.error_bound <= delta and truth[result.best].min() < np.sort(truth)[-2] - 0.02
    assert_rate_at_most(wrong, trials, delta)


def test_the_error_bound_at_any_time_is_a_p_value(seed):
    # Stopped where it looks best in hindsight: error_bound <= x with a wrong answer happens at rate x at most.
    x, wrong, trials = 0.3, 0, 60
    means = np.array([0.5, 0.5, 0.5])      # exact ties in two orders: call arm 2 the right one
    for k in range(trials):
        rule = fr.LUCB(3, 1, 0.0, 0.05)
        source = BernoulliPulls(means, rng=[seed, k])
        hit = False
        for limit in np.geomspace(10, 20_000, 25).astype(int):
            result = rule.run(source, int(limit))
            hit |= result.error_bound <= x and np.ravel(result.best)[0] != 2
        wrong += hit
    assert_rate_at_most(wrong, trials, x)


def test_error_bound_is_the_delta_that_would_have_stopped(seed):
    source = BernoulliPulls([0.6, 0.5, 0.4], rng=seed)
    rule = fr.LUCB(3, 1, 0.0, 1e-6, split="equal")
    result = rule.run(source, 3000)
    assert result.stopped_by == "max_pulls"
    delta = result.error_bound
    given = rule._options["log_inv_alpha"][0]
    error = rule.__reduce__()[1][3]["error"]

    def apart(log_inv_alpha):
        width = [_lucb._mixture_boundary(error[i], rule._options["scales"], log_inv_alpha, given)[0] / result.pulls[i]
                 for i in range(3)]
        upper = [result.mean[i] + width[i] for i in range(3) if i != np.ravel(result.best)[0]]
        return max(upper) < result.mean[np.ravel(result.best)[0]] - width[np.ravel(result.best)[0]]

    assert 1e-6 < delta < 1
    assert apart(math.log(3 / (delta * 1.001)))
    assert not apart(math.log(3 / (delta * 0.999)))


def test_the_default_takes_fewer_pulls_than_bounds_that_do_not_see_the_variance():
    root = math.sqrt(12)
    pulls = {}
    for bound in ("eb-mix", "hoeffding-mix", "lucb1"):
        low = np.random.default_rng(1).random(50) - root / 2
        rule = fr.LUCB(50, 15, 0.1, 0.15, (low, low + root), bound=bound)
        pulls[bound] = rule.run(UniformPulls(low, low + root, rng=2)).n_read
    assert 25_000 < pulls["eb-mix"] < 55_000
    assert pulls["eb-mix"] < 0.6 * pulls["hoeffding-mix"] < 0.3 * pulls["lucb1"]


def test_batches_cost_few_pulls_and_are_equal_for_both():
    counts = {1: 0, "auto": 0, 100: 0}
    runs = 30
    for batch in counts:
        for k in range(runs):
            rule = fr.LUCB(10, 3, 0.0, 0.1, rule="intervals", batch=batch)
            counts[batch] += rule.run(BernoulliPulls(np.linspace(0.9, 0.1, 10), rng=k)).n_read
        rule = fr.LUCB(10, 3, 0.0, 0.1, rule="intervals", batch=batch)
        source = BernoulliPulls(np.linspace(0.9, 0.1, 10), rng=3)
        while not rule.done:
            arms, wanted = rule.ask()
            assert len(set(wanted.tolist())) == 1
            rule.tell(source.read(arms, wanted))
    assert counts["auto"] < 1.15 * counts[1]        # 1 % by the rule; the rest is noise of 30 runs
    assert counts[100] < counts[1] + runs * 10 * 200

# Edges.


def test_all_arms_one_arm_and_the_best_but_one():
    nothing = CallablePulls(lambda arms, counts: pytest.fail("no pull is needed"), 4)
    for result in (fr.LUCB(4, 4).run(nothing), fr.KLLUCB(4, 4).run(nothing), fr.SAR(4, 4, 10).run(nothing)):
        assert (result.stopped_by, result.n_read, result.error_bound) == ("single", 0, 0.0)
        assert np.ravel(result.best).tolist() == [0, 1, 2, 3]
    assert np.ravel(fr.select_best(CallablePulls(lambda a, c: pytest.fail("no"), 1), 1).best).tolist() == [0]
    result = fr.LUCB(6, 5, 0.01).run(BernoulliPulls([0.5, 0.9, 0.1, 0.6, 0.7, 0.8], rng=1))
    assert 2 not in np.ravel(result.best)


def test_zero_variance_and_exact_ties():
    def constant(arms, counts):
        return np.repeat(np.array([0.7, 0.5, 0.3, 0.1])[arms], counts)

    for rule in (fr.LUCB(4, 2, 0.05), fr.LUCB(4, 2, 0.0)):
        result = rule.run(constant)
        assert np.ravel(result.best).tolist() == [0, 1]
        assert result.n_read < 1000
    tied = fr.LUCB(5, 2, 0.0).run(lambda arms, counts: np.full(counts.sum(), 0.1), 5000)
    assert (tied.stopped_by, np.ravel(tied.best).tolist()) == ("max_pulls", [0, 1])
    assert tied.error_bound == 1.0
    assert fr.LUCB(5, 2, 0.05).run(lambda arms, counts: np.full(counts.sum(), 0.1)).stopped_by == "epsilon"


def test_scale_and_place_do_not_matter(seed):
    shares = np.round(np.random.default_rng(seed).random((20_000, 5)) * [0.9, 0.8, 1, 0.7, 0.5], 3)
    wanted = fr.LUCB(5, 2, 0.02, 0.1).run(RecordedPulls(shares))
    for low, high in ((0, 10), (-5, 5), (1e6, 1e6 + 1), (-1e-6, 1e-6)):
        values = np.clip(low + (high - low) * shares, low, high)
        found = fr.LUCB(5, 2, 0.02 * (high - low), 0.1, (low, high)).run(RecordedPulls(values))
        assert np.ravel(found.best).tolist() == np.ravel(wanted.best).tolist()
        assert found.pulls.tolist() == wanted.pulls.tolist()


def test_permuted_arms_give_permuted_answers(seed):
    values = np.random.default_rng(seed).random((20_000, 6)) * [1, 0.9, 0.8, 0.7, 0.6, 0.5]
    order = np.array([3, 0, 5, 1, 4, 2])
    for rule in ("pairs", "intervals"):
        a = fr.LUCB(6, 2, 0.01, rule=rule).run(RecordedPulls(values))
        b = fr.LUCB(6, 2, 0.01, rule=rule).run(RecordedPulls(values[:, order]))
        assert sorted(order[b.best].tolist()) == sorted(np.ravel(a.best).tolist())
    # By pairs, what refuses the stop is looked for from arm to arm.
    assert b.pulls.tolist() == a.pulls[order].tolist()


def test_counts_near_2_to_40():
    rule = fr.LUCB(3, 1, 0.0, bound="lucb1")
    rule.run(BernoulliPulls([0.5, 0.5, 0.5], rng=1), 100)
    rebuild, (version, cls, known, state) = rule.__reduce__()
    state["pulls"][:] = 2**40
    state["total"] = 3 * 2**40
    state["rounds"] = state["level_round"] = 2**41
    result = rebuild(version, cls, known, state).result()
    width = result.upper - result.mean
    want = math.sqrt((math.log(1.25) + 4 * math.log(2**41) + math.log(3 / 0.05)) / 2**41)
    assert width == pytest.approx(want, rel=0.3)        # the split gives one side more than the other
    assert np.isfinite(result.error_bound)


def test_max_pulls_stops_there_and_continues_exactly(seed):
    means = np.random.default_rng(seed).permutation(np.linspace(0.53, 0.5, 20))
    wanted = fr.LUCB(20, 1, 0.01).run(BernoulliPulls(means, rng=1))
    rule, source = fr.LUCB(20, 1, 0.01), BernoulliPulls(means, rng=1)
    for limit in (1, 7, 19):
        with pytest.raises(ValueError, match=f"max_pulls is {limit}; at least 20 is needed"):
            rule.run(source, limit)
    few, its = fr.LUCB(20, 1, 0.01), BernoulliPulls(means, rng=1)       # asks for others with fewer than 10,240
    for limit, one, pulls in ((20, few, its), (21, few, its), (10_240, rule, source), (10_241, rule, source),
                              (10_301, rule, source)):
        result = one.run(pulls, limit)
        assert (result.n_read, result.stopped_by) == (limit, "max_pulls")
        assert not np.isnan(result.mean).any()
        assert result.error_bound == 1.0 or limit > 20
    assert_same(rule.run(source), wanted)


def test_a_small_budget_is_that_of_the_call():
    """However the call is cut into parts; and it is over with the call, whatever ends it."""
    values = (np.random.default_rng(1).random((9000, 20)) < np.linspace(0.9, 0.6, 20)).astype(float)

    def pulls(*limits, **options):
        rule, source = fr.LUCB(20, 1), RecordedPulls(values)
        for limit in limits:
            rule.run(source, limit, **options)
        return rule, source

    within, blind = pulls(319)[0], fr.LUCB(20, 1)
    source = RecordedPulls(values)
    while blind.n_pulls < 319:
        blind.tell(source.read(*blind.ask()))
    assert within.result().pulls.tolist() != blind.result().pulls.tolist()
    for other in (pulls(100, 250, 319), pulls(319, max_seconds=600.0)):
        assert_same(other[0].result(), within.result())
    assert_same(fr.select_best(RecordedPulls(values), max_pulls=319), within.result())
    rules, sources = zip(pulls(319), pulls(319), strict=True)

    def fails(arms, counts):
        raise ConnectionError

    with pytest.raises(ConnectionError):
        rules[1].run(fails, 512 * 20)
    with pytest.raises(ConnectionError):
        rules[1].run(fails)
    requests = [[], []]
    for rule, source, made in zip(rules, sources, requests, strict=True):       # what follows knows of no limit
        while rule.n_pulls < 600:
            arms, counts = rule.ask()
            made.append((arms.tolist(), counts.tolist()))
            rule.tell(source.read(arms, counts))
    assert requests[0] == requests[1]
    assert any(len(arms) == 1 for arms, _ in requests[0])              # shares by variance, two pulls of one arm
    rule, source = pulls(319)
    rule._core.allow(512 * 20)
    rule._core.run(source, 600)
    assert rule.result().pulls.sum() == 600
    more = rules[0].result().pulls
    assert np.abs(rule.result().pulls - more).sum() <= 1                # asks come in twos
    assert pulls(319, 10_239)[0].result().pulls.tolist() != pulls(319, 10_240)[0].result().pulls.tolist()


def test_the_whole_of_a_table_is_no_small_budget():
    table = (np.random.default_rng(2).random((12, 5)) < 0.6).astype(float)
    wanted = fr.select_best(table, rng=3)
    for limit in (60, 79):
        assert_same(fr.select_best(table, rng=3, max_pulls=limit), wanted)
    assert fr.select_best(table, rng=3, max_pulls=59).n_read <= 59


def test_the_error_bound_at_a_stop_is_of_what_is_said():
    """Events unseen have no evidence against them; and arms may be good enough more surely than the best."""
    rare = fr.LUCB(2, 1, support=None)
    while not rare.done:
        arms, counts = rare.ask()
        rare.tell(np.repeat(np.where(arms == 0, 0.0, 0.002), counts))
    assert rare.result().error_bound == 0.05
    near = fr.LUCB(2, 1, 0.2, 0.05, batch=100)
    rng = np.random.default_rng(1)
    while not near.done:
        arms, counts = near.ask()
        near.tell(rng.random(counts.sum()) < np.repeat(np.array([0.8, 0.3])[arms], counts))
    result = near.result()
    assert result.stopped_by in ("bound", "epsilon")
    assert result.error_bound == 0.05 if result.stopped_by == "bound" else result.error_bound < 0.05
