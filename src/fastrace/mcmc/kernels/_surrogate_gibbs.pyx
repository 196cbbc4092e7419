# cython: cdivision=True
"""Sweeps of a mixture of regressions over groups of rows, proposed from one expansion a group, corrected by few rows.

With Q_g the expansion of group g and R_g = L_g - Q_g what it leaves of the log-likelihood, a sweep draws

    the label of each group      from weight_k exp(Q_g(theta_k)),
    the parameters of each class from prior(theta) exp(sum of Q_g(theta) over its groups), which is normal,

and accepts each change with probability min(1, exp(change of the sum of R_g over the groups that it touches)): of one
group for a label, of all groups of the class for parameters. Weights and hyperparameters have closed forms.

A scale that is learned is the last parameter of each class, as its logarithm t. Its prior p(t) need not be normal: the
proposal has a normal density N(t) in its place, and the ratio of p / N at both points is part of the decision. In t an
expansion follows the likelihood of a few rows badly. So small groups are read: their labels are drawn

    from weight_k exp(L_g(theta_k)), and no decision is left,

and parameters of classes that have any are proposed about Newton's step from where they are, from the derivatives of
the rows of small groups and the expansions of the others. What that makes of the ratio is in the decision.

A scale that all classes share is drawn after the coefficients of the classes, which are then drawn given it: about
Newton's step along its logarithm, by all groups.

Where expansions are poor, such proposals may hold a chain in a place that they hardly ever propose. So a share of all
changes is proposed otherwise: labels from wider shares, weight_k exp(Q_g(theta_k)) to the power WIDE, and parameters by
a random walk of random length. Their acceptance ratio has the expansions in it.
"""

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.math cimport INFINITY, exp, log, sqrt
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memset
cimport numpy as cnp
from numpy.random cimport bitgen_t

from scipy.linalg.cython_blas cimport dtrsv
from scipy.linalg.cython_lapack cimport dpotrf, dpotrs

from fastrace._base._guard cimport guard_enter, guard_leave
from fastrace._base._signals cimport check_signals
from fastrace._draws._alias cimport alias_draws
from fastrace._draws._rng cimport random_standard_exponential
from fastrace._draws._row_stream cimport row_stream_init, row_stream_seed, row_stream_t
from fastrace._math._poisson cimport FACTORS, poisson_factor
from fastrace.mcmc.kernels._class_at cimport ClassAt
from fastrace.mcmc.kernels._classes cimport draw_mean_and_spread, draw_weights, pick, sort_members
from fastrace.mcmc.kernels._mixture_memory cimport MixtureMemory
from fastrace.races._weighted cimport slack_of

from fastrace.races._weighted import refuse_change

cnp.import_array()

cdef extern from "numpy/random/distributions.h" nogil:
    double random_standard_normal(bitgen_t *bits)
    int64_t random_poisson(bitgen_t *bits, double rate)

cdef enum:
    ROWS_AT_ONCE = 256
    WORK_PER_CHECK = 1 << 16

cdef double AIM = 0.65          # acceptance of a class's proposals that tuning shortens them for
cdef double PLAIN = 0.1         # share of labels proposed from wider shares, and of parameters proposed by a walk
cdef double WIDE = 0.25         # power of these shares
cdef double FAR = 700.0         # of the logarithm of a scale: further from 0 its prior has no mass, nor doubles scales


