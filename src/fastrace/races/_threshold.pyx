"""Race of one mean against a threshold: is the mean of a finite population of differences above it?

The population is one arm, or what arm 1 has over arm 0. Rows are read in growing looks, of which only moments are kept
(and two gamblers' wealth, if they bet). The answer at the end is exact: a mean that ties with the threshold is not
above it.
"""

from libc.math cimport INFINITY, NAN, fabs, isfinite, isnan
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, malloc
from numpy.random cimport bitgen_t
cimport numpy as cnp

from fastrace._base._guard cimport guard_await, guard_build, guard_built, guard_check_built, guard_enter, guard_leave
from fastrace._base._signals cimport check_signals
from fastrace._draws._rng cimport gumbel, random_standard_exponential
from fastrace._draws._row_order cimport RowOrder, restore_order, row_in, saved_order
from fastrace._draws._row_stream cimport row_stream_init, row_stream_seed, row_stream_t
from fastrace._math._betting cimport bets_init, bets_t, wealth_extend, wealth_init, wealth_log, wealth_t
from fastrace._math._bounds cimport lower_end, upper_end
from fastrace._math._criteria cimport full_pass_pays
from fastrace._math._moments cimport moments4_kurtosis, moments4_skewness, moments4_std
from fastrace._math._simd cimport fr_all_finite, fr_sum
from fastrace._math._skewness cimport (ENOUGH, NOTHING, carried_by_few, few_shown, kurtosis_to_keep,
                                       rows_to_meet_few)
from fastrace._math._rule cimport (BETTING, NORMAL, look_t, rule_look, tally_clear, tally_decides, tally_extend,
                                   tally_needs, tally_std)
from fastrace.races._reading cimport (REWARDS_AT_FIRST, ROWS_AT_FIRST, ROWS_PER_DECISION, bad_row, first_bad,
                                      first_outside, mean_work, price_of_a_row, price_of_a_row_of_an_array,
                                      price_of_moments, price_of_moments_of_an_array, read_rows)
from fastrace.sources cimport ArraySource, Source

import numpy as np

from fastrace._base import _frames
from fastrace._math import _half_widths

cnp.import_array()

STOPPED_BY = ("", "bound", "exact")

cdef enum:          # places in STOPPED_BY
    UNDECIDED
    BY_BOUND
    BY_CERTAINTY


