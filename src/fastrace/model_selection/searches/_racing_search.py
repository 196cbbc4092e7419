# mypy: disable-error-code="misc, no-untyped-call"
"""A scikit-learn search whose candidates are trained once and raced over the held-out rows."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn import get_config
from sklearn.base import ClassifierMixin, RegressorMixin, is_classifier
from sklearn.dummy import DummyRegressor
from sklearn.utils.metadata_routing import process_routing

from fastrace._base import _callers, _checks
from fastrace._base._progress import meter
from fastrace.model_selection import _sklearn
from fastrace.model_selection._row_scores import RowScore, row_score, row_scores
from fastrace.model_selection.searches._base import CandidateSearch, Task
from fastrace.model_selection.searches._candidates import Candidates
from fastrace.model_selection.searches._checkpoint import fingerprint, head
from fastrace.model_selection.searches._held_out import HeldOut, Metric, costs, equal_weights
from fastrace.model_selection.searches._trainings import Trainings
from fastrace.model_selection.searches._workers import Failure
from fastrace.races import _options


class RacingSearchCV(CandidateSearch):
    r"""Search whose candidates are trained once per split and raced over the held-out rows.

    Predictions are asked for in blocks of rows, for the candidates that can still be the best. With probability at
    least ``1 - delta`` the one chosen is that of `GridSearchCV`, which predicts all held-out rows by all candidates.

    Parameters
    ----------
    {candidates}
    delta : float, default 0.05
        Probability that the candidate chosen is not the best on all held-out rows, in (0, 1).
    scoring : str, scorer, RowScore, or list of names, or dict, optional
        A score that is a mean over rows: accuracy, balanced accuracy, R2 (the default of regressors), log loss, Brier
        score, and the usual losses of regression, by scikit-learn's names; or a `RowScore`. With several, `refit` names
        the one that is raced for; all are in `cv_results_`, from the same rows. See Notes for those that are none.
    bound : str, default "auto"
        See `FiniteRace`. ``"auto"``: rigorous where the range of a row's score is known (accuracy, log loss, Brier
        score, `support`); elsewhere means of `first_look` rows are taken as normal. For log loss ``"normal"`` reads
        fewer rows, and errs far more often than `delta` where probabilities may be near 0; see `race_predictions`.
    support : tuple of float, optional
        Interval that holds the score of every row.
    first_look : int, default 100
        Rows of the first look, at least 2.
    growth : float, default 1.4
        Factor between looks. Each look calls every model still in the race.
    epsilon : float, default 0.0
        How far below the best score a candidate may be, in units of the score: near ties are not read to the end.
    n_best : int, default 1
        How many candidates to find, those with the best scores: ``race_.best`` has them all, the largest score first.
        ``best_index_`` is the first of these; that it is the very best is promised with 1 only.
    max_pulls : int, optional
        Most predictions of held-out rows to ask for, over all candidates. A race that reaches it ends with the best
        mean so far and without the promise: ``race_.stopped_by`` is then "max_pulls", and ``race_.active`` are the
        candidates that may be the best.
    max_seconds : float, optional
        Seconds of `fit` after which no further predictions are asked for, with the answer of the last look:
        ``race_.stopped_by`` is then "max_seconds", and intervals and ``race_.error_bound`` hold as after any look. A
        look that is under way is waited for; all trainings, the first look and `refit` take place in any case.
        Another `fit` on the same data goes on, for as many seconds again and at least one look: no candidate is trained
        again and no prediction made again. The search keeps all models for it, in `trainings_`.
    cost : float or array_like of shape (n_candidates,), optional
        What one prediction costs, in any unit; ``race_.cost`` adds it up. A series of pandas goes by the names of the
        candidates, as ``race_.names`` says them, or by their numbers.
    names : sequence of str, optional
        What to call the candidates, one name each, in the order of ``cv_results_["params"]``; by default each goes by
        its setting. The race, its plot, `cv_results_`, warnings and errors say them.
    missing : {"raise", "drop", "worst"}, default "raise"
        What a row without a score does: one whose prediction, or score, is nan. ``"raise"``: the prediction has failed,
        see `error_score`. ``"drop"``: the row is left out for all candidates, and the score is the mean over the
        rest, in which all rows count alike, whatever their split; it takes no weights of rows. ``"worst"``: its score
        is the low end of the support, 0 for accuracy. See `FiniteRace`. An exception of a prediction is a failure,
        whatever is said here.
    order : {"random", "given"}, default "random"
        How to read the table of held-out rows, those of all splits. ``"random"``: the race draws the rows uniformly at
        random, whatever order the table is in, and pays for no cell twice. It draws a row at most once. ``"given"``: it
        draws only which split is next, and reads the rows of a split in the order in which `cv` lists them, from a
        random start, which suits files. The promise then holds only if each split lists its rows in uniformly random
        order, as splits by share and `ShuffleSplit` do, and `KFold` does where the rows came in such an order. Sorted
        rows void it, and the race cannot see that.
    {n_candidates}
    n_jobs, refit
        As for `GridSearchCV`. Trainings go through joblib's backend, predictions are made in threads. The answer does
        not depend on `n_jobs`.
    {cv}
    verbose, pre_dispatch
        As for `GridSearchCV`.
    error_score : "raise" or float, default nan
        What to report for a training or prediction that fails. Whatever its value, the candidate is out of the race.
    random_state : int, RandomState or None
        Rows asked for first, a split by share, settings drawn.
    time_limit : float, optional
        Seconds that a training may take, as in `DAUBSearchCV`; predictions have none.
    {progress}

    Attributes
    ----------
    cv_results_ : dict
        A row per candidate with the keys of `GridSearchCV`, and ``name``, ``n_predictions`` (held-out rows predicted),
        ``half_width`` (of the comparison with the leader, nan where the bound has none, as for betting) and
        ``eliminated_at`` (rows that the race had read then; -1 for those never eliminated). Scores of eliminated
        candidates are estimates without a standard error: for the score raced for, that of the best plus the mean
        difference on the rows read of both, so that ranks agree with the race; for others, the mean over the rows read.
    {best}
    race_ : RaceResult
        What the race found; prints as a table.
    fraction_read_ : float
        Predictions made, those of a `fit` that this one went on from included, over those of predicting all held-out
        rows by all candidates.
    {trainings}

    Raises
    ------
    ValueError
        If a parameter is out of range, the score is not a mean over rows, or every training failed.

    Notes
    -----
    The score raced for is the mean over splits of the mean over held-out rows, as in `GridSearchCV`, also where splits
    differ in size or rows in weight. A race that has read all held-out rows returns the exact answer, as on small data
    or between candidates about equally good.
    What is saved is prediction, not training: use it for learners that are slow to predict (neighbours, kernels, large
    committees, remote models), and `DAUBSearchCV` for those slow to train. All models are kept until the race is over.

    How much is read depends on the gaps. With 50 candidates, 10^6 held-out rows and ``delta=0.05``, neighbours three
    standard errors of a full comparison apart, a tenth of the predictions is read. With all 49 others three standard
    errors below the best, 97 % is: a tenth of the rows leaves a standard error as large as the gap.

    AUC, F1, precision, recall, average precision, explained variance and medians are not means over rows: few rows say
    nothing certain about them. Race for log loss or the Brier score instead, or compare in full by `GridSearchCV`;
    `DAUBSearchCV` takes any score. For predictions that exist already, see `race_predictions`.

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

    _parameter_constraints = _sklearn.constraints(scoring="no_validation")
    N_SEEDS = 3

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
        epsilon: float = 0.0,
        n_best: int = 1,
        max_pulls: int | None = None,
        max_seconds: float | None = None,
        cost: Any = None,
        names: Any = None,
        missing: str = "raise",
        order: str = "random",
        n_candidates: int = 10,
        n_jobs: int | None = None,
        refit: Any = True,
        cv: Any = None,
        verbose: int = 0,
        pre_dispatch: Any = "2*n_jobs",
        error_score: Any = np.nan,
        random_state: Any = None,
        time_limit: float | None = None,
        progress: bool = False,
    ) -> None:
        _sklearn.keep_parameters(locals())

    def _row_scores(self) -> dict[str, RowScore]:
        """The scores by name, the one that is raced first."""
        if isinstance(self.scoring, (list, tuple, set, dict)):
            found = row_scores(self.scoring)
            if not isinstance(self.refit, str) or self.refit not in found:
                raise ValueError(
                    f"refit is {self.refit!r}; with several scores it must name the one that is raced for: "
                    f"{', '.join(found)}"
                )
            return {self.refit: found[self.refit], **found}
        if self.scoring is not None:
            return {"score": row_score(self.scoring)}
        learners = self.estimator.learners if isinstance(self.estimator, Candidates) else [("", self.estimator)]
        defaults = {_default_score(learner) for _, learner in learners}
        if len(defaults) == 1 and (name := defaults.pop()):
            return {"score": row_score(name)}
        raise ValueError(
            "scoring is None, and the default scores of the learners are neither all accuracy nor all R2; name a score "
            "that is a mean over rows, or give a RowScore(function)"
        )

    def _begin(self, X: Any, y: Any, params: dict[str, Any]) -> Task:
        _checks.probability(self.delta, "delta")
        if self.support is not None:
            _checks.interval(self.support)
        self._row_scores()
        return super()._begin(X, y, params)

    def _search(self, task: Task) -> None:
        metrics = self._metrics(task)
        self._check_race(task.names, metrics[0])
        trained = self._train(task)
        race = HeldOut(self, task, trained, metrics, self.trainings_.predictions)
        race.run(self.delta, task.seeds[2], task.end)
        self.race_ = race.result
        if self.race_.warnings:
            warnings.warn("the race is not as promised: " + "; ".join(self.race_.warnings), UserWarning, stacklevel=5)
        self.fraction_read_ = race.kept.made / (len(task.settings) * race.n_rows)
        self.multimetric_ = isinstance(task.scorers, _sklearn.MultimetricScorer)
        self._report(task, trained, race)
        if callable(self.refit):
            self.best_index_ = _sklearn.best_index(self, "score", self.cv_results_)
        else:
            self.best_index_ = int(np.atleast_1d(self.race_.best)[0])
            self.best_score_ = self.cv_results_[f"mean_test_{metrics[0].name}"][self.best_index_]
        self.best_params_ = task.settings[self.best_index_]

    def _out_of_time(self) -> bool:
        return bool(self.race_.stopped_by == "max_seconds")

    def _check_race(self, names: tuple[str, ...], metric: Metric) -> None:
        """Check what the race is asked for before anything is trained."""
        count = len(names)
        with _callers.options_of(type(self).__name__):
            _checks.epsilon(self.epsilon)
            _checks.budget(self.max_pulls, count, count > _checks.n_best(self.n_best, count))
            costs(self, names)
            _checks.choice(self.order, "order", ("random", "given"))
            low = np.zeros(1) if self.support is not None or metric.score.support_for(None) is not None else None
            if _options.missing(self.missing, "pairwise", low, low) == "drop":
                equal_weights(metric)

    def _metrics(self, task: Task) -> list[Metric]:
        """The scores, with the weights of the held-out rows of each split, the one that is raced first."""
        scores = self._row_scores()
        weights = _weights(task.scorers, dict(task.routed.scorer.score), list(scores))

        def part(values: Any, test: Any) -> Any:
            return None if values is None else np.asarray(values)[test]

        return [Metric(name, score, [score.fold(part(task.y, test), len(test), part(weights[name], test))
                                     for _, test in task.splits])
                for name, score in scores.items()]

    def _train(self, task: Task) -> dict[tuple[int, int], Any]:
        """Train every candidate on every split: what each training gave, by candidate and split."""
        orders, tests = [train for train, _ in task.splits], [test[:1] for _, test in task.splits]
        n_rows, count = max(map(len, orders)), len(task.settings)
        kept = task.keep(fingerprint(
            self.estimator, task.settings, task.splits, np.shape(task.X), dict(task.routed.estimator.fit),
            head(task.X), None if task.y is None else np.asarray(task.y)))
        trainings = Trainings(task, orders, tests, kept.parts, {
            "scorer": _nothing, "score_params": {}, "return_estimator": True,
            "verbose": min(self.verbose, 2),            # beyond, scores are printed, and there are none yet
        })
        task.callbacks.begin_search(count * len(orders))
        with task.crew, meter("trainings", count * len(orders), self.progress) as show:
            trainings.run(task.crew, [(i, n_rows) for i in range(count)], lambda: show(len(kept.parts)))
        task.callbacks.end_search()
        found = {}
        for i in range(count):
            lost = trainings.get((i, n_rows))    # who hangs or kills its worker is not tried on more splits
            for k in range(len(orders)):
                found[i, k] = kept.parts.get((i, n_rows, k), lost)
        _sklearn.report_failed_fits([_as_fit(out) for out in found.values()], self.error_score)
        return found

    def _report(self, task: Task, trained: dict[tuple[int, int], Any], race: HeldOut) -> None:
        """The table of results, a row per candidate."""
        n_splits, result = len(task.splits), race.result
        names = [metric.name for metric in race.metrics]
        tables = [race.scores(m) for m in range(len(names))]
        for scores, mean in tables:
            for i in race.failed:
                scores[i], mean[i] = self.error_score, self.error_score
        outs = []
        for i in range(len(task.settings)):
            for k in range(n_splits):
                found = {name: scores[i, k] for name, (scores, _) in zip(names, tables, strict=True)}
                outs.append(_as_fit(trained[i, k]) | {
                    "test_scores": found if self.multimetric_ else found[names[0]],
                    "score_time": race.kept.seconds[i, k]})
        half_width = np.array(result.half_width, np.float64)
        half_width[race.failed] = np.nan
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="One or more of the")
            results = _sklearn.table_of_results(self, task.settings, n_splits, outs, {
                "name": list(task.names), "n_predictions": race.pulls, "half_width": half_width,
                "eliminated_at": race.eliminated_at})
        for m, (name, (scores, mean)) in enumerate(zip(names, tables, strict=True)):
            results[f"mean_test_{name}"] = mean
            there = ~np.isnan(scores)
            spread = np.where(there, scores - np.where(np.isnan(mean), 0.0, mean)[:, None], 0.0)
            results[f"std_test_{name}"] = np.where(
                there.any(axis=1), np.sqrt(np.square(spread).sum(axis=1) / np.maximum(there.sum(axis=1), 1)), np.nan)
            order = np.where(np.isnan(mean), -np.inf, mean)
            order[race.failed] = -np.inf
            if m == 0:
                best = np.atleast_1d(result.best)
                top = np.max(order, initial=0.0, where=np.isfinite(order))
                for place, i in enumerate(best[::-1].tolist()):      # before all others, in the order of the race
                    order[i] = np.inf if best.size == 1 else top + 1.0 + place
            results[f"rank_test_{name}"] = 1 + (order[None, :] > order[:, None]).sum(axis=1).astype(np.int32)
        self.cv_results_ = results


