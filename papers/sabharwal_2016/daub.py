"""DAUB on real data: which of 40 or more learners to train on all rows (Sabharwal, Samulowitz & Tesauro 2016).

    FASTRACE_DATA=folder python -m papers.sabharwal_2016.daub --sets adult electricity --rows 10000
    python -m papers.sabharwal_2016.daub --quick

Settings of learners from ten families and more are chosen among by DAUB (first 500 rows, ratio 1.5, as in the paper),
with and without the bound by training scores, and by its rivals: successive halving with scikit-learn's schedule and
shorter ones, halving by DAUB's projection, Hyperband, learners drawn at random, and the plainest rival, one subset of
10 % or 25 % for everybody. Loss: validation accuracy of the best learner trained on all rows, less that of the one
chosen, in percent; the same on test rows beside it. Rows and seconds: training everybody in full over what the method
used, so that large is good. All methods see the same nested subsets, and a training is made once, whoever asks for it.

Seconds are CPU seconds of fitting and of scoring 3000 training rows and all validation rows, as in the paper: they
bear a loaded machine, wall seconds do not (both are kept, with the load).

Every training goes into ``daub_trainings/SET_ROWS_SEED.csv`` of the output folder at once. A second run makes only what
is missing, so a run may be stopped at any time, or given a time (``--seconds``); sets may run side by side. The table
tells what is not known yet. ``--quick`` uses data that scikit-learn brings along.

Writes ``daub.csv`` (a line per set and method) and ``daub.png``. Needs the extras ``sklearn``, ``data`` and ``demo``;
LightGBM and XGBoost join if they are installed. ``--scikit-learn`` also runs scikit-learn's HalvingGridSearchCV and
DAUBSearchCV as they are, on the same learners and the same split, one after the other in this process, and compares
CPU seconds and losses of their choices (``daub_searches.csv``; no refit; each needs its own trainings).
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

if __name__ == "__main__":                  # before NumPy: seconds of one core
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray
from sklearn import discriminant_analysis as da
from sklearn import ensemble, linear_model, naive_bayes, neighbors, svm, tree
from sklearn.base import clone
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fastrace import model_selection as ms
from papers import datasets
from papers.common import add_lines, meter, parser, read_table, sheet, write_table

LARGE = ("covertype", "census_kdd", "sensorless", "mnist", "skin", "kdd99_http")
SMALL = ("adult", "electricity", "higgs_7500", "buzz_toms")
BUNDLED = ("digits", "breast_cancer")
# The paper's Tables 1 and 2, as far as its text gives their figures: loss in percent, and training all in full over
# DAUB, for rows and for CPU seconds. Its six real sets are HIGGS, Buzz, Covertype, Million Song, SUSY, Vehicle SensIT.
PAPER = {"higgs_7500": ("HIGGS", "0.0", "2-4", "25"), "parity": ("PARITY", "0.3", "5", "15"),
         "": ("mean of six real sets", "0.4", "-", "16")}
COLUMNS = ("learner", "rows", "train", "valid", "test", "seconds", "wall", "load", "failure")
Learner = tuple[str, str, Any]                      # family, name, estimator


def learners() -> list[Learner]:
    """Settings of every family; what is sensitive to scale gets scaled inputs."""
    found: list[Learner] = []

    def add(family: str, name: str, estimator: Any, scaled: bool = False) -> None:
        found.append((family, name, make_pipeline(StandardScaler(), estimator) if scaled else estimator))

    for c in (0.01, 0.1, 1.0, 10.0):
        add("logistic", f"logistic C={c:g}", linear_model.LogisticRegression(C=c, max_iter=200), True)
    for loss, alpha in (("hinge", 1e-4), ("hinge", 1e-2), ("log_loss", 1e-4), ("modified_huber", 1e-3)):
        add("sgd", f"sgd {loss} {alpha:g}", linear_model.SGDClassifier(loss=loss, alpha=alpha, random_state=0), True)
    add("ridge", "ridge 1", linear_model.RidgeClassifier(1.0), True)
    add("ridge", "ridge 100", linear_model.RidgeClassifier(100.0), True)
    add("discriminant", "lda", da.LinearDiscriminantAnalysis(), True)
    add("discriminant", "lda shrunk", da.LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"), True)
    add("discriminant", "qda 0.1", da.QuadraticDiscriminantAnalysis(reg_param=0.1), True)
    add("discriminant", "qda 0.5", da.QuadraticDiscriminantAnalysis(reg_param=0.5), True)
    add("bayes", "gaussian bayes", naive_bayes.GaussianNB(), True)
    add("bayes", "gaussian bayes 0.1", naive_bayes.GaussianNB(var_smoothing=0.1), True)
    add("bayes", "bernoulli bayes", naive_bayes.BernoulliNB(), True)
    for k in (1, 5, 15, 51):
        add("neighbours", f"{k} neighbours", neighbors.KNeighborsClassifier(k), True)
    add("neighbours", "nearest centroid", neighbors.NearestCentroid(), True)
    for depth, leaf in ((3, 1), (8, 1), (None, 20), (None, 1)):
        add("tree", f"tree depth={depth} leaf={leaf}",
            tree.DecisionTreeClassifier(max_depth=depth, min_samples_leaf=leaf, random_state=0))
    for trees, leaf, share in ((30, 1, "sqrt"), (100, 1, "sqrt"), (100, 5, "sqrt"), (100, 1, 0.5)):
        add("forest", f"forest {trees} leaf={leaf} share={share}", ensemble.RandomForestClassifier(
            trees, min_samples_leaf=leaf, max_features=share, random_state=0))
    for trees, leaf in ((30, 1), (100, 1), (100, 5)):
        add("extra trees", f"extra trees {trees} leaf={leaf}",
            ensemble.ExtraTreesClassifier(trees, min_samples_leaf=leaf, random_state=0))
    add("bagging", "bagged trees 30", ensemble.BaggingClassifier(n_estimators=30, random_state=0))
    for rounds, depth in ((50, 1), (100, 3)):
        add("adaboost", f"adaboost {rounds} depth={depth}", ensemble.AdaBoostClassifier(
            tree.DecisionTreeClassifier(max_depth=depth), n_estimators=rounds, random_state=0))
    for rounds, rate, leaves in ((100, 0.1, 31), (100, 0.03, 31), (300, 0.1, 15), (100, 0.3, 63)):
        add("boosting", f"boosting {rounds} rate={rate:g} leaves={leaves}", ensemble.HistGradientBoostingClassifier(
            max_iter=rounds, learning_rate=rate, max_leaf_nodes=leaves, early_stopping=False, random_state=0))
    for c in (0.01, 1.0):
        add("linear svm", f"linear svm C={c:g}", svm.LinearSVC(C=c, dual=False), True)
    for c, gamma in ((1.0, "scale"), (10.0, "scale"), (1.0, 0.1)):
        add("svm", f"svm C={c:g} gamma={gamma}", svm.SVC(C=c, gamma=gamma, cache_size=500), True)
    for width, alpha in (((50,), 1e-4), ((100,), 1e-2), ((100, 50), 1e-4)):
        add("network", f"network {'x'.join(map(str, width))} alpha={alpha:g}",
            MLPClassifier(width, alpha=alpha, max_iter=60, random_state=0), True)
    with contextlib.suppress(ImportError, OSError):
        import lightgbm

        for rounds, leaves in ((100, 31), (300, 15)):
            add("lightgbm", f"lightgbm {rounds} leaves={leaves}", lightgbm.LGBMClassifier(
                n_estimators=rounds, num_leaves=leaves, n_jobs=1, verbose=-1, random_state=0))
    with contextlib.suppress(ImportError, OSError):
        import xgboost

        for rounds, depth in ((100, 6), (300, 3)):
            add("xgboost", f"xgboost {rounds} depth={depth}", xgboost.XGBClassifier(
                n_estimators=rounds, max_depth=depth, n_jobs=1, random_state=0))
    return found


SLOW = ("svm", "network", "bagging", "lightgbm", "xgboost")      # left out by --fast


def parity(n_rows: int, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Parity of 5 of 16 bits: all different rows, as in the paper."""
    codes = np.random.default_rng(seed).permutation(2**16)[:n_rows]
    bits = (codes[:, None] >> np.arange(16)) & 1
    return bits.astype(np.float32), bits[:, :5].sum(axis=1) % 2


