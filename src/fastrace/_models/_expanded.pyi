import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace.sources import Source

class TermSource(Source): ...

class Expanded(Source):
    source: TermSource
    theta_hat: NDArray[np.float64]
    def __init__(self, source: TermSource, theta_hat: ArrayLike) -> None: ...

class Expansion(Source):
    residual: Expanded
    def __init__(self, source: TermSource, theta_hat: ArrayLike) -> None: ...
    @property
    def theta_hat(self) -> NDArray[np.float64]: ...

class OwnTerms(TermSource):
    source: Source
    table: NDArray[np.float64]
    def __init__(self, source: Source, parameters: NDArray[np.float64], table: ArrayLike) -> None: ...

def packed(value: ArrayLike, gradient: ArrayLike, hessian: ArrayLike) -> NDArray[np.float64]: ...
def parameter_table(parameters: NDArray[np.float64], width: int) -> NDArray[np.float64]: ...
