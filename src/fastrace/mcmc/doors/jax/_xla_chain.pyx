# cython: cdivision=True
"""Steps of compiled kernels, and random numbers for proposals of others, as functions that XLA calls.

A call names its kernel by a number, which is the key of the kernel's engines in `crews`. The interpreter's lock is held
to borrow an engine, and not while steps are made. The state of a chain is in the arrays that go in and come out.
"""

from cpython.pycapsule cimport PyCapsule_New
from libc.math cimport NAN, isfinite
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.string cimport strncpy
from numpy.random cimport bitgen_t

from fastrace._base._guard cimport guard_await, guard_build, guard_built, guard_t
from fastrace._draws._row_stream cimport row_stream_t
from fastrace.mcmc.doors.jax._xla_call cimport (XLA_ARRAY, XLA_S64, key_seed, xla_array_t, xla_batch, xla_buffer_t,
                                                xla_frame_t, xla_last, xla_put_real, xla_ready, xla_real, xla_refuse)
from fastrace.mcmc.kernels._chain cimport Chain

import secrets

cdef extern from "numpy/random/distributions.h" nogil:
    double random_standard_normal(bitgen_t *bits)

cdef int[2] version         # of XLA's interface

crews = {}          # by number; whoever made the function keeps the crew alive


cdef class Crew:
    """Engines of one kernel, lent to one call at a time.

    No Python function is called where one is idle: threads of XLA's own come and go without a Python stack, and to make
    one costs more than a step.
    """

    cdef guard_t guard          # of its set-up: a list of engines needs none
    cdef list idle
    cdef object make
    cdef readonly bint races
    cdef readonly int64_t number

    def __cinit__(self):
        guard_await(&self.guard, 0)

    def __init__(self, make, races):
        """`make` returns a new engine; `races` is whether its cache counts lost races."""
        guard_build(&self.guard, 0, self)
        self.idle = []
        self.make = make
        self.races = races
        self.number = secrets.randbits(62)      # of no other process, to which compiled functions might be sent
        guard_built(&self.guard, 0)
        crews[self.number] = self

cdef struct cache_t:            # of a chain that knows its log-likelihood, and what its races left: see `RaceChain`
    double total
    int64_t losses
    double kurtosis

CACHE_WORDS = sizeof(cache_t) // 4


cdef object _loaded(cache_t *cache, bint races):
    if races:
        return cache.total, cache.losses, cache.kurtosis
    return None if cache.total != cache.total else cache.total


cdef int _saved(object cache, cache_t *out) except -1:
    out.total, out.losses, out.kurtosis = NAN, 0, 0.0
    if isinstance(cache, tuple):
        out.total, out.losses, out.kurtosis = cache
    elif cache is not None:
        out.total = cache
    return 0


cdef int _advance(Chain chain, row_stream_t *stream, const xla_buffer_t *into, int64_t b, int64_t n_steps,
                  int32_t *info) except -1 nogil:
    """Make the steps of one chain; its engine is loaded."""
    cdef int64_t _t, j
    cdef int64_t rows = 0, looks = 0
    info[2] = info[3] = info[4] = 0
    chain.prior_now = chain.log_prior_of(chain.now)
    for _t in range(n_steps):
        chain.move.make(chain, &stream.bits)
        rows += chain.step.n_read
        looks += chain.step.n_looks
        info[2] += chain.step.accepted
        info[3] += chain.step.full_pass
        info[4] += chain.step.undecided
    info[0] = <int32_t>min(rows, <int64_t>0x7FFFFFFF)
    info[1] = <int32_t>min(looks, <int64_t>0x7FFFFFFF)
    for j in range(chain.dim):
        xla_put_real(into, b * chain.dim + j, chain.now[j])
    return 0


