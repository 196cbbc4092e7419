"""Who is still in a race over a finite population: Chen & Ghahramani (2016), Algorithm 1, with any of our bounds."""

from libc.math cimport INFINITY, NAN, fabs, isnan
from libc.stdint cimport int64_t
from libc.string cimport memset
cimport numpy as cnp

from fastrace._base._guard cimport (guard_await, guard_built, guard_check_built, guard_check_idle, guard_leave,
                                    guard_take)
from fastrace._base._signals cimport check_signals
from fastrace._base._types cimport moments4_t
from fastrace._math._betting cimport wealth_extend, wealth_rejects, wealth_t
from fastrace._math._criteria cimport rows_needed
from fastrace._math._moments cimport (moments4_extend, moments4_extend_difference, moments4_kurtosis,
                                      moments4_skewness, moments4_std)
from fastrace._math._rule cimport (BETTING, NORMAL, SERFLING, constant_so_far, lead_stands, look_init,
                                   look_t, look_width, mean_with_rest, quantile_of_equal_evidence)
from fastrace._math._skewness cimport tail_half_width, tail_rows
from fastrace.races._memory cimport RaceMemory
from fastrace.races._reading cimport ROWS_PER_BLOCK, ROWS_PER_CALL, ROWS_PER_CHECK

import numpy as np

from fastrace._math import _half_widths

cnp.import_array()

STOPPED_BY = ("", "bound", "exact", "single", "max_pulls")


