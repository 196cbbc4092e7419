"""LUCB by its paper's lines: everything computed anew in each round, nothing clever."""

import math

import numpy as np
from scipy import integrate, optimize, special


def kl(p, q):
    """Divergence of Bernoulli(q) from Bernoulli(p)."""
    return special.rel_entr(p, q) + special.rel_entr(1 - p, 1 - q)


def kl_bounds(p, level):
    """Ends of {q: kl(p, q) <= level}, by root finding."""
    low = 0.0 if kl(p, 0.0) <= level else optimize.brentq(lambda q: kl(p, q) - level, 0.0, p, xtol=1e-15, rtol=1e-14)
    high = 1.0 if kl(p, 1.0) <= level else optimize.brentq(lambda q: kl(p, q) - level, p, 1.0, xtol=1e-15, rtol=1e-14)
    return low, high


def rho_for(v_best, log_inv_alpha):
    twice = 2.0 * (log_inv_alpha - math.log(2.0))
    return v_best / (twice + math.log1p(twice))


def log_gamma_mixture(s, v, rho):
    """Howard et al. (2021), Prop. 9, as printed, with c = 1."""
    r, k, z = rho, v + rho, s + v
    return (
        r * math.log(r) - special.gammaln(r) - math.log(special.gammainc(r, r)) + special.gammaln(k)
        + math.log(special.gammainc(k, z + r)) - k * math.log(z + r) + z
    )


def log_gamma_mixture_by_integration(s, v, rho):
    """Integral over l in [0, 1) of exp(l s - v psi(l)) times the density that the closed form comes from."""

    def log_density(at):        # of l: (1 - l)^(rho - 1) exp(rho l), up to its constant
        return (rho - 1.0) * math.log1p(-at) + rho * at

    def exponent(at):
        return at * s - v * (-math.log1p(-at) - at)

    grid = np.linspace(0, 1, 20001)[:-1]
    top = max(log_density(a) + exponent(a) for a in grid)
    spot = grid[int(np.argmax([log_density(a) + exponent(a) for a in grid]))]
    points = sorted({min(max(spot + d, 0.0), 1.0) for d in (-0.1, -0.01, 0.0, 0.01, 0.1)})
    over = integrate.quad(lambda a: math.exp(log_density(a) + exponent(a) - top), 0, 1, points=points, limit=500)[0]
    under = integrate.quad(lambda a: math.exp(log_density(a)), 0, 1, limit=500)[0]
    return top + math.log(over) - math.log(under)


def log_mean_of_mixtures(s, v, scales, log_inv_alpha):
    """Of mixtures tuned for each squared error in `scales`, pairs (squared error, weight)."""
    total = sum(weight for _, weight in scales)
    terms = [log_gamma_mixture(s, v, rho_for(v_best, log_inv_alpha)) + math.log(weight / total)
             for v_best, weight in scales]
    return special.logsumexp(terms)


def normal_mixture(n, rho, log_inv_alpha):
    """Half-width of the one-sided normal mixture, Howard et al. (2021), Prop. 6, as printed: by root finding."""
    v = n / 4
    return optimize.brentq(
        lambda s: math.log(2) + 0.5 * math.log(rho / (v + rho)) + s * s / (2 * (v + rho))
        + special.log_ndtr(s / math.sqrt(v + rho)) - log_inv_alpha, 0.0, 100 * (n + rho + log_inv_alpha)) / n


def half_width(bound, n, v, scales, rounds, log_inv_alpha):
    """Half-width for rewards in [0, 1], one line per formula."""
    alpha = math.exp(-log_inv_alpha)
    rho = rho_for(scales[0][0], log_inv_alpha)
    if bound == "eb-mix":
        return optimize.brentq(
            lambda s: log_mean_of_mixtures(s, v, scales, log_inv_alpha) - log_inv_alpha, 1e-12,
            10 * (math.sqrt(v + rho) + 1) * (log_inv_alpha + 5), xtol=1e-13, rtol=1e-14) / n
    if bound == "hoeffding-mix":
        half = math.log(1 / (2 * alpha))
        level = half - math.log(0.5 * math.erfc(-math.sqrt(half)))
        return math.sqrt((n / 4 + rho) * (math.log(1 + n / 4 / rho) + 2 * level)) / n
    return math.sqrt(math.log(5 * rounds**4 / (4 * alpha)) / (2 * n))


