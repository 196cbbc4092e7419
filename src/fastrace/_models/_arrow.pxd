# cython: cdivision=True
"""Symmetric matrices in the shape of an arrow: block-diagonal in most coordinates, dense in a few."""

from libc.math cimport sqrt
cimport numpy as cnp

from fastrace._base._guard cimport guard_t


# Coordinates start, ..., start + n_blocks * width - 1 belong to the blocks, one after another; all others are dense,
# in their order. An object has working memory: one thread at a time. `shared` gives another one on the same numbers.
cdef class Arrow:
    cdef guard_t guard
    cdef readonly Py_ssize_t dim, start, n_blocks, width, n_dense
    cdef readonly cnp.ndarray dense                 # (n_dense, n_dense)
    cdef readonly cnp.ndarray border                # (n_dense, n_blocks * width)
    cdef readonly cnp.ndarray blocks                # (n_blocks, width, width)
    cdef cnp.ndarray _work
    cdef double *D
    cdef double *C
    cdef double *B
    cdef double *work                               # 2 n_dense

    cdef void gather(self, const double *x, double *dense) noexcept nogil
    cdef void scatter(self, const double *dense, double *x) noexcept nogil
    # out = A x; out is not x
    cdef void product(self, const double *x, double *out) noexcept nogil


# Cholesky factor of an arrow plus blocks on its diagonal: A + P = L L', the blocks' coordinates before the dense ones.
cdef class ArrowFactor:
    cdef guard_t guard
    cdef readonly Arrow base
    cdef readonly Py_ssize_t precision_size         # doubles of P
    cdef readonly bint positive                     # whether the last `decompose` found A + P positive definite
    cdef Py_ssize_t n_segments
    cdef cnp.ndarray _segments, _memory
    cdef const Py_ssize_t *segments                 # (count, width) of each run of equal blocks of P, in order of psi
    cdef double *S                                  # (n_dense, n_dense): factor of the Schur complement, lower
    cdef double *W                                  # (n_dense, n_blocks * width)
    cdef double *Lb                                 # (n_blocks, width, width): lower
    cdef double *xs                                 # n_dense
    cdef double *block                              # the widest block of P, squared

    # The factor of A + P; P holds `precision_size` doubles, block after block. False if it is not positive definite.
    cdef bint decompose(self, const double *precision) noexcept nogil
    cdef void add(self, const double *precision) noexcept nogil
    cdef double log_determinant(self) noexcept nogil                    # of A + P
    cdef void to_z(self, double *x) noexcept nogil                      # x <- L' x
    cdef void from_z(self, double *z) noexcept nogil                    # z <- L'^-1 z: N(0, I) becomes N(0, (A + P)^-1)
    cdef void half_solve(self, double *b) noexcept nogil                # b <- L^-1 b
    # Of P itself: log det (of the entries that are not 0), and out = P x.
    cdef double prior_log_determinant(self, const double *precision) noexcept nogil
    cdef void prior_product(self, const double *precision, const double *x, double *out) noexcept nogil


# value + gradient . (x - center) - (x - center)' A (x - center) / 2
cdef class Quadratic:
    cdef guard_t guard
    cdef readonly Py_ssize_t dim
    cdef readonly double value
    cdef readonly cnp.ndarray center, gradient
    cdef readonly Arrow curvature
    cdef cnp.ndarray _work
    cdef double *hat
    cdef double *slope
    cdef double *work                               # 2 dim

    # `gradient` may be NULL
    cdef double log_density(self, const double *x, double *gradient) noexcept nogil


cdef inline bint factor_block(double *a, Py_ssize_t q) noexcept nogil:
    """Lower Cholesky factor of a block, in place; entries above the diagonal are left alone."""
    cdef Py_ssize_t i, j, k
    cdef double sum
    for j in range(q):
        for i in range(j, q):
            sum = a[i * q + j]
            for k in range(j):
                sum -= a[i * q + k] * a[j * q + k]
            if i == j:
                if not sum > 0.0:
                    return False
                a[j * q + j] = sqrt(sum)
            else:
                a[i * q + j] = sum / a[j * q + j]
    return True


cdef inline void solve_lower(const double *root, double *x, Py_ssize_t q) noexcept nogil:
    """x <- L^-1 x."""
    cdef Py_ssize_t i, j
    for i in range(q):
        for j in range(i):
            x[i] -= root[i * q + j] * x[j]
        x[i] /= root[i * q + i]


cdef inline void solve_upper(const double *root, double *x, Py_ssize_t q) noexcept nogil:
    """x <- L'^-1 x."""
    cdef Py_ssize_t i, j
    for i in range(q - 1, -1, -1):
        for j in range(i + 1, q):
            x[i] -= root[j * q + i] * x[j]
        x[i] /= root[i * q + i]
