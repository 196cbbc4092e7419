"""Control variates: race on what a cheap surrogate with known sums leaves of the rewards."""

from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
cimport numpy as cnp

from fastrace._base._guard cimport guard_await, guard_built, guard_check_built
from fastrace._math._bounds cimport cubic_change
from fastrace._math._simd cimport fr_sum
from fastrace._models._expanded cimport Expansion, TermSource
from fastrace.likelihoods cimport GLMSource
from fastrace.sources cimport _BlockSource, Source

import math

import numpy as np

from fastrace._base import _checks
from fastrace._models._binned import BinnedTaylor, farthest_rows
from fastrace._models._cubic import cubic_shells, cubic_weights
from fastrace._models._softmax import SoftmaxSource
from fastrace._models.rows import lengths
from fastrace._models.softmax_sums import softmax_sums, spreads, THIRD

cnp.import_array()

cdef enum:
    BLOCK = 256     # rows per read of the rows that are always read

__all__ = ["BinnedTaylor", "ControlVariate", "SoftmaxSource", "TaylorSurrogate", "taylor_glm"]

# Rows per matrix product when sums over the data are taken once.
_CHUNK = 4096


cdef class ControlVariate(_BlockSource):
    r"""The rewards of a source less those of a surrogate whose sums are known.

    A race on the residuals needs far fewer rows when the surrogate follows the rewards; `shifts` holds the exact rest
    of each sum, so that the winner is the same.

    Parameters
    ----------
    source : Source
        The rewards.
    surrogate : Source
        The approximation, with the same arms and rows, such as a `TaylorSurrogate` or a `BinnedTaylor`.
    totals : array_like of shape (n_arms,) or callable, optional
        Exact sums of the surrogate over all rows, or a function of nothing that returns them and is called whenever
        they are needed. By default the surrogate is asked, which is cheap for the surrogates of this module and a
        full pass for others.
    always_read : array_like of int, optional
        Rows that the surrogate follows badly. They leave the population: their rewards are read each time `shifts`
        is asked for.
    support : tuple of float or of arrays of shape (n_arms,), optional
        Interval (low, high) that holds every residual. Without it the rules that need a range cannot be used.

    Attributes
    ----------
    n_rows : int
        Number of rows left to race on: those of the source less those always read. Row i is the i-th of these.
    always_read : ndarray of int64
        Rows read each time, ascending. Each race costs their rewards for all arms beside the rows it reads.

    Raises
    ------
    ValueError
        If the surrogate has other arms or rows than the source, or `always_read` or `totals` do not fit.

    Notes
    -----
    With rewards l, surrogate h, rows R raced on and rows O always read, the rewards are r = l - h on R and the shift
    is the sum of h over all rows plus the sum of r over O; this is the sum of l over O plus that of h over R [1]_.
    A full pass over the residuals costs one over the source alone: the sum of h is known.

    References
    ----------
    .. [1] Chen, Ghahramani, "Scalable discrete sampling as a multi-armed bandit problem", ICML 2016, section 3.4.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace.control_variates import ControlVariate
    >>> from fastrace.sources import ArraySource
    >>> x = np.array([[1.0, 2.0], [3.0, 5.0], [9.0, 0.0]])
    >>> near = ArraySource(np.round(x) + [[0.5, 0.0]])
    >>> race_on = ControlVariate(ArraySource(x), near, always_read=[2])
    >>> race_on.read([0, 1])
    array([[-0.5,  0. ],
           [-0.5,  0. ]])
    >>> race_on.totals()
    array([13.,  7.])
    """

    cdef readonly Source source, surrogate
    cdef readonly cnp.ndarray always_read
    # Sums of the surrogate: None, an array, or a function.
    cdef readonly object known_totals
    # Rows raced on, or None where that is all of them.
    cdef cnp.ndarray kept
    cdef const int64_t *kept_rows
    # The surrogate expands this very source: both can be evaluated in one sweep.
    cdef bint fused

    def __cinit__(self):
        guard_await(&self.guard, 1)

    def __init__(self, Source source not None, Source surrogate not None, totals=None, always_read=None, *,
                 support=None):
        guard_check_built(&source.guard, source)
        guard_check_built(&surrogate.guard, surrogate)
        if (surrogate.n_arms, surrogate.n_rows) != (source.n_arms, source.n_rows):
            raise ValueError(f"surrogate has {surrogate.n_arms} arms and {surrogate.n_rows} rows, the source has "
                             f"{source.n_arms} and {source.n_rows}; they must agree")
        rows = _checks.as_array([] if always_read is None else always_read, "always_read")
        if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
            raise ValueError(f"always_read has shape {rows.shape} and dtype {rows.dtype}; a vector of row numbers is "
                             f"needed")
        if rows.size and not (0 <= rows.min() and rows.max() < source.n_rows):
            raise ValueError(f"always_read runs from {rows.min()} to {rows.max()}; it must stay within "
                             f"[0, {source.n_rows})")
        rows = np.unique(rows).astype(np.int64)
        kept = np.delete(np.arange(source.n_rows, dtype=np.int64), rows) if len(rows) else None
        if totals is not None and not callable(totals):
            totals = _sums(totals, source.n_arms)
        # A full pass takes terms alone; rows at random take residuals.
        fused = isinstance(surrogate, Expansion) and (<Expansion>surrogate).residual.source is source
        advantage = (<Expansion>surrogate).residual.scan_advantage if fused else source.scan_advantage
        super().__init__(source.n_arms, source.n_rows - len(rows), scan_advantage=advantage,
                         reward_cost=source.reward_cost + surrogate.reward_cost,
                         n_always_read=len(rows) + source.n_always_read,
                         first_look=source.first_look, support=support)
        self.source = source
        self.surrogate = surrogate
        self.always_read = rows
        self.kept = kept
        self.kept_rows = NULL if kept is None else <const int64_t *>cnp.PyArray_DATA(self.kept)
        self.known_totals = totals
        self.fused = fused
        guard_built(&self.guard, 1)

    def difference_support(self, arm_a=0, arm_b=1):
        """Interval that holds what one arm has over another in every row raced on, at the present parameters.

        Parameters
        ----------
        arm_a, arm_b : int, default 0 and 1
            The difference is the residual of `arm_b` less that of `arm_a`.

        Returns
        -------
        tuple of float, or None
            None where nothing is known: without `TaylorSurrogate`. Infinite far from the point of expansion, see
            `TaylorSurrogate.change_bound`.
        """
        guard_check_built(&self.guard, self)
        if not self._bounded():
            return None
        bound = self.surrogate.change_bound(self.always_read, (arm_a, arm_b))
        return -bound, bound

    def residual_support(self):
        """Intervals that hold the residual of each arm in every row raced on, at the present parameters.

        Returns
        -------
        tuple of two ndarray of shape (n_arms,), or None
            None and infinite as in `difference_support`.
        """
        guard_check_built(&self.guard, self)
        if not self._bounded():
            return None
        bounds = self.surrogate.changes_from_hat(self.always_read)
        return -bounds, bounds

    def _bounded(self):
        """Whether bounds on the residuals follow from third derivatives."""
        return self.fused and isinstance(self.surrogate, TaylorSurrogate)

    def still_arms(self):
        """Whether the residuals of an arm are known to be 0 in every row, as at the point of expansion: (n_arms,)."""
        guard_check_built(&self.guard, self)
        if not self.fused:
            return np.zeros(self.n_arms, dtype=np.bool_)
        residual = (<Expansion>self.surrogate).residual
        return (np.asarray(residual.source.parameters) == residual.theta_hat).all(axis=1)

    def __reduce__(self):
        guard_check_built(&self.guard, self)
        return _control_variate.saved(self.source, self.surrogate, self.known_totals, np.asarray(self.always_read),
                                      self.support)

    cdef int residuals(self, const int64_t *rows, int64_t first, Py_ssize_t n_rows, const Py_ssize_t *arms,
                       Py_ssize_t n_arms, double **out) except -1 nogil:
        """out[j][i] for row numbers of the source; `rows` NULL means first, first + 1, ..."""
        cdef double *block = NULL
        cdef double **columns = NULL
        cdef Py_ssize_t i, j
        if self.fused:
            return (<Expansion>self.surrogate).residual.block(rows, first, n_rows, arms, n_arms, out)
        try:
            block = <double *>malloc(max(n_arms * n_rows, 1) * sizeof(double))
            columns = <double **>malloc(max(n_arms, 1) * sizeof(double *))
            if block == NULL or columns == NULL:
                with gil:
                    raise MemoryError()
            for j in range(n_arms):
                columns[j] = block + j * n_rows
            if rows != NULL:
                self.source.fill(rows, n_rows, arms, n_arms, out)
                self.surrogate.fill(rows, n_rows, arms, n_arms, columns)
            else:
                self.source.fill_range(first, n_rows, arms, n_arms, out)
                self.surrogate.fill_range(first, n_rows, arms, n_arms, columns)
            for j in range(n_arms):
                for i in range(n_rows):
                    out[j][i] -= columns[j][i]
        finally:
            free(block)
            free(columns)
        return 0

    cdef int block(self, const int64_t *rows, int64_t first, Py_ssize_t n_rows, const Py_ssize_t *arms,
                   Py_ssize_t n_arms, double **out) except -1 nogil:
        cdef int64_t *of_source
        cdef Py_ssize_t i
        if self.kept_rows == NULL:
            return self.residuals(rows, first, n_rows, arms, n_arms, out)
        if rows == NULL:
            return self.residuals(self.kept_rows + first, 0, n_rows, arms, n_arms, out)
        of_source = <int64_t *>malloc(max(n_rows, 1) * sizeof(int64_t))
        if of_source == NULL:
            with gil:
                raise MemoryError()
        try:
            for i in range(n_rows):
                of_source[i] = self.kept_rows[rows[i]]
            self.residuals(of_source, 0, n_rows, arms, n_arms, out)
        finally:
            free(of_source)
        return 0

    cdef int surrogate_totals(self, const Py_ssize_t *arms, Py_ssize_t n_arms, double *out) except -1 nogil:
        """out[j] = sum of the surrogate over all rows of the source."""
        cdef Py_ssize_t j
        with gil:
            if self.known_totals is not None:
                sums = self.known_totals
                if callable(sums):
                    sums = _sums(sums(), self.n_arms)
                for j in range(n_arms):
                    out[j] = sums[arms[j]]
                return 0
        return self.surrogate.total(arms, n_arms, out)

    cdef int add_always_read(self, double factor, const Py_ssize_t *arms, Py_ssize_t n_arms,
                             double *out) except -1 nogil:
        """out[j] += factor times the sum of the residuals over the rows always read."""
        cdef Py_ssize_t size = self.source.n_rows - self.n_rows, start = 0, count, j
        cdef const int64_t *rows
        cdef double *block
        cdef double **columns
        if size == 0:
            return 0
        rows = <const int64_t *>cnp.PyArray_DATA(self.always_read)
        block = <double *>malloc(max(n_arms, 1) * BLOCK * sizeof(double))
        columns = <double **>malloc(max(n_arms, 1) * sizeof(double *))
        try:
            if block == NULL or columns == NULL:
                with gil:
                    raise MemoryError()
            for j in range(n_arms):
                columns[j] = block + j * BLOCK
            while start < size:
                count = min(BLOCK, size - start)
                self.residuals(rows + start, 0, count, arms, n_arms, columns)
                for j in range(n_arms):
                    out[j] += factor * fr_sum(columns[j], count)
                start += count
        finally:
            free(block)
            free(columns)
        return 0

    cdef int total(self, const Py_ssize_t *arms, Py_ssize_t n_arms, double *out) except -1 nogil:
        cdef double *known = <double *>malloc(max(n_arms, 1) * sizeof(double))
        cdef Py_ssize_t j
        if known == NULL:
            with gil:
                raise MemoryError()
        try:
            self.surrogate_totals(arms, n_arms, known)
            self.source.total(arms, n_arms, out)
            for j in range(n_arms):
                out[j] -= known[j]
            self.add_always_read(-1.0, arms, n_arms, out)
        finally:
            free(known)
        return 0

    cdef int shift(self, const Py_ssize_t *arms, Py_ssize_t n_arms, double *out) except -1 nogil:
        cdef double *below = <double *>malloc(max(n_arms, 1) * sizeof(double))
        cdef Py_ssize_t j
        if below == NULL:
            with gil:
                raise MemoryError()
        try:
            self.surrogate_totals(arms, n_arms, out)
            self.source.shift(arms, n_arms, below)
            for j in range(n_arms):
                out[j] += below[j]
            self.add_always_read(1.0, arms, n_arms, out)
        finally:
            free(below)
        return 0


