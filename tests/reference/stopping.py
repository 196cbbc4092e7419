"""Rules that stop a stream, as printed: one reward at a time, textbook moments.

NAS, EBStop and EBGStop: Mnih, Szepesvari & Audibert (2008), Algorithms 1 to 3. The stopping rule algorithm and AA:
Dagum, Karp, Luby & Ross (2000).

Each returns (rewards used, estimate, bracket), with None for the estimate if the rewards ran out first.
"""

import math


def welford(x):
    """Yield t, mean and standard deviation (divisor t) after each reward."""
    mean = m2 = 0.0
    for t, v in enumerate(x, 1):
        step = v - mean
        mean += step / t
        m2 += step * (v - mean)
        yield t, mean, math.sqrt(max(m2, 0.0) / t)


def nas(x, epsilon, delta, span=1.0, two_sided=True):
    mean = alpha = math.nan
    for t, mean, _ in welford(x):
        alpha = span * math.sqrt(math.log((2 if two_sided else 1) * t * (t + 1) / delta) / (2 * t))
        if abs(mean) >= alpha * (1 + 1 / epsilon):
            return t, mean, (mean - alpha, mean + alpha)
    return len(x), None, (mean - alpha, mean + alpha)


def geometric_nas(x, epsilon, delta, span=1.0, beta=1.5, two_sided=True):
    k = 1
    for t, mean, _ in welford(x):
        while math.floor(beta ** (k - 1)) == t:
            alpha = span * math.sqrt(math.log((2 if two_sided else 1) * k * (k + 1) / delta) / (2 * t))
            if abs(mean) >= alpha * (1 + 1 / epsilon):
                return t, mean, None
            k += 1
    return len(x), None, None


def shares(spending, delta, power=1.1):
    """The share of delta number k, as a function."""
    if spending == "telescoping":
        return lambda k: delta / (k * (k + 1))
    return lambda k: delta * (power - 1) / power / k**power


def _relative(low, high, epsilon):
    return (1 + epsilon) * low >= (1 - epsilon) * high


def bernstein(x, epsilon, delta, span=1.0, spending="poly", power=1.1, beta=None, start=(0.0, math.inf), floor=-1.0):
    """EBStop, and EBGStop if `beta` is given."""
    low, high = start
    share = shares(spending, delta, power)
    k = 0
    for t, mean, std in welford(x):
        if t == 1:
            continue
        if beta is None:
            inner = math.log(3 / share(t))
        else:
            while t > math.floor(beta**k):
                k += 1
            alpha = math.floor(beta**k) / math.floor(beta ** (k - 1))
            inner = alpha * math.log(3 / share(k))
        c = std * math.sqrt(2 * inner / t) + 3 * span * inner / t
        low, high = max(low, abs(mean) - c), min(high, abs(mean) + c)
        if low > high:
            return t, None, (low, high)
        if _relative(low, high, epsilon):
            return t, math.copysign(((1 + epsilon) * low + (1 - epsilon) * high) / 2, mean), (low, high)
        if high <= floor:
            return t, 0.0, (low, high)
    return len(x), None, (low, high)


def bernstein_signed(x, delta, support, ends, cap=None, beta=1.1, power=1.1):
    """The same with a bracket of the mean itself, until `ends(low, high)` gives an estimate."""
    low, high = support
    span = high - low
    share = shares("poly", delta if cap is None else delta / 2, power)
    k = 0
    for t, mean, std in welford(x):
        if t > 1:
            while t > math.floor(beta**k):
                k += 1
            inner = math.floor(beta**k) / math.floor(beta ** (k - 1)) * math.log(3 / share(k))
            c = std * math.sqrt(2 * inner / t) + 3 * span * inner / t
            low, high = max(low, mean - c), min(high, mean + c)
        if t == cap:
            c = span * math.sqrt(math.log(4 / delta) / (2 * t))
            low, high = max(low, mean - c), min(high, mean + c)
        answer = ends(low, high)
        if answer is not None:
            return t, answer, (low, high)
    return len(x), None, (low, high)


def upsilon(epsilon, delta):
    return 4 * (math.e - 2) * math.log(2 / delta) / epsilon**2


def upsilon_1(epsilon, delta):
    return 1 + (1 + epsilon) * upsilon(epsilon, delta)


def upsilon_2(epsilon, delta):
    root = math.sqrt(epsilon)
    return 2 * (1 + root) * (1 + 2 * root) * (1 + math.log(1.5) / math.log(2 / delta)) * upsilon(epsilon, delta)


def sra(x, epsilon, delta, high=1.0):
    wanted, n, total = upsilon_1(epsilon, delta), 0, 0.0
    while total < wanted:
        if n == len(x):
            return n, None, None
        total += x[n] / high
        n += 1
    return n, wanted / n * high, None


def aa(x, epsilon, delta, high=1.0):
    rough = min(0.5, math.sqrt(epsilon))
    n, mean, _ = sra(x, rough, delta / 3, high)
    if mean is None:
        return n, None, None
    mean /= high
    pairs = math.ceil(upsilon_2(epsilon, delta) * epsilon / mean)
    if n + 2 * pairs > len(x):
        return len(x), None, None
    total = math.fsum((x[n + 2 * i] - x[n + 2 * i + 1]) ** 2 / 2 for i in range(pairs)) / high**2
    n += 2 * pairs
    size = math.ceil(upsilon_2(epsilon, delta) * max(total / pairs, epsilon * mean) / mean**2)
    if n + size > len(x):
        return len(x), None, None
    return n + size, math.fsum(x[n : n + size]) / size, None
