"""Slice sampling by full passes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastrace._base import _checks
from fastrace.mcmc.kernels._rows import RowKernel, Tuning
from fastrace.mcmc.kernels._slice import Sweep
from fastrace.mcmc.models.model import Model, Reference


class Slice(RowKernel):
    """Slice sampling [1]_ that reads every row for every membership test: the yardstick of `RacingSlice`.

    Parameters
    ----------
    model : GLM, FunctionModel, SourceModel or other Model
        Log-likelihood terms and prior.
    width, max_steps
        As in `RacingSlice`.
    covariance, control_variate
        As in `RacingMetropolis`.

    References
    ----------
    .. [1] Neal, "Slice sampling", Annals of Statistics 31(3), 2003.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace import mcmc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(1000, 2))
    >>> y = rng.random(1000) < 0.5
    >>> mcmc.sample(mcmc.Slice(mcmc.GLM(X, y)), n_draws=100, n_chains=1, n_tune=0, rng=1).draws.shape
    (1, 100, 2)
    """

    def __init__(
        self,
        model: Model,
        *,
        width: float = 2.5,
        max_steps: int = 16,
        covariance: ArrayLike | None = None,
        control_variate: str | ArrayLike | Reference | None = "auto",
    ) -> None:
        self.width = _checks.real(width, "width")
        if not 0.0 < self.width < float("inf"):
            raise ValueError(f"width is {width}; a positive number is needed")
        self.max_steps = _checks.integer(max_steps, "max_steps", 1, "one interval is the least")
        super().__init__(model, covariance, control_variate)

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "width": self.width, "max_steps": self.max_steps}

    def _move(self, tuning: Tuning, rng: np.random.Generator | None, tune: bool) -> Sweep:
        return Sweep(self.width, self.max_steps)
