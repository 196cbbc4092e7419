"""Hierarchical generalised linear models among PyMC models, as `GLM` with priors; needs PyMC."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import DimShuffle

from fastrace._models.grouping import Groups
from fastrace.mcmc.doors.pymc._graphs import RowGraphs
from fastrace.mcmc.doors.pymc._predictors import evaluated, root
from fastrace.mcmc.doors.pymc._recognised import AGREE, family_of, in_pieces, number, posterior_elsewhere
from fastrace.mcmc.models.glm import GLM
from fastrace.mcmc.models.priors import (
    Exponential,
    Gamma,
    HalfCauchy,
    HalfNormal,
    HalfStudentT,
    Laplace,
    LogNormal,
    Normal,
    Scale,
    StudentT,
)
from fastrace.mcmc.trace import Part

__all__ = ["Hierarchy", "HierarchyModel", "OtherModelError", "hierarchy"]

Array = NDArray[np.float64]


class Factor(NamedTuple):
    """Where one factor's effects stand in PyMC's parameters.

    `places` are those of the effects, `log_sd` that of the logarithm of their standard deviation. `mean` is that of the
    variable that they are centred at, or -1, and `column` the coefficient of the `GLM` that this is. `standardised`
    says that PyMC's effects are in units of their standard deviation.
    """

    places: NDArray[np.intp]
    log_sd: int
    mean: int
    column: int
    standardised: bool


class Hierarchy(NamedTuple):
    """A `GLM` with the posterior of a PyMC model, and where its parameters stand in that model's.

    ``columns[k]`` is the parameter of PyMC that coefficient k is; `log_scale` is the place of the logarithm of the
    family's scale, or -1.
    """

    glm: GLM
    columns: NDArray[np.intp]
    factors: list[Factor]
    log_scale: int
    dim: int

    def from_glm(self, draws: Array) -> Array:
        """Draws of the model, scales as they are, as parameters of PyMC, their logarithms among these."""
        out = np.zeros((*draws.shape[:-1], self.dim))
        first = len(self.columns)
        out[..., self.columns] = draws[..., :first]
        scales = draws[..., draws.shape[-1] - len(self.factors) :]
        for k, (places, log_sd, _, column, standardised) in enumerate(self.factors):
            sd = scales[..., k : k + 1]
            effects = draws[..., first : first + len(places)]
            out[..., places] = effects / sd if standardised else effects
            if column >= 0:
                out[..., places] += draws[..., column : column + 1]
            out[..., log_sd] = np.log(sd[..., 0])
            first += len(places)
        if self.log_scale >= 0:
            out[..., self.log_scale] = np.log(draws[..., first])
        return out

    def to_glm(self, theta: Array) -> Array:
        """The inverse of `from_glm`."""
        scales = np.exp(theta[..., [f.log_sd for f in self.factors]])
        parts = [theta[..., self.columns]]
        for k, (places, _, mean, _, standardised) in enumerate(self.factors):
            effects = theta[..., places] if mean < 0 else theta[..., places] - theta[..., mean : mean + 1]
            parts.append(effects * scales[..., k : k + 1] if standardised else effects)
        if self.log_scale >= 0:
            parts.append(np.exp(theta[..., self.log_scale : self.log_scale + 1]))
        return np.concatenate([*parts, scales], axis=-1)

    def log_jacobian(self, draws: Array) -> float:
        """Of PyMC's parameters by the model's, scales as logarithms: standardised effects shrink with their scale."""
        logs = np.log(draws[len(draws) - len(self.factors) :])
        return -float(sum(len(f.places) * log for f, log in zip(self.factors, logs, strict=True) if f.standardised))


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

    def constrain(self, theta: ArrayLike) -> Array:
        return self._found.from_glm(super().constrain(theta))

    def unconstrain(self, values: ArrayLike) -> Array:
        return super().unconstrain(self._found.to_glm(np.asarray(values, dtype=np.float64)))


class OtherModelError(Exception):
    """The model is of another kind; the words say which part of it is."""


def hierarchy(graphs: RowGraphs, values: list[Any]) -> Hierarchy:
    """The model as a `GLM`, which is checked at random points.

    Raises
    ------
    OtherModelError
        If it is of another kind.
    """
    try:
        found = _Reader(graphs, values).read()
    except (ValueError, TypeError) as error:  # outcomes or columns that GLM does not have
        raise OtherModelError(str(error)) from error
    if not _agree(graphs, found):
        raise OtherModelError("the log-posteriors of both differ at random points, so that a part of it is not what it "
                              "looks like: another link than the family's own, a factor beside the link (an exposure "
                              "E of a count is written exp(log(E) + eta)), a scale behind another transformation, or a "
                              "predictor of another form")
    return found


class _Reader:
    """Reads one model, part by part; what is of another kind is named."""

    def __init__(self, graphs: RowGraphs, values: list[Any]) -> None:
        self.graphs, self.model, self.values = graphs, graphs.model, values
        self.bounds = dict(zip(values, np.cumsum([0, *graphs.sizes[:-1]]).tolist(), strict=True))
        self.names: list[str] = []
        self.columns: list[int] = []
        self.priors: dict[str, Any] = {}
        self.extra: list[Array] = []  # columns of the means that effects are centred at
        self.groups: dict[str, Groups] = {}
        self.sds: dict[str, Any] = {}
        self.factors: list[Factor] = []

    def read(self) -> Hierarchy:
        graphs = self.graphs
        self._refuse_other_terms()
        family, options, scale = self._family()
        block = graphs.design.blocks[0]
        seen = {c: k for k, c in enumerate(graphs.predictors.coefficients)}
        starts = np.cumsum([0, *(int(evaluated(c.size, graphs.starts)) for c in seen)])
        parts = [part for part in graphs.predictors.parts[0] if part.coefficients is not None]
        for part in parts:
            if part.codes is None:
                self._coefficients(part)
        if len(block.columns) != len(self.columns):
            raise OtherModelError("a coefficient is in the predictor more than once")
        for part in parts:
            if part.codes is not None:
                self._factor(part, int(starts[seen[part.coefficients]]), block)
        if not self.columns:
            raise OtherModelError("the predictor has no coefficient beside effects of groups: give it an intercept")
        log_scale = -1 if scale is None else self.bounds[self.model.rvs_to_values[scale]]
        self._refuse_other_parameters(log_scale)
        table = block.table
        if self.extra:
            table = np.column_stack([*([] if table is None else [table]), *self.extra])
        glm = GLM(table, evaluated(self.model.rvs_to_values[graphs.observed[0]]), family, offset=block.offset,
                  groups=self.groups or None, prior=self.priors, group_prior=self.sds or None, names=self.names,
                  scale_prior=None if scale is None else _scale(scale), **options)
        return Hierarchy(glm, np.array(self.columns, dtype=np.intp), self.factors, log_scale, graphs.dim)

    def _refuse_other_terms(self) -> None:
        graphs = self.graphs
        if len(graphs.observed) != 1:
            raise OtherModelError(f"it has {len(graphs.observed)} observed variables, {graphs.names}")
        if self.model.potentials:
            raise OtherModelError(f"it has a potential, {_listed(self.model.potentials)}")
        if posterior_elsewhere(self.model, graphs.observed):
            others = [v for v in self.model.observed_RVs if v not in graphs.observed]
            raise OtherModelError(f"it has observed variables whose rows are not subsampled, {_listed(others)}")
        if graphs.design is None:
            raise OtherModelError(f"the terms of {graphs.names} are no functions of linear predictors: "
                                  f"{graphs.unseen}")
        if len(graphs.design.blocks) != 1:
            raise OtherModelError(f"{graphs.names} has {len(graphs.design.blocks)} linear predictors")

    def _family(self) -> tuple[str, dict[str, Any], Any]:
        """The family, its fixed parameters, and the variable that its scale is, if that is learned."""
        observed = self.graphs.observed[0]
        law = _law(observed)
        found = family_of(observed)
        scalars = self.graphs.scalars
        if found is not None:
            if scalars:
                raise OtherModelError(f"{self.graphs.names} depends on {_listed(scalars)} beside the predictor")
            return *found, None
        if law not in ("Bernoulli", "Poisson", "Normal", "StudentT"):
            own = {"NegBinomial": "negative-binomial", "Gamma": "gamma"}.get(law)
            table = "" if own is None else f"; mcmc.GLM has the family {own!r}, for a table of columns and groups"
            raise OtherModelError(f"{self.graphs.names} is {law}; Bernoulli, Poisson, Normal or StudentT is needed"
                                  f"{table}")
        if in_pieces(observed):
            raise OtherModelError(f"the parameters of {self.graphs.names} are in pieces, such as by clip or switch")
        given, options = observed.owner.op.dist_params(observed.owner), {}
        if law == "StudentT":
            df = number(given[0])
            if df is None:
                raise OtherModelError(f"the degrees of freedom of {self.graphs.names} are learned")
            options["df"] = df
        behind = self._behind(given[-1])
        if len(behind) != 1 or len(scalars) != 1 or scalars[0] is not self.model.rvs_to_values[behind[0]]:
            raise OtherModelError(f"the sigma of {self.graphs.names} depends on {_listed(behind)}; a number or one "
                                  f"scalar variable is needed")
        return {"Normal": "gaussian", "StudentT": "student-t"}[law], options, behind[0]

    def _behind(self, v: Any) -> list[Any]:
        """Free variables that a node depends on, by way of no other free variable."""
        above = set(ancestors([v], blockers=[u for u in self.model.free_RVs if u is not v]))
        return [u for u in self.model.free_RVs if u in above]

    def _coefficients(self, part: Any) -> None:
        value = root(part.coefficients)
        if value not in self.bounds or not self.graphs.predictors.rearranges(part.coefficients):
            own = [v for v in self.values if v in set(ancestors([part.coefficients]))]
            raise OtherModelError(f"a coefficient is a function of {_listed(own)}; variables as they are, or effects "
                                  f"of groups that are scaled, are needed")
        variable = self.model.values_to_rvs[value]
        prior = self._location(variable)
        size = self.graphs.sizes[self.values.index(value)]
        for k in range(size):
            self._add_column(value.name if size == 1 else f"{value.name}[{k}]", self.bounds[value] + k, prior)

    def _add_column(self, name: str, place: int, prior: Any) -> None:
        self.names.append(name)
        self.columns.append(place)
        self.priors[name] = prior

    def _location(self, variable: Any) -> Any:
        """The prior of a coefficient."""
        law = _law(variable)
        given = [number(p) for p in _parameters(variable)]
        if law not in ("Normal", "StudentT", "Cauchy", "Laplace", "Flat"):
            raise OtherModelError(f"the prior of {variable.name!r} is {law}; Normal, StudentT, Cauchy, Laplace or Flat "
                                  f"is needed")
        if any(p is None for p in given):
            behind = [v for p in _parameters(variable) for v in self._behind(p)]
            raise OtherModelError(f"the prior of the coefficient {variable.name!r} depends on {_listed(behind)}"
                                  if behind else f"the prior of {variable.name!r} differs between its entries")
        first, last = (0.0, math.inf) if law == "Flat" else (float(given[-2] or 0.0), float(given[-1] or 0.0))
        if law in ("Normal", "Flat"):
            return Normal(first, last)
        if law == "Laplace":
            return Laplace(first, last)
        return StudentT(1.0 if law == "Cauchy" else float(given[0] or 0.0), first, last)

    def _factor(self, part: Any, first: int, block: Any) -> None:
        """Effects of one factor: codes that choose from one vector."""
        own = set(ancestors([part.coefficients])).intersection(self.values)
        vectors, scalars = [v for v in own if v.ndim == 1], [v for v in own if v.ndim == 0]
        if len(vectors) != 1 or len(scalars) > 1:
            raise OtherModelError(f"the effects of groups are functions of {_listed(own)}; one vector, with at most "
                                  f"one scale, is needed")
        value, variable = vectors[0], self.model.values_to_rvs[vectors[0]]
        if _law(variable) != "Normal":
            raise OtherModelError(f"the effects {variable.name!r} are {_law(variable)}; normal ones are needed")
        mean, sd = _parameters(variable)
        center = self._center(variable, mean, bool(scalars))
        if scalars and number(sd) != 1.0:
            raise OtherModelError(f"the effects {variable.name!r} are scaled by {_listed(scalars)}, and their own "
                                  f"standard deviation is not 1")
        behind = [self.model.values_to_rvs[scalars[0]]] if scalars else self._behind(sd)
        if len(behind) != 1 or behind[0].ndim:
            raise OtherModelError(f"the standard deviation of the effects {variable.name!r} depends on "
                                  f"{_listed(behind)}; one scalar variable is needed")
        size = self.graphs.sizes[self.values.index(value)]
        coded = [pair for pair in block.coded if first <= pair[1][0] < first + size]
        if len(coded) != 1 or variable.name in self.groups:
            raise OtherModelError(f"the effects {variable.name!r} are in the predictor more than once")
        weights, codes = coded[0]
        column = -1
        if center >= 0:
            column = len(self.columns)
            self.extra.append(np.ones(self.graphs.n_rows) if weights is None else weights)
            behind_mean = self._behind(mean)[0]
            self._add_column(behind_mean.name, center, self._location(behind_mean))
        numbers = SimpleNamespace(categories=np.arange(size), codes=codes - first)
        table = None if weights is None else weights[:, None]
        self.groups[variable.name] = Groups(numbers, table, weights is None, correlated=False, name=variable.name)
        self.sds[variable.name] = {"sd": _scale(behind[0])}
        log_sd = self.bounds[self.model.rvs_to_values[behind[0]]]
        self.factors.append(Factor(self.bounds[value] + np.arange(size), log_sd, center, column, bool(scalars)))

    def _center(self, variable: Any, mean: Any, standardised: bool) -> int:
        """The place of the variable that effects are centred at; -1 if that is 0."""
        if number(mean) == 0.0:
            return -1
        behind = self._behind(mean)
        if standardised or len(behind) != 1 or behind[0].ndim or _bare(mean) is not behind[0]:
            words = f"depends on {_listed(behind)}" if behind else "is not 0"
            raise OtherModelError(f"the mean of the effects {variable.name!r} {words}; 0, or one scalar variable that "
                                  f"is their mean where they are not standardised, is needed")
        return self.bounds[self.model.rvs_to_values[behind[0]]]

    def _refuse_other_parameters(self, log_scale: int) -> None:
        """A parameter that the rows do not see has no draws, and one that is two things has two."""
        places = [*self.columns, *(p for f in self.factors for p in (*f.places, f.log_sd))]
        counts = np.bincount([*places, *([log_scale] if log_scale >= 0 else [])], minlength=self.graphs.dim)
        for wrong, words in ((counts == 0, "not seen by the rows, nor a scale of what they see"),
                             (counts > 1, "more than one coefficient or scale")):
            if wrong.any():
                starts = np.array(list(self.bounds.values()))
                named = {self.values[np.searchsorted(starts, p, side="right") - 1] for p in np.flatnonzero(wrong)}
                raise OtherModelError(f"{_listed(named)} {'is' if len(named) == 1 else 'are'} {words}")


def _listed(variables: Any) -> str:
    return ", ".join(sorted(repr(getattr(v, "name", None) or str(v)) for v in variables)) or "none"


def _bare(v: Any) -> Any:
    """A node without the axes that broadcasting gave it."""
    while isinstance(getattr(v.owner, "op", None), DimShuffle):
        v = v.owner.inputs[0]
    return v


def _law(variable: Any) -> str:
    return type(variable.owner.op).__name__.removesuffix("RV")


def _parameters(variable: Any) -> Any:
    return variable.owner.op.dist_params(variable.owner) if hasattr(variable.owner.op, "dist_params") else ()


def _scale(variable: Any) -> Scale:
    law = _law(variable)
    given = [number(p) for p in _parameters(variable)]
    if any(p is None for p in given):
        raise OtherModelError(f"the prior of the scale {variable.name!r} has a parameter that is learned too")
    if law not in _SCALES:
        raise OtherModelError(f"the prior of the scale {variable.name!r} is {law}; {', '.join(_SCALES)} is needed")
    return _SCALES[law](*(float(p or 0.0) for p in given))


_SCALES: dict[str, Callable[..., Scale]] = {
    "HalfNormal": lambda _, sd: HalfNormal(sd),
    "HalfCauchy": lambda *given: HalfCauchy(given[-1]),
    "HalfStudentT": HalfStudentT,
    "Exponential": lambda mean: Exponential(1.0 / mean),
    "Gamma": lambda shape, mean: Gamma(shape, 1.0 / mean),
    "LogNormal": LogNormal,
}


def _agree(graphs: RowGraphs, found: Hierarchy) -> bool:
    """Whether the log-posterior differs between random points as PyMC's does."""
    first, joint = None, found.glm.joint_prior
    for child in np.random.SeedSequence(22).spawn(5):
        rng = np.random.default_rng(child)
        theta = rng.uniform(-0.5, 0.5, found.glm.dim)
        positive = np.r_[found.glm.n_seen - (found.log_scale >= 0) : found.glm.dim]
        theta[positive] = np.exp(rng.uniform(-1.0, 1.0, len(positive)))
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
