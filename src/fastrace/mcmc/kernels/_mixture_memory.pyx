# cython: cdivision=True
"""What a chain over a mixture of regressions keeps: its state, the priors, and room for a sweep.

A state is taken up by `load` and recorded by `write`: labels of the groups; parameters of the classes, with the
logarithm of a scale that is learned last; weights; mean and spread of the classes.
"""

from libc.math cimport log
from libc.stdint cimport int64_t
from libc.string cimport memcpy
cimport numpy as cnp

from fastrace._base._guard cimport guard_await, guard_build, guard_built, guard_check_built, guard_enter, guard_leave
from fastrace._models._expanded cimport TermSource
from fastrace._models._group_expansions cimport GroupExpansions
from fastrace._models._priors cimport JointPrior
from fastrace.mcmc.kernels._class_at cimport ClassAt
from fastrace.mcmc.kernels._classes cimport order_classes

import numpy as np

cnp.import_array()


cdef class MixtureMemory:
    """One chain's memory.

    Parameters
    ----------
    source : TermSource
        Two arms, or one for each class if these are more and `small_rows` is given; the rows of each group follow each
        other, as in `groups`.
    theta : ndarray of float64, shape (n_arms, dim)
        Where the source reads its parameters.
    groups : GroupExpansions
    n_classes : int
    prior_mean, prior_precision : array_like of shape (dim,)
        Of the parameters of each class, or, if hierarchical, of their common mean; of a scale always of each class.
    moves : tuple of bool
        Whether parameters, weights, and the mean and spread of the classes are drawn.
    concentration : float
        Of the symmetric Dirichlet prior of the weights.
    sd_scale : float
        Of the half-Cauchy priors of the spreads.
    most : float
        Expected share of the rows of a group that are read from which on all of them are.
    order_by : int
        Coefficient by which recorded classes ascend, or -1.
    learns_scale : bool, default False
        Whether the last parameter is the logarithm of a scale.
    scale_prior : JointPrior, optional
        Prior of that logarithm, an auxiliary parameter alone, if it is not the normal one above.
    small_rows : int, default 0
        Groups of up to so many rows are small: they are read, and their expansions are not used.
    shared : bool, default False
        Whether all classes have one scale.
    """

    def __cinit__(self):
        guard_await(&self.guard, 0)

    def __init__(self, TermSource source not None, theta, GroupExpansions groups not None, n_classes, prior_mean,
                 prior_precision, *, moves, concentration, sd_scale, most, order_by, learns_scale=False,
                 JointPrior scale_prior=None, small_rows=0, shared=False):
        guard_check_built(&source.guard, source)
        guard_check_built(&groups.guard, groups)
        cdef Py_ssize_t d = groups.dim, k = n_classes, g = groups.n_groups
        arms = max(2, k) if small_rows else 2
        if source.n_arms != arms or source.n_rows != groups.n_rows or theta.shape != (arms, d) \
                or theta.dtype != np.float64 or not theta.flags.c_contiguous:
            raise ValueError(f"the source has {source.n_arms} arms of {source.n_rows} rows and theta shape "
                             f"{theta.shape}; {arms} arms of {groups.n_rows} rows and ({arms}, {d}) are needed")
        mean = np.array(np.broadcast_to(prior_mean, (d,)), dtype=np.float64)
        precision = np.array(np.broadcast_to(prior_precision, (d,)), dtype=np.float64)
        guard_build(&self.guard, 0, self)
        self.source, self.groups = source, groups
        self.n_groups, self.n_classes, self.dim = g, k, d
        self.moves_parameters, self.moves_weights, self.hierarchical = moves
        self.concentration, self.sd_scale, self.most, self.order_by = concentration, sd_scale, most, order_by
        self.learns_scale, self.scale_prior, self.small_rows = learns_scale, scale_prior, small_rows
        self.n_coefficients, self.shared = d - self.learns_scale, shared
        self.n_moving = self.n_coefficients if self.shared else d
        self.size = g + (k * self.n_moving + self.shared if self.moves_parameters else 0) \
            + (k if self.moves_weights else 0) \
            + (2 * self.n_coefficients if self.hierarchical else 0)
        about = np.stack([source.expanded_at(hat) for hat in np.asarray(groups.hats)])
        self._kept = (theta, mean, precision, about)
        self.now = <double *>cnp.PyArray_DATA(theta)
        self.new = self.now + d
        self.about = <const double *>cnp.PyArray_DATA(about)
        self.n_about = about.shape[1]
        self.prior_mean = <const double *>cnp.PyArray_DATA(mean)
        self.prior_precision = <const double *>cnp.PyArray_DATA(precision)
        self.label, self.member, self.begin = self._places(g), self._places(g), self._places(k + 1)
        self.order, self.rank, self.arms = self._places(k), self._places(k), self._places(k)
        self.known = self._places(g)
        for i in range(k):
            self.arms[i] = i
        self.has_small = np.diff(groups.starts).min() <= small_rows
        if self.has_small or self.shared:
            self.here, self.there = (ClassAt(source, groups, small_rows, self.n_moving) for _ in range(2))
        self.kept_label, self.n_numbers = self._places(g), k * d + 2 * d + 4 * k + 1
        self.numbers, self.kept_numbers = self._numbers(self.n_numbers), self._numbers(self.n_numbers)
        self.theta = self.numbers
        self.mean = self.theta + k * d
        self.spread, self.scale = self.mean + d, self.mean + 2 * d
        self.weight, self.log_weight, self.noise = self.scale + k, self.scale + 2 * k, self.scale + 3 * k
        self.precision = self._numbers(d)
        self.powers, self.sums = self._numbers((k + 1) * groups.n_terms), self._numbers(k * groups.n_terms)
        self.values, self.score, self.share = self._numbers(g * k), self._numbers(k), self._numbers(k)
        self.curvature, self.center, self.room = self._numbers(d * d), self._numbers(d), self._numbers(2 * d)
        guard_built(&self.guard, 0)

    cdef double *_numbers(self, Py_ssize_t count) except NULL:
        array = np.zeros(max(count, 1))
        self._kept += (array,)
        return <double *>cnp.PyArray_DATA(array)

    cdef Py_ssize_t *_places(self, Py_ssize_t count) except NULL:
        array = np.zeros(max(count, 1), dtype=np.intp)
        self._kept += (array,)
        return <Py_ssize_t *>cnp.PyArray_DATA(array)

    def load(self, labels, theta, scales, weights, mean, spread, noise):
        """Take up a state; arrays of the shapes of the model's parts, checked by the caller. Scales may be None."""
        cdef const cnp.npy_intp[::1] label = np.ascontiguousarray(labels, dtype=np.intp)
        cdef const double[:, ::1] point = np.ascontiguousarray(theta, dtype=np.float64)
        cdef const double[::1] share = np.ascontiguousarray(weights, dtype=np.float64)
        cdef const double[::1] middle = np.ascontiguousarray(mean, dtype=np.float64)
        cdef const double[::1] wide = np.ascontiguousarray(spread, dtype=np.float64)
        cdef const double[::1] size = np.ascontiguousarray(noise, dtype=np.float64)
        cdef Py_ssize_t d = self.dim, p = self.n_coefficients, k = self.n_classes, i
        cdef const double[::1] scale = np.ascontiguousarray(np.ones(k) if scales is None else scales, dtype=np.float64)
        if label.shape[0] != self.n_groups or (point.shape[0], point.shape[1]) != (k, p) or share.shape[0] != k \
                or middle.shape[0] != p or wide.shape[0] != p or size.shape[0] != k + self.shared \
                or scale.shape[0] != k:
            raise ValueError("a state is of one kernel alone")
        if min(labels) < 0 or max(labels) >= k:
            raise ValueError(f"labels go from {min(labels)} to {max(labels)}; 0 to {k - 1} are needed")
        guard_enter(&self.guard, self)
        for i in range(self.n_groups):
            self.label[i] = label[i]
        for i in range(k):
            memcpy(self.theta + i * d, &point[i, 0], p * sizeof(double))
            self.weight[i] = share[i]
            self.log_weight[i] = log(share[i])
            if self.learns_scale:
                self.scale[i] = scale[i]
                self.theta[i * d + p] = log(scale[i])
        for i in range(k + self.shared):
            self.noise[i] = size[i]
        for i in range(p):
            self.mean[i], self.spread[i] = middle[i], wide[i]
        guard_leave(&self.guard)

    @property
    def noise_shares(self):
        """The share of noise in the proposals of each class, in (0, 1], and then of a scale that all share."""
        guard_check_built(&self.guard, self)
        return np.array([self.noise[i] for i in range(self.n_classes + self.shared)])

    @property
    def decisions(self):
        """Of the last run: decisions on labels and how many were accepted, and the same of parameters."""
        guard_check_built(&self.guard, self)
        return np.array([self.tally[i] for i in range(4)], dtype=np.int64)

    def position(self):
        """The state as it is recorded, with the classes in the order that they are held in."""
        cdef double[::1] out = np.empty(self.size)
        cdef Py_ssize_t order_by = self.order_by
        guard_enter(&self.guard, self)
        self.order_by = -1
        self.write(&out[0])
        self.order_by = order_by
        guard_leave(&self.guard)
        return np.asarray(out)

    cdef void write(self, double *to) noexcept nogil:
        cdef Py_ssize_t d = self.dim, p = self.n_coefficients, i, j, k
        order_classes(self.theta, self.n_classes, d, self.order_by, self.order, self.rank)
        for i in range(self.n_groups):
            to[i] = <double>self.rank[self.label[i]]
        to += self.n_groups
        if self.moves_parameters:
            for k in range(self.n_classes):
                memcpy(to + self.rank[k] * p, self.theta + k * d, p * sizeof(double))
            to += self.n_classes * p
            if self.shared:
                to[0] = self.scale[0]
            for k in range(self.n_classes if self.learns_scale and not self.shared else 0):
                to[self.rank[k]] = self.scale[k]
            to += 1 if self.shared else self.n_classes * (d - p)
        if self.moves_weights:
            for k in range(self.n_classes):
                to[self.rank[k]] = self.weight[k]
            to += self.n_classes
        if self.hierarchical:
            for j in range(p):
                to[j] = self.mean[j]
                to[p + j] = self.spread[j]

    cdef void take_prior(self) noexcept nogil:
        cdef Py_ssize_t j
        for j in range(self.dim):
            if self.hierarchical and j < self.n_coefficients:
                self.precision[j] = 1.0 / (self.spread[j] * self.spread[j])
            else:
                self.mean[j], self.precision[j] = self.prior_mean[j], self.prior_precision[j]

    cdef void keep(self) noexcept nogil:
        memcpy(self.kept_numbers, self.numbers, self.n_numbers * sizeof(double))
        memcpy(self.kept_label, self.label, self.n_groups * sizeof(Py_ssize_t))
        memcpy(self.kept_tally, self.tally, sizeof(self.tally))

    cdef void put_back(self) noexcept nogil:
        memcpy(self.numbers, self.kept_numbers, self.n_numbers * sizeof(double))
        memcpy(self.label, self.kept_label, self.n_groups * sizeof(Py_ssize_t))
        memcpy(self.tally, self.kept_tally, sizeof(self.tally))

    cdef int64_t rows_of(self, Py_ssize_t g) noexcept nogil:
        cdef const int64_t *start = <const int64_t *>cnp.PyArray_DATA(self.groups.starts)
        return start[g + 1] - start[g]
