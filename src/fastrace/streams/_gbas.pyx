"""Loop of the Gamma Bernoulli approximation scheme: count to a number of successes, then draw one gamma variate."""

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.math cimport INFINITY, NAN
from libc.stdint cimport int64_t
from numpy.random cimport bitgen_t

import copy

from fastrace._base._checks import DamagedError
from fastrace._base._guard cimport guard_await, guard_built, guard_check_built
from fastrace.streams._stopping cimport RUNNING, Stream

cdef extern from "numpy/random/distributions.h" nogil:
    double random_standard_gamma(bitgen_t *bits, double shape)

cdef struct state_t:
    int64_t successes
    double total                # of the rewards


cdef class Gbas(Stream):
    """`GBAS` checks the arguments and calls `_open` once."""

    cdef state_t state
    cdef readonly int64_t wanted            # successes at which it stops
    cdef object rng, lock
    cdef bitgen_t *bits

    def __cinit__(self, *args, **kwargs):
        guard_await(&self.guard, 1)

    def _open(self, arguments, wanted, rng, **shared):
        self._configure(arguments, **shared)
        self.wanted = wanted
        self._use(rng)
        guard_built(&self.guard, 1)

    cdef void _use(self, rng):
        self.rng = rng
        self.lock = rng.bit_generator.lock
        self.bits = <bitgen_t *>PyCapsule_GetPointer(rng.bit_generator.capsule, "BitGenerator")

    @property
    def n_successes(self):
        """Successes so far; a reward between 0 and the upper end of the support succeeds by a draw of its own."""
        return self.state.successes

    cdef void push(self, double x) noexcept nogil:
        """The lock of the generator is held, unless x is 0."""
        cdef double z = x / self.high, estimate
        self.state.total += x
        if z <= 0.0 or (z < 1.0 and self.bits.next_double(self.bits.state) >= z):
            return
        self.state.successes += 1
        if self.state.successes < self.wanted:
            return
        estimate = (self.wanted - 1) / random_standard_gamma(self.bits, <double>self.s.n) * self.high
        self.judge(min(estimate / (1.0 + self.epsilon_), self.high), estimate / (1.0 - self.epsilon_))
        if self.s.status == RUNNING:        # rounding aside, that interval allows the accuracy
            self.stop(estimate)
        self.s.answer = min(estimate, self.high)

    cdef double mean(self) noexcept nogil:
        return self.state.total / self.s.n if self.s.n else NAN

    cdef void *memory(self, Py_ssize_t *size) noexcept nogil:
        size[0] = sizeof(state_t)
        return &self.state

    def update(self, x):
        guard_check_built(&self.guard, self)
        if type(x) is float and <double>x == 0.0:
            return Stream.update(self, x)
        with self.lock:
            return Stream.update(self, x)

    def update_many(self, xs):
        guard_check_built(&self.guard, self)
        before = self.rng.bit_generator.state
        try:
            with self.lock:
                return Stream.update_many(self, xs)
        except BaseException:
            self.rng.bit_generator.state = before
            raise

    def _own_state(self):
        return self.state.successes, self.state.total, copy.deepcopy(self.rng)

    def _set_own_state(self, state):
        successes, total, rng = state
        if not hasattr(rng, "bit_generator"):
            raise DamagedError("the saved stream is damaged: it has no generator")
        if not 0 <= successes <= self.wanted or not 0.0 <= total < INFINITY:
            raise DamagedError("the saved stream is damaged: its counts cannot be right")
        self.state.successes = successes
        self.state.total = total
        self._use(rng)
