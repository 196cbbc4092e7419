"""Scores that predictions of held-out rows gave, from which a race that went on too long goes on in a later `fit`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Predictions:
    """Scores by candidate and row, in the memory of those that were paid for.

    Attributes
    ----------
    about : object
        What the scores depend on beside the models; others are not used.
    made : int
        Predictions that were asked for, those that failed among them.
    seconds : ndarray of float, shape (n_candidates, n_splits)
        How long they took.
    """

    def __init__(self, about: Any, n_candidates: int, n_splits: int, n_metrics: int) -> None:
        self.about, self.made, self.seconds = about, 0, np.zeros((n_candidates, n_splits))
        nothing = np.empty(0, np.int64), np.empty((n_metrics, 0)), np.empty(0, bool)
        self._sorted = [nothing] * n_candidates             # rows ascending, scores by metric, whether filled in
        self._fresh: list[list[tuple[NDArray[np.int64], Floats, NDArray[np.bool_]]]] = [[] for _ in range(n_candidates)]

    def keep(self, i: int, rows: NDArray[np.int64], scores: Floats, filled: NDArray[np.bool_]) -> None:
        """Keep the scores of rows that a candidate had none of."""
        self._fresh[i].append((rows.copy(), scores.copy(), filled))

    def sort(self) -> None:
        """Make what was kept known to `find`: before a race, which asks for each row of a candidate once."""
        for i, fresh in enumerate(self._fresh):
            if fresh:
                rows, scores, filled = (np.concatenate(parts, axis=-1)
                                        for parts in zip(self._sorted[i], *fresh, strict=True))
                order = np.argsort(rows, kind="stable")
                self._sorted[i] = rows[order], scores[:, order], filled[order]
                self._fresh[i] = []

    def find(self, i: int, rows: NDArray[np.int64]) -> tuple[NDArray[np.bool_], Floats, int]:
        """Of which rows the scores are known, those scores, and how many of them were filled in."""
        held, scores, filled = self._sorted[i]
        places = np.searchsorted(held, rows)
        known = places < held.size
        known[known] = held[places[known]] == rows[known]
        return known, scores[:, places[known]], int(filled[places[known]].sum())
