# cython: cdivision=True
"""A stream of random numbers for one step of a chain, grown from 64 bits of the chain's own stream.

What a step reads, and how far, then leaves the chain's stream alone: the same seed makes the same proposals whatever
kernel decides them. xoshiro256++ (Blackman & Vigna 2021), seeded by splitmix64.
"""

from libc.stdint cimport uint32_t, uint64_t
from numpy.random cimport bitgen_t

cdef struct row_stream_t:
    uint64_t s[4]
    bitgen_t bits


cdef inline uint64_t row_stream_next(row_stream_t *r) noexcept nogil:
    cdef uint64_t sum = r.s[0] + r.s[3], t = r.s[1] << 17, out
    out = ((sum << 23) | (sum >> 41)) + r.s[0]
    r.s[2] ^= r.s[0]
    r.s[3] ^= r.s[1]
    r.s[1] ^= r.s[2]
    r.s[0] ^= r.s[3]
    r.s[2] ^= t
    r.s[3] = (r.s[3] << 45) | (r.s[3] >> 19)
    return out


cdef inline uint64_t row_stream_next64(void *state) noexcept nogil:
    return row_stream_next(<row_stream_t *>state)


cdef inline uint32_t row_stream_next32(void *state) noexcept nogil:
    return <uint32_t>(row_stream_next(<row_stream_t *>state) >> 32)


cdef inline double row_stream_double(void *state) noexcept nogil:
    return (row_stream_next(<row_stream_t *>state) >> 11) * (1.0 / 9007199254740992.0)


cdef inline void row_stream_seed(row_stream_t *r, uint64_t seed) noexcept nogil:
    cdef uint64_t z
    cdef int i
    for i in range(4):
        seed += <uint64_t>0x9E3779B97F4A7C15
        z = seed
        z = (z ^ (z >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
        z = (z ^ (z >> 27)) * <uint64_t>0x94D049BB133111EB
        r.s[i] = z ^ (z >> 31)


cdef inline void row_stream_init(row_stream_t *r) noexcept nogil:
    """Join the struct to itself; it must not be moved afterwards."""
    r.bits.state = r
    r.bits.next_uint64 = row_stream_next64
    r.bits.next_uint32 = row_stream_next32
    r.bits.next_double = row_stream_double
    r.bits.next_raw = row_stream_next64
