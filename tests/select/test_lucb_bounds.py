"""The bounds of LUCB: equal to the formulas in print, tight where they say, and crossed as rarely as they say."""

import math

import numpy as np
import pytest

import fastrace as fr
from fastrace.pulls import UniformPulls
from fastrace.select import _lucb, selection
from guarantee import assert_rate_at_most
from reference import lucb as reference


def some_scales(rng):
    """One to four mixtures: where each is tightest, and its weight."""
    return [(10 ** rng.uniform(-0.5, 4), rng.uniform(0.1, 3)) for _ in range(rng.integers(1, 5))]


@pytest.mark.parametrize("bound", _lucb.BOUNDS[:3])
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
