"""Generalised linear models, and differences of two arms, as compiled sources."""

from libc.math cimport lgamma
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy
cimport numpy as cnp

from scipy.linalg.cython_blas cimport dgemm

from fastrace._base._guard cimport guard_await, guard_built, guard_check_built
from fastrace._base._signals cimport check_signals
from fastrace._models._expanded cimport TermSource
from fastrace.sources cimport _BlockSource, Source

import math
import operator

import numpy as np

from fastrace._base import _checks, _frames
from fastrace._models.grouping import as_groups, row_numbers

cnp.import_array()

_FAMILIES = {(<bytes>fr_families[k].name).decode(): k for k in range(FR_N_FAMILIES)}
# outcomes that a family takes: in a word, whether each is one of them, and what is needed
_OUTCOMES = {
    FR_BINARY: ("binary", lambda y: (y == 0) | (y == 1), "0 or 1"),
    FR_COUNT: ("count", lambda y: (y >= 0) & (y == np.floor(y)) & np.isfinite(y), "a whole number from 0 up"),
    FR_REAL: ("real", np.isfinite, "finite"),
}
# of families with a scale: what it is, and an estimate of it
SCALED = {
    "gaussian": ("the standard deviation of y about its mean", "scale = np.sqrt(left @ left / (len(y) - X.shape[1]))"),
    "student-t": ("the scale of the Student distribution of y about its center",
                  "scale = np.median(np.abs(left)) / scipy.stats.t.ppf(0.75, df)"),
}


_CHUNK = 1 << 16          # rows summed at once by NumPy
_CHUNK_CHECKED = 4096     # rows looked at for entries that are not finite


