"""The Gamma Bernoulli approximation scheme: the mean of rare successes, with an error whose law is known exactly."""

from __future__ import annotations

from fastrace._base import _checks
from fastrace.streams import _rules
from fastrace.streams._gbas import Gbas


def successes(epsilon: float, delta: float) -> int:
    """Successes to wait for: the fewest k at which (k - 1) / Gamma(k) is within epsilon of 1, wrong at most delta."""
    from scipy.special import gammainc, gammaincc  # here, since it takes 0.3 s to import

    def missed(k: int) -> float:
        return float(gammainc(k, (k - 1) / (1.0 + epsilon)) + gammaincc(k, (k - 1) / (1.0 - epsilon)))

    low, high = 1, 2
    while missed(high) > delta:
        low, high = high, 2 * high
        if high > 1 << 52:
            raise ValueError(f"epsilon is {epsilon!r}; it would take more than 2**52 successes to be as accurate")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if missed(middle) > delta else (low, middle)
    return high


class GBAS(_rules.StoppingRule, Gbas):
    r"""Estimate the probability of a success to a relative accuracy, from a stream of 0 and 1, then stop.

    Waits for a fixed number of successes, so that the law of the relative error does not depend on the mean and
    `delta` is met exactly. The best rule for rare successes: with accuracy and `delta` 0.1 and a mean of 0.01 it takes
    as many samples as one needs who knows the mean. For rewards between 0 and 1 it works too, but does not profit from
    a small variance: see `TargetEBStop`.

    Parameters
    ----------
    {default_epsilon} {delta}
    support : tuple of float, default (0, 1)
        Interval (low, high) that holds every reward, in reward units; low is at least 0.
    max_samples : int, optional
        Rewards after which to give up; `stopped` is then False, and nothing is claimed but the support.
    {outside}
    rng : None, int, SeedSequence or Generator, optional
        Source of the one gamma variate that the estimate takes, and of one uniform for every reward strictly inside
        (0, high), which succeeds with probability reward / high.

    {raises}
        Also if `support` reaches below 0.

    Notes
    -----
    For independent rewards with mean :math:`\mu > 0`, it stops with probability 1 and
    :math:`|\hat\mu - \mu| \le \epsilon \mu` with probability at least ``1 - delta``, after :math:`k \cdot high / \mu`
    rewards on average, where k is `wanted`. If the :math:`k`-th success comes with reward :math:`T`, the estimate is
    :math:`(k - 1) / \Gamma_T` with a gamma variate of shape :math:`T`: a sum of as many exponential variates with mean
    1, :math:`k` of which were successes, so that :math:`\mu \Gamma_T` has the gamma law of shape :math:`k` whatever
    :math:`\mu` [1]_. It is unbiased but for being at most `high`. `interval` is the support until it stops, and then
    what the accuracy says. O(1) time per reward and O(1) memory.

    References
    ----------
    .. [1] Huber, "A Bernoulli mean estimate with known relative error distribution", Random Structures & Algorithms
       50, 2017.

    Examples
    --------
    >>> import numpy as np
    >>> import fastrace as fr
    >>> rule = fr.GBAS(epsilon=0.1, delta=0.05, rng=1)
    >>> rule.update_many(np.random.default_rng(1).random(100_000) < 0.01)
    38593
    >>> rule.wanted, round(rule.estimate, 5)
    (385, 0.00993)
    """

    _holds_once = False

    def __init__(
        self,
        epsilon: float = 0.1,
        delta: float = 0.05,
        support: tuple[float, float] = (0.0, 1.0),
        *,
        max_samples: int | None = None,
        outside: str = "raise",
        rng: _checks.RngLike = None,
    ) -> None:
        shared = _rules.shared(delta, support, max_samples, outside)
        criterion = _rules.relative(epsilon, None)
        if shared["support"][0] < 0.0:
            raise ValueError(
                f"support is {support!r}; rewards of at least 0 are needed, as each of them is the probability of a "
                f"success: use TargetEBStop for signed rewards"
            )
        wanted = successes(criterion["epsilon"], shared["delta"])
        arguments = {
            "epsilon": criterion["epsilon"],
            "delta": shared["delta"],
            "support": shared["support"],
            "max_samples": shared["max_samples"],
            "outside": shared["outside"],
        }
        self._open(arguments, wanted, _checks.generator(rng), **shared, **criterion)
