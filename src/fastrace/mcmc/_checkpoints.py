"""Chains under way, and their checkpoints."""

from __future__ import annotations

import dataclasses
import io
import pickle
import secrets
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from fastrace._base import _files
from fastrace.mcmc.kernels._rows import ChainState, Tuning
from fastrace.mcmc.kernels.gibbs import GibbsState
from fastrace.mcmc.kernels.surrogate_gibbs import MixtureState
from fastrace.mcmc.protocol import Steps, joined

VERSION = 3
PLAIN, PICKLED = "chains", "pickled chains"
_CLASSES: dict[str, Any] = {cls.__name__: cls for cls in (ChainState, GibbsState, MixtureState, Steps, Tuning)}
_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")


@dataclass
class ChainRun:
    """One chain under way."""

    number: int
    state: Any
    rng: np.random.Generator
    tune_left: int
    left: int
    parts: list[Steps] = field(default_factory=list)
    seconds: float = 0.0
    rng_state: Any = None  # of `rng` when `state` was reached; the generator itself may be at work

    def __post_init__(self) -> None:
        self.rng_state = self.rng.bit_generator.state

    @property
    def todo(self) -> int:
        """Steps still to make."""
        return self.tune_left + self.left

    @property
    def n_draws(self) -> int:
        """Draws made."""
        return sum(map(len, self.parts))

    def rng_there(self) -> np.random.Generator:
        """A copy of the generator as it was when `state` was reached."""
        bits = type(self.rng.bit_generator)()
        bits.state = self.rng_state
        return np.random.Generator(bits)


class Checkpoint:
    """The file that the chains of one run are saved to.

    Parameters
    ----------
    path : Path
        As `fastrace._base._files.file_path` gives it.
    about : dict
        What decides the draws of the run, by name.
    pickled : bool
        Whether states of types unknown here are pickled, or refused.
    run : str, optional
        Tells this run from others with the same path; by default a new one.
    """

    def __init__(self, path: Path, about: dict[str, Any], pickled: bool, run: str | None = None) -> None:
        self.path, self.about, self.pickled = path, about, pickled
        self.run = secrets.token_hex(16) if run is None else run

    def save(self, runs: list[ChainRun]) -> None:
        """Write all chains; raises what `fastrace._base._files.write` does."""
        content = {"run": self.run, "about": self.about, "chains": [_plain_chain(run) for run in runs]}
        try:
            kind, packed = PLAIN, _files.pack(_plain(content))
        except TypeError:
            if not self.pickled:
                raise
            kind, packed = PICKLED, memoryview(pickle.dumps(content))
        _files.write(self.path, kind, VERSION, self.run, packed)

    @classmethod
    def load(cls, path: Path, pickled: bool) -> tuple[Checkpoint, list[ChainRun]]:
        """Read what `save` wrote."""
        kind = PICKLED if pickled and _files.kind_of(path) == PICKLED else PLAIN
        content = _files.read(path, kind, VERSION)
        try:
            found = pickle.load(io.BytesIO(content)) if kind == PICKLED else _whole(_files.unpack(content))
            chains = [_chain(chain) for chain in found["chains"]]
            return cls(path, found["about"], pickled, found["run"]), chains
        except Exception as error:
            raise ValueError(f"checkpoint {str(path)!r} cannot be read ({type(error).__name__}: {error}); remove it to "
                             f"begin anew, or give another path") from error


def _plain_chain(run: ChainRun) -> dict[str, Any]:
    bits = type(run.rng.bit_generator)
    by_name = bits.__name__ in _GENERATORS and bits is getattr(np.random, bits.__name__)
    return {
        "number": run.number, "state": run.state, "tune_left": run.tune_left, "left": run.left, "seconds": run.seconds,
        "steps": joined(run.parts) if run.parts else None, "generator": bits.__name__ if by_name else bits,
        "generator_state": run.rng_state,
    }  # fmt: skip


def _chain(found: dict[str, Any]) -> ChainRun:
    name = found["generator"]
    bits = (getattr(np.random, name) if name in _GENERATORS else name)()
    bits.state = found["generator_state"]
    steps = found["steps"]
    return ChainRun(found["number"], found["state"], np.random.Generator(bits), found["tune_left"], found["left"],
                    [] if steps is None else [steps], found["seconds"])


def _plain(value: Any) -> Any:
    """Instances of the classes here as pairs of a key and their fields."""
    if type(value) in _CLASSES.values():
        parts = {part.name: _plain(getattr(value, part.name)) for part in fields(value)}
        return {_CLASS: type(value).__name__, **parts}
    if type(value) is dict:
        return {key: _plain(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_plain(item) for item in value)
    return value


_CLASS = "a fastrace class"  # key of its name


def _whole(value: Any) -> Any:
    if isinstance(value, dict):
        parts = {key: _whole(item) for key, item in value.items() if key != _CLASS}
        if _CLASS not in value:
            return parts
        cls = _CLASSES[value[_CLASS]]
        names = {part.name: part.default is dataclasses.MISSING for part in dataclasses.fields(cls)}
        if not set(parts) <= set(names) or not all(name in parts for name, needed in names.items() if needed):
            raise ValueError(f"a {value[_CLASS]} has other fields")
        return cls(**parts)
    if isinstance(value, (list, tuple)):
        return type(value)(_whole(item) for item in value)
    return value
