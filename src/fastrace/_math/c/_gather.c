#include "_clones.h"
#include "_gather.h"

/* One body for both element types: this file includes itself once per type. */
#ifndef ELEMENT

enum { AHEAD = 64,      /* rows asked of memory before they are read */
       TILE = 16,       /* rows whose addresses are kept at hand while the arms are walked */
       LANES = 8,       /* independent partial sums: their order is fixed, whatever the instruction set */
       WIDE = 64,       /* columns up to which all of them are summed in one sweep */
       CHUNK = 1024 };  /* rows per partial sum: keeps rounding error flat in the number of rows */

/* The partial sums of a column, `step` apart, in an order that is the same for every layout of the table. */
static inline double fold(const double *lane, ptrdiff_t step)
{
    return ((lane[0] + lane[4 * step]) + (lane[2 * step] + lane[6 * step]))
           + ((lane[step] + lane[5 * step]) + (lane[3 * step] + lane[7 * step]));
}

#define ELEMENT double
#define NAME(f) f##_f64
#include "_gather.c"
#undef ELEMENT
#undef NAME
#define ELEMENT float
#define NAME(f) f##_f32
#include "_gather.c"

#else

#define AT(p, step) (*(const ELEMENT *)((p) + (step)))

/* Rows in order of one column, contiguous or not. */
static void NAME(copy)(const char *x, ptrdiff_t row_stride, ptrdiff_t n_rows, double *restrict out)
{
    if (row_stride == (ptrdiff_t)sizeof(ELEMENT)) {
        const ELEMENT *v = (const ELEMENT *)x;
        for (ptrdiff_t i = 0; i < n_rows; i++) out[i] = v[i];
    } else {
        for (ptrdiff_t i = 0; i < n_rows; i++) out[i] = AT(x, i * row_stride);
    }
}

void NAME(fr_gather)(const char *x, ptrdiff_t row_stride, ptrdiff_t arm_stride, const int64_t *rows, int64_t first,
                     ptrdiff_t n_rows, const ptrdiff_t *arms, ptrdiff_t n_arms, double **out)
{
    const char *tile[TILE];
    ptrdiff_t span = n_arms * arm_stride;   /* bytes a row covers when all arms are asked for */
    if (!rows && row_stride > 0 && row_stride <= 2 * (ptrdiff_t)sizeof(ELEMENT)) {  /* narrow rows, column by column */
        for (ptrdiff_t j = 0; j < n_arms; j++)
            NAME(copy)(x + (ptrdiff_t)first * row_stride + arms[j] * arm_stride, row_stride, n_rows, out[j]);
        return;
    }
    for (ptrdiff_t start = 0; start < n_rows; start += TILE) {
        ptrdiff_t size = n_rows - start < TILE ? n_rows - start : TILE;
        for (ptrdiff_t i = 0; i < size; i++) {
            ptrdiff_t ahead = start + i + AHEAD;
            tile[i] = x + (ptrdiff_t)(rows ? rows[start + i] : first + start + i) * row_stride;
            if (ahead < n_rows || !rows) {
                const char *p = x + (ptrdiff_t)(rows ? rows[ahead] : first + ahead) * row_stride;
                PREFETCH(p);
                if (span > 64) PREFETCH(p + 64);
            }
        }
        if (size == TILE) {
            for (ptrdiff_t j = 0; j < n_arms; j++) {
                ptrdiff_t step = arms[j] * arm_stride;
                double *to = out[j] + start;
                for (ptrdiff_t i = 0; i < TILE; i++) to[i] = AT(tile[i], step);
            }
        } else {
            for (ptrdiff_t j = 0; j < n_arms; j++)
                for (ptrdiff_t i = 0; i < size; i++) out[j][start + i] = AT(tile[i], arms[j] * arm_stride);
        }
    }
}

/* Sum of one column, contiguous or not. */
CLONES
static double NAME(column_sum)(const char *x, ptrdiff_t row_stride, ptrdiff_t n_rows)
{
    double lane[LANES] = {0};
    ptrdiff_t i = 0;
    if (row_stride == (ptrdiff_t)sizeof(ELEMENT)) {
        const ELEMENT *v = (const ELEMENT *)x;
        for (; i + LANES <= n_rows; i += LANES)
            for (int l = 0; l < LANES; l++) lane[l] += v[i + l];
    } else {
        for (; i + LANES <= n_rows; i += LANES)
            for (int l = 0; l < LANES; l++) lane[l] += AT(x, (i + l) * row_stride);
    }
    for (; i < n_rows; i++) lane[i % LANES] += AT(x, i * row_stride);
    return fold(lane, 1);
}

/* All columns of a packed row-major block: the rows are one long vector whose columns repeat. */
CLONES
static void NAME(packed_sums)(const ELEMENT *x, ptrdiff_t n_rows, ptrdiff_t n_columns, double *sum)
{
    double lane[LANES * WIDE] = {0};
    ptrdiff_t stretch = LANES * n_columns, i = 0;
    for (; i + LANES <= n_rows; i += LANES, x += stretch)
        for (ptrdiff_t l = 0; l < stretch; l++) lane[l] += x[l];
    for (ptrdiff_t l = 0; l < (n_rows - i) * n_columns; l++) lane[l] += x[l];
    for (ptrdiff_t c = 0; c < n_columns; c++) sum[c] = fold(lane + c, n_columns);
}

void NAME(fr_column_sums)(const char *x, ptrdiff_t row_stride, ptrdiff_t arm_stride, int64_t first, ptrdiff_t n_rows,
                          ptrdiff_t n_columns, const ptrdiff_t *arms, ptrdiff_t n_arms, double *out)
{
    ptrdiff_t size = sizeof(ELEMENT);
    int packed = arm_stride == size && row_stride == n_columns * size && n_columns <= WIDE && 2 * n_arms >= n_columns;
    double sum[WIDE];
    x += (ptrdiff_t)first * row_stride;
    for (ptrdiff_t start = 0; start < n_rows; start += CHUNK) {
        ptrdiff_t count = n_rows - start < CHUNK ? n_rows - start : CHUNK;
        const char *block = x + start * row_stride;
        if (packed) {
            NAME(packed_sums)((const ELEMENT *)block, count, n_columns, sum);
            for (ptrdiff_t j = 0; j < n_arms; j++) out[j] += sum[arms[j]];
        } else {
            for (ptrdiff_t j = 0; j < n_arms; j++)
                out[j] += NAME(column_sum)(block + arms[j] * arm_stride, row_stride, count);
        }
    }
}

#undef AT
#endif
