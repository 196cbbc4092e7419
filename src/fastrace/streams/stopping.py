"""Rules that watch a stream of rewards and stop once its mean is known to a relative accuracy, by sums and moments."""

from __future__ import annotations

import math
from typing import Any

from fastrace._base import _checks
from fastrace.streams import _rules
from fastrace.streams._mean_stops import ApproximationStop, BernsteinStop, HoeffdingStop, SumStop

SPENDING = ("poly", "telescoping")
PRESETS = {"starred": ("poly", 1.1, 1.1), "plain": ("telescoping", 1.5, 1.1)}      # spending, beta, power
Support = tuple[float, float]


def _beyond_one(value: float, name: str, why: str) -> float:
    number = _checks.real(value, name)
    if not 1.0 < number < math.inf:
        raise ValueError(f"{name} is {value!r}; a finite number above 1 is needed: {why}")
    return number


def _beta(value: float) -> float:
    return _beyond_one(value, "beta", "it is the ratio of successive ends of intervals")


def _power(value: float) -> float:
    return _beyond_one(value, "power", "shares of delta like 1/k**power must have a finite sum")


class _OfSums(_rules.StoppingRule):
    """A rule over sums of rewards that are never negative."""

    def __init__(
        self: Any, epsilon: float, delta: float = 0.05, support: Support = (0.0, 1.0), *,
        max_samples: int | None = None, outside: str = "raise",
    ) -> None:
        if _checks.interval(support)[0] < 0.0:
            raise ValueError(
                f"support is {support!r}; {type(self).__name__} needs rewards that are never negative, for it rests on "
                f"partial sums that never fall, and shifting the rewards would change what a relative accuracy means: "
                f"take EBGStop or TargetEBStop"
            )
        self._relative(epsilon, delta, support, max_samples, outside)
        self._configure_sums()


class NAS(_rules.StoppingRule, HoeffdingStop):
    r"""Estimate a mean to a relative accuracy by Hoeffding's inequality after every reward.

    Nonmonotonic adaptive sampling. It does not see the variance; where that is small, other rules stop much earlier.

    Parameters
    ----------
    {epsilon} {delta} {support}
        Only its width is used.
    {two_sided} {floor} {max_samples} {outside}

    {raises}

    Notes
    -----
    Stops at the first t with :math:`|m_t| \ge \alpha_t (1 + 1/\epsilon)`, where
    :math:`\alpha_t = R\sqrt{\log(2t(t+1)/\delta)/(2t)}`, and returns the mean :math:`m_t`. For independent rewards of
    mean :math:`\mu \ne 0` it stops, and :math:`|m_T - \mu| \le \epsilon |\mu|` with probability at least
    ``1 - delta``. It takes about :math:`R^2/(\epsilon\mu)^2` times a logarithm rewards. O(1) time and memory.

    References
    ----------
    .. [1] Domingo, Gavalda, Watanabe, "Adaptive sampling methods for scaling up knowledge discovery algorithms", 2002.
    .. [2] Mnih, Szepesvari, Audibert, "Empirical Bernstein Stopping", ICML 2008, Algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> import fastrace as fr
    >>> rule = fr.NAS(epsilon=0.1, delta=0.05, support=(0, 1))
    >>> rule.update_many(np.random.default_rng(1).random(10_000))
    5065
    >>> rule.stopped, round(rule.estimate, 3)
    (True, 0.498)
    """

    _holds_once = True

    def __init__(
        self, epsilon: float, delta: float = 0.05, support: Support = (0.0, 1.0), *, two_sided: bool = True,
        floor: float | None = None, max_samples: int | None = None, outside: str = "raise",
    ) -> None:
        two_sided = _checks.flag(two_sided, "two_sided")
        self._relative(epsilon, delta, support, max_samples, outside, floor, two_sided=two_sided)
        self._configure_hoeffding(two_sided=two_sided)


class GeometricNAS(_rules.StoppingRule, HoeffdingStop):
    r"""Estimate a mean to a relative accuracy by Hoeffding's inequality on a geometric grid of times.

    As `NAS`, with fewer tests of a larger share of delta each; it may overshoot by the factor `beta`.

    Parameters
    ----------
    {epsilon} {delta} {support}
        Only its width is used.
    beta : float, default 1.5
        Ratio of successive times, above 1.
    {two_sided} {floor} {max_samples} {outside}

    {raises}

    Notes
    -----
    Test k is made at :math:`t = \lfloor\beta^{k-1}\rfloor` with
    :math:`\alpha = R\sqrt{\log(2k(k+1)/\delta)/(2t)}` and stops if :math:`|m_t| \ge \alpha(1 + 1/\epsilon)`. The
    promise is that of `NAS`. `interval` is the intersection over all tests. O(1) time and memory.

    References
    ----------
    .. [1] Domingo, Watanabe, "Scaling up a boosting-based learner via adaptive sampling", PAKDD 2000.
    .. [2] Mnih, Szepesvari, Audibert, "Empirical Bernstein Stopping", ICML 2008, section 3.2.

    Examples
    --------
    >>> import numpy as np
    >>> import fastrace as fr
    >>> rule = fr.GeometricNAS(epsilon=0.1, delta=0.05, support=(0, 1))
    >>> rule.update_many(np.random.default_rng(1).random(10_000))
    3325
    """

    _holds_once = True

    def __init__(
        self, epsilon: float, delta: float = 0.05, support: Support = (0.0, 1.0), *, beta: float = 1.5,
        two_sided: bool = True, floor: float | None = None, max_samples: int | None = None, outside: str = "raise",
    ) -> None:
        own: dict[str, Any] = {"beta": _beta(beta), "two_sided": _checks.flag(two_sided, "two_sided")}
        self._relative(epsilon, delta, support, max_samples, outside, floor, **own)
        self._configure_hoeffding(**own)


