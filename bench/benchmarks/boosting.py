"""FilterBoost beside scikit-learn's boosting at equal rounds: time, rows read, accuracy."""

import numpy as np
from sklearn.ensemble import AdaBoostClassifier, HistGradientBoostingClassifier
from sklearn.tree import DecisionTreeClassifier

from fastrace.boosting import FilterBoostClassifier, _boost, _edges

ROUNDS = 15


def table(n_rows):
    """Ten attributes, three of which matter, and a tenth of the labels wrong."""
    rng = np.random.default_rng(20160619)
    X = rng.random((n_rows, 10), dtype=np.float32)
    y = (X[:, 0] + 0.5 * X[:, 1] + 0.25 * X[:, 2] > 0.9) ^ (rng.random(n_rows) < 0.1)
    return X, y


class Fit:
    """A fit of 15 rounds. The peer reads every row in every round."""

    params = ([10_000, 100_000], ["filterboost", "filterboost-ebgstop-star", "filterboost-nas", "hist"])
    param_names = ["n_rows", "model"]

    def setup(self, n_rows, model):
        self.X, self.y = table(n_rows)
        self.X_test, self.y_test = table(20_000)

    def fit(self, model):
        if model == "hist":
            peer = HistGradientBoostingClassifier(max_iter=ROUNDS, max_leaf_nodes=2, learning_rate=0.5, max_bins=5,
                                                  early_stopping=False)
        else:
            rule = model.removeprefix("filterboost-") if "-" in model else "target-eb"
            peer = FilterBoostClassifier(n_estimators=ROUNDS, rule=rule, random_state=0)
        return peer.fit(self.X, self.y)

    def time_fit(self, n_rows, model):
        self.fit(model)

    def track_rows_read(self, n_rows, model):
        return ROUNDS * n_rows if model == "hist" else int(self.fit(model).n_samples_read_.sum())

    def track_accuracy(self, n_rows, model):
        return self.fit(model).score(self.X_test, self.y_test)


class AdaBoost:
    """The textbook committee of stumps, on the smaller table only: it sorts every feature in every round."""

    def setup(self):
        self.X, self.y = table(10_000)

    def time_fit(self):
        AdaBoostClassifier(DecisionTreeClassifier(max_depth=1), n_estimators=ROUNDS).fit(self.X, self.y)


class Loops:
    """The compiled loops by themselves: rows of 54 features, 162 stumps of which none is of use."""

    params = list(_edges.RULES)
    param_names = ["rule"]
    n_rows, n_features = 200_000, 54

    def setup(self, rule):
        rng = np.random.default_rng(1)
        self.codes = rng.integers(0, 4, (self.n_rows, self.n_features)).astype(np.uint8)
        self.y = rng.choice(np.array([-1, 1], dtype=np.int8), self.n_rows)
        self.order = rng.integers(0, self.n_rows, self.n_rows)

    def time_200000_rows_filtered(self, rule):
        d = self.n_features
        feature, last = np.repeat(np.arange(d), 3), np.tile(np.arange(3), d)
        stream = _boost.StumpStream(
            feature, np.zeros(3 * d), last, np.arange(0, 4 * d + 1, 4),
            _edges.EdgeRule(3 * d, rule, 0.25, 5.0), _boost.Filter(0.01, np.random.default_rng(0)),
        )
        stream.restart(5.0)
        assert stream.consume(self.codes, self.y, self.order) == self.n_rows

    def time_200000_rows_by_numpy(self, rule):
        """The same sums, without bounds: a histogram per feature of those that pass."""
        passed = self.order[np.random.default_rng(0).random(self.n_rows) < 0.5]
        codes, y = self.codes[passed], self.y[passed]
        for j in range(self.n_features):
            np.cumsum(np.bincount(codes[:, j], weights=y, minlength=4))
