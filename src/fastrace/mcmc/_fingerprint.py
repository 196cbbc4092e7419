"""What a run of chains is about, in a form that tells it from other runs and is the same in another process."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
import types
from typing import Any

import numpy as np

from fastrace.mcmc.kernels._rows import RowKernel
from fastrace.mcmc.models.model import Reference
from fastrace.mcmc.trace import Trace

_DEEPEST = 200
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class _Digest:
    """A hash of nested objects: bytes of arrays, code of functions with the arrays and numbers they use."""

    def __init__(self) -> None:
        self.hash = hashlib.blake2b(digest_size=16)
        self.seen: dict[int, int] = {}
        self.kept: list[Any] = []  # what `seen` has the ids of must live
        self.arrays = True  # whether functions' arrays count by their bytes, or by their shapes alone

    def word(self, *words: Any) -> None:
        self.hash.update(repr(words).encode())

    def add(self, value: Any, depth: int = 0) -> None:
        if isinstance(value, _PLAIN):
            self.word(type(value).__name__, value)
        elif isinstance(value, np.ndarray | np.generic):
            self.array(np.asarray(value), depth)
        elif depth > _DEEPEST:
            self.word(type(value).__qualname__)
        elif id(value) in self.seen:
            self.word("again", self.seen[id(value)])
        else:
            self.seen[id(value)] = len(self.seen)
            self.whole(value, depth + 1)
            if isinstance(value, dict | list | tuple):  # alike or the same one: copies do not agree on that
                del self.seen[id(value)]
            else:
                self.kept.append(value)

    def array(self, value: np.ndarray[Any, Any], depth: int, content: bool = True) -> None:
        self.word("array", value.dtype.str, value.shape)
        if value.dtype.hasobject:
            self.add(value.tolist() if content else None, depth)
        elif content:
            self.hash.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)

    def whole(self, value: Any, depth: int) -> None:
        self.word(type(value).__module__, type(value).__qualname__)
        if isinstance(value, dict):
            for key, item in value.items():
                self.add(key, depth)
                self.add(item, depth)
        elif isinstance(value, list | tuple):
            self.word(len(value))
            for item in value:
                self.add(item, depth)
        elif isinstance(value, np.dtype | type | types.BuiltinFunctionType | np.ufunc):
            self.word(str(value) if isinstance(value, np.dtype) else getattr(value, "__name__", ""))
        elif isinstance(value, types.FunctionType):
            self.function(value, depth)
        elif isinstance(value, types.MethodType):
            self.add(value.__func__, depth)
            self.add(value.__self__, depth)
        elif isinstance(value, functools.partial):
            self.add((value.func, value.args, value.keywords), depth)
        elif isinstance(value, np.random.Generator):
            self.add(value.bit_generator.state, depth)
        elif type(value).__module__.startswith("fastrace.") or dataclasses.is_dataclass(value):
            self.state(value, depth)
        else:
            self.other(value, depth)

    def state(self, value: Any, depth: int) -> None:
        left_out = getattr(type(value), "_computed", ())
        if isinstance(getattr(value, "__dict__", None), dict):
            own = value.__getstate__() if hasattr(value, "__getstate__") else value.__dict__
            self.add({k: v for k, v in (own or {}).items() if k not in left_out}, depth)
            return
        try:
            parts = value.__reduce__()
        except TypeError:  # holds a pointer, which says nothing
            return
        self.add(parts[1:] if isinstance(parts, tuple) else parts, depth)

    def function(self, value: types.FunctionType, depth: int) -> None:
        self.word(value.__module__, value.__qualname__)
        self.used(value.__defaults__, depth)
        self.used(value.__kwdefaults__, depth)
        for cell in value.__closure__ or ():
            try:
                self.used(cell.cell_contents, depth)
            except ValueError:  # an empty cell
                self.word("empty")
        codes = [value.__code__]
        while codes:
            code = codes.pop()
            self.word(code.co_code, code.co_names)
            for constant in code.co_consts:
                if isinstance(constant, types.CodeType):
                    codes.append(constant)
                else:
                    items = sorted(map(repr, constant)) if isinstance(constant, frozenset) else repr(constant)
                    self.word(_ADDRESS.sub("", str(items)))
            for name in code.co_names:
                if name in value.__globals__:
                    self.used(value.__globals__[name], depth)

    def used(self, value: Any, depth: int) -> None:
        """What a function works with. Lists and other objects are often its notes, and count by their type."""
        if isinstance(value, np.ndarray):
            self.array(value, depth, self.arrays)
        elif isinstance(value, (types.FunctionType, types.MethodType, functools.partial, np.generic, *_PLAIN)):
            self.add(value, depth)
        elif isinstance(value, tuple):
            for item in value:
                self.used(item, depth)
        else:
            self.word(type(value).__qualname__)
            if self.arrays and hasattr(value, "__array__") and not isinstance(value, type):
                self.other(value, depth)

    def other(self, value: Any, depth: int) -> None:
        """An object of the user's, or of another package: its arrays, and what graphs of PyTensor are made of."""
        self.word(str(getattr(value, "name", "")))
        if hasattr(value, "rvs_to_values"):
            self.add(list(value.rvs_to_values.items()), depth)
            self.add(list(getattr(value, "potentials", ())), depth)
        elif getattr(value, "owner", None) is not None:
            self.word(_ADDRESS.sub("", str(value.owner.op)))
            self.add(list(value.owner.inputs), depth)
        elif hasattr(value, "get_value") or isinstance(getattr(value, "data", None), np.ndarray):
            content = value.get_value() if hasattr(value, "get_value") else value.data
            if not isinstance(content, np.random.Generator):
                self.add(content, depth)
        elif hasattr(value, "__array__"):
            self.add(np.asarray(value), depth)
        else:
            own = getattr(value, "__dict__", {})
            self.add({k: v for k, v in own.items() if isinstance(v, (np.ndarray, float, str))}, depth)  # ints may count


