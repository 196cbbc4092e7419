"""Generalised linear models, and differences of two arms, as compiled sources."""

from libc.math cimport exp, lgamma
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free, malloc
cimport numpy as cnp

from scipy.linalg.cython_blas cimport dgemm

from fastrace._base._guard cimport guard_await, guard_built, guard_check_built
from fastrace._base._signals cimport check_signals
from fastrace._math._bounds cimport cubic_move
from fastrace._models._expanded cimport TermSource
from fastrace.sources cimport _BlockSource, Source

import math
import operator

import numpy as np
from scipy.special import gammaln

from fastrace._base import _checks, _frames
from fastrace._models._expanded import check_theta
from fastrace._models.glm_inputs import (
    SCALED, are_counts, check_outcomes, design_table, is_learned, is_sparse, outcome_vector, scan_advantage, trials_of,
)
from fastrace._models.grouping import as_groups, row_numbers

cnp.import_array()

_FAMILIES = {(<bytes>fr_families[k].name).decode(): k for k in range(FR_N_FAMILIES)}
_KINDS = {FR_BINARY: "binary", FR_COUNT: "count", FR_REAL: "real", FR_SHARE: "share", FR_POSITIVE: "positive"}
_CHUNK = 1 << 16          # rows summed at once by NumPy


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
        Outcomes: 0 or 1 for "logistic", "probit" and "cloglog", whole numbers from 0 up for "binomial", "poisson" and
        "negative-binomial", positive for "gamma". Copied.
    theta : array_like of real numbers, shape (n_arms, p), optional
        Parameters, one row per arm; by default one arm of zeros. Assign `theta` or call `set_theta` to replace them.
        They go by position, in the order of the columns of `X`, even if they are a series or frame with names.
        Where there are `groups`, their effects follow the p coefficients.
    family : str, default "logistic"
        "logistic": P(y = 1) = 1 / (1 + exp(-eta)). "probit": the normal distribution function of eta. "cloglog":
        1 - exp(-exp(eta)). "binomial": `y` successes of `trials`, each with the probability of "logistic".
        "gaussian" and "student-t": y - eta over `scale` is standard normal or Student-t. "poisson": mean exp(eta).
        "negative-binomial": mean exp(eta), variance mean + scale mean^2. "gamma": mean exp(eta), variance scale mean^2.
        What depends on no parameter, such as -log(y!), is left out of the rewards; its sum is `constant`.
    scale : float, optional
        Of the Gaussian and Student-t families in units of `y`, of the negative binomial and gamma families the
        dispersion. These need it, unless `learn_scale` is set. The others have none.
    df : float, default 4.0
        Degrees of freedom of the Student-t family.
    offset : array_like of real numbers, shape (n_rows,), optional
        Added to eta.
    weights : array_like of whole numbers from 0 up, shape (n_rows,), optional
        How many times each row was seen: its reward is multiplied by this number.
    trials : array_like of whole numbers from 0 up, shape (n_rows,), optional
        Of the binomial family; 1 by default.
    groups : fastrace.mcmc.Groups, or sequence or dict of these, optional
        Grouping factors. Effects follow the coefficients in `theta` factor by factor and group by group: eta is
        offset + X[n] . coefficients + the effects of the groups of row n. A row costs O(p + effects of its groups).
    learn_scale : bool, default False
        Whether the last parameter of each arm is the logarithm of the scale, which then reads 1. Rewards leave out what
        depends on `y` alone.
    support : tuple of float or of arrays of shape (n_arms,), optional
        Interval (low, high) that holds every reward.
    check_finite : bool, default True
        Whether to pass over `X` once and refuse it if an entry is not finite. Say False only for an `X` that has been
        checked, such as a large memory map: the rewards of a row with an entry that is not finite are nan, and a rule
        that happens not to read that row does not notice.

    Attributes
    ----------
    constant : float
        What `totals` lacks to be the log-likelihood.

    Raises
    ------
    ValueError
        If shapes or pandas indexes disagree, `X`, `y` or `theta` is not real or not finite, `y` is outside the family's
        range, or `scale` or `df` is not positive.
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
                 trials=None, groups=None, learn_scale=False, support=None, check_finite=True):
        if not isinstance(family, str) or family not in _FAMILIES:
            raise ValueError(f"family is {family!r}; choose one of {', '.join(map(repr, _FAMILIES))}")
        learns_scale = is_learned(family, scale, learn_scale)
        scale = 1.0 if scale is None else _checks.positive(scale, "scale", "it divides what the predictor leaves of y")
        df = _checks.positive(df, "df", "it says how heavy the tails are")
        groups = as_groups(groups)
        _frames.require_same_rows(X=X, y=y, offset=offset, weights=weights, trials=trials, groups=groups)
        x = design_table(X, check_finite)
        outcome = outcome_vector(y, x.shape[0])
        check_outcomes(outcome, family, _KINDS[fr_families[<int>_FAMILIES[family]].outcomes])
        columns, factors, width = _frames.column_names(X), [], x.shape[1]
        groups = tuple(group.resolved(columns, x.shape[1]) for group in groups)
        for number, group in enumerate(groups):
            factor = group.laid_out(x.shape[0], width, number)
            width = factor.stop
            factors.append(factor)
        width += learns_scale
        parameters = np.atleast_2d(np.zeros(width) if theta is None else _checks.floats(theta, "theta"))
        check_theta(parameters, (max(len(parameters), 1), width))
        a_row = (x.nnz / max(x.shape[0], 1) if is_sparse(x) else x.shape[1]) + sum(f.width for f in factors)
        super().__init__(len(parameters), x.shape[0], scan_advantage=scan_advantage(x),
                         reward_cost=4.0 + 0.25 * a_row, support=support)
        self.expanded_advantage = self.scan_advantage
        self.expanded_cost = 1.5 * self.reward_cost
        self.X = x
        self.y = outcome.astype(np.float64)
        self.y.flags.writeable = False
        self.offset = row_numbers(offset, "offset", x.shape[0], lambda v: True, "finite")
        self.weights = row_numbers(weights, "weights", x.shape[0], are_counts, "a whole number from 0 up")
        self.trials = trials_of(trials, self.y, family, _KINDS[fr_families[<int>_FAMILIES[family]].outcomes])
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
        self.model.learned = self.learns_scale = learns_scale
        self.knows_moves = not learns_scale
        self.model.scale = self.scale
        self.model.df = self.df
        self.model.gemm = dgemm
        fr_glm_ready(&self.model)
        self.hold_outcomes()
        guard_built(&self.guard, 1)

    def __dealloc__(self):
        free(self.c_factors)

    cdef int hold_columns(self) except -1:
        """Let the C struct see X."""
        self.model.n_columns = self.X.shape[1]
        self.model.single = self.X.dtype.type is np.float32
        if not is_sparse(self.X):
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

    cdef int hold_outcomes(self) except -1:
        """Let the C struct see outcomes and what terms are multiplied by; the constant that the terms leave out."""
        outcome, left_out, kind = self.y, self._left_out(), self.outcomes
        if kind == "binary":
            # One byte an outcome: rows read at random then miss the cache once, not twice.
            self.signs = np.where(self.y > 0.0, 1, -1).astype(np.int8)
            self.model.sign = <const signed char *>cnp.PyArray_DATA(self.signs)
        elif self.trials is not None:
            outcome = self.y / np.maximum(self.trials, 1.0)
            self.kept.append(outcome)
        self.model.y = <const double *>cnp.PyArray_DATA(outcome)
        self.constant = -_sum_of_log_factorials(self.y, self.weights) if kind == "count" else 0.0
        if left_out is not None:
            self.constant = float(left_out.sum() if self.weights is None else left_out @ self.weights)
        left_out = self._left_out_by_scale()
        if left_out is not None:
            self.constant += float(left_out.sum() if self.weights is None else left_out @ self.weights)
        self.term_weights = self.weights
        if self.trials is not None:
            self.term_weights = self.trials if self.weights is None else self.trials * self.weights
        if self.term_weights is not None:
            self.model.weight = <const double *>cnp.PyArray_DATA(self.term_weights)
        return 0

    def _left_out(self):
        """What the terms of rows seen once leave out, since no parameter changes it; None for nothing, and counts."""
        if self.trials is not None:
            return gammaln(self.trials + 1.0) - gammaln(self.y + 1.0) - gammaln(self.trials - self.y + 1.0)
        return -np.log(self.y) if self.outcomes == "positive" else None

    def _left_out_by_scale(self):
        """The same for what depends on a scale that is not learned; None for nothing."""
        if self.family not in SCALED or self.learns_scale or self.outcomes == "real":
            return None
        out = np.empty(self.n_rows)
        fr_glm_extra(&self.model, self.model.y, self.n_rows, <double *>cnp.PyArray_DATA(out))
        return out

    def _row_constants(self):
        """What each term leaves out of its row's log density, since no parameter changes it, shape (n_rows,)."""
        out = np.zeros(self.n_rows)
        for part in (self._left_out(), self._left_out_by_scale(),
                     -gammaln(np.asarray(self.y) + 1.0) if self.outcomes == "count" else None):
            if part is not None:
                out += part
        return out if self.weights is None else out * self.weights

    cdef int hold_factors(self) except -1:
        """Let the C struct see the offset and the grouping factors."""
        cdef fr_factor *f
        if self.offset is not None:
            self.model.offset = <const double *>cnp.PyArray_DATA(self.offset)
        self.c_factors = <fr_factor *>calloc(max(len(self.factors), 1), sizeof(fr_factor))
        if self.c_factors == NULL:
            raise MemoryError()
        for k, factor in enumerate(self.factors):
            z = self.X if factor.table is None else factor.table
            if factor.columns and is_sparse(z):
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
        plain = (np.asarray(self.X) if not is_sparse(self.X) else self.X, np.asarray(self.y),
                 np.asarray(self.parameters), self.family, self.scale, self.df, self.support)
        more = self.beside()
        return _glm_source.saved(*plain) if not more else _glm_source.saved(*plain, more)

    def beside(self):
        """The arguments after df that are not their defaults, by name: what another source of the rows needs."""
        guard_check_built(&self.guard, self)
        more = {"offset": self.offset, "weights": self.weights, "trials": self.trials, "groups": self.groups or None,
                "learn_scale": self.learns_scale or None}
        return {name: value for name, value in more.items() if value is not None}

    # What `_math/c/_families.h` says of the family.

    @property
    def outcomes(self):
        """"binary" for outcomes 0 and 1, "count" for 0, 1, 2, ..., "share" for successes of a number of trials,
        "positive" and "real" for such numbers.
        """
        return _KINDS[fr_families[self.model.family].outcomes]

    @property
    def of_residual(self):
        """Whether a term with a fixed scale is a function of y - eta; else it is linear in y."""
        return fr_families[self.model.family].form == FR_OF_RESIDUAL

    @property
    def steepest(self):
        """Largest absolute derivative of a term in eta, maybe infinite."""
        return fr_families[self.model.family].steepest(self.scale, self.df)

    def third_derivatives(self, low=-math.inf, high=math.inf, y=math.nan):
        """Largest absolute third derivative of a term for eta from `low` to `high`, by element; maybe infinite.

        Of outcomes `y`, or of any outcome where it is nan; of eta - y in that interval where a term is a function of it
        (`of_residual`). Without weights, and of a single trial.
        """
        cdef double[::1] lows, highs, of
        cdef cnp.ndarray out
        cdef Py_ssize_t i
        low, high, y = np.broadcast_arrays(*map(_checks.floats, (low, high, y), ("low", "high", "y")))
        lows, highs, of = np.array(low).ravel(), np.array(high).ravel(), np.array(y).ravel()
        out = np.empty(lows.shape[0])
        for i in range(lows.shape[0]):
            out[i] = fr_families[self.model.family].third(self.scale, self.df, of[i], lows[i], highs[i])
        return out.reshape(low.shape)[()]

    def mixed_third_derivatives(self, low, high, y, first, last):
        """With a learned scale: bounds on the third derivatives in eta and the logarithm aux of the scale.

        Of terms of outcomes `y`, shape (k,), without weights, for eta from `low` to `high` and aux from `first` to
        `last`.

        Returns
        -------
        ndarray of shape (4, k)
            In (eta, eta, eta), (eta, eta, aux), (eta, aux, aux) and (aux, aux, aux).
        """
        cdef double[::1] lows, highs, of
        cdef double[:, ::1] bounds
        cdef double[4] found
        cdef Py_ssize_t i, k
        cdef double start = first, stop = last
        if not self.learns_scale:
            raise ValueError("the scale is not learned")
        low, high, y = np.broadcast_arrays(*map(_checks.floats, (low, high, y), ("low", "high", "y")))
        lows, highs, of = np.array(low), np.array(high), np.array(y)
        out = np.empty((4, len(low)))
        bounds = out
        for i in range(lows.shape[0]):
            fr_mixed_third(self.model.family, self.df, of[i], lows[i], highs[i], start, stop, found)
            for k in range(4):
                bounds[k, i] = found[k]
        return out

    def expand(self, y, eta):
        """Terms of outcomes `y` at predictors `eta` of the same shape (k,), and their first two derivatives in eta."""
        guard_check_built(&self.guard, self)
        _checks.unmasked(y, "y")
        _checks.unmasked(eta, "eta")
        cdef Py_ssize_t n = len(eta), i
        cdef cnp.ndarray outcome = np.empty(n), out = np.empty((3, n))
        cdef double *parts = <double *>cnp.PyArray_DATA(out)
        cdef double *of = <double *>cnp.PyArray_DATA(outcome)
        outcome[:] = y
        out[0] = eta
        if self.learns_scale:
            raise ValueError("the scale is learned, so a term has no expansion in eta alone")
        if self.model.sign != NULL:
            for i in range(n):
                of[i] = 1.0 if of[i] > 0.0 else -1.0
        fr_glm_expand(&self.model, of, n, parts, parts + n, parts + 2 * n)
        return out[0], out[1], out[2]

    cdef int mirror_at(self, middle) except -1:
        """From now on arm 2 k + 1 holds twice these parameters less those of arm 2 k; in turn they share a product."""
        point = np.array(middle, dtype=np.float64)
        if point.shape != (self.model.n_parameters,) or self.learns_scale:
            raise ValueError(f"middle has shape {point.shape}; ({self.model.n_parameters},) and a fixed scale are "
                             f"needed")
        self.middle = point
        self.model.mirror = <const double *>cnp.PyArray_DATA(self.middle)
        return 0

    cdef int terms(self, const double *about, const int64_t *rows, int64_t first, Py_ssize_t n_rows,
                   const Py_ssize_t *arms, Py_ssize_t n_arms, double **out) except -1 nogil:
        if fr_glm_fill(&self.model, <const double *>cnp.PyArray_DATA(self.parameters), about, rows, first, n_rows, arms,
                       n_arms, out):
            with gil:
                raise MemoryError()
        return 0

    cdef int cubes(self, const double *steps, const int64_t *rows, Py_ssize_t n_rows, double *out) except -1 nogil:
        cdef double after[FR_GLM_BLOCK]
        cdef const double *step[2]
        cdef double *moved[2]
        cdef Py_ssize_t start = 0, count, i
        cdef fr_glm moves = self.model
        moves.offset = NULL
        step[0], step[1] = steps, steps + moves.n_parameters
        moved[1] = after
        while start < n_rows:
            count = min(FR_GLM_BLOCK, n_rows - start)
            moved[0] = out + start
            if fr_glm_predict(&moves, rows + start, 0, count, step, 2, moved):
                with gil:
                    raise MemoryError()
            for i in range(count):
                moved[0][i] = cubic_move(moved[0][i], after[i])
            start += count
        return 0

    cdef int total(self, const Py_ssize_t *arms, Py_ssize_t n_arms, double *out) except -1 nogil:
        cdef Py_ssize_t p = self.model.n_columns, n = self.model.n_parameters, j, a, b
        cdef const double *theta = <const double *>cnp.PyArray_DATA(self.parameters)
        cdef const double *centre
        cdef const double *gram
        cdef const double *cross
        cdef double squares, step, product, scale = self.scale
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
                step = theta[arms[j] * n + a] - centre[a]
                product = -2.0 * cross[a]
                for b in range(p):
                    product += gram[a * p + b] * (theta[arms[j] * n + b] - centre[b])
                squares += step * product
            squares = 0.0 if squares < 0.0 else squares         # but not nan
            if self.learns_scale:
                scale = exp(theta[arms[j] * n + p])
            out[j] = (self.weight * fr_families[FR_GAUSSIAN].constant(scale, self.df)
                      - 0.5 * (1.0 / scale) * (1.0 / scale) * squares)
        return 0

    cdef int summarise(self) except -1:
        """The sufficient statistics of the Gaussian family, in one pass: later full passes cost next to nothing."""
        p = self.X.shape[1]
        centre = np.asarray(self.parameters)[:, :p].mean(axis=0)
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

    def _at(self, theta_hat):
        """One checked vector of parameters."""
        hat = _checks.floats(theta_hat, "theta_hat")
        check_theta(hat[None], (1, self.model.n_parameters))
        return hat

    def _rows(self, first, count):
        """Where consecutive rows begin, and how many they are; all that follow where `count` is None."""
        start = operator.index(first)
        length = self.n_rows - start if count is None else operator.index(count)
        if not (0 <= start and 0 <= length and start + length <= self.n_rows):
            raise ValueError(f"rows {first} to {start + length} were asked for; the source has rows 0 to {self.n_rows}")
        return start, length

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
        cdef cnp.ndarray hat = self._at(theta_hat)
        cdef int64_t start, length
        start, length = self._rows(first, count)
        cdef cnp.ndarray out = np.empty((3, length))
        cdef double *to = <double *>cnp.PyArray_DATA(out)
        cdef int failed
        with nogil:
            failed = fr_glm_derivatives(&self.model, <const double *>cnp.PyArray_DATA(hat), start, length, to,
                                        to + length, to + 2 * length)
        if failed:
            raise MemoryError()
        return out[0], out[1], out[2]

    def mixed_derivatives(self, theta_hat, first=0, count=None):
        """With a learned scale: derivatives in its logarithm aux, on consecutive rows; arguments as in `derivatives`.

        Returns
        -------
        slope, mixed, curvature : ndarray of float64, shape (count,)
            In aux, in eta and aux, twice in aux.
        """
        guard_check_built(&self.guard, self)
        if not self.learns_scale:
            raise ValueError("the scale is not learned")
        cdef cnp.ndarray hat = self._at(theta_hat)
        cdef int64_t start, length
        start, length = self._rows(first, count)
        cdef cnp.ndarray out = np.empty((4, length))
        cdef double *to = <double *>cnp.PyArray_DATA(out)
        cdef int failed
        with nogil:
            failed = fr_glm_mixed(&self.model, <const double *>cnp.PyArray_DATA(hat), start, length, to, to + length,
                                  to + 2 * length, to + 3 * length)
        if failed:
            raise MemoryError()
        return out[1], out[2], out[3]


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
            if not 0 <= _checks.integer(arm, name, 0, "it is the number of an arm") < source.n_arms:
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
