from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrace.select._selector import Selector

_Scales = Sequence[tuple[float, float]]

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
        scales: _Scales,
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

def _mixture_boundary(
    v: float, scales: _Scales, log_inv_alpha: float, tuned_for: float | None = None
) -> tuple[float, float]: ...
def _kl_bounds(p: float, level: float) -> tuple[float, float]: ...
def _half_width(bound: str, n: float, v: float, scales: _Scales, rounds: float, log_inv_alpha: float) -> float: ...
