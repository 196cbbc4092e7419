"""Linear predictors in the graph of the rows' terms: what the rows see of the parameters; needs PyTensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.scalar import Add, Cast, Exp, Identity, Mul, Neg, Sub, TrueDiv
from pytensor.tensor.basic import Alloc
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, AdvancedSubtensor1, Subtensor
from scipy.sparse import csr_matrix

from fastrace._base._words import counted
from fastrace.mcmc.trace import entry_name

__all__ = ["Blocks", "Design", "Predictors", "Unseen", "evaluated", "names_of", "root"]

Array = NDArray[np.float64]
_MOST_PREDICTORS, _MOST_SCALARS = 3, 3


class Unseen(Exception):
    """The terms are no functions of a few linear predictors, row by row."""


class Part(NamedTuple):
    """A summand of a linear predictor: weights times coefficients, which codes choose if there are any.

    An offset has no coefficients. Weights of None are 1.
    """

    weights: Any
    codes: Any
    coefficients: Any


class Blocks(NamedTuple):
    """The numbers of a linear predictor: ``offset + table @ psi[columns] + sum of weights * psi[codes]``."""

    offset: Array | None
    table: NDArray[Any] | None
    columns: NDArray[np.intp]
    coded: list[tuple[Array | None, NDArray[np.int32]]]

    def over(self, spread: Array) -> Blocks:
        """The numbers of the predictor divided by one of each row."""
        return Blocks(None if self.offset is None else self.offset / spread,
                      None if self.table is None else np.asarray(self.table, dtype=np.float64) / spread[:, None],
                      self.columns, [((1.0 if w is None else w) / spread, codes) for w, codes in self.coded])

    def times(self, factor: float) -> Blocks:
        """The numbers of a multiple of the predictor."""
        return self if factor == 1.0 else self.over(np.full(self._n_rows, 1.0 / factor))

    @property
    def _n_rows(self) -> int:
        parts = [self.offset, self.table, *(codes for _, codes in self.coded)]
        return next(len(part) for part in parts if part is not None)

    @staticmethod
    def joined(blocks: Sequence[Blocks]) -> Blocks:
        """The numbers of a sum of predictors."""
        if len(blocks) == 1:
            return blocks[0]
        offsets = [b.offset for b in blocks if b.offset is not None]
        tables = [np.asarray(b.table, dtype=np.float64) for b in blocks if b.table is not None]
        return Blocks(np.sum(offsets, axis=0) if offsets else None, np.column_stack(tables) if tables else None,
                      np.concatenate([b.columns for b in blocks]), [part for b in blocks for part in b.coded])

    def moved(self, offset: Array) -> Blocks:
        """The same with more in the offset."""
        return self._replace(offset=np.array(offset) if self.offset is None else self.offset + offset)

    def taken(self, rows: NDArray[np.intp]) -> Blocks:
        """The numbers of some rows, in their order."""
        return Blocks(None if self.offset is None else self.offset[rows],
                      None if self.table is None else self.table[rows], self.columns,
                      [(None if w is None else w[rows], codes[rows]) for w, codes in self.coded])


@dataclass
class _Walk:
    """A walk up the graph of terms; `parameters` and `rows` are the variables that make a node depend on either.

    What depends on an outcome is no part of a linear predictor.
    """

    parameters: set[Any]
    rows: set[Any]
    outcomes: set[Any]

    def __post_init__(self) -> None:
        self._known: dict[Any, tuple[bool, bool]] = {}
        self._linear: dict[Any, list[Part] | None] = {}

    def on(self, v: Any) -> tuple[bool, bool]:
        """Whether a node depends on parameters, and on rows."""
        if v not in self._known:
            if v in self.parameters:
                self._known[v] = (True, False)
            elif v in self.rows:
                self._known[v] = (False, True)
            elif v.owner is None:
                self._known[v] = (False, False)
            else:
                each = [self.on(i) for i in v.owner.inputs]
                self._known[v] = (any(e[0] for e in each), any(e[1] for e in each))
        return self._known[v]

    # Linear predictors.

    def linear(self, v: Any) -> list[Part] | None:
        """The summands of a node, or None."""
        if v not in self._linear:
            self._linear[v] = self._summands(v)
        return self._linear[v]

    def _summands(self, v: Any) -> list[Part] | None:
        seen, rowed = self.on(v)
        if not seen:
            return [Part(v, None, None)] if self.outcomes.isdisjoint(ancestors([v])) else None
        if not rowed:
            return [Part(None, None, _scalar(v).reshape((1,)))] if _is_scalar(v) else None
        op, inputs = v.owner.op, v.owner.inputs
        if isinstance(op, Elemwise):
            return self._elementwise(op.scalar_op, inputs)
        if isinstance(op, SpecifyShape):
            return self.linear(inputs[0])
        if isinstance(op, Alloc):
            return self.linear(inputs[0]) if not any(any(self.on(i)) and self.on(i)[0] for i in inputs[1:]) else None
        if isinstance(op, DimShuffle):
            return self._squeezed(v)
        if _is_dot(op):
            return self._product(*inputs)
        if isinstance(op, Sum) and v.ndim == 1 and inputs[0].ndim == 2 and op.axis in ((1,), (-1,)):
            return self._by_columns(inputs[0])
        source = self._gathered(v)
        return None if source is None or v.ndim != 1 else self._chosen(v, source)

    def _chosen(self, v: Any, source: Any) -> list[Part]:
        """What codes choose: a mean that all effects have in common is a summand of its own."""
        op = getattr(source.owner, "op", None)
        if not (isinstance(op, Elemwise) and isinstance(op.scalar_op, Add)):    # a Sum adds too
            return [Part(None, _codes(v, source), source.ravel())]
        return [Part(None, None, _scalar(u).reshape((1,))) if _is_scalar(u) else
                Part(None, _codes(v, source, u), u.ravel()) for u in source.owner.inputs]

    def _elementwise(self, op: Any, inputs: list[Any]) -> list[Part] | None:
        if isinstance(op, Cast | Identity):
            return self.linear(inputs[0])
        if isinstance(op, Add | Sub | Neg):
            parts = [self.linear(i) for i in inputs]
            if any(p is None for p in parts):
                return None
            minus = [isinstance(op, Neg) or (isinstance(op, Sub) and j == 1) for j in range(len(inputs))]
            return [_times(part, -1.0 if less else None, None) for ps, less in zip(parts, minus, strict=True)
                    for part in ps or []]
        if isinstance(op, Mul):
            return self._scaled(inputs, [])
        if isinstance(op, TrueDiv):
            return self._scaled(inputs[:1], inputs[1:])
        return None

    def _scaled(self, above: list[Any], below: list[Any]) -> list[Part] | None:
        """A product of at most one predictor with numbers of rows and with scalars of the parameters."""
        weight: Any = None
        scale: Any = None
        whole: list[Any] = []
        for v, under in [*((a, False) for a in above), *((b, True) for b in below)]:
            seen, rowed = self.on(v)
            if not seen:
                weight = _joined(weight, 1.0 / v if under else v)
            elif not rowed and _is_scalar(v):
                scale = _joined(scale, 1.0 / _scalar(v) if under else _scalar(v))
            elif under:
                return None
            else:
                whole.append(v)
        if not whole:
            free = weight is None or self.outcomes.isdisjoint(ancestors([weight]))
            return [Part(weight, None, scale.reshape((1,)))] if free else None
        parts = self.linear(whole[0]) if len(whole) == 1 else None
        return None if parts is None else [_times(p, weight, scale) for p in parts]

    def _squeezed(self, v: Any) -> list[Part] | None:
        """A column as a vector: what a product of a matrix and a vector becomes."""
        inner = v.owner.inputs[0]
        if v.ndim == 1 and inner.ndim == 2 and v.owner.op.new_order == (0,) and inner.owner is not None:
            if _is_dot(inner.owner.op):
                table, column = inner.owner.inputs
                return self._product(table, column[:, 0])
            return None
        return self.linear(inner) if v.ndim == inner.ndim else None

    def _product(self, table: Any, vector: Any) -> list[Part] | None:
        if self.on(table)[0] or self.on(vector)[1] or table.ndim != 2 or vector.ndim != 1:
            return None
        return [Part(table, None, _plain(vector))]

    def _by_columns(self, v: Any) -> list[Part] | None:
        """Sum over columns of numbers of rows times effects."""
        op = v.owner.op if v.owner is not None else None
        inputs = v.owner.inputs if isinstance(op, Elemwise) and isinstance(op.scalar_op, Mul) else [v]
        weight: Any = None
        scale: Any = None
        whole: list[Any] = []
        for u in inputs:
            seen, rowed = self.on(u)
            if not seen:
                weight = _joined(weight, u)
            elif not rowed and _is_scalar(u):
                scale = _joined(scale, _scalar(u))
            else:
                whole.append(u)
        if len(whole) != 1:
            return None
        effects = whole[0]
        if not self.on(effects)[1]:  # one row of them, the same for all
            if weight is None or weight.ndim != 2 or weight.broadcastable[1]:
                return None
            return [_times(Part(weight, None, _plain(effects[0])), None, scale)]
        source = self._gathered(effects)
        return None if source is None else [_times(Part(weight, _codes(effects, source), source.ravel()), None, scale)]

    def _gathered(self, v: Any) -> Any:
        """The parameters that a node only rearranges, by the rows; None if it does anything else."""
        seen, rowed = self.on(v)
        if seen and not rowed:
            return v
        if v.owner is None or not isinstance(
            v.owner.op, AdvancedSubtensor | AdvancedSubtensor1 | Subtensor | DimShuffle | Reshape | SpecifyShape
        ):
            return None
        if any(self.on(i)[0] for i in v.owner.inputs[1:]):
            return None
        return self._gathered(v.owner.inputs[0])

    # Leaves.

    def leaves(self, terms: list[Any]) -> tuple[list[Any], list[Any]]:
        """Linear predictors and scalars of which the terms are functions, row by row.

        A positive scalar times numbers of the rows, such as sigma * k, is no predictor beside others.
        """
        predictors, scalars = self._leaves(terms, set())
        spreads = {v for v in predictors if self._is_spread(v)}
        if spreads and len(spreads) < len(predictors):
            predictors, scalars = self._leaves(terms, spreads)
        if not len(predictors) <= _MOST_PREDICTORS or len(scalars) > _MOST_SCALARS or not (predictors or scalars):
            raise Unseen(f"there are {len(predictors)} of these and {counted(len(scalars), 'scalar')}; at most "
                         f"{_MOST_PREDICTORS} and {_MOST_SCALARS} are possible")
        return predictors, scalars

    def _is_spread(self, v: Any) -> bool:
        """Whether a linear predictor is numbers of the rows times a function, by an exponential, of one scalar."""
        parts = self.linear(v) or []
        if len(parts) != 1 or parts[0].coefficients is None or parts[0].codes is not None:
            return False
        above = list(ancestors([parts[0].coefficients]))
        own = self.parameters.intersection(above)
        exps = any(isinstance(getattr(getattr(u.owner, "op", None), "scalar_op", None), Exp) for u in above)
        return exps and _is_scalar(parts[0].coefficients) and len(own) == 1 and next(iter(own)).ndim == 0

    def _leaves(self, terms: list[Any], spreads: set[Any]) -> tuple[list[Any], list[Any]]:
        predictors: list[Any] = []
        scalars: list[Any] = []
        visited: set[Any] = set()
        stack = list(terms)
        while stack:
            v = stack.pop()
            seen, rowed = self.on(v)
            if v in visited or not seen:
                continue
            visited.add(v)
            if not rowed:
                stack.extend(self._above(v, scalars))
                continue
            inputs = v.owner.inputs
            shallow = isinstance(v.owner.op, Elemwise | Alloc | SpecifyShape) or _is_check(v.owner.op)
            if v.ndim == 1 and v not in spreads and not (shallow and self._passes(v)) and self.linear(v) is not None:
                _add(predictors, v)
                continue
            if not shallow:
                raise Unseen(f"each row sees several numbers that depend on parameters, which "
                             f"{type(v.owner.op).__name__} brings together")
            stack.extend(inputs[:1] if _is_check(v.owner.op) else inputs)
        return predictors, scalars

    def _passes(self, v: Any) -> bool:
        """Whether the only thing here that depends on parameters is a predictor, to be found further up."""
        free = {i for i in v.owner.inputs if self.on(i)[0]}
        adds = isinstance(getattr(v.owner.op, "scalar_op", None), Add | Sub)
        return len(free) == 1 and self.on(next(iter(free)))[1] and not (adds and len(v.owner.inputs) > 1)

    def _above(self, v: Any, scalars: list[Any]) -> list[Any]:
        """Note a scalar of the parameters, or give what it is made of.

        The logarithm of a scale is noted in place of the scale.
        """
        if not _is_scalar(v):
            raise Unseen("parameters that rows do not choose from")
        own = self.parameters.intersection(ancestors([v]))
        if all(p.ndim == 0 for p in own):
            for p in own:
                _add(scalars, p)
            return []
        if v.owner is not None and isinstance(v.owner.op, Elemwise | DimShuffle):
            return list(v.owner.inputs)
        _add(scalars, v)
        return []


def _add(some: list[Any], v: Any) -> None:
    if v not in some:
        some.append(v)


def _is_scalar(v: Any) -> bool:
    return all(v.broadcastable)


def _scalar(v: Any) -> Any:
    """A scalar without the axes that broadcasting gave it."""
    while v.owner is not None and isinstance(v.owner.op, DimShuffle) and v.ndim > v.owner.inputs[0].ndim:
        v = v.owner.inputs[0]
    return v.squeeze() if v.ndim else v


def _rearranges(v: Any) -> bool:
    """Whether a node takes entries of its first ancestor as they are."""
    while v.owner is not None:
        if not isinstance(v.owner.op, AdvancedSubtensor | AdvancedSubtensor1 | Subtensor | DimShuffle | Reshape):
            return False
        v = v.owner.inputs[0]
    return True


def root(v: Any) -> Any:
    """The first ancestor, which a rearrangement takes its entries from."""
    while v.owner is not None:
        v = v.owner.inputs[0]
    return v


def _plain(v: Any) -> Any:
    """A vector without the axes that it was given and that were taken again."""
    while v.owner is not None and isinstance(v.owner.op, Subtensor | DimShuffle):
        inner = v.owner.inputs[0]
        if isinstance(v.owner.op, Subtensor) and inner.owner is not None and isinstance(inner.owner.op, DimShuffle) \
                and inner.owner.inputs[0].ndim == 1 and v.ndim == 1:
            v = inner.owner.inputs[0]
            continue
        break
    return v


def _is_dot(op: Any) -> bool:
    return isinstance(op, Dot) or isinstance(getattr(op, "core_op", None), Dot)


def _is_check(op: Any) -> bool:
    return type(op).__name__ == "CheckParameterValue"


def _joined(a: Any, b: Any) -> Any:
    return b if a is None else a * b


def _times(part: Part, weight: Any, scale: Any) -> Part:
    """A summand times a number of each row, and times a scalar of the parameters."""
    weights, coefficients = part.weights, part.coefficients
    if weight is not None:
        if weights is not None and weights.ndim == 2 and getattr(weight, "ndim", 0) == 1 and not all(
            weight.broadcastable
        ):
            weight = weight[:, None]
        weights = pt.as_tensor(weight) if weights is None else weights * weight
    if scale is not None:
        if coefficients is None:
            return Part(None, None, None)._replace(weights=weights, coefficients=scale.reshape((1,)))
        coefficients = coefficients * scale
    return Part(weights, part.codes, coefficients)


def _codes(v: Any, source: Any, summand: Any = None) -> Any:
    """Which entry of the raveled source each entry of a rearrangement is; or of a summand, which is spread over it."""
    u = source if summand is None else summand
    numbers = pt.arange(u.size).reshape(u.shape)
    if summand is not None:
        numbers = pt.broadcast_to(numbers, source.shape)
    return graph_replace([v], {source: numbers.astype(source.dtype)}, strict=False)[0].astype("int64")


def evaluated(v: Any, start: dict[Any, Any] | None = None) -> NDArray[Any]:
    """What a node is that depends on no parameter, or on the shapes alone of those that `start` has."""
    if isinstance(v, SharedVariable):
        return np.asarray(v.get_value(borrow=True))
    if start:
        constants = {value: pt.as_tensor(np.asarray(x, dtype=value.dtype)) for value, x in start.items()}
        v = graph_replace([v], constants, strict=False)[0]
    return np.asarray(v.eval(mode="FAST_COMPILE"))


def names_of(nodes: Sequence[Any], starts: dict[Any, Any], model: Any) -> tuple[str, ...]:
    """What each entry of some nodes is called, all different.

    Entries of variables have their names, and functions of several are "f(tau, z)[0]", by the names of these.
    """
    out: list[str] = []
    for node in nodes:
        size = int(evaluated(node.size, starts))
        if _rearranges(node) and root(node) in starts:
            own = root(node)
            shape = np.shape(starts[own])
            numbers = pt.arange(math.prod(shape)).reshape(shape).astype(own.dtype)
            places = np.ravel(evaluated(graph_replace([node], {own: numbers}, strict=False)[0] if node is not own
                                        else numbers)).astype(int)
            out += [entry_name(own.name, np.unravel_index(k, shape)) for k in places]
            continue
        known = node.name is not None and node.name in model.named_vars
        behind = sorted(getattr(model.values_to_rvs.get(v), "name", v.name)
                        for v in set(ancestors([node])).intersection(starts))
        name = node.name if known else f"f({', '.join(behind)})"
        out += [name] if size == 1 else [f"{name}[{k}]" for k in range(size)]
    counts: dict[str, int] = {}
    for k, name in enumerate(out):
        counts[name] = counts.get(name, 0) + 1
        out[k] = name if counts[name] == 1 else f"{name} #{counts[name]}"
    return tuple(out)


def _spread(numbers: NDArray[Any], n: int, width: int) -> NDArray[Any]:
    """Numbers of the rows as a table of that many rows and columns."""
    return np.broadcast_to(numbers.reshape((-1, 1)) if numbers.ndim < 2 else numbers, (n, width))


class Predictors:
    """The terms as a function of linear predictors and scalars, and these as a function of the parameters.

    Parameters
    ----------
    terms : list of variables
        One vector for each observed variable, with one entry for each row.
    values : list of value variables
        What the parameters are.
    containers, outcomes : list of variables
        Those with one entry for each row, and the values of observed variables.
    n_rows : int

    Attributes
    ----------
    leaves, scalars : list of variables
        Linear predictors, vectors with an entry for each row, and scalars of the parameters.
    seen : list of variables
        Coefficients and scalars, raveled: joined they are what the rows see.
    rearranged : bool
        Whether these are parameters as they are, so that they are linear in them.

    Raises
    ------
    Unseen
        If the terms are no such function.
    """

    def __init__(
        self, terms: list[Any], values: list[Any], containers: list[Any], outcomes: list[Any], n_rows: int
    ) -> None:
        walk = _Walk(set(values), set(containers), set(outcomes))
        self.leaves, self.scalars = walk.leaves(terms)
        self.parts = [walk.linear(leaf) or [] for leaf in self.leaves]
        coefficients: list[Any] = []
        for part in (p for parts in self.parts for p in parts if p.coefficients is not None):
            _add(coefficients, part.coefficients)
        self.coefficients = coefficients
        self.seen = [*(c.ravel() for c in coefficients), *(s.reshape((1,)) for s in self.scalars)]
        self.rearranged = all(_rearranges(v) for v in self.seen)
        self.n_rows = n_rows


    @staticmethod
    def rearranges(v: Any) -> bool:
        """Whether coefficients are entries of one parameter as they are."""
        return _rearranges(v)


class Design:
    """The numbers of the linear predictors of all rows.

    Parameters
    ----------
    predictors : Predictors
    start : dict
        Values of the value variables, for their shapes.

    Attributes
    ----------
    n_coefficients : int
    sizes : list of int
        Of the arrays that make up the coefficients.
    blocks : list of Blocks
        One for each linear predictor.
    """

    def __init__(self, predictors: Predictors, start: dict[Any, Any]) -> None:
        self._start = start
        sizes = [int(evaluated(c.size, start)) for c in predictors.coefficients]
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(int)
        self.n_coefficients, self.sizes = int(starts[-1]), sizes
        self.n_rows = predictors.n_rows
        where = {c: (int(starts[j]), sizes[j]) for j, c in enumerate(predictors.coefficients)}
        self.blocks = [self._blocks(parts, where) for parts in predictors.parts]

    def _blocks(self, parts: list[Part], where: dict[Any, tuple[int, int]]) -> Blocks:
        n, offset = self.n_rows, None
        tables: list[NDArray[Any]] = []
        columns: list[NDArray[np.intp]] = []
        coded: list[tuple[Array | None, NDArray[np.int32]]] = []
        for part in parts:
            weights = None if part.weights is None else evaluated(part.weights)
            if part.coefficients is None:
                offset = (0.0 if offset is None else offset) + (np.zeros(n) if weights is None else weights)
                continue
            start, size = where[part.coefficients]
            if part.codes is None:
                tables.append(_spread(np.ones(n) if weights is None else weights, n, size))
                columns.append(start + np.arange(size))
                continue
            codes = evaluated(part.codes, self._start)
            width = 1 if codes.ndim == 1 else codes.shape[1]
            codes = _spread(codes, n, width)
            for j in range(width):
                own = None if weights is None else np.asarray(_spread(weights, n, width)[:, j], dtype=np.float64)
                coded.append((own, (start + codes[:, j]).astype(np.int32)))
        table = None if not tables else tables[0] if len(tables) == 1 else np.column_stack(tables)
        if offset is not None:
            offset = np.ascontiguousarray(offset, dtype=np.float64)
        return Blocks(offset, table, np.concatenate([*columns, np.empty(0, np.intp)]).astype(np.intp), coded)

    def predictors(self, psi: Array, rows: Any) -> list[Array]:
        """Linear predictors of some rows, a slice or their numbers."""
        out = []
        for block in self.blocks:
            eta: Any = 0.0 if block.offset is None else block.offset[rows]
            if block.table is not None:
                eta = eta + np.asarray(block.table[rows], dtype=np.float64) @ psi[block.columns]
            for weights, codes in block.coded:
                effect = psi[codes[rows]]
                eta = eta + (effect if weights is None else weights[rows] * effect)
            out.append(np.ascontiguousarray(eta, dtype=np.float64))
        return out

    def back(self, j: int, rows: Any, values: Array) -> Array:
        """Sum over rows of values times what predictor j multiplies the coefficients by."""
        block, out = self.blocks[j], np.zeros(self.n_coefficients)
        if block.table is not None:
            np.add.at(out, block.columns, values @ np.asarray(block.table[rows], dtype=np.float64))
        for weights, codes in block.coded:
            moved = values if weights is None else weights[rows] * values
            out += np.bincount(codes[rows], moved, minlength=self.n_coefficients)
        return out

    def squares(self, j: int, k: int, rows: Any, values: Array) -> Array:
        """The same of the products of what predictors j and k multiply the coefficients by, a matrix."""
        first, second = (self._sparse(i, rows, len(values)) for i in (j, k))
        size = self.n_coefficients
        out = np.zeros((size, size))
        a, b = self._dense(j, rows), self._dense(k, rows)
        ja, jb = self.blocks[j].columns, self.blocks[k].columns
        if a is not None and b is not None:
            np.add.at(out, np.ix_(ja, jb), a.T @ (values[:, None] * b))
        if a is not None and second is not None:
            out[ja] += (second.T @ (values[:, None] * a)).T
        if b is not None and first is not None:
            out[:, jb] += first.T @ (values[:, None] * b)
        if first is not None and second is not None:
            out += (first.T @ second.multiply(values[:, None]).tocsr()).toarray()
        return out

    def _dense(self, j: int, rows: Any) -> Array | None:
        table = self.blocks[j].table
        return None if table is None else np.asarray(table[rows], dtype=np.float64)

    def _sparse(self, j: int, rows: Any, n: int) -> Any:
        """What is coded, as a sparse matrix."""
        coded = self.blocks[j].coded
        if not coded:
            return None
        data = np.column_stack([np.ones(n) if w is None else w[rows] for w, _ in coded])
        codes = np.column_stack([c[rows] for _, c in coded])
        shape = n, self.n_coefficients
        return csr_matrix((data.ravel(), codes.ravel(), np.arange(n + 1) * len(coded)), shape=shape)
