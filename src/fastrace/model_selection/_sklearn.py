# mypy: disable-error-code="misc, no-untyped-call"
"""Every private name of scikit-learn that this package uses, and nothing else that leans on them.

A new version of scikit-learn may break this file alone; a test refuses such names anywhere else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import signature
from numbers import Real
from typing import Any

from sklearn.base import _fit_context as fit_context
from sklearn.metrics._scorer import _MultimetricScorer as MultimetricScorer
from sklearn.model_selection._search import BaseSearchCV
from sklearn.model_selection._split import _yields_constant_splits as yields_constant_splits
from sklearn.model_selection._validation import _fit_and_score as fit_and_score
from sklearn.model_selection._validation import _insert_error_scores as insert_error_scores
from sklearn.model_selection._validation import _score as score_rows
from sklearn.model_selection._validation import _warn_or_raise_about_fit_failures as report_failed_fits
from sklearn.utils import _safe_indexing as take_rows
from sklearn.utils._param_validation import Interval
from sklearn.utils.metaestimators import _BaseComposition
from sklearn.utils.metaestimators import _safe_split as split_rows
from sklearn.utils.validation import _check_method_params as check_method_params
from sklearn.utils.validation import _check_sample_weight as check_sample_weight
from sklearn.utils.validation import _num_samples as num_samples

__all__ = [
    "BaseSearchCV", "Callbacks", "Composition", "MultimetricScorer", "best_index", "check_method_params",
    "check_refit_names_a_score", "check_sample_weight", "constraints", "fit_and_score", "fit_context",
    "insert_error_scores", "keep_parameters", "metric_of", "num_samples", "report_failed_fits", "routed_parameters",
    "score_rows", "scorer_of", "scorers_and_metric", "split_rows", "table_of_results", "take_rows",
    "yields_constant_splits",
]


class Composition(_BaseComposition):
    """An estimator made of named ones, the parameters of each called ``name__parameter``."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters, those of each learner as ``name__parameter``."""
        found: dict[str, Any] = self._get_params("learners", deep=deep)
        return found

    def set_params(self, **params: Any) -> Any:
        """Set parameters, those of a learner as ``name__parameter``."""
        self._set_params("learners", **params)
        return self


def keep_parameters(given: dict[str, Any]) -> None:
    """Keep what ``__init__`` has been given, each parameter under its own name, as scikit-learn wants it: `locals`."""
    estimator = given["self"]
    for name, value in given.items():
        if name not in ("self", "__class__"):
            setattr(estimator, name, value)


def constraints(**other: Any) -> dict[str, Any]:
    """What scikit-learn checks the parameters of a search against, with changes."""
    own = {"cv": ["cv_object", Interval(Real, 0, 1, closed="neither")], "random_state": ["random_state"]}
    return {**BaseSearchCV._parameter_constraints, **own, **other}


def scorers_and_metric(search: Any) -> tuple[Any, Any]:
    """The scorer of a search, or its scorers as one, and the name of the score that decides."""
    found: tuple[Any, Any] = search._get_scorers()
    return found


def scorer_of(scorers: Any) -> Any:
    """What a search shows as ``scorer_``."""
    return scorers._scorers if isinstance(scorers, MultimetricScorer) else scorers


def routed_parameters(search: Any, params: dict[str, Any]) -> Any:
    """Parameters of `fit` by who takes them: learners, scorer and splitter."""
    return search._get_routed_params_for_fit(params)


def check_refit_names_a_score(search: Any, scores: dict[str, Any]) -> None:
    """Refuse a `refit` that names none of several scores."""
    search._check_refit_for_multimetric(scores)


def best_index(search: Any, metric: Any, results: dict[str, Any]) -> Any:
    """The row of the table of results that the user's function `refit` chooses."""
    return search._select_best_index(search.refit, metric, results)


def table_of_results(
    search: Any, settings: list[dict[str, Any]], n_splits: int, outs: list[Any], extra: dict[str, Any]
) -> dict[str, Any]:
    """The table of results, a row per training, with columns of our own."""
    found: dict[str, Any] = search._format_results(settings, n_splits, outs, defaultdict(list, extra))
    return found


def metric_of(scorer: Any) -> tuple[Callable[..., Any], str | None, int] | None:
    """Metric, method of the learner and sign of a scorer of scikit-learn without options; None for other objects."""
    metric = getattr(scorer, "_score_func", None)
    if metric is None or scorer._kwargs:
        return None
    return metric, getattr(scorer, "_response_method", None), scorer._sign


class Callbacks:
    """The callbacks of one `fit`; versions before 1.9 have none, and nothing is called."""

    TAKEN = "callback_ctx" in signature(fit_and_score).parameters

    def __init__(self, search: Any, X: Any, y: Any, params: dict[str, Any]) -> None:
        weights = params.get("sample_weight")
        self.search, self.n_trainings = search, 0
        self.about = {"X": X, "y": y, "metadata": None if weights is None else {"sample_weight": weights}}
        self.root = self.below = None
        if hasattr(search, "_init_callback_context"):
            context = search._init_callback_context(max_subtasks=1 + (search.refit is not False))
            self.root = context.call_on_fit_task_begin(estimator=search, **self.about)

    def begin_search(self, count: int | None) -> None:
        """The trainings begin: so many, if that is known."""
        if self.root is not None:
            context = self.root.subcontext(task_name="search", max_subtasks=count, sequential_subtasks=False)
            self.below = context.call_on_fit_task_begin(estimator=self.search)

    def training(self) -> dict[str, Any]:
        """Options of `fit_and_score` for the next training, made before any begins: workers pickle the search."""
        if not self.TAKEN:
            return {}
        context = None
        if self.below is not None:
            context = self.below.subcontext(task_name="candidate-split-evaluation", task_id=self.n_trainings)
            self.n_trainings += 1
        return {"caller": self.search, "callback_ctx": context}

    def end_search(self) -> None:
        """The trainings are over."""
        if self.below is not None:
            self.below.call_on_fit_task_end(estimator=self.search)

    @contextmanager
    def refitting(self, best: Any) -> Iterator[None]:
        """Context manager around the last training."""
        if self.root is None:
            yield
            return
        context = self.root.subcontext(task_name="refit-with-best-params")
        with context.propagate_callback_context(best):
            context.call_on_fit_task_begin(estimator=self.search, **self.about)
            yield
            context.call_on_fit_task_end(estimator=self.search, **self.about)

    def end(self) -> None:
        """`fit` is over."""
        if self.root is not None:
            self.root.call_on_fit_task_end(estimator=self.search, **self.about)
