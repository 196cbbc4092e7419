# mypy: disable-error-code="misc, untyped-decorator"
"""What the searches share: a choice among named learners as one estimator, their settings, a split by share."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.model_selection import ParameterGrid, ParameterSampler, ShuffleSplit, StratifiedShuffleSplit
from sklearn.model_selection._search import BaseSearchCV
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import _BaseComposition, available_if
from sklearn.utils.validation import check_is_fitted

from fastrace import _checks


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
        if grid is None:
            if not isinstance(self.estimator, Candidates):
                raise ValueError("param_grid is None; it is needed unless estimator is a list of (name, estimator)")
            return [{"choice": name} for name, _ in self.estimator.learners]
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

    def _shuffled_split(self, y: Any, seed: int) -> Any:
        """One split by share, stratified for classifiers."""
        kind = StratifiedShuffleSplit if y is not None and is_classifier(self.estimator) else ShuffleSplit
        return kind(n_splits=1, test_size=self._share(), random_state=seed)


def worker_died(error: BaseException) -> bool:
    return type(error).__name__ in ("TerminatedWorkerError", "BrokenProcessPool", "KilledWorker")


def fault(learners: Any) -> str | None:
    """What is wrong with a list of learners."""
    if not learners or not all(
        isinstance(pair, (list, tuple)) and len(pair) == 2 and isinstance(pair[0], str) for pair in learners
    ):
        return f"estimator is {learners!r}; an estimator, or a list of (name, estimator), is needed"
    names = [name for name, _ in learners]
    return f"estimator has the names {names}; different ones are needed" if len(set(names)) < len(names) else None
