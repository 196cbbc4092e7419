"""What delta bought: races decided again, exactly."""

from __future__ import annotations

import copy
import math
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
from fastrace.mcmc._fit import residuals
from fastrace.mcmc.compression import Compressed
from fastrace.mcmc.correction import proposals
from fastrace.mcmc.kernels.gibbs import Gibbs, Tally
from fastrace.mcmc.kernels.metropolis import Metropolis
from fastrace.mcmc.kernels.racing_gibbs import HELD, RacingGibbs
from fastrace.mcmc.kernels.racing_metropolis import RacingMetropolis
from fastrace.mcmc.kernels.racing_slice import RacingSlice
from fastrace.mcmc.kernels.slice import Slice
from fastrace.mcmc.kernels.surrogate_metropolis import SurrogateMetropolis
from fastrace.mcmc.kernels.variable_selection import VariableSelection
from fastrace.mcmc.models.model import Model, Reference
from fastrace.mcmc.trace import Trace
from fastrace.races.acceptance import AcceptTest

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
    kernel: _Races | Model, trace: Trace, n: int = 1000,
    rng: _checks.RngLike = None,
    *,
    draws: Any = None,
    surrogate: Compressed | Reference | None = None,
) -> BiasCheck:
    """Estimate the error rate of the races of a kernel, or of `correct`, along a trace.

    Parameters
    ----------
    kernel : RacingMetropolis, RacingSlice, RacingGibbs, or SurrogateMetropolis or VariableSelection that races; Model
        The kernel that made the trace. Of a trace that `correct` made, the model.
    trace : Trace
        Decisions are made anew at states drawn at random from it.
    n : int, default 1000
        How many, or a few more: sweeps of a slice sampler are checked whole. Each costs a full pass, or two.
    rng : None, int, SeedSequence or Generator, optional
        Source of randomness.
    draws, surrogate : optional
        Of a trace that `correct` made, and there needed: what it was given.

    Returns
    -------
    BiasCheck
        How many decisions were made twice, how many of them the race got wrong, and whether the chains have mixed.

    Raises
    ------
    TypeError
        If the kernel does not race, or `draws` and `surrogate` came beside a kernel or lack beside a model.
    ValueError
        If the trace is empty, is of other parameters, or `correct` did not make it of these draws by races.

    Warns
    -----
    UserWarning
        If the chains have not mixed. Decisions at states that are not the posterior's may be easier than those that
        matter: few wrong ones then say nothing of the draws.

    Notes
    -----
    From the same random numbers the race and the pass over all rows make the same proposal with the same threshold, or
    perturb the states with the same noise; they differ only if the race is wrong. For `RacingMetropolis` the proposal
    is as it was tuned in the chain, and its races know of few rows that carry the sum what the chain knew at its end,
    see `AcceptTest`: at its beginning it may have erred more often. In a sweep of `RacingSlice` all that follows a
    wrong test differs: such a sweep counts as one wrong test out of one, so that the rate is rather too high than too
    low. Of `correct`, draws are taken or refused anew after the same draws before, at fresh thresholds.

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

    Of draws that `correct` took or refused:

    >>> about = kernel.model.reference()
    >>> draws = about.center + rng.standard_normal((4, 100, 3)) @ about.factor.T
    >>> trace = mcmc.correct(draws, about, kernel.model, rng=1)
    >>> mcmc.check_bias(kernel.model, trace, n=200, rng=2, draws=draws, surrogate=about).rate < 0.05
    True
    """
    n = _checks.integer(n, "n", 1, "something must be checked")
    gen = _checks.generator(rng)
    if isinstance(kernel, Model):
        corrected = _Corrected(kernel, trace, draws, surrogate)
        return _checked(trace, n, gen, corrected.delta, corrected.decided_twice)
    if draws is not None or surrogate is not None:
        raise TypeError(f"draws and surrogate are those of a trace that mcmc.correct made, and kernel is "
                        f"{_checks.shown(kernel)}; the model is needed in its place, or neither of them")
    races = isinstance(kernel, (SurrogateMetropolis, VariableSelection)) and kernel.decision == "race"
    if not races and not isinstance(kernel, (RacingMetropolis, RacingGibbs, RacingSlice)):
        raise TypeError(f"kernel is a {type(kernel).__name__}, whose decisions are not races: made from "
                        f"minibatches or all rows they have no error rate. RacingMetropolis, RacingSlice, RacingGibbs, "
                        f"or SurrogateMetropolis or VariableSelection with decision='race', is needed; trace.rhat() "
                        f"says whether chains have mixed")
    _require_draws(trace)
    names = getattr(kernel, "names", None) or ()
    if trace.names and names and tuple(names) != trace.names:
        raise ValueError(f"the trace is of {', '.join(map(repr, trace.names[:10]))}, and the kernel of "
                         f"{', '.join(map(repr, names[:10]))}, in this order; the kernel that made the trace is needed")
    twice = _twice(kernel)

    def decided_twice(chain: int, t: int, seed: int) -> tuple[int, int, int]:
        return twice(kernel, trace.states[chain], trace.chains[chain].draws[t], seed)

    return _checked(trace, n, gen, kernel.delta, decided_twice)


