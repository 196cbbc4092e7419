"""Plans that fix their pulls, or most of them, before the first one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import fastrace.select._plans as _plans
from fastrace._base import _checks
from fastrace.select.selection import Selection, direct_counts


class _Plan(Selection):
    """Base of the rules whose pulls are counted before the first one."""

    _planned: int

    @property
    def planned_pulls(self) -> int:
        """Pulls of the whole plan; in rounds, the most there can be if the supports differ in width."""
        return 0 if self._n_best == self._n_arms else self._planned

    def _needs_epsilon(self) -> None:
        if not self._epsilon > 0.0:
            raise ValueError(
                f"epsilon is {self._epsilon!r}; {type(self).__name__} needs epsilon > 0, as its pulls grow like "
                "1 / epsilon**2"
            )

    def _bounds(self) -> dict[str, Any]:
        bounds = self._hoeffding_bounds(math.log(self._n_arms / self._delta))
        finished = self._core.stopped_by == "plan"
        return {"rule": type(self).__name__, "error_bound": self._delta if finished else math.nan, **bounds}


class Direct(_Plan):
    r"""Pull every arm equally often, as often as the worst case needs, and return the m largest means.

    Parameters
    ----------
    {arms}
    {epsilon}
    {delta}
    {support}
    {names}
    {no rng}

    {errors}

    Notes
    -----
    {promise}
    Arm i is pulled :math:`\lceil 2 (R_i / \epsilon)^2 \ln(n / \delta) \rceil` times, :math:`R_i` the width of its
    support; `planned_pulls` is the sum. Stopped early by `max_pulls`, the answer comes with the error bound that its
    pulls give at a number of pulls fixed beforehand.

    References
    ----------
    .. [1] Kalyanakrishnan, Stone, "Efficient Selection of Multiple Bandit Arms: Theory and Practice", ICML 2010,
       Algorithm 1.

    Examples
    --------
    >>> import fastrace as fr
    >>> from fastrace.pulls import BernoulliPulls
    >>> rule = fr.Direct(4, 2, epsilon=0.1, delta=0.05)
    >>> rule.planned_pulls
    3508
    >>> rule.run(BernoulliPulls([0.2, 0.8, 0.3, 0.6], rng=1)).best
    array([1, 3])
    """

    _compiled = _plans.Direct

    def __init__(
        self,
        n_arms: int,
        n_best: int,
        epsilon: float,
        delta: float = 0.05,
        support: _checks.Support = (0.0, 1.0),
        *,
        names: Sequence[str] | None = None,
        rng: _checks.RngLike = None,
    ) -> None:
        self._check(n_arms, n_best, epsilon, delta, support, names)
        self._needs_epsilon()
        counts = direct_counts(self._widths, self._epsilon, self._delta)
        self._planned = int(counts.sum())
        self._begin(Direct, self._shared(), rng, counts=counts)

    def _bounds(self) -> dict[str, Any]:
        pulls = self._core.answer()["pulls"]
        missed = np.exp(-0.5 * pulls * (self._epsilon / self._widths) ** 2).sum()
        return {**super()._bounds(), "error_bound": min(1.0, float(missed))}


class _Rounds(_Plan):
    """Base of the plans that drop the worse half of the arms in rounds."""

    _compiled = _plans.Elimination

    def _plan(
        self,
        maker: type[Selection],
        given: dict[str, Any],
        rng: _checks.RngLike,
        n_kept: int,
        n_passes: int,
        const: float,
        spread: float,
    ) -> None:
        """Keep the rounds, count them, and begin."""
        self._needs_epsilon()
        if not 2.0 <= const < math.inf:
            raise ValueError(f"const is {const!r}; at least 2 is needed for the promise")
        first = {"epsilon": self._epsilon / 4.0, "delta": self._delta / (2.0 * n_passes)}
        total = 0.0
        for answered in range(n_passes):
            size, epsilon, delta = self._n_arms - answered, first["epsilon"], first["delta"]
            squares = np.sort(self._widths**2)[::-1]
            while size > n_kept:
                with np.errstate(over="ignore", divide="ignore"):
                    per_arm = const * math.log(spread / delta) * np.float64(1.0) / epsilon / epsilon
                    total += float(np.ceil(squares[:size] * per_arm).sum())
                size, epsilon, delta = max((size + 1) // 2, n_kept), 0.75 * epsilon, 0.5 * delta
        if total > _checks.MOST_PULLS:
            raise ValueError(
                f"epsilon is {self._epsilon:g}, which takes {total:.3g} pulls; at most 2**62 can be counted"
            )
        self._planned = int(total)
        self._begin(maker, given, rng, n_kept=n_kept, n_passes=n_passes, factor=const, spread=spread, **first)


class MedianElimination(_Rounds):
    r"""Find an arm within epsilon of the best: rounds of equal pulls, each of which drops the worse half.

    Parameters
    ----------
    n_arms : int
        Number of arms.
    {epsilon}
    {delta}
    {support}
    const : float, default 4.0
        Factor of the pulls per round. 4 is that of [1]_; 2 is enough by Hoeffding's inequality and halves the price.
    {names}
    {no rng}

    {errors}

    Notes
    -----
    {promise}
    Here m is 1. Of order :math:`n \epsilon^{-2} \ln(1/\delta)` pulls, the best order there is, with constants so large
    that `Direct` is cheaper for any number of arms that fits into a computer. At a tie at the median the lower number
    stays.

    References
    ----------
    .. [1] Even-Dar, Mannor, Mansour, "Action Elimination and Stopping Conditions for the Multi-Armed Bandit and
       Reinforcement Learning Problems", JMLR 7, 2006, Algorithm 3.

    Examples
    --------
    >>> import fastrace as fr
    >>> from fastrace.pulls import BernoulliPulls
    >>> rule = fr.MedianElimination(4, epsilon=0.2, const=2)
    >>> rule.planned_pulls, fr.Direct(4, 1, epsilon=0.2).planned_pulls
    (30910, 880)
    >>> rule.run(BernoulliPulls([0.2, 0.8, 0.3, 0.5], rng=1)).best
    1
    """

    def __init__(
        self,
        n_arms: int,
        epsilon: float,
        delta: float = 0.05,
        support: _checks.Support = (0.0, 1.0),
        *,
        const: float = 4.0,
        names: Sequence[str] | None = None,
        rng: _checks.RngLike = None,
    ) -> None:
        self._check(n_arms, 1, epsilon, delta, support, names)
        const = _checks.real(const, "const")
        self._plan(MedianElimination, {**self._shared("n_best"), "const": const}, rng, 1, 1, const, 3.0)


class Incremental(_Rounds):
    r"""Find the m best arms by m median eliminations, each among the arms that are left.

    Parameters
    ----------
    {arms}
    {epsilon}
    {delta}
    {support}
    const : float, default 4.0
        Factor of the pulls per round, at least 2; see `MedianElimination`.
    {names}
    {no rng}

    {errors}

    Notes
    -----
    {promise}
    It takes m times the pulls of a median elimination, and `Direct` is always cheaper in practice.

    References
    ----------
    .. [1] Kalyanakrishnan, Stone, "Efficient Selection of Multiple Bandit Arms: Theory and Practice", ICML 2010,
       Algorithm 2.

    Examples
    --------
    >>> import fastrace as fr
    >>> fr.Incremental(50, 15, epsilon=0.1, delta=0.15).planned_pulls
    166692244
    """

    def __init__(
        self,
        n_arms: int,
        n_best: int,
        epsilon: float,
        delta: float = 0.05,
        support: _checks.Support = (0.0, 1.0),
        *,
        const: float = 4.0,
        names: Sequence[str] | None = None,
        rng: _checks.RngLike = None,
    ) -> None:
        self._check(n_arms, n_best, epsilon, delta, support, names)
        const = _checks.real(const, "const")
        self._plan(Incremental, {**self._shared(), "const": const}, rng, 1, self._n_best, const, 3.0)


class Halving(_Rounds):
    r"""Find the m best arms in rounds of equal pulls, each of which drops the worse half.

    Parameters
    ----------
    {arms}
    {epsilon}
    {delta}
    {support}
    {names}
    {no rng}

    {errors}

    Notes
    -----
    {promise}
    Of order :math:`n \epsilon^{-2} \ln(m/\delta)` pulls, better than `Direct` in the limit of many arms only: its
    constant is about 16 (9 + 72 ln 2 / ln(6m / delta)) times larger, so at m = 1 and delta = 0.1 it would pay from n =
    e^1385 on. Each round judges by its own rewards alone: those of survivors are biased upwards.

    References
    ----------
    .. [1] Kalyanakrishnan, Stone, "Efficient Selection of Multiple Bandit Arms: Theory and Practice", ICML 2010,
       Algorithm 3.

    Examples
    --------
    >>> import fastrace as fr
    >>> fr.Halving(50, 15, epsilon=0.1, delta=0.15).planned_pulls
    2031925
    """

    def __init__(
        self,
        n_arms: int,
        n_best: int,
        epsilon: float,
        delta: float = 0.05,
        support: _checks.Support = (0.0, 1.0),
        *,
        names: Sequence[str] | None = None,
        rng: _checks.RngLike = None,
    ) -> None:
        self._check(n_arms, n_best, epsilon, delta, support, names)
        self._plan(Halving, self._shared(), rng, self._n_best, 1, 2.0, 3.0 * self._n_best)
