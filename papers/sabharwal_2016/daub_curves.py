"""Choosing a learner without training one: every method on recorded learning curves (Sabharwal et al. 2016).

    FASTRACE_DATA=folder python -m papers.sabharwal_2016.daub_curves
    python -m papers.sabharwal_2016.daub_curves --quick

With ``lcdb_accuracy.parquet`` (LCDB 0.1.0: measured curves of up to 20 scikit-learn learners on 248 data sets) in the
data folder, each method asks the table for scores instead of training. A case is one data set and one outer split; its
learners are those measured on all sizes. Loss: validation accuracy of the best learner trained on all rows, less that
of the one chosen, in percent, as in the paper; the same on test rows beside it. Each method runs with several first
sizes; the table gives its mean loss at equal shares of the rows of training all in full (on the lower hull of its
settings). The variants were chosen with all of these data sets in view, so the two halves of the sets are shown apart:
a lead that only one half shows is chance. What the paper reports stands beside ours. ``--quick`` makes curves instead,
power laws with noise, and needs no file.

Writes ``daub_curves.csv`` (a line per method and setting) and ``daub_curves.png``. Needs the ``demo`` extra.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from fastrace import model_selection as ms
from papers import datasets
from papers.common import parser, sheet, track, write_table
from papers.sabharwal_2016._curves import LearningCurves, curves_from_frame, regret_at

Case = tuple[int, LearningCurves]
SHARES = (1 / 2, 1 / 3, 1 / 4, 1 / 6, 1 / 8, 1 / 10)
FIRSTS = (1 / 4, 1 / 6, 1 / 8, 1 / 11, 1 / 16, 1 / 23, 1 / 32, 1 / 45, 1 / 64, 1 / 91, 1 / 128, 1 / 256)
# The paper: training all in full over DAUB, for rows and CPU seconds (Table 1 in round figures), and losses (Table 2).
PAPER = {23512: ("HIGGS", "2-4", "25", 0.0), 357: ("Vehicle SensIT", "-", "16 (mean of 6)", 0.4),
         293: ("Covertype", "-", "16 (mean of 6)", 0.4)}
Make = Callable[[LearningCurves, float, int], ms.Scheduler]


def daub(ratio: float, **options: Any) -> Make:
    """As in the paper: without the limit of what training all in full costs, unless `capped`."""
    options = {"capped": False} | options
    return lambda c, first, seed: ms.DAUB(
        c.n_learners, c.n_rows, sizes=c.thin(first * c.n_rows, ratio), **options)


def halving(kind: type[ms.SuccessiveHalving], growth: float, factor: float, **options: Any) -> Make:
    return lambda c, first, seed: kind(
        c.n_learners, c.n_rows, factor=factor, sizes=c.thin(first * c.n_rows, growth), **options)


def chance(c: LearningCurves, first: float, seed: int) -> ms.Scheduler:
    return ms.RandomChoice(c.n_learners, c.n_rows, max(1, round(first * c.n_learners)), rng=seed)


def subset(c: LearningCurves, first: float, seed: int) -> ms.Scheduler:
    return ms.FixedSubset(c.n_learners, c.n_rows, int(c.sizes[np.abs(np.log(c.sizes / c.n_rows / first)).argmin()]))


class Measured(ms.Hyperband):
    """Hyperband on the measured sizes nearest to its own."""

    def __init__(self, c: LearningCurves, first: float, seed: int) -> None:
        super().__init__(c.n_learners, c.n_rows, max(1, round(first * c.n_rows)), 2.8, rng=seed)
        for k, (drawn, plan) in enumerate(self._brackets):
            sizes = [int(c.sizes[np.abs(np.log(c.sizes / n)).argmin()]) for n, _ in plan]
            self._brackets[k] = drawn, [(n, count) for n, (_, count) in zip(sizes, plan, strict=True)]


def asha(c: LearningCurves, first: float, seed: int) -> ms.Scheduler:
    return ms.ASHA(c.n_learners, c.n_rows, sizes=c.thin(first * c.n_rows, 2.8))


METHODS: dict[str, Make] = {
    "DAUB, as printed": daub(1.5, clip_slope=False),
    "DAUB": daub(1.5),
    "DAUB, no training bound": daub(1.5, training_bound=False),
    "DAUB, capped": daub(1.5, capped=True),
    "DAUB, capped, verified": daub(1.5, capped=True, verify=True),
    "DAUB r 2": daub(2.0),
    "DAUB log, r 2": daub(2.0, curve=0.0),
    "DAUB log, r 2, verified": daub(2.0, curve=0.0, verify=True),
    "DAUB curve -1/4, r 2.8": daub(2.8, curve=-0.25),
    "successive halving x2": halving(ms.SuccessiveHalving, 2.0, 2.0),
    "successive halving x2.8, thirds": halving(ms.SuccessiveHalving, 2.8, 3.0),
    "successive halving x4, quarters": halving(ms.SuccessiveHalving, 4.0, 4.0),
    "successive halving x5.6, fifths": halving(ms.SuccessiveHalving, 5.6, 5.0),
    "DAUBHalving x2": halving(ms.DAUBHalving, 2.0, 2.0),
    "DAUBHalving x2.8, thirds": halving(ms.DAUBHalving, 2.8, 3.0),
    "DAUBHalving x4, quarters": halving(ms.DAUBHalving, 4.0, 4.0),
    "DAUBHalving x5.6, fifths": halving(ms.DAUBHalving, 5.6, 5.0),
    "ASHA x2.8, thirds": asha,
    "Hyperband": Measured,
    "fixed subset": subset,
    "random": chance,
}


def recorded(folder: str | None, least_rows: int, inner_seeds: int) -> list[Case]:
    frame = datasets.read_frame("lcdb_accuracy", folder)
    largest = frame.groupby("openmlid")["size_train"].transform("max")
    frame = frame[(largest >= least_rows) & (frame["inner_seed"] < inner_seeds)]
    curves = curves_from_frame(frame, least_learners=5)
    return [(int(key[0]), c) for key, c in curves.items() if c.n_rows >= least_rows]


def made(count: int, seed: int) -> list[Case]:
    """Power laws with noise; a third of the learners climb late."""
    rng, found = np.random.default_rng(seed), []
    for k in range(count):
        n_rows = int(rng.integers(8_000, 60_000))
        sizes = np.unique(np.append((32 * 2 ** (0.5 * np.arange(30))).astype(np.int64), n_rows))
        sizes = sizes[(sizes <= n_rows) & ((sizes < 0.85 * n_rows) | (sizes == n_rows))]
        top = rng.beta(8, 2, (18, 1))
        gap = (1 - top) * rng.uniform(0.5, 3.0, (18, 1)) * (sizes / 32.0) ** -rng.uniform(0.1, 0.8, (18, 1))
        valid = np.clip(top - gap + 0.004 * rng.standard_normal((18, sizes.size)), 0.0, 1.0)
        train = np.clip(top + 0.5 * gap, 0.0, 1.0)
        cost = 1e-6 * sizes ** rng.uniform(1.0, 2.0, (18, 1))
        found.append((k, LearningCurves(sizes, valid, train, cost, valid)))
    return found


def measure(name: str, cases: list[Case], first: float) -> list[tuple[int, float, float, float, float]]:
    """For each case: the data set, the share of rows, of seconds, the loss, and the loss on test rows; percent."""
    lines = []
    for seed, (label, curves) in enumerate(cases):
        result = curves.replay(METHODS[name](curves, first, seed))
        seconds = np.nan
        if curves.seconds is not None:
            place = {int(n): k for k, n in enumerate(curves.sizes)}
            spent = sum(curves.seconds[i, place[n]] for i, n in result.allocations)
            seconds = float(spent / curves.seconds[:, -1].sum())
        lines.append((label, result.fraction, seconds, 100 * curves.loss(result.best),
                      100 * curves.loss(result.best, test=True)))
    return lines


def main() -> None:
    made_parser = parser(__doc__, "made curves, few of them", data="lcdb_accuracy.parquet")
    add = made_parser.add_argument
    add("--rows", type=int, default=8000, help="smallest data set (default: 8000 rows)")
    add("--inner-seeds", type=int, default=1, help="inner splits of each outer one (default: 1)")
    add("--methods", nargs="+", default=list(METHODS), choices=list(METHODS), metavar="NAME")
    options = made_parser.parse_args()
    if options.quick:
        cases, firsts = made(12, 7), list(FIRSTS[::3])
    else:
        try:
            cases, firsts = recorded(options.data, options.rows, options.inner_seeds), list(FIRSTS)
        except (FileNotFoundError, ImportError) as error:
            sys.exit(f"{error}\nor try --quick, which makes curves")
    labels = sorted({label for label, _ in cases})
    half = set(labels[::2])
    print(f"{len(cases)} cases from {len(labels)} data sets, "
          f"{np.mean([c.n_learners for _, c in cases]):.1f} learners each on average")

    work = [(name, first) for name in options.methods for first in firsts]
    lines: dict[tuple[str, float], list[tuple[int, float, float, float, float]]] = {}
    for name, first in track(work, options.progress, "asking the curves"):
        lines[name, first] = measure(name, cases, first)

    def table(title: str, chosen: Callable[[int], bool], column: int = 3, cost: int = 1) -> dict[str, np.ndarray]:
        what = "rows" if cost == 1 else "seconds"
        print(f"\n{title}\n{f'{what} of training all in full':34s}" + "".join(f"{f'1/{1 / s:.0f}':>8}" for s in SHARES))
        found = {}
        for name in options.methods:
            picked = [[line for line in lines[name, first] if chosen(line[0])] for first in firsts]
            found[name] = regret_at([np.mean([line[cost] for line in each]) for each in picked],
                                       [np.mean([line[column] for line in each]) for each in picked], SHARES)
            print(f"{name:34s}" + "".join(f"{'-' if np.isnan(x) else f'{x:.3f}':>8}" for x in found[name]))
        return found

    regrets = table("mean loss in % at equal rows, all data sets", lambda label: True)
    table("... on one half of the data sets", lambda label: label in half)
    table("... on the other half", lambda label: label not in half)
    table("... on test rows, all data sets", lambda label: True, 4)
    table("mean loss in % at equal seconds of training, all data sets", lambda label: True, cost=2)

    if not options.quick:
        print("\nthe paper's sets, first 500, ratio 1.5 (here: nearest measured sizes); full training over DAUB")
        print(f"{'set':16s}{'loss %':>8}{'paper':>8}{'rows x':>8}{'paper':>8}{'seconds x':>11}{'paper':>18}")
        for label, (name, rows, seconds, loss) in PAPER.items():
            for bounded in (True, False):
                own = [c for key, c in cases if key == label]
                if not own:
                    continue
                found = []
                for c in own:
                    sizes = c.thin(500, 1.5)
                    result = c.replay(ms.DAUB(c.n_learners, c.n_rows, sizes=sizes, clip_slope=False, capped=False,
                                              training_bound=bounded))
                    assert c.seconds is not None
                    numbers = {int(n): k for k, n in enumerate(c.sizes)}
                    spent = sum(c.seconds[i, numbers[n]] for i, n in result.allocations)
                    found.append((100 * c.loss(result.best), 1 / result.fraction, c.seconds[:, -1].sum() / spent))
                mean = np.mean(found, axis=0)
                what = name if bounded else "  no train. bound"
                print(f"{what:17s}{mean[0]:7.2f}{loss if bounded else '':>8}{mean[1]:8.1f}{rows if bounded else '':>8}"
                      f"{mean[2]:11.1f}{seconds if bounded else '':>18}")

    options.output.mkdir(parents=True, exist_ok=True)
    table_lines = []
    for (name, first), each in lines.items():
        a = np.array([line[1:] for line in each])
        values = (first, a[:, 0].mean(), a[:, 1].mean(), a[:, 2].mean(), np.percentile(a[:, 2], 95), a[:, 3].mean())
        names = ("first", "rows", "seconds", "loss", "loss_95", "test_loss")
        table_lines.append({"method": name} | dict(zip(names, map(float, values), strict=True)))
    write_table(options.output / "daub_curves.csv", table_lines)
    draw(regrets, lines, options)
    print(f"\nwritten to {options.output}")


def draw(regrets: dict[str, np.ndarray], lines: dict, options: argparse.Namespace) -> None:
    from matplotlib import colormaps

    # one colour scale per family, so that fifteen methods stay apart
    families = {"DAUBHalving": "Greens", "DAUB": "Blues", "successive halving": "Oranges", "": "Greys"}
    groups: dict[str, list[str]] = {family: [] for family in families}
    for name in regrets:
        groups[next(family for family in families if name.startswith(family))].append(name)
    figure, ((ax,),) = sheet(1, 1, (11, 6))
    for family, names in groups.items():
        for k, name in enumerate(names):
            points = sorted((np.mean([line[1] for line in each]), np.mean([line[3] for line in each]))
                            for (other, _), each in lines.items() if other == name)
            ax.plot(*zip(*points, strict=True), marker="osv^D<>"[k % 7], ms=5, label=name,
                    color=colormaps[families[family]](0.4 + 0.55 * k / max(1, len(names) - 1)),
                    lw=2.5 if name == "DAUBHalving x4, quarters" else 1.2)
    ax.set(xscale="log", yscale="log", xlabel="rows, over those of training all in full", ylabel="mean loss, %")
    ax.set_ylim(bottom=0.005)
    figure.legend(fontsize="small", loc="outside right upper")
    figure.savefig(options.output / "daub_curves.png", dpi=120)


if __name__ == "__main__":
    main()
