# cython: cdivision=True
"""Joint priors: coefficients, group effects, an auxiliary parameter, and the hyperparameters behind them.

theta = [psi | phi]. psi holds the coefficients, the effects of each grouping factor, group by group, and last the
logarithm of the auxiliary parameter, if it is learned. phi holds unconstrained hyperparameters: logarithms of scales,
and of each factor with correlated effects the inverse hyperbolic tangents of canonical partial correlations.

A coefficient's scale is fixed, shared with others and learned, or that of a regularised horseshoe (Piironen & Vehtari,
2017): 1 / scale^2 = 1 / (global local)^2 + 1 / slab^2, of which a plain one has no slab. The Cholesky factor of a
factor's correlations has the rows L_ij = z_ij sqrt(prod_{k<j} (1 - z_ik^2)), and under LKJ(eta) each (1 + z_ij) / 2 has
a beta distribution of its own (Lewandowski, Kurowicka & Joe, 2009), so that the density of phi is a product.
"""

from libc.math cimport INFINITY, M_PI, exp, fabs, isfinite, log, sqrt
from libc.stdint cimport uint8_t
from libc.string cimport memcmp, memcpy, memset
cimport numpy as cnp
from numpy.random cimport bitgen_t

from fastrace._math cimport _densities as d
from fastrace._models._factors cimport (effects_of, factor_t, log_effects, precision_of, pull_effects, refresh_root,
                                        standardise)

import numpy as np

cnp.import_array()

cdef extern from "numpy/random/distributions.h" nogil:
    double random_standard_normal(bitgen_t *bits)
    double random_standard_gamma(bitgen_t *bits, double shape)

LOCATIONS = {"flat": d.FLAT, "normal": d.NORMAL, "student": d.STUDENT, "laplace": d.LAPLACE}
SCALES = {"half-normal": d.HALF_NORMAL, "half-student": d.HALF_STUDENT, "gamma": d.GAMMA, "log-normal": d.LOG_NORMAL,
          "inverse-gamma-of-square": d.INVERSE_GAMMA_OF_SQUARE, "partial-correlation": d.PARTIAL_CORRELATION}


cdef double LOG_2PI = log(2.0 * M_PI)
cdef double LEAST_CURVATURE = 1e-6    # of an approximation, over its squared slope, or rounding shows
cdef double LOCAL_STEP = 1.5                            # of the logarithm of a local scale


cdef d.density_t density_of(given):
    """(name, a, b), or with a power as fourth number, as a struct."""
    cdef d.density_t out
    name, a, b = given[:3]
    out.kind, out.a, out.b, out.power = SCALES[name], a, b, given[3] if len(given) > 3 else 1.0
    out.constant = d.scale_constant(out.kind, out.a, out.b) + log(fabs(out.power))
    return out


def refuse_density(value, theta):
    """Say that a log density of the user's own is no finite number, nor -inf."""
    raise ValueError(f"the log density returned {value} at {theta}; a finite number is needed, or -inf where the "
                     f"parameters are impossible")


cdef inline double precision_of_slab(const coefficient_t *c, const double *phi) noexcept nogil:
    return exp(-2.0 * phi[c.slab]) if c.slab >= 0 else 1.0 / (c.scale * c.scale)


