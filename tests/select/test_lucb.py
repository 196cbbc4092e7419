"""LUCB and its kin: equal to the plain twin pull by pull, right as often as promised, undisturbed by faults."""

import copy
import math
import pickle
import signal

import numpy as np
import pytest

import ctrl_c
import fastrace as fr
from fastrace.pulls import BernoulliPulls, CallablePulls, RecordedPulls, UniformPulls
from fastrace.select import _lucb, choosing, selection
from guarantee import assert_rate_at_most, few_or_many
from reference import lucb as reference

BOUNDS = _lucb.BOUNDS


def same(a, b):
    assert (a.stopped_by, a.error_bound) == (b.stopped_by, b.error_bound)
    for name in ("best", "mean", "lower", "upper", "pulls"):
        assert np.array_equal(getattr(a, name), getattr(b, name), equal_nan=True)


# Formulas.


def some_scales(rng):
    """One to four mixtures: where each is tightest, and its weight."""
    return [(10 ** rng.uniform(-0.5, 4), rng.uniform(0.1, 3)) for _ in range(rng.integers(1, 5))]


@pytest.mark.parametrize("bound", BOUNDS[:3])
def test_half_widths_equal_the_formulas_in_print(bound, seed):
    rng = np.random.default_rng(seed)
    for _ in range(40):
        n, v, x = rng.integers(1, 10**5), 10 ** rng.uniform(-2, 4), rng.uniform(1, 30)
        scales = some_scales(rng)
        rounds = int(rng.integers(n, 2 * n + 1))
        want = reference.half_width(bound, n, v, scales, rounds, x)
        assert _lucb._half_width(bound, n, v, scales, rounds, x) == pytest.approx(want, rel=1e-10)


def test_the_closed_form_of_the_normal_mixture_is_a_little_wider_than_its_root(seed):
    rng = np.random.default_rng(seed)
    for _ in range(40):
        n, x, v_best = int(rng.integers(1, 10**5)), rng.uniform(1, 30), 10 ** rng.uniform(0, 4)
        exact = reference.normal_mixture(n, reference.rho_for(v_best, x), x)
        ours = _lucb._half_width("hoeffding-mix", n, 0.0, [(v_best, 1.0)], 1, x)
        assert exact * (1 - 1e-12) <= ours <= 1.03 * exact


def test_the_mixture_is_the_integral_it_stands_for():
    for s, v, rho in [(3.0, 2.0, 1.5), (7.0, 10.0, 2.0), (40.0, 100.0, 20.0), (0.5, 5.0, 3.0)]:
        want = reference.log_gamma_mixture_by_integration(s, v, rho)
        assert reference.log_gamma_mixture(s, v, rho) == pytest.approx(want, abs=1e-7)


def test_the_mixture_boundary_solves_its_equation_and_the_table_rounds_it_up(seed):
    rng = np.random.default_rng(seed)
    for _ in range(300):
        v, scales, x = 10 ** rng.uniform(-2.9, 6), some_scales(rng), rng.uniform(0.8, 40)
        exact, rounded = _lucb._mixture_boundary(v, scales, x)
        found = reference.log_mean_of_mixtures(exact, v, scales, x)
        assert found == pytest.approx(x, abs=1e-9 + 1e-14 * v * math.log(v + 2))
        assert exact * (1 - 1e-12) <= rounded <= 1.0012 * exact
    grid = [_lucb._mixture_boundary(v, [(30.0, 0.9), (0.6, 0.1)], 5.0)[0] for v in np.geomspace(1e-4, 1e12, 200)]
    assert (np.diff(grid) > 0).all()            # beyond both ends of the table too


def test_the_mixture_is_tightest_near_where_it_was_tuned():
    for v in (100.0, 1000.0):
        best = _lucb._mixture_boundary(v, [(v, 1.0)], 6.0)[0]
        for factor in (0.05, 0.2, 5.0, 20.0):
            assert best < _lucb._mixture_boundary(v, [(v * factor, 1.0)], 6.0)[0]


