"""Answers of selections of the best m of n arms."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastrace._base._words import counted, ending
from fastrace.results.base import Column, ComparedResult, n_shown


@dataclass(frozen=True, eq=False)
class SelectionResult(ComparedResult):
    """The m best of n arms, as far as they are known.

    Attributes
    ----------
    best : int, or ndarray of int, shape (n_best,)
        The arm selected; where several are asked for an array, the largest mean first, ties to the lower number.
    mean : ndarray of float, shape (n_arms,)
        Mean reward of each arm; nan if it was not pulled.
    lower, upper : ndarray of float, shape (n_arms,)
        Bounds of each mean within its support, as the rule makes them.
    pulls : ndarray of int64, shape (n_arms,)
        Pulls of each arm that were paid for: of a table or `Source` in random order the cells read, each once, so at
        most its rows; see `n_repeated`.
    stopped_by : str
        ``"delta"`` (the error bound reached `delta`), ``"cap"`` (every arm has had the pulls of a plan for the worst
        case), ``"plan"`` (a fixed plan was carried out), ``"bound"`` (the arms selected are the best: every arm was
        decided), ``"epsilon"`` (no other arm can be better by `epsilon`), ``"horizon"`` (the rounds are used up),
        ``"budget"`` (the pulls of a rule without promise are spent),
        ``"single"`` (all arms were asked for), ``"exact"`` (every row of a table was read for the arms that were not
        told apart: their means are those of the table; arms told apart before were so within `delta`),
        ``"max_pulls"`` or ``"max_seconds"`` (as asked: no promise beyond `error_bound`) or ``""``
        (still running).
    rule : str
        The rule that selected.
    epsilon : float
        Accuracy asked for, in reward units; nan for rules without one.
    delta : float
        Probability of error asked for; nan for rules without one.
    error_bound : float
        Bound on the probability that the selection is wrong, by the rule's own reckoning; nan where it has none. Of
        `LUCB`, and of `select_best` by default, the smallest delta at which the rule would have stopped by then, as in
        `RaceResult`: at most `delta` once it has stopped by itself. It is `delta` there where ``kind`` is "asymptotic"
        and where `epsilon` was asked for and the best are known all the same. Where ``stopped_by`` is "exact" it is 0
        if all arms were read, and `delta` if some had been told apart.
    cutoff : float
        The value that separates the selected arms from the others, in reward units; nan where the rule has none.
    arm_error : ndarray of float, shape (n_arms,), or None
        Share of each arm in the error bound.
    shortfall : float
        Bound, at `delta`, on how far below the m-th largest mean a selected arm may lie, in reward units: the epsilon
        that has been met; nan for rules that do not compute it.
    trace : tuple of two ndarrays, or None
        Pulls, and what the rule watches, at these moments of the run.
    trace_of : str
        What that is: "error bound" or "shortfall".
    warnings : tuple of str
        What may void the promise.
    names : tuple of str, optional
        What to call the arms.
    kind : str
        ``"exact"``, or ``"asymptotic"`` if no support was known: the promise is then nearly right.
    first_look : int or None
        Pulls of each arm from which on an asymptotic promise is nearly right.
    cost : float or None
        What `pulls` cost together, where the cost of one was given.
    n_missing : int
        Rewards that were missing, of those asked for.
    n_unused : int
        Pulls that were asked for ahead, with ``ask(pending=True)`` or `race_async`, and that the answer does not use,
        because the rule stopped without them. `cost` and `max_pulls` count them, `pulls` does not.
    n_failed : int
        Calls of `race_async` that gave no reward: they raised, timed out or were cut off. `cost` and `max_pulls` count
        them, `pulls` does not. Where rewards may be missing, the last call for one that is missing counts among `pulls`
        or `n_unused`.
    n_repeated : int
        Pulls of a table that drew a cell that had been read. They count for means and intervals as any other, and cost
        nothing: `pulls`, `cost` and `max_pulls` do not count them.
    differences : ndarray of float, shape (n_arms, 2), or None
        Interval of each mean minus that of the leader, ``best`` or its first. All of them hold at once, at all times
        and whoever leads, with probability at least ``1 - delta``; see `LUCB`. 0 for the leader itself. None for rules
        whose bounds hold at the end of a plan, or not at all.
    race : LUCB or another rule, or None
        Where `max_pulls` or `max_seconds` ended a call of `select_best`: its rule, with all pulls made.
        ``result.race.run(pull)`` or ``race_async(evaluate, race=result.race)`` goes on.
    """

    best: int | NDArray[np.intp]
    mean: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    pulls: NDArray[np.int64]
    stopped_by: str
    rule: str
    epsilon: float
    delta: float
    error_bound: float
    cutoff: float = math.nan
    arm_error: NDArray[np.float64] | None = None
    shortfall: float = math.nan
    trace: tuple[NDArray[np.int64], NDArray[np.float64]] | None = field(default=None, repr=False)
    trace_of: str = ""
    warnings: tuple[str, ...] = ()
    names: tuple[str, ...] | None = field(default=None, repr=False)
    kind: str = "exact"
    first_look: int | None = None
    cost: float | None = None
    n_missing: int = 0
    differences: NDArray[np.float64] | None = field(default=None, repr=False)
    n_unused: int = 0
    n_failed: int = 0
    n_repeated: int = 0
    race: Any = field(default=None, repr=False, compare=False)

    _out_label: ClassVar[str] = "others"

    def _title(self) -> str:
        asked = "" if math.isnan(self.delta) else f", delta {self.delta:g}"
        if not math.isnan(self.epsilon):
            asked = f", epsilon {self.epsilon:g}{asked}"
        reached = "" if math.isnan(self.error_bound) else f", error bound {self.error_bound:.3g}"
        n_best, n_arms = np.size(self.best), self.mean.size
        which = f"best {n_best} of {counted(n_arms, 'arm')}"
        if n_best == 1:
            which = self._leader() + (f" of {n_arms}" if self.n_read or self.stopped_by else "")
        return (
            f"{which}: {self.rule}{asked}, "
            f"{counted(self.n_read, 'pull')}, {ending(self.stopped_by)}{reached}"
        )

    def _notes(self) -> list[str]:
        said = [] if self.kind == "exact" else [
            f"  asymptotic: nearly right from {self.first_look} pulls of each arm on, as their mean is nearly normal"]
        said += self._payments()
        if self.n_repeated:
            said.append(f"  {counted(self.n_repeated, 'pull', ',')} of cells read before, for nothing")
        said += [] if self.race is None else ["  nothing paid for is lost: result.race.run(...) goes on"]
        return [*said, *super()._notes()]

    def _listed(self) -> list[int | str]:
        order = self._order()
        cut = np.size(self.best)
        first, last = order[: n_shown(cut, 8)], order[cut : cut + n_shown(order.size - cut, 4)]
        shown: list[int | str] = [int(arm) for arm in first]
        if cut > first.size:
            shown.append(f"  ... {cut - first.size} more selected")
        shown += [int(arm) for arm in last]
        rest = order.size - cut - last.size
        return [*shown, f"  ... {counted(rest, 'more arm')}"] if rest else shown

    def _order(self) -> NDArray[np.intp]:
        """The selected arms first, each group with the largest mean first."""
        order = super()._order()
        selected = self._chosen()[order]
        return np.concatenate([order[selected], order[~selected]])

    def _kept(self) -> NDArray[np.bool_]:
        return self._chosen()

    def _decided(self) -> str:
        """With an epsilon, plans and error bounds are about no arm being better by so much."""
        if self.epsilon > 0.0 and self.stopped_by in ("delta", "cap", "plan"):
            return "epsilon"
        return "best" if self.stopped_by == "delta" else super()._decided()

    def _beaten(self) -> NDArray[np.bool_]:
        if self.differences is None:
            return np.zeros(self._size(), bool)
        return np.asarray(self.differences[:, 1] < self.differences[np.atleast_1d(self.best), 0].min())

    def _printed(self) -> list[Column]:
        if self.differences is None:
            return super()._printed()
        return [*super()._printed(), Column("verdict", self.verdict, "", 13)]

    def _panels(self) -> Mapping[str, Callable[[Any], None]]:
        return {**super()._panels(), **({} if self.trace is None else {"trace": self._draw_trace})}

    def _panel_hint(self, what: str) -> str:
        return f"; {self.rule} keeps no trace" if what == "trace" else ""

    def _draw_means(self, ax: Any) -> None:
        if not math.isnan(self.cutoff):
            ax.axvline(self.cutoff, color="C3", lw=1, ls="--", label="cutoff")
        super()._draw_means(ax)

    def _draw_trace(self, ax: Any) -> None:
        """What the rule watches against pulls, and the value it waits for."""
        assert self.trace is not None
        pulls, value = self.trace
        goal = self.delta if self.trace_of == "error bound" else self.epsilon
        ax.plot(pulls, value, color="C0", label=self.trace_of)
        if goal > 0.0:
            ax.axhline(goal, color="C3", lw=1, ls="--", label="asked for")
        if pulls.size:
            ax.set_xscale("log")
        if (value > 0.0).any():
            ax.set_yscale("log")
        ax.set(xlabel="pulls", ylabel=self.trace_of)
        ax.legend()
