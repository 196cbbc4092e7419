"""Who is still in a race over a finite population: Chen & Ghahramani (2016), Algorithm 1, with any of our bounds."""

from libc.math cimport INFINITY, NAN, fabs, sqrt
from libc.stdint cimport int64_t
from libc.string cimport memcpy, memset
cimport numpy as cnp

from fastrace._base._guard cimport guard_await, guard_built, guard_check_idle
from fastrace._base._signals cimport check_signals
from fastrace._base._types cimport moments4_t
from fastrace._math._betting cimport wealth_extend, wealth_rejects, wealth_t
from fastrace._math._criteria cimport rows_needed
from fastrace._math._evidence cimport look_evidence
from fastrace._math._missing cimport rows_silent_for_good, worth_a_warning
from fastrace._math._moments cimport moments4_extend, moments4_extend_difference, moments4_skewness, moments4_std
from fastrace._math._rule cimport (BETTING, NORMAL, constant_so_far, lead_stands, look_init, look_width, lost_in_sums,
                                   quantile_of_equal_evidence)
from fastrace._math._skewness cimport tail_half_width, tail_rows, unseen_rows
from fastrace.races._reading cimport ROWS_PER_BLOCK, ROWS_PER_CALL, ROWS_PER_CHECK
from fastrace.races._scores cimport RaceScores

import warnings

import numpy as np

from fastrace._base import _checks
from fastrace._base._checks import DamagedError, arm_error, silence
from fastrace._base._words import NO_WHOLE_ROW, SILENT_ROWS, arms_in_words
from fastrace._math import _half_widths

cnp.import_array()

NONE_LEFT = "every arm still in the race has a reward of -inf"
MISSING = ("raise", "drop", "worst")
STOPPED_BY = ("", "bound", "exact", "single", "max_pulls", "epsilon")


