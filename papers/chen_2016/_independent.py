"""Independent proposals of an ARCH model's order and parameters, for `arch_selection`: the sampler ``independent``.

The log-likelihood of each order is expanded once, by its weights and nu. With the Exp(1) priors, which hold these
parameters above 0, the expansion is a normal density cut off at 0: a surrogate posterior that reads no return. A
proposal draws an order in proportion to its surrogate evidence and prior weight, then parameters from the surrogate of
that order, coordinate after coordinate as Geweke, Hajivassiliou and Keane do, so that the density is known. Neither
depends on the state. A race decides on what the expansions leave of both likelihoods, which may be of two orders.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

import fastrace as fr
from fastrace._models._arch import ArchSource
from fastrace._models._expanded import Expanded, Expansion
from fastrace.control_variates import ControlVariate
from fastrace.mcmc.models.arch import term_sums

Array = NDArray[np.float64]
ROUNDS = 40                 # expansions of an order at most
SETTLED = 0.1               # standard deviations that the mean moves by, root mean square: then it is taken
FAR = 3.0                   # times that a parameter grows or shrinks by at most between two expansions
SHARE = 8                   # at first one row in so many is expanded
DRAWS = 512                 # of a surrogate, for its mean and evidence
BATCH = 64                  # draws made at once
PILOT = 4                   # draws of each order that all returns are read of
ALWAYS_READ = 0.08          # share of returns that the expansions fit worst
FLAT = 1e-4                 # smallest curvature, with those of single parameters scaled to 1


@dataclass
class Cut:
    """A normal density cut off at 0 in every coordinate, drawn from one coordinate after the other.

    Those that 0 cuts off most of stand first, so that draws have nearly the density itself.
    """

    center: Array
    order: NDArray[np.intp]
    root: Array                 # Cholesky factor of the covariance of the coordinates in that order

    @classmethod
    def of(cls, center: Array, precision: Array) -> Cut:
        covariance = np.linalg.inv(precision)
        order = np.argsort(center / np.sqrt(np.diagonal(covariance)), kind="stable")
        return cls(center, order, np.linalg.cholesky(covariance[np.ix_(order, order)]))

    def draws(self, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draws of shape (n, d), and their log densities."""
        d = len(self.center)
        noise, inside = np.zeros((n, d)), np.zeros(n)
        for k in range(d):
            log_share = special.log_ndtr((self.center[self.order[k]] + noise[:, :k] @ self.root[k, :k])
                                         / self.root[k, k])
            noise[:, k] = -special.ndtri_exp(log_share - rng.standard_exponential(n))
            inside += log_share
        x = np.empty((n, d))
        x[:, self.order] = self.center[self.order] + noise @ self.root.T
        constant = 0.5 * d * np.log(2.0 * np.pi) + np.log(np.diagonal(self.root)).sum()
        return np.maximum(x, 1e-12), -0.5 * (noise * noise).sum(axis=1) - constant - inside


def bent(hessian: Array) -> Array:
    """Minus a Hessian, made positive definite: what is curved up is taken to be curved down as much."""
    scale = np.sqrt(np.maximum(np.abs(np.diagonal(hessian)), 1e-300))
    values, vectors = np.linalg.eigh(-hessian / np.outer(scale, scale))
    return np.asarray(np.outer(scale, scale) * ((vectors * np.maximum(np.abs(values), FLAT)) @ vectors.T))


