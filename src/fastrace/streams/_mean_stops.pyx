# cython: cdivision=True
"""Stopping rules that watch sums or running moments: NAS, EBStop and EBGStop, the stopping rule algorithm and AA."""

from libc.math cimport INFINITY, NAN, ceil, fabs, log, sqrt
from libc.stdint cimport INT64_MAX, int64_t

from fastrace._base._checks import DamagedError
from fastrace._base._guard cimport guard_await, guard_build, guard_built
from fastrace._math._bounds cimport empirical_bernstein_within, hoeffding
from fastrace._math._criteria cimport ABSOLUTE, RELATIVE, SIGN, half_width_met, relative_answer, relative_met
from fastrace._math._moments cimport running_add, running_t, two_sum
from fastrace._math._schedules cimport (EVERY, GEOMETRIC, ONCE, log_inv_share, log_inv_telescoping_delta, next_on_grid,
                                        spend, spending_t, upsilon_final, upsilon_sum)
from fastrace.streams._stopping cimport INCONSISTENT, RUNNING, Stream

cdef extern from "_stop.h" nogil:
    ctypedef struct fr_look:
        double centre, m2, t, x, span
        int absolute
    void fr_prefix_sums(const double *x, Py_ssize_t n, double centre, double *s, double *q, double *all_s,
                        double *all_q) noexcept
    bint fr_may_improve(const fr_look *look, const double *s, const double *q, Py_ssize_t n, double lower,
                        double upper) noexcept
    void fr_extremes(const fr_look *look, const double *s, const double *q, Py_ssize_t n, double *lower,
                     double *upper) noexcept

cdef enum:
    BLOCK = 512             # rewards 1 .. BLOCK, BLOCK + 1 .. 2 BLOCK and so on share a centre, whatever the portions
    FEW = 24                # rewards that are faster one at a time than as a block
    AT_ONCE = 256           # rewards of NAS between two thresholds

SCHEDULES = {"once": ONCE, "every": EVERY, "geometric": GEOMETRIC}


# A mean by its sum, with what rounding left out.

cdef struct sum_t:
    double sum, rest


cdef inline void sum_push(sum_t *a, double x) noexcept nogil:
    cdef double low = 0.0
    a.sum = two_sum(a.sum, x, &low)
    a.rest += low


cdef struct nas_t:
    sum_t total
    double k, next              # number and place of the next test on a grid


