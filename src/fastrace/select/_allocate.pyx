# cython: cdivision=True
"""OCBA-m, which spends a budget, and the race for the m best, which decides arm by arm over rounds."""

from libc.math cimport INFINITY, NAN, fabs, floor, log, sqrt
from libc.stdint cimport int64_t
from libc.stdlib cimport qsort
cimport numpy as cnp

from fastrace._math._bounds cimport empirical_bernstein
from fastrace._math._cutoff cimport cutoff_between
from fastrace.select._selector cimport BY_BUDGET, BY_HORIZON, BY_SEPARATION, Selector

import numpy as np

from fastrace.select._selector import _count, _demand

cnp.import_array()


cdef class Ocba(Selector):
    """Optimal computing budget allocation for m arms: Chen, He, Fu & Lee (2008), section 3."""

    cdef readonly int64_t batch, budget
    cdef readonly bint deficit

    def _configure(self, *, budget, first, batch, deficit):
        if not (1 <= first and 1 <= batch and 0 <= budget):
            raise ValueError(f"first is {first}, batch {batch} and budget {budget}; counts of pulls are needed")
        self.budget, self.first, self.batch, self.deficit = budget, first, batch, deficit
        self.room_for_blocks()

    cdef inline double deviation(self, Py_ssize_t i) noexcept nogil:
        """Sample standard deviation, at least 1e-12 of the support."""
        cdef double found = sqrt(self.m2[i] / (self.pulls[i] - 1)) if self.pulls[i] > 1 else 0.0
        return max(found, 1e-12 * self.span[i])

    cdef double cutoff_between_tops(self) noexcept nogil:
        cdef Py_ssize_t best = self.best.item[0], rest = self.rest.item[0]
        return cutoff_between(self.mean[best], self.mean[rest], self.deviation(best) / sqrt(<double>self.pulls[best]),
                              self.deviation(rest) / sqrt(<double>self.pulls[rest]))

    cdef double fill_shares(self) except? -1.0 nogil:
        """The share of each arm as its `weight`, times their sum, which is returned."""
        cdef Py_ssize_t i
        cdef double cutoff = self.cutoff_between_tops(), gap, sum = 0.0
        for i in range(self.n_arms):
            gap = max(fabs(self.mean[i] - cutoff), 1e-12 * self.span[i])
            self.weight[i] = (self.deviation(i) / gap) ** 2
            sum += self.weight[i]
        self.worked(20 * self.n_arms)
        return sum

    cdef int plan(self) except -1 nogil:
        cdef Py_ssize_t i
        cdef int64_t size = min(self.batch, self.budget - self.total)
        cdef double sum, share, lacking, eligible = 0.0
        if size <= 0:
            self.status = BY_BUDGET
            return 0
        sum = self.fill_shares()
        for i in range(self.n_arms):
            share = self.weight[i] / sum
            lacking = share * <double>(self.total + size) - self.pulls[i]
            self.weight[i] = 0.0 if not lacking > 0.0 else lacking if self.deficit else share
            eligible += self.weight[i]
        if not eligible > 0.0:          # rounding, with more than 2**53 pulls
            eligible = self.fill_shares()
        return self.spread_out(size, eligible) if self.deficit else self.draw_block(eligible, size)

    cdef int spread_out(self, int64_t size, double lacking) except -1 nogil:
        """`size` pulls in proportion to what arms lack, rounded; what rounding leaves goes to those that lack most."""
        cdef Py_ssize_t i, most
        cdef int64_t given = 0, count
        for i in range(self.n_arms):
            self.weight[i] *= size / lacking
            count = <int64_t>floor(self.weight[i])
            self.weight[i] -= count
            self.ask_one_more(i, count)
            given += count
        while given < size:
            self.worked(self.n_arms)
            most = 0
            for i in range(self.n_arms):
                if self.weight[i] > self.weight[most]:
                    most = i
            self.weight[most] -= 1.0
            self.ask_one_more(most, 1)
            given += 1
        return 0

    def cutoff(self):
        return self._alone(self._cutoff)

    def _cutoff(self):
        return self.cutoff_between_tops() if self.ready else NAN


cdef int _compare(const void *a, const void *b) noexcept nogil:
    cdef double x = (<const double *>a)[0], y = (<const double *>b)[0]
    return (x > y) - (x < y)


