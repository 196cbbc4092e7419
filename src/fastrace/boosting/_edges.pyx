"""The edges of many hypotheses on one stream, by the stopping rules of `fastrace.streams`.

The edge of a hypothesis h is the mean of z = 1[h(x) = y] - 1/2, in [-1/2, 1/2]. Formulas, schedules and bets are
those of NAS, GeometricNAS, EBStop, EBGStop (with `use_support`) and TargetEBStop, each on z with its support. Here they
work on counts of wins, which many hypotheses keep cheaply, and are asked at rare looks only. Asked after every example,
they stop where those rules stop.
"""

from libc.math cimport fabs, log
from libc.stdint cimport int8_t, int64_t
cimport numpy as cnp

from fastrace._base._guard cimport (guard_await, guard_build, guard_built, guard_check_built, guard_enter, guard_leave,
                                    guarded)
from fastrace._base._signals cimport check_signals
from fastrace._math._bets cimport fr_sums_init, fr_target_push_wins
from fastrace._math._bounds cimport empirical_bernstein_within, hoeffding, stream_slack
from fastrace._math._criteria cimport distance_from_zero, half_width_met, relative_met
from fastrace._math._schedules cimport EVERY, GEOMETRIC, log_inv_telescoping_delta, next_on_grid, next_look, spend

import numpy as np

from fastrace.streams.stopping import PRESETS

cnp.import_array()

STATUS = ("", "fired", "error", "no edge", "inconsistent", "max_samples")
RULES = ("nas", "geometric-nas", "ebstop", "ebgstop", "ebgstop-star", "target-eb")
# How the empirical Bernstein rules among them spend delta.
SPENDING = {"ebstop": ("poly", 0.0, 1.1), "ebgstop": PRESETS["plain"], "ebgstop-star": PRESETS["starred"]}

cdef enum:      # places in RULES
    NAS
    GEOMETRIC_NAS
    EBSTOP
    EBGSTOP
    EBGSTOP_STAR
    TARGET_EB

cdef enum:
    ROWS_PER_CHECK = 1 << 16


