"""Loops of `RunningMoments` and `RunningComoments`: one call per array, without the GIL."""

from libc.math cimport NAN, isfinite
from libc.stdint cimport INT64_MAX, int64_t
from libc.stdlib cimport calloc, free, malloc
cimport numpy as cnp

import copy
import operator

import numpy as np

from fastrace._base import _checks, _frames
from fastrace._base._words import counted
from fastrace._base._guard cimport (guard_await, guard_build, guard_built, guard_check_built, guard_leave_brief,
                                    guard_refuse, guard_t, guard_take_briefly)
from fastrace._base._types cimport moments4_t, moments_t
from fastrace._draws._tables cimport GROUP, VALUES_PER_CHECK, table_run, table_stretch, table_t
from fastrace._math._moments cimport (MOMENTS_BLOCK, moments4_extend, moments4_extend_difference, moments4_kurtosis,
                                      moments4_skewness, moments4_std, moments_extend, moments_variance, running_merge,
                                      running_push, running_t, running_variance)
from fastrace._math._simd cimport fr_all_finite, fr_range, fr_sum

cnp.import_array()

cdef Py_ssize_t MOST_ARMS = 1 << 48
cdef tuple REAL = (int, float, np.floating, np.integer, np.bool_)
cdef tuple WHOLE = (int, np.integer)
cdef object LARGE = _checks.LARGE
cdef object DURATION = np.timedelta64       # NumPy counts it among the integers


cdef double real_number(object x, str name) except? -1.0:
    if isinstance(x, REAL) and not isinstance(x, DURATION):
        if isinstance(x, WHOLE) and not -LARGE <= x <= LARGE:
            _checks.numbers_of(x, name)
        return <double>x
    if isinstance(x, (complex, np.complexfloating, str, bytes, DURATION)) or np.ndim(x) != 0 or np.iscomplexobj(x):
        raise TypeError(f"{name} is {_checks.shown(x)}, a {type(x).__name__}; one real number is needed")
    cdef double near
    try:
        near = <double>x
    except TypeError:
        raise TypeError(f"{name} is {_checks.shown(x)}, a {type(x).__name__}; one real number is needed") from None
    if not -2.0**53 < near < 2.0**53:
        _checks.numbers_of(x, name)
    return near


cdef double _ddof(object ddof) except? -1.0:
    cdef double less = real_number(ddof, "ddof")
    if not (less >= 0.0 and isfinite(less)):
        raise ValueError(f"ddof is {ddof!r}; it is taken off the count, so it must be finite and at least 0")
    return less


cdef object _refuse(double x, str where):
    """Why a reward cannot be taken."""
    if isfinite(x):
        return ValueError(f"{where} is {x!r}, so far from the others that squared deviations overflow float64; "
                          "scale the rewards")
    return ValueError(f"{where} is {x!r}; rewards must be finite, since one that is not would hide all the others for "
                      "good: drop or replace it")


cdef cnp.ndarray reward_table(object xs, Py_ssize_t n_arms, bint flat):
    cdef cnp.ndarray array
    if type(xs) is not np.ndarray:
        _checks.unmasked(xs, "xs")
        if isinstance(xs, (str, bytes)) or (hasattr(xs, "__next__") and not hasattr(xs, "__array__")):
            raise TypeError(f"xs is a {type(xs).__name__}; an array or a list of rewards is needed (call update(x) for "
                            f"each item of an iterator, or estimate_mean)")
    array = _checks.of_objects(xs, "xs")
    if array.ndim == 1 and array.shape[0] == 0:
        return array
    if not (cnp.PyArray_ISINTEGER(array) or cnp.PyArray_ISFLOAT(array) or cnp.PyArray_ISBOOL(array)):
        raise TypeError(f"xs has dtype {array.dtype}; rewards must be real numbers (integers, floats or booleans)")
    if flat and array.ndim != 1:
        raise ValueError(f"xs has shape {np.shape(array)}; a vector of shape (k,) is needed"
                         + ("; for a single reward call update(x)" if array.ndim == 0 else ""))
    if not flat and (array.ndim != 2 or array.shape[1] != n_arms):
        raise ValueError(f"xs has shape {np.shape(array)}; for {n_arms} arms a table of shape (k, {n_arms}) is needed, "
                         "one row per round and one column per arm")
    return array


