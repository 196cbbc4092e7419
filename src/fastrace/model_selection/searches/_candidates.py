# mypy: disable-error-code="misc, untyped-decorator"
"""What the searches share: a choice among named learners as one estimator, their settings, a split by share."""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import _fit_context, clone, is_classifier
from sklearn.model_selection import ParameterGrid, ParameterSampler, ShuffleSplit, StratifiedShuffleSplit
from sklearn.model_selection._search import BaseSearchCV
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import _BaseComposition, available_if
from sklearn.utils.validation import check_is_fitted

from fastrace._base import _checks


def _learner_has(name: str) -> Any:
    def check(self: Candidates) -> bool:
        getattr(getattr(self, "learner_", None) or self._chosen(), name)
        return True

    return check


class Candidates(_BaseComposition):
    """Learners by name, one of which is fitted.

    Parameters
    ----------
    learners : list of (str, estimator)
        The learners.
    choice : str, optional
        The one that `fit` trains; the first by default.
    """

    def __init__(self, learners: Any, choice: str | None = None) -> None:
        self.learners = learners
        self.choice = choice

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters, those of each learner as ``name__parameter``."""
        found: dict[str, Any] = self._get_params("learners", deep=deep)
        return found

    def set_params(self, **params: Any) -> Candidates:
        """Set parameters, those of a learner as ``name__parameter``."""
        self._set_params("learners", **params)
        return self

    def _chosen(self) -> Any:
        names = [name for name, _ in self.learners]
        choice = names[0] if self.choice is None else self.choice
        if choice not in names:
            raise ValueError(f"choice is {choice!r}; one of {', '.join(names)} is needed")
        return dict(self.learners)[choice]

    def fit(self, X: Any, y: Any = None, **params: Any) -> Candidates:
        """Fit the chosen learner."""
        self.learner_ = clone(self._chosen())
        if y is None:
            self.learner_.fit(X, **params)
        else:
            self.learner_.fit(X, y, **params)
        return self

    def __sklearn_tags__(self) -> Any:
        return get_tags(self._chosen())

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "learner_")

    @property
    def classes_(self) -> Any:
        """Classes, of a classifier."""
        check_is_fitted(self)
        return self.learner_.classes_

    @property
    def n_features_in_(self) -> Any:
        """Columns seen in `fit`."""
        check_is_fitted(self)
        return self.learner_.n_features_in_

    @available_if(_learner_has("score"))
    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Score of the chosen learner."""
        check_is_fitted(self)
        return self.learner_.score(X, y, **({} if sample_weight is None else {"sample_weight": sample_weight}))

    @available_if(_learner_has("predict"))
    def predict(self, X: Any) -> Any:
        """Predictions of the chosen learner."""
        check_is_fitted(self)
        return self.learner_.predict(X)

    @available_if(_learner_has("predict_proba"))
    def predict_proba(self, X: Any) -> Any:
        """Probabilities by the chosen learner."""
        check_is_fitted(self)
        return self.learner_.predict_proba(X)

    @available_if(_learner_has("decision_function"))
    def decision_function(self, X: Any) -> Any:
        """Decision function of the chosen learner."""
        check_is_fitted(self)
        return self.learner_.decision_function(X)

    @available_if(_learner_has("transform"))
    def transform(self, X: Any) -> Any:
        """Transformation by the chosen learner."""
        check_is_fitted(self)
        return self.learner_.transform(X)


