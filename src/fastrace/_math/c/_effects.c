#include "_effects.h"

#include "_clones.h"

enum { AHEAD = 16 };

static inline ptrdiff_t row_of(const int64_t *rows, int64_t first, ptrdiff_t i)
{
    return (ptrdiff_t)(rows ? rows[i] : first + i);
}

static inline double entry(const char *p, int single) { return single ? *(const float *)p : *(const double *)p; }

void fr_effects_add(const double *offset, const fr_factor *factors, int n_factors, const int64_t *rows, int64_t first,
                    ptrdiff_t n_rows, const double *const *theta, ptrdiff_t n_arms, double *const *eta)
{
    double z[FR_ROWS];
    int32_t code[FR_ROWS];
    if (offset) {
        for (ptrdiff_t i = 0; i < n_rows; i++) {
            if (rows && i + AHEAD < n_rows) PREFETCH(offset + rows[i + AHEAD]);
            z[i] = offset[row_of(rows, first, i)];
        }
        for (ptrdiff_t j = 0; j < n_arms; j++)
            for (ptrdiff_t i = 0; i < n_rows; i++) eta[j][i] += z[i];
    }
    for (const fr_factor *f = factors; f < factors + n_factors; f++) {
        for (ptrdiff_t i = 0; i < n_rows; i++) {
            if (rows && i + AHEAD < n_rows) PREFETCH(f->code + rows[i + AHEAD]);
            code[i] = f->code[row_of(rows, first, i)];
        }
        for (ptrdiff_t k = 0; k < f->width; k++) {
            ptrdiff_t c = k - f->intercept;
            if (c >= 0)
                for (ptrdiff_t i = 0; i < n_rows; i++)
                    z[i] = entry(f->z + row_of(rows, first, i) * f->row_stride + f->column[c], f->single);
            for (ptrdiff_t j = 0; j < n_arms; j++) {
                const double *effect = theta[j] + f->start + k;
                if (c < 0) for (ptrdiff_t i = 0; i < n_rows; i++) eta[j][i] += effect[code[i] * f->width];
                else for (ptrdiff_t i = 0; i < n_rows; i++) eta[j][i] += z[i] * effect[code[i] * f->width];
            }
        }
    }
}

void fr_sparse_predict(const fr_sparse *x, const int64_t *rows, int64_t first, ptrdiff_t n_rows,
                       const double *const *theta, ptrdiff_t n_arms, double *const *eta)
{
    for (ptrdiff_t i = 0; i < n_rows; i++) {
        ptrdiff_t row = row_of(rows, first, i);
        if (rows && i + AHEAD < n_rows) PREFETCH(x->begin + rows[i + AHEAD]);
        for (ptrdiff_t j = 0; j < n_arms; j++) {
            double sum = 0.0;
            if (x->single) {
                const float *v = (const float *)x->value;
                for (int64_t k = x->begin[row]; k < x->begin[row + 1]; k++) sum += v[k] * theta[j][x->column[k]];
            } else {
                const double *v = (const double *)x->value;
                for (int64_t k = x->begin[row]; k < x->begin[row + 1]; k++) sum += v[k] * theta[j][x->column[k]];
            }
            eta[j][i] = sum;
        }
    }
}

ptrdiff_t fr_arrow_entries(const fr_sparse *x, const fr_factor *factors, int n_factors, int main, int64_t first,
                           ptrdiff_t n_rows)
{
    ptrdiff_t most = 0;
    if (x)
        for (int64_t i = first; i < first + n_rows; i++)
            if (x->begin[i + 1] - x->begin[i] > most) most = (ptrdiff_t)(x->begin[i + 1] - x->begin[i]);
    for (int f = 0; f < n_factors; f++) most += f == main ? 0 : factors[f].width;
    return most + (main < 0 ? 0 : factors[main].width);
}

