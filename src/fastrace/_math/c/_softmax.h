/* Log-likelihoods of multinomial logistic regression, from linear predictors of a block of rows. */
#ifndef FASTRACE_SOFTMAX_H
#define FASTRACE_SOFTMAX_H
#include <stddef.h>
#include <stdint.h>

#include "_glm.h"

/* A block has n <= FR_GLM_BLOCK rows. eta, hat and share hold a value per row for each of the classes 1 ... n_free, class
   k at (k - 1) * FR_GLM_BLOCK; that of class 0 is fixed at eta = 0. */

/* out[i] = eta of the class of row i, less the logarithm of the summed exponentials. */
void fr_softmax_terms(const double *eta, ptrdiff_t n_free, const int32_t *label, ptrdiff_t n, double *out);

/* Where terms are expanded: probabilities of the free classes, and the logarithms of the summed exponentials. */
void fr_softmax_expand(const double *hat, ptrdiff_t n_free, ptrdiff_t n, double *share, double *log_sum);

/* out[i] = the term less its second-order expansion about hat. It does not depend on the row's class. */
void fr_softmax_residuals(const double *eta, const double *hat, const double *share, const double *log_sum,
                          ptrdiff_t n_free, ptrdiff_t n, double *out);

/* out[i] += the cube of the range of eta over all classes. */
void fr_softmax_cubes(const double *eta, ptrdiff_t n_free, ptrdiff_t n, double *out);
#endif
