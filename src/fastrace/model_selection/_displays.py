"""Pictures of a selection, in the style of scikit-learn's displays: made by `from_search`, drawn by `plot`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastrace._base import _checks
from fastrace.model_selection._results import LearnerResult


def _result_of(search: Any) -> LearnerResult:
    """The result of a search or of a method, or the result itself."""
    if isinstance(search, LearnerResult):
        return search
    found = getattr(search, "result_", None)
    if isinstance(found, LearnerResult):
        return found
    raise ValueError(
        f"search is {type(search).__name__}; a LearnerResult, or a fitted search with `result_`, is needed: call fit "
        f"first"
    )


def _names_of(search: Any, result: LearnerResult) -> tuple[str, ...]:
    if result.names is not None:
        return result.names
    settings = getattr(search, "candidates_", None)
    if settings is None:
        return tuple(f"learner {i}" for i in range(result.rows.size))
    return tuple(
        str(one["choice"]) if list(one) == ["choice"] else ", ".join(f"{key}={value}" for key, value in one.items())
        for one in settings
    )


class SelectionCurveDisplay:
    """Learning curves with the projections to all rows, as they stood when a decision was made.

    Parameters
    ----------
    result : LearnerResult
        What was trained, and what the method made of it.
    names : sequence of str
        Names of the learners.

    Attributes
    ----------
    axes_ : ndarray of matplotlib Axes
        One per decision.
    figure_ : matplotlib Figure
    """

    def __init__(self, result: LearnerResult, names: Sequence[str]) -> None:
        self.result = result
        self.names = tuple(names)

    @classmethod
    def from_search(cls, search: Any, *, at: Any = None, n_learners: int = 8, ax: Any = None) -> SelectionCurveDisplay:
        """Draw the curves of a fitted search, or of a `LearnerResult`.

        Parameters
        ----------
        search : DAUBSearchCV or LearnerResult
        at, n_learners, ax
            See `plot`.
        """
        result = _result_of(search)
        return cls(result, _names_of(search, result)).plot(at=at, n_learners=n_learners, ax=ax)

    def decisions(self, count: int = 4) -> list[int]:
        """Numbers of trainings after which to look: evenly spaced, once every learner has a projection, and the end."""
        total = len(self.result.history)
        seen: set[int] = set()
        start = total
        waiting = set(range(self.result.rows.size)) - set(self.result.dropped)
        for k, one in enumerate(self.result.history):
            if math.isfinite(one.bound):
                seen.add(one.learner)
            if waiting <= seen:
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
            Learners drawn in colour: those whose projection is the best at that moment. The others are grey.
        ax : matplotlib Axes or sequence of them, optional
            Where to draw, one per panel.
        """
        total = len(self.result.history)
        wanted = self.decisions() if at is None else [at] if isinstance(at, (int, np.integer)) else list(at)
        moments = [_checks.integer(k, "at", 1, "it counts trainings") for k in wanted]
        if not moments or max(moments) > total:
            raise ValueError(f"at is {at!r}; numbers of trainings from 1 to {total} are needed")
        if ax is None:
            _, made = _pyplot().subplots(
                1, len(moments), figsize=(4.5 * len(moments) + 1.5, 4.2), sharey=True, squeeze=False,
                layout="constrained")
            panels = made[0]
        else:
            panels = np.atleast_1d(np.asarray(ax, dtype=object))
            if panels.size != len(moments):
                raise ValueError(f"ax holds {panels.size} axes; {len(moments)}, one per decision, are needed")
        for panel, moment in zip(panels, moments, strict=True):
            self._panel(panel, moment, n_learners)
        panels[0].set_ylabel("validation score")
        self.axes_ = panels
        self.figure_ = panels[0].figure
        return self

    def _panel(self, panel: Any, moment: int, n_learners: int) -> None:
        result, sign = self.result, 1.0 if self.result.direction == "maximize" else -1.0
        curves: dict[int, list[tuple[int, float]]] = {}
        bounds: dict[int, float] = {}
        for one in result.history[:moment]:
            if not one.failure:
                curves.setdefault(one.learner, []).append((one.n, one.valid_score))
                bounds[one.learner] = one.bound
        order = sorted(curves, key=lambda i: (-sign * bounds[i] if math.isfinite(bounds[i]) else math.inf, i))
        shown = order[:n_learners]
        for i in [*order[n_learners:], *reversed(shown)]:
            points = sorted(curves[i])
            colour = f"C{shown.index(i) % 10}" if i in shown else "0.8"
            label = self.names[i] if i in shown else None
            panel.plot(*zip(*points, strict=True), color=colour, marker=".", lw=1.2 if i in shown else 0.7, label=label)
            if i in shown and math.isfinite(bounds[i]) and points[-1][0] < result.n_rows:
                panel.plot([points[-1][0], result.n_rows], [points[-1][1], bounds[i]], color=colour, ls=":", lw=1)
                panel.plot([result.n_rows], [bounds[i]], color=colour, marker="_", ms=12)
        last = result.history[moment - 1]
        panel.axvline(result.n_rows, color="0.6", lw=0.8)
        panel.set(xscale="log", xlabel="rows trained on",
                  title=f"after training {moment}: {self.names[last.learner]} on {last.n}")
        panel.legend(fontsize="x-small", loc="lower right")


