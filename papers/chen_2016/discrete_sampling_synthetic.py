"""The synthetic experiment of Chen & Ghahramani (2016): section 5.1 with Figure 1, appendix C.1 with Figures 5 to 7.

    python -m papers.chen_2016.discrete_sampling_synthetic --quick

A discrete variable has D states with probabilities that fall geometrically, and N factors: the log-factor of state i on
row n is ``log p(i) / N + sigma z``, where z is standardised noise from one of three laws. Each draw perturbs the states
with Gumbel noise and races them. The exact draw is the best of the same perturbed states, so errors can be counted.

The table tells, for every setting and every rule, the share of wrong draws with a Clopper-Pearson 95 % interval and the
share of the log-factors that was read. It is printed, written as ``discrete_sampling_synthetic.csv``, and drawn, one
figure per D. Needs the ``demo`` extra (matplotlib and rich).
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

import fastrace as fr
from papers.common import parser, sheet, track, write_table

LAWS = {
    "normal": lambda rng, size: rng.standard_normal(size),
    "uniform": lambda rng, size: rng.random(size),
    "lognormal": lambda rng, size: rng.lognormal(0.0, 2.0, size),
}
# A rare error needs draws; a hard setting needs rewards. So a setting stops at either limit, and `cost` makes the work
# of one reward comparable: measured nanoseconds over those of a race by the normal rule, roughly.
FEWEST_DRAWS = 5


@dataclass(frozen=True)
class Rule:
    """One way to find the best arm, and how it appears in the figure."""

    name: str
    colour: str
    options: dict[str, Any] = field(default_factory=dict)    # of FiniteRace; empty for lil'UCB
    cost: float = 1.0
    promise: str = "assumed"    # "rigorous", "assumed" (means of rows are jointly normal) or "none"

    @property
    def marginal(self) -> bool:
        return self.options.get("variance") == "marginal"


EBS = {"bound": "empirical-bernstein-serfling", "first_look": 2}
RULES = (
    Rule("normal", "C0", {"bound": "normal"}),
    Rule("normal x1.35", "C9", {"bound": "normal", "growth": 1.35}),
    Rule("student", "C2", {"bound": "normal", "student": True}),
    Rule("normal guarded", "C4", {"bound": "normal", "skewness_guard": True}),
    Rule("betting", "C3", {"bound": "betting"}, 8.0, "rigorous"),
    Rule("EBS", "C1", EBS, 1.0, "rigorous"),
    Rule("HS", "C5", {"bound": "hoeffding-serfling", "first_look": 2}, 1.0, "rigorous"),
    Rule("serfling", "C6", {"bound": "serfling", "first_look": 2}, 1.0, "rigorous"),
    Rule("lil'UCB", "C7", {}, 12.0, "none"),
    Rule("normal marginal", "C0", {"bound": "normal", "variance": "marginal"}),
    Rule("EBS marginal", "C1", EBS | {"variance": "marginal"}, 1.0, "rigorous"),
)
RULE = {rule.name: rule for rule in RULES}


@dataclass(frozen=True)
class Population:
    """Standardised noise for the D states: each column has mean 0 and variance 1."""

    law: str
    values: NDArray[np.float64]
    source: fr.sources.Source
    total: NDArray[np.float64]
    support: tuple[NDArray[np.float64], NDArray[np.float64]]
    log_p: NDArray[np.floating[Any]]

    @classmethod
    def make(cls, law: str, n_arms: int, n_rows: int, seed: int) -> Population:
        rng = np.random.default_rng([seed, n_arms, list(LAWS).index(law)])
        values = np.ascontiguousarray(LAWS[law](rng, (n_rows, n_arms)))
        values -= values.mean(axis=0)
        values /= values.std(axis=0)
        ratio = 0.97 if n_arms >= 100 else 0.8
        return cls(
            law,
            values,
            fr.sources.ArraySource(values),
            values.sum(axis=0),
            (values.min(axis=0), values.max(axis=0)),     # tight, as in the paper
            np.arange(n_arms) * math.log(ratio),
        )


@dataclass(frozen=True)
class Setting:
    """What one line of the table is about."""

    n_arms: int
    rewards: str
    sigma: float
    delta: float
    rule: str

    def rng(self, seed: int) -> np.random.Generator:
        """A generator of its own, so that a setting gives the same line whichever others are run."""
        place = [list(LAWS).index(self.rewards), list(RULE).index(self.rule)]
        return np.random.default_rng([seed, self.n_arms, *place, *np.array([self.sigma, self.delta]).view(np.uint64)])


@dataclass(frozen=True)
class Line:
    """One line of the table: a setting and what was found."""

    n_arms: int
    rewards: str
    sigma: float
    delta: float
    rule: str
    promise: str
    draws: int
    errors: int
    error: float
    error_low: float
    error_high: float
    fraction_read: float
    fraction_read_se: float
    looks: float
    warned: float


def gumbels(rng: np.random.Generator, size: tuple[int, int]) -> NDArray[np.float64]:
    """Standard Gumbel noise, as minus the log of exponentials: always finite."""
    return -np.log(rng.standard_exponential(size))


def race(
    population: Population, setting: Setting, noise: NDArray[np.float64], rng: np.random.Generator
) -> tuple[fr.RaceResult, int]:
    """One draw: the result of the race, and the exact answer for the same noise."""
    # Racing sigma * z with offset c is racing z with offset c / sigma; so one array serves every sigma.
    offset = (population.log_p + noise) / setting.sigma
    n_rows, n_arms = population.values.shape
    exact = int(np.argmax(population.total + offset))
    options = RULE[setting.rule].options
    if not options:
        lil = fr.LilUCB(n_arms, n_rows, setting.delta, population.support, offset=offset, rng=rng)
        return lil.run(population.source), exact
    support = None if options["bound"] == "normal" else population.support
    # scan_advantage=1: count what the race itself reads, as the paper does, and never turn to a full pass in order.
    finite = fr.FiniteRace(
        n_arms, n_rows, setting.delta, support=support, offset=offset, scan_advantage=1.0, rng=rng, **options
    )
    return finite.run(population.source), exact


def measure(population: Population, setting: Setting, options: argparse.Namespace, stop: threading.Event) -> Line:
    """Draw repeatedly in one setting."""
    rng = setting.rng(options.seed)
    rule = RULE[setting.rule]
    # A pilot that is not counted, of a tenth of the work, sets the number of draws: what a draw costs goes with how
    # likely it is to be wrong, so stopping by the counted draws' own cost would shift the table.
    spent, n_pilot = 0.0, 0
    while n_pilot == 0 or (n_pilot < min(50, options.draws) and spent < 0.1 * options.work):
        (noise,) = gumbels(rng, (1, setting.n_arms))
        spent += rule.cost * float(race(population, setting, noise, rng)[0].pulls.sum())
        n_pilot += 1
    n_draws = int(min(options.draws, max(FEWEST_DRAWS, options.work * n_pilot / spent)))

    # The same noise in every setting with as many states: rules are compared on the same draws.
    noises = gumbels(np.random.default_rng([options.seed, setting.n_arms]), (n_draws, setting.n_arms))
    errors = looks = warned = 0
    fraction = np.empty(n_draws)
    for k, noise in enumerate(noises):
        if stop.is_set():
            raise KeyboardInterrupt
        result, exact = race(population, setting, noise, rng)
        errors += result.best != exact
        looks += result.n_looks
        warned += bool(result.warnings)
        fraction[k] = result.fraction_read
    low, high = stats.binomtest(errors, n_draws).proportion_ci(0.95, "exact")
    return Line(
        n_arms=setting.n_arms,
        rewards=setting.rewards,
        sigma=setting.sigma,
        delta=setting.delta,
        rule=setting.rule,
        promise=rule.promise,
        draws=n_draws,
        errors=errors,
        error=errors / n_draws,
        error_low=float(low),
        error_high=float(high),
        fraction_read=float(fraction.mean()),
        fraction_read_se=float(fraction.std(ddof=1) / math.sqrt(n_draws)) if n_draws > 1 else math.nan,
        looks=looks / n_draws,
        warned=warned / n_draws,
    )


def measure_all(settings: Sequence[Setting], options: argparse.Namespace) -> Iterator[Line]:
    """Measure settings in parallel (the races leave Python's lock alone), as they finish."""
    groups: dict[tuple[int, str], list[Setting]] = defaultdict(list)
    for setting in settings:
        groups[setting.n_arms, setting.rewards].append(setting)
    stop = threading.Event()
    with ThreadPoolExecutor(options.jobs) as pool:
        try:
            for (n_arms, law), group in groups.items():
                population = Population.make(law, n_arms, options.rows, options.seed)
                group.sort(key=lambda setting: -setting.sigma)      # the long ones first
                futures = [pool.submit(measure, population, setting, options, stop) for setting in group]
                for future in as_completed(futures):
                    yield future.result()
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def print_table(lines: Sequence[Line]) -> None:
    """Print a block per D and law: a line per rule and delta, a column per sigma."""
    blocks: dict[tuple[int, str], dict[tuple[str, float], dict[float, Line]]] = defaultdict(lambda: defaultdict(dict))
    for line in lines:
        blocks[line.n_arms, line.rewards][line.rule, line.delta][line.sigma] = line
    print("share of log-factors read | share of draws that are wrong, 95 % interval / draws")
    print("!  wrong more often than delta: the interval lies above it")
    for (n_arms, law), block in blocks.items():
        sigmas = sorted({sigma for row in block.values() for sigma in row})
        heads = "".join(f"  {f'sigma {sigma:g}':<38}" for sigma in sigmas)
        print(f"\nD = {n_arms}, {law} rewards\n{'rule':<16}{'delta':>6} {heads.rstrip()}")
        for (rule, delta), row in block.items():
            cells = []
            for sigma in sigmas:
                x = row[sigma]
                mark = "!" if x.error_low > x.delta else " "
                known = f"{x.fraction_read:.4f} |{mark}{x.error:.4f} {x.error_low:.4f}-{x.error_high:.4f} / {x.draws:d}"
                cells.append(f"  {known:<38}")
            print(f"{rule:<16}{delta:>6g} {''.join(cells).rstrip()}")


def draw_figure(lines: Sequence[Line], path: Path, n_arms: int) -> None:
    """Error and share read against delta: a column of panels per sigma, two rows of panels per law."""
    lines = [line for line in lines if line.n_arms == n_arms]
    laws = [law for law in LAWS if any(line.rewards == law for line in lines)]
    sigmas = sorted({line.sigma for line in lines}, reverse=True)
    deltas = sorted({line.delta for line in lines})
    size = (1.5 + 3.1 * len(sigmas), 1.2 + 4.6 * len(laws))
    figure, panels = sheet(2 * len(laws), len(sigmas), size, sharex=True, sharey="row")
    least = min([line.error_low for line in lines if line.errors] + [deltas[0]]) / 1.5
    for i, law in enumerate(laws):
        for j, sigma in enumerate(sigmas):
            above, below = panels[2 * i][j], panels[2 * i + 1][j]
            above.plot(deltas, deltas, ":", color="0.3", label="error = delta")
            for rule in RULES:
                found = [x for x in lines if (x.rewards, x.sigma, x.rule) == (law, sigma, rule.name)]
                found.sort(key=lambda line: line.delta)
                shape = ("s", "--") if rule.marginal else ("o", "-")
                style = {"color": rule.colour, "marker": shape[0], "ls": shape[1], "lw": 1.2, "ms": 4}
                x, y = [line.delta for line in found], [line.fraction_read for line in found]
                below.plot(x, y, label=rule.name, **style)
                wrong = [line for line in found if line.errors]     # as in the paper: not shown if no error occurred
                if wrong:
                    rank = RULES.index(rule) - len(RULES) // 2      # side by side, so that intervals do not overlap
                    x, y = [line.delta * 1.04**rank for line in wrong], [line.error for line in wrong]
                    sides = [(line.error - line.error_low, line.error_high - line.error) for line in wrong]
                    above.errorbar(x, y, yerr=np.transpose(sides), capsize=2, elinewidth=0.8, **style)
            above.set(title=f"{law}, sigma = {sigma:g}", xscale="log", yscale="log", ylim=(max(least, 1e-6), 1.0))
            below.set(xscale="log", yscale="log")
            above.grid(alpha=0.3)
            below.grid(alpha=0.3)
        panels[2 * i][0].set_ylabel("share of wrong draws")
        panels[2 * i + 1][0].set_ylabel("share read")
    for panel in panels[-1]:
        panel.set_xlabel("delta")
    handles, labels = panels[1][0].get_legend_handles_labels()
    diagonal, name = panels[0][0].get_legend_handles_labels()
    kept = {label: handle for handle, label in zip(diagonal[:1] + handles, name[:1] + labels, strict=True)}
    figure.legend(kept.values(), kept.keys(), loc="outside lower center", ncols=6)
    figure.suptitle(f"D = {n_arms}: errors (95 % intervals; none shown where no draw was wrong) and log-factors read")
    figure.savefig(path, dpi=110)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the options."""
    made = parser(__doc__, "a small grid and few draws, in under a minute")
    add = made.add_argument
    add("--draws", type=int, help="most draws per setting (the paper: 10000; default 1000, quick 300)")
    add("--work", type=float, help="most rewards read per setting, weighted by what a reward costs under each rule; "
        "it ends hard settings early (default 1e8, quick 3e6; inf for no limit)")
    add("--arms", type=int, nargs="+", metavar="D", help="numbers of states (default 2 10 100, quick 10)")
    add("--rewards", nargs="+", choices=list(LAWS), default=list(LAWS), help="laws of the noise")
    add("--sigma", type=float, nargs="+", default=[1e-5, 1e-4, 1e-3, 1e-2], help="scales of the noise")
    add("--delta", type=float, nargs="+", help="promised errors (default 1e-3 to 0.1, quick 0.01 0.1)")
    add("--rules", nargs="+", choices=list(RULE), default=list(RULE), metavar="RULE", help="of: " + ", ".join(RULE))
    add("--rows", type=int, default=100_000, metavar="N", help="number of factors (default 100000)")
    add("--jobs", type=int, default=os.cpu_count() or 1, help="threads (default: one per processor)")
    options = made.parse_args(arguments)
    small = options.quick
    options.draws = options.draws or (300 if small else 1000)
    options.work = options.work or (3e6 if small else 1e8)
    options.arms = options.arms or ([10] if small else [2, 10, 100])
    options.delta = options.delta or ([0.01, 0.1] if small else [1e-3, 3e-3, 1e-2, 3e-2, 1e-1])
    least = min(options.draws, options.jobs, options.rows - 1, *(n - 1 for n in options.arms))
    if least < 1 or not min(options.work, *options.sigma) > 0 or not all(0 < delta < 1 for delta in options.delta):
        made.error("draws, jobs, work and sigma must be above 0, arms and rows at least 2, delta in (0, 1)")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiment; return the exit status."""
    options = parse(arguments)
    settings = [
        Setting(n_arms, law, sigma, delta, rule)
        for n_arms in options.arms
        for law in options.rewards
        for rule in options.rules
        for delta in options.delta
        for sigma in options.sigma
    ]
    options.output.mkdir(parents=True, exist_ok=True)
    found = {}
    measured = measure_all(settings, options)
    for line in track(measured, options.progress, "settings", len(settings), lambda x: f"D = {x.n_arms}, {x.rewards}"):
        found[Setting(line.n_arms, line.rewards, line.sigma, line.delta, line.rule)] = line
    lines = [found[setting] for setting in settings]
    print_table(lines)
    table = options.output / "discrete_sampling_synthetic.csv"
    write_table(table, [asdict(line) for line in lines])
    written = [table]
    for n_arms in options.arms:
        written.append(options.output / f"discrete_sampling_synthetic_D{n_arms}.png")
        draw_figure(lines, written[-1], n_arms)
    print("\nwrote " + ", ".join(str(path) for path in written))
    return 0


if __name__ == "__main__":
    sys.exit(main())
