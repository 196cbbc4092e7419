"""Compiled loop of LUCB: pull the weakest arm of the chosen and its strongest rival until they are apart."""

from libc.math cimport INFINITY, NAN, ceil, exp, fmax, fmin
from libc.stdint cimport int64_t
cimport numpy as cnp

from fastrace._base._guard cimport guard_check
from fastrace._draws._heaps cimport heap_order, heap_sift
from fastrace._math._anytime cimport (TABLE_SIZE, kl_easy_level, kl_level, kl_lower, kl_upper, lucb1_half_width,
                                      mean_mixture_boundary, mixture_rho, mixture_t, normal_mixture_boundary,
                                      normal_mixture_level, set_mixture, table_boundary)
from fastrace.select._selector cimport BY_BUDGET, BY_EPSILON, BY_SEPARATION, MOST_PULLS, Selector

import numpy as np

from fastrace._pull_source import _whole_numbers
from fastrace.select._selector import _count, _demand

cnp.import_array()

BOUNDS = ("eb-mix", "hoeffding-mix", "lucb1", "kl", "kl-easy")

cdef enum:      # places in BOUNDS
    EB_MIX
    HOEFFDING_MIX
    LUCB1
    KL
    KL_EASY

cdef enum:
    MAX_BATCH = 4096        # pulls of one arm per decision, where they grow by themselves
    KEPT_GAPS = 2048        # of the history; 2 % apart, so that it reaches 10^16 pulls


