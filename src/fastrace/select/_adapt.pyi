from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrace.select._selector import Selector

KINDS: tuple[str, ...]
POLICIES: tuple[str, ...]

class Adapt(Selector):
    epsilon: float
    delta: float
    log_share: float
    batch_share: float
    first: int
    batch: int
    optimal: bool
    all_times: bool
    lazy: bool
    ready: bool
    def __init__(
        self,
        n_arms: int,
        n_best: int,
        *,
        low: NDArray[np.float64],
        high: NDArray[np.float64],
        rng: np.random.Generator,
        policy: str,
        kind: str,
        optimal: bool,
        epsilon: float,
        delta: float,
        log_share: float,
        first: int,
        cap: NDArray[np.int64],
        rho: NDArray[np.float64],
        start: NDArray[np.float64],
        batch: int,
        batch_share: float,
    ) -> None: ...
    def error_bound(self) -> float: ...
    def cutoff(self) -> float: ...
    def levels(self) -> NDArray[np.float64]: ...
    def widths(self) -> NDArray[np.float64]: ...
    def _envelope(self) -> tuple[Any, ...]: ...

def _log_level(
    kind: str, pulls: int, m2: float, spread: float, span: float, rho: float, start: float, gap: float
) -> float: ...
def _width_at(
    kind: str, pulls: int, m2: float, spread: float, span: float, rho: float, start: float, log_wanted: float
) -> float: ...
