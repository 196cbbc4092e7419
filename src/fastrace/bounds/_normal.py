"""The normal approximation: the quantile B of Racing-Normal, its half-width, and guards of small first looks."""

from functools import lru_cache
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import fastrace._math._half_widths as _half_widths
import fastrace._math._quantile as _quantile
from fastrace._base._checks import choice, reals
from fastrace._base._frames import require_same_rows
from fastrace.bounds._arguments import checked, documented, single

_KINDS = tuple(_quantile.KINDS)


@lru_cache(maxsize=4096)
def _quantile_of_schedule(
    delta: Any, n_rows: Any, first_look: Any, growth: Any, kind: str, log_inv_delta: Any,
) -> float:
    """Checked once per set of plain numbers; a refused one is not remembered."""
    numbers = single(delta=(delta, log_inv_delta), n_rows=n_rows, first_look=first_look, growth=growth)
    return _quantile.quantile_of_schedule(*numbers, choice(kind, "kind", _KINDS))


@documented
def normal_quantile(
    delta: ArrayLike | None, n_rows: ArrayLike, first_look: ArrayLike = 50, growth: ArrayLike = 2.0, kind: str = "auto",
    *, log_inv_delta: ArrayLike | None = None,
) -> Any:
    r"""The quantile B of Racing-Normal: how many standard errors a mean may stray at some look.

    The standardised errors of the means at the looks before the last are taken to be jointly normal, a Gauss-Markov
    chain :math:`z_1, \dots, z_K` whose correlations depend on the schedule alone. B is the limit which that chain
    exceeds with probability `delta`.

    Parameters
    ----------
    delta : array_like of float
        Probability of error over all looks, in (0, 1); from 1/2 on, B is 0.
    n_rows : array_like of int
        Rows in the population, at least 1.
    first_look : array_like of int, default 50
        Rows read at the first look, at least 1; from `n_rows` on, B is 0 since every row is read.
    growth : array_like of float, default 2.0
        Ratio of one look to the look before, above 1.
    kind : {"auto", "one-sided", "first-exit", "sidak", "union"}, default "auto"
        Whose probability is `delta`.

        - ``"one-sided"``: :math:`P(\exists k: z_k > B)`, what a race of many arms spends on one comparison.
        - ``"first-exit"``: the probability of leaving :math:`[-B, B]` upwards first, exact for a decision between two
          arms or about one threshold. Table 1 of the paper holds this one.
        - ``"sidak"``, ``"union"``: upper limits of the one-sided B, in closed form. ``"union"`` is eq. 27.
        - ``"auto"``: one-sided, and the union below 1e-300.

    {log_inv_delta}

    {factor}
        B, at least 0; relative accuracy 1e-10. Steps between looks closer than a ratio of 1.0001 are taken as less
        correlated than they are, which can only raise B.

    {errors}

    Notes
    -----
    A promise only as far as the means are normal: for skewed rewards and small first looks it fails, see
    `skewness_inflation`. The first call for a set of numbers solves an integral equation, in a fraction of a
    millisecond for doubling looks and in milliseconds for a growth of 1.1; the last 4096 sets are remembered.

    References
    ----------
    .. [1] Chen, Ghahramani, "Scalable discrete sampling as a multi-armed bandit problem", ICML 2016, sec. 3.2, App. B.

    Examples
    --------
    >>> round(normal_quantile(0.01, 100_000, 100), 4)
    3.0363
    >>> round(normal_quantile(0.01, 100_000, 100, kind="union"), 4)
    3.0902
    """
    choice(kind, "kind", _KINDS)
    numbers: Any = (delta, n_rows, first_look, growth, kind, log_inv_delta)
    try:
        return _quantile_of_schedule(*numbers)
    except TypeError:  # arrays cannot be remembered whole
        pass
    every = np.frompyfunc(lambda share, *schedule: _quantile_of_schedule(None, *schedule, kind, share), 4, 1)
    arrays = checked(delta=(delta, log_inv_delta), n_rows=n_rows, first_look=first_look, growth=growth)
    return np.asarray(every(*arrays), np.float64)[()]


