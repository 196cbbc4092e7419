"""Problems with the draws of chains, in words."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrace.mcmc._convergence import each_effective_size, each_rhat, each_split_rhat
from fastrace.mcmc.models.model import Reference
from fastrace.mcmc.trace import ENOUGH, Trace

__all__ = ["EXPAND_AGAIN", "SAMPLE_AGAIN", "advice_of", "diagnosis", "far_words", "unmixed"]

_SOME = 4000  # draws of each chain that show first whether chains agree, and whether there are enough effective ones
_CLEARLY = 0.5  # share of what an R-hat may be above 1, up to which that of some draws settles it
_LEAST = 8  # draws of a chain, below which nothing is said of them
_REFUSING = 0.1  # share of proposals accepted
_MOST = 0.5  # share of steps that read all rows
_LONGER = "Give mcmc.sample a larger n_draws and n_tune, or look at trace.plot()"
_FAR = 6.0  # standard deviations beyond sqrt(dim)
EXPAND_AGAIN = "kernel = mcmc.SurrogateMetropolis(model, psi_hat=trace)"
SAMPLE_AGAIN = f"Sample again with {EXPAND_AGAIN}, which expands where these draws are, or with smaller moves, size=0.3"


def rhat_limit(n_draws: int) -> float:
    """Largest R-hat that chains of this length may have: 1.01; below 1000 draws chance alone makes more of it."""
    return 1.01 if n_draws >= 1000 else 1.0 + 20.0 / n_draws


def ess_limit(n_draws: int) -> float:
    """Effective draws that a chain of this length should have: 100; below 1000 draws, a twentieth of them."""
    return 100.0 if n_draws >= 1000 else n_draws / 20.0


def advice_of(kernel: Any) -> dict[str, Any]:
    """What a kernel has to say in `diagnosis`, as its arguments; a kernel of a user's own may have nothing."""
    names = {name: name for name in ("full_pass_advice", "least_accepted", "exchange_advice", "refusal_advice",
                                  "divergence_advice")}
    names["rests_on_proposals"] = "rests_on_surrogate"
    return {argument: getattr(kernel, name) for argument, name in names.items() if hasattr(kernel, name)}


