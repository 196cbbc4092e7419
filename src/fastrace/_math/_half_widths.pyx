"""The formulas of the headers as NumPy ufuncs: the same code as in the loops, over arrays; and the names of the bounds.

Counts are `long long`, which has 64 bits on every platform; arguments as checked by `bounds/_arguments.py`.
"""

cimport cython

from fastrace._math cimport _anytime, _bounds, _rule, _schedules, _skewness

BOUNDS = tuple([_rule.bound_name(k).decode() for k in range(_rule.N_BOUNDS)])
RIGOROUS = tuple([bound for bound in BOUNDS if bound != "normal"])      # they need a support
INVERTED = tuple([bound for bound in BOUNDS if bound != "betting"])     # they have a half-width


@cython.ufunc
cdef double variance_factor(long long n, long long n_rows) noexcept nogil:
    return _bounds.variance_factor(n, n_rows)


@cython.ufunc
cdef double serfling_factor(long long n, long long n_rows) noexcept nogil:
    return _bounds.serfling_factor(n, n_rows)


@cython.ufunc
cdef double hoeffding(long long n, double log_inv_delta, double span) noexcept nogil:
    return _bounds.hoeffding(n, log_inv_delta, span)


@cython.ufunc
cdef double empirical_bernstein(long long n, double std, double log_inv_delta, double span) noexcept nogil:
    return _bounds.empirical_bernstein(n, std, log_inv_delta, span)


@cython.ufunc
cdef double half_width(long long bound, long long n, long long n_rows, double std, double log_inv_delta, double span,
                       double quantile) noexcept nogil:
    """Of the bound at this place in `BOUNDS`."""
    cdef _rule.look_t look
    _rule.look_init(&look, <int>bound, n, n_rows, log_inv_delta, quantile)
    return _rule.look_width(&look, std, span)


@cython.ufunc
cdef double normal_tail(double quantile) noexcept nogil:
    return _bounds.exp(_bounds.log_normal_tail(quantile))


@cython.ufunc
cdef double skewness_inflation(double skewness, long long n, long long n_rows, double quantile) noexcept nogil:
    return _skewness.skewness_inflation(skewness, n, n_rows, quantile)


@cython.ufunc
cdef double log_inv_look_delta(long long look, double log_inv_delta, double power) noexcept nogil:
    return _schedules.log_inv_look_delta(look, log_inv_delta, power)


@cython.ufunc
cdef double lower_end(double low, double high) noexcept nogil:
    return _bounds.lower_end(low, high)


@cython.ufunc
cdef double upper_end(double low, double high) noexcept nogil:
    return _bounds.upper_end(low, high)


@cython.ufunc
cdef double stream_slack(double low, double high) noexcept nogil:
    return _bounds.stream_slack(low, high)


@cython.ufunc
cdef double tie_width(double low, double high) noexcept nogil:
    return _bounds.tie_width(low, high)


@cython.ufunc
cdef double t_mixture_half_width(double variance, double n, double freedom, double g,
                                 double log_inv_alpha) noexcept nogil:
    return _anytime.t_mixture_half_width(variance, n, freedom, g, log_inv_alpha)


@cython.ufunc
cdef double t_mixture_level(double away, double variance, double n, double freedom, double g) noexcept nogil:
    return _anytime.t_mixture_level(away, variance, n, freedom, g)


@cython.ufunc
cdef double t_mixture_spread(double n_best, double log_inv_alpha) noexcept nogil:
    return _anytime.t_mixture_spread(n_best, log_inv_alpha)


@cython.ufunc
cdef double tail_shift(double skewness, long long n, double share) noexcept nogil:
    return _skewness.tail_shift(skewness, n, share)


@cython.ufunc
cdef double tail_end(double half_width, double variance, double shift) noexcept nogil:
    return _skewness.tail_end(half_width, variance, shift)


@cython.ufunc
cdef double tail_away(double away, double variance, double shift) noexcept nogil:
    return _skewness.tail_away(away, variance, shift)
