"""What a race knows at any time: intervals of means and of differences to the leader, and the error of its answer."""

from libc.math cimport INFINITY, NAN, fabs, isnan, sqrt
from libc.stdint cimport int64_t
from libc.string cimport memset
cimport numpy as cnp

from fastrace._base._guard cimport guard_check_built, guard_leave, guard_take
from fastrace._base._types cimport moments4_t
from fastrace._math._betting cimport wealth_init, wealth_t
from fastrace._math._moments cimport moments4_extend_difference, moments4_kurtosis, moments4_skewness, moments4_std
from fastrace._math._rule cimport (BETTING, NORMAL, SERFLING, constant_so_far, look_init, look_onwards, look_t,
                                   look_width, mean_with_rest, quantile_of_equal_evidence)
from fastrace.races._judge cimport (BY_BUDGET, CONSTANT_FIRST_LOOK, FAR_FROM_ZERO, HELD_BACK, IMPOSSIBLE_REWARD,
                                    MISSING_REWARD, OUTSIDE_SUPPORT, RUNNING, SKEWED, WORST, RaceJudge)
from fastrace.races._reading cimport ROWS_PER_CHECK

import numpy as np

from fastrace._base._words import WORST_REWARDS, counted
from fastrace.races._judge import STOPPED_BY

cnp.import_array()

cdef enum:
    MOST_TRIALS = 20        # wealths that are tried for one end of an interval


