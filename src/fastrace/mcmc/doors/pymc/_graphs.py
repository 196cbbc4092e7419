"""The log-density of a PyMC model as functions of one vector of parameters and of row numbers; needs PyMC."""

from __future__ import annotations

import functools
import operator
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.compile.mode import get_mode
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import graph_replace, vectorize_graph
from pytensor.graph.rewriting.basic import node_rewriter, out2in
from pytensor.graph.traversal import ancestors
from pytensor.graph.utils import MethodNotDefined
from pytensor.scalar.math import Softplus
from pytensor.tensor.elemwise import Elemwise

from fastrace._base._progress import stage
from fastrace._base._words import counted
from fastrace.mcmc.doors.pymc._constants import RowConstants, refuse_partial
from fastrace.mcmc.doors.pymc._cuts import Cut, cut_at, last_variables, law, rows_among, terms_by_row
from fastrace.mcmc.doors.pymc._families import LAWS
from fastrace.mcmc.doors.pymc._predictors import Design, Predictors, Unseen, names_of
from fastrace.mcmc.doors.pymc._words import refuse_simulator, why_not_by_rows
from fastrace.mcmc.models._by_numpy import by_numpy

Parts = tuple[float, NDArray[np.float64], NDArray[np.float64]]  # value, gradient, Hessian

PROBED = 40  # rows asked for when a model is checked,
_CHECKED = 8192  # and at once, where plain arrays were found and all rows are
_NOT_COMPILED = "FAST_COMPILE"  # of PyTensor's modes, the one that does not ask for C: for what is called a few times
_IN_SET_UP = {"all", "slope", "expansion", "rest_expansion", "seen_expansion", "jacobian", "pulled", "curvature"}
_CALLED = {"all": "terms of all rows", "terms": "terms of rows", "slope": "gradients of rows",
           "expansion": "derivatives of rows", "seen_expansion": "derivatives of rows",
           "curvature": "derivatives of rows", "left": "what an expansion leaves of rows",
           "left_seen": "what an expansion leaves of rows", "left_of_seen": "what an expansion leaves of rows",
           "rest": "the prior", "rest_expansion": "derivatives of the prior", "seen": "what the rows see",
           "surrogate": "gradients of prior times expansion"}
_TOGETHER, _MOST = 2_000_000, 64  # numbers that derivatives along many directions may take at once; directions at most


class _SmoothSoftplus(Softplus):  # type: ignore[misc]
    """log(1 + exp(x)) as one function in JAX, where PyTensor's own has a branch for each range of x."""


def _in_one_piece(fgraph: Any, node: Any) -> Any:
    op = node.op.scalar_op
    if type(op) is Softplus:
        return [Elemwise(_SmoothSoftplus(op.output_types_preference, name="softplus"))(*node.inputs)]
    return None


def _mode(given: Any, check_bounds: bool) -> Any:
    """The mode given or PyTensor's own, with PyMC's -inf for parameters out of range."""
    bounds = "local_check_parameter_to_ninf_switch" if check_bounds else "local_remove_check_parameter"
    return by_numpy(get_mode(given).including(bounds), given != _NOT_COMPILED)