cdef class GLMSource(TermSource):
    r"""Log-likelihoods of a generalised linear model, one parameter vector per arm.

    The reward of arm j on row n is log p(y[n] | X[n] . theta[j]).

    Parameters
    ----------
    X : array_like of real numbers, shape (n_rows, p), frame, or dict of columns
        Explanatory variables. float32 and float64 in native byte order are read in place whatever their strides,
        read-only and memory-mapped ones too; they must then stay as they are. Other dtypes are converted once.
        Errors name the columns of a frame of pandas, polars or Arrow, or of a dict. A sparse table of SciPy is read by
        rows (CSR), at a cost of its entries.
    y : array_like of real numbers, shape (n_rows,)
        Outcomes: 0 or 1 for the logistic family, whole numbers from 0 up for Poisson. Copied.
    theta : array_like of real numbers, shape (n_arms, p), optional
        Parameters, one row per arm; by default one arm of zeros. Assign `theta` or call `set_theta` to replace them.
        Where there are `groups`, their effects follow the p coefficients.
    family : {"logistic", "gaussian", "poisson", "student-t"}, default "logistic"
        "logistic": P(y = 1) = 1 / (1 + exp(-eta)). "gaussian" and "student-t": y - eta over `scale` is standard
        normal or Student-t. "poisson": mean exp(eta); the term -log(y!), which depends on no parameter, is left out
        of the rewards and its sum is given by `constant`.
    scale : float, optional
        Of the Gaussian and Student-t families, which need it, in units of `y`. The others have none.
    df : float, default 4.0
        Degrees of freedom of the Student-t family.
    offset : array_like of real numbers, shape (n_rows,), optional
        Added to eta.
    weights : array_like of whole numbers from 0 up, shape (n_rows,), optional
        How many times each row was seen: its reward is multiplied by this number.
    groups : fastrace.mcmc.Groups, or sequence or dict of these, optional
        Grouping factors. Effects follow the coefficients in `theta` factor by factor and group by group: eta is
        offset + X[n] . coefficients + the effects of the groups of row n. A row costs O(p + effects of its groups).
    support : tuple of float or of arrays of shape (n_arms,), optional
        Interval (low, high) that holds every reward.
    check_finite : bool, default True
        Whether to pass over `X` once and refuse it if an entry is not finite. Say False only for an `X` that has been
        checked, such as a large memory map: the rewards of a row with an entry that is not finite are nan, and a rule
        that happens not to read that row does not notice.

    Attributes
    ----------
    constant : float
        What `totals` lacks to be the log-likelihood: 0 except for the Poisson family.

    Raises
    ------
    ValueError
        If shapes disagree, `X`, `y` or `theta` is not real or not finite, `y` is outside the family's range, or
        `scale` or `df` is not positive.
    TypeError
        If `scale` or `df` is no real number.

    Notes
    -----
    exp and log run as vector code of this package, and each reward depends on its row and its arm alone, bit for bit:
    not on the other rows and arms of the request, the order of rows or the instruction set. From 16 arms and 2048
    multiplications a row on, where BLAS takes over, the last bits may differ from one request to another.

    A full pass over two arms of a logistic model with p = 20 costs a third of the time of
    ``np.logaddexp(0, X @ theta)``: see bench/benchmarks/sources.py.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace.likelihoods import GLMSource
    >>> X = np.array([[1.0, 0.0], [1.0, 2.0], [1.0, -1.0]])
    >>> source = GLMSource(X, y=[0, 1, 1], theta=[[0.0, 0.0], [0.5, 1.0]])
    >>> source.read([1])
    array([[-0.69314718, -0.07888973]])
    >>> source.theta = [[0.0, 0.0], [0.0, 1.0]]
    >>> source.totals().round(4)
    array([-2.0794, -2.1333])
    """

    def __cinit__(self):
        guard_await(&self.guard, 1)

    def __init__(self, X, y, theta=None, family="logistic", scale=None, df=4.0, *, offset=None, weights=None,
                 groups=None, support=None, check_finite=True):
        if family not in _FAMILIES:
            raise ValueError(f"family is {family!r}; choose one of {', '.join(map(repr, _FAMILIES))}")
        if scale is None or isinstance(scale, str):
            if family in SCALED:
                raise (ValueError if scale is None else TypeError)(
                    f"scale is {'missing' if scale is None else repr(scale)}: the {family!r} family needs "
                    f"{SCALED[family][0]}, in units of y. It is not "
                    f"learned, and the posterior's standard deviations are in proportion to it. Estimate it from the "
                    f"residuals of least squares, left = y - X @ np.linalg.lstsq(X, y)[0]: {SCALED[family][1]}. To "
                    f"learn it, write a FunctionModel of fastrace.mcmc with log(scale) among the parameters")
            scale = 1.0 if scale is None else scale
        scale = _checks.positive(scale, "scale", "it divides what the predictor leaves of y")
        df = _checks.positive(df, "df", "it says how heavy the tails are")
        x = _table(X, check_finite)
        outcome = _outcomes(y, x.shape[0])
        _check_outcomes(outcome, family)
        columns, factors, width = _frames.column_names(X), [], x.shape[1]
        groups = tuple(group.resolved(columns, x.shape[1]) for group in as_groups(groups))
        for number, group in enumerate(groups):
            factor = group.laid_out(x.shape[0], width, number)
            width = factor.stop
            factors.append(factor)
        parameters = np.array(np.zeros(width) if theta is None else theta, dtype=np.float64, order="C", ndmin=2)
        _check_theta(parameters, (max(len(parameters), 1), width))
        a_row = (x.nnz / max(x.shape[0], 1) if _is_sparse(x) else x.shape[1]) + sum(f.width for f in factors)
        super().__init__(len(parameters), x.shape[0], scan_advantage=_scan_advantage(x),
                         reward_cost=4.0 + 0.25 * a_row, support=support)
        self.expanded_advantage = self.scan_advantage
        self.expanded_cost = 1.5 * self.reward_cost
        self.X = x
        self.y = outcome.astype(np.float64)
        self.y.flags.writeable = False
        self.offset = row_numbers(offset, "offset", x.shape[0], lambda v: True, "finite")
        self.weights = row_numbers(weights, "weights", x.shape[0], _are_counts, "a whole number from 0 up")
        self.groups = groups
        self.factors = tuple(factors)
        self.parameters = parameters
        self.family = family
        self.scale = scale
        self.df = df
        self.constant = 0.0
        self.signs = None
        self.kept = []
        self.hold_columns()
        self.hold_factors()
        self.model.n_parameters = width
        self.model.family = _FAMILIES[family]
        self.model.y = <const double *>cnp.PyArray_DATA(self.y)
        self.model.sign = NULL
        self.model.scale = self.scale
        self.model.df = self.df
        self.model.gemm = dgemm
        fr_glm_ready(&self.model)
        if self.outcomes == "binary":
            # One byte an outcome: rows read at random then miss the cache once, not twice.
            self.signs = np.where(self.y > 0.0, 1, -1).astype(np.int8)
            self.model.sign = <const signed char *>cnp.PyArray_DATA(self.signs)
        elif self.outcomes == "count":
            self.constant = -_sum_of_log_factorials(self.y, self.weights)
        guard_built(&self.guard, 1)

    def __dealloc__(self):
        free(self.c_factors)

    cdef int hold_columns(self) except -1:
        """Let the C struct see X."""
        self.model.n_columns = self.X.shape[1]
        self.model.single = self.X.dtype.type is np.float32
        if not _is_sparse(self.X):
            self.model.x = <const char *>cnp.PyArray_DATA(self.X)
            self.model.row_stride, self.model.column_stride = self.X.strides
            return 0
        begin, column = self.X.indptr.astype(np.int64), self.X.indices.astype(np.int32, copy=False)
        self.kept += [begin, column, self.X.data]
        self.c_sparse.begin = <const int64_t *>cnp.PyArray_DATA(begin)
        self.c_sparse.column = <const int32_t *>cnp.PyArray_DATA(column)
        self.c_sparse.value = <const char *>cnp.PyArray_DATA(self.X.data)
        self.c_sparse.single = self.model.single
        self.model.sparse = &self.c_sparse
        return 0

    cdef int hold_factors(self) except -1:
        """Let the C struct see the offset, the weights and the grouping factors."""
        cdef fr_factor *f
        if self.offset is not None:
            self.model.offset = <const double *>cnp.PyArray_DATA(self.offset)
        if self.weights is not None:
            self.model.weight = <const double *>cnp.PyArray_DATA(self.weights)
        self.c_factors = <fr_factor *>calloc(max(len(self.factors), 1), sizeof(fr_factor))
        if self.c_factors == NULL:
            raise MemoryError()
        for k, factor in enumerate(self.factors):
            z = self.X if factor.table is None else factor.table
            if factor.columns and _is_sparse(z):
                z = z[:, list(factor.columns)].toarray()
                places = np.arange(len(factor.columns), dtype=np.intp) * z.strides[1]
            elif factor.columns:
                places = np.array(factor.columns, dtype=np.intp) * z.strides[1]
            else:
                places = np.arange(factor.width - factor.intercept, dtype=np.intp) * z.dtype.itemsize
            codes = np.ascontiguousarray(factor.codes, dtype=np.int32)
            self.kept += [codes, places, z]
            f = &self.c_factors[k]
            f.code = <const int32_t *>cnp.PyArray_DATA(codes)
            f.start, f.width, f.intercept = factor.start, factor.width, factor.intercept
            f.column = <const Py_ssize_t *>cnp.PyArray_DATA(places)
            if len(places):
                f.z = <const char *>cnp.PyArray_DATA(z)
                f.row_stride = z.strides[0]
                f.single = z.dtype.type is np.float32
        self.model.factors = self.c_factors
        self.model.n_factors = len(self.factors)
        return 0

    def __reduce__(self):
        guard_check_built(&self.guard, self)
        plain = (np.asarray(self.X) if not _is_sparse(self.X) else self.X, np.asarray(self.y),
                 np.asarray(self.parameters), self.family, self.scale, self.df, self.support)
        more = self.beside()
        return _glm_source.saved(*plain) if not more else _glm_source.saved(*plain, more)

    def beside(self):
        """The arguments after df that are not their defaults, by name: what another source of the rows needs."""
        guard_check_built(&self.guard, self)
        more = {"offset": self.offset, "weights": self.weights, "groups": self.groups or None}
        return {name: value for name, value in more.items() if value is not None}

    # What `_math/c/_families.h` says of the family.

    @property
    def outcomes(self):
        """"binary" for outcomes 0 and 1, "count" for 0, 1, 2, ..., "real" for any number."""
        return _OUTCOMES[fr_families[self.model.family].outcomes][0]

    @property
    def of_residual(self):
        """Whether a term is a function of y - eta; else it is linear in y."""
        return fr_families[self.model.family].form == FR_OF_RESIDUAL

    @property
    def steepest(self):
        """Largest absolute derivative of a term in eta, maybe infinite."""
        return fr_families[self.model.family].steepest(self.scale, self.df)

    def third_derivatives(self, low=-math.inf, high=math.inf):
        """Largest absolute third derivative of a term for eta from `low` to `high`, by element; maybe infinite.

        Whatever the outcome y, or for eta - y in that interval where a term is a function of it (`of_residual`).
        """
        cdef double[::1] lows, highs
        cdef cnp.ndarray out
        cdef Py_ssize_t i
        low, high = np.broadcast_arrays(np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64))
        lows, highs = np.array(low).ravel(), np.array(high).ravel()
        out = np.empty(lows.shape[0])
        for i in range(lows.shape[0]):
            out[i] = fr_families[self.model.family].third(self.scale, self.df, lows[i], highs[i])
        return out.reshape(low.shape)[()]

    def expand(self, y, eta):
        """Terms of outcomes `y` at predictors `eta` of the same shape (k,), and their first two derivatives in eta."""
        guard_check_built(&self.guard, self)
        cdef Py_ssize_t n = len(eta), i
        cdef cnp.ndarray outcome = np.empty(n), out = np.empty((3, n))
        cdef double *parts = <double *>cnp.PyArray_DATA(out)
        cdef double *of = <double *>cnp.PyArray_DATA(outcome)
        outcome[:] = y
        out[0] = eta
        if self.model.sign != NULL:
            for i in range(n):
                of[i] = 1.0 if of[i] > 0.0 else -1.0
        fr_glm_expand(&self.model, of, n, parts, parts + n, parts + 2 * n)
        return out[0], out[1], out[2]

    @property
    def theta(self):
        """Parameters, shape (n_arms, p): a copy to read, or a value to assign, as `set_theta` does."""
        guard_check_built(&self.guard, self)
        return self.parameters.copy()

    @theta.setter
    def theta(self, values):
        self.set_theta(values)

    def set_theta(self, values):
        """Replace the parameters of all arms.

        Parameters
        ----------
        values : array_like of real numbers, shape (n_arms, p)
            Copied. A float64 array in C order costs least.

        Raises
        ------
        ValueError
            If the shape differs or a value is not finite; the parameters then stay as they were.
        """
        cdef cnp.ndarray array
        cdef const double *x
        guard_check_built(&self.guard, self)
        cdef Py_ssize_t i, size = self.n_arms * self.model.n_parameters
        cdef double sum = 0.0
        if type(values) is np.ndarray and cnp.PyArray_TYPE(values) == cnp.NPY_DOUBLE \
                and cnp.PyArray_ISCARRAY_RO(values):
            array = values
        else:
            array = np.ascontiguousarray(values, dtype=np.float64)
        if array.ndim != 2 or array.shape[0] != self.n_arms or array.shape[1] != self.model.n_parameters:
            _check_theta(array, (self.n_arms, self.model.n_parameters))
        x = <const double *>cnp.PyArray_DATA(array)
        for i in range(size):
            sum += x[i] - x[i]      # nan unless all are finite
        if sum != 0.0:
            _check_theta(array, (self.n_arms, self.model.n_parameters))
        memcpy(cnp.PyArray_DATA(self.parameters), x, size * sizeof(double))

    cdef int terms(self, const double *about, const int64_t *rows, int64_t first, Py_ssize_t n_rows,
                   const Py_ssize_t *arms, Py_ssize_t n_arms, double **out) except -1 nogil:
        if fr_glm_fill(&self.model, <const double *>cnp.PyArray_DATA(self.parameters), about, rows, first, n_rows, arms,
                       n_arms, out):
            with gil:
                raise MemoryError()
        return 0

    cdef int total(self, const Py_ssize_t *arms, Py_ssize_t n_arms, double *out) except -1 nogil:
        cdef Py_ssize_t p = self.model.n_columns, j, a, b
        cdef const double *theta = <const double *>cnp.PyArray_DATA(self.parameters)
        cdef const double *centre
        cdef const double *gram
        cdef const double *cross
        cdef double squares, step, product, inverse = 1.0 / self.scale
        if self.model.family != FR_GAUSSIAN or self.model.n_factors or self.model.sparse != NULL:
            return Source.total(self, arms, n_arms, out)
        with gil:
            if self.gram is None:
                self.summarise()
        centre = <const double *>cnp.PyArray_DATA(self.centre)
        gram = <const double *>cnp.PyArray_DATA(self.gram)
        cross = <const double *>cnp.PyArray_DATA(self.cross)
        for j in range(n_arms):
            squares = self.residual
            for a in range(p):
                step = theta[arms[j] * p + a] - centre[a]
                product = -2.0 * cross[a]
                for b in range(p):
                    product += gram[a * p + b] * (theta[arms[j] * p + b] - centre[b])
                squares += step * product
            squares = 0.0 if squares < 0.0 else squares         # but not nan
            out[j] = (self.weight * fr_families[FR_GAUSSIAN].constant(self.scale, self.df)
                      - 0.5 * inverse * inverse * squares)
        return 0

    cdef int summarise(self) except -1:
        """The sufficient statistics of the Gaussian family, in one pass: later full passes cost next to nothing."""
        p = self.X.shape[1]
        centre = np.asarray(self.parameters).mean(axis=0)
        gram, cross, residual = np.zeros((p, p)), np.zeros(p), 0.0
        self.weight = self.n_rows if self.weights is None else self.weights.sum()
        for first in range(0, self.n_rows, _CHUNK):
            x = np.asarray(self.X[first:first + _CHUNK], dtype=np.float64)
            left = self.y[first:first + _CHUNK] - x @ centre
            if self.offset is not None:
                left -= self.offset[first:first + _CHUNK]
            if self.weights is not None:
                root = np.sqrt(self.weights[first:first + _CHUNK])
                x, left = root[:, None] * x, root * left
            gram += x.T @ x
            cross += x.T @ left
            residual += left @ left
            check_signals()
        self.centre, self.gram, self.cross, self.residual = centre, gram, cross, residual
        self.scan_advantage = 1e9
        return 0

    def derivatives(self, theta_hat, first=0, count=None):
        """Log-likelihood and its first two derivatives in eta = X . theta_hat, on consecutive rows.

        Parameters
        ----------
        theta_hat : array_like of real numbers, shape (p,)
            Where to take them.
        first : int, default 0
            First row.
        count : int, optional
            Number of rows; all from `first` on by default.

        Returns
        -------
        value, slope, curvature : ndarray of float64, shape (count,)
        """
        guard_check_built(&self.guard, self)
        cdef cnp.ndarray hat = np.ascontiguousarray(theta_hat, dtype=np.float64)
        _check_theta(hat[None], (1, self.model.n_parameters))
        cdef int64_t start = operator.index(first)
        cdef int64_t length = self.n_rows - start if count is None else operator.index(count)
        if not (0 <= start and 0 <= length and start + length <= self.n_rows):
            raise ValueError(f"rows {first} to {start + length} were asked for; the source has rows 0 to {self.n_rows}")
        cdef cnp.ndarray out = np.empty((3, length))
        cdef double *to = <double *>cnp.PyArray_DATA(out)
        cdef int failed
        with nogil:
            failed = fr_glm_derivatives(&self.model, <const double *>cnp.PyArray_DATA(hat), start, length, to,
                                        to + length, to + 2 * length)
        if failed:
            raise MemoryError()
        return out[0], out[1], out[2]


