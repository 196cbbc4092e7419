# cython: cdivision=True
"""Exact Metropolis-Hastings steps from minibatches: they need a bound on how far each row's reward can move."""

from libc.math cimport INFINITY, expm1, isnan, log, log1p, pow, sqrt
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, malloc, qsort, realloc
cimport numpy as cnp
from numpy.random cimport bitgen_t

from fastrace._base._guard cimport guard_await, guard_built, guard_check, guard_check_idle
from fastrace._draws._alias cimport alias_build, alias_draws, alias_t, PREFETCH
from fastrace._draws._rng cimport bounded32
from fastrace._math._bounds cimport cubic_change
from fastrace._math._poisson cimport FACTORS, poisson_factor
from fastrace._models._arrow cimport ArrowFactor
from fastrace._models._expanded cimport Expanded
from fastrace.mcmc.kernels._chain cimport Chain, refuse_sum, Urns
from fastrace.races._weighted cimport AliasTable, slack_of, urn_t

from fastrace.races._weighted import refuse_change

import numpy as np

cnp.import_array()

cdef extern from "numpy/random/distributions.h" nogil:
    int64_t random_poisson(bitgen_t *bits, double rate)


# Rows of a step are thinned where so many are expected, and are then kept at rates so many times what their change can
# be: a row that is kept with change c at rate b adds about c^2 / b to the variance of the log acceptance ratio.
cdef double THIN_FROM = 16.0
cdef double LOOSE = 16.0


cdef inline Py_ssize_t with_spare(Py_ssize_t count) noexcept nogil:
    return 2 * count + 64


cdef int grow(void **memory, Py_ssize_t count, size_t size) except -1 nogil:
    """Room for `count` things of this size, and some to spare."""
    cdef void *grown = realloc(memory[0], with_spare(count) * size)
    if grown == NULL:
        with gil:
            raise MemoryError()
    memory[0] = grown
    return 0


