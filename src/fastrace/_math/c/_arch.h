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

/* Where a model's terms are expanded in (variance, nu), and the parts of their derivatives by nu that no row changes. */
typedef struct {
    arch_model_t model;
    double dn, dnn;
} arch_mode_t;

/* Terms of each of the named models on the rows that stand at positions[i] in `squares`: out[j][i]. With `modes`, one
   for each model, less their second-order expansions there. */
void fr_arch_terms(const double *squares, const int64_t *positions, ptrdiff_t n_rows, const arch_model_t *models,
                   const arch_mode_t *modes, const ptrdiff_t *names, ptrdiff_t n_names, double **out);

/* Sums of the terms of each of the named models: on the rows at positions[i], or with NULL at first, first + 1, ... */
void fr_arch_sums(const double *squares, const int64_t *positions, int64_t first, ptrdiff_t n_rows,
                  const arch_model_t *models, const ptrdiff_t *names, ptrdiff_t n_names, double *out);

/* Terms of one model on the rows at positions[i], or with NULL at first, first + 1, ...; and less their second-order
   expansions in the logarithms of weights and nu, which have moved from the mode's by dlog: moves[0] holds the mode's
   weights times dlog, moves[1] times its square. */
void fr_arch_range(const double *squares, const int64_t *positions, int64_t first, ptrdiff_t n_rows,
                   const arch_model_t *model, double *out);
void fr_arch_log_residuals(const double *squares, const int64_t *positions, int64_t first, ptrdiff_t n_rows,
                           const arch_model_t *model, const arch_mode_t *mode, const double *const *moves,
                           double dlog_nu, double *out);

enum { ARCH_MOST_LAGS = 64 };

#endif
