"""Metropolis-Hastings, Barker, binary Gibbs and slice decisions from as few likelihood terms as possible."""

from __future__ import annotations

import math
from typing import Any

from fastrace._base import _callers, _checks, _frames
from fastrace.control_variates import ControlVariate
from fastrace.likelihoods import PairSource
from fastrace.races import _options, _schedules
from fastrace.races._options import BOUNDS, RaceOptions
from fastrace.races._threshold import ThresholdRace
from fastrace.results import AcceptResult
from fastrace.sources import Source, _source_of

__all__ = ["AcceptTest", "gibbs_binary", "in_slice", "metropolis_accept"]


class AcceptTest(ThresholdRace):
    r"""Decide again and again whether a sum of differences exceeds a threshold, reading few of its terms.

    One object serves a whole Markov chain: it keeps the order of rows, its buffers and the half-widths of all looks, so
    that a decision costs little more than the rows it reads. Between decisions change what the source computes (its
    parameters), or put another source of the same shape in its place.

    Parameters
    ----------
    source : Source, or array_like of shape (n_rows,), (n_rows, 1) or (n_rows, 2)
        Log-likelihood differences d_n, proposal minus current; or, with two arms, the log-likelihood terms of the
        current state (arm 0) and of the proposal (arm 1), whose differences are taken row by row.
    bound : str, default "auto"
        ``"betting"`` (rigorous, needs `support`), ``"normal"`` (quick, rests on means being normal),
        ``"hoeffding-serfling"``, ``"empirical-bernstein-serfling"``, ``"serfling"`` (the smaller of the two; rigorous,
        need `support`). ``"auto"`` is betting if there is a support, else normal.
    delta : float, default 0.05
        Probability that a decision is wrong, in (0, 1).
    support : tuple of float, optional
        Interval (low, high) that holds every difference. By default it follows from ``source.support`` at each
        decision, which may be set anew with the parameters. A `control_variates.taylor_glm` of two arms, or two arms
        of one as a `likelihoods.PairSource`, need none: if a rigorous bound is asked for by name, the interval follows
        from the third derivative of the model and both parameters, at each decision anew. The row that can change most
        sets its width, so give `outliers` there; `mcmc.RacingMetropolis` draws rows in proportion to how far they can
        change, and needs far fewer.
    noise : {"metropolis", "barker"}, default "metropolis"
        What `accept` draws: acceptance with probability min(1, r) or r / (1 + r).
    access : {"random", "shuffled"}, default "random"
        ``"random"``: a fresh uniform subset per decision. ``"shuffled"``: a window of rows in order from a random
        start, much faster on large arrays. It is right only for rows that were put in random order once, and
        then successive decisions still share that randomness, which no promise covers.
    first_look : int, optional
        Rows of the first look, at least 2. By default 50, or more if the source asks for it; 500 for
        ``schedule="korattikara"``.
    growth : float, optional
        Ratio of one look to the one before, above 1; by default 1.1 for betting, whose looks are free, and else 2.
    schedule : {"geometric", "korattikara", "bardenet"}, default "geometric"
        ``"korattikara"``: looks at multiples of `first_look` and a t test of level `delta` at each of them [2]_; the
        error of the whole sequence is larger, see Notes. ``"bardenet"``: looks growing by `growth`, the empirical
        Bernstein-Serfling bound at :math:`\delta_k = \delta / 2k^2` [3]_; needs `support`. For comparison with those
        papers.
    student : bool, default False
        Normal rule: Student quantiles in place of normal ones, against small first looks.
    skewness_guard : bool, optional
        Normal rule: read on where the sample is skewed or a few rows carry its spread, or where they did so in a
        decision before and it shows none of them, see Notes. A heuristic, not a guarantee. On by default, but for
        ``schedule="korattikara"``.
    scan_advantage : float, optional
        Cost of one more row of the race over one row of a full pass in order, at least 1; at 1 the race never turns to
        a full pass. By default what the source says, and for arrays the race's own work besides.
    outside : {"raise", "warn"}, default "raise"
        What to do with a difference outside `support`: refuse it, or take it as it is and say so in `warnings`.
    options : RaceOptions, optional
        Options said once for several races; what is spelled here goes before them.
    rng : None, int, SeedSequence or Generator, optional
        Source of the rows' order and of the noise.

    Attributes
    ----------
    source : Source
        May be replaced by one with as many arms and rows.
    accepted, threshold, n_read, n_evaluated, n_looks, stopped_by, mean, half_width, skewness, kurtosis
        Of the last decision, as in `AcceptResult`.

    Raises
    ------
    ValueError
        If an argument is out of range, or a rigorous bound has no support.

    See Also
    --------
    metropolis_accept, gibbs_binary, in_slice : one decision by one call.

    Notes
    -----
    With probability at least ``1 - delta`` the decision is the exact one, for every threshold: so a
    Metropolis-Hastings step by it is within total variation `delta` of the exact step, and a slice step with M tests
    within ``M delta``. The rigorous bounds hold for every population inside the support, the normal rule as far
    as means of `first_look` rows are normal. A decision that has read every row is exact.

    For skewed differences the plain normal rule can be wrong half of the time, so it has a guard. A sample of n rows is
    under suspicion if its skewness, less one standard error, would inflate the error by a quarter
    (`bounds.skewness_inflation`), or if its kurtosis says that its variance is known worse than to 22 % (root of 0.05).
    Its half-width then grows by ``7 M (1 / n - 1 / N)``, M the fourth root of the sum of fourth powers of deviations,
    which is no less than the largest one: a decision stands even if seven rows as far out are to come for every n. That
    costs about 1 % of the rows where differences are normal, and much where they are skewed and the decision is close.
    It is a heuristic: of decisions close to a tie at delta 0.05, on what Taylor expansions leave of Poisson and
    logistic models, it missed 2 to 3 %, and up to 11 % for single proposals; the plain rule missed 7 to 12 %, and 41 %.
    Where a few rows decide and the others barely differ, a sample without any of the few looks harmless, and no rule
    that reads only such a sample can be right: of 5,000 rows of which 10, 25 or 50 held the sum, the normal rule
    without the guard is wrong in a third of the decisions near a tie at delta 0.05, without a sign. So the guard has a
    memory. A decision keeps the kurtosis K of the rows that it has read if K is above 40, so that one row in 40 or
    fewer carries their spread, and if the others say little of it (their mean distance is below 0.7 standard
    deviations; normal rows have 1.1, Student-t (3) 0.9). In the next decisions a sample of fewer than 5 K rows must
    show some of the few before it decides: its kurtosis k is to be at least the root of min(K, n) and at most n / 5. If
    k is smaller, the next look is at 5 K rows. Each decision that does not see the few again halves K. Of 300 to 2000
    decisions near ties, by one test, about arrays and about functions, at most 1.7 % were then wrong where 0.1 to 2 %
    of the rows held the sum, also where the others had up to 0.4 of the standard deviation of all; 3 to 12 % were
    without a memory. Where they have 0.6 or 0.7 of it, nothing is remembered, and 3 to 5 % were wrong. Of normal,
    exponential and Student-t (3) rows tests with and without a memory read as many, of lognormals (1.5) 1.0 to 1.2
    times as many, and of lognormals (2), where few rows do carry the spread, 1.1 to 1.5.

    The first decision has no memory. So it alone looks closer at an array in memory; later ones read few rows of small
    arrays too. Of at most 65,536 numbers (so many rows, or half of them with two arms) it reads all, in the time that
    it takes to make the test, and of larger ones 4096 rows at least, unless `scan_advantage` is 1. Of 100 arrays each
    whose sum says accept where most rows say reject, none was then decided wrongly where 20 of 8193, 20,000 or 60,000
    rows held it, 1 and 11 where 300 and 100 of 300,000 did, and 84 where 20 of a million did; of the same differences
    of a function 83 to 99. What few rows a sample has missed nothing in it can tell. The result says how many these may
    be: `AcceptResult.unseen_rows` of one kind, which turn the decision if they are `AcceptResult.unseen_reach` from the
    mean. Only a `support` rules them out: betting was never wrong there, for which it read all rows. The memory does
    not help either where the law changes from one decision to the next. One test about functions whose sum 0.1 to 0.5 %
    of the rows hold was wrong in 2 to 22 % of its first 30 decisions, far from ties, and in 0.3 % of the next 120.

    After each look the race forecasts how many rows it still needs; as soon as one pass over all rows in order
    (`Source.total`) is cheaper, it makes that pass. Both costs are counted in rows, so that the same seed gives the
    same result everywhere. A pass that also takes moments, where few rows carry the spread, counts 2 to 3 times over an
    array. What is read before a pass costs less than what the pass saves; over arrays it is at most a tenth of the
    rows.

    The error of ``schedule="korattikara"`` over its looks at n_1, n_2, ... is
    ``bounds.crossing_probability(q, bounds.variance_factor(n, n_rows), "first-exit")`` with q the normal quantile of
    ``1 - delta``.

    Reading k rows costs O(k). The order takes at most 64 bytes for each row read; above 2^31 rows it is a keyed
    pseudo-random order of no size.

    References
    ----------
    .. [1] Chen, Ghahramani, "Scalable Discrete Sampling as a Multi-Armed Bandit Problem", ICML 2016, eq. 12.
    .. [2] Korattikara, Chen, Welling, "Austerity in MCMC land", ICML 2014.
    .. [3] Bardenet, Doucet, Holmes, "Towards scaling up Markov chain Monte Carlo", ICML 2014.
    .. [4] Waudby-Smith, Ramdas, "Confidence sequences for sampling without replacement", NeurIPS 2020.

    Examples
    --------
    >>> import numpy as np
    >>> import fastrace as fr
    >>> differences = np.random.default_rng(0).normal(0.01, 0.1, 100_000)
    >>> test = fr.AcceptTest(differences, rng=1)
    >>> test.accept(log_prior_ratio=0.3), test.stopped_by
    (True, 'bound')
    >>> test.n_read < 20_000
    True
    """

    @_callers.names_caller
    @_options.takes_options
    def __init__(
        self,
        source: Any,
        *,
        bound: str = "auto",
        delta: float = 0.05,
        support: _checks.Support | None = None,
        noise: str = "metropolis",
        access: str = "random",
        first_look: int | None = None,
        growth: float | None = None,
        schedule: str = "geometric",
        student: bool = False,
        skewness_guard: bool | None = None,
        scan_advantage: float | None = None,
        outside: str = "raise",
        options: RaceOptions | None = None,
        rng: _checks.RngLike = None,
    ) -> None:
        rows = _differences(source)
        student = _checks.flag(student, "student")
        self.delta = _checks.probability(delta, "delta")
        self.schedule = _checks.choice(schedule, "schedule", _schedules.SCHEDULES)
        self._support = support
        known = support is not None or rows.support is not None
        self.bound = _schedules.bound_of(_checks.choice(bound, "bound", BOUNDS), self.schedule, known)
        self._derived = not known and self.bound != "normal" and _derived_support(rows) is not None
        if self.bound != "normal":
            if not known and not self._derived:
                raise ValueError(
                    f"bound is {bound!r} with schedule {self.schedule!r} and no support; a rigorous bound needs "
                    f"support=(low, high), an interval that holds every difference, because nothing else limits what "
                    f"unread rows can be. control_variates.taylor_glm derives one for rows of GLMSource, SoftmaxSource"
                )
            if _checks.flag(student, "student") or (
                    skewness_guard is not None and _checks.flag(skewness_guard, "skewness_guard")):
                raise ValueError(f"student and skewness_guard belong to the normal rule; bound is {self.bound!r}")
        guard = _schedules.guarded(skewness_guard, self.bound, self.schedule)
        self.noise = _checks.choice(noise, "noise", ("metropolis", "barker"))
        access = _options.access(access)
        if first_look is None:
            first_look = max(500 if self.schedule == "korattikara" else 50, rows.first_look)
        first_look = _options.first_look(first_look)
        growth = _options.growth(growth, self.bound)
        if student and self.schedule == "korattikara":
            raise ValueError("student=True came with schedule='korattikara', which uses Student quantiles anyway")
        scan_advantage = _options.scan_advantage(scan_advantage)
        strict = _options.strict(outside)
        self._rng = _checks.generator(rng)
        self._options = {
            "bound": self.bound,
            "delta": self.delta,
            "support": support,
            "noise": self.noise,
            "access": access,
            "first_look": first_look,
            "growth": growth,
            "schedule": self.schedule,
            "student": student,
            "skewness_guard": guard,
            "scan_advantage": scan_advantage,
            "outside": "raise" if strict else "warn",
        }
        looks = _schedules.looks(self.schedule, rows.n_rows, first_look, growth)
        share, quantile = _schedules.shares(
            self.bound, self.schedule, self.delta, looks, first_look, growth, student, guard
        )
        super().__init__(
            rows,
            self.bound,
            looks,
            share,
            quantile,
            shuffled=access == "shuffled",
            guard=guard,
            advantage=math.nan if scan_advantage is None else scan_advantage,
            rng=self._rng,
            strict=strict,
        )
        self._seen_support: Any = None
        if support is not None:
            low, high = _checks.support_bounds(support, 1)
            self.set_support(low[0], high[0])
        else:
            self._follow_support()

    def _follow_support(self) -> None:
        """Take the interval of differences from the source's support."""
        support = self.source.support
        if support is None and self._derived:
            self.set_support(*(_derived_support(self.source) or (-math.inf, math.inf)))
        elif support is None:
            if self.bound != "normal":
                raise ValueError(f"the source has no support any more; bound {self.bound!r} needs one")
            self.set_support(-math.inf, math.inf)
        else:
            low, high = _checks.support_bounds(support, self.source.n_arms)
            if self.source.n_arms == 1:
                self.set_support(low[0], high[0])
            else:
                self.set_support(low[1] - high[0], high[1] - low[0])
        self._seen_support = support

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore_test.saved(self.source, self._options, self._rng, self._get_order(), self._get_kurtosis())

    def __repr__(self) -> str:
        said = ["delta", "bound", "schedule", "noise", "access"]
        said += [name for name in ("student", "skewness_guard") if self._options[name]]
        options = ", ".join(f"{name}={self._options[name]!r}" for name in said)
        return f"{type(self).__name__}(n_rows={self.source.n_rows}, {options})"

    def decide(self, threshold: float) -> bool:
        """Whether the sum of the differences over all rows is above a threshold.

        Parameters
        ----------
        threshold : float
            In units of the sum, not of the mean. -inf accepts and +inf rejects, unread.

        Returns
        -------
        bool
            True if the sum is above the threshold, but for an error of probability `delta`.

        Raises
        ------
        ValueError
            If the threshold is nan, or a difference that is read is nan, +inf or outside the support; the test can be
            used again.
        """
        if self._support is None and (self._derived or self.source.support is not self._seen_support):
            self._follow_support()
        return self.run(threshold if type(threshold) is float else _number(threshold, "threshold"))

    def accept(self, log_prior_ratio: float = 0.0) -> bool:
        """Draw the uniform number of a Metropolis-Hastings (or Barker) step and decide it.

        Parameters
        ----------
        log_prior_ratio : float, default 0.0
            ``log p(x') q(x | x') - log p(x) q(x' | x)`` for a step from x to x': all of the log ratio that is not in
            the rows. For a binary Gibbs step, with ``noise="barker"``, the log of the prior odds.

        Returns
        -------
        bool
            As the exact step would decide with the same uniform number, but for an error of probability `delta`.
        """
        log_prior_ratio = _number(log_prior_ratio, "log_prior_ratio")
        return self.decide(self.draw_noise(self.noise == "barker") - log_prior_ratio)

    def in_slice(self, log_u: float, log_prior_ratio: float = 0.0) -> bool:
        """Whether a point lies in the slice ``{x': p(x') > u p(x)}``.

        Parameters
        ----------
        log_u : float
            Log of the uniform number that sets the height of the slice; the same for all tests of a transition.
        log_prior_ratio : float, default 0.0
            ``log p(x') - log p(x)`` without the rows.

        Returns
        -------
        bool
            True if the point lies in the slice, but for an error of probability `delta`.
        """
        return self.decide(_number(log_u, "log_u") - _number(log_prior_ratio, "log_prior_ratio"))

    def result(self) -> AcceptResult:
        """The last decision in full.

        Returns
        -------
        AcceptResult
            The decision, its threshold, the rows read and the interval of the mean difference.

        Raises
        ------
        ValueError
            If nothing has been decided yet.
        RuntimeError
            If a decision is being made, in another thread or around this call.
        """
        (accepted, threshold, n_read, n_evaluated, n_looks, stopped_by, mean, half_width, skewness, kurtosis,
         *flags) = self._decided()
        if not stopped_by:
            raise ValueError("nothing has been decided yet; call accept() or decide() first")
        return AcceptResult(
            accepted=accepted,
            threshold=threshold,
            n_rows=self.n_rows,
            n_read=n_read,
            n_evaluated=n_evaluated,
            n_looks=n_looks,
            stopped_by=stopped_by,
            mean=mean,
            half_width=half_width,
            skewness=skewness,
            kurtosis=kurtosis,
            bound=self.bound,
            delta=self.delta,
            warnings=_warnings(*flags),
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """What may void the promise of the last decision."""
        return _warnings(*self._decided()[-3:])


def _warnings(outside: bool, constant: bool, skewed: bool) -> tuple[str, ...]:
    found = []
    if outside:
        found.append(
            "a difference lay outside the support: the promise holds only for differences inside it; widen support"
        )
    if constant:
        found.append("all differences of the first look were equal: they said nothing of the spread of the others")
    if skewed:
        found.append(
            "the differences are skewed: the normal rule can err far more often than delta; give a support for the "
            "betting rule, or leave skewness_guard on"
        )
    return tuple(found)


@_checks.rebuilds(1, AcceptTest)
def _restore_test(
    source: Source, options: dict[str, Any], rng: Any, order: Any, kurtosis: float = 0.0
) -> AcceptTest:
    """Rebuild a pickled `AcceptTest`; those saved before decisions left anything to the next have no `kurtosis`."""
    test = AcceptTest(source, rng=rng, **options)
    test._set_order(order)
    test._set_kurtosis(kurtosis)
    return test


def _differences(source: Any) -> Source:
    """A source of one arm of differences, or of two arms whose difference is meant."""
    if not isinstance(source, Source):
        if callable(source) and not hasattr(source, "__array__"):
            raise TypeError(
                f"source is {_checks.shown(source)}; a function does not show its size, so wrap it: "
                f"as_source(function, n_arms, n_rows) with one arm (differences) or two (current, proposal)"
            )
        source = _frames.as_table(source, "source")
        source = source.reshape(-1, 1) if source.ndim == 1 else source
    rows: Source = _source_of(source, "source")
    if rows.n_arms not in (1, 2):
        raise ValueError(
            f"source has {rows.n_arms} arms; one arm of differences, or two (current, proposal), are needed"
        )
    return rows


def _derived_support(source: Source) -> tuple[float, float] | None:
    """The interval of differences that a control variate derives from its parameters; None if it knows none."""
    arms = (0, 1)
    if isinstance(source, PairSource):
        arms, source = (source.arm_a, source.arm_b), source.source
    elif source.n_arms != 2:
        return None
    return source.difference_support(*arms) if isinstance(source, ControlVariate) else None


@_options.takes_options
def metropolis_accept(
    source: Any,
    threshold: float | None = None,
    *,
    log_prior_ratio: float = 0.0,
    noise: str = "metropolis",
    bound: str = "auto",
    delta: float = 0.05,
    support: _checks.Support | None = None,
    access: str = "random",
    first_look: int | None = None,
    growth: float | None = None,
    schedule: str = "geometric",
    student: bool = False,
    skewness_guard: bool | None = None,
    scan_advantage: float | None = None,
    outside: str = "raise",
    options: RaceOptions | None = None,
    rng: _checks.RngLike = None,
) -> AcceptResult:
    """Accept or reject a Metropolis-Hastings proposal, reading as few log-likelihood terms as it can.

    A chain makes one `AcceptTest` instead and calls its ``accept``: that saves some 50 microseconds a step.

    Parameters
    ----------
    source : Source, or array_like of shape (n_rows,), (n_rows, 1) or (n_rows, 2)
        Log-likelihood differences, proposal minus current; or the terms of the current state and of the proposal.
    threshold : float, optional
        Accept if the sum of the differences is above it. By default it is drawn: ``log u - log_prior_ratio`` with u
        uniform.
    log_prior_ratio : float, default 0.0
        ``log p(x') q(x | x') - log p(x) q(x' | x)``: all of the log ratio that is not in the rows.
    noise : {"metropolis", "barker"}, default "metropolis"
        Accept with probability min(1, r), or r / (1 + r).
    bound, delta, support, access, first_look, growth, schedule, student, skewness_guard, scan_advantage, outside
        As in `AcceptTest`.
    options : RaceOptions, optional
        Options said once for several races; what is spelled here goes before them.
    rng : None, int, SeedSequence or Generator, optional
        As in `AcceptTest`.

    Returns
    -------
    AcceptResult
        True if accepted.

    Raises
    ------
    ValueError
        If an argument is out of range, or a difference that is read is nan, +inf or outside `support`; the message
        names the row.

    Notes
    -----
    The decision is the exact one with probability at least ``1 - delta``; see `AcceptTest`. An array of at most 65,536
    numbers is read whole, in less time than a race takes to set up, if no `support` is given and `scan_advantage` is
    not 1; of a larger one in memory at least 4096 rows are read. By the normal rule one decision knows only the rows
    that it reads. Where few others hold the sum, it is wrong, and not only near ties: about functions 83 of 100 times
    where 20 of 8193 rows held it, of which a first look at 50 rows seldom has one. The result's `unseen_rows` says how
    many may be unread, and `unseen_reach` how far out they must be. Give a `support` if that may be. A posterior
    without data is its prior: of no rows the sum is 0, so the answer is exact and accepts if `threshold` is below 0.

    References
    ----------
    .. [1] Chen, Ghahramani, "Scalable Discrete Sampling as a Multi-Armed Bandit Problem", ICML 2016, eq. 12.

    Examples
    --------
    >>> import numpy as np
    >>> import fastrace as fr
    >>> differences = np.random.default_rng(0).normal(-0.05, 0.1, 100_000)
    >>> result = fr.metropolis_accept(differences, rng=1)
    >>> result.accepted, result.stopped_by, result.fraction_read < 0.2
    (False, 'bound', True)
    """
    with _callers.options_of("metropolis_accept"):
        test = AcceptTest(
            source,
            bound=bound,
            delta=delta,
            support=support,
            noise=noise,
            access=access,
            first_look=first_look,
            growth=growth,
            schedule=schedule,
            student=student,
            skewness_guard=skewness_guard,
            scan_advantage=scan_advantage,
            outside=outside,
            rng=rng,
        )
    if threshold is None:
        test.accept(log_prior_ratio)
    elif log_prior_ratio != 0.0:
        raise ValueError(
            f"threshold={threshold} and log_prior_ratio={log_prior_ratio} came together; the ratio is part of the "
            f"threshold: log u - log_prior_ratio"
        )
    else:
        test.decide(threshold)
    return test.result()


def gibbs_binary(source: Any, *, log_prior_odds: float = 0.0, **options: Any) -> AcceptResult:
    """Draw a binary variable with log odds ``log_prior_odds + sum_n d_n``, reading as few terms as it can.

    Parameters
    ----------
    source : Source, or array_like of shape (n_rows,), (n_rows, 1) or (n_rows, 2)
        Differences of log-factors, value 1 minus value 0; or the log-factors of both values.
    log_prior_odds : float, default 0.0
        Log odds without the rows.
    **options
        As in `AcceptTest`, but for `noise`.

    Returns
    -------
    AcceptResult
        True for the value 1.

    Notes
    -----
    The law of the draw is within total variation `delta` of the exact one; see `AcceptTest`. Barker's rule is the same
    draw, between staying and moving.

    Examples
    --------
    >>> import numpy as np
    >>> import fastrace as fr
    >>> bool(fr.gibbs_binary(np.full(1000, 0.02), log_prior_odds=-1.0, rng=1))
    True
    """
    with _callers.options_of("gibbs_binary"):
        test = AcceptTest(source, noise="barker", **options)
    test.accept(log_prior_odds)
    return test.result()


def in_slice(source: Any, log_u: float, *, log_prior_ratio: float = 0.0, **options: Any) -> AcceptResult:
    """Whether a point lies in the slice ``{x': p(x') > u p(x)}``, reading as few log-likelihood terms as it can.

    Parameters
    ----------
    source : Source, or array_like of shape (n_rows,), (n_rows, 1) or (n_rows, 2)
        Log-likelihood differences, x' minus x; or the terms of x and of x'.
    log_u : float
        Log of the uniform number that sets the height of the slice: minus a standard exponential. The same for all
        tests of one transition.
    log_prior_ratio : float, default 0.0
        ``log p(x') - log p(x)`` without the rows.
    **options
        As in `AcceptTest`, but for `noise`.

    Returns
    -------
    AcceptResult
        True if inside.

    Notes
    -----
    Each test is wrong with probability at most `delta` and reads a fresh subset of rows, so a transition that makes M
    tests goes wrong with probability at most ``M delta``.

    Examples
    --------
    >>> import numpy as np
    >>> import fastrace as fr
    >>> bool(fr.in_slice(np.full(1000, -0.02), log_u=-0.7, rng=1))
    False
    """
    with _callers.options_of("in_slice"):
        test = AcceptTest(source, **options)
    test.in_slice(log_u, log_prior_ratio)
    return test.result()


def _number(value: float, name: str) -> float:
    """A float, nan among them, for sums that the compiled loop checks; quick, as every step comes here."""
    try:
        if not isinstance(value, (str, bytes)):
            return float(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise TypeError(f"{name} is {_checks.shown(value)}; a real number is needed")
