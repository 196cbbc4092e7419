"""Which kernel a model gets that came without one: the cheapest per independent draw, by a pilot."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrace._base._progress import stage
from fastrace._base._words import counted
from fastrace.mcmc.kernels._rows import PILOT_SEED, RowKernel
from fastrace.mcmc.kernels.metropolis import Metropolis
from fastrace.mcmc.kernels.poisson_metropolis import PoissonMinibatchMetropolis
from fastrace.mcmc.kernels.racing_metropolis import RacingMetropolis
from fastrace.mcmc.kernels.surrogate_metropolis import SurrogateMetropolis
from fastrace.mcmc.models._modes import ImproperError, NoModeError, PrecisionError
from fastrace.mcmc.models.model import Model

__all__ = ["kernel_for"]

Array = NDArray[np.float64]

TUNING, STEPS = 100, 60  # of the pilot
CONFIRMED = 15  # times as many steps tell the rows: where one step in fifty reads all rows, 60 steps may show none
PER_STEP = 60.0  # work of a step beside its rows, in rows read
LITTLE = 10.0 * PER_STEP  # rows that an exact kernel may read a step, up to which no race is tried beside it
SHARED, MANY = 1.0 / 16.0, 100  # of that work for a row where steps share a pass; parameters from which they may
MOST_POINTS, WALKS = 4096, 0.001  # of a pass; share of walks, each of which takes a pass of its own


def kernel_for(model: Model) -> tuple[RowKernel, str]:
    """The kernel, and why it was chosen, in words."""
    if not model.has_derivatives:
        return RacingMetropolis(model), "the model has no derivatives"
    form = model._surrogate_form()
    if form.n_hyper:
        read = "" if form is model else f"the model is {form!r} with priors, as from_pymc(...).as_glm() gives it; "
        return SurrogateMetropolis(form), read + "the prior has hyperparameters, which no row sees"
    if form.joint_prior is not None:
        with contextlib.suppress(NoModeError):
            surrogate = SurrogateMetropolis(form)
            if surrogate._stride:
                why = "the rows say little of the learned scale, of which other kernels make no plain steps"
                return surrogate, why
    mapped = form.own_surrogate is not None
    if mapped and getattr(form, "is_hierarchy", False):
        return SurrogateMetropolis(form), "parameters stand behind what the rows see, as in a hierarchy"
    model = model._row_form()
    makers: list[Callable[..., RowKernel]] = [SurrogateMetropolis, PoissonMinibatchMetropolis, RacingMetropolis]
    tried: list[tuple[float, str, RowKernel]] = []
    exact = math.inf  # rows a step of the kernel without errors that reads fewest
    known: dict[str, Any] = {}  # where races expand too
    for make in makers[mapped:]:  # moves by gradients of a user's graph are dear where a normal density will do
        if make is RacingMetropolis and exact <= LITTLE:
            continue
        stage(f"setting up {make.__name__}")
        try:
            kernel = make(model, **(known if make is RacingMetropolis else {}))
            if isinstance(kernel, PoissonMinibatchMetropolis):
                known = {"control_variate": kernel.reference}
            if isinstance(kernel, SurrogateMetropolis) and kernel.walks_along_rows:
                return kernel, "few rows refuse most moves of all parameters, so that they have walks of their own"
            if getattr(kernel, "decision_advice", ""):  # races that would err more often than they promise
                worth, words = 0.0, f"{type(kernel).__name__}, whose races would miss the few rows that matter"
            else:
                worth, rows, words = _pilot(kernel, max((worth for worth, _, _ in tried), default=0.0))
                if getattr(kernel, "decision", "") != "race":
                    exact = min(exact, rows)
        except (ImproperError, PrecisionError):
            raise
        except ValueError:  # no bounds, or no expansion that it can use
            continue
        tried.append((worth, words, kernel))
    cheapest = 1.0 / (PER_STEP + SHARED * model.n_rows)  # of shared passes if each step were an independent draw
    if model.dim >= MANY and all(worth < cheapest for worth, _, _ in tried):
        stage("setting up Metropolis in batches")
        with contextlib.suppress(ValueError):  # no mode, or terms that are not evaluated at many points at once
            batches = Metropolis(model, proposal="independent", batch=min(2 * model.dim, MOST_POINTS),
                                 walk_share=WALKS, frames=True)
            worth, _, words = _pilot(batches)
            tried.append((worth, words, batches))
    if not tried:
        why = "the model has no mode to expand at, and races without one miss the rows that matter"
        return Metropolis(model, control_variate=None), why
    best = max(range(len(tried)), key=lambda k: tried[k][0])
    others = "; ".join(tried[k][1] for k in range(len(tried)) if k != best)
    return tried[best][2], tried[best][1] + (f", against {others}" if others else "")


def _pilot(kernel: RowKernel, ahead: float = 0.0) -> tuple[float, float, str]:
    """Independent draws for the work of a row, about, the rows of a step, and the same in words.

    A kernel that seems better than one that is `ahead` makes `CONFIRMED` times as many steps, or as many as show that
    it is not: a step in fifty may read as much as all others.
    """
    rng, batched = np.random.default_rng(PILOT_SEED), getattr(kernel, "batch", 1) > 1
    stage("a short pilot of it")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        state, _ = kernel.run(rng, kernel.init(None, rng), TUNING, tune=True)
        before = kernel._recorded(state.position[None])
        state, steps = kernel.run(rng, state, STEPS)
        draws, read, n = np.concatenate([before, steps.draws]), float(steps.rows.sum()), STEPS
        share = min(_share(draws), _share(np.square(draws - draws.mean(axis=0))))
        per_row = SHARED if batched else 1.0
        most = CONFIRMED * STEPS * (share / ahead - PER_STEP) / per_row if ahead else 0.0  # to stay ahead
        while read < most and n < CONFIRMED * STEPS:
            state, steps = kernel.run(rng, state, STEPS)
            read, n = read + float(steps.rows.sum()), n + STEPS
    rows = read / n
    name = type(kernel).__name__ + (" in batches" if batched else "")
    words = f"{name}, {counted(round(rows), 'row')} for {share:.2f} of an independent draw"
    return share / (PER_STEP + rows * per_row), rows, words


def _share(values: Array) -> float:
    """Half the mean squared step over the variance, 1 for independent values: mean over the slowest tenth of all.

    A coordinate that stood still counts as 0.
    """
    spread = values.var(axis=0)
    moved = np.square(np.diff(values, axis=0)).mean(axis=0)
    shares = np.clip(moved / (2.0 * np.maximum(spread, np.finfo(float).tiny)), 0.0, 1.0)
    return float(np.sort(shares)[: max(1, len(shares) // 10)].mean())
