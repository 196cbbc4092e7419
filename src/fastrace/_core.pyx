"""The race over a finite population: Chen & Ghahramani (2016), Algorithm 1, with any of our bounds.

One `Race` is one state machine with three doors. `ask` and `tell` drive it by hand, `run` drives it on a compiled
source without the GIL, `draw_many` runs one race per draw on Gumbel-perturbed arms. What a look has fetched stays aside
until the look is complete, so that an exception or Ctrl-C in between leaves the race as it was.
"""

from libc.math cimport INFINITY, NAN, isfinite, isnan, sqrt
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.pycapsule cimport PyCapsule_GetPointer
cimport numpy as cnp
from numpy.random cimport bitgen_t

from fastrace._betting cimport bets_init, bets_t, wealth_extend, wealth_init, wealth_rejects, wealth_t
from fastrace._bounds cimport empirical_bernstein_serfling, hoeffding_serfling, normal, serfling, skewness_inflation
from fastrace._criteria cimport full_pass_pays, rows_needed
from fastrace._keyed_order cimport keyed_order_at, keyed_order_init, keyed_order_t
from fastrace._moments cimport (moments4_extend, moments4_extend_difference, moments4_kurtosis, moments4_skewness,
                                moments4_std)
from fastrace._rng cimport (ORDER_LIMIT, bounded, gumbel, order_advance, order_free, order_init, order_row, order_t)
from fastrace._simd cimport fr_range, fr_sum
from fastrace._types cimport moments4_t
from fastrace.sources cimport Source, check_signals

import numpy as np

cnp.import_array()

BOUNDS = ("normal", "betting", "hoeffding-serfling", "empirical-bernstein-serfling", "serfling")
STOPPED_BY = ("", "bound", "exact", "single")

cdef enum:      # places in BOUNDS
    NORMAL = 0
    BETTING = 1
    HOEFFDING_SERFLING = 2
    EMPIRICAL_BERNSTEIN_SERFLING = 3
    SERFLING = 4

cdef enum:      # places in STOPPED_BY
    RUNNING = 0
    BY_BOUND = 1
    BY_EXACT = 2
    SINGLE = 3

cdef enum:      # what may void the promise
    OUTSIDE_SUPPORT = 1
    CONSTANT_FIRST_LOOK = 2
    SKEWED = 4
    IMPOSSIBLE_REWARD = 8

cdef enum:
    BLOCK = 512             # rows whose moments are taken while they are in cache; also the grain of all sums
    PATIENT_BLOCK = 8192    # rows per call to a source that is cheaper in large blocks
    ROWS_PER_CHECK = 4096   # rows between two looks at pending signals


