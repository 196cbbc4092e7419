"""Argument checks, so that one mistake has one wording everywhere."""

import contextlib
import functools
import inspect
import math
import numbers
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from decimal import Decimal
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

Generator = np.random.Generator
RngLike = None | int | np.random.SeedSequence | np.random.BitGenerator | np.random.Generator
Support = tuple[ArrayLike, ArrayLike]
SHOWN = 30             # most numbers of a user's value that an error quotes
COARSE = 5e-13             # of its ends: a support that is narrower leaves too few digits of a float to sums
MOST_COST = 1e280       # of an evaluation: sums of so many stay within a float
MOST = 2**63 - 1        # that 64 bits count
MOST_PULLS = 2**62      # that are counted
FIRST_LOOK = 200        # rewards before an asymptotic interval: its error is then at most 1.2 delta on light tails
_BETWEEN = "fastrace", "contextlib", "formulae"     # modules whose frames stand between a user's line and a warning
LARGE = 2**53               # beyond, a float does not hold every whole number
LOST_DIGITS = ("which no float64 holds: beyond 2**53 it would lose its last digits, and they may be all that differs; "
               "subtract a constant first, or give floats where those digits do not matter")
_FLOATS = "float16", "float32", "float64", "halffloat", "float", "double"      # types of polars and Arrow
OUTSIDE = ("raise", "warn")     # what a race can do with a reward outside its support


def shown(value: Any) -> str:
    """A user's value in an error: its repr where that is short, else its type, and its shape or length."""
    kind, shape = type(value).__name__, getattr(value, "shape", None)
    if isinstance(value, int) and value.bit_length() > 4 * SHOWN:
        return f"<{kind} of about {math.ceil(value.bit_length() * math.log10(2))} digits>"
    if isinstance(shape, tuple):
        size, text = math.prod(shape), f"<{kind} of shape {shape}>"
    elif isinstance(value, (list, tuple, Set, dict)):
        size, text = len(value), f"<{kind} of length {len(value)}>"
    else:
        size, text = 1, f"<{kind}>"
    if size <= SHOWN:
        whole = repr(value)
        if len(whole) <= 4 * SHOWN and "\n" not in whole:
            return whole
    return text


def of_pymc(value: Any) -> str:
    """What an error that asks for a model of this package adds where a `pymc.Model` came."""
    there = f"{type(value).__module__}.".startswith("pymc.")
    return ": mcmc.from_pymc(model) makes one of a pymc.Model" if there else ""


def probability(value: float, name: str) -> float:
    """A float strictly between 0 and 1."""
    number = real(value, name)
    if not 0.0 < number < 1.0:
        raise ValueError(f"{name} is {shown(value)}; a probability strictly between 0 and 1 is needed")
    return number


def real(value: float, name: str) -> float:
    """A float that is not nan."""
    plain = isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind in "fiub"
    if not plain and (not isinstance(value, numbers.Real) or isinstance(value, np.timedelta64)):
        raise TypeError(f"{name} is {shown(value)} of type {type(value).__name__}; a real number is needed")
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(f"{name} is beyond what a float holds; a real number below 1.8e308 is needed") from None
    if math.isnan(number):
        raise ValueError(f"{name} is nan; a real number is needed")
    return number


def integer(value: int, name: str, low: int, why: str) -> int:
    """An int of at least `low` that 64 bits hold."""
    if isinstance(value, (bool, np.bool_, np.timedelta64)) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} is {shown(value)} of type {type(value).__name__}; an integer is needed")
    if value < low:
        raise ValueError(f"{name} is {value}; at least {low} is needed: {why}")
    if value > MOST:
        raise ValueError(f"{name} is {value}; at most 2**63 - 1 is allowed: numbers are counted in 64 bits")
    return int(value)


class _Missing:
    """Stands for an argument that was not given, where None means something."""

    def __repr__(self) -> str:
        return "missing"

    def __reduce__(self) -> str:
        return "MISSING"


