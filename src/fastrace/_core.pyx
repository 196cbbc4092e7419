"""The race over a finite population: Chen & Ghahramani (2016), Algorithm 1, with any of our bounds.

One `Race` is one state machine with three doors. `ask` and `tell` drive it by hand, `run` drives it on a compiled
source without the GIL, `draw_many` runs one race per draw on Gumbel-perturbed arms. What a look fetches stays aside
until the look is complete, so that an exception or Ctrl-C in between leaves the race as it was.
"""

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.math cimport INFINITY, NAN, fabs, isfinite, isnan
from libc.stdint cimport int64_t
from libc.string cimport memcpy, memset
cimport numpy as cnp
from numpy.random cimport bitgen_t

from fastrace._base._guard cimport (guard_await, guard_built, guard_check_built, guard_check_idle, guard_enter,
                                    guard_leave)
from fastrace._base._signals cimport check_signals
from fastrace._base._types cimport moments4_t
from fastrace._draws._order cimport ORDER_LIMIT, order_reset
from fastrace._draws._rng cimport gumbel
from fastrace._math._betting cimport wealth_extend, wealth_rejects, wealth_t
from fastrace._math._bounds cimport lower_end, tail_half_width, tail_rows, upper_end
from fastrace._math._criteria cimport full_pass_pays, rows_needed
from fastrace._math._moments cimport (moments4_extend, moments4_extend_difference, moments4_kurtosis,
                                      moments4_skewness, moments4_std)
from fastrace._math._rule cimport (BETTING, NORMAL, constant_so_far, lead_stands, look_init, look_t, look_width,
                                   quantile_of_equal_evidence)
from fastrace._math._simd cimport fr_range, fr_sum
from fastrace.races._memory cimport RaceMemory, row_at
from fastrace.sources cimport Source

from copy import deepcopy

import numpy as np

from fastrace._base import _checks
from fastrace._math import _half_widths
from fastrace.sources import reward_outside

cnp.import_array()

STOPPED_BY = ("", "bound", "exact", "single", "max_pulls")

cdef enum:      # places in STOPPED_BY
    RUNNING = 0
    BY_BOUND = 1
    BY_EXACT = 2
    SINGLE = 3
    BY_BUDGET = 4

cdef enum:      # what may void the promise
    OUTSIDE_SUPPORT = 1
    CONSTANT_FIRST_LOOK = 2
    SKEWED = 4
    IMPOSSIBLE_REWARD = 8
    HELD_BACK = 16

cdef enum:
    BLOCK = 512             # rows whose moments are taken while they are in cache; also the grain of all sums
    PATIENT_BLOCK = 8192    # rows per call to a source that is cheaper in large blocks
    ROWS_PER_CHECK = 4096   # rows between two looks at pending signals