class Surrogates:
    """Of each order the expansion, the cut normal density that it makes with the prior, and its evidence.

    Attributes
    ----------
    hat : ndarray of shape (n_orders, longest + 2)
        Points of expansion, about the surrogates' means: weights first, nu in the last column.
    log_evidence : ndarray of shape (n_orders,)
        Of the surrogates, corrected by the mean of what they leave of the likelihood at a few draws.
    evaluations : int
        Terms, gradients and Hessians, of one model and return, that were computed.
    always_read : ndarray of int
        Returns whose terms the expansions fit worst.
    """

    def __init__(self, posterior: Any, rng: np.random.Generator) -> None:
        self.posterior = posterior
        self.evaluations = 0
        n = len(posterior.orders)
        self.hat = np.zeros((n, posterior.most + 2))
        self.parts: list[tuple[float, Array, Array]] = []
        self.cuts: list[Cut] = []
        self.log_evidence = np.zeros(n)
        first = posterior.orders[0]
        start = np.array([0.3, *[0.6 / first] * first, 5.0])
        for j, q in enumerate(posterior.orders):
            more = np.full(max(0, q + 2 - len(start)), 0.1 / q)
            start = np.concatenate([start[:-1][: q + 1], more, start[-1:]])
            for step in (SHARE, 1):
                start = self._settle(start, slice(None, None, step), rng)
            self._take(j, start, rng)
        self._read_some(rng)

    def _sums(self, x: Array, rows: slice) -> tuple[float, Array, Array]:
        """Sum of the terms, its gradient and Hessian, from some rows."""
        lags = self.posterior.lags[rows, : len(x) - 1]
        self.evaluations += 3 * len(lags)
        times = self.posterior.n_terms / len(lags)
        value, slope, hessian = term_sums(self.posterior.squares[rows], lags, lags @ x[:-1], x[-1])
        return times * value, times * slope, times * hessian

    def _settle(self, x: Array, rows: slice, rng: np.random.Generator) -> Array:
        """About where the mean of the surrogate is that is expanded there."""
        for _ in range(ROUNDS):
            _, slope, hessian = self._sums(x, rows)
            precision = bent(hessian)
            found, log_density = Cut.of(x + np.linalg.solve(precision, slope - 1.0), precision).draws(DRAWS, rng)
            apart = found - x
            log_weight = apart @ (slope - 1.0) - 0.5 * ((apart @ precision) * apart).sum(axis=1) - log_density
            weight = special.softmax(log_weight)
            mean = weight @ found
            spread = np.sqrt(weight @ np.square(found - mean))
            moved = np.sqrt(np.mean(np.square((mean - x) / np.maximum(spread, 1e-12))))
            x = np.clip(mean, x / FAR, FAR * np.maximum(x, spread))
            if moved < SETTLED * (3.0 if rows.step != 1 else 1.0):
                break
        return x

    def _take(self, j: int, x: Array, rng: np.random.Generator) -> None:
        used = self.posterior.used[j]
        self.hat[j, used] = x
        value, slope, hessian = self._sums(x, slice(None))
        self.parts.append((value, slope, hessian))
        precision = bent(hessian)
        self.cuts.append(Cut.of(x + np.linalg.solve(precision, slope - 1.0), precision))
        found, log_density = self.cuts[j].draws(DRAWS, rng)
        self.log_evidence[j] = special.logsumexp(self.known(j, found) - log_density) - np.log(DRAWS)

    def known(self, j: int, x: Array) -> Array:
        """Log of prior and expanded likelihood at points of shape (k, d)."""
        value, slope, hessian = self.parts[j]
        apart = x - self.hat[j, self.posterior.used[j]]
        return np.asarray(value + apart @ slope + 0.5 * ((apart @ hessian) * apart).sum(axis=1) - x.sum(axis=1))

    def _read_some(self, rng: np.random.Generator) -> None:
        """What the expansions leave at a few draws: which returns they fit worst, and the evidence with it."""
        p, n = self.posterior, len(self.hat)
        now, left = self.hat.copy(), self.residuals()
        worst, total = np.zeros(left.n_rows), np.zeros((PILOT, n))
        draws = [cut.draws(PILOT, rng) for cut in self.cuts]
        for k in range(PILOT):
            for j, used in enumerate(p.used):
                now[j, used] = draws[j][0][k]
            p.set(now, np.zeros(n))
            apart = left.read(np.arange(left.n_rows))
            self.evaluations += apart.size
            np.maximum(worst, np.abs(apart).max(axis=1), out=worst)
            total[k] = apart.sum(axis=0)
        for j in range(n):
            found, log_density = draws[j]
            surrogate = self.known(j, found) - log_density
            self.log_evidence[j] += special.logsumexp(surrogate + total[:, j]) - special.logsumexp(surrogate)
        self.always_read = np.sort(np.argsort(worst, kind="stable")[left.n_rows - int(ALWAYS_READ * left.n_rows) :])

    def residuals(self) -> Expanded:
        """What the expansions leave of every order's terms, at the parameters that `OrderPosterior.set` has set."""
        return Expanded(self.posterior.plain, self.hat)

    def beside(self, j: int, x: Array, log_density: Array) -> Array:
        """Log of prior and expanded likelihood over the density of proposals, but for prior weights, which cancel."""
        return self.known(j, x) - log_density - self.log_evidence[j]


