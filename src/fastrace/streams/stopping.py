"""Rules that watch a stream of rewards and stop once its mean is known well enough."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastrace._base import _checks, _progress
from fastrace._base._words import counted
from fastrace._draws import _row_order
from fastrace._math import _half_widths
from fastrace.results import StopResult
from fastrace.streams import _rules, betting, sequences
from fastrace.streams._mean_stops import ApproximationStop, BernsteinStop, HoeffdingStop, SumStop
from fastrace.streams._sequences import Sequence
from fastrace.streams._stopping import Over, Stream

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


def _not_negative(support: Support, name: str) -> None:
    if support[0] < 0.0:
        raise ValueError(
            f"support is {support!r}; {name} needs rewards that are never negative, for it rests on partial sums that "
            f"never fall, and shifting the rewards would change what a relative accuracy means: take EBGStop or "
            f"TargetEBStop"
        )


class NAS(_rules.StoppingRule, HoeffdingStop):
    r"""Estimate a mean to a relative accuracy by Hoeffding's inequality after every reward.

    Nonmonotonic adaptive sampling. It does not see the variance; where that is small, other rules stop much earlier.

    Parameters
    ----------
    epsilon : float
        Relative accuracy, in (0, 1).
    delta : float, default 0.05
        Probability that the estimate misses the accuracy, in (0, 1).
    support : tuple of float, default (0, 1)
        Interval (low, high) that holds every reward, in reward units. Only its width is used.
    two_sided : bool, default True
        Count errors to both sides. False gives the rule as it was printed, which errs with probability at most
        ``2 * delta``.
    floor : float, optional
        Stop with estimate 0 as soon as the absolute mean is known to be at most this. Without it, a mean of zero is
        never known to any relative accuracy.
    max_samples : int, optional
        Rewards after which it gives up, with what it knows.
    outside : {"raise", "clip"}, default "raise"
        What to do with a reward outside `support`: refuse it, or move it to the nearer end and count it. The mean
        is then that of the clipped rewards.

    Raises
    ------
    ValueError
        If a parameter is out of range, or a reward is nan or outside `support`; nothing is changed then.

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

    def __init__(
        self,
        epsilon: float,
        delta: float = 0.05,
        support: Support = (0.0, 1.0),
        *,
        two_sided: bool = True,
        floor: float | None = None,
        max_samples: int | None = None,
        outside: str = "raise",
    ) -> None:
        shared = _rules.relative(epsilon, floor) | _rules.shared(delta, support, max_samples, outside)
        arguments = _arguments(shared, two_sided=bool(two_sided))
        self._configure(arguments, **shared)
        self._configure_hoeffding(two_sided=bool(two_sided))


class GeometricNAS(_rules.StoppingRule, HoeffdingStop):
    r"""Estimate a mean to a relative accuracy by Hoeffding's inequality on a geometric grid of times.

    As `NAS`, with fewer tests of a larger share of delta each; it may overshoot by the factor `beta`.

    Parameters
    ----------
    epsilon : float
        Relative accuracy, in (0, 1).
    delta : float, default 0.05
        Probability that the estimate misses the accuracy, in (0, 1).
    support : tuple of float, default (0, 1)
        Interval (low, high) that holds every reward, in reward units. Only its width is used.
    beta : float, default 1.5
        Ratio of successive times, above 1.
    two_sided : bool, default True
        Count errors to both sides. False gives the rule as it was printed, which errs with probability at most
        ``2 * delta``.
    floor : float, optional
        Stop with estimate 0 as soon as the absolute mean is known to be at most this.
    max_samples : int, optional
        Rewards after which it gives up, with what it knows.
    outside : {"raise", "clip"}, default "raise"
        What to do with a reward outside `support`: refuse it, or move it to the nearer end and count it.

    Raises
    ------
    ValueError
        If a parameter is out of range, or a reward is nan or outside `support`; nothing is changed then.

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

    def __init__(
        self,
        epsilon: float,
        delta: float = 0.05,
        support: Support = (0.0, 1.0),
        *,
        beta: float = 1.5,
        two_sided: bool = True,
        floor: float | None = None,
        max_samples: int | None = None,
        outside: str = "raise",
    ) -> None:
        shared = _rules.relative(epsilon, floor) | _rules.shared(delta, support, max_samples, outside)
        arguments = _arguments(shared, beta=_beta(beta), two_sided=bool(two_sided))
        self._configure(arguments, **shared)
        self._configure_hoeffding(beta=arguments["beta"], two_sided=arguments["two_sided"])


class SRA(_rules.StoppingRule, SumStop):
    r"""Estimate the mean of rewards that are never negative to a relative accuracy, by how fast their sum grows.

    The stopping rule algorithm. It does not see a small variance, and is among the best for Bernoulli rewards of small
    mean.

    Parameters
    ----------
    epsilon : float
        Relative accuracy, in (0, 1).
    delta : float, default 0.05
        Probability that the estimate misses the accuracy, in (0, 1).
    support : tuple of float, default (0, 1)
        Interval (low, high) that holds every reward, in reward units, with ``low >= 0``. Only `high` is used.
    max_samples : int, optional
        Rewards after which it gives up; it then knows the support only.
    outside : {"raise", "clip"}, default "raise"
        What to do with a reward outside `support`: refuse it, or move it to the nearer end and count it.

    Raises
    ------
    ValueError
        If a parameter is out of range, `support` reaches below 0, or a reward is nan or outside `support`; nothing is
        changed then.

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

    def __init__(
        self,
        epsilon: float,
        delta: float = 0.05,
        support: Support = (0.0, 1.0),
        *,
        max_samples: int | None = None,
        outside: str = "raise",
    ) -> None:
        shared = _rules.relative(epsilon, None) | _rules.shared(delta, support, max_samples, outside)
        _not_negative(shared["support"], "SRA")
        self._configure(_arguments(shared), **shared)
        self._configure_sum()


