"""Families of `GLM` among distributions of PyMC, with their links and scales; needs PyMC."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pytensor.graph.traversal import ancestors
from pytensor.scalar import (
    Abs,
    Ceil,
    Clip,
    Exp,
    Expm1,
    Floor,
    Mul,
    Pow,
    RoundHalfToEven,
    ScalarMaximum,
    ScalarMinimum,
    Sign,
    Switch,
)
from pytensor.scalar.basic import LogicalComparison
from pytensor.scalar.math import Erf, Erfc, Erfcx
from pytensor.tensor.elemwise import DimShuffle

from fastrace.mcmc.doors.pymc._cuts import law
from fastrace.mcmc.doors.pymc._links import predictor_in
from fastrace.mcmc.doors.pymc._predictors import Blocks, evaluated

__all__ = ["LAWS", "Family", "ScaleNode", "agree", "df_of", "family_of", "in_pieces", "number", "numbers", "outcome_of",
           "power_between", "predictor_of", "reach_of", "scale_of"]

Array = NDArray[np.float64]

LAWS = {"Bernoulli": "logistic", "Binomial": "binomial", "Poisson": "poisson", "NegBinomial": "negative-binomial",
        "Gamma": "gamma", "Exponential": "gamma", "WeibullBeta": "gamma", "Normal": "gaussian", "LogNormal": "gaussian",
        "StudentT": "student-t", "Cauchy": "student-t"}
_PIECES = Abs, Ceil, Clip, Floor, LogicalComparison, RoundHalfToEven, ScalarMaximum, ScalarMinimum, Sign
_REACH = 3.0  # how far points of a comparison move predictors, at most: far out the terms of PyMC lose digits,
_CLOGLOG = 1.0  # as a probability near 1 does, written 1 - exp(-exp(eta))
_AGREE = 1e-9  # difference of two terms, or of two log priors, relative to 1 plus their size, that is rounding;
_SINGLE = 1e-6  # PyMC has the root of 2 in its probit in single precision, so that predictors differ by 3e-8 of theirs
_POWERS = 12.0  # powers between scales are multiples of 1 over this


class Family(NamedTuple):
    """A family of `GLM` with its fixed parameters, and the scales of the rows where each has a known one.

    Attributes
    ----------
    name : str
    options : dict
        Arguments of `GLM`; "trials" may stand beside a link that `GLM` has for single trials alone.
    spread : ndarray of shape (n_rows,) or None
        Outcomes and predictors over these have scale 1, or a learned one.
    """

    name: str
    options: dict[str, Any]
    spread: Array | None = None


class ScaleNode(NamedTuple):
    """The node in which a distribution has its scale, as a function of that of `GLM`."""

    node: Any
    called: str
    inverse: bool  # whether it is 1 over the dispersion


def _ops(nodes: Sequence[Any]) -> list[Any]:
    """Scalar operations that make nodes of variables, the last first."""
    found = [getattr(getattr(v.owner, "op", None), "scalar_op", None) for v in ancestors(nodes, _random(nodes))]
    return [op for op in found if op is not None]


def _given(observed: Any) -> list[Any]:
    return list(observed.owner.op.dist_params(observed.owner))


def in_pieces(observed: Any) -> bool:
    """Whether the distribution's parameters are another function far away, which points near the start do not show."""
    parameters = [u for p in _given(observed) for u in _unsigned(observed, p)]
    variables = _random(parameters)
    for v in ancestors(parameters, blockers=variables):
        op = getattr(getattr(v.owner, "op", None), "scalar_op", None)
        pieces = v.owner.inputs if isinstance(op, _PIECES) else v.owner.inputs[:1] if isinstance(op, Switch) else []
        if not set(variables).isdisjoint(ancestors(pieces)):
            return True
    return False


