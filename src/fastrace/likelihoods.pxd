"""Log-likelihoods as compiled sources."""

from libc.stdint cimport int32_t, int64_t
cimport numpy as cnp

from fastrace._models._expanded cimport TermSource
from fastrace.sources cimport _BlockSource, Source

cdef extern from "_effects.h" nogil:
    ctypedef struct fr_factor:
        const int32_t *code
        Py_ssize_t start, width
        int intercept, single
        const char *z
        Py_ssize_t row_stride
        const Py_ssize_t *column
    ctypedef struct fr_sparse:
        const int64_t *begin
        const int32_t *column
        const char *value
        int single
    ctypedef struct fr_arrow:
        int main
        Py_ssize_t n_dense, n_main
        double *gradient
        double *dense
        double *border
        double *blocks
    Py_ssize_t fr_arrow_entries(const fr_sparse *x, const fr_factor *factors, int n_factors, int main, int64_t first,
                                Py_ssize_t n_rows)
    void fr_arrow_add(const fr_arrow *to, const fr_sparse *x, const double *dense_x, Py_ssize_t p,
                      const fr_factor *factors, int n_factors, int64_t first, Py_ssize_t n_rows, const double *slope,
                      const double *bend, const double *mixed, Py_ssize_t *place, double *value)

cdef extern from "_glm.h" nogil:
    enum:
        FR_BINARY, FR_COUNT, FR_REAL, FR_SHARE, FR_POSITIVE, FR_OF_OUTCOME, FR_OF_RESIDUAL
        FR_GAUSSIAN, FR_N_FAMILIES
        FR_GLM_BLOCK
    ctypedef struct fr_family:
        const char *name
        int outcomes, form
        double (*constant)(double scale, double df) noexcept nogil
        double (*steepest)(double scale, double df) noexcept nogil
        double (*third)(double scale, double df, double y, double low, double high) noexcept nogil
    const fr_family *fr_families
    void fr_mixed_third(int family, double df, double y, double low, double high, double first, double last,
                        double *out)
    ctypedef struct fr_glm:
        const char *x
        Py_ssize_t row_stride, column_stride, n_columns
        int single, family
        const double *y
        const signed char *sign
        double scale, df
        void (*gemm)(char *, char *, int *, int *, int *, double *, double *, int *, double *, int *, double *,
                     double *, int *) noexcept nogil
        Py_ssize_t n_parameters
        int learned
        const double *offset
        const double *weight
        const fr_factor *factors
        int n_factors
        const fr_sparse *sparse
        const double *mirror
    void fr_glm_ready(fr_glm *m)
    int fr_glm_fill(const fr_glm *m, const double *theta, const double *theta_hat, const int64_t *rows, int64_t first,
                    Py_ssize_t n_rows, const Py_ssize_t *arms, Py_ssize_t n_arms, double **out)
    int fr_glm_predict(const fr_glm *m, const int64_t *rows, int64_t first, Py_ssize_t n_rows,
                       const double *const *theta, Py_ssize_t n_arms, double *const *eta)
    void fr_glm_expand(const fr_glm *m, const double *y, Py_ssize_t n, double *l0, double *l1, double *l2)
    int fr_glm_derivatives(const fr_glm *m, const double *theta_hat, int64_t first, Py_ssize_t n_rows, double *l0,
                           double *l1, double *l2)
    void fr_glm_extra(const fr_glm *m, const double *y, Py_ssize_t n, double *out)
    int fr_glm_mixed(const fr_glm *m, const double *theta_hat, int64_t first, Py_ssize_t n_rows, double *eta,
                     double *la, double *lea, double *laa)


cdef class GLMSource(TermSource):
    cdef readonly object X                      # ndarray, or csr_array of SciPy
    cdef readonly cnp.ndarray y
    cdef readonly object offset, weights        # ndarray of float64, shape (n_rows,), or None
    cdef readonly object trials                 # of each row, or None, and
    cdef readonly object term_weights           # what terms are multiplied by: weights times trials, or None
    cdef readonly bint learns_scale             # whether the last parameter is the logarithm of the scale
    cdef readonly object groups                 # the grouping factors as given, and
    cdef readonly object factors                # as they are laid out in the parameters
    cdef readonly object family
    cdef readonly double scale, df
    # Sum over all rows of what the rewards leave out of the log-likelihood.
    cdef readonly double constant
    cdef cnp.ndarray signs
    # Gaussian: sums of squares and products about `centre`, which give every later total without a row; or None.
    cdef cnp.ndarray centre, gram, cross
    cdef double residual, weight
    cdef fr_glm model
    cdef fr_factor *c_factors
    cdef fr_sparse c_sparse
    cdef object kept                            # arrays that `model` points into
    cdef cnp.ndarray middle                     # what `model.mirror` points to, or None

    cdef int hold_columns(self) except -1
    cdef int hold_factors(self) except -1
    cdef int hold_outcomes(self) except -1
    cdef int summarise(self) except -1
    cdef int mirror_at(self, middle) except -1


cdef class PairSource(_BlockSource):
    cdef readonly Source source
    cdef Py_ssize_t pair[2]
