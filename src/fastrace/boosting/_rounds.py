"""The rounds of boosting by filtering: what each reads, which weak learner it takes, and what ends it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.dummy import DummyClassifier

import fastrace.boosting._boost as _boost
import fastrace.boosting._edges as _edges
from fastrace._base import _checks
from fastrace.boosting._bins import Bins, Floats
from fastrace.boosting._committee import Booster, Passing, Rows, RuleOfStreams, votes

RULES = _edges.RULES
GROWTH = 1.01           # of the number of examples between two looks
TIE = 1e-12             # edges closer than this are equal: the order of rows must not choose between them


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
    rule: str | Callable[..., Any]
    selection: str
    full_pass: str
    max_samples: int | None
    learner_samples: int
    min_edge: float
    _bins: Bins
    _names: list[str]

    def _stream(self, rng: np.random.Generator) -> _boost.StumpStream:
        bins = self._bins
        return _boost.StumpStream(
            *bins.stumps, bins.offset, self._edge_rule(len(bins.stumps[0])), _boost.Filter(float(self.epsilon), rng)
        )

    def _edge_rule(self, n_hypotheses: int) -> _edges.EdgeRule:
        """The rule of that name; `Rounds.rule` may be a function where it is not asked."""
        rule = self.rule if isinstance(self.rule, str) else "target-eb"
        return _edges.EdgeRule(
            n_hypotheses, _checks.choice(rule, "rule", RULES), float(self.tau), 0.0,
            selection=self.selection.lower(), growth=GROWTH, min_edge=float(self.min_edge),
        )

    def _left(self, stream: _boost.StumpStream) -> int:
        """Rows that may still be read."""
        return 2**63 - 1 if self.max_samples is None else max(self.max_samples - stream.total_drawn, 0)

    def _end_of_round(self, booster: Booster, stream: _boost.StumpStream) -> None:
        """Take what the rule found, and begin the next round."""
        rule, sieve = stream.rule, stream.filter
        if stream.status != "fired":
            booster.stopped_by = stream.status
            if stream.status == "inconsistent":
                warn_inconsistent()
            return
        sign = 1 if rule.edges[rule.best] > 0.0 else -1
        stump = self._bins.stump(rule.best, sign, self._names)
        weight = booster.take(stump, float(rule.lower[rule.best]), sieve.passed, sieve.drawn)
        stream.add(rule.best, sign * weight)
        if len(booster.weights) == self.n_estimators:
            booster.stopped_by = "n_estimators"
        stream.restart(log_inv_share(self.delta, len(booster.weights) + 1))

    def _rounds(
        self, booster: Booster, rows: Rows, y: NDArray[np.int8], rng: np.random.Generator
    ) -> Iterator[None]:
        """One round after the other, until something ends them."""
        if self.estimator is None and not callable(self.rule):
            return self._rounds_of_stumps(booster, rows, y, rng)
        return self._rounds_of_learners(booster, rows, y, rng)

    def _rounds_of_stumps(
        self, booster: Booster, rows: Rows, y: NDArray[np.int8], rng: np.random.Generator
    ) -> Iterator[None]:
        stream = self._stream(rng)
        if not stream.rule.n_hypotheses:
            booster.stopped_by = "no edge"
            return
        may_pass = self.full_pass.lower() == "auto"
        pending: tuple[NDArray[np.uint8], NDArray[np.int8], NDArray[np.int64] | None] | None = None
        place = size = 0
        fewest = _edges.fewest_examples(
            stream.rule.n_hypotheses, _checks.choice(str(self.rule), "rule", RULES), float(self.tau),
            log_inv_share(self.delta, 1), GROWTH,
        )
        worth = 0 if rows.n <= fewest else rows.n       # rows of a round after which all are worth reading
        for t in range(1, self.n_estimators + 1):
            stream.restart(log_inv_share(self.delta, t))
            while not stream.status:
                if may_pass and stream.filter.drawn >= worth:
                    self._exact_round(booster, stream, rows, y)
                    worth = 0
                    break
                if self._left(stream) == 0:
                    booster.stopped_by = "max_samples"
                    return
                if pending is None or place == size:
                    numbers = rows.draw()
                    codes, places = rows.codes(numbers)
                    pending, place, size = (codes, y if places is not None else y[numbers], places), 0, len(numbers)
                left = self._left(stream)
                if may_pass:
                    left = min(left, worth - stream.filter.drawn)
                place = stream.consume(*pending, place, left)
            else:
                self._end_of_round(booster, stream)
            if booster.stopped_by:
                return
            yield

    def _exact_round(self, booster: Booster, stream: _boost.StumpStream, rows: Rows, y: NDArray[np.int8]) -> None:
        """A round from all rows: the boosted distribution in full, no bounds."""
        sums, passed, weight = np.zeros(stream.rule.n_hypotheses), 0.0, 0.0
        for part, codes in rows.all_codes():
            weights = rows.weights[part] if len(rows.weights) else np.ones(len(codes))
            more, share, total = stream.full_pass(codes, y[part], weights)
            sums, passed, weight = sums + more, passed + share, weight + total
        edges = sums / passed
        best = self._best_of(booster, edges, passed / weight)
        if best is None:
            return
        sign = 1 if edges[best] > 0.0 else -1
        stump = self._bins.stump(best, sign, self._names)
        added = booster.take(stump, float(abs(edges[best])), rows.n, stream.filter.drawn + rows.n)
        stream.add(best, sign * added)
        if len(booster.weights) == self.n_estimators:
            booster.stopped_by = "n_estimators"

    def _best_of(self, booster: Booster, edges: Floats, passing: float) -> int | None:
        """The hypothesis of the largest exact edge, or None if boosting ends; `passing` is what the filter lets by."""
        size = np.abs(edges)
        best = int(np.flatnonzero(size >= size.max() - TIE)[0])
        if passing <= 0.5 * self.epsilon:           # at least half of the errors pass
            booster.stopped_by = "error"
        elif size[best] <= max(self.min_edge, TIE):
            booster.stopped_by = "no edge"
        else:
            return best
        return None

    def _rounds_of_learners(
        self, booster: Booster, rows: Rows, y: NDArray[np.int8], rng: np.random.Generator
    ) -> Iterator[None]:
        """Rounds in blocks, for learners that are no stumps and rules that are given as classes."""
        stumps = self.estimator is None
        n_hypotheses = len(self._bins.stumps[0]) if stumps else 1
        if not n_hypotheses:
            booster.stopped_by = "no edge"
            return
        sieve = _boost.Filter(float(self.epsilon), rng)
        passing = Passing(rows, y, sieve, booster)
        rule = self._rule(n_hypotheses)
        may_pass = rows.in_memory and self.full_pass.lower() == "auto"
        for t in range(1, self.n_estimators + 1):
            share = log_inv_share(self.delta, t)
            sieve.restart(share)
            rule.restart(share)
            learner = None if stumps else self._learn(passing, rng)
            found: tuple[int, float, float] | None = None         # hypothesis, its edge, how much of it is certain
            while not booster.stopped_by:
                if may_pass and sieve.drawn >= rows.n:
                    found = self._exact(booster, passing, learner)
                    break
                if sieve.over:
                    booster.stopped_by = "error"
                elif self._rows_left(passing) == 0:
                    booster.stopped_by = "max_samples"
                elif rule.status == "fired":
                    found = rule.best, float(rule.edges[rule.best]), float(rule.lower[rule.best])
                    break
                elif rule.status:
                    booster.stopped_by = rule.status
                else:
                    block, labels = passing.next(64 + rule.n // 16, self._rows_left(passing))
                    rule.update_many(self._wins(learner, block, labels))
            if found is None:
                return
            best, edge, certain = found
            if stumps:
                booster.take(self._bins.stump(best, 1 if edge > 0.0 else -1, self._names), certain, sieve.passed,
                             sieve.drawn)
            else:
                booster.take(learner, certain, sieve.passed, sieve.drawn)
                booster.weights[-1] *= 1.0 if edge > 0.0 else -1.0
            passing.add()
            if t == self.n_estimators:
                booster.stopped_by = "n_estimators"
                return
            yield

    def _rule(self, n_hypotheses: int) -> Any:
        if callable(self.rule):
            return RuleOfStreams(self.rule, n_hypotheses, float(self.tau))
        return self._edge_rule(n_hypotheses)

    def _rows_left(self, passing: Passing) -> int:
        return 2**62 if self.max_samples is None else max(self.max_samples - passing.drawn, 0)

    def _learn(self, passing: Passing, rng: np.random.Generator) -> Any:
        """A weak learner fitted to filtered examples; None if the filter or the budget ends first."""
        blocks, n = [], 0
        while n < self.learner_samples:
            left = self._rows_left(passing)
            if passing.sieve.over or left == 0:
                return None
            blocks.append(passing.next(self.learner_samples - n, left))
            n += len(blocks[-1][1])
        block = np.concatenate([block for block, _ in blocks])
        labels = np.concatenate([labels for _, labels in blocks])
        learner = clone(self.estimator)
        if "random_state" in learner.get_params():
            learner.set_params(random_state=int(rng.integers(2**31)))
        if len(np.unique(labels)) < 2:
            learner = DummyClassifier(strategy="most_frequent")
        return learner.fit(block, labels)

    def _wins(self, learner: Any, block: NDArray[Any], labels: NDArray[np.int8]) -> NDArray[np.int8]:
        """Which hypotheses are right about which examples."""
        if not len(labels):
            return np.empty((0, 1 if learner is not None else len(self._bins.stumps[0])), dtype=np.int8)
        if learner is not None:
            return np.asarray(votes(learner, block) == labels, dtype=np.int8)[:, None]
        feature, first, last = self._bins.stumps
        columns = block[:, feature]
        inside = (columns >= first) & (columns <= last)
        return np.asarray(inside == (labels > 0)[:, None], dtype=np.int8)

    def _exact(self, booster: Booster, passing: Passing, learner: Any) -> tuple[int, float, float] | None:
        """The best hypothesis and its edge from all rows."""
        rows = passing.rows
        if learner is None and self.estimator is not None:
            booster.stopped_by = "error" if passing.sieve.over else "max_samples"
            return None
        numbers = np.arange(rows.n)
        block = passing.features(numbers)
        margins = np.clip(passing.score(numbers, block) * passing.y, -50.0, 50.0)
        share = rows.weights / (1.0 + np.exp(margins))
        edges = share @ self._wins(learner, block, passing.y) / share.sum() - 0.5
        best = self._best_of(booster, edges, float(share.sum() / rows.weights.sum()))
        return None if best is None else (best, float(edges[best]), float(abs(edges[best])))


def warn_inconsistent() -> None:
    warnings.warn(
        "the bounds of an edge contradict each other: the examples were not independent draws, or this is the rare "
        "case that delta allows; boosting ended there", RuntimeWarning, stacklevel=3,
    )
