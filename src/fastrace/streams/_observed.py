"""What a comparison keeps of each arm, a compiled stream or sums by cluster; its columns of frames, and its ratios."""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import math
from collections.abc import Callable, Hashable, Iterable
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrace._base import _checks, _frames
from fastrace._base._checks import shown
from fastrace._base._words import one_line
from fastrace.streams._keys import canonical, dates_of, is_itself
from fastrace.streams._sequences import Sequence, doubts

# Units, mean counted from the origin, variance of a unit, skewness, origin.
Moments = tuple[int, float, float, float, float]


class _Bounded(Sequence):
    """Rewards of a known support."""

    def __init__(self, support: tuple[float, float], delta: float) -> None:
        self._open({"support": support, "delta": delta}, "universal", running=False, support=support, delta=delta)


class _Unbounded(Sequence):
    """Rewards of an unknown support; their moments are asked for."""

    def __init__(self) -> None:
        self._open({}, "asymptotic", support=None, delta=0.5)


class _Clusters:
    """Sums of rewards by cluster: the mean is a ratio estimator, whose unit is the cluster."""

    origin = 0.0        # what rewards count from: the first one, so that sums far from 0 keep what rewards differ by

    def __init__(self) -> None:
        self.place: dict[Hashable, int] = {}        # of a cluster in `sums`
        self.sums = np.zeros((2, 16))               # rewards, and their sum

    def __copy__(self) -> _Clusters:
        new = _Clusters()
        new.place, new.sums, new.origin = dict(self.place), self.sums.copy(), self.origin
        return new

    def canonical(self) -> _Clusters:
        """The same with canonical keys, which those of an older saved state need not be."""
        used, keys = len(self.place), list(self.place)
        found = canonical(keys)
        if found == keys:
            return self
        new = _Clusters()
        new.add(found, self.sums[0, :used], self.sums[1, :used], self.origin)
        return new

    def add(self, keys: Iterable[Hashable], counts: Any, totals: Any, origin: float = 0.0) -> None:
        """Add rewards, with sums that count from `origin`, to the clusters of these keys; a key may come several times.
        """
        if not self.place:
            self.origin = float(np.ravel(totals)[0]) if origin == 0.0 else origin
        totals = totals + (origin - self.origin) * np.asarray(counts)
        keys, place = list(keys), self.place
        fresh = [key for key in dict.fromkeys(keys) if key not in place]
        place.update(zip(fresh, range(len(place), len(place) + len(fresh)), strict=True))
        places = np.fromiter(map(place.__getitem__, keys), np.intp, len(keys))
        if len(self.place) > self.sums.shape[1]:
            wider = np.zeros((2, max(2 * self.sums.shape[1], len(self.place))))
            wider[:, : self.sums.shape[1]] = self.sums
            self.sums = wider
        np.add.at(self.sums[0], places, counts)
        np.add.at(self.sums[1], places, totals)

    def mark(self, keys: Iterable[Hashable]) -> Callable[[], _Clusters]:
        """What undoes all that is added to these keys, or to new ones, from now on; it costs nothing for other keys."""
        held = self.place
        places = np.array(list({held[key] for key in keys if key in held}), dtype=np.intp)
        return functools.partial(self._undo, len(held), self.origin, places, self.sums[:, places])

    def _undo(self, used: int, origin: float, places: NDArray[np.intp], sums: NDArray[np.float64]) -> _Clusters:
        self.sums[:, places] = sums
        self.sums[:, used:] = 0.0
        self.place = dict(itertools.islice(self.place.items(), used))       # clusters are numbered in this order
        self.origin = origin
        return self

    @property
    def n_samples(self) -> int:
        return int(self.sums[0].sum())

    def _absorb(self, other: _Clusters) -> None:
        used = len(other.place)
        if used:
            self.add(other.place, other.sums[0, :used], other.sums[1, :used], other.origin)

    def _moments(self) -> Moments:
        """Clusters, ratio of sums, and moments of what clusters add to its error."""
        units = len(self.place)
        if units == 0:
            return 0, math.nan, math.nan, math.nan, self.origin
        mean, away = self._away()
        square = float(np.square(away).sum())
        variance = square / (units - 1) if units > 1 else math.nan
        skewness = float((away**3).mean()) / (square / units) ** 1.5 if square > 0.0 else math.nan
        return units, mean, variance, skewness, self.origin

    def _away(self) -> tuple[float, NDArray[np.float64]]:
        """The ratio of sums, and what each cluster adds to the error of it, times the number of clusters."""
        counts, totals = self.sums[:, : len(self.place)]
        mean = float(totals.sum() / counts.sum())
        return mean, (totals - mean * counts) / counts.mean()

    def _doubts(self) -> tuple[str, ...]:
        units, _, _, skewness, _ = self._moments()
        found: tuple[str, ...] = doubts(units, skewness, "clusters") if units > 1 else ()
        return found