@documented
def normal_quantile_from_variances(
    delta: float | None, variances: ArrayLike, kind: str = "auto", *, log_inv_delta: float | None = None,
) -> float:
    r"""The quantile B of Racing-Normal for looks at which the mean has given variances.

    For schedules other than `looks`, and for differences of means over populations of unequal size: all it takes is
    that the estimate at a later look has covariance :math:`V_{\max(k, l)}` with an earlier one.

    Parameters
    ----------
    delta : float
        Probability of error over all looks, in (0, 1); from 1/2 on, B is 0.
    variances : array_like of float, shape (n_looks,)
        Variance of the estimate at each look before the one that reads every row: positive, never increasing, in any
        unit. Looks with the same variance are one look.
    kind : {"auto", "one-sided", "first-exit", "sidak", "union"}, default "auto"
        As in `normal_quantile`.
    log_inv_delta : float, optional
        log(1 / delta), with ``delta=None``.

    Returns
    -------
    float
        B, at least 0; 0 without looks.

    {errors}

    Examples
    --------
    >>> round(normal_quantile_from_variances(0.05, [4.0, 2.0, 1.0]), 4)
    2.0177
    """
    (share,) = single(delta=(delta, log_inv_delta))
    return _quantile.quantile_of_variances(share, _variances(variances), choice(kind, "kind", _KINDS))


def _variances(variances: ArrayLike) -> NDArray[np.float64]:
    values = reals(variances, "variances")
    if values.ndim != 1:
        raise ValueError(f"variances has shape {values.shape}; one variance per look is needed, shape (n_looks,)")
    return np.ascontiguousarray(values)


@documented
def crossing_probability(quantile: float, variances: ArrayLike, kind: str = "one-sided") -> float:
    """Probability that a standardised mean strays by more than `quantile` at some look; the inverse of B.

    Gives the error of a whole sequence of tests from their common level: quantile ``Phi^{-1}(1 - level)``.

    Parameters
    ----------
    quantile : float
        Number of standard errors, at least 0.
    variances : array_like of float, shape (n_looks,)
        As in `normal_quantile_from_variances`.
    kind : {"one-sided", "first-exit"}, default "one-sided"
        Above `quantile` at some look, or out of ``[-quantile, quantile]`` upwards first.

    Returns
    -------
    float
        Under joint normality; relative accuracy 1e-10, also for tiny probabilities.

    {errors}

    References
    ----------
    .. [1] Chen, Ghahramani, "Scalable discrete sampling as a multi-armed bandit problem", ICML 2016, eqs. 5 and 9.

    Examples
    --------
    >>> from fastrace.bounds import looks, variance_factor
    >>> round(crossing_probability(2.0, variance_factor(looks(1000)[:-1], 1000)), 4)
    0.0866
    """
    (limit,) = single(quantile=quantile)
    word = choice(kind, "kind", ("one-sided", "first-exit"))
    return _quantile.crossing_probability(limit, _variances(variances), word)


@documented
def normal(
    n: ArrayLike, n_rows: ArrayLike, std: ArrayLike, delta: ArrayLike | None, first_look: ArrayLike = 50,
    growth: ArrayLike = 2.0, kind: str = "auto", *, log_inv_delta: ArrayLike | None = None,
) -> Any:
    r"""One-sided half-width of Racing-Normal, for all looks of a schedule at once.

    .. math:: G = B \hat\sigma_n \sqrt{v(n)}, \qquad
              P(\exists n \in \text{looks}: \bar x_n - \mu > G) \approx \delta

    Parameters
    ----------
    n : array_like of int
        Rows read at a look, 1 to `n_rows`.
    {n_rows} {std}
    delta : array_like of float
        Probability of error over all looks, in (0, 1).
    first_look, growth, kind
        Schedule, and whose probability is `delta`, as in `normal_quantile`.
    {log_inv_delta}

    {factor}
        In reward units; 0 at ``n = n_rows``.

    {errors}

    Notes
    -----
    A promise only as far as the means are jointly normal with the standard deviation given.

    References
    ----------
    .. [1] Chen, Ghahramani, "Scalable discrete sampling as a multi-armed bandit problem", ICML 2016, eq. 9.

    Examples
    --------
    >>> normal([50, 400, 1000], 1000, 1.0, 0.05).round(4).tolist()
    [0.3093, 0.0869, 0.0]
    """
    require_same_rows(n=n, n_rows=n_rows, std=std, delta=(delta, log_inv_delta), first_look=first_look, growth=growth)
    quantile = normal_quantile(delta, n_rows, first_look, growth, kind, log_inv_delta=log_inv_delta)
    place = _half_widths.BOUNDS.index("normal")
    return _half_widths.half_width(place, *checked(n=n, n_rows=n_rows, std=std), 0.0, 0.0, quantile)


