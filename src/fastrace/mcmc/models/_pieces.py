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
from fastrace.mcmc.models._rows import CHUNK, lengths

__all__ = ["Pieces", "pieces_of"]

Array = NDArray[np.float64]

MARGIN = 5.0  # standard deviations beyond sqrt(width) of a piece within which the bounds on rows hold
FLOOR = 1e-6  # least share of an effect's variance that is left when the shared parameters are known


@dataclass(frozen=True, eq=False)
class Pieces:
    r"""Coordinates in which each row sees few numbers, for a step :math:`\delta` from the point of expansion.

    The shared piece is :math:`s = R_0^{-1} t`, where t holds all parameters that are no effects, and of each effect its
    mean over the groups of its factor. Group g has the piece :math:`u_g = R_g^{-1} (\delta_g - T_g t)`, its effects
    less what t says of them. With R from the posterior's covariance, the numbers of a piece are uncorrelated and have
    variance 1. A row moves its predictor by at most the sum over its pieces of their lengths times the norms of R'x,
    with x what the piece's coordinates multiply.

    Attributes
    ----------
    rest : ndarray of int, shape (k,)
        Parameters that are no effects.
    places : ndarray of int, shape (n_factors, 3)
        First effect, number of groups and number of effects a group, of each factor.
    root : ndarray of shape (m, m)
        R_0, lower triangular.
    response : ndarray of shape (n_seen, m)
        T of all parameters, times R_0: how each moves with s.
    own : tuple of ndarray of shape (n_groups, width, width)
        R_g of each factor, lower triangular.
    """

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
        out = np.zeros((len(factors) + 1, len(factors[0].codes)), dtype=np.int32)
        for k, factor in enumerate(factors):
            np.add(factor.codes, first[k], out=out[k + 1])
        return out

    def lengths(self, table: Any, factors: Sequence[Factor]) -> Array:
        """How far a piece of norm 1 moves each row's predictor at most, shape (n_pieces, n_rows)."""
        out = np.empty((len(factors) + 1, table.shape[0]))
        out[0] = lengths(table, self.response, factors)
        for k, factor in enumerate(factors):
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
    places = np.array([(f.start, f.n_groups, f.width) for f in factors], dtype=np.intp)
    effects = np.concatenate([np.arange(f.start, f.stop) for f in factors])
    rest = np.delete(np.arange(arrow.dim), effects)
    shared = np.zeros((arrow.dim, len(rest) + int(places[:, 2].sum())))
    shared[rest, np.arange(len(rest))] = 1.0
    column = len(rest)
    for start, count, width in places:
        for k in range(width):
            shared[start + k : start + count * width : width, column] = 1.0 / count
            column += 1
    across = np.stack([factor.solve(unit) for unit in shared.T], axis=1)  # covariances with t
    root = np.asarray(np.linalg.cholesky(shared.T @ across))
    response = np.linalg.solve(root, across.T).T
    response[rest] = root[: len(rest)]
    dense, blocks = factor.block_covariances()
    place = np.cumsum(np.isin(np.arange(arrow.dim), arrow.block_coordinates()[1])) - 1
    own = []
    for start, count, width in places:
        if arrow.n_blocks and start == arrow.start:
            covariance = blocks
        else:
            index = place[start] + np.arange(count * width).reshape(count, width)
            covariance = dense[index[:, :, None], index[:, None, :]]
        known = response[start : start + count * width].reshape(count, width, -1)
        left = covariance - known @ known.transpose(0, 2, 1)
        values, vectors = np.linalg.eigh(0.5 * (left + left.transpose(0, 2, 1)))
        least = FLOOR * np.trace(covariance, axis1=1, axis2=2)[:, None]
        left = (vectors * np.maximum(values, least)[:, None, :]) @ vectors.transpose(0, 2, 1)
        own.append(np.linalg.cholesky(0.5 * (left + left.transpose(0, 2, 1))))
    return Pieces(rest, places, root, response, tuple(own))
