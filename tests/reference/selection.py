"""Twins of the selections in plain Python: one line per line of the papers, all computed afresh."""

import math


class Uniforms:
    """Uniform numbers one by one, in the order in which the compiled rules use them."""

    def __init__(self, rng):
        self.rng, self.left = rng, []

    def __call__(self):
        if not self.left:
            self.left = self.rng.random(256)[::-1].tolist()
        return self.left.pop()


# Bounds turned round. R is the width of the support, s the standard deviation with divisor u.

def hoeffding(u, g, R):
    return 1.0 if g <= 0 else math.exp(-2 * u * (g / R) ** 2)


def bernstein_width(u, s, R, level):
    x = math.log(3 / level)
    return s * math.sqrt(2 * x / u) + 3 * R * x / u


def bernstein(u, s, g, R):
    if g <= 0:
        return 1.0
    a, b = s * math.sqrt(2 / u), 3 * R / u
    y = 2 * g / (a + math.sqrt(a * a + 4 * b * g))
    return min(1.0, 3 * math.exp(-y * y))


def level(kind, u, s, g, R):
    if kind == "hoeffding":
        return hoeffding(u, g, R)
    return min(hoeffding(u, g, R), bernstein(u, s, g, R))


class State:
    """Rewards of all arms, and what follows from them by sorting."""

    def __init__(self, n, m, epsilon, widths, kind="tightest"):
        self.n, self.m, self.epsilon, self.widths, self.kind = n, m, epsilon, widths, kind
        self.u, self.mean, self.m2 = [0] * n, [0.0] * n, [0.0] * n

    def tell(self, i, x):
        self.u[i] += 1
        step = x - self.mean[i]
        self.mean[i] = x if self.u[i] == 1 else self.mean[i] + step / self.u[i]
        self.m2[i] += step * (x - self.mean[i]) if self.u[i] > 1 else 0.0

    def order(self):
        return sorted(range(self.n), key=lambda i: (-self.mean[i], i))

    def se(self, i):
        return max(math.sqrt(self.m2[i]) / self.u[i], self.widths[i] / self.u[i])

    def cutoff(self):
        order = self.order()
        h, low = order[self.m - 1], order[self.m]
        top, bottom = self.mean[h] + self.epsilon, self.mean[low]
        return bottom + (top - bottom) * (self.se(low) / (self.se(h) + self.se(low)))

    def gap(self, i, c, high):
        return self.mean[i] + self.epsilon - c if i in high else c - self.mean[i]

    def level(self, i, c, high):
        s = math.sqrt(self.m2[i] / self.u[i])
        return level(self.kind, self.u[i], s, self.gap(i, c, high), self.widths[i])

    def levels(self, c):
        high = set(self.order()[:self.m])
        return [self.level(i, c, high) for i in range(self.n)]

    def error(self, c):
        product = 1.0
        for d in self.levels(c):
            product *= 1 - d
        return 1 - product


def adapt(pull, n, m, epsilon, delta, widths, kind="tightest", n0=2, cap=math.inf, uniform=None, max_pulls=10**6):
    """The paper's policies 3 and 4: the arms pulled, the set, and why it stopped."""
    state, pulled = State(n, m, epsilon, widths, kind), []
    for i in range(n):
        for _ in range(n0):
            state.tell(i, pull(i))
            pulled.append(i)
    while len(pulled) < max_pulls:
        c = state.cutoff()
        weights = state.levels(c)
        if state.error(c) <= delta:
            return pulled, state.order()[:m], "delta"
        weights = [w if state.u[i] < cap else 0.0 for i, w in enumerate(weights)]
        if sum(weights) == 0:
            return pulled, state.order()[:m], "cap"
        at = uniform() * sum(weights)
        for i in range(n):
            if weights[i] > 0:
                last = i
                if at < weights[i]:
                    break
                at -= weights[i]
        state.tell(last, pull(last))
        pulled.append(last)
    return pulled, state.order()[:m], "max_pulls"


def tree_find(weights, at):
    """The arm at a point of the weights, by halving as the sum tree does."""
    size = 1
    while size < len(weights):
        size *= 2
    sums = [0.0] * size + list(weights) + [0.0] * (size - len(weights))
    for k in range(size - 1, 0, -1):
        sums[k] = sums[2 * k] + sums[2 * k + 1]
    at, k = at * sums[1], 1
    while k < size:
        k *= 2
        if at >= sums[k] and sums[k + 1] > 0:
            at -= sums[k]
            k += 1
    return k - size, at


