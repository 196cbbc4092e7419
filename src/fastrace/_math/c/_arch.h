#ifndef FASTRACE_ARCH_H
#define FASTRACE_ARCH_H

#include <stddef.h>
#include <stdint.h>

/* One ARCH(q) model with Student-t errors: the variance of row t is weight[0] + sum of weight[i] squares[t - i]. */
typedef struct {
    const double *weight;       /* q + 1 values */
    ptrdiff_t q;
    double nu;
    double constant;            /* the part of a term that no row changes */
} arch_model_t;

/* Where a model's terms are expanded, and how far its parameters are from there. The caller fills it in. */
typedef struct {
    arch_model_t hat;
    double by_nu, by_nu_nu;     /* parts of the derivatives by nu that no row changes */
    double dn, dn2;             /* how far nu is, to first and to second order */
    const double *once, *twice; /* expansions in logarithms: hat's weights times how far their logarithms are, and times
                                   the square of that. NULL: expansions in the variance and nu themselves. */
} arch_expansion_t;

/* out[j][i]: terms of models[j] on the row at first + positions[i] in `squares`, or first + i if `positions` is NULL. With
   `expansions`, one for each model, less these. */
void fr_arch_terms(const double *squares, const int64_t *positions, int64_t first, ptrdiff_t n_rows,
                   const arch_model_t *models, const arch_expansion_t *expansions, ptrdiff_t n_models, double *const *out);

enum { ARCH_MOST_LAGS = 64 };

#endif
