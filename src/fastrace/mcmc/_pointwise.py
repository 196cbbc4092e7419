"""Log densities of single rows along a trace, with all their constants, for comparisons of models."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrace._base import _checks
from fastrace._base._words import counted
from fastrace.mcmc.compression import expansion_of
from fastrace.mcmc.models.base import Model, _CompiledModel
from fastrace.mcmc.models.binned import Binned

__all__ = ["expanded_log_posterior", "pointwise"]

Array = NDArray[np.float64]

_MOST = 50_000_000  # numbers, 0.4 GB
_LEAST = 25  # draws of a chain, below which nothing can be said
_COMPARED = 16  # draws at which an expansion is compared with the log-likelihood
_OFF = 1.0  # standard deviation of the difference, above which the expansion says little of the log-posterior


def pointwise(model: Model, draws: Array) -> Array:
    """Log density of each row at draws of shape (n_chains, n_draws, dim), in the coordinates in which chains move.

    Shape (n_chains, some draws, n_rows): every k-th draw, the last included, where all would take more than 0.4 GB.
    Rows stand as they came to the model, shuffled or not, since models are compared row by row.

    Raises
    ------
    ValueError
        If fewer than 25 draws of each chain would be left.

    Warns
    -----
    UserWarning
        If draws are left out; it says how many, and the memory.
    """
    n_chains, n_draws = draws.shape[:2]
    size = draws.shape[0] * model.n_rows
    k = max(1, -(-n_draws * size // _MOST))
    kept = draws[:, ::-1][:, ::k][:, ::-1]
    if k > 1 and kept.shape[1] < _LEAST:
        raise ValueError(f"log densities of {counted(model.n_rows, 'row')} at {_LEAST} draws of each of "
                         f"{counted(n_chains, 'chain')} take {8e-9 * _LEAST * size:.2g} GB, and 0.4 GB is the most: "
                         f"give a trace of fewer chains, or compare models of some of the rows")
    if k > 1:
        warnings.warn(f"log_likelihood has one draw in {k}, {kept.shape[1]} of {n_draws} of each chain: for "
                      f"{counted(model.n_rows, 'row')} they take {8e-9 * kept.shape[1] * size:.2g} GB, and all would "
                      f"take {8e-9 * n_draws * size:.2g}", stacklevel=_checks.users_level())
    model = model.model if isinstance(model, Binned) else model  # which has the same terms, and reads them one by one
    source, theta = model._arms(2)
    points = kept.reshape(-1, kept.shape[2])[:, : model.n_seen]
    own: Any = getattr(model, "_glm", None)  # of a GLM its source, of a PyMC model the GLM that runs in its place
    source_of_glm: Any = getattr(own, "_glm", own)
    constants = source_of_glm._row_constants() if hasattr(source_of_glm, "_row_constants") else 0.0
    constants = constants + getattr(model, "_left_out", 0.0)
    out, rows = np.empty((len(points), model.n_rows)), np.arange(model.n_rows)
    places = slice(None) if model._row_order is None else model._row_order
    for first in range(0, len(points), 2):
        some = points[first : first + 2]
        theta[: len(some)] = some
        out[first : first + len(some), places] = source.read(rows, np.arange(len(some))).T + constants
    return out.reshape(*kept.shape[:2], model.n_rows)


def expanded_log_posterior(model: Model, draws: Array) -> Array | None:
    """Log-posterior at draws of shape (n_chains, n_draws, dim), in the coordinates in which chains move.

    The log-likelihood is its second-order expansion at the mean of the draws. None where the model has no derivatives,
    or they are neither compiled nor those of a PyMC model, or that expansion is not good enough.

    Warns
    -----
    UserWarning
        If the expansion is not good enough.
    """
    model = model.model if isinstance(model, Binned) else model
    points = draws.reshape(-1, draws.shape[2])
    form, seen = model, points[:, : model.n_seen]
    if hasattr(model, "_seen_of"):  # a PyMC model, whose rows may see a map of its parameters
        form, seen = model._seen_of(points)
    elif not isinstance(model, _CompiledModel):
        return None
    if form is None or len(points) < 2:
        return None
    middle = seen.mean(axis=0)
    value, slope, curvature = form.expanded(middle) if hasattr(form, "expanded") else expansion_of(form, middle)
    steps = seen - middle
    bent = -steps @ curvature if isinstance(curvature, np.ndarray) else [curvature.times(step) for step in steps]
    out = value + steps @ slope - 0.5 * (steps * np.asarray(bent)).sum(axis=1)
    some = np.unique(np.linspace(0, len(points) - 1, _COMPARED).astype(np.intp))
    off = float(np.std(model._log_likelihoods(np.ascontiguousarray(points[some, : model.n_seen])) - out[some]))
    if not off <= _OFF:
        warnings.warn(f"sample_stats has no lp: the second-order expansion of the log-likelihood at the mean of the "
                      f"draws is off by a standard deviation of {off:.2g} at {len(some)} of them, and {_OFF:g} is the "
                      f"most; model.log_posteriors has the log-posterior itself, for a pass over the rows for every 64 "
                      f"draws", stacklevel=_checks.users_level())
        return None
    return np.asarray(model._plus_log_prior(points, out)).reshape(draws.shape[:2])
