/* The families of generalised linear models: of each the log-likelihood of an outcome y as a function of eta = x . theta, its
   first two derivatives, and bounds on the first and third. The one place that knows them. A new family adds its three
   functions and its line in FR_FAMILIES, and in likelihoods.pyx what a user should read about it. One with a scale that may
   be learned adds derivatives in the logarithm of the scale, the auxiliary parameter, and its line in FR_SCALED. */
#ifndef FASTRACE_FAMILIES_H
#define FASTRACE_FAMILIES_H
#include "_vecmath.h"

/* Outcomes: 0 or 1, which arrive as -1 or 1; 0, 1, 2, ...; any number; successes of a number of trials, which arrive as
   their share, the term being one of a single trial; positive numbers. */
enum { FR_BINARY, FR_COUNT, FR_REAL, FR_SHARE, FR_POSITIVE };
enum { FR_OF_OUTCOME, FR_OF_RESIDUAL };     /* linear in the outcome, as all of two outcomes are, or of y - eta */

/* X(enumerator, function, name, outcomes, form) */
#define FR_FAMILIES(X)                                                  \
    X(FR_LOGISTIC, logistic, "logistic", FR_BINARY, FR_OF_OUTCOME)      \
    X(FR_GAUSSIAN, gaussian, "gaussian", FR_REAL, FR_OF_RESIDUAL)       \
    X(FR_POISSON, poisson, "poisson", FR_COUNT, FR_OF_OUTCOME)          \
    X(FR_STUDENT_T, student_t, "student-t", FR_REAL, FR_OF_RESIDUAL)    \
    X(FR_BINOMIAL, binomial, "binomial", FR_SHARE, FR_OF_OUTCOME)       \
    X(FR_PROBIT, probit, "probit", FR_BINARY, FR_OF_OUTCOME)            \
    X(FR_CLOGLOG, cloglog, "cloglog", FR_BINARY, FR_OF_OUTCOME)         \
    X(FR_NEGATIVE_BINOMIAL, negative_binomial, "negative-binomial", FR_COUNT, FR_OF_OUTCOME)    \
    X(FR_GAMMA, gamma_mean, "gamma", FR_POSITIVE, FR_OF_OUTCOME)

/* X(enumerator, function) of those with a scale. Of the last two it is the dispersion, 1 / a; a is their shape. */
#define FR_SCALED(X)                                                    \
    X(FR_GAUSSIAN, gaussian)                                            \
    X(FR_STUDENT_T, student_t)                                          \
    X(FR_NEGATIVE_BINOMIAL, negative_binomial)                          \
    X(FR_GAMMA, gamma_mean)

#define FR_ENUMERATOR(enumerator, function, name, outcomes, form) enumerator,
enum { FR_FAMILIES(FR_ENUMERATOR) FR_N_FAMILIES };

/* What a family needs of its scale and degrees of freedom. */
typedef struct {
    double a, a2;           /* 1 / scale, and its square */
    double df, b;           /* degrees of freedom, 1 / df */
    double constant;        /* the part of a term that no row changes */
    /* of families of counts and positive numbers with a scale: */
    double log_a;
    double from;            /* a, or a + 8 where a < 16: Stirling's series are taken there; */
    double log_step;        /* log(from) - log(a), */
    double series, series1, series2;    /* and the corrections of log gamma and its derivatives */
    double product;         /* of a, a + 1, ..., a + 7, or 1 where from is a */
    double gap, bend;       /* log(a) - digamma(a), and a trigamma(a) */
} fr_shape;

/* a is 1 / scale; `constant` is used by families of any number, whose scale and df it follows from. */
void fr_shape_fill(fr_shape *s, int family, double a, double log_a, double df, double constant);

typedef struct {
    const char *name;
    int outcomes, form;
    double (*constant)(double scale, double df);
    double (*steepest)(double scale, double df);            /* largest |l'|, which may be infinite */
    /* largest |l'''| for eta from low to high, or eta - y of FR_OF_RESIDUAL, of outcome y or, where it is nan, of any; infinite
       where there is none */
    double (*third)(double scale, double df, double y, double low, double high);
} fr_family;

extern const fr_family fr_families[FR_N_FAMILIES];

/* With a learned scale: bounds on the third derivatives in (eta, eta, eta), (eta, eta, aux), (eta, aux, aux) and (aux, aux, aux)
   of outcome y, for eta from low to high and aux from from to to. */
void fr_mixed_third(int family, double df, double y, double low, double high, double from, double to, double *out);

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

FR_INLINE double binomial(const fr_shape *s, double y, double eta, double *l1, double *l2)
{
    double t = fr_exp_minus_abs(eta), r = 1.0 / (1.0 + t);
    (void)s;
    *l1 = y - (eta > 0.0 ? r : t * r);
    *l2 = -(t * r) * r;
    return y * eta - ((eta > 0.0 ? eta : 0.0) + fr_log1p_unit(t));
}

/* log of the normal distribution function of y eta: through erfcx, which neither overflows nor underflows */
FR_INLINE double probit(const fr_shape *s, double y, double eta, double *l1, double *l2)
{
    double z = y * eta, half = 0.5 * z * z, tail = 0.5 * fr_erfcx(fabs(z) * 0.70710678118654752);
    double below = fr_exp_minus_abs(half), above = 1.0 - tail * below;
    double log_part = z < 0.0 ? fr_log1(tail) : fr_log1p1(-tail * below);
    double m = 0.39894228040143268 * (z < 0.0 ? 1.0 / tail : below / above);
    (void)s;
    *l1 = y * m;
    *l2 = -m * (z + m);
    return z < 0.0 ? log_part - half : log_part;
}

