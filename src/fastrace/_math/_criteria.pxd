# cython: cdivision=True
"""When a race should stop reading at random and turn to one full pass, and when an estimate is good enough."""

from libc.math cimport fabs
from libc.stdint cimport int64_t


cdef inline double rows_needed(double gap, double half_width, int64_t n, int64_t n_rows) noexcept nogil:
    """Rows at which a gap that stays as it is would exceed a half-width that shrinks like sqrt(v(T))."""
    cdef double ratio, v
    if not gap > 0.0:
        return <double>n_rows
    ratio = gap / half_width
    v = (1.0 / n - 1.0 / n_rows) * ratio * ratio
    return 1.0 / (v + 1.0 / n_rows)


cdef inline bint full_pass_pays(double needed, int64_t n, int64_t next_look, int64_t n_rows, int64_t to_pass,
                                double advantage) noexcept nogil:
    """Whether reading on to `needed` rows costs more than `to_pass` rows in order, `advantage` times cheaper a row.

    Below a twentieth of a full pass the gaps are known too badly to predict from, and little is lost by going on.
    """
    return advantage * next_look > 0.05 * n_rows and advantage * (needed - n) > to_pass


cdef enum:
    PATIENCE = 4        # decisions in a row that races lost: they read all rows
    RETRY = 16


cdef inline bint race_sits_out(int64_t losses) noexcept nogil:
    """Whether a decision is left to a full pass at once; after PATIENCE losses only each RETRY-th one is raced."""
    return losses >= PATIENCE and losses % RETRY != 0


# When a bracket of a mean is narrow enough. `low` and `high` hold the mean, or its absolute value where said.

cdef enum:
    NEVER               # a confidence sequence: it only reports
    RELATIVE            # within epsilon times the absolute mean
    ABSOLUTE            # within epsilon
    SIGN                # on one side of a threshold


cdef inline bint relative_met(double low, double high, double epsilon) noexcept nogil:
    """Whether one value is within epsilon |mean| of every mean with absolute value in [low, high].

    Mnih, Szepesvari & Audibert (2008), Algorithm 2. 0 <= low <= high.
    """
    return (1.0 + epsilon) * low >= (1.0 - epsilon) * high


cdef inline double relative_answer(double low, double high, double epsilon) noexcept nogil:
    """That value, without its sign."""
    return 0.5 * ((1.0 + epsilon) * low + (1.0 - epsilon) * high)


cdef inline bint half_width_met(double mean, double half_width, double epsilon) noexcept nogil:
    """The same for a mean and its half-width at one moment: NAS of Domingo, Gavalda & Watanabe (2002)."""
    return fabs(mean) >= half_width * (1.0 + 1.0 / epsilon)


cdef inline double distance_from_zero(double low, double high) noexcept nogil:
    """The smallest absolute value in [low, high]."""
    return low if low > 0.0 else (-high if high < 0.0 else 0.0)
