"""What `arch_selection` samples from and by: orders of ARCH models with their parameters, exact and by races."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

import fastrace as fr
from fastrace._models._arch import ArchSource
from fastrace._models._expanded import Expansion
from fastrace.control_variates import ControlVariate
from fastrace.demo import PILOT_DRAWS, OrderPosterior, softplus
from fastrace.mcmc.models.arch import term_derivatives
from papers.chen_2016._independent import Surrogates

Array = NDArray[np.float64]
DELTA = 0.05


class Posterior(OrderPosterior):
    """Posterior over orders and parameters; parameters stand in softplus coordinates z, one row per order."""

    def __init__(self, returns: Array, orders: Sequence[int], rng: np.random.Generator) -> None:
        self.searched = 0               # evaluations of the search for the modes
        super().__init__(returns, orders, rng)
        self.returns = returns
        self.n_terms = self.plain.n_rows
        self.most = max(orders)
        self.used = [np.flatnonzero(row) for row in self._used]
        self.lags, self.squares = self._lags, self._squares
        self.mode, self.root = self._mode, self._root
        self.whiten = np.zeros_like(self._root)
        for j, used in enumerate(self.used):
            self.whiten[j][np.ix_(used, used)] = np.linalg.inv(self._root[j][np.ix_(used, used)])
        self.alone = [np.ones((1, q + 2)) for q in self.orders]
        self.single = [ArchSource(returns[self.most - q :] ** 2, q, alone, natural=True)
                       for q, alone in zip(self.orders, self.alone, strict=True)]
        self.near_mode = [self._sums(mode[used])[1:] for mode, used in zip(self.mode, self.used, strict=True)]

    def _negative_log_posterior(self, z: Array) -> tuple[float, Array]:
        self.searched += 2 * len(self._squares)
        return super()._negative_log_posterior(z)

    def set_up(self, sampler: str) -> int:
        """Evaluations before a chain of a sampler begins."""
        if sampler == "independent":
            return Surrogates(self, np.random.default_rng(0)).evaluations
        expansions = 2 * 3 * len(self.orders) * self.n_terms       # at the modes: for pseudo-priors, and for sums
        pilot = PILOT_DRAWS * len(self.orders) * self.n_terms if sampler == "expanded" else 0
        return self.searched + expansions + pilot

    @property
    def laplace(self) -> Array:
        """Log evidence of each order by the normal approximation, the largest 0."""
        found = np.array([self._constant[j] - self._negative_log_posterior(self._centre[j][used])[0]
                          for j, used in enumerate(self.used)])
        return found - special.logsumexp(found)

    def fresh(self, rng: np.random.Generator) -> Array:
        """Coordinates of every order from its pseudo-prior."""
        noise = np.where(self._used, rng.standard_normal(self._used.shape), 0.0)
        return self._centre + np.matmul(self._root, noise[:, :, None])[:, :, 0]

    def parameters(self, z: Array) -> tuple[Array, Array]:
        """Weights and nu of every order, and the log of prior over pseudo-prior."""
        x = softplus(z)
        apart = np.matmul(self.whiten, np.where(self._used, z - self._centre, 0.0)[:, :, None])[:, :, 0]
        log_prior = np.where(self._used, np.log(-np.expm1(-x)) - x, 0.0).sum(axis=1)
        return np.where(self._used, x, 0.0), log_prior + 0.5 * (apart * apart).sum(axis=1) + self._constant

    def own(self, j: int, z: Array) -> tuple[Array, Array, float]:
        """Of one order, from its own coordinates: weights and nu, slopes dx / dz, and log prior."""
        x = softplus(z)
        slope = -np.expm1(-x)
        return x, slope, float((np.log(slope) - x).sum())

    def log_likelihood(self, j: int, x: Array) -> float:
        """Of one order, from all returns."""
        self.alone[j][0] = x
        return float(self.single[j].totals()[0])

    def gradient(self, j: int, z: Array, rows: NDArray[np.int64] | None) -> Array:
        """Of the log posterior of one order in its coordinates, from some rows scaled up to all."""
        x, slope, _ = self.own(j, z)
        lags = self.lags[:, : x.size - 1] if rows is None else self.lags[rows, : x.size - 1]
        part = term_derivatives(self.squares if rows is None else self.squares[rows], lags @ x[:-1], x[-1])
        scale = self.n_terms / len(lags)
        return np.asarray(scale * np.append(lags.T @ part["dv"], part["dn"].sum()) * slope + 2.0 * np.exp(-x) - 1.0)

    def expanded_gradient(self, j: int, z: Array) -> Array:
        """As `gradient`, but of the expansion about the mode by weights and nu, which reads nothing."""
        x, slope, _ = self.own(j, z)
        first, second = self.near_mode[j]
        return np.asarray((first + second @ (x - self.mode[j][self.used[j]])) * slope + 2.0 * np.exp(-x) - 1.0)

    def expansion(self, j: int, x: Array) -> float:
        """Sum of the expansions about the mode over all rows, for one order."""
        used = self.used[j]
        step = x - self.mode[j][used]
        bent = self._hessian[j][np.ix_(used, used)] @ step
        return float(self._value[j] + step @ (self._gradient[j][used] + 0.5 * bent))


class Exact:
    """All returns, always."""

    def __init__(self, posterior: Posterior, batch: int, rng: np.random.Generator) -> None:
        self.p = posterior
        self.rng = rng
        self.evaluations = 0
        self.now = 0.0

    def rows(self) -> NDArray[np.int64] | None:
        """Rows of a gradient: None for all, else they do not depend on the state."""
        return None

    def gradient(self, j: int, z: Array, rows: NDArray[np.int64] | None) -> Array:
        """What a proposal follows."""
        self.evaluations += self.p.n_terms if rows is None else len(rows)
        return self.p.gradient(j, z, rows)

    def draw_order(self, x: Array, offset: Array) -> int:
        self.p.set(x, np.zeros(len(x)))
        sums = self.p.plain.totals()
        self.evaluations += sums.size * self.p.n_terms
        j = int((sums + offset - np.log(self.rng.standard_exponential(sums.size))).argmax())
        self.now = float(sums[j])           # kept for the accept test
        return j

    def accept(self, j: int, x: Array, new: Array, threshold: float) -> bool:
        self.evaluations += self.p.n_terms
        return self.p.log_likelihood(j, new) - self.now > threshold


class Racing(Exact):
    """What the two racing samplers share."""

    def __init__(self, posterior: Posterior, batch: int, rng: np.random.Generator) -> None:
        super().__init__(posterior, batch, rng)
        self.batch = batch
        self.picks = np.random.default_rng(rng.integers(2**63))     # for gradients, apart from the races' rows

    def rows(self) -> NDArray[np.int64] | None:
        return self.picks.integers(self.p.n_terms, size=self.batch)

    def _drawn(self, sampler: fr.DiscreteSampler) -> int:
        before = sampler.stats.evaluations if sampler.stats.n_draws else 0
        j = sampler.draw()
        self.evaluations += sampler.stats.evaluations - before
        return int(j)


class Expanded(Racing):
    """Compiled terms less their expansions in the parameters about the modes."""

    def __init__(self, posterior: Posterior, batch: int, rng: np.random.Generator) -> None:
        super().__init__(posterior, batch, rng)
        p = posterior
        self.sampler = fr.DiscreteSampler(p.raced, bound="normal", delta=DELTA, rng=rng)
        self.pairs, self.known, self.tests = [], [], []
        for j, q in enumerate(p.orders):
            mode, pair, known = p.mode[j][p.used[j]], np.ones((2, q + 2)), np.zeros(2)
            source = ArchSource(p.returns[p.most - q :] ** 2, q, pair, natural=True)
            left = ControlVariate(source, Expansion(source, mode), partial(np.asarray, known), p.always_read)
            self.pairs.append(pair)
            self.known.append(known)
            self.tests.append(fr.AcceptTest(left, bound="normal", delta=DELTA, rng=rng))

    def gradient(self, j: int, z: Array, rows: NDArray[np.int64] | None) -> Array:
        return self.p.expanded_gradient(j, z)       # has no noise that asks for short steps

    def draw_order(self, x: Array, offset: Array) -> int:
        self.p.set(x, offset)
        return self._drawn(self.sampler)

    def accept(self, j: int, x: Array, new: Array, threshold: float) -> bool:
        self.pairs[j][:] = x, new
        self.known[j][:] = self.p.expansion(j, x), self.p.expansion(j, new)
        found = self.tests[j].decide(threshold)
        self.evaluations += 2 * (self.tests[j].n_evaluated + len(self.p.always_read))
        return bool(found)


class Bins:
    """Expansions of one order's terms in (return, variance) about the means of bins."""

    def __init__(self, r: Array, lags: Array, z: Array, kept: NDArray[np.bool_], n_bins: int = 100) -> None:
        slices = max(1, round(math.sqrt(n_bins)))
        cell = np.zeros(len(r), dtype=np.intp)
        for column in z.T:
            edges = np.quantile(column, np.arange(1, slices) / slices)
            cell = cell * slices + np.searchsorted(edges, column, side="right")
        self.r, self.lags = r[kept], lags[kept]
        self.label = np.unique(cell[kept], return_inverse=True)[1].reshape(-1)
        self.count = np.bincount(self.label).astype(float)
        both = np.hstack([self.r[:, None], self.lags])
        mean = np.stack([np.bincount(self.label, column) for column in both.T], axis=1) / self.count[:, None]
        self.mean_r, self.mean_lags = mean[:, 0], mean[:, 1:]
        apart = both - mean[self.label]
        spread = np.stack([apart[self.label == b].T @ apart[self.label == b] for b in range(len(self.count))])
        self.rr, self.rx, self.xx = spread[:, 0, 0], spread[:, 0, 1:], spread[:, 1:, 1:]

    def expand(self, x: Array) -> tuple[float, tuple[Array, ...]]:
        """Sum of the expansions over all rows, and their coefficients per bin: as in `BinnedTaylor`, in O(bins q^2).

        The variance is linear in the lags, so the second derivatives by them all come from three numbers.
        """
        weights, nu = x[:-1], x[-1]
        v, r = self.mean_lags @ weights, self.mean_r
        d = nu * v + r * r
        part = term_derivatives(r * r, v, nu)
        by_r, by_rr = -(nu + 1) * r / d, -(nu + 1) * (nu * v - r * r) / d**2
        by_rv, by_vv = (nu + 1) * nu * r / d**2, part["dvv"]
        bent = by_rr * self.rr + 2 * by_rv * (self.rx @ weights) + by_vv * ((self.xx @ weights) @ weights)
        total = float((self.count * part["value"]).sum() + 0.5 * bent.sum())
        return total, (weights, nu, part["value"], r, v, by_r, part["dv"], by_rr, by_rv, by_vv)

    def residuals(self, rows: NDArray[np.int64], known: tuple[Array, ...]) -> Array:
        """Terms less their expansions."""
        weights, nu, value, r, v, by_r, by_v, by_rr, by_rv, by_vv = known
        b = self.label[rows]
        variance = self.lags[rows] @ weights
        dr, dv = self.r[rows] - r[b], variance - v[b]
        near = (value[b] + by_r[b] * dr + by_v[b] * dv
                + 0.5 * (by_rr[b] * dr * dr + 2 * by_rv[b] * dr * dv + by_vv[b] * dv * dv))
        return np.asarray(terms(self.r[rows] ** 2, variance, nu) - near)


