"""The quantile B of Racing-Normal: how far a walk of standardised means strays, by propagating its density.

The standardised errors z_1, ..., z_K of the means at the looks before the last form a Gauss-Markov chain,
z_k = r_k z_{k-1} + s_k xi_k with r_k^2 = V_k / V_{k-1} and s_k^2 = 1 - r_k^2 (Chen & Ghahramani 2016, Cor. 4).
The density of z_k on the paths that have not left [low, B] is carried from look to look by Gauss-Legendre quadrature on
equal panels; all terms are positive, so that the mass which leaves through B is known to relative accuracy.
"""

from libc.math cimport INFINITY, M_LN2, M_PI, M_SQRT1_2, ceil, erfc, exp, expm1, fabs, fmax, fmin, log, log1p, sqrt
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
cimport numpy as cnp

import numpy as np

from fastrace._base._signals cimport check_signals
from fastrace._math._bounds cimport normal_upper_quantile
from fastrace._math._schedules cimport next_look

cnp.import_array()

cdef enum:
    NODES = 16              # per panel
    MOST_LOOKS = 10000000
    WORK_PER_CHECK = 4000   # pairs of panels between two looks at pending signals
    SECANTS = 12            # then bisect: needed close to delta = 1/2 only, where the strip is narrow
    ONE_SIDED = 0
    FIRST_EXIT = 1
    SIDAK = 2
    UNION = 3

KINDS = {"auto": ONE_SIDED, "one-sided": ONE_SIDED, "first-exit": FIRST_EXIT, "sidak": SIDAK, "union": UNION}

# Half a panel's width over the smallest s, where paths from below no longer matter, reach of a step in units of its s.
cdef double PANEL = 3.0, LOWEST = -8.0, REACH = 7.5
# Where densities near the limits of double begin to lose digits: from here on the union over looks, closer than 1e-5.
cdef double LOG_INV_SMALLEST = 690.7755278982137
# Steps smaller than this are widened to it: correlations fall, so B can only grow (Slepian; Royen for two sides).
cdef double SMALLEST_STEP = 0.01

cdef struct step_t:         # from one look to the next
    double r
    double s

cdef double node[NODES]
cdef double weight[NODES]
for _k, (_node, _weight) in enumerate(zip(*np.polynomial.legendre.leggauss(NODES))):
    node[_k], weight[_k] = _node, _weight


cdef double smallest_step(const step_t *steps, Py_ssize_t n_steps) noexcept nogil:
    cdef double smallest = 1.0
    cdef Py_ssize_t k
    for k in range(n_steps):
        smallest = fmin(smallest, steps[k].s)
    return smallest


cdef Py_ssize_t panels(double low, double high, double smallest) noexcept nogil:
    return <Py_ssize_t>fmax(1.0, ceil((high - low) / (2.0 * PANEL * smallest)))


cdef double crossing(const step_t *steps, Py_ssize_t n_steps, double low, double high, Py_ssize_t n_panels,
                     double *now, double *then) except -1.0 nogil:
    """P(the walk leaves [low, high] first through high); `now` and `then` have room for n_panels * NODES values."""
    cdef double half = 0.5 * (high - low) / n_panels
    cdef double mass = 0.5 * erfc(high * M_SQRT1_2)
    cdef double r, s, inverse, centre, source, gap, reach, scale, part
    cdef double kernel[NODES * NODES]
    cdef double turn_to[NODES]
    cdef double turn_from[NODES]
    cdef double to[NODES]
    cdef double from_[NODES]
    cdef double total[NODES]
    cdef Py_ssize_t p, q, first, last, k, work = 0
    cdef int a, b
    cdef double *swap

    for q in range(n_panels):
        centre = low + (2 * q + 1) * half
        for a in range(NODES):
            scale = centre + half * node[a]
            now[q * NODES + a] = exp(-0.5 * scale * scale) / sqrt(2.0 * M_PI)
    for k in range(n_steps):
        r = steps[k].r
        s = steps[k].s
        inverse = 1.0 / (s * s)
        reach = REACH * s + half * (1.0 + r)

        # What leaves at this look comes from around r * high.
        for q in range(n_panels):
            source = low + (2 * q + 1) * half
            if source >= r * high - reach:
                part = 0.0
                for b in range(NODES):
                    part += weight[b] * now[q * NODES + b] * erfc(
                        (high - r * (source + half * node[b])) / s * M_SQRT1_2)
                mass += 0.5 * half * part
        if k == n_steps - 1:
            break

        # exp(-(gap + a - r b)^2 / 2 s^2) as a product: of a kernel that all pairs of panels share, and of factors of
        # a and of b that turn by a constant from one panel to the next.
        for b in range(NODES):
            for a in range(NODES):
                scale = half * (node[a] - r * node[b])
                kernel[b * NODES + a] = half * weight[b] * exp(-0.5 * scale * scale * inverse) / (
                    s * sqrt(2.0 * M_PI))
            turn_to[b] = exp(2.0 * half * half * r * node[b] * inverse)
            turn_from[b] = exp(-2.0 * half * half * r * r * node[b] * inverse)
        for p in range(n_panels):
            centre = low + (2 * p + 1) * half
            first = <Py_ssize_t>fmax(0.0, ceil((r * centre - reach - low) / (2.0 * half) - 0.5))
            last = <Py_ssize_t>fmin(<double>n_panels, (r * centre + reach - low) / (2.0 * half) + 0.5)
            gap = centre - r * (low + (2 * first + 1) * half)
            for a in range(NODES):
                to[a] = exp(-gap * half * node[a] * inverse)
                from_[a] = exp(gap * r * half * node[a] * inverse)
                then[p * NODES + a] = 0.0
            for q in range(first, last):
                scale = exp(-0.5 * gap * gap * inverse)
                for a in range(NODES):
                    total[a] = 0.0
                for b in range(NODES):
                    part = from_[b] * now[q * NODES + b]
                    for a in range(NODES):
                        total[a] += kernel[b * NODES + a] * part
                for a in range(NODES):
                    then[p * NODES + a] += scale * to[a] * total[a]
                    to[a] *= turn_to[a]
                    from_[a] *= turn_from[a]
                gap -= 2.0 * half * r
            work += last - first
        if work > WORK_PER_CHECK:
            check_signals()
            work = 0
        swap = now
        now = then
        then = swap
    return mass


