"""Generalised linear models among PyMC models: the same terms from compiled code, after a check; needs PyMC."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pytensor.graph.traversal import ancestors
from pytensor.scalar import Abs, Ceil, Clip, Floor, RoundHalfToEven, ScalarMaximum, ScalarMinimum, Sign, Switch
from pytensor.scalar.basic import LogicalComparison
from scipy.sparse import csr_matrix

from fastrace._models.grouping import Groups
from fastrace.mcmc.doors.pymc._graphs import RowGraphs
from fastrace.mcmc.doors.pymc._predictors import Blocks, evaluated, root
from fastrace.mcmc.models.glm import GLM

__all__ = ["AGREE", "compiled_seen", "compiled_terms", "effects_last", "family_of", "in_pieces", "normal_prior",
           "number", "numbers", "posterior_elsewhere"]

Array = NDArray[np.float64]

_POINTS = 4  # random points at which both must agree
AGREE = 1e-9  # relative to 1 plus the size of a term, or of the log prior
_REACH = 3.0  # how far these points move predictors, at most: far out the terms of PyMC lose digits
_PIECES = Abs, Ceil, Clip, Floor, LogicalComparison, RoundHalfToEven, ScalarMaximum, ScalarMinimum, Sign
_DENSE = 0.4  # share of entries from which a table is kept whole


def compiled_terms(graphs: RowGraphs, start: Array) -> GLM | None:
    """A model with the terms of these graphs and a flat prior, in the same parameters; None if there is none.

    `start` is a point at which the terms are finite.
    """
    if not graphs.rearranged or graphs.design.n_coefficients != len(graphs.jacobian(start)):
        return None
    return _compiled(graphs, graphs.jacobian(start).argmax(axis=1), graphs.sizes, start,
                     lambda at: np.asarray(graphs.call("all", at)[0]))


def compiled_seen(graphs: RowGraphs, start: Array) -> GLM | None:
    """The same in what the rows see, where that is a function of the parameters; None if there is none."""
    if graphs.design is None or graphs.cut is not None:
        return None
    design, rows = graphs.design, np.arange(graphs.n_rows)

    def terms(psi: Array) -> Array:
        return np.asarray(graphs.call("curve", *design.predictors(psi, slice(None)), rows))

    return _compiled(graphs, np.arange(design.n_coefficients), design.sizes, graphs.call("seen", start), terms)


def _compiled(
    graphs: RowGraphs, places: NDArray[np.intp], sizes: Sequence[int], start: Array, terms: Callable[[Array], Array],
) -> GLM | None:
    """A model of some coordinates, of which the design's coefficients are those at `places`."""
    if len(graphs.observed) != 1 or len(graphs.predictors.leaves) != 1 or graphs.predictors.scalars:
        return None
    found = family_of(graphs.observed[0])
    if found is None:
        return None
    family, options = found
    outcome = evaluated(graphs.model.rvs_to_values[graphs.observed[0]])
    if outcome.ndim != 1:
        return None
    block = graphs.design.blocks[0]
    groups = [] if not block.coded else _groups(sizes, block, places)
    if groups:
        first = len(start) - sum(len(g.levels) * (g.intercept + len(g.slope_names)) for g in groups)
        table = _table(block._replace(coded=[]), places, first, graphs.n_rows)
    else:
        table = _table(block, places, len(start), graphs.n_rows)
    # Effects must have a prior: it is not used.
    effects: dict[str, Any] = {"groups": groups, "prior_sd": np.ones(len(start))} if groups else {}
    try:
        glm = GLM(table, outcome, family, offset=block.offset, **options, **effects)
    except ValueError:  # outcomes that the family does not have
        return None
    return glm if _agree(terms, glm, start) else None


def in_pieces(observed: Any) -> bool:
    """Whether the distribution's parameters are another function far away, which points near the start do not show."""
    parameters = observed.owner.op.dist_params(observed.owner)
    variables = [v for v in ancestors(parameters) if hasattr(getattr(v.owner, "op", None), "dist_params")]
    for v in ancestors(parameters, blockers=variables):
        op = getattr(getattr(v.owner, "op", None), "scalar_op", None)
        pieces = v.owner.inputs if isinstance(op, _PIECES) else v.owner.inputs[:1] if isinstance(op, Switch) else []
        if not set(variables).isdisjoint(ancestors(pieces)):
            return True
    return False


def posterior_elsewhere(model: Any, observed: Sequence[Any]) -> bool:
    """Whether there are factors beside priors and rows, which may be constant near the start and not far away."""
    return bool(model.potentials) or set(model.observed_RVs) != set(observed)


def family_of(observed: Any) -> tuple[str, dict[str, Any]] | None:
    """The family that the distribution of an observed variable may be, with its fixed parameters."""
    if not hasattr(observed.owner.op, "dist_params") or in_pieces(observed):
        return None
    law = type(observed.owner.op).__name__
    if law == "BernoulliRV":
        return "logistic", {}
    if law == "PoissonRV":
        return "poisson", {}
    given = observed.owner.op.dist_params(observed.owner)
    if law == "NormalRV":
        scale = number(given[1])
        return None if scale is None else ("gaussian", {"scale": scale})
    if law == "StudentTRV":
        df, scale = number(given[0]), number(given[2])
        return None if df is None or scale is None else ("student-t", {"df": df, "scale": scale})
    return None


def numbers(v: Any) -> NDArray[Any] | None:
    """What a variable is if nothing random enters it."""
    if any(u.owner is not None and hasattr(u.owner.op, "dist_params") for u in ancestors([v])):
        return None
    return evaluated(v)


