"""BLAS on one thread, where threads of its own would cost more than they save."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import threading
from collections.abc import Iterator
from typing import Any

_lock = threading.RLock()
_scopes: dict[object, int] = {}  # the scopes that are open, each with the thread that it is in
_limit: Any = None  # of threadpoolctl, on what was loaded when the first of them began; it knows the numbers before

SLOW = 10.0  # seconds, from which on threads of BLAS are worth a word
_NUMBERS = "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"


def words_on_threads(seconds: float) -> str:
    """What to do about threads of BLAS after work of so many seconds that nothing held them back in; or nothing."""
    if not seconds >= SLOW or (os.cpu_count() or 1) == 1 or any(name in os.environ for name in _NUMBERS):
        return ""
    if importlib.util.find_spec("threadpoolctl") is not None:
        return ""
    return (f"this took {seconds:.0f} s, and BLAS could use threads of its own: on busy cores these wait for each "
            f"other, and chains take many times as long. Install threadpoolctl (python -m pip install threadpoolctl), "
            f"or set OPENBLAS_NUM_THREADS=1 before Python starts")


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold BLAS to one thread within a block or a decorated function, if threadpoolctl is there.

    Small matrices gain nothing from threads, and on busy cores these spin and wait for each other. The number of
    threads belongs to the process, and scopes of several Python threads may overlap: the first to begin notes the
    numbers, and the last to end gives them back. NumPy and SciPy bring a BLAS each; one that is loaded while a scope is
    open keeps its threads. So does BLAS on OpenMP, whose number belongs to each thread.
    """
    scope = object()
    try:
        _open(scope)
        yield
    finally:
        _close(scope)


def _open(scope: object) -> None:
    global _limit
    with _lock:
        _scopes[scope] = threading.get_ident()
        if len(_scopes) == 1:
            _limit = _limited()


def _limited() -> Any:
    """A limit that holds now; None where threadpoolctl is missing, or there is nothing to hold."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    found = ThreadpoolController()
    threaded = [lib["filepath"] for lib in found.info()
                if lib["user_api"] == "blas" and lib.get("threading_layer") != "openmp" and lib["num_threads"] > 1]
    if not threaded:
        return None
    limit = found.select(filepath=threaded).limit(limits=1)
    held = {lib["filepath"]: lib["num_threads"] for lib in found.info()}
    if all(held[path] == 1 for path in threaded):
        return limit
    limit.restore_original_limits()  # another thread of the user's controls the numbers, and will set them itself
    return None


def _close(scope: object) -> None:
    """Also where `_open` was interrupted."""
    global _limit
    with _lock:
        _scopes.pop(scope, None)
        if not _scopes and _limit is not None:
            from threadpoolctl import OpenBLASController

            # From threadpoolctl 3.7 on only the thread that set a number may change it, until it is released.
            release = getattr(OpenBLASController, "clear_controlling_thread", lambda force: None)
            release(force=True)
            _limit.restore_original_limits()
            release(force=True)
            _limit = None


def _after_fork() -> None:
    """In a forked process scopes of other threads have no end."""
    _lock.release()
    for scope in [scope for scope, thread in _scopes.items() if thread != threading.get_ident()]:
        _close(scope)


if hasattr(os, "register_at_fork"):
    # The lock is held meanwhile, lest a scope is half open in the child.
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_after_fork)
