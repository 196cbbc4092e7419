"""Races on streams: where the rewards of rounds come from, answers, and saving."""

from libc.math cimport INFINITY, fabs
from libc.stdint cimport INT64_MAX, int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
cimport numpy as cnp

from fastrace._base._guard cimport guard_check, guard_check_built, guard_enter, guard_leave, guarded
from fastrace._draws._row_order cimport RowOrder, row_in
from fastrace._math._bounds cimport stream_slack
from fastrace._math._columns cimport column_t, column_varies
from fastrace._math._missing cimport silent_for_good, worth_a_warning
from fastrace._math._moments cimport moments4_skewness
from fastrace._math._rounds cimport fr_view
from fastrace.sources cimport ArraySource, Source
from fastrace.streams._rounds cimport (ASYMPTOTIC, BY_EPSILON, BY_HORIZON, BY_MAX_PULLS, CHOSEN, DROPPED, EXACT,
                                       OPEN, REFUSED, RUNNING, SKIPPED, WORST, Rounds)

import warnings

import numpy as np

from fastrace._base import _checks
from fastrace._base._checks import DamagedError, arm_error
from fastrace._base._words import SILENT_ROUNDS, arms_in_words
from fastrace._draws import _row_order
from fastrace.streams._rounds import STOPPED_BY

cnp.import_array()


def in_round(k):
    return f"round {k}, counted from 0,"


