"""Decisions of methods that train learners on more and more rows, beside the plain rule in NumPy."""

import math

import numpy as np

from fastrace.model_selection import ASHA, DAUB, BudgetedUCB, SuccessiveHalving, race_predictions, vc_penalty

DECISIONS = 10_000


def scores(n_learners):
    rng = np.random.default_rng(20160619)
    return rng.random(n_learners).tolist(), (50 * rng.random(n_learners)).tolist()


class Decisions:
    """10^4 decisions of DAUB after the first sizes; the target is 5 us each, whatever the number of learners."""

    params = [100, 1000, 100_000]
    param_names = ["n_learners"]

    def setup(self, n_learners):
        self.final, self.speed = scores(n_learners)
        self.method = DAUB(n_learners, 10**15, 100, 1.02, capped=False)     # never over
        for _ in range(3 * n_learners):
            self.decide()

    def decide(self):
        i, n = self.method.ask()
        self.method.tell(i, n, 1.0, self.final[i] - self.speed[i] / n**0.5)

    def time_daub(self, n_learners):
        for _ in range(1000):
            self.decide()

    time_daub.number = 1

    def time_daub_lead_changes(self, n_learners):
        """Training scores bound the projections and fall: each learner trained goes to the end of the queue."""
        for _ in range(1000):
            i, n = self.method.ask()
            self.method.tell(i, n, 1e-6 / n, self.final[i])

    time_daub_lead_changes.number = 1

    def time_argmax(self, n_learners):
        """The plain rule: one argmax over all bounds and one polyfit a decision, a hundred of them."""
        bounds, x = np.array(self.final), np.arange(3.0)
        for k in range(100):
            i = int(bounds.argmax())
            slope = np.polyfit(x, [0.1, 0.2, 0.3], 1)[0]
            bounds[i] -= 1e-3 * slope * (k + 1)


class WholeRuns:
    """One choice among 1000 learners, from beginning to end."""

    params = ["daub", "halving", "asha", "ucb"]
    param_names = ["method"]

    def setup(self, method):
        self.final, self.speed = scores(1000)

    def run(self, method):
        if method == "ucb":
            made = BudgetedUCB([100] * 1000, 5000, [vc_penalty(3, 0.1)] * 1000, kappa2=0.1)
            return made.run(lambda i, n: (1.0 - self.final[i], None))
        made = {"daub": DAUB, "halving": SuccessiveHalving, "asha": ASHA}[method]
        made = made(1000, 10**6) if method == "halving" else made(1000, 10**6, 500)
        return made.run(lambda i, n: (1.0, self.final[i] - self.speed[i] / n**0.5))

    def time_run(self, method):
        self.run(method)

    def track_share_of_rows(self, method):
        return self.run(method).rows.sum() / 1e9

    def track_loss(self, method):
        ends = [f - s / math.sqrt(1e6) for f, s in zip(self.final, self.speed, strict=True)]
        return max(ends) - ends[self.run(method).best]


class RacePredictions:
    """50 candidates, 2 x 10^5 held-out predictions each.

    Neighbours three standard errors apart; 49 of them three standard errors below the best; or all equal.
    """

    params = ["apart", "below", "equal"]
    param_names = ["gaps"]
    n_rows, n_candidates = 200_000, 50

    def setup(self, gaps):
        rng = np.random.default_rng(20160619)
        self.y = rng.integers(0, 5, self.n_rows).astype(np.int8)
        step = 3.0 * np.sqrt(0.1 / self.n_rows)
        below = {"apart": range(50), "below": [0, *[1] * 49], "equal": [0] * 50}[gaps]
        hard = rng.random(self.n_rows, dtype=np.float32)
        self.predicted = np.empty((self.n_rows, self.n_candidates), np.int8)
        for k in range(self.n_candidates):
            level = 0.7 * hard + 0.3 * rng.random(self.n_rows, dtype=np.float32)
            right = level < np.quantile(level, 0.85 - below[k] * step)
            self.predicted[:, k] = np.where(right, self.y, (self.y + 1) % 5)

    def time_race(self, gaps):
        race_predictions(self.y, self.predicted, rng=1)

    def time_full_comparison(self, gaps):
        (self.predicted == self.y[:, None]).mean(axis=0).argmax()

    def track_fraction_read(self, gaps):
        return race_predictions(self.y, self.predicted, rng=1).fraction_read


def six_models(kind):
    """Of one kind, from simple to complex."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.tree import DecisionTreeClassifier

    if kind == "logistic regression":
        return [make_pipeline(StandardScaler(), LogisticRegression(C=c, max_iter=2000))
                for c in (1e-4, 1e-3, 3e-3, 0.01, 0.1, 1.0)]
    if kind == "boosted trees":
        return [HistGradientBoostingClassifier(max_iter=n, random_state=0) for n in (10, 20, 40, 80, 160, 320)]
    return [DecisionTreeClassifier(max_depth=depth, random_state=0) for depth in (4, 6, 8, 10, 12, None)]


class LogLoss:
    """60 races of six models for log loss, from 50,000 rows of predictions: the share read, and how many were wrong.

    By the normal rule, and by bets with the ends of the scores: those of the arrays, or of any probability, or, of a
    function too, the log of the least probability, where that is known. The four that are far apart are the simplest
    logistic regressions.
    """

    params = [["logistic regression", "boosted trees", "trees with pure leaves", "four far apart"],
              ["normal", "arrays", "function", "function and support"]]
    param_names = ["probabilities", "how"]
    timeout = 600

    def setup_cache(self):
        from sklearn.datasets import make_classification

        X, y = make_classification(60_000, 20, n_informative=8, n_redundant=4, n_clusters_per_class=3, flip_y=0.05,
                                   class_sep=0.8, random_state=0)
        tables = {kind: np.stack([model.fit(X[:10_000], y[:10_000]).predict_proba(X[10_000:])
                                  for model in six_models(kind)], axis=1) for kind in self.params[0][:3]}
        return y[10_000:], tables | {"four far apart": tables["logistic regression"][:, :4].copy()}

    def setup(self, cached, kind, how):
        self.y, table = cached[0], cached[1][kind]
        score = np.log(np.clip(table[np.arange(len(self.y)), :, self.y], 2.22e-16, 1.0))
        self.best = int(score.mean(axis=0).argmax())
        self.given = {"y_pred": table} if how == "arrays" else {
            "y_pred": lambda arms, rows: table[np.ix_(rows, arms)], "n_candidates": table.shape[1]}
        self.given |= {"bound": "normal"} if how == "normal" else {}
        if how == "function and support":
            self.given["support"] = float(np.log(np.clip(table.min(), 2.22e-16, 1.0))), 0.0

    def races(self):
        return [race_predictions(self.y, scoring="neg_log_loss", first_look=50, cost=1.0, rng=seed, **self.given)
                for seed in range(60)]

    def track_fraction_read(self, cached, kind, how):
        return float(np.mean([result.fraction_read for result in self.races()]))

    def track_wrong(self, cached, kind, how):
        return sum(result.best != self.best for result in self.races())
