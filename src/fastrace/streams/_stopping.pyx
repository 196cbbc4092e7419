"""Streams that stop themselves: rewards are checked and handed on here, one at a time or by the array."""

from libc.math cimport INFINITY, NAN, fabs, isfinite
from libc.stdint cimport INT64_MAX, int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
cimport numpy as cnp

import numpy as np

from fastrace._base import _checks
from fastrace._base._checks import DamagedError
from fastrace._base._guard cimport (guard_await, guard_build, guard_built, guard_check_built, guard_enter, guard_leave,
                                    guard_leave_brief, guard_refuse, guard_take_briefly, guarded)
from fastrace._base._signals cimport check_signals
from fastrace._math._bounds cimport stream_slack
from fastrace._math._criteria cimport ABSOLUTE, RELATIVE, SIGN, distance_from_zero, relative_answer, relative_met
from fastrace.moments cimport real_number, reward_table

cnp.import_array()

cdef extern from "_stop.h" nogil:
    bint fr_all_within(const double *x, Py_ssize_t n, double low, double high) noexcept

STOPPED_BY = ("", "epsilon", "inconsistent", "max_samples")
CRITERIA = ("never", "relative", "absolute", "sign")

cdef double MOST_ABSOLUTE = 1e100       # of a reward of unknown support: its cube is finite

cdef enum:
    CONVERTED = 1 << 16         # rewards of other kinds turned into doubles at once