def _check_theta(theta, shape):
    if theta.shape != shape:
        raise ValueError(f"theta has shape {theta.shape}; {shape}, one row of parameters per arm, is needed")
    if not np.isfinite(theta).all():
        raise ValueError(f"theta holds {theta[~np.isfinite(theta)][0]}; parameters must be finite")


def _require_finite(table, names):
    """Raise unless all entries of the explanatory variables are finite; in chunks, as they may lie in a file."""
    for first in range(0, len(table), _CHUNK_CHECKED):
        good = np.isfinite(table[first : first + _CHUNK_CHECKED])
        if not good.all():
            row, column = np.argwhere(~good)[0]
            called = column if names is None else repr(names[column])
            raise ValueError(f"X[{first + row}, {called}] is {table[first + row, column]}; finite numbers are needed")


def _check_outcomes(y, family):
    _, good, needed = _OUTCOMES[fr_families[<int>_FAMILIES[family]].outcomes]
    with np.errstate(invalid="ignore"):
        bad = ~good(y)
    if bad.any():
        row = int(bad.argmax())
        raise ValueError(f"y[{row}] is {y[row]}; each outcome of the {family} family must be {needed}")


cdef double _sum_of_log_factorials(cnp.ndarray y, weights):
    cdef const double *x = <const double *>cnp.PyArray_DATA(y)
    cdef const double *w = NULL
    cdef Py_ssize_t i
    cdef double sum = 0.0
    if weights is not None:
        w = <const double *>cnp.PyArray_DATA(weights)
    for i in range(y.shape[0]):
        sum += lgamma(x[i] + 1.0) * (1.0 if w == NULL else w[i])
    return sum