class CandidateSearch(BaseSearchCV):
    """A search over named learners, over a grid of settings, or over settings drawn from distributions."""

    param_grid: Any
    n_candidates: int

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

    def _settings(self, random_state: np.random.RandomState) -> list[dict[str, Any]]:
        grid = self.param_grid
        if not isinstance(self.estimator, Candidates):
            if grid is None:
                raise ValueError("param_grid is None; it is needed unless estimator is a list of (name, estimator)")
            return self._drawn(grid, random_state)
        names = [name for name, _ in self.estimator.learners]
        return [setting for name, own in by_learner(names, grid).items()
                for setting in (self._drawn(own, random_state) if own else [{"choice": name}])]

    def _drawn(self, grid: Any, random_state: np.random.RandomState) -> list[dict[str, Any]]:
        """All settings of a grid, or some from distributions."""
        for one in [grid] if isinstance(grid, dict) else grid:
            if any(hasattr(values, "rvs") for values in one.values()):
                count = _checks.integer(self.n_candidates, "n_candidates", 1, "there must be something to choose")
                return list(ParameterSampler(grid, count, random_state=random_state))
        return list(ParameterGrid(grid))

    def _share(self) -> float:
        """Share of rows held out, where `cv` is one."""
        if not 0.0 < self.cv < 1.0:
            raise ValueError(
                f"cv is {self.cv}; a share of held-out rows in (0, 1), a number of folds, or a splitter is needed"
            )
        return float(self.cv)

    def _splits(self, X: Any, y: Any, seed: int, params: Any) -> list[tuple[NDArray[Any], NDArray[Any]]]:
        """Numbers of the training and held-out rows of each split, drawn once."""
        splitter = self._splitter(y, seed)
        self.n_splits_ = splitter.get_n_splits(X, y, **params)
        found = [(_numbers(train), _numbers(test)) for train, test in splitter.split(X, y, **params)]
        if len(found) != self.n_splits_ or not found:
            raise ValueError(
                f"cv.split and cv.get_n_splits return inconsistent results. Expected {self.n_splits_} splits, got "
                f"{len(found)}. No fits were performed. Was the CV iterator empty?"
            )
        for k, (_, test) in enumerate(found):
            if not test.size:
                raise ValueError(f"split {k} of cv has no held-out rows; scores need at least one")
        return found

    def _splitter(self, y: Any, seed: int) -> Any:
        raise NotImplementedError

    def _shuffled_split(self, y: Any, seed: int) -> Any:
        """One split by share, stratified for classifiers whose classes allow it."""
        kind = ShuffleSplit
        if y is not None and is_classifier(self.estimator) and np.ndim(y) == 1:
            counts = np.unique(np.asarray(y), return_counts=True)[1]
            held_out = self._share() * counts.sum()
            if counts.min() > 1 and counts.size <= min(held_out, counts.sum() - held_out) - 1:
                kind = StratifiedShuffleSplit
        return kind(n_splits=1, test_size=self._share(), random_state=seed)


    # Callbacks came with scikit-learn 1.9.

    def _root(self, X: Any, y: Any, params: Any) -> Any:
        if not hasattr(self, "_init_callback_context"):
            return None
        context = self._init_callback_context(max_subtasks=1 + (self.refit is not False))
        return context.call_on_fit_task_begin(estimator=self, X=X, y=y, metadata=_metadata(params))

    def _below(self, root: Any, name: str, count: int | None) -> Any:
        if root is None:
            return None
        context = root.subcontext(task_name=name, max_subtasks=count, sequential_subtasks=False)
        return context.call_on_fit_task_begin(estimator=self)

    def _ended(self, root: Any, X: Any, y: Any, params: Any) -> None:
        if root is not None:
            root.call_on_fit_task_end(estimator=self, X=X, y=y, metadata=_metadata(params))

    def _refit(self, X: Any, y: Any, fit_params: Any, root: Any, params: Any) -> None:
        """Train the chosen candidate on all rows."""
        best = clone(self.estimator).set_params(**clone(self.best_params_, safe=False))
        began = time.time()
        if root is None:
            best = self._fitted(best, X, y, fit_params)
        else:
            context = root.subcontext(task_name="refit-with-best-params")
            with context.propagate_callback_context(best):
                context.call_on_fit_task_begin(estimator=self, X=X, y=y, metadata=_metadata(params))
                best = self._fitted(best, X, y, fit_params)
                context.call_on_fit_task_end(estimator=self, X=X, y=y, metadata=_metadata(params))
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


