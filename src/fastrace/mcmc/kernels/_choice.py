"""Which kernel a model gets that came without one: the cheapest per independent draw, by a pilot."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from fastrace._base._words import counted
from fastrace.mcmc.kernels._rows import RowKernel
from fastrace.mcmc.kernels.poisson_metropolis import PoissonMinibatchMetropolis
from fastrace.mcmc.kernels.racing_metropolis import RacingMetropolis
from fastrace.mcmc.kernels.surrogate_metropolis import SurrogateMetropolis
from fastrace.mcmc.models._modes import ImproperError
from fastrace.mcmc.models.model import Model

__all__ = ["kernel_for"]

TUNING, STEPS, SEED = 100, 60, 20160619  # the pilot's steps and its seed: the choice depends on the model alone
PER_STEP = 60.0  # work of a step beside its rows, in rows read


def kernel_for(model: Model) -> tuple[RowKernel, str]:
    """The kernel, and why it was chosen, in words."""
    if not model.has_derivatives:
        return RacingMetropolis(model), "the model has no derivatives"
    form = model._surrogate_form()
    if form.n_hyper:
        read = "" if form is model else f"the model is {form!r} with priors, as from_pymc(...).as_glm() gives it; "
        return SurrogateMetropolis(form), read + "the prior has hyperparameters, which no row sees"
    if form.joint_prior is not None:
        surrogate = SurrogateMetropolis(form)
        if surrogate._stride:
            return surrogate, "the rows say little of the learned scale, of which other kernels make no plain steps"
    mapped = form.own_surrogate is not None
    if mapped and getattr(form, "is_hierarchy", False):
        return SurrogateMetropolis(form), "parameters stand behind what the rows see, as in a hierarchy"
    makers: list[Callable[[Any], RowKernel]] = [SurrogateMetropolis, PoissonMinibatchMetropolis, RacingMetropolis]
    tried: list[tuple[float, str, RowKernel]] = []
    for make in makers[mapped:]:  # moves by gradients of a user's graph are dear where a normal density will do
        try:
            kernel = make(model)
            worth, words = _pilot(kernel)
        except ImproperError:
            raise
        except ValueError:  # no bounds, or no expansion that it can use
            continue
        tried.append((worth, words, kernel))
    if not tried:
        return RacingMetropolis(model, control_variate=None), "the model has no mode to expand at"
    best = max(range(len(tried)), key=lambda k: tried[k][0])
    others = "; ".join(tried[k][1] for k in range(len(tried)) if k != best)
    return tried[best][2], tried[best][1] + (f", against {others}" if others else "")


def _pilot(kernel: RowKernel) -> tuple[float, str]:
    """Independent draws for the work of a row, about, and the same in words."""
    rng = np.random.default_rng(SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        state, _ = kernel.run(rng, kernel.init(None, rng), TUNING, tune=True)
        before = kernel._recorded(state.position[None])
        _, steps = kernel.run(rng, state, STEPS)
    draws = np.concatenate([before, steps.draws])
    spread = draws.var(axis=0)
    moved = np.square(np.diff(draws, axis=0)).mean(axis=0)
    share = float(np.clip(moved[spread > 0.0] / (2.0 * spread[spread > 0.0]), 0.0, 1.0).mean()) if spread.any() else 0.0
    rows = float(steps.rows.mean())
    name = type(kernel).__name__
    return share / (PER_STEP + rows), f"{name}, {counted(round(rows), 'row')} for {share:.2f} of an independent draw"
