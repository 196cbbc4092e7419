"""Confidence sequences for the mean of a bounded stream, and the rules that stop by them: one kernel per bound.

A kernel turns a block of rewards into running bounds; what is done with these, by block or by single reward, is here.
"""

from libc.math cimport INFINITY, NAN, fabs, log, nextafter, rint
from libc.stdint cimport INT64_MAX, int64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from fastrace._base._checks import DamagedError
from fastrace._base._guard cimport guard_await, guard_build, guard_built, guard_check_built
from fastrace._base._signals cimport check_signals
from fastrace._base._types cimport moments4_t
from fastrace._math._anytime cimport (incomplete_gamma, incomplete_gamma_t, log_mixture_start, mixture_boundary,
                                      mixture_rho, t_mixture_half_width, t_mixture_spread)
from fastrace._math._beta_binomial cimport least_share, least_total
from fastrace._math._bets cimport (FR_BLOCK, FR_CANDIDATES, fr_bet_t, fr_betting, fr_grid_copy, fr_grid_init,
                                   fr_grid_merge, fr_grid_t, fr_hoeffding, fr_moments_only, fr_narrowest,
                                   fr_normal_mixture, fr_plug_in, fr_plug_in_push, fr_scale, fr_stitched, fr_stitching,
                                   fr_sums_init, fr_sums_t, fr_target, fr_target_push, fr_threshold, fr_unit)
from fastrace._math._bounds cimport tie_width
from fastrace._math._criteria cimport NEVER
from fastrace._math._moments cimport moments4_add, moments4_merge, moments4_skewness, moments4_variance
from fastrace._math._portfolio cimport (FR_BETTORS, fr_aimed, fr_aimed_bounds, fr_aimed_sane, fr_aimed_t, fr_portfolio,
                                        fr_portfolio_bounds, fr_portfolio_difference, fr_portfolio_init,
                                        fr_portfolio_look, fr_portfolio_merge, fr_portfolio_quiet, fr_portfolio_rival,
                                        fr_portfolio_sane, fr_portfolio_setup, fr_portfolio_t, fr_rival_t, fr_watch_t)
from fastrace._math._schedules cimport next_look
from fastrace._math._skewness cimport EVENTS_ENOUGH, tail_end, tail_events, tail_shift
from fastrace.streams._stopping cimport INCONSISTENT, RUNNING, STOPPED, Stream, stream_t

KERNELS = ("target", "plug-in", "stitched", "mixture", "hoeffding", "betting", "target-betting", "threshold",
           "universal", "beta-binomial", "target-odds", "asymptotic")

cdef enum:                      # places in KERNELS
    TARGET
    PLUG_IN
    STITCHED
    MIXTURE
    HOEFFDING
    BETTING
    TARGET_BETTING
    THRESHOLD
    UNIVERSAL
    BETA_BINOMIAL
    TARGET_ODDS
    ASYMPTOTIC

cdef double MIXTURE_GROWS = 1.002       # between two looks at the mixture boundary, which costs 2 us
cdef double WEALTH_GROWS = 1.005        # at the wealth of a portfolio or a beta prior, which costs 0.1 to 0.8 us
fr_portfolio_setup()

cdef enum:
    EARLIER_BETTORS = 48
    EARLIER_MORE = 4 * (EARLIER_BETTORS - FR_BETTORS) * sizeof(double)      # bytes of a stream that had as many

cdef union wealth_t:
    fr_grid_t grid
    fr_portfolio_t portfolio
    fr_aimed_t aimed
    moments4_t normal

cdef struct state_t:
    # `centre` holds the candidates that a portfolio watches; of an asymptotic kind `centre[0]` is the first reward,
    # from which its moments count.
    fr_sums_t sums
    int64_t look                # reward at which a boundary that is looked at now and then is looked at next
    wealth_t wealth             # last, and no longer than the kernel needs


cdef inline void _copy(state_t *to, const state_t *source, int kernel) noexcept nogil:
    to.sums = source.sums
    to.look = source.look
    if kernel == UNIVERSAL:
        to.wealth.portfolio = source.wealth.portfolio
    elif kernel == TARGET_ODDS:
        to.wealth.aimed = source.wealth.aimed
    elif kernel == ASYMPTOTIC:
        to.wealth.normal = source.wealth.normal
    elif kernel == BETTING or kernel == TARGET_BETTING:
        fr_grid_copy(&to.wealth.grid, &source.wealth.grid)


