# cython: cdivision=True
"""The nested normal: moves on a surrogate whose prior is normal given its hyperparameters."""

from libc.math cimport INFINITY, fabs, isfinite, log1p, sqrt
from libc.string cimport memcmp, memcpy
cimport numpy as cnp
from numpy.random cimport bitgen_t

from fastrace._base._guard cimport guard_await, guard_build, guard_built
from fastrace._draws._rng cimport random_standard_exponential
from fastrace._models._arrow cimport Arrow, ArrowFactor, Quadratic
from fastrace._models._priors cimport JointPrior
from fastrace.mcmc.kernels._surrogate cimport Inner

import numpy as np

from fastrace._models._arrow import added

cdef extern from "numpy/random/distributions.h" nogil:
    double random_standard_normal(bitgen_t *bits)
    double random_standard_gamma(bitgen_t *bits, double shape)

cdef enum:
    MOST_STEPS = 32             # outwards of a slice, and
    MOST_SHRINKS = 200          # inwards; a slice so thin has no width left, and phi stays

cdef double STAY_SHARE = 0.75   # of moves in which coordinates that may stay keep their z
cdef double TAIL = 5.0          # degrees of freedom of independent proposals of phi
cdef double FAR = 1e6           # squared deviations of a prior; terms as large lose a ten-billionth in rounding

cnp.import_array()


def layout_of(JointPrior prior not None):
    """Runs of equal blocks, (count, width), in the precision that `prior` gives for psi."""
    coefficients, _, factors, aux, _ = prior.given
    runs = [(len(coefficients), 1)] + [(count, len(sds)) for count, sds, _ in factors]
    return runs + ([(1, 1)] if aux is not None else [])


