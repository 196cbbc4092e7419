from fastrace.streams._stopping import Stream

SCHEDULES: dict[str, int]

class HoeffdingStop(Stream):
    def _configure_hoeffding(self, *, beta: float = ..., two_sided: bool = ...) -> None: ...

class BernsteinStop(Stream):
    def _configure_bernstein(
        self,
        *,
        schedule: str,
        spending: str = ...,
        beta: float = ...,
        power: float = ...,
        use_support: bool = ...,
        cap: int | None = ...,
    ) -> None: ...

class SumStop(Stream):
    def _configure_sums(self) -> None: ...

class ApproximationStop(Stream):
    def _configure_sums(self) -> None: ...
    @property
    def phase(self) -> int: ...
