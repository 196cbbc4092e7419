# mypy: disable-error-code="misc, untyped-decorator, no-untyped-call"
"""DAUB as a scikit-learn search."""

from __future__ import annotations

import math
import os
import pickle
import tempfile
import time
import warnings
from collections import defaultdict
from inspect import signature
from numbers import Real
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from joblib import hash as joblib_hash
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier
from sklearn.metrics._scorer import _MultimetricScorer
from sklearn.model_selection import check_cv
from sklearn.model_selection._search import BaseSearchCV
from sklearn.model_selection._split import _yields_constant_splits
from sklearn.model_selection._validation import (
    _fit_and_score,
    _insert_error_scores,
    _warn_or_raise_about_fit_failures,
)
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils._param_validation import Interval
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _check_method_params, _num_samples, indexable

from fastrace import _checks
from fastrace.model_selection._candidates import Candidates, CandidateSearch, fault, worker_died
from fastrace.model_selection._daub import DAUB, checked_sizes
from fastrace.model_selection._halving import DAUBHalving, SuccessiveHalving
from fastrace.model_selection._scheduler import Allocation, Scheduler

METHODS = ("daub", "daub-halving", "halving")
CHECKPOINT = 1


class DAUBSearchCV(CandidateSearch):
    r"""Search over learners or settings by DAUB: most are trained on few rows, the best on all.

    Parameters
    ----------
    estimator : estimator, or list of (str, estimator)
        What to tune, or learners to choose from. A list becomes one estimator with the parameter ``choice``.
    param_grid : dict or list of dict, optional
        Parameters and their values, as for `GridSearchCV`. If a value has a method ``rvs``, `n_candidates` settings are
        drawn, as by `RandomizedSearchCV`. Not needed for a list of learners; for one, parameters are called
        ``name__parameter``.
    method : {"daub", "daub-halving", "halving"}, default "daub"
        `DAUB`, or halving by its projections, a quarter kept in each round, or by scores, a third kept.
    first : int or "auto", default "auto"
        Rows of the first training (b). ``"auto"``: 500, but at most a twentieth of the rows and at least two per class.
    ratio : float, optional
        Factor between sizes (r); 1.5, for ``"daub-halving"`` 4 and for ``"halving"`` 2.8.
    training_bound, clip_slope, curve, verify
        See `DAUB`. A training bound needs training scores: they are computed, whatever `return_train_score` says.
    budget : float, optional
        Rows, summed over trainings and averaged over folds, after which to stop with the best so far.
    n_candidates : int, default 10
        Settings drawn from distributions.
    warm_start : bool, default False
        Train learners that have ``partial_fit`` on the new rows only, from the model of the size before. One pass over
        the rows in all; for estimators without it this does not matter.
    shuffle : bool, default True
        Take rows of each training part in random order (stratified for classifiers: every class is among the first).
        False takes them as they are: with a float for `cv` the subsets are then slices of `X`, without any copy, as
        wanted for memory maps. The rows must be in random order already.
    scoring, n_jobs, refit, verbose, pre_dispatch, error_score, return_train_score
        As for `GridSearchCV`. A candidate whose score is nan is dropped and never chosen. Jobs go through joblib, so
        that any of its backends works. The answer does not depend on `n_jobs`: idle workers train ahead what is likely
        to come next.
    cv : int, float, splitter or iterable, optional
        As for `GridSearchCV`; a float in (0, 1) is one split with that share of the rows held out.
    random_state : int, RandomState or None
        Order of rows, split and settings drawn.
    checkpoint : str or path, optional
        File that keeps finished trainings, written after each batch and put in place at once. A later `fit` with the
        same data and settings goes on from it.
    progress : bool, default False
        Show a bar (needs rich).

    Attributes
    ----------
    cv_results_ : dict
        A row per training, not per candidate, with the keys of `GridSearchCV` and ``candidate``, ``n_resources``
        (rows), ``iter`` and ``upper_bound`` (projected score).
    best_index_, best_params_, best_score_, best_estimator_, refit_time_, scorer_, n_splits_, multimetric_
        As for `GridSearchCV`, for the last training of the chosen candidate. For a list of learners `best_estimator_`
        is the learner itself.
    candidates_ : list of dict
        Settings of each candidate.
    rows_ : ndarray of int, shape (n_candidates,)
        Rows trained on, averaged over folds.
    seconds_ : ndarray of float, shape (n_candidates,)
        Seconds of fitting and scoring, summed over folds.
    result_ : SelectionResult
        What the method found; prints as a table.

    Raises
    ------
    ValueError
        If a parameter is out of range.
    RuntimeError
        If every candidate failed.

    Notes
    -----
    All candidates get the same nested subsets in each fold. A decision takes microseconds. An interrupted `fit` keeps
    its trainings in `checkpoint`, and in `trainings_`, from which the next `fit` on the same data goes on.

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
        method: str = "daub",
        first: Any = "auto",
        ratio: float | None = None,
        training_bound: bool = True,
        clip_slope: bool = True,
        curve: float | None = None,
        verify: bool = False,
        budget: float | None = None,
        n_candidates: int = 10,
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
        self.warm_start = warm_start
        self.shuffle = shuffle
        self.random_state = random_state
        self.checkpoint = checkpoint
        self.progress = progress

    def _splitter(self, y: Any, seed: int) -> Any:
        if isinstance(self.cv, float):
            return self._shuffled_split(y, seed) if self.shuffle else _Tail(self._share())
        found = check_cv(self.cv, y, classifier=is_classifier(self.estimator))
        if not _yields_constant_splits(found):
            raise ValueError("cv draws other splits each time; give its random_state an int, so that scores on more "
                             "and more rows can be compared")
        return found

    def _scheduler(self, n_candidates: int, n_rows: int, n_classes: int) -> Scheduler:
        method = _checks.choice(self.method, "method", METHODS)
        if isinstance(self.first, str):
            _checks.choice(self.first, "first", ("auto",))
            first = min(n_rows, max(2 * n_classes, min(500, n_rows // 20), 2))
        else:
            first = _checks.integer(self.first, "first", 1, "learners are trained on rows")
        ratio = {"daub": 1.5, "daub-halving": 4.0, "halving": 2.8}[method] if self.ratio is None else self.ratio
        sizes = checked_sizes(first, ratio, n_rows)
        if method == "daub":
            return DAUB(
                n_candidates, n_rows, sizes=sizes, training_bound=self.training_bound, clip_slope=self.clip_slope,
                curve=1.0 if self.curve is None else self.curve, verify=self.verify, budget=self.budget,
            )
        if method == "halving":
            return SuccessiveHalving(n_candidates, n_rows, sizes=sizes, budget=self.budget)
        return DAUBHalving(
            n_candidates, n_rows, sizes=sizes, budget=self.budget, curve=-0.5 if self.curve is None else self.curve,
        )

    def fit(self, X: Any, y: Any = None, **params: Any) -> DAUBSearchCV:
        """Search.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows: arrays, memory maps, sparse matrices, data frames.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs), optional
            What to predict.
        **params : dict
            Passed to the learners' ``fit``, the scorer and the splitter, as by `GridSearchCV`; arrays with a value per
            row are cut along with X.

        Returns
        -------
        self
        """
        if isinstance(self.estimator, (list, tuple)):
            raise ValueError(fault(self.estimator))
        self._validate_params()
        scorers, refit_metric = self._get_scorers()
        X, y = indexable(X, y)
        params = _check_method_params(X, params=params)
        routed = self._get_routed_params_for_fit(params)
        context = None
        if hasattr(self, "_init_callback_context"):
            context = self._init_callback_context(max_subtasks=1 + (self.refit is not False))
            context = context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        if _num_samples(X) < 1:
            raise ValueError("Found array with 0 sample(s) (X is empty) while a minimum of 1 is required.")

        state = check_random_state(self.random_state)
        seeds = state.randint(np.iinfo(np.int32).max, size=2)
        settings = self._settings(np.random.RandomState(seeds[0]))
        if not settings:
            raise ValueError("No fits were performed. param_grid holds no candidate.")
        splitter = self._splitter(y, int(seeds[1]))
        splits = list(splitter.split(X, y, **routed.splitter.split))
        self.n_splits_ = splitter.get_n_splits(X, y, **routed.splitter.split)
        if len(splits) != self.n_splits_ or not splits:
            raise ValueError(
                f"cv.split and cv.get_n_splits return inconsistent results. Expected {self.n_splits_} splits, got "
                f"{len(splits)}. No fits were performed. Was the CV iterator empty?"
            )
        classes = None
        if y is not None and is_classifier(self.estimator) and type_of_target(y) in ("binary", "multiclass"):
            classes = np.unique(np.asarray(y), return_inverse=True)[1].ravel()
        orders = [
            _nested(np.asarray(train), classes, np.random.RandomState(int(seeds[1]) + k)) if self.shuffle
            else np.asarray(train)
            for k, (train, _) in enumerate(splits)
        ]
        n_rows = min(order.size for order in orders)
        if n_rows < 1:
            raise ValueError("a split has no training rows")
        method = self._scheduler(len(settings), n_rows, 1 if classes is None else int(classes.max()) + 1)
        wants_train = self.return_train_score or (self.training_bound and self.method == "daub")

        search = None
        if context is not None:
            search = context.subcontext(task_name="search", max_subtasks=None, sequential_subtasks=False)
            search = search.call_on_fit_task_begin(estimator=self)
        work = _Work(self, X, y, orders, [test for _, test in splits], settings, scorers, routed, wants_train, search)
        key = joblib_hash((
            [str(one) for one in settings], str(self.estimator), orders, [np.asarray(test) for _, test in splits],
            str(self.scoring), wants_train, self.warm_start, np.shape(X), None if y is None else np.asarray(y),
        ))
        kept = self.__dict__.pop("trainings_", None)
        finished = _resumed(self.checkpoint, key, kept)
        order: list[Allocation] = []
        bar = _bar(self.progress, len(settings) * n_rows)
        multimetric: bool | None = None
        try:
            with Parallel(n_jobs=self.n_jobs, pre_dispatch=self.pre_dispatch) as parallel, bar as show:
                workers = effective_n_jobs(self.n_jobs)
                while not method.done:
                    item = method.ask()
                    if item is None:
                        continue
                    if item not in finished:
                        batch = [item]
                        if isinstance(method, DAUB):
                            ahead = math.ceil(workers / self.n_splits_) - 1
                            batch += [one for one in method.peek(ahead) if one not in finished]
                        else:
                            while len(batch) * self.n_splits_ < workers and (more := method.ask()) is not None:
                                batch.append(more)
                            method.cancel()
                            item = method.ask() or item
                        work.run(parallel, batch, finished)
                        _save(self.checkpoint, key, finished)
                    out = finished[item]
                    order.append(item)
                    if isinstance(out, BaseException):
                        method.fail(*item, out)
                        continue
                    if callable(self.scoring):
                        _insert_error_scores(out, self.error_score)
                    if multimetric is None:
                        multimetric = isinstance(out[0]["test_scores"], dict)
                        if multimetric and callable(self.scoring):
                            self._check_refit_for_multimetric(out[0]["test_scores"])
                            refit_metric = self.refit
                    valid, train = _means(out, refit_metric, wants_train)
                    method.tell(*item, train, valid)
                    show(method.spent)
        except BaseException:
            self.trainings_ = key, finished
            raise
        if search is not None:
            search.call_on_fit_task_end(estimator=self)
        if self.error_score == "raise" or multimetric is None:
            failed = [out for out in finished.values() if isinstance(out, BaseException)]
            if failed:
                raise failed[0]

        rows = [item for item in order if not isinstance(finished[item], BaseException)]
        outs = [out for item in rows for out in finished[item]]
        _warn_or_raise_about_fit_failures(outs, self.error_score)
        self.candidates_ = settings
        self.result_ = method.result()
        self.multimetric_ = bool(multimetric)
        bounds = {(one.learner, one.n): one.bound for one in self.result_.history}
        extra = {
            "candidate": [i for i, _ in rows], "n_resources": [n for _, n in rows], "iter": list(range(len(rows))),
            "upper_bound": [bounds[item] for item in rows],
        }
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="One or more of the")
            results = self._format_results(
                [settings[i] for i, _ in rows], self.n_splits_, outs, defaultdict(list, extra))
        self.rows_ = self.result_.rows
        self.seconds_ = np.zeros(len(settings))
        for k, (i, _) in enumerate(rows):
            self.seconds_[i] += self.n_splits_ * (results["mean_fit_time"][k] + results["mean_score_time"][k])

        if self.refit or not self.multimetric_:
            if callable(self.refit):
                self.best_index_ = self._select_best_index(self.refit, refit_metric, results)
            else:
                chosen = [k for k, item in enumerate(rows) if item[0] == self.result_.best]
                self.best_index_ = max(chosen, key=lambda k: rows[k][1])
                self.best_score_ = results[f"mean_test_{refit_metric}"][self.best_index_]
            self.best_params_ = results["params"][self.best_index_]
        if self.refit:
            best = clone(self.estimator).set_params(**clone(self.best_params_, safe=False))
            subcontext = None
            if context is not None:
                subcontext = context.subcontext(task_name="refit-with-best-params")
            began = time.time()
            if subcontext is None:
                best.fit(X, *([] if y is None else [y]), **routed.estimator.fit)
            else:
                with subcontext.propagate_callback_context(best):
                    subcontext.call_on_fit_task_begin(estimator=self, X=X, y=y)
                    best.fit(X, *([] if y is None else [y]), **routed.estimator.fit)
                    subcontext.call_on_fit_task_end(estimator=self, X=X, y=y)
            self.refit_time_ = time.time() - began
            self.best_estimator_ = best.learner_ if isinstance(best, Candidates) else best
            if hasattr(self.best_estimator_, "feature_names_in_"):
                self.feature_names_in_ = self.best_estimator_.feature_names_in_
        self.scorer_ = scorers._scorers if isinstance(scorers, _MultimetricScorer) else scorers
        self.cv_results_ = results
        if context is not None:
            context.call_on_fit_task_end(estimator=self, X=X, y=y)
        return self


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


class _Work:
    """Trains candidates on prefixes of each fold's training rows."""

    def __init__(
        self, search: DAUBSearchCV, X: Any, y: Any, orders: list[NDArray[Any]], tests: list[Any],
        settings: list[dict[str, Any]], scorers: Any, routed: Any, wants_train: bool, context: Any,
    ) -> None:
        self.search, self.X, self.y, self.orders, self.tests = search, X, y, orders, tests
        self.settings, self.context, self.n_made = settings, context, 0
        self.base = clone(search.estimator)
        self.options: dict[str, Any] = {
            "scorer": scorers, "fit_params": routed.estimator.fit, "score_params": routed.scorer.score,
            "return_train_score": wants_train, "return_n_test_samples": True, "return_times": True,
            "return_parameters": False, "error_score": search.error_score, "verbose": search.verbose,
        }
        self.known = signature(_fit_and_score).parameters
        self.models: dict[tuple[int, int], tuple[int, Any]] = {}

    def tasks(self, batch: list[Allocation]) -> Any:
        for i, n in batch:
            for fold, (order, test) in enumerate(zip(self.orders, self.tests, strict=True)):
                more = dict(self.options)
                if "callback_ctx" in self.known:
                    more["caller"] = self.search
                    more["callback_ctx"] = None
                    if self.context is not None:
                        more["callback_ctx"] = self.context.subcontext(
                            task_name="candidate-split-evaluation", task_id=self.n_made)
                        self.n_made += 1
                estimator = clone(self.base)
                if self.search.warm_start:
                    estimator = _Continued(estimator, order[:n], self.models.get((i, fold)), np.unique(self.y))
                    more["return_estimator"] = True
                yield delayed(_fit_and_score)(
                    estimator, self.X, self.y, train=order[:n], test=test, parameters=self.settings[i],
                    split_progress=(fold, len(self.orders)), candidate_progress=(i, len(self.settings)), **more)

    def run(self, parallel: Any, batch: list[Allocation], finished: dict[Allocation, Any]) -> None:
        """Train a batch; if it is lost with a dead worker, train each alone, so that only the culprit fails."""
        try:
            self.store(batch, parallel(list(self.tasks(batch))), finished)
        except Exception as error:
            if self.search.error_score == "raise" or not worker_died(error):
                raise
            for item in batch:
                try:
                    retry = Parallel(n_jobs=self.search.n_jobs)
                    self.store([item], retry(list(self.tasks([item]))), finished)
                except Exception as again:
                    if not worker_died(again):
                        raise
                    finished[item] = RuntimeError(f"its worker died: {type(again).__name__}")
                    warnings.warn(f"candidate {item[0]} was dropped: its worker died", stacklevel=4)

    def store(self, batch: list[Allocation], out: list[Any], finished: dict[Allocation, Any]) -> None:
        folds = len(self.orders)
        for k, (i, n) in enumerate(batch):
            found = out[k * folds : (k + 1) * folds]
            for fold, one in enumerate(found):
                if one.get("estimator") is not None:
                    model = one.pop("estimator")
                    self.models[i, fold] = n, getattr(model, "model", model)
            finished[i, n] = found


