"""Grouping factors: which group each row belongs to, and which effects vary from group to group."""

from __future__ import annotations

import copy
import itertools
import operator
from collections.abc import Container, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace._base import _checks, _frames

__all__ = ["Factor", "Groups", "as_groups", "as_values", "known_name", "level_name", "refuse_missing"]

_WHOLE = 2**53  # up to which floats hold each whole number
_SLOPES = "; where slopes vary too, give mcmc.Groups(codes, slopes=['age']) in place of the codes"


class Factor(NamedTuple):
    """A grouping factor as a likelihood lays it out: the effects of group g are parameters
    ``start + g * width, ..., start + (g + 1) * width - 1``.
    """

    name: str
    codes: NDArray[np.int32]
    levels: tuple[str, ...]
    start: int
    terms: tuple[str, ...]  # "1" for the intercept, then the slopes
    intercept: bool
    columns: tuple[int, ...]  # of X, which the slopes multiply, or
    table: NDArray[np.float64] | None  # values of their own, shape (n_rows, slopes)
    correlated: bool

    @property
    def n_groups(self) -> int:
        return len(self.levels)

    @property
    def width(self) -> int:
        """Effects of a group."""
        return len(self.terms)

    @property
    def stop(self) -> int:
        """The parameter after the last effect."""
        return self.start + self.n_groups * self.width

    def without_rows(self) -> Factor:
        """What a model keeps beside columns that stand for it: levels, terms and places."""
        return self._replace(codes=self.codes[:0].copy(), table=None if self.table is None else self.table[:0].copy())

    def effect_names(self) -> list[str]:
        """What the effects are called: "1|clinic[3]" is the intercept of group "3" of the factor "clinic"."""
        return [f"{term}|{self.name}[{level}]" for level in self.levels for term in self.terms]

    def values(self, X: Any, rows: slice | NDArray[np.intp]) -> NDArray[np.float64]:
        """What the effects of some rows multiply, shape (count, width)."""
        ones = np.ones((len(self.codes[rows]), int(self.intercept)))
        if self.width == self.intercept:
            return ones
        slopes = self.table[rows] if self.table is not None else X[rows][:, list(self.columns)]
        return np.column_stack([ones, slopes.toarray() if hasattr(slopes, "toarray") else slopes])