def _sums(values, n_arms):
    sums = _checks.floats(math.nan if values is None else values, "totals")
    if sums.shape != (n_arms,) or not np.isfinite(sums).all():
        raise ValueError(f"totals is {_checks.shown(values)}; one finite sum for each of the {n_arms} arms is needed")
    return sums


@_checks.rebuilds(1, ControlVariate)
def _control_variate(source, surrogate, totals, always_read, support):
    """Rebuild a pickled `ControlVariate`."""
    return ControlVariate(source, surrogate, totals, always_read, support=support)


cdef class TaylorSurrogate(Expansion):
    r"""Second-order expansion of a model's log-likelihoods in its parameters.

    With eta = x . theta and hat = x . theta_hat, the reward of a row is
    l(hat) + l'(hat) (eta - hat) + l''(hat) (eta - hat)^2 / 2; of a `SoftmaxSource` the same with a predictor for each
    class. It follows the parameters of the model: assigning ``glm.theta`` moves the surrogate too.

    Parameters
    ----------
    glm : GLMSource or SoftmaxSource
        The model.
    theta_hat : array_like of real numbers, shape (p,)
        Where to expand, best near the mode of the posterior. Of a `SoftmaxSource` p is the number of all coefficients.

    Attributes
    ----------
    theta_hat : ndarray of shape (p,)
    value : float
        Sum of the log-likelihood over all rows at `theta_hat`.
    gradient : ndarray of shape (p,)
    hessian : ndarray of shape (p, p)
        Derivatives of that sum.
    rounding : float
        How far rounding may move the change of a row's residual, see `residual_rounding`.

    Notes
    -----
    Building it costs one pass over the data, O(n_rows p^2); each total afterwards costs O(p^2). These are the
    proxies of Bardenet, Doucet & Holmes [1]_.

    References
    ----------
    .. [1] Bardenet, Doucet, Holmes, "On Markov chain Monte Carlo methods for tall data", JMLR 18(47), 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace.control_variates import TaylorSurrogate
    >>> from fastrace.likelihoods import GLMSource
    >>> X = np.array([[1.0, 0.0], [1.0, 2.0], [1.0, -1.0]])
    >>> glm = GLMSource(X, y=[0, 1, 1], theta=[[0.0, 0.0], [0.1, 0.1]])
    >>> surrogate = TaylorSurrogate(glm, theta_hat=[0.0, 0.0])
    >>> (glm.read([1]) - surrogate.read([1])).round(6)
    array([[0.0e+00, 4.2e-05]])
    >>> bool(np.isclose(surrogate.totals(), surrogate.read([0, 1, 2]).sum(axis=0)).all())
    True
    """

    cdef readonly TermSource glm
    cdef readonly cnp.ndarray gradient, hessian
    cdef readonly double value
    # Sum of |l''| x x^T, with a little on the diagonal.
    cdef cnp.ndarray metric
    cdef readonly double rounding
    cdef object cached_distances, cached_weights, cached_heaviest

    def __cinit__(self):
        guard_await(&self.guard, 2)

    def __init__(self, glm, theta_hat):
        if not isinstance(glm, (GLMSource, SoftmaxSource)):
            raise TypeError(f"glm is {_checks.shown(glm)}; a GLMSource or a SoftmaxSource is needed")
        beside = glm.beside() if isinstance(glm, GLMSource) else {}
        if isinstance(glm, SoftmaxSource) and glm.places is not None:
            raise ValueError("glm has groups; a surrogate of columns alone is built here: use fastrace.mcmc.Softmax, "
                             "whose kernels expand such models")
        if beside or isinstance(glm, GLMSource) and hasattr(glm.X, "nnz"):
            raise ValueError(f"glm has {', '.join(beside) or 'a sparse X'}; a surrogate of rows with columns in memory "
                             f"alone is built here: use fastrace.mcmc.GLM, whose kernels expand such models")
        super().__init__(glm, theta_hat)
        hat = self.residual.theta_hat
        p = len(hat)
        value, gradient, hessian, metric, largest = _sums_of(glm, hat)
        self.glm = glm
        self.value = value
        self.rounding = residual_rounding(largest)
        self.gradient = gradient
        self.hessian = np.ascontiguousarray((hessian + hessian.T) / 2.0)
        self.metric = metric + np.eye(p) * max(1e-10 * np.trace(metric) / p, 1e-300)
        self.cached_distances = self.cached_weights = self.cached_heaviest = None
        for array in (self.gradient, self.hessian):
            array.flags.writeable = False
        guard_built(&self.guard, 2)

    def __reduce__(self):
        guard_check_built(&self.guard, self)
        return _taylor_surrogate.saved(self.glm, np.asarray(self.residual.theta_hat))

    cdef int total(self, const Py_ssize_t *arms, Py_ssize_t n_arms, double *out) except -1 nogil:
        cdef const double *theta = <const double *>cnp.PyArray_DATA(self.glm.parameters)
        cdef const double *hat = <const double *>cnp.PyArray_DATA(self.residual.theta_hat)
        cdef const double *g = <const double *>cnp.PyArray_DATA(self.gradient)
        cdef const double *h = <const double *>cnp.PyArray_DATA(self.hessian)
        cdef Py_ssize_t p = self.glm.parameters.shape[1], j, a, b
        cdef double slope, step
        cdef const double *at
        for j in range(n_arms):
            at = theta + arms[j] * p
            out[j] = self.value
            for a in range(p):
                step = at[a] - hat[a]
                slope = 0.0
                for b in range(p):
                    slope += h[a * p + b] * (at[b] - hat[b])
                out[j] += step * (g[a] + 0.5 * slope)
        return 0

    def distances(self):
        r"""How far each row's x lies from 0, shape (n_rows,), in the metric of the summed curvature.

        With A the sum of abs(l'') x x^T at `theta_hat`, it is sqrt(x^T A^-1 x), the root of the leverage. Rows far
        out have the largest residuals. Takes one pass over the data the first time.

        Of a `SoftmaxSource` A is minus the Hessian, and the distance is how far a step of unit length in that metric
        moves the predictors of two classes apart at most, times the cube root of the row's weight. That takes a pass
        for each pair of classes.
        """
        guard_check_built(&self.guard, self)
        if self.cached_distances is None:
            factor = np.linalg.inv(np.linalg.cholesky(self.metric)).T
            if isinstance(self.glm, GLMSource):
                out = lengths(self.glm.X, factor)
            else:
                out, times = spreads(self.glm, factor), self.glm.rows.weights
                out *= 1.0 if times is None else np.cbrt(times)
            out.flags.writeable = False
            self.cached_distances = out
        return self.cached_distances

    def farthest(self, fraction):
        """The given fraction of the rows, those with the largest `distances`: ndarray of int64, ascending."""
        return farthest_rows(self.distances(), fraction)

    def change_bound(self, always_read=(), arms=(0, 1)):
        """How far any row's residual can change from the parameters of one arm to those of another.

        Parameters
        ----------
        always_read : array_like of int, optional
            Rows that do not count.
        arms : tuple of int, default (0, 1)
            The two arms.

        Returns
        -------
        float
            Infinite for the Poisson, gamma and cloglog families if either arm is farther than ``sqrt(p) + 5`` from
            `theta_hat` in the metric of `distances`: their third derivatives are bounded near `theta_hat` only. Of any
            family where a number on the way overflows.

        Notes
        -----
        The third derivative bounds how fast the residual changes on the way [1]_: the largest on balls about
        `theta_hat`, of which the smallest counts that holds both arms. Costs O(p^2), after one pass over the data the
        first time, and one over the rows' bounds for each new `always_read`.

        References
        ----------
        .. [1] Cornish, Vanetti, Bouchard-Cote, Deligiannidis, Doucet, "Scalable Metropolis-Hastings for exact Bayesian
           inference with large datasets", ICML 2019.
        """
        guard_check_built(&self.guard, self)
        now, new = self.glm.theta[list(arms)] - self.theta_hat
        return self._farthest_change(now, new, always_read)

    def changes_from_hat(self, always_read=()):
        """How far any row's residual can be from 0, where it is at `theta_hat`: shape (n_arms,), as `change_bound`."""
        guard_check_built(&self.guard, self)
        nowhere = np.zeros(len(self.theta_hat))
        return np.array([self._farthest_change(nowhere, step, always_read) for step in self.glm.theta - self.theta_hat])

    def _farthest_change(self, now, new, always_read):
        """The bound of `change_bound` between two steps from `theta_hat`."""
        if self.cached_weights is None:
            with np.errstate(over="ignore", invalid="ignore"):
                if isinstance(self.glm, GLMSource):
                    rows = self.glm, self.distances(), self._predictors
                    weights, radius = cubic_weights(*rows)
                    self.cached_weights = *cubic_shells(*rows, weights, radius), (radius, weights)
                else:
                    self.cached_weights = (math.inf, THIRD * self.distances()**3),
        if self.cached_heaviest is None or self.cached_heaviest[0] is not always_read:
            left_out = _checks.as_array(always_read, "always_read").astype(np.intp)
            self.cached_heaviest = always_read, [(radius, float(np.delete(weights, left_out).max(initial=0.0)))
                                                 for radius, weights in self.cached_weights]
        with np.errstate(over="ignore", invalid="ignore"):      # far out, where no number is known, as from a nan
            before, both, after = now @ self.metric @ now, now @ self.metric @ new, new @ self.metric @ new
            step = (new - now) @ self.metric @ (new - now)
            for radius, heaviest in self.cached_heaviest[1]:
                if before <= radius * radius and after <= radius * radius:
                    out = (heaviest * cubic_change(before, both, after, step)
                           + self.rounding + residual_rounding(max(before, after)))
                    return math.inf if math.isnan(out) else out
        return math.inf

    def _predictors(self):
        guard_check_built(&self.guard, self)
        return np.concatenate([np.asarray(self.glm.X[first:first + _CHUNK], dtype=np.float64) @ self.theta_hat
                               for first in range(0, self.n_rows, _CHUNK)])

    def residual_bound(self, always_read=(), third_derivative=None):
        r"""Largest absolute residual at the present parameters, shape (n_arms,).

        Parameters
        ----------
        always_read : array_like of int, optional
            Rows that do not count.
        third_derivative : float, optional
            Bound on abs(l''') over all eta. Known for softmax and every family but Poisson, whose is not bounded.

        Returns
        -------
        ndarray of shape (n_arms,)
            To be used as ``support = (-bound, bound)``; infinite where a number on the way overflows.

        Notes
        -----
        By Taylor's theorem abs(r) <= M3 abs(eta - hat)^3 / 6, and by Cauchy's inequality abs(eta - hat) is at most
        the largest of `distances` times sqrt(d^T A d), d = theta - theta_hat. A share for rounding is added. Of a
        `SoftmaxSource` abs(eta - hat) is the range of eta - hat over the classes of a row, and M3 is 1 / (6 sqrt 3),
        the largest third cumulant of a variable of range 1.
        """
        guard_check_built(&self.guard, self)
        if third_derivative is None:
            third_derivative = float(self.glm.third_derivatives()) if isinstance(self.glm, GLMSource) else THIRD
            if third_derivative == math.inf:
                raise ValueError(f"the third derivative of the {self.glm.family} family is not bounded; give "
                                 f"third_derivative, a bound that holds where your parameters go")
        elif not 0.0 <= third_derivative < math.inf:
            raise ValueError(f"third_derivative is {third_derivative}; a bound from 0 up is needed")
        with np.errstate(over="ignore", invalid="ignore"):
            far = np.delete(self.distances(), _checks.as_array(always_read, "always_read").astype(np.intp))
            step = self.glm.theta - self.theta_hat
            square = np.einsum("ja,ab,jb->j", step, self.metric, step)
            out = (third_derivative / 6.0 * (far.max(initial=0.0) * np.sqrt(square)) ** 3 * (1.0 + 1e-9)
                   + 0.5 * (self.rounding + residual_rounding(square)))
        return np.where(np.isnan(out), math.inf, out)


