#include "_arch.h"

#include "_clones.h"
#include "_vecmath.h"

enum { LANES = 32 };

/* Natural logarithm of a positive normal number: x = 2^k m with m within [sqrt(1/2), sqrt(2)). */
FR_INLINE double log_positive(double x)
{
    uint64_t shifted = fr_bits(x) - 0x3fe6a09e667f3bcdULL;
    uint64_t biased = (shifted + 0x3ff0000000000000ULL) >> 52;
    double k = fr_double(biased + 0x4330000000000000ULL) - (0x1p52 + 1023.0);
    double m = fr_double((shifted & 0x000fffffffffffffULL) + 0x3fe6a09e667f3bcdULL);
    return k * 0x1.62e42p-1 + (fr_two_atanh((m - 1.0) / (m + 1.0)) + k * 0x1.fdf473de6af28p-22);
}

/* Variances of LANES rows, of which lag[i][l] is the square i steps before row l, under two models at a time: squares
   seldom stand where vectors load at once, so each load serves both. */
FR_INLINE void variances(const double *const *lag, const arch_model_t *model, const arch_model_t *other, double *v,
                         double *w)
{
    ptrdiff_t i = 1, both = model->q < other->q ? model->q : other->q;
    for (int l = 0; l < LANES; l++) {
        v[l] = model->weight[0];
        w[l] = other->weight[0];
    }
    for (; i <= both; i++) {
        const double a = model->weight[i], b = other->weight[i], *square = lag[i];
        for (int l = 0; l < LANES; l++) {
            v[l] += a * square[l];
            w[l] += b * square[l];
        }
    }
    for (ptrdiff_t k = i; k <= model->q; k++)
        for (int l = 0; l < LANES; l++) v[l] += model->weight[k] * lag[k][l];
    for (ptrdiff_t k = i; k <= other->q; k++)
        for (int l = 0; l < LANES; l++) w[l] += other->weight[k] * lag[k][l];
}

FR_INLINE void terms(const double *square, const arch_model_t *model, const double *v, double *term)
{
    const double log_weight = 0.5 * model->nu, far_weight = 0.5 * (model->nu + 1.0);
    for (int l = 0; l < LANES; l++)
        term[l] = model->constant + log_weight * log_positive(v[l])
                  - far_weight * log_positive(model->nu * v[l] + square[l]);
}

/* Squares of up to LANES rows by lag, side by side. Neighbours in memory are used where they stand. */
FR_INLINE void windows(const double *squares, const int64_t *positions, int64_t first, int size, ptrdiff_t most_lags,
                           const double **lag, double (*copy)[LANES])
{
    if (!positions && size == LANES) {
        for (ptrdiff_t i = 0; i <= most_lags; i++) lag[i] = squares + first - i;
        return;
    }
    for (int l = 0; l < LANES; l++) {
        int row = l < size ? l : 0;                                     /* idle lanes repeat a row */
        const double *square = squares + first + (positions ? positions[row] : row);
        for (ptrdiff_t i = 0; i <= most_lags; i++) copy[i][l] = square[-i];
    }
    for (ptrdiff_t i = 0; i <= most_lags; i++) lag[i] = copy[i];
}

/* Less the second-order expansion of each term about the variances u and the nu of the hat, in the logarithms of weights
   and nu or in variance and nu. In logarithms v and nu are exponentials, so each brings its own second derivative: dv is
   the first and ddv the second order of how far v is from u. */
FR_INLINE void take_off(const double *square, const arch_expansion_t *about, const double *u, const double *dv,
                        const double *ddv, double *term)
{
    const double n = about->hat.nu, half = 0.5 * (n + 1.0), log_n = log(n), dn = about->dn, dn2 = about->dn2;
    const double slope = about->by_nu, bend = about->by_nu_nu, constant = about->hat.constant;
    for (int l = 0; l < LANES; l++) {
        double d = n * u[l] + square[l], inverse = 1.0 / (u[l] * d), inverse_u = d * inverse;
        double share = square[l] * u[l] * inverse;                      /* square / d, in [0, 1) */
        double log_u = log_positive(u[l]), log_d = log_positive(d);
        double x = dv[l] * inverse_u, x2 = x + 0.5 * ddv[l] * inverse_u;
        double value = constant + 0.5 * n * log_u - half * log_d;
        double by_v = half * share - 0.5;
        double by_n = slope + 0.5 * (log_u + log_n - log_d) + half * share / n;
        double by_vv = 0.5 - half * share * (2.0 - share);
        double by_vn = 0.5 * share * (share - u[l] * u[l] * inverse);
        double by_nn = bend + 0.5 * share * (n - 1.0 - (n + 1.0) * (1.0 - share)) / (n * n);
        term[l] -= value + dn2 * by_n + x2 * by_v + 0.5 * dn * dn * by_nn + x * (dn * by_vn + 0.5 * x * by_vv);
    }
}

CLONES
void fr_arch_terms(const double *squares, const int64_t *positions, int64_t first, ptrdiff_t n_rows,
                   const arch_model_t *models, const arch_expansion_t *expansions, ptrdiff_t n_models, double *const *out)
{
    const double *lag[ARCH_MOST_LAGS + 1];
    double copy[ARCH_MOST_LAGS + 1][LANES], v[2][LANES], u[LANES], dv[LANES], ddv[LANES], term[LANES];
    ptrdiff_t most_lags = 0;
    for (ptrdiff_t j = 0; j < n_models; j++) most_lags = models[j].q > most_lags ? models[j].q : most_lags;
    for (ptrdiff_t start = 0; start < n_rows; start += LANES) {
        int size = n_rows - start < LANES ? (int)(n_rows - start) : LANES;
        windows(squares, positions ? positions + start : NULL, positions ? first : first + start, size, most_lags, lag,
                copy);
        for (ptrdiff_t j = 0; j < n_models; j++) {
            const arch_expansion_t *about = expansions ? &expansions[j] : NULL;
            const double *variance = v[about ? 0 : j % 2];
            if (about) variances(lag, &models[j], &about->hat, v[0], u);
            else if (j % 2 == 0) variances(lag, &models[j], &models[j + 1 < n_models ? j + 1 : j], v[0], v[1]);
            terms(lag[0], &models[j], variance, term);
            if (about && about->once) {
                arch_model_t once = {about->once, models[j].q, 0.0, 0.0}, twice = {about->twice, models[j].q, 0.0, 0.0};
                variances(lag, &once, &twice, dv, ddv);
            } else if (about) {
                for (int l = 0; l < LANES; l++) {
                    dv[l] = variance[l] - u[l];
                    ddv[l] = 0.0;
                }
            }
            if (about) take_off(lag[0], about, u, dv, ddv, term);
            memcpy(out[j] + start, term, (size_t)size * sizeof *term);
        }
    }
}
