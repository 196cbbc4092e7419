"""TunaMH: exact minibatch Metropolis-Hastings without a control variate."""

from __future__ import annotations

import math
from typing import Any

from fastrace._base import _checks
from fastrace.mcmc.kernels._metropolis import MinibatchMetropolis, Propose, RowMetropolis
from fastrace.mcmc.kernels._minibatch import TunaChain
from fastrace.mcmc.models.model import Model


class TunaMetropolis(MinibatchMetropolis):
    r"""TunaMH [1]_: exact, from minibatches whose size follows the length of the step.

    Parameters
    ----------
    model : Softmax, or GLM of the logistic or Student-t family
        Its terms have bounded slopes.
    chi : float, default 1e-5
        Expected rows are :math:`\chi C^2 M^2 + C M`, with C the sum of the slopes' bounds and M the length of the step.
        Larger values read more and reject less.
    proposal : "random-walk" or callable, default "random-walk"
        A random walk, or a function as in `RacingMetropolis`.
    size : float, default 1.0
        Of the random walk, in units of 2.38 / sqrt(d) standard deviations.
    full_pass_at : float, default 0.5
        As in `PoissonMinibatchMetropolis`.

    Notes
    -----
    A yardstick: without a control variate the minibatch is as large as the step is long in units of the slopes, so
    steps must be far smaller than the posterior is wide. `PoissonMinibatchMetropolis` reads orders of magnitude less.

    References
    ----------
    .. [1] Zhang, Cooper, De Sa, "Asymptotically optimal exact minibatch Metropolis-Hastings", NeurIPS 2020.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace import mcmc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 2))
    >>> y = rng.random(2000) < 0.5
    >>> kernel = mcmc.TunaMetropolis(mcmc.GLM(X, y), size=0.2)
    >>> bool(mcmc.sample(kernel, n_draws=50, n_chains=1, n_tune=0, rng=1).rows.mean() < 1000)
    True
    """

    full_pass_advice = (
        "its minibatches grow with the length of a step and the slopes of the terms. The draws are exact all the same. "
        "Take a smaller size, or PoissonMinibatchMetropolis or RacingMetropolis, whose control variate saves the rows"
    )

    _engine_class = TunaChain

    def __init__(
        self,
        model: Model,
        *,
        chi: float = 1e-5,
        proposal: str | Propose = "random-walk",
        size: float = 1.0,
        full_pass_at: float = 0.5,
    ) -> None:
        if not callable(proposal) and not (isinstance(proposal, str) and proposal == "random-walk"):
            raise ValueError(f"proposal is {_checks.shown(proposal)}; TunaMH takes 'random-walk' or a function "
                             f"(rng, theta)")
        RowMetropolis.__init__(self, model, proposal=proposal, size=size, control_variate=None, delayed=False)
        self.chi = _checks.real(chi, "chi")
        if not 0.0 < self.chi < math.inf:
            raise ValueError(f"chi is {chi}; a positive number is needed")
        if self.reference is None:
            raise ValueError(f"{self.model!r} gives no bound on the slopes of its terms; use RacingMetropolis")
        self._slopes = self.model.slopes(self.reference)
        self._draw_by(self._slopes, full_pass_at)

    def _bounds_of_moves(self) -> tuple[Any, ...]:
        assert self.reference is not None
        nowhere = [0.0] * self.model.dim
        return float(self._slopes.max()), math.fsum(self._slopes), math.inf, nowhere, self.reference.rounding

    def _chain(self, *args: Any, **options: Any) -> TunaChain:
        chain: TunaChain = super()._chain(*args, **options)
        chain.set_chi(self.chi)
        return chain
