"""Pictures of selections that a result does not draw itself, in the style of scikit-learn's displays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastrace._base import _checks, _frames
from fastrace._base._words import short
from fastrace.model_selection._results import LearnerResult


def _result_of(search: Any) -> LearnerResult:
    """The result of a search or of a method, or the result itself."""
    found = search if isinstance(search, LearnerResult) else getattr(search, "result_", None)
    if not isinstance(found, LearnerResult):
        raise ValueError(f"search is {type(search).__name__}; a LearnerResult, or a fitted search with `result_`, is "
                         f"needed: call fit first")
    return found


def _panels(count: int, ax: Any) -> Any:
    """Axes beside one another: those given, or those of a new figure."""
    if ax is not None:
        found = np.atleast_1d(np.asarray(ax, dtype=object))
        if found.size != count:
            raise ValueError(f"ax holds {found.size} axes; {count}, one per panel, are needed")
        return found
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plots need matplotlib: python -m pip install matplotlib") from error
    return plt.subplots(1, count, figsize=(4.5 * count + 1.5, 4.2), sharey=True, squeeze=False,
                        layout="constrained")[1][0]


class SelectionCurveDisplay:
    """Learning curves with the projections to all rows, as they stood when a decision was made.

    Parameters
    ----------
    result : LearnerResult
        What was trained, and what the method made of it.

    Attributes
    ----------
    axes_, figure_
        Axes, one per decision, and the figure that holds them.

    Examples
    --------
    >>> from fastrace.model_selection import DAUB, SelectionCurveDisplay
    >>> result = DAUB(3, 1000, 50).run(lambda learner, n: (0.95 - 0.1 * learner, 0.9 - 0.1 * learner - n**-0.5))
    >>> display = SelectionCurveDisplay(result)
    >>> display.decisions(2)[-1] == len(result.history)
    True

    ``display.plot()`` draws them, and ``SelectionCurveDisplay.from_search(search)`` those of a fitted search.
    """

    def __init__(self, result: LearnerResult) -> None:
        self.result = result
        self.names = result.names or tuple(f"learner {i}" for i in range(result.rows.size))
        labels = [short(name) for name in self.names]
        alike = len(set(labels)) < len(labels)          # where the middle of a name tells it from others
        self._labels = [f"{i}: {short(name, 35)}" for i, name in enumerate(self.names)] if alike else labels

    @classmethod
    def from_search(cls, search: Any, **options: Any) -> SelectionCurveDisplay:
        """Draw the curves of a fitted search, or of a `LearnerResult`, with the options of `plot`."""
        return cls(_result_of(search)).plot(**options)

    def decisions(self, count: int = 4) -> list[int]:
        """Numbers of trainings after which to look: evenly spaced, once every learner has a projection, and the end."""
        total = start = len(self.result.history)
        waiting = set(range(self.result.rows.size)) - set(self.result.dropped)
        for k, training in enumerate(self.result.history):
            if math.isfinite(training.bound):
                waiting.discard(training.learner)
            if not waiting:
                start = k + 1
                break
        return sorted({round(k) for k in np.linspace(start, total, count)})

    def plot(
        self, *, at: int | Sequence[int] | None = None, n_learners: int = 8, ax: Any = None
    ) -> SelectionCurveDisplay:
        """Draw.

        Parameters
        ----------
        at : int or sequence of int, optional
            A panel for the state after so many trainings; by default four, from the first moment at which every
            learner has a projection to the end.
        n_learners : int, default 8
            Learners drawn in colour: those whose projection is the best at that moment. The others are grey. A learner
            has one colour in all panels.
        ax : matplotlib Axes or sequence of them, optional
            Where to draw, one per panel.
        """
        total = len(self.result.history)
        asked = self.decisions() if at is None else [at] if isinstance(at, (int, np.integer)) else list(at)
        moments = [_checks.integer(k, "at", 1, "it counts trainings") for k in asked]
        if not moments or max(moments) > total:
            raise ValueError(f"at is {at!r}; numbers of trainings from 1 to {total} are needed")
        self.axes_ = _panels(len(moments), ax)
        colours: dict[int, str] = {}
        for panel, moment in zip(self.axes_, moments, strict=True):
            self._panel(panel, moment, n_learners, colours)
        self.axes_[0].set_ylabel("validation score")
        self.figure_ = self.axes_[0].figure
        return self

    def _panel(self, panel: Any, moment: int, n_learners: int, colours: dict[int, str]) -> None:
        result, up = self.result, 1.0 if self.result.direction == "maximize" else -1.0
        curves: dict[int, list[tuple[int, float]]] = {}
        bounds: dict[int, float] = {}
        for training in result.history[:moment]:
            if not training.failure:
                curves.setdefault(training.learner, []).append((training.n, training.valid_score))
                bounds[training.learner] = training.bound
        order = sorted(curves, key=lambda i: (-up * bounds[i] if math.isfinite(bounds[i]) else math.inf, i))
        shown = order[:n_learners]
        for i in order[n_learners:]:
            panel.plot(*zip(*sorted(curves[i]), strict=True), color="0.8", marker=".", lw=0.7)
        for i in reversed(shown):
            colour = colours.setdefault(i, f"C{len(colours) % 10}")
            points = sorted(curves[i])
            panel.plot(*zip(*points, strict=True), color=colour, marker=".", lw=1.2, label=self._labels[i])
            if math.isfinite(bounds[i]) and points[-1][0] < result.n_rows:
                panel.plot([points[-1][0], result.n_rows], [points[-1][1], bounds[i]], color=colour, ls=":", lw=1)
                panel.plot([result.n_rows], [bounds[i]], color=colour, marker="_", ms=12)
        last = result.history[moment - 1]
        panel.axvline(result.n_rows, color="0.6", lw=0.8)
        panel.set(xscale="log", xlabel="rows trained on")
        panel.set_title(f"after training {moment}:\n{self._labels[last.learner]} on {last.n}", fontsize="medium")
        if shown:
            panel.legend(fontsize="x-small", loc="lower right")


class RegretDisplay:
    """What methods lost and what they spent, as a table and a picture.

    Parameters
    ----------
    names : sequence of str
        Names of the methods.
    regret : array_like of float, shape (n_methods,)
        Score of the best learner trained in full, less that of the one chosen.
    fraction : array_like of float, shape (n_methods,)
        Cost over that of training all in full.
    unit : str, default "rows"
        What `fraction` is about.

    Attributes
    ----------
    ax_, figure_
        Axes that `plot` has drawn on, and the figure that holds them.

    Examples
    --------
    >>> from fastrace.model_selection import RegretDisplay
    >>> print(RegretDisplay(["daub", "halving"], regret=[0.0, 0.02], fraction=[0.25, 0.1]))
    method      regret    rows, %
    daub             0         25
    halving       0.02         10

    ``RegretDisplay.from_search`` computes both numbers from fitted searches; ``plot()`` draws them.
    """

    def __init__(self, names: Sequence[str], regret: ArrayLike, fraction: ArrayLike, unit: str = "rows") -> None:
        if not isinstance(names, Iterable):
            raise TypeError(f"names is {_checks.shown(names)}; a sequence of names is needed")
        self.names, self.unit = tuple(names), unit
        self.regret, self.fraction = (_checks.floats(_frames.of_arms(values, self.names, what, "methods"), what)
                                      for values, what in ((regret, "regret"), (fraction, "fraction")))
        if not self.regret.shape == self.fraction.shape == (len(self.names),):
            raise ValueError(
                f"names has {len(self.names)} entries, regret shape {self.regret.shape} and fraction "
                f"{self.fraction.shape}; one number per name is needed"
            )

    @classmethod
    def from_search(
        cls, searches: Mapping[str, Any], full_scores: ArrayLike, *, ax: Any = None
    ) -> RegretDisplay:
        """Draw methods that chose among the same learners.

        Parameters
        ----------
        searches : dict of str to search or LearnerResult
            Fitted searches, or results, by the name of their method.
        full_scores : array_like of float, shape (n_learners,)
            Score of each learner trained on all rows, nan where it failed.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        """
        regret, fraction = [], []
        for name, search in searches.items():
            result = _result_of(search)
            scores = _checks.floats(_frames.of_arms(full_scores, result.names, "full_scores", "learners"),
                                    "full_scores")
            if scores.shape != result.rows.shape:
                raise ValueError(f"full_scores has shape {scores.shape} and {name!r} chose among {result.rows.size} "
                                 f"learners; a score per learner is needed")
            up = 1.0 if result.direction == "maximize" else -1.0
            regret.append(float(np.nanmax(up * scores) - up * scores[result.best]))
            fraction.append(result.fraction)
        return cls(list(searches), regret, fraction).plot(ax=ax)

    def __str__(self) -> str:
        names = [short(name) for name in self.names]
        width = max([6, *map(len, names)])
        lines = [f"{'method':{width}}  {'regret':>9}  {f'{self.unit}, %':>9}"]
        for k in np.lexsort((self.fraction, self.regret)):
            lines.append(f"{names[k]:{width}}  {self.regret[k]:>9.4g}  {100 * self.fraction[k]:>9.3g}")
        return "\n".join(lines)

    def plot(self, *, ax: Any = None) -> RegretDisplay:
        """Draw regret against cost, a point per method."""
        self.ax_ = _panels(1, ax)[0]
        for k, name in enumerate(self.names):
            marker = "os^vDP*"[k // 10 % 7]
            self.ax_.plot(self.fraction[k], self.regret[k], ls="", marker=marker, color=f"C{k % 10}", label=short(name))
        self.ax_.set(xscale="log", xlabel=f"{self.unit}, over training all in full", ylabel="regret")
        self.ax_.legend(fontsize="small", ncols=1 + len(self.names) // 15)
        self.figure_ = self.ax_.figure
        return self
