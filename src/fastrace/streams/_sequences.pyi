from collections.abc import Mapping
from typing import Any

from fastrace.streams._stopping import Stream

KERNELS: tuple[str, ...]

def doubts(n: int, skewness: float, noun: str) -> tuple[str, ...]: ...

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
