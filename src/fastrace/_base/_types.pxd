# cython: cdivision=True
"""Structs that all headers share."""

from libc.stdint cimport int64_t


cdef struct moments_t:          # of a stream: count, mean, sum of squared deviations
    int64_t n
    double mean
    double m2


cdef struct moments4_t:         # the same with sums of third and fourth powers, for skewness and kurtosis
    int64_t n
    double mean
    double m2
    double m3
    double m4
