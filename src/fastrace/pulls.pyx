"""Rewards without end: each pull of an arm is a fresh, independent reward. Compiled rules draw from a `PullSource`.

Here are the sources of functions and tables; `PullSource`, and those that draw by themselves, stand in `_pull_source`.
"""

from cpython.pycapsule cimport PyCapsule_GetContext, PyCapsule_GetName, PyCapsule_GetPointer
from libc.stdint cimport int64_t
from libc.string cimport memcpy
cimport numpy as cnp

from fastrace._base._guard cimport guard_await, guard_build, guard_built, guard_check_built, guard_enter, guard_leave
from fastrace._pull_source cimport PullSource, RandomPulls, sum_of_counts
from fastrace.sources cimport Source

import numpy as np

from fastrace import _pull_source
from fastrace._base import _checks
from fastrace._base._answers import (MISTAKEN, first_unread, flat_numbers, keep_answer, keep_apart, parts_entries,
                                     said_call)
from fastrace._base._callbacks import is_low_level, signature_types
from fastrace._base._frames import as_table, real_table
from fastrace._pull_source import _rebuild_random
from fastrace.sources import ArraySource, _source_of

cnp.import_array()

__all__ = ["BernoulliPulls", "CallablePulls", "CallbackPulls", "PullSource", "RandomPulls", "RecordedPulls",
           "ResampledPulls", "UniformPulls", "as_pulls"]

# What is cimported is no name of this module; these are public here.
globals().update({name: getattr(_pull_source, name) for name in
                  ("BernoulliPulls", "PullSource", "RandomPulls", "UniformPulls")})

ctypedef int (*rewards_plain)(const Py_ssize_t *, const int64_t *, Py_ssize_t, double *) noexcept nogil
ctypedef int (*rewards_data)(const Py_ssize_t *, const int64_t *, Py_ssize_t, double *, void *) noexcept nogil

cdef enum:
    ROWS_PER_FILL = 256

cdef int64_t ANY_NUMBER = <int64_t>((<unsigned long long>1 << 63) - 1)


cdef int demand_rounds(const int64_t *counts, Py_ssize_t n) except -1 nogil:
    """Refuse a request of arms that are not wanted equally often: rounds are of all of them."""
    cdef Py_ssize_t k
    for k in range(1, n):
        if counts[k] != counts[0]:
            with gil:
                raise ValueError(f"counts are {counts[0]} and {counts[k]}; a paired source gives rounds, rewards of "
                                 f"all arms of a request on the same rows: ask for each equally often, or one by one")
    return 0


