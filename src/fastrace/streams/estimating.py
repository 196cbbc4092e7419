"""Means to a given accuracy in one call: from a function, an iterator or an array."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

import fastrace._draws._row_order as _row_order
import fastrace._math._half_widths as _half_widths
from fastrace._base import _callers, _checks, _clock, _frames, _progress
from fastrace._base._answers import keep_answer
from fastrace._base._handed import handed_over
from fastrace._base._words import counted, doubtful_after, endless
from fastrace.results import StopResult
from fastrace.streams import _rules, betting, over_bounds, proxies, sequences, stopping
from fastrace.streams._stopping import Stream
from fastrace.streams.stopping import Support

METHODS: dict[str, Callable[..., Any]] = {
    "target-eb": betting.TargetEBStop,
    "target-bet": betting.TargetBetStop,
    "target-odds": betting.TargetOddsStop,
    "betting": betting.BettingStop,
    "nas": stopping.NAS,
    "geometric-nas": stopping.GeometricNAS,
    "sra": stopping.SRA,
    "aa": stopping.AA,
    "ebstop": stopping.EBStop,
    "ebgstop": stopping.EBGStop,
}
AUTO = "target-odds"        # of either accuracy: the fewest rewards
# Methods of each accuracy, and those that know populations. For an absolute one they are bounds.
CHOICES: dict[str, tuple[str, ...]] = {"relative": tuple(METHODS), "absolute": tuple(over_bounds.ABSOLUTE)}
NAMES = ("auto", *dict.fromkeys((*CHOICES["relative"], *CHOICES["absolute"])))
OF_POPULATIONS = {
    "relative": tuple(name for name, rule in METHODS.items() if hasattr(rule, "n_rows")),
    "absolute": over_bounds.OF_POPULATIONS,
}
Report = Callable[[Any, bool], None]    # of a rule, and whether it is the last one
AT_FIRST, AT_ONCE = 1 << 10, 1 << 16    # rewards of an array between two reports of progress


def estimate_mean(
    rewards: Callable[..., Any] | Iterable[float] | ArrayLike,
    epsilon: float = 0.1,
    delta: float = 0.05,
    support: Support | None = (0.0, 1.0),
    *,
    accuracy: str = "relative",
    method: str | Stream = "auto",
    n_rows: int | None = None,
    order: str = "random",
    max_samples: int | None = None,
    max_seconds: float | None = None,
    proxy: ArrayLike | None = None,
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
    support : tuple of float or None, default (0, 1)
        Interval (low, high) that holds every reward, in reward units. None if it is unknown, for an absolute accuracy:
        the answer is then asymptotic, and says so; see `ConfidenceSequence`, also for the option `first_look`.
    accuracy : {"relative", "absolute"}, default "relative"
        Whether ``|estimate - mean|`` is to be at most ``epsilon * |mean|`` or ``epsilon``.
    method : str or rule, default "auto"
        For a relative accuracy ``"target-odds"`` (``"auto"``), which is `TargetOddsStop`, ``"target-eb"``,
        ``"target-bet"``, ``"betting"``, ``"nas"``, ``"geometric-nas"``, ``"sra"``, ``"aa"``, ``"ebstop"`` or
        ``"ebgstop"``. For an absolute one a bound of `AbsoluteStop`, of which ``"auto"`` is ``"target-odds"``.
        Or a rule made by you: it brings its own accuracy, and keeps what it has seen whatever happens to this call.
    n_rows : int, optional
        Size of the population that the rewards are drawn from without replacement, for methods that know populations:
        the first four for a relative accuracy, and the bounds that `AbsoluteStop` names. An array read in random
        order is the whole population unless this says that it is a random part of a larger one; less than its length
        is refused.
    order : {"random", "given"}, default "random"
        How to read an array. ``"random"``: the rule draws the rows uniformly at random, whatever order the array is in.
        It draws a row at most once, unless its promise is proven for independent rewards alone: see Notes. ``"given"``:
        from its start. Say so only if the rewards are exchangeable as they stand, such as independent draws; the
        estimate is then one of the mean that they share.
    max_samples : int, optional
        Rewards after which it gives up, with what it knows.
    max_seconds : float, optional
        Seconds after which it asks for no more rewards and gives up, with what it knows. A call that is under way is
        waited for.
    proxy : array_like of shape (n_rows,), optional
        A cheap score of every row of a population whose rewards are dear, such as a model's verdict beside a person's.
        `rewards` is then a function that returns the rewards of given rows, ``rewards(rows)``, or an array of as many
        rows. Fewer rewards are needed, by the share that the scores explain; see `Proxy`. For methods that know
        populations. To go on after an error, the `Proxy` that it has, with its rule as `method`; see the notes.
    progress : bool, default False
        Show on standard error how many rewards were used and what is known.
    batch : int, optional
        Rewards asked for at once, at least 1. Those of the last batch that are not needed are lost. With a `proxy` it
        is 2 % of those read by default.
    rng : None, int, SeedSequence or Generator, optional
        Source of randomness of the order.
    **options
        Passed to the rule.

    Returns
    -------
    StopResult
        Estimate, interval, rewards used and how it ended: see `StopResult.stopped_by`. ``"exhausted"`` says that the
        rewards ended first. The note says if every row of an array was read: the estimate is then its mean.

    Raises
    ------
    TypeError
        If a function cannot be called as `batch` says, or a reward is no real number.
    ValueError
        If an argument is out of range, there are no rewards, one that is read is nan or outside `support`, or a
        function does not return `batch` rewards. What a function or iterator raises comes through unchanged.

    Warns
    -----
    RuntimeWarning
        If a million rewards of a stream have not told the mean from 0, where no relative accuracy is ever reached and
        nothing else ends the call; again after ten times as many, and so on.

    Notes
    -----
    For independent rewards of one mean :math:`\mu`, the estimate is as accurate as promised with probability at least
    ``1 - delta`` if it stops; so it does unless the accuracy is relative and :math:`\mu = 0`.

    For an array in random order the promise is about its mean. Rules that know the size of the population or have no
    support draw a row at most once, and so do ``"nas"``, ``"geometric-nas"``, ``"sra"`` and ``"ebstop"``, whose bounds
    hold without replacement. For the others this is not proven: they draw rows independently, so that one may come
    again. If as many rewards as the array has rows do not suffice, all rows are read and the answer is exact. Reading k
    rows costs O(k) time and memory.
    A row at random costs several times one in order, and a page of the file where a memory-mapped array is larger than
    memory.

    Whatever ends the call early, Ctrl-C or an error of a function or iterator, the exception has the rule as its
    attribute ``rule``, with all rewards used by then: ``error.rule.result()`` is what is known, and
    ``estimate_mean(rewards, method=error.rule)`` goes on. Where a reward of a batch is refused, those before it are
    used, and ``error.rewards`` has the others, the refused one first. With a `proxy` the exception has ``error.proxy``
    too; ``estimate_mean(rewards, method=error.rule, proxy=error.proxy)`` goes on, and asks first for the rows whose
    rewards did not come or were refused. Of an array the rule is there, but not the order of its rows.

    Examples
    --------
    >>> import numpy as np
    >>> import fastrace as fr
    >>> rng = np.random.default_rng(1)
    >>> print(fr.estimate_mean(rng.random, epsilon=0.05, delta=0.05, support=(0, 1), batch=100))
    TargetOddsStop: stopped after 793 samples (relative accuracy, epsilon 0.05, delta 0.05)
      estimate  0.49606358
      interval  [0.47264471, 0.5219476]
      samples   793

    A column that is sorted is read at random; no order deceives it.

    >>> result = fr.estimate_mean(np.sort(rng.random(100_000)), epsilon=0.05, rng=1)
    >>> result.n_samples < 1000, abs(result.estimate - 0.5) < 0.025
    (True, True)
    """
    order = _checks.choice(order, "order", ("random", "given"))
    accuracy = _checks.choice(accuracy, "accuracy", tuple(CHOICES))
    generator, end = _checks.generator(rng), _clock.deadline(max_seconds)
    if proxy is not None:
        return _by_proxy(rewards, proxy, epsilon, delta, support, accuracy, method, n_rows, order, max_samples,
                         progress, batch, generator, options, end)
    array = _array(rewards)
    if array is not None:
        if n_rows is not None and _checks.integer(n_rows, "n_rows", 1, "a population has rows") < array.shape[0]:
            raise ValueError(
                f"n_rows is {n_rows} and rewards has {array.shape[0]}; an array is its own population: leave n_rows "
                f"out, give the size of the larger population of which it is a random part, or pass fewer rewards"
            )
        by_name = not isinstance(method, Stream) and _full_name(method, accuracy) in OF_POPULATIONS[accuracy]
        by_name = by_name and support is not None
        if n_rows is None and order == "random" and array.shape[0] and by_name:
            n_rows = array.shape[0]
    if n_rows is not None:
        options = {"n_rows": n_rows, **options}
    try:
        rule: Any = start_rule(method, epsilon, delta, support, accuracy, max_samples, options)
    except TypeError as error:
        said = _callers.without_class(str(error))
        if said != str(error):
            error.args = (f"estimate_mean: {said}",)
        raise
    if batch is not None:
        batch = _checks.integer(batch, "batch", 1, "it is a number of rewards")
    rows = None if array is None or order == "given" else _rows(rule, array, generator)
    fresh = rule.n_samples == 0

    def feed(report: Report) -> bool:
        if array is None:
            return _feed(rule, rewards, batch, _doubting(rule, report, end < math.inf))
        return _feed_array(rule, array, rows, batch, report)

    try:
        ended, late = _timed(rule, feed, progress, end)
    except BaseException as error:
        left = len(getattr(error, "rewards", ()))
        handed_over(error, "rule", rule, _going_on("method=error.rule", batch, left),
                    array is None and rule.n_samples + left > 0)
        raise
    if not rule.n_samples and not rule.done:
        raise ValueError("rewards is empty: a mean needs one reward at least")
    result: StopResult = rule.result()
    if late:
        return _out_of_time(result)
    if not ended or result.stopped_by:
        return result
    population = getattr(rule, "n_rows", None)      # of a larger one there are rows that nobody has read
    if rows is not None and fresh and len(array) and population in (None, len(array)):
        return _exactly(rule, array)
    return dataclasses.replace(result, stopped_by="exhausted", note="the rewards ended before the rule stopped")


