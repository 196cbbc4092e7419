"""The race over predictions that exist already."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace._base import _callers, _checks, _frames
from fastrace._base._words import WORST_REWARDS, counted
from fastrace.model_selection._labels import Strangers, is_missing
from fastrace.model_selection._row_scores import Accuracy, Floats, OfProbabilities, RowScore, row_score, scaled_support
from fastrace.races._options import RaceOptions, takes_options
from fastrace.races._receipts import Scored
from fastrace.races.racing import FIRST_LOOK, race
from fastrace.results import RaceResult
from fastrace.results.columns import index_warnings, remembered
from fastrace.sources import CallableSource, column_names


@takes_options
def race_predictions(
    y_true: ArrayLike,
    y_pred: Any,
    scoring: Any = "accuracy",
    *,
    delta: float = 0.05,
    bound: str = "auto",
    support: _checks.Support | None = None,
    sample_weight: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    n_candidates: int | None = None,
    first_look: int | None = None,
    growth: float | None = None,
    order: str = "random",
    epsilon: float = 0.0,
    n_best: int = 1,
    max_pulls: int | None = None,
    cost: ArrayLike | None = None,
    missing: str = "raise",
    outside: str = "raise",
    names: Sequence[str] | None = None,
    max_seconds: float | None = None,
    progress: bool = False,
    options: RaceOptions | None = None,
    rng: _checks.RngLike = None,
) -> RaceResult:
    """Find the candidate whose predictions score best on all rows, reading as few of them as the promise allows.

    Parameters
    ----------
    y_true : array_like, shape (n_rows,) or (n_rows, n_outputs)
        True values.
    y_pred : array_like of shape (n_rows, n_candidates) or (n_rows, n_candidates, n_classes), sequence, dict or callable
        Predictions: one array (a memory map, say), a frame, a sequence or dict of arrays, one per candidate, or
        ``y_pred(candidates, rows)`` that returns them, shape (len(rows), len(candidates), ...). Labels for accuracy, of
        the kind of `y_true`; probabilities of all classes for ``"neg_log_loss"`` and ``"neg_brier_score"``, where a
        frame per candidate has the classes for names of its columns, in any order, or columns without names.
    scoring : str, scorer or RowScore, default "accuracy"
        A score that is a mean over rows; larger is better.
    delta : float, default 0.05
        Probability that the candidate chosen is not the best on all rows, in (0, 1).
    bound : str, default "auto"
        See `FiniteRace`. ``"auto"`` is rigorous where the range of scores is known (accuracy, log loss, Brier score, or
        `support`); elsewhere means of `first_look` rows are taken as normal. ``"normal"`` does so in any case; see the
        notes for log loss.
    support : tuple of float or of arrays of shape (n_candidates,), optional
        Interval that holds every row's score. By default that of the score, if it has one; for log loss that of each
        candidate's probabilities, where they are arrays in memory. For functions that give no probability below p, say
        ``(math.log(p), 0)``: see Notes for what that saves.
    sample_weight : array_like, shape (n_rows,), optional
        Weights of rows in the mean.
    labels : array_like, optional
        Different classes, in the order of the columns of probabilities; by default the sorted values of `y_true`.
    n_candidates : int, optional
        Number of candidates, for callables.
    first_look : int, optional
        Rows of the first look; 50 where predictions come from a function or have a `cost`, else 200.
    growth, order, epsilon, n_best, max_pulls, cost
        See `race`; `epsilon` is in units of the score.
    missing : {"raise", "drop", "worst"}, default "raise"
        What a missing prediction does, for which a row has no score: nan, None, NA or NaT. See `FiniteRace`;
        ``"worst"`` is the low end of the support of scores, 0 for accuracy. A true value is needed on every row, and
        ``"drop"`` needs rows of equal weight.
    outside : {"raise", "warn"}, default "raise"
        What to do with a score outside `support`; see `FiniteRace`.
    names : sequence of str, optional
        What to call the candidates in the result; by default the columns of a frame or the keys of a dict.
    max_seconds, progress, options, rng
        See `race`. A race that ended early goes on by ``result.race.run(result.source)``, where the source scores what
        it reads; predictions themselves are refused there.

    Returns
    -------
    RaceResult
        ``fraction_read`` is the share of the predictions that were read. ``warnings`` names candidates that predicted
        labels which never occur in `y_true`, where labels are compared: such predictions count as wrong.

    Raises
    ------
    ValueError
        If the score is not a mean over rows, shapes do not match, a score is nan, `y_true` is nan or None on a row, or
        predictions cannot be compared with `y_true`: strings with numbers, probabilities with classes, classes with
        probabilities, labels with continuous values, or labels of which none occurs in `y_true`.
    Exception
        What a function of predictions raises, with the attributes ``race`` and ``source`` of `race`: nothing that has
        been paid for is lost, and ``error.race.run(error.source)`` goes on.

    Notes
    -----
    Log loss hangs on the few rows where the probability of the true class is near 0. Probabilities are clipped at
    2.2e-16, as scikit-learn does, so no score is below -36.05; the default rests on that. Of arrays in memory the least
    probability of each candidate is looked up first, in one pass that needs no true value. Functions and memory maps
    are not read for it: until all rows are read, a single one may lower a mean by 36.05 / n_rows, and bets stay small.
    No race can learn the least probability of rows that it has not read, but you may know it, as of models whose
    probabilities are smoothed or cut off; `support` says it, and a function then reads what arrays of that range do.
    ``bound="normal"`` knows nothing of rare rows before it has read one, and warns of that. In 60 races of six models,
    or of the four simplest logistic regressions, over 50,000 rows (`bench/benchmarks/model_selection.py`), these shares
    of the rows were read, and so many races were wrong; the support given is the same for all candidates:

    ======================  =============  =============  =============  ===================
    probabilities           by "normal"    of arrays      of a function  with its `support`
    ======================  =============  =============  =============  ===================
    logistic regression     .473, 0 wrong  .500, 0 wrong  .601, 0 wrong  .501, 0 wrong
    four of them            .040, 0 wrong  .080, 0 wrong  .254, 0 wrong  .080, 0 wrong
    boosted trees           .132, 1 wrong  .113, 0 wrong  .298, 0 wrong  .149, 0 wrong
    trees with pure leaves  .121, 9 wrong  .083, 0 wrong  .074, 0 wrong  the same
    ======================  =============  =============  =============  ===================

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
    with _callers.options_of("race_predictions"):
        _checks.choice(missing, "missing", _checks.MISSING_REWARDS)
    _frames.require_same_rows(y_true=y_true, y_pred=y_pred, sample_weight=sample_weight)
    rewards = _Rewards(y_true, y_pred, row_score(scoring), sample_weight, labels, n_candidates, missing != "raise")
    columns = None if callable(y_pred) else column_names(y_pred)
    ends: Any = rewards.score.support_for(rewards.classes) if support is None else _ends(
        support, rewards.count, columns if names is None else names)
    if missing == "drop" and not rewards.plain:
        raise ValueError("missing is 'drop' and rows have different weights (sample_weight, or those of the score); "
                         "the mean over the rows that remain is then unknown until all are read: take missing='worst', "
                         "or leave out the rows without predictions beforehand")
    with _callers.options_of("race_predictions"):
        given = _checks.arm_names(names, rewards.count)
    if missing == "worst" and ends is not None and not rewards.plain:
        if np.ndim(ends[0]):
            raise ValueError("missing is 'worst', rows have different weights, and support has an end per candidate; "
                             "one number for all is needed, as it is weighted")
        rewards.worst = ends[0]                 # of its own row: the low end of the support is that of the heaviest
    # Predictions in an array cost as much as reading them; a callable is assumed to be expensive.
    price = math.inf if callable(y_pred) else 100.0
    if first_look is None:
        first_look = FIRST_LOOK if callable(y_pred) or cost is not None else 200
    rewards.columns, rewards.names = columns, columns if given is None else given
    if support is None and missing != "worst":      # which counts as the low end of all that may be, not of what is
        ends = rewards.own_ends() or ends
    with _callers.called_by("race_predictions"):
        return race(
            CallableSource(rewards, rewards.count, len(rewards.y), reward_cost=price), delta, bound,
            support=scaled_support(ends, rewards.scale), epsilon=epsilon, n_best=n_best,
            max_pulls=max_pulls, cost=cost, missing=missing, outside=outside,
            names=remembered(given, columns), first_look=first_look, growth=growth, order=order,
            max_seconds=max_seconds, progress=progress, rng=rng,
        )


