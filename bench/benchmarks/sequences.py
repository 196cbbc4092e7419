"""Confidence sequences and betting rules beside loops and arrays that do the same; samples to stop beside EBGStop*."""

import math
import sys

import numpy as np

import fastrace as fr
import fastrace._math._half_widths as _half_widths
from fastrace.streams.sequences import BOUNDS

DELTA = 0.05


def numba_plug_in():
    """The predictable plug-in sequence as a straight loop, or None without Numba."""
    try:
        import numba
    except ImportError:
        return None

    @numba.njit
    def loop(x, delta):
        level = math.log(2.0 / delta)
        total, mean, square, variance = 0.0, 0.5, 0.25, 0.25
        weight = centre = penalty = low = 0.0
        high = 1.0
        for i in range(x.size):
            t = i + 1
            bet = min(math.sqrt(2.0 * level / (variance * t * math.log(1.0 + t))), 0.5)
            penalty += (x[i] - mean) ** 2 * (-math.log1p(-bet) - bet)
            weight += bet
            centre += bet * x[i]
            low = max(low, centre / weight - (level + penalty) / weight)
            high = min(high, centre / weight + (level + penalty) / weight)
            if low > high:
                return t
            total += x[i]
            mean = (0.5 + total) / (t + 1.0)
            square += (x[i] - mean) ** 2
            variance = square / (t + 1.0)
        return -1

    loop(np.zeros(2), DELTA)
    return loop


def numpy_bets(x, delta):
    t = np.arange(1, x.size + 1)
    mean = (0.5 + np.cumsum(x)) / (t + 1)
    variance = np.append(0.25, (0.25 + np.cumsum((x - mean) ** 2)) / (t + 1))[:-1]
    return np.append(0.5, mean[:-1]), np.sqrt(2 * np.log(2 / delta) / (variance * t * np.log(1 + t)))


def numpy_plug_in(x, delta):
    mean, bets = numpy_bets(x, delta)
    bets = np.minimum(bets, 0.5)
    margin = np.log(2 / delta) + np.cumsum((x - mean) ** 2 * (-np.log(1 - bets) - bets))
    weight, centre = np.cumsum(bets), np.cumsum(bets * x)
    return (np.maximum.accumulate((centre - margin) / weight), np.minimum.accumulate((centre + margin) / weight))


def numpy_betting(x, delta, breaks=1000):
    """Hedged capital on a fixed grid, a whole array per candidate."""
    bets = numpy_bets(x, delta)[1]
    alive = np.ones((breaks - 1, x.size), bool)
    for row, m in enumerate(np.arange(1, breaks) / breaks):
        above = np.cumprod(1 + np.minimum(bets, 0.5 / m) * (x - m))
        below = np.cumprod(1 - np.minimum(bets, 0.5 / (1 - m)) * (x - m))
        alive[row] = np.maximum.accumulate(np.maximum(above, below)) < 2 / delta
    return alive.argmax(axis=0), breaks - alive[::-1].argmax(axis=0)


class Array:
    """10^6 rewards that stop nothing: TargetEBStop and plug-in are to take at most 15 ms, 15 ns each."""

    def setup(self):
        self.x = np.random.default_rng(20080705).random(1_000_000)
        self.loop = numba_plug_in()

    def time_target_eb_stop(self):
        fr.TargetEBStop(0.001, DELTA).update_many(self.x)

    def time_target_odds_stop(self):
        fr.TargetOddsStop(0.001, DELTA).update_many(self.x)

    def time_plug_in(self):
        fr.ConfidenceSequence("plug-in", delta=DELTA).update_many(self.x)

    def time_stitched(self):
        fr.ConfidenceSequence("stitched", delta=DELTA).update_many(self.x)

    def time_hoeffding(self):
        fr.ConfidenceSequence("hoeffding", delta=DELTA).update_many(self.x)

    def time_mixture(self):
        fr.ConfidenceSequence("empirical-bernstein-mixture", delta=DELTA).update_many(self.x)

    def time_universal(self):
        fr.ConfidenceSequence("universal", delta=DELTA).update_many(self.x)

    def time_universal_without_replacement(self):
        fr.ConfidenceSequence("universal", delta=DELTA, n_rows=2 * self.x.size).update_many(self.x)

    def time_plug_in_by_a_numba_loop(self):
        if self.loop is None:
            raise NotImplementedError("needs numba")
        self.loop(self.x, DELTA)

    def time_plug_in_by_numpy_arrays(self):
        numpy_plug_in(self.x, DELTA)


