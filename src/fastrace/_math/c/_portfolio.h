/* A universal portfolio against every candidate mean at once, for rewards z in [0, 1].

   A bettor of odds ratio exp(u) multiplies his money by (1 - z + z exp(u)) / (1 - m + m exp(u)) where m is the mean of
   the reward under the candidate. His bet, lambda = (exp(u) - 1) / (1 - m + m exp(u)), is fair for every m, and the
   numerator does not know m: one product per bettor serves all candidates. With u > 0 he bets that the mean is above,
   with -u that it is below; both are divided by exp(u), so that all factors lie in [exp(-u), 1]. FR_BETTORS of each
   play, with fixed shares of the first unit of money that depend on the candidate, but not on the rewards. */
#ifndef FASTRACE_PORTFOLIO_H
#define FASTRACE_PORTFOLIO_H
#include "_bets.h"

enum { FR_BETTOR_LANES = 8, FR_BETTORS = 3 * FR_BETTOR_LANES };        /* on either side */

/* Products of numerators are up[k] 2^up_power[k] and down[k] 2^down_power[k]. */
typedef struct {
    double up[FR_BETTORS], down[FR_BETTORS];
    double up_power[FR_BETTORS], down_power[FR_BETTORS];
    /* The mean of a reward under candidate m, averaged over the rewards so far, is (reach m - drawn) / n. */
    double reach, drawn;
} fr_portfolio_t;

/* What one side of a stream without a population knows by heart of a candidate that it has refuted, the furthest or one
   next to it: a look that finds nothing further costs 10 ns, and is left out while the excess is at most `until`. All
   of it can be found again from the candidate and the products, so it is not saved; where these change in another way
   than by rewards in order, `at` must be set to -1. */
typedef struct {
    double at;                  /* the candidate; -1 if there is none */
    double folded;              /* rewards before the last fold: `scale` is right there; -1 if it is right nowhere */
    double log_paid[FR_BETTORS], share[FR_BETTORS], pull[FR_BETTORS];
    double loses[FR_BETTOR_LANES];      /* share lost as the candidate grows; only the first bettors have tilted ones */
    double pace[4][FR_BETTORS];     /* 1, 2, 4 and 8 inverse denominators */
    double scale[FR_BETTORS];
    double stride;              /* of the excess */
    double growth[FR_BETTORS];  /* no bettor's money grows more than so over the stride; 0: unknown */
    double until;               /* excess, the rewards less the candidate summed, up to which it cannot be refuted */
} fr_watch_t;

/* One bettor on either side, who aims at an accuracy: on each reward the odds ratio, of FR_ODDS, that suits the
   half-width wanted and what has been seen. The numerators' logs are won[side], and counts of the odds ratios are
   all that a candidate needs beside them; of a population, (reach m - drawn) / count is the average mean of those
   rewards. */
enum { FR_ODDS = 192 };
typedef struct {
    double won[2];
    double count[2][FR_ODDS], reach[2][FR_ODDS], drawn[2][FR_ODDS];
} fr_aimed_t;

/* Fill the tables of odds ratios and shares; once, before any other call. */
void fr_portfolio_setup(void);
void fr_portfolio_init(fr_portfolio_t *p);
/* Take n <= FR_BLOCK rewards; low and high are what the rewards of a population say for sure, or 0 and 1. */
void fr_portfolio(const fr_bet_t *b, fr_sums_t *s, fr_portfolio_t *p, const double *z, int n, double *low,
                  double *high);
/* The bounds as of now; candidates below `lower` and above `upper` have been refuted before. */
void fr_portfolio_bounds(const fr_bet_t *b, const fr_sums_t *s, const fr_portfolio_t *p, double lower, double upper,
                         double *low, double *high);
/* The same at one look of many, without a population; s->centre[side] keeps the candidate that the side watches, 0 if
   there is none yet (of the upper bound, 1 less that candidate). */
void fr_portfolio_look(const fr_bet_t *b, fr_sums_t *s, const fr_portfolio_t *p, fr_watch_t w[2], double lower,
                       double upper, double *low, double *high);
/* Whether a look after n rewards, with this sum as in fr_sums_t, is sure to find what is known. */
int fr_portfolio_quiet(const fr_watch_t w[2], double n, double total);
/* A stream as it enters pairs: logs of what bettors of its portfolio have, with fixed shares, and how far its own
   interval [lower, upper] at `level` is from its mean, which only says where to begin. */
typedef struct {
    double up[FR_BETTORS], down[FR_BETTORS];
    double n, mean, below, above, level;
} fr_rival_t;
void fr_portfolio_rival(const fr_sums_t *s, const fr_portfolio_t *p, double level, double lower, double upper,
                        fr_rival_t *r);
/* Bounds of the mean behind `a` less that behind `b`, independent streams without populations: x - y of all pairs (x,
   y) at which the product of two one-sided wealths is below exp(level), each bettor having all of his money on one
   side. If the means are x and y, the product is a test martingale. `above` and `below`, unless NULL, are the logs of
   the least product where the means are equal: evidence that the difference is above, or below, 0. */
void fr_portfolio_difference(const fr_rival_t *a, const fr_rival_t *b, double level, double *low, double *high,
                             double *above, double *below);
void fr_aimed(const fr_bet_t *b, fr_sums_t *s, fr_aimed_t *a, const double *z, int n, double *low, double *high);
void fr_aimed_bounds(const fr_bet_t *b, const fr_aimed_t *a, double lower, double upper, double *low, double *high);
int fr_aimed_sane(const fr_aimed_t *a, double n);
/* The rewards behind `other` follow those behind `p`, without a population. */
void fr_portfolio_merge(fr_portfolio_t *p, const fr_portfolio_t *other);
/* Whether a portfolio that was read from outside can be one. */
int fr_portfolio_sane(const fr_portfolio_t *p);
#endif
