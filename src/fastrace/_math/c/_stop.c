#include "_clones.h"
#include "_stop.h"

#include <math.h>
#include <stdint.h>

CLONES
int fr_all_within(const double *x, ptrdiff_t n, double low, double high)
{
    long long bad = 0;
    for (ptrdiff_t i = 0; i < n; i++) bad += !(x[i] >= low) | !(x[i] <= high);
    return bad == 0;
}

#if defined(__GNUC__)
#define FETCH(address) __builtin_prefetch((const void *)(address), 0, 3)
#else
#define FETCH(address) ((void)0)
#endif

/* Each sum waits for the one before, which leaves time to fetch the rewards after the next block from memory. */
void fr_prefix_sums(const double *x, ptrdiff_t n, double centre, double *s, double *q, double *all_s, double *all_q)
{
    enum { LINE = 8, AHEAD = 1024 };
    double sum = *s, square = *q;
    ptrdiff_t i = 0;
    for (; i + LINE <= n; i += LINE) {
        FETCH((uintptr_t)(x + i) + AHEAD * sizeof(double));
        for (int k = 0; k < LINE; k++) {
            double d = x[i + k] - centre;
            sum += d;
            square += d * d;
            all_s[i + k] = sum;
            all_q[i + k] = square;
        }
    }
    for (; i < n; i++) {
        double d = x[i] - centre;
        sum += d;
        square += d * d;
        all_s[i] = sum;
        all_q[i] = square;
    }
    *s = sum;
    *q = square;
}

/* Neither root nor division per reward: with everything times t, the lower end rises if what exceeds it and the
   constant part is larger than the root, whose square is known. `slack` is far above what rounding can do. */
CLONES
int fr_may_improve(const fr_look *look, const double *s, const double *q, ptrdiff_t n, double lower, double upper)
{
    const double first = look->t + 1.0, shrink = 1.0 / first, centre = look->centre, m2 = look->m2;
    const double scale = 2.0 * look->x * (1.0 - 1e-9), constant = 3.0 * look->span * look->x;
    const double slack = 1e-12 * (look->span + fabs(centre));
    const int absolute = look->absolute;
    long long found = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        double t = first + (double)i;
        double total = centre * t + s[i];
        double middle = absolute ? fabs(total) : total;
        double spread = m2 + q[i] - s[i] * s[i] * shrink;
        double square = scale * (spread > 0.0 ? spread : 0.0);
        double above = middle - constant - (lower - slack) * t;
        double below = (upper + slack) * t - constant - middle;
        found += (above > 0.0) & (above * above >= square);
        found += (below > 0.0) & (below * below >= square);
    }
    return found != 0;
}

#define ENDS(i, l)                                                                                                  \
    do {                                                                                                            \
        double share = 1.0 / (first + (double)(i)), mean = centre + s[i] * share;                                   \
        double spread = m2 + q[i] - s[i] * s[i] * share, width;                                                     \
        if (absolute) mean = fabs(mean);                                                                            \
        spread = spread > 0.0 ? spread : 0.0;                                                                       \
        width = (sqrt(scale * spread) + constant) * share;                                                          \
        low[l] = mean - width > low[l] ? mean - width : low[l];                                                     \
        high[l] = mean + width < high[l] ? mean + width : high[l];                                                  \
    } while (0)

CLONES
void fr_extremes(const fr_look *look, const double *s, const double *q, ptrdiff_t n, double *lower, double *upper)
{
    enum { LANES = 32 };
    double low[LANES], high[LANES];
    const double first = look->t + 1.0, centre = look->centre, m2 = look->m2;
    const double scale = 2.0 * look->x, constant = 3.0 * look->span * look->x;
    const int absolute = look->absolute;
    ptrdiff_t i = 0;
    for (int l = 0; l < LANES; l++) {
        low[l] = -HUGE_VAL;
        high[l] = HUGE_VAL;
    }
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) ENDS(i + l, l);
    for (int l = 0; i < n; i++, l++) ENDS(i, l);
    for (int l = 1; l < LANES; l++) {
        low[0] = low[l] > low[0] ? low[l] : low[0];
        high[0] = high[l] < high[0] ? high[l] : high[0];
    }
    *lower = low[0];
    *upper = high[0];
}
