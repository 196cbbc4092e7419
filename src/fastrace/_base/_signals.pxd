# cython: cdivision=True
"""Ctrl-C in compiled loops."""

from cpython.exc cimport PyErr_CheckSignals


cdef inline int check_signals() except -1 nogil:
    """Let Ctrl-C through. Takes the GIL: call it once per block, not per row."""
    with gil:
        PyErr_CheckSignals()
    return 0
