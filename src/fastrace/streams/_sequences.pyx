"""Confidence sequences for the mean of a bounded stream, and the rules that stop by them: one kernel per bound.

A kernel turns a block of rewards into running bounds; what is done with these, by block or by single reward, is here.
"""

from libc.math cimport INFINITY, NAN, log
from libc.stdint cimport INT64_MAX, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from fastrace._base._checks import DamagedError
from fastrace._base._guard cimport guard_await, guard_build, guard_built, guard_check_built
from fastrace._math._anytime cimport (incomplete_gamma, incomplete_gamma_t, log_mixture_start, mixture_boundary,
                                      mixture_rho)
from fastrace._math._bets cimport (FR_BLOCK, FR_CANDIDATES, fr_bet_t, fr_betting, fr_grid_copy, fr_grid_init,
                                   fr_grid_merge, fr_grid_t, fr_hoeffding, fr_moments_only, fr_narrowest,
                                   fr_normal_mixture, fr_plug_in, fr_plug_in_push, fr_scale, fr_stitched, fr_stitching,
                                   fr_sums_init, fr_sums_t, fr_target, fr_target_push, fr_threshold, fr_unit)
from fastrace._math._bounds cimport tie_width
from fastrace._math._schedules cimport next_look
from fastrace.streams._stopping cimport INCONSISTENT, RUNNING, Stream, stream_t

KERNELS = ("target", "plug-in", "stitched", "mixture", "hoeffding", "betting", "target-betting", "threshold")

cdef enum:                      # places in KERNELS
    TARGET
    PLUG_IN
    STITCHED
    MIXTURE
    HOEFFDING
    BETTING
    TARGET_BETTING
    THRESHOLD

cdef double LOOKS_GROW = 1.002          # between two looks at the mixture boundary, which costs 2 us

cdef struct state_t:
    fr_sums_t sums
    int64_t look                # reward at which the mixture boundary is looked at next
    fr_grid_t grid              # last, and absent where no grid is used


cdef inline void _copy(state_t *to, const state_t *source, bint grid) noexcept nogil:
    to.sums = source.sums
    to.look = source.look
    if grid:
        fr_grid_copy(&to.grid, &source.grid)


