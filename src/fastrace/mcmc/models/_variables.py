"""Variables of generalised linear models, called as bambi calls them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastrace._models.grouping import Factor
from fastrace.mcmc._variables import Variable, shaped

__all__ = ["glm_variables", "softmax_variables"]

_LOG = re.compile(r"log\((.*)\)")
_SD = re.compile(r"sd\((.*)\)")
_LEVEL = re.compile(r"\[([^]]*)\]")  # of a column of categories
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
        levels = (f"{factor.name}__factor_dim", factor.levels)
        places = np.arange(factor.start, factor.stop).reshape(-1, factor.width)
        for effect, columns in _by_expression(factor.terms, bool(terms)):
            axes = [levels] if columns is None else [levels, (f"{effect}__expr_dim", list(columns))]
            chosen = [list(factor.terms).index(effect)] if columns is None else list(columns.values())
            out.append(shaped(f"{effect}|{factor.name}", places[:, chosen], axes))
    last = factors[-1].stop if factors else n_columns
    if scale_at is not None:
        out.append(_of_family(names[scale_at], scale_at))
        last = scale_at + 1
    return _different([*out, *_hyperparameters(names, last, bool(terms))], names)


def softmax_variables(
    names: Sequence[str], columns: Sequence[str], called: Sequence[Any], factors: Sequence[Factor],
    terms: Sequence[tuple[str, int]],
) -> tuple[Variable, ...]:
    """Of a `Softmax`: a variable for each column, or term of `terms`, along the classes `called` but the first.

    Effects of `factors` follow the coefficients, group by group, and their deviations and correlations stand last.
    """
    p, free, classes = len(columns), len(called) - 1, ("class", list(called[1:]))
    grid = np.arange(p * free).reshape(free, p)
    if _unnamed(columns):
        out = [shaped("theta", grid, [classes, ("column", columns)])]
    else:
        out, start = [], 0
        for term, count in terms or [(column, 1) for column in columns]:
            places, own = grid.T[start : start + count], columns[start : start + count]
            one = count == 1 and own[0] == term
            axes = [classes] if one else [(f"{term}_dim", [_level(label, term) for label in own]), classes]
            out.append(shaped(term, places, axes))
            start += count
    last = p * free + free * sum(factor.n_groups * factor.width for factor in factors)
    hyper, place = list(names[last:]), p * free
    sds: list[Variable] = []
    held: set[int] = set()
    for factor in factors:
        effects = place + np.arange(free * factor.n_groups * factor.width).reshape(factor.n_groups, factor.width, free)
        place += effects.size
        for k, term in enumerate(factor.terms):
            axes = [(f"{factor.name}__factor_dim", list(factor.levels)), classes]
            out.append(shaped(f"{term}|{factor.name}", effects[:, k], axes))
            deviation = f"sd({term}|{factor.name})[{called[1]}]"
            if deviation in hyper:
                own_sds = range(last + hyper.index(deviation), last + hyper.index(deviation) + free)
                sds.append(shaped(f"{term}|{factor.name}_sigma", own_sds, [classes]))
                held.update(own_sds)
    rest = [variable for variable in _hyperparameters(names, last) if held.isdisjoint(variable.places.tolist())]
    return _different([*out, *rest, *sds], names)


def _unnamed(columns: Sequence[str]) -> bool:
    """Whether these are the names that columns have if nobody named them."""
    return list(columns) == [f"x{j}" for j in range(len(columns))]


def _level(label: str, term: str) -> str:
    """The level "b" of the column "h[b]" of the term "h", and "b, u" of the column "h[b]:s[u]" of "h:s"."""
    if label.startswith(f"{term}[") and label.endswith("]"):
        return label[len(term) + 1 : -1]
    return ", ".join(_LEVEL.findall(label)) if _LEVEL.sub("", label) == term != label else label


def _term(label: str) -> str:
    """The term of a column: "h" of "h[b]", and "h:s" of "h[b]:s[u]"; a level may have brackets of its own."""
    term = _LEVEL.sub("", label)
    return label.partition("[")[0] if "[" in term or "]" in term else term


def _by_expression(effects: Sequence[str], formula: bool) -> list[tuple[str, dict[str, int] | None]]:
    """What effects of groups multiply, with levels and places of those that are columns of one term of a formula."""
    out: dict[str, dict[str, int] | None] = {}
    for k, effect in enumerate(effects):
        term = _term(effect) if formula else effect
        if term == effect:
            out[effect] = None
        else:
            own = out.setdefault(term, {})
            assert own is not None
            own[_level(effect, term)] = k
    return list(out.items())


def _of_family(name: str, place: int) -> Variable:
    """The scale of a family: "sigma", or "alpha", which is 1 / dispersion, as in PyMC."""
    held = _LOG.fullmatch(name)
    called = held.group(1) if held else name
    if called == "dispersion":
        return shaped(_FAMILY[called], place, scale="exp of minus" if held else "reciprocal")
    return shaped(_FAMILY.get(called, called), place, scale="exp" if held else "")


def _hyperparameters(names: Sequence[str], first: int, formula: bool = False) -> list[Variable]:
    """A scalar each, but for deviations of effects of one term of a formula, and the local scales of horseshoes."""
    local = {j: match.group(1) for j in range(first, len(names)) if (match := _LOCAL.fullmatch(names[j]))}
    out: list[Variable] = []
    together: dict[str, dict[str, int]] = {}
    for j in range(first, len(names)):
        sd = _SD.fullmatch(names[j])
        effect, _, factor = sd.group(1).rpartition("|") if sd else ("", "", "")
        term = _term(effect) if formula else effect
        if term != effect:
            together.setdefault(f"{term}|{factor}", {})[_level(effect, term)] = j
        elif j not in local:
            out.append(shaped(f"{sd.group(1)}_sigma" if sd else names[j], j))
    for called, places in together.items():
        axis = f"{called.rpartition('|')[0]}__expr_dim"
        out.append(shaped(f"{called}_sigma", list(places.values()), [(axis, list(places))]))
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
