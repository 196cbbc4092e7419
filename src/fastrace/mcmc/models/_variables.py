"""Variables of generalised linear models, called as bambi calls them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from fastrace._models.grouping import Factor
from fastrace.mcmc._variables import Variable, shaped

__all__ = ["glm_variables", "softmax_variables"]

_LOG = re.compile(r"log\((.*)\)")
_SD = re.compile(r"sd\((.*)\)")
_LOCAL = re.compile(r"local_scale\((.*)\)")
_FAMILY = {"scale": "sigma", "dispersion": "alpha"}


def glm_variables(
    names: Sequence[str], n_columns: int, terms: Sequence[tuple[str, int]], factors: Sequence[Factor],
    scale_at: int | None,
) -> tuple[Variable, ...]:
    """Of a `GLM`: a variable for each term of `terms`, names and numbers of columns, for each effect that varies
    among groups, for the scale of the family at `scale_at`, and for the hyperparameters, which follow.
    """
    labels = names[:n_columns]
    if _unnamed(labels):
        out = [shaped("theta", range(n_columns), [("column", labels)])]
    else:
        out, first = [], 0
        for term, count in terms or [(label, 1) for label in labels]:
            own = range(first, first + count)
            out.append(shaped(term, own, [(f"{term}_dim", [_level(labels[j], term) for j in own])])
                       if count > 1 or labels[first] != term else shaped(term, own))
            first += count
    for factor in factors:
        for k, effect in enumerate(factor.terms):
            out.append(shaped(f"{effect}|{factor.name}", range(factor.start + k, factor.stop, factor.width),
                              [(f"{factor.name}__factor_dim", factor.levels)]))
    last = factors[-1].stop if factors else n_columns
    if scale_at is not None:
        out.append(_of_family(names[scale_at], scale_at))
        last = scale_at + 1
    return _different([*out, *_hyperparameters(names, last)], names)


def softmax_variables(
    names: Sequence[str], columns: Sequence[str], n_classes: int
) -> tuple[Variable, ...]:
    """Of a `Softmax`: a variable for each column, along the classes but the first."""
    p, classes = len(columns), ("class", range(1, n_classes))
    width = p * (n_classes - 1)
    if _unnamed(columns):
        out = [shaped("theta", range(width), [classes, ("column", columns)])]
    else:
        out = [shaped(column, range(j, width, p), [classes]) for j, column in enumerate(columns)]
    return _different([*out, *_hyperparameters(names, width)], names)


def _unnamed(columns: Sequence[str]) -> bool:
    """Whether these are the names that columns have if nobody named them."""
    return list(columns) == [f"x{j}" for j in range(len(columns))]


def _level(label: str, term: str) -> str:
    """The level "b" of the column "h[b]" of the term "h"."""
    return label[len(term) + 1 : -1] if label.startswith(f"{term}[") and label.endswith("]") else label


def _of_family(name: str, place: int) -> Variable:
    """The scale of a family: "sigma", or "alpha", which is 1 / dispersion, as in PyMC."""
    held = _LOG.fullmatch(name)
    called = held.group(1) if held else name
    if called == "dispersion":
        return shaped(_FAMILY[called], place, scale="exp of minus" if held else "reciprocal")
    return shaped(_FAMILY.get(called, called), place, scale="exp" if held else "")


def _hyperparameters(names: Sequence[str], first: int) -> list[Variable]:
    """A scalar each, but for the local scales of horseshoes, which are one variable."""
    local = {j: match.group(1) for j in range(first, len(names)) if (match := _LOCAL.fullmatch(names[j]))}
    out: list[Variable] = []
    for j in range(first, len(names)):
        sd = _SD.fullmatch(names[j])
        if j not in local:
            out.append(shaped(f"{sd.group(1)}_sigma" if sd else names[j], j))
    if local:
        out.append(shaped("local_scale", list(local), [("local_scale_dim", list(local.values()))]))
    return out


def _different(variables: list[Variable], names: Sequence[str]) -> tuple[Variable, ...]:
    """Those of one number keep the name that it has in a trace where another variable, or an axis, has theirs."""
    taken: dict[str, Any] = {}
    for variable in variables:
        taken[variable.name] = taken.get(variable.name, 0) + 1
        for axis in variable.dims:
            taken[axis] = taken.get(axis, 0)
    out = []
    for variable in variables:
        clash = taken[variable.name] > 1 and not variable.shape
        out.append(shaped(names[variable.places[0]], variable.places) if clash else variable)
    return tuple(out)
