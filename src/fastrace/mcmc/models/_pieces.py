"""What a row of several grouping factors sees of a move: shared parameters, and the effects of its own groups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrace._models._arrow import ArrowFactor
from fastrace._models.grouping import Factor
from fastrace._models.rows import CHUNK, lengths

__all__ = ["Pieces", "pieces_of"]

Array = NDArray[np.float64]

MARGIN = 5.0  # standard deviations beyond sqrt(width) of a piece within which the bounds on rows hold
FLOOR = 1e-6  # least share of the variance of effects that is left when the shared parameters are known
ROUNDING = 1e-13  # of correlations between effects of a group


@dataclass(frozen=True, eq=False)
class Pieces:
    r"""Coordinates in which each row sees few numbers, for a step :math:`\delta` from the point of expansion.

    The shared piece is :math:`s = R_0^{-1} t`, where t holds all parameters that are no effects, and of each effect its
    mean over the groups of its factor. Group g has the piece :math:`u_g = R_g^{-1} (\delta_g - T_g t)`, its effects
    less what t says of them. With R from the posterior's covariance, the numbers of a piece are uncorrelated and have
    variance 1. A row moves its predictor by at most the sum over its pieces of their lengths times the norms of R'x,
    with x what the piece's coordinates multiply.

    Where a factor is nested in another one, rows see the sums of their effects, which vary far less than the effects.
    These sums are then the effects of the finer factor, and the coarser one has no pieces.

    Attributes
    ----------
    kept : tuple of int
        Factors that have pieces.
    sums : ndarray of int, shape (n_sums, 2)
        An effect of these, and one of a coarser factor that comes to it in the rows' predictors.
    rest : ndarray of int, shape (k,)
        Parameters that are no effects.
    places : ndarray of int, shape (n_kept, 3)
        First effect, number of groups and number of effects a group, of each factor that has pieces.
    root : ndarray of shape (m, m)
        R_0, lower triangular.
    response : ndarray of shape (n_seen, m)
        T of all parameters, times R_0: how each moves with s; sums in the places of the finer effects.
    own : tuple of ndarray of shape (n_groups, width, width)
        R_g of each factor, lower triangular.
    """

    kept: tuple[int, ...]
    sums: NDArray[np.intp]
    rest: NDArray[np.intp]
    places: NDArray[np.intp]
    root: Array
    response: Array
    own: tuple[Array, ...]

    @property
    def widths(self) -> Array:
        """Numbers in the pieces that a row sees, the shared one first."""
        return np.array([len(self.root), *(width for _, _, width in self.places)], dtype=np.float64)

    @property
    def radii(self) -> Array:
        """Norms of the pieces up to which the bounds on rows hold."""
        return np.sqrt(self.widths) + MARGIN

    @property
    def n_blocks(self) -> int:
        """One for all rows, then one for each group of each factor."""
        return 1 + int(self.places[:, 1].sum())

    def maps(self) -> tuple[Array, Array, Array]:
        """From a step to the pieces, without gaps: R_0^-1; R_g^-1; and R_g^-1 T_g, group after group."""
        inverse = np.linalg.inv(self.root)
        slopes = self.response @ inverse
        own, along = [np.linalg.inv(roots) for roots in self.own], []
        for (start, count, width), roots in zip(self.places, own, strict=True):
            along.append((roots @ slopes[start : start + count * width].reshape(count, width, -1)).ravel())
        return np.asarray(inverse), np.concatenate([roots.ravel() for roots in own]), np.concatenate(along)

    def cubes(self, step: Array) -> Array:
        """Norms of all pieces of a step from the point of expansion, shape (n_blocks,), to the power of 3."""
        step = _summed(step, self.sums)
        means = [step[start : start + count * width].reshape(count, width).mean(axis=0)
                 for start, count, width in self.places]
        shared = np.linalg.solve(self.root, np.concatenate([step[self.rest], *means]))
        squares, left = [np.array([shared @ shared])], step - self.response @ shared
        for (start, count, width), roots in zip(self.places, self.own, strict=True):
            pieces = np.linalg.solve(roots, left[start : start + count * width].reshape(count, width, 1))
            squares.append(np.square(pieces).sum(axis=(1, 2)))
        return np.asarray(np.concatenate(squares) ** 1.5)

    def codes(self, factors: Sequence[Factor]) -> NDArray[np.int32]:
        """The blocks of each row, shape (n_pieces, n_rows)."""
        first = np.concatenate([[1], self.places[:, 1]]).cumsum()
        out = np.zeros((len(self.kept) + 1, len(factors[0].codes)), dtype=np.int32)
        for k, factor in enumerate(factors[i] for i in self.kept):
            np.add(factor.codes, first[k], out=out[k + 1])
        return out

    def lengths(self, table: Any, factors: Sequence[Factor]) -> Array:
        """How far a piece of norm 1 moves each row's predictor at most, shape (n_pieces, n_rows)."""
        kept = [factors[i] for i in self.kept]
        out = np.empty((len(kept) + 1, table.shape[0]))
        out[0] = lengths(table, self.response, kept)
        for k, factor in enumerate(kept):
            for first in range(0, table.shape[0], CHUNK):
                part = slice(first, min(first + CHUNK, table.shape[0]))
                moved = np.einsum("ni,nij->nj", factor.values(table, part), self.own[k][factor.codes[part]])
                out[k + 1, part] = np.sqrt(np.square(moved).sum(axis=1)) * (1.0 + 1e-12)
        return out

    def weights(self, bends: Array, across: Array, along: float = 0.0) -> Array:
        r"""Numbers c, shape (n_pieces, n_rows), that bound third derivatives by the pieces' norms.

        Parameters
        ----------
        bends : ndarray of shape (1, n_rows) or (4, n_rows)
            Bounds on the third derivatives of each row's term: in the predictor alone, or also in a learned scale.
        across : ndarray of shape (n_pieces, n_rows)
            As `lengths` gives them.
        along : float
            How far a shared piece of norm 1 moves the learned scale.

        Notes
        -----
        Let e be the sum of :math:`a_k n_k` over the pieces, with :math:`n_k` their norms over the square roots of their
        widths, and E the sum of the :math:`a_k`. As a mean of the :math:`n_k` in proportion to :math:`a_k`, e has
        :math:`e^3 \le E^2 \sum_k a_k n_k^3`. So a row's bound is a sum with one part for each piece, and rows can be
        drawn for each part alone. A learned scale moves by :math:`A n_0` at most. Products of three of these lengths,
        of two steps v and w too, follow from the inequality of the means, :math:`3 x y z \le x^3 + y^3 + z^3`:
        the third derivative in directions (w, w, v) is at most
        :math:`\sum_k c_k (2 |w_k|^3 / t + t^2 |v_k|^3) / 3` for every t > 0.
        """
        width = self.widths
        parts = across * np.sqrt(width)[:, None]
        whole, scale = parts.sum(axis=0), along * math.sqrt(width[0])
        mixed = [*bends, *np.zeros((4 - len(bends), 1))]
        share = mixed[0] * whole**2 + 2.0 * mixed[1] * whole * scale + mixed[2] * scale**2
        out = share * parts
        out[0] += mixed[1] * whole**2 * scale + 2.0 * mixed[2] * whole * scale**2 + mixed[3] * scale**3
        return np.asarray(out / (width**1.5)[:, None] * (1.0 + 1e-9))


