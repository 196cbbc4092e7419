"""The hunt for the row that spoiled the sum of a full pass."""

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t

from fastrace.sources cimport Source

import numpy as np


cdef object bad_row(Source source, arms, bint settles=True):
    """(row, whether a reward was -inf): the first row with a reward, or a difference of two, that is nan or +inf.

    The row is None if there is none. If -inf does not settle what an arm is, it counts as the others do.
    """
    cdef int64_t first
    impossible = False
    for first in range(0, source.n_rows, ROWS_PER_CALL):
        rewards = source.read(np.arange(first, min(first + ROWS_PER_CALL, source.n_rows)), arms)
        values = rewards[:, 1] - rewards[:, 0] if rewards.shape[1] == 2 else rewards[:, 0]
        bad = np.flatnonzero(np.isnan(values) | (values == np.inf) | ((values == -np.inf) & (not settles)))
        if bad.size:
            return first + int(bad[0]), impossible
        impossible = impossible or bool((values == -np.inf).any())
        PyErr_CheckSignals()
    return None, impossible
