from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace.likelihoods import GLMSource
from fastrace.races._threshold import ThresholdRace
from fastrace.races._weighted import WeightedRace
from fastrace.sources import Source

class Residual(Source):
    glm: GLMSource
    theta_hat: NDArray[np.float64]
    def __init__(self, glm: GLMSource, theta_hat: ArrayLike) -> None: ...

def parameters_of(glm: GLMSource) -> NDArray[np.float64]: ...

class Move: ...

class Proposal(Move):
    keep: float
    noise: float
    walk: float
    walk_share: float
    propose: Callable[[NDArray[np.float64]], tuple[Any, float]] | None
    delayed: bool
    def __new__(
        cls,
        keep: float = ...,
        noise: float = ...,
        walk: float = ...,
        walk_share: float = ...,
        *,
        propose: Callable[[NDArray[np.float64]], tuple[Any, float]] | None = ...,
        delayed: bool = ...,
        radius: float = ...,
    ) -> Proposal: ...

class Chain:
    dim: int
    source: Source
    n_done: int
    def __init__(
        self,
        source: Source,
        theta: NDArray[np.float64],
        center: ArrayLike,
        factor: ArrayLike,
        *,
        surrogate: bool,
        log_prior: Callable[[NDArray[np.float64]], float] | None = ...,
        prior_mean: Any = ...,
        prior_precision: Any = ...,
        weights: tuple[float, float, float, NDArray[np.float64], float] | None = ...,
    ) -> None: ...
    def set_coordinates(self, center: ArrayLike, factor: ArrayLike) -> None: ...
    def use(self, move: Move) -> None: ...
    def whiten(self, position: ArrayLike) -> NDArray[np.float64]: ...
    def load(self, position: ArrayLike, whitened: ArrayLike, cache: Any) -> None: ...
    @property
    def cache(self) -> Any: ...
    @property
    def position(self) -> NDArray[np.float64]: ...
    @property
    def whitened(self) -> NDArray[np.float64]: ...
    def run(
        self,
        rng: np.random.Generator,
        draws: NDArray[np.float64],
        rows: NDArray[np.int64],
        looks: NDArray[np.int32],
        flags: NDArray[np.uint8],
    ) -> None: ...

class ExactChain(Chain): ...

class RaceChain(ExactChain):
    outside: bool
    def set_race(self, race: ThresholdRace, low: float, high: float, weighted: WeightedRace | None = ...) -> None: ...
