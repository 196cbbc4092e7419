# cython: cdivision=True
"""Selections whose pulls are counted before the first one: DIRECT, and elimination in rounds of fresh rewards."""

from libc.math cimport ceil, log
from libc.stdint cimport int64_t
cimport numpy as cnp

from fastrace.select._selector cimport BY_PLAN, MOST_PULLS, Selector, per_arm

import numpy as np

from fastrace.select._selector import _count, _demand, _indices

cnp.import_array()

cdef enum:
    FIRST_ROUND = 16                # pulls of each arm
    MOST_HALVINGS = 64              # of the survivors of a pass


cdef class Direct(Selector):
    """Pull each arm a given number of times; in rounds that double, so that a selection cut short is balanced."""

    cdef cnp.ndarray _counts
    cdef const int64_t *counts

    def _configure(self, *, counts):
        self._counts = per_arm(counts, self.n_arms, np.int64, "counts")
        self.counts = <const int64_t *>cnp.PyArray_DATA(self._counts)

    cdef int plan(self) except -1 nogil:
        cdef Py_ssize_t i
        for i in range(self.n_arms):
            if self.pulls[i] < self.counts[i]:
                self.ask_for(i, min(self.counts[i] - self.pulls[i], max(self.pulls[i], <int64_t>FIRST_ROUND)))
        if self.n_asked == 0:
            self.status = BY_PLAN
        return 0


cdef class Elimination(Selector):
    """Rounds that pull the survivors equally often and keep the better half of them, by the means of the round alone.

    A pass ends with `n_kept` survivors; they are moved to the answer, and the next pass goes on with the others. Round
    l of a pass asks for ``factor (span / epsilon_l)^2 log(spread / delta_l)`` pulls of each arm, where epsilon_1 and
    delta_1 are given and shrink by 3/4 and 1/2: Even-Dar, Mannor & Mansour (2006), Alg. 3; Kalyanakrishnan & Stone
    (2010), Alg. 2 and 3.
    """

    cdef readonly Py_ssize_t n_kept, n_passes, passes_done
    cdef readonly double factor, spread, first_epsilon, first_delta, epsilon, delta
    cdef cnp.ndarray _survivors, _named
    cdef double *round_mean
    cdef int64_t *round_pulls

    def _configure(self, *, n_kept, n_passes, factor, spread, epsilon, delta):
        if not (1 <= n_kept and 1 <= n_passes and n_kept * n_passes == self.n_best and 0.0 < factor < np.inf
                and 0.0 < spread < np.inf and 0.0 < epsilon < np.inf and 0.0 < delta < 1.0):
            raise ValueError("n_best passes of n_kept arms, and positive factor, spread, epsilon and delta are needed")
        self.n_kept, self.n_passes = n_kept, n_passes
        self.factor, self.spread = factor, spread
        self.first_epsilon, self.first_delta = epsilon, delta
        self.round_mean = <double *>self.vector("round_mean", np.float64)
        self.round_pulls = <int64_t *>self.vector("round_pulls", np.int64)
        self._survivors = self._named = np.zeros(0, dtype=np.intp)

    cdef int absorb(self, Py_ssize_t arm, const double *rewards, int64_t count) except -1 nogil:
        cdef int64_t t
        Selector.absorb(self, arm, rewards, count)
        for t in range(count):
            self.round_pulls[arm] += 1
            self.round_mean[arm] += (rewards[t] - self.round_mean[arm]) / self.round_pulls[arm]
        return 0

    cdef int plan(self) except -1 nogil:
        with gil:
            self._next_round()
        return 0

    cdef int _next_round(self) except -1:
        """Drop the worse half of the survivors, or begin a pass; ask for the next round. A few dozen times in all."""
        cdef Py_ssize_t k, i
        cdef double count
        if self._survivors.shape[0]:
            order = np.argsort(-self.vectors["round_mean"][self._survivors], kind="stable")
            keep = max((len(order) + 1) // 2, self.n_kept)
            self._survivors = np.sort(self._survivors[order[:keep]])
            self.epsilon *= 0.75
            self.delta *= 0.5
        while self._survivors.shape[0] <= self.n_kept:
            if self._survivors.shape[0]:
                self._named = np.concatenate([self._named, self._survivors])
                self.passes_done += 1
            if self.passes_done == self.n_passes:
                self.status = BY_PLAN
                return 0
            self._survivors = np.setdiff1d(np.arange(self.n_arms), self._named).astype(np.intp)
            self.epsilon, self.delta = self.first_epsilon, self.first_delta
        for k in range(self._survivors.shape[0]):
            i = self._survivors[k]
            self.round_mean[i] = 0.0
            self.round_pulls[i] = 0
            count = ceil(self.factor * (self.span[i] / self.epsilon) ** 2 * log(self.spread / self.delta))
            self.ask_for(i, <int64_t>max(1.0, min(<double>MOST_PULLS, count)))
        return 0

    def _chosen(self):
        """The arms named so far, filled up with the survivors that have the largest means of all their rewards."""
        left = np.setdiff1d(self._survivors, self._named)
        others = np.setdiff1d(np.arange(self.n_arms), np.concatenate([self._named, left]))
        return self._by_mean(self._by_mean(self._named, left, others)[:self.n_best])

    def _get_state(self):
        return super()._get_state() | dict(survivors=self._survivors.copy(), named=self._named.copy(),
                                           passes_done=self.passes_done, epsilon=self.epsilon, delta=self.delta)

    def _set_state(self, state):
        super()._set_state(state)
        survivors, named = _indices(state["survivors"], self.n_arms), _indices(state["named"], self.n_arms)
        arms = np.concatenate([survivors, named])
        passes, epsilon, delta = _count(state["passes_done"], self.n_passes), state["epsilon"], state["delta"]
        # A plan that is over has named its last survivors; they stay among the survivors.
        _demand(len(named) == passes * self.n_kept
                and all(np.unique(part).size == part.size for part in ((survivors, named) if self.done else (arms,)))
                and (self.done or len(survivors) > self.n_kept), "its arms")
        round_pulls = self.vectors["round_pulls"]
        _demand((round_pulls >= 0).all() and (round_pulls <= self._pulls).all()
                and np.isfinite(self.vectors["round_mean"]).all(), "its counts")
        _demand(self.first_epsilon * 0.7 ** MOST_HALVINGS < epsilon <= self.first_epsilon
                and self.first_delta * 0.4 ** MOST_HALVINGS < delta <= self.first_delta
                or not len(arms), "its accuracy")
        self._survivors, self._named = survivors, named
        self.passes_done, self.epsilon, self.delta = passes, epsilon, delta
