
import numpy as np
from numpy.typing import NDArray

from fastrace.select._selector import Selector

class Ocba(Selector):
    batch: int
    budget: int
    deficit: bool
    def cutoff(self) -> float: ...

class Race(Selector):
    horizon: int
    rounds: int
    spent: int
    log_inv_delta: float
    log_inv_alpha: float
    bernstein: bool
    beyond: bool
    def decided(self) -> tuple[NDArray[np.int8], NDArray[np.float64], NDArray[np.float64]]: ...