cdef class MinibatchChain(Chain):
    """Steps that read a Poisson number of rows, drawn in proportion to their weights. Subclasses weigh them."""

    def __cinit__(self):
        guard_await(&self.guard, 1)

    def __dealloc__(self):
        free(self.rows)
        free(self.before)
        free(self.after)
        free(self.bound)

    def set_table(self, AliasTable table not None, most, *inner):
        """Where rows are drawn from, and the expected number above which a step takes a full pass instead.

        `table` is of the weights of the largest shell, `inner` of the smaller ones, the smallest first.
        """
        cdef double most_ = most
        guard_check_idle(&self.guard, self)
        self.urns = Urns(self, *inner, table)
        self.most = most_
        guard_built(&self.guard, 1)

    def set_inverse_cubes(self, inverse_cubes):
        """What a row's weight is to be multiplied by for its third derivative alone. With it, rows are thinned.

        Rows are drawn by what a step can do to them at most, as it points another way for each row. What it does to a
        row takes the row's predictors alone; few rows are then left whose terms are needed. A weight is a bound on a
        third derivative times the cube of how far a step of length 1 moves the row's predictor at most. None: no row
        is thinned.
        """
        cdef Expanded source
        held = None if inverse_cubes is None else np.ascontiguousarray(inverse_cubes, dtype=np.float32)
        guard_check(&self.guard, self)
        if held is None:
            self._inverse_cubes = None
            return
        source = self.source
        if not source.source.knows_moves or held.shape != (self.source.n_rows,):
            raise ValueError(f"inverse_cubes has shape {held.shape}; ({self.source.n_rows},) is needed, and rows whose "
                             f"moves are known")
        self._inverse_cubes = held

    cdef int reserve(self, Py_ssize_t count) except -1 nogil:
        """Room for that many rows and the rewards of both arms on them."""
        if count > self.room:
            grow(<void **>&self.rows, count, sizeof(int64_t))
            grow(<void **>&self.before, count, sizeof(double))
            grow(<void **>&self.after, count, sizeof(double))
            grow(<void **>&self.bound, count, sizeof(double))
            self.room = with_spare(count)
        return 0

    cdef bint thins(self, double rate) noexcept nogil:
        """Whether rows that are drawn at this rate in all are thinned."""
        return self._inverse_cubes is not None and rate >= THIN_FROM

    cdef int draw_rows(self, Py_ssize_t count, bint thins) except -1 nogil:
        """Draw that many rows in proportion to their weights."""
        cdef const urn_t *urn = &self.urns.urn[self.within]
        self.step.n_read = count
        self.step.n_looks = 1
        if count == 0:
            return 0
        self.reserve(count)
        if thins:
            alias_draws(urn.table, <const float *>cnp.PyArray_DATA(self._inverse_cubes), urn.n, &self.stream.bits,
                        count, self.before, self.rows)
        else:
            alias_draws(urn.table, urn.weight, urn.n, &self.stream.bits, count, self.before, self.rows)
        return 0

    cdef int read(self, Py_ssize_t count) except -1 nogil:
        """The rewards of both arms on the rows drawn."""
        cdef Py_ssize_t arms[2]
        cdef double *out[2]
        arms[0], arms[1] = 0, 1
        out[0], out[1] = self.before, self.after
        return self.source.fill(self.rows, count, arms, 2, out) if count else 0

    cdef double inverse_size(self, Py_ssize_t i) noexcept nogil:
        """The weight of the i-th row drawn over its bound."""
        return 0.0

    cdef double rate_of(self, Py_ssize_t i) noexcept nogil:
        """The bound at whose rate the i-th row was drawn."""
        return INFINITY

    cdef double widening(self) noexcept nogil:
        """By how much bounds are wider than need be."""
        return 1.0

    cdef Py_ssize_t thin(self, Py_ssize_t count) except -1 nogil:
        """Keep each row drawn with the probability that leaves it at the rate of a bound by its own predictors.

        That bound takes the place of the row's. It is the same for the way back, so the chain stays exact.
        """
        cdef const float *inverse = <const float *>cnp.PyArray_DATA(self._inverse_cubes)
        cdef Py_ssize_t arms[2]
        cdef Py_ssize_t i, kept = 0
        cdef double loose = LOOSE * self.widening(), share
        arms[0], arms[1] = 0, 1
        (<Expanded>self.source).cubes(self.rows, count, arms, self.after)
        for i in range(count):
            share = loose * inverse[self.rows[i]] * self.after[i] * self.inverse_size(i)
            if self.stream.bits.next_double(self.stream.bits.state) < share:
                self.rows[kept], self.bound[kept], self.before[kept] = self.rows[i], self.bound[i], min(share, 1.0)
                kept += 1
        for i in range(kept):               # after the loop that guesses, many of these wait for memory at once
            self.bound[i] = self.rate_of(i) * self.before[i]
        return kept

    cdef bint decided_by(self, Py_ssize_t count, double rate, double threshold) except -1 nogil:
        """Whether the changes of the rows drawn, at this rate in all, add up to more than the threshold."""
        cdef double log_ratio = 0.0, factor = 1.0, change, slack = slack_of(self.rounding)
        cdef Py_ssize_t i
        if self.thins(rate):
            count = self.thin(count)
        else:
            for i in range(count):
                self.bound[i] = self.rate_of(i)
        self.read(count)
        for i in range(count):
            change = held(self, i, self.bound[i], slack)
            factor *= poisson_factor(change, self.bound[i], self.stream.bits.next_double(self.stream.bits.state))
            if i % FACTORS == FACTORS - 1:
                log_ratio += log(factor)
                factor = 1.0
        return log_ratio + log(factor) > threshold

    cdef int full_pass(self, double threshold) except -1 nogil:
        """The exact decision. Whether it is taken depends on both states alike, so the chain stays exact."""
        cdef Py_ssize_t arms[2]
        cdef double sums[2]
        cdef int j
        arms[0], arms[1] = 0, 1
        self.source.total(arms, 2, sums)
        for j in range(2):
            if isnan(sums[j]) or sums[j] == INFINITY:
                refuse_sum(self.source, j)
        self.step.n_read = self.source.n_rows
        self.step.n_looks = 1
        self.step.full_pass = True
        self.step.accepted = sums[1] - sums[0] > threshold
        return 0

    cdef int refuse(self, Py_ssize_t i, double bound) except -1:
        refuse_change(self.rows[i], self.before[i], self.after[i], bound)