class AA(_rules.StoppingRule, ApproximationStop):
    r"""Estimate the mean of rewards that are never negative to a relative accuracy, optimally up to a constant.

    Three phases: a rough mean, a rough variance, and as many rewards as these two call for.

    Parameters
    ----------
    epsilon : float
        Relative accuracy, in (0, 1).
    delta : float, default 0.05
        Probability that the estimate misses the accuracy, in (0, 1).
    support : tuple of float, default (0, 1)
        Interval (low, high) that holds every reward, in reward units, with ``low >= 0``. Only `high` is used.
    max_samples : int, optional
        Rewards after which it gives up, with what the first phase found.
    outside : {"raise", "clip"}, default "raise"
        What to do with a reward outside `support`: refuse it, or move it to the nearer end and count it.

    Attributes
    ----------
    phase : int
        1 (rough mean), 2 (variance) or 3 (mean).

    Raises
    ------
    ValueError
        If a parameter is out of range, `support` reaches below 0, or a reward is nan or outside `support`; nothing is
        changed then.

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

    def __init__(
        self,
        epsilon: float,
        delta: float = 0.05,
        support: Support = (0.0, 1.0),
        *,
        max_samples: int | None = None,
        outside: str = "raise",
    ) -> None:
        shared = _rules.relative(epsilon, None) | _rules.shared(delta, support, max_samples, outside)
        _not_negative(shared["support"], "AA")
        self._configure(_arguments(shared), **shared)
        self._configure_aa()


class EBStop(_rules.StoppingRule, BernsteinStop):
    r"""Estimate a mean to a relative accuracy by empirical Bernstein bounds after every reward.

    Parameters
    ----------
    epsilon : float
        Relative accuracy, in (0, 1).
    delta : float, default 0.05
        Probability that the estimate misses the accuracy, in (0, 1).
    support : tuple of float, default (0, 1)
        Interval (low, high) that holds every reward, in reward units. Only its width is used unless `use_support`.
    spending : {"poly", "telescoping"}, default "poly"
        Share :math:`d_t` of delta spent at time t: :math:`c/t^p` with :math:`c = \delta(p-1)/p`, or
        :math:`\delta/(t(t+1))`, that of the experiments of [1]_.
    power : float, default 1.1
        The p of ``spending="poly"``, above 1.
    use_support : bool, default False
        Begin with what `support` says of the absolute mean instead of nothing. It costs nothing, and helps where the
        mean lies near an end; [1]_ begins with nothing.
    floor : float, optional
        Stop with estimate 0 as soon as the absolute mean is known to be at most this. Without it, a mean of zero is
        never known to any relative accuracy.
    max_samples : int, optional
        Rewards after which it gives up, with what it knows.
    outside : {"raise", "clip"}, default "raise"
        What to do with a reward outside `support`: refuse it, or move it to the nearer end and count it. The mean
        is then that of the clipped rewards.

    Raises
    ------
    ValueError
        If a parameter is out of range, or a reward is nan or outside `support`; nothing is changed then.

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

    def __init__(
        self,
        epsilon: float,
        delta: float = 0.05,
        support: Support = (0.0, 1.0),
        *,
        spending: str = "poly",
        power: float = 1.1,
        use_support: bool = False,
        floor: float | None = None,
        max_samples: int | None = None,
        outside: str = "raise",
    ) -> None:
        shared = _rules.relative(epsilon, floor) | _rules.shared(delta, support, max_samples, outside)
        own: dict[str, Any] = {
            "spending": _checks.choice(spending, "spending", SPENDING),
            "power": _power(power),
            "use_support": bool(use_support),
        }
        self._configure(_arguments(shared, **own), **shared)
        self._configure_bernstein(schedule="every", **own)


