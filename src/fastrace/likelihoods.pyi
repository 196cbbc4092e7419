from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace._models._expanded import TermSource
from fastrace._models.grouping import Factor, Groups
from fastrace.sources import Source

SCALED: dict[str, tuple[str, str | None]]

class GLMSource(TermSource):
    X: Any
    y: NDArray[np.float64]
    family: str
    scale: float
    df: float
    constant: float
    offset: NDArray[np.float64] | None
    weights: NDArray[np.float64] | None
    trials: NDArray[np.float64] | None
    term_weights: NDArray[np.float64] | None
    learns_scale: bool
    groups: tuple[Groups, ...]
    factors: tuple[Factor, ...]
    def __init__(
        self,
        X: ArrayLike,
        y: ArrayLike,
        theta: ArrayLike | None = ...,
        family: str = ...,
        scale: float | None = ...,
        df: float = ...,
        *,
        offset: ArrayLike | None = ...,
        weights: ArrayLike | None = ...,
        trials: ArrayLike | None = ...,
        groups: Any = ...,
        learn_scale: bool = ...,
        support: Any = ...,
        check_finite: bool = ...,
    ) -> None: ...
    def beside(self) -> dict[str, Any]: ...
    @property
    def outcomes(self) -> str: ...
    @property
    def of_residual(self) -> bool: ...
    @property
    def steepest(self) -> float: ...
    def third_derivatives(self, low: ArrayLike = ..., high: ArrayLike = ..., y: ArrayLike = ...) -> Any: ...
    def mixed_third_derivatives(
        self, low: ArrayLike, high: ArrayLike, y: ArrayLike, first: float, last: float
    ) -> NDArray[np.float64]: ...
    def expand(
        self, y: ArrayLike, eta: ArrayLike
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]: ...
    def derivatives(
        self, theta_hat: ArrayLike, first: int = ..., count: int | None = ...
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]: ...
    def mixed_derivatives(
        self, theta_hat: ArrayLike, first: int = ..., count: int | None = ...
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]: ...

class PairSource(Source):
    source: Source
    def __init__(self, source: Source, arm_a: int = ..., arm_b: int = ...) -> None: ...
    @property
    def arm_a(self) -> int: ...
    @property
    def arm_b(self) -> int: ...