class _Shared:
    """Which clusters arms have in common; keys are numbered as they come, so that each is looked up once."""

    def __init__(self, n_arms: int) -> None:
        self.numbers: dict[Hashable, int] = {}
        self.columns = [np.zeros(0, dtype=np.intp)] * n_arms    # numbers of each arm's clusters, in its order

    def __call__(
        self, arms: list[_Clusters], pairs: NDArray[np.intp]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Clusters that have rewards in both arms of each pair, and the covariances of the errors of the two means."""
        numbers, sizes = self.numbers, [len(arm.place) for arm in arms]
        for k, arm in enumerate(arms):
            keys = itertools.islice(arm.place, len(self.columns[k]), None)
            more = [numbers.setdefault(key, len(numbers)) for key in keys]
            self.columns[k] = np.concatenate([self.columns[k], np.array(more, dtype=np.intp)])
        column, row = np.concatenate(self.columns), np.repeat(np.arange(len(arms)), sizes)
        errors = [arm._away()[1] / size if size else np.zeros(0) for arm, size in zip(arms, sizes, strict=True)]
        error = np.concatenate(errors)
        common, covariance = np.zeros((2, len(pairs)))
        for other in np.unique(pairs[:, 1]).tolist():
            seen, theirs = np.zeros((2, len(numbers)))
            seen[self.columns[other]], theirs[self.columns[other]] = 1.0, errors[other]
            chosen = pairs[:, 1] == other
            arm = pairs[chosen, 0]
            common[chosen] = np.bincount(row, seen[column], len(arms))[arm]
            covariance[chosen] = np.bincount(row, error * theirs[column], len(arms))[arm]
        return common, covariance


def marked(arms: list[Any], codes: NDArray[np.intp], keys: list[Hashable] | None) -> dict[int, Callable[[], Any]]:
    """By arm of these rewards, what gives it as it is now, once they have been added."""
    undo: dict[int, Callable[[], Any]] = {}
    for code, places in enumerate(split(codes, len(arms))):
        if places.size and keys is None:
            undo[code] = functools.partial(_same, copy.copy(arms[code]))
        elif places.size and keys is not None:
            undo[code] = arms[code].mark(map(keys.__getitem__, places.tolist()))
    return undo


def _same(arm: Any) -> Any:
    return arm


def split(codes: NDArray[np.intp], n_arms: int) -> list[NDArray[np.intp]]:
    """The places of each arm's rewards, in order."""
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.searchsorted(codes[order], np.arange(1, n_arms)))


def column(frame: Any, name: str, what: str) -> NDArray[Any]:
    """A column of a frame, without missing entries."""
    _checks.require_collected(frame, "frame")
    columns = list(_frames.column_names(frame) or ())
    if not columns:
        raise ValueError(f"{what} is {name!r}, and frame, a {type(frame).__name__}, has no columns; a frame with a row "
                         f"per reward is needed")
    if columns.count(name) > 1:
        raise ValueError(f"{what} is {name!r}, and {columns.count(name)} columns are called so; rename or drop all but "
                         f"one")
    if name not in columns:
        some = ", ".join(columns[:10]) + (", ..." if len(columns) > 10 else "")
        raise ValueError(f"{what} is {name!r}, and there is no such column; there are {some}")
    values = (_checks.as_array if what == "time" else dates_of)(frame[name], f"column {name!r}")
    if what == "arm" and not len(values):
        raise ValueError("the frame has no rows; a row per reward is needed")
    if values.dtype.kind in "fmM":
        missing = np.isnat(values) if values.dtype.kind in "mM" else np.isnan(values)
    else:
        missing = np.zeros(values.shape, dtype=bool)
        if values.dtype.kind == "O":
            missing[:] = [value is None or not is_itself(value) for value in values.tolist()]
    if missing.any():
        raise ValueError(f"column {name!r} has {int(missing.sum())} missing entries, the first in row "
                         f"{int(np.argmax(missing))}, counted from 0; drop or fill such rows")
    if what == "reward":
        _checks.refuse_rounded(frame[name], values, f"column {name!r}")
        return _checks.numbers_of(values, f"column {name!r}") if values.dtype.kind == "O" else values
    return values


