"""Compiled loop of the adapted lil'UCB race: pull the arm with the largest upper bound, row by row."""

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.math cimport INFINITY, exp, isfinite, log, sqrt
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free
from numpy.random cimport bitgen_t
cimport numpy as cnp

from fastrace._base._guard cimport (guard_await, guard_build, guard_built, guard_check_built, guard_enter, guard_leave,
                                    guard_t, guarded)
from fastrace._base._signals cimport check_signals
from fastrace._draws._keyed_order cimport keyed_order_at, keyed_order_init, keyed_order_set, keyed_order_t
from fastrace._draws._ranks cimport rank_t, ranks_clear, ranks_enter, ranks_replay
from fastrace._math._bounds cimport lower_end, upper_end
from fastrace._math._rule cimport mean_with_rest
from fastrace.races._reading cimport PULLS_AHEAD, PULLS_PER_CHECK, read_keyed
from fastrace.sources cimport ArraySource, Source

import numpy as np

from fastrace._base._checks import DamagedError, arm_error
from fastrace.sources import reward_outside

cnp.import_array()

STOPPED_BY = ("", "bound", "exact", "single", "max_pulls")

cdef enum:      # places in STOPPED_BY
    RUNNING
    BY_RULE
    BY_READING_ALL
    SINGLE
    BY_MAX_PULLS

cdef enum:
    KEPT_WIDTHS = 1 << 12

cdef struct arm_t:
    keyed_order_t order     # of this arm's rows, independent of the other arms'
    int64_t pulls
    double sum, rest        # of its rewards: rounded, and what rounding left out
    double known            # what is added to the mean: offset and the source's known part, over n_rows

cdef struct ahead_t:
    int64_t end             # pulls up to which rewards have been read; that of pull t at t modulo PULLS_AHEAD
    double[PULLS_AHEAD] reward


