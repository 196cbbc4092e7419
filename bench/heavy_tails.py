"""How often asymptotic answers are wrong, and what they cost, on laws with light and with long tails.

    python bench/heavy_tails.py [trials] [words of the cases]
    python bench/heavy_tails.py intervals [trials]
    python bench/heavy_tails.py clusters [trials]
    python bench/heavy_tails.py tables [trials]

The first is about races: "wrong" counts runs that told equal arms apart, or that lost a best arm; "silent" those of
them without a warning.

The second is about the intervals of `ConfidenceSequence` and `Comparison`: shares of streams whose mean (or whose
difference of two equal means) an interval missed at any look from the first on, at delta 0.05; "plain" without what
skewness does to the ends, "wrong" with it, "silent" those of the latter that no warning stood beside; then the width
over the plain one where an arm, the smaller one of two, has 200, 1,000 and 10,000 rewards.

The third is about differences of two arms whose rewards come by user, of whom few buy anything. The fourth is about
tables in which two rows in a thousand decide which of two columns is better.
"""

import math
import sys

import numpy as np

import fastrace as fr
from fastrace._math import _half_widths
from fastrace.streams import _rules
from fastrace.streams._sequences import doubts

LAWS = {
    "normal": lambda rng, size: rng.normal(size=size),
    "uniform": lambda rng, size: rng.random(size),
    "t5": lambda rng, size: rng.standard_t(5, size),
    "exponential": lambda rng, size: rng.exponential(size=size),
    "lognormal": lambda rng, size: rng.lognormal(size=size),
    "-lognormal": lambda rng, size: -rng.lognormal(size=size),
}


def constant(value):
    return lambda rng, size: np.full(size, value)


def events(p, scale=1.0):
    return lambda rng, size: scale * (rng.random(size) < p)


def shifted(law, by):
    return lambda rng, size: LAWS[law](rng, size) + by


def scaled(law, by):
    return lambda rng, size: LAWS[law](rng, size) * by


def near(value, spread):
    return lambda rng, size: value + spread * rng.normal(size=size)


# Arms, the arms that are best, and the most rewards of a run.
CASES = {f"equal {law}": ([shifted(law, 0.0)] * 2, None, 20_000) for law in LAWS}
for name in ("normal", "uniform", "t5"):
    CASES[f"apart {name}"] = ([shifted(name, 0.0), shifted(name, 0.2)], [1], 200_000)
    CASES[f"close {name}"] = ([shifted(name, 0.0), shifted(name, 0.05)], [1], 400_000)
CASES |= {
    "apart lognormal": ([scaled("lognormal", 1.0), scaled("lognormal", 1.2)], [1], 400_000),
    "apart -lognormal": ([scaled("-lognormal", 1.0), scaled("-lognormal", 1.2)], [0], 400_000),
    "lognormal, normal": ([shifted("lognormal", -np.exp(0.5)), near(0.0, 0.5)], None, 40_000),
}
for p in (0.001, 0.005, 0.01, 0.05):
    most = int(400 / p)
    CASES[f"equal {p}"] = ([events(p)] * 2, None, most)
    CASES[f"equal {p} x 4"] = ([events(p)] * 4, None, 2 * most)
    CASES[f"apart {p}"] = ([events(p), events(1.5 * p)], [1], 8 * most)
    CASES[f"missed {p}"] = ([events(1.5 * p), events(p)], [0], 8 * most)
    CASES[f"{p} beside the same constant"] = ([events(p), constant(p)], None, most)
    CASES[f"{p} beside a nearly constant arm"] = ([events(p, 1 / p), near(1.0, 0.01)], None, most)
    CASES[f"{p} beside a normal arm"] = ([events(p, 1 / p), near(1.0, 1.0)], None, most)
    CASES[f"{p} twice beside a constant 0"] = ([events(p), events(p), constant(0.0)], [0, 1], most)
CASES["0.3 beside a constant 0"] = ([events(0.3), constant(0.0)], [0], 100_000)
CASES["two constants"] = ([constant(0.0), constant(1.0)], [1], 100_000)