def terms(square: Array, variance: Array, nu: Any) -> Array:
    """Student-t log densities."""
    constant = special.gammaln(0.5 * (nu + 1)) - special.gammaln(0.5 * nu) - 0.5 * np.log(np.pi * nu)
    return np.asarray(constant - 0.5 * np.log(variance) - 0.5 * (nu + 1) * np.log1p(square / (nu * variance)))


class Binned(Racing):
    """The paper's: expansions about bins, and the returns farthest from their bins always read."""

    def __init__(self, posterior: Posterior, batch: int, rng: np.random.Generator, outliers: float = 0.2) -> None:
        super().__init__(posterior, batch, rng)
        p = posterior
        r = p.returns[p.most :]
        zs = [np.column_stack([r, p.lags[:, : q + 1] @ p.mode[j][: q + 1]]) for j, q in enumerate(p.orders)]
        everything = np.ones(len(r), dtype=bool)
        far = np.max([self._distance(z, Bins(r, p.lags[:, :1], z, everything).label) for z in zs], axis=0)
        order = np.argsort(far, kind="stable")
        kept = np.zeros(len(r), dtype=bool)
        kept[order[: len(r) - int(outliers * len(r))]] = True
        self.bins = [Bins(r, p.lags[:, : q + 1], z, kept) for q, z in zip(p.orders, zs, strict=True)]
        self.always = ~kept
        self.far_lags, self.far_squares = p.lags[self.always], p.squares[self.always]
        self.n_far = int(self.always.sum())
        self.known: list[Any] = [None] * len(p.orders)
        self.pair: tuple[int, Any, Any] = (0, None, None)
        n_raced = int(kept.sum())
        self.models = fr.sources.CallableSource(self._models, len(p.orders), n_raced, first_look=50)
        moves = fr.sources.CallableSource(self._moves, 2, n_raced, first_look=50)
        self.sampler = fr.DiscreteSampler(self.models, bound="normal", delta=DELTA, rng=rng)
        self.test = fr.AcceptTest(moves, bound="normal", delta=DELTA, rng=rng)

    @staticmethod
    def _distance(z: Array, label: NDArray[np.intp]) -> Array:
        scaled = z / z.std(axis=0)
        count = np.bincount(label)
        mean = np.stack([np.bincount(label, column) for column in scaled.T], axis=1) / count[:, None]
        return np.asarray(np.square(scaled - mean[label]).sum(axis=1))

    def _models(self, arms: NDArray[np.intp], rows: NDArray[np.int64]) -> Array:
        return np.stack([self.bins[j].residuals(rows, self.known[j]) for j in arms], axis=1)

    def _moves(self, arms: NDArray[np.intp], rows: NDArray[np.int64]) -> Array:
        j, *known = self.pair
        return np.stack([self.bins[j].residuals(rows, known[arm]) for arm in arms], axis=1)

    def _expand(self, j: int, x: Array) -> tuple[float, tuple[Array, ...]]:
        """What is known of a sum before the race: expansions, and the returns always read."""
        total, known = self.bins[j].expand(x)
        self.evaluations += self.n_far
        far = terms(self.far_squares, self.far_lags[:, : x.size - 1] @ x[:-1], x[-1])
        return total + float(far.sum()), known

    def draw_order(self, x: Array, offset: Array) -> int:
        sums = np.zeros(len(offset))
        for j, used in enumerate(self.p.used):
            sums[j], self.known[j] = self._expand(j, x[j][used])
        self.sampler.log_prior = offset + sums
        return self._drawn(self.sampler)

    def accept(self, j: int, x: Array, new: Array, threshold: float) -> bool:
        before, old = self._expand(j, x)
        after, now = self._expand(j, new)
        self.pair = (j, old, now)
        found = self.test.decide(threshold - (after - before))
        self.evaluations += 2 * self.test.n_evaluated
        return bool(found)


