"""Rewards as compiled sources: one virtual call per block of rows, without the GIL."""

from cpython.pycapsule cimport PyCapsule_GetContext, PyCapsule_GetName, PyCapsule_GetPointer
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
cimport numpy as cnp

from fastrace._base._guard cimport guard_await, guard_build, guard_built, guard_check_built
from fastrace._base._signals cimport check_signals
from fastrace._math._bounds cimport lower_end, upper_end
from fastrace._math._simd cimport fr_sum

import numpy as np

from fastrace._base import _checks
from fastrace._base._answers import MISTAKEN, entries, first_unread, keep_answer, keep_apart, said_call
from fastrace._base._callbacks import is_low_level, signature_types
from fastrace._base import _frames

cnp.import_array()

column_names = _frames.column_names

cdef extern from "_gather.h" nogil:
    void fr_gather_f64(const char *x, Py_ssize_t row_stride, Py_ssize_t arm_stride, const int64_t *rows, int64_t first,
                       Py_ssize_t n_rows, const Py_ssize_t *arms, Py_ssize_t n_arms, double **out)
    void fr_gather_f32(const char *x, Py_ssize_t row_stride, Py_ssize_t arm_stride, const int64_t *rows, int64_t first,
                       Py_ssize_t n_rows, const Py_ssize_t *arms, Py_ssize_t n_arms, double **out)
    void fr_column_sums_f64(const char *x, Py_ssize_t row_stride, Py_ssize_t arm_stride, int64_t first,
                            Py_ssize_t n_rows, Py_ssize_t n_columns, const Py_ssize_t *arms, Py_ssize_t n_arms,
                            double *out)
    void fr_column_sums_f32(const char *x, Py_ssize_t row_stride, Py_ssize_t arm_stride, int64_t first,
                            Py_ssize_t n_rows, Py_ssize_t n_columns, const Py_ssize_t *arms, Py_ssize_t n_arms,
                            double *out)

# Rows per call in the default full pass, and between two looks at pending signals in ours.
cdef enum:
    BLOCK = 1024
    ROWS_PER_CHECK = 1 << 18
    ROWS_PER_PYTHON_CALL = 8192

# Compiled rewards; the forms that CallbackSource documents, with and without user data.
ctypedef int (*arm_rewards)(double *, Py_ssize_t, const int64_t *, Py_ssize_t) noexcept nogil
ctypedef int (*arm_rewards_data)(double *, Py_ssize_t, const int64_t *, Py_ssize_t, void *) noexcept nogil
ctypedef int (*block_rewards)(double *, Py_ssize_t, const int64_t *, Py_ssize_t, const Py_ssize_t *) noexcept nogil
ctypedef int (*block_rewards_data)(double *, Py_ssize_t, const int64_t *, Py_ssize_t, const Py_ssize_t *,
                                   void *) noexcept nogil


