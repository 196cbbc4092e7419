import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace.races._memory import RaceMemory

class RaceJudge(RaceMemory):
    def __init__(
        self,
        n_arms: int,
        n_rows: int,
        *,
        bound: str,
        pairwise: bool,
        shuffled: bool,
        guarded: bool,
        tails: bool,
        low: NDArray[np.float64] | None,
        high: NDArray[np.float64] | None,
        rng: np.random.Generator,
    ) -> None: ...
    def plan(self, looks: ArrayLike, quantiles: ArrayLike, log_inv_delta: float) -> None: ...