MISSING: Any = _Missing()


def first_look(value: int | None) -> int:
    """Rewards before an asymptotic interval."""
    return FIRST_LOOK if value is None else integer(value, "first_look", 2, "a variance needs two rewards")


def is_lazy(value: Any) -> bool:
    """Whether a value is a plan of polars, or of a library over it, whose rows are not read yet."""
    return type(value).__name__ == "LazyFrame"


def require_collected(value: Any, name: str) -> None:
    """Refuse a frame whose rows are not read yet."""
    if is_lazy(value):
        raise TypeError(f"{name} is a LazyFrame, which has no rows yet; give {name}.collect()")


def unmasked(value: Any, name: str, how: str = "") -> None:
    """Refuse an array with masked entries, in a list or dict too: NumPy would read what stands behind the mask."""
    require_collected(value, name)
    if isinstance(value, np.ma.MaskedArray):
        if np.ma.getmaskarray(value).any():
            raise ValueError(f"{name} has masked entries; they have no value, so drop them or fill them first{how}")
    elif isinstance(value, Mapping):
        unmasked(list(value.values()), name, how)
    elif isinstance(value, (list, tuple)) and any(hasattr(part, "__len__") for part in value[:2]):  # no plain numbers
        for part in value:
            unmasked(part, name, how)


def as_array(value: Any, name: str) -> NDArray[Any]:
    """An array of anything, of any shape, without masked entries."""
    unmasked(value, name)
    try:
        return np.asarray(value)
    except (ValueError, TypeError):
        raise ValueError(f"{name} is {shown(value)}; numbers in an array, of as many in each row, are needed") from None


def numbers_of(value: Any, name: str) -> NDArray[Any]:
    """An array of what can be numbers, by `of_objects`, with whole numbers as `exact` takes them."""
    return exact(of_objects(value, name), name)


def of_objects(value: Any, name: str) -> NDArray[Any]:
    """An array, objects as floats if they are numbers, Decimals, or missing (None and NA, which become nan).

    Dates, durations, words and other objects keep their dtype, which the caller refuses: none is read as a number, as
    NumPy would, and categories, or dates in a frame, are refused at once.
    """
    _refuse_kinds(value, name)
    array = as_array(without_objects(value), name)
    refuse_rounded(value, array, name)
    if array.dtype.kind != "O" or array.ndim == 0 and array.item() is None:
        return array
    parts = array.ravel().tolist()
    if not all(is_number(part) or is_absent(part) for part in parts):
        return array
    found = [nearest(part) if is_number(part) else np.nan for part in parts]
    _refuse_lost([part for part, near in zip(parts, found, strict=True) if _is_lost(part, near)], name)
    return np.array(found, dtype=np.float64).reshape(array.shape)


def _refuse_kinds(value: Any, name: str) -> None:
    """Refuse columns of pandas or polars of which NumPy would make numbers that they are not."""
    for kind in _kinds(value):
        if str(kind) == "category" or getattr(kind, "is_temporal", bool)():
            raise TypeError(f"{name} holds values of type {kind}; real numbers are needed: convert what stands for one")


def _kinds(value: Any) -> tuple[Any, ...]:
    """The dtypes of a table or a column of pandas or polars; none of an array."""
    held = () if isinstance(value, np.ndarray) else getattr(value, "dtypes", getattr(value, "dtype", ()))
    return tuple(held) if isinstance(held, Iterable) else (held,)


def without_objects(value: Any) -> Any:
    """A table or a column of pandas with nullable numbers, as an array of floats; anything else as it is.

    NumPy would make an object of each number, which takes thirty times as long, and to look at these takes longer yet.
    """
    kinds = _kinds(value) if hasattr(value, "iloc") else ()
    if all(isinstance(kind, np.dtype) for kind in kinds) or not all(kind.kind in "fiub" for kind in kinds):
        return value
    return value.to_numpy(dtype=np.float64, na_value=np.nan)


