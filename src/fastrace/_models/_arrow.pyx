# cython: cdivision=True
"""Symmetric matrices in the shape of an arrow, their Cholesky factors, and quadratic functions with such a curvature.

With the blocks' coordinates first, A = [[B, C'], [C, D]] = L L' for L = [[R, 0], [W, S]], where R is block-diagonal,
B = R R', W = C R'^-1 and S S' = D - W W'. A factor costs O(s^3 + G (s^2 q + s q^2 + q^3)) for G blocks of width q and s
dense coordinates; a product or a solve O(s^2 + G (s q + q^2)).
"""

from libc.math cimport INFINITY, log, sqrt
from libc.string cimport memcpy
cimport numpy as cnp

from scipy.linalg.cython_blas cimport dgemv, dsymv, dsyrk, dtrmv, dtrsv
from scipy.linalg.cython_lapack cimport dpotrf

from fastrace._base._guard cimport guard_await, guard_build, guard_built, guard_check_built, guarded

import numpy as np

from fastrace._base import _checks

cnp.import_array()


cdef inline double *data_of(cnp.ndarray array) noexcept:
    return <double *>cnp.PyArray_DATA(array)


cdef double SINGULAR = 1e-12    # of a diagonal entry, left by the others: a prior whose blocks have less has density 0


cdef int _fits(cnp.ndarray x, Py_ssize_t size) except -1:
    """Refuse what a method of this module could not have handed on."""
    if x is None or x.dtype != np.float64 or not x.flags.c_contiguous or (<object>x).shape != (size,):
        raise ValueError(f"an array of {size} numbers is needed")
    return 0