cdef inline double held(MinibatchChain chain, Py_ssize_t i, double bound, double slack) except? -1.0 nogil:
    """The change of the i-th row drawn, within its bound. Beyond it by more than rounding, the bound is wrong."""
    cdef double change = chain.after[i] - chain.before[i]
    if not (-bound <= change <= bound):
        if not (-bound - slack <= change <= bound + slack):
            with gil:
                chain.refuse(i, bound)
        change = bound if change > bound else -bound
    return change


cdef class PoissonChain(MinibatchChain):
    """Poisson minibatches on top of a control variate."""

    cdef double size                # of the move
    cdef double inverse             # of that

    cdef double inverse_size(self, Py_ssize_t i) noexcept nogil:
        return self.inverse

    cdef double rate_of(self, Py_ssize_t i) noexcept nogil:
        return self.urns.urn[self.within].weight[self.rows[i]] * self.size

    cdef int decide(self, double threshold) except -1 nogil:
        cdef double rate
        cdef Py_ssize_t count
        self.size = self.size_of_move()
        self.inverse = 1.0 / self.size
        rate = self.shell[self.within].total * self.size
        if not rate < self.most:
            return self.full_pass(threshold)
        count = <Py_ssize_t>random_poisson(&self.stream.bits, rate) if rate > 0.0 else 0
        self.draw_rows(count, self.thins(rate))
        self.step.accepted = self.decided_by(count, rate, threshold)
        return 0


cdef class TunaChain(MinibatchChain):
    """TunaMH: Poisson minibatches on the log-likelihoods themselves, whose changes are bounded by Lipschitz constants.

    The rate chi C^2 M^2 + C M grows with the posterior's whole pull on a step, so steps must be small.
    """

    cdef double chi

    def set_chi(self, chi):
        cdef double chi_ = chi
        guard_check_idle(&self.guard, self)
        self.chi = chi_

    cdef double length_of_move(self) noexcept nogil:
        cdef Py_ssize_t i
        cdef double sum = 0.0
        for i in range(self.n_seen):
            sum += (self.z1[i] - self.z0[i]) * (self.z1[i] - self.z0[i])
        return sqrt(sum)

    cdef int decide(self, double threshold) except -1 nogil:
        cdef double size = self.length_of_move(), whole = self.shell[self.within].total * size
        cdef double rate = self.chi * whole * whole + whole
        cdef const double *weight = self.urns.urn[self.within].weight
        cdef Py_ssize_t i, count
        cdef double log_ratio = 0.0, change, bound, share, slack = slack_of(self.rounding)
        if not rate < self.most:
            return self.full_pass(threshold)
        count = <Py_ssize_t>random_poisson(&self.stream.bits, rate) if rate > 0.0 else 0
        self.draw_rows(count, False)
        self.read(count)
        for i in range(count):
            bound = weight[self.rows[i]] * size * (1.0 + 1e-9) + 1e-12
            change = held(self, i, bound, slack)            # U_i(now) - U_i(new)
            share = self.chi * weight[self.rows[i]] * size * whole
            # Rate of the row here, whose sum over rows makes up for the posterior's change; for the way back + change.
            if self.stream.bits.next_double(self.stream.bits.state) * (share + bound) < share + 0.5 * (bound - change):
                change /= bound + 2.0 * share
                log_ratio += log1p(change) - log1p(-change)
        self.step.accepted = log_ratio > threshold
        return 0


cdef int by_row(const void *a, const void *b) noexcept nogil:
    cdef int64_t x = (<const int64_t *>a)[0], y = (<const int64_t *>b)[0]
    return (x > y) - (x < y)