cdef class Source:
    """Rewards of `n_arms` arms on `n_rows` rows, for compiled races.

    Subclass it in Cython and supply ``fill``; see ``sources.pxd`` for the contract. From Python use
    `ArraySource`, or one of the sources that wrap a function.

    Parameters
    ----------
    n_arms : int
        Number of arms, at least 1.
    n_rows : int
        Number of rows, at least 0.
    scan_advantage : float, default 1.0
        Cost of one row read at random over one row read in order, at least 1.
    reward_cost : float, default 20.0
        Nanoseconds that a reward takes, read in order, roughly. A race weighs the work of its own rule against it:
        where rewards are cheap it may read all of them rather than test on. inf: the work of a rule never counts.
    n_always_read : int, default 0
        Rewards per arm that each call of ``shift`` reads.
    first_look : int, default 50
        Rows worth asking for in a race's first look, at least 1. More where each call has a price of its own,
        as when it runs Python.
    support : tuple of float or of arrays of shape (n_arms,), optional
        Interval (low, high) that holds every reward.
    """

    def __cinit__(self):
        guard_await(&self.guard, 0)

    def __init__(self, n_arms, n_rows, *, scan_advantage=1.0, reward_cost=20.0, n_always_read=0, first_look=50,
                 support=None):
        n_arms = _checks.integer(n_arms, "n_arms", 1, "a source needs at least one arm")
        n_rows = _checks.integer(n_rows, "n_rows", 0, "a population cannot have fewer than 0 rows")
        if n_rows > 1 << 62 or n_arms > 1 << 40:
            raise ValueError(f"n_rows is {n_rows} and n_arms is {n_arms}; at most 2^62 rows of 2^40 arms are countable")
        if not scan_advantage >= 1.0:
            raise ValueError(f"scan_advantage is {scan_advantage}; reading in order cannot cost more than at random")
        if not reward_cost > 0.0:
            raise ValueError(f"reward_cost is {reward_cost}; a reward takes some time")
        if first_look < 1:
            raise ValueError(f"first_look is {first_look}; a first look needs at least one row")
        guard_build(&self.guard, 0, self)
        self.n_arms = n_arms
        self.n_rows = n_rows
        self.scan_advantage = scan_advantage
        self.reward_cost = reward_cost
        self.n_always_read = n_always_read
        self.first_look = first_look
        self.support = _frames.support_of_arms(support, None)
        guard_built(&self.guard, 0)

    cdef int fill(self, const int64_t *rows, Py_ssize_t n_rows, const Py_ssize_t *arms, Py_ssize_t n_arms,
                  double **out) except -1 nogil:
        with gil:
            raise TypeError(f"{type(self).__name__} does not define fill(), the method that delivers rewards")

    cdef int fill_range(self, int64_t first, Py_ssize_t n_rows, const Py_ssize_t *arms, Py_ssize_t n_arms,
                        double **out) except -1 nogil:
        cdef int64_t *rows = <int64_t *>malloc(max(n_rows, 1) * sizeof(int64_t))
        cdef Py_ssize_t i
        if rows == NULL:
            with gil:
                raise MemoryError()
        for i in range(n_rows):
            rows[i] = first + i
        try:
            self.fill(rows, n_rows, arms, n_arms, out)
        finally:
            free(rows)
        return 0

    cdef int add_sums(self, int64_t first, int64_t n_rows, const Py_ssize_t *arms, Py_ssize_t n_arms,
                      double *out) except -1 nogil:
        return add_blocks(self, BLOCK, BLOCK, first, n_rows, arms, n_arms, out)

    cdef int total(self, const Py_ssize_t *arms, Py_ssize_t n_arms, double *out) except -1 nogil:
        cdef Py_ssize_t j
        for j in range(n_arms):
            out[j] = 0.0
        return self.add_sums(0, self.n_rows, arms, n_arms, out)

    cdef int shift(self, const Py_ssize_t *arms, Py_ssize_t n_arms, double *out) except -1 nogil:
        cdef Py_ssize_t j
        for j in range(n_arms):
            out[j] = 0.0
        return 0

    # The same doors from Python, for tests and for driving a race by hand.

    def read(self, rows, arms=None):
        """Rewards on the given rows.

        Parameters
        ----------
        rows : array_like of int, shape (k,)
            Row numbers in [0, n_rows).
        arms : array_like of int, shape (a,), optional
            Arm numbers in [0, n_arms); all arms by default.

        Returns
        -------
        ndarray of float64, shape (k, a)
        """
        guard_check_built(&self.guard, self)
        cdef cnp.ndarray row = _indices(rows, self.n_rows, "rows", np.int64)
        cdef cnp.ndarray arm = self._arms(arms)
        cdef cnp.ndarray block = np.empty((arm.shape[0], row.shape[0]))
        cdef Py_ssize_t n = row.shape[0], k = arm.shape[0], j
        cdef double **columns = <double **>malloc(max(k, 1) * sizeof(double *))
        if columns == NULL:
            raise MemoryError()
        try:
            for j in range(k):
                columns[j] = <double *>cnp.PyArray_DATA(block) + j * n
            if n and k:
                with nogil:
                    self.fill(<const int64_t *>cnp.PyArray_DATA(row), n, <const Py_ssize_t *>cnp.PyArray_DATA(arm), k,
                              columns)
        finally:
            free(columns)
        return block.T

    def totals(self, arms=None):
        """Exact sums over all rows, known parts included: ndarray of shape (a,). Reads every row."""
        guard_check_built(&self.guard, self)
        cdef cnp.ndarray arm = self._arms(arms)
        cdef cnp.ndarray out = np.zeros(arm.shape[0])
        cdef cnp.ndarray known = np.zeros(arm.shape[0])
        with nogil:
            self.total(<const Py_ssize_t *>cnp.PyArray_DATA(arm), arm.shape[0], <double *>cnp.PyArray_DATA(out))
            self.shift(<const Py_ssize_t *>cnp.PyArray_DATA(arm), arm.shape[0], <double *>cnp.PyArray_DATA(known))
        return out + known

    def shifts(self, arms=None):
        """What is known of each arm's sum beside its rewards: ndarray of shape (a,)."""
        guard_check_built(&self.guard, self)
        cdef cnp.ndarray arm = self._arms(arms)
        cdef cnp.ndarray out = np.zeros(arm.shape[0])
        with nogil:
            self.shift(<const Py_ssize_t *>cnp.PyArray_DATA(arm), arm.shape[0], <double *>cnp.PyArray_DATA(out))
        return out

    def _arms(self, arms):
        return _indices(np.arange(self.n_arms) if arms is None else arms, self.n_arms, "arms", np.intp)


