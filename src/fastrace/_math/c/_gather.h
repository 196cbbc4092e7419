/* Reading rows of a two-dimensional array of float32 or float64 with any strides (in bytes). */
#ifndef FASTRACE_GATHER_H
#define FASTRACE_GATHER_H
#include <stddef.h>
#include <stdint.h>

/* out[j][i] = x[rows[i]][arms[j]]; `rows` NULL means first, first + 1, ... */
void fr_gather_f64(const char *x, ptrdiff_t row_stride, ptrdiff_t arm_stride, const int64_t *rows, int64_t first,
                   ptrdiff_t n_rows, const ptrdiff_t *arms, ptrdiff_t n_arms, double **out);
void fr_gather_f32(const char *x, ptrdiff_t row_stride, ptrdiff_t arm_stride, const int64_t *rows, int64_t first,
                   ptrdiff_t n_rows, const ptrdiff_t *arms, ptrdiff_t n_arms, double **out);

/* out[j] += sum over rows first .. first + n_rows - 1 of x[row][arms[j]]; n_columns is the width of x. */
void fr_column_sums_f64(const char *x, ptrdiff_t row_stride, ptrdiff_t arm_stride, int64_t first, ptrdiff_t n_rows,
                        ptrdiff_t n_columns, const ptrdiff_t *arms, ptrdiff_t n_arms, double *out);
void fr_column_sums_f32(const char *x, ptrdiff_t row_stride, ptrdiff_t arm_stride, int64_t first, ptrdiff_t n_rows,
                        ptrdiff_t n_columns, const ptrdiff_t *arms, ptrdiff_t n_arms, double *out);
#endif
