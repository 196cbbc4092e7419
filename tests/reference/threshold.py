"""Plain twin of the race of one mean against a threshold, over a table in memory."""

import math
from types import SimpleNamespace

import numpy as np
from scipy import stats

from reference import betting, bounds
from reference.bounds import sample_skewness


def looks_of(schedule, n_rows, first_look, growth):
    looks, n = [], 0
    while n < n_rows:
        if n == 0:
            n = first_look
        elif schedule == "korattikara":
            n += first_look
        else:
            grown = growth * n
            n = max(n + 1, math.ceil(grown) if schedule == "bardenet" else math.floor(grown))
        looks.append(min(n, n_rows))
        n = looks[-1]
    return looks


def half_widths(bound, schedule, n_rows, looks, first_look, growth, delta, student, std, span,
                one_exit=True):
    """Half-width at each look before the last for a given standard deviation, 0 at the last."""
    out = []
    for k, n in enumerate(looks[:-1], start=1):
        if schedule == "korattikara":
            s = std * math.sqrt(n / (n - 1))
            out.append(bounds.student_isf(delta, n - 1) * s / math.sqrt(n) * math.sqrt(1 - (n - 1) / (n_rows - 1)))
        elif schedule == "bardenet":
            share = delta / (2 * k**2) / 2
            out.append(bounds.empirical_bernstein_serfling(n, n_rows, std, share, (0, span)))
        elif bound == "normal":
            quantile = bounds.normal_quantile(delta, n_rows, first_look, growth, one_exit)
            s = std
            if student:     # F^-1_{t, n-1}(Phi(B)), whose quotient has a standard deviation of divisor n - 1
                quantile, s = bounds.student_isf(stats.norm.sf(quantile), n - 1), std * math.sqrt(n / (n - 1))
            out.append(quantile * s * math.sqrt(bounds.variance_factor(n, n_rows)))
        elif bound == "betting":
            out.append(bettors_quantile(delta, n, n_rows) * std * math.sqrt(bounds.variance_factor(n, n_rows)))
        else:
            share = delta / (len(looks) - 1)
            hoeffding = bounds.hoeffding_serfling(n, n_rows, share, (0, span))
            if bound == "hoeffding-serfling":
                out.append(hoeffding)
            elif bound == "empirical-bernstein-serfling":
                out.append(bounds.empirical_bernstein_serfling(n, n_rows, std, share, (0, span)))
            else:
                out.append(bounds.serfling(n, n_rows, std, share, (0, span)))
    return [*out, 0.0]


def bettors_quantile(delta, n, sizes_up_to):
    """Standard errors at n rows from which on the bettor who is best there wins 1 / delta."""
    sizes = [16 * 4**j for j in range(24) if 16 * 4**j < sizes_up_to]
    _, weights = betting.bettors(sizes_up_to)
    nearest = max((j for j in range(len(sizes)) if j == 0 or 2 * sizes[j - 1] < n), default=None)
    return math.inf if nearest is None else math.sqrt(2 * (-math.log(delta) - math.log(weights[nearest])))


def held_back(x, n_rows, quantile):
    """What the guard adds to the half-width at m rows, over 1 / m - 1 / n_rows, after the sample x."""
    n = len(x)
    skewness = max(0.0, abs(sample_skewness(x)) - math.sqrt(6 / n))      # one standard error nearer to zero
    variance_of_variance = (((x - x.mean())**4).mean() / x.var()**2 - 1) / n
    if bounds.skewness_inflation(-skewness, n, n_rows, quantile) > 0.25 or variance_of_variance > 0.05:
        return 7 * ((x - x.mean())**4).sum() ** 0.25
    return 0.0


def kurtosis_of(x):
    x = x - x.mean()
    return (x**4).mean() / (x**2).mean() ** 2 if x.any() else 0.0


def carried_by(x):
    """Kurtosis of the rows x; 0 where few of them do not carry the spread, or where the others tell of it too."""
    apart = abs(np.diff(x)).mean() if len(x) > 1 else 0.0
    return kurtosis_of(x) if kurtosis_of(x) > 40 and 4 * x.var() > 8 * apart**2 else 0.0


def few_shown(x, past):
    """What the rows x show of the few that left the kurtosis `past`: "nothing", "too little" or "enough"."""
    if len(x) >= 5 * past:
        return "enough"
    if kurtosis_of(x) < math.sqrt(min(past, len(x))):
        return "nothing"
    return "too little" if len(x) / kurtosis_of(x) < 5 else "enough"


