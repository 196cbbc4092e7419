"""Plain twins of the chains: one step at a time, in NumPy and Python integers, from the same random numbers."""

import math

import numpy as np

from reference import betting, threshold

MASK = (1 << 64) - 1


class RowStream:
    """xoshiro256++ seeded by splitmix64."""

    def __init__(self, seed):
        self.s = []
        for _ in range(4):
            seed = (seed + 0x9E3779B97F4A7C15) & MASK
            z = seed
            z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
            z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
            self.s.append(z ^ (z >> 31))

    @staticmethod
    def _turned(x, k):
        return ((x << k) | (x >> (64 - k))) & MASK

    def next64(self):
        s = self.s
        out = (self._turned((s[0] + s[3]) & MASK, 23) + s[0]) & MASK
        t = (s[1] << 17) & MASK
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = self._turned(s[3], 45)
        return out

    def uniform(self):
        return (self.next64() >> 11) / 2.0**53

    def below(self, n):
        while True:
            product = (self.next64() >> 32) * n
            if product & 0xFFFFFFFF >= (2**32 - n) % n:
                return product >> 32

    def poisson(self, rate):
        """As NumPy: by products of uniforms below a rate of 10, else by Hormann's PTRS (1993)."""
        if rate >= 10.0:
            b = 0.931 + 2.53 * math.sqrt(rate)
            a = -0.059 + 0.02483 * b
            inverse_alpha, v_r = 1.1239 + 1.1328 / (b - 3.4), 0.9277 - 3.6224 / (b - 2.0)
            while True:
                u, v = self.uniform() - 0.5, self.uniform()
                us = 0.5 - abs(u)
                k = math.floor((2.0 * a / us + b) * u + rate + 0.43)
                if us >= 0.07 and v <= v_r:
                    return k
                if k >= 0 and not (us < 0.013 and v > us) and (
                        math.log(v) + math.log(inverse_alpha) - math.log(a / us**2 + b)
                        <= k * math.log(rate) - rate - math.lgamma(k + 1.0)):
                    return k
        count, product, limit = 0, 1.0, math.exp(-rate)
        if rate == 0.0:
            return 0
        while True:
            product *= self.uniform()
            if product <= limit:
                return count
            count += 1


def alias_table(weights):
    n = len(weights)
    keep, other = list(np.asarray(weights) / np.sum(weights) * n), list(range(n))
    small = [i for i in range(n) if keep[i] < 1.0]
    large = [i for i in range(n) if keep[i] >= 1.0]
    while small and large:
        low, high = small.pop(), large[-1]
        other[low] = high
        keep[high] -= 1.0 - keep[low]
        if keep[high] < 1.0:
            large.pop()
            small.append(high)
    for i in small + large:
        keep[i] = 1.0
    return keep, other


def log_terms(family, X, y, theta, scale=1.0, df=4.0):
    eta = X @ theta
    if family == "logistic":
        return y * eta - np.logaddexp(0.0, eta)
    if family == "gaussian":
        return -0.5 * ((y - eta) / scale) ** 2 - math.log(scale) - 0.5 * math.log(2 * math.pi)
    if family == "poisson":
        return y * eta - np.exp(eta)
    z = (y - eta) / scale
    constant = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - 0.5 * math.log(df * math.pi) - math.log(scale)
    return constant - 0.5 * (df + 1) * np.log1p(z * z / df)


class Logistic:
    """Residuals of the second-order expansion of a logistic regression, in the coordinates of its reference."""

    def __init__(self, X, y, reference):
        self.X, self.y, self.reference = X, y, reference
        eta = X @ reference.theta_hat
        p = 1.0 / (1.0 + np.exp(-eta))
        self.eta, self.slope, self.curvature = eta, y - p, -p * (1.0 - p)
        self.value = log_terms("logistic", X, y, reference.theta_hat)

    def residuals(self, theta, rows=slice(None)):
        a = self.X[rows] @ theta - self.eta[rows]
        terms = log_terms("logistic", self.X[rows], self.y[rows], theta)
        return terms - self.value[rows] - a * (self.slope[rows] + 0.5 * self.curvature[rows] * a)


def size_of_move(z0, z1):
    """How far the residual of a row of weight 1 can move."""
    before, after, both = z0 @ z0, z1 @ z1, z0 @ z1
    straight = math.sqrt((z1 - z0) @ (z1 - z0)) * (before + both + after)
    return min(straight, before**1.5 + after**1.5) / 6.0


def urns(reference):
    """Radius, weights and alias table of each ball about the point of expansion, the smallest first."""
    balls = [*reference.shells, (reference.radius, reference.weights)]
    return [(radius, weights, *alias_table(weights)) for radius, weights in balls]


