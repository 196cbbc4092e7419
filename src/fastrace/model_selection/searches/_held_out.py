# mypy: disable-error-code="misc, no-untyped-call"
"""The held-out rows of a cross-validation in a line, and the race of trained models over them."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.parallel import Parallel, delayed

from fastrace._base import _callers, _checks, _clock, _frames
from fastrace._base._progress import meter
from fastrace._base._words import WORST_REWARDS, counted
from fastrace.model_selection._row_scores import Fold, RowScore, scaled_support
from fastrace.model_selection._sklearn import split_rows
from fastrace.model_selection.searches._base import Task, none_left
from fastrace.model_selection.searches._checkpoint import fingerprint
from fastrace.model_selection.searches._predictions import Predictions
from fastrace.model_selection.searches._workers import Failure
from fastrace.races.racing import FiniteRace
from fastrace.results import RaceResult

Floats = NDArray[np.float64]


class Metric(NamedTuple):
    """A score by name, and what it needs to know of the held-out rows of each split."""

    name: str
    score: RowScore
    folds: list[Fold]


class Look(NamedTuple):
    """Sums over all rows read so far, of the candidates that were still in the race."""

    arms: NDArray[np.intp]
    sums: Floats                     # metrics by arms by splits
    counts: Floats                   # metrics by splits: the weights of the rows read


class Turns:
    """Rows in the order of each split, for a race that draws from all rows of a line of splits at random.

    A row drawn says whose turn it is, and the split gives its next row. If the rows of each split stand in uniformly
    random order, whatever those of the others, then so do the rows of the line that are given: the draw mixes the
    splits as a random order of all rows does.
    """

    def __init__(self, starts: NDArray[np.int64], seed: int) -> None:
        self.starts, self.sizes = starts, np.diff(starts)
        self.next = np.random.default_rng([seed, 1]).integers(self.sizes)       # a random start in each split

    def take(self, drawn: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows to read for rows drawn without replacement; those of a split go on from the last call."""
        of_split = np.searchsorted(self.starts, drawn, side="right") - 1
        rows = np.empty_like(drawn)
        for k in np.unique(of_split):
            mine = of_split == k
            count = np.count_nonzero(mine)
            rows[mine] = self.starts[k] + (self.next[k] + np.arange(count)) % self.sizes[k]
            self.next[k] += count
        return rows


