"""One ARCH model in the logarithms of its parameters, for chains."""

from libc.math cimport INFINITY, NAN, exp, isfinite, lgamma, log, M_PI
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
cimport numpy as cnp

import numpy as np
from scipy.special import digamma, polygamma

from fastrace._base import _checks
from fastrace._base._guard cimport guard_await, guard_built, guard_check_built
from fastrace._base._signals cimport check_signals
from fastrace._math._simd cimport fr_sum
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
    void fr_arch_range(const double *squares, const int64_t *positions, int64_t first, Py_ssize_t n_rows,
                       const arch_model_t *model, double *out)
    void fr_arch_log_residuals(const double *squares, const int64_t *positions, int64_t first, Py_ssize_t n_rows,
                               const arch_model_t *model, const arch_mode_t *mode, const double *const *moves,
                               double dlog_nu, double *out)

cdef enum:
    BLOCK = 256
    ROWS_PER_CHECK = 1 << 16


cdef double constant_part(double nu) noexcept nogil:
    """What a term holds beside nu / 2 log v - (nu + 1) / 2 log(nu v + r^2)."""
    return lgamma(0.5 * (nu + 1.0)) - lgamma(0.5 * nu) - 0.5 * log(M_PI * nu) + 0.5 * (nu + 1.0) * log(nu)


