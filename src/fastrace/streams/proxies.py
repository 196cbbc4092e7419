"""Rewards that are dear beside a proxy that is cheap: what the proxy explains need not be paid for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import fastrace._draws._row_order as _row_order
from fastrace._base import _callers, _checks, _frames
from fastrace._base._words import counted

Float = NDArray[np.float64]
AT_FIRST, GROWTH = 8, 10            # rewards before the first coefficient; later ones come after 1/10 more
SHRUNK = 8.0                        # rewards with a coefficient of 0 that are counted beside those seen
MARGIN = 0.02                       # of the width of the support: most that a new coefficient may move rewards by
PARTS = 8                           # of a coefficient, of which the best for an accuracy is taken


class Proxy(_callers.OwnInit):
    r"""Subtract from dear rewards what a cheap proxy says of them, so that fewer are needed.

    Say, the verdicts of people are dear, and a language model has judged all items. Ask people about some items, drawn
    at random, and pass their verdicts through `adjust`: the adjusted rewards have the same mean, but vary less, by the
    share that the proxy explains. With a correlation r it takes about :math:`1 - r^2` times as many; the proxy need not
    be unbiased. `estimate_mean(..., proxy=scores)` does all of it in one call, where a useless proxy costs next to
    nothing. Or give the adjusted rewards to any rule that knows populations: it has one support for all of them, twice
    as wide, which costs rewards where few are enough or where they vary little (see the notes).

    Parameters
    ----------
    scores : array_like of shape (n_rows,), optional
        The proxy of every row of a population whose mean reward is wanted. Larger ones should mean larger rewards.
    mean : float, optional
        In place of `scores`: the mean of the proxy, known exactly, where rewards are independent draws. The mean of a
        sample is not exact: give its rows as `scores`, and the answer is about these rows.
    support : tuple of float, default (0, 1)
        Interval (low, high) that holds every reward, in reward units.
    proxy_support : tuple of float, optional
        With `mean`: interval that holds every score; by default that of the rewards. For `scores` it is their range.

    Attributes
    ----------
    support : tuple of float
        Interval that holds every adjusted reward: what to give to the rule.
    n_rows : int or None
        Size of the population: what to give to the rule.
    coefficient : float
        What the next score is multiplied by.
    n_rewards : int
        Rewards adjusted so far.

    Raises
    ------
    ValueError
        If an argument is out of range, or not one of `scores` and `mean` is given.

    Notes
    -----
    Reward t becomes :math:`y_t - c_t (p_t - \bar p)`, where :math:`\bar p` is the mean of the proxy and :math:`c_t` the
    regression coefficient of the rewards *before* t, between 0 and the ratio of the widths of both supports. Given the
    past, :math:`c_t` is a number, so that an independent draw keeps its mean :math:`\mu`.

    Rows drawn from a population of N without replacement, in uniformly random order, have the mean
    :math:`(N \mu - \sum_{s < t} b_s) / (N - t + 1)` given the past b, on which rules that know populations rest. To
    keep it when the coefficient changes,

    .. math:: b_t = y_t - c_t (p_t - \bar p)
              + \frac{\sum_{s < t} (y_s - c_t (p_s - \bar p)) - \sum_{s < t} b_s}{N - t + 1}.

    The sum of :math:`y - c_t (p - \bar p)` over all rows is :math:`N \mu` for any :math:`c_t`, which gives the mean
    claimed. A coefficient that would move rewards by more than 2 % of the width of the support is not taken. After all
    rows the mean of the b is that of the rewards. So every bound that needs only these means given the past keeps its
    promise: those of `ConfidenceSequence`, `AbsoluteStop` and `TargetOddsStop` that take `n_rows`, except
    ``"beta-binomial"``.

    By its default method, `estimate_mean` bets on a mean inside the support of the rewards, and limits each bet by what
    the next adjusted reward may be at worst. While the coefficient is 0, its bets are those without a proxy. A larger
    coefficient leaves less variance, but adjusted rewards then lie further out, so that bets must be smaller: of each
    new coefficient it takes as many eighths as promise the fewest rewards at its accuracy. Any other rule has one
    `support` for all rewards, about twice as wide as theirs, and must adapt to the variance to gain: the defaults do.

    Rewards of ``estimate_mean(accuracy="absolute")`` with a proxy over those without, 20,000 rows; in brackets those of
    ``AbsoluteStop(support=proxy.support)`` (``python bench/benchmarks/proxies.py means``):

    ============  =======  =======  ===========  ===========  ===========  ===========
    rewards       epsilon  without  useless      r = .5       r = .8       r = .95
    ============  =======  =======  ===========  ===========  ===========  ===========
    uniform       .1       52       1.01 (1.22)  .91 (1.11)   .82 (.99)    .76 (.92)
    uniform       .05      202      1.01 (1.07)  .78 (.86)    .56 (.64)    .47 (.51)
    uniform       .02      1200     1.00 (1.01)  .76 (.77)    .47 (.49)    .24 (.28)
    uniform       .01      3954     1.00 (1.00)  .80 (.81)    .51 (.51)    .23 (.25)
    0 or 1        .1       149      1.01 (1.00)  .81 (.82)    .53 (.55)    .37 (.41)
    0 or 1        .05      594      1.00 (1.00)  .77 (.76)    .43 (.43)    .23 (.25)
    0 or 1        .02      3164     1.00 (1.00)  .78 (.78)    .42 (.42)    .17 (.17)
    0 or 1        .01      8637     1.00 (1.00)  .84 (.84)    .50 (.50)    .19 (.19)
    beta(10, 30)  .1       21       1.00 (2.08)  1.00 (2.08)  1.00 (2.05)  1.00 (2.05)
    beta(10, 30)  .05      46       1.00 (1.96)  1.00 (1.94)  1.01 (1.93)  1.01 (1.92)
    beta(10, 30)  .02      139      1.00 (1.74)  1.00 (1.71)  .98 (1.66)   .97 (1.62)
    beta(10, 30)  .01      364      1.00 (1.46)  .92 (1.40)   .85 (1.30)   .81 (1.24)
    ============  =======  =======  ===========  ===========  ===========  ===========

    So where the standard deviation of rewards is below a tenth of their support, and few of them are enough, a good
    proxy saves little, and with one support for all rewards it costs more than it saves: narrow the support, or do
    without. Races know the support of each difference too.

    O(n_rows) to begin, and O(1) per reward.

    References
    ----------
    .. [1] Shekhar, Xu, Lipton, Liang, Ramdas, "Risk-limiting Financial Audits via Weighted Sampling without
       Replacement", UAI 2023.
    .. [2] Angelopoulos, Bates, Fannjiang, Jordan, Zrnic, "Prediction-powered inference", Science 382, 2023.

    Examples
    --------
    >>> import numpy as np
    >>> import fastrace as fr
    >>> rng = np.random.default_rng(1)
    >>> scores = rng.random(20_000)                                         # by a judge, for all items
    >>> verdicts = np.clip(scores + rng.normal(0.05, 0.1, 20_000), 0, 1)    # which people would have given
    >>> proxy = fr.Proxy(scores)
    >>> cs = fr.ConfidenceSequence(support=proxy.support, n_rows=proxy.n_rows)
    >>> rows = rng.permutation(20_000)[:500]
    >>> cs.update_many(proxy.adjust(verdicts[rows], rows=rows))
    500
    >>> plain = fr.ConfidenceSequence(n_rows=20_000)
    >>> plain.update_many(verdicts[rows])
    500
    >>> round(cs.half_width / plain.half_width, 2)
    0.31
    """

    def __init__(
        self,
        scores: ArrayLike | None = None,
        *,
        mean: float | None = None,
        support: tuple[float, float] = (0.0, 1.0),
        proxy_support: tuple[float, float] | None = None,
    ) -> None:
        low, high = self._support = _checks.interval(support)
        self._scores: Float | None = None
        if (scores is None) == (mean is None):
            raise ValueError(f"{'neither scores nor mean is' if scores is None else 'scores and mean are both'} given; "
                             f"give the scores of all rows, or the exact mean of the proxy")
        if scores is None:
            least, most = self._range = self._support if proxy_support is None else _checks.interval(
                proxy_support, "proxy_support")
            self._mean = _checks.real(0.0 if mean is None else mean, "mean")
            if not least <= self._mean <= most:
                raise ValueError(f"mean is {mean!r}, outside proxy_support={self._range}; a mean lies inside")
            self.n_rows = None
        else:
            if proxy_support is not None:
                raise ValueError("proxy_support is given with scores, whose range is known; leave it out")
            self._scores = _vector(scores, "scores")
            if not self._scores.size or not np.isfinite(self._scores).all():
                raise ValueError("scores is empty or has entries that are nan or infinite; every row needs a finite "
                                 "score: leave rows without one out of the population")
            least, most = self._range = float(self._scores.min()), float(self._scores.max())
            self._mean = float(self._scores.mean())
            self.n_rows = self._scores.size
        self._seen = np.zeros(self.n_rows or 0, dtype=bool)
        self._most = (high - low) / (most - least) if most > least else 0.0
        self._margin = MARGIN * (high - low) if self.n_rows else 0.0
        self.support = (low - self._most * (most - self._mean) - self._margin,
                        high + self._most * (self._mean - least) + self._margin)
        self.coefficient = 0.0
        self.n_rewards = 0
        self._next = AT_FIRST
        # Of q = score - mean, q q, rewards y, q y, adjusted rewards, y y. Rewards count from the low end of their
        # support, or else rounding of their sums, over the few rows that are left, would show.
        self._sums = [0.0] * 6
        self._told: tuple[float, float] | None = None       # the range that a rule expects of adjusted rewards

    def adjust(self, rewards: ArrayLike, *, rows: ArrayLike | None = None, scores: ArrayLike | None = None) -> Float:
        """Return the rewards less what the proxy says of them, in order.

        Parameters
        ----------
        rewards : array_like of shape (k,)
            Rewards, in the order in which they were drawn.
        rows : array_like of int, shape (k,)
            Their rows, where all scores are known; each row once. They must be drawn uniformly from those left.
        scores : array_like of shape (k,)
            Their scores, where only the mean of the proxy is known.

        Returns
        -------
        ndarray of float64, shape (k,)
            Adjusted rewards, inside `support`.

        Raises
        ------
        ValueError
            If a reward or score is nan or outside its support, or a row is repeated or unknown; nothing is changed
            then.
        """
        _frames.require_same_rows(rewards=rewards, rows=rows, scores=scores)
        return self._adjusted(*self._checked(rewards, rows, scores))

    def _adjusted(self, y: Float, q: Float, chosen: NDArray[np.intp] | None) -> Float:
        """The same of what `_checked` returned."""
        found = np.empty(y.size)
        base = self._support[0]
        before = list(self._sums), self.coefficient, self.n_rewards, self._next
        try:
            for k, (reward, score) in enumerate(zip(y.tolist(), q.tolist(), strict=True)):
                if self.n_rewards >= self._next:
                    self._learn()
                low, high = self._told or self.support          # beyond which there is rounding alone
                above = reward - base
                moved = base + (above - self.coefficient * score + self._shift(self.coefficient))
                moved = min(max(moved, low), high)
                parts = score, score * score, above, score * above, moved - base, above * above
                for place, part in enumerate(parts):
                    self._sums[place] += part
                self.n_rewards += 1
                found[k] = moved
            if chosen is not None:
                self._seen[chosen] = True
        except BaseException:           # Ctrl-C
            self._sums, self.coefficient, self.n_rewards, self._next = before
            raise
        return found

    def _shift(self, coefficient: float) -> float:
        """What keeps the mean of a row given those read, where earlier ones had other coefficients."""
        if self.n_rows is None:
            return 0.0
        return (self._sums[2] - coefficient * self._sums[0] - self._sums[4]) / (self.n_rows - self.n_rewards)

    def _learn(self, rule: Any = None) -> None:
        """Take the coefficient of the rewards so far, or the part of it that is best for a rule."""
        self._next = self.n_rewards + max(1, self.n_rewards // GROWTH)
        first, square, total, both, _moved, _of_rewards = self._sums
        n = float(self.n_rewards)
        varies = square - first * first / n
        if not varies > 1e-12 * square:
            return
        found = (both - first * total / n) / varies * n / (n + SHRUNK)
        found = min(max(found, 0.0), self._most)
        if rule is not None:
            found = self._best_part(rule, found)
        if abs(self._shift(found)) <= self._margin:
            self.coefficient = found

    def _begin_piece(self, rule: Any) -> int:
        """Learn if it is time, tell the rule the range of the next adjusted rewards, and return how many have it."""
        if self.n_rewards >= self._next:
            self._learn(rule)
        self._told = self._reach(self.coefficient, self._shift(self.coefficient))
        rule._reach(*self._told)
        return self._next - self.n_rewards

    def _reach(self, coefficient: float, shift: float) -> tuple[float, float]:
        """The range of rewards that are adjusted by this coefficient."""
        (low, high), (least, most) = self._support, self._range
        return low - coefficient * (most - self._mean) + shift, high - coefficient * (least - self._mean) + shift

    def _spread(self, coefficient: float) -> float:
        """Sum of squared distances from their mean of the rewards so far, had this been their coefficient."""
        first, square, total, both, _moved, of_rewards = self._sums
        n = self.n_rewards
        of_scores, of_both = square - first * first / n, both - first * total / n
        found = of_rewards - total * total / n - coefficient * (2.0 * of_both - coefficient * of_scores)
        return max(found, 0.0)

    def _best_part(self, rule: Any, coefficient: float) -> float:
        """The part of a coefficient with which the bets of a rule reach its accuracy after the fewest rewards.

        A larger part leaves less variance. But rewards then lie further out, and a bet that could lose more is smaller.
        """
        (low, high), n, rows = self._support, self.n_rewards, float(self.n_rows or 0)
        span, cap = high - low, rule.arguments["cap"]
        mean = (self._sums[2] / span + 0.5) / (n + 1.0)
        wanted = rule.epsilon * (1.0 if rule.criterion == "absolute" else abs(low + span * mean)) / span
        wanted = max(wanted, 1e-9) * rows / (rows - n)

        def needed(part: int) -> float:
            c = coefficient * part / PARTS
            variance = (self._spread(c) / (span * span) + 0.125) / (n + 0.5)
            least, most = self._reach(c, 0.0)
            return sum(_rewards_needed(wanted, variance, max(end - wanted, 0.5 * end) + beyond / span, cap)
                       for end, beyond in ((mean, low - least), (1.0 - mean, most - high)))

        return coefficient * min(range(PARTS + 1), key=needed) / PARTS

    def _checked(
        self, rewards: ArrayLike, rows: ArrayLike | None, scores: ArrayLike | None
    ) -> tuple[Float, Float, NDArray[np.intp] | None]:
        """Rewards, scores less their mean, and rows."""
        y = _vector(rewards, "rewards")
        _inside(y, self._support, "reward")
        if self._scores is None:
            if rows is not None or scores is None:
                raise ValueError("rows is given or scores is missing; with a known mean, give the score of each reward")
            p = _vector(scores, "scores")
            if p.shape != y.shape:
                raise ValueError(f"scores has {p.size} entries and rewards {y.size}; one score per reward is needed")
            _inside(p, self._range, "score")
            return y, p - self._mean, None
        if scores is not None or rows is None:
            raise ValueError("scores is given or rows is missing; the scores of all rows are known: say which rows")
        chosen = _checks.as_array(rows, "rows")
        if chosen.shape != y.shape or (chosen.size and chosen.dtype.kind not in "iu"):
            raise ValueError(f"rows has shape {chosen.shape} and dtype {chosen.dtype}; integers of shape ({y.size},), "
                             f"one per reward, are needed")
        chosen = chosen.astype(np.intp)
        size = self._scores.size
        if chosen.size and not (0 <= chosen.min() and chosen.max() < size):
            raise ValueError(f"rows has numbers from {chosen.min()} to {chosen.max()}; there are rows 0 to {size - 1}")
        unique, times = np.unique(chosen, return_counts=True)
        again = unique[(times > 1) | self._seen[unique]]
        if again.size:
            raise ValueError(f"row {again[0]} comes twice; rows are drawn without replacement, each once")
        return y, self._scores[chosen] - self._mean, chosen

    def __reduce__(self) -> tuple[Any, ...]:
        known: dict[str, Any] = {"support": self._support}
        if self._scores is None:
            known |= {"mean": self._mean, "proxy_support": self._range}
        else:
            known |= {"scores": self._scores}
        state = self._sums, self.coefficient, self.n_rewards, self._next, np.flatnonzero(self._seen)
        own = vars(Proxy(mean=0.5))
        return _rebuild.saved(type(self), known, state, extra={k: v for k, v in vars(self).items() if k not in own})

    def __repr__(self) -> str:
        of = "" if self.n_rows is None else f" of {self.n_rows}"
        seen = counted(self.n_rewards, "reward")
        return f"<{type(self).__name__}: coefficient {self.coefficient:.4g} from {seen}{of}>"


@_checks.rebuilds(1, Proxy, subclasses=True)
def _rebuild(cls: type[Proxy], known: dict[str, Any], state: tuple[Any, ...]) -> Proxy:
    """Rebuild a pickled `Proxy`."""
    sums, coefficient, n_rewards, following, seen = state
    proxy = cls.__new__(cls)
    Proxy.__init__(proxy, **known)
    n_rewards = _checks.integer(n_rewards, "n_rewards", 0, "it is a number of rewards")
    following = _checks.integer(following, "the next look", AT_FIRST, "it is a number of rewards")
    sums = [float(part) for part in sums]
    if len(sums) == 5:                  # as saved before; no rule that asks for the sixth goes with it
        low = proxy._support[0]
        sums = [*sums[:2], sums[2] - n_rewards * low, sums[3] - sums[0] * low, sums[4] - n_rewards * low, 0.0]
    if not (len(sums) == 6 and all(math.isfinite(part) for part in sums) and 0.0 <= coefficient <= proxy._most
            and (proxy.n_rows is None or len(seen) == n_rewards)):
        raise ValueError("its sums or its coefficient cannot be right")
    proxy._sums, proxy.coefficient, proxy.n_rewards, proxy._next = sums, float(coefficient), n_rewards, following
    proxy._seen[seen] = True
    return proxy


def _rewards_needed(wanted: float, variance: float, loss: float, cap: float) -> float:
    """About how many rewards a bettor needs per unit of log wealth, against a candidate that is `wanted` from the mean.

    A reward takes at most `loss` times his bet from him, which may be no more than a share `cap` of his wealth.
    """
    bet = min(wanted / (variance + wanted * wanted), cap / loss)
    won = bet * wanted
    return 1.0 / max(math.log1p(won) - 0.5 * variance * (bet / (1.0 + won)) ** 2, 1e-300)


def feed(
    rule: Any, proxy: Proxy, rewards: Any, batch: int | None, rng: Any, report: Callable[[Any, bool], None]
) -> None:
    """Give a rule the adjusted rewards of rows in random order until it stops, or all rows are read.

    Where a reward does not come or is refused, those before it are used, and the proxy keeps the rows that were to
    follow: going on with them first leaves the order random, whatever became of the reward.
    """
    n_rows = proxy.n_rows or 0
    ahead: NDArray[np.int64] = getattr(proxy, "_ahead", np.empty(0, np.int64))
    unread = ~proxy._seen
    unread[ahead] = False
    left = np.flatnonzero(unread)
    order = _row_order.RowOrder(left.size, rng)
    ask = rewards if callable(rewards) else np.asarray(rewards).__getitem__
    try:
        while not rule.done and proxy.n_rewards < n_rows:
            size = max(1, proxy.n_rewards // 50) if batch is None else batch
            rows = ahead[:size] if ahead.size else left[order.take(size)]
            ahead = np.concatenate([rows, ahead[rows.size :]])
            drawn = ask(rows.copy())
            _checks.unmasked(drawn, "rewards")
            if np.shape(drawn) != rows.shape:
                raise ValueError(f"rewards(rows) returned shape {np.shape(drawn)}; {counted(rows.size, 'reward')}, one "
                                 f"per row, of shape ({rows.size},) is needed")
            drawn = _checks.as_array(drawn, "rewards")
            try:
                checked = proxy._checked(drawn, rows, None)
            except ValueError as error:
                good = getattr(error, "index", 0)
                _used(rule, proxy, *proxy._checked(drawn[:good], rows[:good], None))
                if not rule.done:           # or else it needed no more
                    raise
            else:
                _used(rule, proxy, *checked)
            ahead = ahead[rows.size :]
            report(rule, False)
    finally:
        if narrow(rule, proxy):
            rule._reach(*proxy._support)        # what it is given by hand later is not adjusted
        ahead = ahead[~proxy._seen[ahead]]
        if ahead.size or hasattr(proxy, "_ahead"):
            proxy._ahead = ahead  # type: ignore[attr-defined]


def narrow(rule: Any, proxy: Proxy) -> bool:
    """Whether a rule's support is that of the rewards as they come; it must be told the range of adjusted ones then."""
    return bool(rule._knows_reach()) and tuple(rule.support) == proxy._support


