from fastrace.mcmc.kernels._chain import Move

class Sweep(Move):
    width: float
    most: int
    def __new__(cls, width: float, most: int) -> Sweep: ...
