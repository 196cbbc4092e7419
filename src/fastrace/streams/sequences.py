"""Confidence sequences: an interval for the mean of a bounded stream that holds at all times at once."""

from __future__ import annotations

import math
from typing import Any

from fastrace._base import _checks
from fastrace.streams import _rules
from fastrace.streams._sequences import Sequence

# Name of a bound -> its kernel. The first is the default.
BOUNDS = {
    "universal": "universal",
    "empirical-bernstein-mixture": "mixture",
    "empirical-bernstein-plug-in": "plug-in",
    "empirical-bernstein-stitched": "stitched",
    "hoeffding": "hoeffding",
    "betting": "betting",
    "beta-binomial": "beta-binomial",
}
SHORT = {"plug-in": "empirical-bernstein-plug-in", "stitched": "empirical-bernstein-stitched"}
OF_POPULATIONS = ("universal", "plug-in", "betting", "beta-binomial")     # kernels that know populations


def in_full(bound: Any) -> Any:
    """The name of a bound in full; anything else as it is."""
    return SHORT.get(bound, bound) if isinstance(bound, str) else bound


def population(n_rows: int | None) -> int | None:
    """Size of a population sampled without replacement, checked."""
    if n_rows is None:
        return None
    n_rows = _checks.integer(n_rows, "n_rows", 1, "a population has rows")
    if n_rows > 1 << 53:
        raise ValueError(f"n_rows is {n_rows}; at most 2**53 rows can be counted in float64")
    return n_rows


def share(cap: float | None, kernel: str | None) -> float:
    """Largest share of the wealth on one bet, checked; None is 0.9 for bets aimed at an accuracy, else 0.5."""
    if cap is None:
        return 0.9 if kernel in ("target", "target-betting", "target-odds") else 0.5
    number = _checks.real(cap, "cap")
    if not 0.0 < number <= 0.99:
        raise ValueError(f"cap is {cap!r}; a share of the wealth in (0, 0.99] is needed: a bet of all can lose all")
    return number


def enough_delta(delta: float, kernel: str) -> None:
    """Refuse a delta whose wealth float64 cannot hold."""
    if kernel in ("betting", "target-betting") and delta < 1e-200:
        raise ValueError(f"delta is {delta!r}; betting on a grid needs at least 1e-200, as its wealth is a float64")


