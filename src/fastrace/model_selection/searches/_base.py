# mypy: disable-error-code="misc, untyped-decorator"
"""What the searches share: the steps of `fit`, splits, the last training, and the pages of their docs."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier
from sklearn.model_selection import ShuffleSplit, StratifiedShuffleSplit, check_cv
from sklearn.utils import check_random_state, get_tags, indexable

from fastrace._base import _callers, _checks, _clock
from fastrace._base._docs import filled
from fastrace._base._frames import require_same_rows
from fastrace.model_selection import _sklearn
from fastrace.model_selection.searches._candidates import Candidates, fault, names_of, settings_of
from fastrace.model_selection.searches._checkpoint import Checkpoint, Saved
from fastrace.model_selection.searches._workers import Crew

Self = TypeVar("Self", bound="CandidateSearch")

# Paragraphs of the page of each search, which holds their names in braces.
SHARED = {
    "candidates": """\
estimator : estimator, or list of (str, estimator)
    What to tune, or learners to choose from. Settings of learners in a list have the parameter ``choice``.
param_grid : dict or list of dict, optional
    Parameters and their values, as for `GridSearchCV`. If a value has a method ``rvs``, `n_candidates` settings are
    drawn, as by `RandomizedSearchCV`. With a list of learners, parameters are called ``name__parameter``: each
    learner is combined with all values of its own ones (or has settings drawn), and those without any go along as
    they are. To leave learners out, list the others under ``choice``.""",
    "n_candidates": """\
n_candidates : int, default 10
    Settings drawn from distributions.""",
    "cv": """\
cv : int, float, splitter or iterable, optional
    As for `GridSearchCV`; a float in (0, 1) is one split with that share of the rows held out.""",
    "progress": """\
progress : bool, default False
    Show a bar (needs rich).""",
    "best": """\
best_index_, best_params_, best_score_, best_estimator_, refit_time_, scorer_, n_splits_, multimetric_
    As for `GridSearchCV`. For a list of learners `best_estimator_` is the learner itself.""",
    "trainings": """\
trainings_ : object
    After a `fit` that was interrupted or raised, or that `max_seconds` ended: the trainings on a split that were
    finished or given up, ``len()`` of them, from which the next `fit` on the same data goes on. To pass them on,
    pickle the search; to begin anew, or to free their memory, delete them.""",
}


def managed(fit: Callable[..., Any]) -> Callable[..., Any]:
    """Check the parameters before `fit`, and end scikit-learn's callbacks after it."""
    inner = _sklearn.fit_context(prefer_skip_nested_validation=False)(fit)

    @functools.wraps(fit)
    def outer(self: Any, X: Any, y: Any = None, **params: Any) -> Any:
        if isinstance(self.estimator, (list, tuple)):
            raise ValueError(fault(self.estimator))
        return inner(self, X, y, **params)

    return outer


@dataclass
class Task:
    """What one `fit` is about: the data, who takes which parameters, what was drawn, and what is there already."""

    search: Any
    X: Any
    y: Any
    scorers: Any
    metric: Any                              # name of the score that decides
    routed: Any
    callbacks: _sklearn.Callbacks
    crew: Crew
    checkpoint: Checkpoint
    saved: Saved | None
    seeds: list[int]
    end: float                               # when to begin nothing more, by `max_seconds`
    settings: list[dict[str, Any]]
    names: tuple[str, ...]                   # of the candidates
    splits: list[tuple[NDArray[Any], NDArray[Any]]]

    def keep(self, key: str) -> Saved:
        """The trainings of this search that are finished, kept until `fit` ends, whatever happens on the way."""
        saved = self.saved
        parts = {} if saved is None else saved.resumed(key, self.crew.limit)
        predictions = [] if saved is None or saved.key != key else getattr(saved, "predictions", [])
        kept = self.search.trainings_ = Saved(key, self.seeds, parts, predictions)
        self.checkpoint.begin(kept)
        return kept


