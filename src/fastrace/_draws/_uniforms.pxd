# cython: cdivision=True
"""Uniform numbers drawn ahead, so that a loop of single draws takes the bit generator's lock once in 256 draws."""

from numpy.random cimport bitgen_t

cdef enum:
    UNIFORMS = 256

cdef struct uniforms_t:
    int used                    # numbers given out; UNIFORMS when none is left
    double[UNIFORMS] value


cdef inline void uniforms_fill(uniforms_t *ahead, bitgen_t *bits) noexcept nogil:
    """Draw the next 256 in [0, 1). Hold the generator's lock."""
    cdef int k
    for k in range(UNIFORMS):
        ahead.value[k] = bits.next_double(bits.state)
    ahead.used = 0


cdef inline list uniforms_left(const uniforms_t *ahead):
    """The numbers not yet given out, for a saved state."""
    cdef int k
    return [ahead.value[k] for k in range(ahead.used, UNIFORMS)]


cdef inline int uniforms_resume(uniforms_t *ahead, object left) except -1:
    """Go on with the numbers that `uniforms_left` gave."""
    cdef Py_ssize_t k, size = len(left)
    if size > UNIFORMS:
        raise ValueError("numbers drawn ahead must be at most 256, in [0, 1)")
    ahead.used = UNIFORMS - <int>size
    for k in range(size):
        ahead.value[ahead.used + k] = left[k]
        if not 0.0 <= ahead.value[ahead.used + k] < 1.0:
            raise ValueError("numbers drawn ahead must be at most 256, in [0, 1)")
    return 0
