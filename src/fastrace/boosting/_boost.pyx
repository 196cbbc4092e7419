"""Compiled loops of boosting by filtering: bins, the filter, and all stumps on one filtered stream."""

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.math cimport ceil, exp, isnan
from libc.stdint cimport int8_t, int64_t, uint8_t
from numpy.random cimport bitgen_t
cimport numpy as cnp

from fastrace._base._guard cimport (guard_await, guard_build, guard_built, guard_check_built, guard_enter, guard_leave,
                                    guard_t)
from fastrace._base._signals cimport check_signals
from fastrace._math._schedules cimport log_inv_telescoping_delta
from fastrace.boosting._edges cimport ERROR_BELOW, RUNNING, EdgeRule

import numpy as np

from fastrace._base import _checks
from fastrace.boosting._edges import RULES, STATUS

cnp.import_array()

cdef enum:
    ROWS_PER_CHECK = 1 << 16
    AHEAD = 12          # rows fetched before their turn

ctypedef fused real_t:
    float
    double

cdef extern from "_clones.h" nogil:
    void PREFETCH(const void *p)


def bin_rows(const real_t[:, :] x, const double[::1] edges, const int64_t[::1] first, const uint8_t[::1] categorical,
             uint8_t[:, ::1] codes):
    """Codes of numbers: how many of the feature's edges they reach, or which of its categories they are.

    The edges of feature j are ``edges[first[j]:first[j + 1]]``, increasing. What is missing or an unknown category gets
    the code after the last.
    """
    cdef Py_ssize_t n = x.shape[0], d = x.shape[1], i, j
    cdef int64_t low, high, middle, start
    cdef double value
    if not (codes.shape[0] == n and codes.shape[1] == d and first.shape[0] == d + 1 and categorical.shape[0] == d):
        raise ValueError(f"rows of {d} features cannot be put into the bins of {categorical.shape[0]}")
    with nogil:
        for i in range(n):
            for j in range(d):
                value = x[i, j]
                start = low = first[j]
                high = first[j + 1]
                if isnan(value):
                    low = high + 1 - categorical[j]
                else:
                    while low < high:
                        middle = (low + high) >> 1
                        if edges[middle] <= value:
                            low = middle + 1
                        else:
                            high = middle
                    if categorical[j]:
                        low = low - 1 if low > start and edges[low - 1] == value else first[j + 1]
                codes[i, j] = <uint8_t>(low - start)
            if i % ROWS_PER_CHECK == ROWS_PER_CHECK - 1:
                check_signals()


cdef inline double acceptance(double margin) noexcept nogil:
    """Share of examples with y F(x) = `margin` that pass the filter: the logistic weight."""
    return 1.0 / (1.0 + exp(min(max(margin, -50.0), 50.0)))


cdef inline double filter_limit(double epsilon, double log_inv_delta, int64_t call) noexcept nogil:
    """Rejections in a row after which an error above epsilon is refuted; Bradley & Schapire (2008), with a union
    over the calls of the filter."""
    return ceil(2.0 / epsilon * log_inv_telescoping_delta(<double>call, log_inv_delta))


