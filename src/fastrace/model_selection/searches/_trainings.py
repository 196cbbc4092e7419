# mypy: disable-error-code="misc, no-untyped-call"
"""Trainings of candidates on parts of the rows, as scikit-learn's searches do them, and what stands for a learner."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin, clone
from sklearn.utils import get_tags

from fastrace.model_selection import _sklearn
from fastrace.model_selection._parquet_rows import ParquetRows, as_slice, read_rows
from fastrace.model_selection.searches._candidates import Candidates
from fastrace.model_selection.searches._workers import Crew, Failure

TRAIN_SCORE_ROWS = 3000
RESPONSES = ("predict", "predict_proba", "predict_log_proba", "decision_function", "score_samples", "transform")
Part = tuple[int, int, int]              # candidate, rows, split


class Trainings:
    """Trainings of candidates on the first n rows of each split's training part, whose row numbers are `orders`.

    `parts` are those that are finished: what `trained` returned, or a `Failure`, by candidate, rows and split.
    `options` are those of `fit_and_score`. Where `warm`, a learner with ``partial_fit`` goes on from its model of the
    size before; where `sampled`, some of the rows trained on are scored.
    """

    def __init__(
        self, task: Any, orders: list[NDArray[Any]], tests: list[Any], parts: dict[Part, Any], options: dict[str, Any],
        *, sizes: list[int] | None = None, warm: bool = False, sampled: bool = False,
    ) -> None:
        self.task, self.orders, self.tests, self.parts = task, orders, tests, parts
        self.X, self.base, self.settings = task.X, clone(task.search.estimator), task.settings
        if isinstance(self.X, np.ndarray) and not getattr(task.search, "shuffle", True) and not get_tags(
                self.base).input_tags.pairwise:
            self.X = Views(self.X)
        self.options = {"fit_params": task.routed.estimator.fit, "return_times": True,
                        "error_score": task.search.error_score, **options, "sampled": sampled, "warm": warm}
        self.sizes, self.warm = sizes or [], warm
        self.models: dict[tuple[int, int], tuple[int, Any]] = {}
        self.gradual = warm or sizes is not None and isinstance(task.X, ParquetRows)
        self.classes = None if task.y is None or not self.gradual else np.unique(np.asarray(task.y))

    def get(self, item: tuple[int, int]) -> Any:
        """What a training gave, a dict per split; a `Failure`; or None if it has not been done."""
        found = [self.parts.get((*item, fold)) for fold in range(len(self.orders))]
        lost = next((out for out in found if isinstance(out, Failure)), None)
        return lost if lost is not None else None if any(out is None for out in found) else found

    def run(
        self, crew: Crew, batch: list[tuple[int, int]], after: Callable[[], Any] = lambda: None
    ) -> None:
        """Do what is missing of a batch; call `after` when one is finished."""
        keys = [(*item, fold) for fold in range(len(self.orders)) for item in batch
                if (*item, fold) not in self.parts]
        callbacks = {key: self.task.callbacks.training() for key in keys}

        def store(key: Part, out: Any) -> None:
            self.store(key, out)
            after()

        crew.run(keys, lambda key: self.call(key, callbacks[key]), store, self.words)

    def words(self, key: Part) -> str:
        """A training in words."""
        i, n, fold = key
        return f"candidate {self.task.names[i]} on {min(n, len(self.orders[fold]))} rows of split {fold}"

    def call(self, key: Part, callbacks: dict[str, Any]) -> Any:
        """Function, arguments and options of one training."""
        i, n, fold = key
        if any(isinstance(self.parts.get((i, n, k)), Failure) for k in range(len(self.orders))):
            return None                      # hangs on another split, or kills its worker
        estimator = clone(self.base)
        if self.gradual:
            estimator = Gradual(estimator, self.sizes, self.models.get((i, fold)), self.classes, self.warm)
        return trained, (estimator, self.X, self.task.y), {
            **self.options, **callbacks, "train": self.orders[fold][:n], "test": self.tests[fold],
            "parameters": self.settings[i], "split_progress": (fold, len(self.orders)),
            "candidate_progress": (i, len(self.settings))}

    def store(self, key: Part, out: Any) -> None:
        """Keep what came back."""
        if isinstance(out, dict):
            model = out.pop("model", None)
            i, n, fold = key
            if model is not None and n >= self.models.get((i, fold), (0, None))[0]:
                self.models[i, fold] = n, model
        self.parts[key] = out


def trained(
    estimator: Any, X: Any, y: Any, sampled: bool, warm: bool, return_estimator: bool = False, **options: Any
) -> dict[str, Any]:
    """One training by `fit_and_score`, its score on some of the rows trained on, and its `Failure` or None."""
    heard = Listener(options["scorer"])
    if not isinstance(heard.scorer, _sklearn.MultimetricScorer):          # that one collects the errors itself
        options["scorer"] = heard
    watch_fit(estimator, heard)
    out: dict[str, Any] = _sklearn.fit_and_score(estimator, X, y, return_estimator=True, **options)
    out["failure"] = heard.failure
    model = out["estimator"] if return_estimator else out.pop("estimator")
    if sampled:
        train, scores = options["train"], out["test_scores"]
        if out["fit_error"] is None:
            rows = train[:TRAIN_SCORE_ROWS]
            part = _sklearn.split_rows(model, X, y, rows, train)
            weights = _sklearn.check_method_params(X, params=options["score_params"], indices=rows)
            scores = _sklearn.score_rows(model, *part, options["scorer"], weights, options["error_score"])
        out["train_scores"] = scores
    if warm and out["fit_error"] is None:
        out["model"] = getattr(model, "model", model)
    return out


class Listener:
    """A scorer, and the `Failure` that it, or the training before it, ended with."""

    def __init__(self, scorer: Any) -> None:
        self.scorer = scorer
        self.failure: Failure | None = None

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.hear(self.scorer, *args, **options)

    def __repr__(self) -> str:
        return repr(self.scorer)

    def hear(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call a function; keep what it raises."""
        try:
            return function(*args, **options)
        except Exception as error:
            self.failure = Failure.of(error)
            raise


