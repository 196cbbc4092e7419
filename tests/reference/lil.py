"""Twins of the keyed order and of lil'UCB in plain Python: one line per line of the paper."""

import functools
import math

import numpy as np

from reference import bounds

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(z):
    z = z * 0xBF58476D1CE4E5B9 & MASK
    z ^= z >> 32
    return z * 0x94D049BB133111EB & MASK


@functools.lru_cache(1 << 16)
def keyed_order(n, keys, i):
    """Position i of the order of [0, n) that belongs to two 64-bit keys."""
    bits = max(2, (n - 1).bit_length())
    low_bits = (bits + 1) // 2
    n_high = ((n - 1) >> low_bits) + 1
    rounds = 12 if bits <= 3 else 8 if bits <= 5 else 6 if bits <= 9 else 4 if bits <= 16 else 3
    while n > 1:
        high, low = divmod(i, 1 << low_bits)
        for k in range(rounds):
            low ^= mix(high + keys[0] + k * GOLDEN & MASK) >> (64 - low_bits)
            high = (high + ((mix(low + keys[1] + k * GOLDEN & MASK) >> 32) * n_high >> 32)) % n_high
        i = (high << low_bits) + low
        if i < n:
            break
    return i


def draw_keys(rng, n_arms):
    return [(int(rng.bit_generator.random_raw()), int(rng.bit_generator.random_raw())) for _ in range(n_arms)]


def constants(setting, delta, n_arms):
    """beta, epsilon, lambda, delta_0."""
    if setting == "heuristic":
        return 0.5, 0.0, 1 + 10 / n_arms, delta / 5
    c = (2 + 0.01) / 0.01 * (1 / math.log(1.01)) ** 1.01
    return 1.0, 0.01, 9.0, (math.sqrt(1 + delta) - 1) ** 2 / (4 * c)


def bonus(t, n_rows, sigma, beta, epsilon, delta_0):
    if t == n_rows:
        return 0.0
    if t == 0 or (1 + epsilon) * t <= math.exp(delta_0):
        return math.inf
    inner = math.log(math.log((1 + epsilon) * t) / delta_0)
    return (1 + beta) * (1 + math.sqrt(epsilon)) * math.sqrt(2 * sigma**2 * (1 + epsilon) * inner / t)


def lil_ucb(values, sigma, delta, setting, rng, offset=None):
    """Stepwise: the pulls as (arm, row), the arm returned, and why."""
    n_rows, n_arms = values.shape
    offset = np.zeros(n_arms) if offset is None else offset
    keys = draw_keys(rng, n_arms)
    running = [i for i in range(n_arms) if offset[i] > -math.inf]
    beta, epsilon, patience, delta_0 = constants(setting, delta, len(running))
    seen = {i: [] for i in running}
    pulls = []

    def upper(i):
        t = len(seen[i])
        return math.fsum(seen[i]) / t + offset[i] / n_rows + bonus(t, n_rows, sigma, beta, epsilon, delta_0)

    def pull(i):
        row = keyed_order(n_rows, keys[i], len(seen[i]))
        pulls.append((i, row))
        seen[i].append(values[row, i])

    for i in running:
        pull(i)
    uppers = {i: upper(i) for i in running}
    while True:
        i = max(running, key=lambda k: (uppers[k], -k))
        if len(seen[i]) == n_rows:
            return pulls, i, "exact"
        pull(i)
        uppers[i] = upper(i)
        top = max(running, key=lambda k: (uppers[k], -k))
        if len(seen[top]) == n_rows:
            return pulls, top, "exact"
        if len(seen[i]) >= 1 + patience * (len(pulls) - len(seen[i])):
            return pulls, i, "bound"


def lil_ucb_by_sorting(values, sigma, delta, setting, rng):
    """The same race from its whole history: pulls come in decreasing order of each arm's running minimum."""
    n_rows, n_arms = values.shape
    keys = draw_keys(rng, n_arms)
    beta, epsilon, patience, delta_0 = constants(setting, delta, n_arms)
    bonuses = np.array([bonus(t, n_rows, sigma, beta, epsilon, delta_0) for t in range(1, n_rows + 1)])
    items = []
    for i in range(n_arms):
        rows = [keyed_order(n_rows, keys[i], t) for t in range(n_rows)]
        index = values[rows, i].cumsum() / np.arange(1, n_rows + 1) + bonuses
        lowest = np.minimum.accumulate(index)
        items += [(-math.inf, i, -1)] + [(-lowest[t], i, t) for t in range(n_rows)]
    counts = np.zeros(n_arms, int)
    for _, i, t in sorted(items):
        if t == n_rows - 1:
            return counts, i, "exact"
        counts[i] += 1
        if counts.min() > 0 and counts[i] >= 1 + patience * (counts.sum() - counts[i]):
            return counts, i, "bound"