cdef object _explain(object part, int64_t first):
    """The error for a stretch of rows that starts at `first` and holds something not finite, or too large."""
    finite = np.isfinite(part)
    index = np.unravel_index(np.abs(part).argmax() if finite.all() else finite.argmin(), part.shape)
    shown = ", ".join(str(k) for k in (first + index[0], *index[1:]))
    return _refuse(part[index], f"xs[{shown}]")


cdef class _Running:
    """What `RunningMoments` and `RunningComoments` share: a running_t per arm.

    The state changes only in lines that hold the GIL from first to last, so updates by several threads are used one
    after the other, each as a whole.
    """

    cdef guard_t guard
    cdef readonly Py_ssize_t n_arms
    cdef Py_ssize_t lead        # -1, or the leader of differences
    cdef bint flat              # numbers for one arm, or vectors
    cdef object columns         # names of the arms, as the first table with names has them; else None
    cdef running_t *state

    def __cinit__(self, *args, **kwargs):
        self.lead = -1
        guard_await(&self.guard, 0)

    def __dealloc__(self):
        free(self.state)

    cdef object named(self, object xs, str what):
        """What is taken, its columns by name, and the names that it leaves the arms with."""
        held = None if self.flat else _frames.labels_of(xs)
        if held is None or len(held) != self.n_arms or getattr(xs, "ndim", 2) != 2 or _frames.only_numbered(held):
            return xs, self.columns
        names = tuple([str(name) for name in held])
        if self.columns is None or self.columns == names:
            return xs, names
        return _frames.in_order(xs, self.columns, what, "arms"), self.columns

    cdef int allocate(self, Py_ssize_t n_arms, Py_ssize_t leader) except -1:
        if n_arms > MOST_ARMS:
            raise ValueError(f"n_arms is {n_arms}; memory for all is needed, {sizeof(running_t)} bytes each")
        guard_build(&self.guard, 0, self)
        self.state = <running_t *>calloc(n_arms, sizeof(running_t))
        if self.state == NULL:
            raise MemoryError(f"no memory for {n_arms} arms of {sizeof(running_t)} bytes")
        self.n_arms = n_arms
        self.lead = leader
        self.flat = n_arms == 1 and leader < 0
        guard_built(&self.guard, 0)
        return 0

    cdef int enter(self) except -1:
        """Before a few lines that call no Python; `leave` after them."""
        if not guard_take_briefly(&self.guard):
            guard_refuse(&self.guard, self)
        return 0

    cdef void leave(self) noexcept:
        guard_leave_brief(&self.guard)

    cdef int absorb(self, const running_t *other, Py_ssize_t n_arms) except -1:
        """Merge all arms or none."""
        cdef running_t merged
        cdef Py_ssize_t j, full = -1, bad = -1
        guard_check_built(&self.guard, self)
        if n_arms != self.n_arms:
            raise ValueError(f"n_arms is {n_arms} on one side and {self.n_arms} on the other; both must be the same")
        self.enter()
        for j in range(n_arms):
            if self.state[j].n > INT64_MAX - other[j].n:
                full = j
                break
            merged = self.state[j]
            running_merge(&merged, &other[j])
            if not isfinite(merged.m2):
                bad = j
                break
        else:
            for j in range(n_arms):
                running_merge(&self.state[j], &other[j])
        self.leave()
        if full >= 0:
            raise OverflowError(f"arm {full} would count more than 2**63 - 1 rewards")
        if bad >= 0:
            raise _refuse(other[bad].mean, f"the mean of what is added to arm {bad}")
        return 0

    cdef int take(self, object xs) except -1:
        """Into a fresh state, merged at the end: an error or Ctrl-C leaves this object as it was."""
        guard_check_built(&self.guard, self)
        xs, columns = self.named(xs, "xs")
        cdef cnp.ndarray array = reward_table(xs, self.n_arms, self.flat)
        cdef Py_ssize_t n_arms = self.n_arms
        cdef int64_t n_rows = array.shape[0], start = 0, stretch
        cdef int kind = cnp.PyArray_TYPE(array)
        cdef running_t *fresh
        cdef double *block
        if n_rows == 0 or n_arms == 0:
            return 0
        fresh = <running_t *>calloc(n_arms, sizeof(running_t))
        block = <double *>malloc((GROUP + 2) * MOMENTS_BLOCK * sizeof(double))
        try:
            if fresh == NULL or block == NULL:
                raise MemoryError(f"no memory for {n_arms} arms of {sizeof(running_t)} bytes")
            if (kind == cnp.NPY_FLOAT64 or kind == cnp.NPY_FLOAT32) and cnp.PyArray_ISBEHAVED_RO(array):
                _add_rows(array, 0, self.lead, fresh, block)
            else:
                stretch = table_stretch(n_arms)
                while start < n_rows:
                    with np.errstate(over="ignore"):
                        part = _checks.exact(array[start:start + stretch], "xs").astype(np.float64)
                    _add_rows(part, start, self.lead, fresh, block)
                    start += stretch
            self.absorb(fresh, n_arms)
            self.columns = columns
        finally:
            free(fresh)
            free(block)
        return 0

    cdef object counts(self):
        cdef cnp.ndarray out = np.empty(self.n_arms, np.int64)
        cdef int64_t *to = <int64_t *>cnp.PyArray_DATA(out)
        cdef Py_ssize_t j
        self.enter()
        for j in range(self.n_arms):
            to[j] = self.state[j].n
        self.leave()
        return out

    cdef object means(self):
        return self.values(-1.0)

    cdef object variances(self, object ddof):
        return self.values(_ddof(ddof))

    cdef object values(self, double ddof):
        """The mean of each arm, or, with a ddof of at least 0, its variance."""
        cdef cnp.ndarray out = np.empty(self.n_arms)
        cdef double *to = <double *>cnp.PyArray_DATA(out)
        cdef Py_ssize_t j
        self.enter()
        for j in range(self.n_arms):
            if ddof >= 0.0:
                to[j] = running_variance(&self.state[j], ddof)
            else:
                to[j] = self.state[j].mean + self.state[j].mean_low if self.state[j].n else NAN
        self.leave()
        return out

    cdef object printed(self, str title, dict columns):
        """A short table of numbers by arm, cut at ten arms."""
        shown = range(min(self.n_arms, 10))
        cells = [["arm", *columns]]
        cells += [[str(j), *(f"{column[j]:.6g}" if column.dtype.kind == "f" else str(column[j])
                             for column in columns.values())] for j in shown]
        widths = [max(len(row[k]) for row in cells) for k in range(len(cells[0]))]
        lines = [title] + ["  " + "  ".join(map(str.rjust, row, widths)) for row in cells]
        if self.n_arms > len(shown):
            lines.append(f"  ... and {self.n_arms - len(shown)} more")
        return "\n".join(lines)

    cdef int join(self, object other) except -1:
        cdef _Running that
        cdef running_t *seen
        cdef Py_ssize_t j
        guard_check_built(&self.guard, self)
        if not isinstance(other, _kind(self)):
            raise TypeError(f"other is a {type(other).__name__}; only another {type(self).__name__} can be merged")
        if other is self:
            raise ValueError(f"a {type(self).__name__} cannot be merged with itself: its rewards would count twice")
        that = <_Running>other
        if that.lead != self.lead:
            raise ValueError(f"leader is {that.lead} on one side and {self.lead} on the other; both must be the same")
        guard_check_built(&that.guard, that)
        if self.columns is not None and that.columns is not None and self.columns != that.columns:
            raise ValueError(f"the arms are {_frames.some(self.columns)} on one side and {_frames.some(that.columns)} "
                             f"on the other; both must have the same names in the same order")
        seen = <running_t *>malloc(that.n_arms * sizeof(running_t))
        if seen == NULL:
            raise MemoryError(f"no memory for {that.n_arms} arms of {sizeof(running_t)} bytes")
        try:
            that.enter()
            for j in range(that.n_arms):
                seen[j] = that.state[j]
            that.leave()
            self.absorb(seen, that.n_arms)
            self.columns = self.columns or that.columns
            return 0
        finally:
            free(seen)

    def update_many(self, xs):
        """Take many rewards.

        Parameters
        ----------
        xs : array_like of real numbers, shape (k, n_arms), or (k,) for the `RunningMoments` of one arm
            Rewards; a table has one row per round and one column per arm. float32 and float64 are read in place,
            whatever their strides; other dtypes are cast to float64 in portions (long doubles are rounded). Columns
            of a table with names go by those of the first such table.

        Raises
        ------
        ValueError
            If a reward is nan or infinite (the message gives its place), or an integer beyond 2**53 that no float64
            holds, or the shape is wrong, or an entry is masked. Nothing is changed then.
        TypeError
            If `xs` does not hold real numbers.

        Notes
        -----
        Runs without the GIL at about the speed of ``xs.sum()``. Ctrl-C stops it, and leaves the object as before the
        call.

        Examples
        --------
        >>> m = RunningMoments()
        >>> m.update_many(range(10))
        >>> m.count, m.mean, m.variance(ddof=0)
        (10, 4.5, 8.25)
        """
        self.take(xs)

    def merge(self, other):
        """Take all that another object has seen, as if its rewards had come here.

        Parameters
        ----------
        other : RunningMoments or RunningComoments
            Of the same class, with as many arms and the same leader; it is not changed. ``a + b`` makes a new object
            instead.

        Raises
        ------
        ValueError
            If the numbers of arms or the leaders differ, or `other` is this object itself: its rewards would count
            twice.
        TypeError
            If `other` is something else.

        Examples
        --------
        >>> a, b = RunningMoments(), RunningMoments()
        >>> a.update_many([1.0, 2.0])
        >>> b.update_many([3.0])
        >>> a.merge(b)
        >>> a.count, a.mean
        (3, 2.0)
        """
        self.join(other)

    def __add__(self, other):
        if not (isinstance(self, _Running) and isinstance(other, _kind(self))):
            return NotImplemented
        new = self.copy()
        (<_Running>new).join(other)
        return new

    def __iadd__(self, other):
        if not isinstance(other, _kind(self)):
            return NotImplemented
        self.join(other)
        return self

    def copy(self):
        """Make an independent object of the same class in the same state.

        Returns
        -------
        RunningMoments or RunningComoments
        """
        return copy.copy(self)

    def __reduce__(self):
        cdef cnp.ndarray values = np.empty((self.n_arms, 4)), counts = np.empty(self.n_arms, np.int64)
        cdef double *to = <double *>cnp.PyArray_DATA(values)
        cdef int64_t *count = <int64_t *>cnp.PyArray_DATA(counts)
        cdef Py_ssize_t j
        self.enter()
        for j in range(self.n_arms):
            count[j] = self.state[j].n
            to[4 * j] = self.state[j].mean
            to[4 * j + 1] = self.state[j].mean_low
            to[4 * j + 2] = self.state[j].m2
            to[4 * j + 3] = self.state[j].m2_low
        self.leave()
        named = () if self.columns is None else (self.columns,)
        return _restore.saved(type(self), self.lead, counts, values, *named, extra=getattr(self, "__dict__", None))


