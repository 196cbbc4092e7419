"""Tables larger than memory: rows of Parquet files, read by row groups when they are needed."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrace._base import _checks
from fastrace._base._words import counted

SMALL = ("bool", "int8", "uint8", "int16", "uint16", "halffloat", "float")


class ParquetRows:
    """Rows of Parquet files, for searches over tables that do not fit into memory.

    Indexing with a slice, or with numbers or a mask of rows, gives the subset without reading it; `read` reads the row
    groups that it touches, one after another.

    Parameters
    ----------
    path : str or path, or sequence of them
        One file, or several with the same columns, their rows in a line.
    columns : sequence of str, optional
        Columns, in this order; all by default.
    frame : bool, default False
        Hand learners a pandas DataFrame instead of an array: for columns that are not numbers.

    Attributes
    ----------
    shape : tuple of int
        Rows and columns.
    columns : tuple of str
        Names of the columns.
    dtype : numpy dtype
        What `read` returns without `frame`: float32 if that holds every column, else float64.

    Raises
    ------
    ValueError
        If a column does not exist, or is not a number and `frame` is False.

    Notes
    -----
    `DAUBSearchCV` trains on it with ``shuffle=False``, its files in random order already, and a float for `cv`: each
    subset is then the first so many rows. With ``warm_start=True``, learners that have ``partial_fit`` get the new rows
    of a subset one row group at a time, and held-out rows are predicted the same way, so that memory holds one row
    group and the column of targets; the one chosen is trained so too. Other learners get their subset as one array: in
    the end all rows. With ``shuffle=True`` every subset touches nearly every row group. Write files in row groups of
    moderate size (``row_group_size=50_000``, say): a row group is read whole.

    Examples
    --------
    >>> import numpy as np, pandas, tempfile
    >>> from fastrace.model_selection import ParquetRows
    >>> table = pandas.DataFrame(np.arange(12.0).reshape(6, 2), columns=["a", "b"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table.to_parquet(f"{folder}/t.parquet", row_group_size=2)
    ...     rows = ParquetRows(f"{folder}/t.parquet")
    ...     (rows.shape, rows[[5, 1]].read().tolist(), rows[:3].column("b").tolist())
    ((6, 2), [[10.0, 11.0], [2.0, 3.0]], [1.0, 3.0, 5.0])
    """

    def __init__(self, path: Any, columns: Sequence[str] | None = None, *, frame: bool = False) -> None:
        paths = [path] if isinstance(path, (str, os.PathLike)) else path
        self.files = tuple(os.fspath(name) for name in paths)
        if not self.files:
            raise ValueError("path is empty; at least one Parquet file is needed")
        self.frame = bool(frame)
        if isinstance(columns, str):
            raise ValueError(f"columns is {_checks.shown(columns)}; a sequence of names is needed")
        sizes: list[int] = []
        self.pieces: list[tuple[str, int]] = []
        for name in self.files:
            found = _open(name)
            schema = found.schema_arrow
            if columns is None:
                columns = schema.names
            for column in columns:
                if column not in schema.names:
                    raise ValueError(f"{name} has no column {column!r}; it has {', '.join(map(str, schema.names))}")
            kinds = [str(schema.field(column).type) for column in columns]
            odd = [f"{c} ({k})" for c, k in zip(columns, kinds, strict=True) if not _is_number(k)]
            if odd and not self.frame:
                raise ValueError(
                    f"columns {', '.join(odd)} of {name} are not numbers; leave them out of columns, or set frame=True "
                    f"and give learners that take data frames"
                )
            for group in range(found.num_row_groups):
                self.pieces.append((name, group))
                sizes.append(found.metadata.row_group(group).num_rows)
            if name == self.files[0]:
                self.dtype = np.dtype(np.float32 if all(kind in SMALL for kind in kinds) else np.float64)
            elif not all(kind in SMALL for kind in kinds):
                self.dtype = np.dtype(np.float64)
            found.close()
        self.columns = tuple(str(column) for column in columns or ())
        self.starts: NDArray[np.int64] = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)
        self.rows: range | NDArray[np.int64] = range(int(self.starts[-1]))

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.rows), len(self.columns)

    @property
    def ndim(self) -> int:
        """2."""
        return 2

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        sizes = (len(self), "row"), (len(self.columns), "column"), (len(self.files), "file")
        return f"ParquetRows({', '.join(counted(number, noun) for number, noun in sizes)})"

    def __getitem__(self, key: Any) -> ParquetRows:
        if isinstance(key, tuple):
            if len(key) != 2 or key[1] is not Ellipsis:
                raise ValueError(f"key is {_checks.shown(key)}; rows are chosen by [rows], columns by "
                                 f"ParquetRows(path, columns)")
            key = key[0]
        made = copy.copy(self)
        if isinstance(key, slice):
            rows = self.rows[key]
            made.rows = rows if isinstance(rows, range) and rows.step == 1 else np.asarray(rows, np.int64)
            return made
        where = np.asarray(key)
        if where.ndim != 1 or (where.dtype.kind not in "iub" and where.size):
            raise ValueError(f"key has shape {where.shape} and dtype {where.dtype}; a slice, numbers of rows or a mask "
                             f"is needed")
        if where.dtype == bool and where.size != len(self):
            raise IndexError(f"a mask of {where.size} rows came; {len(self)} are needed")
        places = np.flatnonzero(where) if where.dtype == bool else where.astype(np.int64)
        if places.size and not (-len(self) <= places.min() and places.max() < len(self)):
            raise IndexError(f"rows {places.min()} to {places.max()} were asked for; there are {len(self)}")
        found = np.where(places < 0, places + len(self), places)
        found = as_slice(found + self.rows.start if isinstance(self.rows, range) else self.rows[found])
        made.rows = range(found.start, found.stop) if isinstance(found, slice) else found
        return made

    def _parts(self) -> Iterator[tuple[int, Any, Any]]:
        """Row groups in order: number, places of their rows in this subset, and rows inside the group."""
        if isinstance(self.rows, range):
            if not len(self.rows):
                return
            first = int(np.searchsorted(self.starts, self.rows.start, side="right")) - 1
            for piece in range(first, len(self.pieces)):
                low, high = max(int(self.starts[piece]), self.rows.start), min(
                    int(self.starts[piece + 1]), self.rows.stop)
                if high > low:
                    yield (piece, slice(low - self.rows.start, high - self.rows.start),
                           slice(low - int(self.starts[piece]), high - int(self.starts[piece])))
                elif low >= self.rows.stop:
                    return
            return
        of_piece = np.searchsorted(self.starts, self.rows, side="right") - 1
        order = np.argsort(of_piece, kind="stable")
        ends = np.flatnonzero(np.diff(of_piece[order])) + 1
        for places in np.split(order, ends):
            if places.size:
                piece = int(of_piece[places[0]])
                yield piece, places, self.rows[places] - self.starts[piece]

    def _tables(self, columns: Sequence[str]) -> Iterator[tuple[Any, Any]]:
        """The rows of each row group in turn, and their places."""
        name, found = "", None
        try:
            for piece, places, inside in self._parts():
                if self.pieces[piece][0] != name:
                    if found is not None:
                        found.close()
                    name = self.pieces[piece][0]
                    found = _open(name)
                assert found is not None
                table = found.read_row_group(self.pieces[piece][1], columns=list(columns))
                if isinstance(inside, slice):
                    table = table.slice(inside.start, inside.stop - inside.start)
                else:
                    table = table.take(inside)
                yield places, table
        finally:
            if found is not None:
                found.close()

    def read(self) -> Any:
        """Read the rows, one row group at a time.

        Returns
        -------
        ndarray of shape (n_rows, n_columns), or DataFrame if `frame`
            Missing numbers are nan.
        """
        if self.frame:
            return self._frame()
        out = np.empty(self.shape, self.dtype)
        for places, table in self._tables(self.columns):
            for k, name in enumerate(self.columns):
                out[places, k] = table.column(name).to_numpy()
        return out

    def _frame(self) -> Any:
        import pandas

        parts, order = [], []
        for places, table in self._tables(self.columns):
            parts.append(table.select(self.columns).to_pandas(ignore_metadata=True))
            order.append(_numbers(places))
        if not parts:
            return pandas.DataFrame(columns=list(self.columns))
        whole = pandas.concat(parts, ignore_index=True) if len(parts) > 1 else parts[0]
        flat = np.concatenate(order)
        return whole if (np.diff(flat) == 1).all() else whole.iloc[np.argsort(flat)].reset_index(drop=True)

    def column(self, name: str) -> NDArray[Any]:
        """Read one column, of targets or weights, say; it need not be one of `columns`."""
        parts, order = [], []
        try:
            for places, table in self._tables([name]):
                parts.append(np.asarray(table.column(name).to_pandas()))
                order.append(_numbers(places))
        except KeyError:
            raise ValueError(f"{self.files[0]} has no column {name!r}") from None
        if not parts:
            return np.empty(0)
        values = np.concatenate(parts)
        out = np.empty_like(values)
        out[np.concatenate(order)] = values
        return out

    def blocks(self) -> list[Any]:
        """Places of the rows of each row group, to be read one after another: slices, or arrays of numbers."""
        return [places for _, places, _ in self._parts()]

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("rows of a file cannot be had as an array without copying them")
        return np.asarray(self.read(), dtype=dtype)


def _numbers(places: Any) -> NDArray[Any]:
    return np.arange(places.start, places.stop) if isinstance(places, slice) else np.asarray(places)


def _is_number(kind: str) -> bool:
    return kind in ("bool", "halffloat", "float", "double") or kind.startswith(("int", "uint"))


def _open(name: str) -> Any:
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise ImportError('Parquet files need pyarrow: python -m pip install pyarrow') from error
    return parquet.ParquetFile(name)


def read_rows(X: Any) -> Any:
    """Rows as learners take them."""
    return X.read() if isinstance(X, ParquetRows) else X


def as_slice(rows: NDArray[Any]) -> Any:
    """Row numbers that follow each other as a slice, which copies nothing; others as they are."""
    if rows.size and rows.dtype.kind in "iu" and rows[-1] - rows[0] == rows.size - 1 and (np.diff(rows) == 1).all():
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows
