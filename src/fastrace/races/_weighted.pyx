# cython: cdivision=True
"""Draws of rows in proportion to their weights, and a race of a sum against a threshold over such draws."""

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.math cimport isnan, log
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, malloc
cimport numpy as cnp
from numpy.random cimport bitgen_t

from fastrace._base._guard cimport guard_await, guard_build, guard_built, guard_check_built
from fastrace._base._signals cimport check_signals
from fastrace._draws._alias cimport alias_build, alias_draws, alias_t
from fastrace._math._betting cimport bets_init
from fastrace._math._criteria cimport full_pass_pays
from fastrace._math._rule cimport BETTING, look_t, rule_look, tally_clear, tally_decides, tally_extend, tally_needs
from fastrace.races._reading cimport DRAWS_PER_CALL, mean_work, price_of_a_row
from fastrace.sources cimport Source

import math

import numpy as np

from fastrace._base import _checks

cnp.import_array()

cdef int64_t ENDLESS = 2 ** 62      # rows drawn with replacement never run out


cdef class AliasTable:
    """Draws of rows in proportion to their weights, shared by chains."""

    def __cinit__(self):
        guard_await(&self.guard, 0)

    def __init__(self, weights):
        cdef uint32_t *stack
        cdef const double *w
        cdef double total = 0.0
        cdef uint32_t i, n
        cdef cnp.ndarray given = np.array(weights, dtype=np.float64)
        if given.ndim != 1 or not 0 < len(given) <= 0xFFFFFFFF:
            raise ValueError(f"weights has shape {np.shape(weights)}; a vector of 1 to 2^32 - 1 numbers is needed")
        if not (np.isfinite(given).all() and (np.asarray(given) >= 0.0).all()):
            raise ValueError("weights must be finite and not below 0")
        guard_build(&self.guard, 0, self)
        n = <uint32_t>len(given)
        free(self.table)
        self.table = <alias_t *>malloc(<size_t>n * sizeof(alias_t))
        stack = <uint32_t *>malloc(<size_t>n * sizeof(uint32_t))
        if self.table == NULL or stack == NULL:
            free(stack)
            raise MemoryError()
        w = <const double *>cnp.PyArray_DATA(given)
        for i in range(n):
            total += w[i]
        alias_build(self.table, w, total, n, stack)
        free(stack)
        self.n = n
        self.weights = given
        self.urn.table, self.urn.weight = self.table, <const double *>cnp.PyArray_DATA(given)
        self.urn.total, self.urn.n = math.fsum(given), n
        guard_built(&self.guard, 0)

    def __dealloc__(self):
        free(self.table)

    def __reduce__(self):
        guard_check_built(&self.guard, self)
        return _alias_table.saved(np.asarray(self.weights))

    def probabilities(self):
        """What the table draws each place with."""
        cdef uint32_t i
        guard_check_built(&self.guard, self)
        out = np.zeros(self.n)
        for i in range(self.n):
            out[i] += self.table[i].keep / self.n
            out[self.table[i].other] += (1.0 - self.table[i].keep) / self.n
        return out


@_checks.rebuilds(1, AliasTable)
def _alias_table(weights):
    """Rebuild a pickled `AliasTable`."""
    return AliasTable(weights)