cdef int _add_rows(cnp.ndarray array, int64_t first, Py_ssize_t leader, running_t *state, double *block) except -1:
    """Add float32 or float64 rows to the state of each arm; `first` is their place in the array a user passed."""
    cdef table_t t
    cdef int64_t n_rows = array.shape[0], bad
    t.data = <const char *>cnp.PyArray_DATA(array)
    t.row_stride = array.strides[0]
    t.arm_stride = array.strides[1] if array.ndim == 2 else 0
    t.n_arms = array.shape[1] if array.ndim == 2 else 1
    t.leader = leader
    t.single = cnp.PyArray_TYPE(array) == cnp.NPY_FLOAT32
    t.block = block
    with nogil:
        bad = table_run(&t, n_rows, state)
    if bad >= 0:
        raise _explain(array[bad:bad + VALUES_PER_CHECK], first + bad)
    return 0


@_checks.rebuilds(1, _Running, subclasses=True)
def _restore(cls, leader, counts, values, columns=None):
    """Rebuild what was pickled."""
    cdef _Running new
    cdef Py_ssize_t j
    count = np.array(counts, np.int64)
    value = np.array(values, np.float64)
    leader = operator.index(leader)
    if count.ndim != 1 or not count.shape[0] or value.shape != (count.shape[0], 4) or not -1 <= leader < count.shape[0]:
        raise ValueError(f"counts of shape {count.shape}, values of shape {value.shape} and leader {leader} do not fit "
                         f"one another")
    if not ((count >= 0).all() and np.isfinite(value).all()):
        raise ValueError("a count is negative or a moment is not finite")
    if not issubclass(cls, RunningMoments if leader < 0 else RunningComoments):
        raise ValueError(f"it asks for {cls!r} with leader {leader}")
    new = cls.__new__(cls)
    new.allocate(count.shape[0], leader)
    if columns is not None and not (isinstance(columns, tuple) and len(columns) == count.shape[0]):
        raise ValueError(f"the names of the arms are {_checks.shown(columns)}")
    new.columns = columns
    for j in range(new.n_arms):
        new.state[j].n = count[j]
        new.state[j].mean, new.state[j].mean_low, new.state[j].m2, new.state[j].m2_low = value[j]
    return new


