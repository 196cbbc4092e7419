"""What all Metropolis-Hastings kernels over rows share: proposals, coordinates, tuning, engines."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace._base import _checks
from fastrace.mcmc.kernels._chain import Chain
from fastrace.mcmc.models.model import Model, NoModeError, Reference
from fastrace.mcmc.protocol import StepInfo, Steps, from_flags, joined, keep_partial

FOLLOWING = ("crank-nicolson", "independent", "langevin")  # the reference; far from it they are seldom accepted
PROPOSALS = ("auto", "crank-nicolson", "independent", "random-walk", "langevin")
TARGETS = {"crank-nicolson": 0.6, "random-walk": 0.3, "langevin": 0.57}
WINDOW = 50  # steps between two changes of the size while tuning
NEAR = 3.0  # how far beyond sqrt(dim) standard deviations from the reference's center a state is still near it
FIRST_COVARIANCE = 100  # tuning steps after which the covariance of the draws is taken up; then at twice as many

Propose = Callable[[np.random.Generator, NDArray[np.float64]], tuple[ArrayLike, float]]


@dataclass(frozen=True, eq=False)
class Tuning:
    """How far the proposal has been adapted.

    Attributes
    ----------
    size : float
        Size of the proposal, in units of the default.
    n_steps : int
        Tuning steps made.
    n_accepted : int
        Accepted in the present window.
    center, factor : ndarray
        Coordinates of the proposal.
    count, mean, scatter
        Of the draws since the covariance was taken last.
    reach : float
        0.0 once the chain has arrived near the reference, or comes no nearer. Before, while tuning, its distance from
        the center in units of that at which it is near.
    """

    size: float
    n_steps: int
    n_accepted: int
    center: NDArray[np.float64] = field(repr=False)
    factor: NDArray[np.float64] = field(repr=False)
    count: int
    mean: NDArray[np.float64] = field(repr=False)
    scatter: NDArray[np.float64] = field(repr=False)
    reach: float = 0.0


@dataclass(frozen=True, eq=False)
class MetropolisState:
    """State of a Metropolis-Hastings chain.

    Attributes
    ----------
    position : ndarray of shape (dim,)
    whitened : ndarray of shape (dim,)
        The same in the kernel's coordinates, which are what moves.
    cache : object
        What the kernel knows of the position besides, such as its log-likelihood.
    tuning : Tuning
    """

    position: NDArray[np.float64]
    whitened: NDArray[np.float64] = field(repr=False)
    cache: Any = field(repr=False)
    tuning: Tuning


WIDE_BOUNDS = (
    "its bounds on the terms' third derivatives are wide beside the posterior, as where outcomes are almost separated, "
    "rows lie far out or parameters are many. The draws are exact all the same. RacingMetropolis needs no such bounds; "
    "a narrower prior_sd, where it is true, keeps the chain where they are tight"
)


class RowMetropolis:
    """Base of the kernels; see `RacingMetropolis` for the parameters they share."""

    variable = "theta"
    full_pass_advice = ""  # what to do where most steps read all rows; empty where the kernel is made for that
    _needs_reference = False  # even without a control variate

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
    ) -> None:
        if not isinstance(model, Model):
            raise TypeError(f"model is {model!r}; a GLM, FunctionModel, SourceModel or other mcmc.Model is needed")
        self.model = model
        self.reference, self.controlled = self._refer(control_variate)
        self.propose: Propose | None = None
        if callable(proposal):
            _checks.takes(proposal, "proposal", "rng", "theta")
            self.propose = proposal
            self.proposal = "user"
        else:
            self.proposal = _checks.choice(proposal, "proposal", PROPOSALS)
        if self.proposal == "auto":
            self.proposal = "crank-nicolson" if self.controlled else "random-walk"
        if self.proposal in FOLLOWING and self.reference is None:
            raise ValueError(
                f"proposal is {self.proposal!r}, which follows a normal density near the posterior, and the model has "
                f"no derivatives to find one: give them, or use 'random-walk' or a function (rng, theta)"
            )
        self.size = _checks.real(size, "size")
        if not 0.0 < self.size < math.inf or (self.proposal == "crank-nicolson" and self.size > 1.0):
            raise ValueError(f"size is {size}; a positive number is needed, at most 1 for 'crank-nicolson'")
        self.walk_share = _checks.real(walk_share, "walk_share")
        if not 0.0 <= self.walk_share < 1.0:
            raise ValueError(f"walk_share is {walk_share}; a share of the steps in [0, 1) is needed")
        if self.proposal not in FOLLOWING:
            self.walk_share = 0.0
        self.delayed = bool(delayed)
        self._near = math.sqrt(model.dim) + NEAR
        self._factor = self._start_factor(covariance)
        self._engines: list[Chain] = []

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self.describe().items() if name != "kernel")
        return f"{type(self).__name__}({self.model!r}, {options})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_engines": []}

    def _refer(self, control_variate: Any) -> tuple[Reference | None, bool]:
        if isinstance(control_variate, Reference):
            return control_variate, True
        if control_variate is None:
            try:
                return (self.model.reference() if self.model.has_derivatives else None), False
            except NoModeError:
                return None, False
        if isinstance(control_variate, str):
            _checks.choice(control_variate, "control_variate", ("auto",))
            if not self.model.has_derivatives:
                return None, False
            return self.model.reference(), True
        return self.model.reference(control_variate), True

    def _start_factor(self, covariance: ArrayLike | None) -> NDArray[np.float64]:
        d = self.model.dim
        if covariance is None:
            return np.eye(d) if self.reference is None else self.reference.factor
        if self.reference is not None:
            raise ValueError("covariance came with a model that has derivatives; its proposals follow the reference")
        matrix = np.atleast_2d(np.asarray(covariance, dtype=np.float64))
        try:
            if matrix.shape != (d, d):
                raise np.linalg.LinAlgError
            return np.asarray(np.linalg.cholesky(matrix), dtype=np.float64)
        except np.linalg.LinAlgError:
            raise ValueError(
                f"covariance has shape {matrix.shape}; a positive definite matrix of shape ({d}, {d}) is needed"
            ) from None

    def describe(self) -> dict[str, Any]:
        """What a trace remembers of the kernel."""
        return {
            "kernel": type(self).__name__,
            "proposal": self.proposal,
            "control_variate": self.controlled,
            "delayed": self.delayed,
        }

    # States.

    def init(self, position: ArrayLike | None = None, rng: _checks.RngLike = None) -> MetropolisState:
        """The state at a position.

        Parameters
        ----------
        position : array_like of shape (dim,), optional
            By default a draw from the reference, a normal density near the posterior; without one, zeros.
        rng : None, int, SeedSequence or Generator, optional
            For that draw.
        """
        d = self.model.dim
        center = np.zeros(d) if self.reference is None else self.reference.center
        if position is None:
            xi = np.zeros(d) if self.reference is None else _checks.generator(rng).standard_normal(d)
            at = center + self._factor @ xi
        else:
            at = np.array(position, dtype=np.float64)
            if at.shape != (d,) or not np.isfinite(at).all():
                raise ValueError(f"position is {position!r}; {d} finite parameters are needed")
        tuning = Tuning(self.size, 0, 0, center, self._factor, 0, np.zeros(d), np.zeros((d, d)))
        chain = self._take(tuning)
        whitened = chain.whiten(at)
        self._engines.append(chain)
        return MetropolisState(at, whitened, None, tuning)

    def step(self, rng: np.random.Generator, state: MetropolisState) -> tuple[MetropolisState, StepInfo]:
        """One transition.

        Parameters
        ----------
        rng : Generator
        state : MetropolisState

        Returns
        -------
        state : MetropolisState
        info : StepInfo
        """
        state, steps = self.run(rng, state, 1)
        return state, steps.info(0)

    def run(
        self, rng: np.random.Generator, state: MetropolisState, n: int, *, tune: bool = False
    ) -> tuple[MetropolisState, Steps]:
        """Many transitions in one call, without the GIL as long as no Python function is asked.

        Parameters
        ----------
        rng : Generator
        state : MetropolisState
        n : int
            How many.
        tune : bool, default False
            Adapt the size of the proposal, and without a reference its covariance, on the way.

        Returns
        -------
        state : MetropolisState
        steps : Steps

        Notes
        -----
        An exception, the user's own or Ctrl-C, comes through with what was done as ``partial_run``, the same pair.
        """
        if not tune:
            return self._run(rng, state, n)
        parts: list[Steps] = []
        done = 0
        while done < n:
            count = min(n - done, WINDOW - state.tuning.n_steps % WINDOW)
            if state.tuning.n_steps % WINDOW == 0:
                state = replace(state, tuning=replace(state.tuning, reach=self._reach(state)))
            try:
                state, steps = self._run(rng, state, count, tune)
            except BaseException as error:
                last, some = getattr(error, "partial_run", (state, None))
                keep_partial(error, last, joined([*parts, *([] if some is None else [some])]))
                raise
            state = self._adapted(state, steps)
            parts.append(steps)
            done += count
        return state, (joined(parts) if parts else self._run(rng, state, 0)[1])

    def _run(
        self, rng: np.random.Generator, state: MetropolisState, n: int, tune: bool = False
    ) -> tuple[MetropolisState, Steps]:
        chain = self._take(state.tuning, rng, tune)
        draws = np.empty((n, self.model.dim))
        rows, looks, flags = np.empty(n, np.int64), np.empty(n, np.int32), np.empty(n, np.uint8)
        chain.load(state.position, state.whitened, state.cache)
        try:
            chain.run(rng, draws, rows, looks, flags)
        except BaseException as error:
            k = chain.n_done
            steps = from_flags(draws[:k], rows[:k], looks[:k], flags[:k])
            keep_partial(error, replace(state, position=chain.position, whitened=chain.whitened, cache=None), steps)
            raise
        after = replace(state, position=chain.position, whitened=chain.whitened, cache=chain.cache)
        self._look(chain)
        self._engines.append(chain)
        return after, from_flags(draws, rows, looks, flags)

    def _reach(self, state: MetropolisState) -> float:
        """`Tuning.reach` for the next window. A chain that comes no nearer has arrived where its posterior is."""
        before = math.inf if state.tuning.n_steps == 0 else state.tuning.reach
        if self.reference is None or self.proposal == "slice" or before == 0.0:
            return 0.0
        reach = float(np.linalg.norm(state.whitened)) / self._near
        return reach if 1.0 < reach < 0.98 * before else 0.0

    # Engines: compiled working memory, one per chain at work.

    def _take(self, tuning: Tuning, rng: np.random.Generator | None = None, tune: bool = False) -> Chain:
        try:
            chain = self._engines.pop()
        except IndexError:
            chain = self._engine()
        chain.set_coordinates(tuning.center, tuning.factor)
        if tune and tuning.reach:  # on the way to the reference: walks, half of them as long as the way is
            _, walk, _, _ = coefficients("random-walk", 1.0, self.model.dim, 0.0)
            chain.set_proposal(1.0, tuning.reach * walk, walk, 0.5)
            chain.propose = None
            return chain
        chain.set_proposal(*coefficients(self.proposal, tuning.size, self.model.dim, self.walk_share))
        chain.propose = None if self.propose is None else _Bound(self.propose, rng)
        return chain

    def _engine(self) -> Chain:
        reference = self.reference if self.controlled else None
        source, theta = self.model.engine(reference)
        center = np.zeros(self.model.dim) if self.reference is None else self.reference.center
        weights = None
        if reference is not None and reference.weights is not None:
            weights = (
                float(reference.weights.max()),
                math.fsum(reference.weights),
                reference.radius,
                reference.from_hat,
                reference.rounding,
            )
        precision = self.model.prior_precision
        apart = not self.controlled and bool((precision > 0.0).any())
        return self._chain(
            source,
            theta,
            center,
            self._factor,
            surrogate=self.controlled,
            delayed=self.delayed and self.reference is not None and (self.controlled or
                                                                     self.model.log_prior is not None),
            radius_of_delay=self._near,
            log_prior=self.model.log_prior_beside(reference),
            prior_mean=self.model.prior_mean if apart else None,
            prior_precision=precision if apart else None,
            weights=weights,
        )

    def _look(self, chain: Chain) -> None:
        """Note what a run has shown of the arguments."""

    def _chain(self, *args: Any, **options: Any) -> Chain:
        raise NotImplementedError

    # Tuning.

    def _adapted(self, state: MetropolisState, steps: Steps) -> MetropolisState:
        old = state.tuning
        n = old.n_steps + len(steps)
        accepted = old.n_accepted + int(steps.accepted.sum())
        count, mean, scatter = _extended(old, steps.draws) if self.reference is None else (0, old.mean, old.scatter)
        new = replace(old, n_steps=n, n_accepted=accepted, count=count, mean=mean, scatter=scatter)
        if old.reach:
            return replace(state, tuning=replace(new, n_accepted=0))
        if n % WINDOW == 0 and self.proposal in TARGETS:
            gain = 3.0 / (n / WINDOW) ** 0.6
            size = old.size * math.exp(gain * (accepted / WINDOW - TARGETS[self.proposal]))
            if self.proposal == "crank-nicolson":
                size = min(size, 1.0)
            new = replace(new, size=size, n_accepted=0)
        whitened, doublings = state.whitened, n / FIRST_COVARIANCE
        if self.reference is None and self.propose is None and doublings >= 1.0 and math.log2(doublings) % 1.0 == 0.0:
            d = self.model.dim
            share = count / (count + 5.0)
            covariance = share * scatter / max(count - 1, 1) + (1.0 - share) * 1e-3 * np.eye(d)
            factor = np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
            whitened = np.asarray(np.linalg.solve(factor, state.position - new.center), dtype=np.float64)
            new = replace(
                new, factor=factor, size=1.0, count=0, mean=np.zeros(d), scatter=np.zeros((d, d))
            )
        return replace(state, tuning=new, whitened=whitened)


def coefficients(proposal: str, size: float, dim: int, walk_share: float) -> tuple[float, float, float, float]:
    """keep, noise, walk and share of walks: whitened, z' = keep z + noise xi, or z' = z + walk xi."""
    walk = 2.38 / math.sqrt(dim)
    if proposal == "crank-nicolson":
        return math.sqrt(max(0.0, 1.0 - size * size)), size, walk, walk_share
    if proposal == "independent":
        return 0.0, 1.0, walk, walk_share
    if proposal == "langevin":
        step = min(1.65 * dim ** (-1.0 / 6.0) * size, math.sqrt(2.0))
        return 1.0 - step * step / 2.0, step, walk, walk_share
    return 1.0, walk * size, walk, 0.0


class _Bound:
    """A user's proposal with the chain's own generator."""

    def __init__(self, propose: Propose, rng: np.random.Generator | None) -> None:
        self.propose = propose
        self.rng = rng

    def __call__(self, theta: NDArray[np.float64]) -> tuple[ArrayLike, float]:
        assert self.rng is not None
        return self.propose(self.rng, theta)


def _extended(
    old: Tuning, draws: NDArray[np.float64]
) -> tuple[int, NDArray[np.float64], NDArray[np.float64]]:
    """Count, mean and scatter with further draws."""
    k = len(draws)
    mean = draws.mean(axis=0)
    apart = draws - mean
    count = old.count + k
    step = mean - old.mean
    scatter = old.scatter + apart.T @ apart + np.outer(step, step) * (old.count * k / count)
    return count, old.mean + step * (k / count), scatter