cdef class FireflyChain(MinibatchChain):
    """Firefly: the chain moves on the terms of the rows that are bright, and on the summed bounds of all others.

    With w the whitened distance from the point of expansion, a residual is at least -weight |w|^3 / 6. What it has
    above that, its gap g, is at most weight |w|^3 / 3. A row is bright with probability 1 - exp(-g): if a Poisson
    process of rate weight |w|^3 / 3, thinned by g over that rate, has a point.
    """

    cdef double fraction            # of the rows, whose brightness is drawn anew before a decision
    cdef bint lit                   # whether `bright` belongs to the state; if not, all rows are drawn anew
    cdef int64_t *bright            # ascending
    cdef int64_t *pool              # drawn or kept rows, ascending, and below how often each was drawn; 0: bright, kept
    cdef int64_t *times
    cdef Py_ssize_t n_bright

    def __dealloc__(self):
        free(self.bright)
        free(self.pool)
        free(self.times)

    def set_fraction(self, fraction):
        """Share of the rows whose brightness is drawn anew before each decision."""
        cdef double fraction_ = fraction
        guard_check_idle(&self.guard, self)
        self.fraction = fraction_

    def _take_cache(self, cache):
        cdef Py_ssize_t i
        cdef int64_t[::1] rows = np.array(() if cache is None else cache, dtype=np.int64)
        cdef int64_t n = rows.shape[0], last = -1
        for i in range(n):
            if not last < rows[i] < self.source.n_rows:
                raise ValueError(f"bright row {rows[i]} follows {last}, and there are {self.source.n_rows} rows; the "
                                 f"bright rows of a state ascend: a state is of one kernel alone")
            last = rows[i]
        self.lit = False
        self.reserve(n)
        for i in range(n):
            self.bright[i] = rows[i]
        self.n_bright = n
        self.lit = cache is not None

    @property
    def cache(self):
        guard_check(&self.guard, self)
        if not self.lit or self.fraction >= 1.0:
            return None
        return tuple(self.bright[i] for i in range(self.n_bright))

    cdef int reserve(self, Py_ssize_t count) except -1 nogil:
        if count > self.room:
            grow(<void **>&self.bright, count, sizeof(int64_t))
            grow(<void **>&self.pool, count, sizeof(int64_t))
            grow(<void **>&self.times, count, sizeof(int64_t))
        return MinibatchChain.reserve(self, count)

    cdef int cubes(self, double *before, double *after) noexcept nogil:
        """Cubes of the distances from the point of expansion; infinite outside the radius of the weights."""
        cdef Py_ssize_t i
        cdef double a, b, now = 0.0, new = 0.0, radius = self.shell[self.within].radius
        for i in range(self.n_seen):
            a = self.z0[i] + self.from_hat[i]
            b = self.z1[i] + self.from_hat[i]
            now += a * a
            new += b * b
        before[0] = now * sqrt(now) * (1.0 + 1e-9) if now <= radius * radius else INFINITY
        after[0] = new * sqrt(new) * (1.0 + 1e-9) if new <= radius * radius else INFINITY
        return 0

    cdef Py_ssize_t gather(self, Py_ssize_t count) except -1 nogil:
        """`count` draws and the bright rows become a pool: each row once, with how often it was drawn to be bright."""
        cdef Py_ssize_t i = 0, b = 0, n = 0, same
        cdef const urn_t *urn = &self.urns.urn[self.within]
        cdef int64_t row
        cdef bint anew
        self.reserve(count + self.n_bright)
        alias_draws(urn.table, urn.weight, urn.n, &self.stream.bits, count, self.before, self.rows)
        qsort(self.rows, count, sizeof(int64_t), by_row)
        i = 0
        while i < count or b < self.n_bright:
            row = self.rows[i] if i < count else self.bright[b]
            if b < self.n_bright and self.bright[b] < row:
                row = self.bright[b]
            same = 0
            while i < count and self.rows[i] == row:
                i += 1
                same += 1
            anew = (not self.lit or self.fraction >= 1.0
                    or self.stream.bits.next_double(self.stream.bits.state) < self.fraction)
            if b < self.n_bright and self.bright[b] == row:
                b += 1
                if not anew:                    # stays bright
                    same = 0
                elif same == 0:                 # drawn anew, and dark
                    continue
            elif not anew:                      # stays dark
                continue
            self.pool[n] = row
            self.times[n] = same
            n += 1
        return n

    cdef int decide(self, double threshold) except -1 nogil:
        cdef const double *weight = self.urns.urn[self.within].weight
        cdef double before, after, cap, gap, new_gap, sum, total = self.shell[self.within].total
        cdef Py_ssize_t arms[2]
        cdef double *out[2]
        cdef Py_ssize_t i, n
        self.cubes(&before, &after)
        if not total * max(before, after) / 3.0 < self.most:
            self.lit = False
            self.n_bright = 0
            return self.full_pass(threshold)
        sum = total * before / 3.0
        if not self.lit or self.fraction >= 1.0:
            self.n_bright = 0
        n = self.gather(<Py_ssize_t>random_poisson(&self.stream.bits, sum) if sum > 0.0 else 0)
        self.step.n_read = n
        self.step.n_looks = 1
        arms[0], arms[1] = 0, 1
        out[0], out[1] = self.before, self.after
        if n:
            self.source.fill(self.pool, n, arms, 2, out)
        self.n_bright = 0
        sum = -total * (after - before) / 6.0
        for i in range(n):
            cap = weight[self.pool[i]] * before / 3.0
            gap = self.checked(i, self.before[i], cap)
            new_gap = self.checked(i, self.after[i], weight[self.pool[i]] * after / 3.0)
            if self.times[i] > 0 and not (self.stream.bits.next_double(self.stream.bits.state)
                                          < 1.0 - pow(1.0 - gap / cap, <double>self.times[i])):
                continue
            self.bright[self.n_bright] = self.pool[i]
            self.n_bright += 1
            # log(L / B - 1) for the proposal, and here
            sum += new_gap - gap + log(-expm1(-new_gap)) - log(-expm1(-gap))
        self.lit = True
        self.step.accepted = sum > threshold
        return 0

    cdef double checked(self, Py_ssize_t i, double residual, double cap) except? -1.0 nogil:
        """The gap of a residual above its bound, within [0, cap]."""
        cdef double gap = residual + 0.5 * cap, slack = slack_of(self.rounding)
        if not (-slack <= gap <= cap + slack):
            with gil:
                self.rows[i] = self.pool[i]
                self.refuse(i, 0.5 * cap)
        return 0.0 if gap < 0.0 else cap if gap > cap else gap


