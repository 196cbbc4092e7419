# cython: cdivision=True
"""Chains over rows. A chain decides on points, by full passes or by races; its move says which points it tries.

A chain keeps its parameters in the source's own memory: arm 0 is where it is, arm 1 where it may go. With a surrogate
the rows' rewards are what a second-order expansion leaves of the log-likelihoods, and the expansion itself, prior
included, is a normal density in whitened coordinates z.
"""

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.math cimport INFINITY, NAN, isfinite, isnan
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset
cimport numpy as cnp
from numpy.random cimport bitgen_t

from fastrace._base import _checks
from fastrace._base._guard cimport (guard_await, guard_build, guard_built, guard_check_built, guard_check_idle,
                                    guard_enter, guard_leave, guarded)
from fastrace._base._signals cimport check_signals
from fastrace._draws._row_stream cimport row_stream_init
from fastrace._models._arrow cimport Arrow
from fastrace._math._bounds cimport cubic_change
from fastrace._math._criteria cimport race_sits_out
from fastrace._math._simd cimport fr_lower_product
from fastrace._models._expanded cimport TermSource
from fastrace.likelihoods cimport GLMSource
from fastrace.races._reading cimport bad_row
from fastrace.races._threshold cimport ThresholdRace
from fastrace.races._weighted cimport AliasTable, WeightedRace
from fastrace.sources cimport Source

import numpy as np

cnp.import_array()

cdef enum:
    WORK_PER_CHECK = 1 << 16    # the same for whole steps, each counted as 64 rows besides those it read


def sits_out(int64_t losses):
    """Whether a decision is left to a full pass at once, after so many races in a row that read all rows."""
    return race_sits_out(losses)


def parameters_of(TermSource terms not None):
    """The memory in which terms keep their parameters, shape (n_arms, p); its owner alone may write to it."""
    return terms.parameters


def mirror(GLMSource glm not None, middle):
    """Say that arm 2 k + 1 will always hold the mirror image of arm 2 k about `middle`: they share a product."""
    glm.mirror_at(middle)


cdef class Move:

    cdef int make(self, Chain chain, bitgen_t *bits) except -1 nogil:
        """One step of a chain."""
        with gil:
            raise TypeError(f"{type(self).__name__} does not define make()")

    cdef int suits(self, Chain chain) except -1:
        return 0