def test_two_scales_are_never_far_from_the_better_and_close_where_one_fails():
    scales, x = selection.scales(1.0, 10, 0.0, 0.1), 6.0
    for v in np.geomspace(0.05, 1e6, 60):
        single = [_lucb._mixture_boundary(v, [(best_at, 1.0)], x)[0] for best_at, _ in scales]
        both = _lucb._mixture_boundary(v, scales, x)[0]
        assert both < 1.01 * single[0]                          # the price of a second scale
        assert both < 1.35 * single[1]
        if v < 0.2 * scales[1][0]:
            assert both < 0.6 * single[0]


def test_arms_that_hardly_vary_are_told_apart_soon():
    # Standard deviation 0.05, gap 0.1, ten arms: 3690 pulls with one mixture tuned for a deviation of 0.25.
    half = 0.05 * math.sqrt(3.0)
    means = np.r_[0.6, np.full(9, 0.5)]
    pulls = []
    for k in range(10):
        rule = fr.LUCB(10, 1, 0.0, 0.1, rule="intervals")
        pulls.append(rule.run(UniformPulls(means - half, means + half, rng=k)).n_read)
    assert np.mean(pulls) < 1800


@pytest.mark.parametrize("bad", [[], [(1.0, 1.0)] * 5, [(0.0, 1.0)], [(-1.0, 1.0)], [(math.nan, 1.0)], [(1.0, 0.0)],
                                 [(math.inf, 1.0)]])
def test_scales_that_make_no_mixture_are_refused(bad):
    with pytest.raises(ValueError, match="scale"):
        _lucb._mixture_boundary(1.0, bad, 5.0)


def test_divergence_bounds_equal_root_finding(seed):
    rng = np.random.default_rng(seed)
    means = [0.0, 1.0, 1e-12, 1 - 1e-9, 0.5, *rng.random(60), *(10 ** rng.uniform(-8, -1, 20))]
    for p in means:
        for level in 10.0 ** rng.uniform(-9, 1.5, 5):
            found, want = _lucb._kl_bounds(p, level), reference.kl_bounds(p, level)
            assert found == pytest.approx(want, rel=1e-10, abs=1e-10)
    assert _lucb._kl_bounds(0.3, 0.0) == pytest.approx((0.3, 0.3), abs=1e-15)


@pytest.mark.parametrize(("name", "draw", "mean"), [
    ("uniform", lambda g, n: g.random(n), 0.5),
    ("Bernoulli(0.5)", lambda g, n: g.random(n) < 0.5, 0.5),
    ("Bernoulli(0.05)", lambda g, n: g.random(n) < 0.05, 0.05),
    ("Bernoulli(0.01)", lambda g, n: g.random(n) < 0.01, 0.01),
    ("Beta(0.5, 0.5)", lambda g, n: g.beta(0.5, 0.5, n), 0.5),
    ("constant 0.3", lambda g, n: np.full(n, 0.3), 0.3),
])
def test_bounds_are_crossed_at_any_time_as_rarely_as_they_say(name, draw, mean, seed):
    alpha, streams, length = 0.1, 300, 2000
    x = math.log(1 / alpha)
    scales = [(50.0, 0.9), (1.0, 0.1)]
    cells = np.geomspace(1e-3, 4000, 1500)
    table = np.array([_lucb._mixture_boundary(v, scales, x)[0] for v in cells])
    n = np.arange(1, length + 1)
    crossed = {"eb-mix": [0, 0], "hoeffding-mix": [0, 0]}
    flat = np.array([_lucb._half_width("hoeffding-mix", t, 0.0, scales, t, x) for t in n])
    for child in np.random.SeedSequence(seed).spawn(streams):
        values = np.asarray(draw(np.random.default_rng(child), length), dtype=float)
        means = values.cumsum() / n
        error = ((values - np.concatenate([[0.5], means[:-1]])) ** 2).cumsum()
        width = np.interp(error, cells, table) / n
        for bound, half in (("eb-mix", width), ("hoeffding-mix", flat)):
            crossed[bound][0] += (means - half > mean + 1e-12).any()
            crossed[bound][1] += (means + half < mean - 1e-12).any()
    for counts in crossed.values():
        for count in counts:
            assert_rate_at_most(count, streams, alpha)


