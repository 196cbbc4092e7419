"""Plain twins of the moves on a surrogate: dense matrices, one random number at a time, from the same generator.

Prior: independent normal coefficients, then factors whose effects are normal given one standard deviation per term and
their correlations, if they have any. Standard deviations are half-normal, correlations LKJ; chains move the logarithms
of the former and, of the latter, the numbers of `priors.correlations`.
"""

import math

import numpy as np

from reference import priors
from reference.mcmc import alias_table, thinned

TAIL, WIDTH, MOST_STEPS, MOST_SHRINKS = 5.0, 2.5, 32, 200


def logistic_residual(x, y, hat, psi):
    """What the expansion at `hat` leaves of a row's log-likelihood; x is its row of the whole design, y 0 or 1."""
    sign, step, p = 1.0 - 2.0 * y, x @ (psi - hat), 1.0 / (1.0 + np.exp(-x @ hat))
    return (np.logaddexp(0.0, sign * (x @ hat)) - np.logaddexp(0.0, sign * (x @ psi)) - (y - p) * step
            + 0.5 * p * (1.0 - p) * step**2)


def spread_of(design, covariance):
    """Standard deviation of each row's predictor."""
    return np.sqrt(np.einsum("ni,ij,nj->n", design, covariance, design))


def held_apart(left, share, most):
    """Rows with the largest `left`, one by one until the others are effectively `share` of all; None: too many."""
    rest, taken = set(range(len(left))), []
    while len(taken) <= int(most * len(left)):
        squares = np.array([left[i] ** 2 for i in sorted(rest)])
        if squares.sum() ** 2 >= share * len(left) * np.square(squares).sum():
            return sorted(taken)
        taken.append(max(rest, key=lambda i: left[i]))
        rest.remove(taken[-1])
    return None


class Prior:
    """coefficients: standard deviations. factors: (number of groups, scales of the half-normal priors, eta of LKJ).

    Without eta the effects of a factor are independent.
    """

    def __init__(self, coefficients, factors):
        self.sds = np.asarray(coefficients, dtype=float)
        self.factors = [(count, np.asarray(scales), eta[0] if eta else None) for count, scales, *eta in factors]
        self.n_seen = len(self.sds) + sum(count * len(scales) for count, scales, _ in self.factors)

    def parts(self, phi):
        """Of each factor: its number of groups, prior scales, eta, log standard deviations, numbers of correlations."""
        k = 0
        for count, scales, eta in self.factors:
            q = len(scales)
            n_correlations = 0 if eta is None else q * (q - 1) // 2
            yield count, scales, eta, phi[k : k + q], phi[k + q : k + q + n_correlations]
            k += q + n_correlations

    def log_hyper(self, phi):
        out = 0.0
        for _, scales, eta, logs, numbers in self.parts(phi):
            ratio, q = np.exp(logs) / scales, len(scales)
            out += float((0.5 * math.log(2.0 / math.pi) - np.log(scales) - 0.5 * ratio**2 + logs).sum())
            if eta is not None:
                lower = priors.correlations(numbers, q)
                out += priors.lkj_log_density(lower @ lower.T, eta) + priors.lkj_log_jacobian(numbers, q)
        return out

    def root(self, phi):
        """Lower triangular, of the covariance of all that rows see given phi: what it multiplies is standard normal."""
        out, first = np.diag(np.r_[self.sds, np.zeros(self.n_seen - len(self.sds))]), len(self.sds)
        for count, scales, eta, logs, numbers in self.parts(phi):
            q = len(scales)
            lower = np.eye(q) if eta is None else priors.correlations(numbers, q)
            for _ in range(count):
                out[first : first + q, first : first + q] = np.exp(logs)[:, None] * lower
                first += q
        return out

    def precision(self, phi):
        inverse = np.linalg.inv(self.root(phi))
        return inverse.T @ inverse