def pieces_of(factor: ArrowFactor, factors: Sequence[Factor]) -> Pieces:
    """Pieces whose covariances are those of the inverse of what `factor` is the factor of."""
    arrow = factor.base
    kept, sums = _finest(factors)
    places = np.array([(f.start, f.n_groups, f.width) for f in (factors[i] for i in kept)], dtype=np.intp)
    effects = np.concatenate([np.arange(f.start, f.stop) for f in factors])
    rest = np.delete(np.arange(arrow.dim), effects)
    shared = np.zeros((arrow.dim, len(rest) + int(places[:, 2].sum())))
    shared[rest, np.arange(len(rest))] = 1.0
    column = len(rest)
    for start, count, width in places:
        for k in range(width):
            shared[start + k : start + count * width : width, column] = 1.0 / count
            column += 1
    shared = _summed(shared, sums[:, ::-1])
    across = np.stack([factor.solve(unit) for unit in shared.T], axis=1)  # covariances with t
    root = np.asarray(np.linalg.cholesky(shared.T @ across))
    response = np.linalg.solve(root, across.T).T
    response[rest] = root[: len(rest)]
    response = _summed(response, sums)
    own = []
    for covariance, (start, count, width) in zip(_covariances(factor, places, sums), places, strict=True):
        known = response[start : start + count * width].reshape(count, width, -1)
        own.append(_roots_of_rest(covariance, known @ known.transpose(0, 2, 1)))
    return Pieces(kept, sums, rest, places, root, response, tuple(own))