cdef class WeightedRace:
    """Race of a sum of changes against a threshold, where a bound on each row's change is known.

    Let row i change by d_i, and |d_i| <= w_i M with known weights w_i, whose sum is W, and a size M of the move. Rows
    are drawn with replacement, row i with probability w_i / W; then x = d_i / (w_i M) lies in [-1, 1] and has mean
    sum(d) / (W M). Two gamblers bet that this mean is above, and that it is below, threshold / (W M), each at level
    delta: one of them bets against the truth. So the verdict is wrong with probability at most delta, whatever the rows
    hold. Rows that can change most are read most, which is nearly the best there is, and no sample misses a tail.

    Parameters
    ----------
    table : AliasTable
        Of the weights; a decision may be by another of as many rows.
    looks : array_like of int64
        Draws at each look. The race is given up at the last one, or once a full pass costs less than the draws that it
        still seems to need.
    delta : float
    advantage : float
        Cost of a row drawn over a row of a full pass in order, at least 1; nan for what the source says.
    """

    def __cinit__(self):
        guard_await(&self.guard, 0)

    def __init__(self, AliasTable table not None, looks, delta, advantage):
        cdef const int64_t[::1] n = np.ascontiguousarray(looks, dtype=np.int64)
        cdef double risk = delta, cost = advantage
        cdef Py_ssize_t k
        guard_check_built(&table.guard, table)
        if not (n.shape[0] and n[0] >= 1 and (np.diff(looks) > 0).all()):
            raise ValueError("looks must grow, and there must be one")
        if not 0.0 < risk < 1.0:
            raise ValueError(f"delta is {delta}; a probability in (0, 1) is needed")
        guard_build(&self.guard, 0, self)
        self.table = table
        self.advantage = cost
        self.rule.bound = BETTING
        self.rule.n_rows = ENDLESS
        self.rule.log_inv_delta = -log(risk)
        self.rule.n_looks = n.shape[0]
        self.rule.look = <look_t *>malloc(max(self.rule.n_looks, 1) * sizeof(look_t))
        if self.rule.look == NULL:
            raise MemoryError()
        bets_init(&self.rule.bets, table.n)
        for k in range(self.rule.n_looks):
            rule_look(&self.rule, &self.rule.look[k], n[k], self.rule.log_inv_delta, 0.0)
        guard_built(&self.guard, 0)

    def __dealloc__(self):
        free(self.rule.look)

    cdef int decide(self, Source source, const urn_t *urn, bitgen_t *bits, double threshold, double size,
                    double rounding) except -1 nogil:
        """Whether the rewards of arm 1 sum to more than those of arm 0 and `threshold`, which |threshold| < W M leaves
        open; row i changes by at most w_i `size`, to `rounding`. Rows are drawn from `urn`."""
        cdef double level = threshold / (urn.total * size), unused = 0.0, advantage = self.advantage
        cdef bint constant = False, skewed = False
        cdef int64_t population = source.n_rows
        cdef Py_ssize_t count
        cdef Py_ssize_t k
        if isnan(advantage):
            advantage = price_of_a_row(source, False, mean_work(True), 2.0)
        self.lost = False
        self.n_read = self.n_looks = 0
        self.tally.low, self.tally.high = -1.0, 1.0
        tally_clear(&self.tally, &self.rule)
        for k in range(self.rule.n_looks):
            while self.n_read < self.rule.look[k].n:
                count = <Py_ssize_t>min(<int64_t>DRAWS_PER_CALL, self.rule.look[k].n - self.n_read)
                self.read(source, urn, bits, count, level, size, rounding)
                self.n_read += count
                if count == DRAWS_PER_CALL:
                    check_signals()
            self.n_looks = k + 1
            if tally_decides(&self.tally, &self.rule, k, level, &unused, &constant, &skewed):
                self.accepted = self.tally.seen.mean > level
                return 0
            if k + 1 < self.rule.n_looks and full_pass_pays(
                    tally_needs(&self.tally, &self.rule, k, level), self.n_read, self.rule.look[k + 1].n, population,
                    population, advantage):
                break
        self.lost = True
        return 0

    cdef int read(self, Source source, const urn_t *urn, bitgen_t *bits, Py_ssize_t count, double level, double size,
                  double rounding) except -1 nogil:
        """Draw that many rows and bet on their changes, in units of their bounds."""
        cdef Py_ssize_t arms[2]
        cdef double *out[2]
        cdef double bound, change, slack = slack_of(rounding)
        cdef Py_ssize_t i
        arms[0], arms[1] = 0, 1
        out[0], out[1] = self.before, self.after
        alias_draws(urn.table, urn.weight, urn.n, bits, count, self.before, self.rows)
        source.fill(self.rows, count, arms, 2, out)
        for i in range(count):
            bound = urn.weight[self.rows[i]] * size
            change = self.after[i] - self.before[i]
            if not (-bound - slack <= change <= bound + slack):
                with gil:
                    refuse_change(self.rows[i], self.before[i], self.after[i], bound)
            self.after[i] = min(max(change / bound, -1.0), 1.0)
        tally_extend(&self.tally, &self.rule, self.after, count, level)
        return 0


def refuse_change(row, before, after, bound):
    """Raise for a row that changed by more than its bound."""
    raise ValueError(f"the rewards of row {row} are {before} now and {after} for the proposal; they must be finite and "
                     f"differ by at most {bound}, the bound for that row: the bound is too small, or the rewards lose "
                     f"digits where large numbers cancel")


def _verdicts(source, table, looks, delta, threshold, size, rng, n, advantage=1.0):
    """Verdicts of races one after another, for tests: 1 accepted, 0 rejected, -1 given up; and the rows they drew."""
    cdef WeightedRace race = WeightedRace(table, looks, delta, advantage)
    cdef bitgen_t *bits = <bitgen_t *>PyCapsule_GetPointer(rng.bit_generator.capsule, "BitGenerator")
    cdef Source of = source
    cdef double at = threshold, move = size
    out = []
    if of.n_rows != race.table.n or of.n_arms != 2:
        raise ValueError("the source needs two arms, and a weight for each row")
    for _ in range(n):
        with rng.bit_generator.lock, nogil:
            race.decide(of, &race.table.urn, bits, at, move, 0.0)
        out.append((-1 if race.lost else int(race.accepted), race.n_read))
    return out
