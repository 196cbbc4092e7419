# cython: cdivision=True
"""When to look at the bounds, and what share of delta a look may spend."""

from libc.math cimport floor, log
from libc.stdint cimport int64_t


cdef inline int64_t next_look(int64_t n, int64_t n_rows, int64_t first_look, double growth) noexcept nogil:
    """Rows read at the look after the one at n; 0 gives the first. The last look reads all n_rows."""
    cdef double target
    if n <= 0:
        return first_look if first_look < n_rows else n_rows
    if n >= n_rows - 1:
        return n_rows
    target = floor(growth * <double>n)
    if target >= <double>n_rows:
        return n_rows
    return <int64_t>target if target > <double>(n + 1) else n + 1


cdef inline double log_inv_look_delta(int64_t look, double log_inv_delta, double power) noexcept nogil:
    """log(1 / delta_k) of look k = 1, 2, ...: delta_k = delta (p-1) / (p k^p), whose sum is at most delta.

    For an unknown number of looks; Mnih, Szepesvari & Audibert (2008), Bardenet, Doucet & Holmes (2014).
    """
    return log_inv_delta + log(power / (power - 1.0)) + power * log(<double>look)
