"""Exact Metropolis-Hastings: every decision by a pass over all rows."""

from __future__ import annotations

from fastrace.mcmc.kernels._metropolis import RowMetropolis


class Metropolis(RowMetropolis):
    """Metropolis-Hastings that reads every row in every step: the yardstick.

    Parameters
    ----------
    model, proposal, size, walk_share, covariance, control_variate, delayed
        As in `RacingMetropolis`. With a control variate a proposal is first accepted on it, and only then on the rows;
        with ``control_variate=None`` each step makes one pass, as textbooks do.

    Notes
    -----
    The log-likelihood of the present state is kept, so a step costs one pass over the rows for the proposal, by vector
    code.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace import mcmc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(1000, 2))
    >>> y = rng.random(1000) < 0.5
    >>> trace = mcmc.sample(mcmc.Metropolis(mcmc.GLM(X, y)), n_draws=500, n_chains=2, rng=1)
    >>> bool((np.abs(trace.draws.mean(axis=(0, 1))) < 0.3).all())
    True
    """
