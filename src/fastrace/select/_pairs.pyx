"""Compiled loop of LUCB by pairs: it pulls as LUCB does, and stops when no two arms may be in the wrong order.

The wealth of a chosen arm says that its mean is above a cut, that of another arm that its mean is below. Their logs
added, least over all cuts, are the evidence of a pair. See `lucb.LUCB` for the proof.
"""

from libc.math cimport INFINITY, NAN, exp, floor, fmax, fmin, log, sqrt
from libc.stdint cimport int64_t
from libc.string cimport memcpy
cimport numpy as cnp

from fastrace._base._checks import DamagedError
from fastrace._base._guard cimport guard_check
from fastrace._math._anytime cimport kl_lower, kl_upper
from fastrace._math._pairs cimport (MOST_BETS, ladder_init, log_hedged, log_wealth, mirrored, n_awake,
                                    set_tolls, spread_of, spread_t)
from fastrace.select._lucb cimport LucbSelector
from fastrace.select._selector cimport BY_EPSILON, BY_SEPARATION, Selector

import numpy as np

from fastrace.select._selector import _count, _demand

cnp.import_array()

cdef enum:
    CUTS = 4            # looked at before a pair passes
    SEARCH = 10         # wealths that a pair or a search takes, per pair or arm, roughly
    SHARE = 100         # wealths per pull, at most, that tests whether to stop may take
    EARLIER_BETS = 10   # that rules saved without their number had
    BOUND_COST = 30     # nanoseconds, roughly; and with a divergence
    DIVERGENCE_COST = 1500
    SMALL = 512         # pulls per arm; a smaller budget is played for, not the promise
    LEAST_STEPS = 12    # halvings towards the cut that is hardest on a pair

# Kept of the first unit of wealth, by who splits the rest among several.
cdef double KEPT = 1.0 / 3.0

# What a log of the error bound may be too large by: in the history, and where it is reported.
cdef double LOOSE = 0.05, TIGHT = 1e-4

