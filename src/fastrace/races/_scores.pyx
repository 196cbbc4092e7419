# cython: cdivision=True
"""Rewards of a race less what a proxy says of them: Shekhar, Xu, Lipton, Liang & Ramdas (UAI 2023), for differences.

Let q be the score of an arm on a row less the mean of its scores over all rows, which is known. Then y - c q has the
same sum over all rows as the reward y, for any coefficient c. The order of rows is cut into parts. A part has its own
coefficients, learned from the rows of earlier parts. With s = (sum of y - c q over the rows before the part, less the
sum of what was bet on there) / (rows not yet read), the race bets on b = y - c q + s. Over the rows not yet read, b
sums to N mean(y) less the b before: what bets without replacement need of a population, whatever c was before. s is the
same for all rows of a part, as c is.
"""

from libc.math cimport INFINITY, NAN, isnan
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset
cimport numpy as cnp

from fastrace._base._guard cimport guard_await, guard_build, guard_built
from fastrace._base._signals cimport check_signals
from fastrace._base._types cimport moments4_t
from fastrace._draws._row_order cimport rows_in
from fastrace._math._betting cimport wealth_extend, wealth_spread_again, wealth_t
from fastrace._math._moments cimport moments4_extend, moments4_extend_difference
from fastrace.races._memory cimport RaceMemory
from fastrace.races._reading cimport ROWS_PER_BLOCK, ROWS_PER_CHECK

import numpy as np

from fastrace._base._checks import DamagedError

cnp.import_array()

PARTS = ("_begins", "_slopes", "_shifts")
OF_ARMS = ("_slope", "_score_sum", "_adjusted_sum", "_lower", "_upper", "_found_at")

cdef enum:
    MOST_PARTS = 64             # a part is at least as long as all before it together
    SHRUNK = 8                  # rows with a coefficient of 0 that are counted beside those read