cdef class RaceJudge(RaceMemory):
    """The plan of looks of a race, what each look decides, and what is known so far."""

    def __cinit__(self):
        guard_await(&self.guard, 1)         # until there is a plan

    def __init__(self, n_arms, n_rows, *, bound, pairwise, shuffled, guarded, tails, low, high, rng):
        cdef int kind = _half_widths.BOUNDS.index(bound)
        super().__init__(n_arms, n_rows, pairwise=pairwise, shuffled=shuffled, betting=kind == BETTING, low=low,
                         high=high, rng=rng)
        self.bound = kind
        self.guarded = guarded
        self.tails = tails and kind == NORMAL
        self.bounded_support = low is not None

    def plan(self, looks, quantiles, log_inv_delta):
        """Set the looks (the last is n_rows), each one's quantile, and log(1 / delta) of one comparison at one look."""
        cdef cnp.ndarray look = np.array(looks, dtype=np.int64), quantile = np.array(quantiles, dtype=np.float64)
        cdef double level = log_inv_delta
        cdef const int64_t *rows = <const int64_t *>cnp.PyArray_DATA(look)
        cdef Py_ssize_t k, count = look.shape[0] if look.ndim == quantile.ndim == 1 else 0
        cdef bint good = 0 < count == quantile.shape[0] and rows[0] >= 0 and rows[count - 1] == self.n_rows
        for k in range(1, count if good else 0):
            good = good and rows[k - 1] < rows[k]
        if not good:
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
        if self.n_read == self.look[self.looks_taken]:        # not if a budget cut the look short
            self.looks_taken += 1
        self.unjudged = False
        if kept == 1:
            self.status = BY_BOUND
        return 0

    cdef bint _is_dead(self, Py_ssize_t i) noexcept nogil:
        return self.mean[i] == -INFINITY

    cdef bint _out(self, const moments4_t *own, Py_ssize_t leader, Py_ssize_t i, double gap,
                   double width) noexcept nogil:
        """Whether the leader has beaten arm i."""
        cdef double skewness
        cdef bint skewed = False, stands
        if self.bound == BETTING:
            return wealth_rejects(&self.wealth[self.slot[leader]][i], self.log_inv_delta)
        if not gap > width or self.wait[i] > self.n_read:
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
        look_init(&self.now, self.bound, self.n_read, self.n_rows, self.log_inv_delta,
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
        if rows > self.n_read:
            self.held[column] = 1
            self.flags |= HELD_BACK
            self.wait[i] = max(self.wait[i], rows)

    cdef int _column_moments(self, Py_ssize_t arm, moments4_t *m) except -1 nogil:
        """Moments of the rewards kept of an arm; the same whenever they are asked for."""
        cdef int64_t start = 0
        cdef Py_ssize_t count
        memset(m, 0, sizeof(moments4_t))
        while start < self.n_read:
            count = <Py_ssize_t>min(<int64_t>ROWS_PER_CALL, self.n_read - start)
            moments4_extend(m, self.column[arm] + start, count)
            start += count
            if start % (128 * ROWS_PER_CALL) == 0:
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
            lead = self.sum[leader] / self.n_read - self.sum[i] / self.n_read
            for k in range(self.n_read):
                square = (x[k] - m.mean) * (x[k] - m.mean)
                total += square * (lead - (best[k] - worst[k]))
                squares += square
            size = total / squares
        return tail_rows(skewness, size, gap, m.n)

    cdef int _catch_up(self, Py_ssize_t leader, Py_ssize_t i) except -1 nogil:
        """Bring the comparison of the leader with arm i up to the rows told, from the rewards kept."""
        cdef moments4_t *m = &self.moments[self.slot[leader]][i]
        cdef wealth_t *w = NULL
        cdef int64_t start = m.n
        cdef Py_ssize_t count
        cdef double shift = ((self.offset[leader] + self.shift[leader])
                             - (self.offset[i] + self.shift[i])) / self.n_rows
        while start < self.n_read:
            count = <Py_ssize_t>min(<int64_t>ROWS_PER_BLOCK, self.n_read - start)
            moments4_extend_difference(m, self.column[leader] + start, self.column[i] + start, count)
            start += count
        if self.bound == BETTING:
            w = &self.wealth[self.slot[leader]][i]
            while w.n < self.n_read:
                count = <Py_ssize_t>min(<int64_t>ROWS_PER_CHECK, self.n_read - w.n)
                wealth_extend(w, &self.bets, self.column[leader] + w.n, self.column[i] + w.n, shift, count,
                              self.low[leader] - self.high[i] + shift, self.n_rows)
                if count == ROWS_PER_CHECK:
                    check_signals()
        return 0

    cdef double _rows_needed(self) noexcept nogil:
        """Rows after which the arms still in the race should be apart, gaps and spreads staying as they are."""
        cdef Py_ssize_t j, i, k = self.slot[self.leader if self.pairwise else 0]
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
            needed = max(needed, rows_needed(self.mean[self.leader] - self.mean[i], width, self.n_read, self.n_rows))
        return needed

    # Answers.

    @property
    def outside(self):
        """Whether a reward of this race, or of any draw so far, lay outside the support."""
        return bool((self.flags | self.all_flags) & OUTSIDE_SUPPORT)

    def answer(self, double share, double quantile, bint at_all_times, student=None):
        """The fields of a `results.RaceResult` that the loop knows.

        Each end of an interval may fail with probability exp(-share), or lies `quantile` standard errors from the mean;
        ``student(quantile, rows)`` replaces the quantile. See `_rows_of_intervals` for `at_all_times`.
        """
        cdef Py_ssize_t i, d = self.n_arms
        cdef int64_t normal_from = self.look[0] if self.bound == NORMAL and self.n_looks > 0 else 0
        cdef cnp.ndarray mean = self._mean.copy(), pulls = self._pulls.copy(), lower = np.empty(d), upper = np.empty(d)
        cdef cnp.ndarray rows, spread, limits = None
        guard_check_built(&self.guard, self)
        # A run in another thread, or around this call, moves what would be measured.
        if guard_take(&self.guard):
            self.measure()
            guard_leave(&self.guard)
        spread = self._spread.copy()
        for i in range(d):          # nor is the spread of fewer rows than the first look needs known to the normal rule
            if ((<int64_t *>cnp.PyArray_DATA(self._measured))[i] != (<int64_t *>cnp.PyArray_DATA(pulls))[i]
                    or (<int64_t *>cnp.PyArray_DATA(pulls))[i] < normal_from):
                (<double *>cnp.PyArray_DATA(spread))[i] = NAN
        rows = self._rows_of_intervals(pulls) if at_all_times else pulls
        if student is not None:
            limits = np.ascontiguousarray(student(quantile, np.maximum(rows, 1)))
        for i in range(d):
            if limits is not None:
                quantile = (<double *>cnp.PyArray_DATA(limits))[i]
            self._interval(i, (<int64_t *>cnp.PyArray_DATA(pulls))[i], (<int64_t *>cnp.PyArray_DATA(rows))[i],
                           (<double *>cnp.PyArray_DATA(mean))[i], (<double *>cnp.PyArray_DATA(spread))[i], share,
                           quantile, <double *>cnp.PyArray_DATA(lower) + i, <double *>cnp.PyArray_DATA(upper) + i)
        return dict(
            best=self.leader, active=self._active[:self.n_active].copy(), mean=mean, lower=lower, upper=upper,
            half_width=self._half_width.copy(), pulls=pulls, n_looks=self.looks_taken,
            stopped_by=STOPPED_BY[self.status], skewness=moments4_skewness(&self.closest),
            kurtosis=moments4_kurtosis(&self.closest), held_back=np.flatnonzero(self._held))

    def _rows_of_intervals(self, pulls):
        """Rows whose half-widths hold from one look to the next: one less than those of the look before.

        A budget ends a race between two looks, at a number of rows that depends on the rewards. Serfling's inequalities
        then hold in their maximal form: from n rows on, no mean strays further than after n - 1 of them with the same
        probability. Normal means do so with at most twice the probability, by reflection.
        """
        # Where the budget ends before the first look, all arms that take part have read equally much.
        looks = np.asarray(self._looks)
        first = min(pulls[pulls > 0].min(initial=self.n_rows), looks[0])
        return np.maximum(np.concatenate([[first], looks])[np.searchsorted(looks, pulls, "right")] - 1, 1)

    cdef void _interval(self, Py_ssize_t i, int64_t n, int64_t rows, double mean, double std, double share,
                        double quantile, double *lower, double *upper) noexcept nogil:
        """Interval of the mean of an arm from n rewards: the half-width at `rows`, cut to what the support leaves."""
        cdef double width = INFINITY, read, constant
        cdef look_t look
        lower[0], upper[0] = -INFINITY, INFINITY
        if isnan(mean):
            if n == 0 and self.bounded_support and self.n_rows > 0:         # nothing is read: the support alone
                constant = (self.offset[i] + self.shift[i]) / self.n_rows
                lower[0], upper[0] = self.low[i] + constant, self.high[i] + constant
            return
        if n == self.n_rows or mean == -INFINITY:       # exact, or an arm that cannot win
            lower[0] = upper[0] = mean
            return
        if not isnan(std) and not (self.bound == NORMAL and constant_so_far(std, fabs(mean))):
            # Bets are not inverted here: their interval is that of the serfling bound.
            look_init(&look, SERFLING if self.bound == BETTING else self.bound, rows, self.n_rows, share, quantile)
            width = look_width(&look, std, self.high[i] - self.low[i])
        lower[0], upper[0] = mean - width, mean + width
        if self.bounded_support:                        # which the mean keeps if a reward has left it
            read, constant = <double>n / self.n_rows, (self.offset[i] + self.shift[i]) / self.n_rows
            lower[0] = max(lower[0], min(mean, mean_with_rest(mean, constant, read, self.low[i])))
            upper[0] = min(upper[0], max(mean, mean_with_rest(mean, constant, read, self.high[i])))

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