cdef class Stream:
    """A stream of rewards in [low, high] and what is known of its mean.

    Every subclass takes its own arguments and calls `_configure` once.
    """

    def __cinit__(self, *args, **kwargs):
        guard_await(&self.guard, 0)
        self.s.lower = -INFINITY
        self.s.upper = INFINITY
        self.s.answer = NAN
        self.limit = INT64_MAX
        self.per_check = 1 << 16
        self.low = self.epsilon_ = self.delta_ = self.threshold = NAN
        self.high = NAN
        self.floor = -1.0

    def _configure(self, arguments, *, support, criterion="never", epsilon=NAN, delta=NAN, threshold=NAN, floor=None,
                   max_samples=None, outside="raise"):
        """Set what all rules share, from arguments that have been checked; `arguments` rebuild the object."""
        guard_build(&self.guard, 0, self)
        self.arguments = dict(arguments)
        self.bounded = support is not None
        self.low, self.high = support if self.bounded else (-MOST_ABSOLUTE, MOST_ABSOLUTE)
        self.slack = stream_slack(self.low, self.high) if self.bounded else 0.0
        self.least, self.most = self.low - self.slack, self.high + self.slack
        self.criterion_ = CRITERIA.index(criterion)
        self.epsilon_ = epsilon
        self.delta_ = delta
        self.threshold = threshold
        self.floor = -1.0 if floor is None else floor
        self.limit = INT64_MAX if max_samples is None else max_samples
        self.clip = outside == "clip"
        self.s.lower = self.low if self.bounded else -INFINITY
        self.s.upper = self.high if self.bounded else INFINITY
        guard_built(&self.guard, 0)

    def _knows_reach(self):
        """Whether it limits each bet by what the next reward may be, and so may be told by `_reach`."""
        return False

    def _reach(self, low, high):
        """From now on rewards lie between these, of a mean inside the support; it is not saved.

        Only for a rule that knows of it, and before the rewards are known that it is said of.
        """
        self.least, self.most = min(self.low, <double>low) - self.slack, max(self.high, <double>high) + self.slack

    # What a rule supplies

    cdef void push(self, double x) noexcept nogil:
        pass

    cdef double mean(self) noexcept nogil:
        return NAN

    cdef void *memory(self, Py_ssize_t *size) noexcept nogil:
        size[0] = 0
        return &self.s          # of which nothing is copied

    cdef Py_ssize_t extend(self, const double *x, Py_ssize_t n) noexcept nogil:
        cdef Py_ssize_t i
        for i in range(n):
            self.s.n += 1
            self.push(x[i])
            if self.s.status != RUNNING:
                return i + 1
        return n

    cdef Py_ssize_t keep(self, char *to) noexcept nogil:
        cdef Py_ssize_t size
        cdef void *state = self.memory(&size)
        if to != NULL:
            memcpy(to, &self.s, sizeof(stream_t))
            memcpy(to + sizeof(stream_t), state, size)
        return size + <Py_ssize_t>sizeof(stream_t)

    cdef void put_back(self, const char *kept) noexcept nogil:
        cdef Py_ssize_t size
        cdef void *state = self.memory(&size)
        memcpy(&self.s, kept, sizeof(stream_t))
        memcpy(state, kept + sizeof(stream_t), size)

    def _own_state(self):
        return ()

    def _set_own_state(self, state):
        pass

    # What a rule calls

    cdef void stop(self, double answer) noexcept nogil:
        self.s.status = STOPPED
        self.s.answer = answer

    cdef void judge(self, double lower, double upper) noexcept nogil:
        if lower > self.s.lower:
            self.s.lower = lower
        if upper < self.s.upper:
            self.s.upper = upper
        self.conclude()

    cdef void conclude(self) noexcept nogil:
        """Stop if the running intersection says so."""
        cdef double low = self.s.lower, high = self.s.upper, near, far, answer
        if low > high:
            if low - high > self.slack:
                if self.population == 0:        # a population is read to its end, where its mean is exact
                    self.s.status = INCONSISTENT
                return
            low = high = 0.5 * (low + high)         # crossed by rounding only
        if self.criterion_ == RELATIVE:
            near = distance_from_zero(low, high)
            far = max(fabs(low), fabs(high))
            if relative_met(near, far, self.epsilon_):
                answer = relative_answer(near, far, self.epsilon_)
                self.stop(-answer if low + high < 0.0 else answer)
            elif far <= self.floor:
                self.stop(0.0)
                self.s.by_floor = True
        elif self.criterion_ == ABSOLUTE:
            if high - low <= 2.0 * self.epsilon_:
                self.stop(0.5 * (low + high))
        elif self.criterion_ == SIGN:
            if low > self.threshold or high < self.threshold:
                self.stop(1.0 if low > self.threshold else -1.0)

    cdef void settle(self, double mean) noexcept nogil:
        cdef bint missed = max(self.s.lower, mean) - min(self.s.upper, mean) > self.slack
        self.s.lower = self.s.upper = mean
        if missed:
            self.s.status = INCONSISTENT
        else:
            self.conclude()

    cdef void give_up(self) noexcept nogil:
        """End a running stream at its limit. A population of which an interval missed the mean is still running."""
        self.s.status = INCONSISTENT if self.s.lower - self.s.upper > self.slack else OUT_OF_SAMPLES

    # Rewards

    def update(self, x):
        """Use one reward; return True once the rule is over.

        Parameters
        ----------
        x : float
            Reward, inside `support`.

        Returns
        -------
        bool
            True once the rule takes no more rewards, whatever the reason; see `stopped_by`. Rewards after that change
            nothing.

        Raises
        ------
        ValueError
            If the reward is nan or outside `support`, or comes after all `n_rows` of a population.
        """
        cdef double value = <double>x if type(x) is float else real_number(x, "the reward")
        if not guard_take_briefly(&self.guard):
            guard_refuse(&self.guard, self)
        if not self.least <= value <= self.most and self.s.status == RUNNING:
            if not self.clip or not isfinite(value):
                guard_leave_brief(&self.guard)
                raise self._refuse(value, "the reward")
            value = self.low if value < self.low else self.high
            self.s.n_clipped += 1
        if self.binary and self._between_ends(value) and self.s.status == RUNNING:
            guard_leave_brief(&self.guard)
            raise self._refuse(value, "the reward")
        if self.s.status == RUNNING:
            self.s.n += 1
            self.push(value)
            if self.s.n >= self.limit and self.s.status == RUNNING:
                self.give_up()
        elif self._is_full():
            guard_leave_brief(&self.guard)
            raise self._one_too_many("the reward")
        guard_leave_brief(&self.guard)
        return self.s.status != RUNNING

    cdef bint _is_full(self) noexcept nogil:
        """Whether every row of the population has been read, so that no reward can be of a further one."""
        return self.population > 0 and self.s.n >= self.population

    cdef object _one_too_many(self, name):
        return ValueError(f"{name} is one too many: n_rows is {self.population}, and so many rewards have come; if the "
                          f"population is larger, its mean is not known yet: begin anew with its n_rows")

    def update_many(self, xs):
        """Use rewards in order until the rule is over; return how many were used.

        Parameters
        ----------
        xs : array_like, shape (k,)
            Rewards, of any real type, used in the order given: shuffle the rows of a table first, or call
            `estimate_mean`, which reads an array in random order. A float64 or float32 array is read where it lies, as
            far as it is used.

        Returns
        -------
        int
            Rewards used, from 0 to k. Fewer than k only if the rule is over; it is then where single updates would
            have ended. What comes after is not looked at.

        Raises
        ------
        ValueError
            If a reward that would be used is nan or outside `support`, `xs` is not a vector, or there are more rewards
            than the `n_rows` of a population that was read to its end. The object is then as it was before the call;
            so it is after Ctrl-C.
        """
        cdef cnp.ndarray array = reward_table(xs, 1, True), part
        cdef Py_ssize_t n = array.shape[0], start = 0, size, count
        cdef int kind = cnp.PyArray_TYPE(array)
        cdef bint direct
        cdef char *kept = NULL
        guard_enter(&self.guard, self)
        try:
            if n > 0 and self._is_full():
                raise self._one_too_many("xs[0]")
            if n == 0 or self.s.status != RUNNING:
                return 0
            direct = (kind == cnp.NPY_FLOAT64 or kind == cnp.NPY_FLOAT32) and cnp.PyArray_ISBEHAVED_RO(array)
            size = self.keep(NULL)
            kept = <char *>malloc(size)
            if kept == NULL:
                raise MemoryError(f"no memory for {size} bytes")
            self.keep(kept)
            try:
                while start < n and self.s.status == RUNNING:
                    if direct:
                        start += self._take(array, 0)
                        break
                    count = min(<Py_ssize_t>CONVERTED, n - start)
                    with np.errstate(over="ignore"):
                        part = _checks.exact(array[start:start + count], "xs").astype(np.float64)
                    start += self._take(part, start)
                if start < n and self._is_full():
                    raise self._one_too_many(f"xs[{start}]")
            except BaseException:
                self.put_back(kept)
                raise
        finally:
            free(kept)
            guard_leave(&self.guard)
        return start

    cdef Py_ssize_t _take(self, cnp.ndarray array, Py_ssize_t first) except -1:
        """Use float32 or float64 rewards; `first` is their place in what the user passed."""
        cdef const char *data = <const char *>cnp.PyArray_DATA(array)
        cdef Py_ssize_t n = array.shape[0], stride = array.strides[0], used, bad = -1
        cdef bint single = cnp.PyArray_TYPE(array) == cnp.NPY_FLOAT32
        with nogil:
            used = self._run(data, n, stride, single, &bad)
        if bad >= 0:
            error = self._refuse(<double>array[bad], f"xs[{first + bad}]")
            error.index = first + bad       # for those who call the rewards by another name
            raise error
        return used

    cdef Py_ssize_t _run(self, const char *data, Py_ssize_t n, Py_ssize_t stride, bint single,
                         Py_ssize_t *bad) except -1 nogil:
        cdef double[STREAM_BLOCK] room
        cdef const double *x
        cdef Py_ssize_t start = 0, count, i, until_check = self.per_check
        cdef double low = self.least, high = self.most
        while start < n and self.s.status == RUNNING:
            count = min(<Py_ssize_t>STREAM_BLOCK, n - start, until_check)
            count = <Py_ssize_t>min(<int64_t>count, self.limit - self.s.n)
            if single:
                x = room
                for i in range(count):
                    room[i] = (<const float *>(data + (start + i) * stride))[0]
            elif stride == sizeof(double):
                x = <const double *>(data + start * stride)
            else:
                x = room
                for i in range(count):
                    room[i] = (<const double *>(data + (start + i) * stride))[0]
            if not fr_all_within(x, count, low, high):
                for i in range(count):
                    if low <= x[i] <= high:
                        continue
                    if not self.clip or not isfinite(x[i]):
                        bad[0] = start + i
                        count = i
                        break
                if self.clip:
                    count = self._clip(x, count, room)
                    x = room
            if self.binary:
                for i in range(count):
                    if self._between_ends(x[i]):
                        bad[0] = start + i
                        count = i
                        break
            i = self.extend(x, count)
            if x == room and i == count and self.clip and self._was_clipped(data, start + i - 1, stride, single):
                self.s.n_clipped += 1
            start += i
            until_check -= i
            if bad[0] == start and self.s.status == RUNNING:
                return start
            bad[0] = -1                 # the rule was over before it came to the bad reward, or is not there yet
            if self.s.status == RUNNING and self.s.n >= self.limit:
                self.give_up()
            elif until_check <= 0:
                check_signals()
                until_check = self.per_check
        return start

    cdef bint _between_ends(self, double x) noexcept nogil:
        return self.low + self.slack < x < self.high - self.slack

    cdef Py_ssize_t _clip(self, const double *x, Py_ssize_t n, double *out) noexcept nogil:
        """Copy rewards up to the first that must be clipped; return how many. What is not used is not counted."""
        cdef Py_ssize_t i
        for i in range(n):
            out[i] = x[i]
            if not self.least <= x[i] <= self.most:
                out[i] = self.low if x[i] < self.low else self.high
                return i + 1
        return n

    cdef bint _was_clipped(self, const char *data, Py_ssize_t i, Py_ssize_t stride, bint single) noexcept nogil:
        cdef double x
        if i < 0:
            return False
        x = (<const float *>(data + i * stride))[0] if single else (<const double *>(data + i * stride))[0]
        return not self.least <= x <= self.most

    def _refuse(self, x, place):
        """Why a reward cannot be taken."""
        if not self.bounded:
            return ValueError(f"{place} is {x!r}; a reward must be a finite number of at most {MOST_ABSOLUTE:g}: drop "
                              f"or replace it")
        if not isfinite(x):
            return ValueError(f"{place} is {x!r}; a reward must be a finite number inside support="
                              f"({self.low!r}, {self.high!r}): drop or replace it")
        if self.low < x < self.high:
            return ValueError(f"{place} is {x!r}, between the ends of support=({self.low!r}, {self.high!r}); a "
                              f"'beta-binomial' bound is for rewards that are one of the two ends, such as 0 and 1: "
                              f"say bound='universal' for others")
        return ValueError(f"{place} is {x!r}, outside support=({self.low!r}, {self.high!r}): the promise holds only "
                          f"for rewards inside it; widen support, scale the rewards or say outside='clip'")

    # Answers

    @property
    def n_samples(self):
        """Rewards used."""
        return self.s.n

    @property
    def n_clipped(self):
        """Rewards moved to the nearer end of the support, with ``outside="clip"``."""
        return self.s.n_clipped

    @property
    def stopped_by(self):
        """How it ended: ``"epsilon"`` or, for a sign, ``"bound"`` with a promise; ``"exact"`` (every row of a
        population was read), ``"inconsistent"`` (the promise was broken), ``"max_samples"``, or ``""`` while it is
        running.

        A rule over a population of `n_rows` that has become inconsistent is not `done`: it takes the rows that are
        left, as the mean is exact once every row has been read. With fewer `max_samples` than that it ends there, still
        inconsistent.
        """
        if self.s.status == RUNNING and self.s.lower - self.s.upper > self.slack:
            return STOPPED_BY[INCONSISTENT]
        if self.s.status == STOPPED and self.s.n == self.population:
            return "exact"
        if self.s.status == STOPPED and self.criterion_ == SIGN:
            return "bound"
        return STOPPED_BY[self.s.status]

    @property
    def stopped(self):
        """Whether the rule has stopped and `estimate` is promised."""
        return self.s.status == STOPPED

    @property
    def done(self):
        """Whether it takes no more rewards."""
        return self.s.status != RUNNING

    @property
    def support(self):
        """Interval that holds every reward; None if it is unknown, and the interval of the mean asymptotic."""
        return (self.low, self.high) if self.bounded else None

    @property
    def epsilon(self):
        """Accuracy asked for."""
        return self.epsilon_

    @property
    def delta(self):
        """Promised probability of error."""
        return self.delta_

    @property
    def criterion(self):
        """What the rule stops by: ``"relative"``, ``"absolute"``, ``"sign"`` or ``"never"``."""
        return CRITERIA[self.criterion_]

    @property
    def max_samples(self):
        """Most rewards used, or None."""
        return None if self.limit == INT64_MAX else self.limit

    @property
    def estimate(self):
        """The promised estimate once stopped; before, the mean of the rewards used, without a promise."""
        guard_check_built(&self.guard, self)
        return self.s.answer if self.s.status == STOPPED else self.mean()

    @property
    def interval(self):
        """Interval (lower, upper) that holds the mean at all times with probability at least ``1 - delta``."""
        return guarded(&self.guard, self, self._interval, ())

    def _interval(self):
        if self.s.lower > self.s.upper >= self.s.lower - self.slack:
            middle = 0.5 * (self.s.lower + self.s.upper)
            return middle, middle
        return self.s.lower, self.s.upper

    def _stopped_by_floor(self):
        return bool(self.s.by_floor)

    def _doubts(self):
        """What was seen that may void the promise, in words."""
        return ()

    # Saving

    def __reduce__(self):
        cdef stream_t s
        guard_enter(&self.guard, self)
        try:
            s = self.s
            own = self._own_state()
        finally:
            guard_leave(&self.guard)
        shared = (s.n, s.n_clipped, s.status, bool(s.by_floor), s.lower, s.upper, s.answer)
        return _restore.saved(type(self), self.arguments, shared, own, extra=getattr(self, "__dict__", None))

    def _set_state(self, shared, own):
        cdef stream_t s
        (s.n, s.n_clipped, s.status, s.by_floor, s.lower, s.upper, s.answer) = shared
        guard_enter(&self.guard, self)
        try:
            # The limits of `s.lower` and `s.upper` hold for a mean and for its absolute value.
            if not (0 <= s.n <= self.limit and 0 <= s.n_clipped <= s.n and 0 <= s.status < len(STOPPED_BY)
                    and s.lower == s.lower and s.upper == s.upper
                    and (s.status != STOPPED or isfinite(s.answer))):
                raise DamagedError("the saved stream is damaged: its counts cannot be right")
            self.s = s
            self._set_own_state(own)
        finally:
            guard_leave(&self.guard)