cdef class ResampledPulls(RandomPulls):
    """An endless stream out of a finite population: each pull is the reward on a row drawn with replacement.

    Parameters
    ----------
    source : Source, array_like of shape (n_rows, n_arms), callable or scipy.LowLevelCallable
        Rewards by row and arm, whatever `fastrace.sources.as_source` takes.
    rng : None, int, SeedSequence or Generator, optional
        Source of randomness; one uniform number per pull.
    n_arms, n_rows : int, optional
        Needed for functions, whose size cannot be seen.
    paired : bool, default False
        The arms of a request share their rows: its t-th rewards of all arms are of one row. For rules that compare arms
        by rounds, such as ``LUCB(paired=True)``; it takes one uniform number per row.

    Raises
    ------
    ValueError
        If the population has no rows or more than 2**53, or a size is missing; from a read with `paired`, if the arms
        are not wanted equally often.

    Examples
    --------
    >>> from fastrace.pulls import ResampledPulls
    >>> ResampledPulls([[1.0, 5.0], [1.0, 6.0]], rng=1).read([0], [3])
    array([1., 1., 1.])
    >>> ResampledPulls([[1.0, 5.0], [2.0, 6.0]], rng=1, paired=True).read([0, 1], [3, 3])
    array([2., 2., 1., 6., 6., 5.])
    """

    def __cinit__(self, *args, **kwargs):
        guard_await(&self.guard, 2)

    def __init__(self, source, rng=None, *, n_arms=None, n_rows=None, paired=False):
        cdef bint together = _checks.flag(paired, "paired")
        cdef Source population = _source_of(source, "source", n_arms, n_rows)
        if not 1 <= population.n_rows <= 1 << 53:
            raise ValueError(f"the population has {population.n_rows} rows; from 1 to 2**53 are needed to draw from")
        super().__init__(population.n_arms, rng)
        guard_build(&self.guard, 2, self)
        self.source = population
        self.paired = together
        self._column = np.zeros(self.n_arms if together else 1, dtype=np.intp)
        self._first = self._drawn = np.empty(0, np.int64)
        guard_built(&self.guard, 2)

    def __reduce__(self):
        rng, left = self._saved()
        if self.paired:
            return _rebuild_paired.saved(type(self), self.source, rng, left)
        return _rebuild_random.saved(type(self), (self.source,), rng, left)

    # A request that failed leaves out no row: to draw others instead would favour those that do not fail.

    def _draw_first(self, rows):
        """Let the next rows be these, before any is drawn."""
        self._first, self.n_first = np.array(rows, np.int64), 0

    def _rows_to_draw(self, failed):
        """Rows of the last request, if that has `failed`, and what is left of those to be drawn first."""
        drawn = self._drawn[:self.n_drawn if failed else 0]
        return np.concatenate([drawn, self._first[self.n_first:]])

    cdef int64_t *_room(self, const int64_t *counts, Py_ssize_t n) except NULL nogil:
        """Where the rows of a request go that is about to be drawn."""
        cdef Py_ssize_t k
        cdef int64_t total = 0
        for k in range(n):
            total += counts[k]
        self.n_drawn = 0
        if total > self._drawn.shape[0]:
            with gil:
                self._drawn = np.empty(total, np.int64)
        return <int64_t *>cnp.PyArray_DATA(self._drawn)

    cdef int pull(self, const Py_ssize_t *arms, const int64_t *counts, Py_ssize_t n, double *out) except -1 nogil:
        cdef double **column = <double **>cnp.PyArray_DATA(self._column)
        cdef const int64_t *first = <const int64_t *>cnp.PyArray_DATA(self._first)
        cdef int64_t left
        cdef Py_ssize_t k, j, i, size, drawn, many, at_once = n if self.paired else 1
        cdef double n_rows = <double>self.source.n_rows
        if self.paired:
            demand_rounds(counts, n)
        cdef int64_t *rows = self._room(counts, min(n, 1) if self.paired else n)
        k = 0
        while k < n:
            left = counts[k]
            for j in range(at_once):
                column[j] = out + j * left
            out += at_once * left
            while left > 0:
                size = <Py_ssize_t>min(left, <int64_t>ROWS_PER_FILL)
                drawn = 0
                while drawn < size and self.n_first < self._first.shape[0]:
                    rows[drawn] = first[self.n_first]
                    self.n_first += 1
                    drawn += 1
                while drawn < size:
                    many = self.have(size - drawn)
                    for i in range(many):
                        rows[drawn + i] = <int64_t>(self.ahead.value[self.ahead.used + i] * n_rows)
                    self.ahead.used += <int>many
                    drawn += many
                self.n_drawn += size
                self.source.fill(rows, size, &arms[k], at_once, column)
                rows += size
                for j in range(at_once):
                    column[j] += size
                left -= size
            k += at_once
        return 0