class OutOfTime(Exception):
    """The seconds given are over."""


class Task:
    """A data set in three parts, and what every training on it gave."""

    def __init__(self, wanted: str, options: argparse.Namespace, pool: list[Learner], base: Task | None = None,
                 number: int = 0) -> None:
        """With `base` the same rows in another order, whose trainings on all rows are those of `base`."""
        self.base = base
        name, *numbers = wanted.split(":")
        most, first = [int(x) for x in numbers] + [options.rows, options.first][len(numbers) :]
        self.name, self.pool, self.options = name, pool, options
        rng = np.random.default_rng(options.seed)
        if name == "parity":
            x, y = parity(65_535, options.seed)
            held = min(21_500, most)
        else:
            data = datasets.load(name, options.data).one_hot()
            x, y = data.X.astype(np.float32), np.unique(data.y, return_inverse=True)[1].ravel()
            held = min(5_000, len(y) // 5)
        order = rng.permutation(len(y))
        self.valid, self.test = order[:held], order[held : 2 * held]
        rows = order[2 * held : 2 * held + most]
        if base is not None:
            rng = np.random.default_rng([options.seed, number])
        self.rows = rows[stratified(y[rows], rng)]           # every prefix is a random stratified sample
        self.x, self.y, self.n_rows = x, y, len(rows)
        self.first = min(first, max(2 * len(np.unique(y)), self.n_rows // 20))
        folder = options.output / "daub_trainings"
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / f"{name}_{self.n_rows}_{options.seed}{f'_{number}' if number else ''}.csv"
        self.known: dict[tuple[str, int], dict[str, Any]] = {}
        for kept in read_table(self.file):
            self.known[kept["learner"], int(kept["rows"])] = {
                k: v if k in ("learner", "failure") else float(v) for k, v in kept.items()}

    def train(self, learner: int, n: int) -> dict[str, Any]:
        """Scores and seconds of one training, made now or before."""
        name = self.pool[learner][1]
        if (name, n) in self.known:
            return self.known[name, n]
        if self.base is not None and n == self.n_rows:
            self.known[name, n] = self.base.train(learner, n)
            return self.known[name, n]
        if time.monotonic() > self.options.deadline:
            raise OutOfTime
        estimator, rows, few = clone(self.pool[learner][2]), self.rows[:n], self.rows[: min(n, 3000)]
        train = valid = test = math.nan
        failure = ""
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                estimator.fit(self.x[rows], self.y[rows])
                train = float(np.mean(estimator.predict(self.x[few]) == self.y[few]))
                valid = float(np.mean(estimator.predict(self.x[self.valid]) == self.y[self.valid]))
        except Exception as error:
            failure = f"{type(error).__name__}: {error}".replace("\n", " ")[:200]
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        if n == self.n_rows and not failure:
            test = float(np.mean(estimator.predict(self.x[self.test]) == self.y[self.test]))
        load = os.getloadavg()[0] if hasattr(os, "getloadavg") else math.nan
        line = dict(zip(COLUMNS, (name, n, train, valid, test, cpu, wall, load, failure), strict=True))
        add_lines(self.file, [line])
        self.known[name, n] = line
        return line

    def scores(self, learner: int, n: int) -> tuple[float, float, float]:
        line = self.train(learner, n)
        if line["failure"]:
            raise RuntimeError(line["failure"])
        return line["train"], line["valid"], line["seconds"]


def stratified(y: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
    """An order whose every prefix holds each class in proportion, and two of each class first."""
    place = np.empty(len(y))
    for label in np.unique(y):
        rows = np.flatnonzero(y == label)
        place[rows] = (np.arange(rows.size) + rng.random(rows.size)) / rows.size
        place[rows[:2]] -= 1.0
    return np.argsort(place, kind="stable")


Make = Callable[[Task], ms.Scheduler]


def daub(**options: Any) -> Make:
    """As in the paper: without the limit of what training all in full costs."""
    return lambda task: ms.DAUB(
        len(task.pool), task.n_rows, task.first, 1.5, cost="seconds", capped=False, **options)


def shares(task: Task, smallest: int, factor: int = 3) -> list[int]:
    return sorted({max(task.first // 4, 2, task.n_rows // factor**k) for k in range(smallest, -1, -1)})


def halving(kind: type[ms.SuccessiveHalving], smallest: int, factor: int = 3, **options: Any) -> Make:
    return lambda task: kind(len(task.pool), task.n_rows, factor=float(factor), sizes=shares(task, smallest, factor),
                             cost="seconds", **options)


def subset(share: float) -> Make:
    return lambda task: ms.FixedSubset(len(task.pool), task.n_rows, round(share * task.n_rows), cost="seconds")


class Hyperband(ms.Hyperband):
    """Hyperband on the sizes of halving, whose trainings are there already."""

    def __init__(self, task: Task, smallest: int, seed: int) -> None:
        sizes = shares(task, smallest)
        super().__init__(len(task.pool), task.n_rows, sizes[0], 3.0, rng=seed, cost="seconds")
        logs = np.log(sizes)
        for k, (drawn, plan) in enumerate(self._brackets):
            near = [sizes[np.abs(logs - math.log(m)).argmin()] for m, _ in plan]
            self._brackets[k] = drawn, [(n, count) for n, (_, count) in zip(near, plan, strict=True)]


# Families of methods; the settings of a family stand from cheap to dear.
METHODS: dict[str, dict[str, Make]] = {
    "DAUB": {"DAUB": daub()},
    "DAUBHalving": {
        "DAUBHalving x4 from 1/256": halving(ms.DAUBHalving, 4, 4),
        "DAUBHalving x4 from 1/64": halving(ms.DAUBHalving, 3, 4),
        "DAUBHalving x4 from 1/16": halving(ms.DAUBHalving, 2, 4),
    },
    "successive halving": {
        "halving x4 from 1/256": halving(ms.SuccessiveHalving, 4, 4),
        "halving x4 from 1/64": halving(ms.SuccessiveHalving, 3, 4),
        "halving from 1/81": halving(ms.SuccessiveHalving, 4),
        "halving from 1/27 (as HalvingGridSearchCV)": halving(ms.SuccessiveHalving, 3),
        "halving from 1/9": halving(ms.SuccessiveHalving, 2),
    },
    "plain subset": {"10 % subset": subset(0.1), "25 % subset": subset(0.25)},
    "Hyperband": {
        "Hyperband from 1/27": lambda task: Hyperband(task, 3, 0),
        "Hyperband from 1/9": lambda task: Hyperband(task, 2, 0),
    },
    "DAUB, no training bound": {"DAUB, no training bound": daub(training_bound=False)},
    "DAUB, as printed": {"DAUB, as printed": daub(clip_slope=False)},
    "DAUB, curve -1/4": {"DAUB, curve -1/4": daub(curve=-0.25)},
}


class Found:
    """What a method did on a set."""

    def __init__(self, best: int, rows: float, seconds: float) -> None:
        self.best, self.rows, self.seconds = best, rows, seconds


def run(task: Task, make: Make) -> Found:
    """Let a method choose; its seconds are those of the trainings it asked for."""
    def train(learner: int, n: int) -> tuple[float, float, float]:
        try:
            return task.scores(learner, n)
        except OutOfTime as error:
            raise KeyboardInterrupt from error              # not a failure of the learner: leave the method

    result = make(task).run(train)
    seconds = sum(task.known[task.pool[i][1], n]["seconds"] for i, n in result.allocations)
    return Found(result.best, float(result.rows.sum()), seconds)


def chance(task: Task, seconds: float, full: list[dict[str, Any]], column: str) -> float:
    """Mean score that learners drawn at random and trained in full reach within the seconds; at least one is drawn."""
    rng, scores = np.random.default_rng(1), []
    good = np.array([i for i, line in enumerate(full) if not line["failure"]])
    for _ in range(2000):
        order = rng.permutation(good)
        spent = np.cumsum([full[i]["seconds"] for i in order])
        taken = order[: max(1, int(np.searchsorted(spent, seconds, "right")))]
        best = max(taken, key=lambda i: full[i]["valid"])
        scores.append(full[best][column])
    return float(np.mean(scores))


def study(task: Task, show: Callable[[int], None]) -> tuple[dict[str, Found], list[dict[str, Any]] | None]:
    """Run all methods on a set, then everybody in full; the second answer is None if time ran out before."""
    found: dict[str, Found] = {}
    full: list[dict[str, Any]] | None = None
    try:
        for family in task.options.methods:
            for name, make in METHODS[family].items():
                found[name] = run(task, make)
                show(len(task.known))
        full = []
        for i in range(len(task.pool)):
            full.append(task.train(i, task.n_rows))
            show(len(task.known))
    except (OutOfTime, KeyboardInterrupt):
        if time.monotonic() <= task.options.deadline:
            raise
        full = None
    return found, full


def other_orders(task: Task, wanted: str, full: list[dict[str, Any]], found: dict[str, Found]) -> None:
    """Let the methods choose again on other orders of the same rows: one order is one draw. Not DAUB, which is dear."""
    options = task.options
    names = {name: make for family in options.methods for name, make in METHODS[family].items()
             if not family.startswith("DAUB") or family.startswith("DAUBHalving")}
    best, whole = max(line["valid"] for line in full if not line["failure"]), sum(line["seconds"] for line in full)
    seen = {name: [found[name]] for name in names}
    try:
        for number in range(1, options.orders):
            other = Task(wanted, options, task.pool, task, number)
            for name, make in names.items():
                seen[name].append(run(other, make))
    except KeyboardInterrupt:
        if time.monotonic() <= options.deadline:
            raise
        return
    print(f"\n{f'over {options.orders} orders of the rows':44s}{'loss %':>8}{'worst':>8}{'seconds x':>11}")
    lines = []
    for name, each in seen.items():
        losses = [100 * (best - full[one.best]["valid"]) for one in each]
        ratio = whole / float(np.mean([one.seconds for one in each]))
        print(f"{name:44s}{np.mean(losses):8.2f}{max(losses):8.2f}{ratio:11.1f}")
        lines.append({"set": task.name, "rows": task.n_rows, "method": name, "orders": len(losses),
                      "losses": " ".join(f"{loss:.6g}" for loss in losses), "seconds_ratio": ratio})
    add_lines(options.output / "daub_orders.csv", lines)


SEARCHES = ("HalvingGridSearchCV", "DAUBSearchCV", "DAUBSearchCV, later", "DAUBSearchCV, daub")


def search(task: Task, kind: str) -> tuple[int, float, float, float]:
    """The choice of a search as users run it, CPU seconds, wall seconds, and rows per candidate in full trainings."""
    from sklearn.experimental import enable_halving_search_cv  # noqa: F401
    from sklearn.model_selection import HalvingGridSearchCV
    from sklearn.pipeline import Pipeline

    n, held = task.n_rows, len(task.valid)
    rows = np.concatenate([task.rows, task.valid])
    x, y, split = task.x[rows], task.y[rows], [(np.arange(n), np.arange(n, n + held))]
    shown: Any
    if kind == "HalvingGridSearchCV":
        shown = HalvingGridSearchCV(
            Pipeline([("learner", task.pool[0][2])]), {"learner": [clone(one[2]) for one in task.pool]}, cv=split,
            refit=False, random_state=task.options.seed, return_train_score=False)
    else:
        options: dict[str, Any] = {}
        if "later" in kind:
            options["first"] = min(500, n // 20)
        if "daub" in kind:
            options["method"] = "daub"
        shown = ms.DAUBSearchCV([(name, clone(one)) for _, name, one in task.pool], cv=split, refit=False,
                                random_state=task.options.seed, **options)
    wall, cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shown.fit(x, y)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    if kind != "HalvingGridSearchCV":
        return int(shown.result_.best), cpu, wall, float(shown.rows_.sum()) / n
    chosen = shown.cv_results_["params"][shown.best_index_]["learner"]
    best = next(i for i, params in enumerate(shown.cv_results_["params"][: len(task.pool)])
                if params["learner"] is chosen)
    return best, cpu, wall, float(shown.cv_results_["n_resources"].sum()) / shown.max_resources_


def compare_searches(task: Task, full: list[dict[str, Any]]) -> None:
    """Run the searches on a set, those that were not run before, and print them."""
    file = task.options.output / "daub_searches.csv"
    columns = ("set", "rows", "learners", "search", "chosen", "loss", "test_loss", "trainings", "seconds_ratio",
               "seconds", "wall")
    known = {line["search"]: line for line in read_table(file)
             if (line["set"], line["rows"], line["learners"]) == (task.name, str(task.n_rows), str(len(full)))}
    best = {column: max(line[column] for line in full if not line["failure"]) for column in ("valid", "test")}
    whole = sum(line["seconds"] for line in full)
    print(f"\n{'search, as users run it':44s}{'loss %':>8}{'test':>8}{'full':>8}{'seconds x':>11}{'CPU s':>9}  chosen")
    for kind in SEARCHES:
        if kind not in known:
            i, cpu, wall, rows = search(task, kind)
            line = dict(zip(columns, (task.name, task.n_rows, len(full), kind, full[i]["learner"],
                                      100 * (best["valid"] - full[i]["valid"]), 100 * (best["test"] - full[i]["test"]),
                                      f"{rows:.4g}", whole / cpu, cpu, wall), strict=True))
            add_lines(file, [line])
            known[kind] = {key: str(value) for key, value in line.items()}
        line = known[kind]
        print(f"{kind:44s}{float(line['loss']):8.2f}{float(line['test_loss']):8.2f}{float(line['trainings']):8.1f}"
              f"{float(line['seconds_ratio']):11.1f}{float(line['seconds']):9.1f}  {line['chosen']}")


def lines_of(task: Task, found: dict[str, Found], full: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """A line of the table per method."""
    best = {column: max(line[column] for line in full if not line["failure"]) for column in ("valid", "test")}
    seconds, rows = sum(line["seconds"] for line in full), float(len(full) * task.n_rows)

    def line(name: str, chosen: str, valid: float, test: float, spent_rows: float, spent: float) -> dict[str, Any]:
        return {"set": task.name, "rows": task.n_rows, "method": name, "chosen": chosen,
                "loss": 100 * (best["valid"] - valid), "test_loss": 100 * (best["test"] - test),
                "rows_ratio": rows / spent_rows if spent_rows else math.nan, "seconds_ratio": seconds / spent}

    for name, one in found.items():
        yield line(name, task.pool[one.best][1], full[one.best]["valid"], full[one.best]["test"], one.rows, one.seconds)
    top = max((i for i in range(len(full)) if not full[i]["failure"]), key=lambda i: full[i]["valid"])
    yield line("the best alone, were it known", full[top]["learner"], full[top]["valid"], full[top]["test"],
               float(task.n_rows), full[top]["seconds"])
    budget = found["DAUB"].seconds
    yield line("random, at DAUB's seconds", "-", chance(task, budget, full, "valid"),
               chance(task, budget, full, "test"), math.nan, budget)
    for family in task.options.methods:
        settings = METHODS[family]
        if len(settings) > 1:                            # the dearest setting within DAUB's seconds, or the cheapest
            order = sorted(settings, key=lambda name: found[name].seconds)
            name = max([n for n in order if found[n].seconds <= budget], key=order.index, default=order[0])
            one = found[name]
            yield line(f"{family}, at DAUB's seconds", f"{task.pool[one.best][1]} [{name}]", full[one.best]["valid"],
                       full[one.best]["test"], one.rows, one.seconds)


def main() -> None:
    made = parser(__doc__, "fast learners on data that scikit-learn bundles", data="the data sets")
    add = made.add_argument
    add("--sets", nargs="+", metavar="NAME",
                        help=f"sets, or NAME:ROWS:FIRST for other numbers than --rows and --first; "
                             f"default: {' '.join((*LARGE, *SMALL, 'parity'))}")
    add("--rows", type=int, default=38_500, help="most training rows (default: 38500, as the paper)")
    add("--first", type=int, default=500, help="rows of the first training (default: 500)")
    add("--methods", nargs="+", choices=list(METHODS), default=list(METHODS), metavar="FAMILY",
                        help=f"families of methods; DAUB is always among them. All: {', '.join(METHODS)}")
    add("--fast", action="store_true", help=f"leave out the slow families: {', '.join(SLOW)}")
    add("--seconds", type=float, default=math.inf, help="stop training after so many seconds")
    add("--scikit-learn", action="store_true",
                        help="also run HalvingGridSearchCV and DAUBSearchCV on the same learners")
    add("--orders", type=int, default=1,
                        help="let the cheap methods choose on so many orders of the rows (daub_orders.csv)")
    options = made.parse_args()
    options.methods = ["DAUB", *(family for family in options.methods if family != "DAUB")]
    options.deadline = time.monotonic() + options.seconds
    if options.rows < 20 or options.first < 2:
        made.error("--rows must be at least 20 and --first at least 2")
    sets = options.sets or (BUNDLED if options.quick else (*LARGE, *SMALL, "parity"))
    pool = learners()
    if options.fast or options.quick:
        pool = [one for one in pool if one[0] not in SLOW]
    if options.quick:                                        # two of a family, the cheap ones
        pool = [one for k, one in enumerate(pool) if one[0] not in ("boosting", "adaboost", "forest")
                and [other[0] for other in pool[:k]].count(one[0]) < 2]
    options.output.mkdir(parents=True, exist_ok=True)
    print(f"{len(pool)} settings of {len({family for family, _, _ in pool})} families")

    lines: list[dict[str, Any]] = []
    for name in sets:
        try:
            task = Task(name, options, pool)
        except (FileNotFoundError, ImportError) as error:
            sys.exit(f"{error}\nor try --quick, with data that scikit-learn brings along")
        with meter(f"{name}, {task.n_rows} rows: trainings", None, options.progress) as show:
            found, full = study(task, show)
        if full is None:
            done = sum((one[1], task.n_rows) in task.known for one in pool)
            print(f"\n{name}: out of time with {len(task.known)} trainings made and {done} of {len(pool)} learners "
                  f"trained in full; run again to go on")
            continue
        here = list(lines_of(task, found, full))
        lines += here
        best = max((one for one in full if not one["failure"]), key=lambda one: one["valid"])
        loads = [one["load"] for one in task.known.values()]
        print(f"\n{name}: {task.n_rows} training rows, {len(task.valid)} validation and {len(task.test)} test rows; "
              f"best in full: {best['learner']}, {100 * best['valid']:.2f} %; all in full: "
              f"{sum(one['seconds'] for one in full):.0f} CPU s; load {np.median(loads):.1f}")
        failed = sorted({one["learner"] for one in task.known.values() if one["failure"]})
        if failed:
            print(f"failed at least once: {', '.join(failed)}")
        show_table(here)
        if options.orders > 1:
            other_orders(task, name, full, found)
        if options.scikit_learn:
            compare_searches(task, full)
    if not lines:
        return
    names = list(dict.fromkeys(line["method"] for line in lines))
    means = []
    for name in names:
        own = [line for line in lines if line["method"] == name]
        means.append({"method": name, "chosen": f"worst set {max(line['loss'] for line in own):.2f} %",
                      **{key: float(np.mean([line[key] for line in own]))
                         for key in ("loss", "test_loss", "rows_ratio", "seconds_ratio")}})
    print(f"\nmean over {len({line['set'] for line in lines})} sets")
    show_table(means)
    beside_the_paper(lines)
    write_table(options.output / "daub.csv", lines)
    draw(lines, means, options.output / "daub.png")
    print(f"\nwritten to {options.output}")


def show_table(lines: list[dict[str, Any]]) -> None:
    print(f"{'method':44s}{'loss %':>8}{'test':>8}{'rows x':>8}{'seconds x':>11}  chosen")
    for line in lines:
        ratio = "-" if math.isnan(line["rows_ratio"]) else f"{line['rows_ratio']:.1f}"
        print(f"{line['method']:44s}{line['loss']:8.2f}{line['test_loss']:8.2f}{ratio:>8}{line['seconds_ratio']:11.1f}"
              f"  {line['chosen']}")


def beside_the_paper(lines: list[dict[str, Any]]) -> None:
    """Loss, rows and seconds of DAUB and its variants, and what the paper reports of it."""
    print(f"\n{'the paper, Tables 1 and 2':34s}{'loss %':>8}{'rows x':>8}{'seconds x':>11}")
    for name, (title, loss, rows, seconds) in PAPER.items():
        print(f"{title:34s}{loss:>8}{rows:>8}{seconds:>11}")
        for method in ("DAUB", "DAUB, no training bound", "DAUBHalving x4 from 1/64"):
            own = [line for line in lines if line["method"] == method
                   and (line["set"] == name or not name and line["set"] != "parity")]
            if own:
                mean = {key: np.mean([line[key] for line in own]) for key in ("loss", "rows_ratio", "seconds_ratio")}
                print(f"  {method:32s}{mean['loss']:8.2f}{mean['rows_ratio']:8.1f}{mean['seconds_ratio']:11.1f}")


def draw(lines: list[dict[str, Any]], means: list[dict[str, Any]], path: Path) -> None:
    from matplotlib import colormaps

    families = {"DAUBHalving": "Greens", "DAUB": "Blues", "halving": "Oranges", "": "Greys"}
    shown = [mean for mean in means if "at DAUB's" not in mean["method"]]
    groups: dict[str, list[dict[str, Any]]] = {family: [] for family in families}
    for one in shown:
        groups[next(family for family in families if one["method"].startswith(family))].append(one)
    figure, ((left, right),) = sheet(1, 2, (14, 6), sharey=True)
    for family, members in groups.items():
        for k, one in enumerate(members):
            style = {"color": colormaps[families[family]](0.4 + 0.55 * k / max(1, len(members) - 1)),
                     "marker": "osv^D<>"[k % 7], "label": one["method"], "ls": ""}
            left.plot(1 / one["seconds_ratio"], one["loss"], ms=9, **style)
            own = [line for line in lines if line["method"] == one["method"]]
            right.plot([1 / line["seconds_ratio"] for line in own], [line["loss"] for line in own], ms=5, **style)
    left.set(xscale="log", xlabel="seconds over training all in full, mean of the ratios", ylabel="loss, %",
             title=f"mean over {len({line['set'] for line in lines})} sets")
    right.set(xscale="log", xlabel="seconds over training all in full", title="each set")
    left.set_yscale("symlog", linthresh=0.1)             # some lose nothing, some 30 %
    left.set_ylim(bottom=-0.02)
    figure.legend(*left.get_legend_handles_labels(), fontsize="small", loc="outside right upper")
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