def urn_of(balls, z0, z1):
    """Weights and alias table of the smallest ball that holds both points: they do not depend on the direction."""
    return next(ball[1:] for ball in balls if max(np.linalg.norm(z0), np.linalg.norm(z1)) <= ball[0])


def bend(third, center, reach, n=4000):
    """(2 / t^2) times the integral of (t - s) m(s) from 0 to t; m(s): the largest abs(l''') within s of `center`."""
    s = np.linspace(0.0, reach, n + 1)
    m = np.maximum.accumulate(np.maximum(np.abs(third(center + s)), np.abs(third(center - s))))
    return 2.0 / reach**2 * np.trapezoid((reach - s) * m, s) if reach > 0.0 else m[0]


def chain(model, z, rng, n, *, size, walk, walk_share, decide):
    """Crank-Nicolson steps about the reference, and a share of walks; `decide(now, new, z0, z1, log_u, stream)`.

    Acceptance of the former is delayed: they leave the reference invariant, so all of them pass the first stage.
    """
    center, factor = model.reference.center, model.reference.factor
    keep = math.sqrt(1.0 - size * size)
    out = []
    for _ in range(n):
        stream = RowStream(int(rng.bit_generator.random_raw()))
        walks = walk_share > 0.0 and rng.random() < walk_share
        a, b = (1.0, walk) if walks else (keep, size)
        new = a * z + b * np.array([rng.standard_normal() for _ in z])
        first = -rng.standard_exponential()
        log_u = first + 0.5 * (new @ new - z @ z) if walks else -rng.standard_exponential()
        if decide(center + factor @ z, center + factor @ new, z, new, log_u, stream):
            z = new
        out.append(center + factor @ z)
    return np.array(out)


def delayed_walk(model, z, rng, n, *, size, radius, plain_share, decide):
    """Random-walk steps in the reference's coordinates, whose acceptance is delayed inside a ball.

    With a the ratio of the reference's densities, accept with min(1, a) and then with min(1, b) if both states are
    within `radius`, but for a share of these steps; else at once with min(1, a b).
    """
    center, factor = model.reference.center, model.reference.factor
    out = []
    for _ in range(n):
        stream = RowStream(int(rng.bit_generator.random_raw()))
        new = z + size * np.array([rng.standard_normal() for _ in z])
        log_a, log_u = 0.5 * (z @ z - new @ new), -rng.standard_exponential()
        if max(np.linalg.norm(z), np.linalg.norm(new)) > radius or rng.random() < plain_share:
            log_u -= log_a
        elif log_u < log_a:
            log_u = -rng.standard_exponential()
        else:
            out.append(center + factor @ z)
            continue
        if decide(center + factor @ z, center + factor @ new, z, new, log_u, stream):
            z = new
        out.append(center + factor @ z)
    return np.array(out)


def walk(reference, log_prior, z, rng, n, *, size, decide):
    """Random-walk steps in the reference's coordinates, decided once."""
    center, factor = reference.center, reference.factor
    out = []
    for _ in range(n):
        stream = RowStream(int(rng.bit_generator.random_raw()))
        new = z + size * np.array([rng.standard_normal() for _ in z])
        here, there = center + factor @ z, center + factor @ new
        log_u = -rng.standard_exponential() - (log_prior(there) - log_prior(here))
        if decide(here, there, z, new, log_u, stream):
            z = new
        out.append(center + factor @ z)
    return np.array(out)


def antithetic(log_posterior, center, factor, v, rng, n, *, walk, walk_share, mirror=True):
    """Pairs of mirror images from a normal density; then the mirror image of the state. A share of random walks.

    With w the posterior over that density: the pair of y is accepted with min(1, (w(y) + w(-y)) / (w(v) + w(-v))), and
    y is chosen from it with w(y) / (w(y) + w(-y)). Without `mirror` y alone with min(1, w(y) / w(v)).
    """
    def log_w(v):
        return log_posterior(center + factor @ v) + 0.5 * v @ v

    out = []
    for k in range(n):
        if mirror and k % 2:
            v = -v if -rng.standard_exponential() < log_w(-v) - log_w(v) else v
            out.append(center + factor @ v)
            continue
        walks, xi, log_u, u = rng.random() < walk_share, rng.standard_normal(len(v)), -rng.standard_exponential(), \
            1.0 - rng.random()
        if walks:
            new = v + walk * xi
            v = new if log_u < log_posterior(center + factor @ new) - log_posterior(center + factor @ v) else v
        elif not mirror:
            v = xi if log_u < log_w(xi) - log_w(v) else v
        elif log_u < np.logaddexp(log_w(xi), log_w(-xi)) - np.logaddexp(log_w(v), log_w(-v)):
            v = xi if math.log(u) < log_w(xi) - np.logaddexp(log_w(xi), log_w(-xi)) else -xi
        out.append(center + factor @ v)
    return np.array(out)


