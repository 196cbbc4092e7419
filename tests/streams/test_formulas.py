"""Formulas that C repeats for its lanes are those of the headers."""

import math

import numpy as np
import pytest
from scipy import special

import fastrace as fr
from fastrace._math import _half_widths


def test_the_sequence_of_hoeffding_is_the_mixture_of_normals(rng):
    delta, n = 0.03, 5000
    x = np.full(n, 0.5)                                     # the newest interval is then the narrowest
    level = math.log(2 / delta)
    rho = _half_widths.mixture_rho(25.0, level)
    sequence = fr.ConfidenceSequence("hoeffding", delta=delta)
    for t in range(1, n + 1, 499):
        sequence.update_many(x[sequence.n_samples:t])
        expected = min(_half_widths.normal_mixture_boundary(0.25 * t, rho, level - math.log(2)) / t, 0.5)
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
    np.testing.assert_allclose(0.5 * (result.upper - result.lower), expected, rtol=1e-12)
    np.testing.assert_allclose(0.5 * (result.upper + result.lower), x.mean(axis=0), rtol=1e-12)


def test_the_rest_of_the_logarithm_of_gamma():
    x = np.geomspace(0.05, 1e6, 400)
    exact = special.gammaln(x) - x * np.log(x) + x
    np.testing.assert_allclose(_half_widths.log_gamma_rest(x), exact, atol=1e-13 * 1e6, rtol=1e-12)
    np.testing.assert_allclose(_half_widths.log_gamma_rest(x[x < 50]), exact[x < 50], atol=2e-13)