def adapt_by_envelope(pull, n, m, epsilon, delta, widths, kind="tightest", n0=2, cap=math.inf, uniform=None):
    """The same law by rejection: weights at the ends of a window of cutoffs, all computed afresh at every pull."""
    state, pulled = State(n, m, epsilon, widths, kind), []
    for i in range(n):
        for _ in range(n0):
            state.tell(i, pull(i))
            pulled.append(i)
    window, drawn, rejected, next_test = (math.inf, -math.inf), 0, 0, 0
    while True:
        order, c = state.order(), state.cutoff()
        high = set(order[:m])
        if not (window[0] <= c <= window[1] and rejected <= 2 * (drawn + n)):
            reach = []
            for i in (order[m - 1], order[m]):
                d = state.level(i, c, high)
                least = widths[i] / (2 * math.sqrt(state.u[i]))
                gap = max(state.gap(i, c, high), least)
                reach.append(0.35 * gap / max(-math.log(d) if d > 0 else math.inf, 0.5))
            window, drawn, rejected = (c - min(reach), c + min(reach)), 0, 0
        below = sum(state.level(i, window[0] if i in high else window[1], high) for i in range(n))
        if len(pulled) >= next_test and below * (1 - 1e-9) <= -math.log1p(-delta):
            if state.error(c) <= delta:
                return pulled, order[:m], "delta"
            next_test = len(pulled) + max(1, len(pulled) // 1000)
        above = [state.level(i, window[1] if i in high else window[0], high) if state.u[i] < cap else 0.0
                 for i in range(n)]
        if sum(above) == 0:
            return pulled, order[:m], "delta" if state.error(c) <= delta else "cap"
        while True:
            i, at = tree_find(above, uniform())
            if at < state.level(i, c, high):
                drawn += 1
                break
            rejected += 1
        state.tell(i, pull(i))
        pulled.append(i)


def race(table, m, horizon, delta, R):
    """RACING by counting pairs: rows of `table` are rounds; selected, discarded and pulls of each arm."""
    n = table.shape[1]
    selected, discarded, undecided = set(), set(), set(range(n))
    lower, upper = [-math.inf] * n, [math.inf] * n
    spent, pulls = 0, [0] * n
    for t in range(1, horizon + 1):
        if len(selected) == m or len(discarded) == n - m:
            break
        looks = spent + (horizon - t + 1) * len(undecided)
        spent += len(undecided)
        w = R * math.sqrt(math.log(2 * looks / delta) / (2 * t))
        for i in undecided:
            pulls[i] += 1
            mean = table[:t, i].mean()
            lower[i], upper[i] = max(lower[i], mean - w), min(upper[i], mean + w)
        gone, kept = len(discarded), len(selected)
        chosen = {i for i in undecided if sum(lower[i] > upper[j] for j in undecided if j != i) >= n - m - gone}
        beaten = {i for i in undecided - chosen if sum(upper[i] < lower[j] for j in undecided if j != i) >= m - kept}
        selected |= chosen
        discarded |= beaten
        undecided -= chosen | beaten
    return selected, discarded, pulls


def direct(pull, n, m, epsilon, delta):
    """DIRECT (Kalyanakrishnan & Stone 2010, Algorithm 1): the set and the pulls of each arm."""
    k = math.ceil(2 / epsilon**2 * math.log(n / delta))
    mean = [math.fsum(pull(a) for _ in range(k)) / k for a in range(n)]
    return set(sorted(range(n), key=lambda a: (-mean[a], a))[:m]), [k] * n


def median_elimination(pull, arms, epsilon, delta, pulls):
    """Even-Dar, Mannor & Mansour (2006), Algorithm 3: the arm that is left; adds to `pulls`."""
    arms, e, d = list(arms), epsilon / 4, delta / 2
    while len(arms) > 1:
        k = math.ceil(1 / (e / 2) ** 2 * math.log(3 / d))
        mean = {a: math.fsum(pull(a) for _ in range(k)) / k for a in arms}
        for a in arms:
            pulls[a] += k
        below = sorted(arms, key=lambda a: (mean[a], -a))[:len(arms) // 2]      # the median
        arms = [a for a in arms if a not in below]
        e, d = 3 / 4 * e, d / 2
    return arms[0]


def incremental(pull, n, m, epsilon, delta):
    """INCREMENTAL (Kalyanakrishnan & Stone 2010, Algorithm 2): the set and the pulls of each arm."""
    selected, remaining, pulls = set(), set(range(n)), [0] * n
    for _ in range(m):
        arm = median_elimination(pull, sorted(remaining), epsilon, delta / m, pulls)
        selected.add(arm)
        remaining.remove(arm)
    return selected, pulls


def halving(pull, n, m, epsilon, delta, R=1.0):
    """HALVING with fresh rewards in each round: the set and the pulls of each arm."""
    e, d, left, pulls = epsilon / 4, delta / 2, list(range(n)), [0] * n
    while len(left) > m:
        k = math.ceil(2 * R**2 / e**2 * math.log(3 * m / d))
        means = {}
        for i in left:
            means[i] = math.fsum(pull(i) for _ in range(k)) / k
            pulls[i] += k
        left = sorted(sorted(left, key=lambda i: (-means[i], i))[:max((len(left) + 1) // 2, m)])
        e, d = 0.75 * e, d / 2
    return set(left), pulls


def ocba_lacks(rewards, m, size):
    """OCBA-m (Chen, He, Fu & Lee 2008): pulls, not whole ones, of each arm in a batch of `size`; from all rewards."""
    u = [len(x) for x in rewards]
    mean = [math.fsum(x) / len(x) for x in rewards]
    s1 = [math.sqrt(math.fsum((r - p) ** 2 for r in x) / (len(x) - 1)) for x, p in zip(rewards, mean, strict=True)]
    share, _ = ocba_shares(mean, s1, u, m)
    lacking = [max(0.0, part * (sum(u) + size) - k) for part, k in zip(share, u, strict=True)]
    return [size * x / sum(lacking) for x in lacking]


def ocba_shares(mean, s1, u, m):
    order = sorted(range(len(mean)), key=lambda i: (-mean[i], i))
    h, low = order[m - 1], order[m]
    se = [s / math.sqrt(k) for s, k in zip(s1, u, strict=True)]
    c = (se[low] * mean[h] + se[h] * mean[low]) / (se[h] + se[low])
    raw = [(s / (p - c)) ** 2 for s, p in zip(s1, mean, strict=True)]
    return [x / sum(raw) for x in raw], c
