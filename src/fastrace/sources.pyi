from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

class Source:
    n_arms: int
    n_rows: int
    scan_advantage: float
    reward_cost: float
    n_always_read: int
    first_look: int
    support: Any
    def __init__(
        self,
        n_arms: int,
        n_rows: int,
        *,
        scan_advantage: float = ...,
        reward_cost: float = ...,
        n_always_read: int = ...,
        first_look: int = ...,
        support: Any = ...,
    ) -> None: ...
    def read(self, rows: ArrayLike, arms: ArrayLike | None = ...) -> NDArray[np.float64]: ...
    def totals(self, arms: ArrayLike | None = ...) -> NDArray[np.float64]: ...
    def shifts(self, arms: ArrayLike | None = ...) -> NDArray[np.float64]: ...

class ArraySource(Source):
    values: NDArray[Any]
    def shuffled(self, rng: Any = ...) -> ArraySource: ...
    def __init__(self, values: ArrayLike, *, support: Any = ...) -> None: ...

class CallableSource(Source):
    function: Callable[[NDArray[np.intp], NDArray[np.int64]], ArrayLike]
    def __init__(
        self,
        function: Callable[[NDArray[np.intp], NDArray[np.int64]], ArrayLike],
        n_arms: int,
        n_rows: int,
        support: Any = ...,
        *,
        scan_advantage: float = ...,
        first_look: int = ...,
        reward_cost: float = ...,
    ) -> None: ...

class CallbackSource(Source):
    callback: Any
    all_arms: bool
    takes_data: bool
    def __init__(
        self,
        callback: Any,
        n_arms: int,
        n_rows: int,
        support: Any = ...,
        *,
        scan_advantage: float = ...,
        reward_cost: float = ...,
    ) -> None: ...

def as_source(
    rewards: Any, n_arms: int | None = ..., n_rows: int | None = ..., support: Any = ...
) -> Source: ...
def _source_of(
    rewards: Any, called: str, n_arms: int | None = ..., n_rows: int | None = ..., support: Any = ...
) -> Source: ...
def column_names(table: Any) -> tuple[str, ...] | None: ...
def reward_outside(
    reward: float, arm: int, row: int, low: float, high: float, advice: str = ...
) -> str: ...
def first_outside(
    values: NDArray[np.float64], low: NDArray[np.float64], high: NDArray[np.float64]
) -> tuple[int, int] | None: ...
