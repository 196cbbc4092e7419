"""Answers: frozen dataclasses that print as a short table and plot themselves."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrace._base._words import counted, ending


@dataclass(frozen=True, eq=False)
class RaceResult:
    """What a race over a finite population found.

    Attributes
    ----------
    best : int
        The arm with the largest mean, wrong with probability at most `delta` as far as the bound holds. If the race was
        cut short (``stopped_by`` is "budget" or empty), the arm with the largest mean so far, without that promise.
    active : ndarray of int, shape (k,)
        Arms that were still in the race when it stopped; `best` alone unless the race was cut short. The best arm is
        among them with probability at least ``1 - delta``.
    mean : ndarray of float, shape (n_arms,)
        Mean reward of each arm over the rows read for it, offsets included; reward units. Exact for the arms that
        were read in full.
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
        bound, within `delta`), ``"single"`` (one arm only),
        ``"budget"`` (`max_pulls` was reached) or ``""`` (not stopped).
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
    """

    best: int
    active: NDArray[np.intp]
    mean: NDArray[np.float64]
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

    def __str__(self) -> str:
        title = (
            f"best arm {self._name(self.best)}: {self.bound} rule, delta {self.delta:g}, "
            f"read {100 * self.fraction_read:.3g} % after {counted(self.n_looks, 'look')}, {ending(self.stopped_by)}"
        )
        if self.stopped_by == "exact":
            title += " (reading all rows in order was cheaper than what was left of the race)"
        order = np.argsort(-self.mean, kind="stable")
        shown = order[:10]
        width = max([3, *(len(self._name(int(i))) for i in shown)])
        lines = [title, f"  {'arm':>{width}}  {'mean':>12}  {'half-width':>12}  {'pulls':>10}"]
        for i in shown:
            mark = "*" if i == self.best else " "
            wide = "-" if np.isnan(self.half_width[i]) else f"{self.half_width[i]:.3g}"
            name = self._name(int(i))
            lines.append(f"{mark} {name:>{width}}  {self.mean[i]:>12.5g}  {wide:>12}  {self.pulls[i]:>10d}")
        if order.size > shown.size:
            lines.append(f"  ... {counted(order.size - shown.size, 'more arm')}")
        lines.extend(f"warning: {text}" for text in self.warnings)
        return "\n".join(lines)

    def _name(self, arm: int) -> str:
        return str(arm) if self.names is None else self.names[arm]

    def plot(self, ax: Any = None) -> Any:
        """Draw means with half-widths, and rows read per arm.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        matplotlib Axes
        """
        ax = axes(ax)
        arms = np.arange(self.mean.size)
        error = np.where(np.isfinite(self.half_width), self.half_width, 0.0)
        ax.errorbar(arms, self.mean, yerr=error, fmt="o", color="0.4", capsize=3, label="mean and half-width")
        ax.plot(self.best, self.mean[self.best], "o", color="C1", label="best")
        ax.set_xlabel("arm")
        ax.set_ylabel("mean reward")
        if self.names is not None and self.mean.size <= 30:
            ax.set_xticks(arms, self.names, rotation=45, ha="right")
        twin = ax.twinx()
        twin.bar(arms, self.pulls, color="C0", alpha=0.2)
        twin.set_ylabel("rows read")
        ax.legend()
        return ax


@dataclass(frozen=True, eq=False)
class UnequalResult:
    """What a race of sums over populations of different sizes found.

    Attributes
    ----------
    best : int
        The arm with the largest sum, wrong with probability at most `delta` as far as the bound holds.
    active : ndarray of int, shape (k,)
        Arms that were still in the race when it stopped; `best` alone once it is over.
    total : ndarray of float, shape (n_arms,)
        Estimated sum of each arm, offset included; exact for arms that were read in full, nan where no row was read.
    half_width : ndarray of float, shape (n_arms,)
        Half-width of the comparison of the arm's sum with the leader's at the arm's last look; 0 where both were exact,
        nan for the leader itself unless it was read in full.
    pulls : ndarray of int64, shape (n_arms,)
        Distinct rows read of each arm.
    sizes : ndarray of int64, shape (n_arms,)
        Rows of each arm.
    fraction_read : float
        ``pulls.sum() / sizes.sum()``.
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
    """

    best: int
    active: NDArray[np.intp]
    total: NDArray[np.float64]
    half_width: NDArray[np.float64]
    pulls: NDArray[np.int64]
    sizes: NDArray[np.int64]
    fraction_read: float
    n_looks: int
    stopped_by: str
    bound: str
    delta: float
    held_back: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, np.intp))
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        title = (
            f"best arm {self.best}: {self.bound} rule, delta {self.delta:g}, read {100 * self.fraction_read:.3g} % "
            f"after {counted(self.n_looks, 'look')}, {ending(self.stopped_by)}"
        )
        order = np.argsort(-self.total, kind="stable")
        lines = [title, f"  {'arm':>6}  {'sum':>12}  {'half-width':>12}  {'pulls':>10}  {'rows':>10}"]
        for i in order[:10]:
            mark = "*" if i == self.best else " "
            lines.append(
                f"{mark} {i:>6}  {self.total[i]:>12.5g}  {self.half_width[i]:>12.3g}  {self.pulls[i]:>10d}  "
                f"{self.sizes[i]:>10d}"
            )
        if order.size > 10:
            lines.append(f"  ... {counted(order.size - 10, 'more arm')}")
        lines.extend(f"warning: {text}" for text in self.warnings)
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class SelectionResult:
    """The m best of n arms, as far as they are known.

    Attributes
    ----------
    best : ndarray of int, shape (n_best,)
        The arms selected, the largest mean first; ties to the lower number.
    mean : ndarray of float, shape (n_arms,)
        Mean reward of each arm; nan if it was not pulled.
    lower, upper : ndarray of float, shape (n_arms,)
        Bounds of each mean within its support, as the rule makes them.
    pulls : ndarray of int64, shape (n_arms,)
        Pulls of each arm.
    stopped_by : str
        ``"delta"`` (the error bound reached `delta`), ``"cap"`` (every arm has had the pulls of a plan for the worst
        case), ``"plan"`` (a fixed plan was carried out), ``"separation"`` (no bounds collide any more, or every arm
        was decided), ``"horizon"`` (the rounds are used up), ``"budget"`` (the pulls of a rule without promise are
        spent), ``"all"`` (all arms were wanted), ``"exact"`` (every row of a table was read after all: the means are
        those of the table), ``"max_pulls"`` (told to stop: no promise beyond `error_bound`) or ``""`` (still running).
    rule : str
        The rule that selected.
    epsilon : float
        Accuracy asked for, in reward units; nan for rules without one.
    delta : float
        Probability of error asked for; nan for rules without one.
    error_bound : float
        Bound on the probability that the selection is wrong, by the rule's own reckoning; nan where it has none.
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
    """

    best: NDArray[np.intp]
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

    @property
    def n_pulls(self) -> int:
        """Pulls of all arms together."""
        return int(self.pulls.sum())

    def __str__(self) -> str:
        wanted = "" if math.isnan(self.delta) else f", delta {self.delta:g}"
        if not math.isnan(self.epsilon):
            wanted = f", epsilon {self.epsilon:g}{wanted}"
        reached = "" if math.isnan(self.error_bound) else f", error bound {self.error_bound:.3g}"
        lines = [
            f"best {self.best.size} of {counted(self.mean.size, 'arm')}: {self.rule}{wanted}, "
            f"{counted(self.n_pulls, 'pull')}, {ending(self.stopped_by)}{reached}"
        ]
        order = np.argsort(-np.where(np.isnan(self.mean), -np.inf, self.mean), kind="stable")
        selected = np.isin(order, self.best)
        order = np.concatenate([order[selected], order[~selected]])
        cut = self.best.size
        first = order[: min(cut, 8)]
        last = order[cut : cut + 4]
        width = max([3, *(len(self._name(int(i))) for i in (*first, *last))])
        lines.append(f"  {'arm':>{width}}  {'mean':>12}  {'lower':>12}  {'upper':>12}  {'pulls':>10}")
        for group, mark, rest in ((first, "*", cut - first.size), (last, " ", order.size - cut - last.size)):
            for i in group:
                lines.append(
                    f"{mark} {self._name(int(i)):>{width}}  {self.mean[i]:>12.5g}  {self.lower[i]:>12.5g}  "
                    f"{self.upper[i]:>12.5g}  {self.pulls[i]:>10d}"
                )
            if rest:
                lines.append(f"  ... {f'{rest} more selected' if mark == '*' else counted(rest, 'more arm')}")
        lines.extend(f"warning: {text}" for text in self.warnings)
        return "\n".join(lines)

    def _name(self, arm: int) -> str:
        return str(arm) if self.names is None else self.names[arm]

    def plot(self, what: str = "all", ax: Any = None) -> Any:
        """Draw the means with their bounds, the pulls of each arm, and how the rule got there.

        Parameters
        ----------
        what : {"all", "means", "pulls", "trace"}, default "all"
            Means with bounds, the cutoff and the selected arms; pulls of each arm; or what the rule watches against
            pulls, beside the value it waits for. Arms stand in decreasing order of their means.
        ax : matplotlib Axes, or sequence of them for "all", optional
            Where to draw; a new figure by default.

        Returns
        -------
        matplotlib Axes, or list of them for "all"

        Raises
        ------
        ValueError
            If `what` is something else, or "trace" is asked of a rule that keeps none.
        """
        kinds = ["means", "pulls"] + ([] if self.trace is None else ["trace"])
        if what == "all":
            if ax is None:
                figure = axes(None).figure
                figure.clear()
                figure.set_size_inches(9.0, 2.8 * len(kinds))
                figure.set_layout_engine("tight")
                ax = [figure.add_subplot(len(kinds), 1, k + 1) for k in range(len(kinds))]
            return [self.plot(kind, one) for kind, one in zip(kinds, ax, strict=False)]
        if what not in kinds:
            why = f"; {self.rule} keeps no trace" if what == "trace" else ""
            raise ValueError(f"what is {what!r}; one of all, {', '.join(kinds)} is needed{why}")
        ax = axes(ax)
        if self.trace is not None and what == "trace":
            self._plot_trace(ax, *self.trace)
            return ax
        order = np.argsort(-np.where(np.isnan(self.mean), -np.inf, self.mean), kind="stable")
        place = np.arange(order.size)
        selected = np.isin(order, self.best)
        if what == "pulls":
            ax.bar(place[selected], self.pulls[order][selected], width=1.0, color="C1", label="selected")
            ax.bar(place[~selected], self.pulls[order][~selected], width=1.0, color="0.6", label="others")
            ax.set_ylabel("pulls")
        else:
            below, above = self.mean - self.lower, self.upper - self.mean
            for group, color, label in ((selected, "C1", "selected"), (~selected, "0.4", "others")):
                arms = order[group]
                error = np.nan_to_num(np.maximum([below[arms], above[arms]], 0.0))
                ax.errorbar(place[group], self.mean[arms], yerr=error, fmt="o", color=color, capsize=2, label=label)
            if not math.isnan(self.cutoff):
                ax.axhline(self.cutoff, color="C3", lw=1, ls="--", label="cutoff")
            ax.set_ylabel("mean reward and bounds")
        if order.size <= 30:
            ax.set_xticks(place, [self._name(int(i)) for i in order], rotation=0 if self.names is None else 45)
        ax.set_xlabel("arm, largest mean first")
        ax.legend()
        return ax

    def _plot_trace(self, ax: Any, pulls: NDArray[np.int64], value: NDArray[np.float64]) -> None:
        wanted = self.delta if self.trace_of == "error bound" else self.epsilon
        ax.plot(pulls, value, color="C0", label=self.trace_of)
        if wanted > 0.0:
            ax.axhline(wanted, color="C3", lw=1, ls="--", label="wanted")
        ax.set_xscale("log")
        if (value > 0.0).any():
            ax.set_yscale("log")
        ax.set_xlabel("pulls")
        ax.set_ylabel(self.trace_of)
        ax.legend()


def axes(ax: Any) -> Any:
    """The given axes, or those of a new figure; matplotlib is asked for only here."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError('plots need matplotlib: python -m pip install matplotlib') from error
    return plt.figure().add_subplot()