cdef class Chain:
    """What all chains share: coordinates, priors, recording. `decide` is a subclass's.

    Parameters
    ----------
    source : Source
        Two arms: rewards of the present state and of the proposal.
    theta : ndarray of float64, shape (2, n_seen)
        Where the source reads its parameters.
    center, factor : ndarray or None
        Whitened coordinates; `factor` is lower triangular. None if the move has no use for them.
    move : Move
        Which points a step tries.
    surrogate : bool
        Whether the rewards leave out a normal density with these coordinates.
    log_prior : callable or None
    prior_mean, prior_precision : ndarray of shape (dim,) or None
        Of a normal prior that the surrogate does not include.
    weights : tuple or None
        Heaviest row's weight and their sum, radius of validity in whitened units, the whitened center as seen from the
        point of expansion, and how far rounding may move the change of a row's reward; then the first three again for
        each smaller ball with weights of its own, the smallest first.
    n_hyper : int, default 0
        Coordinates of a state after those that the source sees.
    metric : Arrow or None
        Lengths that the weights refer to, where there are no whitened coordinates: in place of the whitened center,
        `weights` has the point of expansion itself.
    """

    def __cinit__(self, *args, **kwargs):
        guard_await(&self.guard, 0)
        memset(&self.step, 0, sizeof(step_t))
        row_stream_init(&self.stream)

    def __init__(self, Source source not None, theta, center, factor, Move move not None, *, surrogate, log_prior=None,
                 prior_mean=None, prior_precision=None, weights=None, n_hyper=0, Arrow metric=None):
        if source.n_arms != 2 or theta.shape[0] != 2 or theta.dtype != np.float64 or not theta.flags.c_contiguous:
            raise ValueError(f"the source has {source.n_arms} arms and theta has shape {theta.shape}; two arms and a "
                             f"float64 array of shape (2, dim) in C order are needed")
        guard_check_built(&source.guard, source)
        dim = theta.shape[1]
        coordinates = (None, None, None) if center is None else _coordinates(center, factor, dim)
        if metric is not None and (metric.dim != dim or center is not None):
            raise ValueError(f"the metric has {metric.dim} coordinates; {dim} are needed, and no center beside it")
        mean = precision = None
        if prior_precision is not None:
            mean = np.array(np.broadcast_to(prior_mean, (dim,)), dtype=np.float64)
            precision = np.array(np.broadcast_to(prior_precision, (dim,)), dtype=np.float64)
        cdef double rounding = 0.0
        cdef shell_t shell[MOST_SHELLS]
        cdef int k, n_shells = 0
        from_hat = np.zeros(dim)
        if weights is not None:
            heaviest, total, radius, offset, rounding, *inner = weights
            from_hat = np.array(np.broadcast_to(offset, (dim,)), dtype=np.float64)
            n_shells = len(inner) + 1
            if n_shells > MOST_SHELLS:
                raise ValueError(f"weights are given for {n_shells} balls; at most {MOST_SHELLS} are possible")
            for k, (heaviest, total, radius) in enumerate([*inner, (heaviest, total, radius)]):
                shell[k].heaviest, shell[k].total, shell[k].radius = heaviest, total, radius
        guard_build(&self.guard, 0, self)
        self.source = source
        self.n_seen = dim
        self.n_hyper = n_hyper
        self.dim = dim + n_hyper
        self._theta = theta
        self.now = <double *>cnp.PyArray_DATA(self._theta)
        self.new = self.now + self.n_seen
        self._phi = np.zeros((2, self.n_hyper))
        self.phi_now = <double *>cnp.PyArray_DATA(self._phi)
        self.phi_new = self.phi_now + self.n_hyper
        self._work = np.zeros((2 if metric is None else 4, self.n_seen))
        self.z0 = <double *>cnp.PyArray_DATA(self._work)
        self.z1 = self.z0 + self.n_seen
        self.metric = None if metric is None else metric.shared()
        self.surrogate = surrogate
        self.log_prior = log_prior
        self._prior_mean, self._prior_precision = mean, precision
        for k in range(n_shells):
            self.shell[k] = shell[k]
        self.n_shells = n_shells
        self.within = max(n_shells - 1, 0)
        self.rounding = rounding
        self._from_hat = from_hat
        self.from_hat = <double *>cnp.PyArray_DATA(self._from_hat)
        self._use_coordinates(coordinates, (center, factor))
        move.suits(self)
        self.move = move
        guard_built(&self.guard, 0)

    cdef int hold(self) except -1:
        guard_enter(&self.guard, self)
        return 0

    cdef void release(self) noexcept:
        guard_leave(&self.guard)

    def set_coordinates(self, center, factor):
        """Replace the whitened coordinates; `load` the state anew afterwards. Arrays given once must not change."""
        if center is None:
            return
        if self._given is not None and self._given[0] is center and self._given[1] is factor:
            return
        guard_check_built(&self.guard, self)
        coordinates = _coordinates(center, factor, self.n_seen)
        guarded(&self.guard, self, self._use_coordinates, (coordinates, (center, factor)))

    def _use_coordinates(self, coordinates, given):
        self._center, self._factor, self._columns = coordinates
        self._given = given
        if self._center is None:
            return
        self.center = <double *>cnp.PyArray_DATA(self._center)
        self.factor = <double *>cnp.PyArray_DATA(self._factor)
        self.columns = <double *>cnp.PyArray_DATA(self._columns)

    def use(self, Move move not None):
        """Make further steps by this move."""
        guard_check_idle(&self.guard, self)
        move.suits(self)
        self.move = move

    def whiten(self, position):
        """The whitened coordinates of a position; none where the chain has none."""
        cdef cnp.ndarray theta = self._vector(position, "position", self.dim)
        cdef cnp.ndarray z = np.empty(self.n_seen)
        guard_check_built(&self.guard, self)
        if self._center is None:
            return np.empty(0)
        self.to_z(<const double *>cnp.PyArray_DATA(theta), <double *>cnp.PyArray_DATA(z))
        return z

    def _vector(self, value, name, length):
        array = np.ascontiguousarray(value, dtype=np.float64)
        if array.shape != (length,):
            raise ValueError(f"{name} has shape {np.shape(value)}; ({length},) is needed: a state is of one kernel "
                             f"alone")
        return array

    cdef void to_theta(self, const double *z, double *theta) noexcept nogil:
        fr_lower_product(self.columns, self.center, z, self.n_seen, theta)

    cdef void to_z(self, const double *theta, double *z) noexcept nogil:
        cdef Py_ssize_t i, j, d = self.n_seen
        cdef const double *row = self.factor
        cdef double sum
        for i in range(d):
            sum = theta[i] - self.center[i]
            for j in range(i):
                sum -= row[j] * z[j]
            z[i] = sum / row[i]
            row += d

    def load(self, position, whitened, cache):
        """Take up a state; `cache` is what `cache` gave for it, or None."""
        cdef Py_ssize_t i
        cdef const double[::1] theta = self._vector(position, "position", self.dim)
        cdef const double[::1] z = self._vector(whitened, "whitened", 0 if self._center is None else self.n_seen)
        guard_enter(&self.guard, self)
        try:
            self._take_cache(cache)
            for i in range(self.n_seen):
                self.now[i] = theta[i]
                self.new[i] = theta[i]
            for i in range(z.shape[0]):
                self.z0[i] = z[i]
            for i in range(self.n_hyper):
                self.phi_now[i] = theta[self.n_seen + i]
                self.phi_new[i] = self.phi_now[i]
        finally:
            guard_leave(&self.guard)

    def _take_cache(self, cache):
        pass

    @property
    def cache(self):
        """What a chain that goes on elsewhere needs besides: plain numbers, or None."""
        return None

    @property
    def position(self):
        guard_check_built(&self.guard, self)
        return np.concatenate([self._theta[0], self._phi[0]])

    @property
    def whitened(self):
        guard_check_built(&self.guard, self)
        return np.empty(0) if self._center is None else self._work[0].copy()

    cdef int decide(self, double threshold) except -1 nogil:
        """Whether the rewards of arm 1 sum to more than those of arm 0 and `threshold`: into `step.accepted`."""
        with gil:
            raise TypeError(f"{type(self).__name__} does not define decide()")

    cdef int moved_on(self) except -1 nogil:
        """After an accepted step, before arm 1 becomes arm 0."""
        return 0

    cdef int moved_by(self, double change) except -1 nogil:
        """After a part of arm 0 has moved, which changed the sum of its rewards by this much."""
        return 0

    cdef int arrive(self) except -1 nogil:
        """Take up the point that has been accepted."""
        self.moved_on()
        memcpy(self.now, self.new, self.n_seen * sizeof(double))
        memcpy(self.phi_now, self.phi_new, self.n_hyper * sizeof(double))
        memcpy(self.z0, self.z1, self.n_seen * sizeof(double))
        self.prior_now = self.prior_new
        return 0

    def run(self, rng, double[:, ::1] draws, int64_t[::1] rows, int32_t[::1] looks, uint8_t[::1] flags):
        """Make as many steps as the arrays have places. `n_done` counts them, also if one raises."""
        cdef bitgen_t *bits = <bitgen_t *>PyCapsule_GetPointer(rng.bit_generator.capsule, "BitGenerator")
        cdef Py_ssize_t n = draws.shape[0], t
        cdef int64_t work = 0
        guard_check_built(&self.guard, self)
        if draws.shape[1] != self.dim or rows.shape[0] != n or looks.shape[0] != n or flags.shape[0] != n:
            raise ValueError("the arrays of a run must agree in length")
        self.hold()
        try:
            self.n_done = 0
            with rng.bit_generator.lock:
                with nogil:
                    self.prior_now = self.log_prior_of(self.now)
                    for t in range(n):
                        self.move.make(self, bits)
                        memcpy(&draws[t, 0], self.now, self.n_seen * sizeof(double))
                        memcpy(&draws[t, 0] + self.n_seen, self.phi_now, self.n_hyper * sizeof(double))
                        rows[t] = self.step.n_read
                        looks[t] = <int32_t>self.step.n_looks
                        flags[t] = <uint8_t>(self.step.accepted | (self.step.full_pass << 1)
                                             | (self.step.undecided << 2))
                        self.n_done = t + 1
                        work += 64 + self.step.n_read
                        if work >= WORK_PER_CHECK:
                            work = 0
                            check_signals()
        finally:
            self.release()

    cdef double log_prior_of(self, const double *theta) except? -1.0 nogil:
        cdef double out = 0.0, step
        cdef const double *mean
        cdef const double *precision
        cdef Py_ssize_t i
        if self._prior_precision is not None:
            mean = <const double *>cnp.PyArray_DATA(self._prior_mean)
            precision = <const double *>cnp.PyArray_DATA(self._prior_precision)
            for i in range(self.n_seen):
                step = theta[i] - mean[i]
                out -= 0.5 * precision[i] * step * step
        if self.log_prior is not None:
            with gil:
                out += self._ask_prior(theta)
        return out

    cdef double _ask_prior(self, const double *theta) except? -1.0:
        cdef cnp.ndarray point = np.empty(self.n_seen)
        memcpy(cnp.PyArray_DATA(point), theta, self.n_seen * sizeof(double))
        value = _checks.log_density_at(self.log_prior, point)
        if value == -INFINITY and theta == self.now:
            raise ValueError(f"log_prior is -inf at the chain's own state {point}; a chain must start where it is "
                             f"finite: give such a point as init")
        return value

    cdef double size_of_move(self) noexcept nogil:
        """A row of weight 1 changes its residual by at most this much; infinite where no bound is known.

        The weights are those of the smallest shell that holds both points: `within`. It is the same for the way back.
        """
        cdef Py_ssize_t i
        cdef int k
        cdef double a, b, before = 0.0, after = 0.0, both = 0.0, step = 0.0
        cdef double *old = self.z0
        cdef double *end = self.z1
        if self.n_shells == 0:
            return INFINITY
        if self.metric is not None:
            for i in range(self.n_seen):
                old[i] = self.now[i] - self.from_hat[i]
                end[i] = self.new[i] - self.from_hat[i]
            self.metric.product(old, end + self.n_seen)
            self.metric.product(end, end + 2 * self.n_seen)
            for i in range(self.n_seen):
                a, b = end[self.n_seen + i], end[2 * self.n_seen + i]
                before += old[i] * a
                after += end[i] * b
                both += end[i] * a
                step += (end[i] - old[i]) * (b - a)
        else:
            for i in range(self.n_seen):
                a = self.z0[i] + self.from_hat[i]
                b = self.z1[i] + self.from_hat[i]
                before += a * a
                after += b * b
                both += a * b
                step += (b - a) * (b - a)
        for k in range(self.n_shells):
            if before <= self.shell[k].radius * self.shell[k].radius >= after:
                self.within = k
                return cubic_change(before, both, after, step)
        return INFINITY


