"""Select the m best of n arms from endless streams of rewards: what all rules share."""

from __future__ import annotations

import bisect
import copy
import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace._base import _callers, _checks, _clock, _frames, _progress
from fastrace._base._answers import take_apart
from fastrace._base._docs import filled
from fastrace._base._handed import handed_over
from fastrace._base._pull_flight import PullFlight, PullsInFlight
from fastrace._base._requests import charges
from fastrace._base._words import counted
from fastrace.pulls import PullSource, ResampledPulls, as_pulls, is_population
from fastrace.results import SelectionResult
from fastrace.results.columns import best_of, named, naming
from fastrace.select import _ending
from fastrace.select._selector import LARGEST_BATCH, Selector
from fastrace.select._tables import OverTables, check_table, ledger_of
from fastrace.sources import Source, _source_of, column_names

NO_LIMIT = 2**63 - 1
SCALES = ((1.0, 0.9), (0.02, 0.1))  # of mixtures at all times, beside the first; and their weights

# What the docstrings of rules say alike: a line that holds a name in braces, and nothing else, stands for the text.
SHARED_TEXTS = {
    "arms": """\
n_arms, n_best : int
    Number of arms, and how many of them to select (n and m in the papers).""",
    "epsilon": """\
epsilon : float
    Accuracy in reward units, above 0: an arm whose mean is within `epsilon` of the m-th largest is good enough.""",
    "delta": """\
delta : float, default 0.05
    Probability that an arm of the answer is not good enough, in (0, 1).""",
    "support": """\
support : tuple of float or of arrays of shape (n_arms,), default (0, 1)
    Interval (low, high) that holds every reward, of each arm.""",
    "names": """\
names : sequence of str, optional
    What to call the arms in the result; by default the columns of the table that `run` is given.""",
    "cost": """\
cost : float or array_like of shape (n_arms,), optional
    What one pull of an arm costs, in any unit; ``result().cost`` adds it up, the cells of a table once each. Of a table
    it says when reading the rest is cheaper, see `run`; it changes no other decision.""",
    "missing": """\
missing : {"raise", "drop", "worst"}, default "raise"
    What a missing reward does: nan, or None. ``"raise"`` refuses it. ``"worst"`` counts it as the low end of its
    support: rigorous where failures count as failures. ``"drop"`` counts it as a pull and a cost, and as nothing else:
    the answer is about the means of the rewards that came, :math:`E(x_i | x_i \\text{ came})`. Where an arm fails to
    answer what it is bad at, that is more than its mean over all draws; take ``"worst"`` then. Each arm has missing
    rewards of its own, so means are those of other draws; races over tables and `BettingRace` drop a row or round for
    all arms. An arm that is silent for its first 100 pulls is named in a warning, and one that is silent for at least
    1,000, and far longer than before, or for its first 5,000, in an error; so is all arms' silence in the first 100 and
    5,000 pulls together. The error leaves the rule with all rewards that came.""",
    "no rng": """\
rng : None, int, SeedSequence or Generator, optional
    Source of randomness. The rule itself draws nothing; `run` spawns from it what draws rows of a table.""",
    "errors": """\
Raises
------
ValueError
    If a parameter is out of range, or a reward is nan or outside the support; nothing is changed then.""",
    "promise": r"""
With probability at least ``1 - delta`` every arm of the answer has :math:`\mu_i \ge \mu_{(m)} - \epsilon`.""".lstrip(),
}


