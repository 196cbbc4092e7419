"""Exact Metropolis-Hastings from Poisson minibatches on top of a control variate."""

from __future__ import annotations

from fastrace.mcmc.kernels._metropolis import MinibatchMetropolis
from fastrace.mcmc.kernels._minibatch import PoissonChain


class PoissonMinibatchMetropolis(MinibatchMetropolis):
    r"""Metropolis-Hastings with the exact posterior as its target, from a handful of rows a step.

    Parameters
    ----------
    model : GLM or other Model
        Log-likelihood terms and prior. Its reference must bound the third derivative of each row's term.
    proposal, size, walk_share, control_variate, delayed
        As in `RacingMetropolis`; a control variate is needed.
    full_pass_at : float, default 0.5
        Expected rows of a step, as a share of all rows, from which on it reads all rows in order instead. The chain
        stays exact. However large this is, a step that expects more than 10 times the rows, and more than 10,000,
        reads all rows.

    Raises
    ------
    ValueError
        If the model has no such bound.

    Notes
    -----
    Let :math:`R_i` be what the second-order expansion leaves of the change of term i, bounded by :math:`c_i M` with
    :math:`c_i = \sup |l'''| \|L^\top x_i\|^3` and M a function of the move. A Poisson number of rows with mean
    :math:`M \sum c_i` is drawn in proportion to :math:`c_i`; each counts with probability
    :math:`\phi_i / c_i M`, :math:`\phi_i = c_i M + \min(0, -R_i)`, and multiplies the acceptance ratio by
    :math:`(\phi_i + R_i) / \phi_i`. The posterior stays invariant, without bias [1]_ [2]_. Rows come from an alias
    table: O(1) each. Where the sum of :math:`c_i M` is large, as in many dimensions, so are the minibatches.

    Where most rows bend far less near the mode than a row of that family may, as where outcomes are rare,
    :math:`\sup |l'''|` is replaced by its weighted average over what a row sees in a ball about the mode, of radius
    :math:`\sqrt d + 2`, 4 or 8 standard deviations; a move takes the bounds of the smallest ball that holds both its
    ends. That is the same for the way back, and all that the proof asks of a bound is that both directions have it: the
    chain stays exact. With 10^5 rows, 10 parameters and 500, 100 and 20 outcomes of 1 a step reads 31, 110 and 830
    rows; with one bound for all rows it read 490, 5,700 and 60,000. `Reference.shells` has the bounds. Such a posterior
    leans: of 20 outcomes the normal density at the mode gives a chain 1,400 effective samples a CPU second, and
    "student-t" proposals, the default there, 4,300 to 5,300 from 1 % of the rows a step.

    A bound is of a move that points along the row, and moves in many dimensions point along few. So rows of large
    minibatches are thinned before their terms are computed: how far the move takes the row's own predictors bounds its
    change too, from 16 parameters on much more closely, and a row is kept with the probability that leaves it at 16
    times the rate of that bound. It is the same for the way back. `Trace.rows` counts the rows drawn. With 10^5 rows
    and 5 classes of 20 columns a tenth of 530 rows a step are kept, and a step takes 0.7 times as long.

    The terms of Poisson regression have no bounded third derivative, but have one near the mode: a step that leaves a
    ball of radius sqrt(d) + 5 standard deviations, or starts outside, reads all rows.

    Where outcomes are almost separated, the posterior is wide beside the curvature of the terms, and most steps read
    all rows: `sample` warns of it. For a logistic regression on 5000 rows with a true slope of 100 and ``prior_sd=10``
    this kernel read all rows in 99 % of its steps, and `RacingMetropolis` a tenth of the rows, at its `delta` per
    decision.

    References
    ----------
    .. [1] Zhang, Cooper, De Sa, "Asymptotically optimal exact minibatch Metropolis-Hastings", NeurIPS 2020.
    .. [2] Prado, Nemeth, Sherlock, "Metropolis-Hastings with scalable subsampling", 2024, arXiv:2407.19602.
    .. [3] Cornish, Vanetti, Bouchard-Cote, Deligiannidis, Doucet, "Scalable Metropolis-Hastings for exact Bayesian
       inference with large datasets", ICML 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace import mcmc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 3))
    >>> y = rng.random(20_000) < 1 / (1 + np.exp(-X @ [1.0, -0.5, 0.0]))
    >>> kernel = mcmc.PoissonMinibatchMetropolis(mcmc.GLM(X, y, prior_sd=10.0))
    >>> trace = mcmc.sample(kernel, n_draws=2000, n_chains=2, rng=1)
    >>> bool(trace.rows.mean() < 10)
    True
    """

    _engine_class = PoissonChain
    _purpose = "without which no minibatch is exact"
