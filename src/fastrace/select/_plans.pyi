import numpy as np
from numpy.typing import NDArray

from fastrace.select._selector import Selector

class Direct(Selector):
    def __init__(
        self,
        n_arms: int,
        n_best: int,
        *,
        low: NDArray[np.float64],
        high: NDArray[np.float64],
        rng: np.random.Generator,
        counts: NDArray[np.int64],
    ) -> None: ...

class Elimination(Selector):
    n_kept: int
    n_passes: int
    passes_done: int
    factor: float
    spread: float
    first_epsilon: float
    first_delta: float
    epsilon: float
    delta: float
    def __init__(
        self,
        n_arms: int,
        n_best: int,
        *,
        low: NDArray[np.float64],
        high: NDArray[np.float64],
        rng: np.random.Generator,
        n_kept: int,
        n_passes: int,
        factor: float,
        spread: float,
        epsilon: float,
        delta: float,
    ) -> None: ...
