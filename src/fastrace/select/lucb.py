"""Rules with a proof beyond the fixed plans: LUCB over bounds that hold at all times, KL-LUCB; and SAR for a budget."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fastrace._base import _checks
from fastrace.select import _lucb
from fastrace.select._lucb import BOUNDS
from fastrace.select._selector import Selector
from fastrace.select.selection import Selection, _without_epsilon

SPLITS = ("auto", "equal", "sides")


SCALES = ((1.0, 0.9), (0.02, 0.1))  # of the mixtures of "eb-mix", beside the first; and their weights


def scales(width: float, n_arms: int, epsilon: float, delta: float) -> tuple[tuple[float, float], ...]:
    """Sums of squared errors at which the mixtures are tightest, for rewards in [0, 1], and their weights.

    The first is that of the rewards it takes to tell two arms apart whose standard deviation is a quarter of the
    support; the second, for arms that are far apart or hardly vary, is 50 times smaller. Only the number of pulls
    depends on them, never the promise.
    """
    accuracy = max(epsilon / width, 0.02)
    best_at = min(max(math.log(n_arms / delta) / (32.0 * accuracy * accuracy), 6.25), 62_500.0)
    return tuple((best_at * factor, weight) for factor, weight in SCALES)


def shares(bound: str, split: str, n_arms: int, n_best: int, delta: float) -> tuple[float, float]:
    """log(1 / alpha) of every lower and of every upper bound."""
    if split == "auto" and bound == "kl-easy":
        return (-math.log(delta),) * 2
    if split == "equal" or (split == "auto" and 4 * n_best > n_arms):
        return (math.log(n_arms / delta),) * 2
    return math.log(2.0 * max(n_arms - n_best, 1) / delta), math.log(2.0 * n_best / delta)


class LUCB(Selection):
    r"""Find the m best of n arms with a proved probability of error: pull the two arms that are hardest to tell apart.

    The m largest means are the choice. Of the chosen, the arm with the smallest lower bound, and of the others, the one
    with the largest upper bound are pulled, until these two bounds are less than epsilon apart. Arms are compared by
    one interval each: where all arms can be asked about the same rows, as in a table, `FiniteRace` compares paired
    differences and needs far fewer evaluations.

    Parameters
    ----------
    n_arms : int
        Number of arms (n).
    n_best : int
        Arms to select, from 1 to `n_arms` (m).
    epsilon : float, default 0.0
        Accuracy in reward units: an arm whose mean is within `epsilon` of the m-th largest is good enough. With 0 the
        very best are wanted; then it need not stop if the m-th and the next mean are equal, so set `max_pulls`.
    delta : float, default 0.05
        Probability that an arm of the answer is not good enough, in (0, 1).
    support : tuple of float or of arrays of shape (n_arms,), default (0, 1)
        Interval (low, high) that holds every reward, of each arm. Only the widths matter, but for ``"kl"``.
    bound : str, default "eb-mix"
        Bound of each mean that holds at all times at once:

        - ``"eb-mix"``: mean of two gamma-exponential mixtures over the squared errors of predictions [2]_, one for
          arms that are hard to tell apart and one for those that are not. It adapts to the variance, and took the
          fewest pulls in every comparison but those named below.
        - ``"eb-stitch"``: the closed form of the same, wider.
        - ``"hoeffding-mix"``: normal mixture; does not see the variance.
        - ``"hoeffding-lil"``: the bound of lil'UCB [3]_ with its epsilon = 1.
        - ``"lucb1"``: that of [1]_.
        - ``"kl"``: KL-LUCB [4]_, the proved rate; see `KLLUCB`.
        - ``"kl-easy"``: the rate of their experiments. **It has no proof, and need not stop**; fewest pulls for rewards
          0 and 1 whose means are near an end of the support. See `KLLUCB`.
    split : {"auto", "equal", "sides"}, default "auto"
        How delta is shared out. ``"equal"`` gives every arm delta / n; ``"sides"`` [5]_ half of it to the lower bounds
        of the n - m others and half to the upper bounds of the m best, better where m is small. ``"auto"``: sides
        up to m = n / 4; and delta for each arm with ``"kl-easy"``, whose formula shares nothing.
    batch : int or "auto", default "auto"
        Pulls of either arm per decision. ``"auto"`` is one per cent of what the one with fewer pulls has, at least 1
        and at most 4096. The promise is the same with any batch, as the bounds hold at all times; a fixed batch of k
        may pull either arm up to k - 1 times too often before it stops, and ``"auto"`` 1 % too often.
    rng : None, int, SeedSequence or Generator, optional
        Not used; here so that all rules are made alike.

    Raises
    ------
    ValueError
        If a parameter is out of range, or a reward is nan or outside the support.

    Notes
    -----
    With probability at least ``1 - delta`` every arm of the answer has :math:`\mu_i \ge \mu_{(m)} - \epsilon`. If an
    arm h of the answer is worse, one of the true best is not in it, and then either its upper bound or the lower bound
    of h has failed: one event per arm. Rewards must be independent, or at least have the same mean given all before.

    ``result().error_bound`` is the smallest delta at which the rule would have stopped by then, with the same mixtures.
    It is a promise that holds at any time: the probability that it ever falls to x or below while the answer is wrong
    is at most x. So a run with ``epsilon=0`` and `max_pulls` returns the best answer that the budget buys, with a
    number that says how sure to be. ``result().trace`` holds the gap of the two bounds against pulls.

    Two heaps by mean and two by bound are kept, so that a pull costs O(log n). Bounds that grow with the number of
    rounds (``"lucb1"``, ``"kl"``, ``"kl-easy"``) are all renewed at every 2 % more rounds, for a later round.

    References
    ----------
    .. [1] Kalyanakrishnan, Tewari, Auer, Stone, "PAC Subset Selection in Stochastic Multi-armed Bandits", ICML 2012.
    .. [2] Howard, Ramdas, McAuliffe, Sekhon, "Time-uniform, Nonparametric, Nonasymptotic Confidence Sequences", Annals
       of Statistics 49(2), 2021, Proposition 9.
    .. [3] Jamieson, Malloy, Nowak, Bubeck, "lil' UCB: An Optimal Exploration Algorithm for Multi-Armed Bandits",
       COLT 2014.
    .. [4] Kaufmann, Kalyanakrishnan, "Information Complexity in Bandit Subset Selection", COLT 2013.
    .. [5] Simchowitz, Jamieson, Recht, "The Simulator: Understanding Adaptive Sampling in the Moderate-Confidence
       Regime", COLT 2017.

    Examples
    --------
    >>> import fastrace as fr
    >>> from fastrace.pulls import BernoulliPulls
    >>> rule = fr.LUCB(5, 2, epsilon=0.05, delta=0.05)
    >>> rule.run(BernoulliPulls([0.2, 0.8, 0.3, 0.6, 0.1], rng=1)).best
    array([1, 3])
    """

    _bound: str
    _rule = "LUCB"

    def __init__(
        self,
        n_arms: int,
        n_best: int,
        epsilon: float = 0.0,
        delta: float = 0.05,
        support: _checks.Support = (0.0, 1.0),
        *,
        bound: str = "eb-mix",
        split: str = "auto",
        batch: int | str = "auto",
        rng: _checks.RngLike = None,
    ) -> None:
        self._check(n_arms, n_best, epsilon, delta, support)
        self._bound = _checks.choice(bound, "bound", BOUNDS)
        self._begin(
            LUCB,
            {**self._asked_for, "bound": bound, "split": split, "batch": batch},
            rng,
            epsilon=self._epsilon,
            batch=_batch(batch),
            bound=self._bound,
            log_inv_alpha=shares(
                self._bound, _checks.choice(split, "split", SPLITS), self._n_arms, self._n_best, self._delta
            ),
            scales=scales(float(self._widths.max()), self._n_arms, self._epsilon, self._delta),
        )

    def _make(self, rng: np.random.Generator) -> Selector:
        return _lucb.LucbSelector(self._n_arms, self._n_best, rng=rng, **self._arguments, **self._options)

    def _bounds(self) -> dict[str, Any]:
        core = self._core
        assert isinstance(core, _lucb.LucbSelector)
        proved = core.stopped_by == "separation"
        known = core.answer()
        chosen = np.zeros(self._n_arms, dtype=bool)
        chosen[known["best"]] = True
        ends = known["upper"][~chosen].max(initial=-math.inf), known["lower"][chosen].min()
        pulled = core.total >= self._n_arms
        return {
            "rule": f"{self._rule} {self._bound}",
            "error_bound": self._delta if proved else core.error_bound(math.log(self._delta)),
            "cutoff": 0.5 * (ends[0] + ends[1]) if pulled and self._n_best < self._n_arms else math.nan,
            "trace": core.history(),
            "trace_of": "shortfall",
            "shortfall": max(core.shortfall(), 0.0),
            "warnings": self._doubts(),
        }

    def _doubts(self) -> tuple[str, ...]:
        if self._bound == "kl-easy":
            return ("the rate of kl-easy has no proof: delta and the error bound are targets, not promises",)
        return ()


def _batch(batch: int | str) -> int:
    """Pulls of either arm per decision; 0 for a share of those made."""
    if isinstance(batch, str):
        _checks.choice(batch, "batch", ("auto",))
        return 0
    return _checks.integer(batch, "batch", 1, "a decision asks for pulls")


class KLLUCB(LUCB):
    r"""LUCB with bounds from the divergence of Bernoulli rewards, for means near an end of the support.

    Parameters
    ----------
    n_arms : int
        Number of arms (n).
    n_best : int
        Arms to select, from 1 to `n_arms` (m).
    epsilon : float, default 0.0
        Accuracy in reward units, at least 0.
    delta : float, default 0.05
        Probability that an arm of the answer is worse than the m-th best by more than `epsilon`, in (0, 1).
    support : tuple of float or of arrays of shape (n_arms,), default (0, 1)
        Interval (low, high) that holds every reward, of each arm. Rewards need not be at its ends.
    rate : {"proved", "easy"}, default "proved"
        Threshold of n times the divergence at round t: that of the theorem of [1]_, or the one of its experiments,
        :math:`\ln((1 + \ln t) / \delta)`, which has no proof.
    split, batch, rng
        As in `LUCB`. With ``rate="easy"`` and ``split="equal"`` the threshold is :math:`\ln((1 + \ln t) n / \delta)`.

    Raises
    ------
    ValueError
        If a parameter is out of range, or a reward is nan or outside the support.

    Notes
    -----
    The promise of the proved rate is that of `LUCB`. A pull takes longer, as each bound is the solution of an equation:
    about 0.2 us.

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
    array([1])
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
        rng: _checks.RngLike = None,
    ) -> None:
        bound = "kl" if _checks.choice(rate, "rate", ("proved", "easy")) == "proved" else "kl-easy"
        super().__init__(n_arms, n_best, epsilon, delta, support, bound=bound, split=split, batch=batch, rng=rng)