class NormalInner:
    """order: coordinates of the blocks, then the dense ones; A = L L' in that order."""

    def __init__(self, hat, gradient, H, prior, order, center, factor, walk_share, size=1.0, fixed_share=0.0,
                 stay=None, stretch=None):
        self.stretch = np.ones((2, len(center))) if stretch is None else stretch
        self.hat, self.g, self.H, self.prior, self.order = hat, gradient, H, prior, order
        self.center, self.factor, self.walk_share, self.size = center, factor, walk_share, size
        self.fixed_share, self.stay = fixed_share, stay

    def given(self, phi):
        """L in `order`, and A^-1 b."""
        P = self.prior.precision(phi)
        A = self.H + P
        return np.linalg.cholesky(A[np.ix_(self.order, self.order)]), np.linalg.solve(A, self.g - P @ self.hat)

    def log_density(self, theta):
        """Prior times expansion: of hyperparameters, of what the rows see given them, and the quadratic."""
        psi, phi = theta[:self.prior.n_seen], theta[self.prior.n_seen :]
        d = psi - self.hat
        return self.prior.log_hyper(phi) + self.log_prior(psi, phi) + self.g @ d - 0.5 * d @ self.H @ d

    def log_integral(self, phi):
        """Of the expansion under the prior of psi given phi; standardised, as P is huge where scales are tiny."""
        root, n = self.prior.root(phi), self.prior.n_seen
        slope, curvature = root.T @ (self.g + self.H @ self.hat), np.eye(n) + root.T @ self.H @ root
        return 0.5 * (slope @ np.linalg.solve(curvature, slope) - np.linalg.slogdet(curvature)[1]
                      - self.hat @ (2.0 * self.g + self.H @ self.hat))

    def log_marginal(self, phi):
        return self.prior.log_hyper(phi) + self.log_integral(phi)

    def log_proposal(self, phi):
        k = len(phi)
        step = np.linalg.solve(self.factor, phi - self.center)
        step /= np.where(step < 0.0, *self.stretch)
        return -0.5 * (TAIL + k) * math.log1p(step @ step / TAIL)

    def move_phi(self, phi, rng):
        k = len(phi)
        here = self.log_marginal(phi)
        if self.walk_share > 0.0 and rng.random() < self.walk_share:
            return self.slice(phi, here, rng)
        xi = np.empty(k)
        for i, (below, above) in enumerate(self.stretch.T):     # a side with probability as its length
            size = abs(rng.standard_normal())
            xi[i] = above * size if (below + above) * rng.random() < above else -below * size
        tail = math.sqrt(0.5 * TAIL / rng.standard_gamma(0.5 * TAIL))
        new = self.center + tail * self.factor @ xi
        ratio = self.log_marginal(new) - here + self.log_proposal(phi) - self.log_proposal(new)
        return new if -rng.standard_exponential() < ratio else phi

    def slice(self, phi, here, rng, log_density=None):
        log_density = log_density or self.log_marginal
        level = here - rng.standard_exponential()
        direction = self.factor @ np.array([rng.standard_normal() for _ in phi])
        low = -WIDTH * rng.random()
        high = low + WIDTH
        left = int(MOST_STEPS * rng.random())
        right = MOST_STEPS - 1 - left
        while left > 0 and log_density(phi + low * direction) > level:
            low, left = low - WIDTH, left - 1
        while right > 0 and log_density(phi + high * direction) > level:
            high, right = high + WIDTH, right - 1
        for _ in range(MOST_SHRINKS):
            step = low + (high - low) * rng.random()
            if log_density(phi + step * direction) > level:
                return phi + step * direction
            low, high = (step, high) if step < 0.0 else (low, step)
        return phi

    def log_prior(self, psi, phi):
        """Of psi given phi, the effects normal about 0."""
        return log_normal(psi, 0.0, self.prior.precision(phi))

    def move_hyper(self, psi, phi, rng):
        def given(phi):
            return self.prior.log_hyper(phi) + self.log_prior(psi, phi)

        return self.slice(phi, given(phi), rng, given)

    def move_fixed(self, psi, phi, rng):
        """No factor but that of `center`: phi given psi, psi by Metropolis, phi given psi."""
        phi = self.move_hyper(psi, phi, rng)
        L, mean = self.given(self.center)
        xi = np.array([rng.standard_normal() for _ in psi])
        noise = np.empty(len(psi))
        noise[self.order] = np.linalg.solve(L.T, xi[self.order])
        new = self.hat + mean + math.sqrt(1.0 - self.size**2) * (psi - self.hat - mean) + self.size * noise
        ratio = (self.log_prior(new, phi) - self.log_prior(new, self.center)
                 - self.log_prior(psi, phi) + self.log_prior(psi, self.center))
        if -rng.standard_exponential() < ratio:
            psi = new
        phi = self.move_hyper(psi, phi, rng)
        return np.concatenate([psi, phi])

    def move(self, theta, rng):
        n, order = self.prior.n_seen, self.order
        psi, phi = theta[:n], theta[n:]
        if self.fixed_share > 0.0 and rng.random() < self.fixed_share:
            return self.move_fixed(psi, phi, rng)
        keep = math.sqrt(1.0 - self.size**2)
        some = self.stay is not None and rng.random() < 0.75
        L, mean = self.given(phi)
        z = np.empty(n)
        z[order] = L.T @ (psi - self.hat - mean)[order]
        if len(phi):
            phi = self.move_phi(phi, rng)
        L, mean = self.given(phi)
        for i in range(n):
            if not (some and self.stay[i]):
                z[i] = keep * z[i] + self.size * rng.standard_normal()
        psi = np.empty(n)
        psi[order] = np.linalg.solve(L.T, z[order])
        return np.concatenate([self.hat + mean + psi, phi])


