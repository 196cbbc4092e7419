"""Terms of ARCH models with Student-t errors, for chains and for the demonstration."""

from libc.math cimport INFINITY, NAN, exp, isfinite, lgamma, log, M_PI
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
cimport numpy as cnp

import numpy as np
from scipy.special import digamma, polygamma

from fastrace._base import _checks
from fastrace._base._guard cimport guard_await, guard_built, guard_check_built
from fastrace._models._expanded cimport TermSource, weigh

from fastrace._models._expanded import parameter_table
from fastrace._models.glm_inputs import are_counts
from fastrace._models.grouping import row_numbers

cnp.import_array()

cdef extern from "_arch.h" nogil:
    enum:
        ARCH_MOST_LAGS
    ctypedef struct arch_model_t:
        const double *weight
        Py_ssize_t q
        double nu
        double constant
    ctypedef struct arch_expansion_t:
        arch_model_t hat
        double by_nu, by_nu_nu, dn, dn2
        const double *once
        const double *twice
    void fr_arch_terms(const double *squares, const int64_t *positions, int64_t first, Py_ssize_t n_rows,
                       const arch_model_t *models, const arch_expansion_t *expansions, Py_ssize_t n_models,
                       double *const *out)

cdef enum:
    SUM_BLOCK = 2048

# What `expanded_at` gives for each arm: weights, nu, then these, then the parameters of the point of expansion.
cdef enum:
    CONSTANT, BY_NU, BY_NU_NU, N_PARTS


cdef double constant_part(double nu) noexcept nogil:
    """What a term holds beside nu / 2 log v - (nu + 1) / 2 log(nu v + r^2)."""
    return lgamma(0.5 * (nu + 1.0)) - lgamma(0.5 * nu) - 0.5 * log(M_PI * nu) + 0.5 * (nu + 1.0) * log(nu)


