"""How many permutations decide as 99,999 fixed ones do: one hypothesis by its p-value, and 1000 at once.

    python bench/permutation_figure.py [DIR]

writes permutations.csv, permutations_many.csv and permutations.png to DIR (by default the folder ``results`` beside
this file) and prints both tables. It takes some ten seconds of one core.
"""

import csv
import pathlib
import sys
import tempfile
import time

import numpy as np
from benchmarks import permutation
from matplotlib.figure import Figure
from scipy.special import rel_entr

import fastrace as fr

N, LEVEL, RISK = permutation.N, 0.05, 0.05 / 1000
GOAL = N / 20
P_VALUES = (0.0, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.015, 0.02, 0.025, 0.03, 0.033, 0.036, 0.04, 0.043, 0.046, 0.048,
            0.049, 0.05, 0.051, 0.052, 0.054, 0.057, 0.06, 0.065, 0.07, 0.075, 0.08, 0.09, 0.1, 0.15, 0.2, 0.3, 0.5,
            0.7, 1.0)


def floor(p):
    """Wald's bound for independent draws: what any rule needs on average to be wrong with a probability of RISK.

    Next to the level it says nothing here, where no permutation is drawn twice and all of them are exact.
    """
    divergence = float(rel_entr(p, LEVEL) + rel_entr(1 - p, 1 - LEVEL))
    return min(N, np.log(1 / RISK) / divergence) if divergence > 0 else N


def one(p_values=P_VALUES):
    """A line per p-value of all permutations: what 400 runs took."""
    lines = []
    for p in p_values:
        runs = permutation.Decisions()
        runs.setup(p)
        used = runs.used
        lines.append({"p by all": p, "mean": round(used.mean()), "share": f"{100 * used.mean() / N:.2f} %",
                      "95 % quantile": int(np.quantile(used, 0.95)), "Wald's floor": round(floor(p)),
                      "other decisions of 400": int(runs.wrong.sum())})
    return lines


def null(lines):
    """Mean share of all permutations where p is uniform, by the trapezoid rule over the table."""
    mean = np.array([line["mean"] for line in lines])
    return (np.diff(P_VALUES) * (mean[1:] + mean[:-1])).sum() / (2 * N)


def many(shifts=(0.0, 0.4, 0.6, 0.8, 1.0)):
    """A line per effect of 50 of 1000 hypotheses, by Benjamini and Hochberg; and the result at 0.6, to be drawn."""
    lines = []
    for shift in shifts:
        case = permutation.ManyHypotheses()
        case.setup(shift)
        start = time.process_time()
        found = fr.permutation_test(case.data, permutation.difference, rng=1)
        took = time.process_time() - start
        start = time.process_time()
        fixed = case.by_all()
        took_all = time.process_time() - start
        lines.append({"shift": shift, "discoveries": int(found.rejected.sum()), "by all": int(fixed.sum()),
                      "decisions that differ": int((found.rejected != fixed).sum()),
                      "share of permutations": f"{100 * found.n_permutations.mean() / N:.2f} %",
                      "most of one": int(found.n_permutations.max()), "CPU s": f"{took:.2f}",
                      "by all, as matrices, CPU s": f"{took_all:.1f}"})
        if shift == 0.6:
            shown = found
    return lines, shown


def draw(lines, found, path):
    figure = Figure(figsize=(12, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    p = np.array([max(line["p by all"], 5e-5) for line in lines])
    left.loglog(p, [line["mean"] for line in lines], "o-", ms=3, label="mean of 400 runs")
    left.loglog(p, [line["95 % quantile"] for line in lines], ":", color="C0", label="95 % of runs within")
    left.loglog(p, [line["Wald's floor"] for line in lines], "k--", lw=0.8, label="Wald's bound, independent draws")
    for panel in (left, right):
        panel.axhline(N, color="0.5", lw=0.8)
        panel.axhline(GOAL, color="C3", lw=0.8, label="a twentieth of 99,999")
    left.axvline(LEVEL, color="0.7", lw=0.8)
    left.set(xlabel="p-value of all 99,999 permutations", ylabel="permutations", title="one hypothesis, level 0.05")
    value = np.clip(found.pvalue, 1e-6, 1.0)
    for rejected, colour, label in ((True, "C1", "rejected"), (False, "C0", "not rejected")):
        chosen = found.rejected == rejected
        right.loglog(value[chosen], found.n_permutations[chosen], ".", color=colour, label=label)
    right.set(xlabel="p-value at the stop", ylabel="permutations",
              title="1000 hypotheses at once, 50 of them shifted by 0.6")
    left.legend(fontsize=8)
    right.legend(fontsize=8)
    figure.savefig(path, dpi=110)


def write(lines, path):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)
    print(" | ".join(lines[0]))
    for line in lines:
        print(" | ".join(str(value) for value in line.values()))


def quick():
    lines = one((0.001, 0.5))
    table, found = many((0.6,))
    assert not any(line["other decisions of 400"] for line in lines) and table[0]["decisions that differ"] == 0
    with tempfile.TemporaryDirectory() as folder:
        write(lines, pathlib.Path(folder, "permutations.csv"))
        draw(lines, found, pathlib.Path(folder, "permutations.png"))


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "results")
    folder.mkdir(parents=True, exist_ok=True)
    lines = one()
    write(lines, folder / "permutations.csv")
    print(f"where p is uniform: {100 * null(lines):.2f} % of all permutations on average")
    table, found = many()
    write(table, folder / "permutations_many.csv")
    draw(lines, found, folder / "permutations.png")


if __name__ == "__main__":
    main()
