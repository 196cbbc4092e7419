"""ARCH models of volatility."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import digamma, gammaln, polygamma

from fastrace._base import _checks, _frames
from fastrace._base._words import counted
from fastrace._models._arch import ArchSource
from fastrace._models.glm_inputs import are_counts
from fastrace._models.grouping import row_numbers
from fastrace._models.rows import chunks
from fastrace.mcmc.models._joint import Layout
from fastrace.mcmc.models._modes import Parts
from fastrace.mcmc.models.base import LogPrior, _CompiledModel
from fastrace.mcmc.models.priors import Normal

__all__ = ["ARCH"]

Array = NDArray[np.float64]


class ARCH(_CompiledModel):
    r"""ARCH(q) with Student-t errors, in the logarithms of its parameters, with normal or other priors on them.

    Return t has :math:`v_t = a_0 + \sum_{i \le q} a_i r_{t-i}^2`, and :math:`r_t / \sqrt{v_t}` has Student's t
    distribution with :math:`\nu` degrees of freedom. The parameters of a chain are
    :math:`(\log a_0, \ldots, \log a_q, \log \nu)`.

    Parameters
    ----------
    returns : array_like of real numbers, shape (T,)
        Returns, mean removed. The first `order` are conditioned on; the other T - order are the rows.
    order : int
        q, in [1, 64].
    weights : array_like of whole numbers from 0 up, shape (T,), optional
        What the log-likelihood of each return is multiplied by, such as 0 for returns after a gap, which then explain
        the variance of others all the same. Those of the first `order` returns are not used. Default priors are about
        the variance of all returns, whatever their weights.
    prior : Normal, StudentT, Laplace, Horseshoe, LogDensity, dict or sequence of these, or "weak", optional
        Prior of the logarithms, as in `GLM`: one for all, or a dict by name, such as "log a[1]" or "log nu". What a
        dict leaves out, and "weak", has the normal priors below.
    prior_mean, prior_sd : array_like of shape (order + 2,), or float
        Independent normal priors of the logarithms. By default :math:`a_0` is log-normal about 0.7 times the variance
        of the returns, :math:`a_i` about :math:`0.3 / q`, both with standard deviation 2 of the logarithm, and
        :math:`\nu` about 6 with standard deviation 0.7.
    log_prior : callable, optional
        As in `GLM`.

    Raises
    ------
    ValueError
        If the returns are not a vector of finite numbers longer than `order`, or all of them are 0, if a weight is out
        of range, or if priors are given in two ways.

    Notes
    -----
    Terms and their second-order expansions in these logarithms are compiled vector code. The data hardly speak of
    weights far below the others: the posterior is then much wider than an expansion at its mode holds, and races read
    many rows, or all. No bound on each row's third derivative is given, as `PoissonMinibatchMetropolis` and
    `TunaMetropolis` need: use `RacingMetropolis`, `RacingSlice` or an exact kernel.

    References
    ----------
    .. [1] Engle, "Autoregressive conditional heteroscedasticity", Econometrica 50(4), 1982.
    .. [2] Chen, Ghahramani, "Scalable Discrete Sampling as a Multi-Armed Bandit Problem", ICML 2016, section 4.2.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace import mcmc
    >>> rng = np.random.default_rng(0)
    >>> r = np.zeros(20_000)
    >>> for t in range(1, 20_000):
    ...     r[t] = np.sqrt(0.5 + 0.4 * r[t - 1] ** 2) * rng.standard_t(8.0)
    >>> kernel = mcmc.RacingMetropolis(mcmc.ARCH(r, order=1))
    >>> trace = mcmc.sample(kernel, n_draws=1000, n_chains=2, rng=1)
    >>> np.exp(trace.draws.mean(axis=(0, 1))).round(1)[:2]
    array([0.5, 0.4])
    """

    def __init__(
        self,
        returns: ArrayLike,
        order: int,
        *,
        weights: ArrayLike | None = None,
        prior: Any = None,
        prior_mean: ArrayLike | None = None,
        prior_sd: ArrayLike | None = None,
        log_prior: LogPrior | None = None,
    ) -> None:
        self.order = _checks.integer(order, "order", 1, "without a lag the variance is constant")
        _frames.require_same_rows(returns=returns, weights=weights)
        series = _checks.as_array(returns, "returns")
        vector = series.ndim == 1 and series.dtype.kind in "fiu"
        odd = np.flatnonzero(~np.isfinite(series)) if vector else np.zeros(0, int)
        if odd.size:
            raise ValueError(f"returns[{odd[0]}] is {series[odd[0]]}, and {counted(odd.size, 'return')} of "
                             f"{series.size} are not finite; leave them out, such as the first of pandas' pct_change")
        if not vector or len(series) <= self.order or not series.any():
            raise ValueError(
                f"returns has shape {series.shape} and dtype {series.dtype}; a vector of more than {self.order} finite "
                f"numbers, not all of them 0, is needed"
            )
        self._squares = np.square(series.astype(np.float64))
        dim = self.order + 2
        level = float(self._squares.mean())
        self.start = np.log([0.7 * level, *[0.3 / self.order] * self.order, 6.0])
        times = row_numbers(weights, "weights", len(series), are_counts, "a whole number from 0 up", "return")
        self._weights = None if times is None else times[self.order :].copy()
        ArchSource(self._squares, self.order, np.zeros((1, dim)), weights=self._weights)  # argument checks
        mean, sd = (0.0, math.inf) if prior is not None else (self.start, self._weak_sd(dim))
        super().__init__(
            dim,
            len(series) - self.order,
            mean if prior_mean is None else prior_mean,
            sd if prior_sd is None else prior_sd,
            log_prior,
            [*(f"log a[{lag}]" for lag in range(self.order + 1)), "log nu"],
        )
        self._take_priors(prior)

    @staticmethod
    def _weak_sd(dim: int) -> Array:
        return np.array([2.0] * (dim - 1) + [0.7])

    def _layout(self) -> Layout:
        """Of the logarithms, with the priors that they have by default."""
        dim = self.order + 2
        weak = [Normal(float(mean), float(sd)) for mean, sd in zip(self.start, self._weak_sd(dim), strict=True)]
        n = self.n_rows if self._weights is None else float(self._weights.sum()) or self.n_rows
        return Layout(tuple(self.names or ()), (0.0,) * dim, (1.0,) * dim, (), None, n, 0.0, 1.0, 1.0,
                      given=tuple(weak))

    def __repr__(self) -> str:
        return f"ARCH({counted(self.n_rows, 'row')}, order={self.order})"

    _positive = True
    _weights: Array | None = None  # of models saved before they had weights

    def _arms(self, count: int) -> tuple[ArchSource, Array]:
        theta = np.zeros((count, self.n_seen))
        return ArchSource(self._squares, self.order, theta, weights=self._weights), theta

    @property
    def beside(self) -> tuple[str, ...]:
        """What the model has beside returns, in words; empty for most models."""
        return () if self._weights is None else ("weights",)

    def _expand(self, at: Array) -> Parts:
        """Sums of the terms, their gradients and Hessians in the logarithms."""
        return self._expanded(at, self._lagged(), self._weights)

    def _expand_some(self, at: Array, rows: NDArray[np.int64]) -> Parts:
        return self._expanded(at, self._lagged()[rows], None if self._weights is None else self._weights[rows])

    def _lagged(self) -> Array:
        """Squares of each row and of those before it, the latest first; not copied."""
        return np.lib.stride_tricks.sliding_window_view(self._squares, self.order + 1)[:, ::-1]

    def _expanded(self, at: Array, lags: Array, weights: Array | None) -> Parts:
        d = self.n_seen
        with np.errstate(over="ignore"):
            natural = np.exp(np.clip(at, -600.0, 600.0))
        n = float(natural[-1])
        scale = np.append(np.ones(d - 1), n)  # x holds the weights' own
        value, gradient, hessian = 0.0, np.zeros(d), np.zeros((d, d))
        for rows, lagged in chunks(lags):
            square = lagged[:, 0]
            x = lagged * natural[:-1]  # what each parameter adds to the variance
            x[:, 0] = natural[0]
            part, slope, bend = term_sums(square, x, x.sum(axis=1), n, None if weights is None else weights[rows])
            value += part
            gradient += scale * slope
            hessian += np.outer(scale, scale) * bend + np.diag(scale * slope)
        return value, gradient, hessian

    def _start(self) -> Array:
        return self.start


def term_sums(
    square: Array, columns: Array, variance: Array, nu: float, times: Array | None = None
) -> tuple[float, Array, Array]:
    """Sum of the log densities of returns, its gradient and its Hessian in weights w and nu.

    The variances are columns @ w plus what does not depend on w. Each return counts `times` times.
    """
    part = term_derivatives(square, variance, nu)
    if times is not None:
        part = {name: times * values for name, values in part.items()}
    d = columns.shape[1] + 1
    gradient, hessian = np.empty(d), np.empty((d, d))
    gradient[:-1], gradient[-1] = part["dv"] @ columns, part["dn"].sum()
    hessian[:-1, :-1] = columns.T @ (part["dvv"][:, None] * columns)
    hessian[-1, :-1] = hessian[:-1, -1] = part["dvn"] @ columns
    hessian[-1, -1] = part["dnn"].sum()
    return float(np.sum(part["value"])), gradient, hessian


def term_derivatives(square: Array, variance: Array, nu: float) -> dict[str, Array]:
    """Student-t log densities of returns with the given squares and variances, and their derivatives.

    Returns "value"; by variance and nu "dv", "dn", "dvv", "dvn", "dnn"; each of the shape of `square`.
    """
    half = 0.5 * (nu + 1.0)
    constant = float(gammaln(half) - gammaln(0.5 * nu) - 0.5 * math.log(math.pi * nu) + half * math.log(nu))
    by_n = float(0.5 * (digamma(half) - digamma(0.5 * nu)) + 0.5 + 0.5 * math.log(nu))
    by_nn = float(0.25 * (polygamma(1, half) - polygamma(1, 0.5 * nu)) + 0.5 / nu)
    whole = nu * variance + square
    return {
        "value": constant + 0.5 * nu * np.log(variance) - half * np.log(whole),
        "dv": 0.5 * nu / variance - half * nu / whole,
        "dn": by_n + 0.5 * np.log(variance / whole) - half * variance / whole,
        "dvv": -0.5 * nu / variance**2 + half * nu * nu / whole**2,
        "dvn": 0.5 / variance - (nu + 0.5) / whole + half * nu * variance / whole**2,
        "dnn": by_nn - variance / whole + half * (variance / whole) ** 2,
    }
