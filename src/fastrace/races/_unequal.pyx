"""The loop of a race of sums over populations of different sizes: it reads, and is asked, told and saved."""

from libc.math cimport INFINITY, fabs, isfinite
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, malloc
cimport numpy as cnp

from fastrace._base._guard cimport (guard_built, guard_check_built, guard_check_idle, guard_enter, guard_leave, guarded)
from fastrace._base._signals cimport check_signals
from fastrace._draws._keyed_order cimport keyed_order_at, keyed_order_set
from fastrace._math._bounds cimport lower_end, upper_end
from fastrace._math._moments cimport MOMENTS_BLOCK, moments4_extend, running_extend, two_sum
from fastrace._math._simd cimport fr_range, fr_sum
from fastrace.races._judge cimport RUNNING, SINGLE
from fastrace.races._reading cimport (REWARDS_PER_ASK, ROWS_IN_ORDER_PER_CHECK, ROWS_PER_CHECK, first_bad,
                                      first_outside, read_keyed)
from fastrace.races._unequal_judge cimport LAST_LOOK, MOST_LOOKS_PER_ARM, UnequalJudge, population_t
from fastrace.sources cimport Source

import numpy as np

from fastrace._base._checks import DamagedError, arm_error
from fastrace.sources import reward_outside

cnp.import_array()


cdef class UnequalCore(UnequalJudge):
    """State and loop of one race; `UnequalRace` checks the arguments and names the answer."""

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
        cdef double sum = 0.0, rest = 0.0, part, low, high, least = INFINITY, most = -INFINITY
        cdef bint impossible = False, outside = False
        while first < arm.order.n:
            count = <Py_ssize_t>min(<int64_t>MOMENTS_BLOCK, arm.order.n - first)
            source.fill_range(first, count, &i, 1, &rewards)
            part = fr_sum(rewards, count)
            if self.strict or not isfinite(part):
                self._inspect(i, rewards, count, first, True)
            fr_range(rewards, count, &low, &high)
            least, most = min(least, low), max(most, high)
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
        arm.seen.m2, arm.seen.m2_low = <double>arm.order.n * (0.25 * (most - least) * (most - least)), 0.0
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
                    outside=self.outside, constant=self.constant, far=self.far)

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
                and isinstance(state.get("far", False), bool)
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
        self.far = state.get("far", False)          # an earlier version did not know
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