cdef class RaceJudge(RaceScores):
    """The plan of looks of a race, what each look decides, and what is known so far."""

    def __cinit__(self):
        guard_await(&self.guard, 1)         # until there is a plan

    def __init__(self, n_arms, n_rows, *, bound, pairwise, shuffled, guarded, tails, low, high, rng,
                 epsilon=0.0, n_best=1, missing="raise", proxy=None):
        cdef int kind = _half_widths.BOUNDS.index(bound)
        super().__init__(n_arms, n_rows, pairwise=pairwise, shuffled=shuffled, betting=kind == BETTING, low=low,
                         high=high, rng=rng, epsilon=epsilon, proxy=proxy)
        self._least = np.zeros(self.n_arms)
        self.least = <double *>cnp.PyArray_DATA(self._least)
        self.n_best = n_best
        self.missing = MISSING.index(missing)
        self.fill_low, self.fill_high = (-INFINITY, INFINITY) if low is None else (np.max(low), np.min(high))
        self.bound = kind
        self.guarded = guarded
        self.tails = tails and kind == NORMAL
        self.bounded_support = low is not None

    def plan(self, looks, quantiles, log_inv_delta):
        """Set the looks (the last is n_rows), each one's quantile, and log(1 / delta) of one comparison at one look."""
        cdef cnp.ndarray look = np.array(looks, dtype=np.int64), quantile = np.array(quantiles, dtype=np.float64)
        cdef double level = log_inv_delta
        cdef const int64_t *rows = <const int64_t *>cnp.PyArray_DATA(look)
        cdef Py_ssize_t k, count = look.shape[0] if look.ndim == quantile.ndim == 1 else 0
        cdef bint good = 0 < count == quantile.shape[0] and rows[0] >= 0 and rows[count - 1] == self.n_rows
        for k in range(1, count if good else 0):
            good = good and rows[k - 1] < rows[k]
        if not good:
            raise ValueError("the plan of looks cannot be right: they grow, the last reads every row, and each has one "
                             "quantile")
        guard_check_idle(&self.guard, self)
        self._looks = look
        self._quantiles = quantile
        self.look = <int64_t *>cnp.PyArray_DATA(self._looks)
        self.quantile = <double *>cnp.PyArray_DATA(self._quantiles)
        self.n_looks = self._looks.shape[0]
        self.log_inv_delta = level
        guard_built(&self.guard, 1)

    def _take_state(self, state):
        super()._take_state(state)
        if self.n_dropped > 0 and self.missing != DROP:
            raise DamagedError("the saved race is damaged: it says that rows were dropped, and its options drop none")

    cdef void _begin(self) noexcept nogil:
        cdef Py_ssize_t i
        for i in range(self.n_arms):
            self.sum[i] = 0.0
            self.shift[i] = 0.0
            self.mean[i] = NAN
            self.half_width[i] = NAN
            self.pulls[i] = 0
            self.dead[i] = 0
            self.held[i] = 0
            self.head[i] = 0
            self.chosen[i] = 0
            self.evidence[i] = 0.0
            self.absent[i] = 0
            self.lost[i] = 0
            (<int64_t *>cnp.PyArray_DATA(self._measured))[i] = 0
        self.forget_comparisons()
        self._forget_slopes()
        memset(&self.closest, 0, sizeof(moments4_t))
        self.n_read = 0
        self.n_kept = 0
        self.n_dropped = self.new_dropped = 0
        self.compared_with = -1
        self.spent = 0
        self.order.drawn = 0
        self.looks_taken = 0
        self.full_pass = False
        self.opened = False
        self.unjudged = False
        self.flags = 0
        self._line_up()
        self._decide_without_rows()

    cdef void _line_up(self) noexcept nogil:
        """Who takes part: all arms whose constants are above -inf. Before any row, the largest constant leads."""
        cdef Py_ssize_t i
        cdef double constant
        self.n_active = 0
        self.leader = -1
        for i in range(self.n_arms):
            constant = self.offset[i] + self.shift[i]
            if constant > -INFINITY:
                if self.leader < 0 or constant > self.offset[self.leader] + self.shift[self.leader]:
                    self.leader = i
                self.active[self.n_active] = i
                self.n_active += 1
            else:
                self.mean[i] = -INFINITY
                self.half_width[i] = 0.0
                self.evidence[i] = INFINITY
        self.status = SINGLE if self.n_active <= self.n_best else RUNNING
        if self.status == SINGLE:
            self._settle()

    cdef void _settle(self) noexcept nogil:
        """Nothing is in doubt about the arms left."""
        cdef Py_ssize_t j
        for j in range(self.n_active):
            self.evidence[self.active[j]] = INFINITY

    cdef void _decide_without_rows(self) noexcept nogil:
        cdef Py_ssize_t i, j, k, best
        if self.n_rows == 0 and self.status == RUNNING:
            self.status = BY_EXACT
            self._settle()
            for k in range(self.n_best):
                best = k
                for j in range(k + 1, self.n_active):
                    i = self.active[j]
                    if (self.offset[i] + self.shift[i]
                            > self.offset[self.active[best]] + self.shift[self.active[best]]):
                        best = j
                self.active[k], self.active[best] = self.active[best], self.active[k]
            self.n_active = self.n_best

    cdef int _commit(self, int64_t n) except -1 nogil:
        """Keep what the look has brought, and see who leads."""
        cdef Py_ssize_t i, j, leader = self._first_of_means(n)
        cdef double rows = max(n - self.new_dropped, <int64_t>1)
        if leader < 0:
            with gil:
                raise ValueError(NONE_LEFT)
        if self.proxied:
            self._learn(n, self.new_sum)
            leader = self._first_of_means(n)
        if not self.pairwise:
            memcpy(self.comparisons(0), self.new_moments, self.n_arms * sizeof(moments4_t))
        elif not self.dead[self.leader]:
            memcpy(self.comparisons(self.leader), self.new_moments, self.n_arms * sizeof(moments4_t))
        memcpy(self.sum, self.new_sum, self.n_arms * sizeof(double))
        memcpy(self.lost, self.new_lost, self.n_arms * sizeof(int64_t))
        self.flags |= self.new_flags
        self.n_dropped = self.new_dropped
        self.spent += (n - self.n_read) * self.n_active
        self.n_read = self.n_kept = n
        self.leader = leader
        for j in range(self.n_active):
            i = self.active[j]
            self.mean[i] = (-INFINITY if self.dead[i] else
                            self.sum[i] / rows + (self.offset[i] + self.shift[i]) / self.n_rows
                            - self._explained(i, n))
            self.pulls[i] = n
            self.absent[i] = self.new_dropped
        self.unjudged = True
        return 0

    cdef int _listen(self, int64_t n) except -1 nogil:
        """Say, before much more is paid, which arms have given no reward in all n rows; refuse the look if n is large.

        A source whose rewards cost nothing (`patient`) is read to its end, where nothing is known either.
        """
        if self.new_dropped < n:
            return 0
        if n == self.n_rows or not self.patient and rows_silent_for_good(n, self.n_rows):
            with gil:
                self._refuse_silence(n)
        if worth_a_warning(self.n_read, n):
            with gil:
                self._warn_of_silence(n)
        return 0

    def _refuse_silence(self, n):
        silent = np.flatnonzero(self._new_lost == n).tolist()
        said = f"{arms_in_words(silent)} gave no reward on any" if silent else "a reward was missing on each"
        error = arm_error(self, silent[0], NO_WHOLE_ROW.format(said, n)) if silent else ValueError(
            NO_WHOLE_ROW.format(said, n))
        raise silence(error, silent or list(range(self.n_arms)))

    def _warn_of_silence(self, n):
        silent = np.flatnonzero(self._new_lost == n)
        if silent.size:
            warnings.warn(
                SILENT_ROWS.format(arms_in_words(silent.tolist()), n), RuntimeWarning,
                stacklevel=_checks.users_level(),
            )

    cdef Py_ssize_t _first_of_means(self, int64_t n) noexcept nogil:
        """The arm with the largest mean of the n rows that the look brings up; -1 if none is possible."""
        cdef Py_ssize_t i, j, leader = -1
        cdef double best = 0.0, mean, rows = max(n - self.new_dropped, <int64_t>1)
        for j in range(self.n_active):
            i = self.active[j]
            mean = self.new_sum[i] / rows + (self.offset[i] + self.shift[i]) / self.n_rows - self._explained(i, n)
            if not self.dead[i] and (leader < 0 or mean > best):
                leader = i
                best = mean
        return leader

    cdef double _whole_mean(self, Py_ssize_t i, double total, double rows) noexcept nogil:
        if self.missing == DROP:
            return total / rows + (self.offset[i] + self.shift[i]) / self.n_rows
        return (total + self.offset[i] + self.shift[i]) / self.n_rows

    cdef int _finish(self, const double *total) except -1 nogil:
        """Every row has been read: the answer is exact, whatever the bound says."""
        cdef Py_ssize_t i, j, k, leader = -1
        cdef double best = 0.0, mean, rows = max(self.n_rows - self.new_dropped, <int64_t>1)
        cdef bint whole = True
        for j in range(self.n_active):
            i = self.active[j]
            mean = self._whole_mean(i, total[i], rows)
            if mean > -INFINITY and (leader < 0 or mean > best):
                leader = i
                best = mean
        if leader < 0:
            with gil:
                raise ValueError(NONE_LEFT)
        for j in range(self.n_active):
            i = self.active[j]
            self.sum[i] = total[i]
            self.mean[i] = self._whole_mean(i, total[i], rows)
            self.absent[i] = self.new_dropped
            self.half_width[i] = 0.0
            self.pulls[i] = self.n_rows
        for i in range(self.n_arms):
            whole = whole and (self.pulls[i] == self.n_rows or self._is_dead(i))
        if whole:           # no decision rests on a look
            self.flags &= ~(CONSTANT_FIRST_LOOK | HELD_BACK)
        self.flags |= self.new_flags
        memcpy(self.lost, self.new_lost, self.n_arms * sizeof(int64_t))
        self.n_dropped = self.new_dropped
        self.spent += (self.n_rows - self.n_read) * self.n_active
        self.n_read = self.n_rows
        self.leader = leader
        self._settle()
        self._line_up_heads()
        k = 0
        for j in range(self.n_active):
            if self.head[self.active[j]]:
                self.active[k] = self.active[j]
                k += 1
        self.n_active = k
        self.looks_taken += 1
        self.status = BY_EXACT
        return 0

    cdef int _judge(self) except -1 nogil:
        """Who is out, and who is chosen. Interrupted while it catches up, it is begun again.

        The `n_best` arms with the largest means so far are the heads, those chosen before included. With one best arm,
        the leader is the only head. An arm leaves once every head that is not chosen yet has beaten it. A head is
        chosen once it has beaten every arm left. With epsilon, a pair is decided at two levels: "within" says that
        the head is less than epsilon below the arm, and "beaten", which implies it, that it is above. The race also
        stops once each head is within epsilon of every arm left.

        Why delta holds: let S be the true best arms. Some pair of an arm i of S and an arm j outside must be decided
        wrongly for i to leave (of the heads that all beat i, or were chosen, one is outside S), for j to be chosen
        (some arm of S is then left and no head), or for the race to stop with j more than epsilon below i. If j is
        epsilon below i or more, each of these needs "within", whose null holds. If not, only "beaten" is an error, and
        its null holds. So every pair needs one test at delta over the number of pairs.
        """
        cdef Py_ssize_t i, j, h, n_out = 0, n_heads
        cdef bint all_near = True
        cdef moments4_t lead
        n_heads = self._line_up_heads()
        for j in range(self.n_active):
            i = self.active[j]
            self.wait[i] = 0.0
            self.beaten_by[i] = 0
            self.least[i] = INFINITY
            if not self.head[i]:
                n_out += not self._is_dead(i)
                self.evidence[i] = INFINITY
            elif self.pairwise:
                self.comparisons(i)
                for h in range(self.n_active):
                    if not self.head[self.active[h]] and not self._is_dead(self.active[h]):
                        self._catch_up(i, self.active[h])
        self._choose_width()
        self.closest_ratio = INFINITY
        for h in range(self.n_active):
            i = self.active[h]
            if not self.head[i]:
                continue
            lead.n = 0
            self.half_width[i] = NAN if self.pairwise else self._width(&self.comparisons(0)[i], i, i)
            for j in range(self.n_active):
                if not self.head[self.active[j]] and not self._is_dead(self.active[j]):
                    self._weigh_pair(i, self.active[j], &lead, &all_near)
        self._let_go(n_heads, n_out, self.epsilon > 0.0 and all_near)
        if self.n_read == self.look[self.looks_taken]:        # not if a budget cut the look short
            self.looks_taken += 1
        self.unjudged = False
        if self.status == RUNNING and self.epsilon > 0.0 and all_near:
            self.status = BY_EPSILON
        return 0

    cdef Py_ssize_t _line_up_heads(self) noexcept nogil:
        """Mark the arms that lead: of the arms read, as many of the largest means as are not chosen yet."""
        cdef Py_ssize_t i, j, k, best, wanted = self.n_best
        for i in range(self.n_arms):
            self.head[i] = 0
            wanted -= self.chosen[i]
        for k in range(wanted):
            best = -1
            for j in range(self.n_active):
                i = self.active[j]
                if not self.head[i] and not self._is_dead(i) and (best < 0 or self.mean[i] > self.mean[best]):
                    best = i
            if best < 0:
                return k
            self.head[best] = 1
        return wanted

    cdef double _lead(self, Py_ssize_t head, Py_ssize_t i) noexcept nogil:
        """The lead over arm i; where rows were dropped, over all rows read, a dropped one being a tie."""
        if self.n_dropped == 0:
            return self.mean[head] - self.mean[i]
        return ((self.sum[head] - self.sum[i]) / self.n_read
                + (self.offset[head] + self.shift[head] - self.offset[i] - self.shift[i]) / self.n_rows)

    cdef double _present(self) noexcept nogil:
        """Share of the rows read that were not dropped."""
        return 1.0 - <double>self.n_dropped / self.n_read if self.n_dropped > 0 else 1.0

    cdef int _weigh_pair(self, Py_ssize_t head, Py_ssize_t i, moments4_t *lead, bint *all_near) except -1 nogil:
        """Whether a head has beaten arm i, whether it is within epsilon of it, and the evidence for that."""
        cdef moments4_t *own = self.comparisons(head if self.pairwise else 0)
        cdef double gap = self._lead(head, i), earlier = self.wait[i], evidence = 0.0, strict = 0.0
        cdef double width = self._width(&own[i], head if self.pairwise else i, i), ratio, other, wait
        cdef bint near, beaten
        self.half_width[i] = NAN if self.bound == BETTING else width
        if not self.pairwise:
            width += self._width(&own[head], head, head)
        self.wait[i] = 0.0
        other = width
        near = self._beats(own, lead, head, i, self.epsilon, &width, &evidence)
        wait = max(self.wait[i], earlier)
        beaten = near
        if self.epsilon > 0.0 and near:
            self.wait[i] = 0.0
            beaten = self._beats(own, lead, head, i, 0.0, &other, &strict)
            evidence = min(evidence, strict) if beaten else evidence
        self.wait[i] = wait
        if self.tails and self.pairwise:
            self.half_width[i] = width
        ratio = gap / width if width > 0.0 else INFINITY
        if ratio < self.closest_ratio:
            self.closest_ratio = ratio
            self.closest = own[i]
        self.evidence[i] = min(self.evidence[i], evidence)
        self.least[head] = min(self.least[head], evidence)
        self.beaten_by[i] += beaten
        self.beaten_by[head] += beaten
        all_near[0] = all_near[0] and near
        return 0

    cdef void _let_go(self, Py_ssize_t n_heads, Py_ssize_t n_out, bint over) noexcept nogil:
        """Take the arms that every head has beaten out of the race, and those heads that have beaten every arm.

        `n_out` arms are no heads. The evidence of an arm that goes is that of its weakest pair. Where rows are dropped,
        a row belongs to the population by the rewards of all arms: none goes before the race is `over`.
        """
        cdef Py_ssize_t i, j, kept = 0, left = n_out
        cdef bint together
        for j in range(self.n_active):
            i = self.active[j]
            if not self.head[i] and (self._is_dead(i) or self.beaten_by[i] == n_heads):
                left -= not self._is_dead(i)
        together = self.missing == DROP and left > 0 and not over
        for j in range(self.n_active):
            i = self.active[j]
            if self._is_dead(i):
                self.half_width[i] = 0.0
                self.evidence[i] = INFINITY
                continue
            if self.head[i]:
                self.evidence[i] = INFINITY
                if left > 0 and self.beaten_by[i] == n_out and not together:
                    self.chosen[i] = 1
                    self.evidence[i] = self.least[i]
                    continue
            elif self.beaten_by[i] == n_heads and not together:
                continue
            self.active[kept] = i
            kept += 1
        self.n_active = kept
        if left == 0:
            self.status = BY_BOUND
            return
        if self.chosen[self.leader]:            # the largest mean of those that are read on
            self.leader = -1
            for j in range(kept):
                i = self.active[j]
                if self.leader < 0 or self.mean[i] > self.mean[self.leader]:
                    self.leader = i

    cdef bint _is_dead(self, Py_ssize_t i) noexcept nogil:
        return self.mean[i] == -INFINITY

    cdef bint _beats(self, const moments4_t *own, moments4_t *lead, Py_ssize_t head, Py_ssize_t i, double shift,
                     double *width, double *evidence) except -1 nogil:
        """Whether a head's mean is above that of arm i less `shift`, and the evidence for that.

        The evidence is the logarithm of the wealth for betting, of 1 / delta where a half-width would equal the lead
        for the Serfling bounds, and the lead over its half-width for the normal rule.
        """
        cdef double share = self._present(), gap = self._lead(head, i) + shift * share, skewness, std, span
        cdef bint skewed = False, stands
        cdef wealth_t *w
        if self.bound == BETTING:
            w = &(self.within if shift > 0.0 else self.wealth)[self.slot[head]][i]
            evidence[0] = INFINITY if w.impossible else w.peak
            return wealth_rejects(w, self.log_inv_delta)
        if shift > 0.0 and share < 1.0:         # what is added to the rows that are not dropped varies, too
            width[0] += self.now.by_std * shift * sqrt(share * (1.0 - share))
        if self.tails and gap > width[0]:
            width[0] = self._weigh_tails(own, lead, head, i, gap, width[0])
        if self.bound == NORMAL:
            evidence[0] = max(gap, 0.0) / width[0] if width[0] > 0.0 else INFINITY
        else:
            std = moments4_std(&own[i]) + shift * sqrt(share * (1.0 - share))
            span = self.high[i] - self.low[i] + self.high[head] - self.low[head]
            if not self.pairwise:
                std += moments4_std(&own[head])
            evidence[0] = look_evidence(self.bound, self.n_read, self.n_rows, std, span, gap)
        if not gap > width[0] or self.wait[i] > self.n_read:
            evidence[0] = 0.0 if self.wait[i] > self.n_read else evidence[0]
            return False
        if self.bound == NORMAL:
            # The danger is a lead that looks too large: skewed to the left. Of two single means, either may be.
            skewness = moments4_skewness(&own[i])
            if not self.pairwise:
                skewness = min(-skewness, moments4_skewness(&own[head]))
            stands = lead_stands(self.guarded, skewness, own[i].n, self.n_rows, self.now.quantile, &skewed)
            if skewed:
                self.flags |= SKEWED
            evidence[0] = evidence[0] if stands else 0.0
            return stands
        return True

    cdef void _choose_width(self) noexcept nogil:
        """Half-widths from now on are those of the rows read and the look that comes next in the plan."""
        # Betting inverts no interval: its forecasts take what a normal rule of equal evidence would have.
        look_init(&self.now, self.bound, self.n_read, self.n_rows, self.log_inv_delta,
                  quantile_of_equal_evidence(self.log_inv_delta) if self.bound == BETTING
                  else self.quantile[self.looks_taken])

    cdef double _width(self, const moments4_t *m, Py_ssize_t i, Py_ssize_t j) noexcept nogil:
        """Half-width of the mean of arm i (i = j) or of its lead over arm j."""
        cdef double std = moments4_std(m), span = self.high[i] - self.low[i]
        cdef double size = fabs(m.mean) + 1e-3 * (fabs(self.mean[i]) + fabs(self.mean[j]))
        if i != j:
            span += self.high[j] - self.low[j]
        if self.still[i] and self.still[j]:
            return 0.0
        if self.bound == NORMAL and lost_in_sums(std, max(fabs(self.sum[i]), fabs(self.sum[j])) / self.n_read):
            self.flags |= FAR_FROM_ZERO
        if self.bound == NORMAL and constant_so_far(std, size):
            if self.looks_taken == 0:
                self.flags |= CONSTANT_FIRST_LOOK
            return INFINITY
        return look_width(&self.now, std, span)

    cdef double _weigh_tails(self, const moments4_t *own, moments4_t *lead, Py_ssize_t leader, Py_ssize_t i, double gap,
                             double width) except -1.0 nogil:
        """Half-width of a lead that the normal rule believes, tails considered; `wait` is the rows to read before.

        A lead is too large where values far to the right of the arm, or far to the left of the leader, have been
        missed: differences show their skewness only as far as they were seen. `lead` keeps the leader's moments.
        """
        cdef double quantile = self.now.quantile
        cdef moments4_t mine
        if self.pairwise:
            width = tail_half_width(width, moments4_std(&own[i]), -moments4_skewness(&own[i]), own[i].n, self.n_rows,
                                    quantile)
            if lead.n == 0:
                self._column_moments(leader, lead)
            self._column_moments(i, &mine)
        else:
            lead[0], mine = own[leader], own[i]
            width = (tail_half_width(self._width(lead, leader, leader), moments4_std(lead), -moments4_skewness(lead),
                                     lead.n, self.n_rows, quantile)
                     + tail_half_width(self._width(&mine, i, i), moments4_std(&mine), moments4_skewness(&mine), mine.n,
                                       self.n_rows, quantile))
        self._wait_for(leader, i, self._tail_rows(lead, leader, leader, i, -1.0, gap))
        self._wait_for(i, i, self._tail_rows(&mine, i, leader, i, 1.0, gap))
        return width

    cdef void _wait_for(self, Py_ssize_t column, Py_ssize_t i, double rows) noexcept nogil:
        """Hold the decision about arm i back until this many rows have been read of a column."""
        if rows > self.n_read:
            self.held[column] = 1
            self.flags |= HELD_BACK
            self.wait[i] = max(self.wait[i], rows)

    cdef int _column_moments(self, Py_ssize_t arm, moments4_t *m) except -1 nogil:
        """Moments of the rewards kept of an arm; the same whenever they are asked for."""
        cdef int64_t start = 0
        cdef Py_ssize_t count
        memset(m, 0, sizeof(moments4_t))
        while start < self.n_read:
            count = <Py_ssize_t>min(<int64_t>ROWS_PER_CALL, self.n_read - start)
            moments4_extend(m, self.column[arm] + start, count)
            start += count
            if start % (128 * ROWS_PER_CALL) == 0:
                check_signals()
        return 0

    cdef double _tail_rows(self, const moments4_t *m, Py_ssize_t arm, Py_ssize_t leader, Py_ssize_t i, double side,
                           double gap) noexcept nogil:
        """Rows to read before a lead of `gap` is believed, for a column's tail: right if `side` is 1, left if -1."""
        cdef double std = moments4_std(m), skewness, size, square, total = 0.0, squares = 0.0, lead, reach
        cdef const double *x
        cdef const double *best
        cdef const double *worst
        cdef int64_t k
        if constant_so_far(std, fabs(m.mean)):      # what the rest holds is as far off as may be
            reach = self.high[arm] - self.low[arm] if self.bounded_support and not self.proxied else INFINITY
            return unseen_rows(0.0 if self.still[arm] else reach, gap, m.n, self.n_rows)
        skewness = side * moments4_skewness(m)
        size = std * skewness
        if tail_rows(skewness, INFINITY, gap, m.n) <= m.n:
            return <double>m.n
        if self.pairwise:       # the mean of the lead over rows weighted by their squared deviation in the column
            x, best, worst = self.column[arm], self.column[leader], self.column[i]
            lead = self.sum[leader] / self.n_read - self.sum[i] / self.n_read
            for k in range(self.n_read):
                square = (x[k] - m.mean) * (x[k] - m.mean)
                total += square * (lead - (best[k] - worst[k]))
                squares += square
            size = total / squares
        return tail_rows(skewness, size, gap, m.n)

    cdef int _catch_up(self, Py_ssize_t leader, Py_ssize_t i) except -1 nogil:
        """Bring the comparison of the leader with arm i up to the rows told, from the rewards kept."""
        cdef moments4_t *m = &self.moments[self.slot[leader]][i]
        cdef int64_t start = m.n
        cdef Py_ssize_t count
        cdef double shift = ((self.offset[leader] + self.shift[leader])
                             - (self.offset[i] + self.shift[i])) / self.n_rows
        while start < self.n_read:
            count = <Py_ssize_t>min(<int64_t>ROWS_PER_BLOCK, self.n_read - start)
            moments4_extend_difference(m, self.column[leader] + start, self.column[i] + start, count)
            start += count
        if self.bound == BETTING:
            self._bet(&self.wealth[self.slot[leader]][i], leader, i, shift, 0.0, self.n_read)
            if self.epsilon > 0.0:
                self._bet(&self.within[self.slot[leader]][i], leader, i, shift, self.epsilon, self.n_read)
        return 0

    cdef int _bet(self, wealth_t *w, Py_ssize_t leader, Py_ssize_t i, double shift, double lift,
                  int64_t rows) except -1 nogil:
        """Bets that the mean of the leader less that of arm i is above -shift - lift, brought up to so many rows.

        Either may be -1, for zeros.

        A row that was dropped is not lifted. Its difference is `shift` then, so the null stays one about the rows that
        were not dropped: their sum, lifted, is not positive.
        """
        cdef Py_ssize_t count
        cdef double low = (self.low[leader] if leader >= 0 else 0.0) - (self.high[i] if i >= 0 else 0.0) + lift
        if self.proxied:
            return self._bet_adjusted(w, leader, i, shift + lift, low + shift, rows)
        if self.missing == DROP:
            low = min(low, 0.0)
        while w.n < rows:
            count = <Py_ssize_t>min(<int64_t>ROWS_PER_CHECK, rows - w.n)
            if self.n_dropped > 0:
                count = self._run_of_marks(w.n, count)
            wealth_extend(w, &self.bets, self.column[leader] + w.n, self.column[i] + w.n,
                          shift + (0.0 if self.n_dropped > 0 and self.marks[w.n] else lift), count, low + shift,
                          self.n_rows)
            if count == ROWS_PER_CHECK:
                check_signals()
        return 0

    cdef Py_ssize_t _run_of_marks(self, int64_t start, Py_ssize_t most) noexcept nogil:
        """How many rows from here on are alike: dropped, or not."""
        cdef Py_ssize_t k = 1
        while k < most and self.marks[start + k] == self.marks[start]:
            k += 1
        return k

    cdef double _rows_needed(self) except -1.0 nogil:
        """Rows after which the race should be over, gaps and spreads staying as they are."""
        cdef Py_ssize_t j, h, i, head
        cdef const moments4_t *own
        cdef double width, needed = 0.0
        self._choose_width()
        for h in range(self.n_active):
            head = self.active[h]
            if not self.head[head]:
                continue
            own = self.comparisons(head if self.pairwise else 0)
            for j in range(self.n_active):
                i = self.active[j]
                if self.head[i]:
                    continue
                width = self._width(&own[i], head if self.pairwise else i, i)
                if not self.pairwise:
                    width += self._width(&own[head], head, head)
                elif self.tails:
                    width = max(width, self.half_width[i])
                needed = max(needed, self.wait[i])
                needed = max(needed, rows_needed(self._lead(head, i) + self.epsilon, width, self.n_read, self.n_rows))
        return needed
