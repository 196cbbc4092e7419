"""Rules over a bound chosen by name: a mean to an absolute accuracy, the side of a threshold that it lies on."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from fastrace._base import _checks
from fastrace.streams import _rules, sequences
from fastrace.streams._mean_stops import BernsteinStop
from fastrace.streams._sequences import Sequence
from fastrace.streams._stopping import Over, Stream
from fastrace.streams.stopping import PRESETS, Support

# Name of a bound -> the kernel of its sequence. The first is "auto"; None is one of `BernsteinStop`.
ABSOLUTE: dict[str, str | None] = {
    "target-odds": "target-odds",
    "target": "target",
    "target-betting": "target-betting",
    "empirical-bernstein": None,
    "fixed-size": None,
    **sequences.BOUNDS,
}
SIGN: dict[str, str | None] = {"threshold-betting": "threshold", "empirical-bernstein": None, **sequences.BOUNDS}
# Bounds that hold for a population read without replacement.
OF_POPULATIONS = ("target", "target-betting", "target-odds", "universal", "betting", "empirical-bernstein-plug-in",
                  "beta-binomial")


def _bernstein(once: bool, checked: dict[str, Any]) -> Stream:
    """Hoeffding's inequality once, or empirical Bernstein over a geometric grid.

    The latter is capped by Hoeffding's sample size for half of delta if the accuracy is absolute.
    """
    inner = BernsteinStop()
    inner._configure({}, **checked)
    spending, beta, power = PRESETS["starred"]
    size = None
    if checked["criterion"] == "absolute":
        size = _fixed_size(checked["epsilon"], checked["delta"] / (1.0 if once else 2.0), checked["support"])
    schedule = "once" if once else "geometric"
    inner._configure_bernstein(schedule=schedule, spending=spending, beta=beta, power=power, cap=size)
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


class _OverBound(_rules.StoppingRule, Over):
    """A rule over a bound chosen by name."""

    _holds_once = False
    _kernels: ClassVar[dict[str, str | None]]
    _of_populations: ClassVar[tuple[str, ...]]

    def _start(self, bound: str, n_rows: int | None, cap: float | None, checked: dict[str, Any]) -> None:
        name = _checks.choice(sequences.in_full(bound), "bound", ("auto", *self._kernels))
        if name == "auto":          # what is saved says which bound it was
            name = next(iter(self._kernels))
        kernel = self._kernels[name]
        own: dict[str, Any] = {"n_rows": sequences.population(n_rows), "cap": sequences.share(cap, kernel)}
        if n_rows is not None and name not in self._of_populations:
            fitting = ", ".join(map(repr, self._of_populations))
            raise ValueError(f"n_rows is {n_rows} and bound is {name!r}; n_rows needs a bound among {fitting}")
        if kernel is None:
            inner = _bernstein(name == "fixed-size", checked)
        else:
            sequences.enough_delta(checked["delta"], kernel)
            inner = Sequence()
            inner._open({}, kernel, **own, **checked)
        self._configure_over(_rules.arguments(checked, bound=name, **own), inner)

    @property
    def n_rows(self) -> int | None:
        """Size of the population sampled without replacement, or None."""
        found: int | None = self.arguments["n_rows"]
        return found


class AbsoluteStop(_OverBound):
    r"""Estimate a mean to an absolute accuracy, over a bound chosen by name.

    Parameters
    ----------
    epsilon : float
        Absolute accuracy, above 0, in reward units.
    {delta} {support}
    bound : str, default "auto"
        - ``"target-odds"`` (``"auto"``), ``"target"`` and ``"target-betting"``: bets aimed at the accuracy, as in
          `TargetOddsStop`, `TargetEBStop` and `TargetBetStop`, the first with the fewest rewards (see the notes);
        - ``"fixed-size"``: Hoeffding's inequality at a number of rewards known beforehand;
        - ``"empirical-bernstein"``: that of `EBGStop`. It stops at Hoeffding's sample size for half of `delta` at the
          latest, so that it never takes many more rewards than ``"fixed-size"``;
        - any bound of `ConfidenceSequence`, by its long or short name, with the default of `tight_at`.
    n_rows : int, optional
        As for `TargetEBStop`; for ``"target"``, ``"target-betting"``, ``"target-odds"``, ``"universal"``,
        ``"betting"``, ``"empirical-bernstein-plug-in"`` and ``"beta-binomial"``.
    {max_samples} {outside}
    cap : float, optional
        For bounds that bet: the largest share of the wealth on one bet, in (0, 0.99]. Without it, 0.9 for bets aimed at
        the accuracy and 0.5 for the others.
    first_look : int, default 200
        With ``support=None``: rewards before which it does not stop. The bound is then ``"asymptotic"``, whose promise
        is nearly right for the mean of so many rewards: see `ConfidenceSequence`, and the warnings of `result`.

    {raises}

    Notes
    -----
    Stops when the running intersection of intervals is at most ``2 * epsilon`` wide and returns its middle, which is
    within `epsilon` of the mean with probability at least ``1 - delta``, for independent rewards of one mean. O(1) time
    and memory.

    Mean rewards to the stop at delta 0.05 (``python bench/benchmarks/stopping.py``):

    ==============  =======  ===========  ===========  ===========
    rewards         epsilon  target-odds  target       universal
    ==============  =======  ===========  ===========  ===========
    0/1, mean .01   .1       27           31           31
    0/1, mean .01   .05      69           75           78
    0/1, mean .01   .02      289          303          304
    0/1, mean .01   .01      888          1 064        895
    0/1, mean .5    .1       150          187          208
    0/1, mean .5    .05      606          662          1 037
    0/1, mean .5    .02      3 924        3 972        7 367
    0/1, mean .5    .01      13 781       13 955       28 719
    beta(10, 30)    .1       21           31           25
    beta(10, 30)    .05      46           68           57
    beta(10, 30)    .02      141          213          174
    beta(10, 30)    .01      362          548          443
    beta(1/2, 1/2)  .1       75           107          86
    beta(1/2, 1/2)  .05      303          357          423
    beta(1/2, 1/2)  .02      1 856        1 960        3 202
    beta(1/2, 1/2)  .01      7 526        7 831        14 708
    uniform         .1       54           82           62
    uniform         .05      206          259          250
    uniform         .02      1 292        1 406        2 057
    uniform         .01      5 167        5 350        9 290
    constant        .1       20           28           24
    constant        .05      42           56           51
    constant        .02      107          139          130
    constant        .01      215          279          263
    ==============  =======  ===========  ===========  ===========

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

    _kernels = ABSOLUTE
    _of_populations = OF_POPULATIONS

    @classmethod
    def _as_saved(cls, arguments: dict[str, Any]) -> dict[str, Any]:
        """Of rules that were saved with "auto", which was "target" then."""
        old = arguments.get("bound") == "auto" and arguments.get("support") is not None
        return {**arguments, "bound": "target"} if old else arguments

    def __init__(
        self, epsilon: float, delta: float = 0.05, support: Support | None = (0.0, 1.0), *, bound: str = "auto",
        n_rows: int | None = None, max_samples: int | None = None, outside: str = "raise", cap: float | None = None,
        first_look: int | None = None,
    ) -> None:
        checked = _rules.absolute(epsilon) | _rules.shared(delta, support, max_samples, outside, bounded=False)
        if support is not None:
            _rules.with_support(first_look, bound)
            self._start(bound, n_rows, cap, checked)
            return
        own = _rules.without_support(bound, "auto", first_look, outside, n_rows=n_rows, cap=cap)
        inner = Sequence()
        first_look = own["first_look"]
        inner._open({}, "asymptotic", first_look=first_look, best_at=_rules.best_at(first_look), **checked)
        self._configure_over(_rules.arguments(checked, **own) | {"n_rows": None}, inner)


