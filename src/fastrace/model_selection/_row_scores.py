"""Scores that are means over rows, which a race over held-out rows can compare."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastrace._base import _checks
from fastrace.model_selection._labels import OF_TIME, check_labels, real_values, refuse_missing

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
            raise TypeError(f"function is {_checks.shown(function)}; a callable (y_true, response) -> score per row "
                            f"is needed")
        if not isinstance(response_method, str) or response_method not in self.METHODS:
            raise ValueError(f"response_method is {_checks.shown(response_method)}; one of "
                             f"{', '.join(self.METHODS)} is needed")
        self.function = function
        self.response_method = response_method
        self.support = None if support is None else _checks.interval(support)

    def __repr__(self) -> str:
        return f"RowScore({getattr(self.function, '__name__', self.function)!s}, {self.response_method!r})"

    def __call__(self, estimator: Any, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        response = getattr(estimator, self.response_method)(X)
        target = None if y is None else _checks.as_array(y, "y")
        fold = self.fold(target, len(response), sample_weight)
        return float(fold.weights @ self.rows(target, response, getattr(estimator, "classes_", None), fold.constants))

    def _accept_sample_weight(self) -> bool:
        return True                          # scikit-learn asks its scorers so

    doubt = ""          # what the normal rule may miss of such scores

    def support_for(self, labels: Any) -> tuple[float, float] | None:
        """The support, given the classes."""
        return self.support

    def ends_of(self, least: NDArray[Any], most: NDArray[Any]) -> tuple[Floats, Floats] | None:
        """Ends of the scores of each candidate whose predictions lie between these; None where they say no more."""
        return None

    def warnings(self, result: Any) -> tuple[str, ...]:
        """What to say of a race of such scores."""
        return (self.doubt,) if self.doubt and result.bound == "normal" and result.fraction_read < 1.0 else ()

    def fold(self, y: Any, n_rows: int, sample_weight: Any = None) -> Fold:
        """Weights of the rows, before any prediction."""
        weights = np.ones(n_rows) if sample_weight is None else _checks.floats(sample_weight, "sample_weight")
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
        scores = _checks.as_array(self._rows(y, _checks.as_array(response, "response"), labels, constants),
                                  f"what {self!r} gave")
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


def _accuracy(y: Any, p: Any) -> Any:
    right, p = y == p, np.asarray(p)
    if p.dtype.kind == "f" and (unknown := np.isnan(p)).any():
        return np.where(unknown, np.nan, right)          # no prediction: not wrong, but no score
    return right


def _less(loss: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The score that is larger where a loss of two arrays of floats is smaller."""
    def score(y: Any, p: Any) -> Any:
        with np.errstate(invalid="ignore", divide="ignore"):
            return -loss(real_values(y, "y_true"), real_values(p, "the predictions"))

    return score


def _percentage(y: Floats, p: Floats) -> Any:
    return np.abs(y - p) / np.maximum(np.abs(y), np.finfo(np.float64).eps)


def _squared_log(y: Floats, p: Floats) -> Any:
    return np.square(np.log1p(y) - np.log1p(p))


def _poisson(y: Floats, p: Floats) -> Any:
    return 2.0 * np.where(p > 0.0, np.where(y > 0.0, y * np.log(y / p), 0.0) - y + p, np.nan)


def _gamma(y: Floats, p: Floats) -> Any:
    return 2.0 * np.where((p > 0.0) & (y > 0.0), np.log(p / y) + y / p - 1.0, np.nan)


def _columns(y: Any, labels: Any) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Column of each row's class among the sorted `labels`, and whether it is there."""
    column = np.minimum(np.searchsorted(labels, y), len(labels) - 1)
    return column, np.asarray(labels)[column] == y