cdef class LilRace:
    """State and loop of one race; `LilUCB` checks the arguments and names the answer.

    The upper bound of an arm with T pulls is its mean plus ``width * sqrt((log(log(growth T)) - log_share) / T)``,
    infinite where the logarithm is not positive and zero at T = n_rows. An arm of the highest bound is pulled next,
    until it has been read in full or some arm has at least ``1 + patience * (pulls of all others)`` pulls.
    """

    _public_name = "LilUCB"

    cdef readonly Py_ssize_t n_arms
    cdef readonly int64_t n_rows, total
    cdef readonly bint outside      # whether a reward lay outside the support
    cdef bint strict                # refuse such rewards
    cdef readonly Py_ssize_t best
    cdef arm_t *arm
    cdef rank_t *tree               # places in `running`, by upper bound
    cdef double *kept               # half-widths by number of pulls, 0 where not yet asked for
    cdef Py_ssize_t n_running, opened    # arms that can win, and those of them that have been pulled
    cdef double width, growth, log_share, share, patience
    cdef cnp.ndarray _low, _high, _offset, _running
    cdef double *low
    cdef double *high
    cdef Py_ssize_t *running
    cdef int status
    cdef guard_t guard

    def __cinit__(self, n_arms, *args, **kwargs):
        guard_await(&self.guard, 0)
        if not 1 <= n_arms <= 1 << 40:
            raise ValueError(f"n_arms is {n_arms}; a race needs arms")
        self.n_arms = n_arms
        self.arm = <arm_t *>calloc(n_arms, sizeof(arm_t))
        self.tree = <rank_t *>calloc(n_arms, sizeof(rank_t))
        self.kept = <double *>calloc(KEPT_WIDTHS, sizeof(double))
        if self.arm == NULL or self.tree == NULL or self.kept == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.arm)
        free(self.tree)
        free(self.kept)

    def __init__(self, n_arms, n_rows, *, width, growth, log_share, patience, low, high, offset, strict=True):
        cdef int64_t rows = n_rows
        cdef double width_ = width, growth_ = growth, log_share_ = log_share, patience_ = patience
        lows, highs, offsets = (np.array(ends, dtype=np.float64) for ends in (low, high, offset))
        if not (n_arms == self.n_arms and rows >= 0 and lows.shape == highs.shape == offsets.shape == (self.n_arms,)
                and not (np.isnan(lows).any() or np.isnan(highs).any() or np.isnan(offsets).any())
                and width_ > 0.0 and growth_ > 0.0 and log_share_ < INFINITY and patience_ > 0.0):
            raise ValueError("one low, high and offset per arm, and positive width, growth and patience are needed")
        running = np.flatnonzero(offsets > -np.inf).astype(np.intp)
        if not running.size:
            raise ValueError("every arm has an offset of -inf")
        guard_build(&self.guard, 0, self)
        self.n_rows = rows
        self.width = width_
        self.growth = growth_
        self.log_share = log_share_
        self.share = exp(self.log_share)
        self.patience = patience_
        self.strict = strict
        self._low, self._high, self._offset, self._running = lows, highs, offsets, running
        self.low = <double *>cnp.PyArray_DATA(self._low)
        self.high = <double *>cnp.PyArray_DATA(self._high)
        self.running = <Py_ssize_t *>cnp.PyArray_DATA(self._running)
        self.n_running = self._running.shape[0]
        self._know(np.zeros(n_arms))
        if self.n_running == 1:
            self._stop(self.running[0], SINGLE)
        elif self.n_rows == 0:
            self._stop(int(np.argmax(self._offset)), BY_READING_ALL)
        guard_built(&self.guard, 0)

    def seed(self, rng):
        """Draw an order of rows for every arm."""
        cdef bitgen_t *bits = <bitgen_t *>PyCapsule_GetPointer(rng.bit_generator.capsule, "BitGenerator")
        cdef Py_ssize_t i
        guard_enter(&self.guard, self)
        try:
            with rng.bit_generator.lock, nogil:
                for i in range(self.n_arms):
                    keyed_order_init(&self.arm[i].order, self.n_rows, bits)
        finally:
            guard_leave(&self.guard)

    def _know(self, shifts):
        """Set what is known of each arm beside its rewards."""
        cdef Py_ssize_t i
        cdef const double[::1] known = (self._offset + shifts) / max(self.n_rows, 1)
        for i in range(self.n_arms):
            self.arm[i].known = known[i]
        if self.opened == self.n_running:
            self._rank_all()

    cdef void _rank_all(self) noexcept nogil:
        cdef Py_ssize_t k
        ranks_clear(self.tree, self.n_running)
        for k in range(self.n_running):
            ranks_enter(self.tree, self.n_running, k, self._upper(&self.arm[self.running[k]]))

    cdef inline void _stop(self, Py_ssize_t best, int status) noexcept nogil:
        self.best = best
        self.status = status

    cdef inline double _half_width(self, int64_t pulls) noexcept nogil:
        cdef double found
        if pulls >= KEPT_WIDTHS:
            return self._compute_half_width(pulls)
        found = self.kept[pulls]
        if found == 0.0:
            found = self.kept[pulls] = self._compute_half_width(pulls)
        return found

    cdef double _compute_half_width(self, int64_t pulls) noexcept nogil:
        cdef double grown
        if pulls >= self.n_rows:
            return 0.0
        grown = log(self.growth * <double>pulls) if pulls > 0 else 0.0
        if grown <= self.share:
            return INFINITY
        return self.width * sqrt((log(grown) - self.log_share) / <double>pulls)

    cdef inline double _mean(self, const arm_t *arm) noexcept nogil:
        return (arm.sum + arm.rest) / <double>arm.pulls + arm.known

    cdef inline double _upper(self, const arm_t *arm) noexcept nogil:
        cdef double mean = self._mean(arm)
        return mean + self._half_width(arm.pulls) if mean > -INFINITY else mean

    cdef inline int64_t _row(self, Py_ssize_t i) noexcept nogil:
        return keyed_order_at(&self.arm[i].order, self.arm[i].pulls)

    cdef inline Py_ssize_t _next(self) noexcept nogil:
        return self.running[self.opened if self.opened < self.n_running else self.tree[0].item]

    cdef inline int _take(self, Py_ssize_t i, double reward) except -1 nogil:
        """Add a reward of arm i, the one that `_next` named."""
        cdef arm_t *arm = &self.arm[i]
        cdef double sum = arm.sum + reward
        cdef double part = sum - arm.sum
        if isfinite(reward):
            if not lower_end(self.low[i], self.high[i]) <= reward <= upper_end(self.low[i], self.high[i]):
                if self.strict:
                    with gil:
                        raise arm_error(self, i, reward_outside(reward, i, self._row(i), self.low[i], self.high[i]))
                self.outside = True
            arm.rest += (arm.sum - (sum - part)) + (reward - part)
            arm.sum = sum
        elif reward == -INFINITY:
            if self._n_out() == self.n_running - 1:
                with gil:
                    raise arm_error(self, i, f"the reward of arm {i} on row {self._row(i)} is -inf, and every other "
                                             f"arm has such a reward too: no arm is possible")
            arm.sum = -INFINITY
            arm.rest = 0.0
        else:
            with gil:
                raise arm_error(self, i, f"the reward of arm {i} on row {self._row(i)} is {reward}; a race needs "
                                         f"rewards that are finite, or -inf for an arm that cannot win")
        arm.pulls += 1
        self.total += 1
        if self.opened < self.n_running:
            self.opened += 1
            if self.opened < self.n_running:
                return 0
            self._rank_all()
        else:
            ranks_replay(self.tree, self.n_running, self._upper(arm))
        if self.arm[self._next()].pulls == self.n_rows:
            self._stop(self._next(), BY_READING_ALL)
        elif arm.pulls >= 1.0 + self.patience * <double>(self.total - arm.pulls):
            self._stop(i, BY_RULE)
        return 0

    cdef Py_ssize_t _n_out(self) noexcept nogil:
        cdef Py_ssize_t i, count = 0
        for i in range(self.n_running):
            count += self.arm[self.running[i]].sum == -INFINITY
        return count

    cdef int _run(self, Source source, int64_t limit, ahead_t *ahead, int64_t most) except -1 nogil:
        """Pull; read up to `most` rewards of an arm at once, and no more than it has given so far."""
        cdef Py_ssize_t i, k, size, until_check = PULLS_PER_CHECK
        cdef int64_t pulls
        cdef int64_t[PULLS_AHEAD] rows
        cdef double[PULLS_AHEAD] rewards
        while self.status == RUNNING and self.total < limit:
            i = self._next()
            pulls = self.arm[i].pulls
            if pulls >= ahead[i].end:
                size = <Py_ssize_t>min(most, max(pulls, <int64_t>1), self.n_rows - pulls)
                read_keyed(source, &self.arm[i].order, pulls, size, i, &rows[0], &rewards[0])
                for k in range(size):
                    ahead[i].reward[(pulls + k) % PULLS_AHEAD] = rewards[k]
                ahead[i].end = pulls + size
            self._take(i, ahead[i].reward[pulls % PULLS_AHEAD])
            until_check -= 1
            if until_check == 0:
                check_signals()
                until_check = PULLS_PER_CHECK
        return 0

    def ask(self):
        """The arm and the row wanted next, as two vectors of length 1."""
        cdef Py_ssize_t i
        guard_enter(&self.guard, self)
        try:
            if self.done:
                raise ValueError("the race is over; there is nothing left to ask for")
            i = self._next()
            return np.array([i], dtype=np.intp), np.array([self._row(i)], dtype=np.int64)
        finally:
            guard_leave(&self.guard)

    def tell(self, double reward):
        """Take the reward that `ask` wanted."""
        guard_enter(&self.guard, self)
        try:
            if self.done:
                raise ValueError("the race is over; it takes no more rewards")
            if self.status == BY_MAX_PULLS:
                self.status = RUNNING
            self._take(self._next(), reward)
        finally:
            guard_leave(&self.guard)

    def run(self, Source source not None, max_pulls):
        """Pull until the race is over, or `max_pulls` pulls have been made in all."""
        cdef int64_t limit = max_pulls
        # Memory answers several requests in the time of one. Other sources are asked for nothing that may go unused.
        cdef int64_t most = PULLS_AHEAD if type(source) is ArraySource else 1
        cdef ahead_t *ahead = NULL
        guard_check_built(&source.guard, source)
        guard_enter(&self.guard, self)
        try:
            if source.n_arms != self.n_arms or source.n_rows != self.n_rows:
                raise ValueError(f"the source has {source.n_rows} rows of {source.n_arms} arms; this race was set up "
                                 f"for {self.n_rows} rows of {self.n_arms} arms")
            if self.done:
                return
            ahead = <ahead_t *>calloc(self.n_arms, sizeof(ahead_t))
            if ahead == NULL:
                raise MemoryError()
            self._know(source.shifts())
            self.status = RUNNING
            with nogil:
                self._run(source, limit, ahead, most)
            if self.status == RUNNING:
                self._stop(self._most_pulled(), BY_MAX_PULLS)
        finally:
            free(ahead)
            guard_leave(&self.guard)

    cdef Py_ssize_t _most_pulled(self):
        """The arm to name when the race was cut short: most pulls, then the largest mean, then the lowest number."""
        cdef Py_ssize_t i, k, best = self.running[0]
        for k in range(1, self.n_running):
            i = self.running[k]
            if self.arm[i].pulls > self.arm[best].pulls or (
                    self.arm[i].pulls == self.arm[best].pulls and self.arm[i].pulls > 0 and
                    self._mean(&self.arm[i]) > self._mean(&self.arm[best])):
                best = i
        return best

    @property
    def done(self):
        return self.status in (BY_RULE, BY_READING_ALL, SINGLE)

    def answer(self):
        """What is known so far, under the names of `RaceResult`."""
        return guarded(&self.guard, self, self._answer, ())

    def _answer(self):
        cdef Py_ssize_t i
        cdef double read, rest
        mean, half_width = np.full(self.n_arms, np.nan), np.full(self.n_arms, np.inf)
        lower, upper = np.full(self.n_arms, -np.inf), np.full(self.n_arms, np.inf)
        pulls = np.zeros(self.n_arms, dtype=np.int64)
        cdef double[::1] m = mean, h = half_width, least = lower, most = upper
        cdef int64_t[::1] t = pulls
        guard_check_built(&self.guard, self)
        for i in range(self.n_arms):
            t[i] = self.arm[i].pulls
            h[i] = self._half_width(t[i])
            if t[i] > 0:
                m[i] = self._mean(&self.arm[i])
            elif self.n_rows == 0 or self._offset[i] == -np.inf:
                m[i] = self.arm[i].known
            if m[i] == -INFINITY:
                h[i] = 0.0
            if m[i] == m[i]:
                least[i], most[i] = m[i] - h[i], m[i] + h[i]
            if t[i] > 0 and h[i] > 0.0:     # rows not read lie within the support, which the mean keeps if one did not
                read = <double>t[i] / <double>self.n_rows
                rest = mean_with_rest(m[i], self.arm[i].known, read, self.low[i])
                least[i] = max(least[i], min(m[i], rest))
                rest = mean_with_rest(m[i], self.arm[i].known, read, self.high[i])
                most[i] = min(most[i], max(m[i], rest))
        over = self.done
        best = self.best if over else self._most_pulled()
        return dict(best=best, active=np.array([best], dtype=np.intp) if over else self._running.copy(), mean=mean,
                    lower=lower, upper=upper, half_width=half_width, pulls=pulls, n_looks=self.total,
                    stopped_by=STOPPED_BY[self.status])

    def _get_state(self):
        return guarded(&self.guard, self, self._state, ())

    def _state(self):
        cdef Py_ssize_t i
        keys = np.empty((self.n_arms, 2), dtype=np.uint64)
        sums = np.empty((self.n_arms, 3))
        cdef uint64_t[:, ::1] key = keys
        cdef double[:, ::1] s = sums
        for i in range(self.n_arms):
            key[i, 0] = self.arm[i].order.keys[0]
            key[i, 1] = self.arm[i].order.keys[1]
            s[i, 0] = self.arm[i].sum
            s[i, 1] = self.arm[i].rest
            s[i, 2] = self.arm[i].known
        return dict(keys=keys, sums=sums, pulls=self._answer()["pulls"], opened=self.opened, best=self.best,
                    status=self.status, outside=self.outside)

    def _set_state(self, state):
        guarded(&self.guard, self, self._take_state, (state,))

    def _take_state(self, state):
        cdef Py_ssize_t i
        cdef const uint64_t[:, ::1] key = state["keys"]
        cdef const double[:, ::1] s = state["sums"]
        cdef const int64_t[::1] pulls = state["pulls"]
        if not key.shape[0] == s.shape[0] == pulls.shape[0] == self.n_arms:
            raise ValueError(f"the state is of {pulls.shape[0]} arms; this race has {self.n_arms}")
        if not (key.shape[1] == 2 and s.shape[1] == 3 and 0 <= state["opened"] <= self.n_running
                and 0 <= state["best"] < self.n_arms and 0 <= state["status"] < len(STOPPED_BY)
                and all(0 <= pulls[i] <= self.n_rows for i in range(self.n_arms))
                and all((pulls[self.running[i]] > 0) == (i < state["opened"]) for i in range(self.n_running))
                and isinstance(state["outside"], bool) and not np.isnan(state["sums"]).any()):
            raise DamagedError("the saved race is damaged: its counts cannot be right")
        self.total = 0
        for i in range(self.n_arms):
            keyed_order_set(&self.arm[i].order, self.n_rows, key[i, 0], key[i, 1])
            self.arm[i].sum = s[i, 0]
            self.arm[i].rest = s[i, 1]
            self.arm[i].known = s[i, 2]
            self.arm[i].pulls = pulls[i]
            self.total += pulls[i]
        self.opened = state["opened"]
        self.outside = state["outside"]
        self._stop(state["best"], state["status"])
        if self.opened == self.n_running:
            self._rank_all()
        if self.status == RUNNING and self.arm[self._next()].pulls >= self.n_rows:
            raise DamagedError("the saved race is damaged: it goes on though its next arm has been read in full")