class EBGStop(_rules.StoppingRule, BernsteinStop):
    r"""Estimate a mean to a relative accuracy by empirical Bernstein bounds over a geometric grid of intervals.

    As `EBStop`, and still after every reward, but a share of delta serves a whole interval of times.

    Parameters
    ----------
    epsilon : float
        Relative accuracy, in (0, 1).
    delta : float, default 0.05
        Probability that the estimate misses the accuracy, in (0, 1).
    support : tuple of float, default (0, 1)
        Interval (low, high) that holds every reward, in reward units. Only its width is used unless `use_support`.
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
    use_support : bool, default False
        Begin with what `support` says of the absolute mean instead of nothing. It costs nothing, and helps where the
        mean lies near an end; [1]_ begins with nothing.
    floor : float, optional
        Stop with estimate 0 as soon as the absolute mean is known to be at most this. Without it, a mean of zero is
        never known to any relative accuracy.
    max_samples : int, optional
        Rewards after which it gives up, with what it knows.
    outside : {"raise", "clip"}, default "raise"
        What to do with a reward outside `support`: refuse it, or move it to the nearer end and count it. The mean
        is then that of the clipped rewards.

    Raises
    ------
    ValueError
        If a parameter is out of range, or a reward is nan or outside `support`; nothing is changed then.

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

    def __init__(
        self,
        epsilon: float,
        delta: float = 0.05,
        support: Support = (0.0, 1.0),
        *,
        preset: str = "starred",
        beta: float | None = None,
        spending: str | None = None,
        power: float | None = None,
        use_support: bool = False,
        floor: float | None = None,
        max_samples: int | None = None,
        outside: str = "raise",
    ) -> None:
        shared = _rules.relative(epsilon, floor) | _rules.shared(delta, support, max_samples, outside)
        preset = _checks.choice(preset, "preset", tuple(PRESETS))
        preset_spending, preset_beta, preset_power = PRESETS[preset]
        own: dict[str, Any] = {
            "beta": preset_beta if beta is None else _beta(beta),
            "spending": preset_spending if spending is None else _checks.choice(spending, "spending", SPENDING),
            "power": preset_power if power is None else _power(power),
            "use_support": bool(use_support),
        }
        self._configure(_arguments(shared, preset=preset, **own), **shared)
        self._configure_bernstein(schedule="geometric", **own)


def _arguments(shared: dict[str, Any], **own: Any) -> dict[str, Any]:
    """What makes the same rule again: the arguments that rules share, then the rule's own."""
    names = ("epsilon", "threshold", "delta", "support")
    first = {name: shared[name] for name in names if name in shared}
    last = {name: shared[name] for name in ("floor", "max_samples", "outside") if shared.get(name) is not None}
    return first | own | last


# Rules over any bound. A bound that `bounds` below names is a compiled stream that takes the criterion with it.


def _bernstein(criterion: dict[str, Any], shared: dict[str, Any]) -> Stream:
    """Empirical Bernstein over a geometric grid; capped by Hoeffding's sample size for an absolute accuracy."""
    inner = BernsteinStop()
    common = {"support": shared["support"], "delta": shared["delta"], **criterion}
    inner._configure({}, **common)
    spending, beta, power = PRESETS["starred"]
    cap = None
    if criterion["criterion"] == "absolute":
        cap = _fixed_size(criterion["epsilon"], shared["delta"] / 2.0, shared["support"])
    inner._configure_bernstein(schedule="geometric", spending=spending, beta=beta, power=power, cap=cap)
    return inner