def diagnosis(
    trace: Trace, reference: Reference | None, one_start: bool, *, full_pass_advice: str = "",
    least_accepted: float | None = None, exchange_advice: str = "",
    refusal_advice: str = "", unconstrained: Callable[[NDArray[Any]], NDArray[Any]] | None = None,
    judged: dict[str, NDArray[np.float64]] | None = None, rests_on_proposals: bool = True, divergence_advice: str = "",
    more_advice: str = "",
) -> tuple[str, ...]:
    """Problems with the draws, one sentence each.

    `reference` is where the posterior was expected, for draws of its dimension. `one_start` says whether several chains
    all began at one point. `full_pass_advice` is what to do where most steps read all rows; it is empty if that is no
    problem of the kernel. `least_accepted` is the share of proposals that a kernel asks for itself; 0.1 by default.
    `exchange_advice` is what to do about chains that disagree, where parts of the draws may exchange names.
    `refusal_advice` is what to do about refused proposals, where a kernel has no size and no other proposal.
    `unconstrained` brings draws to the coordinates of `reference`, where they are in others.
    `judged` takes the place of the coordinates for R-hat and effective sizes, by name, shape (n_chains, n_draws).
    `rests_on_proposals` says whether a chain that refuses most proposals stands still: not where it has other moves
    for all coordinates. Then refusals are spoken of only where R-hat or effective sizes are bad.
    `divergence_advice` is what to do about divergent trajectories.
    `more_advice` is how to have more draws, where they are not of `sample`.
    """
    out, n = [], trace.n_draws
    flat = trace._flat() if trace.chains else np.empty((0, 0, 0))
    real = flat.dtype.kind == "f"
    subjects = _Subjects(trace, judged)
    if one_start:
        out.append(
            f"all {trace.n_chains} chains began at one point, so that they may agree on a part of the posterior and "
            f"miss the rest: give starts of their own, init of shape {(trace.n_chains, *trace.draws.shape[2:])}, or "
            f"leave init out where the kernel has starts"
        )
    slow = _disagreement(subjects, exchange_advice or more_advice) if n >= _LEAST else []
    if n >= ENOUGH:
        slow += _too_few_effective(subjects, refusal_advice, more_advice)
    out += slow
    if n >= ENOUGH and real:
        accepted, least = trace.accepted.mean(axis=1), _REFUSING if least_accepted is None else least_accepted
        if accepted.min() < least and (slow or rests_on_proposals):
            out.append(
                f"{_chains(accepted < least)} accepted less than {least:.0%} of the proposals (the worst "
                f"{accepted.min():.2%}){' and hardly moved' if rests_on_proposals else ''}: "
                + (refusal_advice or ("tune for longer, take a smaller size, or another proposal"
                                      if least_accepted is None else
                                      f"the surrogate is far from the posterior there. {SAMPLE_AGAIN}, or with "
                                      f"mcmc.HMC(model), by the gradients of all rows"))
            )
    if full_pass_advice and n >= ENOUGH:
        share = trace.full_pass.mean(axis=1)
        if share.max() > _MOST:
            out.append(
                f"{_chains(share > _MOST)} read all rows in most steps (up to {share.max():.1%} of them), so that the "
                f"kernel saved no work there: {full_pass_advice}"
            )
    divergent = int(trace.diverging.sum()) if n else 0
    if divergent:
        out.append(divergent_words(divergent, trace.n_chains * n, divergence_advice))
    if reference is not None and n and real and flat.shape[2] == len(reference.center):
        out += far_chains(flat, reference.center, reference.factor, unconstrained)
    return tuple(out)


def divergent_words(count: int, n: int, advice: str) -> str:
    """Words on so many divergent trajectories of n."""
    return (f"{count} of {n} trajectories diverged: the energy rose by more than 1000, or they met a point where the "
            f"posterior is 0. Steps are too long for a narrow part of the posterior, such as the neck of a funnel, or "
            f"it has an edge; chains may miss that part without R-hat showing it. {advice}")