cdef class RecordedPulls(PullSource):
    """Rewards that were drawn beforehand: pull t of an arm returns row t of its column.

    Parameters
    ----------
    values : array_like of real numbers, shape (n_recorded, n_arms)
        The rewards, in the order in which each arm gives them; a frame or a dict of columns too.
    paired : bool, default False
        A row is a round: the t-th rewards of all arms of a request are of one row, the next that no request has had, of
        whichever arms. For rules that compare arms by rounds, such as ``LUCB(paired=True)``.

    Raises
    ------
    ValueError
        If `values` is no table of real numbers; from a read, if an arm has given all its rewards, or with `paired` if
        the arms are not wanted equally often.

    Notes
    -----
    The values are copied, an arm's rewards side by side.

    Examples
    --------
    >>> from fastrace.pulls import RecordedPulls
    >>> source = RecordedPulls([[1.0, 5.0], [2.0, 6.0], [3.0, 7.0]])
    >>> source.read([0, 1], [2, 1]), source.read([0], [1])
    (array([1., 2., 5.]), array([3.]))
    """

    def __cinit__(self, *args, **kwargs):
        guard_await(&self.guard, 1)
        self.most_at_once = ANY_NUMBER          # all or nothing: an arm may run out

    def __init__(self, values, *, paired=False):
        cdef bint together = _checks.flag(paired, "paired")
        table = np.asarray(ArraySource(as_table(values, "values")).values)
        cdef cnp.ndarray by_arm = np.array(table.T, dtype=np.float64, order="C")
        cdef cnp.ndarray used = np.zeros(by_arm.shape[0], dtype=np.int64)
        super().__init__(by_arm.shape[0])
        guard_build(&self.guard, 1, self)
        self.paired = together
        self._values, self._used = by_arm, used
        self.values = <const double *>cnp.PyArray_DATA(by_arm)
        self.used = <int64_t *>cnp.PyArray_DATA(used)
        self.n_recorded = by_arm.shape[1]
        guard_built(&self.guard, 1)

    def __reduce__(self):
        guard_enter(&self.guard, self)
        try:
            return _rebuild_recorded.saved(self._values, np.array(self._used), *([True] if self.paired else []))
        finally:
            guard_leave(&self.guard)

    cdef int pull(self, const Py_ssize_t *arms, const int64_t *counts, Py_ssize_t n, double *out) except -1 nogil:
        cdef Py_ssize_t k, back
        if self.paired:
            return self._pull_rounds(arms, counts, n, out)
        for k in range(n):
            if counts[k] > self.n_recorded - self.used[arms[k]]:
                with gil:
                    arm, wanted, left = arms[k], counts[k], self.n_recorded - self.used[arms[k]]
                    for back in range(k):
                        self.used[arms[back]] -= counts[back]
                    raise ValueError(f"arm {arm} is to be pulled {wanted} times but has {left} of its "
                                     f"{self.n_recorded} recorded rewards left; record more, or set max_pulls")
            memcpy(out, self.values + arms[k] * self.n_recorded + self.used[arms[k]], counts[k] * sizeof(double))
            self.used[arms[k]] += counts[k]
            out += counts[k]
        return 0

    cdef int _pull_rounds(self, const Py_ssize_t *arms, const int64_t *counts, Py_ssize_t n,
                          double *out) except -1 nogil:
        cdef Py_ssize_t k
        cdef int64_t start = self.used[0], count = counts[0] if n > 0 else 0
        demand_rounds(counts, n)
        if count > self.n_recorded - start:
            with gil:
                wanted, left = count, self.n_recorded - start
                raise ValueError(f"arms {[arms[k] for k in range(n)]} are to be read on {wanted} rows but {left} of "
                                 f"the {self.n_recorded} recorded ones are left; record more, or set max_pulls")
        for k in range(n):
            memcpy(out + k * count, self.values + arms[k] * self.n_recorded + start, count * sizeof(double))
        for k in range(self.n_arms):
            self.used[k] = start + count
        return 0


@_checks.rebuilds(1, ResampledPulls, subclasses=True)
def _rebuild_paired(cls, population, rng, left):
    """Rebuild pickled `ResampledPulls` that are paired."""
    if not isinstance(rng, np.random.Generator):
        raise ValueError("it names no generator of random rewards")
    source = cls(population, rng, paired=True)
    source._resume(left)
    return source


@_checks.rebuilds(1, RecordedPulls)
def _rebuild_recorded(values, used, paired=False):
    """Rebuild a pickled `RecordedPulls`; those saved without `paired` are not."""
    if not (isinstance(values, np.ndarray) and values.ndim == 2 and values.dtype == np.float64
            and isinstance(used, np.ndarray) and used.shape == values.shape[:1] and used.dtype.kind in "iu"
            and (used >= 0).all() and (used <= values.shape[1]).all() and isinstance(paired, bool)
            and (not paired or np.unique(used).size == 1)):
        raise ValueError("its rewards must be a table of floats, and an arm cannot have "
                         "given more of them than there are")
    cdef RecordedPulls source = RecordedPulls(values.T, paired=paired)
    source._used[:] = used
    return source