cdef class BlockTable:
    """Draws of a block of rows, then of a row of it in proportion to its weight. Shared by chains.

    Parameters
    ----------
    weights : array_like of shape (n_rows,) or (n_parts, n_rows)
        If rows are in several blocks, one weight for each.
    codes : array_like of int, shape as `weights`
        The blocks of each row.
    n_blocks : int
    """

    def __cinit__(self, weights, codes, n_blocks):
        cdef cnp.ndarray stack
        cdef Py_ssize_t g, first, count
        given = np.asarray(weights, dtype=np.float64)
        code = np.asarray(codes)
        if given.ndim not in (1, 2) or code.shape != given.shape or not 0 < given.size <= 0xFFFFFFFF:
            raise ValueError(f"weights has shape {given.shape} and codes {code.shape}; a number each for 1 to "
                             f"2^32 - 1 rows, or for each part of them, is needed")
        if not (np.isfinite(given).all() and (given >= 0.0).all()):
            raise ValueError("weights must be finite and not below 0")
        if code.min() < 0 or code.max() >= n_blocks:
            raise ValueError(f"codes go from {code.min()} to {code.max()}; there are {n_blocks} blocks")
        self.n_blocks, self.n_parts = n_blocks, len(given) if given.ndim == 2 else 1
        self.n = given.size // self.n_parts
        if self.n_parts > 1:
            self.by_row, self.blocks_of = np.ascontiguousarray(given.T), np.ascontiguousarray(code.T, dtype=np.intp)
        given, code = given.ravel(), code.ravel()
        self.order = np.argsort(code, kind="stable").astype(np.int64)
        self.weights = given[self.order]
        self.starts = np.concatenate([[0], np.bincount(code, minlength=n_blocks)]).cumsum().astype(np.int64)
        self.totals = np.bincount(code, given, n_blocks)
        free(self.table)
        self.table = <alias_t *>malloc(<size_t>given.size * sizeof(alias_t))
        if self.table == NULL:
            raise MemoryError()
        stack = np.empty(int(np.diff(self.starts).max()), dtype=np.uint32)
        for g in range(self.n_blocks):
            first, count = self.starts[g], self.starts[g + 1] - self.starts[g]
            if self.totals[g] > 0.0:
                alias_build(self.table + first, <const double *>cnp.PyArray_DATA(self.weights) + first, self.totals[g],
                            <uint32_t>count, <uint32_t *>cnp.PyArray_DATA(stack))
        self.order %= self.n

    def __dealloc__(self):
        free(self.table)

    def __reduce__(self):
        if self.n_parts > 1:
            return BlockTable, (np.asarray(self.by_row).T, np.asarray(self.blocks_of).T, self.n_blocks)
        codes = np.repeat(np.arange(self.n_blocks), np.diff(self.starts))
        back = np.argsort(self.order)
        return BlockTable, (np.asarray(self.weights)[back], codes[back], self.n_blocks)


