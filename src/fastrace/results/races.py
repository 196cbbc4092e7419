"""Answers of races: over a finite population, of sums over populations of different sizes, and on streams."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastrace._base._words import counted, ending, short
from fastrace.results.base import ArmsResult, Column, ComparedResult


def _ties(answer: RaceResult | UnequalResult, value: NDArray[np.float64]) -> list[str]:
    """A line that names the arms whose value, known exactly, is that of the best arm."""
    if answer.stopped_by != "exact":
        return []
    if not isinstance(answer.best, (int, np.integer)):
        return []
    tied = np.flatnonzero((value == value[answer.best]) & (answer.lower == answer.upper))
    others = tied[tied != answer.best]
    first = ", ".join(answer._name(int(arm)) for arm in others[:3])
    more = f" and {others.size - 3} more" if others.size > 3 else ""
    if not others.size:
        return []
    return [f"  arm {answer._name(int(answer.best))} ties with {first}{more}; the first of equals is named"]


@dataclass(frozen=True, eq=False)
class RaceResult(ComparedResult):
    """What a race over a finite population found.

    Attributes
    ----------
    best : int, or ndarray of int, shape (n_best,)
        The arm with the largest mean, or the `n_best` arms with the largest means, the largest first. Wrong with
        probability at most `delta` as far as the bound holds; if ``stopped_by`` is "epsilon", none of their means is
        `epsilon` or more below that of an arm that should be in its place. If the race was cut short (``stopped_by`` is
        "max_pulls", "max_seconds" or empty), the arms with the largest means so far, without that promise: see
        `error_bound`.
    active : ndarray of int, shape (k,)
        Arms that have not left; `best` alone unless the race was cut short or stopped by "epsilon". The best arms are
        among them with probability at least ``1 - delta``.
    mean : ndarray of float, shape (n_arms,)
        Mean reward of each arm over the rows read for it, offsets included; reward units. Exact for the arms that
        were read in full. With a proxy, less what it says of how far the rows read are from all rows.
    lower, upper : ndarray of float, shape (n_arms,)
        Interval of each mean at the arm's last look: with probability at least ``1 - delta`` as far as the bound holds,
        each of them holds its mean; it is cut to what the support leaves possible. A point for arms read in full;
        infinite ends where the rule has none and there is no support. With `max_pulls`, whose end depends on the
        rewards, it has the half-width of the last planned look, where the race may have gone on for some rows. Those of
        `LilUCB` are not promised: see its notes.
    half_width : ndarray of float, shape (n_arms,)
        Half-width of the comparison with the leader (``variance="pairwise"``) or of the arm's own mean
        (``"marginal"``) at the arm's last look; 0 where the mean is exact, nan where the rule has no half-width: for
        the leader itself and for betting.
    pulls : ndarray of int64, shape (n_arms,)
        Distinct rows read for each arm.
    n_rows : int
        Rows of the population.
    fraction_read : float
        Share of all rewards that the answer rests on, those that the source always reads included.
    n_looks : int
        Looks taken, the exact one included.
    stopped_by : str
        ``"bound"``, ``"exact"`` (every row of the arms still left was read; arms dropped before were dropped by the
        bound, within `delta`), ``"single"`` (all arms were asked for),
        ``"epsilon"`` (no arm left can be better by `epsilon`), ``"max_pulls"`` (so many rewards were read),
        ``"max_seconds"`` (the time of the call was over) or ``""`` (not stopped).
    bound : str
        The rule that eliminated arms.
    delta : float
        Promised probability of error.
    skewness, kurtosis : float
        Sample skewness and excess kurtosis of the closest comparison at its last look.
    held_back : ndarray of int, shape (h,)
        Arms for which the normal rule postponed a decision at some look: all rewards read so far were equal, or few of
        them carried the mean.
    warnings : tuple of str
        What may void the promise.
    names : tuple of str, optional
        What to call the arms.
    differences : ndarray of float, shape (n_arms, 2), or None
        Interval of each arm's mean less that of the first of `best`: with probability at least ``1 - delta`` as far as
        the bound holds, all of them hold, whenever the race stops and whoever leads then. For this, `delta` is shared
        among all ordered pairs of arms: the interval of an arm that left can reach a little past 0. 0 for the leader
        itself. None for `LilUCB`.
    error_bound : float
        The smallest delta at which `best` would be the answer by what has been read: an anytime p-value of "one of
        `best` is wrong" (by `epsilon` or more, where that is given). At most `delta` once a race has decided, 0 if all
        was read, 1 where nothing speaks for the answer; nan for `LilUCB`. Of the normal rule, which is asymptotic, it
        is not below `delta`: means of few rows follow a normal law in the middle, not far out. As the first look grows,
        a statement at one `delta` becomes right; how early, for a smaller one, nobody can tell. So it is in all results
        that rest on a normal approximation. To claim less error, ask for a smaller `delta`.
    epsilon : float
        As asked for; in reward units.
    cost : float or None
        What the evaluations cost together, where the cost of one was given.
    n_unused : int
        Rewards that were asked for ahead and that the answer does not use, because their arms had left.
    n_failed : int
        Calls of `race_async` that gave no reward: they raised, timed out or were cut off. `cost` and `max_pulls` count
        them, `pulls` does not. Where rewards may be missing, the last call for one that is missing counts among `pulls`
        or `n_unused`.
    n_missing : int
        Rewards that were missing, of those asked for; with ``missing="drop"`` and with ``"worst"``.
    n_dropped : int
        Rows that were dropped because a reward was missing; `mean` and the intervals are about the rest.
    coefficient : ndarray of float, shape (n_arms,), or None
        With a proxy: what the scores of each arm were multiplied by last, 0 before the first look.
    race : FiniteRace or None
        Where `max_seconds` ended a call that made its race itself: that race, with all that was paid for.
        ``result.race.run(result.source)`` or ``race_async(evaluate, race=result.race)`` goes on.
    source : Source or None
        What `race` was run on, as `run` takes it. Pickled and copied results have the race, not the source: give `run`
        the function or table again.
    """

    best: int | NDArray[np.intp]
    active: NDArray[np.intp]
    mean: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    half_width: NDArray[np.float64]
    pulls: NDArray[np.int64]
    n_rows: int
    fraction_read: float
    n_looks: int
    stopped_by: str
    bound: str
    delta: float
    skewness: float
    kurtosis: float
    held_back: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, np.intp))
    warnings: tuple[str, ...] = ()
    names: tuple[str, ...] | None = field(default=None, repr=False)
    differences: NDArray[np.float64] | None = None
    error_bound: float = math.nan
    epsilon: float = 0.0
    cost: float | None = None
    n_unused: int = 0
    n_failed: int = 0
    n_missing: int = 0
    n_dropped: int = 0
    coefficient: NDArray[np.float64] | None = None
    race: Any = field(default=None, repr=False, compare=False)
    source: Any = field(default=None, repr=False, compare=False)

    _per_arm: ClassVar[tuple[str, ...]] = ("mean", "lower", "upper", "half_width", "pulls")

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"source": None}

    def _title(self) -> str:
        wide = f"epsilon {self.epsilon:g}, " if self.epsilon else ""
        title = (
            f"{self._leader()}: {self.bound} rule, delta {self.delta:g}, {wide}"
            f"read {100 * self.fraction_read:.3g} % after {counted(self.n_looks, 'look')}, {ending(self.stopped_by)}"
        )
        cheaper = " (reading all rows in order was cheaper than what was left of the race)"
        return title + cheaper if self.stopped_by == "exact" else title

    def _printed(self) -> list[Column]:
        if self.differences is None:
            return super()._printed()
        return [*super()._printed()[:-1], Column("pulls", self.pulls, "d", 8), Column("verdict", self.verdict, "", 13)]

    def _runner_up(self) -> list[str]:
        """A line about the difference between the best arm and the next one; `to_frame` has them all."""
        others = self._order()[~self._chosen()[self._order()]]
        if self.differences is None or not others.size or self.stopped_by == "single":
            return []
        low, high = self.differences[others[0]] + 0.0
        found = [f"  arm {short(self._name(int(others[0])))} less the best: {low:.4g} to {high:.4g}"]
        if low <= 0.0 <= high and self.verdict[int(others[0])] == "worse":
            found.append("  (all differences hold together, so their intervals are wider than what decides the race)")
        return found

    def _notes(self) -> list[str]:
        sure = [] if np.isnan(self.error_bound) or self.stopped_by in ("exact", "single") else [
            f"  the answer would stand at any delta from {self.error_bound:.3g} on"]
        how = "run(result.source)" if self.source is not None else "run(...) or race_async(evaluate, race=result.race)"
        on = [] if self.race is None else [f"  nothing paid for is lost: result.race.{how} goes on"]
        return [*_ties(self, self.mean), *self._runner_up(), *sure, *self._payments(), *self._adjusted(), *on,
                *super()._notes()]

    def _adjusted(self) -> list[str]:
        """A line about the proxy."""
        if self.coefficient is None:
            return []
        least, most = (f"{value + 0.0:.3g}" for value in (self.coefficient.min(), self.coefficient.max()))
        return [f"  adjusted by a proxy, coefficient {least if least == most else f'{least} to {most}'}"]


@dataclass(frozen=True, eq=False)
class UnequalResult(ArmsResult):
    """What a race of sums over populations of different sizes found.

    Attributes
    ----------
    best : int
        The arm with the largest sum, wrong with probability at most `delta` as far as the bound holds.
    active : ndarray of int, shape (k,)
        Arms that were still in the race when it stopped; `best` alone once it is over.
    total : ndarray of float, shape (n_arms,)
        Estimated sum of each arm, offset included; exact for arms that were read in full, nan where no row was read.
    lower, upper : ndarray of float, shape (n_arms,)
        Interval of each sum at the arm's last look: with probability at least ``1 - delta`` as far as the bound holds,
        each of them holds its sum at all looks. For this, `delta` is shared among arms, sides and looks, which makes
        them some 5 to 15 % wider than the half-width of one sum in a comparison. They are cut to what the support
        leaves possible. A point for arms read in full; infinite ends where nothing is known.
    half_width : ndarray of float, shape (n_arms,)
        Half-width of the comparison of the arm's sum with the leader's at the arm's last look; 0 where both were exact,
        nan for the leader itself unless it was read in full.
    pulls : ndarray of int64, shape (n_arms,)
        Distinct rows read of each arm.
    n_rows : ndarray of int64, shape (n_arms,)
        Rows of each arm.
    fraction_read : float
        ``pulls.sum() / n_rows.sum()``.
    n_looks : int
        Looks taken.
    stopped_by : str
        ``"bound"``, ``"exact"`` (all arms still in the race were read in full), ``"single"`` (one arm only) or ``""``
        (not stopped).
    bound : str
        The rule that dropped arms.
    delta : float
        Promised probability of error.
    held_back : ndarray of int, shape (h,)
        Arms for which the normal rule postponed a decision at some look: all rewards read so far were equal, or few of
        them carried the sum.
    warnings : tuple of str
        What may void the promise.
    names : tuple of str, optional
        What to call the arms.
    """

    best: int
    active: NDArray[np.intp]
    total: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    half_width: NDArray[np.float64]
    pulls: NDArray[np.int64]
    n_rows: NDArray[np.int64]
    fraction_read: float
    n_looks: int
    stopped_by: str
    bound: str
    delta: float
    held_back: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, np.intp))
    warnings: tuple[str, ...] = ()
    names: tuple[str, ...] | None = field(default=None, repr=False)

    _first: ClassVar[str] = "largest sum"
    _value: ClassVar[str] = "total"
    _mean_label: ClassVar[str] = "sum of rewards and interval"
    _per_arm: ClassVar[tuple[str, ...]] = ("total", "lower", "upper", "half_width", "pulls", "n_rows")

    def _title(self) -> str:
        return (
            f"{self._leader()}: {self.bound} rule, delta {self.delta:g}, "
            f"read {100 * self.fraction_read:.3g} % after {counted(self.n_looks, 'look')}, {ending(self.stopped_by)}"
        )

    def _printed(self) -> list[Column]:
        return [Column("sum", self.total), Column("lower", self.lower), Column("upper", self.upper),
                Column("pulls", self.pulls, "d", 10), Column("rows", self.n_rows, "d", 10)]

    def _notes(self) -> list[str]:
        return [*_ties(self, self.total), *super()._notes()]


@dataclass(frozen=True, eq=False)
class StreamRaceResult(ComparedResult):
    """What a race on streams found.

    Attributes
    ----------
    best : int, or ndarray of int, shape (n_best,)
        The best arm, wrong with probability at most `delta` if ``stopped_by`` is "bound" or "exact"; within `epsilon`
        of the best mean if "epsilon"; otherwise the arm with the largest mean so far. Where several are asked for, an
        array: those proven to be among them and the largest means of those still in the race, the largest mean first.
    active : ndarray of int, shape (k,)
        Arms that have not left: with probability at least ``1 - delta`` every best arm is among them.
    mean, std : ndarray of float, shape (n_arms,)
        Of the rewards used of each arm, in reward units; nan where none was. ``std`` has divisor n, and is nan for
        `BettingRace`, which keeps none.
    lower, upper : ndarray of float, shape (n_arms,)
        Bracket of each mean at the arm's last round, cut to the support.
    differences : ndarray of float, shape (n_arms, 2), or None
        Interval of the mean of each arm minus that of the leader, ``best`` or its first: by `BettingRace` from the
        rewards of the same rounds, by the other races from the brackets. All of them hold at once, at all times and
        whoever leads, with probability at least ``1 - delta``.
    error_bound : float
        The smallest delta at which the answer would stand now, however the race was stopped; not below `delta` where
        ``kind`` is "asymptotic", as evidence may be of events that nobody has seen: see `RaceResult`. nan where nothing
        is promised, and of races by brackets that have not stopped by themselves.
    pulls : ndarray of int64, shape (n_arms,)
        Rewards used of each arm.
    n_rounds : int
        Rounds taken.
    horizon : int or None
        Most rounds.
    work_saved : float
        ``1 - pulls.sum() / (n_arms horizon)``, Table 1 of Mnih, Szepesvari & Audibert (2008); with rounds taken for
        the horizon where there is none.
    stopped_by : str
        ``"bound"``, ``"epsilon"``, ``"horizon"``, ``"max_pulls"``, ``"max_seconds"``, ``"single"`` (all arms were asked
        for), ``"exact"`` (every row of a table was read, and the arms left were compared by their means over it),
        ``"inconsistent"`` (a bracket became empty: the rewards broke an assumption) or ``""`` (not stopped).
    shortfall : ndarray of float, shape (n_arms,)
        How far the mean of an arm in `active` may at most be below the best one, by the brackets; nan for the others.
    promised_gap : ndarray of float, shape (n_arms,)
        The same by the theorem that bounds it beforehand; see the race. nan where there is none.
    promised_drops : int
        Arms that had to leave by the same theorem, if the gaps are those observed.
    bound : str
        The rule that told arms apart.
    delta, epsilon : float
        As asked for.
    warnings : tuple of str
        What may void the promise.
    names : tuple of str, optional
        What to call the arms.
    kind : str
        ``"exact"``, or ``"asymptotic"`` if no support was known: the promise is then nearly right.
    first_look : int or None
        Rounds from which on an asymptotic promise is nearly right.
    cost : float or None
        What the rewards cost together, where the cost of one was given.
    n_missing : int
        Rewards that were missing, of those asked for; with ``missing="drop"`` and with ``"worst"``.
    n_dropped : int
        Rounds that were dropped because a reward was missing, which `pulls` counts and `n_rounds` does not.
    n_unused : int
        Rewards that were asked for ahead, with ``ask(pending=True)`` or `race_async`, and that the answer does not use.
        `cost` and `max_pulls` count them, `pulls` does not.
    n_failed : int
        Calls of `race_async` that gave no reward: they raised, timed out or were cut off. `cost` and `max_pulls` count
        them, `pulls` does not. Where rewards may be missing, the last call for one that is missing counts among `pulls`
        or `n_unused`.
    """

    best: int | NDArray[np.intp]
    active: NDArray[np.intp]
    mean: NDArray[np.float64]
    std: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    pulls: NDArray[np.int64]
    n_rounds: int
    horizon: int | None
    work_saved: float
    stopped_by: str
    shortfall: NDArray[np.float64]
    promised_gap: NDArray[np.float64]
    promised_drops: int
    bound: str
    delta: float
    epsilon: float
    differences: NDArray[np.float64] | None = field(default=None, repr=False)
    error_bound: float = math.nan
    warnings: tuple[str, ...] = ()
    names: tuple[str, ...] | None = field(default=None, repr=False)
    kind: str = "exact"
    first_look: int | None = None
    cost: float | None = None
    n_missing: int = 0
    n_dropped: int = 0
    n_unused: int = 0
    n_failed: int = 0

    @property
    def promise(self) -> str:
        """What holds with probability at least ``1 - delta``, in words."""
        if self.stopped_by == "inconsistent":
            return "none: a bracket became empty, so the rewards broke an assumption or the rare event came true"
        if self.stopped_by == "bound":
            if np.size(self.best) > 1:
                return "the selected arms have the largest means"
            return f"arm {self._named(self.best)} has the largest mean"
        if self.stopped_by == "single":
            return "there is one arm only" if self.mean.size == 1 else "all arms were asked for"
        if self.stopped_by == "exact":
            tied = self.active.size - np.size(self.best)
            text = "every row was read, and the selected arms have the largest means"
            return f"{text}; {tied} more cannot be told from the last of them" if tied else text
        left = f"every best arm is among the {self.active.size} left"
        if self.stopped_by == "epsilon":
            return f"arm {self._named(self.best)} is within {self.epsilon:g} of the largest mean; {left}"
        worst = float(np.max(self.shortfall[self.active]))
        whose = "whose mean is" if self.active.size == 1 else "whose means are"
        text = f"{left}, {whose} at most {worst:.4g} below the largest"
        gap = self.promised_gap[self.active]
        if self.n_rounds and np.isfinite(gap).all():
            text += (
                f" (known beforehand: {float(gap.max()):.4g}, and with gaps as observed at least "
                f"{counted(self.promised_drops, 'arm')} had to leave)"
            )
        return text

    def _title(self) -> str:
        return (
            f"{self._leader()}: {self.bound} race, "
            f"delta {self.delta:g}, {counted(self.n_rounds, 'round')}, {100 * self.work_saved:.3g} % of the work "
            f"saved, {self.active.size} of {counted(self.mean.size, 'arm')} left, {ending(self.stopped_by)}"
        )

    def _mark(self, arm: int) -> str:
        return "*" if arm in np.atleast_1d(self.best) else " " if arm in self.active else "x"

    def _notes(self) -> list[str]:
        said = [f"  promise: {self.promise}"]
        if self.kind == "asymptotic":
            said.append(f"  asymptotic: nearly right from {self.first_look} rounds on, as the mean of differences is "
                        f"nearly normal")
        return [*said, *self._payments(), *super()._notes()]
