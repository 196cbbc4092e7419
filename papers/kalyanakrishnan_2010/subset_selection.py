"""The experiments of Kalyanakrishnan & Stone (2010), section 5, with the stronger rules beside theirs; and a real case.

    python -m papers.kalyanakrishnan_2010.subset_selection --quick

Fifty arms have means drawn uniformly from [0, 1] and uniform rewards with standard deviation 1; the best 15 are wanted
within epsilon = 0.1 at delta = 0.15. Every rule runs on the same arms:

* the four sampling policies of the paper: error bound and normalised sum of selected means (NSS) against pulls, pulls
  at which each stops, pulls of each arm (their Figure 2);
* OCBA-m with several first rounds, and the race with several horizons (their Figure 3);
* the fixed plans, LUCB with each bound, KL-LUCB and SAR;
* the small instance (10 arms, best 3, epsilon = 0) and Gaussian rewards with epsilon = 0.

Then the five best of 100 settings of a decision tree are found, where a pull is the loss on one random held-out row.

Tables are printed and written as csv beside the figures. Needs the ``demo`` extra and scikit-learn. Trials are kept in
``subset_selection_trials.csv``: a run that was cut short goes on where it stopped.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import fastrace as fr
from fastrace.pulls import ResampledPulls, UniformPulls
from papers import datasets
from papers.common import add_lines, parser, read_table, sheet, show_table, track, write_table

ROOT = math.sqrt(12.0)
EPSILON, DELTA = 0.1, 0.15
# Pulls to the stop that the paper states, roughly, for its own instance.
PAPER = {"ADAPT (pi4)": "22 000", "DIRECT": "millions", "HALVING": "millions"}


class GaussianPulls:
    """Normal rewards with standard deviation 1, cut at three of them: the support the paper assumes."""

    def __init__(self, means: np.ndarray, seed: Any) -> None:
        self.means, self.rng = means, np.random.default_rng(seed)

    def pull(self, arms: np.ndarray, counts: np.ndarray) -> np.ndarray:
        noise = np.clip(self.rng.standard_normal(int(counts.sum())), -3.0, 3.0)
        return np.repeat(self.means[arms], counts) + noise


def instance(seed: Any, n_arms: int = 50) -> np.ndarray:
    """Means of the arms, the largest first."""
    return np.sort(np.random.default_rng(seed).random(n_arms))[::-1].copy()


def nss(means: np.ndarray, best: np.ndarray) -> float:
    """Sum of the selected means, 1 for the best set and 0 for the worst."""
    order = np.sort(means)
    least, most = order[: best.size].sum(), order[-best.size :].sum()
    return float((means[best].sum() - least) / (most - least))


def rules(n_arms: int, n_best: int, epsilon: float, support: Any, budget: int) -> dict[str, Any]:
    """Constructors of every rule that is followed along the way, by name."""
    args = n_arms, n_best, epsilon, DELTA, support
    made: dict[str, Any] = {}
    for policy, name in (("uniform", "pi1 uniform"), ("colliding", "pi2"), ("hoeffding", "pi3"),
                         ("tightest", "ADAPT (pi4)")):
        if epsilon > 0.0 or policy != "uniform":
            made[name] = lambda seed, policy=policy: fr.Adapt(*args, policy=policy, cap=False, rng=seed)
    made["LUCB"] = lambda seed: fr.LUCB(*args)
    if epsilon > 0.0:
        made["LUCB, epsilon = 0"] = lambda seed: fr.LUCB(n_arms, n_best, 0.0, DELTA, support)
    for n0 in (5, 20, 100, 500):
        if 1.05 * n0 * n_arms < budget:
            made[f"OCBA-m, n0 = {n0}"] = lambda seed, n0=n0: fr.OCBA(n_arms, n_best, budget, support, n0=n0, rng=seed)
    for horizon in (1, 10, 500):
        made[f"race, R = {horizon}"] = lambda seed, horizon=horizon: fr.SubsetRace(
            n_arms, n_best, horizon, DELTA, support, beyond=True, rng=seed
        )
    return made


def follow(rule: Any, source: Any, means: np.ndarray, moments: np.ndarray) -> list[tuple[float, float]]:
    """Error bound and NSS at the given numbers of pulls; a rule that has stopped stays as it is."""
    seen = []
    for pulls in moments:
        if not rule.done:
            result = rule.run(source, int(pulls))
        seen.append((result.error_bound, nss(means, result.best)))
    return seen


class Table:
    """Lines of a csv file; those already in the file need not be made again."""

    def __init__(self, path: Path, columns: tuple[str, ...], fresh: bool) -> None:
        self.path, self.columns = path, columns
        if fresh:
            path.unlink(missing_ok=True)
        self.lines = [list(line.values()) for line in read_table(path)]

    def known(self, *key: Any) -> bool:
        """Whether there are lines that begin so."""
        words = [str(word) for word in key]
        return any(line[: len(words)] == words for line in reversed(self.lines))

    def add(self, rows: list[list[Any]]) -> None:
        """Append, to the file as well."""
        add_lines(self.path, [dict(zip(self.columns, row, strict=True)) for row in rows])
        self.lines += [[str(value) for value in row] for row in rows]


def along_the_way(name: str, table: Table, trials: int, moments: np.ndarray, seed: int, track: Any) -> dict[str, Any]:
    """Mean error bound and NSS of every rule at each moment, over trials with fresh rewards."""
    setting = {"paper": (50, 15, EPSILON), "small": (10, 3, 0.0), "gaussian": (50, 15, 0.0)}[name]
    n_arms, n_best, epsilon = setting
    means = instance([seed, n_arms], n_arms)
    low, high = (means - 3.0, means + 3.0) if name == "gaussian" else (means - ROOT / 2, means + ROOT / 2)
    for k in track(range(trials), f"{name} instance"):
        if table.known(name, k):
            continue
        rows = []
        for place, (rule, make) in enumerate(rules(n_arms, n_best, epsilon, (low, high), int(moments[-1])).items()):
            key = [seed, n_arms, k, place]
            source = GaussianPulls(means, key) if name == "gaussian" else UniformPulls(
                low, high, rng=np.random.SeedSequence(key))
            made = make(key)
            seen = follow(made, source, means, moments)
            pulls = made.result().pulls
            rows += [[name, k, rule, int(t), bound, score, ""] for t, (bound, score) in zip(moments, seen, strict=True)]
            rows.append([name, k, rule, -1, "", "", " ".join(map(str, pulls.tolist()))])
        table.add(rows)
    found: dict[str, Any] = defaultdict(lambda: {"bound": [], "nss": [], "pulls": []})
    for line in table.lines:
        if line[0] != name or int(line[1]) >= trials:
            continue
        if int(line[3]) < 0:
            found[line[2]]["pulls"].append([int(word) for word in line[6].split()])
        else:
            found[line[2]]["bound"].append(float(line[4]))
            found[line[2]]["nss"].append(float(line[5]))
    for parts in found.values():
        for what in ("bound", "nss"):
            parts[what] = np.array(parts[what]).reshape(-1, moments.size).mean(axis=0)
        parts["pulls"] = np.array(parts["pulls"]).mean(axis=0)
    return found


def to_the_stop(table: Table, trials: int, seed: int, track: Any) -> list[list[Any]]:
    """Mean pulls until each rule stops, on the fixed draw of the means and on fresh ones; and wrong answers."""
    plans = {"DIRECT": fr.Direct, "HALVING": fr.Halving, "INCREMENTAL": fr.Incremental}
    makers = {
        "pi3": lambda s, r: fr.Adapt(50, 15, EPSILON, DELTA, s, policy="hoeffding", rng=r),
        "ADAPT (pi4)": lambda s, r: fr.Adapt(50, 15, EPSILON, DELTA, s, rng=r),
        "ADAPT, anytime": lambda s, r: fr.Adapt(50, 15, EPSILON, DELTA, s, anytime=True, rng=r),
        "LUCB (default)": lambda s, r: fr.LUCB(50, 15, EPSILON, DELTA, s),
        "LUCB, split by sides": lambda s, r: fr.LUCB(50, 15, EPSILON, DELTA, s, split="sides"),
        "LUCB hoeffding-mix": lambda s, r: fr.LUCB(50, 15, EPSILON, DELTA, s, bound="hoeffding-mix"),
        "LUCB1": lambda s, r: fr.LUCB(50, 15, EPSILON, DELTA, s, bound="lucb1"),
        "KL-LUCB": lambda s, r: fr.KLLUCB(50, 15, EPSILON, DELTA, s),
    }
    proved = {"LUCB (default)", "LUCB, split by sides", "LUCB hoeffding-mix", "LUCB1", "KL-LUCB", "ADAPT, anytime"}
    for k in track(range(trials), "pulls to the stop"):
        if table.known("stop", k):
            continue
        rows = []
        for draw in ("fixed", "random"):
            means = instance([seed, 50] if draw == "fixed" else [seed, 50, k + 1])
            low, high = means - ROOT / 2, means + ROOT / 2
            for name, make in makers.items():
                result = make((low, high), [seed, k]).run(
                    UniformPulls(low, high, rng=np.random.SeedSequence([seed, k, 1])))
                missed = int(means[result.best].min() < means[14] - EPSILON - 1e-12)
                rows.append(["stop", k, name, result.n_read, draw, missed, ""])
        table.add(rows)
    lines = []
    for name, plan in plans.items():
        planned = plan(50, 15, EPSILON, DELTA, (0.0, ROOT)).planned_pulls
        lines.append([name, PAPER.get(name, ""), planned, planned, "", "yes"])
    for name in makers:
        pulls: dict[str, list[int]] = defaultdict(list)
        wrong = []
        for line in table.lines:
            if line[0] == "stop" and line[2] == name and int(line[1]) < trials:
                pulls[line[4]].append(int(line[3]))
                wrong.append(int(line[5]))
        mean = [round(sum(pulls[draw]) / len(pulls[draw])) for draw in ("fixed", "random")]
        lines.append([name, PAPER.get(name, ""), *mean, f"{sum(wrong)} of {len(wrong)}",
                      "yes" if name in proved else "no"])
    return lines


class HeldOutLoss:
    """A pull is the loss of one fitted tree on one held-out row: 1 where it is wrong."""

    def __init__(self, models: list[Any], x: np.ndarray, y: np.ndarray) -> None:
        self.models, self.x, self.y, self.predicted = models, x, y, 0

    def __call__(self, arms: np.ndarray, rows: np.ndarray) -> np.ndarray:
        out = np.empty((rows.size, arms.size))
        for k, arm in enumerate(arms):
            out[:, k] = self.models[arm].predict(self.x[rows]) == self.y[rows]
        self.predicted += out.size
        return out


def real_case(args: Any, track: Any) -> tuple[list[list[Any]], fr.SelectionResult]:
    """The five best of 100 settings of a decision tree, from few predictions."""
    from sklearn.datasets import make_classification
    from sklearn.tree import DecisionTreeClassifier

    quick, seed = args.quick, args.seed
    try:
        data = datasets.load("covertype", args.data)
        x, y, name = np.asarray(data.X, dtype=np.float32), np.asarray(data.y), "covertype"
    except (ImportError, OSError, ValueError):
        size = 30_000 if quick else 200_000
        x, y = make_classification(size, 30, n_informative=12, n_classes=4, flip_y=0.05, random_state=seed)
        x, name = x.astype(np.float32), "made data"
    order = np.random.default_rng(seed).permutation(len(y))
    n_train = 2000 if quick else 20_000
    train, held = order[:n_train], order[n_train : n_train + (20_000 if quick else len(order))]
    depths, leaves = (2, 3, 4, 5, 6, 8, 10, 13, 17, 25), (1, 2, 3, 5, 8, 13, 20, 40, 80, 160)
    settings = [(depth, leaf) for depth in depths for leaf in leaves]
    models = [
        DecisionTreeClassifier(max_depth=depth, min_samples_leaf=leaf, random_state=0).fit(x[train], y[train])
        for depth, leaf in track(settings, "fitting 100 trees")
    ]
    x, y = np.ascontiguousarray(x[held]), y[held]
    truth = np.array([np.mean(model.predict(x) == y) for model in track(models, "reading everything, for the truth")])
    epsilon = 0.1 if quick else 0.01
    worst = np.sort(truth)[-5] - epsilon
    lines: list[list[Any]] = []
    methods: dict[str, dict[str, Any]] = {"lucb": {"batch": 256}, "adapt": {"batch": 0.05}, "sar": {}}
    for method, options in methods.items():
        loss = HeldOutLoss(models, x, y)
        source = ResampledPulls(loss, rng=seed, n_arms=100, n_rows=len(y))
        spend = lines[0][2] if method == "sar" else None
        start = time.perf_counter()
        result = fr.select_best(source, 100, 5, epsilon, 0.05, method=method, max_pulls=spend, rng=seed, **options)
        took = time.perf_counter() - start
        share = result.n_read / (100 * len(y))
        lines.append([f"{method}, {name}", f"{100 * share:.2f} %", result.n_read, f"{took:.1f}",
                      " ".join("depth {}, leaf {};".format(*settings[i]) for i in np.atleast_1d(result.best)),
                      "yes" if truth[result.best].min() >= worst else "no"])
        if method == "lucb":
            shown = result
    return lines, shown


def show(title: str, head: list[str], lines: list[list[Any]], path: Path) -> None:
    """Print a table and write it."""
    show_table(title, head, lines)
    write_table(path, [dict(zip(head, line, strict=True)) for line in lines])


def draw(found: dict[str, Any], moments: np.ndarray, title: str, path: Path) -> None:
    """Error bound, NSS and pulls of each arm, a line per rule."""
    figure, (panels,) = sheet(1, 3, (15, 4.5))
    for name, parts in found.items():
        style: dict[str, Any] = {"lw": 2.2} if "LUCB" in name or "pi4" in name else {"lw": 1.0}
        style["ls"] = "--" if "OCBA" in name else ":" if "race" in name else "-"
        if np.isfinite(parts["bound"]).all():
            panels[0].plot(moments, parts["bound"], label=name, **style)
        panels[1].plot(moments, parts["nss"], label=name, **style)
        panels[2].plot(np.arange(1, parts["pulls"].size + 1), parts["pulls"], label=name, **style)
    panels[0].axhline(DELTA, color="k", lw=0.7)
    panels[0].set(xlabel="pulls", ylabel="error bound", title=title)
    panels[1].set(xlabel="pulls", ylabel="normalised sum of selected means", ylim=(0.9, 1.002))
    panels[2].set(xlabel="arm, best first", ylabel="pulls")
    panels[2].legend(fontsize=7)
    figure.savefig(path, dpi=110)


def main() -> None:
    made = parser(__doc__, "few trials and a small table of data", seed=2010, data="covertype", fresh="run trials")
    made.add_argument("--trials", type=int, help="trials of every experiment (default 1000, quick 2)")
    args = made.parse_args()
    trials = args.trials or (2 if args.quick else 1000)
    args.output.mkdir(parents=True, exist_ok=True)

    def bar(items: Sequence[Any], title: str) -> Iterator[Any]:
        return track(items, args.progress, title)

    head = ("experiment", "trial", "rule", "pulls", "bound", "nss", "pulls_of_arms")
    suffix = "_quick" if args.quick else ""
    table = Table(args.output / f"subset_selection_trials{suffix}.csv", head, args.fresh or args.quick)
    moments = np.linspace(30_000 / (6 if args.quick else 30), 30_000, 6 if args.quick else 30).astype(int)
    for name, title in (("paper", "50 arms, best 15, epsilon 0.1"), ("small", "10 arms, best 3, epsilon 0"),
                        ("gaussian", "50 Gaussian arms, best 15, epsilon 0")):
        if args.quick and name == "gaussian":
            continue
        found = along_the_way(name, table, trials, moments, args.seed, bar)
        draw(found, moments, title, args.output / f"subset_selection_{name}{suffix}.png")
        half = moments.size // 2 - 1
        lines = [[rule, float(parts["nss"][half]), float(parts["nss"][-1]), float(parts["bound"][-1]),
                  int(parts["pulls"].max())] for rule, parts in found.items()]
        show(f"{title}: {trials} trials, the paper has the order pi4 > pi3 > pi2 > pi1",
             ["rule", f"NSS at {moments[half]}", "NSS at 30000", "error bound at 30000", "most pulls of an arm"],
             lines, args.output / f"subset_selection_{name}{suffix}.csv")
    lines = to_the_stop(table, max(1, trials // 2) if args.quick else trials // 5 or 1, args.seed, bar)
    show("Pulls to the stop, 50 arms", ["rule", "paper", "fixed means", "fresh means", "wrong", "proof"], lines,
         args.output / f"subset_selection_stop{suffix}.csv")
    lines, result = real_case(args, bar)
    show("Five best of 100 decision trees; a pull is the loss on a random held-out row",
         ["rule", "of all predictions", "pulls", "seconds", "settings", "within epsilon"], lines,
         args.output / f"subset_selection_trees{suffix}.csv")
    panels = result.plot()
    panels[0].figure.savefig(args.output / f"subset_selection_trees{suffix}.png", dpi=110)


if __name__ == "__main__":
    main()