cdef class Race:
    """State of one race and the memory that successive races share. `racing.FiniteRace` is its public face."""

    cdef readonly Py_ssize_t n_arms
    cdef readonly int64_t n_rows
    cdef readonly object rng
    cdef object lock
    cdef bitgen_t *bits
    cdef int bound
    cdef bint pairwise, shuffled, guarded, bounded_support
    cdef double scan_advantage          # 0: as the source says
    # the plan: when to look, and what each look may spend
    cdef Py_ssize_t n_looks
    cdef cnp.ndarray _looks, _quantiles
    cdef int64_t *look
    cdef double *quantile
    cdef double log_inv_delta
    cdef bets_t bets
    # one value per arm; the arrays own the memory, the pointers are for the loops
    cdef readonly cnp.ndarray _offset, _known, _low, _high, _sum, _new_sum, _mean, _half_width, _pulls, _active, _dead
    cdef double *offset
    cdef double *known
    cdef double *low
    cdef double *high
    cdef double *sum
    cdef double *new_sum
    cdef double *mean
    cdef double *half_width
    cdef int64_t *pulls
    cdef Py_ssize_t *active
    cdef char *dead
    cdef Py_ssize_t n_active
    # rewards read, a column per arm (pairwise), or one block of them (marginal)
    cdef double **column
    cdef double **at
    cdef Py_ssize_t capacity
    cdef int64_t *rows
    # moments of differences to each arm that has led so far (pairwise) or of each arm (marginal, in row 0)
    cdef moments4_t **moments
    cdef moments4_t *new_moments
    cdef wealth_t **wealth
    # draws
    cdef order_t order
    cdef keyed_order_t keyed
    cdef int64_t window
    # progress
    cdef int64_t told, drawn
    cdef Py_ssize_t looks_taken, leader
    cdef bint full_pass, opened
    cdef int status, flags, new_flags
    cdef readonly int64_t evaluations   # rewards asked for so far in all races of this object
    cdef moments4_t closest

    def __cinit__(self, n_arms, n_rows, *args, **kwargs):
        self.n_arms = n_arms
        self.n_rows = n_rows
        self.column = <double **>calloc(self.n_arms, sizeof(double *))
        self.at = <double **>calloc(self.n_arms, sizeof(double *))
        self.rows = <int64_t *>calloc(PATIENT_BLOCK, sizeof(int64_t))
        self.moments = <moments4_t **>calloc(self.n_arms, sizeof(moments4_t *))
        self.wealth = <wealth_t **>calloc(self.n_arms, sizeof(wealth_t *))
        self.new_moments = <moments4_t *>calloc(self.n_arms, sizeof(moments4_t))
        if (self.column == NULL or self.at == NULL or self.rows == NULL or self.moments == NULL
                or self.wealth == NULL or self.new_moments == NULL):
            raise MemoryError()

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self.n_arms):
            if self.column != NULL:
                free(self.column[i])
            if self.moments != NULL:
                free(self.moments[i])
            if self.wealth != NULL:
                free(self.wealth[i])
        free(self.column)
        free(self.at)
        free(self.rows)
        free(self.moments)
        free(self.wealth)
        free(self.new_moments)
        order_free(&self.order)

    def __init__(self, n_arms, n_rows, *, bound, pairwise, shuffled, guarded, scan_advantage, low, high, rng):
        cdef Py_ssize_t d = self.n_arms
        self.bound = BOUNDS.index(bound)
        self.pairwise = pairwise
        self.shuffled = shuffled
        self.guarded = guarded
        self.scan_advantage = scan_advantage
        self.bounded_support = low is not None
        self._low = np.zeros(d) if low is None else low
        self._high = np.zeros(d) if high is None else high
        self._offset, self._known, self._sum, self._new_sum = np.zeros(d), np.zeros(d), np.zeros(d), np.zeros(d)
        self._mean, self._half_width = np.full(d, np.nan), np.full(d, np.nan)
        self._pulls, self._active = np.zeros(d, np.int64), np.arange(d, dtype=np.intp)
        self._dead = np.zeros(d, np.int8)
        self.low = <double *>cnp.PyArray_DATA(self._low)
        self.high = <double *>cnp.PyArray_DATA(self._high)
        self.offset = <double *>cnp.PyArray_DATA(self._offset)
        self.known = <double *>cnp.PyArray_DATA(self._known)
        self.sum = <double *>cnp.PyArray_DATA(self._sum)
        self.new_sum = <double *>cnp.PyArray_DATA(self._new_sum)
        self.mean = <double *>cnp.PyArray_DATA(self._mean)
        self.half_width = <double *>cnp.PyArray_DATA(self._half_width)
        self.pulls = <int64_t *>cnp.PyArray_DATA(self._pulls)
        self.active = <Py_ssize_t *>cnp.PyArray_DATA(self._active)
        self.dead = <char *>cnp.PyArray_DATA(self._dead)
        self.rng = rng
        self.lock = rng.bit_generator.lock
        self.bits = <bitgen_t *>PyCapsule_GetPointer(rng.bit_generator.capsule, b"BitGenerator")
        if self.bound == BETTING:
            bets_init(&self.bets, self.n_rows)
        if not self.shuffled and self.n_rows <= ORDER_LIMIT and order_init(&self.order, self.n_rows):
            raise MemoryError()

    def plan(self, looks, quantiles, log_inv_delta):
        """Set the looks (the last is n_rows), the quantile of each, and log(1 / delta) of a comparison at one look."""
        self._looks = np.ascontiguousarray(looks, dtype=np.int64)
        self._quantiles = np.ascontiguousarray(quantiles, dtype=np.float64)
        self.look = <int64_t *>cnp.PyArray_DATA(self._looks)
        self.quantile = <double *>cnp.PyArray_DATA(self._quantiles)
        self.n_looks = self._looks.shape[0]
        self.log_inv_delta = log_inv_delta

    def begin(self, offset):
        """Start a race with these offsets, on the scale of sums; arms with offset -inf take no part."""
        self._offset[:] = offset
        with nogil:
            self._begin()

    cdef void _begin(self) noexcept nogil:
        cdef Py_ssize_t i
        self.n_active = 0
        self.leader = -1
        for i in range(self.n_arms):
            self.sum[i] = 0.0
            self.known[i] = 0.0
            self.mean[i] = NAN
            self.half_width[i] = NAN
            self.pulls[i] = 0
            self.dead[i] = 0
            if self.offset[i] > -INFINITY:
                if self.leader < 0 or self.offset[i] > self.offset[self.leader]:
                    self.leader = i
                self.active[self.n_active] = i
                self.n_active += 1
            else:
                self.mean[i] = -INFINITY
                self.half_width[i] = 0.0
            if self.moments[i] != NULL:
                memset(self.moments[i], 0, self.n_arms * sizeof(moments4_t))
            if self.wealth[i] != NULL:
                self._reset_wealth(i)
        memset(&self.closest, 0, sizeof(moments4_t))
        self.told = 0
        self.drawn = 0
        self.looks_taken = 0
        self.full_pass = False
        self.opened = False
        self.flags = 0
        self.status = SINGLE if self.n_active == 1 else RUNNING
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
        if self.status != RUNNING:
            raise ValueError("the race is over; there is nothing left to ask for")
        target = self._target()
        self._draw(target)
        rows = np.empty(target - self.told, np.int64)
        row = <int64_t *>cnp.PyArray_DATA(rows)
        with nogil:
            for i in range(self.told, target):
                row[i - self.told] = self._row(i)
        return self._active[:self.n_active].copy(), rows

    def tell(self, double[:, :] rewards):
        """Take the rewards that `ask` wanted, rows by arms, and look."""
        cdef int64_t target, start
        cdef Py_ssize_t i, j, count
        if self.status != RUNNING:
            raise ValueError("the race is over; it takes no more rewards")
        target = self._target()
        if self.drawn < target:
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

    # Driving a source.

    def run(self, Source source not None):
        """Race on a source until the race is over."""
        self._check_source(source)
        with nogil:
            self._run(source)

    def draw_many(self, Source source not None, const double[::1] log_prior, Py_ssize_t[::1] out, double[::1] fraction):
        """One race per draw on Gumbel-perturbed arms; `fraction` takes the share of rewards read by each draw."""
        cdef Py_ssize_t k, i
        cdef int64_t pulls
        cdef Py_ssize_t exact = 0, looks = 0
        self._check_source(source)
        for k in range(out.shape[0]):
            with self.lock, nogil:
                for i in range(self.n_arms):
                    self.offset[i] = log_prior[i] + gumbel(self.bits)
            with nogil:
                self._begin()
                self._run(source)
                pulls = 0
                for i in range(self.n_arms):
                    pulls += self.pulls[i]
            out[k] = self.leader
            fraction[k] = <double>pulls / max(<double>self.n_rows * self.n_arms, 1.0)
            exact += self.status == BY_EXACT
            looks += self.looks_taken
            if k % 64 == 63:
                check_signals()
        return exact, looks

    def _check_source(self, Source source):
        if source.n_arms != self.n_arms or source.n_rows != self.n_rows:
            raise ValueError(f"the source has {source.n_rows} rows of {source.n_arms} arms; this race was set up for "
                             f"{self.n_rows} rows of {self.n_arms} arms")

    cdef int _run(self, Source source) except -1 nogil:
        cdef int64_t target
        cdef double advantage = self._advantage(source)
        if self.status == RUNNING and not self.opened:
            self._open(source)
        while self.status == RUNNING:
            target = self._target()
            if target == self.n_rows and advantage * (self.n_rows - self.told) >= self.n_rows:
                self._read_in_order(source)
            else:
                self._read_at_random(source, target)
                self._close_look(target, advantage)
        return 0

    cdef int _close_look(self, int64_t target, double advantage) except -1 nogil:
        if target == self.n_rows:
            return self._finish(self.new_sum)
        self._evaluate(target)
        if self.status == RUNNING and advantage > 1.0:
            self.full_pass = full_pass_pays(self._rows_needed(), self.told, self.look[self.looks_taken], self.n_rows,
                                            advantage)
        return 0

    cdef int _open(self, Source source) except -1 nogil:
        """Ask the source, once per race, what it knows of the sums beside the rewards."""
        cdef Py_ssize_t j
        source.shift(self.active, self.n_active, self.new_sum)
        for j in range(self.n_active):
            self.known[self.active[j]] = self.new_sum[j]
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
        return self.n_rows if self.full_pass else self.look[self.looks_taken]

    cdef int _read_at_random(self, Source source, int64_t target) except -1 nogil:
        cdef int64_t start = self.told
        cdef Py_ssize_t block = BLOCK if source.first_look <= 64 else PATIENT_BLOCK
        cdef Py_ssize_t count, since_check = 0
        self._draw(target)
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
        cdef Py_ssize_t j, i
        source.total(self.active, self.n_active, self.new_sum)
        self.evaluations += self.n_rows * self.n_active
        for j in range(self.n_active - 1, -1, -1):     # from one value per active arm to one per arm, in place
            i = self.active[j]
            self.new_sum[i] = self.new_sum[j]
            if isnan(self.new_sum[i]) or self.new_sum[i] == INFINITY:
                with gil:
                    self._blame(source, i)
        self._finish(self.new_sum)
        return 0

    cdef int _fetch(self, Source source, int64_t start, Py_ssize_t count) except -1 nogil:
        """Rewards of the active arms on positions start .. start + count - 1 of this race's order, to `at`."""
        cdef int64_t first
        cdef Py_ssize_t i, j, head
        self.evaluations += count * self.n_active
        if not self.shuffled:
            for i in range(count):
                self.rows[i] = self._row(start + i)
            source.fill(self.rows, count, self.active, self.n_active, self.at)
            return 0
        first = self._row(start)
        head = <Py_ssize_t>min(<int64_t>count, self.n_rows - first)
        source.fill_range(first, head, self.active, self.n_active, self.at)
        if head < count:                            # the window goes round the end of the table
            for j in range(self.n_active):
                self.at[j] += head
            source.fill_range(0, count - head, self.active, self.n_active, self.at)
            for j in range(self.n_active):
                self.at[j] -= head
        return 0

    # Draws.

    cdef int _draw(self, int64_t target) except -1 nogil:
        """Settle the order up to `target`, once: a look that failed is asked for again with the same rows."""
        if self.drawn >= target:
            return 0
        with gil:
            self.lock.acquire()
        if self.shuffled:
            if self.drawn == 0:
                self.window = bounded(self.bits, self.n_rows)
        elif self.order.code == NULL:
            if self.drawn == 0:
                keyed_order_init(&self.keyed, self.n_rows, self.bits)
        else:
            order_advance(&self.order, self.bits, self.drawn, target - self.drawn)
        with gil:
            self.lock.release()
        self.drawn = target
        return 0

    cdef inline int64_t _row(self, int64_t position) noexcept nogil:
        if self.shuffled:
            position += self.window
            return position - self.n_rows if position >= self.n_rows else position
        if self.order.code == NULL:
            return keyed_order_at(&self.keyed, position)
        return order_row(&self.order, position)

    # One look: prepare, absorb block by block, evaluate.

    cdef int _prepare(self, int64_t target, Py_ssize_t block) except -1 nogil:
        """Room for the rewards up to `target`, and scratch copies of what this look will change."""
        cdef Py_ssize_t j, wanted, row = self.leader if self.pairwise else 0
        cdef double *longer
        if self.pairwise and target < self.n_rows:
            wanted = <Py_ssize_t>target
        else:                                       # sums only, or one block at a time, above what is kept
            wanted = (<Py_ssize_t>self.told if self.pairwise else 0) + block
        if wanted > self.capacity:
            for j in range(self.n_arms):
                longer = <double *>realloc(self.column[j], wanted * sizeof(double))
                if longer == NULL:
                    with gil:
                        raise MemoryError()
                self.column[j] = longer
            self.capacity = wanted
        self._row_of_moments(row)
        memcpy(self.new_sum, self.sum, self.n_arms * sizeof(double))
        memcpy(self.new_moments, self.moments[row], self.n_arms * sizeof(moments4_t))
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
                if not isfinite(total):
                    self._inspect(i, x, start + done, size)
                self.new_sum[i] += total
                if self.bounded_support:
                    fr_range(x, size, &low, &high)
                    if low < self.low[i] or high > self.high[i]:
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
                    raise ValueError(_bad_reward(x[i], arm, self._row(start + i)))
            if x[i] == -INFINITY:
                self.dead[arm] = 1
                self.new_flags |= IMPOSSIBLE_REWARD
        return 0

    def _blame(self, Source source, arm):
        """Find the reward that spoilt a full pass and raise."""
        for first in range(0, self.n_rows, PATIENT_BLOCK):
            rows = np.arange(first, min(first + PATIENT_BLOCK, self.n_rows))
            rewards = source.read(rows, [arm])[:, 0]
            bad = np.flatnonzero(np.isnan(rewards) | (rewards == np.inf))
            if bad.size:
                raise ValueError(_bad_reward(rewards[bad[0]], arm, rows[bad[0]]))
        raise ValueError(f"the rewards of arm {arm} sum to {self.new_sum[arm]} though each is finite: scale them down")

    cdef int _evaluate(self, int64_t n) except -1 nogil:
        """The look itself: who leads, and who is out."""
        cdef Py_ssize_t i, j, kept, leader = -1
        cdef double gap, width, ratio, closest = INFINITY, best = 0.0, mean
        cdef moments4_t *m
        for j in range(self.n_active):
            i = self.active[j]
            mean = self.new_sum[i] / n + (self.offset[i] + self.known[i]) / self.n_rows
            if not self.dead[i] and (leader < 0 or mean > best):
                leader = i
                best = mean
        if leader < 0:
            with gil:
                raise ValueError("every arm still in the race has a reward of -inf: no arm is possible")
        self._row_of_moments(leader if self.pairwise else 0)

        # Nothing below can fail: keep what the look has brought.
        memcpy(self.sum, self.new_sum, self.n_arms * sizeof(double))
        if not self.pairwise:
            memcpy(self.moments[0], self.new_moments, self.n_arms * sizeof(moments4_t))
        elif not self.dead[self.leader]:
            memcpy(self.moments[self.leader], self.new_moments, self.n_arms * sizeof(moments4_t))
        self.flags |= self.new_flags
        self.told = n
        self.leader = leader
        for j in range(self.n_active):
            i = self.active[j]
            self.mean[i] = (-INFINITY if self.dead[i] else
                            self.sum[i] / n + (self.offset[i] + self.known[i]) / self.n_rows)
            self.pulls[i] = n

        kept = 0
        for j in range(self.n_active):
            i = self.active[j]
            if i == leader:
                self.half_width[i] = NAN if self.pairwise else self._width(&self.moments[0][i], i, i)
            elif self.dead[i]:
                self.half_width[i] = 0.0
                continue
            else:
                gap = self.mean[leader] - self.mean[i]
                if self.pairwise:
                    m = &self.moments[leader][i]
                    self._catch_up(leader, i, n)
                    width = self._width(m, leader, i)
                else:
                    m = &self.moments[0][i]
                    width = self._width(m, i, i)
                self.half_width[i] = NAN if self.bound == BETTING else width
                if not self.pairwise:
                    width += self._width(&self.moments[0][leader], leader, leader)
                ratio = gap / width if width > 0.0 else INFINITY
                if ratio < closest:
                    closest = ratio
                    self.closest = m[0]
                if self._out(m, leader, i, gap, width):
                    continue
            self.active[kept] = i
            kept += 1
        self.n_active = kept
        self.looks_taken += 1
        if kept == 1:
            self.status = BY_BOUND
        return 0

    cdef bint _out(self, const moments4_t *m, Py_ssize_t leader, Py_ssize_t i, double gap,
                   double width) noexcept nogil:
        """Whether the leader has beaten arm i."""
        cdef double skewness, inflation
        if self.bound == BETTING:
            return wealth_rejects(&self.wealth[leader][i], self.log_inv_delta)
        if not gap > width:
            return False
        if self.bound == NORMAL:
            # The danger is an upper tail of the leader's lead: differences skewed to the left.
            skewness = moments4_skewness(m) if self.pairwise else -moments4_skewness(m)
            inflation = skewness_inflation(skewness, m.n, self.n_rows, self.quantile[self.looks_taken])
            if inflation > 0.25:
                if self.guarded:
                    return False
                self.flags |= SKEWED
        return True

    cdef double _width(self, const moments4_t *m, Py_ssize_t i, Py_ssize_t j) noexcept nogil:
        """Half-width of the mean of arm i (i = j) or of its lead over arm j."""
        cdef double std = moments4_std(m), span = self.high[i] - self.low[i]
        if i != j:
            span += self.high[j] - self.low[j]
        if self.bound == HOEFFDING_SERFLING:
            return hoeffding_serfling(m.n, self.n_rows, self.log_inv_delta, span)
        if self.bound == EMPIRICAL_BERNSTEIN_SERFLING:
            return empirical_bernstein_serfling(m.n, self.n_rows, std, self.log_inv_delta, span)
        if self.bound == SERFLING:
            return serfling(m.n, self.n_rows, std, self.log_inv_delta, span)
        if self.bound == BETTING:       # no interval is inverted: what a normal rule of equal evidence would have
            return normal(m.n, self.n_rows, std, sqrt(2.0 * (self.log_inv_delta + 2.0)))
        # A batch without spread says nothing about the rest: the spread is unknown, not zero.
        if std <= 1e-12 * abs(m.mean) + 1e-15 * (abs(self.mean[i]) + abs(self.mean[j])):
            if self.looks_taken == 0:
                self.flags |= CONSTANT_FIRST_LOOK
            return INFINITY
        return normal(m.n, self.n_rows, std, self.quantile[self.looks_taken])

    cdef void _catch_up(self, Py_ssize_t leader, Py_ssize_t i, int64_t n) noexcept nogil:
        """Bring the comparison of the leader with arm i up to n rows, from the rewards kept."""
        cdef moments4_t *m = &self.moments[leader][i]
        cdef wealth_t *w
        cdef int64_t start = m.n
        cdef Py_ssize_t count
        cdef double shift
        while start < n:
            count = <Py_ssize_t>min(<int64_t>BLOCK, n - start)
            moments4_extend_difference(m, self.column[leader] + start, self.column[i] + start, count)
            start += count
        if self.bound == BETTING:
            w = &self.wealth[leader][i]
            shift = ((self.offset[leader] + self.known[leader]) - (self.offset[i] + self.known[i])) / self.n_rows
            wealth_extend(w, &self.bets, self.column[leader] + w.n, self.column[i] + w.n, shift,
                          <Py_ssize_t>(n - w.n), self.low[leader] - self.high[i] + shift, self.n_rows)

    cdef double _rows_needed(self) noexcept nogil:
        """Rows after which the arms still in the race should be apart, gaps and spreads staying as they are."""
        cdef Py_ssize_t j, i
        cdef double width, needed = 0.0
        for j in range(self.n_active):
            i = self.active[j]
            if i == self.leader:
                continue
            if self.pairwise:
                width = self._width(&self.moments[self.leader][i], self.leader, i)
            else:
                width = (self._width(&self.moments[0][i], i, i)
                         + self._width(&self.moments[0][self.leader], self.leader, self.leader))
            needed = max(needed, rows_needed(self.mean[self.leader] - self.mean[i], width, self.told, self.n_rows))
        return needed

    cdef int _finish(self, const double *total) except -1 nogil:
        """Every row has been read: the answer is exact, whatever the bound says."""
        cdef Py_ssize_t i, j, leader = -1
        cdef double best = 0.0, mean
        for j in range(self.n_active):
            i = self.active[j]
            mean = (total[i] + self.offset[i] + self.known[i]) / self.n_rows
            if mean > -INFINITY and (leader < 0 or mean > best):
                leader = i
                best = mean
        if leader < 0:
            with gil:
                raise ValueError("every arm still in the race has a reward of -inf: no arm is possible")
        for j in range(self.n_active):
            i = self.active[j]
            self.sum[i] = total[i]
            self.mean[i] = (total[i] + self.offset[i] + self.known[i]) / self.n_rows
            self.half_width[i] = 0.0
            self.pulls[i] = self.n_rows
        self.flags |= self.new_flags
        self.told = self.n_rows
        self.leader = leader
        self.active[0] = leader
        self.n_active = 1
        self.looks_taken += 1
        self.status = BY_EXACT
        return 0

    # Memory of comparisons: one row per arm that has led.

    cdef int _row_of_moments(self, Py_ssize_t row) except -1 nogil:
        if self.moments[row] == NULL:
            self.moments[row] = <moments4_t *>calloc(self.n_arms, sizeof(moments4_t))
            if self.bound == BETTING and self.wealth[row] == NULL:
                self.wealth[row] = <wealth_t *>calloc(self.n_arms, sizeof(wealth_t))
                if self.wealth[row] != NULL:
                    self._reset_wealth(row)
            if self.moments[row] == NULL or (self.bound == BETTING and self.wealth[row] == NULL):
                with gil:
                    raise MemoryError()
        return 0

    cdef void _reset_wealth(self, Py_ssize_t row) noexcept nogil:
        cdef Py_ssize_t i
        for i in range(self.n_arms):
            wealth_init(&self.wealth[row][i])

    # Answers and state.

    @property
    def done(self):
        """Whether the race is over."""
        return self.status != RUNNING

    def answer(self):
        """The fields of a `results.RaceResult` that the loop knows."""
        return dict(
            best=self.leader, active=self._active[:self.n_active].copy(), mean=self._mean.copy(),
            half_width=self._half_width.copy(), pulls=self._pulls.copy(), n_looks=self.looks_taken,
            stopped_by=STOPPED_BY[self.status], skewness=moments4_skewness(&self.closest),
            kurtosis=moments4_kurtosis(&self.closest))

    def warnings(self):
        """What may void the promise, in words."""
        told = []
        if self.flags & OUTSIDE_SUPPORT:
            told.append("a reward lay outside the support: the promise is void; widen support")
        if self.flags & CONSTANT_FIRST_LOOK:
            told.append("the first look was constant for some comparison: it was not decided by it; "
                        "rare events may hide, so pass a support (betting) or a larger first_look")
        if self.flags & SKEWED:
            told.append("the normal rule decided on skewed rewards, where its error can exceed delta by far; "
                        "pass a support (betting) or skewness_guard=True")
        if self.flags & IMPOSSIBLE_REWARD:
            told.append("an arm was dropped for a reward of -inf; one that was not read cannot be seen, "
                        "so put factors that may vanish into the offset or log prior")
        return tuple(told)

    def _get_state(self):
        """All that a race in progress needs to go on exactly, as plain objects."""
        cdef Py_ssize_t i
        codes = None
        if self.order.code != NULL and self.n_rows:
            codes = np.asarray(<cnp.uint32_t[:self.n_rows]>self.order.code)
        touched = None if codes is None else np.flatnonzero(codes)
        keep = self.told if self.pairwise else 0
        return dict(
            plan=(self._looks, self._quantiles, self.log_inv_delta),
            arms={name: getattr(self, name).copy() for name in ARM_STATE},
            counts=(self.n_active, self.told, self.drawn, self.looks_taken, self.leader, self.full_pass, self.opened,
                    self.status, self.flags, self.evaluations, self.window),
            closest=PyBytes_FromStringAndSize(<char *>&self.closest, sizeof(moments4_t)),
            keyed=PyBytes_FromStringAndSize(<char *>&self.keyed, sizeof(keyed_order_t)),
            order=None if codes is None else (touched.astype(np.uint32), codes[touched]),
            columns=[_copy_doubles(self.column[i], keep) for i in range(self.n_arms)] if keep else None,
            moments=[_copy_bytes(self.moments[i], self.n_arms * sizeof(moments4_t)) for i in range(self.n_arms)],
            wealth=[_copy_bytes(self.wealth[i], self.n_arms * sizeof(wealth_t)) for i in range(self.n_arms)])

    def _set_state(self, state):
        cdef Py_ssize_t i
        cdef bytes raw
        cdef cnp.ndarray column
        self.plan(*state["plan"])
        for name, values in state["arms"].items():
            getattr(self, name)[:] = values
        (self.n_active, self.told, self.drawn, self.looks_taken, self.leader, self.full_pass, self.opened, self.status,
         self.flags, self.evaluations, self.window) = state["counts"]
        raw = state["closest"]
        memcpy(&self.closest, PyBytes_AS_STRING(raw), sizeof(moments4_t))
        raw = state["keyed"]
        memcpy(&self.keyed, PyBytes_AS_STRING(raw), sizeof(keyed_order_t))
        if state["order"] is not None:
            touched, codes = state["order"]
            np.asarray(<cnp.uint32_t[:self.n_rows]>self.order.code)[touched] = codes
        for i in range(self.n_arms):
            if state["moments"][i] is not None:
                self._row_of_moments(i)
                raw = state["moments"][i]
                memcpy(self.moments[i], PyBytes_AS_STRING(raw), self.n_arms * sizeof(moments4_t))
            if state["wealth"][i] is not None:
                raw = state["wealth"][i]
                memcpy(self.wealth[i], PyBytes_AS_STRING(raw), self.n_arms * sizeof(wealth_t))
        if state["columns"] is not None:
            self._prepare(self.told, BLOCK)
            for i in range(self.n_arms):
                column = state["columns"][i]
                memcpy(self.column[i], cnp.PyArray_DATA(column), self.told * sizeof(double))


ARM_STATE = ("_offset", "_known", "_sum", "_mean", "_half_width", "_pulls", "_active")


def _bad_reward(value, arm, row):
    return (f"the reward of arm {arm} on row {row} is {value}; rewards must be finite numbers, or -inf for an arm that "
            f"is impossible, because nan and +inf compare with nothing")


cdef object _copy_doubles(const double *x, Py_ssize_t n):
    cdef cnp.ndarray out = np.empty(n)
    memcpy(cnp.PyArray_DATA(out), x, n * sizeof(double))
    return out


cdef object _copy_bytes(const void *x, Py_ssize_t size):
    return None if x == NULL else PyBytes_FromStringAndSize(<const char *>x, size)
