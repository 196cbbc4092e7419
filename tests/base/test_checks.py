"""Checks of arguments that every room uses."""

import pytest

import fastrace as fr


@pytest.mark.parametrize("make", [
    lambda support: fr.LUCB(3, 1, 0.1, support=support), lambda support: fr.FiniteRace(3, 100, support=support),
    lambda support: fr.BettingRace(3, support=support), lambda support: fr.ConfidenceSequence(support=support),
    lambda support: fr.Comparison(3, support=support)])
def test_a_support_too_far_from_0_for_its_width_is_refused(make):
    make((1e12, 1e12 + 1))
    with pytest.raises(ValueError, match="subtract a constant from rewards and support"):
        make((1e15, 1e15 + 8))
