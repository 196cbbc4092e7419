"""Tables of numbers out of frames, dicts of columns, lists and arrays."""

from __future__ import annotations

import contextlib
import copy
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ParamSpec, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastrace._base import _checks

Floats = NDArray[np.float64]
P = ParamSpec("P")
T = TypeVar("T")

RUNNING = 1000         # rows that show whether a column holds running numbers
INDEX_NAMES = ("", "id", "idx", "index", "row", "rowid", "row_id", "unnamed")
_FEW = 100  # entries of a list that may be of anything; of a longer one, such as of numbers, the types are looked at
MISSING = ": with nan, by .filled(numpy.nan), for what takes missing='drop' or 'worst'"


def column_names(table: Any) -> tuple[str, ...] | None:
    """Names of the columns of a frame or of a dict of columns: what a race calls its arms, and a model its parameters.

    Parameters
    ----------
    table : object
        A frame of pandas, polars, Arrow or Dask, a dict of columns, or anything else.

    Returns
    -------
    tuple of str, or None
        None if the columns have no names.

    Examples
    --------
    >>> from fastrace.sources import column_names
    >>> column_names({"old": [0.1, 0.2], "new": [0.3, 0.2]})
    ('old', 'new')
    """
    if isinstance(table, Mapping):
        found: Any = table.keys()
    elif hasattr(table, "column_names"):        # Arrow, whose `columns` are the data
        found = table.column_names
    else:
        found = None if _checks.is_lazy(table) else getattr(table, "columns", None)
    return None if found is None else tuple(str(name) for name in found)


def row_names(table: Any) -> Any:
    """The index of a frame of pandas, where it says more than that rows count from 0; else None."""
    if not hasattr(table, "columns"):
        return None
    return _telling(next(iter(indexes(table)), None))


def _telling(index: Any) -> Any:
    plain = index is None or getattr(index, "start", None) == 0 and getattr(index, "step", None) == 1
    return None if plain else index