class First:
    """The first 1000 rewards, more than half of which are looks: 50 to 100 us, by the law."""

    params = ["uniform", "beta(100, 300)"]
    param_names = ["law"]

    def setup(self, law):
        self.x = LAWS[law](np.random.default_rng(20080705), 1000)

    def time_universal(self, law):
        fr.ConfidenceSequence("universal", delta=DELTA).update_many(self.x)


class Betting:
    """4000 rewards: at least 100 times faster than a grid of arrays, which is what confseq does."""

    def setup(self):
        self.x = np.random.default_rng(20080705).random(4000)

    def time_confidence_sequence(self):
        fr.ConfidenceSequence("betting", delta=DELTA).update_many(self.x)

    def time_betting_stop(self):
        fr.BettingStop(0.001, DELTA).update_many(self.x)

    def time_target_bet_stop(self):
        fr.TargetBetStop(0.001, DELTA).update_many(self.x)

    def time_grid_of_numpy_arrays(self):
        numpy_betting(self.x, DELTA)


class Single:
    """10 000 rewards, one call each: at most 1 ms, 100 ns each."""

    params = ["TargetEBStop", "plug-in", "empirical-bernstein-mixture", "SignStop", "betting", "universal"]
    param_names = ["rule"]

    def setup(self, rule):
        self.x = np.random.default_rng(20080705).random(10_000).tolist()

    def make(self, rule):
        if rule == "TargetEBStop":
            return fr.TargetEBStop(1e-4, 1e-9)
        if rule == "SignStop":
            return fr.SignStop(0.5, 1e-9, support=(0, 1))
        return fr.ConfidenceSequence(rule)

    def time_update(self, rule):
        update = self.make(rule).update
        for x in self.x:
            update(x)


def ebgstop_star(x, epsilon, delta, beta=1.1, p=1.1):
    """Samples that EBGStop with its authors' default parameters takes, over arrays."""
    t = np.arange(1, x.size + 1)
    ends = np.floor(beta ** np.arange(math.ceil(math.log(x.size) / math.log(beta)) + 2))
    k = np.maximum(np.searchsorted(ends, t), 1)
    level = ends[k] / ends[k - 1] * np.log(3 * k**p * p / (delta * (p - 1)))
    mean = np.cumsum(x) / t
    variance = np.maximum(np.cumsum(x * x) / t - mean**2, 0)
    half = np.sqrt(2 * variance * level / t) + 3 * level / t
    half[0] = np.inf
    low = np.maximum.accumulate(np.maximum(np.abs(mean) - half, 0))
    high = np.minimum.accumulate(np.abs(mean) + half)
    stops = (1 + epsilon) * low >= (1 - epsilon) * high
    return int(stops.argmax()) + 1 if stops.any() else None


class Samples:
    """Samples to relative accuracy 0.1 at delta 0.1: at least 6 times fewer than EBGStop*."""

    params = ["uniform", "mean of 10 uniforms", "bernoulli 0.5", "bernoulli 0.05", "beta(10, 30)"]
    param_names = ["law"]
    runs, delta = 10, 0.1

    def setup(self, law):
        rng = np.random.default_rng(20080705)
        draw = {
            "uniform": lambda: rng.random(4000),
            "mean of 10 uniforms": lambda: rng.random((2000, 10)).mean(axis=1),
            "bernoulli 0.5": lambda: (rng.random(8000) < 0.5).astype(float),
            "bernoulli 0.05": lambda: (rng.random(120_000) < 0.05).astype(float),
            "beta(10, 30)": lambda: rng.beta(10, 30, 4000),
        }[law]
        self.streams = [draw() for _ in range(self.runs)]

    def mean(self, samples):
        return float(np.mean([samples(x) for x in self.streams]))

    def track_ebgstop_star(self, law):
        return self.mean(lambda x: ebgstop_star(x, 0.1, self.delta))

    def track_target_eb_stop(self, law):
        return self.mean(lambda x: fr.TargetEBStop(0.1, self.delta).update_many(x))

    def track_target_bet_stop(self, law):
        return self.mean(lambda x: fr.TargetBetStop(0.1, self.delta).update_many(x))

    def track_target_odds_stop(self, law):
        return self.mean(lambda x: fr.TargetOddsStop(0.1, self.delta).update_many(x))

    def track_betting_stop(self, law):
        return self.mean(lambda x: fr.BettingStop(0.1, self.delta).update_many(x))

    def track_gbas(self, law):
        return self.mean(lambda x: fr.GBAS(0.1, self.delta, rng=1).update_many(x))


