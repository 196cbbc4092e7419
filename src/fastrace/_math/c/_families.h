/* The families of generalised linear models: of each the log-likelihood of an outcome y as a function of eta = x . theta, its
   first two derivatives, and bounds on the first and third. The one place that knows them. A new family adds its three
   functions and its line in FR_FAMILIES, and in likelihoods.pyx what a user should read about it. */
#ifndef FASTRACE_FAMILIES_H
#define FASTRACE_FAMILIES_H
#include "_vecmath.h"

enum { FR_BINARY, FR_COUNT, FR_REAL };      /* outcomes: 0 or 1, which arrive as -1 or 1; 0, 1, 2, ...; any number */
enum { FR_OF_OUTCOME, FR_OF_RESIDUAL };     /* linear in the outcome, as all of two outcomes are, or of y - eta */

/* X(enumerator, function, name, outcomes, form) */
#define FR_FAMILIES(X)                                                  \
    X(FR_LOGISTIC, logistic, "logistic", FR_BINARY, FR_OF_OUTCOME)      \
    X(FR_GAUSSIAN, gaussian, "gaussian", FR_REAL, FR_OF_RESIDUAL)       \
    X(FR_POISSON, poisson, "poisson", FR_COUNT, FR_OF_OUTCOME)          \
    X(FR_STUDENT_T, student_t, "student-t", FR_REAL, FR_OF_RESIDUAL)

#define FR_ENUMERATOR(enumerator, function, name, outcomes, form) enumerator,
enum { FR_FAMILIES(FR_ENUMERATOR) FR_N_FAMILIES };

/* What a family needs of its scale and degrees of freedom. */
typedef struct {
    double a, a2;           /* 1 / scale, and its square */
    double df, b;           /* degrees of freedom, 1 / df */
    double constant;        /* the part of a term that no row changes */
} fr_shape;

typedef struct {
    const char *name;
    int outcomes, form;
    double (*constant)(double scale, double df);
    double (*steepest)(double scale, double df);            /* largest |l'|, which may be infinite */
    /* largest |l'''| for eta from low to high, whatever the outcome, or for eta - y of FR_OF_RESIDUAL; infinite where there
       is none */
    double (*third)(double scale, double df, double low, double high);
} fr_family;

extern const fr_family fr_families[FR_N_FAMILIES];

/* Each of these returns l and sets its derivatives; where these are not used, they cost nothing. */

FR_INLINE double logistic(const fr_shape *s, double y, double eta, double *l1, double *l2)
{
    double z = y * eta, t = fr_exp_minus_abs(z), r = 1.0 / (1.0 + t);
    (void)s;
    *l1 = y * (z > 0.0 ? t * r : r);
    *l2 = -(t * r) * r;
    return -((z < 0.0 ? -z : 0.0) + fr_log1p_unit(t));
}

FR_INLINE double gaussian(const fr_shape *s, double y, double eta, double *l1, double *l2)
{
    double z = (y - eta) * s->a;
    *l1 = z * s->a;
    *l2 = -s->a2;
    return s->constant - 0.5 * (z * z);
}

FR_INLINE double poisson(const fr_shape *s, double y, double eta, double *l1, double *l2)
{
    double e = fr_exp1(eta);
    (void)s;
    *l1 = y - e;
    *l2 = -e;
    return y * eta - e;
}

FR_INLINE double student_t(const fr_shape *s, double y, double eta, double *l1, double *l2)
{
    double z = (y - eta) * s->a, z2 = z * z, w = 1.0 / (s->df + z2), m = s->df + 1.0;
    *l1 = m * z * w * s->a;
    *l2 = m * (z2 - s->df) * w * w * s->a2;
    return s->constant - 0.5 * m * fr_log1p1(z2 * s->b);
}
#endif
