# cython: cdivision=True
"""Draws from a NumPy bit generator. Hold `bit_generator.lock` around a whole call, not around each draw."""

from libc.math cimport log
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
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


# A permutation of [0, n) that is re-shuffled in part and never reset. Entry i holds permutation[i] XOR i, so that
# zeroed memory is the identity: the system hands out such memory untouched, and an early stop costs O(rows read).
cdef struct order_t:
    int64_t n
    uint32_t *code

cdef enum:
    ORDER_LIMIT = 0x7FFFFFFF    # rows up to which a permutation is kept; beyond, a keyed bijection


cdef inline int order_init(order_t *order, int64_t n) noexcept nogil:
    """Return 0, or -1 if memory is short."""
    order.n = n
    order.code = <uint32_t *>calloc(n if n > 0 else 1, sizeof(uint32_t))
    return 0 if order.code != NULL else -1


cdef inline void order_free(order_t *order) noexcept nogil:
    free(order.code)
    order.code = NULL


cdef inline void order_advance(order_t *order, bitgen_t *bits, int64_t first, int64_t count) noexcept nogil:
    """Settle positions first .. first + count - 1 of a uniform order, given those before; partial Fisher-Yates."""
    cdef uint32_t *code = order.code
    cdef uint32_t i, j, kept
    cdef int64_t k
    for k in range(first, first + count):
        i = <uint32_t>k
        j = i + bounded32(bits, <uint32_t>(order.n - k))
        kept = code[i] ^ i
        code[i] = code[j] ^ j ^ i
        code[j] = kept ^ j


cdef inline int64_t order_row(const order_t *order, int64_t position) noexcept nogil:
    """The row at a position that has been settled."""
    return <int64_t>(order.code[position] ^ <uint32_t>position)