class Groups(_frames.Indexed):
    """A grouping factor of a model: each of its groups has an intercept, slopes, or both of its own.

    Parameters
    ----------
    codes : array_like of shape (n_rows,), or tuple of such arrays
        The group of each row: whole numbers, words or other hashables, or a categorical column of pandas, whose
        categories are all groups, those without a row too. A tuple of arrays is a nested factor: a group is a
        combination that some row has.
    slopes : sequence of str or int, or array_like of real numbers of shape (n_rows, k), optional
        What the varying slopes multiply: columns of the model's X, by name or by number, or values of their own.
    intercept : bool, default True
        Whether the intercept varies.
    correlated : bool, default True
        Whether the effects of a group are correlated under the prior. Nothing with a single effect a group.
    name : str, optional
        What the factor is called in names of parameters; "group", or the key of a dict of factors, by default.

    Attributes
    ----------
    codes : ndarray of int32, shape (n_rows,)
        Numbers of the groups in `levels`.
    levels : tuple
        The groups: sorted where they can be, in the order of their appearance otherwise.
    index : pandas.Index or None
        That of `codes` or `slopes`, which a model's other rows must have too.

    Raises
    ------
    ValueError
        If a group is missing (None or nan), shapes or pandas indexes disagree, slopes are not finite, or neither an
        intercept nor a slope varies.

    Examples
    --------
    >>> from fastrace import mcmc
    >>> clinic = mcmc.Groups(["b", "a", "b"], name="clinic")
    >>> clinic
    Groups('clinic', 2 groups, intercept)
    >>> clinic.levels, clinic.codes.tolist()
    (('a', 'b'), [1, 0, 1])
    >>> mcmc.Groups((["b", "a", "b"], [0, 0, 1])).levels
    (('a', 0), ('b', 0), ('b', 1))
    """

    def __init__(
        self,
        codes: Any,
        slopes: Any = None,
        intercept: bool = True,
        correlated: bool = True,
        name: str | None = None,
    ) -> None:
        called = "groups" if name is None else f"groups {name!r}"
        _frames.require_same_rows(**{called: codes, f"slopes of {called}": slopes})
        for index in _frames.indexes([codes, slopes])[:1]:
            self.index = index
        self.codes, self.levels = _coded(codes, called)
        self.intercept = _checks.flag(intercept, "intercept")
        self.correlated = _checks.flag(correlated, "correlated")
        self.name = name if name is None else str(name)
        self.columns: tuple[str | int, ...] = ()
        self.slope_names: tuple[str, ...] = ()
        self.table: NDArray[np.float64] | None = None
        if slopes is not None:
            self._take_slopes(slopes, called)
        if not (self.intercept or self.slope_names):
            raise ValueError(f"{called} have no intercept and no slopes; at least one effect must vary among them")

    def _take_slopes(self, slopes: Any, called: str) -> None:
        if isinstance(slopes, (str, int, np.integer)):
            slopes = (slopes,)
        if isinstance(slopes, (list, tuple)) and all(isinstance(c, (str, int, np.integer)) for c in slopes):
            self.columns = tuple(c if isinstance(c, str) else operator.index(c) for c in slopes)
            self.slope_names = tuple(str(c) for c in self.columns)
            if _checks.twice(self.slope_names) is not None:
                raise ValueError(f"slopes of {called} name {_checks.twice(self.slope_names)!r} twice; each varies once")
            return
        table = np.asarray(_frames.as_table(slopes, f"slopes of {called}", "a table of numbers"))
        table = table[:, None] if table.ndim == 1 else table
        if table.ndim != 2 or len(table) != len(self.codes) or table.dtype.kind not in "fiub":
            raise ValueError(f"slopes of {called} have shape {table.shape} and dtype {table.dtype}; names or numbers "
                             f"of columns, or real numbers of shape ({len(self.codes)}, k), are needed")
        self.table = np.ascontiguousarray(table, dtype=np.float64)
        if not np.isfinite(self.table).all():
            raise ValueError(f"slopes of {called} are not all finite")
        names = _frames.column_names(slopes)
        self.slope_names = names or _numbered(table.shape[1])

    def __repr__(self) -> str:
        effects = ["intercept"] * self.intercept + [f"slope of {name!r}" for name in self.slope_names]
        name = "" if self.name is None else f"{self.name!r}, "
        return f"Groups({name}{len(self.levels)} groups, {', '.join(effects)})"

    def reordered(self, order: NDArray[np.intp] | slice) -> Groups:
        """The same factor of rows in another order, or of some of them."""
        new = object.__new__(Groups)
        new.__dict__.update(self.__getstate__())
        new.codes = self.codes[order]
        new.table = None if self.table is None else self.table[order]
        return new

    def resolved(self, columns: Sequence[str] | None, n_columns: int) -> Groups:
        """The same factor with slopes by the numbers of columns of X, and called as X calls them."""
        if not self.columns:
            return self
        new = self.reordered(slice(None))
        numbers = tuple(_column(c, columns, n_columns, self.name or "group") for c in self.columns)
        new.columns = numbers
        if self.slope_names == tuple(map(str, self.columns)):  # else they have names already
            new.slope_names = tuple(f"x{c}" if columns is None else columns[c] for c in numbers)
        return new

    def called_by(self, names: Sequence[str]) -> Groups:
        """The same factor, whose slopes of columns by number or by one of these names have these names."""
        known = [c for c in self.columns if c in names or (isinstance(c, int) and 0 <= c < len(names))]
        return self.resolved(names, len(names)) if self.columns and len(known) == len(self.columns) else self

    def slopes_by(self, names: Sequence[str], called: str) -> NDArray[np.float64] | None:
        """The table of slopes, its columns in the order of these names; those of an array go by position."""
        if self.table is None or self.slope_names == _numbered(self.table.shape[1]):
            return self.table
        order = _frames.order_of(self.slope_names, names, f"the table of slopes of groups {called!r}", "model's slopes")
        return self.table if order is None else np.ascontiguousarray(self.table[:, order])

    def laid_out(self, n_rows: int, start: int, number: int) -> Factor:
        """How a likelihood of so many rows holds the resolved factor, its effects from parameter `start` on."""
        name = self.name or ("group" if number == 0 else f"group{number}")
        if len(self.codes) != n_rows:
            raise ValueError(f"groups {name!r} have {len(self.codes)} rows; {n_rows}, as many as X, are needed"
                             f"{_SLOPES}")
        terms = ("1",) * self.intercept + self.slope_names
        columns = tuple(c for c in self.columns if not isinstance(c, str))
        return Factor(name, self.codes, tuple(map(level_name, self.levels)), start, terms, self.intercept, columns,
                      self.table, self.correlated)


