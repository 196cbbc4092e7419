"""Plain twin of _betting.pxd: one bettor at a time, in logarithms, nothing rescaled."""

import math

import numpy as np


def bettors(n_rows):
    """Gaps and weights of Waudby-Smith & Ramdas's gambler on the sizes 16, 64, 256, ... < n_rows."""
    sizes = []
    while len(sizes) < 24 and 16 * 4 ** len(sizes) < n_rows:
        sizes.append(16 * 4 ** len(sizes))
    total = sum(size**0.4 for size in sizes)
    gaps = [math.sqrt(2 * math.log(1 / 0.01) * (1 / size - 1 / n_rows)) for size in sizes]
    return gaps, [size**0.4 / total for size in sizes]


def wealth(rewards, n_rows, low, sizes_up_to=None, anew=None):
    """Log wealth after each reward, its largest value so far (at least 0), and whether mean <= 0 is impossible.

    `low` may be one number per reward. Then ``anew(n)`` gives the first n rewards as told when reward n is bet on, of
    which the spread is taken.
    """
    gaps, weights = bettors(n_rows if sizes_up_to is None else sizes_up_to)
    gaps, logs = np.array(gaps), np.log(weights)
    rewards = np.asarray(rewards, dtype=float)
    lows = np.broadcast_to(low, rewards.shape)
    path, peak, largest, impossible = [], 0.0, 0.0, False
    for n, (reward, low) in enumerate(zip(rewards, lows, strict=True)):
        seen, largest = rewards[:n], max(largest, abs(low))
        mean = -seen.sum() / (n_rows - n)
        room = mean - low
        slack = 1e-9 * largest
        impossible = impossible or room < -slack
        if n >= 8 and room > slack:
            std = (seen if anew is None else anew(n)).std()
            if std <= 1e-12 * largest:
                std = room / math.sqrt(n)
            bets = np.minimum(gaps / std * n_rows / (n_rows - n), 0.9 / room)
            logs += np.log1p(bets * (reward - mean))
        largest = max(largest, abs(reward))
        top = logs.max(initial=-math.inf)
        path.append(top + math.log(np.exp(logs - top).sum()) if len(logs) else 0.0)
        peak = max(peak, path[-1])
    if 0 < len(rewards) < n_rows:
        room = -rewards.sum() / (n_rows - len(rewards)) - low
        impossible = bool(impossible or room < -1e-9 * largest)
    return path, peak, impossible
