"""What delta bought: races decided again, exactly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import stats

from fastrace._base import _checks
from fastrace.mcmc.kernels.gibbs import Gibbs, Tally
from fastrace.mcmc.kernels.metropolis import Metropolis
from fastrace.mcmc.kernels.racing_gibbs import RacingGibbs
from fastrace.mcmc.kernels.racing_metropolis import RacingMetropolis
from fastrace.mcmc.trace import Trace

__all__ = ["BiasCheck", "check_bias"]


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
    """

    n_checked: int
    n_wrong: int
    n_raced: int
    rate: float
    interval: tuple[float, float]
    delta: float

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"{self.n_wrong} of {self.n_checked} decisions wrong ({self.n_raced} of them raced): rate {self.rate:.2g}, "
            f"95 % interval ({low:.2g}, {high:.2g}), promised {self.delta:g}"
        )


def check_bias(
    kernel: RacingMetropolis | RacingGibbs, trace: Trace, n: int = 1000, rng: _checks.RngLike = None
) -> BiasCheck:
    """Estimate the error rate of a racing kernel's decisions along a trace.

    Parameters
    ----------
    kernel : RacingMetropolis or RacingGibbs
        The kernel that made the trace.
    trace : Trace
        Decisions are made anew at states drawn at random from it.
    n : int, default 1000
        How many. Each costs a full pass, or two.
    rng : None, int, SeedSequence or Generator, optional
        Source of randomness.

    Returns
    -------
    BiasCheck
        How many decisions were made twice, and how many of them the race got wrong.

    Notes
    -----
    From the same random numbers the race and the pass over all rows make the same proposal with the same threshold, or
    perturb the states with the same noise; they differ only if the race is wrong. For `RacingMetropolis` the proposal
    is as it was tuned in the chain.

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
    if not isinstance(kernel, (RacingMetropolis, RacingGibbs)):
        raise TypeError(f"kernel is a {type(kernel).__name__}; decisions of RacingMetropolis and RacingGibbs can be "
                        f"made twice")
    if not trace.n_draws:
        raise ValueError("the trace is empty; sample first")
    decided_twice = _gibbs_twice if isinstance(kernel, RacingGibbs) else _metropolis_twice(kernel)
    wrong = raced = 0
    for _ in range(n):
        chain = int(gen.integers(trace.n_chains))
        position = trace.chains[chain].draws[gen.integers(len(trace.chains[chain]))]
        differs, before_the_end = decided_twice(kernel, trace.states[chain], position, int(gen.integers(2**62)))
        wrong += differs
        raced += before_the_end
    low = float(stats.beta.ppf(0.025, wrong, n - wrong + 1)) if wrong else 0.0
    high = float(stats.beta.ppf(0.975, wrong + 1, n - wrong)) if wrong < n else 1.0
    return BiasCheck(n, wrong, raced, wrong / n, (low, high), kernel.delta)


def _metropolis_twice(kernel: RacingMetropolis) -> Callable[[Any, Any, Any, int], tuple[bool, bool]]:
    exact = Metropolis(
        kernel.model,
        proposal=kernel.propose or kernel.proposal,
        walk_share=kernel.walk_share,
        control_variate=kernel.reference if kernel.controlled else None,
        delayed=kernel.delayed,
    )

    def twice(kernel: Any, state: Any, position: Any, seed: int) -> tuple[bool, bool]:
        whitened = exact._whitened(position, state.tuning)
        here = replace(state, position=position, whitened=whitened, cache=None)
        race, full = (maker.run(np.random.default_rng(seed), here, 1)[1] for maker in (kernel, exact))
        return bool(race.accepted[0] != full.accepted[0]), bool(race.looks[0] > 0 and not race.undecided[0])

    return twice


def _gibbs_twice(kernel: Any, state: Any, position: Any, seed: int) -> tuple[bool, bool]:
    i = seed % len(kernel.variables)
    variable = kernel.variables[i]
    exact = Gibbs(kernel.variables)
    drawn, tally = [], Tally()
    for maker, spent in ((kernel, tally), (exact, Tally())):
        z = np.array(position, dtype=np.intp)
        losses = np.zeros(len(z), np.intp)
        drawn.append(maker.draw(np.random.default_rng(seed), i, z, losses, maker._engine(variable, z), spent))
    return drawn[0] != drawn[1], not tally.undecided