class NamedRowScore(RowScore):
    """A score of scikit-learn that is a mean over rows."""

    _of_outputs: Callable[..., Any] = staticmethod(np.mean)     # score of a row from those of its outputs

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
            refuse_missing(np.asarray(y))
        return super().fold(y, n_rows, sample_weight)

    def _fold(self, y: Any, weights: Floats) -> Fold:
        if y is not None and np.asarray(y).dtype.kind in OF_TIME:
            real_values(y, "y_true")            # refused before any prediction is paid for
        return super()._fold(y, weights)

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
        scores = self._whole(y, self._fitting(y, response), constants)
        return self._of_outputs(scores, axis=1) if scores.ndim == 2 else scores

    def table(self, y: Any, block: Any, labels: Any, constants: Any) -> Floats:
        if self.response_method == "predict" and y.ndim == 1 and block.ndim == 2:
            return np.asarray(self._whole(y[:, None], block, constants), np.float64)
        return super().table(y, block, labels, constants)

    def _whole(self, y: Any, block: Any, constants: Any) -> Any:
        """Scores of predictions, by candidate of one output, or by output of one candidate."""
        return self.function(y, block)


class Accuracy(NamedRowScore):
    """The share of the rows whose prediction equals the class; of rows with several outputs, all of which do."""

    _of_outputs = staticmethod(np.min)

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
            check_labels(y, block, constants)
        return self.function(y, block)


class _Balanced(Accuracy):
    def _fold(self, y: Any, weights: Floats) -> Fold:
        column = np.unique(y, return_inverse=True)[1].ravel()
        totals = np.bincount(column, weights)
        kept = totals > 0.0
        shares = np.where(kept, 1.0 / np.where(kept, totals, 1.0), 0.0) / kept.sum()
        return super()._fold(y, weights * shares[column])


class _R2(NamedRowScore):
    """1 - (squared error) / (variance of y in the fold); where y is constant, 1 for exact predictions, else 0."""

    def _fold(self, y: Any, weights: Floats) -> Fold:
        y = real_values(y, "y_true")
        if len(y) < 2:
            raise ValueError(
                f"r2 is not a mean over rows in a fold of {len(y)} rows; use scoring='neg_mean_squared_error', or "
                f"larger folds"
            )
        spread = np.asarray(weights @ np.square(y - weights @ y))
        return Fold(weights, 1.0 / np.where(spread > 0.0, spread, np.finfo(np.float64).tiny))

    def _whole(self, y: Any, block: Any, constants: Any) -> Any:
        lost = self.function(y, block)
        with np.errstate(over="ignore"):
            found = 1.0 + lost * constants
        return np.where(constants < 1.0 / np.finfo(np.float64).tiny, found, lost == 0.0)


class OfProbabilities(NamedRowScore):
    """A score of the probabilities of all classes, a column for each of the sorted `labels`."""

    def _fold(self, y: Any, weights: Floats) -> Fold:
        return Fold(weights, None)

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


def _eps(p: NDArray[Any]) -> float:
    """Where scikit-learn cuts off probabilities of this type; of longer ones than double where it does those."""
    return float(max(np.finfo(kind).eps for kind in (p.dtype if p.dtype.kind == "f" else np.float64, np.float64)))


def _log_clipped(p: NDArray[Any]) -> Any:
    eps = _eps(p)
    return np.log(np.clip(p.astype(p.dtype if p.dtype.kind == "f" else np.float64), eps, 1.0 - eps))


class _LogLoss(OfProbabilities):
    doubt = ("log loss hangs on the few rows where a probability is near 0, of which the normal rule may have seen "
             "none: it can err far more often than delta; bound='auto' keeps the promise")

    def _rows(self, y: Any, response: Any, labels: Any, constants: Any) -> Any:
        column, there = _columns(y, labels)
        return _log_clipped(np.where(there, response[np.arange(len(y)), column], response.dtype.type(0)))

    def ends_of(self, least: NDArray[Any], most: NDArray[Any]) -> tuple[Floats, Floats]:
        low, high = (_log_clipped(p).astype(np.float64) for p in (least, most))
        rounding = max(8.0 * _eps(least), 1e-6)       # a support needs some width, where all probabilities are equal
        return low - rounding * (1.0 - low), np.minimum(high + rounding, 0.0)