def _ends(support: _checks.Support, count: int, names: Sequence[str] | None) -> tuple[Any, Any]:
    """Ends of a support: two numbers, or two vectors with one per candidate."""
    pair = isinstance(support, (tuple, list)) and len(support) == 2
    if not pair or not any(getattr(end, "ndim", 0) or isinstance(end, (list, tuple)) for end in support):
        return _checks.interval(support)            # type: ignore[arg-type]
    low, high = _checks.support_bounds(_frames.support_of_arms(support, names), count)
    if not (low < high).all():
        raise ValueError(f"support is {_checks.shown(support)}; low < high is needed for each candidate")
    return low, high


class _Rewards(Scored):
    """The scores of some rows by some candidates, from their predictions."""

    def __init__(
        self, y_true: ArrayLike, y_pred: Any, score: RowScore, sample_weight: ArrayLike | None,
        labels: ArrayLike | None, n_candidates: int | None, gaps: bool = False,
    ) -> None:
        self.score, self.y = score, _checks.as_array(y_true, "y_true")
        _checks.refuse_rounded(y_true, self.y, "y_true")    # labels that NumPy makes one
        if self.y.ndim not in (1, 2) or self.y.shape[0] == 0:
            raise ValueError(
                f"y_true has shape {self.y.shape}; at least one row, of one value or of several, is needed")
        self.fold = score.fold(self.y, len(self.y), sample_weight)
        self.classes: Any = None
        self.order: Any = None              # of columns of probabilities, where they do not stand as the classes do
        if isinstance(score, OfProbabilities):
            self.classes, self.order = _classes(self.y, labels)
        self.scale = self.fold.weights * len(self.y)
        self.plain = bool((self.scale == self.scale[0]).all())
        wanted = self.classes if labels is None else labels
        self.read, self.count, self.held = _reader(
            y_pred, len(self.y), n_candidates, None if self.classes is None else _checks.as_array(wanted, "labels"),
            lambda: self.names)
        self.strangers = Strangers(self.y) if isinstance(score, Accuracy) else None
        self.gaps = gaps                    # whether predictions may be missing
        self.worst: float | None = None     # score of a row without a prediction; None: nan
        self.n_filled = 0
        self.columns: tuple[str, ...] | None = None             # names of the candidates in a table
        self.names: tuple[str, ...] | None = None               # in the result

    def __call__(self, arms: NDArray[np.intp], rows: NDArray[np.int64]) -> Floats:
        block = self.read(arms, rows)
        gone = _gaps(block) if self.gaps or block.dtype.kind in "OmM" else None    # None and NaT are no labels
        if self.classes is not None:
            block = self._probabilities(arms, rows, _checks.numbers_of(block, "y_pred"))
        if gone is not None and block.dtype.kind == "O":    # any label will do, as its score is replaced
            block = block.copy()
            block[gone] = np.broadcast_to(self.y[rows].reshape(len(rows), 1, *self.y.shape[1:]), block.shape)[gone]
        found = self.score.table(self.y[rows], block, self.classes, self.fold.constants)
        if self.strangers is not None:
            self.strangers.look(arms, rows, block)
        if self.gaps or gone is not None:
            lost = np.isnan(found) if gone is None else np.isnan(found) | gone.any(axis=tuple(range(2, gone.ndim)))
            found = np.where(lost, np.nan if self.worst is None else self.worst, found)
            self.n_filled += 0 if self.worst is None else int(lost.sum())
        return found if self.plain else found * self.scale[rows, None]

    def _probabilities(self, arms: NDArray[np.intp], rows: NDArray[np.int64], block: Any) -> Any:
        """Probabilities of the sorted classes, checked."""
        n_rows, n_classes = len(self.y), len(self.classes)
        if block.ndim != 3 or block.shape[2] != n_classes:
            raise ValueError(
                f"y_pred has shape {(n_rows, self.count, *block.shape[2:])}; {self.score!r} needs the probabilities of "
                f"all {n_classes} classes, shape ({n_rows}, n_candidates, {n_classes}), or a list of arrays of shape "
                f"({n_rows}, {n_classes}), one per candidate; if there are more classes than y_true holds, name them "
                f"by labels"
            )
        if block.dtype.kind not in "fiub":
            raise ValueError(f"y_pred has dtype {block.dtype}; {self.score!r} needs probabilities, which are numbers")
        sums = block.sum(axis=2, dtype=np.float64)
        if (np.abs(sums - 1.0) > 0.01).any():            # rounding is forgiven, and nan is refused as a score
            k, j = np.argwhere(np.abs(sums - 1.0) > 0.01)[0]
            raise ValueError(
                f"the probabilities by candidate {arms[j]} on row {rows[k]} sum to {sums[k, j]:g}; 1 is needed"
            )
        return block if self.order is None else block[:, :, self.order]

    def own_ends(self) -> tuple[Floats, Floats] | None:
        """Ends of the scores of each candidate by the predictions in memory; None where there are none, or no more."""
        if self.classes is None or self.held is None:
            return None
        found = [[np.atleast_1d(end.reduce(end.reduce(part, axis=0), axis=-1)) for end in (np.fmin, np.fmax)]
                 for part in self.held]
        least, most = (np.concatenate(ends) for ends in zip(*found, strict=True))
        return None if np.isnan(least).any() else self.score.ends_of(least, most)

    def complete(self, result: RaceResult) -> RaceResult:
        said = () if self.strangers is None else self.strangers.words(self.names)
        if self.n_filled:
            said += (WORST_REWARDS.format(counted(self.n_filled, "missing score")),)
        said += self.score.warnings(result)
        said += index_warnings(self.columns, len(self.y), lambda rows, arms: self.read(arms, rows))
        return dataclasses.replace(result, names=self.names, n_missing=result.n_missing + self.n_filled,
                                   warnings=(*result.warnings, *said))


