"""Compiled loop of LUCB by pairs, for rules that know other evidence of a mean."""

from libc.stdint cimport int64_t

from fastrace._math._pairs cimport MOST_BETS, ladder_t, spread_t
from fastrace.select._lucb cimport LucbSelector

cdef enum:
    EVEN = 16           # pulls of an arm, until which a small budget is shared evenly
    DEPTH = 60          # halvings of a range of cuts: the last ranges are as fine as doubles
    END_STEPS = 50      # halvings towards the end of an interval

cdef struct side_wealth_t:      # of a range of cuts, for the arms of one side
    double middle, left, right  # least evidence in the middle, and a bound from below at either end
    Py_ssize_t arm              # whose it is in the middle; -1: all are certain there


cdef struct live_t:             # of a search: the first `size` arms may refuse
    Py_ssize_t size
    Py_ssize_t *arm
    double *left                # ends of lines below their evidence in a range of cuts
    double *right


cdef class PairSelector(LucbSelector):
    cdef ladder_t ladder
    cdef double[2][MOST_BETS] toll  # by side: of `ladder`, at the floor `toll_at`
    cdef double[2] toll_at
    cdef int[2] n_tolls             # how many of them there are
    cdef double *within             # of an arm: sum of x (1 - x), for rewards scaled to [0, 1]
    cdef double *within_high        # and of x^2 (1 - x)
    cdef double goal                # log(1 / delta)
    cdef bint small                 # the call in progress has a small budget
    cdef double carry               # pulls that the chosen arms are owed, or have had too many
    cdef int turn                   # of the eight in which the pair on top, apart already, is pulled once
    cdef Py_ssize_t[2] held         # chosen, other; -1: none
    cdef double least               # evidence found where a search failed
    cdef double failed              # the cut where it did, for the goal; nan: none has
    cdef int64_t spent              # wealths that tests whether to stop have taken
    cdef live_t[2] live             # by side
    cdef Py_ssize_t only            # of its side, a search is about this arm alone; -1: about all

    cdef spread_t _spread(self, Py_ssize_t i, int k) noexcept nogil
    cdef double _variance(self, Py_ssize_t i) noexcept nogil
    cdef double _cut(self, Py_ssize_t i, Py_ssize_t j, double *size) noexcept nogil
    cdef double _wealth(self, Py_ssize_t i, int k, double cut, double *slope) noexcept nogil
    cdef double _evidence(self, Py_ssize_t i, int k, double cut, double *slope) noexcept nogil
    cdef double _over(self, Py_ssize_t i, int k, double a, double b, double *left, double *right) noexcept nogil
    cdef double _pair(self, Py_ssize_t i, Py_ssize_t j) noexcept nogil
    cdef double _share(self, Py_ssize_t i, Py_ssize_t j, double pulls) noexcept nogil
    cdef int _side(self, int k, double a, double b, side_wealth_t *found) except -1 nogil
    cdef void _prune(self, int k, const side_wealth_t *other, double level) noexcept nogil
    cdef double _least(self, Py_ssize_t i, Py_ssize_t j, double a, double b) noexcept nogil
    cdef int _suffices(self, double a, double b, double level, int depth) except -1 nogil
    cdef int _suffice(self, double a, double b, double level, int depth) except -1 nogil
    cdef int _search(self, double level) except -1 nogil
    cdef int _are_best(self) except -1 nogil
    cdef bint _refused(self, Py_ssize_t weakest, Py_ssize_t rival) noexcept nogil
    cdef double _log_bound(self, double slack) except? 1.0 nogil
    cdef int _note_error(self) except -1 nogil
    cdef int64_t _aside(self, Py_ssize_t *weakest, Py_ssize_t *rival) noexcept nogil
