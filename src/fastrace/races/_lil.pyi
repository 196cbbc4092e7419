from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrace.sources import Source

STOPPED_BY: tuple[str, ...]

class LilRace:
    n_arms: int
    n_rows: int
    total: int
    outside: bool
    best: int
    def __init__(
        self,
        n_arms: int,
        n_rows: int,
        *,
        width: float,
        growth: float,
        log_share: float,
        patience: float,
        low: NDArray[np.float64],
        high: NDArray[np.float64],
        offset: NDArray[np.float64],
        strict: bool = ...,
    ) -> None: ...
    @property
    def done(self) -> bool: ...
    def seed(self, rng: np.random.Generator) -> None: ...
    def ask(self) -> tuple[NDArray[np.intp], NDArray[np.int64]]: ...
    def tell(self, reward: float) -> None: ...
    def run(self, source: Source, max_pulls: int) -> None: ...
    def answer(self) -> dict[str, Any]: ...
    def _get_state(self) -> dict[str, Any]: ...
    def _set_state(self, state: dict[str, Any]) -> None: ...

def _keyed_rows(n: int, first: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]: ...
def _keyed_counts(n: int, repeats: int, rng: np.random.Generator) -> NDArray[np.int64]: ...
