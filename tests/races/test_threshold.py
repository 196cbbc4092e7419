"""Decisions about one mean and a threshold: against their twin, exact where all is read, full passes if cheaper."""

import math

import numpy as np
import pytest
from scipy import stats

import fastrace as fr
from fastrace.control_variates import taylor_glm
from fastrace.likelihoods import GLMSource
from guarantee import assert_fits
from reference import draws, threshold

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
    stops, past = set(), None
    for gap in [-0.3, -0.1, -0.03, 1e-6, -1e-6, 0.05, 0.2, 1.0, 5.0, -5.0, 0.1]:
        level = d.sum() + gap * d.size
        want = threshold.decide(d, level, order, twin, support=support, advantage=advantage, past=past, **options)
        past = want.past
        assert test.decide(level) == want.accepted
        for name in ("n_read", "n_evaluated", "n_looks", "stopped_by", "constant"):
            assert getattr(test, name) == getattr(want, name), name
        if test.n_looks:
            assert test.mean == pytest.approx(want.mean, rel=1e-12)
        assert test.skewed == want.skewed
        stops.add((test.stopped_by, test.accepted))
    assert len(stops) > 1 and {accepted for _, accepted in stops} == {True, False}


@pytest.mark.parametrize("advantage", [1.0, 1.5, 6.0])
@pytest.mark.parametrize("few", [20, 100])
@pytest.mark.parametrize("n_arms", [1, 2])
def test_decisions_after_few_rows_carried_the_spread_equal_the_twin(seed, few, n_arms, advantage):
    """The first looks of later decisions are larger, and shrink again once no few rows are met."""
    data = np.random.default_rng(seed)
    d = 1e-3 * data.standard_normal(9000)
    held, even = d.copy(), data.standard_normal(9000)
    held[data.choice(9000, few, replace=False)] += 1.0 + data.random(few)
    ours, twin = np.random.default_rng(seed), np.random.default_rng(seed)
    test = fr.AcceptTest(np.zeros((9000, n_arms)), rng=ours, scan_advantage=advantage)
    twice = np.column_stack([data.standard_normal(9000), np.zeros(9000)])[:, :n_arms] if n_arms == 2 else np.zeros(())
    order, past, first, kept = draws.Order(9000), None, set(), set()
    for rows in [held] * 30 + [even] * 10:
        level = rows.sum() + 3.0 * data.standard_normal()
        table = rows[:, None] if n_arms == 1 else twice + np.column_stack([np.zeros(9000), rows + twice[:, 0]])
        test.source = fr.sources.ArraySource(table)
        want = threshold.decide(table[:, -1] - (table[:, 0] if n_arms == 2 else 0.0), level, order, twin,
                                bound="normal", delta=0.05, advantage=advantage, past=past, n_arms=n_arms)
        past = want.past
        assert test.decide(level) == want.accepted
        assert (test.n_read, test.n_evaluated, test.n_looks) == (want.n_read, want.n_evaluated, want.n_looks)
        assert max(test._get_kurtosis(), 0.0) == pytest.approx(past or 0.0, rel=1e-9)
        first.add(test.n_looks)
        kept.add(past > 0.0)
    assert kept == {True, False} and len(first) > 1


@pytest.mark.parametrize("n_arms", [1, 2])
@pytest.mark.parametrize("place", ["memory", "file"])
def test_first_decisions_about_large_arrays_equal_the_twin(n_arms, place, tmp_path):
    """They look at 4096 rows or more, unless the rows are in a file; later ones, and small arrays' first, see above."""
    data = np.random.default_rng(3)
    d = data.standard_normal(70_000) if n_arms == 1 else data.standard_normal(33_000)
    table = np.column_stack([np.zeros_like(d), d])[:, -n_arms:]
    if place == "file":
        np.save(tmp_path / "d.npy", table)
        table = np.asarray(np.load(tmp_path / "d.npy", mmap_mode="r"))
    ours, twin = np.random.default_rng(1), np.random.default_rng(1)
    test, order = fr.AcceptTest(table, rng=ours, scan_advantage=20.0), draws.Order(d.size)
    past, read = None if place == "memory" else 0.0, []
    for level in (-d.size, -d.size, 0.2 * d.size):
        if d.size > 2**16:       # see `_draws._order`
            order = draws.Order(d.size)
        want = threshold.decide(d, level, order, twin, bound="normal", delta=0.05, advantage=20.0, past=past,
                                n_arms=n_arms)
        assert test.decide(level) == want.accepted
        assert (test.n_read, test.n_evaluated, test.n_looks) == (want.n_read, want.n_evaluated, want.n_looks)
        read.append(test.n_read)
        past = want.past
    assert read[:2] == [6400 if place == "memory" else 50, 50]


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


# Full pass


def test_full_pass_when_it_is_cheaper(rng):
    d = rng.normal(0.0, 1.0, 100_000)
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
