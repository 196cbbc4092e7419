"""What rules that draw without end ask for rewards, `PullSource`, and sources that draw by themselves, for trials."""

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int64_t
cimport numpy as cnp
from numpy.random cimport bitgen_t

from fastrace._base._guard cimport guard_await, guard_build, guard_built, guard_check_built, guard_enter, guard_leave
from fastrace._base._signals cimport check_signals
from fastrace._draws._uniforms cimport UNIFORMS, uniforms_fill, uniforms_left, uniforms_resume

from copy import deepcopy

import numpy as np

from fastrace._base import _checks
from fastrace._base._frames import support_of_arms

cnp.import_array()

cdef enum:
    REWARDS_PER_CALL = 1 << 16          # of `read`, between two looks for Ctrl-C

cdef int64_t MOST_REWARDS = <int64_t>1 << 53    # of one read; what can be counted exactly, and more than any memory


def _whole_numbers(values, name, dtype, least=None):
    """A fresh contiguous vector of whole numbers, none below `least`, of a dtype that holds them all."""
    array = _checks.as_array(values, name)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(f"{name} has shape {array.shape} and dtype {array.dtype}; a vector of whole numbers below "
                         f"2**63 is needed")
    if array.size and array.dtype.kind == "u" and np.max(array) > np.iinfo(dtype).max:
        raise ValueError(f"{name} holds {np.max(array)}; whole numbers below 2**63 are needed")
    if array.size and least is not None and np.min(array) < least:
        raise ValueError(f"{name} holds {np.min(array)}; at least {least} is needed")
    return np.array(array, dtype=dtype)


cdef int64_t sum_of_counts(cnp.ndarray counts) except -1:
    # a sum of 64-bit numbers may overflow, so look at it as a float first
    near = float(np.sum(counts, dtype=np.float64))
    if near > 2.0 * MOST_REWARDS or np.sum(counts) > MOST_REWARDS:
        raise ValueError(f"counts add up to {near:.3g} rewards; at most 2**53 can be read at once")
    return np.sum(counts)


cdef class PullSource:
    """Rewards of `n_arms` arms, one fresh reward per pull, for compiled rules.

    Subclass it in Cython and supply ``pull``; see ``pulls.pxd`` for the contract. From Python use `CallablePulls`, or
    one of the sources that draw by themselves.

    Parameters
    ----------
    n_arms : int
        Number of arms.
    """

    def __cinit__(self, *args, **kwargs):
        guard_await(&self.guard, 0)
        self.most_at_once = REWARDS_PER_CALL

    def __init__(self, n_arms):
        cdef Py_ssize_t count = _checks.integer(n_arms, "n_arms", 1, "a source of pulls needs arms")
        guard_build(&self.guard, 0, self)
        self.n_arms = count
        guard_built(&self.guard, 0)

    cdef int pull(self, const Py_ssize_t *arms, const int64_t *counts, Py_ssize_t n, double *out) except -1 nogil:
        with gil:
            raise NotImplementedError(f"{type(self).__name__} does not supply pull")

    cdef int hold(self) except -1:
        if self.stateless:
            return guard_check_built(&self.guard, self)
        return guard_enter(&self.guard, self)

    cdef void release(self) noexcept:
        if not self.stateless:
            guard_leave(&self.guard)

    def read(self, arms, counts):
        """Rewards of `counts[k]` pulls of `arms[k]`, one arm after the other.

        Parameters
        ----------
        arms : array_like of int, shape (k,)
            Arms to pull.
        counts : array_like of int, shape (k,)
            Pulls of each, at least 1; at most 2**53 in all.

        Returns
        -------
        ndarray of float, shape (sum of counts,)

        Raises
        ------
        ValueError
            If an arm or a count is out of range, or the arms and counts are not vectors of whole numbers of one length.
        RuntimeError
            If the source is in use: by a rule that runs, or in another thread.

        Notes
        -----
        Ctrl-C is heard after every 65,536 rewards, except by sources that call a function of yours, which hear it in
        the function. The rewards that were drawn by then are lost.
        """
        cdef cnp.ndarray arm = _whole_numbers(arms, "arms", np.intp)
        cdef cnp.ndarray count = _whole_numbers(counts, "counts", np.int64)
        cdef cnp.ndarray part, out
        if (<object>arm).shape != (<object>count).shape:
            raise ValueError(f"arms and counts have shapes {(<object>arm).shape} and {(<object>count).shape}; two "
                             f"vectors of the same length are needed")
        guard_check_built(&self.guard, self)
        if arm.size and not (0 <= np.min(arm) and np.max(arm) < self.n_arms and np.min(count) >= 1):
            raise ValueError(f"arms must stay within [0, {self.n_arms}) and counts be at least 1")
        out = np.empty(sum_of_counts(count))
        part = np.empty_like(count)
        self.hold()
        try:
            with nogil:
                self._pull_in_parts(<const Py_ssize_t *>cnp.PyArray_DATA(arm), <int64_t *>cnp.PyArray_DATA(count),
                                    <int64_t *>cnp.PyArray_DATA(part), arm.shape[0], <double *>cnp.PyArray_DATA(out))
        finally:
            self.release()
        return out

    cdef int _pull_in_parts(self, const Py_ssize_t *arms, int64_t *left, int64_t *part, Py_ssize_t n,
                            double *out) except -1 nogil:
        """Pull `left[k]` times each of the arms, in calls of at most `most_at_once` rewards; `part` has room for n."""
        cdef Py_ssize_t k = 0, i, size
        cdef int64_t room
        while k < n:
            room = self.most_at_once
            size = 0
            while k + size < n and room > 0:
                part[size] = min(left[k + size], room)
                room -= part[size]
                size += 1
            self.pull(arms + k, part, size, out)
            out += self.most_at_once - room
            for i in range(size):
                left[k + i] -= part[i]
            while k < n and left[k] == 0:
                k += 1
            if k < n:
                check_signals()
        return 0