def frames(log_posterior, center, factor, v, rng, n, *, n_points, walk, walk_share, mirror=True):
    """Sets of points, one of them the chain's, orthogonal to each other as far as they can be; draws by weight.

    Which of the points is the chain's is drawn first, as far as it matters: whether it lies in the last frame.

    A turn is a random walk, or a set of `n_points`, with `mirror` each with its mirror image. With w as in
    `antithetic`, slot k of as many as there are points holds the one whose share of the weights' circle has
    (u + k / slots) mod 1.
    """
    def log_w(v):
        return log_posterior(center + factor @ v) + 0.5 * v @ v

    out, d, slots = [], len(v), n_points * (1 + mirror)
    while len(out) < n:
        if rng.random() < slots * walk_share / (1.0 - walk_share + slots * walk_share):
            new, log_u = v + walk * rng.standard_normal(d), -rng.standard_exponential()
            v = new if log_u < log_posterior(center + factor @ new) - log_posterior(center + factor @ v) else v
            out.append(center + factor @ v)
            continue
        points, sizes = [], [d] * (n_points // d) + [n_points % d] * (n_points % d > 0)
        if len(sizes) > 1 and n_points % d and rng.random() < n_points % d / n_points:
            sizes.reverse()         # the chain's point is one of the smaller frame
        for count in sizes:
            noise, lengths, units = rng.standard_normal((d, count)).T, np.sqrt(rng.chisquare(d, count)), []
            for k in range(count):                  # Gram & Schmidt
                way = v.copy() if not points and k == 0 else noise[k]
                for _ in range(2):
                    for unit in units:
                        way = way - (way @ unit) * unit
                units.append(way / np.linalg.norm(way))
            points += [v if not points and k == 0 else lengths[k] * unit for k, unit in enumerate(units)]
        if mirror:
            points = [x for point in points for x in (point, -point)]
        weights = np.exp([log_w(x) for x in points])
        ends, u = np.cumsum(weights / weights.sum()), rng.random()
        for k in range(slots):
            v = points[int((ends <= (u + k / slots) % 1.0).sum())]
            out.append(center + factor @ v)
    return np.array(out[:n])


def shared_minibatches(residuals, bounds, log_prior, middle, factor, lean, v, rng, n, *, batch, walk, walk_share):
    """Batches of proposals from a normal density, and walks, decided by rows that the whole batch shares.

    Row i is drawn Poisson(b_i + r_i) times at the state; given that, the law of v is that of proposals times
    exp(-lean . v) times the prior's rest times (1 + r_i / b_i) for each row drawn. `residuals(theta)` are all r_i.
    """
    out, d, total = [], len(v), sum(bounds)

    def cut(theta, i):
        return min(1.0, max(-1.0, residuals(theta)[i] / bounds[i]))

    while len(out) < n:
        walks, noise = [rng.random() < walk_share for _ in range(batch)], rng.standard_normal((batch, d))
        log_u = [-rng.standard_exponential() for _ in range(batch)]
        rows, here = [], middle + factor @ v
        for place in sorted(rng.random() for _ in range(rng.poisson(2.0 * total))):
            sums, i = bounds[0], 0
            while sums <= place * total:
                i += 1
                sums += bounds[i]
            rows.append(i)
        rows = [i for i, u in zip(rows, [rng.random() for _ in rows], strict=True) if 2.0 * u < 1.0 + cut(here, i)]

        def log_w(v, rows=rows):
            theta = middle + factor @ v
            factors = [1.0 + cut(theta, i) for i in rows]
            return sum(math.log(x) if x > 0.0 else -math.inf for x in factors) - lean @ v + log_prior(theta)

        for k in range(batch):
            new = v + walk * noise[k] if walks[k] else noise[k]
            level = log_u[k] + (0.5 * (new @ new - v @ v) if walks[k] else 0.0)
            v = new if level < log_w(new) - log_w(v) else v
            out.append(middle + factor @ v)
    return np.array(out[:n])


def student_t(model, z, rng, n, *, degrees, shift, scale, walk, walk_share, decide):
    """Draws from a Student-t density in the reference's coordinates, and a share of walks, all decided at once.

    With s the density of the reference and q that of the proposals, accept with min(1, s(z') q(z) / (s(z) q(z')) b).
    """
    center, factor = model.reference.center, model.reference.factor

    def log_q(z):
        t = (z - shift) / scale
        return -0.5 * (degrees + len(z)) * math.log1p(t @ t / degrees)

    out = []
    for _ in range(n):
        stream = RowStream(int(rng.bit_generator.random_raw()))
        walks = walk_share > 0.0 and rng.random() < walk_share
        stretch = 1.0 if walks else math.sqrt(0.5 * degrees / rng.standard_gamma(0.5 * degrees))
        xi = stretch * np.array([rng.standard_normal() for _ in z])
        new = z + walk * xi if walks else shift + scale * xi
        log_u = -rng.standard_exponential() + 0.5 * (new @ new - z @ z)
        if not walks:
            log_u += log_q(new) - log_q(z)
        if decide(center + factor @ z, center + factor @ new, z, new, log_u, stream):
            z = new
        out.append(center + factor @ z)
    return np.array(out)


def slice_sweeps(log_density, z, rng, n, *, width, most):
    """Slice sampling along one coordinate after another; Neal (2003), figures 3 (stepping out) and 5 (shrinkage)."""
    out = []
    for _ in range(n):
        for j in range(len(z)):
            log_y = log_density(z) - rng.standard_exponential()
            axis = np.eye(len(z))[j]

            def inside(x, z=z, axis=axis, log_y=log_y):
                rng.bit_generator.random_raw()      # a fresh order of rows for each test
                return log_y < log_density(z + x * axis)

            left = -width * rng.random()
            right = left + width
            to_left = int(most * rng.random())
            to_right = most - 1 - to_left
            while to_left > 0 and inside(left):
                left, to_left = left - width, to_left - 1
            while to_right > 0 and inside(right):
                right, to_right = right + width, to_right - 1
            while True:
                x = left + (right - left) * rng.random()
                if inside(x):
                    break
                left, right = (x, right) if x < 0.0 else (left, x)
            z = z + x * axis
        out.append(z)
    return np.array(out)


def exact_decision(model):
    def decide(now, new, z0, z1, log_u, stream):
        return model.residuals(new).sum() - model.residuals(now).sum() > log_u

    return decide


def thinned(drawn, rate, stream, least):
    """Rows, drawn at the rates of their bounds, at 16 times the rates of what they can change by: `least` of a row.

    From 16 rows on that are expected.
    """
    out = []
    for row, bound in drawn:
        here = min(bound, 16.0 * least(row))
        if rate < 16.0:
            out.append((row, bound))
        elif stream.uniform() * bound < here:
            out.append((row, here))
    return out


def poisson_decision(model, least=None):
    """least(now, new, row), where rows are thinned: by how much the row's predictors let its term change, at most."""
    balls = urns(model.reference)

    def decide(now, new, z0, z1, log_u, stream):
        size = size_of_move(z0, z1)
        weights, keep, other = urn_of(balls, z0, z1)
        rows = []
        rate = weights.sum() * size
        for _ in range(stream.poisson(rate)):
            i = stream.below(len(weights))
            rows.append(i if stream.uniform() < keep[i] else other[i])
        ratio, drawn = 0.0, [(i, weights[i] * size) for i in rows]
        if least is not None:
            drawn = thinned(drawn, rate, stream, lambda i: least(now, new, i))
        for i, bound in drawn:
            change = float((model.residuals(new, [i]) - model.residuals(now, [i]))[0])
            here = bound - max(change, 0.0)
            if stream.uniform() * bound < here:
                ratio += math.log((here + change) / here)
        return ratio > log_u

    return decide


def weighted_decision(model, delta, looks, advantage=1.0):
    """Bets on the changes of rows drawn with replacement in proportion to their bounds, in units of these.

    Given up for a full pass where the draws still needed cost more than it; no number of them makes the race exact.
    """
    balls = urns(model.reference)

    def decide(now, new, z0, z1, log_u, stream):
        size = size_of_move(z0, z1)
        weights, keep, other = urn_of(balls, z0, z1)
        whole = weights.sum() * size
        if abs(log_u) >= whole:
            return log_u < 0.0
        level, x = log_u / whole, []
        for k, look in enumerate(looks):
            while len(x) < look:
                i = stream.below(len(weights))
                i = i if stream.uniform() < keep[i] else other[i]
                change = float((model.residuals(new, [i]) - model.residuals(now, [i]))[0])
                x.append(min(max(change / (weights[i] * size), -1.0), 1.0))
            up = float(np.mean(x)) > level
            # mean <= level, or mean >= level, is refuted; with replacement the rest of a population has no end.
            against = [value - level if up else level - value for value in x]
            _, peak, _ = betting.wealth(against, 2**62, (-1.0 - level) if up else (level - 1.0), len(weights))
            if peak >= -math.log(delta):
                return up
            std, gap, needed = float(np.std(x)), abs(float(np.mean(x)) - level), math.inf
            if std > 1e-12 * max(map(abs, x)):
                for later in looks[k + 1:]:
                    if threshold.bettors_quantile(delta, later, len(weights)) * std / math.sqrt(later) < gap:
                        needed = later
                        break
            if (k + 1 < len(looks) and advantage * looks[k + 1] > 0.05 * len(weights)
                    and advantage * (needed - look) > len(weights)):
                break
        return model.residuals(new).sum() - model.residuals(now).sum() > log_u

    return decide


def firefly_decision(model, fraction=1.0):
    """Rows bright with probability 1 - exp(-gap), and a step on the bright ones and the bounds of all others."""
    weights, offset = model.reference.weights, model.reference.from_hat
    keep, other = alias_table(weights)
    bright = None

    def decide(now, new, z0, z1, log_u, stream):
        nonlocal bright
        before, after = (np.linalg.norm(z + offset) ** 3 * (1.0 + 1e-9) for z in (z0, z1))
        drawn = []
        for _ in range(stream.poisson(weights.sum() * before / 3.0)):
            i = stream.below(len(weights))
            drawn.append(i if stream.uniform() < keep[i] else other[i])
        was = set() if bright is None or fraction >= 1.0 else bright
        pool = []
        for i in sorted(was | set(drawn)):
            anew = bright is None or fraction >= 1.0 or stream.uniform() < fraction
            if not anew and i in was:
                pool.append((i, 0))
            elif anew and i in drawn:
                pool.append((i, drawn.count(i)))
        bright = set()
        ratio = -weights.sum() * (after - before) / 6.0
        for i, times in pool:
            gap = float(model.residuals(now, [i])[0]) + weights[i] * before / 6.0
            there = float(model.residuals(new, [i])[0]) + weights[i] * after / 6.0
            if times == 0 or stream.uniform() < 1.0 - (1.0 - gap / (weights[i] * before / 3.0)) ** times:
                bright.add(i)
                ratio += math.log(math.expm1(there)) - math.log(math.expm1(gap))
        return ratio > log_u

    return decide


def tuna_decision(X, y, model, slopes, chi):
    """TunaMH; see Zhang, Cooper & De Sa (2020), Algorithm 2, with U the negative log-likelihoods."""
    keep, other = alias_table(slopes)
    total = slopes.sum()

    def decide(now, new, z0, z1, log_u, stream):
        length = math.sqrt((z1 - z0) @ (z1 - z0))
        whole = total * length
        ratio = 0.0
        rows = []
        for _ in range(stream.poisson(chi * whole**2 + whole)):
            i = stream.below(len(slopes))
            rows.append(i if stream.uniform() < keep[i] else other[i])
        for i in rows:
            u_now, u_new = (-float(log_terms("logistic", X[i], y[i], theta)) for theta in (now, new))
            share, bound = chi * slopes[i] * length * whole, slopes[i] * length
            if stream.uniform() < (share + 0.5 * (u_new - u_now + bound)) / (share + bound):
                ratio += 2.0 * math.atanh((u_now - u_new) / (bound * (1.0 + 2.0 * chi * whole)))
        return ratio > log_u

    return decide


def softmax_predictors(X, theta):
    p = X.shape[1]
    eta = np.zeros((len(X), len(theta) // p + 1))
    eta[:, 1:] = X @ theta.reshape(-1, p).T
    return eta


def softmax_terms(X, y, theta, offset=0.0, weights=1.0):
    eta = softmax_predictors(X, theta) + offset
    return weights * (eta[np.arange(len(X)), y] - np.logaddexp.reduce(eta, axis=1))


def softmax_expansion(X, y, hat, theta, offset=0.0, weights=1.0):
    """Second-order expansion of each row's term."""
    eta = softmax_predictors(X, hat) + offset
    share = np.exp(eta - np.logaddexp.reduce(eta, axis=1)[:, None])
    d = softmax_predictors(X, theta - hat)
    mean = (share * d).sum(axis=1)
    linear = d[np.arange(len(X)), y] - mean
    bent = linear - 0.5 * (share * (d - mean[:, None]) ** 2).sum(axis=1)
    return softmax_terms(X, y, hat, offset, weights) + weights * bent
