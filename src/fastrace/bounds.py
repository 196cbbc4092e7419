"""Half-widths of confidence intervals as arrays, when to look at them, and the quantile B of Racing-Normal.

A half-width is one-sided unless its docstring says otherwise: with probability at least ``1 - delta`` the mean of the
rewards read exceeds the true mean by no more than it, and likewise with probability at least ``1 - delta`` it does not
fall short by more; give ``delta / 2`` for both at once. All arguments broadcast. The same compiled formulas run inside
the races.

Wherever `delta` is asked for, ``log_inv_delta = log(1 / delta)`` may be given instead, with ``delta=None``: shares of
delta underflow long before their logarithms do.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

import fastrace._math._half_widths as _half_widths
import fastrace._math._quantile as _quantile
from fastrace._base._checks import Support, choice, counts, one, probabilities, reals, reals_where, shown
from fastrace._base._docs import filled

__all__ = [
    "crossing_probability",
    "empirical_bernstein",
    "empirical_bernstein_serfling",
    "hoeffding",
    "hoeffding_serfling",
    "look_delta",
    "looks",
    "normal",
    "normal_quantile",
    "normal_quantile_from_variances",
    "serfling",
    "serfling_factor",
    "skewness_inflation",
    "student_quantile",
    "variance_factor",
]

_KINDS = tuple(_quantile.KINDS)

# What the pages say alike, where a line of them holds nothing but names in braces.
_TEXTS = {
    "any n": """\
n : array_like of int
    Rewards read, at least 1.""",
    "n": """\
n : array_like of int
    Rows read, 1 to `n_rows`.""",
    "fixed n": """\
n : array_like of int
    Rows read, 1 to `n_rows`; fixed in advance.""",
    "n_rows": """\
n_rows : array_like of int
    Rows in the population (N), at most 2^62.""",
    "std": """\
std : array_like of float
    Standard deviation of what was read, divisor n, in reward units.""",
    "delta": """\
delta : array_like of float
    Probability of error of one side, in (0, 1).""",
    "support": """\
support : tuple of float or of array_like
    Interval (low, high) that holds every reward, in reward units; its width is C.""",
    "log_inv_delta": """\
log_inv_delta : array_like of float, optional
    log(1 / delta), with ``delta=None``.""",
    "factor": """\
Returns
-------
float or ndarray of float64""",
    "errors": """\
Raises
------
ValueError
    If an argument is out of range.""",
    "width and errors": """\
Returns
-------
float or ndarray of float64
    In reward units; 0 at ``n = n_rows``. Holds for every population.

Raises
------
ValueError
    If an argument is out of range.""",
}
# What numbers must be, and how an error says so.
_RANGES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "growth": (lambda value: value > 1.0, "above 1 is needed: every look must read more rows"),
    "log_inv_delta": (
        lambda value: (value > 0.0) & (value < np.inf),
        "a positive finite number is needed, log(1 / delta) of a probability of error delta",
    ),
    "power": (lambda value: (value > 1.0) & (value < np.inf), "above 1 is needed, or the shares do not add up"),
    "quantile": (
        lambda value: (value >= 0.0) & (value < np.inf), "a finite number of standard errors, at least 0, is needed"
    ),
    "std": (lambda value: value >= 0.0, "a standard deviation of at least 0 is needed"),
}
_Function = TypeVar("_Function", bound=Callable[..., Any])


def _documented(function: _Function) -> _Function:
    function.__doc__ = filled(function.__doc__, _TEXTS)
    return function


def _checked(**given: Any) -> list[Any]:
    """Arguments as arrays, in order. `delta` is the pair of delta and log_inv_delta, and becomes the latter."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name in ("n", "n_rows", "first_look", "look"):
            found[name] = counts(value, name)
        elif name == "delta":
            found[name] = _log_inv(*value)
        elif name == "support":
            found[name] = _span(value)
        else:
            found[name] = reals_where(value, name, *_RANGES[name])
    if "n_rows" in found and "n" in found and np.any(bad := found["n"] > found["n_rows"]):
        most, least = np.broadcast_arrays(found["n"], found["n_rows"])
        raise ValueError(
            f"n is {most[bad].flat[0]}, more than n_rows={least[bad].flat[0]}; "
            "without replacement no more rows can be read than there are"
        )
    return list(found.values())


def _log_inv(delta: Any, log_inv_delta: Any) -> NDArray[np.float64]:
    if (delta is None) == (log_inv_delta is None):
        raise ValueError("exactly one of delta and log_inv_delta is needed, the other None")
    if log_inv_delta is None:
        return -np.log(probabilities(delta, "delta"))
    return reals_where(log_inv_delta, "log_inv_delta", *_RANGES["log_inv_delta"])


