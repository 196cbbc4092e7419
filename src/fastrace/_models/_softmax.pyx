"""Multinomial logistic regression as a compiled source."""

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc
cimport numpy as cnp

from fastrace._base._guard cimport guard_await, guard_built, guard_check_built
from fastrace.likelihoods cimport FR_GLM_BLOCK, GLMSource, fr_glm_predict
from fastrace._models._expanded cimport TermSource, weigh

import numpy as np

from fastrace._base import _checks, _frames
from fastrace._models._expanded import check_theta, Expanded

cnp.import_array()

cdef extern from "_softmax.h" nogil:
    void fr_softmax_terms(const double *eta, Py_ssize_t n_free, const int32_t *label, Py_ssize_t n, double *out)
    void fr_softmax_expand(const double *hat, Py_ssize_t n_free, Py_ssize_t n, double *share, double *log_sum)
    void fr_softmax_residuals(const double *eta, const double *hat, const double *share, const double *log_sum,
                              Py_ssize_t n_free, Py_ssize_t n, double *out)
    void fr_softmax_cubes(const double *eta, Py_ssize_t n_free, Py_ssize_t n, double *out)


MOST_GAPS = 10_000      # classes beyond twice the rows, which nobody has meant

cdef enum:
    OF_EFFECTS = 1 << 13            # rows summed at once where there are groups


def places_of(n_columns, factors, n_free):
    """Where the coefficients and effects of each class but the first stand, shape (n_free, width).

    Those of a class are the coefficients of the columns, then the effects of each factor, group by group.
    """
    out = [np.arange(n_free * n_columns).reshape(n_free, n_columns)]
    first = n_free * n_columns
    for factor in factors:
        size = factor.n_groups * factor.width
        out.append(first + np.arange(size * n_free).reshape(size, n_free).T)
        first += size * n_free
    return np.ascontiguousarray(np.concatenate(out, axis=1), dtype=np.intp)


def offset_table(offset, shape):
    """A float64 array of finite numbers of that shape, as the compiled code reads it."""
    given = _checks.as_array(offset, "offset")
    if given.shape != shape or given.dtype.kind not in "fiub":
        raise ValueError(f"offset has shape {given.shape} and dtype {given.dtype}; real numbers of shape {shape} are "
                         f"needed")
    table = np.ascontiguousarray(given, dtype=np.float64)
    if not np.isfinite(table).all():
        row, column = np.argwhere(~np.isfinite(table))[0]
        raise ValueError(f"offset[{row}, {column}] is {table[row, column]}; finite numbers are needed")
    return table


def classes_of(y, n_classes=None):
    """Number of classes: as given, or one more than the largest of the outcomes."""
    if n_classes is None:
        n_classes = max(2, int(np.minimum(y, 2**31 - 2).max(initial=0.0)) + 1)
        if n_classes > MOST_GAPS + 2 * len(y):
            raise ValueError(f"the largest class of y is {np.max(y):.16g}, and y has {len(y)} rows, so that most "
                             f"classes have none. Classes are numbered from 0 without gaps: np.unique(y, "
                             f"return_inverse=True)[1] are such numbers")
    return _checks.integer(n_classes, "n_classes", 2, "a class to tell apart from another")