def as_groups(groups: Any) -> tuple[Groups, ...]:
    """Factors of `groups` as a user may give them: one, several, a dict of them, or codes in place of any."""
    if groups is None:
        return ()
    if isinstance(groups, Mapping):
        return tuple(_named(value, str(name)) for name, value in groups.items())
    if isinstance(groups, (list, tuple)) and groups and all(isinstance(g, Groups) for g in groups):
        return tuple(groups)
    if isinstance(groups, list) and groups and all(isinstance(g, (Groups, tuple)) or np.ndim(g) > 0 for g in groups):
        return tuple(g if isinstance(g, Groups) else Groups(g, name=_series_name(g)) for g in groups)
    return (groups if isinstance(groups, Groups) else Groups(groups, name=_series_name(groups)),)


def _named(value: Any, name: str) -> Groups:
    if not isinstance(value, Groups):
        return Groups(value, name=name)
    if value.name is not None:
        return value
    new = copy.copy(value)
    new.name = name
    return new


def _series_name(codes: Any) -> str | None:
    name = getattr(codes, "name", None)
    return name if isinstance(name, str) and name else None      # polars has "" where there is none


def _numbered(count: int) -> tuple[str, ...]:
    """What slopes of an array are called."""
    return tuple(f"slope{k}" for k in range(count))


def level_name(level: Hashable) -> str:
    """What a group is called; of a nested factor by the levels it is a combination of."""
    return ":".join(map(str, level)) if isinstance(level, tuple) else str(level)


def known_name(level: Hashable, known: Container[str]) -> str:
    """What a group of other rows is called among names `known`: as it is, or as a number or truth value equal to it.

    pandas makes floats of a column of integers as soon as one is missing, and files hold truth values as 1 and 0.
    """
    return next((name for name in _spellings(level) if name in known), level_name(level))


def _spellings(level: Hashable) -> Iterator[str]:
    """What a group may be called: as it is, then numbers and truth values also as those of other types equal to them.
    """
    parts = level if isinstance(level, tuple) else (level,)
    for own in itertools.product(*map(_equals, parts)):
        yield level_name(own if isinstance(level, tuple) else own[0])


def _equals(part: Any) -> tuple[Any, ...]:
    """A value, and the number or truth value of each other type that is equal to it."""
    if not isinstance(part, (int, float)) or part != part or abs(part) > _WHOLE or part != int(part):
        return (part,)
    return part, int(part), float(part), *([bool(part)] if part in (0, 1) else [])


def _column(column: str | int, names: Sequence[str] | None, n_columns: int, factor: str) -> int:
    if isinstance(column, str):
        if names is None or column not in names:
            known = ("X has columns without names: give its number" if names is None
                     else f"X has columns {', '.join(map(repr, names))}")
            raise ValueError(f"slopes of groups {factor!r} name column {column!r}; {known}")
        return list(names).index(column)
    if not 0 <= column < n_columns:
        raise ValueError(f"slopes of groups {factor!r} name column {column}; X has columns 0 to {n_columns - 1}")
    return column


