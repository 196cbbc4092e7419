"""Generalised linear models among PyMC models: the same terms from compiled code, after a check; needs PyMC."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.linalg import lsqr

from fastrace._models.grouping import Groups
from fastrace.mcmc.doors.pymc._families import agree, family_of, outcome_of, predictor_of, reach_of
from fastrace.mcmc.doors.pymc._graphs import RowGraphs
from fastrace.mcmc.doors.pymc._predictors import Blocks, root
from fastrace.mcmc.models.glm import GLM

__all__ = ["calm", "compiled_seen", "compiled_terms", "effects_last", "left_out", "normal_prior", "posterior_elsewhere",
           "within"]

Array = NDArray[np.float64]

_POINTS = 4  # random points at which both must agree
_DENSE = 0.4  # share of entries from which a table is kept whole


def compiled_terms(graphs: RowGraphs, start: Array) -> GLM | None:
    """A model with the terms of these graphs and a flat prior, in the same parameters; None if there is none.

    `start` is a point at which the terms are finite.
    """
    if not graphs.rearranged:
        return None
    return _compiled(graphs, graphs.jacobian(start).argmax(axis=1), graphs.sizes, start,
                     lambda at: np.asarray(graphs.call("all", at)[0]))


def compiled_seen(graphs: RowGraphs, start: Array) -> GLM | None:
    """The same in what the rows see, where that is a function of the parameters; None if there is none."""
    if graphs.design is None or graphs.cut is not None:
        return None
    design, rows = graphs.design, np.arange(graphs.n_rows)

    def terms(psi: Array) -> Array:
        p = design.n_coefficients
        scalars = map(np.asarray, psi[p:])
        return np.asarray(graphs.call("curve", *design.predictors(psi[:p], slice(None)), *scalars, rows))

    return _compiled(graphs, np.arange(graphs.n_seen), [*design.sizes, *(1 for _ in graphs.scalars)],
                     graphs.once("seen")(start), terms)


def _compiled(
    graphs: RowGraphs, places: NDArray[np.intp], sizes: Sequence[int], start: Array, terms: Callable[[Array], Array],
) -> GLM | None:
    """A model of some coordinates, of which the design's coefficients and the scalars are those at `places`."""
    if len(graphs.observed) != 1:
        return None
    found = family_of(graphs.observed[0])
    if found is None:
        return None
    outcome, _ = outcome_of(graphs, found)
    if outcome.ndim != 1:
        return None
    try:
        block, used = predictor_of(graphs, found)
    except ValueError:  # a factor without a logarithm
        return None
    if block is None or len(used) < len(graphs.scalars):
        return None
    groups = [] if not block.coded else _groups(sizes, block, places)
    if groups:
        first = len(start) - sum(len(g.levels) * (g.intercept + len(g.slope_names)) for g in groups)
        table = _table(block._replace(coded=[]), places, first, graphs.n_rows)
    else:
        table = _table(block, places, len(start), graphs.n_rows)
    # Effects must have a prior: it is not used.
    effects: dict[str, Any] = {"groups": groups, "prior_sd": np.ones(len(start))} if groups else {}
    try:
        glm = GLM(table, outcome, found.name, offset=block.offset, **found.options, **effects)
    except ValueError:  # outcomes that the family does not have, or trials
        return None
    return glm if _agree(terms, glm, start) else None


def left_out(graphs: RowGraphs) -> Any:
    """What terms of outcomes that are changed leave out of each row's log density."""
    found = family_of(graphs.observed[0])
    return 0.0 if found is None else outcome_of(graphs, found)[1]


def posterior_elsewhere(model: Any, observed: Sequence[Any]) -> bool:
    """Whether there are factors beside priors and rows, which may be constant near the start and not far away."""
    return bool(model.potentials) or set(model.observed_RVs) != set(observed)


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


def within(glm: GLM, step: Array) -> Array:
    """A step of what the rows see, or as much of it as moves no predictor too far for a comparison."""
    moved = float(np.abs(glm._movements(step)).max())
    return step * min(1.0, reach_of(glm._glm.family) / moved) if moved > 0.0 else step


def calm(glm: GLM, dim: int) -> Array:
    """A step of what the rows see to where terms keep their digits, if offsets are large.

    PyMC rounds probabilities of a complementary log-log link to 1 where an exposure is large.
    """
    out, offset = np.zeros(dim), glm._glm.offset
    if glm._glm.family == "cloglog" and offset is not None:
        away = -float(np.max(offset)) * np.ones(glm.n_rows)
        out[: glm._glm.X.shape[1]] = lsqr(glm._glm.X, away, atol=1e-12, btol=1e-12)[0]
    return out


def _points(glm: GLM, start: Array) -> list[Array]:
    """Random points about one, with that point first: it is moved towards 0 if its predictors are large."""
    start = within(glm, start) + calm(glm, len(start))
    return [start] + [start + within(glm, np.random.default_rng(child).standard_normal(len(start)))
                      for child in np.random.SeedSequence(20).spawn(_POINTS)]


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
        elif not (np.abs(theirs - ours - first) <= agree(glm._glm.family) * (1.0 + np.abs(theirs))).all():
            return False
    return True


def normal_prior(rest: Callable[[Array], float], expansion: Callable[[], Sequence[Any]], start: Array) -> bool:
    """Whether the rest of a log-density is its second-order expansion, so that nothing is left of it.

    `expansion` gives its value, gradient and Hessian at `start`. Both are compared at random points up to 30 away. It
    takes seconds to prepare, and is not asked for where third differences along a line say that the rest is no
    quadratic.
    """
    way = np.random.default_rng(20).standard_normal(len(start))
    levels = np.array([rest(start + t * way) for t in range(4)])
    with np.errstate(invalid="ignore"):
        third = abs(float(levels @ [-1.0, 3.0, -3.0, 1.0]))
    if not third <= 8.0 * agree() * (1.0 + float(np.abs(levels).max())):
        return False
    value, gradient, hessian = expansion()
    for child in np.random.SeedSequence(21).spawn(2 * _POINTS):
        rng = np.random.default_rng(child)
        step = rng.standard_normal(len(start)) * 10.0 ** rng.uniform(-1.0, 1.0)
        quadratic = value + float(gradient @ step + 0.5 * (step @ hessian @ step))
        if not abs(rest(start + step) - quadratic) <= agree() * (1.0 + abs(quadratic)):
            return False
    return True