def rows_by_index(*names: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate an ``__init__`` whose arguments of these names, the first ones first, have an entry or row for each row.

    Its errors that begin with the place of such an entry then call the row as the pandas index of the first does, too.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def named(*args: P.args, **given: P.kwargs) -> T:
            held = dict(zip(names, args[1:], strict=False)) | given
            with rows_called_as([held.get(name) for name in names], *names):
                return function(*args, **given)

        return named

    return decorate


@contextlib.contextmanager
def rows_called_as(held: Any, *names: str) -> Iterator[None]:
    """Errors that begin with the place of an entry of these arguments call it as the first index of `held` does, too.

    So do those that name a row of an outcome or of a column.
    """
    try:
        yield
    except ValueError as error:
        found = re.match(rf"(?:(?:{'|'.join(names)})\[(\d+)[^\]]*\]|the group of row (\d+)|y is missing in row (\d+)|"
                         rf"the (?:outcome|column) .* is \S+ in row (\d+)|"
                         rf"column '.* in row (\d+)\b|column '.*, and .*\[(\d+)\])(?! \(row)", str(error))
        index = None if found is None else _telling(next(iter(indexes(held)), None))
        if found is not None and index is not None:
            row = int(next(filter(None, found.groups())))
            called = index[row:][:1].tolist()
            if called and called != [row]:
                error.args = (f"{found[0]} (row {called[0]!r}){str(error)[found.end():]}", *error.args[1:])
        raise


def require_same_rows(**given: Any) -> None:
    """Refuse arguments, by name, whose pandas indexes differ, since rows are matched by position.

    What is not of pandas has no index, and goes with any.
    """
    first: tuple[str, Any] | None = None
    for name, index in ((name, index) for name, value in given.items() for index in indexes(value)):
        first = first or (name, index)
        other = first[1]
        if index is other or len(index) != len(other) or index.equals(other):  # lengths have messages of their own
            continue
        row = int(np.argmax(np.array([a != b for a, b in zip(index, other, strict=True)])))
        both = name if name == first[0] else f"{first[0]} and {name}"
        here, there = (held[row : row + 1].tolist()[0] for held in (other, index))
        raise ValueError(f"the pandas indexes of {both} differ: row {row} is {here!r} in the one and {there!r} in the "
                         f"other. Rows are matched by position: bring all into one order with .loc, or, where they are "
                         f"in one, give them with reset_index(drop=True)")


def order_of(held: Any, wanted: Sequence[Any], what: str, of: str) -> list[int] | None:
    """The place of each name of `wanted` among the names `held`: that of an equal name, or of one with the same text.

    None where values go by position: the names held only count from 0, as pandas, polars and Arrow make them up, or
    are more or fewer than those wanted, which callers refuse in words of their own. Other names are refused, since
    their order would be a guess.
    """
    given = list(held)
    if len(given) != len(wanted) or _counts_up(held, given):
        return None
    texts = [str(name) for name in given]
    pairs: tuple[tuple[list[Any], list[Any]], ...] = ((given, list(wanted)), (texts, [str(name) for name in wanted]))
    for there, needed in pairs:
        places = {name: place for place, name in enumerate(there)}
        if len(places) == len(given) and all(name in places for name in needed):
            return [places[name] for name in needed]
    if only_numbered(held):
        return None
    came, needs = (", ".join(map(repr, names[:10])) + (" ..." if len(names) > 10 else "")
                   for names in (given, list(wanted)))
    raise ValueError(f"{what} has the names {came}; those of the {of}, {needs}, are needed, in any order, or an array "
                     f"without names in just this order")


def _counts_up(held: Any, given: list[Any]) -> bool:
    return type(held).__name__ == "RangeIndex" and given == list(range(len(given)))


def only_numbered(held: Any) -> bool:
    """Whether names only count from 0, as pandas, polars and Arrow make them up."""
    given = list(held)
    texts = [str(name) for name in given]
    return _counts_up(held, given) or any(
        texts == [f"{word}{place}" for place in range(len(given))] for word in ("", "column_"))


def in_order(values: Any, wanted: Sequence[Any], name: str, of: str) -> Any:
    """Values in the order of the names `wanted`, which `order_of` finds among their columns, or in a series's index.

    Values without names, or where `order_of` says None, stay as they are. Of a list each part goes by its own names.
    """
    if isinstance(values, np.ndarray):
        return values
    if isinstance(values, (list, tuple)) and any(
            hasattr(kind, "iloc") or hasattr(kind, "columns") for kind in set(map(type, values))):
        return [in_order(part, wanted, f"{name}[{k}]", of) for k, part in enumerate(values)]
    pandas = hasattr(values, "iloc")
    series = pandas and getattr(values, "ndim", 0) == 1
    held = values.index if series else values.columns if pandas else column_names(values)
    order = None if held is None else order_of(held, wanted, name, of)
    if order is None or order == list(range(len(order))):
        return values
    if pandas:
        return values.iloc[order] if series else values.iloc[:, order]
    return as_table(values, name, "a table of numbers")[:, order]


def floats_in_order(values: Any, wanted: Sequence[str] | None, name: str, of: str = "parameters") -> Floats:
    """A fresh array of floats whose last axis is in the order of the names `wanted`, if there are any."""
    return _checks.floats(in_order(values, wanted or (), name, of), name)


def square_in_order(values: Any, wanted: Sequence[str] | None, name: str, of: str = "parameters") -> Floats:
    """The same of a matrix, whose rows go by the index of a frame of pandas."""
    if not hasattr(values, "iloc") or getattr(values, "ndim", 0) != 2:
        return floats_in_order(values, wanted, name, of)
    order = order_of(values.index, wanted or (), f"the index of {name}", of)
    return floats_in_order(values if order is None else values.iloc[order], wanted, name, of)


def columns_of(table: Any, wanted: Sequence[Any], name: str, of: str) -> Any:
    """A table with its columns in the order of the names `wanted`, by `in_order`; a vector has none, and stays."""
    return table if column_names(table) is None else in_order(table, wanted, name, of)


def block_of(rewards: Any, names: tuple[str, ...] | None, arms: Any, n_arms: int) -> tuple[Any, Any]:
    """Rewards of the `arms` that were asked for, in their order, and the names of all arms, which a first table brings.

    Columns of a table, or entries of a series that is one row, go by the `names` of all arms, or by their numbers.
    """
    held = labels_of(rewards)
    if held is None or only_numbered(held):
        return rewards, names
    given, asked = [str(name) for name in held], [str(arm) for arm in arms]
    if names is not None and not only_numbered(names):
        numbered = sorted(given) == sorted(asked) and not set(asked) <= set(names)
        wanted = asked if numbered else [names[arm] for arm in arms]
        return in_order(rewards, wanted, "rewards", "arms asked for"), names
    if len(given) == len(asked) == n_arms and sorted(given) != sorted(asked):
        _require_different(given, "rewards")
        names = _checks.FoundNames(given[asked.index(str(arm))] for arm in range(n_arms))
    elif len(given) == len(asked) > 1:
        rewards = in_order(rewards, asked, "rewards", "arms asked for, known by their numbers")
    return rewards, names


def answer_of(function: Any, names: tuple[str, ...] | None, arms: Any, rows: Any) -> Any:
    """What a function returns for these arms and rows: columns of a table go by the `names` of all arms, if known.

    Rows of a frame of pandas whose index holds the numbers of the rows go by these, as a pivot sorts them.
    """
    found = function(arms.copy(), rows.copy())      # which it may change
    if isinstance(found, np.ndarray):
        return found
    if names is not None and not only_numbered(names):
        found, _ = block_of(found, names, arms, len(names))
    index: Any = getattr(found, "index", None) if hasattr(found, "iloc") else None
    if getattr(index, "dtype", np.dtype(object)).kind != "i" or hasattr(index, "step") or len(index) != len(rows):
        return found                # an index that only counts says nothing
    place = {row: k for k, row in enumerate(np.asarray(index).tolist())}
    order = [place.get(row, -1) for row in np.asarray(rows).tolist()]
    return found if -1 in order else found.iloc[order]


def by_arm(rewards: Any, names: Sequence[Any] | None, arms: Any) -> Any:
    """A vector of rewards of these `arms`: if a series labels each with the name of an arm, they go by the labels.

    Rewards of one arm keep their order. Other labels are those of pulls or rows, which go by position.
    """
    if names is None or not hasattr(rewards, "iloc") or getattr(rewards, "ndim", 0) != 1:
        return rewards
    held, wanted = [str(label) for label in rewards.index], [names[arm] for arm in arms]
    if held == wanted or not set(held) <= set(names):
        return rewards
    if sorted(held) != sorted(wanted):
        raise ValueError(f"rewards has entries of the arms {some(held)}; those asked for, {some(wanted)}, are needed")
    place = {name: k for k, name in reversed(list(enumerate(wanted)))}
    return rewards.iloc[np.argsort([place[label] for label in held], kind="stable")]


def labels_of(value: Any) -> Any:
    """The labels of a series, or the names of the columns of a table; None of what has none."""
    if hasattr(value, "iloc"):
        return value.index if getattr(value, "ndim", 0) == 1 else value.columns
    return None if isinstance(value, np.ndarray) else column_names(value)


def _require_different(names: Sequence[str], what: str) -> None:
    twin = _checks.twice(names)
    if twin is not None:
        raise ValueError(f"{what} has more than one entry named {twin!r}; different names are needed, one per arm, or "
                         f"an array in the order of the arms")


def arms_called(names: Sequence[Any] | None, n_arms: int | None = None, **given: Any) -> tuple[str, ...] | None:
    """What to call the arms: `names`, if any are said; else as the first series of `given` does, or the first table.

    Of a pair, such as a support, each end may be a series. Labels that are the numbers of the arms name none.
    """
    if names is not None:
        return names if n_arms is None else _checks.arm_names(names, n_arms)        # type: ignore[return-value]
    for what, value in given.items():
        pair = isinstance(value, (tuple, list)) and len(value) == 2
        for part in value if pair else (value,):
            held = labels_of(part)
            if held is None or len(held) < 2 or n_arms not in (None, len(held)) or only_numbered(held):
                continue
            found = [str(name) for name in held]
            if sorted(found) != sorted(map(str, range(len(found)))):
                _require_different(found, what)
                return _checks.FoundNames(found)
    return None


def of_arms(value: Any, names: Sequence[Any] | None, what: str, of: str = "arms") -> Any:
    """What has one entry per arm, in the order of the arms: a series of pandas goes by their `names`.

    It goes by their numbers if these are its labels.
    """
    if not hasattr(value, "iloc") or getattr(value, "ndim", 0) != 1:
        return value
    numbers = list(map(str, range(len(value))))
    numbered, called = sorted(map(str, value.index)) == sorted(numbers), () if names is None else tuple(names)
    if numbered and (names is None or len(called) == len(numbers) and sorted(called) != sorted(numbers)):
        return in_order(value, numbers, what, of)
    return in_order(value, arms_called(names, **{what: value}) or (), what, of)


def support_of_arms(support: Any, names: Sequence[Any] | None) -> Any:
    """A support with its ends in the order of the arms, by `of_arms`. The caller refuses a support that is no pair."""
    if not isinstance(support, (tuple, list)) or len(support) != 2:
        return support
    names = arms_called(names, support=support)
    ends = tuple(of_arms(end, names, f"support[{place}]") for place, end in enumerate(support))
    # Without a new order the same object is returned: callers find out by `is` whether the default was left.
    return support if all(end is given for end, given in zip(ends, support, strict=True)) else ends


def require_same_order(what: str, **held: Any) -> None:
    """Refuse arguments, by name, of which two have the same labels in another order; they are matched by position."""
    first: tuple[str, list[Any]] | None = None
    for name, labels in ((name, list(labels)) for name, labels in held.items() if labels is not None):
        first = first or (name, labels)
        if labels != first[1] and len(labels) == len(first[1]) and set(labels) == set(first[1]):
            raise ValueError(f"{first[0]} and {name} have the same {what} in another order, {some(first[1])} and "
                             f"{some(labels)}. They are matched by position: bring all into one order, or, where they "
                             f"are in one, give arrays without names")


def some(labels: Sequence[Any]) -> str:
    return ", ".join(map(repr, labels[:3])) + (" ..." if len(labels) > 3 else "")


class Indexed:
    """What remembers the pandas index of its rows, as `index`: copies do, and what was pickled does not."""

    index: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "index"}

    def __copy__(self) -> Self:
        return self._with_index(self.__getstate__())

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self._with_index(copy.deepcopy(self.__getstate__(), memo))

    def _with_index(self, state: dict[str, Any]) -> Self:
        new = object.__new__(type(self))
        new.__dict__.update(state)
        if self.index is not None:
            new.index = self.index
        return new


