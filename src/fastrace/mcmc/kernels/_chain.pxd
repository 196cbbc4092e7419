# cython: cdivision=True
"""Steps of Markov chains whose decisions rest on sums over rows."""

from libc.stdint cimport int64_t
cimport numpy as cnp
from numpy.random cimport bitgen_t

from fastrace._base._guard cimport guard_t
from fastrace._draws._row_stream cimport row_stream_seed, row_stream_t
from fastrace._models._arrow cimport Arrow
from fastrace.races._weighted cimport urn_t
from fastrace.sources cimport Source

cdef struct step_t:                 # what one step did, beside where it went
    int64_t n_read                  # rows asked of the source
    int64_t n_looks
    bint accepted
    bint full_pass                  # all rows, in one pass in order
    bint undecided                  # the bound had not decided when all rows had been read


cdef enum:
    MOST_SHELLS = 8

cdef struct shell_t:                # a ball about the point of expansion
    double radius                   # whitened
    double heaviest, total          # of the rows' weights, which hold in it


cdef class Chain


cdef class Move:
    """How a chain gets from its state to the next: which points it tries. The chain decides on each of them."""

    cdef int make(self, Chain chain, bitgen_t *bits) except -1 nogil
    # Refuse a chain whose rewards the move could not read, before its first step.
    cdef int suits(self, Chain chain) except -1


cdef class Chain:
    cdef guard_t guard                      # level 1: subclasses that need a race or a table before they run
    # A state is [psi | phi]: what the source sees, and hyperparameters that only the prior sees, mostly none.
    cdef readonly Py_ssize_t dim, n_seen, n_hyper
    cdef readonly Source source
    cdef readonly int64_t n_done            # steps of the last run that are in its arrays
    cdef readonly Move move
    # parameters of the two arms: where the chain is, and where it may go; and the hyperparameters of both
    cdef cnp.ndarray _theta, _phi
    cdef double *now
    cdef double *new
    cdef double *phi_now
    cdef double *phi_new
    # whitened: psi = center + factor z, factor lower triangular; None where the move needs no such coordinates
    cdef cnp.ndarray _center, _factor, _columns, _work
    cdef object _given              # the arrays these were copied from
    cdef double *center
    cdef double *factor
    cdef double *columns            # the factor, column after column from the diagonal down
    cdef double *z0
    cdef double *z1
    # log density without the rows: -|z|^2 / 2 with a surrogate, normal or a function besides
    cdef bint surrogate
    cdef object log_prior
    cdef cnp.ndarray _prior_mean, _prior_precision
    cdef double prior_now, prior_new
    # bound on the change of each row's reward: weight_i times a function of z0 and z1, or of psi in the metric of an
    # arrow about `from_hat`; with weights for each shell
    cdef shell_t shell[MOST_SHELLS]         # the smallest first
    cdef int n_shells                       # 0 if no bound is known
    cdef int within                         # the smallest that holds the move, by `size_of_move`; else the largest
    cdef double rounding                    # of that change, which is a difference of numbers as large as the terms
    cdef cnp.ndarray _from_hat
    cdef double *from_hat
    cdef Arrow metric
    cdef bint along                         # whether the move is along one of few directions, and small
    cdef step_t step
    cdef row_stream_t stream

    cdef int hold(self) except -1           # before steps are made; `release` after them
    cdef void release(self) noexcept
    cdef int arrive(self) except -1 nogil
    cdef double log_prior_of(self, const double *theta) except? -1.0 nogil
    cdef void to_theta(self, const double *z, double *theta) noexcept nogil
    cdef void to_z(self, const double *theta, double *z) noexcept nogil
    cdef double _ask_prior(self, const double *theta) except? -1.0
    cdef double size_of_move(self) noexcept nogil
    cdef int decide(self, double threshold) except -1 nogil
    cdef int moved_on(self) except -1 nogil
    cdef int moved_by(self, double change) except -1 nogil


cdef class Urns:
    cdef urn_t urn[MOST_SHELLS]
    cdef tuple tables               # which own what `urn` points to


cdef int refuse_sum(Source source, Py_ssize_t arm) except -1 with gil


cdef inline void begin(Chain chain, bitgen_t *bits) noexcept nogil:
    """Before a decision: a fresh order of rows, and nothing read yet."""
    chain.step.n_read = chain.step.n_looks = 0
    chain.step.accepted = chain.step.full_pass = chain.step.undecided = False
    row_stream_seed(&chain.stream, bits.next_uint64(bits.state))
