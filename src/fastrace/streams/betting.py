"""Rules that stop a bounded stream by bets on its mean: the fewest samples for the same promise."""

from __future__ import annotations

from typing import Any, ClassVar

from fastrace.streams import _rules
from fastrace.streams._sequences import Sequence
from fastrace.streams.sequences import enough_delta, population, share


class _BettingRule(_rules.StoppingRule, Sequence):
    """A confidence sequence that stops at a relative accuracy; for an absolute one see `AbsoluteStop`."""

    _holds_once = False
    _kernel: ClassVar[str]

    def __init__(
        self, epsilon: float = 0.1, delta: float = 0.05, support: tuple[float, float] = (0.0, 1.0), *,
        n_rows: int | None = None, floor: float | None = None, max_samples: int | None = None, outside: str = "raise",
        cap: float | None = None,
    ) -> None:
        checked = _rules.shared(delta, support, max_samples, outside) | _rules.relative(epsilon, floor)
        enough_delta(checked["delta"], self._kernel)
        own: dict[str, Any] = {"n_rows": population(n_rows), "cap": share(cap, self._kernel)}
        self._open(_rules.arguments(checked, **own), self._kernel, **own, **checked)


class TargetEBStop(_BettingRule):
    r"""Estimate the mean of a bounded stream by bets aimed at the wanted accuracy, then stop: at 10 ns a reward.

    An empirical Bernstein confidence sequence whose bets are chosen, from what has been seen, to be sharpest when its
    half-width is the one at which the rule may stop. 6 to 16 times fewer samples than `EBGStop` on the laws of its
    paper [1]_, at about 10 ns per reward. `TargetOddsStop` takes fewer.

    Parameters
    ----------
    {default_epsilon} {delta} {support} {n_rows} {floor} {max_samples} {outside} {cap}

    {raises}

    Notes
    -----
    For rewards whose mean given all earlier ones is always :math:`\mu` (independent rewards with one mean, say), with
    probability at least ``1 - delta`` both are true: `interval` holds :math:`\mu` after every reward, and if it stops,
    the estimate is as accurate as promised. It stops with probability 1, unless :math:`\mu = 0`, after
    about :math:`2 \sigma^2 \log(2 / \delta) / (\epsilon \mu)^2` rewards if the variance dominates. The interval is
    sharp at its target and does not shrink to a point: for a finer accuracy use a new rule, for all accuracies
    `ConfidenceSequence`.

    With :math:`z_t` the reward on the scale of [0, 1], :math:`m_t` and :math:`v_t` the mean and variance of those
    before it (and of one made-up reward 1/2 with variance 1/4), :math:`g_t` the wanted half-width at the mean
    :math:`m_t` and :math:`s_t = m_t`, the bets :math:`\lambda_t = \min(g_t / (v_t + s_t g_t), c / s_t)` and
    :math:`\psi_t = (-\log(1 - \lambda_t s_t) - \lambda_t s_t) / s_t^2` make
    :math:`\exp(\sum_t \lambda_t (z_t - \mu) - (z_t - m_t)^2 \psi_t)` a supermartingale, by the inequality of Fan, Grama
    and Liu [2]_ for deviations above :math:`-s_t`. Ville's inequality at :math:`2 / \delta` gives the lower end, the
    same for :math:`1 - z_t` the upper one [3]_. O(1) time per reward and O(1) memory.

    References
    ----------
    .. [1] Mnih, Szepesvari, Audibert, "Empirical Bernstein Stopping", ICML 2008.
    .. [2] Fan, Grama, Liu, "Exponential inequalities for martingales with applications", EJP 20, 2015.
    .. [3] Waudby-Smith, Ramdas, "Estimating means of bounded random variables by betting", JRSS B 86, 2024.

    Examples
    --------
    >>> import numpy as np
    >>> import fastrace as fr
    >>> rule = fr.TargetEBStop(epsilon=0.1, delta=0.05)
    >>> rule.update_many(np.random.default_rng(1).random(10_000))
    248
    >>> rule.stopped, round(rule.estimate, 3)
    (True, 0.499)
    """

    _kernel = "target"


class TargetBetStop(_BettingRule):
    r"""Estimate the mean by a gambler who aims at the wanted accuracy, on a grid of candidate means.

    The bets of `TargetEBStop` as a capital in place of its closed form, followed for at most 1024 candidate means,
    between which new ones are placed as others are refuted. `TargetOddsStop` is faster, and takes fewer samples on most
    laws. Up to 1.4 times fewer samples than `TargetEBStop`, at about
    0.3 us per reward. The grid of candidates costs samples beside the capital of every mean, which would need all
    rewards again at each step: 2 to 7 % on average and up to 17 % in runs of 100 rewards and more, over six laws at
    accuracies of 0.02 to 0.2; in runs of some 30 rewards up to 40 %.

    Parameters
    ----------
    {default_epsilon} {delta} {support} {n_rows} {floor} {max_samples} {outside} {cap}

    {raises}

    Notes
    -----
    The promise is that of `TargetEBStop`. Capital :math:`\prod (1 + \lambda_t (z_t - m))` bets that the mean is above
    the candidate :math:`m`, with :math:`\lambda_t = \min(d / (v_t + d^2), c / m)` where :math:`d` is the wanted
    half-width at the lower end, and likewise below it; a candidate is refuted when one of the two reaches
    :math:`2 / \delta` [1]_. A new candidate starts with the capital of the neighbour that earned less at every step,
    so that it has never more than it would have earned. O(1) time and memory: 1024 candidates at first, later 257 to
    513.

    References
    ----------
    .. [1] Waudby-Smith, Ramdas, "Estimating means of bounded random variables by betting", JRSS B 86, 2024.

    Examples
    --------
    >>> import numpy as np
    >>> import fastrace as fr
    >>> x = np.random.default_rng(1).normal(0.3, 0.02, 1000).clip(0, 1)
    >>> rule = fr.TargetBetStop(epsilon=0.1, delta=0.05)
    >>> rule.update_many(x), fr.TargetEBStop(epsilon=0.1, delta=0.05).update_many(x)
    (76, 94)
    """

    _kernel = "target-betting"