def decide(d, threshold, order, rng, *, bound, delta, schedule="geometric", first_look=50, growth=2.0, student=False,
           skewness_guard=None, support=None, advantage=1.0, past=0.0, n_arms=1):
    """Whether sum(d) > threshold, with rows in the order that `order` draws.

    `past` is the kurtosis that the decisions before left, None before the first; `answer.past` is what this one leaves.
    """
    few_known = past or 0.0
    if skewness_guard is None:
        skewness_guard = bound == "normal" and schedule == "geometric"
    n_rows = len(d)
    level = threshold / n_rows
    low, high = support or (-math.inf, math.inf)
    answer = SimpleNamespace(n_read=0, n_evaluated=0, n_looks=0, stopped_by="bound", skewed=False, constant=False,
                             past=past)
    if level < low or level >= high:
        answer.accepted = level < low
        return answer
    looks = looks_of(schedule, n_rows, min(first_look, n_rows), growth)

    def leave(rows):
        kept = max(carried_by(rows), few_known / 2) if bound == "normal" and skewness_guard else 0.0
        answer.past = kept if kept > 40 else 0.0
        return answer

    def full_pass(rows):
        total = math.fsum(d)
        answer.accepted, answer.stopped_by, answer.mean = total > threshold, "exact", total / n_rows
        answer.n_read = n_rows
        answer.n_evaluated += n_rows
        answer.n_looks += 1
        return leave(d if past != 0.0 or carried_by(rows) else rows)

    def look_at(k, rows):
        return next(j for j in range(k, len(looks)) if looks[j] >= rows or looks[j] == n_rows)

    due, remembers = 0, bound == "normal" and skewness_guard
    if past is None and remembers and advantage > 1 and looks[0] < n_rows and support is None:
        if n_rows * n_arms <= 65536:
            return full_pass(d)
        due = look_at(0, 4096)
    seen = []
    for k, n in enumerate(looks):
        if k < due:
            continue
        seen += [float(d[row]) for row in order.advance(rng, len(seen), n)]
        x = np.array(seen)
        answer.n_read = answer.n_evaluated = n
        answer.n_looks += 1
        answer.mean = x.mean()
        std, gap = x.std(), x.mean() - level
        known = std > 1e-12 * abs(x).max()
        if n == n_rows:
            answer.accepted, answer.stopped_by = bool(gap > 0), "exact"
            return leave(x)
        widths = half_widths(bound, schedule, n_rows, looks, first_look, growth, delta, student, std, high - low,
                             not skewness_guard)
        if bound == "normal" and known:
            quantile = widths[k] / std / math.sqrt(bounds.variance_factor(n, n_rows))
            if skewness_guard:
                held = held_back(x, n_rows, quantile)
                widths = [width + held * (1 / m - 1 / n_rows) for width, m in zip(widths, looks, strict=True)]
        shown = few_shown(x, few_known) if remembers else "enough"
        if bound == "betting":
            for side in (1, -1):
                least = low - level if side > 0 else level - high
                _, peak, impossible = betting.wealth(side * (x - level), n_rows, least)
                if (impossible or peak >= -math.log(delta)) and side * gap > 0:
                    answer.accepted = side > 0
                    return answer
        elif bound == "normal" and not known:
            answer.constant = answer.constant or answer.n_looks == 1
        elif abs(gap) > widths[k] and shown == "enough":
            if bound == "normal" and not skewness_guard:
                skewness = math.copysign(1, gap) * sample_skewness(x)
                shrunk = min(0.0, skewness + 2 * math.sqrt(6 / n))      # two standard errors nearer to zero
                answer.skewed = bounds.skewness_inflation(shrunk, n, n_rows, quantile) > 0.25
            answer.accepted = bool(gap > 0)
            return leave(x)
        due = look_at(k + 1, 5 * few_known) if shown == "nothing" else k + 1
        if advantage > 1 and advantage * looks[due] > 0.05 * n_rows:
            needed = n_rows
            if known:
                needed = next(look for look, width in zip(looks[k + 1:], widths[k + 1:], strict=True)
                              if width < abs(gap) or look == n_rows)
            dear = n_arms + 1 if remembers and (past != 0.0 or carried_by(x)) else 1    # a pass that takes moments
            if advantage * (max(needed, looks[due]) - n) > dear * n_rows:
                return full_pass(x)
    raise AssertionError("the last look reads every row")
