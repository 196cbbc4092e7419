"""Terms of ARCH models with Student-t errors, for the demonstration: a compiled source with a control variate."""

from libc.math cimport lgamma, log, M_PI
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
cimport numpy as cnp

import numpy as np
from scipy.special import digamma, polygamma

from fastrace._base._guard cimport guard_await, guard_built, guard_check_built
from fastrace._base._signals cimport check_signals
from fastrace.sources cimport Source

cnp.import_array()

cdef extern from "_arch.h" nogil:
    enum:
        ARCH_MOST_LAGS
    ctypedef struct arch_model_t:
        const double *weight
        Py_ssize_t q
        double nu
        double constant
    ctypedef struct arch_mode_t:
        arch_model_t model
        double dn, dnn
    void fr_arch_terms(const double *squares, const int64_t *positions, Py_ssize_t n_rows, const arch_model_t *models,
                       const arch_mode_t *modes, const Py_ssize_t *names, Py_ssize_t n_names, double **out)
    void fr_arch_sums(const double *squares, const int64_t *positions, int64_t first, Py_ssize_t n_rows,
                      const arch_model_t *models, const Py_ssize_t *names, Py_ssize_t n_names, double *out)

cdef enum:
    ROWS_PER_CHECK = 1 << 18


cdef double constant_part(double nu) noexcept nogil:
    """What a term holds beside nu / 2 log v - (nu + 1) / 2 log(nu v + r^2)."""
    return lgamma(0.5 * (nu + 1.0)) - lgamma(0.5 * nu) - 0.5 * log(M_PI * nu) + 0.5 * (nu + 1.0) * log(nu)


