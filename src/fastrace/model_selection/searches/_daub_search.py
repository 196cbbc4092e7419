# mypy: disable-error-code="misc, no-untyped-call"
"""DAUB as a scikit-learn search."""

from __future__ import annotations

import math
import warnings
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.model_selection import check_cv
from sklearn.utils.multiclass import type_of_target

from fastrace._base import _callers, _checks
from fastrace._base._progress import meter
from fastrace.model_selection import _sklearn
from fastrace.model_selection._parquet_rows import ParquetRows
from fastrace.model_selection.schedulers._daub import DAUB
from fastrace.model_selection.schedulers._halving import DAUBHalving, SuccessiveHalving
from fastrace.model_selection.schedulers._scheduler import Allocation, Scheduler
from fastrace.model_selection.schedulers._sizes import checked_sizes
from fastrace.model_selection.searches._base import CandidateSearch, Task, none_left
from fastrace.model_selection.searches._checkpoint import fingerprint, head
from fastrace.model_selection.searches._trainings import Gradual, Trainings
from fastrace.model_selection.searches._workers import Failure

METHODS = ("daub-halving", "daub", "halving")
# Halving begins on 1 / DIVISORS[k] of the rows for up to MOST_CANDIDATES[k] candidates, and on 1 / 64 for more. Each
# round keeps a quarter, so that about one candidate reaches all rows.
MOST_CANDIDATES = (4, 16)
DIVISORS = (4, 16, 64)


@dataclass
class Run:
    """A search on its way: the method that decides, the trainings, and what the method was told of."""

    method: Scheduler
    n_rows: int                              # of a full training
    trainings: Trainings
    done: list[Allocation] = field(default_factory=list)
    failures: dict[int, Failure] = field(default_factory=dict)       # the last one of each candidate
    gone: set[int] = field(default_factory=set)                      # candidates whose drop was warned of
    metric: Any = None
    several: bool | None = None              # whether there are several scores; None until a scorer has shown it


