"""Races over a finite population: which of several means is the largest."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace._base import _callers, _checks, _clock, _frames, _progress
from fastrace._base._requests import InFlight
from fastrace.races import _options
from fastrace.races._in_flight import Flight
from fastrace.races._options import RaceOptions
from fastrace.races._receipts import completed, dear, is_scored, receipts
from fastrace.races._settings import Plan, RaceSettings, race_result
from fastrace.results import RaceResult
from fastrace.results.columns import called, named, naming
from fastrace.sources import CallableSource, Source, _source_of, as_source, column_names

FIRST_LOOK = 50


class FiniteRace(InFlight):
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
    first_look : int, optional
        Rows of the first look, at least 2; 50, or 20 with a `proxy`, which says nothing before.
    growth : float, optional
        Factor between looks; 2.0, or 1.05 for betting, where looks cost no evaluations.
    support : tuple of float or of arrays of shape (n_arms,), optional
        Interval (low, high) that holds every reward, offsets not included. Needed by every bound but the normal one.
    offset : array_like, shape (n_arms,), optional
        Constant of each arm on the scale of sums over all rows; -inf takes the arm out of the race.
    order : {"random", "given"}, default "random"
        ``"random"``: the race draws the rows uniformly at random, whatever order the table is in, and pays for no cell
        twice. It draws a row at most once. ``"given"``: it reads a window of rows in their order from a random start,
        several times faster. The promise then holds only if the rows were put in uniform random order beforehand
        (`ArraySource.shuffled` does that): sorted rows void it, and the race cannot see that. Successive races share
        that one order, so their errors are not independent. Its former name is ``access``, with "shuffled" for "given".
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
    epsilon : float, default 0.0
        How far below the best a mean may be, in reward units: the race also stops once no arm left can be better by
        `epsilon`, so that near ties are not read to the end.
    n_best : int, default 1
        How many arms to find: those with the largest means. The other options mean the same for several.
    max_pulls : int, optional
        Most rewards to ask for, over all arms; at least one per arm. The race then stops with
        ``stopped_by="max_pulls"``: `best` are the arms with the largest means so far, and the promise is that the best
        arms are among those in `active`; `RaceResult.error_bound` says how sure the answer is.
        It never turns to a full pass that costs more than what is left.
    cost : float or array_like of shape (n_arms,), optional
        What one evaluation costs, in any unit; `RaceResult.cost` adds it up. A race whose evaluations cost something
        never reads a row again for a pass in order; it favours no cheap arm. A series of pandas, here and in `support`
        and `offset`, goes by the names of the arms. Without `names` the first series names the arms, and tables must
        have the same names.
    missing : {"raise", "drop", "worst"}, default "raise"
        What a missing reward does, which is nan (told by hand, also None). ``"raise"`` refuses it. ``"drop"`` takes the
        row out of the population for all arms: the answer is about the rows that no arm misses. To know them, the race
        reads all arms until it is over: an arm that is beaten early goes on costing rewards. It refuses -inf. Where no
        row of the first 100 is whole, it warns of arms that gave no reward, and after a quarter of the rows, at least
        100 and at most 5,000, that is an error: the look is not taken, and the race goes on once the cause is mended,
        with the rows that are left. Tables, which cost nothing, are read to their end.
        ``"worst"`` counts it as the low end of `support`: rigorous where failures count as failures. Neither reads rows
        in order.
    outside : {"raise", "warn"}, default "raise"
        What to do with a reward outside `support`, -inf included: refuse it, or take it as it is and say in the result
        that the promise is void. Where -inf is taken, as it is without a support, its arm leaves at once. A pass over
        all rows in order sums them and compares none with `support`: means are then those of the rewards as they are.
    proxy : array_like of shape (n_rows,) or (n_rows, n_arms), optional
        A cheap score of every row, such as a model's verdict beside a person's: one per arm, or one that all share.
        The race then needs fewer rewards, by the share that the scores explain of the differences between arms. They
        need be neither unbiased nor on the scale of rewards; larger or smaller ones may mean larger rewards. Columns
        of a table go by the names of the arms, as in `cost`. For betting; rewards are then dear, and none is read again
        for a pass in order. See Notes.
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
    :math:`\mu_i = (c_i + \sum_n r_{n,i}) / N` and :math:`c_i` the offset; or, with `epsilon`, no more than that below.
    Proof: let S be the `n_best` best arms. The arms with the largest means so far lead. An arm leaves once all that
    lead have beaten it, and one that leads is safe once it has beaten all others. If an arm i of S leaves, or one
    outside S is safe, some j outside S was declared above some i in S. A pair has two tests, of the nulls
    :math:`\mu_j \le \mu_i` and :math:`\mu_j \le \mu_i - \epsilon`. Leaving and being safe need both to be refuted,
    stopping near a tie only the second. If the second null is true, every error of the pair is inside its refutation;
    if not, only leaving and being safe are errors, inside that of the first. So one test per pair at delta over the
    number of pairs suffices. Reading T rows of D arms costs
    O(D T) time and memory, whatever N is, and never more than N D distinct rewards. Memory is 8 bytes per reward of the
    arms still in the race (pairwise) and, for the random order, at most 64 bytes per row read, beside 256 KiB; a race
    that reads more than an eighth of the rows keeps 4 bytes for each row of the population. From 2^31 rows on the
    random subset comes from a keyed pseudo-random order, which takes none.

    With ``missing="drop"`` a dropped row counts as a tie of all arms. The sum of a pair's differences over all rows is
    then the sum over the rest, so each null is one about the rest, the population keeps its size, and the bets stay as
    valid as without; with `epsilon`, only rows that are not dropped are lifted. Whether a row is dropped depends on the
    rewards of all arms, so none leaves before the race is over: with fewer arms the later rows would be of another
    population than the earlier ones. An arm with a reward of -inf would leave at once, so such a reward is refused.

    With a proxy the race bets on :math:`y - c q + s`. Here y is the reward and q the score less its mean over all rows,
    so :math:`y - c q` has the same sum over all rows as y. The coefficient c is learned at the first look and whenever
    the rows have doubled since, and used for later rows only. s keeps the sum over the rows not yet read what it is
    for y, as c changes [3]_. So the promise holds whatever the scores are. Scores of each arm have one
    coefficient for all arms, that of the regression of differences between arms within rows. A score that arms share
    has a coefficient for each arm: it helps by saying on which rows an arm gains more than others. With a correlation r
    between differences of rewards and of scores, the race needs about :math:`1 - r^2` times the rewards; useless scores
    cost up to 2 %. Two limits: nothing is gained before the first look, and a lead g between two arms of a support of
    width w takes :math:`(w + c \max(q_j - q_i)) \log(1 / \delta) / (0.9 g)` rows at least, however little the
    adjusted rewards vary. Cut off scores that are far larger than all others: no coefficient is taken that makes the
    scores range more widely than `support`. Means and intervals in the result are about rewards, in reward units, and
    both kinds of intervals come from bets.

    References
    ----------
    .. [1] Chen, Ghahramani, "Scalable Discrete Sampling as a Multi-Armed Bandit Problem", ICML 2016, Algorithm 1.
    .. [2] Waudby-Smith, Ramdas, "Estimating means of bounded random variables by betting", JRSS-B 2024.
    .. [3] Shekhar, Xu, Lipton, Liang, Ramdas, "Risk-limiting Financial Audits via Weighted Sampling without
       Replacement", UAI 2023, for the coefficients; `Proxy` for s.

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

    _scored = False     # whether its rewards are scores of predictions, and these no rewards

    @_callers.names_caller
    @_options.takes_options
    def __init__(
        self,
        n_arms: int,
        n_rows: int,
        delta: float = 0.05,
        bound: str = "auto",
        variance: str = "pairwise",
        first_look: int | None = None,
        growth: float | None = None,
        support: _checks.Support | None = None,
        *,
        offset: ArrayLike | None = None,
        order: str = "random",
        student: bool = False,
        skewness_guard: bool = False,
        tail_guard: bool = True,
        scan_advantage: float | None = 1.0,
        epsilon: float = 0.0,
        n_best: int = 1,
        max_pulls: int | None = None,
        cost: ArrayLike | None = None,
        missing: str = "raise",
        outside: str = "raise",
        proxy: ArrayLike | None = None,
        names: Sequence[str] | None = None,
        options: RaceOptions | None = None,
        rng: _checks.RngLike = None,
    ) -> None:
        arms = _options.population(n_arms, n_rows)[0]
        self._names = _frames.arms_called(names, arms, **_by_arm(support, offset, cost, proxy))
        self._options = RaceSettings(
            n_arms,
            n_rows,
            delta=delta,
            bound=bound,
            variance=variance,
            first_look=_first_look(proxy) if first_look is None else first_look,
            growth=growth,
            support=support,
            order=order,
            student=student,
            skewness_guard=skewness_guard,
            tail_guard=tail_guard,
            scan_advantage=_once(cost, proxy) if scan_advantage is None else scan_advantage,
            max_pulls=max_pulls,
            outside=outside,
            epsilon=epsilon,
            n_best=n_best,
            cost=cost,
            missing=missing,
            proxy=proxy,
            names=self._names,
        )
        constants = _options.constants(offset, "offset", n_arms, self._names)
        self._race = self._options.start(constants, rng)
        self._flight: Flight | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        flight = None if self._flight is None else self._flight.saved()
        scored = (True,) if self._scored else ()
        return _rebuild.saved(type(self), self._options, *self._race.saved(), self._names, flight, *scored)

    def __repr__(self) -> str:
        o = self._options
        state = "over" if self.done else "running"
        return f"FiniteRace(n_arms={o.n_arms}, n_rows={o.n_rows}, delta={o.delta:g}, bound={o.bound!r}): {state}"

    @property
    def done(self) -> bool:
        """Whether the race is over."""
        return self._race.done

    @property
    def active(self) -> NDArray[np.intp]:
        """Arms that have not left, as in `RaceResult`, without the work of a result."""
        return self._race.active()

    def ask(self, n: int | None = None, *, pending: bool = False) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """Return the arms and the rows wanted next.

        Parameters
        ----------
        n : int, optional
            With `pending`, how many rows to hand out; by default the rest of the next look.
        pending : bool, default False
            By default the answer is the same until `tell` has taken all its rewards. With True, each call hands out
            further rows, so that many requests can be under way at once. Each row is for all arms that are still in
            the race. At times no row can be handed out until you tell further rewards.

        Returns
        -------
        arms : ndarray of int, shape (k,)
            Arms of which a reward is wanted for each of the rows.
        rows : ndarray of int64, shape (m,)
            The rows, in the order in which they are read.

        Raises
        ------
        ValueError
            If the race is over, or if rewards handed out with `pending` are still out and `pending` is False.

        Notes
        -----
        With `pending`, the promise and the answer stay the same. The order of rows is fixed beforehand, and rewards
        enter the race in that order: those that come early are held back. What is handed out beyond the next look is
        paid for in vain where its arm leaves at that look; `max_pulls` counts it, and ``RaceResult.n_unused`` says
        how much that was.
        """
        if not _checks.flag(pending, "pending"):
            if n is not None:
                raise ValueError(f"n is {n} and pending is False; a number of rows needs pending=True, because a look "
                                 f"needs all its rows")
            self._not_in_flight("ask()")
            return self._race.ask()
        rows = None if n is None else _checks.integer(n, "n", 1, "it counts rows")
        flight = self._fly()
        asked = flight.ask(rows)
        flight.by_run = False
        return asked

    def _new_flight(self) -> Flight:
        return self._options.flight(self._race)

    def _compiled_race(self) -> Any:
        return self._race

    def _paid(self) -> bool:
        return self._race.n_looked > 0 or self._under_way

    def tell(self, rewards: ArrayLike, arms: ArrayLike | None = None, rows: ArrayLike | None = None) -> None:
        """Take the rewards that `ask` wanted.

        Parameters
        ----------
        rewards : array_like of float, shape (len(rows), len(arms))
            A row per row number, a column per arm, in the order of `ask`; columns of a table go by the names of the
            arms, if both have names.
        arms, rows : array_like of int, optional
            With ``ask(pending=True)``: which rewards these are, any block of those handed out, in any order; an int
            each for a single number. Rewards whose arm has left are taken and not used.
        """
        if arms is not None or rows is not None:
            self._tell_pending(rewards, arms, rows)
            return
        self._not_in_flight("tell() without arms and rows")
        names = self._names
        if _frames.labels_of(rewards) is not None and not self.done:
            rewards, names = _frames.block_of(rewards, names, self._race.ask()[0], self._options.n_arms)
        block = _checks.numbers_of(rewards, "rewards")
        if block.ndim != 2 or block.dtype.kind not in "fiub":
            shape = () if self.done else tuple(asked.size for asked in self._race.ask()[::-1])
            needed = f" of shape {shape}" if shape else ""
            raise ValueError(f"rewards has shape {block.shape} and dtype {block.dtype}; real numbers{needed}, rows by "
                             f"arms, are needed")
        with _checks.named_arms(names, self._race):
            self._race.tell(block.astype(np.float64, copy=False))
        self._names = names
        if self._flight is not None:
            self._flight.aim()

    def _tell_pending(self, rewards: ArrayLike, arms: ArrayLike | None, rows: ArrayLike | None) -> None:
        if self._flight is None or arms is None or rows is None:
            raise ValueError("arms and rows go together, and with rewards that ask(pending=True) has handed out")
        which = [_checks.indices(value, name, size) for value, name, size in
                 ((arms, "arms", self._options.n_arms), (rows, "rows", self._options.n_rows))]
        shape = which[1].size, which[0].size
        rewards = math.nan if rewards is None else rewards
        given, names = _frames.block_of(rewards, self._names, which[0], self._options.n_arms)
        block = _checks.numbers_of(given, "rewards")
        block = block.reshape(shape) if block.ndim == 0 and shape == (1, 1) else block
        if block.dtype.kind not in "fiub" or block.shape != shape:
            raise ValueError(f"rewards has shape {block.shape} and dtype {block.dtype}; real numbers of shape {shape} "
                             f"are needed, rows by arms")
        with _checks.named_arms(names, self._race):
            self._flight.tell(block.astype(np.float64), which[0], which[1])
        self._names = names

    def run(
        self, source: Source | ArrayLike, *, progress: bool = False, max_seconds: float | None = None
    ) -> RaceResult:
        """Race on a source, or a table of shape (n_rows, n_arms), to the end, in compiled code without the GIL.

        With `progress`, show the rewards read, against `max_pulls` if that is given, on standard error; needs rich.
        After `max_seconds` return what the last look knew, with ``stopped_by="max_seconds"``; another call goes on, and
        asks for no reward of a function again.
        Where a function raises, and at Ctrl-C, call `run` again to go on: what has been paid for is not asked again.
        """
        o = self._options
        rewards = _source_of(source, "source", n_arms=o.n_arms, n_rows=o.n_rows)
        if self._scored and not is_scored(rewards):
            raise ValueError("this race is over the scores of predictions, and source would be read as scores: give "
                             "result.source, or error.source, of race_predictions, which scores what it reads")
        columns = column_names(source)
        if self._flight is None or not self._flight.by_run:
            self._not_in_flight("run()")
        end, ended = _clock.deadline(max_seconds), ""
        try:
            with (naming(self, columns, self._race, _frames.row_names(source)), shown(o, progress, end) as report,
                  receipts(rewards, self._race, o, self._names, lambda: self) as running):
                if self._flight is not None:
                    self._flight.finish(running.read)
                self._race.run(running, report, not dear(rewards, o))
        except _clock.OutOfTime:
            ended = "max_seconds"
        finally:
            if self._flight is not None:
                self._flight.aim()
        return completed(named(self._as_it_stands(ended), columns, rewards), rewards)

    def result(self) -> RaceResult:
        """Return what is known so far; ``stopped_by`` is empty while the race is running."""
        return self._as_it_stands()

    def _as_it_stands(self, ended: str = "") -> RaceResult:
        """The result of a race, which may have been `ended` from without."""
        return race_result(self._race, self._options, self._names, flight=self._flight, ended=ended)


def _by_arm(support: Any, offset: Any, cost: Any, proxy: Any) -> dict[str, Any]:
    """What may name the arms: a proxy that is a vector has an entry per row."""
    return {"support": support, "offset": offset, "cost": cost,
            "proxy": proxy if len(getattr(proxy, "shape", (0, 0))) == 2 else None}


def _first_look(proxy: Any, of_source: int = FIRST_LOOK) -> int:
    """Rows of the first look, after which a proxy begins to help; a source may want more, or fewer."""
    return max(2, of_source if proxy is None or of_source != FIRST_LOOK else 20)


def _of_source(rewards: Any, source: Source, cost: Any) -> int:
    """The first look that a source wants: it counts only where a call costs more than the rewards that it brings."""
    plain = type(source) is CallableSource and not isinstance(rewards, Source)
    return FIRST_LOOK if plain or cost is not None else source.first_look


def _once(cost: Any, proxy: Any) -> float | None:
    """The advantage of a pass in order: none over rewards that cost something, which are never read again."""
    return None if cost is None and proxy is None else 1.0


@contextlib.contextmanager
def shown(options: RaceSettings, progress: bool, end: float) -> Iterator[Callable[[int], None] | None]:
    """Yield what shows how many rewards have been read, and raises from the time `end` on; None if neither is wanted.
    """
    if not _checks.flag(progress, "progress"):
        yield None if end == math.inf else _clock.until(end, lambda read: None)
        return
    with _progress.meter("rewards", None if options.max_pulls < 0 else options.max_pulls, True) as show:
        yield _clock.until(end, show)


def source_of(rewards: Any, n_arms: int | None, n_rows: int | None, support: _checks.Support | None) -> Source:
    """A source; the race's `support` overrides that of a source that has its own."""
    own = isinstance(rewards, Source)
    return as_source(rewards, n_arms=n_arms, n_rows=n_rows, support=None if own else support)