class SRA(_OfSums, SumStop):
    r"""Estimate the mean of rewards that are never negative to a relative accuracy, by how fast their sum grows.

    The stopping rule algorithm. It does not see a small variance, and is among the best for Bernoulli rewards of small
    mean.

    Parameters
    ----------
    {epsilon} {delta} {positive support}
    max_samples : int, optional
        Rewards after which it gives up; it then knows the support only.
    {outside}

    {raises}
        Also if `support` reaches below 0.

    Notes
    -----
    Adds up rewards divided by `high` until the sum reaches
    :math:`\Upsilon_1 = 1 + (1 + \epsilon) 4 (e - 2) \log(2/\delta)/\epsilon^2`, at time N, and returns
    :math:`\Upsilon_1 / N` times `high`, which is within :math:`\epsilon\mu` of the mean with probability at least
    ``1 - delta``. It takes about :math:`\Upsilon_1` times ``high / mean`` rewards, and never stops if all are 0.
    O(1) time and memory.

    References
    ----------
    .. [1] Dagum, Karp, Luby, Ross, "An optimal algorithm for Monte Carlo estimation", SIAM J. Computing 29, 2000.

    Examples
    --------
    >>> import numpy as np
    >>> import fastrace as fr
    >>> rule = fr.SRA(epsilon=0.1, delta=0.05)
    >>> rule.update_many(np.random.default_rng(1).random(100_000) < 0.05)
    22757
    >>> round(rule.estimate, 4)
    0.0513
    """

    _holds_once = True


class AA(_OfSums, ApproximationStop):
    r"""Estimate the mean of rewards that are never negative to a relative accuracy, optimally up to a constant.

    Three phases: a rough mean, a rough variance, and as many rewards as these two call for.

    Parameters
    ----------
    {epsilon} {delta} {positive support}
    max_samples : int, optional
        Rewards after which it gives up, with what the first phase found.
    {outside}

    Attributes
    ----------
    phase : int
        1 (rough mean), 2 (variance) or 3 (mean).

    {raises}
        Also if `support` reaches below 0.

    Notes
    -----
    The first phase is `SRA` at accuracy :math:`\min(1/2, \sqrt\epsilon)` and :math:`\delta/3`; the second adds up
    half squared differences of pairs; the third returns the mean of fresh rewards. With probability at least
    ``1 - delta`` it is within :math:`\epsilon\mu` of the mean, after at most a constant times
    :math:`\max(\sigma^2, \epsilon\mu)/(\epsilon\mu)^2 \log(2/\delta)` rewards, which no rule can beat by more than a
    constant. The constant is large: `EBGStop` and `TargetEBStop` need fewer in practice. Never stops if all rewards are
    0. O(1) time and memory.

    References
    ----------
    .. [1] Dagum, Karp, Luby, Ross, "An optimal algorithm for Monte Carlo estimation", SIAM J. Computing 29, 2000.

    Examples
    --------
    >>> import numpy as np
    >>> import fastrace as fr
    >>> rule = fr.AA(epsilon=0.1, delta=0.05)
    >>> rule.update_many(np.random.default_rng(1).random(10_000))
    4252
    >>> rule.phase, round(rule.estimate, 3)
    (3, 0.499)
    """

    _holds_once = False


