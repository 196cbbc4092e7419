"""Compiled loop of LUCB by pairs for rewards without a support: sub-Gaussian of a known scale, or symmetric.

It differs from `_pairs` in the evidence of one arm, and in that cuts range over all numbers. A support of +-FAR stands
for none. The formulas are those of `_math._tilts`.

Of other rewards of unknown support, the evidence is that of symmetric ones, from all their sums: a function of a
t-statistic, whose path is nearly that of normal rewards once an arm has had its first look. A long tail makes it less,
and does not let it count while few rewards carry that tail: see `_math._skewness`.
"""

from libc.math cimport INFINITY, expm1, fabs, fmax, fmin, log, sqrt
from libc.stdint cimport int64_t

from fastrace._math._pairs cimport log_hedged
from fastrace._math._skewness cimport (EVENTS_ENOUGH, constant_rows, stream_varies, tail_events, tail_rows,
                                       tail_variance, value_size)
from fastrace._math._tilts cimport FIRST_TILTS, TILTS, log_beyond, log_tilted, sums_t, tilts_init, tilts_t, turned
from fastrace.select._lucb cimport LucbSelector
from fastrace.select._pairs cimport DEPTH, END_STEPS, EVEN, PairSelector

import numpy as np

from fastrace.select._selector import _demand

cdef double FAR = 1e100     # no reward may be larger
EVERYWHERE = (-FAR, FAR)
cdef double NEAR = 1 << 20  # standard deviations from 0 at which rewards may count from 0: 1e-10 of one is lost at most

cdef enum:
    FIRST = 5               # rewards of an arm that say in which unit of scale to bet on the later ones
    WIDENED = 400           # doublings of a range of cuts

# Share of the first unit of wealth that an arm keeps: with several rivals to bet against, and with one.
cdef double KEPT = 1.0 / 3.0, KEPT_OF_ONE = 0.05