def looks(size, first):
    """Rows of one arm at the six looks."""
    if size <= first:
        return [size] * 6
    rest = size - first
    return [first + min(max(rest * tenths // 10, k), rest) for k, tenths in enumerate([0, 1, 2, 4, 8, 10])]


def sum_half_width(spread, x, side, size, quantile):
    """Half-width of a sum of `size` rewards by the normal rule, of which x were read, towards the tail of a side."""
    if not 0.0 < spread < math.inf:
        return math.sqrt(spread)
    skewness = side * bounds.sample_skewness(x)
    return size * bounds.tail_half_width(math.sqrt(spread) / size, x.std(), skewness, len(x), size, quantile)


def tail_unseen(x, side, size, gap):
    """Whether a lead of `gap` between sums waits for more of the tail of an arm of which x were read."""
    if len(x) == size:
        return False
    return bounds.tail_rows(x, side, x.std() * side * bounds.sample_skewness(x), gap / size) > len(x)


def race_unequal(vectors, offset, delta, rng, first=10, kind="sidak", student=False, temperature=1.0):
    """Algorithm 1 with the corrected eq. 26: (best, rows read of each arm, looks taken)."""
    sizes = [len(v) for v in vectors]
    keys = draw_keys(rng, len(sizes))
    active = [i for i, c in enumerate(offset) if c > -math.inf]
    pulls = [0] * len(sizes)
    if len(active) == 1:
        return active[0], pulls, 0
    share = delta / (len(active) - 1)
    tail = share / 5 if kind == "union" else 1 - (1 - share) ** (1 / 5)
    for k in range(6):
        total, spread, seen, quantile = {}, {}, {}, {}
        for i in active:
            n = pulls[i] = looks(sizes[i], first)[k]
            x = seen[i] = np.array([vectors[i][keyed_order(sizes[i], keys[i], t)] for t in range(n)]) / temperature
            total[i] = offset[i] + sizes[i] * (math.fsum(x) / n if n else 0.0)
            if n == sizes[i]:
                spread[i] = 0.0
            elif np.ptp(x) <= 1e-12 * abs(x).max():
                spread[i] = math.inf
            else:
                q = quantile[i] = bounds.student_isf(tail, n - 1) if student else bounds.normal_isf(tail)
                v = (1 / n) * (1 - (n - 1) / (sizes[i] - 1))
                spread[i] = q**2 * sizes[i] ** 2 * x.var(ddof=1 if student else 0) * v
        leader = max(active, key=lambda i: (total[i], -i))
        if all(pulls[i] == sizes[i] for i in active):
            return leader, pulls, k + 1

        def beaten(i, top=leader, total=total, spread=spread, seen=seen, quantile=quantile):
            gap = total[top] - total[i]
            if gap <= math.sqrt(spread[top] + spread[i]):       # tails only widen
                return False
            widths = [sum_half_width(spread[j], seen[j], side, sizes[j], quantile.get(j))
                      for j, side in ((top, -1), (i, 1))]
            unseen = tail_unseen(seen[top], -1, sizes[top], gap) or tail_unseen(seen[i], 1, sizes[i], gap)
            return gap > math.hypot(*widths) and not unseen

        active = [i for i in active if i == leader or not beaten(i)]
        if len(active) == 1:
            return leader, pulls, k + 1


def sum_interval(x, size, n_arms, delta, bound, *, constant=0.0, temperature=1.0, student=False, support=None):
    """Interval of an arm's sum from the rewards x of a look: delta is shared among arms, sides and five looks."""
    from scipy import stats

    n, share, ends = len(x), delta / (2 * n_arms * 5), support or (-math.inf, math.inf)
    total, read = constant + size * np.mean(x) / temperature, constant + math.fsum(x) / temperature
    if n == size:
        return read, read
    if bound == "normal":
        quantile = stats.t.isf(share, n - 1) if student else stats.norm.isf(share)
        width = bounds.normal(n, size, np.std(x, ddof=1 if student else 0), quantile)
    elif bound == "hoeffding-serfling":
        width = bounds.hoeffding_serfling(n, size, share, ends)
    else:
        widths = {"serfling": bounds.serfling, "empirical-bernstein-serfling": bounds.empirical_bernstein_serfling}
        width = widths[bound](n, size, np.std(x), share, ends)
    width *= size / temperature
    low, high = (read + (size - n) * end / temperature for end in ends)
    return max(total - width, low), min(total + width, high)


def race_unequal_adaptive(vectors, offset, delta, rng, first=10, kind="sidak", student=False, temperature=1.0,
                          support=(-math.inf, math.inf), shared=0.0):
    """One arm at a time: (best, rows read of each arm, looks taken). Rewards must differ within each arm."""
    low, high = support[0] / temperature, support[1] / temperature
    arms = range(len(vectors))
    sizes = [len(v) for v in vectors]
    keys = draw_keys(rng, len(sizes))
    level, pulls, n_looks = [0] * len(sizes), [0] * len(sizes), 0
    active = list(arms)
    if len(active) == 1:
        return active[0], pulls, 0
    share = delta / (len(active) - 1)
    tail = share / 35 if kind == "union" else 1 - (1 - share) ** (1 / 35)
    plan = [looks(n, first) for n in sizes]

    def v(i, n):
        return (1 / n) * (1 - (n - 1) / (sizes[i] - 1))

    while True:
        x = [np.array([vectors[i][keyed_order(sizes[i], keys[i], t)] for t in range(pulls[i])]) / temperature
             for i in arms]
        squares = [((xi - xi.mean()) ** 2).sum() if xi.size > 1 else 0.0 for xi in x]
        pooled = sum(squares) / max(sum(xi.size - 1 for xi in x if xi.size > 1), 1)
        total, spread, most, least, quantile = {}, {}, {}, {}, {}
        for i in active:
            n, read = pulls[i], math.fsum(x[i])
            most[i], least[i] = (offset[i] + read + ((sizes[i] - n) * limit if n < sizes[i] else 0.0)
                                 for limit in (high, low))
            if n or not sizes[i]:
                total[i] = offset[i] + sizes[i] * (read / n if n else 0.0)
                if n == sizes[i]:
                    spread[i] = 0.0
                else:
                    q = quantile[i] = bounds.student_isf(tail, n - 1) if student else bounds.normal_isf(tail)
                    variance = squares[i] / (n - 1 if student else n)
                    if shared:
                        variance = (squares[i] + shared * pooled) / (n - 1 + shared)
                    spread[i] = q**2 * sizes[i] ** 2 * variance * v(i, n)
        leader = max(total, key=lambda i: (total[i], -i)) if total else -1

        def width(i, side, x=x, spread=spread, quantile=quantile):
            return sum_half_width(spread[i], x[i], side, sizes[i], quantile.get(i))

        def out_of_reach(i, floor, x=x, total=total, most=most, least=least, top=leader):
            return most[i] < floor and (most[i] < least[top]
                                        or not tail_unseen(x[top], -1, sizes[top], total[top] - most[i]))

        def beaten(i, x=x, spread=spread, total=total, top=leader):
            gap = total[top] - total[i]
            if gap <= math.sqrt(spread[top] + spread[i]):       # tails only widen
                return False
            unseen = tail_unseen(x[top], -1, sizes[top], gap) or tail_unseen(x[i], 1, sizes[i], gap)
            return gap > math.hypot(width(top, -1), width(i, 1)) and not unseen

        if n_looks:
            if all(pulls[i] == sizes[i] for i in active):
                return leader, pulls, n_looks
            if leader >= 0:
                floor = max(least[leader], total[leader] - width(leader, -1))
                active = [i for i in active if i == leader or not (
                    (i in total and beaten(i)) or out_of_reach(i, floor)
                    or (pulls[i] == sizes[i] and pulls[leader] == sizes[leader]))]
            if len(active) == 1:
                return leader, pulls, n_looks
        elif leader >= 0:                               # arms without rows say something at once
            active = [i for i in active if i == leader or most[i] >= max(least[leader], total[leader])]
            if len(active) == 1:
                return leader, pulls, n_looks
        reach = {i: min(most[i], total[i] + math.sqrt(spread[i])) if i in total else most[i]
                 for i in active if i != leader}
        rival = max(reach, key=lambda i: (reach[i], -i))
        wanted = [i for i in reach if level[i] == 0 and reach[i] == math.inf]
        if rival not in wanted:
            one = rival
            if rival in total and leader >= 0 and pulls[leader] < sizes[leader]:
                gain = {}
                for i in (leader, rival):
                    n = plan[i][min(level[i], 5)]
                    gain[i] = spread[i] * (1 - v(i, n) / v(i, pulls[i])) / (n - pulls[i]) if n > pulls[i] else -1.0
                if gain[leader] >= gain[rival]:
                    one = leader
            wanted = [i for i in {*wanted, one} if pulls[i] < sizes[i]]
        for i in wanted:
            pulls[i] = plan[i][level[i]]
            level[i] += 1
        n_looks += 1
