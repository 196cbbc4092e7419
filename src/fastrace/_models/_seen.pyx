# cython: cdivision=True
"""The sum of the terms of a generalised linear model at one point, with derivatives in the form of an arrow."""

from libc.stdint cimport int64_t
cimport numpy as cnp

from fastrace._base._guard cimport guard_check_built
from fastrace._base._signals cimport check_signals
from fastrace.likelihoods cimport fr_arrow, fr_arrow_add, fr_arrow_entries, GLMSource

import numpy as np

from fastrace._models._arrow import Arrow

cnp.import_array()

_CHUNK = 4096


def main_factor(factors):
    """Number of the factor that has blocks, the one of most effects; -1 without factors."""
    sizes = [factor.stop - factor.start for factor in factors]
    return sizes.index(max(sizes)) if sizes else -1


def expand_seen(GLMSource glm not None, theta_hat, watch=None):
    """Sum over all rows of the terms at `theta_hat`, its gradient and its Hessian.

    Parameters
    ----------
    glm : GLMSource
        The terms.
    theta_hat : array_like of real numbers, shape (n,)
        Where to expand.
    watch : callable, optional
        ``watch(part, x, terms)`` is handed the rows of a dense X as they are read, a slice of them at a time: their
        entries in float64 and their terms.

    Returns
    -------
    value : float
    gradient : ndarray of shape (n,)
    hessian : Arrow

    Notes
    -----
    One pass over the rows in chunks: O(n_rows (p + q)^2) time, O(s^2 + s G q) memory.
    """
    guard_check_built(&glm.guard, glm)
    hat = np.ascontiguousarray(theta_hat, dtype=np.float64)
    factors, main = glm.factors, main_factor(glm.factors)
    n, p = len(hat), glm.X.shape[1]
    groups, width, begin = 0, 1, n
    if main >= 0:
        groups, width, begin = factors[main].n_groups, factors[main].width, factors[main].start
    s = n - groups * width
    cdef cnp.ndarray gradient = np.zeros(n), dense = np.zeros((s, s)), border = np.zeros((groups * width, s))
    cdef cnp.ndarray blocks = np.zeros((groups, width, width)), places, values, x, slope, bend, mixed
    cdef fr_arrow to
    to.main, to.n_dense, to.n_main = main, s, groups * width
    to.gradient = <double *>cnp.PyArray_DATA(gradient)
    to.dense = <double *>cnp.PyArray_DATA(dense)
    to.border = <double *>cnp.PyArray_DATA(border)
    to.blocks = <double *>cnp.PyArray_DATA(blocks)
    cdef int64_t first
    cdef Py_ssize_t count, columns = p
    cdef const double *rows
    cdef const double *across = NULL
    value, products, pull, last = 0.0, np.zeros((p, p)), np.zeros(p), np.zeros(p)
    for first in range(0, glm.n_rows, _CHUNK):
        count = min(<int64_t>_CHUNK, glm.n_rows - first)
        level, slope, bend = glm.derivatives(hat, first, count)
        value += level.sum()
        rows = NULL
        if glm.learns_scale:
            of_scale, mixed, twice = glm.mixed_derivatives(hat, first, count)
            across = <const double *>cnp.PyArray_DATA(mixed)
            gradient[n - 1] += of_scale.sum()
            dense[s - 1, s - 1] += twice.sum()
        if glm.model.sparse == NULL:
            x = np.ascontiguousarray(glm.X[first:first + count], dtype=np.float64)
            rows = <const double *>cnp.PyArray_DATA(x)
            if watch is not None:
                watch(slice(first, first + count), x, level)
            pull += slope @ x
            products += x.T @ (bend[:, None] * x)
            if glm.learns_scale:
                last += mixed @ x
        if glm.model.n_factors or rows == NULL:
            size = fr_arrow_entries(glm.model.sparse, glm.model.factors, glm.model.n_factors, to.main, first, count)
            places, values = np.empty(size, dtype=np.intp), np.empty(size)
            fr_arrow_add(&to, glm.model.sparse, rows, columns, glm.model.factors, glm.model.n_factors, first, count,
                         <const double *>cnp.PyArray_DATA(slope), <const double *>cnp.PyArray_DATA(bend), across,
                         <Py_ssize_t *>cnp.PyArray_DATA(places), <double *>cnp.PyArray_DATA(values))
        check_signals()
    if glm.learns_scale:
        dense[s - 1, :p] += last
    whole = np.tril(dense) + np.tril(dense, -1).T
    whole[:p, :p] += products
    gradient[:p] += pull
    return float(value), gradient, Arrow(whole, np.ascontiguousarray(border.T), blocks, begin)
