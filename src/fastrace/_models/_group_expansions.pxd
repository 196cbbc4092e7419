"""Second-order expansions of a log-likelihood, one for each group of rows, as additive statistics."""

from libc.stdint cimport int64_t
cimport numpy as cnp

from fastrace._base._guard cimport guard_t
from fastrace._draws._alias cimport alias_t


cdef class GroupExpansions:
    cdef guard_t guard
    cdef readonly Py_ssize_t n_groups, dim
    cdef readonly Py_ssize_t n_terms        # numbers of a group: value, gradient, lower triangle of the Hessian
    cdef readonly int64_t n_rows
    cdef readonly cnp.ndarray starts        # int64, (n_groups + 1,): rows starts[g] .. starts[g + 1] - 1 are of group g
    cdef readonly cnp.ndarray hats          # (n_groups, dim): where each group is expanded
    cdef readonly cnp.ndarray origin        # (dim,): about which all expansions are written, so that they add up
    cdef readonly cnp.ndarray coefficients  # (n_groups, n_terms), packed
    cdef readonly cnp.ndarray metrics       # (n_groups, dim, dim): lengths in which `weights` are bounds
    cdef readonly cnp.ndarray weights       # (n_rows,): bounds on third derivatives along directions of length 1
    cdef readonly cnp.ndarray totals        # (n_groups,): sums of the weights; infinite where there is no bound
    cdef readonly cnp.ndarray radii         # (n_groups,): how far from `hats` the weights hold
    cdef readonly cnp.ndarray roundings     # (n_groups,): how far rounding may move the change of a row's residual
    cdef alias_t *table                     # (n_rows,): one table of each group's weights

    cdef void features(self, const double *theta, Py_ssize_t count, double *out) noexcept nogil
    cdef void values_of(self, const double *features, Py_ssize_t count, double *out) noexcept nogil
    cdef double value(self, Py_ssize_t group, const double *features) noexcept nogil
    cdef void add_up(self, const Py_ssize_t *labels, Py_ssize_t n_classes, double *out) noexcept nogil
    cdef void unpack(self, const double *sums, double *slope, double *curvature) noexcept nogil
    cdef double size_of_move(self, Py_ssize_t group, const double *theta, const double *new,
                             double *work) noexcept nogil
