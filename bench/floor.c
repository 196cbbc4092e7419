/* The least time of a step's rows: to fetch them, to multiply each with the parameters of all states, and to take
   log(1 + exp(.)) of each product. No bound, no expansion, no decision.

   `profile_chains.py` compiles it with DIM, the columns, and STATES. A row's lines of memory are asked for AHEAD rows
   before it is used; the loops of fixed length, exp and log become vector code. */

#include <math.h>
#include <stdint.h>

enum { AHEAD = 24, BLOCK = 256 };

static inline void ask(const double *row)
{
    for (int k = 0; k < DIM; k += 8)
        __builtin_prefetch(row + k);
    __builtin_prefetch(row + DIM - 1);
}

static double block(const double *x, const int64_t *rows, int64_t n, const double *theta, int terms)
{
    double product[STATES][BLOCK], sum = 0.0;
    for (int64_t i = 0; i < AHEAD && i < n; i++)
        ask(x + DIM * rows[i]);
    for (int64_t i = 0; i < n; i++) {
        const double *row = x + DIM * rows[i];
        if (i + AHEAD < n)
            ask(x + DIM * rows[i + AHEAD]);
        for (int j = 0; j < STATES; j++) {
            double eta = 0.0;
            for (int k = 0; k < DIM; k++)
                eta += row[k] * theta[DIM * j + k];
            product[j][i] = eta;
        }
    }
    for (int j = 0; j < STATES; j++)
        for (int64_t i = 0; i < n; i++)
            sum += terms ? log(1.0 + exp(-fabs(product[j][i]))) : product[j][i];
    return sum;
}

/* Steps one after another: those of step t are from ends[t - 1] to ends[t] in `rows`. */
double steps(const double *x, const int64_t *rows, const int64_t *ends, int64_t n_steps, const double *theta, int terms)
{
    double sum = 0.0;
    for (int64_t t = 0, first = 0; t < n_steps; t++)
        for (; first < ends[t]; first += BLOCK < ends[t] - first ? BLOCK : ends[t] - first)
            sum += block(x, rows + first, BLOCK < ends[t] - first ? BLOCK : ends[t] - first, theta, terms);
    return sum;
}
