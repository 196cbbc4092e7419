"""Sums over the rows of a multinomial logistic regression, and how far a step moves its predictors apart."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from fastrace._models._arrow import Arrow
from fastrace._models._seen import main_factor
from fastrace._models._softmax import offset_table
from fastrace._models.grouping import Factor
from fastrace._models.rows import chunks, lengths, products_of

Array = NDArray[np.float64]

# A third derivative of a term is a third cumulant of the step's predictors over the classes. For a variable of range 1
# the largest is p q (q - p) of two values, at p = (3 - sqrt(3)) / 6; mixed derivatives have that bound (Banach 1938).
THIRD = 1.0 / (6.0 * math.sqrt(3.0))


class Sums(NamedTuple):
    """The sum of all terms at a point, with derivatives."""

    value: float
    gradient: Array     # shape (d,)
    hessian: Array      # shape (d, d)
    largest: float      # number that a row's term or residual is computed from, in absolute value


def offset_from_first(offset: Any, shape: tuple[int, int]) -> Array:
    """Offsets of all classes but the first, from that of the first."""
    table = offset_table(offset, shape)
    return np.ascontiguousarray(table[:, 1:] - table[:, :1])


def by_class(source: Any, at: Array) -> Array:
    """Coefficients and effects of each class but the first: shape (n_classes - 1, width), then that of `at` beyond."""
    if source.places is None:
        return at.reshape(source.n_classes - 1, -1, *at.shape[1:])
    return np.asarray(at[source.places])


def predictors(source: Any, at: Array) -> Iterator[tuple[slice, Array, Array]]:
    """Some rows, their explanatory variables, and their predictors of all classes, the first's 0."""
    table = by_class(source, at).T
    for part, x in chunks(source.rows.X):
        eta = np.zeros((len(x), source.n_classes))
        (eta[:, 1:],) = products_of(part, x, source.rows.X, source.rows.factors, [table])
        if source.offset is not None:
            eta[:, 1:] += source.offset[part]
        yield part, x, eta


class _Rows(NamedTuple):
    """Terms of some rows, with derivatives in the predictors of all classes but the first, times their weights."""

    part: slice
    x: Array
    level: Array        # shape (n,)
    slope: Array        # shape (n, free)
    bend: Array         # shape (free, free, n): minus second derivatives
    largest: float      # as of `Sums`


def _derivatives(source: Any, at: Array, roots: Array | None = None) -> Iterator[_Rows]:
    """Of the terms of a `SoftmaxSource` at one vector of parameters, some rows at a time.

    With `roots`, of the covariances of each row's predictors, shape (n_rows, free, free), these are means over normal
    predictors, by a cubature that is exact for polynomials of degree 3.
    """
    free, times = source.n_classes - 1, source.rows.weights
    for part, x, eta in predictors(source, at):
        own = np.arange(len(x)), source.rows.y[part].astype(np.intp)
        if roots is None:
            level, slope, bend, size = _of_predictors(eta, own)
        else:
            level, slope, bend, size = (np.zeros(shape) for shape in (
                len(x), (len(x), free), (free, free, len(x)), len(x)))
            for k in range(free):
                for far in (math.sqrt(free), -math.sqrt(free)):
                    moved = eta.copy()
                    moved[:, 1:] += far * roots[part, :, k]
                    for total, one in zip((level, slope, bend, size), _of_predictors(moved, own), strict=True):
                        total += one / (2 * free)
        if times is not None:
            count = times[part]
            level, slope, bend, size = count * level, slope * count[:, None], bend * count, count * size
        yield _Rows(part, x, level, slope, bend, float(size.max()))


def _of_predictors(eta: Array, own: tuple[Any, Any]) -> tuple[Array, Array, Array, Array]:
    """Terms of rows, their derivatives in all predictors but the first, and the largest numbers they are made of."""
    free = eta.shape[1] - 1
    size = np.abs(eta).max(axis=1)
    eta = eta - eta.max(axis=1, keepdims=True)
    share = np.exp(eta)
    total = share.sum(axis=1)
    share /= total[:, None]
    level = eta[own] - np.log(total)
    left = -share
    left[own] += 1.0
    bend = np.empty((free, free, len(eta)))
    for k in range(free):
        for j in range(k + 1):
            # 1 less a share may round to 0 where the shares of other classes do not.
            rest = np.delete(share, k + 1, axis=1).sum(axis=1) if k == j else -share[:, j + 1]
            bend[k, j] = bend[j, k] = share[:, k + 1] * rest
    return level, left[:, 1:], bend, np.maximum(size, np.abs(level))


