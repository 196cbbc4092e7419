"""Rewards as compiled sources: one virtual call per block of rows, without the GIL."""

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
cimport numpy as cnp

import numpy as np

cnp.import_array()

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


cdef int check_signals() except -1 nogil:
    """Let Ctrl-C through. Takes the GIL: call it once per block, not per row."""
    with gil:
        PyErr_CheckSignals()
    return 0


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
    first_look : int, default 50
        Rows worth asking for in a race's first look, at least 1. More where each call has a price of its own,
        as when it runs Python.
    support : tuple of float or of arrays of shape (n_arms,), optional
        Interval (low, high) that holds every reward.
    """

    def __init__(self, n_arms, n_rows, *, scan_advantage=1.0, first_look=50, support=None):
        if n_arms < 1:
            raise ValueError(f"n_arms is {n_arms}; a source needs at least one arm")
        if n_rows < 0:
            raise ValueError(f"n_rows is {n_rows}; a population cannot have fewer than 0 rows")
        if not scan_advantage >= 1.0:
            raise ValueError(f"scan_advantage is {scan_advantage}; reading in order cannot cost more than at random")
        if first_look < 1:
            raise ValueError(f"first_look is {first_look}; a first look needs at least one row")
        self.n_arms = n_arms
        self.n_rows = n_rows
        self.scan_advantage = scan_advantage
        self.first_look = first_look
        self.support = support

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

    cdef int total(self, const Py_ssize_t *arms, Py_ssize_t n_arms, double *out) except -1 nogil:
        cdef double *block = <double *>malloc(n_arms * BLOCK * sizeof(double))
        cdef double **columns = <double **>malloc(n_arms * sizeof(double *))
        cdef int64_t first = 0
        cdef Py_ssize_t i, j, count
        cdef double part
        try:
            if block == NULL or columns == NULL:
                with gil:
                    raise MemoryError()
            for j in range(n_arms):
                columns[j] = block + j * BLOCK
                out[j] = 0.0
            while first < self.n_rows:
                count = <Py_ssize_t>min(<int64_t>BLOCK, self.n_rows - first)
                self.fill_range(first, count, arms, n_arms, columns)
                for j in range(n_arms):
                    part = 0.0
                    for i in range(count):
                        part += columns[j][i]
                    out[j] += part
                first += count
                check_signals()
        finally:
            free(block)
            free(columns)
        return 0

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
        cdef cnp.ndarray arm = self._arms(arms)
        cdef cnp.ndarray out = np.zeros(arm.shape[0])
        cdef cnp.ndarray known = np.zeros(arm.shape[0])
        with nogil:
            self.total(<const Py_ssize_t *>cnp.PyArray_DATA(arm), arm.shape[0], <double *>cnp.PyArray_DATA(out))
            self.shift(<const Py_ssize_t *>cnp.PyArray_DATA(arm), arm.shape[0], <double *>cnp.PyArray_DATA(known))
        return out + known

    def shifts(self, arms=None):
        """What is known of each arm's sum beside its rewards: ndarray of shape (a,)."""
        cdef cnp.ndarray arm = self._arms(arms)
        cdef cnp.ndarray out = np.zeros(arm.shape[0])
        with nogil:
            self.shift(<const Py_ssize_t *>cnp.PyArray_DATA(arm), arm.shape[0], <double *>cnp.PyArray_DATA(out))
        return out

    def _arms(self, arms):
        return _indices(np.arange(self.n_arms) if arms is None else arms, self.n_arms, "arms", np.intp)


def _indices(values, limit, name, dtype):
    """A contiguous vector of indices in [0, limit), or a ValueError."""
    index = np.asarray(values)
    if index.ndim != 1 or (index.size and index.dtype.kind not in "iu"):
        raise ValueError(f"{name} has shape {index.shape} and dtype {index.dtype}; a vector of integers is needed")
    if index.size and not (0 <= index.min() and index.max() < limit):
        raise ValueError(f"{name} runs from {index.min()} to {index.max()}; it must stay within [0, {limit})")
    return np.ascontiguousarray(index, dtype=dtype)


cdef class ArraySource(Source):
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

    def __init__(self, values, *, support=None):
        array = np.asarray(values)
        if array.ndim != 2:
            raise ValueError(f"values has shape {array.shape}; a table of shape (n_rows, n_arms) is needed")
        if np.ma.isMaskedArray(values) and np.ma.getmaskarray(values).any():
            raise ValueError("values has masked entries; a race cannot skip rewards, so fill or drop those rows first")
        if array.dtype.kind not in "fiub":
            raise ValueError(f"values has dtype {array.dtype}; rewards must be real numbers")
        if array.dtype.type not in (np.float32, np.float64) or not array.dtype.isnative:
            array = array.astype(np.float64)
        if not array.flags.aligned:
            array = array.copy()
        super().__init__(array.shape[1], array.shape[0], scan_advantage=_scan_advantage(array), support=support)
        self.values = array
        self.data = <const char *>cnp.PyArray_DATA(self.values)
        self.row_stride = self.values.strides[0]
        self.arm_stride = self.values.strides[1]
        self.single = array.dtype.type is np.float32

    def __reduce__(self):
        return _array_source, (1, np.asarray(self.values), self.support)

    cdef int fill(self, const int64_t *rows, Py_ssize_t n_rows, const Py_ssize_t *arms, Py_ssize_t n_arms,
                  double **out) except -1 nogil:
        if self.single:
            fr_gather_f32(self.data, self.row_stride, self.arm_stride, rows, 0, n_rows, arms, n_arms, out)
        else:
            fr_gather_f64(self.data, self.row_stride, self.arm_stride, rows, 0, n_rows, arms, n_arms, out)
        return 0

    cdef int fill_range(self, int64_t first, Py_ssize_t n_rows, const Py_ssize_t *arms, Py_ssize_t n_arms,
                        double **out) except -1 nogil:
        if self.single:
            fr_gather_f32(self.data, self.row_stride, self.arm_stride, NULL, first, n_rows, arms, n_arms, out)
        else:
            fr_gather_f64(self.data, self.row_stride, self.arm_stride, NULL, first, n_rows, arms, n_arms, out)
        return 0

    cdef int total(self, const Py_ssize_t *arms, Py_ssize_t n_arms, double *out) except -1 nogil:
        cdef int64_t first = 0
        cdef Py_ssize_t count, j
        for j in range(n_arms):
            out[j] = 0.0
        while first < self.n_rows:
            count = <Py_ssize_t>min(<int64_t>ROWS_PER_CHECK, self.n_rows - first)
            if self.single:
                fr_column_sums_f32(self.data, self.row_stride, self.arm_stride, first, count, self.n_arms, arms,
                                   n_arms, out)
            else:
                fr_column_sums_f64(self.data, self.row_stride, self.arm_stride, first, count, self.n_arms, arms,
                                   n_arms, out)
            first += count
            if first < self.n_rows:
                check_signals()
        return 0


def _array_source(version, values, support):
    """Rebuild a pickled `ArraySource`."""
    if version != 1:
        raise ValueError(f"this ArraySource was pickled as version {version}; this fastrace reads version 1")
    return ArraySource(values, support=support)


def _scan_advantage(array):
    # Measured on rows of 10 doubles: 15 ns at random against 2.5 in order; in cache the two come closer.
    return 8.0 if array.nbytes > 1 << 21 else 3.0
