# cython: cdivision=True
"""Rounds of a race on streams: sums of a block of rounds, and brackets of every arm's mean. See _rounds.h."""


cdef extern from "_rounds.h" nogil:
    ctypedef struct fr_view:
        const char *data
        Py_ssize_t row_stride, arm_stride
        const Py_ssize_t *column
        int single
    ctypedef struct fr_sums:
        double *centre
        double *m2
        double *s
        double *q
        double *least
        double *most
    ctypedef struct fr_rule:
        double x
        int by_variance
        double low, high
        const double *lows
        const double *highs
        double n_rows
    ctypedef struct fr_bets:
        double *sum
        double *square
        double *bets[2]
        double *won[2]
        double *price[2]
        double *lower
        double *upper
    Py_ssize_t fr_rounds_add(const fr_view *view, Py_ssize_t n_rounds, Py_ssize_t n, const fr_rule *rule,
                             fr_sums *sums, double *work) noexcept
    void fr_rounds_settle(fr_sums *sums, Py_ssize_t n, double t) noexcept
    void fr_rounds_brackets(const fr_sums *sums, Py_ssize_t n, const fr_rule *rule, double t, double *lower,
                            double *upper) noexcept
    Py_ssize_t fr_rounds_narrow(const fr_view *view, Py_ssize_t n_rounds, Py_ssize_t n, const fr_rule *rule, double t,
                                fr_sums *sums, double *lower, double *upper, double *work) noexcept
    bint fr_rounds_empty(const fr_rule *rule, Py_ssize_t n, const double *lower, const double *upper) noexcept
    void fr_rounds_reach(const fr_sums *sums, Py_ssize_t n, const fr_rule *rule, double first, double last, int inner,
                         double *lower, double *upper) noexcept
    void fr_rounds_again(const fr_view *view, Py_ssize_t round, const Py_ssize_t *place, Py_ssize_t n,
                         const fr_rule *rule, double t, const double *centre, const double *m2, double *s, double *q,
                         double *lower, double *upper) noexcept
    int fr_bets_round(const fr_view *view, Py_ssize_t round, Py_ssize_t n, const fr_rule *rule, double t,
                      double above, double below, fr_bets *bets, double *work) noexcept
    void fr_bets_means(const fr_bets *bets, Py_ssize_t n, const fr_rule *rule, double t, double *mean) noexcept
