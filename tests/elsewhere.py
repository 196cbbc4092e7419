"""Another process, begun anew and without threads, for what must hold there too: one for all tests of a session."""

import functools
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool


@functools.cache
def _process():
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))


def call(function, *arguments):
    """What a function of a module returns, called in the other process; `BrokenProcessPool` if that dies of it."""
    try:
        return _process().submit(function, *arguments).result()
    except BrokenProcessPool:
        _process.cache_clear()          # the next test gets another one
        raise