class _Continued:
    """Stands for an estimator in `_fit_and_score`: `fit` goes on from the model of a smaller subset if it can."""

    def __init__(self, estimator: Any, rows: NDArray[Any], before: tuple[int, Any] | None, classes: Any) -> None:
        self.estimator, self.rows, self.before, self.classes = estimator, rows, before, classes
        self.model = estimator

    def set_params(self, **params: Any) -> _Continued:
        self.estimator.set_params(**params)
        return self

    def fit(self, X: Any, y: Any = None, **params: Any) -> _Continued:
        learner = self.estimator._chosen() if isinstance(self.estimator, Candidates) else self.estimator
        if not hasattr(learner, "partial_fit"):
            self.model = self.estimator.fit(X, *([] if y is None else [y]), **params)
            return self
        done, self.model = self.before if self.before is not None else (0, clone(learner))
        new = slice(done, None)
        extra = {name: _safe_indexing(value, np.arange(done, _num_samples(X)))
                 if hasattr(value, "__len__") and _num_samples(value) == _num_samples(X) else value
                 for name, value in params.items()}
        if "classes" in signature(self.model.partial_fit).parameters:
            extra["classes"] = self.classes
        part = X.iloc[new] if hasattr(X, "iloc") else X[new]
        target = None if y is None else y.iloc[new] if hasattr(y, "iloc") else y[new]
        self.model.partial_fit(part, *([] if target is None else [target]), **extra)
        return self

    def __getattr__(self, name: str) -> Any:
        if name in ("model", "estimator") or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.model, name)

    def __sklearn_tags__(self) -> Any:
        return self.estimator.__sklearn_tags__()


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


