"""Outcomes of a multinomial regression as users give them: categories, or tables of counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrace._base import _frames
from fastrace._base._words import counted
from fastrace._models._softmax import offset_table
from fastrace._models.glm_inputs import are_counts, design_table
from fastrace._models.grouping import Groups, row_numbers

__all__ = ["categories", "codes_of", "for_all_classes", "refuse_missing_classes", "rows_of_counts"]

Array = NDArray[np.float64]


def categories(y: Any) -> tuple[Any, ...] | None:
    """The categories of a categorical of pandas or an enum of polars; those of polars that rows have, by the alphabet.
    """
    kind: Any = getattr(y, "dtype", None)
    if hasattr(kind, "ordered") and hasattr(kind, "categories"):
        return tuple(kind.categories.tolist())
    if _of_polars(y):
        enum = type(kind).__name__ == "Enum"
        return tuple(kind.categories.to_list() if enum else sorted(y.unique().drop_nulls().to_list()))
    return None


def _of_polars(y: Any) -> bool:
    return hasattr(y, "to_physical") and type(getattr(y, "dtype", None)).__name__ in ("Categorical", "Enum")


def codes_of(y: Any, levels: tuple[Any, ...], n_classes: int | None) -> NDArray[np.int64]:
    """The numbers of a categorical's categories."""
    if _of_polars(y):
        held = y.unique().drop_nulls()
        number = {int(code): levels.index(name) for code, name in
                  zip(held.to_physical().to_list(), held.to_list(), strict=True)}
        table = np.full(max(number, default=0) + 1, -1)
        table[list(number)] = list(number.values())
        codes = np.where(y.is_null().to_numpy(), -1, table[y.to_physical().fill_null(0).to_numpy().astype(np.int64)])
    else:
        codes = np.asarray(y.cat.codes if hasattr(y, "cat") else y.codes).astype(np.int64)
    refuse_missing_classes(codes < 0)
    if len(levels) < 2 or n_classes not in (None, len(levels)):
        raise ValueError(f"the categories of y are {counted(len(levels), 'class')}, and n_classes is {n_classes}: two "
                         f"classes at least are needed, and n_classes may be left out")
    return codes


def refuse_missing_classes(missing: NDArray[np.bool_]) -> None:
    """Refuse rows without a class."""
    if missing.any():
        raise ValueError(f"y is missing in row {int(missing.argmax())}; every row needs a class: drop rows without one")


def for_all_classes(value: Any, columns: Sequence[str], n_classes: int) -> Any:
    """Numbers of a series of pandas that has the names of columns, for each class but the first; all else as it is."""
    series = hasattr(value, "iloc") and getattr(value, "ndim", 0) == 1
    if not series or sorted(map(str, value.index)) != sorted(columns) or _frames.only_numbered(value.index):
        return value
    return np.tile(np.asarray(_frames.in_order(value, columns, "prior", "columns")), n_classes - 1)


def rows_of_counts(
    X: Any, y: Any, n_classes: int | None, offset: Any, weights: Any, groups: tuple[Groups, ...]
) -> tuple[Any, NDArray[np.intp], int, Array | None, Array, tuple[Groups, ...]]:
    """The arguments with a row for each pair of a row and a class that a table of counts has there."""
    table = np.asarray(_frames.as_table(y, "y", "classes, or a table of counts"))
    x = design_table(X, check_finite=True)
    n, k = table.shape
    if x.shape[0] != n:
        raise ValueError(f"y is a table of counts of shape {table.shape}, and X has {counted(x.shape[0], 'row')}; a "
                         f"row of counts for each row of X is needed")
    if n_classes is not None and n_classes != k:
        raise ValueError(f"y is a table of counts of {k} classes, one a column, and n_classes is {n_classes}: leave it "
                         f"out")
    if table.dtype.kind not in "fiub":
        raise TypeError(f"y is a table of dtype {table.dtype}; counts, whole numbers from 0 up, are needed")
    good = np.isfinite(table) & (table >= 0) & (table == np.floor(table))
    if not good.all():
        row, column = np.argwhere(~good)[0]
        raise ValueError(f"y[{row}, {column}] is {table[row, column]}; counts, whole numbers from 0 up, are needed")
    if not table.any():
        raise ValueError(f"all {n} x {k} counts of y are 0: at least one outcome is needed")
    for group in groups:
        if len(group.codes) != n:
            raise ValueError(f"groups have {counted(len(group.codes), 'row')}; {n}, as many as X, are needed")
    rows, classes = np.nonzero(table)
    times = row_numbers(weights, "weights", n, are_counts, "a whole number from 0 up")
    counts = table[rows, classes].astype(np.float64) * (1.0 if times is None else times[rows])
    apart = None if offset is None else offset_table(offset, (n, k))[rows]
    return x[rows], classes, k, apart, counts, tuple(group.reordered(rows) for group in groups)
