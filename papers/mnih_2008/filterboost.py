"""FilterBoost with stopping rules on Adult and Covertype, as in Figure 4 of Mnih, Szepesvari & Audibert (2008).

    python -m papers.mnih_2008.filterboost --quick

Each round of boosting draws examples until a stopping rule knows the edge of some decision stump to a relative accuracy
tau. The script counts, round by round and under every rule, the rows that were drawn and the examples among them that
passed the filter: 10 runs on the training part of Adult, and 10-fold cross-validation on Covertype (Lodgepole pine
against the rest), epsilon = delta = 0.1, tau = 0.25, attributes cut into five bins of equal width. ``--quick`` uses
data that scikit-learn brings along.

Prints a table per data set, beside what the paper says; writes ``filterboost.csv`` (a line per round) and
``filterboost.png``. Runs that are in the csv file already are not made again, unless ``--fresh``. Needs the extras
``sklearn``, ``data`` and ``demo``; the two sets come from the folder in FASTRACE_DATA or ``--data``, or with
``--download`` from the internet.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastrace.boosting import FilterBoostClassifier
from papers import datasets
from papers.common import add_lines, parser, read_table, settings, sheet, track, write_table

RULES = {      # name and colour
    "nas": ("NAS", "C0"),
    "geometric-nas": ("Geo NAS", "C1"),
    "ebgstop": ("EBGStop", "C2"),
    "ebgstop-star": ("EBGStop*", "C4"),
    "target-eb": ("TargetEB (ours)", "C3"),
}
FEWEST = "fewest samples and least spread by EBGStop; NAS needs most; axis of samples per round to"
PAPER = {
    "adult": f"Figure 4a: {FEWEST} 600 000; accuracies within 0.2 %",
    "covertype": f"Figure 4b: {FEWEST} 1 400 000; accuracies within 0.04 %",
}
COLUMNS = ("data", "rule", "run", "round", "samples", "read", "edge", "accuracy", "seconds", "settings")


@dataclass(frozen=True)
class Task:
    """A two-class problem, and how to part it."""

    name: str
    X: NDArray[np.generic]
    y: NDArray[np.int8]
    words: NDArray[np.bool_]                # columns that hold codes of words
    test: tuple[NDArray[np.generic], NDArray[np.int8]] | None = None

    def parts(self, run: int, n_runs: int, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp] | None]:
        """Rows to learn from, and rows to test on: a fold, or None if there is a test set."""
        if self.test is not None:
            return np.arange(len(self.y)), None
        fold = np.random.default_rng([seed, 7]).permutation(len(self.y)) % n_runs
        return np.flatnonzero(fold != run), np.flatnonzero(fold == run)


def load(name: str, options: argparse.Namespace) -> Task:
    """A data set by name."""
    data = datasets.load(name, options.data, download=options.download)
    words = np.array([column in data.categories for column in data.names])
    if name == "covertype":
        data = data.one_against_rest(2)
    elif name == "digits":
        data = datasets.Dataset(data.X, np.asarray(data.y) % 2, data.names, None, data.source)
    X = data.X.astype(np.float32)
    if name == "adult" and data.split is not None:
        train, test = data.split == "train", data.split == "test"
        return Task(name, X[train], data.y[train], words, (X[test], data.y[test]))
    return Task(name, X, data.y, words)


def boost(task: Task, rule: str, run: int, options: argparse.Namespace) -> list[dict[str, str]]:
    """One run: a line per round."""
    learn, hold = task.parts(run, options.runs, options.seed)
    model = FilterBoostClassifier(
        n_estimators=options.rounds, epsilon=options.epsilon, delta=options.delta, tau=options.tau, rule=rule,
        selection=options.selection, binning=options.binning, categorical_features=task.words, full_pass="never",
        max_samples=options.max_samples, random_state=1000 * options.seed + run,
    )
    begin = time.perf_counter()
    model.fit(task.X[learn], task.y[learn])
    seconds = time.perf_counter() - begin
    X, y = (task.X[hold], task.y[hold]) if hold is not None else (task.test or (task.X, task.y))
    right = [float(np.mean(answer == y)) for answer in model.staged_predict(X)]
    return [
        {
            "data": task.name, "rule": rule, "run": str(run), "round": str(t + 1), "samples": str(model.n_samples_[t]),
            "read": str(model.n_samples_read_[t]), "edge": f"{model.estimator_edges_[t]:.6g}",
            "accuracy": f"{right[t]:.6f}", "seconds": f"{seconds:.4g}", "settings": settings(options, *KEPT),
        }
        for t in range(model.n_iter_)
    ]


KEPT = ("epsilon", "delta", "tau", "rounds", "runs", "selection", "binning", "max_samples", "seed")


def known(path: Path, options: argparse.Namespace) -> dict[tuple[str, str, int], list[dict[str, str]]]:
    """Runs that the csv file already holds in full, with these settings."""
    found: dict[tuple[str, str, int], list[dict[str, str]]] = {}
    for line in [] if options.fresh else read_table(path):
        if line["settings"] == settings(options, *KEPT):
            found.setdefault((line["data"], line["rule"], int(line["run"])), []).append(line)
    return found


def measure(path: Path, options: argparse.Namespace) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """All runs, each written to the csv file as soon as it is done."""
    found = known(path, options)
    write_table(path, [line for lines in found.values() for line in lines], COLUMNS)
    for name in options.sets:
        task: Task | None = None
        for run in range(options.runs):
            for rule in options.rules:
                lines = found.get((name, rule, run), [])
                if not lines:
                    task = task or load(name, options)
                    lines = boost(task, rule, run, options)
                    add_lines(path, lines)
                yield f"{name}, {RULES[rule][0]}", lines


def by_round(runs: list[list[dict[str, str]]], column: str, n_rounds: int) -> NDArray[np.float64]:
    """A number per run and round; nan where a run had ended."""
    table = np.full((len(runs), n_rounds), np.nan)
    for line, run in zip(table, runs, strict=True):
        line[: len(run)] = [float(entry[column]) for entry in run]
    return table


def print_table(name: str, runs: dict[str, list[list[dict[str, str]]]], options: argparse.Namespace) -> None:
    """Rows drawn in some rounds and in all, and accuracies."""
    shown = sorted({1, min(5, options.rounds), min(10, options.rounds), options.rounds})
    heads = "".join(f"{f'round {t}':>20}" for t in shown)
    print(f"\n{name}, {options.runs} runs: rows drawn per round, mean and standard deviation")
    print(f"{'rule':<17}{heads}{'all rounds':>13}{'that passed':>13}{'accuracy, %':>16}{'fit, s':>9}")
    accuracies = []
    for rule, found in runs.items():
        drawn = by_round(found, "read", options.rounds)
        cells = []
        for t in shown:
            there = drawn[:, t - 1][~np.isnan(drawn[:, t - 1])]
            cells.append(f"{there.mean():>11.0f} +-{there.std():>7.0f}" if there.size else f"{'-':>20}")
        passed = np.nansum(by_round(found, "samples", options.rounds), axis=1).mean()
        last = np.array([float(run[-1]["accuracy"]) for run in found if run])
        seconds = np.mean([float(run[-1]["seconds"]) for run in found if run])
        accuracies.append(last.mean())
        print(f"{RULES[rule][0]:<17}{''.join(cells)}{np.nansum(drawn, axis=1).mean():>13.0f}{passed:>13.0f}"
              f"{100 * last.mean():>9.2f} +-{100 * last.std():>5.2f}{seconds:>9.2f}")
    print(f"accuracies within {100 * (max(accuracies) - min(accuracies)):.2f} % of each other")
    if name in PAPER:
        print(f"paper, {PAPER[name]}")


def draw_figure(found: dict[str, dict[str, list[list[dict[str, str]]]]], path: Path, n_rounds: int) -> None:
    """Rows drawn per round under every rule: a panel per data set, error bars of one standard deviation."""
    figure, panels = sheet(1, len(found), (6.5 * len(found), 5.0))
    for panel, (name, runs) in zip(panels[0], found.items(), strict=True):
        for k, (rule, lines) in enumerate(runs.items()):
            drawn = by_round(lines, "read", n_rounds)
            rounds = np.flatnonzero((~np.isnan(drawn)).any(axis=0))
            words, colour = RULES[rule]
            panel.errorbar(rounds + 1 + 0.06 * (k - 2), np.nanmean(drawn[:, rounds], axis=0),
                           np.nanstd(drawn[:, rounds], axis=0), label=words, color=colour, marker="o", ms=4,
                           capsize=2, lw=1.2, elinewidth=0.8)
        panel.set(title=name, xlabel="round", ylabel="rows drawn in the round", yscale="log")
        panel.grid(alpha=0.3)
        panel.legend()
    figure.suptitle("FilterBoost: rows drawn until the edge of a stump is known")
    figure.savefig(path, dpi=110)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the options."""
    made = parser(__doc__, "3 runs of 5 rounds on sets that scikit-learn brings along", data="adult and covertype",
                  download=True, fresh="make all runs")
    add = made.add_argument
    add("--sets", nargs="+", metavar="NAME", help="adult, covertype (default), breast_cancer, digits (quick)")
    add("--rules", nargs="+", choices=list(RULES), default=list(RULES), metavar="RULE", help="of: " + ", ".join(RULES))
    add("--runs", type=int, help="runs, or folds of cross-validation (default 10, quick 3)")
    add("--rounds", type=int, help="rounds of boosting (default 15, quick 5)")
    add("--epsilon", type=float, default=0.1, help="error below which boosting may stop")
    add("--delta", type=float, default=0.1, help="probability of a mistake")
    add("--tau", type=float, default=0.25, help="relative accuracy of the edges")
    add("--selection", choices=("first", "leader"), default="first", help="when a round ends")
    add("--binning", choices=("uniform", "quantile"), default="uniform", help="five bins of equal width or counts")
    add("--max-samples", type=int, help="most rows read in a run")
    options = made.parse_args(arguments)
    options.sets = options.sets or (["breast_cancer", "digits"] if options.quick else ["adult", "covertype"])
    options.runs = options.runs or (3 if options.quick else 10)
    options.rounds = options.rounds or (5 if options.quick else 15)
    if options.runs < 2 or options.rounds < 1:
        made.error("at least 2 runs and 1 round are needed")
    if not all(0 < value < 1 for value in (options.epsilon, options.delta, options.tau)):
        made.error("epsilon, delta and tau must be in (0, 1)")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiment; return the exit status."""
    options = parse(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    table, picture = options.output / "filterboost.csv", options.output / "filterboost.png"
    runs = measure(table, options)
    found: dict[str, dict[str, list[list[dict[str, str]]]]] = {}
    total = len(options.sets) * options.runs * len(options.rules)
    try:
        for _, lines in track(runs, options.progress, "runs", total, words=lambda run: run[0]):
            if lines:
                found.setdefault(lines[0]["data"], {}).setdefault(lines[0]["rule"], []).append(lines)
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 1
    for name, by_rule in found.items():
        print_table(name, by_rule, options)
    draw_figure(found, picture, options.rounds)
    print(f"\nwrote {table}, {picture}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