cdef type _kind(_Running running):
    """Whose objects can be merged with this one."""
    return RunningMoments if running.lead < 0 else RunningComoments


cdef class RunningMoments(_Running):
    r"""Mean and variance of streams of rewards, one stream per arm, in one pass and constant memory.

    Parameters
    ----------
    n_arms : int, default 1
        Number of arms, at least 1. With one arm every answer is a number, else a vector of shape (n_arms,).

    Raises
    ------
    ValueError
        If `n_arms` is less than 1.

    Notes
    -----
    Single rewards go through Welford's update [1]_, arrays through blocks of two passes merged by the formula of Chan,
    Golub and LeVeque [2]_. Mean and sum of squared deviations are kept as pairs of doubles, so that the variance is
    right to about 1e-14 of itself even for rewards of standard deviation 1 about 10\ :sup:`9`, in whatever
    portions they came. 40 bytes per arm; O(1) time per reward.

    References
    ----------
    .. [1] Welford, "Note on a method for calculating corrected sums of squares and products", Technometrics, 1962.
    .. [2] Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979.

    Examples
    --------
    >>> from fastrace.moments import RunningMoments
    >>> m = RunningMoments()
    >>> m.update(1.0)
    >>> m.update_many([2.0, 6.0])
    >>> m
    RunningMoments(count=3, mean=3.0, std=2.6457513110645907)
    >>> m.variance(), m.variance(ddof=0)
    (7.0, 4.666666666666667)

    Several arms take tables, one row per round:

    >>> m = RunningMoments(n_arms=2)
    >>> m.update_many([[1.0, 10.0], [3.0, 10.0]])
    >>> m.update(5.0, arm=0)
    >>> m.mean
    array([ 3., 10.])
    >>> m.count
    array([3, 2])
    """

    def __init__(self, n_arms=1):
        self.allocate(_checks.integer(n_arms, "n_arms", 1, "every arm has moments"), -1)

    def update(self, x, Py_ssize_t arm=0):
        """Take one reward.

        Parameters
        ----------
        x : float
            The reward; any finite real number.
        arm : int, default 0
            Whose reward, in [0, n_arms).

        Raises
        ------
        ValueError
            If `x` is nan or infinite, or so far out that its square overflows, or there is no such arm. Nothing is
            changed then.
        TypeError
            If `x` is not one real number.

        Examples
        --------
        >>> m = RunningMoments()
        >>> m.update(0.5)
        >>> m.mean
        0.5
        """
        cdef double value
        cdef running_t new
        if isinstance(x, float):
            value = x
        else:
            value = real_number(x, "x")
        if not guard_take_briefly(&self.guard):
            guard_refuse(&self.guard, self)
        if not 0 <= arm < self.n_arms:
            guard_leave_brief(&self.guard)
            raise ValueError(f"arm is {arm}; it must stay within [0, {self.n_arms})")
        new = self.state[arm]
        running_push(&new, value)
        if isfinite(new.m2):
            self.state[arm] = new
            guard_leave_brief(&self.guard)
            return
        guard_leave_brief(&self.guard)
        raise _refuse(value, f"reward {new.n - 1}" + ("" if self.flat else f" of arm {arm}"))

    @property
    def count(self):
        """Number of rewards: int, or ndarray of int64 of shape (n_arms,)."""
        guard_check_built(&self.guard, self)
        return self.state.n if self.flat else self.counts()

    @property
    def mean(self):
        """Mean of the rewards: float, or ndarray of shape (n_arms,); nan where there are none."""
        if not self.flat:
            return self.means()
        self.enter()
        cdef double mean = self.state.mean + self.state.mean_low if self.state.n else NAN
        self.leave()
        return mean

    def variance(self, ddof=1):
        """Variance of the rewards.

        Parameters
        ----------
        ddof : float, default 1
            The divisor is ``count - ddof``: 1 for the unbiased variance, 0 for that of the rewards themselves.

        Returns
        -------
        float or ndarray of shape (n_arms,)
            nan where ``count <= ddof``.

        Examples
        --------
        >>> m = RunningMoments()
        >>> m.update(3.0)
        >>> m.variance(), m.variance(ddof=0)
        (nan, 0.0)
        """
        variances = self.variances(ddof)
        return float(variances[0]) if self.flat else variances

    def std(self, ddof=1):
        """Standard deviation: the square root of `variance`, with the same parameter.

        Parameters
        ----------
        ddof : float, default 1
            The divisor is ``count - ddof``.

        Returns
        -------
        float or ndarray of shape (n_arms,)
            nan where ``count <= ddof``.
        """
        stds = np.sqrt(self.variances(ddof))
        return float(stds[0]) if self.flat else stds

    def __repr__(self):
        name = type(self).__name__
        if self.flat:
            return f"{name}(count={self.count}, mean={self.mean!r}, std={self.std()!r})"
        columns = {"count": self.count, "mean": self.mean, "std": self.std()}
        return self.printed(f"{name} of {counted(self.n_arms, 'arm')}", columns)