class ScaledInner(NormalInner):
    """phi begins with the log of a scale, `s`: a Gaussian log-likelihood of rows is normal in the rest given it.

    `table` holds the design of coefficients and effects, `weights` those of the rows, `log_scale` the prior of s.
    """

    def __init__(self, hat, table, y, weights, log_scale, prior, order, center, factor, walk_share, size=1.0,
                 stretch=None):
        super().__init__(hat, None, None, prior, order, center, factor, walk_share, size, stretch=stretch)
        self.table, self.weights, self.log_scale = table, weights, log_scale
        self.left = y - table @ hat

    def expand(self, log_scale):
        scaled = self.weights * math.exp(-2.0 * log_scale)
        self.g, self.H = self.table.T @ (scaled * self.left), self.table.T @ (scaled[:, None] * self.table)

    def given(self, phi):
        self.expand(phi[0])
        return super().given(phi[1:])

    def log_marginal(self, phi):
        self.expand(phi[0])
        rows = -self.weights.sum() * phi[0] - 0.5 * math.exp(-2.0 * phi[0]) * self.weights @ self.left**2
        return rows + self.log_scale(phi[0]) + super().log_marginal(phi[1:])


def log_normal(x, mean, precision):
    return 0.5 * (np.linalg.slogdet(precision)[1] - (x - mean) @ precision @ (x - mean))


