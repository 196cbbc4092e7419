"""What a selection of learners found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastrace._base._words import counted, ending
from fastrace.results import ArmsResult, Column


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
class LearnerResult(ArmsResult):
    """What a method that trains learners on more and more rows found.

    Attributes
    ----------
    best : int
        The learner chosen.
    score : float
        Its latest validation score.
    n_rows : int
        Rows of a full training (N).
    rows : ndarray of int64, shape (n_learners,)
        Rows that each learner was trained on, summed over its trainings.
    cost : ndarray of float, shape (n_learners,)
        Cost of the trainings of each learner, in the unit of the method's `cost`.
    reached : ndarray of int64, shape (n_learners,)
        Rows of the largest training of each learner that gave a score; 0 if none did.
    scores : ndarray of float, shape (n_learners,)
        Validation score of that training; nan where there is none.
    bound : ndarray of float, shape (n_learners,)
        Latest projected bound on the score at `n_rows`, for methods that have one; nan otherwise. An optimistic guess
        in the direction of better scores, not a confidence bound.
    history : tuple of Evaluation
        Every training in the order in which they ended.
    dropped : dict of int to str
        Learners that failed, and why.
    method : str
        The method and its settings.
    stopped_by : str
        ``"complete"``, ``"budget"``, ``"callback"``, ``"max_seconds"``, ``"all dropped"`` or ``""`` (not stopped).
    direction : str
        ``"maximize"`` or ``"minimize"``.
    warnings : tuple of str
        What makes the choice doubtful.
    names : tuple of str, optional
        What to call the learners.
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
    names: tuple[str, ...] | None = field(default=None, repr=False)

    @property
    def fraction(self) -> float:
        """Rows trained on, over those of training every learner in full."""
        return float(self.rows.sum()) / (self.rows.size * self.n_rows)

    @property
    def allocations(self) -> list[tuple[int, int]]:
        """Every training as (learner, rows), in the order in which they ended."""
        return [(training.learner, training.n) for training in self.history]

    def curve(self, learner: int) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """Rows, training scores and validation scores of one learner; its failures left out."""
        found = sorted(training for training in self.history if training.learner == learner and not training.failure)
        table = np.array([(part.n, part.train_score, part.valid_score) for part in found]).reshape(-1, 3)
        return table[:, 0].astype(np.int64), table[:, 1], table[:, 2]

    # What `fastrace.results.ArmsResult` asks.

    _noun: ClassVar[str] = "learner"
    _first: ClassVar[str] = "best score"
    _value: ClassVar[str] = "scores"
    _mean_label: ClassVar[str] = "validation score, and bound at all rows"
    _out_label: ClassVar[str] = "others"
    _read: ClassVar[str] = "rows"
    _per_arm: ClassVar[tuple[str, ...]] = ("reached", "scores", "bound", "rows", "cost")

    def _title(self) -> str:
        return (
            f"best learner {self._name(self.best)}: {self.method}, {counted(len(self.history), 'training')} on "
            f"{100 * self.fraction:.3g} % of the rows of training all in full, {ending(self.stopped_by)}"
        )

    def _order(self) -> NDArray[np.intp]:
        """The chosen learner first, then those trained on the most rows, better scores first."""
        sign = -1.0 if self.direction == "maximize" else 1.0
        worst_last = np.where(np.isnan(self.scores), np.inf, sign * self.scores)
        return np.lexsort((worst_last, -self.reached, np.arange(self.rows.size) != self.best))

    def _printed(self) -> list[Column]:
        return [Column("reached", self.reached, "d", 9), Column("scores", self.scores, ".5g", 9),
                Column("bound", self.bound, ".5g", 9), Column("rows", self.rows, "d", 10),
                Column("cost", self.cost, ".4g", 10)]

    def _notes(self) -> list[str]:
        lost = [f"dropped {self._name(i)}: {why}" for i, why in list(self.dropped.items())[:10]]
        more = [f"... {len(self.dropped) - 10} more dropped"] if len(self.dropped) > 10 else []
        return [*lost, *more, *super()._notes()]

    def _kept(self) -> NDArray[np.bool_]:
        return self._chosen()

    def _interval(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return np.fmin(self.scores, self.bound), np.fmax(self.scores, self.bound)
