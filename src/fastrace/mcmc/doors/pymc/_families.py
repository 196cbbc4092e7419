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
    TrueDiv,
)
from pytensor.scalar.basic import LogicalComparison, ScalarOp
from pytensor.scalar.math import Erf, Erfc, Erfcx
from pytensor.tensor.elemwise import DimShuffle

from fastrace._base._words import counted
from fastrace.mcmc.doors.pymc._cuts import law
from fastrace.mcmc.doors.pymc._predictors import Blocks, evaluated

__all__ = ["LAWS", "Family", "ScaleNode", "agree", "factor_beside", "family_of", "in_pieces", "number", "numbers",
           "power_between", "predictor_of", "reach_of", "scale_of"]

Array = NDArray[np.float64]

LAWS = {"Bernoulli": "logistic", "Binomial": "binomial", "Poisson": "poisson", "NegBinomial": "negative-binomial",
        "Gamma": "gamma", "Normal": "gaussian", "StudentT": "student-t"}
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
    if law(observed) not in ("Gamma", "Normal", "StudentT") or not _made_by(v, Mul):
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
    family, given = LAWS[law(observed)], _given(observed)
    if family in ("logistic", "binomial"):
        link = _link(given[-1])
        if family == "logistic":
            return Family(link, {})
        trials = numbers(given[0])
        name = family if link == "logistic" else link
        return None if trials is None else Family(name, {"trials": np.squeeze(trials)})
    found = scale_of(observed)
    if found is None:
        return Family(family, {})
    scale, options = numbers(found.node), {} if family != "student-t" else {"df": number(given[0])}
    if scale is None or None in options.values():
        return None
    if scale.size == 1:
        alone = float(scale.ravel()[0])
        return Family(family, {**options, "scale": 1.0 / alone if found.inverse else alone})
    if found.called != "sigma" or scale.ndim != 1 or not (np.isfinite(scale) & (scale > 0.0)).all():
        return None
    return Family(family, {**options, "scale": 1.0}, np.asarray(scale, dtype=np.float64))


def _link(p: Any) -> str:
    """The family of binary outcomes whose link a probability seems to be made by."""
    ops = [type(op) for op in _ops([p])]
    if any(issubclass(op, Erf | Erfc | Erfcx) for op in ops):
        return "probit"
    twice = any(_made_by(u, Exp) and Exp in map(type, _ops(u.owner.inputs)) for u in ancestors([p], _random([p])))
    return "cloglog" if Expm1 in ops or twice else "logistic"


def predictor_of(graphs: Any, family: Family) -> Blocks:
    """The numbers of the linear predictor as `GLM` takes it.

    Known factors beside exp(eta) are offsets. What PyMC has multiplied a probit's predictor by is divided by, and so
    are known scales.

    Raises
    ------
    ValueError
        If a factor is not positive.
    """
    observed, block = graphs.observed[0], graphs.design.blocks[0]
    if family.name == "probit":
        stretch = _stretch(graphs)
        block = block if stretch == 1.0 else block.over(np.full(graphs.n_rows, 1.0 / stretch))
    if family.name in ("poisson", "negative-binomial", "gamma"):
        factor = factor_beside(observed)
        if factor is not None:
            bad = int((~((factor > 0.0) & np.isfinite(factor))).sum())
            if bad:
                raise ValueError(f"the factor beside the exponential in the mean of {observed.name!r} is 0, negative "
                                 f"or not finite in {counted(bad, 'row')}; a positive one, whose logarithm is an "
                                 f"offset, is needed")
            block = block.moved(np.broadcast_to(np.log(factor), (graphs.n_rows,)))
    return block if family.spread is None else block.over(family.spread)


def factor_beside(observed: Any) -> Array | None:
    """The numbers that the one exponential of a predictor in a distribution's parameters is multiplied by, if any."""
    given = _given(observed)
    random = _random(given)
    above = list(ancestors(given, random))
    clients: dict[Any, list[Any]] = {}
    for u in above:
        if u.owner is not None and u not in random:
            for v in set(u.owner.inputs):
                clients.setdefault(v, []).append(u)
    exps = [v for v in above if _made_by(v, Exp) and not all(v.broadcastable) and numbers(v) is None]
    outer = [v for v in exps if not any(v in set(ancestors(u.owner.inputs, random)) for u in exps)]
    if len(outer) != 1:
        return None
    v, factor = outer[0], None
    while len(clients.get(v, [])) == 1:
        u = clients[v][0]
        others = [w for w in u.owner.inputs if w is not v]
        if not others and not isinstance(getattr(u.owner.op, "scalar_op", None), ScalarOp):
            v = u  # a Deterministic, or the same with other axes
            continue
        divided = _made_by(u, TrueDiv) and u.owner.inputs[0] is v
        known = [numbers(w) for w in others]
        if not (divided or _made_by(u, Mul)) or len(others) + 1 != len(u.owner.inputs) or any(k is None for k in known):
            break
        for k in known:
            power = np.asarray(k, dtype=np.float64)
            factor = (1.0 if factor is None else factor) * (1.0 / power if divided else power)
        v = u
    return None if factor is None else np.asarray(factor, dtype=np.float64)


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
    if name in ("Normal", "StudentT"):
        return ScaleNode(given[-1], "sigma", False)
    return ScaleNode(given[0], "alpha", True) if name in ("NegBinomial", "Gamma") else None


def reach_of(family: str) -> float:
    """How far predictors may move where terms of a family are compared."""
    return _CLOGLOG if family == "cloglog" else _REACH


def agree(family: str = "") -> float:
    """How far terms of a family may be from PyMC's, relative to 1 plus their size."""
    return _SINGLE if family == "probit" else _AGREE


def power_between(values: Callable[[float], Any], inverse: bool) -> tuple[float, float] | None:
    """Power k and the logarithm of a factor c, such that the scale of `GLM` is c s^k; None if it is nothing like that.

    ``values(t)`` gives the node of the scale where s = exp(t); `inverse` is that of `ScaleNode`.
    """
    logs = []
    for t in (-0.3, 0.0, 0.5):
        with np.errstate(all="ignore"):
            found = np.log(np.asarray(values(t), dtype=np.float64))
        if not np.isfinite(found).all() or np.ptp(found) > 1e-9:
            return None
        logs.append((-1.0 if inverse else 1.0) * float(found.flat[0]))
    power = round(_POWERS * (logs[2] - logs[1]) / 0.5) / _POWERS
    away = [abs(log - logs[1] - power * t) for log, t in zip(logs, (-0.3, 0.0, 0.5), strict=True)]
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