class SignStop(_OverBound):
    r"""Find out on which side of a threshold the mean of a bounded stream lies, over a bound chosen by name.

    Parameters
    ----------
    threshold : float, default 0.0
        What the mean is compared with, in reward units; strictly inside `support`.
    delta : float, default 0.05
        Probability that the answer is wrong, in (0, 1).
    support : tuple of float, default (-1, 1)
        Interval (low, high) that holds every reward, in reward units.
    bound : str, default "auto"
        - ``"threshold-betting"`` (``"auto"``): two gamblers, one for each side;
        - ``"empirical-bernstein"``: that of `EBGStop`;
        - any bound of `ConfidenceSequence`, by its long or short name, with the default of `tight_at`.
    n_rows : int, optional
        Size of the population if rewards are drawn from it without replacement, in uniformly random order, for
        ``"threshold-betting"``. A mean equal to the threshold is then recognised at the last row; see the notes.
    {max_samples} {outside}
    cap : float, default 0.5
        For bounds that bet: the largest share of the wealth on one bet, in (0, 0.99].

    {raises}

    Notes
    -----
    `estimate` is 1.0 or -1.0 once stopped: the mean is above or below. For rewards whose mean given all earlier ones is
    always :math:`\mu`, the answer is wrong with probability at most `delta`. A mean equal to the threshold is answered
    with probability at most ``2 * delta``, and otherwise it never stops, so give `max_samples` or `n_rows`. O(1) time
    per reward and O(1) memory.

    Of the two gamblers of ``"threshold-betting"``, one bets above the threshold whenever the mean seems above, the
    other below; who reaches :math:`1 / \delta` has found the side, since only one of the two answers is wrong [1]_.
    With `n_rows`, it also stops as soon as the rows that are left cannot change the side. A tie is a mean that differs
    from the threshold by at most :math:`10^{-12}` of the width of `support` and one rounding unit of its larger end. If
    every row has been read and the mean is a tie, no side is answered: `stopped` is False, `stopped_by` is
    ``"max_samples"`` and `interval` is the mean.

    The other bounds stop when the running intersection of their intervals lies on one side of the threshold [2]_.

    References
    ----------
    .. [1] Waudby-Smith, Ramdas, "Estimating means of bounded random variables by betting", JRSS B 86, 2024.
    .. [2] Mnih, Szepesvari, Audibert, "Empirical Bernstein Stopping", ICML 2008, section 3.

    Examples
    --------
    >>> import numpy as np
    >>> import fastrace as fr
    >>> rule = fr.SignStop(threshold=0.5, delta=0.05, support=(0, 1))
    >>> rule.update_many(np.random.default_rng(1).random(1000) ** 0.5)
    24
    >>> rule.estimate, rule.interval
    (1.0, (0.5, 1.0))
    >>> rule = fr.SignStop(support=(-1, 1), delta=0.05, bound="empirical-bernstein")
    >>> rule.update_many(np.random.default_rng(1).uniform(-0.4, 0.6, size=100_000))
    1141
    """

    _kernels = SIGN
    _of_populations = ("threshold-betting",)

    def __init__(
        self, threshold: float = 0.0, delta: float = 0.05, support: Support = (-1.0, 1.0), *, bound: str = "auto",
        n_rows: int | None = None, max_samples: int | None = None, outside: str = "raise", cap: float = 0.5,
    ) -> None:
        checked = _rules.sign(threshold) | _rules.shared(delta, support, max_samples, outside)
        low, high = checked["support"]
        if not low < checked["threshold"] < high:
            raise ValueError(
                f"threshold is {threshold!r} and support is {support!r}; a threshold inside it is needed: otherwise "
                f"the side is known before the first reward"
            )
        self._start(bound, n_rows, cap, checked)

    @property
    def log_capital(self) -> tuple[float, float]:
        """Largest log capital of the bettor below the threshold, and of the one above; log(1 / delta) decides.

        Only ``"threshold-betting"`` has it.
        """
        inner = self._inner()
        if self.arguments["bound"] != "threshold-betting" or not isinstance(inner, Sequence):
            raise AttributeError(f"bound is {self.arguments['bound']!r}; only 'threshold-betting' has a log_capital")
        below, above = inner._capital()
        return below, above
