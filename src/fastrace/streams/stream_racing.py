"""Races on streams with a horizon, by Hoeffding's inequality and by the empirical Bernstein bound."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

# What earlier versions saved names all three races, and what rebuilds them, in this module.
from fastrace.streams.betting_race import BettingRace as BettingRace
from fastrace.streams.stream_race import StreamRace
from fastrace.streams.stream_race import _rebuild as _rebuild


class HoeffdingRace(StreamRace):
    r"""Find the arm with the largest mean by Hoeffding's inequality.

    Every round takes one reward of each arm still in the race. An arm leaves when its upper bound falls below the
    largest lower bound.

    Parameters
    ----------
    {n_arms} {horizon} {delta} {support} {epsilon} {n_best} {names} {cost}

    {raises}

    Notes
    -----
    With probability at least ``1 - delta`` no best arm ever leaves the race: arms may depend on each other, the rewards
    of one arm are independent or at least keep their conditional mean. The half-width after t rounds is
    :math:`R \sqrt{\log(2 M N / \delta) / 2 t}`, R the width of the support. Ties stay in the race.

    If the horizon comes first and ``n_best`` is 1, then with the same probability [1]_ (Theorem 1)

    - every arm left has :math:`\mu_m \ge \mu^* - 4 R \sqrt{\log(2 M N / \delta) / 2 t}` after t rounds (result:
      ``promised_gap``; ``shortfall`` is what the brackets themselves certify, never more);
    - at least d arms have left, d the largest number for which twice the sum of the d smallest
      :math:`\lceil 8 R^2 \log(2 M N / \delta) / (\mu^* - \mu_m)^2 \rceil` is within the rewards used (result:
      ``promised_drops``, from the gaps observed).

    O(1) memory per arm and about the time of adding up the rewards: blocks of rounds that cannot decide about an arm
    are recognised by their sums, with the answer that testing every round would give.

    References
    ----------
    .. [1] Mnih, Szepesvari, Audibert, "Empirical Bernstein Stopping", ICML 2008, section 4; the race itself is that of
       Maron, Moore, "Hoeffding Races", NIPS 1993.
    .. [2] Heidrich-Meisner, Igel, "Hoeffding and Bernstein Races for Selecting Policies in Evolutionary Direct Policy
       Search", ICML 2009.

    Examples
    --------
    >>> import numpy as np
    >>> import fastrace as fr
    >>> rng = np.random.default_rng(0)
    >>> race = fr.HoeffdingRace(3, horizon=10_000, support=(0, 1))
    >>> while not race.done:
    ...     arms, rounds = race.ask()
    ...     race.tell(rng.random((len(rounds), 3))[:, arms] ** np.array([2.0, 1.0, 0.5])[arms]) and None
    >>> race.result().best
    2
    """

    _bound = "hoeffding"
    _failures = 2.0

    def _a_priori(
        self, answer: dict[str, Any], left: NDArray[np.intp], best: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        span = float((self._high - self._low).max())
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            gaps = answer["mean"][best] - answer["mean"]
            needed = np.where(gaps > 0.0, np.ceil(8.0 * np.square(span) * self._share / gaps**2), np.inf)
            promised = np.full(gaps.size, np.nan)
            promised[left] = 4.0 * span * np.sqrt(self._share / (2.0 * answer["pulls"][left]))
        return needed, promised


class BernsteinRace(StreamRace):
    r"""Find the arm with the largest mean by the empirical Bernstein bound.

    As `HoeffdingRace`, with half-widths that follow the observed variance: far fewer rewards where the support is much
    wider than the rewards vary, and never many more.

    Parameters
    ----------
    {n_arms} {horizon} {delta} {support} {epsilon} {n_best} {names} {cost}

    {raises}

    Notes
    -----
    The promise is that of `HoeffdingRace`. The half-width after t rounds is
    :math:`s_m \sqrt{2 L / t} + 3 R L / t` with :math:`L = \log(3 M N / \delta)` and :math:`s_m` the standard deviation
    with divisor t.

    If the horizon comes first and ``n_best`` is 1, then with probability at least ``1 - delta`` [1]_ (Theorem 2), with
    :math:`L' = \log(4 M N / \delta)` and :math:`\Sigma_m` the sum of the standard deviations of arm m and the best arm,

    - every arm left has :math:`\mu_m \ge \mu^* - \Sigma_m \sqrt{8 L' / t} - 9 R L' / t` after t rounds (result:
      ``promised_gap``, with the deviations observed and 12 for the 9, which the brackets certify; ``shortfall`` is what
      they say of the means seen);
    - at least d arms have left, d the largest number for which twice the sum of the d smallest
      :math:`\lceil (8 \Sigma_m^2 + 18 R (\mu^* - \mu_m)) L' / (\mu^* - \mu_m)^2 \rceil` is within the rewards used
      (result: ``promised_drops``, from what was observed).

    Cost as `HoeffdingRace`.

    References
    ----------
    .. [1] Mnih, Szepesvari, Audibert, "Empirical Bernstein Stopping", ICML 2008, section 4.

    Examples
    --------
    >>> import numpy as np
    >>> import fastrace as fr
    >>> rewards = 0.1 * np.random.default_rng(0).random((10_000, 4)) + [0.3, 0.5, 0.4, 0.45]
    >>> result = fr.BernsteinRace(4, horizon=10_000, support=(0, 1)).run(rewards)
    >>> result.best, result.work_saved > 0.8
    (1, True)
    """

    _bound = "empirical-bernstein"
    _failures = 3.0

    def _a_priori(
        self, answer: dict[str, Any], left: NDArray[np.intp], best: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        span = float((self._high - self._low).max())
        share = self._share + math.log(4.0 / 3.0)
        both = answer["std"] + answer["std"][best]
        with np.errstate(divide="ignore", invalid="ignore"):
            gaps = answer["mean"][best] - answer["mean"]
            needed = np.where(gaps > 0.0, np.ceil((8.0 * both**2 + 18.0 * span * gaps) / gaps**2 * share), np.inf)
            promised = np.full(gaps.size, np.nan)
            n = answer["pulls"][left]
            # Two half-widths of each: with the deviations seen, which the theorem's 9 takes to be the true ones.
            promised[left] = both[left] * np.sqrt(8.0 * share / n) + 12.0 * span * share / n
        return needed, promised
