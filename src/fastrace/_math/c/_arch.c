#include "_arch.h"

#include "_clones.h"
#include "_simd.h"
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
FR_INLINE void variances(const double *const *lag, const arch_model_t *one, const arch_model_t *two, double *v, double *w)
{
    ptrdiff_t i = 1, both = one->q < two->q ? one->q : two->q;
    for (int l = 0; l < LANES; l++) {
        v[l] = one->weight[0];
        w[l] = two->weight[0];
    }
    for (; i <= both; i++) {
        const double a = one->weight[i], b = two->weight[i], *square = lag[i];
        for (int l = 0; l < LANES; l++) {
            v[l] += a * square[l];
            w[l] += b * square[l];
        }
    }
    for (ptrdiff_t k = i; k <= one->q; k++)
        for (int l = 0; l < LANES; l++) v[l] += one->weight[k] * lag[k][l];
    for (ptrdiff_t k = i; k <= two->q; k++)
        for (int l = 0; l < LANES; l++) w[l] += two->weight[k] * lag[k][l];
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
        const double *at = squares + (positions ? positions[row] : first + row);
        for (ptrdiff_t i = 0; i <= most_lags; i++) copy[i][l] = at[-i];
    }
    for (ptrdiff_t i = 0; i <= most_lags; i++) lag[i] = copy[i];
}

static ptrdiff_t longest(const arch_model_t *models, const ptrdiff_t *names, ptrdiff_t n_names)
{
    ptrdiff_t q = 0;
    for (ptrdiff_t j = 0; j < n_names; j++)
        if (models[names[j]].q > q) q = models[names[j]].q;
    return q;
}

/* Less the second-order expansion of each term in (variance, nu) about the variances u and the nu of the mode. */
FR_INLINE void residuals(const double *square, const double *v, double nu, const arch_mode_t *mode, const double *u,
                         double *term)
{
    const double n = mode->model.nu, half = 0.5 * (n + 1.0), dn = nu - n, log_n = log(n);
    const double slope = mode->dn, bend = mode->dnn;
    for (int l = 0; l < LANES; l++) {
        double d = n * u[l] + square[l], inverse = 1.0 / (u[l] * d), inverse_u = d * inverse;
        double share = square[l] * u[l] * inverse;                      /* square / d, in [0, 1) */
        double log_u = log_positive(u[l]), log_d = log_positive(d), dv = (v[l] - u[l]) * inverse_u;
        double value = mode->model.constant + 0.5 * n * log_u - half * log_d;
        double by_v = half * share - 0.5;
        double by_n = slope + 0.5 * (log_u + log_n - log_d) + half * share / n;
        double by_vv = 0.5 - half * share * (2.0 - share);
        double by_vn = 0.5 * share * (share - u[l] * u[l] * inverse);
        double by_nn = bend + 0.5 * share * (n - 1.0 - (n + 1.0) * (1.0 - share)) / (n * n);
        term[l] -= value + dn * (by_n + 0.5 * dn * by_nn) + dv * (by_v + dn * by_vn + 0.5 * dv * by_vv);
    }
}

/* The same in the logarithms of the weights and of nu, which move by dlog: v and nu are exponentials there, so each
   brings its own second derivative. dv and ddv are sums of weight times dlog, and times its square, times the squares. */
FR_INLINE void log_residuals(const double *square, double dlog_nu, const arch_mode_t *mode, const double *u,
                             const double *dv, const double *ddv, double *term)
{
    const double n = mode->model.nu, half = 0.5 * (n + 1.0), log_n = log(n), dn = n * dlog_nu;
    const double dn2 = dn * (1.0 + 0.5 * dlog_nu), slope = mode->dn, bend = mode->dnn;
    for (int l = 0; l < LANES; l++) {
        double d = n * u[l] + square[l], inverse = 1.0 / (u[l] * d), inverse_u = d * inverse;
        double share = square[l] * u[l] * inverse;
        double log_u = log_positive(u[l]), log_d = log_positive(d);
        double x = dv[l] * inverse_u, x2 = x + 0.5 * ddv[l] * inverse_u;
        double value = mode->model.constant + 0.5 * n * log_u - half * log_d;
        double by_v = half * share - 0.5;
        double by_n = slope + 0.5 * (log_u + log_n - log_d) + half * share / n;
        double by_vv = 0.5 - half * share * (2.0 - share);
        double by_vn = 0.5 * share * (share - u[l] * u[l] * inverse);
        double by_nn = bend + 0.5 * share * (n - 1.0 - (n + 1.0) * (1.0 - share)) / (n * n);
        term[l] -= value + dn2 * by_n + x2 * by_v + 0.5 * dn * dn * by_nn + x * (dn * by_vn + 0.5 * x * by_vv);
    }
}

