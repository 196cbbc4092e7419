"""What all Metropolis-Hastings kernels over rows share: proposals, and the size that tuning gives them."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

from fastrace._base import _checks
from fastrace._base._blas import one_blas_thread
from fastrace.mcmc.kernels._minibatch import PoissonChain
from fastrace.mcmc.kernels._proposal import Proposal
from fastrace.mcmc.kernels._rows import (
    WINDOW,
    ChainState,
    NoStartError,
    RowKernel,
    Tuning,
    checked_share,
    most_drawn,
    table_of,
    worth_thinning,
)
from fastrace.mcmc.models.model import Model, Reference
from fastrace.races._weighted import AliasTable

FOLLOWING = ("crank-nicolson", "independent", "langevin", "student-t")  # the reference; far off seldom accepted
PROPOSALS = ("auto", "crank-nicolson", "independent", "random-walk", "langevin", "student-t")
TARGETS = {"crank-nicolson": 0.6, "random-walk": 0.3, "langevin": 0.57}

STAGES = 1000, 500, 1000  # steps of the pilot that finds a Student-t density, each stage from what the last one found
STAGE_SEED = 20160619  # of that pilot, so that the density depends on the model alone
PILOT_STEPS, PILOT_PASSES = 100, 100  # between two looks at what a stage has read, and what it may read, in rows
DEGREES = (4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 64.0)  # of freedom that are tried
LOSS, OF_GAIN, MOST_LOST = 0.02, 0.06, 0.1  # of mean log density, and of its gain, that longer tails are worth
FARTHEST = 2.0  # standard deviations that proposals of a batch are moved from the reference: third order ends there

Propose = Callable[[np.random.Generator, NDArray[np.float64]], tuple[ArrayLike, float]]

WIDE_BOUNDS = (
    "its bounds on the terms' third derivatives are wide beside the posterior, as where outcomes are almost separated, "
    "rows lie far out or parameters are many. The draws are exact all the same. RacingMetropolis needs no such bounds; "
    "a narrower prior_sd, where it is true, keeps the chain where they are tight"
)


@dataclass(frozen=True, eq=False)
class Tails:
    """A Student-t density near a posterior, in the coordinates of a reference.

    Attributes
    ----------
    degrees : float
        Of freedom.
    shift : ndarray of shape (dim,)
        Center.
    scale : float
    gain : float
        Mean log density at draws from the posterior, above that of the reference.
    """

    degrees: float
    shift: NDArray[np.float64] = field(repr=False)
    scale: float
    gain: float = 0.0


class RowMetropolis(RowKernel):
    """Base of the Metropolis-Hastings kernels; see `RacingMetropolis` for the parameters they share."""

    batch = 1  # steps that share a reading of rows; of kernels saved before there were batches too
    lean: Any = 0.0  # center of the proposals of a batch, whitened
    _tails: Tails | None = None
    pareto_k: float | None = None  # of the weights of draws from the reference, where it was looked at
    _computed = ("_tails", "pareto_k")  # attributes that do not change the draws

    @one_blas_thread()
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
        super().__init__(model, covariance, control_variate, callable(proposal))
        if isinstance(proposal, str) and proposal == "auto" and self._shells:
            self._tails = tails_of(self)  # rows bend so unequally that the posterior may lean
            proposal = "student-t" if self._tails.gain > 0.0 else "auto"
        self.propose: Propose | None = None
        if callable(proposal):
            _checks.takes(proposal, "proposal", "rng", "theta")
            self.propose = proposal
        self.proposal, self.size, self.walk_share = checked_proposal(proposal, size, walk_share, self.controlled)
        if self.proposal in FOLLOWING and self.reference is None:
            raise ValueError(
                f"proposal is {self.proposal!r}, which follows a normal density near the posterior, and the model has "
                f"no derivatives to find one: give them, or use 'random-walk' or a function (rng, theta)"
            )
        self.delayed = _checks.flag(delayed, "delayed")

    def _take_batch(self, batch: int, why: str) -> None:
        """Check the number of steps that share a reading of rows, and find the center of their proposals."""
        self.batch = _checks.integer(batch, "batch", 1, why)
        if self.batch == 1:
            return
        if self.proposal != "independent" or not self.controlled:
            raise ValueError(f"batch is {batch} and proposal {self.proposal!r}; only proposals that do not depend on "
                             f"the state share rows: proposal='independent', with a control variate")
        if self.model._arms(self.batch + 2)[0].n_arms < self.batch + 2:
            raise ValueError(f"batch is {batch}, and {self.model!r} evaluates its terms at two points at a time; a GLM "
                             f"or Softmax model takes batches")
        assert self.reference is not None
        lean = self.model._lean(self.reference)
        self.lean = lean * min(1.0, FARTHEST / max(float(np.linalg.norm(lean)), 1e-300))

    @property
    def _learns_covariance(self) -> bool:
        return self.propose is None

    def describe(self) -> dict[str, Any]:
        own = {
            "kernel": type(self).__name__,
            "proposal": self.proposal,
            "control_variate": self.controlled,
            "delayed": self.delayed,
        }
        return own | {"degrees": self.tails.degrees} if self.proposal == "student-t" else own

    @property
    def tails(self) -> Tails:
        """The density that "student-t" proposes from, found by a pilot when it is first asked for."""
        if self._tails is None:
            self._tails = tails_of(self)
        return self._tails

    @property
    def proposes_reference(self) -> bool:
        """Whether proposals are draws from the reference, so that its tails decide whether the chain gets stuck."""
        return self.proposal == "independent"

    def _move(self, tuning: Tuning, rng: np.random.Generator | None, tune: bool) -> Proposal:
        screened = self.delayed and self.reference is not None and (
            self.controlled or self.model.log_prior is not None)
        options: dict[str, Any] = {"delayed": screened, "radius": self._near}
        if tune and tuning.reach:  # on the way to the reference: walks, half of them as long as the way is
            _, walk, _, _ = coefficients("random-walk", 1.0, self.model.dim, 0.0)
            return Proposal(1.0, tuning.reach * walk, walk, 0.5, **options)  # delayed from the arrival on
        if self.proposal not in FOLLOWING:  # the walks among the others are plain steps themselves
            options["plain_share"] = self.walk_share
        if self.proposal == "student-t":
            options["tails"] = (self.tails.degrees, self.tails.shift, self.tails.scale)
        if self.propose is not None:
            options["propose"] = partial(self.propose, rng)  # type: ignore[arg-type]  # None where no step is made
        return Proposal(*coefficients(self.proposal, tuning.size, self.model.dim, self.walk_share), **options)

    def _reach(self, state: ChainState) -> float:
        """`Tuning.reach` for the next window. A chain that comes no nearer has arrived where its posterior is."""
        before = math.inf if state.tuning.n_steps == 0 else state.tuning.reach
        if self.reference is None or before == 0.0:
            return 0.0
        reach = float(np.linalg.norm(state.whitened)) / self._near
        return reach if 1.0 < reach < 0.98 * before else 0.0

    def _resized(self, tuning: Tuning) -> Tuning:
        if tuning.reach:
            return replace(tuning, n_accepted=0)
        if tuning.n_steps % WINDOW or self.proposal not in TARGETS:
            return tuning
        gain = 3.0 / (tuning.n_steps / WINDOW) ** 0.6
        size = tuning.size * math.exp(gain * (tuning.n_accepted / WINDOW - TARGETS[self.proposal]))
        if self.proposal == "crank-nicolson":
            size = min(size, 1.0)
        return replace(tuning, size=size, n_accepted=0)


class MinibatchMetropolis(RowMetropolis):
    """Base of the exact kernels that draw rows in proportion to bounds on what a control variate leaves of them."""

    full_pass_advice = WIDE_BOUNDS
    _inner_tables: tuple[AliasTable, ...] = ()  # of the smaller balls
    _inverse_cubes: NDArray[np.float32] | None = None  # of rows that are thinned
    _purpose: str  # what bounds are needed for, in an error

    def __init__(
        self, model: Model, *, proposal: str | Propose = "auto", size: float = 1.0, walk_share: float = 0.1,
        control_variate: str | ArrayLike | Reference = "auto", delayed: bool = True, full_pass_at: float = 0.5,
    ) -> None:
        super().__init__(model, proposal=proposal, size=size, walk_share=walk_share, control_variate=control_variate,
                         delayed=delayed)
        if self._weights is not None:
            self._draw_by(self._weights, full_pass_at)
        elif self.reference is not None and not self.controlled:
            raise ValueError("control_variate is None; minibatches are drawn from what a control variate leaves: one "
                             "is needed")
        else:
            raise ValueError(f"{self.model!r} gives no bound on the third derivative of each row's term, "
                             f"{self._purpose}; use RacingMetropolis, which needs none")

    def _draw_by(self, weights: NDArray[np.float64], full_pass_at: float) -> None:
        """Take up where rows are drawn from, and when a step reads all of them instead."""
        self.full_pass_at = checked_share(full_pass_at)
        self._table = table_of(weights)
        self._inner_tables = tuple(table_of(smaller) for _, smaller in self._shells)
        if self._engine_class is PoissonChain and worth_thinning(self._innermost, self.model.n_seen):
            assert self.reference is not None
            self._inverse_cubes = self.model._inverse_cubes(self.reference)

    def _chain(self, *args: Any, **options: Any) -> Any:
        chain = super()._chain(*args, **options)
        chain.set_table(self._table, most_drawn(self.full_pass_at, self.model.n_rows), *self._inner_tables)
        chain.set_inverse_cubes(self._inverse_cubes)
        return chain


class _Pilot(MinibatchMetropolis):
    """Exact and cheap wherever rows have bounds, whatever kernel asks for its proposals."""

    _engine_class = PoissonChain
    _purpose = "without which no minibatch is exact"


def tails_of(kernel: RowMetropolis) -> Tails:
    """A Student-t density near the posterior, by a chain that follows the reference, then what it has found.

    Its `gain` is 0 where no start is found, as a user may know one for chains.
    """
    pilot: RowMetropolis
    if kernel._weights is None or kernel.reference is None:
        pilot = copy.copy(kernel)
    else:
        pilot = _Pilot(kernel.model, proposal="crank-nicolson", control_variate=kernel.reference)
    pilot.proposal, pilot.size, pilot.walk_share = "crank-nicolson", 1.0, 0.1
    tails = Tails(8.0, np.zeros(kernel.model.dim), 1.0)
    rng = np.random.default_rng(STAGE_SEED)
    try:
        inside = kernel.model.possible(kernel._center)
        state = pilot._state_at(kernel._center if inside else kernel._drawn_inside(rng, 1.0))
    except NoStartError:
        return tails
    for stage, steps in enumerate(STAGES):
        pilot.proposal, pilot._tails = ("student-t", tails) if stage else ("crank-nicolson", None)
        parts, read = [], 0
        for k in range(0, steps, PILOT_STEPS):
            state, some = pilot.run(rng, state, PILOT_STEPS, tune=stage == 0)
            if stage or k:  # the first steps only tune
                parts.append(pilot._unconstrained(some.draws))
            read += int(some.rows.sum())
            if read > PILOT_PASSES * kernel.model.n_rows and parts:
                break
        z = np.asarray(np.linalg.solve(kernel._factor, (np.concatenate(parts) - kernel._center).T).T, dtype=np.float64)
        tails = _fitted(z)
    return tails


def _fitted(z: NDArray[np.float64]) -> Tails:
    """The Student-t density of longest tails among those of nearly the highest mean log density at these points."""
    d, shift = z.shape[1], z.mean(axis=0)
    squares = np.square(z - shift).sum(axis=1)
    scores, scales = [], []
    for nu in DEGREES:
        scale = math.sqrt(squares.mean() / d * (nu - 2.0) / nu)
        scales.append(scale)
        constant = gammaln(0.5 * (nu + d)) - gammaln(0.5 * nu) - 0.5 * d * math.log(nu) - d * math.log(scale)
        scores.append(constant - 0.5 * (nu + d) * float(np.log1p(squares / (scale * scale * nu)).mean()))
    reference = -0.5 * (d * math.log(2.0) + float(np.square(z).sum(axis=1).mean()))  # less what both have, pi
    best = max(scores)  # the farther the posterior is from normal, the less a pilot has seen of its tails
    least = best - min(LOSS + OF_GAIN * max(0.0, best - reference), MOST_LOST)
    k = next(k for k, score in enumerate(scores) if score >= least)
    return Tails(DEGREES[k], shift, scales[k], float(scores[k] - reference))


def checked_proposal(
    proposal: str | Callable[..., Any], size: float, walk_share: float, controlled: bool,
    names: tuple[str, ...] = PROPOSALS,
) -> tuple[str, float, float]:
    """The three options of a proposal, checked; "auto" follows the control variate where there is one."""
    name = "user" if callable(proposal) else _checks.choice(proposal, "proposal", names)
    if name == "auto":
        name = "crank-nicolson" if controlled else "random-walk"
    size = _checks.real(size, "size")
    if not 0.0 < size < math.inf or (name == "crank-nicolson" and size > 1.0):
        raise ValueError(f"size is {size}; a positive number is needed, at most 1 for 'crank-nicolson'")
    walk_share = _checks.real(walk_share, "walk_share")
    if not 0.0 <= walk_share < 1.0:
        raise ValueError(f"walk_share is {walk_share}; a share of the steps in [0, 1) is needed")
    return name, size, walk_share


def coefficients(proposal: str, size: float, dim: int, walk_share: float) -> tuple[float, float, float, float]:
    """keep, noise, walk and share of walks: whitened, z' = keep z + noise xi, or z' = z + walk xi."""
    walk = 2.38 / math.sqrt(dim)
    if proposal == "crank-nicolson":
        return math.sqrt(max(0.0, 1.0 - size * size)), size, walk, walk_share
    if proposal in ("independent", "student-t"):
        return 0.0, 1.0, walk, walk_share
    if proposal == "langevin":
        step = min(1.65 * dim ** (-1.0 / 6.0) * size, math.sqrt(2.0))
        return 1.0 - step * step / 2.0, step, walk, walk_share
    return 1.0, walk * size, walk, 0.0
