/* Predictable bets on a bounded mean, and the running intervals that they give. Rewards are scaled to z in [0, 1].

   Formulas are inline; the functions below run one of them over a block of rewards, in separate loops for what must
   go in order (sums) and what need not (the rest, which becomes vector code). Sums are taken one reward at a time,
   so a state never depends on how the stream was cut into blocks. */
#ifndef FASTRACE_BETS_H
#define FASTRACE_BETS_H
#include "_vecmath.h"

enum { FR_BLOCK = 128,          /* most rewards a block may hold */
       FR_CANDIDATES = 1024,    /* candidate means of a new grid, its two ends aside */
       FR_LIVE = 513,           /* most after a refinement, ends included */
       FR_FOLD = 16 };          /* rewards between two refinements of a grid, counted from the first of the stream */

/* What a bound is made with. */
typedef struct {
    double level;               /* log(2 / delta): each side spends half of delta */
    double cap;                 /* c: no bet risks more than this share of the wealth */
    double slope, offset, floor;    /* wanted half-width: max(slope |mean + offset|, floor, zero - |mean + offset|) */
    double zero;                /* distance within which a mean may be taken for -offset, or negative */
    double n_rows;              /* size of a population sampled without replacement, or infinity */
    double rho;                 /* of a mixture boundary: where it is tightest */
    double under, over;         /* how far the next rewards may lie below 0 and above 1: 0, but where a mean in [0, 1] is
                                   bet on by rewards that vary beyond, for bets that know it */
} fr_bet_t;

/* What a stream leaves behind. [0] is the side of the lower bound, [1] that of the upper one. */
typedef struct {
    double n;                   /* rewards seen */
    double total;               /* 1/2 + their sum */
    double square;              /* 1/4 + their squared distances from the running guess, each reward included in it */
    double weight[2], centre[2], penalty[2];
} fr_sums_t;

/* Candidate means in growing order, and the wealth of who bets that the mean is above, or below, each. The first one
   and the last one are the bounds so far: refuted, and kept because the wealth on their other side seeds new ones. */
typedef struct {
    int first, last;            /* places of the bounds */
    int refuted;                /* no candidate is left */
    double mean[FR_CANDIDATES + 2], above[FR_CANDIDATES + 2], below[FR_CANDIDATES + 2];
    double cap_above[FR_CANDIDATES + 2], cap_below[FR_CANDIDATES + 2];
} fr_grid_t;

/* psi(u) = -log(1 - u) - u for u in [0, 1), to full relative accuracy also for small u.
   With 1 - u = 2^k m, s = (1 - m) / (1 + m): k = 0 gives psi = s u + s^3 p(s^2), a sum without cancellation. */
FR_INLINE double fr_psi(double u)
{
    double w = 1.0 - u;
    double error = (1.0 - w) - u;
    uint64_t shifted = fr_bits(w) - 0x3fe6a09e667f3bcdULL;
    uint64_t biased = (shifted + 0x3ff0000000000000ULL) >> 52;
    double k = fr_double(biased + 0x4330000000000000ULL) - (0x1p52 + 1023.0);
    double m = fr_double((shifted & 0x000fffffffffffffULL) + 0x3fe6a09e667f3bcdULL);
    double f = (m - 1.0) + error * fr_double((2046 - biased) << 52);
    double s = -f / (2.0 + f), z = s * s, z2 = z * z;
    double a = 0x1.5555555555592p-1 + 0x1.999999997fd76p-2 * z;
    double b = 0x1.24924941f5011p-2 + 0x1.c71c520604c50p-3 * z;
    double c = 0x1.74663fa29ad56p-3 + 0x1.39a1a6ef6231ep-3 * z;
    double p = (a + z2 * b) + (z2 * z2) * (c + z2 * 0x1.2f0634b5ae1b1p-3);
    double head = k == 0.0 ? s * u : (2.0 * s - u) - k * 0x1.62e42fefa39efp-1;
    return head + s * z * p;
}

FR_INLINE double fr_smaller(double a, double b) { return a < b ? a : b; }
FR_INLINE double fr_larger(double a, double b) { return a > b ? a : b; }

/* Bet of Waudby-Smith & Ramdas (2024), before its cap, on reward t = 1, 2, ...; `square` is t times the guessed variance. */
FR_INLINE double fr_plug_in_bet(double level, double square, double t)
{
    return sqrt(2.0 * level / (square * fr_log1p1(t)));
}

