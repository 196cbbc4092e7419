"""Evaluations of twenty real classifiers, recorded once: how many of them does each rule need to name the best?

    python -m bench.recorded_evaluations            # from the folder above, with FASTRACE_DATA or --data

Twenty classifiers of scikit-learn are trained on 20,000 rows of Covertype and asked about 50,000 others, which takes
two minutes. Their answers are kept in a cache folder (XDG_CACHE_HOME, else ~/.cache; --cache names another), 200 kB,
and nothing is trained again. An evaluation is one answer of one classifier; a right answer has the reward 1.

Rules that stop by themselves are measured by the evaluations that they take at delta 0.05, and by how often they are
right. Rules that spend a budget cannot say when it is enough: for them the table has the least budget with which, as it
turns out, at least 95 % of the runs are right. Nobody knows that number beforehand.
"""

from __future__ import annotations

import argparse
import math
import os
import pathlib
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import fastrace as fr
from papers import datasets
from papers.common import read_table, show_table, write_table

TRAINED, ASKED, SEED = 20_000, 50_000, 20160619
DELTA, RIGHT = 0.05, 0.95
EPSILON = 0.005                     # half a point; of the race that may name any arm within it
Answer = tuple[int, int]            # the arm named, and the evaluations taken


def learners() -> dict[str, Any]:
    """The classifiers by name; those that need inputs of one scale have them scaled."""
    from sklearn import discriminant_analysis, ensemble, linear_model, naive_bayes, neighbors, neural_network, svm, tree
    from sklearn.kernel_approximation import Nystroem
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    def scaled(*steps: Any) -> Any:
        return make_pipeline(StandardScaler(), *steps)

    few = {"random_state": 0}
    return {
        "logistic": scaled(linear_model.LogisticRegression(max_iter=300)),
        "logistic, Nystroem": scaled(Nystroem(gamma=0.05, n_components=300, **few),
                                     linear_model.LogisticRegression(max_iter=300)),
        "linear SVM": scaled(linear_model.SGDClassifier(alpha=1e-4, **few)),
        "ridge": scaled(linear_model.RidgeClassifier()),
        "LDA": scaled(discriminant_analysis.LinearDiscriminantAnalysis()),
        "QDA": scaled(discriminant_analysis.QuadraticDiscriminantAnalysis(reg_param=0.1)),
        "naive Bayes": scaled(naive_bayes.GaussianNB()),
        "1 neighbour": scaled(neighbors.KNeighborsClassifier(1)),
        "5 neighbours": scaled(neighbors.KNeighborsClassifier(5)),
        "15 neighbours, by distance": scaled(neighbors.KNeighborsClassifier(15, weights="distance")),
        "tree": tree.DecisionTreeClassifier(**few),
        "tree of depth 12": tree.DecisionTreeClassifier(max_depth=12, **few),
        "100 bagged trees": ensemble.BaggingClassifier(n_estimators=100, **few),
        "random forest of 100": ensemble.RandomForestClassifier(100, **few),
        "random forest of 300": ensemble.RandomForestClassifier(300, max_features=0.3, **few),
        "300 extra trees": ensemble.ExtraTreesClassifier(300, max_features=0.5, **few),
        "boosted trees": ensemble.HistGradientBoostingClassifier(**few),
        "boosted trees, slower": ensemble.HistGradientBoostingClassifier(
            learning_rate=0.05, max_iter=300, max_leaf_nodes=63, **few),
        "SVM": scaled(svm.SVC(C=10.0, cache_size=500)),
        "network": scaled(neural_network.MLPClassifier((128, 64), early_stopping=True, **few)),
    }


def cache() -> pathlib.Path:
    """The user's folder for what can be made again."""
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "fastrace"


