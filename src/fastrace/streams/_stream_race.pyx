"""Compiled loop of races on streams: every arm still in the race gets one reward a round, until bounds tell arms apart.

Rounds come in blocks. A block that provably could neither end the race nor decide about an arm costs two passes over
the sums; in another one, the few arms that may matter are gone through round by round. Either way the answer is that of
testing all bounds after every round.
"""

from libc.math cimport INFINITY, NAN
from libc.stdint cimport INT64_MAX, int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
cimport numpy as cnp

from fastrace._base._guard cimport (guard_await, guard_build, guard_built, guard_check, guard_check_built, guard_enter,
                                    guard_leave, guard_t, guarded)
from fastrace._base._signals cimport check_signals
from fastrace._draws._ranks cimport kth_largest
from fastrace._draws._row_order cimport RowOrder, row_in
from fastrace._math._bounds cimport stream_slack
from fastrace.sources cimport ArraySource, Source

import numpy as np

from fastrace._draws import _row_order

cnp.import_array()

cdef extern from "_rounds.h" nogil:
    ctypedef struct fr_view:
        const char *data
        Py_ssize_t row_stride, arm_stride
        const Py_ssize_t *column
        int single
    ctypedef struct fr_sums:
        double *centre
        double *m2
        double *s
        double *q
        double *least
        double *most
    ctypedef struct fr_rule:
        double x
        int by_variance
        double low, high
        const double *lows
        const double *highs
        double n_rows
    ctypedef struct fr_bets:
        double *sum
        double *square
        double *bets[2]
        double *won[2]
        double *price[2]
        double *lower
        double *upper
    Py_ssize_t fr_rounds_add(const fr_view *view, Py_ssize_t n_rounds, Py_ssize_t n, const fr_rule *rule,
                             fr_sums *sums, double *work) noexcept
    void fr_rounds_settle(fr_sums *sums, Py_ssize_t n, double t) noexcept
    void fr_rounds_brackets(const fr_sums *sums, Py_ssize_t n, const fr_rule *rule, double t, double *lower,
                            double *upper) noexcept
    Py_ssize_t fr_rounds_narrow(const fr_view *view, Py_ssize_t n_rounds, Py_ssize_t n, const fr_rule *rule, double t,
                                fr_sums *sums, double *lower, double *upper, double *work) noexcept
    bint fr_rounds_empty(const fr_rule *rule, Py_ssize_t n, const double *lower, const double *upper) noexcept
    void fr_rounds_reach(const fr_sums *sums, Py_ssize_t n, const fr_rule *rule, double first, double last, int inner,
                         double *lower, double *upper) noexcept
    void fr_rounds_again(const fr_view *view, Py_ssize_t round, const Py_ssize_t *place, Py_ssize_t n,
                         const fr_rule *rule, double t, const double *centre, const double *m2, double *s, double *q,
                         double *lower, double *upper) noexcept
    int fr_bets_round(const fr_view *view, Py_ssize_t round, Py_ssize_t n, const fr_rule *rule, double t,
                      double above, double below, fr_bets *bets, double *work) noexcept
    void fr_bets_means(const fr_bets *bets, Py_ssize_t n, const fr_rule *rule, double t, double *mean) noexcept

STOPPED_BY = ("", "bound", "epsilon", "horizon", "single", "inconsistent", "exact")
BOUNDS = ("hoeffding", "empirical-bernstein", "betting")

cdef enum:      # places in STOPPED_BY
    RUNNING
    BY_BOUND
    BY_EPSILON
    BY_HORIZON
    SINGLE
    INCONSISTENT
    EXACT

cdef enum:      # places in BOUNDS
    HOEFFDING
    EMPIRICAL_BERNSTEIN
    BETTING

cdef enum:      # what has been decided about an arm
    OPEN
    DROPPED
    CHOSEN

cdef enum:
    BLOCK = 64                  # rounds between two moments at which the sums are cleared
    FIELDS = 10                 # numbers kept for each place
    REWARDS_PER_CHECK = 1 << 19     # between two looks at pending signals: well below 50 ms