cdef class Race(RaceMemory):
    """The loop over the memory of a race. `racing.FiniteRace` is its public face."""

    cdef int bound
    cdef bint guarded, tails, bounded_support
    cdef bint strict                    # refuse rewards outside the support
    cdef double scan_advantage          # 0: as the source says
    cdef int64_t max_pulls              # rewards that the race may ask for; negative: as many as it needs
    # the plan: when to look, and what each look may spend
    cdef Py_ssize_t n_looks
    cdef cnp.ndarray _looks, _quantiles
    cdef int64_t *look
    cdef double *quantile
    cdef double log_inv_delta
    cdef look_t now                     # half-widths by moments; written by `_choose_width`
    cdef int new_flags

    def __cinit__(self):
        guard_await(&self.guard, 1)         # until there is a plan

    def __init__(self, n_arms, n_rows, *, bound, pairwise, shuffled, guarded, tails, scan_advantage, max_pulls,
                 strict, low, high, rng):
        cdef int kind = _half_widths.BOUNDS.index(bound)
        super().__init__(n_arms, n_rows, pairwise=pairwise, shuffled=shuffled, betting=bound == "betting", low=low,
                         high=high, rng=rng)
        self.bound = kind
        self.guarded = guarded
        self.tails = tails and self.bound == NORMAL
        self.scan_advantage = scan_advantage
        self.max_pulls = max_pulls
        self.bounded_support = low is not None
        self.strict = strict

    def plan(self, looks, quantiles, log_inv_delta):
        """Set the looks (the last is n_rows), each one's quantile, and log(1 / delta) of one comparison at one look."""
        cdef cnp.ndarray look = np.array(looks, dtype=np.int64), quantile = np.array(quantiles, dtype=np.float64)
        cdef double level = log_inv_delta
        if not (look.ndim == quantile.ndim == 1 and 0 < look.shape[0] == quantile.shape[0]
                and look[0] >= 0 and look[look.shape[0] - 1] == self.n_rows and np.all(np.diff(look) > 0)):
            raise ValueError("the plan of looks cannot be right: they grow, the last reads every row, and each has one "
                             "quantile")
        guard_check_idle(&self.guard, self)
        self._looks = look
        self._quantiles = quantile
        self.look = <int64_t *>cnp.PyArray_DATA(self._looks)
        self.quantile = <double *>cnp.PyArray_DATA(self._quantiles)
        self.n_looks = self._looks.shape[0]
        self.log_inv_delta = level
        guard_built(&self.guard, 1)

    def begin(self, offset):
        """Start a race with these offsets, on the scale of sums; arms with offset -inf take no part."""
        guard_enter(&self.guard, self)
        try:
            self._offset[:] = offset
            with nogil:
                self._begin()
        finally:
            guard_leave(&self.guard)

    cdef void _begin(self) noexcept nogil:
        cdef Py_ssize_t i
        for i in range(self.n_arms):
            self.sum[i] = 0.0
            self.known[i] = 0.0
            self.mean[i] = NAN
            self.half_width[i] = NAN
            self.pulls[i] = 0
            self.dead[i] = 0
            self.held[i] = 0
        self.forget_comparisons()
        memset(&self.closest, 0, sizeof(moments4_t))
        self.told = 0
        self.spent = 0
        self.drawn = 0
        self.looks_taken = 0
        self.full_pass = False
        self.opened = False
        self.unjudged = False
        self.flags = 0
        self._line_up()
        self._decide_without_rows()

    cdef void _line_up(self) noexcept nogil:
        """Who takes part: all arms whose constants are above -inf. Before any row, the largest constant leads."""
        cdef Py_ssize_t i
        cdef double constant
        self.n_active = 0
        self.leader = -1
        for i in range(self.n_arms):
            constant = self.offset[i] + self.known[i]
            if constant > -INFINITY:
                if self.leader < 0 or constant > self.offset[self.leader] + self.known[self.leader]:
                    self.leader = i
                self.active[self.n_active] = i
                self.n_active += 1
            else:
                self.mean[i] = -INFINITY
                self.half_width[i] = 0.0
        self.status = SINGLE if self.n_active == 1 else RUNNING

    cdef void _decide_without_rows(self) noexcept nogil:
        if self.n_rows == 0 and self.status == RUNNING:
            self.status = BY_EXACT
            self.n_active = 1
            self.active[0] = self.leader

    # Driving by hand.

    def ask(self):
        """(arms, rows) wanted next; the same until `tell` has taken their rewards."""
        cdef int64_t target, i
        cdef cnp.ndarray rows
        cdef int64_t *row
        guard_enter(&self.guard, self)
        try:
            if self.unjudged:
                self._judge_and_plan(self.scan_advantage)
            if self.status != RUNNING:
                raise ValueError("the race is over; there is nothing left to ask for")
            target = self._target()
            self.draw(target)
            rows = np.empty(target - self.told, np.int64)
            row = <int64_t *>cnp.PyArray_DATA(rows)
            with nogil:
                for i in range(self.told, target):
                    row[i - self.told] = row_at(self, i)
            return self._active[:self.n_active].copy(), rows
        finally:
            guard_leave(&self.guard)

    def tell(self, const double[:, :] rewards):
        """Take the rewards that `ask` wanted, rows by arms, and look."""
        cdef int64_t target, start
        cdef Py_ssize_t i, j, count
        guard_enter(&self.guard, self)
        try:
            if self.status != RUNNING:
                raise ValueError("the race is over; it takes no more rewards")
            target = self._target()
            if self.drawn < target or self.unjudged:
                raise ValueError("tell() came before ask(); ask() says which rewards are wanted")
            if rewards.shape[0] != target - self.told or rewards.shape[1] != self.n_active:
                raise ValueError(f"rewards has shape ({rewards.shape[0]}, {rewards.shape[1]}); ask() wanted "
                                 f"({target - self.told}, {self.n_active}): a row per row number, a column per arm")
            with nogil:
                self._prepare(target, BLOCK)
                start = self.told
                while start < target:
                    count = <Py_ssize_t>min(<int64_t>BLOCK, target - start)
                    self._aim(start, target)
                    for j in range(self.n_active):
                        for i in range(count):
                            self.at[j][i] = rewards[start - self.told + i, j]
                    self._absorb(start, count, target)
                    start += count
                self._close_look(target, self.scan_advantage)
        finally:
            guard_leave(&self.guard)

    # Driving a source.

    def run(self, Source source not None):
        """Race on a source until the race is over."""
        self._check_source(source)
        guard_enter(&self.guard, self)
        try:
            with nogil:
                self._run(source)
        finally:
            guard_leave(&self.guard)

    def draw_many(self, Source source not None, const double[::1] log_prior, Py_ssize_t[::1] out):
        """One race per draw on Gumbel-perturbed arms."""
        cdef Py_ssize_t k, i
        cdef int64_t pulls
        cdef double cells = max((<double>self.n_rows + source.n_always_read) * self.n_arms, 1.0)
        if log_prior.shape[0] != self.n_arms:
            raise ValueError(f"log_prior has shape ({log_prior.shape[0]},); ({self.n_arms},) is needed")
        self._check_source(source)
        guard_enter(&self.guard, self)
        try:
            for k in range(out.shape[0]):
                with self.lock, nogil:
                    for i in range(self.n_arms):
                        self.offset[i] = log_prior[i] + gumbel(self.bits)
                with nogil:
                    self._begin()
                    self._run(source)
                    pulls = source.n_always_read * self.n_arms
                    for i in range(self.n_arms):
                        pulls += self.pulls[i]
                out[k] = self.leader
                self.n_draws += 1
                self.n_exact += self.status == BY_EXACT
                self.n_looks_taken += self.looks_taken
                self.fractions += <double>pulls / cells
                self.all_flags |= self.flags & ~SKEWED
                self.n_skewed += (self.flags & SKEWED) != 0
                if k % 64 == 63:
                    check_signals()
        finally:
            guard_leave(&self.guard)

    def start_afresh(self, rng):
        """Take another generator, and forget the order of rows: the next draw depends on the generator alone."""
        guard_enter(&self.guard, self)
        try:
            if not self.shuffled and self.n_rows <= ORDER_LIMIT:
                order_reset(&self.order, self.drawn)
            self.drawn = 0
            self.rng = rng
            self.lock = rng.bit_generator.lock
            self.bits = <bitgen_t *>PyCapsule_GetPointer(rng.bit_generator.capsule, b"BitGenerator")
        finally:
            guard_leave(&self.guard)

    def _check_source(self, Source source):
        guard_check_built(&source.guard, source)
        if source.n_arms != self.n_arms or source.n_rows != self.n_rows:
            raise ValueError(f"the source has {source.n_rows} rows of {source.n_arms} arms; this race was set up for "
                             f"{self.n_rows} rows of {self.n_arms} arms")

    cdef int _run(self, Source source) except -1 nogil:
        cdef int64_t target
        cdef double advantage = self._advantage(source)
        if self.status == RUNNING or self.n_rows == 0:
            self._open(source)
        if self.unjudged:
            self._judge_and_plan(advantage)
        self._stop_if_spent()
        while self.status == RUNNING:
            target = self._target()
            if target == self.n_rows and self.shuffled:
                self._read_rest_in_order(source)
            elif (target == self.n_rows and advantage * (self.n_rows - self.told) >= self.n_rows
                  and self._affords(self.n_rows)):
                self._read_in_order(source)
            else:
                self._read_at_random(source, target)
                self._close_look(target, advantage)
        return 0

    cdef int _open(self, Source source) except -1 nogil:
        """Ask the source what it knows of the sums beside the rewards, until the first look is done."""
        cdef Py_ssize_t j
        cdef double value
        if self.told > 0 and self.opened:
            return 0
        if self.told == 0:
            for j in range(self.n_arms):
                self.known[j] = 0.0
            self._line_up()
        source.shift(self.active, self.n_active, self.scratch)
        self.evaluations += source.n_always_read * self.n_active
        self.spent += source.n_always_read * self.n_active
        for j in range(self.n_active):
            value = self.scratch[j]
            if isnan(value) or value == INFINITY:
                with gil:
                    raise ValueError(f"the known part of the sum of arm {self.active[j]} is {value}: a reward that is "
                                     f"always read, or the sum of the control variate, is not finite")
            if value != 0.0 and self.told > 0:
                with gil:
                    raise ValueError("the source knows part of the sums, which the looks told by hand left out; give "
                                     "source.shifts() as offset when you drive the race by hand")
        if self.told == 0:
            for j in range(self.n_active):
                self.known[self.active[j]] = self.scratch[j]
            self._line_up()
            if self.leader < 0:
                for j in range(self.n_arms):        # as it was before the call
                    self.known[j] = 0.0
                    self.mean[j] = NAN
                    self.half_width[j] = NAN
                self._line_up()
                with gil:
                    raise ValueError("every arm has a reward of -inf among those that are always read")
            self._decide_without_rows()
        self.opened = True
        return 0

    cdef double _advantage(self, Source source) noexcept nogil:
        """How much cheaper a row is in a full pass than in a race with its draws and comparisons."""
        if self.scan_advantage > 0.0:
            return self.scan_advantage
        # Measured, in nanoseconds a reward: 20 for a gambler's bets, 0.6 for moments of a difference.
        return (1.0 if self.shuffled else source.scan_advantage) + (
            (20.0 if self.bound == BETTING else 0.6) / source.reward_cost)

    cdef int64_t _target(self) noexcept nogil:
        """Rows at the next look: as planned, or as many as the rewards left allow."""
        cdef int64_t target = self._planned()
        if self.max_pulls < 0:
            return target
        return min(target, self.told + max(self.max_pulls - self.spent, <int64_t>0) // self.n_active)

    cdef int64_t _planned(self) noexcept nogil:
        return self.n_rows if self.full_pass else self.look[self.looks_taken]

    cdef bint _affords(self, int64_t rows) noexcept nogil:
        """Whether the rewards left are enough for so many rows of the active arms."""
        return self.max_pulls < 0 or rows <= (self.max_pulls - self.spent) // self.n_active

    cdef void _stop_if_spent(self) noexcept nogil:
        if self.status == RUNNING and self.n_rows > 0 and not self._affords(1):
            self.status = BY_BUDGET

    cdef int _read_at_random(self, Source source, int64_t target) except -1 nogil:
        cdef int64_t start = self.told
        cdef Py_ssize_t block = BLOCK if source.first_look <= 64 else PATIENT_BLOCK
        cdef Py_ssize_t count, since_check = 0
        self.draw(target)
        self._prepare(target, block)
        while start < target:
            count = <Py_ssize_t>min(<int64_t>block, target - start)
            self._aim(start, target)
            self._fetch(source, start, count)
            self._absorb(start, count, target)
            start += count
            since_check += count
            if since_check >= ROWS_PER_CHECK:
                check_signals()
                since_check = 0
        return 0

    cdef int _read_in_order(self, Source source) except -1 nogil:
        cdef int64_t again = self.told * self.n_active
        source.total(self.active, self.n_active, self.scratch)
        self.evaluations += self.n_rows * self.n_active
        self._take_totals(source)
        self.spent += again
        return 0

    cdef int _read_rest_in_order(self, Source source) except -1 nogil:
        """The rows that a window in order has left, round the end of the table."""
        cdef int64_t first, left = self.n_rows - self.told, head
        cdef Py_ssize_t j
        self.draw(self.n_rows)
        first = row_at(self, self.told)
        head = min(left, self.n_rows - first)
        for j in range(self.n_active):
            self.scratch[j] = self.sum[self.active[j]]
        source.add_sums(first, head, self.active, self.n_active, self.scratch)
        if head < left:
            source.add_sums(0, left - head, self.active, self.n_active, self.scratch)
        self.evaluations += left * self.n_active
        return self._take_totals(source)

    cdef int _take_totals(self, Source source) except -1 nogil:
        cdef Py_ssize_t j, i
        self.new_flags = 0
        for j in range(self.n_active):
            i = self.active[j]
            self.new_sum[i] = self.scratch[j]
            if not isfinite(self.new_sum[i]):
                with gil:
                    self._explain(source, i)
        return self._finish(self.new_sum)

    cdef int _fetch(self, Source source, int64_t start, Py_ssize_t count) except -1 nogil:
        """Rewards of the active arms on positions start .. start + count - 1 of this race's order, to `at`."""
        cdef int64_t first
        cdef Py_ssize_t i, j, head
        self.evaluations += count * self.n_active
        if not self.shuffled:
            for i in range(count):
                self.rows[i] = row_at(self, start + i)
            source.fill(self.rows, count, self.active, self.n_active, self.at)
            return 0
        first = row_at(self, start)
        head = <Py_ssize_t>min(<int64_t>count, self.n_rows - first)
        source.fill_range(first, head, self.active, self.n_active, self.at)
        if head < count:                            # the window goes round the end of the table
            for j in range(self.n_active):
                self.at[j] += head
            source.fill_range(0, count - head, self.active, self.n_active, self.at)
            for j in range(self.n_active):
                self.at[j] -= head
        return 0

    # One look: prepare, absorb block by block, commit, judge.

    cdef int _prepare(self, int64_t target, Py_ssize_t block) except -1 nogil:
        """Room for the rewards up to `target`, and scratch copies of what this look will change."""
        if self.pairwise and target < self.n_rows:
            self.reserve(<Py_ssize_t>target)
        else:                                       # sums only, or one block at a time, above what is kept
            self.reserve((<Py_ssize_t>self.told if self.pairwise else 0) + block)
        memcpy(self.new_moments, self.comparisons(self.leader if self.pairwise else 0),
               self.n_arms * sizeof(moments4_t))
        memcpy(self.new_sum, self.sum, self.n_arms * sizeof(double))
        memset(self.dead, 0, self.n_arms)
        self.new_flags = 0
        return 0

    cdef void _aim(self, int64_t start, int64_t target) noexcept nogil:
        """Point `at` to where the block that begins at `start` is to be written."""
        cdef Py_ssize_t j, place = 0
        if self.pairwise:
            place = <Py_ssize_t>(start if target < self.n_rows else self.told)
        for j in range(self.n_active):
            self.at[j] = self.column[self.active[j]] + place

    cdef int _absorb(self, int64_t start, Py_ssize_t count, int64_t target) except -1 nogil:
        """Sums, range and moments of a block, into the scratch copies."""
        cdef Py_ssize_t done = 0, size, i, j, leader = self.leader
        cdef double *x
        cdef double *best = NULL
        cdef double total, low, high
        while done < count:
            size = min(<Py_ssize_t>BLOCK, count - done)
            for j in range(self.n_active):
                i = self.active[j]
                x = self.at[j] + done
                if i == leader:
                    best = x
                total = fr_sum(x, size)
                self.new_sum[i] += total
                if not isfinite(self.new_sum[i]):
                    self._inspect(i, x, start + done, size)
                if self.bounded_support and not self.dead[i]:
                    fr_range(x, size, &low, &high)
                    if low < lower_end(self.low[i], self.high[i]) or high > upper_end(self.low[i], self.high[i]):
                        if self.strict:
                            self._refuse_outside(i, x, start + done, size)
                        self.new_flags |= OUTSIDE_SUPPORT
            if target < self.n_rows:
                for j in range(self.n_active):
                    i = self.active[j]
                    if self.dead[i]:
                        continue
                    x = self.at[j] + done
                    if not self.pairwise:
                        moments4_extend(&self.new_moments[i], x, size)
                    elif i != leader and not self.dead[leader]:
                        moments4_extend_difference(&self.new_moments[i], best, x, size)
            done += size
        return 0

    cdef int _inspect(self, Py_ssize_t arm, const double *x, int64_t start, Py_ssize_t count) except -1 nogil:
        """A sum is not finite: -inf settles the arm, nan and +inf are errors."""
        cdef Py_ssize_t i
        for i in range(count):
            if isnan(x[i]) or x[i] == INFINITY:
                with gil:
                    raise ValueError(_bad_reward(x[i], arm, row_at(self, start + i)))
            if x[i] == -INFINITY:
                self.dead[arm] = 1
                self.new_flags |= IMPOSSIBLE_REWARD
        if not self.dead[arm]:
            with gil:
                raise ValueError(_overflow(arm, self.new_sum[arm]))
        return 0

    cdef int _refuse_outside(self, Py_ssize_t arm, const double *x, int64_t start, Py_ssize_t count) except -1 nogil:
        cdef Py_ssize_t i
        cdef double low = self.low[arm], high = self.high[arm]
        for i in range(count):
            if not lower_end(low, high) <= x[i] <= upper_end(low, high):
                with gil:
                    raise ValueError(reward_outside(x[i], arm, row_at(self, start + i), low, high))
        return 0

    cdef int _explain(self, Source source, Py_ssize_t arm) except -1:
        """Why a full pass gave a sum that is not finite: raise, unless a reward of -inf accounts for it."""
        impossible = False
        for first in range(0, self.n_rows, PATIENT_BLOCK):
            rows = np.arange(first, min(first + PATIENT_BLOCK, self.n_rows))
            rewards = source.read(rows, [arm])[:, 0]
            bad = np.flatnonzero(np.isnan(rewards) | (rewards == np.inf))
            if bad.size:
                raise ValueError(_bad_reward(rewards[bad[0]], arm, rows[bad[0]]))
            impossible = impossible or bool((rewards == -np.inf).any())
        if not impossible or self.new_sum[arm] != -np.inf:
            raise ValueError(_overflow(arm, self.new_sum[arm]))
        self.new_flags |= IMPOSSIBLE_REWARD
        return 0

    cdef int _close_look(self, int64_t target, double advantage) except -1 nogil:
        cdef bint cut = target < self._planned()
        if target == self.n_rows:
            return self._finish(self.new_sum)
        self._commit(target)
        if cut and self.bound != BETTING:       # the plan has no test here, and each test has its price
            self.unjudged = False
            self.status = BY_BUDGET
            return 0
        return self._judge_and_plan(advantage)

    cdef int _commit(self, int64_t n) except -1 nogil:
        """Keep what the look has brought, and see who leads."""
        cdef Py_ssize_t i, j, leader = -1
        cdef double best = 0.0, mean
        for j in range(self.n_active):
            i = self.active[j]
            mean = self.new_sum[i] / n + (self.offset[i] + self.known[i]) / self.n_rows
            if not self.dead[i] and (leader < 0 or mean > best):
                leader = i
                best = mean
        if leader < 0:
            with gil:
                raise ValueError(NONE_LEFT)
        if not self.pairwise:
            memcpy(self.comparisons(0), self.new_moments, self.n_arms * sizeof(moments4_t))
        elif not self.dead[self.leader]:
            memcpy(self.comparisons(self.leader), self.new_moments, self.n_arms * sizeof(moments4_t))
        memcpy(self.sum, self.new_sum, self.n_arms * sizeof(double))
        self.flags |= self.new_flags
        self.spent += (n - self.told) * self.n_active
        self.told = n
        self.leader = leader
        for j in range(self.n_active):
            i = self.active[j]
            self.mean[i] = (-INFINITY if self.dead[i] else
                            self.sum[i] / n + (self.offset[i] + self.known[i]) / self.n_rows)
            self.pulls[i] = n
        self.unjudged = True
        return 0

    cdef int _judge_and_plan(self, double advantage) except -1 nogil:
        self._judge()
        self._stop_if_spent()
        if (self.status == RUNNING and advantage > 1.0
                and self._affords(self.n_rows - self.told if self.shuffled else self.n_rows)):
            # A window in order needs no second reading of the rows it has passed.
            self.full_pass = full_pass_pays(self._rows_needed(), self.told, self.look[self.looks_taken], self.n_rows,
                                            self.n_rows - self.told if self.shuffled else self.n_rows, advantage)
        return 0

    cdef int _judge(self) except -1 nogil:
        """Who is out. Interrupted while it catches up, it is begun again."""
        cdef Py_ssize_t i, j, kept = 0, leader = self.leader
        cdef double gap, width, ratio, closest = INFINITY
        cdef moments4_t lead
        cdef moments4_t *own = self.comparisons(leader if self.pairwise else 0)
        for j in range(self.n_active if self.pairwise else 0):
            if self.active[j] != leader and not self._is_dead(self.active[j]):
                self._catch_up(leader, self.active[j])
        self._choose_width()
        lead.n = 0
        for j in range(self.n_active):
            i = self.active[j]
            self.wait[i] = 0.0
            if i == leader:
                self.half_width[i] = NAN if self.pairwise else self._width(&own[i], i, i)
            elif self._is_dead(i):
                self.half_width[i] = 0.0
                continue
            else:
                gap = self.mean[leader] - self.mean[i]
                width = self._width(&own[i], leader if self.pairwise else i, i)
                self.half_width[i] = NAN if self.bound == BETTING else width
                if not self.pairwise:
                    width += self._width(&own[leader], leader, leader)
                if self.tails and gap > width:
                    width = self._weigh_tails(own, &lead, leader, i, gap, width)
                    if self.pairwise:
                        self.half_width[i] = width
                ratio = gap / width if width > 0.0 else INFINITY
                if ratio < closest:
                    closest = ratio
                    self.closest = own[i]
                if self._out(own, leader, i, gap, width):
                    continue
            self.active[kept] = i
            kept += 1
        self.n_active = kept
        if self.told == self.look[self.looks_taken]:        # not if a budget cut the look short
            self.looks_taken += 1
        self.unjudged = False
        if kept == 1:
            self.status = BY_BOUND
        return 0

    cdef inline bint _is_dead(self, Py_ssize_t i) noexcept nogil:
        return self.mean[i] == -INFINITY

    cdef bint _out(self, const moments4_t *own, Py_ssize_t leader, Py_ssize_t i, double gap,
                   double width) noexcept nogil:
        """Whether the leader has beaten arm i."""
        cdef double skewness
        cdef bint skewed = False, stands
        if self.bound == BETTING:
            return wealth_rejects(&self.wealth[self.place[leader]][i], self.log_inv_delta)
        if not gap > width or self.wait[i] > self.told:
            return False
        if self.bound == NORMAL:
            # The danger is a lead that looks too large: skewed to the left. Of two single means, either may be.
            skewness = moments4_skewness(&own[i])
            if not self.pairwise:
                skewness = min(-skewness, moments4_skewness(&own[leader]))
            stands = lead_stands(self.guarded, skewness, own[i].n, self.n_rows, self.now.quantile, &skewed)
            if skewed:
                self.flags |= SKEWED
            return stands
        return True

    cdef void _choose_width(self) noexcept nogil:
        """Half-widths from now on are those of the rows read and the look that comes next in the plan."""
        # Betting inverts no interval: its forecasts take what a normal rule of equal evidence would have.
        look_init(&self.now, self.bound, self.told, self.n_rows, self.log_inv_delta,
                  quantile_of_equal_evidence(self.log_inv_delta) if self.bound == BETTING
                  else self.quantile[self.looks_taken])

    cdef double _width(self, const moments4_t *m, Py_ssize_t i, Py_ssize_t j) noexcept nogil:
        """Half-width of the mean of arm i (i = j) or of its lead over arm j."""
        cdef double std = moments4_std(m), span = self.high[i] - self.low[i]
        cdef double size = fabs(m.mean) + 1e-3 * (fabs(self.mean[i]) + fabs(self.mean[j]))
        if i != j:
            span += self.high[j] - self.low[j]
        if self.bound == NORMAL and constant_so_far(std, size):
            if self.looks_taken == 0:
                self.flags |= CONSTANT_FIRST_LOOK
            return INFINITY
        return look_width(&self.now, std, span)

    cdef double _weigh_tails(self, const moments4_t *own, moments4_t *lead, Py_ssize_t leader, Py_ssize_t i, double gap,
                             double width) except -1.0 nogil:
        """Half-width of a lead that the normal rule believes, tails considered; `wait` is the rows to read before.

        A lead is too large where values far to the right of the arm, or far to the left of the leader, have been
        missed: differences show their skewness only as far as they were seen. `lead` keeps the leader's moments.
        """
        cdef double quantile = self.now.quantile
        cdef moments4_t mine
        if self.pairwise:
            width = tail_half_width(width, moments4_std(&own[i]), -moments4_skewness(&own[i]), own[i].n, self.n_rows,
                                    quantile)
            if lead.n == 0:
                self._column_moments(leader, lead)
            self._column_moments(i, &mine)
        else:
            lead[0], mine = own[leader], own[i]
            width = (tail_half_width(self._width(lead, leader, leader), moments4_std(lead), -moments4_skewness(lead),
                                     lead.n, self.n_rows, quantile)
                     + tail_half_width(self._width(&mine, i, i), moments4_std(&mine), moments4_skewness(&mine), mine.n,
                                       self.n_rows, quantile))
        self._wait_for(leader, i, self._tail_rows(lead, leader, leader, i, -1.0, gap))
        self._wait_for(i, i, self._tail_rows(&mine, i, leader, i, 1.0, gap))
        return width

    cdef void _wait_for(self, Py_ssize_t column, Py_ssize_t i, double rows) noexcept nogil:
        """Hold the decision about arm i back until this many rows have been read of a column."""
        if rows > self.told:
            self.held[column] = 1
            self.flags |= HELD_BACK
            self.wait[i] = max(self.wait[i], rows)

    cdef int _column_moments(self, Py_ssize_t arm, moments4_t *m) except -1 nogil:
        """Moments of the rewards kept of an arm; the same whenever they are asked for."""
        cdef int64_t start = 0
        cdef Py_ssize_t count
        memset(m, 0, sizeof(moments4_t))
        while start < self.told:
            count = <Py_ssize_t>min(<int64_t>PATIENT_BLOCK, self.told - start)
            moments4_extend(m, self.column[arm] + start, count)
            start += count
            if start % (128 * PATIENT_BLOCK) == 0:
                check_signals()
        return 0

    cdef double _tail_rows(self, const moments4_t *m, Py_ssize_t arm, Py_ssize_t leader, Py_ssize_t i, double side,
                           double gap) noexcept nogil:
        """Rows to read before a lead of `gap` is believed, for a column's tail: right if `side` is 1, left if -1."""
        cdef double std = moments4_std(m), skewness, size, square, total = 0.0, squares = 0.0, lead
        cdef const double *x
        cdef const double *best
        cdef const double *worst
        cdef int64_t k
        if constant_so_far(std, fabs(m.mean)):
            return <double>self.n_rows              # constant so far: what the rest holds is unknown
        skewness = side * moments4_skewness(m)
        size = std * skewness
        if tail_rows(skewness, INFINITY, gap, m.n) <= m.n:
            return <double>m.n
        if self.pairwise:       # the mean of the lead over rows weighted by their squared deviation in the column
            x, best, worst = self.column[arm], self.column[leader], self.column[i]
            lead = self.sum[leader] / self.told - self.sum[i] / self.told
            for k in range(self.told):
                square = (x[k] - m.mean) * (x[k] - m.mean)
                total += square * (lead - (best[k] - worst[k]))
                squares += square
            size = total / squares
        return tail_rows(skewness, size, gap, m.n)

    cdef int _catch_up(self, Py_ssize_t leader, Py_ssize_t i) except -1 nogil:
        """Bring the comparison of the leader with arm i up to the rows told, from the rewards kept."""
        cdef moments4_t *m = &self.moments[self.place[leader]][i]
        cdef wealth_t *w = NULL
        cdef int64_t start = m.n
        cdef Py_ssize_t count
        cdef double shift = ((self.offset[leader] + self.known[leader])
                             - (self.offset[i] + self.known[i])) / self.n_rows
        while start < self.told:
            count = <Py_ssize_t>min(<int64_t>BLOCK, self.told - start)
            moments4_extend_difference(m, self.column[leader] + start, self.column[i] + start, count)
            start += count
        if self.bound == BETTING:
            w = &self.wealth[self.place[leader]][i]
            while w.n < self.told:
                count = <Py_ssize_t>min(<int64_t>ROWS_PER_CHECK, self.told - w.n)
                wealth_extend(w, &self.bets, self.column[leader] + w.n, self.column[i] + w.n, shift, count,
                              self.low[leader] - self.high[i] + shift, self.n_rows)
                if count == ROWS_PER_CHECK:
                    check_signals()
        return 0

    cdef double _rows_needed(self) noexcept nogil:
        """Rows after which the arms still in the race should be apart, gaps and spreads staying as they are."""
        cdef Py_ssize_t j, i, k = self.place[self.leader if self.pairwise else 0]
        cdef const moments4_t *own = self.moments[k]
        cdef double width, needed = 0.0
        self._choose_width()
        for j in range(self.n_active):
            i = self.active[j]
            if i == self.leader:
                continue
            width = self._width(&own[i], self.leader if self.pairwise else i, i)
            if not self.pairwise:
                width += self._width(&own[self.leader], self.leader, self.leader)
            elif self.tails:
                width = max(width, self.half_width[i])
            needed = max(needed, self.wait[i])
            needed = max(needed, rows_needed(self.mean[self.leader] - self.mean[i], width, self.told, self.n_rows))
        return needed

    cdef int _finish(self, const double *total) except -1 nogil:
        """Every row has been read: the answer is exact, whatever the bound says."""
        cdef Py_ssize_t i, j, leader = -1
        cdef double best = 0.0, mean
        cdef bint whole = True
        for j in range(self.n_active):
            i = self.active[j]
            mean = (total[i] + self.offset[i] + self.known[i]) / self.n_rows
            if mean > -INFINITY and (leader < 0 or mean > best):
                leader = i
                best = mean
        if leader < 0:
            with gil:
                raise ValueError(NONE_LEFT)
        for j in range(self.n_active):
            i = self.active[j]
            self.sum[i] = total[i]
            self.mean[i] = (total[i] + self.offset[i] + self.known[i]) / self.n_rows
            self.half_width[i] = 0.0
            self.pulls[i] = self.n_rows
        for i in range(self.n_arms):
            whole = whole and (self.pulls[i] == self.n_rows or self._is_dead(i))
        if whole:           # no decision rests on a look
            self.flags &= ~(CONSTANT_FIRST_LOOK | HELD_BACK)
        self.flags |= self.new_flags
        self.spent += (self.n_rows - self.told) * self.n_active
        self.told = self.n_rows
        self.leader = leader
        self.active[0] = leader
        self.n_active = 1
        self.looks_taken += 1
        self.status = BY_EXACT
        return 0

    # Answers.

    @property
    def done(self):
        """Whether the race is over."""
        return self.status != RUNNING

    @property
    def outside(self):
        """Whether a reward of this race, or of any draw so far, lay outside the support."""
        return bool((self.flags | self.all_flags) & OUTSIDE_SUPPORT)

    def answer(self):
        """The fields of a `results.RaceResult` that the loop knows."""
        return dict(
            best=self.leader, active=self._active[:self.n_active].copy(), mean=self._mean.copy(),
            half_width=self._half_width.copy(), pulls=self._pulls.copy(), n_looks=self.looks_taken,
            stopped_by=STOPPED_BY[self.status], skewness=moments4_skewness(&self.closest),
            kurtosis=moments4_kurtosis(&self.closest), held_back=np.flatnonzero(self._held))

    def doubts(self, of_all_draws=False):
        """What may void the promise, as the fields of a `results.SamplerStats`; some draws look skewed by chance."""
        cdef int flags = self.all_flags if of_all_draws else self.flags
        return dict(
            outside=bool(flags & OUTSIDE_SUPPORT), constant=bool(flags & CONSTANT_FIRST_LOOK),
            held_back=bool(flags & HELD_BACK),
            skewed=4 * self.n_skewed > self.n_draws if of_all_draws else bool(flags & SKEWED),
            impossible=bool(flags & IMPOSSIBLE_REWARD))

    def warnings(self, of_all_draws=False):
        """What may void the promise, in words."""
        found, told = self.doubts(of_all_draws), []
        if found["outside"]:
            told.append("a reward lay outside the support: the promise is void; widen support")
        if found["constant"]:
            told.append("the first look was constant for some comparison: it was not decided by it; "
                        "rare events may hide, so pass a support (betting) or a larger first_look")
        if self.status == BY_BUDGET:
            told.append(f"max_pulls was reached: best is the arm with the largest mean so far, and the promise is only "
                        f"that the best arm is among the {self.n_active} that are still active")
        if found["held_back"]:
            arms = "some arms" if of_all_draws else f"arms {np.flatnonzero(self._held).tolist()}"
            told.append(f"the normal rule was held back until more rows were read: rewards of {arms} were "
                        f"constant, or few of them carried the mean; a support (betting) would promise the answer "
                        f"without that heuristic")
        if found["skewed"]:
            told.append("the normal rule decided on skewed rewards, where its error can exceed delta by far; "
                        "pass a support (betting) or skewness_guard=True")
        if found["impossible"]:
            told.append("an arm was dropped for a reward of -inf; one that was not read cannot be seen, "
                        "so put factors that may vanish into the offset or log prior")
        return tuple(told)

    def saved(self):
        """A copy of the generator, the plan and the state as plain objects, all of one moment."""
        guard_enter(&self.guard, self)
        try:
            return deepcopy(self.rng), (self._looks, self._quantiles, self.log_inv_delta), self._state()
        finally:
            guard_leave(&self.guard)

    def restore(self, plan, state):
        """Take the plan and the state that `saved` gave, in a fresh object with the same options."""
        cdef int64_t low, high
        cdef bint placed
        with _checks.undamaged("race"):
            self.plan(*plan)
        self.set_state(state)
        if self.status == RUNNING:
            placed = self.looks_taken < self.n_looks
            if placed:
                low = self.look[self.looks_taken - 1] if self.looks_taken else 0
                high = self.look[self.looks_taken]
                placed = self.told == (high if self.unjudged else low)
                placed = placed or (self.max_pulls >= 0 and low < self.told < high)
            if not (placed and (self.told < self.n_rows or self.n_rows == 0) and self.n_active > 0):
                raise ValueError("the saved race is damaged: it is not where its plan of looks says")


NONE_LEFT = "every arm still in the race has a reward of -inf"


def _bad_reward(value, arm, row):
    return (f"the reward of arm {arm} on row {row} is {value}; rewards must be finite numbers, or -inf for an arm that "
            f"is impossible, because nan and +inf compare with nothing")


def _overflow(arm, total):
    return f"the rewards of arm {arm} sum to {total} though each is finite; scale them down"
