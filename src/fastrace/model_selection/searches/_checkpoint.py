"""Finished trainings of a search, in memory and in a file, from which a later `fit` goes on."""

from __future__ import annotations

import re
import time
import warnings
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from joblib import hash as joblib_hash

from fastrace._base import _files
from fastrace._base._words import counted
from fastrace.model_selection._parquet_rows import read_rows
from fastrace.model_selection._sklearn import num_samples, take_rows
from fastrace.model_selection.searches._workers import Failure

KIND, VERSION = "searches", 4           # of the file


@dataclass(frozen=True)
class Saved:
    """Finished trainings of an interrupted search: what it was about, its random seeds, and they themselves."""

    key: str
    seeds: Any
    parts: dict[Any, Any]
    predictions: list[Any] = field(default_factory=list)    # one `Predictions`, where there are any; not in the file

    def __len__(self) -> int:
        return len(self.parts)

    def __repr__(self) -> str:
        return f"{counted(len(self), 'training')} of a search that was not finished; its next fit goes on from them"

    def resumed(self, key: str, limit: float | None) -> dict[Any, Any]:
        """Finished trainings of the same search; one given up under a smaller time limit, or as its worker died, is
        not finished."""
        def finished(out: Any) -> bool:
            return not isinstance(out, Failure) or (
                out.limit is not None and limit is not None and limit <= out.limit)

        return {item: out for item, out in self.parts.items() if finished(out)} if self.key == key else {}


def load(path: Path | None) -> Saved | None:
    """Read a checkpoint, if there is one; every byte of it is checked, and none is run as code."""
    if path is None or not path.exists():
        return None
    key, seeds, parts = _files.unpack(_files.read(path, KIND, VERSION))
    found = {}
    for item, failed, out in parts:
        if not failed and out["failure"] is not None:
            out["failure"] = Failure(*out["failure"])
        found[item] = Failure(*out) if failed else out
    return Saved(key, seeds, found)


def _plain(value: Any) -> Any:
    """What a training gave, its numbers those of Python."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(_plain(item) for item in value)
    if value is None or isinstance(value, (bool, str)):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


class Checkpoint:
    """Writes finished trainings to a file, in one step, for at most a fifth of the time.

    What cannot be written is said once, and the search goes on: its trainings are kept in memory all the same.
    """

    def __init__(self, path: Any) -> None:
        self.path = None if path is None else _files.file_path(path)
        self.found = load(self.path)
        self.due, self.written, self.warned = 0.0, -1, False

    def begin(self, saved: Saved) -> None:
        """Refuse the file of another search, and write these trainings from now on."""
        if self.found is not None and self.found.key != saved.key:
            raise ValueError(
                f"checkpoint {str(self.path)!r} is of another search, of other data, learners, settings or splits; it "
                f"is neither used nor overwritten: move it away, or give another path"
            )
        self.saved = saved

    def save(self, last: bool = False) -> None:
        """Write what is finished, if it is time to, or the `last` time."""
        began = time.perf_counter()
        if self.path is None or len(self.saved.parts) == self.written or not (last or began >= self.due):
            return
        parts = [(item, isinstance(out, Failure), _plain(out)) for item, out in self.saved.parts.items()]
        try:
            _files.write(self.path, KIND, VERSION, self.saved.key,
                         _files.pack((self.saved.key, _plain(self.saved.seeds), parts)))
        except OSError as error:
            if not self.warned:
                warnings.warn(f"checkpoint {str(self.path)!r} cannot be written ({error}); the search goes on, its "
                              f"finished trainings are in trainings_ if it is interrupted", stacklevel=6)
            self.warned = True
        else:
            self.written = len(self.saved.parts)
        now = time.perf_counter()
        self.due = now + 4.0 * (now - began)


def fingerprint(*parts: Any) -> str:
    """A hash of what a search is about, the same in another process as far as that can be."""
    words = []
    for part in parts:
        try:
            words.append(joblib_hash(part))
        except Exception:                   # lambdas and the like do not pickle
            words.append(re.sub(r" at 0x[0-9a-f]+", "", _long(part)))
    return str(joblib_hash(words))


def _long(part: Any) -> str:
    if isinstance(part, dict):
        return "{" + ", ".join(f"{key!r}: {_long(value)}" for key, value in part.items()) + "}"
    if isinstance(part, (list, tuple)):
        return "[" + ", ".join(map(_long, part)) + "]"
    if hasattr(part, "get_params") and not isinstance(part, type):
        return f"{type(part).__qualname__}({_long(part.get_params(deep=False))})"
    return repr(part)


def head(X: Any, count: int = 64) -> Any:
    """The first rows: they show whether two fits have the same data."""
    try:
        return read_rows(take_rows(X, np.arange(min(count, num_samples(X)))))
    except Exception:
        return None