def _gaps(block: NDArray[Any]) -> NDArray[np.bool_] | None:
    """Where predictions are missing: nan, None, NA or NaT; None where none is."""
    if block.dtype.kind == "O":
        found = np.array([is_missing(x) for x in block.ravel()], dtype=bool).reshape(block.shape)
    elif block.dtype.kind in "fmM":
        found = np.isnan(block)
    else:
        return None
    return found if found.any() else None


def _classes(y: NDArray[Any], labels: ArrayLike | None) -> tuple[NDArray[Any], NDArray[np.intp] | None]:
    """The classes, sorted, and the column of each; None where columns are sorted already."""
    found = np.unique(y)
    if labels is None:
        return found, None
    given = _checks.as_array(labels, "labels")
    _checks.refuse_rounded(labels, given, "labels")
    classes, columns = np.unique(given, return_index=True)
    if given.ndim != 1 or classes.size < given.size:
        raise ValueError(f"labels is {_checks.shown(labels)}; different classes, one per column of probabilities, are "
                         f"needed")
    missing = found[~np.isin(found, classes)]
    if missing.size:
        raise ValueError(
            f"labels is {_checks.shown(labels)}; y_true also holds {missing[:1].tolist()[0]!r}, and each class needs "
            f"a column"
        )
    return classes, None if (columns[1:] > columns[:-1]).all() else columns