cdef class Arrow:
    """A symmetric matrix, block-diagonal in some coordinates and dense in the others.

    It is the symmetric part of what is given.

    Parameters
    ----------
    dense : array_like of shape (s, s)
        Of the dense coordinates among themselves.
    border : array_like of shape (s, n_blocks * width), optional
        Of the dense coordinates with those of the blocks.
    blocks : array_like of shape (n_blocks, width, width), optional
    start : int, optional
        First coordinate of the blocks, which follow each other; by default s, after all dense ones.

    Raises
    ------
    ValueError
        If shapes disagree or an entry is not finite.
    """

    def __cinit__(self, *args, **kwargs):
        guard_await(&self.guard, 0)

    def __init__(self, dense, border=None, blocks=None, start=None):
        kept = [np.array(dense, dtype=np.float64, order="C")]
        s = len(kept[0])
        kept.append(np.zeros((0, 1, 1)) if blocks is None else np.array(blocks, dtype=np.float64, order="C"))
        count, width = kept[1].shape[:2] if kept[1].ndim == 3 else (0, 0)
        kept.append(np.zeros((s, 0)) if border is None else np.array(border, dtype=np.float64, order="C"))
        shapes = [(s, s), (count, width, width), (s, count * width)]
        if [array.shape for array in kept] != shapes or width < 1:
            raise ValueError(f"dense, blocks and border have shapes {[array.shape for array in kept]}; (s, s), "
                             f"(n_blocks, width, width) and (s, n_blocks * width) are needed")
        if not all(np.isfinite(array).all() for array in kept):
            raise ValueError("an entry of the arrow is not finite; finite numbers are needed")
        kept[0] = 0.5 * (kept[0] + kept[0].T)
        kept[1] = 0.5 * (kept[1] + kept[1].transpose(0, 2, 1))
        first = s if start is None else start
        if not 0 <= first <= s:
            raise ValueError(f"start is {start}; a place among the {s} dense coordinates, 0 to {s}, is needed")
        guard_build(&self.guard, 0, self)
        for array in kept:
            array.flags.writeable = False
        self._hold(*kept, first)
        guard_built(&self.guard, 0)

    def _hold(self, dense, blocks, border, start):
        self.dense, self.blocks, self.border = dense, blocks, border
        self.n_dense, self.n_blocks, self.width, self.start = len(dense), len(blocks), blocks.shape[1], start
        self.dim = self.n_dense + self.n_blocks * self.width
        self._work = np.zeros(2 * max(self.n_dense, 1))
        self.D, self.C, self.B = data_of(self.dense), data_of(self.border), data_of(self.blocks)
        self.work = data_of(self._work)

    def __reduce__(self):
        guard_check_built(&self.guard, self)
        return _arrow.saved(np.asarray(self.dense), np.asarray(self.border), np.asarray(self.blocks), self.start)

    def __repr__(self):
        return f"Arrow({self.n_dense} dense, {self.n_blocks} blocks of width {self.width})"

    def shared(self):
        """Another one on the same numbers, for another thread."""
        guard_check_built(&self.guard, self)
        cdef Arrow other = Arrow.__new__(Arrow)
        other._hold(self.dense, self.blocks, self.border, self.start)
        guard_built(&other.guard, 0)
        return other

    def block_coordinates(self):
        """Coordinates of the blocks, ascending; then those that are dense."""
        inside = np.arange(self.start, self.start + self.n_blocks * self.width)
        return inside, np.delete(np.arange(self.dim), inside)

    def to_dense(self):
        """The whole matrix, shape (dim, dim)."""
        guard_check_built(&self.guard, self)
        out = np.zeros((self.dim, self.dim))
        inside, outside = self.block_coordinates()
        out[np.ix_(outside, outside)] = self.dense
        out[np.ix_(outside, inside)] = self.border
        out[np.ix_(inside, outside)] = np.transpose(self.border)
        for g, block in enumerate(self.blocks):
            here = inside[g * self.width:(g + 1) * self.width]
            out[np.ix_(here, here)] = block
        return out

    def diagonal(self):
        """The diagonal, shape (dim,)."""
        guard_check_built(&self.guard, self)
        inside, outside = self.block_coordinates()
        out = np.empty(self.dim)
        out[outside] = np.diagonal(self.dense)
        out[inside] = np.diagonal(self.blocks, axis1=1, axis2=2).ravel()
        return out

    def blocks_at(self, places, width):
        """Blocks of the matrix on its diagonal that begin at `places`, shape (len(places), width, width).

        Each lies within a block or among the dense coordinates.
        """
        guard_check_built(&self.guard, self)
        inside = self.n_blocks * self.width
        out = np.empty((len(places), width, width))
        for block, place in zip(out, places, strict=True):
            if self.start <= place < self.start + inside:
                g, i = divmod(place - self.start, self.width)
                block[:] = self.blocks[g, i:i + width, i:i + width]
            else:
                i = place if place < self.start else place - inside
                block[:] = self.dense[i:i + width, i:i + width]
        return out

    def times(self, x):
        """The product with a vector, shape (dim,)."""
        cdef cnp.ndarray vector = _vector(x, self.dim), out = np.empty(self.dim)
        guarded(&self.guard, self, self._times, (vector, out))
        return out

    def _times(self, cnp.ndarray x, cnp.ndarray out):
        guard_check_built(&self.guard, self)
        _fits(x, self.dim)
        _fits(out, self.dim)
        self.product(data_of(x), data_of(out))

    cdef void gather(self, const double *x, double *dense) noexcept nogil:
        """The dense coordinates of a vector."""
        memcpy(dense, x, self.start * sizeof(double))
        memcpy(dense + self.start, x + self.start + self.n_blocks * self.width,
               (self.n_dense - self.start) * sizeof(double))

    cdef void scatter(self, const double *dense, double *x) noexcept nogil:
        """Put the dense coordinates into a vector."""
        memcpy(x, dense, self.start * sizeof(double))
        memcpy(x + self.start + self.n_blocks * self.width, dense + self.start,
               (self.n_dense - self.start) * sizeof(double))

    cdef void product(self, const double *x, double *out) noexcept nogil:
        cdef int s = <int>self.n_dense, m = <int>(self.n_blocks * self.width), step = 1
        cdef Py_ssize_t q = self.width, _g, i, j
        cdef double one = 1.0, zero = 0.0, sum
        cdef const double *block = self.B
        cdef const double *xb = x + self.start
        cdef double *ob = out + self.start
        cdef double *dense = self.work
        cdef double *product = self.work + self.n_dense
        self.gather(x, dense)
        for _g in range(self.n_blocks):
            for i in range(q):
                sum = 0.0
                for j in range(q):
                    sum += block[i * q + j] * xb[j]
                ob[i] = sum
            block += q * q
            xb += q
            ob += q
        if s > 0:
            dsymv(b"U", &s, &one, self.D, &s, dense, &step, &zero, product, &step)
            if m > 0:       # the border in C order is its transpose, (m, s), for BLAS
                dgemv(b"T", &m, &s, &one, self.C, &m, <double *>(x + self.start), &step, &one, product, &step)
                dgemv(b"N", &m, &s, &one, self.C, &m, dense, &step, &one, out + self.start, &step)
            self.scatter(product, out)