cdef class UnboundedSelector(PairSelector):
    """State and loop; `lucb.LUCB` checks the arguments and names the answer.

    In units of `scale`, rewards count from `centre`: for symmetric rewards both are learned from the first rewards of
    the arm, which are then used for nothing else; `within` and `within_high` are the sums of the later ones and of
    their squares. For a known scale `centre` is 0, and the mean says all. All this, and cuts, count from `origin`: 0,
    or the mean next to the cut at the first look, if that is far from 0. Before, asymptotic arms count from their first
    rewards.
    """

    cdef tilts_t tilts
    cdef bint symmetric
    cdef bint asymptotic            # of any law: `within` is then the sum of third powers of deviations
    cdef double *centre
    cdef double *scale
    cdef double *above              # of an arm: rewards larger than the mean of those before, ties for a half
    cdef object given               # scales, or None

    def _configure(self, *, sub_gaussian, first_look=None, **options):
        super()._configure(**options)
        self.origin = <double *>self.vector("origin", np.float64)
        self.asymptotic = first_look is not None
        self.symmetric = sub_gaussian is None
        self.given = sub_gaussian
        self.centre = <double *>self.vector("centre", np.float64)
        self.scale = <double *>self.vector("scale", np.float64)
        self.above = <double *>self.vector("above", np.float64)
        self.first = first_look if self.asymptotic else FIRST if self.symmetric else 1
        self.vectors["scale"][:] = 1.0 if self.symmetric else sub_gaussian
        tilts_init(&self.tilts, 1.5 if self.symmetric else 4.0)

    cdef int absorb(self, Py_ssize_t arm, const double *rewards, int64_t count) except -1 nogil:
        cdef double within = self.within[arm], within_high = self.within_high[arm], above = self.above[arm]
        cdef double mean = self.mean[arm], n = <double>self.pulls[arm], y
        cdef double m2 = self.m2[arm], x, origin
        cdef int64_t t
        if self.asymptotic and n == 0.0:
            self.origin[arm] = rewards[0]
        origin = self.origin[arm]
        if self.asymptotic:
            for t in range(count):
                n += 1.0
                y = (rewards[t] - origin) - mean
                within += y * (y / n) * (y / n) * ((n - 1.0) * (n - 2.0)) - 3.0 * (y / n) * m2
                m2 += y * (y / n) * (n - 1.0)
                mean += y / n
            self.within[arm] = within
        elif self.symmetric and self.ready:
            for t in range(count):
                x = rewards[t] - origin
                y = (x - self.centre[arm]) / self.scale[arm]
                within += y
                within_high += y * y
                above += 1.0 if x > mean else 0.5 if x == mean else 0.0
                n += 1.0
                mean += (x - mean) / n
            self.within[arm] = within
            self.within_high[arm] = within_high
            self.above[arm] = above
        return LucbSelector.absorb(self, arm, rewards, count)

    cdef int split(self) except -1 nogil:
        if not self.ready:
            with gil:
                self._set_origin()
            if self.symmetric:
                self._set_units()
        return LucbSelector.split(self)

    def _set_origin(self):
        """Let all arms count from one number: the mean of the last arm wanted if that is far from 0, else from 0.

        No arm may lose much by it: all count from 0 where one is twice as near to that.
        """
        cdef Py_ssize_t i = self._chosen()[self.n_best - 1]
        cdef double size = self._std(i) if self.symmetric else self.scale[i]
        mean, origin = self.vectors["mean"], self.vectors["origin"]
        whole = origin + mean
        middle = whole[i] if fabs(self.origin[i] + self.mean[i]) > NEAR * size else 0.0
        if (np.abs(whole - middle) > 2.0 * np.abs(whole)).any():
            middle = 0.0
        mean += origin - middle
        origin[:] = middle

    cdef double _std(self, Py_ssize_t i) noexcept nogil:
        return sqrt(self.m2[i] / <double>self.pulls[i]) if self.m2[i] > 0.0 else 0.0

    cdef void _set_units(self) noexcept nogil:
        """From the first rewards. An arm whose rewards are equal gets a small share of the scale of all."""
        cdef double usual = 0.0, mean = 0.0, spread = 0.0
        cdef Py_ssize_t i
        cdef double freedom = <double>(self.first - 1)
        for i in range(self.n_arms):
            usual += self.m2[i] / (freedom * <double>self.n_arms)
            mean += self.mean[i] / <double>self.n_arms
        for i in range(self.n_arms):
            spread += (self.mean[i] - mean) * (self.mean[i] - mean) / <double>self.n_arms
        if not usual > 0.0:
            usual = spread if spread > 0.0 else 1.0
        for i in range(self.n_arms):
            self.centre[i] = self.mean[i]
            self.scale[i] = sqrt(self.m2[i] / freedom + 0.01 * usual)

    # What to pull: estimates, without a promise.

    def _small(self):
        return EVEN         # bounds know no end of a support to leave, and even shares alone are of no use above it

    cdef double _variance(self, Py_ssize_t i) noexcept nogil:
        cdef double n = <double>self.pulls[i], scale = self.scale[i] * self.scale[i]
        return (self.m2[i] + 0.02 * scale) / (n * n) if self.symmetric else scale / n

    cdef double _bound(self, Py_ssize_t i, int k, bint exact) noexcept nogil:
        """Of a normal law, at the level of one pair and half of the logarithm of the rounds."""
        cdef double n = <double>self.pulls[i], level, half
        if n == 0.0:
            return self.low[i] if k == 0 else self.high[i]
        level = 2.0 * (self.side[k].log_inv_alpha + 0.5 * log(<double>self.level_round)) / n
        half = sqrt(n * self._variance(i) * (expm1(fmin(level, 100.0)) if self.symmetric else level))
        return self.mean[i] + (half if k else -half)

    # Evidence, with a promise.

    cdef sums_t _sums(self, Py_ssize_t i, int k) noexcept nogil:
        """The arm's rewards; with the other sign for k = 1."""
        cdef sums_t sums
        cdef double away
        sums.symmetric = self.symmetric
        sums.n = <double>self.pulls[i]
        sums.tail = 0.0
        if self.asymptotic:
            sums.tail = tail_variance(1.0, self._std(i) / self.scale[i], self._skewness(i, k), self.pulls[i])
            away = (self.mean[i] - self.centre[i]) / self.scale[i]
            sums.first = sums.n * away
            sums.second = self.m2[i] / (self.scale[i] * self.scale[i]) + sums.n * away * away
        elif self.symmetric:
            sums.n -= <double>FIRST
            sums.first = self.within[i]
            sums.second = self.within_high[i]
        else:
            sums.first = sums.n * self.mean[i] / self.scale[i]
            sums.second = 0.0
        return turned(sums) if k else sums

    cdef double _in_units(self, Py_ssize_t i, int k, double cut) noexcept nogil:
        return (self.centre[i] - cut if k else cut - self.centre[i]) / self.scale[i]

    cdef double _hedged(self, int k, double wealth, double *slope) noexcept nogil:
        cdef double n = <double>(self.n_best if k else self.n_arms - self.n_best)
        return log_hedged(wealth, n, KEPT if n > 1.0 else KEPT_OF_ONE, slope)

    cdef double _wealth(self, Py_ssize_t i, int k, double cut, double *slope) noexcept nogil:
        cdef sums_t sums = self._sums(i, k)
        cdef double here = self._in_units(i, k, cut), wealth = log_tilted(&self.tilts, &sums, here, here, slope)
        slope[0] *= (-1.0 if k else 1.0) / self.scale[i]
        return wealth

    cdef double _evidence(self, Py_ssize_t i, int k, double cut, double *slope) noexcept nogil:
        return self._hedged(k, self._wealth(i, k, cut + self.epsilon if k else cut, slope), slope)

    cdef double _over(self, Py_ssize_t i, int k, double a, double b, double *left, double *right) noexcept nogil:
        cdef sums_t sums = self._sums(i, k)
        cdef double far = self.epsilon if k else 0.0, half = 0.5 * (b - a) / self.scale[i], slope = 0.0, value
        cdef double low = self._in_units(i, k, (b if k else a) + far)
        cdef double high = self._in_units(i, k, (a if k else b) + far)
        value = self._hedged(k, log_tilted(&self.tilts, &sums, low, high, &slope), &slope)
        if k:
            slope = -slope
        left[0] = value - slope * half
        right[0] = value + slope * half
        return self._evidence(i, k, 0.5 * (a + b), &slope)

    cdef double _outside(self, Py_ssize_t i, int k, double cut) noexcept nogil:
        """A bound from below of the evidence at all cuts from here outwards: down for k = 0, up for k = 1."""
        cdef sums_t sums = self._sums(i, k)
        cdef double slope = 0.0
        return self._hedged(k, log_beyond(&self.tilts, &sums,
                                          self._in_units(i, k, cut + self.epsilon if k else cut)), &slope)

    cdef int _widen(self, int k, double cut, double level, double *end) except -1 nogil:
        """A cut outside of which the evidence of all arms of a side suffices alone; 0, and a pair held, if none is."""
        cdef double out = INFINITY if k else -INFINITY, step, need
        cdef double n = <double>(self.n_arms - self.n_best if k else self.n_best)       # gamblers of the other side
        cdef Py_ssize_t i, p
        cdef int _step
        need = level - log(KEPT if n > 1.0 else KEPT_OF_ONE)
        end[0] = cut
        for p in range(self.side[k].heap.size):
            if (p & 255) == 255:
                self.worked(256 * 1000)
            i = self.side[k].heap.item[p]
            if self.only >= 0 and i != self.only and self.is_best[i] == self.is_best[self.only]:
                continue
            if self._outside(i, k, out) < need:
                self.least = self._outside(i, k, out) + level - need
                self.held[k] = i
                self.held[1 - k] = self.side[1 - k].heap.item[0]
                return False
            step = self.scale[i]
            for _step in range(WIDENED):
                if self._outside(i, k, end[0]) >= need:
                    break
                end[0] += step if k else -step
                step *= 2.0
        return True

    # What does not count yet.

    cdef double _skewness(self, Py_ssize_t i, int k) noexcept nogil:
        """Towards the tail that may say too little against a claim: the left one of a chosen arm (k = 0)."""
        cdef double skewness
        if not self.m2[i] > 0.0:
            return 0.0
        skewness = self.within[i] / self.m2[i] * sqrt(<double>self.pulls[i] / self.m2[i])
        return skewness if k else -skewness

    cdef bint _varies(self, Py_ssize_t i) noexcept nogil:
        return stream_varies(self._std(i), fabs(self.origin[i] + self.mean[i]))

    cdef bint _doubtful(self, Py_ssize_t i, int k) noexcept nogil:
        """Whether what arm i shows of its tail, or of any spread, is too little for some leads."""
        return not self._varies(i) or tail_events(self._skewness(i, k), self.pulls[i]) < EVENTS_ENOUGH

    cdef double _lack(self, Py_ssize_t i, int k, Py_ssize_t rival) noexcept nogil:
        """Pulls that arm i lacks for its lead over a rival, or the rival's over it (k = 1), to count; 0 if none.

        Only of a lead that has enough evidence, so above 0.
        """
        cdef double gap = fabs(self.mean[i] - self.mean[rival] + (-self.epsilon if k else self.epsilon))
        cdef double n = <double>self.pulls[i], skewness
        if not self._doubtful(i, k):
            return 0.0
        if not self._varies(i):
            return fmax(constant_rows(value_size(self._std(rival), self._skewness(rival, k)), gap) - n, 0.0)
        skewness = self._skewness(i, k)
        return tail_rows(skewness, self._std(i) * skewness, gap, self.pulls[i]) - n

    cdef bint _held_back(self, Py_ssize_t i, Py_ssize_t j) noexcept nogil:
        return self.asymptotic and (self._lack(i, 0, j) > 0.0 or self._lack(j, 1, i) > 0.0)

    cdef double _pair(self, Py_ssize_t i, Py_ssize_t j) noexcept nogil:
        cdef double found = PairSelector._pair(self, i, j)
        return -INFINITY if found >= self.goal and self._held_back(i, j) else found

    cdef double _share(self, Py_ssize_t i, Py_ssize_t j, double pulls) noexcept nogil:
        """All pulls of a pair go to the arm that it is held back for, if only one is."""
        cdef double ours, its
        if self.asymptotic and (self._doubtful(i, 0) or self._doubtful(j, 1)):
            if PairSelector._pair(self, i, j) >= self.goal:
                ours, its = self._lack(i, 0, j), self._lack(j, 1, i)
                if (ours > 0.0) != (its > 0.0):
                    return pulls if ours > 0.0 else 0.0
        return PairSelector._share(self, i, j, pulls)

    cdef bint _holds_back(self) noexcept nogil:
        """Hold a pair whose evidence does not count yet; whether there is one."""
        cdef Py_ssize_t i, j
        cdef int k
        for i in range(self.n_arms):
            k = 0 if self.is_best[i] else 1
            if not self._doubtful(i, k):
                continue
            for j in range(self.n_arms):
                if (self.is_best[j] != self.is_best[i] and (self.only < 0 or self.only == i or self.only == j)
                        and self._lack(i, k, j) > 0.0):
                    self.held[k], self.held[1 - k] = i, j
                    self.least = -INFINITY
                    return True
        return False

    cdef int _search(self, double level) except -1 nogil:
        if self.asymptotic and self._holds_back():
            return False
        return self._search_cuts(level)

    cdef int _search_cuts(self, double level) except -1 nogil:
        cdef double size = 0.0, low = 0.0, high = 0.0
        cdef double cut = self._cut(self.side[0].heap.item[0], self.side[1].heap.item[0], &size)
        return (self._suffice(cut, cut, level, 1)
                and self._widen(0, cut, level, &low) and self._widen(1, cut, level, &high)
                and self._suffice(low, cut, level, DEPTH) and self._suffice(cut, high, level, DEPTH))

    # What is known.

    cdef double _end(self, Py_ssize_t i, int k) noexcept nogil:
        """End of the interval of the mean, one-sided at delta / n_arms: from here outwards all cuts are refuted."""
        cdef double level = self.goal + log(<double>self.n_arms), inside = self.mean[i], step = self.scale[i]
        cdef double none = INFINITY if k else -INFINITY, out, middle
        cdef sums_t sums
        cdef int _step
        if not self.ready or (self.asymptotic and not self._varies(i)):     # equal rewards say nothing of their law
            return none
        sums = self._sums(i, k)
        if log_beyond(&self.tilts, &sums, -INFINITY) < level:
            return none
        out = inside
        for _step in range(WIDENED):
            out += step if k else -step
            step *= 2.0
            if log_beyond(&self.tilts, &sums, self._in_units(i, k, out)) >= level:
                break
        else:
            return none
        for _step in range(END_STEPS):
            middle = 0.5 * (out + inside)
            if log_beyond(&self.tilts, &sums, self._in_units(i, k, middle)) >= level:
                out = middle
            else:
                inside = middle
        return out

    def _answer(self):
        known = super()._answer()
        known["lower"][known["lower"] <= -FAR] = -np.inf
        known["upper"][known["upper"] >= FAR] = np.inf
        origin = self.vectors["origin"]
        moved = origin != 0.0
        known["mean"] += np.where(moved, origin, 0.0)
        for name, outwards in (("lower", -np.inf), ("upper", np.inf)):      # the width may be lost in rounding there
            known[name] = np.where(moved, np.nextafter(known[name] + origin, outwards), known[name])
        return known

    def _differences(self, leader, log_inv_delta):
        cdef Py_ssize_t i
        found = super()._differences(leader, log_inv_delta)
        found[found <= -FAR], found[found >= FAR] = -np.inf, np.inf
        for i in range(self.n_arms if self.ready and self.asymptotic else 0):
            if i != leader and self._held_back(leader, i):      # no verdict on the pair yet
                found[i, 1] = max(found[i, 1], 0.0)
            if i != leader and self._held_back(i, leader):
                found[i, 0] = min(found[i, 0], 0.0)
        return found

    def _by_mean(self, *groups):
        """Means of arms compare once they count from one number."""
        if self.ready:
            return super()._by_mean(*groups)
        known = np.where(self._pulls > 0, self.vectors["origin"] + self._mean, -np.inf)
        groups = [np.sort(group) for group in groups]
        return np.concatenate([group[np.argsort(-known[group], kind="stable")] for group in groups])

    def skewed(self):
        """Arms whose rewards are above their mean too often or too seldom for a symmetric law, by 5 standard errors."""
        if self.asymptotic or not (self.symmetric and self.ready):
            return np.zeros(0, dtype=np.intp)
        later = self._pulls - FIRST
        return np.flatnonzero(np.abs(self.vectors["above"] - 0.5 * later) > 2.5 * np.sqrt(later))

    def tailed(self):
        """Arms with a long tail that few of their rewards carry, and their skewness, infinite if rewards are equal."""
        found = []
        for i in range(self.n_arms if self.asymptotic else 0):
            if self.pulls[i] >= 2 and (self._doubtful(i, 0) or self._doubtful(i, 1)):
                found.append((i, self._skewness(i, 1) if self._varies(i) else INFINITY))
        return found

    def _bettors(self):
        return TILTS, FIRST_TILTS

    def _set_state(self, state):
        super()._set_state({"origin": np.zeros(self.n_arms)} | state)

    def _demand_moments(self):
        vectors = self.vectors
        if self.asymptotic:
            _demand((vectors["scale"] > 0.0).all(), "its moments")
            return
        _demand((vectors["scale"] > 0.0).all() and (vectors["within_high"] >= 0.0).all()
                and ((0.0 <= vectors["above"]) & (vectors["above"] <= self._pulls)).all()
                and (self.symmetric or (np.array_equal(vectors["scale"], np.broadcast_to(self.given, self.n_arms))
                                        and not vectors["centre"].any())), "its moments")


