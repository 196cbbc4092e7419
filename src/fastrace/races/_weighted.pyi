from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace.sources import Source

class AliasTable:
    n: int
    weights: NDArray[np.float64]
    def __init__(self, weights: ArrayLike) -> None: ...
    def probabilities(self) -> NDArray[np.float64]: ...

class WeightedRace:
    accepted: bool
    lost: bool
    n_read: int
    n_looks: int
    def __init__(self, table: AliasTable, looks: ArrayLike, delta: float, advantage: float) -> None: ...

def refuse_change(row: int, before: float, after: float, bound: float) -> NoReturn: ...
def _verdicts(
    source: Source,
    table: AliasTable,
    looks: ArrayLike,
    delta: float,
    threshold: float,
    size: float,
    rng: np.random.Generator,
    n: int,
    advantage: float = ...,
) -> list[tuple[int, int]]: ...
