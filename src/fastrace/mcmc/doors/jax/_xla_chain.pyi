from collections.abc import Callable
from typing import Any, Literal

from fastrace.mcmc.kernels._chain import Chain

CACHE_WORDS: Literal[4]
crews: dict[int, Crew]

class Crew:
    races: bool
    number: int
    def __init__(self, make: Callable[[], Chain], races: bool) -> None: ...

def speak(major: int, minor: int) -> None: ...
def targets() -> dict[str, Any]: ...
