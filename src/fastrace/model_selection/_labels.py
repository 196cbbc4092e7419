"""What can be wrong with labels before and while predictions are compared with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrace._base import _checks

STRINGS, NUMBERS = "strings", "numbers"
OF_TIME = {"M": "dates", "m": "durations"}


def real_values(values: Any, name: str) -> NDArray[np.float64]:
    """Floats of what a score subtracts; dates and durations are counts of a unit that no score can see."""
    array = _checks.numbers_of(values, name)
    if array.dtype.kind not in "fiub":
        of = OF_TIME.get(array.dtype.kind)
        how = "; divide differences between dates, or durations, by a unit: numpy.timedelta64(1, 's')" if of else ""
        complex_ = "Complex data not supported: " if array.dtype.kind == "c" else ""    # as scikit-learn says it
        raise ValueError(f"{complex_}{name} has dtype {array.dtype}; real numbers are needed{how}")
    return array.astype(np.float64, copy=False)


def is_missing(value: Any) -> bool:
    """Whether an object stands for no value: None, nan, NaT, or NA of pandas."""
    return value is None or type(value).__name__ in ("NAType", "NaTType") or bool(value != value)


def _sort_of(values: NDArray[Any]) -> str:
    """Strings, bytes, numbers, dates or durations, of which no two are ever equal; "" for other or mixed types."""
    if values.dtype.kind in OF_TIME:
        return OF_TIME[values.dtype.kind]
    if values.dtype.kind in "iufb":
        return NUMBERS
    if values.dtype.kind in "UT":
        return STRINGS
    if values.dtype.kind == "S":
        return "bytes"
    if values.dtype.kind == "O":
        kinds = {type(value) for value in values.ravel().tolist()}
        if all(issubclass(kind, str) for kind in kinds):
            return STRINGS
        if all(issubclass(kind, (bool, int, float, np.number, np.bool_)) for kind in kinds):
            return NUMBERS
    return ""


def check_labels(y: NDArray[Any], p: NDArray[Any], fractions: NDArray[Any]) -> None:
    """Refuse predictions that can equal no class: strings for numbers, and probabilities.

    Also whole numbers that NumPy would round to compare them with floats. `fractions` are the classes that are numbers
    but not integers.
    """
    mine, theirs = _sort_of(y), _sort_of(p)
    if mine and theirs and mine != theirs:
        raise ValueError(
            f"y_true holds {mine}, such as {np.asarray(y.flat[0]).item()!r}, and the predictions hold {theirs}, such "
            f"as {np.asarray(p.flat[0]).item()!r}: none can be right; give both the same kind of labels"
        )
    if p.dtype.kind == "f":
        _checks.exact(y, "y_true")
    if y.dtype.kind == "f":
        _checks.exact(p, "y_pred")
    if theirs == NUMBERS and p.dtype.kind in "fO":
        values = _as_floats(p)
        odd = np.isfinite(values) & (values != np.floor(values)) & ~np.isin(values, fractions)
        if odd.any():
            raise ValueError(
                f"a prediction is {values[odd][0]:g}, which is no class: accuracy counts those that equal y_true; "
                f"for probabilities, name 'neg_log_loss' or 'neg_brier_score', or give the class of the largest one; "
                f"for regressors, a loss such as 'neg_mean_squared_error'"
            )


def refuse_missing(y: NDArray[Any]) -> None:
    """Refuse true values that are missing: nothing is right there."""
    if y.dtype.kind == "O":
        flat = y.ravel().tolist()
        missing = np.fromiter(map(is_missing, flat), bool, y.size)
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


def _as_floats(values: NDArray[Any]) -> NDArray[np.float64]:
    """Labels that are numbers as floats; whole ones beyond what a float holds are infinite."""
    if values.dtype.kind != "O":
        return values.astype(np.float64)
    return np.array([_checks.nearest(value) for value in values.ravel().tolist()]).reshape(values.shape)


def _distinct(values: NDArray[Any]) -> NDArray[Any]:
    """Each value once; objects need not be sortable."""
    if values.dtype.kind != "O":
        return np.unique(values)
    try:
        found = list(dict.fromkeys(values.ravel().tolist()))
    except TypeError as error:
        raise TypeError(f"y_true holds no labels ({error}); words or numbers are needed") from None
    made = np.empty(len(found), object)
    made[:] = found
    return made


class Strangers:
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
