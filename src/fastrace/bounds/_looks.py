"""Looks at a finite population, the share of delta that each may spend, and what reading without replacement saves."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import fastrace._math._half_widths as _half_widths
import fastrace._math._quantile as _quantile
from fastrace.bounds._arguments import checked, documented, single


@documented
def variance_factor(n: ArrayLike, n_rows: ArrayLike) -> Any:
    r"""Variance of the mean of rows read without replacement, over the variance of one row.

    .. math:: v(n) = \frac{1}{n} \left(1 - \frac{n - 1}{N - 1}\right)

    Parameters
    ----------
    {n} {n_rows}

    {factor}
        1 at ``n = 1``, 0 at ``n = n_rows``. Exact for every population.

    {errors}

    Examples
    --------
    >>> variance_factor([1, 50, 100], 100).round(4).tolist()
    [1.0, 0.0101, 0.0]
    """
    return _half_widths.variance_factor(*checked(n=n, n_rows=n_rows))


@documented
def serfling_factor(n: ArrayLike, n_rows: ArrayLike) -> Any:
    """The factor by which reading without replacement shrinks squared half-widths.

    Parameters
    ----------
    {n} {n_rows}

    {factor}
        rho_n of the reference: 1 at ``n = 1 < n_rows``, 0 at ``n = n_rows``.

    {errors}

    References
    ----------
    .. [1] Bardenet, Maillard, "Concentration inequalities for sampling without replacement", Bernoulli 21 (2015),
       eq. 10.

    Examples
    --------
    >>> serfling_factor([1, 50, 100], 100).tolist()
    [1.0, 0.51, 0.0]
    """
    return _half_widths.serfling_factor(*checked(n=n, n_rows=n_rows))


@documented
def looks(n_rows: int, first_look: int = 50, growth: float = 2.0) -> NDArray[np.int64]:
    """Rows read at each look of a growing schedule.

    The first look reads `first_look` rows, each further one ``floor(growth * n)`` rows and at least one more than the
    look before, the last one all of them.

    Parameters
    ----------
    n_rows : int
        Rows in the population, at least 1.
    first_look : int, default 50
        Rows read at the first look, at least 1; from `n_rows` on there is a single look.
    growth : float, default 2.0
        Ratio of one look to the look before, above 1.

    Returns
    -------
    ndarray of int64, shape (n_looks,)
        Increasing; the last is `n_rows`.

    Raises
    ------
    ValueError
        If an argument is out of range, or there would be more than ten million looks.

    References
    ----------
    .. [1] Chen, Ghahramani, "Scalable discrete sampling as a multi-armed bandit problem", ICML 2016, Alg. 1
       (``growth=2``).

    Examples
    --------
    >>> looks(1000, 50).tolist()
    [50, 100, 200, 400, 800, 1000]
    """
    return _quantile.looks(*single(n_rows=n_rows, first_look=first_look, growth=growth))


@documented
def look_delta(look: ArrayLike, delta: ArrayLike, power: ArrayLike = 2.0) -> Any:
    r"""Share of `delta` for the k-th of an unknown number of looks.

    .. math:: \delta_k = \frac{p - 1}{p k^p} \delta, \qquad \sum_k \delta_k \le \delta

    Parameters
    ----------
    look : array_like of int
        Number k of the look, from 1.
    delta : array_like of float
        Probability of error for all looks together, in (0, 1).
    power : array_like of float, default 2.0
        The p of the formula, above 1: larger values favour early looks.

    {factor}
        Share of each look.

    {errors}

    References
    ----------
    .. [1] Mnih, Szepesvari, Audibert, "Empirical Bernstein stopping", ICML 2008, sec. 3.
    .. [2] Bardenet, Doucet, Holmes, "Towards scaling up Markov chain Monte Carlo", ICML 2014.

    Examples
    --------
    >>> look_delta([1, 2, 3], 0.1).round(5).tolist()
    [0.05, 0.0125, 0.00556]
    """
    return np.exp(-_half_widths.log_inv_look_delta(*checked(look=look, delta=(delta, None), power=power)))