cdef class Filter:
    """Passes examples with the logistic weight of their margin, and gives up when they are rejected for too long.

    A round has calls r = 1, 2, ... of the filter, one per example that passes; call r may refuse
    ``(2 / epsilon) log(r (r + 1) / delta)`` examples.
    """

    cdef guard_t guard
    cdef readonly object rng
    cdef object lock
    cdef bitgen_t *bits
    cdef readonly double epsilon
    cdef readonly int64_t drawn, passed     # in this round
    cdef double log_inv_delta, limit
    cdef int64_t refused
    cdef readonly bint over

    def __cinit__(self):
        guard_await(&self.guard, 0)

    def __init__(self, epsilon, rng):
        cdef double share = epsilon
        lock = rng.bit_generator.lock
        cdef bitgen_t *bits = <bitgen_t *>PyCapsule_GetPointer(rng.bit_generator.capsule, b"BitGenerator")
        guard_build(&self.guard, 0, self)
        self.epsilon = share
        self.rng = rng
        self.lock = lock
        self.bits = bits
        self.begin(0.0)
        guard_built(&self.guard, 0)

    def restart(self, double log_inv_delta):
        """Begin a round with this log(1 / delta)."""
        guard_enter(&self.guard, self)
        self.begin(log_inv_delta)
        guard_leave(&self.guard)

    cdef void begin(self, double log_inv_delta) noexcept nogil:
        """`restart` for those who hold the guard."""
        self.log_inv_delta = log_inv_delta
        self.drawn = self.passed = self.refused = 0
        self.limit = filter_limit(self.epsilon, log_inv_delta, 1)
        self.over = False

    cdef inline bint take(self, double margin) noexcept nogil:
        """Whether an example of this margin passes; sets `over`. Holding the lock is up to the caller."""
        self.drawn += 1
        if self.bits.next_double(self.bits.state) < acceptance(margin):
            self.passed += 1
            self.refused = 0
            self.limit = filter_limit(self.epsilon, self.log_inv_delta, self.passed + 1)
            return True
        self.refused += 1
        if self.refused >= self.limit:
            self.over = True
        return False

    def accept(self, const double[::1] margins, Py_ssize_t start=0, Py_ssize_t most=9223372036854775807):
        """Return the first `most` places of `margins` from `start` on that pass, and the place after the last tried."""
        cdef Py_ssize_t n = margins.shape[0], i = start, count = 0
        if start < 0:
            raise ValueError(f"start is {start}; a place of margins is needed")
        out = np.empty(max(n - start, 0), dtype=np.int64)
        cdef int64_t[::1] places = out
        guard_enter(&self.guard, self)
        try:
            with self.lock, nogil:
                while i < n and count < most and not self.over:
                    if self.take(margins[i]):
                        places[count] = i
                        count += 1
                    i += 1
        finally:
            guard_leave(&self.guard)
        return out[:count], i

    cdef dict state(self):
        return dict(rng=self.rng, drawn=self.drawn, passed=self.passed, refused=self.refused, over=self.over,
                    log_inv_delta=self.log_inv_delta, limit=self.limit)

    cdef set_state(self, state):
        self.begin(state["log_inv_delta"])
        self.drawn, self.passed, self.refused = state["drawn"], state["passed"], state["refused"]
        self.over, self.limit = state["over"], state["limit"]


cdef inline double _score(const double *table, const int64_t *offset, const int64_t *used, Py_ssize_t n_used,
                          const uint8_t *code) noexcept nogil:
    """F(x): the stumps of a feature are added up per code, so this costs one sum per feature that has any."""
    cdef double total = 0.0
    cdef Py_ssize_t k
    for k in range(n_used):
        total += table[offset[used[k]] + code[used[k]]]
    return total


cdef inline bint _fits(const uint8_t *code, const uint8_t *highest, Py_ssize_t d) noexcept nogil:
    """Whether the codes of a row are all codes of their features."""
    cdef uint8_t beyond = 0
    cdef Py_ssize_t j
    for j in range(d):
        beyond |= code[j] > highest[j]
    return not beyond


cdef int _refuse_row(const uint8_t[:, ::1] codes, Py_ssize_t row, const uint8_t[::1] highest, int sign) except -1:
    """Why an example cannot be used."""
    if not 0 <= row < codes.shape[0]:
        raise ValueError(f"rows holds {row}; row numbers of the {codes.shape[0]} rows of codes are needed")
    if sign != 1 and sign != -1:
        raise ValueError(f"the label of row {row} is {sign}; -1 or 1 is needed")
    for j in range(codes.shape[1]):
        if codes[row, j] > highest[j]:
            raise ValueError(f"row {row} has code {codes[row, j]} of feature {j}; its codes end at {highest[j]}")
    return 0


cdef cnp.ndarray _highest_codes(places):
    """The last code of each feature, given where the codes of each begin, and their end."""
    sizes = np.diff(places)
    if places.ndim != 1 or len(places) < 1 or places[0] != 0 or not (sizes >= 1).all():
        raise ValueError("offset must hold where the codes of each feature begin: numbers from 0 up, and their end; "
                         "each feature has at least one code")
    return np.minimum(sizes - 1, 255).astype(np.uint8)


