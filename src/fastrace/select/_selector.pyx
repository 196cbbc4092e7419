# cython: cdivision=True
"""The frame of rules that select the m best of n arms: it asks a source, checks rewards, keeps moments and order."""

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int64_t, uint32_t, uint64_t
cimport numpy as cnp
from numpy.random cimport bitgen_t

from fastrace._base._guard cimport (guard_await, guard_build, guard_built, guard_check, guard_enter, guard_leave,
                                    guard_refuse, guarded)
from fastrace._base._signals cimport check_signals
from fastrace._draws._alias cimport alias_build, alias_pick, alias_t
from fastrace._draws._heaps cimport heap_exchange, heap_order, heap_sift, precedes
from fastrace._draws._uniforms cimport UNIFORMS, uniforms_fill, uniforms_left, uniforms_resume
from fastrace._math._bounds cimport stream_slack
from fastrace._math._missing cimport NEVER_HEARD, WORTH_A_WARNING, silent_for_good, worth_a_warning
from fastrace.pulls cimport PullSource

import operator
import warnings
from copy import deepcopy

import numpy as np

from fastrace._base import _checks
from fastrace._base._words import NOTHING_HEARD, SILENT_PULLS, arms_in_words
from fastrace._pull_source import _whole_numbers
from fastrace.pulls import _flat

cnp.import_array()

LARGEST_BATCH = MOST_PER_BATCH
MISSING = ("raise", "drop", "worst")
STOPPED_BY = ("", "delta", "cap", "plan", "bound", "horizon", "budget", "single", "max_pulls", "epsilon",
              "exact")

cdef enum:
    REWARDS_PER_PIECE = 4096        # most rewards that one request to a source holds
    PULLS_PER_CHECK = 1 << 13       # pulls between two looks at pending signals
    PIECES_PER_CHECK = 1 << 10      # requests between two looks, as each may cost more than its pulls
    WORK_PER_CHECK = 10_000_000     # nanoseconds of other work between two looks

MOST_PULLS = _checks.MOST_PULLS
cdef int64_t MOST_ARMS = <int64_t>1 << 31


cdef inline bint _usable(double reward, double low, double high, int missing) noexcept nogil:
    """Whether a reward is inside the support, or one that may be missing is."""
    return low <= reward <= high or (missing != REFUSED and reward != reward)


cdef cnp.ndarray per_arm(object values, Py_ssize_t n_arms, object dtype, str name, bint finite=True):
    cdef cnp.ndarray array
    if np.issubdtype(dtype, np.integer):
        array = _whole_numbers(values, name, dtype)
    else:
        array = np.asarray(values, dtype=dtype, order="C")
    if (<object>array).shape != (n_arms,) or not (np.isfinite(array) if finite else ~np.isnan(array)).all():
        raise ValueError(f"{name} has shape {(<object>array).shape}; a vector of {n_arms} finite numbers is needed, "
                         f"one per arm")
    return array


