"""The variables that a vector of draws holds, as ArviZ and its users name them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Variable", "shaped"]

Array = NDArray[Any]

_SCALES: dict[str, Callable[[Array], Array]] = {
    "": np.array,
    "exp": np.exp,
    "reciprocal": np.reciprocal,
    "exp of minus": lambda values: np.exp(-values),
    "nonzero": lambda values: (values != 0.0).astype(np.int64),
}


@dataclass(frozen=True, eq=False)
class Variable:
    """A variable out of some coordinates of the draws.

    Attributes
    ----------
    name : str
    places : ndarray of int
        Its coordinates, in C order.
    shape : tuple of int
    dims : tuple of str
        Name of each axis.
    coords : tuple of tuples
        Labels along each axis.
    scale : str
        What is done to the draws: "", nothing; "exp"; "reciprocal", 1 / draw; "exp of minus"; or "nonzero", 1 where
        they are not 0 and else 0.
    """

    name: str
    places: NDArray[np.intp]
    shape: tuple[int, ...] = ()
    dims: tuple[str, ...] = ()
    coords: tuple[tuple[Any, ...], ...] = ()
    scale: str = ""

    def of(self, draws: Array) -> Array:
        """Its values at draws of shape (..., dim), of shape (..., *shape)."""
        return _SCALES[self.scale](draws[..., self.places].reshape(*draws.shape[:-1], *self.shape))


def shaped(name: str, places: ArrayLike, axes: Sequence[tuple[str, Sequence[Any]]] = (), scale: str = "") -> Variable:
    """A variable with an axis for each name and labels of `axes`."""
    coords = tuple(tuple(labels) for _, labels in axes)
    return Variable(name, np.atleast_1d(np.asarray(places, dtype=np.intp)).ravel(), tuple(map(len, coords)),
                    tuple(axis for axis, _ in axes), coords, scale)
