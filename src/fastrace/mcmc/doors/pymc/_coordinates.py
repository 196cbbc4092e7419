"""Parameters of a PyMC model and those of the `GLM` that it is: from the ones to the others."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastrace.mcmc.doors.pymc._shrinkage import Shrunk
from fastrace.mcmc.models.glm import GLM

__all__ = ["Factor", "Hierarchy"]

Array = NDArray[np.float64]
Places = NDArray[np.intp]


class Factor(NamedTuple):
    """Where one grouping factor's effects stand in PyMC's parameters, and what they are there.

    Attributes
    ----------
    places : ndarray of shape (n_groups, n_terms)
        Of the effects.
    standardised : ndarray of bool, shape (n_terms,)
        Whether PyMC's effects are in units of the root of their covariance.
    constants : ndarray of shape (n_groups, n_terms)
        What PyMC's effects have beside those of the `GLM`, whose mean is 0;
    columns, slopes : ndarray of shape (k,), of shape (n_groups, n_terms, k)
        and coefficients of the `GLM`, with what these are multiplied by in the mean of PyMC's effects.
    log_sds : ndarray of shape (n_terms,)
        Of the logarithms of standard deviations; empty where `packed` is not.
    packed : ndarray of shape (n_terms (n_terms + 1) / 2,)
        Of the root of the covariance, row by row, with the logarithms of its diagonal; or empty.
    logits : ndarray of shape (n_terms (n_terms - 1) / 2,)
        Of ``log((1 + r) / (1 - r))`` of the correlations r, row by row of the upper triangle; or empty.
    """

    places: Places
    standardised: NDArray[np.bool_]
    constants: Array
    columns: Places
    slopes: Array
    log_sds: Places
    packed: Places
    logits: Places

    @property
    def related(self) -> bool:
        """Whether there are correlations."""
        return len(self.packed) > 1 or len(self.logits) > 0

    @property
    def n_hyper(self) -> int:
        """Standard deviations and correlations."""
        q = len(self.standardised)
        return q + (q * (q - 1) // 2 if self.related else 0)

    def means(self, coefficients: Array) -> Array:
        """Of PyMC's effects where they are not standardised, shape (..., n_groups, n_terms)."""
        return self.constants + np.einsum("...k,gtk->...gt", coefficients[..., self.columns], self.slopes)

    def unit_root(self, hyper: Array) -> Array:
        """Cholesky factors of the correlations, shape (..., n_terms, n_terms), of standard deviations and these."""
        q = len(self.standardised)
        matrix = np.zeros((*hyper.shape[:-1], q, q))
        matrix[..., np.arange(q), np.arange(q)] = 1.0
        if self.related:
            rows, columns = np.tril_indices(q, -1)
            matrix[..., rows, columns] = matrix[..., columns, rows] = hyper[..., q:]
        return np.asarray(np.linalg.cholesky(matrix))

    def hyper_of(self, theta: Array) -> Array:
        """Standard deviations and correlations, of PyMC's parameters."""
        q = len(self.standardised)
        rows, columns = np.tril_indices(q, -1)
        if len(self.packed):
            root = np.zeros((*theta.shape[:-1], q, q))
            root[..., *np.tril_indices(q)] = theta[..., self.packed]
            root[..., np.arange(q), np.arange(q)] = np.exp(root[..., np.arange(q), np.arange(q)])
            sds = np.sqrt(np.square(root).sum(axis=-1))
            unit = root / sds[..., None]
            correlations = (unit[..., rows, :] * unit[..., columns, :]).sum(axis=-1)
            return np.concatenate([sds, correlations], axis=-1)
        sds = np.exp(theta[..., self.log_sds])
        if not self.related:
            return np.asarray(sds)
        matrix = np.zeros((*theta.shape[:-1], q, q))
        matrix[..., *np.triu_indices(q, 1)] = np.tanh(0.5 * theta[..., self.logits])
        return np.concatenate([sds, matrix[..., columns, rows]], axis=-1)

    def put_hyper(self, hyper: Array, unit: Array, out: Array) -> None:
        """The inverse, written to PyMC's parameters; `unit` is what `unit_root` gives."""
        q = len(self.standardised)
        if len(self.packed):
            root = hyper[..., :q, None] * unit
            diagonal = np.arange(q)
            root[..., diagonal, diagonal] = np.log(root[..., diagonal, diagonal])
            out[..., self.packed] = root[..., *np.tril_indices(q)]
            return
        out[..., self.log_sds] = np.log(hyper[..., :q])
        if self.related:
            matrix = np.zeros((*hyper.shape[:-1], q, q))
            rows, columns = np.tril_indices(q, -1)
            matrix[..., columns, rows] = hyper[..., q:]
            out[..., self.logits] = 2.0 * np.arctanh(matrix[..., *np.triu_indices(q, 1)])

    def log_jacobian(self, hyper: Array) -> float:
        """Of PyMC's parameters by logarithms of standard deviations and inverse hyperbolic tangents of partial
        correlations, at one point."""
        q, unit = len(self.standardised), self.unit_root(hyper)
        logs = np.log(hyper[:q])
        roots = logs + np.log(np.diagonal(unit))
        out = -len(self.places) * float(roots[self.standardised].sum())
        left = 1.0 - np.cumsum(np.square(unit), axis=1)  # of a row, after each entry
        for i in range(1, q if self.related else 0):
            shares = np.log(np.maximum(left[i, :i], 0.0)) - np.log(np.r_[1.0, left[i, : i - 1]])  # 1 - z^2
            if len(self.packed):
                out += i * logs[i] + 0.5 * float((i - 1 - np.arange(i)) @ shares)
                continue
            own = unit[:i] @ unit[i]  # correlations
            out += (q - 1 - i) * math.log(unit[i, i]) + float(shares.sum() + 0.5 * np.log(left[i, : i - 1]).sum())
            out += float(np.log(2.0 / (1.0 - np.square(own))).sum())
        return out