cdef class LucbSelector(Selector):
    """State and loop; `lucb.LUCB` checks the arguments and names the answer.

    `side[0]` are the chosen with lower bounds, `side[1]` the others with upper bounds. `batch` counts the pulls of
    either arm per decision; 0: one per cent of what the one with fewer pulls has.
    """

    def _configure(self, *, epsilon, batch, bound, log_inv_alpha, scales):
        cdef int k
        cdef side_t *side
        cdef double[2] level = (log_inv_alpha[0], log_inv_alpha[1])
        cdef Py_ssize_t *items = <Py_ssize_t *>self.room(self.n_arms, sizeof(Py_ssize_t))
        cdef Py_ssize_t *place = <Py_ssize_t *>self.room(self.n_arms, sizeof(Py_ssize_t))
        if not (0.0 <= epsilon < np.inf and 0 <= batch <= MOST_PULLS and 0.0 < level[0] < np.inf
                and 0.0 < level[1] < np.inf):
            raise ValueError("epsilon, batch or log_inv_alpha is out of range")
        self.bound = <double *>self.room(self.n_arms, sizeof(double))
        self.gap_at = <int64_t *>self.room(KEPT_GAPS, sizeof(int64_t))
        self.gap = <double *>self.room(KEPT_GAPS, sizeof(double))
        self.first = 1
        self.epsilon = epsilon
        self.batch = batch
        self.kind = BOUNDS.index(bound)
        self.moving = self.kind in (LUCB1, KL, KL_EASY)
        self.rounds = self.level_round = 1
        self.bound_cost = 1500 if self.kind in (KL, KL_EASY) else 50
        for k in range(2):
            side = &self.side[k]
            side.log_inv_alpha = level[k]
            self._set_level(side)
            if self.kind in (EB_MIX, HOEFFDING_MIX):
                set_mixture(&side.mixture, scales, level[k])
            side.table = <double *>self.room(TABLE_SIZE, sizeof(double))
            side.heap.item = items + (self.n_best if k else 0)
            side.heap.size = self.n_arms - self.n_best if k else self.n_best
            side.heap.place = place
            side.heap.key = self.bound
            side.heap.sign = 1.0 if k else -1.0

    # Bounds.

    cdef void _set_level(self, side_t *side) noexcept nogil:
        """What a bound needs to know of alpha, once."""
        if self.kind == HOEFFDING_MIX:
            side.level = normal_mixture_level(side.log_inv_alpha)
        else:
            side.level = side.log_inv_alpha

    cdef double _boundary(self, Py_ssize_t i, const side_t *side, bint exact) noexcept nogil:
        """Half-width for rewards in [0, 1]; exact, or at most 0.1 % wider and from a table."""
        cdef double n = <double>self.pulls[i], v = self.error[i] / (self.span[i] * self.span[i])
        if self.kind == EB_MIX:
            if exact:
                return mean_mixture_boundary(v, &side.mixture, side.level) / n
            return table_boundary(side.table, v, &side.mixture, side.level) / n
        if self.kind == HOEFFDING_MIX:
            return normal_mixture_boundary(0.25 * n, side.mixture.rho[0], side.level) / n
        return lucb1_half_width(n, <double>self.level_round, side.level)

    cdef double _kl_bound(self, Py_ssize_t i, int k) noexcept nogil:
        cdef double level, mean = fmin(fmax((self.mean[i] - self.low[i]) / self.span[i], 0.0), 1.0)
        if self.kind == KL:
            level = kl_level(<double>self.level_round, self.side[k].level)
        else:
            level = kl_easy_level(<double>self.level_round, self.side[k].level)
        level /= <double>self.pulls[i]
        return self.low[i] + self.span[i] * (kl_lower(mean, level) if k == 0 else kl_upper(mean, level))

    cdef double _bound(self, Py_ssize_t i, int k, bint exact) noexcept nogil:
        """Lower bound (k = 0) or upper bound (k = 1) of the arm's mean."""
        cdef double width
        if self.pulls[i] == 0:
            return self.low[i] if k == 0 else self.low[i] + self.span[i]
        if self.kind == KL or self.kind == KL_EASY:
            return self._kl_bound(i, k)
        width = self.span[i] * self._boundary(i, &self.side[k], exact)
        return self.mean[i] - width if k == 0 else self.mean[i] + width

    cdef double _end(self, Py_ssize_t i, int k) noexcept nogil:
        return self._bound(i, k, False)

    # Order.

    cdef int split(self) except -1 nogil:
        """Choose from the means as they are; O(n_arms log n_arms)."""
        cdef Py_ssize_t i, chosen = 0, others = 0
        Selector.split(self)
        for i in range(self.n_arms):
            if self.is_best[i]:
                self.side[0].heap.item[chosen] = i
                chosen += 1
            else:
                self.side[1].heap.item[others] = i
                others += 1
        self.stale = True
        return 0

    cdef int _refresh(self) except -1 nogil:
        """Compute and order every bound anew; O(n_arms)."""
        cdef Py_ssize_t i
        for i in range(self.n_arms):
            if (i & 1023) == 1023:
                self.worked(1024 * self.bound_cost)
            self.bound[i] = self._bound(i, 0 if self.is_best[i] else 1, False)
        heap_order(&self.side[0].heap)
        heap_order(&self.side[1].heap)
        self.stale = False
        return 0

    cdef void _rebound(self, Py_ssize_t i, Py_ssize_t at) noexcept nogil:
        """Let arm i stand with its bound in the heap of its side, at `at` or wherever that leads."""
        cdef int k = 0 if self.is_best[i] else 1
        self.bound[i] = self._bound(i, k, False)
        self.side[k].heap.item[at] = i
        heap_sift(&self.side[k].heap, at)

    cdef void reorder(self, Py_ssize_t arm) noexcept nogil:
        """In the heaps of means and of bounds; two arms that cross over exchange their places there too."""
        cdef Py_ssize_t other = self.rest.item[0] if self.is_best[arm] else self.best.item[0]
        cdef Py_ssize_t mine = self.side[0].heap.place[arm], its = self.side[0].heap.place[other]
        if self.resplit(arm):
            self._rebound(other, mine)
            self._rebound(arm, its)
        else:
            self._rebound(arm, mine)

    cdef int _renew(self) except -1 nogil:
        """Bring bounds and their order up to date."""
        if self.moving and self.rounds > self.level_round:
            while self.level_round < self.rounds:
                self.level_round = max(self.level_round + 1, <int64_t>ceil(1.02 * <double>self.level_round))
            self.stale = True
        if self.stale:
            self._refresh()
        return 0

    cdef void _note(self, double gap) noexcept nogil:
        """Keep a number of the history."""
        if self.n_gaps < KEPT_GAPS:
            self.gap_at[self.n_gaps] = self.total
            self.gap[self.n_gaps] = gap
            self.n_gaps += 1
            self.next_gap = self.total + self.total // 50 + 1

    cdef int64_t _size(self, Py_ssize_t weakest, Py_ssize_t rival) noexcept nogil:
        """Pulls of either: a share of each one's own count would starve the rivals of an arm that is in every round."""
        if self.batch > 0:
            return self.batch
        return max(<int64_t>1, min(min(self.pulls[weakest], self.pulls[rival]) // 100, <int64_t>MAX_BATCH))

    cdef int plan(self) except -1 nogil:
        cdef Py_ssize_t weakest, rival
        cdef int64_t count
        cdef double gap
        self._renew()
        weakest = self.side[0].heap.item[0]
        rival = self.side[1].heap.item[0]
        gap = self.bound[rival] - self.bound[weakest]
        if self.total >= self.next_gap or gap < self.epsilon:
            self._note(gap)
        if gap < self.epsilon:
            self.status = BY_EPSILON if gap >= 0.0 else BY_SEPARATION
            return 0
        count = self._size(weakest, rival)
        self.rounds += count
        self.ask_for(weakest, count)
        self.ask_for(rival, count)
        return 0

    # What is known.

    @property
    def takes_more(self):
        return bool(self.ready)

    def _decided(self):
        """Where the bounds of an arm are apart from those of all arms of the other side."""
        cdef Py_ssize_t i
        cdef double lowest = INFINITY, highest = -INFINITY
        found = super()._decided()
        if not self.ready:
            return found
        bound = np.empty(self.n_arms)
        for i in range(self.n_arms):
            self.worked(self.bound_cost)
            bound[i] = self._bound(i, 0 if self.is_best[i] else 1, False)
            if self.is_best[i]:
                lowest = fmin(lowest, bound[i])
            else:
                highest = fmax(highest, bound[i])
        for i in range(self.n_arms):
            if self.is_best[i]:
                found[i] = 1 if highest - bound[i] < self.epsilon else 0
            else:
                found[i] = -1 if bound[i] - lowest < self.epsilon else 0
        return found

    cdef int _apart(self, double ratio, double *bound) except -1 nogil:
        """Whether the sides would be apart, were alpha smaller by the factor exp(ratio); nan marks arms left out."""
        cdef int64_t cost = 10_000 if self.kind == EB_MIX else self.bound_cost      # exact, not from the table
        cdef Py_ssize_t i
        cdef double lowest = INFINITY, highest = -INFINITY
        cdef double[2] before
        cdef int k
        for k in range(2):
            before[k] = self.side[k].log_inv_alpha
            self.side[k].log_inv_alpha += ratio
            self._set_level(&self.side[k])
        try:
            for i in range(self.n_arms):
                if bound[i] != bound[i]:
                    continue
                self.worked(cost)
                bound[i] = self._bound(i, 0 if self.is_best[i] else 1, True)
                if self.is_best[i]:
                    lowest = fmin(lowest, bound[i])
                else:
                    highest = fmax(highest, bound[i])
        finally:
            for k in range(2):
                self.side[k].log_inv_alpha = before[k]
                self._set_level(&self.side[k])
        return highest - lowest < self.epsilon

    cdef double _log_error(self, double log_delta, double *near, double *far) except? 1.0 nogil:
        """Log of the smallest delta at which the rule would have stopped here, by bisection.

        With a smaller delta lower bounds fall and upper bounds rise. So an arm whose bound for the smallest delta in
        question does not reach the extreme one for the largest will not matter.
        """
        cdef double low = log_delta, high = log_delta + 1.0, middle, lowest, highest
        cdef Py_ssize_t i
        cdef int _k
        for i in range(self.n_arms):
            near[i] = far[i] = 0.0
        if not self._apart(low, near):
            return 0.0
        while self._apart(high, far):
            low = high
            if high > 600.0:
                return log_delta - high
            high = 2.0 * high if high > 0.5 else high + 1.0
        self._apart(low, near)
        lowest = INFINITY
        highest = -INFINITY
        for i in range(self.n_arms):
            if self.is_best[i]:
                lowest = fmin(lowest, near[i])
            else:
                highest = fmax(highest, near[i])
        for i in range(self.n_arms):
            if far[i] > lowest if self.is_best[i] else far[i] < highest:
                near[i] = NAN
        for _k in range(40):
            middle = 0.5 * (low + high)
            if self._apart(middle, near):
                low = middle
            else:
                high = middle
        return log_delta - low

    def _answer(self):
        """What is known so far; an arm not pulled has mean nan and the support for bounds."""
        cdef Py_ssize_t i
        known = super()._answer()
        lower, upper = np.empty((2, self.n_arms))
        cdef double[::1] low = lower, high = upper
        for i in range(self.n_arms):
            if (i & 1023) == 1023:
                self.worked(2048 * self.bound_cost)
            low[i] = fmax(self._end(i, 0), self.low[i])
            high[i] = fmin(self._end(i, 1), self.high[i])
        return dict(known, lower=lower, upper=upper)

    def _ends(self, double log_inv_alpha):
        """One-sided bounds of every mean, each at alpha, within the support."""
        cdef Py_ssize_t i
        cdef int k
        cdef double[2] before
        lower, upper = np.empty((2, self.n_arms))
        cdef double[::1] low = lower, high = upper
        for k in range(2):
            before[k] = self.side[k].log_inv_alpha
            self.side[k].log_inv_alpha = log_inv_alpha
            self._set_level(&self.side[k])
        try:
            for i in range(self.n_arms):
                self.worked(20_000)
                low[i] = fmax(self._bound(i, 0, True), self.low[i])
                high[i] = fmin(self._bound(i, 1, True), self.high[i])
        finally:
            for k in range(2):
                self.side[k].log_inv_alpha = before[k]
                self._set_level(&self.side[k])
        return lower, upper

    def differences(self, leader, log_inv_delta):
        """Intervals of the means of all arms minus that of `leader`, which all hold at once, at all times, whoever
        leads: from intervals of the means, each end of which has the same share of delta."""
        return self._alone(self._differences, leader, log_inv_delta)

    def _differences(self, leader, log_inv_delta):
        lower, upper = self._ends(log_inv_delta + np.log(2.0 * self.n_arms))
        found = np.stack([lower - upper[leader], upper - lower[leader]], axis=1)
        found[leader] = 0.0
        return found

    def shortfall(self):
        """Bound on what a chosen arm falls short of the n_best-th largest mean by; infinite while it cannot be said."""
        cdef Py_ssize_t i
        guard_check(&self.guard, self)
        if self.n_best == self.n_arms:
            return 0.0
        if not self.ready:
            return np.inf
        if self.stale:
            chosen = np.array([self.is_best[i] for i in range(self.n_arms)], dtype=bool)
            bound = np.array([self._bound(i, 0 if self.is_best[i] else 1, False) for i in range(self.n_arms)])
            return float(bound[~chosen].max() - bound[chosen].min())
        return self.bound[self.side[1].heap.item[0]] - self.bound[self.side[0].heap.item[0]]

    def error_bound(self, double log_delta):
        """The smallest delta at which the rule would have stopped by now, for it was set up with exp(log_delta)."""
        return self._alone(self._error_bound, log_delta)

    def _error_bound(self, double log_delta):
        cdef cnp.ndarray near, far
        cdef double *at_low
        cdef double *at_high
        cdef double log_error
        if self.n_best == self.n_arms:
            return 0.0
        if not self.ready:
            return 1.0
        near, far = np.empty(self.n_arms), np.empty(self.n_arms)
        at_low = <double *>cnp.PyArray_DATA(near)
        at_high = <double *>cnp.PyArray_DATA(far)
        with nogil:
            log_error = self._log_error(log_delta, at_low, at_high)
        return exp(log_error)

    def history(self):
        """Pulls made, and the shortfall, at decisions 2 % of pulls apart and at the stop."""
        return self._alone(self._history)

    def _history(self):
        cdef Py_ssize_t k
        return (np.array([self.gap_at[k] for k in range(self.n_gaps)], dtype=np.int64),
                np.array([self.gap[k] for k in range(self.n_gaps)]))

    def _get_state(self):
        return super()._get_state() | dict(rounds=self.rounds, level_round=self.level_round, next_gap=self.next_gap,
                                           history=self._history())

    def _set_state(self, state):
        cdef Py_ssize_t k
        super()._set_state(state)
        rounds, level_round, next_gap = (_count(state[name]) for name in ("rounds", "level_round", "next_gap"))
        pulls, gap = state["history"]
        pulls, gap = _whole_numbers(pulls, "history", np.int64, 0), np.array(gap, dtype=np.float64)
        _demand(pulls.shape == gap.shape and len(gap) <= KEPT_GAPS and not np.isnan(gap).any(), "its history")
        _demand(1 <= level_round <= 1.02 * rounds + 2.0
                and rounds <= self.total + sum(self._owed[:self.n_asked].tolist()) + 1, "its counts")
        self.rounds, self.level_round, self.next_gap = rounds, level_round, next_gap
        self.n_gaps = len(gap)
        for k in range(self.n_gaps):
            self.gap_at[k] = pulls[k]
            self.gap[k] = gap[k]
        if self.ready:
            self._refresh()


cdef class SarSelector(LucbSelector):
    """Successive accepts and rejects: n_arms - 1 phases share the budget, and each decides on one arm.

    Bubeck, Wang & Viswanathan (2013), Fig. 2. Arms are in order of their means from one phase that pulls to the next,
    so that a decision takes one of either end. Bounds, and the error they leave, are those of LUCB: they hold whatever
    made a rule pull.
    """

    cdef Py_ssize_t *order          # undecided arms stand from `begin` to before `end`
    cdef Py_ssize_t begin, end, accepted
    cdef int64_t budget, given      # pulls that every undecided arm has
    cdef bint sorted
    cdef double parts

    def _configure(self, *, budget, **options):
        if not 0 <= budget <= MOST_PULLS:
            raise ValueError(f"budget is {budget}; a number of pulls is needed")
        super()._configure(batch=1, bound="eb-mix", **options)
        self.first = 0
        self.budget = budget
        self.order = <Py_ssize_t *>self.vector("order", np.intp)
        self.vectors["order"][:] = np.arange(self.n_arms)
        self.end = self.n_arms
        self.parts = 0.5 + float(np.sum(1.0 / np.arange(2, self.n_arms + 1)))

    cdef int _sort(self) except -1:
        order = self.vectors["order"]
        order[self.begin:self.end] = self._by_mean(order[self.begin:self.end])
        self.sorted = True
        return 0

    cdef int plan(self) except -1 nogil:
        cdef Py_ssize_t k, places
        cdef int64_t share
        while True:
            places = self.n_best - self.accepted
            if places == 0 or places == self.end - self.begin:
                self.status = BY_BUDGET
                return 0
            share = <int64_t>ceil(<double>(self.budget - self.n_arms) / (self.parts * <double>(self.end - self.begin)))
            if share > self.given:
                for k in range(self.begin, self.end):
                    self.ask_for(self.order[k], share - self.given)
                self.given = share
                self.sorted = False
                return 0
            if not self.sorted:
                with gil:
                    self._sort()
            if (self.mean[self.order[self.begin]] - self.mean[self.order[self.begin + places]]
                    >= self.mean[self.order[self.begin + places - 1]] - self.mean[self.order[self.end - 1]]):
                self.begin += 1
                self.accepted += 1
            else:
                self.end -= 1

    def _chosen(self):
        """The arms accepted and, for the places left, the largest means among those undecided; best first."""
        order = self.vectors["order"]
        groups = order[:self.begin], order[self.begin:self.end], order[self.end:]
        return self._by_mean(self._by_mean(*groups)[:self.n_best])

    def _error_bound(self, double log_delta):
        """LUCB's, for the arms chosen here."""
        cdef Py_ssize_t i
        self.ready = bool((self._pulls > 0).all())
        for i in range(self.n_arms):
            self.is_best[i] = False
        for i in self._chosen():
            self.is_best[i] = True
        try:
            return super()._error_bound(log_delta)
        finally:
            self.ready = False

    def _get_state(self):
        return super()._get_state() | dict(begin=self.begin, end=self.end, given=self.given, accepted=self.accepted,
                                           sorted=self.sorted)

    def _set_state(self, state):
        super()._set_state(state)
        begin, end, accepted = (_count(state[name], self.n_arms) for name in ("begin", "end", "accepted"))
        given, is_sorted = _count(state["given"], self.budget), state["sorted"]
        _demand(np.array_equal(np.sort(self.vectors["order"]), np.arange(self.n_arms)) and begin < end
                and begin == accepted and 0 <= self.n_best - accepted <= end - begin
                and isinstance(is_sorted, bool), "its order")
        self.begin, self.end, self.accepted = begin, end, accepted
        self.given, self.sorted = given, is_sorted


# Doors for tests.

def _mixture_boundary(double v, scales, double log_inv_alpha, tuned_for=None):
    """The boundary of the mean of gamma-exponential mixtures, and as the table rounds it up.

    `tuned_for` is the log(1 / alpha) at which they are tightest at their scales, if it is another.
    """
    cdef mixture_t mixture
    set_mixture(&mixture, scales, log_inv_alpha if tuned_for is None else tuned_for)
    cdef double[::1] table = np.zeros(TABLE_SIZE)
    rounded = table_boundary(&table[0], v, &mixture, log_inv_alpha)
    return mean_mixture_boundary(v, &mixture, log_inv_alpha), rounded


def _kl_bounds(double p, double level):
    """The interval of means whose divergence from p is at most `level`."""
    return kl_lower(p, level), kl_upper(p, level)


def _half_width(bound, double n, double v, scales, double rounds, double log_inv_alpha):
    """Half-width of any bound but the divergences, for rewards in [0, 1]."""
    cdef mixture_t mixture
    kind = BOUNDS.index(bound)
    if kind == EB_MIX:
        set_mixture(&mixture, scales, log_inv_alpha)
        return mean_mixture_boundary(v, &mixture, log_inv_alpha) / n
    if kind == HOEFFDING_MIX:
        return normal_mixture_boundary(0.25 * n, mixture_rho(scales[0][0], log_inv_alpha),
                                       normal_mixture_level(log_inv_alpha)) / n
    return lucb1_half_width(n, rounds, log_inv_alpha)