def _fixed(criterion: dict[str, Any], shared: dict[str, Any]) -> Stream:
    """Hoeffding's inequality, once."""
    inner = BernsteinStop()
    inner._configure({}, support=shared["support"], delta=shared["delta"], **criterion)
    cap = _fixed_size(criterion["epsilon"], shared["delta"], shared["support"])
    inner._configure_bernstein(schedule="once", cap=cap)
    return inner


def _fixed_size(epsilon: float, delta: float, support: Support) -> int:
    """Rewards after which Hoeffding's half-width is at most epsilon."""
    span = support[1] - support[0]
    size = math.log(2.0 / delta) * (span / epsilon) ** 2 / 2.0
    if size > 2**53:
        return 2**62
    count = max(1, math.ceil(size))
    while span * math.sqrt(math.log(2.0 / delta) / (2.0 * count)) > epsilon:       # rounding
        count += 1
    return count


def _betting(kernel: str, cap: float) -> _Maker:
    """A confidence sequence."""

    def make(criterion: dict[str, Any], shared: dict[str, Any]) -> Stream:
        inner = Sequence()
        inner._open({}, kernel, cap=cap, support=shared["support"], delta=shared["delta"], **criterion)
        return inner

    return make


_Maker = Callable[[dict[str, Any], dict[str, Any]], Stream]

# Name of a bound -> what makes its stream. The first is "auto".
_SEQUENCES = {name: _betting(kernel, 0.5) for name, kernel in sequences.BOUNDS.items()}
ABSOLUTE: dict[str, _Maker] = {
    "target": _betting("target", 0.9),
    "target-betting": _betting("target-betting", 0.9),
    "empirical-bernstein": _bernstein,
    "fixed-size": _fixed,
    **_SEQUENCES,
}
SIGN: dict[str, _Maker] = {
    "threshold-betting": _betting("threshold", 0.5),
    "empirical-bernstein": _bernstein,
    **_SEQUENCES,
}


def _over(makers: dict[str, _Maker], bound: str, criterion: dict[str, Any], shared: dict[str, Any]) -> Stream:
    """The stream for the bound of that name."""
    name = _checks.choice(bound, "bound", ("auto", *makers))
    if name != "fixed-size":
        sequences.enough_delta(shared["delta"], name)
    return makers[next(iter(makers)) if name == "auto" else name](criterion, shared)


class AbsoluteStop(_rules.StoppingRule, Over):
    r"""Estimate a mean to an absolute accuracy, over a bound chosen by name.

    Parameters
    ----------
    epsilon : float
        Absolute accuracy, above 0, in reward units.
    delta : float, default 0.05
        Probability that the estimate misses the accuracy, in (0, 1).
    support : tuple of float, default (0, 1)
        Interval (low, high) that holds every reward, in reward units.
    bound : str, default "auto"
        - ``"target"`` (``"auto"``) and ``"target-betting"``: bets aimed at the accuracy, as in `TargetEBStop` and
          `TargetBetStop`;
        - ``"fixed-size"``: Hoeffding's inequality at a number of rewards known beforehand;
        - ``"empirical-bernstein"``: that of `EBGStop`. It stops at Hoeffding's sample size for half of `delta` at the
          latest, so that it never takes many more rewards than ``"fixed-size"``;
        - any bound of `ConfidenceSequence`.
    max_samples : int, optional
        Rewards after which it gives up, with what it knows.
    outside : {"raise", "clip"}, default "raise"
        What to do with a reward outside `support`: refuse it, or move it to the nearer end and count it. The mean
        is then that of the clipped rewards.

    Raises
    ------
    ValueError
        If a parameter is out of range, or a reward is nan or outside `support`; nothing is changed then.

    Notes
    -----
    Stops when the running intersection of intervals is at most ``2 * epsilon`` wide and returns its middle, which is
    within `epsilon` of the mean with probability at least ``1 - delta``, for independent rewards of one mean. O(1) time
    and memory.

    References
    ----------
    .. [1] Mnih, Szepesvari, Audibert, "Empirical Bernstein Stopping", ICML 2008, section 3.

    Examples
    --------
    >>> import numpy as np
    >>> import fastrace as fr
    >>> rule = fr.AbsoluteStop(epsilon=0.01, delta=0.05, support=(0, 1), bound="empirical-bernstein")
    >>> rule.update_many(np.random.default_rng(1).beta(20, 20, size=100_000))
    7458
    >>> round(rule.estimate, 2)
    0.5
    """

    def __init__(
        self,
        epsilon: float,
        delta: float = 0.05,
        support: Support = (0.0, 1.0),
        *,
        bound: str = "auto",
        max_samples: int | None = None,
        outside: str = "raise",
    ) -> None:
        criterion = _rules.absolute(epsilon)
        shared = _rules.shared(delta, support, max_samples, outside)
        inner = _over(ABSOLUTE, bound, criterion, shared)
        self._configure_over(
            _arguments(criterion | shared, bound=bound), inner, max_samples=shared["max_samples"],
            outside=shared["outside"],
        )