def sweep(inner, groups, rows, theta, rng, sliced=None):
    """Effects of each group given all else, proposed about Newton's step or on an ellipse of their prior.

    `groups` are coordinates of the effects of each. `rows(k, psi)` gives the log-likelihood of the rows of group k, its
    gradient by the effects and minus its Hessian, rows that are curved upwards left out of that. Groups that are not
    `sliced` propose about Newton's step in each sweep; by default all are.
    """
    n = inner.prior.n_seen
    psi, phi = theta[:n], theta[n:]
    rng.bit_generator.random_raw()
    P, out = inner.prior.precision(phi), psi.copy()

    def moved(own, effects):
        there = psi.copy()
        there[own] = effects
        return there

    def newton(k, own, effects):
        prior = P[np.ix_(own, own)]
        value, gradient, H = rows(k, moved(own, effects))
        A = prior + H
        return value + log_normal(effects, 0.0 * effects, prior), effects + np.linalg.solve(
            A, gradient - prior @ effects), A

    sliced = np.ones(len(groups), dtype=bool) if sliced is None else sliced
    by_newton = rng.random() < 0.5
    for k, own in enumerate(groups):
        if by_newton or not sliced[k]:
            value, center, A = newton(k, own, psi[own])
            xi = np.array([rng.standard_normal() for _ in own])
            new = center + np.linalg.solve(np.linalg.cholesky(A).T, xi)
            there, back, A_there = newton(k, own, new)
            ratio = there - value + log_normal(psi[own], back, A_there) - log_normal(new, center, A)
            if ratio + rng.standard_exponential() > 0.0:
                out[own] = new
    slices = []
    for k, own in enumerate(groups):
        if by_newton or not sliced[k]:
            continue
        xi = np.array([rng.standard_normal() for _ in own])
        noise = np.linalg.solve(np.linalg.cholesky(P[np.ix_(own, own)]).T, xi)
        level, angle = rows(k, psi)[0] - rng.standard_exponential(), 2.0 * math.pi * rng.random()
        slices.append([k, own, noise, level, angle, angle - 2.0 * math.pi, angle])
    while slices:
        still = []
        for k, own, noise, level, angle, low, high in slices:
            new = math.cos(angle) * psi[own] + math.sin(angle) * noise
            if rows(k, moved(own, new))[0] > level:
                out[own] = new
                continue
            low, high = (angle, high) if angle < 0.0 else (low, angle)
            still.append([k, own, noise, level, low + (high - low) * rng.random(), low, high])
        slices = still
    return np.r_[out, phi]


def exact_step(inner, log_likelihood, theta, rng, n_inner=1, stride=0.0, walks=None, along=(), far=1.0, scalings=(),
               n_walked=None, shifts=(), sweeps=()):
    """One step decided by all rows: R is the log-likelihood less its expansion. The next state, and if it is new.

    With a stride a fifth of the steps are plain ones of the last coordinate that the rows see: symmetric proposals.
    With walks a twentieth are those of all coordinates. Plain ones along given directions follow: with far above 1 half
    of them are longer, and phi moves given psi after each. Then phi moves along the rows of `scalings`, standardised
    effects held; then come plain steps along `shifts`, and `sweeps` with a move of phi: for each factor its
    groups, the log-likelihood of them, as `sweep` takes it, and which of them slice.
    """
    n = inner.prior.n_seen

    def residual(psi):
        d = psi - inner.hat
        return log_likelihood(psi) - inner.g @ d + 0.5 * d @ inner.H @ d

    def whole(theta):
        return residual(theta[:n]) + inner.log_density(theta)

    rng.bit_generator.random_raw()              # the seed of the step's own stream, which no row needs
    coin = rng.random() if stride > 0.0 or walks is not None else 1.0
    scales = 0.2 if stride > 0.0 else 0.0
    level = -rng.standard_exponential()
    if coin < scales + (0.0 if walks is None else 0.05):
        new = theta.copy()
        if coin < scales:
            new[n - 1] += stride * rng.standard_normal()
        else:
            new += walks * np.array([rng.standard_normal() for _ in theta])
        accepted = whole(new) - whole(theta) > level
    else:
        new = theta
        for _ in range(n_inner):
            new = inner.move(new, rng)
        accepted = residual(new[:n]) - residual(theta[:n]) > level
    theta = new if accepted else theta
    n_walked = len(along) if n_walked is None else n_walked
    for t in range(n_walked):
        way = along[t if n_walked == len(along) else int(len(along) * rng.random())]
        rng.bit_generator.random_raw()
        level, new = -rng.standard_exponential(), theta.copy()
        step = rng.standard_normal()
        if far > 1.0 and rng.random() < 0.5:
            step *= far ** rng.random()
        new[:n] += step * way
        theta = new if whole(new) - whole(theta) > level else theta
        if far > 1.0:
            rng.bit_generator.random_raw()
            rng.standard_exponential()          # phi given psi is always accepted
            theta = np.r_[theta[:n], inner.move_hyper(theta[:n], theta[n:], rng)]
    for way in scalings:
        rng.bit_generator.random_raw()
        level, step = -rng.standard_exponential(), rng.standard_normal()
        new = np.r_[theta[:n], theta[n:] + step * way]
        before, after = inner.prior.root(theta[n:]), inner.prior.root(new[n:])
        new[:n] = after @ np.linalg.solve(before, theta[:n])
        jacobian = np.log(np.diag(after) / np.diag(before)).sum()
        theta = new if whole(new) - whole(theta) + jacobian > level else theta
    for way in shifts:
        rng.bit_generator.random_raw()
        level, new = -rng.standard_exponential(), theta.copy()
        new[:n] += rng.standard_normal() * way
        theta = new if whole(new) - whole(theta) > level else theta
    for groups, rows, *sliced in sweeps:
        theta = sweep(inner, groups, rows, theta, rng, *sliced)
    if len(sweeps):
        rng.bit_generator.random_raw()
        rng.standard_exponential()
        theta = np.r_[theta[:n], inner.move_hyper(theta[:n], theta[n:], rng)]
    return theta, accepted