def by_learner(names: list[str], grid: Any) -> dict[str, list[dict[str, Any]]]:
    """The grids of each learner, with its name under ``choice``, in the order of the learners.

    A dict speaks of the learners whose parameters it names, or of those that it lists under ``choice``; each of them
    takes its own parameters from it. Learners that no dict names go along as they are, unless some dict has a
    ``choice``: then the dicts say who takes part.
    """
    def refuse(what: str) -> ValueError:
        return ValueError(f"param_grid {what}; the learners are {', '.join(names)}, and their parameters are called "
                          f"name__parameter")

    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    chosen = False
    for one in [grid or {}] if grid is None or isinstance(grid, dict) else grid:
        own: dict[str, dict[str, Any]] = {}
        for key, values in one.items():
            if key != "choice":
                name = key.partition("__")[0]
                if name not in names:
                    raise refuse(f"has {key!r}, which is a parameter of no learner")
                own.setdefault(name, {})[key] = values
        if "choice" in one:
            chosen = True
            listed = list(ParameterGrid({"choice": one["choice"]}))           # it checks what a grid may hold
            for name in dict.fromkeys(setting["choice"] for setting in listed):
                if name not in names:
                    raise refuse(f"has {name!r} under 'choice', which is no learner")
                own.setdefault(name, {})
            beside = [name for name in own if name not in {setting["choice"] for setting in listed}]
            if beside:
                raise refuse(f"has parameters of {', '.join(beside)} in a dict whose 'choice' leaves it out")
        for name, parameters in own.items():
            found[name].append({"choice": [name], **parameters})
    if chosen:
        return {name: own for name, own in found.items() if own}
    return found


def _metadata(params: Any) -> Any:
    weights = params.get("sample_weight")
    return None if weights is None else {"sample_weight": weights}


def _numbers(rows: Any) -> NDArray[Any]:
    rows = np.asarray(rows)
    return np.flatnonzero(rows) if rows.dtype == bool else rows


def name_of(setting: dict[str, Any]) -> str:
    """A candidate by its setting."""
    if list(setting) == ["choice"]:
        return str(setting["choice"])
    return ", ".join(f"{key}={value}" for key, value in setting.items())


def names_of(settings: list[dict[str, Any]]) -> list[str]:
    """Candidates by their settings; those that read alike get their numbers."""
    names = [name_of(setting) for setting in settings]
    counts = Counter(names)
    return [f"{name} ({i})" if counts[name] > 1 else name for i, name in enumerate(names)]


def none_left(said: str, reasons: dict[str, str]) -> Exception:
    """The error where no candidate is left, with the reason of each: of the type that all of theirs have, if wrong
    types are what they complain of."""
    kind = TypeError if all(reason.startswith("TypeError:") for reason in reasons.values()) else ValueError
    words = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    return kind(f"{said}: {words}; error_score='raise' shows where")


def last_line(error: str) -> str:
    """What a traceback says in the end."""
    return error.strip().splitlines()[-1] if error.strip() else ""


def managed(fit: Callable[..., Any]) -> Callable[..., Any]:
    """Check the parameters before `fit`, and end scikit-learn's callbacks after it."""
    inner = _fit_context(prefer_skip_nested_validation=False)(fit)

    @functools.wraps(fit)
    def outer(self: Any, X: Any, y: Any = None, **params: Any) -> Any:
        if isinstance(self.estimator, (list, tuple)):
            raise ValueError(fault(self.estimator))
        return inner(self, X, y, **params)

    return outer


def fault(learners: Any) -> str | None:
    """What is wrong with a list of learners."""
    if not learners or not all(
        isinstance(pair, (list, tuple)) and len(pair) == 2 and isinstance(pair[0], str) for pair in learners
    ):
        return f"estimator is {learners!r}; an estimator, or a list of (name, estimator), is needed"
    names = [name for name, _ in learners]
    if len(set(names)) < len(names):
        return f"estimator has the names {names}; different ones are needed"
    for name, learner in learners:
        if "__" in name or name in ("choice", "learners"):
            return f"estimator has the name {name!r}; parameters are called name__parameter, so 'choice', 'learners' " \
                   f"and names with '__' cannot be used"
        if isinstance(learner, type) or not hasattr(learner, "fit"):
            return f"estimator has {learner!r} under the name {name!r}; an instance with a method fit is needed"
    return None
