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
    batch: int
    optimal: bool
    all_times: bool
    lazy: bool
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