def exact(array: NDArray[Any], name: str) -> NDArray[Any]:
    """The same array; whole numbers in it that no float holds are refused."""
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8 and array.size and (
            array.min() < -LARGE or array.max() > LARGE):
        with np.errstate(invalid="ignore"):
            rounded = array.astype(np.float64)
            back = rounded.astype(array.dtype)
        _refuse_lost(array[(back != array) | (rounded >= float(np.iinfo(array.dtype).max))].tolist(), name)
    return array


def refuse_rounded(value: Any, array: NDArray[Any], name: str) -> None:
    """Refuse what `exact` refuses in a list, a column or a table of which NumPy has made this array of floats.

    It does so with whole numbers beside floats or missing values, and rounds them without a word.
    """
    if array.dtype.kind == "f" and not isinstance(value, np.ndarray) and (np.abs(array) >= LARGE).any():
        _refuse_lost([part for part in _entries(value) if is_number(part) and _is_lost(part, nearest(part))], name)


def _entries(value: Any) -> Iterator[Any]:
    """What stands in a list, a column or a table, of pandas, polars or Arrow too.

    Floats are left out, and so are small whole numbers of columns of pandas and of arrays: a million of them, one by
    one, would take seconds.
    """
    kind = getattr(value, "dtype", getattr(value, "type", None))        # of a column; of Arrow "type"
    letter = getattr(kind, "kind", "O")
    if letter == "f" and getattr(kind, "itemsize", 8) <= 8 or str(kind).lower() in _FLOATS:
        return
    if letter in "iub" and getattr(value, "ndim", 0) > 0:
        value = value[np.abs(np.asarray(without_objects(value), dtype=np.float64)) >= LARGE]
    if hasattr(value, "items"):         # of dicts and of pandas
        parts: Any = [part for _, part in value.items()]
    elif isinstance(value, (list, tuple)):
        parts = value
    else:
        ways = ("iter_columns", "itercolumns", "to_pylist", "to_list", "tolist")
        parts = next((getattr(value, way)() for way in ways if hasattr(value, way)), value)
    if not isinstance(parts, Iterable) or isinstance(parts, str):
        yield parts
        return
    for part in parts:
        if type(part) is not float:
            yield from _entries(part)


def _is_lost(number: Any, near: float) -> bool:
    """Whether a number is so large that `near`, its float, is another."""
    return abs(near) >= LARGE and bool(near != (int(number) if isinstance(number, numbers.Integral) else number))


def _refuse_lost(lost: list[Any], name: str) -> None:
    if lost:
        raise ValueError(f"{name} holds {shown(lost[0])}, {LOST_DIGITS}")