LAWS = {
    "beta(100, 300)": lambda rng, n: rng.beta(100, 300, n),
    "beta(10, 30)": lambda rng, n: rng.beta(10, 30, n),
    "uniform": lambda rng, n: rng.random(n),
    "Bernoulli(0.1)": lambda rng, n: (rng.random(n) < 0.1).astype(float),
    "Bernoulli(0.005)": lambda rng, n: (rng.random(n) < 0.005).astype(float),
    "lognormal": lambda rng, n: np.minimum(rng.lognormal(-2.5, 1.0, n), 1.0),
}
TIMES = (10, 100, 1000, 10_000, 100_000)
SHORT = {"empirical-bernstein-mixture": "mixture", "empirical-bernstein-plug-in": "plug-in",
         "empirical-bernstein-stitched": "stitched"}
OF_ZEROS_AND_ONES = "beta-binomial"


def kinds(law):
    """Bounds for rewards of that law, the default first."""
    return [bound for bound in BOUNDS if bound != OF_ZEROS_AND_ONES or law.startswith("Bernoulli")]


def widths(bound, law, times, seeds):
    """Median width of the interval of a kind at some times: ndarray of shape (len(times),)."""
    found = np.zeros((seeds, len(times)))
    for i, child in enumerate(np.random.SeedSequence(20080705).spawn(seeds)):
        x = LAWS[law](np.random.default_rng(child), times[-1])
        sequence, seen = fr.ConfidenceSequence(bound, delta=DELTA), 0
        for k, t in enumerate(times):
            sequence.update_many(x[seen:t])
            seen = t
            low, high = sequence.interval
            found[i, k] = high - low
    return np.median(found, axis=0)


class Widths:
    """Width of the interval of each kind; run this file to print the table of `ConfidenceSequence`."""

    params = (list(BOUNDS), list(LAWS), list(TIMES))
    param_names = ["bound", "law", "t"]

    def track_width(self, bound, law, t):
        if bound not in kinds(law):
            return float("nan")
        return float(widths(bound, law, (t,), 10)[0])


def print_widths(seeds=100):
    """The table in the docstring of `ConfidenceSequence`: width over that of the default kind, which is in brackets.

    Without "hoeffding", which is 1.2 to 30 times as wide.
    """
    rule = "=" * 16 + "  " + "=" * 13 + ("  " + "=" * 12) * len(TIMES)
    head = f"{'rewards':16}  {'kind':13}" + "".join(f"  {f't = {t:,}':12}" for t in TIMES)
    print(f"{rule}\n{head.rstrip()}\n{rule}")
    for law in LAWS:
        default, *others = kinds(law)
        base = widths(default, law, TIMES, seeds)
        rows = {SHORT.get(bound, bound): widths(bound, law, TIMES, seeds) / base
                for bound in others if bound != "hoeffding"}
        lines = [f"{law:16}  {default:13}" + "".join(f"  {f'1 ({width:.2g})':12}" for width in base)]
        lines += [f"{law:16}  {name:13}" + "".join(f"  {ratio:<12.2f}" for ratio in ratios)
                  for name, ratios in rows.items()]
        print("\n".join(line.rstrip() for line in lines))
    print(rule)


def portfolio_width(x, log_money, times, nodes=400):
    """Width at some times of the interval that one Beta(1/2, 1/2) prior over all bets gives, the best of all before.

    Refuted are the means against which the mixture has won more than `log_money`.
    """
    share = np.sin(0.5 * math.pi * (np.arange(nodes) + 0.5) / nodes) ** 2

    def refuted(z, m):
        m = min(max(m, 1e-12), 1.0 - 1e-12)
        won = np.log((1.0 - share) * (1.0 - z[:, None]) / (1.0 - m) + share * z[:, None] / m).sum(axis=0)
        return np.logaddexp.reduce(won) - math.log(nodes) > log_money

    low, high, out = 0.0, 1.0, []
    for t in sorted({*range(1, 11), *np.geomspace(10, times[-1], 25).astype(int), *times}):
        ends, mean = [], min(max(x[:t].mean(), low), high)
        for end in (low, high):
            inside = mean
            for _ in range(40):
                middle = 0.5 * (end + inside)
                end, inside = (middle, inside) if refuted(x[:t], middle) else (end, middle)
            ends.append(end)
        low, high = ends
        if t in times:
            out.append(high - low)
    return out