def indexes(value: Any) -> list[Any]:
    """Of frames and series of pandas, of what was made of them and remembers theirs as `index`, or of a dict, list or
    tuple of these.

    An index that is given is a column of values: it labels no rows.
    """
    if isinstance(value, Mapping):
        return [index for part in value.values() for index in indexes(part)]
    if isinstance(value, (list, tuple)) and (
            len(value) < _FEW or any(hasattr(kind, "iloc") for kind in set(map(type, value)))):
        return [index for part in value for index in indexes(part)]
    index = getattr(value, "index", None)
    return [index] if hasattr(index, "equals") and hasattr(index, "get_indexer") else []


def as_table(rewards: Any, name: str = "rewards", needed: str = "a table of numbers, a Source or a function") -> Any:
    """An array of rewards, or of what else `name` says. A frame whose columns differ in dtype is asked for floats."""
    _checks.unmasked(rewards, name, MISSING if "Source" in needed else "")
    if isinstance(rewards, Mapping):
        return _stacked(rewards, name)
    if rewards is None or isinstance(rewards, (str, bytes, set)):
        raise TypeError(f"{name} is of type {type(rewards).__name__}; {needed} is needed: read files first, "
                        f"and take columns out of their frame")
    _refuse_words(_words(rewards), name)
    array = _array(rewards, name)
    _checks.refuse_rounded(rewards, array, name)
    return _checks.numbers_of(array, name)