def nearest(number: Any) -> float:
    """The float of a number; an infinite one of those beyond what a float holds."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def is_absent(value: Any) -> bool:
    """Whether an object stands for a number that is missing."""
    return value is None or type(value).__name__ == "NAType"


def is_readable(value: Any) -> bool:
    """Whether `of_objects` and `exact` take an object in an array: a number that a float holds, or a missing one."""
    if not is_number(value):
        return is_absent(value)
    return not _is_lost(value, nearest(value))


def is_number(value: Any) -> bool:
    """Whether an object is a real number or a Decimal; NumPy counts durations among its integers."""
    return isinstance(value, (numbers.Real, Decimal, np.bool_)) and not isinstance(value, np.timedelta64)


def reals(value: ArrayLike, name: str) -> NDArray[np.float64]:
    """An array of floats of any shape, nan among them."""
    array = numbers_of(value, name)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{name} is {shown(value)} of dtype {array.dtype}; real numbers are needed")
    return array.astype(np.float64, copy=False)


def floats(value: ArrayLike, name: str) -> NDArray[np.float64]:
    """A fresh array of floats, of numbers of any kind."""
    array = numbers_of(value, name)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} is {shown(value)} of dtype {array.dtype}; real numbers in an array are needed")
    return np.array(array, dtype=np.float64, order="C")


def users_level() -> int:
    """`stacklevel` of a warning by the caller that names the user's line, however many of our functions lie between.

    A context manager that decorates one of them adds a frame of contextlib, which lies between too.
    """
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        frame, level = frame.f_back, level + 1
    return level


def room(n_bytes: float, what: str) -> None:
    """Refuse what would take more memory than there is, before it is asked for."""
    try:
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):       # not known here
        there = 1 << 40
    if n_bytes > there:
        raise ValueError(f"{what} would take {n_bytes:.3g} bytes of memory at least; there are {there:.3g}: fewer are "
                         f"needed")


def reals_where(value: ArrayLike, name: str, good: Callable[[Any], Any], needed: str) -> NDArray[np.float64]:
    """An array of floats that all pass `good`; the error quotes the first that does not."""
    array = reals(value, name)
    bad = ~np.asarray(good(array))
    if bad.any():
        raise ValueError(f"{name} is {array[bad].flat[0].item()}; {needed}")
    return array


def probabilities(value: ArrayLike, name: str) -> NDArray[np.float64]:
    """An array of floats strictly between 0 and 1."""
    needed = "a probability strictly between 0 and 1 is needed"
    return reals_where(value, name, lambda array: (array > 0.0) & (array < 1.0), needed)


def counts(value: ArrayLike, name: str) -> NDArray[np.int64]:
    """An array of whole numbers from 1 to 2^62, also if given as floats."""
    array = as_array(value, name)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{name} is {shown(value)} of dtype {array.dtype}; whole numbers are needed")
    bad = ~((array >= 1) & (array <= 2**62))
    if array.dtype.kind == "f":
        bad |= array != np.floor(array)
    if np.any(bad):
        first = array[bad].flat[0].item()
        raise ValueError(f"{name} is {first}; a whole number from 1 to 2**62 is needed: it counts rows")
    return array.astype(np.int64, copy=False)


def indices(value: ArrayLike, name: str, size: int) -> NDArray[np.int64]:
    """A vector of indices below `size`, from a vector or a single one."""
    array = np.atleast_1d(as_array(value, name))
    if array.ndim != 1 or array.size and array.dtype.kind not in "iu":
        raise TypeError(f"{name} is {shown(value)}; an integer or a vector of integers is needed")
    bad = array[(array < 0) | (array >= size)]
    if bad.size:
        raise ValueError(f"{name} has {bad[0]}; indices from 0 to {size - 1} are needed")
    return array.astype(np.int64)


def one(array: NDArray[Any], name: str) -> Any:
    """The number in an array without dimensions."""
    if array.ndim:
        raise ValueError(f"{name} has shape {array.shape}; a single number is needed")
    return array.item()


def choice(value: str, name: str, options: tuple[str, ...]) -> str:
    """One of `options`; underscores may stand for hyphens."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is {shown(value)}; one of {', '.join(options)} is needed")
    word = value.lower().replace("_", "-")
    if word not in options:
        raise ValueError(f"{name} is {shown(value)}; one of {', '.join(options)} is needed")
    return word


def arm_values(value: ArrayLike, name: str, n_arms: int, of: str = "arm") -> NDArray[np.float64]:
    """One float per arm, or what else it is `of`, from a scalar or a vector; a fresh array."""
    array = numbers_of(value, name)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} has dtype {array.dtype}; real numbers are needed")
    if array.ndim > 1 or (array.ndim == 1 and array.shape[0] != n_arms):
        needed = f"a scalar or shape ({n_arms},), one value per {of}, is needed"
        raise ValueError(f"{name} has shape {array.shape}; {needed}")
    return np.array(np.broadcast_to(array, (n_arms,)), dtype=np.float64)


class FoundNames(tuple[str, ...]):
    """Names of arms that nobody said: a series or a table brought them, and what comes later must have the same."""


