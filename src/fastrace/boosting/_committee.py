"""What boosting by filtering keeps, where its examples come from, and rules that are given as classes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    """Examples drawn at random from arrays or a memory map, with replacement, in blocks."""

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


class Passing:
    """Examples that pass the filter of a committee of any learners, one bunch after the other."""

    def __init__(self, rows: Rows, y: NDArray[np.int8], sieve: _boost.Filter, booster: Booster) -> None:
        self.rows, self.y, self.sieve, self.booster = rows, y, sieve, booster
        self.numbers = np.empty(0, dtype=np.int64)
        self.block: NDArray[Any] = np.empty((0, 0))
        self.scores = np.empty(0)
        self.place = self.drawn = 0
        self._all = np.zeros(rows.n) if rows.in_memory else None        # scores of rows, as of round
        self._round = np.zeros(rows.n if rows.in_memory else 0, dtype=np.int32)

    def features(self, numbers: NDArray[np.int64]) -> NDArray[Any]:
        """What learners see of rows: codes for stumps."""
        if self.rows.bins is None:
            return self.rows.read(numbers)
        codes, places = self.rows.codes(numbers)
        return codes if places is None else codes[places]

    def score(self, numbers: NDArray[np.int64], block: NDArray[Any]) -> Floats:
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
                self._all[late] += learned[t][1] * votes(learned[t][0], self.features(late))
                self._round[late] = t + 1
        return np.asarray(self._all[numbers])

    def next(self, most: int, left: int) -> tuple[NDArray[Any], NDArray[np.int8]]:
        """At most `most` examples that pass, from at most `left` rows; fewer if a block ends or the filter gives up."""
        if self.place == len(self.numbers):
            self.numbers = self.rows.draw()
            self.block = self.features(self.numbers)
            self.scores = self.score(self.numbers, self.block)
            self.place = 0
        until = min(len(self.numbers), self.place + left)
        labels = self.y[self.numbers[:until]]
        places, place = self.sieve.accept(self.scores[:until] * labels, self.place, most)
        self.drawn += place - self.place
        self.place = place
        return self.block[places], labels[places]

    def add(self) -> None:
        """Take the booster's last learner into the scores of what is still to be filtered."""
        rest = self.block[self.place:]
        if len(rest):
            self.scores[self.place:] += self.booster.weights[-1] * votes(self.booster.learners[-1], rest)


def votes(learner: Any, block: NDArray[Any]) -> NDArray[Any]:
    """+1 or -1 for each row."""
    return learner.predict_codes(block) if isinstance(learner, Stump) else np.asarray(learner.predict(block))


class RuleOfStreams:
    """Any of our rules for means of streams, one per hypothesis, with the face of `EdgeRule`."""

    def __init__(self, make: Callable[..., Any], n_hypotheses: int, tau: float) -> None:
        self.make, self.n_hypotheses, self.tau = make, n_hypotheses, tau
        self.status, self.best, self.n = "", -1, 0
        self._rules: list[Any] = []

    def restart(self, log_inv_delta: float) -> None:
        """Begin a round."""
        share = math.exp(-log_inv_delta) / self.n_hypotheses
        self._rules = [self.make(epsilon=self.tau, delta=share, support=(-0.5, 0.5)) for _ in range(self.n_hypotheses)]
        self.status, self.best, self.n = "", -1, 0
        self._sums = np.zeros(self.n_hypotheses)

    def update_many(self, wins: NDArray[np.int8]) -> int:
        """Take rows of wins; return how many were used until the first rule fired."""
        values = wins.astype(np.float64).T - 0.5
        before = self._rules
        used: int = wins.shape[0]
        rules = [copy(rule) for rule in before]
        for rule, column in zip(rules, values, strict=True):
            used = min(used, int(rule.update_many(np.ascontiguousarray(column[:used]))))
        if any(rule.stopped for rule in rules) and used < wins.shape[0]:
            rules = [copy(rule) for rule in before]
            for rule, column in zip(rules, values, strict=True):
                rule.update_many(np.ascontiguousarray(column[:used]))
        self._rules = rules
        self.n += used
        self._sums += values[:, :used].sum(axis=1)
        fired = [rule.stopped for rule in rules]
        if any(fired):
            self.status, self.best = "fired", int(np.abs(self._sums).argmax())
            if not self.lower[self.best] > 0.0:
                self.best = fired.index(True)
        return used

    @property
    def edges(self) -> Floats:
        """Edges as observed."""
        return self._sums / max(self.n, 1)

    @property
    def lower(self) -> Floats:
        """Certified sizes of the edges: the near end of a rule's interval, or what its estimate allows."""
        found = np.zeros(self.n_hypotheses)
        for h, rule in enumerate(self._rules):
            low, high = rule.interval
            found[h] = max(low, -high, 0.0)
            if rule.stopped:
                found[h] = max(found[h], abs(rule.estimate) / (1.0 + self.tau))
        return found