class HeldOut:
    """The held-out rows of all splits in a line, and the race over them."""

    result: RaceResult

    def __init__(
        self, search: Any, task: Task, trained: dict[tuple[int, int], Any], metrics: list[Metric],
        predictions: list[Predictions],
    ) -> None:
        self.predictions = predictions
        self.search, self.X, self.y, self.splits = search, task.X, task.y, task.splits
        self.target = None if task.y is None else np.asarray(task.y)
        splits = task.splits
        self.metrics, self.count, self.names = metrics, len(task.names), task.names
        self.models: dict[tuple[int, int], Any] = {}
        self.reasons: dict[str, tuple[str, str]] = {}        # of those that are out, by name, with the kind of failure
        self.failed: list[int] = []
        for (i, k), out in sorted(trained.items()):
            failure = out if isinstance(out, Failure) else out["failure"]
            if failure is None:
                self.models[i, k] = out["estimator"]
            elif i not in self.failed:
                self._lost(i, failure)
        self.starts = np.concatenate([[0], np.cumsum([len(test) for _, test in splits])])
        self.turns: Turns | None = None             # where the rows of each split are read in their order
        self.n_rows = int(self.starts[-1])
        # The mean of a row's score times this, over all rows, is the mean over splits of the weighted mean over rows.
        self.scale = np.concatenate([fold.weights for fold in metrics[0].folds]) * (self.n_rows / len(splits))
        if search.missing == "drop":        # which rows remain is not known: they count alike, whatever their split
            self.scale[:] = 1.0
        self.plain = bool((self.scale == 1.0).all())
        self.show: Any = None
        self.worst: float | None = None             # score of a row that has none, where that is to count
        self.n_filled = 0
        self.warned: set[tuple[int, str]] = set()

    def run(self, delta: float, seed: int, end: float) -> None:
        """Race up to a time; a candidate that cannot predict is out, and the race begins anew with the same rows."""
        search = self.search
        if len(self.failed) == self.count:
            raise none_left("every candidate failed to train on some split", self.reasons)
        raced = self.metrics[0].score
        ends = search.support if search.support is not None else self._support(raced)
        self.worst = None if search.missing != "worst" or ends is None else ends[0]
        self.kept = self._kept()
        self.before = self.kept.made
        with (Parallel(n_jobs=search.n_jobs, require="sharedmem") as parallel,
              meter("predictions", search.max_pulls, search.progress) as self.show):
            while True:
                left = self.count - len(self.failed)
                if not left:
                    raise none_left("every candidate failed to predict, or to train", self.reasons)
                if left < search.n_best:
                    raise none_left(f"n_best is {search.n_best} and only {counted(left, 'candidate')} could be trained "
                                    f"and could predict", self.reasons)
                offset = np.zeros(self.count)
                offset[self.failed] = -np.inf
                with _callers.called_by(type(search).__name__):
                    race = FiniteRace(
                        self.count, self.n_rows, delta, search.bound, first_look=search.first_look,
                        growth=search.growth, support=scaled_support(ends, self.scale), offset=offset,
                        epsilon=search.epsilon, n_best=search.n_best, max_pulls=search.max_pulls,
                        cost=costs(search, self.names), names=search.names,
                        missing=search.missing, outside="warn", rng=np.random.default_rng(seed),
                    )
                if self._race(race, parallel, seed, end):
                    break
        result = race._as_it_stands("" if race.done else "max_seconds")
        if result.stopped_by == "single" and search.n_best > 1:     # all were asked for, and scored: the best first
            own = self.looks[-1].sums[0].sum(axis=1)
            result = replace(result, best=np.atleast_1d(result.best)[np.argsort(-own, kind="stable")])
        said = raced.warnings(result)
        if self.n_filled:
            said = (WORST_REWARDS.format(counted(self.n_filled, "missing score")), *said)
        self.result = replace(result, names=self.names, n_missing=result.n_missing + self.n_filled,
                              warnings=result.warnings + said)
        self.models = {}

    def _kept(self) -> Predictions:
        """The predictions of a `fit` that this one goes on from, if their scores are those that are asked for."""
        search = self.search
        about = (search.scoring, search.missing, self.worst,
                 fingerprint([fold.constants for metric in self.metrics for fold in metric.folds]))
        if not self.predictions or self.predictions[0].about != about:
            self.predictions[:] = [Predictions(about, self.count, len(self.splits), len(self.metrics))]
        return self.predictions[0]

    def _lost(self, i: int, failure: Failure) -> None:
        self.failed = sorted({*self.failed, i})
        self.reasons[self.names[i]] = str(failure), failure.kind

    def _support(self, score: RowScore) -> tuple[float, float] | None:
        """What holds the scores by every model: splits may differ in the classes that their training rows have."""
        found = [score.support_for(getattr(model, "classes_", None)) for item, model in self.models.items()
                 if item[0] not in self.failed]
        if any(ends is None for ends in found):
            return None
        lows, highs = zip(*found, strict=True)
        return min(lows), max(highs)

    def _race(self, race: FiniteRace, parallel: Any, seed: int, end: float) -> bool:
        """Whether the race, or its time, ended without a failure."""
        shape = len(self.metrics), self.count, len(self.splits)
        self.looks: list[Look] = []
        self.pulls = np.zeros(self.count, np.int64)
        self.eliminated_at = np.full(self.count, -1, np.int64)
        self.sums, self.counts = np.zeros(shape), np.zeros((shape[0], shape[2]))
        self.n_filled = 0
        self.turns = Turns(self.starts, seed) if self.search.order == "given" else None
        self.kept.sort()
        if race.done:                           # all that are left were asked for: nothing to race for, but to score
            arms, rows = np.atleast_1d(race.result().best), np.arange(self.n_rows)
            if self.search.max_pulls is not None and self.search.max_pulls < rows.size * arms.size:
                few = max(self.search.max_pulls // arms.size, 1)
                rows = np.sort(np.random.default_rng(seed).permutation(self.n_rows)[:few])
                rows = rows if self.turns is None else self.turns.take(rows)
            return self._read(arms, rows, parallel) is not None
        while not race.done and not (self.kept.made > self.before and _clock.over(end)):
            arms, rows = race.ask()
            rows = rows if self.turns is None else self.turns.take(rows)
            block = self._read(arms, rows, parallel)
            if block is None:
                return False
            race.tell(block if self.plain else block * self.scale[rows, None])
            self.eliminated_at[np.setdiff1d(arms, race.active)] = self.pulls.max()
        return True

    def _called(self, i: int) -> str:
        """A candidate in a warning, with its name where the user gave it one."""
        return f"candidate {i}" if self.search.names is None else f"candidate {i} ({self.names[i]!r})"

    def _read(self, arms: NDArray[np.intp], rows: NDArray[np.int64], parallel: Any) -> Floats | None:
        """Predict some rows by some candidates; None if one of them fails."""
        blocks = np.empty((len(self.metrics), len(rows), len(arms)))
        of_split = np.searchsorted(self.starts, rows, side="right") - 1
        places = {int(k): np.flatnonzero(of_split == k) for k in np.unique(of_split)}
        work = []
        for k, of_block in places.items():
            for j, i in enumerate(arms.tolist()):
                known, kept, n_filled = self.kept.find(i, rows[of_block])
                blocks[:, of_block[known], j] = kept
                self.n_filled += n_filled
                if not known.all():
                    work.append((j, i, k, of_block[~known]))
        found = parallel(delayed(self._predict)(i, k, rows[asked] - self.starts[k]) for _, i, k, asked in work)
        bad: set[int] = set()
        for (j, i, k, asked), (values, seconds, filled) in zip(work, found, strict=True):
            self.kept.made += len(asked)
            self.kept.seconds[i, k] += seconds
            if isinstance(values, Exception):
                if self.search.error_score == "raise":
                    raise values
                if i not in bad:
                    bad.add(i)
                    self._lost(i, Failure.of(values))
                    warnings.warn(f"{self._called(i)} is out of the race, its predictions failed: {Failure.of(values)}",
                                  stacklevel=8)
                continue
            for m, scores in enumerate(values):
                if isinstance(scores, Exception):        # a score that is not raced for
                    if self.search.error_score == "raise":
                        raise scores
                    name = self.metrics[m].name
                    if (i, name) not in self.warned:
                        self.warned.add((i, name))
                        warnings.warn(f"{self._called(i)} has no {name}: {Failure.of(scores)}", stacklevel=8)
                    scores = np.nan
                blocks[m, asked, j] = scores
            self.n_filled += int(filled.sum())
            self.kept.keep(i, rows[asked], blocks[:, asked, j], filled)
        if bad:
            return None
        self.show(self.kept.made)
        present = ~np.isnan(blocks[0]).any(axis=1)          # the other rows are dropped
        for k, of_block in places.items():
            of_block = of_block[present[of_block]]
            for m, metric in enumerate(self.metrics):
                weights = metric.folds[k].weights[rows[of_block] - self.starts[k]] * len(metric.folds[k].weights)
                self.counts[m, k] += weights.sum()
                self.sums[m, arms, k] += weights @ blocks[m, of_block]
        self.pulls[arms] += len(rows)
        self.looks.append(Look(arms.copy(), self.sums[:, arms], self.counts.copy()))
        return np.asarray(blocks[0])

    def _predict(self, i: int, k: int, places: NDArray[np.int64]) -> tuple[Any, float, NDArray[np.bool_]]:
        """Scores of some rows of a split by a candidate, by metric, or the exception; seconds; and which scores were
        missing and count as the worst."""
        began, filled = time.perf_counter(), np.zeros(len(places), bool)
        train, test = self.splits[k]
        rows, model = test[places], self.models[i, k]
        responses: dict[str, Any] = {}
        found: list[Any] = []
        y = None if self.target is None else self.target[rows]
        for metric in self.metrics:
            try:
                method = metric.score.response_method
                if not responses:
                    data, _ = split_rows(model, self.X, self.y, rows, train)
                if method not in responses:
                    responses[method] = getattr(model, method)(data)
                values = metric.score.rows(
                    y, responses[method], getattr(model, "classes_", None), metric.folds[k].constants)
                unknown = np.isnan(values)
                if self.search.missing != "raise" and unknown.any() and not found:
                    if self.worst is not None:
                        values, filled = np.where(unknown, self.worst, values), unknown.copy()
                    unknown[:] = False
                elif self.search.missing == "drop" and found:       # such a row is dropped by the first score
                    unknown &= ~np.isnan(found[0])
                if unknown.any() or (values == np.inf).any():
                    raise ValueError(f"a score is {values[unknown | (values == np.inf)][0]}; finite scores are needed")
                found.append(values)
            except Exception as error:
                if not found:                            # what is raced for
                    return error, time.perf_counter() - began, filled
                found.append(error)
        return found, time.perf_counter() - began, filled

    def scores(self, m: int) -> tuple[Floats, Floats]:
        """Estimated scores, candidates by splits and in all, from the rows read of each candidate.

        What was raced for is the score of the best plus the difference on common rows: of less variance where scores
        of a row go together, and an eliminated candidate was behind on those rows, while its own mean on few of them
        may lie above that of the best on all. For other scores, which nobody compared, it is the plain mean, and where
        several are sought and the best was known before, which then is read no further.
        """
        best = int(np.atleast_1d(self.result.best)[0])
        per_split = np.full((self.count, len(self.splits)), np.nan)
        mean = np.full(self.count, np.nan)
        ends = self.metrics[m].score.support_for(None)
        last = {int(i): look for look in self.looks for i in look.arms}
        with np.errstate(invalid="ignore", divide="ignore"):
            final = last[best]
            own, counts = final.sums[m][np.flatnonzero(final.arms == best)[0]], final.counts[m]
            level, whole = own / counts, own.sum() / counts.sum()
            for i, look in last.items():
                sums, counts = look.sums[m], look.counts[m]
                own = sums[np.flatnonzero(look.arms == i)[0]]
                beside = np.flatnonzero(look.arms == best)
                if m == 0 and len(beside):
                    gap = own - sums[beside[0]]
                    per_split[i], mean[i] = level + gap / counts, whole + gap.sum() / counts.sum()
                    if ends is not None and look is not final:       # a difference added may lead outside
                        per_split[i], mean[i] = np.clip(per_split[i], *ends), np.clip(mean[i], *ends)
                else:
                    per_split[i] = own / counts
                    mean[i] = own.sum() / counts.sum()
        whole_rows = ~np.isnan(per_split).any(axis=1)
        if self.search.missing == "drop" and whole_rows.any():
            # As they were raced: the share of a split is that of its rows that are left.
            shares = self.looks[-1].counts[m]
            mean[whole_rows] = per_split[whole_rows] @ (shares / shares.sum())
        else:
            mean[whole_rows] = per_split[whole_rows].mean(axis=1)
        return per_split, mean


def costs(search: Any, names: Any) -> NDArray[np.float64] | None:
    """What one prediction of each candidate costs, by the names of the candidates where it has some."""
    if search.cost is None:
        return None
    return _checks.arm_costs(_frames.of_arms(search.cost, names, "cost", "candidates"), len(names))


def equal_weights(metric: Metric) -> None:
    """Refuse different weights of rows, where rows are dropped."""
    for fold in metric.folds:
        if np.ptp(fold.weights) > 1e-12 * fold.weights.max():
            raise ValueError(
                f"missing is 'drop' and rows have different weights, by sample_weight or by {metric.name} itself; the "
                f"weight of the rows that remain is unknown until all are read, and epsilon would be in other units "
                f"than the score: take missing='worst', or leave out the weights"
            )