def _unsigned(observed: Any, parameter: Any) -> list[Any]:
    """A parameter as it is, or what PyMC made it of, by a sign that is impossible where it is negative.

    PyMC writes the shape of a gamma distribution as mu^2 / sigma^2 sign(sigma), and sigma as |tau|^-1/2 sign(tau).
    """
    v = parameter
    while v.owner is not None and isinstance(v.owner.op, DimShuffle):
        v = v.owner.inputs[0]
    if law(observed) not in ("Gamma", "Normal", "LogNormal", "StudentT") or not _made_by(v, Mul):
        return [parameter]
    signed = [u.owner.inputs[0] for u in v.owner.inputs if _made_by(u, Sign)]
    plain = [u for u in v.owner.inputs if not _made_by(u, Sign)]
    if law(observed) == "Gamma":
        return plain
    sizes = [u.owner.inputs[0] for u in plain if _made_by(u, Pow) and _made_by(u.owner.inputs[0], Abs)]
    same = len(plain) == len(sizes) == len(signed) == 1 and sizes[0].owner.inputs[0] is signed[0]
    return signed if same else [parameter]


def _made_by(v: Any, op: Any) -> bool:
    return isinstance(getattr(getattr(v.owner, "op", None), "scalar_op", None), op)


def family_of(observed: Any) -> Family | None:
    """The family that the distribution of an observed variable may be.

    None if it is of another kind, or its scale is neither a number nor one for each row.
    """
    if not hasattr(observed.owner.op, "dist_params") or law(observed) not in LAWS or in_pieces(observed):
        return None
    name, family, given = law(observed), LAWS[law(observed)], _given(observed)
    if name in ("Exponential", "WeibullBeta"):  # a power of such a time is exponential, gamma of shape 1
        return Family(family, {"scale": 1.0}) if name == "Exponential" or number(given[0]) is not None else None
    if family in ("logistic", "binomial"):
        link = _link(given[-1])
        if family == "logistic":
            return Family(link, {})
        trials = numbers(given[0])
        return None if trials is None else Family(family if link == "logistic" else link,
                                                  {"trials": np.squeeze(trials)})
    found = scale_of(observed)
    if found is None:
        return Family(family, {})
    scale, options = numbers(found.node), {} if family != "student-t" else {"df": df_of(observed)}
    if scale is None or None in options.values():
        return None
    if scale.size == 1:
        alone = float(scale.ravel()[0])
        return Family(family, {**options, "scale": 1.0 / alone if found.inverse else alone})
    if found.inverse or scale.ndim != 1 or not (np.isfinite(scale) & (scale > 0.0)).all():
        return None
    return Family(family, {**options, "scale": 1.0}, np.asarray(scale, dtype=np.float64))


def df_of(observed: Any) -> float | None:
    """Degrees of freedom of a Student-t distribution, if they are one number; a Cauchy distribution has 1."""
    return 1.0 if law(observed) == "Cauchy" else number(_given(observed)[0])


def outcome_of(graphs: Any, family: Family) -> tuple[Array, Any]:
    """Outcomes of the rows of the `GLM`, and what the logarithms of their densities leave out of those of PyMC's.

    These are logarithms, or powers, of those of PyMC, over known scales.
    """
    observed = graphs.observed[0]
    left_out: Any = 0.0
    outcome = evaluated(graphs.model.rvs_to_values[observed])
    with np.errstate(all="ignore"):  # GLM says which outcomes it does not have
        if law(observed) == "LogNormal":
            outcome = np.log(outcome)
            left_out = -outcome
        elif law(observed) == "WeibullBeta":
            power = float(_given(observed)[0].eval(mode="FAST_COMPILE"))
            left_out = math.log(power) + (power - 1.0) * np.log(outcome)
            outcome = outcome**power
        if family.spread is not None:
            outcome, left_out = outcome / family.spread, left_out - np.log(family.spread)
    return outcome, left_out


def _link(p: Any) -> str:
    """The family of binary outcomes whose link a probability seems to be made by."""
    ops = [type(op) for op in _ops([p])]
    if any(issubclass(op, Erf | Erfc | Erfcx) for op in ops):
        return "probit"
    twice = any(_made_by(u, Exp) and Exp in map(type, _ops(u.owner.inputs)) for u in ancestors([p], _random([p])))
    return "cloglog" if Expm1 in ops or twice else "logistic"


