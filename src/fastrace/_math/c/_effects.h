/* What a predictor has beside the columns of a table: an offset, and the effects of groups. */
#ifndef FASTRACE_EFFECTS_H
#define FASTRACE_EFFECTS_H
#include <stddef.h>
#include <stdint.h>

enum { FR_ROWS = 256 };         /* rows at most of one call of fr_effects_add */

/* A grouping factor. The effects of group g are parameters start + g * width to start + (g + 1) * width - 1. */
typedef struct {
    const int32_t *code;        /* group of each row */
    ptrdiff_t start, width;
    int intercept;              /* whether the first effect multiplies 1 */
    int single;                 /* z is float32, else float64 */
    const char *z;              /* what the other effects multiply, */
    ptrdiff_t row_stride;       /* bytes from one row to the next, */
    const ptrdiff_t *column;    /* and from a row to each of width - intercept columns */
} fr_factor;

/* A table of real numbers of which few are not 0, row by row; no column twice in a row. */
typedef struct {
    const int64_t *begin;       /* n_rows + 1 places */
    const int32_t *column;
    const char *value;
    int single;
} fr_sparse;

/* Where the second derivatives of a sum of terms go. Parameters beside the effects of one factor, the main one, are dense, in
   their order; its effects are a border and a block a group. Of dense parameters only the lower triangle is written. */
typedef struct {
    int main;                   /* number of the factor with blocks, or -1 */
    ptrdiff_t n_dense, n_main;  /* dense parameters, and effects of the main factor */
    double *gradient;           /* in the order of the parameters */
    double *dense;              /* (n_dense, n_dense) */
    double *border;             /* (n_groups * width, n_dense): transposed */
    double *blocks;             /* (n_groups, width, width) */
} fr_arrow;

/* eta[j][i] += offset + effects, for rows[i] (NULL: first + i) and parameters theta[j]. */
void fr_effects_add(const double *offset, const fr_factor *factors, int n_factors, const int64_t *rows, int64_t first,
                    ptrdiff_t n_rows, const double *const *theta, ptrdiff_t n_arms, double *const *eta);

/* eta[j][i] = the row of the sparse table . theta[j]. */
void fr_sparse_predict(const fr_sparse *x, const int64_t *rows, int64_t first, ptrdiff_t n_rows,
                       const double *const *theta, ptrdiff_t n_arms, double *const *eta);

/* Entries at most that a row has beside its dense columns and the main factor. */
ptrdiff_t fr_arrow_entries(const fr_sparse *x, const fr_factor *factors, int n_factors, int main, int64_t first,
                           ptrdiff_t n_rows);

/* Adds what rows first, ..., first + n_rows - 1 have, with derivatives slope and bend of their terms in eta; all but the
   products of the dense columns `dense_x` (n_rows, p), or NULL, with each other and their gradient. `mixed`, or NULL: second
   derivatives in eta and an auxiliary parameter, the last one. `place` and `value` have room for fr_arrow_entries. */
void fr_arrow_add(const fr_arrow *to, const fr_sparse *x, const double *dense_x, ptrdiff_t p, const fr_factor *factors,
                  int n_factors, int64_t first, ptrdiff_t n_rows, const double *slope, const double *bend,
                  const double *mixed, ptrdiff_t *place, double *value);

/* gradient += slope[i] times what the parameters multiply in row first + i, summed over i: of a sparse table, and of factors.
*/
void fr_sparse_pull(const fr_sparse *x, int64_t first, ptrdiff_t n_rows, const double *slope, double *gradient);
void fr_effects_pull(const fr_factor *factors, int n_factors, int64_t first, ptrdiff_t n_rows, const double *slope,
                     double *gradient);
#endif
