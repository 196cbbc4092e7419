"""Compiled race of sums over populations of different sizes."""

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.math cimport INFINITY, NAN, fabs, isfinite, isnan, sqrt
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from numpy.random cimport bitgen_t
cimport numpy as cnp

from fastrace._base._guard cimport (guard_await, guard_build, guard_built, guard_check_built, guard_check_idle,
                                    guard_enter, guard_leave, guard_t, guarded)
from fastrace._base._signals cimport check_signals
from fastrace._draws._keyed_order cimport keyed_order_at, keyed_order_init, keyed_order_set, keyed_order_t
from fastrace._math._bounds cimport lower_end, normal_upper_quantile, upper_end, variance_factor
from fastrace._math._moments cimport (MOMENTS_BLOCK, moments4_extend, moments4_skewness, moments4_std, moments4_t,
                                      running_extend, running_t, running_variance, two_sum)
from fastrace._math._rule cimport NORMAL, constant_so_far, look_init, look_t, look_width, width_of_two
from fastrace._math._simd cimport fr_range, fr_sum
from fastrace._math._skewness cimport tail_half_width, tail_rows
from fastrace.races._judge cimport BY_BOUND, BY_EXACT, RUNNING, SINGLE
from fastrace.races._reading cimport (REWARDS_PER_ASK, ROWS_IN_ORDER_PER_CHECK, ROWS_PER_CHECK, first_bad,
                                      first_outside, read_keyed)
from fastrace.sources cimport Source

import numpy as np

from fastrace._base._checks import DamagedError, arm_error
from fastrace._math import _half_widths
from fastrace.races._judge import STOPPED_BY
from fastrace.sources import reward_outside

cnp.import_array()

N_LOOKS = 6     # tenths of the rows beyond the first look: 0, 1, 2, 4, 8, 10

cdef enum:
    LAST_LOOK = 5

cdef int[6] TENTHS = [0, 1, 2, 4, 8, 10]

cdef struct population_t:   # ordered by size: a million of them stand side by side
    keyed_order_t order     # of its rows; `order.n` is how many it has
    running_t seen
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


cdef int64_t MOST_LOOKS_PER_ARM = 20      # far more than an arm can be wanted for


