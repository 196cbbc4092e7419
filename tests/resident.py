"""Resident memory of this process, robust against what its other parts do meanwhile."""

import contextlib
import ctypes
import gc
import os
import sys
import time
import tracemalloc

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


def assert_allocates_at_most(most, call, attempts=5):
    """Fail if what each of several calls returned holds more bytes, those not yet written to included.

    Pages say less: of a block with pages of its own those not written to are not resident, but of a block that fills a
    hole between others all are, and a process that has run many tests has such holes. Blocks that compiled code gets
    from C are not counted.
    """
    held = []
    for _ in range(attempts):           # other threads, and what is loaded once, are counted too
        gc.collect()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            result = call()
            held.append(tracemalloc.get_traced_memory()[0] - before)
        finally:
            tracemalloc.stop()
        del result
        if held[-1] <= most:
            return
    raise AssertionError(f"the results of {attempts} calls in turn held {held} bytes; at most {most} are let pass")


def assert_calls_keep_nothing(call, most):
    """A block that is lost has 16 bytes at least: 20,000 calls that lose one each grow beyond 256 kB.

    There are `most` calls, or 60 to 300 if that is 300; of 10^6, those of less than 6 microseconds are made, and slower
    ones for 6 seconds. A leak grows every time; what other parts of the process keep once does not.
    """
    begun = time.process_time()
    for _ in range(10):
        call()
    each = (time.process_time() - begun) / 10
    times = int(min(most, max(60, (6.0 if most > 300 else 0.02) / each)))
    for _ in range(max(3, times // 10)):
        call()
    for _ in range(5):
        gc.collect()
        blocks, before = sys.getallocatedblocks(), resident()
        for _ in range(times):
            call()
        gc.collect()
        blocks, grown = sys.getallocatedblocks() - blocks, resident() - before
        if blocks <= min(100, max(48, times // 2)) and grown <= 256 * 1024:
            return
    raise AssertionError(f"{times} calls kept {blocks} blocks, {grown} bytes, five times over")
