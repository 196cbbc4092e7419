"""Second-order expansions of rewards in the data, about the centres of bins."""

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc
cimport numpy as cnp

import numpy as np

from fastrace._base import _checks
from fastrace._base._guard cimport guard_await, guard_built, guard_check_built
from fastrace.sources cimport _BlockSource

cnp.import_array()


def farthest_rows(distances, fraction, name="fraction"):
    """The given fraction of the rows, those with the largest distances: ndarray of int64, ascending."""
    fraction = _checks.real(fraction, name)
    if not 0.0 <= fraction < 1.0:
        raise ValueError(f"{name} is {fraction:g}; a share of the rows in [0, 1) is needed")
    count = int(round(fraction * len(distances)))
    rows = np.argpartition(distances, len(distances) - count)[len(distances) - count:] if count else []
    return np.sort(np.asarray(rows, dtype=np.int64))


cdef class BinnedTaylor(_BlockSource):
    r"""Second-order expansion of rewards in the data, about the centre of each row's bin.

    For rewards l_j(y_n) that are smooth functions of a vector y_n. The rows are sorted into bins once; for given
    parameters one expansion per bin and arm stands in for the rewards, and its exact sum follows from the counts,
    means and covariances of the bins.

    Parameters
    ----------
    y : array_like of real numbers, shape (n_rows, q)
        The data as the expansion sees them.
    expansion : callable
        ``expansion(references)`` takes the centres of the bins, shape (n_bins, q), and returns for every bin and arm
        the rewards there, shape (n_bins, n_arms), their gradients in y, shape (n_bins, n_arms, q), and their
        Hessians, shape (n_bins, n_arms, q, q). Called now and by `update`.
    n_arms : int
        Number of arms.
    z : array_like of real numbers, shape (n_rows, m), optional
        What to bin by, such as two summaries of y; y itself by default.
    n_bins : int, default 100
        Number of cells: n_bins^(1/m) equally filled slices along each column of z, empty cells dropped.
    labels : array_like of int, shape (n_rows,), optional
        Ready-made bins, 0, 1, ..., in place of cells of `z`.

    Attributes
    ----------
    labels : ndarray of int32, shape (n_rows,)
    references : ndarray of shape (n_bins, q)
        Mean of y in each bin: the linear term then adds nothing to the sums.
    weights : ndarray of shape (n_bins,)
        Share of the rows.
    covariances : ndarray of shape (n_bins, q, q)
        Mean of (y - reference) (y - reference)^T.

    Raises
    ------
    ValueError
        If shapes do not fit, or a number is not finite.

    Notes
    -----
    Call `update` whenever what `expansion` depends on has changed; it costs O(n_bins n_arms q^2), as the paper's
    binned control variates [1]_ do.

    References
    ----------
    .. [1] Chen, Ghahramani, "Scalable discrete sampling as a multi-armed bandit problem", ICML 2016, section 3.4 and
       appendix C.2.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace.control_variates import BinnedTaylor, ControlVariate
    >>> from fastrace.sources import ArraySource
    >>> rng = np.random.default_rng(1)
    >>> y = rng.standard_normal((1000, 1))
    >>> center = np.array([0.0, 0.3])
    >>> rewards = ArraySource(np.cos(y - center))
    >>> def expansion(at):
    ...     value = np.cos(at - center)
    ...     return value, -np.sin(at - center)[:, :, None], -value[:, :, None, None]
    >>> surrogate = BinnedTaylor(y, expansion, n_arms=2, n_bins=20)
    >>> race_on = ControlVariate(rewards, surrogate, always_read=surrogate.farthest(0.05))
    >>> bool((race_on.read(np.arange(950)).std(axis=0) < 1e-3).all())
    True
    >>> bool(np.allclose(race_on.totals(), rewards.totals(), rtol=1e-12))
    True
    """

    cdef readonly cnp.ndarray y, labels, references, weights, covariances
    cdef readonly object expansion
    cdef cnp.ndarray offsets, value, gradient, hessian, sums
    cdef object z

    def __cinit__(self):
        guard_await(&self.guard, 1)

    def __init__(self, y, expansion, n_arms, *, z=None, n_bins=100, labels=None):
        data = _columns(y, "y")
        by = data if z is None else _columns(z, "z")
        if len(by) != len(data) or len(data) == 0:
            raise ValueError(f"z has {len(by)} rows and y has {len(data)}; the same number, at least 1, is needed")
        if not callable(expansion):
            raise TypeError(f"expansion is {_checks.shown(expansion)}; a function of the references is needed")
        super().__init__(n_arms, len(data))
        cell = _cells(by, n_bins) if labels is None else _labels(labels, len(data))
        count = np.bincount(cell)
        if not count.all():
            raise ValueError(f"labels leave bin {int((count == 0).argmax())} empty; number the bins 0, 1, ... without "
                             f"gaps")
        q = data.shape[1]
        self.y = data
        self.z = by
        self.labels = cell.astype(np.int32)
        self.weights = count / len(data)
        self.references = _bin_sums(data, cell, len(count)) / count[:, None]
        # Rounding leaves a mean deviation of about 1e-16 in each bin; keeping it keeps the sums exact.
        self.offsets = np.zeros((len(count), q))
        self.covariances = np.zeros((len(count), q, q))
        order = np.argsort(cell, kind="stable")
        for b, rows in enumerate(np.split(order, np.cumsum(count)[:len(count) - 1])):
            step = data[rows] - self.references[b]
            self.offsets[b] = step.mean(axis=0)
            self.covariances[b] = step.T @ step / len(rows)
        for array in (self.labels, self.weights, self.references, self.covariances):
            array.flags.writeable = False
        self.expansion = expansion
        self.value, self.gradient, self.hessian, self.sums = self._expanded()
        guard_built(&self.guard, 1)

    def __reduce__(self):
        guard_check_built(&self.guard, self)
        return _binned_taylor.saved(np.asarray(self.y), self.expansion, self.n_arms, self.z, np.asarray(self.labels))

    def update(self):
        """Expand anew, after what `expansion` depends on has changed. A bad expansion changes nothing."""
        guard_check_built(&self.guard, self)
        # In place: a race in another thread may be reading these arrays.
        for mine, new in zip((self.value, self.gradient, self.hessian, self.sums), self._expanded(), strict=True):
            mine[...] = new

    cdef tuple _expanded(self):
        """Values, gradients and Hessians of all bins by the user's function, and the sums that follow."""
        cdef Py_ssize_t n_bins = self.references.shape[0], q = self.references.shape[1]
        parts = self.expansion(self.references)
        if not isinstance(parts, tuple) or len(parts) != 3:
            raise ValueError(f"expansion returned a {type(parts).__name__}; a tuple (value, gradient, hessian) is "
                             f"needed")
        arrays = []
        for name, part, shape in zip(("value", "gradient", "hessian"), parts, ((), (q,), (q, q)), strict=True):
            array = _checks.floats(part, f"{name} of the expansion")
            if array.shape != (n_bins, self.n_arms, *shape):
                raise ValueError(f"{name} of the expansion has shape {array.shape}; "
                                 f"{(n_bins, self.n_arms, *shape)} is needed")
            if not np.isfinite(array).all():
                raise ValueError(f"{name} of the expansion holds {array[~np.isfinite(array)][0]}; it must be finite")
            arrays.append(array)
        value, gradient, hessian = arrays
        per_bin = (value + np.einsum("bjq,bq->bj", gradient, self.offsets)
                   + 0.5 * np.einsum("bjpq,bpq->bj", hessian, self.covariances))
        return value, gradient, hessian, self.n_rows * (np.asarray(self.weights) @ per_bin)

    cdef int block(self, const int64_t *rows, int64_t first, Py_ssize_t n_rows, const Py_ssize_t *arms,
                   Py_ssize_t n_arms, double **out) except -1 nogil:
        cdef Py_ssize_t q = self.references.shape[1], i, j, a, b, at
        cdef const double *y = <const double *>cnp.PyArray_DATA(self.y)
        cdef const double *reference = <const double *>cnp.PyArray_DATA(self.references)
        cdef const double *value = <const double *>cnp.PyArray_DATA(self.value)
        cdef const double *gradient = <const double *>cnp.PyArray_DATA(self.gradient)
        cdef const double *hessian = <const double *>cnp.PyArray_DATA(self.hessian)
        cdef const int32_t *label = <const int32_t *>cnp.PyArray_DATA(self.labels)
        cdef double *step = <double *>malloc(q * sizeof(double))
        cdef const double *h
        cdef double sum, slope
        cdef int64_t row
        cdef int32_t cell
        if step == NULL:
            with gil:
                raise MemoryError()
        for i in range(n_rows):
            row = rows[i] if rows != NULL else first + i
            cell = label[row]
            for a in range(q):
                step[a] = y[row * q + a] - reference[cell * q + a]
            for j in range(n_arms):
                at = cell * self.n_arms + arms[j]
                h = hessian + at * q * q
                sum = value[at]
                for a in range(q):
                    slope = 0.0
                    for b in range(q):
                        slope += h[a * q + b] * step[b]
                    sum += step[a] * (gradient[at * q + a] + 0.5 * slope)
                out[j][i] = sum
        free(step)
        return 0

    cdef int total(self, const Py_ssize_t *arms, Py_ssize_t n_arms, double *out) except -1 nogil:
        cdef Py_ssize_t j
        for j in range(n_arms):
            out[j] = (<const double *>cnp.PyArray_DATA(self.sums))[arms[j]]
        return 0

    def distances(self):
        """Distance of each row's z from the mean of its bin, columns in units of their standard deviation."""
        guard_check_built(&self.guard, self)
        by = np.asarray(self.z)
        scale = by.std(axis=0)
        scaled = by / np.where(scale > 0.0, scale, 1.0)
        count = np.bincount(self.labels)
        means = _bin_sums(scaled, self.labels, len(count)) / count[:, None]
        return np.sqrt(np.square(scaled - means[self.labels]).sum(axis=1))

    def farthest(self, fraction):
        """The given fraction of the rows, those with the largest `distances`: ndarray of int64, ascending."""
        return farthest_rows(self.distances(), fraction)

    def residual_bound(self, third_derivative, always_read=()):
        """Largest absolute residual of rewards whose third derivatives in y stay within `third_derivative`.

        Parameters
        ----------
        third_derivative : float or array_like of shape (n_arms,)
            Bound on every third partial derivative.
        always_read : array_like of int, optional
            Rows that do not count.

        Returns
        -------
        float or ndarray of shape (n_arms,)
            ``third_derivative`` / 6 times the cube of the largest sum of abs(y - reference), to be used as
            ``support = (-bound, bound)``.
        """
        guard_check_built(&self.guard, self)
        size = np.abs(np.asarray(self.y) - np.asarray(self.references)[self.labels]).sum(axis=1)
        far = np.delete(size, _checks.as_array(always_read, "always_read").astype(np.intp)).max(initial=0.0)
        return _checks.floats(third_derivative, "third_derivative") / 6.0 * far**3 * (1.0 + 1e-9)


