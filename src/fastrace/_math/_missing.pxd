# cython: cdivision=True
"""When rewards that are missing are dropped: how long a silence says that no more will come.

Let each pull (or round) give a reward with the same unknown probability p, independently. If the h-th reward came at
pull n, the next c n pulls are all silent with probability E (1 - p)^(c n) <= (1 + c)^-h, whatever p is. The rule takes
c = 10,000 for h = 1, c = 100 for h = 2, and c = 100 / h from then on. The sum over all h says that it ever refuses
wrongly an arm that has given a reward with probability below 1/4000, and below 1/36,000 after its third one.

Before the first reward, no finite wait can tell a rare reward from none, and pulls may be dear. The rule waits for
5,000, which are all silent with probability at most exp(-5,000 p): below 1/20,000 where p is at least 1/500. A function
whose rewards are rarer can look for one itself.

Of N rows that are read in random order, n without a reward are a share n / N of all: if K rows have one, none is among
them with probability at most (1 - n / N)^K. The rule waits for a quarter of the rows, but for 100 at least and for
5,000 at most: below 1/20,000 where 35 rows have a reward, or 1 of 500 of many rows.

A warning may be wrong, so it comes at 100 silent pulls already, and again at ten and a hundred times as many.
"""

from libc.stdint cimport int64_t

cdef enum:
    NEVER_HEARD = 5_000         # silent pulls that are enough before the first reward
    WORTH_A_WARNING = 100       # and those that look like a mistake
    SILENCE = 1000              # and after it, if the silence times the rewards is at least the pulls before it, times
    WAITS_AFTER_ONE = 10_000    # after one reward,
    WAITS_AFTER_TWO = 200       # after two,
    WAITS = 100                 # and after more


cdef inline bint silent_for_good(int64_t silent, int64_t heard, int64_t asked) noexcept nogil:
    """Whether the last `silent` of the times `asked` are too many, where there were rewards `heard` times."""
    cdef double waits = WAITS_AFTER_ONE if heard == 1 else WAITS_AFTER_TWO if heard == 2 else WAITS
    if heard == 0:
        return silent >= NEVER_HEARD
    return silent >= SILENCE and silent * <double>heard >= waits * <double>(asked - silent)


cdef inline bint rows_silent_for_good(int64_t silent, int64_t n_rows) noexcept nogil:
    """Whether the first `silent` rows of a population are too many to have brought nothing."""
    cdef int64_t enough = min(max(n_rows // 4, <int64_t>WORTH_A_WARNING), <int64_t>NEVER_HEARD)
    return silent >= min(enough, n_rows)


cdef inline bint worth_a_warning(int64_t before, int64_t now) noexcept nogil:
    """Whether to warn of an arm that has given no reward in `now` pulls; it had been asked `before` times."""
    cdef int64_t mark = WORTH_A_WARNING
    while mark <= before:
        mark *= 10
    return mark <= now