cdef class SurrogateGibbsCore(MixtureMemory):
    """One chain's sweeps; parameters are those of `MixtureMemory`."""

    cdef readonly int64_t n_done
    cdef double new_scale               # of `new`, which holds its logarithm
    cdef int64_t rows[ROWS_AT_ONCE]
    cdef double before[ROWS_AT_ONCE]
    cdef double after[ROWS_AT_ONCE]
    cdef int64_t work                   # terms of rows and the like since the last look for Ctrl-C
    cdef int64_t n_read                 # of this sweep
    cdef int64_t n_decided, n_accepted, n_full
    cdef row_stream_t stream

    def __cinit__(self):
        row_stream_init(&self.stream)

    def run(self, rng, double[:, ::1] draws, int64_t[::1] rows, int32_t[::1] looks, uint8_t[::1] flags, n_tuned=-1):
        """Make as many sweeps as the arrays have places. From 0 up, `n_tuned` sweeps have adapted the moves before.

        After an exception, as from Ctrl-C within a sweep, the state is that after `n_done` sweeps.
        """
        cdef bitgen_t *bits = <bitgen_t *>PyCapsule_GetPointer(rng.bit_generator.capsule, "BitGenerator")
        cdef Py_ssize_t n = draws.shape[0], t
        cdef int64_t tuned = n_tuned
        if draws.shape[1] != self.size or rows.shape[0] != n or looks.shape[0] != n or flags.shape[0] != n:
            raise ValueError("the arrays of a run must agree in length")
        guard_enter(&self.guard, self)
        self.n_done = self.work = 0
        memset(self.tally, 0, sizeof(self.tally))
        self.take_prior()
        self.keep()
        try:
            with rng.bit_generator.lock:
                with nogil:
                    for t in range(n):
                        self.sweep(bits, tuned + t if tuned >= 0 else -1)
                        self.write(&draws[t, 0])
                        rows[t] = self.n_read
                        looks[t] = <int32_t>self.n_decided
                        flags[t] = <uint8_t>((2 * self.n_accepted >= self.n_decided)
                                             | ((self.n_full > 0 and self.n_full == self.n_decided) << 1))
                        self.n_done = t + 1
                        self.keep()
                        self.listen(1024)
        except BaseException:
            self.put_back()
            raise
        finally:
            guard_leave(&self.guard)

    cdef int listen(self, int64_t work) except -1 nogil:
        """Let Ctrl-C through where much has been done since the last look."""
        self.work += work
        if self.work >= WORK_PER_CHECK:
            self.work = 0
            check_signals()
        return 0

    cdef int sweep(self, bitgen_t *bits, int64_t tuned) except -1 nogil:
        cdef Py_ssize_t g, j, k
        row_stream_seed(&self.stream, bits.next_uint64(bits.state))
        self.n_read = self.n_decided = self.n_accepted = self.n_full = 0
        self.groups.features(self.theta, self.n_classes, self.powers)
        self.groups.values_of(self.powers, self.n_classes, self.values)
        for g in range(self.n_groups):
            self.draw_label(g, bits)
            self.listen(self.n_classes)
        sort_members(self.label, self.n_groups, self.n_classes, self.member, self.begin)
        if self.moves_parameters:
            for g in range(self.n_groups):
                self.known[g] = -1 if self.rows_of(g) <= self.small_rows else self.label[g]
            self.groups.add_up(self.known, self.n_classes, self.sums)
            for k in range(self.n_classes):
                self.draw_parameters(k, tuned, bits)
            if self.shared:
                self.draw_shared_scale(tuned, bits)
        if self.moves_weights:
            draw_weights(bits, self.concentration, self.begin, self.n_classes, self.weight, self.log_weight)
        if self.hierarchical:
            for j in range(self.n_coefficients):
                draw_mean_and_spread(bits, self.theta + j, self.n_classes, self.dim, self.prior_mean[j],
                                     self.prior_precision[j], self.sd_scale, &self.mean[j], &self.spread[j])
            self.take_prior()
        return 0

    cdef int draw_label(self, Py_ssize_t g, bitgen_t *bits) except -1 nogil:
        cdef const double *value = self.values + g * self.n_classes
        cdef Py_ssize_t k, now = self.label[g], new
        cdef double largest = -INFINITY, total = 0.0, log_ratio = 0.0, power = 1.0
        cdef bint plain, full, accepted
        if self.n_classes > 1 and self.rows_of(g) <= self.small_rows:
            return self.draw_label_from_rows(g, bits)
        plain = bits.next_double(bits.state) < PLAIN
        for k in range(self.n_classes):
            self.score[k] = value[k] + self.log_weight[k]
            largest = max(largest, self.score[k])
        if plain:
            power = WIDE
            log_ratio = -(1.0 - power) * self.score[now]
        for k in range(self.n_classes):
            self.share[k] = exp(power * (self.score[k] - largest))
            total += self.share[k]
        new = pick(self.share, self.n_classes, bits.next_double(bits.state) * total, now)
        if new == now:
            return 0
        if plain:
            log_ratio += (1.0 - power) * self.score[new]
        memcpy(self.now, self.theta + now * self.dim, self.dim * sizeof(double))
        memcpy(self.new, self.theta + new * self.dim, self.dim * sizeof(double))
        full = self.weigh(g, value[new] - value[now], &log_ratio)
        accepted = self.decide(log_ratio, full, bits)
        if accepted:
            self.label[g] = new
        if not plain:
            self.tally[0] += 1
            self.tally[1] += accepted
        return 0

    cdef int draw_label_from_rows(self, Py_ssize_t g, bitgen_t *bits) except -1 nogil:
        """From the label's own distribution, given all else. A class at which the terms overflow has no share."""
        cdef double largest = -INFINITY, total = 0.0
        cdef Py_ssize_t k
        memcpy(self.now, self.theta, self.n_classes * self.dim * sizeof(double))
        memset(self.score, 0, self.n_classes * sizeof(double))
        self.source.add_sums((<const int64_t *>cnp.PyArray_DATA(self.groups.starts))[g], self.rows_of(g), self.arms,
                             self.n_classes, self.score)
        self.n_read += self.rows_of(g)
        self.listen(self.n_classes * self.rows_of(g))
        for k in range(self.n_classes):
            self.score[k] += self.log_weight[k]
            if not self.score[k] < INFINITY:
                self.score[k] = -INFINITY
            largest = max(largest, self.score[k])
        if largest == -INFINITY:
            return 0
        for k in range(self.n_classes):
            self.share[k] = exp(self.score[k] - largest)
            total += self.share[k]
        self.label[g] = pick(self.share, self.n_classes, bits.next_double(bits.state) * total, self.label[g])
        return 0

    cdef bint decide(self, double log_ratio, bint full, bitgen_t *bits) noexcept nogil:
        """A Metropolis decision; a ratio that is nan refuses."""
        cdef bint accepted = log_ratio > -random_standard_exponential(bits)
        self.n_decided += 1
        self.n_accepted += accepted
        self.n_full += full
        return accepted

    cdef int weigh(self, Py_ssize_t g, double expected, double *log_ratio) except -1 nogil:
        """Add what group g says of a move from arm 0 to arm 1 that its expansion does not: 1 if it read all its rows.

        `expected` is the change of the expansion. By a Poisson minibatch, whose factors make the decision exact, or by
        all rows; which of the two depends on both points alike.
        """
        cdef int64_t first = (<const int64_t *>cnp.PyArray_DATA(self.groups.starts))[g]
        cdef int64_t n = (<const int64_t *>cnp.PyArray_DATA(self.groups.starts))[g + 1] - first, count, part
        cdef double size = self.groups.size_of_move(g, self.now, self.new, self.room)
        cdef double rate = (<const double *>cnp.PyArray_DATA(self.groups.totals))[g] * size
        cdef double slack = slack_of((<const double *>cnp.PyArray_DATA(self.groups.roundings))[g])
        cdef double sums[2]
        cdef Py_ssize_t arms[2]
        arms[0], arms[1] = 0, 1
        if not rate < self.most * n:
            sums[0] = sums[1] = 0.0
            self.source.add_sums(first, n, arms, 2, sums)
            log_ratio[0] += sums[1] - sums[0] - expected
            self.n_read += n
            self.listen(2 * n)
            return 1
        count = random_poisson(&self.stream.bits, rate) if rate > 0.0 else 0
        self.n_read += count
        while count > 0:
            part = min(count, <int64_t>ROWS_AT_ONCE)
            self.read(g, first, <uint32_t>n, <Py_ssize_t>part, size, slack, log_ratio)
            count -= part
            self.listen(2 * part)
        return self.listen(self.groups.n_terms)

    cdef int read(self, Py_ssize_t g, int64_t first, uint32_t n, Py_ssize_t count, double size, double slack,
                  double *log_ratio) except -1 nogil:
        """Draw rows of a group in proportion to their weights; their factors of the acceptance ratio."""
        cdef const double *weight = <const double *>cnp.PyArray_DATA(self.groups.weights)
        cdef Py_ssize_t arms[2]
        cdef double *out[2]
        cdef double factor = 1.0, change, bound
        cdef Py_ssize_t i
        arms[0], arms[1] = 0, 1
        out[0], out[1] = self.before, self.after
        alias_draws(self.groups.table + first, weight + first, n, &self.stream.bits, count, self.before, self.rows)
        for i in range(count):
            self.rows[i] += first
        self.source.terms(self.about + g * self.n_about, self.rows, 0, count, arms, 2, out)
        for i in range(count):
            bound = weight[self.rows[i]] * size
            change = self.after[i] - self.before[i]
            if not (-bound - slack <= change <= bound + slack):
                with gil:
                    refuse_change(self.rows[i], self.before[i], self.after[i], bound)
            change = min(max(change, -bound), bound)
            factor *= poisson_factor(change, bound, self.stream.bits.next_double(self.stream.bits.state))
            if i % FACTORS == FACTORS - 1:
                log_ratio[0] += log(factor)
                factor = 1.0
        log_ratio[0] += log(factor)
        return 0

    cdef int draw_parameters(self, Py_ssize_t k, int64_t tuned, bitgen_t *bits) except -1 nogil:
        """New parameters of a class, from the normal density that its groups' expansions and the prior make.

        theta' = center + sqrt(1 - s^2) (theta - center) + s noise is reversible with respect to it for any share s of
        noise; at s = 1 it is an independent draw. A walk is theta + s noise. A class without groups has its prior: its
        scale is drawn from that itself.
        """
        cdef Py_ssize_t d = self.dim, p = self.n_moving, j
        cdef double *theta = self.theta + k * d
        cdef double share = self.noise[k], keep, log_ratio = 0.0
        cdef bint empty = self.begin[k] == self.begin[k + 1], full
        cdef bint plain = not empty and bits.next_double(bits.state) < PLAIN
        if plain:
            share = 2.4 / sqrt(<double>p) * exp(1.5 * random_standard_normal(bits))
        for j in range(self.begin[k], self.begin[k + 1] if self.has_small else 0):
            if self.rows_of(self.member[j]) <= self.small_rows:
                return self.draw_from_rows(k, share, plain, tuned, bits)
        self.factor_class(k)
        keep = sqrt(max(0.0, 1.0 - share * share))
        self.draw_noise(bits)
        for j in range(p, d):
            self.new[j] = theta[j]
        for j in range(p):
            if plain:
                self.new[j] = theta[j] + share * self.new[j]
            else:
                self.new[j] = self.center[j] + keep * (theta[j] - self.center[j]) + share * self.new[j]
        if empty:
            if self.scale_prior is not None and not self.shared:
                self.new[d - 1] = self.draw_scale(bits)
            if self.settle_scale():
                self.take(k)
            return 0
        memcpy(self.now, theta, d * sizeof(double))
        if not self.settle_scale():
            full, log_ratio = False, -INFINITY
        else:
            full = self.weigh_class(k, plain, &log_ratio)
        self.decide_on(k, log_ratio, full, plain, tuned, bits)
        return 0

    cdef void decide_on(self, Py_ssize_t k, double log_ratio, bint full, bint plain, int64_t tuned,
                        bitgen_t *bits) noexcept nogil:
        """Take the parameters `new` of a class or not; count and tune where they were not proposed plainly."""
        cdef bint accepted = self.decide(log_ratio, full, bits)
        if accepted:
            self.take(k)
        if not plain:
            self.count(k, accepted, tuned)

    cdef void count(self, Py_ssize_t k, bint accepted, int64_t tuned) noexcept nogil:
        self.tally[2] += 1
        self.tally[3] += accepted
        if tuned >= 0:
            self.noise[k] = min(1.0, max(0.01, self.noise[k] * exp((accepted - AIM) / sqrt(1.0 + tuned))))

    cdef int draw_from_rows(self, Py_ssize_t k, double share, bint plain, int64_t tuned,
                            bitgen_t *bits) except -1 nogil:
        """The same of a class with small groups, whose normal density depends on where the class is.

        theta' = m(theta) + s root(theta)^-T z with m(theta) = center(theta) + sqrt(1 - s^2) (theta - center(theta)), or
        theta for a walk. The ratio has the density of theta given theta' over that of theta' given theta.
        """
        cdef Py_ssize_t d = self.dim, p = self.n_moving, m = self.groups.n_terms, j
        cdef int size = <int>p, lead = <int>d, single = 1
        cdef double *theta = self.theta + k * d
        cdef double *features = self.powers + self.n_classes * m
        cdef double keep = 1.0 if plain else sqrt(max(0.0, 1.0 - share * share)), log_ratio = 0.0
        memcpy(self.now, theta, d * sizeof(double))
        self.look(self.here, k, self.now, self.powers + k * m)
        memcpy(self.new, theta, d * sizeof(double))
        for j in range(p):
            self.new[j] = random_standard_normal(bits)
            log_ratio += 0.5 * self.new[j] * self.new[j]
        dtrsv(b"L", b"T", b"N", &size, self.here.root, &lead, self.new, &single)
        for j in range(p):
            self.new[j] = self.here.center[j] + keep * (theta[j] - self.here.center[j]) + share * self.new[j]
        if not self.settle_scale():
            self.decide_on(k, -INFINITY, True, plain, tuned, bits)
            return 0
        self.groups.features(self.new, 1, features)
        self.look(self.there, k, self.new, features)
        for j in range(p):
            self.room[j] = theta[j] - self.there.center[j] - keep * (self.new[j] - self.there.center[j])
        log_ratio += (self.there.value - self.here.value + self.there.half_log_det - self.here.half_log_det
                      - 0.5 * self.there.squared(self.room) / (share * share))
        self.weigh_members(k, features, &log_ratio)
        self.decide_on(k, log_ratio, True, plain, tuned, bits)
        return 0

    cdef int weigh_members(self, Py_ssize_t k, const double *features, double *log_ratio) except -1 nogil:
        """Add what the expansions leave, between the present parameters of class k and new ones with these features."""
        cdef const double *present = self.powers + k * self.groups.n_terms
        cdef Py_ssize_t j, g
        for j in range(self.begin[k], self.begin[k + 1]):
            g = self.member[j]
            if self.rows_of(g) <= self.small_rows:
                self.count_small(g)
            else:
                self.weigh(g, self.groups.value(g, features) - self.groups.value(g, present), log_ratio)
        return 0

    cdef int count_small(self, Py_ssize_t g) except -1 nogil:
        """The rows of a small group have been read, for derivatives at two points."""
        self.n_read += self.rows_of(g)
        return self.listen(2 * self.dim * self.rows_of(g))

    cdef int draw_shared_scale(self, int64_t tuned, bitgen_t *bits) except -1 nogil:
        """The logarithm t of the scale of all classes given their coefficients, about Newton's step along it.

        t' = m(t) + s z / sqrt(c(t)) with m(t) = t + (1 - sqrt(1 - s^2)) f'(t) / c(t), or t for a walk, where c = -f'',
        and the precision of the prior where that is not positive. The ratio has the densities of both ways.
        """
        cdef Py_ssize_t d = self.dim, m = self.groups.n_terms, k
        cdef double *features = self.powers + self.n_classes * m
        cdef double t = self.theta[d - 1], log_ratio, share = self.noise[self.n_classes], keep, z, back
        cdef double[3] at, to               # f, f' and c
        cdef bint plain = bits.next_double(bits.state) < PLAIN, accepted
        if plain:
            share = 2.4 * exp(1.5 * random_standard_normal(bits))
        keep = 1.0 if plain else sqrt(max(0.0, 1.0 - share * share))
        self.groups.features(self.theta, self.n_classes, self.powers)
        self.along_scale(self.here, t, at)
        z = random_standard_normal(bits)
        self.new[d - 1] = t + (1.0 - keep) * at[1] / at[2] + share * z / sqrt(at[2])
        log_ratio = -INFINITY
        if self.settle_log():
            self.along_scale(self.there, self.new[d - 1], to)
            back = t - self.new[d - 1] - (1.0 - keep) * to[1] / to[2]
            log_ratio = to[0] - at[0] + 0.5 * (z * z + log(to[2] / at[2]) - to[2] * back * back / (share * share))
            for k in range(self.n_classes):
                memcpy(self.now, self.theta + k * d, d * sizeof(double))
                memcpy(self.new, self.now, (d - 1) * sizeof(double))
                self.groups.features(self.new, 1, features)
                self.weigh_members(k, features, &log_ratio)
        accepted = self.decide(log_ratio, False, bits)
        for k in range(self.n_classes if accepted else 0):
            self.theta[k * d + d - 1], self.scale[k] = self.new[d - 1], self.new_scale
        if not plain:
            self.count(self.n_classes, accepted, tuned)
        return 0

    cdef int along_scale(self, ClassAt at, double t, double *out) except -1 nogil:
        """Log density of t given the coefficients, by expansions of large groups and rows of small ones; derivatives.
        """
        cdef Py_ssize_t d = self.dim, m = self.groups.n_terms, k
        cdef double *features = self.powers + self.n_classes * m
        cdef double own = self.precision[d - 1], step = t - self.mean[d - 1]
        out[0] = (0.0 if self.scale_prior is None else self.of_prior(t)) - 0.5 * own * step * step
        out[1], out[2] = -own * step, own
        for k in range(self.n_classes):
            memcpy(self.room, self.theta + k * d, d * sizeof(double))
            self.room[d - 1] = t
            self.groups.features(self.room, 1, features)
            at.add_up(self.room, features, self.sums + k * m, self.member + self.begin[k],
                      self.begin[k + 1] - self.begin[k])
            out[0] += at.value
            out[1] += at.slope[d - 1]
            out[2] += at.whole[d * d - 1]
        if not out[2] > 0.0:
            out[2] = own
        return 0

    cdef int look(self, ClassAt at, Py_ssize_t k, const double *theta, const double *features) except -1 nogil:
        """Class k at a point."""
        return at.look(theta, features, self.sums + k * self.groups.n_terms, self.mean, self.precision,
                       0.0 if self.scale_prior is None else self.of_prior(theta[self.dim - 1]),
                       self.member + self.begin[k], self.begin[k + 1] - self.begin[k])

    cdef void take(self, Py_ssize_t k) noexcept nogil:
        """Class k gets the parameters `new`."""
        memcpy(self.theta + k * self.dim, self.new, self.dim * sizeof(double))
        if self.n_moving > self.n_coefficients:
            self.scale[k] = self.new_scale

    cdef bint settle_scale(self) noexcept nogil:
        """What `settle_log` does and says, where a class moves its scale."""
        return self.n_moving == self.n_coefficients or self.settle_log()

    cdef bint settle_log(self) noexcept nogil:
        """Round the logarithm in `new` to that of a double, which is recorded and all a chain goes on from; False if
        none is near."""
        cdef double *t = self.new + self.dim - 1
        if not -FAR <= t[0] <= FAR:
            return False
        self.new_scale = exp(t[0])
        t[0] = log(self.new_scale)
        return True

    cdef double draw_scale(self, bitgen_t *bits) noexcept nogil:
        """Logarithm of a scale from its prior, which has mass between -FAR and FAR."""
        cdef double t = INFINITY
        while not -FAR <= t <= FAR:
            t = self.scale_prior.draw_aux(bits)
        return t

    cdef double of_prior(self, double t) noexcept nogil:
        """Log of the prior of a scale's logarithm over the normal density in its place, up to a constant."""
        cdef Py_ssize_t last = self.dim - 1
        return self.scale_prior.log_aux(t) + 0.5 * self.precision[last] * (t - self.mean[last]) * (t - self.mean[last])

    cdef int factor_class(self, Py_ssize_t k) except -1 nogil:
        """Mean of the normal density of a class into `center`, Cholesky factor of its precision into `curvature`."""
        cdef Py_ssize_t d = self.dim, p = self.n_moving, j
        cdef int size = <int>p, lead = <int>d, single = 1, info = 0
        cdef const double *origin = <const double *>cnp.PyArray_DATA(self.groups.origin)
        self.groups.unpack(self.sums + k * self.groups.n_terms, self.center, self.curvature)
        for j in range(d):
            self.center[j] += self.precision[j] * (self.mean[j] - origin[j])
            self.curvature[j * d + j] += self.precision[j]
        for j in range(p if self.shared else 0):        # given the scale
            self.center[j] -= self.curvature[j * d + p] * (self.theta[k * d + p] - origin[p])
        dpotrf(b"L", &size, self.curvature, &lead, &info)
        if info == 0:
            dpotrs(b"L", &size, &single, self.curvature, &lead, self.center, &lead, &info)
        if info != 0:
            with gil:
                raise ValueError(f"the expansions and the prior of class {k} are not curved downwards in every "
                                 f"direction: columns are collinear to double precision; centre and scale them, or "
                                 f"give a smaller prior_sd")
        for j in range(d):
            self.center[j] += origin[j]
        return 0

    cdef void draw_noise(self, bitgen_t *bits) noexcept nogil:
        """Into `new`: normal, with the covariance of the class's density."""
        cdef int size = <int>self.n_moving, lead = <int>self.dim, single = 1
        cdef Py_ssize_t j
        for j in range(self.n_moving):
            self.new[j] = random_standard_normal(bits)
        dtrsv(b"L", b"T", b"N", &size, self.curvature, &lead, self.new, &single)

    cdef int weigh_class(self, Py_ssize_t k, bint plain, double *log_ratio) except -1 nogil:
        """Log of the acceptance ratio of a class's move from arm 0 to arm 1: whether a group's rows were all read.

        For a walk the expansions and the prior are in it; what a scale's prior is besides normal is in it always.
        """
        cdef Py_ssize_t m = self.groups.n_terms, d = self.dim, j
        cdef double *now = self.powers + k * m
        cdef double *new = self.powers + self.n_classes * m
        cdef const double *sums = self.sums + k * m
        cdef double a, b
        cdef bint full = False
        self.groups.features(self.new, 1, new)
        if plain:
            for j in range(m):
                log_ratio[0] += sums[j] * (new[j] - now[j])
            for j in range(d):
                a, b = self.now[j] - self.mean[j], self.new[j] - self.mean[j]
                log_ratio[0] += 0.5 * self.precision[j] * (a * a - b * b)
        if self.scale_prior is not None:
            log_ratio[0] += self.of_prior(self.new[d - 1]) - self.of_prior(self.now[d - 1])
        for j in range(self.begin[k], self.begin[k + 1]):
            full |= self.weigh(self.member[j], self.groups.value(self.member[j], new)
                               - self.groups.value(self.member[j], now), log_ratio)
        return full
