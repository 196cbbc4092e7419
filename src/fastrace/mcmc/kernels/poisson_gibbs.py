"""Exact Gibbs sampling from Poisson minibatches of bounded factors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrace._base import _checks
from fastrace.control_variates import ControlVariate
from fastrace.mcmc.kernels.gibbs import Categorical, Gibbs, States, Tally
from fastrace.sources import Source


class PoissonMinibatchGibbs(Gibbs):
    r"""Gibbs sampling with the exact target, from a Poisson number of factors a draw.

    Parameters
    ----------
    variables : sequence of Categorical
        Without `sizes`.
    support : tuple of float
        Interval (low, high) that holds every log-factor.
    rate : float, optional
        :math:`\lambda` in [1]_; by default the square of the sum of the factors' spans, up to a tenth of the factors.
        Larger ones read more and mix as Gibbs sampling does.

    Notes
    -----
    With M the span of a factor, L its sum over the factors of a variable and :math:`\phi` the log-factors less their
    lowest value, a draw reads a Poisson number of factors with mean :math:`\lambda + L`, keeps each with probability
    :math:`(\lambda M / L + \phi) / (\lambda M / L + M)`, :math:`\phi` at the present state, and draws state v in
    proportion to the product of :math:`1 + L \phi(v) / (\lambda M)` over those kept. It is exact, and cheap where L is
    small beside the number of factors: many weak factors. Where L is large, race instead.

    References
    ----------
    .. [1] Zhang, De Sa, "Poisson-minibatching for Gibbs sampling with convergence rate guarantees", NeurIPS 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace import mcmc
    >>> weights = np.random.default_rng(0).random((10_000, 3)) * 1e-3
    >>> factors = lambda states, rows, z: weights[rows][:, states]
    >>> kernel = mcmc.PoissonMinibatchGibbs([mcmc.Categorical(3, factors, 10_000)], support=(0, 1e-3))
    >>> bool(mcmc.sample(kernel, n_draws=100, n_chains=1, n_tune=0, rng=1).rows.mean() < 2000)
    True
    """

    def __init__(
        self, variables: Sequence[Categorical], support: tuple[float, float], rate: float | None = None
    ) -> None:
        super().__init__(variables)
        low, high = _checks.support_bounds(support, 1)
        self.low, self.span = float(low[0]), float(high[0] - low[0])
        if not self.span > 0.0:
            raise ValueError(f"support is {_checks.shown(support)}; an interval of some width is needed")
        if any(v.sizes is not None for v in self.variables):
            raise ValueError("a variable has sizes; factors of a state's own are raced, not drawn by Poisson minibatch")
        if any(v.expansions is not None or isinstance(v.factors, ControlVariate) for v in self.variables):
            raise ValueError("a variable has expansions or a control variate as factors, whose known sums a Poisson "
                             "minibatch does not take into account: give the factors as they are, or use RacingGibbs")
        self.rate = None if rate is None else _checks.real(rate, "rate")
        if self.rate is not None and not 0.0 < self.rate < math.inf:
            raise ValueError(f"rate is {rate}; a positive number is needed")

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "rate": "auto" if self.rate is None else self.rate}

    def _drawn(
        self, rng: np.random.Generator, i: int, z: States, offset: NDArray[np.float64], losses: NDArray[np.intp],
        engine: Source, tally: Tally,
    ) -> int:
        source, n_states = engine, self.variables[i].n_states
        n, whole = source.n_rows, source.n_rows * self.span
        rate = min(max(whole * whole, 1.0), max(0.1 * n, 1.0)) if self.rate is None else self.rate
        rows = rng.integers(0, n, rng.poisson(rate + whole)) if n else np.zeros(0, np.int64)
        tally.looks += 1
        now = source.read(rows, [z[i]])[:, 0] - self.low
        tally.rows += len(rows)
        self._check(now)
        share = rate * self.span / whole if n else 1.0
        kept = rows[rng.random(len(rows)) * (share + self.span) < share + now]
        block = source.read(kept) - self.low
        tally.rows += block.size
        self._check(block)
        score = offset + np.log1p(block / share).sum(axis=0) - np.log(rng.standard_exponential(n_states))
        return int(np.argmax(score))

    def _check(self, values: NDArray[np.float64]) -> None:
        slack = 1e-9 * self.span
        if values.size and not (values.min() >= -slack and values.max() <= self.span + slack):
            raise ValueError(
                f"a log-factor lies outside the support ({self.low}, {self.low + self.span}), on which exactness rests"
            )
