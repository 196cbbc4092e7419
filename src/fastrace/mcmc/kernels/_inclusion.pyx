# cython: cdivision=True
"""Which coefficients are in a model: moves on a surrogate posterior that reads no row."""

from libc.math cimport INFINITY, exp, fabs, isfinite, log, sqrt
from libc.stdint cimport int64_t
from libc.string cimport memcpy, memset
cimport numpy as cnp
from cpython.pycapsule cimport PyCapsule_GetPointer
from numpy.random cimport bitgen_t
from scipy.linalg.cython_blas cimport dtrsv
from scipy.linalg.cython_lapack cimport dpotrf

from fastrace._draws._rng cimport random_standard_exponential
from fastrace._math._densities cimport scale_density
from fastrace._models._priors cimport JointPrior
from fastrace.mcmc.kernels._chain cimport Chain, Move, begin

import numpy as np

cnp.import_array()

cdef extern from "numpy/random/distributions.h" nogil:
    double random_standard_normal(bitgen_t *bits)
    double random_standard_gamma(bitgen_t *bits, double shape)

cdef double LEAST_Z = 1e-140            # standard deviations of a slab; its square and reciprocal are numbers
cdef double SCALE_STEP = 1.5            # of a walk of the logarithm of a learned scale,
cdef double FARTHEST = 200.0            # and how far it goes from 0: squares of scales there are numbers

cdef enum:
    SCALE_WALKS = 3


cdef double precision_given(double z, double df, bitgen_t *bits) noexcept nogil:
    """A draw of w given z, if z is N(0, 1 / w) given w: of the precision behind a Student-t or Laplace variable.

    Student-t: w has the density of chi^2 / df, and given z that of a gamma variable. Laplace, with df 0: 1 / w is
    exponential with mean 2, and w given z inverse Gaussian with mean 1 / |z| and shape 1 (Park & Casella, 2008), drawn
    by the method of Michael, Schucany & Haas (1976).
    """
    cdef double mean, half, root, normal
    if df > 0.0:
        return random_standard_gamma(bits, 0.5 * (df + 1.0)) / (0.5 * (df + z * z))
    mean = 1.0 / max(fabs(z), LEAST_Z)
    normal = random_standard_normal(bits)
    half = 0.5 * mean * normal * normal
    root = 1.0 / (1.0 + half + sqrt(half * (2.0 + half)))       # the smaller root over the mean: at most 1
    return mean * root if bits.next_double(bits.state) * (1.0 + root) < 1.0 else mean / root


cdef double precision_of_none(double df, bitgen_t *bits) noexcept nogil:
    """The same before z is known."""
    if df > 0.0:
        return random_standard_gamma(bits, 0.5 * df) / (0.5 * df)
    return 0.5 / max(random_standard_exponential(bits), LEAST_Z)