cdef class Sequence(Stream):
    """A stream with a running interval of its mean; subclasses check the arguments and call `_open` once."""

    cdef fr_bet_t bet
    cdef int kernel
    cdef state_t *state
    cdef Py_ssize_t size                    # bytes of the state
    cdef bint grid                          # whether it has one
    cdef incomplete_gamma_t below           # of the mixture boundary
    cdef double start                       # and what its logarithm begins with

    def __cinit__(self, *args, **kwargs):
        guard_await(&self.guard, 1)
        self.size = 0

    def __dealloc__(self):
        free(self.state)

    def _open(self, arguments, kernel, *, n_rows=None, cap=0.5, best_at=25.0, **shared):
        """Set everything, from arguments that have been checked; `shared` goes to `Stream._configure`."""
        cdef double span, epsilon
        guard_build(&self.guard, 1, self)
        self.kernel = KERNELS.index(kernel)
        if n_rows is not None:
            limit = shared.get("max_samples")
            shared["max_samples"] = n_rows if limit is None else min(limit, n_rows)
            self.population = n_rows
        self._configure(arguments, **shared)
        self.size = sizeof(state_t)
        self.grid = self.kernel == BETTING or self.kernel == TARGET_BETTING
        if not self.grid:
            self.size -= sizeof(fr_grid_t)
        free(self.state)
        self.state = <state_t *>calloc(1, self.size)
        if self.state == NULL:
            raise MemoryError(f"no memory for {self.size} bytes")
        span = self.high - self.low
        epsilon = self.epsilon_
        self.bet.level = log(2.0) - log(self.delta_) if self.kernel != THRESHOLD else -log(self.delta_)
        self.bet.cap = cap
        self.bet.n_rows = INFINITY if n_rows is None else <double>n_rows
        self.bet.rho = mixture_rho(best_at, max(self.bet.level, log(2.0) + 0.05))
        self.bet.slope, self.bet.offset, self.bet.floor, self.bet.zero = 0.0, 0.0, 1e-12, -1.0
        criterion = self.criterion
        if criterion == "relative":
            self.bet.slope, self.bet.offset = epsilon, self.low / span
            if self.floor > 0.0:
                self.bet.zero = self.floor / span
        elif criterion == "absolute":
            self.bet.floor = epsilon / span
        elif criterion == "sign":
            self.bet.slope, self.bet.offset = 1.0, -(self.threshold - self.low) / span
            self.bet.floor = tie_width(self.low, self.high) / span
        if self.kernel == MIXTURE:
            self.below = incomplete_gamma()
            self.start = log_mixture_start(self.bet.rho, self.below)
            self.per_check = 1 << 14
        elif self.grid:
            self.per_check = 1 << 15
        fr_sums_init(&self.state.sums)
        self.state.look = 1
        if self.grid:
            fr_grid_init(&self.bet, &self.state.grid)
        guard_built(&self.guard, 1)

    # Kernels

    cdef void _run_kernel(self, const double *z, int n, double *low, double *high) noexcept nogil:
        cdef fr_sums_t *sums = &self.state.sums
        if self.kernel == TARGET:
            fr_target(&self.bet, sums, z, n, low, high)
        elif self.kernel == PLUG_IN:
            fr_plug_in(&self.bet, sums, z, n, low, high)
        elif self.kernel == STITCHED:
            fr_stitching(&self.bet, sums, z, n, low, high)
        elif self.kernel == HOEFFDING:
            fr_hoeffding(&self.bet, sums, z, n, low, high)
        elif self.kernel == THRESHOLD:
            fr_threshold(&self.bet, sums, z, n, low, high)
        elif self.kernel == MIXTURE:
            fr_moments_only(&self.bet, sums, z, n, low, high)
            if <int64_t>sums.n >= self.state.look:
                self._now(&low[n - 1], &high[n - 1])
                self.state.look = next_look(<int64_t>sums.n, INT64_MAX, 1, LOOKS_GROW)
        else:
            fr_betting(&self.bet, sums, &self.state.grid, self.kernel == TARGET_BETTING, z, n, low, high)

    cdef void _now(self, double *low, double *high) noexcept nogil:
        """Bounds as of now, of a kernel whose streams can be merged."""
        cdef fr_sums_t *sums = &self.state.sums
        cdef double middle = (sums.total - 0.5) / sums.n, half
        if self.kernel == BETTING:
            low[0] = self.state.grid.mean[self.state.grid.first] if not self.state.grid.refuted else 1.0
            high[0] = self.state.grid.mean[self.state.grid.last] if not self.state.grid.refuted else 0.0
            return
        if self.kernel == PLUG_IN:
            middle = sums.centre[0] / sums.weight[0]
            half = (self.bet.level + sums.penalty[0]) / sums.weight[0]
        elif self.kernel == STITCHED:
            half = fr_stitched(self.bet.level, sums.penalty[0]) / sums.n
        elif self.kernel == HOEFFDING:
            half = fr_normal_mixture(self.bet.level, 0.25 * sums.n, self.bet.rho) / sums.n
        else:
            half = mixture_boundary(sums.penalty[0], self.bet.rho, self.start, self.below, self.bet.level) / sums.n
        low[0] = middle - half
        high[0] = middle + half

    cdef void _learn(self, double low, double high) noexcept nogil:
        """Judge by bounds on the scale of [0, 1]; those of a test are 1 and -1 where a side was found."""
        cdef double span = self.high - self.low
        if self.kernel != THRESHOLD:
            if self.s.n == self.population:
                self.s.lower = max(self.s.lower, self.low + span * low)
                self.s.upper = min(self.s.upper, self.low + span * high)
                self.settle(self.mean())
            else:
                self.judge(self.low + span * low, self.low + span * high)
        elif low > 0.0:
            self.s.lower = self.threshold
            self.stop(1.0)
        elif high < 0.0:
            self.s.upper = self.threshold
            self.stop(-1.0)
        elif self.s.n == self.population:       # on neither side
            self.s.lower = self.s.upper = self.mean()

    # What a stream must supply

    cdef void push(self, double x) noexcept nogil:
        cdef double z = fr_unit(x, self.low, self.high - self.low), low, high
        if self.kernel == TARGET and self.bet.n_rows == INFINITY:
            fr_target_push(&self.bet, &self.state.sums, z, &low, &high)
        elif self.kernel == PLUG_IN and self.bet.n_rows == INFINITY:
            fr_plug_in_push(&self.bet, &self.state.sums, z, &low, &high)
        else:
            self._run_kernel(&z, 1, &low, &high)
        self._learn(low, high)

    cdef Py_ssize_t extend(self, const double *x, Py_ssize_t n) noexcept nogil:
        cdef Py_ssize_t start = 0, count
        while start < n:
            count = min(<Py_ssize_t>FR_BLOCK, n - start)
            if self.kernel == MIXTURE:
                count = <Py_ssize_t>min(<int64_t>count, self.state.look - self.s.n)
            start += self._block(x + start, <int>count)
            if self.s.status != RUNNING:
                break
        return start

    cdef int _block(self, const double *x, int n) noexcept nogil:
        """A stop shows in the narrowest bounds of a block; only then is the reward it came at looked for."""
        cdef double[FR_BLOCK] z, low, high
        cdef double[2] narrowest
        cdef state_t before
        cdef stream_t seen = self.s
        cdef int i = 0
        _copy(&before, self.state, self.grid)
        fr_scale(x, n, self.low, self.high - self.low, z)
        self._run_kernel(z, n, low, high)
        fr_narrowest(low, high, n, narrowest)
        self.s.n += n
        self._learn(narrowest[0], narrowest[1])
        if self.s.status == RUNNING and (self.s.lower <= self.s.upper or seen.lower > seen.upper):
            return n                # not if the interval of a population became empty: it may have stopped before
        self.s = seen
        for i in range(n):
            self.s.n += 1
            self._learn(low[i], high[i])
            if self.s.status != RUNNING:
                break
        if i + 1 < n:
            _copy(self.state, &before, self.grid)
            self._run_kernel(z, i + 1, low, high)
        return i + 1

    cdef double mean(self) noexcept nogil:
        if self.s.n == 0:
            return NAN
        return self.low + (self.high - self.low) * ((self.state.sums.total - 0.5) / self.state.sums.n)

    cdef void *memory(self, Py_ssize_t *size) noexcept nogil:
        size[0] = self.size
        return self.state

    def _own_state(self):
        cdef const char *data = <const char *>self.state
        return self.kernel, data[:self.size]

    def _set_own_state(self, state):
        kernel, data = state
        if kernel != self.kernel or not isinstance(data, bytes) or len(data) != self.size:
            raise DamagedError("the saved stream is damaged: its sums do not fit its arguments")
        cdef const char *source = data
        cdef state_t new
        cdef int k
        new.grid.first = new.grid.last = 0
        memcpy(&new, source, self.size)
        if self.grid and not 0 <= new.grid.first < new.grid.last <= FR_CANDIDATES + 1:
            raise DamagedError("the saved stream is damaged: its candidates cannot be right")
        if new.sums.n != <double>self.s.n or new.look < 1 or (
                self.kernel == MIXTURE and self.s.status == RUNNING and new.look <= self.s.n):
            raise DamagedError("the saved stream is damaged: its counts cannot be right")
        for k in range(new.grid.first, new.grid.last + 1 if self.grid else new.grid.first):
            if not (0.0 <= new.grid.mean[k] <= 1.0 and 0.0 <= new.grid.above[k] and 0.0 <= new.grid.below[k]
                    and (k == new.grid.first or new.grid.mean[k - 1] < new.grid.mean[k])):
                raise DamagedError("the saved stream is damaged: its candidates cannot be right")
        memcpy(self.state, &new, self.size)

    def _interval(self):
        """The running intersection; with the mixture boundary also as of now, which is not kept."""
        cdef double low, high, span = self.high - self.low
        cdef stream_t kept = self.s
        if self.kernel == MIXTURE and self.s.n and self.s.status == RUNNING:
            self._now(&low, &high)
            lower, upper = max(kept.lower, self.low + span * low), min(kept.upper, self.low + span * high)
            if lower <= upper:
                return lower, upper
        return Stream._interval(self)

    @property
    def n_rows(self):
        """Size of the population sampled without replacement, or None."""
        return None if self.bet.n_rows == INFINITY else int(self.bet.n_rows)

    def _capital(self):
        """Largest log wealth of the bettor below the threshold, then of the one above."""
        guard_check_built(&self.guard, self)
        return self.state.sums.penalty[1], self.state.sums.penalty[0]

    def _absorb(self, Sequence other not None):
        """Add what `other` saw, as if it had come after what this stream saw."""
        guard_check_built(&self.guard, self)
        guard_check_built(&other.guard, other)
        cdef fr_sums_t *mine = &self.state.sums
        cdef const fr_sums_t *theirs = &other.state.sums
        cdef double low, high
        cdef int k
        if other.s.n == 0 or self.s.status == INCONSISTENT:
            return
        if self.s.n > INT64_MAX - other.s.n:
            raise OverflowError("the two streams together count more than 2**63 - 1 rewards")
        mine.n += theirs.n
        mine.total += theirs.total - 0.5
        mine.square += theirs.square - 0.25
        for k in range(2):
            mine.weight[k] += theirs.weight[k]
            mine.centre[k] += theirs.centre[k]
            mine.penalty[k] += theirs.penalty[k]
        self.s.n += other.s.n
        self.s.n_clipped += other.s.n_clipped
        if self.grid:
            fr_grid_merge(&self.bet, &self.state.grid, &other.state.grid)
        self._now(&low, &high)
        self._learn(low, high)
        self.state.look = next_look(self.s.n, INT64_MAX, 1, LOOKS_GROW)
        if other.s.status == INCONSISTENT:
            self.s.status = INCONSISTENT
