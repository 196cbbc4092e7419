
from fastrace.select._selector import Selector

class Direct(Selector): ...

class Elimination(Selector):
    n_kept: int
    n_passes: int
    passes_done: int
    factor: float
    spread: float
    first_epsilon: float
    first_delta: float
    epsilon: float
    delta: float