cdef class BlockPoissonChain(MinibatchChain):
    """Poisson minibatches where each row sees the dense coordinates and those of one block.

    With L L' the curvature about the point of expansion, blocks first, z = L' (psi - hat), a row of block g moves its
    predictor by its length times |(z_dense, z_g)| at most: of the other blocks it sees nothing. So each block has a
    size of move of its own, far smaller than that of all coordinates together. Where it lies in a smaller ball before
    and after the move, the weights of that ball bound it: which one does not depend on the direction of the move.
    """

    def __dealloc__(self):
        free(self.drawn)

    def set_blocks(self, BlockTable blocks not None, ArrowFactor factor not None, hat, radius, most, *inner,
                   wider=1.0, unseen=None):
        """Where rows are drawn from; the factor of the metric, for this chain alone; where and how far bounds hold.

        `inner` are pairs of a smaller radius and a table of the same blocks with weights that hold within it, the
        smallest first. Bounds are `wider` by a factor, so that minibatches are larger and add less noise to decisions.
        `unseen` are directions that no row sees, orthonormal in the metric, and the metric times each.
        """
        cdef double most_ = most, radius_ = radius
        guard_check_idle(&self.guard, self)
        if blocks.n != self.source.n_rows or blocks.n_parts > 1 or factor.base.dim != self.n_seen or (
                blocks.n_blocks != max(factor.base.n_blocks, 1)):
            raise ValueError(f"the table has {blocks.n_blocks} blocks of {blocks.n} rows, and the metric "
                             f"{factor.base!r}; {self.source.n_rows} rows and one block for each of the metric are "
                             f"needed")
        self._hold_blocks(blocks, hat, most_, inner, wider, unseen)
        self.factor, self.reach = factor, radius_
        guard_built(&self.guard, 1)

    def _hold_blocks(self, BlockTable blocks, hat, most, inner, wider, unseen):
        cdef BlockTable table
        cdef int k
        if not 1.0 <= wider < INFINITY:
            raise ValueError(f"bounds are wider by {wider}; a finite factor of at least 1 is needed")
        self.wider = wider
        point = np.array(hat, dtype=np.float64)
        if point.shape != (self.n_seen,):
            raise ValueError(f"hat has shape {point.shape}; ({self.n_seen},) is needed")
        ways = np.zeros((2, 0, self.n_seen)) if unseen is None else np.array(unseen, dtype=np.float64, order="C")
        if ways.ndim != 3 or ways.shape[0] != 2 or ways.shape[2] != self.n_seen:
            raise ValueError(f"directions have shape {ways.shape}; (2, k, {self.n_seen}) is needed")
        self._unseen = ways
        if len(inner) > MOST_BALLS:
            raise ValueError(f"weights are given for {len(inner)} smaller balls; at most {MOST_BALLS} are possible")
        self.tables = (*(table for _, table in inner), blocks)
        for k, table in enumerate(self.tables):
            if table.n_blocks != blocks.n_blocks or not np.array_equal(table.order, blocks.order):
                raise ValueError("a table of a smaller ball has other blocks")
            self.total_in[k] = <const double *>cnp.PyArray_DATA(table.totals)
            self.weight_in[k] = <const double *>cnp.PyArray_DATA(table.weights)
            self.table_in[k] = table.table
        for k in range(len(inner)):
            self.ball[k] = inner[k][0]
        self.n_balls = len(inner)
        self._ball_of = np.zeros(blocks.n_blocks, dtype=np.intp)
        self.ball_of = <Py_ssize_t *>cnp.PyArray_DATA(self._ball_of)
        self._from_hat = point
        self.from_hat = <double *>cnp.PyArray_DATA(self._from_hat)
        self.blocks, self.most = blocks, most
        self._sizes = np.zeros(3 * blocks.n_blocks)
        self.size = <double *>cnp.PyArray_DATA(self._sizes)
        self.upto = self.size + blocks.n_blocks

    cdef int reserve(self, Py_ssize_t count) except -1 nogil:
        if count > self.room:
            grow(<void **>&self.drawn, count, sizeof(Py_ssize_t))
        return MinibatchChain.reserve(self, count)

    cdef double widening(self) noexcept nogil:
        """Of this move's bounds. A move along a direction changes little, so that its minibatch adds little noise."""
        return 1.0 if self.along else self.wider

    cdef void take_off(self, double *step) noexcept nogil:
        """Leave of a step what is orthogonal to the directions that no row sees: it moves all predictors as much."""
        cdef const double *way = <const double *>cnp.PyArray_DATA(self._unseen)
        cdef const double *held = way + self._unseen.shape[1] * self.n_seen
        cdef Py_ssize_t _k, i
        cdef double far
        for _k in range(self._unseen.shape[1]):
            far = 0.0
            for i in range(self.n_seen):
                far += held[i] * step[i]
            for i in range(self.n_seen):
                step[i] -= far * way[i]
            way += self.n_seen
            held += self.n_seen

    cdef double measure(self) noexcept nogil:
        """Sizes of the move by block, and the sum of all rates; infinite where the weights do not hold."""
        cdef const double *total = self.total_in[self.n_balls]
        cdef double squares[4]
        cdef double own[4]
        cdef double rate = 0.0, limit = self.reach * self.reach, wider = self.widening(), far
        cdef int k
        cdef Py_ssize_t first = self.factor.base.start, width = self.factor.base.width, g, i
        cdef Py_ssize_t last = first + self.factor.base.n_blocks * width
        for i in range(self.n_seen):
            self.z0[i] = self.now[i] - self.from_hat[i]
            self.z1[i] = self.new[i] - self.from_hat[i]
        self.take_off(self.z0)
        self.take_off(self.z1)
        self.factor.to_z(self.z0)
        self.factor.to_z(self.z1)
        squares[0] = squares[1] = squares[2] = squares[3] = 0.0
        for i in range(first):
            add_squares(squares, self.z0[i], self.z1[i])
        for i in range(last, self.n_seen):
            add_squares(squares, self.z0[i], self.z1[i])
        for g in range(self.blocks.n_blocks):
            own[0], own[1], own[2], own[3] = squares[0], squares[1], squares[2], squares[3]
            if last > first:
                for i in range(first + g * width, first + (g + 1) * width):
                    add_squares(own, self.z0[i], self.z1[i])
            self.size[g] = 0.0
            if total[g] > 0.0:
                if not (own[0] <= limit and own[2] <= limit):
                    return INFINITY
                self.size[g] = wider * cubic_change(own[0], own[1], own[2], own[3])
                far, k = max(own[0], own[2]), 0
                while k < self.n_balls and far > self.ball[k] * self.ball[k]:
                    k += 1
                self.ball_of[g] = k
                rate += self.total_in[k][g] * self.size[g]
            self.upto[g] = rate
        return rate

    cdef double inverse_size(self, Py_ssize_t i) noexcept nogil:
        return 1.0 / self.size[self.drawn[i]]

    cdef double rate_of(self, Py_ssize_t i) noexcept nogil:
        return self.bound[i]

    cdef int draw_in_blocks(self, Py_ssize_t count, double rate) except -1 nogil:
        """Draw rows with their bounds."""
        cdef const int64_t *order = <const int64_t *>cnp.PyArray_DATA(self.blocks.order)
        cdef const int64_t *starts = <const int64_t *>cnp.PyArray_DATA(self.blocks.starts)
        cdef const float *inverse = NULL
        cdef const alias_t *table
        cdef Py_ssize_t i, low, high, middle, parts = self.blocks.n_parts
        cdef int64_t place
        cdef double level
        self.step.n_read, self.step.n_looks = count, 1
        if count == 0:
            return 0
        self.reserve(count)
        if self.thins(rate):
            inverse = <const float *>cnp.PyArray_DATA(self._inverse_cubes)
        for i in range(count):              # as in `alias_draws`: what lies far apart is asked for ahead
            level = rate * self.stream.bits.next_double(self.stream.bits.state)
            low, high = 0, self.blocks.n_blocks - 1
            while low < high:               # the first block whose rates reach beyond the level
                middle = (low + high) // 2
                if self.upto[middle] > level:
                    high = middle
                else:
                    low = middle + 1
            self.drawn[i] = low
            self.rows[i] = bounded32(&self.stream.bits, <uint32_t>(starts[low + 1] - starts[low]))
            PREFETCH(self.table_in[self.ball_of[low]] + starts[low] + self.rows[i])
            self.before[i] = self.stream.bits.next_double(self.stream.bits.state)
        for i in range(count):
            low, place = self.drawn[i], self.rows[i]
            table = self.table_in[self.ball_of[low]] + starts[low]
            if not self.before[i] < table[place].keep:
                place = table[place].other
            self.rows[i] = starts[low] + place
            PREFETCH(order + self.rows[i])
            PREFETCH(self.weight_in[self.ball_of[low]] + self.rows[i])
        for i in range(count):
            low, place = self.drawn[i], self.rows[i]
            self.rows[i] = order[place]
            if inverse != NULL:
                PREFETCH(inverse + self.rows[i])
            if parts == 1:
                self.bound[i] = self.weight_in[self.ball_of[low]][place] * self.size[low]
            else:
                self.bound[i] = self.bound_of(self.rows[i])
        return 0

    cdef double bound_of(self, int64_t row) noexcept nogil:
        """The sum of a row's bounds over its blocks, in proportion to which it is drawn."""
        cdef Py_ssize_t k, parts = self.blocks.n_parts
        cdef const double *weight = <const double *>cnp.PyArray_DATA(self.blocks.by_row) + row * parts
        cdef const Py_ssize_t *block = <const Py_ssize_t *>cnp.PyArray_DATA(self.blocks.blocks_of) + row * parts
        cdef double sum = 0.0
        for k in range(parts):
            sum += weight[k] * self.size[block[k]]
        return sum

    cdef int decide(self, double threshold) except -1 nogil:
        cdef double rate = self.measure()
        cdef Py_ssize_t count
        if not rate < self.most:
            return self.full_pass(threshold)
        count = <Py_ssize_t>random_poisson(&self.stream.bits, rate) if rate > 0.0 else 0
        self.draw_in_blocks(count, rate)
        self.step.accepted = self.decided_by(count, rate, threshold)
        return 0


cdef inline void add_squares(double *to, double a, double b) noexcept nogil:
    """Onto |z0|^2, z0 . z1, |z1|^2 and |z1 - z0|^2: one coordinate."""
    to[0] += a * a
    to[1] += a * b
    to[2] += b * b
    to[3] += (b - a) * (b - a)
