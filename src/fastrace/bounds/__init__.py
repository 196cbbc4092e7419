"""Half-widths of confidence intervals as arrays, when to look at them, and the quantile B of Racing-Normal.

A half-width is one-sided unless its docstring says otherwise: with probability at least ``1 - delta`` the mean of the
rewards read exceeds the true mean by no more than it, and likewise with probability at least ``1 - delta`` it does not
fall short by more; give ``delta / 2`` for both at once. All arguments broadcast. The same compiled formulas run inside
the races.

Wherever `delta` is asked for, ``log_inv_delta = log(1 / delta)`` may be given instead, with ``delta=None``: shares of
delta underflow long before their logarithms do.
"""

from fastrace.bounds._looks import look_delta, looks, serfling_factor, variance_factor
from fastrace.bounds._normal import (
    crossing_probability,
    normal,
    normal_quantile,
    normal_quantile_from_variances,
    skewness_inflation,
    student_quantile,
)
from fastrace.bounds._rigorous import (
    empirical_bernstein,
    empirical_bernstein_serfling,
    hoeffding,
    hoeffding_serfling,
    serfling,
)

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
