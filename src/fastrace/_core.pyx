"""The race over a finite population: Chen & Ghahramani (2016), Algorithm 1, with any of our bounds.

One `Race` is one state machine with three doors. `ask` and `tell` drive it by hand, `run` drives it on a compiled
source without the GIL, `draw_many` runs one race per draw on Gumbel-perturbed arms. What a look fetches stays aside
until the look is complete, so that an exception or Ctrl-C in between leaves the race as it was.
"""

from libc.math cimport INFINITY, NAN, isfinite, isnan
from libc.stdint cimport int64_t
from libc.string cimport memcpy, memset
cimport numpy as cnp

from fastrace._base._guard cimport guard_check_built, guard_enter, guard_leave
from fastrace._base._signals cimport check_signals
from fastrace._base._types cimport moments4_t
from fastrace._draws._row_order cimport row_in, rows_in
from fastrace._draws._rng cimport gumbel
from fastrace._math._bounds cimport lower_end, upper_end
from fastrace._math._criteria cimport full_pass_pays
from fastrace._math._moments cimport moments4_extend, moments4_extend_difference
from fastrace._math._rule cimport BETTING
from fastrace._math._simd cimport fr_range, fr_sum
from fastrace.races._answers cimport RaceAnswers
from fastrace.races._judge cimport (BY_BUDGET, BY_EXACT, DROP, IMPOSSIBLE_REWARD, MISSING_REWARD, OUTSIDE_SUPPORT,
                                    RAISE, RUNNING, SKEWED, WORST)
from fastrace.races._reading cimport (ROWS_PER_BLOCK, ROWS_PER_CALL, ROWS_PER_CHECK, bad_row, first_bad, first_outside,
                                      pair_work, price_of_a_row, read_rows)
from fastrace.sources cimport Source

from copy import deepcopy

import numpy as np

from fastrace._base import _checks
from fastrace._base._checks import DamagedError, arm_error
from fastrace.sources import reward_outside

cnp.import_array()


