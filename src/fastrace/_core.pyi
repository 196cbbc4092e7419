from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace._memory import RaceMemory
from fastrace.sources import Source

BOUNDS: tuple[str, ...]
STOPPED_BY: tuple[str, ...]
NONE_LEFT: str
_Plan = tuple[NDArray[np.int64], NDArray[np.float64], float]

class Race(RaceMemory):
    def __init__(
        self,
        n_arms: int,
        n_rows: int,
        *,
        bound: str,
        pairwise: bool,
        shuffled: bool,
        guarded: bool,
        scan_advantage: float,
        low: NDArray[np.float64] | None,
        high: NDArray[np.float64] | None,
        rng: np.random.Generator,
    ) -> None: ...
    def plan(self, looks: ArrayLike, quantiles: ArrayLike, log_inv_delta: float) -> None: ...
    def begin(self, offset: ArrayLike) -> None: ...
    def ask(self) -> tuple[NDArray[np.intp], NDArray[np.int64]]: ...
    def tell(self, rewards: NDArray[np.float64]) -> None: ...
    def run(self, source: Source) -> None: ...
    def draw_many(self, source: Source, log_prior: NDArray[np.float64], out: NDArray[np.intp]) -> None: ...
    @property
    def done(self) -> bool: ...
    def answer(self) -> dict[str, Any]: ...
    def warnings(self, of_all_draws: bool = ...) -> tuple[str, ...]: ...
    def saved(self) -> tuple[_Plan, dict[str, Any]]: ...
    def restore(self, plan: _Plan, state: dict[str, Any]) -> None: ...
