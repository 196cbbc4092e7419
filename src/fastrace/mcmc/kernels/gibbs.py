"""Gibbs sampling of categorical variables: what the kernels share, and the one that reads every factor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace._base import _checks
from fastrace.control_variates import ControlVariate
from fastrace.mcmc.protocol import StepInfo, Steps, keep_partial
from fastrace.sources import CallableSource, Source

States = NDArray[np.intp]
Factors = Callable[[NDArray[np.intp], NDArray[np.int64], States], ArrayLike]
OwnFactors = Callable[[int, NDArray[np.int64], States], ArrayLike]


@dataclass(frozen=True, eq=False)
class Categorical:
    """One categorical variable and the factors of its conditional distribution.

    Given all variables z, its log-probability of state s is ``log_prior[s]`` plus the sum of its log-factors at s.

    Attributes
    ----------
    n_states : int
        States 0, 1, ...; two for a binary variable.
    factors : callable or Source
        ``factors(states, rows, z)`` returns the log-factors with these numbers at these states, shape
        (len(rows), len(states)), the other variables being as in z. Or a `Source` with the states as arms; `prepare`
        then tells it what z is. With `sizes` it is ``factors(state, rows, z)``, shape (len(rows),).
    n_factors : int, optional
        Number of factors; not needed for a `Source`.
    log_prior : array_like of shape (n_states,) or callable, optional
        The log-factor that is always read; ``log_prior(z)`` if it depends on the other variables.
    sizes : callable, optional
        ``sizes(z)`` returns the number of factors of each state, shape (n_states,), where each state has factors of its
        own, such as a cluster has members.
    prepare : callable, optional
        ``prepare(z)`` is called before the variable is drawn.
    expansions : callable or Source, optional
        A control variate: approximations of the log-factors, such as second-order expansions, as `factors` gives these,
        for variables without `sizes`. `RacingGibbs` then proposes from the sums of the approximations, and races what
        they leave of the factors of two states.
    expansion_sums : callable, optional
        ``expansion_sums(z)`` returns the sums of the approximations over all factors, shape (n_states,), without
        reading all of them; needed with `expansions`.
    residual_support : tuple of float or of arrays of shape (n_states,), optional
        Interval (low, high) that holds what the expansions leave of every log-factor, whatever z is: races on it can
        then be rigorous. Not needed where `factors` is a `GLMSource` or `SoftmaxSource` and
        `expansions` a `control_variates.TaylorSurrogate` of it, which know it.
    """

    n_states: int
    factors: Factors | OwnFactors | Source
    n_factors: int | None = None
    log_prior: ArrayLike | Callable[[States], ArrayLike] | None = None
    sizes: Callable[[States], ArrayLike] | None = None
    prepare: Callable[[States], object] | None = None
    expansions: Factors | Source | None = None
    expansion_sums: Callable[[States], ArrayLike] | None = None
    residual_support: _checks.Support | None = None

    def __post_init__(self) -> None:
        _checks.integer(self.n_states, "n_states", 1, "a variable has states")
        if isinstance(self.factors, Source):
            if self.factors.n_arms != self.n_states:
                raise ValueError(f"the source has {self.factors.n_arms} arms; {self.n_states}, one a state, are needed")
        elif not callable(self.factors):
            raise TypeError(f"factors is {_checks.shown(self.factors)}; a function or a Source is needed")
        elif self.sizes is None and self.n_factors is None:
            raise ValueError("n_factors is missing; a function of factors does not show how many there are")
        if (self.expansions is None) != (self.expansion_sums is None):
            raise ValueError("expansions and expansion_sums belong together: approximations of the factors, and a "
                             "function of z that returns their sums")
        if self.expansions is not None and self.sizes is not None:
            raise ValueError("expansions came with sizes; states with factors of their own are raced without them")
        if self.residual_support is not None:
            if self.expansions is None:
                raise ValueError("residual_support came without expansions, whose residuals it holds; the interval of "
                                 "the factors themselves is the support of RacingGibbs")
            _checks.support_bounds(self.residual_support, self.n_states)

    def offset(self, z: States) -> NDArray[np.float64]:
        """Evaluate `log_prior` at the present variables."""
        value = self.log_prior(z) if callable(self.log_prior) else self.log_prior
        if value is None:
            return np.zeros(self.n_states)
        out = _checks.floats(value, "log_prior")
        if out.shape != (self.n_states,) or np.isnan(out).any() or (out == np.inf).any() or not (out > -np.inf).any():
            raise ValueError(f"log_prior is {_checks.shown(value)}; {self.n_states} numbers are needed, -inf where a "
                             f"state is ruled "
                             f"out, and not all of them")
        return out

    def source(self, z: States) -> Source:
        """The factors as a source that follows `z`, an array which its owner changes in place."""
        factors = self._source_of(self.factors, z, self.n_factors)
        sums: Any = self.expansion_sums
        if sums is None:
            return factors
        near = self._source_of(self.expansions, z, factors.n_rows)
        return ControlVariate(factors, near, lambda: sums(z.copy()), support=self.residual_support)

    def _source_of(self, factors: Any, z: States, n_factors: int | None) -> Source:
        if isinstance(factors, Source):
            return factors
        assert n_factors is not None
        return CallableSource(lambda arms, rows: factors(arms, rows, z.copy()), self.n_states, n_factors)

    def own(self, z: States) -> tuple[NDArray[np.int64], Callable[[int, NDArray[np.int64]], ArrayLike]]:
        """Sizes, and the factors of one state, where each state has its own."""
        assert self.sizes is not None
        sizes = _checks.as_array(self.sizes(z.copy()), "what sizes returned").astype(np.int64)
        if sizes.shape != (self.n_states,) or (sizes < 0).any():
            raise ValueError(f"sizes(z) returned {sizes}; {self.n_states} counts are needed")
        factors: Any = self.factors
        return sizes, lambda arm, rows: factors(arm, rows, z.copy())


@dataclass(frozen=True, eq=False)
class GibbsState:
    """State of a Gibbs chain.

    Attributes
    ----------
    position : ndarray of intp, shape (n_variables,)
    losses : ndarray of int, shape (n_variables,)
        Races in a row that read all factors of the variable; of `RacingGibbs` also whether these were looked at.
    """

    position: States
    losses: NDArray[np.intp]


@dataclass
class Tally:
    """What one sweep took."""

    rows: int = 0
    looks: int = 0
    moved: bool = False
    full_pass: bool = False  # of a draw: it read every factor in one pass; of a sweep: at least half of its draws did
    undecided: bool = False
    looked: int = 0  # variables whose factors were looked at beforehand


class Gibbs:
    """Gibbs sampling that reads every factor of every state in order: the yardstick of `RacingGibbs`.

    Parameters
    ----------
    variables : sequence of Categorical
        A step draws each of them in turn from its conditional distribution.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace import mcmc
    >>> y = np.random.default_rng(0).normal(0.3, 1.0, 1000)
    >>> means = np.array([0.0, 0.25, 0.5])
    >>> factors = lambda states, rows, z: -0.5 * (y[rows, None] - means[states]) ** 2
    >>> kernel = mcmc.Gibbs([mcmc.Categorical(3, factors, 1000)])
    >>> trace = mcmc.sample(kernel, n_draws=100, n_chains=1, n_tune=0, rng=1)
    >>> int(np.bincount(trace.draws[0, :, 0]).argmax())
    1
    """

    variable = "z"

    def __init__(self, variables: Sequence[Categorical]) -> None:
        if isinstance(variables, Categorical):
            raise TypeError("variables is one Categorical; a list of them is needed: [variable]")
        self.variables = tuple(variables) if isinstance(variables, Iterable) else ()
        if not self.variables or not all(isinstance(v, Categorical) for v in self.variables):
            raise ValueError(f"variables is {_checks.shown(variables)}; a sequence of Categorical, at least one, is "
                             f"needed")

    def describe(self) -> dict[str, Any]:
        """What a trace remembers of the kernel."""
        return {"kernel": type(self).__name__, "n_variables": len(self.variables)}

    def init(self, position: ArrayLike | None = None, rng: _checks.RngLike = None) -> GibbsState:
        """The state at a position; by default all variables in states drawn uniformly, or 0 without `rng`."""
        n_states = np.array([v.n_states for v in self.variables])
        if position is None:
            z = np.zeros(len(n_states), np.intp) if rng is None else _checks.generator(rng).integers(0, n_states)
        else:
            z = _checks.as_array(position, "position")
            if z.shape != n_states.shape or z.dtype.kind not in "iu" or (z < 0).any() or (z >= n_states).any():
                raise ValueError(f"position is {_checks.shown(position)}; {len(n_states)} states, each below the "
                                 f"number of its "
                                 f"variable's states, are needed")
        return GibbsState(z.astype(np.intp), np.zeros(len(n_states), np.intp))

    def step(self, rng: np.random.Generator, state: GibbsState) -> tuple[GibbsState, StepInfo]:
        """One sweep over the variables."""
        state, steps = self.run(rng, state, 1)
        return state, steps.info(0)

    def run(
        self, rng: np.random.Generator, state: GibbsState, n: int, *, tune: bool = False
    ) -> tuple[GibbsState, Steps]:
        """`n` sweeps; there is nothing to tune."""
        z, losses = state.position.copy(), state.losses.copy()
        draws = np.empty((n, len(z)), np.intp)
        tallies: list[Tally] = []
        try:
            engines = [self._engine(v, z) for v in self.variables]
            for t in range(n):
                tally, n_full = Tally(), 0
                for i in range(len(self.variables)):
                    before, tally.full_pass = z[i], False
                    z[i] = self.draw(rng, i, z, losses, engines[i], tally)
                    tally.moved |= bool(z[i] != before)
                    n_full += tally.full_pass
                tally.full_pass = 2 * n_full >= len(self.variables)
                draws[t] = z
                tallies.append(tally)
        except BaseException as error:
            k = len(tallies)
            last = GibbsState(draws[k - 1].copy(), losses) if k else state
            keep_partial(error, last, _steps(draws[:k], tallies))
            raise
        return replace(state, position=z, losses=losses), _steps(draws, tallies)

    def _engine(self, variable: Categorical, z: States) -> Any:
        """What draws of a variable are made with, for many of them."""
        return None if variable.sizes is not None else variable.source(z)

    def draw(
        self, rng: np.random.Generator, i: int, z: States, losses: NDArray[np.intp], engine: Any, tally: Tally
    ) -> int:
        """Draw variable i given the others."""
        variable = self.variables[i]
        if variable.prepare is not None:
            variable.prepare(z.copy())
        return self._drawn(rng, i, z, variable.offset(z), losses, engine, tally)

    def _drawn(
        self, rng: np.random.Generator, i: int, z: States, offset: NDArray[np.float64], losses: NDArray[np.intp],
        engine: Any, tally: Tally,
    ) -> int:
        """Draw a variable that is prepared; `offset` is its log prior."""
        return self._exact(rng, self.variables[i], z, offset, engine, tally)

    def _exact(
        self, rng: np.random.Generator, variable: Categorical, z: States, offset: NDArray[np.float64],
        source: Source | None, tally: Tally,
    ) -> int:
        noise = -np.log(rng.standard_exponential(variable.n_states))
        possible = np.flatnonzero(offset > -np.inf)
        if source is None:
            sizes, factors = variable.own(z)
            sums = np.array([np.sum(factors(int(s), np.arange(sizes[s]))) if sizes[s] else 0.0 for s in possible])
            tally.rows += int(sizes[possible].sum())
        else:
            sums = source.totals(possible)
            tally.rows += source.n_rows * len(possible)
        if np.isnan(sums).any() or (sums == np.inf).any():
            raise ValueError(f"the log-factors of states {possible} sum to {sums}; finite numbers are needed, or -inf")
        scores = sums + offset[possible] + noise[possible]
        if not (scores > -np.inf).any():
            raise ValueError("every state of a variable has probability 0 given the others; nothing can be drawn")
        tally.looks += 1
        tally.full_pass = True
        return int(possible[np.argmax(scores)])


def _steps(draws: States, tallies: list[Tally]) -> Steps:
    def column(name: str, dtype: type) -> NDArray[Any]:
        return np.array([getattr(tally, name) for tally in tallies], dtype=dtype)

    return Steps(draws, column("rows", np.int64), column("looks", np.int32), column("moved", np.bool_),
                 column("full_pass", np.bool_), column("undecided", np.bool_))