cdef class ArchSource(Source):
    r"""Log-likelihood terms of ARCH(q) models of several orders q on the same returns.

    Row t has variance :math:`v_t = a_0 + \sum_{i \le q} a_i r_{t-i}^2`, and
    :math:`r_t / \sqrt{v_t}` has Student's t distribution with nu degrees of freedom. All orders start
    at the same row, so that all arms share their rows.

    Parameters
    ----------
    returns : array_like, shape (T,)
        Returns, mean removed. The first max(orders) are conditioned on; the others are the terms.
    orders : sequence of int
        One order q per arm, each in [1, 64].
    always : array_like of int, optional
        Terms in [0, T - max(orders)) that are summed at each `set`, and left out of the race.
    modes : array_like, shape (n_arms, max(orders) + 2), optional
        For each arm a_0, ..., a_q, what is not read, and in the last column nu. Rewards are then the terms less their
        second-order expansions in (v, nu) there, and the sums of the expansions come with `set`.
    """
    cdef cnp.ndarray squares, positions, outlying, weights, modes, known, log_prior
    cdef readonly tuple orders
    cdef readonly Py_ssize_t n_terms
    cdef arch_model_t *models
    cdef arch_mode_t *expanded
    cdef int64_t first

    def __cinit__(self):
        guard_await(&self.guard, 1)
        self.models = NULL
        self.expanded = NULL

    def __dealloc__(self):
        free(self.models)
        free(self.expanded)

    def __init__(self, returns, orders, *, always=(), modes=None):
        cdef Py_ssize_t j
        series = np.ascontiguousarray(returns, dtype=np.float64)
        if not len(orders) or not all(1 <= q <= ARCH_MOST_LAGS for q in orders):
            raise ValueError(f"orders is {list(orders)}; each order must be in [1, {ARCH_MOST_LAGS}]")
        most = max(orders)
        if series.ndim != 1 or series.size <= most or not np.isfinite(series).all():
            raise ValueError(f"returns has shape {series.shape}; a vector of more than {most} finite numbers is needed")
        terms = np.arange(series.size - most)
        outlying = np.unique(np.asarray(always, dtype=np.int64))
        if outlying.size and not (0 <= outlying[0] and outlying.max() < terms.size):
            raise ValueError(f"always runs from {outlying[0]} to {outlying.max()}; terms are in [0, {terms.size})")
        raced = np.setdiff1d(terms, outlying)
        if modes is not None:
            modes = np.array(modes, dtype=np.float64)
            if modes.shape != (len(orders), most + 2):
                raise ValueError(f"modes has shape {modes.shape}; {(len(orders), most + 2)} is needed")
        # Measured on six models: 20 ns a term at random less its expansion, 7 ns in order.
        super().__init__(len(orders), raced.size, scan_advantage=1.5 if modes is None else 3.0,
                         reward_cost=7.0, n_always_read=outlying.size)
        self.orders = tuple(orders)
        self.n_terms = terms.size
        self.first = most
        self.squares = series * series
        self.outlying = outlying + most
        self.positions = raced.astype(np.int64) + most
        self.modes = modes
        self.known = np.zeros(self.n_arms)
        self.log_prior = np.zeros(self.n_arms)
        self.weights = np.ones((self.n_arms, most + 1))
        self.models = <arch_model_t *>malloc(self.n_arms * sizeof(arch_model_t))
        if self.models == NULL:
            raise MemoryError()
        for j in range(self.n_arms):
            self.models[j].weight = <double *>cnp.PyArray_DATA(self.weights) + j * self.weights.shape[1]
            self.models[j].q = orders[j]
        if modes is not None:
            self._expand()
        self._take(np.asarray(self.weights), np.full(self.n_arms, 5.0), np.zeros(self.n_arms), np.zeros(self.n_arms))
        guard_built(&self.guard, 1)

    cdef int _expand(self) except -1:
        """Take the modes over, with the parts of the derivatives by nu that no row changes."""
        cdef Py_ssize_t j
        cdef const double[::1] nu = np.ascontiguousarray(self.modes[:, self.modes.shape[1] - 1])
        half = 0.5 * np.asarray(nu)
        cdef const double[::1] dn = 0.5 * (digamma(half + 0.5) - digamma(half)) - 0.25 / half
        cdef const double[::1] dnn = 0.25 * (polygamma(1, half + 0.5) - polygamma(1, half)) + 0.125 / half**2
        self.expanded = <arch_mode_t *>malloc(self.n_arms * sizeof(arch_mode_t))
        if self.expanded == NULL:
            raise MemoryError()
        for j in range(self.n_arms):
            self.expanded[j].model.weight = <double *>cnp.PyArray_DATA(self.modes) + j * self.modes.shape[1]
            self.expanded[j].model.q = self.models[j].q
            self.expanded[j].model.nu = nu[j]
            self.expanded[j].model.constant = constant_part(nu[j])
            self.expanded[j].dn = dn[j]
            self.expanded[j].dnn = dnn[j]
        return 0

    def set(self, weights, nu, known=0.0, log_prior=0.0):
        """Take new parameters, and sum the terms that are always read.

        Parameters
        ----------
        weights : array_like, shape (n_arms, max(orders) + 1)
            a_0, ..., a_q of each arm; what lies beyond its q is not read.
        nu : array_like, shape (n_arms,)
            Degrees of freedom.
        known : array_like, shape (n_arms,)
            Sums of the expansions over the raced rows at these parameters.
        log_prior : array_like, shape (n_arms,)
            What is added to the log-likelihood of each arm.
        """
        guard_check_built(&self.guard, self)
        nus = np.array(nu, dtype=np.float64)
        if nus.shape != (self.n_arms,):
            raise ValueError(f"nu has shape {nus.shape}; one value for each of {self.n_arms} arms is needed")
        table = np.empty((self.n_arms, self.weights.shape[1]))
        table[...] = weights
        parts = np.empty((2, self.n_arms))
        parts[0], parts[1] = known, log_prior
        self._take(table, nus, parts[0], parts[1])

    cdef int _take(self, weights, cnp.ndarray nus, known, log_prior) except -1:
        """`set` after its arguments have been converted."""
        cdef Py_ssize_t j
        cdef cnp.ndarray arms = np.arange(self.n_arms)
        cdef double[::1] sums = np.empty(self.n_arms)
        cdef const double *each = <double *>cnp.PyArray_DATA(nus)
        self.weights[...] = weights
        for j in range(self.n_arms):
            self.models[j].nu = each[j]
            self.models[j].constant = constant_part(each[j])
        fr_arch_sums(<double *>cnp.PyArray_DATA(self.squares), <int64_t *>cnp.PyArray_DATA(self.outlying), 0,
                     self.outlying.shape[0], self.models, <Py_ssize_t *>cnp.PyArray_DATA(arms), self.n_arms, &sums[0])
        self.known[...] = known + np.asarray(sums)
        self.log_prior[...] = log_prior
        return 0

    def exact(self):
        """Log prior and likelihood of each arm: all terms, each read once, in order. ndarray of shape (n_arms,)."""
        guard_check_built(&self.guard, self)
        cdef cnp.ndarray arms = np.arange(self.n_arms)
        cdef cnp.ndarray out = np.empty(self.n_arms)
        with nogil:
            self._sums(<Py_ssize_t *>cnp.PyArray_DATA(arms), self.n_arms, <double *>cnp.PyArray_DATA(out))
        return out + self.log_prior

    cdef int _sums(self, const Py_ssize_t *arms, Py_ssize_t n_arms, double *out) except -1 nogil:
        cdef int64_t start = 0
        cdef Py_ssize_t count, j
        cdef double *part = <double *>malloc(max(n_arms, 1) * sizeof(double))
        if part == NULL:
            with gil:
                raise MemoryError()
        for j in range(n_arms):
            out[j] = 0.0
        try:
            while start < self.n_terms:
                count = <Py_ssize_t>min(<int64_t>ROWS_PER_CHECK, self.n_terms - start)
                fr_arch_sums(<double *>cnp.PyArray_DATA(self.squares), NULL, self.first + start, count, self.models,
                             arms, n_arms, part)
                for j in range(n_arms):
                    out[j] += part[j]
                start += count
                if start < self.n_terms:
                    check_signals()
        finally:
            free(part)
        return 0

    cdef int fill(self, const int64_t *rows, Py_ssize_t n_rows, const Py_ssize_t *arms, Py_ssize_t n_arms,
                  double **out) except -1 nogil:
        cdef const int64_t *positions = <const int64_t *>cnp.PyArray_DATA(self.positions)
        cdef int64_t *at = <int64_t *>malloc(max(n_rows, 1) * sizeof(int64_t))
        cdef Py_ssize_t i
        if at == NULL:
            with gil:
                raise MemoryError()
        for i in range(n_rows):
            at[i] = positions[rows[i]]
        fr_arch_terms(<double *>cnp.PyArray_DATA(self.squares), at, n_rows, self.models, self.expanded, arms, n_arms,
                      out)
        free(at)
        return 0

    cdef int total(self, const Py_ssize_t *arms, Py_ssize_t n_arms, double *out) except -1 nogil:
        # One pass over all terms in order is cheaper than the raced rows alone; what is known comes off again.
        cdef Py_ssize_t j
        self._sums(arms, n_arms, out)
        for j in range(n_arms):
            out[j] -= (<double *>cnp.PyArray_DATA(self.known))[arms[j]]
        return 0

    cdef int shift(self, const Py_ssize_t *arms, Py_ssize_t n_arms, double *out) except -1 nogil:
        cdef Py_ssize_t j
        for j in range(n_arms):
            out[j] = ((<double *>cnp.PyArray_DATA(self.known))[arms[j]]
                      + (<double *>cnp.PyArray_DATA(self.log_prior))[arms[j]])
        return 0