cdef class ThresholdRace:
    """State and loop of such races, one after another on the same source; `AcceptTest` checks the arguments.

    Nothing is allocated by a decision. The order of rows is re-shuffled in part and never reset, so that reading k rows
    costs O(k).
    """

    def __cinit__(self):
        guard_await(&self.guard, 0)
        self.rows = <int64_t *>malloc(ROWS_PER_DECISION * sizeof(int64_t))
        self.block = <double *>malloc(2 * ROWS_PER_DECISION * sizeof(double))
        if self.rows == NULL or self.block == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.rows)
        free(self.block)
        free(self.rule.look)

    def __init__(self, source, rule, looks, log_inv_delta, quantile, *, shuffled, guard, advantage, rng,
                 strict=True):
        """`looks`, `log_inv_delta` and `quantile` have one value per look; the last look reads every row."""
        cdef const int64_t[::1] n = np.ascontiguousarray(looks, dtype=np.int64)
        cdef const double[::1] share = np.ascontiguousarray(log_inv_delta, dtype=np.float64)
        cdef const double[::1] factor = np.ascontiguousarray(quantile, dtype=np.float64)
        cdef Py_ssize_t k
        cdef Source given = source
        cdef int kind = _half_widths.BOUNDS.index(rule)
        if not n.shape[0] == share.shape[0] == factor.shape[0]:
            raise ValueError("one share of delta and one quantile per look are needed")
        guard_check_built(&given.guard, given)
        if given.n_rows and not (n.shape[0] and n[n.shape[0] - 1] == given.n_rows and n[0] >= 1
                                 and (np.diff(looks) > 0).all()):
            raise ValueError("looks must grow, and the last of them must read every row")
        if given.n_arms > 2:
            raise ValueError(f"source has {given.n_arms} arms; one of differences or two are needed")
        guard_build(&self.guard, 0, self)
        self._source = given
        self.of_array = isinstance(source, ArraySource)
        self.n_rows = self._source.n_rows
        self.rule.n_rows = self.n_rows
        self.rule.bound = kind
        self.rule.guard = guard
        self.strict = strict
        self.advantage = advantage
        self.order = RowOrder(given.n_rows, rng, shuffled)
        self.tally.low, self.tally.high = -INFINITY, INFINITY
        self.rule.n_looks = n.shape[0]
        self.rule.look = <look_t *>malloc(max(self.rule.n_looks, 1) * sizeof(look_t))
        if self.rule.look == NULL:
            raise MemoryError()
        bets_init(&self.rule.bets, self.n_rows)
        self.rule.log_inv_delta = share[0] if self.rule.n_looks else 0.0
        for k in range(self.rule.n_looks):
            rule_look(&self.rule, &self.rule.look[k], n[k], share[k], factor[k])
        self.past_kurtosis = -1.0
        self._forget()
        guard_built(&self.guard, 0)

    @property
    def source(self):
        """Where the differences come from; another of the same shape may take its place between decisions."""
        return self._source

    @source.setter
    def source(self, Source source not None):
        guard_check_built(&source.guard, source)
        guard_enter(&self.guard, self)
        try:
            if source.n_rows != self.n_rows or source.n_arms != self._source.n_arms:
                raise ValueError(f"the new source has {source.n_arms} arms of {source.n_rows} rows; this test was set "
                                 f"up for {self._source.n_arms} of {self.n_rows}")
            self._source = source
            self.of_array = isinstance(source, ArraySource)
        finally:
            guard_leave(&self.guard)

    @property
    def stopped_by(self):
        """What ended the last decision: "bound", "exact", or "" before the first."""
        return STOPPED_BY[self.stop]

    def _decided(self):
        """All facts of the last decision, of one decision even where another thread is about to make the next.

        Returns
        -------
        tuple
            What `AcceptResult` calls accepted, threshold, n_read, n_evaluated, n_looks, stopped_by, mean, half_width,
            skewness and kurtosis; then whether a difference was outside the support, whether those of the first look
            were constant, and whether they were skewed.
        """
        guard_enter(&self.guard, self)
        try:
            return (bool(self.accepted), self.threshold, self.n_read, self.n_evaluated, self.n_looks,
                    STOPPED_BY[self.stop], self.mean, self.half_width, self.skewness, self.kurtosis,
                    bool(self.outside), bool(self.constant), bool(self.skewed))
        finally:
            guard_leave(&self.guard)

    cdef void _forget(self) noexcept nogil:
        self.accepted = self.outside = self.constant = self.skewed = False
        self.stop = UNDECIDED
        self.n_read = self.n_evaluated = self.n_looks = 0
        self.mean = self.half_width = self.skewness = self.kurtosis = NAN
        self.carried = 0.0
        self._clear()

    def draw_noise(self, bint barker):
        """log u of a uniform u in (0, 1), or its logit for Barker's rule."""
        guard_enter(&self.guard, self)
        try:
            with self.order.lock:
                if barker:
                    return gumbel(self.order.bits) - gumbel(self.order.bits)
                return -random_standard_exponential(self.order.bits)
        finally:
            guard_leave(&self.guard)

    def set_support(self, double low, double high):
        """The interval that holds every difference; infinite ends if there is none."""
        guard_enter(&self.guard, self)
        self.tally.low = low
        self.tally.high = high
        guard_leave(&self.guard)

    def run(self, double threshold):
        """Decide whether the sum over all rows, the source's known part included, is above `threshold`."""
        if isnan(threshold):
            raise ValueError("the threshold is nan; the log of a probability ratio is needed, infinite if one is 0")
        guard_enter(&self.guard, self)
        try:
            self._forget()
            self.threshold = threshold
            with nogil:
                self._decide()
        except BaseException:
            self._forget()
            raise
        finally:
            guard_leave(&self.guard)
        return bool(self.accepted)

    def run_afresh(self, uint64_t seed, double threshold):
        """The same, by random numbers of its own that `seed` alone decides, whatever was decided before."""
        cdef row_stream_t stream
        if isnan(threshold):
            raise ValueError("the threshold is nan; a number is needed")
        row_stream_init(&stream)
        row_stream_seed(&stream, seed)
        guard_enter(&self.guard, self)
        try:
            self.past_kurtosis = 0.0
            with nogil:
                self.decide_alone(&stream.bits, threshold, self.tally.low, self.tally.high)
        except BaseException:
            self._forget()
            raise
        finally:
            guard_leave(&self.guard)
        return bool(self.accepted)

    cdef int _finish(self, bint accepted, int stop) noexcept nogil:
        if self.n_looks and self._guards():
            self.past_kurtosis = kurtosis_to_keep(self.carried, max(self.past_kurtosis, 0.0))
        self.accepted = accepted
        self.stop = stop
        return 0

    cdef int decide_alone(self, bitgen_t *bits, double threshold, double low, double high) except -1 nogil:
        """One step of a chain: a decision whose random numbers, all from `bits`, depend on no decision before it.

        The chain has taken the guard.
        """
        cdef bitgen_t *own = self.order.bits
        self._forget()
        self.threshold = threshold
        self.tally.low = low
        self.tally.high = high
        self.order.bits = bits
        self.order.held = True
        try:
            self._decide()
        finally:
            self.order.bits = own
            self.order.held = False
            self.order.begin_again()
        return 0

    cdef int _decide(self) except -1 nogil:
        cdef Py_ssize_t arms[2]
        cdef double shifts[2]
        cdef double target, shift, level
        cdef int64_t n = 0, count
        cdef Py_ssize_t k = 0, following
        cdef int n_arms = <int>self._source.n_arms, certain, shows
        cdef bint decides
        arms[0], arms[1] = 0, 1
        shifts[0] = shifts[1] = 0.0
        self._source.shift(arms, n_arms, shifts)
        shift = shifts[1] - shifts[0] if n_arms == 2 else shifts[0]
        if isnan(shift):
            with gil:
                raise ValueError(f"the source's known sums are {[shifts[j] for j in range(n_arms)]}, which leaves no "
                                 f"difference to compare with the threshold")
        target = self.threshold - shift
        if isnan(target):
            with gil:
                raise ValueError(f"the threshold is {self.threshold} and the source's known sum too: no ratio is "
                                 f"defined")
        if self.n_rows == 0 or not isfinite(target):
            return self._finish(0.0 > target, BY_CERTAINTY)
        self.lowest = lower_end(self.tally.low, self.tally.high)
        self.highest = upper_end(self.tally.low, self.tally.high)
        level = target / <double>self.n_rows
        if level < self.tally.low or level >= self.tally.high:
            return self._finish(level < self.tally.low, BY_BOUND)
        if self.past_kurtosis < 0.0 and self._looks_closer():
            if self.n_rows * n_arms <= REWARDS_AT_FIRST:
                return self._scan(arms, n_arms, target, shift)
            k = self._look_at(0, ROWS_AT_FIRST)
        self.order.drawn = 0
        while True:
            while n < self.rule.look[k].n:
                count = min(<int64_t>ROWS_PER_DECISION, self.rule.look[k].n - n)
                self.order.settle(n + count)
                certain = self._read(n, count, level)
                n += count
                self.n_read = self.n_evaluated = n
                if certain:
                    self.mean = -INFINITY
                    return self._finish(False, BY_CERTAINTY)
                if not self.order.held or count == ROWS_PER_DECISION:
                    check_signals()
            k += 1
            self.n_looks += 1
            self._describe(shift)
            if n == self.n_rows:
                self.half_width = 0.0
                if not isfinite(self.tally.seen.mean):
                    with gil:
                        self._find_bad_row()
                return self._finish(self.tally.seen.mean > level, BY_CERTAINTY)
            shows = few_shown(self.past_kurtosis, self.kurtosis + 3.0, n) if self._guards() else ENOUGH
            decides = tally_decides(&self.tally, &self.rule, k - 1, level, &self.half_width, &self.constant,
                                    &self.skewed)
            if self.n_looks == 1 and k > 1 and self.rule.bound == NORMAL and isnan(tally_std(&self.tally)):
                self.constant = True
            if decides and shows == ENOUGH:
                return self._finish(self.tally.seen.mean > level, BY_BOUND)
            following = self._look_at(k, rows_to_meet_few(self.past_kurtosis)) if shows == NOTHING else k
            if self._scan_is_cheaper(k - 1, level, following):
                return self._scan(arms, n_arms, target, shift)
            k = following

    cdef bint _looks_closer(self) noexcept nogil:
        """Whether the first decision is about an array in memory: then it looks at more rows, as it costs little."""
        if not (self._guards() and self.of_array and self.rule.look[0].n < self.n_rows and self._advantage() > 1.0
                and not isfinite(self.tally.low) and not isfinite(self.tally.high)):
            return False
        if self.n_rows * self._source.n_arms <= REWARDS_AT_FIRST:
            return True
        with gil:
            return not _frames.is_mapped((<ArraySource>self._source).values)

    cdef Py_ssize_t _look_at(self, Py_ssize_t k, double rows) noexcept nogil:
        """The first look from look k on at so many rows, or the last."""
        while k < self.rule.n_looks - 1 and self.rule.look[k].n < rows:
            k += 1
        return k

    cdef int _look_at_all(self, const Py_ssize_t *arms, int n_arms, double *sums) except -1 nogil:
        """A full pass that takes the moments of all differences too; 0 if one of them is not finite."""
        cdef double *d = self.block
        cdef double *out[2]
        cdef int64_t first = 0
        cdef Py_ssize_t i, count
        out[0], out[1] = d, d + ROWS_PER_DECISION
        self._clear()
        while first < self.n_rows:
            count = <Py_ssize_t>min(<int64_t>ROWS_PER_DECISION, self.n_rows - first)
            self._source.fill_range(first, count, arms, n_arms, out)
            for i in range(n_arms):
                sums[i] += fr_sum(out[i], count)
            if n_arms == 2:
                for i in range(count):
                    d[i] = d[ROWS_PER_DECISION + i] - d[i]
            if not fr_all_finite(d, count):
                sums[0] = sums[1] = 0.0
                return 0
            self._extend(count, 0.0)
            first += count
            if not self.order.held or count == ROWS_PER_DECISION:
                check_signals()
        self._describe(0.0)
        return 1

    cdef void _clear(self) noexcept nogil:
        tally_clear(&self.tally, &self.rule)
        self.apart = 0.0

    cdef void _extend(self, Py_ssize_t count, double level) noexcept nogil:
        """Digest the differences at the head of the block."""
        cdef double *d = self.block
        cdef double *steps = self.block + ROWS_PER_DECISION
        cdef Py_ssize_t i
        if self._guards():
            steps[0] = fabs(d[0] - self.last) if self.tally.seen.n else 0.0
            for i in range(1, count):
                steps[i] = fabs(d[i] - d[i - 1])
            self.apart += fr_sum(steps, count)
            self.last = d[count - 1]
        tally_extend(&self.tally, &self.rule, d, count, level)

    cdef int _read(self, int64_t first, Py_ssize_t count, double level) except -1 nogil:
        """Read and digest one block; 1 if a difference is -inf, so that the mean is."""
        cdef double *d = self.block
        cdef double *out[2]
        cdef Py_ssize_t arms[2]
        cdef Py_ssize_t i
        arms[0], arms[1] = 0, 1
        out[0], out[1] = d, d + ROWS_PER_DECISION
        read_rows(self._source, self.order, first, count, arms, self._source.n_arms, self.rows, out)
        if self._source.n_arms == 2:
            for i in range(count):
                d[i] = d[ROWS_PER_DECISION + i] - d[i]
        if not fr_all_finite(d, count):
            i = first_bad(d, count)
            if i >= 0:
                with gil:
                    self._refuse(row_in(self.order, first + i))
            return 1
        self._extend(count, level)
        if self.tally.smallest < self.lowest or self.tally.largest > self.highest:
            self.outside = True
            i = first_outside(d, count, self.lowest, self.highest) if self.strict else -1
            if i >= 0:
                with gil:
                    raise ValueError(f"the difference of row {row_in(self.order, first + i)} is {d[i]!r}, outside "
                                     f"support=({self.tally.low!r}, {self.tally.high!r}): the promise holds only for "
                                     f"differences inside it; widen support or say outside='warn'")
        return 0

    def _refuse(self, row):
        rewards = self._source.read([row])[0]
        if rewards.shape[0] == 1:
            raise ValueError(f"the reward of row {row} is {rewards[0]}; a decision needs differences that are finite, "
                             f"or -inf where the proposal is impossible")
        raise ValueError(f"the rewards of row {row} are {rewards[0]} now and {rewards[1]} for the proposal; the first "
                         f"must be finite, the second finite, or -inf where the proposal is impossible")

    cdef void _describe(self, double shift) noexcept nogil:
        self.mean = self.tally.seen.mean + shift / <double>self.n_rows
        self.skewness = moments4_skewness(&self.tally.seen)
        self.kurtosis = moments4_kurtosis(&self.tally.seen)
        if self._guards():
            self.carried = carried_by_few(self.kurtosis, moments4_std(&self.tally.seen),
                                          self.apart / max(self.tally.seen.n - 1.0, 1.0), self.tally.seen.n)

    cdef bint _guards(self) noexcept nogil:
        return self.rule.bound == NORMAL and self.rule.guard

    cdef double _advantage(self) noexcept nogil:
        """Cost of a row of the race over one of a full pass in order."""
        if not isnan(self.advantage):
            return self.advantage
        if self.of_array:
            return price_of_a_row_of_an_array(self._source, self.order.in_window, self.rule.bound == BETTING)
        return price_of_a_row(self._source, self.order.in_window, mean_work(self.rule.bound == BETTING),
                              <double>self._source.n_arms)

    cdef bint _scan_is_cheaper(self, Py_ssize_t k, double level, Py_ssize_t following) noexcept nogil:
        """Whether one full pass in order costs less than what the race would read if the gap is what it looks.

        `following` is the next look.
        """
        cdef double advantage = self._advantage(), needed, to_pass = <double>self.n_rows
        if advantage <= 1.0:
            return False
        needed = max(tally_needs(&self.tally, &self.rule, k, level), <double>self.rule.look[following].n)
        if self._takes_moments():
            to_pass *= self._price_of_moments()
        return full_pass_pays(needed, self.tally.seen.n, self.rule.look[following].n, self.n_rows, <int64_t>to_pass,
                              advantage)

    cdef bint _takes_moments(self) noexcept nogil:
        """Whether a full pass takes moments too: where few rows carry the spread, it sees how few do of all rows."""
        return self._guards() and (self.past_kurtosis != 0.0 or self.carried > 0.0)

    cdef double _price_of_moments(self) noexcept nogil:
        """Cost of a full pass that takes moments over one that does not."""
        if self.of_array:
            return price_of_moments_of_an_array(self._source.n_arms)
        return price_of_moments(self._source, <double>self._source.n_arms)

    cdef int _scan(self, const Py_ssize_t *arms, int n_arms, double target, double shift) except -1 nogil:
        cdef double sums[2]
        cdef double known[2]
        cdef double total
        sums[0] = sums[1] = known[0] = known[1] = 0.0
        if not self._takes_moments() or not self._look_at_all(arms, n_arms, sums):
            self._source.total(arms, n_arms, sums)
        total = sums[1] - sums[0] if n_arms == 2 else sums[0]
        if isnan(total) or total == INFINITY:
            with gil:
                self._find_bad_row()
        if self.order.held:
            self._source.shift(arms, n_arms, known)
            self.totals[0], self.totals[1] = sums[0] + known[0], sums[1] + known[1]
        self.n_read = self.n_rows
        self.n_evaluated += self.n_rows
        self.n_looks += 1
        self.mean = (total + shift) / <double>self.n_rows
        self.half_width = 0.0
        return self._finish(total > target, BY_CERTAINTY)

    cdef int _find_bad_row(self) except -1:
        """Raise for the reward that spoiled a total."""
        row, _ = bad_row(self._source, None)
        if row is not None:
            self._refuse(row)
        raise ValueError("the sum of the rewards overflows, though each of them is finite")

    def _get_kurtosis(self):
        return self.past_kurtosis

    def _set_kurtosis(self, double kurtosis):
        if not (kurtosis == -1.0 or 0.0 <= kurtosis < INFINITY):
            raise ValueError(f"the kurtosis of decisions before is {kurtosis}; -1 or a finite one from 0 on is needed")
        guard_enter(&self.guard, self)
        self.past_kurtosis = kurtosis
        guard_leave(&self.guard)

    def _get_order(self):
        guard_enter(&self.guard, self)
        try:
            return saved_order(&self.order.order, 0)
        finally:
            guard_leave(&self.guard)

    def _set_order(self, state):
        guard_enter(&self.guard, self)
        try:
            restore_order(&self.order.order, state, 0)
        finally:
            guard_leave(&self.guard)


def _wealth(x, n_rows, low, shift=0.0, cuts=(), bint mirrored=False, y=None):
    """Bet on x (minus y) plus shift, cut into calls at `cuts`: log wealth, peak and impossible after each cut."""
    cdef bets_t bets
    cdef wealth_t w
    cdef double[::1] reward = np.ascontiguousarray(x, dtype=np.float64)
    cdef double[::1] other = np.ascontiguousarray(np.zeros(0) if y is None else y, dtype=np.float64)
    cdef const double *minus = NULL
    cdef double lowest = low, added = shift
    cdef int64_t rows = n_rows
    cdef Py_ssize_t start = 0, stop
    bets_init(&bets, rows)
    wealth_init(&w)
    out = []
    for cut in [*cuts, reward.shape[0]]:
        stop = cut
        if stop > start:
            minus = &other[start] if other.shape[0] else NULL
            with nogil:
                if mirrored:
                    wealth_extend(&w, &bets, NULL, &reward[start], added, stop - start, lowest, rows)
                else:
                    wealth_extend(&w, &bets, &reward[start], minus, added, stop - start, lowest, rows)
        start = stop
        out.append((wealth_log(&w, &bets), w.peak, bool(w.impossible)))
    return out