cdef double union_(double log_inv_delta, Py_ssize_t n_looks) noexcept nogil:
    """Chen & Ghahramani (2016), eq. 27."""
    return normal_upper_quantile(-log_inv_delta - log(<double>n_looks))


cdef double sidak(double log_inv_delta, Py_ssize_t n_looks) noexcept nogil:
    """Upper quantile at 1 - (1 - delta)^(1/K), an upper limit of B since all correlations are positive (Slepian)."""
    if log_inv_delta > 690.0:
        return union_(log_inv_delta, n_looks)
    return normal_upper_quantile(log(-expm1(log1p(-exp(-log_inv_delta)) / n_looks)))


cdef double solve(const step_t *steps, Py_ssize_t n_steps, double log_inv_delta, bint one_sided) except -1.0 nogil:
    """The B at which `crossing` is delta, for n_steps + 1 looks: secant rule on the normal quantile of both sides."""
    cdef double target = normal_upper_quantile(-log_inv_delta)
    cdef double above = sidak(log_inv_delta, n_steps + 1), below = target
    cdef double smallest = smallest_step(steps, n_steps)
    cdef double x = above, x_before = 0.0, value = 0.0, value_before = 0.0, change, mass, low
    cdef Py_ssize_t room = panels(LOWEST, above, smallest) * NODES
    cdef double *work = <double *>malloc(2 * room * sizeof(double))
    cdef int trial
    if work == NULL:
        with gil:
            raise MemoryError()
    try:
        for trial in range(2 * SECANTS + 40):
            low = LOWEST if one_sided else fmax(LOWEST, -x)
            mass = crossing(steps, n_steps, low, x, panels(low, x, smallest), work, work + room)
            if mass <= 0.5:
                value = normal_upper_quantile(log(mass)) - target
            else:
                value = -normal_upper_quantile(log1p(-fmin(mass, 1.0 - 1e-16))) - target
            if value > 0.0:
                above = x
            else:
                below = x
            if trial == 0:
                change = -value
            else:
                change = -value * (x - x_before) / (value - value_before) if value != value_before else 0.0
            x_before = x
            value_before = value
            x += change
            if not below <= x <= above or trial >= SECANTS:
                x = 0.5 * (below + above)
            if fabs(x - x_before) <= 1e-7 * x:
                break
    finally:
        free(work)
    return x


cdef double quantile(const step_t *steps, Py_ssize_t n_looks, double log_inv_delta, int kind) except -1.0 nogil:
    if n_looks == 0 or log_inv_delta <= M_LN2:
        return 0.0
    if n_looks == 1:
        return normal_upper_quantile(-log_inv_delta)
    if kind == UNION or log_inv_delta > LOG_INV_SMALLEST:
        return union_(log_inv_delta, n_looks)
    if kind == SIDAK:
        return sidak(log_inv_delta, n_looks)
    return solve(steps, n_looks - 1, log_inv_delta, kind == ONE_SIDED)


# From schedules and from variances.

