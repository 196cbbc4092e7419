#include "_glm.h"

#include <stdlib.h>

#include "_clones.h"
#include "_simd.h"
#include "_vecmath.h"

/* One body for both element types: this file includes itself once per type. */
#ifndef ELEMENT

/* x . theta runs in four partial sums: the first over columns 0, 4, 8, ..., and so on. They are folded as (0 + 1) +
   (2 + 3), and the columns beyond the last multiple of four are added from left to right. The order, and so every bit,
   depends neither on the instruction set nor on the other rows and arms of the call. */
enum { LANES = 4, ROWS = 4, AHEAD = 16, TOGETHER = 3 };

#if defined(__GNUC__)
typedef double lanes __attribute__((vector_size(LANES * sizeof(double))));
typedef float narrow_lanes __attribute__((vector_size(LANES * sizeof(float))));
#define ADD_PRODUCT(sum, x, y) ((sum) += (x) * (y))

FR_INLINE lanes load_f64(const double *x)
{
    lanes v;
    memcpy(&v, x, sizeof v);
    return v;
}

FR_INLINE lanes load_f32(const float *x)
{
    narrow_lanes v;
    memcpy(&v, x, sizeof v);
    return __builtin_convertvector(v, lanes);
}

FR_INLINE lanes lanes_of(double a, double b, double c, double d) { return (lanes){a, b, c, d}; }
#else
typedef struct { double l[LANES]; } lanes;
#define ADD_PRODUCT(sum, x, y) do { for (int l_ = 0; l_ < LANES; l_++) (sum).l[l_] += (x).l[l_] * (y).l[l_]; } while (0)

FR_INLINE lanes load_f64(const double *x)
{
    lanes v;
    memcpy(&v, x, sizeof v);
    return v;
}

FR_INLINE lanes load_f32(const float *x)
{
    lanes v;
    for (int l = 0; l < LANES; l++) v.l[l] = x[l];
    return v;
}

FR_INLINE lanes lanes_of(double a, double b, double c, double d)
{
    lanes v = {{a, b, c, d}};
    return v;
}
#endif

#if defined(__GNUC__) && defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define SHUFFLES
#endif
#endif

/* The four partial sums of each of four rows become their four totals. */
FR_INLINE lanes folded(const lanes *s)
{
#ifdef SHUFFLES
    lanes a = __builtin_shufflevector(s[0], s[1], 0, 4, 2, 6) + __builtin_shufflevector(s[0], s[1], 1, 5, 3, 7);
    lanes b = __builtin_shufflevector(s[2], s[3], 0, 4, 2, 6) + __builtin_shufflevector(s[2], s[3], 1, 5, 3, 7);
    return __builtin_shufflevector(a, b, 0, 1, 4, 5) + __builtin_shufflevector(a, b, 2, 3, 6, 7);
#else
    double total[ROWS];
    for (int r = 0; r < ROWS; r++) {
        double x[LANES];
        memcpy(x, &s[r], sizeof x);
        total[r] = (x[0] + x[1]) + (x[2] + x[3]);
    }
    return lanes_of(total[0], total[1], total[2], total[3]);
#endif
}

FR_INLINE ptrdiff_t smaller(ptrdiff_t a, ptrdiff_t b) { return a < b ? a : b; }

#define ELEMENT double
#define NAME(f) f##_f64
#include "_glm.c"
#undef ELEMENT
#undef NAME
#define ELEMENT float
#define NAME(f) f##_f32
#include "_glm.c"

static void gather(const fr_glm *m, const int64_t *rows, int64_t first, ptrdiff_t n_rows, double *block)
{
    if (m->single) gather_f32(m, rows, first, n_rows, block);
    else gather_f64(m, rows, first, n_rows, block);
}

/* Arms, and multiplications a row, from which BLAS is faster than our own loop, which needs no copy of the rows (at 4 arms
   of 1000 columns ours took a quarter of its time). */
enum { BLAS_ARMS = 16, BLAS_PRODUCTS = 2048 };

static void by_blas(const fr_glm *m, double *x, ptrdiff_t n_rows, const double *const *theta, ptrdiff_t n_arms,
                    double *const *eta, double *room)
{
    int rows = (int)n_rows, arms = (int)n_arms, p = (int)m->n_columns;
    double unit = 1.0, zero = 0.0, *products = room + n_arms * p;
    for (ptrdiff_t j = 0; j < n_arms; j++) memcpy(room + j * p, theta[j], (size_t)p * sizeof(double));
    m->gemm("T", "N", &rows, &arms, &p, &unit, x, &p, room, &p, &zero, products, &rows);
    for (ptrdiff_t j = 0; j < n_arms; j++) memcpy(eta[j], products + j * n_rows, (size_t)n_rows * sizeof(double));
}