def _indices(values, limit, name, dtype):
    """A contiguous vector of indices in [0, limit), or a ValueError."""
    index = _checks.as_array(values, name)
    if index.ndim != 1 or (index.size and index.dtype.kind not in "iu"):
        raise ValueError(f"{name} has shape {index.shape} and dtype {index.dtype}; a vector of integers is needed")
    if index.size and not (0 <= index.min() and index.max() < limit):
        raise ValueError(f"{name} runs from {index.min()} to {index.max()}; it must stay within [0, {limit})")
    return np.ascontiguousarray(index, dtype=dtype)


cdef int add_blocks(Source source, Py_ssize_t size, int64_t often, int64_t first, int64_t n_rows,
                    const Py_ssize_t *arms, Py_ssize_t n_arms, double *out) except -1 nogil:
    """out[j] += the sum of each block of `size` rows in turn."""
    cdef double *rewards = <double *>malloc(max(n_arms, 1) * size * sizeof(double))
    cdef double **columns = <double **>malloc(max(n_arms, 1) * sizeof(double *))
    cdef int64_t last = first + n_rows, unchecked = 0
    cdef Py_ssize_t j, count
    try:
        if rewards == NULL or columns == NULL:
            with gil:
                raise MemoryError()
        for j in range(n_arms):
            columns[j] = rewards + j * size
        while first < last:
            count = <Py_ssize_t>min(<int64_t>size, last - first)
            source.fill_range(first, count, arms, n_arms, columns)
            for j in range(n_arms):
                out[j] += fr_sum(columns[j], count)
            first += count
            unchecked += count
            if unchecked >= often:
                unchecked = 0
                check_signals()
    finally:
        free(rewards)
        free(columns)
    return 0


cdef class _BlockSource(Source):
    """A source that has one body for rows by number and for rows in order."""

    cdef int block(self, const int64_t *rows, int64_t first, Py_ssize_t n_rows, const Py_ssize_t *arms,
                   Py_ssize_t n_arms, double **out) except -1 nogil:
        with gil:
            raise TypeError(f"{type(self).__name__} does not define block(), the method that delivers rewards")

    cdef int fill(self, const int64_t *rows, Py_ssize_t n_rows, const Py_ssize_t *arms, Py_ssize_t n_arms,
                  double **out) except -1 nogil:
        return self.block(rows, 0, n_rows, arms, n_arms, out)

    cdef int fill_range(self, int64_t first, Py_ssize_t n_rows, const Py_ssize_t *arms, Py_ssize_t n_arms,
                        double **out) except -1 nogil:
        return self.block(NULL, first, n_rows, arms, n_arms, out)


