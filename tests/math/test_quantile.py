"""B of Racing-Normal: known values, simulation, order of the kinds, behaviour at the limits."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import stats

import ctrl_c
from fastrace import bounds
from guarantee import assert_rate_at_most
from reference import bounds as plain

KINDS = ["first-exit", "one-sided", "sidak", "union"]

# delta, first_look / n_rows, then B of each kind.
KNOWN = [
    (1e-6, 5e-5, 5.270603, 5.270603, 5.274204, 5.274204),
    (1e-3, 1e-3, 3.694631, 3.694641, 3.718903, 3.719016),
    (1e-2, 5e-5, 3.159118, 3.159532, 3.207359, 3.208707),
    (1e-2, 1e-3, 3.036139, 3.036337, 3.088890, 3.090232),
    (5e-2, 1e-2, 2.347944, 2.349215, 2.442111, 2.449998),
    (1e-1, 1e-3, 2.170124, 2.176118, 2.308678, 2.326348),
    (0.25, 1e-3, 1.663620, 1.698462, 1.905488, 1.959964),
    (0.49, 5e-5, 0.996257, 1.435134, 1.707151, 1.842970),
]

# Chen & Ghahramani (2016), Table 1, rows with delta <= 0.1; columns by first_look / n_rows.
FRACTIONS = [5e-5, 1e-4, 5e-4, 1e-3, 5e-3, 1e-2]
TABLE_1 = """
1.0e-06 5.27250 5.25978 5.21523 5.19704 5.15638 5.12982
3.0e-06 5.06504 5.05294 5.00570 4.98839 4.94490 4.91964
5.0e-06 4.96669 4.95260 4.90571 4.88735 4.84311 4.81818
7.0e-06 4.89969 4.88715 4.83793 4.82079 4.77535 4.75037
9.0e-06 4.85078 4.83613 4.78840 4.76941 4.72447 4.69877
1.0e-05 4.82952 4.81667 4.76734 4.74894 4.70377 4.67696
3.0e-05 4.60397 4.58943 4.53827 4.51911 4.47119 4.44485
5.0e-05 4.49660 4.48108 4.42961 4.40734 4.36137 4.33158
7.0e-05 4.42331 4.40694 4.35512 4.33353 4.28573 4.25692
9.0e-05 4.36853 4.35265 4.29963 4.27682 4.22961 4.19891
1.0e-04 4.34343 4.32914 4.27380 4.25455 4.20386 4.17608
3.0e-04 4.09380 4.07655 4.02027 3.99632 3.94601 3.91438
5.0e-04 3.97189 3.95539 3.89641 3.87263 3.82038 3.78605
7.0e-04 3.88945 3.87195 3.81223 3.78698 3.73467 3.70026
9.0e-04 3.82665 3.80955 3.74833 3.72365 3.66977 3.63422
1.0e-03 3.79932 3.78066 3.72003 3.69596 3.64066 3.60812
3.0e-03 3.51044 3.49128 3.42498 3.39721 3.34023 3.30253
5.0e-03 3.36685 3.34814 3.27812 3.25096 3.19048 3.15168
7.0e-03 3.26922 3.24913 3.17763 3.14844 3.08769 3.04691
9.0e-03 3.19383 3.17396 3.10034 3.07142 3.00871 2.96758
1.0e-02 3.16117 3.13913 3.06612 3.03755 2.97349 2.93484
3.0e-02 2.80261 2.77885 2.69625 2.66350 2.59450 2.55058
5.0e-02 2.61646 2.59217 2.50369 2.46819 2.39672 2.34862
7.0e-02 2.48285 2.45761 2.36449 2.33100 2.25369 2.20744
9.0e-02 2.37768 2.35127 2.25533 2.22026 2.14145 2.09317
1.0e-01 2.33161 2.30704 2.20851 2.17274 2.09292 2.04351
"""

N_ROWS = 1_000_000


def variances(n_rows, first_look, growth=2.0):
    return bounds.variance_factor(bounds.looks(n_rows, first_look, growth)[:-1], n_rows)


@pytest.mark.parametrize(("delta", "fraction", "first_exit", "one_sided", "sidak", "union"), KNOWN)
def test_known_values(delta, fraction, first_exit, one_sided, sidak, union):
    for kind, known in zip(KINDS, (first_exit, one_sided, sidak, union), strict=True):
        found = bounds.normal_quantile(delta, N_ROWS, round(fraction * N_ROWS), kind=kind)
        assert found == pytest.approx(known, abs=1e-6)


def test_table_1_of_the_paper():
    """It holds the first exit, read off a coarse grid: always a little above ours."""
    for line in TABLE_1.strip().splitlines():
        delta, *row = map(float, line.split())
        for fraction, printed in zip(FRACTIONS, row, strict=True):
            found = bounds.normal_quantile(delta, N_ROWS, round(fraction * N_ROWS), kind="first-exit")
            assert -1e-5 < printed - found < 4e-3, (delta, fraction)


def test_no_look_and_one_look():
    for kind in [*KINDS, "auto"]:
        assert bounds.normal_quantile(0.01, 50, 50, kind=kind) == 0.0
        assert bounds.normal_quantile(0.01, 10, 50, kind=kind) == 0.0
        assert bounds.normal_quantile_from_variances(0.01, [], kind) == 0.0
        for delta in (1e-250, 1e-9, 0.01, 0.3, 0.4999):
            one = stats.norm.isf(delta)
            assert bounds.normal_quantile(delta, 100, 50, kind=kind) == pytest.approx(one, rel=1e-12)
            assert bounds.normal_quantile_from_variances(delta, [0.3], kind) == pytest.approx(one, rel=1e-12)


def test_from_one_half_on_zero():
    for kind in [*KINDS, "auto"]:
        for delta in (0.5, 0.7, 0.999):
            assert bounds.normal_quantile(delta, 1000, 50, kind=kind) == 0.0
            assert bounds.normal_quantile_from_variances(delta, [2.0, 1.0], kind) == 0.0
        assert bounds.normal_quantile(0.4999, 1000, 50, kind=kind) > 0.0


@pytest.mark.parametrize("growth", [1.1, 1.35, 2.0, 5.0])
@pytest.mark.parametrize("first_look", [1, 50, 40_000])
def test_solution_solves_the_plain_equation(growth, first_look):
    """Against quadrature by one rule on the whole interval, with another truncation and other nodes."""
    v = variances(100_000, first_look, growth)
    for delta in (0.45, 1e-8):
        for kind in ("first-exit", "one-sided"):
            quantile = bounds.normal_quantile(delta, 100_000, first_look, growth, kind)
            assert plain.crossing_probability(quantile, v, kind == "first-exit") == pytest.approx(delta, rel=1e-9)
            assert bounds.crossing_probability(quantile, v, kind) == pytest.approx(delta, rel=1e-9)


@pytest.mark.parametrize(("growth", "quantile"), [(2.0, 1.0), (2.0, 2.2), (1.2, 2.2)])
def test_crossing_probabilities_against_walks(growth, quantile, rng):
    v, trials = variances(10_000, 50, growth), 200_000
    z = plain.walk(v, trials, rng)
    above, outside = z > quantile, np.abs(z) > quantile
    first = outside.argmax(axis=0)
    up = int(np.sum(above[first, np.arange(trials)]))
    for count, kind in ((int(above.any(axis=0).sum()), "one-sided"), (up, "first-exit")):
        probability = bounds.crossing_probability(quantile, v, kind)
        assert_rate_at_most(count, trials, probability)
        assert_rate_at_most(trials - count, trials, 1.0 - probability)


def test_b_holds_for_means_of_rows_without_replacement(rng):
    """The thing itself: 20 000 orders of normal rows, known standard deviation, all looks."""
    n_rows, delta, trials = 800, 0.1, 20_000
    values = rng.standard_normal(n_rows)
    n = bounds.looks(n_rows, 25)[:-1]
    half = bounds.normal(n, n_rows, values.std(), delta, 25)
    order = rng.permuted(np.tile(values, (trials, 1)), axis=1)
    means = np.cumsum(order, axis=1)[:, n - 1] / n
    crossed = int(np.sum((means - values.mean() > half).any(axis=1)))
    assert_rate_at_most(crossed, trials, 1.05 * delta)
    assert_rate_at_most(trials - crossed, trials, 1 - 0.95 * delta)


@pytest.mark.parametrize("growth", [1.1, 1.35, 2.0])
@pytest.mark.parametrize("n_rows", [120, 100_000, 2**40])
def test_order_of_the_kinds_and_monotone_in_delta(n_rows, growth):
    before = np.full(4, np.inf)
    for delta in (1e-250, 1e-100, 1e-12, 1e-6, 1e-3, 0.01, 0.1, 0.3, 0.45, 0.49999):
        found = np.array([bounds.normal_quantile(delta, n_rows, 50, growth, kind) for kind in KINDS])
        assert np.all(np.diff(found) >= -1e-12 * found[0])
        assert found[0] >= stats.norm.isf(delta) * (1 - 1e-12)
        assert np.all(found < before)
        before = found


def test_finer_schedules_need_more():
    found = [bounds.normal_quantile(0.01, 100_000, 50, growth) for growth in (10.0, 2.0, 1.35, 1.1, 1.02)]
    assert np.all(np.diff(found) > 0)


def test_tiny_delta_solves_and_meets_the_union():
    for growth in (1.1, 2.0):
        quantile = bounds.normal_quantile(1e-250, N_ROWS, 1000, growth)
        v = variances(N_ROWS, 1000, growth)
        assert bounds.crossing_probability(quantile, v) == pytest.approx(1e-250, rel=1e-7)
        around = [bounds.normal_quantile(delta, N_ROWS, 1000, growth) for delta in (1.01e-300, 0.99e-300)]
        assert 0 < around[1] - around[0] < 0.01
        assert bounds.normal_quantile(1e-301, N_ROWS, 1000, growth) == bounds.normal_quantile(
            1e-301, N_ROWS, 1000, growth, "union"
        )
    far = bounds.normal_quantile(None, N_ROWS, log_inv_delta=1e6)
    assert far == pytest.approx(np.sqrt(2e6), rel=1e-4)


def test_kinds_in_closed_form():
    n_looks = bounds.looks(1000, 50).size - 1
    for delta in (1e-250, 1e-20, 1e-3, 0.3):
        union = bounds.normal_quantile(delta, 1000, 50, kind="union")
        assert stats.norm.logsf(union) == pytest.approx(np.log(delta) - np.log(n_looks), rel=1e-12)
        sidak = bounds.normal_quantile(delta, 1000, 50, kind="sidak")
        assert stats.norm.sf(sidak) == pytest.approx(-np.expm1(np.log1p(-delta) / n_looks), rel=1e-11)


def test_any_decreasing_variances(rng):
    v = np.cumprod(rng.uniform(0.2, 0.95, 12))
    for kind in ("first-exit", "one-sided"):
        found = bounds.normal_quantile_from_variances(0.05, v, kind)
        assert plain.crossing_probability(found, v, kind == "first-exit") == pytest.approx(0.05, rel=1e-9)
        assert bounds.normal_quantile_from_variances(0.05, 1e300 * v, kind) == pytest.approx(found, rel=1e-9)
        repeated = np.repeat(v, 3)  # a look that adds nothing is no look
        assert bounds.normal_quantile_from_variances(0.05, repeated, kind) == found
        assert bounds.normal_quantile_from_variances(0.05, v[::-1].copy()[::-1], kind) == found
    by_schedule = bounds.normal_quantile(0.05, 1000, 50)
    assert bounds.normal_quantile_from_variances(0.05, variances(1000, 50)) == pytest.approx(by_schedule, rel=1e-10)


def test_looks_hardly_apart_are_never_underrated():
    """Correlations above the finest that the panels resolve are lowered, which can only raise B."""
    v = 1.0 - 1e-7 * np.arange(6)
    found = bounds.normal_quantile_from_variances(0.05, v)
    assert stats.norm.isf(0.05) < found < stats.norm.isf(0.05) + 0.05


@pytest.mark.parametrize("v", [[1.0, 2.0], [1.0, 0.0], [1.0, -1.0], [np.nan], [np.inf, 1.0], [[1.0]]])
def test_bad_variances(v):
    for call in (
        lambda: bounds.normal_quantile_from_variances(0.05, v),
        lambda: bounds.crossing_probability(1.0, v),
    ):
        with pytest.raises(ValueError, match="varianc"):
            call()


@pytest.mark.parametrize("kind", ["two-sided", "", None, 3])
def test_bad_kind(kind):
    for call in (
        lambda: bounds.normal_quantile(0.05, 1000, kind=kind),
        lambda: bounds.normal_quantile_from_variances(0.05, [1.0], kind),
        lambda: bounds.crossing_probability(1.0, [1.0], kind),
    ):
        with pytest.raises(ValueError if isinstance(kind, str) else TypeError, match="kind is"):
            call()


def test_bad_arguments_of_crossing_probability():
    for quantile in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="quantile is"):
            bounds.crossing_probability(quantile, [1.0])
    with pytest.raises(ValueError, match="kind is 'union'; one of one-sided, first-exit"):
        bounds.crossing_probability(1.0, [1.0], "union")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [((0.05, 0), "n_rows is 0"), ((0.05, 10, 0), "first_look is 0"), ((0.05, 10, 5, 1.0), "growth is 1.0"),
     ((0.05, 10, 5, 0.5), "growth is 0.5"), ((0.05, 10.5), "n_rows is 10.5")],
)  # fmt: skip
def test_bad_schedule(arguments, words):
    with pytest.raises(ValueError, match=words):
        bounds.normal_quantile(*arguments)


def test_quantiles_broadcast():
    table = bounds.normal_quantile([[0.01], [0.1]], [1000, 10_000, 100_000], 50)
    assert table.shape == (2, 3)
    assert table[1, 2] == bounds.normal_quantile(0.1, 100_000, 50)
    logs = bounds.normal_quantile(None, 1000, log_inv_delta=np.array([2.0, 800.0]))
    assert logs[1] == bounds.normal_quantile(None, 1000, log_inv_delta=800.0)


def test_threads_get_the_serial_answer():
    jobs = [(0.001 + 0.0007 * i, 10_000 + i, 20, 1.3) for i in range(64)]
    serial = [bounds.normal_quantile_from_variances(d, variances(n, f, g)) for d, n, f, g in jobs]
    with ThreadPoolExecutor(4) as pool:
        threaded = list(pool.map(lambda job: bounds.normal_quantile(*job), jobs))
    assert threaded == pytest.approx(serial, rel=1e-10)


@pytest.mark.resources
def test_interrupt_leaves_a_long_solve():
    assert ctrl_c.press(lambda: bounds.normal_quantile(0.04, 3_000_000, 5000, 1.0005), 1) == 1
    assert bounds.normal_quantile(0.05, 1000) > 1.6
