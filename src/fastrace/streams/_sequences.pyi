from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrace.streams._stopping import Stream

KERNELS: tuple[str, ...]

def doubts(n: int, skewness: float, noun: str) -> tuple[str, ...]: ...

def differences(
    streams: list[Any],
    pairs: NDArray[np.intp],
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    log_inv_delta: float,
    evidence: bool,
    found: NDArray[np.float64],
) -> None: ...

class Sequence(Stream):
    def _open(
        self,
        arguments: Mapping[str, Any],
        kernel: str,
        *,
        n_rows: int | None = ...,
        cap: float = ...,
        best_at: float = ...,
        running: bool = ...,
        first_look: int = ...,
        **shared: Any,
    ) -> None: ...
    def _capital(self) -> tuple[float, float]: ...
    def _absorb(self, other: Sequence) -> None: ...
    @property
    def n_rows(self) -> int | None: ...
