"""Who is still in a race of sums over populations of different sizes. `_unequal` adds the loop that reads."""

from libc.stdint cimport int64_t
cimport numpy as cnp

from fastrace._base._guard cimport guard_t
from fastrace._draws._keyed_order cimport keyed_order_t
from fastrace._math._moments cimport moments4_t, running_t

cdef enum:
    LAST_LOOK = 5
    MOST_LOOKS_PER_ARM = 20     # far more than an arm can be wanted for

cdef struct population_t:   # ordered by size: a million of them stand side by side
    keyed_order_t order     # of its rows; `order.n` is how many it has
    running_t seen          # of a scanned arm, `m2` is only a bound
    moments4_t shape        # of the same rewards, for their skewness; only where tails are guarded
    int64_t pulls
    double known            # what is added to the sum: offset, and the source's known part
    double low, high        # of one reward
    double largest          # absolute value of a reward seen
    double half_width       # of the comparison with the leader at the last look
    double sum              # estimated; -inf where nothing is known
    double half_of_sum      # half-width of that estimate
    double highest          # what the sum can be at most, given the support
    int level               # looks at this arm
    char wanted             # to be read for the next look
    char stale              # whether `sum`, `half_of_sum` and `highest` are of an earlier look
    char active
    char impossible         # a reward of -inf has been seen
    char scanned            # read in order, without a variance
    char held               # whether a decision waited for more of its rewards


cdef class UnequalJudge:
    cdef readonly Py_ssize_t n_arms
    cdef readonly int n_looks           # taken
    cdef readonly bint outside          # whether a reward lay outside the support
    cdef bint strict                    # refuse such rewards
    cdef readonly bint constant         # whether a comparison had to wait for rewards that differ
    cdef readonly bint far              # whether sums were compared that rounding hides from each other
    cdef population_t *arm
    cdef int64_t first_look
    cdef double temperature, log_inv_delta
    cdef double pooling, pooled         # rows that the variance within all arms counts for, and that variance
    cdef int bound, status
    cdef bint student, adaptive, tails
    cdef guard_t guard                  # level 1: until the orders of rows are drawn or restored
    cdef bint stale                     # whether what is known beside the rewards has changed since the last look
    cdef Py_ssize_t best
    cdef cnp.ndarray _quantile, _offset
    cdef double *quantile               # one for all, or one per arm and look
    cdef bint by_arm

    cdef int _start(self) except -1
    cdef int _know(self, shifts) except -1
    cdef bint _untouched(self) noexcept nogil
    cdef Py_ssize_t _n_active(self) noexcept nogil
    cdef int64_t _target(self, const population_t *arm) noexcept nogil
    cdef int64_t _rows_at(self, const population_t *arm, int level) noexcept nogil
    cdef double _spread(self, const population_t *arm) noexcept nogil
    cdef double _half_width(self, const population_t *arm, double share, double quantile) noexcept nogil
    cdef double _quantile_of(self, Py_ssize_t i) noexcept nogil
    cdef double _estimate(self, const population_t *arm) noexcept nogil
    cdef double _lowest(self, const population_t *arm) noexcept nogil
    cdef double _highest(self, const population_t *arm) noexcept nogil
    cdef double _with_rest(self, const population_t *arm, double reward) noexcept nogil
    cdef int _refresh(self, Py_ssize_t i) except -1 nogil
    cdef void _pool(self) noexcept nogil
    cdef Py_ssize_t _leader(self) noexcept nogil
    cdef double _floor(self, Py_ssize_t leader) noexcept nogil
    cdef double _reach_of_tail(self, Py_ssize_t i, double side) noexcept nogil
    cdef bint _hides_tail(self, Py_ssize_t i, double side, double gap) noexcept nogil
    cdef bint _out_of_reach(self, Py_ssize_t i, Py_ssize_t leader, double lowest) noexcept nogil
    cdef bint _lost(self, const population_t *arm, const population_t *other) noexcept nogil
    cdef int _look(self) except -1 nogil
    cdef double _reach(self, const population_t *arm) noexcept nogil
    cdef double _gain(self, const population_t *arm) noexcept nogil
    cdef int _choose(self) except -1 nogil
    cdef int _settle(self) except -1 nogil
    cdef int64_t _wanted(self, Py_ssize_t i) noexcept nogil
