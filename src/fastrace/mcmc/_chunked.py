"""Sums over rows that come in chunks, each of which is read once in a pass."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastrace._base import _checks, _frames
from fastrace._base._words import counted
from fastrace._models._arrow import Arrow
from fastrace._models._seen import expand_seen
from fastrace._models._softmax import SoftmaxSource
from fastrace._models.glm_inputs import refuse_overflow
from fastrace._models.grouping import Groups, as_groups, known_name
from fastrace._models.softmax_sums import expand_softmax, offset_from_first
from fastrace.likelihoods import GLMSource
from fastrace.mcmc.models._modes import NoModeError
from fastrace.mcmc.models.model import GLM, Model
from fastrace.mcmc.models.softmax import Softmax

__all__ = ["Chunks"]

Array = NDArray[np.float64]
Sums = tuple[float, Array, Arrow]

_PIECE = 1 << 16  # rows held at once of a chunk that can be sliced
_PARTS = ("X", "y", "offset", "weights", "trials", "groups")


class Chunks:
    """Rows of a model in chunks.

    Parameters
    ----------
    model : GLM or Softmax
        A model of some of the rows, which says what a chunk must have.
    chunks : iterable of chunks, or callable that returns one
        As of `compress`.

    Attributes
    ----------
    n_rows, n_chunks : int
        Of the last pass; 0 before the first.
    once : bool
        Whether a second pass is impossible.
    """

    def __init__(self, model: Model, chunks: Any) -> None:
        if not isinstance(model, (GLM, Softmax)):
            raise TypeError(f"model is {_checks.shown(model)}; chunks are read by a GLM or a Softmax, of some of the "
                            f"rows")
        if getattr(model, "_terms", ()):
            raise ValueError("the model was made by a formula, which chunks are not read by: give chunks of the "
                             "columns of its design to a GLM(X, y, names=...)")
        if isinstance(chunks, (str, bytes, Mapping)) or not (callable(chunks) or isinstance(chunks, Iterable)):
            raise TypeError(f"chunks is {_checks.shown(chunks)}; an iterable of (X, y) or of dicts with 'X' and 'y', "
                            f"or a function that returns one, is needed")
        self.model, self.chunks = model, chunks
        self.once = isinstance(chunks, Iterator)
        self.n_rows = self.n_chunks = 0
        self._begun = False
        rows = model._glm if isinstance(model, GLM) else model._data.rows
        self._groups: tuple[Groups, ...] = tuple(rows.groups)
        self._needs = set((model._glm if isinstance(model, GLM) else model._data).beside()) - {"learn_scale"}
        self._factors = rows.factors
        self._levels = [{level: k for k, level in enumerate(factor.levels)} for factor in self._factors]

    def expand(self, psi: Array) -> Sums:
        """Value, gradient and Hessian of the summed terms at a point, in one pass."""
        if self._begun and self.once:
            raise ValueError("chunks are an iterator, which gives them once, and another pass is needed: give a list "
                             "of them, or a function that opens them again")
        before, self._begun = self.n_rows, True
        value, total = 0.0, None
        self.n_rows = self.n_chunks = 0
        for number, given in enumerate(self.chunks() if callable(self.chunks) else self.chunks):
            self.n_chunks += 1
            try:
                for piece in self._pieces(given):
                    level, slope, hessian = self._summed(piece, psi)
                    parts = [slope, hessian.dense, *([hessian.border, hessian.blocks] if hessian.n_blocks else [])]
                    value += level
                    total = [np.array(part) for part in parts] if total is None else [
                        np.add(a, b, out=a) for a, b in zip(total, parts, strict=True)]
                    start = hessian.start
            except (ValueError, TypeError) as error:
                raise type(error)(f"chunk {number}: {error}") from error
        if total is None:
            raise ValueError(f"chunks gave no rows in {counted(self.n_chunks, 'chunk')}; at least one row is needed"
                             + (", again in each pass: a function that returns a new iterator gives them again"
                                if before else ""))
        if before not in (0, self.n_rows):
            raise ValueError(f"chunks gave {counted(before, 'row')} in one pass and {self.n_rows} in the next; the "
                             f"same rows are needed in each")
        if not (math.isfinite(value) and all(np.isfinite(part).all() for part in total)):
            raise NoModeError("the log-likelihood of the chunks is not finite where it is expanded: give psi_hat "
                              "nearer the mode")
        return value, total[0], Arrow(total[1], *total[2:], *([start] if len(total) > 2 else []))

    def _pieces(self, given: Any) -> Iterator[dict[str, Any]]:
        """A chunk as dicts of the parts of a few rows each, which are read once."""
        if isinstance(given, Mapping) and "X" in given:
            chunk = dict(given)
        elif isinstance(given, tuple) and len(given) == 2:
            chunk = {"X": given[0], "y": given[1]}
        else:
            raise TypeError(f"it is {_checks.shown(given)}; a pair (X, y), or a dict of 'X', 'y' and what else the "
                            f"model has, is needed")
        odd = [name for name in chunk if name not in _PARTS]
        if odd:
            raise ValueError(f"it has {odd[0]!r}; of {', '.join(map(repr, _PARTS))}, those that the model has are "
                             f"needed")
        chunk = {name: value for name, value in chunk.items() if value is not None}
        needed = {"X", "y"} | self._needs
        if set(chunk) != needed:
            name = sorted(needed ^ set(chunk))[0]
            has = ("lacks", "has") if name in needed else ("has", "does not have")
            raise ValueError(f"it {has[0]} {name!r}, which the model {has[1]}; {', '.join(sorted(needed))} are needed")
        _frames.require_same_rows(**chunk)
        x = chunk["X"]
        names = _frames.column_names(x)
        columns = self.model.column_names
        if names is not None and not _frames.only_numbered(getattr(x, "columns", names)):
            if sorted(names) != sorted(columns):
                raise ValueError(f"its columns are {', '.join(map(repr, names[:20]))}, and those of the model "
                                 f"{', '.join(map(repr, columns[:20]))}; the same are needed")
            x = _frames.in_order(x, columns, "X", "columns")
        if not hasattr(x, "shape") or hasattr(x, "columns") or isinstance(x, Mapping):
            x = _frames.as_table(x, "X", "a table of numbers")
        if len(x.shape) != 2 or x.shape[1] != self._n_columns:
            raise ValueError(f"its X has shape {tuple(x.shape)}; (k, {self._n_columns}) is needed")
        n = x.shape[0]
        beside = {name: self._row_parts(name, chunk[name], n) for name in sorted(needed - {"X", "groups"})}
        groups = self._coded(chunk["groups"], n) if self._groups else ()
        for first in range(0, n, _PIECE):
            part = slice(first, min(first + _PIECE, n))
            rows = x[part]
            rows = rows if hasattr(rows, "nnz") else np.array(rows)  # of a memory map: read here, and not again
            more = {"groups": tuple(group.reordered(part) for group in groups)} if groups else {}
            yield {"X": rows, **{name: value[part] for name, value in beside.items()}, **more}

    def _row_parts(self, name: str, value: Any, n: int) -> Any:
        if isinstance(self.model, Softmax) and name in ("y", "offset"):
            value = self.model._numbered(value) if name == "y" else _frames.in_order(
                value, self.model.classes, name, "classes")
        table = value if hasattr(value, "shape") and not hasattr(value, "columns") else _frames.as_table(
            value, name, "numbers")
        if table.shape[:1] != (n,):
            raise ValueError(f"its {name} has shape {tuple(table.shape)}, and its X {counted(n, 'row')}; a number for "
                             f"each row is needed")
        return table if isinstance(table, np.ndarray) else np.asarray(table)

    @property
    def _n_columns(self) -> int:
        return int(self.model.n_columns)

    def _coded(self, given: Any, n: int) -> tuple[Groups, ...]:
        """The model's factors with the codes that a chunk has."""
        found = as_groups(given)
        if len(found) != len(self._groups):
            raise ValueError(f"it has {counted(len(found), 'grouping factor')}, and the model {len(self._groups)}")
        own = {group.name: group for group in found}
        out = []
        for k, (group, factor, levels) in enumerate(zip(self._groups, self._factors, self._levels, strict=True)):
            new = own.get(factor.name, found[k] if found[k].name is None else None)
            if new is None:
                raise ValueError(f"it has no groups {factor.name!r}; it has {', '.join(map(repr, own))}")
            new.laid_out(n, 0, k)           # refuses another number of rows
            names = [known_name(level, levels) for level in new.levels]
            unknown = [name for name in names if name not in levels]
            if unknown:
                raise ValueError(f"a row of it is of group {unknown[0]!r} of {factor.name!r}, of which the model has "
                                 f"no effect. Make the model of rows of every group, or give it the codes as a "
                                 f"pandas.Categorical that has all of them as categories")
            tables = [None if table is None else table.shape[1] for table in (group.table, new.table)]
            if tables[0] != tables[1]:
                raise ValueError(f"the groups {factor.name!r} of the model have a table of slopes, or that of the "
                                 f"chunk has; mcmc.Groups(codes, slopes) with the same columns is needed")
            numbered = group.reordered(slice(0, 0))
            numbered.codes = np.array([levels[name] for name in names], dtype=np.int32)[new.codes]
            numbered.table = new.slopes_by(group.slope_names, factor.name)
            out.append(numbered)
        return tuple(out)

    def _summed(self, piece: dict[str, Any], psi: Array) -> Sums:
        x, y = piece.pop("X"), piece.pop("y")
        if isinstance(self.model, Softmax):
            if "offset" in piece:
                piece["offset"] = offset_from_first(piece["offset"], (x.shape[0], self.model.n_classes))
            rows = SoftmaxSource(x, y, None, self.model.n_classes, **piece)
            refuse_overflow(rows.rows.X, rows.rows.y)
            self.n_rows += x.shape[0]
            return expand_softmax(rows, psi)
        own = self.model._glm
        glm = GLMSource(x, y, np.zeros((1, own.theta.shape[1])), own.family, None if own.learns_scale else own.scale,
                        own.df, learn_scale=own.learns_scale, **piece)
        refuse_overflow(glm.X, glm.y)
        self.n_rows += x.shape[0]
        value, slope, hessian = expand_seen(glm, psi)
        return float(value), np.asarray(slope), hessian