cdef class RaceScores(RaceMemory):
    """Memory of a race, and the scores of all rows if it has a proxy."""

    def __cinit__(self, *args, **kwargs):
        guard_await(&self.guard, 2)
        self.gap = <double **>calloc(self.n_arms, sizeof(double *))
        if self.gap == NULL:
            raise MemoryError()

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self.n_arms if self.gap != NULL else 0):
            free(self.gap[i])
        free(self.gap)

    def __init__(self, n_arms, n_rows, *, pairwise, shuffled, betting, low, high, rng, epsilon=0.0, proxy=None):
        super().__init__(n_arms, n_rows, pairwise=pairwise, shuffled=shuffled, betting=betting, low=low, high=high,
                         rng=rng, epsilon=epsilon)
        cdef Py_ssize_t d = self.n_arms
        if proxy is None:
            guard_build(&self.guard, 2, self)
            guard_built(&self.guard, 2)
            return
        table = np.ascontiguousarray(proxy, dtype=np.float64)
        if table.ndim != 2 or table.shape[0] != self.n_rows or table.shape[1] not in (1, self.n_arms):
            raise ValueError(f"proxy has shape {np.shape(proxy)}; a column for all arms or one per arm is needed")
        guard_build(&self.guard, 2, self)
        self.proxied = True
        self._table = table
        self.n_columns = table.shape[1]
        self.shared = self.n_columns == 1
        self._centre = np.ascontiguousarray(table.mean(axis=0))
        self._least = np.ascontiguousarray(table.min(axis=0) - self._centre)
        self._most = np.ascontiguousarray(table.max(axis=0) - self._centre)
        self._slope, self._score_sum, self._adjusted_sum = np.zeros(d), np.zeros(d), np.zeros(d)
        self._lower, self._upper, self._found_at = np.zeros(d), np.zeros(d), np.zeros(d, np.int64)
        self._begins = np.zeros(MOST_PARTS, np.int64)
        self._slopes, self._shifts = np.zeros((MOST_PARTS, d)), np.zeros((MOST_PARTS, d))
        self.score = <const double *>cnp.PyArray_DATA(self._table)
        self.centre = <double *>cnp.PyArray_DATA(self._centre)
        self.lowest = <double *>cnp.PyArray_DATA(self._least)
        self.highest = <double *>cnp.PyArray_DATA(self._most)
        self.slope = <double *>cnp.PyArray_DATA(self._slope)
        self.score_sum = <double *>cnp.PyArray_DATA(self._score_sum)
        self.adjusted_sum = <double *>cnp.PyArray_DATA(self._adjusted_sum)
        self.lower = <double *>cnp.PyArray_DATA(self._lower)
        self.upper = <double *>cnp.PyArray_DATA(self._upper)
        self.found_at = <int64_t *>cnp.PyArray_DATA(self._found_at)
        self.begins = <int64_t *>cnp.PyArray_DATA(self._begins)
        self.slopes = <double *>cnp.PyArray_DATA(self._slopes)
        self.shifts = <double *>cnp.PyArray_DATA(self._shifts)
        self.n_parts = 1
        guard_built(&self.guard, 2)

    cdef void _forget_slopes(self) noexcept nogil:
        """Begin with one part, whose coefficients are 0."""
        cdef Py_ssize_t i
        if not self.proxied:
            return
        self.n_parts = 1
        for i in range(self.n_arms):
            self.slope[i] = self.score_sum[i] = self.adjusted_sum[i] = 0.0
            self.slopes[i] = self.shifts[i] = 0.0
            self.found_at[i] = 0

    # Coefficients.

    cdef void _learn(self, int64_t n, const double *total) noexcept nogil:
        """Count the rows of a look, up to row n, and begin a part if it is time. `total` are the sums of the rewards.

        Coefficients are learned at the first look, and once the rows have doubled since; not in the second half of the
        population, where few rows are left to gain on.
        """
        cdef double scores
        cdef int64_t start
        cdef Py_ssize_t i, j, k, count, part = self.n_parts - 1
        cdef const double *slope = self.slopes + part * self.n_arms
        cdef const double *shift = self.shifts + part * self.n_arms
        for j in range(self.n_active):
            i = self.active[j]
            if self.dead[i]:
                continue
            scores = 0.0
            start = self.n_read
            while start < n:
                count = <Py_ssize_t>min(<int64_t>ROWS_PER_BLOCK, n - start)
                self._take_rows(start, count)
                for k in range(count):
                    scores += self._score(i, self.rows[k])
                start += count
            self.score_sum[i] += scores
            self.adjusted_sum[i] += total[i] - self.sum[i] - slope[i] * scores + (n - self.n_read) * shift[i]
        if n < 2 * self.begins[part] or 2 * n > self.n_rows or self.n_parts == MOST_PARTS:
            return
        if self.shared:
            self._slopes_of_arms(n)
        else:
            self._slope_of_all(n)
        part += 1
        self.n_parts += 1
        self.begins[part] = n
        for i in range(self.n_arms):
            self.slopes[part * self.n_arms + i] = self.shifts[part * self.n_arms + i] = 0.0
        for j in range(self.n_active):
            i = self.active[j]
            if not self.dead[i]:
                self.slopes[part * self.n_arms + i] = self.slope[i]
                self.shifts[part * self.n_arms + i] = (
                    total[i] - self.slope[i] * self.score_sum[i] - self.adjusted_sum[i]) / (self.n_rows - n)

    cdef void _slopes_of_arms(self, int64_t n) noexcept nogil:
        """Of each arm, the regression of its rewards on the one column of scores."""
        cdef double q, mean, both, square, most
        cdef int64_t start
        cdef Py_ssize_t i, j, k, count
        for j in range(self.n_active):
            i = self.active[j]
            if self.dead[i]:
                continue
            mean = self.score_sum[i] / n
            both = square = 0.0
            start = 0
            while start < n:
                count = <Py_ssize_t>min(<int64_t>ROWS_PER_BLOCK, n - start)
                self._take_rows(start, count)
                for k in range(count):
                    q = self._score(i, self.rows[k]) - mean
                    both += q * self.column[i][start + k]
                    square += q * q
                start += count
            most = self._most_slope(i)
            self.slope[i] = min(max(self._shrunk(both, square, n, i), -most), most)

    cdef void _slope_of_all(self, int64_t n) noexcept nogil:
        """One coefficient for all arms, from products of rewards and scores centred over arms within rows."""
        cdef double q, mean, of_row, both = 0.0, square = 0.0, most = INFINITY, slope
        cdef int64_t start = 0
        cdef Py_ssize_t i, j, k, count, arms = 0, first = 0
        mean = 0.0
        for j in range(self.n_active):
            i = self.active[j]
            if not self.dead[i]:
                mean += self.score_sum[i]
                most = min(most, self._most_slope(i))
                first = i
                arms += 1
        mean /= arms * <double>n
        while start < n:
            count = <Py_ssize_t>min(<int64_t>ROWS_PER_BLOCK, n - start)
            self._take_rows(start, count)
            for k in range(count):
                of_row = 0.0
                for j in range(self.n_active):
                    if not self.dead[self.active[j]]:
                        of_row += self._score(self.active[j], self.rows[k])
                of_row = of_row / arms - mean
                for j in range(self.n_active):
                    i = self.active[j]
                    if not self.dead[i]:
                        q = self._score(i, self.rows[k]) - self.score_sum[i] / n - of_row
                        both += q * self.column[i][start + k]
                        square += q * q
            start += count
        slope = min(max(self._shrunk(both, square, n, first), -most), most)
        for j in range(self.n_active):
            self.slope[self.active[j]] = slope

    cdef double _shrunk(self, double both, double square, int64_t n, Py_ssize_t i) noexcept nogil:
        """A regression coefficient, a little nearer to 0; 0 where scores do not vary."""
        cdef double width = self.highest[i % self.n_columns] - self.lowest[i % self.n_columns]
        if not square > 1e-12 * n * width * width:
            return 0.0
        return both / square * n / (n + SHRUNK)

    cdef double _most_slope(self, Py_ssize_t i) noexcept nogil:
        """The coefficient that makes scores range as widely as the rewards of an arm: no larger one is taken."""
        cdef double width = self.highest[i % self.n_columns] - self.lowest[i % self.n_columns]
        return (self.high[i] - self.low[i]) / width if width > 0.0 else INFINITY

    cdef double _explained(self, Py_ssize_t i, int64_t n) noexcept nogil:
        """What the proxy says of how far the mean of n rewards read is above that of all rows."""
        return self.slope[i] * self.score_sum[i] / n if self.proxied else 0.0

    # Adjusted rewards. Arm -1 stands for zeros.

    cdef void _take_rows(self, int64_t start, Py_ssize_t count) noexcept nogil:
        rows_in(self.order, start, count, self.rows)

    cdef double _score(self, Py_ssize_t i, int64_t row) noexcept nogil:
        """The score of an arm on a row, less the mean over all rows."""
        cdef Py_ssize_t column = 0 if self.shared else i
        return self.score[row * self.n_columns + column] - self.centre[column]

    cdef const double *_take_adjusted(self, Py_ssize_t i, double slope, double shift, int64_t start, Py_ssize_t count,
                                      double *out) noexcept nogil:
        """Adjusted rewards of an arm on the rows of `_take_rows`; NULL for zeros."""
        cdef Py_ssize_t k
        if i < 0:
            return NULL
        for k in range(count):
            out[k] = self.column[i][start + k] - slope * self._score(i, self.rows[k]) + shift
        return out

    cdef int _bet_adjusted(self, wealth_t *w, Py_ssize_t a, Py_ssize_t b, double shift, double low,
                           int64_t rows) except -1 nogil:
        """Bets that the mean of arm a less that of arm b is above -shift, brought up to so many rows.

        `low` is the least that a reward of a, less one of b, plus `shift` can be.
        """
        cdef Py_ssize_t count, part = 0, checked = 0
        cdef double above, below, least
        cdef const double *x
        cdef const double *y
        while w.n < rows:
            while part + 1 < self.n_parts and self.begins[part + 1] <= w.n:
                part += 1
            count = <Py_ssize_t>min(<int64_t>ROWS_PER_BLOCK, rows - w.n)
            if part + 1 < self.n_parts:
                count = <Py_ssize_t>min(<int64_t>count, self.begins[part + 1] - w.n)
            above = self.shifts[part * self.n_arms + a] if a >= 0 else 0.0
            below = self.shifts[part * self.n_arms + b] if b >= 0 else 0.0
            least = low - self._top(a, b, part) + (above - below)
            if w.n == self.begins[part] and part > 0:
                self._see_again(w, a, b, shift + (above - below), part)
            self._take_rows(w.n, count)
            x = self._take_adjusted(a, self._slope_of(a, part), above, w.n, count, self.x)
            y = self._take_adjusted(b, self._slope_of(b, part), below, w.n, count, self.y)
            wealth_extend(w, &self.bets, x, y, shift, count, least, self.n_rows)
            checked += count
            if checked >= ROWS_PER_CHECK:
                checked = 0
                check_signals()
        return 0

    cdef double _slope_of(self, Py_ssize_t i, Py_ssize_t part) noexcept nogil:
        return self.slopes[part * self.n_arms + i] if i >= 0 else 0.0

    cdef void _see_again(self, wealth_t *w, Py_ssize_t a, Py_ssize_t b, double shift, Py_ssize_t part) noexcept nogil:
        """Before a part: the spread of the rewards read is what it would have been with the new coefficients."""
        cdef int64_t start = 0
        cdef Py_ssize_t count
        while start < w.n:
            count = <Py_ssize_t>min(<int64_t>ROWS_PER_BLOCK, w.n - start)
            self._take_rows(start, count)
            wealth_spread_again(w, self._take_adjusted(a, self._slope_of(a, part), 0.0, start, count, self.x),
                                self._take_adjusted(b, self._slope_of(b, part), 0.0, start, count, self.y),
                                shift, count, start == 0)
            start += count

    cdef double _top(self, Py_ssize_t a, Py_ssize_t b, Py_ssize_t part) except? -1.0 nogil:
        """The most that is subtracted for scores on any row, from the rewards of arm a less those of arm b."""
        cdef double slope = self._slope_of(a, part) - self._slope_of(b, part), least, most
        cdef Py_ssize_t i = a if a >= 0 else b
        if self.shared or a < 0 or b < 0:
            i = 0 if self.shared else i
            return max(slope * self.lowest[i], slope * self.highest[i])
        slope = self._slope_of(a, part)             # one for all arms
        if slope == 0.0:
            return 0.0
        if self.gap[b] != NULL and not isnan(self.gap[b][2 * a]):
            least, most = -self.gap[b][2 * a + 1], -self.gap[b][2 * a]
        else:
            self._measure_gap(a, b)
            least, most = self.gap[a][2 * b], self.gap[a][2 * b + 1]
        return max(slope * least, slope * most)

    cdef int _measure_gap(self, Py_ssize_t a, Py_ssize_t b) except -1 nogil:
        """See how far the scores of two arms differ on any row; kept."""
        cdef Py_ssize_t i
        cdef int64_t row
        cdef double q, least = INFINITY, most = -INFINITY
        if self.gap[a] == NULL:
            self.gap[a] = <double *>malloc(2 * self.n_arms * sizeof(double))
            if self.gap[a] == NULL:
                with gil:
                    raise MemoryError()
            for i in range(2 * self.n_arms):
                self.gap[a][i] = NAN
        if isnan(self.gap[a][2 * b]):
            for row in range(self.n_rows):
                q = self._score(a, row) - self._score(b, row)
                least = min(least, q)
                most = max(most, q)
            self.gap[a][2 * b], self.gap[a][2 * b + 1] = least, most
        return 0

    cdef void _moments_adjusted(self, Py_ssize_t a, Py_ssize_t b, int64_t n, moments4_t *m) noexcept nogil:
        """Moments of the first n rewards of arm a less those of arm b, by the coefficients then; b may be -1."""
        cdef int64_t start = 0
        cdef Py_ssize_t count, part = self.n_parts - 1
        while self.begins[part] > n:
            part -= 1
        memset(m, 0, sizeof(moments4_t))
        while start < n:
            count = <Py_ssize_t>min(<int64_t>ROWS_PER_BLOCK, n - start)
            self._take_rows(start, count)
            self._take_adjusted(a, self._slope_of(a, part), 0.0, start, count, self.x)
            if b >= 0:
                self._take_adjusted(b, self._slope_of(b, part), 0.0, start, count, self.y)
                moments4_extend_difference(m, self.x, self.y, count)
            else:
                moments4_extend(m, self.x, count)
            start += count

    # Saving.

    def _state(self):
        state = super()._state()
        return state | {"proxy": self._saved_slopes()} if self.proxied else state

    def _take_state(self, state):
        super()._take_state(state)
        self._take_slopes(state.get("proxy"))

    def _saved_slopes(self):
        """The parts, and what is known of each arm, as plain objects."""
        parts = {name: getattr(self, name)[:self.n_parts].copy() for name in PARTS}
        return parts | {name: getattr(self, name).copy() for name in OF_ARMS}

    def _take_slopes(self, saved):
        """Take what `_saved_slopes` gave."""
        cdef Py_ssize_t n
        if not self.proxied and saved is None:
            return
        good = self.proxied and saved is not None and set(saved) == {*PARTS, *OF_ARMS}
        n = np.shape(saved["_begins"])[0] if good else 0
        good = good and 1 <= n <= MOST_PARTS
        for name in (*PARTS, *OF_ARMS) if good else ():
            own = getattr(self, name)
            own = own[:n] if name in PARTS else own
            good = good and saved[name].shape == own.shape and saved[name].dtype == own.dtype
            good = good and bool(np.isfinite(saved[name]).all())
            if good:
                own[...] = saved[name]
        if not (good and self._begins[0] == 0 and bool((np.diff(self._begins[:n]) > 0).all())):
            raise DamagedError("the saved race is damaged: what it says of its proxy cannot be right")
        self.n_parts = n