cdef _steps(xla_frame_t *frame, int64_t number, int64_t n_steps):
    """(key, positions, caches) -> positions, caches, counts; the interpreter's lock is held."""
    cdef xla_buffer_t *key = frame.arguments.at[0]
    cdef xla_buffer_t *given = frame.arguments.at[1]
    cdef xla_buffer_t *caches = frame.arguments.at[2]
    cdef xla_buffer_t *into = frame.results.at[0]
    cdef cache_t *after = <cache_t *>frame.results.at[1].data
    cdef int32_t *info = <int32_t *>frame.results.at[2].data
    cdef row_stream_t stream
    cdef Chain chain
    cdef Crew crew
    cdef int64_t b, width = xla_last(key, 1), j
    crew = (<dict>crews).get(number)
    if crew is None:
        raise ValueError("the kernel of this compiled function is gone, or from another process; keep the "
                         "CompiledKernel alive as long as functions that use it, and trace them anew in a new process")
    try:
        chain = crew.idle.pop()     # not looked at before: another thread might take the last one in between
    except IndexError:
        chain = crew.make()
    if xla_last(given, 1) != chain.dim or xla_last(caches, 1) != sizeof(cache_t) // 4:
        raise ValueError(f"positions of {xla_last(given, 1)} parameters came; {chain.dim} are needed")
    chain.hold()
    try:
        for b in range(xla_batch(given, 1)):
            for j in range(chain.dim):
                chain.now[j] = xla_real(given, b * chain.dim + j)
                if not isfinite(chain.now[j]):
                    raise ValueError(f"parameter {j} of a position is {chain.now[j]}; finite numbers are needed")
                chain.new[j] = chain.now[j]
            chain.to_z(chain.now, chain.z0)
            chain._take_cache(_loaded(&(<cache_t *>caches.data)[b], crew.races))
            key_seed(&stream, <const uint32_t *>key.data + b * width, width, 1)
            with nogil:
                _advance(chain, &stream, into, b, n_steps, info + 5 * b)
            _saved(chain.cache, &after[b])
    finally:
        chain.release()
    crew.idle.append(chain)


cdef bint _try(xla_frame_t *frame, int64_t number, int64_t n_steps, char *message) noexcept with gil:
    try:
        _steps(frame, number, n_steps)
    except BaseException as error:
        text = f"{type(error).__name__}: {error}".encode()[:999]
        strncpy(message, text, 999)
        return False
    return True


cdef void *draw_noise(xla_frame_t *frame) noexcept nogil:
    """(key) -> standard normals of any number, one uniform number; `purpose` 1 of the key."""
    cdef row_stream_t stream
    cdef void *answer
    cdef xla_buffer_t *key
    cdef xla_buffer_t *normals
    cdef xla_buffer_t *uniform
    cdef int64_t b, i, width, n
    if not xla_ready(frame, version, b"u", b"rr", 0, &answer):
        return answer
    key = frame.arguments.at[0]
    normals, uniform = frame.results.at[0], frame.results.at[1]
    width, n = xla_last(key, 1), xla_last(normals, 1)
    for b in range(xla_batch(key, 1)):
        key_seed(&stream, <const uint32_t *>key.data + b * width, width, 1)
        for i in range(n):
            xla_put_real(normals, b * n + i, random_standard_normal(&stream.bits))
        xla_put_real(uniform, b, stream.bits.next_double(stream.bits.state))
    return NULL


cdef void *chain_steps(xla_frame_t *frame) noexcept nogil:
    cdef char message[1000]
    cdef void *answer
    cdef xla_array_t *order
    if not xla_ready(frame, version, b"uru", b"rui", 1, &answer):
        return answer
    order = <xla_array_t *>frame.attributes.at[0]
    if frame.attributes.kinds[0] != XLA_ARRAY or order.dtype != XLA_S64 or order.size != 2:
        return xla_refuse(frame, b"a function of fastrace was called without its kernel")
    if frame.results.at[0].dtype != frame.arguments.at[1].dtype:
        return xla_refuse(frame, b"positions must go out as they came in, float32 or float64")
    message[999] = 0
    if not _try(frame, (<const int64_t *>order.data)[0], (<const int64_t *>order.data)[1], message):
        return xla_refuse(frame, message)
    return NULL


def targets(major, minor):
    """The functions by name, as capsules for `jax.ffi.register_ffi_target`, for this version of XLA's interface."""
    version[0], version[1] = major, minor
    return {
        "fastrace_noise": PyCapsule_New(<void *>draw_noise, NULL, NULL),
        "fastrace_chain_steps": PyCapsule_New(<void *>chain_steps, NULL, NULL),
    }
