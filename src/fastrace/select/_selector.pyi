from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrace.pulls import PullSource

LARGEST_BATCH: int
STOPPED_BY: tuple[str, ...]

class Selector:
    n_arms: int
    n_best: int
    total: int
    status: int
    ready: bool
    rng: np.random.Generator
    def __init__(
        self,
        n_arms: int,
        n_best: int,
        *,
        low: NDArray[np.float64],
        high: NDArray[np.float64],
        rng: np.random.Generator,
        **options: Any,
    ) -> None: ...
    @property
    def done(self) -> bool: ...
    @property
    def stopped_by(self) -> str: ...
    def start(self) -> None: ...
    def ask(self) -> tuple[NDArray[np.intp], NDArray[np.int64]]: ...
    def tell(self, rewards: Any) -> None: ...
    def run(self, source: PullSource, max_pulls: int) -> None: ...
    def chosen(self) -> NDArray[np.intp]: ...
    def answer(self) -> dict[str, Any]: ...
    def get_state(self) -> dict[str, Any]: ...
    def set_state(self, state: dict[str, Any]) -> None: ...