cdef class Urns:
    """Tables of the weights of a chain's shells, the smallest first."""

    def __cinit__(self, Chain chain not None, *tables):
        cdef AliasTable table
        if len(tables) != max(chain.n_shells, 1):
            raise ValueError(f"{len(tables)} tables came for a chain with weights for {chain.n_shells} balls; one for "
                             f"each is needed")
        for k, table in enumerate(tables):
            guard_check_built(&table.guard, table)
            if table.n != chain.source.n_rows:
                raise ValueError(f"the table has {table.n} places and the source {chain.source.n_rows} rows")
            self.urn[k] = table.urn
        self.tables = tables


cdef int refuse_sum(Source source, Py_ssize_t arm) except -1 with gil:
    """Raise for the reward that spoiled the sum of all rows."""
    row, _ = bad_row(source, [arm])
    if row is None:
        raise ValueError("the sum of the log-likelihoods overflows, though each of them is finite")
    raise ValueError(f"the log-likelihood of row {row} is {source.read([row], [arm])[0, 0]}; finite numbers are "
                     f"needed, or -inf where the parameters are impossible")


cdef double sum_of(Source source, Py_ssize_t arm) except? -1.0 nogil:
    """The rewards of one arm over all rows, and what the source knows of their sum besides."""
    cdef double out = 0.0, shift = 0.0
    source.total(&arm, 1, &out)
    source.shift(&arm, 1, &shift)
    out += shift
    if isnan(out) or out == INFINITY:
        refuse_sum(source, arm)
    if out == -INFINITY and arm == 0:
        with gil:
            raise ValueError("the log-likelihood is -inf at the chain's own state; a chain must start where it is "
                             "finite: give such a point as init")
    return out