def _resumed(path: Any, key: str, kept: Any) -> dict[Allocation, Any]:
    """Finished trainings of an interrupted search with the same data and settings."""
    if kept is not None and kept[0] == key:
        return dict(kept[1])
    if path is not None and os.path.exists(path):
        try:
            with open(path, "rb") as file:
                version, saved, finished = pickle.load(file)
        except (EOFError, pickle.UnpicklingError, ValueError, TypeError) as error:
            raise ValueError(f"checkpoint {os.fspath(path)!r} is damaged ({error}); remove it to begin anew") from error
        if version == CHECKPOINT and saved == key:
            return dict(finished)
        warnings.warn(f"checkpoint {os.fspath(path)!r} is of another search; it is overwritten", stacklevel=3)
    return {}


def _save(path: Any, key: str, finished: dict[Allocation, Any]) -> None:
    if path is None:
        return
    path = os.path.abspath(path)
    handle, name = tempfile.mkstemp(dir=os.path.dirname(path))
    with os.fdopen(handle, "wb") as file:
        pickle.dump((CHECKPOINT, key, finished), file)
    os.replace(name, path)


class _bar:
    """A bar of the rows trained on, if one is wanted."""

    def __init__(self, shown: bool, total: int) -> None:
        self.progress: Any = None
        self.total = total
        if shown:
            try:
                from rich.console import Console
                from rich.progress import Progress
            except ImportError as error:
                raise ImportError('progress bars need rich: python -m pip install "rich"') from error
            self.progress = Progress(console=Console(stderr=True))

    def __enter__(self) -> Any:
        if self.progress is None:
            return lambda spent: None
        self.progress.start()
        task = self.progress.add_task("rows trained on", total=self.total)
        return lambda spent: self.progress.update(task, completed=spent)

    def __exit__(self, *error: Any) -> None:
        if self.progress is not None:
            self.progress.stop()