cdef class ArraySource(_BlockSource):
    """A table of rewards: rows by arms.

    float32 and float64 in native byte order are read in place, whatever their strides, read-only and
    memory-mapped ones too. Other real dtypes are converted to float64 once.

    Parameters
    ----------
    values : array_like of real numbers, shape (n_rows, n_arms)
        The rewards.
    support : tuple of float or of arrays of shape (n_arms,), optional
        Interval (low, high) that holds every reward.

    Raises
    ------
    ValueError
        If `values` is not two-dimensional, is not real, or has no column.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace.sources import ArraySource
    >>> source = ArraySource(np.arange(6.0).reshape(3, 2))
    >>> source.read([2, 0])
    array([[4., 5.],
           [0., 1.]])
    >>> source.totals()
    array([6., 9.])
    """

    def __cinit__(self):
        guard_await(&self.guard, 1)

    def __init__(self, values, *, support=None):
        support = _frames.support_of_arms(support, column_names(values))
        array = _frames.real_table(values, "values")
        if array.dtype.type not in (np.float32, np.float64) or not array.dtype.isnative:
            array = array.astype(np.float64)
        if not array.flags.aligned:
            array = array.copy()
        super().__init__(array.shape[1], array.shape[0], scan_advantage=_scan_advantage(array), reward_cost=1.0,
                         support=support)
        self.values = array
        self.data = <const char *>cnp.PyArray_DATA(self.values)
        self.row_stride = self.values.strides[0]
        self.arm_stride = self.values.strides[1]
        self.single = array.dtype.type is np.float32
        guard_built(&self.guard, 1)

    def shuffled(self, rng=None):
        """A copy with the rows in uniform random order, for races with ``order="given"``.

        Parameters
        ----------
        rng : None, int, SeedSequence or Generator, optional
            Source of randomness.

        Returns
        -------
        ArraySource
        """
        guard_check_built(&self.guard, self)
        return ArraySource(np.random.default_rng(rng).permutation(self.values, axis=0), support=self.support)

    def __reduce__(self):
        guard_check_built(&self.guard, self)
        return _array_source.saved(np.asarray(self.values), self.support)

    cdef int block(self, const int64_t *rows, int64_t first, Py_ssize_t n_rows, const Py_ssize_t *arms,
                   Py_ssize_t n_arms, double **out) except -1 nogil:
        (fr_gather_f32 if self.single else fr_gather_f64)(
            self.data, self.row_stride, self.arm_stride, rows, first, n_rows, arms, n_arms, out)
        return 0

    cdef int add_sums(self, int64_t first, int64_t n_rows, const Py_ssize_t *arms, Py_ssize_t n_arms,
                      double *out) except -1 nogil:
        cdef int64_t last = first + n_rows
        cdef Py_ssize_t count
        while first < last:
            count = <Py_ssize_t>min(<int64_t>ROWS_PER_CHECK, last - first)
            (fr_column_sums_f32 if self.single else fr_column_sums_f64)(
                self.data, self.row_stride, self.arm_stride, first, count, self.n_arms, arms, n_arms, out)
            first += count
            if first < last:
                check_signals()
        return 0


@_checks.rebuilds(1, ArraySource)
def _array_source(values, support):
    """Rebuild a pickled `ArraySource`."""
    return ArraySource(values, support=support)


def _scan_advantage(array):
    # Measured on rows of 10 doubles: 15 ns at random against 2.5 in order; in cache the two come closer.
    return 8.0 if array.nbytes > 1 << 21 else 3.0


