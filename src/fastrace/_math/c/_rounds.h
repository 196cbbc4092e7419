/* Rounds of a race on streams, rows outside and arms inside: sums of a block of rounds, and brackets of every arm's
   mean. All arrays go by place: the arms still in the race, one after the other. Sums run through the rounds in order,
   so they do not depend on how rounds come in blocks, nor on the instruction set. */
#ifndef FASTRACE_ROUNDS_H
#define FASTRACE_ROUNDS_H
#include <stddef.h>

/* Rewards of a table: that of round i at place j is at data + i row_stride + column[j] arm_stride. */
typedef struct {
    const char *data;
    ptrdiff_t row_stride, arm_stride;
    const ptrdiff_t *column;
    int single;                 /* floats instead of doubles */
} fr_view;

/* After t rounds the mean is centre + s / t and the sum of squared deviations m2 + q - s^2 / t: s and q are sums of
   deviations from the centre, and of their squares, since m2 was known. */
typedef struct {
    double *centre, *m2, *s, *q;
    double *least, *most;       /* of s over the rounds of the last call of fr_rounds_add */
} fr_sums;

/* The half-width at t rounds is (sqrt(2 x m2) + 3 span x) / t if by_variance, else span sqrt(x / 2 t). */
typedef struct {
    double x;
    int by_variance;
    double low, high;           /* the support, and where lows is not NULL that of each place */
    const double *lows, *highs;
    double n_rows;              /* of the population that bets are made without replacement on, or infinity */
} fr_rule;

/* Add rounds until one has a reward that is nan or outside the support at one of n places; return how many were added.
   `work` has room for 4 n doubles. */
ptrdiff_t fr_rounds_add(const fr_view *view, ptrdiff_t n_rounds, ptrdiff_t n, const fr_rule *rule, fr_sums *sums,
                        double *work);

/* Move the centres to the means after t rounds and clear s and q. */
void fr_rounds_settle(fr_sums *sums, ptrdiff_t n, double t);

/* Ends of every bracket after t rounds. */
void fr_rounds_brackets(const fr_sums *sums, ptrdiff_t n, const fr_rule *rule, double t, double *lower, double *upper);

/* Add rounds t + 1, t + 2, ... as fr_rounds_add does, and intersect the running brackets, lower and upper, with those after
   each of these rounds. Return how many were added. `work` has room for n doubles. */
ptrdiff_t fr_rounds_narrow(const fr_view *view, ptrdiff_t n_rounds, ptrdiff_t n, const fr_rule *rule, double t,
                           fr_sums *sums, double *lower, double *upper, double *work);

/* Whether the bracket of a place is empty, by more than rounding. */
int fr_rounds_empty(const fr_rule *rule, ptrdiff_t n, const double *lower, const double *upper);

/* What the ends may have been in rounds first to last, for sums that were clear before the first: with `inner` the
   largest lower and the smallest upper end of each place, else the other two. Wrong, by more than rounding, only on the
   safe side: no bracket was narrower, or wider, than that. */
void fr_rounds_reach(const fr_sums *sums, ptrdiff_t n, const fr_rule *rule, double first, double last, int inner,
                     double *lower, double *upper);

/* One more round at the named places only, with sums of their own; their brackets after t rounds. */
void fr_rounds_again(const fr_view *view, ptrdiff_t round, const ptrdiff_t *place, ptrdiff_t n, const fr_rule *rule,
                     double t, const double *centre, const double *m2, double *s, double *q, double *lower,
                     double *upper);

/* Bets of every place, in rewards scaled to [0, 1]: the sum of rewards and of squared deviations, both begun with a
   half and a quarter, and for the lower and the upper side the sums of bets, of bets times rewards, and of the price of
   the variance. lower and upper are the ends of the running intersection, in reward units. */
typedef struct {
    double *sum, *square;
    double *bets[2], *won[2], *price[2];
    double *lower, *upper;
} fr_bets;

/* Round t = 1, 2, ...: bet on one more round and narrow the brackets; `above` and `below` are the means that a place
   must be told from if it is below or above. Returns 0 without a change if a reward is nan or outside, else
   1, or 2 if a bracket became empty. `work` has room for n doubles. */
int fr_bets_round(const fr_view *view, ptrdiff_t round, ptrdiff_t n, const fr_rule *rule, double t, double above,
                  double below, fr_bets *bets, double *work);

/* The guesses that round t bets on, in reward units. */
void fr_bets_means(const fr_bets *bets, ptrdiff_t n, const fr_rule *rule, double t, double *mean);
#endif
