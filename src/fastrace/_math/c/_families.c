#include "_families.h"

#define UNUSED (void)scale, (void)df, (void)y, (void)low, (void)high
#define SIGMOID 0.09622504486493764         /* largest |(s (1 - s))'| of s = 1 / (1 + exp(-z)): 1 / (6 sqrt(3)) */
static const double PI = 3.14159265358979323846;

/* Whether one of the two peaks of a function that is as large at -x as at x lies between low and high. */
static int holds(double low, double high, double peak)
{
    return (low <= peak && peak <= high) || (low <= -peak && -peak <= high);
}

static double no_constant(double scale, double df) { (void)scale, (void)df; return 0.0; }
static double unbounded(double scale, double df) { (void)scale, (void)df; return INFINITY; }

#define logistic_constant no_constant
static double logistic_steepest(double scale, double df) { (void)scale, (void)df; return 1.0; }
/* p q (q - p): 0 at 0, and largest where q = p (2 + sqrt(3)) */
static double logistic_skewness(double eta)
{
    double t = exp(-fabs(eta)), r = 1.0 / (1.0 + t);
    return t * r * r * (1.0 - t) * r;
}
static double logistic_third(double scale, double df, double y, double low, double high)
{
    double peak = log(2.0 + sqrt(3.0));
    UNUSED;
    return holds(low, high, peak) ? 1.0 / (6.0 * sqrt(3.0)) : fmax(logistic_skewness(low), logistic_skewness(high));
}

static double gaussian_constant(double scale, double df) { (void)df; return -log(scale) - 0.5 * log(2.0 * PI); }
#define gaussian_steepest unbounded
static double gaussian_third(double scale, double df, double y, double low, double high)
{
    UNUSED;
    return 0.0;
}

#define poisson_constant no_constant
#define poisson_steepest unbounded
static double poisson_third(double scale, double df, double y, double low, double high)
{
    UNUSED;
    return exp(high);
}

static double student_t_constant(double scale, double df)
{
    return lgamma((df + 1.0) / 2.0) - lgamma(df / 2.0) - 0.5 * log(df * PI) - log(scale);
}
static double student_t_steepest(double scale, double df) { return (df + 1.0) / (2.0 * sqrt(df) * scale); }
/* of t = residual / (scale sqrt(df)); t^4 - 6 t^2 + 1 = 0 at its peaks */
static double student_t_skewness(double t)
{
    return isinf(t) ? 0.0 : 2.0 * fabs(t * (3.0 - t * t)) / pow(1.0 + t * t, 3.0);
}
static double student_t_third(double scale, double df, double y, double low, double high)
{
    double unit = scale * sqrt(df), near = sqrt(2.0) - 1.0, far = sqrt(2.0) + 1.0, out;
    low /= unit;
    high /= unit;
    out = fmax(student_t_skewness(low), student_t_skewness(high));
    if (holds(low, high, far))
        out = fmax(out, student_t_skewness(far));
    if (holds(low, high, near))
        out = student_t_skewness(near);
    return (df + 1.0) / (pow(df, 1.5) * pow(scale, 3.0)) * out;
}


#define binomial_constant no_constant
#define binomial_steepest logistic_steepest
#define binomial_third logistic_third

#define probit_constant no_constant
#define probit_steepest unbounded
/* of z = y eta, y being -1 or 1: positive, with one peak */
static double probit_skewness(double z)
{
    double tail = 0.5 * fr_erfcx(fabs(z) * 0.70710678118654752), below = exp(-0.5 * z * z);
    double m = 0.39894228040143268 * (z < 0.0 ? 1.0 / tail : below / (1.0 - tail * below));
    return z < -30.0 ? 2.0 / (-z * z * z) : isinf(z) ? 0.0 : fabs(m * ((z + m) * (z + 2.0 * m) - 1.0));
}
static double probit_largest(double low, double high)
{
    double peak = 1.0023693422683707;
    return low <= peak && peak <= high ? 0.29571881919312311 : fmax(probit_skewness(low), probit_skewness(high));
}
static double probit_third(double scale, double df, double y, double low, double high)
{
    double of_ones = y == 0.0 ? 0.0 : probit_largest(low, high);
    double of_zeros = y == 1.0 ? 0.0 : probit_largest(-high, -low);
    UNUSED;
    return fmax(of_ones, of_zeros);
}

#define cloglog_constant no_constant
#define cloglog_steepest unbounded
/* of outcome 1: with e = exp(eta) and h = e / (exp(e) - 1); two peaks */
static double cloglog_skewness(double eta)
{
    double e = exp(eta), h, u;
    if (eta < -30.0 || eta > 6.0) return eta < 0.0 ? 0.5 * e : 0.0;
    h = e / expm1(e);
    u = 1.0 - e - h;
    return fabs(h * (u * u - e - h * u));
}
static double cloglog_third(double scale, double df, double y, double low, double high)
{
    double of_ones = fmax(cloglog_skewness(low), cloglog_skewness(high)), of_zeros = y == 1.0 ? 0.0 : exp(high);
    UNUSED;
    if (low <= -0.19894156695829578 && -0.19894156695829578 <= high) of_ones = fmax(of_ones, 0.19556248033726988);
    if (low <= 1.426690658586295 && 1.426690658586295 <= high) of_ones = 0.42605476914548282;
    return y == 0.0 ? of_zeros : fmax(of_ones, of_zeros);
}