def _columns(values, name):
    array = _checks.as_array(values, name)
    if array.ndim != 2 or array.dtype.kind not in "fiub" or array.shape[1] == 0:
        raise ValueError(f"{name} has shape {array.shape} and dtype {array.dtype}; real numbers of shape (n_rows, "
                         f"columns) are needed")
    array = np.ascontiguousarray(array, dtype=np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds {array[~np.isfinite(array)][0]}; it must be finite")
    return array


def _labels(labels, n_rows):
    array = _checks.as_array(labels, "labels")
    if array.shape != (n_rows,) or array.dtype.kind not in "iu" or array.min() < 0:
        raise ValueError(f"labels has shape {array.shape} and dtype {array.dtype}; a bin number from 0 up for each of "
                         f"the {n_rows} rows is needed")
    return array.astype(np.intp)


def _cells(z, n_bins):
    """Cells of a grid whose lines are equally spaced quantiles of each column; empty cells are dropped."""
    n_bins = _checks.integer(n_bins, "n_bins", 1, "rows are put in bins")
    _checks.room(16.0 * n_bins ** (1.0 / z.shape[1]), f"n_bins is {n_bins}: their ends")
    slices = max(1, round(n_bins ** (1.0 / z.shape[1])))
    cell = np.zeros(len(z), dtype=np.intp)
    for column in z.T:
        lines = np.quantile(column, np.arange(1, slices) / slices)
        cell = cell * slices + np.searchsorted(lines, column, side="right")
    return np.unique(cell, return_inverse=True)[1].reshape(-1)


def _bin_sums(values, cell, n_bins):
    return np.column_stack([np.bincount(cell, weights=column, minlength=n_bins) for column in values.T])


@_checks.rebuilds(1, BinnedTaylor, calls_user=True)
def _binned_taylor(y, expansion, n_arms, z, labels):
    """Rebuild a pickled `BinnedTaylor`."""
    return BinnedTaylor(y, expansion, n_arms, z=z, labels=labels)