class RowsSpentDisplay:
    """Rows that each learner was trained on, beside those of a full training.

    Parameters
    ----------
    rows : array_like of int, shape (n_learners,)
        Rows of each learner, summed over its trainings.
    n_rows : int
        Rows of a full training.
    best : int
        The learner chosen.
    names : sequence of str
        Names of the learners.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    bars_ : matplotlib BarContainer
    """

    def __init__(self, rows: ArrayLike, n_rows: int, best: int, names: Sequence[str]) -> None:
        self.rows = np.asarray(rows)
        self.n_rows = n_rows
        self.best = best
        self.names = tuple(names)

    @classmethod
    def from_search(cls, search: Any, *, ax: Any = None) -> RowsSpentDisplay:
        """Draw the rows spent by a fitted search, or of a `LearnerResult`."""
        result = _result_of(search)
        return cls(result.rows, result.n_rows, result.best, _names_of(search, result)).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> RowsSpentDisplay:
        """Draw a bar per learner, the most rows at the top."""
        if ax is None:
            height = max(2.5, 0.22 * self.rows.size + 1.0)
            _, ax = _pyplot().subplots(figsize=(8, min(height, 40.0)), layout="constrained")
        order = np.argsort(self.rows, kind="stable")
        colours = ["C1" if i == self.best else "C0" for i in order]
        self.bars_ = ax.barh(np.arange(order.size), self.rows[order], color=colours)
        ax.set_yticks(np.arange(order.size), [self.names[i] for i in order], fontsize="small")
        ax.axvline(self.n_rows, color="0.4", ls="--", lw=1)
        share = float(self.rows.sum()) / (self.rows.size * self.n_rows)
        ax.set(xlabel="rows trained on (dashed: all rows)", ylim=(-0.6, order.size - 0.4),
               title=f"{100 * share:.3g} % of the rows of training all in full; chosen: {self.names[self.best]}")
        self.ax_, self.figure_ = ax, ax.figure
        return self


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
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    """

    def __init__(self, names: Sequence[str], regret: ArrayLike, fraction: ArrayLike, unit: str = "rows") -> None:
        self.names = tuple(names)
        self.regret = np.asarray(regret, np.float64)
        self.fraction = np.asarray(fraction, np.float64)
        self.unit = unit
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
        scores = np.asarray(full_scores, np.float64)
        regret, fraction = [], []
        for name, search in searches.items():
            result = _result_of(search)
            if scores.shape != result.rows.shape:
                raise ValueError(
                    f"full_scores has shape {scores.shape} and {name!r} chose among {result.rows.size} learners; a "
                    f"score per learner is needed"
                )
            sign = 1.0 if result.direction == "maximize" else -1.0
            regret.append(float(np.nanmax(sign * scores) - sign * scores[result.best]))
            fraction.append(result.fraction)
        return cls(list(searches), regret, fraction).plot(ax=ax)

    def __str__(self) -> str:
        width = max([6, *(len(name) for name in self.names)])
        lines = [f"{'method':{width}}  {'regret':>9}  {f'{self.unit}, %':>9}"]
        for k in np.lexsort((self.fraction, self.regret)):
            lines.append(f"{self.names[k]:{width}}  {self.regret[k]:>9.4g}  {100 * self.fraction[k]:>9.3g}")
        return "\n".join(lines)

    def plot(self, *, ax: Any = None) -> RegretDisplay:
        """Draw regret against cost, a point per method."""
        if ax is None:
            _, ax = _pyplot().subplots(figsize=(7, 4.5), layout="constrained")
        for k, name in enumerate(self.names):
            marker = "os^vDP*"[k // 10 % 7]
            ax.plot(self.fraction[k], self.regret[k], ls="", marker=marker, color=f"C{k % 10}", label=name)
        ax.set(xscale="log", xlabel=f"{self.unit}, over training all in full", ylabel="regret")
        ax.legend(fontsize="small")
        self.ax_, self.figure_ = ax, ax.figure
        return self


class RaceDisplay:
    """Scores of the candidates of a race over held-out rows, and the predictions read for each.

    Parameters
    ----------
    scores, half_widths : array_like of float, shape (n_candidates,)
        Estimated score on all held-out rows, and the half-width of its comparison with the leader; nan where there is
        none.
    predictions : array_like of int, shape (n_candidates,)
        Held-out rows predicted.
    n_rows : int
        All held-out rows.
    best : int
        The candidate chosen.
    names : sequence of str
        Names of the candidates.

    Attributes
    ----------
    axes_ : ndarray of matplotlib Axes, shape (2,)
    figure_ : matplotlib Figure
    """

    def __init__(
        self, scores: ArrayLike, half_widths: ArrayLike, predictions: ArrayLike, n_rows: int, best: int,
        names: Sequence[str],
    ) -> None:
        self.scores = np.asarray(scores, np.float64)
        self.half_widths = np.asarray(half_widths, np.float64)
        self.predictions = np.asarray(predictions)
        self.n_rows = n_rows
        self.best = best
        self.names = tuple(names)

    @classmethod
    def from_search(cls, search: Any, *, ax: Any = None) -> RaceDisplay:
        """Draw a fitted `RacingSearchCV`.

        Parameters
        ----------
        search : RacingSearchCV
        ax : sequence of two matplotlib Axes, optional
            Where to draw; a new figure by default.
        """
        results, race = getattr(search, "cv_results_", None), getattr(search, "race_", None)
        if results is None or race is None:
            raise ValueError(f"search is {type(search).__name__}; a fitted RacingSearchCV is needed")
        names = [str(one["choice"]) if list(one) == ["choice"] else ", ".join(f"{k}={v}" for k, v in one.items())
                 for one in results["params"]]
        return cls(results["mean_test_score"], results["half_width"], results["n_predictions"], race.n_rows,
                   race.best, names).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> RaceDisplay:
        """Draw scores on the left, predictions read on the right, the best candidates at the top."""
        if ax is None:
            height = min(max(2.5, 0.24 * self.scores.size + 1.0), 40.0)
            _, ax = _pyplot().subplots(1, 2, figsize=(10, height), sharey=True, layout="constrained")
        left, right = ax
        order = np.argsort(np.where(np.isnan(self.scores), -np.inf, self.scores), kind="stable")
        place = np.arange(order.size)
        colours = ["C1" if i == self.best else "C0" for i in order]
        wide = np.where(np.isfinite(self.half_widths), self.half_widths, 0.0)[order]
        left.errorbar(self.scores[order], place, xerr=wide, fmt="none", ecolor="0.6", capsize=2)
        left.scatter(self.scores[order], place, c=colours, zorder=3)
        left.set_yticks(place, [self.names[i] for i in order], fontsize="small")
        left.set(xlabel="score, with the half-width of the comparison")
        right.barh(place, self.predictions[order], color=colours)
        right.axvline(self.n_rows, color="0.4", ls="--", lw=1)
        right.set(xlabel="held-out rows predicted (dashed: all)")
        self.axes_ = np.array([left, right], dtype=object)
        self.figure_ = left.figure
        return self


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as pyplot
    except ImportError as error:
        raise ImportError('plots need matplotlib: python -m pip install matplotlib') from error
    return pyplot
