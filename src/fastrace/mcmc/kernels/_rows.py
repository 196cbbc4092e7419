"""What all kernels over the rows of a model share: references, coordinates, states, tuning, engines."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace._base import _checks, _frames
from fastrace.mcmc.kernels._chain import Chain, ExactChain, Move
from fastrace.mcmc.models.base import LogPrior
from fastrace.mcmc.models.model import Model, NoModeError, Reference
from fastrace.mcmc.protocol import StepInfo, Steps, from_flags, joined, keep_partial
from fastrace.races._weighted import AliasTable

PILOT_SEED = 20160619  # of all pilots: what a kernel is depends on the model alone
WINDOW = 50  # steps between two changes of the proposal while tuning
NEAR = 3.0  # how far beyond sqrt(dim) standard deviations from the reference's center a state is still near it
SPREAD = 2.0  # standard deviations of starts, in those of the reference
MOST_PASSES, MOST_DRAWN = 10.0, 10_000  # of the rows, or rows if more, that a step draws at most instead of a pass
AS_WIDE, NEARER, CLOSER = 4, 20, 0.7  # starts drawn where the posterior is 0; then points nearer, each by how much
SEEN, USUAL = 16, 8.0  # coordinates of a row, and rows of a usual minibatch, from which on a kernel may thin
FIRST_COVARIANCE = 100  # tuning steps after which the covariance of the draws is taken up; then at twice as many


@dataclass(frozen=True, eq=False)
class Tuning:
    """How far a kernel has adapted to its chain.

    Attributes
    ----------
    size : float
        Size of the proposal, in units of the default.
    n_steps : int
        Tuning steps made.
    n_accepted : int
        Accepted in the present window.
    center, factor : ndarray
        Coordinates in which the chain moves.
    count, mean, scatter
        Of the draws since the covariance was taken last.
    reach : float
        0.0 once the chain has arrived near the reference, or comes no nearer. Before, while tuning, its distance from
        the center in units of that at which it is near.
    best : tuple of ndarray and float, or None
        Of a chain that makes steps without a decision: the point of highest log posterior where it was looked at, and
        that log posterior.
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
    best: tuple[NDArray[np.float64], float] | None = field(default=None, repr=False)

    def extended(self, draws: NDArray[np.float64]) -> Tuning:
        """With count, mean and scatter of further draws, one by one: how a run is cut leaves no trace in the sums."""
        count, mean, scatter = self.count, self.mean, self.scatter
        for draw in draws:
            count += 1
            step = draw - mean
            mean = mean + step / count
            scatter = scatter + np.outer(step, draw - mean)
        return replace(self, count=count, mean=mean, scatter=scatter)

    def with_covariance(self) -> Tuning:
        """In the coordinates that the draws since the last change ask for."""
        d = len(self.mean)
        share = self.count / (self.count + 5.0)
        covariance = share * self.scatter / max(self.count - 1, 1) + (1.0 - share) * 1e-3 * np.eye(d)
        factor = np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
        return replace(self, factor=factor, size=1.0, count=0, mean=np.zeros(d), scatter=np.zeros((d, d)))