cdef class HoeffdingStop(Stream):
    """NAS of Domingo, Gavalda & Watanabe, after every reward or on a geometric grid (`beta` > 1)."""

    cdef nas_t own
    cdef double beta, log_inv_delta, log_inv_honest

    def __cinit__(self, *args, **kwargs):
        guard_await(&self.guard, 1)

    def _configure_hoeffding(self, *, beta=0.0, two_sided=True):
        guard_build(&self.guard, 1, self)
        self.beta = beta
        self.log_inv_honest = -log(self.delta_) + log(2.0)
        self.log_inv_delta = self.log_inv_honest if two_sided else -log(self.delta_)
        self.own.k = 1.0
        self.own.next = 1.0
        guard_built(&self.guard, 1)

    cdef void *memory(self, Py_ssize_t *size) noexcept nogil:
        size[0] = sizeof(nas_t)
        return &self.own

    cdef double mean(self) noexcept nogil:
        return (self.own.total.sum + self.own.total.rest) / <double>self.s.n if self.s.n else NAN

    cdef inline double _half_width(self, double log_inv_delta) noexcept nogil:
        cdef double k = self.own.k if self.beta > 0.0 else <double>self.s.n
        return hoeffding(self.s.n, log_inv_telescoping_delta(k, log_inv_delta), self.high - self.low)

    cdef void _test(self) noexcept nogil:
        cdef double mean = self.mean(), honest
        if self.beta > 0.0 or self.floor > 0.0:
            honest = self._half_width(self.log_inv_honest)
            if self.beta > 0.0:
                self.s.lower = max(self.s.lower, mean - honest)
                self.s.upper = min(self.s.upper, mean + honest)
                if self.s.lower - self.s.upper > self.slack:
                    self.s.status = INCONSISTENT
                    return
        if half_width_met(mean, self._half_width(self.log_inv_delta), self.epsilon_):
            self.stop(mean)
        elif self.floor > 0.0 and fabs(mean) + honest <= self.floor:
            self.stop(0.0)
            self.s.by_floor = True
        if self.beta > 0.0:
            self.own.next = next_on_grid(<double>self.s.n, self.beta, &self.own.k)

    cdef void push(self, double x) noexcept nogil:
        sum_push(&self.own.total, x)
        if self.beta == 0.0 or <double>self.s.n >= self.own.next:
            self._test()

    cdef Py_ssize_t extend(self, const double *x, Py_ssize_t n) noexcept nogil:
        """Test only where the sum has grown beyond a threshold that grows with t; on a grid, only there."""
        cdef Py_ssize_t i = 0, stop
        cdef double needed
        cdef sum_t total
        while i < n:
            stop = min(n, i + AT_ONCE)
            if self.beta > 0.0:
                needed = INFINITY
                if self.own.next - <double>self.s.n <= <double>(stop - i):
                    stop = i + <Py_ssize_t>(self.own.next - <double>self.s.n)
            elif self.floor > 0.0:
                needed = 0.0
            else:
                self.s.n += 1
                needed = (1.0 - 1e-9) * self._half_width(self.log_inv_delta) * (1.0 + 1.0 / self.epsilon_) * self.s.n
                self.s.n -= 1
            total = self.own.total
            while i < stop:
                sum_push(&total, x[i])
                i += 1
                self.s.n += 1
                if fabs(total.sum) + fabs(total.rest) >= needed:
                    self.own.total = total
                    self._test()
                    if self.s.status != RUNNING:
                        return i
            self.own.total = total
            if self.beta > 0.0 and <double>self.s.n >= self.own.next:
                self._test()
                if self.s.status != RUNNING:
                    return i
        return n

    def _interval(self):
        if self.beta > 0.0 or self.s.n == 0:
            return Stream._interval(self)
        middle, width = self.mean(), self._half_width(self.log_inv_honest)
        return max(self.low, middle - width), min(self.high, middle + width)

    def _own_state(self):
        return self.own.total.sum, self.own.total.rest, self.own.k, self.own.next

    def _set_own_state(self, state):
        self.own.total.sum, self.own.total.rest, self.own.k, self.own.next = state


cdef struct bernstein_t:
    running_t before            # moments of the whole blocks
    int64_t count               # rewards of the block that is being filled
    double centre, m2           # its centre, the mean of what came before, and their squared deviations from it
    double s, q                 # sums of deviations from the centre and of their squares, in this block
    double end, x               # last t of the interval of the grid, and what enters the half-width there