cdef class RandomPulls(PullSource):
    """Base of sources that draw with a NumPy bit generator, 256 uniform numbers at a time, under its lock.

    Parameters
    ----------
    n_arms : int
        Number of arms.
    rng : None, int, SeedSequence or Generator, optional
        Source of randomness.
    """

    def __cinit__(self, *args, **kwargs):
        guard_await(&self.guard, 1)

    def __init__(self, n_arms, rng=None):
        generator = _checks.generator(rng)
        lock, capsule = generator.bit_generator.lock, generator.bit_generator.capsule
        super().__init__(n_arms)
        guard_build(&self.guard, 1, self)
        self.rng = generator
        self.lock = lock
        self.bits = <bitgen_t *>PyCapsule_GetPointer(capsule, "BitGenerator")
        self.ahead.used = UNIFORMS
        guard_built(&self.guard, 1)

    cdef Py_ssize_t have(self, int64_t wanted) except -1 nogil:
        if self.ahead.used >= UNIFORMS:
            with gil:
                with self.lock:
                    uniforms_fill(&self.ahead, self.bits)
        return <Py_ssize_t>min(wanted, <int64_t>(UNIFORMS - self.ahead.used))

    def _saved(self):
        """A copy of the generator, and the uniform numbers drawn from it and not yet used."""
        guard_enter(&self.guard, self)
        try:
            return deepcopy(self.rng), np.array(uniforms_left(&self.ahead))
        finally:
            guard_leave(&self.guard)

    def _resume(self, left):
        """Go on with the uniform numbers that `_saved` gave."""
        if not (isinstance(left, np.ndarray) and left.dtype == np.float64):
            raise TypeError(f"numbers drawn ahead are {_checks.shown(left)}; an array of floats is needed")
        guard_enter(&self.guard, self)
        try:
            uniforms_resume(&self.ahead, left)
        finally:
            guard_leave(&self.guard)


@_checks.rebuilds(1, RandomPulls, subclasses=True)
def _rebuild_random(cls, arguments, rng, left):
    """Rebuild a pickled source of random rewards."""
    if not (isinstance(arguments, tuple) and isinstance(rng, np.random.Generator)):
        raise ValueError("it names no arguments and generator of random rewards")
    source = cls(*arguments, rng=rng)
    source._resume(left)
    return source


def _vector(values, name):
    """A fresh contiguous vector of finite floats."""
    array = np.atleast_1d(_checks.floats(values, name))
    if array.ndim != 1 or not array.size or not np.isfinite(array).all():
        raise ValueError(f"{name} is {_checks.shown(values)}; a vector of finite numbers, one per arm, is needed")
    return np.ascontiguousarray(array)


