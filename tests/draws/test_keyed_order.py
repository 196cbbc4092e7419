"""The keyed order is a bijection, looks uniform in its first positions and pairs, and needs no memory."""

import subprocess
import sys

import numpy as np
import pytest

from fastrace.races._lil import _keyed_counts, _keyed_rows
from guarantee import assert_fits


def test_every_small_size_is_a_bijection(rng):
    for n in range(1, 301):
        assert np.array_equal(np.sort(_keyed_rows(n, 0, n, rng)), np.arange(n)), n


@pytest.mark.parametrize("n", [4095, 4096, 4097, 100_003, 1 << 20])
def test_larger_sizes_are_bijections(n, rng):
    assert np.array_equal(np.sort(_keyed_rows(n, 0, n, rng)), np.arange(n))


@pytest.mark.parametrize("n", [2, 3, 4, 5, 7, 8, 11, 16, 23, 33, 64, 65, 200])
def test_first_two_positions_are_a_uniform_pair(n, rng):
    counts = _keyed_counts(n, 200_000, rng)
    off = ~np.eye(n, dtype=bool)
    assert counts[~off].sum() == 0
    if n > 2:
        assert_fits(counts[off], [1 / off.sum()] * int(off.sum()))
    assert_fits(counts.sum(axis=1), [1 / n] * n)
    assert_fits(counts.sum(axis=0), [1 / n] * n)


@pytest.mark.parametrize("n", [12, 40, 1000])
def test_sums_of_subsets_have_the_moments_of_sampling_without_replacement(n, rng):
    # The first n // 4 of n rows, numbered at random: the variance carries the finite-population factor.
    x = rng.normal(size=n)
    x -= x.mean()
    k = n // 4
    sums = np.array([x[_keyed_rows(n, 0, k, rng)].sum() for _ in range(4000)])
    variance = k * (n - k) / (n - 1) * x.var()
    assert abs(sums.mean()) < 5 * np.sqrt(variance / 4000)
    assert abs(sums.var() / variance - 1) < 5 * np.sqrt(2 / 4000)


def test_small_permutations_are_uniform(rng):
    # Of four rows all 24 orders come equally often, although only single keys were drawn.
    counts = {}
    for _ in range(24_000):
        order = tuple(_keyed_rows(4, 0, 4, rng))
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 24
    assert_fits(list(counts.values()), [1 / 24] * 24)


@pytest.mark.parametrize("n", [(1 << 31) + 11, (1 << 33) + 1, (1 << 61) + 3, 1 << 62])
def test_huge_populations(n, rng):
    rows = _keyed_rows(n, n - 200_000, 200_000, rng)
    assert rows.min() >= 0
    assert rows.max() < n
    assert np.unique(rows).size == rows.size
    assert_fits(np.bincount((rows / n * 64).astype(int), minlength=64), [1 / 64] * 64)
    step = np.diff(rows.astype(float)) / n        # neighbours are unrelated: triangular law of a difference
    assert abs(np.mean(step**2) - 1 / 6) < 0.005


def test_one_row():
    assert _keyed_rows(1, 0, 1, np.random.default_rng(0)).tolist() == [0]


def test_same_seed_same_order():
    a, b = (_keyed_rows(10**12, 5, 100, np.random.default_rng(7)) for _ in range(2))
    assert np.array_equal(a, b)
    assert not np.array_equal(a, _keyed_rows(10**12, 5, 100, np.random.default_rng(8)))


@pytest.mark.skipif(sys.platform == "win32", reason="needs the resource module")
@pytest.mark.resources
def test_order_of_2_to_33_rows_in_under_10_megabytes():
    code = """
import resource, numpy as np
from fastrace.races._lil import _keyed_rows
rng = np.random.default_rng(1)
_keyed_rows(1000, 0, 1000, rng)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
seen = 0
for k in range(1000):
    rows = _keyed_rows(1 << 33, k * (1 << 20), 1000, rng)
    seen += int((rows > 1 << 32).sum())
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
assert 450_000 < seen < 550_000, seen
print(grown)
"""
    grown = int(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
    assert grown * (1 if sys.platform == "darwin" else 1024) < 10e6

