# cython: cdivision=True
"""Second-order expansions of a log-likelihood, one for each group of rows, as additive statistics.

Group g is expanded at a point of its own, hat_g:

    Q_g(theta) = L_g(hat_g) + g' (theta - hat_g) - (theta - hat_g)' H_g (theta - hat_g) / 2.

All Q_g are written about one origin. Then Q_g is a product of two vectors, coefficients of the group and powers of
theta less the origin: the values of all groups at all states are one matrix product, and the log-likelihood of a union
of groups has the sum of their coefficients. No row is read for either.
"""

from libc.math cimport INFINITY, isfinite
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset
cimport numpy as cnp

from scipy.linalg.cython_blas cimport dgemm

from fastrace._base._guard cimport guard_await, guard_build, guard_built, guard_check_built
from fastrace._draws._alias cimport alias_build, alias_t
from fastrace._math._bounds cimport cubic_change
from fastrace._models._powers cimport powers_of_step

import numpy as np

from fastrace._base import _checks
from fastrace._models._expanded import packed

cnp.import_array()


cdef class GroupExpansions:
    """Expansions of groups of rows, with bounds on what they leave of each row.

    Parameters
    ----------
    starts : array_like of int, shape (n_groups + 1,)
        Rows ``starts[g]`` to ``starts[g + 1] - 1`` are those of group g; none is empty.
    hats : array_like of shape (n_groups, dim)
        Where each group is expanded.
    origin, coefficients : array_like of shape (dim,) and (n_groups, n_terms)
        The expansions, as `about_one_origin` writes them.
    metrics : array_like of shape (n_groups, dim, dim)
        Positive definite: |v| = sqrt(v' M v) measures steps of the parameters in group g.
    weights : array_like of shape (n_rows,)
        Bounds on the third derivative of each row's term along directions of length 1 in that metric.
    radii : array_like of shape (n_groups,)
        Distance from `hats`, in that metric, up to which the weights hold; 0 if a group has no bound.
    roundings : array_like of shape (n_groups,)
        How far rounding may move the change of a row's residual.
    """

    def __cinit__(self):
        guard_await(&self.guard, 0)

    def __init__(self, starts, hats, origin, coefficients, metrics, weights, radii, roundings):
        first = np.array(starts, dtype=np.int64)
        hat = np.array(hats, dtype=np.float64, order="C")
        if first.ndim != 1 or len(first) < 2 or first[0] != 0 or (np.diff(first) <= 0).any():
            raise ValueError("starts must begin with 0 and grow: groups have rows, and there must be one")
        n = len(first) - 1
        d = hat.shape[1] if hat.ndim == 2 else 0
        metric = _table(metrics, "metrics", (n, d, d))
        weight = _table(weights, "weights", (int(first[n]),))
        radius, rounding = _table(radii, "radii", (n,)), _table(roundings, "roundings", (n,))
        center, own = _table(origin, "origin", (d,)), _table(coefficients, "coefficients", (n, terms_of(d)))
        if hat.shape != (n, d) or d == 0 or not np.isfinite(hat).all() or (np.asarray(weight) < 0.0).any():
            raise ValueError(f"hats has shape {hat.shape}; one finite point for each of {n} groups, and weights from 0 "
                             f"up, are needed")
        guard_build(&self.guard, 0, self)
        self.n_groups, self.dim, self.n_rows = n, d, first[n]
        self.n_terms = terms_of(d)
        self.starts, self.hats, self.metrics, self.weights = first, hat, metric, weight
        self.radii, self.roundings = radius, rounding
        self.origin, self.coefficients = center, own
        self.totals = np.where(np.asarray(radius) > 0.0, np.add.reduceat(weight, first[:n]), np.inf)
        for array in (self.starts, self.hats, self.metrics, self.weights, self.radii, self.roundings, self.origin,
                      self.coefficients, self.totals):
            array.flags.writeable = False
        self._build_tables()
        guard_built(&self.guard, 0)

    def _build_tables(self):
        cdef const int64_t *first = <const int64_t *>cnp.PyArray_DATA(self.starts)
        cdef const double *weight = <const double *>cnp.PyArray_DATA(self.weights)
        cdef const double *total = <const double *>cnp.PyArray_DATA(self.totals)
        cdef uint32_t *stack
        cdef Py_ssize_t g
        largest = int(np.diff(self.starts).max())
        if largest > 0xFFFFFFFF:
            raise ValueError(f"a group has {largest} rows; up to 2^32 - 1 are possible")
        free(self.table)
        self.table = <alias_t *>malloc(<size_t>self.n_rows * sizeof(alias_t))
        stack = <uint32_t *>malloc(<size_t>largest * sizeof(uint32_t))
        if self.table == NULL or stack == NULL:
            free(stack)
            raise MemoryError()
        for g in range(self.n_groups):
            if isfinite(total[g]) and total[g] > 0.0:
                alias_build(self.table + first[g], weight + first[g], total[g], <uint32_t>(first[g + 1] - first[g]),
                            stack)
        free(stack)

    def __dealloc__(self):
        free(self.table)

    def __reduce__(self):
        guard_check_built(&self.guard, self)
        return _group_expansions.saved(*(np.asarray(array) for array in (
            self.starts, self.hats, self.origin, self.coefficients, self.metrics, self.weights, self.radii,
            self.roundings)))

    def derivatives(self, coefficients):
        """Gradients and curvatures at the origin, of coefficients of shape (k, n_terms)."""
        cdef const double[:, ::1] given = np.array(coefficients, dtype=np.float64, order="C", ndmin=2)
        cdef Py_ssize_t n = given.shape[0], i
        cdef double[:, ::1] slope = np.empty((n, self.dim))
        cdef double[:, :, ::1] curvature = np.empty((n, self.dim, self.dim))
        guard_check_built(&self.guard, self)
        if given.shape[1] != self.n_terms:
            raise ValueError(f"coefficients has {given.shape[1]} columns; {self.n_terms} are needed")
        for i in range(n):
            self.unpack(&given[i, 0], &slope[i, 0], &curvature[i, 0, 0])
        return np.asarray(slope), np.asarray(curvature)

    def values_at(self, theta):
        """Q_g(theta_k) of all groups and states: shape (n_groups, n_states), for `theta` of shape (n_states, dim)."""
        cdef const double[:, ::1] point = np.ascontiguousarray(theta, dtype=np.float64)
        cdef Py_ssize_t count = point.shape[0]
        cdef double[:, ::1] powers
        cdef cnp.ndarray out
        guard_check_built(&self.guard, self)
        if point.shape[1] != self.dim or count == 0:
            raise ValueError(f"theta has shape {np.shape(theta)}; (n_states, {self.dim}) is needed")
        powers = np.empty((count, self.n_terms))
        out = np.empty((self.n_groups, count))
        self.features(&point[0, 0], count, &powers[0, 0])
        self.values_of(&powers[0, 0], count, <double *>cnp.PyArray_DATA(out))
        return out

    def values_at_hats(self):
        """Q_g(hat_g) of each group: shape (n_groups,)."""
        cdef const double *hat = <const double *>cnp.PyArray_DATA(self.hats)
        cdef double[::1] powers = np.empty(self.n_terms)
        cdef double[::1] out = np.empty(self.n_groups)
        cdef Py_ssize_t g
        guard_check_built(&self.guard, self)
        for g in range(self.n_groups):
            self.features(hat + g * self.dim, 1, &powers[0])
            out[g] = self.value(g, &powers[0])
        return np.asarray(out)

    cdef void features(self, const double *theta, Py_ssize_t count, double *out) noexcept nogil:
        """Powers of each of `count` points less the origin, in the order of the coefficients: (count, n_terms)."""
        cdef const double *origin = <const double *>cnp.PyArray_DATA(self.origin)
        for _ in range(count):
            powers_of_step(theta, origin, self.dim, out)
            out += self.n_terms
            theta += self.dim

    cdef void values_of(self, const double *features, Py_ssize_t count, double *out) noexcept nogil:
        """out[g, i]: the expansion of group g at the point with the i-th features."""
        cdef int states = <int>count, groups = <int>self.n_groups, m = <int>self.n_terms
        cdef double unit = 1.0, zero = 0.0
        dgemm(b"T", b"N", &states, &groups, &m, &unit, <double *>features, &m,
              <double *>cnp.PyArray_DATA(self.coefficients), &m, &zero, out, &states)

    cdef double value(self, Py_ssize_t group, const double *features) noexcept nogil:
        """The expansion of one group at the point with these features."""
        cdef const double *own = <const double *>cnp.PyArray_DATA(self.coefficients) + group * self.n_terms
        cdef double sum = 0.0
        cdef Py_ssize_t k
        for k in range(self.n_terms):
            sum += own[k] * features[k]
        return sum

    cdef void add_up(self, const Py_ssize_t *labels, Py_ssize_t n_classes, double *out) noexcept nogil:
        """out[c]: the sum of the coefficients of the groups with label c, shape (n_classes, n_terms); -1 is none."""
        cdef const double *own = <const double *>cnp.PyArray_DATA(self.coefficients)
        cdef double *to
        cdef Py_ssize_t g, k
        memset(out, 0, n_classes * self.n_terms * sizeof(double))
        for g in range(self.n_groups):
            to = out + labels[g] * self.n_terms
            for k in range(self.n_terms if labels[g] >= 0 else 0):
                to[k] += own[k]
            own += self.n_terms

    cdef void unpack(self, const double *sums, double *slope, double *curvature) noexcept nogil:
        """Gradient and curvature, (dim, dim), at the origin."""
        cdef Py_ssize_t d = self.dim, a, b, k = 1 + d
        for a in range(d):
            slope[a] = sums[1 + a]
            for b in range(a):
                curvature[a * d + b] = curvature[b * d + a] = -sums[k]
                k += 1
            curvature[a * d + a] = -2.0 * sums[k]
            k += 1

    cdef double size_of_move(self, Py_ssize_t group, const double *theta, const double *new,
                             double *work) noexcept nogil:
        """A row of weight 1 changes its residual by at most this much; infinite where no bound holds.

        `work` has room for 2 dim numbers.
        """
        cdef Py_ssize_t d = self.dim, a, b
        cdef const double *hat = <const double *>cnp.PyArray_DATA(self.hats) + group * d
        cdef const double *metric = <const double *>cnp.PyArray_DATA(self.metrics) + group * d * d
        cdef double radius = (<const double *>cnp.PyArray_DATA(self.radii))[group]
        cdef double before = 0.0, cross = 0.0, step = 0.0, after, along, out
        cdef double *from_hat = work
        cdef double *move = work + d
        for a in range(d):
            from_hat[a] = theta[a] - hat[a]
            move[a] = new[a] - theta[a]
        for a in range(d):
            out = along = 0.0
            for b in range(d):
                out += metric[b] * from_hat[b]
                along += metric[b] * move[b]
            before += from_hat[a] * out
            cross += from_hat[a] * along
            step += move[a] * along
            metric += d
        after = before + 2.0 * cross + step
        before, after, step = max(before, 0.0), max(after, 0.0), max(step, 0.0)
        if not (before <= radius * radius and after <= radius * radius):
            return INFINITY
        return cubic_change(before, before + cross, after, step)


