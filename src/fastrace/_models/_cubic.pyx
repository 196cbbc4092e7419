# cython: cdivision=True
"""Bounds on what a second-order expansion leaves of each row's term of a generalised linear model."""

from libc.math cimport INFINITY, exp, log
cimport numpy as cnp

from fastrace.likelihoods cimport fr_families, fr_family, GLMSource

import math

import numpy as np

cnp.import_array()

cdef enum:
    STEPS = 16                      # most steps of an integral over third derivatives

cdef double STEPS_PER_E = 8.0       # of them, for each factor e between the smallest and the largest

# Radii of the balls with weights of their own, beyond sqrt(p) standard deviations, and the share of the next larger
# ball's that these must stay below to be worth their memory.
SHELLS = 2.0, 4.0, 8.0
WORTH = 0.6
# Rows that tell whether any ball is, where there are many more, if the smallest one's share of them is so much larger.
SOME, CLEARLY = 100_000, 1.05


def cubic_weights(glm, lengths, predictors, y=None):
    """Bound on the third derivative of each row's term along a direction of length 1, and the radius where it holds.

    x . (theta - theta_hat) is at most `lengths` times the distance of theta from theta_hat; ``predictors()`` gives
    x . theta_hat of each row, for families whose third derivative is bounded near theta_hat only. `y` holds the
    outcomes, where these are of some rows only.
    """
    y = np.asarray(glm.y if y is None else y)
    if glm.outcomes == "binary":                        # of two outcomes, which take a bound each
        everywhere = glm.third_derivatives(y=[0.0, 1.0])[(y > 0.0).astype(np.intp)]
    else:
        everywhere = glm.third_derivatives(y=y)
    if np.isfinite(everywhere).all():
        return everywhere * lengths**3, math.inf
    radius = math.sqrt(glm.theta.shape[1]) + 5.0
    return _bends(glm, y, _centers(glm, y, predictors), lengths * radius) * lengths**3, radius


def cubic_shells(glm, lengths, predictors, weights, radius):
    r"""Smaller weights that hold in smaller balls, where they are much smaller: (radius, weights), the smallest first.

    Arguments as for `cubic_weights`, and what it returned.

    Notes
    -----
    Let R be the residual of a row as a function of its predictor's distance a from the point of expansion, and m(s) the
    largest third derivative of its term within s of it. Within a ball abs(a) stays below a reach t. There
    :math:`|R'(a)| \le \int_0^{|a|} (|a| - s) m(s) ds \le k a^2 / 2` with
    :math:`k = (2 / t^2) \int_0^t (t - s) m(s) ds`, because m grows with s. So k takes the place of a bound on the third
    derivative in all that follows from :math:`|R'(a)| \le M_3 a^2 / 2`. It is a weighted average of m, not its largest
    value. Which ball holds a move does not depend on its direction; that is all an exact decision asks.
    """
    y = np.asarray(glm.y)
    center, kept, bulk = _centers(glm, y, predictors), [], math.sqrt(glm.theta.shape[1])
    if len(y) > 2 * SOME and bulk + SHELLS[0] < radius:
        some = slice(None, None, len(y) // SOME)
        smaller = _bends(glm, y[some].copy(), center[some], lengths[some] * (bulk + SHELLS[0])) * lengths[some]**3
        if math.fsum(smaller) > CLEARLY * WORTH * math.fsum(weights[some]):
            return ()
    total = math.fsum(weights)
    for beyond in SHELLS:
        if bulk + beyond < radius:
            kept.append((bulk + beyond, None))
    for k, (inner, _) in enumerate(kept):
        kept[k] = inner, _bends(glm, y, center, lengths * inner) * lengths**3
        if k == 0 and math.fsum(kept[0][1]) > WORTH * total:    # no ball is worth its memory
            return ()
    out = []
    for inner, smaller in reversed(kept):
        if math.fsum(smaller) <= WORTH * total:
            out.insert(0, (inner, smaller))
            total = math.fsum(smaller)
    return tuple(out)


def cubic_bends(glm, predictors, reach):
    """A number k for each row with abs(R'(a)) <= k a^2 / 2 as long as abs(a) is at most `reach`, one for each row."""
    y = np.asarray(glm.y)
    return _bends(glm, y, _centers(glm, y, predictors), reach)


def _centers(glm, y, predictors):
    """Predictors at the point of expansion, less the outcomes where `third_derivatives` asks for that."""
    return predictors() - y if glm.of_residual else predictors()


cdef cnp.ndarray _bends(GLMSource glm, outcome, center, reach):
    """k of `cubic_shells`, from above: m is taken at the far end of each of a few steps."""
    cdef const double[::1] c = np.ascontiguousarray(center, dtype=np.float64)
    cdef const double[::1] t = np.ascontiguousarray(reach, dtype=np.float64)
    cdef const double[::1] y = outcome
    cdef cnp.ndarray out = np.empty(c.shape[0])
    cdef double *k = <double *>cnp.PyArray_DATA(out)
    cdef double most, least, left, right, near
    cdef const fr_family *family = &fr_families[glm.model.family]
    cdef Py_ssize_t i, s, steps
    with nogil:
        for i in range(c.shape[0]):
            most = family.third(glm.scale, glm.df, y[i], c[i] - t[i], c[i] + t[i])
            least = family.third(glm.scale, glm.df, y[i], c[i], c[i])
            steps = STEPS
            if most < INFINITY and 0.0 < least and most < least * exp(STEPS / STEPS_PER_E):
                steps = 1 + <Py_ssize_t>(STEPS_PER_E * log(most / least))
            k[i] = most / (<double>steps * steps)
            for s in range(1, steps):
                left, right = 1.0 - (s - 1.0) / steps, 1.0 - s / <double>steps
                near = t[i] * s / steps
                k[i] += (left * left - right * right) * family.third(glm.scale, glm.df, y[i], c[i] - near, c[i] + near)
    return out