cdef class UnequalCore:
    """State and loop of one race; `UnequalRace` checks the arguments and names the answer.

    Arm i is ``offset[i]`` plus the sum of its `sizes[i]` rewards over `temperature`. With the normal bound, `quantile`
    holds one number of standard errors per arm and look; else `log_inv_delta` belongs to one arm at one look. Arms are
    read all together, or, if `adaptive`, one at a time: the leader or the arm that may yet beat it.
    """

    _public_name = "UnequalRace"

    cdef readonly Py_ssize_t n_arms
    cdef readonly int n_looks           # taken
    cdef readonly bint outside          # whether a reward lay outside the support
    cdef bint strict                    # refuse such rewards
    cdef readonly bint constant         # whether a comparison had to wait for rewards that differ
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

    def __cinit__(self, sizes, *args, **kwargs):
        guard_await(&self.guard, 0)
        guard_await(&self.guard, 1)
        self.n_arms = len(sizes)
        self.arm = <population_t *>calloc(max(self.n_arms, 1), sizeof(population_t))
        if self.arm == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.arm)

    def __init__(self, sizes, *, first_look, bound, student, quantile, log_inv_delta, temperature, low, high, offset,
                 adaptive, pooling, strict=True, tails=False):
        cdef Py_ssize_t i
        cdef const int64_t[::1] size = np.array(sizes, dtype=np.int64)
        cdef const double[::1] lows, highs, constants
        cdef bint good
        cdef int64_t first = first_look
        cdef int kind = _half_widths.BOUNDS.index(bound)
        low, high = np.full(self.n_arms, low, np.float64), np.full(self.n_arms, high, np.float64)
        offset, quantile = np.array(offset, dtype=np.float64), np.ascontiguousarray(quantile, dtype=np.float64)
        good = size.shape[0] == self.n_arms >= 1 and offset.shape == (self.n_arms,)
        if good:
            lows, highs, constants = low, high, offset
            for i in range(self.n_arms):
                good &= size[i] >= 0 and constants[i] < INFINITY and lows[i] == lows[i] and highs[i] == highs[i]
        if not good:
            raise ValueError("one size, low, high and offset per arm are needed")
        if not (first >= 1 and temperature > 0.0 and pooling >= 0.0 and log_inv_delta == log_inv_delta
                and (kind != NORMAL or quantile.size in (1, self.n_arms * LAST_LOOK))):
            raise ValueError("first_look, temperature, pooling, log_inv_delta or quantile cannot be right")
        guard_build(&self.guard, 0, self)
        self._offset = offset
        self.first_look = first
        self.bound = kind
        self.student = student
        self._quantile = quantile
        self.by_arm = quantile.size > 1
        self.quantile = <double *>cnp.PyArray_DATA(self._quantile)
        self.log_inv_delta = log_inv_delta
        self.temperature = temperature
        self.adaptive = adaptive
        self.pooling = pooling
        self.strict = strict
        self.tails = tails and kind == NORMAL
        self.stale = True
        for i in range(self.n_arms):
            self.arm[i].order.n = size[i]
            self.arm[i].known = offset[i]
            self.arm[i].low = lows[i]
            self.arm[i].high = highs[i]
            self.arm[i].active = self.arm[i].known > -INFINITY
        guard_built(&self.guard, 0)

    def begin(self, rng):
        """Draw an order of rows for every arm."""
        cdef bitgen_t *bits = <bitgen_t *>PyCapsule_GetPointer(rng.bit_generator.capsule, "BitGenerator")
        cdef Py_ssize_t i
        lock = rng.bit_generator.lock
        guard_check_idle(&self.guard, self)
        guard_built(&self.guard, 1)
        guard_enter(&self.guard, self)
        try:
            with lock, nogil:
                for i in range(self.n_arms):
                    keyed_order_init(&self.arm[i].order, self.arm[i].order.n, bits)
            self._start()
        finally:
            guard_leave(&self.guard)

    cdef int _start(self) except -1:
        """Begin with what is known beside the rewards, before any row is read."""
        cdef Py_ssize_t i
        self.status = RUNNING
        self.n_looks = 0
        for i in range(self.n_arms):
            self.arm[i].active = self.arm[i].known > -INFINITY
            self.arm[i].level = 0
            self.arm[i].half_width = 0.0
        if self._n_active() == 1:
            for i in range(self.n_arms):
                if self.arm[i].active:
                    self.best = i
            self.status = SINGLE
        self.stale = True
        self._choose()
        self._settle()
        return 0

    cdef int _know(self, shifts) except -1:
        """Set what is known of each arm beside its rewards; what was decided without them and that is decided anew."""
        cdef Py_ssize_t i
        cdef const double[::1] offset = self._offset, shift = shifts
        for i in range(self.n_arms):
            self.arm[i].known = offset[i] + shift[i] / self.temperature
        self.stale = True
        if self._untouched():
            self._start()
        return 0

    cdef bint _untouched(self) noexcept nogil:
        """Whether no row has been read yet."""
        cdef Py_ssize_t i
        for i in range(self.n_arms):
            if self.arm[i].pulls > 0:
                return False
        return True

    cdef Py_ssize_t _n_active(self) noexcept nogil:
        cdef Py_ssize_t i, count = 0
        for i in range(self.n_arms):
            count += self.arm[i].active
        return count

    cdef inline int64_t _target(self, const population_t *arm) noexcept nogil:
        """Rows of an arm at its next look."""
        return self._rows_at(arm, arm.level)

    cdef inline int64_t _rows_at(self, const population_t *arm, int level) noexcept nogil:
        """Rows of an arm at the look after `level` others; each look reads at least one more until all are read."""
        cdef int64_t rest = arm.order.n - self.first_look, extra
        if rest <= 0:
            return arm.order.n
        extra = rest // 10 * TENTHS[level] + rest % 10 * TENTHS[level] // 10
        return self.first_look + min(max(extra, <int64_t>level), rest)

    cdef double _spread(self, const population_t *arm) noexcept nogil:
        """Standard deviation of the rewards of an arm; nan where it is not known."""
        cdef double variance = running_variance(&arm.seen, 1.0 if self.student or self.pooling > 0.0 else 0.0), std
        if self.pooling > 0.0:
            variance = (variance * <double>(arm.pulls - 1) + self.pooling * self.pooled) / \
                (<double>(arm.pulls - 1) + self.pooling)
        std = sqrt(variance)
        return NAN if self.bound == NORMAL and constant_so_far(std, arm.largest) else std

    cdef double _half_width(self, const population_t *arm, double share, double quantile) noexcept nogil:
        """Of the estimated sum, with log(1 / share of delta) or the normal rule's quantile."""
        cdef double std
        cdef look_t look
        if arm.pulls == arm.order.n:
            return 0.0
        std = self._spread(arm)
        if isnan(std):
            return INFINITY
        look_init(&look, self.bound, arm.pulls, arm.order.n, share, quantile)
        return look_width(&look, std, arm.high - arm.low) * (<double>arm.order.n / self.temperature)

    cdef inline double _quantile_of(self, Py_ssize_t i) noexcept nogil:
        """Of the arm's last look; 0 before the first one and once all its rows are read, when nothing can be wrong."""
        if self.bound != NORMAL or self.arm[i].level == 0 or self.arm[i].pulls == self.arm[i].order.n:
            return 0.0
        return self.quantile[i * LAST_LOOK + self.arm[i].level - 1 if self.by_arm else 0]

    cdef inline double _estimate(self, const population_t *arm) noexcept nogil:
        """The sum as its rewards suggest it."""
        return arm.known + (arm.seen.mean + arm.seen.mean_low) / self.temperature * <double>arm.order.n

    cdef inline double _lowest(self, const population_t *arm) noexcept nogil:
        """What the sum is at least, given the support."""
        return self._with_rest(arm, arm.low)

    cdef inline double _highest(self, const population_t *arm) noexcept nogil:
        """What the sum is at most, given the support."""
        return self._with_rest(arm, arm.high)

    cdef inline double _with_rest(self, const population_t *arm, double reward) noexcept nogil:
        """The sum if all rows not read had this reward."""
        cdef double read = arm.known + (arm.seen.mean + arm.seen.mean_low) / self.temperature * <double>arm.pulls
        if arm.pulls == arm.order.n:
            return read
        return read + <double>(arm.order.n - arm.pulls) * reward / self.temperature

    cdef int _refresh(self, Py_ssize_t i) except -1 nogil:
        """Estimate the sum of an arm, and what it can be at most."""
        cdef population_t *arm = &self.arm[i]
        arm.highest = self._highest(arm)
        if arm.impossible or (arm.level == 0 and arm.order.n > 0):
            arm.sum = -INFINITY
            arm.half_of_sum = INFINITY
            arm.stale = False
            return 0
        arm.sum = self._estimate(arm)
        if not arm.sum < INFINITY:
            with gil:
                raise arm_error(self, i, f"the rewards of arm {i} sum to {arm.sum} though each is finite: scale them "
                                         f"down")
        arm.half_of_sum = self._half_width(arm, self.log_inv_delta, self._quantile_of(i))
        if self.bound == NORMAL and arm.half_of_sum == INFINITY:        # rewards that agree say nothing of the rest
            self.constant = True
            arm.held = self.tails
        arm.stale = False
        return 0

    cdef void _pool(self) noexcept nogil:
        """The variance within all arms read at random."""
        cdef Py_ssize_t i
        cdef double squares = 0.0, count = 0.0
        for i in range(self.n_arms):
            if self.arm[i].seen.n > 1 and not self.arm[i].scanned:
                squares += running_variance(&self.arm[i].seen, 1.0) * <double>(self.arm[i].seen.n - 1)
                count += <double>(self.arm[i].seen.n - 1)
        self.pooled = squares / count if count > 0.0 else 0.0
        self.stale = True

    cdef Py_ssize_t _leader(self) noexcept nogil:
        """The arm with the largest estimate, the first of them; -1 before any is known."""
        cdef Py_ssize_t i, leader = -1
        for i in range(self.n_arms):
            if self.arm[i].active and not self.arm[i].impossible and self.arm[i].sum > -INFINITY and \
                    (leader < 0 or self.arm[i].sum > self.arm[leader].sum):
                leader = i
        return leader

    cdef double _floor(self, Py_ssize_t leader) noexcept nogil:
        """What the sum of the leader is at least, given its rewards and the support."""
        cdef population_t *arm = &self.arm[leader]
        return max(self._lowest(arm), arm.sum - self._reach_of_tail(leader, -1.0))

    cdef double _reach_of_tail(self, Py_ssize_t i, double side) noexcept nogil:
        """Half-width of an arm's sum, towards its right tail if `side` is 1, left if -1."""
        cdef population_t *arm = &self.arm[i]
        cdef double width = arm.half_of_sum, scale = <double>arm.order.n / self.temperature
        if not self.tails or not 0.0 < width < INFINITY:
            return width
        return scale * tail_half_width(width / scale, moments4_std(&arm.shape), side * moments4_skewness(&arm.shape),
                                       arm.pulls, arm.order.n, self._quantile_of(i))

    cdef bint _hides_tail(self, Py_ssize_t i, double side, double gap) noexcept nogil:
        """Whether a lead of `gap` between two sums must wait until more of this arm's tail has been seen."""
        cdef population_t *arm = &self.arm[i]
        cdef double skewness
        if not self.tails or arm.pulls == arm.order.n:
            return False
        skewness = side * moments4_skewness(&arm.shape)
        if tail_rows(skewness, moments4_std(&arm.shape) * skewness, gap * (self.temperature / <double>arm.order.n),
                     arm.pulls) <= <double>arm.pulls:
            return False
        arm.held = True
        return True

    cdef bint _out_of_reach(self, Py_ssize_t i, Py_ssize_t leader, double lowest) noexcept nogil:
        """Whether the support keeps an arm below the leader, which is `lowest` at least."""
        cdef double highest = self.arm[i].highest
        if not highest < lowest:
            return False
        return (leader < 0 or highest < self._lowest(&self.arm[leader])
                or not self._hides_tail(leader, -1.0, self.arm[leader].sum - highest))

    cdef int _look(self) except -1 nogil:
        """Take a look: Chen & Ghahramani (2016), Alg. 1, with the test of eq. 26 on the scale of sums."""
        cdef Py_ssize_t i, leader, left = 0
        cdef double most = -INFINITY, of_leader = 0.0, lowest = -INFINITY, width
        cdef bint wait
        cdef population_t *arm
        cdef bint all_read = True, possible = False, beaten
        if self.pooling > 0.0:
            self._pool()
        for i in range(self.n_arms):
            arm = &self.arm[i]
            if arm.wanted:
                arm.level += 1
                arm.wanted = False
                arm.stale = True
            if arm.active and (arm.stale or self.stale):
                self._refresh(i)
            possible = possible or (arm.active and not arm.impossible)
        self.stale = False
        if not possible:
            with gil:
                raise ValueError("every arm still in the race has a reward of -inf: no arm is possible")
        leader = self._leader()
        if leader >= 0:
            most = self.arm[leader].sum
            of_leader = self._reach_of_tail(leader, -1.0)
            lowest = self._floor(leader)
        for i in range(self.n_arms):
            arm = &self.arm[i]
            if not arm.active:
                continue
            if arm.impossible:
                arm.active = False
                arm.half_width = 0.0
                continue
            all_read = all_read and arm.pulls == arm.order.n
            left += 1
            if i == leader or leader < 0:
                continue
            beaten = False
            if arm.level > 0 or arm.order.n == 0:
                width = width_of_two(self.bound, of_leader, self._reach_of_tail(i, 1.0))
                arm.half_width = width
                beaten = most - arm.sum > width
                if beaten and self.tails:
                    wait = self._hides_tail(leader, -1.0, most - arm.sum)
                    beaten = not self._hides_tail(i, 1.0, most - arm.sum) and not wait
            if self.adaptive and not beaten:
                beaten = self._out_of_reach(i, leader, lowest) or (
                    arm.pulls == arm.order.n and self.arm[leader].pulls == self.arm[leader].order.n)
            if beaten:
                arm.active = False
                left -= 1
        if leader >= 0:
            self.best = leader
        self.n_looks += 1
        if self.n_looks > MOST_LOOKS_PER_ARM * (self.n_arms + 1):
            with gil:
                raise RuntimeError("the race makes no progress: its state is damaged")
        if all_read:
            self.status = BY_EXACT
            for i in range(self.n_arms):
                self.arm[i].active = i == leader
        elif left == 1:
            self.status = BY_BOUND
        self._choose()
        return 0

    cdef double _reach(self, const population_t *arm) noexcept nogil:
        """The largest sum of an arm that its rewards do not speak against."""
        if arm.level == 0 and arm.order.n > 0:
            return arm.highest
        return min(arm.highest, arm.sum + arm.half_of_sum)

    cdef double _gain(self, const population_t *arm) noexcept nogil:
        """How much a row of the arm's next look lessens what its sum adds to the (squared) half-width of a gap."""
        cdef int64_t target = self._target(arm)
        cdef double spread = arm.half_of_sum * arm.half_of_sum if self.bound == NORMAL else arm.half_of_sum
        cdef double left = variance_factor(target, arm.order.n) / variance_factor(arm.pulls, arm.order.n)
        return spread * (1.0 - left) / <double>(target - arm.pulls)

    cdef int _choose(self) except -1 nogil:
        """Say which arms the next look reads.

        If `adaptive`: the arm that reaches highest beside the leader, unless a row of the leader tells more; or all
        arms, not read yet, that can reach anything.
        """
        cdef Py_ssize_t i, leader, rival = -1
        cdef double reach, highest = -INFINITY, lowest = -INFINITY
        cdef population_t *arm
        if not self.adaptive:
            for i in range(self.n_arms):
                self.arm[i].wanted = self.arm[i].active
            return 0
        if self.stale:
            for i in range(self.n_arms):
                if self.arm[i].active:
                    self._refresh(i)
            self.stale = False
        leader = self._leader()
        if leader >= 0:
            lowest = self._floor(leader)
        for i in range(self.n_arms):
            arm = &self.arm[i]
            arm.wanted = False
            if not arm.active or i == leader:
                continue
            if self._out_of_reach(i, leader, lowest):
                arm.active = False
                continue
            reach = self._reach(arm)
            if reach == INFINITY and arm.level == 0:
                arm.wanted = True
            if rival < 0 or reach > highest:
                rival = i
                highest = reach
        if rival < 0 and leader >= 0 and self.status == RUNNING:
            self.best = leader
            self.status = BY_BOUND
        if rival < 0 or self.arm[rival].wanted:
            return 0
        arm = &self.arm[rival]
        if leader >= 0 and self.arm[leader].pulls < self.arm[leader].order.n and arm.sum > -INFINITY and \
                (arm.pulls == arm.order.n or self._gain(&self.arm[leader]) >= self._gain(arm)):
            rival = leader
        self.arm[rival].wanted = self.arm[rival].pulls < self.arm[rival].order.n
        return 0

    cdef int _settle(self) except -1 nogil:
        """Look for as long as no rows are wanted for it."""
        cdef Py_ssize_t i
        while self.status == RUNNING:
            for i in range(self.n_arms):
                if self._wanted(i) > 0:
                    return 0
            self._look()
        return 0

    cdef int _inspect(self, Py_ssize_t i, const double *rewards, Py_ssize_t count, int64_t first,
                      bint in_order) except -1 nogil:
        """Refuse nan, +inf and what is outside the support among rewards of arm i.

        They are those from position `first` on, of the arm's own order or of the rows'.
        """
        cdef population_t *arm = &self.arm[i]
        cdef Py_ssize_t bad = -1, beyond = -1
        cdef double low, high
        if not isfinite(fr_sum(rewards, count)):
            bad = first_bad(rewards, count)
        if self.strict and arm.high < INFINITY:
            fr_range(rewards, count, &low, &high)
            if bad >= 0 or low < lower_end(arm.low, arm.high) or high > upper_end(arm.low, arm.high):
                beyond = first_outside(rewards, count, lower_end(arm.low, arm.high), upper_end(arm.low, arm.high))
        if bad < 0 and beyond < 0:
            return 0
        with gil:
            if beyond < 0 or 0 <= bad < beyond:
                row = first + bad if in_order else keyed_order_at(&arm.order, first + bad)
                raise arm_error(self, i, f"the reward of arm {i} on row {row} is {rewards[bad]}; a race needs rewards "
                                         f"that are finite, or -inf for an arm that cannot win")
            row = first + beyond if in_order else keyed_order_at(&arm.order, first + beyond)
            raise arm_error(self, i, reward_outside(rewards[beyond], i, row, arm.low, arm.high))

    cdef void _take(self, Py_ssize_t i, const double *rewards, Py_ssize_t count) noexcept nogil:
        """Add inspected rewards of arm i, at most MOMENTS_BLOCK of them."""
        cdef population_t *arm = &self.arm[i]
        cdef double low, high
        fr_range(rewards, count, &low, &high)
        arm.pulls += count
        if low == -INFINITY:
            arm.impossible = True
            return
        if low < lower_end(arm.low, arm.high) or high > upper_end(arm.low, arm.high):
            self.outside = True
        arm.largest = max(arm.largest, max(fabs(low), fabs(high)))
        running_extend(&arm.seen, rewards, count)
        if self.tails:
            moments4_extend(&arm.shape, rewards, count)

    cdef int _read_in_order(self, Source source, Py_ssize_t i, double *rewards) except -1 nogil:
        """Read an arm in full, from its first row on; nothing changes before the last row is in."""
        cdef population_t *arm = &self.arm[i]
        cdef int64_t first = 0, since_check = 0
        cdef Py_ssize_t count
        cdef double sum = 0.0, rest = 0.0, part, low, high
        cdef bint impossible = False, outside = False
        while first < arm.order.n:
            count = <Py_ssize_t>min(<int64_t>MOMENTS_BLOCK, arm.order.n - first)
            source.fill_range(first, count, &i, 1, &rewards)
            part = fr_sum(rewards, count)
            if self.strict or not isfinite(part):
                self._inspect(i, rewards, count, first, True)
            if arm.high < INFINITY or not isfinite(part):
                fr_range(rewards, count, &low, &high)
                impossible = impossible or low == -INFINITY
                outside = outside or (low < lower_end(arm.low, arm.high) and low > -INFINITY)
                outside = outside or high > upper_end(arm.low, arm.high)
            sum = two_sum(sum, part, &part)
            rest += part
            first += count
            since_check += count
            if since_check >= ROWS_IN_ORDER_PER_CHECK:
                check_signals()
                since_check = 0
        arm.pulls = arm.order.n
        arm.scanned = True
        arm.impossible = impossible
        arm.seen.mean = (sum + rest) / <double>arm.order.n
        arm.seen.mean_low = 0.0
        arm.seen.n = arm.order.n
        self.outside = self.outside or outside
        return 0

    cdef int _run(self, Source source, double *rewards, int64_t *rows, double advantage) except -1 nogil:
        cdef Py_ssize_t i, count, since_check = 0
        cdef int64_t target
        while self.status == RUNNING:
            for i in range(self.n_arms):
                target = self._target(&self.arm[i]) if self.arm[i].wanted else 0
                if <double>(target - self.arm[i].pulls) * advantage > <double>self.arm[i].order.n and \
                        self.arm[i].pulls < target and not self.arm[i].impossible:
                    self._read_in_order(source, i, rewards)
                while self.arm[i].pulls < target and not self.arm[i].impossible:
                    count = <Py_ssize_t>min(<int64_t>MOMENTS_BLOCK, target - self.arm[i].pulls)
                    read_keyed(source, &self.arm[i].order, self.arm[i].pulls, count, i, rows, rewards)
                    self._inspect(i, rewards, count, self.arm[i].pulls, False)
                    self._take(i, rewards, count)
                    since_check += count
                    if since_check >= ROWS_PER_CHECK:
                        check_signals()
                        since_check = 0
            self._look()
        return 0

    def ask(self):
        """Arms and rows wanted next, one pair per reward: those of the next look, or the first of them."""
        return guarded(&self.guard, self, self._ask, ())

    def _ask(self):
        cdef Py_ssize_t i, k, total = 0
        cdef int64_t count, room = REWARDS_PER_ASK
        if self.done:
            raise ValueError("the race is over; there is nothing left to ask for")
        for i in range(self.n_arms):
            total += self._piece(i, &room)
        cdef cnp.ndarray arms = np.empty(total, dtype=np.intp)
        cdef cnp.ndarray rows = np.empty(total, dtype=np.int64)
        cdef Py_ssize_t *arm = <Py_ssize_t *>cnp.PyArray_DATA(arms)
        cdef int64_t *row = <int64_t *>cnp.PyArray_DATA(rows)
        room = REWARDS_PER_ASK
        for i in range(self.n_arms):
            count = self._piece(i, &room)
            for k in range(count):
                arm[k] = i
                row[k] = keyed_order_at(&self.arm[i].order, self.arm[i].pulls + k)
            arm += count
            row += count
        return arms, rows

    cdef inline int64_t _wanted(self, Py_ssize_t i) noexcept nogil:
        if not self.arm[i].wanted or self.arm[i].impossible:
            return 0
        # An arm that a run cut short has read in full is beyond its target.
        return max(<int64_t>0, self._target(&self.arm[i]) - self.arm[i].pulls)

    cdef inline int64_t _piece(self, Py_ssize_t i, int64_t *room) noexcept nogil:
        """Rewards of an arm that `ask` names now, of at most `room`; what is left of that for the arms after it.

        A part of a look is a multiple of the blocks in which `run` reads, so that both add rewards in the same order.
        """
        cdef int64_t count = self._wanted(i)
        if count > room[0]:
            count = room[0] - room[0] % MOMENTS_BLOCK
            room[0] = 0
        else:
            room[0] -= count
        return count

    def tell(self, rewards):
        """Take the rewards that `ask` wanted."""
        guarded(&self.guard, self, self._tell, (rewards,))

    def _tell(self, const double[::1] rewards):
        cdef Py_ssize_t i, total = 0, size
        cdef int64_t count, room = REWARDS_PER_ASK, left = 0
        cdef const double *x
        if self.done:
            raise ValueError("the race is over; it takes no more rewards")
        for i in range(self.n_arms):
            total += self._piece(i, &room)
        if rewards.shape[0] != total:
            raise ValueError(f"rewards has shape ({rewards.shape[0]},); ask() wanted ({total},), one reward per row")
        x = &rewards[0] if total > 0 else NULL
        total = 0
        room = REWARDS_PER_ASK
        for i in range(self.n_arms):
            count = self._piece(i, &room)
            self._inspect(i, x + total, count, self.arm[i].pulls, False)
            total += count
        total = 0
        room = REWARDS_PER_ASK
        for i in range(self.n_arms):
            count = self._piece(i, &room)
            while count > 0:
                size = <Py_ssize_t>min(<int64_t>MOMENTS_BLOCK, count)
                if not self.arm[i].impossible:
                    self._take(i, x + total, size)
                total += size
                count -= size
            left = max(left, self._wanted(i))
        if left > 0:
            return
        self._look()
        self._settle()

    def run(self, Source source not None, double advantage):
        """Race to the end; `advantage` is the cost of a row read at random over one read in order."""
        cdef double *rewards = NULL
        cdef int64_t *rows = NULL
        cdef Py_ssize_t i
        guard_check_built(&source.guard, source)
        guard_enter(&self.guard, self)
        try:
            if source.n_arms != self.n_arms:
                raise ValueError(f"the rewards are of {source.n_arms} arms; this race was set up for {self.n_arms}")
            for i in range(self.n_arms):
                if self.arm[i].order.n > source.n_rows:
                    raise ValueError(f"arm {i} has {self.arm[i].order.n} rewards here; the source has {source.n_rows} "
                                     f"rows")
            rewards = <double *>malloc(MOMENTS_BLOCK * sizeof(double))
            rows = <int64_t *>malloc(MOMENTS_BLOCK * sizeof(int64_t))
            if rewards == NULL or rows == NULL:
                raise MemoryError()
            if not self.done or self._untouched():
                self._know(source.shifts())
            with nogil:
                self._run(source, rewards, rows, advantage)
        finally:
            free(rewards)
            free(rows)
            guard_leave(&self.guard)

    @property
    def done(self):
        return self.status != RUNNING

    def answer(self, share, quantile, student=None):
        """What is known so far, under the names of `UnequalResult`.

        Each end of an interval may fail with probability exp(-share), or lies `quantile` standard errors from the sum;
        ``student(quantile, pulls)`` replaces the quantile. In the middle of a look only the support limits a sum.
        """
        return guarded(&self.guard, self, self._answer, (share, quantile, student))

    def _answer(self, double share, double quantile, student):
        cdef Py_ssize_t i, d = self.n_arms
        cdef double width
        cdef population_t *arm
        table = np.full((4, d), np.nan)
        pulls, kept = np.zeros(d, dtype=np.int64), np.zeros((2, d), dtype=bool)
        cdef double[::1] total = table[0], half_width = table[1], lower = table[2], upper = table[3]
        cdef int64_t[::1] read = pulls
        cdef char[:, ::1] flag = kept.view(np.int8)
        cdef const double[::1] limits = None
        if self.pooling > 0.0:
            self._pool()
        for i in range(d):
            read[i] = self.arm[i].pulls
        if student is not None:
            limits = np.ascontiguousarray(student(quantile, np.maximum(pulls, 1)))
        for i in range(d):
            arm = &self.arm[i]
            flag[0, i], flag[1, i] = arm.active != 0, arm.held != 0
            if self.n_looks and arm.pulls and i != self.best:
                half_width[i] = arm.half_width
            lower[i], upper[i] = -INFINITY, INFINITY
            if arm.impossible or arm.known == -INFINITY:
                total[i] = lower[i] = upper[i] = -INFINITY
            elif arm.pulls == arm.order.n:
                total[i] = lower[i] = upper[i] = self._estimate(arm)
            elif arm.pulls > 0:
                width = INFINITY
                if arm.level > 0 and arm.pulls == self._rows_at(arm, arm.level - 1):
                    width = self._half_width(arm, share, quantile if student is None else limits[i])
                total[i] = self._estimate(arm)
                # Rows not read lie within the support, which the estimate keeps if a reward has left it.
                lower[i] = max(total[i] - width, min(total[i], self._lowest(arm)))
                upper[i] = min(total[i] + width, max(total[i], self._highest(arm)))
            else:
                lower[i], upper[i] = self._lowest(arm), self._highest(arm)
            if total[i] == -INFINITY or (arm.pulls == arm.order.n and i == self.best):
                half_width[i] = 0.0
        return dict(best=self.best, active=np.flatnonzero(kept[0]), total=table[0].copy(), lower=table[2].copy(),
                    upper=table[3].copy(), half_width=table[1].copy(), pulls=pulls, n_looks=self.n_looks,
                    stopped_by=STOPPED_BY[self.status], held_back=np.flatnonzero(kept[1]))

    def _get_state(self):
        return guarded(&self.guard, self, self._state, ())

    def _state(self):
        cdef Py_ssize_t i
        keys = np.empty((self.n_arms, 2), dtype=np.uint64)
        counts = np.empty((self.n_arms, 9), dtype=np.int64)
        sums = np.empty((self.n_arms, 11))
        cdef uint64_t[:, ::1] key = keys
        cdef int64_t[:, ::1] n = counts
        cdef double[:, ::1] s = sums
        cdef population_t *arm
        for i in range(self.n_arms):
            arm = &self.arm[i]
            key[i, 0], key[i, 1] = arm.order.keys[0], arm.order.keys[1]
            n[i, 0], n[i, 1], n[i, 2], n[i, 3] = arm.pulls, arm.seen.n, arm.active, arm.impossible
            n[i, 4], n[i, 5], n[i, 6] = arm.level, arm.wanted, arm.scanned
            n[i, 7], n[i, 8] = arm.shape.n, arm.held
            s[i, 0], s[i, 1], s[i, 2], s[i, 3] = arm.seen.mean, arm.seen.mean_low, arm.seen.m2, arm.seen.m2_low
            s[i, 4], s[i, 5], s[i, 6] = arm.known, arm.largest, arm.half_width
            s[i, 7], s[i, 8], s[i, 9], s[i, 10] = arm.shape.mean, arm.shape.m2, arm.shape.m3, arm.shape.m4
        return dict(keys=keys, counts=counts, sums=sums, n_looks=self.n_looks, best=self.best, status=self.status,
                    outside=self.outside, constant=self.constant)

    def _set_state(self, state):
        guard_check_idle(&self.guard, self)
        self._take_state(state)
        guard_built(&self.guard, 1)

    def _take_state(self, state):
        cdef Py_ssize_t i
        cdef const uint64_t[:, ::1] key = state["keys"]
        cdef const int64_t[:, ::1] n = state["counts"]
        cdef const double[:, ::1] s = state["sums"]
        cdef population_t *arm
        if not key.shape[0] == n.shape[0] == s.shape[0] == self.n_arms:
            raise ValueError(f"the state is of {n.shape[0]} arms; this race has {self.n_arms}")
        if not (key.shape[1] == 2 and n.shape[1] == 9 and s.shape[1] == 11
                and 0 <= state["n_looks"] <= MOST_LOOKS_PER_ARM * (self.n_arms + 1)
                and 0 <= state["best"] < self.n_arms and 0 <= state["status"] <= SINGLE
                and isinstance(state["outside"], bool) and isinstance(state["constant"], bool)
                and all(self._may_be(i, n[i], s[i]) for i in range(self.n_arms))):
            raise DamagedError("the saved race is damaged: its counts cannot be right")
        active = [bool(n[i, 2]) for i in range(self.n_arms)]
        if state["status"] == RUNNING and not any(active[i] for i in range(self.n_arms)):
            raise DamagedError("the saved race is damaged: it goes on without an arm")
        for i in range(self.n_arms):
            arm = &self.arm[i]
            keyed_order_set(&arm.order, arm.order.n, key[i, 0], key[i, 1])
            arm.pulls, arm.seen.n, arm.active, arm.impossible = n[i, 0], n[i, 1], n[i, 2] != 0, n[i, 3] != 0
            arm.level, arm.wanted, arm.scanned = n[i, 4], n[i, 5] != 0, n[i, 6] != 0
            arm.seen.mean, arm.seen.mean_low, arm.seen.m2, arm.seen.m2_low = s[i, 0], s[i, 1], s[i, 2], s[i, 3]
            arm.known, arm.largest, arm.half_width = s[i, 4], s[i, 5], s[i, 6]
            arm.shape.n, arm.held = n[i, 7], n[i, 8] != 0
            arm.shape.mean, arm.shape.m2, arm.shape.m3, arm.shape.m4 = s[i, 7], s[i, 8], s[i, 9], s[i, 10]
        self.n_looks = state["n_looks"]
        self.best = state["best"]
        self.status = state["status"]
        self.outside = state["outside"]
        self.constant = state["constant"]
        self.stale = True

    cdef bint _may_be(self, Py_ssize_t i, const int64_t[::1] n, const double[::1] s):
        """Whether the counts and sums of an arm fit each other."""
        cdef population_t arm = self.arm[i]
        cdef int k
        for k in range(2, 7):
            if k != 4 and not 0 <= n[k] <= 1:
                return False
        for k in range(11):
            if s[k] != s[k]:
                return False
        arm.level = <int>n[4] if 0 <= n[4] <= MOST_LOOKS_PER_ARM * (self.n_arms + 1) else -1
        if arm.level < 0 or not 0 <= n[0] <= arm.order.n or not 0 <= n[1] <= n[0] or s[2] < 0.0 or s[5] < 0.0:
            return False
        if not 0 <= n[7] <= n[1] or not 0 <= n[8] <= 1 or s[8] < 0.0:
            return False
        if n[0] == arm.order.n:
            return True
        # Rows are left: it stands where its looks ended, or within the next one.
        if arm.level > LAST_LOOK or (n[0] == 0) != (arm.level == 0) and not n[5]:
            return False
        return not n[5] or n[0] <= self._target(&arm)


def _upper_quantile(double log_tail):
    return normal_upper_quantile(log_tail)