cdef class CallableSource(_BlockSource):
    """Rewards from a Python function of arm numbers and row numbers.

    Parameters
    ----------
    function : callable
        ``function(arms, rows)`` takes an intp array of shape (a,) and an int64 array of shape (k,) and returns the
        rewards, shape (k, a): any real dtype, any strides, or nested lists. Both arrays are fresh at every call, so
        the function may keep or change them.
    n_arms, n_rows, support, scan_advantage, first_look
        As in `Source`; there may be more than 2**31 rows.
    reward_cost : float, default inf
        As in `Source`. By default a race assumes that rewards are expensive: it never reads more rows to save its own
        work. Give the cost of a quick function of arrays.

    Raises
    ------
    ValueError
        From a read, if the function returns something else than real numbers of the right shape. An exception of the
        function reaches the caller unchanged.

    Notes
    -----
    A call costs about 3 us beside the function's own work, so the first look of a race is larger than elsewhere and
    a full pass asks for 8192 rows at a time. The function runs with the GIL held.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace.sources import CallableSource
    >>> x = np.array([0.5, 1.5, 4.0])
    >>> center = np.array([0.0, 1.0])
    >>> source = CallableSource(lambda arms, rows: -abs(x[rows, None] - center[arms]), n_arms=2, n_rows=3)
    >>> source.read([2, 0])
    array([[-4. , -3. ],
           [-0.5, -0.5]])
    >>> source.totals()
    array([-6., -4.])
    """

    def __cinit__(self):
        guard_await(&self.guard, 1)

    def __init__(self, function, n_arms, n_rows, support=None, *, scan_advantage=1.0, first_look=256,
                 reward_cost=np.inf):
        if not callable(function):
            raise ValueError(f"function is {_checks.shown(function)}; a callable of (arms, rows) is needed")
        _checks.at_once(function, "function")
        _checks.takes(function, "function", "arms", "rows")
        super().__init__(n_arms, n_rows, scan_advantage=scan_advantage, reward_cost=reward_cost, first_look=first_look,
                         support=support)
        self.function = function
        guard_built(&self.guard, 1)

    def __reduce__(self):
        guard_check_built(&self.guard, self)
        return _callable_source.saved(self.function, self.n_arms, self.n_rows, self.support, self.scan_advantage,
                                      self.first_look, self.reward_cost)

    cdef int _ask(self, const int64_t *rows, int64_t first, Py_ssize_t n_rows, const Py_ssize_t *arms,
                  Py_ssize_t n_arms, double **out, double *sums) except -1:
        """One call of the function; the rewards go to `out`, or their sums are added to `sums`.

        `rows` NULL means first, first + 1, ...
        """
        cdef Py_ssize_t i, j, down, across
        cdef cnp.ndarray arm = np.empty(n_arms, dtype=np.intp)
        cdef cnp.ndarray row
        if rows == NULL:
            row = np.arange(first, first + n_rows, dtype=np.int64)
        else:
            row = np.empty(n_rows, dtype=np.int64)
            memcpy(cnp.PyArray_DATA(row), rows, n_rows * sizeof(int64_t))
        memcpy(cnp.PyArray_DATA(arm), arms, n_arms * sizeof(Py_ssize_t))
        cdef cnp.ndarray block
        cdef const char *x
        cdef const char *column
        try:
            given = self.function(arm, row)
        except MISTAKEN as error:
            said_call(error, "function(arms, rows)", f"arms of shape ({n_arms},)", f"rows of shape ({n_rows},)",
                      f"rewards of shape ({n_rows}, {n_arms})")
            raise
        try:
            block = _block(given, n_rows, n_arms)
        except Exception as error:          # it goes back as it came: a source does not know what is good enough
            keep_answer(error, given)
            where = np.arange(first, first + n_rows) if rows == NULL else np.array([rows[i] for i in range(n_rows)])
            keep_apart(error, self, np.array([arms[j] for j in range(n_arms)], np.intp), where,
                       entries(given, (n_rows, n_arms)))
            raise
        x = <const char *>cnp.PyArray_DATA(block)
        if sums != NULL:
            totals = block.sum(axis=0)
            for j in range(n_arms):
                sums[j] += totals[j]
            return 0
        down, across = block.strides[0], block.strides[1]
        for j in range(n_arms):
            column = x + j * across
            for i in range(n_rows):
                out[j][i] = (<const double *>(column + i * down))[0]
        return 0

    cdef int block(self, const int64_t *rows, int64_t first, Py_ssize_t n_rows, const Py_ssize_t *arms,
                   Py_ssize_t n_arms, double **out) except -1 nogil:
        with gil:
            self._ask(rows, first, n_rows, arms, n_arms, out, NULL)
        return 0

    cdef int add_sums(self, int64_t first, int64_t n_rows, const Py_ssize_t *arms, Py_ssize_t n_arms,
                      double *out) except -1 nogil:
        cdef int64_t last = first + n_rows
        cdef Py_ssize_t count
        while first < last:
            count = <Py_ssize_t>min(<int64_t>ROWS_PER_PYTHON_CALL, last - first)
            with gil:
                self._ask(NULL, first, count, arms, n_arms, NULL, out)
            first += count
            check_signals()
        return 0


