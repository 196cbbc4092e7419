#include "_families.h"

#define UNUSED (void)scale, (void)df, (void)low, (void)high
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
static double logistic_third(double scale, double df, double low, double high)
{
    double peak = log(2.0 + sqrt(3.0));
    UNUSED;
    return holds(low, high, peak) ? 1.0 / (6.0 * sqrt(3.0)) : fmax(logistic_skewness(low), logistic_skewness(high));
}

static double gaussian_constant(double scale, double df) { (void)df; return -log(scale) - 0.5 * log(2.0 * PI); }
#define gaussian_steepest unbounded
static double gaussian_third(double scale, double df, double low, double high)
{
    UNUSED;
    return 0.0;
}

#define poisson_constant no_constant
#define poisson_steepest unbounded
static double poisson_third(double scale, double df, double low, double high)
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
static double student_t_third(double scale, double df, double low, double high)
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

#define ENTRY(enumerator, function, name, outcomes, form) \
    {name, outcomes, form, function##_constant, function##_steepest, function##_third},
const fr_family fr_families[FR_N_FAMILIES] = {FR_FAMILIES(ENTRY)};
