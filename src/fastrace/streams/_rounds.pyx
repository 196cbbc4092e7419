"""Rounds of a race on streams: every arm still in it gets one reward a round, until bounds tell arms apart.

Rounds come in blocks. A block that provably could neither end the race nor decide about an arm costs two passes over
the sums; in another one, the few arms that may matter are gone through round by round. Either way the answer is that of
testing all bounds after every round.
"""

from libc.math cimport INFINITY, NAN, fabs, fmax, sqrt
from libc.stdint cimport INT64_MAX, int64_t
from libc.string cimport memcpy
cimport numpy as cnp

from fastrace._base._guard cimport guard_await, guard_build, guard_built, guard_check
from fastrace._base._signals cimport check_signals
from fastrace._draws._ranks cimport kth_largest
from fastrace._draws._duels cimport AsymptoticDuels, Duels
from fastrace._math._anytime cimport t_mixture_spread
from fastrace._math._columns cimport column_brackets, column_mean, column_means, column_push, column_t
from fastrace._math._rounds cimport (fr_bets_means, fr_bets_round, fr_rounds_add, fr_rounds_again, fr_rounds_brackets,
                                     fr_rounds_empty, fr_rounds_narrow, fr_rounds_reach, fr_rounds_settle, fr_view)

import numpy as np

cnp.import_array()

STOPPED_BY = ("", "bound", "epsilon", "horizon", "single", "inconsistent", "exact", "max_pulls")
MISSING = ("raise", "drop", "worst")
BOUNDS = ("hoeffding", "empirical-bernstein", "betting", "asymptotic")

cdef enum:
    BLOCK = 64                  # rounds between two moments at which the sums are cleared
    REWARDS_PER_CHECK = 1 << 19     # between two looks at pending signals: well below 50 ms


