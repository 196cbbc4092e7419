"""Bounds on third derivatives of terms written in JAX, row by row, by interval arithmetic on their expression."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrace._base import _checks
from fastrace.mcmc.models import _jets
from fastrace.mcmc.models._jets import Jet

__all__ = ["NEAR", "RADIUS", "WORTH", "NotBoundedError", "RowBounds", "weights_of"]

Array = NDArray[np.float64]

_CELLS = {1: (4, 16), 2: (2, 3, 4, 8), 3: (1, 2, 3, 5)}  # of each axis of the box, by the number of axes: all to try
_COARSE = 1.5  # times the sum of bounds by the finest cells, that of coarser ones which are taken for speed
_TRIED = 256  # rows on which they are tried
_CHUNK = 1 << 21  # numbers of linear parts at a time
_RANK = 1e-18  # of squared lengths: what is smaller beside the longest is rounding
_SLACK = 1.0 + 1e-9
NEAR, RADIUS = 2.0, 5.0  # beyond sqrt(dim) standard deviations: where the smaller bounds hold, and the larger
WORTH = 0.6  # share of the larger bounds' sum that the smaller ones' must stay below to be kept
_MOVES = ("broadcast_in_dim", "copy", "copy_p", "expand_dims", "gather", "reshape", "rev", "slice", "squeeze",
          "transpose", "reduce_sum", "convert_element_type", "dynamic_slice", "cumsum", "concatenate",
          "select_n", "stack")
_INSIDE = ("jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "remat", "checkpoint",
           "custom_vjp_call_jaxpr")
_COMPARED = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}


class NotBoundedError(ValueError):
    """The terms hold what no bound is known for; the message says what."""


@dataclass
class _Known:
    """A number of each row, or of all, that does not depend on the parameters; `batched` if each row has its own."""

    value: Any
    batched: bool
    unknown: Any = None  # of a comparison, where it is not decided


@dataclass
class _Linear:
    """A linear function of the whitened parameters: its middle value, and slopes in an axis before all others."""

    middle: _Known
    slopes: _Known
    leaf: int = -1


class RowBounds:
    """Terms ``terms(theta, rows)`` in JAX.

    Each row's term must be a function of at most three linear combinations of the parameters, its own. Which, is read
    from the expression: gathers, sums, products with data. What follows is evaluated in intervals.
    """

    def __init__(self, terms: Callable[..., Any], dim: int) -> None:
        import jax

        with jax.enable_x64(True):
            closed = jax.make_jaxpr(terms)(np.zeros(dim), np.zeros(1, dtype=np.int64))
        self._jaxpr, self._consts, self._x64 = closed.jaxpr, closed.consts, jax.enable_x64
        self._dim = dim

    def within(self, hat: Array, factor: Array, radius: float, n_rows: int) -> Array:
        """Bounds for rows 0 to n_rows - 1 at whitened distances up to `radius`, along whitened unit directions.

        Infinite where none is found.
        """
        at_once = int(max(64, min(1024, _CHUNK // self._dim)))
        out = np.empty(n_rows)
        with self._x64(True), np.errstate(all="ignore"):
            level = self._coarsest(hat, factor, radius, n_rows)
            for first in range(0, n_rows, at_once):
                rows = np.arange(first, min(first + at_once, n_rows))
                out[rows] = self._some(hat, factor, radius, rows, level)
        return out * _SLACK

    def _coarsest(self, hat: Array, factor: Array, radius: float, n_rows: int) -> int:
        """Which of the sizes of cells will do: bounds of some rows by the larger ones, and by the smallest."""
        rows = np.linspace(0, n_rows - 1, min(n_rows, _TRIED)).astype(np.int64)
        finest = max(map(len, _CELLS.values())) - 1
        most = _COARSE * float(self._some(hat, factor, radius, rows, finest).sum())
        for level in range(finest):
            if self._some(hat, factor, radius, rows, level).sum() <= most < math.inf:
                return level
        return finest

    def _some(self, hat: Array, factor: Array, radius: float, rows: NDArray[np.int64], level: int) -> Array:
        theta = _Linear(_Known(hat, False), _Known(np.ascontiguousarray(factor.T), False))
        walk, given = _Walk(len(rows)), [theta, _Known(rows[:, None], True)]
        result = walk.run(self._jaxpr, self._consts, given)
        if isinstance(result, _Known | _Linear):
            return np.zeros(len(rows))
        if not walk.leaves:
            raise NotBoundedError("no part of the terms is linear in the parameters")
        slopes, sizes = _stacked(walk.leaves, len(rows))
        axes = _axes(slopes)
        coordinates = np.einsum("kld,kmd->klm", slopes, axes)
        lengths = np.linalg.norm(slopes, axis=2)
        out = np.zeros(len(rows))
        for middle, half in _cells(axes.shape[1], radius, level):
            jet = walk.run(self._jaxpr, self._consts, given, _Box(coordinates, lengths, middle, half, radius, sizes))
            if isinstance(jet, Jet):
                third = np.broadcast_to(jet.third(), (len(rows), *jet.shape)).reshape(len(rows), -1)[:, 0]
                out = np.maximum(out, np.where(np.isnan(third), np.inf, third))
        return out


def weights_of(terms: Callable[..., Any], hat: Array, factor: Array, n_rows: int) -> tuple[Any, ...]:
    """Bounds for all rows, how far they hold, and a smaller ball with its own where these are worth it.

    Terms are ``terms(theta, rows)`` in JAX. Raises ValueError where no bound is found.
    """
    dim = len(hat)
    bounds = RowBounds(terms, dim)
    inner, outer = (math.sqrt(dim) + beyond for beyond in (NEAR, RADIUS))
    weights = bounds.within(hat, factor, outer, n_rows)
    if not np.isfinite(weights).all():
        row = int(np.argmin(np.isfinite(weights)))
        raise NotBoundedError(f"third_derivatives is 'auto', and no bound was found for the term of row {row} within "
                              f"{outer:.3g} standard deviations of {_checks.shown(hat)}: a kink, a branch, a logarithm "
                              f"or a division by 0 may lie there. Leave third_derivatives out and take a race, or give "
                              f"bounds as numbers to a FunctionModel")
    smaller = np.minimum(bounds.within(hat, factor, inner, n_rows), weights)
    return weights, outer, *(((inner, smaller),) if math.fsum(smaller) <= WORTH * math.fsum(weights) else ())


def _stacked(leaves: list[_Linear], n: int) -> tuple[Array, list[tuple[int, ...]]]:
    """Slopes of all entries of the leaves, shape (rows, entries, dim), and the shape of each leaf."""
    parts, shapes = [], []
    for leaf in leaves:
        slopes = np.asarray(leaf.slopes.value)
        slopes = slopes if leaf.slopes.batched else slopes[None]
        shapes.append(slopes.shape[2:])
        flat = slopes.reshape(*slopes.shape[:2], -1).transpose(0, 2, 1)
        parts.append(np.broadcast_to(flat, (n, *flat.shape[1:])))
    return np.concatenate(parts, axis=1), shapes


def _axes(slopes: Array) -> Array:
    """Orthonormal directions of each row that span its slopes, shape (rows, at most 3, dim)."""
    values, vectors = np.linalg.eigh(np.einsum("kld,kmd->klm", slopes, slopes))
    longest = values[:, -1:]
    rank = int((values > _RANK * longest).sum(axis=1).max())
    if rank > 3:
        raise NotBoundedError(f"the term of a row depends on {rank} linear combinations of the parameters in ways that "
                              f"are not linear, and bounds are found for at most 3")
    kept, rank = vectors[:, :, ::-1][:, :, :max(rank, 1)], max(rank, 1)
    along = np.einsum("klm,kld->kmd", kept, slopes)
    sizes = np.linalg.norm(along, axis=2, keepdims=True)
    axes = np.divide(along, sizes, out=np.zeros_like(along), where=sizes > math.sqrt(_RANK) * sizes[:, :1])
    return np.asarray(axes)


def _cells(count: int, radius: float, level: int) -> Iterator[tuple[Array, float]]:
    """Middles and half widths of boxes that cover the ball; smaller ones at a higher level."""
    n = _CELLS[count][min(level, len(_CELLS[count]) - 1)]
    half = radius / n
    ticks = -radius + half * (2.0 * np.arange(n) + 1.0)
    for middle in product(ticks, repeat=count):
        at = np.array(middle)
        if np.linalg.norm(np.maximum(np.abs(at) - half, 0.0)) <= radius:
            yield at, half


@dataclass
class _Box:
    """Where the leaves are expanded: `coordinates` of their slopes along the axes, shape (rows, entries, axes)."""

    coordinates: Array
    lengths: Array
    middle: Array
    half: float
    radius: float
    shapes: list[tuple[int, ...]]

    def jet(self, leaf: int, value: Array) -> Jet:
        """Of a leaf with this value at the center of the ball, shape (rows, *entries)."""
        first = sum(math.prod(shape) for shape in self.shapes[:leaf])
        shape = self.shapes[leaf]
        part = slice(first, first + math.prod(shape))
        own, n = self.coordinates[:, part], len(self.coordinates)
        step, spread = own @ self.middle, self.half * np.abs(own).sum(axis=2) + 1e-12 * self.lengths[:, part]
        most = self.radius * self.lengths[:, part]
        low, high = np.maximum(step - spread, -most), np.minimum(step + spread, most)
        listed = _jets.indices(len(self.middle))
        parts = [np.zeros((n, *shape)) for _ in listed]
        for k, index in enumerate(listed):
            if sum(index) == 1:
                parts[k] = own[:, :, index.index(1)].reshape(n, *shape)
        whole = np.broadcast_to(value, (n, *shape))
        lows, highs = [p.copy() for p in parts], [p.copy() for p in parts]
        lows[0], highs[0] = whole + low.reshape(n, *shape), whole + high.reshape(n, *shape)
        return Jet(np.stack(lows), np.stack(highs), len(self.middle))


class _Opaque:
    """What is not linear, in the walk that looks for linear parts."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape


