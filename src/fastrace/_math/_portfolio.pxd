# cython: cdivision=True
"""A universal portfolio against every candidate mean at once. See _portfolio.h."""

from fastrace._math._bets cimport fr_bet_t, fr_sums_t


cdef extern from "_portfolio.h" nogil:
    enum:
        FR_BETTORS

    ctypedef struct fr_portfolio_t:
        pass

    ctypedef struct fr_aimed_t:
        pass

    ctypedef struct fr_watch_t:
        double at

    ctypedef struct fr_rival_t:
        pass

    void fr_portfolio_setup() noexcept
    void fr_portfolio_init(fr_portfolio_t *p) noexcept
    void fr_portfolio(const fr_bet_t *b, fr_sums_t *s, fr_portfolio_t *p, const double *z, int n, double *low,
                      double *high) noexcept
    void fr_portfolio_bounds(const fr_bet_t *b, const fr_sums_t *s, const fr_portfolio_t *p, double lower, double upper,
                             double *low, double *high) noexcept
    void fr_portfolio_look(const fr_bet_t *b, fr_sums_t *s, const fr_portfolio_t *p, fr_watch_t *w, double lower,
                           double upper, double *low, double *high) noexcept
    bint fr_portfolio_quiet(const fr_watch_t *w, double n, double total) noexcept
    void fr_portfolio_rival(const fr_sums_t *s, const fr_portfolio_t *p, double level, double lower, double upper,
                            fr_rival_t *r) noexcept
    void fr_portfolio_difference(const fr_rival_t *a, const fr_rival_t *b, double level, double *low, double *high,
                                 double *above, double *below) noexcept
    void fr_portfolio_merge(fr_portfolio_t *p, const fr_portfolio_t *other) noexcept
    bint fr_portfolio_sane(const fr_portfolio_t *p) noexcept
    void fr_aimed(const fr_bet_t *b, fr_sums_t *s, fr_aimed_t *a, const double *z, int n, double *low,
                  double *high) noexcept
    void fr_aimed_bounds(const fr_bet_t *b, const fr_aimed_t *a, double lower, double upper, double *low,
                         double *high) noexcept
    bint fr_aimed_sane(const fr_aimed_t *a, double n) noexcept