def terms_of(dim):
    """Numbers of an expansion: its value, gradient, and the lower triangle of its Hessian."""
    return 1 + dim + dim * (dim + 1) // 2


def about_one_origin(hats, values, gradients, curvatures):
    """Expansions at points of their own, about the mean of these points: the origin and the packed coefficients.

    Parameters
    ----------
    hats, values, gradients, curvatures : ndarray of shape (n, dim), (n,), (n, dim) and (n, dim, dim)
        The points, and there the functions, their gradients, and their Hessians times -1.
    """
    origin = hats.mean(axis=0)
    away = origin - hats
    pull = np.einsum("gab,gb->ga", curvatures, away)
    return origin, packed(values + np.einsum("ga,ga->g", gradients - 0.5 * pull, away), gradients - pull, -curvatures)


def _table(values, name, shape):
    """A copy as finite numbers in C order, of this shape; radii may be infinite."""
    array = np.array(values, dtype=np.float64, order="C")
    if array.shape != shape or not (np.isfinite(array) | ((array == np.inf) & (name == "radii"))).all():
        raise ValueError(f"{name} has shape {array.shape}; finite numbers of shape {shape} are needed")
    return array


@_checks.rebuilds(1, GroupExpansions)
def _group_expansions(starts, hats, origin, coefficients, metrics, weights, radii, roundings):
    """Rebuild pickled `GroupExpansions`."""
    return GroupExpansions(starts, hats, origin, coefficients, metrics, weights, radii, roundings)
