"""Who is still in a race of sums over populations of different sizes: half-widths, looks, and what is read next."""

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.math cimport INFINITY, NAN, fabs, isnan, sqrt
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from numpy.random cimport bitgen_t
cimport numpy as cnp

from fastrace._base._guard cimport (guard_await, guard_build, guard_built, guard_check_idle, guard_enter, guard_leave,
                                    guarded)
from fastrace._draws._keyed_order cimport keyed_order_init
from fastrace._math._bounds cimport normal_upper_quantile, variance_factor
from fastrace._math._moments cimport moments4_skewness, moments4_std, running_variance
from fastrace._math._rule cimport NORMAL, constant_so_far, look_init, look_t, look_width, width_of_two
from fastrace._math._skewness cimport tail_half_width, tail_rows
from fastrace.races._judge cimport BY_BOUND, BY_EXACT, RUNNING, SINGLE

import numpy as np

from fastrace._base._checks import arm_error
from fastrace._math import _half_widths
from fastrace.races._judge import STOPPED_BY

cnp.import_array()

N_LOOKS = 6     # tenths of the rows beyond the first look: 0, 1, 2, 4, 8, 10

cdef int[6] TENTHS = [0, 1, 2, 4, 8, 10]
cdef double ROUNDING = 2.0**-50     # of a sum, relative to it: some units in the last place
cdef double ONE_ROW = 1e-3          # in standard deviations: a difference by less cannot be meant


cdef class UnequalJudge:
    """What a race of sums knows and decides; `UnequalCore` reads for it, `UnequalRace` checks the arguments.

    Arm i is ``offset[i]`` plus the sum of its `sizes[i]` rewards over `temperature`. With the normal bound, `quantile`
    holds one number of standard errors per arm and look; else `log_inv_delta` belongs to one arm at one look. Arms are
    read all together, or, if `adaptive`, one at a time: the leader or the arm that may yet beat it.
    """

    _public_name = "UnequalRace"

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

    cdef int64_t _target(self, const population_t *arm) noexcept nogil:
        """Rows of an arm at its next look."""
        return self._rows_at(arm, arm.level)

    cdef int64_t _rows_at(self, const population_t *arm, int level) noexcept nogil:
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

    cdef double _quantile_of(self, Py_ssize_t i) noexcept nogil:
        """Of the arm's last look; 0 before the first one and once all its rows are read, when nothing can be wrong."""
        if self.bound != NORMAL or self.arm[i].level == 0 or self.arm[i].pulls == self.arm[i].order.n:
            return 0.0
        return self.quantile[i * LAST_LOOK + self.arm[i].level - 1 if self.by_arm else 0]

    cdef double _estimate(self, const population_t *arm) noexcept nogil:
        """The sum as its rewards suggest it."""
        return arm.known + (arm.seen.mean + arm.seen.mean_low) / self.temperature * <double>arm.order.n

    cdef double _lowest(self, const population_t *arm) noexcept nogil:
        """What the sum is at least, given the support."""
        return self._with_rest(arm, arm.low)

    cdef double _highest(self, const population_t *arm) noexcept nogil:
        """What the sum is at most, given the support."""
        return self._with_rest(arm, arm.high)

    cdef double _with_rest(self, const population_t *arm, double reward) noexcept nogil:
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

    cdef bint _lost(self, const population_t *arm, const population_t *other) noexcept nogil:
        """Whether rounding of two sums hides their difference, and would hide that of some rows of either."""
        cdef double rounding = ROUNDING * max(fabs(arm.sum), fabs(other.sum)), std
        if not fabs(arm.sum - other.sum) < rounding < INFINITY:
            return False
        std = sqrt(max(running_variance(&arm.seen, 0.0), running_variance(&other.seen, 0.0))) / self.temperature
        return 0.0 < ONE_ROW * std < rounding

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
            self.far = self.far or self._lost(arm, &self.arm[leader])
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

    cdef int64_t _wanted(self, Py_ssize_t i) noexcept nogil:
        if not self.arm[i].wanted or self.arm[i].impossible:
            return 0
        # An arm that a run cut short has read in full is beyond its target.
        return max(<int64_t>0, self._target(&self.arm[i]) - self.arm[i].pulls)

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


def _upper_quantile(double log_tail):
    return normal_upper_quantile(log_tail)
