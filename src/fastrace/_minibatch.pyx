# cython: cdivision=True
"""Exact Metropolis-Hastings steps from minibatches: they need a bound on how far each row's reward can move."""

from libc.math cimport INFINITY, isnan, log, log1p, sqrt
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, malloc, realloc
cimport numpy as cnp
from numpy.random cimport bitgen_t

from fastrace._alias cimport alias_build, alias_draw, alias_t
from fastrace._chain cimport Chain

from fastrace._chain import _refuse

import numpy as np

cnp.import_array()

cdef extern from "numpy/random/distributions.h" nogil:
    int64_t random_poisson(bitgen_t *bits, double rate)


cdef class AliasTable:
    """Draws of rows in proportion to their weights, shared by chains."""

    cdef alias_t *table
    cdef readonly uint32_t n
    cdef readonly cnp.ndarray weights

    def __init__(self, weights):
        cdef uint32_t *stack
        cdef const double *w
        cdef double total = 0.0
        cdef uint32_t i
        self.weights = np.ascontiguousarray(weights, dtype=np.float64)
        if self.weights.ndim != 1 or not 0 < len(self.weights) <= 0xFFFFFFFF:
            raise ValueError(f"weights has shape {np.shape(weights)}; a vector of 1 to 2^32 - 1 numbers is needed")
        if not (np.isfinite(self.weights).all() and (np.asarray(self.weights) >= 0.0).all()):
            raise ValueError("weights must be finite and not below 0")
        if self.table != NULL:
            raise RuntimeError("a table is set up once")
        self.n = <uint32_t>len(self.weights)
        self.table = <alias_t *>malloc(<size_t>self.n * sizeof(alias_t))
        stack = <uint32_t *>malloc(<size_t>self.n * sizeof(uint32_t))
        if self.table == NULL or stack == NULL:
            free(stack)
            raise MemoryError()
        w = <const double *>cnp.PyArray_DATA(self.weights)
        with nogil:
            for i in range(self.n):
                total += w[i]
            alias_build(self.table, w, total, self.n, stack)
            free(stack)

    def __dealloc__(self):
        free(self.table)

    def __reduce__(self):
        return AliasTable, (np.asarray(self.weights),)

    def probabilities(self):
        """What the table draws each place with."""
        cdef uint32_t i
        out = np.zeros(self.n)
        for i in range(self.n):
            out[i] += self.table[i].keep / self.n
            out[self.table[i].other] += (1.0 - self.table[i].keep) / self.n
        return out


cdef class MinibatchChain(Chain):
    """Steps that read a Poisson number of rows, drawn in proportion to their weights. Subclasses weigh them."""

    cdef AliasTable table
    cdef double most                # expected rows from which on a full pass is taken
    cdef int64_t *rows
    cdef double *before
    cdef double *after
    cdef Py_ssize_t room

    def __dealloc__(self):
        free(self.rows)
        free(self.before)
        free(self.after)

    def set_table(self, AliasTable table not None, most):
        """Where rows are drawn from, and the expected number above which a step takes a full pass instead."""
        if table.n != self.source.n_rows:
            raise ValueError(f"the table has {table.n} places and the source {self.source.n_rows} rows")
        self.table = table
        self.most = most

    cdef int reserve(self, Py_ssize_t wanted) except -1 nogil:
        cdef Py_ssize_t room = 2 * wanted + 64
        cdef void *p
        if wanted <= self.room:
            return 0
        p = realloc(self.rows, room * sizeof(int64_t))
        if p != NULL:
            self.rows = <int64_t *>p
            p = realloc(self.before, room * sizeof(double))
        if p != NULL:
            self.before = <double *>p
            p = realloc(self.after, room * sizeof(double))
        if p == NULL:
            with gil:
                raise MemoryError()
        self.after = <double *>p
        self.room = room
        return 0

    cdef int fetch(self, Py_ssize_t count) except -1 nogil:
        """Draw that many rows and read the rewards of both arms on them."""
        cdef Py_ssize_t arms[2]
        cdef double *out[2]
        cdef Py_ssize_t i
        arms[0], arms[1] = 0, 1
        self.step.n_read = count
        self.step.n_looks = 1
        if count == 0:
            return 0
        self.reserve(count)
        for i in range(count):
            self.rows[i] = alias_draw(self.table.table, self.table.n, &self.stream.bits)
        out[0], out[1] = self.before, self.after
        return self.source.fill(self.rows, count, arms, 2, out)

    cdef int full_pass(self, double threshold) except -1 nogil:
        """The exact decision. Whether it is taken depends on both states alike, so the chain stays exact."""
        cdef Py_ssize_t arms[2]
        cdef double sums[2]
        cdef int j
        arms[0], arms[1] = 0, 1
        self.source.total(arms, 2, sums)
        for j in range(2):
            if isnan(sums[j]) or sums[j] == INFINITY:
                with gil:
                    _refuse(self.source, j)
        self.step.n_read = self.source.n_rows
        self.step.n_looks = 1
        self.step.full_pass = True
        self.step.accepted = sums[1] - sums[0] > threshold
        return 0

    cdef int refuse(self, Py_ssize_t i, double bound) except -1:
        raise ValueError(f"the rewards of row {self.rows[i]} are {self.before[i]} now and {self.after[i]} for the "
                         f"proposal; they must be finite and differ by at most {bound}, the bound for that row")