cdef class JointPrior:
    """The prior of all that a chain moves.

    Parameters
    ----------
    coefficients : sequence of tuple
        (kind, mean, scale, df, pool) of each: kind from `LOCATIONS`, pool the number of a pool or -1.
    pools : sequence of tuple
        ("shared", scale prior), or ("horseshoe", prior of the global scale, of each local scale, of the slab's scale);
        without a slab, or with one whose scale is known, the last is None, and such a scale follows.
        A scale prior is (name in `SCALES`, a, b), or (name, a, b, power): then it is that of scale^power.
    factors : sequence of tuple
        (n_groups, scale priors of the q standard deviations, eta of LKJ, or None for independent effects).
    aux : tuple or None
        Scale prior of the auxiliary parameter.
    own : sequence of tuple
        (function, places): ``function(theta[places])`` returns a log density and its gradient. If it is a method of an
        object with an `address`, the compiled function there is called in its place, without the GIL.
    """

    def __cinit__(self, coefficients, pools=(), factors=(), aux=None, own=()):
        self.given = (tuple(coefficients), tuple(pools), tuple(factors), aux, tuple(own))
        hyper, places = [], []
        members = [[j for j, c in enumerate(coefficients) if c[4] == k] for k in range(len(pools))]
        for pool, mine in zip(pools, members, strict=True):
            places.append(len(hyper))
            slab = [] if pool[0] == "shared" or pool[3] is None else [pool[3]]
            hyper += [pool[1]] if pool[0] == "shared" else [pool[1], *slab, *[pool[2]] * len(mine)]
        n_seen = len(coefficients) + sum(n * len(sds) for n, sds, _ in factors) + (aux is not None)
        widest = max([len(sds) for _, sds, _ in factors], default=0)
        first_of_factors = len(hyper)
        for _, sds, eta in factors:
            hyper += list(sds)
            if eta is not None:
                q = len(sds)
                hyper += [("partial-correlation", eta + 0.5 * (q - 2 - j), 0.0) for i in range(q) for j in range(i)]
        self._allocate(len(coefficients), len(hyper), n_seen, [len(sds) for _, sds, _ in factors], widest)
        for k, prior in enumerate(hyper):
            self.hyper[k] = density_of(prior)
        self._place_coefficients(coefficients, pools, places, members)
        self._place_factors(factors, first_of_factors)
        self.aux = n_seen - 1 if aux is not None else -1
        if aux is not None:
            self.of_aux = density_of(aux)
        self._place_own(own)
        local = {int(self.coefficients[j].local) + n_seen for j in range(len(coefficients))
                 if self.coefficients[j].local >= 0}
        self.own_sees_local = any(places is None or not local.isdisjoint(places) for _, places in own) and bool(local)
        self.normal = not own and all(c[0] in ("flat", "normal") for c in coefficients) and (
            aux is None or (aux[0] == "log-normal" and len(aux) == 3))
        self.expand_at(np.zeros(n_seen))

    def _allocate(self, Py_ssize_t n_coefficients, Py_ssize_t n_hyper, Py_ssize_t n_seen, widths, Py_ssize_t widest):
        """One block of memory for structs and numbers; all of a fixed size from here on."""
        cdef Py_ssize_t squares = sum(q * q for q in widths), k
        cdef double *number
        self.n_coefficients, self.n_factors = n_coefficients, len(widths)
        self.n_seen, self.n_hyper, self.dim = n_seen, n_hyper, n_seen + n_hyper
        cdef Py_ssize_t structs = (n_coefficients * sizeof(coefficient_t) + len(widths) * sizeof(factor_t)
                                   + n_hyper * sizeof(d.density_t)) // sizeof(double)
        self._memory = np.zeros(structs + n_hyper + 2 * n_coefficients + 3 * squares + 3 * widest)
        self._near, self._free = np.zeros((2, n_seen)), np.zeros(n_seen, dtype=np.uint8)
        number = <double *>cnp.PyArray_DATA(self._memory)
        self.coefficients = <coefficient_t *>number
        self.factors = <factor_t *>(self.coefficients + n_coefficients)
        self.hyper = <d.density_t *>(self.factors + self.n_factors)
        number += structs
        self.phi = number
        number += n_hyper
        for k in range(n_hyper):
            self.phi[k] = np.nan                        # of none yet
        self.scale, self.share = number, number + n_coefficients
        number += 2 * n_coefficients
        for k in range(self.n_factors):
            squares = widths[k] * widths[k]
            self.factors[k].lower, self.factors[k].root = number, number + squares
            self.factors[k].pull = number + 2 * squares
            number += 3 * squares
        self.work = number
        self.near_mean = <double *>cnp.PyArray_DATA(self._near)
        self.near_precision = self.near_mean + n_seen
        self.free = <uint8_t *>cnp.PyArray_DATA(self._free)

    def _place_coefficients(self, coefficients, pools, places, members):
        cdef coefficient_t *c
        for j, (kind, mean, scale, df, pool) in enumerate(coefficients):
            c = &self.coefficients[j]
            c.kind, c.mean, c.scale, c.df = LOCATIONS[kind], mean, scale, df
            c.constant = d.location_constant(c.kind, c.df)
            c.shared = c.local = c.overall = c.slab = -1
            if pool >= 0 and pools[pool][0] == "shared":
                c.shared = places[pool]
            elif pool >= 0:
                c.overall = places[pool]
                c.scale = pools[pool][4] if len(pools[pool]) > 4 else np.inf
                c.slab = -1 if pools[pool][3] is None else places[pool] + 1
                c.local = places[pool] + 1 + (c.slab >= 0) + members[pool].index(j)

    def _place_factors(self, factors, hyper):
        cdef Py_ssize_t first = self.n_coefficients, k
        self.n_precision = self.n_coefficients
        for k, (n_groups, sds, eta) in enumerate(factors):
            q = len(sds)
            self.factors[k].first, self.factors[k].n_groups, self.factors[k].q = first, n_groups, q
            self.factors[k].sd, self.factors[k].correlation = hyper, -1
            hyper += q
            if eta is not None and q > 1:
                self.factors[k].correlation = hyper
                hyper += q * (q - 1) // 2
            first += n_groups * q
            self.n_precision += n_groups * q * q
        self.n_precision += self.n_seen - first

    def _place_own(self, own):
        """Densities of the user's own: those of compiled code apart from those of Python."""
        cdef Py_ssize_t k, structs, first = 0
        cdef Py_ssize_t *places
        cdef size_t address
        found = [getattr(getattr(function, "__self__", None), "address", None) for function, _ in own]
        self.own = [pair for pair, where in zip(own, found, strict=True) if where is None]
        listed = [(where, chosen) for where, (_, chosen) in zip(found, own, strict=True) if where is not None]
        self.n_compiled = len(listed)
        some = [np.asarray(chosen, dtype=np.intp) for _, chosen in listed if chosen is not None]
        self._own_places = np.concatenate([*some, np.empty(0, dtype=np.intp)])
        structs = self.n_compiled * <Py_ssize_t>(sizeof(own_density_t) // sizeof(double))
        self._own_memory = np.zeros(structs + 2 * self.dim)
        self.compiled = <own_density_t *>cnp.PyArray_DATA(self._own_memory)
        self.own_work = <double *>cnp.PyArray_DATA(self._own_memory) + structs
        places = <Py_ssize_t *>cnp.PyArray_DATA(self._own_places)
        for k, (address, chosen) in enumerate(listed):
            self.compiled[k].function = <own_function>address
            self.compiled[k].n = self.dim if chosen is None else len(chosen)
            self.compiled[k].places = NULL if chosen is None else places + first
            first += 0 if chosen is None else len(chosen)

    def __reduce__(self):
        return _restored, (self.given, np.asarray(self._near), np.asarray(self._free))

    def copy(self):
        """A prior for another thread."""
        return _restored(self.given, self._near, self._free)

    def expand_at(self, psi):
        """Choose the normal approximations of what is not normal in psi: second order at this point, where concave."""
        cdef const double[::1] hat = np.ascontiguousarray(psi, dtype=np.float64)
        cdef Py_ssize_t j
        cdef double z, slope = 0.0
        cdef coefficient_t *c
        if hat.shape[0] != self.n_seen:
            raise ValueError(f"psi has {hat.shape[0]} numbers; {self.n_seen} are needed")
        for j in range(self.n_coefficients):
            c = &self.coefficients[j]
            self.near_mean[j] = c.mean
            self.near_precision[j] = 0.0
            if c.shared < 0 and c.local < 0 and c.kind != d.FLAT:
                z = (hat[j] - c.mean) / c.scale
                d.location_density(c.kind, c.df, z, &slope)
                self._near_of(j, hat[j], slope / c.scale,
                              d.location_curvature(c.kind, c.df, z) / (c.scale * c.scale))
        if self.aux >= 0:
            d.scale_density(&self.of_aux, hat[self.aux], &slope)
            self._near_of(self.aux, hat[self.aux], slope, d.scale_curvature(&self.of_aux, hat[self.aux]))

    cdef _near_of(self, Py_ssize_t j, double hat, double slope, double curvature):
        curvature = max(curvature, LEAST_CURVATURE * slope * slope) if curvature > 0.0 else 0.0
        if curvature > 1e-300 and isfinite(slope / curvature):
            self.near_mean[j], self.near_precision[j] = hat + slope / curvature, curvature

    def set_free(self, mask):
        """Which of psi are standardised in xi: coefficients with a learned scale, and whole groups of effects."""
        cdef const uint8_t[::1] given = np.ascontiguousarray(np.broadcast_to(np.asarray(mask, dtype=bool),
                                                                             (self.n_seen,)), dtype=np.uint8)
        cdef Py_ssize_t j, k, g, a, first
        for j in range(self.n_seen):
            self.free[j] = 0
        for j in range(self.n_coefficients):
            self.free[j] = given[j] and (self.coefficients[j].shared >= 0 or self.coefficients[j].local >= 0)
        for k in range(self.n_factors):
            for g in range(self.factors[k].n_groups):
                first = self.factors[k].first + g * self.factors[k].q
                for a in range(self.factors[k].q):
                    self.free[first + a] = given[first]

    # ---- densities

    cdef int refresh(self, const double *phi) noexcept nogil:
        """Scales and roots that these hyperparameters give; nothing to do if they are those of the last call."""
        cdef Py_ssize_t j
        cdef coefficient_t *c
        cdef double of_local, of_slab
        if self.n_hyper and not memcmp(phi, self.phi, self.n_hyper * sizeof(double)):
            return 0
        memcpy(self.phi, phi, self.n_hyper * sizeof(double))
        for j in range(self.n_coefficients):
            c = &self.coefficients[j]
            if c.local >= 0 and c.slab < 0 and c.scale == INFINITY:
                self.scale[j], self.share[j] = exp(phi[c.overall] + phi[c.local]), 1.0
            elif c.local >= 0:
                of_local = exp(-2.0 * (phi[c.overall] + phi[c.local]))
                of_slab = precision_of_slab(c, phi)
                self.scale[j] = 1.0 / sqrt(of_local + of_slab)
                self.share[j] = of_local / (of_local + of_slab)
            else:
                self.scale[j] = exp(phi[c.shared]) if c.shared >= 0 else c.scale
        for j in range(self.n_factors):
            refresh_root(&self.factors[j], phi)
        return 0

    cdef double log_hyper(self, const double *phi) except? -1.0 nogil:
        cdef double out = 0.0, slope
        cdef Py_ssize_t k
        for k in range(self.n_hyper):
            out += d.scale_density(&self.hyper[k], phi[k], &slope)
        return out

    cdef double log_density(self, const double *theta, double *gradient) except? -1.0 nogil:
        cdef const double *phi = theta + self.n_seen
        cdef double *by_phi = gradient + self.n_seen
        cdef double out = 0.0, slope = 0.0, z, by_scale
        cdef Py_ssize_t j, k
        cdef coefficient_t *c
        self.refresh(phi)
        if gradient is not NULL:
            memset(gradient, 0, self.dim * sizeof(double))
        for k in range(self.n_hyper):
            out += d.scale_density(&self.hyper[k], phi[k], &slope)
            if gradient is not NULL:
                by_phi[k] = slope
        for j in range(self.n_coefficients):
            c = &self.coefficients[j]
            if c.kind == d.FLAT:
                continue
            z = (theta[j] - c.mean) / self.scale[j]
            out += c.constant - log(self.scale[j]) + d.location_density(c.kind, c.df, z, &slope)
            if gradient is not NULL:
                gradient[j] = slope / self.scale[j]
                by_scale = -1.0 - slope * z                     # by the log of the scale
                if c.local >= 0:
                    by_phi[c.overall] += by_scale * self.share[j]
                    by_phi[c.local] += by_scale * self.share[j]
                    if c.slab >= 0:
                        by_phi[c.slab] += by_scale * (1.0 - self.share[j])
                elif c.shared >= 0:
                    by_phi[c.shared] += by_scale
        for k in range(self.n_factors):
            out += log_effects(&self.factors[k], self.phi, theta, self.work, gradient,
                               NULL if gradient is NULL else gradient + self.n_seen)
        if self.aux >= 0:
            out += d.scale_density(&self.of_aux, theta[self.aux], &slope)
            if gradient is not NULL:
                gradient[self.aux] = slope
        out += self.own_densities(theta, gradient)
        return out

    cdef double own_densities(self, const double *theta, double *gradient) except? -1.0 nogil:
        """Sum of the log densities of the user's own; adds to the gradient."""
        cdef double out = self.ask_own(theta, gradient) if self.own else 0.0
        cdef double value
        cdef const double *point
        cdef double *slopes = self.own_work + self.dim
        cdef own_density_t *own
        cdef Py_ssize_t j, k
        for k in range(self.n_compiled):
            own, point = &self.compiled[k], theta
            if own.places is not NULL:
                point = self.own_work
                for j in range(own.n):
                    self.own_work[j] = theta[own.places[j]]
            value = own.function(point, own.n, slopes)
            if not value < INFINITY:
                with gil:
                    refuse_density(value, [point[j] for j in range(own.n)])
            out += value
            if gradient is not NULL:
                for j in range(own.n):
                    gradient[j if own.places is NULL else own.places[j]] += slopes[j]
        return out

    cdef double ask_own(self, const double *theta, double *gradient) except? -1.0 with gil:
        cdef cnp.ndarray point = np.empty(self.dim)
        cdef double out = 0.0
        cdef Py_ssize_t k
        memcpy(cnp.PyArray_DATA(point), theta, self.dim * sizeof(double))
        for function, places in self.own:
            value, slopes = function(point if places is None else point[places])
            out += value
            if gradient is not NULL:
                if slopes is None:
                    raise ValueError("a log density has no gradient, and this kernel moves along gradients: give "
                                     "LogDensity(function, gradient)")
                for k, slope in zip(range(self.dim) if places is None else places, slopes, strict=True):
                    gradient[k] += slope
        return out

    # ---- the normal density of psi given phi

    cdef int conditional(self, const double *phi, double *mean, double *precision) except -1 nogil:
        cdef Py_ssize_t j, k, g, size
        cdef coefficient_t *c
        cdef factor_t *f
        self.refresh(phi)
        memcpy(mean, self.near_mean, self.n_seen * sizeof(double))
        for j in range(self.n_coefficients):
            c = &self.coefficients[j]
            precision[j] = self.near_precision[j]
            if c.kind == d.NORMAL:
                mean[j] = c.mean
                precision[j] = 1.0 / (self.scale[j] * self.scale[j])
        precision += self.n_coefficients
        for k in range(self.n_factors):
            f = &self.factors[k]
            size = f.q * f.q
            precision_of(f, self.work, precision)
            for g in range(1, f.n_groups):
                memcpy(precision + g * size, precision, size * sizeof(double))
            precision += f.n_groups * size
        if self.aux >= 0:
            precision[0] = self.near_precision[self.aux]
        return 0

    cdef double beside(self, const double *theta) except? -1.0 nogil:
        cdef Py_ssize_t j
        cdef coefficient_t *c
        cdef double out = 0.0, slope = 0.0
        if self.normal:
            return 0.0
        self.refresh(theta + self.n_seen)
        for j in range(self.n_coefficients):
            c = &self.coefficients[j]
            if c.kind != d.FLAT and c.kind != d.NORMAL:
                out += c.constant - log(self.scale[j]) - self.log_near(j, theta[j]) + d.location_density(
                    c.kind, c.df, (theta[j] - c.mean) / self.scale[j], &slope)
        if self.aux >= 0:
            out += self.log_aux(theta[self.aux]) - self.log_near(self.aux, theta[self.aux])
        out += self.own_densities(theta, NULL)
        return out

    cdef double log_aux(self, double x) noexcept nogil:
        cdef double slope
        return d.scale_density(&self.of_aux, x, &slope)

    cdef double draw_aux(self, bitgen_t *bits) noexcept nogil:
        cdef const d.density_t *p = &self.of_aux
        cdef double t
        if p.kind == d.LOG_NORMAL:
            t = p.a + p.b * random_standard_normal(bits)
        elif p.kind == d.GAMMA:
            t = log(random_standard_gamma(bits, p.a)) - log(p.b)
        elif p.kind == d.INVERSE_GAMMA_OF_SQUARE:
            t = 0.5 * (log(p.b) - log(random_standard_gamma(bits, p.a)))
        else:
            t = log(p.a) + log(fabs(random_standard_normal(bits)))
            if p.kind == d.HALF_STUDENT:
                t -= 0.5 * log(2.0 * random_standard_gamma(bits, 0.5 * p.b) / p.b)
        return t / p.power

    cdef double log_near(self, Py_ssize_t j, double x) noexcept nogil:
        cdef double step = x - self.near_mean[j]
        if self.near_precision[j] == 0.0:
            return 0.0
        return 0.5 * (log(self.near_precision[j]) - LOG_2PI - self.near_precision[j] * step * step)

    # ---- standardised coordinates

    cdef int seen_from(self, const double *xi, double *theta) except -1 nogil:
        cdef Py_ssize_t j, k
        self.refresh(xi + self.n_seen)
        memcpy(theta, xi, self.dim * sizeof(double))
        for j in range(self.n_coefficients):
            if self.free[j]:
                theta[j] = self.coefficients[j].mean + self.scale[j] * xi[j]
        for k in range(self.n_factors):
            effects_of(&self.factors[k], self.free, xi, theta)
        return 0

    cdef int to_free(self, const double *theta, double *xi) except -1 nogil:
        cdef Py_ssize_t j, k
        self.refresh(theta + self.n_seen)
        memcpy(xi, theta, self.dim * sizeof(double))
        for j in range(self.n_coefficients):
            if self.free[j]:
                xi[j] = (theta[j] - self.coefficients[j].mean) / self.scale[j]
        for k in range(self.n_factors):
            standardise(&self.factors[k], self.free, xi)
        return 0

    cdef double pull_back(self, const double *xi, const double *theta, double *gradient) except? -1.0 nogil:
        cdef double *by_phi = gradient + self.n_seen
        cdef double by_scale
        cdef Py_ssize_t j, k
        cdef coefficient_t *c
        self.refresh(theta + self.n_seen)
        for j in range(self.n_coefficients):
            if not self.free[j]:
                continue
            c = &self.coefficients[j]
            by_scale = 1.0 + gradient[j] * (theta[j] - c.mean)
            gradient[j] *= self.scale[j]
            if c.local >= 0:
                by_phi[c.overall] += by_scale * self.share[j]
                by_phi[c.local] += by_scale * self.share[j]
                if c.slab >= 0:
                    by_phi[c.slab] += by_scale * (1.0 - self.share[j])
            else:
                by_phi[c.shared] += by_scale
        for k in range(self.n_factors):
            pull_effects(&self.factors[k], self.phi, self.free, xi, gradient, by_phi)
        return self.log_jacobian()

    cdef double log_jacobian(self) noexcept nogil:
        cdef Py_ssize_t j, k, g, a, n_free
        cdef factor_t *f
        cdef double out = 0.0
        for j in range(self.n_coefficients):
            if self.free[j]:
                out += log(self.scale[j])
        for k in range(self.n_factors):
            f = &self.factors[k]
            n_free = 0
            for g in range(f.n_groups):
                n_free += self.free[f.first + g * f.q]
            for a in range(f.q):
                out += n_free * log(f.root[a * f.q + a])
        return out

    cdef int move_local_scales(self, double *theta, bitgen_t *bits) except -1 nogil:
        """Given the rest the local scales are independent: a normal step of each logarithm, accepted or not.

        Where a density of the user's own takes local scales they are not, and stay.
        """
        cdef double *phi = theta + self.n_seen
        cdef Py_ssize_t j
        cdef coefficient_t *c
        cdef double of_slab, of_overall, step, square, slope, old, new, uniform
        if self.own_sees_local:
            return 0
        for j in range(self.n_coefficients):
            c = &self.coefficients[j]
            if c.local < 0:
                continue
            step = phi[c.local] + LOCAL_STEP * random_standard_normal(bits)
            uniform = bits.next_double(bits.state)
            of_slab = precision_of_slab(c, phi)
            of_overall = exp(-2.0 * phi[c.overall])
            square = (theta[j] - c.mean) * (theta[j] - c.mean)
            old = of_overall * exp(-2.0 * phi[c.local]) + of_slab                # precisions of the coefficient
            new = of_overall * exp(-2.0 * step) + of_slab
            if uniform < exp(0.5 * (log(new / old) - square * (new - old))
                             + d.scale_density(&self.hyper[c.local], step, &slope)
                             - d.scale_density(&self.hyper[c.local], phi[c.local], &slope)):
                phi[c.local] = step
        return 0

    # ---- for Python

    def places_of_scales(self):
        """Places in theta of the logarithms of scales that effects share, ascending: no slab's, and no local one."""
        cdef Py_ssize_t j, k, a
        found = {max(self.coefficients[j].shared, self.coefficients[j].overall) for j in range(self.n_coefficients)}
        for k in range(self.n_factors):
            found |= {self.factors[k].sd + a for a in range(self.factors[k].q)}
        return [self.n_seen + place for place in sorted(found) if place >= 0]

    def value_and_gradient(self, theta):
        """`log_density` of one point: a number, and an array of shape (dim,)."""
        cdef cnp.ndarray point = self._point(theta, self.dim), gradient = np.empty(self.dim)
        value = self.log_density(<const double *>cnp.PyArray_DATA(point), <double *>cnp.PyArray_DATA(gradient))
        return value, gradient

    def value_of(self, theta):
        """`log_density` of one point; needs no gradient."""
        cdef cnp.ndarray point = self._point(theta, self.dim)
        return self.log_density(<const double *>cnp.PyArray_DATA(point), NULL)

    def hyper_value(self, phi):
        """`log_hyper`."""
        cdef cnp.ndarray point = self._point(phi, self.n_hyper)
        return self.log_hyper(<const double *>cnp.PyArray_DATA(point))

    def conditional_of(self, phi):
        """`conditional`: means of shape (n_seen,), precisions of shape (n_precision,)."""
        cdef cnp.ndarray point = self._point(phi, self.n_hyper)
        cdef cnp.ndarray mean = np.empty(self.n_seen), precision = np.empty(self.n_precision)
        self.conditional(<const double *>cnp.PyArray_DATA(point), <double *>cnp.PyArray_DATA(mean),
                         <double *>cnp.PyArray_DATA(precision))
        return mean, precision

    def beside_of(self, theta):
        """`beside`."""
        cdef cnp.ndarray point = self._point(theta, self.dim)
        return self.beside(<const double *>cnp.PyArray_DATA(point))

    def from_free(self, xi):
        """theta of standardised coordinates."""
        cdef cnp.ndarray point = self._point(xi, self.dim), theta = np.empty(self.dim)
        self.seen_from(<const double *>cnp.PyArray_DATA(point), <double *>cnp.PyArray_DATA(theta))
        return theta

    def free_of(self, theta):
        """Standardised coordinates of theta."""
        cdef cnp.ndarray point = self._point(theta, self.dim), xi = np.empty(self.dim)
        self.to_free(<const double *>cnp.PyArray_DATA(point), <double *>cnp.PyArray_DATA(xi))
        return xi

    def pulled_back(self, xi, gradient):
        """The gradient by theta as one by xi, with that of the Jacobian, and the log of the Jacobian."""
        cdef cnp.ndarray point = self._point(xi, self.dim), slopes = self._point(gradient, self.dim).copy()
        cdef cnp.ndarray theta = self.from_free(xi)
        jacobian = self.pull_back(<const double *>cnp.PyArray_DATA(point), <const double *>cnp.PyArray_DATA(theta),
                                  <double *>cnp.PyArray_DATA(slopes))
        return slopes, jacobian

    def _point(self, value, size):
        point = np.ascontiguousarray(value, dtype=np.float64)
        if point.shape != (size,):
            raise ValueError(f"a point of shape {point.shape} came; ({size},) is needed")
        return point


def _restored(given, near, free):
    """A prior from what `__reduce__` saved."""
    cdef JointPrior out = JointPrior(*given)
    out._near[...] = near
    out._free[...] = free
    return out