def predictor_of(graphs: Any, family: Family) -> tuple[Blocks | None, list[int]]:
    """The numbers of the linear predictor as `GLM` takes it, and which scalars of the graph are coefficients in it.

    The scalars' columns follow those of the graph's coefficients. What PyMC has multiplied a probit's predictor by is
    divided by, and so are known scales. None in place of the numbers if there is no such predictor.

    Raises
    ------
    ValueError
        If a factor beside the exponential in a mean is not positive.
    """
    found = predictor_in(graphs, family.name)
    if found is not None and not found.slopes.all():
        return None, []  # a linear predictor that is elsewhere in the distribution
    if found is not None:
        block, used = found.block(graphs.design), found.used
    elif len(graphs.design.blocks) == 1:  # terms are compared, whatever it is
        block, used = graphs.design.blocks[0], []
        block = block.times(_stretch(graphs)) if family.name == "probit" else block
    else:
        return None, []
    return block if family.spread is None else block.over(family.spread), used


def _stretch(graphs: Any) -> float:
    """What the leaf of a probit is to be multiplied by: PyMC folds -1 / sqrt(2) into a product without an intercept."""
    leaf = graphs.leaf_of(Erf, Erfc, Erfcx)
    if leaf is None:
        return 1.0
    op, slope = leaf
    stretch = (1.0 if op is Erf else -1.0) * math.sqrt(2.0) * slope
    return 1.0 if abs(stretch - 1.0) < _SINGLE or not math.isfinite(stretch) or stretch == 0.0 else stretch


def _random(nodes: Sequence[Any]) -> list[Any]:
    return [v for v in ancestors(nodes) if hasattr(getattr(v.owner, "op", None), "dist_params")]


def scale_of(observed: Any) -> ScaleNode | None:
    """Where a distribution has its scale; None where it has none."""
    name, given = law(observed), _given(observed)
    if LAWS.get(name) in ("gaussian", "student-t"):
        return ScaleNode(given[-1], "beta" if name == "Cauchy" else "sigma", False)
    return ScaleNode(given[0], "alpha", True) if name in ("NegBinomial", "Gamma") else None


def reach_of(family: str) -> float:
    """How far predictors may move where terms of a family are compared."""
    return _CLOGLOG if family == "cloglog" else _REACH


def agree(family: str = "") -> float:
    """How far terms of a family may be from PyMC's, relative to 1 plus their size."""
    return _SINGLE if family == "probit" else _AGREE


def power_between(values: Callable[[float], Any], inverse: bool) -> tuple[float, Array] | None:
    """Power k and the logarithm of a factor c, such that the scale of `GLM` is c s^k; None if it is nothing like that.

    ``values(t)`` gives the node of the scale where s = exp(t); `inverse` is that of `ScaleNode`. The factor is one
    number, of shape (1,), or one for each row.
    """
    logs = []
    for t in (-0.3, 0.0, 0.5):
        with np.errstate(all="ignore"):
            found = np.log(np.ravel(np.asarray(values(t), dtype=np.float64)))
        if not np.isfinite(found).all():
            return None
        logs.append((-1.0 if inverse else 1.0) * (found[:1] if np.ptp(found) <= 1e-9 else found))
    if len({len(log) for log in logs}) > 1:
        return None
    power = round(_POWERS * float(logs[2][0] - logs[1][0]) / 0.5) / _POWERS
    away = [np.abs(log - logs[1] - power * t).max() for log, t in zip(logs, (-0.3, 0.0, 0.5), strict=True)]
    return None if max(away) > 1e-9 else (power, logs[1])


def numbers(v: Any) -> NDArray[Any] | None:
    """What a variable is if nothing random enters it."""
    if _random([v]):
        return None
    return evaluated(v)


def number(v: Any) -> float | None:
    """The same if it is a single number."""
    value = numbers(v)
    return None if value is None or value.size != 1 else float(value.ravel()[0])