def cubic_change(before, both, after, step):
    straight = math.sqrt(step) * (before + both + after)
    return min(straight, before**1.5 + after**1.5) / 6.0 * (1.0 + 1e-9)


class Blocks:
    """Rows block after block, each with an alias table of its weights."""

    def __init__(self, weights, codes, n_blocks):
        self.rows = [np.flatnonzero(codes == g) for g in range(n_blocks)]
        self.weights = [weights[rows] for rows in self.rows]
        self.tables = [alias_table(own) if len(own) else None for own in self.weights]


def seen_part(step, ways, metric):
    """A step less its projection, in the metric, onto directions in which no row's predictor moves."""
    return step - ways.T @ np.linalg.solve(ways @ metric @ ways.T, ways @ metric @ step)


def minibatch(stream, blocks, z0, z1, dense, coordinates, changes, threshold, balls=(), wider=1.0, least=None):
    """Whether the rows' changes, all of them in a function of the row, sum to more than the threshold; rows read.

    z0 and z1: whitened points; `dense` and `coordinates[g]`: which of them the rows of block g see. balls: pairs of a
    radius and the `Blocks` that hold where a block is within it at both points. least(row, weight), where rows are
    thinned: by how much the predictor of a row of that weight lets its term change.
    """
    sizes, upto, rate, held = [], [], 0.0, []
    for g, own in enumerate(coordinates):
        seen = np.r_[dense, own]
        a, b = z0[seen], z1[seen]
        far = max(np.linalg.norm(a), np.linalg.norm(b))
        held.append(next((inner for radius, inner in balls if far <= radius), blocks))
        sizes.append(wider * cubic_change(a @ a, a @ b, b @ b, (b - a) @ (b - a)))
        rate += held[g].weights[g].sum() * sizes[-1]
        upto.append(rate)
    drawn, weight = [], {}
    for _ in range(stream.poisson(rate)):
        level = rate * stream.uniform()
        g = next(k for k, sum_ in enumerate(upto) if sum_ > level)
        keep, other = held[g].tables[g]
        i = stream.below(len(keep))
        i = i if stream.uniform() < keep[i] else other[i]
        drawn.append((blocks.rows[g][i], held[g].weights[g][i] * sizes[g]))
        weight[blocks.rows[g][i]] = held[g].weights[g][i]
    total, read = 0.0, len(drawn)
    if least is not None:
        drawn = thinned(drawn, rate, stream, lambda row: wider * least(row, weight[row]))
    for row, bound in drawn:
        total += factor_of(changes(row), bound, stream.uniform())
    return total > threshold, read


