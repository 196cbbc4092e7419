# cython: cdivision=True
"""A class of a mixture at one point: the density of its parameters there, and the normal density that follows it.

The log density is the log prior, the expansions of the large groups and the terms of the small groups' rows. The
normal density has minus its Hessian at the point as precision, damped where that is not positive definite, and is
centred where Newton's step leads to.
"""

from libc.math cimport NAN, fabs, isfinite, log
from libc.stdint cimport int64_t
from libc.string cimport memcpy
cimport numpy as cnp

from scipy.linalg.cython_blas cimport dtrmv
from scipy.linalg.cython_lapack cimport dpotrf, dpotrs

from fastrace._base._guard cimport guard_await, guard_build, guard_built, guard_check_built
from fastrace._base._signals cimport check_signals
from fastrace._models._group_expansions cimport GroupExpansions
from fastrace.likelihoods cimport fr_glm_derivatives, fr_glm_mixed, GLMSource

import numpy as np

cnp.import_array()

cdef enum:
    DAMPINGS = 12
    WORK_PER_CHECK = 1 << 22        # products
    WORK_PER_ROW = 64               # what the derivatives of a row cost beside its products


cdef class ClassAt:
    """Room for one point, and what is found there.

    Parameters
    ----------
    glm : GLMSource
        The rows, with a scale that is learned.
    groups : GroupExpansions
        Of these rows.
    most : int
        Rows of a group up to which they are read; larger groups have their expansions.
    moving : int, optional
        Parameters that the normal density is of, the first of all; the others are held. By default all.
    """

    def __cinit__(self):
        guard_await(&self.guard, 0)

    def __init__(self, GLMSource glm not None, GroupExpansions groups not None, most, moving=None):
        guard_check_built(&glm.guard, glm)
        guard_check_built(&groups.guard, groups)
        cdef Py_ssize_t d = groups.dim, n = min(most, groups.n_rows)
        if not glm.learns_scale or glm.model.sparse != NULL or glm.model.n_factors \
                or glm.model.n_parameters != d or glm.n_rows != groups.n_rows:
            raise ValueError(f"the source has {glm.model.n_parameters} parameters and {glm.n_rows} rows; a table of "
                             f"{groups.n_rows} rows, {d - 1} coefficients and the logarithm of a scale are needed")
        guard_build(&self.guard, 0, self)
        self.glm, self.groups, self.dim, self.most = glm, groups, d, most
        self.moving = d if moving is None else moving
        self._kept = np.zeros(2 * d * d + 3 * d + 7 * n)
        self.root = <double *>cnp.PyArray_DATA(self._kept)
        self.whole, self.center = self.root + d * d, self.root + 2 * d * d
        self.slope, self.work = self.center + d, self.center + 2 * d
        guard_built(&self.guard, 0)

    cdef int look(self, const double *theta, const double *features, const double *sums, const double *mean,
                  const double *precision, double beside, const Py_ssize_t *members, Py_ssize_t count) except -1 nogil:
        cdef Py_ssize_t d = self.dim, a
        cdef int size = <int>self.moving, lead = <int>d, single = 1, info = 0
        cdef double step
        self.add_up(theta, features, sums, members, count)
        self.value += beside
        for a in range(d):
            step = theta[a] - mean[a]
            self.value -= 0.5 * precision[a] * step * step
            self.slope[a] -= precision[a] * step
            self.whole[a * d + a] += precision[a]
        if not isfinite(self.value) or not self.factor():
            self.value = NAN
            return 0
        memcpy(self.center, self.slope, d * sizeof(double))
        dpotrs(b"L", &size, &single, self.root, &lead, self.center, &lead, &info)
        self.half_log_det = 0.0
        for a in range(self.moving):
            self.center[a] += theta[a]
            self.half_log_det += log(self.root[a * d + a])
        return 0

    cdef int add_up(self, const double *theta, const double *features, const double *sums, const Py_ssize_t *members,
                    Py_ssize_t count) except -1 nogil:
        cdef Py_ssize_t d = self.dim, a, b, i
        cdef int64_t n, work = 0
        cdef const double *origin = <const double *>cnp.PyArray_DATA(self.groups.origin)
        cdef const int64_t *start = <const int64_t *>cnp.PyArray_DATA(self.groups.starts)
        self.value = 0.0
        self.groups.unpack(sums, self.slope, self.whole)
        for i in range(self.groups.n_terms):
            self.value += sums[i] * features[i]
        for a in range(d):
            for b in range(d):
                self.slope[a] -= self.whole[a * d + b] * (theta[b] - origin[b])
        for i in range(count):
            n = start[members[i] + 1] - start[members[i]]
            if n <= self.most:
                self.read(theta, start[members[i]], n)
                work += n * (d * d + WORK_PER_ROW)
                if work >= WORK_PER_CHECK:
                    work = 0
                    check_signals()
        return 0

    cdef int read(self, const double *theta, int64_t first, int64_t n) except -1 nogil:
        cdef Py_ssize_t d = self.dim, p = d - 1, a, b, i
        cdef double *level = self.work
        cdef double *slope = level + n
        cdef double *bend = level + 2 * n
        cdef double *of_scale = level + 4 * n
        cdef double *mixed = level + 5 * n
        cdef double *twice = level + 6 * n
        cdef double *x = level + 7 * n
        cdef const char *row
        if fr_glm_derivatives(&self.glm.model, theta, first, n, level, slope, bend) \
                or fr_glm_mixed(&self.glm.model, theta, first, n, level + 3 * n, of_scale, mixed, twice):
            with gil:
                raise MemoryError()
        for i in range(n):
            row = self.glm.model.x + (first + i) * self.glm.model.row_stride
            for a in range(p):
                x[a] = (<const float *>row)[0] if self.glm.model.single else (<const double *>row)[0]
                row += self.glm.model.column_stride
            self.value += level[i]
            for a in range(p):
                self.slope[a] += slope[i] * x[a]
                self.whole[p * d + a] -= mixed[i] * x[a]
                for b in range(a + 1):
                    self.whole[a * d + b] -= bend[i] * x[a] * x[b]
            self.slope[p] += of_scale[i]
            self.whole[p * d + p] -= twice[i]
        for a in range(d):
            for b in range(a):
                self.whole[b * d + a] = self.whole[a * d + b]
        return 0

    cdef bint factor(self) noexcept nogil:
        cdef Py_ssize_t d = self.dim, a
        cdef int size = <int>self.moving, lead = <int>d, info = 0
        cdef double damping = 0.0
        for _ in range(DAMPINGS):
            memcpy(self.root, self.whole, d * d * sizeof(double))
            for a in range(d):
                self.root[a * d + a] += damping * fabs(self.whole[a * d + a])
            dpotrf(b"L", &size, self.root, &lead, &info)
            if info == 0:
                return True
            damping = max(1.0, 4.0 * damping)
        return False

    cdef double squared(self, const double *step) noexcept nogil:
        cdef int size = <int>self.moving, lead = <int>self.dim, single = 1
        cdef double sum = 0.0
        cdef Py_ssize_t a
        memcpy(self.work, step, self.moving * sizeof(double))
        dtrmv(b"L", b"T", b"N", &size, self.root, &lead, self.work, &single)
        for a in range(self.moving):
            sum += self.work[a] * self.work[a]
        return sum