def _by_name(rewards: Any, delta: Any, bound: Any) -> None:
    """Refuse what `race_async` or a rule of `select` takes by position where `race` takes delta and bound."""
    if isinstance(delta, (int, np.integer)) and delta >= 1 and not isinstance(rewards, Source) and callable(rewards):
        whole = isinstance(bound, (int, np.integer))
        raise ValueError(
            f"delta is {delta}{f' and bound is {bound}' if whole else ''}, as they stand behind rewards; sizes, which "
            f"a function does not show, go by name: race(rewards, n_arms={delta}, n_rows={bound if whole else '...'})"
        )
    if isinstance(bound, (tuple, list)):
        raise TypeError(f"bound is {_checks.shown(bound)}, as it stands third; the interval that holds every reward "
                        f"goes by name: race(rewards, support={_checks.shown(bound)})")


@_checks.rebuilds(1, FiniteRace, subclasses=True)
def _rebuild(
    cls: Any, options: RaceSettings, rng: np.random.Generator, plan: Plan, state: dict[str, Any],
    names: tuple[str, ...] | None, flight: dict[str, Any] | None = None, scored: bool = False,
) -> Any:
    """Rebuild a pickled `FiniteRace`."""
    race = cls.__new__(cls)
    race._options = options
    race._names = _checks.arm_names(names, options.n_arms)
    race._race = options.core(rng)
    options.promise(race._race)
    race._race.restore(plan, state)
    race._flight = None
    if scored:
        race._scored = True
    if flight is not None:
        race._flight = options.flight(race._race)
        race._flight.restore(flight)
    return race