class ConfidenceSequence(_rules.StoppingRule, Sequence):
    r"""Interval for the mean of a stream that is right at all times at once.

    One may look at it after every reward, stop for any reason, and quote it: there is no price for looking.

    Parameters
    ----------
    bound : str, default "universal"
        How the interval is made; all but ``"hoeffding"`` adapt to the variance of the rewards.

        - ``"universal"``: a universal portfolio of bets on every candidate mean [3]_. In the table in the notes it is
          the narrowest kind, or within 3 % of it, at all times shown; the notes name a law where it is not, and say how
          it bets.
        - ``"empirical-bernstein-mixture"``: gamma-exponential mixture [1]_. The boundary is found by Newton's method.
        - ``"empirical-bernstein-plug-in"`` (or ``"plug-in"``): predictable plug-in [2]_, the fastest.
        - ``"empirical-bernstein-stitched"`` (or ``"stitched"``): polynomial stitching [1]_, which shrinks by a law of
          the iterated logarithm.
        - ``"hoeffding"``: mixture of normals [1]_; takes the variance at its largest.
        - ``"betting"``: hedged capital on a grid of candidate means [2]_, the slowest.
        - ``"beta-binomial"``: for rewards that are one of the two ends of `support`, such as 0 and 1; others are
          refused. The evidence of a prior Beta(1/2, 1/2) over the likelihood [4]_, in closed form. Narrower than
          ``"universal"`` in the first tens of rewards, and from 0.7 to 0.9 of a population of `n_rows` on, or earlier.
        - ``"asymptotic"``: with ``support=None``, see there.
    delta : float, default 0.05
        Probability that the interval ever misses the mean, in (0, 1).
    support : tuple of float or None, default (0, 1)
        Interval (low, high) that holds every reward, in reward units. None if there is none that you know, as for
        revenue or seconds: the interval is then asymptotic [5]_. It takes the mean of `first_look` rewards and more for
        normally distributed, but for their skewness, and its promise is a nearly right one; see the table in the notes.
        A result says so, and warns of a long tail of which few values have been seen.
    n_rows : int, optional
        Size of the population if rewards are drawn from it without replacement; for ``"universal"``, ``"plug-in"``,
        ``"betting"`` and ``"beta-binomial"``.
        Once all rows have been seen, the interval is their mean, whatever earlier intervals said.
    cap : float, default 0.5
        For ``"plug-in"`` and ``"betting"``: the largest share of the wealth on one bet, in (0, 0.99] (c in [2]_).
    tight_at : float, optional
        For ``"empirical-bernstein-mixture"`` and ``"hoeffding"``: the number of rewards times their variance (in units
        of the width of `support`, squared) at which the interval is narrowest compared with what is possible; 25 by
        default. For ``"asymptotic"``: the number of rewards; by default ``first_look * log(first_look)``.
    max_samples : int, optional
        Rewards after which it takes no more.
    outside : {"raise", "clip"}, default "raise"
        What to do with a reward outside `support`: refuse it, or move it to the nearer end and count it. The interval
        is then one of the mean of clipped rewards.
    first_look : int, default 200
        For ``"asymptotic"``: rewards before which the interval is infinite. At least 2.

    Raises
    ------
    ValueError
        If a parameter is out of range, or does not go with `bound`, or a reward is nan or outside `support`; nothing is
        changed then.

    Notes
    -----
    For rewards whose mean given all earlier ones is always :math:`\mu` (independent rewards with one mean, say), and
    for uniform sampling without replacement with `n_rows`, with probability at least ``1 - delta`` it is true that
    :math:`\mu` lies in `interval` after every reward. `interval` is the intersection of all intervals so far; should it
    ever be empty, one of the assumptions is broken or the event of probability `delta` came true, and `stopped_by`
    becomes ``"inconsistent"``. A sequence then takes no more rewards, unless it has `n_rows`: a population is read to
    its end, where the interval is its mean, and `stopped_by` stays ``"inconsistent"``. `estimate` is the mean of the
    rewards.

    Width after t rewards over that of the default kind, whose width is in brackets (medians of 100 runs at delta 0.05;
    ``bench/benchmarks/sequences.py`` prints the table). Lognormal rewards are min(exp(N(-2.5, 1)), 1). Not shown is
    ``"hoeffding"``, 1.2 to 30 times as wide. That kind is the narrowest where the variance is the largest there is, as
    of rewards 0 and 1 of which about half are 1: the default is up to 1.15 times as wide there, most at some 250
    rewards, and 1.06 times at 100,000. With .3 ones in place of .5 it is up to 1.03 times as wide.

    ================  =============  ============  ============  ============  ============  ============
    rewards           kind           t = 10        t = 100       t = 1,000     t = 10,000    t = 100,000
    ================  =============  ============  ============  ============  ============  ============
    beta(100, 300)    universal      1 (0.37)      1 (0.049)     1 (0.0059)    1 (0.0012)    1 (0.00043)
    beta(100, 300)    mixture        2.52          2.80          2.44          1.59          1.08
    beta(100, 300)    plug-in        2.68          3.02          2.56          1.48          1.18
    beta(100, 300)    stitched       2.70          5.06          4.19          3.03          1.71
    beta(100, 300)    betting        1.30          1.49          1.45          1.25          1.16
    beta(10, 30)      universal      1 (0.38)      1 (0.057)     1 (0.012)     1 (0.0042)    1 (0.0014)
    beta(10, 30)      mixture        2.50          2.54          1.61          1.09          1.00
    beta(10, 30)      plug-in        2.64          2.66          1.47          1.14          1.23
    beta(10, 30)      stitched       2.66          4.37          3.07          1.73          1.34
    beta(10, 30)      betting        1.30          1.40          1.16          1.15          1.30
    uniform           universal      1 (0.47)      1 (0.16)      1 (0.059)     1 (0.019)     1 (0.0065)
    uniform           mixture        2.13          1.44          1.03          1.01          0.99
    uniform           plug-in        2.13          1.27          1.10          1.30          1.44
    uniform           stitched       2.13          2.68          1.55          1.30          1.14
    uniform           betting        1.16          1.02          1.09          1.36          1.54
    Bernoulli(0.1)    universal      1 (0.53)      1 (0.17)      1 (0.061)     1 (0.02)      1 (0.0069)
    Bernoulli(0.1)    mixture        1.66          1.26          1.01          1.00          0.98
    Bernoulli(0.1)    plug-in        1.67          1.18          1.12          1.30          1.44
    Bernoulli(0.1)    stitched       1.87          1.84          1.54          1.28          1.12
    Bernoulli(0.1)    betting        1.06          0.98          1.10          1.37          1.55
    Bernoulli(0.1)    beta-binomial  0.99          1.04          1.04          1.12          1.10
    Bernoulli(0.005)  universal      1 (0.38)      1 (0.057)     1 (0.013)     1 (0.0044)    1 (0.0014)
    Bernoulli(0.005)  mixture        1.86          1.26          1.07          1.06          1.00
    Bernoulli(0.005)  plug-in        1.97          1.33          1.01          1.15          1.27
    Bernoulli(0.005)  stitched       2.62          2.20          1.75          1.69          1.33
    Bernoulli(0.005)  betting        1.24          1.25          1.02          1.09          1.25
    Bernoulli(0.005)  beta-binomial  0.99          1.01          1.14          1.19          1.23
    lognormal         universal      1 (0.4)       1 (0.092)     1 (0.029)     1 (0.0099)    1 (0.0033)
    lognormal         mixture        2.12          1.86          1.16          0.99          1.00
    lognormal         plug-in        2.23          1.79          1.14          1.17          1.33
    lognormal         stitched       2.51          3.16          1.99          1.39          1.22
    lognormal         betting        1.35          1.14          1.05          1.18          1.39
    ================  =============  ============  ============  ============  ============  ============

    The portfolio. With :math:`z` the reward on the scale of [0, 1], bettor :math:`u` multiplies his money by
    :math:`(1 - z + z e^u) / (1 - m + m e^u)`, which is 1 on average if the mean is the candidate :math:`m`. 24 bettors
    with :math:`u > 0` bet on a larger mean and 24 with :math:`-u` on a smaller one. :math:`u` is :math:`25 e^{-k / 2}`
    for the first 16, and falls by :math:`e^{-0.8}` from one to the next after. Their shares of one unit of money are
    fixed beforehand; a mixture of such bets is as good as any bets learned from the rewards, but for the share. Of the
    largest bets, the share :math:`1 - m` is on the larger mean. :math:`m` is refuted once the money reaches
    :math:`1 / \delta` (Ville's inequality). The numerators do not depend on :math:`m`, so 48 products serve all
    candidates, and the money falls in :math:`m` on the side of each bound, so Newton's method finds the bound. Without
    replacement, :math:`m` stands for the mean of a reward given those before it; by Jensen's inequality the average of
    these means gives no more money than was won.

    ``"universal"``, ``"empirical-bernstein-mixture"`` and ``"beta-binomial"`` look at their bounds after every reward
    at first, later where the number of rewards has grown by 0.5 % (the second, 0.2 %), and when `interval` is read.
    Fewer looks would show: `interval` holds the best of all bounds so far, and where they are looked at after growth by
    4 % it is 2 % wider on average over 13 laws from 1,000 rewards on, and 4 % at some numbers of rewards.

    Asymptotic intervals. That of ``support=None`` is a mixture of t-statistics: exact for normal rewards of unknown
    variance at all times, and for others as the first look grows, where it becomes the sequence of [5]_, Theorem 2.2.
    It is the interval as of now, not the intersection of those so far, and never inconsistent.

    Its ends are then moved for skewed rewards. A stream that has seen few of the values in a long tail has too small a
    mean, and too small a variance. The end on the side of the tail lies as far off as the upper limit of a Poisson
    count of such values does [6]_: with :math:`q` the half-width over the standard error and :math:`\gamma` the
    skewness beyond its own standard error, :math:`h + \sqrt{h^2 + 1}` half-widths from the mean, :math:`h = q \gamma /
    (2 \sqrt n)`. While fewer than 24 values, effectively, carry the tail, :math:`h` is larger in proportion, up to 3
    times. The other end lies nearer by the first Edgeworth term, two thirds of :math:`h` [7]_. The width grows by 2 to
    8 % at 200 rewards of the gamma, exponential and Bernoulli(0.1) laws below, and by 1 to 3 % at 1,000. It is 3 to 6
    times as large where 200 rewards hold one to four events, and 1.1 times from about 24 events on
    (``bench/heavy_tails.py``). No interval can allow for what has never been seen: of normal rewards to which one in
    200 adds 50, a third of the streams miss, as their first 200 rewards hold no such value, and no warning is given.

    Share of 2,000 streams of 10,000 rewards whose mean it misses at any time from `first_look` on, at delta 0.05,
    beside a z-test at level 0.05 that looks 30 times at the same rewards (``bench/benchmarks/sequences.py`` prints the
    table). Results warn of the rewards in the last two rows while they hold few events.

    ====================  =======  =======  =======  =======  ======
    rewards               20       50       100      200      z-test
    ====================  =======  =======  =======  =======  ======
    normal                0.035    0.033    0.034    0.030    0.28
    uniform               0.035    0.032    0.030    0.029    0.26
    Student's t, 5 df     0.042    0.037    0.036    0.035    0.28
    gamma 4 (timings)     0.040    0.035    0.036    0.037    0.30
    exponential           0.052    0.038    0.035    0.034    0.28
    Bernoulli(0.1)        0.014    0.024    0.025    0.026    0.29
    lognormal(0, 1)       0.086    0.054    0.041    0.035    0.30
    Bernoulli(0.02)       0.006    0.011    0.015    0.018    0.33
    Bernoulli(0.005)      0.003    0.003    0.004    0.005    0.43
    ====================  =======  =======  =======  =======  ======

    O(1) time per reward and O(1) memory. In `update_many`, ``"universal"`` takes 50 to 100 ns per reward over the
    first 1,000, more than half of which are looks, 17 to 28 ns over 10,000 and 11 to 15 ns over 100,000, by the law.
    The interval that a look keeps is wider than the exact one by 1 in 10,000 or so, which saves up to half of the time.
    ``"betting"`` takes 150 ns, with at most 1024 candidate means, between which new ones are placed as others are
    refuted; the others about 10 ns in the end.
    The same rewards in any portions give the same bits.

    References
    ----------
    .. [1] Howard, Ramdas, McAuliffe, Sekhon, "Time-uniform, nonparametric, nonasymptotic confidence sequences", Annals
       of Statistics 49, 2021.
    .. [2] Waudby-Smith, Ramdas, "Estimating means of bounded random variables by betting", JRSS B 86, 2024.
    .. [3] Orabona, Jun, "Tight concentrations and confidence sequences from the regret of universal portfolio", IEEE
       Transactions on Information Theory 70, 2024.
    .. [4] Ryu, Wornell, "Gambling-based confidence sequences for bounded random vectors", ICML 2024; Waudby-Smith,
       Ramdas, "Confidence sequences for sampling without replacement", NeurIPS 2020.
    .. [5] Waudby-Smith, Arbour, Sinha, Kennedy, Ramdas, "Time-uniform central limit theory and asymptotic confidence
       sequences", Annals of Statistics 52, 2024; Wang, Ramdas, "Anytime-valid t-tests and confidence sequences for
       Gaussian means with unknown variance", Sequential Analysis 44, 2025.
    .. [6] Wilson, "Probable inference, the law of succession, and statistical inference", Journal of the American
       Statistical Association 22, 1927.
    .. [7] Hall, "The Bootstrap and Edgeworth Expansion", Springer, 1992, section 2.6.

    Examples
    --------
    >>> import numpy as np
    >>> import fastrace as fr
    >>> cs = fr.ConfidenceSequence(support=(0, 1), delta=0.05)
    >>> cs.update_many(np.random.default_rng(1).beta(10, 30, size=2000))
    2000
    >>> low, high = cs.interval
    >>> bool(low < 0.25 < high), round(high - low, 3)
    (True, 0.009)

    Seconds, of which no largest is known:

    >>> cs = fr.ConfidenceSequence(support=None)
    >>> cs.update_many(np.random.default_rng(1).gamma(4, size=2000))
    2000
    >>> cs.bound, bool(cs.interval[0] < 4 < cs.interval[1]), cs.result().warnings
    ('asymptotic', True, ())

    Dear labels beside cheap scores of all rows: a `Proxy` knows which row a label is of, and the sequence takes what
    the proxy leaves of it. The interval is one of the mean of the labels.

    >>> rng = np.random.default_rng(1)
    >>> scores = rng.random(10_000)
    >>> labels = (rng.random(10_000) < scores).astype(float)
    >>> proxy = fr.Proxy(scores)
    >>> cs = fr.ConfidenceSequence(support=proxy.support, n_rows=proxy.n_rows)
    >>> for row in rng.permutation(10_000)[:2000]:
    ...     done = cs.update(proxy.adjust(labels[[row]], rows=[row])[0])
    >>> bool(cs.interval[0] < labels.mean() < cs.interval[1])
    True
    """

    _holds_once = False

    def __init__(
        self,
        bound: str = "universal",
        delta: float = 0.05,
        support: tuple[float, float] | None = (0.0, 1.0),
        *,
        n_rows: int | None = None,
        cap: float = 0.5,
        tight_at: float | None = None,
        max_samples: int | None = None,
        outside: str = "raise",
        first_look: int | None = None,
    ) -> None:
        name = _checks.choice(in_full(bound), "bound", (*BOUNDS, "asymptotic"))
        if support is None:
            own = _rules.without_support(name, next(iter(BOUNDS)), first_look, outside, n_rows=n_rows)
            shared = _rules.shared(delta, None, max_samples, outside, bounded=False)
            tight = _rules.best_at(own["first_look"]) if tight_at is None else tight_at
            tight = _checks.positive(tight, "tight_at", "it is a number of rewards")
            first_look = own["first_look"]
            arguments = {**own, "support": None, "delta": shared["delta"], "n_rows": None, "cap": share(cap, None),
                         "tight_at": tight, "max_samples": shared["max_samples"], "outside": shared["outside"]}
            self._open(arguments, "asymptotic", first_look=first_look, best_at=tight, **shared)
            return
        _rules.with_support(first_look, name)
        kernel = BOUNDS[name]
        shared = _rules.shared(delta, support, max_samples, outside)
        n_rows = population(n_rows)
        if n_rows is not None and kernel not in OF_POPULATIONS:
            fitting = ", ".join(f'"{bound}"' for bound in OF_POPULATIONS)
            raise ValueError(
                f"n_rows is {n_rows} and bound is {name!r}; only {fitting} are valid for a population sampled without "
                f"replacement, or leave n_rows out for independent draws"
            )
        enough_delta(shared["delta"], kernel)
        tight_at = 25.0 if tight_at is None else tight_at
        tight_at = _checks.positive(tight_at, "tight_at", "it is a number of rewards times their variance")
        arguments = {
            "bound": name,
            "support": shared["support"],
            "delta": shared["delta"],
            "n_rows": n_rows,
            "cap": share(cap, kernel),
            "tight_at": tight_at,
            "max_samples": shared["max_samples"],
            "outside": shared["outside"],
        }
        self._open(arguments, kernel, n_rows=n_rows, cap=arguments["cap"], best_at=tight_at, **shared)

    @property
    def bound(self) -> str:
        """How the interval is made."""
        return str(self.arguments["bound"])

    @property
    def half_width(self) -> float:
        """Half of the width of `interval`; nan if that is empty."""
        low, high = self.interval
        return 0.5 * (high - low) if low <= high else math.nan

    def merge(self, other: ConfidenceSequence) -> None:
        """Add what another sequence saw of the same mean, as if those rewards had come after the ones seen here.

        With ``"plug-in"`` and ``"betting"`` the bets of each part stay those for a stream of its own length; the other
        bounds lose nothing by being merged. The interval goes on from this sequence's: earlier intervals of `other` are
        not used, as the promise of one of the two would then be spent twice. So the order matters a little, and merging
        several sequences into one keeps the promise once for all of them.

        Parameters
        ----------
        other : ConfidenceSequence
            With the same bound, support, delta and parameters; unchanged. How many rewards it has must not have been
            decided by looking at the rewards of this one, nor the other way round.

        Raises
        ------
        ValueError
            If the parameters differ, or one of them samples without replacement: where one part draws from decides
            what is left for the other.
        """
        if not isinstance(other, ConfidenceSequence):
            raise TypeError(f"other is a {type(other).__name__}; only another ConfidenceSequence can be merged")
        if other is self:
            raise ValueError("a sequence cannot be merged with itself: its rewards would count twice")
        for name in ("bound", "support", "delta", "n_rows", "cap", "tight_at", "first_look"):
            mine, theirs = self.arguments.get(name), other.arguments.get(name)
            if mine != theirs:
                raise ValueError(f"{name} is {mine!r} on one side and {theirs!r} on the other; both must be the same")
        if self.arguments["n_rows"] is not None:
            raise ValueError(
                "sequences over a population sampled without replacement cannot be merged: each of them takes the rows "
                "it has not seen for unknown"
            )
        self._absorb(other)
