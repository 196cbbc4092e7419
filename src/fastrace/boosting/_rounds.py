"""The rounds of boosting by filtering: what each reads, which weak learner it takes, and what ends it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fastrace.boosting._boost as _boost
import fastrace.boosting._edges as _edges
from fastrace._base import _checks
from fastrace.boosting._bins import Bins, Floats
from fastrace.boosting._committee import Booster, Examples, Rows, Voters

RULES = _edges.RULES
GROWTH = 1.01           # of the number of examples between two looks
TIE = 1e-12             # edges closer than this are equal: the order of rows must not choose between them
VOTE = ([0], [1], [1], [0, 2])       # the only stump on votes, whose codes are 0 and 1


def log_inv_share(delta: float, t: int) -> float:
    """log(1 / delta_t) of round t: three shares of it per round (filter, both sides of the edges) add up to delta."""
    return math.log(3.0 * t * (t + 1) / delta)


class Rounds:
    """Rounds of a `FilterBoostClassifier`, whose parameters these are."""

    estimator: Any
    n_estimators: int
    epsilon: float
    delta: float
    tau: float
    rule: str
    selection: str
    full_pass: str
    max_samples: int | None
    learner_samples: int
    min_edge: float
    _bins: Bins
    _names: list[str]

    def _stream(self, rng: np.random.Generator) -> _boost.StumpStream:
        stumps = VOTE if self.estimator is not None else (*self._bins.stumps, self._bins.offset)
        rule = _edges.EdgeRule(
            len(stumps[0]), _checks.choice(self.rule, "rule", RULES), float(self.tau), 0.0,
            selection=self.selection.lower(), growth=GROWTH, min_edge=float(self.min_edge),
        )
        return _boost.StumpStream(*stumps, rule, _boost.Filter(float(self.epsilon), rng))

    def _left(self, stream: _boost.StumpStream) -> int:
        """Rows that may still be read."""
        return 2**63 - 1 if self.max_samples is None else max(self.max_samples - stream.total_drawn, 0)

    def _rounds(
        self, booster: Booster, rows: Rows, y: NDArray[np.int8], rng: np.random.Generator
    ) -> Iterator[None]:
        """One round after the other, until something ends them."""
        stream = self._stream(rng)
        if not stream.rule.n_hypotheses:
            booster.stopped_by = "no edge"
            return
        examples = Examples(rows, y, stream) if self.estimator is None else Voters(
            rows, y, stream, booster, self.estimator, self.learner_samples, rng)
        may_pass = self.full_pass.lower() == "auto" and (self.estimator is None or rows.in_memory)
        fewest = _edges.fewest_examples(
            stream.rule.n_hypotheses, _checks.choice(self.rule, "rule", RULES), float(self.tau),
            log_inv_share(self.delta, 1), GROWTH,
        )
        worth = 0 if rows.n <= fewest else rows.n       # rows of a round after which all are worth reading
        for t in range(1, self.n_estimators + 1):
            stream.restart(log_inv_share(self.delta, t))
            if not examples.begin(self._left(stream)):
                booster.stopped_by = stream.status or "max_samples"
                return
            while not stream.status:
                left = self._left(stream)
                if may_pass and stream.filter.drawn >= worth:
                    self._exact_round(booster, stream, examples)
                    worth = 0
                    break
                if left == 0:
                    booster.stopped_by = "max_samples"
                    return
                examples.read(min(left, worth - stream.filter.drawn) if may_pass else left)
            else:
                self._end_of_round(booster, stream, examples)
            if booster.stopped_by:
                return
            yield

    def _end_of_round(self, booster: Booster, stream: _boost.StumpStream, examples: Examples | None = None) -> None:
        """Take what the rule found, and begin the next round."""
        rule = stream.rule
        if stream.status == "fired":
            self._take(booster, stream, examples, rule.best, float(rule.edges[rule.best]),
                       float(rule.lower[rule.best]), stream.filter.passed, stream.filter.drawn)
            stream.restart(log_inv_share(self.delta, len(booster.weights) + 1))
            return
        booster.stopped_by = stream.status
        if stream.status == "inconsistent":
            warnings.warn("the bounds of an edge contradict each other: the examples were not independent draws, or "
                          "this is the rare case that delta allows; boosting ended there", RuntimeWarning, stacklevel=3)

    def _exact_round(self, booster: Booster, stream: _boost.StumpStream, examples: Examples) -> None:
        """A round from all rows: the boosted distribution in full, no bounds."""
        sums: Floats = np.zeros(stream.rule.n_hypotheses)
        passed = weight = 0.0
        for block in examples.whole():
            more, share, total = stream.full_pass(*block)
            sums, passed, weight = sums + more, passed + share, weight + total
        edges = sums / passed
        size = np.abs(edges)
        best = int(np.flatnonzero(size >= size.max() - TIE)[0])
        if passed / weight <= 0.5 * self.epsilon:           # at least half of the errors pass
            booster.stopped_by = "error"
        elif size[best] <= max(self.min_edge, TIE):
            booster.stopped_by = "no edge"
        else:
            n = examples.rows.n
            self._take(booster, stream, examples, best, float(edges[best]), float(size[best]), n,
                       stream.filter.drawn + n)

    def _take(
        self, booster: Booster, stream: _boost.StumpStream, examples: Examples | None, best: int, edge: float,
        certain: float, n_samples: int, n_read: int,
    ) -> None:
        """Take a hypothesis into the committee; so much of the size of its edge is certain."""
        sign = 1 if edge > 0.0 else -1
        if isinstance(examples, Voters):
            weight = sign * booster.take(examples.learner, certain, n_samples, n_read)
            booster.weights[-1] = weight
            examples.add(weight)
        else:
            stump = self._bins.stump(best, sign, self._names)
            stream.add(best, sign * booster.take(stump, certain, n_samples, n_read))
        if len(booster.weights) == self.n_estimators:
            booster.stopped_by = "n_estimators"