def lucb(pull, low, high, n_best, epsilon, alphas, bound, scales, batch=0, max_pulls=math.inf, widths=half_width):
    """Run the rule; returns (chosen, list of (arm, count) in order, why it stopped, means, pulls).

    `pull(arm, count)` gives the rewards that came of so many pulls; `alphas` are those of lower and upper bounds:
    delta / n each, but for "kl-easy" delta as it is. `scales` are those of the mixtures. Bounds that widen with the
    rounds are taken at the next point of the grid t <- max(t + 1, ceil(1.02 t)).
    """
    n = len(low)
    made, rewards = [], [[] for _ in range(n)]
    error = np.zeros(n)
    means = (np.asarray(low) + np.asarray(high)) / 2.0
    logs = [math.log(1 / a) for a in alphas]

    def take(i, count):
        for x in pull(i, count):        # each is predicted by the mean before it
            rewards[i].append(x)
            step = x - means[i]
            error[i] += step**2
            means[i] = x if len(rewards[i]) == 1 else means[i] + step / len(rewards[i])
        made.append((i, count))

    def pulls():
        return [sum(count for arm, count in made if arm == i) for i in range(n)]

    while not all(rewards):
        for i in range(n):
            if not rewards[i]:
                take(i, 1)
    rounds = grid = 1
    while True:
        order = sorted(range(n), key=lambda i: (-means[i], i))
        top, rest = order[:n_best], order[n_best:]
        ends = {}
        for i in range(n):
            k = 0 if i in top else 1
            span = high[i] - low[i]
            if bound.startswith("kl"):
                x = math.log(405.5 * grid**1.1) + logs[k]
                level = x + math.log(x) if bound == "kl" else math.log(1 + math.log(grid)) + logs[k]
                p = min(max((means[i] - low[i]) / span, 0.0), 1.0)
                ends[i] = low[i] + span * kl_bounds(p, level / len(rewards[i]))[k]
            else:
                w = span * widths(bound, len(rewards[i]), error[i] / span**2, scales, grid, logs[k])
                ends[i] = means[i] - w if k == 0 else means[i] + w
        h = min(top, key=lambda i: (ends[i], -i))
        j = max(rest, key=lambda i: (ends[i], -i))
        if ends[j] - ends[h] < epsilon:
            why = "bound" if ends[j] - ends[h] < 0.0 else "epsilon"
            return set(top), made, why, means, pulls()
        count = batch or max(1, min(len(rewards[h]), len(rewards[j])) // 100)
        if sum(c for _, c in made) + 2 * count > max_pulls:
            return set(top), made, "max_pulls", means, pulls()
        take(h, count)
        take(j, count)
        rounds += count
        while grid < rounds:
            grid = max(grid + 1, math.ceil(1.02 * grid))


def sar(pull, n, n_best, budget):
    """Successive accepts and rejects, Bubeck, Wang & Viswanathan (2013), Fig. 2; returns (accepted, pulls)."""
    total = 0.5 + sum(1 / i for i in range(2, n + 1))
    active, accepted, left = list(range(n)), [], n_best
    means, pulls = np.zeros(n), np.zeros(n, int)
    for k in range(1, n):
        if left in (0, len(active)):
            break
        wanted = math.ceil((budget - n) / (total * (n + 1 - k)))
        for i in active:
            for x in pull(i, max(wanted - pulls[i], 0)):
                pulls[i] += 1
                means[i] += (x - means[i]) / pulls[i]
        order = sorted(active, key=lambda i: (-means[i], i))
        up = means[order[0]] - means[order[left]]
        down = means[order[left - 1]] - means[order[-1]]
        if up >= down:
            accepted.append(order[0])
            active.remove(order[0])
            left -= 1
        else:
            active.remove(order[-1])
    order = sorted(active, key=lambda i: (-means[i], i))
    return sorted(accepted + order[:left]), pulls
