"""Permutation tests that stop early, slowly: exact fractions, every candidate, sorted p-values."""

import math
from fractions import Fraction


def mixture(count, read):
    """Probability of a sequence with so many ones by the Krichevsky-Trofimov rule, factor by factor."""
    q = Fraction(1)
    for i in range(count):
        q *= Fraction(2 * i + 1, 2 * (i + 1))
    for i in range(read - count):
        q *= Fraction(2 * i + 1, 2 * (count + i + 1))
    return q


def likelihood(count, read, total, k):
    """Probability of one sequence of `read` draws without replacement with `count` ones, if `total` hold k ones."""
    if not count <= k <= total - (read - count):
        return Fraction(0)
    p, ones, left = Fraction(1), k, total
    for i in range(read):
        is_one = i < count
        p *= Fraction(ones if is_one else left - ones, left)
        ones, left = ones - is_one, left - 1
    return p


def candidates(count, read, total, risk):
    """The numbers of ones that the wealth has not ruled out: those with wealth below 1 / risk."""
    q = mixture(count, read)
    return [k for k in range(total + 1) if risk * q < likelihood(count, read, total, k)]


def stepped_up(pvalues, level, correction):
    """Indices that the correction rejects."""
    n = len(pvalues)
    if correction != "bh":
        return {i for i, p in enumerate(pvalues) if p <= (level / n if correction else level)}
    order = sorted(range(n), key=lambda i: pvalues[i])
    last = max((k for k in range(1, n + 1) if pvalues[order[k - 1]] <= level * k / n), default=0)
    return set(order[:last])


def decide(indicators, total, alpha, risk, correction):
    """Decisions and numbers of resamples; indicators of shape (sides, resamples, hypotheses) as nested lists."""
    sides, n = len(indicators), len(indicators[0][0])
    alpha, risk = Fraction(str(alpha)), Fraction(str(risk))
    words, used, read, look = [0] * n, [0] * n, 0, min(16, total)
    while not all(words):
        low, high = [], []
        for j in range(n):
            if words[j]:
                low.append(Fraction(0) if words[j] > 0 else Fraction(2))
                high.append(low[-1])
                continue
            found = []
            for side in indicators:
                count = sum(row[j] for row in side[:look])
                found.append(candidates(count, look, total, risk / (n * sides)))
            low.append(min(1, sides * min(Fraction(kept[0] + 1, total + 1) for kept in found)))
            high.append(min(1, sides * min(Fraction(kept[-1] + 1, total + 1) for kept in found)))
            used[j] = look
        sure = stepped_up(high, alpha - risk, correction)
        possible = stepped_up(low, alpha - risk, correction)
        words = [1 if j in sure else -1 if j not in possible else 0 for j in range(n)]
        read, look = look, min(total, look + max(16, look // 8))
    return words, used, read


def reference(indicators, alpha, risk, correction):
    """Decisions by all resamples."""
    sides, total = len(indicators), len(indicators[0])
    counts = [min(sum(row[j] for row in side) for side in indicators) for j in range(len(indicators[0][0]))]
    pvalues = [min(1, sides * Fraction(count + 1, total + 1)) for count in counts]
    kept = stepped_up(pvalues, Fraction(str(alpha)) - Fraction(str(risk)), correction)
    return [1 if j in kept else -1 for j in range(len(pvalues))]


def log(x):
    return math.log(x.numerator) - math.log(x.denominator)