cdef class LogArchSource(Source):
    r"""Log-likelihood terms of an ARCH(q) model with Student-t errors, one parameter vector per arm.

    With :math:`a = \exp(\theta_{0 \ldots q})` and :math:`\nu = \exp(\theta_{q + 1})`, term t is the log density of
    :math:`r_t` where :math:`r_t / \sqrt{v_t}` has Student's t distribution with nu degrees of freedom,
    :math:`v_t = a_0 + \sum_{i \le q} a_i r_{t-i}^2`.

    Parameters
    ----------
    squares : ndarray of float64, shape (T,)
        Squared returns. The first q are conditioned on.
    order : int
        q, in [1, 64].
    parameters : ndarray of float64, shape (n_arms, q + 2), in C order
        Read in place, whenever rewards are asked for.
    theta_hat : array_like of shape (q + 2,), optional
        With it rewards are what the second-order expansion in theta there leaves of the terms.
    """

    cdef readonly Py_ssize_t order
    cdef readonly object theta_hat
    cdef cnp.ndarray squares, parameters, hat, weights
    cdef arch_mode_t mode

    def __cinit__(self):
        guard_await(&self.guard, 1)

    def __init__(self, squares, order, parameters, theta_hat=None):
        if not 1 <= order <= ARCH_MOST_LAGS:
            raise ValueError(f"order is {order}; it must be in [1, {ARCH_MOST_LAGS}]")
        series = np.ascontiguousarray(squares, dtype=np.float64)
        if series.ndim != 1 or series.size <= order:
            raise ValueError(f"squares has shape {series.shape}; a vector of more than {order} numbers is needed")
        if not isinstance(parameters, np.ndarray) or parameters.dtype != np.float64 or parameters.ndim != 2 \
                or parameters.shape[1] != order + 2 or not parameters.flags.c_contiguous:
            raise ValueError(f"parameters is of type {type(parameters).__name__} and shape {np.shape(parameters)}; a "
                             f"float64 array of shape (n_arms, {order + 2}) in C order is needed")
        hat = None
        if theta_hat is not None:
            hat = np.array(theta_hat, dtype=np.float64)
            if hat.shape != (order + 2,) or not np.isfinite(hat).all():
                raise ValueError(f"theta_hat has shape {hat.shape}; {order + 2} finite parameters are needed")
        # As measured for ArchSource.
        super().__init__(len(parameters), series.size - order, scan_advantage=1.5 if theta_hat is None else 3.0,
                         reward_cost=7.0 if theta_hat is None else 14.0)
        self.order = order
        self.squares = series
        self.parameters = parameters
        self.theta_hat = None
        if hat is not None:
            self._expand(hat)
        guard_built(&self.guard, 1)

    cdef int _expand(self, hat) except -1:
        self.hat = hat
        self.hat.flags.writeable = False
        self.weights = np.exp(hat)
        cdef double nu = self.weights[self.order + 1], half = 0.5 * nu
        self.mode.model.weight = <const double *>cnp.PyArray_DATA(self.weights)
        self.mode.model.q = self.order
        self.mode.model.nu = nu
        self.mode.model.constant = constant_part(nu)
        self.mode.dn = 0.5 * (digamma(half + 0.5) - digamma(half)) - 0.25 / half
        self.mode.dnn = 0.25 * (polygamma(1, half + 0.5) - polygamma(1, half)) + 0.125 / half**2
        self.theta_hat = self.hat
        return 0

    def __reduce__(self):
        guard_check_built(&self.guard, self)
        return _log_arch_source.saved(np.asarray(self.squares), self.order, np.asarray(self.parameters), self.theta_hat)

    cdef int evaluate(self, const int64_t *rows, int64_t first, Py_ssize_t n_rows, const Py_ssize_t *arms,
                      Py_ssize_t n_arms, double **out) except -1 nogil:
        cdef Py_ssize_t q = self.order, i, j, start, count
        cdef const double *squares = <const double *>cnp.PyArray_DATA(self.squares)
        cdef const double *theta
        cdef const double *hat
        cdef double weight[ARCH_MOST_LAGS + 1]
        cdef double once[ARCH_MOST_LAGS + 1]
        cdef double twice[ARCH_MOST_LAGS + 1]
        cdef const double *moves[2]
        cdef int64_t at[BLOCK]
        cdef arch_model_t model
        cdef double step, checked
        model.weight = weight
        model.q = q
        moves[0], moves[1] = once, twice
        for j in range(n_arms):
            theta = <const double *>cnp.PyArray_DATA(self.parameters) + arms[j] * (q + 2)
            checked = 0.0
            for i in range(q + 1):
                weight[i] = exp(theta[i])
                checked += weight[i]
            model.nu = exp(theta[q + 1])
            model.constant = constant_part(model.nu)
            if not (weight[0] >= 1e-300 and isfinite(checked) and 1e-300 <= model.nu <= 1e15):
                # Too far out for the arithmetic: no such state is ever taken up.
                for i in range(n_rows):
                    out[j][i] = -INFINITY if checked == checked and model.nu == model.nu else NAN
                continue
            if self.theta_hat is not None:
                hat = <const double *>cnp.PyArray_DATA(self.hat)
                for i in range(q + 1):
                    step = theta[i] - hat[i]
                    once[i] = self.mode.model.weight[i] * step
                    twice[i] = once[i] * step
                step = theta[q + 1] - hat[q + 1]
            start = 0
            while start < n_rows:
                count = n_rows - start if rows == NULL else min(BLOCK, n_rows - start)
                if rows != NULL:
                    for i in range(count):
                        at[i] = rows[start + i] + q
                if self.theta_hat is not None:
                    fr_arch_log_residuals(squares, at if rows != NULL else NULL, first + q + start, count, &model,
                                          &self.mode, moves, step, out[j] + start)
                else:
                    fr_arch_range(squares, at if rows != NULL else NULL, first + q + start, count, &model,
                                  out[j] + start)
                start += count
        return 0

    cdef int fill(self, const int64_t *rows, Py_ssize_t n_rows, const Py_ssize_t *arms, Py_ssize_t n_arms,
                  double **out) except -1 nogil:
        return self.evaluate(rows, 0, n_rows, arms, n_arms, out)

    cdef int fill_range(self, int64_t first, Py_ssize_t n_rows, const Py_ssize_t *arms, Py_ssize_t n_arms,
                        double **out) except -1 nogil:
        return self.evaluate(NULL, first, n_rows, arms, n_arms, out)

    cdef int add_sums(self, int64_t first, int64_t n_rows, const Py_ssize_t *arms, Py_ssize_t n_arms,
                      double *out) except -1 nogil:
        cdef int64_t last = first + n_rows, since_check = 0
        cdef Py_ssize_t j, count
        cdef double *column = <double *>malloc(8 * BLOCK * sizeof(double))
        if column == NULL:
            with gil:
                raise MemoryError()
        try:
            while first < last:
                count = <Py_ssize_t>min(<int64_t>(8 * BLOCK), last - first)
                for j in range(n_arms):
                    self.evaluate(NULL, first, count, arms + j, 1, &column)
                    out[j] += fr_sum(column, count)
                first += count
                since_check += count
                if since_check >= ROWS_PER_CHECK:
                    since_check = 0
                    check_signals()
        finally:
            free(column)
        return 0


@_checks.rebuilds(1, LogArchSource)
def _log_arch_source(squares, order, parameters, theta_hat):
    """Rebuild a pickled `LogArchSource`."""
    return LogArchSource(squares, order, parameters, theta_hat)