def _roots_of_rest(covariance: Array, explained: Array) -> Array:
    """Lower triangular roots of covariances less what is explained of them, of which a share is left in any direction.

    Shares do not depend on the units or the origin of what the effects multiply.
    """
    scale = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    units = scale[:, :, None] * scale[:, None, :]
    root = np.linalg.cholesky(covariance / units + ROUNDING * np.eye(covariance.shape[1]))
    inverse = np.linalg.inv(root)
    share = inverse @ ((covariance - explained) / units) @ inverse.transpose(0, 2, 1)
    values, vectors = np.linalg.eigh(0.5 * (share + share.transpose(0, 2, 1)))
    half = scale[:, :, None] * (root @ vectors) * np.sqrt(np.maximum(values, FLOOR))[:, None, :]
    upper: Array = np.linalg.qr(half.transpose(0, 2, 1), mode="r")  # type: ignore[assignment]
    return upper.transpose(0, 2, 1)


def _finest(factors: Sequence[Factor]) -> tuple[tuple[int, ...], NDArray[np.intp]]:
    """`Pieces.kept` and `Pieces.sums`: factors without a finer one whose effects multiply all that theirs do."""
    sizes = [(np.count_nonzero(np.bincount(factor.codes)), factor.width) for factor in factors]
    order = sorted(range(len(factors)), key=sizes.__getitem__, reverse=True)
    kept: list[int] = []
    sums = [np.empty((0, 2), dtype=np.intp)]
    for i in order:
        for finer in (factors[j] for j in kept):
            found = _sums(factors[i], finer)
            if found is not None:
                sums.append(found)
                break
        else:
            kept.append(i)
    return tuple(sorted(kept)), np.concatenate(sums)


def _sums(coarse: Factor, fine: Factor) -> NDArray[np.intp] | None:
    """Effects of `fine` and those of `coarse` that come to them; None if it is not nested in `coarse`."""
    group = np.full(fine.n_groups, -1, dtype=np.intp)
    group[fine.codes] = coarse.codes
    if not np.array_equal(group[fine.codes], coarse.codes):
        return None
    own, theirs = _multiplied(coarse), _multiplied(fine)
    if not set(own) <= set(theirs):
        return None
    seen = np.flatnonzero(group >= 0)  # groups without a row have no group around them
    pairs = [(fine.start + fine.width * seen + theirs.index(term), coarse.start + coarse.width * group[seen] + k)
             for k, term in enumerate(own)]
    return np.concatenate([np.stack(pair, axis=1) for pair in pairs]).astype(np.intp)


def _multiplied(factor: Factor) -> list[object]:
    """What tells apart the values that the effects of a group multiply, and the classes of which they are."""
    table = () if factor.table is None else [column.tobytes() for column in factor.table.T]
    own = ["1"] * factor.intercept + list(factor.columns if factor.table is None else table)
    return [(value, k) for value in own for k in range(factor.width // len(own))]


def _covariances(factor: ArrowFactor, places: NDArray[np.intp], sums: NDArray[np.intp]) -> list[Array]:
    """Of the effects of each group, shape (n_groups, width, width) for each place; with `sums`, of their sums."""
    arrow, out, coordinates = factor.base, [], []
    dense, blocks = factor.block_covariances()
    place = np.cumsum(np.isin(np.arange(arrow.dim), arrow.block_coordinates()[1])) - 1
    for start, count, width in places:
        index = start + np.arange(count * width).reshape(count, width)
        coordinates.append(index)
        index = place[index]
        of_blocks = arrow.n_blocks and start == arrow.start
        out.append(np.array(blocks) if of_blocks else dense[index[:, :, None], index[:, None, :]])
    for coarse in np.unique(sums[:, 1]):
        unit = np.zeros(arrow.dim)
        unit[coarse] = 1.0
        across = factor.solve(unit)
        summed, onto = _summed(across, sums), sums[sums[:, 1] == coarse, 0]
        for covariance, index, (start, count, width) in zip(out, coordinates, places, strict=True):
            if start <= onto[0] < start + count * width:  # those of a coarser effect are of one factor
                group, k = np.divmod(onto - start, width)
                covariance[group, :, k] += summed[index[group]]
                covariance[group, k, :] += across[index[group]]
    return out


def _summed(values: Array, sums: NDArray[np.intp]) -> Array:
    """Values of all parameters, those of coarser effects added to those of the finer ones."""
    out = values.copy()
    np.add.at(out, sums[:, 0], values[sums[:, 1]])
    return out
