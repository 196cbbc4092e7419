#include "_families.h"

#define UNUSED (void)scale, (void)df, (void)low, (void)high
static const double PI = 3.14159265358979323846;

static double no_constant(double scale, double df) { (void)scale, (void)df; return 0.0; }
static double unbounded(double scale, double df) { (void)scale, (void)df; return INFINITY; }

#define logistic_constant no_constant
static double logistic_steepest(double scale, double df) { (void)scale, (void)df; return 1.0; }
static double logistic_third(double scale, double df, double low, double high)
{
    UNUSED;
    return 1.0 / (6.0 * sqrt(3.0));
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
static double student_t_third(double scale, double df, double low, double high)
{
    double t = sqrt(2.0) - 1.0;         /* at residual sqrt(df) t, where t^4 - 6 t^2 + 1 = 0 */
    UNUSED;
    return (df + 1.0) / (pow(df, 1.5) * pow(scale, 3.0)) * 2.0 * t * (3.0 - t * t) / pow(1.0 + t * t, 3.0);
}

#define ENTRY(enumerator, function, name, outcomes, form) \
    {name, outcomes, form, function##_constant, function##_steepest, function##_third},
const fr_family fr_families[FR_N_FAMILIES] = {FR_FAMILIES(ENTRY)};
