# cython: cdivision=True
"""Reductions in C with fixed lanes: the same bits on every instruction set."""

cdef extern from "_simd.h" nogil:
    double fr_sum(const double *x, Py_ssize_t n) noexcept
    void fr_centred(const double *x, Py_ssize_t n, double *out) noexcept
    void fr_moments4(const double *x, Py_ssize_t n, double *out) noexcept
    void fr_moments4_difference(const double *x, const double *y, Py_ssize_t n, double *out) noexcept
    void fr_range(const double *x, Py_ssize_t n, double *low, double *high) noexcept
    bint fr_all_finite(const double *x, Py_ssize_t n) noexcept
    void fr_lower_product(const double *columns, const double *center, const double *z, Py_ssize_t d,
                          double *out) noexcept
