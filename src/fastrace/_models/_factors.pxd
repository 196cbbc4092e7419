# cython: cdivision=True
"""Effects of the groups of one factor: normal, of one covariance, with derivatives by what its root is made of.

The root is that of the covariance, lower triangular: row i is a standard deviation times row i of the Cholesky factor
of the correlations, which canonical partial correlations make. Hyperparameters phi hold the logarithms of the standard
deviations and the inverse hyperbolic tangents of the partial correlations.
"""

from libc.math cimport M_PI, exp, log, sqrt, tanh
from libc.stdint cimport uint8_t
from libc.string cimport memset

cdef struct factor_t:           # group effects: normal, of one covariance, independent between groups
    Py_ssize_t first            # their place in psi, group by group
    Py_ssize_t n_groups, q
    Py_ssize_t sd               # q hyperparameters: logs of the standard deviations
    Py_ssize_t correlation      # q (q - 1) / 2 of them, or -1 for independent effects of a group
    double *lower               # q x q: Cholesky factor of the correlations, and
    double *root                # of the covariance
    double *pull                # q x q: derivatives by the root


cdef inline void refresh_root(factor_t *f, const double *phi) noexcept nogil:
    """`lower` and `root` that these hyperparameters give."""
    cdef Py_ssize_t q = f.q, i, j, place = f.correlation
    cdef double left, z
    memset(f.lower, 0, q * q * sizeof(double))
    for i in range(q):
        left = 1.0
        if f.correlation >= 0:
            for j in range(i):
                z = tanh(phi[place])
                f.lower[i * q + j] = z * sqrt(left)
                left *= 1.0 - z * z
                place += 1
        f.lower[i * q + i] = sqrt(left)
        for j in range(q):
            f.root[i * q + j] = exp(phi[f.sd + i]) * f.lower[i * q + j]


cdef inline double slope_of_root(const factor_t *f, const double *phi, Py_ssize_t i, Py_ssize_t k,
                                 double z) noexcept nogil:
    """Derivative of entry (i, k) of the root by its own inverse hyperbolic tangent."""
    cdef double left = 1.0
    cdef Py_ssize_t j
    for j in range(k):
        left -= f.lower[i * f.q + j] * f.lower[i * f.q + j]
    return exp(phi[f.sd + i]) * sqrt(max(left, 0.0)) * (1.0 - z * z)


cdef inline void spread_root(const factor_t *f, const double *phi, double *by_phi) noexcept nogil:
    """From derivatives by the root, in `pull`, to those by hyperparameters: adds them."""
    cdef Py_ssize_t q = f.q, i, j, k, first = f.correlation
    cdef double z, later
    for i in range(q):
        for j in range(i + 1):
            by_phi[f.sd + i] += f.pull[i * q + j] * f.root[i * q + j]
    if f.correlation < 0:
        return
    for i in range(q):
        later = f.pull[i * q + i] * f.root[i * q + i]       # entries beyond k all hold the factor sqrt(1 - z_ik^2)
        for k in range(i - 1, -1, -1):
            z = tanh(phi[first + k])
            by_phi[first + k] -= z * later
            j = i * q + k
            by_phi[first + k] += f.pull[j] * slope_of_root(f, phi, i, k, z)
            later += f.pull[j] * f.root[j]
        first += i


cdef inline double log_effects(factor_t *f, const double *phi, const double *psi, double *work, double *gradient,
                               double *by_phi) noexcept nogil:
    """Log density of the effects; adds to the gradients, unless `gradient` is NULL. `work` has room for 2 q numbers."""
    cdef Py_ssize_t q = f.q, g, a, b
    cdef double *e = work
    cdef double *v = work + q
    cdef const double *u = psi + f.first
    cdef double out = 0.0, sum
    memset(f.pull, 0, q * q * sizeof(double))
    for a in range(q):
        out -= log(f.root[a * q + a])
        f.pull[a * q + a] = -f.n_groups / f.root[a * q + a]
    out = f.n_groups * (out - 0.5 * q * log(2.0 * M_PI))
    for g in range(f.n_groups):
        for a in range(q):                                  # e = root^-1 u
            sum = u[a]
            for b in range(a):
                sum -= f.root[a * q + b] * e[b]
            e[a] = sum / f.root[a * q + a]
            out -= 0.5 * e[a] * e[a]
        if gradient is not NULL:
            for a in range(q - 1, -1, -1):                  # v = root^-T e
                sum = e[a]
                for b in range(a + 1, q):
                    sum -= f.root[b * q + a] * v[b]
                v[a] = sum / f.root[a * q + a]
                gradient[f.first + g * q + a] = -v[a]
                for b in range(a + 1):
                    f.pull[a * q + b] += v[a] * e[b]
        u += q
    if gradient is not NULL:
        spread_root(f, phi, by_phi)
    return out


cdef inline void precision_of(const factor_t *f, double *work, double *out) noexcept nogil:
    """root^-T root^-1, a column of the inverse at a time. `work` has room for q numbers."""
    cdef Py_ssize_t q = f.q, a, b, c
    cdef double *e = work
    cdef double sum
    for c in range(q):
        for a in range(c, q):
            sum = 1.0 if a == c else 0.0
            for b in range(c, a):
                sum -= f.root[a * q + b] * e[b]
            e[a] = sum / f.root[a * q + a]
        for a in range(q - 1, -1, -1):
            sum = e[a] if a >= c else 0.0
            for b in range(a + 1, q):
                sum -= f.root[b * q + a] * e[b]
            e[a] = sum / f.root[a * q + a]
            out[a * q + c] = e[a]


# Standardised effects xi: theta = root xi in each group that is `free`.

cdef inline void effects_of(const factor_t *f, const uint8_t *free, const double *xi, double *theta) noexcept nogil:
    """theta = root xi in the groups that are free."""
    cdef Py_ssize_t j = f.first, _, a, b
    for _ in range(f.n_groups):
        if free[j]:
            for a in range(f.q):
                theta[j + a] = 0.0
                for b in range(a + 1):
                    theta[j + a] += f.root[a * f.q + b] * xi[j + b]
        j += f.q


cdef inline void standardise(const factor_t *f, const uint8_t *free, double *xi) noexcept nogil:
    """xi = root^-1 xi, in place, in the groups that are free."""
    cdef Py_ssize_t j = f.first, _, a, b
    for _ in range(f.n_groups):
        if free[j]:
            for a in range(f.q):
                for b in range(a):
                    xi[j + a] -= f.root[a * f.q + b] * xi[j + b]
                xi[j + a] /= f.root[a * f.q + a]
        j += f.q


cdef inline void pull_effects(factor_t *f, const double *phi, const uint8_t *free, const double *xi, double *gradient,
                              double *by_phi) noexcept nogil:
    """A gradient by the effects becomes that by xi, the Jacobian included; adds to that by hyperparameters."""
    cdef Py_ssize_t q = f.q, _, a, b, n_free = 0, j = f.first
    cdef double sum
    memset(f.pull, 0, q * q * sizeof(double))
    for _ in range(f.n_groups):
        if free[j]:
            n_free += 1
            for a in range(q):                              # root^T of the gradient, from the top down, in place
                for b in range(a + 1):
                    f.pull[a * q + b] += gradient[j + a] * xi[j + b]
            for b in range(q):
                sum = 0.0
                for a in range(b, q):
                    sum += f.root[a * q + b] * gradient[j + a]
                gradient[j + b] = sum
        j += q
    for a in range(q):
        f.pull[a * q + a] += n_free / f.root[a * q + a]
    spread_root(f, phi, by_phi)
