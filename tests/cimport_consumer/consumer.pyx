# cython: language_level=3
"""A stranger's package: a source of its own, and a callback, built against an installed fastrace."""

from libc.stdint cimport int64_t

from fastrace.sources cimport Source


cdef double reward(int64_t row, Py_ssize_t arm) noexcept nogil:
    # A number in [0, 1) that looks random, and half of it more for every arm.
    return <double>((row * 7919 + arm * 104729) % 10007) / 10007.0 + 0.5 * arm


cdef class Steps(Source):
    """Rewards within [arm / 2, arm / 2 + 1), computed rather than stored: the last arm is the best."""

    cdef int fill(self, const int64_t *rows, Py_ssize_t n_rows, const Py_ssize_t *arms, Py_ssize_t n_arms,
                  double **out) except -1 nogil:
        cdef Py_ssize_t i, j
        for j in range(n_arms):
            for i in range(n_rows):
                if rows[i] < 0:
                    with gil:
                        raise IndexError(f"row {rows[i]}")
                out[j][i] = reward(rows[i], arms[j])
        return 0


cdef api int steps(double *out, Py_ssize_t n_rows, const Py_ssize_t *rows, Py_ssize_t arm, void *data) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n_rows):
        out[i] = reward(rows[i], arm)
    return 0


def mean(Source source, Py_ssize_t arm):
    """Mean of an arm by blocks of 100 rows, without the GIL."""
    cdef double block[100]
    cdef double *column = block
    cdef double sum = 0.0
    cdef int64_t first = 0
    cdef Py_ssize_t i, count
    with nogil:
        while first < source.n_rows:
            count = <Py_ssize_t>min(<int64_t>100, source.n_rows - first)
            source.fill_range(first, count, &arm, 1, &column)
            for i in range(count):
                sum += block[i]
            first += count
    return sum / source.n_rows


def read_one(Source source, int64_t row):
    """A row that is not checked by anyone but the source."""
    cdef double value = 0.0
    cdef double *column = &value
    cdef Py_ssize_t arm = 0
    with nogil:
        source.fill(&row, 1, &arm, 1, &column)
    return value


cdef class Location(Source):
    """Normal log-likelihoods of numbers y, up to a constant, whose mean under arm j is theta[j, 0]."""

    cdef const double[::1] y
    cdef double[:, ::1] theta

    def __init__(self, y, theta):
        super().__init__(theta.shape[0], y.shape[0])
        self.y = y
        self.theta = theta

    cdef int fill(self, const int64_t *rows, Py_ssize_t n_rows, const Py_ssize_t *arms, Py_ssize_t n_arms,
                  double **out) except -1 nogil:
        cdef Py_ssize_t i, j
        cdef double step
        for j in range(n_arms):
            for i in range(n_rows):
                step = self.y[rows[i]] - self.theta[arms[j], 0]
                out[j][i] = -0.5 * step * step
        return 0