cdef class BernsteinStop(Stream):
    """EBStop and EBGStop, Algorithms 2 and 3 of Mnih, Szepesvari & Audibert (2008), with any criterion.

    For a relative accuracy `s.lower` and `s.upper` bracket the absolute value of the mean, else the mean.
    """

    cdef bernstein_t own
    cdef spending_t how
    cdef bint absolute
    cdef double span
    cdef int64_t cap

    def __cinit__(self, *args, **kwargs):
        guard_await(&self.guard, 1)

    def _configure_bernstein(self, *, schedule, spending="poly", beta=0.0, power=0.0, use_support=True, cap=None):
        """`cap`: the t at which a half-width of Hoeffding's at delta (with "once") or delta / 2 is looked at."""
        guard_build(&self.guard, 1, self)
        self.how.schedule = SCHEDULES[schedule]
        self.how.telescoping = spending == "telescoping"
        self.how.beta = beta
        self.how.power = power
        self.span = self.high - self.low
        self.cap = INT64_MAX if cap is None else cap
        self.how.log_inv_delta = -log(self.delta_) + log(3.0)      # empirical Bernstein counts three failures at each t
        if cap is not None and self.how.schedule != ONCE:
            self.how.log_inv_delta += log(2.0)
        self.absolute = self.criterion_ == RELATIVE
        if self.absolute:
            self.s.lower = max(0.0, self.low, -self.high) if use_support else 0.0
            self.s.upper = max(fabs(self.low), fabs(self.high)) if use_support else INFINITY
        elif not use_support:
            self.s.lower, self.s.upper = -INFINITY, INFINITY
        guard_built(&self.guard, 1)

    cdef void *memory(self, Py_ssize_t *size) noexcept nogil:
        size[0] = sizeof(bernstein_t)
        return &self.own

    cdef double mean(self) noexcept nogil:
        return self.own.centre + self.own.s / <double>self.s.n if self.s.n else NAN

    cdef inline void _spend(self, double t) noexcept nogil:
        """Set `x` for t."""
        spend(&self.how, t, &self.own.end, &self.own.x)

    # Moments, in blocks that begin at the same t whatever the portions

    cdef inline void _open(self, double x) noexcept nogil:
        """Settle the centre of a new block."""
        self.own.centre = self.own.before.mean if self.own.before.n else x
        self.own.m2 = max(self.own.before.m2 + self.own.before.m2_low, 0.0)

    cdef inline void _close(self) noexcept nogil:
        """Merge a full block."""
        cdef double share = self.own.s / <double>BLOCK
        running_add(&self.own.before, <double>BLOCK, self.own.centre, share,
                    max(self.own.q - self.own.s * share, 0.0), 0.0)
        self.own.before.n += BLOCK
        self.own.count = 0
        self._open(0.0)
        self.own.s = self.own.q = 0.0

    cdef inline void _advance(self, Py_ssize_t n) noexcept nogil:
        self.own.count += n
        self.s.n += n
        if self.own.count == BLOCK:
            self._close()

    # One reward

    cdef void push(self, double x) noexcept nogil:
        cdef double d
        if self.own.count == 0:
            self._open(x)
        d = x - self.own.centre
        self.own.s += d
        self.own.q += d * d
        if self.s.n > 1 and self.how.schedule != ONCE:
            self._test(<double>self.s.n)
        if self.s.n == self.cap and self.s.status == RUNNING:
            self._test_at_cap()
        self.s.n -= 1
        self._advance(1)

    cdef void _test(self, double t) noexcept nogil:
        cdef double share = 1.0 / t, mean = self.own.centre + self.own.s * share
        cdef double spread = self.own.m2 + self.own.q - self.own.s * self.own.s * share, width, middle
        self._spend(t)
        width = empirical_bernstein_within(share, spread if spread > 0.0 else 0.0, self.own.x, self.span)
        middle = fabs(mean) if self.absolute else mean
        if middle - width > self.s.lower:
            self.s.lower = middle - width
        if middle + width < self.s.upper:
            self.s.upper = middle + width
        self._conclude(mean)

    cdef void _test_at_cap(self) noexcept nogil:
        cdef double mean = self.mean()
        cdef double log_inv = -log(self.delta_) + (log(2.0) if self.how.schedule == ONCE else log(4.0))
        cdef double width = hoeffding(self.s.n, log_inv, self.span)
        self.judge(mean - width, mean + width)

    cdef inline void _conclude(self, double mean) noexcept nogil:
        if not self.absolute:
            self.conclude()
        elif self.s.lower - self.s.upper > self.slack:
            self.s.status = INCONSISTENT
        elif relative_met(self.s.lower, self.s.upper, self.epsilon_):
            self.stop(relative_answer(self.s.lower, self.s.upper, self.epsilon_) * (1.0 if mean > 0.0 else -1.0))
        elif self.s.upper <= self.floor:
            self.stop(0.0)
            self.s.by_floor = True

    cdef inline bint _would_end(self, double lower, double upper) noexcept nogil:
        """Whether a bracket ends the stream for one reason or another."""
        if lower > upper:
            return True
        if self.criterion_ == RELATIVE:
            return relative_met(lower, upper, self.epsilon_) or upper <= self.floor
        if self.criterion_ == ABSOLUTE:
            return upper - lower <= 2.0 * self.epsilon_
        return self.criterion_ == SIGN and (lower > self.threshold or upper < self.threshold)

    # Many

    cdef Py_ssize_t extend(self, const double *x, Py_ssize_t n) noexcept nogil:
        """Walk reward by reward only where a test may end the stream; elsewhere a block at a time, with the same bits.

        Brackets only shrink, so a block ends the stream somewhere exactly if its extremes do.
        """
        cdef double[BLOCK] all_s, all_q
        cdef double s, q, lower, upper
        cdef Py_ssize_t i = 0, count, _j
        cdef bint improving = False
        cdef fr_look look
        look.span = self.span
        look.absolute = self.absolute
        while i < n:
            count = min(n - i, <Py_ssize_t>(BLOCK - self.own.count))
            if self.s.n < self.cap:
                count = <Py_ssize_t>min(<int64_t>count, self.cap - 1 - self.s.n)
            if self.s.n == 0:           # the first reward is not tested
                count = 1
            elif self.how.schedule == GEOMETRIC:
                self._spend(<double>self.s.n + 1.0)
                count = <Py_ssize_t>min(<double>count, self.own.end - <double>self.s.n)
            elif self.how.schedule == EVERY:
                self._spend(<double>self.s.n + 1.0)
            if count >= FEW and self.s.n > FEW:
                s, q = self.own.s, self.own.q
                fr_prefix_sums(x + i, count, self.own.centre, &s, &q, all_s, all_q)
                look.centre = self.own.centre
                look.m2 = self.own.m2
                look.t = <double>self.s.n
                look.x = self.own.x
                lower, upper = self.s.lower, self.s.upper
                if self.how.schedule != ONCE and (
                        improving or fr_may_improve(&look, all_s, all_q, count, lower, upper)):
                    if self.how.schedule == EVERY:
                        self._narrow(all_s, all_q, count, &lower, &upper)
                    else:
                        fr_extremes(&look, all_s, all_q, count, &lower, &upper)
                    lower = max(lower, self.s.lower)
                    upper = min(upper, self.s.upper)
                    improving = lower > self.s.lower or upper < self.s.upper    # then the next block may well do so
                if not self._would_end(lower, upper):
                    self.s.lower = lower
                    self.s.upper = upper
                    self.own.s = s
                    self.own.q = q
                    self._advance(count)
                    i += count
                    continue
            for _j in range(max(count, <Py_ssize_t>1)):
                self.s.n += 1
                self.push(x[i])
                i += 1
                if self.s.status != RUNNING:
                    return i
        return n

    cdef void _narrow(self, const double *s, const double *q, Py_ssize_t n, double *lower,
                      double *upper) noexcept nogil:
        """Extremes over a block where every t has its own share of delta."""
        cdef double share, mean, spread, width, x
        cdef Py_ssize_t i
        for i in range(n):
            x = log_inv_share(&self.how, <double>(self.s.n + 1 + i))
            share = 1.0 / <double>(self.s.n + 1 + i)
            mean = self.own.centre + s[i] * share
            spread = self.own.m2 + q[i] - s[i] * s[i] * share
            width = empirical_bernstein_within(share, spread if spread > 0.0 else 0.0, x, self.span)
            if self.absolute:
                mean = fabs(mean)
            lower[0] = max(lower[0], mean - width)
            upper[0] = min(upper[0], mean + width)

    def _interval(self):
        low, high = self.s.lower, self.s.upper
        if self.absolute:
            if low <= 0.0:
                low = -high
            elif self.mean() < 0.0:
                low, high = -high, -low
        return max(low, self.low), min(high, self.high)

    def _own_state(self):
        cdef bernstein_t own = self.own
        return (own.before.n, own.before.mean, own.before.mean_low, own.before.m2, own.before.m2_low, own.count,
                own.centre, own.m2, own.s, own.q, own.end, own.x)

    def _set_own_state(self, state):
        cdef bernstein_t own
        (own.before.n, own.before.mean, own.before.mean_low, own.before.m2, own.before.m2_low, own.count,
         own.centre, own.m2, own.s, own.q, own.end, own.x) = state
        if not (0 <= own.count < BLOCK and own.before.n >= 0 and own.before.n % BLOCK == 0):
            raise DamagedError("the saved stream is damaged: its counts cannot be right")
        self.own = own