def _hash(value: Any, arrays: bool = True) -> str:
    digest = _Digest()
    digest.arrays = arrays
    digest.add(value)
    return digest.hash.hexdigest()


def seed_of(rng: np.random.Generator | None) -> Any:
    """What the generators that are spawned from this one depend on."""
    if rng is None:
        return None
    seeds = rng.bit_generator.seed_seq
    if isinstance(seeds, np.random.SeedSequence):
        return _hash((seeds.entropy, seeds.spawn_key, seeds.pool_size, seeds.n_children_spawned))
    return _hash(rng)


def fingerprint(
    kernel: Any, init: Any, n_chains: int, rng: np.random.Generator | None, n_tune: int
) -> dict[str, Any]:
    """What decides the draws, by name. An entry is None where nothing was asked for."""
    apart = {"model", "variables", "outside", *getattr(type(kernel), "_computed", ())}
    options = {k: v for k, v in getattr(kernel, "__dict__", {}).items() if k not in apart}
    found = {k: v for k, v in options.items() if _simple(v) or (callable(v) and not isinstance(v, type))}
    reference = options.get("reference")
    if isinstance(kernel, RowKernel):
        if reference is None:
            found["_factor"] = kernel._factor
    else:
        found.update({k: v for k, v in options.items() if isinstance(v, np.ndarray)})
    variables = getattr(kernel, "variables", ())
    out: dict[str, Any] = {
        "kernel": {**kernel.describe(), "options": _hash(found)},
        "model": [_hash(getattr(kernel, "model", None)),
                  *(_hash(v, getattr(v, "prepare", None) is None) for v in variables)],
        "control variate": [float(x) for x in reference.theta_hat] if isinstance(reference, Reference) else None,
    }
    if isinstance(init, Trace):
        return {**out, "init": _hash([[state.position for state in init.states], list(init.rngs)])}
    start = None if init is None else np.asarray(init)
    if start is not None and start.dtype.kind in "fiub":
        start = start.astype(np.float64)
    return {**out, "init": _hash(start), "n_chains": n_chains, "n_tune": n_tune, "seed": seed_of(rng)}


def _simple(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_simple(item) for item in value.values())
    return isinstance(value, _PLAIN) or (isinstance(value, tuple) and all(_simple(item) for item in value))


def differences(saved: dict[str, Any], asked: dict[str, Any]) -> list[str]:
    """Names of what differs. A call without a seed takes any; a mode found again may differ in its last digits."""
    out = []
    for name in dict.fromkeys([*saved, *asked]):
        a, b = saved.get(name), asked.get(name)
        if name == "seed" and b is None and "seed" in asked:
            continue
        if name == "control variate" and a is not None and b is not None and len(a) == len(b):
            if not np.allclose(a, b, rtol=1e-6, atol=1e-8):
                out.append(name)
        elif a != b:
            out.append(name)
    return out