def _array(rewards: Any, name: str) -> NDArray[Any]:
    if hasattr(rewards, "nnz") and hasattr(rewards, "toarray"):
        raise TypeError(f"{name} is a sparse {type(rewards).__name__} of shape {rewards.shape}; a table in which every "
                        f"reward stands is needed: give {name}.toarray()")
    try:
        return np.asarray(_checks.without_objects(rewards))
    except ValueError as error:
        columns = "arms" if name == "rewards" else "columns"
        needed = f"rows by {columns} with as many {columns} in each row"
        raise ValueError(f"{name} is no table, {needed}: {error}") from error


def is_mapped(array: Any) -> bool:
    """Whether the numbers of an array are in a file."""
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap):
            return True
        array = array.base
    return False


def real_table(values: Any, name: str) -> NDArray[Any]:
    """The array of a table of real numbers; what `name` says is refused if it is none."""
    _checks.unmasked(values, name)
    array = _array(values, name)
    _checks.refuse_rounded(values, array, name)
    array = _checks.numbers_of(array, name)
    if array.ndim != 2:
        raise ValueError(f"{name} has shape {array.shape}; a table of shape (n_rows, n_arms) is needed")
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} has dtype {array.dtype}; rewards must be real numbers")
    return array


def _words(table: Any) -> list[str]:
    """Names of the columns whose types are no real numbers: NumPy would turn dates and words into numbers as well."""
    types = getattr(table, "dtypes", None)      # pandas and polars, in the order of the columns
    if types is None and hasattr(table, "schema"):
        types = getattr(table.schema, "types", None)        # Arrow
    names = column_names(table)
    if names is None or types is None or len(types) != len(names):
        return []
    pairs = enumerate(zip(names, types, strict=True))
    return [name for column, (name, kind) in pairs if not _is_number_type(kind, table, column)]