def arm_names(names: Sequence[Any] | None, n_arms: int, noun: str = "arm") -> tuple[str, ...] | None:
    """What to call the arms, or what else has names: one name each, no two alike; None if they have none."""
    if names is None:
        return None
    if isinstance(names, (str, bytes, Set)) or hasattr(names, "columns") or not isinstance(names, Iterable):
        raise TypeError(f"names is {shown(names)}; a sequence of names is needed, one for each of {n_arms} {noun}s")
    found = (FoundNames if isinstance(names, FoundNames) else tuple)(str(name) for name in names)
    if len(found) != n_arms:
        raise ValueError(f"names has {len(found)} entries; one per {noun} is needed, and there are {n_arms}")
    twin = twice(found)
    if twin is not None:
        raise ValueError(f"names has {twin!r} more than once; different names are needed")
    return found


def arm_error(race: object, arm: int, text: str) -> ValueError:
    """An error of a race about a reward of an arm, which the `named_arms` of the same race can name."""
    error = ValueError(text)
    error._fastrace_arm = id(race), arm  # type: ignore[attr-defined]
    return error


def silence(error: ValueError, arms: list[int]) -> ValueError:
    """The error, of a race that refuses the silence of these arms."""
    error._fastrace_silent = arms  # type: ignore[attr-defined]
    return error


def silent_arms(error: BaseException) -> list[int]:
    """The arms whose silence a race has refused; none of any other error."""
    return list(vars(error).get("_fastrace_silent", ()))


class named_arms:
    """Context manager: let an `arm_error` of this race begin with what the arm is called; leave all other errors alone.

    Those may come from a user's function, and even from another race that it runs. Quick, as single draws enter it.
    Where the table has an index, `rows`, the row that the error is about is called by it, too.
    """

    def __init__(self, names: Sequence[str] | None, race: object, rows: Any = None) -> None:
        self.names, self.race, self.rows = names, race, rows

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if type(error) is not ValueError:
            return
        race, arm = vars(error).get("_fastrace_arm", (None, -1))
        if race == id(self.race):
            del error._fastrace_arm  # type: ignore[attr-defined]
            place = None if self.rows is None else re.match(r"the reward of arm \d+ (?:on|in) row (\d+)", str(error))
            if place is not None:
                called = self.rows[int(place[1]) :][:1].tolist()[0]
                error.args = (f"{place[0]} ({called!r}){str(error)[place.end():]}",)
            if self.names is not None:
                error.args = (f"arm {arm} is {self.names[arm]!r}: {error}",)


def twice(names: Sequence[str]) -> str | None:
    """The first name that stands there before, if any does."""
    seen: set[str] = set()
    return next((name for name in names if name in seen or seen.add(name)), None)  # type: ignore[func-returns-value]


def arm_costs(value: ArrayLike, n_arms: int) -> NDArray[np.float64]:
    """What one evaluation of each arm costs."""
    found = arm_values(value, "cost", n_arms)
    if not ((found >= 0.0) & (found <= MOST_COST)).all():
        raise ValueError(f"cost is {shown(value)}; finite numbers of at least 0 are needed, up to 1e280")
    return found


MISSING_REWARDS = ("raise", "drop", "worst")     # what a missing reward may do


def missing(value: str, bounded: bool) -> str:
    """What becomes of a missing reward; the worst one is known where there is a support."""
    found = choice(value, "missing", MISSING_REWARDS)
    if found == "worst" and not bounded:
        raise ValueError("missing is 'worst' and support is None; the worst reward is the low end of a support")
    return found


def epsilon(value: float) -> float:
    """How far below the best a mean may be, in reward units."""
    found = real(value, "epsilon")
    if not 0.0 <= found < math.inf:
        raise ValueError(f"epsilon is {value!r}; a finite number of at least 0 is needed, in reward units")
    return float(found)