def _coordinates(center, factor, dim):
    """Fresh arrays: the center, the factor, and the factor column after column from the diagonal down."""
    center, factor = np.array(center, dtype=np.float64), np.array(factor, dtype=np.float64, order="C")
    if center.shape != (dim,) or factor.shape != (dim, dim):
        raise ValueError(f"center has shape {center.shape} and factor {factor.shape}; ({dim},) and ({dim}, {dim}) are "
                         f"needed")
    return center, factor, np.concatenate([factor[j:, j] for j in range(dim)]) if dim else np.zeros(0)


cdef class ExactChain(Chain):
    """Each step takes the proposal's sum over all rows; that of the present state is kept."""

    cdef double total               # of the present state; nan if unknown
    cdef double proposed

    def _take_cache(self, cache):
        self.total = NAN if cache is None else cache
        self.proposed = NAN

    @property
    def cache(self):
        return None if isnan(self.total) else self.total

    cdef int decide(self, double threshold) except -1 nogil:
        if isnan(self.total):
            self.total = sum_of(self.source, 0)
        self.proposed = sum_of(self.source, 1)
        self.step.n_read = self.source.n_rows + self.source.n_always_read
        self.step.n_looks = 1
        self.step.full_pass = True
        self.step.accepted = self.proposed - self.total > threshold
        return 0

    cdef int moved_on(self) except -1 nogil:
        self.total, self.proposed = self.proposed, NAN      # a move that is not decided leaves no sum
        return 0

    cdef int moved_by(self, double change) except -1 nogil:
        self.total += change
        self.proposed = NAN
        return 0