def _timed(rule: Any, feed: Callable[[Report], Any], progress: bool, end: float) -> tuple[bool, bool]:
    """Let `feed` give rewards to a rule until the rule is over, the rewards end, or the time `end` has come.

    `feed` gets a function to call after each batch: it shows progress and looks at the clock. Returns what `feed`
    returned, which is whether the rewards ended first, and whether the time did.
    """
    ended = late = False
    with _progress.samples(progress) as report:
        try:
            ended = feed(_clock.until(end, report))
        except _clock.OutOfTime:
            late = not rule.done
        report(rule, True)
    return ended, late


def _out_of_time(result: StopResult) -> StopResult:
    """What is known where the seconds of the call ended before the rule did."""
    said = _rules.SPENT.format("max_seconds")
    return dataclasses.replace(result, stopped_by="max_seconds", warnings=(said, *result.warnings))


def _by_proxy(
    rewards: Any, scores: ArrayLike, epsilon: float, delta: float, support: Support | None, accuracy: str,
    method: str | Stream, n_rows: int | None, order: str, max_samples: int | None, progress: bool,
    batch: int | None, rng: Any, options: dict[str, Any], end: float,
) -> StopResult:
    """The mean of a population from rewards less what a proxy says of them."""
    if isinstance(scores, proxies.Proxy):
        if scores.n_rows is None or not isinstance(method, Stream):
            raise TypeError("proxy is a Proxy, which goes on with the rule that has its rewards: give that as method, "
                            "or give the scores of all rows")
        support = scores._support
    if support is None:
        raise ValueError("support is None and proxy is given; a proxy needs the support of the rewards: give it")
    for name, value, why in (("n_rows", n_rows, "scores are of all rows"),
                             ("order", None if order == "random" else order, "rows are drawn at random")):
        if value is not None:
            raise ValueError(f"{name} is {_checks.shown(value)} and proxy is given: {why}; leave {name} out")
    if isinstance(method, Stream) and not isinstance(scores, proxies.Proxy):
        raise TypeError("method is a rule and proxy is given, which widens the support; name the method, or use Proxy")
    proxy = scores if isinstance(scores, proxies.Proxy) else proxies.Proxy(scores, support=support)
    _frames.require_same_rows(rewards=rewards, proxy=scores)
    array = None if callable(rewards) else _array(rewards)
    if array is None and not callable(rewards):
        raise TypeError(f"rewards is a {type(rewards).__name__} and proxy is given; a function of rows, or an array "
                        f"with one reward per score, is needed")
    if array is not None and array.shape[0] != proxy.n_rows:
        raise ValueError(f"rewards has {array.shape[0]} rows and proxy {proxy.n_rows}; one score per row is needed")
    if isinstance(method, Stream):
        rule: Any = start_rule(method, epsilon, delta, proxy.support, accuracy, max_samples, options)
        fits = proxies.narrow(rule, proxy) or tuple(rule.support) == proxy.support
        if not fits or (rule.n_samples, getattr(rule, "n_rows", None)) != (proxy.n_rewards, proxy.n_rows):
            raise ValueError(f"method is a rule of {counted(rule.n_samples, 'reward')} and proxy one of "
                             f"{counted(proxy.n_rewards, 'reward')}, or of another support or population; the rule "
                             f"that was given the rewards of this proxy, and no others, is needed")
    elif _full_name(method, accuracy) == "beta-binomial":
        raise ValueError("method is 'beta-binomial', which needs rewards of two values; adjusted ones have more")
    else:
        options = {"n_rows": proxy.n_rows, **options}
        rule = start_rule(method, epsilon, delta, support, accuracy, max_samples, options)
        if not proxies.narrow(rule, proxy):
            rule = start_rule(method, epsilon, delta, proxy.support, accuracy, max_samples, options)
    if batch is not None:
        batch = _checks.integer(batch, "batch", 1, "it is a number of rewards")
    source = rewards if array is None else array
    try:
        _, late = _timed(rule, lambda report: proxies.feed(rule, proxy, source, batch, rng, report), progress, end)
    except BaseException as error:
        on = _going_on("method=error.rule, proxy=error.proxy", batch, 0)
        handed_over(error, "rule", rule, on, rule.n_samples > 0, proxy=proxy)
        raise
    result: StopResult = _out_of_time(rule.result()) if late else rule.result()
    low, high = support
    said = f"adjusted by a proxy, coefficient {proxy.coefficient:.3g}"
    return dataclasses.replace(
        result, support=(float(low), float(high)), note=f"{result.note}; {said}" if result.note else said,
        estimate=min(max(result.estimate, low), high),
        interval=(min(max(result.interval[0], low), high), max(min(result.interval[1], high), low)),
    )