@dataclass(frozen=True)
class SamplerStats:
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
        Log-factors asked of the source, those read again in full passes included.
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

    def __str__(self) -> str:
        line = (
            f"{counted(self.n_draws, 'draw')} by the {self.bound} rule at delta {self.delta:g}: read "
            f"{100 * self.fraction_read:.3g} % of the factors in {counted(self.looks_per_draw, 'look', '.3g')} a draw, "
            f"{100 * self.fraction_exact:.3g} % of draws exact"
        )
        return "\n".join([line, *(f"warning: {told}" for told in self.warnings)])


@dataclass(frozen=True)
class AcceptResult:
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
        Rows asked of the source, those that a full pass read again included.
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

    def __bool__(self) -> bool:
        return self.accepted

    @property
    def fraction_read(self) -> float:
        """``n_read / n_rows``; 0 for an empty population."""
        return self.n_read / self.n_rows if self.n_rows else 0.0

    def __str__(self) -> str:
        lines = [
            f"{'accepted' if self.accepted else 'rejected'}: {self.bound} rule, delta {self.delta:g}, read "
            f"{100 * self.fraction_read:.3g} % of {counted(self.n_rows, 'row')} after {counted(self.n_looks, 'look')}, "
            f"{ending(self.stopped_by)}",
            f"  mean {self.mean:.6g} +- {self.half_width:.3g} per row against "
            f"{self.threshold / self.n_rows if self.n_rows else self.threshold:.6g}",
        ]
        return "\n".join([*lines, *(f"warning: {text}" for text in self.warnings)])