cdef class PoissonChain(MinibatchChain):
    """Poisson minibatches on top of a control variate."""

    cdef int decide(self, bitgen_t *bits, double threshold) except -1 nogil:
        cdef double size = self.size_of_move(), rate = self.total_weight * size
        cdef const double *weight = <const double *>cnp.PyArray_DATA(self.table.weights)
        cdef Py_ssize_t i, count
        cdef double log_ratio = 0.0, change, bound, here
        if not rate < self.most:
            return self.full_pass(threshold)
        count = <Py_ssize_t>random_poisson(&self.stream.bits, rate) if rate > 0.0 else 0
        self.fetch(count)
        for i in range(count):
            bound = weight[self.rows[i]] * size
            change = self.after[i] - self.before[i]
            if not (-bound <= change <= bound):
                # Rounding of a residual, which is a difference of numbers of order 1, is all that may be beyond.
                if not (-bound - 1e-10 <= change <= bound + 1e-10):
                    with gil:
                        self.refuse(i, bound)
                change = bound if change > bound else -bound
            # Rate of the row here and for the way back: here + change. Their sum is 2 bound - |change|.
            here = bound - change if change > 0.0 else bound
            if self.stream.bits.next_double(self.stream.bits.state) * bound < here:
                log_ratio += log((here + change) / here)
        self.step.accepted = log_ratio > threshold
        return 0


cdef class TunaChain(MinibatchChain):
    """TunaMH: Poisson minibatches on the log-likelihoods themselves, whose changes are bounded by Lipschitz constants.

    The rate chi C^2 M^2 + C M grows with the posterior's whole pull on a step, so steps must be small.
    """

    cdef double chi

    def set_chi(self, chi):
        self.chi = chi

    cdef double length_of_move(self) noexcept nogil:
        cdef Py_ssize_t i
        cdef double sum = 0.0
        for i in range(self.dim):
            sum += (self.z1[i] - self.z0[i]) * (self.z1[i] - self.z0[i])
        return sqrt(sum)

    cdef int decide(self, bitgen_t *bits, double threshold) except -1 nogil:
        cdef double size = self.length_of_move(), whole = self.total_weight * size
        cdef double rate = self.chi * whole * whole + whole
        cdef const double *weight = <const double *>cnp.PyArray_DATA(self.table.weights)
        cdef Py_ssize_t i, count
        cdef double log_ratio = 0.0, change, bound, share
        if not rate < self.most:
            return self.full_pass(threshold)
        count = <Py_ssize_t>random_poisson(&self.stream.bits, rate) if rate > 0.0 else 0
        self.fetch(count)
        for i in range(count):
            bound = weight[self.rows[i]] * size * (1.0 + 1e-9) + 1e-12
            change = self.after[i] - self.before[i]         # U_i(now) - U_i(new)
            if not (-bound <= change <= bound):
                with gil:
                    self.refuse(i, bound)
            share = self.chi * weight[self.rows[i]] * size * whole
            if self.stream.bits.next_double(self.stream.bits.state) * (share + bound) < share + 0.5 * (bound + change):
                change /= bound + 2.0 * share
                log_ratio += log1p(change) - log1p(-change)
        self.step.accepted = log_ratio > threshold
        return 0
