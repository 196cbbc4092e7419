# cython: cdivision=True
"""Races as functions that XLA calls: the loop is XLA's, the verdicts are ours.

Each is pure: what a race knows between two calls is a row of 32-bit words that the caller carries, so the functions can
stand in any compiled program, in loops, batches and threads. They hold no Python object and take no lock. Leading
dimensions are a batch; where a program runs a batch until its last race is over, decided ones stay as they are.
"""

from cpython.pycapsule cimport PyCapsule_New
from libc.math cimport INFINITY, NAN, fabs, isfinite, isnan, sqrt
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy, memset
cimport numpy as cnp

from fastrace._draws._keyed_order cimport keyed_order_at, keyed_order_init, keyed_order_t
from fastrace._draws._rng cimport gumbel, random_standard_exponential
from fastrace._draws._row_stream cimport row_stream_t
from fastrace._math._betting cimport bets_init
from fastrace._math._criteria cimport full_pass_pays, race_sits_out, rows_needed
from fastrace._math._simd cimport fr_sum
from fastrace._math._rule cimport (NORMAL, look_t, look_width, rule_look, rule_t, tally_clear, tally_decides,
                                   tally_extend, tally_needs, tally_t)
from fastrace.mcmc.doors.jax._xla_call cimport (XLA_ARRAY, XLA_F32, XLA_S64, key_seed, xla_array_t, xla_batch,
                                                xla_buffer_t, xla_frame_t, xla_last, xla_ready, xla_real, xla_refuse)

import numpy as np

cnp.import_array()

cdef enum:          # first word of every state
    PENDING = 0
    REJECTED = 1
    ACCEPTED = 2    # or, of many arms: one has won
    LOST = 3        # a full pass is cheaper

cdef enum:
    BLOCK = 512             # values digested at once
    MAKE = 1                # of plans; they are for this version only

WORDS_OF_A_TOTAL = 2

cdef struct plan_t:         # what all races of one kind share; the bounds of its looks follow
    uint32_t size
    uint32_t make
    int32_t n_arms          # 0: one sum against a threshold
    int32_t delayed
    double advantage
    double low
    double high
    rule_t rule

cdef struct head_t:         # the beginning of every state
    int32_t verdict
    int32_t looks
    int32_t n_read
    int32_t more            # one sum: whether the race was left out; arms: who has won
    keyed_order_t order

cdef struct race_t:
    head_t head
    double threshold
    tally_t tally

cdef int[2] version         # of XLA's interface: the one whose XLA asks