class Pieces:
    """What rows of several factors see, from dense matrices. design: (n_rows, n_seen), the effects as dummy columns.

    covariance: of all that rows see. factors: (first effect, number of groups, width, codes). For a row x and the
    functions t = B'd that all share, x'd = (T'x)'t + x'(d - T t), whose last part is that of the row's own groups.
    """

    def __init__(self, covariance, design, factors):
        n = len(covariance)
        shared = [np.eye(n)[j] for j in range(n) if not any(f <= j < f + g * q for f, g, q, _ in factors)]
        for first, count, width, _ in factors:
            for k in range(width):
                shared.append(np.isin(np.arange(n), first + width * np.arange(count) + k) / count)
        self.B = np.array(shared).T
        self.V = self.B.T @ covariance @ self.B
        self.T = covariance @ self.B @ np.linalg.inv(self.V)
        left = covariance - self.T @ self.V @ self.T.T
        self.groups = [[np.arange(first + g * width, first + (g + 1) * width) for g in range(count)]
                       for first, count, width, _ in factors]
        self.K = [[left[np.ix_(own, own)] for own in groups] for groups in self.groups]
        self.codes = [codes for _, _, _, codes in factors]
        self.widths = np.array([len(self.V)] + [width for _, _, width, _ in factors])
        y = design @ self.T
        self.lengths = [spread_of(y, self.V)]
        for groups, K, codes in zip(self.groups, self.K, self.codes, strict=True):
            self.lengths.append(np.array([math.sqrt(x[groups[g]] @ K[g] @ x[groups[g]])
                                          for x, g in zip(design, codes, strict=True)]))
        self.lengths = np.array(self.lengths)

    def cubes(self, step):
        """Norms to the power of 3: of the shared piece, then by factor and group."""
        t = self.B.T @ step
        left = step - self.T @ t
        out = [(t @ np.linalg.solve(self.V, t)) ** 1.5]
        for groups, K in zip(self.groups, self.K, strict=True):
            out += [(left[own] @ np.linalg.solve(k, left[own])) ** 1.5 for own, k in zip(groups, K, strict=True)]
        return np.array(out)

    def blocks(self):
        """Of each row, one for each of its pieces."""
        out, first = [np.zeros(len(self.codes[0]), dtype=int)], 1
        for codes, groups in zip(self.codes, self.groups, strict=True):
            out.append(first + codes)
            first += len(groups)
        return np.array(out)

    def sizes(self, before, after, totals):
        """Of all blocks, for a move between two steps from the point of expansion; totals: of the blocks' weights."""
        far, apart = self.cubes(before) + self.cubes(after), self.cubes(after - before)
        ways = [far / 6.0]
        if totals @ apart > 0.0:
            t = (totals @ far / (2.0 * totals @ apart)) ** (1.0 / 3.0)
            ways.append((t * t * apart + far / t) / 6.0)
        return min(ways, key=lambda sizes: totals @ sizes) * (1.0 + 1e-9)


def minibatch_of_pieces(stream, weights, blocks, sizes, changes, threshold):
    """The decision and the rows read; weights and blocks: (n_pieces, n_rows); sizes: of each block."""
    flat, code, n = weights.ravel(), blocks.ravel(), weights.shape[1]
    places = [np.flatnonzero(code == g) for g in range(len(sizes))]
    upto = np.cumsum([flat[own].sum() * size for own, size in zip(places, sizes, strict=True)])
    drawn = []
    for _ in range(stream.poisson(upto[-1])):
        level = upto[-1] * stream.uniform()
        g = next(k for k, sum_ in enumerate(upto) if sum_ > level)
        keep, other = alias_table(flat[places[g]])
        i = stream.below(len(keep))
        i = i if stream.uniform() < keep[i] else other[i]
        row = places[g][i] % n
        drawn.append((row, weights[:, row] @ sizes[blocks[:, row]]))
    total = 0.0
    for row, bound in drawn:
        total += factor_of(changes(row), bound, stream.uniform())
    return total > threshold, len(drawn)


def factor_of(change, bound, uniform):
    """By what a row drawn at the rate of its bound adds to the log acceptance ratio."""
    change = min(max(change, -bound), bound)
    here = bound - change if change > 0.0 else bound
    return math.log((here + change) / here) if uniform * bound < here else 0.0
