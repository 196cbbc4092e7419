"""Compiled loop of LUCB for arms whose rewards come from common rounds, such as the same prompts, rows or seeds.

A request of several arms is of common rounds: their t-th rewards are of one round. A request of one arm is of pulls
that have nothing in common with others. Of a pair, bets on differences take the common rounds, and the wealth of
`_pairs` the pulls of single arms; both together are the evidence. Without common rounds it is that of `_pairs`, but
for what KEPT costs. See `lucb.LUCB` for the proof.
"""

from libc.math cimport INFINITY, exp, fabs, floor, fmax, fmin, log, log1p, sqrt
from libc.stdint cimport int64_t
cimport numpy as cnp

from fastrace._draws._duels cimport Duels
from fastrace._draws._ranks cimport kth_largest
from fastrace._math._pairs cimport log_hedged, mirrored, spread_of, spread_t
from fastrace.select._pairs cimport PairSelector
from fastrace.select._selector cimport BY_EPSILON, BY_SEPARATION, REFUSED, Selector

import numpy as np

from fastrace.select._selector import _count, _demand

cnp.import_array()

cdef enum:
    ROOM = 4096             # rewards of one request to a source; more than there may be arms
    MAX_BATCH = 4096        # rounds, or pulls of one arm, per decision
    FIRST_ROUNDS = 4        # common rounds that show what arms have in common, or more of few arms:
    FIRST_DIFFERENCES = 32  # so many differences to one arm
    HALVINGS = 60           # towards the cut that is hardest on a pair
    LEADS = 8               # ways to share pulls out that are looked at, the next half as large again

cdef enum:      # verdicts decide which arms to pull and to name; the promise rests on pairs alone
    OPEN
    OUT         # as many others are better as are wanted
    IN          # better than all that may be left out

cdef double KEPT = 0.05             # share of its first unit of wealth that each gambler keeps back
cdef double SPLIT = 1.0 / 3.0       # and that is kept where the rest is split among the arms of a side, as in `_pairs`
cdef double NEAR = 1e-3             # what evidence may be too small by
cdef double DOUBT = 0.04            # share of the pulls that common rounds have at least
cdef double LEAVE = 0.8, RETURN = 0.5         # price of common rounds, in single pulls, at which the rule changes over


