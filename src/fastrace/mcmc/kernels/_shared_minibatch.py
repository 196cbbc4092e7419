"""Runs of independent proposals, a batch of which is decided by one Poisson minibatch of rows."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from fastrace._base import _checks
from fastrace._models._expanded import Expanded
from fastrace.mcmc.kernels._metropolis import coefficients
from fastrace.mcmc.kernels._rows import ChainState, Tuning
from fastrace.mcmc.protocol import Steps, from_flags

__all__ = ["SharedMinibatch", "beyond_bounds"]

Array = NDArray[np.float64]

ACCEPTED = 1  # flag of a step
_AT_ONCE = 4096  # rows whose residuals are computed at once


class SharedMinibatch:
    """A run whose steps come in batches. All decisions of a batch rest on the rows that its minibatch has drawn.

    Row i, with residual r_i of the expansion and bound b_i on its size, is drawn a Poisson number of times with mean
    b_i + r_i(theta) at the chain's point theta. That number leaves a factor b_i + r_i to the law of theta given the
    minibatch, for each time, and takes exp(r_i) from it: so all other rows have left it. Steps of a batch are
    Metropolis-Hastings steps on that law. A point v is whitened, from the center of the proposals.

    `held` are draws of the last batch that are still to come, with their flags and rows: a run may be cut between any
    two of them. The chain itself is at the last of them already, at the whitened point `v`.
    """

    n_cached = 4  # parts of what a state knows besides its position

    def __init__(self, kernel: Any, state: ChainState, n: int) -> None:
        self.kernel, self.start = kernel, state
        about, tuning = kernel.reference, state.tuning
        terms, self.theta = kernel.model._arms(kernel.batch + 1)
        self.source = Expanded(terms, about.theta_hat)
        self.log_prior = kernel.model.log_prior_beside(about)
        self.walk = coefficients(kernel.proposal, 1.0, kernel.model.dim, kernel.walk_share)[2]
        self.middle = tuning.center + tuning.factor @ (kernel.lean + np.zeros(kernel.model.dim))
        self.draws, self.n_done = np.empty((n, kernel.model.dim)), 0
        self.flags, self.rows = np.zeros(n, np.uint8), np.zeros(n, np.int64)
        self.position, self.v = state.position, state.whitened - kernel.lean
        self.held: tuple[Array, NDArray[np.uint8], NDArray[np.int64]] = self.draws[:0], self.flags[:0], self.rows[:0]
        if isinstance(state.cache, tuple) and len(state.cache) == self.n_cached:
            self.v, self.held = state.cache[0], state.cache[1:]
        if self._prior(self.position) == -math.inf:
            raise ValueError(f"log_prior is -inf at the chain's own state {self.position}; a chain must start where it "
                             f"is finite: give such a point as init")

    def advance(self, rng: np.random.Generator, count: int) -> None:
        """Make at most `count` steps."""
        draws, flags, rows = self.held if len(self.held[0]) else self._batch(rng)
        now = slice(self.n_done, self.n_done + min(count, len(draws)))
        count = now.stop - now.start
        self.draws[now], self.flags[now], self.rows[now] = draws[:count], flags[:count], rows[:count]
        self.held, self.position = (draws[count:], flags[count:], rows[count:]), draws[count - 1]
        self.n_done = now.stop

    def _batch(self, rng: np.random.Generator) -> tuple[Array, NDArray[np.uint8], NDArray[np.int64]]:
        kernel, size, tuning = self.kernel, self.kernel.batch, self.start.tuning
        walks = rng.random(size) < kernel.walk_share
        points = np.concatenate([self.v[None], rng.standard_normal((size, len(self.v)))])
        levels = (-rng.standard_exponential(size)).tolist()
        self.theta[:] = self.middle + points @ tuning.factor.T
        self.theta[0] = self.position  # a chain that stays keeps its point to the last digit
        rows = self._drawn(rng)
        apart = np.concatenate([[True], ~walks])
        weights = np.empty(size + 1)
        weights[apart] = self._weights(rows, np.flatnonzero(apart), points[apart])
        found, chosen, here = weights.tolist(), np.empty(size, np.intp), 0
        for k in range(1, size + 1):
            level = levels[k - 1]
            if walks[k - 1]:
                old, new = points[here], points[here] + self.walk * points[k]
                points[k], self.theta[k] = new, self.middle + tuning.factor @ new
                found[k] = float(self._weights(rows, np.array([k]), new[None])[0])
                level += 0.5 * float(new @ new - old @ old)
            if level < found[k] - found[here]:
                here = k
            chosen[k - 1] = here
        flags = np.where(chosen == np.arange(1, size + 1), ACCEPTED, 0).astype(np.uint8)
        self.v = points[here].copy()
        return self.theta[chosen], flags, np.full(size, len(rows), np.int64)

    def _drawn(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Rows of a minibatch, as often as they are drawn, in their order; the chain's point is that of arm 0.

        They are drawn at twice their bounds, and kept with probability 1/2 + r / (2 b).
        """
        sums = self.kernel._sums_of_bounds
        count = rng.poisson(2.0 * sums[-1])
        rows = np.searchsorted(sums, np.sort(rng.random(count)) * sums[-1], side="right")
        rows = np.minimum(rows, len(sums) - 1).astype(np.int64)
        return rows[2.0 * rng.random(count) < 1.0 + self._shares(rows, np.zeros(1, np.intp))[0]]

    def _shares(self, rows: NDArray[np.int64], arms: NDArray[np.intp]) -> Array:
        """r / b of rows at each of some points, shape (n_arms, n_rows), cut at -1 and 1."""
        left = self.source.read(rows, arms).T
        left /= self.kernel._bounds_of_rows[rows]
        if np.isnan(left).any():
            j, i = np.argwhere(np.isnan(left))[0]
            raise ValueError(f"the log-likelihood of row {rows[i]} is nan at {_checks.shown(self.theta[arms[j]])}; a "
                             f"number is needed")
        return np.clip(left, -1.0, 1.0, out=left)

    def _weights(self, rows: NDArray[np.int64], arms: NDArray[np.intp], points: Array) -> Array:
        """Log of the density given the minibatch over that of proposals, at points that stand in these arms."""
        shares = self._shares(rows, arms)
        with np.errstate(divide="ignore"):
            out = np.log1p(shares, out=shares).sum(axis=1)
        out -= (points * self.kernel.lean).sum(axis=1)
        if self.log_prior is not None:
            out += [self._prior(self.theta[arm]) for arm in arms]
        return np.asarray(out)

    def _prior(self, point: Array) -> float:
        return 0.0 if self.log_prior is None else _checks.log_density_at(self.log_prior, point.copy())

    def state(self) -> ChainState:
        tuning: Tuning = self.start.tuning
        whitened = solve_triangular(tuning.factor, self.position - tuning.center, lower=True)
        return replace(self.start, position=self.position, whitened=whitened, cache=(self.v, *self.held))

    def steps(self) -> Steps:
        n = self.n_done
        return from_flags(self.kernel._recorded(self.draws[:n]), self.rows[:n], np.ones(n, np.int32), self.flags[:n])


def beyond_bounds(kernel: Any, points: Array) -> int:
    """At how many points, shape (n, dim), some row's residual is beyond its bound; by all rows."""
    about, model = kernel.reference, kernel.model
    terms, theta = model._arms(len(points))
    theta[:] = points
    source, found = Expanded(terms, about.theta_hat), np.zeros(len(points), bool)
    for first in range(0, model.n_rows, _AT_ONCE):
        rows = np.arange(first, min(first + _AT_ONCE, model.n_rows))
        limits = kernel._bounds_of_rows[rows] * (1.0 + 1e-9) + max(about.rounding, 1e-10)
        found |= ~(np.abs(source.read(rows)) <= limits[:, None]).all(axis=0)
    return int(found.sum())