cdef class StumpStream:
    """Boosting by filtering with stumps on codes: the filter, all stumps' edges, and the scores of the rounds so far.

    Stump h is +1 where ``first[h] <= code <= last[h]`` of feature ``feature[h]`` and -1 elsewhere.
    `StumpStream.consume` reads examples until the rule fires; `StumpStream.add` then takes the round's stump.
    Votes of any weak learner are codes of a feature too, and what learners before it say comes as `scores` of rows.
    """

    cdef guard_t guard          # whoever uses the stream holds those of the rule and of the filter too
    cdef readonly EdgeRule rule
    cdef readonly Filter filter
    cdef public int64_t total_drawn
    cdef int64_t seen            # examples that passed in this round, and that the rule has seen
    cdef readonly Py_ssize_t n_features
    cdef cnp.ndarray _feature, _first, _last, _offset, _highest, _table, _used, _hist, _prefix
    cdef int64_t *feature
    cdef int64_t *first
    cdef int64_t *last
    cdef int64_t *offset        # of each feature's codes in `table` and `hist`
    cdef uint8_t *highest       # code of each feature
    cdef double *table          # score by feature and code
    cdef int64_t *used          # features that have a score
    cdef double *hist           # sum of y by feature and code, of the examples that passed in this round
    cdef double *prefix
    cdef Py_ssize_t n_used
    cdef int64_t balance        # sum of y

    def __cinit__(self):
        guard_await(&self.guard, 0)

    def __init__(self, feature, first, last, offset, EdgeRule rule not None, Filter filter not None):
        features = np.ascontiguousarray(feature, dtype=np.int64)
        begins = np.ascontiguousarray(first, dtype=np.int64)
        ends = np.ascontiguousarray(last, dtype=np.int64)
        places = np.ascontiguousarray(offset, dtype=np.int64)
        guard_check_built(&rule.guard, rule)
        guard_check_built(&filter.guard, filter)
        if not (features.shape == begins.shape == ends.shape == (rule.n_hypotheses,)):
            raise ValueError(f"feature, first and last have shapes {features.shape}, {begins.shape} and {ends.shape}; "
                             f"one number for each of the rule's {rule.n_hypotheses} hypotheses is needed")
        highest = _highest_codes(places)
        n_features = len(highest)
        if features.size and not (0 <= features.min() and features.max() < n_features and begins.min() >= 0
                                  and (begins <= ends).all() and (ends < np.diff(places)[features]).all()):
            raise ValueError("a stump needs a feature, and codes of it from first to last")
        size = int(places[n_features])
        table, hist, prefix = np.zeros(size), np.zeros(size), np.zeros(size)
        guard_build(&self.guard, 0, self)
        self.rule = rule
        self.filter = filter
        self._feature, self._first, self._last, self._offset = features, begins, ends, places
        self._highest = highest
        self.n_features = n_features
        self._table, self._hist, self._prefix = table, hist, prefix
        self._used = np.zeros(n_features, np.int64)
        self.feature = <int64_t *>cnp.PyArray_DATA(self._feature)
        self.first = <int64_t *>cnp.PyArray_DATA(self._first)
        self.last = <int64_t *>cnp.PyArray_DATA(self._last)
        self.offset = <int64_t *>cnp.PyArray_DATA(self._offset)
        self.highest = <uint8_t *>cnp.PyArray_DATA(self._highest)
        self.table = <double *>cnp.PyArray_DATA(self._table)
        self.used = <int64_t *>cnp.PyArray_DATA(self._used)
        self.hist = <double *>cnp.PyArray_DATA(self._hist)
        self.prefix = <double *>cnp.PyArray_DATA(self._prefix)
        guard_built(&self.guard, 0)

    cdef int hold(self) except -1:
        """Take the guards of the stream, the rule and the filter; `release` after that."""
        guard_enter(&self.guard, self)
        try:
            guard_enter(&self.rule.guard, self.rule)
            try:
                guard_enter(&self.filter.guard, self.filter)
            except BaseException:
                guard_leave(&self.rule.guard)
                raise
        except BaseException:
            guard_leave(&self.guard)
            raise
        return 0

    cdef void release(self) noexcept:
        guard_leave(&self.filter.guard)
        guard_leave(&self.rule.guard)
        guard_leave(&self.guard)

    def restart(self, double log_inv_delta):
        """Begin a round."""
        self.hold()
        try:
            self.rule.begin(log_inv_delta)
            self.filter.begin(log_inv_delta)
            self._hist[...] = 0
            self.balance = self.seen = 0
        finally:
            self.release()

    def add(self, Py_ssize_t stump, double weight):
        """Add a stump to the scores."""
        cdef int64_t f
        self.hold()
        try:
            if not 0 <= stump < self.rule.n_hypotheses:
                raise ValueError(f"stump is {stump}; the stream has stumps 0 to {self.rule.n_hypotheses - 1}")
            f = self.feature[stump]
            self._table[self.offset[f]:self.offset[f + 1]] -= weight
            self._table[self.offset[f] + self.first[stump]:self.offset[f] + self.last[stump] + 1] += 2.0 * weight
            used = np.union1d(self._used[:self.n_used], [f])
            self.n_used = used.shape[0]
            self._used[:self.n_used] = used
        finally:
            self.release()

    @property
    def table(self):
        """Scores by feature and code."""
        self.hold()
        try:
            return self._table.copy()
        finally:
            self.release()

    @property
    def status(self):
        """Why `consume` stopped: empty while it may go on."""
        guard_check_built(&self.guard, self)
        if self.rule.state != RUNNING:
            return STATUS[self.rule.state]
        return STATUS[ERROR_BELOW] if self.filter.over else ""

    cdef void set_edges(self, const double *hist, double balance, double *edges) noexcept nogil:
        """Sums of z of all stumps, from the sums of y by feature and code, and in all."""
        cdef Py_ssize_t f, h
        cdef int64_t begin, k
        cdef double running
        for f in range(self.n_features):
            running = 0.0
            for k in range(self.offset[f], self.offset[f + 1]):
                running += hist[k]
                self.prefix[k] = running
        for h in range(self.rule.n_hypotheses):
            begin = self.offset[self.feature[h]]
            running = self.prefix[begin + self.last[h]]
            edges[h] = (running - self.prefix[begin + self.first[h] - 1] if self.first[h] else running) - 0.5 * balance

    cdef int fit(self, const uint8_t[:, ::1] codes, const int8_t[::1] y, Py_ssize_t n_scores) except -1:
        """Refuse rows of another shape."""
        if codes.shape[1] != self.n_features or not codes.shape[0] == y.shape[0] == n_scores:
            raise ValueError(f"codes of shape ({codes.shape[0]}, {codes.shape[1]}), {y.shape[0]} labels and {n_scores} "
                             f"numbers by row do not fit {self.n_features} features")
        return 0

    def consume(self, const uint8_t[:, ::1] codes, const int8_t[::1] y, rows=None, Py_ssize_t start=0,
                int64_t max_draws=9223372036854775807, scores=None):
        """Read examples from place `start` on, until something stops the round; return the place after the last.

        Example i is row i of `codes`, or row ``rows[i]``, and y is -1 or 1; at most `max_draws` are read. `scores` of
        rows are added to those of the stumps. A row that does not exist, a code that its feature does not have, or
        another y raises ValueError; the examples before it have been used, as `total_drawn` says.
        """
        cdef const int64_t[::1] chosen = rows
        cdef const double[::1] score = scores
        cdef bint scored = scores is not None
        cdef bint random = rows is not None
        cdef Py_ssize_t n = chosen.shape[0] if random else codes.shape[0], i = start, j, row, d
        cdef Py_ssize_t until = n, n_rows = codes.shape[0]
        cdef const uint8_t *code
        cdef double total
        cdef Filter sieve
        cdef EdgeRule rule
        cdef int sign
        if not 0 <= start <= n:
            raise ValueError(f"start is {start}; a place among {n} examples is needed")
        if max_draws < n - start:
            until = start + max_draws
        self.hold()
        rule, sieve, d = self.rule, self.filter, self.n_features
        try:
            self.fit(codes, y, score.shape[0] if scored else n_rows)
            with sieve.lock, nogil:
                while i < until and rule.state == RUNNING and not sieve.over:
                    row = chosen[i] if random else i
                    sign = y[row] if 0 <= row < n_rows else 0
                    if sign * sign != 1 or not _fits(&codes[row, 0], self.highest, d):
                        with gil:
                            _refuse_row(codes, row, self._highest, sign)
                    code = &codes[row, 0]
                    if random and i + AHEAD < n and 0 <= chosen[i + AHEAD] < n_rows:
                        PREFETCH(&codes[chosen[i + AHEAD], 0])
                    i += 1
                    total = _score(self.table, self.offset, self.used, self.n_used, code)
                    if scored:
                        total += score[row]
                    if sieve.take(sign * total):
                        for j in range(d):
                            self.hist[self.offset[j] + code[j]] += sign
                        self.balance += sign
                        self.seen += 1
                        if self.seen == rule.next_look:
                            self.set_edges(self.hist, <double>self.balance, self.rule.sums)
                            rule.look(self.seen)
                    if (i - start) % ROWS_PER_CHECK == 0:
                        check_signals()
        finally:
            self.total_drawn += i - start
            self.release()
        return i

    def full_pass(self, const uint8_t[:, ::1] codes, const int8_t[::1] y, const double[::1] weights, scores=None):
        """Sums of z of all stumps, rows as far as the filter passes them; the sum of those shares; and of weights."""
        cdef const double[::1] score = np.zeros(weights.shape[0]) if scores is None else scores
        self.hold()
        try:
            self.fit(codes, y, weights.shape[0])
            self.fit(codes, y, score.shape[0])
            return self._pass(codes, y, weights, score)
        finally:
            self.release()

    cdef tuple _pass(self, const uint8_t[:, ::1] codes, const int8_t[::1] y, const double[::1] weights,
                     const double[::1] score):
        """`full_pass` for those who hold the guards."""
        cdef Py_ssize_t n = codes.shape[0], i, j, d = self.n_features
        cdef cnp.ndarray hist = np.zeros(self._table.shape[0])
        cdef cnp.ndarray out = np.zeros(self.rule.n_hypotheses)
        cdef double *sums = <double *>cnp.PyArray_DATA(hist)
        cdef double q, total = 0.0, balance = 0.0, weight = 0.0
        cdef const uint8_t *code
        with nogil:
            for i in range(n):
                code = &codes[i, 0]
                if y[i] * y[i] != 1 or not _fits(code, self.highest, d):
                    with gil:
                        _refuse_row(codes, i, self._highest, y[i])
                q = _score(self.table, self.offset, self.used, self.n_used, code) + score[i]
                q = weights[i] * acceptance(y[i] * q)
                weight += weights[i]
                total += q
                q *= y[i]
                balance += q
                for j in range(d):
                    sums[self.offset[j] + code[j]] += q
                if i % ROWS_PER_CHECK == ROWS_PER_CHECK - 1:
                    check_signals()
            self.set_edges(sums, balance, <double *>cnp.PyArray_DATA(out))
        self.total_drawn += n
        return out, total, weight

    def __reduce__(self):
        self.hold()
        try:
            rule = (self.rule.n_hypotheses, RULES[self.rule.kind], self.rule.tau, 0.0,
                    "leader" if self.rule.by_leader else "first", self.rule.growth, self.rule.min_edge)
            stumps = (self._feature, self._first, self._last, self._offset)
            state = dict(rule=self.rule.get(), filter=self.filter.state(), table=self._table.copy(),
                         hist=self._hist.copy(), used=self._used[:self.n_used].copy(), balance=self.balance,
                         total_drawn=self.total_drawn)
            return _rebuild_stumps.saved(stumps, rule, self.filter.epsilon, state)
        finally:
            self.release()


