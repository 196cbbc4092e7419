# mypy: disable-error-code="misc, untyped-decorator, no-untyped-call"
"""A scikit-learn search whose candidates are trained once and raced over the held-out rows."""

from __future__ import annotations

import math
import time
import warnings
from collections import defaultdict
from inspect import signature
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from joblib import effective_n_jobs
from joblib import hash as joblib_hash
from numpy.typing import NDArray
from sklearn.base import RegressorMixin, clone, is_classifier
from sklearn.dummy import DummyRegressor
from sklearn.model_selection import check_cv
from sklearn.model_selection._search import BaseSearchCV
from sklearn.model_selection._validation import _fit_and_score, _warn_or_raise_about_fit_failures
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _check_method_params, _num_samples, indexable

from fastrace import _checks
from fastrace._progress import meter
from fastrace.model_selection._candidates import Candidates, CandidateSearch, fault, worker_died
from fastrace.model_selection._row_scores import Fold, RowScore, row_score, scaled_support
from fastrace.racing import FiniteRace
from fastrace.results import RaceResult

Floats = NDArray[np.float64]


class RacingSearchCV(CandidateSearch):
    r"""Search whose candidates are trained once per split and raced over the held-out rows.

    Predictions are asked for in blocks of rows, for the candidates that can still be the best. With probability at
    least ``1 - delta`` the one chosen is that of `GridSearchCV`, which predicts all held-out rows by all candidates.

    Parameters
    ----------
    estimator : estimator, or list of (str, estimator)
        What to tune, or learners to choose from. A list becomes one estimator with the parameter ``choice``.
    param_grid : dict or list of dict, optional
        Parameters and their values, as for `GridSearchCV`. If a value has a method ``rvs``, `n_candidates` settings are
        drawn, as by `RandomizedSearchCV`. Not needed for a list of learners; for one, parameters are called
        ``name__parameter``.
    delta : float, default 0.05
        Probability that the candidate chosen is not the best on all held-out rows, in (0, 1).
    scoring : str, scorer or RowScore, optional
        A score that is a mean over rows: accuracy, balanced accuracy, R2 (the default of regressors), log loss, Brier
        score, and the usual losses of regression, by scikit-learn's names; or a `RowScore`.
    bound : str, default "auto"
        See `FiniteRace`. ``"auto"``: rigorous where the range of a row's score is known (accuracy, Brier score,
        `support`); elsewhere means of `first_look` rows are taken as normal.
    support : tuple of float, optional
        Interval that holds the score of every row.
    first_look : int, default 100
        Rows of the first look, at least 2.
    growth : float, default 1.4
        Factor between looks. Each costs a call of every model still in the race.
    n_candidates : int, default 10
        Settings drawn from distributions.
    cv : int, float, splitter or iterable, optional
        As for `GridSearchCV`; a float in (0, 1) is one split with that share of the rows held out.
    n_jobs, refit, verbose, pre_dispatch
        As for `GridSearchCV`, but with one score only. Trainings go through joblib's backend; predictions are made in
        threads, for models are not sent about for a block of rows. The answer does not depend on `n_jobs`.
    error_score : "raise" or float, default nan
        What to do about a training or prediction that fails, and the score that is then reported. Whatever its value,
        the candidate is out of the race.
    random_state : int, RandomState or None
        Rows asked for first, a split by share, settings drawn.
    progress : bool, default False
        Show a bar of trainings (needs rich).

    Attributes
    ----------
    cv_results_ : dict
        A row per candidate with the keys of `GridSearchCV`, and ``n_predictions`` (held-out rows predicted),
        ``half_width`` (of the comparison with the leader, nan where the bound has none) and ``eliminated_at`` (rows
        that the race had read then; -1 for those never eliminated). Scores of candidates that were eliminated are
        estimates: the score of the best, plus the mean difference on the rows read for both. The best has rank 1.
    best_index_, best_params_, best_score_, best_estimator_, refit_time_, scorer_, n_splits_, multimetric_
        As for `GridSearchCV`. For a list of learners `best_estimator_` is the learner itself.
    race_ : RaceResult
        What the race found; prints as a table.
    fraction_read_ : float
        Predictions made, over those of predicting all held-out rows by all candidates.

    Raises
    ------
    ValueError
        If a parameter is out of range, the score is not a mean over rows, or every training failed.

    Notes
    -----
    The score raced for is the mean over splits of the mean over held-out rows, as in `GridSearchCV`, also where splits
    differ in size or rows in weight. The rows read are a random sample without replacement of all held-out rows; a
    race that has read them all returns the exact answer, and that is what happens on small data or between candidates
    about as good as each other. What is saved is prediction, not training: use it for learners that are slow to
    predict (neighbours, kernels, large committees, remote models), and `DAUBSearchCV` for those slow to train. All
    models are kept until the race is over. An interrupted `fit` keeps them in `trainings_`, from which the next `fit`
    on the same data goes on. For predictions that exist already, see `race_predictions`.

    References
    ----------
    .. [1] Chen, Ghahramani, "Scalable Discrete Sampling as a Multi-Armed Bandit Problem", ICML 2016, Algorithm 1.
    .. [2] Maron, Moore, "Hoeffding Races: Accelerating Model Selection Search for Classification and Function
       Approximation", NIPS 1993.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from fastrace.model_selection import RacingSearchCV
    >>> X, y = make_classification(4000, 6, flip_y=0.3, random_state=0)
    >>> race = RacingSearchCV(KNeighborsClassifier(), {"n_neighbors": [1, 25, 2000]}, cv=0.5, random_state=0).fit(X, y)
    >>> race.best_params_, race.fraction_read_ < 0.5
    ({'n_neighbors': 25}, True)
    """

    _parameter_constraints = {
        **{name: kinds for name, kinds in BaseSearchCV._parameter_constraints.items()
           if name not in ("scoring", "return_train_score")},
        "scoring": "no_validation",
        "cv": ["cv_object", Interval(Real, 0, 1, closed="neither")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        estimator: Any,
        param_grid: Any = None,
        *,
        delta: float = 0.05,
        scoring: Any = None,
        bound: str = "auto",
        support: tuple[float, float] | None = None,
        first_look: int = 100,
        growth: float = 1.4,
        n_candidates: int = 10,
        n_jobs: int | None = None,
        refit: Any = True,
        cv: Any = None,
        verbose: int = 0,
        pre_dispatch: Any = "2*n_jobs",
        error_score: Any = np.nan,
        random_state: Any = None,
        progress: bool = False,
    ) -> None:
        super().__init__(
            estimator=estimator, scoring=scoring, n_jobs=n_jobs, refit=refit, cv=cv, verbose=verbose,
            pre_dispatch=pre_dispatch, error_score=error_score, return_train_score=False,
        )
        self.param_grid = param_grid
        self.delta = delta
        self.bound = bound
        self.support = support
        self.first_look = first_look
        self.growth = growth
        self.n_candidates = n_candidates
        self.random_state = random_state
        self.progress = progress

    def _splitter(self, y: Any, seed: int) -> Any:
        if isinstance(self.cv, float):
            return self._shuffled_split(y, seed)
        return check_cv(self.cv, y, classifier=is_classifier(self.estimator))

    def _row_score(self) -> RowScore:
        if self.scoring is not None:
            return row_score(self.scoring)
        learners = self.estimator.learners if isinstance(self.estimator, Candidates) else [("", self.estimator)]
        found = {_default_score(learner) for _, learner in learners}
        if len(found) == 1 and (name := found.pop()):
            return row_score(name)
        raise ValueError(
            "scoring is None, and the default scores of the learners are neither all accuracy nor all R2; name a score "
            "that is a mean over rows, or give a RowScore(function)"
        )

    def fit(self, X: Any, y: Any = None, **params: Any) -> RacingSearchCV:
        """Train all candidates, and race them.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs), optional
            What to predict.
        **params : dict
            Passed to the learners' ``fit``, the scorer (``sample_weight``) and the splitter, as by `GridSearchCV`.

        Returns
        -------
        self
        """
        if isinstance(self.estimator, (list, tuple)):
            raise ValueError(fault(self.estimator))
        self._validate_params()
        delta = _checks.probability(self.delta, "delta")
        score = self._row_score()
        scorers, _ = self._get_scorers()
        X, y = indexable(X, y)
        params = _check_method_params(X, params=params)
        routed = self._get_routed_params_for_fit(params)
        context = None
        if hasattr(self, "_init_callback_context"):
            context = self._init_callback_context(max_subtasks=1 + (self.refit is not False))
            context = context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        if _num_samples(X) < 1:
            raise ValueError("Found array with 0 sample(s) (X is empty) while a minimum of 1 is required.")
        weights = dict(routed.scorer.score)
        sample_weight = weights.pop("sample_weight", None)
        if weights:
            raise ValueError(f"the scorer is sent {', '.join(weights)}; scores of rows take a sample_weight only")

        state = check_random_state(self.random_state)
        seeds = state.randint(np.iinfo(np.int32).max, size=3)
        settings = self._settings(np.random.RandomState(seeds[0]))
        if not settings:
            raise ValueError("No fits were performed. param_grid holds no candidate.")
        splitter = self._splitter(y, int(seeds[1]))
        self.n_splits_ = splitter.get_n_splits(X, y, **routed.splitter.split)
        splits = [(np.asarray(a), np.asarray(b)) for a, b in splitter.split(X, y, **routed.splitter.split)]
        splits = [tuple(np.flatnonzero(one) if one.dtype == bool else one for one in pair) for pair in splits]
        if len(splits) != self.n_splits_ or not splits:
            raise ValueError(
                f"cv.split and cv.get_n_splits return inconsistent results. Expected {self.n_splits_} splits, got "
                f"{len(splits)}. No fits were performed. Was the CV iterator empty?"
            )

        search = None
        if context is not None:
            search = context.subcontext(
                task_name="search", max_subtasks=len(settings) * len(splits), sequential_subtasks=False)
            search = search.call_on_fit_task_begin(estimator=self)
        key, trained = self._train(X, y, settings, splits, routed.estimator.fit, search)
        if search is not None:
            search.call_on_fit_task_end(estimator=self)
        outs = [trained[i, k] for i in range(len(settings)) for k in range(len(splits))]
        _warn_or_raise_about_fit_failures(outs, self.error_score)

        target = None if y is None else np.asarray(y)
        folds = [
            score.fold(None if target is None else target[test], len(test),
                       None if sample_weight is None else np.asarray(sample_weight)[test])
            for _, test in splits
        ]
        race = _HeldOut(self, X, y, target, settings, splits, trained, score, folds)
        try:
            race.run(delta, int(seeds[2]))
        except BaseException:
            self.trainings_ = key, trained
            raise
        for one in outs:
            one.pop("estimator", None)
        self.race_ = race.result
        self.fraction_read_ = race.made / (len(settings) * race.n_rows)
        self._report(settings, splits, outs, race)
        self.multimetric_ = False
        self.scorer_ = scorers

        if callable(self.refit):
            self.best_index_ = self._select_best_index(self.refit, "score", self.cv_results_)
        else:
            self.best_index_ = self.race_.best
            self.best_score_ = self.cv_results_["mean_test_score"][self.best_index_]
        self.best_params_ = settings[self.best_index_]
        if self.refit:
            best = clone(self.estimator).set_params(**clone(self.best_params_, safe=False))
            data = (X,) if y is None else (X, y)
            began = time.time()
            if context is None:
                best.fit(*data, **routed.estimator.fit)
            else:
                step = context.subcontext(task_name="refit-with-best-params")
                with step.propagate_callback_context(best):
                    step.call_on_fit_task_begin(estimator=self, X=X, y=y)
                    best.fit(*data, **routed.estimator.fit)
                    step.call_on_fit_task_end(estimator=self, X=X, y=y)
            self.refit_time_ = time.time() - began
            self.best_estimator_ = best.learner_ if isinstance(best, Candidates) else best
            if hasattr(self.best_estimator_, "feature_names_in_"):
                self.feature_names_in_ = self.best_estimator_.feature_names_in_
        if context is not None:
            context.call_on_fit_task_end(estimator=self, X=X, y=y)
        return self

    def _train(
        self, X: Any, y: Any, settings: list[dict[str, Any]], splits: list[Any], fit_params: Any, search: Any
    ) -> tuple[str, dict[tuple[int, int], Any]]:
        """Train every candidate on every split; keep what is finished if interrupted, or if a worker dies."""
        key = joblib_hash((
            [str(one) for one in settings], str(self.estimator), splits, np.shape(X),
            None if y is None else np.asarray(y),
        ))
        kept = self.__dict__.pop("trainings_", None)
        finished: dict[tuple[int, int], Any] = dict(kept[1]) if kept is not None and kept[0] == key else {}
        known = signature(_fit_and_score).parameters
        base = clone(self.estimator)
        options = {
            "scorer": _nothing, "fit_params": fit_params, "score_params": {}, "return_times": True,
            "return_estimator": True, "error_score": self.error_score,
            "verbose": min(self.verbose, 2),            # beyond, scores are printed, and there are none yet
        }

        def task(number: int, item: tuple[int, int]) -> Any:
            i, k = item
            more = dict(options)
            if "callback_ctx" in known:
                more["caller"], more["callback_ctx"] = self, None
                if search is not None:
                    more["callback_ctx"] = search.subcontext(task_name="candidate-split-evaluation", task_id=number)
            train, test = splits[k]
            return delayed(_fit_and_score)(
                clone(base), X, y, train=train, test=test[:1], parameters=clone(settings[i], safe=False),
                split_progress=(k, len(splits)), candidate_progress=(i, len(settings)), **more)

        wanted = [(i, k) for i in range(len(settings)) for k in range(len(splits)) if (i, k) not in finished]
        step = 1 if effective_n_jobs(self.n_jobs) == 1 else 4 * effective_n_jobs(self.n_jobs)
        total = len(settings) * len(splits)
        try:
            with Parallel(n_jobs=self.n_jobs, pre_dispatch=self.pre_dispatch) as parallel, \
                    meter("trainings", total, self.progress) as show:
                for at in range(0, len(wanted), step):
                    batch = wanted[at : at + step]
                    try:
                        found = parallel([task(at + j, item) for j, item in enumerate(batch)])
                        finished.update(zip(batch, found, strict=True))
                    except Exception as error:
                        if self.error_score == "raise" or not worker_died(error):
                            raise
                        for j, item in enumerate(batch):      # one at a time, so that only the culprit fails
                            try:
                                retry = Parallel(n_jobs=self.n_jobs)
                                finished[item] = retry([task(total + at + j, item)])[0]
                            except Exception as again:
                                if not worker_died(again):
                                    raise
                                finished[item] = {
                                    "fit_error": f"its worker died: {type(again).__name__}", "fit_time": math.nan,
                                    "score_time": 0.0, "estimator": None, "test_scores": self.error_score,
                                }
                    show(len(finished))
        except BaseException:
            self.trainings_ = key, finished
            raise
        return key, finished

    def _report(self, settings: list[dict[str, Any]], splits: list[Any], outs: list[Any], race: _HeldOut) -> None:
        """Fill `cv_results_`."""
        count, result = len(splits), race.result
        scores, mean = race.scores()
        for i in race.failed:
            scores[i], mean[i] = self.error_score, self.error_score
        for i in range(len(settings)):
            for k in range(count):
                outs[i * count + k] |= {"test_scores": scores[i, k], "score_time": race.seconds[i, k]}
        half_width = np.array(result.half_width, np.float64)
        half_width[race.failed] = np.nan
        extra: dict[str, Any] = {
            "n_predictions": race.pulls, "half_width": half_width, "eliminated_at": race.eliminated_at,
        }
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="One or more of the")
            results = self._format_results(settings, count, outs, defaultdict(list, extra))
        results["mean_test_score"] = mean
        known = ~np.isnan(scores)
        spread = np.where(known, scores - np.where(np.isnan(mean), 0.0, mean)[:, None], 0.0)
        results["std_test_score"] = np.where(
            known.any(axis=1), np.sqrt(np.square(spread).sum(axis=1) / np.maximum(known.sum(axis=1), 1)), np.nan)
        order = np.where(np.isnan(mean), -np.inf, mean)
        order[race.failed] = -np.inf
        order[result.best] = np.inf
        results["rank_test_score"] = 1 + (order[None, :] > order[:, None]).sum(axis=1).astype(np.int32)
        self.cv_results_ = results


