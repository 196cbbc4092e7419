"""Answers about streams that were observed: intervals of arms, differences and ratios, verdicts, history."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastrace._base._words import counted, number, short
from fastrace.results.base import MOST_DRAWN, Column, Result, Table, n_shown

VERDICTS = ("better", "worse", "equivalent", "not known yet")


@dataclass(frozen=True, eq=False)
class ComparisonResult(Result):
    """What streams that were observed say of their means, at one time.

    All intervals hold together, at all times at once, with probability at least ``1 - delta``: those of the arms spend
    a fifth of `delta`, those of the differences the rest, and those of the ratios follow from both.

    Attributes
    ----------
    names : tuple of str
        What the arms are called.
    mean, lower, upper : ndarray of float, shape (n_arms,)
        Mean reward of each arm, nan without rewards, and its interval; printed under the table, whose rows are pairs.
    pulls : ndarray of int64, shape (n_arms,)
        Rewards of each arm.
    n_clusters : ndarray of int64, shape (n_arms,), optional
        Clusters of each arm.
    pairs : ndarray of intp, shape (n_pairs, 2)
        The arm and the arm that it is compared with, of each pair.
    difference, difference_lower, difference_upper : ndarray of float, shape (n_pairs,)
        Mean of the arm less that of the other, and its interval.
    ratio, ratio_lower, ratio_upper : ndarray of float, shape (n_pairs,)
        The one over the other, and its interval. Nothing is known while the other mean may be 0 or less.
    error_bound : ndarray of float, shape (n_pairs,)
        Anytime p-value of "the means are equal": the smallest `delta` at which the bets of the difference would exclude
        0 now, at most 1. Not below `delta` where ``kind`` is "asymptotic": see `RaceResult`.
    verdict : tuple of str
        Of each pair: ``"better"`` or ``"worse"`` (0 lies outside the interval of the difference), ``"equivalent"`` (the
        interval lies within `epsilon` of 0) or ``"not known yet"``.
    kind : str
        ``"exact"``, or ``"asymptotic"``: the promise is then nearly right.
    delta : float
        Promised probability of error.
    epsilon : float
        Largest difference that makes no difference, in reward units.
    support : tuple of float or None
        Interval that held every reward, if it is known.
    history : dict of str to ndarray
        What was known at earlier times, where the number of rewards had grown by a fifth: ``"n_read"`` and ``"time"``
        of shape (n_looks,), ``"mean"``, ``"lower"``, ``"upper"`` of shape (n_looks, n_arms), ``"difference"``,
        ``"difference_lower"`` and ``"difference_upper"`` of shape (n_looks, n_pairs).
    note : str
        What else should be known.
    warnings : tuple of str
        What may void the promise.
    words : tuple of str
        What arms, rewards and clusters are called where the answer is printed and drawn; clusters that have no word
        are not spoken of.
    """

    names: tuple[str, ...]
    mean: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    pulls: NDArray[np.int64]
    pairs: NDArray[np.intp]
    difference: NDArray[np.float64]
    difference_lower: NDArray[np.float64]
    difference_upper: NDArray[np.float64]
    ratio: NDArray[np.float64]
    ratio_lower: NDArray[np.float64]
    ratio_upper: NDArray[np.float64]
    error_bound: NDArray[np.float64]
    verdict: tuple[str, ...]
    kind: str
    delta: float
    epsilon: float
    support: tuple[float, float] | None
    n_clusters: NDArray[np.int64] | None = None
    history: Mapping[str, Any] = field(default_factory=dict, repr=False)
    note: str = ""
    warnings: tuple[str, ...] = ()
    words: tuple[str, str, str] = field(default=("arm", "reward", "cluster"), repr=False)

    _derived: ClassVar[tuple[str, ...]] = ("n_read",)

    def to_dict(self) -> dict[str, Any]:
        """As that of every answer; times that are no numbers are words."""
        found = super().to_dict()
        times = found["history"].get("time", [])
        words = [time if time is None or isinstance(time, (int, float, str)) else str(time) for time in times]
        return found | {"history": found["history"] | ({"time": words} if "time" in found["history"] else {})}

    @property
    def n_read(self) -> int:
        """Rewards observed, of all arms together."""
        return int(np.sum(self.pulls))

    def _pair(self, k: int) -> tuple[str, str]:
        """Names of an arm and of the one that it is compared with."""
        arm, other = self.pairs[k]
        return self.names[arm], self.names[other]

    def _title(self) -> str:
        found = ", ".join(f"{self.verdict.count(word)} {word}" for word in VERDICTS if word in self.verdict)
        arm, reward, _ = self.words
        return (f"comparison of {counted(len(self.names), arm)} after {counted(self.n_read, reward, ',')} "
                f"({self.kind}, delta {self.delta:g}): {found or 'no pair'}")

    def _table(self) -> Table:
        listed = range(n_shown(len(self.verdict)))
        names = [tuple(short(name, 30) for name in self._pair(k)) for k in listed]
        left, right = (max(len(head), *(len(pair[side]) for pair in names)) if names else len(head)
                       for side, head in enumerate((self.words[0], "against")))
        apart = _intervals(self.difference_lower, self.difference_upper, len(listed))
        times = _intervals(self.ratio_lower, self.ratio_upper, len(listed))
        columns = [Column("difference", self.difference, ".4g"), Column("its interval", apart, "", 22),
                   Column("ratio", self.ratio, ".4g", 8), Column("its interval", times, "", 18),
                   Column("error bound", self.error_bound, ".2g", 11)]
        rows: list[Any] = [[f"  {names[k][0]:>{left}}", f"{names[k][1]:>{right}}",
                            *(column.cell(k) for column in columns), self.verdict[k]] for k in listed]
        if len(self.verdict) > len(rows):
            rows.append(f"  ... {counted(len(self.verdict) - len(rows), 'more pair')}")
        heads = [f"  {self.words[0]:>{left}}", f"{'against':>{right}}",
                 *(f"{column.head:>{column.width}}" for column in columns), "verdict"]
        return Table(heads, rows)

    def _notes(self) -> list[str]:
        said = []
        _, reward, cluster = self.words
        for arm in range(n_shown(len(self.names))):
            clusters = ("" if self.n_clusters is None or not cluster else
                        f" in {counted(self.n_clusters[arm], cluster, ',')}")
            said.append(f"  {short(self.names[arm], 30)}: mean {number(float(self.mean[arm]), '.5g')} in "
                        f"[{self.lower[arm]:.5g}, {self.upper[arm]:.5g}], "
                        f"{counted(self.pulls[arm], reward, ',')}{clusters}")
        return said + ([f"  {self.note}"] if self.note else []) + super()._notes()

    def _columns(self) -> dict[str, Any]:
        pairs = [self._pair(k) for k in range(len(self.verdict))]
        arm, other = self.pairs[:, 0], self.pairs[:, 1]
        values = ("difference", "difference_lower", "difference_upper", "ratio", "ratio_lower", "ratio_upper",
                  "error_bound")
        return {"arm": [pair[0] for pair in pairs], "against": [pair[1] for pair in pairs],
                "mean": self.mean[arm], "lower": self.lower[arm], "upper": self.upper[arm], "pulls": self.pulls[arm],
                "mean_against": self.mean[other], **{name: getattr(self, name) for name in values},
                "verdict": list(self.verdict)}

    def _panels(self) -> Mapping[str, Callable[[Any], None]]:
        return {"means": self._draw_means, "differences": self._draw_differences, "history": self._draw_history}

    def _height(self) -> float:
        return max(2.8, 1.2 + 0.22 * min(len(self.verdict), MOST_DRAWN))

    def _draw_means(self, ax: Any) -> None:
        _draw_lines(ax, self.mean, self.lower, self.upper, self.names)
        ax.set(xlabel=f"mean {self.words[1]} and interval")

    def _draw_differences(self, ax: Any) -> None:
        names = [f"{arm} - {other}" for arm, other in map(self._pair, range(len(self.verdict)))]
        _draw_lines(ax, self.difference, self.difference_lower, self.difference_upper, names)
        ax.axvline(0.0, color="C3", lw=1, ls="--")
        if self.epsilon:
            ax.axvspan(-self.epsilon, self.epsilon, color="0.9", zorder=0)
        ax.set(xlabel="difference of means and interval")

    def _draw_history(self, ax: Any) -> None:
        """Intervals of the differences over time, or over the number of rewards where no times were given."""
        looks = self.history.get("n_read", np.zeros(0))
        times = self.history.get("time")
        dated = times is not None and len(times) == len(looks) and _of_one_kind(times)
        across = list(times) if dated else looks        # type: ignore[arg-type]
        for k in range(min(len(self.verdict), MOST_DRAWN) if len(looks) else 0):
            low, high = (self.history[name][:, k] for name in ("difference_lower", "difference_upper"))
            finite = np.isfinite(low) & np.isfinite(high)
            shown = [place for place, good in zip(across, finite, strict=True) if good]
            arm, other = self._pair(k)
            ax.fill_between(shown, low[finite], high[finite], alpha=0.25, color=f"C{k}")
            ax.plot(shown, self.history["difference"][finite, k], color=f"C{k}", label=f"{arm} - {other}")
        ax.axhline(0.0, color="C3", lw=1, ls="--")
        if not dated and len(looks):
            ax.set_xscale("log")
        ax.set(xlabel="time" if dated else f"{self.words[1]}s", ylabel="difference of means")
        if ax.get_legend_handles_labels()[0]:
            ax.legend()


def _of_one_kind(times: Sequence[Any]) -> bool:
    """Whether one axis can show them all: numbers, or dates, all with a time zone or none, or words."""
    if all(isinstance(time, (int, float, np.number)) for time in times):
        return True
    kinds = {(type(time) if isinstance(time, (str, np.datetime64)) else date, getattr(time, "tzinfo", None) is None)
             for time in times}
    return len(kinds) == 1 and all(isinstance(time, (date, str, np.datetime64)) for time in times)


def _intervals(lower: NDArray[Any], upper: NDArray[Any], count: int) -> list[str]:
    """The first intervals, as they are printed."""
    return [f"[{number(float(low), '.4g')}, {number(float(high), '.4g')}]"
            for low, high in zip(lower[:count], upper[:count], strict=True)]


def _draw_lines(ax: Any, value: NDArray[Any], lower: NDArray[Any], upper: NDArray[Any], names: Any) -> None:
    """A line per name, from the top, with its value and interval."""
    shown = range(min(len(names), MOST_DRAWN))
    for k in shown:
        if np.isfinite(lower[k]) and np.isfinite(upper[k]):
            ax.plot((lower[k], upper[k]), (k, k), "|-", color="C0")
        ax.plot(value[k], k, "o", color="C1", zorder=3)
    rest = len(names) - len(shown)
    ax.set_yticks(list(shown), [short(names[k], 30) for k in shown])
    ax.set(ylim=(len(shown) - 0.4, -0.6), ylabel=f"{rest} more not drawn" if rest else "")
