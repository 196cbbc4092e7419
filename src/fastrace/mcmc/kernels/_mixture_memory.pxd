"""What a chain over a mixture of regressions keeps. `_surrogate_gibbs.SurrogateGibbsCore` adds the sweeps."""

from libc.stdint cimport int64_t

from fastrace._base._guard cimport guard_t
from fastrace._models._expanded cimport TermSource
from fastrace._models._group_expansions cimport GroupExpansions
from fastrace._models._priors cimport JointPrior
from fastrace.mcmc.kernels._class_at cimport ClassAt


cdef class MixtureMemory:
    cdef guard_t guard
    cdef TermSource source
    cdef GroupExpansions groups
    cdef Py_ssize_t n_groups, n_classes, dim, order_by, size
    cdef Py_ssize_t n_coefficients      # parameters of a class but for the logarithm of its scale
    cdef Py_ssize_t n_moving            # parameters that a class moves: not a scale that all share
    cdef bint moves_parameters, moves_weights, hierarchical, learns_scale, shared
    cdef JointPrior scale_prior         # None where it is normal
    cdef int64_t small_rows
    cdef ClassAt here, there            # a class as it is and as it is proposed; None where nothing is read for it
    cdef bint has_small
    cdef double concentration, sd_scale, most
    cdef object _kept                   # arrays behind the pointers
    # what the source reads
    cdef double *now
    cdef double *new
    cdef const double *about            # (n_groups, n_about): points of expansion as the source wants them
    cdef Py_ssize_t n_about
    # the state: labels, parameters of classes, their scales, as theta has the logs, weights and their logs, mean and
    # spread of the classes, size of moves
    cdef Py_ssize_t *label
    cdef double *theta
    cdef double *scale
    cdef double *weight
    cdef double *log_weight
    cdef double *mean
    cdef double *spread
    cdef double *noise
    # what of it is numbers, in one piece, and the state that `put_back` goes back to
    cdef double *numbers
    cdef double *kept_numbers
    cdef Py_ssize_t *kept_label
    cdef int64_t kept_tally[4]
    cdef Py_ssize_t n_numbers
    # priors: of the classes, as they stand, and of their mean
    cdef double *precision
    cdef const double *prior_mean
    cdef const double *prior_precision
    # room
    cdef double *powers                 # (n_classes + 1, n_terms): features of the classes, and of a proposal
    cdef double *values                 # (n_groups, n_classes)
    cdef double *sums                   # (n_classes, n_terms)
    cdef double *curvature              # (dim, dim)
    cdef double *center                 # (dim,)
    cdef double *score                  # (n_classes,): logs of the shares of a label's states, and the shares
    cdef double *share
    cdef double *room                   # (2 dim,)
    cdef Py_ssize_t *member             # groups, class after class, and where each class begins
    cdef Py_ssize_t *begin
    cdef Py_ssize_t *known              # labels of groups whose expansions count, -1 of others
    cdef Py_ssize_t *arms               # 0, 1 and so on, one for each class
    cdef Py_ssize_t *order              # classes as they are recorded, and the place of each
    cdef Py_ssize_t *rank
    # of this run: decisions on labels, accepted; on parameters, accepted
    cdef int64_t tally[4]

    cdef double *_numbers(self, Py_ssize_t count) except NULL
    cdef Py_ssize_t *_places(self, Py_ssize_t count) except NULL
    # Labels, then what moves: coefficients, scales, weights, mean and spread; classes in the order asked for.
    cdef void write(self, double *to) noexcept nogil
    # The normal prior of the classes as it stands.
    cdef void take_prior(self) noexcept nogil
    # Note the state, and go back to what was noted last: a sweep that an exception ends is undone.
    cdef void keep(self) noexcept nogil
    cdef void put_back(self) noexcept nogil
    # How many rows a group has.
    cdef int64_t rows_of(self, Py_ssize_t g) noexcept nogil
