from typing import Any

import numpy as np
from numpy.typing import NDArray

class RowOrder:
    n_rows: int
    drawn: int
    rng: np.random.Generator
    def __new__(cls, n_rows: int, rng: np.random.Generator) -> RowOrder: ...
    def take(self, count: int) -> NDArray[np.int64]: ...
    def get_state(self) -> tuple[Any, ...]: ...

def restored(state: tuple[Any, ...]) -> RowOrder: ...
