# mypy: disable-error-code="misc, untyped-decorator"
"""A choice among named learners as one scikit-learn estimator, so that a search can set it like any parameter."""

from __future__ import annotations

from typing import Any

from sklearn.base import clone
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import _BaseComposition, available_if
from sklearn.utils.validation import check_is_fitted


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
