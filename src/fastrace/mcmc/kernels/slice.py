"""Slice sampling by full passes."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from fastrace._base import _checks
from fastrace.mcmc.kernels._chain import ExactSliceChain
from fastrace.mcmc.kernels._metropolis import RowMetropolis
from fastrace.mcmc.models.model import Model, Reference


def slice_options(width: float, max_steps: int) -> tuple[float, int]:
    """The two options of a slice sampler, checked."""
    width = _checks.real(width, "width")
    if not 0.0 < width < float("inf"):
        raise ValueError(f"width is {width}; a positive number is needed")
    return width, _checks.integer(max_steps, "max_steps", 1, "one interval is the least")


class Slice(RowMetropolis):
    """Slice sampling [1]_ that reads every row for every membership test: the yardstick of `RacingSlice`.

    Parameters
    ----------
    model, covariance, control_variate
        As in `RacingMetropolis`.
    width, max_steps
        As in `RacingSlice`.

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
        self.width, self.max_steps = slice_options(width, max_steps)
        super().__init__(
            model, proposal="random-walk", covariance=covariance, control_variate=control_variate, delayed=False
        )
        self.proposal = "slice"

    def _chain(self, *args: Any, **options: Any) -> ExactSliceChain:
        chain = ExactSliceChain(*args, **options)
        chain.set_slice(self.width, self.max_steps)
        return chain
