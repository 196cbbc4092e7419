# cython: cdivision=True
"""The frame of rules that select the m best of n arms: it asks a source, checks rewards, keeps moments and order."""

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free, malloc
cimport numpy as cnp
from numpy.random cimport bitgen_t

from fastrace._base._guard cimport (guard_await, guard_build, guard_built, guard_enter, guard_leave, guard_refuse,
                                    guarded)
from fastrace._base._signals cimport check_signals
from fastrace._draws._heaps cimport heap_exchange, heap_order, heap_sift, precedes
from fastrace._draws._uniforms cimport UNIFORMS, uniforms_fill
from fastrace._math._bounds cimport stream_slack
from fastrace.pulls cimport PullSource

import operator
from copy import deepcopy

import numpy as np

from fastrace._base import _checks
from fastrace.pulls import _flat, _whole_numbers

cnp.import_array()

LARGEST_BATCH = MOST_PER_BATCH
STOPPED_BY = ("", "delta", "cap", "plan", "bound", "horizon", "budget", "single", "max_pulls")

cdef enum:
    REWARDS_PER_PIECE = 4096        # most rewards asked of a source at once
    PULLS_PER_CHECK = 1 << 13       # pulls between two looks at pending signals
    PIECES_PER_CHECK = 1 << 10      # requests between two looks, as each may cost more than its pulls
    WORK_PER_CHECK = 10_000_000     # nanoseconds of other work between two looks

MOST_PULLS = _checks.MOST_PULLS
cdef int64_t MOST_ARMS = <int64_t>1 << 31


cdef cnp.ndarray per_arm(object values, Py_ssize_t n_arms, object dtype, str name):
    cdef cnp.ndarray array = np.array(values, dtype=dtype, order="C")
    if (<object>array).shape != (n_arms,) or not np.isfinite(array).all():
        raise ValueError(f"{name} has shape {(<object>array).shape}; a vector of {n_arms} finite numbers is needed, "
                         f"one per arm")
    return array


