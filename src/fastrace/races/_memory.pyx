"""What races keep, how it grows, and how it is saved."""

from libc.math cimport NAN, sqrt
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.pyport cimport PY_SSIZE_T_MAX
cimport numpy as cnp

from fastrace._base._guard cimport (guard_await, guard_build, guard_built, guard_check_built, guard_enter, guard_leave,
                                    guarded)
from fastrace._base._types cimport moments4_t, moments_t
from fastrace._draws._keyed_order cimport keyed_order_set, keyed_order_t
from fastrace._draws._row_order cimport RowOrder, restore_order, saved_order
from fastrace._math._betting cimport bets_init, wealth_init, wealth_t
from fastrace._math._moments cimport moments4_std, moments_extend, moments_variance
from fastrace.races._reading cimport ROWS_PER_CALL

import numpy as np

from fastrace._base import _checks
from fastrace._base._checks import DamagedError

cnp.import_array()

ARM_STATE = ("_offset", "_known", "_sum", "_mean", "_half_width", "_pulls", "_active", "_held", "_spread",
             "_measured", "_head", "_chosen", "_evidence", "_difference_lower", "_difference_upper", "_compared",
             "_absent", "_lost")

cdef int64_t MOST_ARMS = <int64_t>1 << 40


cdef class RaceMemory:
    """Arrays of a race, shared by successive races of one object."""

    def __cinit__(self, n_arms, n_rows, *args, **kwargs):
        cdef Py_ssize_t i
        guard_await(&self.guard, 0)
        if not (1 <= n_arms <= MOST_ARMS and n_rows >= 0):
            raise ValueError(f"n_arms is {n_arms} and n_rows {n_rows}; a race needs arms")
        self.n_arms = n_arms
        self.n_rows = n_rows
        self.column = <double **>calloc(self.n_arms, sizeof(double *))
        self.capacity = <Py_ssize_t *>calloc(self.n_arms, sizeof(Py_ssize_t))
        self.block = <double **>calloc(self.n_arms, sizeof(double *))
        self.rows = <int64_t *>calloc(ROWS_PER_CALL, sizeof(int64_t))
        self.moments = <moments4_t **>calloc(self.n_arms, sizeof(moments4_t *))
        self.wealth = <wealth_t **>calloc(self.n_arms, sizeof(wealth_t *))
        self.within = <wealth_t **>calloc(self.n_arms, sizeof(wealth_t *))
        self.new_moments = <moments4_t *>calloc(self.n_arms, sizeof(moments4_t))
        self.slot = <Py_ssize_t *>malloc(self.n_arms * sizeof(Py_ssize_t))
        self.leader_of = <Py_ssize_t *>calloc(self.n_arms, sizeof(Py_ssize_t))
        if (self.column == NULL or self.capacity == NULL or self.block == NULL or self.rows == NULL
                or self.moments == NULL or self.wealth == NULL or self.within == NULL or self.new_moments == NULL
                or self.slot == NULL or self.leader_of == NULL):
            raise MemoryError()
        for i in range(self.n_arms):
            self.slot[i] = -1

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self.n_arms):
            if self.column != NULL:
                free(self.column[i])
            if self.moments != NULL:
                free(self.moments[i])
            if self.wealth != NULL:
                free(self.wealth[i])
            if self.within != NULL:
                free(self.within[i])
        free(self.column)
        free(self.capacity)
        free(self.block)
        free(self.rows)
        free(self.moments)
        free(self.wealth)
        free(self.within)
        free(self.new_moments)
        free(self.slot)
        free(self.leader_of)
        free(self.marks)

    def __init__(self, n_arms, n_rows, *, pairwise, shuffled, betting, low, high, rng, epsilon=0.0):
        cdef Py_ssize_t d = self.n_arms
        if n_arms != d or n_rows != self.n_rows:
            raise ValueError("n_arms and n_rows are those that the object was made with")
        for name, ends in (("low", low), ("high", high)):
            if ends is not None and np.shape(ends) != (d,):
                raise ValueError(f"{name} has shape {np.shape(ends)}; ({d},) is needed")
        guard_build(&self.guard, 0, self)
        self.pairwise = pairwise
        self.order = RowOrder(n_rows, rng, shuffled)
        self.betting = betting
        self.epsilon = epsilon
        self.compared_with = -1
        self._low = np.zeros(d) if low is None else np.array(low, dtype=np.float64)
        self._high = np.zeros(d) if high is None else np.array(high, dtype=np.float64)
        self._offset, self._known, self._sum, self._new_sum = np.zeros(d), np.zeros(d), np.zeros(d), np.zeros(d)
        self._scratch = np.zeros(d)
        self._mean, self._half_width = np.full(d, np.nan), np.full(d, np.nan)
        self._pulls, self._active = np.zeros(d, np.int64), np.arange(d, dtype=np.intp)
        self._spread, self._measured = np.full(d, np.nan), np.zeros(d, np.int64)
        self._dead, self._held, self._wait = np.zeros(d, np.int8), np.zeros(d, np.int8), np.zeros(d)
        self._head, self._chosen, self._evidence = np.zeros(d, np.int8), np.zeros(d, np.int8), np.full(d, np.nan)
        self._beaten_by, self._compared = np.zeros(d, np.int64), np.full(d, -1, np.int64)
        self._difference_lower, self._difference_upper = np.full(d, np.nan), np.full(d, np.nan)
        self.low = <double *>cnp.PyArray_DATA(self._low)
        self.high = <double *>cnp.PyArray_DATA(self._high)
        self.offset = <double *>cnp.PyArray_DATA(self._offset)
        self.shift = <double *>cnp.PyArray_DATA(self._known)
        self.sum = <double *>cnp.PyArray_DATA(self._sum)
        self.new_sum = <double *>cnp.PyArray_DATA(self._new_sum)
        self.scratch = <double *>cnp.PyArray_DATA(self._scratch)
        self.mean = <double *>cnp.PyArray_DATA(self._mean)
        self.half_width = <double *>cnp.PyArray_DATA(self._half_width)
        self.pulls = <int64_t *>cnp.PyArray_DATA(self._pulls)
        self.active = <Py_ssize_t *>cnp.PyArray_DATA(self._active)
        self.dead = <char *>cnp.PyArray_DATA(self._dead)
        self._still = np.zeros(d, np.int8)
        self.still = <char *>cnp.PyArray_DATA(self._still)
        self.held = <char *>cnp.PyArray_DATA(self._held)
        self.wait = <double *>cnp.PyArray_DATA(self._wait)
        self._absent = np.zeros(d, np.int64)
        self.absent = <int64_t *>cnp.PyArray_DATA(self._absent)
        self._lost, self._new_lost = np.zeros(d, np.int64), np.zeros(d, np.int64)
        self.lost = <int64_t *>cnp.PyArray_DATA(self._lost)
        self.new_lost = <int64_t *>cnp.PyArray_DATA(self._new_lost)
        self.head = <char *>cnp.PyArray_DATA(self._head)
        self.chosen = <char *>cnp.PyArray_DATA(self._chosen)
        self.evidence = <double *>cnp.PyArray_DATA(self._evidence)
        self.beaten_by = <int64_t *>cnp.PyArray_DATA(self._beaten_by)
        if betting:
            bets_init(&self.bets, self.n_rows)
        guard_built(&self.guard, 0)

    def set_support(self, low, high):
        """Replace the support that rewards are held against."""
        low, high = (np.array(np.broadcast_to(ends, (self.n_arms,)), dtype=np.float64) for ends in (low, high))
        guard_enter(&self.guard, self)
        try:
            self._low[:] = low
            self._high[:] = high
        finally:
            guard_leave(&self.guard)

    @property
    def rng(self):
        """The generator that rows and noise are drawn from."""
        return None if self.order is None else self.order.rng

    cdef int reserve(self, Py_ssize_t room) except -1 nogil:
        """Room for `room` rewards of each arm still in the race."""
        cdef Py_ssize_t j
        for j in range(self.n_active):
            self.reserve_arm(self.active[j], room)
        return 0

    cdef int reserve_arm(self, Py_ssize_t i, Py_ssize_t room) except -1 nogil:
        cdef double *longer
        if room <= self.capacity[i]:
            return 0
        if room > PY_SSIZE_T_MAX // <Py_ssize_t>sizeof(double):
            with gil:
                raise MemoryError(f"{room} rewards per arm do not fit into memory")
        longer = <double *>realloc(self.column[i], room * sizeof(double))
        if longer == NULL:
            with gil:
                raise MemoryError()
        self.column[i] = longer
        self.capacity[i] = room
        return 0

    cdef int reserve_marks(self, Py_ssize_t room) except -1 nogil:
        cdef char *longer
        if room > self.marks_capacity:
            longer = <char *>realloc(self.marks, room)
            if longer == NULL:
                with gil:
                    raise MemoryError()
            self.marks = longer
            self.marks_capacity = room
        return 0

    cdef moments4_t *comparisons(self, Py_ssize_t arm) except NULL nogil:
        """Moments of the differences between an arm that leads and each other arm; empty the first time."""
        cdef Py_ssize_t k = self.slot[arm], i
        cdef bint near = self.betting and self.epsilon > 0.0
        if k >= 0:
            return self.moments[k]
        k = self.n_slots
        if self.moments[k] == NULL:
            self.moments[k] = <moments4_t *>malloc(self.n_arms * sizeof(moments4_t))
        if self.betting and self.wealth[k] == NULL:
            self.wealth[k] = <wealth_t *>malloc(self.n_arms * sizeof(wealth_t))
        if near and self.within[k] == NULL:
            self.within[k] = <wealth_t *>malloc(self.n_arms * sizeof(wealth_t))
        if (self.moments[k] == NULL or (self.betting and self.wealth[k] == NULL)
                or (near and self.within[k] == NULL)):
            with gil:
                raise MemoryError()
        memset(self.moments[k], 0, self.n_arms * sizeof(moments4_t))
        if self.betting:
            for i in range(self.n_arms):
                wealth_init(&self.wealth[k][i])
                if near:
                    wealth_init(&self.within[k][i])
        self.slot[arm] = k
        self.leader_of[k] = arm
        self.n_slots += 1
        self.n_made = max(self.n_made, self.n_slots)
        return self.moments[k]

    cdef void forget_comparisons(self) noexcept nogil:
        cdef Py_ssize_t k
        for k in range(self.n_slots):
            self.slot[self.leader_of[k]] = -1
        self.n_slots = 0

    cdef void measure(self) noexcept nogil:
        """Fill `_spread`, the standard deviation of each arm's rewards read, and `_measured`, how many these were.

        It takes what is in memory: a race that is over is saved without its rewards, so they are measured before.
        """
        cdef Py_ssize_t i
        cdef moments_t m
        cdef double *spread = <double *>cnp.PyArray_DATA(self._spread)
        cdef int64_t *measured = <int64_t *>cnp.PyArray_DATA(self._measured)
        for i in range(self.n_arms):
            if measured[i] == self.pulls[i]:
                continue
            if self.pairwise and min(self.n_kept, self.capacity[i]) >= self.pulls[i]:
                memset(&m, 0, sizeof(moments_t))
                moments_extend(&m, self.column[i], <Py_ssize_t>self.pulls[i])
                spread[i] = sqrt(moments_variance(&m, 0.0))
            elif not self.pairwise and self.slot[0] >= 0:
                spread[i] = moments4_std(&self.moments[self.slot[0]][i])
            else:               # read in one pass, which keeps no rewards: the mean is exact
                spread[i] = NAN
            measured[i] = self.pulls[i]

    def _compare(self):
        """Measure the differences to the leader, which a race that is over can no longer do once it was saved."""

    # Saving.

    def _state(self):
        """All that a race needs to go on exactly, as plain objects; the guard is held."""
        cdef Py_ssize_t k, i, n = self.n_arms
        guard_check_built(&self.guard, self)
        columns, comparisons = {}, []
        self.measure()
        self._compare()
        if self.status == 0:                        # a race that is over compares nothing any more
            for i in range(n if self.pairwise else 0):      # those of arms that left serve differences to a new leader
                if self.n_read > 0 and min(self.n_kept, <int64_t>self.capacity[i]) >= self.pulls[i] > 0:
                    columns[i] = _doubles(self.column[i], <Py_ssize_t>self.pulls[i])
            for k in range(self.n_slots):
                comparisons.append((self.leader_of[k], _bytes(self.moments[k], n * sizeof(moments4_t)),
                                    _bytes(self.wealth[k], n * sizeof(wealth_t)) if self.betting else None,
                                    _bytes(self.within[k], n * sizeof(wealth_t)) if self.within[k] != NULL else None))
        return dict(
            arms={name: getattr(self, name).copy() for name in ARM_STATE},
            progress=(self.n_active, self.n_read, self.order.drawn, self.looks_taken, self.leader, self.full_pass,
                      self.opened, self.unjudged, self.status, self.flags, self.order.start),
            counts=(self.evaluations, self.n_draws, self.n_exact, self.n_looks_taken, self.n_skewed, self.fractions,
                    self.all_flags),
            n_dropped=self.n_dropped,
            marks=_bytes(self.marks, min(self.n_kept, <int64_t>self.marks_capacity)) if self.n_dropped > 0 else b"",
            spent=self.spent, compared_with=self.compared_with, closest=_bytes(&self.closest, sizeof(moments4_t)),
            keyed=_bytes(&self.order.keyed, sizeof(keyed_order_t)),
            order=saved_order(&self.order.order, self.order.drawn), columns=columns, comparisons=comparisons)

    def set_state(self, state):
        """Take what `_state` gave, in a fresh object with the same options; a damaged state raises ValueError."""
        with _checks.undamaged("race"):
            guarded(&self.guard, self, self._take_state, (state,))

    def _take_state(self, state):
        cdef Py_ssize_t i, n = self.n_arms
        cdef cnp.ndarray column
        cdef moments4_t *row
        guard_check_built(&self.guard, self)
        for name, values in state["arms"].items():
            kept = getattr(self, name) if name in ARM_STATE else None
            _demand(kept is not None and np.shape(values) == (n,) and np.asarray(values).dtype == kept.dtype,
                    "what it says of each arm")
            kept[:] = values
        _demand(bool(((self._pulls >= 0) & (self._pulls <= self.n_rows)).all()) and not np.isnan(self._sum).any()
                and not np.isnan(self._offset).any() and not np.isnan(self._known).any(), "what it says of each arm")
        (self.n_active, self.n_read, self.order.drawn, self.looks_taken, self.leader, self.full_pass, self.opened,
         self.unjudged, self.status, self.flags, self.order.start) = state["progress"]
        (self.evaluations, self.n_draws, self.n_exact, self.n_looks_taken, self.n_skewed, self.fractions,
         self.all_flags) = state["counts"]
        self.spent = state["spent"]
        self.compared_with = state.get("compared_with", -1)
        self.n_dropped, marks = state.get("n_dropped", state.get("n_missing", 0)), state.get("marks", b"")
        _demand(0 <= self.n_dropped <= self.n_read <= self.n_rows
                and bool(((self._lost >= 0) & (self._lost <= self._pulls)).all()), "its missing rewards")
        if self.n_dropped > 0 and self.status == 0:
            self.reserve_marks(<Py_ssize_t>self.n_read)
            _take(self.marks, marks, self.n_read)
        # All that later serves as an index.
        _demand(0 <= self.n_active <= n and 0 <= self.leader < n and 0 <= self.status <= 5, "who is in the race")
        active = self._active[:self.n_active].tolist()
        _demand(len(set(active)) == len(active) and all(0 <= k < n for k in active), "who is in the race")
        _demand(0 <= self.n_read <= self.n_rows and 0 <= self.order.drawn <= self.n_rows and self.looks_taken >= 0
                and self.spent >= 0
                and 0 <= self.order.start < max(self.n_rows, 1), "how far the race has come")
        if self.status == 0:
            _demand(self.n_read <= self.order.drawn and (self.leader in active or self.n_read == 0),
                    "how far the race has come")
        _demand(0 <= self.evaluations and 0 <= self.n_exact <= self.n_draws and 0 <= self.n_looks_taken
                and 0 <= self.n_skewed <= self.n_draws and self.fractions >= 0.0, "its counts")
        _take(&self.closest, state["closest"], sizeof(moments4_t))
        _demand(0 <= self.closest.n <= self.n_rows, "its comparisons")
        _take(&self.order.keyed, state["keyed"], sizeof(keyed_order_t))
        keyed_order_set(&self.order.keyed, self.n_rows, self.order.keyed.keys[0], self.order.keyed.keys[1])
        restore_order(&self.order.order, state["order"], self.order.drawn)
        self.n_kept = self.n_read
        for i, moments, wealth, *within in state["comparisons"]:
            _demand(0 <= i < n and self.slot[i] < 0 and (self.pairwise or i == 0), "its comparisons")
            row = self.comparisons(i)
            _take(row, moments, n * sizeof(moments4_t))
            if self.betting:
                _take(self.wealth[self.slot[i]], wealth, n * sizeof(wealth_t))
            if self.betting and self.epsilon > 0.0:
                _take(self.within[self.slot[i]], within[0], n * sizeof(wealth_t))
            for k in range(n):
                _demand(0 <= row[k].n <= self.n_read, "its comparisons")
                if self.betting:
                    _demand(0 <= self.wealth[self.slot[i]][k].n <= self.n_read, "its comparisons")
                    _demand(self.epsilon == 0.0 or 0 <= self.within[self.slot[i]][k].n <= self.n_read,
                            "its comparisons")
        columns = state["columns"]
        if self.status == 0 and self.pairwise:
            _demand(self.n_read == 0 or set(active) <= set(columns) <= set(range(n)), "its rewards")
            for i, column in columns.items():
                _demand(column.dtype == np.float64 and column.ndim == 1 and column.size == self.pulls[i]
                        and (i not in active or self.pulls[i] == self.n_read), "its rewards")
                self.reserve_arm(i, <Py_ssize_t>self.pulls[i])
                _take(self.column[i], column.tobytes(), self.pulls[i] * sizeof(double))


cdef int _demand(bint good, str what) except -1:
    if not good:
        raise DamagedError(f"the saved race is damaged: {what} cannot be right")
    return 0


cdef object _bytes(const void *x, Py_ssize_t size):
    return PyBytes_FromStringAndSize(<const char *>x, size)


cdef object _doubles(const double *x, Py_ssize_t n):
    cdef cnp.ndarray out = np.empty(n)
    if n > 0:                   # an arm without rewards may have no memory yet
        memcpy(cnp.PyArray_DATA(out), x, n * sizeof(double))
    return out


cdef int _take(void *into, bytes raw, size_t size) except -1:
    if not isinstance(raw, bytes) or <size_t>len(raw) != size:
        raise DamagedError(f"the saved race holds {len(raw)} bytes where {size} are needed: another build saved it")
    if size > 0:
        memcpy(into, PyBytes_AS_STRING(raw), size)
    return 0
