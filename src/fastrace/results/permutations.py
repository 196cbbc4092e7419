"""Answers of permutation and Monte-Carlo tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastrace._base._words import counted, short
from fastrace.results.base import MOST_DRAWN, Column, Result, Table, n_shown


@dataclass(frozen=True, eq=False)
class PermutationResult(Result):
    """Decisions of permutation tests: of a single one as plain values, of several as arrays of their shape.

    Attributes
    ----------
    statistic : float or ndarray of float
        The statistic of the data.
    pvalue : float or ndarray of float
        P-value of each hypothesis by itself. Valid at any time: under the null hypothesis it is ever at most u with
        probability at most u. It is the upper end of the interval with a share of `risk` added. A rejected hypothesis
        need not have a smaller one than `alpha` demands: it was drawn no further than the decision needs.
    estimate : float or ndarray of float
        The usual p-value of the permutations used, (count + 1) / (n + 1). After an early stop it is an estimate, not a
        valid p-value.
    lower, upper : float or ndarray of float
        Interval of the p-value by all `n_resamples` permutations. Given the data, all of them hold together with
        probability at least ``1 - risk``.
    rejected : bool or ndarray of bool
        Whether the hypothesis is rejected at level `alpha`, after the correction.
    decision : str or tuple of str
        ``"rejected"``; ``"accepted"`` (all permutations would not reject it, by error at most `risk`; not that it is
        true); or ``"not decided"``.
    n_permutations : int or ndarray of int64
        Permutations used for each hypothesis.
    stopped_by : str
        ``"bound"`` (every decision is clear), ``"exact"`` (some needed all permutations) or ``""`` (still running).
    alpha : float
        Level.
    risk : float
        Probability, given the data, that any decision differs from that of all permutations.
    n_resamples : int
        Permutations that would decide without early stops.
    alternative : str
        Side of the test.
    correction : str or None
        What `alpha` bounds where there are several hypotheses.
    names : tuple of str, optional
        What to call the hypotheses.
    """

    statistic: float | NDArray[np.float64]
    pvalue: float | NDArray[np.float64]
    estimate: float | NDArray[np.float64]
    lower: float | NDArray[np.float64]
    upper: float | NDArray[np.float64]
    rejected: bool | NDArray[np.bool_]
    decision: str | tuple[str, ...]
    n_permutations: int | NDArray[np.int64]
    stopped_by: str
    alpha: float
    risk: float
    n_resamples: int
    alternative: str
    correction: str | None = None
    names: tuple[str, ...] | None = field(default=None, repr=False)

    _derived: ClassVar[tuple[str, ...]] = ("n_read",)
    _per_hypothesis: ClassVar[tuple[str, ...]] = (
        "statistic", "pvalue", "estimate", "lower", "upper", "rejected", "n_permutations")

    @property
    def n_read(self) -> int:
        """Permutations used, of all hypotheses together."""
        return int(np.sum(self.n_permutations))

    def _words(self) -> list[str]:
        return [self.decision] if isinstance(self.decision, str) else list(self.decision)

    def _name(self, hypothesis: int) -> str:
        return str(hypothesis) if self.names is None else self.names[hypothesis]

    def _title(self) -> str:
        words = self._words()
        share = self.n_read / (len(words) * self.n_resamples)
        by = f", {self.correction}" if self.correction and len(words) > 1 else ""
        found = ", ".join(f"{words.count(word)} {word}" for word in ("rejected", "accepted", "not decided")
                          if word in words)
        noun = "hypothesis" if len(words) == 1 else "hypotheses"
        return (f"permutation test ({self.alternative}) of {len(words)} {noun}"
                f" at level {self.alpha:g}{by}: {found}; {counted(self.n_read, 'permutation', ',')}, "
                f"{100 * share:.3g} % of {self.n_resamples:,} each")

    def _order(self) -> NDArray[np.intp]:
        """Rejected ones first, then by estimate."""
        return np.lexsort((np.ravel(self.estimate), ~np.ravel(self.rejected)))

    def _table(self) -> Table:
        order, words = self._order(), self._words()
        listed = [int(i) for i in order[: n_shown(order.size)]]
        names = {i: short(self._name(i)) for i in listed}
        width = max(len("hypothesis"), *map(len, names.values()))
        columns = [Column(head, np.ravel(getattr(self, head)), spec) for head, spec in
                   (("statistic", ".5g"), ("pvalue", ".3g"), ("lower", ".3g"), ("upper", ".3g"))]
        columns.append(Column("permutations", np.ravel(self.n_permutations), "d"))
        rows: list[Any] = [[f"{names[i]:>{width}}", *(column.cell(i) for column in columns), words[i]] for i in listed]
        if order.size > len(listed):
            rows.append(f"  ... {order.size - len(listed)} more")
        heads = [f"{'hypothesis':>{width}}", *(f"{column.head:>{column.width}}" for column in columns), "decision"]
        return Table(heads, rows)

    def _notes(self) -> list[str]:
        return [f"decided as {counted(self.n_resamples, 'permutation', ',')} would, but for a risk of {self.risk:.2g}",
                *super()._notes()]

    def _columns(self) -> dict[str, Any]:
        words = self._words()
        return {"hypothesis": [self._name(i) for i in range(len(words))] if self.names else list(range(len(words))),
                "decision": words, **{name: np.ravel(getattr(self, name)) for name in self._per_hypothesis}}

    def _panels(self) -> Mapping[str, Callable[[Any], None]]:
        return {"pvalues": self._draw_pvalues, "permutations": self._draw_permutations}

    def _height(self) -> float:
        return max(2.8, 1.2 + 0.22 * min(len(self._words()), MOST_DRAWN))

    def _groups(self) -> list[tuple[NDArray[np.intp], NDArray[np.intp], str, str]]:
        """Lines and hypotheses of each decision, with its word and colour."""
        order = self._order()[:MOST_DRAWN]
        words = np.array(self._words())[order]
        colours = {"rejected": "C1", "accepted": "0.6", "not decided": "C0"}
        return [(np.flatnonzero(words == word), order[words == word], word, colour) for word, colour in colours.items()
                if (words == word).any()]

    def _draw_pvalues(self, ax: Any) -> None:
        estimate, lower, upper = (np.ravel(getattr(self, name)) for name in ("estimate", "lower", "upper"))
        for lines, chosen, word, colour in self._groups():
            middle = np.clip(estimate[chosen], lower[chosen], upper[chosen])
            ax.errorbar(middle, lines, xerr=[middle - lower[chosen], upper[chosen] - middle], fmt="o", color=colour,
                        capsize=2, label=word)
        ax.axvline(self.alpha, color="C3", lw=1, ls="--", label="level")
        ax.set_xscale("log")
        self._finish(ax, f"p-value by {self.n_resamples:,} permutations")

    def _draw_permutations(self, ax: Any) -> None:
        used = np.ravel(self.n_permutations)
        for lines, chosen, word, colour in self._groups():
            ax.barh(lines, used[chosen], height=0.9, color=colour, label=word)
        self._finish(ax, "permutations")

    def _finish(self, ax: Any, label: str) -> None:
        order = self._order()[:MOST_DRAWN]
        ax.set_yticks(np.arange(order.size), [short(self._name(int(i)), 30) for i in order])
        rest = len(self._words()) - order.size
        ax.set(xlabel=label, ylabel="hypothesis" + (f"\n{rest} more not drawn" if rest else ""),
               ylim=(order.size - 0.4, -0.6))
        ax.legend()