class RowGraphs:
    """The terms of the rows, and the rest of the log-density.

    Parameters
    ----------
    model : pymc.Model
    observed : list of variables
        Whose terms are the rows'.
    values : list of value variables
        Raveled and joined, they are the vector ``theta`` of the functions.
    fixed : list of value variables
        All the others; functions take them one by one after their other arguments.
    rows : list of pm.Data or None
        Containers with one entry a row; None to find them.
    compile_kwargs : mapping
        For `pytensor.function`.
    through : list of variables or None
        Free and deterministic variables that make up what the rows see; None to find it.
    """

    def __init__(
        self, model: Any, observed: list[Any], values: list[Any], fixed: list[Any], rows: list[Any] | None,
        compile_kwargs: Mapping[str, Any], through: list[Any] | None = None,
    ) -> None:
        self.model, self.observed = model, observed
        self.compile_kwargs = dict(compile_kwargs)
        self.names = ", ".join(repr(v.name) for v in observed)
        self._functions: dict[str, Any] = {}
        self._lock = threading.RLock()
        self._start = model.initial_point()
        self.n_rows = self._counted()
        self.containers, self.constants = self._containers(rows)
        whole = terms_by_row(model, observed, self.constants)
        self.containers += self.constants.found
        self._whole_terms = whole
        self._refuse_rows_elsewhere()
        reach = set(ancestors(whole))
        self.hidden = [v for v in values if v not in reach]  # parameters that no row sees
        self._theta, self._index = pt.dvector("theta"), pt.lvector("rows")
        self._fixed = [v.type(name=f"{v.name}_fixed") for v in fixed]
        self._swap = dict(zip(fixed, self._fixed, strict=True))
        self.sizes = [int(np.size(self._start[value.name])) for value in values]
        first, self.dim = 0, sum(self.sizes)
        for value, size in zip(values, self.sizes, strict=True):
            shape = np.shape(self._start[value.name])
            self._swap[value] = self._theta[first : first + size].reshape(shape).astype(value.dtype)
            first += size
        by_row = {c: c[self._index] for c in self.containers}
        self._terms = [term.astype("float64") for term in graph_replace(whole, {**self._swap, **by_row}, strict=False)]
        self._all = [term.astype("float64") for term in graph_replace(whole, self._swap, strict=False)]
        rest = [v for v in model.basic_RVs + model.potentials if v not in observed]
        self._rest = pt.as_tensor(0.0)
        if rest:
            self._rest = graph_replace([model.logp(vars=rest)], self._swap, strict=False)[0].astype("float64")
        self._jacobian: NDArray[np.float64] | None = None
        self.predictors_by_link: dict[str, Any] = {}  # of families, as sums of what the rows see
        self.unseen = ""  # why the terms are no functions of linear predictors, in words
        self.starts = {v: self._start[v.name] for v in values}
        self.cut: Cut | None = None if through is None else cut_at(
            model, observed, self.containers, through, self.constants)
        self.predictors, self.design = self._predictors(whole, by_row)
        if self.design is None and self.cut is None and not fixed:
            self.cut = self._smaller_cut()
        if self.design is None and self.cut is not None:
            self._see_variables(self.cut, by_row)

    @property
    def maps(self) -> bool:
        """Whether what the rows see is anything but all parameters."""
        return self.design is not None or self.cut is not None

    @property
    def n_seen(self) -> int:
        """How many numbers of the parameters the rows see."""
        if self.design is not None:
            return int(self.design.n_coefficients) + len(self._scalars)
        return self.dim if self.cut is None else sum(np.size(x) for x in self.cut.starts.values())

    @property
    def rearranged(self) -> bool:
        """Whether what the rows see was found to be parameters as they are."""
        return self.cut is None and self.design is not None and self.predictors.rearranged

    @property
    def seen_names(self) -> tuple[str, ...]:
        """What each number that the rows see is called; empty where they see all parameters."""
        if self.design is not None:
            return names_of(self.predictors.seen, self.starts if self.cut is None else self.cut.starts, self.model)
        return () if self.cut is None else names_of(self.cut.seen, self.cut.starts, self.model)

    def _smaller_cut(self) -> Cut | None:
        """The last variables on the way from parameters to rows, where they are fewer numbers than all parameters."""
        try:
            cut = cut_at(self.model, self.observed, self.containers,
                         last_variables(self.model, self.observed, self.constants), self.constants)
        except (AssertionError, KeyError, NotImplementedError, RuntimeError, TypeError, ValueError):
            return None  # then the rows see all parameters
        return cut if sum(np.size(x) for x in cut.starts.values()) < self.dim else None

    def _see_variables(self, cut: Cut, by_row: dict[Any, Any]) -> None:
        """Make the terms functions of a vector of what the rows see, and that vector one of the parameters."""
        self._psi, first = pt.dvector("psi"), 0
        swap = dict(by_row)
        for v in cut.seen:
            start = cut.starts[v]
            swap[v] = self._psi[first : first + start.size].reshape(start.shape).astype(v.dtype)
            first += start.size
        self._terms_seen = [t.astype("float64") for t in graph_replace(cut.terms, swap, strict=False)]
        self._seen = pt.concatenate([v.ravel().astype("float64") for v in
                                     graph_replace(cut.given, self._swap, strict=False)])

    def _predictors(self, whole: list[Any], by_row: dict[Any, Any]) -> tuple[Any, Any]:
        """What the rows see as linear predictors, with their numbers; None where the terms are nothing of the kind.

        Of a cut the coefficients must be what it names.
        """
        cut, starts = self.cut, self.starts
        if cut is not None:
            whole, starts = cut.terms, cut.starts
        outcomes = self.constants.of([self.model.rvs_to_values[v] for v in self.observed])
        try:
            found = Predictors(whole, list(starts), self.containers, list(outcomes), self.n_rows)
            if cut is not None and not found.rearranged:
                raise Unseen("coefficients that are functions of the variables of through")
            if not found.leaves and not self._may_be_intercept(found.scalars):
                raise Unseen(f"there are 0 of these and {counted(len(found.scalars), 'scalar')}")
            self._leaves = [pt.dvector(f"predictor_{j}") for j in range(len(found.leaves))]
            self._scalars = [pt.dscalar(f"scalar_{j}") for j in range(len(found.scalars))]
            leaves = dict(zip(found.leaves, self._leaves, strict=True))
            scalars = dict(zip(found.scalars, self._scalars, strict=True))
            try:  # a coefficient may be in units of a scalar, such as sigma
                terms = graph_replace(graph_replace(whole, leaves, strict=False), scalars, strict=False)
                terms = graph_replace(terms, by_row, strict=False)
            except ValueError as error:
                raise Unseen("one predictor is a function of another one") from error
            if not set(starts).isdisjoint(ancestors(terms)):
                raise Unseen("a parameter that is in no predictor")
            self._curve = _added(terms).astype("float64")
            given = {} if cut is None else {x: v for x, v in zip(cut.seen, cut.given, strict=True) if x is not v}
            seen = graph_replace(graph_replace(found.seen, given, strict=False), self._swap, strict=False)
            self._seen = pt.concatenate([s.astype("float64") for s in seen])
            if not set(self._fixed).isdisjoint(ancestors([self._seen])):
                raise Unseen("a discrete variable")
            self.scalars = found.scalars
            return found, Design(found, starts)
        except Unseen as error:
            self.unseen = str(error)
            return None, None

    def _may_be_intercept(self, scalars: list[Any]) -> bool:
        """Whether scalars alone may be an intercept and a scale of a family of `GLM`."""
        known = len(self.observed) == 1 and law(self.observed[0]) in LAWS
        return known and self.cut is None and not self._fixed and all(np.dtype(s.dtype).kind == "f" for s in scalars)

    def leaf_of(self, *ops: type) -> tuple[type, float] | None:
        """The first of some scalar operations on the only predictor, and the slope of its argument; None without one.
        """
        made = [u for u in ancestors([self._curve])
                if isinstance(getattr(getattr(u.owner, "op", None), "scalar_op", None), ops)]
        if not made or len(self._leaves) != 1:
            return None
        ends = graph_replace(made[0].owner.inputs, {self._leaves[0]: pt.constant(np.array([0.0, 1.0]))}, strict=False)
        if not set(ancestors(ends)).isdisjoint([*self._scalars, *self.containers, self._index]):
            return None
        low, high = ends[0].eval(mode=_NOT_COMPILED)
        return type(made[0].owner.op.scalar_op), float(high - low)

    @property
    def feel_fixed(self) -> bool:
        """Whether the terms depend on a fixed variable."""
        return not set(self._fixed).isdisjoint(ancestors(self._terms))

    def slopes(self, theta: NDArray[np.float64], rows: Any, *fixed: Any) -> Parts:
        """Sum of the terms of some rows, a slice or numbers, with its gradient and Hessian in what they see."""
        return self.slopes_seen(self.call("seen", theta, *fixed), rows, *fixed)

    def slopes_seen(self, seen: NDArray[np.float64], rows: Any, *fixed: Any) -> Parts:
        """The same at a point of what they see."""
        design = self.design
        index = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        m, p = len(self._leaves), design.n_coefficients
        scalars = [np.asarray(value) for value in seen[p:]]  # compiled functions take arrays alone
        out = self.call("curvature", *design.predictors(seen[:p], rows), *scalars, index, *fixed)
        first, second = out[1 : 1 + m + len(self._scalars)], iter(out[1 + m + len(self._scalars) :])
        gradient, hessian = np.zeros(len(seen)), np.zeros((len(seen), len(seen)))
        for j, slope in enumerate(first):
            if j < m:
                gradient[:p] += design.back(j, rows, slope)
            else:
                gradient[p + j - m] = slope
            for k in range(j + 1):
                bend = next(second)
                if j < m:
                    block = design.squares(j, k, rows, bend)
                    hessian[:p, :p] += block if j == k else block + block.T
                elif k < m:
                    hessian[p + j - m, :p] += design.back(k, rows, bend)
                    hessian[:p, p + j - m] = hessian[p + j - m, :p]
                else:
                    hessian[p + j - m, p + k - m] = hessian[p + k - m, p + j - m] = bend
        return float(out[0].sum()), gradient, hessian

    def left_seen(self, seen: NDArray[np.float64], hat: NDArray[np.float64], rows: NDArray[np.int64]) -> Any:
        """What the second-order expansion at `hat`, in what the rows see, leaves of the terms of some rows."""
        if self.design is None:
            return self.call("left_of_seen", seen, hat, rows)
        p = self.design.n_coefficients
        at = [x for psi in (seen, hat) for x in (*self.design.predictors(psi[:p], rows), *map(np.asarray, psi[p:]))]
        return self.call("left_seen", *at, rows)

    def jacobian(self, theta: NDArray[np.float64], *fixed: Any) -> NDArray[np.float64]:
        """First derivatives of what the rows see by the parameters."""
        if self._jacobian is not None:
            return self._jacobian
        jacobian = self._along("jacobian", len(self.call("seen", theta, *fixed)), theta, *fixed)[0]
        self._jacobian = jacobian if self.rearranged else None
        return jacobian

    def pulled(self, theta: NDArray[np.float64], parts: Parts, *fixed: Any) -> Parts:
        """A function of what the rows see as one of the parameters: value, gradient and Hessian by the chain rule."""
        value, gradient, hessian = parts
        jacobian = self.jacobian(theta, *fixed)
        bent = jacobian.T @ hessian @ jacobian
        if not self.rearranged:
            bent += self._along("pulled", len(theta), theta, gradient, *fixed)[0]
        return value, gradient @ jacobian, (bent + bent.T) / 2.0

    def expansion(self, name: str, at: NDArray[np.float64], *args: Any) -> Parts:
        """A sum of terms, or all of the log-density that is none, with its gradient and Hessian."""
        hessian, value, gradient = self._along(name, len(at), at, *args)
        return float(value), np.array(gradient), (hessian + hessian.T) / 2.0

    def _along(self, name: str, count: int, theta: NDArray[np.float64], *args: Any) -> list[Any]:
        """Outputs of a function of unit vectors in `count` dimensions: a line of the first for each, and the others."""
        units, most = np.eye(count), 1 if self._by_jax else max(1, min(_MOST, _TOGETHER // max(count, len(theta))))
        parts = [self.call(name, theta, units[first : first + most], *args) for first in range(0, count, most)]
        return [np.concatenate([part[0] for part in parts]), *parts[0][1:]]

    @property
    def _by_jax(self) -> bool:
        """Whether JAX compiles, which knows no shapes that depend on the number of directions."""
        return type(get_mode(self.compile_kwargs.get("mode")).linker).__name__ == "JAXLinker"

    def _each(self, output: Any, vector: Any, matrix: Any) -> Any:
        """What a function of a vector gives for each line of a matrix, in one pass through its graph."""
        if self._by_jax:
            return graph_replace([output], {vector: matrix[0]}, strict=False)[0][None]
        if vector not in set(ancestors([output])):
            return pt.broadcast_to(output, (matrix.shape[0], output.shape[0]))
        return vectorize_graph([output], {vector: matrix})[0]

    # Which rows there are, and models that have none.

    def _counted(self) -> int:
        """How many rows there are."""
        values = {v.name: self.model.rvs_to_values[v] for v in self.observed}
        single = [name for name, value in values.items() if value.ndim == 0]
        if single:
            raise ValueError(
                f"the observed variables {single} are single numbers, and have no rows: name those that have as "
                f"observed, and the others belong to the prior; a model of single numbers alone needs no subsampling"
            )
        lengths = {name: int(value.shape[0].eval(mode=_NOT_COMPILED)) for name, value in values.items()}
        if len(set(lengths.values())) != 1:
            raise ValueError(
                f"the observed variables have different numbers of rows, {lengths}; one number of them is needed: name "
                f"those that share their rows as observed, and the others belong to the prior"
            )
        return next(iter(lengths.values()))

    def _containers(self, given: list[Any] | None) -> tuple[list[Any], RowConstants]:
        """The `pm.Data` that run over rows, by their length unless they were named, and what finds plain arrays."""
        for variable in self.observed:
            refuse_simulator(variable)
            refuse_partial(self.model, variable)
        shared = [v for v in self.model.data_vars if hasattr(v, "get_value")]
        if given is None:
            reach = set(ancestors(self.model.logp(vars=self.observed, sum=False)))
            given = [v for v in shared if v in reach and v.get_value(borrow=True).shape[:1] == (self.n_rows,)]
        constants = RowConstants(self.n_rows, shared, given, self.model.rvs_to_values[self.observed[0]])
        for variable in self.observed:
            value = self.model.rvs_to_values[variable]
            if set(given).isdisjoint(ancestors([value])) and (self.n_rows == 1 or not constants.is_fixed(value)):
                raise ValueError(
                    f"the {self.n_rows} observed values of {variable.name!r} enter the model neither as an array of "
                    f"two rows or more nor by pm.Data, so its rows cannot be asked for one by one: "
                    f"{variable.name}_data = pm.Data(\"{variable.name}_data\", values), "
                    f"observed={variable.name}_data"
                )
        return list(given), constants

    def _refuse_rows_elsewhere(self) -> None:
        """Factors besides the observed ones that would have to be read whole at every step."""
        rows, sees = set(self.containers), self.constants.sees
        for potential in self.model.potentials:
            if sees(potential):
                raise ValueError(
                    f"the potential {potential.name!r} depends on the rows of {rows_among(rows, potential)}, and a "
                    f"potential does not say which of its factors is which row's: make it an observed variable, such "
                    f"as pm.CustomDist with a logp of one entry for each row"
                )
        for variable in self.model.free_RVs:
            if sees(variable):
                raise ValueError(
                    f"the prior of {variable.name!r} depends on the rows of {rows_among(rows, variable)}: then it has "
                    f"a factor for each row too; marginalise it, or name with rows= the containers that have one entry "
                    f"for each row if these are not among them"
                )

    def check(self, theta: NDArray[np.float64], fixed: Sequence[Any]) -> None:
        """Compare the terms of some rows, asked for by number and one by one, with those of the whole likelihood.

        Raises
        ------
        ValueError
            If they differ: then not all was found that has an entry for each row, or a row's term depends on other
            rows. Where plain arrays were found, all rows are compared, in parts and in random order.
        """
        order = np.random.default_rng(0).permutation(self.n_rows).astype(np.int64)
        some, own = order[:PROBED], self._own_terms(theta, fixed)
        whole = [term[some] for term in own]
        try:
            terms = self.once("terms")
            part = terms(theta, some, *fixed)
            ones = [terms(theta, some[k : k + 1], *fixed) for k in range(min(3, len(some)))]
        except (ValueError, TypeError, IndexError, AssertionError) as error:
            raise self._refused(self.names, "its terms cannot be computed for a few rows alone") from error
        for j, variable in enumerate(self.observed):
            if part[j].shape != some.shape:
                raise self._refused(repr(variable.name), f"asked for {len(some)} rows it gives {part[j].shape[0]}")
            alone = np.concatenate([single[j] for single in ones])
            if not np.allclose(part[j][: len(alone)], alone, equal_nan=True):
                raise self._refused(repr(variable.name), "a row's term changes with the rows asked for beside it")
            if not np.allclose(part[j], whole[j], equal_nan=True):
                raise self._refused(repr(variable.name), "a row's term is another one without the other rows")
        for first in range(0, self.n_rows if self.constants.found else 0, _CHECKED):
            rows = order[first : first + _CHECKED]
            for variable, term, other in zip(self.observed, terms(theta, rows, *fixed), own, strict=True):
                if not np.allclose(term, other[rows], equal_nan=True):
                    raise self._refused(repr(variable.name), "a row's term is another one than in the model")

    def _own_terms(self, theta: NDArray[np.float64], fixed: Sequence[Any]) -> list[NDArray[np.float64]]:
        """Terms of all rows by the model's own graph, in which arrays are what they were."""
        if not self.constants.found:
            return [np.asarray(term) for term in self.call("all", theta, *fixed)]
        outputs = graph_replace(terms_by_row(self.model, self.observed), self._swap, strict=False)
        mode = _mode(_NOT_COMPILED, self.model.check_bounds).excluding("constant_folding")
        inputs = [self._theta, *self._fixed]
        return [np.asarray(term, dtype=np.float64) for term in
                pytensor.function(inputs, outputs, mode=mode, on_unused_input="ignore")(theta, *fixed)]

    def _refused(self, names: str, what: str) -> ValueError:
        seen = why_not_by_rows(self.model, self._whole_terms, self.constants.met, self.n_rows)
        return ValueError(
            f"the likelihood of {names} cannot be taken row by row: {seen}" if seen else
            f"the likelihood of {names} cannot be taken row by row: {what}. Everything that has one entry for each "
            f"row, predictors and group numbers too, must enter the model as an array, or by pm.Data with the rows on "
            f"the first axis, and each row's term may depend on its own row only (no scan, mean or covariance over "
            f"rows, no parameter with one entry for each row)"
        )

    # Functions.

    def call(self, name: str, *args: Any) -> Any:
        """Outputs of one of the functions of `_built`; copies, which the caller may keep."""
        function = self.function(name)
        with self._lock:  # a compiled function keeps its inputs in memory of its own
            return function(*args)

    def function(self, name: str) -> Any:
        """Compiled when first asked for; not to C where that takes longer than the few calls of a set-up."""
        if name not in self._functions:
            with self._lock:
                if name not in self._functions:
                    stage(f"PyTensor prepares {_CALLED.get(name, name)}")
                    self._functions[name] = self._compiled(*self._built(name), once=name in _IN_SET_UP)
        return self._functions[name]

    @property
    def derivable(self) -> bool:
        """Whether all operations behind the terms have a first and a second derivative."""
        try:
            self._built("left")
        except (MethodNotDefined, NotImplementedError, TypeError, ValueError):  # as PyTensor says that there is none
            return False
        return True

    def once(self, name: str) -> Any:
        """A function that chains call at each step, for a few calls before: made anew, and never compiled to C."""
        return self._compiled(*self._built(name), once=True)

    def quick(self, nodes: Sequence[Any]) -> Callable[..., list[Any]]:
        """A function of theta that gives nodes of value variables: ready at once, and slow to run."""
        outputs = graph_replace(list(nodes), self._swap, strict=False)
        return pytensor.function([self._theta], outputs, mode="FAST_COMPILE", on_unused_input="ignore")

    def _built(self, name: str) -> tuple[list[Any], Any]:
        theta, index, vector = self._theta, self._index, pt.dvector("vector")
        if name == "all":  # terms of all rows, by observed variable
            return [theta], self._all
        if name == "terms":  # the same of some rows
            return [theta, index], self._terms
        if name == "rest":  # all of the log-density that is no term
            return [theta], self._rest
        if name == "slope":  # a sum and its gradient
            total = _added(self._terms).sum()
            return [theta, index], [total, _grad(total, theta)]
        if name in ("expansion", "rest_expansion", "seen_expansion"):  # the Hessian times each of some vectors; the sum
            at, total = theta, self._rest                              # and its gradient
            if name == "expansion":
                total = _added(self._terms).sum()
            elif name == "seen_expansion":
                at, total = self._psi, _added(self._terms_seen).sum()
            slope, units = _grad(total, at), pt.dmatrix("units")
            bent = self._each(_grad((slope * vector).sum(), at), vector, units)
            return [at, units, *([] if name == "rest_expansion" else [index])], [bent, total, slope]
        if name == "left_of_seen":  # what an expansion in it leaves of the terms
            hat = pt.dvector("hat")
            return [self._psi, hat, index], _left(_added(self._terms_seen), [self._psi], [hat], index)
        if name == "left":  # what the second-order expansion at `hat` leaves of the terms at `theta`
            hat = pt.dvector("hat")
            return [theta, hat, index], _left(_added(self._terms), [theta], [hat], index)
        if name == "left_seen":  # the same of an expansion in predictors and scalars
            new = [*self._leaves, *self._scalars]
            hats = [x.type(name=f"{x.name}_hat") for x in new]
            return [*new, *hats, index], _left(self._curve, new, hats, index)
        if name == "surrogate":  # a share of the rest plus an expansion in what the rows see, and its gradient
            hat, slope, bend, share = pt.dvector("hat"), pt.dvector("slope"), pt.dmatrix("bend"), pt.dscalar("share")
            step = (self._seen if self.maps else theta) - hat
            total = share * self._rest + (slope * step).sum() - 0.5 * (step * pt.dot(bend, step)).sum()
            return [theta, hat, slope, bend, share], [total, _grad(total, theta)]
        if name == "seen":  # what the rows see
            return [theta], self._seen
        if name in ("jacobian", "pulled"):
            weight, units = pt.dvector("weight"), pt.dmatrix("units")
            slope = _grad((self._seen * weight).sum(), theta)
            if name == "jacobian":  # gradients of some weighted sums of it
                return [theta, units], [self._each(slope, weight, units)]
            bent = _grad((slope * vector).sum(), theta)  # the Hessian of a weighted sum times each of some vectors
            return [theta, units, weight], [self._each(bent, vector, units)]
        if name == "curve":
            return [*self._leaves, *self._scalars, index], self._curve
        if name == "curvature":
            return [*self._leaves, *self._scalars, index], self._curvature()
        raise KeyError(name)

    def _curvature(self) -> list[Any]:
        """Terms of some rows; their derivatives by predictors and by scalars, first and second.

        Each is one number for each row, but for those by scalars alone, which are sums.
        """
        leaves, scalars = self._leaves, self._scalars
        total, weight = self._curve.sum(), pt.dvector("weight")
        first = [_grad(total, x) for x in [*leaves, *scalars]]
        out = [self._curve, *first]
        for j, slope in enumerate(first):
            for k in range(j + 1):
                if j < len(leaves):
                    out.append(_grad(slope.sum(), leaves[k]))
                elif k < len(leaves):  # a sum's derivative by the weights is one value for each row
                    along = _grad((first[k] * weight).sum(), scalars[j - len(leaves)])
                    by_row = pytensor.gradient.grad(along, weight, disconnected_inputs="ignore")
                    out.append(graph_replace([by_row], {weight: pt.ones_like(leaves[k])}, strict=False)[0])
                else:
                    out.append(_grad(slope, scalars[k - len(leaves)]))
        return out

    def in_jax(self) -> Callable[..., Any]:
        """The terms as a function of theta and row numbers in JAX, with the data of now."""
        try:
            import jax.numpy as jnp
            from pytensor.link.jax.dispatch import jax_funcify
        except ImportError as error:
            raise ImportError("third_derivatives='auto' needs JAX: python -m pip install jax") from error
        terms = _added(self._terms)
        held = {v: pt.constant(v.get_value(borrow=True)) for v in ancestors([terms]) if hasattr(v, "get_value")}
        graph = FunctionGraph([self._theta, self._index], graph_replace([terms], held, strict=False), clone=True)
        mode = get_mode("JAX").including("local_check_parameter_to_ninf_switch").excluding("fusion")
        mode.optimizer.rewrite(graph)
        out2in(node_rewriter([Elemwise])(_in_one_piece)).rewrite(graph)
        jax_funcify.register(_SmoothSoftplus, lambda op, **_: lambda x: jnp.logaddexp(x, 0.0))
        function = jax_funcify(graph)
        return lambda theta, rows: function(theta, rows)[0]

    def draws(self, names: Sequence[str] | None) -> tuple[list[str], Callable[..., list[Any]]]:
        """Names of variables, and a function of theta that gives them on their own scales."""
        m = self.model
        variables = {v.name: v for v in m.free_RVs + m.deterministics}
        if names is None:
            names = [name for name, v in variables.items() if not self.constants.sees(v)]
        unknown = [name for name in names if name not in variables]
        if unknown:
            raise ValueError(f"names has {unknown}; some of {list(variables)} are needed")
        outputs = graph_replace(m.replace_rvs_by_values([variables[n] for n in names]), self._swap, strict=False)
        return list(names), self._compiled([self._theta], outputs)

    def parameters(self, variables: Sequence[Any]) -> Callable[..., list[Any]]:
        """A function of free variables on their own scales that gives the value variable of each."""
        own = {v: v.type(name=v.name) for v in variables}
        outputs = [own[v] if transform is None else transform.forward(
            own[v], *graph_replace(v.owner.inputs, own, strict=False))
            for v, transform in ((v, self.model.rvs_to_transforms[v]) for v in variables)]
        function = pytensor.function(list(own.values()), outputs, mode=_mode(_NOT_COMPILED, self.model.check_bounds),
                                     on_unused_input="ignore")
        return function

    def shapes_of(self, variables: Sequence[Any]) -> list[tuple[int, ...]]:
        """Of free variables on their own scales."""
        return [tuple(int(n) for n in v.shape.eval(mode=_NOT_COMPILED)) for v in variables]

    def _compiled(self, inputs: list[Any], outputs: Any, once: bool = False) -> Any:
        mode = _mode(self.compile_kwargs.get("mode", _NOT_COMPILED if once else None), self.model.check_bounds)
        options = {"on_unused_input": "ignore", **self.compile_kwargs, "mode": mode}
        function = pytensor.function([*inputs, *self._fixed], outputs, **options)
        function.trust_input = True
        return function


def _added(terms: list[Any]) -> Any:
    return functools.reduce(operator.add, terms)


def _grad(output: Any, by: Any) -> Any:
    return pytensor.gradient.grad(output, by, disconnected_inputs="ignore")


def _left(terms: Any, new: list[Any], hats: list[Any], index: Any) -> Any:
    """Terms less their second-order expansion at `hats`, row by row.

    The gradient of weighted terms is linear in the weights, so its derivative by them is one value per row.
    """
    weight = pt.dvector("weight")
    steps = [x.type(name=f"{x.name}_step") for x in new]
    at_hat = graph_replace([terms], dict(zip(new, hats, strict=True)), strict=False)[0]

    def along(total: Any) -> Any:
        return functools.reduce(operator.add, [(_grad(total, hat) * step).sum()
                                               for hat, step in zip(hats, steps, strict=True)])

    once = along((at_hat * weight).sum())
    by_weight = [_grad(once, weight), _grad(along(once), weight)]
    ones = {weight: pt.ones_like(index, dtype="float64"),
            **{step: x - hat for step, x, hat in zip(steps, new, hats, strict=True)}}
    first_order, second_order = graph_replace(by_weight, ones, strict=False)
    return terms - at_hat - first_order - 0.5 * second_order