cdef Py_ssize_t count_looks(int64_t n_rows, int64_t first_look, double growth) except -1:
    """Looks in all, the one at n_rows among them."""
    cdef Py_ssize_t count = 0
    cdef int64_t n = 0
    while n < n_rows:
        n = next_look(n, n_rows, first_look, growth)
        count += 1
        if count > MOST_LOOKS:
            raise ValueError(f"growth is {growth}, which asks for more than {MOST_LOOKS} looks at {n_rows} rows; "
                             "a larger growth is needed")
    return count


cdef step_t *allocate(Py_ssize_t n_steps) except NULL:
    cdef step_t *steps = <step_t *>malloc(max(n_steps, 1) * sizeof(step_t))
    if steps == NULL:
        raise MemoryError()
    return steps


cdef inline void set_step(step_t *step, double square) noexcept nogil:
    """Step with s^2 = square, widened to the smallest that the panels resolve."""
    step.s = fmax(sqrt(square), SMALLEST_STEP)
    step.r = sqrt(fmax(0.0, 1.0 - step.s * step.s))


cdef Py_ssize_t steps_of(const double[::1] variances, step_t *steps) except -1:
    """Fill `steps`; looks whose variance repeats the one before are the same look. Return the number of looks."""
    cdef Py_ssize_t i, n_looks = 0
    cdef double before = 0.0
    for i in range(variances.shape[0]):
        if not 0.0 < variances[i] < INFINITY:
            raise ValueError(f"variance {i} is {variances[i]}; positive finite variances are needed, "
                             "and the look that reads every row has none")
        if i == 0:
            n_looks = 1
        elif variances[i] > before:
            raise ValueError(f"variance {i} is {variances[i]}, above the {before} before it; the variance of a mean "
                             "falls from look to look")
        elif variances[i] < before:
            set_step(&steps[n_looks - 1], (before - variances[i]) / before)
            n_looks += 1
        before = variances[i]
    return n_looks


def looks(n_rows, first_look, growth):
    """Rows read at each look, as int64; the last is n_rows. Arguments as checked by `bounds.looks`."""
    cdef int64_t rows = n_rows, first = first_look, n = 0
    cdef double factor = growth
    cdef Py_ssize_t i
    cdef cnp.ndarray out = np.empty(count_looks(rows, first, factor), np.int64)
    cdef int64_t *at = <int64_t *>cnp.PyArray_DATA(out)
    for i in range(out.shape[0]):
        n = next_look(n, rows, first, factor)
        at[i] = n
    return out


def quantile_of_schedule(log_inv_delta, n_rows, first_look, growth, kind):
    """B for the looks before the last one of a schedule."""
    cdef double share = log_inv_delta, factor = growth, result
    cdef int64_t rows = n_rows, first = first_look, n, before
    cdef int number = KINDS[kind]
    cdef Py_ssize_t i, count = count_looks(rows, first, factor) - 1
    cdef step_t *steps = allocate(count)
    try:
        with nogil:
            n = next_look(0, rows, first, factor)
            for i in range(count - 1):
                before = n
                n = next_look(n, rows, first, factor)
                set_step(&steps[i], <double>rows * (<double>(n - before) / (<double>n * <double>(rows - before))))
            result = quantile(steps, count, share, number)
    finally:
        free(steps)
    return result


def quantile_of_variances(log_inv_delta, const double[::1] variances, kind):
    """B for looks at which the mean has the given variances."""
    cdef double share = log_inv_delta, result
    cdef int number = KINDS[kind]
    cdef step_t *steps = allocate(variances.shape[0])
    cdef Py_ssize_t count
    try:
        count = steps_of(variances, steps)
        with nogil:
            result = quantile(steps, count, share, number)
    finally:
        free(steps)
    return result


def crossing_probability(limit, const double[::1] variances, kind):
    """P(the standardised walk exceeds `limit`), or first leaves [-limit, limit] upwards."""
    cdef double high = fmin(limit, 40.0), low, smallest, result = 0.0      # beyond, the probability is 0 in a float
    cdef int number = KINDS[kind]
    cdef step_t *steps = allocate(variances.shape[0])
    cdef double *work = NULL
    cdef Py_ssize_t count, n_panels
    try:
        count = steps_of(variances, steps)
        if count:
            low = LOWEST if number == ONE_SIDED else fmax(LOWEST, -high)
            smallest = smallest_step(steps, count - 1)
            n_panels = panels(low, high, smallest)
            work = <double *>malloc(2 * n_panels * NODES * sizeof(double))
            if work == NULL:
                raise MemoryError()
            with nogil:
                result = crossing(steps, count - 1, low, high, n_panels, work, work + n_panels * NODES)
    finally:
        free(work)
        free(steps)
    return result
