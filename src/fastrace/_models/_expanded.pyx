# cython: cdivision=True
"""One residual source for all models: terms less their second-order expansions in the parameters."""

from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
cimport numpy as cnp

import numpy as np

from fastrace._base import _checks
from fastrace._base._guard cimport guard_await, guard_built, guard_check_built
from fastrace._models._powers cimport powers_of_step
from fastrace.sources cimport _BlockSource, Source, add_blocks

cnp.import_array()

cdef extern from "_clones.h" nogil:
    void PREFETCH(const void *p)

cdef enum:
    AHEAD = 4                       # rows between a row and the one that is prefetched with it
    SUM_BLOCK = 256                 # rows summed at once, which stay in the first-level cache
    ROWS_PER_CHECK = 1 << 14        # rows between two looks at pending signals


cdef class TermSource(_BlockSource):
    """Terms of a log-likelihood that know their second-order expansions. Subclasses supply ``terms``."""

    def __cinit__(self):
        self.sum_block = SUM_BLOCK

    @property
    def theta(self):
        """Parameters, shape (n_arms, p): a copy to read, or a value to assign, as `set_theta` does."""
        return self.table_of_arms().copy()

    @theta.setter
    def theta(self, values):
        self.set_theta(values)

    def set_theta(self, values):
        """Replace the parameters of all arms.

        Parameters
        ----------
        values : array_like of real numbers, shape (n_arms, p)
            Copied. A float64 array in C order costs least.

        Raises
        ------
        ValueError
            If the shape differs or a value is not finite; the parameters then stay as they were.
        """
        cdef cnp.ndarray array
        cdef const double *x
        cdef Py_ssize_t width = self.table_of_arms().shape[1], size = self.n_arms * width, i
        cdef double sum = 0.0
        if type(values) is np.ndarray and cnp.PyArray_TYPE(values) == cnp.NPY_DOUBLE \
                and cnp.PyArray_ISCARRAY_RO(values):
            array = values
        else:
            _checks.unmasked(values, "values")
            array = np.ascontiguousarray(values, dtype=np.float64)
        if array.ndim != 2 or array.shape[0] != self.n_arms or array.shape[1] != width:
            check_theta(array, (self.n_arms, width))
        x = <const double *>cnp.PyArray_DATA(array)
        for i in range(size):
            sum += x[i] - x[i]      # nan unless all are finite
        if sum != 0.0:
            check_theta(array, (self.n_arms, width))
        memcpy(cnp.PyArray_DATA(self.parameters), x, size * sizeof(double))

    cdef cnp.ndarray table_of_arms(self):
        guard_check_built(&self.guard, self)
        if self.parameters is None:
            raise TypeError(f"{type(self).__name__} does not define its parameters")
        return self.parameters

    cdef cnp.ndarray expanded_at(self, theta_hat):
        hat = _checks.floats(theta_hat, "theta_hat")
        if hat.shape != (self.parameters.shape[1],) or not np.isfinite(hat).all():
            raise ValueError(f"theta_hat has shape {hat.shape} and values {hat}; {self.parameters.shape[1]} finite "
                             f"parameters are needed")
        return hat

    cdef int terms(self, const double *about, const int64_t *rows, int64_t first, Py_ssize_t n_rows,
                   const Py_ssize_t *arms, Py_ssize_t n_arms, double **out) except -1 nogil:
        with gil:
            raise TypeError(f"{type(self).__name__} does not define terms()")

    cdef int cubes(self, const double *steps, const int64_t *rows, Py_ssize_t n_rows, double *out) except -1 nogil:
        with gil:
            raise TypeError(f"{type(self).__name__} does not define cubes()")

    cdef int block(self, const int64_t *rows, int64_t first, Py_ssize_t n_rows, const Py_ssize_t *arms,
                   Py_ssize_t n_arms, double **out) except -1 nogil:
        return self.terms(NULL, rows, first, n_rows, arms, n_arms, out)

    cdef int add_sums(self, int64_t first, int64_t n_rows, const Py_ssize_t *arms, Py_ssize_t n_arms,
                      double *out) except -1 nogil:
        return add_blocks(self, self.sum_block, ROWS_PER_CHECK, first, n_rows, arms, n_arms, out)


def check_theta(theta, shape):
    """Raise unless an array of parameters has this shape and is finite."""
    if theta.shape != shape:
        raise ValueError(f"theta has shape {theta.shape}; {shape}, one row of parameters per arm, is needed")
    if not np.isfinite(theta).all():
        raise ValueError(f"theta holds {theta[~np.isfinite(theta)][0]}; parameters must be finite")


