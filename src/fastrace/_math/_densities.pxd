# cython: cdivision=True
"""Log densities of priors and their derivatives: scalars in, scalar out.

Scales are positive, and chains move their logarithms: densities of scales here are densities of t = log(scale), so they
hold the Jacobian exp(t). Every density integrates to 1, flat ones aside.
"""

from libc.math cimport M_PI, exp, fabs, lgamma, log, log1p, tanh

cdef enum:                      # of a coefficient x, with z = (x - mean) / scale
    FLAT
    NORMAL
    STUDENT
    LAPLACE
    N_LOCATIONS

cdef enum:                      # of t, the logarithm of a scale s; the last is of t = atanh(partial correlation)
    HALF_NORMAL                 # a: scale
    HALF_STUDENT                # a: scale, b: degrees of freedom
    GAMMA                       # a: shape, b: rate
    LOG_NORMAL                  # a: mean and b: standard deviation of t
    INVERSE_GAMMA_OF_SQUARE     # a: shape and b: scale of s^2
    PARTIAL_CORRELATION         # a: both parameters of the beta distribution of (1 + tanh(t)) / 2
    N_SCALES

cdef struct density_t:
    int kind
    double a, b
    double constant             # log density less what depends on t
    double power                # the density is that of scale^power, and t the logarithm of the scale; not 0


cdef inline double location_constant(int kind, double df) noexcept nogil:
    """Log density of a standardised coefficient, less what depends on z."""
    if kind == NORMAL:
        return -0.5 * log(2.0 * M_PI)
    if kind == STUDENT:
        return lgamma(0.5 * (df + 1.0)) - lgamma(0.5 * df) - 0.5 * log(M_PI * df)
    if kind == LAPLACE:
        return -log(2.0)
    return 0.0


cdef inline double location_density(int kind, double df, double z, double *slope) noexcept nogil:
    """The part of the log density that depends on z; `slope` is its derivative, 0 at the kink of a Laplace density."""
    cdef double square
    if kind == NORMAL:
        slope[0] = -z
        return -0.5 * z * z
    if kind == STUDENT:
        square = z * z / df
        slope[0] = -(df + 1.0) * z / (df * (1.0 + square))
        return -0.5 * (df + 1.0) * log1p(square)
    if kind == LAPLACE:
        slope[0] = (z < 0.0) - <int>(z > 0.0)
        return -fabs(z)
    slope[0] = 0.0
    return 0.0


cdef inline double location_curvature(int kind, double df, double z) noexcept nogil:
    """Minus the second derivative in z; 0 beside the kink of a Laplace density."""
    cdef double square
    if kind == NORMAL:
        return 1.0
    if kind == STUDENT:
        square = z * z / df
        return (df + 1.0) * (1.0 - square) / (df * (1.0 + square) * (1.0 + square))
    return 0.0


cdef inline double scale_constant(int kind, double a, double b) noexcept nogil:
    """Log density of t less what depends on t."""
    if kind == HALF_NORMAL:
        return 0.5 * log(2.0 / M_PI) - log(a)
    if kind == HALF_STUDENT:
        return log(2.0) + location_constant(STUDENT, b) - log(a)
    if kind == GAMMA:
        return a * log(b) - lgamma(a)
    if kind == LOG_NORMAL:
        return location_constant(NORMAL, 0.0) - log(b)
    if kind == INVERSE_GAMMA_OF_SQUARE:
        return log(2.0) + a * log(b) - lgamma(a)
    return lgamma(2.0 * a) - 2.0 * lgamma(a) - (2.0 * a - 1.0) * log(2.0)


cdef inline double scale_density(const density_t *p, double t, double *slope) noexcept nogil:
    """Log density of t; `slope` is its derivative."""
    cdef double value = _density_of_power(p, p.power * t, slope)
    slope[0] *= p.power
    return value


cdef inline double _density_of_power(const density_t *p, double t, double *slope) noexcept nogil:
    """The same of t, the logarithm of scale^power, but for the constant log(abs(power)), which `constant` holds."""
    cdef double x
    if p.kind == HALF_NORMAL:
        x = exp(t) / p.a
        slope[0] = 1.0 - x * x
        return p.constant + t - 0.5 * x * x
    if p.kind == HALF_STUDENT:
        x = exp(t) / p.a
        x = x * x / p.b
        slope[0] = 1.0 - (p.b + 1.0) * x / (1.0 + x) if x < 1e300 else -p.b
        return p.constant + t - 0.5 * (p.b + 1.0) * log1p(x)
    if p.kind == GAMMA:
        x = p.b * exp(t)
        slope[0] = p.a - x
        return p.constant + p.a * t - x
    if p.kind == LOG_NORMAL:
        x = (t - p.a) / p.b
        slope[0] = -x / p.b
        return p.constant - 0.5 * x * x
    if p.kind == INVERSE_GAMMA_OF_SQUARE:
        x = p.b * exp(-2.0 * t)
        slope[0] = 2.0 * (x - p.a)
        return p.constant - 2.0 * p.a * t - x
    x = fabs(t)                                         # log(1 - tanh(t)^2) without cancellation
    slope[0] = -2.0 * p.a * tanh(t)
    return p.constant + 2.0 * p.a * (log(2.0) - x - log1p(exp(-2.0 * x)))


cdef inline double scale_curvature(const density_t *p, double t) noexcept nogil:
    """Minus the second derivative of the log density of t."""
    return p.power * p.power * _curvature_of_power(p, p.power * t)


cdef inline double _curvature_of_power(const density_t *p, double t) noexcept nogil:
    cdef double x
    if p.kind == HALF_NORMAL:
        x = exp(t) / p.a
        return 2.0 * x * x
    if p.kind == HALF_STUDENT:
        x = exp(t) / p.a
        x = x * x / p.b
        return 2.0 * (p.b + 1.0) * x / ((1.0 + x) * (1.0 + x))
    if p.kind == GAMMA:
        return p.b * exp(t)
    if p.kind == LOG_NORMAL:
        return 1.0 / (p.b * p.b)
    if p.kind == INVERSE_GAMMA_OF_SQUARE:
        return 4.0 * p.b * exp(-2.0 * t)
    x = tanh(t)
    return 2.0 * p.a * (1.0 - x * x)