class CandidateSearch(_sklearn.BaseSearchCV):
    """A search over named learners, over a grid of settings, or over settings drawn from distributions.

    A subclass fills the table of results, and says which candidate is chosen (`_search`).
    """

    N_SEEDS = 2                              # candidates, splits, and what else a search draws
    checkpoint: Any = None
    names: Any = None
    return_train_score = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.__doc__ = filled(cls.__doc__, SHARED)

    @property
    def estimator(self) -> Any:
        """What is tuned; a list of learners as one estimator."""
        return self.__dict__["estimator"]

    @estimator.setter
    def estimator(self, value: Any) -> None:
        if isinstance(value, (list, tuple)) and fault(value) is None:
            value = Candidates([(name, learner) for name, learner in value])
        self.__dict__["estimator"] = value        # what is wrong with it is said by fit, as scikit-learn wants it

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = get_tags(self.estimator).target_tags.multi_output
        tags.array_api_support = False
        return tags

    @managed
    def fit(self: Self, X: Any, y: Any = None, **params: Any) -> Self:
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
        task = self._begin(X, y, params)
        self._search(task)
        self.scorer_ = _sklearn.scorer_of(task.scorers)
        if self.refit:
            self._refit(task)
        if not self._out_of_time():
            del self.trainings_
        task.callbacks.end()
        return self

    def _begin(self, X: Any, y: Any, params: dict[str, Any]) -> Task:
        """Check what came, and draw what is random: candidates and splits."""
        end = _clock.deadline(self.max_seconds)
        scorers, metric = _sklearn.scorers_and_metric(self)
        for name, value in (("X", X), ("y", y)):
            _checks.unmasked(value, name)
        require_same_rows(X=X, y=y)
        X, y = indexable(X, y)
        params = _sklearn.check_method_params(X, params=params)
        routed = _sklearn.routed_parameters(self, params)
        callbacks = _sklearn.Callbacks(self, X, y, params)
        if _sklearn.num_samples(X) < 1:
            raise ValueError("Found array with 0 sample(s) (X is empty) while a minimum of 1 is required.")
        crew = Crew(self.n_jobs, self.pre_dispatch, self.time_limit, self.error_score == "raise")
        checkpoint = Checkpoint(self.checkpoint)
        saved = getattr(self, "trainings_", checkpoint.found)
        seeds = check_random_state(self.random_state).randint(np.iinfo(np.int32).max, size=self.N_SEEDS).tolist()
        if saved is not None and not isinstance(self.random_state, (int, np.integer)):
            seeds = saved.seeds             # those that were drawn for the trainings that are kept
        settings = settings_of(self, np.random.RandomState(seeds[0]))
        with _callers.options_of(type(self).__name__):
            names = _checks.arm_names(self.names, len(settings)) or tuple(names_of(settings))
        splits = self._splits(X, y, seeds[1], routed.splitter.split)
        return Task(self, X, y, scorers, metric, routed, callbacks, crew, checkpoint, saved, seeds, end, settings,
                    names, splits)

    def _search(self, task: Task) -> None:
        """Train and choose: ``cv_results_``, ``best_index_`` and the like."""
        raise NotImplementedError

    def _out_of_time(self) -> bool:
        """Whether `max_seconds` ended the search, so that another `fit` may go on."""
        raise NotImplementedError

    def _share(self) -> float:
        """Share of rows held out, where `cv` is one."""
        if not 0.0 < self.cv < 1.0:
            raise ValueError(
                f"cv is {self.cv}; a share of held-out rows in (0, 1), a number of folds, or a splitter is needed"
            )
        return float(self.cv)

    def _splits(self, X: Any, y: Any, seed: int, params: Any) -> list[tuple[NDArray[Any], NDArray[Any]]]:
        """Numbers of the training and held-out rows of each split, drawn once."""
        splitter = self._splitter(X, y, seed)
        self.n_splits_ = splitter.get_n_splits(X, y, **params)
        found = [(_numbers(train), _numbers(test)) for train, test in splitter.split(X, y, **params)]
        if len(found) != self.n_splits_ or not found:
            raise ValueError(
                f"cv.split and cv.get_n_splits return inconsistent results. Expected {self.n_splits_} splits, got "
                f"{len(found)}. No fits were performed. Was the CV iterator empty?"
            )
        for k, (train, test) in enumerate(found):
            if not test.size:
                raise ValueError(f"split {k} of cv has no held-out rows; scores need at least one")
            if not train.size:
                raise ValueError(f"split {k} of cv has no training rows")
        return found

    def _splitter(self, X: Any, y: Any, seed: int) -> Any:
        """What `cv` stands for; a share is one split, stratified for classifiers whose classes allow it."""
        if not isinstance(self.cv, float):
            return check_cv(self.cv, y, classifier=is_classifier(self.estimator))
        kind = ShuffleSplit
        if y is not None and is_classifier(self.estimator) and np.ndim(y) == 1:
            counts = np.unique(np.asarray(y), return_counts=True)[1]
            held_out = self._share() * counts.sum()
            if counts.min() > 1 and counts.size <= min(held_out, counts.sum() - held_out) - 1:
                kind = StratifiedShuffleSplit
        return kind(n_splits=1, test_size=self._share(), random_state=seed)

    def _refit(self, task: Task) -> None:
        """Train the chosen candidate on all rows."""
        best = clone(self.estimator).set_params(**clone(self.best_params_, safe=False))
        began = time.time()
        with task.callbacks.refitting(best):
            best = self._fitted(best, task.X, task.y, task.routed.estimator.fit)
        self.refit_time_ = time.time() - began
        self.best_estimator_ = best.learner_ if isinstance(best, Candidates) else best
        if hasattr(self.best_estimator_, "feature_names_in_"):
            self.feature_names_in_ = self.best_estimator_.feature_names_in_
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_               # of an earlier fit

    def _fitted(self, best: Any, X: Any, y: Any, fit_params: Any) -> Any:
        """The chosen estimator, trained: the object itself, whatever its `fit` returns."""
        best.fit(X, *([] if y is None else [y]), **fit_params)
        return best


def none_left(said: str, failures: dict[str, tuple[str, str]]) -> Exception:
    """The error where no candidate is left: reason and kind of `Failure` of each, by name.

    A TypeError if wrong types are what all of them complain of.
    """
    kind = TypeError if all(kind == "type" for _, kind in failures.values()) else ValueError
    words = "; ".join(f"{name}: {reason}" for name, (reason, _) in failures.items())
    return kind(f"{said}: {words}; error_score='raise' shows where")


def _numbers(rows: Any) -> NDArray[Any]:
    rows = np.asarray(rows)
    return np.flatnonzero(rows) if rows.dtype == bool else rows
