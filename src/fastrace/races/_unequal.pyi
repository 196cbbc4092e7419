from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrace.sources import Source

STOPPED_BY: tuple[str, ...]
N_LOOKS: int

class Ragged(Source):
    def __init__(self, vectors: list[NDArray[Any]]) -> None: ...

class UnequalCore:
    n_arms: int
    n_looks: int
    outside: bool
    constant: bool
    def __init__(
        self,
        sizes: NDArray[np.int64],
        *,
        first_look: int,
        bound: str,
        student: bool,
        quantile: NDArray[np.float64],
        log_inv_delta: float,
        temperature: float,
        low: NDArray[np.float64],
        high: NDArray[np.float64],
        offset: NDArray[np.float64],
        adaptive: bool,
        pooling: float,
        strict: bool = ...,
        tails: bool = ...,
    ) -> None: ...
    @property
    def done(self) -> bool: ...
    def begin(self, rng: np.random.Generator) -> None: ...
    def ask(self) -> tuple[NDArray[np.intp], NDArray[np.int64]]: ...
    def tell(self, rewards: NDArray[np.float64]) -> None: ...
    def run(self, source: Source, advantage: float) -> None: ...
    def answer(self) -> dict[str, Any]: ...
    def _get_state(self) -> dict[str, Any]: ...
    def _set_state(self, state: dict[str, Any]) -> None: ...

def _upper_quantile(log_tail: float) -> float: ...
