import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace.likelihoods import GLMSource
from fastrace.sources import Source

class SoftmaxSource(Source):
    rows: GLMSource
    n_classes: int
    theta_hat: NDArray[np.float64] | None
    def __init__(
        self,
        X: ArrayLike,
        y: ArrayLike,
        parameters: NDArray[np.float64],
        n_classes: int,
        theta_hat: ArrayLike | None = ...,
        *,
        check_finite: bool = ...,
    ) -> None: ...
