"""Plain arrays in the graph of the rows' terms: those that run over rows, as shared containers; needs PyMC.

A walk goes from the terms up, and knows of each node which axis runs over rows. So an array that is as long as there
are rows, and that rows choose from, stays whole: it is met where no axis runs over rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors
from pytensor.sparse.type import SparseTensorType
from pytensor.tensor.basic import Alloc, Join
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.special import LogSoftmax, Softmax
from pytensor.tensor.subtensor import AdvancedSubtensor, AdvancedSubtensor1, Subtensor
from pytensor.tensor.type import TensorType
from pytensor.tensor.type_other import NoneTypeT, SliceType

__all__ = ["RowConstants", "refuse_partial"]


def _data(v: Any) -> NDArray[Any] | None:
    """The array that a leaf of a graph is; None for anything else."""
    if not isinstance(v.type, TensorType):
        return None
    if isinstance(v, Constant):
        return np.asarray(v.data)
    return np.asarray(v.get_value(borrow=True)) if isinstance(v, SharedVariable) else None


def refuse_partial(model: Any, observed: Any) -> None:
    """Refuse observed variables that are some draws of rows, or that have missing values."""
    value, name = model.rvs_to_values[observed], observed.name
    op = getattr(observed.owner, "op", None)
    random = any(u.owner is not None and isinstance(u.owner.op, RandomVariable) for u in ancestors([value]))
    if random or type(op).__name__ == "MinibatchRandomVariable":
        raise ValueError(f"the rows of {name!r} are a minibatch (pm.Minibatch, total_size): give it all rows as an "
                         f"array or pm.Data, without total_size; kernels choose themselves which rows they read")
    missing = f"{name.removesuffix('_observed')}_unobserved"
    if type(op).__name__ == "PartialObservedRV" or missing in {v.name for v in model.free_RVs}:
        raise ValueError(f"{name.removesuffix('_observed')!r} has missing values, for which PyMC draws a parameter "
                         f"each, {missing!r}: leave the rows with missing values out (a row whose outcome is unknown "
                         f"says nothing about the other parameters), or use pm.sample")
    if isinstance(value.type, SparseTensorType):
        raise ValueError(f"the observed values of {name!r} are a sparse array: give a dense one")


class RowConstants:
    """Containers for the plain arrays whose entries along an axis are those of the rows.

    A container shares the memory of its array. What is computed of arrays alone, by an operation that mixes rows, is
    computed once and kept.

    Parameters
    ----------
    n_rows : int
    data : sequence of variables
        The `pm.Data` of the model, which are left as they are.
    given : sequence of variables
        Those among them that run over rows.
    length : variable
        Of which the first axis is as long as there are rows: the observed values.

    Attributes
    ----------
    found : list of shared variables
        In the order in which they were met, with rows on the first axis.
    """

    def __init__(self, n_rows: int, data: Sequence[Any], given: Sequence[Any], length: Any) -> None:
        self.n_rows, self._length = n_rows, length
        self._data, self._given = set(data), set(given)
        self._made: dict[tuple[int, int], Any] = {}
        self._arrays: list[NDArray[Any]] = []  # whose numbers in memory are keys
        self._alone: dict[Any, bool] = {}
        self._equal: dict[int, bool] = {}
        self.found: list[Any] = []
        self._by_row: dict[tuple[Any, int], Any] = {}

    def by_row(self, term: Any) -> Any:
        """Terms of all rows with containers in place of arrays."""
        return self._rows(term, 0)

    def of(self, nodes: Sequence[Any]) -> set[Any]:
        """Containers of all rows' numbers that nodes with rows on the first axis are made of."""
        reach = set(ancestors([self._rows(v, 0) for v in nodes]))
        return reach.intersection([*self._given, *self.found])

    @property
    def met(self) -> set[Any]:
        """Nodes of which an axis was found to run over rows."""
        return {v for v, _ in self._by_row}

    def sees(self, v: Any) -> bool:
        """Whether a node has numbers of rows, other than by a summary of arrays alone, such as their mean."""
        visited, stack = set(), [v]
        while stack:
            u = stack.pop()
            if u in visited:
                continue
            visited.add(u)
            if u in self._given or u in self.found:
                return True
            if self.is_fixed(u) and self.n_rows not in (getattr(u.type, "shape", None) or ()):
                continue
            if u.owner is None:
                if isinstance(u, Constant) and self._is_rows(u):
                    return True
                continue
            stack.extend(u.owner.inputs)
        return False

    def _is_rows(self, v: Any) -> bool:
        array = _data(v)
        if array is None or self.n_rows not in array.shape:
            return False
        if id(v.data) not in self._equal:
            self._arrays.append(v.data)
            own = [c.get_value(borrow=True) for c in self.found]
            self._equal[id(v.data)] = any(np.array_equal(array, other) for other in own)
        return self._equal[id(v.data)]

    def is_fixed(self, v: Any) -> bool:
        """Whether nothing but plain arrays enters a node."""
        if v not in self._alone:
            if v.owner is None:
                self._alone[v] = isinstance(v, Constant) or (isinstance(v, SharedVariable) and v not in self._data
                                                             and isinstance(v.type, TensorType))
            else:
                self._alone[v] = not isinstance(v.owner.op, RandomVariable) and all(map(self.is_fixed, v.owner.inputs))
        return self._alone[v]

    # Containers.

    def _container(self, v: Any, array: NDArray[Any], axis: int) -> Any:
        """A node of the numbers of an array, with rows on `axis`."""
        key = id(v.data) if isinstance(v, Constant) else id(v), axis
        if key not in self._made:
            rows_first = np.moveaxis(array, axis, 0)
            made = pytensor.shared(rows_first, name=v.name or f"array of shape {array.shape}", borrow=True,
                                   shape=(None, *rows_first.shape[1:]))
            self._arrays.append(getattr(v, "data", v))
            self.found.append(made)
            self._made[key] = made
        return self._back(self._made[key], axis)

    @staticmethod
    def _back(container: Any, axis: int) -> Any:
        order = list(range(1, container.ndim))
        order.insert(axis, 0)
        return container.dimshuffle(*order) if axis else container

    @property
    def _count(self) -> Any:
        """How many rows there are, or are asked for."""
        return self._rows(self._length, 0).shape[0]

    # The walk.

    def _rows(self, v: Any, axis: int) -> Any:
        """A node whose `axis` runs over rows, with containers."""
        key = v, axis
        if key not in self._by_row:
            self._by_row[key] = self._walked(v, axis)
        return self._by_row[key]

    def _walked(self, v: Any, axis: int) -> Any:
        if isinstance(v.type, SparseTensorType) and v.type.shape[0] in (None, self.n_rows):
            raise ValueError(
                f"the rows see a sparse array of shape {v.type.shape}, of which PyTensor cannot compute some rows "
                f"alone: write codes of groups as index arrays, effects[codes], and other columns as a dense array; "
                f"mcmc.GLM takes a table of scipy.sparse as it is"
            )
        if v.owner is None:
            array = None if v in self._data else _data(v)
            whole = array is None or array.ndim <= axis or array.shape[axis] != self.n_rows
            return v if whole else self._container(v, array, axis)  # type: ignore[arg-type]
        if isinstance(v.owner.op, AdvancedSubtensor):
            chosen = self._chosen(v, axis)
            if chosen is not None:
                return chosen
        known = self._inputs(v, axis)
        if known is None:
            return self._evaluated(v, axis) if self.is_fixed(v) else self._everywhere(v)
        inputs = list(v.owner.inputs)
        new = [self._rows(u, known[j]) if j in known else u for j, u in enumerate(inputs)]
        op = v.owner.op
        if type(op).__name__ == "CheckParameterValue":
            new[1:] = [self._swapped(u) for u in inputs[1:]]
        if isinstance(op, Alloc):
            return self._spread(v, axis, new)
        if all(a is b for a, b in zip(inputs, new, strict=True)):
            return v
        if isinstance(op, SpecifyShape):
            return pt.specify_shape(new[0], [None if j == axis else u for j, u in enumerate(new[1:])])
        if isinstance(op, Reshape):
            return new[0].reshape((self._count, *(new[1][j] for j in range(1, v.ndim))), ndim=v.ndim)
        return op.make_node(*new).outputs[v.owner.outputs.index(v)]

    def _inputs(self, v: Any, axis: int) -> dict[int, int] | None:
        """Which inputs of a node run over rows by which of their axes, where one of its own does; None if unknown."""
        op, inputs = v.owner.op, v.owner.inputs
        if isinstance(op, Elemwise):
            return {j: axis for j, u in enumerate(inputs) if not u.broadcastable[axis]}
        if isinstance(op, DimShuffle):
            source = op.new_order[axis]
            return {} if source == "x" else {0: source}
        if isinstance(op, CAReduce):
            dropped = range(inputs[0].ndim) if op.axis is None else [a % inputs[0].ndim for a in op.axis]
            return {0: [a for a in range(inputs[0].ndim) if a not in dropped][axis]}
        if isinstance(op, Dot) or isinstance(getattr(op, "core_op", None), Dot):
            return self._of_product(v, axis)
        if isinstance(op, Blockwise):
            batch = v.ndim - len(op.outputs_sig[0])
            return {j: axis for j, u in enumerate(inputs) if not u.broadcastable[axis]} if axis < batch else None
        if isinstance(op, Alloc):
            own = axis - v.ndim + inputs[0].ndim
            return {0: own} if own >= 0 and not inputs[0].broadcastable[own] else {}
        if isinstance(op, SpecifyShape) or type(op).__name__ == "CheckParameterValue":
            return {0: axis}
        if isinstance(op, Reshape):
            return {0: 0} if axis == 0 and inputs[0].ndim and inputs[0].type.shape[0] == self.n_rows else None
        if isinstance(op, Join):
            joined = getattr(inputs[0], "data", None)
            along = joined is None or int(joined) % v.ndim == axis
            return None if along else dict.fromkeys(range(1, len(inputs)), axis)
        if isinstance(op, Softmax | LogSoftmax):
            return None if op.axis is None or op.axis % v.ndim == axis else {0: axis}
        if isinstance(op, AdvancedSubtensor1):
            return {1: 0} if axis == 0 else {0: axis}
        if isinstance(op, Subtensor):
            return self._of_slices(op.idx_list, axis)
        return None

    @staticmethod
    def _of_product(v: Any, axis: int) -> dict[int, int] | None:
        """Of a product of matrices or vectors, in a batch or not."""
        a, b = v.owner.inputs
        core = min(a.ndim, 2) - 1 + min(b.ndim, 2) - 1 if isinstance(v.owner.op, Dot) else 2
        if axis < v.ndim - core:
            return {j: axis for j, u in enumerate((a, b)) if not u.broadcastable[axis]}
        if a.ndim > 1 and axis == v.ndim - core:
            return {0: a.ndim - 2}
        return {1: b.ndim - 1}

    @staticmethod
    def _of_slices(entries: Sequence[Any], axis: int) -> dict[int, int] | None:
        """Of numbers and slices: the axis must be taken whole."""
        kept = [j for j, entry in enumerate(entries) if isinstance(entry, slice)]
        if axis >= len(kept):
            return {0: axis + len(entries) - len(kept)}
        entry = entries[kept[axis]]
        return {0: kept[axis]} if (entry.start, entry.stop, entry.step) == (None, None, None) else None

    def _chosen(self, v: Any, axis: int) -> Any:
        """Of index arrays beside slices; None if unknown."""
        source, *indices = v.owner.inputs
        if any(isinstance(u.type, NoneTypeT) or getattr(u, "dtype", "") == "bool" for u in indices):
            return None
        arrays = [j for j, u in enumerate(indices) if not isinstance(u.type, SliceType)]
        width = max(indices[j].ndim for j in arrays)
        together = arrays == list(range(arrays[0], arrays[-1] + 1))
        first = arrays[0] if together else 0  # axis of the result at which index arrays stand
        if not first <= axis < first + width:
            kept = [j for j in range(source.ndim) if j not in arrays]
            own = kept[axis if axis < first else axis - width]
            whole = own >= len(indices) or _is_whole(indices[own])
            return v.owner.op.make_node(self._rows(source, own), *indices).outputs[0] if whole else None
        new = list(indices)
        for j in arrays:
            own, index = axis - first - width + indices[j].ndim, indices[j]
            if own < 0 or index.broadcastable[own]:
                continue
            counted = self._counted(source, j, index)
            if counted is None:
                new[j] = self._rows(index, own)
            else:  # from each row of a table the entry that another index says
                source, new[j] = counted
        if source is v.owner.inputs[0] and all(a is b for a, b in zip(indices, new, strict=True)):
            return v
        return v.owner.op.make_node(source, *new).outputs[0]

    def _counted(self, source: Any, axis: int, index: Any) -> tuple[Any, Any] | None:
        """A table of the rows, and an index that is the numbers of all rows, of those asked for; None if it is not."""
        if source.type.shape[axis] not in (None, self.n_rows):
            return None
        if self.is_fixed(index):
            if index.ndim != 1 or not np.array_equal(self._value(index), np.arange(self.n_rows)):
                return None
            by_row = self._rows(source, axis)
            return None if by_row is source else (by_row, pt.arange(self._count))
        if source not in set(ancestors([index])):
            return None
        return self._rows(source, axis), self._swapped(index)

    @staticmethod
    def _value(v: Any) -> NDArray[Any]:
        array = _data(v)
        return np.asarray(v.eval(mode="FAST_COMPILE")) if array is None else array

    def _spread(self, v: Any, axis: int, new: list[Any]) -> Any:
        """An array of the rows that another one fills, as long as rows are asked for."""
        value, shape = new[0], list(v.owner.inputs[1:])
        if not self._given.isdisjoint(ancestors([shape[axis]])):
            return v if value is v.owner.inputs[0] else pt.alloc(value, *shape)
        shape[axis] = self._count
        return pt.alloc(value, *shape)

    def _evaluated(self, v: Any, axis: int) -> Any:
        """What is computed of arrays alone, as an array."""
        array = self._value(v)
        return self._container(v, array, axis) if array.shape[axis] == self.n_rows else v

    def _swapped(self, v: Any) -> Any:
        """A condition on what was met, such as that all means are positive, of the same rows."""
        for axis in range(getattr(v, "ndim", 0)):
            if (v, axis) in self._by_row:
                return self._by_row[v, axis]
        if v.owner is None or self.is_fixed(v):
            return v
        new = [self._swapped(u) for u in v.owner.inputs]
        if all(a is b for a, b in zip(v.owner.inputs, new, strict=True)):
            return v
        return v.owner.op.make_node(*new).outputs[v.owner.outputs.index(v)]

    def _everywhere(self, v: Any) -> Any:
        """Behind an operation of another kind each array that is as long as there are rows counts as theirs.

        Rows are compared with the model's own afterwards.
        """
        if v.owner is None:
            return self._rows(v, 0) if getattr(v, "ndim", 0) else v
        new = [self._everywhere(u) for u in v.owner.inputs]
        if all(a is b for a, b in zip(v.owner.inputs, new, strict=True)):
            return v
        return v.owner.op.make_node(*new).outputs[v.owner.outputs.index(v)]


def _is_whole(index: Any) -> bool:
    """Whether a slice takes all there is."""
    given = index.data if isinstance(index, Constant) else None
    if given is None and index.owner is not None:
        parts = [getattr(u, "data", u) for u in index.owner.inputs]
        return all(part is None for part in parts)
    return isinstance(given, slice) and (given.start, given.stop, given.step) == (None, None, None)
