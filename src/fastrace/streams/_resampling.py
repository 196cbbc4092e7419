"""Permutations of samples, and statistics of the permuted samples, for `permutation`."""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace._base import _checks

ALTERNATIVES = ("two-sided", "greater", "less")
TYPES = ("independent", "samples", "pairings")
LISTED = 1 << 22        # most entries of a list of all permutations
Statistic = Callable[[Sequence[NDArray[Any]]], NDArray[np.float64]]


def per_hypothesis(statistic: Callable[..., Any], vectorized: bool | None) -> Statistic:
    """The statistic as a function of samples of shape (..., n), of shape (...)."""
    if vectorized is None:
        vectorized = "axis" in inspect.signature(statistic).parameters

    def at_once(samples: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
        return _checks.reals(statistic(*samples, axis=-1), "what statistic returns")

    def by_row(samples: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
        shape = samples[0].shape[:-1]
        values = [statistic(*(sample[index] for sample in samples)) for index in np.ndindex(*shape)]
        for value in values:
            if np.size(value) != 1:
                raise ValueError(f"statistic returned {_checks.shown(value)}; one number is needed of each call. "
                                 f"For several hypotheses at once give samples with a row for each")
        return _checks.reals(values, "what statistic returns").reshape(shape)

    return at_once if _checks.flag(vectorized, "vectorized") else by_row


class Resamples:
    """Permutations of samples, one after the other; the same whichever numbers of them are asked for.

    `n_others` is the number of permutations besides the data as they are, where they are few enough to take each once;
    else None.
    """

    def __init__(
        self, data: Sequence[ArrayLike], kind: str, axis: int, n_resamples: int, rng: np.random.Generator
    ) -> None:
        self._kind, self._rng, self._used = kind, rng, 0
        self._at, self._values = -1, list[NDArray[np.float64]]()       # of the request under way
        self._order: NDArray[np.intp] | None = None
        self._samples, self.shape = aligned(data, axis)
        sizes = [sample.shape[-1] for sample in self._samples]
        if kind == "independent" and len(sizes) < 2:
            raise ValueError('data has 1 sample; two or more are needed for permutation_type="independent"')
        if kind != "independent" and len(set(sizes)) > 1:
            raise ValueError(f'data has samples of {", ".join(map(str, sizes))} observations; as many in each are '
                             f'needed for permutation_type="{kind}", which takes them for paired')
        self._sizes = sizes
        self._n_permuted = max(1, len(sizes) - 1)       # of pairings
        ways = self._ways()
        few = ways is not None and ways - 1 <= n_resamples and ways * sum(sizes) <= LISTED
        self.n_others = ways - 1 if ways is not None and few else None
        self._all = None
        if self.n_others is not None:
            others = self._enumerated()[1:]              # the first is the data as they are
            self._all = others[rng.permutation(len(others))]

    def _ways(self) -> int | None:
        """Number of different permutations; None of more observations than could be enumerated."""
        n, m = self._sizes[0], max(2, len(self._sizes))
        if sum(self._sizes) > 1000:
            return None
        if self._kind == "independent":
            return math.factorial(sum(self._sizes)) // math.prod(map(math.factorial, self._sizes))
        return math.factorial(m) ** n if self._kind == "samples" else math.factorial(n) ** self._n_permuted

    def observed(self, statistic: Statistic) -> NDArray[np.float64]:
        """The statistic of the data, in the shape of the hypotheses."""
        values = statistic(self._samples)
        if values.shape != self._samples[0].shape[:1]:
            raise ValueError(
                f"statistic returned shape {values.shape} for samples of shapes "
                f"{', '.join(str(sample.shape) for sample in self._samples)}; {self._samples[0].shape[:1]} is needed: "
                f"one number for each row. A statistic of several rows at once needs `resample`"
            )
        return values.reshape(self.shape)

    def statistics(
        self, statistic: Statistic, n_read: int, k: int, active: NDArray[np.intp], batch: int | None, at_once: int
    ) -> NDArray[np.float64]:
        """The statistics of the next k permutations for some hypotheses, of shape (k, n_active), after `n_read`.

        Where the statistic raises or gives nan, the next call with the same `n_read` goes on with these permutations.
        """
        most = batch or max(1, at_once // (8 * active.size * sum(self._sizes)))
        if n_read != self._at:
            self._at, self._values = n_read, []
        while (left := k - sum(map(len, self._values))) > 0:
            if self._order is None:
                self._order = self._next(min(most, left))
            count = len(self._order)
            values = statistic(self._permuted(self._order, active))
            if values.shape != (count, active.size):
                raise ValueError(f"statistic returned shape {values.shape} for {count} permutations of {active.size} "
                                 f"hypotheses; {(count, active.size)} is needed: is it vectorized along axis=-1?")
            if np.isnan(values).any():          # which the rule refuses, in words
                return np.concatenate([*self._values, values])
            self._values, self._order = [*self._values, values], None
        return np.concatenate(self._values)

    def _permuted(self, order: NDArray[np.intp], active: NDArray[np.intp]) -> list[NDArray[Any]]:
        """The samples permuted in these orders, each of shape (k, n_active, n)."""
        k = len(order)
        own = [sample[active] for sample in self._samples]
        if self._kind == "independent":
            pooled = np.swapaxes(np.concatenate(own, axis=-1)[:, order], 0, 1)
            return np.split(pooled, list(itertools.accumulate(self._sizes[:-1])), axis=-1)
        if self._kind == "pairings":
            moved = [np.swapaxes(sample[:, order[:, i]], 0, 1)
                     for i, sample in enumerate(own[: self._n_permuted])]
            return moved + [np.broadcast_to(sample, (k, *sample.shape)) for sample in own[self._n_permuted :]]
        if len(own) == 1:
            return [own[0] * (1 - 2 * order[:, None, :, 0])]
        stacked = np.stack(own)         # (samples, hypotheses, n)
        places = np.arange(self._sizes[0])
        return [np.swapaxes(stacked[order[..., i], :, places], 1, 2) for i in range(len(own))]

    def _next(self, k: int) -> NDArray[np.intp]:
        """The next k orders: of all observations; of each sample (a row each); or of the samples, by observation."""
        self._used += k
        if self._all is not None:
            found: NDArray[np.intp] = self._all[self._used - k : self._used]
            return found
        n, m = self._sizes[0], max(2, len(self._sizes))
        shape = {"independent": (k, sum(self._sizes)), "pairings": (k, self._n_permuted, n), "samples": (k, n, m)}
        plain = np.broadcast_to(np.arange(shape[self._kind][-1]), shape[self._kind])
        return self._rng.permuted(plain, axis=-1)

    def _enumerated(self) -> NDArray[np.intp]:
        """All orders, in the same form."""
        n, m = self._sizes[0], max(2, len(self._sizes))
        if self._kind == "independent":
            return np.array(list(partitions(tuple(range(sum(self._sizes))), self._sizes)))
        within, times = (range(m), n) if self._kind == "samples" else (range(n), self._n_permuted)
        return np.array(list(itertools.product(itertools.permutations(within), repeat=times)))


def partitions(places: tuple[int, ...], sizes: Sequence[int]) -> Any:
    """All ways to divide the places among samples of these sizes, each as one order of all places."""
    if len(sizes) == 1:
        yield places
        return
    for first in itertools.combinations(places, sizes[0]):
        chosen = set(first)
        rest = tuple(place for place in places if place not in chosen)
        for others in partitions(rest, sizes[1:]):
            yield first + others


def aligned(data: Sequence[ArrayLike], axis: int) -> tuple[list[NDArray[Any]], tuple[int, ...]]:
    """The samples as arrays of shape (n_hypotheses, n), and the shape of the hypotheses."""
    if isinstance(data, np.ndarray) and data.ndim < 2 or not isinstance(data, (Sequence, np.ndarray)) or not len(data):
        raise TypeError("data is not a sequence of samples: give (x, y), or (x,) for a single one")
    arrays: list[NDArray[Any]] = []
    if isinstance(axis, (bool, np.bool_)) or not isinstance(axis, Integral):
        raise TypeError(f"axis is {_checks.shown(axis)}; a whole number, one of the axes of the samples, is needed")
    for i, given in enumerate(data):
        array = np.atleast_1d(_checks.reals(given, f"data[{i}]"))
        if not -array.ndim <= axis < array.ndim:
            raise ValueError(f"axis is {axis} and data[{i}] has {array.ndim} dimensions; one of them is needed")
        array = np.moveaxis(array, axis, -1)
        if array.shape[-1] < 2:
            raise ValueError(f"data[{i}] has {array.shape[-1]} observations along axis {axis}; two or more are needed")
        arrays.append(array)
    try:
        shape = np.broadcast_shapes(*(array.shape[:-1] for array in arrays))
    except ValueError:
        shapes = ", ".join(str(np.shape(given)) for given in data)
        raise ValueError(f"data has samples of shapes {shapes}; they must agree but for axis {axis}, which has the "
                         f"observations: the other axes are the hypotheses") from None
    whole = [np.broadcast_to(array, (*shape, array.shape[-1])) for array in arrays]
    return [array.reshape(-1, array.shape[-1]) for array in whole], shape
