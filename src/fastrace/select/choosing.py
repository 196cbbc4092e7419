"""One call that selects the m best of n arms by any of the rules."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from numpy.typing import ArrayLike

from fastrace._base import _callers, _checks, _clock, _frames
from fastrace.baselines import KLLUCB, SAR, Direct, Halving, Incremental, MedianElimination
from fastrace.pulls import PullSource, is_population
from fastrace.results import SelectionResult
from fastrace.results.columns import remembered
from fastrace.select.adaptive import Adapt
from fastrace.select.lucb import LUCB, SUPPORT
from fastrace.select.selection import Selection, columns_of
from fastrace.sources import _source_of

RULES: dict[str, Any] = {        # by method; those of the same arguments
    "auto": LUCB,
    "lucb": LUCB,
    "kl-lucb": KLLUCB,
    "adapt": Adapt,
    "direct": Direct,
    "halving": Halving,
    "incremental": Incremental,
}
METHODS = (*RULES, "median-elimination", "sar")


def select_best(
    pull: Any,
    n_arms: int | None = None,
    n_best: int = 1,
    epsilon: float = 0.0,
    delta: float = 0.05,
    *,
    names: Sequence[str] | None = None,
    method: str = "auto",
    support: _checks.Support | None = SUPPORT,
    max_pulls: int | None = None,
    max_seconds: float | None = None,
    cost: ArrayLike | None = None,
    missing: str = "raise",
    progress: bool = False,
    order: str = "random",
    rng: _checks.RngLike = None,
    **options: Any,
) -> SelectionResult:
    r"""Select the m best of n arms from noisy rewards, with few pulls and a stated probability of error.

    Parameters
    ----------
    pull : callable, PullSource, array_like, object with a method `pull`, LowLevelCallable or Source
        Where rewards come from. A function ``pull(arms, counts)`` returns ``counts[0]`` rewards of ``arms[0]``, then
        ``counts[1]`` of ``arms[1]`` and so on, flat or as a list of arrays, one per arm; an object's method `pull` does
        the same. These are streams: the rewards of each arm must be independent. A table (array, frame or dict of
        columns) of shape (n_rows, n_arms) and a `Source` are populations of rows; see `order`.
    n_arms : int, optional
        Number of arms; needed for functions and objects, which do not show it.
    n_best : int, default 1
        Arms to select.
    epsilon : float, default 0.0
        Accuracy in reward units: an arm within `epsilon` of the `n_best`-th largest mean is good enough. With 0, and
        rewards from a stream, the call **never ends if the means at the cut are equal**: give an epsilon, the
        difference that does not matter to you, `max_pulls` or `max_seconds`. See the notes.
    delta : float, default 0.05
        Probability that an arm of the answer is not good enough, in (0, 1).
    names : sequence of str, optional
        What to call the arms in the result; by default the columns of a table.
    method : str, default "auto"
        ``"auto"`` and ``"lucb"``: `LUCB` by pairs, see the notes. By name: ``"kl-lucb"``,
        ``"adapt"``, ``"direct"``, ``"halving"``, ``"incremental"``, ``"median-elimination"`` (one best arm), and
        ``"sar"``, which spends `max_pulls` and takes no epsilon.
    support : tuple of float or of arrays of shape (n_arms,), or None, default (0, 1)
        Interval (low, high) that holds every reward, of each arm. None, for the default method, if you know of none, as
        for seconds or revenue: the answer is then asymptotic, from 200 pulls of each arm on (option `first_look`), and
        says so; see `LUCB`.
    max_pulls : int, optional
        Pulls after which to stop with the best answer so far, ``stopped_by="max_pulls"`` and an error bound that says
        what it is worth; at least one per arm. By default there is no budget. Of a table they are cells read, each
        counted once. With fewer than 512 per arm, `LUCB` pulls others than with more, so that fewer answers are wrong;
        say the whole budget at once. One below the first look, or the first round of a plan, is shared out evenly among
        the arms. ``result.race``, the rule, has all pulls: ``result.race.run(pull)`` goes on, up to
        further `max_pulls` or `max_seconds`.
    max_seconds : float, optional
        Seconds after which no further request is made: the best answer so far, ``stopped_by="max_seconds"``, with the
        same error bound and `race`. A request that is under way is waited for.
    cost : float or array_like of shape (n_arms,), optional
        What one pull of an arm costs, in any unit; the result's `cost` adds it up, the cells of a table once each. Of a
        table it says when it is cheaper to read the rest, see `LUCB.run`; it changes no other decision: say
        `max_pulls` to limit what is spent. A series of pandas, here and in `support`, goes by the names of the arms, if
        they have some.
    missing : {"raise", "drop", "worst"}, default "raise"
        What a missing reward does, which is nan or None; for the default method. ``"raise"`` refuses it. ``"worst"``
        counts it as the low end of its support. ``"drop"`` counts it as a pull and a cost only: the answer is about the
        means of the rewards that came, for each arm those of its own, which is more than its mean over all draws where
        it fails to answer what it is bad at. See `LUCB`.
    progress : bool, default False
        Show the pulls made, against `max_pulls` if that is given, on standard error; needs rich.
    order : {"random", "given"}, default "random"
        How to read a table. ``"random"``: the rule draws the rows uniformly at random, whatever order the table is in,
        and pays for no cell twice. It may draw a row again, as its bounds are proven for independent rewards.
        ``"given"``: pull t of an arm is row t of its column. Say so only if the rows are independent rewards in the
        order in which they were drawn; the answer is then about the mean that they share.
    rng : None, int, SeedSequence or Generator, optional
        Source of randomness of rules and sources that draw.
    **options
        Passed on to the rule, such as ``bound``, ``split`` or ``batch``, or ``paired=True`` of `LUCB`: the t-th rewards
        of all arms of a request are then of one draw, such as the same prompt or seed.

    Returns
    -------
    SelectionResult
        A population is read to its end where draws do not settle the question: ``stopped_by`` is then ``"exact"``, the
        means of the arms that were not told apart are those of the table, and a warning names ties. So a selection from
        a table in random order always ends. The columns of a frame or a dict are the `names` of the arms.

    Raises
    ------
    TypeError
        If `pull` is a `Source` and `order` is ``"given"``.
    ValueError
        If a parameter is missing or out of range, or a reward is nan or outside the support; the error names the arm.

    Warns
    -----
    RuntimeWarning
        If `epsilon` is 0, there is no `max_pulls`, and a million pulls of a stream (1000 per arm, if that is more) have
        not told the arms apart; again after ten times as many, and so on.

    See Also
    --------
    LUCB : the rule itself, to be driven by hand, saved, and continued after an error.
    race_async : the same by requests, many of them under way at once, with a journal.

    Notes
    -----
    How long it takes: the pulls grow like the inverse square of the gap between the means at the cut. At a gap of 0
    there is nothing to find, and no rule that promises the best arm can stop. A table or a `Source` in random order
    always ends, and costs its cells at most: a cell that was read once is not paid for again, and after about as many
    pulls as there are cells, the rest is read of the arms that are not told apart. See the notes of `LUCB.run`,
    which say when, and what memory that takes.

    Whatever ends the call early, Ctrl-C or an error of `pull`, the exception has the rule as its attribute ``rule``,
    with all pulls made by then: ``error.rule.result()`` is the best answer so far and ``error.rule.run(pull)`` goes on.
    Where a reward is refused, the good ones that came with it are kept, and that one is asked for again.

    Why the default is what it is: mean pulls to the stop with uniform rewards of standard deviation 1, means uniform in
    [0, 1], 15 of 50 arms, epsilon 0.1, delta 0.15 (fresh means in each run), and for Bernoulli rewards at epsilon 0,
    delta 0.1: one mean of 0.55 amid nine of 0.45, one of 0.6 amid 99 of 0.4, five of 0.10 amid 15 from 0.02 to 0.05.

    =======================  =======  ========  ======  =======  =======
    rule                     proof    15 of 50  0.55    0.6      0.10
    =======================  =======  ========  ======  =======  =======
    LUCB, by pairs           yes        24 000   6 010   10 700   15 100
    LUCB, "eb-mix"           yes        36 200   8 300   23 800   20 800
    LUCB, "hoeffding-mix"    yes       103 000   7 520   25 300   58 100
    KL-LUCB                  yes       390 000  35 400   69 900   64 200
    LUCB, "lucb1"            yes       812 000  73 700  143 000  541 000
    Direct                   yes       697 000
    KL-LUCB, rate="easy"     no                  6 300   11 600   11 400
    the same, split="sides"  no                  8 750   14 600   16 600
    ADAPT                    no         46 200
    =======================  =======  ========  ======  =======  =======

    KL-LUCB with the easy rate need not stop: one of its 100 runs of the last column was left out, as it had not stopped
    after a million pulls. ADAPT took more pulls than the default in each of 40 runs of the first column, and may take
    fewer where nearly all arms are tied within `epsilon`.

    Examples
    --------
    >>> import numpy as np
    >>> import fastrace as fr
    >>> rng = np.random.default_rng(1)
    >>> means = np.linspace(0.1, 0.9, 20)
    >>> def pull(arms, counts):
    ...     return rng.random(counts.sum()) < np.repeat(means[arms], counts)
    >>> result = fr.select_best(pull, 20, 3, epsilon=0.05)
    >>> sorted(result.best.tolist())
    [17, 18, 19]
    """
    with _callers.options_of("select_best"):
        name = _checks.choice(method, "method", METHODS)
        generator = _checks.generator(rng)
        limit, end = _checks.budget(max_pulls, 1, False), _clock.deadline(max_seconds)
        size = _size(pull) if n_arms is None else n_arms
        if _checks.choice(missing, "missing", _checks.MISSING_REWARDS) != "raise":
            if RULES.get(name) is not LUCB:
                raise ValueError(f"missing is {missing!r} and method is {name!r}; only LUCB, the default, takes "
                                 f"missing rewards: fill them in for the others")
            options = {**options, "missing": missing}
        called = _frames.arms_called(columns_of(pull) if names is None else names, support=support, cost=cost,
                                     sub_gaussian=options.get("sub_gaussian"))
        support = _frames.support_of_arms(support, called)
        if "sub_gaussian" in options:
            options["sub_gaussian"] = _frames.of_arms(options["sub_gaussian"], called, "sub_gaussian")
        rule = _rule(name, size, n_best, epsilon, delta, support, limit, {"names": names, "rng": generator, **options})
        _checks.budget(limit, rule._n_arms, not rule.done)
        if cost is not None:
            rule._cost = _checks.arm_costs(_frames.of_arms(cost, called, "cost"), rule._n_arms)
        source: Any = rule._rewards(pull, order)
        found = called if isinstance(called, _checks.FoundNames) else rule._names
        rule._names = remembered(found, columns_of(pull))
    result = rule._go_on(source, limit, "random", None, progress, end)
    if result.stopped_by in ("max_pulls", "max_seconds") and not rule.done:
        result = dataclasses.replace(result, race=rule)
    return rule._named(result, pull, source)


def _size(pull: Any) -> int:
    """The number of arms that `pull` shows."""
    if isinstance(pull, PullSource):
        return pull.n_arms
    if not is_population(pull):
        raise ValueError("n_arms is missing; a function or an object does not show how many arms it has")
    shape: Any = getattr(pull, "shape", ())
    return int(shape[1]) if len(shape) == 2 else _source_of(pull, "pull").n_arms


def _rule(
    name: str,
    n_arms: int,
    n_best: int,
    epsilon: float,
    delta: float,
    support: _checks.Support | None,
    limit: int | None,
    options: dict[str, Any],
) -> Selection:
    """The rule of that name."""
    known: Any = support        # which LUCB alone does without
    if name == "sar":
        if limit is None:
            raise ValueError("max_pulls is None; method 'sar' spends a budget: say how many pulls it is")
        return SAR(n_arms, n_best, limit, delta, known, **options)
    if name == "median-elimination":
        if n_best != 1:
            raise ValueError(f"n_best is {n_best}; median elimination finds one arm: use incremental, or the default")
        return MedianElimination(n_arms, epsilon, delta, known, **options)
    found: Selection = RULES[name](n_arms, n_best, epsilon, delta, support, **options)
    return found