cdef class SumStop(Stream):
    """The stopping rule algorithm of Dagum, Karp, Luby & Ross (2000), for rewards in [0, high]."""

    cdef sum_t own
    cdef double wanted

    def __cinit__(self, *args, **kwargs):
        guard_await(&self.guard, 1)

    def _configure_sums(self):
        guard_build(&self.guard, 1, self)
        self.wanted = upsilon_sum(self.epsilon_, -log(self.delta_))
        guard_built(&self.guard, 1)

    cdef void *memory(self, Py_ssize_t *size) noexcept nogil:
        size[0] = sizeof(sum_t)
        return &self.own

    cdef double mean(self) noexcept nogil:
        return (self.own.sum + self.own.rest) * self.high / <double>self.s.n if self.s.n else NAN

    cdef void push(self, double x) noexcept nogil:
        sum_push(&self.own, x / self.high)
        if self.own.sum + self.own.rest >= self.wanted:
            self.stop(self.wanted / <double>self.s.n * self.high)
            self.s.lower = max(self.s.lower, self.s.answer / (1.0 + self.epsilon_))
            self.s.upper = min(self.s.upper, self.s.answer / (1.0 - self.epsilon_))

    def _own_state(self):
        return self.own.sum, self.own.rest

    def _set_own_state(self, state):
        self.own.sum, self.own.rest = state


