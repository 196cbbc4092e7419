"""Races over a finite population: which of several means is the largest."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import fastrace._core as _core
from fastrace import bounds
from fastrace._base import _checks
from fastrace.races import _options
from fastrace.races._options import MOST_ROWS, RaceOptions
from fastrace.results import RaceResult
from fastrace.results.columns import named, naming, remembered
from fastrace.sources import Source, _source_of, as_source, column_names

MOST_EXACT_LOOKS = 1000  # beyond, the quantile of Sidak, a hair wider, saves a solve of seconds
Plan = tuple[NDArray[np.int64], NDArray[np.float64], float]


class RaceSettings:
    """Checked options that a race and a sampler share, and the plan of looks that follows from them."""

    def __init__(
        self,
        n_arms: int,
        n_rows: int,
        *,
        delta: float,
        bound: str,
        variance: str,
        first_look: int,
        growth: float | None,
        support: _checks.Support | None,
        access: str,
        student: bool,
        skewness_guard: bool,
        tail_guard: bool,
        scan_advantage: float | None,
        max_pulls: int | None = None,
        outside: str = "raise",
    ) -> None:
        self.n_arms, self.n_rows = _options.population(n_arms, n_rows)
        self.delta = _checks.probability(delta, "delta")
        self.bound = _options.bound(bound, support is not None)
        self.variance = _checks.choice(variance, "variance", ("pairwise", "marginal"))
        if self.bound == "betting" and self.variance == "marginal":
            raise ValueError("bound is 'betting' and variance is 'marginal'; bets are on paired differences only")
        self.first_look = _options.first_look(first_look)
        self.growth = _options.growth(growth, self.bound)
        self.low: NDArray[np.float64] | None = None
        self.high: NDArray[np.float64] | None = None
        if support is not None:
            self.low, self.high = _checks.support_bounds(support, self.n_arms)
        self.access = _options.access(access)
        self.student = _checks.flag(student, "student")
        self.skewness_guard = _checks.flag(skewness_guard, "skewness_guard")
        self.tail_guard = _checks.flag(tail_guard, "tail_guard")
        self.scan_advantage = _options.scan_advantage(scan_advantage) or 0.0
        self.outside = "raise" if _options.strict(outside) else "warn"
        self.max_pulls = -1 if max_pulls is None else _checks.integer(max_pulls, "max_pulls", 1, "it counts rewards")

    def core(self, rng: np.random.Generator) -> _core.Race:
        """A fresh compiled race with these options."""
        return _core.Race(
            self.n_arms,
            self.n_rows,
            bound=self.bound,
            pairwise=self.variance == "pairwise",
            shuffled=self.access == "shuffled",
            guarded=self.skewness_guard,
            tails=self.tail_guard,
            scan_advantage=self.scan_advantage,
            max_pulls=min(self.max_pulls, MOST_ROWS),
            strict=self.outside == "raise",
            low=self.low,
            high=self.high,
            rng=rng,
        )

    def start(self, constants: NDArray[np.float64], rng: _checks.RngLike) -> _core.Race:
        """A compiled race that has begun, with these constants of the arms."""
        running = int(np.isfinite(constants).sum())
        if 0 <= self.max_pulls < running > 1:
            raise ValueError(
                f"max_pulls is {self.max_pulls}; at least {running} is needed, one reward of each arm that can win"
            )
        core = self.core(_checks.generator(rng))
        core.plan(*self.plan(running))
        core.begin(constants)
        return core

    def answer(self, core: _core.Race) -> dict[str, Any]:
        """What the race knows, with an interval for each mean: all of them hold at all looks, by the bound of the race.

        The probability of error is shared among arms, sides and looks. Bets have no half-width: theirs is that of the
        serfling bound. The ends are infinite before the first look and where neither a support nor the spread is known:
        while a run is under way, or where rewards agree to rounding.
        """
        cut = self.max_pulls >= 0
        share, quantile = _share_of_a_mean(
            self.n_arms, self.n_rows, self.delta, self.bound, self.first_look, self.growth, cut
        )
        return core.answer(share, quantile, cut, _student_quantile if self.student and self.bound == "normal" else None)

    def plan(self, n_running: int) -> Plan:
        """Looks, quantile of each, and log(1 / delta) of one comparison, for `n_running` arms that can still win."""
        return _plan(
            n_running,
            self.n_rows,
            self.delta,
            self.bound,
            self.variance,
            self.first_look,
            self.growth,
            self.student,
            self.skewness_guard or self.tail_guard,
        )


@functools.lru_cache(maxsize=256)
def _share_of_a_mean(
    n_arms: int, n_rows: int, delta: float, bound: str, first_look: int, growth: float, cut: bool
) -> tuple[float, float]:
    """log(1 / share of delta) and quantile of one side of one arm's mean, at all looks.

    If the race may be `cut` short between looks, each interval holds up to the look after it.
    """
    share = math.log(2.0 * n_arms) - math.log(delta)
    if n_rows == 0:
        return share, 0.0
    first_look = min(first_look, n_rows)
    if bound == "normal":
        share += math.log(2.0) if cut else 0.0
        return share, float(bounds.normal_quantile(None, n_rows, first_look, growth, "union", log_inv_delta=share))
    return share + math.log(bounds.looks(n_rows, first_look, growth).size), 0.0


def _student_quantile(quantile: float, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = bounds.student_quantile(quantile, rows, ddof=0)
    return found


@functools.lru_cache(maxsize=256)
def _plan(
    n_running: int,
    n_rows: int,
    delta: float,
    bound: str,
    variance: str,
    first_look: int,
    growth: float,
    student: bool,
    guarded: bool,
) -> Plan:
    if n_rows == 0 or n_running < 2:
        return np.array([n_rows], np.int64), np.zeros(1), math.inf
    looks = bounds.looks(n_rows, min(first_look, n_rows), growth)
    inexact = looks.size - 1
    # Pairwise, only the comparisons of the best arm with each other arm can remove it; marginal, any arm's mean can.
    comparisons = n_running - 1 if variance == "pairwise" else n_running
    log_inv_delta = math.log(comparisons) - math.log(delta)
    quantiles = np.zeros(looks.size)
    if inexact and bound == "normal":
        # With two arms the race ends at the first crossing on either side; with more an arm beaten by the best one may
        # stay and come back, and a guard may let a crossing pass, so each crossing counts.
        one_exit = n_running == 2 and variance == "pairwise" and not guarded
        quantiles = normal_quantiles(looks, first_look, growth, log_inv_delta, one_exit=one_exit, student=student)
    elif inexact and bound != "betting":
        log_inv_delta += math.log(inexact)
    for array in (looks, quantiles):
        array.setflags(write=False)
    return looks, quantiles, log_inv_delta


def normal_quantiles(
    looks: NDArray[np.int64], first_look: int, growth: float, log_inv_delta: float, *, one_exit: bool, student: bool
) -> NDArray[np.float64]:
    """The normal rule's quantile at each look, 0 at the last; `one_exit` if the first crossing ends the race."""
    kind = "first-exit" if one_exit else "one-sided"
    if looks.size - 1 > MOST_EXACT_LOOKS:
        kind = "sidak"
    n_rows, quantiles = int(looks[-1]), np.zeros(looks.size)
    quantiles[:-1] = bounds.normal_quantile(None, n_rows, first_look, growth, kind, log_inv_delta=log_inv_delta)
    if student:
        quantiles[:-1] = bounds.student_quantile(quantiles[:-1], looks[:-1], ddof=0)
    return quantiles