/* Half-width that one wants to reach, as far as the mean is known to be `away` from -offset. */
FR_INLINE double fr_wanted(const fr_bet_t *b, double away, double slope)
{
    return fr_larger(fr_larger(slope * away, b->floor), b->zero - away);
}

/* Bet that makes an empirical Bernstein bound sharpest at half-width `wanted`; `scale` is the guess of the mean's
   distance from the end of the support on the side of the bound. Maximises bet wanted - variance psi(bet scale) / scale^2. */
FR_INLINE double fr_target_bet(double wanted, double variance, double scale, double cap)
{
    return fr_smaller(wanted / (variance + scale * wanted), cap / scale);
}

/* What rewards that are bet on alike add to the sums of a side, n of them with this sum and these squared distances from
   the guessed mean: their bets, these times the rewards, and their penalty. */
FR_INLINE void fr_target_terms(double wanted, double variance, double scale, double cap, double n, double sum,
                               double squares, double *bet, double *centre, double *penalty)
{
    double w = fr_target_bet(wanted, variance, scale, cap);
    *bet = w * n;
    *centre = w * sum;
    *penalty = squares * (fr_psi(w * scale) / (scale * scale));
}

/* The same for a wealth: bet that grows fastest if the mean is `distance` away from the candidate. */
FR_INLINE double fr_kelly_bet(double distance, double variance)
{
    return distance / (variance + distance * distance);
}

/* Polynomial stitching of Howard et al. (2021) at scale 1 with eta = 2, s = 1.4 and v >= 1: a sub-exponential sum ever
   exceeds it at its own intrinsic time v with probability at most exp(-level). */
FR_INLINE double fr_stitched(double level, double v)
{
    double u = fr_larger(v, 1.0);
    double ell = 1.4 * fr_log1p1(fr_log1p1(2.0 * u - 1.0) - 1.0) + level + 1.646308045665943;   /* zeta(s) / log(eta)^s */
    return sqrt(2.0606601717798212 * u * ell + 1.4571067811865475 * ell * ell) + 1.2071067811865475 * ell;
}

/* Two-sided mixture of normals over sub-Gaussian sums of variance v (Howard et al. 2021); level = log(2 / delta). That of
   _anytime.pxd, normal_mixture_boundary, for lanes. */
FR_INLINE double fr_normal_mixture(double level, double v, double rho)
{
    return sqrt((v + rho) * (fr_log1p1(v / rho) + 2.0 * (level - 0.6931471805599453)));
}

/* A reward of a support (low, low + span) to [0, 1]; what rounding put outside is moved to the end. */
FR_INLINE double fr_unit(const fr_bet_t *b, double x, double low, double span)
{
    return fr_smaller(fr_larger((x - low) / span, 0.0 - b->under), 1.0 + b->over);
}

/* Guesses of the mean before each reward and after the last (n + 1 of them); squares over t guess the variance before
   reward t. */
FR_INLINE void fr_guess(fr_sums_t *s, const double *z, int n, double *total, double *mean,
                         double *square)
{
    total[0] = s->total;
    for (int i = 0; i < n; i++) total[i + 1] = total[i] + z[i];
    for (int i = 0; i <= n; i++) mean[i] = total[i] / (s->n + (double)(i + 1));
    for (int i = 0; i < n; i++) {
        double d = z[i] - mean[i + 1];
        square[i + 1] = d * d;
    }
    square[0] = s->square;
    for (int i = 0; i < n; i++) square[i + 1] += square[i];
    s->total = total[n];
    s->square = square[n];
}

/* Rewards that are bet on alike, by what is known before the first of them. */
FR_INLINE void fr_target_sides(const fr_bet_t *b, fr_sums_t *s, double n, double sum, double mean, double squares,
                               double *low, double *high)
{
    double variance = s->square / (s->n + 1.0), wanted = fr_wanted(b, fabs(mean + b->offset), b->slope);
    double bet, centre, penalty;
    fr_target_terms(wanted, variance, mean, b->cap, n, sum, squares, &bet, &centre, &penalty);
    s->weight[0] += bet;
    s->centre[0] += centre;
    s->penalty[0] += penalty;
    *low = (s->centre[0] - (b->level + s->penalty[0])) / s->weight[0];
    fr_target_terms(wanted, variance, 1.0 - mean, b->cap, n, sum, squares, &bet, &centre, &penalty);
    s->weight[1] += bet;
    s->centre[1] += centre;
    s->penalty[1] += penalty;
    *high = (s->centre[1] + (b->level + s->penalty[1])) / s->weight[1];
    s->n += n;
    s->total += sum;
}

