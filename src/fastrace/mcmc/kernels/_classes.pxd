# cython: cdivision=True
"""Classes of a mixture: their members and order, and draws of their weights, mean and spread in closed form."""

from libc.math cimport log, sqrt
from numpy.random cimport bitgen_t

from fastrace._draws._rng cimport random_standard_exponential

cdef extern from "numpy/random/distributions.h" nogil:
    double random_standard_normal(bitgen_t *bits)
    double random_standard_gamma(bitgen_t *bits, double shape)


cdef inline void sort_members(const Py_ssize_t *label, Py_ssize_t n_groups, Py_ssize_t n_classes, Py_ssize_t *member,
                              Py_ssize_t *begin) noexcept nogil:
    """The groups of class k: member[begin[k]] to member[begin[k + 1] - 1], ascending."""
    cdef Py_ssize_t g, k, count = 0, own
    for k in range(n_classes + 1):
        begin[k] = 0
    for g in range(n_groups):
        begin[label[g]] += 1
    for k in range(n_classes + 1):
        own = begin[k]
        begin[k] = count
        count += own
    for g in range(n_groups):
        member[begin[label[g]]] = g
        begin[label[g]] += 1
    for k in range(n_classes, 0, -1):
        begin[k] = begin[k - 1]
    begin[0] = 0


cdef inline void order_classes(const double *theta, Py_ssize_t n_classes, Py_ssize_t dim, Py_ssize_t column,
                               Py_ssize_t *order, Py_ssize_t *rank) noexcept nogil:
    """Classes in ascending order of a parameter, or as they are where `column` is -1, and the place of each."""
    cdef Py_ssize_t i, k
    for k in range(n_classes):                  # insertion sort
        i = k
        while column >= 0 and i > 0 and theta[order[i - 1] * dim + column] > theta[k * dim + column]:
            order[i] = order[i - 1]
            i -= 1
        order[i] = k
    for k in range(n_classes):
        rank[order[k]] = k


cdef inline Py_ssize_t pick(const double *share, Py_ssize_t count, double left, Py_ssize_t last) noexcept nogil:
    """The state in whose share `left` lies; `last` if there is none."""
    cdef Py_ssize_t k
    for k in range(count):
        if share[k] > 0.0:
            last = k
            left -= share[k]
            if left < 0.0:
                break
    return last


cdef inline void draw_weights(bitgen_t *bits, double concentration, const Py_ssize_t *begin, Py_ssize_t n_classes,
                              double *weight, double *log_weight) noexcept nogil:
    """Dirichlet, given how many groups each class has."""
    cdef double total = 0.0
    cdef Py_ssize_t k
    for k in range(n_classes):
        weight[k] = random_standard_gamma(bits, concentration + (begin[k + 1] - begin[k]))
        total += weight[k]
    for k in range(n_classes):
        weight[k] /= total
        log_weight[k] = log(weight[k])


cdef inline void draw_mean_and_spread(bitgen_t *bits, const double *value, Py_ssize_t n_classes, Py_ssize_t stride,
                                      double prior_mean, double prior_precision, double sd_scale, double *mean,
                                      double *spread) noexcept nogil:
    """Of one coefficient over the classes, which have it at value[0], value[stride] and so on.

    A half-Cauchy spread of scale A is inverse gamma given a number a: spread^2 | a ~ IG(1 / 2, 1 / a), a ~ IG(1 / 2,
    1 / A^2) (Makalic & Schmidt 2016). With T the sum of squares of K classes about their mean: a | spread ~ IG(1, 1 /
    spread^2 + 1 / A^2), and spread^2 | a ~ IG((1 + K) / 2, 1 / a + T / 2).
    """
    cdef double sum = 0.0, squares = 0.0, own = 1.0 / (spread[0] * spread[0]), precision, rate
    cdef Py_ssize_t k
    for k in range(n_classes):
        sum += value[k * stride]
    precision = prior_precision + own * n_classes
    mean[0] = ((prior_precision * prior_mean + own * sum) / precision + random_standard_normal(bits) / sqrt(precision))
    for k in range(n_classes):
        squares += (value[k * stride] - mean[0]) * (value[k * stride] - mean[0])
    rate = random_standard_exponential(bits) / (own + 1.0 / (sd_scale * sd_scale))      # 1 / a
    spread[0] = sqrt((rate + 0.5 * squares) / random_standard_gamma(bits, 0.5 * (1.0 + n_classes)))