cdef class PairSelector(LucbSelector):
    """State and loop; `lucb.LUCB` checks the arguments and names the answer.

    The heaps of `side` order arms by plug-in bounds, which only say what to pull. The pair `held` refused the last
    stop, at the cut `failed`: until its evidence suffices no other is looked at, and it is pulled where that of the
    pair on top does. What refuses at the same cut is then found without a search over all cuts.
    """

    def _configure(self, *, epsilon, batch, log_inv_delta):
        cdef int k
        cdef Py_ssize_t size
        super()._configure(epsilon=epsilon, batch=batch, bound="lucb1", log_inv_alpha=(log_inv_delta,) * 2,
                           scales=())
        self.within = <double *>self.vector("within", np.float64)
        self.within_high = <double *>self.vector("within_high", np.float64)
        for k in range(2):
            size = self.side[k].heap.size
            self.live[k].arm = <Py_ssize_t *>self.room(size, sizeof(Py_ssize_t))
            self.live[k].left = <double *>self.room(size, sizeof(double))
            self.live[k].right = <double *>self.room(size, sizeof(double))
        self.goal = log_inv_delta
        self.held[0] = self.held[1] = self.only = -1
        self.failed = NAN
        self.bound_cost = BOUND_COST
        ladder_init(&self.ladder)

    cdef int absorb(self, Py_ssize_t arm, const double *rewards, int64_t count) except -1 nogil:
        cdef double within = self.within[arm], within_high = self.within_high[arm], x, part
        cdef double low = self.low[arm], scale = 1.0 / self.span[arm]
        cdef int64_t t
        for t in range(count):          # one by one, so that it does not matter where a run is cut
            x = fmin(fmax((rewards[t] - low) * scale, 0.0), 1.0)
            part = x * (1.0 - x)
            within += part
            within_high += x * part
        self.within[arm] = within
        self.within_high[arm] = within_high
        return LucbSelector.absorb(self, arm, rewards, count)

    # What to pull: estimates, without a promise.

    def _allow(self, max_pulls):
        small = max_pulls is not None and max_pulls < self._small() * self.n_arms
        self.stale = self.stale or small != self.small
        self.small = small
        self.bound_cost = DIVERGENCE_COST if small else BOUND_COST
        return super()._allow(max_pulls) or small

    def _small(self):
        return SMALL

    cdef double _variance(self, Py_ssize_t i) noexcept nogil:
        """Of the arm's mean; the rewards and one more, of the largest variance there is."""
        cdef double n = <double>self.pulls[i]
        return (self.m2[i] + 0.25 * self.span[i] * self.span[i]) / ((n + 1.0) * n)

    cdef double _bound(self, Py_ssize_t i, int k, bint exact) noexcept nogil:
        """Score bounds, at the level of one pair and half of the logarithm of the rounds.

        The variance is taken for a share of that of rewards 0 and 1, and to change with the mean as theirs:
        that at the bound (Wilson), or halfway between it and that at the mean; the wider of both, as the divergence
        of Bernoulli laws is beyond either somewhere. The second leaves the support, so that arms of one bad reward
        are pulled before those of none. Small budgets cannot afford that. With the divergence in its place, an arm
        that began badly comes back; with the first alone, pulls go to the arms that lead. The mean of both is better
        than either.
        """
        cdef double n = <double>self.pulls[i], mean = (self.mean[i] - self.low[i]) / self.span[i], middle, scale, both
        cdef double varies, half, at_bound, halfway, apart
        if n == 0.0:
            return self.low[i] if k == 0 else self.high[i]
        middle = (n * mean + 0.5) / (n + 1.0)
        scale = fmin((self.m2[i] / (self.span[i] * self.span[i]) + 0.5) / ((n + 1.0) * middle * (1.0 - middle)), 1.0)
        scale *= (self.side[k].log_inv_alpha + 0.5 * log(<double>self.level_round)) / n
        varies = fmax(mean * (1.0 - mean), 0.0)
        half = sqrt(scale * (2.0 * varies + scale))
        at_bound = (mean + scale + (half if k else -half)) / (1.0 + 2.0 * scale)
        if self.small:
            mean = fmin(fmax(mean, 0.0), 1.0)
            apart = kl_upper(mean, scale) if k else kl_lower(mean, scale)
            return self.low[i] + self.span[i] * 0.5 * (at_bound + apart)
        half = sqrt(scale * (2.0 * varies + scale * (varies + 0.25)))
        halfway = (mean + 0.5 * scale + (half if k else -half)) / (1.0 + scale)
        both = fmax(at_bound, halfway) if k else fmin(at_bound, halfway)
        return self.low[i] + self.span[i] * both

    cdef double _cut(self, Py_ssize_t i, Py_ssize_t j, double *size) noexcept nogil:
        """The cut that a normal law would find hardest for the pair, and the evidence it would have."""
        cdef double ours = self._variance(i), its = self._variance(j), gap = self.mean[i] - self.mean[j] + self.epsilon
        size[0] = 0.5 * gap * gap / (ours + its) if gap > 0.0 else 0.0
        return self.mean[i] - gap * ours / (ours + its)

    # Evidence, with a promise.

    cdef spread_t _spread(self, Py_ssize_t i, int k) noexcept nogil:
        """The arm's rewards, scaled to [0, 1]; from the top for k = 1."""
        cdef double n = <double>self.pulls[i]
        cdef spread_t spread = spread_of(n, fmin(fmax((self.mean[i] - self.low[i]) / self.span[i], 0.0), 1.0) * n,
                                         self.within[i], self.within_high[i])
        return mirrored(spread) if k else spread

    cdef double _wealth(self, Py_ssize_t i, int k, double cut, double *slope) noexcept nogil:
        """Log wealth from bets that the mean is above (k = 0) or below the cut; infinite beyond the support."""
        cdef double at = (self.high[i] - cut if k else cut - self.low[i]) / self.span[i], wealth
        cdef spread_t spread
        cdef int awake
        slope[0] = 0.0
        if not at > 1e-12:
            return INFINITY
        spread = self._spread(i, k)
        awake = n_awake(&self.ladder, spread.zeros + spread.inner + spread.ones)
        if at != self.toll_at[k]:
            self.toll_at[k], self.n_tolls[k] = at, 0
        if awake > self.n_tolls[k]:
            set_tolls(&self.ladder, at, self.n_tolls[k], awake, self.toll[k])
            self.n_tolls[k] = awake
        wealth = log_wealth(&self.ladder, &spread, at, awake, self.toll[k], slope)
        slope[0] *= (-1.0 if k else 1.0) / self.span[i]
        return wealth

    cdef double _evidence(self, Py_ssize_t i, int k, double cut, double *slope) noexcept nogil:
        """That of one arm: a chosen one is above the cut, or another below the cut and epsilon."""
        cdef double wealth = self._wealth(i, k, cut + self.epsilon if k else cut, slope)
        cdef double n = <double>(self.n_best if k else self.n_arms - self.n_best)
        return log_hedged(wealth, n, KEPT, slope) if n > 1.0 else wealth

    cdef double _over(self, Py_ssize_t i, int k, double a, double b, double *left, double *right) noexcept nogil:
        """The evidence of one arm in the middle of [a, b], and at either end a line that is nowhere above it."""
        cdef double middle = 0.5 * (a + b), slope = 0.0, value = self._evidence(i, k, middle, &slope)
        if value == INFINITY:               # certain up to here; beyond it only falls
            left[0] = right[0] = self._evidence(i, k, a if k else b, &slope)
            return value
        left[0] = value + slope * (a - middle)
        right[0] = value + slope * (b - middle)
        return value

    cdef double _pair(self, Py_ssize_t i, Py_ssize_t j) noexcept nogil:
        """Evidence of a pair: the least of a few cuts, from the one that a normal law would find hardest on."""
        cdef double size = 0.0, up = 0.0, down = 0.0, cut = self._cut(i, j, &size), least = INFINITY, tau
        cdef int _step
        if size < 0.5 * self.goal:      # far from enough, most likely, and cheaper to say
            return -INFINITY
        tau = 1.0 / (1.0 / self._variance(i) + 1.0 / self._variance(j))
        for _step in range(CUTS):
            least = fmin(least, self._evidence(i, 0, cut, &up) + self._evidence(j, 1, cut, &down))
            if least < self.goal or least == INFINITY:
                break
            cut -= (up + down) * tau
        if least >= self.goal and self.failed == self.failed:
            least = fmin(least, self._evidence(i, 0, self.failed, &up) + self._evidence(j, 1, self.failed, &down))
        return least

    cdef int _side(self, int k, double a, double b, side_wealth_t *found) except -1 nogil:
        """The least evidence of a side's live arms over cuts in [a, b]."""
        cdef double value
        cdef Py_ssize_t i, p
        found.middle = found.left = found.right = INFINITY
        found.arm = -1
        for p in range(self.live[k].size):
            if (p & 255) == 255:
                self.worked(256 * 300)
            i = self.live[k].arm[p]
            value = self._over(i, k, a, b, &self.live[k].left[p], &self.live[k].right[p])
            if value < found.middle or (value == found.middle and i < found.arm):
                found.middle = value
                found.arm = i
            found.left = fmin(found.left, self.live[k].left[p])
            found.right = fmin(found.right, self.live[k].right[p])
        return self.worked(self.live[k].size * 300)

    cdef void _prune(self, int k, const side_wealth_t *other, double level) noexcept nogil:
        """Leave out the side's arms that no live arm of the other side refuses with, by lines below both."""
        cdef Py_ssize_t p, kept = 0, i
        for p in range(self.live[k].size):
            if self.live[k].left[p] + other.left < level or self.live[k].right[p] + other.right < level:
                i = self.live[k].arm[p]
                self.live[k].arm[p] = self.live[k].arm[kept]
                self.live[k].arm[kept] = i
                kept += 1
        self.live[k].size = kept

    cdef double _least(self, Py_ssize_t i, Py_ssize_t j, double a, double b) noexcept nogil:
        """Evidence of a pair at the cut in [a, b] where it is least, nearly; `failed` becomes that cut."""
        cdef double least = INFINITY, middle, value, up = 0.0, down = 0.0
        cdef int _step
        for _step in range(LEAST_STEPS):
            middle = 0.5 * (a + b)
            value = self._evidence(i, 0, middle, &up) + self._evidence(j, 1, middle, &down)
            if value < least:
                least = value
                self.failed = middle
            if up + down > 0.0:
                b = middle
            else:
                a = middle
        return least

    cdef int _suffices(self, double a, double b, double level, int depth) except -1 nogil:
        """Whether the evidence of all live pairs is at least `level` at all cuts in [a, b]; one that lacks it is held.

        For each half of the range it looks only at arms of pairs that may lack it somewhere.
        """
        cdef side_wealth_t best, rest
        cdef Py_ssize_t[2] size
        cdef double middle = 0.5 * (a + b)
        self._side(0, a, b, &best)
        self._side(1, a, b, &rest)
        if best.arm >= 0 and rest.arm >= 0 and (best.middle + rest.middle < level or depth == 0):
            self.held[0] = best.arm
            self.held[1] = rest.arm
            self.least = self._least(best.arm, rest.arm, a, b)
            return self.least >= level
        if depth == 0 or (best.left + rest.left >= level and best.right + rest.right >= level):
            return True         # a sum of least values of lines is concave: its ends are its least
        self._prune(0, &rest, level)
        self._prune(1, &best, level)
        size[0] = self.live[0].size
        size[1] = self.live[1].size
        if not self._suffices(a, middle, level, depth - 1):
            return False
        self.live[0].size = size[0]      # the first still, in another order
        self.live[1].size = size[1]
        return self._suffices(middle, b, level, depth - 1)

    cdef int _suffice(self, double a, double b, double level, int depth) except -1 nogil:
        """As `_suffices`, of all arms, or of `only` one of its side."""
        cdef int k
        for k in range(2):
            self.live[k].size = self.side[k].heap.size
            memcpy(self.live[k].arm, self.side[k].heap.item, self.live[k].size * sizeof(Py_ssize_t))
        if self.only >= 0:
            k = 0 if self.is_best[self.only] else 1
            self.live[k].size = 1
            self.live[k].arm[0] = self.only
        return self._suffices(a, b, level, depth)

    cdef int _search(self, double level) except -1 nogil:
        """Whether every pair across the cut has evidence of at least `level`."""
        cdef double size = 0.0, low = INFINITY, high = -INFINITY, cut
        cdef Py_ssize_t i
        for i in range(self.n_arms):
            low = fmin(low, self.low[i])
            high = fmax(high, self.high[i])
        high -= self.epsilon
        if not low < high:
            return True
        cut = fmin(fmax(self._cut(self.side[0].heap.item[0], self.side[1].heap.item[0], &size), low), high)
        return (self._suffice(cut, cut, level, 1) and self._suffice(low, cut, level, DEPTH)
                and self._suffice(cut, high, level, DEPTH))

    cdef bint _refused(self, Py_ssize_t weakest, Py_ssize_t rival) noexcept nogil:
        """Hold the next pair, of either with the arms in turn, that is clearly not apart; whether there is one."""
        cdef Py_ssize_t step, i, last = self.held[1]
        for step in range(1, self.n_arms + 1):
            self.spent += SEARCH
            i = (last + step) % self.n_arms
            if not self.is_best[i] and self._pair(weakest, i) < self.goal:
                self.held[0] = weakest
                self.held[1] = i
                return True
        last = self.held[0]
        for step in range(1, self.n_arms + 1):
            self.spent += SEARCH
            i = (last + step) % self.n_arms
            if self.is_best[i] and self._pair(i, rival) < self.goal:
                self.held[0] = i
                self.held[1] = rival
                return True
        return False

    cdef double _log_bound(self, double slack) except? 1.0 nogil:
        """Log of the smallest delta at which the rule would have stopped here, or larger by at most `slack`."""
        cdef Py_ssize_t[2] held
        cdef double level = 700.0, failed = self.failed
        held[0] = self.held[0]
        held[1] = self.held[1]
        try:
            while level > 0.0:
                if self._search(level):
                    return -level
                level = fmin(self.least, level) - slack
        finally:
            self.held[0] = held[0]
            self.held[1] = held[1]
            self.failed = failed
        return 0.0

    cdef int _are_best(self) except -1 nogil:
        """Whether the evidence also suffices without epsilon: the chosen arms are then the best, as far as delta goes.

        Both claims share one delta. In the proof of `lucb.LUCB`, let an arm b of the first sum that is better than
        mu_(m) - epsilon bet against theta = mu_(m), and any other against mu_(m) - epsilon: the second sum is the same.
        """
        cdef double epsilon = self.epsilon, failed = self.failed
        cdef Py_ssize_t[2] held
        cdef int found
        held[0], held[1] = self.held[0], self.held[1]
        self.epsilon = 0.0
        try:
            found = self._search(self.goal)
        finally:
            self.epsilon, self.failed = epsilon, failed
            self.held[0], self.held[1] = held[0], held[1]
        return found

    # The loop.

    cdef int _note_error(self) except -1 nogil:
        cdef double size = 0.0, error = 1.0
        self._cut(self.side[0].heap.item[0], self.side[1].heap.item[0], &size)
        if size > 1.0:
            error = exp(self._log_bound(LOOSE))
        self._note(error)
        self.next_gap = self.total + self.total // 10 + 1
        return 0

    cdef int64_t _aside(self, Py_ssize_t *weakest, Py_ssize_t *rival) noexcept nogil:
        """Replace the pair on top, which is apart, by one that is not; how often to pull it.

        Every eighth time it stays: an arm that began badly would else wait for as long as two others are close.
        """
        self.turn = (self.turn + 1) % 8
        if self.turn == 0:
            return self._size(self.held[0], self.held[1])
        if self._pair(self.held[0], rival[0]) < self.goal:
            weakest[0] = self.held[0]
        elif self._pair(weakest[0], self.held[1]) < self.goal:
            rival[0] = self.held[1]
        else:
            weakest[0] = self.held[0]
            rival[0] = self.held[1]
        return self._size(weakest[0], rival[0])

    cdef double _share(self, Py_ssize_t i, Py_ssize_t j, double pulls) noexcept nogil:
        """How many of the pulls of a pair arm i gets: as large a share as it has of the variance of the difference.

        Half of them of a small budget until both have EVEN. By variance, a rival of one or two pulls gets nearly all
        of them; an arm that leads by luck is then found out late.
        """
        cdef double ours = self._variance(i)
        if self.small and min(self.pulls[i], self.pulls[j]) < EVEN:
            return 0.5 * pulls
        return pulls * ours / (ours + self._variance(j))

    cdef int plan(self) except -1 nogil:
        cdef Py_ssize_t weakest, rival
        cdef int64_t count, ours
        cdef double wanted
        self._renew()
        weakest = self.side[0].heap.item[0]
        rival = self.side[1].heap.item[0]
        if self.held[0] < 0 or not self.is_best[self.held[0]] or self.is_best[self.held[1]]:
            self.held[0] = weakest
            self.held[1] = rival
        if self.spent <= SHARE * self.total and self._pair(self.held[0], self.held[1]) >= self.goal:
            if not self._refused(weakest, rival):
                self.spent += SEARCH * self.n_arms
                if self._search(self.goal):
                    self._note_error()
                    self.status = BY_SEPARATION if self.epsilon == 0.0 or self._are_best() else BY_EPSILON
                    return 0
        if self.total >= self.next_gap:
            self._note_error()
        count = self._size(weakest, rival)
        if self._pair(weakest, rival) >= self.goal:
            count = self._aside(&weakest, &rival)
        wanted = self._share(weakest, rival, 2.0 * <double>count) + self.carry
        ours = <int64_t>fmin(fmax(floor(wanted + 0.5), 0.0), 2.0 * <double>count)
        self.carry = wanted - <double>ours
        self.rounds += count
        if ours > 0:
            self.ask_for(weakest, ours)
        if ours < 2 * count:
            self.ask_for(rival, 2 * count - ours)
        return 0

    # What is known.

    def _decided(self):
        """Where all pairs of an arm and one of the other side have enough evidence."""
        cdef Py_ssize_t i
        cdef Py_ssize_t[2] held
        cdef double failed = self.failed, least = self.least
        found = Selector._decided(self)
        if not self.ready:
            return found
        held[0], held[1] = self.held[0], self.held[1]
        try:
            for i in range(self.n_arms):
                self.only = i
                if self._search(self.goal):
                    found[i] = 1 if self.is_best[i] else -1
        finally:
            self.only = -1
            self.failed, self.least = failed, least
            self.held[0], self.held[1] = held[0], held[1]
        return found

    cdef double _end(self, Py_ssize_t i, int k) noexcept nogil:
        """End of the interval of the mean, one-sided at delta / n_arms: the cut that is just refuted, by bisection."""
        cdef double level = self.goal + log(<double>self.n_arms), slope = 0.0
        cdef double out = self.high[i] if k else self.low[i], inside = self.mean[i], middle
        cdef int _step
        if self.pulls[i] == 0:
            return out
        for _step in range(END_STEPS):
            middle = 0.5 * (out + inside)
            if self._wealth(i, k, middle, &slope) >= level:
                out = middle
            else:
                inside = middle
        return out

    def _ends(self, double log_inv_alpha):
        cdef Py_ssize_t i
        cdef double goal = self.goal
        lower, upper = np.empty((2, self.n_arms))
        cdef double[::1] low = lower, high = upper
        self.goal = log_inv_alpha - log(<double>self.n_arms)
        try:
            for i in range(self.n_arms):
                self.worked(2 * END_STEPS * 300)
                low[i] = fmax(self._end(i, 0), self.low[i])
                high[i] = fmin(self._end(i, 1), self.high[i])
        finally:
            self.goal = goal
        return lower, upper

    def shortfall(self):
        """Bound on what a chosen arm falls short of the n_best-th largest mean by; infinite while it cannot be said."""
        cdef Py_ssize_t i
        guard_check(&self.guard, self)
        if self.n_best == self.n_arms:
            return 0.0
        if not self.ready:
            return np.inf
        if self.status in (BY_SEPARATION, BY_EPSILON):
            return self.epsilon if self.status == BY_EPSILON else 0.0
        lower = [self._end(i, 0) for i in range(self.n_arms) if self.is_best[i]]
        upper = [self._end(i, 1) for i in range(self.n_arms) if not self.is_best[i]]
        return max(upper) - min(lower)

    def _error_bound(self, double log_delta):
        cdef double log_error
        if self.n_best == self.n_arms:
            return 0.0
        if not self.ready:
            return 1.0
        with nogil:
            log_error = self._log_bound(TIGHT)
        return exp(log_error)

    def _bettors(self):
        """How many share the first unit of wealth, and how many did in earlier versions."""
        return MOST_BETS, EARLIER_BETS

    def _get_state(self):
        return super()._get_state() | dict(held=(self.held[0], self.held[1]), failed=self.failed, carry=self.carry,
                                           turn=self.turn, spent=self.spent, bettors=self._bettors()[0])

    def _demand_moments(self):
        within, high = self.vectors["within"], self.vectors["within_high"]
        _demand(((within >= 0.0) & (high >= 0.0) & (high <= within) & (within <= self._pulls)).all(), "its moments")

    def _set_state(self, state):
        bettors, earlier = self._bettors()
        if "bettors" not in state and "held" in state:
            raise DamagedError(
                f"this rule was saved when pairs were compared by {earlier} bettors on either side, who did not see "
                f"small differences; there are {bettors} now, with other bets, which one promise does not cover: give "
                "the rewards to a new rule"
            )
        _demand(state["bettors"] == bettors, "its bettors")
        first, second = state["held"]
        failed, carry, turn = float(state["failed"]), float(state["carry"]), _count(state["turn"], 7)
        spent = _count(state["spent"])
        _demand(-1 <= first < self.n_arms and -1 <= second < self.n_arms and (first < 0) == (second < 0)
                and abs(carry) <= 1.0 and not np.isinf(failed), "its pair")
        super()._set_state(state)
        self._demand_moments()
        self.held[0], self.held[1], self.failed, self.carry, self.turn = first, second, failed, carry, turn
        self.spent = spent


# Doors for tests.

def _log_wealth(double n, double total, double first, double second, double least):
    """Log wealth against a mean of at most `least`, from moments of rewards in [0, 1], and its derivative."""
    cdef double[MOST_BETS] toll
    cdef ladder_t ladder
    cdef spread_t spread = spread_of(n, total, first, second)
    cdef double slope = 0.0, found
    cdef int awake
    ladder_init(&ladder)
    awake = n_awake(&ladder, n)
    set_tolls(&ladder, least, 0, awake, toll)
    found = log_wealth(&ladder, &spread, least, awake, toll, &slope)
    return found, slope