/* Rows whose columns lie apart, or that meet many arms, are brought together first. */
static int of_columns(const fr_glm *m, const int64_t *rows, int64_t first, ptrdiff_t n_rows, const double *const *theta,
                      ptrdiff_t n_arms, double *const *eta)
{
    ptrdiff_t p = m->n_columns, size = (ptrdiff_t)(m->single ? sizeof(float) : sizeof(double));
    int many = n_arms >= BLAS_ARMS && p * n_arms >= BLAS_PRODUCTS;
    if (many || m->column_stride != size) {
        double *x = malloc((size_t)(n_rows * p + (many ? n_arms * (p + n_rows) : 0)) * sizeof(double));
        if (!x) return -1;
        gather(m, rows, first, n_rows, x);
        if (many) by_blas(m, x, n_rows, theta, n_arms, eta, x + n_rows * p);
        else predict_f64((const char *)x, p * (ptrdiff_t)sizeof(double), p, NULL, 0, n_rows, theta, n_arms, eta);
        free(x);
    } else if (m->single) {
        predict_f32(m->x, m->row_stride, p, rows, first, n_rows, theta, n_arms, eta);
    } else {
        predict_f64(m->x, m->row_stride, p, rows, first, n_rows, theta, n_arms, eta);
    }
    return 0;
}

int fr_glm_predict(const fr_glm *m, const int64_t *rows, int64_t first, ptrdiff_t n_rows, const double *const *theta,
                   ptrdiff_t n_arms, double *const *eta)
{
    if (m->sparse) fr_sparse_predict(m->sparse, rows, first, n_rows, theta, n_arms, eta);
    else if (of_columns(m, rows, first, n_rows, theta, n_arms, eta)) return -1;
    if (m->offset || m->n_factors)
        fr_effects_add(m->offset, m->factors, m->n_factors, rows, first, n_rows, theta, n_arms, eta);
    return 0;
}

/* Outcomes of a block of rows. */
static void outcomes(const fr_glm *m, const int64_t *rows, int64_t first, ptrdiff_t n_rows, double *y)
{
    if (m->sign) {
        if (rows) for (ptrdiff_t i = 0; i < n_rows; i++) y[i] = m->sign[rows[i]];
        else for (ptrdiff_t i = 0; i < n_rows; i++) y[i] = m->sign[first + i];
    } else {
        if (rows) for (ptrdiff_t i = 0; i < n_rows; i++) y[i] = m->y[rows[i]];
        else memcpy(y, m->y + first, (size_t)n_rows * sizeof(double));
    }
}

/* Terms of a block of rows, or derivatives of terms, times the weights of the rows. A row of weight 0 is none, even where
   its term is infinite. */
static void weigh(const fr_glm *m, const int64_t *rows, int64_t first, ptrdiff_t n_rows, double *terms)
{
    if (!m->weight) return;
    for (ptrdiff_t i = 0; i < n_rows; i++) {
        double w = m->weight[rows ? rows[i] : first + i];
        terms[i] = w != 0.0 ? terms[i] * w : 0.0;
    }
}

void fr_glm_ready(fr_glm *m)
{
    double a = 1.0 / m->scale, constant = fr_families[m->family].constant(m->scale, m->df);
    fr_shape_fill(&m->shape, m->family, a, log(a), m->df, constant);
}

/* The shape at an arm's parameters: `own` is filled where the scale is learned. */
static const fr_shape *shape_at(const fr_glm *m, const double *theta, fr_shape *own)
{
    if (!m->learned) return &m->shape;
    double aux = theta[m->n_parameters - 1];
    fr_shape_fill(own, m->family, fr_exp1(-aux), -aux, m->df, m->shape.constant - aux);
    return own;
}

#define EXTRA(enumerator, function)                                                 \
    case enumerator: for (ptrdiff_t i = 0; i < n; i++) out[i] += function##_extra(s, y[i]); break;

CLONES
static void add_extra(int family, const fr_shape *s, const double *restrict y, ptrdiff_t n, double *restrict out)
{
    switch (family) { FR_SCALED(EXTRA) }
}

