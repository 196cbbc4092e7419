"""The three figures of the paper, from trials, with LUCB beside its rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import fastrace as fr
from fastrace.pulls import BernoulliPulls
from papers.common import sheet

POLICIES = {"pi1": "uniform", "pi2": "colliding", "pi3": "hoeffding", "pi4": "tightest"}
MEANS = (0.97, 0.56, 0.48, 0.25, 0.03)      # of Figure 1; the paper names none, and says that its own is a sketch


def figure_1(seed: int, path: Path) -> list[list[Any]]:
    """Bounds of five arms, two wanted, where each policy stops: one run of each, and its error and width by arm."""
    epsilon, delta, lines = 0.1, 0.05, []
    figure, (panels,) = sheet(1, 4, (15, 4), sharey=True)
    for panel, (name, policy) in zip(panels, POLICIES.items(), strict=True):
        rule = fr.Adapt(5, 2, epsilon, delta, policy=policy, cap=False, rng=seed)
        found = rule.run(BernoulliPulls(MEANS, rng=seed))
        chosen = np.isin(np.arange(5), found.best)
        if policy in ("uniform", "colliding"):      # bounds at delta / n, by Hoeffding
            error: Any = np.full(5, delta / 5)
            width = np.sqrt(np.log(1.0 / error) / (2.0 * found.pulls))
        else:
            error, width = found.arm_error, np.abs(found.mean + epsilon * chosen - found.cutoff)
            panel.axhline(found.cutoff, color="k", lw=0.7, ls=":")
        middle = found.mean + epsilon * chosen
        for arm in range(5):
            colour = "C0" if chosen[arm] else "C3"
            end = middle[arm] - width[arm] if chosen[arm] else middle[arm] + width[arm]
            panel.plot([arm + 1, arm + 1], [middle[arm], end], color=colour, lw=3)
            panel.plot(arm + 1, middle[arm], "o", color=colour)
            panel.annotate(f"{error[arm]:.2g}, {width[arm]:.2g}", (arm + 1, max(middle[arm], end)), fontsize=7,
                           ha="center", va="bottom", xytext=(0, 4), textcoords="offset points")
            lines.append([name, arm + 1, MEANS[arm], float(found.mean[arm]), bool(chosen[arm]), int(found.pulls[arm]),
                          float(error[arm]), float(width[arm])])
        panel.set(title=f"{name}: stops after {found.n_read} pulls", xlabel="arm", xlim=(0.4, 5.6))
    panels[0].set_ylabel("mean (blue: chosen, raised by epsilon) and bound")
    figure.savefig(path, dpi=110)
    return lines


def _lines(panel: Any, moments: np.ndarray, found: Mapping[str, np.ndarray], names: Sequence[str]) -> None:
    for name in names:
        if name in found:
            wide = name in ("pi4, ADAPT", "LUCB")
            panel.plot(moments, found[name], label=name, lw=2.2 if wide else 1.1, ls="--" if name == "LUCB" else "-")
    panel.legend(fontsize=7)


def figure_2(found: Mapping[str, Mapping[str, np.ndarray]], moments: np.ndarray, delta: float, title: str, path: Path) \
        -> None:
    """Error bound and NSS against pulls, and pulls by arm, for the four policies and LUCB."""
    names = [name for name in found["nss"] if name.startswith("pi") or name == "LUCB"]
    figure, (panels,) = sheet(1, 3, (15, 4.5))
    _lines(panels[0], moments, found["bound"], names)
    panels[0].axhline(delta, color="k", lw=0.7)
    _lines(panels[1], moments, found["nss"], names)
    _by_arm(panels[2], found["pulls"], names)
    panels[0].set(xlabel="pulls", ylabel="error bound", title=f"(a) {title}")
    panels[1].set(xlabel="pulls", ylabel="normalised sum of selected means", title="(b)")
    figure.savefig(path, dpi=110)


def figure_3(found: Mapping[str, Mapping[str, np.ndarray]], moments: np.ndarray, title: str, path: Path) -> None:
    """NSS against pulls for OCBA-m and for races, beside ADAPT and uniform sampling; pulls by arm."""
    beside = ["pi1, uniform", "pi4, ADAPT"]
    figure, (panels,) = sheet(1, 3, (15, 4.5))
    for panel, kind, letter in ((panels[0], "OCBA", "a"), (panels[1], "race", "b")):
        _lines(panel, moments, found["nss"], [*beside, *(name for name in found["nss"] if name.startswith(kind))])
        panel.set(xlabel="pulls", ylabel="normalised sum of selected means", title=f"({letter}) {title}")
    _by_arm(panels[2], found["pulls"], ["pi4, ADAPT", "OCBA-m, n0 = 20", "OCBA-m, n0 = 100", "race, R = 1"])
    figure.savefig(path, dpi=110)


def _by_arm(panel: Any, pulls: Mapping[str, np.ndarray], names: Sequence[str]) -> None:
    size = len(pulls[names[0]])
    _lines(panel, np.arange(1, size + 1), pulls, names)
    panel.set(xlabel="arm, best first", ylabel="pulls", title="(c)")