cdef class CallablePulls(PullSource):
    """Rewards from a Python function of arms and counts.

    Parameters
    ----------
    function : callable
        ``function(arms, counts)`` takes an intp array and an int64 array of shape (k,) and returns the rewards of
        ``counts[0]`` pulls of ``arms[0]``, then ``counts[1]`` of ``arms[1]``, and so on: one flat array of
        ``counts.sum()`` real numbers, or a list of k arrays, one per arm. Both arguments are fresh at every call.
    n_arms : int
        Number of arms.

    Raises
    ------
    ValueError
        From a pull, if the function returns something else. An exception of the function reaches the caller unchanged.

    Notes
    -----
    A call costs about 2 us beside the function's own work, so rules that ask in blocks (``batch``) are faster.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace.pulls import CallablePulls
    >>> CallablePulls(lambda arms, counts: np.repeat(arms, counts) / 10, n_arms=5).read([3, 1], [2, 1])
    array([0.3, 0.3, 0.1])
    """

    def __cinit__(self, *args, **kwargs):
        guard_await(&self.guard, 1)
        self.stateless = True
        self.most_at_once = ANY_NUMBER          # one call of the function

    def __init__(self, function, n_arms):
        if not callable(function):
            raise ValueError(f"function is {_checks.shown(function)}; a callable of (arms, counts) is needed")
        _checks.at_once(function, "function")
        _checks.takes(function, "function", "arms", "counts")
        super().__init__(n_arms)
        guard_build(&self.guard, 1, self)
        self.function = function
        guard_built(&self.guard, 1)

    def __reduce__(self):
        guard_check_built(&self.guard, self)
        return _rebuild_callable.saved(type(self), self.function, self.n_arms)

    cdef int pull(self, const Py_ssize_t *arms, const int64_t *counts, Py_ssize_t n, double *out) except -1 nogil:
        with gil:
            self._call(arms, counts, n, out)
        return 0

    cdef int _call(self, const Py_ssize_t *arms, const int64_t *counts, Py_ssize_t n, double *out) except -1:
        cdef cnp.npy_intp size = n
        cdef cnp.ndarray arm = cnp.PyArray_EMPTY(1, &size, cnp.NPY_INTP, 0)
        cdef cnp.ndarray count = cnp.PyArray_EMPTY(1, &size, cnp.NPY_INT64, 0)
        cdef cnp.ndarray rewards
        cdef int64_t total = 0
        cdef Py_ssize_t k
        memcpy(cnp.PyArray_DATA(arm), arms, n * sizeof(Py_ssize_t))
        memcpy(cnp.PyArray_DATA(count), counts, n * sizeof(int64_t))
        for k in range(n):
            total += counts[k]
        try:
            given = self.function(arm, count)
        except MISTAKEN as error:
            said_call(error, "function(arms, counts)", f"arms of shape ({n},)", f"counts of shape ({n},)",
                      f"{total} rewards: counts[0] of arms[0], and so on")
            raise
        try:
            rewards = flat_rewards(given, arms, counts, n, total)
        except Exception as error:          # it goes back as it came
            keep_answer(error, given)
            asked = [counts[k] for k in range(n)]
            keep_apart(error, self, np.array([arms[k] for k in range(n)], np.intp), np.array(asked, np.int64),
                       parts_entries(given, asked))
            raise
        memcpy(out, cnp.PyArray_DATA(rewards), total * sizeof(double))
        return 0


cdef cnp.ndarray flat_rewards(object given, const Py_ssize_t *arms, const int64_t *counts, Py_ssize_t n,
                              int64_t total):
    """What a user gave for `counts` pulls of `arms`, as one contiguous vector of doubles."""
    cdef cnp.ndarray array
    if type(given) is np.ndarray:
        array = given
        if array.ndim == 1 and array.shape[0] == total and cnp.PyArray_TYPE(array) == cnp.NPY_DOUBLE and \
                cnp.PyArray_ISCARRAY_RO(array):
            return array
    try:
        return flat_numbers(given, [arms[k] for k in range(n)], [counts[k] for k in range(n)])
    except ValueError:
        bad = first_unread(parts_entries(given, [counts[k] for k in range(n)]),
                           "real numbers are needed, one for each pull")
        if bad is None:
            raise
    ((place,), said), last = bad, 0
    for k in range(n):
        last += counts[k]
        if place < last:
            raise ValueError(f"reward {place - last + counts[k]} of the {counts[k]} of arm {arms[k]} is {said}")