class Selection(OverTables, PullsInFlight):
    """Base of all rules that select the m best of n arms.

    A rule is driven by hand, by `ask` and `tell`, or by `run`; both give the same answer from the same rewards.
    Subclasses check their own parameters, name their compiled class in `_compiled` and complete the answer in
    `_bounds`.
    """

    _compiled: ClassVar[type[Selector]]
    _n_arms: int
    _n_best: int
    _epsilon: float
    _delta: float
    _support: tuple[NDArray[np.float64], NDArray[np.float64]]
    _names: tuple[str, ...] | None
    _options: dict[str, Any]
    _given: dict[str, Any]
    _maker: type[Selection]
    _core: Selector
    _cost: NDArray[np.float64] | None = None        # of a pull of each arm
    _paired: bool = False       # rewards come in rounds of common draws
    _missing: str = "raise"
    _endless: ClassVar[bool] = False    # no plan ends the rule: it need not stop where means are equal and epsilon is 0

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.__doc__ = filled(cls.__doc__, SHARED_TEXTS)
        if "__init__" in vars(cls):
            cls.__init__ = _callers.names_caller(cls.__init__)  # type: ignore[method-assign]

    def _check(
        self, n_arms: int, n_best: int, epsilon: float, delta: float,
        support: _checks.Support | None, names: Sequence[str] | None,
    ) -> None:
        """Check and keep what every rule is given."""
        self._n_arms = _checks.integer(n_arms, "n_arms", 1, "a selection needs arms")
        self._n_best = _checks.n_best(n_best, self._n_arms)
        self._epsilon = _checks.epsilon(epsilon)
        self._delta = _checks.probability(delta, "delta")
        if support is None:
            raise ValueError(f"support is None; {type(self).__name__} needs support=(low, high), an interval that "
                             f"holds every reward: only LUCB by pairs, the default of select_best, does without")
        self._names = _frames.arms_called(names, self._n_arms, support=support)
        low, high = _checks.support_bounds(_frames.support_of_arms(support, self._names), self._n_arms)
        if not (low < high).all():
            raise ValueError(
                f"support is {support!r}; low < high is needed: an arm whose reward is known needs no pulls"
            )
        self._support = low, high

    def _begin(self, maker: type[Selection], given: dict[str, Any], rng: _checks.RngLike, **options: Any) -> None:
        """Set up the compiled state and make the first request; the last call of the ``__init__`` of `maker`.

        `given` are the arguments of that ``__init__`` but `rng`, by name: a saved rule is made of them again, so that
        whatever follows from them is checked and cannot be damaged.
        """
        self._maker, self._given = maker, given
        self._options = options
        self._core = self._make(_checks.generator(rng))
        self._core.start()
        self._own = frozenset(self.__dict__)

    @property
    def _widths(self) -> NDArray[np.float64]:
        return self._support[1] - self._support[0]

    def _shared(self, *without: str) -> dict[str, Any]:
        """The checked arguments that rules share, but for some."""
        known = {
            "n_arms": self._n_arms,
            "n_best": self._n_best,
            "epsilon": self._epsilon,
            "delta": self._delta,
            "support": self._support,
            "names": self._names,
        }
        return {name: value for name, value in known.items() if name not in without}

    def _make(self, rng: np.random.Generator) -> Selector:
        """A fresh compiled object from `_options`."""
        low, high = self._support
        return self._selector()(self._n_arms, self._n_best, low=low, high=high, rng=rng, **self._options)

    def _selector(self) -> type[Selector]:
        """The compiled class, where it depends on the options."""
        return self._compiled

    @abstractmethod
    def _bounds(self) -> dict[str, Any]:
        """`rule`, `lower`, `upper` and what else `SelectionResult` should show for this rule."""

    def __reduce__(self) -> tuple[Any, ...]:
        left_out = self._own | {"_own", "_flight"}
        added = {name: value for name, value in self.__dict__.items() if name not in left_out}
        if self._ledger is not None and self._drawn is not None:
            added |= {"_ledger": copy.copy(self._ledger), "_drawn": self._drawn.copy()}
        given = {**self._given, "names": self._names}
        known = {"maker": self._maker, "given": given, "added": added}
        if self._flight is not None:
            known["flight"] = self._flight.saved()
        return _rebuild.saved(type(self), known, self._core.get_state())

    def __repr__(self) -> str:
        state = f"stopped by {self._core.stopped_by}" if self._core.stopped_by else "running"
        return (
            f"{type(self).__name__}(n_arms={self._n_arms}, n_best={self._n_best}, epsilon={self._epsilon:g}, "
            f"delta={self._delta:g}): {counted(self._core.total, 'pull')}, {state}"
        )

    @property
    def n_pulls(self) -> int:
        """Pulls made."""
        return self._core.total

    def ask(self, n: int | None = None, *, pending: bool = False) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """Return the arms wanted next, and how many pulls of each; or pulls to send, with `pending`.

        Parameters
        ----------
        n : int, optional
            With `pending`, how many pulls to hand out; by default the rest of what the rule asks for.
        pending : bool, default False
            By default the answer is the same until `tell` has taken all its rewards. With True, each call hands out
            further pulls, one by one, so that many requests can be under way at once. At times fewer than `n` can be
            handed out, or none, until you tell further rewards.

        Returns
        -------
        arms : ndarray of int, shape (k,)
            Arms to pull, each once; with `pending` the arm of each pull.
        counts or pulls : ndarray of int64, shape (k,)
            How many pulls of each arm; with `pending` the number of each pull, those of an arm counted from 0.

        Raises
        ------
        ValueError
            If the rule has stopped, or if pulls handed out with `pending` are still out and `pending` is False.

        Notes
        -----
        With `pending`, the promise and the answer stay the same. The rewards of an arm enter the rule in the order of
        its pulls, and only once all that the rule asks for has come; those that come early are held back. The pulls
        that the rule asks for are handed out first, then further ones, more of the arms that it asked for lately. Of
        these, at most twice as many as are out at once are out or held back, or a sixteenth of all pulls made, if that
        is more. What the rule has no use for when it stops is paid for in vain: ``SelectionResult.n_unused`` says how
        much that was.
        With ``paired=True`` the number of a pull is that of a draw: all rewards of one number must be of one draw.
        Nothing is handed out ahead then, as the rule says itself which arms share a draw; a larger `batch` lets more
        requests be under way.
        """
        if not _checks.flag(pending, "pending"):
            if n is not None:
                raise ValueError(f"n is {n} and pending is False; a number of pulls needs pending=True, because a rule "
                                 f"needs all that it asks for")
            if not self.done:
                self._not_in_flight("ask()")
            return self._core.ask()
        return self._ask_pending(n)

    def _new_flight(self) -> PullFlight:
        def run(pull: Any, max_pulls: int, stop: bool) -> None:
            self._core.run(as_pulls(pull, self._n_arms, paired=self._paired), max_pulls, stop)

        return PullFlight(self._core, run, rounds=self._paired)

    def _compiled_race(self) -> Selector:
        return self._core

    def _shape(self) -> tuple[int, bool]:
        return self._n_arms, not self.done and self._core.unpulled()

    def _suit(self, max_pulls: int | None) -> bool:
        suited = bool(self._core.allow(max_pulls))
        if self._flight is not None:
            self._flight.aim()          # the request may be another
        return suited

    def _share_out(self, limit: int, flight: Any) -> None:
        """Share a budget below the first request so that it suffices for all arms, whatever was paid for of some."""
        paid, most = self._core._made() + flight.paid - flight.used, limit - int(flight.failed.sum())
        whole = limit // self._n_arms
        share = bisect.bisect(range(1, whole + 1), most, key=lambda each: int(np.maximum(paid, each).sum()))
        if share < whole:
            self._suit(max(share, 1) * self._n_arms)

    def _paid(self) -> bool:
        return self._core.total > 0 or self._under_way

    def tell(self, rewards: Any, arms: ArrayLike | None = None, pulls: ArrayLike | None = None) -> None:
        """Take the rewards that `ask` wanted.

        Parameters
        ----------
        rewards : array_like
            One reward per pull: a vector with the pulls of the first arm, then those of the second, and so on; or a
            list of vectors, one per arm.
        arms, pulls : array_like of int, optional
            With ``ask(pending=True)``: arm and pull of each reward, any of those handed out, in any order; an int each
            for a single number. Rewards that come after the rule has stopped are taken and not used.

        Raises
        ------
        ValueError
            If a reward is nan or outside the support, or the number of rewards is wrong; nothing is changed then.
        """
        if arms is not None or pulls is not None:
            self._tell_pending(rewards, arms, pulls)
            return
        if not self.done:
            self._not_in_flight("tell() without arms and pulls")
        if _frames.labels_of(rewards) is not None and not self.done:
            rewards = _frames.by_arm(rewards, self._names, np.repeat(*self._core.ask()))
        with _checks.named_arms(self._names, self._core):
            self._core.tell(rewards)
        if self._flight is not None:
            self._flight.follow()

    def run(
        self, pull: Any, max_pulls: int | None = None, *, order: str = "random", rng: _checks.RngLike = None,
        progress: bool = False, max_seconds: float | None = None,
    ) -> SelectionResult:
        """Pull until the rule stops, in compiled code without the GIL.

        Parameters
        ----------
        pull : PullSource, callable, LowLevelCallable, object with a method `pull`, array_like or Source
            Where rewards come from; see `fastrace.pulls.as_pulls`. A function ``pull(arms, counts)`` returns one reward
            per pull, in the order of `arms`, or a list of vectors. Functions and objects are streams and are used as
            they come. A table (array or frame) of shape (n_rows, n_arms) and a `Source` are populations of rows; see
            `order`.
        max_pulls : int, optional
            Pulls after which to stop with the best answer so far; at least one per arm. They count from the beginning,
            and a later call may go on. Of a table in random order they are cells read, each counted once. Say the whole
            budget at once: with fewer than 512 pulls per arm `LUCB` pulls others than with more, see there, and fewer
            than the rule asks for at first are shared out evenly among the arms.
        order : {"random", "given"}, default "random"
            How to read a table. ``"random"``: the rule draws the rows uniformly at random, whatever order the table is
            in, and pays for no cell twice. It may draw a row again, as its bounds are proven for independent rewards.
            ``"given"``: pull t of an arm is row t of its column, from the top in every call. Say so only if the rows
            are independent rewards in the order in which they were drawn; the answer is then about the mean that they
            share. A rule with ``paired=True`` reads one row for all arms of a round.
        rng : None, int, SeedSequence or Generator, optional
            Source of randomness of the rows drawn. By default it is spawned from the rule's own, so that a call that
            goes on draws rows of its own. With a number, give another one to each call.
        progress : bool, default False
            Show the pulls made, against `max_pulls` if that is given, on standard error; needs rich.
        max_seconds : float, optional
            Seconds after which this call makes no further request, and returns the best answer so far,
            ``stopped_by="max_seconds"``. A request that is under way is waited for. Another call goes on.

        Returns
        -------
        SelectionResult
            The answer as it stands when pulling stops; ``stopped_by`` says why it did.

        Raises
        ------
        TypeError
            If `pull` is a `Source` and `order` is ``"given"``.
        ValueError
            If a reward is nan or outside the support. All good rewards are kept, also those that came beside it, and
            ``error.rule.run(pull)``, with a function that has been mended, goes on: it asks first, and alone, for the
            pulls that were refused. ``error.rule.pending`` lists them, and `tell` takes them with their arms and pulls,
            too. So it is after an exception of `pull` and Ctrl-C; each has the rule as its attribute ``rule``. Rewards
            that may be missing are for `missing`: to go on without those that are refused would say something about
            other means. Also if an arm has had all its rows in the order given: the error names it,
            and `result` has the answer so far.

        Warns
        -----
        RuntimeWarning
            If a `LUCB` has epsilon 0 and no `max_pulls`, and a million pulls of a stream (1000 per arm, if that is
            more) have not told the arms at the cut apart; again after ten times as many, and so on.

        Notes
        -----
        A table or a `Source` in random order is paid for once: pulls are drawn with replacement, and a cell that was
        read before costs nothing, which ``result.n_repeated`` counts. After as many draws as there are cells, or as the
        cells of all arms that are not told apart yet, weighed by `cost`, some 63 % of these cells are known. The rules
        of `LUCB` then draw more of arms that have had few draws, until an arm is told apart or has had half as many
        draws as there are rows. After that the remaining cells of arms that are not told apart are read, unless that
        exceeds `max_pulls`. The answer follows from their exact means: ``stopped_by="exact"``. Arms that were told
        apart by then keep their intervals, and ``error_bound`` is `delta`; it is 0 if no arm was. The statements that
        tell arms apart are those that stop the rule, so one `delta` covers both. So a call never reads more than all
        cells and ends on ties. That holds for all calls of one rule together on populations of one size, which it takes
        for the same. For this the rule remembers which cells were read: by a bit per cell of a table in memory, and
        with their rewards, in 24 to 48 bytes per cell read, where these come from a function. `ResampledPulls` that you
        make yourself are a stream without end. To continue in the order given, make one
        `fastrace.pulls.RecordedPulls`, which remembers the rows it has given, for all calls.
        Where a request of rows drawn fails, the same rows come first in the next call: others would be draws of a table
        without the rows that fail. With ``paired=True``, a reward of a stream that is asked for again is of another
        draw than the rest of its round; the promise holds all the same, as it rests on the mean of each difference.
        """
        return self._go_on(pull, max_pulls, order, rng, progress, _clock.deadline(max_seconds))

    def _go_on(
        self, pull: Any, max_pulls: int | None, order: str, rng: _checks.RngLike, progress: bool, end: float = math.inf
    ) -> SelectionResult:
        """What `run` does, for the callers of users."""
        most = _checks.budget(max_pulls, self._n_arms, not self.done and self._core.unpulled())
        limit = NO_LIMIT if most is None else min(most, NO_LIMIT)
        shown = _checks.flag(progress, "progress")
        source = self._rewards(pull, order, rng)
        total = None if max_pulls is None else limit
        ledger = ledger_of(source)
        if not self.done:
            if ledger is not None or self._flight is None or not self._flight.by_run:
                self._not_in_flight("run()")
        endless = self._need_not_end() and max_pulls is None and ledger is None
        readable = ledger is not None and limit >= ledger.n_rows * self._n_arms
        self._suit(None if readable else limit)
        if self._flight is not None and self._core.each > 0:
            self._share_out(limit, self._flight)

        def run(part: int, last: bool) -> bool:
            if ledger is None:
                self._core.run(source, part, last)
            else:
                self._run_table(source, ledger, part, limit, last, end)
            return self.done

        try:
            with naming(self, columns_of(pull), self._core), _progress.meter("pulls", total, shown) as show:
                if self._flight is not None and not self.done and self.n_pulls < limit:
                    self._flight.finish(lambda arms, pulls: source.read(arms, np.full(arms.size, pulls.size)),
                                        lambda error: (apart := take_apart(error, source)) and apart[2:])
                if self._flight is not None and not self.done:
                    limit = max(limit - self._flight.lost(), 0)     # calls by requests that gave nothing count
                late = self._in_parts(run, lambda: int(self._bought().sum()), self._n_arms, limit, end, show, shown,
                                      "pulls" if endless else "")
        except BaseException as error:
            if ledger is not None:
                if isinstance(source, ResampledPulls):
                    self._note_row(error, source)
                ledger.forget(*self._support, self._core.takes_missing)
            else:
                self._keep(error, source)
            handed_over(error, "rule", self, "error.rule.run(pull) goes on where it stopped", self._paid())
            raise
        finally:
            if self._flight is not None:
                self._flight.follow()
            self._suit(None)
            if ledger is not None and isinstance(source, ResampledPulls):
                rows = source._rows_to_draw(self._core.asking)
                self._redrawn = rows if rows.size else None
        return self._named(self._as_it_stands("max_seconds" if late else ""), pull, source)

    def _note_row(self, error: BaseException, source: ResampledPulls) -> None:
        """Say of which row of a table a reward is that the last request refused."""
        refused = self._core.refused()
        if refused is None:
            return
        arms, counts, rewards = refused
        rows = source._rows_to_draw(True)       # of a request in common draws, each arm's are the same
        first = 0
        for arm, count in zip(arms.tolist(), counts.tolist(), strict=True):
            for k in range(first, first + count):
                try:
                    self._core.check(arm, rewards[k], k)
                except ValueError:
                    row = int(rows[k - first if self._paired else k])
                    error.add_note(f"fastrace: this reward of arm {arm} is in row {row} of the table, counted from 0")
                    return
            first += count

    def _keep(self, error: BaseException, source: PullSource) -> None:
        """Hold the good rewards of a request that an error has refused."""
        apart, refused = take_apart(error, source), self._core.refused()
        if (apart is None and refused is None) or self._under_way:
            return
        arms, counts, rewards, read = apart or (*refused, None)
        flight = self._new_flight() if self._flight is None else self._flight
        flight.follow()
        pulls = np.concatenate([np.arange(flight.taken[arm], flight.taken[arm] + count)
                                for arm, count in zip(arms.tolist(), counts.tolist(), strict=True)])
        cells = list(zip(pulls.tolist(), np.repeat(arms, counts).tolist(), rewards.tolist(), strict=True))
        if flight.keep(cells, read, _checks.silent_arms(error)):
            self._flight = flight

    def _need_not_end(self) -> bool:
        return self._endless and self._epsilon == 0.0

    def _at_the_cut(self, result: Any) -> tuple[int, int, Sequence[float] | None]:
        last, others = int(np.ravel(result.best)[-1]), np.setdiff1d(np.arange(self._n_arms), result.best)
        rival = int(others[np.nan_to_num(result.mean[others], nan=-np.inf).argmax()])
        found = self._differences(last)
        return last, rival, None if found is None else found[rival].tolist()

    def _rewards(self, pull: Any, order: str, rng: _checks.RngLike = None) -> PullSource:
        """Where rewards come from; rows of a table are drawn with a child of the rule's `rng`."""
        order = _checks.choice(order, "order", ("random", "given"))
        generator = None if rng is None else _checks.generator(rng)
        if not is_population(pull):
            return as_pulls(pull, self._n_arms, paired=self._paired)
        if order == "random":
            generator = _checks.children(self._core.rng, 1)[0] if generator is None else generator
            pull = self._known_cells(_source_of(pull, "pull", self._n_arms))
        source = as_pulls(pull, self._n_arms, order=order, rng=generator, paired=self._paired)
        if self._redrawn is not None and isinstance(source, ResampledPulls) and ledger_of(source) is not None:
            source._draw_first(self._redrawn)
        return source

    def _named(self, result: SelectionResult, pull: Any, source: PullSource) -> SelectionResult:
        """The result with warnings of a table's columns."""
        columns = columns_of(pull)
        if columns is None:
            return result
        ledger = ledger_of(source)
        if ledger is not None:
            return named(result, columns, ledger.population)
        return named(result, columns, source.source if isinstance(source, ResampledPulls) else _source_of(pull, "pull"))

    def result(self) -> SelectionResult:
        """Return what is known so far; ``stopped_by`` is empty while the rule is running."""
        return self._as_it_stands()

    def _as_it_stands(self, ended: str = "") -> SelectionResult:
        """The result of a rule, which may have been `ended` from without."""
        known = {"epsilon": self._epsilon, "delta": self._delta, "warnings": (), "names": self._names,
                 **self._core.answer(), **self._bounds()}
        if ended:
            known["stopped_by"] = ended
        if known["stopped_by"] == "single":
            known["error_bound"] = 0.0
        if known["stopped_by"] in ("max_pulls", "budget", "max_seconds") and not known["error_bound"] <= self._delta:
            known["warnings"] += (_spent(known),)
        if self._exact is not None:
            known |= _ending.answer(known, self._exact, self._widths, self._n_best, self._missing)
            known["n_missing"] = int(self._exact["gone"].sum())
        known["best"] = best_of(known["best"], known["mean"])
        leader = int(np.ravel(known["best"])[0])
        known["differences"] = self._differences(leader)
        if self._exact is not None:
            known["differences"] = _ending.differences(
                known["differences"], known["mean"], leader, self._exact["verdict"])
        known |= {"pulls": self._bought(), "n_repeated": self._repeated}
        unused, failed, waiting = charges(self._flight, self._n_arms)
        paid = known["pulls"] + unused + failed + waiting
        known |= {"n_unused": int(unused.sum()), "n_failed": int(failed.sum())}
        known["cost"] = None if self._cost is None else float(paid @ self._cost)
        return SelectionResult(**known)

    def _differences(self, leader: int) -> NDArray[np.float64] | None:
        """Intervals of every mean minus that of the leader, of rules that know any which hold at all times."""
        return None

    def _hoeffding_bounds(self, log_inv_delta: float) -> dict[str, Any]:
        """One-sided Hoeffding bounds of every mean at a level, within the support."""
        low, high = self._support
        known = self._core.answer()
        pulls, mean = known["pulls"], known["mean"]
        with np.errstate(divide="ignore"):
            width = (high - low) * np.sqrt(log_inv_delta / (2.0 * pulls))
        return {"lower": np.fmax(low, mean - width), "upper": np.fmin(high, mean + width)}


