"""Recorded learning curves: decisions alone, without a single training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace.model_selection import LearnerResult, Scheduler


@dataclass(frozen=True, eq=False)
class LearningCurves:
    """Scores of learners trained on growing subsets, as measured once.

    Attributes
    ----------
    sizes : ndarray of int64, shape (n_sizes,)
        Rows trained on, increasing; the last one is a full training.
    valid : ndarray of float, shape (n_learners, n_sizes)
        Validation scores, larger better; nan where a training failed.
    train : ndarray of float, shape (n_learners, n_sizes), or None
        Training scores.
    seconds : ndarray of float, shape (n_learners, n_sizes), or None
        Seconds of training.
    test : ndarray of float, shape (n_learners, n_sizes), or None
        Scores on rows that no choice has seen.
    names : tuple of str
        Names of the learners.
    """

    sizes: NDArray[np.int64]
    valid: NDArray[np.float64]
    train: NDArray[np.float64] | None = None
    seconds: NDArray[np.float64] | None = None
    test: NDArray[np.float64] | None = None
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.sizes.ndim != 1 or self.sizes.size == 0 or (np.diff(self.sizes) <= 0).any() or self.sizes[0] < 1:
            raise ValueError(f"sizes is {self.sizes!r}; increasing numbers of rows are needed")
        for name in ("valid", "train", "seconds", "test"):
            table = getattr(self, name)
            if table is not None and (table.ndim != 2 or table.shape != (self.valid.shape[0], self.sizes.size)):
                raise ValueError(
                    f"{name} has shape {table.shape}; ({self.valid.shape[0]}, {self.sizes.size}), learners by sizes, "
                    f"is needed"
                )
        if self.names and len(self.names) != self.valid.shape[0]:
            raise ValueError(f"names has {len(self.names)} entries; one per learner is needed")

    @property
    def n_learners(self) -> int:
        """Learners measured."""
        return int(self.valid.shape[0])

    @property
    def n_rows(self) -> int:
        """Rows of a full training."""
        return int(self.sizes[-1])

    def thin(self, first: float, ratio: float) -> list[int]:
        """The measured sizes nearest to ``first, ratio * first, ...``, the last one all rows.

        Parameters
        ----------
        first : float
            Rows of the first size wanted.
        ratio : float
            Factor between sizes, above 1.
        """
        if not (ratio > 1.0 and first > 0.0):
            raise ValueError(f"first is {first} and ratio {ratio}; positive rows and a factor above 1 are needed")
        logs, end, found = np.log(self.sizes), np.log(self.n_rows), []
        target = np.log(first)
        while target < end - 0.5 * np.log(ratio):
            n = int(self.sizes[np.abs(logs - target).argmin()])
            if n < self.n_rows and n not in found:
                found.append(n)
            target += np.log(ratio)
        return [*found, self.n_rows]

    def replay(self, method: Scheduler, seconds: bool = False) -> LearnerResult:
        """Let a method ask the curves instead of training.

        Parameters
        ----------
        method : Scheduler
            A fresh method for `n_learners` and `n_rows`, that asks for measured sizes only.
        seconds : bool, default False
            Whether costs are seconds of training instead of what the method says.

        Returns
        -------
        LearnerResult
        """
        place = {int(n): k for k, n in enumerate(self.sizes)}
        while not method.done:
            asked = method.ask()
            if asked is None:
                continue
            learner, n = asked
            k = place.get(n)
            if k is None:
                raise ValueError(f"{n} rows were not measured; give the method sizes=curves.thin(first, ratio)")
            score = float(self.valid[learner, k])
            train = None if self.train is None else float(self.train[learner, k])
            cost = float(self.seconds[learner, k]) if seconds and self.seconds is not None else None
            method.tell(learner, n, None if train is None or np.isnan(train) else train, score, cost)
        return method.result()

    def loss(self, learner: int, test: bool = False) -> float:
        """What choosing a learner loses against the best one, all trained in full."""
        table = self.test if test and self.test is not None else self.valid
        last = table[:, -1]
        return float(np.nanmax(last) - last[learner])


def curves_from_frame(
    frame: Any,
    by: Sequence[str] = ("openmlid", "outer_seed", "inner_seed"),
    *,
    smallest: int = 32,
    least_learners: int = 2,
) -> dict[tuple[Any, ...], LearningCurves]:
    """Read learning curves from a table with a line per training, as that of the learning curve database LCDB.

    Parameters
    ----------
    frame : DataFrame
        Columns ``learner``, ``size_train``, ``score_train``, ``score_valid``, ``y`` (test score), ``traintime`` and
        those of `by`.
    by : sequence of str
        Columns that tell one measurement from another.
    smallest : int, default 32
        Smaller sizes are left out.
    least_learners : int, default 2
        Measurements of fewer learners are left out. A learner counts if it was trained on every size.

    Returns
    -------
    dict
        Curves by the values of `by`.
    """
    found = {}
    for key, lines in frame.groupby(list(by), observed=True):
        sizes = np.unique(lines["size_train"].to_numpy())
        sizes = sizes[sizes >= smallest]
        if sizes.size < 2:
            continue
        words, row = np.unique(lines["learner"].astype(str).to_numpy(), return_inverse=True)
        column = np.searchsorted(sizes, lines["size_train"].to_numpy())
        kept = lines["size_train"].to_numpy() >= smallest
        tables = {}
        for name in ("score_valid", "score_train", "traintime", "y"):
            tables[name] = np.full((words.size, sizes.size), np.nan)
            tables[name][row[kept], column[kept]] = lines[name].to_numpy(np.float64)[kept]
        whole = ~np.isnan(tables["score_valid"]).any(axis=1)
        if whole.sum() < least_learners:
            continue
        found[tuple(key)] = LearningCurves(
            sizes.astype(np.int64),
            tables["score_valid"][whole],
            tables["score_train"][whole],
            tables["traintime"][whole],
            tables["y"][whole],
            tuple(str(word) for word in words[whole]),
        )
    return found


def regret_at(fractions: ArrayLike, losses: ArrayLike, at: ArrayLike) -> NDArray[np.float64]:
    """Mean loss of a method at given shares of the rows, from its settings' shares and losses.

    A setting is drawn at random between the two whose shares enclose the wanted one, so losses are interpolated
    linearly, along the lower hull of the settings; nan beyond the cheapest one.

    Parameters
    ----------
    fractions, losses : array_like, shape (k,)
        Mean share of rows and mean loss of each setting.
    at : array_like
        Shares wanted.
    """
    points = sorted(zip(np.asarray(fractions, float).tolist(), np.asarray(losses, float).tolist(), strict=True))
    hull: list[tuple[float, float]] = []
    for x, y in points:
        while len(hull) > 1 and (y - hull[-2][1]) * (hull[-1][0] - hull[-2][0]) <= (
            hull[-1][1] - hull[-2][1]
        ) * (x - hull[-2][0]):
            hull.pop()
        hull.append((x, y))
    xs, ys = np.array([x for x, _ in hull]), np.minimum.accumulate([y for _, y in hull])
    return np.asarray(np.interp(np.asarray(at, float), xs, ys, left=np.nan))