cdef class PairedSelector(PairSelector):
    """State and loop; `lucb.LUCB` checks the arguments and names the answer."""

    cdef Duels duels
    cdef double[4] weight           # logs of shares of a pair's unit of wealth: idle, on the first, the second, both
    cdef cnp.ndarray _most, _lack
    cdef double *most               # by pair: the largest evidence so far that the first is not worse
    cdef double *lack               # by chosen arm and other: rate of evidence that is lacking; 0: none
    cdef int64_t *alone             # pulls of an arm outside common rounds, and their sums as in `_math._pairs`
    cdef double *alone_total
    cdef double *alone_within
    cdef double *alone_high
    cdef bint apart                 # evidence is of those pulls
    cdef int64_t *verdict
    cdef int64_t common             # common rounds so far
    cdef bint single                # the pulls now are of single arms
    cdef Py_ssize_t next_arm        # to pull next, so often
    cdef int64_t next_count
    cdef Py_ssize_t *group          # scratch: chosen arms, then others
    cdef double *reward
    cdef double *standing
    cdef double *work
    cdef double *price

    def _configure(self, *, epsilon, batch, log_inv_delta):
        cdef Py_ssize_t n = self.n_arms
        super()._configure(epsilon=epsilon, batch=batch, log_inv_delta=log_inv_delta)
        if n > ROOM:
            raise ValueError("too many arms for common rounds")
        self._set_weights()
        self.duels = Duels(self.n_best, epsilon, self._low, self._high)
        self._most = np.zeros((n, n))
        self._lack = np.zeros((self.n_best, n - self.n_best))
        self.most = <double *>cnp.PyArray_DATA(self._most)
        self.lack = <double *>cnp.PyArray_DATA(self._lack)
        self.alone = <int64_t *>self.vector("alone", np.int64)
        self.alone_total = <double *>self.vector("alone_total", np.float64)
        self.alone_within = <double *>self.vector("alone_within", np.float64)
        self.alone_high = <double *>self.vector("alone_high", np.float64)
        self.verdict = <int64_t *>self.vector("verdict", np.int64)
        self.group = <Py_ssize_t *>self.room(n, sizeof(Py_ssize_t))
        self.reward = <double *>self.room(n, sizeof(double))
        self.standing = <double *>self.room(n, sizeof(double))
        self.work = <double *>self.room(n, sizeof(double))
        self.price = <double *>self.room(n, sizeof(double))

    cdef void _set_weights(self) noexcept nogil:
        cdef double m = <double>self.n_best, rest = <double>max(self.n_arms - self.n_best, 1)
        cdef double ours = SPLIT if rest > 1.0 else 0.0, its = SPLIT if m > 1.0 else 0.0
        self.weight[0] = log(ours * its) if ours * its > 0.0 else -INFINITY
        self.weight[1] = log(its * (1.0 - ours) / rest) if its > 0.0 else -INFINITY
        self.weight[2] = log(ours * (1.0 - its) / m) if ours > 0.0 else -INFINITY
        self.weight[3] = log((1.0 - ours) * (1.0 - its) / (m * rest))

    # Rewards.

    cdef Py_ssize_t _next_piece(self, int64_t limit) noexcept nogil:
        """Whole rounds."""
        cdef Py_ssize_t k
        cdef int64_t rounds = min(<int64_t>ROOM, limit) // self.n_asked
        for k in range(self.n_asked):
            self.piece[k] = min(self.owed[k], rounds)
        return self.n_asked if rounds > 0 else 0

    cdef int _serve(self, const double *rewards, const int64_t *counts, Py_ssize_t n) except -1 nogil:
        cdef int64_t t, count = counts[0]
        cdef Py_ssize_t k
        if self.missing != REFUSED:         # none is dropped here
            for k in range(n):
                self.settle(self.asked[k], <double *>rewards + k * count, count)
        if n > 1:
            for t in range(count):
                for k in range(n):
                    self.reward[k] = rewards[k * count + t]
                    self.standing[k] = -INFINITY if self.verdict[self.asked[k]] == OUT else self.mean[self.asked[k]]
                if self.common > 0:
                    self.duels.assign(self.asked, self.standing, n, self._n_leading(n), self.common, self.work)
                self.duels.bet(self.asked, self.reward, self.reward, n)
                self.common += 1
        for k in range(n):
            self.absorb(self.asked[k], rewards + k * count, count)
            self.total += count
            self.owed[k] -= count
        if self.owed[0] == 0:
            self.served = n
            self._plan()
        return self.worked(count * n * self.duels.n_seats * 50)         # Ctrl-C is heard once all of it is taken

    cdef Py_ssize_t _n_leading(self, Py_ssize_t n) noexcept nogil:
        """How many of the arms asked for are of the answer, at least 1."""
        cdef Py_ssize_t k, found = 0
        for k in range(n):
            found += self.is_best[self.asked[k]]
        return min(max(found, 1), n)

    cdef int absorb(self, Py_ssize_t arm, const double *rewards, int64_t count) except -1 nogil:
        cdef double low = self.low[arm], scale = 1.0 / self.span[arm], x, part
        cdef int64_t t
        if self.n_asked == 1:
            for t in range(count):
                x = fmin(fmax((rewards[t] - low) * scale, 0.0), 1.0)
                part = x * (1.0 - x)
                self.alone_total[arm] += x
                self.alone_within[arm] += part
                self.alone_high[arm] += x * part
            self.alone[arm] += count
        return PairSelector.absorb(self, arm, rewards, count)

    # Order: the answer is made anew at each decision.

    cdef int split(self) except -1 nogil:
        """Choose the arms that are in, and of those that are open the largest means, ties to the lower number."""
        cdef Py_ssize_t i, m = 0, places = self.n_best
        cdef double bar = INFINITY
        for i in range(self.n_arms):
            self.is_best[i] = self.verdict[i] == IN
            places -= self.is_best[i]
            if self.verdict[i] == OPEN:
                self.work[m] = self.mean[i]
                m += 1
        if places > 0:
            bar = kth_largest(self.work, m, places)
        for i in range(self.n_arms):
            if self.verdict[i] == OPEN and self.mean[i] > bar:
                self.is_best[i] = True
                places -= 1
        for i in range(self.n_arms):
            if self.verdict[i] == OPEN and self.mean[i] == bar and places > 0:
                self.is_best[i] = True
                places -= 1
        return 0

    cdef void reorder(self, Py_ssize_t arm) noexcept nogil:
        pass

    cdef int _refresh(self) except -1 nogil:
        self.stale = False
        return 0

    # Evidence, with a promise.

    cdef spread_t _spread(self, Py_ssize_t i, int k) noexcept nogil:
        cdef spread_t spread
        if not self.apart:
            return PairSelector._spread(self, i, k)
        spread = spread_of(<double>self.alone[i], self.alone_total[i], self.alone_within[i], self.alone_high[i])
        return mirrored(spread) if k else spread

    cdef double _evidence(self, Py_ssize_t i, int k, double cut, double *slope) noexcept nogil:
        """That of the pulls of one arm outside common rounds."""
        cdef double wealth
        self.apart = True
        wealth = self._wealth(i, k, cut + self.epsilon if k else cut, slope)
        self.apart = False
        return wealth if wealth == INFINITY else log_hedged(wealth, 1.0, KEPT, slope)

    cdef double _both(self, double ours, double its, double together, double up, double down,
                      double *slope) noexcept nogil:
        """Log of a pair's wealth, from the logs of its gamblers' and the derivatives of those in the cut."""
        cdef double[4] part
        cdef double top, total = 0.0, share
        cdef int k
        part[0] = self.weight[0]
        part[1] = self.weight[1] + ours
        part[2] = self.weight[2] + its
        part[3] = self.weight[3] + ours + its + together
        top = fmax(fmax(part[0], part[1]), fmax(part[2], part[3]))
        slope[0] = 0.0
        for k in range(4):
            share = exp(part[k] - top)
            total += share
            slope[0] += share * ((up if k & 1 else 0.0) + (down if k & 2 else 0.0))
        slope[0] /= total
        return top + log(total)

    cdef double _least_both(self, Py_ssize_t i, Py_ssize_t j, double together) noexcept nogil:
        """Evidence of a pair at the cut where it is least, or less by at most NEAR.

        It is convex in the cut, so that tangents on both sides of the least value bound it.
        """
        cdef double a = self.low[i], b = self.high[j] - self.epsilon, least = INFINITY, lower = INFINITY
        cdef double at_a = 0.0, at_b = 0.0, slope_a = 0.0, slope_b = 0.0, middle, value, ours, its
        cdef double up = 0.0, down = 0.0, slope = 0.0
        cdef bint has_a = False, has_b = False
        cdef int _step
        if not a < b:
            return INFINITY
        if self.alone[i] == 0 or self.alone[j] == 0:
            return self._both(log(KEPT) if self.alone[i] > 0 else 0.0, log(KEPT) if self.alone[j] > 0 else 0.0,
                              together, 0.0, 0.0, &slope)
        for _step in range(HALVINGS):
            middle = 0.5 * (a + b)
            ours, its = self._evidence(i, 0, middle, &up), self._evidence(j, 1, middle, &down)
            if ours == INFINITY or its == INFINITY:         # certain from here to an end of the support
                if middle - self.low[i] <= self.high[j] - self.epsilon - middle:
                    a = middle
                else:
                    b = middle
                continue
            value = self._both(ours, its, together, up, down, &slope)
            least = fmin(least, value)
            if slope < 0.0:
                a, at_a, slope_a, has_a = middle, value, slope, True
            else:
                b, at_b, slope_b, has_b = middle, value, slope, True
            if has_a and has_b:
                lower = at_a + slope_a * ((at_b - slope_b * (b - a) - at_a) / (slope_a - slope_b))
            else:
                lower = at_a + slope_a * (b - a) if has_a else at_b - slope_b * (b - a)
            if least - lower < NEAR:
                break
        return fmax(lower, self._both(log(KEPT), log(KEPT), together, 0.0, 0.0, &slope))

    cdef double _now(self, Py_ssize_t i, Py_ssize_t j) noexcept nogil:
        """Evidence of a pair."""
        cdef int kind = self.duels.kinds - 1
        cdef double share = self.duels.share(i), together, slope = 0.0
        if self.alone[i] == 0 and self.alone[j] == 0:
            together = self.duels.evidence(i, j, kind)
        else:
            together = self.duels.now(i, j, kind)
        if together == INFINITY:
            return INFINITY
        if share < 0.0 and self.duels.seat[i] >= 0:        # as much is left as the duels of the arm began with
            together = fmax(together, share) + log1p(exp(-fabs(together - share)))
        return self._least_both(i, j, log_hedged(together, 1.0, KEPT, &slope))

    # What to pull: estimates, without a promise.

    cdef double _per_pull(self, Py_ssize_t i) noexcept nogil:
        return self._variance(i) * <double>self.pulls[i]

    cdef int _review(self, Py_ssize_t *n_lack) except -1 nogil:
        """Look at all pairs across the cut; how many lack evidence. True if one has enough that had not."""
        cdef Py_ssize_t c, o, i, j, m = self.n_best, rest = self.n_arms - self.n_best, p = 0, q = 0
        cdef double now, gap, noise
        cdef bint news = False
        for i in range(self.n_arms):
            if self.is_best[i]:
                self.group[p] = i
                p += 1
            else:
                self.group[m + q] = i
                q += 1
        n_lack[0] = 0
        for c in range(m):
            i = self.group[c]
            for o in range(rest):
                j = self.group[m + o]
                self.lack[c * rest + o] = 0.0
                if self.most[i * self.n_arms + j] >= self.goal:
                    continue
                self.worked(5000 if self.alone[i] > 0 and self.alone[j] > 0 else 100)
                now = self._now(i, j)
                if now > self.most[i * self.n_arms + j]:
                    self.most[i * self.n_arms + j] = now
                    if now >= self.goal:
                        news = True
                        continue
                n_lack[0] += 1
                noise = self._variance(i) + self._variance(j)
                gap = self.mean[i] - self.mean[j] + self.epsilon
                self.lack[c * rest + o] = fmax(gap * gap, noise) / (2.0 * fmax(self.goal - now, 1.0))
        return news

    cdef bint _judge(self) noexcept nogil:
        """Give verdicts on arms, as pairs have enough evidence; whether there is a new one."""
        cdef Py_ssize_t i, j, n = self.n_arms, n_out = 0, n_in = 0, above, below
        cdef bint news = False
        for i in range(n):
            n_out += self.verdict[i] == OUT
            n_in += self.verdict[i] == IN
        for i in range(n):
            if self.verdict[i] != OPEN:
                continue
            above = below = 0
            for j in range(n):
                above += j != i and self.verdict[j] != OUT and self.most[j * n + i] >= self.goal
                below += j != i and self.verdict[j] != IN and self.most[i * n + j] >= self.goal
            if above >= self.n_best and n_out < n - self.n_best:
                self.verdict[i] = OUT
                n_out += 1
                news = True
            elif below >= n - self.n_best and n_in < self.n_best:
                self.verdict[i] = IN
                n_in += 1
                news = True
        return news

    cdef bint _reopen(self) noexcept nogil:
        """Take verdicts back that leave no other answer, where a pair that lacks evidence looks the other way round.

        Who was out by an arm that is out now, or within epsilon of one, may be better than what is left.
        """
        cdef Py_ssize_t i, j, n = self.n_arms, n_out = 0, n_in = 0
        cdef bint news = False
        for i in range(n):
            n_out += self.verdict[i] == OUT
            n_in += self.verdict[i] == IN
        if n_out < n - self.n_best and n_in < self.n_best:
            return False
        for i in range(n):
            for j in range(n):
                if (self.is_best[i] and not self.is_best[j] and self.mean[j] > self.mean[i]
                        and self.most[i * n + j] < self.goal and (self.verdict[i] != OPEN or self.verdict[j] != OPEN)):
                    self.verdict[i] = self.verdict[j] = OPEN
                    news = True
        return news

    cdef double _price_together(self) noexcept nogil:
        """Pulls that common rounds may take until all pairs have enough evidence, by a hopeful guess.

        The variance of a difference is that of its rounds and of one more, as of arms that have nothing in common.
        """
        cdef Py_ssize_t c, o, k, i, j, m = self.n_best, rest = self.n_arms - self.n_best, n_priced = 0
        cdef double total = 0.0, n = 0.0, rounds
        for k in range(self.n_arms):
            self.price[k] = 0.0
        for c in range(m):
            for o in range(rest):
                if self.lack[c * rest + o] > 0.0:
                    i, j = self.group[c], self.group[m + o]
                    rounds = self.duels.variance(i, j, self._per_pull(i) + self._per_pull(j), &n)
                    rounds /= self.lack[c * rest + o]
                    self.price[c] = fmax(self.price[c], rounds)
                    self.price[m + o] = fmax(self.price[m + o], rounds)
        for k in range(self.n_arms):
            total += self.price[k]
            n_priced += self.price[k] > 0.0
        return total * (1.0 - sqrt(2.0 / (<double>self.common * sqrt(<double>(n_priced - 1)) + 2.0)))

    cdef double _price_single(self) noexcept nogil:
        """Pulls of single arms that may do, for the best of a few ways to let one side have more of them."""
        cdef Py_ssize_t c, o, k, m = self.n_best, rest = self.n_arms - self.n_best, n_first
        cdef double found = INFINITY, total, lead = 1.0, rate, ours, its
        cdef bint many = m > rest
        cdef int _step
        n_first = rest if many else m      # the first side is the smaller one
        for k in range(self.n_arms):
            self.price[k] = 0.0
            self.work[k] = sqrt(self._per_pull(self.group[k]))
        for c in range(m):
            for o in range(rest):
                if self.lack[c * rest + o] > 0.0:
                    k = m + o if many else c
                    rate = self.work[k] * (self.work[c] + self.work[m + o]) / self.lack[c * rest + o]
                    self.price[k] = fmax(self.price[k], rate)
        for _step in range(LEADS):
            total = 0.0
            for k in range(self.n_arms):
                if (k >= m) == many:
                    total += lead * self.price[k]
                else:
                    its = 0.0
                    for o in range(n_first):
                        c = m + o if many else o
                        rate = self.lack[k * rest + o] if many else self.lack[o * rest + k - m]
                        if rate > 0.0:
                            ours = self.work[c] * self.work[c] / (lead * self.price[c])
                            its = fmax(its, self.work[k] * self.work[k] / (rate - ours))
                    total += its
            found = fmin(found, total)
            lead *= 1.5
        return found

    cdef void _change_over(self) noexcept nogil:
        """Whether to pull single arms, or all that lack evidence in common rounds."""
        cdef double together, single
        if self.common < FIRST_ROUNDS or self.common * (self.n_arms - 1) < FIRST_DIFFERENCES:
            self.single = False
            return
        together = self._price_together()
        single = self._price_single()
        self.single = together > (RETURN if self.single else LEAVE) * single

    cdef bint _doubts(self) noexcept nogil:
        """Whether common rounds have had so few of the pulls that another one may show what arms have in common."""
        cdef int64_t alone = 0
        cdef Py_ssize_t i
        for i in range(self.n_arms):
            alone += self.alone[i]
        return <double>(self.total - alone) < DOUBT * <double>self.total

    # The loop.

    cdef int _ask_together(self) noexcept nogil:
        cdef Py_ssize_t c, o, k, m = self.n_best, rest = self.n_arms - self.n_best
        cdef int64_t count = self.batch
        if count == 0:
            count = max(<int64_t>1, min(self.common // 100, <int64_t>MAX_BATCH))
        for k in range(self.n_arms):
            self.price[k] = 0.0
        for c in range(m):
            for o in range(rest):
                if self.lack[c * rest + o] > 0.0:
                    self.price[c] = self.price[m + o] = 1.0
        for k in range(self.n_arms):
            self.standing[self.group[k]] = self.price[k]
        for k in range(self.n_arms):
            if self.standing[k] > 0.0:
                self.ask_for(k, count)
        self.rounds += count
        return 0

    cdef int _ask_single(self) noexcept nogil:
        """Pull the pair whose bounds overlap most, one arm after the other."""
        cdef Py_ssize_t c, o, k, i, j, m = self.n_best, rest = self.n_arms - self.n_best
        cdef double widest = -INFINITY, wanted
        cdef int64_t count, ours
        i = j = 0
        for k in range(self.n_arms):
            self.bound[self.group[k]] = self._bound(self.group[k], 0 if k < m else 1, False)
        for c in range(m):
            for o in range(rest):
                if (self.lack[c * rest + o] > 0.0
                        and self.bound[self.group[m + o]] - self.bound[self.group[c]] > widest):
                    widest = self.bound[self.group[m + o]] - self.bound[self.group[c]]
                    i, j = self.group[c], self.group[m + o]
        count = self._size(i, j)
        wanted = self._share(i, j, 2.0 * <double>count) + self.carry
        ours = <int64_t>fmin(fmax(floor(wanted + 0.5), 0.0), 2.0 * <double>count)
        self.carry = wanted - <double>ours
        self.rounds += count
        if ours > 0:
            self.ask_for(i, ours)
        if ours < 2 * count:
            if ours == 0:
                self.ask_for(j, 2 * count)
            else:
                self.next_arm = j
                self.next_count = 2 * count - ours
        return 0

    cdef int plan(self) except -1 nogil:
        cdef Py_ssize_t n_lack = 0
        if self.next_count > 0:
            self.ask_for(self.next_arm, self.next_count)
            self.next_count = 0
            return 0
        self._renew()
        self.split()
        while self._review(&n_lack) and self._judge():
            self.split()
        if n_lack > 0 and self._reopen():
            self._judge()
            self.split()
            while self._review(&n_lack) and self._judge():
                self.split()
        if n_lack == 0:
            self._note_error()
            self.status = BY_SEPARATION if self.epsilon == 0.0 else BY_EPSILON     # differences are tested with it only
            return 0
        if self.total >= self.next_gap:
            self._note_error()
        self._change_over()
        return self._ask_single() if self.single and not self._doubts() else self._ask_together()

    # What is known.

    def _decided(self):
        """Where all pairs of an arm and one of the other side have, or once had, enough evidence."""
        found = Selector._decided(self)
        if self.ready:
            self.split()
            chosen = np.array([self.is_best[i] for i in range(self.n_arms)], dtype=bool)
            apart = self._most >= self.goal
            found[chosen] = apart[np.ix_(chosen, ~chosen)].all(axis=1)
            found[~chosen] = -apart[np.ix_(chosen, ~chosen)].all(axis=0).astype(np.int8)
        return found

    cdef double _log_bound(self, double slack) except? 1.0 nogil:
        """Log of the smallest delta at which the rule would have stopped by now; it changes nothing."""
        cdef Py_ssize_t i, j
        cdef double least = INFINITY, found
        self.split()
        for i in range(self.n_arms):
            for j in range(self.n_arms):
                if self.is_best[i] and not self.is_best[j]:
                    found = self.most[i * self.n_arms + j]
                    if found < least:
                        self.worked(5000 if self.alone[i] > 0 and self.alone[j] > 0 else 100)
                        least = fmin(least, fmax(found, self._now(i, j)))
        return -fmax(least, 0.0)

    cdef int _note_error(self) except -1 nogil:
        self._note(exp(self._log_bound(0.0)))
        self.next_gap = self.total + self.total // 10 + 1
        return 0

    def _differences(self, leader, log_inv_delta):
        """From bets on common rounds, and from intervals of the means, each with half of delta."""
        found = super()._differences(leader, log_inv_delta + log(2.0))
        rounds = self.duels.differences(leader, log_inv_delta + log(2.0))
        found[:, 0] = np.maximum(found[:, 0], rounds[:, 0])
        found[:, 1] = np.minimum(found[:, 1], rounds[:, 1])
        return found

    def _chosen(self):
        if not self.ready:
            return super()._chosen()
        self.split()
        return self._by_mean(np.array([i for i in range(self.n_arms) if self.is_best[i]], dtype=np.intp))

    def _get_state(self):
        return super()._get_state() | dict(common=self.common, single=self.single, most=self._most.copy(),
                                           next=(self.next_arm, self.next_count), duels=self.duels.state())

    def _set_state(self, state):
        super()._set_state(state)
        most, (arm, count) = np.array(state["most"], dtype=np.float64), state["next"]
        common, single, verdict, alone = _count(state["common"]), state["single"], self.vectors["verdict"], \
            self.vectors["alone"]
        total, first, second = (self.vectors[name] for name in ("alone_total", "alone_within", "alone_high"))
        _demand(most.shape == (self.n_arms, self.n_arms) and (most >= 0.0).all() and isinstance(single, bool)
                and np.isin(verdict, (OPEN, OUT, IN)).all() and (verdict == OUT).sum() <= self.n_arms - self.n_best
                and (verdict == IN).sum() <= self.n_best, "its pairs")
        _demand(((0 <= alone) & (alone <= self._pulls) & (0.0 <= total) & (total <= alone + 1e-6 * (alone + 1.0))
                 & (0.0 <= second) & (second <= first) & (first <= alone)).all(), "its moments")
        self.next_arm, self.next_count = _count(arm, self.n_arms - 1), _count(count)
        self.duels.set_state(state["duels"])
        self._most[:] = most
        self.common, self.single = common, single
        if self.ready:
            self.split()