cdef class ArchSource(TermSource):
    r"""Log-likelihood terms of ARCH models with Student-t errors on the same returns, one model per arm.

    Row t has variance :math:`v_t = a_0 + \sum_{i \le q} a_i r_{t-i}^2`, and :math:`r_t / \sqrt{v_t}` has Student's t
    distribution with nu degrees of freedom. All orders q start at the same row, so that all arms share their rows.

    Parameters
    ----------
    squares : ndarray of float64, shape (T,)
        Squared returns. The first max(orders) are conditioned on; the others are the terms.
    orders : int or sequence of int
        q, in [1, 64], of all arms or of each.
    parameters : ndarray of float64, shape (n_arms, max(orders) + 2), in C order
        log a_0, ..., log a_q, what is not read, and in the last column log nu. Read in place.
    natural : bool, default False
        Whether `parameters` holds a_0, ..., a_q and nu themselves. Expansions are then in (v, nu), else in the
        logarithms.
    weights : array_like of whole numbers from 0 up, shape (T - max(orders),), optional
        What each row's term is multiplied by.

    Attributes
    ----------
    offset : ndarray of shape (n_arms,)
        What each arm's sum has beside its terms, such as a log prior: 0 until it is written to.
    """

    cdef readonly tuple orders
    cdef readonly cnp.ndarray offset
    cdef readonly bint natural
    cdef readonly object weights            # ndarray of float64, or None
    cdef cnp.ndarray squares, lags          # the orders again, as the C code reads them
    cdef Py_ssize_t longest             # largest order

    def __cinit__(self):
        guard_await(&self.guard, 1)

    def __init__(self, squares, orders, parameters, *, natural=False, weights=None):
        given = (orders,) if np.ndim(orders) == 0 else tuple(orders)
        if not given or not all(1 <= q <= ARCH_MOST_LAGS for q in given):
            raise ValueError(f"order is {orders}; each must be in [1, {ARCH_MOST_LAGS}]")
        most = max(given)
        series = np.ascontiguousarray(squares, dtype=np.float64)
        if series.ndim != 1 or series.size <= most or not np.isfinite(series).all():
            raise ValueError(f"squares has shape {series.shape}; a vector of more than {most} finite numbers is needed")
        parameter_table(parameters, most + 2)
        each = given * len(parameters) if np.ndim(orders) == 0 else given
        if len(each) != len(parameters):
            raise ValueError(f"orders has {len(each)} entries; one for each of {len(parameters)} arms is needed")
        # Measured on six models: 20 ns a term at random less its expansion, 7 ns in order.
        super().__init__(len(parameters), series.size - most, scan_advantage=1.5, reward_cost=7.0)
        self.expanded_advantage = 3.0
        self.expanded_cost = 14.0
        self.sum_block = SUM_BLOCK
        self.orders = each
        self.lags = np.array(each, dtype=np.intp)
        self.longest = most
        self.natural = natural
        self.squares = series
        self.weights = row_numbers(weights, "weights", self.n_rows, are_counts, "a whole number from 0 up")
        self.parameters = parameters
        self.offset = np.zeros(len(parameters))
        guard_built(&self.guard, 1)

    def __reduce__(self):
        guard_check_built(&self.guard, self)
        plain = (np.asarray(self.squares), self.orders, np.asarray(self.parameters), self.natural,
                 np.asarray(self.offset))
        return _arch_source.saved(*plain) if self.weights is None else _arch_source.saved(*plain, self.weights)

    cdef cnp.ndarray expanded_at(self, theta_hat):
        width = self.parameters.shape[1]
        hat = np.array(theta_hat, dtype=np.float64)
        if hat.shape not in ((width,), (self.n_arms, width)) or not np.isfinite(hat).all():
            raise ValueError(f"theta_hat has shape {hat.shape}; {width} finite parameters, of all arms or of each, are "
                             f"needed")
        about = np.empty((self.n_arms, 2 * width + N_PARTS))
        natural = hat if self.natural else np.exp(hat)
        about[:, :width] = natural
        about[:, width + N_PARTS:] = hat
        nu = about[:, width - 1]
        half = 0.5 * nu
        about[:, width + CONSTANT] = [constant_part(each) for each in nu]
        about[:, width + BY_NU] = 0.5 * (digamma(half + 0.5) - digamma(half)) - 0.25 / half
        about[:, width + BY_NU_NU] = 0.25 * (polygamma(1, half + 0.5) - polygamma(1, half)) + 0.125 / half**2
        return about

    cdef bint model_of(self, Py_ssize_t arm, double *weight, arch_model_t *model) noexcept nogil:
        """The model of an arm; whether it is within reach of the arithmetic."""
        cdef Py_ssize_t width = self.parameters.shape[1], i
        cdef const double *theta = <const double *>cnp.PyArray_DATA(self.parameters) + arm * width
        cdef double total = 0.0
        model.weight = weight
        model.q = (<const Py_ssize_t *>cnp.PyArray_DATA(self.lags))[arm]
        for i in range(model.q + 1):
            weight[i] = theta[i] if self.natural else exp(theta[i])
            total += weight[i]
        model.nu = theta[width - 1] if self.natural else exp(theta[width - 1])
        model.constant = constant_part(model.nu)
        weight[width - 1] = total
        return weight[0] >= 1e-300 and isfinite(total) and 1e-300 <= model.nu <= 1e15

    cdef void move(self, Py_ssize_t arm, const double *about, const arch_model_t *model, double *once, double *twice,
                   arch_expansion_t *expansion) noexcept nogil:
        """How far a model is from its point of expansion."""
        cdef Py_ssize_t width = self.parameters.shape[1], i
        cdef const double *theta = <const double *>cnp.PyArray_DATA(self.parameters) + arm * width
        cdef const double *own = about + arm * (2 * width + N_PARTS)
        cdef const double *hat = own + width + N_PARTS
        cdef double step = theta[width - 1] - hat[width - 1]
        expansion.hat.weight = own
        expansion.hat.q = model.q
        expansion.hat.nu = own[width - 1]
        expansion.hat.constant = own[width + CONSTANT]
        expansion.by_nu = own[width + BY_NU]
        expansion.by_nu_nu = own[width + BY_NU_NU]
        if self.natural:
            expansion.once = expansion.twice = NULL
            expansion.dn = expansion.dn2 = step
            return
        expansion.once = once
        expansion.twice = twice
        expansion.dn = expansion.hat.nu * step
        expansion.dn2 = expansion.dn * (1.0 + 0.5 * step)
        for i in range(model.q + 1):
            step = theta[i] - hat[i]
            once[i] = own[i] * step
            twice[i] = once[i] * step

    cdef int terms(self, const double *about, const int64_t *rows, int64_t first, Py_ssize_t n_rows,
                   const Py_ssize_t *arms, Py_ssize_t n_arms, double **out) except -1 nogil:
        cdef Py_ssize_t width = self.parameters.shape[1], i, j, k = 0
        cdef arch_model_t *models = <arch_model_t *>malloc(max(n_arms, 1) * sizeof(arch_model_t))
        cdef arch_expansion_t *expansions = <arch_expansion_t *>malloc(max(n_arms, 1) * sizeof(arch_expansion_t))
        cdef double *room = <double *>malloc(max(n_arms, 1) * 3 * width * sizeof(double))
        cdef double **columns = <double **>malloc(max(n_arms, 1) * sizeof(double *))
        cdef double *weight
        cdef const double *times = NULL
        cdef double total
        if self.weights is not None:
            times = <const double *>cnp.PyArray_DATA(<cnp.ndarray>self.weights)
        try:
            if models == NULL or expansions == NULL or room == NULL or columns == NULL:
                with gil:
                    raise MemoryError()
            for j in range(n_arms):
                weight = room + 3 * width * k
                if self.model_of(arms[j], weight, &models[k]):
                    if about != NULL:
                        self.move(arms[j], about, &models[k], weight + width, weight + 2 * width, &expansions[k])
                    columns[k] = out[j]
                    k += 1
                    continue
                # Too far out for the arithmetic: no such state is ever taken up.
                total = weight[width - 1] + models[k].nu
                for i in range(n_rows):
                    out[j][i] = -INFINITY if total == total else NAN
            fr_arch_terms(<const double *>cnp.PyArray_DATA(self.squares), rows,
                          self.longest + (0 if rows != NULL else first), n_rows, models,
                          expansions if about != NULL else NULL, k, columns)
            for j in range(k):
                weigh(times, rows, first, n_rows, columns[j])
        finally:
            free(models)
            free(expansions)
            free(room)
            free(columns)
        return 0

    cdef int shift(self, const Py_ssize_t *arms, Py_ssize_t n_arms, double *out) except -1 nogil:
        cdef Py_ssize_t j
        for j in range(n_arms):
            out[j] = (<const double *>cnp.PyArray_DATA(self.offset))[arms[j]]
        return 0


@_checks.rebuilds(1, ArchSource)
def _arch_source(squares, orders, parameters, natural, offset, weights=None):
    """Rebuild a pickled `ArchSource`."""
    source = ArchSource(squares, orders, parameters, natural=natural, weights=weights)
    source.offset[:] = offset
    return source