class SignStop(_rules.StoppingRule, Over):
    r"""Find out on which side of a threshold a mean lies, over a bound chosen by name.

    Parameters
    ----------
    threshold : float, default 0.0
        What the mean is compared with, in reward units.
    delta : float, default 0.05
        Probability that the side is wrong, in (0, 1).
    support : tuple of float, default (-1, 1)
        Interval (low, high) that holds every reward, in reward units.
    bound : str, default "auto"
        - ``"threshold-betting"`` (``"auto"``): as in `SignTest`;
        - ``"empirical-bernstein"``: that of `EBGStop`;
        - any bound of `ConfidenceSequence`.
    max_samples : int, optional
        Rewards after which it gives up, with what it knows.
    outside : {"raise", "clip"}, default "raise"
        What to do with a reward outside `support`: refuse it, or move it to the nearer end and count it. The mean
        is then that of the clipped rewards.

    Raises
    ------
    ValueError
        If a parameter is out of range, or a reward is nan or outside `support`; nothing is changed then.

    Notes
    -----
    Stops when the running intersection of intervals lies on one side of the threshold; `estimate` is then 1.0 for above
    and -1.0 for below, wrong with probability at most ``delta``. A mean equal to the threshold stops with probability
    at most ``delta``, so give `max_samples`. O(1) time and memory.

    References
    ----------
    .. [1] Mnih, Szepesvari, Audibert, "Empirical Bernstein Stopping", ICML 2008, section 3.

    Examples
    --------
    >>> import numpy as np
    >>> import fastrace as fr
    >>> rule = fr.SignStop(support=(-1, 1), delta=0.05, bound="empirical-bernstein")
    >>> rule.update_many(np.random.default_rng(1).uniform(-0.4, 0.6, size=100_000))
    1141
    >>> rule.estimate
    1.0
    """

    def __init__(
        self,
        threshold: float = 0.0,
        delta: float = 0.05,
        support: Support = (-1.0, 1.0),
        *,
        bound: str = "auto",
        max_samples: int | None = None,
        outside: str = "raise",
    ) -> None:
        criterion = _rules.sign(threshold)
        shared = _rules.shared(delta, support, max_samples, outside)
        low, high = shared["support"]
        if not low < criterion["threshold"] < high:
            raise ValueError(
                f"threshold is {threshold!r} and support is {support!r}; a threshold inside it is needed: otherwise "
                f"the side is known before the first reward"
            )
        inner = _over(SIGN, bound, criterion, shared)
        self._configure_over(
            _arguments(criterion | shared, bound=bound), inner, max_samples=shared["max_samples"],
            outside=shared["outside"],
        )


# One call

METHODS: dict[str, Callable[..., Any]] = {
    "target-eb": betting.TargetEBStop,
    "target-bet": betting.TargetBetStop,
    "betting": betting.BettingStop,
    "nas": NAS,
    "geometric-nas": GeometricNAS,
    "sra": SRA,
    "aa": AA,
    "ebstop": EBStop,
    "ebgstop": EBGStop,
    "absolute": AbsoluteStop,
}
METHODS_OF_POPULATIONS = ("target-eb", "target-bet", "betting")
# Rules whose bounds rest on sums of a fixed number of rewards: what holds for independent rewards then holds without
# replacement (Hoeffding 1963, Theorem 4).
ONCE = (NAS, GeometricNAS, SRA, EBStop)
AT_FIRST, AT_ONCE = 1 << 10, 1 << 16    # rewards of an array between two reports of progress