def watch_fit(estimator: Any, heard: Listener) -> None:
    """Let the listener hear what the next call of ``estimator.fit`` raises: `fit_and_score` returns its words alone."""
    def fit(*args: Any, **options: Any) -> Any:
        del estimator.fit
        return heard.hear(estimator.fit, *args, **options)

    estimator.fit = fit


class Views:
    """An array, or a memory map, whose rows that follow each other are cut out without a copy."""

    def __init__(self, table: NDArray[Any]) -> None:
        self.table, self.shape, self.ndim, self.dtype = table, table.shape, table.ndim, table.dtype

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, key: Any) -> Any:
        rows = key[0] if isinstance(key, tuple) else key
        return self.table[as_slice(rows) if isinstance(rows, np.ndarray) else rows]


class Gradual:
    """Stands for an estimator in `fit_and_score`: trains on from the model of a smaller subset, reads files piecemeal.

    A learner with ``partial_fit`` gets the rows between one size of the grid and the next in one call, or in one call
    for each row group of a file, whether it goes on from another model or not: a resumed search repeats the calls.
    """

    def __init__(self, estimator: Any, sizes: list[int], before: Any, classes: Any, warm: bool) -> None:
        self.estimator, self.sizes, self.before, self.classes, self.warm = estimator, sizes, before, classes, warm
        self.model = estimator

    def set_params(self, **params: Any) -> Gradual:
        self.estimator.set_params(**params)
        return self

    def fit(self, X: Any, y: Any = None, **params: Any) -> Gradual:
        learner = self.estimator.chosen() if isinstance(self.estimator, Candidates) else self.estimator
        n = _sklearn.num_samples(X)
        if not self.warm or not hasattr(learner, "partial_fit"):
            self.model = self.estimator
            self.model.fit(read_rows(X), *([] if y is None else [y]), **params)
            return self
        done, self.model = self.before if self.before is not None and self.before[0] <= n else (0, clone(learner))
        extra = {name: value for name, value in params.items() if _per_row(value, n)}
        rest = {name: value for name, value in params.items() if name not in extra}
        if "classes" in signature(self.model.partial_fit).parameters:
            rest["classes"] = self.classes
        for stop in [*(size for size in self.sizes if done < size < n), *([n] if done < n else [])]:
            rows, done = np.arange(done, stop), stop
            for block in X[rows].blocks() if isinstance(X, ParquetRows) else [slice(None)]:
                places = rows[block]
                part = X[places].read() if isinstance(X, ParquetRows) else _sklearn.take_rows(
                    X, as_slice(places) if isinstance(X, np.ndarray) else places)
                target = [] if y is None else [_sklearn.take_rows(y, places)]
                weights = {name: _sklearn.take_rows(value, places) for name, value in extra.items()}
                self.model.partial_fit(part, *target, **weights, **rest)
        return self

    def score(self, X: Any, y: Any = None, **params: Any) -> Any:
        if not isinstance(X, ParquetRows):
            return self.model.score(X, y, **params)
        own = getattr(type(getattr(self.model, "learner_", self.model)), "score", None)
        if own is ClassifierMixin.score or own is RegressorMixin.score:
            return own(self, X, y, **params)
        return self.model.score(X.read(), y, **params)

    def __getattr__(self, name: str) -> Any:
        if name in ("model", "estimator") or name.startswith("__"):
            raise AttributeError(name)
        found = getattr(self.model, name)
        return _by_blocks(found) if name in RESPONSES else found

    def __sklearn_tags__(self) -> Any:
        return self.estimator.__sklearn_tags__()


def _per_row(value: Any, n: int) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, str) and _sklearn.num_samples(value) == n


def _by_blocks(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of a model that reads one row group after another."""
    @wraps(method)
    def answer(X: Any, **options: Any) -> Any:
        if not isinstance(X, ParquetRows) or not len(X):
            return method(read_rows(X), **options)
        places = X.blocks()
        whole = np.concatenate([np.asarray(method(X[block].read(), **options)) for block in places])
        if isinstance(places[0], slice):
            return whole
        out = np.empty_like(whole)
        out[np.concatenate(places)] = whole
        return out

    return answer
