#include "_softmax.h"

#include "_clones.h"
#include "_vecmath.h"

enum { STRIDE = FR_GLM_BLOCK };

/* The largest predictor is taken off first, so that exponents are at most 0 and their sum is in [1, n_free + 1]. */
FR_INLINE void log_sums(const double *restrict eta, ptrdiff_t n_free, ptrdiff_t n, double *restrict sum)
{
    double top[STRIDE];
    for (ptrdiff_t i = 0; i < n; i++) top[i] = 0.0;
    for (ptrdiff_t k = 0; k < n_free; k++)
        for (ptrdiff_t i = 0; i < n; i++) top[i] = eta[k * STRIDE + i] > top[i] ? eta[k * STRIDE + i] : top[i];
    for (ptrdiff_t i = 0; i < n; i++) sum[i] = fr_exp_minus_abs(top[i]);
    for (ptrdiff_t k = 0; k < n_free; k++)
        for (ptrdiff_t i = 0; i < n; i++) sum[i] += fr_exp_minus_abs(top[i] - eta[k * STRIDE + i]);
    for (ptrdiff_t i = 0; i < n; i++) sum[i] = top[i] + fr_log1p1(sum[i] - 1.0);
}

CLONES
void fr_softmax_terms(const double *eta, ptrdiff_t n_free, const int32_t *label, ptrdiff_t n, double *out)
{
    double sum[STRIDE];
    log_sums(eta, n_free, n, sum);
    for (ptrdiff_t i = 0; i < n; i++) out[i] = (label[i] ? eta[(label[i] - 1) * (ptrdiff_t)STRIDE + i] : 0.0) - sum[i];
}

CLONES
void fr_softmax_expand(const double *hat, ptrdiff_t n_free, ptrdiff_t n, double *share, double *log_sum)
{
    log_sums(hat, n_free, n, log_sum);
    for (ptrdiff_t k = 0; k < n_free; k++)
        for (ptrdiff_t i = 0; i < n; i++) share[k * STRIDE + i] = fr_exp_minus_abs(log_sum[i] - hat[k * STRIDE + i]);
}

/* With d = eta - hat and p the shares at hat, the log-sum is expanded to p.d + (p.d^2 - (p.d)^2) / 2; the predictor of
   the row's own class is linear and cancels. */
CLONES
void fr_softmax_residuals(const double *eta, const double *hat, const double *share, const double *log_sum,
                          ptrdiff_t n_free, ptrdiff_t n, double *out)
{
    double sum[STRIDE], first[STRIDE], second[STRIDE];
    log_sums(eta, n_free, n, sum);
    for (ptrdiff_t i = 0; i < n; i++) first[i] = second[i] = 0.0;
    for (ptrdiff_t k = 0; k < n_free; k++)
        for (ptrdiff_t i = 0; i < n; i++) {
            double d = eta[k * STRIDE + i] - hat[k * STRIDE + i], pd = share[k * STRIDE + i] * d;
            first[i] += pd;
            second[i] += pd * d;
        }
    for (ptrdiff_t i = 0; i < n; i++)
        out[i] = (log_sum[i] - sum[i]) + (first[i] + 0.5 * (second[i] - first[i] * first[i]));
}

CLONES
void fr_softmax_cubes(const double *eta, ptrdiff_t n_free, ptrdiff_t n, double *out)
{
    double least[STRIDE], most[STRIDE];
    for (ptrdiff_t i = 0; i < n; i++) least[i] = most[i] = 0.0;
    for (ptrdiff_t k = 0; k < n_free; k++)
        for (ptrdiff_t i = 0; i < n; i++) {
            double x = eta[k * STRIDE + i];
            least[i] = x < least[i] ? x : least[i];
            most[i] = x > most[i] ? x : most[i];
        }
    for (ptrdiff_t i = 0; i < n; i++) {
        double range = most[i] - least[i];
        out[i] += range * range * range;
    }
}
