from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrace.boosting._edges import EdgeRule

def bin_rows(
    x: NDArray[Any],
    edges: NDArray[np.float64],
    first: NDArray[np.int64],
    categorical: NDArray[np.uint8],
    codes: NDArray[np.uint8],
) -> None: ...
def scores(codes: NDArray[np.uint8], offset: NDArray[np.int64], table: NDArray[np.float64]) -> NDArray[np.float64]: ...

class Filter:
    rng: np.random.Generator
    epsilon: float
    drawn: int
    passed: int
    over: bool
    def __init__(self, epsilon: float, rng: np.random.Generator) -> None: ...
    def restart(self, log_inv_delta: float) -> None: ...
    def accept(
        self, margins: NDArray[np.float64], start: int = 0, most: int = ...
    ) -> tuple[NDArray[np.int64], int]: ...
    def _get_state(self) -> dict[str, Any]: ...
    def _set_state(self, state: dict[str, Any]) -> None: ...

class StumpStream:
    rule: EdgeRule
    filter: Filter
    total_drawn: int
    n_features: int
    def __init__(
        self,
        feature: NDArray[np.int64],
        first: NDArray[np.int64],
        last: NDArray[np.int64],
        offset: NDArray[np.int64],
        rule: EdgeRule,
        filter: Filter,
    ) -> None: ...
    @property
    def table(self) -> NDArray[np.float64]: ...
    @property
    def status(self) -> str: ...
    def restart(self, log_inv_delta: float) -> None: ...
    def add(self, stump: int, weight: float) -> None: ...
    def consume(
        self,
        codes: NDArray[np.uint8],
        y: NDArray[np.int8],
        rows: NDArray[np.int64] | None = None,
        start: int = 0,
        max_draws: int = ...,
    ) -> int: ...
    def full_pass(
        self, codes: NDArray[np.uint8], y: NDArray[np.int8], weights: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], float, float]: ...
    def __reduce__(self) -> tuple[Any, ...]: ...
