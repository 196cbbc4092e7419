# cython: cdivision=True
"""OCBA-m, which spends a budget, and the race for the m best, which decides arm by arm over rounds."""

from libc.math cimport NAN, fabs, floor, log, sqrt
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport calloc, free, qsort
cimport numpy as cnp

from fastrace._base._guard cimport guard_await, guard_build, guard_built
from fastrace._draws._alias cimport alias_build, alias_pick, alias_t
from fastrace._math._bounds cimport empirical_bernstein
from fastrace._math._cutoff cimport cutoff_between
from fastrace.select._selector cimport BY_BUDGET, BY_HORIZON, BY_SEPARATION, Selector, per_arm

from fastrace._base._signals cimport check_signals

import numpy as np

from fastrace.select._selector import _count, _demand

cnp.import_array()


cdef class Ocba(Selector):
    """Optimal computing budget allocation for m arms: Chen, He, Fu & Lee (2008), section 3."""

    cdef readonly int64_t first, batch, budget
    cdef readonly bint deficit, ready
    cdef double *share
    cdef double *weight
    cdef int64_t *tally
    cdef alias_t *alias
    cdef uint32_t *stack

    def __cinit__(self):
        cdef Py_ssize_t n = self.n_arms
        guard_await(&self.guard, 1)
        self.share = <double *>calloc(n, sizeof(double))
        self.weight = <double *>calloc(n, sizeof(double))
        self.tally = <int64_t *>calloc(n, sizeof(int64_t))
        self.alias = <alias_t *>calloc(n, sizeof(alias_t))
        self.stack = <uint32_t *>calloc(n, sizeof(uint32_t))
        if (self.share == NULL or self.weight == NULL or self.tally == NULL or self.alias == NULL
                or self.stack == NULL):
            raise MemoryError()

    def __dealloc__(self):
        free(self.share)
        free(self.weight)
        free(self.tally)
        free(self.alias)
        free(self.stack)

    def __init__(self, n_arms, n_best, *, low, high, rng, budget, first, batch, deficit):
        if not (1 <= first and 1 <= batch and 0 <= budget):
            raise ValueError(f"first is {first}, batch {batch} and budget {budget}; counts of pulls are needed")
        super().__init__(n_arms, n_best, low=low, high=high, rng=rng)
        guard_build(&self.guard, 1, self)
        self.budget, self.first, self.batch, self.deficit = budget, first, batch, deficit
        guard_built(&self.guard, 1)

    cdef int absorb(self, Py_ssize_t arm, const double *rewards, int64_t count) except -1 nogil:
        Selector.absorb(self, arm, rewards, count)
        if self.ready:
            self.resplit(arm)
        return 0

    cdef inline double deviation(self, Py_ssize_t i) noexcept nogil:
        """Sample standard deviation, at least 1e-12 of the support."""
        cdef double found = sqrt(self.m2[i] / (self.pulls[i] - 1)) if self.pulls[i] > 1 else 0.0
        return max(found, 1e-12 * self.span[i])

    cdef double cutoff_between_tops(self) noexcept nogil:
        cdef Py_ssize_t best = self.best.item[0], rest = self.rest.item[0]
        return cutoff_between(self.mean[best], self.mean[rest], self.deviation(best) / sqrt(<double>self.pulls[best]),
                              self.deviation(rest) / sqrt(<double>self.pulls[rest]))

    cdef int plan(self) except -1 nogil:
        cdef Py_ssize_t i
        cdef int64_t k, size = min(self.batch, self.budget - self.total)
        cdef double cutoff, gap, sum = 0.0, eligible = 0.0, ahead
        if self.total == 0:
            for i in range(self.n_arms):
                self.ask_for(i, self.first)
            return 0
        if not self.ready:
            self.split()
            self.ready = True
        if size <= 0:
            self.status = BY_BUDGET
            return 0
        cutoff = self.cutoff_between_tops()
        for i in range(self.n_arms):
            gap = max(fabs(self.mean[i] - cutoff), 1e-12 * self.span[i])
            self.share[i] = (self.deviation(i) / gap) ** 2
            sum += self.share[i]
        self.worked(20 * self.n_arms)
        ahead = <double>(self.total + size)
        for i in range(self.n_arms):
            self.tally[i] = 0
            self.share[i] /= sum
            self.weight[i] = self.share[i] * ahead - self.pulls[i]      # what the arm lacks
            if not self.weight[i] > 0.0:
                self.weight[i] = 0.0
            elif not self.deficit:
                self.weight[i] = self.share[i]
            eligible += self.weight[i]
        if not eligible > 0.0:          # rounding, with more than 2**53 pulls
            for i in range(self.n_arms):
                self.weight[i] = self.share[i]
            eligible = 1.0
        if self.deficit:
            return self.spread_out(size, eligible)
        alias_build(self.alias, self.weight, eligible, <uint32_t>self.n_arms, self.stack)
        for k in range(size):
            if (k & 0xFFFF) == 0xFFFF:
                check_signals()
            i = alias_pick(self.alias, <uint32_t>self.n_arms, self.uniform())
            while not self.weight[i] > 0.0:         # a cell that rounding left to its owner
                i = alias_pick(self.alias, <uint32_t>self.n_arms, self.uniform())
            self.add(i, 1)
        self.collect()
        return 0

    cdef inline void add(self, Py_ssize_t i, int64_t count) noexcept nogil:
        if count > 0:
            if self.tally[i] == 0:
                self.asked[self.n_asked] = i
                self.n_asked += 1
            self.tally[i] += count

    cdef void collect(self) noexcept nogil:
        cdef Py_ssize_t k
        for k in range(self.n_asked):
            self.wanted[k] = self.tally[self.asked[k]]
            self.tally[self.asked[k]] = 0

    cdef int spread_out(self, int64_t size, double lacking) except -1 nogil:
        """`size` pulls in proportion to what arms lack, rounded; what rounding leaves goes to those that lack most."""
        cdef Py_ssize_t i, most
        cdef int64_t given = 0, count
        for i in range(self.n_arms):
            self.weight[i] *= size / lacking
            count = <int64_t>floor(self.weight[i])
            self.weight[i] -= count
            self.add(i, count)
            given += count
        while given < size:
            self.worked(self.n_arms)
            most = 0
            for i in range(self.n_arms):
                if self.weight[i] > self.weight[most]:
                    most = i
            self.weight[most] -= 1.0
            self.add(most, 1)
            given += 1
        self.collect()
        return 0

    def cutoff(self):
        return self._alone(self._cutoff)

    def _cutoff(self):
        return self.cutoff_between_tops() if self.ready else NAN

    def _get_state(self):
        return super()._get_state() | dict(ready=self.ready)

    def _set_state(self, state):
        super()._set_state(state)
        _demand(isinstance(state["ready"], bool) and (not state["ready"] or (self._pulls > 0).all()), "its counts")
        self.ready = state["ready"]
        if self.ready:
            self.split()