cdef class StreamRace:
    """State and loop of one race; the classes of `stream_racing` check the arguments and name the answer.

    Places 0 .. n_open - 1 are the arms that rewards are still wanted of, in the order of their numbers; behind them are
    those that have been decided about, with the mean, the sum of squared deviations, the ends of the bracket and the
    round at which that happened.
    """

    cdef readonly Py_ssize_t n_arms, n_open, n_best
    cdef readonly int64_t rounds, horizon
    cdef readonly double epsilon
    cdef int bound, status
    cdef Py_ssize_t n_wanted            # best arms still to be found among the open ones
    cdef int64_t until_check
    cdef guard_t guard
    cdef bint intersecting              # brackets are intersected over time, in bets.lower and bets.upper
    cdef fr_rule rule
    cdef fr_sums sums
    cdef fr_bets bets
    cdef cnp.ndarray _fields, _arm, _verdict, _column, _low, _high, _scratch
    cdef double *field[FIELDS]
    cdef double *lower                  # scratch, by place
    cdef double *upper
    cdef double *work
    cdef Py_ssize_t *arm
    cdef Py_ssize_t *column             # of each place in the table at hand
    cdef signed char *verdict
    cdef double *low
    cdef double *high
    cdef RowOrder order                 # in which the rows of a population are read, or None
    cdef object arguments

    def __cinit__(self):
        guard_await(&self.guard, 0)

    def __init__(self, n_arms, bound, horizon, n_best, epsilon, log_share, low, high):
        cdef Py_ssize_t i
        cdef Py_ssize_t arms = n_arms, best = n_best
        cdef int kind = BOUNDS.index(bound)
        cdef int64_t rounds = INT64_MAX if horizon is None else horizon
        cdef double accuracy = epsilon, share = log_share
        low, high = np.array(low, dtype=np.float64), np.array(high, dtype=np.float64)
        if not (1 <= best <= arms and rounds >= 1 and accuracy >= 0.0 and share == share
                and low.shape == high.shape == (arms,) and np.isfinite(low).all() and np.isfinite(high).all()
                and (low < high).all()):
            raise ValueError("1 <= n_best <= n_arms, a horizon, an accuracy and one support per arm are needed")
        guard_build(&self.guard, 0, self)
        self.arguments = (n_arms, bound, horizon, n_best, epsilon, log_share, low, high)
        self.n_arms = self.n_open = n_arms
        self.bound = kind
        self.horizon = rounds
        self.n_best = self.n_wanted = best
        self.epsilon = accuracy
        self._low, self._high = low.copy(), high.copy()
        self._arm = np.arange(n_arms, dtype=np.intp)
        self._column = np.arange(n_arms, dtype=np.intp)
        self._verdict = np.zeros(n_arms, dtype=np.int8)
        self.intersecting = self.bound == BETTING or n_best > 1
        self._fields = np.zeros((FIELDS if self.bound == BETTING else 8 if self.intersecting else 6, n_arms))
        self.until_check = REWARDS_PER_CHECK
        self.rule.x = share
        self.rule.n_rows = INFINITY
        self.rule.by_variance = self.bound == EMPIRICAL_BERNSTEIN
        self.rule.low = self._low[0]
        self.rule.high = self._high[0]
        self._point()
        if (self._low != self._low[0]).any() or (self._high != self._high[0]).any():
            self.rule.lows = self.low
            self.rule.highs = self.high
        if self.bound == BETTING:
            self._fields[0] = 0.5
            self._fields[1] = 0.25
        else:
            self._fields[0] = self._low + 0.5 * (self._high - self._low)
        if self.intersecting:
            i = self._fields.shape[0]
            self._fields[i - 2] = self._low
            self._fields[i - 1] = self._high
        if n_best == n_arms:
            for i in range(n_arms):
                self._settle(i, CHOSEN, NAN, NAN, self._low[i], self._high[i])
            self._compact()
            self.status = SINGLE if n_arms == 1 else BY_BOUND
        guard_built(&self.guard, 0)

    cdef int _point(self) except -1:
        """Set all pointers into the arrays that hold the state."""
        cdef Py_ssize_t k
        self.arm = <Py_ssize_t *>cnp.PyArray_DATA(self._arm)
        self.column = <Py_ssize_t *>cnp.PyArray_DATA(self._column)
        self.verdict = <signed char *>cnp.PyArray_DATA(self._verdict)
        self.low = <double *>cnp.PyArray_DATA(self._low)
        self.high = <double *>cnp.PyArray_DATA(self._high)
        for k in range(self._fields.shape[0]):
            self.field[k] = <double *>cnp.PyArray_DATA(self._fields) + k * self.n_arms
        self.sums.centre, self.sums.m2 = self.field[0], self.field[1]
        self.sums.s, self.sums.q = self.field[2], self.field[3]
        self.sums.least, self.sums.most = self.field[4], self.field[5]
        self.bets.sum, self.bets.square = self.field[0], self.field[1]
        if self.bound == BETTING:
            for k in range(2):
                self.bets.bets[k] = self.field[2 + k]
                self.bets.won[k] = self.field[4 + k]
                self.bets.price[k] = self.field[6 + k]
        if self.intersecting:
            k = self._fields.shape[0]
            self.bets.lower, self.bets.upper = self.field[k - 2], self.field[k - 1]
        return 0

    # Deciding

    cdef inline void _settle(self, Py_ssize_t place, int verdict, double mean, double m2, double lower,
                             double upper) noexcept nogil:
        """Write down what is known of an arm when it leaves the race."""
        self.verdict[place] = verdict
        self.field[0][place] = mean
        self.field[1][place] = m2
        self.field[2][place] = lower
        self.field[3][place] = upper
        self.field[4][place] = <double>self.rounds

    cdef Py_ssize_t _judge(self, Py_ssize_t n, const double *lower, const double *upper, signed char *verdict,
                           double *scratch) noexcept nogil:
        """Decide about arms by their brackets, those of all open arms that can matter; return how many were decided.

        Chosen is who surpasses all but n_wanted - 1 others, dropped who is surpassed by n_wanted.
        """
        cdef Py_ssize_t i, decided = 0
        cdef double bar = -INFINITY, ceiling = INFINITY, top = -INFINITY
        for i in range(n):
            verdict[i] = OPEN
        if self.n_wanted == 1:
            for i in range(n):
                bar = lower[i] if lower[i] > bar else bar
        else:
            memcpy(scratch, lower, n * sizeof(double))
            bar = kth_largest(scratch, n, self.n_wanted)
        if self.n_best > 1:
            memcpy(scratch, upper, n * sizeof(double))
            ceiling = kth_largest(scratch, n, self.n_wanted + 1)
        for i in range(n):
            if upper[i] < bar:
                verdict[i] = DROPPED
                decided += 1
            elif lower[i] > ceiling:
                verdict[i] = CHOSEN
                decided += 1
            else:
                top = upper[i] if upper[i] > top else top
        if self.epsilon > 0.0 and top - bar <= self.epsilon and self.n_open - decided > 1:
            self.status = BY_EPSILON
        return decided

    cdef void _count(self, int verdict) noexcept nogil:
        self.n_open -= 1
        if verdict == CHOSEN:
            self.n_wanted -= 1

    cdef void _end_if_decided(self) noexcept nogil:
        if self.n_wanted == 0 or self.n_open == self.n_wanted:
            self.status = BY_BOUND
        elif self.rounds >= self.horizon and self.status == RUNNING:
            self.status = BY_HORIZON

    cdef void _compact(self) noexcept nogil:
        """Move the decided behind the open ones, which keep their order."""
        cdef Py_ssize_t place, to = 0, k, arm, column, n = self.n_arms, fields = self._fields.shape[0]
        cdef signed char verdict
        cdef double value
        # Stable for the open ones: each is exchanged with the first place that is not open.
        for place in range(n):
            if self.verdict[place] != OPEN:
                continue
            if to < place:
                arm = self.arm[place]
                self.arm[place] = self.arm[to]
                self.arm[to] = arm
                column = self.column[place]
                self.column[place] = self.column[to]
                self.column[to] = column
                verdict = self.verdict[place]
                self.verdict[place] = self.verdict[to]
                self.verdict[to] = verdict
                for k in range(fields):
                    value = self.field[k][place]
                    self.field[k][place] = self.field[k][to]
                    self.field[k][to] = value
                if self.rule.lows != NULL:
                    value = self.low[place]
                    self.low[place] = self.low[to]
                    self.low[to] = value
                    value = self.high[place]
                    self.high[place] = self.high[to]
                    self.high[to] = value
            to += 1

    # Rounds

    cdef int _rounds(self, fr_view *view, Py_ssize_t n_rounds, Py_ssize_t *used) except -1 nogil:
        """Use the rounds of a table until the race is over or a reward is bad; `used` says how many."""
        cdef Py_ssize_t count, done
        used[0] = 0
        while used[0] < n_rounds and self.status == RUNNING:
            if self.bound == BETTING:
                done = self._bet(view, used[0])
            else:
                count = min(n_rounds - used[0], <Py_ssize_t>(BLOCK - self.rounds % BLOCK))
                if self._is_clear() and self.rounds > 0 and count > 1:
                    done = self._block(view, used[0], count)
                    if done < 0:
                        with gil:
                            raise MemoryError()
                else:
                    done = self._round(view, used[0])
            if done == 0:
                return 0
            used[0] += done
            self.until_check -= done * (self.n_open + 1)
            if self.until_check < 0:
                self.until_check = REWARDS_PER_CHECK
                check_signals()
        return 0

    cdef Py_ssize_t _round(self, fr_view *view, Py_ssize_t first) noexcept nogil:
        """One round, every bound tested."""
        cdef fr_view here = view[0]
        cdef Py_ssize_t i, n = self.n_open
        cdef double t
        here.data += first * here.row_stride
        t = <double>(self.rounds + 1)
        if self.intersecting:
            if fr_rounds_narrow(&here, 1, n, &self.rule, t - 1.0, &self.sums, self.bets.lower, self.bets.upper,
                                self.work) == 0:
                return 0
            memcpy(self.lower, self.bets.lower, n * sizeof(double))
            memcpy(self.upper, self.bets.upper, n * sizeof(double))
        else:
            if fr_rounds_add(&here, 1, n, &self.rule, &self.sums, self.work) == 0:
                return 0
            fr_rounds_brackets(&self.sums, n, &self.rule, t, self.lower, self.upper)
        self.rounds += 1
        if self.intersecting and fr_rounds_empty(&self.rule, n, self.lower, self.upper):
            self.status = INCONSISTENT
            self._clear_at_block()
            return 1
        if self._judge(n, self.lower, self.upper, self.verdict, self.work):
            for i in range(n):
                if self.verdict[i] != OPEN:
                    self._settle(i, self.verdict[i], self.sums.centre[i] + self.sums.s[i] / t,
                                 self.sums.m2[i] + self.sums.q[i] - self.sums.s[i] * (self.sums.s[i] / t),
                                 self.lower[i], self.upper[i])
                    self._count(self.verdict[i])
            self._compact()
        self._end_if_decided()
        self._clear_at_block()
        return 1

    cdef inline bint _is_clear(self) noexcept nogil:
        """Whether the sums are clear: at the end of blocks, and after the first round, whose rewards become centres."""
        return self.rounds % BLOCK == 0 or self.rounds == 1

    cdef inline void _clear_at_block(self) noexcept nogil:
        if self._is_clear():
            fr_rounds_settle(&self.sums, self.n_open, <double>self.rounds)

    cdef Py_ssize_t _block(self, fr_view *view, Py_ssize_t first, Py_ssize_t count) noexcept nogil:
        """Up to `count` rounds from one at which the sums are clear; -1 without memory."""
        cdef fr_view here = view[0]
        cdef Py_ssize_t n = self.n_open, done, i
        cdef int64_t start = self.rounds
        here.data += first * here.row_stride
        if self.intersecting:
            return self._narrowing_block(&here, count)
        done = fr_rounds_add(&here, count, n, &self.rule, &self.sums, self.work)
        if done == 0:
            return 0
        self.rounds = start + done
        if self._may_decide(n, <double>(start + 1), <double>(start + done)):
            self.rounds = start
            if self._replay(&here, start, done) < 0:
                return -1
            if self.rounds < start + done:      # what came after the last round that counts is taken back
                done = <Py_ssize_t>(self.rounds - start)
                for i in range(self.n_open):
                    self.sums.s[i] = self.sums.q[i] = 0.0
                if self.n_open:
                    fr_rounds_add(&here, done, self.n_open, &self.rule, &self.sums, self.work)
        self._end_if_decided()
        self._clear_at_block()
        return done

    cdef bint _may_decide(self, Py_ssize_t n, double first, double last) noexcept nogil:
        """Whether any round of a stretch may have decided about an arm or ended a race for one best arm."""
        cdef Py_ssize_t i
        cdef double bar = -INFINITY, floor = INFINITY, top = -INFINITY
        fr_rounds_reach(&self.sums, n, &self.rule, first, last, True, self.lower, self.upper)
        for i in range(n):
            floor = self.upper[i] if self.upper[i] < floor else floor
        for i in range(n):
            bar = self.lower[i] if self.lower[i] > bar else bar
        if floor < bar:
            return True
        if self.epsilon > 0.0:
            for i in range(n):
                top = self.upper[i] if self.upper[i] > top else top
            return top - bar <= self.epsilon
        return False

    cdef int _replay(self, fr_view *view, int64_t start, Py_ssize_t count) noexcept nogil:
        """Go through a stretch again round by round, for the arms that may matter: those that may be decided about,
        and those whose bounds may decide, in a race for one best arm. Ends early with the race. Returns -1 without
        memory."""
        cdef Py_ssize_t n = self.n_open, i, k, m = 0, kept
        cdef double bar, sure_bar, sure_top
        cdef double *room = <double *>malloc(9 * n * sizeof(double))
        cdef Py_ssize_t *place = <Py_ssize_t *>malloc(n * sizeof(Py_ssize_t))
        cdef signed char *verdict = <signed char *>malloc(n)
        cdef double *narrow_lower = self.lower
        cdef double *narrow_upper = self.upper
        cdef double *wide_lower = room
        cdef double *wide_upper = room + n
        cdef double *centre = room + 2 * n
        cdef double *m2 = room + 3 * n
        cdef double *s = room + 4 * n
        cdef double *q = room + 5 * n
        cdef double *lower = room + 6 * n
        cdef double *upper = room + 7 * n
        cdef double *scratch = room + 8 * n
        cdef double t
        if room == NULL or place == NULL or verdict == NULL:
            free(room)
            free(place)
            free(verdict)
            return -1
        fr_rounds_reach(&self.sums, n, &self.rule, <double>(start + 1), <double>(start + count), False, wide_lower,
                        wide_upper)
        # The bar that lower bounds set lies between sure_bar and bar.
        memcpy(scratch, narrow_lower, n * sizeof(double))
        bar = kth_largest(scratch, n, self.n_wanted)
        memcpy(scratch, wide_lower, n * sizeof(double))
        sure_bar = kth_largest(scratch, n, self.n_wanted)
        memcpy(scratch, narrow_upper, n * sizeof(double))
        sure_top = kth_largest(scratch, n, 1) if self.epsilon > 0.0 else INFINITY
        for i in range(n):
            if narrow_upper[i] < bar or narrow_lower[i] >= sure_bar or wide_upper[i] >= sure_top:
                place[m] = i
                centre[m] = self.sums.centre[i]
                m2[m] = self.sums.m2[i]
                s[m] = q[m] = 0.0
                m += 1
        for k in range(count):
            self.rounds += 1
            t = <double>self.rounds
            fr_rounds_again(view, k, place, m, &self.rule, t, centre, m2, s, q, lower, upper)
            if self._judge(m, lower, upper, verdict, scratch):
                kept = 0
                for i in range(m):
                    if verdict[i] != OPEN:
                        self._settle(place[i], verdict[i], centre[i] + s[i] / t, m2[i] + q[i] - s[i] * (s[i] / t),
                                     lower[i], upper[i])
                        self._count(verdict[i])
                        continue
                    place[kept] = place[i]
                    centre[kept] = centre[i]
                    m2[kept] = m2[i]
                    s[kept] = s[i]
                    q[kept] = q[i]
                    kept += 1
                m = kept
                self._end_if_decided()
            if self.status != RUNNING:
                break
        self._compact()
        free(room)
        free(place)
        free(verdict)
        return 0

    cdef Py_ssize_t _narrowing_block(self, fr_view *view, Py_ssize_t count) noexcept nogil:
        """Up to `count` rounds of a race whose brackets are intersected, from one at which the sums are clear.

        Running brackets only get narrower, so what those after the last round do not decide, none before did. Returns
        -1 without memory."""
        cdef Py_ssize_t n = self.n_open, done, i
        cdef double *before = <double *>malloc(2 * n * sizeof(double))
        if before == NULL:
            return -1
        memcpy(before, self.bets.lower, n * sizeof(double))
        memcpy(before + n, self.bets.upper, n * sizeof(double))
        done = fr_rounds_narrow(view, count, n, &self.rule, <double>self.rounds, &self.sums, self.bets.lower,
                                self.bets.upper, self.work)
        if done > 0 and (fr_rounds_empty(&self.rule, n, self.bets.lower, self.bets.upper)
                         or self._judge(n, self.bets.lower, self.bets.upper, self.verdict, self.work)):
            for i in range(n):
                self.verdict[i] = OPEN
                self.sums.s[i] = self.sums.q[i] = 0.0
            memcpy(self.bets.lower, before, n * sizeof(double))
            memcpy(self.bets.upper, before + n, n * sizeof(double))
            done = self._round(view, 0)
        else:
            self.rounds += done
            self._end_if_decided()
            self._clear_at_block()
        free(before)
        return done

    cdef Py_ssize_t _bet(self, fr_view *view, Py_ssize_t round) noexcept nogil:
        """One round of the betting race, every bound tested."""
        cdef Py_ssize_t i, n = self.n_open
        cdef double t = <double>(self.rounds + 1), above, below, scale
        cdef int said
        fr_bets_means(&self.bets, n, &self.rule, t, self.work)
        above = kth_largest(self.work, n, self.n_wanted)
        below = kth_largest(self.work, n, self.n_wanted + 1)
        said = fr_bets_round(view, round, n, &self.rule, t, above, below, &self.bets, self.work)
        if said == 0:
            return 0
        self.rounds += 1
        if said == 2:
            self.status = INCONSISTENT
            return 1
        memcpy(self.lower, self.bets.lower, n * sizeof(double))
        memcpy(self.upper, self.bets.upper, n * sizeof(double))
        if self._judge(n, self.lower, self.upper, self.verdict, self.work):
            for i in range(n):
                if self.verdict[i] != OPEN:
                    scale = self.high[i] - self.low[i]
                    self._settle(i, self.verdict[i], self.low[i] + scale * ((self.bets.sum[i] - 0.5) / t), NAN,
                                 self.lower[i], self.upper[i])
                    self._count(self.verdict[i])
            self._compact()
        self._end_if_decided()
        return 1

    cdef void _end_exactly(self) noexcept nogil:
        """Every row of the population has been read for the open arms: decide about them by their means.

        Arms within rounding of the last place wanted stay open: they are tied."""
        cdef Py_ssize_t i, n = self.n_open
        cdef double t = <double>self.rounds, bar, m2
        if self.bound == BETTING:
            for i in range(n):
                self.lower[i] = self.low_of(i) + (self.high_of(i) - self.low_of(i)) * ((self.bets.sum[i] - 0.5) / t)
        else:
            for i in range(n):
                self.lower[i] = self.sums.centre[i] + self.sums.s[i] / t
        memcpy(self.work, self.lower, n * sizeof(double))
        bar = kth_largest(self.work, n, self.n_wanted)
        for i in range(n):
            if self.lower[i] < bar - 1e-12 * (self.high_of(i) - self.low_of(i)):
                m2 = NAN
                if self.bound != BETTING:
                    m2 = self.sums.m2[i] + self.sums.q[i] - self.sums.s[i] * (self.sums.s[i] / t)
                self.verdict[i] = DROPPED
                self._settle(i, DROPPED, self.lower[i], m2, self.lower[i], self.lower[i])
                self._count(DROPPED)
        self._compact()
        self.status = EXACT

    # Rewards

    cdef inline double low_of(self, Py_ssize_t place) noexcept nogil:
        return self.rule.low if self.rule.lows == NULL else self.low[place]

    cdef inline double high_of(self, Py_ssize_t place) noexcept nogil:
        return self.rule.high if self.rule.lows == NULL else self.high[place]

    cdef int _begin(self) except -1:
        if self.status != RUNNING:
            return 0
        self._scratch = np.empty(6 * self.n_open)
        self.lower = <double *>cnp.PyArray_DATA(self._scratch)
        self.upper = self.lower + self.n_open
        self.work = self.upper + self.n_open
        return 0

    cdef void _finish(self):
        self._scratch = None

    def _refuse(self, block, first, RowOrder order=None):
        """Why the first bad reward of a block of rounds, rows by places, cannot be taken."""
        cdef Py_ssize_t i, j
        for i in range(block.shape[0]):
            for j in range(self.n_open):
                x = float(block[i, j])
                low, high = self.support(j)
                if not low - stream_slack(low, high) <= x <= high + stream_slack(low, high):
                    where = f"the reward of arm {self.arm[j]} in round {first + i}, counted from 0, is {x!r}"
                    if order is not None:
                        where = f"the reward of arm {self.arm[j]} in row {row_in(order, first + i)} is {x!r}"
                    if x != x or x in (INFINITY, -INFINITY):
                        return ValueError(f"{where}; a reward must be a finite number inside support=({low!r}, "
                                          f"{high!r})")
                    return ValueError(f"{where}, outside support=({low!r}, {high!r}): the promise holds only for "
                                      f"rewards inside it; widen support or scale the rewards")
        return RuntimeError("a reward changed while it was read")

    def support(self, Py_ssize_t place):
        """The support of the arm at a place."""
        return self.low_of(place), self.high_of(place)

    def tell(self, block):
        """Take rounds of rewards, a float64 array of shape (k, n_open); return how many were used."""
        return guarded(&self.guard, self, self._tell, (block,))

    def _tell(self, cnp.ndarray table not None):
        cdef Py_ssize_t used = 0, n = table.shape[0], i
        cdef fr_view view
        if self.order is not None:
            raise ValueError(f"this race reads a table of {self.order.n_rows} rows in random order; go on with "
                             f"run(table), which knows the rows that are left")
        if table.ndim != 2 or table.shape[1] != self.n_open or cnp.PyArray_TYPE(table) != cnp.NPY_FLOAT64 or \
                not cnp.PyArray_ISBEHAVED_RO(table):
            raise ValueError(f"rewards have shape {np.shape(table)}; (k, {self.n_open}) is needed, a column per arm "
                             f"still in the race")
        saved = self._state()
        view.data = <const char *>cnp.PyArray_DATA(table)
        view.row_stride, view.arm_stride = table.strides[0], table.strides[1]
        view.single = False
        self._begin()
        try:
            for i in range(self.n_open):
                self.column[i] = i
            view.column = self.column
            with nogil:
                self._rounds(&view, n, &used)
            if used < n and self.status == RUNNING:
                columns = self._column[:self.n_open]
                raise self._refuse(table[used:used + 1][:, columns], self.rounds)
        except BaseException:
            self._finish()
            self._take_state(saved)
            raise
        self._finish()
        return used

    def run(self, Source source not None, batch, rng=None):
        """Use the rows of a source until the race is over or the rows are: round t is row t - 1, or, with `rng`, the
        row at position t - 1 of a random order of all rows, which later calls go on with.

        A table in memory is read where it lies; other sources are asked for `batch` rounds at a time.
        """
        guard_check_built(&source.guard, source)
        guarded(&self.guard, self, self._run, (source, batch, rng))

    def _run(self, Source source, batch, rng):
        cdef ArraySource table
        cdef fr_view view
        cdef Py_ssize_t used = 0, most = batch, count, n, i
        cdef int64_t last = min(source.n_rows, self.horizon)
        if most < 1:
            raise ValueError(f"batch is {batch}; at least one round is needed")
        cdef int64_t *rows = NULL
        cdef double *room = NULL
        cdef double **columns = NULL
        if source.n_arms != self.n_arms:
            raise ValueError(f"the source has {source.n_arms} arms; this race was set up for {self.n_arms}")
        if self.status != RUNNING:
            return
        self._begin()
        try:
            self._set_order(source.n_rows, rng)
            if self.order is None and type(source) is ArraySource:
                table = source
                for i in range(self.n_open):
                    self.column[i] = self.arm[i]
                view.data = table.data + self.rounds * table.row_stride
                view.row_stride, view.arm_stride = table.row_stride, table.arm_stride
                view.single = table.single
                view.column = self.column
                if self.rounds < last:
                    count = <Py_ssize_t>(last - self.rounds)
                    with nogil:
                        self._rounds(&view, count, &used)
                    if used < count and self.status == RUNNING:
                        bad = source.read([self.rounds], self._arm[:self.n_open])
                        raise self._refuse(bad, self.rounds)
                return
            room = <double *>malloc(self.n_open * most * sizeof(double))
            columns = <double **>malloc(self.n_open * sizeof(double *))
            rows = <int64_t *>malloc(most * sizeof(int64_t))
            if room == NULL or columns == NULL or rows == NULL:
                raise MemoryError()
            view.row_stride, view.arm_stride = sizeof(double), most * sizeof(double)
            view.single = False
            view.data = <const char *>room
            view.column = self.column
            while self.status == RUNNING and self.rounds < last:
                n = self.n_open
                count = <Py_ssize_t>min(<int64_t>most, last - self.rounds)
                for i in range(n):
                    self.column[i] = i
                    columns[i] = room + i * most
                with nogil:
                    if self.order is None:
                        source.fill_range(self.rounds, count, self.arm, n, columns)
                    else:
                        self.order.settle(self.rounds + count)
                        for i in range(count):
                            rows[i] = row_in(self.order, self.rounds + i)
                        source.fill(rows, count, self.arm, n, columns)
                    self._rounds(&view, count, &used)
                if used < count and self.status == RUNNING:
                    bad = np.array([[columns[self.column[i]][used] for i in range(self.n_open)]])
                    raise self._refuse(bad, self.rounds, self.order)
            if self.order is not None and self.rounds == self.order.n_rows and self.rounds > 0 \
                    and self.status in (RUNNING, BY_HORIZON):
                with nogil:
                    self._end_exactly()
        finally:
            free(rows)
            free(room)
            free(columns)
            self._finish()

    def _set_order(self, n_rows, rng):
        """Read rows as they are given, or, with a generator, in a random order of all `n_rows` of a population."""
        if self.rounds == 0:
            if rng is None:
                self.order = None
            elif self.order is None or self.order.n_rows != n_rows:
                self.order = RowOrder(n_rows, rng)
            self.rule.n_rows = INFINITY if rng is None else <double>self.order.n_rows
        elif rng is None and self.order is not None:
            raise ValueError(f"this race has read {self.rounds} rows of a table in random order; it cannot go on with "
                             f"rows in the order given, some of which it has seen")
        elif rng is not None and (self.order is None or self.order.n_rows != n_rows):
            seen = "rounds that were given" if self.order is None else f"rows of a table of {self.order.n_rows} rows"
            raise ValueError(f"this race has used {self.rounds} {seen}; a table of {n_rows} rows in random order must "
                             f"be read from its start: make a new race, or say order='given'")

    def restore_order(self, saved):
        """Take the order that `saved` gave."""
        order = None if saved is None else _row_order.restored(saved)
        guard_check(&self.guard, self)
        self.order = order
        self.rule.n_rows = INFINITY if saved is None else <double>self.order.n_rows
        if self.order is not None and self.rounds > self.order.drawn:
            raise ValueError("the saved race is damaged: it has used more rows than its order has")

    # Answers

    @property
    def done(self):
        return self.status != RUNNING

    @property
    def active(self):
        """Arms that rewards are wanted of, in order."""
        guard_check(&self.guard, self)
        return self._arm[:self.n_open].copy()

    def answer(self):
        """What is known so far, by arm, under the names of `StreamRaceResult`."""
        return guarded(&self.guard, self, self._answer, ())

    def _answer(self):
        cdef Py_ssize_t i, n = self.n_open
        cdef double t = <double>self.rounds, scale
        cdef cnp.ndarray table = np.full((4, self.n_arms), np.nan)
        cdef double *row[4]
        cdef double[::1] lower = np.empty(max(n, 1)), upper = np.empty(max(n, 1))
        for i in range(4):
            row[i] = <double *>cnp.PyArray_DATA(table) + i * self.n_arms
        if n and t > 0.0 and not self.intersecting:
            fr_rounds_brackets(&self.sums, n, &self.rule, t, &lower[0], &upper[0])
        for i in range(self.n_arms):
            if i >= n:
                row[0][i] = self.field[0][i]
                row[1][i] = self.field[1][i]
                row[2][i] = self.field[2][i]
                row[3][i] = self.field[3][i]
            elif self.bound == BETTING:
                scale = self.high_of(i) - self.low_of(i)
                if t > 0.0:
                    row[0][i] = self.low_of(i) + scale * ((self.bets.sum[i] - 0.5) / t)
                row[1][i] = NAN         # bets rest on a guess of the spread, which begins as a quarter
                row[2][i] = self.bets.lower[i]
                row[3][i] = self.bets.upper[i]
            elif t > 0.0:
                row[0][i] = self.sums.centre[i] + self.sums.s[i] / t
                row[1][i] = self.sums.m2[i] + self.sums.q[i] - self.sums.s[i] * (self.sums.s[i] / t)
                row[2][i] = self.bets.lower[i] if self.intersecting else lower[i]
                row[3][i] = self.bets.upper[i] if self.intersecting else upper[i]
            else:
                row[2][i], row[3][i] = self.support(i)
            if i < n and self.status == EXACT:
                row[2][i] = row[3][i] = row[0][i]
        pulls = np.full(self.n_arms, self.rounds, dtype=np.int64)
        pulls[n:] = self._fields[4, n:]
        places = np.argsort(self._arm)
        table = table[:, places]
        verdict = self._verdict[places]
        pulls = pulls[places]
        with np.errstate(invalid="ignore", divide="ignore"):
            std = np.sqrt(np.maximum(table[1], 0.0) / pulls)
        return dict(mean=table[0], std=std, lower=table[2], upper=table[3], pulls=pulls,
                    chosen=np.flatnonzero(verdict == CHOSEN), active=np.flatnonzero(verdict == OPEN),
                    n_rounds=self.rounds, stopped_by=STOPPED_BY[self.status])

    def saved(self):
        """The state, and the order of the rows of a population or None, both of one moment."""
        guard_enter(&self.guard, self)
        try:
            return self._state(), None if self.order is None else self.order.get_state()
        finally:
            guard_leave(&self.guard)

    def _state(self):
        return dict(arguments=self.arguments, fields=self._fields.copy(), arm=self._arm.copy(),
                    verdict=self._verdict.copy(), low=self._low.copy(), high=self._high.copy(),
                    counts=(self.n_open, self.n_wanted, self.rounds, self.status))

    def _set_state(self, state):
        guarded(&self.guard, self, self._take_state, (state,))

    def _take_state(self, state):
        fields, arm, verdict = state["fields"], state["arm"], state["verdict"]
        low, high = state["low"], state["high"]
        n_open, n_wanted, rounds, status = state["counts"]
        if not (fields.dtype == np.float64 and fields.shape == np.shape(self._fields) and arm.dtype == np.intp
                and np.array_equal(np.sort(arm), np.arange(self.n_arms)) and verdict.dtype == np.int8
                and verdict.shape == arm.shape == low.shape == high.shape and 0 <= n_open <= self.n_arms
                and np.isin(verdict, (OPEN, DROPPED, CHOSEN)).all() and 0 <= n_wanted <= self.n_best
                and (verdict[:n_open] == OPEN).all() and (verdict[n_open:] != OPEN).all()
                and 0 <= rounds <= self.horizon and 0 <= status < len(STOPPED_BY)
                and (status != RUNNING or 0 < n_wanted < n_open)
                and np.array_equal(low, np.broadcast_to(self.arguments[6], (self.n_arms,))[arm])
                and np.array_equal(high, np.broadcast_to(self.arguments[7], (self.n_arms,))[arm])
                and not np.isnan(fields[:, :n_open]).any()):
            raise ValueError("the saved race is damaged: its counts cannot be right")
        self._fields = np.array(fields, order="C")
        self._arm = np.array(arm)
        self._verdict = np.array(verdict)
        self._low = np.array(low, dtype=np.float64)
        self._high = np.array(high, dtype=np.float64)
        self._point()
        if self.rule.lows != NULL:
            self.rule.lows = self.low
            self.rule.highs = self.high
        self.n_open, self.n_wanted, self.rounds, self.status = n_open, n_wanted, rounds, status