cdef class Over(Stream):
    """A rule over a stream that was made for it: the inner one brings the interval and the criterion."""

    def __cinit__(self, *args, **kwargs):
        guard_await(&self.guard, 1)

    def _configure_over(self, arguments, Stream inner not None):
        guard_check_built(&inner.guard, inner)
        self._configure(arguments, support=inner.support, criterion=CRITERIA[inner.criterion_],
                        epsilon=inner.epsilon_, delta=inner.delta_, threshold=inner.threshold,
                        max_samples=inner.max_samples, outside="clip" if inner.clip else "raise")
        self.inner = inner
        self.s = inner.s
        self.population = inner.population
        self.per_check = inner.per_check
        self.binary = inner.binary
        guard_built(&self.guard, 1)

    def _knows_reach(self):
        return self.inner._knows_reach()

    def _reach(self, low, high):
        Stream._reach(self, low, high)
        self.inner._reach(low, high)

    def _inner(self):
        guard_check_built(&self.guard, self)
        return self.inner

    cdef void push(self, double x) noexcept nogil:
        self.inner.s = self.s
        self.inner.push(x)
        self.s = self.inner.s

    cdef Py_ssize_t extend(self, const double *x, Py_ssize_t n) noexcept nogil:
        cdef Py_ssize_t used
        self.inner.s = self.s
        used = self.inner.extend(x, n)
        self.s = self.inner.s
        return used

    cdef double mean(self) noexcept nogil:
        return self.inner.mean()

    cdef Py_ssize_t keep(self, char *to) noexcept nogil:
        self.inner.s = self.s
        return self.inner.keep(to)

    cdef void put_back(self, const char *kept) noexcept nogil:
        self.inner.put_back(kept)
        self.s = self.inner.s

    def _interval(self):
        guard_check_built(&self.guard, self)
        self.inner.s = self.s
        return self.inner._interval()

    def _doubts(self):
        guard_check_built(&self.guard, self)
        return self.inner._doubts()

    def _own_state(self):
        guard_check_built(&self.guard, self)
        return self.inner._own_state()

    def _set_own_state(self, state):
        guard_check_built(&self.guard, self)
        self.inner.s = self.s               # its sums are checked against the count
        self.inner._set_own_state(state)


@_checks.rebuilds(1, Stream, subclasses=True)
def _restore(cls, arguments, shared, own):
    """Rebuild what was pickled."""
    cdef Stream new = cls(**getattr(cls, "_as_saved", dict)(arguments))
    new._set_state(shared, own)
    return new
