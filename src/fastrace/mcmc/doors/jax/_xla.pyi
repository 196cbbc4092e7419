from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

WORDS_OF_A_TOTAL: Literal[2]

def speak(major: int, minor: int) -> None: ...
def plan(
    kind: int,
    n_rows: int,
    looks: ArrayLike,
    log_inv_delta: ArrayLike,
    quantile: ArrayLike,
    *,
    n_arms: int,
    delayed: bool,
    guard: bool,
    advantage: float,
    low: float,
    high: float,
) -> NDArray[np.int64]: ...
def words(n_arms: int) -> int: ...
def targets() -> dict[str, Any]: ...
