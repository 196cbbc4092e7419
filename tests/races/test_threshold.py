"""Decisions about one mean and a threshold: against their twin, their promise, and what may go wrong around them."""

import copy
import math
import pickle
import re
import threading

import numpy as np
import pytest
from scipy import stats

import ctrl_c
import fastrace as fr
from fastrace.control_variates import ControlVariate, taylor_glm
from fastrace.likelihoods import GLMSource
from fastrace.sources import ArraySource, CallableSource
from guarantee import assert_fits, assert_rate_at_most, few_or_many
from reference import draws, threshold
from resident import assert_grows_at_most

RIGOROUS = ["betting", "hoeffding-serfling", "empirical-bernstein-serfling", "serfling"]


def populations(rng, n_rows=3000):
    """Populations of mean 0 on which rules that trust early samples go wrong, each with its support."""
    rare = np.zeros(n_rows)
    rare[: n_rows // 1000] = 1.0
    some = np.zeros(n_rows)
    some[: n_rows // 100] = 1.0
    raw = {
        "normal": rng.standard_normal(n_rows),
        "uniform": rng.random(n_rows),
        "lognormal": rng.lognormal(0.0, 2.0, n_rows),
        "rare 1/1000": rare,
        "rare 1/100": some,
        "two-point": np.repeat([0.0, 1.0], n_rows // 2),
        "offset": rng.random(n_rows) * 1e-3 + 1e6,
        "constant": np.zeros(n_rows),
    }
    return {name: x - x.mean() for name, x in raw.items()}


def wrong_decisions(x, trials, side, rng, **options):
    """How many decisions miss the side of a threshold just below (side 1) or above (-1) the mean; how many warned."""
    test = fr.AcceptTest(x, rng=rng, scan_advantage=1.0, **options)
    near = math.fsum(x) - side * 1e-6 * max(np.ptp(x), 1e-3) * x.size
    wrong = warned = 0
    for _ in range(trials):
        missed = test.decide(near) != (side > 0)
        wrong += missed
        warned += missed and bool(test.warnings)
    return wrong, warned


# Twins


@pytest.mark.parametrize("access", ["random", "shuffled"])
@pytest.mark.parametrize(
    "options",
    [
        {"bound": "normal"},
        {"bound": "normal", "growth": 1.35, "delta": 0.2},
        {"bound": "normal", "student": True, "first_look": 5},
        {"bound": "normal", "skewness_guard": False},
        {"bound": "normal", "skewness_guard": False, "student": True},
        {"bound": "normal", "skewness_guard": True, "schedule": "korattikara", "first_look": 40},
        {"bound": "normal", "schedule": "korattikara", "first_look": 40},
        {"bound": "betting", "growth": 1.5},
        {"bound": "hoeffding-serfling"},
        {"bound": "empirical-bernstein-serfling", "first_look": 2},
        {"bound": "empirical-bernstein-serfling", "schedule": "bardenet", "growth": 1.5, "first_look": 3},
        {"bound": "serfling", "delta": 0.3},
    ],
    ids=str,
)
@pytest.mark.parametrize("advantage", [1.0, 6.0])
def test_decisions_equal_the_twin(seed, options, access, advantage):
    data = np.random.default_rng(seed)
    d = data.exponential(1.0, 700) - 0.9
    options = {"delta": 0.05, "first_look": 50, "growth": 2.0, **options}
    support = None if options["bound"] == "normal" else (d.min(), d.max())
    ours, twin = np.random.default_rng(seed), np.random.default_rng(seed)
    test = fr.AcceptTest(d, access=access, support=support, rng=ours, scan_advantage=advantage, **options)
    order = (draws.Order if access == "random" else draws.Window)(d.size)
    stops = set()
    for gap in [-0.3, -0.1, -0.03, 1e-6, -1e-6, 0.05, 0.2, 1.0, 5.0, -5.0, 0.1]:
        level = d.sum() + gap * d.size
        want = threshold.decide(d, level, order, twin, support=support, advantage=advantage, **options)
        assert test.decide(level) == want.accepted
        for name in ("n_read", "n_evaluated", "n_looks", "stopped_by", "constant"):
            assert getattr(test, name) == getattr(want, name), name
        if test.n_looks:
            assert test.mean == pytest.approx(want.mean, rel=1e-12)
        assert test.skewed == want.skewed
        stops.add((test.stopped_by, test.accepted))
    assert len(stops) > 1 and {accepted for _, accepted in stops} == {True, False}


def test_noise_and_rows_come_from_the_generator_in_order(seed):
    d = np.random.default_rng(0).normal(0.01, 0.3, 3000)
    ours, twin = np.random.default_rng(seed), np.random.default_rng(seed)
    test = fr.AcceptTest(d, bound="normal", rng=ours, scan_advantage=1.0)
    order = draws.Order(d.size)
    for _ in range(20):
        accepted = test.accept(-25.0)
        log_u = -twin.standard_exponential()
        assert test.threshold == log_u + 25.0
        assert accepted == threshold.decide(d, log_u + 25.0, order, twin, bound="normal", delta=0.05).accepted
    barker = fr.AcceptTest(d, bound="normal", noise="barker", rng=ours)
    barker.accept(2.0)
    first, second = draws.gumbel(twin), draws.gumbel(twin)
    assert barker.threshold == pytest.approx(first - second - 2.0, rel=1e-14)


def test_moments_of_the_last_look(rng):
    d = rng.lognormal(0, 1, 400)
    test = fr.AcceptTest(d, bound="normal", first_look=400, rng=1)
    test.decide(0.0)
    assert test.mean == pytest.approx(d.mean(), rel=1e-14)
    assert test.skewness == pytest.approx(stats.skew(d), rel=1e-10)
    assert test.kurtosis == pytest.approx(stats.kurtosis(d), rel=1e-10)


# Exactness


@pytest.mark.parametrize("access", ["random", "shuffled"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n_arms", [1, 2])
def test_reading_all_is_metropolis_hastings(seed, access, dtype, n_arms):
    data = np.random.default_rng(seed)
    clone = np.random.default_rng(5)
    rng = np.random.default_rng(5)
    for case in range(100):
        table = data.normal(0, 1, (60, n_arms)).astype(dtype)
        if n_arms == 2:
            table[:, 1] = table[:, 0] + 0.2 * table[:, 1]
        exact = (table[:, -1].astype(float) - (table[:, 0] if n_arms == 2 else 0.0)).sum()
        ratio = data.normal()
        test = fr.AcceptTest(table, access=access, first_look=60 + case % 2, rng=rng)
        accepted = test.accept(ratio)
        log_u = -clone.standard_exponential()
        skip = draws.Order(60) if access == "random" else draws.Window(60)
        skip.advance(clone, 0, 60)
        assert accepted == (log_u < exact + ratio)
        assert (test.stopped_by, test.n_read, test.n_looks, test.half_width) == ("exact", 60, 1, 0.0)


def test_ties_reject():
    for d in (np.zeros(100), np.zeros((100, 2)), np.zeros(1), np.zeros(0)):
        for options in ({}, {"support": (-1.0, 1.0)}):
            assert not fr.metropolis_accept(d, 0.0, rng=1, **options)
    assert fr.metropolis_accept(np.zeros(100), -1e-300, support=(-1.0, 1.0), rng=1)


def test_metropolis_and_barker_frequencies(rng):
    d = np.full(40, -0.02)
    for noise, probability in (("metropolis", math.exp(-0.8)), ("barker", 1 / (1 + math.exp(0.8)))):
        test = fr.AcceptTest(d, noise=noise, first_look=40, rng=rng)
        accepted = sum(test.accept() for _ in range(20_000))
        assert_fits([accepted, 20_000 - accepted], [probability, 1 - probability])
    ones = sum(bool(fr.gibbs_binary(d, log_prior_odds=1.8, first_look=40, rng=rng)) for _ in range(3000))
    assert_fits([ones, 3000 - ones], [1 / (1 + math.exp(-1.0)), 1 - 1 / (1 + math.exp(-1.0))])


def test_slice_decisions():
    d = np.full(50, -0.01)
    assert fr.in_slice(d, -0.6, rng=1)
    assert not fr.in_slice(d, -0.4, rng=1)
    assert fr.in_slice(d, -0.4, log_prior_ratio=0.2, rng=1)
    test = fr.AcceptTest(d, rng=1)
    assert test.in_slice(-0.4, 0.2) and not test.in_slice(-0.4)


def test_infinite_thresholds_decide_unread():
    test = fr.AcceptTest(np.ones(100), rng=1)
    assert test.decide(-math.inf) and test.stopped_by == "exact" and test.n_read == 0
    assert not test.decide(math.inf) and test.n_read == 0
    assert not test.accept(-math.inf) and test.accept(math.inf)


def test_thresholds_outside_the_support_decide_unread():
    test = fr.AcceptTest(np.linspace(0, 1, 1000), support=(0, 1), rng=1)
    assert test.decide(-0.1) and (test.stopped_by, test.n_read) == ("bound", 0)
    assert not test.decide(1000.0) and test.n_read == 0
    assert not test.decide(999.0) and test.n_read > 0


def test_known_sums_count(rng):
    """With control variates the race runs on residuals, and their exact sums move the threshold."""
    X = rng.standard_normal((20_000, 4))
    centre = np.array([0.3, -0.2, 0.1, 0.5])
    y = rng.random(20_000) < 1 / (1 + np.exp(-X @ centre))
    glm = GLMSource(X, y, theta=np.stack([centre, centre + 0.01]))
    residual = taylor_glm(glm, centre)
    exact = np.diff(glm.totals())[0]
    read = []
    for source in (glm, residual):
        test = fr.AcceptTest(source, bound="normal", delta=0.01, rng=1)
        right = []
        for near in np.linspace(-3.0, 3.0, 20):
            right.append(test.decide(exact + near) == (near < 0))
            read.append(test.n_read)
        assert sum(right) >= 19
        test.decide(exact + 1e-9)
        if test.stopped_by == "exact":
            assert test.mean * 20_000 == pytest.approx(exact, abs=1e-8)
    assert sum(read[20:]) < 0.1 * sum(read[:20])


# Promises


@pytest.mark.parametrize("bound", RIGOROUS)
def test_rigorous_rules_keep_their_promise(rng, bound):
    for x in populations(rng).values():
        for side in (1, -1):
            wrong, _ = wrong_decisions(x, 150, side, rng, bound=bound, delta=0.1, support=(x.min(), x.max()))
            assert_rate_at_most(wrong, 150, 0.1)


@pytest.mark.parametrize("options", [{"schedule": "bardenet"}, {"bound": "betting", "delta": 0.01}], ids=str)
def test_other_rigorous_settings_keep_their_promise(rng, options):
    options = {"delta": 0.1, **options}
    for x in populations(rng).values():
        for side in (1, -1):
            wrong, _ = wrong_decisions(x, 100, side, rng, support=(x.min(), x.max()), **options)
            assert_rate_at_most(wrong, 100, options["delta"])


def test_rest_on_the_bound_is_no_proof(rng):
    """Five rare values in 5000, the rest exactly on the bound, mean 0: rounding must not pass for certainty."""
    wrong = 0
    for _ in range(150):
        low = -rng.random()
        x = np.full(5000, low)
        x[:5] = -999 * low
        for sign in (1, -1):
            d = sign * x
            test = fr.AcceptTest(d, support=(d.min(), d.max()), delta=0.01, scan_advantage=1.0, rng=rng)
            wrong += test.decide(sign * 1e-9 * abs(low)) != (sign < 0)
    assert_rate_at_most(wrong, 300, 0.01)


@pytest.mark.parametrize(("family", "scale"), [("logistic", None), ("poisson", None), ("student-t", 1.0)])
@pytest.mark.parametrize("outliers", [0.0, 0.02])
def test_rigorous_rules_derive_the_support_of_an_expansion(rng, family, scale, outliers):
    """The interval holds every residual difference and is of their size; with it the promise holds at ties too."""
    X = rng.standard_normal((4000, 3))
    centre = np.array([0.3, -0.2, 0.5])
    eta = X @ centre
    y = {"poisson": rng.poisson(np.exp(eta)), "logistic": rng.random(4000) < 1 / (1 + np.exp(-eta)),
         "student-t": eta + rng.standard_t(4.0, 4000)}[family]
    glm = GLMSource(X, y, np.zeros((2, 3)), family, scale)
    residual = taylor_glm(glm, centre, outliers)
    covariance = np.linalg.inv(-np.asarray(residual.surrogate.hessian))
    test = fr.AcceptTest(residual, bound="betting", delta=0.1, rng=rng, scan_advantage=1.0)
    wrong = early = trials = 0
    for _ in range(6):
        glm.theta = rng.multivariate_normal(centre, covariance, 2)
        d = np.diff(residual.read(np.arange(residual.n_rows)), axis=1)
        low, high = residual.difference_support()
        assert low < d.min() and d.max() < high and high < 200 * np.abs(d).max()
        exact = np.diff(glm.totals())[0]
        for side in (1, -1):
            for _ in range(15):
                wrong += test.decide(exact - side * 1e-9) != (side > 0)
                trials += 1
            assert test.decide(exact - side * 0.7 * high * residual.n_rows) == (side > 0)
            early += test.n_read < residual.n_rows / 2
    assert not test.outside and early == 12
    assert_rate_at_most(wrong, trials, 0.1)


def test_far_from_the_expansion_a_derived_support_is_infinite(rng):
    X = rng.standard_normal((500, 2))
    glm = GLMSource(X, rng.poisson(np.exp(X[:, 0])), np.array([[0.9, 0.1], [2.5, -1.0]]), "poisson")
    residual = taylor_glm(glm, [1.0, 0.0])
    assert residual.difference_support() == (-math.inf, math.inf)
    test = fr.AcceptTest(residual, bound="betting", rng=1)
    exact = np.diff(glm.totals())[0]
    for near in (1e-6, -1e-6):
        assert test.decide(exact + near) == (near < 0) and test.stopped_by == "exact"
    assert fr.AcceptTest(residual, rng=1).bound == "normal"
    one = ControlVariate(ArraySource(np.ones((5, 1))), ArraySource(np.zeros((5, 1))))
    with pytest.raises(ValueError, match="needs support"):
        fr.AcceptTest(one, bound="betting")


@pytest.mark.parametrize("side", [1, -1])
def test_normal_rule_is_sharp_on_normal_rewards(rng, side):
    """At a gap of 0 the error is the promised one, neither more nor much less."""
    x = rng.standard_normal(20_000)
    x -= x.mean()
    wrong, _ = wrong_decisions(x, 1500, side, rng, bound="normal", delta=0.1)
    assert_rate_at_most(wrong, 1500, 0.11)
    assert_rate_at_most(1500 - wrong, 1500, 1 - 0.07)


@pytest.mark.parametrize("guard", [False, True])
@pytest.mark.parametrize("n", [2, 3, 50])
def test_student_quantiles_go_with_a_divisor_of_one_less(rng, n, guard):
    """The half-width of a look is F^-1_{t, n-1}(Phi(B)) s sqrt(v), s^2 the sum of squares over n - 1."""
    d = rng.standard_normal(2000)
    normal = fr.bounds.normal_quantile(0.05, d.size, n, kind="one-sided" if guard else "first-exit")
    for row in range(5):
        test = fr.AcceptTest(d, bound="normal", student=True, first_look=n, access="shuffled", skewness_guard=guard,
                             rng=row)
        test.decide(-1e6)
        starts = np.lib.stride_tricks.sliding_window_view(np.concatenate([d, d[: n - 1]]), n)
        seen = starts[np.flatnonzero(abs(starts.mean(axis=1) - test.mean) <= 1e-12)[0]]
        s = math.sqrt(((seen - seen.mean()) ** 2).sum() / (n - 1))
        v = (d.size - n) / (d.size - 1) / n
        assert (test.n_read, test.stopped_by) == (n, "bound")
        width = stats.t.isf(stats.norm.sf(normal), n - 1) * s * math.sqrt(v)
        if guard:
            width += threshold.held_back(seen, d.size, width / seen.std() / math.sqrt(v)) * (1.0 / n - 1.0 / d.size)
        assert test.half_width == pytest.approx(width, rel=1e-9)


@pytest.mark.parametrize("first_look", [2, 5, 50])
def test_student_quantiles_keep_the_promise_of_one_small_look(rng, first_look):
    """Of normal rewards one look errs at exactly the promised rate, however few rows it has."""
    x = rng.standard_normal(5000)
    x -= x.mean()
    for side in (1, -1):
        wrong, _ = wrong_decisions(x, 3000, side, rng, bound="normal", delta=0.1, student=True, first_look=first_look,
                                   growth=1e6, skewness_guard=False)
        assert_rate_at_most(wrong, 3000, 0.1)
        assert_rate_at_most(3000 - wrong, 3000, 1.0 - 0.085)


def test_korattikara_errs_by_the_first_exit_probability_of_its_sequence(rng):
    n_rows, batch, level = 10_000, 500, 0.05
    x = rng.standard_normal(n_rows)
    x -= x.mean()
    looks = np.arange(batch, n_rows, batch)
    quantile = fr.bounds.normal_quantile_from_variances(level, [1.0])
    expected = fr.bounds.crossing_probability(quantile, fr.bounds.variance_factor(looks, n_rows), "first-exit")
    assert expected > 2 * level
    wrong, _ = wrong_decisions(x, 1500, -1, rng, schedule="korattikara", delta=level)
    assert_rate_at_most(wrong, 1500, 1.1 * expected)
    assert_rate_at_most(1500 - wrong, 1500, 1 - 0.9 * expected)


def test_normal_rule_fails_on_skewed_differences_and_says_so(rng):
    """Its documented failure: samples that miss the tail have a low mean and a low spread at once."""
    x = np.random.default_rng(3).lognormal(0.0, 2.0, 5000)
    x -= x.mean()
    wrong, warned = wrong_decisions(x, 300, 1, rng, bound="normal", delta=0.01, skewness_guard=False)
    assert wrong > 0.2 * 300 and warned > 0.9 * wrong
    guarded, _ = wrong_decisions(x, 300, 1, rng, bound="normal", delta=0.01)
    assert guarded < 0.25 * wrong
    wrong, _ = wrong_decisions(x, 300, 1, rng, delta=0.01, support=(x.min(), x.max()))
    assert_rate_at_most(wrong, 300, 0.01)


def left_by_expansion(rng, family, n_rows=20_000, dim=5, intercept=0.0):
    """Differences of what a second-order expansion leaves, at eight pairs of points of the posterior's size."""
    X = rng.standard_normal((n_rows, dim))
    X[:, 0] = 1.0
    centre = np.array([intercept, 0.5, -0.5, 0.3, 0.2])
    eta = X @ centre
    y = rng.poisson(np.exp(eta)) if family == "poisson" else rng.random(n_rows) < 1 / (1 + np.exp(-eta))
    glm = GLMSource(X, y, np.zeros((16, dim)), family=family)
    residual = taylor_glm(glm, centre)
    covariance = np.linalg.inv(-np.asarray(residual.surrogate.hessian))
    glm.theta = rng.multivariate_normal(centre, covariance, 16)
    left = residual.read(np.arange(n_rows))
    return list((left[:, 8:] - left[:, :8]).T)


@few_or_many("times", 30, 120)
@pytest.mark.parametrize(("family", "intercept"), [("poisson", 0.5), ("logistic", 0.0), ("logistic", -5.0)])
def test_guarded_normal_rule_keeps_its_promise_on_what_expansions_leave(rng, family, intercept, times):
    """They are skewed, and the plain rule errs there at up to several times delta."""
    guarded = plain = 0
    for d in left_by_expansion(rng, family, intercept=intercept):
        for side in (1, -1):
            guarded += wrong_decisions(d, times, side, rng, bound="normal", delta=0.05)[0]
            plain += wrong_decisions(d, times, side, rng, bound="normal", delta=0.05, skewness_guard=False)[0]
    assert_rate_at_most(guarded, 16 * times, 0.05)
    assert guarded < plain
    if family == "poisson":
        with pytest.raises(AssertionError, match="promised 0.05"):
            assert_rate_at_most(plain, 16 * times, 0.05)


@few_or_many("decisions", 6000, 30_000)
def test_the_guard_costs_little_on_normal_differences(decisions, rng):
    """Rows with the guard over rows without it: 1.002 on average over 25 seeds, standard deviation 0.006."""
    d = rng.standard_normal(20_000)
    d -= d.mean()
    read = dict.fromkeys((True, False), 0)
    levels = rng.uniform(-0.3, 0.3, decisions)
    for guard in read:
        test = fr.AcceptTest(d, bound="normal", delta=0.05, skewness_guard=guard, scan_advantage=1.0, rng=1)
        for level in levels:
            test.decide(level * d.size)
            read[guard] += test.n_read
    assert read[True] < 1.05 * read[False]


def test_normal_rule_fails_on_rare_events_without_a_sign(rng):
    """One row in 1000 decides and the others barely differ: most samples show nothing of it. A support cures."""
    x = 1e-3 * rng.standard_normal(5000)
    x[:5] = 1.0
    x -= x.mean()
    wrong, warned = wrong_decisions(x, 300, 1, rng, bound="normal", delta=0.1)
    assert wrong > 0.8 * 300 and warned < wrong
    wrong, _ = wrong_decisions(x, 300, 1, rng, delta=0.1, support=(x.min(), x.max()))
    assert_rate_at_most(wrong, 300, 0.1)


def test_rare_events_among_equal_rows_are_waited_for_and_flagged(rng):
    """Rows that agree to rounding have an unknown spread, not none: no decision rests on them alone."""
    for events in (5, 50):
        x = np.zeros(5000)
        x[:events] = 1.0
        x -= x.mean()
        wrong, warned = wrong_decisions(x, 300, 1, rng, bound="normal", delta=0.1)
        assert wrong < 0.25 * 300
        assert warned >= 0.8 * wrong - 3
        wrong, _ = wrong_decisions(x, 300, 1, rng, bound="normal", delta=0.1, skewness_guard=True)
        assert wrong < 0.12 * 300


# Full pass


def test_full_pass_when_it_is_cheaper(rng):
    d = rng.normal(0.0, 1.0, 50_000)
    d -= d.mean()
    test = fr.AcceptTest(d, bound="normal", delta=1e-6, rng=1)
    for near in (-1.0, 1.0):
        assert test.decide(near) == (near < 0)
        assert test.stopped_by == "exact" and test.n_read == d.size and test.half_width == 0.0
        assert d.size < test.n_evaluated < 1.1 * d.size
        assert test.mean == pytest.approx(0.0, abs=1e-15)
    assert test.decide(-3.0 * d.size) and test.stopped_by == "bound" and test.n_read == 50
    stays = fr.AcceptTest(d, bound="normal", rng=1, scan_advantage=1.0)
    stays.decide(1.0)
    assert stays.n_evaluated <= d.size


def test_full_pass_costs_little_beside_reading_all(rng):
    """Where all must be read, what was read before the pass costs little beside it, at any advantage."""
    d = rng.standard_normal(200_000)
    d -= d.mean()
    for advantage in (2.0, 8.0, 40.0):
        test = fr.AcceptTest(d, bound="normal", delta=0.01, rng=rng, scan_advantage=advantage)
        costs = []
        for _ in range(100):
            test.decide(0.1)
            costs.append(test.n_evaluated - d.size + d.size / advantage if test.n_evaluated > d.size else test.n_read)
        assert np.mean(costs) * advantage < 1.25 * d.size


# Faults


class Boom(Exception):
    pass


@pytest.mark.parametrize("at", [0, 1, 3, "total"])
def test_a_callback_raises(rng, at):
    d = rng.normal(0.0, 1.0, 2000)
    calls = [0]
    fails = [True]

    def rewards(arms, rows):
        calls[0] += 1
        if fails[0] and (rows.size >= 1000 if at == "total" else calls[0] == at + 1):
            raise Boom("mine")
        return d[rows][:, None]

    generator = np.random.default_rng(1)
    advantage = 8.0 if at == "total" else 1.0
    source = CallableSource(rewards, 1, 2000)
    test = fr.AcceptTest(source, delta=1e-6, first_look=20, rng=generator, scan_advantage=advantage)
    with pytest.raises(Boom, match="^mine$"):
        test.decide(d.sum() + 1e-3)
    assert test.stopped_by == "" and test.n_read == 0
    with pytest.raises(ValueError, match="nothing has been decided"):
        test.result()
    assert not is_locked(generator)
    fails[0] = False
    for near in (1e-3, -1e-3):
        right = [test.decide(d.sum() + near) == (near < 0) for _ in range(100)]
        assert sum(right) > 80


def is_locked(generator):
    """Whether another thread finds the generator's lock taken."""
    free = []

    def other():
        free.append(generator.bit_generator.lock.acquire(timeout=1.0))
        if free[0]:
            generator.bit_generator.lock.release()

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    return not free[0]


@few_or_many("times", 4, 20)
@pytest.mark.parametrize("access", ["random", "shuffled"])
@pytest.mark.resources
def test_interrupts(access, times):
    """Ctrl-C comes through in 100 ms, leaves no lock behind and the object usable."""
    endless = np.broadcast_to(np.array([[0.0]]), (2**33, 1))
    generator = np.random.default_rng(1)
    test = fr.AcceptTest(endless, bound="normal", access=access, rng=generator, scan_advantage=1.0)
    assert ctrl_c.press(lambda: test.decide(1.0), times) == times
    assert not is_locked(generator) and test.stopped_by == ""
    assert test.decide(-math.inf)


def test_nan_and_infinite_rewards_name_their_row(rng):
    d = rng.normal(0.0, 1.0, 500)
    d -= d.mean()
    for bad in (math.nan, math.inf):
        for access in ("random", "shuffled"):
            for advantage in (1.0, 100.0):
                spoiled = d.copy()
                spoiled[123] = bad
                test = fr.AcceptTest(spoiled, rng=1, access=access, scan_advantage=advantage)
                with pytest.raises(ValueError, match="row 123 is (nan|inf)"):
                    for _ in range(200):
                        test.decide(0.0)
                spoiled[123] = 0.0
                test.decide(0.0)
    pair = np.stack([d, d + 0.01], axis=1)
    pair[77, 0] = -math.inf
    with pytest.raises(ValueError, match=r"rewards of row 77 are -inf now and .* for the proposal"):
        fr.metropolis_accept(pair, 0.0, first_look=500, rng=1)


@pytest.mark.parametrize("options", [{}, {"support": (-10.0, 10.0)}], ids=str)
def test_impossible_proposals_are_rejected_with_certainty(rng, options):
    d = rng.normal(5.0, 1.0, 500)
    d[::2] = -math.inf
    test = fr.AcceptTest(d, rng=1, **options)
    assert not test.decide(-100.0)
    assert test.stopped_by == "exact" and test.mean == -math.inf and test.n_read == 50
    d[:] = 5.0
    assert test.decide(-100.0)
    full = np.zeros(500)
    full[3] = -math.inf
    assert not fr.metropolis_accept(full, -1.0, first_look=2, scan_advantage=1e6, rng=1)


def test_constant_differences_are_an_unknown_spread():
    test = fr.AcceptTest(np.full(3000, 0.25), rng=1, scan_advantage=1.0)
    assert test.decide(0.0) and test.stopped_by == "exact" and test.n_read == 3000
    assert test.constant and "equal" in test.warnings[0]
    tilted = np.full(3000, 0.1) + 0.2  # equal up to rounding only
    tilted[::3] = 0.3
    test = fr.AcceptTest(tilted, rng=1, scan_advantage=1.0)
    assert test.decide(0.0) and test.n_read == 3000


@pytest.mark.parametrize("access", ["random", "shuffled"])
@pytest.mark.parametrize("bound", ["normal", *RIGOROUS])
def test_a_difference_outside_the_support_is_refused(bound, access, rng):
    d = rng.random(2000)
    for rewards in (d, np.column_stack([np.zeros(2000), d])):
        test = fr.AcceptTest(rewards, bound=bound, support=(0.0, 0.9), access=access, rng=1)
        with pytest.raises(ValueError, match="the difference of row .* is 0.9.*outside support=.0.0, 0.9.") as error:
            test.decide(1000.0)
        row, value = re.search(r"row (\d+) is ([\d.]+)", str(error.value)).groups()
        assert d[int(row)] == float(value)
        test.source = fr.sources.ArraySource(0.9 * np.asarray(rewards).reshape(2000, -1))
        assert test.decide(0.0) and not test.outside
    with pytest.raises(ValueError, match="outside support"):
        fr.metropolis_accept(d, 900.0, support=(0.0, 0.5), rng=1)
    with pytest.raises(ValueError, match="raise"):
        fr.AcceptTest(d, support=(0.0, 0.5), outside="clip")


def test_differences_outside_the_support_are_flagged(rng):
    d = rng.random(2000)
    result = fr.metropolis_accept(d, 900.0, support=(0.0, 0.5), outside="warn", rng=1)
    assert "outside the support" in result.warnings[0]
    for bound in RIGOROUS:
        test = fr.AcceptTest(d, bound=bound, support=(0.4, 0.6), outside="warn", rng=1)
        test.decide(1000.0)
        assert test.outside and all(math.isfinite(value) for value in (test.mean, test.skewness))
    within = fr.AcceptTest(d, support=(d.min(), d.max()), rng=1)
    within.decide(1000.0)
    assert not within.outside and within.warnings == ()


def test_reentry_is_refused(rng):
    test = None

    def rewards(arms, rows):
        with pytest.raises(RuntimeError, match="in use"):
            test.decide(0.0)
        return np.ones((rows.size, 1))

    test = fr.AcceptTest(CallableSource(rewards, 1, 100), rng=1)
    assert test.decide(0.0)


def test_a_callback_may_use_the_same_generator(rng):
    def rewards(arms, rows):
        return rng.normal(1.0, 1.0, (rows.size, 1))

    test = fr.AcceptTest(CallableSource(rewards, 1, 10_000), rng=rng)
    assert test.decide(0.0)


def test_threads_give_the_serial_answer():
    def chain(seed, out):
        d = np.random.default_rng(seed).normal(0.0, 1.0, 20_000)
        test = fr.AcceptTest(d, rng=seed)
        out[seed] = [(test.accept(), test.n_read) for _ in range(300)]

    serial, parallel = {}, {}
    for seed in range(4):
        chain(seed, serial)
    threads = [threading.Thread(target=chain, args=(seed, parallel)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert parallel == serial


# Scale


@pytest.mark.resources
def test_more_rows_than_32_bits():
    seen = []

    def rewards(arms, rows):
        seen.append(rows.copy())
        return np.full((rows.size, 1), 1.0) + 1e-3 * (rows % 7)[:, None]

    def decide():
        for access in ("random", "shuffled"):
            test = fr.AcceptTest(CallableSource(rewards, 1, 2**33), bound="normal", access=access, first_look=50, rng=3)
            assert test.decide(0.0) and test.n_read == 50
            read = np.concatenate(seen)
            assert np.unique(read).size == read.size == 50 and read.min() >= 0 and read.max() < 2**33
            if access == "random":
                assert read.max() > 2**31
                assert not test.decide(2.0**35)
                assert not np.array_equal(seen[-1], seen[0]), "a fresh order per decision"
            seen.clear()

    assert_grows_at_most(10e6, decide)


def test_reading_few_of_many_rows_touches_little_memory():
    table = np.broadcast_to(np.array([[1.0]]), (2**30, 1))

    def decide():
        test = fr.AcceptTest(table, bound="serfling", support=(0.0, 2.0), rng=1)
        for _ in range(20):
            assert test.decide(0.2 * 2**30) and test.n_read < 1000
        return test

    assert_grows_at_most(40e6, decide)


@pytest.mark.resources
def test_decisions_do_not_grow_memory(rng):
    d = rng.normal(0.0, 1.0, 300)
    test = fr.AcceptTest(d, bound="normal", rng=1)
    betting = fr.AcceptTest(d, support=(-10.0, 10.0), rng=1)

    def many(count):
        for _ in range(count):
            test.decide(-300.0)
            betting.decide(-300.0)
            test.result()

    many(5000)
    assert_grows_at_most(256 * 1024, lambda: many(50_000))


# State


def test_pickles_and_copies_continue_exactly(rng):
    d = rng.normal(0.01, 1.0, 3000)
    for options in ({}, {"support": (-10, 10)}, {"access": "shuffled", "noise": "barker"}):
        test = fr.AcceptTest(d, rng=7, **options)
        for _ in range(30):
            test.accept()
        twins = [pickle.loads(pickle.dumps(test)), copy.deepcopy(test)]
        want = [(test.accept(-1.0), test.n_read, test.mean) for _ in range(100)]
        for twin in twins:
            assert [(twin.accept(-1.0), twin.n_read, twin.mean) for _ in range(100)] == want
    version = test.__reduce__()
    with pytest.raises(ValueError, match="pickled as version 2"):
        version[0](2, *version[1][1:])


def test_same_seed_same_answer_for_every_layout(rng):
    base = rng.normal(0.0, 1.0, 2000).astype(np.float32)
    wide = np.zeros((2000, 7))
    wide[:, 3] = base
    readonly = base.astype(float)
    readonly.setflags(write=False)
    layouts = [base, base.astype(float), wide[:, 3:4], base[::-1].copy()[::-1], readonly, list(map(float, base)),
               base.astype(">f8")[:, None], np.stack([np.zeros(2000), base], axis=1)]
    answers = []
    for layout in layouts:
        test = fr.AcceptTest(layout, bound="normal", rng=11, scan_advantage=1.0)
        answers.append([(test.decide(t), test.n_read, test.mean) for t in (-100.0, 30.0, 500.0)])
    assert all(answer == answers[0] for answer in answers)


def test_scaling_by_powers_of_two_changes_nothing(rng):
    d = rng.random(2000) - 0.4
    for bound in ["normal", *RIGOROUS]:
        answers = []
        for scale in (1.0, 2.0**-50, 2.0**30):
            support = None if bound == "normal" else (-0.4 * scale, 0.6 * scale)
            test = fr.AcceptTest(d * scale, bound=bound, support=support, rng=1, scan_advantage=1.0)
            answers.append([(test.decide(t * scale), test.n_read) for t in (100.0, 190.0, 210.0, 300.0)])
        assert answers[0] == answers[1] == answers[2]


def test_another_source_takes_its_place(rng):
    test = fr.AcceptTest(np.ones(100), rng=1)
    assert test.decide(0.0)
    test.source = ArraySource(-np.ones((100, 1)))
    assert not test.decide(0.0)
    with pytest.raises(ValueError, match="1 arms of 99 rows"):
        test.source = ArraySource(np.ones((99, 1)))
    with pytest.raises(ValueError, match="2 arms of 100 rows"):
        test.source = ArraySource(np.ones((100, 2)))


def test_support_follows_the_source(rng):
    source = ArraySource(np.stack([np.zeros(1000), rng.random(1000)], axis=1), support=(0.0, 1.0))
    test = fr.AcceptTest(source, rng=1)
    assert test.bound == "betting"
    assert test.decide(-1000.1) and test.n_read == 0  # differences lie in (-1, 1)
    assert test.decide(-999.0) and test.n_read > 0
    source.support = (np.array([0.0, 0.0]), np.array([0.0, 1.0]))
    assert test.decide(-1.0) and test.n_read == 0  # now in (0, 1)
    source.support = None
    with pytest.raises(ValueError, match="no support any more"):
        test.decide(0.0)


def test_result_prints_and_is_true_when_accepted(rng):
    result = fr.metropolis_accept(rng.normal(1.0, 1.0, 10_000), 0.0, rng=1)
    assert result and result.accepted and isinstance(result, fr.AcceptResult)
    assert result.fraction_read == result.n_read / 10_000 == 50 / 10_000
    assert str(result).startswith("accepted: normal rule") and "stopped by bound" in str(result)
    assert result.half_width > 0.0
    with pytest.raises(AttributeError):
        result.accepted = False


# Bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delta": 0.0}, "delta is 0.0"),
        ({"delta": math.nan}, "delta is nan"),
        ({"bound": "bernstein"}, "bound is 'bernstein'; one of"),
        ({"bound": "betting"}, "needs support"),
        ({"schedule": "bardenet"}, "needs support"),
        ({"schedule": "bardenet", "bound": "normal"}, "brings its own"),
        ({"schedule": "weekly"}, "schedule is 'weekly'"),
        ({"schedule": "korattikara", "student": True}, "Student quantiles anyway"),
        ({"support": (0.0, 1.0), "student": True}, "belong to the normal rule"),
        ({"support": (1.0, 0.0)}, "support is"),
        ({"support": 1.0}, "support is"),
        ({"noise": "gumbel"}, "noise is 'gumbel'"),
        ({"access": "sequential"}, "access is 'sequential'"),
        ({"first_look": 1}, "first_look is 1"),
        ({"growth": 1.0}, "growth is 1.0"),
        ({"growth": math.inf}, "growth is inf"),
        ({"scan_advantage": 0.5}, "scan_advantage is 0.5"),
    ],
    ids=str,
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        fr.AcceptTest(np.zeros(100), **options)


def test_bad_sources_and_thresholds():
    for table in (np.zeros((10, 3)), np.zeros((10, 2, 2))):
        with pytest.raises(ValueError, match="arms|shape"):
            fr.AcceptTest(table)
    with pytest.raises(TypeError, match="as_source"):
        fr.AcceptTest(lambda arms, rows: rows)
    test = fr.AcceptTest(np.ones(10), rng=1)
    with pytest.raises(ValueError, match="threshold is nan"):
        test.decide(math.nan)
    with pytest.raises(TypeError):
        test.decide("0")
    with pytest.raises(ValueError, match="came together"):
        fr.metropolis_accept(np.ones(10), 0.0, log_prior_ratio=1.0)
    with pytest.raises(ValueError, match="overflows"):
        fr.metropolis_accept(np.tile([1e308, 1.7e308], 500), 0.0, first_look=2, scan_advantage=1e9, rng=1)
    assert test.decide(0.0)


def test_a_source_without_rows_is_decided_by_the_threshold():
    test = fr.AcceptTest(np.zeros(0), rng=1)
    assert test.decide(-1.0) and not test.decide(0.0)
    assert test.result().fraction_read == 0.0
