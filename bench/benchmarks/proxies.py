"""Dear rewards beside cheap scores of all rows: two arms of 20,000 rows, 100 tables of each kind, and means of one arm.

`track_` methods count the rewards that a race with a proxy reads over those of a race without, beside what an exact
coefficient would give, known beforehand, and beside a fixed coefficient of 1 in the hands of the user.
``python bench/benchmarks/proxies.py`` prints the table, and ``python bench/benchmarks/proxies.py means`` that of
`estimate_mean`.
"""

import functools
import sys

import numpy as np

import fastrace as fr

DELTA, SEEDS, N_ROWS = 0.05, 100, 20_000


def answers(rng, r, gap):
    """Right or wrong, and a judge who agrees with probability (1 + r) / 2."""
    y = (rng.random((N_ROWS, 2)) < 0.5 + gap * np.array([1, 0])) * 1.0
    return y, np.where(rng.random(y.shape) < (1 + r) / 2, y, 1 - y)


def marks(rng, r, gap):
    """Marks of standard deviation .12, and scores of another scale."""
    noise = rng.standard_normal((2, N_ROWS, 2))
    y = np.clip(0.5 + gap * np.array([1, 0]) + 0.12 * noise[0], 0, 1)
    return y, 3.0 * (r * noise[0] + np.sqrt(1 - r * r) * noise[1])


def rare(rng, r, gap):
    """Two in a hundred right, and scores that find a share r of them."""
    y = (rng.random((N_ROWS, 2)) < 0.02 + gap * np.array([1, 0])) * 1.0
    return y, np.where(rng.random(y.shape) < r, y, rng.random(y.shape) < 0.02)


def shared(rng, r, gap):
    """Marks of arms that gain on different rows, and one score per row that says on which."""
    p, noise = rng.random(N_ROWS), rng.standard_normal((N_ROWS, 2))
    along = np.sqrt(6.0) * (p - 0.5)[:, None] * np.array([1, -1])
    return np.clip(0.5 + gap * np.array([1, 0]) + 0.15 * (r * along + np.sqrt(1 - r * r) * noise), 0, 1), p


TABLES = {
    "answers, .1 apart": (answers, 0.1), "answers, .05 apart": (answers, 0.05), "marks, .02 apart": (marks, 0.02),
    "marks, .01 apart": (marks, 0.01), "rare, .02 apart": (rare, 0.02), "one score, .01 apart": (shared, 0.01),
}


def fixed(y, p, coefficient, rng):
    """A race of y - c (p - mean), for a coefficient that was chosen beforehand: a table that users make by hand."""
    p = p if p.ndim == 2 else p[:, None]
    moved = coefficient * (p - p.mean(axis=0))
    return fr.race(y - moved, DELTA, support=(-moved.max(axis=0), 1 - moved.min(axis=0)), cost=1.0, rng=rng)


@functools.lru_cache
def runs(table, r):
    """Rewards read, by way, over those of a plain race; correlation of differences; errors of the race with a proxy."""
    make, gap = TABLES[table]
    read, found, wrong = {"plain": 0, "proxy": 0, "exact": 0, "one": 0}, [], 0
    for seed in range(SEEDS):
        y, p = make(np.random.default_rng([20160619, seed]), r, gap)
        lead = np.diff(y)[:, 0]
        score = np.diff(p)[:, 0] if p.ndim == 2 else p
        both = np.cov(lead, score)
        best = both[0, 1] / both[1, 1]
        found.append(both[0, 1] / np.sqrt(both[0, 0] * both[1, 1]))
        plain = fr.race(y, DELTA, support=(0, 1), cost=1.0, rng=seed)
        ours = fr.race(y, DELTA, support=(0, 1), proxy=p, rng=seed)
        read["plain"] += plain.n_read
        read["proxy"] += ours.n_read
        wrong += int(ours.best) != y.mean(axis=0).argmax()
        arms = np.array([best, best]) if p.ndim == 2 else np.array([-best, best]) / 2
        read["exact"] += fixed(y, p, arms, seed).n_read
        read["one"] += fixed(y, p, np.ones(2), seed).n_read
    ratio = {way: n / read["plain"] for way, n in read.items()}
    return ratio | {"rewards": read["plain"] / SEEDS, "r": float(np.mean(found)), "wrong": wrong}