def lucb(arms, best, most, rng, delta):
    def pull(which, counts):
        return np.concatenate([arms[i](rng, n) for i, n in zip(which, counts, strict=True)])

    result = fr.LUCB(len(arms), 1, delta=delta, support=None).run(pull, most)
    stopped = result.stopped_by == "bound"
    return stopped, stopped if best is None else stopped and result.best not in best, result


def race(arms, best, most, rng, delta):
    rows = most // len(arms)
    rewards = np.stack([arm(rng, rows) for arm in arms], axis=1)
    result = fr.BettingRace(len(arms), delta=delta, support=None).run(rewards, order="given")
    lost = result.active.size < len(arms) if best is None else any(arm not in result.active for arm in best)
    return result.stopped_by == "bound", lost, result


def measure(rule, name, trials, delta):
    arms, best, most = CASES[name]
    wrong = silent = stopped = pulls = 0
    for seed in range(trials):
        over, bad, result = rule(arms, best, most, np.random.default_rng([seed, 7]), delta)
        stopped, wrong, pulls = stopped + over, wrong + bad, pulls + int(result.pulls.sum())
        silent += bad and not any("tail" in text or "same in all" in text for text in result.warnings)
    print(f"{rule.__name__:5}{name:36}delta {delta:<6}wrong {wrong / trials:<8.3f}silent {silent / trials:<8.3f}"
          f"stopped {stopped / trials:<7.2f}rewards {pulls / trials:,.0f}", flush=True)


# Intervals: draw and mean.

def bought(p, sd):
    """Amounts of those who buy, a share p; lognormal with this sd of the logarithm."""

    def draw(rng, n):
        x = np.zeros(n)
        buyers = rng.random(n) < p
        x[buyers] = rng.lognormal(sigma=sd, size=int(buyers.sum()))
        return x

    return draw, p * math.exp(sd * sd / 2.0)


STREAMS = {
    "normal": (lambda rng, n: rng.normal(size=n), 0.0),
    "uniform": (lambda rng, n: rng.random(n), 0.5),
    "Student's t, 5 df": (lambda rng, n: rng.standard_t(5, n), 0.0),
    "gamma 4 (timings)": (lambda rng, n: rng.gamma(4.0, size=n), 4.0),
    "exponential": (lambda rng, n: rng.exponential(size=n), 1.0),
    "lognormal(0, 0.5)": (lambda rng, n: rng.lognormal(sigma=0.5, size=n), math.exp(0.125)),
    "Bernoulli(0.1)": bought(0.1, 0.0),
    "lognormal(0, 1)": (lambda rng, n: rng.lognormal(size=n), math.exp(0.5)),
    "Pareto, alpha 2.5": (lambda rng, n: rng.pareto(2.5, n), 1.0 / 1.5),
    "Bernoulli(0.02)": bought(0.02, 0.0),
    "Bernoulli(0.005)": bought(0.005, 0.0),
    "2 % buyers, sd 0.5": bought(0.02, 0.5),
    "2 % buyers, sd 1": bought(0.02, 1.0),
    "0.5 % buyers, sd 1": bought(0.005, 1.0),
    "normal, + 50 in .5 %": (lambda rng, n: rng.normal(size=n) + 50.0 * (rng.random(n) < 0.005), 0.25),
}


def sequence(draw, mean, rng, delta, most):
    """Look by look: rewards, the plain interval, the one that is given, the truth, and whether a warning is."""
    stream, x = fr.ConfidenceSequence(support=None, delta=delta), draw(rng, most)
    level = -math.log(delta)
    spread = _half_widths.t_mixture_spread(stream.arguments["tight_at"], level)
    while stream.n_samples < most:
        n = min(most, max(200, int(1.05 * stream.n_samples)))
        stream.update_many(x[stream.n_samples:n])
        half = float(_half_widths.t_mixture_half_width(stream._moments()[2] / n, n, n - 1.0, spread, level))
        yield n, (stream.estimate - half, stream.estimate + half), stream.interval, mean, bool(stream._doubts())