def _is_number_type(kind: Any, table: Any, column: int) -> bool:
    if hasattr(kind, "is_numeric"):             # polars
        return kind.is_numeric() or str(kind) == "Boolean"
    if hasattr(kind, "to_pandas_dtype"):        # Arrow
        try:
            kind = np.dtype(kind.to_pandas_dtype())
        except (NotImplementedError, TypeError):
            return False
    if kind == np.dtype(object) and hasattr(table, "iloc"):
        missing = table.iloc[:, column].isna()
        return all(map(_checks.is_number, table.iloc[:, column][~missing]))
    return getattr(kind, "kind", "O") in "fiub"


def _stacked(table: Mapping[Any, Any], called: str) -> NDArray[Any]:
    """A dict of columns as a table."""
    arrays = {str(name): _checks.numbers_of(values, f"column {str(name)!r}") for name, values in table.items()}
    _refuse_words([name for name, values in arrays.items() if values.dtype.kind not in "fiub"], called)
    shapes = {values.shape for values in arrays.values()}
    if len(shapes) > 1 or any(len(shape) != 1 for shape in shapes):
        raise ValueError(f"{called} is a dict of columns of shapes "
                         + ", ".join(f"{name}: {values.shape}" for name, values in list(arrays.items())[:5])
                         + "; vectors of one length are needed")
    return np.column_stack(list(arrays.values())) if arrays else np.zeros((0, 0))


def _refuse_words(names: list[str], called: str) -> None:
    if names:
        raise ValueError(f"{called} has columns that are not numbers: {', '.join(names[:5])}; leave them out")


def index_like(name: str, head: NDArray[Any]) -> str:
    """Why a column, of which these are the first rows, looks like an index; empty if it does not."""
    if head.dtype.kind not in "fiu":
        return ""
    with np.errstate(invalid="ignore"):
        whole = bool(np.isfinite(head).all() and (head == np.floor(head)).all())
        if whole and head.size > 2 and bool((np.diff(head.astype(np.float64)) == 1.0).all()):
            return "holds running numbers"
    return "is named like an index" if whole and name.strip().lower().split(":")[0] in INDEX_NAMES else ""
