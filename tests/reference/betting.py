"""Plain twin of _betting.pxd: one bettor at a time, in logarithms, nothing rescaled."""

import math


def bettors(n_rows):
    """Gaps and weights of Waudby-Smith & Ramdas's gambler on the sizes 16, 64, 256, ... < n_rows."""
    sizes = []
    while len(sizes) < 24 and 16 * 4 ** len(sizes) < n_rows:
        sizes.append(16 * 4 ** len(sizes))
    total = sum(size**0.4 for size in sizes)
    gaps = [math.sqrt(2 * math.log(1 / 0.01) * (1 / size - 1 / n_rows)) for size in sizes]
    return gaps, [size**0.4 / total for size in sizes]


def wealth(rewards, n_rows, low, sizes_up_to=None):
    """Log wealth after each reward, its largest value so far (at least 0), and whether mean <= 0 is impossible."""
    gaps, weights = bettors(n_rows if sizes_up_to is None else sizes_up_to)
    logs = [math.log(weight) for weight in weights]
    seen, path, peak, impossible = [], [], 0.0, False
    for reward in rewards:
        mean = -math.fsum(seen) / (n_rows - len(seen))
        room = mean - low
        slack = 1e-9 * max([abs(low), *map(abs, seen)])
        impossible = impossible or room < -slack
        if len(seen) >= 8 and room > slack:
            centre = math.fsum(seen) / len(seen)
            std = math.sqrt(math.fsum((x - centre) ** 2 for x in seen) / len(seen))
            if std <= 1e-12 * max([abs(low), *map(abs, seen)]):
                std = room / math.sqrt(len(seen))
            for k, gap in enumerate(gaps):
                bet = min(gap / std * n_rows / (n_rows - len(seen)), 0.9 / room)
                logs[k] += math.log1p(bet * (reward - mean))
        seen.append(reward)
        top = max(logs, default=0.0)
        path.append(top + math.log(math.fsum(math.exp(value - top) for value in logs)) if logs else 0.0)
        peak = max(peak, path[-1])
    if len(seen) < n_rows:
        room = -math.fsum(seen) / (n_rows - len(seen)) - low
        impossible = impossible or room < -1e-9 * max([abs(low), *map(abs, seen)])
    return path, peak, impossible