def print_portfolios(times=(10, 30, 100, 300), seeds=10):
    """The table of bench/README.md: a portfolio alone, one with half of the money, and "universal"."""
    print("rewards".ljust(16), "money".ljust(9), *(f"t = {t:<6}" for t in times), sep="  ")
    for law in list(LAWS)[:4]:
        streams = [LAWS[law](np.random.default_rng(child), times[-1])
                   for child in np.random.SeedSequence(20080705).spawn(seeds)]
        whole, half = (np.median([portfolio_width(x, level, times) for x in streams], axis=0)
                       for level in (-math.log(DELTA), -math.log(0.5 * DELTA)))
        for name, found in (("half", half), ("universal", widths("universal", law, times, seeds))):
            print(law.ljust(16), name.ljust(9), *(f"{ratio:<10.2f}" for ratio in found / whole), sep="  ", flush=True)


UNKNOWN = {         # rewards of unknown support, and their mean
    "normal": (lambda rng, n: rng.standard_normal(n), 0.0),
    "uniform": (lambda rng, n: rng.random(n), 0.5),
    "Student's t, 5 df": (lambda rng, n: rng.standard_t(5, n), 0.0),
    "gamma 4 (timings)": (lambda rng, n: rng.gamma(4.0, size=n), 4.0),
    "exponential": (lambda rng, n: rng.exponential(size=n), 1.0),
    "Bernoulli(0.1)": (lambda rng, n: (rng.random(n) < 0.1).astype(float), 0.1),
    "lognormal(0, 1)": (lambda rng, n: rng.lognormal(size=n), math.exp(0.5)),
    "Bernoulli(0.02)": (lambda rng, n: (rng.random(n) < 0.02).astype(float), 0.02),
    "Bernoulli(0.005)": (lambda rng, n: (rng.random(n) < 0.005).astype(float), 0.005),
}


def peeked(law, starts, runs, n=10_000, chunk=100):
    """Shares of streams whose mean an asymptotic interval ever misses, by its start, and a z-test at 30 looks."""
    draw, mean = UNKNOWN[law]
    rng, count = np.random.default_rng(20240701), np.arange(1.0, n + 1.0)
    looks, missed = np.arange(1, 31) * (n // 30) - 1, np.zeros(len(starts) + 1)
    for _ in range(runs // chunk):
        x = np.stack([draw(rng, n) for _ in range(chunk)]) - mean
        away, second, third = (np.cumsum(x**k, axis=1) / count for k in (1, 2, 3))
        square = np.maximum(second - away**2, 0.0)
        square[square <= 1e-12 * second] = 0.0                          # rewards that have all been equal
        variance = square / np.maximum(count - 1.0, 1.0)
        skewness = (third - 3.0 * away * second + 2.0 * away**3) / np.where(square > 0.0, square, np.inf) ** 1.5
        shifts = [_half_widths.tail_shift(sign * skewness, count.astype(np.int64), 1.0) for sign in (-1.0, 1.0)]
        for k, start in enumerate(starts):
            sequence = fr.ConfidenceSequence(support=None, delta=DELTA, first_look=start)
            spread = _half_widths.t_mixture_spread(sequence.arguments["tight_at"], -math.log(DELTA))
            half = _half_widths.t_mixture_half_width(variance, count, count - 1.0, spread, -math.log(DELTA))
            lower, upper = (_half_widths.tail_end(half, variance, shift) for shift in shifts)
            missed[k] += ((away > lower) | (away < -upper))[:, start - 1 :].any(axis=1).sum()
        missed[-1] += (np.abs(away) > 1.96 * np.sqrt(variance))[:, looks].any(axis=1).sum()
    return missed / runs


def print_peeked(runs=2000, starts=(20, 50, 100, 200)):
    """The table of ConfidenceSequence's page about an unknown support."""
    print("rewards".ljust(20), *(f"{start:<7}" for start in starts), "z-test", sep="  ")
    for law in UNKNOWN:
        *shares, by_z = peeked(law, starts, runs)
        print(law.ljust(20), *(f"{share:<7.3f}" for share in shares), f"{by_z:.2f}", sep="  ", flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["portfolio"]:
        print_portfolios()
    else:
        print_widths()
        print_peeked()