cdef class RaceAnswers(RaceJudge):
    """Answers of a race. `_core.Race` adds the loop that reads."""

    @property
    def outside(self):
        """Whether a reward of this race, or of any draw so far, lay outside the support."""
        return bool((self.flags | self.all_flags) & OUTSIDE_SUPPORT)

    def promise(self, share, quantile, cut, student=None, of_means=None):
        """Say what an end of the interval of a difference may spend; without, there are none.

        It fails with probability at most exp(-share), or lies `quantile` standard errors off; see `answer`. `of_means`
        is the same share of an end of the interval of a mean, where bets are inverted for these, too: with a proxy.
        """
        self.levels = (share, quantile, cut, student)
        self.of_means = of_means

    def active(self):
        """Arms that have not left: those that are read, and those chosen."""
        left = self._active[:self.n_active].copy()
        return left if self.n_best == 1 else np.sort(np.concatenate([np.flatnonzero(self._chosen), left]))

    def selected(self):
        """The best arms so far, the one with the largest mean first: those chosen, and the heads of those left."""
        cdef cnp.ndarray mean = self._mean
        chosen = np.flatnonzero(self._chosen)
        left = self._active[:self.n_active]
        if self.n_best == 1:
            return np.array([self.leader], np.intp)
        ranks = np.where(np.isnan(mean), (self._offset + self._known) / max(self.n_rows, 1), mean)
        heads = left[np.lexsort((left, -ranks[left]))][:self.n_best - chosen.size]
        arms = np.concatenate([chosen, heads]).astype(np.intp)
        return arms[np.lexsort((arms, -ranks[arms]))]

    def weakest_evidence(self):
        """What `_beats` says of the weakest comparison that the answer rests on; 0 where it was not yet judged.

        nan stands for an arm that left before the race was saved by a version that kept no evidence.
        """
        cdef cnp.ndarray evidence = self._evidence
        if self.status in (RUNNING, BY_BUDGET):
            heads = np.flatnonzero((self._head != 0) & (self._chosen == 0))
            if self.unjudged or set(heads.tolist()) != set(self.selected().tolist()) - set(
                    np.flatnonzero(self._chosen).tolist()):
                return 0.0
        return float(evidence.min())

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
            try:
                self.measure()
                self._compare()
            finally:
                guard_leave(&self.guard)
        if self.proxied:        # what the support leaves of the rewards read, and within that what bets do not refute
            return self._found(mean, pulls, *self._intervals_by_bets(mean, pulls))
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
            self._interval(i, (<int64_t *>cnp.PyArray_DATA(pulls))[i], self.absent[i],
                           (<int64_t *>cnp.PyArray_DATA(rows))[i],
                           (<double *>cnp.PyArray_DATA(mean))[i], (<double *>cnp.PyArray_DATA(spread))[i], share,
                           quantile, <double *>cnp.PyArray_DATA(lower) + i, <double *>cnp.PyArray_DATA(upper) + i)
        return self._found(mean, pulls, lower, upper)

    def _found(self, mean, pulls, lower, upper):
        """The fields of the answer, given what is known of the means."""
        best = self.selected()
        mean[(pulls > 0) & (self._absent == pulls)] = np.nan       # of rows that were all dropped
        return dict(
            best=int(best[0]) if self.n_best == 1 else best,
            n_missing=max(int(self._lost.sum()), int(self.n_dropped)),      # at least, if saved before it was counted
            n_dropped=int(self.n_dropped), active=self.active(), mean=mean, lower=lower, upper=upper,
            differences=self._differences(int(best[0]), pulls, lower, upper),
            half_width=self._half_width.copy(), pulls=pulls, n_looks=self.looks_taken,
            stopped_by=STOPPED_BY[self.status], skewness=moments4_skewness(&self.closest),
            kurtosis=moments4_kurtosis(&self.closest), held_back=np.flatnonzero(self._held))

    def _differences(self, leader, pulls, lower, upper):
        """Intervals of the differences to the leader: of the pairs, or, where these are not known, of both means."""
        if leader < 0:
            return np.full((self.n_arms, 2), np.nan)
        found = np.stack([self._difference_lower, self._difference_upper], axis=1)
        rows = np.minimum(pulls, pulls[leader])
        known = (self._compared == rows) & (self.compared_with == leader)
        with np.errstate(invalid="ignore"):
            means = np.stack([lower - upper[leader], upper - lower[leader]], axis=1)
        found = np.where(known[:, None], found, means)
        found[np.isneginf(upper)] = -np.inf             # arms that cannot win
        found[leader] = 0.0
        return found

    # Differences to the leader.

    def _compare(self):
        """Fill the interval of each arm's mean less the leader's, from the rows read of both; the guard is held.

        Bets: the set of candidates that the wealth does not refute. The wealth falls as the candidate grows: each
        factor is 1 + min(a, .9 / (r + c s)) (x - c s) with r + x >= 0 for a candidate s, and both of its branches fall.
        So the set is an interval, and its end is found by trying wealths; the end kept is refuted.
        """
        cdef Py_ssize_t i, leader
        cdef int64_t n
        cdef double low = 0.0, high = 0.0, quantile
        if self.levels is None or not self.pairwise or self.leader < 0:
            return
        for i in range(self.n_arms if self.of_means is not None else 0):
            self._interval_by_bets(i, self.of_means)
        share, normal_quantile, cut, student = self.levels
        leader = int(self.selected()[0])
        if leader != self.compared_with:
            self._compared[:] = -1
            self.compared_with = leader
        pulls = np.minimum(self._pulls, self._pulls[leader])
        rows = self._rows_of_intervals(pulls) if cut and self.bound != BETTING else pulls
        quantiles = np.full(self.n_arms, normal_quantile)
        if student is not None:
            quantiles = student(normal_quantile, np.maximum(rows, 1))
        for i in range(self.n_arms):
            n = pulls[i]
            if i == leader or n == 0 or self._compared[i] == n or self._is_dead(i):
                continue
            if n == self.n_rows:
                low = high = self.mean[i] - self.mean[leader]
            elif n > self.n_kept or n > self.capacity[i] or n > self.capacity[leader]:
                continue
            else:
                quantile = quantiles[i]
                self._difference(leader, i, n, rows[i], share, quantile, &low, &high)
            self._difference_lower[i], self._difference_upper[i], self._compared[i] = low, high, n

    cdef int _difference(self, Py_ssize_t leader, Py_ssize_t i, int64_t n, int64_t rows, double share, double quantile,
                         double *low, double *high) except -1 nogil:
        """Interval of the mean of arm i less that of the leader, from the first n rows of both."""
        cdef moments4_t m
        cdef look_t look
        cdef int64_t start = 0, present
        cdef Py_ssize_t count
        cdef double read
        cdef bint onwards = rows < n
        cdef double known = (self.offset[i] + self.shift[i] - self.offset[leader] - self.shift[leader]) / self.n_rows
        cdef double mean, width = INFINITY, std, span = 0.0, size
        memset(&m, 0, sizeof(moments4_t))
        while start < n:
            count = <Py_ssize_t>min(<int64_t>ROWS_PER_CHECK, n - start)
            moments4_extend_difference(&m, self.column[i] + start, self.column[leader] + start, count)
            start += count
        present = self._rows_present(n)
        if present == 0:
            low[0], high[0] = -INFINITY, INFINITY
            return 0
        # Of the rows that were not dropped; the others were ties.
        mean, std = m.mean * (<double>n / present) + known, moments4_std(&m) * sqrt(<double>n / present)
        rows = max(rows - (n - present), <int64_t>1)
        read = <double>present / (present + (self.n_rows - n))
        low[0], high[0] = -INFINITY, INFINITY
        if self.bounded_support:
            low[0] = mean_with_rest(mean, known, read, self.low[i] - self.high[leader])
            high[0] = mean_with_rest(mean, known, read, self.high[i] - self.low[leader])
            if self.proxied:
                self._moments_adjusted(i, leader, n, &m)
                mean, std = min(max(m.mean + known, low[0]), high[0]), moments4_std(&m)
            span = self.high[i] - self.low[i] + self.high[leader] - self.low[leader]
        low[0], high[0] = min(low[0], mean), max(high[0], mean)        # if a reward has left the support
        look_init(&look, self.bound, rows, self.n_rows, share,
                  quantile_of_equal_evidence(share) if self.bound == BETTING else quantile)
        if onwards:
            look_onwards(&look, self.bound, self.n_rows)
        if self.bound == BETTING:
            width = look_width(&look, std, span)
            high[0] = mean + self._refuted(leader, i, -known, n, share, -mean, width, high[0] - mean)
            low[0] = mean - self._refuted(i, leader, known, n, share, mean, width, mean - low[0])
            return 0
        size = fabs(m.mean) + 1e-3 * (fabs(self.mean[i]) + fabs(self.mean[leader]))
        if self.bound == NORMAL and (n < self.look[0] or constant_so_far(std, size)):
            return 0
        width = look_width(&look, std, span)
        low[0], high[0] = max(low[0], mean - width), min(high[0], mean + width)
        return 0

    cdef int64_t _rows_present(self, int64_t n) noexcept nogil:
        """How many of the first n rows were not dropped."""
        cdef int64_t k, found = n
        if self.n_dropped > 0:
            for k in range(n):
                found -= self.marks[k] != 0
        return found

    cdef double _refuted(self, Py_ssize_t a, Py_ssize_t b, double known, int64_t n, double share, double mean,
                         double guess, double most) except -1.0 nogil:
        """A distance below the mean of x_a - x_b + known at which bets refute that the true mean lies there or below.

        At most a few per cent more than the smallest such distance, and never more than `most`.
        """
        cdef double good = most, bad = 0.0, width = guess, value = 0.0
        cdef wealth_t w
        cdef int fails = 0, _k
        for _k in range(MOST_TRIALS):
            if not bad < width < good:
                width = 0.5 * (bad + good)
            wealth_init(&w)
            self._bet(&w, a, b, known, width - mean, n)
            value = INFINITY if w.impossible else w.peak
            if value >= share:
                good = width
                fails = 0
                if value <= share + 0.03 * (share + 2.0):
                    break
            else:
                bad = width
                fails += 1
            if good - bad <= 0.02 * good:
                break
            # The logarithm of the wealth grows with the square of the distance, or slower where bets are limited.
            width *= (max(1.005 * sqrt((share + 2.0) / (value + 2.0)), 1.0 + 0.3 * (fails - 1)) if value < INFINITY
                      else 0.5)
        return good

    # Intervals of means.

    def _intervals_by_bets(self, mean, pulls):
        """Intervals of the means of a race with a proxy; the means are brought inside.

        Of an arm whose rewards are no longer kept, an interval that was not found before is what its support leaves.
        """
        size = max(self.n_rows, 1)
        left = 1.0 - pulls / size
        known = (self._sum + self._offset + self._known) / size
        lower, upper = known + left * self._low, known + left * self._high
        found = (self._found_at == pulls) & (pulls > 0)
        lower, upper = np.where(found, self._lower, lower), np.where(found, self._upper, upper)
        exact = (pulls == self.n_rows) | np.isneginf(mean)
        lower, upper = np.where(exact, mean, lower), np.where(exact, mean, upper)
        mean[:] = np.minimum(np.maximum(mean, lower), upper)
        return lower, upper

    cdef int _interval_by_bets(self, Py_ssize_t i, double share) except -1 nogil:
        """Find the interval of the mean of an arm that bets leave, each end at exp(-share); see `_compare`."""
        cdef moments4_t m
        cdef look_t look
        cdef int64_t n = self.pulls[i]
        cdef double known = (self.offset[i] + self.shift[i]) / self.n_rows, read, raw, low, high, mean, width
        if (n == 0 or n == self.n_rows or self.found_at[i] == n or n > self.n_kept or n > self.capacity[i]
                or self._is_dead(i)):
            return 0
        read = <double>n / self.n_rows
        raw = self.sum[i] / n + known
        low = min(mean_with_rest(raw, known, read, self.low[i]), raw)           # if a reward has left the support
        high = max(mean_with_rest(raw, known, read, self.high[i]), raw)
        self._moments_adjusted(i, -1, n, &m)
        mean = min(max(m.mean + known, low), high)
        look_init(&look, BETTING, n, self.n_rows, share, quantile_of_equal_evidence(share))
        width = look_width(&look, moments4_std(&m), self.high[i] - self.low[i])
        self.upper[i] = mean + self._refuted(-1, i, -known, n, share, -mean, width, high - mean)
        self.lower[i] = mean - self._refuted(i, -1, known, n, share, mean, width, mean - low)
        self.found_at[i] = n
        return 0

    def _rows_of_intervals(self, pulls):
        """Rows whose half-widths hold from one look to the next: one less than those of the look before.

        A budget ends a race between two looks, at a number of rows that depends on the rewards. Serfling's inequalities
        then hold in their maximal form: from n rows on, no mean strays further than after n - 1 of them with the same
        probability; `_rule.look_onwards` makes the empirical one of that form. Normal means do so with at most twice
        the probability, by reflection.
        """
        # Where the budget ends before the first look, all arms that take part have read equally much.
        looks = np.asarray(self._looks)
        first = min(pulls[pulls > 0].min(initial=self.n_rows), looks[0])
        return np.maximum(np.concatenate([[first], looks])[np.searchsorted(looks, pulls, "right")] - 1, 1)

    cdef void _interval(self, Py_ssize_t i, int64_t n, int64_t absent, int64_t rows, double mean, double std,
                        double share, double quantile, double *lower, double *upper) noexcept nogil:
        """Interval of the mean of an arm from n rewards: the half-width at `rows`, cut to what the support leaves."""
        cdef double width = INFINITY, read, constant
        cdef look_t look
        cdef int bound = SERFLING if self.bound == BETTING else self.bound
        cdef bint onwards = rows < n
        lower[0], upper[0] = -INFINITY, INFINITY
        if isnan(mean):
            if n == 0 and self.bounded_support and self.n_rows > 0:         # nothing is read: the support alone
                constant = (self.offset[i] + self.shift[i]) / self.n_rows
                lower[0], upper[0] = self.low[i] + constant, self.high[i] + constant
            return
        if n == self.n_rows or mean == -INFINITY:       # exact, or an arm that cannot win
            lower[0] = upper[0] = mean
            return
        if absent == n:                                 # all its rows were dropped
            return
        if absent > 0:          # a sample of the rows that are not dropped; those were ties in the spread
            std *= sqrt(<double>n / (n - absent))
            rows = max(rows - absent, <int64_t>1)
        if not isnan(std) and not (self.bound == NORMAL and constant_so_far(std, fabs(mean))):
            # Bets are not inverted here: their interval is that of the serfling bound.
            look_init(&look, bound, rows, self.n_rows, share, quantile)
            if onwards:
                look_onwards(&look, bound, self.n_rows)
            width = look_width(&look, std, self.high[i] - self.low[i])
        lower[0], upper[0] = mean - width, mean + width
        if self.bounded_support:                        # which the mean keeps if a reward has left it
            read = <double>(n - absent) / (self.n_rows - absent)
            constant = (self.offset[i] + self.shift[i]) / self.n_rows
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

    def warnings(self, of_all_draws=False, ended=""):
        """What may void the promise, in words; `ended` says what stopped a race that had not decided."""
        guard_check_built(&self.guard, self)
        cdef int flags = self.all_flags if of_all_draws else self.flags
        found, told = self.doubts(of_all_draws), []
        if self.flags & MISSING_REWARD:
            lost = counted(int(self._lost.sum()), "missing reward")
            told.append(WORST_REWARDS.format(lost) if self.missing == WORST else
                        f"{self.n_dropped} rows were dropped, as a reward was missing: " + (
                            "the answer is about the rest" if self.n_dropped < self.n_read else
                            "these are all that were read, so that nothing is known of any arm"))
        if found["outside"]:
            told.append("a reward lay outside the support: the promise is void; widen support")
        if flags & FAR_FROM_ZERO:
            told.append("rewards are so far from 0 that their sums lose the digits that tell arms apart: means, "
                        "intervals and the answer may be wrong, of an exact race too; subtract a constant from "
                        "all rewards")
        if found["constant"]:
            told.append("the first look was constant for some comparison: it was not decided by it; "
                        "rare events may hide, so pass a support (betting) or a larger first_look")
        if self.status == BY_BUDGET or ended:
            early = "" if self.looks_taken else (
                f" before the first look, which takes {self.look[0]} rows of each arm, so that nothing was compared")
            told.append(f"{ended or 'max_pulls'} was reached{early}: best is the arm with the largest mean so far, and "
                        f"the promise is only that the best arm is among the {self.n_active} that are still active")
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