@_checks.rebuilds(3, Selection, subclasses=True)
def _rebuild(cls: type[Selection], known: dict[str, Any], state: dict[str, Any]) -> Any:
    """Rebuild a pickled selection."""
    maker, given, rng = known["maker"], known["given"], state["rng"]
    if not (issubclass(cls, maker) and issubclass(maker, Selection) and isinstance(rng, np.random.Generator)):
        raise TypeError("it names no rule or no generator")
    if given["n_arms"] != len(state["pulls"]):          # before memory is taken for so many
        raise ValueError(f"{given['n_arms']} arms cannot have {len(state['pulls'])} counts of pulls")
    rule = cls.__new__(cls)
    if given.get("sub_gaussian") is not None or given.get("symmetric"):
        given = {**given, "support": None}      # earlier versions wrote a support that was not used
    maker.__init__(rule, **given, rng=rng)
    rule._core = rule._make(rng)
    rule._core.set_state(state)
    if "flight" in known:
        rule._fly().restore(known["flight"])
    rule.__dict__.update({name: value for name, value in known["added"].items() if name not in rule._own})
    check_table(rule)
    return rule


def columns_of(pull: Any) -> tuple[str, ...] | None:
    """The column names of a table; None for anything that is not a table, or has no names."""
    return column_names(pull) if is_population(pull) and not isinstance(pull, Source) else None


