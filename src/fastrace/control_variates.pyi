from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace._models._expanded import Expansion, TermSource
from fastrace.likelihoods import GLMSource
from fastrace.sources import Source

class ControlVariate(Source):
    source: Source
    surrogate: Source
    always_read: NDArray[np.int64]
    known_totals: Any
    def __init__(
        self,
        source: Source,
        surrogate: Source,
        totals: ArrayLike | Callable[[], ArrayLike] | None = ...,
        always_read: ArrayLike | None = ...,
        *,
        support: Any = ...,
    ) -> None: ...
    def difference_support(self, arm_a: int = ..., arm_b: int = ...) -> tuple[float, float] | None: ...
    def residual_support(self) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None: ...
    def still_arms(self) -> NDArray[np.bool_]: ...

class SoftmaxSource(TermSource):
    rows: GLMSource
    n_classes: int
    offset: NDArray[np.float64] | None
    places: NDArray[np.intp] | None
    def __init__(
        self,
        X: ArrayLike,
        y: ArrayLike,
        theta: ArrayLike | None = ...,
        n_classes: int | None = ...,
        *,
        offset: ArrayLike | None = ...,
        weights: ArrayLike | None = ...,
        groups: Any = ...,
        check_finite: bool = ...,
    ) -> None: ...
    def beside(self) -> dict[str, Any]: ...

class TaylorSurrogate(Expansion):
    glm: GLMSource | SoftmaxSource
    gradient: NDArray[np.float64]
    hessian: NDArray[np.float64]
    value: float
    rounding: float
    def __init__(self, glm: GLMSource | SoftmaxSource, theta_hat: ArrayLike) -> None: ...
    def distances(self) -> NDArray[np.float64]: ...
    def farthest(self, fraction: float) -> NDArray[np.int64]: ...
    def change_bound(self, always_read: ArrayLike = ..., arms: tuple[int, int] = ...) -> float: ...
    def changes_from_hat(self, always_read: ArrayLike = ...) -> NDArray[np.float64]: ...
    def residual_bound(
        self, always_read: ArrayLike = ..., third_derivative: float | None = ...
    ) -> NDArray[np.float64]: ...

class BinnedTaylor(Source):
    y: NDArray[np.float64]
    labels: NDArray[np.int32]
    references: NDArray[np.float64]
    weights: NDArray[np.float64]
    covariances: NDArray[np.float64]
    expansion: Callable[[NDArray[np.float64]], tuple[ArrayLike, ArrayLike, ArrayLike]]
    def __init__(
        self,
        y: ArrayLike,
        expansion: Callable[[NDArray[np.float64]], tuple[ArrayLike, ArrayLike, ArrayLike]],
        n_arms: int,
        *,
        z: ArrayLike | None = ...,
        n_bins: int = ...,
        labels: ArrayLike | None = ...,
    ) -> None: ...
    def update(self) -> None: ...
    def distances(self) -> NDArray[np.float64]: ...
    def farthest(self, fraction: float) -> NDArray[np.int64]: ...
    def residual_bound(self, third_derivative: ArrayLike, always_read: ArrayLike = ...) -> Any: ...

def taylor_glm(
    glm: GLMSource | SoftmaxSource, theta_hat: ArrayLike, outliers: float = ..., *, support: Any = ...
) -> ControlVariate: ...

def residual_rounding(largest: float) -> float: ...

def cubic_weights(
    glm: GLMSource, lengths: NDArray[np.float64], predictors: Callable[[], NDArray[np.float64]],
    y: ArrayLike | None = ...,
) -> tuple[NDArray[np.float64], float]: ...

def cubic_shells(
    glm: GLMSource,
    lengths: NDArray[np.float64],
    predictors: Callable[[], NDArray[np.float64]],
    weights: NDArray[np.float64],
    radius: float,
) -> tuple[tuple[float, NDArray[np.float64]], ...]: ...