def estimate_mean(
    rewards: Callable[..., Any] | Iterable[float] | ArrayLike,
    epsilon: float = 0.1,
    delta: float = 0.05,
    support: Support = (0.0, 1.0),
    *,
    accuracy: str = "relative",
    method: str | Stream = "auto",
    n_rows: int | None = None,
    order: str = "random",
    max_samples: int | None = None,
    progress: bool = False,
    batch: int | None = None,
    rng: _checks.RngLike = None,
    **options: Any,
) -> StopResult:
    r"""Estimate a mean to a given accuracy from as few rewards as possible.

    Parameters
    ----------
    rewards : callable, iterable or array_like of shape (k,)
        Where rewards come from. A function returns one reward per call, or with `batch`, called with a number k, k of
        them. From an iterator no more rewards are taken than needed. Both are streams and are used as they come: their
        rewards must be independent, or at least keep their mean given all earlier ones. An array, a list or a column of
        a frame is a population; see `order`.
    epsilon : float, default 0.1
        Accuracy: relative, in (0, 1), or absolute, in reward units.
    delta : float, default 0.05
        Probability that the estimate misses the accuracy, in (0, 1).
    support : tuple of float, default (0, 1)
        Interval (low, high) that holds every reward, in reward units.
    accuracy : {"relative", "absolute"}, default "relative"
        Whether ``|estimate - mean|`` is to be at most ``epsilon * |mean|`` or ``epsilon``.
    method : str or rule, default "auto"
        ``"auto"`` is ``"target-eb"``, which is `TargetEBStop`; for a relative accuracy also ``"target-bet"``,
        ``"betting"``, ``"nas"``, ``"geometric-nas"``, ``"sra"``, ``"aa"``, ``"ebstop"``, ``"ebgstop"``; for an absolute
        one ``"target-bet"``, ``"betting"``, ``"absolute"``. Or a rule made by you: it brings its own accuracy, and
        keeps what it has seen whatever happens to this call.
    n_rows : int, optional
        Size of the population that the rewards are drawn from without replacement, for the first three methods. An
        array read in random order is the whole population unless this says that it is a random part of a larger one;
        less than its length is refused.
    order : {"random", "given"}, default "random"
        How to read an array. ``"random"``: in uniformly random order; the estimate is one of the mean of the array,
        however its rows are sorted. ``"given"``: from its start. Say so only if the rewards are exchangeable as they
        stand, such as independent draws; the estimate is then one of the mean that they share.
    max_samples : int, optional
        Rewards after which it gives up, with what it knows.
    progress : bool, default False
        Show on standard error how many rewards were used and what is known.
    batch : int, optional
        Rewards asked for at once, at least 1. Those of the last batch that are not needed are lost.
    rng : None, int, SeedSequence or Generator, optional
        Source of randomness of the order.
    **options
        Passed to the rule.

    Returns
    -------
    StopResult
        Estimate, interval, rewards used and how it ended: see `StopResult.status`. ``"running"`` says that the
        rewards ended first. The note says if every row of an array was read: the estimate is then its mean.

    Raises
    ------
    TypeError
        If a function cannot be called as `batch` says, or a reward is no real number.
    ValueError
        If an argument is out of range, a reward that is read is nan or outside `support`, or a function does not return
        `batch` rewards. What a function or iterator raises comes through unchanged.

    Notes
    -----
    For independent rewards of one mean :math:`\mu`, the estimate is as accurate as promised with probability at least
    ``1 - delta`` if it stops; so it does unless the accuracy is relative and :math:`\mu = 0`.

    For an array in random order the promise is about its mean. The methods that know populations, ``"nas"``,
    ``"geometric-nas"``, ``"sra"`` and ``"ebstop"`` read each row at most once: their bounds hold without replacement.
    For the other rules this is not proven; they draw rows independently, with replacement. If as many rewards as the
    array has rows do not suffice, all rows are read and the answer is exact. Reading k rows costs O(k) time and memory.
    A row at random costs several times one in order, and a page of the file where a memory-mapped array is larger than
    memory.

    Examples
    --------
    >>> import numpy as np
    >>> import fastrace as fr
    >>> rng = np.random.default_rng(1)
    >>> print(fr.estimate_mean(rng.random, epsilon=0.05, delta=0.05, support=(0, 1), batch=100))
    TargetEBStop: stopped after 952 samples (relative accuracy, epsilon 0.05, delta 0.05)
      estimate  0.49965959
      interval  [0.47589589, 0.52592474]
      samples   952

    A column that is sorted is read at random; no order deceives it.

    >>> result = fr.estimate_mean(np.sort(rng.random(100_000)), epsilon=0.05, rng=1)
    >>> result.n_samples < 1000, abs(result.estimate - 0.5) < 0.025
    (True, True)
    """
    order = _checks.choice(order, "order", ("random", "given"))
    generator = _checks.generator(rng)
    array = _array(rewards)
    if array is not None:
        if n_rows is not None and _checks.integer(n_rows, "n_rows", 1, "a population has rows") < array.shape[0]:
            raise ValueError(
                f"n_rows is {n_rows} and rewards has {array.shape[0]}; an array is its own population: leave n_rows "
                f"out, give the size of the larger population of which it is a random part, or pass fewer rewards"
            )
        by_name = not isinstance(method, Stream) and _known(method) in METHODS_OF_POPULATIONS
        if n_rows is None and order == "random" and array.shape[0] and by_name:
            n_rows = array.shape[0]
    if n_rows is not None:
        options = {"n_rows": n_rows, **options}
    rule: Any = start_rule(method, epsilon, delta, support, accuracy, max_samples, options)
    if batch is not None:
        batch = _checks.integer(batch, "batch", 1, "it is a number of rewards")
    rows = None if array is None or order == "given" else _rows(rule, array, generator)
    fresh = rule.n_samples == 0
    with _progress.samples(progress) as report:
        if array is None:
            ended = _feed(rule, rewards, batch, report)
        else:
            ended = _feed_array(rule, array, rows, batch, report)
        report(rule, True)
    result: StopResult = rule.result()
    if not ended or result.status != "running":
        return result
    population = getattr(rule, "n_rows", None)      # of a larger one there are rows that nobody has read
    if rows is not None and fresh and len(array) and population in (None, len(array)):
        return _exactly(rule, array)
    return dataclasses.replace(result, note="the rewards ended before the rule stopped")