#define MIXED(enumerator, function)                                                 \
    case enumerator:                                                                \
        for (ptrdiff_t i = 0; i < n; i++) function##_mixed(s, y[i], eta[i], &la[i], &lea[i], &laa[i]); \
        break;

CLONES
static void mixed(int family, const fr_shape *s, const double *restrict y, ptrdiff_t n, const double *restrict eta,
                  double *restrict la, double *restrict lea, double *restrict laa)
{
    switch (family) { FR_SCALED(MIXED) }
}

/* eta[i] += the expansion's terms in the step of aux, negated. */
CLONES
static void mixed_residuals(double step, const double *restrict hat, const double *restrict la,
                            const double *restrict lea, const double *restrict laa, ptrdiff_t n,
                            const double *restrict eta, double *restrict out)
{
    for (ptrdiff_t i = 0; i < n; i++) out[i] -= step * (la[i] + lea[i] * (eta[i] - hat[i]) + 0.5 * laa[i] * step);
}

/* eta[i] becomes the log-likelihood of y[i]. */
#define VALUES(enumerator, function, name, outcomes, form)                          \
    case enumerator:                                                                \
        for (ptrdiff_t i = 0; i < n; i++) {                                         \
            double l1, l2;                                                          \
            eta[i] = function(s, y[i], eta[i], &l1, &l2);                           \
        }                                                                           \
        break;

CLONES
static void log_likelihood(int family, const fr_shape *s, const double *restrict y, ptrdiff_t n, double *restrict eta)
{
    switch (family) { FR_FAMILIES(VALUES) }
}

/* Log-likelihood and its first two derivatives in eta; l0 comes in as eta. */
#define DERIVATIVES(enumerator, function, name, outcomes, form)                     \
    case enumerator:                                                                \
        for (ptrdiff_t i = 0; i < n; i++) l0[i] = function(s, y[i], l0[i], &l1[i], &l2[i]); \
        break;

CLONES
static void derivatives(int family, const fr_shape *s, const double *restrict y, ptrdiff_t n, double *restrict l0,
                        double *restrict l1, double *restrict l2)
{
    switch (family) { FR_FAMILIES(DERIVATIVES) }
}

/* eta[i] becomes `value`, which is the log-likelihood, less its expansion. */
CLONES
static void residuals(const double *restrict hat, const double *restrict l0, const double *restrict l1,
                      const double *restrict l2, ptrdiff_t n, const double *restrict value, double *restrict eta)
{
    for (ptrdiff_t i = 0; i < n; i++) {
        double d = eta[i] - hat[i];
        eta[i] = (value[i] - l0[i]) - d * (l1[i] + 0.5 * l2[i] * d);
    }
}

enum { ARMS = 64 };     /* arms whose places in a block are kept at hand; even */

CLONES
static void reflect(const double *restrict middle, const double *restrict eta, ptrdiff_t n, double *restrict out)
{
    for (ptrdiff_t i = 0; i < n; i++) out[i] = 2.0 * middle[i] - eta[i];
}

/* Whether arms[j] is the mirror image of the arm asked for just before it. */
static int mirrored(const fr_glm *m, const ptrdiff_t *arms, ptrdiff_t j)
{
    return m->mirror && j > 0 && arms[j] % 2 && arms[j - 1] == arms[j] - 1;
}