class FiniteRace:
    r"""Race arms over a finite population of rows; the arm with the largest mean wins.

    Every look reads more rows for the arms still in the race and drops those that the leader has beaten. A race that
    reads every row returns the exact best of the arms still left; arms dropped before were dropped by the bound.

    Parameters
    ----------
    n_arms : int
        Number of arms, at least 1 (D in [1]_).
    n_rows : int
        Rows of the population (N).
    delta : float, default 0.05
        Probability that the answer is not the best arm, in (0, 1).
    bound : {"auto", "normal", "betting", "hoeffding-serfling", "empirical-bernstein-serfling", "serfling"}
        Rule that drops arms. ``"auto"`` is betting without replacement [2]_ where `support` is given (rigorous, at any
        time) and the normal rule of [1]_ otherwise, which assumes that means of `first_look` rows are jointly normal.
        ``"serfling"`` is the smaller of the two Serfling bounds, each at delta / 2.
    variance : {"pairwise", "marginal"}, default "pairwise"
        Compare paired differences (keeps the rewards read) or single means (memory O(n_arms), more rows).
    first_look : int, default 50
        Rows of the first look, at least 2.
    growth : float, optional
        Factor between looks; 2.0, or 1.1 for betting, where looks are free.
    support : tuple of float or of arrays of shape (n_arms,), optional
        Interval (low, high) that holds every reward, offsets not included. Needed by every bound but the normal one.
    offset : array_like, shape (n_arms,), optional
        Constant of each arm on the scale of sums over all rows; -inf takes the arm out of the race.
    access : {"random", "shuffled"}, default "random"
        ``"random"`` reads a fresh uniform subset of rows. ``"shuffled"`` reads a window of rows in order from a random
        start, several times faster. The promise then holds only if the rows were put in uniform random order
        beforehand (`ArraySource.shuffled` does that): sorted rows void it, and the race cannot see that. Successive
        races share that one order, so their errors are not independent.
    student : bool, default False
        Student quantiles in the normal rule: protects small first looks.
    skewness_guard : bool, default False
        Postpone decisions of the normal rule while the skewness of the paired differences makes it unreliable (a
        heuristic, stricter than `tail_guard`).
    tail_guard : bool, default True
        Let the normal rule decide only on columns whose tails it has seen (a heuristic; see Notes). Other rules need
        no such guard.
    scan_advantage : float or None, default 1.0
        Cost of a row read at random over one read in order. Above 1, the race reads all rows in order once that is
        cheaper than the rows it still needs. None lets `run` take the source's own figure; `race` and
        `DiscreteSampler` do so. With a number, `ask` and `tell` make the same race as `run`, sample for sample.
    max_pulls : int, optional
        Most rewards to ask for, over all arms; at least one per arm. The race then stops with
        ``stopped_by="max_pulls"``: `best` is the arm with the largest mean so far, and the promise is that the best arm
        is among those in `active`.
        It never turns to a full pass that costs more than what is left.
    outside : {"raise", "warn"}, default "raise"
        What to do with a reward outside `support`: refuse it, or take it as it is and say in the result that the
        promise is void.
    names : sequence of str, optional
        What to call the arms in the result; by default the columns of the table that `run` is given.
    options : RaceOptions, optional
        Options said once for several races; what is spelled here goes before them.
    rng : None, int, SeedSequence or Generator, optional
        Source of randomness; its own bit generator is used, under its lock.

    Raises
    ------
    ValueError
        If a parameter is out of range, a rigorous bound has no `support`, or a reward is nan, +inf or outside it;
        the race is then as it was before the call. Only rewards that are read are checked: nobody can see a nan in a
        row that the race does not need.

    Notes
    -----
    The normal rule assumes that the means at each look are normally distributed. `tail_guard` corrects it in two
    ways. First, its half-widths allow for skewness, as Wilson's interval of a Poisson mean does. Second, it holds a
    decision back while all rewards read of the leader or of the other arm are equal, or while fewer than 24 of them
    (effectively) carry a tail that could turn the decision; the race then reads on, if need be to the last row, where
    the answer is exact.
    `RaceResult.held_back` names such arms. Rare large rewards among ordinary ones that vary cannot be suspected before
    one of them has been read: only a `support` protects from those.

    With probability at least ``1 - delta`` the result's `best` is :math:`\arg\max_i \mu_i`, with
    :math:`\mu_i = (c_i + \sum_n r_{n,i}) / N` and :math:`c_i` the offset. Reading T rows of D arms costs
    O(D T) time and memory, whatever N is, and never more than N D distinct rewards. Memory is 8 bytes per reward of the
    arms still in the race (pairwise) and, for the random order, at most 64 bytes per row read, beside 256 KiB; a race
    that reads more than an eighth of the rows keeps 4 bytes for each row of the population. From 2^31 rows on the
    random subset comes from a keyed pseudo-random order, which takes none.

    References
    ----------
    .. [1] Chen, Ghahramani, "Scalable Discrete Sampling as a Multi-Armed Bandit Problem", ICML 2016, Algorithm 1.
    .. [2] Waudby-Smith, Ramdas, "Estimating means of bounded random variables by betting", JRSS-B 2024.

    Examples
    --------
    >>> import numpy as np
    >>> import fastrace as fr
    >>> values = np.random.default_rng(0).random((100_000, 4)) + [0.0, 0.0, 0.1, 0.0]
    >>> race = fr.FiniteRace(4, 100_000, support=(0, 1.1), rng=1)
    >>> while not race.done:
    ...     arms, rows = race.ask()
    ...     race.tell(values[np.ix_(rows, arms)])
    >>> race.result().best
    2
    """

    @_checks.names_caller
    @_options.takes_options
    def __init__(
        self,
        n_arms: int,
        n_rows: int,
        delta: float = 0.05,
        bound: str = "auto",
        variance: str = "pairwise",
        first_look: int = 50,
        growth: float | None = None,
        support: _checks.Support | None = None,
        *,
        offset: ArrayLike | None = None,
        access: str = "random",
        student: bool = False,
        skewness_guard: bool = False,
        tail_guard: bool = True,
        scan_advantage: float | None = 1.0,
        max_pulls: int | None = None,
        outside: str = "raise",
        names: Sequence[str] | None = None,
        options: RaceOptions | None = None,
        rng: _checks.RngLike = None,
    ) -> None:
        self._options = RaceSettings(
            n_arms,
            n_rows,
            delta=delta,
            bound=bound,
            variance=variance,
            first_look=first_look,
            growth=growth,
            support=support,
            access=access,
            student=student,
            skewness_guard=skewness_guard,
            tail_guard=tail_guard,
            scan_advantage=scan_advantage,
            max_pulls=max_pulls,
            outside=outside,
        )
        constants = _options.constants(offset, "offset", n_arms)
        self._names = _checks.arm_names(names, n_arms)
        self._race = self._options.start(constants, rng)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild.saved(type(self), self._options, *self._race.saved(), self._names)

    def __repr__(self) -> str:
        o = self._options
        state = "over" if self.done else "running"
        return f"FiniteRace(n_arms={o.n_arms}, n_rows={o.n_rows}, delta={o.delta:g}, bound={o.bound!r}): {state}"

    @property
    def done(self) -> bool:
        """Whether the race is over."""
        return self._race.done

    def ask(self) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """Return the arms and the rows wanted next; the same until `tell` has taken their rewards."""
        return self._race.ask()

    def tell(self, rewards: ArrayLike) -> None:
        """Take the rewards that `ask` wanted.

        Parameters
        ----------
        rewards : array_like of float, shape (len(rows), len(arms))
            A row per row number, a column per arm, in the order of `ask`.
        """
        if np.ma.isMaskedArray(rewards):
            raise ValueError("rewards is a masked array; a race cannot skip rewards, so pass plain numbers")
        block = np.asarray(rewards)
        if block.ndim != 2 or block.dtype.kind not in "fiub":
            raise ValueError(
                f"rewards has shape {block.shape} and dtype {block.dtype}; real numbers, rows by arms, are needed"
            )
        with _checks.named_arms(self._names, self._race):
            self._race.tell(block.astype(np.float64, copy=False))

    def run(self, source: Source | ArrayLike) -> RaceResult:
        """Race on a source, or a table of shape (n_rows, n_arms), to the end, in compiled code without the GIL."""
        o = self._options
        rewards = _source_of(source, "source", n_arms=o.n_arms, n_rows=o.n_rows)
        columns = column_names(source)
        with naming(self, columns, self._race):
            self._race.run(rewards)
        return named(self.result(), columns, rewards)

    def result(self) -> RaceResult:
        """Return what is known so far; ``stopped_by`` is empty while the race is running."""
        return race_result(self._race, self._options, self._names)


