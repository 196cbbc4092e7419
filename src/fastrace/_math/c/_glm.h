/* Log-likelihoods of generalised linear models over blocks of rows. */
#ifndef FASTRACE_GLM_H
#define FASTRACE_GLM_H
#include <stddef.h>
#include <stdint.h>

#include "_families.h"

enum { FR_GLM_BLOCK = 256 };    /* rows whose intermediate results stay in the first-level cache */

typedef struct {
    const char *x;                              /* float32 or float64, any strides in bytes */
    ptrdiff_t row_stride, column_stride, n_columns;
    int single;                                 /* x is float32 */
    int family;
    const double *y;                            /* outcomes, or */
    const signed char *sign;                    /* where not NULL: 1 where the outcome is 1, else -1 */
    double scale, df;                           /* of families that have them, else 1 */
} fr_glm;

/* Scratch: NULL if the columns of x are adjacent, else FR_GLM_BLOCK * n_columns doubles. */

/* out[j][i] for rows[i] (NULL: first + i) and parameters theta + arms[j] * n_columns: the log-likelihood l(eta),
   eta = x . theta. With theta_hat and hat = x . theta_hat, less l(hat) + l'(hat) (eta - hat) + l''(hat) (eta - hat)^2 / 2. */
void fr_glm_fill(const fr_glm *m, const double *theta, const double *theta_hat, const int64_t *rows,
                 int64_t first, ptrdiff_t n_rows, const ptrdiff_t *arms, ptrdiff_t n_arms, double **out,
                 double *scratch);

/* out[j] += sum of the log-likelihood over rows first .. first + n_rows - 1. Block: FR_GLM_BLOCK * n_arms doubles. */
void fr_glm_sum(const fr_glm *m, const double *theta, int64_t first, ptrdiff_t n_rows, const ptrdiff_t *arms,
                ptrdiff_t n_arms, double *out, double *block, double *scratch);

/* The pieces of the above: eta[j][i] = x[rows[i]] . theta[j], rows copied as doubles, linear predictors turned into
   log-likelihoods in place. */
void fr_glm_predict(const fr_glm *m, const int64_t *rows, int64_t first, ptrdiff_t n_rows, const double *const *theta,
                    ptrdiff_t n_arms, double *const *eta, double *scratch);
void fr_glm_gather(const fr_glm *m, const int64_t *rows, int64_t first, ptrdiff_t n_rows, double *block);
void fr_glm_log_likelihood(const fr_glm *m, const int64_t *rows, int64_t first, ptrdiff_t n_rows, ptrdiff_t n_arms,
                           double **eta);

/* l, l' and l'' of n outcomes y at the predictors that l0 holds. */
void fr_glm_expand(const fr_glm *m, const double *y, ptrdiff_t n, double *l0, double *l1, double *l2);

/* l, l' and l'' at theta_hat on rows first .. first + n_rows - 1. */
void fr_glm_derivatives(const fr_glm *m, const double *theta_hat, int64_t first, ptrdiff_t n_rows, double *l0,
                        double *l1, double *l2, double *scratch);
#endif