class Hierarchy(NamedTuple):
    """A `GLM` with the posterior of a PyMC model, and where its parameters stand in that model's.

    ``columns[k]`` is the parameter of PyMC that coefficient k is; `log_scale` is the place of the logarithm of what the
    family's scale is a power of, times exp(`log_factor`), or -1.
    """

    glm: GLM
    columns: Places
    factors: list[Factor]
    log_scale: int
    dim: int
    power: float = 1.0
    log_factor: float = 0.0
    shrunk: Sequence[Shrunk] = ()

    def _starts(self) -> list[tuple[Factor, int, int]]:
        """Each factor, with the first of its effects and of its hyperparameters among those of the `GLM`."""
        first = len(self.columns)
        hyper = first + sum(f.places.size for f in self.factors) + (self.log_scale >= 0)
        hyper += sum(s.n_hyper for s in self.shrunk)
        out = []
        for f in self.factors:
            out.append((f, first, hyper))
            first, hyper = first + f.places.size, hyper + f.n_hyper
        return out

    def _horseshoes(self) -> Iterator[tuple[Shrunk, slice]]:
        """Each horseshoe, with its hyperparameters among those of the `GLM`."""
        first = len(self.columns) + sum(f.places.size for f in self.factors) + (self.log_scale >= 0)
        for s in self.shrunk:
            yield s, slice(first, first + s.n_hyper)
            first += s.n_hyper

    def from_glm(self, draws: Array) -> Array:
        """Draws of the model, scales as they are, as parameters of PyMC, their logarithms among these."""
        out = np.zeros((*draws.shape[:-1], self.dim))
        first = len(self.columns)
        out[..., self.columns] = draws[..., :first]
        if self.log_scale >= 0:
            scale = draws[..., first + sum(f.places.size for f in self.factors)]
            out[..., self.log_scale] = (np.log(scale) - self.log_factor) / self.power
        for s, where in self._horseshoes():
            s.put_hyper(draws[..., where], out[..., self.log_scale], out)
            if s.standardised:
                out[..., s.places] /= s.widths(draws[..., where])
        for f, first, start in self._starts():
            hyper, q = draws[..., start : start + f.n_hyper], len(f.standardised)
            effects = draws[..., first : first + f.places.size].reshape(*draws.shape[:-1], *f.places.shape)
            unit = f.unit_root(hyper)
            if f.standardised.any():
                units = np.array(effects)
                for k in range(q):  # forward substitution
                    units[..., k] = effects[..., k] / hyper[..., k, None]
                    for j in range(k):
                        units[..., k] -= unit[..., k, j, None] * units[..., j]
                    units[..., k] /= unit[..., k, k, None]
                effects = np.where(f.standardised, units, effects)
            if not f.standardised.all():
                effects = effects + np.where(f.standardised, 0.0, f.means(draws[..., : len(self.columns)]))
            out[..., f.places] = effects
            f.put_hyper(hyper, unit, out)
        return out

    def to_glm(self, theta: Array) -> Array:
        """The inverse of `from_glm`."""
        coefficients, parts, hypers = np.array(theta[..., self.columns]), [], []
        for s in self.shrunk:
            hyper = s.hyper_of(theta, theta[..., self.log_scale])
            hypers.append(hyper)
            if s.standardised:
                coefficients[..., s.columns] *= s.widths(hyper)
        for f in self.factors:
            hyper, effects = f.hyper_of(theta), theta[..., f.places]
            root = hyper[..., : len(f.standardised), None] * f.unit_root(hyper)
            spread = np.einsum("...tk,...gk->...gt", root, effects)
            effects = np.where(f.standardised, spread, effects - f.means(coefficients))
            parts.append(effects.reshape(*theta.shape[:-1], f.places.size))
            hypers.append(hyper)
        logs = theta[..., self.log_scale : self.log_scale + 1] if self.log_scale >= 0 else theta[..., :0]
        scale = [np.exp(self.power * logs + self.log_factor)]
        return np.concatenate([coefficients, *parts, *scale, *hypers], axis=-1)

    def log_jacobian(self, draws: Array) -> float:
        """Of PyMC's parameters by those that chains of the model move, at one point, scales as they are."""
        out = sum(f.log_jacobian(draws[start : start + f.n_hyper]) for f, _, start in self._starts())
        return out - sum(float(np.log(s.widths(draws[where])).sum()) for s, where in self._horseshoes()
                         if s.standardised)
