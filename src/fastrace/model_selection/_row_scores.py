"""Scores that are means over rows, which a race over held-out rows can compare, and the race over given predictions."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace._base import _checks
from fastrace.races.racing import race
from fastrace.results import RaceResult
from fastrace.results.columns import index_warnings
from fastrace.sources import CallableSource, column_names

Floats = NDArray[np.float64]


class Fold(NamedTuple):
    """What a score needs to know of the held-out rows before any prediction: weights that sum to 1, and constants."""

    weights: Floats
    constants: Any


class RowScore:
    """A score that is the mean of one number per row.

    Parameters
    ----------
    function : callable
        ``function(y_true, response)`` returns a score per row, larger better, shape (n_rows,). Either argument holds
        any subset of the rows.
    response_method : {"predict", "predict_proba", "decision_function", "predict_log_proba", "score_samples"}
        Method of the learner that makes `response`.
    support : tuple of float, optional
        Interval that holds every row's score. With it a race can use rigorous bounds.

    Notes
    -----
    Called with an estimator, X and y it gives the mean, as scikit-learn's scorers do.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace.model_selection import RowScore, race_predictions
    >>> within = RowScore(lambda y, predicted: np.abs(y - predicted) < 0.5, support=(0, 1))
    >>> y = np.random.default_rng(0).normal(size=20_000)
    >>> race_predictions(y, np.column_stack([0.9 * y, 0.5 * y, 0.1 * y]), within, rng=1).best
    0
    """

    METHODS = ("predict", "predict_proba", "decision_function", "predict_log_proba", "score_samples")

    def __init__(
        self,
        function: Callable[..., Any],
        response_method: str = "predict",
        support: tuple[float, float] | None = None,
    ) -> None:
        if not callable(function):
            raise TypeError(f"function is {function!r}; a callable (y_true, response) -> score per row is needed")
        if response_method not in self.METHODS:
            raise ValueError(f"response_method is {response_method!r}; one of {', '.join(self.METHODS)} is needed")
        self.function = function
        self.response_method = response_method
        self.support = None if support is None else _checks.interval(support)

    def __repr__(self) -> str:
        return f"RowScore({getattr(self.function, '__name__', self.function)!s}, {self.response_method!r})"

    def __call__(self, estimator: Any, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        response = getattr(estimator, self.response_method)(X)
        target = None if y is None else np.asarray(y)
        fold = self.fold(target, len(response), sample_weight)
        return float(fold.weights @ self.rows(target, response, getattr(estimator, "classes_", None), fold.constants))

    def _accept_sample_weight(self) -> bool:
        return True                          # scikit-learn asks its scorers so

    def support_for(self, labels: Any) -> tuple[float, float] | None:
        """The support, given the classes."""
        return self.support

    def fold(self, y: Any, n_rows: int, sample_weight: Any = None) -> Fold:
        """Weights of the rows, before any prediction."""
        weights = np.ones(n_rows) if sample_weight is None else np.asarray(sample_weight, np.float64)
        if weights.shape != (n_rows,) or not (np.isfinite(weights).all() and (weights >= 0.0).all() and weights.any()):
            raise ValueError(
                f"sample_weight has shape {weights.shape}; {n_rows} finite weights, none negative and not all 0, are "
                f"needed"
            )
        return self._fold(y, weights / weights.sum())

    def _fold(self, y: Any, weights: Floats) -> Fold:
        return Fold(weights, None)

    def rows(self, y: Any, response: Any, labels: Any, constants: Any) -> Floats:
        """Score of each row, as floats."""
        scores = np.asarray(self._rows(y, np.asarray(response), labels, constants))
        if scores.shape != (len(response),) or scores.dtype.kind not in "fiub":
            raise ValueError(
                f"{self!r} gave shape {scores.shape} and dtype {scores.dtype} for {len(response)} rows; a real number "
                f"per row is needed"
            )
        return scores.astype(np.float64, copy=False)

    def _rows(self, y: Any, response: Any, labels: Any, constants: Any) -> Any:
        return self.function(y, response)

    def table(self, y: Any, block: Any, labels: Any, constants: Any) -> Floats:
        """Scores of a block of responses, rows by candidates (by classes)."""
        made = [self.rows(y, block[:, k], labels, constants) for k in range(block.shape[1])]
        return np.stack(made, axis=1) if made else np.empty((len(y), 0))


STRINGS, NUMBERS = "strings", "numbers"


def _sort_of(values: NDArray[Any]) -> str:
    """Strings, bytes or numbers, of which no two are ever equal; "" for other or mixed types."""
    if values.dtype.kind in "iufb":
        return NUMBERS
    if values.dtype.kind in "UT":
        return STRINGS
    if values.dtype.kind == "S":
        return "bytes"
    if values.dtype.kind == "O":
        kinds = {type(one) for one in values.ravel().tolist()}
        if all(issubclass(kind, str) for kind in kinds):
            return STRINGS
        if all(issubclass(kind, (bool, int, float, np.number, np.bool_)) for kind in kinds):
            return NUMBERS
    return ""


def _check_labels(y: NDArray[Any], p: NDArray[Any], fractions: NDArray[Any]) -> None:
    """Refuse predictions that can equal no class: strings for numbers, and probabilities.

    `fractions` are the classes that are numbers but not integers.
    """
    mine, theirs = _sort_of(y), _sort_of(p)
    if mine and theirs and mine != theirs:
        raise ValueError(
            f"y_true holds {mine}, such as {np.asarray(y.flat[0]).item()!r}, and the predictions hold {theirs}, such "
            f"as {np.asarray(p.flat[0]).item()!r}: none can be right; give both the same kind of labels"
        )
    if theirs == NUMBERS and p.dtype.kind in "fO":
        values = p.astype(np.float64)
        odd = np.isfinite(values) & (values != np.floor(values)) & ~np.isin(values, fractions)
        if odd.any():
            raise ValueError(
                f"a prediction is {values[odd][0]:g}, which is no class: accuracy counts those that equal y_true; "
                f"for probabilities, name 'neg_log_loss' or 'neg_brier_score', or give the class of the largest one; "
                f"for regressors, a loss such as 'neg_mean_squared_error'"
            )


def _refuse_missing(y: NDArray[Any]) -> None:
    """Refuse true values that are missing: nothing is right there."""
    if y.dtype.kind == "O":
        flat = y.ravel().tolist()
        missing = np.fromiter((v is None or type(v).__name__ == "NAType" or bool(v != v) for v in flat), bool, y.size)
    elif y.dtype.kind in "fcmM":
        missing = (y != y).ravel()
    else:
        return
    if missing.any():
        first = int(np.argmax(missing))
        raise ValueError(
            f"y_true is {y.ravel()[first]} on row {first // (y.shape[1] if y.ndim == 2 else 1)}, and {missing.sum()} "
            f"of its {y.size} values are missing; a true value on each row is needed: leave such rows out"
        )


def _distinct(values: NDArray[Any]) -> NDArray[Any]:
    """Each value once; objects need not be sortable."""
    if values.dtype.kind != "O":
        return np.unique(values)
    found = list(dict.fromkeys(values.ravel().tolist()))
    made = np.empty(len(found), object)
    made[:] = found
    return made


class _Strangers:
    """Predicted labels that never occur in `y`, by candidate, among those that a race has read."""

    ENOUGH = 100     # rows after which labels of which none occurs in y are refused

    def __init__(self, y: NDArray[Any]) -> None:
        self.y = y
        self.classes: NDArray[Any] | None = None
        self.n_rows = 0
        self.related = False                  # whether any prediction occurs in y
        self.example: dict[int, Any] = {}     # the first such label of each candidate

    def look(self, arms: NDArray[np.intp], rows: NDArray[np.int64], block: NDArray[Any]) -> None:
        """Look at a block of predictions, rows by candidates (by outputs)."""
        self.n_rows += len(rows)
        strange = ~np.isin(block, _distinct(self.y[rows]))
        self.related |= not strange.all()
        if strange.any():
            if self.classes is None:
                self.classes = _distinct(self.y)      # sorted only where the rows read do not hold every label
            strange &= ~np.isin(block, self.classes)
            if block.dtype.kind == "f":
                strange &= ~np.isnan(block)           # refused as a score
            self.related |= not strange.all()
        for j in np.flatnonzero(strange.any(axis=tuple(k for k in range(strange.ndim) if k != 1))):
            self.example.setdefault(int(arms[j]), block[:, j][strange[:, j]][:1].tolist()[0])
        if not self.related and self.n_rows >= min(self.ENOUGH, len(self.y)):
            raise ValueError(
                f"no label that was predicted on {self.n_rows} rows, such as {next(iter(self.example.values()))!r}, "
                f"occurs in y_true, which holds {self._holds()}: every prediction would be wrong; give both the same "
                f"labels"
            )

    def _holds(self) -> str:
        some = [] if self.classes is None else self.classes[:5].tolist()
        more = self.classes is not None and len(self.classes) > 5
        return ", ".join(map(repr, some)) + (", ..." if more else "")

    def words(self, names: Sequence[str] | None) -> tuple[str, ...]:
        """What the result says of them."""
        if not self.example:
            return ()
        arms = sorted(self.example)
        some = ", ".join(str(i) if names is None else names[i] for i in arms[:5])
        who = f"candidate {some}" if len(arms) == 1 else f"candidates {some}" + (
            f" and {len(arms) - 5} more" if len(arms) > 5 else "")
        return (
            f"{who} predicted labels that never occur in y_true, such as {self.example[arms[0]]!r}, where y_true holds "
            f"{self._holds()}: each of them counts as wrong. Unless the rows merely hold no row of such a class, give "
            f"y_true and the predictions the same labels",
        )


def _accuracy(y: Any, p: Any) -> Any:
    right, p = y == p, np.asarray(p)
    if p.dtype.kind == "f" and (unknown := np.isnan(p)).any():
        return np.where(unknown, np.nan, right)          # no prediction: not wrong, but no score
    return right


def _squared(y: Any, p: Any) -> Any:
    return -np.square(np.asarray(y, np.float64) - np.asarray(p, np.float64))


def _absolute(y: Any, p: Any) -> Any:
    return -np.abs(np.asarray(y, np.float64) - np.asarray(p, np.float64))


def _percentage(y: Any, p: Any) -> Any:
    return _absolute(y, p) / np.maximum(np.abs(np.asarray(y, np.float64)), np.finfo(np.float64).eps)


def _squared_log(y: Any, p: Any) -> Any:
    with np.errstate(invalid="ignore", divide="ignore"):
        return -np.square(np.log1p(np.asarray(y, np.float64)) - np.log1p(np.asarray(p, np.float64)))


def _poisson(y: Any, p: Any) -> Any:
    y, p = np.asarray(y, np.float64), np.asarray(p, np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        return -2.0 * np.where(p > 0.0, np.where(y > 0.0, y * np.log(y / p), 0.0) - y + p, np.nan)


def _gamma(y: Any, p: Any) -> Any:
    y, p = np.asarray(y, np.float64), np.asarray(p, np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        return -2.0 * np.where((p > 0.0) & (y > 0.0), np.log(p / y) + y / p - 1.0, np.nan)


def _columns(y: Any, labels: Any) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Column of each row's class among the sorted `labels`, and whether it is there."""
    place = np.minimum(np.searchsorted(labels, y), len(labels) - 1)
    return place, np.asarray(labels)[place] == y