cdef class SoftmaxSource(TermSource):
    r"""Log-likelihoods of a multinomial logistic regression, one vector of parameters per arm.

    Class k of a row x has probability proportional to :math:`\exp(o_k + x \cdot \theta_k)`, where
    :math:`\theta_0 = 0` and :math:`o_k` is an offset, 0 by default. The reward of an arm is the log-probability of the
    row's class. `fastrace.mcmc.Softmax` is the same likelihood with a prior, as the model of a chain.

    Parameters
    ----------
    X : array_like of real numbers, shape (n_rows, p), frame, or dict of columns
        Explanatory variables, as in `fastrace.likelihoods.GLMSource`: float32 and float64 are read in place, sparse
        tables of SciPy in rows (CSR) too.
    y : array_like of int, shape (n_rows,)
        Classes 0, 1, ..., n_classes - 1.
    theta : array_like of real numbers, shape (n_arms, (n_classes - 1) p), optional
        Parameters, one row per arm: the p coefficients of class 1, those of class 2 and so on. By default one arm of
        zeros. Assign `theta` or call `set_theta` to replace them.
    n_classes : int, optional
        At least 2; by default one more than the largest of `y`.
    offset : array_like of real numbers, shape (n_rows, n_classes - 1), optional
        Added to the predictors of each row's classes but the first.
    weights : array_like of whole numbers from 0 up, shape (n_rows,), optional
        How many times each row was seen: its reward is multiplied by this number.
    groups : Groups, array_like, sequence or dict of these, optional
        Grouping factors, as in `fastrace.likelihoods.GLMSource`. The parameters are then the coefficients as above, and
        after them the effects of each factor, group by group: of each of its effects one for each class but class 0.
    check_finite : bool, default True
        As in `fastrace.likelihoods.GLMSource`.

    Raises
    ------
    ValueError
        If shapes or pandas indexes disagree, `X`, `theta` or `offset` is not finite, or a class or a weight is out of
        range.

    Examples
    --------
    >>> from fastrace.control_variates import SoftmaxSource
    >>> source = SoftmaxSource([[1.0, 0.0], [1.0, 2.0]], y=[0, 2], theta=[[0.0] * 4, [0.5, 0.0, 0.0, 1.0]])
    >>> source.read([0, 1]).round(4)
    array([[-1.0986, -1.2944],
           [-1.0986, -0.3064]])
    """

    def __cinit__(self):
        guard_await(&self.guard, 1)

    def __init__(self, X, y, theta=None, n_classes=None, *, offset=None, weights=None, groups=None, check_finite=True):
        _frames.require_same_rows(X=X, offset=offset)
        rows = GLMSource(X, y, None, "gaussian", 1.0, weights=weights, groups=groups, check_finite=check_finite)
        outcome = np.asarray(rows.y)
        classes = classes_of(outcome, n_classes)
        bad = ~((outcome >= 0) & (outcome < classes) & (outcome == np.floor(outcome)))
        if bad.any():
            row = int(bad.argmax())
            raise ValueError(f"y[{row}] is {outcome[row]:g}; classes must be whole numbers from 0 to {classes - 1}")
        n_effects = sum(factor.n_groups * factor.width for factor in rows.factors)
        width = (classes - 1) * (rows.X.shape[1] + n_effects)
        _checks.room(8.0 * width, f"n_classes is {classes}: the parameters of one arm")
        parameters = np.atleast_2d(np.zeros(width) if theta is None else _checks.floats(theta, "theta"))
        if parameters.ndim == 2 and parameters.shape[1] != width:
            counted = "" if n_classes is not None else f", and the largest of y is {classes - 1}"
            raise ValueError(f"theta has shape {parameters.shape}; ({len(parameters)}, {width}) is needed: for each "
                             f"class but class 0 a coefficient of each of {rows.X.shape[1]} columns"
                             f"{f' and each of {n_effects} effects' if n_effects else ''}. Classes are numbered from 0"
                             f"{counted}")
        check_theta(parameters, (max(len(parameters), 1), width))
        super().__init__(len(parameters), rows.n_rows, scan_advantage=rows.scan_advantage,
                         reward_cost=(classes - 1) * (3.0 + 0.25 * (rows.X.shape[1]
                                                                    + sum(f.width for f in rows.factors))))
        self.expanded_advantage = self.scan_advantage
        self.expanded_cost = 2.0 * self.reward_cost
        self.knows_moves = True
        self.rows = rows
        self.offset = None if offset is None else offset_table(offset, (rows.n_rows, classes - 1))
        self.n_classes = classes
        self.n_free, self.width = classes - 1, rows.X.shape[1] + n_effects
        self.places = places_of(rows.X.shape[1], rows.factors, classes - 1) if rows.factors else None
        if rows.factors:
            self.sum_block = OF_EFFECTS     # each block brings the parameters of all arms in order
        self.labels = outcome.astype(np.int32)
        self.parameters = parameters
        guard_built(&self.guard, 1)

    def __reduce__(self):
        guard_check_built(&self.guard, self)
        plain = self.rows.X, np.asarray(self.labels), np.asarray(self.parameters), self.n_classes, None
        more = self.beside()
        return _softmax_source.saved(*plain, more) if more else _softmax_source.saved(*plain)

    def beside(self):
        """Offset, weights and groups by name, where there are any: what another source of the rows needs."""
        guard_check_built(&self.guard, self)
        more = {"offset": self.offset, "weights": self.rows.weights, "groups": self.rows.groups or None}
        return {name: value for name, value in more.items() if value is not None}

    cdef const double *by_class(self, const double *theta, double *room) noexcept nogil:
        """Parameters class by class: in `room`, or as they are where there are no groups."""
        cdef const Py_ssize_t *place
        cdef Py_ssize_t i
        if room == NULL:
            return theta
        place = <const Py_ssize_t *>cnp.PyArray_DATA(<cnp.ndarray>self.places)
        for i in range(self.n_free * self.width):
            room[i] = theta[place[i]]
        return room

    cdef int terms(self, const double *hat, const int64_t *rows, int64_t first, Py_ssize_t n_rows,
                   const Py_ssize_t *arms, Py_ssize_t n_arms, double **out) except -1 nogil:
        cdef Py_ssize_t p = self.width, n_free = self.n_free, start = 0, count, i, j, k
        cdef Py_ssize_t each = n_free * p if self.places is not None else 0
        cdef int64_t at
        cdef const int32_t *labels = <const int32_t *>cnp.PyArray_DATA(self.labels)
        cdef const double *theta = <const double *>cnp.PyArray_DATA(self.parameters)
        cdef const double *apart = NULL
        cdef const double *table
        cdef Py_ssize_t size = n_free * FR_GLM_BLOCK
        cdef const double **tables = <const double **>malloc(n_free * sizeof(double *))
        cdef double **columns = <double **>malloc(n_free * sizeof(double *))
        cdef double *work = <double *>malloc((3 * size + FR_GLM_BLOCK) * sizeof(double))
        cdef const double **ordered = <const double **>malloc((n_arms + 1) * sizeof(double *))
        cdef double *room = <double *>malloc(max((n_arms + 1) * each, 1) * sizeof(double))
        cdef int32_t label[FR_GLM_BLOCK]
        cdef double *eta = work
        cdef double *hat_eta = work + size
        cdef double *share = work + 2 * size
        cdef double *log_sum = work + 3 * size
        cdef double *column
        cdef const int64_t *block_rows = NULL
        if self.offset is not None:
            apart = <const double *>cnp.PyArray_DATA(<cnp.ndarray>self.offset)
        try:
            if tables == NULL or columns == NULL or work == NULL or ordered == NULL or room == NULL:
                with gil:
                    raise MemoryError()
            for j in range(-1 if hat != NULL else 0, n_arms):
                table = hat if j < 0 else theta + arms[j] * n_free * p
                ordered[j + 1] = self.by_class(table, room + (j + 1) * each if each else NULL)
            while start < n_rows:
                count = min(FR_GLM_BLOCK, n_rows - start)
                if rows != NULL:
                    block_rows = rows + start
                if hat == NULL:
                    for i in range(count):
                        label[i] = labels[block_rows[i] if rows != NULL else first + start + i]
                for j in range(-1 if hat != NULL else 0, n_arms):
                    column = hat_eta if j < 0 else eta
                    for k in range(n_free):
                        tables[k] = ordered[j + 1] + k * p
                        columns[k] = column + k * FR_GLM_BLOCK
                    if fr_glm_predict(&self.rows.model, block_rows, first + start, count, tables, n_free, columns):
                        with gil:
                            raise MemoryError()
                    if apart != NULL:
                        for i in range(count):
                            at = block_rows[i] if rows != NULL else first + start + i
                            for k in range(n_free):
                                columns[k][i] += apart[at * n_free + k]
                    if j < 0:
                        fr_softmax_expand(hat_eta, n_free, count, share, log_sum)
                        continue
                    if hat != NULL:
                        fr_softmax_residuals(eta, hat_eta, share, log_sum, n_free, count, out[j] + start)
                    else:
                        fr_softmax_terms(eta, n_free, label, count, out[j] + start)
                    weigh(self.rows.model.weight, block_rows, first + start, count, out[j] + start)
                start += count
        finally:
            free(tables)
            free(columns)
            free(work)
            free(ordered)
            free(room)
        return 0

    cdef int derive(self, const double *theta, const int64_t *rows, Py_ssize_t n_rows, double *level, double *share,
                    double *label) except -1 nogil:
        cdef Py_ssize_t p = self.width, n_free = self.n_free, first = 0, count, i, k
        cdef const int32_t *labels = <const int32_t *>cnp.PyArray_DATA(self.labels)
        cdef const double *apart = NULL
        cdef const double *ordered
        cdef double *room = <double *>malloc(n_free * p * sizeof(double))
        cdef double *work = <double *>malloc((2 * n_free + 1) * FR_GLM_BLOCK * sizeof(double))
        cdef const double **tables = <const double **>malloc(n_free * sizeof(double *))
        cdef double **columns = <double **>malloc(n_free * sizeof(double *))
        cdef double *shares = work + n_free * FR_GLM_BLOCK
        cdef double *log_sum = work + 2 * n_free * FR_GLM_BLOCK
        if self.offset is not None:
            apart = <const double *>cnp.PyArray_DATA(<cnp.ndarray>self.offset)
        try:
            if room == NULL or work == NULL or tables == NULL or columns == NULL:
                with gil:
                    raise MemoryError()
            ordered = self.by_class(theta, room if self.places is not None else NULL)
            for k in range(n_free):
                tables[k], columns[k] = ordered + k * p, work + k * FR_GLM_BLOCK
            while first < n_rows:
                count = min(FR_GLM_BLOCK, n_rows - first)
                if fr_glm_predict(&self.rows.model, rows + first, 0, count, tables, n_free, columns):
                    with gil:
                        raise MemoryError()
                if apart != NULL:
                    for i in range(count):
                        for k in range(n_free):
                            columns[k][i] += apart[rows[first + i] * n_free + k]
                fr_softmax_expand(work, n_free, count, shares, log_sum)
                for i in range(count):
                    k = labels[rows[first + i]]
                    label[first + i] = k
                    level[first + i] = (columns[k - 1][i] if k else 0.0) - log_sum[i]
                    for k in range(n_free):
                        share[(first + i) * n_free + k] = shares[k * FR_GLM_BLOCK + i]
                weigh(self.rows.model.weight, rows + first, 0, count, level + first)
                first += count
        finally:
            free(room)
            free(work)
            free(tables)
            free(columns)
        return 0

    cdef int cubes(self, const double *steps, const int64_t *rows, Py_ssize_t n_rows, double *out) except -1 nogil:
        """A residual is at most the third derivative along the way, times the cube of the range of its classes, / 6."""
        cdef Py_ssize_t p = self.width, n_free = self.n_free, start = 0, count, i, j, k
        cdef Py_ssize_t each = n_free * p if self.places is not None else 0
        cdef const double *ordered
        cdef double *room = <double *>malloc(max(2 * each, 1) * sizeof(double))
        cdef const double **tables = <const double **>malloc(2 * n_free * sizeof(double *))
        cdef double **columns = <double **>malloc(2 * n_free * sizeof(double *))
        cdef double *moved = <double *>malloc(2 * n_free * FR_GLM_BLOCK * sizeof(double))
        try:
            if tables == NULL or columns == NULL or moved == NULL or room == NULL:
                with gil:
                    raise MemoryError()
            for j in range(2):
                ordered = self.by_class(steps + j * n_free * p, room + j * each if each else NULL)
                for k in range(n_free):
                    tables[j * n_free + k] = ordered + k * p
            for k in range(2 * n_free):
                columns[k] = moved + k * FR_GLM_BLOCK
            while start < n_rows:
                count = min(FR_GLM_BLOCK, n_rows - start)
                if fr_glm_predict(&self.rows.model, rows + start, 0, count, tables, 2 * n_free, columns):
                    with gil:
                        raise MemoryError()
                for i in range(count):
                    out[start + i] = 0.0
                for j in range(2):
                    fr_softmax_cubes(moved + j * n_free * FR_GLM_BLOCK, n_free, count, out + start)
                for i in range(count):
                    out[start + i] /= 6.0
                start += count
        finally:
            free(tables)
            free(columns)
            free(moved)
            free(room)
        return 0


@_checks.rebuilds(1, SoftmaxSource)
def _softmax_source(X, y, theta, n_classes, theta_hat, beside=None):
    """Rebuild a pickled `SoftmaxSource`, or what its expansion leaves."""
    source = SoftmaxSource(X, y, theta, n_classes, check_finite=False, **(beside or {}))
    return source if theta_hat is None else Expanded(source, theta_hat)
