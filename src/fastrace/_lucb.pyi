from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrace._selector import Selector

BOUNDS: tuple[str, ...]

class LucbSelector(Selector):
    def __init__(
        self,
        n_arms: int,
        n_best: int,
        *,
        low: NDArray[np.float64],
        high: NDArray[np.float64],
        rng: np.random.Generator,
        epsilon: float,
        batch: int,
        bound: str,
        log_inv_alpha: tuple[float, float],
        best_at: float,
    ) -> None: ...
    def shortfall(self) -> float: ...
    def error_bound(self, log_delta: float) -> float: ...
    def history(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]: ...

class SarSelector(LucbSelector):
    def __init__(
        self,
        n_arms: int,
        n_best: int,
        *,
        low: NDArray[np.float64],
        high: NDArray[np.float64],
        rng: np.random.Generator,
        budget: int,
        **options: Any,
    ) -> None: ...

def _mixture_boundary(v: float, rho: float, log_inv_alpha: float) -> tuple[float, float]: ...
def _mixture_rho(v_best: float, log_inv_alpha: float) -> float: ...
def _kl_bounds(p: float, level: float) -> tuple[float, float]: ...
def _half_width(bound: str, n: float, v: float, rho: float, rounds: float, log_inv_alpha: float) -> float: ...
