"""Twins of DAUB, halving and Algorithm 1 of Agarwal et al., in plain Python: one line per line of a paper."""

import itertools
import math

import numpy as np


def grid(b, r, n_rows, rounding="ceil"):
    """The sizes b, r b, r^2 b, ... of a training, the last one all rows."""
    sizes, n = [], b
    while n < n_rows:
        sizes.append(n)
        n = max(n + 1, math.ceil(round(r * n, 6)) if rounding == "ceil" else b * math.floor(r * n / b + 0.5))
    return [*sizes, n_rows]


def daub(train, valid, sizes, *, training_bound=True, clip_slope=True, verify=False, curve=1.0, capped=True):
    """Algorithm 1 of Sabharwal et al. (2016) on tables (learner, size) of scores: the allocations, and the winner.

    Capped: all rows together are at most those of training all in full. Where the sizes that the learner on top has
    left cost more than it and its rivals in full, these get all rows; a rival's bound is its score or more. Where rows
    for one full training only would be left, those with the best scores get all rows, as many as can be paid.
    """
    n_learners, n_rows = len(valid), sizes[-1]
    if capped and len(sizes) > 1 and n_learners * sum(sizes[:3]) + n_rows >= n_learners * n_rows:
        return [(i, n_rows) for i in range(n_learners)], int(np.argmax([row[-1] for row in valid]))
    scale = (lambda n: math.log(n)) if curve == 0 else lambda n: ((n / n_rows) ** curve - 1) / curve
    log, kept, u, at = [], [{} for _ in valid], [None] * n_learners, [None] * n_learners

    def train_learner(i, k):
        log.append((i, sizes[k]))
        at[i] = k
        kept[i][k] = valid[i][k]
        if k >= 1:
            delta = kept[i][k] - kept[i][k - 1]
            if delta < 0:
                kept[i][k - 1] -= -delta / 2
                kept[i][k] += -delta / 2

    def update_bound(i):
        k = at[i]
        x = [scale(sizes[m]) for m in (k - 2, k - 1, k)]
        slope = np.polyfit(x, [kept[i][m] for m in (k - 2, k - 1, k)], 1)[0]
        if clip_slope:
            slope = max(slope, 0.0)
        bound = kept[i][k] + (scale(n_rows) - x[2]) * slope
        return min(train[i][k], bound) if training_bound else bound

    first = min(3, len(sizes))
    for i in range(n_learners):
        for k in range(first):
            train_learner(i, k)
    if first == len(sizes):
        return log, int(np.argmax([row[-1] for row in valid]))
    u = [update_bound(i) for i in range(n_learners)]
    while True:
        j = int(np.argmax(u))
        if sizes[at[j]] == n_rows:
            return log, j
        k = at[j] + 1
        if capped:
            done = [i for i in range(n_learners) if sizes[at[i]] == n_rows]
            left = n_learners * n_rows - sum(n for _, n in log)
            if done and left < n_rows:
                return log, max(done, key=lambda i: (valid[i][-1], -i))
            others = sorted((i for i in range(n_learners) if i != j and i not in done), key=lambda i: (-u[i], i))
            rivals = [i for i in others if u[i] >= kept[j][k - 1]]
            cheap = (1 + len(rivals)) * n_rows <= min(left, sum(sizes[k:]))
            short = sizes[k] + (0 if done else n_rows) > left
            if sizes[k] < n_rows and (cheap or short):
                so_far = sorted([j, *others], key=lambda i: (-kept[i][at[i]], i))
                in_full = [j, *rivals] if cheap else so_far[: left // n_rows]
                for i in in_full:
                    log.append((i, n_rows))
                    at[i], u[i] = len(sizes) - 1, valid[i][-1]
                if not cheap:
                    return log, max([*done, *in_full], key=lambda i: (valid[i][-1], -i))
                continue
        train_learner(j, k)
        if sizes[at[j]] < n_rows:
            u[j] = update_bound(j)
        elif not verify:
            return log, max((i for i in range(n_learners) if sizes[at[i]] == n_rows), key=lambda i: (valid[i][-1], -i))
        else:
            u[j] = valid[j][at[j]]


def halving(score, n_learners, plan):
    """Rounds of (rows, learners): the allocations and the winner, for a function of learner and rows."""
    alive, log = list(range(n_learners)), []
    for rows, count in plan:
        alive = sorted(sorted(alive, key=lambda i: (-last[i], i))[:count]) if log else alive
        last = {}
        for i in alive:
            log.append((i, rows))
            last[i] = score(i, rows)
    return log, max(alive, key=lambda i: (last[i], -i))


def daub_halving(train, valid, n_learners, plan, curve, training_bound):
    """The same, ranked by the straight line through the last two scores, on the scale of `curve`, read at all rows."""
    n_rows = plan[-1][0]
    scale = (lambda n: math.log(n)) if curve == 0 else lambda n: (n / n_rows) ** curve / curve
    alive, log, seen, bound = list(range(n_learners)), [], [{} for _ in range(n_learners)], {}

    for rows, count in plan:
        if log:
            order = sorted(alive, key=lambda i: (-bound[i], i))
            alive = sorted(order[:count])
        for i in alive:
            log.append((i, rows))
            before = max(seen[i], default=None)
            seen[i][rows] = bound[i] = valid(i, rows)
            if before is not None:
                rise = max(0.0, valid(i, rows) - valid(i, before))
                bound[i] += rise / (scale(rows) - scale(before)) * (scale(n_rows) - scale(rows))
            if training_bound:
                bound[i] = min(bound[i], train(i, rows))
    return log, max(alive, key=lambda i: (valid(i, n_rows), -i))


def asha(score, n_learners, sizes, factor):
    """Algorithm 2 of Li et al. (2020) with one worker and a finite pool: the allocations, and the winner."""
    log, rungs, promoted, entered = [], [{} for _ in sizes], [set() for _ in sizes], 0

    def ranked(k):
        return sorted(rungs[k], key=lambda i: (-rungs[k][i], i))

    def get_job():
        nonlocal entered
        for k in reversed(range(len(sizes) - 1)):
            candidates = [i for i in ranked(k)[: int(len(rungs[k]) / factor + 1e-12)] if i not in promoted[k]]
            if candidates:
                return candidates[0], k
        if entered < n_learners:
            entered += 1
            return entered - 1, -1
        if rungs[-1]:
            return None
        return next((i, k) for k in reversed(range(len(sizes) - 1)) for i in ranked(k) if i not in promoted[k])

    while job := get_job():
        i, k = job
        if k >= 0:
            promoted[k].add(i)
        log.append((i, sizes[k + 1]))
        rungs[k + 1][i] = score(i, sizes[k + 1])
    return log, ranked(-1)[0]


def budgeted_ucb(risk, rates, quanta, penalties, kappa2, log_term="T", n_rows=math.inf):
    """Algorithm 1 of Agarwal et al. (2011) for a function of class and rows: the queries, as (class, rows)."""
    k = len(rates)
    log, count = [], [0] * k

    def rows(i):
        return min(count[i] * rates[i], n_rows)

    def query(i):
        count[i] += 1
        log.append((i, rows(i)))

    for i in range(k):
        query(i)
    while len(log) < quanta:
        log_t = math.log(quanta if log_term == "T" else max(len(log), 2))
        best, value = None, math.inf
        for i in range(k):
            n = rows(i)
            if n == n_rows:
                continue
            new = risk(i, n) - penalties[i](n) - kappa2 * math.sqrt(math.log(k) / n)
            new += penalties[i](min(quanta * rates[i], n_rows)) - kappa2 * math.sqrt(log_t / n)
            if new < value:
                best, value = i, new
        if best is None:
            break
        query(best)
    return log


def coarse_shares(penalties, rates, quanta, slack):
    """The smallest s for which some s classes satisfy Definition 1 with shares of T / s, by trying all sets of them."""
    for s in range(1, len(rates) + 1):
        shares = [math.floor(quanta * n / s) for n in rates]
        g = np.maximum.accumulate([gamma(n) for gamma, n in zip(penalties, shares, strict=True)])
        if any(covers(g, chosen, slack) for chosen in itertools.combinations(range(len(rates)), s)):
            return s
    return None


def covers(g, chosen, slack):
    """Condition (11): every class has one in S, at least as complex, with a penalty at most 1 + slack times larger."""
    return all(any(g[i] <= g[j] <= (1 + slack) * g[i] * (1 + 1e-12) for j in chosen if j >= i) for i in range(len(g)))


def recursion(h, slack):
    """The paper's own construction of S."""
    chosen = [len(h) - 1]
    while True:
        j = min((j for j in range(len(h)) if h[chosen[-1]] <= (1 + slack) * h[j]), default=chosen[-1])
        if j == chosen[-1]:
            return chosen
        chosen.append(j)
