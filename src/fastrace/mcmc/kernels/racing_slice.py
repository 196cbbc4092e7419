"""Slice sampling whose membership tests are races."""

from __future__ import annotations

from numpy.typing import ArrayLike

from fastrace.mcmc.kernels._racing import Racing
from fastrace.mcmc.kernels.slice import Slice
from fastrace.mcmc.models.model import Model, Reference
from fastrace.races._options import RaceOptions, takes_options


class RacingSlice(Racing, Slice):
    """Slice sampling that reads only as many rows as each membership test needs.

    Parameters
    ----------
    model : GLM, FunctionModel, SourceModel or other Model
        Log-likelihood terms and prior.
    delta : float, default 0.05
        Probability that one membership test is wrong.
    bound : str, default "auto"
        As in `RacingMetropolis`.
    width : float, default 2.5
        Of a step outwards, in standard deviations of the reference, or of the proposal covariance.
    max_steps : int, default 16
        Most steps outwards in one coordinate, both sides together.
    covariance, control_variate, first_look, growth, access, student, skewness_guard, scan_advantage, options
        As in `RacingMetropolis`.

    Notes
    -----
    A step is a sweep over the whitened coordinates: along each, stepping out and shrinkage [1]_, with each "is this
    point in the slice?" a race on a fresh subset of rows. A coordinate takes about five tests, so a sweep goes wrong
    with probability at most the number of its tests times `delta`. There is no size to tune.

    References
    ----------
    .. [1] Neal, "Slice sampling", Annals of Statistics 31(3), 2003.
    .. [2] Chen, Ghahramani, "Scalable Discrete Sampling as a Multi-Armed Bandit Problem", ICML 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace import mcmc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 2))
    >>> y = rng.random(20_000) < 0.5
    >>> trace = mcmc.sample(mcmc.RacingSlice(mcmc.GLM(X, y)), n_draws=200, n_chains=1, n_tune=0, rng=1)
    >>> bool(trace.rows.mean() < 2000)
    True
    """

    @takes_options
    def __init__(
        self,
        model: Model,
        delta: float = 0.05,
        bound: str = "auto",
        *,
        width: float = 2.5,
        max_steps: int = 16,
        covariance: ArrayLike | None = None,
        control_variate: str | ArrayLike | Reference | None = "auto",
        first_look: int | None = None,
        growth: float | None = None,
        access: str = "auto",
        student: bool = False,
        skewness_guard: bool | None = None,
        scan_advantage: float | None = None,
        options: RaceOptions | None = None,
    ) -> None:
        Slice.__init__(
            self, model, width=width, max_steps=max_steps, covariance=covariance, control_variate=control_variate
        )
        self._race_by(delta, bound, first_look, growth, access, student, skewness_guard, scan_advantage)