def start_rule(
    method: str | Stream,
    epsilon: float,
    delta: float,
    support: Support,
    accuracy: str,
    max_samples: int | None,
    options: dict[str, Any],
) -> Stream:
    """The rule that `estimate_mean` uses for these arguments."""
    if isinstance(method, Stream):
        if options or max_samples is not None:
            raise TypeError("a rule made before brings its own options; give them to it")
        if not isinstance(method, _rules.StoppingRule):
            raise TypeError(f"method is a {type(method).__name__}; a rule such as EBGStop(0.1) is needed")
        return method
    accuracy = _checks.choice(accuracy, "accuracy", ("relative", "absolute"))
    name = _known(method)
    make = METHODS[name]
    both = name in METHODS_OF_POPULATIONS
    if not both and (name == "absolute") != (accuracy == "absolute"):
        raise ValueError(f"method is {name!r}, which is not for {accuracy} accuracy")
    if both:
        options = {**options, "accuracy": accuracy}
    elif "n_rows" in options:
        raise ValueError(
            f"n_rows is {options['n_rows']} and method is {name!r}; only {', '.join(METHODS_OF_POPULATIONS)} "
            f"support n_rows"
        )
    rule: Stream = make(epsilon, delta, support, max_samples=max_samples, **options)
    return rule


def _known(method: str) -> str:
    """The name of a method, in full."""
    name = _checks.choice(method, "method", ("auto", *METHODS))
    return "target-eb" if name == "auto" else name


def _array(rewards: Any) -> Any:
    """The rewards as a vector, or None if they are a stream."""
    if callable(rewards) or not (hasattr(rewards, "__array__") or isinstance(rewards, (list, tuple))):
        return None
    if np.ma.isMaskedArray(rewards) and np.ma.getmaskarray(rewards).any():
        raise ValueError("rewards has masked entries; they have no value, so pass rewards.compressed() or fill them")
    array = np.asarray(rewards)
    if array.ndim != 1:
        raise ValueError(f"rewards has shape {array.shape}; a vector of shape (k,) is needed")
    if array.dtype.kind not in "fiub":
        raise TypeError(f"rewards has dtype {array.dtype}; a vector of real numbers is needed")
    return array


def _rows(rule: Any, array: Any, rng: _checks.Generator) -> Callable[[int], Any]:
    """Return a function that gives the next k rows of an array, fewer at its end."""
    n_rows = array.shape[0]
    known = getattr(rule, "n_rows", None)
    if known is not None and known - rule.n_samples < n_rows:
        raise ValueError(
            f"the rule knows a population of {known} rows, of which it has seen {rule.n_samples}, and rewards has "
            f"{n_rows}; make the rule for all of them"
        )
    if known is not None or isinstance(rule, ONCE):
        return _row_order.RowOrder(n_rows, rng).take
    left = n_rows

    def draw(count: int) -> Any:
        nonlocal left
        count = min(count, left)
        left -= count
        return rng.integers(n_rows, size=count)

    return draw


