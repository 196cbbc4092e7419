from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

ARM_STATE: tuple[str, ...]

class RaceMemory:
    n_arms: int
    n_rows: int
    evaluations: int
    n_draws: int
    n_exact: int
    n_looks_taken: int
    n_skewed: int
    fractions: float
    def __init__(
        self,
        n_arms: int,
        n_rows: int,
        *,
        pairwise: bool,
        shuffled: bool,
        betting: bool,
        low: NDArray[np.float64] | None,
        high: NDArray[np.float64] | None,
        rng: np.random.Generator,
    ) -> None: ...
    @property
    def rng(self) -> np.random.Generator: ...
    def set_support(self, low: ArrayLike, high: ArrayLike) -> None: ...
    def set_state(self, state: dict[str, Any]) -> None: ...