def _begun(settings: RaceSettings, core: Any, names: tuple[str, ...] | None, source: Source) -> FiniteRace:
    """The race that a compiled one is, over such a source."""
    race = FiniteRace.__new__(FiniteRace)
    race._options, race._race, race._names, race._flight = settings, core, names, None
    race._scored = is_scored(source)
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
    order: str = "random",
    student: bool = False,
    skewness_guard: bool = False,
    tail_guard: bool = True,
    epsilon: float = 0.0,
    n_best: int = 1,
    max_pulls: int | None = None,
    cost: ArrayLike | None = None,
    missing: str = "raise",
    outside: str = "raise",
    proxy: Any = None,
    max_seconds: float | None = None,
    progress: bool = False,
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
        Rows of the first look; 50, or 20 with a `proxy`. A `Source` may want more, if rewards have no `cost`:
        `CallableSource` does, which can be told that its function is quick.
    growth, order, student, skewness_guard, tail_guard, epsilon, n_best, max_pulls, cost, missing, outside, proxy
        See `FiniteRace`.
    max_seconds : float, optional
        Seconds after which to stop with what the last look knew, ``stopped_by="max_seconds"``: intervals and
        `error_bound` hold as after any look. A call of a function that is under way is waited for, and so is a full
        pass over a table. Rewards read since are left out, but not lost: ``result.race.run(result.source)`` goes on,
        and asks for no reward of a function again.
    progress : bool, default False
        Show the rewards read, against `max_pulls` if that is given, on standard error; needs rich.
    options, rng
        See `FiniteRace`.

    Returns
    -------
    RaceResult
        The column with the largest mean, the estimates of all means and the rows read of each column.

    Raises
    ------
    ValueError
        If an argument is out of range, or a reward that is read is nan, +inf or, but in a pass over all rows in order,
        outside `support`.
    Exception
        What a function of rewards raises, and KeyboardInterrupt at Ctrl-C, unchanged; what was paid for goes with it
        (see Notes).

    Notes
    -----
    An exception in a function, Ctrl-C and a reward that is refused have the attributes ``race``, the `FiniteRace` as it
    stands, and ``source``, what it read. Nothing that a call of the function has returned is lost:
    ``error.race.result()`` is what is known, ``error.race.run(error.source)``, or ``run`` with a function that has been
    mended, goes on to the result of a race that nothing stopped, and asks for nothing again but rewards that were
    refused. The race pickles.

    A race pays when few rows decide: clear gaps, noise of each row large. For small tables, or gaps near the noise
    of the mean of all rows, ``values.mean(axis=0).argmax()`` is as fast, and the race turns to such a pass by itself:
    where rows are cheaper in order, as in memory, and only if that is cheaper than the rest of the race and within
    `max_pulls`. Rewards that have a `cost` are never read again for it, nor where some may be `missing`.
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

    Verdicts of people are dear. A model has judged all answers, and agrees with people nine times in ten:

    >>> rng = np.random.default_rng(0)
    >>> right = (rng.random((20_000, 3)) < [0.60, 0.66, 0.62]).astype(float)
    >>> judged = np.where(rng.random((20_000, 3)) < 0.9, right, 1 - right)
    >>> plain = fr.race(right, support=(0, 1), cost=1.0, rng=1)
    >>> result = fr.race(right, support=(0, 1), proxy=judged, rng=1)
    >>> result.best, result.n_read < 0.6 * plain.n_read
    (1, True)
    """
    with _callers.options_of("race"):
        if n_arms is None or n_rows is None:
            _by_name(rewards, delta, bound)
        _frames.require_same_rows(rewards=rewards, proxy=proxy)
        columns = column_names(rewards)
        if support is not None:
            support = _frames.support_of_arms(support, columns if names is None else names)
        source = source_of(rewards, n_arms, n_rows, support)
        known = called(names, columns, source.n_arms, **_by_arm(support, offset, cost, proxy))
        given = _checks.arm_names(names, source.n_arms) if columns is not None else known
        settings = RaceSettings(
            source.n_arms,
            source.n_rows,
            delta=delta,
            bound=bound,
            variance=variance,
            first_look=_first_look(proxy, _of_source(rewards, source, cost)) if first_look is None else first_look,
            growth=growth,
            support=source.support if support is None else support,
            order=order,
            student=student,
            skewness_guard=skewness_guard,
            tail_guard=tail_guard,
            scan_advantage=_once(cost, proxy),
            max_pulls=max_pulls,
            outside=outside,
            epsilon=epsilon,
            n_best=n_best,
            cost=cost,
            missing=missing,
            proxy=proxy,
            names=known,
        )
        if source.n_rows + source.n_always_read == 0 and offset is None:
            raise ValueError("rewards has 0 rows and there is no offset: nothing tells the arms apart")
        constants = _options.constants(offset, "offset", settings.n_arms, known)
        core = settings.start(constants, rng)
        end = _clock.deadline(max_seconds)
    going: FiniteRace | None = None
    try:
        with (_checks.named_arms(known, core, _frames.row_names(rewards)), shown(settings, progress, end) as report,
              receipts(source, core, settings, known, lambda: _begun(settings, core, known, source)) as running):
            core.run(running, report, not dear(source, settings))
    except _clock.OutOfTime as late:
        going = None if core.done else getattr(late, "race", None) or _begun(settings, core, known, source)
    flight, ended = (None, "") if going is None else (going._flight, "max_seconds")
    result = named(race_result(core, settings, given, source.n_always_read, flight, ended), columns, source)
    if going is not None:
        result = dataclasses.replace(result, race=going, source=source)
    return completed(result, source)