def ratios(
    low: NDArray[Any], high: NDArray[Any], lower: NDArray[Any], upper: NDArray[Any], base_low: NDArray[Any],
    base_high: NDArray[Any],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bounds of an arm's mean over another's, from the difference over the base, and from the arm over the base."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        least = np.maximum(1.0 + np.where(low >= 0.0, low / base_high, low / base_low),
                           np.where(lower >= 0.0, lower / base_high, lower / base_low))
        most = np.minimum(1.0 + np.where(high >= 0.0, high / base_low, high / base_high),
                          np.where(upper >= 0.0, upper / base_low, upper / base_high))
        edge = (base_low >= 0.0) & (lower >= 0.0)        # a mean of 0 is possible, one below is not
        least = np.where(base_low > 0.0, least, np.where(edge & (base_high > 0.0), lower / base_high, -np.inf))
    unknown = ~np.isfinite(base_low) | ~np.isfinite(base_high)
    least = np.where(unknown | np.isnan(least), -np.inf, least)
    return least, np.where(unknown | ~(base_low > 0.0) | np.isnan(most), np.inf, most)


def instants(times: NDArray[Any], name: str) -> NDArray[Any]:
    """Times by which to sort: those in words as dates of ISO 8601, or as numbers if all are."""
    if times.dtype.kind == "c" or times.dtype.names is not None:
        raise ValueError(f"column {name!r} has dtype {times.dtype}; numbers, dates or words are needed, as others do "
                         f"not sort by time")
    if times.dtype.kind not in "OUS":
        return times
    words = times.tolist()
    spelled = [isinstance(time, str) for time in words]
    if any(spelled) and not all(spelled):
        row, other = spelled.index(True), spelled.index(False)
        raise ValueError(f"column {name!r} holds {shown(words[row])} in row {row} and {shown(words[other])} in row "
                         f"{other}; one kind of times is needed, as words and others cannot be compared")
    if all(isinstance(time, datetime) for time in words):
        return _moments_of(words, name)
    if not all(spelled):
        return _sortable(times, name)
    with contextlib.suppress(ValueError):
        numbers = np.array([float(word) for word in words])
        if np.isfinite(numbers).all():
            return numbers
    found = []
    for row, word in enumerate(words):
        try:
            found.append(datetime.fromisoformat(word))
        except ValueError:
            raise ValueError(f"column {name!r} holds {shown(word)} in row {row}; numbers, dates, or words as of ISO "
                             f"8601 are needed, such as '2026-11-28T09:30', as others do not sort by time") from None
    return _moments_of(found, name)


def later(mine: Any, theirs: Any) -> Any:
    """The later of two times, of which each may be missing."""
    if mine is None or theirs is None:
        return theirs if mine is None else mine
    try:
        return theirs if theirs > mine else mine
    except TypeError:
        raise ValueError(f"the last time is {shown(mine)} on one side and {shown(theirs)} on the other, which cannot "
                         f"be compared; times of one kind are needed, all with a time zone or none") from None


def _moments_of(found: list[datetime], name: str) -> NDArray[Any]:
    """Ranks of dates, which may be of different time zones; all have one, or none has."""
    if len({when.utcoffset() is None for when in found}) == 2:
        raise ValueError(f"column {name!r} holds times with a time zone and without; one of the two is needed, as "
                         f"they cannot be compared")
    held = np.empty(len(found), object)
    held[:] = found
    return _sortable(held, name)


def _sortable(times: NDArray[Any], name: str) -> NDArray[Any]:
    """Objects that compare with one another, as their ranks."""
    try:
        return np.unique(times, return_inverse=True)[1].reshape(times.shape)
    except TypeError as error:
        raise ValueError(f"column {name!r} holds times that cannot be compared ({one_line(error)}); one kind of times "
                         f"is needed: numbers, dates, or words as of ISO 8601") from None