cdef class StreamRace(Rounds):
    """One race; the classes over `stream_race` check the arguments and name the answer."""

    _public_name = "race"

    cdef RowOrder order                 # in which the rows of a population are read, or None
    cdef list gaps                      # rounds and arms of missing rewards of the block at hand
    cdef object rest                    # of the block that the last run refused: see `refused`

    # Rewards

    def _refuse(self, block, first, RowOrder order=None):
        """Why the first bad reward of a block of rounds, rows by places, cannot be taken."""
        cdef Py_ssize_t i, j
        for i in range(block.shape[0]):
            for j in range(self.n_open):
                x = float(block[i, j])
                low, high = self.support(j)
                if not low - stream_slack(low, high) <= x <= high + stream_slack(low, high):
                    where = f"row {row_in(order, first + i)}" if order is not None else in_round(first + i)
                    return self._refusal(self.arm[j], x, low, high, where)
        return RuntimeError("a reward changed while it was read")

    def _refusal(self, Py_ssize_t arm, double x, double low, double high, str where):
        said = f"the reward of arm {arm} in {where} is {x!r}"
        if self.bound == ASYMPTOTIC:
            return arm_error(self, arm, f"{said}; a finite number is needed: drop or replace the round")
        if x != x or x in (INFINITY, -INFINITY):
            return arm_error(self, arm, f"{said}; a reward must be a finite number inside support=({low!r}, {high!r})")
        return arm_error(self, arm, f"{said}, outside support=({low!r}, {high!r}): the promise holds only for rewards "
                                    f"inside it; widen support or scale the rewards")

    # One reward at a time, for requests in flight

    @property
    def takes_missing(self):
        return self.missing != REFUSED

    @property
    def position_now(self):
        """Rounds so far, dropped ones included."""
        return self.position()

    def asked(self):
        """Arms whose rewards the next round needs."""
        return np.arange(self.n_arms) if self.missing == SKIPPED else self.active

    def check(self, Py_ssize_t arm, double reward, int64_t round):
        """Refuse a reward of a later round as `tell` will when its turn comes."""
        guard_check(&self.guard, self)
        low, high = self.arguments[6][arm], self.arguments[7][arm]
        slack = stream_slack(low, high)
        if not low - slack <= reward <= high + slack and not (reward != reward and self.missing != REFUSED):
            raise self._refusal(arm, reward, float(low), float(high), in_round(round))

    def pause(self):
        """Stop, as what may be paid for is used up; more rounds may be told later."""
        if self.status == RUNNING:
            self.status = BY_MAX_PULLS

    def made(self):
        """Rewards of each arm that were asked for."""
        pulls = np.full(self.n_arms, self.position(), dtype=np.int64)
        if self.missing != SKIPPED:
            pulls[self._arm[self.n_open:]] = self._fields[4, self.n_open:]
        return pulls

    def support(self, Py_ssize_t place):
        """The support of the arm at a place."""
        return self.low_of(place), self.high_of(place)

    @property
    def reads_rows(self):
        """Whether rounds are rows of a population in random order."""
        return self.order is not None

    def tell(self, block):
        """Take rounds of rewards, a float64 array of shape (k, n_open); return how many were used."""
        return guarded(&self.guard, self, self._tell, (block,))

    def _tell(self, cnp.ndarray table not None):
        cdef Py_ssize_t used = 0, n, i, wide = self.n_arms if self.missing == SKIPPED else self.n_open
        cdef cnp.ndarray there, last
        cdef int64_t first = self.position(), n_gone = 0
        cdef fr_view view
        if self.status == BY_MAX_PULLS:
            self.status = RUNNING
        if table.ndim != 2 or table.shape[1] != wide or cnp.PyArray_TYPE(table) != cnp.NPY_FLOAT64 or \
                not cnp.PyArray_ISBEHAVED_RO(table):
            raise ValueError(f"rewards have shape {np.shape(table)}; (k, {wide}) is needed, a column per arm "
                             f"{'' if self.missing == SKIPPED else 'still in the race'}")
        saved = self._state()
        if self.missing == SKIPPED:
            table = (<object>table)[:max(self.horizon - first, 0)]
            n_gone = table.shape[0]
            gone = np.isnan(table)
            there = np.flatnonzero(~gone.any(axis=1))
            last = np.ascontiguousarray((<object>table)[-1:])
            table = (<object>table)[there]
        elif self.missing == WORST:
            gone = np.isnan(table)
            self.gaps = [(t, self.arm[i]) for t, i in np.argwhere(gone).tolist()]
            table = np.where(gone, [self.low_of(i) for i in range(self.n_open)], table)
        n = table.shape[0]
        view.data = <const char *>cnp.PyArray_DATA(table)
        view.row_stride, view.arm_stride = table.strides[0], table.strides[1]
        view.single = False
        self._begin()
        try:
            for i in range(self.n_open):
                self.column[i] = self.arm[i] if self.missing == SKIPPED else i
            view.column = self.column
            with nogil:
                self._rounds(&view, n, &used)
            if used < n and self.status == RUNNING:
                columns = self._column[:self.n_open]
                at = self.rounds if self.missing != SKIPPED else first + there[used]
                raise self._refuse(table[used:used + 1][:, columns], at)
        except BaseException:
            self._finish()
            self._take_state(saved)
            raise
        self._end_if_all_read()
        self._finish()
        if self.missing == WORST:
            self._count_gaps(used)
        elif self.missing == SKIPPED:       # up to the round that ended the race
            if self.status != RUNNING:
                n_gone = there[used - 1] + 1
            self.n_dropped += n_gone - used
            self.n_missing += int(gone[:n_gone].sum())
            self._end_at_horizon()
            try:
                if n_gone:
                    self._listen(n_gone, there[n - 1] + 1 if n else 0, <double *>cnp.PyArray_DATA(last), 1)
            except BaseException:
                self._take_state(saved)
                raise
            return n_gone
        return used

    def _end_if_all_read(self):
        """Compare the means over a population of which every row has been read."""
        if self.order is not None and self.rounds == self.order.n_rows and self.rounds > 0 \
                and self.status in (RUNNING, BY_HORIZON):
            with nogil:
                self._end_exactly()

    cdef int _listen(self, int64_t count, int64_t heard, const double *last, Py_ssize_t stride) except -1:
        """Refuse arms that give no rewards any more, as all rounds would be dropped for ever.

        Of `count` rounds, one or more, the one before `heard` was the last that was not dropped; `last` are the rewards
        of the last of them, by arm.
        """
        if self.status != RUNNING:
            return 0
        self._count_silent(count, heard)
        warn = self.rounds == 0 and worth_a_warning(self.silent - count, self.silent)
        end = silent_for_good(self.silent, self.rounds, self.position())
        arms = [i for i in range(self.n_arms) if last[i * stride] != last[i * stride]] if warn or end else []
        if warn:
            self._warn_of_silence(arms)
        if end and arms:
            of = f"{'that' if len(arms) == 1 else 'those'} of {arms_in_words(arms)}"
            raise arm_error(self, arms[0], f"a reward was missing in each of the last {self.silent} rounds, {of} in "
                                           f"the last one: missing is 'drop', and no more becomes known; leave out "
                                           f"arms that give none, take missing='worst', or, if whole rounds are rare, "
                                           f"ask for each until one comes")
        return 0

    def _warn_of_silence(self, arms):
        warnings.warn(
            SILENT_ROUNDS.format(self.silent, arms_in_words(arms)), RuntimeWarning,
            stacklevel=_checks.users_level(),
        )

    cdef void _count_silent(self, int64_t count, int64_t heard) noexcept:
        """Of `count` more rounds, the one before `heard` was the last that was not dropped."""
        self.silent = count - heard + (0 if heard else self.silent)

    def _end_at_horizon(self):
        if self.status == RUNNING and self.position() >= self.horizon:
            self.status = BY_HORIZON

    def run(self, Source source not None, batch, rng=None, max_pulls=None, whole=True):
        """Use the rows of a source until the race is over or the rows are: round t is row t - 1, or, with `rng`, the
        row at position t - 1 of a random order of all rows, which later calls go on with.

        A table in memory is read where it lies; other sources are asked for `batch` rounds at a time. No round is begun
        that would take the rewards used in all beyond `max_pulls`: the budget, or a part of the `whole`.
        """
        guard_check_built(&source.guard, source)
        guarded(&self.guard, self, self._run, (source, batch, rng, max_pulls, whole))

    def _run(self, Source source, batch, rng, max_pulls, bint whole):
        cdef ArraySource table
        cdef fr_view view
        cdef Py_ssize_t used = 0, most = batch, count, n, i, kept, taken
        cdef int64_t last = min(source.n_rows, self.horizon)
        if most < 1:
            raise ValueError(f"batch is {batch}; at least one round is needed")
        cdef int64_t *rows = NULL
        cdef double *room = NULL
        cdef double *given = NULL           # as the source gave it, where missing rewards are settled
        cdef double **columns = NULL
        cdef Py_ssize_t *everyone = NULL
        if source.n_arms != self.n_arms:
            raise ValueError(f"the source has {source.n_arms} arms; this race was set up for {self.n_arms}")
        if self.status == BY_MAX_PULLS:
            self.status = RUNNING
        if self.status != RUNNING:
            return
        self.limit = INT64_MAX if max_pulls is None else max_pulls
        self.gaps, self.rest = [], None
        self._begin()
        try:
            self._set_order(source.n_rows, rng, self.rounds > 0)
            if self.order is None and type(source) is ArraySource and self.missing == REFUSED:
                table = source
                for i in range(self.n_open):
                    self.column[i] = self.arm[i]
                view.data = table.data + self.rounds * table.row_stride
                view.row_stride, view.arm_stride = table.row_stride, table.arm_stride
                view.single = table.single
                view.column = self.column
                if self.rounds < last:
                    count = <Py_ssize_t>(last - self.rounds)
                    with nogil:
                        self._rounds(&view, count, &used)
                    if used < count and self.status == RUNNING:
                        bad = source.read([self.rounds], self._arm[:self.n_open])
                        raise self._refuse(bad, self.rounds)
                return
            room = <double *>malloc(self.n_arms * most * sizeof(double))
            columns = <double **>malloc(self.n_arms * sizeof(double *))
            rows = <int64_t *>malloc(most * sizeof(int64_t))
            everyone = <Py_ssize_t *>malloc(self.n_arms * sizeof(Py_ssize_t))
            if self.missing != REFUSED:
                given = <double *>malloc(self.n_arms * most * sizeof(double))
            if room == NULL or columns == NULL or rows == NULL or everyone == NULL or (
                    given == NULL and self.missing != REFUSED):
                raise MemoryError()
            for i in range(self.n_arms):
                everyone[i] = i
            view.row_stride, view.arm_stride = sizeof(double), most * sizeof(double)
            view.single = False
            view.data = <const char *>room
            view.column = self.column
            while self.status == RUNNING and self.position() < last:
                n = self.n_arms if self.missing == SKIPPED else self.n_open
                count = <Py_ssize_t>min(<int64_t>most, last - self.position(), self._affordable())
                if count == 0:
                    self.status = BY_MAX_PULLS
                    break
                for i in range(n):
                    columns[i] = room + i * most
                for i in range(self.n_open):
                    self.column[i] = self.arm[i] if self.missing == SKIPPED else i
                with nogil:
                    if self.order is None:
                        source.fill_range(self.position(), count, everyone if self.missing == SKIPPED else self.arm, n,
                                          columns)
                    else:
                        self.order.settle(self.rounds + count)
                        for i in range(count):
                            rows[i] = row_in(self.order, self.rounds + i)
                        source.fill(rows, count, self.arm, n, columns)
                    if self.missing != REFUSED:
                        memcpy(given, room, n * most * sizeof(double))
                    kept = count if self.missing == REFUSED else self._settle_missing(columns, n, count, rows)
                    self._rounds(&view, kept, &used)
                if used < kept and self.status == RUNNING:
                    if self.missing == WORST:
                        self._count_gaps(used)
                    bad = np.array([[columns[self.column[i]][used] for i in range(self.n_open)]])
                    at = self.rounds
                    if self.missing == SKIPPED:
                        at = self.position() + rows[used] - used
                        self.n_dropped += rows[used] - used
                        self._count_gaps(rows[used])
                        self._count_silent(rows[used], rows[used - 1] + 1 if used else 0)
                    if type(source) is not ArraySource:
                        self.rest = self._rest(room if given == NULL else given, most, n, at,
                                               used if self.missing != SKIPPED else rows[used], count)
                    raise self._refuse(bad, at, self.order)
                if self.missing == SKIPPED:
                    taken = count if self.status == RUNNING else rows[used - 1] + 1
                    self.n_dropped += taken - used
                    self._count_gaps(taken)
                    self._listen(count, rows[kept - 1] + 1 if kept else 0, room + min(kept, count - 1), most)
                elif self.missing == WORST and self.gaps:
                    self._count_gaps(used)
            if self.missing == SKIPPED:
                self._end_at_horizon()
            self._end_if_all_read()
        finally:
            self.limit = INT64_MAX
            if self.status == BY_MAX_PULLS and not whole:
                self.status = RUNNING
            free(rows)
            free(given)
            free(room)
            free(columns)
            free(everyone)
            self._finish()

    cdef _rest(self, const double *given, Py_ssize_t most, Py_ssize_t n, int64_t first, Py_ssize_t start,
               Py_ssize_t count):
        """What is left of a block of `count` rounds from the one at `start` on, which is round `first` of the race.

        Rounds, arms, and rewards, those of the first arm first: all that the race still asks for.
        """
        cdef Py_ssize_t i, t
        column = range(n) if self.missing == SKIPPED else [self.column[i] for i in range(self.n_open)]
        arms = np.arange(n) if self.missing == SKIPPED else self._arm[:self.n_open].copy()
        rewards = [given[<Py_ssize_t>i * most + t] for i in column for t in range(start, count)]
        return np.arange(first, first + count - start), arms, np.array(rewards)

    def refused(self):
        """Rounds, arms and rewards of the rest of a block that the last run refused, those of the first arm first.

        None in a second call, where no bad reward cut the run short, and of a table, where nothing was paid for.
        """
        rest, self.rest = self.rest, None
        return rest

    def rows_of(self, rounds):
        """Rows of a source that these rounds are."""
        if self.order is None:
            return rounds
        self.order.settle(int(np.max(rounds)) + 1)
        return np.array([row_in(self.order, k) for k in rounds.tolist()], np.int64)

    def go_on_with(self, n_rows, rng):
        """Refuse another population than that whose rewards are held."""
        guarded(&self.guard, self, self._set_order, (n_rows, rng, True))

    cdef Py_ssize_t _settle_missing(self, double **columns, Py_ssize_t n, Py_ssize_t count,
                                    int64_t *which) except -1 nogil:
        """Drop rounds of which a reward is missing: how many are left, and `which`; or let missing rewards be the worst
        ones. Their rounds in the block and arms are added to `gaps`."""
        cdef Py_ssize_t t, i, kept = 0
        cdef bint gone
        cdef double x
        for t in range(count):
            gone = False
            for i in range(n):
                x = columns[i][t]
                if x != x:
                    gone = True
                    if self.missing == WORST:
                        x = self.low_of(i)
                    with gil:
                        self.gaps.append((t, i if self.missing == SKIPPED else self.arm[i]))
                columns[i][kept] = x
            if self.missing == WORST or not gone:
                which[kept] = t
                kept += 1
        return kept

    def _count_gaps(self, used):
        """Missing rewards among those of the `used` rounds that were taken last."""
        if self.missing == SKIPPED:
            self.n_missing += sum(t < used for t, _ in self.gaps)
            self.gaps = []
            return
        end = {self._arm[i]: self._fields[4, i] for i in range(self.n_open, self.n_arms)}
        self.n_missing += sum(t < used and self.rounds - used + t < end.get(arm, INFINITY) for t, arm in self.gaps)
        self.gaps = []

    def _set_order(self, n_rows, rng, begun):
        """Read rows as they are given, or, with a generator, in a random order of all `n_rows` of a population."""
        if not begun:
            if rng is None:
                self.order = None
            elif self.order is None or self.order.n_rows != n_rows:
                self.order = RowOrder(n_rows, rng)
            self._read_from()
        elif rng is None and self.order is not None:
            raise ValueError(f"this race has read {self.rounds} rows of a table in random order; it cannot go on with "
                             f"rows in the order given, some of which it has seen")
        elif rng is not None and (self.order is None or self.order.n_rows != n_rows):
            seen = "rounds that were given" if self.order is None else f"rows of a table of {self.order.n_rows} rows"
            raise ValueError(f"this race has used {self.rounds} {seen}; a table of {n_rows} rows in random order must "
                             f"be read from its start: make a new race, or say order='given'")

    def _read_from(self):
        """Let the bets know whether rounds are rows of a population, read without replacement."""
        n_rows = None if self.order is None else self.order.n_rows
        self.rule.n_rows = INFINITY if n_rows is None else <double>n_rows
        if self.duels is not None:
            self.duels.read_from(n_rows)

    def restore_order(self, saved):
        """Take the order that `saved` gave."""
        order = None if saved is None else _row_order.restored(saved)
        guard_check(&self.guard, self)
        self.order = order
        self._read_from()
        if self.order is not None and self.rounds > self.order.drawn:
            raise DamagedError("the saved race is damaged: it has used more rows than its order has")

    # Answers

    def answer(self):
        """What is known so far, by arm, under the names of `StreamRaceResult`."""
        return guarded(&self.guard, self, self._answer, ())

    def _answer(self):
        cdef Py_ssize_t i, k, n = self.n_open
        cdef double t = <double>self.rounds
        cdef cnp.ndarray table = np.full((4, self.n_arms), np.nan)
        cdef double *row[4]
        cdef double[::1] lower = np.empty(max(n, 1)), upper = np.empty(max(n, 1))
        for i in range(4):
            row[i] = <double *>cnp.PyArray_DATA(table) + i * self.n_arms
        if n and t > 0.0 and not self.intersecting:
            self._brackets(n, t, &lower[0], &upper[0])
        for i in range(self.n_arms):
            if i >= n:
                for k in range(4):
                    row[k][i] = self.field[k][i]
                continue
            if t > 0.0:
                row[0][i] = self.mean_of(i)
                row[1][i] = self.m2_of(i)
            if self.intersecting:
                row[2][i], row[3][i] = self.bets.lower[i], self.bets.upper[i]
            elif t > 0.0:
                row[2][i], row[3][i] = lower[i], upper[i]
            elif self.bound == ASYMPTOTIC:
                row[2][i], row[3][i] = -INFINITY, INFINITY
            else:
                row[2][i], row[3][i] = self.support(i)
            if self.status == EXACT:
                row[2][i] = row[3][i] = row[0][i]
        used = np.full(self.n_arms, self.rounds, dtype=np.int64)
        used[n:] = self._fields[4, n:]
        places = np.argsort(self._arm)
        table = table[:, places]
        verdict = self._verdict[places]
        with np.errstate(invalid="ignore", divide="ignore"):
            std = np.sqrt(np.maximum(table[1], 0.0) / used[places])
        centred = table[0]
        if self.bound == ASYMPTOTIC:
            k = np.nanargmax(centred) if self.rounds else 0
            centred = np.array([self.columns[i].origin - self.columns[k].origin + self.columns[i].moments.mean
                                for i in range(self.n_arms)])
        return dict({} if self.missing == REFUSED else dict(n_missing=self.n_missing, n_dropped=self.n_dropped),
                    mean=table[0], centred=centred, std=std, lower=table[2], upper=table[3], pulls=self.made(),
                    evidence=self._evidence(), chosen=np.flatnonzero(verdict == CHOSEN),
                    active=np.flatnonzero(verdict == OPEN), n_rounds=self.rounds, stopped_by=STOPPED_BY[self.status])

    def _evidence(self):
        """Log of the least evidence that the answer rests on; nan of a race without duels, and without an arm to
        beat it is infinite."""
        cdef Py_ssize_t i, n = self.n_open
        cdef double least = INFINITY
        if self.duels is None:
            return np.nan
        for i in range(n, self.n_arms):
            least = min(least, self.field[5][i])
        if 0 < self.n_wanted < n and self.status != EXACT:
            mean = self._compared(n)
            least = min(least, self._least(mean, np.empty(n), 0 if self.status != BY_EPSILON else 1))
        return least

    def _compared(self, Py_ssize_t n):
        """Means of the n open places, as they compare."""
        mean = np.zeros(n)
        if self.rounds and n:
            self._means(<double *>cnp.PyArray_DATA(mean))
        return mean

    def _least(self, cnp.ndarray mean, cnp.ndarray work, int kind):
        return self.duels.least(self.arm, <const double *>cnp.PyArray_DATA(mean), self.n_open, self.n_wanted, kind,
                                <double *>cnp.PyArray_DATA(work))

    def differences(self, leader, log_inv_delta):
        """Intervals of the means of all arms minus that of `leader`; None of a race without duels."""
        if self.duels is None:
            return None
        return guarded(&self.guard, self, self.duels.differences, (leader, log_inv_delta))

    def tails(self, leader):
        """Rounds and skewness of arms, then, if there are duels, of the differences that arms are judged by; nan where
        all are equal. None unless the race is asymptotic."""
        if self.bound != ASYMPTOTIC:
            return None
        return guarded(&self.guard, self, self._tails, (leader,))

    def _tails(self, leader):
        cdef Py_ssize_t i
        cdef const column_t *c
        rounds, skewness = np.zeros(self.n_arms, dtype=np.int64), np.full(self.n_arms, np.nan)
        for i in range(self.n_arms if self.bound == ASYMPTOTIC else 0):     # others have no columns
            c = &self.columns[i]
            rounds[i] = c.moments.n
            if c.moments.n > 0 and column_varies(c):
                skewness[i] = moments4_skewness(&c.moments)
        return [(rounds, skewness)] + ([] if self.duels is None else [self.duels.tails(leader)])

    cdef bint _good_columns(self, cnp.ndarray columns, cnp.ndarray arm, int64_t rounds):
        """Whether saved moments may be those of so many rounds of the open arms, and of no more of the others."""
        cdef const column_t *c = <const column_t *>cnp.PyArray_DATA(columns)
        cdef Py_ssize_t i
        for i in range(self.n_arms if self.bound == ASYMPTOTIC else 0):
            if not (0 <= c[i].moments.n <= rounds and fabs(c[i].origin + c[i].moments.mean) < INFINITY
                    and c[i].moments.m2 >= 0.0 and c[i].weight >= 0.0 and (i not in arm or c[i].moments.n == rounds)):
                return False
        return True

    def saved(self):
        """The state, and the order of the rows of a population or None, both of one moment."""
        guard_enter(&self.guard, self)
        try:
            return self._state(), None if self.order is None else self.order.get_state()
        finally:
            guard_leave(&self.guard)

    def _state(self):
        return dict(arguments=self.arguments, fields=self._fields.copy(), arm=self._arm.copy(),
                    verdict=self._verdict.copy(), low=self._low.copy(), high=self._high.copy(),
                    counts=(self.n_open, self.n_wanted, self.rounds, self.status),
                    **({} if self.missing == REFUSED else dict(n_missing=self.n_missing)),
                    **(dict(silent=self.silent, n_dropped=self.n_dropped) if self.missing == SKIPPED else {}),
                    **({} if self.duels is None else dict(duels=self.duels.state())),
                    **(dict(columns=self._columns.copy()) if self.bound == ASYMPTOTIC else {}))

    def _set_state(self, state):
        guarded(&self.guard, self, self._take_state, (state,))

    def _take_state(self, state):
        fields, arm, verdict = state["fields"], state["arm"], state["verdict"]
        low, high = state["low"], state["high"]
        n_open, n_wanted, rounds, status = state["counts"]
        n_missing = 0 if self.missing == REFUSED else state["n_missing"]
        n_dropped = state.get("n_dropped", n_missing) if self.missing == SKIPPED else 0     # once they were one number
        silent = state.get("silent", 0) if self.missing == SKIPPED else 0       # races saved before it was counted
        if not (fields.dtype == np.float64 and fields.shape == np.shape(self._fields) and arm.dtype == np.intp
                and np.array_equal(np.sort(arm), np.arange(self.n_arms)) and verdict.dtype == np.int8
                and verdict.shape == arm.shape == low.shape == high.shape and 0 <= n_open <= self.n_arms
                and np.isin(verdict, (OPEN, DROPPED, CHOSEN)).all() and 0 <= n_wanted <= self.n_best
                and (verdict[:n_open] == OPEN).all() and (verdict[n_open:] != OPEN).all()
                and 0 <= rounds <= self.horizon and isinstance(n_missing, int) and 0 <= n_missing < 1 << 62
                and isinstance(n_dropped, int) and isinstance(silent, int) and 0 <= silent <= n_dropped <= n_missing
                and 0 <= status < len(STOPPED_BY)
                and (status not in (RUNNING, BY_MAX_PULLS) or 0 < n_wanted < n_open)
                and np.array_equal(low, np.broadcast_to(self.arguments[6], (self.n_arms,))[arm])
                and np.array_equal(high, np.broadcast_to(self.arguments[7], (self.n_arms,))[arm])
                and not np.isnan(fields[:, :n_open]).any()):
            raise DamagedError("the saved race is damaged: its counts cannot be right")
        columns = np.array(state["columns"] if self.bound == ASYMPTOTIC else self._columns, order="C")
        if columns.dtype != np.uint8 or columns.shape != np.shape(self._columns) or not self._good_columns(
                columns, arm[:n_open], rounds):
            raise DamagedError("the saved race is damaged: its moments cannot be right")
        if self.duels is not None:
            self.duels.set_state(state["duels"])
        self._columns = columns
        self._fields = np.array(fields, order="C")
        self._arm = np.array(arm)
        self._verdict = np.array(verdict)
        self._low = np.array(low, dtype=np.float64)
        self._high = np.array(high, dtype=np.float64)
        self._point()
        if self.rule.lows != NULL:
            self.rule.lows = self.low
            self.rule.highs = self.high
        self.n_open, self.n_wanted, self.rounds, self.status = n_open, n_wanted, rounds, status
        self.n_missing, self.n_dropped, self.silent = n_missing, n_dropped, silent
