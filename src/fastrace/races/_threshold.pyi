from collections.abc import Iterable
from typing import Any

from numpy.random import Generator
from numpy.typing import ArrayLike

from fastrace.sources import Source

STOPPED_BY: tuple[str, ...]

class ThresholdRace:
    source: Source
    n_rows: int
    accepted: bool
    threshold: float
    n_read: int
    n_evaluated: int
    n_looks: int
    mean: float
    half_width: float
    skewness: float
    kurtosis: float
    outside: bool
    constant: bool
    skewed: bool
    def __init__(
        self,
        source: Source,
        rule: str,
        looks: ArrayLike,
        log_inv_delta: ArrayLike,
        quantile: ArrayLike,
        *,
        shuffled: bool,
        guard: bool,
        advantage: float,
        rng: Generator,
        strict: bool = True,
    ) -> None: ...
    @property
    def stopped_by(self) -> str: ...
    def draw_noise(self, barker: bool) -> float: ...
    def set_support(self, low: float, high: float) -> None: ...
    def run(self, threshold: float) -> bool: ...
    def run_afresh(self, seed: int, threshold: float) -> bool: ...
    def _decided(
        self,
    ) -> tuple[bool, float, int, int, int, str, float, float, float, float, bool, bool, bool]: ...
    def _get_kurtosis(self) -> float: ...
    def _set_kurtosis(self, kurtosis: float) -> None: ...
    def _get_order(self) -> Any: ...
    def _set_order(self, state: Any) -> None: ...
    def _refuse(self, row: int) -> None: ...

def _wealth(
    x: ArrayLike,
    n_rows: int,
    low: float,
    shift: float = ...,
    cuts: Iterable[int] = ...,
    mirrored: bool = ...,
    y: ArrayLike | None = ...,
) -> list[tuple[float, float, bool]]: ...