def roots_of_rows(source: Any, factor: Array) -> Array:
    """Roots of the covariances of each row's predictors for a step ``factor @ w`` with standard normal w.

    They have shape (n_rows, free, free), with free classes but the first, and are lower triangular.
    """
    free, rows = source.n_classes - 1, source.rows
    out = np.empty((source.n_rows, free, free))
    own = by_class(source, factor)
    for part, x in chunks(rows.X):
        moved = np.stack(products_of(part, x, rows.X, rows.factors, list(own)), axis=1)
        covariance = moved @ moved.transpose(0, 2, 1)
        least = 1e-12 * np.trace(covariance, axis1=1, axis2=2)[:, None, None] + 1e-300
        out[part] = np.linalg.cholesky(covariance + least * np.eye(free))
    return out


def softmax_sums(source: Any, at: Array) -> Sums:
    """Of the terms of a `SoftmaxSource` without groups at one vector of parameters, in one pass."""
    p, free = source.rows.X.shape[1], source.n_classes - 1
    value, largest, gradient, hessian = 0.0, 0.0, np.zeros((free, p)), np.zeros((free, p, free, p))
    for some in _derivatives(source, at):
        value += float(some.level.sum())
        largest = max(largest, some.largest)
        gradient += some.slope.T @ some.x
        for k in range(free):
            for j in range(k + 1):
                hessian[k, :, j] -= some.x.T @ (some.bend[k, j][:, None] * some.x)
    for k in range(free):
        for j in range(k):
            hessian[j, :, k] = hessian[k, :, j].T
    return Sums(value, gradient.ravel(), hessian.reshape(free * p, free * p), largest)


def softmax_slope(source: Any, at: Array) -> tuple[float, Array]:
    """Sum of all terms of a `SoftmaxSource` at one vector of parameters, and its gradient, in one pass."""
    free, rows = source.n_classes - 1, source.rows
    value, by_columns = 0.0, np.zeros((free, rows.X.shape[1]))
    by_effects = [np.zeros((f.n_groups, f.width, free)) for f in rows.factors]
    for some in _derivatives(source, at):
        value += float(some.level.sum())
        by_columns += some.slope.T @ some.x
        for f, sums in zip(rows.factors, by_effects, strict=True):
            np.add.at(sums, f.codes[some.part], f.values(rows.X, some.part)[:, :, None] * some.slope[:, None])
    return value, np.concatenate([part.ravel() for part in (by_columns, *by_effects)])


def expand_softmax(source: Any, at: Array, roots: Array | None = None) -> tuple[float, Array, Arrow]:
    """Sum of all terms of a `SoftmaxSource` at one vector of parameters, its gradient and its Hessian, in one pass.

    With `roots`, as `roots_of_rows` gives them, of a source with groups: means over normal predictors of each row.

    The Hessian is dense in all but the effects of the factor that has most of them, whose blocks are kept apart. With
    p columns, q effects a group in each class, c classes and s dense parameters a pass takes O(n_rows c^2 (p + q)^2)
    time, and O(s^2 + s n_groups q c) memory.
    """
    if not source.rows.factors:
        sums = softmax_sums(source, at)
        return sums.value, sums.gradient, Arrow(sums.hessian)
    return _Expansion(source).about(at, roots)


