# cython: cdivision=True
"""Duels of arms that are read on the same rounds: bets that the mean of a seated arm is above that of another.

A duel bets on the differences of the two arms' rewards, round by round. If their mean is at most 0, its wealth is a
nonnegative supermartingale that starts at 1, however the rewards of a round depend on each other. With an epsilon, a
second gambler bets that it is above -epsilon.

Memory for duels of all arms would grow as their square. So only so many arms are seated at a time, those of the largest
means. An arm that takes a seat begins its duels anew, and the k-th time with a share 1 / 2^k of one unit of wealth, so
that all its turns together are bets of one unit; if no seat ever changes hands, the first share is all of it.

Where no support is known, the evidence of a duel is that of a mixture of t-statistics of its differences. It does not
count while few rewards of either arm carry a tail that could turn it: see `_math._skewness`.
"""

from libc.math cimport INFINITY, NAN, fabs, fmax, fmin, log, pow, sqrt
from libc.stdint cimport int64_t
from libc.string cimport memset
cimport numpy as cnp

from fastrace._base._guard cimport guard_await, guard_build, guard_built, guard_check_built
from fastrace._draws._ranks cimport kth_largest
from fastrace._math._anytime cimport t_mixture_half_width, t_mixture_level, t_mixture_spread
from fastrace._math._betting cimport (MAX_BETS, bets_init, bets_t, wealth_extend, wealth_init, wealth_log,
                                      wealth_t)
from fastrace._math._columns cimport column_mean, column_rows, column_size, column_t
from fastrace._math._moments cimport moments4_add, moments4_skewness, moments4_variance
from fastrace._math._pairs cimport (MOST_BETS, ladder_init, log_wealth, mirrored, n_awake, set_tolls, spread_of,
                                    spread_t)
from fastrace._math._skewness cimport (UNSEEN_LEADS, constant_rows, stream_varies, tail_end, tail_shift,
                                       tail_variance)

import numpy as np

cnp.import_array()

cdef enum:
    FREE_DUELS = 1 << 12    # of a seat for each of up to 64 arms: none has to begin anew, none has a share
    SEATS = 16              # at least, of many arms; if more than 8 are wanted, always twice as many
    MOST_DUELS = 1 << 16    # of fewer seats where there are very many arms
    FIRST_CHANGE = 8        # rounds before seats are given anew: no duel has bet by then
    PEAK = 1 << 12          # rewards of a stream that its bets are most likely to be best after
    END_HALVINGS = 50       # towards the end of an interval


cdef void bets_init_endless(bets_t *bets) noexcept nogil:
    """The bettors of `bets_init` for a stream: all sizes, with weights that grow as size^0.4 to PEAK, and fall so."""
    cdef double size = 16.0, total = 0.0
    cdef int k
    bets.count = MAX_BETS
    for k in range(MAX_BETS):
        bets.gap[k] = sqrt(2.0 * log(100.0) / size)
        bets.weight[k] = pow(fmin(size / PEAK, PEAK / size), 0.4)
        total += bets.weight[k]
        size *= 4.0
    for k in range(MAX_BETS):
        bets.weight[k] /= total