def doubts(n, skewness, noun):
    """Why an asymptotic interval from n rewards of this skewness may miss more often than it says; a heuristic."""
    if skewness != skewness:
        return (f"all {n} {noun} so far are equal: nothing is known of their spread, and no interval is given",)
    if tail_events(fabs(skewness), n) < EVENTS_ENOUGH:
        return (f"few of the {n} {noun} carry a long tail (skewness {skewness:.3g}): an asymptotic interval may miss "
                f"the mean more often than delta says; give a support, or wait for more {noun}",)
    return ()


cdef class Sequence(Stream):
    """A stream with a running interval of its mean; subclasses check the arguments and call `_open` once."""

    cdef fr_bet_t bet
    cdef int kernel
    cdef state_t *state
    cdef fr_watch_t *watch                  # of a portfolio that is looked at without a population, else NULL
    cdef Py_ssize_t size                    # bytes of the state
    cdef bint grid                          # whether candidates are on a grid
    cdef bint looks                         # whether the bounds are looked at now and then
    cdef bint running                       # whether the interval is the intersection of all so far; else as of now
    cdef int64_t first_look                 # rewards before an asymptotic interval is finite
    cdef incomplete_gamma_t below           # of the mixture boundary
    cdef double start                       # and what its logarithm begins with

    def __cinit__(self, *args, **kwargs):
        guard_await(&self.guard, 1)
        self.size = 0

    def __dealloc__(self):
        free(self.state)
        free(self.watch)

    def _open(self, arguments, kernel, *, n_rows=None, cap=0.5, best_at=25.0, running=True, first_look=0, **shared):
        """Set everything, from arguments that have been checked; `shared` goes to `Stream._configure`.

        Without `running`, which is for "universal" and "asymptotic", the interval is that of the rewards so far, and
        nothing but an accuracy that was asked for ends the stream.
        """
        cdef double span, epsilon
        guard_build(&self.guard, 1, self)
        self.kernel = KERNELS.index(kernel)
        if n_rows is not None:
            limit = shared.get("max_samples")
            shared["max_samples"] = n_rows if limit is None else min(limit, n_rows)
            self.population = n_rows
        self._configure(arguments, **shared)
        self.grid = self.kernel == BETTING or self.kernel == TARGET_BETTING
        self.binary = self.kernel == BETA_BINOMIAL
        self.running = running and self.kernel != ASYMPTOTIC
        self.first_look = first_look
        self.looks = self.running and self.kernel in (MIXTURE, UNIVERSAL, BETA_BINOMIAL, TARGET_ODDS)
        self.size = sizeof(state_t) - sizeof(wealth_t)
        if self.grid:
            self.size += sizeof(fr_grid_t)
        elif self.kernel == UNIVERSAL:
            self.size += sizeof(fr_portfolio_t)
        elif self.kernel == TARGET_ODDS:
            self.size += sizeof(fr_aimed_t)
        elif self.kernel == ASYMPTOTIC:
            self.size += sizeof(moments4_t)
        free(self.state)
        self.state = <state_t *>calloc(1, self.size)
        if self.state == NULL:
            raise MemoryError(f"no memory for {self.size} bytes")
        free(self.watch)
        self.watch = NULL
        if self.kernel == UNIVERSAL and self.looks and not self.population:
            self.watch = <fr_watch_t *>calloc(2, sizeof(fr_watch_t))
            if self.watch == NULL:
                raise MemoryError(f"no memory for {2 * sizeof(fr_watch_t)} bytes")
        self._forget()
        span = self.high - self.low
        epsilon = self.epsilon_
        self.bet.level = -log(self.delta_)
        if self.kernel not in (THRESHOLD, UNIVERSAL, ASYMPTOTIC) and not self.binary:
            self.bet.level += log(2.0)
        self.bet.cap = cap
        self.bet.n_rows = INFINITY if n_rows is None else <double>n_rows
        self.bet.rho = mixture_rho(best_at, max(self.bet.level, log(2.0) + 0.05))
        if self.kernel == ASYMPTOTIC:
            self.bet.rho = t_mixture_spread(best_at, self.bet.level)
        self.bet.slope, self.bet.offset, self.bet.floor, self.bet.zero = 0.0, 0.0, 1e-12, -1.0
        self.bet.under = self.bet.over = 0.0
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
        elif self.grid or self.looks:
            self.per_check = 1 << 15
        fr_sums_init(&self.state.sums)
        self.state.look = max(1, first_look)
        if self.grid:
            fr_grid_init(&self.bet, &self.state.wealth.grid)
        elif self.kernel == UNIVERSAL:
            fr_portfolio_init(&self.state.wealth.portfolio)
        guard_built(&self.guard, 1)

    def _knows_reach(self):
        return self.kernel == TARGET_ODDS

    def _reach(self, low, high):
        cdef double span = self.high - self.low
        Stream._reach(self, low, high)
        self.bet.under = max(self.low - <double>low, 0.0) / span
        self.bet.over = max(<double>high - self.high, 0.0) / span

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
            self._look(&low[n - 1], &high[n - 1])
        elif self.kernel == UNIVERSAL:
            fr_portfolio(&self.bet, sums, &self.state.wealth.portfolio, z, n, low, high)
            self._look(&low[n - 1], &high[n - 1])
        elif self.kernel == BETA_BINOMIAL:
            self._count(z, n, low, high)
            self._look(&low[n - 1], &high[n - 1])
        elif self.kernel == TARGET_ODDS:
            fr_aimed(&self.bet, sums, &self.state.wealth.aimed, z, n, low, high)
            self._look(&low[n - 1], &high[n - 1])
        else:
            fr_betting(&self.bet, sums, &self.state.wealth.grid, self.kernel == TARGET_BETTING, z, n, low, high)

    cdef void _count(self, const double *z, int n, double *low, double *high) noexcept nogil:
        """Count rewards of 0 and 1; the bounds are what those of a population say for sure."""
        cdef fr_sums_t *sums = &self.state.sums
        cdef int i
        for i in range(n):
            sums.n += 1.0
            sums.total += rint(z[i])
            low[i], high[i] = 0.0, 1.0
            if self.population:
                low[i] = (sums.total - 0.5) / self.bet.n_rows
                high[i] = low[i] + (self.bet.n_rows - sums.n) / self.bet.n_rows

    cdef void _now_of_counts(self, double lower, double upper, double *low, double *high) noexcept nogil:
        """Bounds as of now for the share of ones; `lower` and `upper` are those so far."""
        cdef double ones = self.state.sums.total - 0.5, zeros = self.state.sums.n - ones, rows = self.bet.n_rows
        if self.population:
            low[0] = least_total(ones, zeros, rows, rint(rows * lower), self.bet.level) / rows
            high[0] = 1.0 - least_total(zeros, ones, rows, rint(rows * (1.0 - upper)), self.bet.level) / rows
        else:
            low[0] = least_share(ones, zeros, self.bet.level)
            high[0] = 1.0 - least_share(zeros, ones, self.bet.level)

    cdef void _forget(self) noexcept nogil:
        """Watch no candidate: the wealth has changed in another way than by the next reward."""
        if self.watch != NULL:
            self.watch[0].at = self.watch[1].at = -1.0

    cdef void _look(self, double *low, double *high) noexcept nogil:
        """Add the bounds as of now to what the last reward says, where a look is due."""
        cdef double lower, upper, span = self.high - self.low
        cdef int64_t n = <int64_t>self.state.sums.n
        if n < self.state.look:
            return
        if self.watch != NULL:
            fr_portfolio_look(&self.bet, &self.state.sums, &self.state.wealth.portfolio, self.watch,
                              (self.s.lower - self.low) / span, (self.s.upper - self.low) / span, &lower, &upper)
        else:
            self._now(&lower, &upper)
        low[0] = max(low[0], lower)
        high[0] = min(high[0], upper)
        self._plan(n)

    cdef Py_ssize_t _until_look(self, const double *x, Py_ssize_t n) noexcept nogil:
        """How many of n rewards come before the next look is over. Looks that are sure to find nothing are
        planned past, so that more rewards are taken at once.
        """
        cdef double total = self.state.sums.total, span = self.high - self.low
        cdef int64_t seen = self.s.n
        cdef Py_ssize_t i
        for i in range(n):
            total += fr_unit(&self.bet, x[i], self.low, span)
            seen += 1
            if seen >= self.state.look:
                if i == n - 1 or not fr_portfolio_quiet(self.watch, <double>seen, total):
                    return i + 1
                self._plan(seen)
        return n

    cdef void _plan(self, int64_t n) noexcept nogil:
        """Plan the look after the one at n: where the rewards, or those of a population that are left, changed by a
        little.
        """
        cdef double grows = MIXTURE_GROWS if self.kernel == MIXTURE else WEALTH_GROWS
        cdef int64_t left = self.population - n
        self.state.look = next_look(n, INT64_MAX, 1, grows)
        if self.population:
            self.state.look = min(self.state.look, next_look(n, self.population, 1, 1.0 + (grows - 1.0) * left / n))

    cdef void _now(self, double *low, double *high) noexcept nogil:
        """Bounds as of now, of a kernel whose streams can be merged."""
        cdef fr_sums_t *sums = &self.state.sums
        cdef fr_grid_t *grid = &self.state.wealth.grid
        cdef moments4_t *normal = &self.state.wealth.normal
        cdef double middle = (sums.total - 0.5) / sums.n, half, variance, skewness, span = self.high - self.low
        if self.kernel == UNIVERSAL:
            fr_portfolio_bounds(&self.bet, sums, &self.state.wealth.portfolio,
                                (self.s.lower - self.low) / span if self.running else 0.0,
                                (self.s.upper - self.low) / span if self.running else 1.0, low, high)
            return
        if self.kernel == ASYMPTOTIC:
            half, variance = INFINITY, moments4_variance(normal, 1.0) / normal.n
            if normal.n >= self.first_look:
                half = t_mixture_half_width(variance, normal.n, normal.n - 1.0, self.bet.rho, self.bet.level)
            skewness = moments4_skewness(normal)
            # Outwards, as far from 0 the width may be lost in rounding.
            low[0] = nextafter(sums.centre[0] + (
                normal.mean - tail_end(half, variance, tail_shift(-skewness, normal.n, 1.0))), -INFINITY)
            high[0] = nextafter(sums.centre[0] + (
                normal.mean + tail_end(half, variance, tail_shift(skewness, normal.n, 1.0))), INFINITY)
            return
        if self.kernel == TARGET_ODDS:
            fr_aimed_bounds(&self.bet, &self.state.wealth.aimed, (self.s.lower - self.low) / span,
                            (self.s.upper - self.low) / span, low, high)
            return
        if self.kernel == BETA_BINOMIAL:
            self._now_of_counts((self.s.lower - self.low) / span, (self.s.upper - self.low) / span, low, high)
            return
        if self.kernel == BETTING:
            low[0] = grid.mean[grid.first] if not grid.refuted else 1.0
            high[0] = grid.mean[grid.last] if not grid.refuted else 0.0
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
        cdef double z, low, high
        if not self.running:
            self.s.n -= 1           # which `_gather` counts
            self._gather(&x, 1)
            return
        z = fr_unit(&self.bet, x, self.low, self.high - self.low)
        if self.kernel == TARGET and self.bet.n_rows == INFINITY:
            fr_target_push(&self.bet, &self.state.sums, z, &low, &high)
        elif self.kernel == PLUG_IN and self.bet.n_rows == INFINITY:
            fr_plug_in_push(&self.bet, &self.state.sums, z, &low, &high)
        else:
            self._run_kernel(&z, 1, &low, &high)
        self._learn(low, high)

    cdef Py_ssize_t extend(self, const double *x, Py_ssize_t n) noexcept nogil:
        cdef Py_ssize_t start = 0, count
        if not self.running:
            return self._gather(x, n)
        while start < n:
            count = min(<Py_ssize_t>FR_BLOCK, n - start)
            if self.watch != NULL:
                count = self._until_look(x + start, count)
            elif self.looks:
                count = <Py_ssize_t>min(<int64_t>count, self.state.look - self.s.n)
            start += self._block(x + start, <int>count)
            if self.s.status != RUNNING:
                break
        return start

    cdef Py_ssize_t _gather(self, const double *x, Py_ssize_t n) noexcept nogil:
        """Take rewards of a stream whose interval is as of now; it is looked at where an accuracy is asked for."""
        cdef double[FR_BLOCK] z, low, high
        cdef double[4] sums
        cdef Py_ssize_t start = 0
        cdef int count
        if self.kernel != ASYMPTOTIC:
            while start < n:
                count = <int>min(<Py_ssize_t>FR_BLOCK, n - start)
                fr_scale(&self.bet, x + start, count, self.low, self.high - self.low, z)
                fr_portfolio(&self.bet, &self.state.sums, &self.state.wealth.portfolio, z, count, low, high)
                self.s.n += count
                start += count
            return n
        sums[1] = sums[2] = sums[3] = 0.0
        if self.s.n == 0 and n > 0:
            self.state.sums.centre[0] = x[0]
        for start in range(n):
            sums[0] = x[start] - self.state.sums.centre[0]
            moments4_add(&self.state.wealth.normal, sums, 1)    # one by one: the same bits in any portions
            self.state.sums.n += 1.0
            self.s.n += 1
            if self.criterion_ != NEVER and self.s.n >= self.state.look:
                self._judge_now()
                if self.s.status != RUNNING:
                    return start + 1
        return n

    cdef void _judge_now(self) noexcept nogil:
        """Judge by the interval as of now, and plan the next look."""
        self._now(&self.s.lower, &self.s.upper)
        self.conclude()
        self.state.look = next_look(self.s.n, INT64_MAX, 1, WEALTH_GROWS)

    cdef int _block(self, const double *x, int n) noexcept nogil:
        """A stop shows in the narrowest bounds of a block; only then is the reward it came at looked for."""
        cdef double[FR_BLOCK] z, low, high
        cdef double[2] narrowest
        cdef state_t before
        cdef stream_t seen = self.s
        cdef int i = 0
        if self.population or not self.looks:       # else only the last reward of a block can stop it
            _copy(&before, self.state, self.kernel)
        fr_scale(&self.bet, x, n, self.low, self.high - self.low, z)
        self._run_kernel(z, n, low, high)
        if self.population or not self.looks:
            fr_narrowest(low, high, n, narrowest)
        else:
            narrowest[0], narrowest[1] = low[n - 1], high[n - 1]
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
            _copy(self.state, &before, self.kernel)
            self._forget()
            self._run_kernel(z, i + 1, low, high)
        return i + 1

    cdef double mean(self) noexcept nogil:
        if self.s.n == 0:
            return NAN
        if self.kernel == ASYMPTOTIC:
            return self.state.sums.centre[0] + self.state.wealth.normal.mean
        return self.low + (self.high - self.low) * ((self.state.sums.total - 0.5) / self.state.sums.n)

    cdef void *memory(self, Py_ssize_t *size) noexcept nogil:
        size[0] = self.size
        return self.state

    cdef void put_back(self, const char *kept) noexcept nogil:
        Stream.put_back(self, kept)
        self._forget()

    def _own_state(self):
        cdef const char *data = <const char *>self.state
        return self.kernel, data[:self.size]

    def _set_own_state(self, state):
        kernel, data = state
        if kernel == self.kernel == UNIVERSAL and isinstance(data, bytes) and len(data) == self.size + EARLIER_MORE:
            raise DamagedError(
                f"this stream was saved when universal intervals had {EARLIER_BETTORS} bettors on either side; there "
                f"are {FR_BETTORS} now, with other bets, and what they have won is not known: give the rewards to a "
                "new stream"
            )
        if kernel != self.kernel or not isinstance(data, bytes) or len(data) != self.size:
            raise DamagedError("the saved stream is damaged: its sums do not fit its arguments")
        cdef const char *source = data
        cdef state_t new
        cdef fr_grid_t *grid = &new.wealth.grid
        cdef int k
        grid.first = grid.last = 0
        memcpy(&new, source, self.size)
        if self.grid and not 0 <= grid.first < grid.last <= FR_CANDIDATES + 1:
            raise DamagedError("the saved stream is damaged: its candidates cannot be right")
        if new.sums.n != <double>self.s.n or new.look < 1 or (
                self.looks and self.s.status == RUNNING and new.look <= self.s.n):
            raise DamagedError("the saved stream is damaged: its counts cannot be right")
        if (self.kernel == UNIVERSAL and not (fr_portfolio_sane(&new.wealth.portfolio)
                                              and 0.0 <= new.sums.centre[0] <= 1.0 and 0.0 <= new.sums.centre[1] <= 1.0)
                or self.kernel == TARGET_ODDS and not fr_aimed_sane(&new.wealth.aimed, new.sums.n)):
            raise DamagedError("the saved stream is damaged: its wealth cannot be right")
        if self.kernel == ASYMPTOTIC and (new.wealth.normal.n != self.s.n or not fabs(new.wealth.normal.mean) < INFINITY
                                          or not fabs(new.sums.centre[0]) < INFINITY
                                          or not new.wealth.normal.m2 >= 0.0):
            raise DamagedError("the saved stream is damaged: its moments cannot be right")
        for k in range(grid.first, grid.last + 1 if self.grid else grid.first):
            if not (0.0 <= grid.mean[k] <= 1.0 and 0.0 <= grid.above[k] and 0.0 <= grid.below[k]
                    and (k == grid.first or grid.mean[k - 1] < grid.mean[k])):
                raise DamagedError("the saved stream is damaged: its candidates cannot be right")
        memcpy(self.state, &new, self.size)
        self._forget()

    def _interval(self):
        """The running intersection; with bounds that are looked at now and then also as of now, which is not kept."""
        cdef double low, high, span = self.high - self.low
        cdef stream_t kept = self.s
        if not self.running and self.s.n and self.s.status != STOPPED:
            self._now(&low, &high)
            return (low, high) if self.kernel == ASYMPTOTIC else (self.low + span * low, self.low + span * high)
        if self.looks and self.s.n and self.s.status == RUNNING:
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

    def _moments(self):
        """Rewards, mean from the origin, variance and skewness (both nan where unknown), origin; of an asymptotic kind.
        """
        guard_check_built(&self.guard, self)
        cdef moments4_t *normal = &self.state.wealth.normal
        return (normal.n, normal.mean if normal.n else NAN, moments4_variance(normal, 1.0), moments4_skewness(normal),
                self.state.sums.centre[0])

    def _doubts(self):
        """Why an asymptotic interval may miss more often than it says; empty if nothing was seen."""
        guard_check_built(&self.guard, self)
        cdef moments4_t *normal = &self.state.wealth.normal
        if self.kernel != ASYMPTOTIC or normal.n < 2:
            return ()
        return doubts(normal.n, moments4_skewness(normal), "rewards")

    def _absorb(self, Sequence other not None):
        """Add what `other` saw, as if it had come after what this stream saw."""
        guard_check_built(&self.guard, self)
        guard_check_built(&other.guard, other)
        cdef fr_sums_t *mine = &self.state.sums
        cdef const fr_sums_t *theirs = &other.state.sums
        cdef moments4_t moments
        cdef double low, high, centre = mine.centre[0] if self.s.n else theirs.centre[0]
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
            fr_grid_merge(&self.bet, &self.state.wealth.grid, &other.state.wealth.grid)
        elif self.kernel == UNIVERSAL:
            fr_portfolio_merge(&self.state.wealth.portfolio, &other.state.wealth.portfolio)
            mine.centre[0] = mine.centre[1] = 0.0
            self._forget()
        elif self.kernel == ASYMPTOTIC:
            moments = other.state.wealth.normal
            moments.mean += theirs.centre[0] - centre
            moments4_merge(&self.state.wealth.normal, &moments)
            mine.centre[0] = centre
        if not self.running:
            return
        self._now(&low, &high)
        self._learn(low, high)
        self._plan(self.s.n)
        if other.s.status == INCONSISTENT:
            self.s.status = INCONSISTENT