def n_best(value: int, n_arms: int) -> int:
    """How many arms are asked for."""
    count = integer(value, "n_best", 1, "there must be something to find")
    if count > n_arms:
        raise ValueError(f"n_best is {value} and there are {n_arms} arms; at most all of them can be asked for")
    return count


def budget(value: int | None, n_arms: int, unpulled: bool) -> int | None:
    """Most pulls of a run, at least one of each arm, where some have had none yet."""
    if value is None:
        return None
    limit = integer(value, "max_pulls", 1, "it counts rewards")
    if limit < n_arms and unpulled:
        raise ValueError(f"max_pulls is {limit}; at least {n_arms} is needed, one reward of each arm that can win: "
                         f"without, the choice would be arbitrary")
    return limit


def flag(value: bool, name: str) -> bool:
    """True or False; no other value, whose truth may not be what was meant."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} is {shown(value)}; True or False is needed")
    return bool(value)


def support_bounds(support: Support, n_arms: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(low, high) as one value per arm."""
    try:
        low, high = support
    except (TypeError, ValueError):
        raise ValueError(f"support is {shown(support)}; a pair (low, high) that holds every reward is needed") from None
    lows, highs = arm_values(low, "support[0]", n_arms), arm_values(high, "support[1]", n_arms)
    if not (np.isfinite(lows).all() and np.isfinite(highs).all() and (lows <= highs).all()):
        raise ValueError(f"support is {shown(support)}; finite ends with low <= high are needed")
    with np.errstate(over="ignore"):        # a width beyond what a float holds is not narrow
        widths = highs - lows
    far = (highs > lows) & (widths < COARSE * np.maximum(np.abs(lows), np.abs(highs)))
    if far.any():
        raise ValueError(_too_far(shown(support), "support"))
    return lows, highs


def _too_far(given: str, name: str) -> str:
    return (f"{name} is {given}, too narrow so far from 0: sums of such rewards lose the digits that tell them apart; "
            f"subtract a constant from rewards and support first")


def interval(value: tuple[float, float], name: str = "support") -> tuple[float, float]:
    """A pair (low, high) of finite floats with low < high."""
    try:
        low, high = value
    except (TypeError, ValueError):
        raise ValueError(f"{name} is {shown(value)}; a pair (low, high) that holds every reward is needed") from None
    low, high = real(low, f"{name}[0]"), real(high, f"{name}[1]")
    if not (math.isfinite(low) and math.isfinite(high) and low < high and math.isfinite(high - low)):
        raise ValueError(f"{name} is {shown(value)}; finite ends with low < high are needed: the promise rests on the "
                         f"range")
    if high - low < COARSE * max(abs(low), abs(high)):
        raise ValueError(_too_far(shown(value), name))
    return low, high


def positive(value: float, name: str, why: str) -> float:
    """A finite float above 0."""
    number = real(value, name)
    if not 0.0 < number < math.inf:
        raise ValueError(f"{name} is {shown(value)}; a finite number above 0 is needed: {why}")
    return number


def generator(rng: RngLike, name: str = "rng") -> Generator:
    """A NumPy generator from None, an int, a SeedSequence, a BitGenerator or a Generator."""
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError) as error:
        needed = "None, an int, a SeedSequence or a numpy.random.Generator is needed"
        raise type(error)(f"{name} is {shown(rng)}; {needed}") from error


def children(rng: Generator, count: int) -> list[Generator]:
    """Generators that are independent of each other; seeded by draws of one that does not know its own seed."""
    try:
        return rng.spawn(count)
    except TypeError:           # as of a RandomState
        return [np.random.default_rng(rng.integers(2**63, size=4).tolist()) for _ in range(count)]


