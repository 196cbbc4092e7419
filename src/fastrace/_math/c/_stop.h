/* Blocks of rewards of one stream: are they good, and may a stopping rule fire on them? Every result is the same on
   every instruction set, and the exact ones equal what one reward at a time gives, bit for bit. */
#ifndef FASTRACE_STOP_H
#define FASTRACE_STOP_H
#include <stddef.h>

/* Whether low <= x[i] <= high for every i; false if one is nan. */
int fr_all_within(const double *x, ptrdiff_t n, double low, double high);

/* The mean of t rewards is centre + s / t and their sum of squared deviations m2 + q - s^2 / t, where s and q add up
   what came since m2 was known: deviations from the centre, and their squares. */
typedef struct {
    double centre, m2;
    double t;               /* rewards before the block */
    double x, span;         /* the half-width is (sqrt(2 x m2) + 3 span x) / t: empirical_bernstein_within of _bounds.pxd */
    int absolute;           /* bracket the absolute value of the mean */
} fr_look;

/* Continue the sums s and q over a block, keeping every intermediate value. */
void fr_prefix_sums(const double *x, ptrdiff_t n, double centre, double *s, double *q, double *all_s, double *all_q);

/* False only if no reward of the block raises `lower` or reduces `upper`, for x as given or larger. */
int fr_may_improve(const fr_look *look, const double *s, const double *q, ptrdiff_t n, double lower, double upper);

/* Largest lower and smallest upper end over the block. */
void fr_extremes(const fr_look *look, const double *s, const double *q, ptrdiff_t n, double *lower, double *upper);
#endif
