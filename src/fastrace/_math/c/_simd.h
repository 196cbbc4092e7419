/* Reductions of doubles in a fixed order: the same bits from every instruction set and compiler. */
#ifndef FASTRACE_SIMD_H
#define FASTRACE_SIMD_H
#include <stddef.h>

double fr_sum(const double *x, ptrdiff_t n);

/* Two passes over x, which should fit the first-level cache: the mean as a sum of two doubles, and the sum of squared
   deviations. All are 0 when n is 0. */
void fr_centred(const double *x, ptrdiff_t n, double *out);
/* Mean and sums of the second, third and fourth power of deviations; the second form of x - y. */
void fr_moments4(const double *x, ptrdiff_t n, double *out);
void fr_moments4_difference(const double *x, const double *y, ptrdiff_t n, double *out);

/* Smallest and largest, leaving out nan; inf and -inf when nothing is left. */
void fr_range(const double *x, ptrdiff_t n, double *low, double *high);
int fr_all_finite(const double *x, ptrdiff_t n);

/* out = center + L z for a lower triangular L, given column after column from the diagonal down. Each entry is summed
   from the first column on. */
void fr_lower_product(const double *columns, const double *center, const double *z, ptrdiff_t d, double *out);
#endif
