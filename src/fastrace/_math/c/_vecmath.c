#include "_vecmath.h"
#include "_clones.h"

CLONES
void fr_exp(const double *x, double *y, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i++) y[i] = fr_exp1(x[i]);
}

CLONES
void fr_log1p(const double *x, double *y, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i++) y[i] = fr_log1p1(x[i]);
}

CLONES
void fr_softplus(const double *x, double *y, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i++) y[i] = fr_softplus1(x[i]);
}
