"""What boosting by filtering keeps, and where its examples come from."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.dummy import DummyClassifier

import fastrace.boosting._boost as _boost
from fastrace.boosting._bins import Bins, Codes, Floats, Stump

ROWS_PER_BLOCK = 8192
LARGEST_EDGE = 0.5 - 1e-3


@dataclass
class Booster:
    """One two-class committee: what was chosen, and what it cost."""

    learners: list[Any] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    edges: list[float] = field(default_factory=list)
    n_samples: list[int] = field(default_factory=list)
    n_read: list[int] = field(default_factory=list)
    stopped_by: str = ""

    def take(self, learner: Any, edge: float, n_samples: int, n_read: int) -> float:
        """Add a round; `edge` is the certified size of the learner's edge. Returns its weight."""
        size = min(edge, LARGEST_EDGE)
        weight = 0.5 * math.log((0.5 + size) / (0.5 - size))
        self.learners.append(learner)
        self.weights.append(weight)
        self.edges.append(edge)
        self.n_samples.append(n_samples)
        self.n_read.append(n_read)
        return weight


class Rows:
    """Rows of arrays or of a memory map, to be drawn at random, with replacement, in blocks."""

    def __init__(
        self, x: NDArray[Any], bins: Bins | None, weights: Floats | None, rng: np.random.Generator, *, in_memory: bool
    ) -> None:
        self.x, self.bins, self.rng, self.in_memory = x, bins, rng, in_memory
        self.n = x.shape[0]
        self.weights = np.ones(self.n if in_memory else 0) if weights is None else weights
        self._steps = None if weights is None else np.cumsum(weights)
        self._codes = bins.transform(x) if in_memory and bins is not None else None

    def draw(self) -> NDArray[np.int64]:
        """Numbers of the next rows."""
        if self._steps is None:
            return self.rng.integers(self.n, size=ROWS_PER_BLOCK)
        places = np.searchsorted(self._steps, self.rng.random(ROWS_PER_BLOCK) * self._steps[-1], side="right")
        return np.asarray(np.minimum(places, self.n - 1), dtype=np.int64)

    def read(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """The rows themselves; from a memory map in the order of the file."""
        if self.in_memory:
            return np.asarray(self.x[rows])
        order = np.argsort(rows, kind="stable")
        block = np.empty((len(rows), self.x.shape[1]), dtype=self.x.dtype)
        block[order] = self.x[rows[order]]
        return block

    def codes(self, rows: NDArray[np.int64]) -> tuple[Codes, NDArray[np.int64] | None]:
        """Codes to read from, and the places in them, or None if they are in the order of `rows`."""
        if self._codes is not None:
            return self._codes, rows
        assert self.bins is not None
        return self.bins.transform(self.read(rows)), None

    def all_codes(self) -> Iterator[tuple[slice, Codes]]:
        """Codes of all rows, in order, in one block or in several."""
        if self._codes is not None:
            yield slice(0, self.n), self._codes
            return
        assert self.bins is not None
        for begin in range(0, self.n, ROWS_PER_BLOCK):
            part = slice(begin, min(begin + ROWS_PER_BLOCK, self.n))
            yield part, self.bins.transform(self.x[part])


class Examples:
    """Examples for stumps, drawn in blocks of which a stream reads one part after the other."""

    def __init__(self, rows: Rows, y: NDArray[np.int8], stream: _boost.StumpStream) -> None:
        self.rows, self.y, self.stream = rows, y, stream
        self.place = self.size = 0
        self.codes: Codes
        self.labels = y                          # of the rows of `codes`
        self.places: NDArray[np.int64] | None = None
        self.scores: Any = None                  # of the rows of `codes`, by learners that are no stumps

    def begin(self, left: int) -> bool:
        """Begin a round, from at most `left` rows; False if they do not do."""
        return True

    def read(self, left: int) -> None:
        """Let the stream read at most `left` rows, no further than to the end of a block."""
        if self.place == self.size:
            self.draw()
        self.place = self.stream.consume(self.codes, self.labels, self.places, self.place, left, self.scores)

    def draw(self) -> None:
        """The next block."""
        numbers = self.rows.draw()
        self.place, self.size = 0, len(numbers)
        self.codes, self.places = self.rows.codes(numbers)
        self.labels = self.y if self.places is not None else self.y[numbers]

    def whole(self) -> Iterator[tuple[Codes, NDArray[np.int8], Floats, Floats | None]]:
        """Codes, labels, weights and scores of all rows, in blocks."""
        for part, codes in self.rows.all_codes():
            yield codes, self.y[part], self.rows.weights[part] if len(self.rows.weights) else np.ones(len(codes)), None


class Voters(Examples):
    """Examples for a weak learner of any kind, fitted in each round: its vote is the code of their only feature."""

    def __init__(
        self, rows: Rows, y: NDArray[np.int8], stream: _boost.StumpStream, booster: Booster, estimator: Any,
        n_examples: int, rng: np.random.Generator,
    ) -> None:
        super().__init__(rows, y, stream)
        self.booster, self.estimator, self.n_examples, self.rng = booster, estimator, n_examples, rng
        self.block: NDArray[Any]                 # the rows drawn, and their scores by the learners so far
        self.scores: Floats = np.empty(0)
        self._all = np.zeros(rows.n) if rows.in_memory else None        # scores of rows, as of round
        self._round = np.zeros(rows.n if rows.in_memory else 0, dtype=np.int32)
        self.learner: Any = None

    def begin(self, left: int) -> bool:
        self.learner, parts, labels, count = None, [], [], 0
        while count < self.n_examples:
            if left <= 0:
                return False
            if self.place == self.size:
                self.draw()
            until = min(self.size, self.place + left)
            places, place = self.stream.filter.accept(
                self.scores[:until] * self.labels[:until], self.place, self.n_examples - count)
            left -= place - self.place
            self.stream.total_drawn += place - self.place
            self.place = place
            parts.append(self.block[places])
            labels.append(self.labels[places])
            count += len(places)
            if self.stream.filter.over:
                return False
        target = np.concatenate(labels)
        learner = clone(self.estimator)
        if "random_state" in learner.get_params():
            learner.set_params(random_state=int(self.rng.integers(2**31)))
        if (target == target[0]).all():
            learner = DummyClassifier(strategy="most_frequent")
        self.learner = learner.fit(np.concatenate(parts), target)
        self.codes = self._votes(self.block)
        return True

    def draw(self) -> None:
        numbers = self.rows.draw()
        self.place, self.size = 0, len(numbers)
        self.block, self.labels = self.rows.read(numbers), self.y[numbers]
        self.scores = self._scores(numbers, self.block)
        if self.learner is not None:
            self.codes = self._votes(self.block)

    def add(self, weight: float) -> None:
        """Take the round's learner into the scores of the rows drawn."""
        self.scores += weight * (2.0 * self.codes[:, 0] - 1.0)
        self.learner = None

    def whole(self) -> Iterator[tuple[Codes, NDArray[np.int8], Floats, Floats | None]]:
        numbers = np.arange(self.rows.n)
        block = self.rows.read(numbers)
        yield self._votes(block), self.y, self.rows.weights, self._scores(numbers, block)

    def _votes(self, block: NDArray[Any]) -> Codes:
        return np.asarray(votes(self.learner, block) > 0, dtype=np.uint8)[:, None]

    def _scores(self, numbers: NDArray[np.int64], block: NDArray[Any]) -> Floats:
        """F of rows; in memory, each learner is asked once per row at most."""
        learned = list(zip(self.booster.learners, self.booster.weights, strict=True))
        if self._all is None:
            total = np.zeros(len(numbers))
            for learner, weight in learned:
                total += weight * votes(learner, block)
            return total
        for t in range(int(self._round[numbers].min(initial=len(learned))), len(learned)):
            late = np.unique(numbers[self._round[numbers] == t])
            if late.size:
                self._all[late] += learned[t][1] * votes(learned[t][0], self.rows.read(late))
                self._round[late] = t + 1
        return np.asarray(self._all[numbers])


def votes(learner: Any, block: NDArray[Any]) -> NDArray[Any]:
    """+1 or -1 for each row."""
    return learner.predict_codes(block) if isinstance(learner, Stump) else np.asarray(learner.predict(block))