cdef Py_ssize_t _count_below(const double *sorted_values, Py_ssize_t n, double x, bint ties) noexcept nogil:
    """How many of the sorted values are less than x; those equal to it too, if `ties`."""
    cdef Py_ssize_t low = 0, high = n, middle
    while low < high:
        middle = (low + high) // 2
        if sorted_values[middle] < x or (ties and sorted_values[middle] == x):
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
    cdef double *lower
    cdef double *upper
    cdef char *decision             # 0 undecided, 1 selected, -1 discarded
    cdef double *sorted_lower       # of the undecided
    cdef double *sorted_upper
    cdef Py_ssize_t n_undecided, n_selected, n_discarded

    def _configure(self, *, horizon, log_inv_delta, bernstein, beyond):
        cdef Py_ssize_t i
        if not (horizon >= 1 and 0.0 <= log_inv_delta < np.inf):
            raise ValueError(f"horizon is {horizon} and log(1 / delta) {log_inv_delta}; a round and a delta are needed")
        self.horizon, self.log_inv_delta, self.bernstein, self.beyond = horizon, log_inv_delta, bernstein, beyond
        self.lower = <double *>self.vector("lower", np.float64)
        self.upper = <double *>self.vector("upper", np.float64)
        self.decision = <char *>self.vector("decision", np.int8)
        self.sorted_lower = <double *>self.room(self.n_arms, sizeof(double))
        self.sorted_upper = <double *>self.room(self.n_arms, sizeof(double))
        for i in range(self.n_arms):
            self.lower[i] = -INFINITY
            self.upper[i] = INFINITY
        self.n_undecided = self.n_arms

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
            if self.decision[i] == 0:
                self.ask_for(i, 1)
        return 0

    cdef Py_ssize_t bound_undecided(self) noexcept nogil:
        """Bounds of this round, sorted; how many."""
        cdef Py_ssize_t i, k = 0
        cdef double width
        for i in range(self.n_arms):
            if self.decision[i] == 0:
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
        return k

    cdef void end_round(self) noexcept nogil:
        """Decide by the numbers of arms selected and discarded before the round."""
        cdef Py_ssize_t i, k, worse_needed, better_needed, selected = 0, discarded = 0, beaten, beating
        cdef bint crossed
        self.rounds += 1
        if self.rounds <= self.horizon:
            # Looks made so far, and those that may still come: each gets the same share of delta.
            self.log_inv_alpha = self.log_inv_delta + log(
                <double>self.spent + <double>(self.horizon - self.rounds + 1) * <double>self.n_undecided)
        self.spent += self.n_undecided
        k = self.bound_undecided()
        worse_needed = self.n_arms - self.n_best - self.n_discarded
        better_needed = self.n_best - self.n_selected
        for i in range(self.n_arms):
            if self.decision[i] == 0:
                crossed = self.lower[i] > self.upper[i]         # has counted itself: only when a bound has failed
                beaten = _count_below(self.sorted_upper, k, self.lower[i], False) - crossed
                beating = k - _count_below(self.sorted_lower, k, self.upper[i], True) - crossed
                if beaten >= worse_needed and selected < better_needed:
                    self.decision[i] = 1
                    selected += 1
                elif beating >= better_needed and discarded < worse_needed:
                    self.decision[i] = -1
                    discarded += 1
        self.n_selected += selected
        self.n_discarded += discarded
        self.n_undecided -= selected + discarded

    def _chosen(self):
        """The selected arms, filled up with the best undecided means."""
        decision = self.vectors["decision"]
        groups = [np.flatnonzero(decision == kind) for kind in (1, 0, -1)]
        return self._by_mean(self._by_mean(*groups)[:self.n_best])

    def decided(self):
        """Selected (1), discarded (-1) or undecided (0), of each arm; and the bounds."""
        return self._alone(self._decided)

    def _decided(self):
        return tuple(self.vectors[name].copy() for name in ("decision", "lower", "upper"))

    def _get_state(self):
        return super()._get_state() | dict(rounds=self.rounds, spent=self.spent, log_inv_alpha=self.log_inv_alpha)

    def _set_state(self, state):
        super()._set_state(state)
        decision = self.vectors["decision"]
        rounds, spent, level = _count(state["rounds"]), _count(state["spent"]), float(state["log_inv_alpha"])
        selected, discarded = int((decision == 1).sum()), int((decision == -1).sum())
        _demand(np.isin(decision, [-1, 0, 1]).all() and selected <= self.n_best
                and discarded <= self.n_arms - self.n_best
                and (self.done or (decision[self._asked[:self.n_asked]] == 0).all()), "its decisions")
        _demand(level >= 0.0, "its bounds")
        _demand((self._pulls <= rounds + 1).all() and spent <= rounds * self.n_arms, "its counts")
        self.rounds, self.spent, self.log_inv_alpha = rounds, spent, level
        self.n_selected, self.n_discarded = selected, discarded
        self.n_undecided = self.n_arms - selected - discarded
