# cython: cdivision=True
"""Slice sampling as a move of a chain; the chain decides whether a point is in the slice, by a full pass or a race."""

from libc.math cimport INFINITY
from libc.stdint cimport int64_t
from libc.string cimport memset
from numpy.random cimport bitgen_t

from fastrace._draws._rng cimport random_standard_exponential
from fastrace.mcmc.kernels._chain cimport Chain, Move, begin, step_t

cdef enum:
    MOST_SHRINKS = 200          # an interval shrunk so often has no width left; the chain then stays


cdef class Sweep(Move):
    """Neal's univariate slice sampler along each whitened axis in turn: stepping out, then shrinkage.

    Parameters
    ----------
    width : float
        Of a step outwards, in whitened units.
    most : int
        Most steps outwards in one coordinate.
    """

    cdef readonly double width
    cdef readonly int64_t most

    def __cinit__(self, width, most):
        self.width, self.most = width, most

    def __reduce__(self):
        raise TypeError("a Sweep belongs to the kernel that made it and is not saved")

    cdef int make(self, Chain chain, bitgen_t *bits) except -1 nogil:
        cdef step_t sum
        cdef double log_u, low, high, step
        cdef int64_t left, right
        cdef Py_ssize_t j
        cdef int _tries
        memset(&sum, 0, sizeof(step_t))
        for j in range(chain.dim):
            log_u = -random_standard_exponential(bits)
            low = -self.width * bits.next_double(bits.state)
            high = low + self.width
            left = <int64_t>(self.most * bits.next_double(bits.state))
            right = self.most - 1 - left
            while left > 0 and in_slice(chain, bits, j, low, log_u, &sum) != 0.0:
                low -= self.width
                left -= 1
            while right > 0 and in_slice(chain, bits, j, high, log_u, &sum) != 0.0:
                high += self.width
                right -= 1
            for _tries in range(MOST_SHRINKS):
                step = low + (high - low) * bits.next_double(bits.state)
                if in_slice(chain, bits, j, step, log_u, &sum) != 0.0:
                    chain.arrive()
                    sum.accepted = True
                    break
                if step < 0.0:
                    low = step
                else:
                    high = step
        chain.step = sum
        return 0


cdef double in_slice(Chain chain, bitgen_t *bits, Py_ssize_t j, double step, double log_u,
                     step_t *sum) except? -1.0 nogil:
    """Whether the state moved by `step` along axis j lies in the slice: 1 or 0. A fresh subset of rows each time."""
    cdef double before = 0.0, after = 0.0
    cdef Py_ssize_t i
    for i in range(chain.dim):
        chain.z1[i] = chain.z0[i]
        before += chain.z0[i] * chain.z0[i]
    chain.z1[j] += step
    for i in range(chain.dim):
        after += chain.z1[i] * chain.z1[i]
    chain.to_theta(chain.z1, chain.new)
    chain.prior_new = chain.log_prior_of(chain.new)
    if chain.prior_new == -INFINITY:
        return 0.0
    begin(chain, bits)
    log_u -= chain.prior_new - chain.prior_now
    chain.decide(log_u + 0.5 * (after - before) if chain.surrogate else log_u)
    sum.n_read += chain.step.n_read
    sum.n_looks += chain.step.n_looks
    sum.full_pass |= chain.step.full_pass
    sum.undecided |= chain.step.undecided
    return 1.0 if chain.step.accepted else 0.0