class EBStop(_rules.StoppingRule, BernsteinStop):
    r"""Estimate a mean to a relative accuracy by empirical Bernstein bounds after every reward.

    Parameters
    ----------
    {epsilon} {delta} {support}
        Only its width is used, unless `use_support`.
    spending : {"poly", "telescoping"}, default "poly"
        Share :math:`d_t` of delta spent at time t: :math:`c/t^p` with :math:`c = \delta(p-1)/p`, or
        :math:`\delta/(t(t+1))`, that of the experiments of [1]_.
    power : float, default 1.1
        The p of ``spending="poly"``, above 1.
    {use_support} {floor} {max_samples} {outside}

    {raises}

    Notes
    -----
    With :math:`c_t = s_t\sqrt{2\log(3/d_t)/t} + 3R\log(3/d_t)/t`, LB the largest :math:`|m_t| - c_t` and UB the
    smallest :math:`|m_t| + c_t` so far, it stops when :math:`(1+\epsilon) LB \ge (1-\epsilon) UB` and returns the
    middle of the two sides with the sign of the mean. For independent rewards of mean :math:`\mu \ne 0` it stops and
    the estimate is within :math:`\epsilon|\mu|` of :math:`\mu` with probability at least ``1 - delta``, after about
    :math:`\max(\sigma^2/(\epsilon\mu)^2, R/(\epsilon|\mu|))` times a logarithm rewards. O(1) time and memory.

    References
    ----------
    .. [1] Mnih, Szepesvari, Audibert, "Empirical Bernstein Stopping", ICML 2008, Algorithm 2.

    Examples
    --------
    >>> import numpy as np
    >>> import fastrace as fr
    >>> rule = fr.EBStop(epsilon=0.1, delta=0.05, support=(0, 1))
    >>> rule.update_many(np.random.default_rng(1).random(10_000))
    2482
    >>> print(rule.result())
    EBStop: stopped after 2482 samples (relative accuracy, epsilon 0.1, delta 0.05)
      estimate  0.49217423
      interval  [0.44746211, 0.54682239]
      samples   2482
    """

    _holds_once = True

    def __init__(
        self, epsilon: float, delta: float = 0.05, support: Support = (0.0, 1.0), *, spending: str = "poly",
        power: float = 1.1, use_support: bool = False, floor: float | None = None, max_samples: int | None = None,
        outside: str = "raise",
    ) -> None:
        own: dict[str, Any] = {
            "spending": _checks.choice(spending, "spending", SPENDING),
            "power": _power(power),
            "use_support": _checks.flag(use_support, "use_support"),
        }
        self._relative(epsilon, delta, support, max_samples, outside, floor, **own)
        self._configure_bernstein(schedule="every", **own)


class EBGStop(_rules.StoppingRule, BernsteinStop):
    r"""Estimate a mean to a relative accuracy by empirical Bernstein bounds over a geometric grid of intervals.

    As `EBStop`, and still after every reward, but a share of delta serves a whole interval of times.

    Parameters
    ----------
    {epsilon} {delta} {support}
        Only its width is used, unless `use_support`.
    preset : {"starred", "plain"}, default "starred"
        Settings of [1]_: EBGStop*, the default of its authors (``beta=1.1, spending="poly", power=1.1``), or plain
        EBGStop (``beta=1.5, spending="telescoping"``), chosen there to compare with other rules on equal terms.
    beta : float, optional
        Ratio of successive ends of intervals, above 1; overrides the preset.
    spending : {"poly", "telescoping"}, optional
        Share :math:`d_k` of delta spent on interval k: :math:`c/k^p` with :math:`c = \delta(p-1)/p`, or
        :math:`\delta/(k(k+1))`; overrides the preset.
    power : float, optional
        The p of ``spending="poly"``, above 1.
    {use_support} {floor} {max_samples} {outside}

    {raises}

    Notes
    -----
    In interval k, :math:`\lfloor\beta^{k-1}\rfloor < t \le \lfloor\beta^k\rfloor`, the half-width is
    :math:`c_t = s_t\sqrt{2x/t} + 3Rx/t` with
    :math:`x = \log(3/d_k)\lfloor\beta^k\rfloor/\lfloor\beta^{k-1}\rfloor`; the rest, and the promise, are those of
    `EBStop`, with the logarithm of :math:`R/(\epsilon|\mu|)` taken twice. O(1) time and memory. `update_many` looks for
    a stop block by block, and goes reward by reward only through a block in which there is one.

    References
    ----------
    .. [1] Mnih, Szepesvari, Audibert, "Empirical Bernstein Stopping", ICML 2008, Algorithm 3.

    Examples
    --------
    >>> import numpy as np
    >>> import fastrace as fr
    >>> rule = fr.EBGStop(epsilon=0.1, delta=0.05, support=(0, 1))
    >>> rule.update_many(np.random.default_rng(1).random(10_000))
    2009
    >>> low, high = rule.interval
    >>> round(low, 3), round(rule.estimate, 3), round(high, 3)
    (0.451, 0.496, 0.551)
    """

    _holds_once = False

    def __init__(
        self, epsilon: float, delta: float = 0.05, support: Support = (0.0, 1.0), *, preset: str = "starred",
        beta: float | None = None, spending: str | None = None, power: float | None = None, use_support: bool = False,
        floor: float | None = None, max_samples: int | None = None, outside: str = "raise",
    ) -> None:
        preset = _checks.choice(preset, "preset", tuple(PRESETS))
        preset_spending, preset_beta, preset_power = PRESETS[preset]
        own: dict[str, Any] = {
            "beta": preset_beta if beta is None else _beta(beta),
            "spending": preset_spending if spending is None else _checks.choice(spending, "spending", SPENDING),
            "power": preset_power if power is None else _power(power),
            "use_support": _checks.flag(use_support, "use_support"),
        }
        self._relative(epsilon, delta, support, max_samples, outside, floor, preset=preset, **own)
        self._configure_bernstein(schedule="geometric", **own)