int fr_glm_fill(const fr_glm *m, const double *theta, const double *theta_hat, const int64_t *rows, int64_t first,
                ptrdiff_t n_rows, const ptrdiff_t *arms, ptrdiff_t n_arms, double **out)
{
    double y[FR_GLM_BLOCK], hat[FR_GLM_BLOCK], l0[FR_GLM_BLOCK], l1[FR_GLM_BLOCK], l2[FR_GLM_BLOCK];
    double value[FR_GLM_BLOCK], la[FR_GLM_BLOCK], lea[FR_GLM_BLOCK], laa[FR_GLM_BLOCK], eta[FR_GLM_BLOCK];
    double middle[FR_GLM_BLOCK];
    fr_shape own, at_hat;
    const fr_shape *shape, *hat_shape = theta_hat ? shape_at(m, theta_hat, &at_hat) : NULL;
    const double *parameters[ARMS], *asked[ARMS + 2];
    double *column[ARMS], *found[ARMS + 2];
    for (ptrdiff_t start = 0; start < n_rows; start += FR_GLM_BLOCK) {
        ptrdiff_t count = smaller(n_rows - start, FR_GLM_BLOCK);
        const int64_t *block_rows = rows ? rows + start : NULL;
        outcomes(m, block_rows, first + start, count, y);
        for (ptrdiff_t arm = 0; arm < n_arms; arm += ARMS) {
            ptrdiff_t part = smaller(n_arms - arm, ARMS), k = 0;
            for (ptrdiff_t j = 0; j < part; j++) {
                parameters[j] = theta + arms[arm + j] * m->n_parameters;
                column[j] = out[arm + j] + start;
                if (mirrored(m, arms + arm, j)) continue;
                asked[k] = parameters[j];
                found[k++] = column[j];
            }
            if (theta_hat) {
                asked[k] = theta_hat;
                found[k++] = hat;
            }
            if (m->mirror) {
                asked[k] = m->mirror;
                found[k++] = middle;
            }
            if (fr_glm_predict(m, block_rows, first + start, count, asked, k, found)) return -1;
            for (ptrdiff_t j = 1; j < part; j++)
                if (mirrored(m, arms + arm, j)) reflect(middle, column[j - 1], count, column[j]);
            if (theta_hat) {
                memcpy(l0, hat, (size_t)count * sizeof(double));
                derivatives(m->family, hat_shape, y, count, l0, l1, l2);
                if (m->learned) {
                    add_extra(m->family, hat_shape, y, count, l0);
                    mixed(m->family, hat_shape, y, count, hat, la, lea, laa);
                }
            }
            for (ptrdiff_t j = 0; j < part; j++) {
                shape = shape_at(m, parameters[j], &own);
                if (!theta_hat) {
                    log_likelihood(m->family, shape, y, count, column[j]);
                    if (m->learned) add_extra(m->family, shape, y, count, column[j]);
                } else {
                    memcpy(value, column[j], (size_t)count * sizeof(double));
                    log_likelihood(m->family, shape, y, count, value);
                    if (m->learned) {
                        add_extra(m->family, shape, y, count, value);
                        memcpy(eta, column[j], (size_t)count * sizeof(double));
                    }
                    residuals(hat, l0, l1, l2, count, value, column[j]);
                    if (m->learned)
                        mixed_residuals(parameters[j][m->n_parameters - 1] - theta_hat[m->n_parameters - 1], hat, la, lea,
                                        laa, count, eta, column[j]);
                }
                weigh(m, block_rows, first + start, count, column[j]);
            }
        }
    }
    return 0;
}

void fr_glm_expand(const fr_glm *m, const double *y, ptrdiff_t n, double *l0, double *l1, double *l2)
{
    derivatives(m->family, &m->shape, y, n, l0, l1, l2);
}

int fr_glm_derivatives(const fr_glm *m, const double *theta_hat, int64_t first, ptrdiff_t n_rows, double *l0,
                       double *l1, double *l2)
{
    double y[FR_GLM_BLOCK];
    fr_shape own;
    const fr_shape *shape = shape_at(m, theta_hat, &own);
    for (ptrdiff_t start = 0; start < n_rows; start += FR_GLM_BLOCK) {
        ptrdiff_t count = smaller(n_rows - start, FR_GLM_BLOCK);
        double *eta = l0 + start;
        outcomes(m, NULL, first + start, count, y);
        if (fr_glm_predict(m, NULL, first + start, count, &theta_hat, 1, &eta)) return -1;
        derivatives(m->family, shape, y, count, eta, l1 + start, l2 + start);
        if (m->learned) add_extra(m->family, shape, y, count, eta);
        weigh(m, NULL, first + start, count, eta);
        weigh(m, NULL, first + start, count, l1 + start);
        weigh(m, NULL, first + start, count, l2 + start);
    }
    return 0;
}

int fr_glm_mixed(const fr_glm *m, const double *theta_hat, int64_t first, ptrdiff_t n_rows, double *eta, double *la,
                 double *lea, double *laa)
{
    double y[FR_GLM_BLOCK], *part;
    fr_shape own;
    const fr_shape *shape = shape_at(m, theta_hat, &own);
    for (ptrdiff_t start = 0; start < n_rows; start += FR_GLM_BLOCK) {
        ptrdiff_t count = smaller(n_rows - start, FR_GLM_BLOCK);
        outcomes(m, NULL, first + start, count, y);
        part = eta + start;
        if (fr_glm_predict(m, NULL, first + start, count, &theta_hat, 1, &part)) return -1;
        mixed(m->family, shape, y, count, part, la + start, lea + start, laa + start);
        weigh(m, NULL, first + start, count, la + start);
        weigh(m, NULL, first + start, count, lea + start);
        weigh(m, NULL, first + start, count, laa + start);
    }
    return 0;
}