class TwoArmsWithScores:
    """Goal: at most 1.05 for useless scores, about 1 - r^2 for others, at most 5 wrong of 100."""

    params = (list(TABLES), [0.0, 0.5, 0.8, 0.95])
    param_names = ["table", "r"]
    timeout = 600

    def track_share_of_rewards(self, table, r):
        return runs(table, r)["proxy"]

    def track_share_of_rewards_with_the_exact_coefficient(self, table, r):
        return runs(table, r)["exact"]

    def track_share_of_rewards_with_coefficient_one(self, table, r):
        return runs(table, r)["one"]

    def track_wrong_of_100(self, table, r):
        return runs(table, r)["wrong"]


MEANS = {                           # of one arm: rewards, and scores of these correlations with them
    "uniform": lambda rng: rng.random(N_ROWS),
    "0 or 1": lambda rng: (rng.random(N_ROWS) < 0.5) * 1.0,
    "beta(10, 30)": lambda rng: rng.beta(10.0, 30.0, N_ROWS),
}
CORRELATIONS = (0.0, 0.5, 0.8, 0.95)


@functools.lru_cache
def means(rewards, epsilon):
    """Rewards for a mean to an absolute accuracy; over them, those with scores of each correlation, and those of a rule
    that has one support for all adjusted rewards, in place of one for each."""
    plain = 0
    scored, wide = dict.fromkeys(CORRELATIONS, 0), dict.fromkeys(CORRELATIONS, 0)
    for seed in range(SEEDS):
        rng = np.random.default_rng([20160619, seed])
        y = MEANS[rewards](rng)
        given = {"accuracy": "absolute", "rng": seed}
        plain += fr.estimate_mean(y, epsilon, DELTA, **given).n_samples
        for r in CORRELATIONS:
            p = rng.random(N_ROWS)
            if r and rewards == "0 or 1":
                p = np.where(rng.random(N_ROWS) < (1 + r) / 2, y, 1 - y)
            elif r:
                p = y + np.sqrt(1 / r**2 - 1) * y.std() * rng.standard_normal(N_ROWS)
            scored[r] += fr.estimate_mean(y, epsilon, DELTA, proxy=p, **given).n_samples
            proxy = fr.Proxy(p)
            rule = fr.AbsoluteStop(epsilon, DELTA, proxy.support, n_rows=N_ROWS)
            wide[r] += fr.estimate_mean(y, method=rule, proxy=proxy, rng=seed).n_samples
    return plain / SEEDS, *({r: n / plain for r, n in counts.items()} for counts in (scored, wide))


def print_means():
    names = ["useless", *(f"r = {r}" for r in CORRELATIONS[1:])]
    print(f"{'rewards':14}{'epsilon':>8}{'without':>9}", *(f"{name:>9}, wide" for name in names))
    for law in MEANS:
        for accuracy in (0.1, 0.05, 0.02, 0.01):
            count, share, wide = means(law, accuracy)
            print(f"{law:14}{accuracy:8}{count:9.0f}", *(f"{share[r]:9.2f}, {wide[r]:.2f}" for r in CORRELATIONS),
                  flush=True)


def print_races():
    print(f"{'table':22}{'r':>6}{'1 - r^2':>9}{'rewards':>9}{'proxy':>7}{'exact':>7}{'c = 1':>7}{'wrong':>7}")
    for name in TABLES:
        for share in (0.0, 0.5, 0.8, 0.95):
            told = runs(name, share)
            print(f"{name:22}{told['r']:6.2f}{1 - told['r'] ** 2:9.2f}{told['rewards']:9.0f}{told['proxy']:7.2f}"
                  f"{told['exact']:7.2f}{told['one']:7.2f}{told['wrong']:7d}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["means"]:
        print_means()
    else:
        print_races()