# The loop against its twin.


@pytest.mark.parametrize("bound", BOUNDS)
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
    assert result.stopped_by == ("bound" if why == "bound" else "")
    assert set(np.ravel(result.best).tolist()) == chosen
    assert np.allclose(result.mean, means, rtol=1e-12, atol=1e-12)
    by_run = fr.LUCB(n_arms, n_best, 0.2, 0.1, (low, high), bound=bound, split=split, batch=batch)
    same(by_run.run(RecordedPulls(values), rule.n_pulls if not rule.done else None), result
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


@pytest.mark.parametrize("bound", BOUNDS)
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
    assert fr.LUCB(5, 2, 0.05).run(lambda arms, counts: np.full(counts.sum(), 0.1)).stopped_by == "bound"


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
    means = np.random.default_rng(seed).random(20)
    wanted = fr.LUCB(20, 5, 0.05).run(BernoulliPulls(means, rng=1))
    rule, source = fr.LUCB(20, 5, 0.05), BernoulliPulls(means, rng=1)
    for limit in (0, 1, 7, 20, 21, 500, 501):
        result = rule.run(source, limit)
        assert (result.n_read, result.stopped_by) == (limit, "max_pulls")
        assert np.isnan(result.mean).sum() == max(0, 20 - limit)
        assert result.error_bound == 1.0 or limit > 20
    same(rule.run(source), wanted)


# Faults.


class Stop(Exception):
    pass


@pytest.mark.parametrize("make", [
    lambda: fr.LUCB(4, 2, 0.02), lambda: fr.KLLUCB(4, 2, 0.05), lambda: fr.SAR(4, 2, 900),
])
@pytest.mark.parametrize("bad", [math.nan, math.inf, 1.5, Stop])
def test_a_source_that_fails_in_mid_run(make, bad, seed):
    means = np.array([0.9, 0.7, 0.5, 0.3])
    source = BernoulliPulls(means, rng=seed)
    wanted = make().run(BernoulliPulls(means, rng=seed))
    calls = []

    def pull(arms, counts):
        calls.append(arms)
        rewards = source.read(arms, counts)
        if len(calls) != (2 if isinstance(rule, fr.SAR) else 30):
            return rewards
        kept.append(rewards.copy())
        if bad is Stop:
            raise Stop("one")
        rewards[-1] = bad
        return rewards

    kept = []
    rule = make()
    error, text = (Stop, "^one$") if bad is Stop else (ValueError, r"of arm \d")
    with pytest.raises(error, match=text) as raised:
        rule.run(pull)
    if bad is not Stop:
        assert f"of arm {calls[-1][-1]}" in str(raised.value)
    assert not rule.done

    def replay(arms, counts):       # what was lost, then the rest
        return kept.pop() if kept else source.read(arms, counts)

    same(rule.run(replay), wanted)


@pytest.mark.parametrize("cut", [0, 3, 8, 9, 500, 4000])
@pytest.mark.parametrize("make", [
    lambda: fr.LUCB(8, 3, 0.02), lambda: fr.LUCB(8, 3, 0.05, bound="lucb1"), lambda: fr.KLLUCB(8, 3, 0.05, rate="easy"),
    lambda: fr.SAR(8, 3, 7000),
])
def test_pickles_and_copies_continue_exactly(cut, make, seed):
    means = np.linspace(0.8, 0.3, 8)
    wanted = make().run(BernoulliPulls(means, rng=seed))
    rule, source = make(), BernoulliPulls(means, rng=seed)
    rule.run(source, cut)
    for again in (lambda x: pickle.loads(pickle.dumps(x)), copy.copy, copy.deepcopy):
        twin, its_source = again(rule), pickle.loads(pickle.dumps(source))
        same(twin.result(), rule.result())
        same(twin.run(its_source), wanted)
    same(rule.run(source), wanted)
    same(pickle.loads(pickle.dumps(rule)).result(), wanted)


def test_a_damaged_pickle_is_refused():
    rule = fr.LUCB(4, 2)
    rule.run(BernoulliPulls([0.1, 0.2, 0.3, 0.4], rng=1), 100)
    rebuild, (version, cls, known, state) = rule.__reduce__()
    for name, value in (("error", np.array([1.0])), ("error", -np.ones(4)), ("pulls", np.array([0, 1, 1, 1])),
                        ("level_round", 0), ("history", ([1], []))):
        with pytest.raises(ValueError, match="damaged"):
            rebuild(version, cls, known, {**state, name: value})
    state.pop("error")
    with pytest.raises(ValueError, match="damaged"):
        rebuild(version, cls, known, state)


@pytest.mark.resources
def test_interrupt_stops_the_loop_within_100_ms():
    rule, source = fr.LUCB(50, 10, 0.0, 1e-9), BernoulliPulls(np.full(50, 0.5), rng=2)
    assert ctrl_c.press(lambda: rule.run(source)) == 5
    assert rule.run(source, rule.n_pulls + 1000).stopped_by == "max_pulls"


@pytest.mark.resources
@pytest.mark.parametrize(("rule", "n"), [("intervals", 100_000), ("pairs", 5_000)])
def test_many_arms(rule, n):
    means = np.full(n, 0.2)
    means[[5, n - 777]] = 0.8
    rule = fr.LUCB(n, 2, 0.1, rule=rule)
    result = rule.run(BernoulliPulls(means, rng=1), 6 * n)
    assert result.n_read == 6 * n
    assert set(rule.run(BernoulliPulls(means, rng=2)).best) == {5, n - 777}
    assert rule.result().stopped_by == "bound"


@pytest.mark.parametrize(("arguments", "text"), [
    ({"n_arms": 0, "n_best": 1}, "n_arms is 0"),
    ({"n_arms": 3, "n_best": 0}, "n_best is 0"),
    ({"n_arms": 3, "n_best": 4}, "only 3 arms"),
    ({"n_arms": 3, "n_best": 1, "epsilon": -0.1}, "epsilon is -0.1"),
    ({"n_arms": 3, "n_best": 1, "epsilon": math.inf}, "epsilon is inf"),
    ({"n_arms": 3, "n_best": 1, "epsilon": math.nan}, "epsilon is nan"),
    ({"n_arms": 3, "n_best": 1, "delta": 0}, "delta is 0"),
    ({"n_arms": 3, "n_best": 1, "delta": 1.0}, "delta is 1"),
    ({"n_arms": 3, "n_best": 1, "support": (1, 1)}, "low < high"),
    ({"n_arms": 3, "n_best": 1, "support": (0, math.inf)}, "finite ends"),
    ({"n_arms": 3, "n_best": 1, "bound": "chernoff"}, "bound is 'chernoff'"),
    ({"n_arms": 3, "n_best": 1, "split": "half"}, "split is 'half'"),
    ({"n_arms": 3, "n_best": 1, "batch": 0}, "batch is 0"),
    ({"n_arms": 3, "n_best": 1, "batch": "many"}, "batch is 'many'"),
])
def test_bad_arguments_are_named(arguments, text):
    with pytest.raises(ValueError, match=text):
        fr.LUCB(**arguments)


def test_other_bad_calls():
    with pytest.raises(ValueError, match="rate is 'fast'"):
        fr.KLLUCB(3, 1, rate="fast")
    with pytest.raises(ValueError, match="budget is 3"):
        fr.SAR(3, 1, 3)
    with pytest.raises(ValueError, match="say how many pulls"):
        fr.select_best(BernoulliPulls([0.1, 0.2]), 2, method="sar")
    with pytest.raises(ValueError, match="finds one arm"):
        fr.select_best(BernoulliPulls([0.1, 0.2, 0.3]), 3, 2, 0.1, method="median-elimination")
    with pytest.raises(ValueError, match="method is 'ucb1'"):
        fr.select_best(BernoulliPulls([0.1, 0.2]), 2, method="ucb1")
    with pytest.raises(ValueError, match="have 3 arms"):
        fr.select_best(BernoulliPulls([0.1, 0.2, 0.3]), 2)


# One call.


@pytest.mark.parametrize("method", ["auto", "lucb", "kl-lucb", "adapt", "direct", "halving", "incremental", "sar"])
def test_select_best_by_every_method(method):
    means = np.array([0.1, 0.9, 0.5, 0.95, 0.2])
    result = fr.select_best(BernoulliPulls(means, rng=1), 5, 2, 0.3, method=method,
                            max_pulls=3000 if method == "sar" else None)
    assert set(np.ravel(result.best).tolist()) == {1, 3}
    assert "best 2 of 5 arms" in str(result)


def test_select_best_sees_how_many_arms_a_table_has():
    pandas = pytest.importorskip("pandas")
    table = np.random.default_rng(1).random((300, 4)) * [0.2, 0.5, 1.0, 0.3]
    for pull in (table, table.tolist(), pandas.DataFrame(table), {str(k): table[:, k] for k in range(4)},
                 fr.sources.ArraySource(table), fr.pulls.ResampledPulls(table, rng=1)):
        assert fr.select_best(pull, epsilon=0.2, rng=1).best == 2
    with pytest.raises(ValueError, match="select_best: n_arms is missing; a function or an object does not show"):
        fr.select_best(lambda arms, counts: np.ones(counts.sum()))
    with pytest.raises(ValueError, match="n_arms is 5, but the rewards have 4: make them agree"):
        fr.select_best(table, 5)
    with pytest.raises(TypeError, match="n_arms is '4' of type str; an integer is needed"):
        fr.select_best(table, "4")


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_select_best_refuses_a_budget_that_leaves_arms_without_a_pull(limit):
    with pytest.raises(ValueError, match=f"select_best: max_pulls is {limit}; at least 4 is needed, one pull of each"):
        fr.select_best(BernoulliPulls([0.2, 0.5, 0.8, 0.1], rng=1), 4, max_pulls=limit)
    assert fr.select_best(BernoulliPulls([0.2, 0.5], rng=1), 2, 2, max_pulls=limit).stopped_by == "single"
    result = fr.select_best(BernoulliPulls([0.2, 0.5, 0.8, 0.1], rng=1), 4, max_pulls=4)
    assert result.pulls.tolist() == [1, 1, 1, 1] and "max_pulls was reached" in result.warnings[0]


def test_select_best_takes_every_kind_of_source():
    means = np.array([0.1, 0.9, 0.5])
    table = (np.random.default_rng(1).random((5000, 3)) < means).astype(float)

    class Simulator:
        used = np.zeros(3, int)

        def pull(self, arms, counts):
            parts = []
            for i, count in zip(arms, counts, strict=True):
                parts.append(table[self.used[i] : self.used[i] + count, i])
                self.used[i] += count
            return parts

    simulator = Simulator()
    wanted = fr.select_best(table, 3, 1, 0.1, order="given")
    same(fr.select_best(simulator, 3, 1, 0.1), wanted)
    Simulator.used[:] = 0
    same(fr.select_best(lambda arms, counts: np.concatenate(simulator.pull(arms, counts)), 3, 1, 0.1), wanted)
    drawn = fr.select_best(fr.sources.as_source(table), 3, 1, 0.1, rng=5)
    same(drawn, fr.select_best(fr.sources.as_source(table), 3, 1, 0.1, rng=5))
    assert np.ravel(drawn.best).tolist() == [1]
    same(drawn, fr.select_best(table, 3, 1, 0.1, rng=5))           # a table is a population


def test_the_order_of_a_table_does_not_decide_the_selection(seed):
    rng = np.random.default_rng(seed)
    a = np.sort(rng.beta(2, 2, 20_000) * 0.8)
    b = rng.permutation(rng.beta(2, 2, 20_000) * 0.6)
    for table in (np.c_[a, b], np.c_[a, b][::-1]):
        result = fr.select_best(table, 2, rng=seed)
        assert (np.ravel(result.best).tolist(), result.stopped_by) == ([0], "bound")
    assert np.ravel(fr.select_best(np.c_[a, b], 2, order="given").best).tolist() == [1]      # all it reads is the top
    with pytest.raises(ValueError, match="order is 'sorted'"):
        fr.select_best(table, 2, order="sorted")


@pytest.mark.parametrize("method", ["auto", "kl-lucb", "adapt", "direct"])
def test_a_selection_from_a_table_ends_exactly(method, seed):
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(seed)
    table = np.round(rng.random((300, 5)), 3)
    table[:, 3] = rng.permutation(table[:, 1])      # a tie
    mean = table.mean(axis=0)
    for n_best in (1, 2):
        result = fr.select_best(pd.DataFrame(table, columns=list("abcde")), 5, n_best, 1e-4, method=method, rng=1)
        assert result.stopped_by == "exact" and result.error_bound == 0.0
        assert mean[result.best].min() >= np.sort(mean)[-n_best] - 1e-12
        assert result.mean == pytest.approx(mean) and result.n_read == 3000      # drawn, and all
        assert bool(result.warnings) == (np.sort(mean)[-n_best] - np.sort(mean)[-n_best - 1] < 1e-12)
        assert "stopped by exact" in str(result) and result.names == tuple("abcde")
    result = fr.select_best(table, 5, 1, 1e-4, method=method, rng=1, max_pulls=2999)
    assert (result.stopped_by, result.n_read) == ("max_pulls", 2999)
    table[250, 2] = 2.0
    with pytest.raises(ValueError, match="arm 2"):
        fr.select_best(table, 5, 1, 1e-4, method=method, rng=1)


def test_the_cost_of_an_exact_selection_is_what_was_asked_for():
    asked = []

    def rewards(arms, rows):
        asked.append(len(arms) * len(rows))
        return (0.4 + 0.2 * (rows % 2)[:, None]) * np.ones(len(arms))

    result = fr.select_best(fr.sources.as_source(rewards, 5, 300), 5, rng=1)
    assert result.stopped_by == "exact" and result.n_read == sum(asked) == 3000
    assert result.pulls.min() > 300
    assert result.warnings == ("arms 1, 2, 3, 4 have the same mean as the last selected arm and were left out",)


def test_arms_are_named_by_the_columns_of_any_table():
    pd, pa = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    columns = {"x": np.linspace(0, 0.5, 400), "y": np.linspace(0.5, 1, 400)}
    for table in (columns, pd.DataFrame(columns), pa.table(columns)):
        for order in ("random", "given"):
            result = fr.select_best(table, 2, epsilon=0.1, order=order, rng=1)
            assert (result.names, np.ravel(result.best).tolist()) == (("x", "y"), [1])
    with pytest.raises(TypeError, match="order is 'given' and pull is a ArraySource"):
        fr.select_best(fr.sources.as_source(columns), 2, order="given")

    class Simulator:
        columns = 3     # no table: what it is called means nothing here

        def pull(self, arms, counts):
            return np.repeat(arms, counts) * 1.0

    assert fr.select_best(Simulator(), 2).names is None


def test_a_reward_outside_is_named_in_plain_numbers_when_a_table_is_read_in_full():
    table = np.full((3000, 2), 0.5)
    table[2999, 1] = -5e-13                 # rounding
    result = fr.select_best(table, 2, rng=1)
    assert result.stopped_by == "exact"
    for bad in (1.5, np.nan):
        table[2998, 1] = bad
        with pytest.raises(ValueError, match=rf"arm 1 on row 2998 is {bad}, outside support=\(0.0, 1.0\)") as caught:
            choosing._exactly(result, fr.sources.as_source(table), (0, 1))
        assert "outside='warn'" not in str(caught.value)
    assert fr.sources.first_outside(table, np.zeros(2), np.ones(2)) == (2998, 1)
    table[7, 0] = 2.0
    assert fr.sources.first_outside(table, np.zeros(2), np.ones(2)) == (7, 0)


def test_progress_changes_nothing(capsys):
    pytest.importorskip("rich")
    means = np.linspace(0.1, 0.9, 10)
    a = fr.select_best(BernoulliPulls(means, rng=1), 10, 3, 0.05)
    b = fr.select_best(BernoulliPulls(means, rng=1), 10, 3, 0.05, progress=True)
    same(a, b)
    c = fr.select_best(BernoulliPulls(means, rng=1), 10, 3, 0.05, progress=True, max_pulls=777)
    assert (c.n_read, c.stopped_by) == (777, "max_pulls")
    assert "pulls" in capsys.readouterr().err


def test_plots(tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    result = fr.LUCB(6, 2, 0.05, rule="intervals").run(BernoulliPulls(np.linspace(0.2, 0.8, 6), rng=1))
    panels = result.plot()
    assert [panel.get_xlabel() for panel in panels] == ["mean reward and interval", "pulls", "pulls"]
    panels[0].figure.savefig(tmp_path / "all.png")
    line = panels[0].get_lines()
    assert any(np.allclose(one.get_xdata(), result.cutoff) for one in line if len(one.get_xdata()) == 2)
    heights = sorted(patch.get_width() for patch in panels[1].patches)
    assert heights == sorted(result.pulls.tolist())
    pulls, value = result.trace
    assert (np.diff(pulls) > 0).all()
    assert value[-1] < 0.05 <= value[:-1].min()
    assert result.plot("pulls", plt.figure().add_subplot()).get_xlabel() == "pulls"
    pulls, value = fr.LUCB(6, 2, 0.05).run(BernoulliPulls(np.linspace(0.2, 0.8, 6), rng=1)).trace
    assert (np.diff(pulls) > 0).all() and value[-1] <= 0.05 < value[:-1].min() and value.max() == 1.0
    sar = fr.SAR(6, 2, 500).run(BernoulliPulls(np.linspace(0.2, 0.8, 6), rng=1))
    assert len(sar.plot()) == 2
    with pytest.raises(ValueError, match="keeps no trace"):
        sar.plot("trace")
    cut = fr.LUCB(6, 2).run(BernoulliPulls(np.linspace(0.2, 0.8, 6), rng=1), 3)
    cut.plot()[0].figure.savefig(tmp_path / "cut.png")
    plt.close("all")


# Ctrl-C while a request or an answer is made, of so many arms that this takes long.


def interrupted(rule, source, limit, after=0.002):
    """Run to `limit`, with Ctrl-C again and again; how often it came."""
    times = 0
    before = signal.signal(signal.SIGPROF, signal.default_int_handler)
    try:
        while rule.n_pulls < limit and not rule.done:
            try:
                try:
                    signal.setitimer(signal.ITIMER_PROF, after)
                    rule.run(source, limit)
                finally:
                    signal.setitimer(signal.ITIMER_PROF, 0.0)
            except KeyboardInterrupt:
                times += 1
                after *= 1.3
    finally:
        signal.signal(signal.SIGPROF, before)
    return times


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer that signals")
@pytest.mark.parametrize(("make", "n"), [
    (lambda n: fr.KLLUCB(n, 10, 0.1), 30_000), (lambda n: fr.KLLUCB(n, 10, 0.1, rate="easy"), 30_000),
    (lambda n: fr.LUCB(n, n // 2, 0.1, bound="lucb1"), 100_000),
    (lambda n: fr.Adapt(n, n // 2, 0.1, cutoff="optimal", batch=100, rng=1), 6000),
    (lambda n: fr.Adapt(n, n // 2, 0.1, rng=1), 60_000),
    (lambda n: fr.OCBA(n, n // 2, 3 * n, n0=2, batch=n // 4, draw="deficit"), 20_000),
])
@pytest.mark.resources
def test_a_request_that_is_cut_short_is_made_again(make, n):
    means = np.random.default_rng(1).random(n)
    limit = n * (1 if isinstance(make(20), fr.LUCB) else 2) + (n if isinstance(make(20), fr.OCBA) else 200)
    rule, source = make(n), BernoulliPulls(means, rng=2)
    wanted = make(n)
    wanted.run(BernoulliPulls(means, rng=2), limit)
    assert interrupted(rule, source, limit) > 0
    assert np.array_equal(rule._core.get_state()["pulls"], wanted._core.get_state()["pulls"])
    assert np.array_equal(rule._core.get_state()["mean"], wanted._core.get_state()["mean"])
    assert rule.done or rule.ask()[0].tolist() == wanted.ask()[0].tolist()


@pytest.mark.parametrize("rate", ["proved", "easy"])
@pytest.mark.resources
def test_interrupt_is_heard_among_a_hundred_thousand_arms(rate):
    n = 100_000
    rule, source = fr.KLLUCB(n, 10, 0.0, rate=rate), BernoulliPulls(np.full(n, 0.2), rng=1)
    rule.run(source, n)
    assert ctrl_c.press(lambda: rule.run(source), 3, 0.05) == 3
    assert ctrl_c.press(rule.result, 3, 0.008) > 0       # a quick machine may finish some of them first
    assert rule.run(source, rule.n_pulls + 2).stopped_by == "max_pulls"


@pytest.mark.resources
def test_interrupt_is_heard_while_the_error_bound_is_found():
    n = 50_000
    rule = fr.LUCB(n, 10, 0.0, rule="intervals")
    rule.run(BernoulliPulls(np.random.default_rng(1).random(n), rng=1), 2 * n)
    assert ctrl_c.press(lambda: rule._core.error_bound(math.log(1e-30)), 2, 0.02) == 2
    assert rule._core.get_state()["pulls"].sum() == 2 * n


def test_a_rule_saved_after_ctrl_c_came_while_it_planned_goes_on():
    rule, source = fr.LUCB(4, 2, 0.05, rule="intervals"), BernoulliPulls([0.1, 0.4, 0.6, 0.8], rng=1)
    rule.run(source, 60)
    wanted = copy.deepcopy(rule).run(copy.deepcopy(source))
    rebuild, (version, cls, known, state) = rule.__reduce__()
    none = {"asked": state["asked"][:0], "owed": state["owed"][:0]}
    rounds = state["rounds"] - int(state["owed"][0])
    due = rebuild(version, cls, known, {**state, **none, "due": True, "rounds": rounds})
    assert due.ask()[0].tolist() == rule.ask()[0].tolist()
    assert np.ravel(due.run(source).best).tolist() == np.ravel(wanted.best).tolist()
    for change in ({"due": True}, {"due": 1}, none):
        with pytest.raises(ValueError, match="damaged"):
            rebuild(version, cls, known, {**state, **change})


# Without an end.


class Enough(Exception):
    """Of a simulator that has been asked too often."""


@pytest.mark.parametrize("method", ["auto", "kl-lucb"])
def test_a_tie_is_said_to_have_no_end_and_keeps_its_pulls(method):
    source = BernoulliPulls([0.5, 0.2, 0.5], rng=1)

    def pull(arms, counts):
        if made[0] > 1_100_000:
            raise Enough("enough")
        made[0] += int(counts.sum())
        return source.read(arms, counts)

    made = [0]
    with pytest.warns(RuntimeWarning, match=r"1,0\d\d,\d\d\d pulls have not told arm [02].*never ends"), \
            pytest.raises(Enough, match=r"^enough$") as raised:
        fr.select_best(pull, 3, method=method, batch=1000)
    rule = raised.value.rule
    assert rule.n_pulls == made[0] > 1_100_000
    assert np.ravel(rule.result().best)[0] in (0, 2)
    assert rule.run(source, rule.n_pulls + 2000).stopped_by == "max_pulls"


def test_what_ends_is_not_doubted(recwarn):
    source = BernoulliPulls([0.5, 0.2, 0.5], rng=1)
    assert fr.select_best(source, 3, max_pulls=1_200_000).stopped_by == "max_pulls"
    assert fr.select_best(source, 3, epsilon=0.05).stopped_by == "bound"
    assert fr.select_best(source, 3, 2).stopped_by == "bound"
    table = np.tile([[0.0, 1.0], [1.0, 0.0]], (500, 1))
    assert np.ravel(fr.select_best(table, 2).best).tolist() == [0]            # equal means, known exactly
    assert not [w for w in recwarn if "never ends" in str(w.message)]


def test_ctrl_c_in_one_call_gives_the_rule():
    raised = []

    def run():
        try:
            fr.select_best(BernoulliPulls([0.5, 0.5], rng=1), 2)
        except KeyboardInterrupt as error:
            raised.append(error)
            raise

    with pytest.warns(RuntimeWarning, match="never ends"):
        assert ctrl_c.press(run, 1, 0.3) == 1
    assert raised[0].rule.n_pulls > 1_000_000