def _sums_of(glm, hat):
    """Sum of the terms at a point, its gradient and Hessian, the metric of its curvature, and the largest term."""
    if not isinstance(glm, GLMSource):
        sums = softmax_sums(glm, hat)
        return sums.value, sums.gradient, sums.hessian, -sums.hessian, sums.largest
    p = len(hat)
    value, largest, gradient, hessian, metric = [], 0.0, np.zeros(p), np.zeros((p, p)), np.zeros((p, p))
    for first in range(0, glm.n_rows, _CHUNK):
        x = np.asarray(glm.X[first:first + _CHUNK], dtype=np.float64)
        level, slope, curvature = glm.derivatives(hat, first, len(x))
        value.append(level.sum())
        largest = max(largest, np.abs(level).max())
        gradient += slope @ x
        hessian += x.T @ (curvature[:, None] * x)
        metric += x.T @ (np.abs(curvature)[:, None] * x)
    return math.fsum(value), gradient, hessian, metric, largest


def residual_rounding(largest):
    """How far rounding may move the difference of two residuals of a row.

    A residual is a difference of numbers as large as the terms; `largest` is the largest absolute term at `theta_hat`.
    """
    return 2e-13 * (1.0 + largest)


@_checks.rebuilds(1, TaylorSurrogate)
def _taylor_surrogate(glm, theta_hat):
    """Rebuild a pickled `TaylorSurrogate`."""
    return TaylorSurrogate(glm, theta_hat)