ENGINES: dict[str, type[Exact]] = {"exact": Exact, "binned": Binned, "expanded": Expanded}


class Augmented:
    """The paper's chain: the order given parameters of every order, then a Langevin move of its own parameters."""

    def __init__(self, posterior: Posterior, engine: Exact, walk: np.random.Generator, sizes: Array) -> None:
        self.p, self.engine, self.walk, self.sizes = posterior, engine, walk, sizes
        self.z = posterior.fresh(walk)
        self.order = int(walk.integers(len(posterior.orders)))
        self.copy = np.random.Generator(type(engine.rng.bit_generator)())
        self.aside = 0.0                # seconds of checks

    @property
    def evaluations(self) -> int:
        return self.engine.evaluations

    def step(self, log_weights: Array, check: bool) -> tuple[bool, NDArray[np.int64]]:
        """Whether the move was accepted; decisions checked and wrong, of orders and of moves."""
        wrong = np.zeros(4, np.int64)
        kept = self.z[self.order].copy()
        self.z = self.p.fresh(self.walk)
        self.z[self.order] = kept
        x, ratio = self.p.parameters(self.z)
        offset = log_weights + ratio
        if check:
            self.copy.bit_generator.state = self.engine.rng.bit_generator.state
        self.order = self.engine.draw_order(x, offset)
        if check:
            begin = time.process_time()
            self.p.set(x, offset)
            noise = np.log(self.copy.standard_exponential(len(offset)))
            wrong[:2] = 1, int((self.p.plain.totals() - noise).argmax()) != self.order
            self.aside += time.process_time() - begin
        return self._move(check, wrong), wrong

    def _move(self, check: bool, wrong: NDArray[np.int64]) -> bool:
        p, j, walk = self.p, self.order, self.walk
        used, root, whiten = p.used[j], p.root[j], p.whiten[j]
        square = np.ix_(used, used)
        root, whiten, size = root[square], whiten[square], self.sizes[j]
        old = self.z[j][used]
        rows = self.engine.rows()
        noise = walk.standard_normal(old.size)
        drift = 0.5 * size * size * (root @ (root.T @ self.engine.gradient(j, old, rows)))
        new = old + drift + size * (root @ noise)
        back = 0.5 * size * size * (root @ (root.T @ self.engine.gradient(j, new, rows)))
        reverse = whiten @ (old - new - back) / size
        x_old, _, prior_old = p.own(j, old)
        x_new, _, prior_new = p.own(j, new)
        threshold = -walk.standard_exponential() - (
            prior_new - prior_old - 0.5 * float(reverse @ reverse) + 0.5 * float(noise @ noise))
        sane = np.isfinite(threshold) and (x_new > 1e-12).all()
        yes = bool(sane) and self.engine.accept(j, x_old, x_new, threshold)
        if check and sane:
            begin = time.process_time()
            gain = p.log_likelihood(j, x_new) - p.log_likelihood(j, x_old)
            wrong[2:] = 1, (gain > threshold) != yes
            self.aside += time.process_time() - begin
        if yes:
            self.z[j][used] = new
        return yes
