"""Half-widths that hold for every population within a support."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

import fastrace._math._half_widths as _half_widths
from fastrace._base._checks import Support
from fastrace.bounds._arguments import checked, documented


def _width(bound: str, n: Any, n_rows: Any, std: Any, delta: Any, support: Support) -> Any:
    """Half-width of the rigorous bound of that name, by the code that the races run."""
    place = _half_widths.BOUNDS.index(bound)
    given = checked(n=n, n_rows=n_rows, std=std, delta=delta, support=support)
    with np.errstate(invalid="ignore"):         # raised on the way where the support has no width, which gives 0
        return _half_widths.half_width(place, *given, 0.0)


@documented
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
    return _half_widths.hoeffding(*checked(n=n, delta=(delta, log_inv_delta), support=support))


@documented
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
    return _half_widths.empirical_bernstein(*checked(n=n, std=std, delta=(delta, log_inv_delta), support=support))


@documented
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


@documented
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


@documented
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