def direct_counts(widths: NDArray[np.float64], epsilon: float, delta: float) -> NDArray[np.int64]:
    """Pulls of each arm by DIRECT."""
    with np.errstate(over="ignore"):
        counts = np.ceil(2.0 * (widths / epsilon) ** 2 * math.log(len(widths) / delta))
    if counts.sum() > _checks.MOST_PULLS:
        raise ValueError(f"epsilon is {epsilon:g}, which takes {counts.sum():.3g} pulls; at most 2**62 can be counted")
    return counts.astype(np.int64)


def _spent(known: dict[str, Any]) -> str:
    """What an answer is worth that a budget cut short."""
    unpulled = int(np.isnan(known["mean"]).sum())
    if unpulled:
        none = "no pull" if (known["pulls"] == 0).any() else "no reward"
        return f"{known['stopped_by']} was reached, and {counted(unpulled, 'arm')} had {none}: the choice is arbitrary"
    if math.isnan(known["error_bound"]):
        return f"{known['stopped_by']} was reached: best are the largest means so far, and nothing is promised of them"
    return (
        f"{known['stopped_by']} was reached before the answer was safe: it may be wrong with a probability of up to "
        f"{known['error_bound']:.3g}"
    )


def batch_size(batch: int) -> int:
    """Pulls per decision, which are drawn one by one."""
    size = _checks.integer(batch, "batch", 1, "a decision asks for at least one pull")
    if size > LARGEST_BATCH:
        raise ValueError(f"batch is {batch}; a decision draws at most {LARGEST_BATCH} pulls")
    return size


def scales(
    width: float, n_arms: int, epsilon: float, delta: float, deviation: float = 0.25
) -> tuple[tuple[float, float], ...]:
    """Sums of squared errors at which the mixtures are tightest, for rewards in [0, 1], and their weights.

    The first is that of the rewards it takes to tell two arms apart whose standard deviation is `deviation`; the
    second, for arms that are far apart or hardly vary, is 50 times smaller. Only the number of pulls depends on them,
    never the promise.
    """
    accuracy, square = max(epsilon / width, 0.02), deviation * deviation
    rewards = min(max(8.0 * square * math.log(n_arms / delta) / (accuracy * accuracy), 100.0), 1e6)
    return tuple((square * rewards * factor, weight) for factor, weight in SCALES)