cdef class Duels:
    """State of all duels of a race; the race says which arms are open, and gives it the rounds."""

    def __cinit__(self, *args, **kwargs):
        guard_await(&self.guard, 0)

    def __init__(self, n_best, epsilon, low, high):
        lower, upper = np.array(low, dtype=np.float64), np.array(high, dtype=np.float64)
        guard_build(&self.guard, 0, self)
        self._low, self._high = lower, upper
        self.low = <const double *>cnp.PyArray_DATA(self._low)
        self.high = <const double *>cnp.PyArray_DATA(self._high)
        n = self.n_arms = self._low.shape[0]
        self.n_seats = min(n, max(FREE_DUELS // n, min(SEATS, MOST_DUELS // n), 2 * n_best))
        self.epsilon = epsilon
        self.kinds = 2 if self.epsilon > 0.0 else 1
        self.arrays = self._fresh(self.n_seats, n)
        self._point()
        ladder_init(&self.ladder)
        guard_built(&self.guard, 0)
        self.read_from(None)

    def _fresh(self, Py_ssize_t seats, Py_ssize_t n):
        """All arrays of so many seats, before the first round."""
        return dict(self._tables(seats, n), start=np.zeros(seats, dtype=np.int64),
                    seat=np.where(np.arange(n) < seats, np.arange(n), -1).astype(np.int64),
                    turns=(np.arange(n) < seats).astype(np.int64))

    def _tables(self, Py_ssize_t seats, Py_ssize_t n):
        """What duels keep, by name."""
        return dict(wealth=np.zeros(seats * n * self.kinds * sizeof(wealth_t), dtype=np.uint8),
                    sums=np.zeros((4, seats, n)))

    cdef int _point(self) except -1:
        cdef cnp.ndarray wealth = self.arrays["wealth"], sums = self.arrays["sums"], start = self.arrays["start"]
        cdef cnp.ndarray seat = self.arrays["seat"], turns = self.arrays["turns"]
        cdef Py_ssize_t size = self.n_seats * self.n_arms
        self.wealth = <wealth_t *>cnp.PyArray_DATA(wealth)
        self.total = <double *>cnp.PyArray_DATA(sums)
        if sums.ndim == 3:
            self.first, self.second, self.shift = self.total + size, self.total + 2 * size, self.total + 3 * size
        self.start = <int64_t *>cnp.PyArray_DATA(start)
        self.seat = <int64_t *>cnp.PyArray_DATA(seat)
        self.turns = <int64_t *>cnp.PyArray_DATA(turns)
        return 0

    def read_from(self, n_rows):
        """Rounds are rows of a population of so many, in random order, or of a stream (None)."""
        guard_check_built(&self.guard, self)
        self.n_rows = 0 if n_rows is None else n_rows
        if n_rows is None:
            bets_init_endless(&self.bets)
        else:
            bets_init(&self.bets, self.n_rows)

    # Seats

    cdef double share(self, Py_ssize_t arm) noexcept nogil:
        """Log of what the duels of an arm began with."""
        return 0.0 if self.n_seats >= self.n_arms else -log(2.0) * <double>self.turns[arm]

    cdef Py_ssize_t _free(self, const Py_ssize_t *arm, Py_ssize_t n) noexcept nogil:
        """A seat that no open arm has, taken from the arm that left with it; -1 if there is none."""
        cdef Py_ssize_t seat, i
        cdef bint taken
        for seat in range(self.n_seats):
            taken = False
            for i in range(n):
                taken = taken or self.seat[arm[i]] == seat
            if not taken:
                for i in range(self.n_arms):
                    if self.seat[i] == seat:
                        self.seat[i] = -1
                return seat
        return -1

    cdef void _clear(self, Py_ssize_t seat) noexcept nogil:
        cdef Py_ssize_t k
        for k in range(seat * self.n_arms, (seat + 1) * self.n_arms):
            self.total[k] = self.first[k] = self.second[k] = self.shift[k] = 0.0
        for k in range(seat * self.n_arms * self.kinds, (seat + 1) * self.n_arms * self.kinds):
            wealth_init(&self.wealth[k])

    cdef void _take(self, Py_ssize_t seat, Py_ssize_t place, const Py_ssize_t *arm, const double *mean, Py_ssize_t n,
                    int64_t rounds) noexcept nogil:
        """Give a free seat to an arm; all open arms have had so many rounds."""
        cdef double weight
        cdef Py_ssize_t j
        self._clear(seat)
        if self.n_rows > 0:
            weight = <double>rounds / (<double>self.n_rows - <double>rounds)
            for j in range(n):
                self.shift[seat * self.n_arms + arm[j]] = (mean[place] - mean[j]) * weight
        self.start[seat] = rounds
        self.seat[arm[place]] = seat
        self.turns[arm[place]] += 1

    cdef void assign(self, const Py_ssize_t *arm, const double *mean, Py_ssize_t n, Py_ssize_t n_wanted,
                     int64_t rounds, double *work) noexcept nogil:
        """Before a round, seat the open arms with the largest means: all that fit at rounds 8, 16, 32, ..., and always
        as many as are wanted, each in place of the seated one with the smallest mean."""
        cdef Py_ssize_t i, j, worst, seat, seated = n_wanted
        cdef double bar
        if self.n_seats >= self.n_arms or (self.n_rows > 0 and rounds >= self.n_rows):
            return
        if rounds >= FIRST_CHANGE and rounds & (rounds - 1) == 0:
            seated = min(n, self.n_seats)
        for i in range(n):
            work[i] = mean[i]
        bar = kth_largest(work, n, seated)
        for i in range(n):
            if mean[i] < bar or self.seat[arm[i]] >= 0:
                continue
            seat = self._free(arm, n)
            if seat < 0:
                worst = -1
                for j in range(n):
                    if self.seat[arm[j]] >= 0 and (worst < 0 or mean[j] < mean[worst]):
                        worst = j
                if worst < 0 or not mean[worst] < mean[i]:
                    continue
                seat = <Py_ssize_t>self.seat[arm[worst]]
                self.seat[arm[worst]] = -1
            self._take(seat, i, arm, mean, n, rounds)

    # Bets

    cdef void bet(self, const Py_ssize_t *arm, const double *reward, const double *unbiased,
                  Py_ssize_t n) noexcept nogil:
        """Let all duels of the open arms bet on a round. Given the rounds before, `unbiased` have the arms' means."""
        cdef Py_ssize_t i, j, k, seat
        cdef int64_t rows
        cdef double low, high, shift, z
        for i in range(n):
            seat = <Py_ssize_t>self.seat[arm[i]]
            if seat < 0:
                continue
            rows = self.n_rows - self.start[seat] if self.n_rows > 0 else <int64_t>1 << 62
            for j in range(n):
                if j == i:
                    continue
                k = seat * self.n_arms + arm[j]
                low = self.low[arm[i]] - self.high[arm[j]]
                high = self.high[arm[i]] - self.low[arm[j]]
                shift = self.shift[k]
                wealth_extend(&self.wealth[k * self.kinds], &self.bets, reward + i, reward + j, shift, 1, low + shift,
                              rows)
                if self.kinds > 1:
                    shift += self.epsilon * (<double>self.n_rows / <double>rows) if self.n_rows > 0 else self.epsilon
                    wealth_extend(&self.wealth[k * self.kinds + 1], &self.bets, reward + i, reward + j, shift, 1,
                                  low + shift, rows)
                z = fmin(fmax((unbiased[i] - unbiased[j] - low) / (high - low), 0.0), 1.0) if high > low else 0.5
                self.total[k] += z
                self.first[k] += z * (1.0 - z)
                self.second[k] += z * (z * (1.0 - z))

    # Evidence

    cdef double evidence(self, Py_ssize_t arm, Py_ssize_t rival, int kind) noexcept nogil:
        """Log of the largest wealth so far of who bet on `arm`; 0 without a seat."""
        cdef const wealth_t *w
        if self.seat[arm] < 0:
            return 0.0
        w = &self.wealth[(self.seat[arm] * self.n_arms + rival) * self.kinds + kind]
        return INFINITY if w.impossible else fmax(w.peak + self.share(arm), 0.0)

    cdef double now(self, Py_ssize_t arm, Py_ssize_t rival, int kind) noexcept nogil:
        """Log of the wealth that who bet on `arm` has now; without a seat, of the shares that are left."""
        cdef const wealth_t *w
        if self.seat[arm] < 0:
            return self.share(arm)
        w = &self.wealth[(self.seat[arm] * self.n_arms + rival) * self.kinds + kind]
        return INFINITY if w.impossible else wealth_log(w, &self.bets) + self.share(arm)

    cdef double variance(self, Py_ssize_t arm, Py_ssize_t rival, double more, double *n) noexcept nogil:
        """Variance of the differences of a duel, and how many there are; `more` is the square of one more of them."""
        cdef const wealth_t *w
        n[0] = 0.0
        if self.seat[arm] < 0:
            return more
        w = &self.wealth[(self.seat[arm] * self.n_arms + rival) * self.kinds]
        n[0] = <double>w.n
        if w.n == 0:
            return more
        return (fmax(w.square - w.deviation * (w.deviation / n[0]), 0.0) + more) / (n[0] + 1.0)

    cdef void beaten(self, const Py_ssize_t *arm, Py_ssize_t n, Py_ssize_t rank, double *found,
                     double *work) noexcept nogil:
        """The rank-th largest evidence of other open arms against each."""
        cdef Py_ssize_t i, j, m
        for j in range(n):
            found[j] = 0.0
        if rank == 1:
            for i in range(n):
                if self.seat[arm[i]] >= 0:
                    for j in range(n):
                        if j != i:
                            found[j] = fmax(found[j], self.evidence(arm[i], arm[j], 0))
            return
        for j in range(n):
            m = 0
            for i in range(n):
                if i != j and self.seat[arm[i]] >= 0:
                    work[m] = self.evidence(arm[i], arm[j], 0)
                    m += 1
            found[j] = kth_largest(work, m, rank) if m >= rank else 0.0

    cdef void beating(self, const Py_ssize_t *arm, Py_ssize_t n, Py_ssize_t rank, double *found,
                      double *work) noexcept nogil:
        """The rank-th largest evidence of each open arm against the other ones."""
        cdef Py_ssize_t i, j, m
        for i in range(n):
            found[i] = 0.0
            if self.seat[arm[i]] < 0:
                continue
            m = 0
            for j in range(n):
                if j != i:
                    work[m] = self.evidence(arm[i], arm[j], 0)
                    m += 1
            found[i] = kth_largest(work, m, rank) if m >= rank else 0.0

    cdef double least(self, const Py_ssize_t *arm, const double *mean, Py_ssize_t n, Py_ssize_t n_wanted, int kind,
                      double *work) noexcept nogil:
        """Least evidence of the open arms with the n_wanted largest means, ties to the first, against the others."""
        cdef Py_ssize_t i, j, above = 0
        cdef double bar, least = INFINITY
        for i in range(n):
            work[i] = mean[i]
        bar = kth_largest(work, n, n_wanted)
        for i in range(n):
            above += mean[i] > bar
        for i in range(n):          # whether an arm is among the first
            work[i] = mean[i] > bar
            if mean[i] == bar and above < n_wanted:
                above += 1
                work[i] = 1.0
        for i in range(n):
            for j in range(n):
                if work[i] == 1.0 and work[j] == 0.0:
                    least = fmin(least, self.evidence(arm[i], arm[j], kind))
        return least

    # Intervals

    cdef double _end(self, Py_ssize_t arm, Py_ssize_t rival, bint upper, double level) noexcept nogil:
        """End of the interval of a duel's difference, scaled to [0, 1]: the mean that is just refuted, by bisection."""
        cdef Py_ssize_t k = <Py_ssize_t>self.seat[arm] * self.n_arms + rival
        cdef double n = <double>self.wealth[k * self.kinds].n, slope = 0.0, out = 0.0, inside, middle
        cdef double[MOST_BETS] toll
        cdef spread_t spread
        cdef int _step, awake = n_awake(&self.ladder, n)
        if n == 0.0:
            return 1.0 if upper else 0.0
        spread = spread_of(n, self.total[k], self.first[k], self.second[k])
        inside = fmin(fmax(self.total[k] / n, 0.0), 1.0)
        if upper:
            spread = mirrored(spread)
            inside = 1.0 - inside
        for _step in range(END_HALVINGS):
            middle = 0.5 * (out + inside)
            set_tolls(&self.ladder, fmax(middle, 1e-12), 0, awake, toll)
            if middle <= 1e-12 or log_wealth(&self.ladder, &spread, middle, awake, toll,
                                             &slope) + self.share(arm) >= level:
                out = middle
            else:
                inside = middle
        return 1.0 - out if upper else out

    def differences(self, Py_ssize_t leader, double log_inv_delta):
        """Intervals of the means of all arms minus that of `leader`, which all hold at once, whoever leads: each end of
        each duel has the same share of delta. Two duels of a pair are one if no seat changes hands."""
        guard_check_built(&self.guard, self)
        cdef Py_ssize_t i
        cdef double low, span, level = log_inv_delta
        level += log(<double>(self.n_arms * (self.n_arms - 1) * (1 if self.n_seats >= self.n_arms else 2)))
        found = np.zeros((self.n_arms, 2))
        cdef double[:, ::1] ends = found
        for i in range(self.n_arms):
            if i == leader:
                continue
            low = self.low[i] - self.high[leader]
            span = self.high[i] - self.low[leader] - low
            ends[i, 0], ends[i, 1] = low, low + span
            if self.seat[i] >= 0:
                ends[i, 0] = low + span * self._end(i, leader, False, level)
                ends[i, 1] = low + span * self._end(i, leader, True, level)
            if self.seat[leader] >= 0:
                ends[i, 0] = max(ends[i, 0], low + span * (1.0 - self._end(leader, i, True, level)))
                ends[i, 1] = min(ends[i, 1], low + span * (1.0 - self._end(leader, i, False, level)))
        return found

    # Saving

    def state(self):
        """A copy of all that changes, as plain arrays."""
        guard_check_built(&self.guard, self)
        return {name: array.copy() for name, array in self.arrays.items()}

    def set_state(self, state):
        """Take what `state` gave; ValueError if it cannot be right. An earlier version had fewer seats for some."""
        guard_check_built(&self.guard, self)
        cdef Py_ssize_t seats = self.n_seats, n = self.n_arms, had = self.n_seats
        arrays, wanted = {}, self.arrays
        if min(n, SEATS, MOST_DUELS // n) <= np.size(state["start"]) < seats:
            seats = np.size(state["start"])
            wanted = self._fresh(seats, n)
        for name, array in wanted.items():
            arrays[name] = np.array(state[name], order="C")
            if arrays[name].dtype != array.dtype or arrays[name].shape != array.shape:
                raise ValueError("its duels cannot be right")
        seat = arrays["seat"]
        taken = seat[seat >= 0]
        if not ((-1 <= seat).all() and (seat < seats).all() and np.unique(taken).size == taken.size
                and (arrays["turns"] >= 0).all() and (arrays["start"] >= 0).all()
                and np.isfinite(arrays["sums"]).all()):
            raise ValueError("its duels cannot be right")
        before, self.arrays, self.n_seats = self.arrays, arrays, seats
        self._point()
        if not self._sane():
            self.arrays, self.n_seats = before, had
            self._point()
            raise ValueError("its duels cannot be right")

    cdef bint _sane(self) noexcept nogil:
        cdef Py_ssize_t k
        for k in range(self.n_seats * self.n_arms * self.kinds):
            if self.wealth[k].n < 0:
                return False
        return True


cdef class AsymptoticDuels(Duels):
    """Duels of arms whose support is not known: their evidence is nearly right once a duel has had enough rounds.

    The mixture is two-sided, at its narrowest near `best_at` rounds; `goal` is the evidence that is wanted. A duel says
    nothing before `first_look` rounds. Of a population, a duel estimates what is left by its own rounds.
    """

    def __cinit__(self, *args, **kwargs):
        guard_await(&self.guard, 1)

    def __init__(self, n_best, epsilon, low, high, goal, first_look, best_at):
        cdef double level = goal, first = first_look, best = best_at
        guard_build(&self.guard, 1, self)
        if not (level > 0.0 and first >= 2.0 and best > 0.0):
            raise ValueError("a goal above 0, a first look of at least 2 and best_at above 0 are needed")
        Duels.__init__(self, n_best, epsilon, low, high)
        self.first_look, self.best_at = first, best
        self.spread = t_mixture_spread(best, level)
        guard_built(&self.guard, 1)

    def read_from(self, n_rows):
        self.n_rows = 0 if n_rows is None else n_rows

    def _tables(self, Py_ssize_t seats, Py_ssize_t n):
        return dict(wealth=np.zeros(seats * n * sizeof(apart_t), dtype=np.uint8), sums=np.zeros((seats, n)))

    cdef int _point(self) except -1:
        Duels._point(self)
        self.apart = <apart_t *>self.wealth
        self.shift = self.total
        return 0

    cdef void _clear(self, Py_ssize_t seat) noexcept nogil:
        cdef Py_ssize_t k
        for k in range(seat * self.n_arms, (seat + 1) * self.n_arms):
            memset(&self.apart[k], 0, sizeof(apart_t))
            self.shift[k] = 0.0

    cdef double _rows(self, Py_ssize_t seat) noexcept nogil:
        """The rows of the population over those that were left when the duels of a seat began."""
        if self.n_rows == 0:
            return 1.0
        return <double>self.n_rows / <double>(self.n_rows - self.start[seat])

    cdef void bet(self, const Py_ssize_t *arm, const double *reward, const double *unbiased,
                  Py_ssize_t n) noexcept nogil:
        cdef Py_ssize_t i, j, seat
        cdef double[4] sums
        cdef double count, variance, skewness, std, away, more, spread, found
        cdef apart_t *duel
        cdef int kind, side
        sums[1] = sums[2] = sums[3] = 0.0
        for i in range(n):
            seat = <Py_ssize_t>self.seat[arm[i]]
            if seat < 0:
                continue
            more = self.epsilon * self._rows(seat)
            for j in range(n):
                if j == i:
                    continue
                duel = &self.apart[seat * self.n_arms + arm[j]]
                sums[0] = reward[i] - reward[j]
                moments4_add(&duel.moments, sums, 1)
                for side in range(2):
                    found = self.columns[arm[j if side else i]].weight
                    duel.weight[side] += found
                    duel.weighted[side] += found * sums[0]
                count = <double>duel.moments.n
                if count < self.first_look:
                    continue
                variance = moments4_variance(&duel.moments, 1.0)
                std, skewness = sqrt(variance), moments4_skewness(&duel.moments)
                for kind in range(self.kinds):
                    away = duel.moments.mean + self.shift[seat * self.n_arms + arm[j]] + (more if kind else 0.0)
                    if not away > 0.0:
                        continue
                    spread = variance + tail_variance(away, std, -skewness, duel.moments.n)
                    if not self._varies(duel, arm[i], arm[j]):      # as if one value of what they may hide had come
                        spread = UNSEEN_LEADS * away * (UNSEEN_LEADS * away / count)
                    found = t_mixture_level(away, spread / count, count, count - 1.0, self.spread)
                    if found > duel.peak[kind] and not self._held_back(duel, arm[i], arm[j], away):
                        duel.peak[kind] = found

    cdef bint _varies(self, const apart_t *duel, Py_ssize_t arm, Py_ssize_t rival) noexcept nogil:
        return stream_varies(sqrt(moments4_variance(&duel.moments, 1.0)),
                             fabs(column_mean(&self.columns[arm])) + fabs(column_mean(&self.columns[rival])))

    cdef bint _held_back(self, const apart_t *duel, Py_ssize_t arm, Py_ssize_t rival, double away) noexcept nogil:
        """Whether too few rewards carry the left tail of the arm, or the right one of its rival, for this lead.

        As in `races._judge`, the lead loses at a value of a tail what it is short of in rounds weighted by squared
        deviations of that column. Arms may share what few rounds bring.
        """
        cdef const column_t *ours = &self.columns[arm]
        cdef const column_t *its = &self.columns[rival]
        cdef double mean = duel.moments.mean, ours_size = column_size(ours), its_size = column_size(its)
        cdef double n = <double>duel.moments.n
        if not self._varies(duel, arm, rival) and n < constant_rows(fmax(ours_size, its_size), away):
            return True
        return (column_rows(ours, -1.0, mean - duel.weighted[0] / duel.weight[0], its_size, away)
                > <double>ours.moments.n
                or column_rows(its, 1.0, mean - duel.weighted[1] / duel.weight[1], ours_size, away)
                > <double>its.moments.n)

    cdef double evidence(self, Py_ssize_t arm, Py_ssize_t rival, int kind) noexcept nogil:
        if self.seat[arm] < 0:
            return 0.0
        return fmax(self.apart[self.seat[arm] * self.n_arms + rival].peak[kind] + self.share(arm), 0.0)

    cdef void _ends(self, Py_ssize_t arm, Py_ssize_t rival, double log_inv_delta, double *ends) noexcept nogil:
        """Interval of a duel's difference."""
        cdef Py_ssize_t k = <Py_ssize_t>self.seat[arm] * self.n_arms + rival
        cdef apart_t *duel = &self.apart[k]
        cdef double n = <double>duel.moments.n, level = log_inv_delta - self.share(arm), half, side
        cdef double left = 1.0 / self._rows(<Py_ssize_t>self.seat[arm])
        cdef double variance = moments4_variance(&duel.moments, 1.0) / n, skewness = moments4_skewness(&duel.moments)
        cdef int i
        ends[0], ends[1] = -INFINITY, INFINITY
        if n < self.first_look:
            return
        half = t_mixture_half_width(variance, n, n - 1.0, t_mixture_spread(self.best_at, level), level)
        for i in range(2):
            side = 1.0 if i else -1.0
            ends[i] = left * (duel.moments.mean + self.shift[k]
                              + side * tail_end(half, variance, tail_shift(side * skewness, duel.moments.n, 1.0)))

    def differences(self, Py_ssize_t leader, double log_inv_delta):
        guard_check_built(&self.guard, self)
        cdef Py_ssize_t i
        cdef double level = log_inv_delta
        cdef double[2] one
        level += log(<double>(self.n_arms * (self.n_arms - 1)) * (0.5 if self.n_seats >= self.n_arms else 1.0))
        found = np.zeros((self.n_arms, 2))
        cdef double[:, ::1] ends = found
        for i in range(self.n_arms):
            if i == leader:
                continue
            ends[i, 0], ends[i, 1] = -INFINITY, INFINITY
            if self.seat[i] >= 0:
                self._ends(i, leader, level, one)
                ends[i, 0], ends[i, 1] = one[0], one[1]
            if self.seat[leader] >= 0:
                self._ends(leader, i, level, one)
                ends[i, 0] = max(ends[i, 0], -one[1])
                ends[i, 1] = min(ends[i, 1], -one[0])
        return found

    def tails(self, Py_ssize_t leader):
        """Rounds and skewness of the duel that says most against each arm, or else of that with the leader."""
        guard_check_built(&self.guard, self)
        cdef Py_ssize_t i, j, seat
        cdef double most
        cdef apart_t *duel
        rounds, skewness = np.zeros(self.n_arms, dtype=np.int64), np.full(self.n_arms, NAN)
        for j in range(self.n_arms):
            seat, most = <Py_ssize_t>self.seat[leader] if j != leader else -1, 0.0
            for i in range(self.n_arms):
                if i != j and j != leader and self.seat[i] >= 0 and self.evidence(i, j, 0) > most:
                    seat, most = <Py_ssize_t>self.seat[i], self.evidence(i, j, 0)
            if seat >= 0:
                duel = &self.apart[seat * self.n_arms + j]
                rounds[j], skewness[j] = duel.moments.n, moments4_skewness(&duel.moments)
        return rounds, skewness

    cdef bint _sane(self) noexcept nogil:
        cdef Py_ssize_t k
        for k in range(self.n_seats * self.n_arms):
            if self.apart[k].moments.n < 0 or not (self.apart[k].moments.m2 >= 0.0 and self.apart[k].peak[0] >= 0.0
                                                   and self.apart[k].peak[1] >= 0.0):
                return False
        return True