/* One reward through fr_target and fr_plug_in below, with replacement: the same operations in the same order. */
FR_INLINE void fr_target_push(const fr_bet_t *b, fr_sums_t *s, double z, double *low, double *high)
{
    double mean = s->total / (s->n + 1.0), d = z - mean;
    fr_target_sides(b, s, 1.0, z, mean, d * d, low, high);
    d = z - s->total / (s->n + 1.0);
    s->square += d * d;
}

/* Rewards of 1 and 0 by their numbers; for one of them the bits of fr_target_push. */
FR_INLINE void fr_target_push_wins(const fr_bet_t *b, fr_sums_t *s, double won, double lost, double *low, double *high)
{
    double mean = s->total / (s->n + 1.0), miss = 1.0 - mean;
    fr_target_sides(b, s, won + lost, won, mean, won * (miss * miss) + lost * (mean * mean), low, high);
    mean = s->total / (s->n + 1.0);
    miss = 1.0 - mean;
    s->square += won * (miss * miss) + lost * (mean * mean);
}

FR_INLINE void fr_plug_in_push(const fr_bet_t *b, fr_sums_t *s, double z, double *low, double *high)
{
    double t = s->n + 1.0, d = z - s->total / t;
    double bet = fr_smaller(fr_plug_in_bet(b->level, s->square, t), b->cap), middle, half, ahead;
    s->weight[0] += bet;
    s->centre[0] += bet * z;
    s->penalty[0] += d * d * fr_psi(bet);
    middle = s->centre[0] / s->weight[0];
    half = (b->level + s->penalty[0]) / s->weight[0];
    *low = middle - half;
    *high = middle + half;
    s->n = t;
    s->total += z;
    ahead = z - s->total / (t + 1.0);
    s->square += ahead * ahead;
}

/* Rewards through fr_unit. */
void fr_scale(const fr_bet_t *b, const double *x, int n, double low, double span, double *z);
/* out = largest of low, smallest of high. */
void fr_narrowest(const double *low, const double *high, int n, double *out);

/* Running bounds after each of n <= FR_BLOCK rewards z, in [0, 1], into low and high; nothing is intersected. */
void fr_target(const fr_bet_t *b, fr_sums_t *s, const double *z, int n, double *low, double *high);
void fr_plug_in(const fr_bet_t *b, fr_sums_t *s, const double *z, int n, double *low, double *high);
void fr_stitching(const fr_bet_t *b, fr_sums_t *s, const double *z, int n, double *low, double *high);
void fr_hoeffding(const fr_bet_t *b, fr_sums_t *s, const double *z, int n, double *low, double *high);
/* The running sums alone; low and high hold all of [0, 1]. */
void fr_moments_only(const fr_bet_t *b, fr_sums_t *s, const double *z, int n, double *low, double *high);
/* By betting on a grid: the bounds so far, low > high once no candidate is left. `target` takes kelly bets. */
void fr_betting(const fr_bet_t *b, fr_sums_t *s, fr_grid_t *g, int target, const double *z, int n,
                double *low, double *high);
void fr_grid_init(const fr_bet_t *b, fr_grid_t *g);
void fr_grid_copy(fr_grid_t *to, const fr_grid_t *from);       /* candidates that are refuted are left out */
void fr_grid_merge(const fr_bet_t *b, fr_grid_t *g, const fr_grid_t *other);
/* One candidate, the threshold at -b->offset: logs of both wealths in s->centre, their largest values in s->penalty;
   low = 1 where a mean above it has been found, high = -1 where one below it has. Of a population, s->weight is the sum
   of the rewards and what rounding left out of it; a mean within b->floor of the threshold is on neither side. */
void fr_threshold(const fr_bet_t *b, fr_sums_t *s, const double *z, int n, double *low, double *high);
void fr_sums_init(fr_sums_t *s);
#endif
