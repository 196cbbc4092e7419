# cython: cdivision=True
"""Duels of arms that are read on the same rounds; see the module."""

from libc.stdint cimport int64_t
cimport numpy as cnp

from fastrace._base._guard cimport guard_t
from fastrace._base._types cimport moments4_t
from fastrace._math._betting cimport bets_t, wealth_t
from fastrace._math._columns cimport column_t
from fastrace._math._pairs cimport ladder_t

cdef struct apart_t:                # what a duel without a support keeps
    moments4_t moments              # of its differences
    double[2] peak                  # largest evidence so far that they are above 0, and above -epsilon
    double[2] weight                # sum of `column_t.weight` of the arm, and of its rival
    double[2] weighted              # and of its products with the differences


cdef class Duels:
    cdef guard_t guard
    cdef readonly Py_ssize_t n_arms, n_seats
    cdef int kinds              # gamblers per duel: 1, or 2 with an epsilon
    cdef double epsilon
    cdef int64_t n_rows         # of a population read without replacement; 0 of a stream
    cdef bets_t bets
    cdef ladder_t ladder
    cdef dict arrays            # by name: they own what the pointers point to, and are the state
    cdef cnp.ndarray _low, _high
    cdef const double *low      # of the support of each arm
    cdef const double *high
    cdef wealth_t *wealth       # by seat, arm and gambler
    cdef double *total          # by seat and arm: sums over the rounds of x, x (1 - x) and x^2 (1 - x), for unbiased
    cdef double *first          # differences x, scaled to [0, 1]
    cdef double *second
    cdef double *shift          # what the rows before their first one say of the mean of the rest
    cdef int64_t *start         # by seat: rounds before the first one of its duels
    cdef int64_t *seat          # of each arm; -1 without
    cdef int64_t *turns         # how often each arm has been seated

    cdef int _point(self) except -1
    cdef void _clear(self, Py_ssize_t seat) noexcept nogil
    cdef bint _sane(self) noexcept nogil
    cdef double share(self, Py_ssize_t arm) noexcept nogil
    cdef Py_ssize_t _free(self, const Py_ssize_t *arm, Py_ssize_t n) noexcept nogil
    cdef void _take(self, Py_ssize_t seat, Py_ssize_t place, const Py_ssize_t *arm, const double *mean, Py_ssize_t n,
                    int64_t rounds) noexcept nogil
    # Arguments by place: the n open arms, their means, their rewards; `work` has room for n numbers.
    cdef void assign(self, const Py_ssize_t *arm, const double *mean, Py_ssize_t n, Py_ssize_t n_wanted,
                     int64_t rounds, double *work) noexcept nogil
    cdef void bet(self, const Py_ssize_t *arm, const double *reward, const double *unbiased,
                  Py_ssize_t n) noexcept nogil
    cdef double evidence(self, Py_ssize_t arm, Py_ssize_t rival, int kind) noexcept nogil
    cdef double now(self, Py_ssize_t arm, Py_ssize_t rival, int kind) noexcept nogil
    cdef double variance(self, Py_ssize_t arm, Py_ssize_t rival, double more, double *n) noexcept nogil
    cdef void beaten(self, const Py_ssize_t *arm, Py_ssize_t n, Py_ssize_t rank, double *found,
                     double *work) noexcept nogil
    cdef void beating(self, const Py_ssize_t *arm, Py_ssize_t n, Py_ssize_t rank, double *found,
                      double *work) noexcept nogil
    cdef double least(self, const Py_ssize_t *arm, const double *mean, Py_ssize_t n, Py_ssize_t n_wanted, int kind,
                      double *work) noexcept nogil
    cdef double _end(self, Py_ssize_t arm, Py_ssize_t rival, bint upper, double level) noexcept nogil


cdef class AsymptoticDuels(Duels):
    cdef apart_t *apart         # by seat and arm
    cdef const column_t *columns    # rewards of each arm, the round that is bet on included; owned by the race
    cdef double first_look, best_at, spread

    cdef double _rows(self, Py_ssize_t seat) noexcept nogil
    cdef bint _varies(self, const apart_t *duel, Py_ssize_t arm, Py_ssize_t rival) noexcept nogil
    cdef bint _held_back(self, const apart_t *duel, Py_ssize_t arm, Py_ssize_t rival, double away) noexcept nogil
    cdef void _ends(self, Py_ssize_t arm, Py_ssize_t rival, double log_inv_delta, double *ends) noexcept nogil