#define negative_binomial_constant no_constant
#define negative_binomial_steepest unbounded
static double negative_binomial_third(double scale, double df, double y, double low, double high)
{
    double move = log(scale);               /* a logistic function of eta + log(scale), times y + 1 / scale */
    return isnan(y) ? INFINITY : (y + 1.0 / scale) * logistic_third(1.0, df, 1.0, low + move, high + move);
}

static double gamma_mean_constant(double scale, double df)
{
    (void)df;
    return -log(scale) / scale - lgamma(1.0 / scale);
}
#define gamma_mean_steepest unbounded
static double gamma_mean_third(double scale, double df, double y, double low, double high)
{
    UNUSED;
    return isnan(y) ? INFINITY : y * exp(-low) / scale;
}

/* Bounds with a learned scale, see fr_mixed_third. a = exp(-from) is the largest. */

static void gaussian_mixed_third(double df, double y, double low, double high, double from, double to, double *out)
{
    double a = exp(-from), z = a * fmax(fabs(y - low), fabs(y - high));
    (void)df, (void)to;
    out[0] = 0.0, out[1] = 2.0 * a * a, out[2] = 4.0 * a * z, out[3] = 4.0 * z * z;
}

/* With x = (y - eta) a / sqrt(df) and p = x^2 / (1 + x^2): (eta, eta, aux) is 2 (df + 1) a^2 (1 - p)^2 (1 - 4 p) / df,
   (eta, aux, aux) 4 (df + 1) a x (1 - p)^2 (1 - 2 p) / sqrt(df), (aux, aux, aux) 4 (df + 1) p (1 - p) (1 - 2 p). */
static void student_t_mixed_third(double df, double y, double low, double high, double from, double to, double *out)
{
    double a = exp(-from), m = df + 1.0;
    (void)low, (void)high, (void)to;
    out[0] = student_t_third(exp(from), df, y, -INFINITY, INFINITY);
    out[1] = 2.0 * m * a * a / df, out[2] = 4.0 * m * a / sqrt(df) * 0.2174047489, out[3] = 4.0 * m * SIGMOID;
}

/* Of log gamma(y + a) - log gamma(a) the third derivative in aux is the sum over j < y of r (1 - r) (1 - 2 r), r = a /
   (a + j), each at most SIGMOID and 0 for j = 0; the rest has factors y + a and a, and the softplus a log(1 + exp(eta +
   aux)). */
static void negative_binomial_mixed_third(double df, double y, double low, double high, double from, double to,
                                          double *out)
{
    double a = exp(-from), n = (y + a) * SIGMOID, z = high + to;
    (void)df, (void)low;
    out[0] = n;
    out[1] = 0.25 * a + n;
    out[2] = a + n;
    out[3] = SIGMOID * fmax(y - 1.0, 0.0) + n + 3.0 * a + a * (fmax(z, 0.0) + log1p(exp(-fabs(z))));
}

/* (aux, aux, aux) is -a (log a - digamma(a) + 2 - 3 a trigamma(a) - a^2 tetragamma(a)), at most 0.04697, less a (L + 1)
   with L = log y - eta - y exp(-eta) <= -1, which is farthest from -1 at an end of the interval. */
static void gamma_mean_mixed_third(double df, double y, double low, double high, double from, double to, double *out)
{
    double a = exp(-from), v = y * exp(-low), z = log(y);
    double off = fmax(v - 1.0 - (z - low), y * exp(-high) - 1.0 - (z - high));
    (void)df, (void)to;
    out[0] = out[1] = a * v, out[2] = a * fmax(v, 1.0), out[3] = 0.04697 + a * off;
}

void fr_shape_fill(fr_shape *s, int family, double a, double log_a, double df, double constant)
{
    fr_shape plain = {.a = a, .a2 = a * a, .df = df, .b = 1.0 / df, .constant = constant, .log_a = log_a};
    *s = plain;
    if (family != FR_NEGATIVE_BINOMIAL && family != FR_GAMMA) return;
    double sum = 0.0, squares = 0.0;
    s->product = 1.0;
    s->from = a;
    if (a < 16.0) {
        s->from = a + 8.0;
        for (int i = 0; i < 8; i++) {
            double u = 1.0 / (a + i);
            s->product *= a + i;
            sum += u;
            squares += u * u;
        }
    }
    s->log_step = fr_log1p1(s->from / a - 1.0);
    s->series = fr_stirling(s->from);
    s->series1 = fr_stirling1(s->from);
    s->series2 = fr_stirling2(s->from);
    s->gap = sum - s->log_step - s->series1;
    s->bend = a * (1.0 / s->from + s->series2 + squares);
    if (family == FR_GAMMA)         /* a log a - log gamma(a) */
        s->constant = s->from - 0.91893853320467274 - s->series + fr_log1(s->product)
            - (s->from - 0.5) * s->log_step - (s->from - a - 0.5) * log_a;
}

#define MIXED(enumerator, function) \
    case enumerator: function##_mixed_third(df, y, low, high, from, to, out); break;

void fr_mixed_third(int family, double df, double y, double low, double high, double from, double to, double *out)
{
    switch (family) { FR_SCALED(MIXED) }
}

#define ENTRY(enumerator, function, name, outcomes, form) \
    {name, outcomes, form, function##_constant, function##_steepest, function##_third},
const fr_family fr_families[FR_N_FAMILIES] = {FR_FAMILIES(ENTRY)};