def _block(values, n_rows, n_arms):
    """What a user's function returned, as float64 of shape (n_rows, n_arms), or a ValueError that names it."""
    if type(values) is np.ndarray and values.dtype == np.float64 and values.shape == (n_rows, n_arms) \
            and values.flags.aligned and values.dtype.isnative:
        return values
    wanted = f"a block of real numbers of shape ({n_rows}, {n_arms}), rows by arms, is needed"
    if values is None:
        raise ValueError(f"function returned None; {wanted}")
    try:
        return _numbers(values, (n_rows, n_arms), wanted)
    except ValueError:
        bad = first_unread(entries(values, (n_rows, n_arms)), wanted)
        if bad is None:
            raise
    (row, arm), said = bad
    raise ValueError(f"row {row}, column {arm} of the block that function returned is {said}")


def _numbers(values, shape, wanted):
    """What a user's function returned, as float64 of a shape."""
    _checks.at_once(values, "function")
    _checks.unmasked(values, "what function returned")
    try:
        block = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"function returned a {type(values).__name__} that is no array ({error}); {wanted}") from None
    _checks.refuse_rounded(values, block, "what function returned")
    block = _checks.numbers_of(block, "what function returned")
    if block.dtype.kind not in "fiub":
        raise ValueError(f"function returned a {type(values).__name__} of dtype {block.dtype}; {wanted}")
    if block.shape != shape:
        raise ValueError(f"function returned a {type(values).__name__} of shape {block.shape}; {wanted}")
    return np.require(block, np.float64, "A")


@_checks.rebuilds(2, CallableSource)
def _callable_source(function, n_arms, n_rows, support, scan_advantage, first_look, reward_cost):
    """Rebuild a pickled `CallableSource`."""
    return CallableSource(function, n_arms, n_rows, support, scan_advantage=scan_advantage, first_look=first_look,
                          reward_cost=reward_cost)