cdef class Selector:
    """State and loop of one selection; the faces check the arguments and name the answer."""

    def __cinit__(self, *args, **kwargs):
        guard_await(&self.guard, 0)

    def __init__(self, n_arms, n_best, *, low, high, rng, missing="raise", **options):
        cdef Py_ssize_t n = n_arms, m = n_best
        if not 1 <= m <= n <= MOST_ARMS:
            raise ValueError(f"n_best is {n_best} and n_arms {n_arms}; 1 <= n_best <= n_arms is needed")
        low, high = per_arm(low, n, np.float64, "low"), per_arm(high, n, np.float64, "high")
        if not (low < high).all():
            raise ValueError("low < high is needed")
        cdef bitgen_t *bits = <bitgen_t *>PyCapsule_GetPointer(rng.bit_generator.capsule, "BitGenerator")
        lock = rng.bit_generator.lock
        guard_build(&self.guard, 0, self)
        if self.memory is not None:
            raise TypeError(f"this {type(self).__name__} is in use: __init__ runs once; make a new one to start again")
        self.memory, self.vectors = [], {}
        self.n_arms, self.n_best = n, m
        self._low, self._high, self._span = low, high, high - low
        self.low = <double *>cnp.PyArray_DATA(self._low)
        self.high = <double *>cnp.PyArray_DATA(self._high)
        self.span = <double *>cnp.PyArray_DATA(self._span)
        self.pulls = <int64_t *>self.vector("pulls", np.int64)
        self.mean = <double *>self.vector("mean", np.float64)
        self.m2 = <double *>self.vector("m2", np.float64)
        self.error = <double *>self.vector("error", np.float64)
        self._pulls, self._mean = self.vectors["pulls"], self.vectors["mean"]
        self.origin = <double *>self.room(n, sizeof(double))
        self._asked, self._owed = np.zeros(n, dtype=np.intp), np.zeros(n, dtype=np.int64)
        self.asked = <Py_ssize_t *>cnp.PyArray_DATA(self._asked)
        self.owed = <int64_t *>cnp.PyArray_DATA(self._owed)
        self.piece = <int64_t *>self.room(n, sizeof(int64_t))
        self.rewards = <double *>self.room(REWARDS_PER_PIECE, sizeof(double))
        self.is_best = <char *>self.room(n, 1)
        self.best.item = <Py_ssize_t *>self.room(n, sizeof(Py_ssize_t))
        self.best.place = self.rest.place = <Py_ssize_t *>self.room(n, sizeof(Py_ssize_t))
        self.best.key = self.rest.key = self.mean
        self.best.sign, self.rest.sign = -1.0, 1.0
        self.missing = MISSING.index(missing)
        if self.missing != REFUSED:
            self.missed = <int64_t *>self.vector("missed", np.int64)
            self.silent = <int64_t *>self.vector("silent", np.int64)
        self.rng, self.lock, self.bits = rng, lock, bits
        self.ahead.used = UNIFORMS
        self._configure(**options)
        self.configured = True

    def _configure(self):
        """Take the options of the rule; called once, by `__init__`."""

    cdef void *vector(self, str name, object dtype) except NULL:
        """One number per arm, 0 at first, that is part of a saved state."""
        array = self.vectors[name] = np.zeros(self.n_arms, dtype=dtype)
        return cnp.PyArray_DATA(array)

    cdef void *room(self, Py_ssize_t count, Py_ssize_t size) except NULL:
        """Memory for `count` things of `size` bytes, all 0, for as long as the object lives."""
        array = np.zeros(count * size, dtype=np.uint8)
        self.memory.append(array)
        return cnp.PyArray_DATA(array)

    cdef int room_for_blocks(self) except -1:
        """For `draw_block`."""
        self.weight = <double *>self.room(self.n_arms, sizeof(double))
        self.tally = <int64_t *>self.room(self.n_arms, sizeof(int64_t))
        self.alias = <alias_t *>self.room(self.n_arms, sizeof(alias_t))
        self.stack = <uint32_t *>self.room(self.n_arms, sizeof(uint32_t))
        return 0

    cdef int _set_up(self) except -1:
        """All but the first request is there."""
        guard_build(&self.guard, 0, self)
        if not self.configured:
            guard_refuse(&self.guard, self)
        guard_built(&self.guard, 0)
        return 0

    def start(self):
        """Make the first request; called once."""
        self._set_up()
        guard_enter(&self.guard, self)
        try:
            if self.n_best == self.n_arms:
                self.status = BY_ALL
            else:
                self._plan()
        finally:
            guard_leave(&self.guard)

    cdef int plan(self) except -1 nogil:
        with gil:
            raise NotImplementedError(f"{type(self).__name__} does not supply plan")

    cdef int _plan(self) except -1 nogil:
        cdef Py_ssize_t i
        if self.each > 0:           # what a small budget allows of the first request is there: go on with the rest
            self._ask_each(-1)
            return 0
        self.due = True
        if self.tally != NULL:
            for i in range(self.n_asked):
                self.tally[self.asked[i]] = 0
        self.n_asked = self.served = 0
        if self.first > 0 and self.total == 0:
            for i in range(self.n_arms):
                self.ask_for(i, self.first)
        else:
            if self.first > 0 and not self.ready:
                if self.missing == DROPPED and self._fall_short():
                    self.due = False
                    return 0
                self.split()
                self.ready = True
            self.plan()
        self.due = False
        if self.status == RUNNING and self.n_asked == 0:
            with gil:
                raise RuntimeError(f"this {type(self).__name__} asks for nothing and does not stop: its state is "
                                   f"damaged")
        return 0

    cdef bint _fall_short(self) noexcept nogil:
        """Ask again of the arms that lack first rewards, as some were missing; whether there are any."""
        cdef Py_ssize_t i
        for i in range(self.n_arms):
            if self.pulls[i] < self.first:
                self.ask_for(i, self.first - self.pulls[i])
        return self.n_asked > 0

    cdef int64_t _made_of(self, Py_ssize_t arm) noexcept nogil:
        """Pulls of an arm, those whose reward was missing included."""
        return self.pulls[arm] + (self.missed[arm] if self.missing == DROPPED else 0)

    cdef int64_t _of_each(self) noexcept nogil:
        """Pulls of each arm that the request at hand is for, those made included; 0 if arms differ."""
        cdef Py_ssize_t i, k
        cdef int64_t each, made
        cdef uint64_t left = 0      # may go round
        if self.ready or self.due or self.served >= self.n_asked:
            return 0
        i = self.asked[self.served]
        each = self.owed[self.served] + self._made_of(i)
        for k in range(self.served, self.n_asked):
            left += <uint64_t>self.owed[k]
        for i in range(self.n_arms):
            made = self._made_of(i)
            if made > each:
                return 0
            left -= <uint64_t>(each - made)
        return each if left == 0 else 0

    cdef void _ask_each(self, int64_t total) noexcept nogil:
        """Ask for what arms lack to equal shares of `total` pulls, or to `each` pulls if `total` is below 0."""
        cdef Py_ssize_t i
        cdef int64_t share = self.each, more = 0, made
        if total >= 0:
            share, more = total // self.n_arms, total % self.n_arms
        self.n_asked = self.served = 0
        for i in range(self.n_arms):
            made = self._made_of(i)
            if share + (i < more) > made:
                self.ask_for(i, share + (i < more) - made)
        if total < 0:
            self.each = 0

    cdef int worked(self, int64_t nanoseconds) except -1 nogil:
        self.work += nanoseconds
        if self.work >= WORK_PER_CHECK:
            self.work = 0
            check_signals()
        return 0

    cdef int ask_for(self, Py_ssize_t arm, int64_t count) noexcept nogil:
        """Add `count` pulls of an arm, not asked for so far, to the request."""
        self.asked[self.n_asked] = arm
        self.owed[self.n_asked] = count
        self.n_asked += 1
        return 0

    cdef int ask_one_more(self, Py_ssize_t arm, int64_t count) noexcept nogil:
        """Add `count` pulls of an arm, asked for or not; its place in the request, from 1 on, stands in `tally`."""
        if count > 0:
            if self.tally[arm] == 0:
                self.ask_for(arm, 0)
                self.tally[arm] = self.n_asked
            self.owed[self.tally[arm] - 1] += count
        return 0

    cdef int draw_block(self, double sum_of_weights, int64_t size) except -1 nogil:
        """Ask for `size` pulls of arms drawn in proportion to `weight`."""
        cdef Py_ssize_t i
        cdef int64_t k
        alias_build(self.alias, self.weight, sum_of_weights, <uint32_t>self.n_arms, self.stack)
        for k in range(size):
            if (k & 0xFFFF) == 0xFFFF:
                check_signals()
            i = alias_pick(self.alias, <uint32_t>self.n_arms, self.uniform())
            while not self.weight[i] > 0.0:         # a cell that rounding left to its owner
                i = alias_pick(self.alias, <uint32_t>self.n_arms, self.uniform())
            self.ask_one_more(i, 1)
        return 0

    cdef int absorb(self, Py_ssize_t arm, const double *rewards, int64_t count) except -1 nogil:
        """Each reward is predicted by the mean before it, the first by the middle of the support."""
        cdef double mean = self.mean[arm], m2 = self.m2[arm], error = self.error[arm], step, x
        cdef double origin = self.origin[arm]
        cdef int64_t t, n = self.pulls[arm], start = 0
        if n == 0:
            mean = rewards[0] - origin
            step = mean - (self.low[arm] + 0.5 * self.span[arm])
            error = step * step
            n = start = 1
        for t in range(start, count):
            n += 1
            x = rewards[t] - origin
            step = x - mean
            mean += step / <double>n
            m2 += step * (x - mean)
            error += step * step
        self.pulls[arm] = n
        self.mean[arm] = mean
        self.m2[arm] = m2
        self.error[arm] = error
        if self.ready:
            self.reorder(arm)
        return 0

    cdef void reorder(self, Py_ssize_t arm) noexcept nogil:
        self.resplit(arm)

    cdef double uniform(self) except? -1.0 nogil:
        """The next uniform number in [0, 1)."""
        cdef double number
        if self.ahead.used >= UNIFORMS:
            with gil:
                with self.lock:
                    uniforms_fill(&self.ahead, self.bits)
        number = self.ahead.value[self.ahead.used]
        self.ahead.used += 1
        return number

    # The m largest means, ties to the lower number.

    cdef int split(self) except -1 nogil:
        """Find the m best of all arms; O(n log n)."""
        cdef Py_ssize_t i
        self.best.size = self.n_best
        self.rest.item = self.best.item + self.n_best
        self.rest.size = self.n_arms - self.n_best
        for i in range(self.n_arms):
            self.best.item[i] = i
            self.is_best[i] = i < self.n_best
        heap_order(&self.best)
        heap_order(&self.rest)
        self.worked(50 * self.n_arms)
        while precedes(self.mean, self.rest.item[0], self.best.item[0]):
            self._exchange()
            self.worked(300)
        return 0

    cdef void _exchange(self) noexcept nogil:
        self.left = self.best.item[0]
        self.joined = self.rest.item[0]
        self.is_best[self.left] = False
        self.is_best[self.joined] = True
        heap_exchange(&self.best, &self.rest)

    cdef bint resplit(self, Py_ssize_t arm) noexcept nogil:
        """Take note of an arm's new mean, O(log n); whether it, or the other top, crossed over."""
        cdef heap_t *heap = &self.best if self.is_best[arm] else &self.rest
        heap_sift(heap, heap.place[arm])
        if not precedes(self.mean, self.rest.item[0], self.best.item[0]):
            return False
        self._exchange()
        return True

    # Requests and rewards.

    cdef Py_ssize_t _next_piece(self, int64_t limit) noexcept nogil:
        """Pulls to ask for now, of arms from `served` on: how many arms; their counts are in `piece`."""
        cdef int64_t room = min(<int64_t>REWARDS_PER_PIECE, limit)
        cdef Py_ssize_t k = 0
        while room > 0 and self.served + k < self.n_asked:
            self.piece[k] = min(self.owed[self.served + k], room)
            room -= self.piece[k]
            k += 1
        return k

    cdef int _check(self, const double *rewards, const int64_t *counts, Py_ssize_t n) except -1 nogil:
        """Refuse rewards that are nan or outside the support, but for rounding, and arms that fell silent."""
        cdef Py_ssize_t k, arm
        cdef int64_t t
        cdef double slack
        cdef const double *first = rewards
        for k in range(n):
            arm = self.asked[self.served + k]
            slack = stream_slack(self.low[arm], self.high[arm])
            for t in range(counts[k]):
                if (t & 0xFFFFF) == 0xFFFFF:
                    check_signals()
                if not _usable(rewards[t], self.low[arm] - slack, self.high[arm] + slack, self.missing):
                    with gil:
                        self._refuse(arm, rewards[t], self.pulls[arm] + t)
            rewards += counts[k]
        if self.missing == DROPPED:
            self._listen_to_all(first, counts, n)
        return 0

    cdef int _listen_to_all(self, const double *rewards, const int64_t *counts, Py_ssize_t n) except -1 nogil:
        """Refuse arms that fell silent, or all of them together if none has ever given a reward."""
        cdef Py_ssize_t k = 0, i = 0
        cdef int64_t t = 0, count = 0
        cdef bint before = False, heard = False         # a reward came before these; among them
        for k in range(n):
            count += counts[k]
        while not before and i < self.n_arms:
            before = self.pulls[i] > 0
            i += 1
        while not (before or heard) and t < count:
            heard = rewards[t] == rewards[t]
            t += 1
        if not (before or heard):
            with gil:
                self._hear_nothing(self.total + count, worth_a_warning(self.total, self.total + count))
            return 0
        if not before:
            with gil:
                self._warn_of_others(n)
        for k in range(n):
            self._listen(self.asked[self.served + k], rewards, counts[k], before)
            rewards += counts[k]
        return 0

    def _warn_of_others(self, n):
        """With the first reward of any arm, name those that this batch is not of: so far no arm was named."""
        silent = self.vectors["silent"].copy()
        silent[self._asked[self.served:self.served + n]] = 0
        for arm in np.flatnonzero(silent >= WORTH_A_WARNING).tolist():
            self._warn_of_silence(arm, silent[arm])

    def _hear_nothing(self, made, marked):
        if made >= NEVER_HEARD:
            raise _checks.silence(ValueError(NOTHING_HEARD.format(made)), list(range(self.n_arms)))
        if marked:
            warnings.warn(NOTHING_HEARD.format(made), RuntimeWarning, stacklevel=_checks.users_level())

    cdef int _listen(self, Py_ssize_t arm, const double *rewards, int64_t count, bint named) except -1 nogil:
        """Refuse an arm that gives no rewards any more, with those at hand: it would be asked for ever.

        It is warned of before, and then for all its silence, if it was not `named` while all arms were silent.
        """
        cdef int64_t t, silent = self.silent[arm], heard = self.pulls[arm], asked = heard + self.missed[arm] + count
        for t in range(count):
            if rewards[t] == rewards[t]:
                heard += 1
                silent = 0
            else:
                silent += 1
        if heard == 0 and worth_a_warning(silent - count if named else 0, silent):
            with gil:
                self._warn_of_silence(arm, silent)
        if silent_for_good(silent, heard, asked):
            with gil:
                raise _checks.silence(_checks.arm_error(
                    self, arm, f"the last {silent} pulls of arm {arm} gave no reward: missing is 'drop', and no more "
                               f"becomes known of it; leave it out, take missing='worst', or, if its rewards are rare, "
                               f"ask for each until one comes"), [arm])
        return 0

    def _warn_of_silence(self, arm, silent):
        warnings.warn(
            SILENT_PULLS.format(arms_in_words([arm]), silent), RuntimeWarning,
            stacklevel=_checks.users_level(),
        )

    cdef int _refuse(self, Py_ssize_t arm, double reward, int64_t pull) except -1:
        if reward != reward:
            raise _checks.arm_error(self, arm, f"reward {pull} of arm {arm} is nan; every pull needs a real number. "
                                               f"Where rewards may be missing, give missing='drop' or "
                                               f"missing='worst' to select_best or LUCB")
        raise _checks.arm_error(self, arm, f"reward {pull} of arm {arm} is {reward!r}, outside support="
                                           f"({self.low[arm]!r}, {self.high[arm]!r}): the promise holds only for "
                                           f"rewards inside it; widen support or scale")

    @property
    def takes_missing(self):
        return self.missing != REFUSED

    def check(self, Py_ssize_t arm, double reward, int64_t pull):
        """Refuse a reward of a later pull as `tell` will when its turn comes."""
        guard_check(&self.guard, self)
        cdef double slack = stream_slack(self.low[arm], self.high[arm])
        if not _usable(reward, self.low[arm] - slack, self.high[arm] + slack, self.missing):
            self._refuse(arm, reward, pull)

    cdef int64_t settle(self, Py_ssize_t arm, double *rewards, int64_t count) noexcept nogil:
        cdef int64_t t, kept = 0
        for t in range(count):
            if rewards[t] == rewards[t]:
                rewards[kept] = rewards[t]
                kept += 1
                self.silent[arm] = 0
            else:
                self.missed[arm] += 1
                self.silent[arm] += 1
                if self.missing == WORST:
                    rewards[kept] = self.low[arm]
                    kept += 1
        return kept

    cdef int _serve(self, const double *rewards, const int64_t *counts, Py_ssize_t n) except -1 nogil:
        """Take checked rewards, and plan on when the request is fulfilled."""
        cdef Py_ssize_t k, arm
        cdef int64_t there
        for k in range(n):
            arm = self.asked[self.served]
            there = counts[k] if self.missing == REFUSED else self.settle(arm, <double *>rewards, counts[k])
            if there > 0:
                self.absorb(arm, rewards, there)
            rewards += counts[k]
            self.total += counts[k]
            self.owed[self.served] -= counts[k]
            if self.owed[self.served] == 0:
                self.served += 1
        if self.served == self.n_asked:
            self._plan()
        return 0

    cdef int _run(self, PullSource source, int64_t limit) except -1 nogil:
        cdef Py_ssize_t k, until_check = PIECES_PER_CHECK
        cdef int64_t next_check = self.total + PULLS_PER_CHECK
        if self.due:
            self._plan()
        while self.status == RUNNING and self.total < limit:
            k = self._next_piece(limit - self.total)
            if k == 0:                  # a round of several arms would exceed it
                break
            self.asking = True
            source.pull(self.asked + self.served, self.piece, k, self.rewards)
            self.n_arrived = k
            self._check(self.rewards, self.piece, k)
            self.asking, self.n_arrived = False, 0
            self._serve(self.rewards, self.piece, k)
            until_check -= 1
            if until_check == 0 or self.total >= next_check:
                check_signals()
                until_check = PIECES_PER_CHECK
                next_check = self.total + PULLS_PER_CHECK
        return 0

    @property
    def done(self):
        return self.status not in (RUNNING, BY_MAX_PULLS)

    @property
    def stopped_by(self):
        return STOPPED_BY[self.status]

    def ask(self):
        """Arms to pull next, and how often, as fresh vectors."""
        guard_enter(&self.guard, self)
        try:
            self._catch_up()
            if self.done:
                raise ValueError("the selection is over; there is nothing left to ask for")
            return self._asked[self.served:self.n_asked].copy(), self._owed[self.served:self.n_asked].copy()
        finally:
            guard_leave(&self.guard)

    def tell(self, rewards):
        """Take the rewards that `ask` asked for."""
        cdef cnp.ndarray counts, flat
        # Held while the user's `__array__` runs: what was asked says how many rewards there must be.
        guard_enter(&self.guard, self)
        try:
            self._catch_up()
            if self.done:
                raise ValueError("the selection is over; it takes no more rewards")
            counts = self._owed[self.served:self.n_asked].copy()
            flat = _flat(rewards, self._asked[self.served:self.n_asked], counts)
            if self.missing != REFUSED:         # `settle` writes
                flat = np.array(flat)
            self._check(<const double *>cnp.PyArray_DATA(flat), <const int64_t *>cnp.PyArray_DATA(counts),
                        counts.shape[0])
            self.status = RUNNING
            self._serve(<const double *>cnp.PyArray_DATA(flat), <const int64_t *>cnp.PyArray_DATA(counts),
                        counts.shape[0])
        finally:
            guard_leave(&self.guard)

    cdef int _catch_up(self) except -1:
        """Make the request that Ctrl-C cut short."""
        if self.due and not self.done:
            self.status = RUNNING
            self._plan()
        return 0

    def allow(self, max_pulls):
        """Say how many pulls may be made in all, or None, no limit; whether the rule asks for others because of it.

        It is no part of a saved state: each call says it when it begins, and None when it ends.
        """
        return self._alone(self._allow, max_pulls)

    def _allow(self, max_pulls):
        """Where it does not suffice for the first request, arms get equal shares of it, and the rest comes after.

        In the order of the request, the first arm would get all of it.
        """
        if self.each > 0 and not self.done:
            self._ask_each(-1)
        self.each = 0 if self.done or max_pulls is None or max_pulls <= self.total else self._of_each()
        if max_pulls is None or self.each <= max_pulls // self.n_arms:
            self.each = 0
            return False
        self._ask_each(max_pulls)
        return True

    def run(self, PullSource source not None, max_pulls, bint whole=True):
        """Pull until the rule stops, or `max_pulls` pulls have been made in all: the budget, or a part of it."""
        cdef int64_t limit = max_pulls
        guard_enter(&self.guard, self)
        try:
            if source.n_arms != self.n_arms:
                raise ValueError(f"the source has {source.n_arms} arms; this selection was set up for {self.n_arms}")
            if self.done:
                return
            source.hold()
            try:
                self.status, self.asking, self.n_arrived = RUNNING, False, 0
                with nogil:
                    self._run(source, limit)
                if self.status == RUNNING and whole:
                    self.status = BY_MAX_PULLS
            finally:
                source.release()
        finally:
            guard_leave(&self.guard)

    def refused(self):
        """Arms, counts and rewards of the request that the last run refused; None if there was none, and in a second
        call."""
        return self._alone(self._refused)

    def _refused(self):
        cdef Py_ssize_t k, n = self.n_arrived
        if n == 0:
            return None
        self.n_arrived = 0
        counts = np.array([self.piece[k] for k in range(n)], np.int64)
        return (self._asked[self.served:self.served + n].copy(), counts,
                np.array([self.rewards[k] for k in range(counts.sum())]))

    def decided(self):
        """By arm: 1, certainly of the answer; -1, certainly not, both as far as delta goes; 0, neither.

        The n_best places that the arms of 1 leave are for those of 0. One event of probability delta covers all that is
        ever said here and the stop of the rule itself.
        """
        return self._alone(self._decided)

    def _decided(self):
        return np.zeros(self.n_arms, np.int8)

    def end_by_reading(self):
        """Stop, as the means of all arms that are not decided have become known."""
        self._alone(self._end_by_reading)

    def _end_by_reading(self):
        if not self.done:
            self.status = BY_READING

    @property
    def takes_more(self):
        """Whether it may be given pulls that it has not asked for."""
        return False

    def pull_more(self, PullSource source not None, Py_ssize_t arm, int64_t count):
        """Let the request be `count` pulls of an arm, in place of what was asked for, and make them."""
        guard_enter(&self.guard, self)
        try:
            if self.done or not self.takes_more or not 0 <= arm < self.n_arms or count < 1:
                raise ValueError("this rule takes no more pulls of that arm than it asks for")
            source.hold()
            try:
                self._catch_up()
                if self.done:
                    return
                self.status, self.asking, self.n_arrived = RUNNING, False, 0
                self.n_asked = self.served = 0
                self.ask_for(arm, count)
                with nogil:
                    self._run(source, self.total + count)
            finally:
                source.release()
        finally:
            guard_leave(&self.guard)

    def missed_by_arm(self):
        """Missing rewards of each arm."""
        return np.zeros(self.n_arms, np.int64) if self.missed == NULL else self.vectors["missed"].copy()

    # Answers and saved states; subclasses extend `_chosen`, `_answer`, `_get_state` and `_set_state`.

    def _alone(self, method, *args):
        """Call a method of this object while nobody else uses it."""
        return guarded(&self.guard, self, method, args)

    def chosen(self):
        """The m arms to name now, best first: arms not yet pulled come last."""
        return self._alone(self._chosen)

    def answer(self):
        """What is known so far, under the names of `SelectionResult`."""
        return self._alone(self._answer)

    def get_state(self):
        """All that a selection needs to go on exactly, as plain objects."""
        return self._alone(self._get_state)

    def set_state(self, state):
        """Continue from `get_state` of an object with the same arguments and ``state["rng"]``, in place of `start`.

        A damaged state raises ValueError, and leaves an object that refuses to be used.
        """
        with _checks.undamaged("selection"):
            self._set_state(state)
        self._set_up()

    def _by_mean(self, *groups):
        """Arms of the first group, then of the next; within a group by their means, ties to the lower number."""
        known = np.where(self._pulls > 0, self._mean, -np.inf)
        groups = [np.sort(group) for group in groups]
        return np.concatenate([group[np.argsort(-known[group], kind="stable")] for group in groups])

    def _chosen(self):
        return self._by_mean(np.arange(self.n_arms))[:self.n_best]

    def _answer(self):
        known = {} if self.missed == NULL else dict(n_missing=int(self.vectors["missed"].sum()))
        return dict(best=self._chosen(), mean=np.where(self._pulls > 0, self._mean, np.nan), pulls=self._made(),
                    stopped_by=self.stopped_by, **known)

    def unpulled(self):
        """Whether some arm has had no pull."""
        return bool((self._alone(self._made) == 0).any())

    def n_unheard(self):
        """Pulls made, if no reward came of them and they are so many that this is worth a warning; else 0."""
        if self.missing != DROPPED or self._pulls.any() or self.total < WORTH_A_WARNING:
            return 0
        return self.total

    def silent_arms(self):
        """Arms whose rewards were all missing, dropped, and so many that this is worth a warning."""
        if self.missing != DROPPED or not self._pulls.any():
            return []
        return np.flatnonzero((self._pulls == 0) & (self.vectors["missed"] >= WORTH_A_WARNING)).tolist()

    def _made(self):
        """Pulls of each arm, those whose reward was missing included."""
        return self._pulls + self.vectors["missed"] if self.missing == DROPPED else self._pulls.copy()

    def _get_state(self):
        cdef Py_ssize_t last = self.served if self.due else self.n_asked
        return {name: array.copy() for name, array in self.vectors.items()} | dict(
            total=self.total, status=self.status, ready=self.ready, due=self.due,
            asked=self._asked[self.served:last].copy(), owed=self._owed[self.served:last].copy(),
            rng=deepcopy(self.rng), ahead=np.array(uniforms_left(&self.ahead)),
        )

    def _set_state(self, state):
        """Take a state; what cannot be right raises, and the object is never used."""
        cdef cnp.ndarray asked = _indices(state["asked"], self.n_arms)
        cdef cnp.ndarray owed = _whole_numbers(state["owed"], "owed", np.int64, 1)
        cdef Py_ssize_t n_asked = asked.shape[0]
        guard_build(&self.guard, 0, self)
        for name, array in self.vectors.items():
            array[:] = per_arm(state[name], self.n_arms, array.dtype, name, False)
        pulls, mean = self._pulls, self._mean
        m2, error = self.vectors["m2"], self.vectors["error"]
        status, total, ready, due = state["status"], state["total"], state["ready"], state["due"]
        done = status not in (RUNNING, BY_MAX_PULLS)
        slack = np.array([stream_slack(low, high) for low, high in zip(self._low.tolist(), self._high.tolist())])
        seen = pulls > 0
        _demand(self.missing == REFUSED or ((self.vectors["missed"] >= 0).all() and (
            self.missing == DROPPED or (self.vectors["missed"] <= pulls).all()) and (
                self.vectors["silent"] >= 0).all() and (self.vectors["silent"] <= self.vectors["missed"]).all()),
                "its missing rewards")
        _demand((pulls >= 0).all() and total == sum(self._made().tolist()) and 0 <= status < len(STOPPED_BY)
                and isinstance(due, bool) and ((n_asked == 0) if due else (done or n_asked > 0))
                and (<object>owed).shape == (n_asked,) and np.unique(asked).size == n_asked
                and total + sum(owed.tolist()) <= MOST_PULLS
                and isinstance(ready, bool) and (not ready or (self.first > 0 and seen.all())), "its counts")
        _demand((m2 >= 0.0).all() and (error >= 0.0).all() and np.isfinite([mean, m2, error]).all()
                and ((mean >= self._low - slack) & (mean <= self._high + slack))[seen].all(), "its means")
        uniforms_resume(&self.ahead, state["ahead"])
        self.total, self.status, self.ready, self.due = total, status, ready, due
        self._asked[:n_asked] = asked
        self._owed[:n_asked] = owed
        self.served, self.n_asked = 0, n_asked
        if self.ready:
            self.split()


def _demand(good, what):
    if not good:
        raise ValueError(f"{what} cannot be right")


def _indices(values, limit):
    """A fresh vector of indices in [0, limit)."""
    array = _whole_numbers(values, "the vector of arms", np.intp, 0)
    _demand((array < limit).all(), "its arms")
    return array


def _count(value, limit=MOST_PULLS):
    """A whole number in [0, limit]."""
    value = operator.index(value)
    _demand(0 <= value <= limit, "its counts")
    return value
