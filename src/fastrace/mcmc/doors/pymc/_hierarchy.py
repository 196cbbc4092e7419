"""Hierarchical generalised linear models among PyMC models, as `GLM` with priors; needs PyMC."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pytensor.graph.traversal import ancestors

from fastrace._models.grouping import Groups
from fastrace.mcmc.doors.pymc._graphs import RowGraphs
from fastrace.mcmc.doors.pymc._predictors import evaluated, root
from fastrace.mcmc.doors.pymc._recognised import AGREE, family_of, number, posterior_elsewhere
from fastrace.mcmc.models.glm import GLM
from fastrace.mcmc.models.priors import Exponential, Gamma, HalfCauchy, HalfNormal, HalfStudentT, Normal, Scale

__all__ = ["Hierarchy", "hierarchy"]

Array = NDArray[np.float64]


class Hierarchy(NamedTuple):
    """A `GLM` with the posterior of a PyMC model, and where its parameters stand in that model's.

    ``columns[k]`` is the parameter of PyMC that coefficient k is. Each factor has the places of its effects, the place
    of the logarithm of their standard deviation, and whether PyMC's are standardised.
    """

    glm: GLM
    columns: NDArray[np.intp]
    factors: list[tuple[NDArray[np.intp], int, bool]]
    dim: int

    def from_glm(self, draws: Array) -> Array:
        """Draws of the model, scales as they are, as parameters of PyMC, their logarithms among these."""
        out = np.zeros((*draws.shape[:-1], self.dim))
        first = len(self.columns)
        out[..., self.columns] = draws[..., :first]
        scales = draws[..., draws.shape[-1] - len(self.factors) :]
        for k, (places, log_sd, standardised) in enumerate(self.factors):
            sd = scales[..., k : k + 1]
            effects = draws[..., first : first + len(places)]
            out[..., places] = effects / sd if standardised else effects
            out[..., log_sd] = np.log(sd[..., 0])
            first += len(places)
        return out

    def log_jacobian(self, draws: Array) -> float:
        """Of PyMC's parameters by the model's, scales as logarithms: standardised effects shrink with their scale."""
        logs = np.log(draws[len(draws) - len(self.factors) :])
        return -float(sum(len(f[0]) * log for f, log in zip(self.factors, logs, strict=True) if f[2]))


def hierarchy(graphs: RowGraphs, values: list[Any]) -> Hierarchy | None:
    """The model if it is one, which is checked at random points; else None."""
    try:
        found = _built(graphs, values)
    except (_OtherModel, ValueError, TypeError):  # priors or outcomes that GLM does not have
        return None
    return found if found is not None and _agree(graphs, found) else None


class _OtherModel(Exception):
    """The model is of another kind."""


def _built(graphs: RowGraphs, values: list[Any]) -> Hierarchy | None:
    if graphs.design is None or len(graphs.observed) != 1 or len(graphs.design.blocks) != 1 or graphs.scalars:
        return None
    family = family_of(graphs.observed[0])
    if family is None or posterior_elsewhere(graphs.model, graphs.observed):
        return None
    model, block = graphs.model, graphs.design.blocks[0]
    bounds = dict(zip(values, np.cumsum([0, *graphs.sizes[:-1]]).tolist(), strict=True))
    names, columns, priors = [], [], {}
    seen = {c: k for k, c in enumerate(graphs.predictors.coefficients)}
    starts = np.cumsum([0, *(int(evaluated(c.size, graphs.starts)) for c in seen)])
    groups, factors, sds = {}, [], {}
    for part in graphs.predictors.parts[0]:
        if part.coefficients is None:
            continue
        value = root(part.coefficients)
        if part.codes is None:
            if not graphs.predictors.rearranges(part.coefficients) or value not in bounds:
                raise _OtherModel
            normal = _normal(model.values_to_rvs[value])
            size = graphs.sizes[values.index(value)]
            for k in range(size):
                names.append(value.name if size == 1 else f"{value.name}[{k}]")
                columns.append(bounds[value] + k)
                priors[names[-1]] = normal
            continue
        name, effects, prior, standardised = _effects(graphs, model, part)
        first = int(starts[seen[part.coefficients]])
        weights, codes = next(pair for pair in block.coded if first <= pair[1][0] < first + effects.size)
        numbers = SimpleNamespace(categories=np.arange(effects.size), codes=codes - first)
        table = None if weights is None else weights[:, None]
        groups[name] = Groups(numbers, table, weights is None, correlated=False, name=name)
        sds[name] = {"sd": prior[1]}
        factors.append((bounds[effects.value] + np.arange(effects.size), bounds[prior[0]], standardised))
    if block.table is None or len(block.columns) != len(columns):
        return None
    places = np.concatenate([columns, *(np.append(effects, log_sd) for effects, log_sd, _ in factors)])
    if not np.array_equal(np.sort(places), np.arange(graphs.dim)):  # a parameter that the rows do not see has no draws
        return None
    glm = GLM(block.table, evaluated(model.rvs_to_values[graphs.observed[0]]), family[0], offset=block.offset,
              groups=groups or None, prior=priors, group_prior=sds or None, names=names, **family[1])
    return Hierarchy(glm, np.array(columns, dtype=np.intp), factors, graphs.dim)


def _effects(graphs: RowGraphs, model: Any, part: Any) -> tuple[str, Any, tuple[Any, Scale], bool]:
    """Effects of one factor: their name, value and size, their scale's value and prior, whether standardised."""
    own = set(ancestors([part.coefficients])).intersection(model.values_to_rvs)
    vectors = [v for v in own if v.ndim == 1]
    scalars = [v for v in own if v.ndim == 0]
    if len(vectors) != 1 or len(scalars) > 1:
        raise _OtherModel
    value, variable = vectors[0], model.values_to_rvs[vectors[0]]
    if type(variable.owner.op).__name__ != "NormalRV":
        raise _OtherModel
    mean, sd = variable.owner.op.dist_params(variable.owner)
    if number(mean) != 0.0:
        raise _OtherModel
    standardised = bool(scalars)
    if standardised:
        scale = model.values_to_rvs[scalars[0]]
        if number(sd) != 1.0:
            raise _OtherModel
    else:
        behind = [v for v in model.free_RVs if v in set(ancestors([sd]))]
        if len(behind) != 1:
            raise _OtherModel
        scale = behind[0]
    effects = SimpleNamespace(value=value, size=int(np.size(graphs.starts[value])))
    return variable.name, effects, (model.rvs_to_values[scale], _scale(scale)), standardised


