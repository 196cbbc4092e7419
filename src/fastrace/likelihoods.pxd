"""Log-likelihoods as compiled sources."""

from libc.stdint cimport int64_t
cimport numpy as cnp

from fastrace._models._expanded cimport TermSource
from fastrace.sources cimport _BlockSource, Source

cdef extern from "_glm.h" nogil:
    enum:
        FR_BINARY, FR_COUNT, FR_REAL, FR_OF_OUTCOME, FR_OF_RESIDUAL
        FR_GAUSSIAN, FR_N_FAMILIES
        FR_GLM_BLOCK
    ctypedef struct fr_family:
        const char *name
        int outcomes, form
        double (*constant)(double scale, double df) noexcept nogil
        double (*steepest)(double scale, double df) noexcept nogil
        double (*third)(double scale, double df, double low, double high) noexcept nogil
    const fr_family *fr_families
    ctypedef struct fr_glm:
        const char *x
        Py_ssize_t row_stride, column_stride, n_columns
        int single, family
        const double *y
        const signed char *sign
        double scale, df
        void (*gemm)(char *, char *, int *, int *, int *, double *, double *, int *, double *, int *, double *,
                     double *, int *) noexcept nogil
    void fr_glm_ready(fr_glm *m)
    int fr_glm_fill(const fr_glm *m, const double *theta, const double *theta_hat, const int64_t *rows, int64_t first,
                    Py_ssize_t n_rows, const Py_ssize_t *arms, Py_ssize_t n_arms, double **out)
    int fr_glm_predict(const fr_glm *m, const int64_t *rows, int64_t first, Py_ssize_t n_rows,
                       const double *const *theta, Py_ssize_t n_arms, double *const *eta)
    void fr_glm_expand(const fr_glm *m, const double *y, Py_ssize_t n, double *l0, double *l1, double *l2)
    int fr_glm_derivatives(const fr_glm *m, const double *theta_hat, int64_t first, Py_ssize_t n_rows, double *l0,
                           double *l1, double *l2)


cdef class GLMSource(TermSource):
    cdef readonly cnp.ndarray X, y
    cdef readonly object family
    cdef readonly double scale, df
    # Sum over all rows of what the rewards leave out of the log-likelihood.
    cdef readonly double constant
    cdef cnp.ndarray signs
    # Gaussian: sums of squares and products about `centre`, which give every later total without a row; or None.
    cdef cnp.ndarray centre, gram, cross
    cdef double residual
    cdef fr_glm model

    cdef int summarise(self) except -1


cdef class PairSource(_BlockSource):
    cdef readonly Source source
    cdef Py_ssize_t pair[2]