cdef class InclusionMove(Move):
    r"""Collapsed Gibbs over the coefficients in a model, then a draw of their values; one decision on the rows.

    The surrogate's density is proportional to the prior of the set :math:`\gamma` of coefficients in the model times
    :math:`\prod_{j \in \gamma} e^{g_j} \exp(c^\top b - b^\top A b / 2)`, where b is 0 outside :math:`\gamma`. With b
    integrated out, adding j to the others multiplies it by :math:`e^{g_j} s^{-1/2} e^{r^2 / 2 s}`: s and r are the
    Schur complement of :math:`A_{jj}` and what the others leave of :math:`c_j`. The matrix (A, c; c', 0), swept on
    :math:`\gamma`, holds s and r of all j at once, so that a coefficient that stays as it is costs O(1), and one that
    changes O(p^2).

    Parameters
    ----------
    precision : ndarray of shape (p, p)
        A.
    linear, gain : ndarray of shape (p,)
        c and g.
    free : ndarray of int64
        Coefficients that may be out; the others are always in.
    log_prior : ndarray of shape (len(free) + 1,)
        Log prior of each number of free coefficients in the model, beside g.
    n_flips : int
        Coefficients, drawn at random, that a step draws anew whether they are in.
    mixed : tuple of ndarray, optional
        Numbers of coefficients whose slab is Student-t or Laplace or has a learned scale, and its degrees of freedom
        (0: Laplace, -1: normal), means and scales, and the number of the learned scale that multiplies the latter, or
        -1; their slabs have no part in A, c and g then. A Student-t or Laplace density is normal given a precision of
        its own (Andrews & Mallows, 1974), which each step first draws given the present value, or from its prior where
        the coefficient is out.
    scales : JointPrior, optional
        Whose hyperparameters are the logarithms of the learned scales, one for each number. They are moved last, given
        the values of the coefficients that are in and the precisions just drawn: no row sees them.
    """

    cdef readonly Py_ssize_t p, n_free, n_flips
    cdef cnp.ndarray _precision, _linear, _gain, _free, _log_prior, _swept, _work, _chosen, _mixed, _slabs
    cdef Py_ssize_t n_mixed, n_scales
    # df, mean, scale and number of the learned one of each; what A, c and g are without its slab; and the precision
    # that it has now, were the learned scale 1
    cdef double *slabs
    cdef JointPrior scales
    cdef double *phi        # logarithms of the learned scales
    cdef double *swept                  # (p + 1, p + 1): the matrix, swept on the coefficients that are in
    cdef double *theta
    cdef double *factor                 # of the precision of those that are in, column after column
    cdef int64_t *inside                # whether each is in
    cdef Py_ssize_t count               # free ones that are in

    def __cinit__(self, precision, linear, gain, free, log_prior, n_flips, mixed=None,
                  JointPrior scales=None):
        cdef Py_ssize_t p = len(linear), k, j
        self.p, self.n_free, self.n_flips = p, len(free), n_flips
        self._precision = np.array(precision, dtype=np.float64, order="C")
        self._linear = np.array(linear, dtype=np.float64)
        self._gain = np.array(gain, dtype=np.float64)
        self._free = np.ascontiguousarray(free, dtype=np.int64)
        self._log_prior = np.ascontiguousarray(log_prior, dtype=np.float64)
        if (<object>self._precision).shape != (p, p) or len(gain) != p or len(log_prior) != len(free) + 1:
            raise ValueError("the arrays of an InclusionMove must agree in length")
        self._swept = np.zeros((p + 1) * (p + 1))
        self.scales, self.n_scales = scales, 0 if scales is None else scales.n_hyper
        self._work = np.zeros(2 * p + p * p + self.n_scales)
        self._chosen = np.zeros(p, dtype=np.int64)
        self.swept = <double *>cnp.PyArray_DATA(self._swept)
        self.theta = <double *>cnp.PyArray_DATA(self._work)
        self.factor = self.theta + 2 * p
        self.phi = self.factor + p * p
        self.inside = <int64_t *>cnp.PyArray_DATA(self._chosen)
        self._mixed = np.zeros(0, dtype=np.int64) if mixed is None else np.array(mixed[0], dtype=np.int64)
        self.n_mixed = len(self._mixed)
        self._slabs = np.zeros((self.n_mixed, 8))
        if mixed is not None:
            learned = mixed[4] if len(mixed) > 4 else np.full(self.n_mixed, -1.0)    # of kernels saved before
            self._slabs[:, :4] = np.stack([*mixed[1:4], learned], axis=1)
            if not (-1 <= self._slabs[:, 3]).all() or not (self._slabs[:, 3] < self.n_scales).all():
                raise ValueError(f"slabs have learned scales up to number {self._slabs[:, 3].max()}, and there are "
                                 f"{self.n_scales}")
            for k in range(self.n_mixed):
                j = self._mixed[k]
                self._slabs[k, 4:7] = self._precision[j, j], self._linear[j], self._gain[j]
        self.slabs = <double *>cnp.PyArray_DATA(self._slabs)

    def __reduce__(self):
        raise TypeError("an InclusionMove belongs to the kernel that made it and is not saved")

    def drawn(self, rng, theta, Py_ssize_t n):
        """Where n moves on the surrogate lead from a point: a draw of the surrogate's density as n grows."""
        cdef bitgen_t *bits = <bitgen_t *>PyCapsule_GetPointer(rng.bit_generator.capsule, "BitGenerator")
        cdef double[::1] start = np.array(theta, dtype=np.float64)
        cdef Py_ssize_t _i
        if start.shape[0] != self.p + self.n_scales:
            raise ValueError(f"theta has {start.shape[0]} entries; {self.p + self.n_scales} are needed")
        memcpy(self.theta, &start[0], self.p * sizeof(double))
        memcpy(self.phi, &start[0] + self.p, self.n_scales * sizeof(double))
        with rng.bit_generator.lock, nogil:
            for _i in range(n):
                self.move(bits)
                self.move_scales(self.theta, bits)
        return np.concatenate([self._work[: self.p], self._work[2 * self.p + self.p * self.p :]])

    cdef int suits(self, Chain chain) except -1:
        if chain.n_seen != self.p or chain.n_hyper != self.n_scales:
            raise ValueError(f"the chain has {chain.n_seen} coefficients and {chain.n_hyper} scales, and the move "
                             f"{self.p} and {self.n_scales}")
        return 0

    cdef int make(self, Chain chain, bitgen_t *bits) except -1 nogil:
        """One step: a decided move of the coefficients, then one of the learned scales given where they are."""
        memcpy(self.phi, chain.phi_now, self.n_scales * sizeof(double))
        self.decided(chain, bits)
        if self.n_scales:
            self.move_scales(chain.now, bits)
            memcpy(chain.phi_now, self.phi, self.n_scales * sizeof(double))
            memcpy(chain.phi_new, self.phi, self.n_scales * sizeof(double))
        return 0

    cdef int decided(self, Chain chain, bitgen_t *bits) except -1 nogil:
        """The move is reversible for the surrogate, so that the rest of the ratio is what the rows leave, and what the
        expansion leaves of the prior of a scale of outcomes.
        """
        cdef double threshold
        cdef Py_ssize_t i
        begin(chain, bits)
        threshold = -random_standard_exponential(bits)
        memcpy(self.theta, chain.now, self.p * sizeof(double))
        self.move(bits)
        for i in range(self.p):
            if not isfinite(self.theta[i]):
                return 0
        memcpy(chain.new, self.theta, self.p * sizeof(double))
        chain.to_z(chain.new, chain.z1)
        chain.prior_new = chain.log_prior_of(chain.new)
        if chain.prior_new == -INFINITY:
            return 0
        chain.decide(threshold - (chain.prior_new - chain.prior_now))
        if chain.step.accepted:
            chain.arrive()
        return 0

    cdef int move(self, bitgen_t *bits) except -1 nogil:
        """Replace `theta` by where a transition that is reversible for the surrogate leads."""
        cdef const int64_t *free = <const int64_t *>cnp.PyArray_DATA(self._free)
        cdef Py_ssize_t i, j, _t
        cdef double log_odds
        cdef bint chosen
        if self.n_mixed:
            self.mix(bits)
        self.load()
        for _t in range(self.n_flips if self.n_free else 0):
            i = <Py_ssize_t>(self.n_free * bits.next_double(bits.state))
            j = free[min(i, self.n_free - 1)]
            log_odds = self.log_odds(j)
            chosen = bits.next_double(bits.state) * (1.0 + exp(-log_odds)) < 1.0
            if chosen != self.inside[j]:
                self.sweep(j)
        self.draw_values(bits)
        return 0

    cdef void mix(self, bitgen_t *bits) noexcept nogil:
        """Draw the precisions of slabs that are not normal, given the coefficients and the learned scales: A, c and g
        are then given all of these.
        """
        cdef double *A = <double *>cnp.PyArray_DATA(self._precision)
        cdef double *c = <double *>cnp.PyArray_DATA(self._linear)
        cdef double *gain = <double *>cnp.PyArray_DATA(self._gain)
        cdef const int64_t *mixed = <const int64_t *>cnp.PyArray_DATA(self._mixed)
        cdef double *slab = self.slabs
        cdef Py_ssize_t k, j
        cdef double w, learned
        for k in range(self.n_mixed):
            j = mixed[k]
            learned = exp(self.phi[<Py_ssize_t>slab[3]]) if slab[3] >= 0.0 else 1.0
            if slab[0] < 0.0:
                w = 1.0
            elif self.theta[j] != 0.0:
                w = precision_given((self.theta[j] - slab[1]) / (slab[2] * learned), slab[0], bits)
            else:
                w = precision_of_none(slab[0], bits)
            w /= slab[2] * slab[2]
            slab[7] = w
            w /= learned * learned
            A[j * self.p + j] = slab[4] + w
            c[j] = slab[5] + w * slab[1]
            gain[j] = slab[6] + 0.5 * (log(w) - w * slab[1] * slab[1])
            slab += 8

    cdef int move_scales(self, const double *theta, bitgen_t *bits) except -1 nogil:
        """Move the logarithm t of each learned scale given the coefficients and the precisions of their slabs.

        With n of them in, and S their squared distances from the means times these precisions, t has the log density
        l(t) - n t - S exp(-2 t) / 2, l that of its prior. First exp(-2 t) is proposed from the gamma density that l = 0
        would leave, then t from where it is; the prior alone decides where no coefficient is in.
        """
        cdef const int64_t *mixed = <const int64_t *>cnp.PyArray_DATA(self._mixed)
        cdef const double *slab
        cdef Py_ssize_t i, k, n
        cdef double squares, t, prior, new, prior_new, ratio, _slope
        cdef int _t
        for i in range(self.n_scales):
            n, squares, slab = 0, 0.0, self.slabs
            for k in range(self.n_mixed):
                if slab[3] == i and theta[mixed[k]] != 0.0:
                    n += 1
                    squares += slab[7] * (theta[mixed[k]] - slab[1]) * (theta[mixed[k]] - slab[1])
                slab += 8
            t = self.phi[i]
            prior = scale_density(&self.scales.hyper[i], t, &_slope)
            for _t in range(0 if n > 0 else 1, SCALE_WALKS + 1):
                if _t == 0:
                    new = -0.5 * log(2.0 * random_standard_gamma(bits, 0.5 * n) / max(squares, LEAST_Z))
                else:
                    new = t + SCALE_STEP * random_standard_normal(bits)
                ratio = -random_standard_exponential(bits)
                if not fabs(new) < FARTHEST:
                    continue
                prior_new = scale_density(&self.scales.hyper[i], new, &_slope)
                if _t > 0:
                    ratio += n * (new - t) + 0.5 * squares * (exp(-2.0 * new) - exp(-2.0 * t))
                if ratio < prior_new - prior:
                    t, prior = new, prior_new
            self.phi[i] = t
        return 0

    cdef void load(self) noexcept nogil:
        """The matrix swept on the coefficients of `theta`, from the beginning: a chain can go on from its state."""
        cdef const double *A = <const double *>cnp.PyArray_DATA(self._precision)
        cdef const double *c = <const double *>cnp.PyArray_DATA(self._linear)
        cdef const int64_t *free = <const int64_t *>cnp.PyArray_DATA(self._free)
        cdef Py_ssize_t i, p = self.p
        for i in range(p):
            memcpy(self.swept + i * (p + 1), A + i * p, p * sizeof(double))
            self.swept[i * (p + 1) + p] = self.swept[p * (p + 1) + i] = c[i]
        self.swept[p * (p + 1) + p] = 0.0
        memset(self.inside, 0, p * sizeof(int64_t))
        self.count = -(p - self.n_free)         # those always in are no free ones
        for i in range(self.n_free):
            self.inside[free[i]] = 2
        for i in range(p):
            if self.inside[i] == 0 or self.theta[i] != 0.0:
                self.inside[i] = 0
                self.sweep(i)
            else:
                self.inside[i] = 0

    cdef double log_odds(self, Py_ssize_t j) noexcept nogil:
        """Of coefficient j being in, given the others."""
        cdef Py_ssize_t p = self.p, others = self.count - (self.inside[j] != 0)
        cdef const double *prior = <const double *>cnp.PyArray_DATA(self._log_prior)
        cdef double s = self.swept[j * (p + 1) + j], r = self.swept[j * (p + 1) + p], pull
        if prior[others + 1] == -INFINITY:      # no set may be so large, or
            return -INFINITY
        if prior[others] == -INFINITY:          # so small
            return INFINITY
        if self.inside[j]:
            s = -1.0 / s                        # swept: -1 / s, and r / s
            pull = r * r * s
        else:
            pull = r * r / s
        if not s > 0.0:                         # a multiple of the others, beyond double precision
            return -INFINITY
        return (<const double *>cnp.PyArray_DATA(self._gain))[j] + prior[others + 1] - prior[others] + 0.5 * (
            pull - log(s))

    cdef void sweep(self, Py_ssize_t k) noexcept nogil:
        """Beaton's sweep on a coefficient that was out, or its inverse on one that was in."""
        cdef Py_ssize_t i, j, n = self.p + 1
        cdef double *M = self.swept
        cdef double *pivot = M + k * n
        cdef double d = pivot[k], share
        cdef double side = -1.0 if self.inside[k] else 1.0
        for i in range(n):
            if i != k:
                share = M[i * n + k] / d
                for j in range(n):
                    if j != k:
                        M[i * n + j] -= share * pivot[j]
        for i in range(n):
            if i != k:
                pivot[i] = M[i * n + k] = side * pivot[i] / d
        pivot[k] = -1.0 / d
        self.count += -1 if self.inside[k] else 1
        self.inside[k] = not self.inside[k]

    cdef int draw_values(self, bitgen_t *bits) except -1 nogil:
        """`theta` given the coefficients that are in: normal, with precision A and mean A^-1 c of those."""
        cdef const double *A = <const double *>cnp.PyArray_DATA(self._precision)
        cdef const double *c = <const double *>cnp.PyArray_DATA(self._linear)
        cdef Py_ssize_t i, j, p = self.p
        cdef int n = 0, step = 1, info = 0, a, b
        cdef double *x = self.theta + p
        for i in range(p):
            if self.inside[i]:
                x[n] = c[i]
                n += 1
        if n == 0:
            memset(self.theta, 0, p * sizeof(double))
            return 0
        a = 0
        for i in range(p):
            if self.inside[i]:
                b = 0
                for j in range(p):
                    if self.inside[j]:
                        self.factor[a * n + b] = A[i * p + j]
                        b += 1
                a += 1
        dpotrf(b"L", &n, self.factor, &n, &info)
        if info != 0:
            with gil:
                raise ValueError("the precision of the coefficients in the model is not positive definite in double "
                                 "precision: centre and scale the columns")
        dtrsv(b"L", b"N", b"N", &n, self.factor, &n, x, &step)
        for a in range(n):
            x[a] += random_standard_normal(bits)
        dtrsv(b"L", b"T", b"N", &n, self.factor, &n, x, &step)
        a = 0
        for i in range(p):
            self.theta[i] = 0.0
            if self.inside[i]:
                self.theta[i] = x[a]
                a += 1
        return 0