CLONES
void fr_arch_terms(const double *squares, const int64_t *positions, ptrdiff_t n_rows, const arch_model_t *models,
                   const arch_mode_t *modes, const ptrdiff_t *names, ptrdiff_t n_names, double **out)
{
    const double *lag[ARCH_MOST_LAGS + 1];
    double copy[ARCH_MOST_LAGS + 1][LANES], v[LANES], u[LANES], term[LANES];
    ptrdiff_t most_lags = longest(models, names, n_names);
    for (ptrdiff_t start = 0; start < n_rows; start += LANES) {
        int size = n_rows - start < LANES ? (int)(n_rows - start) : LANES;
        windows(squares, positions + start, 0, size, most_lags, lag, copy);
        for (ptrdiff_t j = 0; j < n_names; j++) {
            const arch_model_t *model = &models[names[j]];
            variances(lag, model, modes ? &modes[names[j]].model : model, v, u);
            terms(lag[0], model, v, term);
            if (modes) residuals(lag[0], v, model->nu, &modes[names[j]], u, term);
            memcpy(out[j] + start, term, (size_t)size * sizeof *term);
        }
    }
}

CLONES
void fr_arch_sums(const double *squares, const int64_t *positions, int64_t first, ptrdiff_t n_rows,
                  const arch_model_t *models, const ptrdiff_t *names, ptrdiff_t n_names, double *out)
{
    const double *lag[ARCH_MOST_LAGS + 1];
    double copy[ARCH_MOST_LAGS + 1][LANES], v[2][LANES], term[LANES];
    ptrdiff_t most_lags = longest(models, names, n_names);
    for (ptrdiff_t j = 0; j < n_names; j++) out[j] = 0.0;
    for (ptrdiff_t start = 0; start < n_rows; start += LANES) {
        int size = n_rows - start < LANES ? (int)(n_rows - start) : LANES;
        windows(squares, positions ? positions + start : NULL, first + start, size, most_lags, lag, copy);
        for (ptrdiff_t j = 0; j < n_names; j++) {
            const arch_model_t *model = &models[names[j]];
            if (j % 2 == 0) variances(lag, model, &models[names[j + 1 < n_names ? j + 1 : j]], v[0], v[1]);
            terms(lag[0], model, v[j % 2], term);
            out[j] += fr_sum(term, size);
        }
    }
}

CLONES
void fr_arch_log_residuals(const double *squares, const int64_t *positions, int64_t first, ptrdiff_t n_rows,
                           const arch_model_t *model, const arch_mode_t *mode, const double *const *moves,
                           double dlog_nu, double *out)
{
    const double *lag[ARCH_MOST_LAGS + 1];
    double copy[ARCH_MOST_LAGS + 1][LANES], v[LANES], u[LANES], dv[LANES], ddv[LANES], term[LANES];
    arch_model_t once = {moves[0], model->q, 0.0, 0.0}, twice = {moves[1], model->q, 0.0, 0.0};
    for (ptrdiff_t start = 0; start < n_rows; start += LANES) {
        int size = n_rows - start < LANES ? (int)(n_rows - start) : LANES;
        windows(squares, positions ? positions + start : NULL, first + start, size, model->q, lag, copy);
        variances(lag, model, &mode->model, v, u);
        variances(lag, &once, &twice, dv, ddv);
        terms(lag[0], model, v, term);
        log_residuals(lag[0], dlog_nu, mode, u, dv, ddv, term);
        memcpy(out + start, term, (size_t)size * sizeof *term);
    }
}

CLONES
void fr_arch_range(const double *squares, const int64_t *positions, int64_t first, ptrdiff_t n_rows,
                   const arch_model_t *model, double *out)
{
    const double *lag[ARCH_MOST_LAGS + 1];
    double copy[ARCH_MOST_LAGS + 1][LANES], v[2][LANES], term[LANES];
    for (ptrdiff_t start = 0; start < n_rows; start += LANES) {
        int size = n_rows - start < LANES ? (int)(n_rows - start) : LANES;
        windows(squares, positions ? positions + start : NULL, first + start, size, model->q, lag, copy);
        variances(lag, model, model, v[0], v[1]);
        terms(lag[0], model, v[0], term);
        memcpy(out + start, term, (size_t)size * sizeof *term);
    }
}
