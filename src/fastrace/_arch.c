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

/* Terms of LANES rows, of which lag[i][l] is the square i steps before row l; variances into v. */
FR_INLINE void terms(const double *const *lag, const arch_model_t *model, double *v, double *term)
{
    const double log_weight = 0.5 * model->nu, far_weight = 0.5 * (model->nu + 1.0);
    for (int l = 0; l < LANES; l++) v[l] = model->weight[0];
    for (ptrdiff_t i = 1; i <= model->q; i++) {
        const double w = model->weight[i], *square = lag[i];
        for (int l = 0; l < LANES; l++) v[l] += w * square[l];
    }
    for (int l = 0; l < LANES; l++)
        term[l] = model->constant + log_weight * log_positive(v[l])
                  - far_weight * log_positive(model->nu * v[l] + lag[0][l]);
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

CLONES
void fr_arch_terms(const double *squares, const int64_t *positions, const int64_t *records, ptrdiff_t n_rows,
                   const arch_model_t *models, const ptrdiff_t *names, ptrdiff_t n_names,
                   const arch_expansion_t *expansion, ptrdiff_t n_models, double **out)
{
    const double *lag[ARCH_MOST_LAGS + 1];
    double copy[ARCH_MOST_LAGS + 1][LANES], v[LANES], term[LANES];
    ptrdiff_t most_lags = longest(models, names, n_names);
    for (ptrdiff_t start = 0; start < n_rows; start += LANES) {
        int size = n_rows - start < LANES ? (int)(n_rows - start) : LANES;
        windows(squares, positions + start, 0, size, most_lags, lag, copy);
        for (ptrdiff_t j = 0; j < n_names; j++) {
            const arch_model_t *model = &models[names[j]];
            const double dn = model->nu_step;
            terms(lag, model, v, term);
            if (expansion)
                for (int l = 0; l < size; l++) {
                    const arch_expansion_t *e = expansion + records[start + l] * n_models + names[j];
                    double dv = v[l] - e->variance;
                    term[l] -= e->value + dn * (e->dn + 0.5 * dn * e->dnn)
                               + dv * (e->dv + dn * e->dvn + 0.5 * dv * e->dvv);
                }
            memcpy(out[j] + start, term, (size_t)size * sizeof *term);
        }
    }
}

CLONES
void fr_arch_sums(const double *squares, const int64_t *positions, int64_t first, ptrdiff_t n_rows,
                  const arch_model_t *models, const ptrdiff_t *names, ptrdiff_t n_names, double *out)
{
    const double *lag[ARCH_MOST_LAGS + 1];
    double copy[ARCH_MOST_LAGS + 1][LANES], v[LANES], term[LANES];
    ptrdiff_t most_lags = longest(models, names, n_names);
    for (ptrdiff_t j = 0; j < n_names; j++) out[j] = 0.0;
    for (ptrdiff_t start = 0; start < n_rows; start += LANES) {
        int size = n_rows - start < LANES ? (int)(n_rows - start) : LANES;
        windows(squares, positions ? positions + start : NULL, first + start, size, most_lags, lag, copy);
        for (ptrdiff_t j = 0; j < n_names; j++) {
            terms(lag, &models[names[j]], v, term);
            out[j] += fr_sum(term, size);
        }
    }
}
