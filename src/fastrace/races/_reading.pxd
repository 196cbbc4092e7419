# cython: cdivision=True
"""How races read rows: the block sizes, the price of a row, reading in an order, and the hunt for a bad reward.

Every constant that decides how much is read at once, or what a full pass is worth, stands here with its measurement.
The order itself is `_draws._row_order.RowOrder`; whether a full pass pays says `_math._criteria`.
"""

from libc.math cimport INFINITY, isnan
from libc.stdint cimport int64_t

from fastrace._draws._keyed_order cimport keyed_order_at, keyed_order_t
from fastrace._draws._row_order cimport RowOrder, row_in, rows_in
from fastrace.sources cimport Source

cdef enum:                          # rewards of one arm
    ROWS_PER_BLOCK = 512            # whose moments are taken while they are in cache; also the grain of all sums
    ROWS_PER_DECISION = 4096        # most at once for a decision against a threshold, which holds them without memory
    ROWS_PER_CALL = 8192            # most at once of a source that is cheaper in large blocks
    REWARDS_AT_FIRST = 65536        # of an array, whose first decision reads them all: in the time that it is set up
    ROWS_AT_FIRST = 4096            # least at the first look of the first decision about a larger array in memory
    DRAWS_PER_CALL = 1024           # most at once of rows drawn by weight
    ROWS_PER_CHECK = 4096           # between two looks at pending signals
    ROWS_IN_ORDER_PER_CHECK = 1 << 18
    PULLS_PER_CHECK = 1000          # pulls one by one between two looks at pending signals
    PULLS_AHEAD = 16                # most at once where an arm is pulled reward by reward; a power of 2
    REWARDS_PER_ASK = 1 << 20       # most that one `ask` names, over all arms

# What the race itself costs per reward, in nanoseconds as a source's `reward_cost`; measured.

cdef inline double pair_work(bint betting) noexcept nogil:
    """Moments of a difference of columns, or a gambler's bets on it."""
    return 20.0 if betting else 0.6


cdef inline double mean_work(bint betting) noexcept nogil:
    """Moments of a mean, or two gamblers' bets on it."""
    return 13.0 if betting else 1.0


cdef inline double price_of_a_row(Source source, bint in_window, double work, double n_arms) noexcept nogil:
    """Cost of a row in a race that adds `work` to each, over one of a full pass in order."""
    return (1.0 if in_window else source.scan_advantage) + work / (source.reward_cost * n_arms)


cdef inline double price_of_a_row_of_an_array(Source source, bint in_window, bint betting) noexcept nogil:
    """The same of a race of a mean over an array in memory, where one row of a full pass takes 0.3 ns.

    Moments take 2.5 ns, two gamblers' bets 26 ns; drawing and gathering take 10 ns in cache and 50 ns beyond, 12 times
    the source's scan_advantage either way.
    """
    return (1.0 if in_window else source.scan_advantage * 12.0) + (8.0 + (80.0 if betting else 0.0))


cdef inline double price_of_moments(Source source, double n_arms) noexcept nogil:
    """Cost of a full pass that takes the moments of all differences over one that does not."""
    return 1.0 + 1.0 / (source.reward_cost * n_arms)


cdef inline double price_of_moments_of_an_array(Py_ssize_t n_arms) noexcept nogil:
    """The same over an array: 1.1 ns a row beside 0.55, and 1.8 beside 0.6 if there are two arms."""
    return 3.0 if n_arms == 2 else 2.0


cdef inline int read_rows(Source source, RowOrder order, int64_t first, Py_ssize_t count, const Py_ssize_t *arms,
                          Py_ssize_t n_arms, int64_t *row, double **out) except -1 nogil:
    """Rewards on positions first .. first + count - 1 of an order, all settled; `row` has room for their numbers."""
    cdef int64_t start
    cdef Py_ssize_t j, head
    if not order.in_window:
        rows_in(order, first, count, row)
        source.fill(row, count, arms, n_arms, out)
        return 0
    start = row_in(order, first)
    head = <Py_ssize_t>min(<int64_t>count, order.n_rows - start)
    source.fill_range(start, head, arms, n_arms, out)
    if head < count:                            # the window goes round the end of the table
        for j in range(n_arms):
            out[j] += head
        source.fill_range(0, count - head, arms, n_arms, out)
        for j in range(n_arms):
            out[j] -= head
    return 0


cdef inline int read_keyed(Source source, const keyed_order_t *order, int64_t first, Py_ssize_t count, Py_ssize_t arm,
                           int64_t *row, double *out) except -1 nogil:
    """Rewards of one arm on the next positions of its own order."""
    cdef Py_ssize_t i
    for i in range(count):
        row[i] = keyed_order_at(order, first + i)
    source.fill(row, count, &arm, 1, &out)
    return 0


cdef inline Py_ssize_t first_bad(const double *x, Py_ssize_t count) noexcept nogil:
    """Place of the first nan or +inf, which compare with nothing; -1 if there is none."""
    cdef Py_ssize_t i
    for i in range(count):
        if isnan(x[i]) or x[i] == INFINITY:
            return i
    return -1


cdef inline Py_ssize_t first_outside(const double *x, Py_ssize_t count, double low, double high) noexcept nogil:
    """Place of the first reward that is finite and outside [low, high]; -1 if there is none."""
    cdef Py_ssize_t i
    for i in range(count):
        if (x[i] < low and x[i] > -INFINITY) or (x[i] > high and x[i] < INFINITY):
            return i
    return -1


cdef object bad_row(Source source, arms, bint settles=*)
