# cython: cdivision=True
"""A keyed bijection of [0, n): an order of any number of rows in O(1) memory.

It is pseudo-random, not uniform over all n! permutations: 128 random bits choose one of at most 2^128 orders. Single
positions, pairs and small subsets pass chi-squared tests; whoever needs exact uniformity keeps an `order_t` instead.

A Feistel network: row = high * 2^low_bits + low, and in turn each part is moved by a 64-bit mixer of the other part and
a key. `low` takes every value of its bits, `high` only ceil(n / 2^low_bits) values, so that the images outside [0, n),
which are sent through again (cycle walking; Black & Rogaway 2002), are about one in sqrt(n). A pair that differs in
one part only stays linked when a round collides, so small n takes many rounds.
"""

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from numpy.random cimport bitgen_t


cdef struct keyed_order_t:
    int64_t n
    uint64_t keys[2]    # of the rounds that move the low part, and of those that move the high one
    uint32_t n_high     # values of the high part
    uint16_t low_bits   # of the low part, at least 1
    uint16_t rounds     # pairs of rounds


cdef inline void keyed_order_set(keyed_order_t *order, int64_t n, uint64_t key, uint64_t other) noexcept nogil:
    """The order of [0, n), n <= 2^62, that belongs to these two keys."""
    cdef int bits = 2
    while bits < 62 and (<int64_t>1 << bits) < n:
        bits += 1
    order.n = n
    order.keys[0] = key
    order.keys[1] = other
    order.low_bits = <uint16_t>((bits + 1) // 2)
    order.n_high = <uint32_t>(((n - 1) >> order.low_bits) + 1) if n > 0 else 1
    order.rounds = 12 if bits <= 3 else 8 if bits <= 5 else 6 if bits <= 9 else 4 if bits <= 16 else 3


cdef inline void keyed_order_init(keyed_order_t *order, int64_t n, bitgen_t *bits) noexcept nogil:
    """A fresh order of [0, n), n <= 2^62."""
    cdef uint64_t key = bits.next_uint64(bits.state)
    keyed_order_set(order, n, key, bits.next_uint64(bits.state))


cdef inline uint64_t _mix(uint64_t z) noexcept nogil:
    z *= <uint64_t>0xBF58476D1CE4E5B9
    z ^= z >> 32
    return z * <uint64_t>0x94D049BB133111EB


cdef inline int64_t keyed_order_at(const keyed_order_t *order, int64_t i) noexcept nogil:
    """Position i of the order, for i in [0, n)."""
    cdef int low_bits = order.low_bits, _k
    cdef uint64_t high, low, key, other, n_high = order.n_high
    if order.n < 2:
        return i
    while True:
        high = <uint64_t>i >> low_bits
        low = <uint64_t>i & ((<uint64_t>1 << low_bits) - 1)
        key = order.keys[0]
        other = order.keys[1]
        for _k in range(order.rounds):
            low ^= _mix(high + key) >> (64 - low_bits)
            high += (_mix(low + other) >> 32) * n_high >> 32
            high -= n_high & (0 - <uint64_t>(high >= n_high))
            key += <uint64_t>0x9E3779B97F4A7C15
            other += <uint64_t>0x9E3779B97F4A7C15
        i = <int64_t>(high << low_bits | low)
        if i < order.n:
            return i
