"""The experiments of Kalyanakrishnan & Stone (2010), section 5, and decision trees, with stronger rules beside theirs.

    python -m papers.kalyanakrishnan_2010.subset_selection --quick

Fifty arms have means drawn uniformly from [0, 1] and uniform rewards with standard deviation 1; the best 15 are wanted
within epsilon = 0.1 at delta = 0.15. Every rule runs on the same arms:

* where each of the four policies stops on five arms (their Figure 1);
* the four policies: error bound and normalised sum of selected means (NSS) against pulls, pulls of each arm (Figure 2);
* OCBA-m with several first rounds, and the race with several horizons (Figure 3);
* the small instance (10 arms, best 3, epsilon = 0) and Gaussian rewards with epsilon = 0;
* the same of 100 settings of a decision tree on Covertype: a pull is whether its answer is right on one random held-out
  row, and the best five are wanted within epsilon = 0.02. The trees are trained once and their answers kept;
* pulls to the stop, of every rule that stops.

Tables are printed and written as csv beside the figures; one of them holds what the paper says of its figures against
what was measured. Needs the ``demo`` extra and scikit-learn. Trials are kept: a run that was cut short goes on where it
stopped.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import fastrace as fr
from fastrace.pulls import BernoulliPulls, RecordedPulls, UniformPulls
from papers.common import parser, save_arrays, show_table, track, write_table
from papers.kalyanakrishnan_2010 import _figures, _trees

ROOT = math.sqrt(12.0)
EPSILON, DELTA = 0.1, 0.15
N_MOMENTS = 30
KEPT_EVERY = 20         # trials
GO_ON = 1e-12           # the paper's curves go on below delta; the levels of pi3 and pi4 do not depend on it
# The paper does not give its means. Of 300 draws with the seed 2010, ADAPT needs the fewest pulls on this one, 24,900,
# which is nearest to the paper's 22,000; the median is 46,300.
ALIKE = 84
# Pulls to the stop that the paper states, roughly, for its own instance.
PAPER = {"ADAPT (pi4)": "22 000", "DIRECT": "millions", "HALVING": "millions"}


@dataclass(frozen=True)
class Case:
    """An instance: its arms, the largest mean first, and what is asked of a rule."""

    name: str
    title: str
    n_best: int
    epsilon: float
    budget: int
    means: np.ndarray
    support: tuple[float, float]                        # about the mean, or of the rewards
    source: Callable[[np.ndarray, Any], Any] = field(repr=False)    # of means and a seed
    about_mean: bool = True
    batch: int = field(default=1, repr=False)           # pulls per decision; 1 in the paper

    def support_of(self, means: np.ndarray) -> Any:
        return (means + self.support[0], means + self.support[1]) if self.about_mean else self.support


def instance(seed: Any, n_arms: int = 50) -> np.ndarray:
    """Means of the arms, the largest first."""
    return np.sort(np.random.default_rng(seed).random(n_arms))[::-1].copy()


def uniform_pulls(means: np.ndarray, seed: Any) -> UniformPulls:
    return UniformPulls(means - ROOT / 2, means + ROOT / 2, rng=np.random.SeedSequence(seed))


@functools.lru_cache(maxsize=1)
def _normals(trial: tuple[int, ...], n_arms: int) -> np.ndarray:
    return np.clip(np.random.default_rng(trial).standard_normal((30_000, n_arms)), -3.0, 3.0)


def gaussian_pulls(means: np.ndarray, seed: Any) -> RecordedPulls:
    """Normal rewards with standard deviation 1, cut at three of them: the support the paper assumes.

    They are drawn beforehand, the same for all rules of a trial: a call of Python for each pull would take ten times as
    long.
    """
    return RecordedPulls(_normals(tuple(seed[:4]), means.size) + means)


def bernoulli_pulls(means: np.ndarray, seed: Any) -> BernoulliPulls:
    """Rows of a table of zeros and ones, drawn with replacement, have this law; a row of its own for every pull."""
    return BernoulliPulls(means, rng=np.random.SeedSequence(seed))


def cases(seed: int, trees: tuple[np.ndarray, str] | None) -> list[Case]:
    """The instances of the paper, and the trees."""
    ends = -ROOT / 2, ROOT / 2
    made = [
        Case("paper", "50 arms, best 15, epsilon 0.1", 15, EPSILON, 30_000, instance([seed, 50]), ends, uniform_pulls),
        Case("alike", "50 arms, best 15, epsilon 0.1, means far apart at the cut", 15, EPSILON, 30_000,
             instance([seed, 50, ALIKE]), ends, uniform_pulls),
        Case("small", "10 arms, best 3, epsilon 0", 3, 0.0, 30_000, instance([seed, 10], 10), ends, uniform_pulls),
        Case("gaussian", "50 Gaussian arms, best 15, epsilon 0", 15, 0.0, 30_000, instance([seed, 50]), (-3.0, 3.0),
             gaussian_pulls),
    ]
    if trees is not None:
        means = np.sort(trees[0].mean(axis=0))[::-1].copy()
        made.append(Case("trees", f"100 trees on {trees[1]}, best 5, epsilon 0.02", 5, 0.02, 300_000, means, (0.0, 1.0),
                         bernoulli_pulls, about_mean=False, batch=50))
    return made


def nss(means: np.ndarray, best: np.ndarray) -> float:
    """Sum of the selected means, 1 for the best set and 0 for the worst."""
    order = np.sort(means)
    least, most = order[: best.size].sum(), order[-best.size :].sum()
    return float((means[best].sum() - least) / (most - least))


def rules(case: Case, support: Any) -> dict[str, Callable[[Any], Any]]:
    """Constructors of every rule that is followed along the way, by name; each takes a seed."""
    n_arms, n_best, epsilon = len(case.means), case.n_best, case.epsilon
    made: dict[str, Any] = {}
    for policy, name in (("uniform", "pi1, uniform"), ("colliding", "pi2"), ("hoeffding", "pi3"),
                         ("tightest", "pi4, ADAPT")):
        least = max(epsilon, 1e-6) if policy == "uniform" else epsilon      # which pulls it makes is the same
        delta = DELTA if policy in ("uniform", "colliding") else GO_ON
        made[name] = lambda seed, policy=policy, least=least, delta=delta: fr.Adapt(
            n_arms, n_best, least, delta, support, policy=policy, cap=False, batch=case.batch, rng=seed)
    made["LUCB"] = lambda seed: fr.LUCB(n_arms, n_best, epsilon, DELTA, support)
    if epsilon > 0.0:
        made["LUCB, epsilon = 0"] = lambda seed: fr.LUCB(n_arms, n_best, 0.0, DELTA, support)
    for n0 in (5, 20, 100, 500):
        made[f"OCBA-m, n0 = {n0}"] = lambda seed, n0=n0: fr.OCBA(
            n_arms, n_best, case.budget, support, n0=n0, batch=case.batch, rng=seed)
    for horizon in (1, 10, 500):
        made[f"race, R = {horizon}"] = lambda seed, horizon=horizon: fr.SubsetRace(
            n_arms, n_best, horizon, DELTA, support, beyond=True, rng=seed
        )
    return made


class Trials:
    """Arrays with a row per trial, written to a file every few trials; what an earlier run left is not made again."""

    def __init__(self, path: Path, trials: int, made_of: str, fresh: bool, every: int = KEPT_EVERY) -> None:
        self.path, self.trials, self.made_of, self.every = path, trials, made_of, every
        self.rows: list[dict[str, np.ndarray]] = []
        if path.exists() and not fresh:
            with np.load(path) as kept:
                if str(kept["made_of"]) == made_of:
                    arrays = {name: kept[name] for name in kept.files if name != "made_of"}
                    count = len(next(iter(arrays.values())))
                    self.rows = [{name: array[k] for name, array in arrays.items()} for k in range(count)]

    def run(self, trial: Callable[[int], dict[str, np.ndarray]], bar: Any, title: str) -> dict[str, np.ndarray]:
        for k in bar(range(self.trials), title):
            if k >= len(self.rows):
                self.rows.append(trial(k))
                if len(self.rows) % self.every == 0 or k == self.trials - 1:
                    save_arrays(self.path, made_of=self.made_of, **self._arrays(len(self.rows)))
        return self._arrays(self.trials)

    def _arrays(self, count: int) -> dict[str, np.ndarray]:
        return {name: np.stack([row[name] for row in self.rows[:count]]) for name in self.rows[0]}


def follow(case: Case, seed: int, moments: np.ndarray) -> Callable[[int], dict[str, np.ndarray]]:
    """A trial: error bound and NSS of every rule at the moments, and its pulls by arm.

    Arms are numbered anew in every trial, so that ties, which go to the lower number, favour nobody.
    """
    n_arms = len(case.means)

    def trial(k: int) -> dict[str, np.ndarray]:
        key = [seed, n_arms, case.n_best, k]
        order = np.random.default_rng(key).permutation(n_arms)
        means = case.means[order]
        made = rules(case, case.support_of(means))
        bound, score = np.empty((2, len(made), moments.size))
        pulls = np.zeros((len(made), n_arms), np.int32)
        for place, (name, make) in enumerate(made.items()):
            rule, source = make([*key, place]), case.source(means, [*key, place, 1])
            step = 5 if name.startswith("LUCB") else 1      # its answer has intervals, which take longer than its pulls
            seen = moments[step - 1::step]
            points = np.empty((2, seen.size))
            for i, moment in enumerate(seen):
                if i == 0 or not rule.done:
                    result = rule.run(source, int(moment))
                points[:, i] = result.error_bound, nss(means, result.best)
            bound[place], score[place] = (np.interp(moments, seen, row, left=np.nan) for row in points)
            pulls[place, order] = result.pulls
        return {"bound": bound.astype(np.float32), "nss": score.astype(np.float32), "pulls": pulls}

    return trial


def stopping(case: Case) -> dict[str, Callable[[Any, Any], Any]]:
    """Constructors of the rules that stop, by name; each takes a support and a seed."""
    args = len(case.means), case.n_best, case.epsilon, DELTA
    return {
        "pi3": lambda s, r: fr.Adapt(*args, s, policy="hoeffding", rng=r),
        "ADAPT (pi4)": lambda s, r: fr.Adapt(*args, s, rng=r),
        "ADAPT, anytime": lambda s, r: fr.Adapt(*args, s, anytime=True, rng=r),
        "LUCB (default, by pairs)": lambda s, r: fr.LUCB(*args, s),
        "LUCB, intervals": lambda s, r: fr.LUCB(*args, s, rule="intervals"),
        "LUCB, intervals, hoeffding-mix": lambda s, r: fr.LUCB(*args, s, bound="hoeffding-mix"),
        "LUCB1": lambda s, r: fr.LUCB(*args, s, bound="lucb1"),
        "KL-LUCB": lambda s, r: fr.KLLUCB(*args, s),
    }


UNPROVED = ("pi3", "ADAPT (pi4)")


def stop(case: Case, seed: int) -> Callable[[int], dict[str, np.ndarray]]:
    """A trial: pulls to the stop, and whether the answer is wrong, on the means of the case and on fresh ones."""
    makers = stopping(case)
    draws = ("fixed",) if case.name == "trees" else ("fixed", "fresh")

    def trial(k: int) -> dict[str, np.ndarray]:
        pulls, missed = np.zeros((len(makers), len(draws)), np.int64), np.zeros((len(makers), len(draws)), bool)
        for j, draw in enumerate(draws):
            given = case.means if draw == "fixed" else instance([seed, 50, k + 1])
            means = given[np.random.default_rng([seed, k, j]).permutation(given.size)]
            least = np.sort(means)[-case.n_best] - case.epsilon - 1e-12
            for i, make in enumerate(makers.values()):
                result = make(case.support_of(means), [seed, k]).run(case.source(means, [seed, k, 1]))
                pulls[i, j], missed[i, j] = result.n_read, means[result.best].min() < least
        return {"pulls": pulls, "missed": missed}

    return trial


def stop_lines(case: Case, found: dict[str, np.ndarray]) -> list[list[Any]]:
    """The table of `stop`, the fixed plans first."""
    args = len(case.means), case.n_best, case.epsilon, DELTA, (0.0, case.support[1] - case.support[0])
    lines: list[list[Any]] = []
    paper = {} if case.name == "trees" else PAPER
    for name, plan in {"DIRECT": fr.Direct, "HALVING": fr.Halving, "INCREMENTAL": fr.Incremental}.items():
        lines.append([name, paper.get(name, ""), plan(*args).planned_pulls, "", "", "", "yes"])
    for i, name in enumerate(stopping(case)):
        pulls, missed = found["pulls"][:, i], found["missed"][:, i]
        error = pulls[:, 0].std(ddof=1) / math.sqrt(len(pulls)) if len(pulls) > 1 else math.nan
        fresh = round(pulls[:, 1].mean()) if pulls.shape[1] > 1 else ""
        lines.append([name, paper.get(name, ""), round(pulls[:, 0].mean()), f"{error:.0f}", fresh,
                      f"{missed.sum()} of {missed.size}", "no" if name in UNPROVED else "yes"])
    return lines


def claims(found: dict[str, dict[str, Any]], stops: np.ndarray, on: str) -> list[list[Any]]:
    """What the paper says of its figures, and what the trials say, those of its instance on the case `on`."""
    from scipy.stats import ttest_ind

    lines: list[list[Any]] = []

    def last(case: str, rule: str, i: int = -1) -> np.ndarray:
        return np.asarray(found[case]["trials"]["nss"][rule][:, i], float)

    def ahead(case: str, over: Sequence[str], under: Sequence[str]) -> str:
        """Least mean of the one group, greatest of the other, and the largest p of all pairs."""
        def p_value(a: np.ndarray, b: np.ndarray) -> float:
            if a.std() + b.std() < 1e-9:
                return float(a.mean() <= b.mean())
            return float(ttest_ind(a, b, equal_var=False, alternative="greater").pvalue)

        p = max(p_value(last(case, a), last(case, b)) for a in over for b in under)
        least, most = min(last(case, a).mean() for a in over), max(last(case, b).mean() for b in under)
        return f"{least:.4f} against {most:.4f}, p {p:.1g}"

    bound = found[on]["trials"]["bound"]
    reached = {name: float((bound[name][:, -1] <= DELTA).mean()) for name in bound if name.startswith("pi")}
    lines.append(["2a", "only pi4 reaches delta within 30,000 pulls",
                  ", ".join(f"{name.split(',')[0]} {100 * share:.1f} %" for name, share in reached.items())])
    lines.append(["2a", "pi4 needs roughly 22,000 pulls (on means that it does not give)",
                  f"{stops[:, 1, 0].mean():.0f} on these, {stops[:, 1, 1].mean():.0f} on fresh ones"])
    four = [name for name in bound if name.startswith("pi")]
    lines.append(["2a", "error bounds in the order pi4, pi3, pi2, pi1, at 30,000",
                  ", ".join(f"{bound[name][:, -1].mean():.3g}" for name in four[::-1])])
    lines.append(["2b", "NSS of pi3 and pi4 above pi1 and pi2 at 30,000, p < 0.0001", ahead(on, four[2:], four[:2])])
    pulls = found[on]["pulls"]
    lines.append(["2c", "most pulls around the arms 15 and 16 by pi3 and pi4",
                  ", ".join(f"arm {np.argmax(pulls[name]) + 1} by {name.split(',')[0]}" for name in four[2:])])
    ocba = [name for name in found[on]["nss"] if name.startswith("OCBA")]
    races = [name for name in found[on]["nss"] if name.startswith("race")]
    middle = N_MOMENTS // 3 - 1
    for name in ocba[:2]:
        lines.append(["3a", f"{name} comes to rest early, below the best",
                      f"{last(on, name, middle).mean():.4f} at 10,000, {last(on, name).mean():.4f} at 30,000"])
    for name in ocba[2:]:
        start = int(name.split("= ")[1]) * 50
        early = max(start // (30_000 // N_MOMENTS) - 1, 0)
        lines.append(["3a", f"{name} is uniform sampling first ({start:,} pulls), then ahead of it",
                      f"{last(on, name, early).mean():.4f} and {last(on, four[0], early).mean():.4f} at "
                      f"{start:,}; at 30,000 {ahead(on, [name], four[:1])}"])
    lines.append(["3a", "ADAPT above every OCBA-m at 30,000", ahead(on, four[3:], ocba)])
    lines.append(["3b", "the race is best with R = 1, and near uniform sampling with R large, at 30,000",
                  ", ".join(f"{name[6:]}: {last(on, name).mean():.4f}" for name in races)
                  + f", uniform {last(on, four[0]).mean():.4f}"])
    lines.append(["3b", "ADAPT above every race at 30,000", ahead(on, four[3:], races)])
    if "small" in found:
        lines.append(["text", "10 arms: race with R = 1 above uniform sampling", ahead("small", races[:1], four[:1])])
        lines.append(["text", "10 arms: race with R = 1 not told from ADAPT (p < 0.05)",
                      ahead("small", four[3:], races[:1])])
    if "gaussian" in found:
        lines.append(["text", "Gaussian arms: ADAPT above every OCBA-m, p < 0.0001", ahead("gaussian", four[3:], ocba)])
    return lines


def show(title: str, head: list[str], lines: list[list[Any]], path: Path) -> None:
    """Print a table and write it."""
    show_table(title, head, lines)
    write_table(path, [dict(zip(head, line, strict=True)) for line in lines])


def along_the_way(case: Case, args: Any, trials: int, suffix: str, bar: Any) -> dict[str, Any]:
    """Run the trials of a case; write its table and its Figures 2 and 3. Returns means over trials, and the trials."""
    moments = np.linspace(case.budget / N_MOMENTS, case.budget, N_MOMENTS).astype(int)
    names = list(rules(case, case.support_of(case.means)))
    kept = Trials(args.output / f"subset_selection_{case.name}_trials{suffix}.npz", trials,
                  f"{args.seed} {case} {names}", args.fresh or args.quick)
    arrays = kept.run(follow(case, args.seed, moments), bar, case.title)
    found: dict[str, Any] = {what: dict(zip(names, array.mean(axis=0), strict=True)) for what, array in arrays.items()}
    found["trials"] = {what: dict(zip(names, array.swapaxes(0, 1), strict=True)) for what, array in arrays.items()}
    for name in names:      # in its first round OCBA-m pulls arm by arm; every arm has a pull when it is over
        if name.startswith("OCBA"):
            first = int(name.split("= ")[1]) * len(case.means)
            found["nss"][name] = np.where(moments < first, np.nan, found["nss"][name])
    half = N_MOMENTS // 2 - 1
    error = {name: float(row[:, -1].std() / math.sqrt(trials)) for name, row in found["trials"]["nss"].items()}
    lines = [[name, float(found["nss"][name][half]), float(found["nss"][name][-1]), error[name],
              float(found["bound"][name][-1]), int(found["pulls"][name].max())] for name in names]
    show(f"{case.title}: {trials} trials",
         ["rule", f"NSS at {moments[half]}", f"NSS at {moments[-1]}", "standard error", f"error bound at {moments[-1]}",
          "most pulls of an arm"], lines, args.output / f"subset_selection_{case.name}{suffix}.csv")
    title = f"{case.title}, {trials} trials"
    beginning = args.output / f"subset_selection_{case.name}"
    _figures.figure_2(found, moments, DELTA, title, beginning.with_name(f"{beginning.name}_figure_2{suffix}.png"))
    _figures.figure_3(found, moments, title, beginning.with_name(f"{beginning.name}_figure_3{suffix}.png"))
    return found


def main() -> None:
    made = parser(__doc__, "few trials and a small table of data", seed=2010, data="covertype", fresh="run trials")
    made.add_argument("--trials", type=int, help="trials of every experiment (default 1000, quick 2)")
    made.add_argument("--only", nargs="+", choices=("paper", "alike", "small", "gaussian", "trees"),
                      help="these cases alone")
    args = made.parse_args()
    trials = args.trials or (2 if args.quick else 1000)
    args.output.mkdir(parents=True, exist_ok=True)
    suffix = "_quick" if args.quick else ""

    def bar(items: Sequence[Any], title: str) -> Iterator[Any]:
        return track(items, args.progress, title)

    show("Figure 1: where each policy stops, 5 arms, best 2, epsilon 0.1, delta 0.05",
         ["policy", "arm", "mean", "empirical mean", "chosen", "pulls", "error", "width"],
         _figures.figure_1(args.seed, args.output / f"subset_selection_figure_1{suffix}.png"),
         args.output / f"subset_selection_figure_1{suffix}.csv")
    wanted = args.only or ["paper", "small", "trees", *(() if args.quick else ("alike", "gaussian"))]
    right = None
    if "trees" in wanted:
        right = _trees.answers(args.output, args.data, args.quick, args.seed, bar)
    found, stops = {}, {}
    for case in cases(args.seed, right):
        if case.name not in wanted:
            continue
        found[case.name] = along_the_way(case, args, trials, suffix, bar)
        if case.name in ("small", "gaussian"):
            continue
        fewer = max(trials // 5, min(trials, 2))
        kept = Trials(args.output / f"subset_selection_{case.name}_stops{suffix}.npz", fewer,
                      f"{args.seed} {case} {list(stopping(case))}", args.fresh or args.quick)
        stops[case.name] = kept.run(stop(case, args.seed), bar, f"pulls to the stop, {case.name}")
        lines = stop_lines(case, stops[case.name])
        show(f"Pulls to the stop: {case.title}, {fewer} trials",
             ["rule", "paper", "pulls", "standard error", "fresh means", "wrong", "proof"], lines,
             args.output / f"subset_selection_{case.name}_stop{suffix}.csv")
    for on in ("paper", "alike"):
        if on in found:
            show(f"What the paper says of its figures, {trials} trials of the case {on!r}",
                 ["figure", "paper", "measured"], claims(found, stops[on]["pulls"], on),
                 args.output / f"subset_selection_{on}_claims{suffix}.csv")


if __name__ == "__main__":
    main()