def _flat(given, arms, counts):
    """`flat_rewards` for the rules' ``tell``: `arms` and `counts` as they asked."""
    cdef cnp.ndarray arm = np.ascontiguousarray(arms, dtype=np.intp)
    cdef cnp.ndarray count = np.ascontiguousarray(counts, dtype=np.int64)
    return flat_rewards(given, <const Py_ssize_t *>cnp.PyArray_DATA(arm), <const int64_t *>cnp.PyArray_DATA(count),
                        arm.shape[0], sum_of_counts(count))


_SIGNATURE = "int (intptr_t *, int64_t *, intptr_t, double *)"
_FORMS = {signature_types(_SIGNATURE): False, signature_types(_SIGNATURE[:-1] + ", void *)"): True}   # with user data?


@_checks.rebuilds(1, CallablePulls, subclasses=True)
def _rebuild_callable(cls, function, n_arms):
    """Rebuild a pickled `CallablePulls`."""
    return cls(function, n_arms)


cdef class CallbackPulls(PullSource):
    """Rewards from compiled code, called without the GIL.

    Parameters
    ----------
    callback : scipy.LowLevelCallable
        A function made by Numba's ``cfunc``, ctypes, cffi or Cython, of the form ::

            int callback(const intptr_t *arms, const int64_t *counts, intptr_t n, double *out, void *data)

        or the same without ``void *data``. It writes ``counts[0]`` rewards of ``arms[0]``, then ``counts[1]`` of
        ``arms[1]``, and so on, to `out`. ``data`` is the user data of the LowLevelCallable. Return 0, or another number
        to stop with an error.
    n_arms : int
        Number of arms.

    Raises
    ------
    ValueError
        If `callback` is not a LowLevelCallable of an accepted form.
    RuntimeError
        From a pull, if the callback returns another number than 0.

    Notes
    -----
    A function pointer cannot be pickled. The source keeps the LowLevelCallable alive; memory that the user data points
    to is yours to keep.

    Examples
    --------
    >>> import ctypes
    >>> from scipy import LowLevelCallable
    >>> from fastrace.pulls import CallbackPulls
    >>> @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_ssize_t), ctypes.POINTER(ctypes.c_int64),
    ...                   ctypes.c_ssize_t, ctypes.POINTER(ctypes.c_double))
    ... def rewards(arms, counts, n, out):      # ctypes goes through Python: Numba's cfunc or C is the fast way
    ...     at = 0
    ...     for k in range(n):
    ...         for _ in range(counts[k]):
    ...             out[at] = arms[k] / 10
    ...             at += 1
    ...     return 0
    >>> CallbackPulls(LowLevelCallable(rewards), n_arms=5).read([3, 1], [2, 1])
    array([0.3, 0.3, 0.1])
    """

    def __cinit__(self, *args, **kwargs):
        guard_await(&self.guard, 1)
        self.stateless = True

    def __init__(self, callback, n_arms):
        if not is_low_level(callback):
            raise ValueError(f"callback is a {type(callback).__name__}; wrap the function pointer in "
                             f"scipy.LowLevelCallable, or use CallablePulls for a Python function")
        capsule = tuple.__getitem__(callback, 0)
        cdef const char *signature = PyCapsule_GetName(capsule)
        cdef void *function = PyCapsule_GetPointer(capsule, signature)
        cdef void *data = PyCapsule_GetContext(capsule)
        text = (<bytes>signature).decode()
        form = _FORMS.get(signature_types(text))
        if form is None:
            raise ValueError(f"callback has signature {text!r}; accepted is {_SIGNATURE!r}, with or without a void * "
                             f"for user data at the end")
        if data != NULL and not form:
            raise ValueError(f"callback comes with user data, but {text!r} has no void * to take it")
        super().__init__(n_arms)
        guard_build(&self.guard, 1, self)
        self.takes_data = form
        self.function, self.data = function, data
        self.callback = callback
        guard_built(&self.guard, 1)

    def __reduce__(self):
        raise TypeError("CallbackPulls holds a function pointer, which means nothing in another process; build it "
                        "there, or use CallablePulls")

    cdef int pull(self, const Py_ssize_t *arms, const int64_t *counts, Py_ssize_t n, double *out) except -1 nogil:
        cdef int code
        if self.takes_data:
            code = (<rewards_data>self.function)(arms, counts, n, out, self.data)
        else:
            code = (<rewards_plain>self.function)(arms, counts, n, out)
        if code != 0:
            with gil:
                raise RuntimeError(f"the callback returned {code} when asked for rewards of arm {arms[0]}"
                                   + (f" and {n - 1} more" if n > 1 else "") + "; 0 means success")
        return 0


