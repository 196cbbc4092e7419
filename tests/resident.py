"""Resident memory of this process, robust against what its other parts do meanwhile."""

import contextlib
import ctypes
import gc
import os

import pytest

try:            # here, and not at the first measurement, whose blocks of memory it would be taken for
    import psutil
except ImportError:
    psutil = None

LIBC = ctypes.CDLL(None) if os.name == "posix" else None
MMAP_THRESHOLD = -3             # an option of glibc's mallopt


@contextlib.contextmanager
def own_pages():
    """Arrays have pages of their own, as in a fresh process, so that what is not written to is not resident.

    By itself glibc gives pages of their own to larger and larger arrays only, up to 32 MiB, as such arrays are freed.
    """
    has_threshold = hasattr(LIBC, "mallopt")
    if has_threshold:
        LIBC.mallopt(MMAP_THRESHOLD, 1 << 17)
    yield
    if has_threshold:
        LIBC.mallopt(MMAP_THRESHOLD, 1 << 25)


def resident():
    """Bytes that the process holds, without those that C's allocator has got back and keeps for later.

    The test is skipped where psutil is missing.
    """
    gc.collect()
    if hasattr(LIBC, "malloc_trim"):
        LIBC.malloc_trim(0)
    if psutil is None:
        pytest.skip("psutil is missing")
    return psutil.Process().memory_info().rss


def assert_grows_at_most(most, call, attempts=5):
    """Fail if each of several calls adds more bytes; return what the call returned, which is held meanwhile.

    What is loaded or kept once, or by another thread, is added to one call or two; a leak to every call.
    """
    grown = []
    with own_pages():
        for _ in range(attempts):
            result = None           # what the call before it held is given back first
            before = resident()
            result = call()
            grown.append(resident() - before)
            if grown[-1] <= most:
                return result
    raise AssertionError(f"{attempts} calls in turn took {grown} bytes; at most {most:.0f} are let pass")