def _weights(scorers: Any, params: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Weights of the rows for each score."""
    if isinstance(scorers, _sklearn.MultimetricScorer) and get_config()["enable_metadata_routing"] and params:
        routed = process_routing(scorers, "score", **params)
        sent = {name: dict(routed[name].score) for name in names}
    else:
        sent = {name: dict(params) for name in names}
    found = {name: given.pop("sample_weight", None) for name, given in sent.items()}
    for name, given in sent.items():
        if given:
            raise ValueError(f"the scorer {name} is sent {', '.join(given)}; scores of rows take a sample_weight only")
    return found


def _default_score(learner: Any) -> str:
    """The score that an estimator's own method `score` is, as far as that is known; "" elsewhere.

    A parameter `scoring` is the learner's own affair, unless it has a `score` that goes by it.
    """
    while hasattr(learner, "steps"):
        learner = learner.steps[-1][1]
    try:
        own = learner.score                  # perhaps a property, and perhaps of fitted learners only
    except Exception:
        return ""
    own = getattr(own, "__func__", own)
    if own is ClassifierMixin.score:
        return "accuracy"
    if own is RegressorMixin.score or own is DummyRegressor.score:
        return "r2"
    if not str(getattr(own, "__module__", "")).startswith("sklearn.") or getattr(learner, "scoring", None) is not None:
        return ""
    if hasattr(learner, "estimator"):        # searches and the like ask the one inside
        return _default_score(learner.estimator)
    return "accuracy" if is_classifier(learner) else ""      # some override it to say the same


def _nothing(estimator: Any, X: Any, y: Any = None) -> float:
    """The score of a training, before anything is predicted."""
    return 0.0


def _as_fit(out: Any) -> dict[str, Any]:
    """What `fit_and_score` would have said of a training."""
    if isinstance(out, Failure):
        return {"fit_error": str(out), "fit_time": np.nan, "score_time": 0.0}
    return {name: out[name] for name in ("fit_error", "fit_time", "score_time")}
