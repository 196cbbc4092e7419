"""Firefly Monte Carlo: exact Metropolis-Hastings on the rows that are bright."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from fastrace._base import _checks
from fastrace.mcmc.kernels._metropolis import MinibatchMetropolis, Propose
from fastrace.mcmc.kernels._minibatch import FireflyChain
from fastrace.mcmc.models.model import Model, Reference


class FireflyMetropolis(MinibatchMetropolis):
    r"""Firefly [1]_: exact, by an auxiliary variable for each row that says whether its likelihood is read.

    Parameters
    ----------
    model : GLM, Softmax or other Model
        Log-likelihood terms and prior. Its reference must bound the third derivative of each row's term.
    fraction : float, default 1.0
        Share of the rows, chosen at random, whose variables are drawn anew before a decision, in (0, 1]. Less than 1
        reads less and mixes more slowly.
    proposal, size, walk_share, control_variate, delayed, full_pass_at
        As in `PoissonMinibatchMetropolis`.

    Raises
    ------
    ValueError
        If the model has no such bound, or an argument is out of range.

    See Also
    --------
    PoissonMinibatchMetropolis : exact from the same bounds, and the better choice.

    Notes
    -----
    With :math:`T_n` the second-order expansion of a row's log-likelihood :math:`\ell_n`, :math:`c_n` the bound on its
    third derivative and w the whitened distance from the point of expansion,
    :math:`\log B_n = T_n - c_n |w|^3 / 6` is a lower bound, whose sum over all rows is known without reading one. A row
    is bright with probability :math:`1 - B_n / L_n`, :math:`L_n = e^{\ell_n}`; given which rows are bright the
    parameters move on the product of all :math:`B_n` and of :math:`L_n / B_n - 1` over the bright rows. Their posterior
    is the exact one, whatever the bounds.

    The bound lies within :math:`c_n |w|^3 / 3` of the likelihood, so all brightnesses are drawn exactly from a Poisson
    number of rows with mean :math:`|w|^3 \sum c_n / 3`: no row is looked at in vain as in [1]_, whose bound for
    logistic regression leaves a gap of second order in w and takes proposals for each dark row. The ratio still
    fluctuates with the bright rows, where `PoissonMinibatchMetropolis` reads rows in proportion to the length of the
    step.

    References
    ----------
    .. [1] Maclaurin, Adams, "Firefly Monte Carlo: exact MCMC with subsets of data", UAI 2014.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace import mcmc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 3))
    >>> y = rng.random(20_000) < 1 / (1 + np.exp(-X @ [1.0, -0.5, 0.0]))
    >>> kernel = mcmc.FireflyMetropolis(mcmc.GLM(X, y, prior_sd=10.0))
    >>> trace = mcmc.sample(kernel, n_draws=2000, n_chains=2, rng=1)
    >>> bool(trace.rows.mean() < 10)
    True
    """

    _engine_class = FireflyChain
    _purpose = "and so no lower bound of its likelihood"
    _shells = ()  # a bound on the likelihood is of a state, not of a move

    def __init__(
        self,
        model: Model,
        *,
        fraction: float = 1.0,
        proposal: str | Propose = "auto",
        size: float = 1.0,
        walk_share: float = 0.1,
        control_variate: str | ArrayLike | Reference = "auto",
        delayed: bool = True,
        full_pass_at: float = 0.5,
    ) -> None:
        super().__init__(model, proposal=proposal, size=size, walk_share=walk_share, control_variate=control_variate,
                         delayed=delayed, full_pass_at=full_pass_at)
        self.fraction = _checks.real(fraction, "fraction")
        if not 0.0 < self.fraction <= 1.0:
            raise ValueError(f"fraction is {fraction}; a share of the rows in (0, 1] is needed")

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "fraction": self.fraction}

    def _chain(self, *args: Any, **options: Any) -> FireflyChain:
        chain: FireflyChain = super()._chain(*args, **options)
        chain.set_fraction(self.fraction)
        return chain