/* The effects of a row's group, and what they multiply; how many. */
static ptrdiff_t of_factor(const fr_factor *f, int64_t row, ptrdiff_t *place, double *value)
{
    for (ptrdiff_t k = 0; k < f->width; k++) {
        ptrdiff_t c = k - f->intercept;
        place[k] = f->start + f->code[row] * f->width + k;
        value[k] = c < 0 ? 1.0 : entry(f->z + row * f->row_stride + f->column[c], f->single);
    }
    return f->width;
}

void fr_arrow_add(const fr_arrow *to, const fr_sparse *x, const double *dense_x, ptrdiff_t p, const fr_factor *factors,
                  int n_factors, int64_t first, ptrdiff_t n_rows, const double *slope, const double *bend,
                  const double *mixed, ptrdiff_t *place, double *value)
{
    const fr_factor *main = to->main < 0 ? NULL : factors + to->main;
    ptrdiff_t s = to->n_dense, width = main ? main->width : 0;
    for (int64_t i = 0; i < n_rows; i++) {
        int64_t row = first + i;
        ptrdiff_t n = 0;
        if (x)
            for (int64_t k = x->begin[row]; k < x->begin[row + 1]; k++, n++) {
                place[n] = x->column[k];
                value[n] = x->single ? ((const float *)x->value)[k] : ((const double *)x->value)[k];
            }
        for (int f = 0; f < n_factors; f++)
            if (f != to->main) n += of_factor(factors + f, row, place + n, value + n);
        if (main) of_factor(main, row, place + n, value + n);
        for (ptrdiff_t a = 0; a < n + width; a++) to->gradient[place[a]] += slope[i] * value[a];
        for (ptrdiff_t a = 0; main && a < n; a++)
            if (place[a] > main->start) place[a] -= to->n_main;    /* from here on they count dense parameters */
        for (ptrdiff_t a = 0; a < n; a++) {
            double *line = to->dense + place[a] * s, weight = bend[i] * value[a];
            if (dense_x) for (ptrdiff_t c = 0; c < p; c++) line[c] += weight * dense_x[i * p + c];
            for (ptrdiff_t b = 0; b <= a; b++) {
                if (place[b] <= place[a]) line[place[b]] += weight * value[b];
                else to->dense[place[b] * s + place[a]] += weight * value[b];
            }
            if (mixed) to->dense[(s - 1) * s + place[a]] += mixed[i] * value[a];
        }
        for (ptrdiff_t k = 0; k < width; k++) {
            ptrdiff_t effect = place[n + k] - main->start;
            double *line = to->border + effect * s, weight = bend[i] * value[n + k];
            if (dense_x) for (ptrdiff_t c = 0; c < p; c++) line[c] += weight * dense_x[i * p + c];
            for (ptrdiff_t a = 0; a < n; a++) line[place[a]] += weight * value[a];
            if (mixed) line[s - 1] += mixed[i] * value[n + k];
            for (ptrdiff_t b = 0; b < width; b++) to->blocks[effect * width + b] += weight * value[n + b];
        }
    }
}

void fr_sparse_pull(const fr_sparse *x, int64_t first, ptrdiff_t n_rows, const double *slope, double *gradient)
{
    for (ptrdiff_t i = 0; i < n_rows; i++)
        for (int64_t k = x->begin[first + i]; k < x->begin[first + i + 1]; k++)
            gradient[x->column[k]] += slope[i] * entry(x->value + k * (x->single ? sizeof(float) : sizeof(double)), x->single);
}

void fr_effects_pull(const fr_factor *factors, int n_factors, int64_t first, ptrdiff_t n_rows, const double *slope,
                     double *gradient)
{
    for (const fr_factor *f = factors; f < factors + n_factors; f++)
        for (ptrdiff_t i = 0; i < n_rows; i++) {
            double *to = gradient + f->start + f->code[first + i] * f->width;
            for (ptrdiff_t k = 0; k < f->width; k++) {
                ptrdiff_t c = k - f->intercept;
                to[k] += slope[i] * (c < 0 ? 1.0 : entry(f->z + (first + i) * f->row_stride + f->column[c], f->single));
            }
        }
}