cdef class EdgeRule:
    """Edges of several hypotheses on one stream: which is known to a relative accuracy `tau` first?

    Every hypothesis has `delta` / n_hypotheses. Bounds are looked at after n = 1, 2, ... examples, later after every
    1 / (growth - 1)-th part of them; geometric NAS has its own looks. The rule fires as soon as some edge is known to
    `tau` (selection "first") or as one is certainly at least (1 - tau) times the largest (selection "leader").
    """

    def __cinit__(self):
        guard_await(&self.guard, 0)

    def __init__(self, n_hypotheses, rule, tau, log_inv_delta, *, selection="first", growth=1.01, min_edge=0.0):
        cdef Py_ssize_t many = n_hypotheses
        cdef int kind = RULES.index(rule)
        cdef bint by_leader = ("first", "leader").index(selection)
        cdef double accuracy = tau, factor = growth, smallest = min_edge, share = log_inv_delta
        spending, beta, power = SPENDING.get(rule, ("telescoping", 1.5, 0.0))
        low, high, sums = np.empty(many), np.empty(many), np.zeros(many)
        edges = np.zeros((many if kind == TARGET_EB else 0, sizeof(edge_t) // sizeof(double)))
        guard_build(&self.guard, 0, self)
        self.n_hypotheses = many
        self.kind = kind
        self.tau = accuracy
        self.by_leader = by_leader
        self.growth = factor
        self.min_edge = smallest
        self.how.schedule = GEOMETRIC if kind in (EBGSTOP, EBGSTOP_STAR) else EVERY
        self.how.telescoping = spending == "telescoping"
        self.how.beta = beta
        self.how.power = power
        self.bet.cap = 0.9
        self.bet.slope, self.bet.offset, self.bet.floor, self.bet.zero = accuracy, -0.5, 1e-12, -1.0
        self._low, self._high, self._sums, self._edges = low, high, sums, edges
        self.low = <double *>cnp.PyArray_DATA(self._low)
        self.high = <double *>cnp.PyArray_DATA(self._high)
        self.sums = <double *>cnp.PyArray_DATA(self._sums)
        self.edge = <edge_t *>cnp.PyArray_DATA(self._edges)
        self.begin(share)
        guard_built(&self.guard, 0)

    def restart(self, double log_inv_delta):
        """Forget the stream; the next one has this log(1 / delta)."""
        guard_enter(&self.guard, self)
        self.begin(log_inv_delta)
        guard_leave(&self.guard)

    cdef void begin(self, double log_inv_delta) noexcept nogil:
        """`restart` for those who hold the guard."""
        cdef Py_ssize_t h
        self.log_inv_delta = log_inv_delta
        self.log_inv_share = log_inv_delta + log(<double>self.n_hypotheses) if self.n_hypotheses else log_inv_delta
        self.how.log_inv_delta = self.log_inv_share + log(3.0)
        self.bet.level = log(2.0) + self.log_inv_share
        self.n = self.pending = 0
        self.next_look = 1
        self.number = 1.0
        self.end = self.x = 0.0
        self.state = RUNNING
        self.best = -1
        for h in range(self.n_hypotheses):
            self.low[h] = 0.0
            self.high[h] = 0.5
            self.sums[h] = 0.0
        if self.kind == TARGET_EB:
            for h in range(self.n_hypotheses):
                fr_sums_init(&self.edge[h].sums)
                self.edge[h].lower = -0.5
                self.edge[h].upper = 0.5

    @property
    def status(self):
        guard_check_built(&self.guard, self)
        return STATUS[self.state]

    @property
    def lower(self):
        """Lower bounds of the sizes of the edges."""
        return self._copied(self._low)

    @property
    def upper(self):
        return self._copied(self._high)

    @property
    def edges(self):
        """Edges as observed."""
        return self._copied(self._sums) / max(self.n, 1)

    cdef object _copied(self, array):
        """A copy of numbers that change while the rule is in use."""
        return guarded(&self.guard, self, array.copy, ())

    cdef int64_t _look_after(self, int64_t n) noexcept nogil:
        if self.kind == GEOMETRIC_NAS:
            return <int64_t>next_on_grid(<double>n, self.how.beta, &self.number)
        return next_look(n, 1 << 62, 1, self.growth)

    cdef void _set_width(self, int64_t n) noexcept nogil:
        """Set `x` for a look at n: of the two NAS it is the half-width."""
        if self.kind <= GEOMETRIC_NAS:
            self.x = self.number if self.kind == GEOMETRIC_NAS else <double>n
            self.x = hoeffding(n, log_inv_telescoping_delta(self.x, self.log_inv_share), 1.0)
        else:
            spend(&self.how, <double>n, &self.end, &self.x)

    cdef bint _judge(self, Py_ssize_t h, int64_t n, double mean) noexcept nogil:
        """Bracket the size of an edge; whether it is known to `tau`."""
        cdef double size = fabs(mean), share = 1.0 / <double>n, spread, width, low, high, won
        cdef edge_t *edge
        if self.kind <= GEOMETRIC_NAS:
            self.low[h] = size - self.x
            self.high[h] = size + self.x
            if not half_width_met(mean, self.x, self.tau):
                return False
            self.low[h] = size / (1.0 + self.tau)       # what the rule returns, a little above the bracket's end
            return True
        if self.kind == TARGET_EB:
            edge = &self.edge[h]
            won = self.sums[h] + 0.5 * <double>n - (edge.sums.total - 0.5)
            fr_target_push_wins(&self.bet, &edge.sums, won, <double>(n - self.n) - won, &low, &high)
            edge.lower = low = max(edge.lower, low - 0.5)
            edge.upper = high = min(edge.upper, high - 0.5)
            self.low[h] = distance_from_zero(low, high)
            self.high[h] = max(fabs(low), fabs(high))
        elif n > 1:
            spread = 0.25 * <double>n - self.sums[h] * self.sums[h] * share
            width = empirical_bernstein_within(share, spread if spread > 0.0 else 0.0, self.x, 1.0)
            self.low[h] = low = max(self.low[h], size - width)
            self.high[h] = high = min(self.high[h], size + width)
        else:
            return False
        if low - high > stream_slack(-0.5, 0.5):
            self.state = INCONSISTENT
        return self.low[h] > 0.0 and relative_met(self.low[h], self.high[h], self.tau)

    cdef int look(self, int64_t n) noexcept nogil:
        """Judge the hypotheses after n examples, whose sums of z are in `sums`."""
        cdef double mean, most = -1.0, most_low = -1.0, most_high = 0.0
        cdef Py_ssize_t h, fired = -1, certain = 0
        self._set_width(n)
        for h in range(self.n_hypotheses):
            mean = self.sums[h] / <double>n
            if self._judge(h, n, mean) and (fired < 0 or self.low[h] > self.low[fired]):
                fired = h
            if fabs(mean) > most:
                most = fabs(mean)
                self.best = h
            if self.low[h] > most_low:
                most_low = self.low[h]
                certain = h
            most_high = max(most_high, self.high[h])
        self.n = n
        self.next_look = self._look_after(n)
        if self.state == INCONSISTENT:
            return self.state
        if self.by_leader:
            if most_low > 0.0 and most_low >= (1.0 - self.tau) * most_high:
                self.state = FIRED
                self.best = certain
        elif fired >= 0:
            self.state = FIRED
            if not self.low[self.best] > 0.0:
                self.best = fired
        if self.state == RUNNING and most_high <= self.min_edge:
            self.state = NO_EDGE
        return self.state

    cdef dict get(self):
        return dict(n=self.n, pending=self.pending, next_look=self.next_look, number=self.number, end=self.end,
                    x=self.x, best=self.best, status=STATUS[self.state], log_inv_delta=self.log_inv_delta,
                    low=self._low.copy(), high=self._high.copy(), sums=self._sums.copy(), edges=self._edges.copy())

    cdef put(self, state):
        self.begin(state["log_inv_delta"])
        for name, mine in (("low", self._low), ("high", self._high), ("sums", self._sums), ("edges", self._edges)):
            mine[...] = state[name]
        self.n, self.pending, self.next_look = state["n"], state["pending"], state["next_look"]
        self.number, self.end, self.x = state["number"], state["end"], state["x"]
        self.best, self.state = state["best"], STATUS.index(state["status"])

    def update_many(self, const int8_t[:, ::1] wins):
        """Take rows of wins, 1 or 0, one column per hypothesis; return how many rows were used."""
        cdef Py_ssize_t i = 0, h
        cdef int64_t n
        cdef Py_ssize_t rows = wins.shape[0]
        guard_enter(&self.guard, self)
        n = self.n + self.pending       # rows so far
        try:
            if wins.shape[1] != self.n_hypotheses:
                raise ValueError(f"wins has {wins.shape[1]} columns; this rule watches {self.n_hypotheses} hypotheses")
            with nogil:
                while i < rows and self.state == RUNNING:
                    for h in range(self.n_hypotheses):
                        self.sums[h] += wins[i, h] - 0.5
                    i += 1
                    n += 1
                    if n == self.next_look:
                        self.look(n)
                    if i % ROWS_PER_CHECK == ROWS_PER_CHECK - 1:
                        check_signals()
        finally:
            self.pending = n - self.n
            guard_leave(&self.guard)
        return i


def fewest_examples(n_hypotheses, rule, tau, log_inv_delta, growth):
    """Examples after which the rule fires if one hypothesis is always right: no stream can be faster."""
    cdef EdgeRule best = EdgeRule(1, rule, tau, log_inv_delta + log(<double>n_hypotheses), growth=growth)
    while best.state == RUNNING:
        best.sums[0] = 0.5 * best.next_look
        best.look(best.next_look)
    return best.n