@documented
def student_quantile(quantile: ArrayLike, n: ArrayLike, *, ddof: int = 1) -> Any:
    r"""The Student quantile at the level of a normal one: protection of small first looks.

    .. math:: F^{-1}_{t, n-1}(\Phi(B)) \sqrt{\frac{n - c}{n - 1}}

    Parameters
    ----------
    quantile : array_like of float
        Normal quantile B, at least 0.
    {any n}
    ddof : {1, 0}, default 1
        c: the standard deviation that the quantile multiplies has divisor ``n - ddof``. Student's own has 1; the
        half-widths of this module take 0.

    {factor}
        At least `quantile`; infinite at ``n = 1``, when the standard deviation is unknown.

    {errors}

    Notes
    -----
    Exact for one look at independent normal rewards, a heuristic for a sequence of looks.

    Examples
    --------
    >>> student_quantile(3.0, [2, 50, 1000]).round(3).tolist()
    [235.801, 3.161, 3.008]
    """
    from scipy.special import stdtrit  # here, since it takes 0.3 s to import

    limit, read = checked(quantile=quantile, n=n)
    if not isinstance(ddof, Integral) or ddof not in (0, 1):
        raise ValueError(f"ddof is {ddof!r}; 1 is needed for a standard deviation of divisor n - 1, 0 for one of n")
    degrees = np.maximum(read - 1, 1)
    with np.errstate(over="ignore"):
        found = np.maximum(-stdtrit(degrees, _half_widths.normal_tail(limit)), limit)
    return np.where(read > 1, found if ddof else found * np.sqrt(read / degrees), np.inf)[()]


@documented
def skewness_inflation(skewness: ArrayLike, n: ArrayLike, n_rows: ArrayLike, quantile: ArrayLike) -> Any:
    r"""Relative excess of the true error over the normal one, from skewness, when "the mean is positive" is decided.

    .. math:: I = \max\left(0, -g \frac{2 B^2 + 1}{6 \sqrt n}\right) \frac{\varphi(B)}{1 - \Phi(B)}, \quad
              g = \text{skewness} \cdot \frac{1 - 2 \pi}{\sqrt{1 - \pi}}, \quad \pi = n / N

    with g = 0 from half the rows on. Give minus the skewness for "the mean is negative".

    Parameters
    ----------
    skewness : array_like of float
        Sample skewness of the rows read; nan, of a constant sample, is unknown.
    {n} {n_rows}
    quantile : array_like of float
        Number B of standard errors at which the decision falls.

    {factor}
        At least 0; infinite where the skewness is unknown and 0 where every row has been read.

    {errors}

    Notes
    -----
    A heuristic: the first term of the Edgeworth series of the studentised mean. Racing-Normal postpones a decision
    while it exceeds 0.25.

    References
    ----------
    .. [1] Hall, "The bootstrap and Edgeworth expansion", Springer 1992, sec. 2.6.

    Examples
    --------
    >>> skewness_inflation([-6.0, 0.0, 6.0], 50, 5000, 3.0).round(2).tolist()
    [8.69, 0.0, 0.0]
    """
    require_same_rows(skewness=skewness, n=n, n_rows=n_rows, quantile=quantile)
    with np.errstate(over="ignore"):
        return _half_widths.skewness_inflation(
            reals(skewness, "skewness"), *checked(n=n, n_rows=n_rows, quantile=quantile)
        )
