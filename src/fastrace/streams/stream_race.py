"""What races on streams share: one reward of every arm still in the race per round, until bounds tell them apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

import fastrace.streams._stream_race as _stream_race
from fastrace._base import _callers, _checks, _clock, _frames, _progress
from fastrace._base._answers import Apart, take_apart
from fastrace._base._docs import filled
from fastrace._base._handed import handed_over
from fastrace._base._requests import charges
from fastrace._base._words import WORST_REWARDS, counted
from fastrace.results import StreamRaceResult
from fastrace.results.columns import best_of, named, naming
from fastrace.sources import ArraySource, Source, as_source, column_names
from fastrace.streams import _rules
from fastrace.streams._in_flight import RoundsInFlight
from fastrace.streams._race_words import DOUBTED, DROPPED_ROUNDS, EQUAL, INCONSISTENT, PAGE, SPENT, STOPPED
from fastrace.streams._sequences import doubts

MOST_ROUNDS = 1 << 62
MOST = float(np.finfo(np.float64).max)
FINITE = (-1e75, 1e75)          # rewards of no known support: a float holds their fourth powers

class StreamRace(RoundsInFlight):
    """What the races on streams share: asking, telling, running, the answer."""

    _bound: str
    _failures: float                        # how many failures of a bracket delta is shared among
    _spends_by_round: ClassVar[bool] = True
    _first_look: int | None = None          # of asymptotic brackets
    _missing: str = "raise"
    _rule: str | None = None                # by what a `BettingRace` tells arms apart

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.__doc__ = filled(cls.__doc__, PAGE)
        _callers.own_init(cls)
        if "__init__" in vars(cls):
            cls.__init__ = _callers.names_caller(cls.__init__)  # type: ignore[method-assign]

    def __init__(
        self, n_arms: int, horizon: int | None, delta: float = 0.05, support: _checks.Support | None = None,
        *, epsilon: float = 0.0, n_best: int = 1, names: Sequence[str] | None = None, cost: ArrayLike | None = None,
    ) -> None:
        n_arms = _checks.integer(n_arms, "n_arms", 1, "a race needs arms")
        if horizon is None and self._spends_by_round:
            raise ValueError(
                "horizon is None; this bound spends delta over a known number of rounds, so give the largest; "
                "BettingRace needs none"
            )
        if horizon is not None:
            horizon = _checks.integer(horizon, "horizon", 1, "it is the largest number of rounds")
            if horizon > MOST_ROUNDS:
                raise ValueError(f"horizon is {horizon}; at most 2**62 rounds can be counted")
        self._delta = _checks.probability(delta, "delta")
        if support is None and self._first_look is None:
            raise ValueError(
                "support is None; a race on streams needs support=(low, high), an interval that holds every reward, "
                "because its bounds rest on it; only BettingRace has an asymptotic kind, with support=None"
            )
        self._names = _frames.arms_called(names, n_arms, support=support, cost=cost)
        ends = FINITE if support is None else _frames.support_of_arms(support, self._names)
        low, high = _checks.support_bounds(ends, n_arms)
        if (0.5 * high - 0.5 * low > 0.125 * MOST).any():
            raise ValueError(f"support is {support!r}; a width that a float can hold is needed")
        self._epsilon = _checks.epsilon(epsilon)
        n_best = _checks.n_best(n_best, n_arms)
        goal = self._goal(n_arms, n_best)
        if n_best > 1 and self._epsilon > 0.0 and goal is None:
            raise ValueError(f"epsilon is {epsilon!r} and n_best is {n_best}; the epsilon-best race finds one arm")
        self._cost = None if cost is None else _checks.arm_costs(_frames.of_arms(cost, self._names, "cost"), n_arms)
        self._horizon = horizon
        n_shares = horizon if horizon is not None and self._spends_by_round else 1
        share = math.log(self._failures) + math.log(n_arms) + math.log(n_shares) - math.log(self._delta)
        start = () if self._first_look is None else (self._first_look, _rules.best_at(self._first_look))
        self._race = _stream_race.StreamRace(
            n_arms, self._bound, horizon, n_best, self._epsilon, share, low, high, goal, *start, missing=self._missing
        )
        if support is None:
            low, high = np.full(n_arms, -math.inf), np.full(n_arms, math.inf)
        self._low, self._high, self._share = low, high, share

    def _goal(self, n_arms: int, n_best: int) -> float | None:
        """Log of the evidence that tells two arms apart by their differences; None where brackets tell them apart."""
        return None

    def __reduce__(self) -> tuple[Any, ...]:
        race = self._race
        support = (self._low, self._high) if self._first_look is None else None
        arguments = (
            race.n_arms, self._horizon, self._delta, support, self._epsilon, race.n_best, self._names, self._rule,
            self._first_look, self._cost, *(() if self._missing == "raise" else (self._missing,)),
        )
        flight = () if self._flight is None else (self._flight.saved(),)
        return _rebuild.saved(type(self), arguments, *race.saved(), *flight)

    @classmethod
    def _saved_options(cls, more: list[Any]) -> dict[str, Any]:
        """What else the arguments of a saved race say, from the names on, that only some races have."""
        return {}

    def _identity(self) -> dict[str, Any] | None:
        if self._paid():
            return None
        support = None if self._first_look is not None else [self._low, self._high]
        return {"race": type(self).__name__, "unit": "round", "n_arms": self._race.n_arms, "horizon": self._horizon,
                "delta": self._delta, "support": support, "epsilon": self._epsilon, "n_best": self._race.n_best,
                "names": self._names, "rule": self._rule, "first_look": self._first_look, "missing": self._missing}

    def __repr__(self) -> str:
        race = self._race
        state = "over" if self.done else f"{counted(race.n_open, 'arm')} left"
        return (
            f"<{type(self).__name__}(n_arms={race.n_arms}, horizon={self._horizon}, delta={self._delta:g}): {state} "
            f"after {counted(race.rounds, 'round')}>"
        )

    @property
    def done(self) -> bool:
        """Whether the race is over."""
        return self._race.done

    @property
    def n_rounds(self) -> int:
        """Rounds so far."""
        return self._race.rounds

    @property
    def active(self) -> NDArray[np.intp]:
        """Arms still in the race, in the order of their numbers; `tell` wants a reward of each."""
        return self._race.active

    def ask(self, n: int | None = None, *, pending: bool = False) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """Return the arms still in the race and the numbers of the next rounds, counted from 0.

        Parameters
        ----------
        n : int, optional
            Rounds wanted, 1 by default; fewer where the horizon is nearer. Of an arm that leaves the race during these
            rounds, the later rewards will not be used. With `pending`, rewards wanted.
        pending : bool, default False
            Hand rewards out one by one, for answers that come in any order: `tell` then takes the arm and the round of
            each. They enter the race round by round, so the answer is that of one round at a time. Without `n`, the
            rest of the next round; with it, further rounds of the same arms too. At times fewer can be handed out, or
            none, until you tell further rewards.

        Returns
        -------
        arms : ndarray of int, shape (n_open,) or (k,)
            Arms still in the race; with `pending` the arm of each reward.
        rounds : ndarray of int64, shape (n,) or (k,)
            Numbers of the rounds; with `pending` the round of each reward.

        Notes
        -----
        With `pending`, at most twice as many rewards as are out at once are out or held back beyond the next round, or
        a sixteenth of all, if that is more. What the race has no use for when an arm leaves or it ends is paid for in
        vain: ``StreamRaceResult.n_unused`` says how much that was. Once all rewards of arms still in the race have been
        told and used, calls without `pending`, and `run`, go on.
        """
        if _checks.flag(pending, "pending"):
            return self._ask_pending(n)
        n_rounds = 1 if n is None else _checks.integer(n, "n", 1, "it counts rounds")
        if self.done:
            raise ValueError("the race is over; there is nothing left to ask for")
        self._not_in_flight("ask()")
        first = self._race.position_now
        return self._race.asked(), np.arange(first, first + min(n_rounds, self._race.horizon - first), dtype=np.int64)

    def tell(self, rewards: ArrayLike, arms: ArrayLike | None = None, rounds: ArrayLike | None = None) -> int:
        """Take rounds of rewards, in the order given.

        Each call brings new rounds, whether or not `ask` was called before: a stream has no rows that could be asked
        for again. Rewards that are given twice count twice, and then the promise is void.

        Parameters
        ----------
        rewards : array_like of float, shape (n_open,) or (k, n_open)
            The reward of every arm still in the race, in the order of `ask`; a row per round. A series or a table goes
            by the names of the arms, if both have names.
        arms, rounds : array_like of int, optional
            With ``ask(pending=True)``: arm and round of each of a vector of rewards, any of those handed out, in any
            order; an int each for a single number. Rewards that come after the race is over are taken and not used.

        Returns
        -------
        int
            Rounds used: fewer than k only if the race is over. With `arms` and `rounds`, those that these rewards made
            whole.

        Raises
        ------
        ValueError
            If the shape is wrong, or a reward is nan or outside `support`; the race is then as it was before the call.
        """
        if arms is not None or rounds is not None:
            before = self._race.position_now
            self._tell_pending(rewards, arms, rounds)
            return int(self._race.position_now - before)
        names = self._names
        if _frames.labels_of(rewards) is not None and not self.done:
            rewards, names = _frames.block_of(rewards, names, self._race.asked(), self._race.n_arms)
        block = _checks.numbers_of(rewards, "rewards")
        n_open = self._race.n_arms if self._missing == "drop" else self._race.n_open
        if self.done:
            raise ValueError("the race is over; it takes no more rewards")
        if block.dtype.kind not in "fiub" or block.ndim not in (1, 2) or block.shape[-1] != n_open:
            raise ValueError(
                f"rewards has shape {block.shape} and dtype {block.dtype}; real numbers of shape (k, {n_open}), rounds "
                f"by arms{'' if self._missing == 'drop' else ' still in the race'}, are needed"
            )
        self._of_no_table()
        self._not_in_flight("tell() without arms and rounds")
        with _checks.named_arms(names, self._race):
            used = self._race.tell(np.require(np.atleast_2d(block), np.float64, "A"))
        self._names = names
        if self._flight is not None:
            self._flight.follow()
        return used

    def run(
        self,
        rewards: Source | ArrayLike,
        batch: int = 1,
        *,
        max_pulls: int | None = None,
        order: str = "random",
        rng: _checks.RngLike = None,
        progress: bool = False,
        max_seconds: float | None = None,
    ) -> StreamRaceResult:
        """Race to the end, in compiled code.

        Parameters
        ----------
        rewards : Source, array_like of shape (n_rows, n_arms), callable or LowLevelCallable
            Where the rewards come from. A table or a `Source` is a population of rows. A callable
            ``(arms, rounds) -> block`` is a stream: it returns fresh rewards of shape (len(rounds), len(arms)), which
            are used as they come.
        batch : int, default 1
            Rounds to ask a callable for at a time. More cost fewer calls, and up to ``batch - 1`` rewards per arm that
            are not used. Tables are read where they lie.
        max_pulls : int, optional
            Most rewards to use, those of earlier calls included; at least one per arm. No round is begun that would
            take more. ``stopped_by`` is then ``"max_pulls"``, and a later call may go on.
        order : {"random", "given"}, default "random"
            How to read a table or a `Source`. ``"random"``: the race draws the rows uniformly at random, whatever order
            the table is in, and pays for no cell twice. It draws a row at most once. ``"given"``: row t - 1 holds round
            t. Say so only if the rows are exchangeable as they stand, such as independent rewards in the order in which
            they came; the answer is then about the mean that they share.
        rng : None, int, SeedSequence or Generator, optional
            Source of randomness of the order, used where a race starts. A race that goes on keeps its order.
        progress : bool, default False
            Show the rewards used, against `max_pulls` if that is given, on standard error; needs rich.
        max_seconds : float, optional
            Seconds after which this call begins no other round: the best arm so far, ``stopped_by="max_seconds"``, with
            intervals that hold. A call of a function that is under way is waited for. Another call goes on.

        Returns
        -------
        StreamRaceResult
            ``stopped_by`` is ``"exact"`` if every row was read in random order: the arms left were compared by their
            means over the whole table. It is empty if rows in the order given came to an end first; a longer table
            continues.

        Raises
        ------
        ValueError
            If the table has no rows, or a reward that would be used is nan or outside `support`. The race has then
            used all rounds before that one, and holds the good rewards that a callable gave for that one and later
            ones; `pending` lists the bad ones. So it has all completed rounds after an exception of the callable, or
            Ctrl-C, and may go on: the exception has the race as its attribute ``race``. With a callable that has been
            mended, ``error.race.run(rewards)`` asks for no good reward again. Also if a race that has used rounds is to
            begin a table in random order, or goes on in another order or with another number of rows.

        Warns
        -----
        RuntimeWarning
            If a callable is raced on without horizon, `max_pulls` and epsilon, and a million rewards (1000 per arm, if
            that is more) have not told the arms at the cut apart; again after ten times as many, and so on.

        Notes
        -----
        The half-widths of `HoeffdingRace` and `BernsteinRace` hold without replacement as they do for independent
        rewards, since they rest on sums of a fixed number of rewards (Hoeffding 1963, Theorem 4); `BettingRace` bets
        on the mean of the table by what is left of it (Waudby-Smith & Ramdas 2024, section 5). Reading k rows in
        random order costs O(k) time and memory. A row at random costs several times one in order: about 15 ns against
        2.5 ns in memory, and a page of the file where a memory-mapped table is larger than memory.
        """
        batch = _checks.integer(batch, "batch", 1, "it counts rounds")
        limit = _checks.budget(max_pulls, self._race.n_arms, not self.done and self._race.rounds == 0)
        order = _checks.choice(order, "order", ("random", "given"))
        generator, race = _checks.generator(rng), self._race
        function = callable(rewards) and not isinstance(rewards, Source) and not hasattr(rewards, "__array__")
        shuffle = generator if order == "random" and not function else None
        if shuffle is not None and self._missing == "drop":
            raise ValueError("missing is 'drop' and rewards are a table in random order, whose rows that remain nobody "
                             "has counted; FiniteRace drops rows of a table, or say order='given' if they came as a "
                             "stream")
        n_rows = (MOST_ROUNDS if self._horizon is None else self._horizon) if function else None
        source = as_source(rewards, n_arms=race.n_arms, n_rows=n_rows)
        most = 64 if type(source) is ArraySource else min(batch, 1 << 20)
        if not function and source.n_rows == 0:
            raise ValueError("rewards has 0 rows: nothing tells the arms apart")
        if not self.done:
            if self._flight is None or not self._flight.by_run:
                self._not_in_flight("run()")
                self._flight = self._flight if race.position_now else None
            else:
                race.go_on_with(source.n_rows, shuffle)
        columns = column_names(rewards)
        end = _clock.deadline(max_seconds)
        shown, last = _checks.flag(progress, "progress"), MOST_ROUNDS if limit is None else min(limit, MOST_ROUNDS)
        with naming(self, columns, race, _frames.row_names(rewards)), _progress.meter("rewards", limit, shown) as show:
            endless = function and limit is None and self._need_not_end()

            def go_on(part: int, is_last: bool) -> bool:
                before = self._n_used()
                race.run(source, most, shuffle, None if part == MOST_ROUNDS else part, is_last)
                return bool(race.done or self._n_used() == before)          # the race is at its end, or the rows are

            try:
                if self._flight is not None and not self.done and self._n_used() < last:
                    self._flight.finish(lambda arms, rounds: source.read(race.rows_of(rounds), arms).T.ravel(),
                                        lambda error: _by_arms(take_apart(error, source)))
                if self._flight is not None and not self.done:
                    last = max(last - self._flight.lost(), 0)       # calls by requests that gave nothing count
                late = self._in_parts(go_on, self._n_used, most * race.n_arms, last, end, show, shown,
                                      "rewards" if endless else "")
            except BaseException as error:
                self._keep(error, source)
                handed_over(error, "race", self, "error.race.run(rewards) goes on where it stopped",
                            type(source) is not ArraySource and self._paid())
                raise
            finally:
                if self._flight is not None:
                    self._flight.follow()
        return named(self._as_it_stands("max_seconds" if late else ""), columns, source)

    def _keep(self, error: BaseException, source: Source) -> None:
        """Hold the good rewards of the rest of a block that an error has refused."""
        apart, refused, read = take_apart(error, source), self._race.refused(), None
        if (apart is None and refused is None) or self._under_way:
            return
        if apart is None:
            rounds, arms, rewards = refused
        else:
            rounds, arms = self._race.position_now + np.arange(apart.where.size), apart.arms
            rewards, read = _by_arms(apart)
        flight = self._new_flight() if self._flight is None else self._flight
        cells = list(zip(np.tile(rounds, arms.size).tolist(), np.repeat(arms, rounds.size).tolist(), rewards.tolist(),
                         strict=True))
        if flight.keep(cells, read, _checks.silent_arms(error)):
            self._flight = flight

    def _n_used(self) -> int:
        return int(self._race.answer()["pulls"].sum())

    def _need_not_end(self) -> bool:
        return self._horizon is None and self._epsilon == 0.0

    def _at_the_cut(self, result: Any) -> tuple[int, int, Sequence[float] | None]:
        last, others = int(np.ravel(result.best)[-1]), np.setdiff1d(result.active, result.best)
        rival = int(others[result.mean[others].argmax()])
        found = self._race.differences(last, -math.log(self._delta))
        low, high = result.lower, result.upper
        ends = (low[rival] - high[last], high[rival] - low[last]) if found is None else found[rival].tolist()
        return last, rival, ends

    def result(self) -> StreamRaceResult:
        """Return what is known so far; ``stopped_by`` is empty while the race is running."""
        return self._as_it_stands()

    def _as_it_stands(self, ended: str = "") -> StreamRaceResult:
        """The result of a race, which may have been `ended` from without."""
        answer = self._race.answer()
        answer["stopped_by"] = ended or answer["stopped_by"]
        open_arms = answer.pop("active")
        chosen = answer.pop("chosen")
        left = np.union1d(open_arms, chosen)
        paired = not math.isnan(evidence := answer.pop("evidence"))
        centred = answer.pop("centred")     # means as they compare: they may be far from 0
        worth = answer["lower"] if answer["stopped_by"] == "epsilon" and not paired else centred
        order = open_arms[np.argsort(-worth[open_arms], kind="stable")]
        order = np.concatenate([chosen[np.argsort(-centred[chosen], kind="stable")], order])
        mean, pulls = answer["mean"], answer["pulls"]
        unused, failed, waiting = charges(self._flight, pulls.size)
        paid = pulls + unused + failed + waiting
        # Means lie within the support, unless a reward outside it was let in.
        lower = answer["lower"] = np.maximum(answer["lower"], np.fmin(mean, self._low))
        upper = answer["upper"] = np.minimum(answer["upper"], np.fmax(mean, self._high))
        shortfall = np.full(lower.size, np.nan)
        shortfall[left] = np.maximum(upper[left].max() - lower[left], 0.0)
        if self._race.n_best == 1:
            needed, gap = self._a_priori(answer, left, int(order[0]))
        else:       # the theorems are about one best arm: the rivals of the second best need not ever leave
            needed, gap = StreamRace._a_priori(self, answer, left, int(order[0]))
        found = np.sort(order[: self._race.n_best])
        ends = {"horizon": (SPENT.format(left.size),), "inconsistent": (INCONSISTENT,),
                **{budget: (STOPPED.format(budget, left.size),) for budget in ("max_pulls", "max_seconds")}}
        lost = answer.get("n_missing", 0)
        gone = (_lost(self._missing, lost, answer["n_dropped"]),) if lost else ()
        differences = self._differences(answer, int(order[0]), open_arms)
        return StreamRaceResult(
            best=best_of(found, centred),
            active=left,
            differences=differences,
            error_bound=self._error_bound(answer["stopped_by"], evidence),
            shortfall=shortfall,
            promised_gap=gap,
            promised_drops=int(np.searchsorted(2.0 * np.cumsum(np.sort(needed)), int(pulls.sum()), side="right")),
            horizon=self._horizon,
            work_saved=1.0 - int(pulls.sum()) / (
                lower.size * (self._horizon or max(answer["n_rounds"] + answer.get("n_dropped", 0), 1))),
            bound=self._bound,
            delta=self._delta,
            epsilon=self._epsilon,
            names=self._names,
            cost=None if self._cost is None else float(paid @ self._cost),
            n_unused=int(unused.sum()),
            n_failed=int(failed.sum()),
            warnings=ends.get(answer["stopped_by"], ()) + gone + self._doubts(int(order[0])),
            kind="exact" if self._first_look is None else "asymptotic",
            first_look=self._first_look,
            **answer,
        )

    def _differences(self, answer: dict[str, Any], leader: int, open_arms: NDArray[np.intp]) -> NDArray[np.float64]:
        """Intervals of every mean minus that of the leader."""
        found = self._race.differences(leader, -math.log(self._delta))
        if found is None:
            lower, upper = answer["lower"], answer["upper"]
            found = np.stack([lower - upper[leader], upper - lower[leader]], axis=1)
        if answer["stopped_by"] == "exact" and leader in open_arms:
            found[open_arms] = (answer["mean"][open_arms] - answer["mean"][leader])[:, None]
        found[leader] = 0.0
        return np.asarray(found)

    def _doubts(self, leader: int) -> tuple[str, ...]:
        """What may void the promise of an asymptotic race."""
        tails = self._race.tails(leader)
        if tails is None:
            return ()
        equal, tailed = set[int](), dict[int, float]()
        for rounds, skewness in tails:
            for arm, (n, skew) in enumerate(zip(rounds.tolist(), skewness.tolist(), strict=True)):
                if n > 1 and math.isnan(skew):
                    equal.add(arm)
                elif n > 1 and doubts(n, skew, "rounds"):
                    tailed[arm] = max(abs(skew), tailed.get(arm, 0.0))

        def called(arms: list[int]) -> str:
            shown = ", ".join(self._names[arm] if self._names else str(arm) for arm in arms[:10])
            return f"{counted(len(arms), 'arm')} ({shown})"

        found = [DOUBTED.format(called(sorted(tailed)), max(tailed.values()))] if tailed else []
        return (*found, *([EQUAL.format(called(sorted(equal)))] if equal else []))

    def _error_bound(self, stopped_by: str, evidence: float) -> float:
        """The smallest delta at which the answer would stand now."""
        n_best, n_arms = self._race.n_best, self._race.n_arms
        if stopped_by == "single" or n_best == n_arms:
            return 0.0
        if math.isnan(evidence) or stopped_by == "inconsistent":
            return self._delta if stopped_by in ("bound", "epsilon", "exact") else math.nan
        error_bound = min(1.0, math.exp(math.log(n_best * (n_arms - n_best)) - evidence))
        unsure = self._first_look is not None and evidence < math.inf       # evidence may be of events unseen
        return max(self._delta, error_bound) if unsure else error_bound

    def _a_priori(
        self, answer: dict[str, Any], left: NDArray[np.intp], best: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Samples that each arm needs to be told from the best, and what the survivors may lack; nan where unknown."""
        return np.full(answer["mean"].size, np.inf), np.full(answer["mean"].size, np.nan)


def _by_arms(apart: Apart | None) -> Any:
    """Rewards of an answer that was read in part, and where they are some, those of the first arm first."""
    return apart and (apart.rewards.T.ravel(), apart.read.T.ravel())


def _lost(missing: str, n_missing: int, n_dropped: int) -> str:
    """What became of missing rewards."""
    if missing == "worst":
        return WORST_REWARDS.format(counted(n_missing, "missing reward"))
    return DROPPED_ROUNDS.format(n_dropped)


@_checks.rebuilds(2, StreamRace, subclasses=True)
def _rebuild(
    cls: Any, arguments: tuple[Any, ...], state: dict[str, Any], order: tuple[Any, ...] | None = None,
    flight: dict[str, Any] | None = None,
) -> Any:
    """Rebuild a pickled race."""
    n_arms, horizon, delta, support, epsilon, n_best, *more = arguments
    options = {"names": more[0] if more else None, "cost": more[3] if len(more) > 3 else None}
    options |= cls._saved_options(more)
    race = cls(n_arms, horizon, delta, support, epsilon=epsilon, n_best=n_best, **options)
    race._race._set_state(state)
    race._race.restore_order(order)
    if flight is not None:
        race._flight = race._new_flight()
        race._flight.restore(flight)
    return race