class Independent:
    """A chain of the order and its parameters: independent proposals, each accepted by one race.

    A change of the prior weights needs no correction, since proposals of an order are in proportion to them.
    """

    def __init__(self, posterior: Any, delta: float, rng: np.random.Generator, walk: np.random.Generator) -> None:
        self.p, self.delta, self.rng, self.walk = posterior, delta, rng, walk
        self.surrogates = Surrogates(posterior, walk)
        self.evaluations, self.aside = 0, 0.0      # aside: seconds of checks
        self.set_up = self.surrogates.evaluations
        self.pairs: dict[tuple[int, int], tuple[Array, Array, fr.AcceptTest]] = {}
        self.pool: list[list[tuple[Array, float]]] = [[] for _ in posterior.orders]
        self.order = int(walk.integers(len(posterior.orders)))
        self.x, self.beside = self._drawn(self.order)

    def _drawn(self, j: int) -> tuple[Array, float]:
        """Parameters of an order from its surrogate, and what `Surrogates.beside` says there."""
        if not self.pool[j]:
            found, log_density = self.surrogates.cuts[j].draws(BATCH, self.walk)
            self.pool[j] = list(zip(found, self.surrogates.beside(j, found, log_density).tolist(), strict=True))
        return self.pool[j].pop()

    def step(self, log_weights: Array, check: bool) -> tuple[bool, NDArray[np.int64]]:
        """Whether the proposal was accepted; decisions checked and wrong, of orders and of moves."""
        chance = np.cumsum(special.softmax(self.surrogates.log_evidence + log_weights))
        j = min(int(np.searchsorted(chance, self.walk.random() * chance[-1], side="right")), len(chance) - 1)
        x, beside = self._drawn(j)
        threshold = -self.walk.standard_exponential() - (beside - self.beside)
        yes, wrong = self._accepts(j, x, threshold), np.zeros(4, np.int64)
        if check:
            begin = time.process_time()
            gain = self._left(j, x) - self._left(self.order, self.x)
            wrong[2:] = 1, (gain > threshold) != yes
            self.aside += time.process_time() - begin
        if yes:
            self.order, self.x, self.beside = j, x, beside
        return yes, wrong

    def _accepts(self, j: int, x: Array, threshold: float) -> bool:
        """The race: two likelihoods, perhaps of two orders, less their expansions."""
        i = self.order
        if (i, j) not in self.pairs:
            self.pairs[i, j] = self._pair(i, j)
        parameters, known, test = self.pairs[i, j]
        for k, (arm, own) in enumerate(((i, self.x), (j, x))):
            parameters[k, : len(own) - 1], parameters[k, -1] = own[:-1], own[-1]
            known[k] = self._expanded(arm, own)
        found = test.decide(threshold + known[1] - known[0])
        self.evaluations += 2 * (test.n_evaluated + len(self.surrogates.always_read))
        return bool(found)

    def _pair(self, i: int, j: int) -> tuple[Array, Array, fr.AcceptTest]:
        p, orders = self.p, (self.p.orders[i], self.p.orders[j])
        most = max(orders)
        parameters, known, hat = np.ones((2, most + 2)), np.zeros(2), np.zeros((2, most + 2))
        for k, arm in enumerate((i, j)):
            own = self.surrogates.hat[arm, p.used[arm]]
            hat[k, : len(own) - 1], hat[k, -1] = own[:-1], own[-1]
        source = ArchSource(p.returns[p.most - most :] ** 2, orders, parameters, natural=True)
        left = ControlVariate(source, Expansion(source, hat), partial(np.asarray, known), self.surrogates.always_read)
        return parameters, known, fr.AcceptTest(left, bound="normal", delta=self.delta, rng=self.rng)

    def _expanded(self, j: int, x: Array) -> float:
        """The log-likelihood's expansion."""
        return float(self.surrogates.known(j, x[None])[0] + x.sum())

    def _left(self, j: int, x: Array) -> float:
        """What it leaves, from all returns."""
        return float(self.p.log_likelihood(j, x)) - self._expanded(j, x)
