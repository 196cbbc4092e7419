"""Adjusted rewards by a proxy: every sum anew for every reward."""

import numpy as np


def best_part(epsilon, cap, range_of_q, n_rows):
    """Which eighth of a coefficient needs the fewest rewards in [0, 1] for an absolute accuracy, as a function."""

    def best(y, q, c):
        t, found = len(y), []
        mean, wanted = (y.sum() + 0.5) / (t + 1), epsilon * n_rows / (n_rows - t)
        for part in np.arange(9) / 8 * c:
            variance = (t * (y - part * q).var() + 0.125) / (t + 0.5)
            needed = 0.0
            for end, beyond in ((mean, part * range_of_q[1]), (1 - mean, -part * range_of_q[0])):
                bet = min(wanted / (variance + wanted**2), cap / (max(end - wanted, end / 2) + beyond))
                needed += 1 / (np.log(1 + bet * wanted) - variance * (bet / (1 + bet * wanted)) ** 2 / 2)
            found.append(needed)
        return np.argmin(found) / 8 * c

    return best


def adjusted(y, p, mean, most, n_rows, margin, part=lambda y, q, c: c):
    """Adjusted rewards and the coefficients used, from rewards and scores in the order in which they were read."""
    q, c, following, found, used = p - mean, 0.0, 8, [], []

    def shift(c, t):
        return 0.0 if n_rows is None else ((y[:t] - c * q[:t]).sum() - sum(found)) / (n_rows - t)

    for t in range(len(y)):
        if t >= following:
            following = t + max(1, t // 10)
            if np.ptp(q[:t]) > 0:
                new = min(max(np.cov(q[:t], y[:t], bias=True)[0, 1] / q[:t].var() * t / (t + 8), 0.0), most)
                new = part(y[:t], q[:t], new)
                c = new if abs(shift(new, t)) <= margin else c
        found.append(y[t] - c * q[t] + shift(c, t))
        used.append(c)
    return np.array(found), np.array(used)