cdef class Race(RaceAnswers):
    """The loop over the memory of a race. `racing.FiniteRace` is its public face."""

    _public_name = "race"

    cdef bint strict                    # refuse rewards outside the support
    cdef double scan_advantage          # 0: as the source says
    cdef int64_t max_pulls              # rewards that the race may ask for; negative: as many as it needs
    cdef object report                  # takes the rewards read so far while a source is driven, or None
    cdef bint reporting

    def __init__(self, n_arms, n_rows, *, bound, pairwise, shuffled, guarded, tails, scan_advantage, max_pulls,
                 strict, low, high, rng, epsilon=0.0, n_best=1, missing="raise", proxy=None):
        super().__init__(n_arms, n_rows, bound=bound, pairwise=pairwise, shuffled=shuffled, guarded=guarded,
                         tails=tails, low=low, high=high, rng=rng, epsilon=epsilon, n_best=n_best, missing=missing,
                         proxy=proxy)
        self.scan_advantage = scan_advantage
        self.max_pulls = max_pulls
        self.strict = strict

    def begin(self, offset):
        """Start a race with these offsets, on the scale of sums; arms with offset -inf take no part."""
        guard_enter(&self.guard, self)
        try:
            self._offset[:] = offset
            with nogil:
                self._begin()
        finally:
            guard_leave(&self.guard)

    # Driving by hand.

    def ask(self):
        """(arms, rows) to read next; the same until `tell` has taken their rewards."""
        cdef int64_t target
        cdef cnp.ndarray rows
        cdef int64_t *row
        guard_enter(&self.guard, self)
        try:
            if self.unjudged:
                self._judge_and_plan(self.scan_advantage)
            if self.status != RUNNING:
                raise ValueError("the race is over; there is nothing left to ask for")
            target = self._target()
            self.order.settle(target)
            rows = np.empty(target - self.n_read, np.int64)
            row = <int64_t *>cnp.PyArray_DATA(rows)
            with nogil:
                rows_in(self.order, self.n_read, <Py_ssize_t>(target - self.n_read), row)
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
            if self.order.drawn < target or self.unjudged:
                raise ValueError("tell() came before ask(); ask() says which rewards are wanted")
            if rewards.shape[0] != target - self.n_read or rewards.shape[1] != self.n_active:
                raise ValueError(f"rewards has shape ({rewards.shape[0]}, {rewards.shape[1]}); ask() wanted "
                                 f"({target - self.n_read}, {self.n_active}): a row per row number, a column per arm")
            with nogil:
                self._prepare(target, ROWS_PER_BLOCK)
                start = self.n_read
                while start < target:
                    count = <Py_ssize_t>min(<int64_t>ROWS_PER_BLOCK, target - start)
                    self._aim(start, target)
                    for j in range(self.n_active):
                        for i in range(count):
                            self.block[j][i] = rewards[start - self.n_read + i, j]
                    self._absorb(start, count, target)
                    start += count
                self._close_look(target, self.scan_advantage)
        finally:
            guard_leave(&self.guard)

    # Driving by hand, ahead of the looks.

    def progress(self):
        """Rows that looks have taken, rows at the next look, and the rows that `max_pulls` allows: as of the last look.

        All three are equal once the race is over.
        """
        cdef int64_t most
        guard_enter(&self.guard, self)
        try:
            if self.unjudged:
                self._judge_and_plan(self.scan_advantage)
            if self.status != RUNNING:
                return self.n_read, self.n_read, self.n_read
            most = self.n_rows
            if self.max_pulls >= 0:
                most = min(most, self.n_read + max(self.max_pulls - self.spent, <int64_t>0) // self.n_active)
            return self.n_read, self._target(), most
        finally:
            guard_leave(&self.guard)

    def running(self):
        """The arms that are still in the race, in the order of `ask`."""
        return self._active[:self.n_active].copy()

    def rows_between(self, int64_t first, int64_t last):
        """The rows at these positions of the order, whether or not a look has come to them."""
        cdef cnp.ndarray rows
        guard_enter(&self.guard, self)
        try:
            if not 0 <= first <= last <= self.n_rows:
                raise ValueError(f"positions {first} to {last} are not among {self.n_rows} rows")
            self.order.settle(last)
            rows = np.empty(last - first, np.int64)
            rows_in(self.order, first, <Py_ssize_t>(last - first), <int64_t *>cnp.PyArray_DATA(rows))
            return rows
        finally:
            guard_leave(&self.guard)

    def affordable(self):
        """Rewards that `max_pulls` leaves beside those that looks have taken and those charged; None without it."""
        guard_enter(&self.guard, self)
        try:
            return None if self.max_pulls < 0 else self.max_pulls - self.spent
        finally:
            guard_leave(&self.guard)

    def charge(self, int64_t rewards):
        """Count rewards that were paid for, and that no look will take, against `max_pulls`; fewer where negative."""
        guard_enter(&self.guard, self)
        try:
            self.spent += rewards
            self._stop_if_spent()
        finally:
            guard_leave(&self.guard)

    # Driving a source.

    def run(self, Source source not None, report=None, patient=False):
        """Race on a source until the race is over; `report` takes the rewards read so far, now and then, and may raise.

        A `patient` race waits to the last row for one that no arm misses.
        """
        self._check_source(source)
        guard_enter(&self.guard, self)
        try:
            self.report, self.reporting, self.patient = report, report is not None, patient
            with nogil:
                self._run(source)
        finally:
            self.report, self.reporting, self.patient = None, False, False
            guard_leave(&self.guard)

    cdef int _show(self, int64_t more) except -1 nogil:
        """Report the rewards of all looks, and of so many more rows."""
        if self.reporting:
            with gil:
                self.report(self.spent + more * self.n_active)
        return 0

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
                with self.order.lock, nogil:
                    for i in range(self.n_arms):
                        self.offset[i] = log_prior[i] + gumbel(self.order.bits)
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
            self.order.begin_again()
            self.order.take_generator(rng)
        finally:
            guard_leave(&self.guard)

    def _check_source(self, Source source):
        guard_check_built(&self.guard, self)
        guard_check_built(&source.guard, source)
        if source.n_arms != self.n_arms or source.n_rows != self.n_rows:
            raise ValueError(f"the source has {source.n_rows} rows of {source.n_arms} arms; this race was set up for "
                             f"{self.n_rows} rows of {self.n_arms} arms")
        find_still = getattr(source, "still_arms", None)
        self._still[:] = False if find_still is None or self.proxied else find_still()

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
            if target == self.n_rows and self.order.in_window and self.missing == RAISE:
                self._read_rest_in_order(source)
            elif (target == self.n_rows and self.missing == RAISE
                  and advantage * (self.n_rows - self.n_read) >= self.n_rows and self._affords(self.n_rows)):
                self._read_in_order(source)
            else:
                self._read_at_random(source, target)
                self._close_look(target, advantage)
            self._show(0)
        return 0

    cdef int _open(self, Source source) except -1 nogil:
        """Ask the source what it knows of the sums beside the rewards, until the first look is done."""
        cdef Py_ssize_t j
        cdef double value
        if self.n_read > 0 and self.opened:
            return 0
        if self.n_read == 0:
            for j in range(self.n_arms):
                self.shift[j] = 0.0
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
            if value != 0.0 and self.missing == DROP:
                with gil:
                    raise ValueError("missing is 'drop' and the source knows part of the sums over all rows, which "
                                     "says nothing of the rows that remain; take a source of plain rewards, or "
                                     "missing='worst'")
            if value != 0.0 and self.n_read > 0:
                with gil:
                    raise ValueError("the source knows part of the sums, which the looks told by hand left out; give "
                                     "source.shifts() as offset when you drive the race by hand")
        if self.n_read == 0:
            for j in range(self.n_active):
                self.shift[self.active[j]] = self.scratch[j]
            self._line_up()
            if self.leader < 0:
                for j in range(self.n_arms):        # as it was before the call
                    self.shift[j] = 0.0
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
        return price_of_a_row(source, self.order.in_window, pair_work(self.bound == BETTING), 1.0)

    cdef int64_t _target(self) noexcept nogil:
        """Rows at the next look: as planned, or as many as the rewards left allow."""
        cdef int64_t target = self._planned()
        if self.max_pulls < 0:
            return target
        return min(target, self.n_read + max(self.max_pulls - self.spent, <int64_t>0) // self.n_active)

    cdef int64_t _planned(self) noexcept nogil:
        return self.n_rows if self.full_pass else self.look[self.looks_taken]

    cdef bint _affords(self, int64_t rows) noexcept nogil:
        """Whether the rewards left are enough for so many rows of the active arms."""
        return self.max_pulls < 0 or rows <= (self.max_pulls - self.spent) // self.n_active

    cdef void _stop_if_spent(self) noexcept nogil:
        if self.status == RUNNING and self.n_rows > 0 and not self._affords(1):
            self.status = BY_BUDGET

    cdef int _read_at_random(self, Source source, int64_t target) except -1 nogil:
        cdef int64_t start = self.n_read
        cdef Py_ssize_t block = ROWS_PER_BLOCK if source.first_look <= 64 else ROWS_PER_CALL
        cdef Py_ssize_t count, since_check = 0
        self.order.settle(target)
        self._prepare(target, block)
        while start < target:
            count = <Py_ssize_t>min(<int64_t>block, target - start)
            self._aim(start, target)
            self.evaluations += count * self.n_active
            read_rows(source, self.order, start, count, self.active, self.n_active, self.rows, self.block)
            self._absorb(start, count, target)
            start += count
            since_check += count
            if start < target:          # a report may end the run: a look that is complete is taken first
                self._show(start - self.n_read)
            if since_check >= ROWS_PER_CHECK:
                check_signals()
                since_check = 0
        return 0

    cdef int _read_in_order(self, Source source) except -1 nogil:
        cdef int64_t again = self.n_read * self.n_active
        source.total(self.active, self.n_active, self.scratch)
        self.evaluations += self.n_rows * self.n_active
        self._take_totals(source)
        self.spent += again
        return 0

    cdef int _read_rest_in_order(self, Source source) except -1 nogil:
        """The rows that a window in order has left, round the end of the table."""
        cdef int64_t first, left = self.n_rows - self.n_read, head
        cdef Py_ssize_t j
        self.order.settle(self.n_rows)
        first = row_in(self.order, self.n_read)
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

    # One look: prepare, absorb block by block, commit, judge.

    cdef int _prepare(self, int64_t target, Py_ssize_t block) except -1 nogil:
        """Room for the rewards up to `target`, and scratch copies of what this look will change."""
        if self.pairwise and target < self.n_rows:
            self.reserve(<Py_ssize_t>target)
        else:                                       # sums only, or one block at a time, above what is kept
            self.reserve((<Py_ssize_t>self.n_read if self.pairwise else 0) + block)
        memcpy(self.new_moments, self.comparisons(self.leader if self.pairwise else 0),
               self.n_arms * sizeof(moments4_t))
        memcpy(self.new_sum, self.sum, self.n_arms * sizeof(double))
        memset(self.dead, 0, self.n_arms)
        self.new_flags = 0
        return self._expect_missing(target)

    cdef int _expect_missing(self, int64_t target) except -1 nogil:
        """Before a look: room for marks, and what a row that is dropped is to show, within every support."""
        self.new_dropped = self.n_dropped
        memcpy(self.new_lost, self.lost, self.n_arms * sizeof(int64_t))
        if self.missing == DROP:
            self.reserve_marks(<Py_ssize_t>target if target < self.n_rows else 0)
            if self.n_dropped == 0:             # a saved race has no marks until a row is dropped
                memset(self.marks, 0, min(self.n_read, <int64_t>self.marks_capacity))
            self.filler = self.mean[self.leader]
            if isnan(self.filler):
                self.filler = 0.5 * (self.fill_low + self.fill_high) if self.bounded_support else 0.0
            self.filler = min(max(self.filler, self.fill_low), self.fill_high)
        return 0

    cdef void _fill_in(self, int64_t first, Py_ssize_t done, Py_ssize_t size, bint kept) noexcept nogil:
        """Replace missing rewards of `size` rows, of which the first is position `first` of the order.

        The worst is the low end of the support. A row that is dropped gets one and the same value for all arms, so that
        no difference of arms changes, and is marked where rewards are `kept`.
        """
        cdef Py_ssize_t k, j, i
        cdef bint lost
        self.dropped_now = 0
        for k in range(size):
            lost = False
            for j in range(self.n_active):
                i = self.active[j]
                if isnan(self.block[j][done + k]):
                    lost = True
                    self.new_lost[i] += 1
                    if self.missing == WORST:
                        self.block[j][done + k] = self.low[i]
            if self.missing == DROP:
                if kept:
                    self.marks[first + k] = lost
                for j in range(self.n_active if lost else 0):
                    self.block[j][done + k] = self.filler
            self.dropped_now += lost
        self.new_dropped += self.dropped_now if self.missing == DROP else 0
        if self.dropped_now > 0:
            self.new_flags |= MISSING_REWARD

    cdef void _aim(self, int64_t start, int64_t target) noexcept nogil:
        """Point `at` to where the block that begins at `start` is to be written."""
        cdef Py_ssize_t j, place = 0
        if self.pairwise:
            place = <Py_ssize_t>(start if target < self.n_rows else self.n_read)
        for j in range(self.n_active):
            self.block[j] = self.column[self.active[j]] + place

    cdef int _absorb(self, int64_t start, Py_ssize_t count, int64_t target) except -1 nogil:
        """Sums, range and moments of a block, into the scratch copies."""
        cdef Py_ssize_t done = 0, size, i, j, leader = self.leader
        cdef double *x
        cdef double *best = NULL
        cdef double total, low, high
        while done < count:
            size = min(<Py_ssize_t>ROWS_PER_BLOCK, count - done)
            if self.missing != RAISE:
                self._fill_in(start + done, done, size, target < self.n_rows)
            for j in range(self.n_active):
                i = self.active[j]
                x = self.block[j] + done
                if i == leader:
                    best = x
                total = fr_sum(x, size) - (self.dropped_now * self.filler if self.missing == DROP else 0.0)
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
                    x = self.block[j] + done
                    if not self.pairwise:
                        moments4_extend(&self.new_moments[i], x, size)
                    elif i != leader and not self.dead[leader]:
                        moments4_extend_difference(&self.new_moments[i], best, x, size)
            done += size
        return 0

    cdef int _inspect(self, Py_ssize_t arm, const double *x, int64_t start, Py_ssize_t count) except -1 nogil:
        """A sum is not finite: -inf settles the arm if no support leaves it out, nan and +inf are errors."""
        cdef Py_ssize_t i = first_bad(x, count)
        if i >= 0:
            with gil:
                raise arm_error(self, arm, bad_reward(x[i], arm, row_in(self.order, start + i)))
        for i in range(count):
            if x[i] == -INFINITY and self.missing == DROP:
                with gil:
                    raise arm_error(self, arm, IMPOSSIBLE_AND_DROPPED)
            if x[i] == -INFINITY and self._must_be_finite():
                with gil:
                    raise self._outside(arm, x[i], row_in(self.order, start + i))
            if x[i] == -INFINITY:
                self.dead[arm] = 1
                self.new_flags |= IMPOSSIBLE_REWARD
        if not self.dead[arm]:
            with gil:
                raise arm_error(self, arm, _overflow(arm, self.new_sum[arm]))
        return 0

    cdef int _refuse_outside(self, Py_ssize_t arm, const double *x, int64_t start, Py_ssize_t count) except -1 nogil:
        cdef double low = self.low[arm], high = self.high[arm]
        cdef Py_ssize_t i = first_outside(x, count, lower_end(low, high), upper_end(low, high))
        if i >= 0:
            with gil:
                raise self._outside(arm, x[i], row_in(self.order, start + i))
        return 0

    cdef bint _must_be_finite(self) noexcept nogil:
        """Whether -inf is outside a support that is kept to, so that it settles no arm."""
        return self.bounded_support and self.strict

    cdef object _outside(self, Py_ssize_t arm, double reward, int64_t row):
        return arm_error(self, arm, reward_outside(reward, arm, row, self.low[arm], self.high[arm]))

    cdef int _explain(self, Source source, Py_ssize_t arm) except -1:
        """Why a full pass gave a sum that is not finite: raise, unless a reward of -inf accounts for it."""
        row, impossible = bad_row(source, [arm], not self._must_be_finite())
        if row is not None:
            reward = float(source.read([row], [arm])[0, 0])
            raise self._outside(arm, reward, row) if reward == -np.inf else arm_error(
                self, arm, bad_reward(reward, arm, row))
        if not impossible or self.new_sum[arm] != -np.inf:
            raise arm_error(self, arm, _overflow(arm, self.new_sum[arm]))
        self.new_flags |= IMPOSSIBLE_REWARD
        return 0

    cdef int _close_look(self, int64_t target, double advantage) except -1 nogil:
        cdef bint cut = target < self._planned()
        if self.missing == DROP:
            self._listen(target)
        if target == self.n_rows:
            return self._finish(self.new_sum)
        self._commit(target)
        if cut and self.bound != BETTING:       # the plan has no test here, and each test has its price
            self.unjudged = False
            self.status = BY_BUDGET
            return 0
        return self._judge_and_plan(advantage)

    cdef int _judge_and_plan(self, double advantage) except -1 nogil:
        self._judge()
        self._stop_if_spent()
        if (self.status == RUNNING and advantage > 1.0 and self.missing == RAISE
                and self._affords(self.n_rows - self.n_read if self.order.in_window else self.n_rows)):
            # A window in order needs no second reading of the rows it has passed.
            self.full_pass = full_pass_pays(self._rows_needed(), self.n_read, self.look[self.looks_taken], self.n_rows,
                                            self.n_rows - self.n_read if self.order.in_window else self.n_rows,
                                            advantage)
        return 0

    @property
    def done(self):
        """Whether the race is over."""
        return self.status != RUNNING

    @property
    def n_looked(self):
        """Rows that looks have taken; also while the race drives a source."""
        return self.n_read

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
                placed = self.n_read == (high if self.unjudged else low)
                placed = placed or (self.max_pulls >= 0 and low < self.n_read < high)
            if not (placed and (self.n_read < self.n_rows or self.n_rows == 0) and self.n_active > 0):
                raise DamagedError("the saved race is damaged: it is not where its plan of looks says")


IMPOSSIBLE_AND_DROPPED = ("a reward is -inf and missing is 'drop'; an arm that is impossible leaves at once, and "
                          "which rows it misses is then unknown: leave the arm out, or take missing='worst'")


def bad_reward(value, arm, row):
    absent = "; if it is missing, say missing='drop' or 'worst'" if isnan(value) else ""
    return (f"the reward of arm {arm} on row {row} is {value}; rewards must be finite numbers, or -inf for an arm that "
            f"is impossible, because nan and +inf compare with nothing{absent}")


def _overflow(arm, total):
    return f"the rewards of arm {arm} sum to {total} though each is finite; scale them down"
