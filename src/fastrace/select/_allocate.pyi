
import numpy as np
from numpy.typing import NDArray

from fastrace.select._selector import Selector

class Ocba(Selector):
    first: int
    batch: int
    budget: int
    deficit: bool
    ready: bool
    def __init__(
        self,
        n_arms: int,
        n_best: int,
        *,
        low: NDArray[np.float64],
        high: NDArray[np.float64],
        rng: np.random.Generator,
        budget: int,
        first: int,
        batch: int,
        deficit: bool,
    ) -> None: ...
    def cutoff(self) -> float: ...

class Race(Selector):
    horizon: int
    rounds: int
    spent: int
    log_inv_delta: float
    log_inv_alpha: float
    bernstein: bool
    beyond: bool
    def __init__(
        self,
        n_arms: int,
        n_best: int,
        *,
        low: NDArray[np.float64],
        high: NDArray[np.float64],
        rng: np.random.Generator,
        horizon: int,
        log_inv_delta: float,
        bernstein: bool,
        beyond: bool,
    ) -> None: ...
    def decided(self) -> tuple[NDArray[np.int8], NDArray[np.float64], NDArray[np.float64]]: ...