class _Expansion:
    """Sums over rows that belong to groups, by what they are between: columns, and effects of each factor.

    `columns` has shape (free, p, free, p), with free classes but the first. `mixed` has those between columns and a
    factor, (free, p, n_groups, width, free), `own` those within the groups of one, (n_groups, width, free, width,
    free), and `crossed` those between two factors.
    """

    def __init__(self, source: Any) -> None:
        self.source, self.free = source, source.n_classes - 1
        self.factors: tuple[Factor, ...] = tuple(source.rows.factors)
        p, free = source.rows.X.shape[1], self.free
        sizes = [(f.n_groups, f.width, free) for f in self.factors]
        self.columns = np.zeros((free, p, free, p))
        self.mixed = [np.zeros((free, p, *size)) for size in sizes]
        self.own = [np.zeros((*size, *size[1:])) for size in sizes]
        self.crossed = {(a, b): np.zeros((*sizes[a], *sizes[b])) for a in range(len(sizes)) for b in range(a)}
        self.by_columns, self.by_effects = np.zeros((free, p)), [np.zeros(size) for size in sizes]

    def about(self, at: Array, roots: Array | None) -> tuple[float, Array, Arrow]:
        """Value, gradient and Hessian at one point, or their means about it."""
        value = 0.0
        for some in _derivatives(self.source, at, roots):
            value += float(some.level.sum())
            self._add(some)
        gradient = np.concatenate([part.ravel() for part in (self.by_columns, *self.by_effects)])
        return value, gradient, self._arrow()

    def _add(self, some: _Rows) -> None:
        x, bend, free = some.x, some.bend, self.free
        values = [f.values(self.source.rows.X, some.part) for f in self.factors]
        codes = [f.codes[some.part].astype(np.intp) for f in self.factors]
        of_group = [csr_array((np.ones(len(x)), c, np.arange(len(x) + 1)), shape=(len(x), f.n_groups)).T
                    for f, c in zip(self.factors, codes, strict=True)]
        self.by_columns += some.slope.T @ x
        for k in range(free):
            for j in range(free):
                self.columns[k, :, j] -= x.T @ (bend[k, j][:, None] * x)
        for a, (f, z, c) in enumerate(zip(self.factors, values, codes, strict=True)):
            for t in range(f.width):
                self.by_effects[a][:, t] += of_group[a] @ (z[:, t, None] * some.slope)
                for k in range(free):
                    for j in range(free):
                        weight = z[:, t] * bend[k, j]
                        self.mixed[a][k, :, :, t, j] -= (of_group[a] @ (weight[:, None] * x)).T
                        self.own[a][:, t, k, :, j] -= of_group[a] @ (weight[:, None] * z)
                        for b in range(a):
                            h = self.factors[b]
                            for u in range(h.width):
                                both = np.bincount(c * h.n_groups + codes[b], weight * values[b][:, u],
                                                   f.n_groups * h.n_groups)
                                self.crossed[a, b][:, t, k, :, u, j] -= both.reshape(f.n_groups, h.n_groups)

    def _arrow(self) -> Arrow:
        main, q = main_factor(self.factors), [f.width * self.free for f in self.factors]
        sizes = [self.by_columns.size, *(f.n_groups * w for f, w in zip(self.factors, q, strict=True))]
        p = sizes.pop(0)
        dense = [k for k in range(len(sizes)) if k != main]
        first = dict(zip(dense, np.cumsum([p] + [sizes[k] for k in dense]).tolist(), strict=False))
        s = p + sum(sizes[k] for k in dense)
        whole, border = np.zeros((s, s)), np.zeros((s, sizes[main]))
        whole[:p, :p] = self.columns.reshape(p, p)
        border[:p] = self.mixed[main].reshape(p, -1)
        for k in dense:
            here = slice(first[k], first[k] + sizes[k])
            whole[:p, here] = self.mixed[k].reshape(p, -1)
            whole[here, :p] = whole[:p, here].T
            table = whole[here, here].reshape(self.factors[k].n_groups, q[k], self.factors[k].n_groups, q[k])
            groups = np.arange(self.factors[k].n_groups)
            table[groups, :, groups] = self.own[k].reshape(-1, q[k], q[k])
            whole[here, here] = table.reshape(sizes[k], sizes[k])
        for (a, b), sums in self.crossed.items():
            both = sums.reshape(sizes[a], sizes[b])
            if main == a:
                border[first[b] : first[b] + sizes[b]] = both.T
            elif main == b:
                border[first[a] : first[a] + sizes[a]] = both
            else:
                whole[first[a] : first[a] + sizes[a], first[b] : first[b] + sizes[b]] = both
                whole[first[b] : first[b] + sizes[b], first[a] : first[a] + sizes[a]] = both.T
        begin = p + sum(sizes[:main])
        return Arrow(whole, border, self.own[main].reshape(-1, q[main], q[main]), begin)


def lengths_apart(source: Any, factor: Array, j: int, k: int) -> Array:
    """How far a step ``factor @ w`` with ``|w| = 1`` moves each row's predictors of classes j < k apart, at most."""
    own = by_class(source, factor)
    apart = own[k - 1] - own[j - 1] if j else own[k - 1]
    if apart.shape[1] > apart.shape[0]:
        apart = np.linalg.qr(apart.T)[1].T
    return lengths(source.rows.X, apart, source.rows.factors)


def spreads(source: Any, factor: Array) -> Array:
    """The same for the two classes that it moves farthest apart."""
    out = np.zeros(source.n_rows)
    for j, k in combinations(range(source.n_classes), 2):
        np.maximum(out, lengths_apart(source, factor, j, k), out=out)
    return out
