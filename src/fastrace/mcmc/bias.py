"""What delta bought: races decided again, exactly."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy import stats

from fastrace._base import _checks
from fastrace._base._blas import one_blas_thread
from fastrace.mcmc._diagnosis import unmixed
from fastrace.mcmc.kernels.gibbs import Gibbs, Tally
from fastrace.mcmc.kernels.metropolis import Metropolis
from fastrace.mcmc.kernels.racing_gibbs import HELD, RacingGibbs
from fastrace.mcmc.kernels.racing_metropolis import RacingMetropolis
from fastrace.mcmc.kernels.racing_slice import RacingSlice
from fastrace.mcmc.kernels.slice import Slice
from fastrace.mcmc.kernels.surrogate_metropolis import SurrogateMetropolis
from fastrace.mcmc.kernels.variable_selection import VariableSelection
from fastrace.mcmc.trace import Trace

__all__ = ["BiasCheck", "check_bias"]

_Races = RacingMetropolis | RacingGibbs | RacingSlice | SurrogateMetropolis | VariableSelection


@dataclass(frozen=True)
class BiasCheck:
    """How often races decided otherwise than all rows do.

    Attributes
    ----------
    n_checked, n_wrong : int
        Decisions made twice, and those that differed.
    n_raced : int
        Of those checked, the ones whose race stopped before the last row: only these can be wrong.
    rate : float
        ``n_wrong / n_checked``.
    interval : tuple of float
        Clopper-Pearson interval of the rate, at 95 %.
    delta : float
        The promise.
    warnings : tuple of str
        Why the decisions may not be those of the posterior: the chains have not mixed, so that their states are not
        draws of it.
    """

    n_checked: int
    n_wrong: int
    n_raced: int
    rate: float
    interval: tuple[float, float]
    delta: float
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"{self.n_wrong} of {self.n_checked} decisions wrong ({self.n_raced} of them raced): rate {self.rate:.2g}, "
            f"95 % interval ({low:.2g}, {high:.2g}), promised {self.delta:g}"
            + "".join(f"\nwarning: {words}" for words in self.warnings)
        )


@one_blas_thread()
def check_bias(
    kernel: _Races, trace: Trace, n: int = 1000,
    rng: _checks.RngLike = None,
) -> BiasCheck:
    """Estimate the error rate of a racing kernel's decisions along a trace.

    Parameters
    ----------
    kernel : RacingMetropolis, RacingSlice, RacingGibbs, or SurrogateMetropolis or VariableSelection that races
        The kernel that made the trace.
    trace : Trace
        Decisions are made anew at states drawn at random from it.
    n : int, default 1000
        How many, or a few more: sweeps of a slice sampler are checked whole. Each costs a full pass, or two.
    rng : None, int, SeedSequence or Generator, optional
        Source of randomness.

    Returns
    -------
    BiasCheck
        How many decisions were made twice, how many of them the race got wrong, and whether the chains have mixed.

    Raises
    ------
    TypeError
        If the kernel does not race.
    ValueError
        If the trace is empty.

    Warns
    -----
    UserWarning
        If the chains have not mixed. Decisions at states that are not the posterior's may be easier than those that
        matter: few wrong ones then say nothing of the draws.

    Notes
    -----
    From the same random numbers the race and the pass over all rows make the same proposal with the same threshold, or
    perturb the states with the same noise; they differ only if the race is wrong. For `RacingMetropolis` the proposal
    is as it was tuned in the chain. In a sweep of `RacingSlice` all that follows a wrong test differs: such a sweep
    counts as one wrong test out of one, so that the rate is rather too high than too low.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace import mcmc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(5000, 3))
    >>> kernel = mcmc.RacingMetropolis(mcmc.GLM(X, rng.random(5000) < 0.5), delta=0.05)
    >>> trace = mcmc.sample(kernel, n_draws=500, n_chains=1, rng=1)
    >>> mcmc.check_bias(kernel, trace, n=200, rng=2).rate < 0.05
    True
    """
    n = _checks.integer(n, "n", 1, "something must be checked")
    gen = _checks.generator(rng)
    races = isinstance(kernel, (SurrogateMetropolis, VariableSelection)) and kernel.decision == "race"
    if not races and not isinstance(kernel, (RacingMetropolis, RacingGibbs, RacingSlice)):
        raise TypeError(f"kernel is a {type(kernel).__name__}, whose decisions are not races: made from "
                        f"minibatches or all rows they have no error rate. RacingMetropolis, RacingSlice, RacingGibbs, "
                        f"or SurrogateMetropolis or VariableSelection with decision='race', is needed; trace.rhat() "
                        f"says whether chains have mixed")
    if not isinstance(trace, Trace):
        raise TypeError(f"trace is {_checks.shown(trace)}; what mcmc.sample returned is needed")
    names = getattr(kernel, "names", None) or ()
    if trace.names and names and tuple(names) != trace.names:
        raise ValueError(f"the trace is of {', '.join(map(repr, trace.names[:10]))}, and the kernel of "
                         f"{', '.join(map(repr, names[:10]))}, in this order; the kernel that made the trace is needed")
    if not trace.n_draws:
        raise ValueError("the trace is empty; sample first")
    decided_twice = _twice(kernel)
    checked = wrong = raced = 0
    while checked < n:
        chain = int(gen.integers(trace.n_chains))
        position = trace.chains[chain].draws[gen.integers(len(trace.chains[chain]))]
        tests, differs, before_the_end = decided_twice(kernel, trace.states[chain], position,
                                                       int(gen.integers(2**62)))
        checked += tests
        wrong += differs
        raced += before_the_end
    low = float(stats.beta.ppf(0.025, wrong, checked - wrong + 1)) if wrong else 0.0
    high = float(stats.beta.ppf(0.975, wrong + 1, checked - wrong)) if wrong < checked else 1.0
    problems = unmixed(trace)
    for words in problems:
        warnings.warn(words, stacklevel=_checks.users_level())
    return BiasCheck(checked, wrong, raced, wrong / checked, (low, high), kernel.delta, tuple(problems))


Twice = Callable[[Any, Any, Any, int], tuple[int, int, int]]  # tests made twice, wrong ones, those that ended early


def _twice(kernel: _Races) -> Twice:
    """What makes the decisions from one state twice."""
    if isinstance(kernel, RacingGibbs):
        return _gibbs_twice
    if isinstance(kernel, VariableSelection):
        return partial(_rows_twice, kernel._deciding("exact"))
    if isinstance(kernel, SurrogateMetropolis):
        exact = copy.copy(kernel)
        exact.decision, exact._engines = "exact", []
        return partial(_rows_twice, exact)
    control_variate = kernel.reference if kernel.controlled else None
    if isinstance(kernel, RacingSlice):
        return partial(_rows_twice, Slice(kernel.model, width=kernel.width, max_steps=kernel.max_steps,
                                          control_variate=control_variate))
    return partial(_rows_twice, Metropolis(
        kernel.model, proposal=kernel.propose or kernel.proposal, walk_share=kernel.walk_share,
        control_variate=control_variate, delayed=kernel.delayed))


def _rows_twice(exact: Any, kernel: Any, state: Any, position: Any, seed: int) -> tuple[int, int, int]:
    here = replace(exact.init(position), tuning=state.tuning)
    if not isinstance(exact, SurrogateMetropolis):
        here = replace(here, whitened=exact._whitened(here.position, state.tuning))
    race, full = (maker.run(np.random.default_rng(seed), here, 1)[1] for maker in (kernel, exact))
    if isinstance(exact, Slice):
        differs = not np.array_equal(race.draws, full.draws)
        tests = 1 if differs else int(full.looks[0])
        return tests, differs, tests if race.rows[0] < full.rows[0] else 0
    return 1, bool(race.accepted[0] != full.accepted[0]), bool(race.looks[0] > 0 and not race.undecided[0])


def _gibbs_twice(kernel: Any, state: Any, position: Any, seed: int) -> tuple[int, int, int]:
    i = seed % len(kernel.variables)
    variable = kernel.variables[i]
    # A proposal from expansions is decided twice: a first look at all rows is exact.
    exact = Gibbs(kernel.variables) if variable.expansions is None else RacingGibbs(
        kernel.variables, kernel.delta, "normal", first_look=variable.source(np.array(position)).n_rows)
    drawn, tally = [], Tally()
    for maker, spent in ((kernel, tally), (exact, Tally())):
        z = np.array(position, dtype=np.intp)
        losses = np.where(state.losses >= HELD, HELD, 0)  # draws that a chain makes of all factors are right
        drawn.append(maker.draw(np.random.default_rng(seed), i, z, losses, maker._engine(variable, z), spent))
    return 1, drawn[0] != drawn[1], tally.looks > 0 and not (tally.undecided or tally.full_pass)
