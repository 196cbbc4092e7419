"""What the signature of a compiled callback says."""

from __future__ import annotations

import ctypes
import re
from typing import Any

from fastrace._base._checks import shown

_INTEGER_SIZES = {
    "short": ctypes.sizeof(ctypes.c_short), "int": ctypes.sizeof(ctypes.c_int), "long": ctypes.sizeof(ctypes.c_long),
    "long long": ctypes.sizeof(ctypes.c_longlong), "int32_t": 4, "int64_t": 8, "npy_int32": 4, "npy_int64": 8,
    "intptr_t": ctypes.sizeof(ctypes.c_ssize_t), "npy_intp": ctypes.sizeof(ctypes.c_ssize_t),
    "Py_ssize_t": ctypes.sizeof(ctypes.c_ssize_t), "ssize_t": ctypes.sizeof(ctypes.c_ssize_t),
    "ptrdiff_t": ctypes.sizeof(ctypes.c_ssize_t), "Py_intptr_t": ctypes.sizeof(ctypes.c_ssize_t),
}


def signature_types(signature: str) -> tuple[tuple[str | int, int], ...] | None:
    """The types in a C signature, integers by their size: makers of callbacks spell one type in many ways."""
    match = re.fullmatch(r"(.*?)\((.*)\)", signature.strip(), re.DOTALL)
    if match is None:
        return None
    types = []
    for text in [match[1], *match[2].split(",")]:
        words = [word for word in re.findall(r"\w+", text) if word not in ("const", "signed", "__restrict", "restrict")]
        if len(words) > 1 and words[-1] == "int":      # long int
            words.pop()
        name = " ".join(words)
        size = _INTEGER_SIZES.get(name)
        types.append((name if size is None else size, text.count("*")))
    return tuple(types)


def density_address(callback: Any) -> int:
    """Where the code of a compiled log density stands: a `numba.cfunc` or a `scipy.LowLevelCallable`.

    Raises
    ------
    ValueError
        If it is neither, or has other arguments than the parameters, their number and where to write the gradient.
    """
    needed = "double (double *, intptr_t, double *)"
    if is_low_level(callback):
        capsule = tuple.__getitem__(callback, 0)
        name, pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
        name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        signature = name(capsule)
        if signature_types(signature.decode()) != signature_types(needed):
            raise ValueError(f"function has signature {signature.decode()!r}; {needed!r} is needed")
        return int(pointer(capsule, signature))
    if not hasattr(callback, "address"):
        raise ValueError(f"function is {shown(callback)}; a numba.cfunc or a scipy.LowLevelCallable is needed")
    form = callback.ctypes
    if len(form.argtypes) != 3 or form.restype is not ctypes.c_double:
        raise ValueError(f"function is {shown(callback)} of {len(form.argtypes)} arguments; {needed!r} is needed")
    return int(callback.address)


def is_low_level(callback: Any) -> bool:
    """Whether this is a `scipy.LowLevelCallable`."""
    if not isinstance(callback, tuple):     # SciPy's class is a tuple; most objects need no import to be told apart
        return False
    from scipy import LowLevelCallable
    return isinstance(callback, LowLevelCallable)
