# cython: cdivision=True
"""Predictable bets on a bounded mean: formulas, and running bounds by the block. See _bets.h."""


cdef extern from "_bets.h" nogil:
    enum:
        FR_BLOCK                # most rewards a block may hold
        FR_CANDIDATES

    ctypedef struct fr_bet_t:
        double level            # log(2 / delta)
        double cap              # no bet risks more than this share
        double slope, offset, floor, zero       # wanted half-width: see fr_wanted
        double n_rows           # size of a population sampled without replacement, or infinity
        double rho              # of a mixture boundary
        double under, over      # how far the next rewards may lie outside [0, 1]

    ctypedef struct fr_sums_t:
        double n, total, square
        double weight[2]
        double centre[2]
        double penalty[2]

    ctypedef struct fr_grid_t:
        int first, last, refuted
        double *mean            # arrays of FR_CANDIDATES + 2
        double *above
        double *below

    # Formulas
    double fr_stitched(double level, double v) noexcept
    double fr_normal_mixture(double level, double v, double rho) noexcept
    double fr_unit(const fr_bet_t *b, double x, double low, double span) noexcept

    # One reward with replacement; the same bits as by the block
    void fr_target_push(const fr_bet_t *b, fr_sums_t *s, double z, double *low, double *high) noexcept
    void fr_target_push_wins(const fr_bet_t *b, fr_sums_t *s, double won, double lost, double *low,
                             double *high) noexcept
    void fr_plug_in_push(const fr_bet_t *b, fr_sums_t *s, double z, double *low, double *high) noexcept

    # Running bounds after each of n <= FR_BLOCK rewards in [0, 1]; nothing is intersected
    void fr_scale(const fr_bet_t *b, const double *x, int n, double low, double span, double *z) noexcept
    void fr_narrowest(const double *low, const double *high, int n, double *out) noexcept
    void fr_sums_init(fr_sums_t *s) noexcept
    void fr_target(const fr_bet_t *b, fr_sums_t *s, const double *z, int n, double *low, double *high) noexcept
    void fr_plug_in(const fr_bet_t *b, fr_sums_t *s, const double *z, int n, double *low, double *high) noexcept
    void fr_stitching(const fr_bet_t *b, fr_sums_t *s, const double *z, int n, double *low, double *high) noexcept
    void fr_hoeffding(const fr_bet_t *b, fr_sums_t *s, const double *z, int n, double *low, double *high) noexcept
    void fr_moments_only(const fr_bet_t *b, fr_sums_t *s, const double *z, int n, double *low, double *high) noexcept
    void fr_threshold(const fr_bet_t *b, fr_sums_t *s, const double *z, int n, double *low, double *high) noexcept
    void fr_grid_init(const fr_bet_t *b, fr_grid_t *g) noexcept
    void fr_grid_copy(fr_grid_t *to, const fr_grid_t *from_) noexcept
    void fr_grid_merge(const fr_bet_t *b, fr_grid_t *g, const fr_grid_t *other) noexcept
    void fr_betting(const fr_bet_t *b, fr_sums_t *s, fr_grid_t *g, int target, const double *z, int n, double *low,
                    double *high) noexcept