cdef class RunningComoments(_Running):
    r"""Mean and variance of the paired differences between a leader's reward and every arm's.

    Races compare arms by :math:`d_i = r_{leader} - r_i` on the same rows. The variance of :math:`d_i` is built from the
    differences themselves, and not from the variances and the covariance of the two, whose difference cancels when arms
    are strongly correlated. All arms together cost O(n_arms) per row.

    Parameters
    ----------
    n_arms : int
        Number of arms, at least 1.
    leader : int, default 0
        The arm that all are compared with, in [0, n_arms).

    Raises
    ------
    ValueError
        If `n_arms` or `leader` is out of range.

    Notes
    -----
    Same arithmetic, accuracy and memory as `RunningMoments`. The differences of one leader say nothing of the variances
    about another: to change the leader, make a new object and pass it the rewards again.

    Examples
    --------
    >>> from fastrace.moments import RunningComoments
    >>> c = RunningComoments(n_arms=3, leader=1)
    >>> c.update_many([[1.0, 2.0, 2.0], [5.0, 7.0, 3.0]])
    >>> c.difference_mean
    array([1.5, 0. , 2. ])
    >>> c.difference_variance()
    array([0.5, 0. , 8. ])
    """

    def __init__(self, n_arms, leader=0):
        cdef Py_ssize_t n = _checks.integer(n_arms, "n_arms", 1, "every arm has moments")
        cdef Py_ssize_t first = _checks.integer(leader, "leader", 0, "it counts arms from 0")
        if first >= n:
            raise ValueError(f"leader is {leader}; it must stay within [0, {n})")
        self.allocate(n, first)

    @property
    def leader(self):
        """The arm that all are compared with."""
        guard_check_built(&self.guard, self)
        return self.lead

    @property
    def count(self):
        """Number of rows."""
        guard_check_built(&self.guard, self)
        return self.state.n

    @property
    def difference_mean(self):
        """Mean of the leader's reward minus each arm's: ndarray of shape (n_arms,); nan when there are no rows."""
        return self.means()

    def difference_variance(self, ddof=1):
        """Variance of the leader's reward minus each arm's.

        Parameters
        ----------
        ddof : float, default 1
            The divisor is ``count - ddof``.

        Returns
        -------
        ndarray of shape (n_arms,)
            0 for the leader itself; nan when ``count <= ddof``.
        """
        return self.variances(ddof)

    def __repr__(self):
        arms = counted(self.n_arms, "arm")
        title = f"{type(self).__name__} of {counted(self.count, 'row')}: arm {self.leader} minus each of {arms}"
        return self.printed(title, {"mean": self.difference_mean, "std": np.sqrt(self.difference_variance())})