int fr_glm_slope(const fr_glm *m, const double *theta, int64_t first, ptrdiff_t n_rows, double *value, double *gradient)
{
    double y[FR_GLM_BLOCK], l0[FR_GLM_BLOCK], l1[FR_GLM_BLOCK], l2[FR_GLM_BLOCK];
    double la[FR_GLM_BLOCK], lea[FR_GLM_BLOCK], laa[FR_GLM_BLOCK], *eta = l0, *block = NULL;
    ptrdiff_t p = m->n_columns, size = (ptrdiff_t)(m->single ? sizeof(float) : sizeof(double));
    fr_shape own;
    const fr_shape *shape = shape_at(m, theta, &own);
    if (!m->sparse && m->column_stride != size) {       /* columns that lie apart are brought together first */
        block = malloc((size_t)(FR_GLM_BLOCK * p) * sizeof(double));
        if (!block) return -1;
    }
    for (ptrdiff_t start = 0; start < n_rows; start += FR_GLM_BLOCK) {
        ptrdiff_t count = smaller(n_rows - start, FR_GLM_BLOCK);
        int64_t row = first + start;
        double sum = 0.0, by_aux = 0.0;
        outcomes(m, NULL, row, count, y);
        if (fr_glm_predict(m, NULL, row, count, &theta, 1, &eta)) {
            free(block);
            return -1;
        }
        if (m->learned) {
            mixed(m->family, shape, y, count, eta, la, lea, laa);
            weigh(m, NULL, row, count, la);
            for (ptrdiff_t i = 0; i < count; i++) by_aux += la[i];
            gradient[m->n_parameters - 1] += by_aux;
        }
        derivatives(m->family, shape, y, count, l0, l1, l2);
        if (m->learned) add_extra(m->family, shape, y, count, l0);
        weigh(m, NULL, row, count, l0);
        weigh(m, NULL, row, count, l1);
        for (ptrdiff_t i = 0; i < count; i++) sum += l0[i];
        *value += sum;
        if (m->sparse) fr_sparse_pull(m->sparse, row, count, l1, gradient);
        else if (block) {
            gather(m, NULL, row, count, block);
            pull_f64((const char *)block, p * (ptrdiff_t)sizeof(double), p, 0, count, l1, gradient);
        }
        else if (m->single) pull_f32(m->x, m->row_stride, p, row, count, l1, gradient);
        else pull_f64(m->x, m->row_stride, p, row, count, l1, gradient);
        fr_effects_pull(m->factors, m->n_factors, row, count, l1, gradient);
    }
    free(block);
    return 0;
}

void fr_glm_extra(const fr_glm *m, const double *y, ptrdiff_t n, double *out)
{
    for (ptrdiff_t i = 0; i < n; i++) out[i] = 0.0;
    add_extra(m->family, &m->shape, y, n, out);
}

#else

#define AT(p, step) (*(const ELEMENT *)((p) + (step)))

/* Totals of four rows for `count` arms, inlined with count constant; `last` are the columns beyond the last multiple of
   four, each of all four rows. */
FR_INLINE void NAME(dot)(const ELEMENT *const *row, const lanes *last, ptrdiff_t p, const double *const *theta,
                         lanes *total, const int count)
{
    lanes s[TOGETHER][ROWS], zero;
    ptrdiff_t k = 0;
    memset(&zero, 0, sizeof zero);      /* of `s` as a whole gcc makes a `rep stos`, a sixth of the time of 20 columns */
    for (int a = 0; a < count; a++)
        for (int r = 0; r < ROWS; r++) s[a][r] = zero;
    for (; k + LANES <= p; k += LANES)
        for (int r = 0; r < ROWS; r++) {
            lanes x = NAME(load)(row[r] + k);
            for (int a = 0; a < count; a++) ADD_PRODUCT(s[a][r], x, load_f64(theta[a] + k));
        }
    for (int a = 0; a < count; a++) total[a] = folded(s[a]);
    for (; k < p; k++, last++)
        for (int a = 0; a < count; a++) {
            double t = theta[a][k];
            ADD_PRODUCT(total[a], *last, lanes_of(t, t, t, t));
        }
}

/* All cache lines of a row, the one that its last byte reaches into too. */
FR_INLINE void NAME(prefetch)(const char *row, ptrdiff_t bytes)
{
    for (ptrdiff_t b = 0; b < bytes; b += 64) PREFETCH(row + b);
    PREFETCH(row + bytes - 1);
}

