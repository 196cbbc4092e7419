#include "_clones.h"
#include "_simd.h"

#include <math.h>

/* Each reduction keeps LANES partial results, lane l over x[l], x[l + LANES], ..., and folds them by halves. The
   compiler may put the lanes in any registers: the order of additions, and so every bit, stays. */
enum { LANES = 32,        /* fewer, and gcc unrolls them away before it can vectorise them */
       CHUNK = 1024 };    /* values between two looks at an early answer */

static inline double fold(double *lane)
{
    for (int width = LANES / 2; width; width /= 2)
        for (int l = 0; l < width; l++) lane[l] += lane[l + width];
    return lane[0];
}

CLONES
double fr_sum(const double *x, ptrdiff_t n)
{
    double s[LANES] = {0};
    ptrdiff_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) s[l] += x[i + l];
    for (int l = 0; i < n; i++, l++) s[l] += x[i];
    return fold(s);
}

/* The second pass also sums the plain deviations: what they fail to cancel is the rounding error of the mean. */
CLONES
void fr_centred(const double *x, ptrdiff_t n, double *out)
{
    double s1[LANES] = {0}, s2[LANES] = {0};
    double mean, error;
    ptrdiff_t i;
    out[0] = out[1] = out[2] = 0.0;
    if (n <= 0) return;
    mean = fr_sum(x, n) / (double)n;
    for (i = 0; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) {
            double d = x[i + l] - mean;
            s1[l] += d;
            s2[l] += d * d;
        }
    for (int l = 0; i < n; i++, l++) {
        double d = x[i] - mean;
        s1[l] += d;
        s2[l] += d * d;
    }
    error = fold(s1);
    out[0] = mean;
    out[1] = error / (double)n;
    out[2] = fold(s2) - error * out[1];
    if (out[2] < 0.0) out[2] = 0.0;
}

/* From sums of powers of d about a mean that is e too small. */
static void finish4(double mean, double n, double s1, double s2, double s3, double s4, double *out)
{
    double e = s1 / n;
    out[0] = mean + e;
    out[1] = s2 - n * e * e;
    out[2] = s3 - 3.0 * e * s2 + 2.0 * n * e * e * e;
    out[3] = s4 - 4.0 * e * s3 + 6.0 * e * e * s2 - 3.0 * n * e * e * e * e;
    if (out[1] < 0.0) out[1] = 0.0;
    if (out[3] < 0.0) out[3] = 0.0;
}

/* `D(i)` is the value, so that values and differences share one body. */
#define MOMENTS4(D)                                                                 \
    double s1[LANES] = {0}, s2[LANES] = {0}, s3[LANES] = {0}, s4[LANES] = {0};      \
    double mean;                                                                    \
    ptrdiff_t i;                                                                    \
    out[0] = out[1] = out[2] = out[3] = 0.0;                                        \
    if (n <= 0) return;                                                             \
    for (i = 0; i + LANES <= n; i += LANES)                                         \
        for (int l = 0; l < LANES; l++) s1[l] += D(i + l);                          \
    for (int l = 0; i < n; i++, l++) s1[l] += D(i);                                 \
    mean = fold(s1) / (double)n;                                                    \
    for (int l = 0; l < LANES; l++) s1[l] = 0.0;                                    \
    for (i = 0; i + LANES <= n; i += LANES)                                         \
        for (int l = 0; l < LANES; l++) {                                           \
            double d = D(i + l) - mean, square = d * d;                             \
            s1[l] += d;                                                             \
            s2[l] += square;                                                        \
            s3[l] += square * d;                                                    \
            s4[l] += square * square;                                               \
        }                                                                           \
    for (int l = 0; i < n; i++, l++) {                                              \
        double d = D(i) - mean, square = d * d;                                     \
        s1[l] += d;                                                                 \
        s2[l] += square;                                                            \
        s3[l] += square * d;                                                        \
        s4[l] += square * square;                                                   \
    }                                                                               \
    finish4(mean, (double)n, fold(s1), fold(s2), fold(s3), fold(s4), out)

#define VALUE(i) x[i]
#define DIFFERENCE(i) (x[i] - y[i])

CLONES
void fr_moments4(const double *x, ptrdiff_t n, double *out)
{
    MOMENTS4(VALUE);
}

CLONES
void fr_moments4_difference(const double *x, const double *y, ptrdiff_t n, double *out)
{
    MOMENTS4(DIFFERENCE);
}

CLONES
void fr_range(const double *x, ptrdiff_t n, double *low, double *high)
{
    double a[LANES], b[LANES];
    ptrdiff_t i = 0;
    for (int l = 0; l < LANES; l++) {
        a[l] = HUGE_VAL;
        b[l] = -HUGE_VAL;
    }
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) {
            a[l] = x[i + l] < a[l] ? x[i + l] : a[l];
            b[l] = x[i + l] > b[l] ? x[i + l] : b[l];
        }
    for (int l = 0; i < n; i++, l++) {
        a[l] = x[i] < a[l] ? x[i] : a[l];
        b[l] = x[i] > b[l] ? x[i] : b[l];
    }
    for (int l = 1; l < LANES; l++) {
        a[0] = a[l] < a[0] ? a[l] : a[0];
        b[0] = b[l] > b[0] ? b[l] : b[0];
    }
    *low = a[0];
    *high = b[0];
}

/* Zero times a finite number is zero, and anything else nan. */
CLONES
int fr_all_finite(const double *x, ptrdiff_t n)
{
    for (ptrdiff_t start = 0; start < n; start += CHUNK) {
        ptrdiff_t end = n - start < CHUNK ? n : start + CHUNK, i = start;
        double s[LANES] = {0};
        for (; i + LANES <= end; i += LANES)
            for (int l = 0; l < LANES; l++) s[l] += 0.0 * x[i + l];
        for (int l = 0; i < end; i++, l++) s[l] += 0.0 * x[i];
        if (fold(s) != 0.0) return 0;
    }
    return 1;
}

CLONES
void fr_lower_product(const double *restrict columns, const double *restrict center, const double *restrict z,
                      ptrdiff_t d, double *restrict out)
{
    for (ptrdiff_t i = 0; i < d; i++) out[i] = 0.0;
    for (ptrdiff_t j = 0; j < d; j++) {
        for (ptrdiff_t i = j; i < d; i++) out[i] += columns[i - j] * z[j];
        columns += d - j;
    }
    for (ptrdiff_t i = 0; i < d; i++) out[i] = center[i] + out[i];
}