def _feed_array(
    rule: Any, array: Any, rows: Callable[[int], Any] | None, batch: int | None, report: Callable[[Any, bool], None]
) -> bool:
    """Give the rewards of an array to the rule until it is over; return whether they ended first."""
    start, size = 0, AT_FIRST if batch is None else batch
    while not rule.done:
        here = np.arange(start, min(start + size, array.shape[0])) if rows is None else rows(size)
        if not here.size:
            return True
        try:
            rule.update_many(array[start : start + size] if rows is None else array[here])
        except ValueError as error:
            raise _elsewhere(error, rule, array, here) from None
        start += here.size
        size = min(2 * size, AT_ONCE) if batch is None else batch
        report(rule, False)
    return False


def _exactly(rule: Any, array: Any) -> StopResult:
    """The answer of a rule that all rows of an array could not stop, from the mean of the array."""
    outside = rule.arguments.get("outside", "raise")
    full = sequences.ConfidenceSequence(
        "plug-in", rule.support, rule.delta, n_rows=array.shape[0], outside=outside
    )
    try:
        full.update_many(array)
    except ValueError as error:
        raise _elsewhere(error, full, array, range(array.shape[0])) from None
    mean = full.estimate
    answer: StopResult = rule.result()
    note = "every row was read: the interval is the mean of the array"
    changed: dict[str, Any] = {"interval": (mean, mean), "note": note}
    if rule.criterion == "sign":
        away = mean - rule.arguments["threshold"]
        if abs(away) > _half_widths.tie_width(*rule.support):
            changed |= {"estimate": math.copysign(1.0, away), "status": "stopped"}
        else:
            changed |= {"estimate": mean, "status": "max_samples", "note": f"every row was read: {_rules.TIE}"}
    else:
        changed |= {"estimate": mean} | ({} if rule.criterion == "never" else {"status": "stopped"})
    return dataclasses.replace(answer, **changed)


def _feed(rule: Any, rewards: Any, batch: int | None, report: Callable[[Any, bool], None]) -> bool:
    """Give the rewards of a stream to the rule until it is over; return whether they ended first."""
    if callable(rewards):
        if batch is None:
            _checks.takes(rewards, "rewards", hint="; give batch, a number, to call it with that number")
        else:
            _checks.takes(rewards, "rewards", str(batch), hint="; leave batch out to call it without an argument")
        while not rule.done:
            if batch is None:
                drawn = rewards()
                try:
                    rule.update(drawn)
                except TypeError:
                    raise TypeError(
                        f"rewards() returned {drawn!r} of type {type(drawn).__name__}; without batch, each call must "
                        f"return one real number: give batch, such as batch=100, to call rewards(100) for 100 of them"
                    ) from None
            else:
                drawn = rewards(batch)
                _check_block(drawn, f"rewards({batch}) returned", batch)
                rule.update_many(drawn)
            report(rule, False)
        return False
    try:
        iterator = iter(rewards)
    except TypeError:
        raise TypeError(
            f"rewards is a {type(rewards).__name__}; a function, an iterable or an array of rewards is needed"
        ) from None
    if batch is None:
        if rule.done:
            return False
        for reward in iterator:
            if rule.update(reward):
                return False
            report(rule, False)
        return True
    while not rule.done:
        drawn = list(itertools.islice(iterator, batch))
        if not drawn:
            return True
        _check_block(drawn, f"the next {counted(len(drawn), 'element')} of rewards came with", len(drawn))
        rule.update_many(drawn)
        report(rule, False)
    return False


def _check_block(drawn: Any, what: str, count: int) -> None:
    """Refuse what is no vector of so many real numbers."""
    needed = f"{counted(count, 'reward')}, a vector of real numbers of shape ({count},),"
    try:
        shape = np.shape(drawn)
    except ValueError:
        raise ValueError(f"{what} rows of different lengths; {needed} is needed") from None
    if shape != (count,):
        raise ValueError(f"{what} shape {shape}; {needed} is needed")
    kind = np.asarray(drawn).dtype
    if kind.kind not in "fiub":
        raise TypeError(f"{what} dtype {kind}; {needed} is needed")


def _elsewhere(error: ValueError, rule: Any, array: Any, rows: Any) -> ValueError:
    """The same error with the place of the reward in the whole array."""
    index = getattr(error, "index", None)
    if index is None:
        return error
    row = int(rows[index])
    refused: ValueError = rule._refuse(float(array[row]), f"rewards[{row}]")
    return refused
