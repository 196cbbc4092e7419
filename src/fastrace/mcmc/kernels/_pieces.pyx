# cython: cdivision=True
"""Exact steps from minibatches of rows that belong to a group of each of several factors."""

from libc.math cimport INFINITY, cbrt, sqrt
cimport numpy as cnp

from fastrace._base._guard cimport guard_built, guard_check_idle
from fastrace.mcmc.kernels._minibatch cimport BlockPoissonChain, BlockTable

import numpy as np

cnp.import_array()

cdef double ROUNDING = 1.0 + 1e-9


cdef class PiecePoissonChain(BlockPoissonChain):
    """Poisson minibatches where rows see one piece that all share, and one of a group of each factor.

    With v and w the pieces of two points, as `Pieces` has them, and c the weights of a row, its reward is at most
    sum_k c_k |w_k|^3 / 6 away from 0, and its change along the straight way at most
    sum_k c_k (t^2 |w_k - v_k|^3 + (|v_k|^3 + |w_k|^3) / t) / 6 for every t > 0. Both are sums over pieces: a row is
    drawn for one of its pieces at a time, in proportion to that part of its bound.
    """

    cdef cnp.ndarray _rest, _places, _sums, _numbers
    cdef Py_ssize_t m                   # numbers in the shared piece
    cdef const double *shared           # (m, m): from t to the shared piece
    cdef const double *own              # (width, width) of each group: from its effects to its piece, and
    cdef const double *along            # (width, m): what t says of that
    cdef double *limit                  # squared norms up to which the weights hold, of each kind of piece
    cdef double *t                      # m, of one point; and both points' shared pieces
    cdef double *s0
    cdef double *s1
    cdef double *apart                  # by block: |w_k - v_k|^3

    def set_pieces(self, BlockTable blocks not None, pieces, hat, most, wider=1.0, unseen=None):
        """Where rows are drawn from; the coordinates that they see; the point of expansion; when to read all rows.

        `wider` and `unseen` are as of `BlockPoissonChain.set_blocks`.
        """
        cdef double most_ = most
        cdef Py_ssize_t m = len(pieces.root), size, kinds = len(pieces.places) + 1
        guard_check_idle(&self.guard, self)
        if blocks.n != self.source.n_rows or blocks.n_blocks != pieces.n_blocks or (
                len(pieces.response) != self.n_seen or blocks.n_parts != kinds):
            raise ValueError(f"the table has {blocks.n_blocks} blocks of {blocks.n} rows; {pieces.n_blocks} of "
                             f"{self.source.n_rows} are needed")
        self._hold_blocks(blocks, hat, most_, (), wider, unseen)
        self._rest, self._places = np.array(pieces.rest, np.intp), np.array(pieces.places, np.intp, order="C")
        self._sums = np.array(pieces.sums, np.intp, order="C")
        shared, own, along = pieces.maps()
        self._numbers = np.concatenate([shared.ravel(), own, along, pieces.radii**2, np.zeros(3 * m)])
        self.m = m
        self.shared = <const double *>cnp.PyArray_DATA(self._numbers)
        self.own = self.shared + m * m
        size = len(own)
        self.along = self.own + size
        size = len(along)
        self.limit = <double *>self.along + size
        self.t = self.limit + kinds
        self.s0, self.s1 = self.t + m, self.t + 2 * m
        self.apart = self.upto + blocks.n_blocks
        guard_built(&self.guard, 1)

    cdef void share(self, const double *step, double *s) noexcept nogil:
        """The shared piece of a step from the point of expansion; `t` is then what it is made from."""
        cdef const Py_ssize_t *rest = <const Py_ssize_t *>cnp.PyArray_DATA(self._rest)
        cdef const Py_ssize_t *place = <const Py_ssize_t *>cnp.PyArray_DATA(self._places)
        cdef Py_ssize_t f, g, k, j, count, width, n_rest = self._rest.shape[0], column = self._rest.shape[0]
        for k in range(n_rest):
            self.t[k] = step[rest[k]]
        for f in range(self._places.shape[0]):
            count, width = place[3 * f + 1], place[3 * f + 2]
            for k in range(width):
                self.t[column] = 0.0
                for g in range(count):
                    self.t[column] += step[place[3 * f] + g * width + k]
                self.t[column] /= count
                column += 1
        for k in range(self.m):             # the root is lower triangular
            s[k] = 0.0
            for j in range(k + 1):
                s[k] += self.shared[k * self.m + j] * self.t[j]

    cdef void single_out(self, double *step, double *s) noexcept nogil:
        """The step becomes the pieces of all groups, in place; the shared one goes to `s`."""
        cdef const Py_ssize_t *place = <const Py_ssize_t *>cnp.PyArray_DATA(self._places)
        cdef const Py_ssize_t *pair = <const Py_ssize_t *>cnp.PyArray_DATA(self._sums)
        cdef const double *own = self.own
        cdef const double *along = self.along
        cdef Py_ssize_t f, _g, k, j, width, m = self.m
        cdef double sum
        cdef double *u
        for k in range(self._sums.shape[0]):    # rows see the sums of the effects of nested factors
            step[pair[2 * k]] += step[pair[2 * k + 1]]
        self.share(step, s)
        for f in range(self._places.shape[0]):
            width = place[3 * f + 2]
            u = step + place[3 * f]
            for _g in range(place[3 * f + 1]):
                for k in range(width - 1, -1, -1):      # lower triangular: those above are still the effects
                    sum = 0.0
                    for j in range(k + 1):
                        sum += own[k * width + j] * u[j]
                    for j in range(m):
                        sum -= along[k * m + j] * self.t[j]
                    u[k] = sum
                u += width
                own += width * width
                along += width * m

    cdef bint cubes(self, Py_ssize_t block, const double *v, const double *w, Py_ssize_t width,
                    double limit) noexcept nogil:
        """Into `size` and `apart`, of one block; False if the weights do not hold so far out."""
        cdef double before = 0.0, after = 0.0, step = 0.0
        cdef Py_ssize_t k
        for k in range(width):
            before += v[k] * v[k]
            after += w[k] * w[k]
            step += (w[k] - v[k]) * (w[k] - v[k])
        self.size[block] = before * sqrt(before) + after * sqrt(after)
        self.apart[block] = step * sqrt(step)
        return before <= limit and after <= limit

    cdef double measure(self) noexcept nogil:
        cdef const Py_ssize_t *place = <const Py_ssize_t *>cnp.PyArray_DATA(self._places)
        cdef const double *total = <const double *>cnp.PyArray_DATA(self.blocks.totals)
        cdef double far, gap, rate = 0.0, straight, t = 1.0, wider = self.widening()
        cdef Py_ssize_t f, g, i, width, block = 1
        for i in range(self.n_seen):
            self.z0[i] = self.now[i] - self.from_hat[i]
            self.z1[i] = self.new[i] - self.from_hat[i]
        self.take_off(self.z0)
        self.take_off(self.z1)
        self.single_out(self.z0, self.s0)
        self.single_out(self.z1, self.s1)
        if not self.cubes(0, self.s0, self.s1, self.m, self.limit[0]) and total[0] > 0.0:
            return INFINITY
        far, gap = total[0] * self.size[0], total[0] * self.apart[0]
        for f in range(self._places.shape[0]):
            width = place[3 * f + 2]
            for g in range(place[3 * f + 1]):
                i = place[3 * f] + g * width
                if not self.cubes(block, self.z0 + i, self.z1 + i, width, self.limit[f + 1]) and total[block] > 0.0:
                    return INFINITY
                far += total[block] * self.size[block]
                gap += total[block] * self.apart[block]
                block += 1
        straight = 0.0              # whether the straight way is shorter, with the best t: (far / (2 gap))^(1/3)
        if 6.75 * gap < far:        # 1.5 (2 gap / far)^(1/3) < 1
            t = cbrt(0.5 * far / gap) if gap > 0.0 else 1.0
            straight = t * t
        for block in range(self.blocks.n_blocks):
            self.size[block] = (straight * self.apart[block] + self.size[block] / t) / 6.0 * ROUNDING * wider
            rate += total[block] * self.size[block]
            self.upto[block] = rate
        return rate