def plan(kind, n_rows, looks, log_inv_delta, quantile, *, n_arms, delayed, guard, advantage, low, high):
    """All that is fixed about a race, as an array of int64 for the attribute of its functions."""
    cdef const int64_t[::1] n = np.ascontiguousarray(looks, dtype=np.int64)
    cdef const double[::1] share = np.ascontiguousarray(log_inv_delta, dtype=np.float64)
    cdef const double[::1] factor = np.ascontiguousarray(quantile, dtype=np.float64)
    cdef cnp.ndarray out = np.zeros((sizeof(plan_t) + n.shape[0] * sizeof(look_t)) // 8, dtype=np.int64)
    cdef plan_t *p = <plan_t *>cnp.PyArray_DATA(out)
    cdef look_t *look = <look_t *>(p + 1)
    cdef Py_ssize_t k
    if not n.shape[0] == share.shape[0] == factor.shape[0] or n.shape[0] == 0 or n[n.shape[0] - 1] != n_rows:
        raise ValueError("one share of delta and one quantile per look are needed, and a last look at all rows")
    p.size = sizeof(plan_t)
    p.make = MAKE
    p.n_arms = n_arms
    p.delayed = delayed
    p.advantage = advantage
    p.low = low
    p.high = high
    p.rule.bound = kind
    p.rule.guard = guard
    p.rule.n_rows = n_rows
    p.rule.log_inv_delta = share[0]
    p.rule.n_looks = n.shape[0]
    bets_init(&p.rule.bets, n_rows)
    for k in range(n.shape[0]):
        rule_look(&p.rule, &look[k], n[k], share[k], factor[k])
    return out


def words(n_arms):
    """32-bit words of the state of a race between so many arms; 0 arms: of one sum against a threshold."""
    cdef Py_ssize_t k = n_arms
    if k == 0:
        return sizeof(race_t) // 4
    return (sizeof(head_t) + (3 * k + k * k) * sizeof(double)) // 4


cdef bint ready(const xla_frame_t *frame, const char *arguments, plan_t *plan, bint arms, void **answer) noexcept nogil:
    """As `xla_ready` of a function with one result, a state, and a plan, which it takes up."""
    cdef xla_array_t *given
    if not xla_ready(frame, version, arguments, b"u", 1, answer):
        return False
    given = <xla_array_t *>frame.attributes.at[0]
    if frame.attributes.kinds[0] != XLA_ARRAY or given.dtype != XLA_S64 or given.size * 8 < sizeof(plan_t):
        answer[0] = xla_refuse(frame, b"a function of fastrace was called without its plan")
        return False
    memcpy(plan, given.data, sizeof(plan_t))
    if plan.size != sizeof(plan_t) or plan.make != MAKE or (plan.n_arms > 0) != arms or (
            given.size * 8 != sizeof(plan_t) + plan.rule.n_looks * sizeof(look_t)):
        answer[0] = xla_refuse(frame, b"the plan of this race was made by another version of fastrace: trace the "
                               b"function anew")
        return False
    plan.rule.look = <look_t *>(<char *>given.data + sizeof(plan_t))
    return True


cdef inline void carry(xla_buffer_t *out, const xla_buffer_t *given) noexcept nogil:
    """States that go out begin as those that came in; a batch of none may have no memory."""
    cdef int64_t n = xla_batch(out, 0)
    if n > 0:
        memcpy(out.data, given.data, n * 4)


cdef inline void clear(xla_buffer_t *out) noexcept nogil:
    """States that go out begin with zeros."""
    cdef int64_t n = xla_batch(out, 0)
    if n > 0:
        memset(out.data, 0, n * 4)


cdef void *refuse_value(const xla_frame_t *frame, int64_t row, double value, bint difference) noexcept nogil:
    cdef char text[320]
    if difference:
        snprintf(text, sizeof(text), b"the log-likelihood of row %lld changes by %g from the chain's state to the "
                 b"proposal; it must be finite at the state, and at the proposal finite, or -inf where the parameters "
                 b"are impossible", <long long>row, value)
    else:
        snprintf(text, sizeof(text), b"the log-likelihood of row %lld is %g; finite numbers are needed, or -inf where "
                 b"the parameters are impossible", <long long>row, value)
    return xla_refuse(frame, text)


cdef double slack_of(const xla_buffer_t *given, const plan_t *p) noexcept nogil:
    """How far from the support rounding can bring numbers of this precision."""
    return (1e-6 if given.dtype == XLA_F32 else 1e-14) * (fabs(p.low) + fabs(p.high))


cdef void *refuse_beyond(const xla_frame_t *frame, const plan_t *p, int64_t row, double value) noexcept nogil:
    cdef char text[320]
    snprintf(text, sizeof(text), b"row %lld gives the race %.9g, which is outside its support (%.9g, %.9g): the bound "
             b"does not hold; give a support that contains every %s", <long long>row, value, p.low, p.high,
             b"term" if p.n_arms > 0 else b"raced difference of terms")
    return xla_refuse(frame, text)


# One sum against a threshold.

cdef void *race_open(xla_frame_t *frame) noexcept nogil:
    """(key, log ratio without the rows, steps lost in a row, whether both states are near) -> state.

    Acceptance is delayed only between states that are near, as `fastrace.mcmc.kernels._proposal.Proposal.make` says.
    """
    cdef row_stream_t stream
    cdef plan_t p
    cdef race_t *race
    cdef void *answer
    cdef xla_buffer_t *key
    cdef xla_buffer_t *ratios
    cdef xla_buffer_t *losses
    cdef xla_buffer_t *near
    cdef xla_buffer_t *out
    cdef double ratio, level, first
    cdef bint delayed
    cdef int64_t b, width
    if not ready(frame, b"urii", &p, False, &answer):
        return answer
    key, ratios, losses = frame.arguments.at[0], frame.arguments.at[1], frame.arguments.at[2]
    near, out = frame.arguments.at[3], frame.results.at[0]
    width = xla_last(key, 1)
    clear(out)
    for b in range(xla_batch(key, 1)):
        race = <race_t *>(<char *>out.data + b * sizeof(race_t))
        key_seed(&stream, <const uint32_t *>key.data + b * width, width, 2)
        ratio = xla_real(ratios, b)
        if isnan(ratio):
            return xla_refuse(frame, b"the log prior or the proposal's log ratio is nan; a number is needed, or -inf "
                              b"where the parameters are impossible")
        race.head.verdict = REJECTED
        first = -random_standard_exponential(&stream.bits)
        race.threshold = first - ratio
        delayed = p.delayed and (<const int32_t *>near.data)[b]
        if ratio == -INFINITY or (delayed and not first < ratio):
            continue
        if delayed:
            race.threshold = -random_standard_exponential(&stream.bits)
        level = race.threshold / <double>p.rule.n_rows
        if level < p.low or level >= p.high:
            race.head.verdict = ACCEPTED if level < p.low else REJECTED
            continue
        race.head.verdict = PENDING
        if race_sits_out((<const int32_t *>losses.data)[b]):
            race.head.verdict = LOST
            race.head.more = 1
        keyed_order_init(&race.head.order, p.rule.n_rows, &stream.bits)
        race.tally.low = p.low
        race.tally.high = p.high
        tally_clear(&race.tally, &p.rule)
    return NULL


cdef void *race_rows(xla_frame_t *frame) noexcept nogil:
    """(state of either kind) -> the rows that the race reads next; 0 past its end."""
    cdef head_t *head
    cdef void *answer
    cdef xla_buffer_t *states
    cdef xla_buffer_t *out
    cdef int32_t *row
    cdef int64_t b, i, n, width, left
    if not xla_ready(frame, version, b"u", b"i", 0, &answer):
        return answer
    states, out = frame.arguments.at[0], frame.results.at[0]
    width, n = xla_last(states, 1), xla_last(out, 1)
    row = <int32_t *>out.data
    for b in range(xla_batch(states, 1)):
        head = <head_t *>(<uint32_t *>states.data + b * width)
        left = head.order.n - head.n_read if head.verdict == PENDING else 0
        for i in range(n):
            row[b * n + i] = <int32_t>keyed_order_at(&head.order, head.n_read + i) if i < left else 0
    return NULL


cdef void *race_look(xla_frame_t *frame) noexcept nogil:
    """(state, differences at the rows it asked for) -> state."""
    cdef plan_t p
    cdef race_t *race
    cdef void *answer
    cdef xla_buffer_t *given
    cdef xla_buffer_t *out
    cdef double block[BLOCK]
    cdef double level, slack, half_width = NAN, value
    cdef int64_t b, n, i, start, count, todo
    cdef bint constant = False, skewed = False
    if not ready(frame, b"ur", &p, False, &answer):
        return answer
    given, out = frame.arguments.at[1], frame.results.at[0]
    carry(out, frame.arguments.at[0])
    n, slack = xla_last(given, 1), slack_of(given, &p)
    for b in range(xla_batch(given, 1)):
        race = <race_t *>(<char *>out.data + b * sizeof(race_t))
        if race.head.verdict != PENDING:
            continue
        level = race.threshold / <double>p.rule.n_rows
        todo = min(n, p.rule.n_rows - race.head.n_read)
        start = 0
        while start < todo and race.head.verdict == PENDING:
            count = min(<int64_t>BLOCK, todo - start)
            for i in range(count):
                value = xla_real(given, b * n + start + i)
                block[i] = value
                if not isfinite(value):
                    if value != -INFINITY:
                        return refuse_value(frame, keyed_order_at(&race.head.order, race.head.n_read + start + i),
                                            value, True)
                    race.head.verdict = REJECTED
                elif value < p.low - slack or value > p.high + slack:
                    return refuse_beyond(frame, &p, keyed_order_at(&race.head.order, race.head.n_read + start + i),
                                         value)
            if race.head.verdict == PENDING:
                tally_extend(&race.tally, &p.rule, block, <Py_ssize_t>count, level)
            start += count
        race.head.n_read += <int32_t>todo
        if race.head.verdict != PENDING or race.head.n_read < p.rule.look[race.head.looks].n:
            continue
        race.head.looks += 1
        if race.head.n_read == p.rule.n_rows or tally_decides(&race.tally, &p.rule, race.head.looks - 1, level,
                                                              &half_width, &constant, &skewed):
            race.head.verdict = ACCEPTED if race.tally.seen.mean > level else REJECTED
        elif p.advantage > 1.0 and full_pass_pays(
                tally_needs(&race.tally, &p.rule, race.head.looks - 1, level), race.head.n_read,
                p.rule.look[race.head.looks].n, p.rule.n_rows, p.rule.n_rows, p.advantage):
            race.head.verdict = LOST
    return NULL


cdef void *total_add(xla_frame_t *frame) noexcept nogil:
    """(totals, terms, (first row given, first row wanted), on) -> totals.

    Totals are doubles, as pairs of words, so that programs without float64 can carry them. Terms have one row of values
    per arm, shape (..., arms, rows); `on` is 0 where nothing is to be added, 1 where -inf is an error, else 2.
    """
    cdef void *answer
    cdef xla_buffer_t *given
    cdef xla_buffer_t *spans
    cdef xla_buffer_t *ons
    cdef xla_buffer_t *out
    cdef double block[BLOCK]
    cdef double value
    cdef double *total
    cdef int64_t b, n, k, i, start, count, skip, n_arms
    cdef int32_t on
    if not xla_ready(frame, version, b"urii", b"u", 0, &answer):
        return answer
    given, spans, ons, out = frame.arguments.at[1], frame.arguments.at[2], frame.arguments.at[3], frame.results.at[0]
    carry(out, frame.arguments.at[0])
    n, n_arms = xla_last(given, 1), xla_last(given, 2)
    total = <double *>out.data
    for b in range(xla_batch(given, 2)):
        on = (<const int32_t *>ons.data)[b]
        if on == 0:
            continue
        skip = (<const int32_t *>spans.data)[2 * b + 1] - (<const int32_t *>spans.data)[2 * b]
        for k in range(n_arms):
            start = skip
            while start < n:
                count = min(<int64_t>BLOCK, n - start)
                for i in range(count):
                    value = xla_real(given, (b * n_arms + k) * n + start + i)
                    block[i] = value
                    if not isfinite(value) and (value != -INFINITY or on == 1):
                        return refuse_value(
                            frame, (<const int32_t *>spans.data)[2 * b] + start + i, value, False)
                total[b * n_arms + k] += fr_sum(block, <Py_ssize_t>count)
                start += count
    return NULL


cdef void *race_close(xla_frame_t *frame) noexcept nogil:
    """(state, total now, total proposed, what the surrogate has of their difference) -> state: the exact verdict.

    Only of a race that is lost; the others stay as they are.
    """
    cdef race_t *race
    cdef void *answer
    cdef xla_buffer_t *out
    cdef double rest
    cdef int64_t b
    if not xla_ready(frame, version, b"uuur", b"u", 0, &answer):
        return answer
    out = frame.results.at[0]
    carry(out, frame.arguments.at[0])
    for b in range(xla_batch(out, 1)):
        race = <race_t *>(<char *>out.data + b * sizeof(race_t))
        if race.head.verdict == LOST:
            rest = ((<const double *>frame.arguments.at[2].data)[b] - (<const double *>frame.arguments.at[1].data)[b]
                    - xla_real(frame.arguments.at[3], b))
            race.head.looks += 1
            race.head.verdict = ACCEPTED if rest > race.threshold else REJECTED
    return NULL


# Many arms, perturbed by Gumbel noise: offsets, means, who is out, and sums of products of deviations.

cdef struct arms_t:         # where the parts of a state are
    int64_t k
    double *offset
    double *mean            # each row less its first arm that is not out: differences of arms are what counts
    double *out             # 0, 1 if it was beaten, 2 if a row is impossible
    double *product         # of deviations, k by k


cdef inline arms_t arms_of(head_t *head, int64_t k) noexcept nogil:
    cdef arms_t arms
    arms.k = k
    arms.offset = <double *>(head + 1)
    arms.mean = arms.offset + k
    arms.out = arms.mean + k
    arms.product = arms.out + k
    return arms


cdef void *arms_open(xla_frame_t *frame) noexcept nogil:
    """(key, log prior of each arm) -> state."""
    cdef row_stream_t stream
    cdef plan_t p
    cdef head_t *head
    cdef arms_t arms
    cdef void *answer
    cdef xla_buffer_t *key
    cdef xla_buffer_t *priors
    cdef xla_buffer_t *out
    cdef double noise
    cdef int64_t b, j, width, k, size, possible
    if not ready(frame, b"ur", &p, True, &answer):
        return answer
    key, priors, out = frame.arguments.at[0], frame.arguments.at[1], frame.results.at[0]
    if xla_last(priors, 1) != p.n_arms:
        return xla_refuse(frame, b"a race of arms opens with a log prior of each arm")
    width, k, size = xla_last(key, 1), p.n_arms, xla_last(out, 1)
    clear(out)
    for b in range(xla_batch(key, 1)):
        head = <head_t *>(<uint32_t *>out.data + b * size)
        arms = arms_of(head, k)
        key_seed(&stream, <const uint32_t *>key.data + b * width, width, 2)
        possible = 0
        for j in range(k):
            noise = gumbel(&stream.bits)
            arms.offset[j] = xla_real(priors, b * k + j)
            if isnan(arms.offset[j]) or arms.offset[j] == INFINITY:
                return xla_refuse(frame, b"a log prior is nan or +inf; numbers are needed, -inf where a state is ruled "
                                  b"out")
            if arms.offset[j] == -INFINITY:
                arms.out[j] = 1.0
                continue
            arms.offset[j] += noise
            head.more = <int32_t>j
            possible += 1
        if possible == 0:
            return xla_refuse(frame, b"every state of a variable is ruled out by its log prior; nothing can be drawn")
        head.verdict = PENDING if possible > 1 and p.rule.n_rows > 0 else ACCEPTED
        keyed_order_init(&head.order, p.rule.n_rows, &stream.bits)
    return NULL


cdef double std_between(const arms_t *arms, int64_t i, int64_t j, int64_t n, bint *known) noexcept nogil:
    """Standard deviation of the difference of two arms; not known where rounding is all there is."""
    cdef const double *product = arms.product
    cdef double both = product[i * arms.k + i] + product[j * arms.k + j], rest = both - 2.0 * product[i * arms.k + j]
    known[0] = rest > 1e-13 * both
    return sqrt(rest / <double>n) if rest > 0.0 else 0.0


cdef int64_t leader_of(const arms_t *arms, double n_rows) noexcept nogil:
    cdef int64_t j, best = -1
    for j in range(arms.k):
        if arms.out[j] == 0.0 and (best < 0 or arms.mean[j] + arms.offset[j] / n_rows
                                   > arms.mean[best] + arms.offset[best] / n_rows):
            best = j
    return best


cdef void *take_rows(const xla_frame_t *frame, const plan_t *p, const head_t *head, const arms_t *arms,
                     const xla_buffer_t *given, int64_t first, int64_t count) noexcept nogil:
    """Welford's steps of `count` rows of log-factors, the first at `first` of those given; NULL, or an error."""
    cdef double value, base, seen, slack = slack_of(given, p)
    cdef double *mean = arms.mean
    cdef double *out = arms.out
    cdef int64_t i, j, m, k = arms.k
    for i in range(count):
        base = NAN
        for j in range(k):
            if out[j] != 0.0:
                continue
            value = xla_real(given, (first + i) * k + j)
            if isnan(value) or value == INFINITY:
                return refuse_value(frame, keyed_order_at(&head.order, head.n_read + i), value, False)
            if value == -INFINITY:
                out[j] = 2.0
                continue
            if value < p.low - slack or value > p.high + slack:
                return refuse_beyond(frame, p, keyed_order_at(&head.order, head.n_read + i), value)
            if isnan(base):
                base = value
        seen = <double>(head.n_read + i)
        for j in range(k):
            if out[j] == 0.0:
                # Of the pair (j, m) the earlier deviation times the later one.
                value = xla_real(given, (first + i) * k + j) - base - mean[j]
                for m in range(j + 1):
                    if out[m] == 0.0:
                        arms.product[j * k + m] += value * (xla_real(given, (first + i) * k + m) - base - mean[m]) * (
                            seen / (seen + 1.0))
        for j in range(k):
            if out[j] == 0.0:
                mean[j] += (xla_real(given, (first + i) * k + j) - base - mean[j]) / (seen + 1.0)
    for j in range(k):
        for m in range(j):
            arms.product[m * k + j] = arms.product[j * k + m]
    return NULL


cdef void judge_arms(const plan_t *p, head_t *head, const arms_t *arms, int64_t best) noexcept nogil:
    """A look: drop the arms that the leader beats, and see whether to go on."""
    cdef double gap, width, needed = 0.0
    cdef int64_t j, kept = 0
    cdef bint known = False
    for j in range(arms.k):
        if j == best or arms.out[j] != 0.0:
            continue
        gap = arms.mean[best] - arms.mean[j] + (arms.offset[best] - arms.offset[j]) / <double>p.rule.n_rows
        width = std_between(arms, best, j, head.n_read, &known)
        width = look_width(&p.rule.look[head.looks - 1], width, 2.0 * (p.high - p.low))
        if (p.rule.bound == NORMAL and not known) or not gap > width:
            kept += 1
            needed = max(needed, rows_needed(gap, width if known else INFINITY, head.n_read, p.rule.n_rows))
        else:
            arms.out[j] = 1.0
    if kept == 0:
        head.verdict = ACCEPTED
    elif p.advantage > 1.0 and full_pass_pays(needed, head.n_read, p.rule.look[head.looks].n, p.rule.n_rows,
                                              p.rule.n_rows, p.advantage):
        head.verdict = LOST


cdef void *arms_look(xla_frame_t *frame) noexcept nogil:
    """(state, log-factors at the rows it asked for, shape (..., rows, arms)) -> state."""
    cdef plan_t p
    cdef head_t *head
    cdef arms_t arms
    cdef void *answer
    cdef xla_buffer_t *given
    cdef xla_buffer_t *out
    cdef int64_t b, n, size, todo, best
    if not ready(frame, b"ur", &p, True, &answer):
        return answer
    given, out = frame.arguments.at[1], frame.results.at[0]
    if xla_last(given, 1) != p.n_arms:
        return xla_refuse(frame, b"a look takes log-factors of each arm")
    carry(out, frame.arguments.at[0])
    n, size = xla_last(given, 2), xla_last(out, 1)
    for b in range(xla_batch(given, 2)):
        head = <head_t *>(<uint32_t *>out.data + b * size)
        if head.verdict != PENDING:
            continue
        arms = arms_of(head, p.n_arms)
        todo = min(n, p.rule.n_rows - head.n_read)
        answer = take_rows(frame, &p, head, &arms, given, b * n, todo)
        if answer != NULL:
            return answer
        head.n_read += <int32_t>todo
        best = leader_of(&arms, <double>p.rule.n_rows)
        if best < 0:            # of those left; one that was dropped may be possible
            head.verdict = LOST
            continue
        head.more = <int32_t>best
        if head.n_read < p.rule.look[head.looks].n:
            continue
        head.looks += 1
        if head.n_read == p.rule.n_rows:
            head.verdict = ACCEPTED
        else:
            judge_arms(&p, head, &arms, best)
    return NULL


cdef void *arms_close(xla_frame_t *frame) noexcept nogil:
    """(state, totals) -> state: the exact draw, of a race that is lost."""
    cdef plan_t p
    cdef head_t *head
    cdef void *answer
    cdef xla_buffer_t *out
    cdef const double *total
    cdef double *offset
    cdef double score, highest
    cdef int64_t b, j, k, size, best
    if not ready(frame, b"uu", &p, True, &answer):
        return answer
    out = frame.results.at[0]
    if xla_last(frame.arguments.at[1], 1) != 2 * p.n_arms:
        return xla_refuse(frame, b"a race of arms closes with one total an arm")
    carry(out, frame.arguments.at[0])
    k, size = p.n_arms, xla_last(out, 1)
    for b in range(xla_batch(out, 1)):
        head = <head_t *>(<uint32_t *>out.data + b * size)
        if head.verdict != LOST:
            continue
        offset = <double *>(head + 1)
        total = <const double *>frame.arguments.at[1].data + b * k
        best, highest = -1, -INFINITY
        for j in range(k):
            score = total[j] + offset[j]
            if score > highest:       # also of an arm that the race had dropped: it may have been wrong
                best, highest = j, score
        if best < 0:
            return xla_refuse(frame, b"every state of a variable has probability 0 given the others; nothing can be "
                              b"drawn")
        head.more = <int32_t>best
        head.looks += 1
        head.verdict = ACCEPTED
    return NULL


def targets(major, minor):
    """The functions by name, as capsules for `jax.ffi.register_ffi_target`, for this version of XLA's interface."""
    version[0], version[1] = major, minor
    return {
        "fastrace_race_open": PyCapsule_New(<void *>race_open, NULL, NULL),
        "fastrace_race_rows": PyCapsule_New(<void *>race_rows, NULL, NULL),
        "fastrace_race_look": PyCapsule_New(<void *>race_look, NULL, NULL),
        "fastrace_race_close": PyCapsule_New(<void *>race_close, NULL, NULL),
        "fastrace_total_add": PyCapsule_New(<void *>total_add, NULL, NULL),
        "fastrace_arms_open": PyCapsule_New(<void *>arms_open, NULL, NULL),
        "fastrace_arms_look": PyCapsule_New(<void *>arms_look, NULL, NULL),
        "fastrace_arms_close": PyCapsule_New(<void *>arms_close, NULL, NULL),
    }