cdef class Rounds:
    """State and rounds of one race.

    The first n_open entries are the arms still in the race, ascending. Behind them stand the arms that have been
    decided, each with its mean, sum of squared deviations, ends of the bracket and round at that moment.
    """

    def __cinit__(self):
        guard_await(&self.guard, 0)

    def __init__(self, n_arms, bound, horizon, n_best, epsilon, log_share, low, high, goal=None, first_look=2,
                 best_at=1.0, missing="raise"):
        cdef Py_ssize_t i
        cdef Py_ssize_t arms = n_arms, best = n_best
        cdef int kind = BOUNDS.index(bound)
        cdef int64_t rounds = INT64_MAX if horizon is None else horizon
        cdef double accuracy = epsilon, share = log_share, start = first_look, best_start = best_at
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
        self.intersecting = self.bound == BETTING or (n_best > 1 and self.bound != ASYMPTOTIC)
        self._columns = np.zeros((n_arms if kind == ASYMPTOTIC else 0) * sizeof(column_t), dtype=np.uint8)
        self._fields = np.zeros((FIELDS if self.bound == BETTING else 8 if self.intersecting else 6, n_arms))
        self.until_check = REWARDS_PER_CHECK
        self.limit = INT64_MAX
        self.missing = MISSING.index(missing)
        self.first_look, self.spread = start, t_mixture_spread(best_start, share)
        if goal is not None:
            self.goal = goal
            self.duels = (Duels(n_best, accuracy, low, high) if self.bound != ASYMPTOTIC else
                          AsymptoticDuels(n_best, accuracy, low, high, goal, start, best_start))
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
            self.status = SINGLE
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
        self.columns = <column_t *>cnp.PyArray_DATA(self._columns)
        if self.duels is not None and self.bound == ASYMPTOTIC:
            (<AsymptoticDuels>self.duels).columns = self.columns
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

    cdef void _brackets(self, Py_ssize_t n, double t, double *lower, double *upper) noexcept nogil:
        """Brackets of the means of the first n places after t rounds, from their sums."""
        if self.bound == ASYMPTOTIC:
            column_brackets(self.columns, self.arm, n, t >= self.first_look, self.spread, self.rule.x,
                            self.duels is None, lower, upper)
        else:
            fr_rounds_brackets(&self.sums, n, &self.rule, t, lower, upper)

    # Deciding

    cdef void _settle(self, Py_ssize_t place, int verdict, double mean, double m2, double lower,
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

    cdef void _decide(self, Py_ssize_t n) noexcept nogil:
        """Let go of the arms that the brackets in `lower` and `upper` decide about, and end the race if they do."""
        cdef Py_ssize_t i
        if self._judge(n, self.lower, self.upper, self.verdict, self.work):
            for i in range(n):
                if self.verdict[i] != OPEN:
                    self._settle(i, self.verdict[i], self.mean_of(i), self.m2_of(i), self.lower[i], self.upper[i])
                    self._count(self.verdict[i])
            self._compact()
        self._end_if_decided()

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
            if self.limit < INT64_MAX:
                if self._affordable() == 0:
                    self.status = BY_MAX_PULLS
                    return 0
            if self.bound == BETTING:
                done = self._bet(view, used[0])
            else:
                count = min(n_rounds - used[0], <Py_ssize_t>(BLOCK - self.rounds % BLOCK))
                count = <Py_ssize_t>min(<int64_t>count, self._affordable())
                if self._is_clear() and self.rounds > 0 and count > 1 and self.bound != ASYMPTOTIC:
                    done = self._block(view, used[0], count)
                else:
                    done = self._round(view, used[0])
            if done == 0:
                return 0
            used[0] += done
            self.until_check -= done * (self.n_open + 1) * (1 if self.duels is None else 8 * self.duels.n_seats)
            if self.until_check < 0:
                self.until_check = REWARDS_PER_CHECK
                check_signals()
        return 0

    cdef Py_ssize_t _round(self, fr_view *view, Py_ssize_t first) noexcept nogil:
        """One round, every bound tested."""
        cdef fr_view here = view[0]
        cdef Py_ssize_t n = self.n_open, i
        cdef double t = <double>(self.rounds + 1)
        self._assign()
        here.data += first * here.row_stride
        if self.intersecting:
            if fr_rounds_narrow(&here, 1, n, &self.rule, t - 1.0, &self.sums, self.bets.lower, self.bets.upper,
                                self.work) == 0:
                return 0
            self.rounds += 1
            memcpy(self.lower, self.bets.lower, n * sizeof(double))
            memcpy(self.upper, self.bets.upper, n * sizeof(double))
        else:
            if fr_rounds_add(&here, 1, n, &self.rule, &self.sums, self.work) == 0:
                return 0
            self.rounds += 1
            for i in range(n if self.bound == ASYMPTOTIC else 0):
                column_push(&self.columns[self.arm[i]], self._reward(view, first, i))
            self._brackets(n, t, self.lower, self.upper)
        if self.intersecting and fr_rounds_empty(&self.rule, n, self.lower, self.upper):
            self.status = INCONSISTENT
            self._clear_at_block()
            return 1
        if self.duels is not None:
            self._duel(view, first)
            self._decide_duels()
        else:
            self._decide(n)
        self._clear_at_block()
        return 1

    cdef bint _is_clear(self) noexcept nogil:
        """Whether the sums are clear: at the end of blocks, and after the first round, whose rewards become centres."""
        return self.rounds % BLOCK == 0 or self.rounds == 1

    cdef void _clear_at_block(self) noexcept nogil:
        if self._is_clear():
            fr_rounds_settle(&self.sums, self.n_open, <double>self.rounds)

    cdef Py_ssize_t _block(self, fr_view *view, Py_ssize_t first, Py_ssize_t count) noexcept nogil:
        """Up to `count` rounds from one at which the sums are clear."""
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
            self._replay(&here, start, done)
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

    cdef void _replay(self, fr_view *view, int64_t start, Py_ssize_t count) noexcept nogil:
        """Go through a stretch again round by round, for the arms that may matter: those that may be decided about,
        and those whose bounds may decide, in a race for one best arm. Ends early with the race."""
        cdef Py_ssize_t n = self.n_open, i, k, m = 0, kept
        cdef double bar, sure_bar, sure_top
        cdef double *room = self.work + 4 * n
        cdef Py_ssize_t *place = <Py_ssize_t *>(room + 9 * n)
        cdef signed char *verdict = <signed char *>(room + 10 * n)
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

    cdef Py_ssize_t _narrowing_block(self, fr_view *view, Py_ssize_t count) noexcept nogil:
        """Up to `count` rounds of a race whose brackets are intersected, from one at which the sums are clear.

        Running brackets only get narrower, so what those after the last round do not decide, none before did."""
        cdef Py_ssize_t n = self.n_open, done, i
        cdef double *before = self.work + 4 * n
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
        return done

    cdef Py_ssize_t _bet(self, fr_view *view, Py_ssize_t round) noexcept nogil:
        """One round of the betting race, every bound tested."""
        cdef Py_ssize_t n = self.n_open
        cdef double t = <double>(self.rounds + 1), above, below
        cdef int said
        self._assign()
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
        if self.duels is not None:
            self._duel(view, round)
            self._decide_duels()
        else:
            self._decide(n)
        return 1

    # Duels

    cdef void _assign(self) noexcept nogil:
        """Before a round, give seats to arms where there are too few for all."""
        if self.duels is not None and self.duels.n_seats < self.n_arms and self.rounds > 0:
            self._means(self.work)
            self.duels.assign(self.arm, self.work, self.n_open, self.n_wanted, self.rounds, self.work + self.n_open)

    cdef void _means(self, double *mean) noexcept nogil:
        """Means by place, as they compare."""
        cdef Py_ssize_t i
        for i in range(self.n_open):
            mean[i] = self.mean_of(i)
        if self.bound == ASYMPTOTIC:            # which may be far from 0
            column_means(self.columns, self.arm, self.n_open, mean)

    cdef double _reward(self, const fr_view *view, Py_ssize_t round, Py_ssize_t place) noexcept nogil:
        cdef const char *at = view.data + round * view.row_stride + view.column[place] * view.arm_stride
        return <double>(<const float *>at)[0] if view.single else (<const double *>at)[0]

    cdef void _duel(self, fr_view *view, Py_ssize_t round) noexcept nogil:
        """Let all duels bet on the round that was taken last. Of a population without replacement, what the rows before
        say of the rest is a part of the reward, so that it has the mean of all rows."""
        cdef Py_ssize_t i, n = self.n_open
        cdef double *reward = self.work
        cdef double *unbiased = self.work + n
        cdef double left = 1.0 - <double>self.rounds / self.rule.n_rows
        for i in range(n):
            reward[i] = self._reward(view, round, i)
            unbiased[i] = reward[i] if left == 1.0 else left * reward[i] + (1.0 - left) * self.mean_of(i)
        self.duels.bet(self.arm, reward, unbiased, n)

    cdef void _decide_duels(self) noexcept nogil:
        """Drop arms that as many have beaten as are wanted, the smallest mean first, and choose those that have beaten
        as many as may leave; end the race if that decides it."""
        cdef Py_ssize_t i, n = self.n_open, last, left = n, spare = n - self.n_wanted, wanted = self.n_wanted
        cdef double *mean = self.work
        cdef double *beaten = self.work + n
        cdef double *beating = self.work + 2 * n
        self._means(mean)
        self.duels.beaten(self.arm, n, self.n_wanted, beaten, self.work + 3 * n)
        if self.n_best > 1:
            self.duels.beating(self.arm, n, spare, beating, self.work + 3 * n)
        for i in range(n):
            self.verdict[i] = OPEN
        while left > self.n_wanted:
            last = -1
            for i in range(n):
                if self.verdict[i] == OPEN and beaten[i] >= self.goal and (last < 0 or mean[i] < mean[last]):
                    last = i
            if last < 0:
                break
            self.verdict[last] = DROPPED
            left -= 1
        for i in range(n):
            if self.n_best > 1 and wanted > 0 and self.verdict[i] == OPEN and beating[i] >= self.goal:
                self.verdict[i] = CHOSEN
                wanted -= 1
        for i in range(n):
            if self.verdict[i] != OPEN:
                self._settle(i, self.verdict[i], self.mean_of(i), self.m2_of(i), self.lower[i], self.upper[i])
                self.field[5][i] = beaten[i] if self.verdict[i] == DROPPED else beating[i]
                self._count(self.verdict[i])
        if self.n_open < n:
            self._compact()
        if self.epsilon > 0.0 and 0 < self.n_wanted < self.n_open:
            self._means(mean)
            if self.duels.least(self.arm, mean, self.n_open, self.n_wanted, 1, self.work + n) >= self.goal:
                self.status = BY_EPSILON
        self._end_if_decided()

    cdef int64_t position(self) noexcept nogil:
        """Rounds so far, dropped ones included."""
        return self.rounds + self.n_dropped

    cdef int64_t _affordable(self) noexcept nogil:
        """Rounds of all open arms that `limit` leaves."""
        cdef int64_t paid = self.rounds * self.n_open
        cdef Py_ssize_t i
        if self.limit == INT64_MAX:
            return INT64_MAX
        if self.missing == SKIPPED:         # all arms are asked for to the end
            return max(self.limit - self.position() * self.n_arms, <int64_t>0) // self.n_arms
        for i in range(self.n_open, self.n_arms):
            paid += <int64_t>self.field[4][i]
        return max(self.limit - paid, <int64_t>0) // self.n_open

    cdef void _end_exactly(self) noexcept nogil:
        """Every row of the population has been read for the open arms: decide about them by their means.

        Arms within rounding of the last place wanted stay open: they are tied."""
        cdef Py_ssize_t i, n = self.n_open
        cdef double bar, size
        self._means(self.lower)
        memcpy(self.work, self.lower, n * sizeof(double))
        bar = kth_largest(self.work, n, self.n_wanted)
        for i in range(n):
            size = self.high_of(i) - self.low_of(i)
            if self.bound == ASYMPTOTIC:
                size = fabs(bar) + sqrt(fmax(self.m2_of(i), 0.0) / <double>self.rounds)
            if self.lower[i] < bar - 1e-12 * size:
                self._settle(i, DROPPED, self.mean_of(i), self.m2_of(i), self.mean_of(i), self.mean_of(i))
                if self.duels is not None:
                    self.field[5][i] = INFINITY
                self._count(DROPPED)
        self._compact()
        self.status = EXACT

    # What is known

    @property
    def done(self):
        return self.status not in (RUNNING, BY_MAX_PULLS)

    @property
    def active(self):
        """Indices of the arms still in the race, ascending."""
        guard_check(&self.guard, self)
        return self._arm[:self.n_open].copy()

    cdef double mean_of(self, Py_ssize_t place) noexcept nogil:
        cdef double low = self.low_of(place), t = <double>self.rounds
        if self.bound == BETTING:
            return low + (self.high_of(place) - low) * ((self.bets.sum[place] - 0.5) / t)
        if self.bound == ASYMPTOTIC:
            return column_mean(&self.columns[self.arm[place]])
        return self.sums.centre[place] + self.sums.s[place] / t

    cdef double m2_of(self, Py_ssize_t place) noexcept nogil:
        """The sum of squared deviations; bets rest on a guess of the spread, which begins as a quarter."""
        if self.bound == BETTING or self.bound == ASYMPTOTIC:
            return NAN if self.bound == BETTING else self.columns[self.arm[place]].moments.m2
        return (self.sums.m2[place] + self.sums.q[place]
                - self.sums.s[place] * (self.sums.s[place] / <double>self.rounds))

    cdef double low_of(self, Py_ssize_t place) noexcept nogil:
        return self.rule.low if self.rule.lows == NULL else self.low[place]

    cdef double high_of(self, Py_ssize_t place) noexcept nogil:
        return self.rule.high if self.rule.lows == NULL else self.high[place]

    cdef int _begin(self) except -1:
        if self.status != RUNNING:
            return 0
        self._scratch = np.empty(17 * self.n_open)      # lower, upper, 4 for sums and 11 for a replay
        self.lower = <double *>cnp.PyArray_DATA(self._scratch)
        self.upper = self.lower + self.n_open
        self.work = self.upper + self.n_open
        return 0

    cdef void _finish(self):
        self._scratch = None
