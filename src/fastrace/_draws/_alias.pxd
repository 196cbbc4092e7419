# cython: cdivision=True
"""Draws of an index with given probabilities in O(1): Walker's alias table, made by Vose's method in O(n)."""

from libc.stdint cimport int64_t, uint32_t
from numpy.random cimport bitgen_t

from fastrace._draws._rng cimport bounded32

cdef extern from "_clones.h" nogil:
    void PREFETCH(const void *p)

cdef struct alias_t:
    double keep             # probability of the place itself
    uint32_t other          # whom the rest belongs to


cdef inline void alias_build(alias_t *table, const double *weight, double total, uint32_t n,
                             uint32_t *stack) noexcept nogil:
    """Weights from 0 up that add up to `total`, finite and positive; `stack` is room for n numbers."""
    cdef uint32_t i, small = 0, large = n, low, high
    for i in range(n):              # places below average from the front, the others from the back
        table[i].keep = weight[i] / total * n
        table[i].other = i
        if table[i].keep < 1.0:
            stack[small] = i
            small += 1
        else:
            large -= 1
            stack[large] = i
    while small > 0 and large < n:
        small -= 1
        low = stack[small]
        high = stack[large]
        table[low].other = high
        table[high].keep -= 1.0 - table[low].keep
        if table[high].keep < 1.0:
            large += 1
            stack[small] = high
            small += 1
    while large < n:                # what is left is 1 up to rounding
        table[stack[large]].keep = 1.0
        large += 1
    while small > 0:
        small -= 1
        table[stack[small]].keep = 1.0


ctypedef fused beside_t:
    double
    float


cdef inline void alias_draws(const alias_t *table, const beside_t *beside, uint32_t n, bitgen_t *bits, Py_ssize_t count,
                             double *room, int64_t *places) noexcept nogil:
    """So many places, each from a number below n and another in [0, 1) that decides on it.

    Places lie far apart in memory: all are asked for before the first is looked at, and what stands `beside` each, such
    as its weight, is on the way when it returns. `room` is for `count` numbers.
    """
    cdef Py_ssize_t i
    for i in range(count):
        places[i] = bounded32(bits, n)
        PREFETCH(table + places[i])
        room[i] = bits.next_double(bits.state)
    for i in range(count):
        if not room[i] < table[places[i]].keep:
            places[i] = table[places[i]].other
        PREFETCH(beside + places[i])


cdef inline int64_t alias_pick(const alias_t *table, uint32_t n, double uniform) noexcept nogil:
    """A place from one uniform number in [0, 1), which gives the place and decides on it."""
    cdef double x = uniform * n
    cdef uint32_t i = <uint32_t>x
    return i if x - i < table[i].keep else table[i].other