class DAUBSearchCV(CandidateSearch):
    r"""Search over learners or settings by their learning curves: most are trained on few rows, the best on all.

    Parameters
    ----------
    {candidates}
    method : {"daub-halving", "daub", "halving"}, default "daub-halving"
        Halving by DAUB's projections, a quarter kept in each round (`DAUBHalving`), `DAUB` itself, or halving by
        scores, a third kept (`SuccessiveHalving`).
    first : int or "auto", default "auto"
        Rows of the first training (b). ``"auto"`` is for halving a 64th of the rows, but a 16th for up to 16 candidates
        and a quarter for up to 4, for ``"daub"`` 500, but at most a twentieth of the rows; for both at least 50 and two
        per class.
    ratio : float, optional
        Factor between sizes (r); 4, for ``"daub"`` 1.5 and for ``"halving"`` 2.8.
    training_bound, clip_slope
        See `DAUB`; for ``method="daub"``. Training scores that only the training bound needs are those of at most 3000
        of the rows trained on.
    curve : float, optional
        See `DAUB`; -1/2, for ``"daub"`` 1.
    verify : bool, default False
        See `DAUB`; for ``method="daub"``.
    budget : float, optional
        Rows, summed over trainings and averaged over folds, after which to stop with the best so far.
    {n_candidates}
    max_seconds : float, optional
        Seconds of `fit` after which no further training is begun: the best of the scores so far is chosen, and
        ``result_.stopped_by`` is "max_seconds". Trainings under way are waited for, and those of a `checkpoint` count;
        one training at least, and `refit`, take place in any case. Another `fit` on the same data goes on, for as many
        seconds again: it repeats none of the trainings, which the search keeps in `trainings_`.
    time_limit : float, optional
        Seconds that fitting on one split and scoring may take; a candidate that takes longer is dropped, with the
        reason. See Notes for what can be promised. The last training, for `refit`, has no limit.
    warm_start : bool, default False
        Train learners that have ``partial_fit`` on the new rows only, from the model of the size before: one pass over
        the rows in all.
    shuffle : bool, default True
        Take rows of each training part in random order, for classifiers stratified. False takes them in their order,
        which must be random: with a float for `cv` subsets are then slices of `X`, without any copy, as wanted for
        memory maps and `ParquetRows`.
    scoring, n_jobs, refit
        As for `GridSearchCV`; with several scores the one that `refit` names decides, or the first. Any backend of
        joblib works. The answer does not depend on `n_jobs`: idle workers train ahead what is likely to come next.
    {cv}
    verbose, pre_dispatch
        As for `GridSearchCV`.
    error_score : "raise" or float, default nan
        Score to report for a training that fails, or whose score is nan. Whatever its value, the candidate is tried
        again on more rows (it may need some: neighbours, classes), and dropped if it fails on all of them, runs out of
        memory or time, or ends its worker. ``"raise"`` ends the search, and finished trainings are kept.
    return_train_score : bool, default False
        As for `GridSearchCV`.
    random_state : int, RandomState or None
        Order of rows, split and settings drawn.
    checkpoint : str or path, optional
        File that keeps the scores of finished trainings, from which a later `fit` with the same data and settings goes
        on. It is replaced in one step, has a checksum, and holds no code. The file of another search, or a damaged one,
        is refused and left as it is. If it cannot be written, the search says so and goes on.
    {progress}

    Attributes
    ----------
    cv_results_ : dict
        A row per training, not per candidate, with the keys of `GridSearchCV` and ``candidate``, ``n_resources``
        (rows), ``iter`` and ``upper_bound`` (projected score). Rank 1 is the training chosen; the others rank by rows,
        then by score, as scores on different numbers of rows do not compare.
    {best}
    candidates_ : list of dict
        Settings of each candidate.
    rows_, seconds_ : ndarray, shape (n_candidates,)
        Rows trained on, averaged over folds, and seconds of fitting and scoring, summed over folds.
    result_ : LearnerResult
        What the method found; prints as a table. ``result_.dropped`` has the reasons of those dropped.
    {trainings}

    Raises
    ------
    ValueError
        If a parameter is out of range, every training failed, or every candidate was dropped, with the reasons.
    TypeError
        If every candidate was dropped for data of a wrong type.
    TimeoutError
        If a training takes longer than `time_limit`, and `error_score` is ``"raise"``.

    Notes
    -----
    All candidates get the same nested subsets in each fold. No more rows are spent than by training all candidates in
    full: where the method would need more, the rest is trained in full. Seconds are another matter: each training is
    followed by predictions of all held-out rows, which may cost more than the training.

    No finished training is lost: an interrupted `fit` keeps each of them in `checkpoint` and in `trainings_`, and the
    next `fit` on the same data comes to the same answer. A worker that dies costs the candidate that it was training,
    after one more try, and no other.

    Seconds of `time_limit` count from the start of a training in its worker. A training that passes it is left to
    itself. Where it runs in a process (joblib's loky backend), the process is ended, even if compiled code never lets
    go of the interpreter (within ``2 * time_limit + 1`` seconds). With threads, one job, or Dask, it goes on in a
    thread of its own until it ends; code that never lets go of the interpreter cannot even be left.

    Run with one job, threads, loky, multiprocessing, Dask and Ray (local clusters). For tables larger than memory see
    `ParquetRows`.

    References
    ----------
    .. [1] Sabharwal, Samulowitz, Tesauro, "Selecting Near-Optimal Learners via Incremental Data Allocation", AAAI
       2016.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from fastrace.model_selection import DAUBSearchCV
    >>> X, y = load_digits(return_X_y=True)
    >>> learners = [("bayes", GaussianNB()), ("near", KNeighborsClassifier()), ("one", KNeighborsClassifier(1))]
    >>> search = DAUBSearchCV(learners, cv=0.3, first=40, random_state=0).fit(X, y)
    >>> search.best_params_
    {'choice': 'one'}
    """

    _parameter_constraints = _sklearn.constraints()

    def __init__(
        self,
        estimator: Any,
        param_grid: Any = None,
        *,
        method: str = "daub-halving",
        first: Any = "auto",
        ratio: float | None = None,
        training_bound: bool = True,
        clip_slope: bool = True,
        curve: float | None = None,
        verify: bool = False,
        budget: float | None = None,
        n_candidates: int = 10,
        max_seconds: float | None = None,
        time_limit: float | None = None,
        warm_start: bool = False,
        shuffle: bool = True,
        scoring: Any = None,
        n_jobs: int | None = None,
        refit: Any = True,
        cv: Any = None,
        verbose: int = 0,
        pre_dispatch: Any = "2*n_jobs",
        error_score: Any = np.nan,
        return_train_score: bool = False,
        random_state: Any = None,
        checkpoint: Any = None,
        progress: bool = False,
    ) -> None:
        _sklearn.keep_parameters(locals())

    def _splitter(self, X: Any, y: Any, seed: int) -> Any:
        if isinstance(self.cv, float) and not self.shuffle:            # the last rows are held out, by slices
            n_rows = _sklearn.num_samples(X)
            cut = n_rows - math.ceil(self._share() * n_rows)
            return check_cv([(np.arange(cut), np.arange(cut, n_rows))])
        found = super()._splitter(X, y, seed)
        if self.checkpoint is not None and not _sklearn.yields_constant_splits(found):
            raise ValueError("cv draws other splits each time; give its random_state an int, so that a search can go "
                             "on from its checkpoint")
        return found

    def _sizes(self, n_candidates: int, n_rows: int, n_classes: int) -> list[int]:
        method = _checks.choice(self.method, "method", METHODS)
        if isinstance(self.first, str):
            if self.first != "auto":
                raise ValueError(f"first is {self.first!r}; a number of rows, at least 1, or 'auto' is needed")
            divisor = DIVISORS[bisect_left(MOST_CANDIDATES, n_candidates)]
            start = min(500, n_rows // 20) if method == "daub" else -(-n_rows // divisor)
            first = min(n_rows, max(2 * n_classes, start, 50))
        else:
            first = _checks.integer(self.first, "first", 1, "learners are trained on rows")
        ratio = {"daub": 1.5, "daub-halving": 4.0, "halving": 2.8}[method] if self.ratio is None else self.ratio
        sizes = checked_sizes(first, ratio, n_rows)
        return [n_rows] if n_candidates == 1 and self.budget is None else sizes

    def _scheduler(self, names: tuple[str, ...], n_rows: int, sizes: list[int]) -> Scheduler:
        if self.method == "daub":
            return DAUB(
                len(names), n_rows, sizes=sizes, training_bound=self.training_bound, clip_slope=self.clip_slope,
                curve=1.0 if self.curve is None else self.curve, verify=self.verify, budget=self.budget, names=names,
            )
        if self.method == "halving":
            return SuccessiveHalving(len(names), n_rows, sizes=sizes, budget=self.budget, names=names)
        return DAUBHalving(
            len(names), n_rows, sizes=sizes, budget=self.budget, curve=-0.5 if self.curve is None else self.curve,
            names=names,
        )

    def _search(self, task: Task) -> None:
        run = self._plan(task)
        self._train(task, run)
        self._report(task, run)

    def _plan(self, task: Task) -> Run:
        """Nested subsets of rows for each split, and the method that decides who is trained on which of them."""
        y, seed = task.y, task.seeds[1]
        classes = None
        if y is not None and is_classifier(self.estimator) and type_of_target(y) in ("binary", "multiclass"):
            classes = np.unique(np.asarray(y), return_inverse=True)[1].ravel()
        shuffled = _checks.flag(self.shuffle, "shuffle")
        for name in ("training_bound", "warm_start", "return_train_score"):
            _checks.flag(getattr(self, name), name)
        orders = [
            _nested(train, classes, np.random.RandomState(seed + k)) if shuffled else train
            for k, (train, _) in enumerate(task.splits)
        ]
        n_rows = min(order.size for order in orders)
        sizes = self._sizes(len(task.settings), n_rows, 1 if classes is None else int(classes.max()) + 1)
        if self.budget is not None and _checks.real(self.budget, "budget") < sizes[0]:
            raise ValueError(f"budget is {self.budget}; the first training takes {sizes[0]} rows")
        several = isinstance(task.scorers, _sklearn.MultimetricScorer) or None
        with _callers.called_by(type(self).__name__):
            method = self._scheduler(task.names, n_rows, sizes)
        if self.first != "auto":
            method._checked_first(self.first)           # the result says so if there are not so many rows
        return Run(method, n_rows, self._trainings(task, orders, sizes), metric=task.metric, several=several)

    def _out_of_time(self) -> bool:
        return bool(self.result_.stopped_by == "max_seconds")

    @property
    def _train_scores(self) -> bool:
        return bool(self.return_train_score or (self.training_bound and self.method == "daub"))

    def _trainings(self, task: Task, orders: list[NDArray[Any]], sizes: list[int]) -> Trainings:
        """The trainings of this search, those that are finished already among them.

        Every prefix of an order of training rows, one per split, is a subset to train on.
        """
        tests, routed = [test for _, test in task.splits], task.routed
        kept = task.keep(fingerprint(
            self.estimator, task.settings, orders, tests, self.scoring, dict(routed.estimator.fit),
            dict(routed.scorer.score), (self._train_scores, self.return_train_score, self.warm_start, np.shape(task.X)),
            head(task.X), None if task.y is None else np.asarray(task.y),
        ))
        options = {
            "scorer": task.scorers, "score_params": routed.scorer.score, "return_train_score": self.return_train_score,
            "return_n_test_samples": True, "return_parameters": False, "verbose": self.verbose,
        }
        return Trainings(task, orders, tests, kept.parts, options, sizes=sizes, warm=bool(self.warm_start),
                         sampled=self._train_scores and not self.return_train_score)

    def _train(self, task: Task, run: Run) -> None:
        """Train whom the method asks for, until it has chosen."""
        method, trainings = run.method, run.trainings
        task.callbacks.begin_search(None)
        try:
            with task.crew, meter("rows trained on", len(task.settings) * run.n_rows, self.progress) as show:
                workers = effective_n_jobs(self.n_jobs)
                while not method.done:
                    item = method.ask()
                    if item is None:
                        continue
                    if trainings.get(item) is None:         # those done ahead, or kept, count whatever the time
                        if method._late(task.end):
                            method.cancel()
                            break
                        item, batch = self._batch(run, item, workers)
                        trainings.run(task.crew, batch)
                        task.checkpoint.save()
                    self._tell(task, run, item, trainings.get(item))
                    show(int(method.spent))
        finally:
            task.checkpoint.save(last=True)
        task.callbacks.end_search()

    def _batch(self, run: Run, item: Allocation, workers: int) -> tuple[Allocation, list[Allocation]]:
        """The training to do next, and with it what idle workers may do ahead."""
        method, batch = run.method, [item]
        if isinstance(method, DAUB):
            ahead = method.peek(math.ceil(workers / self.n_splits_) - 1)
            return item, batch + [other for other in ahead if run.trainings.get(other) is None]
        while len(batch) * self.n_splits_ < workers and (more := method.ask()) is not None:
            batch.append(more)
        method.cancel()
        return method.ask() or item, batch

    def _tell(self, task: Task, run: Run, item: Allocation, out: Any) -> None:
        """Tell the method what a training gave: a dict per split, or a `Failure`."""
        run.done.append(item)
        failure = out if isinstance(out, Failure) else next(
            (part["failure"] for part in out if part["failure"] is not None), None)
        if failure is not None:
            run.failures[item[0]] = failure
            run.method.fail(*item, str(failure), defer=failure.kind != "final")
        else:
            if run.several is None:
                run.several = isinstance(out[0]["test_scores"], dict)
                if run.several:
                    _sklearn.check_refit_names_a_score(self, out[0]["test_scores"])
                    run.metric = self.refit
            valid, train = _means(out, run.metric, self._train_scores)
            if math.isfinite(valid):
                run.method.tell(*item, train, valid)
            else:
                run.method.fail(*item, f"validation score is {valid}", defer=True)
        dropped = run.method.dropped
        for i in [i for i in dropped if i not in run.gone]:
            run.gone.add(i)
            warnings.warn(f"candidate {task.names[i]} was dropped on {item[1]} of {run.n_rows} rows: "
                          f"{dropped[i].removesuffix(f' on {item[1]} rows')}", stacklevel=7)

    def _report(self, task: Task, run: Run) -> None:
        """The table of results, a row per training, and the candidate chosen."""
        settings, trainings, metric = task.settings, run.trainings, run.metric
        rows = [item for item in run.done if not isinstance(trainings.get(item), Failure)]
        outs = [out for item in rows for out in trainings.get(item)]
        _sklearn.report_failed_fits(outs, self.error_score)
        if callable(self.scoring):
            _sklearn.insert_error_scores(outs, self.error_score)
        dropped = run.method.dropped
        if len(dropped) == len(settings):
            raise none_left("no learner is left", {
                task.names[i]: (why, run.failures[i].kind if i in run.failures else "")
                for i, why in dropped.items()})
        self.result_ = run.method._as_it_stands("" if run.method.done else "max_seconds")
        self.candidates_ = settings
        self.multimetric_ = bool(run.several)
        bounds = {(training.learner, training.n): training.bound for training in self.result_.history}
        results = _sklearn.table_of_results(self, [settings[i] for i, _ in rows], self.n_splits_, outs, {
            "candidate": [i for i, _ in rows], "n_resources": [n for _, n in rows], "iter": list(range(len(rows))),
            "upper_bound": [bounds[item] for item in rows],
        })
        chosen = rows.index((self.result_.best, int(self.result_.reached[self.result_.best])))
        for name in results:
            if name.startswith("rank_test_"):
                decides = name.removeprefix("rank_test_") == (metric if isinstance(metric, str) else "")
                results[name] = _ranks(rows, results["mean" + name.removeprefix("rank")], chosen if decides else None)
        self.rows_ = self.result_.rows
        self.seconds_ = np.zeros(len(settings))
        for k, (i, _) in enumerate(rows):
            self.seconds_[i] += self.n_splits_ * (results["mean_fit_time"][k] + results["mean_score_time"][k])
        if self.refit or not self.multimetric_:
            if callable(self.refit):
                self.best_index_ = _sklearn.best_index(self, metric, results)
            else:
                self.best_index_ = chosen
                self.best_score_ = results[f"mean_test_{metric}"][chosen]
            self.best_params_ = results["params"][self.best_index_]
        self.cv_results_ = results

    def _fitted(self, best: Any, X: Any, y: Any, fit_params: Any) -> Any:
        if not isinstance(X, ParquetRows):
            return super()._fitted(best, X, y, fit_params)
        classes = None if y is None else np.unique(np.asarray(y))
        return Gradual(best, [], None, classes, bool(self.warm_start)).fit(X, y, **fit_params).model


def _nested(train: NDArray[Any], classes: NDArray[Any] | None, state: np.random.RandomState) -> NDArray[Any]:
    """Training rows in an order whose every prefix is a random, stratified sample that begins with each class."""
    order = train[state.permutation(train.size)]
    if classes is None:
        return order
    labels = classes[order]
    height = np.empty(order.size)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        height[rows] = (np.arange(rows.size) + state.uniform(size=rows.size)) / rows.size
        height[rows[0]] -= 1.0
    return order[np.argsort(height, kind="stable")]


def _means(out: list[Any], metric: Any, wants_train: bool) -> tuple[float, float | None]:
    """Mean validation and training score of the metric that chooses, nan if a fold has none."""
    def mean(kind: str) -> float:
        scores = [part[kind] for part in out]
        if isinstance(scores[0], dict):
            name = metric if isinstance(metric, str) and metric in scores[0] else next(iter(scores[0]))
            scores = [values[name] for values in scores]
        return float(np.mean(scores))

    train = mean("train_scores") if wants_train else None
    return mean("test_scores"), None if train is None or math.isnan(train) else train


def _ranks(rows: list[Allocation], means: NDArray[np.float64], chosen: int | None) -> NDArray[np.int32]:
    """Ranks of trainings: the chosen one, then by rows, then by score; nan last."""
    order = [(0, 0.0, 0.0) if k == chosen else (2, 0.0, 0.0) if np.isnan(means[k]) else (1, -float(n), -means[k])
             for k, (_, n) in enumerate(rows)]
    first: dict[tuple[int, float, float], int] = {}
    for k, entry in enumerate(sorted(order)):
        first.setdefault(entry, k + 1)
    return np.array([first[entry] for entry in order], np.int32)
