"""Hierarchical generalised linear models among PyMC models, as `GLM` with priors; needs PyMC."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastrace.mcmc._variables import Variable, shaped
from fastrace.mcmc.doors.pymc._coordinates import Hierarchy
from fastrace.mcmc.doors.pymc._families import agree
from fastrace.mcmc.doors.pymc._graphs import RowGraphs
from fastrace.mcmc.doors.pymc._laws import OtherModelError
from fastrace.mcmc.doors.pymc._reading import Reader
from fastrace.mcmc.doors.pymc._recognised import calm, within
from fastrace.mcmc.models.glm import GLM
from fastrace.mcmc.trace import Part

__all__ = ["HierarchyModel", "hierarchy"]

Array = NDArray[np.float64]


class HierarchyModel(GLM):
    """The `GLM` of a hierarchy, whose draws are recorded as parameters of the PyMC model.

    Parameters
    ----------
    found : Hierarchy
    parts : tuple of Part
        The value variables of the PyMC model.
    own_names : tuple of str
        What its parameters are called.
    """

    _computed = (*GLM._computed, "parts", "own_names")

    def __init__(self, found: Hierarchy, parts: tuple[Part, ...], own_names: tuple[str, ...]) -> None:
        self.__dict__.update(found.glm.__dict__)
        self._found, self.parts, self.own_names = found, parts, own_names

    @property
    def natural_names(self) -> tuple[str, ...]:
        return self.own_names

    def _variables_of(self, names: Sequence[str]) -> tuple[Variable, ...]:
        out, first = [], 0
        for part in self.parts:
            last = first + math.prod(part.shape)
            out.append(shaped(part.name, range(first, last), list(zip(part.dims, part.coords, strict=True))))
            first = last
        return tuple(out)

    def constrain(self, theta: ArrayLike) -> Array:
        return self._found.from_glm(super().constrain(theta))

    def unconstrain(self, values: ArrayLike) -> Array:
        return super().unconstrain(self._found.to_glm(np.asarray(values, dtype=np.float64)))


def hierarchy(graphs: RowGraphs, values: list[Any]) -> Hierarchy:
    """The model as a `GLM`, which is checked at random points.

    Raises
    ------
    OtherModelError
        If it is of another kind.
    """
    try:
        found = Reader(graphs, values).read()
    except (ValueError, TypeError) as error:  # outcomes or columns that GLM does not have
        raise OtherModelError(str(error)) from error
    if not _agree(graphs, found):
        raise OtherModelError("the log-posteriors of both differ at random points, so that a part of it is not what it "
                              "looks like: another link than the family's own, a factor beside the link that is no "
                              "known one of an exponential, a scale behind another transformation, or a predictor of "
                              "another form")
    return found


def _agree(graphs: RowGraphs, found: Hierarchy) -> bool:
    """Whether the log-posterior differs between random points as PyMC's does."""
    first, glm = None, found.glm
    for child in np.random.SeedSequence(22).spawn(5):
        rng = np.random.default_rng(child)
        free = rng.uniform(-0.5, 0.5, glm.dim)
        own = glm.n_seen - (found.log_scale >= 0)  # coefficients and effects
        free[:own] = (within(glm, free[: glm.n_seen]) + calm(glm, glm.n_seen))[:own]
        free[own:] *= 2.0
        ours, theta = log_posterior(glm, free), np.asarray(glm.constrain(free))
        at = found.from_glm(theta)
        theirs = float(np.sum(graphs.call("all", at)[0])) + float(graphs.call("rest", at)) + found.log_jacobian(theta)
        first = theirs - ours if first is None else first
        if not abs(theirs - ours - first) <= agree(glm._glm.family) * (1.0 + abs(theirs)):
            return False
    return True


def log_posterior(glm: GLM, free: Array) -> float:
    """Up to a constant, at a point on the scale on which chains move."""
    if glm.joint_prior is None:
        return float(glm.log_posteriors(free[None])[0])
    source, arms = glm.engine(None)
    arms[:] = free[: glm.n_seen]
    return float(source.totals([0])[0]) + float(glm.joint_prior.copy().value_and_gradient(free)[0])
