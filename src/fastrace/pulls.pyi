from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace.sources import Source

_Rng = None | int | np.random.SeedSequence | np.random.BitGenerator | np.random.Generator
_Pull = Callable[[NDArray[np.intp], NDArray[np.int64]], Any]

class PullSource:
    n_arms: int
    def __init__(self, n_arms: int) -> None: ...
    def read(self, arms: ArrayLike, counts: ArrayLike) -> NDArray[np.float64]: ...

class RandomPulls(PullSource):
    rng: np.random.Generator
    def __init__(self, n_arms: int, rng: _Rng = None) -> None: ...
    def _saved(self) -> tuple[np.random.Generator, NDArray[np.float64]]: ...
    def _resume(self, left: ArrayLike) -> None: ...

class BernoulliPulls(RandomPulls):
    def __init__(self, mean: ArrayLike, rng: _Rng = None) -> None: ...

class UniformPulls(RandomPulls):
    def __init__(self, low: ArrayLike, high: ArrayLike, rng: _Rng = None) -> None: ...

class ResampledPulls(RandomPulls):
    source: Source
    paired: bool
    def __init__(
        self, source: Any, rng: _Rng = None, *, n_arms: int | None = None, n_rows: int | None = None,
        paired: bool = False,
    ) -> None: ...
    def _draw_first(self, rows: ArrayLike) -> None: ...
    def _rows_to_draw(self, failed: bool) -> NDArray[np.int64]: ...

class RecordedPulls(PullSource):
    paired: bool
    def __init__(self, values: ArrayLike, *, paired: bool = False) -> None: ...

class CallablePulls(PullSource):
    function: _Pull
    def __init__(self, function: _Pull, n_arms: int) -> None: ...

class CallbackPulls(PullSource):
    callback: Any
    def __init__(self, callback: Any, n_arms: int) -> None: ...

def is_population(pull: Any) -> bool: ...
def as_pulls(
    pull: Any, n_arms: int, *, order: str = "random", rng: _Rng = None, paired: bool = False
) -> PullSource: ...
def _flat(given: Any, arms: ArrayLike, counts: ArrayLike) -> NDArray[np.float64]: ...