cdef int _compare(const void *a, const void *b) noexcept nogil:
    cdef double x = (<const double *>a)[0], y = (<const double *>b)[0]
    return (x > y) - (x < y)


cdef Py_ssize_t _count_below(const double *sorted_values, Py_ssize_t n, double x) noexcept nogil:
    """How many of the sorted values are less than x."""
    cdef Py_ssize_t low = 0, high = n, middle
    while low < high:
        middle = (low + high) // 2
        if sorted_values[middle] < x:
            low = middle + 1
        else:
            high = middle
    return low


cdef class Race(Selector):
    """Rounds of one pull of each undecided arm; arms are selected or discarded by bounds that never widen.

    Heidrich-Meisner & Igel (2009), after Maron & Moore (1997).
    """

    cdef readonly int64_t horizon, rounds, spent
    cdef readonly double log_inv_delta, log_inv_alpha
    cdef readonly bint bernstein, beyond
    cdef cnp.ndarray _lower, _upper, _state
    cdef double *lower
    cdef double *upper
    cdef char *state                # 0 undecided, 1 selected, -1 discarded
    cdef double *sorted_lower
    cdef double *sorted_upper
    cdef Py_ssize_t n_undecided, n_selected, n_discarded

    def __cinit__(self):
        guard_await(&self.guard, 1)
        self.sorted_lower = <double *>calloc(self.n_arms, sizeof(double))
        self.sorted_upper = <double *>calloc(self.n_arms, sizeof(double))
        if self.sorted_lower == NULL or self.sorted_upper == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.sorted_lower)
        free(self.sorted_upper)

    def __init__(self, n_arms, n_best, *, low, high, rng, horizon, log_inv_delta, bernstein, beyond):
        if not (horizon >= 1 and 0.0 <= log_inv_delta < np.inf):
            raise ValueError(f"horizon is {horizon} and log(1 / delta) {log_inv_delta}; a round and a delta are needed")
        super().__init__(n_arms, n_best, low=low, high=high, rng=rng)
        guard_build(&self.guard, 1, self)
        self.horizon, self.log_inv_delta, self.bernstein, self.beyond = horizon, log_inv_delta, bernstein, beyond
        self._lower, self._upper = np.full(n_arms, -np.inf), np.full(n_arms, np.inf)
        self._state = np.zeros(n_arms, dtype=np.int8)
        self.lower = <double *>cnp.PyArray_DATA(self._lower)
        self.upper = <double *>cnp.PyArray_DATA(self._upper)
        self.state = <char *>cnp.PyArray_DATA(self._state)
        self.n_undecided = self.n_arms
        guard_built(&self.guard, 1)

    cdef int plan(self) except -1 nogil:
        cdef Py_ssize_t i
        if self.total > 0:
            self.end_round()
            if self.n_selected == self.n_best or self.n_discarded == self.n_arms - self.n_best:
                self.status = BY_SEPARATION
                return 0
            if self.rounds >= self.horizon and not self.beyond:
                self.status = BY_HORIZON
                return 0
        for i in range(self.n_arms):
            if self.state[i] == 0:
                self.ask_for(i, 1)
        return 0

    cdef void end_round(self) noexcept nogil:
        cdef Py_ssize_t i, k = 0, worse_needed, better_needed, selected = 0, discarded = 0, beaten, beating
        cdef double width
        cdef bint crossed
        self.rounds += 1
        if self.rounds <= self.horizon:
            # Looks made so far, and those that may still come: each gets the same share of delta.
            self.log_inv_alpha = self.log_inv_delta + log(
                <double>self.spent + <double>(self.horizon - self.rounds + 1) * <double>self.n_undecided)
        self.spent += self.n_undecided
        for i in range(self.n_arms):
            if self.state[i] == 0:
                if self.bernstein:
                    width = empirical_bernstein(self.rounds, sqrt(self.m2[i] / self.rounds), self.log_inv_alpha,
                                                self.span[i])
                else:
                    width = self.span[i] * sqrt((log(2.0) + self.log_inv_alpha) / (2.0 * self.rounds))
                self.lower[i] = max(self.lower[i], self.mean[i] - width)
                self.upper[i] = min(self.upper[i], self.mean[i] + width)
                self.sorted_lower[k] = self.lower[i]
                self.sorted_upper[k] = self.upper[i]
                k += 1
        qsort(self.sorted_lower, k, sizeof(double), _compare)
        qsort(self.sorted_upper, k, sizeof(double), _compare)
        worse_needed = self.n_arms - self.n_best - self.n_discarded
        better_needed = self.n_best - self.n_selected
        for i in range(self.n_arms):
            if self.state[i] == 0:
                crossed = self.lower[i] > self.upper[i]         # has counted itself: only when a bound has failed
                beaten = _count_below(self.sorted_upper, k, self.lower[i]) - crossed
                beating = self.count_above(k, self.upper[i]) - crossed
                if beaten >= worse_needed and selected < better_needed:
                    self.state[i] = 1
                    selected += 1
                elif beating >= better_needed and discarded < worse_needed:
                    self.state[i] = -1
                    discarded += 1
        self.n_selected += selected
        self.n_discarded += discarded
        self.n_undecided -= selected + discarded

    cdef Py_ssize_t count_above(self, Py_ssize_t n, double x) noexcept nogil:
        """How many undecided arms have a lower bound above x."""
        cdef Py_ssize_t low = 0, high = n, middle
        while low < high:
            middle = (low + high) // 2
            if self.sorted_lower[middle] <= x:
                low = middle + 1
            else:
                high = middle
        return n - low

    def _chosen(self):
        """The selected arms, filled up with the best undecided means."""
        known = np.where(self._pulls > 0, self._mean, -np.inf)
        order = np.lexsort((-known, -self._state))[:self.n_best]
        return order[np.argsort(-known[order], kind="stable")]

    def decided(self):
        """Selected (1), discarded (-1) or undecided (0), of each arm; and the bounds."""
        return self._alone(self._decided)

    def _decided(self):
        return self._state.copy(), self._lower.copy(), self._upper.copy()

    def _get_state(self):
        return super()._get_state() | dict(lower=self._lower.copy(), upper=self._upper.copy(), state=self._state.copy(),
                                           rounds=self.rounds, spent=self.spent, log_inv_alpha=self.log_inv_alpha)

    def _set_state(self, state):
        found = per_arm(state["state"], self.n_arms, np.int8, "state")
        lower, upper = np.array(state["lower"], dtype=np.float64), np.array(state["upper"], dtype=np.float64)
        rounds, spent, level = _count(state["rounds"]), _count(state["spent"]), float(state["log_inv_alpha"])
        super()._set_state(state)
        selected, discarded = int((found == 1).sum()), int((found == -1).sum())
        _demand(np.isin(found, [-1, 0, 1]).all() and selected <= self.n_best
                and discarded <= self.n_arms - self.n_best
                and (self.done or (found[self._asked[:self.n_asked]] == 0).all()), "its decisions")
        _demand(lower.shape == upper.shape == (self.n_arms,) and not np.isnan(lower).any()
                and not np.isnan(upper).any() and level >= 0.0, "its bounds")
        _demand((self._pulls <= rounds + 1).all() and spent <= rounds * self.n_arms, "its counts")
        self._lower[:], self._upper[:], self._state[:] = lower, upper, found
        self.rounds, self.spent, self.log_inv_alpha = rounds, spent, level
        self.n_selected, self.n_discarded = selected, discarded
        self.n_undecided = self.n_arms - selected - discarded