cdef class CallbackSource(Source):
    """Rewards from compiled code, called without the GIL.

    Parameters
    ----------
    callback : scipy.LowLevelCallable
        A function made by Numba's ``cfunc``, ctypes, cffi or Cython, of one of the forms ::

            int callback(double *out, intptr_t n_rows, const int64_t *rows, intptr_t arm, void *data)
            int callback(double *out, intptr_t n_rows, const int64_t *rows, intptr_t n_arms, const intptr_t *arms,
                         void *data)

        or the same without ``void *data``. The first writes the reward of one arm on ``rows[i]`` to ``out[i]``; the
        second writes all arms at once, one arm after the other: the reward of ``arms[j]`` on ``rows[i]`` to
        ``out[j * n_rows + i]``, which saves reading a row once per arm. ``data`` is the user data of the
        LowLevelCallable. Integer types may be spelled as you like (long, intptr_t, Py_ssize_t, ...) as long as their
        size is right. Return 0, or another number to stop with an error.
    n_arms, n_rows, support, scan_advantage, reward_cost
        As in `Source`; there may be more than 2**31 rows.

    Raises
    ------
    ValueError
        If `callback` is not a LowLevelCallable of an accepted form.
    RuntimeError
        From a read, if the callback returns another number than 0.

    Notes
    -----
    The callback runs without the GIL, maybe in several threads at once. The source keeps the LowLevelCallable, and
    with it the function and its user data, alive; memory that the user data points to is yours to keep. A function
    pointer cannot be pickled.

    Examples
    --------
    >>> import ctypes
    >>> from scipy import LowLevelCallable
    >>> from fastrace.sources import CallbackSource
    >>> @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_double), ctypes.c_ssize_t,
    ...                   ctypes.POINTER(ctypes.c_int64), ctypes.c_ssize_t)
    ... def rewards(out, n_rows, rows, arm):    # ctypes goes through Python: Numba's cfunc or C is the fast way
    ...     for i in range(n_rows):
    ...         out[i] = 10.0 * arm + rows[i]
    ...     return 0
    >>> source = CallbackSource(LowLevelCallable(rewards), n_arms=2, n_rows=3)
    >>> source.read([2, 0])
    array([[ 2., 12.],
           [ 0., 10.]])
    """

    def __cinit__(self):
        guard_await(&self.guard, 1)

    def __init__(self, callback, n_arms, n_rows, support=None, *, scan_advantage=1.0, reward_cost=20.0):
        if not is_low_level(callback):
            raise ValueError(f"callback is a {type(callback).__name__}; wrap the function pointer in "
                             f"scipy.LowLevelCallable, or use CallableSource for a Python function")
        super().__init__(n_arms, n_rows, scan_advantage=scan_advantage, reward_cost=reward_cost, support=support)
        capsule = tuple.__getitem__(callback, 0)
        cdef const char *signature = PyCapsule_GetName(capsule)
        form = _FORMS.get(signature_types((<bytes>signature).decode()))
        if form is None:
            raise ValueError(f"callback has signature {(<bytes>signature).decode()!r}; accepted are "
                             + ", ".join(repr(text) for text in _SIGNATURES)
                             + ", integers spelled by any name of the same size")
        self.all_arms, self.takes_data = form
        self.function = PyCapsule_GetPointer(capsule, signature)
        self.data = PyCapsule_GetContext(capsule)
        if self.data != NULL and not self.takes_data:
            raise ValueError(f"callback comes with user data, but {(<bytes>signature).decode()!r} has no void * to "
                             f"take it")
        self.callback = callback
        guard_built(&self.guard, 1)

    def __reduce__(self):
        raise TypeError("CallbackSource holds a function pointer, which means nothing in another process; "
                        "build it there, or use CallableSource")

    cdef int fill(self, const int64_t *rows, Py_ssize_t n_rows, const Py_ssize_t *arms, Py_ssize_t n_arms,
                  double **out) except -1 nogil:
        cdef double *block
        cdef Py_ssize_t j
        cdef int code = 0
        cdef bint packed = True
        if not self.all_arms:
            for j in range(n_arms):
                if self.takes_data:
                    code = (<arm_rewards_data>self.function)(out[j], n_rows, rows, arms[j], self.data)
                else:
                    code = (<arm_rewards>self.function)(out[j], n_rows, rows, arms[j])
                if code != 0:
                    break
        else:
            for j in range(1, n_arms):
                packed = packed and out[j] == out[0] + j * n_rows
            block = out[0] if packed else <double *>malloc(max(n_arms * n_rows, 1) * sizeof(double))
            if block == NULL:
                with gil:
                    raise MemoryError()
            if self.takes_data:
                code = (<block_rewards_data>self.function)(block, n_rows, rows, n_arms, arms, self.data)
            else:
                code = (<block_rewards>self.function)(block, n_rows, rows, n_arms, arms)
            if not packed:
                for j in range(n_arms):
                    memcpy(out[j], block + j * n_rows, n_rows * sizeof(double))
                free(block)
        if code != 0:
            with gil:
                raise RuntimeError(f"callback returned {code} for {n_rows} rows from row {rows[0]}; 0 means success")
        return 0