def parameter_table(parameters, width):
    """`parameters` if it is a float64 array of shape (n_arms, width) in C order, else a ValueError."""
    if not isinstance(parameters, np.ndarray) or parameters.dtype != np.float64 or parameters.ndim != 2 \
            or parameters.shape[1] != width or not parameters.flags.c_contiguous:
        raise ValueError(f"parameters is of type {type(parameters).__name__} and shape {np.shape(parameters)}; a "
                         f"float64 array of shape (n_arms, {width}) in C order is needed")
    return parameters


cdef class Expanded(_BlockSource):
    """The residuals of the second-order expansions of a source's terms.

    The sums of the expansions belong to whoever holds their gradient and Hessian: a chain has them as a normal density.

    Parameters
    ----------
    source : TermSource
        The terms.
    theta_hat : array_like of shape (dim,)
        Where to expand.
    """

    def __cinit__(self):
        guard_await(&self.guard, 1)

    def __init__(self, TermSource source not None, theta_hat):
        guard_check_built(&source.guard, source)
        about = source.expanded_at(theta_hat)
        super().__init__(source.n_arms, source.n_rows, scan_advantage=source.expanded_advantage,
                         reward_cost=source.expanded_cost, n_always_read=source.n_always_read,
                         first_look=source.first_look)
        self.source = source
        self.about = about
        self.theta_hat = np.array(theta_hat, dtype=np.float64)
        self.theta_hat.flags.writeable = False
        guard_built(&self.guard, 1)

    def __reduce__(self):
        guard_check_built(&self.guard, self)
        return _expanded.saved(self.source, np.asarray(self.theta_hat))

    cdef int block(self, const int64_t *rows, int64_t first, Py_ssize_t n_rows, const Py_ssize_t *arms,
                   Py_ssize_t n_arms, double **out) except -1 nogil:
        return self.source.terms(<const double *>cnp.PyArray_DATA(self.about), rows, first, n_rows, arms, n_arms, out)

    cdef int cubes(self, const int64_t *rows, Py_ssize_t n_rows, const Py_ssize_t *arms, double *out) except -1 nogil:
        cdef Py_ssize_t width = self.source.parameters.shape[1], j, k
        cdef const double *theta = <const double *>cnp.PyArray_DATA(self.source.parameters)
        cdef const double *hat = <const double *>cnp.PyArray_DATA(self.about)
        cdef double *steps = <double *>malloc(2 * width * sizeof(double))
        if steps == NULL:
            with gil:
                raise MemoryError()
        try:
            for j in range(2):
                for k in range(width):
                    steps[j * width + k] = theta[arms[j] * width + k] - hat[k]
            return self.source.cubes(steps, rows, n_rows, out)
        finally:
            free(steps)

    cdef int add_sums(self, int64_t first, int64_t n_rows, const Py_ssize_t *arms, Py_ssize_t n_arms,
                      double *out) except -1 nogil:
        return add_blocks(self, self.source.sum_block, ROWS_PER_CHECK, first, n_rows, arms, n_arms, out)

    cdef int shift(self, const Py_ssize_t *arms, Py_ssize_t n_arms, double *out) except -1 nogil:
        return self.source.shift(arms, n_arms, out)


@_checks.rebuilds(1, Expanded)
def _expanded(source, theta_hat):
    """Rebuild a pickled `Expanded`."""
    return Expanded(source, theta_hat)


cdef class Expansion(_BlockSource):
    """The second-order expansions of a source's terms: what `Expanded` takes off. Parameters as there."""

    def __cinit__(self):
        guard_await(&self.guard, 1)

    def __init__(self, TermSource source not None, theta_hat):
        residual = Expanded(source, theta_hat)
        super().__init__(source.n_arms, source.n_rows, scan_advantage=source.scan_advantage,
                         reward_cost=source.reward_cost)
        self.residual = residual
        guard_built(&self.guard, 1)

    def __reduce__(self):
        guard_check_built(&self.guard, self)
        return _expansion.saved(self.residual.source, np.asarray(self.residual.theta_hat))

    @property
    def theta_hat(self):
        """Where the terms are expanded; read-only."""
        guard_check_built(&self.guard, self)
        return self.residual.theta_hat

    cdef int block(self, const int64_t *rows, int64_t first, Py_ssize_t n_rows, const Py_ssize_t *arms,
                   Py_ssize_t n_arms, double **out) except -1 nogil:
        cdef double *left = <double *>malloc(max(n_rows, 1) * sizeof(double))
        cdef Py_ssize_t i, j
        try:
            if left == NULL:
                with gil:
                    raise MemoryError()
            self.residual.source.terms(NULL, rows, first, n_rows, arms, n_arms, out)
            for j in range(n_arms):
                self.residual.block(rows, first, n_rows, arms + j, 1, &left)
                for i in range(n_rows):
                    out[j][i] -= left[i]
        finally:
            free(left)
        return 0


@_checks.rebuilds(1, Expansion)
def _expansion(source, theta_hat):
    """Rebuild a pickled `Expansion`."""
    return Expansion(source, theta_hat)


