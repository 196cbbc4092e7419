"""Features in bins, and the stumps on them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fastrace.boosting._boost as _boost

Codes = NDArray[np.uint8]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Stump:
    """A weak learner: `sign` where the feature's bin lies between two bins, minus that elsewhere."""

    feature: int
    first: int
    last: int
    sign: int
    text: str

    def predict_codes(self, codes: Codes) -> NDArray[np.int8]:
        """+1 or -1 for each row of codes."""
        column = codes[:, self.feature]
        inside = (column >= self.first) & (column <= self.last)
        return np.where(inside, self.sign, -self.sign).astype(np.int8)

    def __str__(self) -> str:
        return f"{'+1' if self.sign > 0 else '-1'} where {self.text}"


@dataclass
class Bins:
    """Codes of features, and the stumps on them."""

    edges: list[Floats]                 # what a number must reach for the next code; or the categories
    categorical: NDArray[np.uint8]
    missing: NDArray[np.bool_]          # features that have lacked a value
    first: NDArray[np.int64] = field(init=False)
    offset: NDArray[np.int64] = field(init=False)
    flat: Floats = field(init=False)
    stumps: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]] = field(init=False)

    def __post_init__(self) -> None:
        sizes = np.array([len(edges) for edges in self.edges], dtype=np.int64)
        self.first = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.offset = np.concatenate([[0], np.cumsum(sizes + 2 - self.categorical)]).astype(np.int64)
        self.flat = np.concatenate([np.empty(0), *self.edges])
        tests: list[tuple[int, int, int]] = []
        for j, edges in enumerate(self.edges):
            n = len(edges) + 1 - int(self.categorical[j])
            if self.categorical[j]:
                tests += [(j, v, v) for v in range(n - 1 if n == 2 else n) if n > 1 or self.missing[j]]
            else:
                tests += [(j, 0, v) for v in range(n - 1)] + [(j, v, v) for v in range(1, n - 1)]
            if self.missing[j]:
                tests.append((j, n, n))
        table = np.array(tests, dtype=np.int64).reshape(-1, 3)
        self.stumps = (table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy())

    @classmethod
    def learn(cls, x: NDArray[Any], n_bins: int, binning: str, categorical: NDArray[np.bool_]) -> Bins:
        """Bins of equal width between the smallest and the largest number, or of equal counts; categories as found."""
        edges = []
        missing = np.zeros(x.shape[1], dtype=bool)
        for j in range(x.shape[1]):
            column = np.asarray(x[:, j], dtype=np.float64)
            present = column[~np.isnan(column)]
            missing[j] = present.size < column.size
            if categorical[j]:
                values = np.unique(present)
                if len(values) > 254:
                    raise ValueError(f"feature {j} has {len(values)} categories; at most 254 fit: merge rare ones")
                edges.append(values)
                continue
            low, high = (float(present.min()), float(present.max())) if present.size else (0.0, 0.0)
            if low == high:
                edges.append(np.empty(0))
            elif bool(((present == low) | (present == high)).all()):
                edges.append(np.array([high]))          # two values: one test, whatever the number of bins
            elif binning == "quantile":
                edges.append(np.unique(np.quantile(present, np.arange(1, n_bins) / n_bins, method="higher")))
            else:
                inner = low + (high - low) * (np.arange(1, n_bins) / n_bins)
                edges.append(np.unique(inner[(inner > low) & (inner <= high)]))
        return cls(edges, categorical.astype(np.uint8), missing)

    def transform(self, x: NDArray[Any]) -> Codes:
        """Codes of rows."""
        codes = np.empty(x.shape, dtype=np.uint8)
        if x.dtype not in (np.float32, np.float64) or not x.dtype.isnative:
            x = np.asarray(x, dtype=np.float64)
        _boost.bin_rows(x, self.flat, self.first, self.categorical, codes)
        return codes

    def number(self, stump: Stump) -> int:
        """The number of a stump."""
        feature, first, last = self.stumps
        return int(np.flatnonzero((feature == stump.feature) & (first == stump.first) & (last == stump.last))[0])

    def stump(self, number: int, sign: int, names: list[str]) -> Stump:
        """The stump of a number, with words for people."""
        j, first, last = (int(column[number]) for column in self.stumps)
        edges, name = self.edges[j], names[j]
        if first == len(edges) + 1 - int(self.categorical[j]):
            text = f"{name} is missing"
        elif self.categorical[j]:
            text = f"{name} = {edges[first]:g}"
        elif first == 0:
            text = f"{name} < {edges[last]:g}"
        else:
            text = f"{edges[first - 1]:g} <= {name} < {edges[last]:g}"
        return Stump(j, first, last, sign, text)