class TargetOddsStop(_BettingRule):
    r"""Estimate the mean by bets on odds ratios, aimed at the wanted accuracy: the fewest samples.

    Bets aimed at the accuracy, against every candidate mean at once. Samples relative to `TargetEBStop` (20 runs at
    delta 0.05, accuracies of 0.03 to 0.2): 0.63 to 0.75 on betas and other rewards of small variance, 0.7 to 0.95 on
    uniforms and clipped lognormals, 0.8 to 1.01 on zeros and ones; never more than 1 % above it, and 0.4 to 0.8 at an
    accuracy of 0.6.

    Parameters
    ----------
    {default_epsilon} {delta} {support} {n_rows} {floor} {max_samples} {outside} {cap}

    {raises}

    Notes
    -----
    The promise is that of `TargetEBStop`. A gambler bets that the mean is above a candidate :math:`m`: the reward
    :math:`z`, on the scale of [0, 1], multiplies his money by :math:`(1 - z + z e^u) / (1 - m + m e^u)`. The bet is
    fair if :math:`m` is the mean [1]_. He guesses the mean :math:`m_t` from earlier rewards and one made-up reward of
    1/2, and the variance :math:`v_t` from them and half a made-up reward with variance 1/4. With :math:`d` the wanted
    half-width and :math:`m = \max(m_t - d, m_t / 2)`, he takes :math:`u = (\operatorname{logit} m_t -
    \operatorname{logit} m) \, m_t (1 - m_t) / v_t`, rounded to the nearest :math:`25 e^{-k / 10}`: on zeros and ones
    his money grows fastest with it. The numerators do not depend on :math:`m`, and the denominators only on how often
    each :math:`u` was taken: the wealth of every candidate is known exactly, is convex in :math:`m`, and gives the
    lower end where it reaches :math:`2 / \delta`; the same for :math:`1 - z` gives the upper one. Without replacement,
    :math:`m` is the mean of a reward given those before it, and its average over the rewards of each :math:`u` enters:
    by Jensen's inequality, no more money than was won.

    The bounds are looked at after every reward at first, later where the number of rewards has grown by 0.5 %. About
    0.7 us per reward in runs of some hundred rewards and 45 ns in runs of 100,000; O(1) memory.

    References
    ----------
    .. [1] Waudby-Smith, Ramdas, "Estimating means of bounded random variables by betting", JRSS B 86, 2024; Orabona,
       Jun, "Tight concentrations and confidence sequences from the regret of universal portfolio", IEEE Transactions on
       Information Theory 70, 2024.

    Examples
    --------
    >>> import numpy as np
    >>> import fastrace as fr
    >>> x = np.random.default_rng(1).beta(10, 30, 1000)
    >>> rule = fr.TargetOddsStop(epsilon=0.1, delta=0.05)
    >>> rule.update_many(x), fr.TargetEBStop(epsilon=0.1, delta=0.05).update_many(x)
    (93, 156)
    >>> rule.stopped, abs(rule.estimate - 0.25) < 0.025
    (True, True)
    """

    _kernel = "target-odds"


class BettingStop(_BettingRule):
    r"""Estimate the mean by hedged capital, whose bets do not know the wanted accuracy.

    Parameters
    ----------
    {default_epsilon} {delta} {support} {n_rows} {floor} {max_samples} {outside}
    cap : float, default 0.5
        Largest share of the wealth on one bet, in (0, 0.99] (c in [1]_).

    {raises}

    Notes
    -----
    The promise is that of `TargetEBStop`; unlike its interval, this one shrinks to a point. The hedged capital process
    of [1]_ with predictable plug-in bets, followed for at most 1024 candidate means, between which new ones are placed
    as others are refuted. O(1) time and memory: 1024 candidates at first, later 257 to 513.

    References
    ----------
    .. [1] Waudby-Smith, Ramdas, "Estimating means of bounded random variables by betting", JRSS B 86, 2024.

    Examples
    --------
    >>> import numpy as np
    >>> import fastrace as fr
    >>> rule = fr.BettingStop(epsilon=0.1, delta=0.05)
    >>> rule.update_many(np.random.default_rng(1).random(10_000))
    276
    """

    _kernel = "betting"