@_checks.rebuilds(1, StumpStream)
def _rebuild_stumps(stumps, rule, epsilon, state):
    """Rebuild a pickled `StumpStream`."""
    cdef StumpStream stream
    n_hypotheses, name, tau, log_inv_delta, selection, growth, min_edge = rule
    stream = StumpStream(*stumps,
                         EdgeRule(n_hypotheses, name, tau, log_inv_delta, selection=selection, growth=growth,
                                  min_edge=min_edge),
                         Filter(epsilon, state["filter"]["rng"]))
    stream.rule.put(state["rule"])
    stream.filter.set_state(state["filter"])
    stream.seen = stream.filter.passed
    stream._table[...] = state["table"]
    stream._hist[...] = state["hist"]
    used = np.unique(np.asarray(state["used"], dtype=np.int64))
    if used.size and not (0 <= used[0] and used.max() < stream.n_features):
        raise ValueError("it has scores of features that it does not have")
    stream.n_used = len(used)
    stream._used[:stream.n_used] = used
    stream.balance = state["balance"]
    stream.total_drawn = state["total_drawn"]
    return stream


def scores(const uint8_t[:, ::1] codes, offset, table):
    """F(x) of each row."""
    cdef cnp.ndarray last = _highest_codes(offset)
    cdef const uint8_t *highest = <const uint8_t *>cnp.PyArray_DATA(last)
    cdef const int64_t[::1] begin = offset
    cdef const double[::1] values = table
    cdef Py_ssize_t d = last.shape[0]
    if codes.shape[1] != d or values.shape[0] != begin[d]:
        raise ValueError(f"codes of {codes.shape[1]} features and a table of {values.shape[0]} scores do not fit "
                         f"{d} features with {begin[d]} codes")
    cdef Py_ssize_t n = codes.shape[0], i
    used = np.array([j for j in range(len(offset) - 1) if np.any(table[offset[j]:offset[j + 1]])], dtype=np.int64)
    cdef const int64_t[::1] features = used
    cdef Py_ssize_t n_used = features.shape[0]
    out = np.zeros(n)
    cdef double[::1] score = out
    if n_used:
        with nogil:
            for i in range(n):
                if not _fits(&codes[i, 0], highest, d):
                    with gil:
                        _refuse_row(codes, i, last, 1)
                score[i] = _score(&values[0], &begin[0], &features[0], n_used, &codes[i, 0])
                if i % ROWS_PER_CHECK == ROWS_PER_CHECK - 1:
                    check_signals()
    return out