cdef struct aa_t:
    int64_t phase               # 1, 2 or 3
    int64_t left                # pairs of phase 2, or rewards of phase 3, still to come
    int64_t size                # of phase 2 in pairs, of phase 3 in rewards
    bint has_first
    double first                # of a pair
    double rough                # the mean of phase 1
    sum_t part                  # what the phase adds up
    sum_t total                 # of all rewards


cdef class ApproximationStop(Stream):
    """The algorithm AA of Dagum, Karp, Luby & Ross (2000), for rewards in [0, high]."""

    cdef aa_t own
    cdef double rough_epsilon, wanted, final

    def __cinit__(self, *args, **kwargs):
        guard_await(&self.guard, 1)

    def _configure_sums(self):
        guard_build(&self.guard, 1, self)
        self.rough_epsilon = min(0.5, sqrt(self.epsilon_))
        self.wanted = upsilon_sum(self.rough_epsilon, -log(self.delta_) + log(3.0))
        self.final = upsilon_final(self.epsilon_, -log(self.delta_))
        self.own.phase = 1
        guard_built(&self.guard, 1)

    cdef void *memory(self, Py_ssize_t *size) noexcept nogil:
        size[0] = sizeof(aa_t)
        return &self.own

    cdef double mean(self) noexcept nogil:
        cdef double total = self.own.total.sum + self.own.total.rest
        return total * self.high / <double>self.s.n if self.s.n else NAN

    cdef inline void _begin(self, int64_t phase, double size) noexcept nogil:
        self.own.phase = phase
        self.own.size = self.own.left = <int64_t>min(ceil(size), 4e18)
        self.own.part.sum = self.own.part.rest = 0.0

    cdef void push(self, double x) noexcept nogil:
        cdef double z = x / self.high, rho, d
        sum_push(&self.own.total, z)
        if self.own.phase == 1:
            sum_push(&self.own.part, z)
            if self.own.part.sum + self.own.part.rest >= self.wanted:
                self.own.rough = self.wanted / <double>self.s.n
                self._bracket(self.own.rough * self.high, self.rough_epsilon)
                self._begin(2, self.final * self.epsilon_ / self.own.rough)
        elif self.own.phase == 2:
            if not self.own.has_first:
                self.own.first = z
                self.own.has_first = True
                return
            self.own.has_first = False
            d = self.own.first - z
            sum_push(&self.own.part, 0.5 * d * d)
            self.own.left -= 1
            if self.own.left == 0:
                rho = max((self.own.part.sum + self.own.part.rest) / <double>self.own.size,
                          self.epsilon_ * self.own.rough)
                self._begin(3, self.final * rho / (self.own.rough * self.own.rough))
        else:
            sum_push(&self.own.part, z)
            self.own.left -= 1
            if self.own.left == 0:
                self.stop((self.own.part.sum + self.own.part.rest) / <double>self.own.size * self.high)
                self._bracket(self.s.answer, self.epsilon_)

    cdef void _bracket(self, double estimate, double epsilon) noexcept nogil:
        """What an estimate of that relative accuracy says; phases 1 and 3 err with probability delta together."""
        self.s.lower = max(self.low, estimate / (1.0 + epsilon))
        self.s.upper = min(self.high, estimate / (1.0 - epsilon))

    @property
    def phase(self):
        """1: rough mean, 2: variance, 3: mean."""
        return self.own.phase

    def _own_state(self):
        cdef aa_t own = self.own
        return (own.phase, own.left, own.size, bool(own.has_first), own.first, own.rough, own.part.sum, own.part.rest,
                own.total.sum, own.total.rest)

    def _set_own_state(self, state):
        cdef aa_t own
        (own.phase, own.left, own.size, own.has_first, own.first, own.rough, own.part.sum, own.part.rest,
         own.total.sum, own.total.rest) = state
        if not (1 <= own.phase <= 3 and 0 <= own.left <= own.size):
            raise DamagedError("the saved stream is damaged: its counts cannot be right")
        self.own = own