# Doors to the headers, for tests.

def _reductions(const double[::1] x):
    """Sum, smallest and largest value that are not nan, whether all are finite."""
    cdef double low, high
    cdef const double *first = &x[0] if x.shape[0] else NULL
    fr_range(first, x.shape[0], &low, &high)
    return fr_sum(first, x.shape[0]), low, high, fr_all_finite(first, x.shape[0])


def _moments(parts, double ddof=1.0):
    """moments_t of all parts, one after the other, and their variance."""
    cdef moments_t m
    cdef const double[::1] x
    m.n = 0
    m.mean = m.m2 = 0.0
    for x in parts:
        moments_extend(&m, &x[0] if x.shape[0] else NULL, x.shape[0])
    return m.n, m.mean, m.m2, moments_variance(&m, ddof)


def _moments4(parts, others=None):
    """moments4_t of all parts, or of their differences to others; then std, skewness and kurtosis."""
    cdef moments4_t m
    cdef const double[::1] x, y
    m.n = 0
    m.mean = m.m2 = m.m3 = m.m4 = 0.0
    for x, y in zip(parts, parts if others is None else others, strict=True):
        if others is None:
            moments4_extend(&m, &x[0] if x.shape[0] else NULL, x.shape[0])
        else:
            moments4_extend_difference(&m, &x[0], &y[0], x.shape[0])
    return (m.n, m.mean, m.m2, m.m3, m.m4), moments4_std(&m), moments4_skewness(&m), moments4_kurtosis(&m)