def packed(value, gradient, hessian):
    """Rows of a table of `OwnTerms`: value, gradient, and the Hessian's lower triangle, its diagonal halved."""
    gradient, hessian = np.asarray(gradient, dtype=np.float64), np.asarray(hessian, dtype=np.float64)
    d = gradient.shape[1]
    table = np.empty((len(gradient), 1 + d + d * (d + 1) // 2))
    table[:, 0] = value
    table[:, 1:1 + d] = gradient
    k = 1 + d
    for a in range(d):
        for b in range(a):
            table[:, k] = 0.5 * (hessian[:, a, b] + hessian[:, b, a])
            k += 1
        table[:, k] = 0.5 * hessian[:, a, a]
        k += 1
    return table


cdef class OwnTerms(TermSource):
    """The rewards of any source as terms that know their expansions about one point.

    Parameters
    ----------
    source : Source
        The rewards.
    parameters : ndarray of float64, shape (n_arms, d), in C order
        Where the source reads its parameters.
    table : ndarray of float64, shape (n_rows, 1 + d + d (d + 1) / 2), in C order
        Of each row the value, gradient and Hessian at the point of expansion, as `packed` has them.
    """

    def __cinit__(self):
        guard_await(&self.guard, 1)

    def __init__(self, Source source not None, parameters, table):
        guard_check_built(&source.guard, source)
        d = np.shape(parameters)[1] if np.ndim(parameters) == 2 else 0
        if len(parameter_table(parameters, d)) != source.n_arms:
            raise ValueError(f"parameters has shape {parameters.shape}; one row for each of {source.n_arms} arms is "
                             f"needed")
        kept = np.ascontiguousarray(table, dtype=np.float64)
        shape = (source.n_rows, 1 + d + d * (d + 1) // 2)
        if kept.shape != shape or not np.isfinite(kept).all():
            raise ValueError(f"table has shape {kept.shape}; finite numbers of shape {shape} are needed")
        super().__init__(source.n_arms, source.n_rows, scan_advantage=source.scan_advantage,
                         reward_cost=source.reward_cost, n_always_read=source.n_always_read,
                         first_look=source.first_look)
        self.source = source
        self.parameters = parameters
        self.table = kept
        self.sum_block = 4 * SUM_BLOCK
        self.expanded_cost = source.reward_cost + 0.5 * shape[1]
        self.expanded_advantage = source.scan_advantage
        guard_built(&self.guard, 1)

    def __reduce__(self):
        guard_check_built(&self.guard, self)
        return _own_terms.saved(self.source, np.asarray(self.parameters), np.asarray(self.table))

    cdef int terms(self, const double *about, const int64_t *rows, int64_t first, Py_ssize_t n_rows,
                   const Py_ssize_t *arms, Py_ssize_t n_arms, double **out) except -1 nogil:
        if rows != NULL:
            self.source.fill(rows, n_rows, arms, n_arms, out)
        else:
            self.source.fill_range(first, n_rows, arms, n_arms, out)
        if about == NULL:
            return 0
        return self.take_off(about, rows, first, n_rows, arms, n_arms, out)

    cdef int take_off(self, const double *hat, const int64_t *rows, int64_t first, Py_ssize_t n_rows,
                      const Py_ssize_t *arms, Py_ssize_t n_arms, double **out) except -1 nogil:
        """out[j][i] -= the expansion: the product of a row of the table and the powers of the arm's step from `hat`."""
        cdef Py_ssize_t d = self.parameters.shape[1], m = self.table.shape[1], i, j, k
        cdef const double *theta
        cdef const double *table = <const double *>cnp.PyArray_DATA(self.table)
        cdef const double *row
        cdef double *powers = <double *>malloc(max(n_arms, 1) * m * sizeof(double))
        cdef double *power
        cdef double sum
        if powers == NULL:
            with gil:
                raise MemoryError()
        for j in range(n_arms):
            theta = <const double *>cnp.PyArray_DATA(self.parameters) + arms[j] * d
            powers_of_step(theta, hat, d, powers + j * m)
        for i in range(n_rows):
            row = table + (rows[i] if rows != NULL else first + i) * m
            if rows != NULL and i + AHEAD < n_rows:
                for k in range(0, m, 8):
                    PREFETCH(table + rows[i + AHEAD] * m + k)
            for j in range(n_arms):
                power = powers + j * m
                sum = 0.0
                for k in range(m):
                    sum += row[k] * power[k]
                out[j][i] -= sum
        free(powers)
        return 0

    cdef int shift(self, const Py_ssize_t *arms, Py_ssize_t n_arms, double *out) except -1 nogil:
        return self.source.shift(arms, n_arms, out)


@_checks.rebuilds(1, OwnTerms)
def _own_terms(source, parameters, table):
    """Rebuild a pickled `OwnTerms`."""
    return OwnTerms(source, parameters, table)
