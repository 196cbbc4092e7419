# cython: cdivision=True
"""Draws from a NumPy bit generator. Hold `bit_generator.lock` around a whole call, not around each draw."""

from libc.math cimport log
from libc.stdint cimport int64_t, uint32_t, uint64_t
from numpy.random cimport bitgen_t

cdef extern from "numpy/random/distributions.h" nogil:
    double random_standard_exponential(bitgen_t *bits)


cdef inline uint32_t bounded32(bitgen_t *bits, uint32_t n) noexcept nogil:
    """Uniform integer in [0, n), n >= 1; Lemire (2019), exact."""
    cdef uint64_t product = <uint64_t>bits.next_uint32(bits.state) * n
    cdef uint32_t floor
    if <uint32_t>product < n:
        floor = (0 - n) % n
        while <uint32_t>product < floor:
            product = <uint64_t>bits.next_uint32(bits.state) * n
    return <uint32_t>(product >> 32)


cdef inline int64_t bounded(bitgen_t *bits, int64_t n) noexcept nogil:
    """Uniform integer in [0, n), n >= 1; by masked rejection from 2^32 on."""
    cdef uint64_t mask = <uint64_t>(n - 1), value
    if n <= <int64_t>0xFFFFFFFF:
        return bounded32(bits, <uint32_t>n)
    mask |= mask >> 1
    mask |= mask >> 2
    mask |= mask >> 4
    mask |= mask >> 8
    mask |= mask >> 16
    mask |= mask >> 32
    value = bits.next_uint64(bits.state) & mask
    while value >= <uint64_t>n:
        value = bits.next_uint64(bits.state) & mask
    return <int64_t>value


cdef inline double gumbel(bitgen_t *bits) noexcept nogil:
    """Standard Gumbel as minus the log of an exponential: finite, where -log(-log u) is not."""
    cdef double e = random_standard_exponential(bits)
    while e <= 0.0:
        e = random_standard_exponential(bits)
    return -log(e)
