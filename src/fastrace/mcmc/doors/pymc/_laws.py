"""Distributions of PyMC as priors of `GLM`; what has none is refused by name. Needs PyMC."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrace.mcmc.doors.pymc._cuts import law
from fastrace.mcmc.doors.pymc._families import numbers
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

__all__ = ["CORRELATIONS", "COVARIANCE", "LOCATIONS", "SCALES", "OtherModelError", "is_standard", "listed",
           "locations", "of_power", "only_number", "parameters", "scales"]



@dataclass(frozen=True)
class PowerOf(Scale):
    """The prior of a scale whose power has a prior: of a dispersion, where PyMC draws its inverse.

    Parameters
    ----------
    base : Scale
        Prior of scale^power.
    power : float
        Not 0.
    """

    base: Scale
    power: float

    def triple(self) -> Any:
        return (*self.base.triple(), self.power)


SCALES: dict[str, Callable[..., Scale]] = {
    "HalfNormal": lambda _, sd: HalfNormal(sd),
    "HalfCauchy": lambda *given: HalfCauchy(given[-1]),
    "HalfStudentT": HalfStudentT,
    "Exponential": lambda mean: Exponential(1.0 / mean),
    "Gamma": lambda shape, mean: Gamma(shape, 1.0 / mean),
    "LogNormal": LogNormal,
    "InvGamma": lambda shape, scale: PowerOf(Gamma(shape, scale), -1.0),
}
LOCATIONS = ("Normal", "StudentT", "Cauchy", "Laplace", "Flat")  # of coefficients
COVARIANCE, CORRELATIONS = "_LKJCholeskyCov", "LKJCorr"


class OtherModelError(Exception):
    """The model is of another kind; the words say which part of it is."""


def listed(variables: Any) -> str:
    """Names of variables, in words."""
    return ", ".join(sorted(repr(getattr(v, "name", None) or str(v)) for v in variables)) or "none"


def parameters(variable: Any) -> tuple[Any, ...]:
    """Nodes that are the parameters of a variable's distribution; none of one that is made of others, as Truncated."""
    owner = variable.owner
    if not hasattr(owner.op, "dist_params") or getattr(owner.op, "extended_signature", "") is None:
        return ()
    return tuple(owner.op.dist_params(owner))


def only_number(v: Any, words: str) -> float:
    """A node as the one number that it is."""
    found = numbers(v)
    if found is None or np.unique(found).size != 1:
        raise OtherModelError(f"{words} is not one number")
    return float(found.flat[0])


def locations(variable: Any, shape: tuple[int, ...]) -> list[Any] | None:
    """Priors of the entries of a variable, raveled, as coefficients; None if they depend on other variables."""
    name = law(variable)
    given = [numbers(p) for p in parameters(variable)]
    if name not in LOCATIONS or any(p is None for p in given):
        return None
    each = np.stack([np.broadcast_to(np.asarray(p, dtype=np.float64), shape).ravel() for p in given or [np.zeros(())]])
    return [_location(name, *entry) for entry in each.T.tolist()]


def is_standard(variable: Any, shape: tuple[int, ...]) -> bool:
    """Whether all entries of a variable are independent normal ones with mean 0 and standard deviation 1."""
    return locations(variable, shape) == [Normal(0.0, 1.0)] * math.prod(shape)


def _location(name: str, *given: float) -> Any:
    if name == "Flat":
        return Normal(0.0, math.inf)
    if name == "Normal":
        return Normal(*given)
    if name == "Laplace":
        return Laplace(*given)
    return StudentT(*(given if name == "StudentT" else (1.0, *given)))


def scales(variable: Any, size: int, owner: str | None = None) -> list[Scale]:
    """Priors of so many standard deviations, or of another scale, that a variable is; `owner` is what is drawn by it.
    """
    called = f"the prior of the scale {variable.name!r}" if owner is None else f"the sd_dist of {owner!r}"
    name, given = law(variable), [numbers(p) for p in parameters(variable)]
    if name not in SCALES:
        known = ", ".join(SCALES).replace("InvGamma", "InverseGamma")
        raise OtherModelError(f"{called} is {name}; mcmc.GLM has {known}: take one of these, such as "
                              f"HalfNormal as wide, or NUTS of PyMC")
    if any(p is None for p in given):
        raise OtherModelError(f"{called} has a parameter that is learned too")
    each: NDArray[np.float64] = np.stack([np.broadcast_to(np.asarray(p, dtype=np.float64), (size,)) for p in given])
    return [SCALES[name](*entry) for entry in each.T.tolist()]


def of_power(prior: Scale, power: float, factor: float) -> Scale:
    """The prior of a scale that is `factor` times a power of what has a prior."""
    if isinstance(prior, PowerOf):
        return of_power(prior.base, power / prior.power, factor)
    if isinstance(prior, LogNormal):
        return LogNormal(power * prior.mean + math.log(factor), abs(power) * prior.sd)
    wide = factor ** (1.0 / power)  # what has the prior, times this, is scale^(1 / power)
    if isinstance(prior, HalfNormal):
        prior = HalfNormal(prior.sd * wide)
    elif isinstance(prior, HalfStudentT):
        prior = HalfStudentT(prior.df, prior.scale * wide)
    elif isinstance(prior, HalfCauchy):
        prior = HalfCauchy(prior.scale * wide)
    elif isinstance(prior, Exponential):
        prior = Exponential(prior.rate / wide)
    elif isinstance(prior, Gamma):
        prior = Gamma(prior.shape, prior.rate / wide)
    return prior if power == 1.0 else PowerOf(prior, 1.0 / power)