cdef class RaceChain(ExactChain):
    """Each step races its decision; where a bound on all rows together decides it, no row is read.

    After some races in a row that read all rows most steps are exact ones: see `race_sits_out`.
    """

    cdef ThresholdRace race
    cdef WeightedRace weighted      # of rows in proportion to their weights, or None
    cdef Urns urns                  # of the weights, for `weighted`
    cdef double low, high
    cdef int64_t losses             # steps in a row that read all rows
    cdef public bint outside        # whether a difference lay outside the bounds that the race was given

    def __cinit__(self):
        guard_await(&self.guard, 1)

    cdef int hold(self) except -1:
        guard_enter(&self.guard, self)
        try:
            guard_enter(&self.race.guard, self.race)
        except BaseException:
            guard_leave(&self.guard)
            raise
        return 0

    cdef void release(self) noexcept:
        guard_leave(&self.race.guard)
        guard_leave(&self.guard)

    def set_race(self, ThresholdRace race not None, low, high, WeightedRace weighted=None, *inner):
        """The race that decides, and the interval of differences that is known beside the weights.

        `weighted` decides in its place where the weights bound the change of each row; no other chain may have it.
        Its table is of the weights of the largest shell; `inner` are tables of the smaller ones.
        """
        cdef double low_ = low, high_ = high
        guard_check_idle(&self.guard, self)
        guard_check_built(&race.guard, race)
        if race.n_rows != self.source.n_rows:
            raise ValueError(f"the race is over {race.n_rows} rows and the source has {self.source.n_rows}")
        if weighted is not None:
            guard_check_built(&weighted.guard, weighted)
            if weighted.table.n != self.source.n_rows:
                raise ValueError(f"the weighted race is over {weighted.table.n} rows and the source has "
                                 f"{self.source.n_rows}")
            self.urns = Urns(self, *inner, weighted.table)
        self.race = race
        self.weighted = weighted
        self.low = low_
        self.high = high_
        race.past_kurtosis = 0.0
        guard_built(&self.guard, 1)

    def _take_cache(self, cache):
        cdef double total, kurtosis
        cdef int64_t losses
        total, losses, kurtosis = (NAN, 0, 0.0) if cache is None else (*cache, 0.0)[:3]
        if losses < 0 or not 0.0 <= kurtosis < INFINITY:
            raise ValueError(f"a chain has lost {losses} races, and they left a kurtosis of {kurtosis}; at least 0 are "
                             f"possible")
        self.total, self.losses = total, losses
        self.race.past_kurtosis = kurtosis
        self.proposed = NAN

    @property
    def cache(self):
        return self.total, self.losses, self.race.past_kurtosis

    cdef int decide(self, double threshold) except -1 nogil:
        cdef double size = self.size_of_move(), low = self.low, high = self.high
        cdef shell_t *shell = &self.shell[self.within]
        self.proposed = NAN
        if isfinite(size):
            if threshold < -shell.total * size or threshold >= shell.total * size:
                self.step.accepted = threshold < 0.0
                return 0
            low = max(low, -shell.heaviest * size - self.rounding)
            high = min(high, shell.heaviest * size + self.rounding)
        if race_sits_out(self.losses):
            self.losses += 1
            return ExactChain.decide(self, threshold)
        if self.weighted is not None and isfinite(size):
            return self.decide_by_weights(threshold, size)
        self.race.decide_alone(&self.stream.bits, threshold, low, high)
        self.outside |= self.race.outside
        self.step.accepted = self.race.accepted
        self.step.n_read = self.race.n_evaluated + self.source.n_always_read
        self.step.n_looks = self.race.n_looks
        self.step.undecided = self.race.n_read == self.source.n_rows
        self.step.full_pass = self.race.n_evaluated > self.race.n_read
        self.losses = self.losses + 1 if self.step.undecided else 0
        if self.step.full_pass:
            self.total, self.proposed = self.race.totals[0], self.race.totals[1]
        return 0

    cdef int decide_by_weights(self, double threshold, double size) except -1 nogil:
        """The decision by rows in proportion to their weights, or by a full pass once that is cheaper."""
        self.weighted.decide(self.source, &self.urns.urn[self.within], &self.stream.bits, threshold, size,
                             self.rounding)
        if self.weighted.lost:
            ExactChain.decide(self, threshold)
            self.step.undecided = True
        else:
            self.step.accepted = self.weighted.accepted
        self.step.n_read += self.weighted.n_read
        self.step.n_looks += self.weighted.n_looks
        self.losses = self.losses + 1 if self.weighted.lost else 0
        return 0