def moments(x, counts):
    """Mean, variance and skewness of the first rewards."""
    sums = [np.cumsum((x - x[0]) ** k)[counts - 1] for k in (1, 2, 3)]
    mean = sums[0] / counts
    square = np.maximum(sums[1] - counts * mean**2, 0.0)
    cube = sums[2] - 3.0 * mean * sums[1] + 3.0 * mean**2 * sums[0] - counts * mean**3
    skewness = np.where(square > 0.0, np.sqrt(counts) * cube / np.where(square > 0.0, square, 1.0) ** 1.5, np.nan)
    return x[0] + mean, square / (counts - 1.0), skewness


def difference(share):
    """The same of the difference of two arms of one law, by the rewards of the arm with this share."""
    checked = []

    def looks(draw, mean, rng, delta, most):
        b = np.unique(np.round(np.geomspace(200, most, 60)).astype(int))
        a = np.round(b * (1.0 / share - 1.0)).astype(int)
        arms = draw(rng, a[-1]), draw(rng, b[-1])
        level, spread = -math.log(0.8 * delta), _half_widths.t_mixture_spread(
            0.5 * _rules.best_at(200), -math.log(0.8 * delta))
        with np.errstate(invalid="ignore", divide="ignore"):
            (mine, var, skew), (its, its_var, its_skew) = moments(arms[0], a), moments(arms[1], b)
            error, its_error = var / a, its_var / b
            both, away = error + its_error, mine - its
            freedom = both**2 / (error**2 / (a - 1.0) + its_error**2 / (b - 1.0))
            half = _half_widths.t_mixture_half_width(both, 1.0 * a * b / (a + b), freedom, spread, level)
            half = np.where((var > 0.0) & (its_var > 0.0), half, np.inf)
            part, rest = error / both, its_error / both
            shifts = [np.sqrt(part) * _half_widths.tail_shift(sign * skew, a, part)
                      + np.sqrt(rest) * _half_widths.tail_shift(-sign * its_skew, b, rest) for sign in (-1.0, 1.0)]
            low = away - _half_widths.tail_end(half, both, shifts[0])
            high = away + _half_widths.tail_end(half, both, shifts[1])
        if not checked:                             # once, that this is what a comparison gives
            test = fr.Comparison([1, 0], delta)     # of its second arm less the first
            test.observe_many(0, arms[0])
            test.observe_many(1, arms[1])
            given = [end[0] for end in test._asymptotic(0.8 * delta)[1][1:3]]
            assert np.allclose([low[-1], high[-1]], given, rtol=1e-6)
            checked.append(True)
        for k in range(b.size):
            warned = doubts(a[k], skew[k], "rewards") + doubts(b[k], its_skew[k], "rewards")
            yield b[k], (away[k] - half[k], away[k] + half[k]), (low[k], high[k]), 0.0, bool(warned)

    return looks


def intervals_missed(looks, law, trials, most, delta=0.05):
    """Shares of streams missed by the plain intervals, by those given, and by those without a warning; and widths."""
    draw, mean = STREAMS[law]
    missed, widths = np.zeros(3), {200: [], 1000: [], 10_000: []}
    for seed in range(trials):
        out, wanted = np.zeros(3, dtype=bool), sorted(widths)
        for n, plain, given, truth, warned in looks(draw, mean, np.random.default_rng([seed, 8]), delta, most):
            bad = not given[0] <= truth <= given[1]
            out |= [not plain[0] <= truth <= plain[1], bad, bad and not warned]
            if wanted and n >= wanted[0]:
                if math.isfinite(plain[1]):
                    widths[wanted[0]].append((given[1] - given[0]) / (plain[1] - plain[0]))
                del wanted[0]
        missed += out
    return missed / trials, widths


def measure_intervals(name, looks, law, trials, most):
    """Print one line of the table."""
    missed, widths = intervals_missed(looks, law, trials, most)
    print(f"{name:12}{law:22}" + "  ".join(f"{what} {share:<6.3f}" for what, share in zip(
        ("plain", "wrong", "silent"), missed, strict=True)) + " width " + "  ".join(
            f"{np.median(found):<5.2f}" if found else "-" for found in widths.values()), flush=True)


# Clusters: users with one to five rewards, of whom a share p buys, lognormal amounts with this sd of the logarithm.