@dataclass(frozen=True, eq=False)
class ChainState:
    """State of a chain over rows.

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


class RowKernel:
    """Base of the kernels over the rows of a model. Subclasses say how a chain moves, and how it decides."""

    variable = "theta"
    full_pass_advice = ""  # what to do where most steps read all rows; empty where the kernel is made for that
    size = 1.0  # of the move at the start
    _engine_class: type[Chain] = ExactChain  # how a chain decides

    def __init__(
        self, model: Model, covariance: ArrayLike | None, control_variate: str | ArrayLike | Reference | None,
        own_moves: bool = False,
    ) -> None:
        if not isinstance(model, Model):
            raise TypeError(f"model is {_checks.shown(model)}; a GLM, FunctionModel, SourceModel or other mcmc.Model "
                            f"is needed{_checks.of_pymc(model)}")
        given = own_moves or covariance is not None or isinstance(control_variate, Reference)
        self.model = model if given else model._row_form()  # what is given is in the coordinates of the model
        self.reference, self.controlled = self._refer(control_variate)
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
        if self.records_natural:
            control_variate = self._unconstrained(
                _frames.floats_in_order(control_variate, self.names, "control_variate"))
        return self.model.reference(control_variate), True

    def _start_factor(self, covariance: ArrayLike | None) -> NDArray[np.float64]:
        if covariance is None:
            return np.eye(self.model.dim) if self.reference is None else self.reference.factor
        if self.reference is not None:
            raise ValueError("covariance came with a model that has derivatives; its proposals follow the reference")
        return cholesky_of(covariance, self.model.dim, self.names)

    @property
    def dim(self) -> int:
        """Coordinates of a state."""
        return self.model.dim

    @property
    def names(self) -> tuple[str, ...] | None:
        """What the model calls the coordinates of draws."""
        return self.model.natural_names

    @property
    def records_natural(self) -> bool:
        """Whether draws are on the natural scale, and not in the coordinates in which chains move."""
        return self.model.joint_prior is not None

    @property
    def shown_last(self) -> tuple[int, ...]:
        """Coordinates that tables print after all others."""
        return self.model._shown_last

    @property
    def _center(self) -> NDArray[np.float64]:
        return np.zeros(self.model.dim) if self.reference is None else self.reference.center

    @property
    def _learns_covariance(self) -> bool:
        """Whether tuning takes up the covariance of the draws, where there is no reference."""
        return True

    @property
    def _weights(self) -> NDArray[np.float64] | None:
        """Bounds on the change of each row's term, where the control variate has them."""
        return self.reference.weights if self.controlled and self.reference is not None else None

    def describe(self) -> dict[str, Any]:
        """What a trace remembers of the kernel."""
        return {"kernel": type(self).__name__, "control_variate": self.controlled}

    # States.

    def init(self, position: ArrayLike | None = None, rng: _checks.RngLike = None) -> ChainState:
        """The state at a position.

        Parameters
        ----------
        position : array_like of shape (dim,), optional
            In the coordinates of draws: a learned scale as it is. By default a draw from the reference, a normal
            density near the posterior; without one, the model's `start`, by default zeros.
        rng : None, int, SeedSequence or Generator, optional
            For that draw.
        """
        if position is None:
            start = self._drawn_inside(_checks.generator(rng), 1.0)
        else:
            start = _frames.floats_in_order(position, self.names, "position")
            if start.shape != (self.dim,) or not np.isfinite(start).all():
                raise ValueError(f"position is {_checks.shown(position)}; {self.dim} finite parameters are needed")
            start = self._unconstrained(start)
        return self._state_at(start)

    def _state_at(self, theta: NDArray[np.float64]) -> ChainState:
        """The state at a position in the coordinates in which chains move."""
        tuning, theta = self._untuned(), np.array(theta, dtype=np.float64)
        return ChainState(theta, self._whitened(theta, tuning), None, tuning)

    def dispersed(self, rng: np.random.Generator) -> NDArray[np.float64] | None:
        """A start for one of several chains: a draw from the reference, twice as wide; None without a reference.

        It lies near enough that a chain needs not travel, and where the posterior is not 0.
        """
        return None if self.reference is None else self._recorded(self._drawn_inside(rng, SPREAD))

    def _drawn_inside(self, rng: np.random.Generator, width: float) -> NDArray[np.float64]:
        """A draw from the reference, so many times as wide, where the posterior is not 0; else the model's start."""
        if self.reference is None:
            start = np.zeros(self.model.dim)
            start[: self.model.n_seen] = self.model._start()
            return start

        def draw() -> NDArray[np.float64]:
            z = width * rng.standard_normal(self.model.dim)
            if width > 1.0:
                z *= min(1.0, self._near / float(np.linalg.norm(z)))
            return np.asarray(self._center + self._factor @ z, dtype=np.float64)

        return first_inside(self.model, self._center, draw)

    def _untuned(self) -> Tuning:
        d = self.model.dim
        return Tuning(self.size, 0, 0, self._center, self._factor, 0, np.zeros(d), np.zeros((d, d)))

    def _whitened(self, position: NDArray[np.float64], tuning: Tuning) -> NDArray[np.float64]:
        chain = self._take(tuning)
        whitened = chain.whiten(position)
        self._engines.append(chain)
        return whitened

    def step(self, rng: np.random.Generator, state: ChainState) -> tuple[ChainState, StepInfo]:
        """One transition: the next state, and what it took."""
        state, steps = self.run(rng, state, 1)
        return state, steps.info(0)

    def run(
        self, rng: np.random.Generator, state: ChainState, n: int, *, tune: bool = False
    ) -> tuple[ChainState, Steps]:
        """Many transitions in one call, without the GIL as long as no Python function is asked.

        Parameters
        ----------
        rng : Generator
        state : ChainState
        n : int
            How many.
        tune : bool, default False
            Adapt the size of the proposal, and without a reference its covariance, on the way.

        Returns
        -------
        state : ChainState
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
            if state.tuning.n_steps % WINDOW == 0:
                state = self._at_a_window(state)
            some_steps = self._piece(state.tuning)
            count = min(n - done, some_steps - state.tuning.n_steps % some_steps)
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
        self, rng: np.random.Generator, state: ChainState, n: int, tune: bool = False
    ) -> tuple[ChainState, Steps]:
        chain = self._take(state.tuning, rng, tune)
        draws = np.empty((n, self.dim))
        rows, looks, flags = np.empty(n, np.int64), np.empty(n, np.int32), np.empty(n, np.uint8)
        chain.load(state.position, state.whitened, state.cache)
        try:
            chain.run(rng, draws, rows, looks, flags)
        except BaseException as error:
            k = chain.n_done
            steps = from_flags(self._recorded(draws[:k]), rows[:k], looks[:k], flags[:k])
            keep_partial(error, replace(state, position=chain.position, whitened=chain.whitened, cache=None), steps)
            raise
        after = replace(state, position=chain.position, whitened=chain.whitened, cache=chain.cache)
        self._look(chain)
        self._engines.append(chain)
        return after, from_flags(self._recorded(draws), rows, looks, flags)

    def _recorded(self, draws: NDArray[np.float64]) -> NDArray[np.float64]:
        """Draws as a trace shows them."""
        return np.asarray(self.model.constrain(draws)) if self.records_natural else draws

    def _unconstrained(self, draws: NDArray[np.float64]) -> NDArray[np.float64]:
        """The inverse of `_recorded`."""
        return np.asarray(self.model.unconstrain(draws)) if self.records_natural else draws

    def _look(self, chain: Chain) -> None:
        """Note what a run has shown of the arguments."""

    # Engines: compiled working memory, one per chain at work.

    def _take(self, tuning: Tuning, rng: np.random.Generator | None = None, tune: bool = False) -> Chain:
        move = self._move(tuning, rng, tune)
        try:
            chain = self._engines.pop()
        except IndexError:
            chain = self._engine(move)
        chain.set_coordinates(tuning.center, tuning.factor)
        chain.use(move)
        return chain

    @property
    def _expanded_at(self) -> Reference | None:
        """The reference whose expansion is the control variate, if there is one."""
        return self.reference if self.controlled else None

    @property
    def calls_python(self) -> bool:
        """Whether each step calls a function of Python for what the expansion leaves of the prior."""
        return self._log_prior_beside() is not None

    def _log_prior_beside(self) -> LogPrior | None:
        """What moves and the control variate leave of the log prior."""
        return self.model.log_prior_beside(self._expanded_at)

    def _engine(self, move: Move) -> Chain:
        reference = self._expanded_at
        source, theta = self.model.engine(reference)
        precision = self.model.prior_precision
        apart = not self.controlled and bool((precision > 0.0).any())
        return self._chain(
            source, theta, self._center, self._factor, move, surrogate=self.controlled,
            log_prior=self._log_prior_beside(), prior_mean=self.model.prior_mean if apart else None,
            prior_precision=precision if apart else None, weights=self._bounds_of_moves(),
        )

    @property
    def _shells(self) -> tuple[tuple[float, NDArray[np.float64]], ...]:
        """Radii and weights of the smaller balls that decisions make use of, the smallest first."""
        return self.reference.shells if self.controlled and self.reference is not None else ()

    @property
    def _innermost(self) -> NDArray[np.float64]:
        """Weights of rows in the smallest of the balls, in which most decisions are made."""
        if self._shells:
            return self._shells[0][1]
        assert self._weights is not None
        return self._weights

    def _bounds_of_moves(self) -> tuple[Any, ...] | None:
        """What a chain needs to bound the change of each row's term; None if nothing does."""
        if self._weights is None:
            return None
        assert self.reference is not None
        about = self.reference
        inner = [(float(weights.max()), math.fsum(weights), radius) for radius, weights in self._shells]
        return (float(self._weights.max()), math.fsum(self._weights), about.radius, self._from_hat, about.rounding,
                *inner)

    @property
    def _from_hat(self) -> NDArray[np.float64]:
        """Where the lengths that bounds refer to begin: the whitened center as seen from the point of expansion."""
        assert self.reference is not None
        return self.reference.from_hat

    def _chain(self, *args: Any, **options: Any) -> Any:
        return self._engine_class(*args, **options)

    def _move(self, tuning: Tuning, rng: np.random.Generator | None, tune: bool) -> Move:
        raise NotImplementedError

    # Tuning.

    def _reach(self, state: ChainState) -> float:
        """`Tuning.reach` for the next window."""
        return 0.0

    def _at_a_window(self, state: ChainState) -> ChainState:
        """The state with which a window of tuning begins."""
        return replace(state, tuning=replace(state.tuning, reach=self._reach(state)))

    def _piece(self, tuning: Tuning) -> int:
        """Tuning steps made at once, of which a window is a whole multiple."""
        return WINDOW

    def _resized(self, tuning: Tuning) -> Tuning:
        """What the steps since the last change ask of the size."""
        return tuning

    def _adapted(self, state: ChainState, steps: Steps) -> ChainState:
        tuning = state.tuning
        if self.reference is None:
            tuning = tuning.extended(self._unconstrained(steps.draws))
        n, accepted = tuning.n_steps + len(steps), tuning.n_accepted + int(steps.accepted.sum())
        tuning = self._resized(replace(tuning, n_steps=n, n_accepted=accepted))
        doublings = n / FIRST_COVARIANCE
        if (self.reference is not None or not self._learns_covariance or doublings < 1.0
                or math.log2(doublings) % 1.0 != 0.0):
            return replace(state, tuning=tuning)
        tuning = tuning.with_covariance()
        whitened = np.asarray(np.linalg.solve(tuning.factor, state.position - tuning.center), dtype=np.float64)
        return replace(state, tuning=tuning, whitened=whitened)


