"""Log-likelihoods as compiled sources."""

from libc.stdint cimport int64_t
cimport numpy as cnp

from fastrace.sources cimport Source

cdef extern from "_glm.h" nogil:
    enum:
        FR_LOGISTIC, FR_GAUSSIAN, FR_POISSON, FR_STUDENT_T
        FR_REWARD, FR_TAYLOR, FR_RESIDUAL
        FR_GLM_BLOCK
    ctypedef struct fr_glm:
        const char *x
        Py_ssize_t row_stride, column_stride, n_columns
        int single, family
        const double *y
        const signed char *sign
        double inverse_scale, df, constant
    void fr_glm_fill(const fr_glm *m, int what, const double *theta, const double *theta_hat, const int64_t *rows,
                     int64_t first, Py_ssize_t n_rows, const Py_ssize_t *arms, Py_ssize_t n_arms, double **out,
                     double *scratch)
    void fr_glm_sum(const fr_glm *m, const double *theta, int64_t first, Py_ssize_t n_rows, const Py_ssize_t *arms,
                    Py_ssize_t n_arms, double *out, double *block, double *scratch)
    void fr_glm_predict(const fr_glm *m, const int64_t *rows, int64_t first, Py_ssize_t n_rows,
                        const double *const *theta, Py_ssize_t n_arms, double *const *eta, double *scratch)
    void fr_glm_gather(const fr_glm *m, const int64_t *rows, int64_t first, Py_ssize_t n_rows, double *block)
    void fr_glm_log_likelihood(const fr_glm *m, const int64_t *rows, int64_t first, Py_ssize_t n_rows,
                               Py_ssize_t n_arms, double **eta)
    void fr_glm_derivatives(const fr_glm *m, const double *theta_hat, int64_t first, Py_ssize_t n_rows, double *l0,
                            double *l1, double *l2, double *scratch)


cdef class GLMSource(Source):
    cdef readonly cnp.ndarray X, y
    cdef readonly object family
    cdef readonly double scale, df
    # Sum over all rows of what the rewards leave out of the log-likelihood.
    cdef readonly double constant
    cdef cnp.ndarray parameters, signs
    # Gaussian: sums of squares and products about `centre`, which give every later total without a row; or None.
    cdef cnp.ndarray centre, gram, cross
    cdef double residual
    cdef fr_glm model

    cdef int summarise(self) except -1

    # What fill and fill_range share: FR_REWARD, or FR_TAYLOR and FR_RESIDUAL about theta_hat.
    cdef int evaluate(self, int what, const double *theta_hat, const int64_t *rows, int64_t first, Py_ssize_t n_rows,
                      const Py_ssize_t *arms, Py_ssize_t n_arms, double **out) except -1 nogil


cdef class PairSource(Source):
    cdef readonly Source source
    cdef Py_ssize_t pair[2]
    cdef int difference(self, const int64_t *rows, int64_t first, Py_ssize_t n_rows, double *out) except -1 nogil