def of_users(rng, buys, factor, sd):
    """Numbers of the users, and rewards, half of which are 0."""
    key = np.repeat(np.arange(buys.size), rng.integers(1, 6, buys.size))
    bought_now = buys[key] & (rng.random(key.size) < 0.5)
    return key, np.where(bought_now, factor[key] * rng.lognormal(sigma=sd, size=key.size), 0.0)


def measure_clusters(p, sd, shared, ratio, trials, most):
    """Print one line: how often the difference of equal arms was missed at any of 30 looks from 200 users on."""
    looks = np.unique(np.geomspace(200, most, 30).astype(int))
    missed = silent = 0
    for seed in range(trials):
        rng = np.random.default_rng([seed, 9])
        if shared:
            buys, taste = rng.random(most) < p, rng.lognormal(sigma=sd, size=most)
            data = [of_users(rng, buys, taste, 0.5) for _ in range(2)]
        else:
            sizes = most * ratio, most
            data = [of_users(rng, rng.random(size) < p, np.ones(size), sd) for size in sizes]
        test, done, out = fr.Comparison(2, clusters=True), [0, 0], np.zeros(2, dtype=bool)
        for n in looks:
            for arm, (key, x) in enumerate(data):
                end = int(np.searchsorted(key, n * ratio if arm == 0 else n))
                fresh = slice(done[arm], end)
                keys = key[fresh] if shared else 2 * key[fresh] + arm
                test.observe_many(arm, x[fresh], clusters=keys.tolist())
                done[arm] = end
            _, low, high, _ = test._intervals()["pairs"]
            bad = not low[0] <= 0.0 <= high[0]
            out |= [bad, bad and not test._doubts()]
        missed, silent = missed + out[0], silent + out[1]
    print(f"buyers {p:<6} sd {sd:<4} {'shared by both arms' if shared else f'1 beside {ratio}':20} "
          f"wrong {missed / trials:<6.3f} silent {silent / trials:<6.3f}", flush=True)


# Tables: one column is ahead by .1, and the other holds 100 in 40 of 20,000 rows.

def measure_tables(name, law, trials, n_rows=20_000, n_rare=40):
    """Print one line: how often races without a support, and with one, named the wrong column, at delta 0.05."""
    wrong = silent = with_support = 0
    for seed in range(trials):
        rng = np.random.default_rng([seed, 8])
        table = law(rng, (n_rows, 2)) + [0.1, 0.0]
        table[rng.permutation(n_rows)[:n_rare], 1] = 100.0
        best, result = table.mean(axis=0).argmax(), fr.race(table, rng=rng)
        wrong, silent = wrong + (result.best != best), silent + (result.best != best and not result.warnings)
        with_support += fr.race(table, support=(table.min(), 100.0), rng=rng).best != best
    print(f"{name:16}wrong {wrong / trials:<7.3f}silent {silent / trials:<7.3f}with a support "
          f"{with_support / trials:.3f}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["tables"]:
        TRIALS = int(sys.argv[2]) if len(sys.argv) > 2 else 400
        for law in ("normal", "uniform"):
            measure_tables(law, LAWS[law], TRIALS)
        measure_tables("0 or 1", events(0.5), TRIALS)
        sys.exit()
    if sys.argv[1:2] == ["clusters"]:
        TRIALS = int(sys.argv[2]) if len(sys.argv) > 2 else 300
        for p in (0.005, 0.02):
            for sd in (0.5, 1.0):
                measure_clusters(p, sd, False, 1, TRIALS, 4_000)
                measure_clusters(p, sd, True, 1, TRIALS, 4_000)
                measure_clusters(p, sd, False, 9, TRIALS, 2_000)
        sys.exit()
    if sys.argv[1:2] == ["intervals"]:
        TRIALS = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
        for law in STREAMS:
            measure_intervals("mean", sequence, law, TRIALS, 10_100)
        for share in (0.5, 0.1):
            for law in STREAMS:
                measure_intervals(f"share {share}", difference(share), law, TRIALS, 10_000 if share == 0.5 else 2_000)
        sys.exit()
    TRIALS, WORDS = int(sys.argv[1]) if len(sys.argv) > 1 else 400, sys.argv[2:]
    for case in CASES:
        if all(word in case for word in WORDS):
            measure(lucb, case, TRIALS, 0.1)
            measure(race, case, TRIALS, 0.05)