def source_of(rewards: Any, n_arms: int | None, n_rows: int | None, support: _checks.Support | None) -> Source:
    """A source; the race's `support` overrides that of a source that has its own."""
    own = isinstance(rewards, Source)
    return as_source(rewards, n_arms=n_arms, n_rows=n_rows, support=None if own else support)


def race_result(
    core: _core.Race, options: RaceSettings, names: tuple[str, ...] | None, n_always_read: int = 0
) -> RaceResult:
    """Name what the compiled race knows; rows that are always read count as read."""
    known = options.answer(core)
    size = options.n_arms * (options.n_rows + n_always_read)
    read = int(known["pulls"].sum()) + options.n_arms * n_always_read
    return RaceResult(
        n_rows=options.n_rows,
        fraction_read=read / size if size else 0.0,
        bound=options.bound,
        delta=options.delta,
        warnings=core.warnings(),
        names=names,
        **known,
    )


@_checks.rebuilds(1, FiniteRace, subclasses=True)
def _rebuild(
    cls: Any, options: RaceSettings, rng: np.random.Generator, plan: Plan, state: dict[str, Any],
    names: tuple[str, ...] | None = None,
) -> Any:
    """Rebuild a pickled `FiniteRace`."""
    race = cls.__new__(cls)
    race._options = options
    race._names = _checks.arm_names(names, options.n_arms)
    race._race = options.core(rng)
    race._race.restore(plan, state)
    return race