def _span(support: Support) -> NDArray[np.float64]:
    try:
        low, high = support
    except (TypeError, ValueError):
        raise ValueError(f"support is {shown(support)}; a pair (low, high) that holds every reward is needed") from None
    with np.errstate(over="ignore", invalid="ignore"):
        span: NDArray[np.float64] = reals(high, "support[1]") - reals(low, "support[0]")
    if not np.all((span >= 0.0) & (span < np.inf)):
        raise ValueError(f"support is {shown(support)}; finite ends with low <= high and a finite width are needed")
    return span


def _single(**given: Any) -> list[Any]:
    """The same as plain numbers."""
    return [one(array, name) for name, array in zip(given, _checked(**given), strict=True)]


def _width(bound: str, n: Any, n_rows: Any, std: Any, delta: Any, support: Support) -> Any:
    """Half-width of the rigorous bound of that name, by the code that the races run."""
    place = _half_widths.BOUNDS.index(bound)
    return _half_widths.half_width(place, *_checked(n=n, n_rows=n_rows, std=std, delta=delta, support=support), 0.0)


# Sampling without replacement.


@_documented
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
    return _half_widths.variance_factor(*_checked(n=n, n_rows=n_rows))


@_documented
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
    return _half_widths.serfling_factor(*_checked(n=n, n_rows=n_rows))


@_documented
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
    return _quantile.looks(*_single(n_rows=n_rows, first_look=first_look, growth=growth))


@_documented
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
    return np.exp(-_half_widths.log_inv_look_delta(*_checked(look=look, delta=(delta, None), power=power)))


# Rigorous half-widths.


@_documented
def hoeffding(
    n: ArrayLike, delta: ArrayLike | None, support: Support, *, log_inv_delta: ArrayLike | None = None,
) -> Any:
    r"""One-sided half-width of Hoeffding, for one value of n fixed in advance.

    .. math:: P\left(\bar x_n - \mu > C \sqrt{\log(1/\delta) / 2n}\right) \le \delta

    Parameters
    ----------
    {any n} {delta}
    {support} {log_inv_delta}

    {factor}
        In reward units. Holds for independent rewards, and for rows read without replacement.

    {errors}

    References
    ----------
    .. [1] Hoeffding, "Probability inequalities for sums of bounded random variables", JASA 58 (1963), Thm 2.

    Examples
    --------
    >>> float(hoeffding(200, 0.05, (0, 1)).round(4))
    0.0865
    """
    return _half_widths.hoeffding(*_checked(n=n, delta=(delta, log_inv_delta), support=support))


@_documented
def empirical_bernstein(
    n: ArrayLike, std: ArrayLike, delta: ArrayLike | None, support: Support, *, log_inv_delta: ArrayLike | None = None,
) -> Any:
    r"""Two-sided half-width by the empirical Bernstein bound, for one value of n fixed in advance.

    .. math:: P\left(|\bar x_n - \mu| > \hat\sigma_n \sqrt{2 x / n} + 3 C x / n\right) \le \delta, \quad
              x = \log(3 / \delta)

    Parameters
    ----------
    {any n} {std}
    delta : array_like of float
        Probability of error of both sides together, in (0, 1).
    {support} {log_inv_delta}

    {factor}
        In reward units. Holds for independent rewards.

    {errors}

    References
    ----------
    .. [1] Audibert, Munos, Szepesvari, "Tuning bandit algorithms in stochastic environments", ALT 2007, Thm 1.

    Examples
    --------
    >>> float(empirical_bernstein(10_000, 0.1, 0.05, (0, 1)).round(5))
    0.00409
    """
    return _half_widths.empirical_bernstein(*_checked(n=n, std=std, delta=(delta, log_inv_delta), support=support))


@_documented
def hoeffding_serfling(
    n: ArrayLike, n_rows: ArrayLike, delta: ArrayLike | None, support: Support, *,
    log_inv_delta: ArrayLike | None = None,
) -> Any:
    r"""One-sided half-width by the Hoeffding-Serfling bound, for rows read without replacement.

    .. math:: P\left(\bar x_n - \mu > C \sqrt{\rho_n \log(1/\delta) / 2n}\right) \le \delta

    Parameters
    ----------
    {fixed n} {n_rows}
    {delta} {support} {log_inv_delta}

    {width and errors}

    See Also
    --------
    serfling_factor : the factor rho_n.

    References
    ----------
    .. [1] Bardenet, Maillard, "Concentration inequalities for sampling without replacement", Bernoulli 21 (2015),
       Cor. 2.5.

    Examples
    --------
    >>> hoeffding_serfling([200, 800, 1000], 1000, 0.05, (0, 1)).round(4).tolist()
    [0.0775, 0.0194, 0.0]
    """
    return _width("hoeffding-serfling", n, n_rows, 0.0, (delta, log_inv_delta), support)