CLONES
static void NAME(predict)(const char *x, ptrdiff_t row_stride, ptrdiff_t p, const int64_t *rows, int64_t first,
                          ptrdiff_t n_rows, const double *const *theta, ptrdiff_t n_arms, double *const *eta)
{
    const ELEMENT *row[ROWS];
    lanes last[LANES - 1], total[TOGETHER];
    ptrdiff_t bytes = smaller(p * (ptrdiff_t)sizeof(ELEMENT), 1024);
    for (ptrdiff_t i = 0; i < smaller(AHEAD, n_rows); i++)
        NAME(prefetch)(x + (ptrdiff_t)(rows ? rows[i] : first + i) * row_stride, bytes);
    for (ptrdiff_t start = 0; start < n_rows; start += ROWS) {
        ptrdiff_t size = smaller(n_rows - start, ROWS);
        for (ptrdiff_t r = 0; r < ROWS; r++) {      /* beyond the last row it is repeated */
            ptrdiff_t i = start + (r < size ? r : size - 1);
            row[r] = (const ELEMENT *)(x + (ptrdiff_t)(rows ? rows[i] : first + i) * row_stride);
        }
        for (ptrdiff_t i = start + AHEAD; i < smaller(n_rows, start + AHEAD + ROWS); i++)
            NAME(prefetch)(x + (ptrdiff_t)(rows ? rows[i] : first + i) * row_stride, bytes);
        for (ptrdiff_t k = p - p % LANES, c = 0; k < p; k++, c++)
            last[c] = lanes_of(row[0][k], row[1][k], row[2][k], row[3][k]);
        for (ptrdiff_t j = 0, count; j < n_arms; j += count) {
            count = smaller(n_arms - j, TOGETHER);
            if (count == 3) NAME(dot)(row, last, p, theta + j, total, 3);
            else if (count == 2) NAME(dot)(row, last, p, theta + j, total, 2);
            else NAME(dot)(row, last, p, theta + j, total, 1);
            for (ptrdiff_t a = 0; a < count; a++) {
                if (size == ROWS) memcpy(eta[j + a] + start, &total[a], sizeof total[a]);
                else memcpy(eta[j + a] + start, &total[a], (size_t)size * sizeof(double));
            }
        }
    }
}

static void NAME(gather)(const fr_glm *m, const int64_t *rows, int64_t first, ptrdiff_t n_rows, double *block)
{
    ptrdiff_t p = m->n_columns, step = m->column_stride;
    for (ptrdiff_t i = 0; i < n_rows; i++) {
        const char *row = m->x + (ptrdiff_t)(rows ? rows[i] : first + i) * m->row_stride;
        if (rows && i + 4 < n_rows) PREFETCH(m->x + (ptrdiff_t)rows[i + 4] * m->row_stride);
        for (ptrdiff_t k = 0; k < p; k++) block[i * p + k] = AT(row, k * step);
    }
}

/* gradient[k] += the sum of slope[i] x[first + i][k], four rows at once in their order. */
CLONES
static void NAME(pull)(const char *x, ptrdiff_t row_stride, ptrdiff_t p, int64_t first, ptrdiff_t n_rows,
                       const double *restrict slope, double *restrict gradient)
{
    ptrdiff_t i = 0;
    for (; i + ROWS <= n_rows; i += ROWS) {
        const ELEMENT *a = (const ELEMENT *)(x + (ptrdiff_t)(first + i) * row_stride);
        const ELEMENT *b = (const ELEMENT *)(x + (ptrdiff_t)(first + i + 1) * row_stride);
        const ELEMENT *c = (const ELEMENT *)(x + (ptrdiff_t)(first + i + 2) * row_stride);
        const ELEMENT *d = (const ELEMENT *)(x + (ptrdiff_t)(first + i + 3) * row_stride);
        double s = slope[i], t = slope[i + 1], u = slope[i + 2], v = slope[i + 3];
        for (ptrdiff_t k = 0; k < p; k++) gradient[k] += (s * a[k] + t * b[k]) + (u * c[k] + v * d[k]);
    }
    for (; i < n_rows; i++) {
        const ELEMENT *a = (const ELEMENT *)(x + (ptrdiff_t)(first + i) * row_stride);
        for (ptrdiff_t k = 0; k < p; k++) gradient[k] += slope[i] * a[k];
    }
}

#undef AT
#endif