@dataclass(frozen=True)
class StopResult:
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
    status : str
        ``"stopped"``; ``"running"``; ``"max_samples"`` (the samples ran out first); ``"inconsistent"`` (no mean fits
        what was seen: the rewards broke an assumption, or the event of probability `delta` came true; where every row
        of a population was seen, the interval is its mean all the same).
    criterion : str
        ``"relative"``, ``"absolute"``, ``"sign"`` or ``"never"``.
    epsilon : float
        Accuracy asked for; nan for rules without one.
    delta : float
        Promised probability of error.
    support : tuple of float
        Interval that held every reward.
    n_clipped : int
        Rewards that were moved to an end of the support.
    note : str
        What else should be known.
    """

    rule: str
    estimate: float
    interval: tuple[float, float]
    n_samples: int
    status: str
    criterion: str
    epsilon: float
    delta: float
    support: tuple[float, float]
    n_clipped: int = 0
    note: str = ""

    @property
    def stopped(self) -> bool:
        """Whether `estimate` is promised."""
        return self.status == "stopped"

    def __str__(self) -> str:
        ends = {
            "stopped": f"stopped after {counted(self.n_samples, 'sample')}",
            "running": f"running, {counted(self.n_samples, 'sample')} so far",
            "max_samples": f"not stopped: out of samples after {self.n_samples}",
            "inconsistent": f"inconsistent after {counted(self.n_samples, 'sample')}: no mean fits all intervals",
        }
        accuracy = "" if self.epsilon != self.epsilon else f", epsilon {self.epsilon:g}"
        name = "estimate" if self.stopped or self.criterion == "never" else "estimate so far (no promise)"
        if self.criterion == "sign" and self.stopped:
            name = "side of the threshold"
        rows = [
            (name, f"{self.estimate:.8g}"),
            ("interval", f"[{self.interval[0]:.8g}, {self.interval[1]:.8g}]"),
            ("samples", str(self.n_samples)),
        ]
        if self.n_clipped:
            rows.append(("clipped", str(self.n_clipped)))
        width = max(len(label) for label, _ in rows)
        title = f"{self.rule}: {ends[self.status]} ({self.criterion} accuracy{accuracy}, delta {self.delta:g})"
        if self.criterion in ("sign", "never"):
            title = f"{self.rule}: {ends[self.status]} (delta {self.delta:g})"
        lines = [title, *(f"  {label:<{width}}  {value}" for label, value in rows)]
        return "\n".join([*lines, f"  {self.note}"] if self.note else lines)


@dataclass(frozen=True, eq=False)
class StreamRaceResult:
    """What a race on streams found.

    Attributes
    ----------
    best : int
        The best arm, wrong with probability at most `delta` if ``stopped_by`` is "bound" or "exact"; within `epsilon`
        of the best mean if "epsilon"; otherwise the arm with the largest mean so far.
    selected : ndarray of int, shape (n_best,)
        The best arms: those proven to be so, and the largest means of those still in the race.
    active : ndarray of int, shape (k,)
        Arms that have not left: with probability at least ``1 - delta`` every best arm is among them.
    mean, std : ndarray of float, shape (n_arms,)
        Of the rewards used of each arm, in reward units; nan where none was. ``std`` has divisor n, and is nan for
        `BettingRace`, which keeps none.
    lower, upper : ndarray of float, shape (n_arms,)
        Bracket of each mean at the arm's last round.
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
        ``"bound"``, ``"epsilon"``, ``"horizon"``, ``"single"`` (one arm only), ``"exact"`` (every row of a table was
        read, and the arms left were compared by their means over it), ``"inconsistent"`` (a bracket became empty: the
        rewards broke an assumption) or ``""`` (not stopped).
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
    """

    best: int
    selected: NDArray[np.intp]
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
    warnings: tuple[str, ...] = ()
    names: tuple[str, ...] | None = field(default=None, repr=False)

    @property
    def promise(self) -> str:
        """What holds with probability at least ``1 - delta``, in words."""
        if self.stopped_by == "inconsistent":
            return "none: a bracket became empty, so the rewards broke an assumption or the rare event came true"
        if self.stopped_by == "bound":
            if self.selected.size > 1:
                return "the selected arms have the largest means"
            return f"arm {self._name(self.best)} has the largest mean"
        if self.stopped_by == "single":
            return "there is one arm only"
        if self.stopped_by == "exact":
            tied = self.active.size - self.selected.size
            text = "every row was read, and the selected arms have the largest means"
            return f"{text}; {tied} more cannot be told from the last of them" if tied else text
        left = f"every best arm is among the {self.active.size} left"
        if self.stopped_by == "epsilon":
            return f"arm {self._name(self.best)} is within {self.epsilon:g} of the largest mean; {left}"
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

    def __str__(self) -> str:
        names = ", ".join(self._name(int(i)) for i in self.selected[:10])
        title = (
            f"best {'arms' if self.selected.size > 1 else 'arm'} {names}: {self.bound} race, delta {self.delta:g}, "
            f"{counted(self.n_rounds, 'round')}, {100 * self.work_saved:.3g} % of the work saved, "
            f"{self.active.size} of {counted(self.mean.size, 'arm')} left, {ending(self.stopped_by)}"
        )
        order = np.argsort(np.where(np.isnan(self.mean), np.inf, -self.mean), kind="stable")
        shown = order[:10]
        width = max([3, *(len(self._name(int(i))) for i in shown)])
        lines = [title, f"  {'arm':>{width}}  {'mean':>12}  {'lower':>12}  {'upper':>12}  {'pulls':>10}"]
        for i in shown:
            mark = "*" if i in self.selected else " " if i in self.active else "x"
            lines.append(
                f"{mark} {self._name(int(i)):>{width}}  {self.mean[i]:>12.5g}  {self.lower[i]:>12.5g}  "
                f"{self.upper[i]:>12.5g}  {self.pulls[i]:>10d}"
            )
        if order.size > shown.size:
            lines.append(f"  ... {counted(order.size - shown.size, 'more arm')}")
        lines.append(f"  promise: {self.promise}")
        lines.extend(f"warning: {text}" for text in self.warnings)
        return "\n".join(lines)

    def _name(self, arm: int) -> str:
        return str(arm) if self.names is None else self.names[arm]

    def plot(self, ax: Any = None) -> Any:
        """Draw the bracket of every arm and the rewards used of it.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        matplotlib Axes
        """
        ax = axes(ax)
        arms = np.arange(self.mean.size)
        error = np.vstack([self.mean - self.lower, self.upper - self.mean])
        error = np.where(np.isfinite(error), np.maximum(error, 0.0), 0.0)
        kept = np.isin(arms, self.active)
        for chosen, color, label in ((~kept, "0.7", "left the race"), (kept, "C0", "still in the race")):
            if chosen.any():
                ax.errorbar(
                    arms[chosen], self.mean[chosen], yerr=error[:, chosen], fmt="o", color=color, capsize=3, label=label
                )
        ax.plot(self.selected, self.mean[self.selected], "o", color="C1", label="best")
        ax.set_xlabel("arm")
        ax.set_ylabel("mean reward and its bracket")
        if self.names is not None and self.mean.size <= 30:
            ax.set_xticks(arms, self.names, rotation=45, ha="right")
        twin = ax.twinx()
        twin.bar(arms, self.pulls, color="C0", alpha=0.15)
        twin.set_ylabel("rewards used")
        ax.legend()
        return ax
