# mypy: disable-error-code="misc, untyped-decorator, no-untyped-call"
"""DAUB as a scikit-learn search."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from numbers import Real
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.metrics._scorer import _MultimetricScorer
from sklearn.model_selection import check_cv
from sklearn.model_selection._search import BaseSearchCV
from sklearn.model_selection._split import _yields_constant_splits
from sklearn.model_selection._validation import _insert_error_scores, _warn_or_raise_about_fit_failures
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import _check_method_params, _num_samples, indexable

from fastrace._base import _checks, _files
from fastrace._base._progress import meter
from fastrace.model_selection._parquet_rows import ParquetRows
from fastrace.model_selection.schedulers._daub import DAUB, checked_sizes
from fastrace.model_selection.schedulers._halving import DAUBHalving, SuccessiveHalving
from fastrace.model_selection.schedulers._scheduler import Allocation, Scheduler
from fastrace.model_selection.searches._candidates import (
    CandidateSearch,
    last_line,
    managed,
    name_of,
    names_of,
    none_left,
)
from fastrace.model_selection.searches._trainings import (
    Checkpoint,
    Crew,
    Gradual,
    Lost,
    Trainings,
    fingerprint,
    head,
    load,
    resumed,
    warn_dropped,
)

METHODS = ("daub-halving", "daub", "halving")
# Halving begins on 1 / DIVISORS[k] of the rows for up to MOST_CANDIDATES[k] candidates, and on 1 / 64 for more. Each
# round keeps a quarter, so that about one candidate reaches all rows.
MOST_CANDIDATES = (4, 16)
DIVISORS = (4, 16, 64)


class DAUBSearchCV(CandidateSearch):
    r"""Search over learners or settings by their learning curves: most are trained on few rows, the best on all.

    Parameters
    ----------
    estimator : estimator, or list of (str, estimator)
        What to tune, or learners to choose from. Settings of learners in a list have the parameter ``choice``.
    param_grid : dict or list of dict, optional
        Parameters and their values, as for `GridSearchCV`. If a value has a method ``rvs``, `n_candidates` settings are
        drawn, as by `RandomizedSearchCV`. With a list of learners, parameters are called ``name__parameter``: each
        learner is combined with all values of its own ones, and those without any go along as they are. To leave
        learners out, list the others under ``choice``. `n_candidates` settings are drawn for each learner that has
        distributions.
    method : {"daub-halving", "daub", "halving"}, default "daub-halving"
        Halving by DAUB's projections, a quarter kept in each round (`DAUBHalving`), `DAUB` itself, or halving by
        scores, a third kept (`SuccessiveHalving`).
    first : int or "auto", default "auto"
        Rows of the first training (b). ``"auto"`` is for halving a 64th of the rows, but a 16th for up to 16 candidates
        and a quarter for up to 4, for ``"daub"`` 500, but at most a twentieth of the rows; for both at least 50 and two
        per class.
    ratio : float, optional
        Factor between sizes (r); 4, for ``"daub"`` 1.5 and for ``"halving"`` 2.8.
    training_bound, clip_slope, verify
        See `DAUB`; for ``method="daub"``. A training bound needs training scores: they are computed, whatever
        `return_train_score` says.
    curve : float, optional
        See `DAUB`; -1/2, for ``"daub"`` 1.
    budget : float, optional
        Rows, summed over trainings and averaged over folds, after which to stop with the best so far.
    n_candidates : int, default 10
        Settings drawn from distributions.
    time_limit : float, optional
        Seconds that fitting on one split and scoring may take; a candidate that takes longer is dropped, with the
        reason. See Notes for what can be promised. The last training, for `refit`, has no limit.
    warm_start : bool, default False
        Train learners that have ``partial_fit`` on the new rows only, from the model of the size before. One pass over
        the rows in all; for estimators without it this does not matter.
    shuffle : bool, default True
        Take rows of each training part in random order (stratified for classifiers: every class is among the first).
        False takes them as they are: with a float for `cv` the subsets are then slices of `X`, without any copy, as
        wanted for memory maps and for `ParquetRows`. The rows must be in random order already.
    scoring, n_jobs, refit, verbose, pre_dispatch, return_train_score
        As for `GridSearchCV`; with several scores the one that `refit` names decides, or the first. Jobs go through
        joblib, so that any of its backends works. The answer does not depend on `n_jobs`: idle workers train ahead what
        is likely to come next.
    error_score : "raise" or float, default nan
        Score to report for a training that fails, or whose score is nan. Whatever its value, the candidate is tried
        again on more rows (it may need some: neighbours, classes), and dropped and never chosen if it fails on all of
        them, runs out of memory or time, or ends its worker. With ``"raise"`` the search ends, and the trainings that
        are finished are kept.
    cv : int, float, splitter or iterable, optional
        As for `GridSearchCV`; a float in (0, 1) is one split with that share of the rows held out.
    random_state : int, RandomState or None
        Order of rows, split and settings drawn.
    checkpoint : str or path, optional
        File that keeps the scores of finished trainings, written after each of them (but for at most a fifth of the
        time, and at the end), in one step and with a checksum; it holds no code. A later `fit` with the same data and
        settings goes on from it. The file of another search, or a damaged one, is refused and left as it is. If it
        cannot be written, the search says so and goes on.
    progress : bool, default False
        Show a bar (needs rich).

    Attributes
    ----------
    cv_results_ : dict
        A row per training, not per candidate, with the keys of `GridSearchCV` and ``candidate``, ``n_resources``
        (rows), ``iter`` and ``upper_bound`` (projected score). Rank 1 is the training chosen; the others rank by rows,
        then by score, as scores on different numbers of rows do not compare.
    best_index_, best_params_, best_score_, best_estimator_, refit_time_, scorer_, n_splits_, multimetric_
        As for `GridSearchCV`, for the last training of the chosen candidate. For a list of learners `best_estimator_`
        is the learner itself.
    candidates_ : list of dict
        Settings of each candidate.
    rows_ : ndarray of int, shape (n_candidates,)
        Rows trained on, averaged over folds.
    seconds_ : ndarray of float, shape (n_candidates,)
        Seconds of fitting and scoring, summed over folds.
    result_ : LearnerResult
        What the method found; prints as a table. ``result_.dropped`` has the reasons of those dropped.
    trainings_ : object
        After a `fit` that was interrupted or raised: the trainings on a split that were finished or given up, ``len()``
        of them, from which the next `fit` goes on. To pass them on, pickle the search.

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
    No more rows are spent than by training all candidates in full: where the rounds, or what is left to buy, would cost
    more, the rest is trained in full. Time is another matter: each training is followed by predictions of all held-out
    rows, which for learners that are slow to predict and quick to train cost more than the training.

    All candidates get the same nested subsets in each fold. A decision takes microseconds. Training scores that nobody
    asked for, for the training bound, are those of at most 3000 of the rows trained on.

    No finished training is lost: an interrupted `fit` keeps each of them in `checkpoint` and in `trainings_`, from
    which the next `fit` on the same data goes on, to the same answer; a worker that dies costs the candidate that it
    was training, after one more try, and no other.

    A training that passes `time_limit` is left to itself. With processes (joblib's loky backend) it is then ended, even
    if it runs compiled code that never lets go of the interpreter (within ``2 * time_limit + 1`` seconds). With
    threads, with one job, and with Dask it cannot be ended: it goes on in a thread of its own, takes its processor and
    its memory until it ends or the program does, and one that never lets go of the interpreter cannot even be left.
    Time counts from the start of the training in its worker, however busy the machine is.

    Run with one job, threads, loky, multiprocessing, Dask (a local cluster) and Ray (a local one).

    Subsets of memory maps are views, and those of `ParquetRows` are read by row groups, so that tables larger than
    memory can be searched; what a learner does with its rows is its own affair, and the chosen one is trained on
    all of them, by row groups if it has ``partial_fit`` and `warm_start` is set.

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

    _parameter_constraints = {
        **BaseSearchCV._parameter_constraints,
        "cv": ["cv_object", Interval(Real, 0, 1, closed="neither")],
        "random_state": ["random_state"],
    }

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
        super().__init__(
            estimator=estimator, scoring=scoring, n_jobs=n_jobs, refit=refit, cv=cv, verbose=verbose,
            pre_dispatch=pre_dispatch, error_score=error_score, return_train_score=return_train_score,
        )
        self.param_grid = param_grid
        self.method = method
        self.first = first
        self.ratio = ratio
        self.training_bound = training_bound
        self.clip_slope = clip_slope
        self.curve = curve
        self.verify = verify
        self.budget = budget
        self.n_candidates = n_candidates
        self.time_limit = time_limit
        self.warm_start = warm_start
        self.shuffle = shuffle
        self.random_state = random_state
        self.checkpoint = checkpoint
        self.progress = progress

    def _splitter(self, y: Any, seed: int) -> Any:
        if isinstance(self.cv, float):
            return self._shuffled_split(y, seed) if self.shuffle else _Tail(self._share())
        found = check_cv(self.cv, y, classifier=is_classifier(self.estimator))
        if self.checkpoint is not None and not _yields_constant_splits(found):
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

    def _scheduler(self, names: list[str], n_rows: int, sizes: list[int]) -> Scheduler:
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

    @managed
    def fit(self, X: Any, y: Any = None, **params: Any) -> DAUBSearchCV:
        """Search.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or ParquetRows
            Rows: arrays, memory maps, sparse matrices, data frames, or files.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs), optional
            What to predict.
        **params : dict
            Passed to the learners' ``fit``, the scorer and the splitter, as by `GridSearchCV`; arrays with a value per
            row are cut along with X.

        Returns
        -------
        self
        """
        scorers, refit_metric = self._get_scorers()
        X, y = indexable(X, y)
        params = _check_method_params(X, params=params)
        routed = self._get_routed_params_for_fit(params)
        root = self._root(X, y, params)
        if _num_samples(X) < 1:
            raise ValueError("Found array with 0 sample(s) (X is empty) while a minimum of 1 is required.")
        crew = Crew(self.n_jobs, self.pre_dispatch, self.time_limit, self.error_score == "raise")

        kept = getattr(self, "trainings_", None)
        path = None if self.checkpoint is None else _files.file_path(self.checkpoint)
        written = load(path)
        saved = kept if kept is not None else written
        seeds = check_random_state(self.random_state).randint(np.iinfo(np.int32).max, size=2).tolist()
        if saved is not None and not isinstance(self.random_state, (int, np.integer)):
            seeds = saved.seeds             # those that were drawn for the trainings that are kept
        settings = self._settings(np.random.RandomState(seeds[0]))
        if not settings:
            raise ValueError("No fits were performed. param_grid holds no candidate.")
        splits = self._splits(X, y, seeds[1], routed.splitter.split)
        classes = None
        if y is not None and is_classifier(self.estimator) and type_of_target(y) in ("binary", "multiclass"):
            classes = np.unique(np.asarray(y), return_inverse=True)[1].ravel()
        orders = [
            _nested(train, classes, np.random.RandomState(seeds[1] + k)) if self.shuffle else train
            for k, (train, _) in enumerate(splits)
        ]
        n_rows = min(order.size for order in orders)
        if n_rows < 1:
            raise ValueError("a split has no training rows")
        sizes = self._sizes(len(settings), n_rows, 1 if classes is None else int(classes.max()) + 1)
        if self.budget is not None and self.budget < sizes[0]:
            raise ValueError(f"budget is {self.budget}; the first training takes {sizes[0]} rows")
        method = self._scheduler(names_of(settings), n_rows, sizes)
        train_scores = self.return_train_score or (self.training_bound and self.method == "daub")
        key = fingerprint(
            self.estimator, settings, orders, [test for _, test in splits], self.scoring, dict(routed.estimator.fit),
            dict(routed.scorer.score), (train_scores, self.return_train_score, self.warm_start, np.shape(X)), head(X),
            None if y is None else np.asarray(y),
        )
        if written is not None and written.key != key:
            raise ValueError(
                f"checkpoint {str(path)!r} is of another search, of other data, learners, settings or splits; it is "
                f"neither used nor overwritten: move it away, or give another path"
            )
        search = self._below(root, "search", None)
        work = Trainings(
            self, X, y, orders, [test for _, test in splits], settings, sizes, scorers, routed, train_scores, search,
            resumed(saved, key, crew.limit),
        )
        told: list[Allocation] = []
        gone: set[int] = set()
        multimetric: bool | None = isinstance(scorers, _MultimetricScorer) or None
        checkpoint = Checkpoint(path, key, seeds, work.parts)
        self.trainings_ = checkpoint.saved           # until the end, whatever happens on the way
        try:
            with crew, meter("rows trained on", len(settings) * n_rows, self.progress) as show:
                workers = effective_n_jobs(self.n_jobs)
                while not method.done:
                    item = method.ask()
                    if item is None:
                        continue
                    if work.get(item) is None:
                        batch = [item]
                        if isinstance(method, DAUB):
                            ahead = math.ceil(workers / self.n_splits_) - 1
                            batch += [one for one in method.peek(ahead) if work.get(one) is None]
                        else:
                            while len(batch) * self.n_splits_ < workers and (more := method.ask()) is not None:
                                batch.append(more)
                            method.cancel()
                            item = method.ask() or item
                        work.run(crew, batch)
                        checkpoint.save()
                    out = work.get(item)
                    told.append(item)
                    failed = out.reason if isinstance(out, Lost) else next((
                        last_line(said) for one in out if (said := one["fit_error"] or one["score_error"])), "")
                    if failed:
                        # Neither memory nor time will do for more rows; anything else may.
                        hopeless = isinstance(out, Lost) or failed.partition(":")[0].endswith("MemoryError")
                        method.fail(*item, failed, defer=not hopeless)
                    else:
                        if multimetric is None:
                            multimetric = isinstance(out[0]["test_scores"], dict)
                            if multimetric:
                                self._check_refit_for_multimetric(out[0]["test_scores"])
                                refit_metric = self.refit
                        valid, train = _means(out, refit_metric, train_scores)
                        if math.isfinite(valid):
                            method.tell(*item, train, valid)
                        else:
                            method.fail(*item, f"validation score is {valid}", defer=True)
                    if len(method._dropped) > len(gone):
                        for i in [i for i in method.dropped if i not in gone]:
                            gone.add(i)
                            reason = method.dropped[i].removesuffix(f" on {item[1]} rows")
                            warn_dropped(name_of(settings[i]), item[1], n_rows, reason)
                    show(int(method.spent))
        finally:
            checkpoint.save(last=True)
        if search is not None:
            search.call_on_fit_task_end(estimator=self)

        rows = [item for item in told if not isinstance(work.get(item), Lost)]
        outs = [out for item in rows for out in work.get(item)]
        _warn_or_raise_about_fit_failures(outs, self.error_score)
        if callable(self.scoring):
            _insert_error_scores(outs, self.error_score)
        if len(method.dropped) == len(settings):
            raise none_left("no learner is left", {name_of(settings[i]): why for i, why in method.dropped.items()})
        self.result_ = method.result()
        self.candidates_ = settings
        self.multimetric_ = bool(multimetric)
        bounds = {(one.learner, one.n): one.bound for one in self.result_.history}
        extra = {
            "candidate": [i for i, _ in rows], "n_resources": [n for _, n in rows], "iter": list(range(len(rows))),
            "upper_bound": [bounds[item] for item in rows],
        }
        results = self._format_results(
            [settings[i] for i, _ in rows], self.n_splits_, outs, defaultdict(list, extra))
        chosen = rows.index((self.result_.best, int(self.result_.reached[self.result_.best])))
        for name in results:
            if name.startswith("rank_test_"):
                mine = name.removeprefix("rank_test_") == (refit_metric if isinstance(refit_metric, str) else "")
                results[name] = _ranks(rows, results["mean" + name.removeprefix("rank")], chosen if mine else None)
        self.rows_ = self.result_.rows
        self.seconds_ = np.zeros(len(settings))
        for k, (i, _) in enumerate(rows):
            self.seconds_[i] += self.n_splits_ * (results["mean_fit_time"][k] + results["mean_score_time"][k])

        if self.refit or not self.multimetric_:
            if callable(self.refit):
                self.best_index_ = self._select_best_index(self.refit, refit_metric, results)
            else:
                self.best_index_ = chosen
                self.best_score_ = results[f"mean_test_{refit_metric}"][chosen]
            self.best_params_ = results["params"][self.best_index_]
        if self.refit:
            self._refit(X, y, routed.estimator.fit, root, params)
        self.scorer_ = scorers._scorers if isinstance(scorers, _MultimetricScorer) else scorers
        self.cv_results_ = results
        del self.trainings_
        self._ended(root, X, y, params)
        return self

    def _fitted(self, best: Any, X: Any, y: Any, fit_params: Any) -> Any:
        if not isinstance(X, ParquetRows):
            return super()._fitted(best, X, y, fit_params)
        classes = None if y is None else np.unique(np.asarray(y))
        return Gradual(best, [], None, classes, bool(self.warm_start)).fit(X, y, **fit_params).model


class _Tail:
    """One split that holds out the last rows; the training rows are a slice from the first."""

    def __init__(self, share: float) -> None:
        self.share = share

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        return 1

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Any:
        n = _num_samples(X)
        cut = n - math.ceil(self.share * n)
        yield np.arange(cut), np.arange(cut, n)


def _nested(train: NDArray[Any], classes: NDArray[Any] | None, state: np.random.RandomState) -> NDArray[Any]:
    """Training rows in an order whose every prefix is a random, stratified sample that begins with each class."""
    order = train[state.permutation(train.size)]
    if classes is None:
        return order
    labels = classes[order]
    place = np.empty(order.size)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        place[rows] = (np.arange(rows.size) + state.uniform(size=rows.size)) / rows.size
        place[rows[0]] -= 1.0
    return order[np.argsort(place, kind="stable")]


def _means(out: list[Any], metric: Any, wants_train: bool) -> tuple[float, float | None]:
    """Mean validation and training score of the metric that chooses, nan if a fold has none."""
    def mean(kind: str) -> float:
        scores = [one[kind] for one in out]
        if isinstance(scores[0], dict):
            name = metric if isinstance(metric, str) and metric in scores[0] else next(iter(scores[0]))
            scores = [one[name] for one in scores]
        return float(np.mean(scores))

    train = mean("train_scores") if wants_train else None
    return mean("test_scores"), None if train is None or math.isnan(train) else train


def _ranks(rows: list[Allocation], means: NDArray[np.float64], chosen: int | None) -> NDArray[np.int32]:
    """Ranks of trainings: the chosen one, then by rows, then by score; nan last."""
    order = [(0, 0.0, 0.0) if k == chosen else (2, 0.0, 0.0) if np.isnan(means[k]) else (1, -float(n), -means[k])
             for k, (_, n) in enumerate(rows)]
    place: dict[tuple[int, float, float], int] = {}
    for k, one in enumerate(sorted(order)):
        place.setdefault(one, k + 1)
    return np.array([place[one] for one in order], np.int32)