cdef class Selector:
    """State and loop of one selection; the classes of `selection` check the arguments and name the answer."""

    def __cinit__(self, n_arms, n_best, *args, **kwargs):
        guard_await(&self.guard, 0)
        if not 1 <= n_best <= n_arms <= MOST_ARMS:
            raise ValueError(f"n_best is {n_best} and n_arms {n_arms}; 1 <= n_best <= n_arms is needed")
        self.n_arms = n_arms
        self.n_best = n_best
        self.rewards = <double *>malloc(REWARDS_PER_PIECE * sizeof(double))
        self.heap_memory = <Py_ssize_t *>calloc(2 * self.n_arms, sizeof(Py_ssize_t))
        self.is_best = <char *>calloc(self.n_arms, 1)
        if self.rewards == NULL or self.heap_memory == NULL or self.is_best == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.rewards)
        free(self.heap_memory)
        free(self.is_best)

    def __init__(self, n_arms, n_best, *, low, high, rng):
        low = per_arm(low, self.n_arms, np.float64, "low")
        high = per_arm(high, self.n_arms, np.float64, "high")
        if n_arms != self.n_arms or n_best != self.n_best or not (low < high).all():
            raise ValueError("n_arms and n_best are those that the object was made with, and low < high")
        cdef bitgen_t *bits = <bitgen_t *>PyCapsule_GetPointer(rng.bit_generator.capsule, "BitGenerator")
        lock = rng.bit_generator.lock
        guard_build(&self.guard, 0, self)
        if self._low is not None:
            raise TypeError(f"this {type(self).__name__} is in use: __init__ runs once; make a new one to start again")
        self._low, self._high = low, high
        self._span = self._high - self._low
        self._pulls = np.zeros(n_arms, dtype=np.int64)
        self._mean, self._m2 = np.zeros(n_arms), np.zeros(n_arms)
        self._asked = np.zeros(n_arms, dtype=np.intp)
        self._wanted, self._piece = np.zeros(n_arms, dtype=np.int64), np.zeros(n_arms, dtype=np.int64)
        self.low = <double *>cnp.PyArray_DATA(self._low)
        self.high = <double *>cnp.PyArray_DATA(self._high)
        self.span = <double *>cnp.PyArray_DATA(self._span)
        self.pulls = <int64_t *>cnp.PyArray_DATA(self._pulls)
        self.mean = <double *>cnp.PyArray_DATA(self._mean)
        self.m2 = <double *>cnp.PyArray_DATA(self._m2)
        self.asked = <Py_ssize_t *>cnp.PyArray_DATA(self._asked)
        self.wanted = <int64_t *>cnp.PyArray_DATA(self._wanted)
        self.piece = <int64_t *>cnp.PyArray_DATA(self._piece)
        self.best.item = self.heap_memory
        self.best.key = self.rest.key = self.mean
        self.best.place = self.rest.place = self.heap_memory + self.n_arms
        self.best.sign, self.rest.sign = -1.0, 1.0
        self.rng = rng
        self.lock = lock
        self.bits = bits
        self.ahead.at = UNIFORMS

    cdef int _ready(self) except -1:
        """All but the first request is there."""
        guard_build(&self.guard, 0, self)
        if self._low is None:
            guard_refuse(&self.guard, self)
        guard_built(&self.guard, 0)
        return 0

    def start(self):
        """Make the first request; called once, when the subclass is ready."""
        self._ready()
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
        self.due = True
        self.n_asked = self.at = 0
        self.plan()
        self.due = False
        if self.status == RUNNING and self.n_asked == 0:
            with gil:
                raise RuntimeError(f"this {type(self).__name__} asks for nothing and does not stop: its state is "
                                   f"damaged")
        return 0

    cdef int worked(self, int64_t nanoseconds) except -1 nogil:
        self.work += nanoseconds
        if self.work >= WORK_PER_CHECK:
            self.work = 0
            check_signals()
        return 0

    cdef int ask_for(self, Py_ssize_t arm, int64_t count) noexcept nogil:
        """Add `count` pulls of an arm to the request."""
        self.asked[self.n_asked] = arm
        self.wanted[self.n_asked] = count
        self.n_asked += 1
        return 0

    cdef int absorb(self, Py_ssize_t arm, const double *rewards, int64_t count) except -1 nogil:
        cdef double mean = self.mean[arm], m2 = self.m2[arm], step
        cdef int64_t t, n = self.pulls[arm]
        for t in range(count):
            n += 1
            step = rewards[t] - mean
            mean += step / n
            m2 += step * (rewards[t] - mean)
        self.pulls[arm] = n
        self.mean[arm] = mean
        self.m2[arm] = m2
        return 0

    cdef double uniform(self) except? -1.0 nogil:
        """The next uniform number in [0, 1)."""
        self.ahead.at += 1
        if self.ahead.at > UNIFORMS:
            self.ahead.at = UNIFORMS
            with gil:
                with self.lock:
                    uniforms_fill(&self.ahead, self.bits)
            self.ahead.at = 1
        return self.ahead.value[self.ahead.at - 1]

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
        """Pulls to ask for now, of arms from `at` on: how many arms; their counts are in `piece`."""
        cdef int64_t room = min(<int64_t>REWARDS_PER_PIECE, limit)
        cdef Py_ssize_t k = 0
        while room > 0 and self.at + k < self.n_asked:
            self.piece[k] = min(self.wanted[self.at + k], room)
            room -= self.piece[k]
            k += 1
        return k

    cdef int _check(self, const double *rewards, const int64_t *counts, Py_ssize_t n) except -1 nogil:
        """Refuse rewards that are nan or outside the support, but for rounding."""
        cdef Py_ssize_t k, arm
        cdef int64_t t
        cdef double slack
        for k in range(n):
            arm = self.asked[self.at + k]
            slack = stream_slack(self.low[arm], self.high[arm])
            for t in range(counts[k]):
                if (t & 0xFFFFF) == 0xFFFFF:
                    check_signals()
                if not self.low[arm] - slack <= rewards[t] <= self.high[arm] + slack:
                    with gil:
                        self._refuse(arm, rewards[t], self.pulls[arm] + t)
            rewards += counts[k]
        return 0

    cdef int _refuse(self, Py_ssize_t arm, double reward, int64_t pull) except -1:
        if reward != reward:
            raise ValueError(f"reward {pull} of arm {arm} is nan; every pull needs a real number. Nothing of this "
                             f"batch was used")
        raise ValueError(f"reward {pull} of arm {arm} is {reward!r}, outside support=({self.low[arm]!r}, "
                         f"{self.high[arm]!r}): the promise holds only for rewards inside it; widen support or scale. "
                         f"Nothing of this batch was used")

    cdef int _serve(self, const double *rewards, const int64_t *counts, Py_ssize_t n) except -1 nogil:
        """Take checked rewards, and plan on when the request is fulfilled."""
        cdef Py_ssize_t k
        for k in range(n):
            self.absorb(self.asked[self.at], rewards, counts[k])
            rewards += counts[k]
            self.total += counts[k]
            self.wanted[self.at] -= counts[k]
            if self.wanted[self.at] == 0:
                self.at += 1
        if self.at == self.n_asked:
            self._plan()
        return 0

    cdef int _run(self, PullSource source, int64_t limit) except -1 nogil:
        cdef Py_ssize_t k, until_check = PIECES_PER_CHECK
        cdef int64_t next_check = self.total + PULLS_PER_CHECK
        if self.due:
            self._plan()
        while self.status == RUNNING and self.total < limit:
            k = self._next_piece(limit - self.total)
            source.pull(self.asked + self.at, self.piece, k, self.rewards)
            self._check(self.rewards, self.piece, k)
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
        """Arms and counts wanted next, as fresh vectors."""
        guard_enter(&self.guard, self)
        try:
            self._catch_up()
            if self.done:
                raise ValueError("the selection is over; there is nothing left to ask for")
            return self._asked[self.at:self.n_asked].copy(), self._wanted[self.at:self.n_asked].copy()
        finally:
            guard_leave(&self.guard)

    def tell(self, rewards):
        """Take the rewards that `ask` wanted."""
        cdef cnp.ndarray counts, flat
        # Held while the user's `__array__` runs: what was asked says how many rewards there must be.
        guard_enter(&self.guard, self)
        try:
            self._catch_up()
            if self.done:
                raise ValueError("the selection is over; it takes no more rewards")
            counts = self._wanted[self.at:self.n_asked].copy()
            flat = _flat(rewards, self._asked[self.at:self.n_asked], counts)
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

    def run(self, PullSource source not None, max_pulls):
        """Pull until the rule stops, or `max_pulls` pulls have been made in all."""
        cdef int64_t limit = max_pulls
        guard_enter(&self.guard, self)
        try:
            if source.n_arms != self.n_arms:
                raise ValueError(f"the source has {source.n_arms} arms; this selection was set up for {self.n_arms}")
            if self.done:
                return
            source.hold()
            try:
                self.status = RUNNING
                with nogil:
                    self._run(source, limit)
                if self.status == RUNNING:
                    self.status = BY_MAX_PULLS
            finally:
                source.release()
        finally:
            guard_leave(&self.guard)

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
        self._ready()

    def _chosen(self):
        known = np.where(self._pulls > 0, self._mean, -np.inf)
        return np.argsort(-known, kind="stable")[:self.n_best]

    def _answer(self):
        return dict(best=self._chosen(), mean=np.where(self._pulls > 0, self._mean, np.nan), pulls=self._pulls.copy(),
                    stopped_by=self.stopped_by)

    def _get_state(self):
        cdef Py_ssize_t k, last = self.at if self.due else self.n_asked
        return dict(
            pulls=self._pulls.copy(), mean=self._mean.copy(), m2=self._m2.copy(), total=self.total,
            status=self.status, due=self.due, asked=self._asked[self.at:last].copy(),
            wanted=self._wanted[self.at:last].copy(), rng=deepcopy(self.rng),
            ahead=np.array([self.ahead.value[k] for k in range(self.ahead.at, UNIFORMS)]),
        )

    def _set_state(self, state):
        cdef Py_ssize_t k
        cdef cnp.ndarray asked = _indices(state["asked"], self.n_arms)
        cdef cnp.ndarray wanted = _whole_numbers(state["wanted"], "wanted", np.int64, 1)
        cdef cnp.ndarray ahead = np.array(state["ahead"], dtype=np.float64)
        cdef cnp.ndarray pulls = _whole_numbers(state["pulls"], "pulls", np.int64, 0)
        cdef Py_ssize_t left = ahead.size, n_asked = asked.shape[0]
        guard_build(&self.guard, 0, self)
        mean = per_arm(state["mean"], self.n_arms, np.float64, "mean")
        m2 = np.array(state["m2"], dtype=np.float64)
        status, total = operator.index(state["status"]), operator.index(state["total"])
        done, due = status not in (RUNNING, BY_MAX_PULLS), state["due"]
        slack = np.array([stream_slack(low, high) for low, high in zip(self._low.tolist(), self._high.tolist())])
        seen = pulls > 0
        _demand((<object>pulls).shape == (self.n_arms,) and total == sum(pulls.tolist())
                and 0 <= status < len(STOPPED_BY) and isinstance(due, bool)
                and ((n_asked == 0) if due else (done or n_asked > 0))
                and (<object>wanted).shape == (n_asked,) and np.unique(asked).size == n_asked
                and total + sum(wanted.tolist()) <= MOST_PULLS, "its counts")
        _demand((<object>m2).shape == (self.n_arms,) and (m2 >= 0.0).all()
                and ((mean >= self._low - slack) & (mean <= self._high + slack))[seen].all(), "its means")
        _demand(ahead.ndim == 1 and left <= UNIFORMS and ((ahead >= 0.0) & (ahead < 1.0)).all(), "its random numbers")
        self._pulls[:] = pulls
        self._mean[:] = mean
        self._m2[:] = m2
        self.total = total
        self.status = status
        self._asked[:n_asked] = asked
        self._wanted[:n_asked] = wanted
        self.at, self.n_asked = 0, n_asked
        self.due = due
        self.ahead.at = UNIFORMS - left
        for k in range(left):
            self.ahead.value[UNIFORMS - left + k] = ahead[k]


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