def _require_draws(trace: Any) -> None:
    """Refuse anything but a trace that has draws."""
    if not isinstance(trace, Trace):
        raise TypeError(f"trace is {_checks.shown(trace)}; what mcmc.sample returned is needed")
    if not trace.n_draws:
        raise ValueError("the trace is empty; sample first")


def _checked(
    trace: Trace, n: int, gen: np.random.Generator, delta: float,
    decided_twice: Callable[[int, int, int], tuple[int, int, int]],
) -> BiasCheck:
    """Decisions at random draws of random chains, told by their numbers and a seed."""
    checked = wrong = raced = 0
    while checked < n:
        chain = int(gen.integers(trace.n_chains))
        t = int(gen.integers(len(trace.chains[chain])))
        tests, differs, before_the_end = decided_twice(chain, t, int(gen.integers(2**62)))
        checked += tests
        wrong += differs
        raced += before_the_end
    low = float(stats.beta.ppf(0.025, wrong, checked - wrong + 1)) if wrong else 0.0
    high = float(stats.beta.ppf(0.975, wrong + 1, checked - wrong)) if wrong < checked else 1.0
    problems = unmixed(trace)
    for words in problems:
        warnings.warn(words, stacklevel=_checks.users_level())
    return BiasCheck(checked, wrong, raced, wrong / checked, (low, high), delta, tuple(problems))


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
    raced = here
    if isinstance(state.cache, tuple) and isinstance(kernel, RacingMetropolis):  # what the chain's races left
        raced = replace(here, cache=(math.nan, 0, *state.cache[2:]))
    race = kernel.run(np.random.default_rng(seed), raced, 1)[1]
    full = exact.run(np.random.default_rng(seed), here, 1)[1]
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


class _Corrected:
    """Races of `correct` for the draws of a trace, decided again."""

    def __init__(self, model: Model, trace: Trace, draws: Any, surrogate: Any) -> None:
        if draws is None or surrogate is None:
            raise TypeError(f"kernel is a model, and {'draws' if draws is None else 'surrogate'} is None; of a trace "
                            f"that mcmc.correct made, the draws and the surrogate that it was given are needed, and "
                            f"else the kernel that made the trace")
        _require_draws(trace)
        about = trace.kernel
        if about.get("kernel") != "correct" or about["decision"] != "race":
            made = "exactly by mcmc.correct" if about.get("kernel") == "correct" else f"by {about.get('kernel')}"
            raise ValueError(f"the trace was made {made}, and a model came with draws; a trace that mcmc.correct made "
                             f"by races is needed")
        self.delta = float(about["delta"])
        self.proposed, self.carrier, self.model, recorded = proposals(draws, surrogate, model)
        self.before = [np.maximum.accumulate(np.where(steps.accepted, np.arange(len(steps)), 0))
                       for steps in trace.chains]  # places of the draws that the trace holds
        shape = self.proposed.shape
        if trace.draws.shape != shape or not all(
                np.array_equal(steps.draws, recorded(own[place]))
                for steps, own, place in zip(trace.chains, self.proposed, self.before, strict=True)):
            raise ValueError(f"the trace has other draws, of shape {trace.draws.shape}, than mcmc.correct takes or "
                             f"refuses of draws of shape {shape}; those that it was given are needed, in their "
                             f"order")
        if trace.n_draws < 2:
            raise ValueError("the trace has one draw a chain, which was taken as it is: there was no decision; two are "
                             "needed")
        source, self.theta = self.model.engine(self.carrier)
        self.test = AcceptTest(source, bound="normal", delta=self.delta, rng=0)

    def decided_twice(self, chain: int, t: int, seed: int) -> tuple[int, int, int]:
        t = t or 1  # the first draw of a chain is taken as it is
        now = self.before[chain][t - 1]
        pair = self.proposed[chain, [now, t], : self.model.n_seen]
        threshold = -float(np.random.default_rng(seed).standard_exponential())
        self.theta[:2] = pair
        raced = self.test.run_afresh(seed, threshold)
        left = residuals(self.model, self.carrier, pair, None)
        return 1, raced != bool(left[1] - left[0] > threshold), self.test.n_read < self.test.n_rows
