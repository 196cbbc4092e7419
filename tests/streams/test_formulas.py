"""Formulas that C repeats for its lanes are those of the headers."""

import itertools
import math

import numpy as np
import pytest

import fastrace as fr
from fastrace._math import _half_widths
from reference import bounds
from reference import sequences as twin


def test_the_sequence_of_hoeffding_is_the_mixture_of_normals(rng):
    delta, n = 0.03, 5000
    x = np.full(n, 0.5)                                     # the newest interval is then the narrowest
    level = math.log(2 / delta)
    rho = twin.mixture_rho(level, 25.0)
    sequence = fr.ConfidenceSequence("hoeffding", delta=delta)
    for t in range(1, n + 1, 499):
        sequence.update_many(x[sequence.n_samples:t])
        v = 0.25 * t
        expected = min(math.sqrt((v + rho) * (math.log1p(v / rho) + 2 * (level - math.log(2)))) / t, 0.5)
        assert sequence.half_width == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("support", [(0, 1), (np.array([0.0, -1.0, 0.0]), np.array([1.0, 1.0, 2.0]))])
@pytest.mark.parametrize("name", ["HoeffdingRace", "BernsteinRace"])
def test_brackets_of_races_on_streams_have_the_half_widths_of_the_header(name, support, rng):
    horizon, delta, span = 1000, 0.05, np.broadcast_to(np.subtract(*support[::-1]), 3)
    x = rng.random((130, 3)) * [0.5, 0.6, 0.7]
    result = getattr(fr, name)(3, horizon, delta, support).run(x, order="given")
    share = math.log(3 * horizon / delta)
    assert (result.pulls == 130).all()
    if name == "HoeffdingRace":
        expected = _half_widths.hoeffding(130, share + math.log(2), span)
    else:
        expected = _half_widths.empirical_bernstein(130, x.std(axis=0), share, span)
    lower, upper = x.mean(axis=0) - expected, x.mean(axis=0) + expected
    np.testing.assert_allclose(result.lower, np.maximum(lower, support[0]), rtol=1e-12)
    np.testing.assert_allclose(result.upper, np.minimum(upper, support[1]), rtol=1e-12)


@pytest.mark.parametrize("skewness", [0.0, 0.4, 3.0, 14.0, -0.4, -3.0, -14.0])
def test_ends_of_asymptotic_intervals_equal_the_twin_and_are_undone(skewness):
    for n, half in itertools.product((5, 200, 3000), (0.01, 0.3, 4.0)):
        shift = _half_widths.tail_shift(skewness, n, 1.0)
        end = _half_widths.tail_end(half, 0.02, shift)
        assert end == pytest.approx(bounds.tail_end(half, 0.02, [(skewness, n, 0.02)]), rel=1e-9)
        assert _half_widths.tail_away(end, 0.02, shift) == pytest.approx(half, rel=1e-9)
        two = (math.sqrt(0.25) * _half_widths.tail_shift(skewness, n, 0.25)
               + math.sqrt(0.75) * _half_widths.tail_shift(-2.0, 100, 0.75))
        assert _half_widths.tail_end(half, 0.015, two) == pytest.approx(
            bounds.tail_end(half, 0.015, [(skewness, n, 0.005), (-2.0, 100, 0.015)]), rel=1e-9)
    assert _half_widths.tail_end(math.inf, 0.02, 0.1) == math.inf
    with np.errstate(invalid="ignore"):
        assert _half_widths.tail_shift(math.nan, 9, 1.0) == 0.0         # rewards that have all been equal
