# cython: cdivision=True
"""Chains that decide exactly by few rows, drawn in proportion to bounds on how far each row's reward can move."""

from libc.stdint cimport int64_t
cimport numpy as cnp

from fastrace._draws._alias cimport alias_t
from fastrace._models._arrow cimport ArrowFactor
from fastrace.mcmc.kernels._chain cimport Chain, Urns


cdef class MinibatchChain(Chain):
    cdef Urns urns
    cdef double most                # expected rows from which on a full pass is taken
    cdef int64_t *rows
    cdef double *before
    cdef double *after
    cdef double *bound              # of each row drawn
    cdef Py_ssize_t room
    cdef cnp.ndarray _inverse_cubes         # of all rows, or None; see `set_inverse_cubes`

    cdef int reserve(self, Py_ssize_t count) except -1 nogil
    cdef bint thins(self, double rate) noexcept nogil
    cdef int draw_rows(self, Py_ssize_t count, bint thins) except -1 nogil
    cdef int read(self, Py_ssize_t count) except -1 nogil
    cdef double inverse_size(self, Py_ssize_t i) noexcept nogil
    cdef double rate_of(self, Py_ssize_t i) noexcept nogil
    cdef Py_ssize_t thin(self, Py_ssize_t count) except -1 nogil
    cdef bint decided_by(self, Py_ssize_t count, double rate, double threshold) except -1 nogil
    cdef double widening(self) noexcept nogil
    cdef int full_pass(self, double threshold) except -1 nogil
    cdef int refuse(self, Py_ssize_t i, double bound) except -1


cdef enum:
    MOST_BALLS = 4


cdef class BlockTable:
    cdef readonly int64_t n
    cdef readonly Py_ssize_t n_blocks, n_parts
    cdef cnp.ndarray order, weights, starts, totals         # rows block after block, and their weights
    cdef cnp.ndarray by_row, blocks_of                      # (n, n_parts) if there are several parts
    cdef alias_t *table


cdef class BlockPoissonChain(MinibatchChain):
    cdef BlockTable blocks
    cdef ArrowFactor factor
    cdef cnp.ndarray _sizes
    cdef double *size               # of the move, by block
    cdef double *upto               # sums of the rates of blocks 0 to g
    cdef Py_ssize_t *drawn          # the block of each row drawn
    cdef double reach               # radius of the weights
    cdef double wider               # by how much bounds are wider than need be, but for moves along a direction
    cdef cnp.ndarray _unseen        # (2, k, n_seen): directions that no row sees, and the metric times each
    # smaller balls with smaller weights, the smallest first, then `blocks` itself; and which of them holds each block
    cdef int n_balls
    cdef tuple tables
    cdef double ball[MOST_BALLS]
    cdef const double *total_in[MOST_BALLS + 1]
    cdef const double *weight_in[MOST_BALLS + 1]
    cdef const alias_t *table_in[MOST_BALLS + 1]
    cdef cnp.ndarray _ball_of
    cdef Py_ssize_t *ball_of

    cdef void take_off(self, double *step) noexcept nogil
    cdef double measure(self) noexcept nogil
    cdef double bound_of(self, int64_t row) noexcept nogil
    cdef int draw_in_blocks(self, Py_ssize_t count, double rate) except -1 nogil