def _coded(codes: Any, called: str) -> tuple[NDArray[np.int32], tuple[Any, ...]]:
    """Numbers of the groups, and the groups."""
    _checks.unmasked(codes, called)
    if isinstance(codes, tuple):
        return _crossed([_coded(part, called) for part in codes], called)
    categories = getattr(getattr(codes, "cat", codes), "categories", None)
    if categories is not None and hasattr(getattr(codes, "cat", codes), "codes"):
        held = np.array(getattr(codes, "cat", codes).codes, dtype=np.int32)
        _require_groups(held, called)
        _refuse_marked(held < 0, called)
        return held, tuple(categories.tolist())
    if isinstance(codes, Mapping):
        raise ValueError(f"{called} are a dict of {', '.join(map(repr, codes))}; one group for each row is needed"
                         f"{_SLOPES}")
    values = as_values(codes, called)
    if values.ndim != 1:
        raise ValueError(f"{called} have shape {values.shape}; one group for each row, shape (n_rows,), is needed"
                         f"{_SLOPES}")
    _require_groups(values, called)
    refuse_missing(values, called)
    if values.dtype.kind == "O":
        return _of_objects(values.tolist(), called)
    if values.dtype.kind in "iub":
        return _of_integers(values)
    levels, numbers = np.unique(values, return_inverse=True)
    return numbers.ravel().astype(np.int32), tuple(levels.tolist())


def as_values(codes: Any, called: str) -> NDArray[Any]:
    """Groups as an array, of objects where they are of several kinds: words stay apart from None and nan.

    So they are where NumPy would round whole numbers beside others: two such groups may be one float.
    """
    try:
        values = codes if isinstance(codes, np.ndarray) else np.asarray(_plain(codes, called))
        rounds = isinstance(codes, (list, tuple)) and values.dtype.kind == "f" and values.ndim == 1
        return _objects(codes) if rounds and (np.abs(values) >= _checks.LARGE).any() else values
    except ValueError as error:
        if "inhomogeneous" not in str(error):
            raise
        raise ValueError(f"{called} hold arrays of several lengths; one group for each row is needed"
                         f"{_SLOPES}") from error


def _plain(codes: Any, called: str) -> Any:
    """Values of a series or a list; an array of objects where the values are of several kinds."""
    if hasattr(codes, "to_numpy"):
        return codes.to_numpy()
    if isinstance(codes, (str, bytes)) or not hasattr(codes, "__len__"):
        column = f", such as the column frame[{codes!r}]" if isinstance(codes, str) else ""
        raise ValueError(f"{called} is {_checks.shown(codes)}; one group for each row is needed{column}{_SLOPES}")
    kinds = {type(code) for code in codes}
    numbers = all(issubclass(kind, (int, float, np.number)) for kind in kinds)
    if numbers or (len(kinds) == 1 and not kinds & {tuple, list}):
        return codes
    return _objects(codes)


def _objects(codes: Any) -> NDArray[Any]:
    out = np.empty(len(codes), dtype=object)
    out[:] = list(codes)
    return out


def _require_groups(values: NDArray[Any], called: str) -> None:
    if len(values) == 0:
        raise ValueError(f"{called} are empty; one group for each row is needed")


def refuse_missing(values: NDArray[Any], called: str) -> None:
    """Refuse None, nan and their like among groups of any kind."""
    if values.dtype.kind == "O":
        _refuse_marked(no_objects(values), called)
    elif values.dtype.kind == "f":
        _refuse_marked(np.isnan(values), called)
    elif values.dtype.kind in "mM":
        _refuse_marked(np.isnat(values), called)


