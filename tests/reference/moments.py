"""Plain twins of _simd.c, _moments.pxd and moments.pyx, and the textbook formulas they must agree with."""

import math

LANES, BLOCK, FEW = 32, 1024, 4


# Textbook


def two_pass(x, ddof=1):
    """Mean and variance of a list of floats with exactly rounded sums."""
    mean = math.fsum(x) / len(x)
    left = math.fsum(v - mean for v in x)
    return mean, (math.fsum((v - mean) ** 2 for v in x) - left * left / len(x)) / (len(x) - ddof)


def welford(x):
    """Count, mean and sum of squared deviations; Welford (1962)."""
    n, mean, m2 = 0, 0.0, 0.0
    for v in x:
        n += 1
        step = v - mean
        mean += step / n
        m2 += step * (v - mean)
    return n, mean, m2


def chan(a, b):
    """Merge two triples (count, mean, sum of squared deviations); Chan, Golub & LeVeque (1979)."""
    n = a[0] + b[0]
    if n == 0:
        return 0, 0.0, 0.0
    step = b[1] - a[1]
    return n, a[1] + step * b[0] / n, a[2] + b[2] + step * step * a[0] * b[0] / n


def four_moments(x):
    """Count, mean and sums of the second, third and fourth powers of deviations, with exactly rounded sums."""
    n, mean = len(x), math.fsum(x) / len(x)
    return n, mean, *(math.fsum((v - mean) ** power for v in x) for power in (2, 3, 4))


# The compiled order of operations: these agree to the last bit.


def lane_sum(x):
    """Lane l adds x[l], x[l + LANES], ...; then the upper half of the lanes is added to the lower until one is left."""
    lanes = [0.0] * LANES
    for i, v in enumerate(x):
        lanes[i % LANES] += v
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [lanes[k] + lanes[k + half] for k in range(half)]
    return lanes[0]


def centred(x):
    """The mean as a pair, and the sum of squared deviations, in two passes."""
    mean = lane_sum(x) / len(x)
    error = lane_sum([v - mean for v in x])
    low = error / len(x)
    return mean, low, max(lane_sum([(v - mean) * (v - mean) for v in x]) - error * low, 0.0)


def two_sum(a, b):
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


class Running:
    """One arm of RunningMoments."""

    def __init__(self):
        self.n, self.mean, self.mean_low, self.m2, self.m2_low = 0, 0.0, 0.0, 0.0, 0.0

    def update(self, x):
        step = (x - self.mean) - self.mean_low
        self.n += 1
        self.mean, low = two_sum(self.mean, step / self.n)
        self.mean_low += low
        self.m2, low = two_sum(self.m2, step * ((x - self.mean) - self.mean_low))
        self.m2_low += low

    def _add(self, n, mean, mean_low, m2, m2_low):
        total = float(self.n) + n
        step = (mean - self.mean) + (mean_low - self.mean_low)
        self.m2, low = two_sum(self.m2, m2)
        self.m2_low += low + m2_low
        self.m2, low = two_sum(self.m2, step * (step * (self.n * (n / total))))
        self.m2_low += low
        if self.n >= n:
            self.mean, low = two_sum(self.mean, step * (n / total))
            self.mean_low += low
        else:
            self.mean, self.mean_low = two_sum(mean, mean_low - step * (self.n / total))
        self.n += n

    def merge(self, other):
        if other.n:
            self._add(other.n, other.mean, other.mean_low, other.m2, other.m2_low)

    def update_many(self, x):
        fresh = Running()
        for start in range(0, len(x), BLOCK):
            block = x[start : start + BLOCK]
            if len(block) > FEW:
                fresh._add(len(block), *centred(block), 0.0)
            else:
                for v in block:
                    fresh.update(v)
        self.merge(fresh)

    @property
    def state(self):
        return [self.mean, self.mean_low, self.m2, self.m2_low]