def far_chains(
    draws: NDArray[Any], center: NDArray[np.float64], factor: NDArray[np.float64],
    unconstrained: Callable[[NDArray[Any]], NDArray[Any]] | None = None,
) -> list[str]:
    """Words on chains, of shape (n_chains, n_draws, d), that stayed far from a normal density, if some did."""
    thinned = draws[:, :: max(1, draws.shape[1] // 1000)]
    thinned = thinned if unconstrained is None else unconstrained(thinned)
    z = np.linalg.solve(factor, (thinned - center).reshape(-1, draws.shape[2]).T)
    return far_words(np.linalg.norm(z, axis=0).reshape(thinned.shape[:2]), draws.shape[2],
                     "control_variate=trace.draws.mean(axis=(0, 1))")


def far_words(distances: NDArray[np.float64], dim: int, expand: str) -> list[str]:
    """The same of distances of draws, shape (n_chains, n), in `dim` dimensions.

    `expand` is how to expand where the draws are.
    """
    apart, limit = np.median(distances, axis=1), math.sqrt(dim) + _FAR
    if not apart.max() > limit:
        return []
    return [
        f"{_chains(apart > limit)} stayed far from the normal density at the mode that the kernel follows "
        f"({apart.max():.3g} standard deviations, and up to {limit:.2g} are expected): not arrived yet, or the "
        f"posterior is not of that form, so that proposals and expansion fit it badly. Begin nearer or tune "
        f"for longer; if it stays so, expand where the draws are, with {expand}, or write the model in other parameters"
    ]


def unmixed(trace: Trace) -> list[str]:
    """Words on chains that have not mixed, if so."""
    subjects = _Subjects(trace)
    out = _disagreement(subjects) if trace.n_draws >= _LEAST else []
    return out or (_too_few_effective(subjects) if trace.n_draws >= ENOUGH else [])


class _Subjects:
    """What R-hat and effective sizes are computed from: all coordinates, some of them, or what takes their place."""

    def __init__(self, trace: Trace, judged: dict[str, NDArray[np.float64]] | None = None) -> None:
        self.trace, self.n_chains, self.n_draws = trace, trace.n_chains, trace.n_draws
        self.values: NDArray[Any] | None = None  # (n_chains, n_draws, n), where they are not all coordinates
        which = trace._judged()
        if judged is not None:
            self.names, self.values = list(judged), np.stack(list(judged.values()), axis=2)
        else:
            self.names = [trace._name(int(j)) for j in np.flatnonzero(which)]
            if not which.all():
                self.values = trace._flat()[:, :, which]

    def all_values(self) -> NDArray[Any]:
        return self.trace._flat() if self.values is None else self.values

    def rhat(self) -> NDArray[np.float64]:
        return self.trace.rhat() if self.values is None else each_rhat(self.values)

    def ess(self) -> NDArray[np.float64]:
        return self.trace.ess() if self.values is None else each_effective_size(self.values)


def _disagreement(subjects: _Subjects, exchange_advice: str = "") -> list[str]:
    """Words on R-hat."""
    names, limit = subjects.names, rhat_limit(subjects.n_draws)
    if _clearly_agree(subjects.all_values(), limit):
        return []
    rhat = subjects.rhat()
    if subjects.n_draws < ENOUGH:  # whose ranks cannot be far apart
        rhat = np.fmax(rhat, each_split_rhat(subjects.all_values()))
    bad = ~(rhat <= limit)
    if not bad.any():
        return []
    worst = int(np.argmax(np.where(np.isfinite(rhat), rhat, np.inf)))
    return [
        f"R-hat of {names[worst]} is {rhat[worst]:.4f}, and that of {int(bad.sum())} of {len(rhat)} "
        f"coordinates is above {limit:.4g}: chains, or their halves, disagree, so their draws are not yet "
        f"the posterior's. {exchange_advice or _LONGER}"
    ]


def _clearly_agree(values: NDArray[Any], limit: float) -> bool:
    """Whether every so many-th draw of long chains has R-hats far below the limit; a look at all draws is dear.

    Means of halves move little by that: if R-hat of all draws is 1.01, the means are .14 deviations apart, and 2000
    draws in place of all move a mean by .02 at most.
    """
    step = values.shape[1] // _SOME
    if step < 2 or not np.isfinite(values).all():
        return False
    return bool((each_rhat(values[:, ::step]) <= 1.0 + _CLEARLY * (limit - 1.0)).all())


def _too_few_effective(subjects: _Subjects, refusal_advice: str = "", more_advice: str = "") -> list[str]:
    """Words on effective sizes."""
    names, n_chains, n = subjects.names, subjects.n_chains, subjects.n_draws
    needed = ess_limit(n) * n_chains
    ess = each_effective_size(subjects.all_values()[:, :_SOME]) if n > _SOME else subjects.ess()
    if ess.size and not ess.min() >= needed and n > _SOME:  # a part of a long run was not enough
        ess = subjects.ess()
    if not ess.size or ess.min() >= needed:
        return []
    worst = int(np.argmin(ess))
    other = "" if refusal_advice else ", take a kernel with another proposal, or write the model in other parameters"
    advice = more_advice or f"Give mcmc.sample a larger n_draws{other}"
    return [
        f"the effective sample size of {names[worst]} is {ess[worst]:.0f} in {n_chains} x {n} "
        f"draws, and at least {needed:.0f} are needed for means and deviations to be trusted: "
        f"{advice[0].lower()}{advice[1:]}"
    ]


def _chains(which: NDArray[np.bool_]) -> str:
    numbers = np.flatnonzero(which)
    return ("chain " if len(numbers) == 1 else "chains ") + ", ".join(map(str, numbers))
