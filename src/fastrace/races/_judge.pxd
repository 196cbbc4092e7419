"""Who is still in a race: comparisons with the leader, half-widths, tails. `_core.Race` adds the loop that reads."""

from libc.stdint cimport int64_t
cimport numpy as cnp

from fastrace._base._types cimport moments4_t
from fastrace._math._betting cimport wealth_t
from fastrace._math._rule cimport look_t
from fastrace.races._scores cimport RaceScores

cdef enum:      # why a race ended; places in `_judge.STOPPED_BY`
    RUNNING = 0
    BY_BOUND = 1
    BY_EXACT = 2
    SINGLE = 3
    BY_BUDGET = 4
    BY_EPSILON = 5

cdef enum:      # what may void the promise
    OUTSIDE_SUPPORT = 1
    CONSTANT_FIRST_LOOK = 2
    SKEWED = 4
    IMPOSSIBLE_REWARD = 8
    HELD_BACK = 16
    MISSING_REWARD = 32
    FAR_FROM_ZERO = 64

cdef enum:      # what becomes of a missing reward, nan; places in `_judge.MISSING`
    RAISE = 0
    DROP = 1        # the row leaves the population
    WORST = 2       # it counts as the low end of the support


cdef class RaceJudge(RaceScores):
    cdef int bound                      # of `_math._rule`
    cdef bint guarded, tails            # heuristics of the normal rule against skewed rewards
    cdef bint bounded_support
    cdef int missing                    # what becomes of a missing reward
    cdef double fill_low, fill_high, filler     # what a dropped row shows for every arm, and where that may lie
    cdef bint patient                   # rewards cost nothing: wait to the end for one
    cdef Py_ssize_t dropped_now         # rows with a missing reward in the block that is absorbed
    cdef int new_flags                  # of the look that is being read
    cdef Py_ssize_t n_best              # how many arms are asked for
    # the plan: when to look, and what each look may spend
    cdef Py_ssize_t n_looks
    cdef cnp.ndarray _looks, _quantiles
    cdef int64_t *look                  # rows read at each look; the last reads all
    cdef double *quantile               # standard errors of the normal rule
    cdef double log_inv_delta           # of one comparison at one look
    cdef look_t now                     # half-widths by moments; written by `_choose_width`
    cdef double closest_ratio           # of lead and half-width, of the comparison `closest`
    cdef cnp.ndarray _least
    cdef double *least                  # weakest evidence of a head against any arm at this look

    cdef void _begin(self) noexcept nogil
    cdef int _commit(self, int64_t n) except -1 nogil
    cdef int _listen(self, int64_t n) except -1 nogil
    cdef Py_ssize_t _first_of_means(self, int64_t n) noexcept nogil
    cdef double _whole_mean(self, Py_ssize_t i, double total, double rows) noexcept nogil
    cdef int _finish(self, const double *total) except -1 nogil
    cdef double _lead(self, Py_ssize_t head, Py_ssize_t i) noexcept nogil
    cdef double _present(self) noexcept nogil
    cdef void _line_up(self) noexcept nogil
    cdef void _settle(self) noexcept nogil
    cdef void _decide_without_rows(self) noexcept nogil
    cdef int _judge(self) except -1 nogil
    cdef double _rows_needed(self) except -1.0 nogil
    cdef bint _is_dead(self, Py_ssize_t i) noexcept nogil
    cdef Py_ssize_t _line_up_heads(self) noexcept nogil
    cdef int _weigh_pair(self, Py_ssize_t head, Py_ssize_t i, moments4_t *lead, bint *all_near) except -1 nogil
    cdef void _let_go(self, Py_ssize_t n_heads, Py_ssize_t n_out, bint over) noexcept nogil
    cdef bint _beats(self, const moments4_t *own, moments4_t *lead, Py_ssize_t head, Py_ssize_t i, double shift,
                     double *width, double *evidence) except -1 nogil
    cdef void _choose_width(self) noexcept nogil
    cdef double _width(self, const moments4_t *m, Py_ssize_t i, Py_ssize_t j) noexcept nogil
    cdef double _weigh_tails(self, const moments4_t *own, moments4_t *lead, Py_ssize_t leader, Py_ssize_t i, double gap,
                             double width) except -1.0 nogil
    cdef void _wait_for(self, Py_ssize_t column, Py_ssize_t i, double rows) noexcept nogil
    cdef int _column_moments(self, Py_ssize_t arm, moments4_t *m) except -1 nogil
    cdef double _tail_rows(self, const moments4_t *m, Py_ssize_t arm, Py_ssize_t leader, Py_ssize_t i, double side,
                           double gap) noexcept nogil
    cdef int _catch_up(self, Py_ssize_t leader, Py_ssize_t i) except -1 nogil
    cdef int _bet(self, wealth_t *w, Py_ssize_t leader, Py_ssize_t i, double shift, double lift,
                  int64_t rows) except -1 nogil
    cdef Py_ssize_t _run_of_marks(self, int64_t start, Py_ssize_t most) noexcept nogil
