# cython: cdivision=True
"""Poisson minibatches: what one row that has been drawn says of a sum of changes."""

cdef enum:
    FACTORS = 16            # so many may be multiplied before a logarithm is taken


cdef inline double poisson_factor(double change, double bound, double uniform) noexcept nogil:
    """The factor by which a row multiplies the acceptance ratio; 1 if the row is thinned out.

    Rows arrive at rate `bound`, in which |change| lies. A row is kept at rate `here`, and at rate here + change on the
    way back, whose sum is 2 bound - |change|: Zhang, Cooper & De Sa (2020), with the smallest rates. A factor is 0 or
    lies between 2^-53 and 2^53. FACTORS may be at most 19: the product of that many neither overflows nor is subnormal.
    """
    cdef double here = bound - change if change > 0.0 else bound
    return (here + change) / here if uniform * bound < here else 1.0
