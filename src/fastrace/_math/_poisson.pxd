# cython: cdivision=True
"""Poisson minibatches: what one row that has been drawn says of a sum of changes."""

from libc.math cimport log


cdef inline double poisson_factor(double change, double bound, double uniform) noexcept nogil:
    """The log of the factor by which a row multiplies the acceptance ratio; 0 if the row is thinned out.

    Rows arrive at rate `bound`, in which |change| lies. A row is kept at rate `here`, and at rate here + change on the
    way back, whose sum is 2 bound - |change|: Zhang, Cooper & De Sa (2020), with the smallest rates.
    """
    cdef double here = bound - change if change > 0.0 else bound
    return log((here + change) / here) if uniform * bound < here else 0.0