def is_population(pull):
    """Whether `pull` is rows of rewards, a table or a `Source`, and not a stream of rewards."""
    if isinstance(pull, Source):
        return True
    if isinstance(pull, PullSource) or is_low_level(pull) or callable(getattr(pull, "pull", None)):
        return False
    return not callable(pull) or hasattr(pull, "__array__")


def as_pulls(pull, n_arms, *, order="random", rng=None, paired=False):
    """A `PullSource` made of whatever gives rewards.

    Parameters
    ----------
    pull : PullSource, callable, scipy.LowLevelCallable, array_like of shape (n_rows, n_arms), Source, or object
        A `PullSource` is returned as it is; a LowLevelCallable becomes a `CallbackPulls`, another callable
        ``(arms, counts) -> rewards`` a `CallablePulls`, a table (array, frame or dict of columns) or a `Source` what
        `order` says. Any other object must have a method ``pull(arms, counts)`` that returns rewards: a simulator.
    n_arms : int
        Number of arms.
    order : {"random", "given"}, default "random"
        How to read a table. ``"random"``: pulls draw the rows uniformly at random with `rng`, whatever order the table
        is in, and may draw a row again (`ResampledPulls`). ``"given"``: pull t of an arm is row t of its column
        (`RecordedPulls`). Say so only if the rows are independent rewards in the order in which they were drawn.
    rng : None, int, SeedSequence or Generator, optional
        Source of randomness of ``order="random"``.
    paired : bool, default False
        The arms of a request share their rows; see `ResampledPulls` and `RecordedPulls`.

    Returns
    -------
    PullSource

    Raises
    ------
    TypeError
        If `pull` is a `fastrace.sources.Source` and `order` is ``"given"``: a source is read by row, in any order.
    ValueError
        If the number of arms differs, `order` is neither of the two, or `pull` is none of these, or reads rows and is
        paired where `paired` is False, or the other way round.

    Examples
    --------
    >>> from fastrace.pulls import as_pulls
    >>> as_pulls([[1.0, 5.0], [2.0, 6.0]], n_arms=2, order="given").read([1], [2])
    array([5., 6.])
    >>> sorted(set(as_pulls([[1.0, 5.0], [2.0, 6.0]], n_arms=2, rng=1).read([1], [20]).tolist()))
    [5.0, 6.0]
    """
    if not isinstance(order, str) or order not in ("given", "random"):
        raise ValueError(f"order is {_checks.shown(order)}; 'given' or 'random' is needed")
    if isinstance(pull, Source) and order == "given":
        raise TypeError(f"order is 'given' and pull is a {type(pull).__name__}, a population of rows in no order; say "
                        f"order='random', as ResampledPulls reads it, or give a table of the rewards in their order")
    if is_population(pull):
        if order == "random":
            source = ResampledPulls(_source_of(pull, "pull"), rng, n_arms=n_arms, paired=paired)
        else:
            source = RecordedPulls(real_table(as_table(pull, "pull"), "pull"), paired=paired)
    elif isinstance(pull, PullSource):
        guard_check_built(&(<PullSource>pull).guard, pull)
        source = pull
        if isinstance(pull, (ResampledPulls, RecordedPulls)) and pull.paired != paired:
            name = type(pull).__name__
            if paired:
                raise ValueError(f"pull is a {name} that reads rows of its own for each arm, which cannot be paired: "
                                 f"give the table itself, or make it with {name}(..., paired=True)")
            raise ValueError(f"pull is a {name} made with paired=True, whose rewards of a request depend on each "
                             f"other; this rule needs independent ones: leave it out, or let the rule be paired too")
    elif is_low_level(pull):
        source = CallbackPulls(pull, n_arms)
    elif callable(getattr(pull, "pull", None)):
        source = CallablePulls(pull.pull, n_arms)
    else:
        source = CallablePulls(pull, n_arms)
    if source.n_arms != n_arms:
        raise ValueError(f"n_arms is {n_arms}, but the rewards have {source.n_arms} arms; make them agree")
    return source
