from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace.sources import Source

class ArchSource(Source):
    orders: tuple[int, ...]
    n_terms: int
    def __init__(
        self,
        returns: ArrayLike,
        orders: Sequence[int],
        *,
        always: ArrayLike = ...,
        modes: ArrayLike | None = ...,
    ) -> None: ...
    def set(
        self, weights: ArrayLike, nu: ArrayLike, known: ArrayLike = ..., log_prior: ArrayLike = ...
    ) -> None: ...
    def exact(self) -> NDArray[np.float64]: ...
