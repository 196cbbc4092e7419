"""Answers about one quantity: a mean of a stream, a decision, the draws of a sampler."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fastrace._base._words import counted, ending, number
from fastrace.results.base import Result, Table


@dataclass(frozen=True, eq=False)
class SamplerStats(Result):
    """Counts over the draws of a `DiscreteSampler`.

    Attributes
    ----------
    n_draws : int
        Draws made.
    fraction_read : float
        Mean share of the log-factors that a draw rested on, those always read included.
    fraction_exact : float
        Share of draws that read every row.
    looks_per_draw : float
        Mean number of looks.
    evaluations : int
        Log-factors read, counting again those that a full pass reads twice.
    bound : str
        The rule that eliminated states.
    delta : float
        Promised total variation per draw.
    outside : bool
        Whether a log-factor lay outside the support in any draw.
    constant : bool
        Whether the first look of any draw was constant for some comparison, so that it decided nothing.
    held_back : bool
        Whether the normal rule postponed a decision at a look of any draw; see `RaceResult`.
    skewed : bool
        Whether the normal rule decided more than a quarter of the draws on skewed log-factors.
    impossible : bool
        Whether a log-factor of -inf was read in any draw.
    warnings : tuple of str
        What may void the promise, in any of the draws.
    names : tuple of str, optional
        What to call the states.
    """

    n_draws: int
    fraction_read: float
    fraction_exact: float
    looks_per_draw: float
    evaluations: int
    bound: str
    delta: float
    outside: bool = False
    constant: bool = False
    held_back: bool = False
    skewed: bool = False
    impossible: bool = False
    warnings: tuple[str, ...] = ()
    names: tuple[str, ...] | None = field(default=None, repr=False)

    def _title(self) -> str:
        return (
            f"{counted(self.n_draws, 'draw')} by the {self.bound} rule at delta {self.delta:g}: read "
            f"{100 * self.fraction_read:.3g} % of the factors in {counted(self.looks_per_draw, 'look', '.3g')} a draw, "
            f"{100 * self.fraction_exact:.3g} % of draws exact"
        )

    def _panels(self) -> Mapping[str, Callable[[Any], None]]:
        return {"shares": self._draw_shares}

    def _draw_shares(self, ax: Any) -> None:
        ax.barh(["factors read", "draws exact"], [self.fraction_read, self.fraction_exact], color=["C0", "C1"])
        ax.set(xlim=(0.0, 1.0), xlabel="share")


@dataclass(frozen=True, eq=False)
class AcceptResult(Result):
    """One decision; true if accepted.

    Attributes
    ----------
    accepted : bool
        Whether the sum of the differences over all rows is above `threshold`; wrong with probability at most `delta`,
        as far as the bound holds. A tie is not above.
    threshold : float
        What the sum was compared with.
    n_rows : int
        Rows in the population.
    n_read : int
        Distinct rows the decision rests on.
    n_evaluated : int
        Rows read, counting again those that a full pass reads twice.
    n_looks : int
        Looks taken, the exact one included.
    stopped_by : str
        ``"bound"``, or ``"exact"`` when every row was read or the answer was certain without.
    mean : float
        Mean difference per row so far, the source's known part included; exact if every row was read, nan if none was.
    half_width : float
        Half-width of the mean at the last look; 0 if exact, nan where there is none: for betting, and unread.
    skewness, kurtosis : float
        Of the differences in the sample at the last look, kurtosis in excess of the normal; nan for a constant sample.
    bound : str
        The rule that decided when to stop.
    delta : float
        Promised probability of error.
    warnings : tuple of str
        What may void the promise.

    Notes
    -----
    The normal rule knows the rows that it has read, and has no bound on the others. `unseen_rows` of one kind, unlike
    all that were read, may be among these, and would turn the answer if they were `unseen_reach` beyond the mean. If
    you know that no difference is so far out, the answer stands; if you do not, give a support to the betting rule.
    """

    accepted: bool
    threshold: float
    n_rows: int
    n_read: int
    n_evaluated: int
    n_looks: int
    stopped_by: str
    mean: float
    half_width: float
    skewness: float
    kurtosis: float
    bound: str
    delta: float
    warnings: tuple[str, ...] = ()

    _derived: ClassVar[tuple[str, ...]] = ("fraction_read", "unseen_rows", "unseen_reach")

    def __bool__(self) -> bool:
        return self.accepted

    @property
    def fraction_read(self) -> float:
        """``n_read / n_rows``; 0 for an empty population."""
        return self.n_read / self.n_rows if self.n_rows else 0.0

    @property
    def unseen_rows(self) -> int:
        """The most rows of one kind of which `n_read` random ones hold none with probability `delta`.

        0 where the promise covers all rows: where all were read, and by a rigorous rule. The formula of discovery
        samples, ``(n_rows - (n_read - 1) / 2) * (1 - delta ** (1 / n_read))`` [1]_.

        .. [1] Wise, "A quickly convergent expansion for cumulative hypergeometric probabilities, direct and inverse",
           Biometrika 1954.
        """
        if self.bound != "normal" or self.stopped_by != "bound" or not 0 < self.n_read < self.n_rows:
            return 0
        share = -math.expm1(math.log(self.delta) / self.n_read)
        return min(int((self.n_rows - 0.5 * (self.n_read - 1)) * share), self.n_rows - self.n_read)

    @property
    def unseen_reach(self) -> float:
        """How far from the mean so many rows would have to be, on average, to turn the answer; infinite for none."""
        rows = self.unseen_rows
        return abs(self.mean - self._per_row()) * self.n_rows / rows if rows else math.inf

    @property
    def interval(self) -> tuple[float, float]:
        """``mean - half_width`` and ``mean + half_width``."""
        return self.mean - self.half_width, self.mean + self.half_width

    def _per_row(self) -> float:
        """The threshold of the mean."""
        return self.threshold / self.n_rows if self.n_rows else self.threshold

    def _title(self) -> str:
        return (
            f"{'accepted' if self.accepted else 'rejected'}: {self.bound} rule, delta {self.delta:g}, read "
            f"{100 * self.fraction_read:.3g} % of {counted(self.n_rows, 'row')} after {counted(self.n_looks, 'look')}, "
            f"{ending(self.stopped_by)}"
        )

    def _table(self) -> Table:
        lines = [f"  mean {number(self.mean, '.6g')} +- {number(self.half_width, '.3g')} per row against "
                 f"{number(self._per_row(), '.6g')}"]
        if self.unseen_rows:
            lines.append(f"  may have missed {counted(self.unseen_rows, 'row')} of one kind (probability "
                         f"{self.delta:g}), which turn the answer if {number(self.unseen_reach, '.3g')} from the mean")
        return Table((), lines)

    def _panels(self) -> Mapping[str, Callable[[Any], None]]:
        return {"interval": lambda ax: _draw_interval(ax, self.mean, self.interval, self._per_row())}


@dataclass(frozen=True, eq=False)
class StopResult(Result):
    """What a stream that stops itself knows of its mean.

    Attributes
    ----------
    rule : str
        Name of the rule.
    estimate : float
        The promised estimate if `stopped`; otherwise the mean of the rewards used, without a promise. For
        ``criterion="sign"`` 1.0 or -1.0, the side of the threshold, once stopped.
    interval : tuple of float
        Interval (lower, upper) that holds the mean at all times, with probability at least ``1 - delta``.
    n_samples : int
        Rewards used.
    stopped_by : str
        ``"epsilon"`` (the accuracy was reached), ``"bound"`` (the side of the threshold is decided) or ``"exact"`` (all
        rows were read), each with the promise; ``""`` (still running); ``"max_samples"`` (so many were used first);
        ``"max_seconds"`` (the seconds of the call of `estimate_mean` ended first);
        ``"exhausted"`` (the rewards that `estimate_mean` or the command was given ended first);
        ``"inconsistent"`` (no mean fits what was seen: the rewards broke an assumption, or the event of probability
        `delta` came true; where every row of a population was seen, the interval is its mean all the same).
    criterion : str
        ``"relative"``, ``"absolute"``, ``"sign"`` or ``"never"``.
    epsilon : float
        Accuracy asked for; nan for rules without one.
    delta : float
        Promised probability of error.
    support : tuple of float or None
        Interval that held every reward; None if it was not known, and `kind` is ``"asymptotic"``.
    n_clipped : int
        Rewards that were moved to an end of the support.
    note : str
        What else should be known.
    warnings : tuple of str
        What may void the promise.
    """

    rule: str
    estimate: float
    interval: tuple[float, float]
    n_samples: int
    stopped_by: str
    criterion: str
    epsilon: float
    delta: float
    support: tuple[float, float] | None
    n_clipped: int = 0
    note: str = ""
    warnings: tuple[str, ...] = ()

    _derived: ClassVar[tuple[str, ...]] = ("stopped", "kind")

    @property
    def kind(self) -> str:
        """``"exact"``, or ``"asymptotic"`` if the support was not known: the promise is then nearly right."""
        return "asymptotic" if self.support is None else "exact"

    @property
    def stopped(self) -> bool:
        """Whether `estimate` is promised."""
        return self.stopped_by in ("epsilon", "bound", "exact")

    def _title(self) -> str:
        samples = counted(self.n_samples, "sample")
        end = {
            "": f"still running after {samples}",
            "exhausted": f"not stopped: the rewards ended after {self.n_samples}",
            "max_samples": f"not stopped: out of samples after {self.n_samples}",
            "max_seconds": f"not stopped: out of time after {samples}",
            "inconsistent": f"inconsistent after {samples}: no mean fits all intervals",
        }.get(self.stopped_by, f"stopped after {samples}")
        accuracy = "" if self.epsilon != self.epsilon else f", epsilon {self.epsilon:g}"
        goal = "" if self.criterion in ("sign", "never") else f"{self.criterion} accuracy{accuracy}, "
        return f"{self.rule}: {end} ({goal}delta {self.delta:g}{', asymptotic' if self.support is None else ''})"

    def _table(self) -> Table:
        name = "estimate" if self.stopped or self.criterion == "never" else "estimate so far (no promise)"
        if self.criterion == "sign" and self.stopped:
            name = "side of the threshold"
        ends = ", ".join(number(end, ".8g") for end in self.interval)
        rows = {name: number(self.estimate, ".8g"), "interval": f"[{ends}]",
                "samples": str(self.n_samples)} | ({"clipped": str(self.n_clipped)} if self.n_clipped else {})
        width = max(map(len, rows))
        return Table((), [(f"  {label:<{width}}", value) for label, value in rows.items()])

    def _notes(self) -> list[str]:
        return ([f"  {self.note}"] if self.note else []) + super()._notes()

    def _panels(self) -> Mapping[str, Callable[[Any], None]]:
        return {"interval": lambda ax: _draw_interval(ax, self.estimate, self.interval, None)}


def _draw_interval(ax: Any, value: float, interval: tuple[float, float], threshold: float | None) -> None:
    ax.plot(interval, (0, 0), "|-", color="C0", label="interval")
    if threshold is not None:
        ax.axvline(threshold, color="C3", lw=1, ls="--", label="threshold")
    ax.plot(value, 0, "o", color="C1", zorder=3, label="estimate")
    ax.set(yticks=[], xlabel="mean reward")
    ax.legend()
