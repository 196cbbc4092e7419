"""Cuts in the graph of a PyMC model: variables through which the rows' terms depend on parameters; needs PyMC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc
from numpy.typing import NDArray
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors

from fastrace.mcmc.doors.pymc._constants import RowConstants

__all__ = ["Cut", "cut_at", "last_variables", "law", "rows_among", "terms_by_row"]


class Cut(NamedTuple):
    """The terms as functions of some variables, and these as functions of the parameters.

    Attributes
    ----------
    names : tuple of str
    terms : list of variables
        One vector for each observed variable, with one entry for each row, in `seen`.
    seen : list of variables
        What the rows see: value variables of free variables, inputs in place of deterministic ones.
    given : list of variables
        The same as functions of the value variables.
    starts : dict
        What each of `seen` is at the initial point.
    """

    names: tuple[str, ...]
    terms: list[Any]
    seen: list[Any]
    given: list[Any]
    starts: dict[Any, NDArray[Any]]


def terms_by_row(model: Any, observed: Sequence[Any], constants: RowConstants | None = None) -> list[Any]:
    """Terms of all rows, one vector for each observed variable, with containers in place of arrays of the rows."""
    whole = []
    for variable, term in zip(observed, model.logp(vars=list(observed), sum=False), strict=True):
        if term.ndim == 0:
            raise ValueError(
                f"the likelihood of {variable.name!r} ({law(variable)}) is one number, not one factor for each "
                f"row, so no subset of rows gives an estimate of it; a distribution whose entries along the first "
                f"axis are independent is needed"
            )
        term = term if constants is None else constants.by_row(term)
        whole.append(term.reshape((term.shape[0], -1)).sum(axis=1) if term.ndim > 1 else term)
    return whole


def law(variable: Any) -> str:
    """The name of a variable's distribution."""
    return type(variable.owner.op).__name__.removesuffix("RV") if variable.owner is not None else "unknown"


def rows_among(rows: set[Any], variable: Any) -> str:
    """The containers of rows that a variable depends on, in words."""
    named = sorted(v.name for v in rows.intersection(ancestors([variable])))
    return ", ".join(named) or "arrays of the rows"


def last_variables(model: Any, observed: Sequence[Any], constants: RowConstants) -> list[Any]:
    """The first free and deterministic variables that are met on all paths from the rows' terms to the parameters.

    Deterministic variables that depend on rows are passed by.
    """
    ends = set(model.free_RVs) | {d for d in model.deterministics if not constants.sees(d)}
    found: list[Any] = []
    visited: set[Any] = set()
    stack = [v for o in observed for v in o.owner.inputs]
    while stack:
        v = stack.pop()
        if v in visited:
            continue
        visited.add(v)
        if v in ends:
            found.append(v)
        elif v.owner is not None:
            stack.extend(v.owner.inputs)
    order = list(model.named_vars.values())
    return sorted(found, key=order.index)


def cut_at(
    model: Any, observed: Sequence[Any], rows: Sequence[Any], variables: Sequence[Any], constants: RowConstants
) -> Cut:
    """Cut the terms at some variables of the model.

    Raises
    ------
    ValueError
        If a variable has an entry for each row or is not continuous, or if the terms depend on parameters by another
        way too; the message names it.
    """
    names = [v.name for v in variables]
    if len(set(names)) != len(names):
        raise ValueError(f"through is {names}; each variable once is needed")
    free, computed = set(model.free_RVs), set(model.deterministics)
    for v in variables:
        if v not in free | computed:
            raise ValueError(f"through has {v.name!r}, which is neither a free nor a deterministic variable of the "
                             f"model; some of {', '.join(u.name for u in model.free_RVs + model.deterministics)} are "
                             f"needed")
        if constants.sees(v):
            raise ValueError(f"through has {v.name!r}, which has numbers of the rows ({rows_among(set(rows), v)}); "
                             f"variables that are functions of parameters alone are needed")
        if np.dtype(v.dtype).kind != "f":
            raise ValueError(f"through has {v.name!r}, of dtype {v.dtype}; continuous variables are needed")
    inputs = {v: v.type(name=v.name) for v in variables if v in computed}
    other = pymc.do(model, inputs)
    # Arrays are those of the model: the other one has its own `pm.Data`.
    whole = terms_by_row(other, [other[v.name] for v in observed])
    back = {other[c.name]: c for c in model.data_vars}
    back |= {other.rvs_to_values[other[v.name]]: model.rvs_to_values[v] for v in model.free_RVs}
    back |= {other[v.name]: x for v, x in inputs.items()}
    terms = [constants.by_row(term) for term in graph_replace(whole, back, strict=False)]
    seen = [inputs.get(v, model.rvs_to_values.get(v)) for v in variables]
    reach = set(ancestors(terms))
    around = [v.name for v in model.free_RVs if model.rvs_to_values[v] in reach - set(seen)]
    if around:
        raise ValueError(f"through has {', '.join(names)}, and the rows depend on {', '.join(around)} by another way; "
                         f"name these too, or a deterministic variable that stands between them and the rows")
    idle = [name for name, x in zip(names, seen, strict=True) if x not in reach]
    if idle:
        raise ValueError(f"through has {', '.join(idle)}, on which no row depends directly: leave it out")
    given = [x if v in free else model.replace_rvs_by_values([v])[0] for v, x in zip(variables, seen, strict=True)]
    point = model.initial_point()
    held = {value: value.type.filter(np.asarray(point[value.name], dtype=value.dtype))
            for value in (model.rvs_to_values[v] for v in model.free_RVs)}
    starts = {}
    for x, made in zip(seen, given, strict=True):
        starts[x] = held[x] if x in held else np.asarray(made.eval(
            {v: c for v, c in held.items() if v in set(ancestors([made]))}, mode="FAST_COMPILE"))
    return Cut(tuple(names), terms, seen, given, starts)