def _keyed_rows(int64_t n, int64_t first, Py_ssize_t count, rng):
    """Positions first .. first + count - 1 of a fresh keyed order of [0, n); a door for tests and benchmarks."""
    cdef keyed_order_t order
    cdef bitgen_t *bits = <bitgen_t *>PyCapsule_GetPointer(rng.bit_generator.capsule, "BitGenerator")
    cdef cnp.ndarray out = np.empty(count, dtype=np.int64)
    cdef int64_t *rows = <int64_t *>cnp.PyArray_DATA(out)
    cdef Py_ssize_t i
    with rng.bit_generator.lock, nogil:
        keyed_order_init(&order, n, bits)
    with nogil:
        for i in range(count):
            rows[i] = keyed_order_at(&order, first + i)
    return out


def _keyed_counts(int64_t n, Py_ssize_t repeats, rng):
    """How often the first two positions of fresh orders of [0, n) held each pair: shape (n, n); a door for tests."""
    cdef keyed_order_t order
    cdef bitgen_t *bits = <bitgen_t *>PyCapsule_GetPointer(rng.bit_generator.capsule, "BitGenerator")
    cdef cnp.ndarray out = np.zeros((n, n), dtype=np.int64)
    cdef int64_t *counts = <int64_t *>cnp.PyArray_DATA(out)
    cdef Py_ssize_t _i
    with rng.bit_generator.lock, nogil:
        for _i in range(repeats):
            keyed_order_init(&order, n, bits)
            counts[keyed_order_at(&order, 0) * n + keyed_order_at(&order, 1)] += 1
    return out
