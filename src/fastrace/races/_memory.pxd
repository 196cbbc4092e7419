"""What races keep: one value per arm, rewards, comparisons, the order of rows. `_core.Race` adds the loop."""

from libc.stdint cimport int64_t
cimport numpy as cnp

from fastrace._base._guard cimport guard_t
from fastrace._base._types cimport moments4_t
from fastrace._draws._row_order cimport RowOrder
from fastrace._math._betting cimport bets_t, wealth_t


cdef class RaceMemory:
    cdef readonly Py_ssize_t n_arms
    cdef readonly int64_t n_rows
    cdef guard_t guard              # level 1 is for the subclass that runs the loop
    cdef bint pairwise, betting
    cdef readonly double epsilon    # how far below the best a mean may be; 0: the best is asked for
    cdef RowOrder order             # of the rows of this race
    cdef bets_t bets
    # one value per arm; the arrays own the memory, the pointers are for the loops
    cdef readonly cnp.ndarray _offset, _known, _low, _high, _sum, _new_sum, _scratch, _mean, _half_width, _pulls
    cdef readonly cnp.ndarray _active, _dead, _still, _held, _wait, _spread, _measured
    cdef readonly cnp.ndarray _head, _chosen, _evidence, _beaten_by, _difference_lower, _difference_upper
    cdef readonly cnp.ndarray _compared, _absent, _lost, _new_lost
    cdef double *offset             # the race's own constants, on the scale of sums
    cdef double *shift              # what the source knows of the sums beside its rewards
    cdef double *low
    cdef double *high
    cdef double *sum
    cdef double *new_sum
    cdef double *scratch            # one value per active arm
    cdef double *mean
    cdef double *half_width
    cdef int64_t *pulls
    cdef Py_ssize_t *active
    cdef char *dead
    cdef char *still                    # whether rewards of an arm are known to be 0 in every row; by who runs a source
    cdef char *held                 # whether the tail of this arm's rewards has held a decision back
    cdef double *wait               # rows to be read before the leader may drop this arm; by `_judge`
    cdef char *head                 # whether an arm is one of those that lead, as of the last look
    cdef char *chosen               # whether it has beaten all but the best ones, and is read no more
    cdef int64_t *absent            # of the rows read of an arm, how many were dropped
    cdef int64_t *lost              # missing rewards of an arm
    cdef int64_t *new_lost          # the same with the look that is being read
    cdef double *evidence           # for the answer, against this arm; see `_judge`
    cdef int64_t *beaten_by         # how many of those that lead have beaten it at this look
    cdef Py_ssize_t n_active
    # rewards read, a column per arm (pairwise), or one block of them (marginal)
    cdef double **column
    cdef double **block             # of each active arm: where its next rewards go
    cdef Py_ssize_t *capacity
    cdef char *marks                # of the rows read: whether a reward was missing, so that the row was dropped
    cdef Py_ssize_t marks_capacity
    cdef int64_t *rows
    # comparisons with each arm that has led in this race (pairwise), or moments of each arm (marginal, arm 0's slot)
    cdef Py_ssize_t *slot           # of an arm that has led, or -1
    cdef Py_ssize_t *leader_of      # a slot
    cdef Py_ssize_t n_slots, n_made
    cdef moments4_t **moments
    cdef wealth_t **wealth          # of bets against "the arm is not below the one that led"
    cdef wealth_t **within          # of bets against "it is above by epsilon or more"; NULL if epsilon is 0
    cdef moments4_t *new_moments
    # progress
    cdef int64_t n_read                 # rows, of each arm still in the race
    cdef int64_t n_dropped, new_dropped     # rows that were dropped; the same with the look that is being read
    cdef int64_t n_kept                 # rows whose rewards are in `column` (pairwise)
    cdef int64_t spent                  # rewards asked for
    cdef Py_ssize_t looks_taken, leader
    cdef Py_ssize_t compared_with       # whom `_difference_lower` and `_difference_upper` are differences to; or -1
    cdef bint full_pass, opened, unjudged
    cdef int status, flags
    cdef moments4_t closest
    # over all races of this object
    cdef readonly int64_t evaluations, n_draws, n_exact, n_looks_taken, n_skewed
    cdef readonly double fractions
    cdef int all_flags

    cdef int reserve(self, Py_ssize_t room) except -1 nogil
    cdef int reserve_marks(self, Py_ssize_t room) except -1 nogil
    cdef int reserve_arm(self, Py_ssize_t i, Py_ssize_t room) except -1 nogil
    cdef moments4_t *comparisons(self, Py_ssize_t arm) except NULL nogil
    cdef void measure(self) noexcept nogil
    cdef void forget_comparisons(self) noexcept nogil