def _used(rule: Any, proxy: Proxy, y: Float, q: Float, chosen: NDArray[np.intp] | None) -> None:
    """Adjust what `Proxy._checked` returned and give it to the rule, both or neither."""
    while y.size and not rule.done:
        count = proxy._begin_piece(rule) if narrow(rule, proxy) else y.size
        start, moved = rule.n_samples, np.empty(0)
        try:
            moved = proxy._adjusted(y[:count], q[:count], None if chosen is None else chosen[:count])
            rule.update_many(moved)
        except BaseException:           # Ctrl-C between the two, or within a large batch
            if not rule.done:
                rule.update_many(moved[rule.n_samples - start :])
            raise
        finally:
            proxy._told = None
        y, q, chosen = y[count:], q[count:], None if chosen is None else chosen[count:]


def _vector(values: ArrayLike, name: str) -> Float:
    array = _checks.numbers_of(values, name)
    if array.dtype.kind not in "fiub" and array.size:
        raise TypeError(f"{name} has dtype {array.dtype}; a vector of real numbers is needed")
    if array.ndim != 1:
        raise ValueError(f"{name} has shape {array.shape}; a vector of shape (k,) is needed")
    return np.array(array, dtype=np.float64)


def _inside(values: Float, support: tuple[float, float], what: str) -> None:
    """Refuse what is nan or outside its support."""
    low, high = support
    bad = np.flatnonzero(~((values >= low) & (values <= high)))
    if bad.size:
        value = float(values[bad[0]])
        said = "is nan; a real number is needed" if math.isnan(value) else (
            f"is {value!r}, outside support=({low!r}, {high!r}): the promise holds only inside it; widen it or scale")
        error = ValueError(f"{what} {bad[0]} {said}. Nothing of this call was used")
        error.index = int(bad[0])  # type: ignore[attr-defined]
        raise error
