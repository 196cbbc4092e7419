from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

class Source:
    n_arms: int
    n_rows: int
    scan_advantage: float
    first_look: int
    support: Any
    def __init__(
        self, n_arms: int, n_rows: int, *, scan_advantage: float = ..., first_look: int = ..., support: Any = ...
    ) -> None: ...
    def read(self, rows: ArrayLike, arms: ArrayLike | None = ...) -> NDArray[np.float64]: ...
    def totals(self, arms: ArrayLike | None = ...) -> NDArray[np.float64]: ...
    def shifts(self, arms: ArrayLike | None = ...) -> NDArray[np.float64]: ...

class ArraySource(Source):
    values: NDArray[Any]
    def __init__(self, values: ArrayLike, *, support: Any = ...) -> None: ...
