from typing import Any

import numpy as np
from numpy.typing import NDArray

RULES: tuple[str, ...]
STATUS: tuple[str, ...]
SPENDING: dict[str, tuple[str, float, float]]

def fewest_examples(n_hypotheses: int, rule: str, tau: float, log_inv_delta: float, growth: float) -> int: ...

class EdgeRule:
    n_hypotheses: int
    best: int
    n: int
    next_look: int
    tau: float
    growth: float
    min_edge: float
    by_leader: bool
    def __init__(
        self,
        n_hypotheses: int,
        rule: str,
        tau: float,
        log_inv_delta: float,
        *,
        selection: str = "first",
        growth: float = 1.01,
        min_edge: float = 0.0,
    ) -> None: ...
    @property
    def status(self) -> str: ...
    @property
    def lower(self) -> NDArray[np.float64]: ...
    @property
    def upper(self) -> NDArray[np.float64]: ...
    @property
    def edges(self) -> NDArray[np.float64]: ...
    def restart(self, log_inv_delta: float) -> None: ...
    def update_many(self, wins: NDArray[np.int8]) -> int: ...
    def _get_state(self) -> dict[str, Any]: ...
    def _set_state(self, state: dict[str, Any]) -> None: ...
