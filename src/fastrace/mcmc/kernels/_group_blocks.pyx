# cython: cdivision=True
"""Effects of groups that are moved and decided one group at a time, each by its own rows."""

from libc.math cimport INFINITY, M_PI, cos, log, sin
from libc.stdint cimport int64_t
from libc.string cimport memcpy
cimport numpy as cnp
from numpy.random cimport bitgen_t

from fastrace._base._guard cimport guard_await, guard_build, guard_built, guard_check_built
from fastrace._draws._rng cimport random_standard_exponential
from fastrace._models._arrow cimport Arrow, factor_block, Quadratic, solve_lower, solve_upper
from fastrace._models._expanded cimport Expanded
from fastrace._models._priors cimport JointPrior
from fastrace._models._softmax cimport SoftmaxSource
from fastrace.likelihoods cimport fr_glm_derivatives, GLMSource
from fastrace.mcmc.kernels._chain cimport Chain, begin

import numpy as np


cdef extern from "numpy/random/distributions.h" nogil:
    double random_standard_normal(bitgen_t *bits)

cdef enum:
    MOST_SHRINKS = 200              # of a slice

cdef double NEWTON_SHARE = 0.5      # of sweeps that propose about Newton's step; in the others groups slice

cnp.import_array()


cdef class GroupBlocks:
    r"""Sweeps over the effects of groups, each moved given all else and decided by the rows of its group.

    Let u be the effects of one group, p(u) = N(0, P^-1) their prior density given the hyperparameters, and L_g(u) the
    log-likelihood of the group's rows, all else held. Half of the sweeps propose from the normal density at Newton's
    step from u: with gradient s of L_g + log p and curvature A = P + H at u, where H is that of the rows that are
    curved downwards, that is N(u + A^-1 s, A^-1) [1]_. A proposal of density q(u' | u) is accepted with probability
    min(1, exp(change of (L_g + log p)) q(u | u') / q(u' | u)). The others slice L_g along an ellipse through u and a
    draw of p [2]_, which always moves and reaches as far as a flat side of L_g does.

    Parameters
    ----------
    surrogate : Quadratic
        What the chain's rewards, those of an `Expanded`, leave out of the log-likelihood. Its curvature is 0 between
        effects of different groups.
    prior : JointPrior
        Copied. Effects are normal about 0 given the hyperparameters.
    factor : Factor
        The group of each row, and where the effects are.
    groups : ndarray of int, ascending
        Those to sweep over; each has rows.
    first_precision : int
        Where the precision of the effects begins among those of the prior.
    values : ndarray of shape (n_rows, width / n_free)
        What the effects of each row multiply.
    following : GroupBlocks, optional
        Of another factor, to be swept after this one.
    sliced : array_like of bool, shape (n_groups,), optional
        Which of the groups slice; the others propose about Newton's step in all sweeps. By default all slice.
    n_free : int, default 1
        Predictors of a row. Effects of a group stand value by value, and of each value predictor by predictor.

    References
    ----------
    .. [1] Gamerman, "Sampling from the posterior distribution in generalized linear mixed models", Statistics and
       Computing 7, 1997.
    .. [2] Murray, Adams, MacKay, "Elliptical slice sampling", AISTATS 2010.
    """

    def __cinit__(self):
        guard_await(&self.guard, 0)

    def __init__(self, Quadratic surrogate not None, JointPrior prior not None, factor, groups, first_precision,
                 values, GroupBlocks following=None, n_free=1, sliced=None):
        cdef Arrow curvature = surrogate.curvature
        cdef Py_ssize_t n = surrogate.dim, q = factor.width, free = n_free
        cdef double *number
        guard_check_built(&surrogate.guard, surrogate)
        if following is not None:
            guard_check_built(&following.guard, following)
        groups, codes = np.asarray(groups, dtype=np.intp), np.asarray(factor.codes)
        counts = np.bincount(codes, minlength=factor.n_groups)[groups]
        if prior.n_seen != n or not len(groups) or not counts.all():
            raise ValueError(f"the prior is of {prior.n_seen} parameters that rows see, and the surrogate of {n}; "
                             f"{len(groups)} groups have {counts.tolist()} rows, and each needs one")
        if free < 1 or q % free or np.shape(values) != (len(codes), q // free):
            raise ValueError(f"values has shape {np.shape(values)}; ({len(codes)}, {q} / {free}) is needed")
        guard_build(&self.guard, 0, self)
        order = np.argsort(codes, kind="stable")
        order = order[np.isin(codes[order], groups)]
        self._rows, self._ends = order.astype(np.int64), np.cumsum(counts).astype(np.intp)
        self._places = (factor.start + groups * q).astype(np.intp)
        self._values = np.ascontiguousarray(np.asarray(values, dtype=np.float64)[order])
        self.n_groups, self.n_rows, self.width = len(groups), len(order), q
        self.n_all, self.n_free = len(codes), free
        self._sliced = np.ones(len(groups), np.int8) if sliced is None else np.array(sliced, dtype=bool).astype(np.int8)
        if self._sliced.shape[0] != self.n_groups:
            raise ValueError(f"sliced has shape {np.shape(sliced)}; ({self.n_groups},) is needed")
        self.sliced, self.n_sliced = <const char *>cnp.PyArray_DATA(self._sliced), int(self._sliced.sum())
        self.surrogate = surrogate.shared()
        self._blocks = curvature.blocks_at(self._places, q)
        self.prior, self.first_precision, self.following = prior.copy(), first_precision, following
        self._places_open = np.zeros(self.n_groups, dtype=np.intp)
        self._rows_open = np.zeros(self.n_rows, dtype=np.int64)
        self._memory = np.zeros(3 * n + prior.n_precision + (7 + q) * self.n_groups + (2 + free) * self.n_all + q * q
                                + 2 * q)
        number = <double *>cnp.PyArray_DATA(self._memory)
        self.mean, self.gap, self.slope = number, number + n, number + 2 * n
        self.precision = number + 3 * n
        self.gain = self.precision + prior.n_precision
        self.left, self.low = self.gain + self.n_groups, self.gain + 2 * self.n_groups
        self.high, self.angle = self.low + self.n_groups, self.low + 2 * self.n_groups
        self.sums, self.above = self.low + 3 * self.n_groups, self.low + 4 * self.n_groups
        self.noise = self.low + 5 * self.n_groups
        self.level = self.noise + q * self.n_groups
        self.bent, self.by_eta = self.level + self.n_all, self.level + 2 * self.n_all
        self.root = self.by_eta + free * self.n_all
        self.middle, self.step = self.root + q * q, self.root + q * q + q
        self.open = <Py_ssize_t *>cnp.PyArray_DATA(self._places_open)
        self.rows_open = <int64_t *>cnp.PyArray_DATA(self._rows_open)
        self.rows = <const int64_t *>cnp.PyArray_DATA(self._rows)
        self.values = <const double *>cnp.PyArray_DATA(self._values)
        self.places = <const Py_ssize_t *>cnp.PyArray_DATA(self._places)
        self.ends = <const Py_ssize_t *>cnp.PyArray_DATA(self._ends)
        self.blocks = <const double *>cnp.PyArray_DATA(self._blocks)
        guard_built(&self.guard, 0)

    def __reduce__(self):
        raise TypeError("GroupBlocks belong to the kernel that made them and are not saved")

    cdef void gradient(self, const double *psi) noexcept nogil:
        """Of the surrogate at psi."""
        cdef Py_ssize_t i
        for i in range(self.surrogate.dim):
            self.gap[i] = psi[i] - self.surrogate.hat[i]
        self.surrogate.curvature.product(self.gap, self.slope)
        for i in range(self.surrogate.dim):
            self.slope[i] = self.surrogate.slope[i] - self.slope[i]

    cdef double fall(self, Py_ssize_t g, const double *now, const double *new) noexcept nogil:
        """How far the surrogate falls if a group's effects go from `now` to `new`."""
        cdef Py_ssize_t i, q = self.width
        cdef double out
        for i in range(q):
            self.step[i] = new[i] - now[i]
        out = 0.5 * form(self.blocks + g * q * q, self.step, q)
        for i in range(q):
            out -= self.slope[self.places[g] + i] * self.step[i]
        return out

    cdef int differentiate(self, Chain chain, const double *psi) except -1 nogil:
        """Terms of all rows at psi, with what tells two derivatives in their predictors."""
        if fr_glm_derivatives(&(<GLMSource>(<Expanded>chain.source).source).model, psi, 0, self.n_all, self.level,
                              self.by_eta, self.bent):
            with gil:
                raise MemoryError()
        return 0

    cdef void add_rows(self, Py_ssize_t g) noexcept nogil:
        """Add terms, gradient and curvature by a group's effects, of its rows, to `total`, `middle` and `root`."""
        cdef Py_ssize_t a, b, i, k, q = self.width
        cdef const double *z
        cdef double curved
        for i in range(self.ends[g - 1] if g > 0 else 0, self.ends[g]):
            k, z = self.rows[i], self.values + i * q
            curved = max(0.0, -self.bent[k])
            self.total += self.level[k]
            for a in range(q):
                self.middle[a] += self.by_eta[k] * z[a]
                for b in range(a + 1):
                    self.root[a * q + b] += curved * z[a] * z[b]

    cdef double newton(self, Py_ssize_t g, const double *now) noexcept nogil:
        """Where Newton's step leads from the effects of a group into `middle`, the factor of A into `root`.

        Returns the log density of the effects plus log |A| / 2, up to a constant; minus infinity where there is none.
        """
        cdef Py_ssize_t a, b, q = self.width
        cdef const double *P = self.precision + self.first_precision
        cdef double out = -0.5 * form(P, now, q)
        self.total = 0.0
        memcpy(self.root, P, q * q * sizeof(double))
        for a in range(q):
            self.middle[a] = -product_at(P, now, a, q)
        self.add_rows(g)                                # the lower triangle of `root`
        for a in range(q):
            for b in range(a):
                self.root[b * q + a] = self.root[a * q + b]
        if not factor_block(self.root, q):
            return -INFINITY
        solve_lower(self.root, self.middle, q)
        solve_upper(self.root, self.middle, q)
        for a in range(q):
            self.middle[a] += now[a]
            out += log(self.root[a * q + a])
        return out + self.total

    cdef double away(self, const double *effects) noexcept nogil:
        """Half the squared distance of effects from `middle` by the factor in `root`."""
        cdef Py_ssize_t a, b, q = self.width
        cdef double sum, out = 0.0
        for b in range(q):                              # root' (effects - middle)
            sum = 0.0
            for a in range(b, q):
                sum += self.root[a * q + b] * (effects[a] - self.middle[a])
            out += sum * sum
        return 0.5 * out

    cdef int about_newton(self, Chain chain, bint others, bitgen_t *bits) except -1 nogil:
        """Proposals about Newton's step: `new` effects, and `gain` above 0 where a group takes them.

        With `others`, of those groups alone that do not slice.
        """
        cdef Py_ssize_t g, at, k, q = self.width
        cdef double here
        self.differentiate(chain, chain.now)
        for g in range(self.n_groups):
            if others and self.sliced[g]:
                continue
            at = self.places[g]
            here = self.newton(g, chain.now + at)
            self.left[g] = -self.total
            if here == -INFINITY:
                continue
            for k in range(q):
                self.step[k] = random_standard_normal(bits)
                here -= 0.5 * self.step[k] * self.step[k]
            solve_upper(self.root, self.step, q)
            for k in range(q):
                chain.new[at + k] = self.middle[k] + self.step[k]
            self.gain[g] = random_standard_exponential(bits) - here
        self.differentiate(chain, chain.new)
        for g in range(self.n_groups):
            if self.gain[g] > -INFINITY:
                at = self.places[g]
                self.gain[g] += self.newton(g, chain.new + at) - self.away(chain.now + at)
                self.left[g] += self.total
        self.visited += 2 * self.n_rows
        return 0

    cdef int add_terms(self, Chain chain, Py_ssize_t arm, Py_ssize_t count) except -1 nogil:
        """Sums of the terms of the first `count` groups of `open`, at one of the chain's points, into `sums`."""
        cdef Py_ssize_t t, g, i, first, place = 0
        cdef double *out = self.level
        for t in range(count):
            g = self.open[t]
            first = self.ends[g - 1] if g > 0 else 0
            memcpy(self.rows_open + place, self.rows + first, (self.ends[g] - first) * sizeof(int64_t))
            place += self.ends[g] - first
        (<Expanded>chain.source).source.terms(NULL, self.rows_open, 0, place, &arm, 1, &out)
        self.visited += place
        place = 0
        for t in range(count):
            g = self.open[t]
            first = self.ends[g - 1] if g > 0 else 0
            self.sums[g] = 0.0
            for i in range(self.ends[g] - first):
                self.sums[g] += self.level[place + i]
            place += self.ends[g] - first
        return 0

    cdef int on_ellipses(self, Chain chain, bitgen_t *bits) except -1 nogil:
        """Slices along ellipses, of all groups at once until each has its point; answers as `about_newton`."""
        cdef Py_ssize_t g, t, k, at, count = 0, kept, q = self.width
        for g in range(self.n_groups):
            if not self.sliced[g]:
                continue
            memcpy(self.root, self.precision + self.first_precision, q * q * sizeof(double))
            if not factor_block(self.root, q):          # no density at such hyperparameters
                continue
            for k in range(q):
                self.noise[g * q + k] = random_standard_normal(bits)
            solve_upper(self.root, self.noise + g * q, q)
            self.left[g] = -random_standard_exponential(bits)
            self.angle[g] = self.high[g] = 2.0 * M_PI * bits.next_double(bits.state)
            self.low[g] = self.high[g] - 2.0 * M_PI
            self.open[count] = g
            count += 1
        self.add_terms(chain, 0, count)
        for t in range(count):
            g = self.open[t]
            self.above[g], self.left[g] = self.left[g] + self.sums[g], -self.sums[g]
        for _tries in range(MOST_SHRINKS):
            for t in range(count):
                g, at = self.open[t], self.places[self.open[t]]
                for k in range(q):
                    chain.new[at + k] = (cos(self.angle[g]) * chain.now[at + k]
                                         + sin(self.angle[g]) * self.noise[g * q + k])
            if count == 0:
                break
            self.add_terms(chain, 1, count)
            kept = 0
            for t in range(count):
                g = self.open[t]
                if self.sums[g] > self.above[g]:     # not where it is nan
                    self.gain[g] = INFINITY
                    self.left[g] += self.sums[g]
                    continue
                if self.angle[g] < 0.0:
                    self.low[g] = self.angle[g]
                else:
                    self.high[g] = self.angle[g]
                self.angle[g] = self.low[g] + (self.high[g] - self.low[g]) * bits.next_double(bits.state)
                self.open[kept] = g
                kept += 1
            count = kept
        return 0

    cdef int sweep(self, Chain chain, bitgen_t *bits) except -1 nogil:
        """A move of each group; what was read goes into the chain's step."""
        cdef Py_ssize_t g, i, q = self.width
        cdef double total = 0.0
        begin(chain, bits)
        self.visited = 0
        self.prior.conditional(chain.phi_now, self.mean, self.precision)
        self.gradient(chain.now)
        memcpy(chain.new, chain.now, chain.n_seen * sizeof(double))
        for g in range(self.n_groups):
            self.gain[g] = -INFINITY
        if bits.next_double(bits.state) < NEWTON_SHARE:
            self.about_newton(chain, False, bits)
        else:
            if self.n_sliced < self.n_groups:
                self.about_newton(chain, True, bits)
            if self.n_sliced > 0:
                self.on_ellipses(chain, bits)
        for g in range(self.n_groups):
            i = self.places[g]
            if self.gain[g] > 0.0:                      # not where it is nan
                total += self.left[g] + self.fall(g, chain.now + i, chain.new + i)
                memcpy(chain.now + i, chain.new + i, q * sizeof(double))
            else:
                memcpy(chain.new + i, chain.now + i, q * sizeof(double))
        chain.moved_by(total)
        chain.step.n_read = self.visited
        chain.step.n_looks = 1
        if self.following is not None:
            self.following.sweep(chain, bits)
            chain.step.n_read += self.visited
            chain.step.n_looks += 1
        return 0


cdef class ClassBlocks(GroupBlocks):
    """Sweeps over the effects of groups on the classes of a `SoftmaxSource`, of whose rows each has several predictors.

    As `GroupBlocks` of n_free predictors, one for each class but the first: a group's effects on all classes move at
    once. The curvature of a row in its predictors is that of a multinomial distribution, which is never downwards.
    """

    cdef int differentiate(self, Chain chain, const double *psi) except -1 nogil:
        """Terms of the rows at psi, their classes, and the probabilities of these, in the order of `rows`."""
        self.times = (<SoftmaxSource>(<Expanded>chain.source).source).rows.model.weight
        return (<SoftmaxSource>(<Expanded>chain.source).source).derive(psi, self.rows, self.n_rows, self.level,
                                                                       self.by_eta, self.bent)

    cdef void add_rows(self, Py_ssize_t g) noexcept nogil:
        cdef Py_ssize_t c, d, i, own, s, t, q = self.width, free = self.n_free, terms = self.width // self.n_free
        cdef const double *z
        cdef const double *share
        cdef double times, pull, bend, both, total = 0.0
        for i in range(self.ends[g - 1] if g > 0 else 0, self.ends[g]):
            z, share, own = self.values + i * terms, self.by_eta + i * free, <Py_ssize_t>self.bent[i] - 1
            times = self.times[self.rows[i]] if self.times != NULL else 1.0
            total += self.level[i]
            for c in range(free):
                pull = times * ((1.0 if own == c else 0.0) - share[c])
                for t in range(terms):
                    self.middle[t * free + c] += pull * z[t]
                for d in range(c + 1):
                    bend = times * share[c] * ((1.0 if d == c else 0.0) - share[d])
                    for t in range(terms):
                        for s in range(t + 1):
                            both = bend * z[t] * z[s]
                            self.root[(t * free + c) * q + s * free + d] += both
                            if d < c:
                                self.root[(t * free + d) * q + s * free + c] += both
        self.total = total