def _normal(variable: Any) -> Normal:
    if type(variable.owner.op).__name__ != "NormalRV":
        raise _OtherModel
    mean, sd = (number(p) for p in variable.owner.op.dist_params(variable.owner))
    if mean is None or sd is None:
        raise _OtherModel
    return Normal(mean, sd)


def _scale(variable: Any) -> Scale:
    law = type(variable.owner.op).__name__
    given = [number(p) for p in variable.owner.op.dist_params(variable.owner)]
    if any(p is None for p in given):
        raise _OtherModel
    first, last = float(given[0] or 0.0), float(given[-1] or 0.0)
    if law == "HalfNormalRV":
        return HalfNormal(last)
    if law == "HalfCauchyRV":
        return HalfCauchy(last)
    if law == "HalfStudentTRV":
        return HalfStudentT(first, last)
    if law == "ExponentialRV":
        return Exponential(1.0 / last)
    if law == "GammaRV":
        return Gamma(first, 1.0 / last)
    raise _OtherModel


def _agree(graphs: RowGraphs, found: Hierarchy) -> bool:
    """Whether the log-posterior differs between random points as PyMC's does."""
    first, joint = None, found.glm.joint_prior
    for child in np.random.SeedSequence(22).spawn(5):
        rng = np.random.default_rng(child)
        scales = np.exp(rng.uniform(-1.0, 1.0, len(found.factors)))
        theta = np.concatenate([rng.uniform(-0.5, 0.5, found.glm.n_seen), scales])
        if joint is None:
            ours = float(found.glm.log_posteriors(theta[None])[0])
        else:
            free = np.array(found.glm.unconstrain(theta))
            source, arms = found.glm.engine(None)
            arms[:] = free[: found.glm.n_seen]
            ours = float(source.totals([0])[0]) + float(joint.copy().value_and_gradient(free)[0])
        at = found.from_glm(theta)
        theirs = float(np.sum(graphs.call("all", at)[0])) + float(graphs.call("rest", at)) + found.log_jacobian(theta)
        first = theirs - ours if first is None else first
        if not abs(theirs - ours - first) <= AGREE * (1.0 + abs(theirs)):
            return False
    return True