class _Walk:
    """Walks along an expression: the first, without a box, collects leaves, linear parts that enter what is not linear.

    What is known or linear is kept for the next.
    """

    def __init__(self, n: int) -> None:
        self.n = n
        self.box: _Box | None = None
        self.leaves: list[_Linear] = []
        self._kept: dict[tuple[int, ...], list[Any]] = {}  # what is known or linear, by the place of the step
        self._place: list[int] = []

    def run(self, jaxpr: Any, consts: Any, args: list[Any], box: _Box | None = None) -> Any:
        self.box = box
        found = self._run(jaxpr, [_Known(c, False) for c in consts], args)
        if len(found) != 1:
            raise NotBoundedError("terms must return one array")
        return found[0]

    def _run(self, jaxpr: Any, consts: list[Any], args: list[Any]) -> list[Any]:
        values: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
        values |= dict(zip(jaxpr.invars, args, strict=True))

        def read(v: Any) -> Any:
            return _Known(v.val, False) if hasattr(v, "val") else values[v]

        for place, eqn in enumerate(jaxpr.eqns):
            self._place.append(place)
            key = tuple(self._place)
            out = self._kept.get(key)
            if out is None:
                out = self._step(eqn, [read(v) for v in eqn.invars])
                if all(isinstance(v, _Linear) or (_is_known(v) and v.unknown is None) for v in out):
                    self._kept[key] = out
            self._place.pop()
            values |= dict(zip(eqn.outvars, out, strict=True))
        return [read(v) for v in jaxpr.outvars]

    def _step(self, eqn: Any, given: list[Any]) -> list[Any]:
        name = eqn.primitive.name
        if name in _INSIDE and not (_is_logaddexp(eqn) and not all(map(_is_known, given))):
            inner = next(eqn.params[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in eqn.params)
            closed = hasattr(inner, "consts")
            body = inner.jaxpr if closed else inner
            return self._run(body, [_Known(c, False) for c in inner.consts] if closed else [], given)
        decided = all(_is_known(v) and v.unknown is None for v in given)
        if decided:
            return _many(eqn, given)
        if name == "stop_gradient":
            return [self._frozen(given[0])]
        linear = None if any(isinstance(v, Jet | _Opaque) for v in given) else _linear(eqn, given)
        if linear is not None:
            return [linear]
        if all(map(_is_known, given)) and (name in ("and", "reduce_and") or (name in _MOVES and len(given) == 1)):
            return [_undecided(eqn, given)]
        if self.box is None:
            for v in given:
                self._leaf(v)
            self._check(eqn)
            shape = eqn.outvars[0].aval.shape
            if name in _COMPARED or name in ("eq", "ne", "is_finite"):
                return [_Known(np.zeros(shape, dtype=bool), False, np.ones(shape, dtype=bool))]
            return [_Opaque(shape)]
        return [self._evaluated(eqn, given)]

    def _leaf(self, v: Any) -> None:
        if isinstance(v, _Linear) and v.leaf < 0:
            v.leaf = len(self.leaves)
            self.leaves.append(v)

    def _check(self, eqn: Any) -> None:
        name = eqn.primitive.name
        if name not in (*_MOVES, *_jets.UNARY, *_COMPARED, "add", "add_any", "sub", "mul", "div", "max", "min", "pow",
                        "integer_pow", "dot_general", "reduce_max", "eq", "ne", "is_finite", "custom_jvp_call"):
            raise NotBoundedError(f"the terms use {name}, for which no bounds are known")
        if name == "pow" and not hasattr(eqn.invars[1], "val"):
            raise NotBoundedError("the terms use a power that is no number in the code; write exp(power * log(base))")

    def _frozen(self, v: Any) -> Any:
        """A number that derivatives by JAX take for constant."""
        if isinstance(v, _Opaque):
            return v
        if not isinstance(v, Jet):
            raise NotBoundedError("the terms use stop_gradient on parameters, whose derivatives are then not theirs")
        return Jet.constant(*v.at(0), v.count)

    def _jet(self, v: Any) -> Jet:
        if isinstance(v, Jet):
            return v
        assert self.box is not None
        count = len(self.box.middle)
        if isinstance(v, _Linear):
            return self.box.jet(v.leaf, self._rows(v.middle))
        value = self._rows(v)
        return Jet.constant(value, value, count)

    def _rows(self, v: _Known) -> Array:
        value = np.asarray(v.value, dtype=np.float64)
        return np.broadcast_to(value if v.batched else value[None], (self.n, *value.shape[v.batched:]))

    def _evaluated(self, eqn: Any, given: list[Any]) -> Any:
        name, params = eqn.primitive.name, eqn.params
        if name in ("eq", "ne", "is_finite", *_COMPARED):
            return self._compared(eqn, given)
        if name == "select_n" and given[0].unknown is not None:
            chosen = self._moved(eqn, [_Known(given[0].value, given[0].batched), *map(self._jet, given[1:])])
            unknown = np.asarray(given[0].unknown)
            unknown = unknown if given[0].batched else unknown[None]
            return chosen.where(np.broadcast_to(unknown, (self.n, *unknown.shape[1:])))
        if name in _MOVES:
            holds = [v if _is_known(v) and k in _fixed(name, len(given)) else self._jet(v) for k, v in enumerate(given)]
            return self._moved(eqn, holds)
        if name == "dot_general":
            return self._product(eqn, given)
        jets = [self._jet(v) for v in (given if name != "pow" else given[:1])]
        if name in _jets.UNARY:
            return _jets.UNARY[name](jets[0])
        if name == "custom_jvp_call":
            return _jets.logaddexp(*jets)
        if name in ("add", "add_any"):
            return jets[0] + jets[1]
        if name == "sub":
            return jets[0] + (-jets[1])
        if name == "mul":
            return jets[0] * (jets[0] if given[0] is given[1] else jets[1])
        if name == "div":
            return jets[0] * _jets.power(jets[1], -1.0)
        if name in ("max", "min"):
            return _jets.binary(name, *jets)
        if name == "reduce_max":
            return _largest(jets[0], params["axes"])
        return _jets.power(jets[0], float(params["y"] if name == "integer_pow" else np.asarray(given[1].value)))

    def _compared(self, eqn: Any, given: list[Any]) -> _Known:
        name, shape = eqn.primitive.name, eqn.outvars[0].aval.shape
        if name == "is_finite":
            return _Known(np.ones(shape, dtype=bool), False)
        if name in ("eq", "ne") and len({id(v) for v in given}) == 1:
            return _Known(np.full(shape, name == "eq"), False)
        a, b = (self._jet(v) for v in given)
        a, b = _jets._aligned(a, b)
        if name in ("eq", "ne"):
            apart = (a.low[0] > b.high[0]) | (b.low[0] > a.high[0])
            return _Known(np.full(apart.shape, name == "ne"), True, None if apart.all() else ~apart)
        test = _COMPARED[name]
        always, ever = (test(a.high[0], b.low[0]), test(a.low[0], b.high[0]))
        if name in ("gt", "ge"):
            always, ever = test(a.low[0], b.high[0]), test(a.high[0], b.low[0])
        return _Known(always, True, always != ever if (always != ever).any() else None)

    def _moved(self, eqn: Any, given: list[Any]) -> Jet:
        """What only moves entries or adds them, done to each coefficient."""
        count = next(v.count for v in given if isinstance(v, Jet))
        ends = []
        for end in ("low", "high"):
            args = [getattr(v, end) if isinstance(v, Jet) else np.asarray(v.value) for v in given]
            per_row = [1 if isinstance(v, Jet) else 0 if v.batched else None for v in given]
            inner = [0 if isinstance(v, Jet) else None for v in given]
            ends.append(np.moveaxis(np.asarray(_mapped(eqn, args, per_row, inner)), 1, 0))
        return Jet(ends[0], ends[1], count)

    def _product(self, eqn: Any, given: list[Any]) -> Jet:
        """Of an array of jets and a known one."""
        known = [k for k, v in enumerate(given) if _is_known(v)]
        if len(known) != 1:
            raise NotBoundedError("the terms multiply two arrays of parameters by dot; write the product and the sum")
        (k,) = known
        jet, value = self._jet(given[1 - k]), given[k]
        numbers = np.asarray(value.value, dtype=np.float64)
        ends = []
        for a, b in ((jet.low, jet.high), (jet.high, jet.low)):
            total: Any = 0.0
            for part, held in ((np.maximum(numbers, 0.0), a), (np.minimum(numbers, 0.0), b)):
                args: list[Any] = [held, held]
                args[k] = part
                per_row: list[Any] = [1, 1]
                per_row[k] = 0 if value.batched else None
                inner: list[Any] = [0, 0]
                inner[k] = None
                total = total + np.moveaxis(np.asarray(_mapped(eqn, args, per_row, inner)), 1, 0)
            ends.append(total)
        return Jet(ends[0], ends[1], jet.count)


def _is_logaddexp(eqn: Any) -> bool:
    """Whether a step is jnp.logaddexp, whose own expression has kinks that cancel."""
    if eqn.primitive.name != "custom_jvp_call":
        return False
    inner = eqn.params["call_jaxpr"]
    named = getattr(getattr(inner, "jaxpr", inner), "debug_info", None)
    return "logaddexp" in (eqn.params.get("name"), getattr(named, "func_name", None))


def _largest(a: Jet, axes: Any) -> Jet:
    """The largest entry as a number; which it is, is not followed, so that only stop_gradient may use it."""
    over = tuple(axis + 1 for axis in axes)
    low, high = a.low[0].max(axis=over), a.high[0].max(axis=over)
    out = Jet.constant(low, high, a.count)
    out.low[1:], out.high[1:] = -np.inf, np.inf
    return out


def _is_known(v: Any) -> bool:
    return isinstance(v, _Known)


def _fixed(name: str, count: int) -> tuple[int, ...]:
    """Arguments of what moves entries that say where to, and are no entries."""
    return {"gather": (1,), "select_n": (0,), "dynamic_slice": tuple(range(1, count))}.get(name, ())


def _mapped(eqn: Any, args: list[Any], per_row: list[Any], inner: list[Any] | None = None) -> Any:
    import jax

    def bind(*held: Any) -> Any:
        return eqn.primitive.bind(*held, **eqn.params)

    function = bind if inner is None or all(axis is None for axis in inner) else jax.vmap(bind, inner)
    if inner is not None and all(axis is None for axis in per_row):
        return function(*args)
    return jax.vmap(function, per_row)(*args) if any(axis is not None for axis in per_row) else function(*args)


def _many(eqn: Any, given: list[_Known]) -> list[Any]:
    """Of known numbers."""
    batched = any(v.batched for v in given)
    out = _mapped(eqn, [v.value for v in given], [0 if v.batched else None for v in given])
    return [_Known(value, batched) for value in (out if eqn.primitive.multiple_results else [out])]


def _undecided(eqn: Any, given: list[_Known]) -> _Known:
    """Results of comparisons, moved or joined by "and", and where they are not decided: where one of them is not."""
    (value,) = _many(eqn, [_Known(v.value, v.batched) for v in given])
    sure = [np.ones_like(v.value, dtype=bool) if v.unknown is None else ~np.asarray(v.unknown) for v in given]
    (decided,) = _many(eqn, [_Known(s, v.batched) for s, v in zip(sure, given, strict=True)])
    return _Known(value.value, value.batched, ~np.asarray(decided.value))


def _linear(eqn: Any, given: list[Any]) -> _Linear | None:
    """The result where it is linear in the parameters, or None."""
    name = eqn.primitive.name
    places = [k for k, v in enumerate(given) if isinstance(v, _Linear)]
    if any(_is_known(v) and v.unknown is not None for v in given) or not places:
        return None
    if name in ("mul", "div", "dot_general"):
        if len(places) > 1 or (name == "div" and places == [1]):
            return None
        kept = [k for k in range(len(given)) if k not in places]
    elif name in ("add", "add_any", "sub", "neg", *_MOVES):
        if name == "convert_element_type" and np.dtype(eqn.params["new_dtype"]).kind != "f":
            return None
        kept = list(_fixed(name, len(given)))
        if any(k in places for k in kept):
            return None
    else:
        return None
    middles = [v.middle if isinstance(v, _Linear) else v for v in given]
    (middle,) = _many(eqn, middles)
    args: list[Any] = []
    per_row: list[Any] = []
    inner: list[Any] = []
    for k, v in enumerate(given):
        if isinstance(v, _Linear):
            args.append(v.slopes.value)
            per_row.append(0 if v.slopes.batched else None)
            inner.append(0)
        else:
            value = np.asarray(v.value)
            args.append(value if k in kept else np.zeros_like(value))
            per_row.append(0 if v.batched else None)
            inner.append(None)
    slopes = _mapped(eqn, args, per_row, inner)
    return _Linear(middle, _Known(slopes, any(axis is not None for axis in per_row)))
