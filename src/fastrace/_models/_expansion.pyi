import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace.sources import Source

def packed(value: ArrayLike, gradient: ArrayLike, hessian: ArrayLike) -> NDArray[np.float64]: ...

class ExpandedSource(Source):
    source: Source
    theta_hat: NDArray[np.float64]
    table: NDArray[np.float64]
    def __init__(
        self, source: Source, parameters: NDArray[np.float64], theta_hat: ArrayLike, table: NDArray[np.float64]
    ) -> None: ...