/* P(y = 1) = 1 - exp(-exp(eta)) */
FR_INLINE double cloglog(const fr_shape *s, double y, double eta, double *l1, double *l2)
{
    double kept = eta < -700.0 ? -700.0 : (eta > 700.0 ? 700.0 : eta), e = fr_exp1(kept), f = -fr_expm1_negative(-e);
    double left = f < 1.0 ? 1.0 - f : 0.0, high = e > 1.0, h = e * left / f;
    double value = (high ? 0.0 : kept) + fr_log1p1(high ? -left : f / e - 1.0);
    double whole = fr_exp1(eta);
    (void)s;
    *l1 = y > 0.0 ? h : -whole;
    *l2 = y > 0.0 ? h * ((1.0 - h) - e) : -whole;
    return y > 0.0 ? value + (eta - kept < 0.0 ? eta - kept : 0.0) : -whole;
}

/* Mean exp(eta), variance mean + mean^2 / a. What depends on y and a alone is left to _extra. */
FR_INLINE double negative_binomial(const fr_shape *s, double y, double eta, double *l1, double *l2)
{
    double z = eta - s->log_a, t = fr_exp_minus_abs(z), r = 1.0 / (1.0 + t), share = z > 0.0 ? r : t * r, n = y + s->a;
    *l1 = y - n * share;
    *l2 = -n * (t * r) * r;
    return y * eta - n * ((z > 0.0 ? z : 0.0) + fr_log1p_unit(t));
}

/* Mean exp(eta), variance mean^2 / a. */
FR_INLINE double gamma_mean(const fr_shape *s, double y, double eta, double *l1, double *l2)
{
    double v = y * fr_exp1(-eta);
    *l1 = s->a * (v - 1.0);
    *l2 = -s->a * v;
    return s->constant - s->a * (eta + v);
}

/* What the log-likelihood has beside that if the scale is not fixed. */

FR_INLINE double gaussian_extra(const fr_shape *s, double y) { (void)s, (void)y; return 0.0; }
FR_INLINE double student_t_extra(const fr_shape *s, double y) { (void)s, (void)y; return 0.0; }
FR_INLINE double gamma_mean_extra(const fr_shape *s, double y) { return s->a * fr_log1(y); }

/* log gamma(y + a) - log gamma(a) - y log a: Stirling's formula for both, so that nothing cancels where a is large. */
FR_INLINE double negative_binomial_extra(const fr_shape *s, double y)
{
    double from = s->from, n = y + s->a, product = 1.0;
    for (int i = 0; i < 8; i++) product *= n + i;
    product = from > s->a ? product / s->product : 1.0;
    return (y * s->log_step - y + (y + from - 0.5) * fr_log1p1(y / from)) + (fr_stirling(y + from) - s->series)
        - fr_log1(product);
}

/* Derivatives in aux, in eta and aux, and twice in aux. */

FR_INLINE void gaussian_mixed(const fr_shape *s, double y, double eta, double *la, double *lea, double *laa)
{
    double z = (y - eta) * s->a, z2 = z * z;
    *la = z2 - 1.0;
    *lea = -2.0 * z * s->a;
    *laa = -2.0 * z2;
}

FR_INLINE void student_t_mixed(const fr_shape *s, double y, double eta, double *la, double *lea, double *laa)
{
    double z = (y - eta) * s->a, z2 = z * z, w = 1.0 / (s->df + z2), m = s->df + 1.0;
    *la = m * z2 * w - 1.0;
    *lea = -2.0 * m * s->df * s->a * z * w * w;
    *laa = -2.0 * m * s->df * z2 * w * w;
}

FR_INLINE void negative_binomial_mixed(const fr_shape *s, double y, double eta, double *la, double *lea, double *laa)
{
    double a = s->a, from = s->from, n = y + a, w = y + from;
    double z = eta - s->log_a, t = fr_exp_minus_abs(z), r = 1.0 / (1.0 + t), share = z > 0.0 ? r : t * r;
    double soft = (z > 0.0 ? z : 0.0) + fr_log1p_unit(t), spread = (t * r) * r, once = 0.0, twice = 0.0;
    for (int i = 0; i < 8; i++) {
        double u = 1.0 / (n + i), v = 1.0 / (a + i);
        once += y * u * v;
        twice += y * u * v * (u + v);
    }
    once = from > a ? once : 0.0;
    twice = from > a ? twice : 0.0;
    double first = a * (fr_log1p1(y / from) + (fr_stirling1(w) - s->series1) + once);     /* a (digamma(n) - digamma(a)) */
    double second = a * a * ((fr_stirling2(w) - s->series2) - y / (w * from) - twice);    /* the same of a^2 trigamma */
    /* Near the Poisson limit these sums cancel, and a * a may overflow: there, with m = exp(eta), the term is Poisson's plus
       ((y - m)^2 - y) / (2 a), to a relative (y + m) / a. */
    int limit = a > 1e8 * (1.0 + y) && z < -18.5;
    double m = fr_exp1(z < -18.5 ? eta : 0.0), tail = 0.5 * ((y - m) * ((y - m) / a) - y / a);
    *la = limit ? tail : (y - first) - n * share + a * soft;
    *lea = limit ? m * ((m - y) / a) : a * share - n * spread;
    *laa = limit ? tail : first + second + 2.0 * a * share - n * spread - a * soft;
}

FR_INLINE void gamma_mean_mixed(const fr_shape *s, double y, double eta, double *la, double *lea, double *laa)
{
    double v = y * fr_exp1(-eta), left = (fr_log1(y) - eta) - v + 1.0;
    *la = -s->a * (s->gap + left);
    *lea = -s->a * (v - 1.0);
    *laa = s->a * ((s->gap + left) + (1.0 - s->bend));
}
#endif