def _by_class(frame: Any, classes: NDArray[Any] | None, called: str) -> Any:
    """Predictions by one candidate as an array; those of a frame whose columns name `classes` in the order of these."""
    found = np.asanyarray(frame)
    _checks.refuse_rounded(frame, found, called)
    if classes is None or found.ndim != 2:
        return found
    return np.asanyarray(_frames.in_order(frame, classes.tolist(), called, "classes"))


def _reader(
    y_pred: Any, n_rows: int, n_candidates: int | None, classes: NDArray[Any] | None,
    names: Callable[[], tuple[str, ...] | None],
) -> tuple[Callable[[Any, Any], Any], int, list[NDArray[Any]] | None]:
    """A function of candidates and rows that returns their predictions, and the number of candidates.

    Also what there is of probabilities in memory, rows by candidates by classes or rows by classes; None elsewhere.
    """
    if callable(y_pred):
        if n_candidates is None:
            raise ValueError("n_candidates is None; it is needed where y_pred is a callable")
        _checks.at_once(y_pred, "y_pred")

        def called(arms: Any, rows: Any) -> Any:
            given = _frames.answer_of(y_pred, names(), arms, rows)
            _checks.at_once(given, "y_pred")
            block = _checks.as_array(given, "what y_pred returned")
            _checks.refuse_rounded(given, block, "what y_pred returned")
            if block.ndim < 2 or block.shape[:2] != (len(rows), len(arms)):
                raise ValueError(
                    f"y_pred returned shape {block.shape}; ({len(rows)}, {len(arms)}, ...), rows by candidates, is "
                    f"needed"
                )
            return block

        return called, _checks.integer(n_candidates, "n_candidates", 1, "there must be something to choose"), None
    _checks.unmasked(y_pred, "y_pred")
    if isinstance(y_pred, Mapping):
        y_pred = [_by_class(column, classes, f"y_pred[{name!r}]") for name, column in y_pred.items()]
    if isinstance(y_pred, Sequence) and all(hasattr(column, "__array__") for column in y_pred):
        columns = [_by_class(column, classes, f"y_pred[{k}]") for k, column in enumerate(y_pred)]
        for k, column in enumerate(columns):
            if column.ndim < 1 or column.shape[0] != n_rows:
                raise ValueError(f"y_pred[{k}] has shape {column.shape}; {n_rows} rows, those of y_true, are needed")
        if not columns:
            raise ValueError("y_pred is empty; predictions of at least one candidate are needed")
        if all(column.ndim == 2 and column.dtype.kind in "fiub" for column in columns):
            kind = np.result_type(*columns)  # of all: a score must not hang on the candidates that are read with it

            def stacked(arms: Any, rows: Any) -> Any:
                return np.stack([columns[i][rows] for i in arms], axis=1).astype(kind, copy=False)

            return stacked, len(columns), _held(columns, 2)

        def of_labels(arms: Any, rows: Any) -> Any:
            parts = [columns[i][rows] for i in arms]
            block = np.stack(parts, axis=1)
            if block.dtype.kind == "f":
                for i, part in zip(arms, parts, strict=True):
                    _checks.exact(part, f"y_pred[{i}]")
            return block

        return of_labels, len(columns), None
    table = y_pred if isinstance(y_pred, np.ndarray) else _checks.as_array(y_pred, "y_pred")
    _checks.refuse_rounded(y_pred, table, "y_pred")
    if table.ndim not in (2, 3) or table.shape[0] != n_rows or table.shape[1] == 0:
        raise ValueError(
            f"y_pred has shape {table.shape}; ({n_rows}, n_candidates), or with a last axis of classes, is needed"
        )
    return lambda arms, rows: table[np.ix_(rows, arms)], table.shape[1], _held([table], 3)


def _held(tables: list[NDArray[Any]], ndim: int) -> list[NDArray[Any]] | None:
    """Arrays of numbers that lie in memory, not in a file."""
    there = all(table.ndim == ndim and table.dtype.kind in "fiub" and not isinstance(table, np.memmap)
                for table in tables)
    return tables if there else None
