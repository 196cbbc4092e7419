"""Figures 1, 2 and 3 of Mnih, Szepesvari & Audibert, "Empirical Bernstein Stopping" (2008), with newer rules beside.

    python -m papers.mnih_2008.stopping_figures --quick

Every rule estimates the same streams to a relative accuracy of 0.1 at delta 0.1. Figure 1: means of n uniforms on
[0, 1]. Figure 2: means of 10 uniforms on an interval of length 0.2 around mu. Figure 3: Bernoulli. The table tells the
mean and the standard deviation of the rewards used, and how often the accuracy was missed; it is printed, written as
``stopping_figures.csv`` and drawn. Then what the paper says about its figures is held against the numbers; the figures
themselves come without numbers but for their axes, which are drawn. Needs the ``demo`` extra (matplotlib and rich).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fastrace as fr
from papers.common import parser, sheet, track, write_table

EPSILON = DELTA = 0.1
Draw = Callable[[np.random.Generator, int], NDArray[np.float64]]

PAPER: dict[str, Callable[[], Any]] = {
    "AA": lambda: fr.AA(EPSILON, DELTA),
    "NAS": lambda: fr.NAS(EPSILON, DELTA, two_sided=False),
    "geometric NAS": lambda: fr.GeometricNAS(EPSILON, DELTA, two_sided=False),
    "EBStop": lambda: fr.EBStop(EPSILON, DELTA, spending="telescoping"),
    "EBGStop": lambda: fr.EBGStop(EPSILON, DELTA, preset="plain"),
    "EBGStop*": lambda: fr.EBGStop(EPSILON, DELTA),
}
NEWER: dict[str, Callable[[], Any]] = {
    "SRA": lambda: fr.SRA(EPSILON, DELTA),
    "TargetEBStop": lambda: fr.TargetEBStop(EPSILON, DELTA),
    "TargetBetStop": lambda: fr.TargetBetStop(EPSILON, DELTA),
    "TargetOddsStop": lambda: fr.TargetOddsStop(EPSILON, DELTA),
    "BettingStop": lambda: fr.BettingStop(EPSILON, DELTA),
}
RULES = PAPER | NEWER


@dataclass(frozen=True)
class Setting:
    """One place on the abscissa of one figure."""

    figure: int
    x: float
    mean: float
    draw: Draw

    @property
    def name(self) -> str:
        label = {1: "n", 2: "mu", 3: "mu"}[self.figure]
        return f"{label} = {self.x:g}"


def uniform_mean(low: float, high: float, n: int) -> Draw:
    """Means of n uniforms on [low, high]."""

    def draw(rng: np.random.Generator, k: int) -> NDArray[np.float64]:
        rows = max(1, 1_000_000 // n)
        parts = [rng.random((min(rows, k - start), n)).mean(axis=1) for start in range(0, k, rows)]
        out: NDArray[np.float64] = low + (high - low) * np.concatenate(parts)
        return out

    return draw


def bernoulli(p: float) -> Draw:
    return lambda rng, k: (rng.random(k) < p).astype(np.float64)


def all_settings(quick: bool) -> list[Setting]:
    found = [Setting(1, n, 0.5, uniform_mean(0, 1, n)) for n in ((1, 10) if quick else (1, 5, 10, 50, 100, 1000))]
    found += [Setting(2, mu, mu, uniform_mean(mu - 0.1, mu + 0.1, 10))
              for mu in ((0.9, 0.5) if quick else (0.9, 0.7, 0.5, 0.3, 0.1))]
    found += [Setting(3, mu, mu, bernoulli(mu)) for mu in ((0.9, 0.5) if quick else (0.99, 0.9, 0.5, 0.1, 0.05, 0.01))]
    return found


def run(setting: Setting, seed: np.random.SeedSequence) -> dict[str, tuple[int, bool]]:
    """Rewards used by every rule on one stream, and whether it missed."""
    rng = np.random.default_rng(seed)
    streams = {name: make() for name, make in RULES.items()}
    running, size = list(streams), 2048
    while running:
        x = setting.draw(rng, size)
        for name in running:
            streams[name].update_many(x)
        running = [name for name in running if not streams[name].done]
        size = min(2 * size, 1 << 20)
    return {name: (s.n_samples, not s.stopped or abs(s.estimate - setting.mean) > EPSILON * setting.mean)
            for name, s in streams.items()}


def measure(settings: Sequence[Setting], runs: int, seed: int, shown: bool) -> Iterator[dict[str, Any]]:
    """A row for every setting and rule."""
    jobs = [(setting, child) for setting, parent in zip(settings, np.random.SeedSequence(seed).spawn(len(settings)),
                                                        strict=True) for child in parent.spawn(runs)]
    found: dict[tuple[int, float, str], list[tuple[int, bool]]] = {}
    for setting, child in track(jobs, shown, "streams"):
        for name, outcome in run(setting, child).items():
            found.setdefault((setting.figure, setting.x, name), []).append(outcome)
    for setting in settings:
        star = np.mean([used for used, _ in found[setting.figure, setting.x, "EBGStop*"]])
        for name in RULES:
            used = np.array([used for used, _ in found[setting.figure, setting.x, name]], dtype=float)
            yield {
                "figure": setting.figure, "setting": setting.name, "x": setting.x, "rule": name,
                "samples": used.mean(), "std": used.std(ddof=1) if runs > 1 else 0.0,
                "missed": sum(missed for _, missed in found[setting.figure, setting.x, name]), "runs": runs,
                "EBGStop*/rule": star / used.mean(),
            }


def statements(rows: Sequence[dict[str, Any]]) -> list[tuple[str, bool, str]]:
    """What the paper says of its figures, whether it holds here, and the numbers."""
    mean = {(r["figure"], r["x"], r["rule"]): r["samples"] for r in rows}
    places = sorted({(figure, x) for figure, x, _ in mean})
    one = [p for p in places if p[0] == 1]
    flat = [mean[(*p, "NAS")] for p in one]
    starred = all(mean[(*p, "EBGStop*")] <= min(mean[(*p, name)] for name in PAPER) for p in one)
    adaptive = all(min(mean[(*p, "EBStop")], mean[(*p, "EBGStop")]) <= mean[(*p, "AA")] for p in places if p[0] < 3)
    missed = sum(r["missed"] for r in rows if r["rule"] in PAPER)
    middle = [x for figure, x in places if figure == 3 and mean[3, x, "geometric NAS"] < mean[3, x, "EBStop"]]
    nas = {x: mean[2, x, "NAS"] for figure, x in places if figure == 2}
    ratio = {x: nas[x] / mean[2, x, "EBGStop*"] for x in nas}
    ours = [mean[(*p, "EBGStop*")] / mean[(*p, "TargetEBStop")] for p in places]
    return [
        ("Figure 1: NAS does not see the variance", max(flat) - min(flat) < 0.01 * max(flat),
         f"{min(flat):.0f} to {max(flat):.0f} samples"),
        ("Figure 1: EBGStop* needs the fewest", starred, "the rules of the paper"),
        ("Figures 1 and 2: AA does not beat EBStop and EBGStop", adaptive, ""),
        ("Figure 2: NAS needs more by about 1/mu", ratio[min(ratio)] > ratio[max(ratio)],
         ", ".join(f"{x:g}: {r:.1f}" for x, r in ratio.items())),
        ("Figure 3: geometric NAS beats EBStop at intermediate means", bool(middle), f"at {middle}"),
        ("no estimate was ever off by more than epsilon", missed == 0, f"{missed} of the paper's rules"),
        ("ours: TargetEBStop needs at least 6 times fewer than EBGStop*", min(ours) >= 6,
         f"{min(ours):.2f} to {max(ours):.2f} times"),
    ]


def draw_figures(rows: Sequence[dict[str, Any]], path: Path) -> None:
    figure, (panels,) = sheet(1, 3, (16, 5))
    titles = ["1: means of n uniforms on [0, 1]", "2: mean mu, standard deviation 0.018", "3: Bernoulli"]
    for number, (panel, title) in enumerate(zip(panels, titles, strict=True), 1):
        own = [r for r in rows if r["figure"] == number]
        places = list(dict.fromkeys(r["x"] for r in own))
        for k, name in enumerate(RULES):
            points = [next(r for r in own if r["x"] == x and r["rule"] == name) for x in places]
            panel.errorbar(range(len(places)), [p["samples"] for p in points], yerr=[p["std"] for p in points],
                           color=f"C{k}", marker="o" if name in PAPER else "s", capsize=2, label=name,
                           linestyle="-" if name in PAPER else "--")
        panel.set_xticks(range(len(places)), [f"{x:g}" for x in places])
        panel.set_xlabel("n" if number == 1 else "mean")
        panel.set_title(f"Figure {title}")
        if number == 1:
            panel.set_ylim(0, 5000)         # the axes of the paper
        else:
            panel.set_yscale("log")
            panel.set_ylim(10 if number == 2 else 20, 3e5 if number == 2 else 4e7)
            panel.axhspan(1e2, 1e5 if number == 2 else 1e7, color="0.95", zorder=0)     # its labelled ticks
    panels[0].set_ylabel("samples used, mean and standard deviation")
    panels[0].legend()
    figure.savefig(path, dpi=110)


def main(arguments: Sequence[str] | None = None) -> None:
    made = parser(__doc__, "two settings of each figure and 5 streams", seed=20080705)
    made.add_argument("--runs", type=int, help="streams of each setting (100; with --quick 5)")
    options = made.parse_args(arguments)
    runs = options.runs or (5 if options.quick else 100)
    rows = list(measure(all_settings(options.quick), runs, options.seed, options.progress))
    options.output.mkdir(parents=True, exist_ok=True)
    write_table(options.output / "stopping_figures.csv", rows)
    print(f"epsilon = delta = 0.1, {runs} streams a setting; by the promise at most {DELTA * runs:g} may miss, "
          f"or {DELTA * runs + 4 * math.sqrt(DELTA * runs):.0f} by chance")
    place = None
    for row in rows:
        if place != (row["figure"], row["setting"]):
            place = (row["figure"], row["setting"])
            print(f"Figure {row['figure']}, {row['setting']}")
        print(f"  {row['rule']:<14} {row['samples']:>12.1f} +- {row['std']:>10.1f}   missed {row['missed']:>3}   "
              f"EBGStop* takes {row['EBGStop*/rule']:>6.2f} times as many")
    print("What the paper says, and what was found")
    for text, holds, numbers in statements(rows):
        print(f"  {'yes' if holds else 'NO '}  {text}" + (f" ({numbers})" if numbers else ""))
    draw_figures(rows, options.output / "stopping_figures.png")
    print(f"Table and picture: {options.output / 'stopping_figures.csv'}, {options.output / 'stopping_figures.png'}")


if __name__ == "__main__":
    main()
