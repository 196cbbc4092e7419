"""Control variates in the data: expansions about the centres of bins of rows, for any parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace._base import _checks
from fastrace._base._words import counted
from fastrace.control_variates import BinnedTaylor, ControlVariate
from fastrace.mcmc._variables import Variable
from fastrace.mcmc.models.arch import ARCH
from fastrace.mcmc.models.base import Model, Reference
from fastrace.mcmc.models.glm import GLM
from fastrace.sources import Source

__all__ = ["Binned"]

Array = NDArray[np.float64]
Expansion = Callable[[Array], tuple[Array, Array, Array]]


class Binned(Model):
    r"""A model whose terms are raced on what second-order expansions in the data leave of them.

    The rows are sorted into bins once. At each state and each proposal the terms are expanded in the data about the
    centre of every bin; the sum of these expansions over all rows follows from the bins' means and covariances [1]_.
    Unlike an expansion in the parameters this one follows them anywhere: use it far from a mode, between modes, or
    where the posterior is not near normal. Near a mode an expansion in the parameters, the default of `GLM` and `ARCH`,
    leaves less and takes less time.

    Parameters
    ----------
    model : GLM or ARCH
        The terms and the prior.
    at : array_like of shape (dim,), optional
        Parameters whose predictors, or variances, rows are binned by; by default the mode of the posterior.
    n_bins : int, default 100
        Number of bins: equally filled slices of the predictor, or cells of predictor and outcome.
    outliers : float, default 0.02
        Share of the rows, those farthest from their bin's centre, whose terms are read in every decision, in [0, 1).

    Attributes
    ----------
    covariance : ndarray of shape (dim, dim)
        Of the normal density about the mode: a scale for random walks, ``covariance=model.covariance``.

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    A decision costs O(n_bins dim^2) in NumPy, some 0.1 ms, beside the rows it reads, always-read ones included.
    No bound on what is left is known, so races take the normal rule.

    References
    ----------
    .. [1] Chen, Ghahramani, "Scalable Discrete Sampling as a Multi-Armed Bandit Problem", ICML 2016, section 3.4 and
       appendix C.2.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace import mcmc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 2))
    >>> y = rng.random(20_000) < 1 / (1 + np.exp(-X @ [1.0, -0.5]))
    >>> model = mcmc.Binned(mcmc.GLM(X, y))
    >>> kernel = mcmc.RacingMetropolis(model, covariance=model.covariance)
    >>> trace = mcmc.sample(kernel, [1.0, -0.5], n_draws=200, n_chains=1, rng=1)
    >>> bool(trace.rows.mean() < 10_000)
    True
    """

    _computed = (*Model._computed, "covariance", "_labels", "_always")  # follow from the rest

    def __init__(
        self, model: GLM | ARCH, at: ArrayLike | None = None, n_bins: int = 100, outliers: float = 0.02
    ) -> None:
        if not isinstance(model, (GLM, ARCH)):
            raise TypeError(f"model is {_checks.shown(model)}; a GLM or an ARCH model is needed")
        if model.beside:
            raise ValueError(f"model has {', '.join(model.beside)}; bins hold rows that differ in X and y alone: leave "
                             f"Binned out, kernels expand such a model in its parameters")
        self.n_bins = _checks.integer(n_bins, "n_bins", 1, "rows lie in bins")
        self.outliers = _checks.real(outliers, "outliers")
        if not 0.0 <= self.outliers < 1.0:
            raise ValueError(f"outliers is {outliers}; a share of the rows in [0, 1) is needed")
        reference = model.reference(at)
        self.covariance = reference.factor @ reference.factor.T
        with np.errstate(divide="ignore"):
            sd = 1.0 / np.sqrt(model.prior_precision)
        super().__init__(model.dim, model.n_rows, model.prior_mean, sd, model.log_prior, model.names)
        self.prior_part = model.prior_part
        self.model = model
        self._data = _data(model)
        by = _summaries(model, self._data, reference.theta_hat)
        first = BinnedTaylor(self._data, self._expansion(np.zeros((2, self.dim))), 2, z=by, n_bins=self.n_bins)
        self._labels = np.asarray(first.labels)
        self._always = first.farthest(self.outliers)

    def __repr__(self) -> str:
        bins, always = counted(self._labels.max() + 1, "bin"), counted(len(self._always), "row")
        return f"Binned({self.model!r}, {bins}, {always} always read)"

    def _variables_of(self, names: Sequence[str]) -> tuple[Variable, ...]:
        return self.model._variables_of(names)

    def _expansion(self, theta: Array) -> Expansion:
        return _arch_expansion(theta) if isinstance(self.model, ARCH) else _glm_expansion(self.model, theta)

    def engine(self, reference: Reference | None) -> tuple[Source, Array]:
        source, theta = self.model.engine(None)
        surrogate = BinnedTaylor(self._data, self._expansion(theta), 2, labels=self._labels)

        def totals() -> Array:
            """Asked for at the start of each decision: expands anew."""
            surrogate.update()
            return surrogate.totals()

        return ControlVariate(source, surrogate, totals, self._always), theta


def _data(model: GLM | ARCH) -> Array:
    """The vectors in which terms are expanded."""
    if isinstance(model, ARCH):
        return np.ascontiguousarray(np.lib.stride_tricks.sliding_window_view(model._squares, model.order + 1)[:, ::-1])
    return np.column_stack([np.asarray(model._glm.X, dtype=np.float64), model._glm.y])


def _summaries(model: GLM | ARCH, data: Array, at: Array) -> Array:
    """What rows are binned by."""
    if isinstance(model, ARCH):
        weights = np.exp(at[:-1])
        return np.column_stack([data[:, 0], weights[0] + data[:, 1:] @ weights[1:]])
    predictor, outcome = data[:, :-1] @ at, data[:, -1]
    return (outcome - predictor if model._glm.of_residual else predictor)[:, None]


def _glm_expansion(model: GLM, theta: Array) -> Expansion:
    """Of a row's term in (x, y)."""
    glm = model._glm

    def expand(at: Array) -> tuple[Array, Array, Array]:
        b, q = at.shape
        y, eta = at[:, -1:], at[:, :-1] @ theta.T
        twice: Array | float
        if glm.of_residual:
            value, slope, bend = np.reshape(glm.expand(np.repeat(y, 2), eta.ravel()), (3, b, 2))
            by_y, mixed, twice = -slope, -bend, bend
        else:  # linear in the outcome
            outcomes = np.repeat([0.0, 1.0], eta.size)
            ends = np.reshape(glm.expand(outcomes, np.concatenate([eta, eta]).ravel()), (3, 2, b, 2))
            by_y, mixed, by_y_twice = ends[:, 1] - ends[:, 0]
            value, slope, bend = ends[:, 0] + y * (ends[:, 1] - ends[:, 0])
            twice = 0.0
        gradient, hessian = np.empty((b, 2, q)), np.empty((b, 2, q, q))
        gradient[..., :-1], gradient[..., -1] = slope[..., None] * theta, by_y
        np.multiply(bend[..., None, None], theta[:, :, None] * theta[:, None, :], out=hessian[..., :-1, :-1])
        hessian[..., :-1, -1] = hessian[..., -1, :-1] = mixed[..., None] * theta
        hessian[..., -1, -1] = twice
        return value, gradient, hessian

    return expand


def _arch_expansion(theta: Array) -> Expansion:
    """Of a return's term in its square and those before it."""

    def expand(at: Array) -> tuple[Array, Array, Array]:
        b, q = at.shape
        natural = np.exp(np.clip(theta, -100.0, 100.0))
        square, n, lags = at[:, :1], natural[:, -1], natural[:, 1:-1]
        half = 0.5 * (n + 1.0)
        v = natural[:, 0] + at[:, 1:] @ lags.T
        whole = n * v + square
        twice = half / whole**2
        gradient, hessian = np.empty((b, 2, q)), np.empty((b, 2, q, q))
        gradient[..., 0], gradient[..., 1:] = -half / whole, (0.5 * n / v - half * n / whole)[..., None] * lags
        hessian[..., 0, 0] = twice
        hessian[..., 0, 1:] = hessian[..., 1:, 0] = (n * twice)[..., None] * lags
        products = lags[:, :, None] * lags[:, None, :]
        hessian[..., 1:, 1:] = (n * n * twice - 0.5 * n / v**2)[..., None, None] * products
        return 0.5 * n * np.log(v) - half * np.log(whole), gradient, hessian

    return expand