def _default_score(learner: Any) -> str:
    """The score that an estimator's own `score` is, as far as that is known."""
    while hasattr(learner, "steps"):
        learner = learner.steps[-1][1]
    own = getattr(type(learner), "score", None)
    if own is None or getattr(learner, "scoring", None) is not None:
        return ""
    if is_classifier(learner) and own.__module__.startswith("sklearn."):      # some override it to say the same
        return "accuracy"
    return "r2" if own is RegressorMixin.score or isinstance(learner, DummyRegressor) else ""


class _Look(NamedTuple):
    """Sums over all rows read so far, of the candidates that were still in the race."""

    arms: NDArray[np.intp]
    sums: Floats                     # arms by splits
    counts: Floats                   # splits: the weights of the rows read


class _HeldOut:
    """The held-out rows of all splits in a line, and the race over them."""

    result: RaceResult

    def __init__(
        self, search: RacingSearchCV, X: Any, y: Any, target: Any, settings: list[dict[str, Any]], splits: list[Any],
        trained: dict[tuple[int, int], Any], score: RowScore, folds: list[Fold],
    ) -> None:
        self.search, self.X, self.y, self.target, self.splits = search, X, y, target, splits
        self.score, self.folds, self.count = score, folds, len(settings)
        self.models = {item: one["estimator"] for item, one in trained.items() if one["fit_error"] is None}
        self.failed = [
            i for i in range(self.count) if any((i, k) not in self.models for k in range(len(splits)))
        ]
        self.starts = np.concatenate([[0], np.cumsum([len(test) for _, test in splits])])
        self.n_rows = int(self.starts[-1])
        # The mean of a row's score times this, over all rows, is the mean over splits of the weighted mean over rows.
        self.scale = np.concatenate([fold.weights for fold in folds]) * (self.n_rows / len(splits))
        self.plain = bool((self.scale == self.scale[0]).all())
        self.seconds = np.zeros((self.count, len(splits)))
        self.made = 0

    def run(self, delta: float, seed: int) -> None:
        """Race; a candidate that cannot predict is out, and the race begins anew with the same rows."""
        search = self.search
        ends = search.support if search.support is not None else self.score.support_for(self._labels())
        with Parallel(n_jobs=search.n_jobs, require="sharedmem") as parallel:
            while True:
                if len(self.failed) == self.count:
                    raise ValueError("every candidate failed to predict; set error_score='raise' to see why")
                offset = np.zeros(self.count)
                offset[self.failed] = -np.inf
                race = FiniteRace(
                    self.count, self.n_rows, delta, search.bound, first_look=search.first_look,
                    growth=search.growth, support=scaled_support(ends, self.scale), offset=offset,
                    rng=np.random.default_rng(seed),
                )
                if self._race(race, parallel):
                    break
        self.result = race.result()
        self.models = {}

    def _labels(self) -> Any:
        first = next(model for item, model in sorted(self.models.items(), key=lambda one: one[0])
                     if item[0] not in self.failed)
        return getattr(first, "classes_", None)

    def _race(self, race: FiniteRace, parallel: Any) -> bool:
        """Whether the race ended without a failure."""
        self.looks: list[_Look] = []
        self.pulls = np.zeros(self.count, np.int64)
        self.eliminated_at = np.full(self.count, -1, np.int64)
        self.sums, self.counts = np.zeros((self.count, len(self.splits))), np.zeros(len(self.splits))
        if race.done:                                        # one candidate is left: nothing to race for, but to score
            return self._read(np.array([race.result().best]), np.arange(self.n_rows), parallel) is not None
        while not race.done:
            arms, rows = race.ask()
            block = self._read(arms, rows, parallel)
            if block is None:
                return False
            race.tell(block if self.plain and self.scale[0] == 1.0 else block * self.scale[rows, None])
            self.eliminated_at[np.setdiff1d(arms, race.result().active)] = self.pulls.max()
        return True

    def _read(self, arms: NDArray[np.intp], rows: NDArray[np.int64], parallel: Any) -> Floats | None:
        """Predict some rows by some candidates; None if one of them fails."""
        block = np.empty((len(rows), len(arms)))
        of_split = np.searchsorted(self.starts, rows, side="right") - 1
        places = {int(k): np.flatnonzero(of_split == k) for k in np.unique(of_split)}
        work = [(j, int(i), k) for k in places for j, i in enumerate(arms)]
        found = parallel(delayed(self._predict)(i, k, rows[places[k]] - self.starts[k]) for _, i, k in work)
        bad: set[int] = set()
        for (j, i, k), (values, seconds) in zip(work, found, strict=True):
            self.made += len(places[k])
            self.seconds[i, k] += seconds
            if not isinstance(values, Exception):
                block[places[k], j] = values
            elif self.search.error_score == "raise":
                raise values
            elif i not in bad:
                bad.add(i)
                warnings.warn(f"candidate {i} is out of the race, its predictions failed: {type(values).__name__}: "
                              f"{values}", stacklevel=6)
        if bad:
            self.failed = sorted({*self.failed, *bad})
            return None
        for k, at in places.items():
            weights = np.ones(len(at)) if self.plain else self.folds[k].weights[rows[at] - self.starts[k]]
            self.counts[k] += weights.sum()
            self.sums[arms, k] += weights @ block[at]
        self.pulls[arms] += len(rows)
        self.looks.append(_Look(arms.copy(), self.sums[arms], self.counts.copy()))
        return block

    def _predict(self, i: int, k: int, places: NDArray[np.int64]) -> tuple[Any, float]:
        """Scores of some rows of a split by a candidate, or the exception, and seconds."""
        began = time.perf_counter()
        train, test = self.splits[k]
        rows, model = test[places], self.models[i, k]
        try:
            data, _ = _safe_split(model, self.X, self.y, rows, train)
            response = getattr(model, self.score.response_method)(data)
            y = None if self.target is None else self.target[rows]
            values = self.score.rows(y, response, getattr(model, "classes_", None), self.folds[k].constants)
            if np.isnan(values).any() or (values == np.inf).any():
                raise ValueError(f"a score is {values[~(values < np.inf)][0]}; finite scores are needed")
            return values, time.perf_counter() - began
        except Exception as error:
            return error, time.perf_counter() - began

    def scores(self) -> tuple[Floats, Floats]:
        """Estimated scores, candidates by splits and in all: those of the best, plus differences on common rows."""
        best = self.result.best
        per_split = np.full((self.count, len(self.splits)), np.nan)
        mean = np.full(self.count, np.nan)
        last = {int(i): look for look in self.looks for i in look.arms}
        with np.errstate(invalid="ignore", divide="ignore"):
            final = self.looks[-1]
            own = final.sums[np.flatnonzero(final.arms == best)[0]]
            level, whole = own / final.counts, own.sum() / final.counts.sum()
            for i, look in last.items():
                gap = look.sums[np.flatnonzero(look.arms == i)[0]] - look.sums[np.flatnonzero(look.arms == best)[0]]
                per_split[i] = level + gap / look.counts
                mean[i] = whole + gap.sum() / look.counts.sum()
        whole_rows = ~np.isnan(per_split).any(axis=1)
        mean[whole_rows] = per_split[whole_rows].mean(axis=1)
        return per_split, mean


def _nothing(estimator: Any, X: Any, y: Any = None) -> float:
    """The score of a training, before anything is predicted."""
    return 0.0
