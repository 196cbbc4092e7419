/* Log-likelihoods of generalised linear models over blocks of rows. */
#ifndef FASTRACE_GLM_H
#define FASTRACE_GLM_H
#include <stddef.h>
#include <stdint.h>

#include "_effects.h"
#include "_families.h"

enum { FR_GLM_BLOCK = FR_ROWS };    /* rows whose intermediate results stay in the first-level cache */

typedef struct {
    const char *x;                              /* float32 or float64, any strides in bytes */
    ptrdiff_t row_stride, column_stride, n_columns;
    int single;                                 /* x is float32 */
    int family;
    const double *y;                            /* outcomes, or */
    const signed char *sign;                    /* where not NULL: 1 where the outcome is 1, else -1 */
    double scale, df;                           /* of families that have them, else 1 */
    fr_shape shape;                             /* what follows from them, by fr_glm_ready */
    ptrdiff_t n_parameters;                     /* of an arm: coefficients, effects of the factors in turn, aux if learned */
    int learned;                                /* the last parameter is aux, the logarithm of the scale; `scale` is 1 */
    const double *offset, *weight;              /* of each row: added to eta, and what its term is multiplied by; or NULL */
    const fr_factor *factors;
    int n_factors;
    const fr_sparse *sparse;                    /* where not NULL, in place of x */
    void (*gemm)(char *, char *, int *, int *, int *, double *, double *, int *, double *, int *, double *, double *,
                 int *);                        /* dgemm of BLAS, for many arms */
    const double *mirror;                       /* where not NULL: parameters such that those of arm 2 k + 1 are twice these
                                                   less those of arm 2 k; asked for in turn, they share a product */
} fr_glm;

void fr_glm_ready(fr_glm *m);

/* Functions that return int return 0, or -1 for want of memory. */

/* out[j][i] for rows[i] (NULL: first + i) and parameters theta + arms[j] * n_parameters: the log-likelihood l(eta) times the
   row's weight, eta = offset + x . theta + effects. With theta_hat and hat its eta, less l(hat) + l'(hat) (eta - hat)
   + l''(hat) (eta - hat)^2 / 2, times the weight; where aux is learned, less the expansion in both. */
int fr_glm_fill(const fr_glm *m, const double *theta, const double *theta_hat, const int64_t *rows, int64_t first,
                ptrdiff_t n_rows, const ptrdiff_t *arms, ptrdiff_t n_arms, double **out);

/* eta[j][i] of rows[i] at theta[j], at most FR_GLM_BLOCK rows. */
int fr_glm_predict(const fr_glm *m, const int64_t *rows, int64_t first, ptrdiff_t n_rows, const double *const *theta,
                   ptrdiff_t n_arms, double *const *eta);

/* What depends on y alone of n terms with a fixed scale, and is left out of them. */
void fr_glm_extra(const fr_glm *m, const double *y, ptrdiff_t n, double *out);

/* l, l' and l'' of n outcomes y, without weights, at the predictors that l0 holds. */
void fr_glm_expand(const fr_glm *m, const double *y, ptrdiff_t n, double *l0, double *l1, double *l2);

/* l, l' and l'' times the weights at theta_hat on rows first .. first + n_rows - 1. */
int fr_glm_derivatives(const fr_glm *m, const double *theta_hat, int64_t first, ptrdiff_t n_rows, double *l0,
                       double *l1, double *l2);

/* The derivatives with aux, times the weights: in aux, in eta and aux, twice in aux. `eta` has room for n_rows. */
int fr_glm_mixed(const fr_glm *m, const double *theta_hat, int64_t first, ptrdiff_t n_rows, double *eta, double *la,
                 double *lea, double *laa);

/* value += the log-likelihood at theta of rows first .. first + n_rows - 1, and gradient += its gradient in all parameters. */
int fr_glm_slope(const fr_glm *m, const double *theta, int64_t first, ptrdiff_t n_rows, double *value, double *gradient);
#endif
