"""Terms of log-likelihoods, their second-order expansions in the parameters, and the residuals."""

from libc.stdint cimport int64_t
cimport numpy as cnp

from fastrace.sources cimport _BlockSource, Source


# Terms of rows[i], or of first + i where `rows` is NULL, times the weights of these rows; as they are where `weight` is
# NULL.
cdef inline void weigh(const double *weight, const int64_t *rows, int64_t first, Py_ssize_t n_rows,
                       double *terms) noexcept nogil:
    cdef Py_ssize_t i
    if weight == NULL:
        return
    for i in range(n_rows):
        terms[i] *= weight[rows[i] if rows != NULL else first + i]


# Terms of a log-likelihood: one vector of parameters for each arm.
cdef class TermSource(_BlockSource):
    cdef cnp.ndarray parameters                 # (n_arms, dim), C order; read whenever rewards are asked for
    cdef double expanded_cost                   # `reward_cost` of a residual, and
    cdef double expanded_advantage              # `scan_advantage` of reading residuals; set by subclasses
    cdef Py_ssize_t sum_block                   # rows per partial sum of a full pass
    cdef readonly bint knows_moves              # whether there are `cubes`; set by subclasses

    cdef cnp.ndarray table_of_arms(self)        # `parameters`, of a source that is set up
    # What `terms` needs of a point of expansion, computed once; by default the point itself.
    cdef cnp.ndarray expanded_at(self, theta_hat)
    # Terms of rows[i], or of first + i where `rows` is NULL; less their expansions where `about` is from `expanded_at`.
    cdef int terms(self, const double *about, const int64_t *rows, int64_t first, Py_ssize_t n_rows,
                   const Py_ssize_t *arms, Py_ssize_t n_arms, double **out) except -1 nogil
    # out[i] bounds what a third derivative of 1 lets the residual of rows[i] change from one arm to the other. `steps`
    # holds the parameters of both less the point of expansion.
    cdef int cubes(self, const double *steps, const int64_t *rows, Py_ssize_t n_rows, double *out) except -1 nogil


# Terms less their expansions. Nothing is known of the sums of the expansions here.
cdef class Expanded(_BlockSource):
    cdef readonly TermSource source
    cdef readonly cnp.ndarray theta_hat
    cdef cnp.ndarray about

    # `cubes` of two arms; only where `source.knows_moves`.
    cdef int cubes(self, const int64_t *rows, Py_ssize_t n_rows, const Py_ssize_t *arms, double *out) except -1 nogil


# The expansions themselves, as a surrogate of the terms.
cdef class Expansion(_BlockSource):
    cdef readonly Expanded residual


# Terms of any source, with derivatives kept for each row.
cdef class OwnTerms(TermSource):
    cdef readonly Source source
    cdef readonly cnp.ndarray table

    cdef int take_off(self, const double *hat, const int64_t *rows, int64_t first, Py_ssize_t n_rows,
                      const Py_ssize_t *arms, Py_ssize_t n_arms, double **out) except -1 nogil