def taylor_glm(glm, theta_hat, outliers=0.0, *, support=None):
    r"""A generalised linear model with the second-order expansion of its log-likelihood as control variate.

    Parameters
    ----------
    glm : GLMSource or SoftmaxSource
        The model. Assign ``glm.theta`` to move on: residuals and shifts follow.
    theta_hat : array_like of real numbers, shape (p,)
        Where to expand, best near the mode of the posterior. By position, as `theta` of the model.
    outliers : float, default 0.0
        Fraction of the rows, those farthest out (`TaylorSurrogate.distances`), to read each time.
    support : tuple of float, optional
        Interval that holds every residual; see `TaylorSurrogate.residual_bound`.

    Returns
    -------
    ControlVariate
        Rewards and expansion are evaluated in one sweep over the rows.

    Notes
    -----
    The third derivative of a row's term bounds its residual, so that races on the result can be rigorous without a
    `support`: ``bound="betting"`` of `AcceptTest`, `DiscreteSampler` and `mcmc.RacingGibbs` takes the interval of each
    state from its parameters. For the Poisson, gamma and cloglog families these bounds hold near `theta_hat` only, see
    `TaylorSurrogate.change_bound`; for softmax and all other families everywhere. Where a step moves the predictors of
    a row's classes apart by at most s, the residual of softmax is at most :math:`s^3 / (36 \sqrt 3)`.

    Building it costs one pass over the data, O(n_rows p^2), and one or, of a `SoftmaxSource` of K classes, one for each
    of the K (K - 1) / 2 pairs when bounds or `outliers` are first asked for.

    Examples
    --------
    >>> import numpy as np
    >>> from fastrace.control_variates import taylor_glm
    >>> from fastrace.likelihoods import GLMSource
    >>> rng = np.random.default_rng(1)
    >>> X = rng.standard_normal((1000, 3))
    >>> y = rng.random(1000) < 0.5
    >>> glm = GLMSource(X, y, theta=0.05 * rng.standard_normal((2, 3)))
    >>> race_on = taylor_glm(glm, np.zeros(3))
    >>> ratio = race_on.read(np.arange(1000)).std(axis=0) / glm.read(np.arange(1000)).std(axis=0)
    >>> bool((ratio < 1e-2).all())
    True
    >>> bool(np.allclose(race_on.totals(), glm.totals(), rtol=1e-12))
    True

    A rigorous draw among five vectors of coefficients of a softmax regression:

    >>> from fastrace import DiscreteSampler
    >>> from fastrace.control_variates import SoftmaxSource
    >>> X = rng.standard_normal((20_000, 2))
    >>> hat = np.array([0.5, 0.0, 0.0, 0.5])        # of class 1, then of class 2
    >>> eta = np.column_stack([np.zeros(20_000), X @ hat[:2], X @ hat[2:]])
    >>> y = np.argmax(eta + rng.gumbel(size=eta.shape), axis=1)
    >>> states = SoftmaxSource(X, y, theta=hat + 0.01 * rng.standard_normal((5, 4)))
    >>> sampler = DiscreteSampler(taylor_glm(states, hat), bound="betting", rng=1)
    >>> sampler.draw_many(20).shape, sampler.stats.fraction_read < 0.05
    ((20,), True)
    """
    surrogate = TaylorSurrogate(glm, theta_hat)
    none = _checks.real(outliers, "outliers") == 0.0    # of a softmax, distances cost much
    farthest = farthest_rows(np.empty(0) if none else surrogate.distances(), outliers, "outliers")
    return ControlVariate(glm, surrogate, always_read=farthest, support=support)
