# cython: cdivision=True
"""ADAPT and its three simpler policies (Kalyanakrishnan & Stone 2010, section 4).

Two ways to draw the next arm in proportion to its level at the cutoff. In blocks: compute all levels, build an alias
table, draw the block; O(n) per block. One by one, without touching all arms: keep for each arm a weight that is at
least its level for every cutoff in a window, in a sum tree; draw by these weights and accept with level / weight. Only
what was pulled, or crossed the cutoff, gets a new weight; all do when the cutoff leaves the window, or when the window
has grown too wide for the levels. The law is exact.
"""

from libc.math cimport INFINITY, NAN, expm1, floor, log1p, sqrt
from libc.stdint cimport int64_t
cimport numpy as cnp

from fastrace._base._guard cimport guard_check_built
from fastrace._base._signals cimport check_signals
from fastrace._draws._sum_tree cimport sum_tree_build, sum_tree_find, sum_tree_set, sum_tree_size, sum_tree_t
from fastrace._math._anytime cimport mixture_t, set_mixture
from fastrace._math._cutoff cimport cutoff_between, evidence_t, kind_t, level, log_level, standard_error, width_at
from fastrace.select._selector cimport (BY_CAP, BY_DELTA, BY_EPSILON, BY_PLAN, BY_SEPARATION, MOST_PER_BATCH,
                                        Selector, per_arm)

import numpy as np

from fastrace.select._selector import _count, _demand

cnp.import_array()

KINDS = ("hoeffding", "bernstein", "tightest", "normal-mixture", "gamma-mixture")
POLICIES = ("uniform", "colliding", "proportional")

cdef enum:
    LEVEL_COST = 100            # nanoseconds that the level of an arm takes, roughly
    STALE = 1000                # rejections per draw, hundreds of times what a window ever needs

cdef enum policy_t:             # places in POLICIES
    UNIFORM
    COLLIDING
    PROPORTIONAL