@_checks.rebuilds(1, Arrow)
def _arrow(dense, border, blocks, start):
    """Rebuild a pickled `Arrow`."""
    return Arrow(dense, border, blocks, start)


cdef cnp.ndarray _vector(x, Py_ssize_t dim):
    array = np.array(x, dtype=np.float64)
    if array.shape != (dim,):
        raise ValueError(f"the vector has shape {array.shape}; ({dim},) is needed")
    return array


cdef class ArrowFactor:
    """Cholesky factor of ``base + P`` for a P that is block-diagonal.

    Parameters
    ----------
    base : Arrow
    layout : sequence of (count, width)
        Runs of equal blocks of P, in order of the coordinates. The blocks of `base` are one run, or P has width 1
        there.

    Raises
    ------
    ValueError
        If the runs do not fill the coordinates, or a block of P lies across blocks of `base`.
    """

    def __cinit__(self, *args, **kwargs):
        guard_await(&self.guard, 0)

    def __init__(self, Arrow base not None, layout=None):
        cdef Py_ssize_t s = base.n_dense, m = base.n_blocks * base.width, q = base.width
        guard_check_built(&base.guard, base)
        runs = [(base.dim, 1)] if layout is None else [(int(count), int(width)) for count, width in layout]
        if sum(count * width for count, width in runs) != base.dim:
            raise ValueError(f"layout is {layout}; counts times widths must sum to {base.dim}, the coordinates")
        edges = np.concatenate([[0]] + [np.full(count, width) for count, width in runs]).cumsum()
        first, last = base.start, base.start + base.n_blocks * base.width
        inside = [(a, b) for a, b in zip(edges, edges[1:], strict=False) if base.n_blocks and b > first and a < last]
        if any(a < first or b > last or (a - first) // base.width != (b - 1 - first) // base.width for a, b in inside):
            raise ValueError(f"layout is {layout}; a block of it lies across blocks of {base!r}")
        guard_build(&self.guard, 0, self)
        self.base = base.shared()
        self.n_segments = len(runs)
        self.precision_size = sum(count * width * width for count, width in runs)
        self._segments = np.array(runs, dtype=np.intp)
        self.segments = <const Py_ssize_t *>cnp.PyArray_DATA(self._segments)
        widest = max([width for _, width in runs], default=0)
        self._memory = np.zeros(s * s + s * m + m * q + s + widest * widest + 1)
        self.S = data_of(self._memory)
        self.W = self.S + s * s
        self.Lb = self.W + s * m
        self.xs = self.Lb + m * q
        self.block = self.xs + s
        guard_built(&self.guard, 0)

    def __reduce__(self):
        raise TypeError("an ArrowFactor belongs to the kernel that made it and is not saved")

    cdef bint decompose(self, const double *precision) noexcept nogil:
        cdef Py_ssize_t q = self.base.width, G = self.base.n_blocks, a, g
        cdef int s = <int>self.base.n_dense, m = <int>(G * q), info = 0
        cdef double minus = -1.0, one = 1.0
        cdef double *row
        cdef const double *given
        self.positive = False
        memcpy(self.S, self.base.D, s * s * sizeof(double))
        memcpy(self.Lb, self.base.B, m * q * sizeof(double))
        self.add(precision)
        if q == 1:
            for g in range(G):
                if not self.Lb[g] > 0.0:
                    return False
                self.Lb[g] = sqrt(self.Lb[g])
            for a in range(s):
                row = self.W + a * m
                given = self.base.C + a * m
                for g in range(G):
                    row[g] = given[g] / self.Lb[g]
        else:
            for g in range(G):
                if not factor_block(self.Lb + g * q * q, q):
                    return False
            for a in range(s):
                row = self.W + a * m
                given = self.base.C + a * m
                for g in range(G):
                    memcpy(row, given, q * sizeof(double))
                    solve_lower(self.Lb + g * q * q, row, q)
                    row += q
                    given += q
        if s > 0:
            if m > 0:       # lower in C order is upper for BLAS
                dsyrk(b"U", b"T", &s, &m, &minus, self.W, &m, &one, self.S, &s)
            dpotrf(b"U", &s, self.S, &s, &info)
            if info != 0:
                return False
        self.positive = True
        return True

    cdef void add(self, const double *precision) noexcept nogil:
        """P onto the copies of the blocks and of the dense part."""
        cdef Py_ssize_t q = self.base.width, s = self.base.n_dense
        cdef Py_ssize_t first = self.base.start, last = first + self.base.n_blocks * q
        cdef Py_ssize_t t, _c, i, j, w, place = 0, inside, d
        for t in range(self.n_segments):
            w = self.segments[2 * t + 1]
            for _c in range(self.segments[2 * t]):
                if first <= place < last:
                    inside = (place - first) % q
                    d = (place - first) // q * q * q
                    for i in range(w):
                        for j in range(w):
                            self.Lb[d + (inside + i) * q + inside + j] += precision[i * w + j]
                else:
                    d = place if place < first else place - (last - first)
                    for i in range(w):
                        for j in range(w):
                            self.S[(d + i) * s + d + j] += precision[i * w + j]
                precision += w * w
                place += w

    cdef double log_determinant(self) noexcept nogil:
        cdef Py_ssize_t q = self.base.width, s = self.base.n_dense, i, j
        cdef double out = 0.0
        for i in range(self.base.n_blocks):
            for j in range(q):
                out += log(self.Lb[i * q * q + j * q + j])
        for i in range(s):
            out += log(self.S[i * s + i])
        return 2.0 * out

    cdef void to_z(self, double *x) noexcept nogil:
        cdef int s = <int>self.base.n_dense, m = <int>(self.base.n_blocks * self.base.width), step = 1
        cdef Py_ssize_t q = self.base.width, _g, i, j
        cdef double one = 1.0, sum
        cdef double *xb = x + self.base.start
        cdef const double *block = self.Lb
        self.base.gather(x, self.xs)
        for _g in range(self.base.n_blocks):
            for i in range(q):
                sum = 0.0
                for j in range(i, q):
                    sum += block[j * q + i] * xb[j]
                xb[i] = sum
            xb += q
            block += q * q
        if s > 0:
            if m > 0:
                dgemv(b"N", &m, &s, &one, self.W, &m, self.xs, &step, &one, x + self.base.start, &step)
            dtrmv(b"U", b"N", b"N", &s, self.S, &s, self.xs, &step)
            self.base.scatter(self.xs, x)

    cdef void from_z(self, double *z) noexcept nogil:
        cdef int s = <int>self.base.n_dense, m = <int>(self.base.n_blocks * self.base.width), step = 1
        cdef Py_ssize_t q = self.base.width, _g
        cdef double minus = -1.0, one = 1.0
        cdef double *xb = z + self.base.start
        cdef const double *block = self.Lb
        if s > 0:
            self.base.gather(z, self.xs)
            dtrsv(b"U", b"N", b"N", &s, self.S, &s, self.xs, &step)
            self.base.scatter(self.xs, z)
            if m > 0:
                dgemv(b"N", &m, &s, &minus, self.W, &m, self.xs, &step, &one, z + self.base.start, &step)
        for _g in range(self.base.n_blocks):
            solve_upper(block, xb, q)
            xb += q
            block += q * q

    cdef void half_solve(self, double *b) noexcept nogil:
        cdef int s = <int>self.base.n_dense, m = <int>(self.base.n_blocks * self.base.width), step = 1
        cdef Py_ssize_t q = self.base.width, _g
        cdef double minus = -1.0, one = 1.0
        cdef double *xb = b + self.base.start
        cdef const double *block = self.Lb
        for _g in range(self.base.n_blocks):
            solve_lower(block, xb, q)
            xb += q
            block += q * q
        if s > 0:
            self.base.gather(b, self.xs)
            if m > 0:
                dgemv(b"T", &m, &s, &minus, self.W, &m, b + self.base.start, &step, &one, self.xs, &step)
            dtrsv(b"U", b"T", b"N", &s, self.S, &s, self.xs, &step)
            self.base.scatter(self.xs, b)

    cdef double prior_log_determinant(self, const double *precision) noexcept nogil:
        cdef Py_ssize_t t, _c, i, w
        cdef double root, out = 0.0, last = 0.0, log_last = 0.0
        for t in range(self.n_segments):
            w = self.segments[2 * t + 1]
            for _c in range(self.segments[2 * t]):
                if w == 1:
                    if precision[0] > 0.0:
                        if precision[0] != last:        # mostly all of a run are equal
                            last = precision[0]
                            log_last = log(last)
                        out += log_last
                    elif precision[0] != 0.0:           # 0 is a flat prior
                        return -INFINITY
                else:
                    memcpy(self.block, precision, w * w * sizeof(double))
                    if not factor_block(self.block, w):
                        return -INFINITY
                    for i in range(w):
                        root = self.block[i * w + i]
                        if root * root < SINGULAR * precision[i * w + i]:
                            return -INFINITY
                        out += 2.0 * log(root)
                precision += w * w
        return out

    cdef void prior_product(self, const double *precision, const double *x, double *out) noexcept nogil:
        cdef Py_ssize_t t, _c, i, j, w
        cdef double sum
        for t in range(self.n_segments):
            w = self.segments[2 * t + 1]
            for _c in range(self.segments[2 * t]):
                for i in range(w):
                    sum = 0.0
                    for j in range(w):
                        sum += precision[i * w + j] * x[j]
                    out[i] = sum
                precision += w * w
                x += w
                out += w

    # For Python: sums that rest on a factor, each O(dim) beside it.

    def factor(self, precision):
        """Take the factor of ``base + P``; `precision` holds the blocks of P one after another. The log-determinant."""
        cdef cnp.ndarray p = _vector(precision, self.precision_size)
        return guarded(&self.guard, self, self._factor, (p,))

    def _factor(self, cnp.ndarray p):
        guard_check_built(&self.guard, self)
        _fits(p, self.precision_size)
        cdef bint good
        cdef double *at = data_of(p)
        with nogil:
            good = self.decompose(at)
        if not good:
            raise np.linalg.LinAlgError("the arrow is not positive definite")
        return self.log_determinant()

    def solve(self, b):
        """(base + P)^-1 b."""
        return self._apply(b, "solve")

    def draw(self, z):
        """L'^-1 z: standard normals become a draw from N(0, (base + P)^-1)."""
        return self._apply(z, "draw")

    def whiten(self, x):
        """L' x: what `draw` takes back."""
        return self._apply(x, "whiten")

    def prior_times(self, precision, x):
        """P x."""
        cdef cnp.ndarray p = _vector(precision, self.precision_size), vector = _vector(x, self.base.dim)
        cdef cnp.ndarray out = np.empty(self.base.dim)
        guard_check_built(&self.guard, self)
        self.prior_product(data_of(p), data_of(vector), data_of(out))
        return out

    def _apply(self, x, how):
        cdef cnp.ndarray out = _vector(x, self.base.dim)
        if not self.positive:
            raise ValueError("there is no factor yet, or the matrix was not positive definite; call factor first")
        guarded(&self.guard, self, self._applied, (out, how))
        return out

    def _applied(self, cnp.ndarray out, how):
        guard_check_built(&self.guard, self)
        _fits(out, self.base.dim)
        cdef double *x = data_of(out)
        if how == "whiten":
            self.to_z(x)
            return
        if how == "solve":
            self.half_solve(x)
        self.from_z(x)

    def block_covariances(self):
        """Diagonal blocks of (base + P)^-1: those of the dense coordinates whole, and of each block of `base`.

        Returns
        -------
        dense : ndarray of shape (n_dense, n_dense)
        blocks : ndarray of shape (n_blocks, width, width)
        """
        if not self.positive:
            raise ValueError("there is no factor yet, or the matrix was not positive definite; call factor first")
        s, G, q = self.base.n_dense, self.base.n_blocks, self.base.width
        memory = np.asarray(self._memory)
        lower = np.tril(memory[:s * s].reshape(s, s))
        W = memory[s * s:s * s + s * G * q].reshape(s, G, q)
        R = np.tril(memory[s * s + s * G * q:s * s + s * G * q + G * q * q].reshape(G, q, q))
        inverse = np.linalg.solve(lower, np.eye(s)) if s else np.zeros((0, 0))
        root = np.linalg.inv(R) if G else R             # R^-1, one a block
        across = np.einsum("as,sgq->agq", inverse, W)   # S^-1 W
        across = np.einsum("agq,gqr->agr", across, root)
        return inverse.T @ inverse, np.einsum("gqi,gqj->gij", root, root) + np.einsum("agi,agj->gij", across, across)


def added(Arrow arrow not None, Arrow more):
    """The sum of two arrows of one shape; the first alone if there is no other."""
    if more is None:
        return arrow
    if not arrow.n_blocks:
        return Arrow(arrow.dense + more.dense)
    return Arrow(arrow.dense + more.dense, arrow.border + more.border, arrow.blocks + more.blocks, arrow.start)


cdef class Quadratic:
    """A quadratic function: value + gradient . d - d' A d / 2 for d = x - center.

    Parameters
    ----------
    center, gradient : array_like of shape (dim,)
    value : float
    curvature : Arrow
        A.
    """

    def __cinit__(self, *args, **kwargs):
        guard_await(&self.guard, 0)

    def __init__(self, center, value, gradient, Arrow curvature not None):
        guard_check_built(&curvature.guard, curvature)
        hat, slope = _vector(center, curvature.dim), _vector(gradient, curvature.dim)
        level = float(value)
        if not (np.isfinite(hat).all() and np.isfinite(slope).all() and np.isfinite(level)):
            raise ValueError("an expansion has entries that are not finite; expand at another point")
        guard_build(&self.guard, 0, self)
        hat.flags.writeable = slope.flags.writeable = False
        self.center, self.gradient, self.value, self.dim = hat, slope, level, curvature.dim
        self.curvature = curvature.shared()
        self._work = np.zeros(2 * self.dim)
        self.hat, self.slope, self.work = data_of(self.center), data_of(self.gradient), data_of(self._work)
        guard_built(&self.guard, 0)

    def __reduce__(self):
        guard_check_built(&self.guard, self)
        return _quadratic.saved(np.asarray(self.center), self.value, np.asarray(self.gradient), self.curvature)

    def shared(self):
        """Another one on the same numbers, for another thread."""
        return Quadratic(self.center, self.value, self.gradient, self.curvature)

    cdef double log_density(self, const double *x, double *gradient) noexcept nogil:
        cdef Py_ssize_t i
        cdef double out = self.value
        cdef double *d = self.work
        cdef double *bent = self.work + self.dim
        for i in range(self.dim):
            d[i] = x[i] - self.hat[i]
        self.curvature.product(d, bent)
        for i in range(self.dim):
            out += d[i] * (self.slope[i] - 0.5 * bent[i])
        if gradient != NULL:
            for i in range(self.dim):
                gradient[i] = self.slope[i] - bent[i]
        return out

    def evaluate(self, x):
        """Value and gradient at x."""
        cdef cnp.ndarray at = _vector(x, self.dim), gradient = np.empty(self.dim)
        return guarded(&self.guard, self, self._evaluate, (at, gradient)), gradient

    def _evaluate(self, cnp.ndarray at, cnp.ndarray gradient):
        guard_check_built(&self.guard, self)
        _fits(at, self.dim)
        _fits(gradient, self.dim)
        return self.log_density(data_of(at), data_of(gradient))


@_checks.rebuilds(1, Quadratic)
def _quadratic(center, value, gradient, curvature):
    """Rebuild a pickled `Quadratic`."""
    return Quadratic(center, value, gradient, curvature)