def recorded(folder: pathlib.Path, data: pathlib.Path | None = None, chosen: tuple[str, ...] = ()
             ) -> tuple[np.ndarray, tuple[str, ...]]:
    """Whether each answer is right, of shape (n_rows, n_learners), and the names; trained where they are missing."""
    made = {name: learner for name, learner in learners().items() if not chosen or name in chosen}
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, np.ndarray] = {}
    rows: Any = None
    for number, (name, learner) in enumerate(made.items()):
        path = folder / f"covertype_{TRAINED}_{ASKED}_{number:02d}.npz"
        if path.exists():
            with np.load(path) as kept:
                if str(kept["name"]) == repr(learner):
                    found[name] = np.unpackbits(kept["right"], count=ASKED).astype(bool)
                    continue
        if rows is None:
            table = datasets.load("covertype", data)
            order = np.random.default_rng(SEED).permutation(len(table.y))[:TRAINED + ASKED]
            rows = np.asarray(table.X[order], dtype=np.float32), np.asarray(table.y)[order]
        x, y = rows
        start = time.process_time()
        learner.fit(x[:TRAINED], y[:TRAINED])
        right = np.concatenate([learner.predict(x[first:first + 5000]) == y[first:first + 5000]
                                for first in range(TRAINED, TRAINED + ASKED, 5000)])
        print(f"{name}: {100 * right.mean():.2f} %, {time.process_time() - start:.0f} CPU s", flush=True)
        part = path.with_suffix(".part.npz")
        np.savez_compressed(part, right=np.packbits(right), name=repr(made[name]))
        part.replace(path)
        found[name] = right
    return np.stack(list(found.values()), axis=1), tuple(found)


def paid(table: np.ndarray) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """The table as a function, each reward of which is paid for."""
    return lambda arms, rows: table[np.ix_(rows, arms)]


def race(table: np.ndarray, rng: np.random.Generator) -> Answer:
    """The race as most call it."""
    found = fr.race(paid(table), DELTA, n_arms=table.shape[1], n_rows=len(table), support=(0, 1), rng=rng)
    return found.best, found.n_read


def race_epsilon(table: np.ndarray, rng: np.random.Generator) -> Answer:
    """The same where half a point of accuracy does not matter."""
    found = fr.race(paid(table), DELTA, n_arms=table.shape[1], n_rows=len(table), support=(0, 1), epsilon=EPSILON,
                    rng=rng)
    return found.best, found.n_read


def finite_race(table: np.ndarray, rng: np.random.Generator) -> Answer:
    """By ask and tell."""
    rule = fr.FiniteRace(table.shape[1], len(table), DELTA, support=(0, 1), rng=rng)
    while not rule.done:
        arms, rows = rule.ask()
        rule.tell(table[np.ix_(rows, arms)])
    found = rule.result()
    return found.best, found.n_read


def lucb(table: np.ndarray, rng: np.random.Generator) -> Answer:
    """Rows drawn for each arm on its own, a cell paid for once; after as many pulls as cells the rest is read."""
    found = fr.select_best(table, delta=DELTA, rng=rng)
    return int(found.best), found.n_read


def lucb_paired(table: np.ndarray, rng: np.random.Generator) -> Answer:
    """The same with common rows where arms agree, and rows of one arm's own where they do not."""
    found = fr.select_best(table, delta=DELTA, paired=True, rng=rng)
    return int(found.best), found.n_read


def betting_race(table: np.ndarray, rng: np.random.Generator) -> Answer:
    """The race on streams, on the rows of the table in random order."""
    found = fr.BettingRace(table.shape[1], None, DELTA, (0, 1)).run(table, rng=rng)
    return int(found.best), found.n_read


def looks(n_rows: int) -> Iterator[int]:
    """Rows read at each look: 100, and then a tenth more each."""
    look = 100
    while look < n_rows:
        yield look
        look += look // 10
    yield n_rows


def intervals(table: np.ndarray, rng: np.random.Generator) -> Answer:
    """A 95 % interval of each arm, seen again and again, until that of the leader is above all others."""
    rows = rng.permutation(len(table))
    total, read = np.zeros(table.shape[1]), 0
    for look in looks(len(table)):
        total += table[rows[read:look]].sum(axis=0)
        read = look
        mean = total / read
        half = 1.96 * np.sqrt(mean * (1.0 - mean) / read)
        best = int(mean.argmax())
        if (np.delete(mean + half, best) < (mean - half)[best]).all():
            break
    return best, read * table.shape[1]


def betting_intervals(table: np.ndarray, rng: np.random.Generator) -> Answer:
    """The same with intervals that hold at all times for a population, at delta / n_arms; arms that lost are left."""
    n_rows, n_arms = table.shape
    rows = rng.permutation(n_rows)
    sequences = [fr.ConfidenceSequence("betting", DELTA / n_arms, (0, 1), n_rows=n_rows) for _ in range(n_arms)]
    left, read, taken = list(range(n_arms)), 0, 0
    low, high = np.zeros(n_arms), np.ones(n_arms)
    for look in looks(n_rows):
        for arm in left:
            sequences[arm].update_many(table[rows[read:look], arm])
            low[arm], high[arm] = sequences[arm].interval
        taken += (look - read) * len(left)
        read = look
        leader = max(left, key=lambda arm: low[arm])
        left = [arm for arm in left if arm == leader or high[arm] >= low[leader]]
        if len(left) == 1:
            return left[0], taken
    return left[int(table[:, left].mean(axis=0).argmax())], taken