# Accepted forms: whether all arms come at once, whether user data follows.
_SIGNATURES = {
    "int (double *, intptr_t, int64_t *, intptr_t, void *)": (False, True),
    "int (double *, intptr_t, int64_t *, intptr_t)": (False, False),
    "int (double *, intptr_t, int64_t *, intptr_t, intptr_t *, void *)": (True, True),
    "int (double *, intptr_t, int64_t *, intptr_t, intptr_t *)": (True, False),
}
_FORMS = {signature_types(signature): form for signature, form in _SIGNATURES.items()}


def reward_outside(reward, arm, row, low, high, advice="widen support, scale the rewards or say outside='warn'"):
    """What to say of a reward outside the support."""
    return (f"the reward of arm {arm} on row {row} is {reward!r}, outside support=({low!r}, {high!r}): the promise "
            f"holds only for rewards inside it; {advice}")


def first_outside(values, low, high):
    """Row and arm of the first reward that is nan or outside the support of its arm, as races judge it, or None.

    `values` has shape (n_rows, n_arms); `low` and `high` have shape (n_arms,).
    """
    cdef const double[:, :] value = values
    cdef const double[:] lows = low, highs = high
    cdef double lowest, highest
    cdef Py_ssize_t i, row, first = value.shape[0], arm = -1
    with nogil:
        for i in range(value.shape[1]):
            lowest, highest = lower_end(lows[i], highs[i]), upper_end(lows[i], highs[i])
            for row in range(first):
                if not lowest <= value[row, i] <= highest:
                    first, arm = row, i
                    break
    return None if arm < 0 else (first, arm)


def as_source(rewards, n_arms=None, n_rows=None, support=None):
    """A `Source` made of whatever holds or computes rewards.

    Parameters
    ----------
    rewards : Source, array_like of shape (n_rows, n_arms), callable or scipy.LowLevelCallable
        A source is returned as it is. A table (NumPy array, frame of pandas, polars or Arrow, dict of columns, nested
        lists, anything with ``__array__``) becomes an `ArraySource`, a LowLevelCallable a `CallbackSource`, any other
        callable a `CallableSource`.
    n_arms, n_rows : int, optional
        Needed for functions, whose size cannot be seen; checked for everything else.
    support : tuple of float or of arrays of shape (n_arms,), optional
        Interval (low, high) that holds every reward. A source has its own.

    Returns
    -------
    Source

    Raises
    ------
    ValueError
        If a size is missing or contradicts the rewards, or `support` is given beside a source.

    Examples
    --------
    >>> from fastrace.sources import as_source
    >>> as_source([[0.0, 1.0], [2.0, 3.0]]).totals()
    array([2., 4.])
    >>> as_source(lambda arms, rows: rows[:, None] * (arms + 1.0), n_arms=2, n_rows=4).totals()
    array([ 6., 12.])
    """
    return _source_of(rewards, "rewards", n_arms, n_rows, support)


def _source_of(rewards, called, n_arms=None, n_rows=None, support=None):
    """What `as_source` does, for an argument that is `called` so in errors."""
    if isinstance(rewards, Source):
        guard_check_built(&(<Source>rewards).guard, rewards)
        if support is not None:
            raise ValueError(f"support={_checks.shown(support)} came beside a source, which has its own: "
                             f"{_checks.shown(rewards.support)}; "
                             f"give it where the source is made")
        source = rewards
    elif is_low_level(rewards) or (callable(rewards) and not hasattr(rewards, "__array__")):
        if n_arms is None or n_rows is None:
            raise ValueError(f"n_arms is {n_arms} and n_rows is {n_rows}; a function does not show its size, so both "
                             f"are needed")
        return (CallbackSource if is_low_level(rewards) else CallableSource)(rewards, n_arms, n_rows, support)
    else:
        support = _frames.support_of_arms(support, column_names(rewards))
        source = ArraySource(_frames.real_table(_frames.as_table(rewards, called), called), support=support)
    for name, given, found in (("n_arms", n_arms, source.n_arms), ("n_rows", n_rows, source.n_rows)):
        if given is not None and _checks.integer(given, name, 0, "it is a size") != found:
            raise ValueError(f"{name} is {given}, but the rewards have {found}: make them agree")
    return source
