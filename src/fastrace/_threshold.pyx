"""Races of one mean against a threshold."""

from libc.stdint cimport int64_t
cimport numpy as cnp

import numpy as np

from fastrace._betting cimport bets_init, bets_t, wealth_extend, wealth_init, wealth_log, wealth_t

cnp.import_array()


def _wealth(x, n_rows, low, shift=0.0, cuts=(), bint mirrored=False, y=None):
    """Bet on x (minus y) plus shift, cut into calls at `cuts`: log wealth, peak and impossible after each cut."""
    cdef bets_t bets
    cdef wealth_t w
    cdef double[::1] reward = np.ascontiguousarray(x, dtype=np.float64)
    cdef double[::1] other = np.ascontiguousarray(np.zeros(0) if y is None else y, dtype=np.float64)
    cdef const double *minus = NULL
    cdef double lowest = low, added = shift
    cdef int64_t rows = n_rows
    cdef Py_ssize_t start = 0, stop
    bets_init(&bets, rows)
    wealth_init(&w)
    out = []
    for cut in [*cuts, reward.shape[0]]:
        stop = cut
        if stop > start:
            minus = &other[start] if other.shape[0] else NULL
            with nogil:
                if mirrored:
                    wealth_extend(&w, &bets, NULL, &reward[start], added, stop - start, lowest, rows)
                else:
                    wealth_extend(&w, &bets, &reward[start], minus, added, stop - start, lowest, rows)
        start = stop
        out.append((wealth_log(&w, &bets), w.peak, bool(w.impossible)))
    return out