class _Brier(OfProbabilities):
    def support_for(self, labels: Any) -> tuple[float, float] | None:
        return (-1.0, 0.0) if labels is not None and len(labels) == 2 else (-2.0, 0.0)

    def _rows(self, y: Any, response: Any, labels: Any, constants: Any) -> Any:
        column, there = _columns(y, labels)
        if len(labels) == 2:
            return -np.square(response[:, 1] - (there & (column == 1)))
        own = np.where(there, response[np.arange(len(y)), column], 0.0)
        return -(np.square(response).sum(axis=1) - 2.0 * own + 1.0)


Entry = tuple[Callable[..., Any], str, tuple[float, float] | None, str]
_squared = _less(lambda y, p: np.square(y - p))
NAMED: dict[str, Entry] = {      # by name: function, response, support, and the metric of scikit-learn
    "accuracy": (_accuracy, "predict", (0.0, 1.0), "accuracy_score"),
    "balanced_accuracy": (_accuracy, "predict", (0.0, 1.0), "balanced_accuracy_score"),
    "neg_log_loss": (_squared, "predict_proba", (-36.05, 0.0), "log_loss"),      # of the least double that is not cut
    "neg_brier_score": (_squared, "predict_proba", (-2.0, 0.0), "brier_score_loss"),
    "r2": (_squared, "predict", None, "r2_score"),
    "neg_mean_squared_error": (_squared, "predict", None, "mean_squared_error"),
} | {f"neg_{metric}": (_less(loss), "predict", None, metric) for metric, loss in (
    ("mean_absolute_error", lambda y, p: np.abs(y - p)), ("mean_absolute_percentage_error", _percentage),
    ("mean_squared_log_error", _squared_log), ("mean_poisson_deviance", _poisson), ("mean_gamma_deviance", _gamma),
)}
KINDS: dict[str, type[NamedRowScore]] = {
    "accuracy": Accuracy, "balanced_accuracy": _Balanced, "r2": _R2, "neg_log_loss": _LogLoss,
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
        raise ValueError(f"scoring is {_checks.shown(scoring)}; {WHY}, and predictions are raced for one score")
    if type(scoring).__module__.startswith("sklearn."):
        from fastrace.model_selection._sklearn import metric_of

        metric, response, sign = metric_of(scoring) or (None, None, 0)
        name = BY_METRIC.get(getattr(metric, "__name__", ""))
        if name is not None and (getattr(metric, "__module__", None) or "").startswith("sklearn."):
            method = NAMED[name][1]
            if sign == (-1 if name.startswith("neg_") else 1) and response in (None, method):
                return named(name)
    raise ValueError(
        f"scoring is {_checks.shown(scoring)}; {WHY}: one of {', '.join(NAMED)}, a scorer made from their metrics "
        f"without options, "
        f"or a RowScore(function), is needed"
    )


def row_scores(scoring: Any) -> dict[str, RowScore]:
    """Several row scores by name, from a list of names or a dict."""
    if not scoring or not isinstance(scoring, dict) and not all(isinstance(name, str) for name in scoring):
        raise ValueError(f"scoring is {_checks.shown(scoring)}; names, or a dict of scores by name, are needed")
    named_scores = scoring if isinstance(scoring, dict) else {name: name for name in scoring}
    return {str(name): row_score(score) for name, score in named_scores.items()}


def scaled_support(support: Any, scale: Floats) -> Any:
    """The interval that holds support times any number of `scale`; numbers, or one of each per candidate."""
    if support is None:
        return None
    ends = np.stack([end * factor for end in support for factor in (float(scale.min()), float(scale.max()))])
    return np.min(ends, axis=0), np.max(ends, axis=0)


@_checks.rebuilds(1, NamedRowScore, subclasses=True)
def _rebuild(cls: type[NamedRowScore], name: str) -> NamedRowScore:
    """Rebuild a pickled score of scikit-learn."""
    return cls(name)
