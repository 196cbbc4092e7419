"""Half-widths: equal to their plain twins, kept in trials, zero when every row is read, safe at the limits."""

import doctest
import pickle

import numpy as np
import pytest

from fastrace import bounds
from guarantee import assert_rate_at_most
from reference import bounds as plain

DELTA = 0.1
N_ROWS = 300


def populations():
    rng = np.random.default_rng(20150101)
    skewed = rng.lognormal(0, 2, N_ROWS)
    return {
        "skewed": skewed / skewed.max(),
        "mirrored": 1 - skewed / skewed.max(),
        "rare": (np.arange(N_ROWS) < 3).astype(float),
        "half": (np.arange(N_ROWS) < N_ROWS // 2).astype(float),
        "uniform": rng.random(N_ROWS),
        "constant": np.full(N_ROWS, 0.3),
        "offset": 1e9 + rng.integers(0, 2, N_ROWS).astype(float),
    }


def test_doctests():
    assert doctest.testmod(bounds).failed == 0


@pytest.mark.parametrize("n_rows", [1, 2, 3, 10, 11, 1000])
def test_formulas_equal_their_twins(n_rows):
    support, std, delta = (-1.5, 2.5), 0.7, 0.03
    for n in {1, 2, n_rows // 2, n_rows // 2 + 1, n_rows - 1, n_rows} - {0}:
        if n > n_rows:
            continue
        pairs = [
            (bounds.variance_factor(n, n_rows), plain.variance_factor(n, n_rows)),
            (bounds.serfling_factor(n, n_rows), plain.serfling_factor(n, n_rows)),
            (bounds.hoeffding(n, delta, support), plain.hoeffding(n, delta, support)),
            (bounds.empirical_bernstein(n, std, delta, support), plain.empirical_bernstein(n, std, delta, support)),
            (bounds.hoeffding_serfling(n, n_rows, delta, support), plain.hoeffding_serfling(n, n_rows, delta, support)),
            (
                bounds.empirical_bernstein_serfling(n, n_rows, std, delta, support),
                plain.empirical_bernstein_serfling(n, n_rows, std, delta, support),
            ),
            (bounds.serfling(n, n_rows, std, delta, support), plain.serfling(n, n_rows, std, delta, support)),
            (bounds.look_delta(n, delta, 1.1), plain.look_delta(n, delta, 1.1)),
        ]
        if n < n_rows:
            pairs.append(
                (bounds.skewness_inflation(-2.0, n, n_rows, 2.2), plain.skewness_inflation(-2.0, n, n_rows, 2.2))
            )
        for ours, theirs in pairs:
            assert ours == pytest.approx(theirs, rel=1e-12, abs=1e-15)


def test_normal_is_quantile_times_standard_error():
    n = bounds.looks(1000, 50)
    quantile = bounds.normal_quantile(0.05, 1000, 50)
    ours = bounds.normal(n, 1000, 0.7, 0.05, 50)
    assert ours == pytest.approx([plain.normal(t, 1000, 0.7, quantile) for t in n.tolist()], rel=1e-12)


def test_arguments_broadcast_and_strides_do_not_matter():
    n = np.arange(1, 101)
    std = np.linspace(0, 1, 5)[:, None]
    table = bounds.serfling(n, 100, std, 0.05, (0, np.array([1.0, 2.0])[:, None, None]))
    assert table.shape == (2, 5, 100)
    assert table[1, 3, 40] == bounds.serfling(41, 100, 0.75, 0.05, (0, 2))
    backwards = bounds.hoeffding(n[::-2].astype(">i4"), np.float32(0.5), (0, 1))
    assert np.array_equal(backwards, bounds.hoeffding(n, 0.5, (0, 1))[::-2])
    assert bounds.hoeffding(10, 0.05, (3, 3)) == 0.0
    assert bounds.hoeffding([], 0.05, (0, 1)).shape == (0,)


def test_log_inv_delta_is_delta_and_goes_on_where_delta_ends():
    assert bounds.hoeffding(10, None, (0, 1), log_inv_delta=-np.log(0.02)) == bounds.hoeffding(10, 0.02, (0, 1))
    tiny = [
        bounds.hoeffding(10, None, (0, 1), log_inv_delta=5000.0),
        bounds.empirical_bernstein(10, 1.0, None, (0, 1), log_inv_delta=5000.0),
        bounds.serfling(10, 100, 1.0, None, (0, 1), log_inv_delta=5000.0),
        bounds.normal(100, 1000, 1.0, None, log_inv_delta=5000.0),
    ]
    assert np.all(np.isfinite(tiny))
    assert np.all(np.greater(tiny, [15.0, 1500.0, 15.0, 9.0]))


@pytest.mark.parametrize("name", populations())
def test_half_widths_keep_their_promise(name, seed):
    """2000 orders of each population, several sizes, both sides on their own."""
    values = populations()[name]
    support = (values.min() - 1e-9, values.min() + 1.0)
    trials, rng = 2000, np.random.default_rng([seed, 1])
    orders = rng.permuted(np.tile(values - values.min(), (trials, 1)), axis=1)
    truth = orders[0].mean()
    for n in (2, 20, 100, 200, 299):
        mean, std = orders[:, :n].mean(axis=1), orders[:, :n].std(axis=1)
        for half in (
            bounds.hoeffding(n, DELTA, support),
            bounds.hoeffding_serfling(n, N_ROWS, DELTA, support),
            bounds.empirical_bernstein_serfling(n, N_ROWS, std, DELTA, support),
            bounds.serfling(n, N_ROWS, std, DELTA, support),
        ):
            assert_rate_at_most(int(np.sum(mean - truth > half)), trials, DELTA)
            assert_rate_at_most(int(np.sum(truth - mean > half)), trials, DELTA)
        drawn = rng.choice(orders[0], (trials, n))
        half = bounds.empirical_bernstein(n, drawn.std(axis=1), DELTA, support)
        assert_rate_at_most(int(np.sum(np.abs(drawn.mean(axis=1) - truth) > half)), trials, DELTA)


def test_half_widths_are_not_wasteful_by_an_order():
    """Hoeffding-Serfling on the population it is tightest for: shrunk by half it must fail."""
    rng = np.random.default_rng(7)
    orders = rng.permuted(np.tile(populations()["half"], (4000, 1)), axis=1)
    half = 0.5 * bounds.hoeffding_serfling(20, N_ROWS, DELTA, (0, 1))
    with pytest.raises(AssertionError):
        assert_rate_at_most(int(np.sum(orders[:, :20].mean(axis=1) - 0.5 > half)), 4000, DELTA)


def test_variance_and_correlation_of_means_without_replacement(rng):
    """Exact for any population: Var = sigma^2 v(n), Corr = sqrt(v(t) / v(s)) of nested samples."""
    values, trials = rng.lognormal(0, 1, 200), 40_000
    n = np.array([10, 20, 40, 80, 160])
    order = rng.permuted(np.tile(values, (trials, 1)), axis=1)
    means = (np.cumsum(order, axis=1)[:, n - 1] / n - values.mean()) / values.std()
    v = bounds.variance_factor(n, 200)
    square = means**2
    error = square.std(axis=0) / np.sqrt(trials)
    assert np.all(np.abs(square.mean(axis=0) - v) < 5 * error)
    z = means / np.sqrt(v)
    for i in range(5):
        for j in range(i):
            product = z[:, i] * z[:, j]
            assert abs(product.mean() - np.sqrt(v[i] / v[j])) < 5 * product.std() / np.sqrt(trials)


def test_all_rows_read_leaves_nothing():
    n = np.array([1, 2, 7, 1000, 2**31 + 7, 2**62])
    assert not bounds.variance_factor(n, n).any()
    assert not bounds.hoeffding_serfling(n, n, 1e-9, (0, 1)).any()
    assert not bounds.empirical_bernstein_serfling(n, n, 1.0, 1e-9, (0, 1)).any()
    assert not bounds.serfling(n, n, 1.0, 1e-9, (0, 1)).any()
    assert not bounds.normal(1000, 1000, np.inf, 1e-9).any()


def test_counters_at_2_to_40():
    """No power of a count overflows: finite, positive and falling up to 2^62 rows."""
    for n_rows in (2**40, 2**53 + 1, 2**62):
        n = np.unique(np.r_[2 ** np.arange(1, int(np.log2(n_rows))), n_rows // 2 + 1, n_rows - 1])
        for half in (
            bounds.variance_factor(n, n_rows),
            bounds.serfling_factor(n, n_rows),
            bounds.hoeffding(n, 0.05, (0, 1)),
            bounds.empirical_bernstein(n, 0.2, 0.05, (0, 1)),
            bounds.hoeffding_serfling(n, n_rows, 0.05, (0, 1)),
            bounds.empirical_bernstein_serfling(n, n_rows, 0.2, 0.05, (0, 1)),
            bounds.serfling(n, n_rows, 0.2, 0.05, (0, 1)),
            bounds.normal(n, n_rows, 0.2, 0.05),
        ):
            assert np.all(half > 0) and np.all(np.isfinite(half)) and np.all(np.diff(half) <= 0)
    assert bounds.look_delta(2**40, 0.05, 4.0) == pytest.approx(0.05 * 0.75 * 2.0**-160, rel=1e-12)
    found = bounds.looks(2**62, 50)
    assert found[-1] == 2**62 and np.all(np.diff(found) > 0)


@pytest.mark.parametrize("delta", [0, 0.0, 1, 1.0, -0.1, 1.5, np.nan, np.inf, [0.1, 0.0]])
def test_bad_delta(delta):
    calls = [
        lambda: bounds.hoeffding(10, delta, (0, 1)),
        lambda: bounds.empirical_bernstein(10, 0.1, delta, (0, 1)),
        lambda: bounds.hoeffding_serfling(10, 100, delta, (0, 1)),
        lambda: bounds.empirical_bernstein_serfling(10, 100, 0.1, delta, (0, 1)),
        lambda: bounds.serfling(10, 100, 0.1, delta, (0, 1)),
        lambda: bounds.normal(10, 100, 0.1, delta),
        lambda: bounds.normal_quantile(delta, 1000),
        lambda: bounds.normal_quantile_from_variances(delta, [2.0, 1.0]),
        lambda: bounds.look_delta(1, delta),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="delta"):
            call()


@pytest.mark.parametrize("delta", ["0.1", b"0.1", True, 0.1j, object()])
def test_delta_that_is_no_number(delta):
    for call in (lambda: bounds.hoeffding(10, delta, (0, 1)), lambda: bounds.normal_quantile(delta, 1000)):
        with pytest.raises(TypeError, match="delta"):
            call()


def test_tiny_delta():
    for delta in (1e-300, 5e-324):
        assert 0 < bounds.hoeffding(1000, delta, (0, 1)) < 1
        assert 37 < bounds.normal_quantile(delta, 1000) < 39


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: bounds.hoeffding(0, 0.1, (0, 1)), ValueError, "n is 0"),
        (lambda: bounds.hoeffding(2.5, 0.1, (0, 1)), ValueError, "n is 2.5"),
        (lambda: bounds.hoeffding(np.nan, 0.1, (0, 1)), ValueError, "n is nan"),
        (lambda: bounds.hoeffding("3", 0.1, (0, 1)), TypeError, "n is '3' of dtype"),
        (lambda: bounds.hoeffding(2**63, 0.1, (0, 1)), ValueError, "n is 9223372036854775808"),
        (lambda: bounds.hoeffding(10, 0.1, 1.0), ValueError, "support"),
        (lambda: bounds.hoeffding(10, 0.1, (1, 0)), ValueError, "low <= high"),
        (lambda: bounds.hoeffding(10, 0.1, (0, np.inf)), ValueError, "low <= high"),
        (lambda: bounds.hoeffding(10, 0.1, (np.nan, 1)), ValueError, "low <= high"),
        (lambda: bounds.hoeffding(10, 0.1, (-1e308, 1e308)), ValueError, "low <= high"),
        (lambda: bounds.hoeffding(10, 0.1, (0, 1), log_inv_delta=2.0), ValueError, "exactly one"),
        (lambda: bounds.hoeffding(10, None, (0, 1)), ValueError, "exactly one"),
        (lambda: bounds.hoeffding(10, None, (0, 1), log_inv_delta=-1.0), ValueError, "log_inv_delta is -1.0"),
        (lambda: bounds.empirical_bernstein(10, -0.5, 0.1, (0, 1)), ValueError, "std is -0.5"),
        (lambda: bounds.empirical_bernstein(10, np.nan, 0.1, (0, 1)), ValueError, "std is nan"),
        (lambda: bounds.hoeffding_serfling([5, 11], 10, 0.1, (0, 1)), ValueError, "n is 11, more than n_rows=10"),
        (lambda: bounds.variance_factor(0, 0), ValueError, "n is 0"),
        (lambda: bounds.looks(0), ValueError, "n_rows is 0"),
        (lambda: bounds.looks(100, 0), ValueError, "first_look is 0"),
        (lambda: bounds.looks(100, 50, 1.0), ValueError, "growth is 1.0"),
        (lambda: bounds.looks(100, 50, np.nan), ValueError, "growth is nan"),
        (lambda: bounds.looks([100, 200]), ValueError, "single number"),
        (lambda: bounds.looks(2**40, 2**30, 1 + 1e-12), ValueError, "more than 10000000 looks"),
        (lambda: bounds.look_delta(0, 0.1), ValueError, "look is 0"),
        (lambda: bounds.look_delta(1, 0.1, 1.0), ValueError, "power is 1.0"),
        (lambda: bounds.student_quantile(-1.0, 10), ValueError, "quantile is -1.0"),
        (lambda: bounds.student_quantile(1.0, 10, ddof=2), ValueError, "ddof is 2"),
    ],
)
def test_bad_arguments(call, error, words):
    with pytest.raises(error, match=words.replace("(", r"\(")):
        call()


def test_looks():
    assert bounds.looks(1600, 50).tolist() == [50, 100, 200, 400, 800, 1600]  # n_rows = 2^5 first_look: no short step
    assert bounds.looks(1601, 50).tolist()[-3:] == [800, 1600, 1601]
    assert bounds.looks(50, 50).tolist() == [50]
    assert bounds.looks(10, 50).tolist() == [10]
    assert bounds.looks(1, 1).tolist() == [1]
    assert bounds.looks(10, 1, 1.1).tolist() == list(range(1, 11))  # at least one more row a look
    assert bounds.looks(1e5, 50).dtype == np.int64
    for n_rows, first_look, growth in [(1000, 1, 1.1), (99_999, 50, 1.35), (99_999, 7, 2.0), (1000, 3, 10.0)]:
        assert bounds.looks(n_rows, first_look, growth).tolist() == plain.looks(n_rows, first_look, growth)


@pytest.mark.parametrize("delta", [0.4, 0.05, 1e-6])
@pytest.mark.parametrize("n_rows, first_look, growth", [(50, 50, 2.0), (60, 50, 2.0), (1000, 50, 2.0), (9999, 10, 1.5)])
def test_the_quantile_of_a_schedule_equals_its_twin(delta, n_rows, first_look, growth):
    for kind in ("one-sided", "first-exit"):
        expected = plain.normal_quantile(delta, n_rows, first_look, growth, kind == "first-exit")
        assert bounds.normal_quantile(delta, n_rows, first_look, growth, kind=kind) == pytest.approx(expected, rel=1e-8)


def test_look_deltas_add_up_to_no_more_than_delta():
    for power in (1.1, 2.0, 3.0):
        assert bounds.look_delta(np.arange(1, 10_001), 0.1, power).sum() <= 0.1


def test_student_quantile():
    for n in (2, 5, 50, 1000):
        for quantile in (0.0, 0.5, 3.0, 8.0):
            found = bounds.student_quantile(quantile, n)
            assert found == pytest.approx(plain.student_quantile(quantile, n), rel=1e-8, abs=1e-12)
            assert found >= quantile
            found = bounds.student_quantile(quantile, n, ddof=0)
            assert found == pytest.approx(plain.student_quantile(quantile, n, 0), rel=1e-8, abs=1e-12)
    assert round(float(bounds.student_quantile(3.0, 50)), 2) == 3.16
    assert bounds.student_quantile(3.0, 1) == np.inf


def test_skewness_inflation():
    assert bounds.skewness_inflation(np.nan, 50, 5000, 3.0) == np.inf  # a constant sample knows nothing
    assert bounds.skewness_inflation(np.nan, 50, 50, 3.0) == 0.0
    assert bounds.skewness_inflation(-5.0, 50, 100, 3.0) == 0.0  # no skewness left at half the rows
    assert bounds.skewness_inflation(5.0, 50, 5000, 3.0) == 0.0
    far = bounds.skewness_inflation(-1.0, 50, 5000, np.array([4.999999, 5.0, 5.000001, 40.0]))
    assert np.all(np.diff(far) > 0) and np.all(np.isfinite(far))
    assert np.allclose(np.diff(far[:3]), np.diff(far[:3])[0], rtol=1e-5)  # two formulas meet at 5


def test_ufuncs_pickle():
    from fastrace._math import _half_widths

    assert pickle.loads(pickle.dumps(_half_widths.half_width)) is _half_widths.half_width
