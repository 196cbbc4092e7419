"""Rules that choose each pull by the rewards so far: competitors of the papers, and a rule for a fixed budget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import fastrace.select._allocate as _allocate
import fastrace.select._lucb as _lucb
from fastrace._base import _checks
from fastrace._base._words import counted
from fastrace.select.lucb import LUCB, shares
from fastrace.select.selection import NO_LIMIT, Selection, batch_size, scales

DRAWS = ("proportional", "deficit")
RACE_BOUNDS = ("hoeffding", "bernstein")
RATES = {"proved": "kl", "easy": "kl-easy"}     # of KL-LUCB: bounds of LUCB


class OCBA(Selection):
    r"""Spend a budget of pulls on the m best of n arms by their means and variances; no promise.

    Parameters
    ----------
    {arms}
    budget : int
        Pulls to spend in all, at least ``n0 * n_arms``.
    {support}
    n0 : int, optional
        Pulls of every arm at the start, at least 2; by default ``max(10, budget // (4 * n_arms))``, less if the budget
        is smaller. [1]_ asks for at least 5 and used 20, with which it settles too early on hard instances.
    batch : int, default 1
        Pulls per decision (Delta in [1]_), at most 2**24.
    draw : {"proportional", "deficit"}, default "proportional"
        Draw the pulls of a batch in proportion to the shares of the arms that lack pulls, as in [2]_, or give each arm
        what it lacks, as in [1]_.
    {names}
    rng : None, int, SeedSequence or Generator, optional
        Source of randomness.

    {errors}

    Notes
    -----
    The share of arm i is proportional to :math:`s_i^2 / (\hat p_i - c)^2`, c the cutoff between the arms m and m + 1.
    It comes from normal approximations for a large budget; there is no bound on the error. O(n_arms) time per decision.

    References
    ----------
    .. [1] Chen, He, Fu, Lee, "Efficient simulation budget allocation for selecting an optimal subset", INFORMS Journal
       on Computing 20, 2008.
    .. [2] Kalyanakrishnan, Stone, "Efficient Selection of Multiple Bandit Arms: Theory and Practice", ICML 2010,
       section 5.

    Examples
    --------
    >>> import fastrace as fr
    >>> from fastrace.pulls import BernoulliPulls
    >>> rule = fr.OCBA(5, 2, budget=2000, rng=1)
    >>> result = rule.run(BernoulliPulls([0.1, 0.9, 0.5, 0.2, 0.8], rng=2))
    >>> sorted(result.best.tolist()), result.n_read
    ([1, 4], 2000)
    """

    _compiled = _allocate.Ocba
    _core: _allocate.Ocba

    def __init__(
        self,
        n_arms: int,
        n_best: int,
        budget: int,
        support: _checks.Support = (0.0, 1.0),
        *,
        n0: int | None = None,
        batch: int = 1,
        draw: str = "proportional",
        names: Sequence[str] | None = None,
        rng: _checks.RngLike = None,
    ) -> None:
        self._check(n_arms, n_best, 0.0, 0.5, support, names)
        self._epsilon = self._delta = math.nan
        budget = _checks.integer(budget, "budget", 2 * self._n_arms, "every arm needs two pulls for a variance")
        if n0 is None:
            n0 = min(max(10, budget // (4 * self._n_arms)), budget // self._n_arms)
        first = _checks.integer(n0, "n0", 2, "a variance needs two pulls")
        if first * self._n_arms > budget:
            raise ValueError(
                f"n0 is {n0}, which takes {first * self._n_arms} pulls of {n_arms} arms; the budget is {budget}"
            )
        self._begin(
            OCBA,
            {**self._shared("epsilon", "delta"), "budget": budget, "n0": first, "batch": batch, "draw": draw},
            rng,
            budget=min(budget, NO_LIMIT),
            first=first,
            batch=batch_size(batch),
            deficit=_checks.choice(draw, "draw", DRAWS) == "deficit",
        )

    def __repr__(self) -> str:
        return (
            f"OCBA(n_arms={self._n_arms}, n_best={self._n_best}, budget={self._options['budget']}): "
            f"{counted(self._core.total, 'pull')}"
        )

    def _bounds(self) -> dict[str, Any]:
        unknown = np.full((2, self._n_arms), np.nan)
        return {
            "rule": "OCBA-m",
            "lower": unknown[0],
            "upper": unknown[1],
            "error_bound": math.nan,
            "cutoff": self._core.cutoff(),
        }


class SubsetRace(Selection):
    r"""Race for the m best of n arms over a known number of rounds; arms are decided one by one, for good.

    Parameters
    ----------
    {arms}
    horizon : int
        Rounds of one pull of each undecided arm (R in [1]_). `delta` is shared by the looks of all rounds, so that a
        large horizon makes each bound wider.
    delta : float, default 0.05
        Probability that any decision is wrong, in (0, 1).
    {support}
    bound : {"hoeffding", "bernstein"}, default "hoeffding"
        Bound of each mean; "bernstein" is the empirical one of Audibert, Munos and Szepesvari.
    beyond : bool, default False
        Go on after the horizon with the level of its last round, as [2]_ did. Without a promise; give `max_pulls`.
    {names}
    {no rng}

    {errors}

    Notes
    -----
    All decisions within the horizon are right with probability at least ``1 - delta``, and the answer is then exactly
    the m best (there is no epsilon). As the number of bounds still to come depends on what has been decided, the levels
    depend on the data: the promise is that of [1]_, not a theorem. If the horizon ends first, the answer is filled up
    with the best undecided means, a warning says with how many, and there is no promise for those.

    O(k log k) time per round of k undecided arms.

    References
    ----------
    .. [1] Heidrich-Meisner, Igel, "Hoeffding and Bernstein races for selecting policies in evolutionary direct policy
       search", ICML 2009.
    .. [2] Kalyanakrishnan, Stone, "Efficient Selection of Multiple Bandit Arms: Theory and Practice", ICML 2010,
       section 5.

    Examples
    --------
    >>> import fastrace as fr
    >>> from fastrace.pulls import BernoulliPulls
    >>> rule = fr.SubsetRace(5, 2, horizon=500, rng=1)
    >>> result = rule.run(BernoulliPulls([0.1, 0.9, 0.5, 0.2, 0.8], rng=2))
    >>> sorted(result.best.tolist()), result.stopped_by
    ([1, 4], 'bound')
    """

    _compiled = _allocate.Race
    _core: _allocate.Race

    def __init__(
        self,
        n_arms: int,
        n_best: int,
        horizon: int,
        delta: float = 0.05,
        support: _checks.Support = (0.0, 1.0),
        *,
        bound: str = "hoeffding",
        beyond: bool = False,
        names: Sequence[str] | None = None,
        rng: _checks.RngLike = None,
    ) -> None:
        self._check(n_arms, n_best, 0.0, delta, support, names)
        beyond = _checks.flag(beyond, "beyond")
        self._begin(
            SubsetRace,
            {**self._shared("epsilon"), "horizon": horizon, "bound": bound, "beyond": beyond},
            rng,
            horizon=_checks.integer(horizon, "horizon", 1, "a race needs a round"),
            log_inv_delta=-math.log(self._delta),
            bernstein=_checks.choice(bound, "bound", RACE_BOUNDS) == "bernstein",
            beyond=beyond,
        )

    def _bounds(self) -> dict[str, Any]:
        low, high = self._support
        decided, lower, upper = self._core.decided()
        stopped_by, rounds, horizon = self._core.stopped_by, self._core.rounds, self._options["horizon"]
        missing = 0
        if stopped_by not in ("single", "bound"):
            missing = self._n_best - int((decided == 1).sum())
        within = stopped_by == "bound" and rounds <= horizon
        warnings = []
        if missing and stopped_by:
            warnings.append(f"{missing} of the {self._n_best} arms were not decided: they are the best of the others")
        if rounds > horizon:
            warnings.append(f"the race went on to round {rounds}, beyond its horizon: no promise")
        return {
            "rule": "subset race",
            "lower": np.fmax(low, lower),
            "upper": np.fmin(high, upper),
            "error_bound": self._delta if within else math.nan,
            "warnings": tuple(warnings),
        }


class KLLUCB(LUCB):
    r"""LUCB with bounds from the divergence of Bernoulli rewards, for means near an end of the support.

    Parameters
    ----------
    {arms}
    epsilon : float, default 0.0
        Accuracy in reward units, at least 0.
    {delta}
    {support}
        Rewards need not be at its ends.
    rate : {"proved", "easy"}, default "proved"
        Threshold of n times the divergence at round t: that of the theorem of [1]_, or the one of its experiments,
        :math:`\ln((1 + \ln t) / \delta)`, which has no proof.
    split, batch, names, rng
        As in `LUCB`. With ``rate="easy"`` and ``split="equal"`` the threshold is :math:`\ln((1 + \ln t) n / \delta)`.

    {errors}

    Notes
    -----
    The promise of the proved rate is that of `LUCB`, whose default took fewer pulls in every comparison. A pull takes
    longer, as each bound is the solution of an equation: about 0.2 us.

    The easy rate promises nothing. In 200 runs of each of seven instances of 2 to 100 arms at most 1 % of the answers
    were wrong at `delta` 0.05 and 7.5 % at 0.2. Its bounds hardly grow with time, and delta is not shared out over the
    arms. So a good arm that begins badly may be left behind for good, and if the arms at the cut are then equal the
    rule never stops (1 % and 6 % of the runs of 20 arms at 0.6 beside 20 at 0.45): set `max_pulls`. With
    ``split="equal"`` it took 1.1 to 2 times the pulls, and no answer was wrong in those runs; that has no proof either.

    References
    ----------
    .. [1] Kaufmann, Kalyanakrishnan, "Information Complexity in Bandit Subset Selection", COLT 2013.

    Examples
    --------
    >>> import fastrace as fr
    >>> from fastrace.pulls import BernoulliPulls
    >>> rule = fr.KLLUCB(4, 1, epsilon=0.01, rate="easy")
    >>> rule.run(BernoulliPulls([0.02, 0.08, 0.01, 0.03], rng=1)).best
    1
    """

    def __init__(
        self,
        n_arms: int,
        n_best: int,
        epsilon: float = 0.0,
        delta: float = 0.05,
        support: _checks.Support = (0.0, 1.0),
        *,
        rate: str = "proved",
        split: str = "auto",
        batch: int | str = "auto",
        names: Sequence[str] | None = None,
        rng: _checks.RngLike = None,
    ) -> None:
        bound = RATES[_checks.choice(rate, "rate", tuple(RATES))]
        super().__init__(n_arms, n_best, epsilon, delta, support, bound=bound, split=split, batch=batch, names=names,
                         rng=rng)


class SAR(LUCB):
    r"""Select the m best of n arms with a fixed number of pulls: successive accepts and rejects.

    The budget is spent in n - 1 phases. In each every undecided arm is pulled up to the same number; then the arm whose
    mean is farthest from the cutoff is accepted or rejected.

    Parameters
    ----------
    {arms}
    budget : int
        Pulls that may be made, above `n_arms`. It makes at most as many.
    delta : float, default 0.05
        Level of the bounds in the result, in (0, 1). The rule does not use it.
    {support}
        The rule does not use it; `error_bound` does.
    {names}
    {no rng}

    {errors}

    Notes
    -----
    The probability of error falls like :math:`\exp(-T / (8 H \ln n))`, where H adds the inverse squared distances of
    the means from the cutoff, so no number can be stated beforehand [1]_. ``result().error_bound`` is what the rewards
    say: from bounds that hold at all times, the smallest delta at which `LUCB` by intervals and with ``epsilon=0``
    would have stopped on these pulls.

    References
    ----------
    .. [1] Bubeck, Wang, Viswanathan, "Multiple Identifications in Multi-Armed Bandits", ICML 2013.

    Examples
    --------
    >>> import fastrace as fr
    >>> from fastrace.pulls import BernoulliPulls
    >>> result = fr.SAR(5, 2, budget=2000).run(BernoulliPulls([0.2, 0.8, 0.3, 0.6, 0.1], rng=1))
    >>> result.best, result.n_read <= 2000
    (array([1, 3]), True)
    """

    _endless = False            # its budget ends it
    _compiled = _lucb.SarSelector

    def __init__(
        self,
        n_arms: int,
        n_best: int,
        budget: int,
        delta: float = 0.05,
        support: _checks.Support = (0.0, 1.0),
        *,
        names: Sequence[str] | None = None,
        rng: _checks.RngLike = None,
    ) -> None:
        self._check(n_arms, n_best, 0.0, delta, support, names)
        budget = _checks.integer(budget, "budget", self._n_arms + 1, "every arm is pulled at least once")
        if budget > _checks.MOST_PULLS:
            raise ValueError(f"budget is {budget}; at most 2**62 pulls can be counted")
        self._bound = "eb-mix"
        self._begin(
            SAR,
            {**self._shared("epsilon"), "budget": budget},
            rng,
            epsilon=0.0,
            budget=budget,
            log_inv_alpha=shares(self._bound, "auto", self._n_arms, self._n_best, self._delta),
            scales=scales(float(self._widths.max()), self._n_arms, 0.0, self._delta),
        )

    def _bounds(self) -> dict[str, Any]:
        none = {"trace": None, "trace_of": "", "shortfall": math.nan, "epsilon": math.nan}
        return {**super()._bounds(), "rule": "SAR", **none}
