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
    double nu_step;             /* nu minus its value where the expansion stands */
} arch_model_t;

/* A term's second-order expansion in (variance, nu): one cache line per row and model. */
typedef struct {
    double value, variance, dv, dn, dvv, dvn, dnn, unused;
} arch_expansion_t;

/* Terms of each of the named models on the rows that stand at positions[i] in `squares`: out[j][i]. With `expansion`,
   n_models records for each row of the population, less their expansions: records[i] is the row's number there. */
void fr_arch_terms(const double *squares, const int64_t *positions, const int64_t *records, ptrdiff_t n_rows,
                   const arch_model_t *models, const ptrdiff_t *names, ptrdiff_t n_names,
                   const arch_expansion_t *expansion, ptrdiff_t n_models, double **out);

/* Sums of the terms of each of the named models: on the rows at positions[i], or with NULL at first, first + 1, ... */
void fr_arch_sums(const double *squares, const int64_t *positions, int64_t first, ptrdiff_t n_rows,
                  const arch_model_t *models, const ptrdiff_t *names, ptrdiff_t n_names, double *out);

enum { ARCH_MOST_LAGS = 64 };

#endif