class NamedRowScore(RowScore):
    """A score of scikit-learn that is a mean over rows."""

    def __init__(self, name: str) -> None:
        function, response_method, support, _ = NAMED[name]
        super().__init__(function, response_method, support)
        self.name = name

    def __repr__(self) -> str:
        return f"NamedRowScore({self.name!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild.saved(type(self), self.name)

    def fold(self, y: Any, n_rows: int, sample_weight: Any = None) -> Fold:
        if y is not None:
            _refuse_missing(np.asarray(y))
        return super().fold(y, n_rows, sample_weight)

    def _fitting(self, y: Any, response: Any) -> Any:
        """The response in the shape of y."""
        if response.shape != y.shape:
            if response.size != y.size:
                raise ValueError(
                    f"{self.name} got predictions of shape {response.shape} for true values of shape {y.shape}; a "
                    f"prediction for each true value is needed"
                )
            response = response.reshape(y.shape)
        return response

    def _rows(self, y: Any, response: Any, labels: Any, constants: Any) -> Any:
        scores = self.function(y, self._fitting(y, response))
        return scores.mean(axis=1) if scores.ndim == 2 else scores

    def table(self, y: Any, block: Any, labels: Any, constants: Any) -> Floats:
        if self.response_method == "predict" and y.ndim == 1 and block.ndim == 2:
            return np.asarray(self._whole(y[:, None], block, constants), np.float64)
        return super().table(y, block, labels, constants)

    def _whole(self, y: Any, block: Any, constants: Any) -> Any:
        """Scores of predictions by candidate, for one output."""
        return self.function(y, block)


