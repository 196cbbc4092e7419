"""Draws of a trace in the coordinates in which chains move, and what the rows see of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrace._base import _checks
from fastrace._base._words import counted
from fastrace.mcmc.models.base import Model

__all__ = ["mean_seen", "moving"]

Array = NDArray[np.float64]


def moving(model: Any, trace: Any) -> Array:
    """Draws of a trace in the coordinates in which chains of its model move.

    Raises
    ------
    TypeError
        If `model` is none.
    ValueError
        If the trace is of other parameters.
    """
    if not isinstance(model, Model):
        raise TypeError(f"model is {_checks.shown(model)}; log_likelihood needs the model of the draws, a GLM or other "
                        f"mcmc.Model")
    of_trace: Any = getattr(model, "_of_trace", None)  # of a PyMC model, whose chains may move another form of it
    if of_trace is not None:
        return np.asarray(of_trace(trace), dtype=np.float64)
    draws = np.asarray(trace.draws, dtype=np.float64)
    if draws.shape[2:] != (model.dim,) or (trace.names and trace.names != model.natural_names):
        raise ValueError(f"the trace has draws of shape {draws.shape[2:]}, of {', '.join(trace.names[:3])}, and the "
                         f"model {counted(model.dim, 'parameter')}, {', '.join((model.natural_names or ())[:3])}; the "
                         f"model that was sampled is needed")
    return np.asarray(model.unconstrain(draws))


def mean_seen(model: Model, trace: Any) -> Array:
    """Mean of what the rows see over the draws of a trace, shape (n_seen,); of a learned scale its logarithm's."""
    draws = moving(model, trace).reshape(-1, model.dim)
    if not len(draws):
        raise ValueError("psi_hat is a trace without draws; their mean is needed")
    seen = getattr(model, "seen", None)         # of a model whose rows see a map of its parameters
    return np.asarray(np.mean(draws[:, : model.n_seen] if seen is None else [seen(x) for x in draws], axis=0))
