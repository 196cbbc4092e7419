"""Confidence sequences: an interval for the mean of a bounded stream that holds at all times at once."""

from __future__ import annotations

import math
from typing import Any

from fastrace._base import _checks
from fastrace.streams import _rules
from fastrace.streams._sequences import Sequence

# Name of a bound -> its kernel. The first is the default.
BOUNDS = {
    "empirical-bernstein-mixture": "mixture",
    "empirical-bernstein-plug-in": "plug-in",
    "empirical-bernstein-stitched": "stitched",
    "hoeffding": "hoeffding",
    "betting": "betting",
}
SHORT = {"plug-in": "empirical-bernstein-plug-in", "stitched": "empirical-bernstein-stitched"}
CAPPED = ("plug-in", "betting")         # kernels whose bets have a cap, and that know populations


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
        return 0.9 if kernel in ("target", "target-betting") else 0.5
    number = _checks.real(cap, "cap")
    if not 0.0 < number <= 0.99:
        raise ValueError(f"cap is {cap!r}; a share of the wealth in (0, 0.99] is needed: a bet of all can lose all")
    return number


def enough_delta(delta: float, kernel: str) -> None:
    """Refuse a delta whose wealth float64 cannot hold."""
    if kernel in ("betting", "target-betting") and delta < 1e-200:
        raise ValueError(f"delta is {delta!r}; betting on a grid needs at least 1e-200, as its wealth is a float64")


class ConfidenceSequence(_rules.StoppingRule, Sequence):
    r"""Interval for the mean of a bounded stream that is right at all times at once.

    One may look at it after every reward, stop for any reason, and quote it: there is no price for looking.

    Parameters
    ----------
    bound : str, default "empirical-bernstein-mixture"
        How the interval is made; all but the fourth adapt to the variance of the rewards.

        - ``"empirical-bernstein-mixture"``: gamma-exponential mixture [1]_, narrow at all times. The boundary, found by
          Newton's method, is looked at where the number of rewards has grown by 0.2 %, and when `interval` is read.
        - ``"empirical-bernstein-plug-in"`` (or ``"plug-in"``): predictable plug-in [2]_.
        - ``"empirical-bernstein-stitched"`` (or ``"stitched"``): polynomial stitching [1]_, the bound that shrinks
          fastest in the end, by a law of the iterated logarithm.
        - ``"hoeffding"``: mixture of normals [1]_; takes the variance at its largest.
        - ``"betting"``: hedged capital on a grid of candidate means [2]_; the narrowest in the first hundreds of
          rewards, wider than the default from some thousands on, and the slowest. See the table in the notes.
    delta : float, default 0.05
        Probability that the interval ever misses the mean, in (0, 1).
    support : tuple of float, default (0, 1)
        Interval (low, high) that holds every reward, in reward units.
    n_rows : int, optional
        Size of the population if rewards are drawn from it without replacement; for ``"plug-in"`` and ``"betting"``.
        Once all rows have been seen, the interval is their mean, whatever earlier intervals said.
    cap : float, default 0.5
        For ``"plug-in"`` and ``"betting"``: the largest share of the wealth on one bet, in (0, 0.99] (c in [2]_).
    tight_at : float, default 25.0
        For ``"empirical-bernstein-mixture"`` and ``"hoeffding"``: the number of rewards times their variance (in units
        of the width of `support`, squared) at which the interval is narrowest compared with what is possible.
    max_samples : int, optional
        Rewards after which it takes no more.
    outside : {"raise", "clip"}, default "raise"
        What to do with a reward outside `support`: refuse it, or move it to the nearer end and count it. The interval
        is then one of the mean of clipped rewards.

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

    Width after t rewards over that of the default kind, whose width is in brackets (medians of 20 runs at delta 0.05):

    ==============  =========  ==========  ==========  ===========  ===========  ============
    rewards         kind       t = 10      t = 100     t = 1000     t = 10,000   t = 100,000
    ==============  =========  ==========  ==========  ===========  ===========  ============
    beta(100, 300)  plug-in    1.06 (.93)  1.08 (.14)  1.05 (.014)  .93 (.0020)  1.09 (.0005)
    beta(100, 300)  stitched   1.07        1.81        1.72         1.90         1.58
    beta(100, 300)  hoeffding  .92         2.21        7.09         18.0         26.4
    beta(100, 300)  betting    .52         .53         .59          .80          1.09
    uniform         plug-in    1.00 (1.0)  .88 (.24)   1.07 (.060)  1.28 (.019)  1.48 (.0064)
    uniform         stitched   1.00        1.85        1.51         1.29         1.15
    uniform         hoeffding  1.00        1.26        1.65         1.82         1.88
    uniform         betting    .55         .71         1.06         1.33         1.58
    Bernoulli(0.1)  plug-in    1.00 (.89)  .94 (.21)   1.12 (.062)  1.28 (.020)  1.46 (.0068)
    Bernoulli(0.1)  stitched   1.13        1.51        1.53         1.26         1.13
    Bernoulli(0.1)  hoeffding  .80         1.17        1.62         1.70         1.75
    Bernoulli(0.1)  betting    .64         .78         1.12         1.32         1.54
    ==============  =========  ==========  ==========  ===========  ===========  ============

    O(1) time per reward, about 10 ns in `update_many`, and O(1) memory; betting keeps at most 1024 candidate means,
    between which new ones are placed as others are refuted, at about 0.3 us per reward. The same rewards in any
    portions give the same bits.

    References
    ----------
    .. [1] Howard, Ramdas, McAuliffe, Sekhon, "Time-uniform, nonparametric, nonasymptotic confidence sequences", Annals
       of Statistics 49, 2021.
    .. [2] Waudby-Smith, Ramdas, "Estimating means of bounded random variables by betting", JRSS B 86, 2024.

    Examples
    --------
    >>> import numpy as np
    >>> import fastrace as fr
    >>> cs = fr.ConfidenceSequence(bound="plug-in", support=(0, 1), delta=0.05)
    >>> cs.update_many(np.random.default_rng(1).beta(10, 30, size=2000))
    2000
    >>> low, high = cs.interval
    >>> bool(low < 0.25 < high), round(high - low, 3)
    (True, 0.011)
    """

    _holds_once = False

    def __init__(
        self,
        bound: str = "empirical-bernstein-mixture",
        delta: float = 0.05,
        support: tuple[float, float] = (0.0, 1.0),
        *,
        n_rows: int | None = None,
        cap: float = 0.5,
        tight_at: float = 25.0,
        max_samples: int | None = None,
        outside: str = "raise",
    ) -> None:
        name = _checks.choice(in_full(bound), "bound", tuple(BOUNDS))
        kernel = BOUNDS[name]
        shared = _rules.shared(delta, support, max_samples, outside)
        n_rows = population(n_rows)
        if n_rows is not None and kernel not in CAPPED:
            raise ValueError(
                f'n_rows is {n_rows} and bound is {name!r}; only "plug-in" and "betting" are valid for a population '
                f"sampled without replacement, or leave n_rows out for independent draws"
            )
        enough_delta(shared["delta"], kernel)
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
        for name in ("bound", "support", "delta", "n_rows", "cap", "tight_at"):
            mine, theirs = self.arguments[name], other.arguments[name]
            if mine != theirs:
                raise ValueError(f"{name} is {mine!r} on one side and {theirs!r} on the other; both must be the same")
        if self.arguments["n_rows"] is not None:
            raise ValueError(
                "sequences over a population sampled without replacement cannot be merged: each of them takes the rows "
                "it has not seen for unknown"
            )
        self._absorb(other)
