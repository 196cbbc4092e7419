"""What a selection of learners found: a frozen dataclass that prints as a short table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastrace._base._words import counted, ending


class Evaluation(NamedTuple):
    """One training: what was asked, what came back, and what the method made of it."""

    learner: int
    n: int
    train_score: float
    valid_score: float
    cost: float
    bound: float
    failure: str = ""


@dataclass(frozen=True, eq=False)
class SelectionResult:
    """What a method that trains learners on more and more rows found.

    Attributes
    ----------
    best : int
        The learner chosen.
    score : float
        Its latest validation score, as told.
    n_rows : int
        Rows of a full training (N).
    rows : ndarray of int64, shape (n_learners,)
        Rows that each learner was trained on, summed over its trainings.
    cost : ndarray of float, shape (n_learners,)
        Cost of the trainings of each learner, in the unit of the method's `cost`.
    reached : ndarray of int64, shape (n_learners,)
        Rows of the largest training of each learner that gave a score; 0 if none did.
    scores : ndarray of float, shape (n_learners,)
        Validation score of that training, as told; nan where there is none.
    bound : ndarray of float, shape (n_learners,)
        Latest projected bound on the score at `n_rows`, for methods that have one; nan otherwise. An optimistic guess
        in the direction of better scores, not a confidence bound.
    history : tuple of Evaluation
        Every training in the order told.
    dropped : dict of int to str
        Learners that failed, and why.
    method : str
        The method and its settings.
    stopped_by : str
        ``"complete"``, ``"budget"``, ``"all dropped"`` or ``""`` (not stopped).
    direction : str
        ``"maximize"`` or ``"minimize"``.
    warnings : tuple of str
        What makes the choice doubtful.
    """

    best: int
    score: float
    n_rows: int
    rows: NDArray[np.int64]
    cost: NDArray[np.float64]
    reached: NDArray[np.int64]
    scores: NDArray[np.float64]
    bound: NDArray[np.float64]
    history: tuple[Evaluation, ...]
    dropped: dict[int, str]
    method: str
    stopped_by: str
    direction: str
    warnings: tuple[str, ...] = ()
    names: tuple[str, ...] | None = None

    @property
    def fraction(self) -> float:
        """Rows trained on, over those of training every learner in full."""
        return float(self.rows.sum()) / (self.rows.size * self.n_rows)

    @property
    def allocations(self) -> list[tuple[int, int]]:
        """Every training as (learner, rows), in the order told."""
        return [(one.learner, one.n) for one in self.history]

    def curve(self, learner: int) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """Rows, training scores and validation scores of one learner, as told; its failures left out."""
        found = sorted(one for one in self.history if one.learner == learner and not one.failure)
        sizes = np.array([one.n for one in found], np.int64)
        return sizes, np.array([one.train_score for one in found]), np.array([one.valid_score for one in found])

    def __str__(self) -> str:
        title = (
            f"best learner {self._name(self.best)}: {self.method}, {counted(len(self.history), 'training')} on "
            f"{100 * self.fraction:.3g} % of the rows of training all in full, {ending(self.stopped_by)}"
        )
        sign = -1.0 if self.direction == "maximize" else 1.0
        worst_last = np.where(np.isnan(self.scores), np.inf, sign * self.scores)
        order = np.lexsort((worst_last, -self.reached, np.arange(self.rows.size) != self.best))
        width = max([7, *(len(self._name(int(i))) for i in order[:10])])
        heads = f"{'rows':>9}  {'score':>9}  {'bound':>9}  {'rows spent':>10}  {'cost':>10}"
        lines = [title, f"  {'learner':>{width}}  {heads}"]
        for i in order[:10]:
            mark = "*" if i == self.best else " "
            lines.append(
                f"{mark} {self._name(int(i)):>{width}}  {self.reached[i]:>9d}  {_number(self.scores[i])}  "
                f"{_number(self.bound[i])}  {self.rows[i]:>10d}  {self.cost[i]:>10.4g}"
            )
        if order.size > 10:
            lines.append(f"  ... {counted(order.size - 10, 'more learner')}")
        for i, why in list(self.dropped.items())[:10]:
            lines.append(f"dropped {self._name(i)}: {why}")
        if len(self.dropped) > 10:
            lines.append(f"... {len(self.dropped) - 10} more dropped")
        lines.extend(f"warning: {text}" for text in self.warnings)
        return "\n".join(lines)

    def _name(self, learner: int) -> str:
        return str(learner) if self.names is None else self.names[learner]


def _number(value: float) -> str:
    return f"{'-':>9}" if np.isnan(value) else f"{value:>9.5g}"