def _are_counts(values):
    return (values >= 0.0) & (values == np.floor(values))


def _is_sparse(x):
    """Whether X is a sparse table of SciPy: such a table alone has `nnz`."""
    return hasattr(x, "nnz")


def _table(X, check_finite):
    """X as the C code reads it: an aligned array of floats, or a CSR table of them without doubles."""
    if hasattr(X, "tocsr"):
        x = X.tocsr()
        if x.ndim != 2 or x.dtype.kind not in "fiub" or x.shape[1] == 0 or x.shape[1] > 2**31 - 1:
            raise ValueError(f"X has shape {x.shape} and dtype {x.dtype}; real numbers of shape (n_rows, p), with at "
                             f"least one column, are needed")
        if not x.has_canonical_format:
            x = x.copy()
            x.sum_duplicates()
        if x.dtype.type not in (np.float32, np.float64):
            x = x.astype(np.float64)
        if check_finite and not np.isfinite(x.data).all():
            raise ValueError("X has entries that are not finite; finite numbers are needed")
        return x
    x = _frames.as_table(X, "X", "a table of numbers")
    if np.ma.is_masked(x):
        raise ValueError("X has masked entries; every row has a term, so fill or drop those rows first")
    x = np.asarray(x)
    if x.ndim != 2 or x.dtype.kind not in "fiub" or x.shape[1] == 0:
        raise ValueError(f"X has shape {x.shape} and dtype {x.dtype}; real numbers of shape (n_rows, p), with at "
                         f"least one column, are needed")
    if x.dtype.type not in (np.float32, np.float64) or not x.dtype.isnative:
        x = x.astype(np.float64)
    if not x.flags.aligned:
        x = x.copy()
    if check_finite:
        _require_finite(x, _frames.column_names(X))
    return x