def number(v: Any) -> float | None:
    """The same if it is a single number."""
    value = numbers(v)
    return None if value is None or value.size != 1 else float(value.ravel()[0])


def effects_last(graphs: RowGraphs, values: list[Any]) -> list[Any]:
    """The value variables in the order in which a table and grouping factors hold them: effects of groups last.

    The order is unchanged where a table with a column for each parameter would be mostly full.
    """
    if not graphs.rearranged or len(graphs.design.blocks) != 1:
        return values
    block = graphs.design.blocks[0]
    if not block.coded or len(block.columns) + len(block.coded) >= _DENSE * graphs.dim:
        return values
    chosen = {root(part.coefficients) for part in graphs.predictors.parts[0] if part.codes is not None}
    plain = {root(part.coefficients) for part in graphs.predictors.parts[0]
             if part.codes is None and part.coefficients is not None}
    effects = [v for v in values if v in chosen and v not in plain]
    return [v for v in values if v not in effects] + effects


def _groups(sizes: Sequence[int], block: Blocks, places: NDArray[np.intp]) -> list[Groups]:
    """Grouping factors that hold all that codes choose from as the last parameters; none if they do not."""
    out: list[Groups] = []
    coded = [(w, places[c]) for w, c in block.coded]
    bounds = np.cumsum([0, *sizes])
    first = int(bounds[-1])
    for start, stop in reversed(list(zip(bounds[:-1], bounds[1:], strict=True))):
        own = [(w, c - start) for w, c in coded if len(c) and start <= c[0] < stop]
        if not own:
            break
        width, first = len(own), start
        own.sort(key=lambda pair: int(pair[1][0]) % width)
        group = own[0][1] // width
        same = all((c // width == group).all() and (c % width == k).all() for k, (_, c) in enumerate(own))
        if not same or (stop - start) % width or any(w is None for w, _ in own[1:]):
            return []
        intercept = own[0][0] is None
        slopes = [w for w, _ in own if w is not None]
        numbers = SimpleNamespace(categories=np.arange((stop - start) // width), codes=group)
        out.insert(0, Groups(numbers, np.column_stack(slopes) if slopes else None, intercept, name=f"group{start}"))
    held = sum(g.intercept + len(g.slope_names) for g in out) == len(coded)
    return out if held and first > 0 and (places[block.columns] < first).all() else []


def _table(block: Blocks, places: NDArray[np.intp], dim: int, n: int) -> Any:
    """What the predictors multiply the parameters by: a table with a column for each, sparse if most entries are 0."""
    table = block.table
    if not len(block.columns) and not block.coded:
        return np.zeros((n, dim))
    if table is not None and not block.coded and np.array_equal(places[block.columns], np.arange(dim)):
        return table
    entries = len(block.columns) + len(block.coded)
    if not block.coded and entries >= _DENSE * dim:
        whole = np.zeros((n, dim))
        for k, column in enumerate(block.columns):
            whole[:, places[column]] += table[:, k] if table is not None else 0.0
        return whole
    data, columns = np.empty((n, entries)), np.empty((n, entries), np.int32)
    for k, column in enumerate(block.columns):
        data[:, k], columns[:, k] = table[:, k] if table is not None else 0.0, places[column]
    for k, (weights, codes) in enumerate(block.coded, start=len(block.columns)):
        data[:, k], columns[:, k] = 1.0 if weights is None else weights, places[codes]
    sparse = csr_matrix((data.ravel(), columns.ravel(), np.arange(n + 1, dtype=np.int64) * entries), shape=(n, dim))
    sparse.sum_duplicates()
    return sparse


def _points(glm: GLM, start: Array) -> list[Array]:
    """Random points about one, with the point itself first."""
    out = [start]
    for child in np.random.SeedSequence(20).spawn(_POINTS):
        step = np.random.default_rng(child).standard_normal(len(start))
        moved = float(np.abs(glm._movements(step)).max())
        out.append(start + step * (min(1.0, _REACH / moved) if moved > 0.0 else 1.0))
    return out


def _agree(terms: Callable[[Array], Array], glm: GLM, start: Array) -> bool:
    """Whether every row's terms differ between points as PyMC's do: all but constants, which no chain sees."""
    source, theta = glm.engine(None)
    rows, first = np.arange(glm.n_rows), None
    for at in _points(glm, start):
        theta[:] = at
        ours, theirs = source.read(rows, [0])[:, 0], terms(at)
        if first is None:
            first = theirs - ours
            if not np.isfinite(first).all():
                return False
        elif not (np.abs(theirs - ours - first) <= AGREE * (1.0 + np.abs(theirs))).all():
            return False
    return True


def normal_prior(rest: Callable[[Array], float], expansion: Sequence[Any], start: Array) -> bool:
    """Whether the rest of a log-density is its second-order expansion, so that nothing is left of it.

    `expansion` has its value, gradient and Hessian at `start`. Both are compared at random points up to 30 away.
    """
    value, gradient, hessian = expansion
    for child in np.random.SeedSequence(21).spawn(2 * _POINTS):
        rng = np.random.default_rng(child)
        step = rng.standard_normal(len(start)) * 10.0 ** rng.uniform(-1.0, 1.0)
        quadratic = value + float(gradient @ step + 0.5 * (step @ hessian @ step))
        if not abs(rest(start + step) - quadratic) <= AGREE * (1.0 + abs(quadratic)):
            return False
    return True
