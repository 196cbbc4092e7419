# cython: cdivision=True
"""Uniform numbers drawn ahead, so that a loop of single draws takes the bit generator's lock once in 256 draws."""

from numpy.random cimport bitgen_t

cdef enum:
    UNIFORMS = 256

cdef struct uniforms_t:
    int at                      # the next one; UNIFORMS when none is left
    double[UNIFORMS] value


cdef inline void uniforms_fill(uniforms_t *ahead, bitgen_t *bits) noexcept nogil:
    """Draw the next 256 in [0, 1). Hold the generator's lock."""
    cdef int k
    for k in range(UNIFORMS):
        ahead.value[k] = bits.next_double(bits.state)
    ahead.at = 0