def _outcomes(y, n_rows):
    outcome = _frames.as_table(y, "y", "a vector of numbers")
    if np.ma.is_masked(outcome):
        raise ValueError("y has masked entries; every row has a term, so fill or drop those rows first")
    outcome = np.asarray(outcome)
    if outcome.shape != (n_rows,) or outcome.dtype.kind not in "fiub":
        raise ValueError(f"y has shape {outcome.shape} and dtype {outcome.dtype}; real numbers of shape "
                         f"({n_rows},), one for each row of X, are needed")
    return outcome


def _scan_advantage(x):
    # Measured, two arms on 10^6 rows of 20: 51 ns at random, 26 in order in float64; 49 and 19 in float32.
    return 2.2 if (x.data.nbytes if _is_sparse(x) else x.nbytes) > 1 << 24 else 1.2


@_checks.rebuilds(1, GLMSource)
def _glm_source(X, y, theta, family, scale, df, support, beside=None):
    """Rebuild a pickled `GLMSource`."""
    return GLMSource(X, y, theta, family, scale, df, support=support, check_finite=False, **(beside or {}))


cdef class PairSource(_BlockSource):
    """The reward of one arm less that of another, as a source with one arm.

    With the log-likelihoods of the current and the proposed parameters as two arms it is what a Metropolis-Hastings
    step compares with its threshold.

    Parameters
    ----------
    source : Source
        Where the two arms come from. If it has a `support`, so has the pair.
    arm_a, arm_b : int, default 0 and 1
        The reward is that of `arm_b` less that of `arm_a`.

    Raises
    ------
    ValueError
        If an arm is not one of the source's.

    Examples
    --------
    >>> from fastrace.likelihoods import PairSource
    >>> from fastrace.sources import ArraySource
    >>> pair = PairSource(ArraySource([[1.0, 5.0], [2.0, 2.5]]))
    >>> pair.read([0, 1])
    array([[4. ],
           [0.5]])
    >>> pair.totals()
    array([4.5])
    """

    def __cinit__(self):
        guard_await(&self.guard, 1)

    def __init__(self, Source source not None, arm_a=0, arm_b=1):
        guard_check_built(&source.guard, source)
        for name, arm in (("arm_a", arm_a), ("arm_b", arm_b)):
            if not 0 <= arm < source.n_arms:
                raise ValueError(f"{name} is {arm}; the source has arms 0 to {source.n_arms - 1}")
        support = None
        if source.support is not None:
            low, high = (np.broadcast_to(np.asarray(end, dtype=np.float64), (source.n_arms,)) for end in source.support)
            support = (float(low[arm_b] - high[arm_a]), float(high[arm_b] - low[arm_a]))
        super().__init__(1, source.n_rows, scan_advantage=source.scan_advantage,
                         reward_cost=2.0 * source.reward_cost, first_look=source.first_look,
                         support=support)
        self.source = source
        self.pair[0] = arm_a
        self.pair[1] = arm_b
        guard_built(&self.guard, 1)

    def __reduce__(self):
        guard_check_built(&self.guard, self)
        return _pair_source.saved(self.source, self.pair[0], self.pair[1], self.support)

    @property
    def arm_a(self):
        """The arm whose reward is taken off."""
        return self.pair[0]

    @property
    def arm_b(self):
        """The arm whose reward counts."""
        return self.pair[1]

    cdef int block(self, const int64_t *rows, int64_t first, Py_ssize_t n_rows, const Py_ssize_t *arms,
                   Py_ssize_t n_arms, double **out) except -1 nogil:
        cdef double *column[2]
        cdef double *other = <double *>malloc(max(n_rows, 1) * sizeof(double))
        cdef Py_ssize_t i, j
        if other == NULL:
            with gil:
                raise MemoryError()
        column[0] = other
        try:
            for j in range(n_arms):
                column[1] = out[j]
                if rows != NULL:
                    self.source.fill(rows, n_rows, self.pair, 2, column)
                else:
                    self.source.fill_range(first, n_rows, self.pair, 2, column)
                for i in range(n_rows):
                    out[j][i] -= other[i]
        finally:
            free(other)
        return 0

    cdef int total(self, const Py_ssize_t *arms, Py_ssize_t n_arms, double *out) except -1 nogil:
        cdef double[2] sums
        cdef Py_ssize_t j
        self.source.total(self.pair, 2, sums)
        for j in range(n_arms):
            out[j] = sums[1] - sums[0]
        return 0

    cdef int add_sums(self, int64_t first, int64_t n_rows, const Py_ssize_t *arms, Py_ssize_t n_arms,
                      double *out) except -1 nogil:
        cdef double[2] sums
        cdef Py_ssize_t j
        sums[0] = sums[1] = 0.0
        self.source.add_sums(first, n_rows, self.pair, 2, sums)
        for j in range(n_arms):
            out[j] += sums[1] - sums[0]
        return 0

    cdef int shift(self, const Py_ssize_t *arms, Py_ssize_t n_arms, double *out) except -1 nogil:
        cdef double known[2]
        cdef Py_ssize_t j
        self.source.shift(self.pair, 2, known)
        for j in range(n_arms):
            out[j] = known[1] - known[0]
        return 0


@_checks.rebuilds(1, PairSource)
def _pair_source(source, arm_a, arm_b, support):
    """Rebuild a pickled `PairSource`."""
    pair = PairSource(source, arm_a, arm_b)
    pair.support = support
    return pair
