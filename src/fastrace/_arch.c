#include "_arch.h"

#include <string.h>

#include "_simd.h"

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(_MSC_VER)
#pragma fp_contract(off)
#endif

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__ELF__) && defined(__GLIBC__) \
    && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CLONES
#endif

/* Into each copy, so that it is compiled for the same instruction set. */
#if defined(__GNUC__)
#define ALWAYS_INLINE inline __attribute__((always_inline))
#else
#define ALWAYS_INLINE inline
#endif

enum { LANES = 32 };

/* Natural logarithms of positive normal numbers, after fdlibm's log: below one unit in the last place, no branches. */
static ALWAYS_INLINE void log_lanes(double *x)
{
    for (int l = 0; l < LANES; l++) {
        const uint64_t root_half = 0x3fe6a09e667f3bcdULL, one = 0x3ff0000000000000ULL;
        uint64_t bits, mantissa, exponent;
        double m, k, f, s, z, half, r;
        memcpy(&bits, &x[l], sizeof bits);
        bits += one - root_half;
        exponent = (bits >> 52) | 0x4330000000000000ULL;                /* 2^52 + the biased exponent */
        mantissa = (bits & 0x000fffffffffffffULL) + root_half;          /* in [sqrt(1/2), sqrt(2)) */
        memcpy(&k, &exponent, sizeof k);
        memcpy(&m, &mantissa, sizeof m);
        k -= 4503599627371519.0;
        f = m - 1.0;
        s = f / (2.0 + f);
        z = s * s;
        half = 0.5 * f * f;
        r = z * (6.666666666666735130e-01 + z * (3.999999999940941908e-01 + z * (2.857142874366239149e-01
            + z * (2.222219843214978396e-01 + z * (1.818357216161805012e-01 + z * (1.531383769920937332e-01
            + z * 1.479819860511658591e-01))))));
        x[l] = k * 6.93147180369123816490e-01 - ((half - (s * (half + r) + k * 1.90821492927058770002e-10)) - f);
    }
}

/* Terms of LANES rows, of which lag[i][l] is the square i steps before row l; variances into v. */
static ALWAYS_INLINE void terms(const double *const *lag, const arch_model_t *model, double *v, double *term)
{
    double near[LANES], far[LANES];
    const double log_weight = 0.5 * model->nu, far_weight = 0.5 * (model->nu + 1.0);
    for (int l = 0; l < LANES; l++) v[l] = model->weight[0];
    for (ptrdiff_t i = 1; i <= model->q; i++) {
        const double w = model->weight[i], *square = lag[i];
        for (int l = 0; l < LANES; l++) v[l] += w * square[l];
    }
    for (int l = 0; l < LANES; l++) {
        near[l] = v[l];
        far[l] = model->nu * v[l] + lag[0][l];
    }
    log_lanes(near);
    log_lanes(far);
    for (int l = 0; l < LANES; l++) term[l] = model->constant + log_weight * near[l] - far_weight * far[l];
}

/* Squares of up to LANES rows by lag, side by side. Neighbours in memory are used where they stand. */
static ALWAYS_INLINE void windows(const double *squares, const int64_t *positions, int64_t first, int size, ptrdiff_t most_lags,
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