class NoStartError(ValueError):
    """No start was found where the posterior is not 0."""


def first_inside(
    model: Model, middle: NDArray[np.float64], draw: Callable[[], NDArray[np.float64]]
) -> NDArray[np.float64]:
    """The first of some starts where the posterior of a model is not 0; the last is the model's own.

    Parameters
    ----------
    model : Model
    middle : ndarray of shape (k,)
        What draws come nearer to in their first k parameters, in the coordinates of moves. If it is empty, none does.
    draw : callable
        Returns a start, shape (dim,), at random.

    Raises
    ------
    NoStartError
        If there is none, though the last are next to the middle.
    """
    n = len(middle)
    for k in range(AS_WIDE + NEARER):
        if k < AS_WIDE or n == 0:
            start = draw()
        else:
            start[:n] = middle + CLOSER * (start[:n] - middle)
        if model.possible(start):
            return start
    if n:
        last, start[:n] = start.copy(), model._start()
        if model.possible(start):
            return start
        start = last
    try:
        value = float(model.log_posteriors(start[None])[0])
    except (ValueError, ArithmeticError):   # then the chain says which row is to blame
        return start
    also = ", and at the model's own start" if n else ""
    raise NoStartError(f"no start was found where the log-posterior is finite: it is {value} at "
                       f"{_checks.shown(start)} and at {AS_WIDE + NEARER - 1} points tried before, ever nearer to "
                       f"where the likelihood is expanded{also}; give such a point as init, or one for each chain")