def log_density_at(function: Callable[..., Any], point: NDArray[np.float64]) -> float:
    """A user's log_prior at a point, which may be -inf. What it raises comes through, with a note of where it did.

    Raises
    ------
    ValueError
        If it is no number, nan or +inf.
    """
    try:
        found = function(point)
    except Exception as error:
        error.add_note(f"raised by log_prior({getattr(function, '__name__', type(function).__name__)}) at theta = "
                       f"{shown(point.tolist())}; it is given an array of {len(point)} parameters")
        raise
    try:
        value = float(found)
    except (TypeError, ValueError):
        raise ValueError(f"log_prior returned {shown(found)} at {point}; one number, the log density of all "
                         f"{len(point)} parameters, is needed, such as the sum of those of its entries") from None
    if math.isnan(value) or value == math.inf:
        raise ValueError(f"log_prior returned {value} at {point}; a finite number is needed, or -inf where the "
                         f"parameters are impossible")
    return value


def takes(function: Callable[..., Any], name: str, *arguments: str, hint: str = "") -> None:
    """Refuse a function that cannot be called with these arguments; a built-in function may hide what it takes."""
    try:
        found = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        return
    try:
        found.bind(*arguments)
    except TypeError as error:
        raise TypeError(
            f"{name} is called as {name}({', '.join(arguments)}), and it takes {found}: {error}{hint}"
        ) from None


def is_async(function: Any) -> bool:
    """Whether calls of a function have to be awaited."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def at_once(value: Any, name: str, gives: str = "rewards") -> None:
    """Refuse what would have to be awaited: a function, or what a function called `name` has returned."""
    awaitable = inspect.isawaitable(value)
    if awaitable or is_async(value):
        if inspect.iscoroutine(value):
            value.close()
        instead = "give a plain function"
        if gives == "rewards":
            instead = (f"await fastrace.race_async(evaluate, ...), which takes an async evaluate(arm, row) and keeps "
                       f"many calls under way at once, or {instead}")
        raise TypeError(
            f"{name} {'returned what has to be awaited' if awaitable else 'is a coroutine function (async def)'}, and "
            f"here its {gives} are used as they come; {instead}"
        )


class DamagedError(ValueError):
    """A saved state that cannot be right; the message names the part that was damaged."""


@contextlib.contextmanager
def undamaged(what: str) -> Iterator[None]:
    """Context manager: what a damaged saved state raises becomes a ValueError that names what was saved."""
    try:
        yield
    except DamagedError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        said = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise DamagedError(f"the saved {what} is damaged: {said}") from error


class Rebuild(Protocol):
    """A function that `rebuilds` has decorated."""

    def __call__(self, found: Any, *state: Any) -> Any: ...
    def saved(self, *state: Any, extra: Any = None) -> tuple[Any, ...]: ...


def rebuilds(
    version: int, base: type, *, subclasses: bool = False, calls_user: bool = False
) -> Callable[[Callable[..., Any]], Rebuild]:
    """Decorator of the function of a module that makes a `base` from its saved state.

    ``__reduce__`` returns ``function.saved(*state)``. The saved form holds the version; another version, and damage of
    any kind, is a ValueError. Where `subclasses` is set, the state begins with the class to make. Where `calls_user`
    is set, the function calls code of the user, whose errors reach the user unchanged.
    """

    def decorate(make: Callable[..., Any]) -> Rebuild:
        @functools.wraps(make)
        def rebuild(found: Any, *state: Any) -> Any:
            if not isinstance(found, int) or found != version:
                raise ValueError(
                    f"this {base.__name__} was pickled as version {found!r}; this fastrace reads version {version}"
                )
            with contextlib.nullcontext() if calls_user else undamaged(base.__name__):
                if subclasses and not (state and isinstance(state[0], type) and issubclass(state[0], base)):
                    raise ValueError(f"it names {state[:1]}, not a {base.__name__}")
                return make(*state)

        def saved(*state: Any, extra: Any = None) -> tuple[Any, ...]:
            """What ``__reduce__`` returns; `extra` is the ``__dict__`` of an object of a subclass, if it has any."""
            form = (rebuild, (version, *state))
            return (*form, extra) if extra else form

        decorated: Any = rebuild
        decorated.saved = saved
        return decorated

    return decorate