def start_rule(
    method: str | Stream,
    epsilon: float,
    delta: float,
    support: Support | None,
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
    if support is None:
        if accuracy != "absolute":
            raise ValueError("support is None and accuracy is 'relative'; without a support there are absolute "
                             "accuracies only: say accuracy='absolute', or give a support")
        return over_bounds.AbsoluteStop(epsilon, delta, None, bound=method, max_samples=max_samples, **options)
    name = _full_name(method, accuracy)
    fitting = OF_POPULATIONS[accuracy]
    if "n_rows" in options and name not in fitting:
        raise ValueError(
            f"n_rows is {options['n_rows']} and method is {name!r}; only {', '.join(fitting)} support n_rows"
        )
    if accuracy == "absolute":
        return over_bounds.AbsoluteStop(epsilon, delta, support, bound=name, max_samples=max_samples, **options)
    rule: Stream = METHODS[name](epsilon, delta, support, max_samples=max_samples, **options)
    return rule


def _full_name(method: str, accuracy: str) -> str:
    """The name of a method for that accuracy, in full."""
    names = CHOICES[accuracy]
    name = _checks.choice(sequences.in_full(method), "method", NAMES)
    if name != "auto" and name not in names:
        raise ValueError(f"method is {name!r}, which is not for {accuracy} accuracy; take one of {', '.join(names)}")
    return AUTO if name == "auto" else name


def _array(rewards: Any) -> Any:
    """The rewards as a vector, or None if they are a stream."""
    _checks.require_collected(rewards, "rewards")
    if callable(rewards) or not (hasattr(rewards, "__array__") or isinstance(rewards, (list, tuple))):
        return None
    array = _checks.numbers_of(rewards, "rewards")
    if array.ndim != 1:
        raise ValueError(f"rewards has shape {array.shape}; a vector of shape (k,) is needed")
    if array.dtype.kind not in "fiub":
        raise TypeError(f"rewards has dtype {array.dtype}; a vector of real numbers is needed")
    return array


def _rows(rule: Any, array: Any, rng: _checks.Generator) -> Callable[[int], Any]:
    """Return a function that gives the next k rows of an array, fewer at its end."""
    n_rows = array.shape[0]
    population = getattr(rule, "n_rows", None)
    if population is not None and population - rule.n_samples < n_rows:
        raise ValueError(
            f"the rule knows a population of {population} rows, of which it has seen {rule.n_samples}, and rewards has "
            f"{n_rows}; make the rule for all of them"
        )
    # Without replacement, a mean varies less than asymptotic intervals take it to.
    if population is not None or rule._holds_once or rule.support is None:
        return _row_order.RowOrder(n_rows, rng).take
    left = n_rows

    def draw(count: int) -> Any:
        nonlocal left
        count = min(count, left)
        left -= count
        return rng.integers(n_rows, size=count)

    return draw


def _doubting(rule: Any, report: Report, timed: bool) -> Report:
    """What reports, and warns where a relative accuracy may never be reached, as the mean may be 0.

    The call may be `timed`.
    """
    if rule.criterion != "relative" or rule.arguments.get("max_samples") or rule.arguments.get("floor"):
        return report
    at, instead = doubtful_after(1), " or max_samples" if timed else ", max_samples or max_seconds"

    def look(rule: Any, last: bool) -> None:
        nonlocal at
        report(rule, last)
        if rule.n_samples >= at and not rule.done:
            at *= 10
            low, high = rule.interval
            if low <= 0.0 <= high:
                warnings.warn(
                    f"{counted(rule.n_samples, 'reward', ',')} have not told the mean from 0; it lies between "
                    f"{low:.3g} and {high:.3g}. At a mean of 0 no relative accuracy is ever reached and "
                    f"{endless(timed)}: say accuracy='absolute', or give floor{instead}. Ctrl-C ends it and keeps all "
                    f"that came", RuntimeWarning, stacklevel=_checks.users_level(),
                )

    return look


def _feed_array(
    rule: Any, array: Any, rows: Callable[[int], Any] | None, batch: int | None, report: Report
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
    if rule.support is None:        # it has used every row
        mean = float(np.mean(array, dtype=np.float64))
        return dataclasses.replace(rule.result(), estimate=mean, interval=(mean, mean), stopped_by="exact", warnings=(),
                                   note="every row was read: the interval is the mean of the array")
    full = sequences.ConfidenceSequence(
        "plug-in", rule.delta, rule.support, n_rows=array.shape[0], outside=outside
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
            changed |= {"estimate": math.copysign(1.0, away), "stopped_by": "exact"}
        else:
            changed |= {"estimate": mean, "stopped_by": "max_samples", "note": f"every row was read: {_rules.TIE}"}
    else:
        changed |= {"estimate": mean} | ({} if rule.criterion == "never" else {"stopped_by": "exact"})
    return dataclasses.replace(answer, **changed)


def _feed(rule: Any, rewards: Any, batch: int | None, report: Report) -> bool:
    """Give the rewards of a stream to the rule until it is over; return whether they ended first."""
    if callable(rewards):
        _checks.at_once(rewards, "rewards", "values")
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
                    _checks.at_once(drawn, "rewards()", "values")
                    raise TypeError(
                        f"rewards() returned {_checks.shown(drawn)} of type {type(drawn).__name__}; without batch, "
                        f"each call must "
                        f"return one real number: give batch, such as batch=100, to call rewards(100) for 100 of them"
                    ) from None
            else:
                drawn = rewards(batch)
                _checks.at_once(drawn, f"rewards({batch})", "values")
                _check_block(drawn, f"rewards({batch}) returned", batch)
                _use(rule, drawn)
            report(rule, False)
        return False
    if isinstance(rewards, (str, bytes, Mapping)):
        raise TypeError(f"rewards is {_checks.shown(rewards)} of type {type(rewards).__name__}; a function, an "
                        f"iterable or an array of rewards is needed: read files first, and give one column of a dict")
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
        taken: list[Any] = []
        try:
            taken.extend(itertools.islice(iterator, batch))
        except BaseException:           # those that came before it are used
            if taken:
                _use_elements(rule, taken)
            raise
        if not taken:
            return True
        _use_elements(rule, taken)
        report(rule, False)
    return False


def _use_elements(rule: Any, drawn: list[Any]) -> None:
    """Give the next elements of an iterator to the rule, as `_use` does."""
    _check_block(drawn, f"the next {counted(len(drawn), 'element')} of rewards came with", len(drawn))
    _use(rule, drawn)


def _use(rule: Any, drawn: Any) -> None:
    """Give a batch to the rule; where one of them is refused, those before it are used, and the error has the rest."""
    before = rule.n_samples
    if getattr(rule, "n_rows", None) is not None:       # the last batch may be longer than what is left of a population
        drawn = drawn[: rule.n_rows - before]
    try:
        rule.update_many(drawn)
    except BaseException as error:
        good = getattr(error, "index", 0)
        block = np.array(drawn)
        if good:
            rule.update_many(block[:good])
        with contextlib.suppress(Exception):
            error.rewards = block[rule.n_samples - before :]  # type: ignore[attr-defined]
        raise


def _going_on(known: str, batch: int | None, left: int) -> str:
    """How to go on after an error, where so many rewards of a batch are left, the refused one first."""
    said = f"estimate_mean(rewards, {known}{'' if batch is None else f', batch={batch}'}) goes on where it stopped"
    if left:
        said += (f"; error.rewards has the last {left} of the batch, the refused one first: give the good ones of them "
                 f"to error.rule.update_many before")
    return said


def _check_block(drawn: Any, what: str, count: int) -> None:
    """Refuse anything but a vector of `count` real numbers; the error keeps it, as it may have been paid for."""
    try:
        _check_vector(drawn, what, count)
    except Exception as error:
        keep_answer(error, drawn)
        raise


def _check_vector(drawn: Any, what: str, count: int) -> None:
    needed = f"{counted(count, 'reward')}, a vector of real numbers of shape ({count},),"
    try:
        shape = np.shape(drawn)
    except ValueError:
        raise ValueError(f"{what} rows of different lengths; {needed} is needed") from None
    if shape != (count,):
        raise ValueError(f"{what} shape {shape}; {needed} is needed")
    kind = _checks.numbers_of(drawn, "the batch of rewards").dtype
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
