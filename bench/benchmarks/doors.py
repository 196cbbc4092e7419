"""Pruners of Optuna and early stopping of Inspect: evaluations made, and how often a best trial is lost.

``python -m benchmarks.doors`` prints the table of pruners on learners of Covertype, which `papers.datasets` finds.
"""

import asyncio
import types
import warnings

import numpy as np


def optuna_or_skip():
    """Optuna, quiet."""
    try:
        import optuna
    except ImportError as error:
        raise NotImplementedError("needs optuna") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    return optuna


class Study:
    """As much of a study that maximizes as pruners read, without the time that storages take."""

    def __init__(self, optuna=None):                    # quick.py makes one of each class of a benchmark module
        self.optuna, self.trials, self.directions = optuna, [], [None]
        self.direction = optuna and optuna.study.StudyDirection.MAXIMIZE

    def get_trials(self, deepcopy=True, states=None):
        return [trial for trial in self.trials if states is None or trial.state in states]

    @property
    def best_trial(self):
        finished = self.get_trials(states=(self.optuna.trial.TrialState.COMPLETE,))
        if not finished:
            raise ValueError("no trial has finished")
        return max(finished, key=lambda trial: trial.value)

    def ask(self):
        trial = types.SimpleNamespace(number=len(self.trials), user_attrs={}, intermediate_values={}, study=self,
                                      state=self.optuna.trial.TrialState.RUNNING, value=None)
        trial.last_step = None
        trial.set_user_attr = trial.user_attrs.__setitem__
        self.trials.append(trial)
        return trial


