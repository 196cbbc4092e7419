# cython: cdivision=True
"""Powers of a step, of which a second-order expansion is the product with its coefficients."""


# 1, each component, and each product of two: (1 + d + d (d + 1) / 2,), in the order in which `packed` of `_expanded`
# has the coefficients.
cdef inline void powers_of_step(const double *theta, const double *hat, Py_ssize_t d, double *out) noexcept nogil:
    cdef Py_ssize_t a, b, k = 1 + d
    out[0] = 1.0
    for a in range(d):
        out[1 + a] = theta[a] - hat[a]
        for b in range(a + 1):
            out[k] = out[1 + a] * out[1 + b]
            k += 1