class SAR(LUCB):
    r"""Select the m best of n arms with a fixed number of pulls: successive accepts and rejects.

    The budget is spent in n - 1 phases. In each every undecided arm is pulled up to the same number; then the arm whose
    mean is farthest from the cutoff is accepted or rejected.

    Parameters
    ----------
    n_arms : int
        Number of arms (n).
    n_best : int
        Arms to select, from 1 to `n_arms` (m).
    budget : int
        Pulls that may be made, above `n_arms`. It makes at most as many.
    support : tuple of float or of arrays of shape (n_arms,), default (0, 1)
        Interval (low, high) that holds every reward, of each arm. The rule does not use it; `error_bound` does.
    delta : float, default 0.05
        Level of the bounds in the result, in (0, 1). The rule does not use it.
    rng : None, int, SeedSequence or Generator, optional
        Not used; here so that all rules are made alike.

    Raises
    ------
    ValueError
        If a parameter is out of range, or a reward is nan or outside the support.

    Notes
    -----
    The probability of error falls like :math:`\exp(-T / (8 H \ln n))`, where H adds the inverse squared distances of
    the means from the cutoff, so no number can be stated beforehand [1]_. ``result().error_bound`` is what the rewards
    say: from bounds that hold at all times, the smallest delta at which `LUCB` with ``epsilon=0`` would have stopped on
    these pulls.

    References
    ----------
    .. [1] Bubeck, Wang, Viswanathan, "Multiple Identifications in Multi-Armed Bandits", ICML 2013.

    Examples
    --------
    >>> import fastrace as fr
    >>> from fastrace.pulls import BernoulliPulls
    >>> result = fr.SAR(5, 2, budget=2000).run(BernoulliPulls([0.2, 0.8, 0.3, 0.6, 0.1], rng=1))
    >>> result.best, result.n_pulls <= 2000
    (array([1, 3]), True)
    """

    _rule = "SAR"

    def __init__(
        self,
        n_arms: int,
        n_best: int,
        budget: int,
        support: _checks.Support = (0.0, 1.0),
        delta: float = 0.05,
        *,
        rng: _checks.RngLike = None,
    ) -> None:
        self._check(n_arms, n_best, 0.0, delta, support)
        budget = _checks.integer(budget, "budget", self._n_arms + 1, "every arm is pulled at least once")
        if budget > _checks.MOST_PULLS:
            raise ValueError(f"budget is {budget}; at most 2**62 pulls can be counted")
        self._bound = "eb-mix"
        self._begin(
            SAR,
            {**_without_epsilon(self._asked_for), "budget": budget},
            rng,
            epsilon=0.0,
            budget=budget,
            log_inv_alpha=shares(self._bound, "auto", self._n_arms, self._n_best, self._delta),
            scales=scales(float(self._widths.max()), self._n_arms, 0.0, self._delta),
        )

    def _make(self, rng: np.random.Generator) -> Selector:
        return _lucb.SarSelector(self._n_arms, self._n_best, rng=rng, **self._arguments, **self._options)

    def _bounds(self) -> dict[str, Any]:
        none = {"trace": None, "trace_of": "", "shortfall": math.nan, "epsilon": math.nan}
        return {**super()._bounds(), "rule": "SAR", **none}
