"""Metropolis-Hastings from Poisson minibatches on top of a control variate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtrc

from fastrace._base import _checks
from fastrace._base._blas import one_blas_thread
from fastrace.mcmc.kernels._metropolis import MinibatchMetropolis, Propose
from fastrace.mcmc.kernels._minibatch import PoissonChain
from fastrace.mcmc.kernels._rows import ChainState
from fastrace.mcmc.kernels._shared_minibatch import SharedMinibatch, beyond_bounds
from fastrace.mcmc.models.model import Model, Reference
from fastrace.mcmc.protocol import Steps, keep_partial

_IN_NO_TIME = 1000  # draws of rows that a batch may make however few rows there are
_JUDGED = 64  # draws whose rows are held against their bounds
_BY_CHANCE = 1e-4  # probability that as many of them are beyond where no more are than is said


class PoissonMinibatchMetropolis(MinibatchMetropolis):
    r"""Metropolis-Hastings with the exact posterior as its target, from a handful of rows a step.

    With a `batch`, for hundreds of parameters, it has the posterior as its target up to a probability of `tail`.

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
    batch : int, default 1
        Steps that one minibatch decides, for ``proposal="independent"`` of a `GLM` with a fixed scale or a `Softmax`.
        256 is a good number, with a `walk_share` of 0.001. None of these steps is delayed.
    tail : float, default 0.001
        Of batches: probability, of a draw from the reference, that some row changes by more than it is taken to, in
        (0, 1).

    Raises
    ------
    ValueError
        If an argument is out of range, the model has no such bound, or `batch` is above 1 for proposals that need the
        state, for a model without bounds for batches, or for bounds so wide that a minibatch would draw more
        rows than there are, and more than 1000.

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

    Batches are for many parameters. There a bound that holds for every direction of a move is far too wide: the rows
    that a step reads grow like :math:`d^3`. In a draw from the reference, the predictor of a row moves by
    :math:`\|L^\top x_i\|` times a standard normal variate, whatever d is and whatever the rows are. So with
    probability ``1 - tail`` none of the n predictors moves by more than the normal quantile of ``tail / (2 n)`` times
    that length, and no residual :math:`r_i` of the expansion is then beyond a bound :math:`b_i`. A row is drawn
    a Poisson number of times with mean :math:`b_i + r_i(\theta)` at the chain's point. Given these numbers, the law of
    the parameters rests on the rows drawn alone [4]_. A batch makes its steps on that law, then draws new rows; so
    the terms of all its proposals are products of matrices. The proposals stand about the posterior's mean to third
    order, as in `Metropolis`. The chain leaves invariant the posterior whose residuals are cut at their bounds. That is
    the posterior itself wherever no residual is beyond its bound: errors of decisions do not add up. `sample` holds
    some draws against the bounds, by all rows, and warns where far more of them than `tail` are beyond. With 10^5 rows
    and 200 or 500 parameters, a minibatch has 230 or 980 rows.

    References
    ----------
    .. [1] Zhang, Cooper, De Sa, "Asymptotically optimal exact minibatch Metropolis-Hastings", NeurIPS 2020.
    .. [2] Prado, Nemeth, Sherlock, "Metropolis-Hastings with scalable subsampling", 2024, arXiv:2407.19602.
    .. [3] Cornish, Vanetti, Bouchard-Cote, Deligiannidis, Doucet, "Scalable Metropolis-Hastings for exact Bayesian
       inference with large datasets", ICML 2019.
    .. [4] Zhang, De Sa, "Poisson-minibatching for Gibbs sampling with convergence rate guarantees", NeurIPS 2019.

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
    >>> X = rng.normal(size=(20_000, 100))
    >>> model = mcmc.GLM(X, rng.random(20_000) < 0.5, prior_sd=10.0)
    >>> kernel = mcmc.PoissonMinibatchMetropolis(model, proposal="independent", batch=256, walk_share=0.001)
    >>> trace = mcmc.sample(kernel, n_draws=1000, n_chains=2, rng=1)
    >>> bool(trace.rows.mean() < 1000)
    True
    """

    tail = 0.001  # of kernels saved before there were batches
    _engine_class = PoissonChain
    _purpose = "without which no minibatch is exact"
    _bounds_of_rows: NDArray[np.float64]  # of batches; and their sums over rows 0 to i
    _sums_of_bounds: NDArray[np.float64]

    @one_blas_thread()
    def __init__(
        self,
        model: Model,
        *,
        proposal: str | Propose = "auto",
        size: float = 1.0,
        walk_share: float = 0.1,
        control_variate: str | ArrayLike | Reference = "auto",
        delayed: bool = True,
        full_pass_at: float = 0.5,
        batch: int = 1,
        tail: float = 0.001,
    ) -> None:
        super().__init__(model, proposal=proposal, size=size, walk_share=walk_share, control_variate=control_variate,
                         delayed=delayed, full_pass_at=full_pass_at)
        self.tail = _checks.probability(tail, "tail")
        self._take_batch(batch, "a minibatch decides at least the next step")
        if self.batch > 1:
            self._bound_rows()

    def _bound_rows(self) -> None:
        """Bounds on residuals that all hold with probability 1 - tail at least, for draws from the proposals."""
        assert self.reference is not None
        about = self.reference
        bounds = self.model._likely_bounds(about, about.center + about.factor @ self.lean, self.tail)
        if bounds is None:
            raise ValueError(f"batch is {self.batch}, and {self.model!r} gives no bounds for batches; take batch=1")
        total = math.fsum(bounds)
        if not 2.0 * total <= max(self.model.n_rows, _IN_NO_TIME):
            raise ValueError(f"batch is {self.batch}, and by bounds that hold with tail={self.tail} a minibatch would "
                             f"draw {2.0 * total:.3g} times a row of {self.model.n_rows}: {self.full_pass_advice}")
        self._bounds_of_rows, self._sums_of_bounds = bounds, np.cumsum(bounds)

    def describe(self) -> dict[str, Any]:
        return super().describe() | ({"batch": self.batch, "tail": self.tail} if self.batch > 1 else {})

    def _run(
        self, rng: np.random.Generator, state: ChainState, n: int, tune: bool = False
    ) -> tuple[ChainState, Steps]:
        if self.batch == 1 or (tune and state.tuning.reach):
            return super()._run(rng, state, n, tune)
        chain = SharedMinibatch(self, state, n)
        try:
            while chain.n_done < n:
                chain.advance(rng, n - chain.n_done)
        except BaseException as error:
            keep_partial(error, replace(chain.state(), cache=None), chain.steps())
            raise
        return chain.state(), chain.steps()

    def _beyond(self, draws: NDArray[np.float64], about: Mapping[str, Any] | None = None) -> str:
        """What draws of shape (n, dim) show of the bounds of batches, in words; empty if these hold."""
        if self.batch == 1:
            return ""
        some = self._unconstrained(draws[np.linspace(0, len(draws) - 1, min(_JUDGED, len(draws))).astype(np.intp)])
        beyond = beyond_bounds(self, some)
        if beyond == 0 or bdtrc(beyond - 1, len(some), self.tail) > _BY_CHANCE:
            return ""
        return (f"at {beyond} of {len(some)} draws some row's term is beyond the bound that batches give it, and about "
                f"{self.tail * len(some):.2g} are expected: the posterior reaches farther out than the normal density "
                f"at the mode, and its tails are cut. Take a smaller tail, or batch=1, which is exact")
