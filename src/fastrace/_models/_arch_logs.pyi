import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace.sources import Source

class LogArchSource(Source):
    order: int
    theta_hat: NDArray[np.float64] | None
    def __init__(
        self,
        squares: ArrayLike,
        order: int,
        parameters: NDArray[np.float64],
        theta_hat: ArrayLike | None = ...,
    ) -> None: ...
