"""Checkpoints on disk: written whole or not at all, checked byte by byte, and never over another run's.

A file is a header and its content. The header holds a magic word, the kind and version of the content, the run that
wrote it, and the SHA-256 of all of these with the content. `pack` and `unpack` turn numbers, words, arrays and
containers of them into content without code: JSON, and the arrays in NumPy's npz.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import secrets
import struct
from pathlib import Path
from typing import Any

import numpy as np

from fastrace._base import _checks

__all__ = ["file_path", "kind_of", "pack", "read", "unpack", "write"]

_MAGIC = b"\x93fastrace"
_HEAD = struct.Struct("<9s32sI32sQ")  # magic, kind, version, SHA-256 of the run, length of the content
_CHECKSUM = hashlib.sha256().digest_size


def file_path(path: str | os.PathLike[str], name: str = "checkpoint") -> Path:
    """The path of a file that can be made, links followed; `name` is what errors call it.

    Raises
    ------
    ValueError
        If it is a folder, or is in a folder that does not exist.
    TypeError
        If it is no path.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"{name} is {_checks.shown(path)}; the path of a file is needed, a str or a pathlib.Path")
    real = Path(os.path.realpath(path))
    if real.is_dir():
        raise ValueError(f"{name} is {os.fspath(path)!r}, a folder; the path of a file is needed")
    if not real.parent.is_dir():
        raise ValueError(f"{name} is {os.fspath(path)!r}; its folder does not exist")
    return real


def write(path: Path, kind: str, version: int, run: str, content: bytes | memoryview) -> None:
    """Put a file in its place in one step, on the disk before this returns.

    Parameters
    ----------
    path : Path
        As `file_path` gives it.
    kind : str
        What the content is, such as "chains"; at most 32 bytes.
    version : int
        Of the content's format.
    run : str
        Tells this run from others.
    content : bytes-like

    Raises
    ------
    ValueError
        If the path holds a file of another kind or run: that file stays as it is.
    OSError
        If the file cannot be written: what was there before is still there.
    """
    head = _HEAD.pack(_MAGIC, kind.encode("ascii"), version, _digest(run), memoryview(content).nbytes)
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
        found = file.read(_HEAD.size)
        if len(found) < _HEAD.size or _HEAD.unpack(found)[:2] != _HEAD.unpack(head)[:2]:
            raise ValueError(f"{str(path)!r} holds no {kind} of fastrace and is not overwritten; "
                             f"move it away, or give another path")
        if _HEAD.unpack(found)[3] != _digest(run):
            raise ValueError(f"{str(path)!r} holds {kind} of another run and is not overwritten; "
                             f"move it away, or give another path")
    beside = path.with_name(f".{path.name[:200]}.{secrets.token_hex(8)}.new")
    try:
        with open(beside, "xb") as file:
            file.write(head + _checksum(head, content))
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
    _sync_folder(path.parent)


def read(path: Path, kind: str, version: int) -> memoryview:
    """The content of a file of this kind and version, every byte of it checked.

    Raises
    ------
    ValueError
        If the file is of another kind or version, or a byte of it is not the one that was written.
    OSError
        If it cannot be read.
    """
    whole = memoryview(path.read_bytes())
    start = _HEAD.size + _CHECKSUM
    if whole[: len(_MAGIC)] != _MAGIC:
        raise ValueError(f"{str(path)!r} holds no {kind} of this fastrace; remove it to begin anew, or give another "
                         f"path")
    head, content = whole[: _HEAD.size], whole[start:]
    if len(whole) < start or whole[_HEAD.size : start] != _checksum(head, content):
        raise ValueError(f"{str(path)!r} is damaged: its checksum is not that of its {len(whole)} bytes; remove it to "
                         f"begin anew")
    _, found, version_found, _, _ = _HEAD.unpack(head)
    word = _word(found)
    if word != kind:
        raise ValueError(f"{str(path)!r} holds {word}, not {kind}; give another path")
    if version_found != version:
        raise ValueError(f"{str(path)!r} is of version {version_found}; this fastrace reads version {version}: "
                         f"remove it to begin anew")
    return content


def kind_of(path: Path) -> str | None:
    """The kind that the header names, not yet checked; None if there is no header."""
    with open(path, "rb") as file:
        head = file.read(_HEAD.size)
    if len(head) < _HEAD.size or not head.startswith(_MAGIC):
        return None
    return _word(_HEAD.unpack(head)[1])


def pack(value: Any) -> memoryview:
    """Numbers, strings, bytes, arrays, and lists, tuples and dicts of them as bytes that hold no code.

    Raises
    ------
    TypeError
        If there is anything else in them.
    """
    arrays: list[np.ndarray[Any, Any]] = []
    tree = json.dumps(_packed(value, arrays)).encode()
    out = io.BytesIO()
    np.savez(out, np.frombuffer(tree, np.uint8), *arrays, allow_pickle=False)
    return out.getbuffer()


def unpack(content: bytes | memoryview) -> Any:
    """What `pack` was given."""
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        arrays = [archive[f"arr_{i}"] for i in range(len(archive.files))]
    return _unpacked(json.loads(arrays[0].tobytes()), arrays)


def _packed(value: Any, arrays: list[np.ndarray[Any, Any]]) -> Any:
    """As JSON: plain values as they are, all else as a list that begins with its type."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) in (list, tuple):
        return [type(value).__name__, *(_packed(item, arrays) for item in value)]
    if type(value) is dict:
        return ["dict", *([_packed(key, arrays), _packed(item, arrays)] for key, item in value.items())]
    if type(value) is bytes:
        arrays.append(np.frombuffer(value, np.uint8))
        return ["bytes", len(arrays)]
    if isinstance(value, np.generic) or type(value) is np.ndarray:
        array = np.asarray(value)
        if not array.dtype.hasobject:
            arrays.append(array)
            return ["array" if isinstance(value, np.ndarray) else "scalar", len(arrays)]
    raise TypeError(f"cannot store a {type(value).__qualname__}; only numbers, strings, bytes, arrays of numbers, and "
                    f"lists, tuples and dicts of them can be stored without pickle")


def _unpacked(value: Any, arrays: list[np.ndarray[Any, Any]]) -> Any:
    if not isinstance(value, list):
        return value
    name, *items = value
    if name == "dict":
        return {_unpacked(key, arrays): _unpacked(item, arrays) for key, item in items}
    if name in ("list", "tuple"):
        parts = [_unpacked(item, arrays) for item in items]
        return parts if name == "list" else tuple(parts)
    array = arrays[items[0]]
    return array.tobytes() if name == "bytes" else array[()] if name == "scalar" else array


def _word(kind: bytes) -> str:
    return kind.rstrip(b"\0").decode("ascii", "replace")


def _digest(run: str) -> bytes:
    return hashlib.sha256(run.encode()).digest()


def _checksum(head: bytes | memoryview, content: bytes | memoryview) -> bytes:
    checksum = hashlib.sha256(head)
    checksum.update(content)
    return checksum.digest()


def _sync_folder(folder: Path) -> None:
    """Put the new name itself on the disk, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
