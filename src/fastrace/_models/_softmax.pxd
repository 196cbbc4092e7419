# cython: cdivision=True
"""Multinomial logistic regression as a compiled source."""

from libc.stdint cimport int64_t
cimport numpy as cnp

from fastrace._models._expanded cimport TermSource
from fastrace.likelihoods cimport GLMSource


cdef class SoftmaxSource(TermSource):
    cdef readonly GLMSource rows
    cdef readonly Py_ssize_t n_classes
    cdef readonly object offset             # ndarray of float64, shape (n_rows, n_classes - 1), or None
    cdef cnp.ndarray labels                 # of int32: the classes of all rows
    cdef readonly object places             # of a class's coefficients and effects among all, (n_free, width), or None
    cdef Py_ssize_t n_free, width

    cdef const double *by_class(self, const double *theta, double *room) noexcept nogil
    # Terms of some rows at theta into `level`, their classes into `label`, and the probabilities of all classes but the
    # first into `share`, row by row: with w the weight of a row, the derivatives of its term in the predictor of class
    # k are w ([it is of class k] - share_k) and, with that of class j, -w share_k ([k = j] - share_j).
    cdef int derive(self, const double *theta, const int64_t *rows, Py_ssize_t n_rows, double *level, double *share,
                    double *label) except -1 nogil
