"""The race on a stream by bets on differences of rewards of the same round."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from numpy.typing import ArrayLike

from fastrace._base import _checks
from fastrace.streams import _rules
from fastrace.streams.stream_race import StreamRace

RULES = ("auto", "differences", "brackets")
MOST_DUELS = 1 << 18


class BettingRace(StreamRace):
    r"""Find the arm with the largest mean by bets on differences of rewards of the same round; needs no horizon.

    Every round takes one reward of each arm still in the race: of the same prompt, seed, day or game. An arm leaves as
    soon as bets on its differences to another one have won enough. What the rewards of a round have in common does not
    count, so that the race needs few rounds where arms agree on most of them. Where arms have nothing in common
    and many are equally far behind, whole rounds cost more than single pulls, and `LUCB` is the better choice: with one
    good arm among 10 and 50 independent ones the race took 1.2 and 2.0 times its pulls.

    Parameters
    ----------
    {n_arms}
    horizon : int, optional
        Largest number of rounds. The promise does not depend on it.
    {delta}
    support : tuple of float or of arrays of shape (n_arms,), or None
        Interval (low, high) that holds every reward, in reward units. Needed: None says plainly that you know of none,
        as for revenue or seconds. The race is then asymptotic, as `ConfidenceSequence` is: see the notes.
    epsilon : float, default 0.0
        If above 0, also stop as soon as the arms of the answer are certainly within `epsilon` of the best, in reward
        units.
    n_best : int, default 1
        Number of arms to find. With more than one, an arm is chosen when it has beaten all but ``n_best - 1`` others,
        and leaves when `n_best` others have beaten it.
    {names}
    rule : {"auto", "differences", "brackets"}, default "auto"
        By what to tell arms apart. ``"brackets"``: by the brackets of all single means, which do not see what rewards
        of a round have in common. ``"auto"``: differences, but brackets where ``2 n_best n_arms`` is above 2^18, as
        memory grows with that.
    first_look : int, default 200
        With ``support=None``: rounds before which no arm leaves; 4800 if its rewards have all been equal.
    {cost}
    missing : {"raise", "drop", "worst"}, default "raise"
        What a missing reward does: nan, or told by hand None. ``"raise"`` refuses it. ``"worst"`` counts it as the low
        end of its support: rigorous where failures count as failures. ``"drop"`` drops its round for all arms: the
        answer is about the means over the rounds that no arm misses, which are other means where an arm fails to answer
        what it is bad at. To know these rounds, the race asks for the rewards of all arms until it is over, and `tell`
        wants them all; rounds that are dropped count as `pulls` and cost. An arm is named in a warning after 100
        silent rounds at the start, and in an error after at least 1,000 silent rounds that are far more than the waits
        before them, or 5,000 at the start: `tell` then leaves the race as it was, `run` keeps the rounds that were
        used. Rows of a table in random order are dropped by `FiniteRace`.

    {raises}

    Notes
    -----
    A gambler bets on the differences :math:`x_b - x_c` of rewards of the same round, each time a share of his wealth W
    that earlier rounds alone decide. If :math:`\mu_b \le \mu_c`, W is a nonnegative supermartingale that starts at 1,
    however the rewards of a round depend on each other; so it ever exceeds :math:`m (n - m) / \delta`, for n arms
    of which m are wanted, with probability at most :math:`\delta / m (n - m)`. Then b has beaten c. Let A be the m best
    arms and B the others; with probability at least ``1 - delta`` no arm of B ever beats one of A. An arm leaves when
    it has been beaten by as many arms still in the race as are still wanted: one of A cannot be, since fewer than that
    are left of A beside it. An arm is chosen when it has beaten as many arms still in the race as may still leave: one
    of B cannot, since fewer than that are left of B beside it. With an epsilon, a second gambler bets on
    :math:`x_b - x_c + \epsilon`, and his wealth against an arm of A that is better by at least `epsilon` is such a
    supermartingale; the race stops when he has beaten all others in the name of every arm of the answer. Rewards need
    a conditional mean that stays; independence of rounds is not needed.

    A gambler splits his wealth among bettors with standardised gaps, from the spread of the differences so far [2]_. In
    a table read in random order he bets on what is left of it. An arm bets against all others from the first round on;
    with more than 64 arms only 4096 / `n_arms` of them, 16 or twice `n_best`, if that is more, do so at a time, those
    with the largest means, and the k-th time with the share 1 / 2^k of one unit; with more than 4096 arms fewer.

    The result has a bracket of every mean, by predictable bets of [1]_ at level ``delta / n_arms``, and an interval of
    every difference to the leader, by bets on the same rounds at level ``delta / n_arms (n_arms - 1)`` an end; each of
    the two statements holds for all arms at all times at once, with probability ``1 - delta``. ``error_bound`` is the
    smallest delta at which the answer would stand: the probability that it ever falls to x while the answer is wrong is
    at most x; without a support, `delta` where it would be smaller. An empty bracket proves that an assumption failed:
    the race then ends with ``stopped_by="inconsistent"``.

    With ``support=None``, the evidence of a duel is that of a mixture of t-statistics of its differences, and brackets
    and intervals are those of `ConfidenceSequence` without a support. The promise is then nearly right, from
    `first_look` rounds on, as far as the mean of so many differences is normally distributed: results have
    ``kind="asymptotic"``. Of a table, the intervals are those of independent rounds, which are a little wider.
    Long tails are guarded against as in `LUCB` without a support: evidence is less where differences have a tail, and
    does not count while fewer than 24 rewards (effectively) of either arm carry a tail that could turn it, as far as
    the two do not have it in common; arms, or differences, that have been the same in all rounds wait for 4800 rounds
    at least. Of an arm of events of probability .005 or .01 and size 1 / p, and a normal one of mean 1 and spread .01,
    a race at delta 0.05 lost one in 35 and 20 % of runs without the guard, and in none of 200 with it
    (``bench/heavy_tails.py``); normal, uniform and Student's rewards (5 degrees) take 0 to 1.5 % more rounds.

    A duel, an arm that bets against another, takes about 0.35 kB of memory and 50 ns a round: 0.6 us a reward with 12
    arms, some 3 us with 64. Rewards that cost no more than that are better raced by `BernsteinRace`, or in a table by
    `race`.

    References
    ----------
    .. [1] Waudby-Smith, Ramdas, "Estimating means of bounded random variables by betting", JRSS-B 2024, Theorem 2.
    .. [2] Waudby-Smith, Ramdas, "Confidence sequences for sampling without replacement", NeurIPS 2020.
    .. [3] Fan, Grama, Liu, "Exponential inequalities for martingales with applications", Electron. J. Probab. 2015.

    Examples
    --------
    >>> import numpy as np
    >>> import fastrace as fr
    >>> rng = np.random.default_rng(0)
    >>> means = np.array([0.3, 0.5, 0.4])
    >>> race = fr.BettingRace(3, support=(0, 1))
    >>> result = race.run(lambda arms, rounds: rng.random((len(rounds), len(arms))) < means[arms])
    >>> result.best, result.verdict
    (1, ('worse', 'better', 'worse'))

    Seconds, of which no largest is known; the smaller mean is the better one:

    >>> race = fr.BettingRace(2, support=None)
    >>> result = race.run(lambda arms, rounds: -rng.gamma(4.0, np.array([1.0, 0.8])[arms], (len(rounds), len(arms))))
    >>> result.best, result.kind, result.first_look
    (1, 'asymptotic', 200)
    """

    _bound = "betting"
    _failures = 2.0
    _spends_by_round = False

    def __init__(
        self, n_arms: int, horizon: int | None = None, delta: float = 0.05,
        support: _checks.Support | None = _checks.MISSING, *, epsilon: float = 0.0, n_best: int = 1,
        names: Sequence[str] | None = None, rule: str = "auto", first_look: int | None = None,
        cost: ArrayLike | None = None, missing: str = "raise",
    ) -> None:
        self._missing = _checks.missing(missing, support is not None)
        self._rule = _checks.choice(rule, "rule", RULES)
        if support is _checks.MISSING:
            raise ValueError("support is missing; give support=(low, high), an interval that holds every reward, or "
                             "say support=None if you know of none: the race is then asymptotic")
        if support is None:
            self._bound, self._failures, self._first_look = "asymptotic", 1.0, _rules.start(first_look)
        else:
            _rules.with_support(first_look, "")
        super().__init__(n_arms, horizon, delta, support, epsilon=epsilon, n_best=n_best, names=names, cost=cost)

    def _goal(self, n_arms: int, n_best: int) -> float | None:
        if self._rule == "brackets" or (self._rule == "auto" and 2 * n_best * n_arms > MOST_DUELS):
            return None
        return math.log(n_best * max(n_arms - n_best, 1)) - math.log(self._delta)

    @classmethod
    def _saved_options(cls, more: list[Any]) -> dict[str, Any]:
        """Races that were saved before there were rules go on by brackets."""
        return {"rule": more[1] if len(more) > 1 else "brackets", "first_look": more[2] if len(more) > 2 else None,
                "missing": more[4] if len(more) > 4 else "raise"}
