from collections.abc import Mapping
from typing import Any

import numpy as np

from fastrace.streams._stopping import Stream

class Gbas(Stream):
    @property
    def wanted(self) -> int: ...
    @property
    def n_successes(self) -> int: ...
    def _open(self, arguments: Mapping[str, Any], wanted: int, rng: np.random.Generator, **shared: Any) -> None: ...