def cholesky_of(covariance: ArrayLike, dim: int, names: Sequence[str] | None = None) -> NDArray[np.float64]:
    """The lower triangular factor of a covariance that a user gave, of parameters with these names."""
    matrix = np.atleast_2d(_frames.square_in_order(covariance, names, "covariance"))
    try:
        if matrix.shape != (dim, dim):
            raise np.linalg.LinAlgError
        return np.asarray(np.linalg.cholesky(matrix), dtype=np.float64)
    except np.linalg.LinAlgError:
        raise ValueError(
            f"covariance has shape {matrix.shape}; a positive definite matrix of shape ({dim}, {dim}) is needed"
        ) from None


def most_drawn(full_pass_at: float, n_rows: int) -> float:
    """Expected rows of a minibatch from which on a step reads all rows instead."""
    return min(full_pass_at * n_rows, max(MOST_PASSES * n_rows, MOST_DRAWN))


def worth_thinning(weights: NDArray[np.float64], seen: int) -> bool:
    """Whether minibatches by these weights are large, and how far a row moves says much more than its weight.

    Of `seen` coordinates a step of length 1 has about the share 1 / sqrt(seen) along a row. With 10 of them, rows kept
    at 16 times the rate of what they can change are nearly all: a step took 1.13 times as long. With 80, a tenth.
    """
    return seen >= SEEN and usual_rows(weights, seen) >= USUAL


def usual_rows(weights: NDArray[np.float64], seen: int) -> float:
    """Rows of a minibatch by these weights, for a move between two draws of `seen` coordinates.

    Each end adds a weight times the third power of its distance, sqrt(seen), over 6.
    """
    return math.fsum(weights) * seen**1.5 / 3.0


def checked_share(full_pass_at: float) -> float:
    """`full_pass_at`, checked."""
    share = _checks.real(full_pass_at, "full_pass_at")
    if not share > 0.0:
        raise ValueError(f"full_pass_at is {full_pass_at}; a positive share of the rows is needed")
    return share


def table_of(weights: NDArray[np.float64]) -> AliasTable:
    """Rows in proportion to their weights. Where none has a weight, the model is its expansion and no row is drawn."""
    return AliasTable(weights if weights.any() else weights + 1.0)
