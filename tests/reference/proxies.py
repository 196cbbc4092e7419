"""Adjusted rewards by a proxy: every sum anew for every reward."""

import numpy as np


def adjusted(y, p, mean, most, n_rows, margin):
    """Adjusted rewards and the coefficients used, from rewards and scores in the order in which they were read."""
    q, c, following, found, used = p - mean, 0.0, 8, [], []

    def shift(c, t):
        return 0.0 if n_rows is None else ((y[:t] - c * q[:t]).sum() - sum(found)) / (n_rows - t)

    for t in range(len(y)):
        if t >= following:
            following = t + max(1, t // 10)
            if q[:t].std() > 0:
                new = min(max(np.cov(q[:t], y[:t], bias=True)[0, 1] / q[:t].var() * t / (t + 8), 0.0), most)
                c = new if abs(shift(new, t)) <= margin else c
        found.append(y[t] - c * q[t] + shift(c, t))
        used.append(c)
    return np.array(found), np.array(used)
