# cython: cdivision=True
"""When rewards that are missing are dropped: how long a silence says that no more will come."""

from libc.stdint cimport int64_t

cdef enum:
    SILENCE = 1000      # pulls or rounds without a reward that are enough, and
    WAITS = 100         # if so many times longer than between rewards before


cdef inline bint silent_for_good(int64_t silent, int64_t heard, int64_t asked) noexcept nogil:
    """Whether the last `silent` of the times `asked` are too many, where there were rewards `heard` times."""
    return silent >= SILENCE and silent * <double>heard >= WAITS * <double>(asked - silent)