def differences(list streams, const Py_ssize_t[:, ::1] pairs, const double[::1] lower, const double[::1] upper,
                double log_inv_delta, bint evidence, double[:, ::1] found):
    """Fill `found` with intervals of the means of pairs of streams, the first less the second, all "universal" of one
    support; with `evidence` also logs of the evidence that the difference is above 0, and below 0.

    Ends miss with probability at most exp(-log_inv_delta) each. `lower` and `upper` are the streams' own intervals.
    """
    cdef fr_rival_t *rivals = <fr_rival_t *>malloc(len(streams) * sizeof(fr_rival_t))
    cdef fr_rival_t *arm
    cdef fr_rival_t *other
    cdef Sequence stream
    cdef double low = 0.0, span = 1.0
    cdef Py_ssize_t k
    if rivals == NULL:
        raise MemoryError(f"no memory for {len(streams) * sizeof(fr_rival_t)} bytes")
    try:
        for k in range(len(streams)):
            stream = streams[k]
            guard_check_built(&stream.guard, stream)
            low, span = stream.low, stream.high - stream.low
            fr_portfolio_rival(&stream.state.sums, &stream.state.wealth.portfolio, stream.bet.level,
                               (lower[k] - low) / span, (upper[k] - low) / span, &rivals[k])
        with nogil:
            for k in range(pairs.shape[0]):
                arm, other = &rivals[pairs[k, 0]], &rivals[pairs[k, 1]]
                fr_portfolio_difference(arm, other, log_inv_delta, &found[k, 0], &found[k, 1],
                                        &found[k, 2] if evidence else NULL, &found[k, 3] if evidence else NULL)
                found[k, 0] *= span
                found[k, 1] *= span
                if k % 1024 == 1023:
                    check_signals()
    finally:
        free(rivals)