def no_objects(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Which objects of a vector stand for none: None, nan and their like."""
    return np.array([v is None or (isinstance(v, float) and v != v) or type(v).__name__ in ("NAType", "NaTType")
                     for v in values.tolist()], dtype=np.bool_)


def _refuse_marked(bad: NDArray[np.bool_], called: str) -> None:
    if bad.any():
        row = int(bad.argmax())
        raise ValueError(f"the group of row {row} of {called} is missing; each row must belong to a group: leave such "
                         f"rows out, or make them a group of their own")


def _of_objects(values: list[Any], called: str) -> tuple[NDArray[np.int32], tuple[Any, ...]]:
    try:
        levels = dict.fromkeys(values)
    except TypeError as error:
        raise ValueError(f"{called} hold values, such as lists, that cannot be told apart by their hash; words or "
                         f"numbers are needed") from error
    names: dict[str, Any] = {}
    for level in levels:
        if names.setdefault(str(level), level) is not level:
            raise ValueError(f"{called} hold both {names[str(level)]!r} and {level!r}, which look alike and are two "
                             f"groups: make all of one type")
    try:
        order: list[Any] = sorted(levels)
    except TypeError:
        order = list(levels)
    number = {level: k for k, level in enumerate(order)}
    return np.fromiter((number[v] for v in values), dtype=np.int32, count=len(values)), tuple(order)


def _of_integers(values: NDArray[Any]) -> tuple[NDArray[np.int32], tuple[int, ...]]:
    """Without a sort where the numbers lie close together."""
    low, high = int(values.min()), int(values.max())
    if high - low >= max(4 * len(values), 1 << 16):
        levels, numbers = np.unique(values, return_inverse=True)
        return numbers.ravel().astype(np.int32), tuple(levels.tolist())
    present = np.zeros(high - low + 1, dtype=bool)
    codes = np.empty(len(values), dtype=np.int32)
    for first in range(0, len(values), 1 << 20):
        part = slice(first, first + (1 << 20))
        some = values[part]
        codes[part] = some - np.uint64(low) if some.dtype == np.uint64 else some.astype(np.int64) - low
        present[codes[part]] = True
    number = (np.cumsum(present) - 1).astype(np.int32)
    if not present.all():
        for first in range(0, len(values), 1 << 20):
            codes[first : first + (1 << 20)] = number[codes[first : first + (1 << 20)]]
    return codes, tuple(low + level for level in np.flatnonzero(present).tolist())


def _crossed(
    parts: list[tuple[NDArray[np.int32], tuple[Any, ...]]], called: str
) -> tuple[NDArray[np.int32], tuple[Any, ...]]:
    """Combinations of groups that some row has."""
    if not parts:
        raise ValueError(f"{called} are an empty tuple; arrays of groups, one inside the other, are needed")
    if len({len(codes) for codes, _ in parts}) != 1:
        raise ValueError(f"the arrays of {called} have {', '.join(str(len(codes)) for codes, _ in parts)} entries; a "
                         f"tuple is a factor within another, and all must have one for each row{_SLOPES}")
    joint = parts[0][0].astype(np.int64)
    for codes, levels in parts[1:]:
        joint = np.unique(joint, return_inverse=True)[1].ravel() * len(levels) + codes
    first, numbers = np.unique(joint, return_index=True, return_inverse=True)[1:]
    combined = tuple(tuple(levels[codes[row]] for codes, levels in parts) for row in first)
    return numbers.ravel().astype(np.int32), combined


def row_numbers(
    values: ArrayLike | None, name: str, n_rows: int, good: Any, needed: str, row: str = "row of X"
) -> NDArray[np.float64] | None:
    """A number for each row, or None, if all are finite and `good`; a plain number is that of all rows."""
    if values is None:
        return None
    given = _frames.as_table(values, name, "a vector of numbers")
    if given.dtype.kind not in "fiub" or given.shape not in ((), (n_rows,)):
        one = f"; for the same in all of them, give the number itself, {name}={given[0]}" if given.shape == (1,) else ""
        raise ValueError(f"{name} has shape {given.shape} and dtype {given.dtype}; real numbers of shape ({n_rows},), "
                         f"one for each {row}, are needed{one}")
    kept = given.dtype == np.float64 and given.flags.owndata and given.flags.c_contiguous and not given.flags.writeable
    out = given if kept and given.ndim == 1 else np.array(np.broadcast_to(given, (n_rows,)), dtype=np.float64)
    with np.errstate(invalid="ignore"):
        bad = ~(np.isfinite(out) & good(out))
    if bad.any():
        first = int(bad.argmax())
        raise ValueError(f"{name}[{first}] is {out[first]:g}; each must be {needed}")
    out.flags.writeable = False
    return out