class _Accuracy(NamedRowScore):
    """The share of the rows whose prediction equals the class; of rows with several outputs, all of which do."""

    def _fold(self, y: Any, weights: Floats) -> Fold:
        y = np.asarray(y)
        fractions = np.unique(y[y != np.floor(y)]) if y.dtype.kind == "f" else np.empty(0)
        if fractions.size > max(2, y.size // 2):
            raise ValueError(
                f"y_true is continuous: it holds {fractions.size} different fractions, such as {fractions[0]:g}, in "
                f"{y.size} values, and {self.name} needs classes; for regressors, name a loss such as "
                f"'neg_mean_squared_error'"
            )
        return Fold(weights, fractions)

    def _whole(self, y: Any, block: Any, constants: Any) -> Any:
        if y.size:
            _check_labels(y, block, constants)
        return self.function(y, block)

    def _rows(self, y: Any, response: Any, labels: Any, constants: Any) -> Any:
        scores = self._whole(y, self._fitting(y, response), constants)
        return scores.min(axis=1) if scores.ndim == 2 else scores


class _Balanced(_Accuracy):
    def _fold(self, y: Any, weights: Floats) -> Fold:
        _, place = np.unique(y, return_inverse=True)
        totals = np.bincount(place.ravel(), weights)
        kept = totals > 0.0
        shares = np.where(kept, 1.0 / np.where(kept, totals, 1.0), 0.0) / kept.sum()
        return super()._fold(y, weights * shares[place.ravel()])


class _R2(NamedRowScore):
    """1 - (squared error) / (variance of y in the fold); where y is constant, 1 for exact predictions, else 0."""

    def _fold(self, y: Any, weights: Floats) -> Fold:
        y = np.asarray(y, np.float64)
        if len(y) < 2:
            raise ValueError(
                f"r2 is not a mean over rows in a fold of {len(y)} rows; use scoring='neg_mean_squared_error', or "
                f"larger folds"
            )
        spread = np.asarray(weights @ np.square(y - weights @ y))
        return Fold(weights, 1.0 / np.where(spread > 0.0, spread, np.finfo(np.float64).tiny))

    def _scale(self, lost: Any, constants: Any) -> Any:
        with np.errstate(over="ignore"):
            found = 1.0 + lost * constants
        return np.where(constants < 1.0 / np.finfo(np.float64).tiny, found, lost == 0.0)

    def _whole(self, y: Any, block: Any, constants: Any) -> Any:
        return self._scale(self.function(y, block), constants)

    def _rows(self, y: Any, response: Any, labels: Any, constants: Any) -> Any:
        found = self._scale(self.function(y, self._fitting(y, response)), constants)
        return found.mean(axis=1) if found.ndim == 2 else found


class _OfProbabilities(NamedRowScore):
    """A score of the probabilities of all classes, a column for each of the sorted `labels`."""

    def rows(self, y: Any, response: Any, labels: Any, constants: Any) -> Floats:
        p = np.asarray(response)
        if labels is None or p.ndim != 2 or p.shape[1] != len(labels):
            count = "?" if labels is None else len(labels)
            raise ValueError(
                f"{self.name} got probabilities of shape {p.shape} for {len(p)} rows; a column for each of the {count} "
                f"classes, ({len(p)}, {count}), is needed"
            )
        if p.size and (p.min() < 0.0 or p.max() > 1.0):
            raise ValueError(
                f"{self.name} got a probability of {float(p.min() if p.min() < 0.0 else p.max()):g}; probabilities lie "
                f"between 0 and 1"
            )
        return super().rows(y, p, labels, constants)


class _LogLoss(_OfProbabilities):
    def _rows(self, y: Any, response: Any, labels: Any, constants: Any) -> Any:
        place, there = _columns(y, labels)
        p = np.where(there, response[np.arange(len(y)), place], 0.0)
        kind = p.dtype if p.dtype in (np.float32, np.float64) else np.dtype(np.float64)
        eps = np.finfo(response.dtype if response.dtype == np.float32 else kind).eps
        return np.log(np.clip(p, eps, 1.0 - eps))


class _Brier(_OfProbabilities):
    def support_for(self, labels: Any) -> tuple[float, float] | None:
        return (-1.0, 0.0) if labels is not None and len(labels) == 2 else (-2.0, 0.0)

    def _rows(self, y: Any, response: Any, labels: Any, constants: Any) -> Any:
        place, there = _columns(y, labels)
        if len(labels) == 2:
            return -np.square(response[:, 1] - (there & (place == 1)))
        own = np.where(there, response[np.arange(len(y)), place], 0.0)
        return -(np.square(response).sum(axis=1) - 2.0 * own + 1.0)


Entry = tuple[Callable[..., Any], str, tuple[float, float] | None, str]
NAMED: dict[str, Entry] = {      # by name: function, response, support, and the metric of scikit-learn
    "accuracy": (_accuracy, "predict", (0.0, 1.0), "accuracy_score"),
    "balanced_accuracy": (_accuracy, "predict", (0.0, 1.0), "balanced_accuracy_score"),
    "neg_log_loss": (_squared, "predict_proba", None, "log_loss"),
    "neg_brier_score": (_squared, "predict_proba", (-2.0, 0.0), "brier_score_loss"),
    "r2": (_squared, "predict", None, "r2_score"),
    "neg_mean_squared_error": (_squared, "predict", None, "mean_squared_error"),
    "neg_mean_absolute_error": (_absolute, "predict", None, "mean_absolute_error"),
    "neg_mean_absolute_percentage_error": (_percentage, "predict", None, "mean_absolute_percentage_error"),
    "neg_mean_squared_log_error": (_squared_log, "predict", None, "mean_squared_log_error"),
    "neg_mean_poisson_deviance": (_poisson, "predict", None, "mean_poisson_deviance"),
    "neg_mean_gamma_deviance": (_gamma, "predict", None, "mean_gamma_deviance"),
}
KINDS: dict[str, type[NamedRowScore]] = {
    "accuracy": _Accuracy, "balanced_accuracy": _Balanced, "r2": _R2, "neg_log_loss": _LogLoss,
    "neg_brier_score": _Brier,
}
BY_METRIC = {entry[3]: name for name, entry in NAMED.items()}
WHY = "a race compares means over rows, from few rows, so the score must be a mean of one number per row"


def named(name: str) -> RowScore:
    """The row score of a name of scikit-learn's."""
    if name not in NAMED:
        raise ValueError(
            f"scoring is {name!r}; {WHY}: one of {', '.join(NAMED)}, or a RowScore(function), is needed"
        )
    return KINDS.get(name, NamedRowScore)(name)


def row_score(scoring: Any) -> RowScore:
    """A row score from a name, a scorer of scikit-learn or a `RowScore`."""
    if isinstance(scoring, RowScore):
        return scoring
    if isinstance(scoring, str):
        return named(scoring)
    if isinstance(scoring, (list, tuple, set, dict)):
        raise ValueError(f"scoring is {scoring!r}; {WHY}, and predictions are raced for one score")
    if type(scoring).__module__.startswith("sklearn."):
        from fastrace.model_selection._sklearn import metric_of

        metric, response, sign = metric_of(scoring) or (None, None, 0)
        name = BY_METRIC.get(getattr(metric, "__name__", ""))
        if name is not None and (getattr(metric, "__module__", None) or "").startswith("sklearn."):
            wanted = NAMED[name][1]
            if sign == (-1 if name.startswith("neg_") else 1) and response in (None, wanted):
                return named(name)
    raise ValueError(
        f"scoring is {scoring!r}; {WHY}: one of {', '.join(NAMED)}, a scorer made from their metrics without options, "
        f"or a RowScore(function), is needed"
    )


def row_scores(scoring: Any) -> dict[str, RowScore]:
    """Several row scores by name, from a list of names or a dict."""
    if not scoring or not isinstance(scoring, dict) and not all(isinstance(one, str) for one in scoring):
        raise ValueError(f"scoring is {scoring!r}; names, or a dict of scores by name, are needed")
    named_scores = scoring if isinstance(scoring, dict) else {name: name for name in scoring}
    return {str(name): row_score(one) for name, one in named_scores.items()}


def scaled_support(support: tuple[float, float] | None, scale: Floats) -> tuple[float, float] | None:
    """The interval that holds support times any number of `scale`."""
    if support is None:
        return None
    ends = [one * factor for one in support for factor in (float(scale.min()), float(scale.max()))]
    return min(ends), max(ends)


def race_predictions(
    y_true: ArrayLike,
    y_pred: Any,
    scoring: Any = "accuracy",
    *,
    delta: float = 0.05,
    bound: str = "auto",
    support: tuple[float, float] | None = None,
    sample_weight: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    n_candidates: int | None = None,
    first_look: int | None = None,
    growth: float | None = None,
    access: str = "random",
    max_pulls: int | None = None,
    rng: _checks.RngLike = None,
) -> RaceResult:
    """Find the candidate whose predictions score best on all rows, reading as few of them as the promise allows.

    Parameters
    ----------
    y_true : array_like, shape (n_rows,) or (n_rows, n_outputs)
        True values.
    y_pred : array_like of shape (n_rows, n_candidates) or (n_rows, n_candidates, n_classes), sequence, dict or callable
        Predictions: one array (a memory map, say), a frame, a sequence or dict of arrays, one per candidate, or
        ``y_pred(candidates, rows)`` that returns them, shape (len(rows), len(candidates), ...). For accuracy these are
        labels, of the kind of `y_true`. For scores of probabilities (``"neg_log_loss"``, ``"neg_brier_score"``) these
        are the probabilities of all classes: the last axis is needed, or arrays of shape (n_rows, n_classes).
    scoring : str, scorer or RowScore, default "accuracy"
        A score that is a mean over rows; larger is better.
    delta : float, default 0.05
        Probability that the candidate chosen is not the best on all rows, in (0, 1).
    bound : str, default "auto"
        See `FiniteRace`. ``"auto"`` is rigorous where the range of scores is known (accuracy, Brier score, or
        `support`), and takes means of `first_look` rows as normal elsewhere.
    support : tuple of float, optional
        Interval that holds every row's score.
    sample_weight : array_like, shape (n_rows,), optional
        Weights of rows in the mean.
    labels : array_like, optional
        Different classes, in the order of the columns of probabilities; by default the sorted values of `y_true`.
    n_candidates : int, optional
        Number of candidates, for callables.
    first_look, growth, access, max_pulls, rng
        See `race`.

    Returns
    -------
    RaceResult
        ``fraction_read`` is the share of the predictions that were read. ``names`` are the columns of a frame or the
        keys of a dict. ``warnings`` names candidates that predicted labels which never occur in `y_true`, where labels
        are compared: such predictions count as wrong.

    Raises
    ------
    ValueError
        If the score is not a mean over rows, shapes do not match, a score is nan, `y_true` is nan or None on a row, or
        predictions cannot be compared with `y_true`: strings with numbers, probabilities with classes, classes with
        probabilities, labels with continuous values, or labels of which none occurs in `y_true`.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace.model_selection import race_predictions
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 200_000)
    >>> right = rng.random((200_000, 20)) < 0.70 + 0.01 * np.arange(20)
    >>> result = race_predictions(y, np.where(right, y[:, None], 1 - y[:, None]), rng=1)
    >>> result.best, result.fraction_read < 0.2
    (19, True)
    """
    score = row_score(scoring)
    y = np.asarray(y_true)
    if y.ndim not in (1, 2) or y.shape[0] == 0:
        raise ValueError(f"y_true has shape {y.shape}; at least one row, of one value or of several, is needed")
    n_rows = y.shape[0]
    fold = score.fold(y, n_rows, sample_weight)
    classes, columns = _classes(y, labels) if isinstance(score, _OfProbabilities) else (None, None)
    scale = fold.weights * n_rows
    plain = bool((scale == scale[0]).all())
    names = None if callable(y_pred) else column_names(y_pred)
    read, count = _reader(y_pred, n_rows, n_candidates)
    strangers = _Strangers(y) if isinstance(score, _Accuracy) else None

    def rewards(arms: NDArray[np.intp], rows: NDArray[np.int64]) -> Floats:
        block = read(arms, rows)
        if classes is not None:
            shape = (n_rows, count, *block.shape[2:])
            if block.ndim != 3 or block.shape[2] != len(classes):
                raise ValueError(
                    f"y_pred has shape {shape}; {score!r} needs the probabilities of all {len(classes)} classes, shape "
                    f"({n_rows}, n_candidates, {len(classes)}), or a list of arrays of shape ({n_rows}, "
                    f"{len(classes)}), one per candidate; if there are more classes than y_true holds, name them by "
                    f"labels"
                )
            sums = block.sum(axis=2, dtype=np.float64)
            if (np.abs(sums - 1.0) > 0.01).any():            # rounding is forgiven, and nan is refused as a score
                k, j = np.argwhere(np.abs(sums - 1.0) > 0.01)[0]
                raise ValueError(
                    f"the probabilities by candidate {arms[j]} on row {rows[k]} sum to {sums[k, j]:g}; 1 is needed"
                )
            if columns is not None:
                block = block[:, :, columns]
        found = score.table(y[rows], block, classes, fold.constants)
        if strangers is not None:
            strangers.look(arms, rows, block)
        return found if plain else found * scale[rows, None]

    ends = _checks.interval(support) if support is not None else score.support_for(classes)
    # Predictions in an array cost as much as reading them; a callable is assumed to be expensive.
    source = CallableSource(rewards, count, n_rows, reward_cost=math.inf if callable(y_pred) else 100.0)
    result = race(
        source, delta, bound, support=scaled_support(ends, scale), max_pulls=max_pulls,
        first_look=200 if first_look is None else first_look, growth=growth, access=access, rng=rng,
    )
    said = () if strangers is None else strangers.words(names)
    said += index_warnings(names, n_rows, lambda rows, arms: read(arms, rows))
    return dataclasses.replace(result, names=names, warnings=(*result.warnings, *said))


def _classes(y: NDArray[Any], labels: ArrayLike | None) -> tuple[NDArray[Any], NDArray[np.intp] | None]:
    """The classes, sorted, and the column of each; None where columns are sorted already."""
    found = np.unique(y)
    if labels is None:
        return found, None
    given = np.asarray(labels)
    classes, columns = np.unique(given, return_index=True)
    if given.ndim != 1 or classes.size < given.size:
        raise ValueError(f"labels is {labels!r}; different classes, one per column of probabilities, are needed")
    missing = found[~np.isin(found, classes)]
    if missing.size:
        raise ValueError(
            f"labels is {labels!r}; y_true also holds {missing[:1].tolist()[0]!r}, and each class needs a column"
        )
    return classes, None if (columns[1:] > columns[:-1]).all() else columns


def _reader(y_pred: Any, n_rows: int, n_candidates: int | None) -> tuple[Callable[[Any, Any], Any], int]:
    """A function of candidates and rows that returns their predictions, and the number of candidates."""
    if callable(y_pred):
        if n_candidates is None:
            raise ValueError("n_candidates is None; it is needed where y_pred is a callable")

        def called(arms: Any, rows: Any) -> Any:
            block = np.asarray(y_pred(arms, rows))
            if block.ndim < 2 or block.shape[:2] != (len(rows), len(arms)):
                raise ValueError(
                    f"y_pred returned shape {block.shape}; ({len(rows)}, {len(arms)}, ...), rows by candidates, is "
                    f"needed"
                )
            return block

        return called, _checks.integer(n_candidates, "n_candidates", 1, "there must be something to choose")
    if isinstance(y_pred, Mapping):
        y_pred = [np.asanyarray(one) for one in y_pred.values()]
    if isinstance(y_pred, Sequence) and all(hasattr(one, "__array__") for one in y_pred):
        columns = [np.asanyarray(one) for one in y_pred]
        for k, column in enumerate(columns):
            if column.ndim < 1 or column.shape[0] != n_rows:
                raise ValueError(f"y_pred[{k}] has shape {column.shape}; {n_rows} rows, those of y_true, are needed")
        if not columns:
            raise ValueError("y_pred is empty; predictions of at least one candidate are needed")
        return lambda arms, rows: np.stack([columns[i][rows] for i in arms], axis=1), len(columns)
    table = np.asanyarray(y_pred)
    if table.ndim not in (2, 3) or table.shape[0] != n_rows or table.shape[1] == 0:
        raise ValueError(
            f"y_pred has shape {table.shape}; ({n_rows}, n_candidates), or with a last axis of classes, is needed"
        )
    return lambda arms, rows: table[np.ix_(rows, arms)], table.shape[1]


@_checks.rebuilds(1, NamedRowScore, subclasses=True)
def _rebuild(cls: type[NamedRowScore], name: str) -> NamedRowScore:
    """Rebuild a pickled score of scikit-learn."""
    return cls(name)