cdef class Adapt(Selector):
    """State and loop of one selection; `adaptive.Adapt` checks the arguments and names the answer."""

    cdef readonly double epsilon, delta, log_share, batch_share
    cdef readonly int64_t batch
    cdef policy_t policy
    cdef kind_t kind
    cdef readonly bint optimal, all_times, lazy
    cdef cnp.ndarray _cap
    cdef const int64_t *cap
    cdef mixture_t mixture          # of bounds that hold at all times
    cdef double *level              # of each arm at the cutoff last tried; or the half-width at the level delta / n
    # one by one
    cdef sum_tree_t above           # at least the level of each arm, for cutoffs in the window; 0 for arms at their cap
    cdef double *below              # at most the level
    cdef double below_sum
    cdef double window_low, window_high
    cdef int64_t next_test, drawn, rejected     # the last two since the window was made
    cdef bint partial               # Ctrl-C came while weights were made for a new window
    cdef Py_ssize_t changed[3]
    cdef int n_changed

    def _configure(self, *, policy, kind, optimal, epsilon, delta, log_share, first, cap, scales, batch, batch_share):
        if not (0.0 <= epsilon < np.inf and 0.0 < delta < 1.0 and 0.0 <= log_share < np.inf and first >= 1
                and batch >= 0 and 0.0 <= batch_share <= 1.0 and (batch or batch_share)):
            raise ValueError("epsilon, delta, log_share, first, batch or batch_share is out of range")
        self.policy = <policy_t><int>POLICIES.index(policy)
        self.kind = <kind_t><int>KINDS.index(kind)
        self.all_times = kind.endswith("mixture")
        if self.all_times:
            set_mixture(&self.mixture, scales, log_share)
        self.optimal = optimal
        self.epsilon, self.delta, self.log_share = epsilon, delta, log_share
        self.first, self.batch, self.batch_share = first, batch, batch_share
        self.lazy = batch == 1 and not batch_share and policy == "proportional" and not optimal
        self._cap = per_arm(cap, self.n_arms, np.int64, "cap")
        self.cap = <const int64_t *>cnp.PyArray_DATA(self._cap)
        self.level = <double *>self.room(self.n_arms, sizeof(double))
        self.below = <double *>self.room(self.n_arms, sizeof(double))
        self.above.size = sum_tree_size(self.n_arms)
        self.above.sum = <double *>self.room(2 * self.above.size, sizeof(double))
        self.window_low, self.window_high = INFINITY, -INFINITY
        self.room_for_blocks()

    cdef void reorder(self, Py_ssize_t arm) noexcept nogil:
        self.changed[0] = arm
        self.n_changed = 1
        if self.resplit(arm):
            self.changed[1] = self.joined
            self.changed[2] = self.left
            self.n_changed = 3

    # Levels and cutoffs.

    cdef inline evidence_t evidence(self, Py_ssize_t arm) noexcept nogil:
        cdef evidence_t found
        found.pulls = self.pulls[arm]
        found.m2 = self.m2[arm]
        found.error = self.error[arm]
        found.span = self.span[arm]
        found.mixture = &self.mixture
        return found

    cdef inline double gap(self, Py_ssize_t arm, double cutoff) noexcept nogil:
        """How far an arm's mean lies on its side of the cutoff; that of a selected arm is raised by epsilon."""
        return self.mean[arm] + self.epsilon - cutoff if self.is_best[arm] else cutoff - self.mean[arm]

    cdef inline double log_level_at(self, Py_ssize_t arm, double cutoff) noexcept nogil:
        cdef evidence_t seen = self.evidence(arm)
        return log_level(self.kind, &seen, self.gap(arm, cutoff))

    cdef inline double level_at(self, Py_ssize_t arm, double cutoff) noexcept nogil:
        cdef evidence_t seen = self.evidence(arm)
        return level(self.kind, &seen, self.gap(arm, cutoff))

    cdef double cutoff_hat(self) noexcept nogil:
        cdef Py_ssize_t best = self.best.item[0], rest = self.rest.item[0]
        cdef evidence_t one = self.evidence(best), other = self.evidence(rest)
        return cutoff_between(self.mean[best] + self.epsilon, self.mean[rest], standard_error(&one),
                              standard_error(&other))

    cdef int fill_levels(self, double cutoff) except -1 nogil:
        """The level of each arm at a cutoff."""
        cdef Py_ssize_t i
        for i in range(self.n_arms):
            if (i & 1023) == 1023:
                self.worked(1024 * LEVEL_COST)
            self.level[i] = self.level_at(i, cutoff)
        return 0

    cdef double neg_log_right(self) noexcept nogil:
        """-log of the product of (1 - level) over all arms; infinite if a level is 1."""
        cdef Py_ssize_t i
        cdef double sum = 0.0
        for i in range(self.n_arms):
            if self.level[i] >= 1.0:
                return INFINITY
            sum -= log1p(-self.level[i])
        return sum

    cdef inline bint settled(self, Py_ssize_t arm, double cutoff) noexcept nogil:
        """Whether an arm has had DIRECT's pulls, which bound its mean to epsilon / 2, and is that far away."""
        return self.pulls[arm] >= self.cap[arm] and self.gap(arm, cutoff) >= 0.5 * self.epsilon

    cdef double largest_level(self, double cutoff) noexcept nogil:
        """Of the arms that no fixed number of pulls has settled."""
        cdef Py_ssize_t i
        cdef double largest = 0.0
        for i in range(self.n_arms):
            if self.level[i] > largest and not self.settled(i, cutoff):
                largest = self.level[i]
        return largest

    cdef double objective(self, double cutoff) except? -1.0 nogil:
        self.fill_levels(cutoff)
        return self.largest_level(cutoff) if self.all_times else self.neg_log_right()

    cdef double cutoff_star(self) except? -1.0 nogil:
        """The cutoff with the smallest error bound: 64 points, then golden section around the best one."""
        cdef double low = self.mean[self.rest.item[0]], high = self.mean[self.best.item[0]] + self.epsilon
        cdef double step = (high - low) / 64.0, best_value = INFINITY, value, a, b, x, y, at_x, at_y
        cdef double golden = 0.5 * (sqrt(5.0) - 1.0)
        cdef int k, _k, found = -1
        for k in range(1, 64):
            value = self.objective(low + k * step)
            if value < best_value:
                best_value = value
                found = k
        if found < 0 or not high > low:
            return self.cutoff_hat()
        a, b = low + (found - 1) * step, low + (found + 1) * step
        x, y = b - golden * (b - a), a + golden * (b - a)
        at_x, at_y = self.objective(x), self.objective(y)
        for _k in range(40):
            if at_x < at_y:
                b = y
                y = x
                at_y = at_x
                x = b - golden * (b - a)
                at_x = self.objective(x)
            else:
                a = x
                x = y
                at_x = at_y
                y = a + golden * (b - a)
                at_y = self.objective(y)
        return x if at_x < at_y else y

    cdef double choose_cutoff(self) except? -1.0 nogil:
        return self.cutoff_star() if self.optimal else self.cutoff_hat()

    cdef double error_at(self, double cutoff) except? -1.0 nogil:
        """The error bound: delta^c; with bounds for all times n times the largest level, for that is proved."""
        cdef double value = self.objective(cutoff)
        return min(1.0, self.n_arms * value) if self.all_times else -expm1(-value)

    # What to pull next.

    cdef int plan(self) except -1 nogil:
        return self.plan_one() if self.lazy else self.plan_block()

    cdef int plan_block(self) except -1 nogil:
        """Draw the pulls of a block from the same weights."""
        cdef Py_ssize_t i, k
        cdef int64_t size = self.batch
        cdef double cutoff, sum = 0.0
        if self.policy != PROPORTIONAL:
            if self.weigh_equally(&sum):
                return 0
        else:
            cutoff = self.choose_cutoff()
            if self.error_at(cutoff) <= self.delta:
                self.status = BY_DELTA
                return 0
            for i in range(self.n_arms):
                self.weight[i] = self.level[i] if self.pulls[i] < self.cap[i] else 0.0
                sum += self.weight[i]
            if not sum > 0.0:
                self.status = BY_CAP
                return 0
        if self.batch_share > 0.0:
            size = max(<int64_t>1, <int64_t>floor(min(self.batch_share * <double>self.total, <double>MOST_PER_BATCH)))
        if size == 1:
            self.ask_for(self.draw_by_weight(self.uniform() * sum), 1)
            return 0
        self.draw_block(sum, size)
        for k in range(self.n_asked):
            i = self.asked[k]
            self.owed[k] = min(self.owed[k], self.cap[i] - self.pulls[i])
        return 0

    cdef Py_ssize_t draw_by_weight(self, double at) noexcept nogil:
        """The arm at a point of the weights laid end to end, never one of weight 0."""
        cdef Py_ssize_t i, last = 0
        for i in range(self.n_arms):
            if self.weight[i] > 0.0:
                last = i
                if at < self.weight[i]:
                    break
                at -= self.weight[i]
        return last

    cdef int weigh_equally(self, double *sum) except -1 nogil:
        """Weight 1 for the arms that the first two policies may pull; whether there is none, so that they stop."""
        cdef Py_ssize_t i
        cdef double lowest = INFINITY, highest = -INFINITY
        cdef evidence_t known
        if self.policy == UNIFORM:
            for i in range(self.n_arms):
                self.weight[i] = self.pulls[i] < self.cap[i]
                sum[0] += self.weight[i]
            if sum[0] == 0.0:
                self.status = BY_PLAN
            return sum[0] == 0.0
        for i in range(self.n_arms):
            if (i & 1023) == 1023:
                self.worked(1024 * LEVEL_COST)
            known = self.evidence(i)
            self.level[i] = width_at(self.kind, &known, -self.log_share)
            if self.is_best[i]:
                lowest = min(lowest, self.mean[i] - self.level[i] + self.epsilon)
            else:
                highest = max(highest, self.mean[i] + self.level[i])
        if lowest >= highest:
            self.status = BY_SEPARATION if self.epsilon == 0.0 else BY_EPSILON
            return True
        for i in range(self.n_arms):
            if self.is_best[i]:
                self.weight[i] = self.mean[i] - self.level[i] + self.epsilon < highest
            else:
                self.weight[i] = self.mean[i] + self.level[i] > lowest
            if self.pulls[i] >= self.cap[i]:
                self.weight[i] = 0.0
            sum[0] += self.weight[i]
        if sum[0] == 0.0:
            self.status = BY_CAP
        return sum[0] == 0.0

    # One by one.

    cdef void bracket(self, Py_ssize_t arm, double *above, double *below) noexcept nogil:
        """The largest and the smallest level of an arm over the window."""
        cdef double low = self.level_at(arm, self.window_low), high = self.level_at(arm, self.window_high)
        above[0] = high if self.is_best[arm] else low
        below[0] = low if self.is_best[arm] else high

    cdef void reweigh(self, Py_ssize_t arm) noexcept nogil:
        cdef double above, below
        self.bracket(arm, &above, &below)
        self.below_sum += below - self.below[arm]
        self.below[arm] = below
        sum_tree_set(&self.above, arm, above if self.pulls[arm] < self.cap[arm] else 0.0)

    cdef double reach(self, Py_ssize_t arm, double cutoff) noexcept nogil:
        """How far the cutoff may move until an arm's logarithm of the level moves by about 0.7."""
        cdef double gap = self.gap(arm, cutoff), least = self.span[arm] / (2.0 * sqrt(<double>self.pulls[arm]))
        return 0.35 * max(gap, least) / max(-self.log_level_at(arm, cutoff), 0.5)

    cdef int reweigh_all(self, double cutoff) except -1 nogil:
        """A new window around the cutoff, and new weights for all arms; O(n)."""
        cdef double half = min(self.reach(self.best.item[0], cutoff), self.reach(self.rest.item[0], cutoff))
        self.window_low, self.window_high = cutoff - half, cutoff + half
        self.drawn = self.rejected = 0
        return self.fill_window()

    cdef int fill_window(self) except -1 nogil:
        """Weights of all arms in the window; O(n)."""
        cdef double above
        cdef Py_ssize_t i
        self.below_sum = 0.0
        self.partial = True
        for i in range(self.n_arms):
            if (i & 1023) == 1023:
                self.worked(2048 * LEVEL_COST)
            self.bracket(i, &above, &self.below[i])
            self.below_sum += self.below[i]
            self.above.sum[self.above.size + i] = above if self.pulls[i] < self.cap[i] else 0.0
        sum_tree_build(&self.above)
        self.partial = False
        return 0

    cdef bint may_stop(self, double cutoff) noexcept nogil:
        """Cheap necessary conditions for an error bound of at most delta."""
        cdef Py_ssize_t i, side
        if self.total < self.next_test:
            return False
        if self.all_times:
            for side in range(2):
                i = self.best.item[0] if side == 0 else self.rest.item[0]
                if not self.settled(i, cutoff) and self.n_arms * self.level_at(i, cutoff) > self.delta:
                    return False
            return True
        return self.below_sum * (1.0 - 1e-9) <= -log1p(-self.delta)

    cdef int plan_one(self) except -1 nogil:
        cdef double cutoff = self.cutoff_hat(), at
        cdef Py_ssize_t arm
        cdef int k
        # As means settle the window grows too wide for the levels, and most draws are rejected: make a new one as soon
        # as that costs less.
        if (not self.partial and self.window_low <= cutoff <= self.window_high
                and self.rejected <= 2 * (self.drawn + self.n_arms)):
            for k in range(self.n_changed):
                self.reweigh(self.changed[k])
        else:
            self.reweigh_all(cutoff)
        self.n_changed = 0
        if self.may_stop(cutoff):
            if self.error_at(cutoff) <= self.delta:
                self.status = BY_DELTA
                return 0
            self.next_test = self.total + max(<int64_t>1, self.total // 1000)
        while self.above.sum[1] > 0.0:
            at = self.uniform() * self.above.sum[1]
            arm = sum_tree_find(&self.above, &at)
            if at < self.level_at(arm, cutoff):
                self.drawn += 1
                self.ask_for(arm, 1)
                return 0
            self.rejected += 1
            if self.rejected > STALE * (self.drawn + self.n_arms):      # weights that tell nothing: a damaged window
                self.reweigh_all(cutoff)
                check_signals()
        self.status = BY_DELTA if self.error_at(cutoff) <= self.delta else BY_CAP
        return 0

    # Answers.

    def error_bound(self):
        """The error bound with all that has been told."""
        return self._alone(self._error_bound)

    def _error_bound(self):
        cdef double cutoff, error
        cdef Py_ssize_t i
        if not self.ready:
            return 1.0
        cutoff = self.choose_cutoff()
        error = self.error_at(cutoff)
        if self.all_times:
            for i in range(self.n_arms):
                if self.settled(i, cutoff):
                    return min(1.0, error + self.delta)         # the share of the cap
        return error

    def cutoff(self):
        return self._alone(self._cutoff)

    def _cutoff(self):
        return self.choose_cutoff() if self.ready else NAN

    def levels(self):
        """Level of each arm at the cutoff."""
        return self._alone(self._levels)

    def _levels(self):
        cdef Py_ssize_t i
        if not self.ready:
            return np.ones(self.n_arms)
        self.fill_levels(self.choose_cutoff())
        return np.array([self.level[i] for i in range(self.n_arms)])

    def widths(self):
        """Half-width of each arm's one-sided bound at the level delta / n."""
        return self._alone(self._widths)

    def _widths(self):
        guard_check_built(&self.guard, self)
        cdef Py_ssize_t i
        cdef evidence_t known
        out = np.empty(self.n_arms)
        cdef double[::1] width = out
        for i in range(self.n_arms):
            known = self.evidence(i)
            width[i] = width_at(self.kind, &known, -self.log_share) if known.pulls else INFINITY
        return out

    def _envelope(self):
        """Upper and lower weights, their levels, window and cutoff; a door for tests."""
        guard_check_built(&self.guard, self)
        cdef Py_ssize_t i
        above = np.array([self.above.sum[self.above.size + i] for i in range(self.n_arms)])
        below = np.array([self.below[i] for i in range(self.n_arms)])
        return above, below, self._levels(), (self.window_low, self.window_high), self.cutoff_hat(), self.below_sum

    def _get_state(self):
        window = (np.inf, -np.inf) if self.partial else (self.window_low, self.window_high)
        return super()._get_state() | dict(next_test=self.next_test, window=window, drawn=self.drawn,
                                           rejected=self.rejected)

    def _set_state(self, state):
        super()._set_state(state)
        next_test, drawn, rejected = (_count(state[name]) for name in ("next_test", "drawn", "rejected"))
        window_low, window_high = (float(end) for end in state["window"])
        _demand(window_low <= window_high or window_low == INFINITY == -window_high or not self.ready, "its window")
        self.next_test = next_test
        self.window_low, self.window_high = window_low, window_high
        self.drawn, self.rejected = drawn, rejected
        if self.ready:
            self.fill_window()


# Doors for tests.

cdef int _evidence(evidence_t *arm, mixture_t *mixture, pulls, m2, error, span, scales, log_inv_alpha) except -1:
    arm.pulls, arm.m2, arm.error, arm.span, arm.mixture = pulls, m2, error, span, mixture
    return set_mixture(mixture, scales, log_inv_alpha) if scales else 0


def _log_level(kind, arm, gap, scales=(), log_inv_alpha=6.0):
    """`log_level` of one arm: (pulls, m2, error, span)."""
    cdef evidence_t evidence
    cdef mixture_t mixture
    _evidence(&evidence, &mixture, arm[0], arm[1], arm[2], arm[3], scales, log_inv_alpha)
    return log_level(<kind_t><int>KINDS.index(kind), &evidence, gap)


def _level(kind, arm, gap, scales=(), log_inv_alpha=6.0):
    """`level` of one arm: (pulls, m2, error, span)."""
    cdef evidence_t evidence
    cdef mixture_t mixture
    _evidence(&evidence, &mixture, arm[0], arm[1], arm[2], arm[3], scales, log_inv_alpha)
    return level(<kind_t><int>KINDS.index(kind), &evidence, gap)


def _width_at(kind, arm, log_aim, scales=(), log_inv_alpha=6.0):
    """`width_at` of one arm: (pulls, m2, error, span)."""
    cdef evidence_t evidence
    cdef mixture_t mixture
    _evidence(&evidence, &mixture, arm[0], arm[1], arm[2], arm[3], scales, log_inv_alpha)
    return width_at(<kind_t><int>KINDS.index(kind), &evidence, log_aim)
