"""Exact Metropolis-Hastings: every decision by a pass over all rows."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_triangular

from fastrace._base import _checks
from fastrace._models._expanded import Expanded
from fastrace.mcmc.kernels._metropolis import Propose, RowMetropolis, coefficients
from fastrace.mcmc.kernels._rows import ChainState, Tuning
from fastrace.mcmc.models.model import Model, Reference
from fastrace.mcmc.protocol import Steps, from_flags, keep_partial
from fastrace.sources import Source

ACCEPTED, FULL_PASS = 1, 2  # flags of a step


class Metropolis(RowMetropolis):
    r"""Metropolis-Hastings that reads every row in every step: the yardstick, and where parameters are many the kernel.

    Parameters
    ----------
    model, proposal, size, walk_share, covariance, control_variate, delayed
        As in `RacingMetropolis`. With a control variate a proposal is first accepted on it, and only then on the rows;
        with ``control_variate=None`` each step makes one pass, as textbooks do.
    batch : int, default 1
        Steps whose sums one pass over the rows takes, for ``proposal="independent"`` of a `GLM` or `Softmax` with
        a control variate, whose proposals do not depend on the state. 128 is a good number.
    mirror : bool, default True
        Whether proposals of a batch come as pairs of mirror images: best for means. False: one by one, for variances,
        quantiles and all else that is the same at both.
    frames : bool, default False
        Whether the points of a batch are drawn together, orthogonal to each other, and enter together, each as often as
        its weight says. Best for means and variances with a `batch` of the number of parameters, or twice that with
        `mirror`, and a `walk_share` of 0.001.

    Raises
    ------
    ValueError
        If an argument is out of range, or `batch` is above 1 for proposals that need the state, or for a model whose
        terms are not evaluated at many points at once, or `frames` is set for less than two points, mirror images not
        counted.

    Notes
    -----
    The log-likelihood of the present state is kept, so a step costs one pass over the rows for the proposal, by vector
    code.

    A batch shares the pass: its predictors are one matrix product, by BLAS from 16 products on. Its proposals come in
    pairs: y from the reference, moved to where the posterior's mean is to third order [1]_, and its mirror image y'
    about that center, which takes no product of its own. With w the posterior over the density of the proposals, the
    pair is accepted with probability :math:`\min(1, (w(y) + w(y')) / (w(x) + w(x')))` for a chain at x, and then one of
    its two in proportion to w; the next step tries the mirror image of where the chain is, accepted with probability
    :math:`\min(1, w(x') / w(x))`. The flow from x to y is q(x) q(y) w(x) w(y) / max(w(x) + w(x'), w(y) + w(y')), times
    2, the same both ways. What is left of third order has opposite signs at y and y', so that pairs are seldom refused,
    and means of draws that come in mirror images are better than those of independent ones; variances are worse, for
    the time that they take. With ``mirror=False`` each proposal is decided alone, by :math:`\min(1, w(y) / w(x))`.

    With 10^5 rows of 200 parameters a step of a batch takes a fraction of the time that it takes alone, and the chain
    makes more effective samples a second than those that read few rows for one step; minibatches that decide a batch,
    see `PoissonMinibatchMetropolis`, make more than either. It is one chain for every `batch` above 1, to rounding.
    The `walk_share` steps among them depend on the state and take a pass of their own each: give a share of 0.01 or so.
    None of the steps is delayed.

    With `frames` the chain's point x and the proposals of a batch are one set of points. From the center of the
    proposals they lie in the directions of a random orthogonal frame, of several beside each other if there are more
    points than parameters, at independent distances. Each point alone has the density of the proposals, and given any
    one of them the law of the others is the same. So the set could have been built about each of its points y, and
    given the set alone each was the chain's with probability proportional to w(y). The next points are drawn from the
    set by these weights, each slot of the batch by itself with exactly those probabilities, all slots together with as
    little chance as possible (systematic resampling on a circle); the last slot is where the chain goes on. No proposal
    is thrown away [2]_ [3]_. Squares of orthogonal coordinates add up to the squared length [4]_, so that the mean
    square of every linear function of the parameters over a frame hardly varies. Effective sizes that rest on
    autocorrelations see nothing of that; errors over many runs do: `bench/benchmarks/wide.py`.

    References
    ----------
    .. [1] Tierney, Kadane, "Accurate approximations for posterior moments and marginal densities", JASA 81, 1986.
    .. [2] Tjelmeland, "Using all Metropolis-Hastings proposals to estimate mean values", NTNU Statistics 4, 2004.
    .. [3] Calderhead, "A general construction for parallelizing Metropolis-Hastings algorithms", PNAS 111(49), 2014.
    .. [4] Yu, Suresh, Choromanski, Holtmann-Rice, Kumar, "Orthogonal random features", NIPS 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace import mcmc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(1000, 2))
    >>> y = rng.random(1000) < 0.5
    >>> trace = mcmc.sample(mcmc.Metropolis(mcmc.GLM(X, y)), n_draws=500, n_chains=2, rng=1)
    >>> bool((np.abs(trace.draws.mean(axis=(0, 1))) < 0.3).all())
    True
    >>> kernel = mcmc.Metropolis(mcmc.GLM(X, y), proposal="independent", batch=128, walk_share=0.01)
    >>> trace = mcmc.sample(kernel, n_draws=500, n_chains=2, rng=1)
    >>> bool((np.abs(trace.draws.mean(axis=(0, 1))) < 0.3).all())
    True
    """

    mirror = True  # of those saved before there were batches of single proposals
    frames = False  # of those saved before there were frames

    def __init__(
        self,
        model: Model,
        *,
        proposal: str | Propose = "auto",
        size: float = 1.0,
        walk_share: float = 0.1,
        covariance: ArrayLike | None = None,
        control_variate: str | ArrayLike | Reference | None = "auto",
        delayed: bool = True,
        batch: int = 1,
        mirror: bool = True,
        frames: bool = False,
    ) -> None:
        super().__init__(model, proposal=proposal, size=size, walk_share=walk_share, covariance=covariance,
                         control_variate=control_variate, delayed=delayed)
        self._take_batch(batch, "a pass takes the sums of at least the next proposal")
        self.mirror = _checks.flag(mirror, "mirror")
        self.frames = _checks.flag(frames, "frames")
        if self.frames and self._n_points < 2:
            raise ValueError(f"batch is {batch} and mirror {self.mirror}; frames need at least two points, each with "
                             f"its mirror image if there is one: batch={2 * self._width}")

    def describe(self) -> dict[str, Any]:
        own = super().describe() | ({"batch": self.batch, "mirror": self.mirror} if self.batch > 1 else {})
        return own | ({"frames": True} if self.frames else {})

    @property
    def _width(self) -> int:
        """Points that come together: one, or one and its mirror image."""
        return 1 + self.mirror

    @property
    def _n_points(self) -> int:
        """Of the frames of a batch, mirror images not counted."""
        return self.batch // self._width

    def _sums(self) -> tuple[Source, NDArray[np.float64]]:
        """A source of what the expansion leaves at the points of a batch, and where it reads them."""
        assert self.reference is not None
        if not self.mirror:
            alone, theta = self.model._arms(self.batch + 2)
            return Expanded(alone, self.reference.theta_hat), theta  # type: ignore[arg-type]
        middle = self.reference.center + self.reference.factor @ (self.lean + np.zeros(self.model.dim))
        source, theta = self.model._pairs(self.batch + 2, middle)
        return Expanded(source, self.reference.theta_hat), theta  # type: ignore[arg-type]

    def _run(
        self, rng: np.random.Generator, state: ChainState, n: int, tune: bool = False
    ) -> tuple[ChainState, Steps]:
        if self.batch == 1 or (tune and state.tuning.reach):
            return super()._run(rng, state, n, tune)
        chain = (_Frames if self.frames else _Batches)(self, state, n)
        try:
            while chain.n_done < n:
                chain.advance(rng, min(self.batch, n - chain.n_done))
        except BaseException as error:
            keep_partial(error, replace(chain.state(), cache=None), chain.steps())
            raise
        return chain.state(), chain.steps()


class _Batches:
    """A run of independent proposals, or pairs of them, that share passes over the rows, a batch at a time.

    Steps are in turn one that tries a pair, or a walk, and one that tries the mirror image of where the chain is. Each
    pair is drawn before the state that it meets is known, and the random numbers of a step come one step after the
    other: neither the size of a batch nor where a run is cut changes the chain, but for rounding of sums. A point v is
    whitened, from the center of the pairs; log w(v) is that of the posterior over the density of the proposals.
    Without mirror images each step tries one proposal, or a walk.
    """

    n_cached = 3  # parts of what a state of such a run knows besides: those of another kind are left aside

    def __init__(self, kernel: Metropolis, state: ChainState, n: int) -> None:
        self.kernel, self.start = kernel, state
        self.source, self.theta = kernel._sums()
        self.log_prior = kernel.model.log_prior_beside(kernel.reference)
        self.position, self.v = state.position, state.whitened - kernel.lean
        self.walk = coefficients(kernel.proposal, 1.0, kernel.model.dim, kernel.walk_share)[2]
        self.draws, self.flags = np.empty((n, kernel.model.dim)), np.zeros(n, dtype=np.uint8)
        self.n_done = 0
        # log w here and at the mirror image if there is one, and whether that is what the next step tries
        if isinstance(state.cache, tuple) and len(state.cache) == self.n_cached:
            self.weights, self.mirrors, self.v = state.cache[:3]
        else:
            self.weights, self.mirrors = self._weights([self.v])[0], False
        if self.weights[0] == -math.inf:
            raise ValueError(f"log_prior is -inf at the chain's own state {self.position}; a chain must start where it "
                             f"is finite: give such a point as init")

    def advance(self, rng: np.random.Generator, count: int) -> None:
        """Make `count` steps."""
        drawn, mirrors = [], self.mirrors
        for _ in range(count):
            if mirrors:
                drawn.append((False, np.empty(0), -rng.standard_exponential(), 0.0))
            else:
                walks, noise = rng.random() < self.kernel.walk_share, rng.standard_normal(self.kernel.model.dim)
                drawn.append((walks, noise, -rng.standard_exponential(), rng.random()))
            mirrors = self.kernel.mirror and not mirrors
        apart = [k for k, (walks, noise, _, _) in enumerate(drawn) if len(noise) and not walks]
        found = dict(zip(apart, self._weights([drawn[k][1] for k in apart]), strict=True))
        for k, (walks, noise, level, coin) in enumerate(drawn):
            if not len(noise):
                self._turn(level)
            elif walks:
                self._walk(noise, level)
            else:
                self._meet(noise, level, coin, found[k])
            self.mirrors = self.kernel.mirror and not self.mirrors
            self.draws[self.n_done] = self.position
            self.n_done += 1

    def _turn(self, level: float) -> None:
        here, there = self.weights
        if level < there - here:
            self._go(-self.v, (there, here))

    def _walk(self, noise: NDArray[np.float64], level: float) -> None:
        new = self.v + self.walk * noise
        weights = self._weights([new])[0]
        self.flags[self.n_done] |= FULL_PASS
        if level < weights[0] - self.weights[0] + 0.5 * float(self.v @ self.v - new @ new):
            self._go(new, weights)

    def _meet(self, new: NDArray[np.float64], level: float, coin: float, weights: tuple[float, ...]) -> None:
        self.flags[self.n_done] |= FULL_PASS
        both = np.logaddexp.reduce(weights)
        if level < both - np.logaddexp.reduce(self.weights):
            if len(weights) == 1 or math.log1p(-coin) < weights[0] - both:
                self._go(new, weights)
            else:
                self._go(-new, weights[::-1])

    def _go(self, v: NDArray[np.float64], weights: tuple[float, ...]) -> None:
        self.v, self.weights, self.position = v, weights, self._point(v)
        self.flags[self.n_done] |= ACCEPTED

    def _point(self, v: NDArray[np.float64]) -> NDArray[np.float64]:
        tuning: Tuning = self.start.tuning
        return np.asarray(tuning.center + tuning.factor @ (v + self.kernel.lean))

    def _weights(self, points: list[NDArray[np.float64]]) -> list[tuple[float, ...]]:
        """log w at each point, and at its mirror image if there are such, up to a constant, in one pass."""
        if not points:
            return []
        tuning: Tuning = self.start.tuning
        width = self.kernel._width
        pairs = np.array([v for point in points for v in (point, -point)[:width]])
        positions = self.theta[: len(pairs)]
        positions[:] = tuning.center + (pairs + self.kernel.lean) @ tuning.factor.T
        sums = self.source.totals(range(len(pairs))).tolist()
        out = []
        for value, position, v in zip(sums, positions, pairs, strict=True):
            if math.isnan(value) or value == math.inf:
                raise ValueError(f"the log-likelihoods sum to {value} at {_checks.shown(position)}; a finite number is "
                                 f"needed, or -inf where the parameters are impossible")
            out.append(self._prior(position) + value - float((self.kernel.lean * v).sum()))
        return list(zip(*(out[k::width] for k in range(width)), strict=True))

    def _prior(self, point: NDArray[np.float64]) -> float:
        return 0.0 if self.log_prior is None else _checks.log_density_at(self.log_prior, point.copy())

    def state(self) -> ChainState:
        return replace(self.start, position=self.position, whitened=self.v + self.kernel.lean,
                       cache=(self.weights, self.mirrors, self.v))

    def steps(self) -> Steps:
        n = self.n_done
        passes = (self.flags[:n] & FULL_PASS) != 0
        rows = np.where(passes, self.kernel.model.n_rows, 0).astype(np.int64)
        return from_flags(self.kernel._recorded(self.draws[:n]), rows, passes.astype(np.int32), self.flags[:n])


class _Frames(_Batches):
    """A run of frames: sets of points, one of them the chain's, from which draws are taken in proportion to w.

    A turn is a frame or a walk. `held` are draws of the last turn that are still to come, with their flags: a run may
    be cut between any two of them. The chain itself is at the last of them already.
    """

    n_cached = 5

    def __init__(self, kernel: Metropolis, state: ChainState, n: int) -> None:
        super().__init__(kernel, state, n)
        size, self.width = kernel._n_points * kernel._width, kernel._width
        share = size * kernel.walk_share
        self.walk_turns = share / (1.0 - kernel.walk_share + share)  # so that `walk_share` of the draws are of walks
        self.held: tuple[NDArray[np.float64], NDArray[np.uint8]] = self.draws[:0], self.flags[:0]
        if isinstance(state.cache, tuple) and len(state.cache) == self.n_cached:
            self.held = state.cache[3:]

    def advance(self, rng: np.random.Generator, count: int) -> None:
        """Make at most `count` steps."""
        draws, flags = self.held
        if not len(draws):
            draws, flags = self._walked(rng) if rng.random() < self.walk_turns else self._framed(rng)
        now = slice(self.n_done, self.n_done + min(count, len(draws)))
        count = now.stop - now.start
        self.draws[now], self.flags[now] = draws[:count], flags[:count]
        self.held, self.position, self.n_done = (draws[count:], flags[count:]), draws[count - 1], now.stop

    def _walked(self, rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
        noise, level = rng.standard_normal(self.kernel.model.dim), -rng.standard_exponential()
        self.flags[self.n_done] = 0
        self._walk(noise, level)
        return self.position[None], self.flags[self.n_done : self.n_done + 1].copy()

    def _framed(self, rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
        """The draws of one set of points; the chain goes to the last of them."""
        width, points = self.width, self._points(rng)
        weights = np.array([self.weights, *self._weights(list(points[1:]))])
        # A chain that stays keeps its point to the last digit: it is not taken anew from its whitened coordinates.
        positions = np.concatenate([[self.position, *[self._point(-points[0])] * (width - 1)],
                                    self.theta[: width * (len(points) - 1)]])
        ends = np.cumsum(np.exp(weights - weights.max()).ravel())
        size = len(ends)
        chosen = np.searchsorted(ends, (rng.random() + np.arange(size) / size) % 1.0 * ends[-1], side="right")
        chosen = np.minimum(chosen, np.flatnonzero(np.diff(ends, prepend=0.0))[-1])    # if rounding led past the end
        flags = np.where(np.diff(chosen, prepend=0) != 0, ACCEPTED, 0).astype(np.uint8)
        flags[width::width] |= FULL_PASS
        k, image = divmod(int(chosen[-1]), width)
        self.v = -points[k] if image else points[k].copy()
        self.weights = tuple(weights[k, ::-1] if image else weights[k])
        return positions[chosen], flags

    def _points(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """The chain's point and others, given it: orthogonal frames of as many as there are parameters.

        The last frame may be smaller. The chain's point is in it as often as any other point is: given the points, each
        of them is then as likely to have been the chain's, and weights alone decide.
        """
        d, left = len(self.v), self.kernel._n_points
        odd = left % d
        size = odd if left > d and odd and rng.random() * left < odd else min(d, left)
        parts: list[NDArray[np.float64]] = []
        while left:
            noise, lengths = rng.standard_normal((d, size)), np.sqrt(rng.chisquare(d, size))
            if not parts and self.v.any():
                noise[:, 0] = self.v
            unit, triangle = np.linalg.qr(noise)
            parts.append((unit * np.copysign(lengths, np.diagonal(triangle))).T)
            left -= size
            size = min(d, left)
        parts[0][0] = self.v
        return np.concatenate(parts)

    def state(self) -> ChainState:
        tuning: Tuning = self.start.tuning
        v = solve_triangular(tuning.factor, self.position - tuning.center, lower=True)
        return replace(self.start, position=self.position, whitened=v, cache=(self.weights, False, self.v, *self.held))
