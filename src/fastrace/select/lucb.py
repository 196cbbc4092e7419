"""LUCB: the rule with a proof, and the default; it stops on pairs of arms, or on intervals that hold at all times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

import fastrace.select._lucb as _lucb
import fastrace.select._paired as _paired
import fastrace.select._pairs as _pairs
import fastrace.select._unbounded as _unbounded
from fastrace._base import _checks, _frames
from fastrace._base._words import NOTHING_HEARD, SILENT_PULLS, arms_in_words, counted, missed
from fastrace.select._lucb import BOUNDS
from fastrace.select.selection import Selection, scales

RULES = ("auto", "pairs", "intervals")
SPLITS = ("auto", "equal", "sides")
SUPPORT: _checks.Support = float(0), float(1)     # the default, told by identity from what somebody gives
MOST_ARMS, MOST_DUELS = 1024, 1 << 18       # that are compared by common rounds


def shares(bound: str, split: str, n_arms: int, n_best: int, delta: float) -> tuple[float, float]:
    """Errors of every lower and of every upper bound, as log(1 / alpha)."""
    if split == "auto" and bound == "kl-easy":
        return (-math.log(delta),) * 2
    if split == "equal" or (split == "auto" and 4 * n_best > n_arms):
        return (math.log(n_arms / delta),) * 2
    return math.log(2.0 * max(n_arms - n_best, 1) / delta), math.log(2.0 * n_best / delta)


class LUCB(Selection):
    r"""Find the m best of n arms with a proved probability of error: pull the two arms that are hardest to tell apart.

    The m largest means are the choice. Of the chosen, the arm with the smallest lower bound, and of the others, the one
    with the largest upper bound are pulled, until no chosen arm may be worse than another by epsilon or more. Arms are
    compared by their own rewards: where all arms can be asked about the same rows, as in a table, `FiniteRace` compares
    paired differences and needs far fewer evaluations; so do `BettingRace` and `paired` here on streams.

    Parameters
    ----------
    {arms}
    epsilon : float, default 0.0
        Accuracy in reward units: an arm whose mean is within `epsilon` of the m-th largest is good enough. With 0 the
        very best are wanted; then it need not stop if the m-th and the next mean are equal, so set `max_pulls`.
    {delta}
    support : tuple of float or of arrays of shape (n_arms,), or None, default (0, 1)
        Interval (low, high) that holds every reward, of each arm. None if you know of none, nor of what `sub_gaussian`
        or `symmetric` say: the answer is then asymptotic, and says so; see the notes.
    rule : {"auto", "pairs", "intervals"}, default "auto"
        When to stop. ``"pairs"``: when every pair of a chosen arm and another has enough evidence, see the notes; there
        is nothing to choose, and it adapts to the variance, to rewards of 0 and 1, and to means near an end of the
        support. ``"intervals"``: when the intervals of all single means are apart, by `bound` and `split`; it took 1.2
        to 3.5 times as many pulls in 30 comparisons (``bench/pairs.py``). ``"auto"``: pairs, but intervals if `bound`
        or `split` is given.
    bound : str, optional
        With intervals: the bound of each mean that holds at all times at once:

        - ``"eb-mix"``, the default of intervals: mean of two gamma-exponential mixtures over the squared errors of
          predictions [2]_, one for arms that are hard to tell apart and one for those that are not. It adapts to the
          variance.
        - ``"hoeffding-mix"``: normal mixture; does not see the variance.
        - ``"lucb1"``: that of [1]_.
        - ``"kl"``: KL-LUCB [3]_, the proved rate; see `KLLUCB`.
        - ``"kl-easy"``: the rate of their experiments. **It has no proof, and need not stop**; see `KLLUCB`.
    split : {"auto", "equal", "sides"}, optional
        With intervals: how delta is shared out. ``"equal"`` gives every arm delta / n; ``"sides"`` [4]_ half of it to
        the lower bounds of the n - m others and half to the upper bounds of the m best, better where m is small.
        ``"auto"``, the default: sides up to m = n / 4; and delta for each arm with ``"kl-easy"``, whose formula shares
        nothing.
    batch : int or "auto", default "auto"
        Pulls of either arm per decision; by pairs, half of the pulls of both. ``"auto"`` is one per cent of what the
        one with fewer pulls has, at least 1 and at most 4096. The promise is the same with any batch, as it holds at
        all times; a fixed batch of k may pull either arm up to k - 1 times too often before it stops, and ``"auto"``
        1 % too often.
    sub_gaussian : float or array of shape (n_arms,), optional
        By pairs, in place of a support: scale :math:`\sigma` of the rewards, in reward units, of all arms or of each,
        with :math:`E e^{l (x - \mu)} \le e^{l^2 \sigma^2 / 2}` for every l: at least the standard deviation of a normal
        law, or half of the width of a bounded one. The promise is only as good as this number.
    symmetric : bool, default False
        By pairs, in place of a support: rewards are distributed symmetrically about their means, such as normal ones,
        Student's, or differences of exchangeable scores. Their scales need not be known, nor be equal, nor exist: they
        are learned. Five pulls of each arm begin it. The result warns of arms whose rewards look skewed.
    first_look : int, default 200
        With ``support=None``: pulls of each arm before it is compared with others; one whose rewards have all been
        equal waits for 4800, see the notes.
    paired : bool, default False
        By pairs, with a support: rewards come in rounds. A request of several arms wants equally many of each, and the
        t-th rewards of all of them must be of one draw: the same prompt, row, day or random seed. Requests do not
        share draws. Arms are then compared by their differences, which take few rounds where arms agree on most
        draws; where they do not, the rule asks for one arm at a time, and took 0.94 to 1.10 times the pulls that it
        takes without `paired` on independent arms of 0/1 rewards (``bench/common_rounds.py``). With 30 arms that share
        .8 to .95 of their variance it took 1.4 to 1.5 times the pulls of `FiniteRace`, with 12 arms no more. `run`
        reads a table so: a row is a draw. At most 1024 arms, and fewer if ``2 n_best n_arms`` is above 2^18.
    {names}
    {cost}
    {missing}
        With `paired`, only ``"worst"``. What is assumed of rewards is assumed of those that came.
    {no rng}

    {errors}

    Notes
    -----
    {promise}
    Rewards must be independent, or at least have the same mean given all before.

    *By pairs.* Take rewards in [0, 1], let B be the n - m arms of the smallest means and A the m others, and
    :math:`\theta` the smallest mean of A. A gambler of log odds u > 0 has the wealth
    :math:`M^+_{i,u}(\theta) = \prod (1 - x + x e^u) / (1 - \theta + \theta e^u)` from the rewards x of an arm, against
    "the mean is at most :math:`\theta`": each factor then has a mean of at most 1. He has
    :math:`M^-_{i,u}(\theta)`, with 1 - x and :math:`1 - \theta` in place of x and :math:`\theta`, against "at least".
    :math:`M^\pm_i` are their means over fixed weights of 40 values of u, and

    .. math:: E(\theta) = \Bigl(h_B + \frac{1 - h_B}{n - m} \sum_{b \in B} M^+_b(\theta)\Bigr)
              \Bigl(h_A + \frac{1 - h_A}{m} \sum_{a \in A} M^-_a(\theta + \epsilon)\Bigr),

    h = 1/3, or 0 where there is but one term. An arm b of the answer is not good enough if
    :math:`\mu_b < \mu_{(m)} - \epsilon`. Keep only those in the first sum, and count the rest as nothing, with
    :math:`\theta = \mu_{(m)} - \epsilon`. Every factor of the first sum then has a mean of at most 1 given the past,
    and so has every factor of the second, since a pull multiplies the wealth of one arm alone, whatever made the rule
    choose it: each product of a term of either sum is a nonnegative supermartingale, and E, their mean, starts at 1 at
    most. It exceeds :math:`1 / \delta` at any time with a probability of at most :math:`\delta` (Ville). The rule stops
    only if, for every chosen b, every other a and *every* :math:`\theta`,

    .. math:: \Bigl(h_B + \frac{1 - h_B}{n - m} M^+_b(\theta)\Bigr)
              \Bigl(h_A + \frac{1 - h_A}{m} M^-_a(\theta + \epsilon)\Bigr) \ge \frac{1}{\delta}.

    If an arm b of the answer is not good enough, some a of A was left out, and the left side at
    :math:`\mu_{(m)} - \epsilon` is at most E there. So the answer has an arm that is not good enough with probability
    at most :math:`\delta`. One event covers all pairs, so that the share h costs nothing and saves up to
    :math:`\log(n - m)` where the best arm has been pulled more often than the others.

    The log odds are 16 / 2^k, down to 3e-11, and their weights those of half-normal laws of u at scales 15 / 2.5^s, so
    that no scale need be chosen. Odds suit small rates as they suit means near .5. The shares of small scales fall as
    k^-1.5, so that every gap above 1e-10 of the support's width is decided in the end. Two arms of .0115 and .010 took
    231,636 pulls on average at delta .05, .051 and .050 took 2.8 million, and .501 and .500 took 20 million: 0.70, 0.54
    and 0.56 of the pulls by intervals, and 2.0, 2.4 and 3.3 times T* log(1 / delta), which no rule can beat as delta
    goes to 0 (``bench/pairs.py``).

    In place of :math:`\sum \log(1 - x + x e^u)` the rule takes what 0, 1 and one value between would have given that
    had the same first three moments. This is never more, as the fourth derivative of the logarithm is negative, and the
    same if all rewards are 0 or 1, so that the promise stands and a reward costs O(1). After k rewards, gamblers of
    :math:`e^u - 1 \le 1 / k` count as if all of these had been 0, which is never more either, so that a look costs
    O(log k). The logarithm of the left side is convex in :math:`\theta`; the rule finds its least value over all pairs
    at once, by halving ranges of :math:`\theta` whose tangents do not yet exceed :math:`\log(1 / \delta)`.

    *Without a support.* With `sub_gaussian` or `symmetric` a gambler of tilt l has the wealth
    :math:`\prod \exp(l (x - \theta) - l^2 q / 2)` instead, where q is :math:`\sigma^2`, or
    :math:`(x - \theta)^2`. Given the past this factor has a mean of at most 1 if :math:`\mu \le \theta`, by definition,
    or for symmetric rewards by the pairing of x with its mirror image [6]_; where :math:`\theta` is far below the
    rewards, a larger :math:`\theta` is refuted in its place. 48 tilts 4 / 1.6^k, or 1.5 / 1.6^k, in units of the scale,
    or of that of the first five rewards of the arm, share the first unit of wealth, and :math:`h = 0.05` where there
    is but one term. All but the 18 largest count as nothing until they are above 0.3 standard errors of the mean. Not
    to know the scale costs a share of about :math:`(\mu - \theta)^2 / \sigma^2` of the evidence, and the five rewards.
    This evidence is not convex in :math:`\theta`, but the chords of its parts bound it. Mean pulls on normal rewards at
    delta 0.05 are 1.5 to 3.1 times the bound T* log(1 / delta) that no rule can beat as delta goes to 0
    (``bench/benchmarks/lucb.py``).

    With ``support=None`` alone, the bets are those for symmetric rewards, on all rewards of the arm and in units of
    their standard deviation. Such evidence is a function of a t-statistic, and its path from `first_look` pulls of
    each arm on is nearly that of normal rewards, for any law with a variance [7]_. So the promise is nearly right
    where the mean of `first_look` rewards is nearly normal: the result has ``kind="asymptotic"``. Long tails are
    guarded against as by the `tail_guard` of `FiniteRace`. Towards a tail the evidence is that of a larger
    variance: of rare events as they would vary if the mean were at the cut, what that adds counted twice. No
    verdict counts while fewer than 24 rewards (effectively) carry a tail that could turn it, unless twice as many
    unseen ones could not; the arm in question is pulled instead. An arm whose rewards have all been equal may hide
    rare events, so verdicts on it wait for 4800 of its pulls, and for 48 v / g of them where that is more. Here g is
    the distance of the two means, and v the size of the rewards that carry the other arm's tail. Events of probability
    p that are the whole difference are missed with probability :math:`e^{-4800 p}`: those of .001 in 0.8 % of runs.
    Nothing guards against rarer events, nor against unseen ones beside rewards that vary; a `support` protects from
    both.

    Without this guard, equal arms were told apart too often at delta 0.1: in 88, 55 and 27 % of runs for events of
    probability .001, .005 and .01. An arm of such events was told from a constant of the same mean in 85, 37 and 23 %.
    With the guard, both happen in at most 1 % (200 to 300 runs each, ``bench/heavy_tails.py``). Two equal arms with
    normal, uniform, lognormal or Student's t rewards (5 degrees of freedom) are then told apart in 2 to 7 % of runs.
    The guard has a price. Normal, uniform and Student's t arms that are .05 or .2 apart take up to 2 % more
    pulls. Arms of rare events take 2 to 10 times as many, where 5 to 33 % of the answers were wrong without it.

    Which arms are pulled needs no proof: the pair on top by score bounds of the means at the
    level :math:`\log(1 / \delta) + \log(t) / 2` of round t, or, where that pair is apart already, one that is not. Each
    of the two gets the share of the pulls that its mean has of the variance of their difference [5]_.

    Where the `max_pulls` of a call (`run`, `select_best`, `race_async`) are fewer than 512 per arm, or 16 without a
    support, the rule plays for that budget. Both arms of a pair are pulled equally often until both have had 16 pulls.
    With a support, arms are ordered by the mean of Wilson's score bound and the bound of `KLLUCB` at the level above:
    the score bounds used otherwise may leave the support, so that an arm with one bad reward goes before one with
    none. Fewer answers are wrong then, most of all where means are high: with .99 and nineteen arms of .97, 23.8
    instead of 54.2 % after 128 pulls an arm, and 24.6 % by `KLLUCB` (500 runs, +- 2). In 91 such comparisons with
    `KLLUCB` it was wrong 8 points less often to 2 more (+- 1 to 2; ``bench/fixed_budgets.py few``); `KLLUCB` may be
    better, by up to 2 points, where means lie close to 1 and far apart. The promise and `error_bound` hold as they do
    for any pulls. `ask` and `tell` by hand know of no budget.

    *In rounds* (`paired`). Let :math:`M^+_b` and :math:`M^-_a` be those above, of the pulls of requests of one arm
    only, and :math:`D_{ba}` the wealth from bets on :math:`x_b - x_a + \epsilon` in the rounds of both, as in
    `BettingRace`. Each keeps a twentieth of its first unit. Multiply E out, put :math:`D_{ba}` beside each product
    :math:`M^+_b M^-_a`, and count as nothing what has an arm b that is good enough. A request is of one arm or of
    rounds, so that it moves one factor of a product at most. This factor has a mean of at most 1 given the past,
    whatever made the rule ask. So E is still a mean of nonnegative supermartingales that starts at 1 at most, and
    exceeds :math:`1 / \delta` at any time with a probability of at most :math:`\delta` (Ville). The rule stops when

    .. math:: h_B h_A + h_A \frac{1 - h_B}{n - m} M^+_b + h_B \frac{1 - h_A}{m} M^-_a
              + \frac{(1 - h_B) (1 - h_A)}{m (n - m)} M^+_b M^-_a D_{ba},

    which is at most E, has been :math:`1 / \delta` at every :math:`\theta` at once, now or before, for all pairs of a
    chosen arm and another. Without common rounds it is the evidence of pairs above but for the twentieths, which cost
    0.1 of log(1 / delta). Wealth of common rounds alone counts at its peak. With more than 16 arms, seats limit the
    bets as in `BettingRace`.
    Arms that lack evidence are all asked about in one round: a challenger needs its rounds with the leader, and the
    leader then pays for the longest of them only. After 4 rounds, or 32 differences to one arm, guesses of the pulls
    that rounds would still take, by the spread of the differences, and single arms, by their own, say which is asked
    for next. Rounds keep at least 4 % of the pulls, so that what arms have in common is seen in time.

    *By intervals.* If an arm h of the answer is worse, one of the true best is not in it, and then either its upper
    bound or the lower bound of h has failed: one event per arm.

    *At the end of a table* (see `run`) some arms are told apart: a chosen arm if its pairs with all other arms suffice,
    another arm if its pairs with all chosen arms do. Unless the event above happens, each pair (b, a) that suffices
    means that b is good enough or that a is not in A. So every chosen arm that is told apart is good enough. If an arm
    of A that was not chosen is told apart, all chosen arms are good enough. If there is none, each arm of A is read in
    full, or is chosen and told apart. In both cases the arms that are read include at least as many good ones as there
    are places left, and their exact means find these.

    ``result().error_bound`` is the smallest delta at which the rule would have stopped by then, with the same mixtures.
    It is a promise that holds at any time: the probability that it ever falls to x or below while the answer is wrong
    is at most x. So a run with ``epsilon=0`` and `max_pulls` returns the best answer that the budget buys, with a
    number that says how sure to be. ``result().trace`` holds it against pulls; by intervals, the gap of the two bounds.
    ``lower`` and ``upper`` hold for all arms at once, at all times, each side with probability ``1 - delta``, except
    where `split` shares delta otherwise. By pairs they may overlap at the stop.

    ``differences`` has an interval for each mean minus that of the leader. With probability ``1 - delta`` all of them
    hold, at all times and whoever leads, so at a stop forced by `max_pulls` too. They follow from intervals of the
    means, by the same mixtures, with the share ``delta / 2 n_arms`` at either end: if all :math:`2 n` ends hold, so do
    the differences of any two. In rounds, bets on the differences of common rounds with ``delta / 2``, as in
    `BettingRace`, are intersected with such intervals for the other half. The rule stops on sharper evidence, so an
    interval may reach past 0 although its arm is known to be worse.

    Two heaps by mean and two by bound are kept, so that a pull costs O(log n). Bounds that grow with the number of
    rounds (by pairs, ``"lucb1"``, ``"kl"``, ``"kl-easy"``) are all renewed at every 2 % more rounds, for a later round.

    References
    ----------
    .. [1] Kalyanakrishnan, Tewari, Auer, Stone, "PAC Subset Selection in Stochastic Multi-armed Bandits", ICML 2012.
    .. [2] Howard, Ramdas, McAuliffe, Sekhon, "Time-uniform, Nonparametric, Nonasymptotic Confidence Sequences", Annals
       of Statistics 49(2), 2021, Proposition 9.
    .. [3] Kaufmann, Kalyanakrishnan, "Information Complexity in Bandit Subset Selection", COLT 2013.
    .. [4] Simchowitz, Jamieson, Recht, "The Simulator: Understanding Adaptive Sampling in the Moderate-Confidence
       Regime", COLT 2017.
    .. [5] You, Qin, Wang, Yang, "Information-Directed Selection for Top-Two Algorithms", COLT 2023.
    .. [6] de la Pena, "A General Class of Exponential Inequalities for Martingales and Ratios", Annals of Probability
       27(1), 1999.
    .. [7] Waudby-Smith, Arbour, Sinha, Kennedy, Ramdas, "Time-uniform central limit theory and asymptotic confidence
       sequences", Annals of Statistics 52, 2024.

    Examples
    --------
    >>> import fastrace as fr
    >>> from fastrace.pulls import BernoulliPulls
    >>> rule = fr.LUCB(5, 2, epsilon=0.05, delta=0.05)
    >>> rule.run(BernoulliPulls([0.2, 0.8, 0.3, 0.6, 0.1], rng=1)).best
    array([1, 3])

    Normal rewards of unknown scales:

    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> def pull(arms, counts):
    ...     return rng.normal(np.repeat(np.array([1.0, 0.0, 2.0])[arms], counts), 1.5)
    >>> fr.LUCB(3, 1, symmetric=True).run(pull).best
    2

    Scores of three models, each request on common prompts, which are easy for all of them or for none:

    >>> prompts = np.random.default_rng(2)
    >>> def ask(arms, counts):
    ...     easy = prompts.random(counts[0]) < 0.5
    ...     return [0.7 * easy + prompts.uniform(0.0, [0.20, 0.24, 0.30][arm], counts[0]) for arm in arms]
    >>> result = fr.LUCB(3, 1, paired=True).run(ask)
    >>> result.best, result.n_read < 2_000
    (2, True)

    Rewards of which nothing is known, such as seconds:

    >>> def seconds(arms, counts):
    ...     return -rng.gamma(4.0, np.repeat(np.array([1.0, 0.8, 1.1])[arms], counts))
    >>> result = fr.LUCB(3, 1, support=None).run(seconds)
    >>> result.best, result.kind, result.first_look
    (1, 'asymptotic', 200)
    """

    _compiled: ClassVar[type[_lucb.LucbSelector]] = _lucb.LucbSelector
    _core: _lucb.LucbSelector
    _bound: str
    _endless = True
    _pairs: bool = False
    _free: bool = False         # rewards have no support
    _first_look: int | None = None      # of the asymptotic kind

    def __init__(
        self,
        n_arms: int,
        n_best: int,
        epsilon: float = 0.0,
        delta: float = 0.05,
        support: _checks.Support | None = SUPPORT,
        *,
        rule: str = "auto",
        bound: str | None = None,
        split: str | None = None,
        batch: int | str = "auto",
        sub_gaussian: float | ArrayLike | None = None,
        symmetric: bool = False,
        first_look: int | None = None,
        paired: bool = False,
        names: Sequence[str] | None = None,
        cost: ArrayLike | None = None,
        missing: str = "raise",
        rng: _checks.RngLike = None,
    ) -> None:
        self._free = _without_support(sub_gaussian, symmetric, rule, bound, split, support)
        if self._free and sub_gaussian is None and not symmetric:
            self._first_look = _checks.first_look(first_look)
        elif first_look is not None:
            raise ValueError(f"first_look is {_checks.shown(first_look)}; only the asymptotic kind, with support=None "
                             f"alone, has a first look: leave it out")
        self._check(n_arms, n_best, epsilon, delta, support if not self._free else _unbounded.EVERYWHERE, names)
        self._names = _frames.arms_called(self._names, self._n_arms, cost=cost, sub_gaussian=sub_gaussian)
        self._pairs = _by_pairs(rule, bound, split)
        self._paired = _in_rounds(paired, self._pairs and not self._free, self._n_arms, self._n_best)
        given = {**self._shared(), "rule": rule, "bound": bound, "split": split, "batch": batch}
        if cost is not None:
            self._cost = given["cost"] = _checks.arm_costs(
                _frames.of_arms(cost, self._names, "cost"), self._n_arms)
        options: dict[str, Any] = {"epsilon": self._epsilon, "batch": _batch(batch)}
        self._missing = _checks.missing(missing, not self._free)
        if self._missing == "drop" and self._paired:
            raise ValueError("missing is 'drop' and paired is True; rounds are of the arms that are asked for, so a "
                             "round that is dropped for one of them would leave means that depend on which: take "
                             "missing='worst', or BettingRace, which asks for all arms to the end")
        if self._missing != "raise":
            given["missing"] = options["missing"] = self._missing
        if self._free:
            scale = None if sub_gaussian is None else _checks.arm_values(
                _frames.of_arms(sub_gaussian, self._names, "sub_gaussian"), "sub_gaussian", self._n_arms)
            if scale is not None and not ((scale > 0.0) & (scale < math.inf)).all():
                raise ValueError(
                    f"sub_gaussian is {_checks.shown(sub_gaussian)}; finite scales above 0, in reward units, are needed"
                )
            self._bound = "pairs, symmetric" if scale is None else "pairs, sub-Gaussian"
            given |= {"support": None, "sub_gaussian": scale, "symmetric": symmetric}
            if self._first_look is not None:
                self._bound = "pairs, asymptotic"
                given |= {"first_look": self._first_look}
                options |= {"first_look": self._first_look}
            options |= {"log_inv_delta": -math.log(self._delta), "sub_gaussian": scale}
        elif self._pairs:
            self._bound = "pairs, in rounds" if self._paired else "pairs"
            given |= {"paired": True} if self._paired else {}
            options["log_inv_delta"] = -math.log(self._delta)
        else:
            self._bound = _checks.choice("eb-mix" if bound is None else bound, "bound", BOUNDS)
            share = _checks.choice("auto" if split is None else split, "split", SPLITS)
            options |= {
                "bound": self._bound,
                "log_inv_alpha": shares(self._bound, share, self._n_arms, self._n_best, self._delta),
                "scales": scales(float(self._widths.max()), self._n_arms, self._epsilon, self._delta),
            }
        self._begin(LUCB, given, rng, **options)

    def _selector(self) -> type[_lucb.LucbSelector]:
        if self._free:
            return _unbounded.UnboundedSelector
        if self._paired:
            return _paired.PairedSelector
        return _pairs.PairSelector if self._pairs else self._compiled

    def _identity(self) -> dict[str, Any] | None:
        if self._paid():
            return None
        given = {name: value for name, value in self._given.items() if name not in ("rule", "bound", "cost")}
        return {"rule": f"{type(self).__name__} {self._bound}", **given, "names": self._names}

    def _bounds(self) -> dict[str, Any]:
        core = self._core
        proved = core.stopped_by in ("bound", "epsilon")
        error_bound = core.error_bound(math.log(self._delta))
        if proved:      # evidence may be of events unseen, or of a weaker answer; else above delta by rounding alone
            unsure = self._first_look is not None or core.stopped_by == "bound" and self._epsilon > 0.0
            error_bound = self._delta if unsure else min(self._delta, error_bound)
        known = core.answer()
        chosen = np.zeros(self._n_arms, dtype=bool)
        chosen[known["best"]] = True
        ends = float(known["upper"][~chosen].max(initial=-math.inf)), float(known["lower"][chosen].min())
        pulled = core.total >= self._n_arms
        return {
            "rule": f"LUCB {self._bound}",
            "error_bound": error_bound,
            "cutoff": 0.5 * (ends[0] + ends[1]) if pulled and self._n_best < self._n_arms else math.nan,
            "trace": core.history(),
            "trace_of": "error bound" if self._pairs else "shortfall",
            "shortfall": max(core.shortfall(), 0.0),
            "warnings": self._doubts(),
            "kind": "exact" if self._first_look is None else "asymptotic",
            "first_look": self._first_look,
        }

    def _differences(self, leader: int) -> NDArray[np.float64]:
        return np.asarray(self._core.differences(leader, -math.log(self._delta)))

    def _doubts(self) -> tuple[str, ...]:
        lost = known["n_missing"] if (known := self._core.answer()).get("n_missing") else 0
        silent = self._core.silent_arms()
        said = [missed(self._missing, lost)] if lost else []
        if unheard := self._core.n_unheard():
            said.append(NOTHING_HEARD.format(unheard))
        if silent:
            said.append(SILENT_PULLS.format(arms_in_words(silent, self._names), int(known["pulls"][silent].sum())))
        return (*said, *self._law_doubts())

    def _law_doubts(self) -> tuple[str, ...]:
        """What may be wrong with what was assumed of the rewards."""
        if self._first_look is not None:
            tailed = self._core.tailed()
            named = ", ".join(self._names[i] if self._names else str(i) for i, _ in tailed[:10])
            worst = max((abs(skewness) for _, skewness in tailed), default=0.0)
            return (f"few rewards of {counted(len(tailed), 'arm')} ({named}) carry a long tail (skewness up to "
                    f"{worst:.3g}), or all are equal: no verdict is given while more of it could turn it, and "
                    f"intervals may miss more often than delta says; give a support",) if tailed else ()
        if self._free:
            skewed = self._core.skewed()
            named = ", ".join(self._names[i] if self._names else str(i) for i in skewed[:10].tolist())
            said = f"rewards of {counted(len(skewed), 'arm')} look skewed ({named}), which symmetric=True rules out"
            return (f"{said}: do not trust the promise; give support or sub_gaussian",) if skewed.size else ()
        if self._bound == "kl-easy":
            return ("the rate of kl-easy has no proof: delta and the error bound are targets, not promises",)
        return ()


def _without_support(
    sub_gaussian: Any, symmetric: bool, rule: str, bound: str | None, split: str | None, support: Any
) -> bool:
    """Whether rewards have no support, as what was given says."""
    free = [f"sub_gaussian is {_checks.shown(sub_gaussian)}"] if sub_gaussian is not None else []
    free += ["symmetric is True"] if _checks.flag(symmetric, "symmetric") else []
    if len(free) == 2:
        raise ValueError(f"{free[0]} and {free[1]}; with a known scale rewards need not be symmetric: give one of them")
    if free and (rule == "intervals" or bound is not None or split is not None):
        raise ValueError(f"{free[0]}, which needs rule='pairs'; intervals need a support")
    if free and support is not None and support is not SUPPORT:
        raise ValueError(f"{free[0]} and support is {_checks.shown(support)}; give one of them: drop "
                         f"{free[0].split()[0]} if every reward is inside this support, which says more, else support")
    if not free and support is None and (rule == "intervals" or bound is not None or split is not None):
        raise ValueError("support is None, which needs rule='pairs'; intervals need a support: give it")
    return bool(free) or support is None


def _by_pairs(rule: str, bound: str | None, split: str | None) -> bool:
    """Whether to stop on pairs, as what was named says."""
    name = _checks.choice(rule, "rule", RULES)
    for what, value in (("bound", bound), ("split", split)):
        if name == "pairs" and value is not None:
            raise ValueError(f"{what} is {value!r} and rule is 'pairs'; pairs are compared by one wealth and share one "
                             f"delta: leave {what} out, or take rule='intervals'")
    return name == "pairs" or (name == "auto" and bound is None and split is None)


def _in_rounds(paired: bool, can: bool, n_arms: int, n_best: int) -> bool:
    """Whether arms are compared by common rounds."""
    if not _checks.flag(paired, "paired"):
        return False
    if not can:
        raise ValueError(
            "paired is True, which needs rule='pairs' and a support: differences lie within it; leave out bound, "
            "split, sub_gaussian and symmetric"
        )
    if n_arms > MOST_ARMS or 2 * n_best * n_arms > MOST_DUELS:
        raise ValueError(
            f"paired is True for {n_best} of {n_arms} arms; at most {MOST_ARMS} arms, and 2 n_best n_arms up to 2**18, "
            f"can be compared by common rounds: memory grows with that"
        )
    return True


def _batch(batch: int | str) -> int:
    """Pulls of either arm per decision; 0 for a share of those made."""
    if isinstance(batch, str):
        _checks.choice(batch, "batch", ("auto",))
        return 0
    return _checks.integer(batch, "batch", 1, "a decision asks for pulls")