# Doors for tests.

cdef sums_t _given(double n, double first, double second, bint symmetric, double tail) noexcept:
    cdef sums_t sums
    sums.n, sums.first, sums.second, sums.tail, sums.symmetric = n, first, second, tail, symmetric
    return sums


def _log_wealth(double n, double first, double second, double cut, bint symmetric, double most, double tail=0.0):
    """Log wealth against a mean of at most `cut`, from sums of rewards and of their squares, and its derivative."""
    cdef tilts_t tilts
    cdef sums_t sums = _given(n, first, second, symmetric, tail)
    cdef double slope = 0.0, found
    tilts_init(&tilts, most)
    found = log_tilted(&tilts, &sums, cut, cut, &slope)
    return found, slope


def _log_floor(double n, double first, double second, double a, double b, bint symmetric, double most,
               double tail=0.0):
    """The bound of the log wealth over cuts in [a, b], at a and at b; and that over all up to b."""
    cdef tilts_t tilts
    cdef sums_t sums = _given(n, first, second, symmetric, tail)
    cdef double slope = 0.0, middle
    tilts_init(&tilts, most)
    middle = log_tilted(&tilts, &sums, a, b, &slope)
    return middle - 0.5 * slope * (b - a), middle + 0.5 * slope * (b - a), log_beyond(&tilts, &sums, b)