cdef class BernoulliPulls(RandomPulls):
    """Rewards 0 and 1: for trials and benchmarks.

    Parameters
    ----------
    mean : array_like of float, shape (n_arms,)
        Probability of a 1, in [0, 1].
    rng : None, int, SeedSequence or Generator, optional
        Source of randomness; one uniform number per pull.

    Raises
    ------
    ValueError
        If a mean is outside [0, 1].

    Examples
    --------
    >>> from fastrace.pulls import BernoulliPulls
    >>> BernoulliPulls([0.0, 0.5, 1.0], rng=1).read([0, 2], [2, 3])
    array([0., 0., 1., 1., 1.])
    """

    def __cinit__(self, *args, **kwargs):
        guard_await(&self.guard, 2)

    def __init__(self, mean, rng=None):
        cdef cnp.ndarray means = _vector(mean, "mean")
        if np.min(means) < 0.0 or np.max(means) > 1.0:
            raise ValueError(f"mean is {_checks.shown(mean)}; probabilities in [0, 1] are needed")
        super().__init__(means.shape[0], rng)
        guard_build(&self.guard, 2, self)
        self._mean = means
        self.mean = <const double *>cnp.PyArray_DATA(means)
        guard_built(&self.guard, 2)

    def __reduce__(self):
        rng, left = self._saved()
        return _rebuild_random.saved(type(self), (self._mean,), rng, left)

    cdef int pull(self, const Py_ssize_t *arms, const int64_t *counts, Py_ssize_t n, double *out) except -1 nogil:
        cdef Py_ssize_t k, i, size
        cdef int64_t left
        cdef double mean
        for k in range(n):
            left, mean = counts[k], self.mean[arms[k]]
            while left > 0:
                size = self.have(left)
                for i in range(size):
                    out[i] = self.ahead.value[self.ahead.used + i] < mean
                self.ahead.used += <int>size
                out += size
                left -= size
        return 0


cdef class UniformPulls(RandomPulls):
    """Rewards uniform on an interval of each arm's own: for trials and benchmarks.

    Parameters
    ----------
    low, high : array_like of float, shape (n_arms,)
        Ends of the intervals, low <= high.
    rng : None, int, SeedSequence or Generator, optional
        Source of randomness; one uniform number per pull.

    Raises
    ------
    ValueError
        If the ends are not finite or out of order.

    Examples
    --------
    >>> from fastrace.pulls import UniformPulls
    >>> bool((UniformPulls([0.0, 5.0], [1.0, 7.0], rng=1).read([1], [100]) >= 5.0).all())
    True
    """

    def __cinit__(self, *args, **kwargs):
        guard_await(&self.guard, 2)

    def __init__(self, low, high, rng=None):
        low, high = support_of_arms((low, high), None)
        cdef cnp.ndarray lows = _vector(low, "low"), highs = _vector(high, "high"), widths
        if (<object>lows).shape != (<object>highs).shape or (<object>highs < <object>lows).any():
            raise ValueError(f"low is {_checks.shown(low)} and high is {_checks.shown(high)}; one interval per arm "
                             f"with low <= high is needed")
        widths = <object>highs - <object>lows
        if not np.isfinite(widths).all():
            raise ValueError(f"low is {_checks.shown(low)} and high is {_checks.shown(high)}; intervals of finite "
                             f"width are needed")
        super().__init__(lows.shape[0], rng)
        guard_build(&self.guard, 2, self)
        self._low, self._high, self._width = lows, highs, widths
        self.low = <const double *>cnp.PyArray_DATA(lows)
        self.width = <const double *>cnp.PyArray_DATA(widths)
        guard_built(&self.guard, 2)

    def __reduce__(self):
        rng, left = self._saved()
        return _rebuild_random.saved(type(self), (self._low, self._high), rng, left)

    cdef int pull(self, const Py_ssize_t *arms, const int64_t *counts, Py_ssize_t n, double *out) except -1 nogil:
        cdef Py_ssize_t k, i, size
        cdef int64_t left
        cdef double low, width
        for k in range(n):
            left, low, width = counts[k], self.low[arms[k]], self.width[arms[k]]
            while left > 0:
                size = self.have(left)
                for i in range(size):
                    out[i] = low + width * self.ahead.value[self.ahead.used + i]
                self.ahead.used += <int>size
                out += size
                left -= size
        return 0