@_documented
def empirical_bernstein_serfling(
    n: ArrayLike, n_rows: ArrayLike, std: ArrayLike, delta: ArrayLike | None, support: Support, *,
    log_inv_delta: ArrayLike | None = None,
) -> Any:
    r"""One-sided half-width by the empirical Bernstein-Serfling bound, for rows read without replacement.

    .. math:: P\left(\bar x_n - \mu > \hat\sigma_n \sqrt{2 \rho_n x / n} + \kappa C x / n\right) \le \delta, \quad
              x = \log(5 / \delta), \quad \kappa = 7/3 + 3/\sqrt{2}

    Parameters
    ----------
    {fixed n} {n_rows}
    {std} {delta}
    {support} {log_inv_delta}

    {width and errors}

    References
    ----------
    .. [1] Bardenet, Maillard, "Concentration inequalities for sampling without replacement", Bernoulli 21 (2015),
       Thm 4.3.

    Examples
    --------
    >>> empirical_bernstein_serfling([2000, 9000, 10_000], 10_000, 0.1, 0.05, (0, 1)).round(4).tolist()
    [0.0163, 0.0033, 0.0]
    """
    return _width("empirical-bernstein-serfling", n, n_rows, std, (delta, log_inv_delta), support)


@_documented
def serfling(
    n: ArrayLike, n_rows: ArrayLike, std: ArrayLike, delta: ArrayLike | None, support: Support, *,
    log_inv_delta: ArrayLike | None = None,
) -> Any:
    """One-sided half-width without replacement: the smaller of Hoeffding- and empirical Bernstein-Serfling.

    Each of the two is taken at ``delta / 2``, so that both hold together with probability at least ``1 - delta``.

    Parameters
    ----------
    {fixed n} {n_rows}
    {std} {delta}
    {support} {log_inv_delta}

    {width and errors}

    See Also
    --------
    hoeffding_serfling, empirical_bernstein_serfling

    Examples
    --------
    >>> serfling([200, 2000], 10_000, 0.05, 0.05, (0, 1)).round(4).tolist()
    [0.0951, 0.0151]
    """
    return _width("serfling", n, n_rows, std, (delta, log_inv_delta), support)


# The normal approximation.


@lru_cache(maxsize=4096)
def _quantile_of_schedule(
    delta: Any, n_rows: Any, first_look: Any, growth: Any, kind: str, log_inv_delta: Any,
) -> float:
    """Checked once per set of plain numbers; a refused one is not remembered."""
    numbers = _single(delta=(delta, log_inv_delta), n_rows=n_rows, first_look=first_look, growth=growth)
    return _quantile.quantile_of_schedule(*numbers, choice(kind, "kind", _KINDS))


@_documented
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
    numbers: Any = (delta, n_rows, first_look, growth, kind, log_inv_delta)
    try:
        return _quantile_of_schedule(*numbers)
    except TypeError:  # arrays cannot be remembered whole
        pass
    every = np.frompyfunc(lambda share, *schedule: _quantile_of_schedule(None, *schedule, kind, share), 4, 1)
    arrays = _checked(delta=(delta, log_inv_delta), n_rows=n_rows, first_look=first_look, growth=growth)
    return np.asarray(every(*arrays), np.float64)[()]


@_documented
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
    (share,) = _single(delta=(delta, log_inv_delta))
    return _quantile.quantile_of_variances(share, _variances(variances), choice(kind, "kind", _KINDS))


def _variances(variances: ArrayLike) -> NDArray[np.float64]:
    values = reals(variances, "variances")
    if values.ndim != 1:
        raise ValueError(f"variances has shape {values.shape}; one variance per look is needed, shape (n_looks,)")
    return np.ascontiguousarray(values)


@_documented
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
    >>> round(crossing_probability(2.0, variance_factor(looks(1000)[:-1], 1000)), 4)
    0.0866
    """
    (limit,) = _single(quantile=quantile)
    word = choice(kind, "kind", ("one-sided", "first-exit"))
    return _quantile.crossing_probability(limit, _variances(variances), word)


@_documented
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
    quantile = normal_quantile(delta, n_rows, first_look, growth, kind, log_inv_delta=log_inv_delta)
    place = _half_widths.BOUNDS.index("normal")
    return _half_widths.half_width(place, *_checked(n=n, n_rows=n_rows, std=std), 0.0, 0.0, quantile)


@_documented
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

    limit, read = _checked(quantile=quantile, n=n)
    if ddof not in (0, 1):
        raise ValueError(f"ddof is {ddof!r}; 1 is needed for a standard deviation of divisor n - 1, 0 for one of n")
    degrees = np.maximum(read - 1, 1)
    found = np.maximum(-stdtrit(degrees, _half_widths.normal_tail(limit)), limit)
    return np.where(read > 1, found if ddof else found * np.sqrt(read / degrees), np.inf)[()]


@_documented
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
    return _half_widths.skewness_inflation(
        reals(skewness, "skewness"), *_checked(n=n, n_rows=n_rows, quantile=quantile)
    )
