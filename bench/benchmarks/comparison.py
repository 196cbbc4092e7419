"""Comparisons of observed streams: 400,000 events of four unequal arms, beside z-tests at 30 looks.

`python bench/benchmarks/comparison.py` prints how often either is wrong, of equal and of unequal arms, and widths.
"""

import time

import numpy as np
from scipy import stats

import fastrace as fr

SHARES, DELTA = (0.7, 0.1, 0.1, 0.1), 0.05
SUPPORT = {"exact": (0.0, 1.0), "asymptotic": None}
UNEQUAL = (0.1, 0.1, 0.105, 0.11)


def events(n, rates, seed=20240701):
    rng = np.random.default_rng(seed)
    arms = rng.choice(len(SHARES), size=n, p=SHARES)
    return arms, (rng.random(n) < np.array(rates)[arms]).astype(float)


def z_tests(arms, x, looks):
    """Least p-value of arms against the first, with Bonferroni's correction, at each look: what is done by hand."""
    least = []
    for n in looks:
        parts = [x[:n][arms[:n] == k] for k in range(len(SHARES))]
        base, error = parts[0], [part.var() / part.size for part in parts]
        pairs = zip(parts[1:], error[1:], strict=True)
        z = max(abs(part.mean() - base.mean()) / np.sqrt(square + error[0]) for part, square in pairs)
        least.append(min(1.0, 2 * (len(SHARES) - 1) * stats.norm.sf(z)))
    return least


def z_width(arms, x, delta=0.05):
    """Width of an interval by z with Bonferroni's correction, for a number of events that was fixed beforehand."""
    error = [x[arms == k].var() / np.count_nonzero(arms == k) for k in range(len(SHARES))]
    z = stats.norm.isf(delta / (2 * (len(SHARES) - 1)))
    return float(np.mean([2.0 * z * np.sqrt(error[0] + square) for square in error[1:]]))


class Events:
    """Four unequal arms, 400,000 events: at most 0.2 s."""

    params = ["exact", "asymptotic"]
    param_names = ["kind"]

    def setup(self, kind):
        self.arms, self.x = events(400_000, UNEQUAL)
        self.labels = np.array(list("abcd"))[self.arms]

    def time_observe_many(self, kind):
        fr.Comparison(4, support=SUPPORT[kind], reference=0).observe_many(self.arms, self.x)

    def time_observe_many_by_names(self, kind):
        fr.Comparison(list("abcd"), support=SUPPORT[kind], reference="a").observe_many(self.labels, self.x)

    def time_observe_many_all_pairs(self, kind):
        fr.Comparison(4, support=SUPPORT[kind]).observe_many(self.arms, self.x)

    def time_z_tests_at_30_looks(self, kind):
        z_tests(self.arms, self.x, np.arange(1, 31) * (len(self.x) // 30))


def errors(runs=100, n=20_000):
    """Share of experiments with four equal arms that call any different, at any look, and widths of a difference."""
    wrong = dict.fromkeys((*SUPPORT, "z-tests"), 0)
    width = dict.fromkeys(wrong, 0.0)
    for seed in range(runs):
        arms, x = events(n, (0.1,) * 4, seed)
        for kind, support in SUPPORT.items():
            test = fr.Comparison(4, support=support, reference=0)
            test.observe_many(arms, x)
            past = test.history
            wrong[kind] += bool((past["difference_lower"] > 0).any() or (past["difference_upper"] < 0).any())
            width[kind] += float(np.mean(past["difference_upper"][-1] - past["difference_lower"][-1])) / runs
        wrong["z-tests"] += min(z_tests(arms, x, np.arange(1, 31) * (n // 30))) < 0.05
        width["z-tests"] += z_width(arms, x) / runs
    return {kind: count / runs for kind, count in wrong.items()}, width


def missed(kind, runs=1000, n=20_000, rates=UNEQUAL):
    """Share of experiments in which any of the six differences is outside its interval at any look; and the looks."""
    true = np.array(rates)
    wrong = 0
    for seed in range(runs):
        test = fr.Comparison(4, support=SUPPORT[kind])
        test.observe_many(*events(n, rates, [20240701, seed]))
        past, (first, second) = test.history, test.result().pairs.T
        apart = true[first] - true[second]
        wrong += bool(((past["difference_lower"] > apart + 1e-12) | (past["difference_upper"] < apart - 1e-12)).any())
    return wrong / runs, len(past["n_read"])


def missed_by_z(runs=1000, n=20_000, rates=UNEQUAL, looks=30):
    """The same of intervals by z with Bonferroni's correction, as one looks by hand."""
    true, wrong, z = np.array(rates), 0, stats.norm.isf(DELTA / (2 * 6))
    for seed in range(runs):
        arms, x = events(n, rates, [20240701, seed])
        for look in np.arange(1, looks + 1) * (n // looks):
            parts = [x[:look][arms[:look] == k] for k in range(4)]
            away = np.array([part.mean() for part in parts]) - true
            error = np.array([part.var() / part.size for part in parts])
            if (np.abs(away[:, None] - away) > z * np.sqrt(error[:, None] + error)).any():
                wrong += 1
                break
    return wrong / runs


def seconds(method, kind):
    """CPU seconds of a method of `Events`, the least of five."""
    case, took = Events(), []
    case.setup(kind)
    for _ in range(5):
        start = time.process_time()
        getattr(case, method)(kind)
        took.append(time.process_time() - start)
    return min(took)


def main():
    wrong, width = errors()
    by_z = seconds("time_z_tests_at_30_looks", "exact")
    print(f"{'':12}{'called different':>18}{'width':>8}{'CPU s':>8}{'by names':>10}{'all pairs':>11}")
    for kind in SUPPORT:
        took = (seconds(f"time_observe_many{how}", kind) for how in ("", "_by_names", "_all_pairs"))
        print(f"{kind:12}{wrong[kind]:18.2f}{width[kind]:8.3f}" + "{:8.2f}{:10.2f}{:11.2f}".format(*took), flush=True)
    print(f"{'z-tests':12}{wrong['z-tests']:18.2f}{width['z-tests']:8.3f}{by_z:8.2f}")
    for kind in SUPPORT:
        rate, looks = missed(kind)
        print(f"four unequal arms, {kind}: any difference missed in {rate:.3f}, {looks} looks", flush=True)
    print(f"the same by z: {missed_by_z():.3f} at 30 looks")


if __name__ == "__main__":
    main()
