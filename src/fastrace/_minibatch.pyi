import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace._chain import Chain

class AliasTable:
    n: int
    weights: NDArray[np.float64]
    def __init__(self, weights: ArrayLike) -> None: ...
    def probabilities(self) -> NDArray[np.float64]: ...

class MinibatchChain(Chain):
    def set_table(self, table: AliasTable, most: float) -> None: ...

class PoissonChain(MinibatchChain): ...

class TunaChain(MinibatchChain):
    def set_chi(self, chi: float) -> None: ...

class FireflyChain(MinibatchChain):
    def set_fraction(self, fraction: float) -> None: ...