def uniform(table: np.ndarray, budget: int, rng: np.random.Generator) -> int:
    """The best on the rows that the budget buys, the same for all arms."""
    rows = rng.choice(len(table), min(len(table), budget // table.shape[1]), replace=False)
    return int(table[rows].mean(axis=0).argmax())


def uniform_apart(table: np.ndarray, budget: int, rng: np.random.Generator) -> int:
    """As many rows of each arm, but drawn for each on its own."""
    n_rows, n_arms = table.shape
    count = min(n_rows, budget // n_arms)
    return int(np.argmax([table[rng.choice(n_rows, count, replace=False), arm].mean() for arm in range(n_arms)]))


def halving(table: np.ndarray, budget: int, rng: np.random.Generator) -> int:
    """Successive halving (Karnin, Koren & Somekh 2013), on the same rows for all arms, all of them kept."""
    n_rows, n_arms = table.shape
    rows, left = rng.permutation(n_rows), np.arange(n_arms)
    rounds, read = math.ceil(math.log2(n_arms)), 0
    total = np.zeros(n_arms)
    for _ in range(rounds):
        more = min(n_rows, read + budget // (rounds * left.size))
        total[left] += table[np.ix_(rows[read:more], left)].sum(axis=0)
        read = more
        left = left[np.argsort(-total[left], kind="stable")[:(left.size + 1) // 2]]
    return int(left[0])


def ucb_e(table: np.ndarray, budget: int, rng: np.random.Generator) -> int:
    """UCB-E (Audibert, Bubeck & Munos 2010) with the exploration of their Theorem 1, from gaps that it is given.

    Every arm reads the same rows in the same order, as far as its own pulls go; two per cent of them at a time.
    """
    n_rows, n_arms = table.shape
    gaps = np.sort(table.mean(axis=0).max() - table.mean(axis=0))
    explore = 25.0 / 36.0 * (budget - n_arms) / (gaps[1] ** -2 + (gaps[1:] ** -2).sum())
    sums = np.cumsum(table.astype(bool)[rng.permutation(n_rows)], axis=0, dtype=np.int32)
    pulls, arms = np.ones(n_arms, int), np.arange(n_arms)
    while (left := budget - int(pulls.sum())) > 0:
        index = np.where(pulls < n_rows, sums[pulls - 1, arms] / pulls + np.sqrt(explore / pulls), -np.inf)
        arm = int(index.argmax())
        pulls[arm] += min(max(1, int(pulls[arm]) // 50), left, n_rows - int(pulls[arm]))
    return int((sums[pulls - 1, arms] / pulls).argmax())


STOPPING: dict[str, Callable[[np.ndarray, np.random.Generator], Answer]] = {
    "race (of a function)": race,
    "race, epsilon half a point": race_epsilon,
    "FiniteRace (ask and tell)": finite_race,
    "BettingRace": betting_race,
    "LUCB by pairs of arms": lucb,
    "LUCB by pairs, paired": lucb_paired,
    "95 % intervals, seen again and again": intervals,
    "betting intervals of each arm": betting_intervals,
}
SPENDING: dict[str, Callable[[np.ndarray, int, np.random.Generator], int]] = {
    "uniform, the same rows for all": uniform,
    "uniform, rows of their own": uniform_apart,
    "successive halving": halving,
    "UCB-E that knows the gaps": ucb_e,
}


def least_budget(rule: Any, table: np.ndarray, best: int, seed: int, runs: int) -> tuple[int, int]:
    """The least budget, in steps of a fifth, with which a share RIGHT of the runs is right; and how many are.

    Budgets are doubled until one is enough, and then those between the last two are tried.
    """

    def right(budget: float) -> int:
        wrong = 0
        for k in range(runs):
            wrong += rule(table, int(budget), np.random.default_rng([seed, k])) != best
            if wrong > (1.0 - RIGHT) * runs:
                return 0
        return runs - wrong

    enough = 20.0 * table.shape[1]
    while enough < table.size and not right(enough):
        enough *= 2.0
    for budget in (enough / 2.0 * 1.2**step for step in range(1, 4)):
        if budget < table.size and right(budget):
            return int(budget), right(budget)
    return (int(enough), right(enough)) if enough < table.size else (table.size, runs)


def compared(table: np.ndarray, seed: int, runs: int) -> Iterator[dict[str, Any]]:
    """A line per rule."""
    means = table.mean(axis=0)
    best = int(means.argmax())
    for name, stop in STOPPING.items():
        least = means[best] - (EPSILON if stop is race_epsilon else 0.0)
        answers = [stop(table, np.random.default_rng([seed, k])) for k in range(runs)]
        taken = np.array([evaluations for _, evaluations in answers])
        yield {"rule": name, "evaluations": round(taken.mean()),
               "standard error": round(taken.std() / math.sqrt(runs)),
               "95 % of runs within": int(np.quantile(taken, 0.95)),
               "of all": f"{100 * taken.mean() / table.size:.1f} %",
               "right": f"{sum(means[arm] >= least for arm, _ in answers)} of {runs}", "budget": "its own"}
    for name, spend in SPENDING.items():
        budget, right = least_budget(spend, table, best, seed, runs)
        yield {"rule": name, "evaluations": budget, "standard error": "", "95 % of runs within": budget,
               "of all": f"{100 * budget / table.size:.1f} %", "right": f"{right} of {runs}", "budget": "in hindsight"}


def questions(right: np.ndarray, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Which of these is the best? The columns, by what is asked."""
    order = np.argsort(-right.mean(axis=0))
    tied = ("random forest of 100", "boosted trees, slower")
    return {"all 20": np.arange(20), "all but the best": np.sort(order[1:]), "the second to the seventh": order[1:7],
            "two that are nearly tied": np.array([names.index(name) for name in tied])}


def carried_over(first: list[dict[str, Any]], table: np.ndarray, seed: int, runs: int = 400) -> Iterator[str]:
    """How often budgets that were enough for one question name the wrong arm of another."""
    best = int(table.mean(axis=0).argmax())
    for name in ("uniform, the same rows for all", "successive halving"):
        budget = next(int(line["evaluations"]) for line in first if line["rule"] == name)
        wrong = sum(SPENDING[name](table, budget, np.random.default_rng([seed, k])) != best for k in range(runs))
        yield f"{name}, {budget:,} evaluations as for the first question: {wrong} of {runs} wrong on the second"


def quick() -> None:
    """Each rule once on a small table of answers drawn at random; two learners are trained where Covertype is there."""
    rng = np.random.default_rng(SEED)
    table = (rng.random((2000, 1)) < [0.9, 0.7, 0.6, 0.5]).astype(float)
    table = np.where(rng.random(table.shape) < 0.2, rng.integers(0, 2, table.shape), table)
    lines = list(compared(table, SEED, 2))
    assert [line["rule"] for line in lines] == [*STOPPING, *SPENDING]
    assert all(line["right"] == "2 of 2" for line in lines if line["rule"] in ("race (of a function)", "BettingRace"))
    assert len(list(carried_over(lines, table[:, 1:], SEED, 2))) == 2
    with tempfile.TemporaryDirectory() as folder:
        try:
            right, names = recorded(pathlib.Path(folder), None, ("naive Bayes", "LDA"))
        except FileNotFoundError as error:
            print(f"recorded_evaluations: nothing is trained: {error}")
        else:
            assert right.shape == (ASKED, 2) and right.mean() > 0.4 and len(names) == 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, help="folder with covertype (default: the variable FASTRACE_DATA)")
    parser.add_argument("--cache", type=pathlib.Path, default=cache(), help="where answers are kept (%(default)s)")
    parser.add_argument("--runs", type=int, default=100, help="runs of each rule (%(default)s)")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--csv", type=pathlib.Path,
                        help="write the table there; questions that it has are left as they are")
    args = parser.parse_args()
    right, names = recorded(args.cache, args.data)
    lines: list[Any] = read_table(args.csv) if args.csv else []
    asked = questions(right, names)
    for question, columns in asked.items():
        if any(line["question"] == question for line in lines):
            continue
        table = np.ascontiguousarray(right[:, columns], dtype=np.float64)
        means = np.sort(table.mean(axis=0))[::-1]
        best = names[columns[table.mean(axis=0).argmax()]]
        made = list(compared(table, args.seed, args.runs))
        show_table(f"{question}: {best}, {100 * means[0]:.2f} %, is {100 * (means[0] - means[1]):.2f} points ahead; "
                   f"{table.size:,} evaluations in all", list(made[0]), [list(line.values()) for line in made])
        lines += [{"question": question, **line} for line in made]
        if args.csv:
            write_table(args.csv, lines)
    first, second, *_ = asked
    print(*carried_over([line for line in lines if line["question"] == first], right[:, asked[second]].astype(float),
                        args.seed), sep="\n")


if __name__ == "__main__":
    main()