cdef class NormalInner(Inner):
    """Nested normal: phi from its marginal under the surrogate, then psi given phi, which is normal.

    Let m and P be mean and precision of the prior of psi given phi, g and H the surrogate's gradient and curvature, and
    A = H + P. About any point r, with e = r - psi_hat, f = m - r and b = g - H e + P f, psi given phi is
    N(r + A^-1 b, A^-1), and

        log marginal(phi) = log p(phi) + (log|P| - log|A| + b' A^-1 b - e' H e - f' P f) / 2 + g' e.

    r is psi_hat, but for blocks where P is huge, as where scales are tiny: there it is m, so that nothing large is lost
    in rounding.

    Phi moves by independent proposals from a t density near that marginal, its two sides along each column of `factor`
    stretched apart, and in a share of the moves by a slice along a random direction. psi = r + A^-1 b + L'^-1 z with
    A = L L', and z is standard normal whatever phi is: a whole move draws it anew, a smaller one takes z to
    sqrt(1 - size^2) z + size xi. Both moves are reversible, and phi and z are independent under the surrogate; so the
    pair is reversible too.

    Parameters
    ----------
    surrogate : Quadratic
    prior : JointPrior
        Copied.
    center, factor : array_like of shape (n_hyper,) and (n_hyper, n_hyper)
        A normal density near the marginal of phi; `factor` is lower triangular.
    stretch : array_like of shape (2, n_hyper), optional
        How much farther than that density the marginal reaches below and above `center` along each column of `factor`;
        1 if not given.
    walk_share : float
        Share of slices among the moves of phi.
    fixed_share : float
        Share of moves that take no factor of A: a slice of phi given psi; psi by a move that leaves it normal as it is
        given phi = `center`, which the prior's change between the two phi accepts or refuses; and a slice of phi again.
        Each is reversible, and so is the palindrome.
    tilt : array_like of shape (n_seen,), optional
        Added to the surrogate's gradient for all moves. The decision takes it off again.
    bend : Arrow, optional
        Added to its curvature in the same way; of the same shape.
    stay : array_like of shape (n_seen,), optional
        Where it is not 0, coordinates keep their z in a share of the moves that take a factor.
    """

    def __cinit__(self, *args, **kwargs):
        guard_await(&self.guard, 1)

    def __init__(self, Quadratic surrogate not None, JointPrior prior not None, center=None, factor=None,
                 stretch=None, walk_share=0.1, fixed_share=0.0, tilt=None, Arrow bend=None, stay=None):
        cdef Py_ssize_t n = surrogate.dim, k = prior.n_hyper + self.n_aside, seen = prior.n_seen
        cdef double *number
        guard_build(&self.guard, 1, self)
        if seen != n + self.n_aside:
            raise ValueError(f"the prior is of {seen} parameters that rows see, and the surrogate of {n}")
        middle = np.array(np.zeros(k) if center is None else center, dtype=np.float64)
        lower = np.array(np.eye(k) if factor is None else factor, dtype=np.float64, order="C")
        sides = np.ones((2, k)) if stretch is None else np.array(stretch, dtype=np.float64, order="C")
        if sides.shape != (2, k) or not (np.isfinite(sides).all() and (sides > 0.0).all()):
            raise ValueError(f"stretch has shape {sides.shape}; positive numbers of shape (2, {k}) are needed")
        finite = np.isfinite(middle).all() and np.isfinite(lower).all()
        if middle.shape != (k,) or lower.shape != (k, k) or not (finite and (np.diagonal(lower) > 0.0).all()):
            raise ValueError(f"center has shape {middle.shape} and factor {lower.shape}; finite numbers of shape "
                             f"({k},) and ({k}, {k}) are needed, the diagonal positive")
        lean = self._vector_of(tilt, n)
        curvature = added(surrogate.curvature, bend)
        tilted = Quadratic(surrogate.center, surrogate.value, surrogate.gradient + lean, curvature)
        super().__init__(tilted, k)
        self.walk_share = walk_share
        if stay is not None:
            self._stay = self._vector_of(stay, n)
            self.stay = <double *>cnp.PyArray_DATA(self._stay)
        self.prior = prior.copy()
        runs = layout_of(prior)
        layout = runs[:len(runs) - self.n_aside]
        self.factor = ArrowFactor(curvature, layout)
        self.added = None if bend is None else bend.shared()
        self._memory = np.zeros(12 * seen + 2 * prior.n_precision + 7 * k + k * k)
        number = <double *>cnp.PyArray_DATA(self._memory)
        self.mean, self.b, self.z, self.scratch = number, number + seen, number + 2 * seen, number + 3 * seen
        self.precision = number + 4 * seen
        number = self.precision + prior.n_precision
        self.phi_center, self.phi_try, self.phi_step = number, number + k, number + 2 * k
        self.phi_here, self.phi_kept, self.phi_factor = number + 3 * k, number + 4 * k, number + 5 * k
        memcpy(self.phi_center, cnp.PyArray_DATA(middle), k * sizeof(double))
        memcpy(self.phi_factor, cnp.PyArray_DATA(lower), k * k * sizeof(double))
        self.phi_stretch = self.phi_factor + k * k
        memcpy(self.phi_stretch, cnp.PyArray_DATA(sides), 2 * k * sizeof(double))
        number = self.phi_stretch + 2 * k
        self.fixed_b, self.fixed_mean, self.gap = number, number + seen, number + 2 * seen
        self.pull, self.tilt, self.about = number + 3 * seen, number + 4 * seen, number + 5 * seen
        self.fixed_about, self.bend = number + 6 * seen, number + 7 * seen
        self.fixed_precision = number + 8 * seen
        memcpy(self.bend, cnp.PyArray_DATA(np.ascontiguousarray(curvature.diagonal())), n * sizeof(double))
        memcpy(self.tilt, cnp.PyArray_DATA(lean), n * sizeof(double))
        if fixed_share > 0.0 and k > 0 and isfinite(self.log_marginal(self.phi_center)):
            self.fixed_share = fixed_share
            self.fixed = ArrowFactor(curvature, layout)
            self.prior.conditional(self.phi_center, self.fixed_mean, self.fixed_precision)
            self.fixed.decompose(self.fixed_precision)
            memcpy(self.fixed_b, self.b, n * sizeof(double))
            memcpy(self.fixed_about, self.about, n * sizeof(double))
        guard_built(&self.guard, 1)

    @staticmethod
    def _vector_of(tilt, n):
        lean = np.zeros(n) if tilt is None else np.array(tilt, dtype=np.float64)
        if lean.shape != (n,) or not np.isfinite(lean).all():
            raise ValueError(f"tilt or stay has shape {lean.shape}; {n} finite numbers are needed")
        return lean

    cdef double tilted(self, const double *theta) noexcept nogil:
        """What tilt and bend add to the logarithm of the surrogate."""
        cdef double sum = 0.0
        cdef Py_ssize_t i
        for i in range(self.n_seen):
            self.gap[i] = theta[i] - self.surrogate.hat[i]
            sum += self.tilt[i] * self.gap[i]
        if self.added is not None:
            self.added.product(self.gap, self.pull)
            for i in range(self.n_seen):
                sum -= 0.5 * self.gap[i] * self.pull[i]
        return sum

    cdef double log_of_phi(self, const double *phi) except? -1.0 nogil:
        """What the marginal of phi has beside an integral over psi; gradient and curvature are then those of phi."""
        return self.prior.log_hyper(phi)

    cdef double log_marginal(self, const double *phi) except? -1.0 nogil:
        """Of phi, up to a constant; `factor`, `about` and `b` are then those of phi."""
        cdef Py_ssize_t i, n = self.n_seen
        cdef const double *hat = self.surrogate.hat
        cdef const double *slope = self.surrogate.slope
        cdef double out, sum = 0.0
        cdef bint apart
        if self.fresh and not memcmp(phi, self.phi_here, self.n_hyper * sizeof(double)):
            return self.value
        memcpy(self.phi_here, phi, self.n_hyper * sizeof(double))
        self.fresh = True
        self.value = -INFINITY
        out = self.log_of_phi(phi)
        if not isfinite(out):
            return self.value
        self.prior.conditional(phi + self.n_aside, self.mean, self.precision)
        if not self.factor.decompose(self.precision):
            return self.value
        apart = self.choose_about()
        for i in range(n):
            self.mean[i] -= self.about[i]
        self.factor.prior_product(self.precision, self.mean, self.b)
        for i in range(n):
            sum -= self.mean[i] * self.b[i]
            self.b[i] += slope[i]
        if apart:
            for i in range(n):
                self.gap[i] = self.about[i] - hat[i]
            self.surrogate.curvature.product(self.gap, self.pull)
            for i in range(n):
                sum += self.gap[i] * (2.0 * slope[i] - self.pull[i])
                self.b[i] -= self.pull[i]
        self.factor.half_solve(self.b)
        for i in range(n):
            sum += self.b[i] * self.b[i]
        out += 0.5 * (self.factor.prior_log_determinant(self.precision) - self.factor.log_determinant() + sum)
        if isfinite(out):
            self.value = out
        return self.value

    cdef bint choose_about(self) noexcept nogil:
        """Set `about`: the surrogate's center, but `mean` in blocks whose prior is the tighter and far off that center.

        True if any is.
        """
        cdef Py_ssize_t t, _c, i, w, first = 0
        cdef const double *P = self.precision
        cdef const double *hat = self.surrogate.hat
        cdef double step
        cdef bint apart = False, tighter
        memcpy(self.about, hat, self.n_seen * sizeof(double))
        for t in range(self.factor.n_segments):
            w = self.factor.segments[2 * t + 1]
            for _c in range(self.factor.segments[2 * t]):
                tighter = False
                for i in range(w):
                    step = self.mean[first + i] - hat[first + i]
                    tighter = tighter or (P[i * w + i] * step * step > FAR and P[i * w + i] > self.bend[first + i])
                if tighter:
                    memcpy(self.about + first, self.mean + first, w * sizeof(double))
                    apart = True
                first += w
                P += w * w
        return apart

    cdef double log_proposal(self, const double *phi) noexcept nogil:
        """Log density of the independent proposals of phi, up to a constant."""
        cdef Py_ssize_t i, j, k = self.n_hyper
        cdef double sum, side, squares = 0.0
        for i in range(k):
            sum = phi[i] - self.phi_center[i]
            for j in range(i):
                sum -= self.phi_factor[i * k + j] * self.phi_step[j]
            self.phi_step[i] = sum / self.phi_factor[i * k + i]
            side = self.phi_step[i] / self.phi_stretch[i if sum < 0.0 else k + i]
            squares += side * side
        return -0.5 * (TAIL + k) * log1p(squares / TAIL)

    cdef int move_phi(self, double *phi, double here, bitgen_t *bits) except -1 nogil:
        """One move of phi, reversible for its marginal, whose logarithm at phi is `here`.

        From a phi without a density the first proposal that has one is taken.
        """
        cdef Py_ssize_t i, j, k = self.n_hyper
        cdef double tail, ratio, below, above
        if isfinite(here) and (self.walk_share > 0.0 and bits.next_double(bits.state) < self.walk_share):
            return self.slice_phi(phi, here, bits)
        ratio = self.log_proposal(phi) - here if isfinite(here) else INFINITY
        for i in range(k):                  # the longer side is the likelier one, so that the density has no jump
            below, above = self.phi_stretch[i], self.phi_stretch[k + i]
            self.phi_step[i] = fabs(random_standard_normal(bits))
            self.phi_step[i] *= above if (below + above) * bits.next_double(bits.state) < above else -below
        tail = sqrt(0.5 * TAIL / random_standard_gamma(bits, 0.5 * TAIL))
        for i in range(k):
            self.phi_try[i] = 0.0
            for j in range(i + 1):
                self.phi_try[i] += self.phi_factor[i * k + j] * self.phi_step[j]
            self.phi_try[i] = self.phi_center[i] + tail * self.phi_try[i]
        ratio -= self.log_proposal(self.phi_try)
        if -random_standard_exponential(bits) < self.log_marginal(self.phi_try) + ratio:
            memcpy(phi, self.phi_try, k * sizeof(double))
        return 0

    cdef double log_normal(self, const double *psi, const double *mean, const double *precision) noexcept nogil:
        """Log density of the prior of psi given phi, but for its determinant."""
        cdef Py_ssize_t i, n = self.n_seen
        cdef double sum = 0.0
        for i in range(n):
            self.gap[i] = psi[i] - mean[i]
        self.factor.prior_product(precision, self.gap, self.pull)
        for i in range(n):
            sum += self.gap[i] * self.pull[i]
        return -0.5 * sum

    cdef double log_given(self, const double *phi) except? -1.0 nogil:
        """Log density of phi under the surrogate, up to a constant: given psi where that is held, else its marginal."""
        cdef double out
        if self.held == NULL:
            return self.log_marginal(phi)
        out = self.prior.log_hyper(phi)
        if not isfinite(out):
            return -INFINITY
        self.prior.conditional(phi, self.mean, self.precision)
        out += 0.5 * self.factor.prior_log_determinant(self.precision)
        out += self.log_normal(self.held, self.mean, self.precision)
        return out if isfinite(out) else -INFINITY

    cdef int move_fixed(self, double *theta, bitgen_t *bits) except -1 nogil:
        """Phi given psi, psi by the factor of `phi_center`, phi given psi: no factor is taken."""
        if self.move_hyper(theta, bits):    # else psi has no normal density given phi
            self.move_seen(theta, theta + self.n_seen, bits)
            self.move_hyper(theta, bits)
        return 0

    cdef int move_hyper(self, double *theta, bitgen_t *bits) except -1 nogil:
        cdef double here
        if self.n_aside > 0:                # a scale that rows see is among phi
            return 0
        self.held = theta
        here = self.log_given(theta + self.n_seen)
        if isfinite(here):
            self.slice_phi(theta + self.n_seen, here, bits)
        self.held = NULL
        return isfinite(here)

    cdef int move_seen(self, double *psi, const double *phi, bitgen_t *bits) except -1 nogil:
        """A move that is reversible for psi given phi = `phi_center`, then Metropolis for psi given phi."""
        cdef Py_ssize_t i, n = self.n_seen
        cdef double ratio, keep = sqrt(max(0.0, 1.0 - self.size * self.size))
        self.prior.conditional(phi, self.mean, self.precision)
        ratio = (self.log_normal(psi, self.fixed_mean, self.fixed_precision)
                 - self.log_normal(psi, self.mean, self.precision))
        if keep > 0.0:
            for i in range(n):
                self.z[i] = psi[i] - self.fixed_about[i]
            self.fixed.to_z(self.z)
        for i in range(n):
            self.scratch[i] = self.fixed_b[i] + self.size * random_standard_normal(bits)
            if keep > 0.0:
                self.scratch[i] += keep * (self.z[i] - self.fixed_b[i])
        self.fixed.from_z(self.scratch)
        for i in range(n):
            self.scratch[i] += self.fixed_about[i]
        ratio += (self.log_normal(self.scratch, self.mean, self.precision)
                  - self.log_normal(self.scratch, self.fixed_mean, self.fixed_precision))
        if -random_standard_exponential(bits) < ratio:
            memcpy(psi, self.scratch, n * sizeof(double))
        return 0

    cdef int slice_phi(self, double *phi, double here, bitgen_t *bits) except -1 nogil:
        """Neal's slice along a direction drawn from the normal density near the marginal: out, then in again."""
        cdef Py_ssize_t i, j, k = self.n_hyper
        cdef double level = here - random_standard_exponential(bits), low, high, step
        cdef int side, _tries, left
        for i in range(k):
            self.phi_try[i] = random_standard_normal(bits)
        for i in range(k):
            self.phi_step[i] = 0.0
            for j in range(i + 1):
                self.phi_step[i] += self.phi_factor[i * k + j] * self.phi_try[j]
        low = -2.5 * bits.next_double(bits.state)
        high = low + 2.5
        left = <int>(MOST_STEPS * bits.next_double(bits.state))
        for side in range(2):
            for _tries in range(left if side == 0 else MOST_STEPS - 1 - left):
                step = low if side == 0 else high
                for i in range(k):
                    self.phi_try[i] = phi[i] + step * self.phi_step[i]
                if not self.log_given(self.phi_try) > level:
                    break
                if side == 0:
                    low -= 2.5
                else:
                    high += 2.5
        for _tries in range(MOST_SHRINKS):
            step = low + (high - low) * bits.next_double(bits.state)
            for i in range(k):
                self.phi_try[i] = phi[i] + step * self.phi_step[i]
            if self.log_given(self.phi_try) > level:
                memcpy(phi, self.phi_try, k * sizeof(double))
                return 0
            if step < 0.0:
                low = step
            else:
                high = step
        return 0

    cdef int move(self, double *theta, bitgen_t *bits) except -1 nogil:
        cdef Py_ssize_t i, n = self.n_seen, k = self.n_hyper
        cdef double here, fresh, keep = sqrt(max(0.0, 1.0 - self.size * self.size))
        cdef double *phi = theta + n
        cdef bint some = False
        self.held = NULL                    # also after a prior of the user's own has raised
        if self.fixed_share > 0.0 and bits.next_double(bits.state) < self.fixed_share:
            return self.move_fixed(theta, bits)
        if self.stay != NULL:
            some = bits.next_double(bits.state) < STAY_SHARE
        if k > 0 and self.has_kept and keep == 0.0 and not some and not memcmp(phi, self.phi_kept, k * sizeof(double)):
            here = self.kept
        else:
            here = self.log_marginal(phi)
        if not isfinite(here):
            keep, some = 0.0, False         # no normal density there: psi is drawn anew where phi goes
        if keep > 0.0 or some:
            for i in range(n):
                self.z[i] = theta[i] - self.about[i]
            self.factor.to_z(self.z)
            for i in range(n):
                self.z[i] -= self.b[i]
        memcpy(self.phi_kept, phi, k * sizeof(double))
        self.kept, self.has_kept = here, True
        fresh = self.size if keep > 0.0 else 1.0
        if k > 0:
            self.move_phi(phi, here, bits)
        if not isfinite(self.log_marginal(phi)):
            return 0
        for i in range(n):
            if some and self.stay[i] != 0.0:
                self.scratch[i] = self.b[i] + self.z[i]
                continue
            self.scratch[i] = self.b[i] + fresh * random_standard_normal(bits)
            if keep > 0.0:
                self.scratch[i] += keep * self.z[i]
        self.factor.from_z(self.scratch)
        for i in range(n):
            theta[i] = self.about[i] + self.scratch[i]
        return 0

    cdef double prior_left(self, const double *theta) except? -1.0 nogil:
        return self.prior.beside(theta)

    cdef double straightened(self, const double *theta) noexcept nogil:
        """The rows' expansion less what moves have in its place."""
        return -self.tilted(theta)

    cdef double beside(self, const double *theta) except? -1.0 nogil:
        return self.prior_left(theta) + self.straightened(theta)

    cdef double log_density(self, const double *theta) except? -1.0 nogil:
        return self.prior.log_density(theta, NULL) + self.surrogate.log_density(theta, NULL) - self.tilted(theta)

    # For Python.

    def left_of_prior(self, theta):
        """What a prior that is not normal given phi has beyond the density that takes its place."""
        cdef cnp.ndarray point = self._point(theta, "theta", self.dim)
        return self.prior_left(<const double *>cnp.PyArray_DATA(point))

    def beside_of(self, theta):
        """log of prior times the rows' expansion, less the log density that moves are reversible for."""
        cdef cnp.ndarray point = self._point(theta, "theta", self.dim)
        cdef const double *x = <const double *>cnp.PyArray_DATA(point)
        return self.prior_left(x) + self.straightened(x)

    def marginal_of(self, phi):
        """Log marginal density of phi under the surrogate, up to a constant; minus infinity where there is none."""
        cdef cnp.ndarray point = self._point(phi, "phi", self.n_hyper)
        return self.log_marginal(<double *>cnp.PyArray_DATA(point))

    def mean_of(self, phi):
        """Mean of psi given phi under the surrogate."""
        cdef cnp.ndarray point = self._point(phi, "phi", self.n_hyper), out = np.empty(self.n_seen)
        cdef double *x = <double *>cnp.PyArray_DATA(out)
        cdef Py_ssize_t i
        if not isfinite(self.log_marginal(<double *>cnp.PyArray_DATA(point))):
            raise ValueError(f"psi has no normal density given phi = {phi}")
        memcpy(x, self.b, self.n_seen * sizeof(double))
        self.factor.from_z(x)
        for i in range(self.n_seen):
            x[i] += self.about[i]
        return out
