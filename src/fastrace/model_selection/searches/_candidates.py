# mypy: disable-error-code="misc, untyped-decorator"
"""Candidates of a search: a choice among named learners as one estimator, their settings, and their names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid, ParameterSampler
from sklearn.utils import get_tags

from fastrace._base import _checks
from fastrace.model_selection._sklearn import Composition

OF_LEARNER = ("predict", "predict_proba", "decision_function", "transform", "score", "classes_", "n_features_in_")


class Candidates(Composition):
    """Learners by name, of which `fit` trains the one that `choice` names, by default the first."""

    def __init__(self, learners: Any, choice: str | None = None) -> None:
        self.learners = learners
        self.choice = choice

    def chosen(self) -> Any:
        """The learner that `choice` names."""
        names = [name for name, _ in self.learners]
        choice = names[0] if self.choice is None else self.choice
        if choice not in names:
            raise ValueError(f"choice is {choice!r}; one of {', '.join(names)} is needed")
        return dict(self.learners)[choice]

    def fit(self, X: Any, y: Any = None, **params: Any) -> Candidates:
        """Fit the chosen learner."""
        self.learner_ = clone(self.chosen())
        if y is None:
            self.learner_.fit(X, **params)
        else:
            self.learner_.fit(X, y, **params)
        return self

    def __sklearn_tags__(self) -> Any:
        return get_tags(self.chosen())

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "learner_")

    def __getattr__(self, name: str) -> Any:
        """What the learner answers: the fitted one, or before that the one to be fitted."""
        if name not in OF_LEARNER:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.learner_ if "learner_" in vars(self) else self.chosen(), name)


def settings_of(search: Any, random_state: np.random.RandomState) -> list[dict[str, Any]]:
    """Settings of every candidate of a search."""
    grid = search.param_grid

    def drawn(grid: Any) -> list[dict[str, Any]]:
        """All settings of a grid, or some from distributions."""
        for part in [grid] if isinstance(grid, dict) else grid:
            if any(hasattr(values, "rvs") for values in part.values()):
                count = _checks.integer(search.n_candidates, "n_candidates", 1, "there must be something to choose")
                return list(ParameterSampler(grid, count, random_state=random_state))
        return list(ParameterGrid(grid))

    if isinstance(search.estimator, Candidates):
        names = [name for name, _ in search.estimator.learners]
        found = [setting for name, own in by_learner(names, grid).items()
                 for setting in (drawn(own) if own else [{"choice": name}])]
    elif grid is None:
        raise ValueError("param_grid is None; it is needed unless estimator is a list of (name, estimator)")
    else:
        found = drawn(grid)
    if not found:
        raise ValueError("No fits were performed. param_grid holds no candidate.")
    return found


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
    parts = [grid or {}] if grid is None or isinstance(grid, dict) else grid
    if not isinstance(parts, Iterable) or not all(isinstance(part, dict) for part in parts):
        raise TypeError(f"param_grid is {_checks.shown(grid)}; a dict of lists of values, or a list of such, is needed")
    for part in parts:
        own: dict[str, dict[str, Any]] = {}
        for key, values in part.items():
            if key != "choice":
                name = key.partition("__")[0]
                if name not in names:
                    raise refuse(f"has {key!r}, which is a parameter of no learner")
                own.setdefault(name, {})[key] = values
        if "choice" in part:
            chosen = True
            listed = list(ParameterGrid({"choice": part["choice"]}))           # it checks what a grid may hold
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


def fault(learners: Any) -> str | None:
    """What is wrong with a list of learners."""
    if not learners or not all(
        isinstance(pair, (list, tuple)) and len(pair) == 2 and isinstance(pair[0], str) for pair in learners
    ):
        return f"estimator is {_checks.shown(learners)}; an estimator, or a list of (name, estimator), is needed"
    names = [name for name, _ in learners]
    if len(set(names)) < len(names):
        return f"estimator has the names {names}; different ones are needed"
    for name, learner in learners:
        if "__" in name or name in ("choice", "learners"):
            return f"estimator has the name {name!r}; parameters are called name__parameter, so 'choice', 'learners' " \
                   f"and names with '__' cannot be used"
        if isinstance(learner, type) or not hasattr(learner, "fit"):
            return f"estimator has {_checks.shown(learner)} under the name {name!r}; an instance with a method fit " \
                   f"is needed"
    return None