def run(optuna, pruner, table, rng, averages=False):
    """Evaluate trials, rows of `table`, one after the other; return evaluations made and the trials that finished."""
    study, read, finished, n_rows = Study(optuna), 0, [], table.shape[1]
    for k, values in enumerate(table):
        trial = study.ask()
        order = pruner.order(trial) if hasattr(pruner, "order") else rng.permutation(n_rows)
        if averages:
            shown = dict(enumerate(np.cumsum(values[order]) / np.arange(1, n_rows + 1)))
        else:
            shown = dict(zip(order.tolist(), values[order].tolist(), strict=True))
        steps, n, pruned = list(shown), 0, False
        while n < n_rows and not pruned:
            more = max(1, n // 10)                          # a trial asks the pruner after each 10 % more rows
            trial.intermediate_values |= {row: shown[row] for row in steps[n : n + more]}
            n = min(n + more, n_rows)
            trial.last_step = steps[n - 1]
            pruned = n < n_rows and pruner.prune(study, trial)
        trial.state = optuna.trial.TrialState.PRUNED if pruned else optuna.trial.TrialState.COMPLETE
        trial.value = values[order[:n]].mean()
        read += n
        if not pruned:
            finished.append(k)
    return read, finished


def pruners(optuna, n_rows, support, epsilon, rng):
    """Name -> pruner, and whether it is told running averages."""
    from fastrace.doors.optuna import RacingPruner

    late = {"n_startup_steps": 14}              # with ties, SciPy takes a second for each p-value of fewer values
    return {
        "RacingPruner": (RacingPruner(n_rows, support=support, rng=rng), False),
        f"RacingPruner, epsilon={epsilon:g}": (RacingPruner(n_rows, epsilon, support=support, rng=rng), False),
        "WilcoxonPruner(p_threshold=0.1)": (optuna.pruners.WilcoxonPruner(p_threshold=0.1, **late), False),
        "WilcoxonPruner(p_threshold=0.01)": (optuna.pruners.WilcoxonPruner(p_threshold=0.01, **late), False),
        "MedianPruner": (optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=n_rows // 10), True),
    }


def scores(rng, n_trials, n_rows):
    """Right or wrong, of learners of skills from .6 to .9 that find the same rows hard; shape (n_trials, n_rows)."""
    skill = rng.uniform(0.6, 0.9, (n_trials, 1))
    return (0.7 * rng.random(n_rows) + 0.3 * rng.random((n_trials, n_rows)) < skill).astype(float)


class Pruners:
    """20 made learners, one after the other: share of evaluations made, by pruner."""

    params = [["RacingPruner", "WilcoxonPruner(p_threshold=0.1)", "MedianPruner"], [1000, 4000]]
    param_names = ["pruner", "n_rows"]

    def setup(self, name, n_rows):
        self.optuna = optuna_or_skip()
        self.rng = np.random.default_rng(20261122)
        self.table = scores(self.rng, 20, n_rows)
        self.pruner = pruners(self.optuna, n_rows, (0, 1), 0.0, self.rng)[name]

    def time_study(self, name, n_rows):
        run(self.optuna, self.pruner[0], self.table, self.rng, self.pruner[1])

    def track_share_evaluated(self, name, n_rows):
        return run(self.optuna, self.pruner[0], self.table, self.rng, self.pruner[1])[0] / self.table.size


class EarlyStopping:
    """A model against a finished log of 4,000 samples: share of the samples evaluated until the verdict is known."""

    params = [[0.1, 0.05, 0.02, 0.0], [0.0, 0.02]]
    param_names = ["gap", "epsilon"]

    def setup(self, gap, epsilon):
        try:
            from fastrace.doors.inspect import RacingEarlyStopping
        except ImportError as error:
            raise NotImplementedError("needs inspect-ai") from error
        from inspect_ai.scorer import SampleScore, Score

        rng, n = np.random.default_rng(20261122), 4000
        hard, noise = rng.random(n), 0.3 * rng.random((2, n))
        found = 0.7 * hard + noise < np.array([[0.6 + 1.2 * gap], [0.6]])
        self.scores = [{"match": SampleScore(score=Score(value=bool(right)))} for right in found[0]]
        self.manager = RacingEarlyStopping(dict(enumerate(found[1].astype(float))), epsilon)
        self.task = types.SimpleNamespace(task="made", model="made", scorers=None,
                                          config=types.SimpleNamespace(sample_shuffle=True),
                                          dataset=types.SimpleNamespace(shuffled=True))

    async def evaluate(self):
        from inspect_ai.dataset import Sample

        await self.manager.start_task(self.task, [Sample("", id=k) for k in range(len(self.scores))], 1)
        for k, score in enumerate(self.scores):
            if await self.manager.schedule_sample(k, 1) is None:
                await self.manager.complete_sample(k, 1, score)
        return await self.manager.complete_task()

    def time_evaluation(self, gap, epsilon):
        asyncio.run(self.evaluate())

    def track_share_evaluated(self, gap, epsilon):
        return asyncio.run(self.evaluate())["n_read"] / len(self.scores)


def learners():
    """Quick learners of several strengths, name -> classifier."""
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier

    found = {f"tree {depth}, {leaf}": DecisionTreeClassifier(max_depth=depth, min_samples_leaf=leaf, random_state=1)
             for depth in (2, 4, 6, 8, 12, 20) for leaf in (1, 10)}
    found |= {f"random tree, {leaf}": ExtraTreeClassifier(min_samples_leaf=leaf, random_state=1) for leaf in (1, 10)}
    found |= {f"{k} neighbours": make_pipeline(StandardScaler(), KNeighborsClassifier(k)) for k in (1, 3, 7, 15, 40)}
    return found | {"naive Bayes": GaussianNB()}


def covertype(n_train=3000, n_rows=2000, n_splits=10, n_repeats=10):
    """Two tables of learners on Covertype: right or wrong by held-out row; accuracy by fold of repeated 10-fold CV."""
    from sklearn.model_selection import RepeatedStratifiedKFold, cross_val_score

    from papers.datasets import load

    data = load("covertype")
    rows = np.random.default_rng(5).choice(len(data.y), n_train + n_rows, replace=False)
    X, y = data.X[rows], data.y[rows]
    by_row = [f.fit(X[:n_train], y[:n_train]).predict(X[n_train:]) == y[n_train:] for f in learners().values()]
    folds = RepeatedStratifiedKFold(n_splits=n_splits, n_repeats=n_repeats, random_state=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)                    # a class has few rows
        by_fold = [cross_val_score(f, X[:1000], y[:1000], cv=folds) for f in learners().values()]
    return np.array(by_row, float), np.array(by_fold)


def near_ties(rng):
    """Seven trials that are right on half of 400 rows, and one on 0.02 more; shape (8, 400)."""
    return np.stack([rng.permutation(np.arange(400) < right).astype(float) for right in (200,) * 7 + (208,)])


def compare(table_of, support, epsilon, n_studies=10):
    """Print, for each pruner, the share evaluated, the studies that lost their best trial, and what that cost."""
    optuna = optuna_or_skip()
    names = pruners(optuna, table_of(np.random.default_rng()).shape[1], support, epsilon, None)
    for name in names:
        shares, lost, loss = [], 0, []
        for child in np.random.SeedSequence(20261122).spawn(n_studies):
            rng = np.random.default_rng(child)
            table = table_of(rng)
            means, order = table.mean(axis=1), rng.permutation(len(table))
            pruner, averages = pruners(optuna, table.shape[1], support, epsilon, rng)[name]
            read, finished = run(optuna, pruner, table[order], rng, averages)
            shares.append(read / table.size)
            loss.append(means.max() - means[order[finished]].max())
            lost += loss[-1] > 1e-12
        print(f"| {name} | {np.mean(shares):.3f} | {lost} of {n_studies} | {np.mean(loss):.4f} | {np.max(loss):.4f} |",
              flush=True)


def main():
    by_row, by_fold = covertype()
    for words, table, support in (("rows", by_row, (0, 1)), ("folds", by_fold, (0.2, 0.9))):
        print(f"\n{table.shape[0]} learners, {table.shape[1]} {words}, support {support}; values from "
              f"{table.min():.2f} to {table.max():.2f}\n")
        print("| pruner | share evaluated | best trial lost | mean loss | largest loss |\n|---|---|---|---|---|")
        compare(lambda rng, table=table: table, support, 0.01)
    print("\n8 trials, 400 rows, the best by 0.02\n")
    compare(near_ties, (0, 1), 0.01, 40)


if __name__ == "__main__":
    main()