@_options.takes_options
def race(
    rewards: Any,
    delta: float = 0.05,
    bound: str = "auto",
    *,
    names: Sequence[str] | None = None,
    support: _checks.Support | None = None,
    n_arms: int | None = None,
    n_rows: int | None = None,
    offset: ArrayLike | None = None,
    variance: str = "pairwise",
    first_look: int | None = None,
    growth: float | None = None,
    access: str = "random",
    student: bool = False,
    skewness_guard: bool = False,
    tail_guard: bool = True,
    max_pulls: int | None = None,
    outside: str = "raise",
    options: RaceOptions | None = None,
    rng: _checks.RngLike = None,
) -> RaceResult:
    """Find the column with the largest mean from as few rows as possible.

    Parameters
    ----------
    rewards : array_like, table, Source, callable or LowLevelCallable
        Rows by arms. A callable ``(arms, rows) -> block`` of shape (len(rows), len(arms)) needs `n_arms` and `n_rows`.
    delta : float, default 0.05
        Probability that the answer is wrong.
    bound : str, default "auto"
        See `FiniteRace`.
    names : sequence of str, optional
        What to call the arms in the result; by default the columns of a table.
    support : tuple of float or of arrays of shape (n_arms,), optional
        See `FiniteRace`.
    n_arms, n_rows : int, optional
        Size of the population, for callables.
    offset, variance
        See `FiniteRace`.
    first_look : int, optional
        Rows of the first look; 50, or more where a call costs more than the rows it brings.
    growth, access, student, skewness_guard, tail_guard, max_pulls, outside, options, rng
        See `FiniteRace`.

    Returns
    -------
    RaceResult
        The column with the largest mean, the estimates of all means and the rows read of each column.

    Raises
    ------
    ValueError
        If an argument is out of range, or a reward that is read is nan, +inf or outside `support`.

    Notes
    -----
    A race pays when few rows decide: clear gaps, noise of each row large. For small tables, or gaps near the noise
    of the mean of all rows, ``values.mean(axis=0).argmax()`` is as fast, and the race turns to such a pass by itself.
    A reward from a Python function is assumed to be expensive: the race asks for no more of them than its promise
    needs, and for at most `max_pulls`. For quick functions, give `CallableSource` their cost (``reward_cost``).

    Examples
    --------
    >>> import numpy as np
    >>> import fastrace as fr
    >>> values = np.random.default_rng(0).random((100_000, 4)) + [0.0, 0.0, 0.1, 0.0]
    >>> result = fr.race(values, support=(0, 1.1), rng=1)
    >>> result.best, result.fraction_read < 0.1
    (2, True)
    """
    with _checks.options_of("race"):
        source = source_of(rewards, n_arms, n_rows, support)
        settings = RaceSettings(
            source.n_arms,
            source.n_rows,
            delta=delta,
            bound=bound,
            variance=variance,
            first_look=max(2, source.first_look) if first_look is None else first_look,
            growth=growth,
            support=source.support if support is None else support,
            access=access,
            student=student,
            skewness_guard=skewness_guard,
            tail_guard=tail_guard,
            scan_advantage=None,
            max_pulls=max_pulls,
            outside=outside,
        )
        if source.n_rows + source.n_always_read == 0 and offset is None:
            raise ValueError("rewards has 0 rows and there is no offset: nothing tells the arms apart")
        constants = _options.constants(offset, "offset", settings.n_arms)
        given = _checks.arm_names(names, settings.n_arms)
        core = settings.start(constants, rng)
    columns = column_names(rewards)
    with _checks.named_arms(remembered(given, columns), core):
        core.run(source)
    return named(race_result(core, settings, given, source.n_always_read), columns, source)
