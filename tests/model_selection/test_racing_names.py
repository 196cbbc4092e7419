"""RacingSearchCV: names of candidates wherever one is named, and the two orders of held-out rows."""

from collections import Counter
from itertools import permutations

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.model_selection import GridSearchCV, KFold

from fastrace.model_selection import RacingSearchCV
from fastrace.model_selection.searches._held_out import Turns

GRID = {"column": [1, 2, 3]}
NAMES = ["worst", "middle", "best"]


class Right(ClassifierMixin, BaseEstimator):
    """Knows from a column of X whether it is right; notes which rows it predicts, whose numbers are column 0."""

    seen: list = []

    def __init__(self, column=1, fail=""):
        self.column = column
        self.fail = fail

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        if self.fail == "predict":
            raise OSError("no answer")
        Right.seen += X[:, 0].astype(int).tolist()
        return np.where(X[:, self.column] > 0, X[:, -1], 1 - X[:, -1]).astype(int)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    right, y = rng.random((900, 3)) < [0.3, 0.6, 0.9], rng.integers(0, 2, 900)
    return np.column_stack([np.arange(900), right, y]).astype(float), y


def search(grid=GRID, **options):
    return RacingSearchCV(Right(), grid, random_state=5, **{"cv": KFold(3), "refit": False} | options)


def test_the_race_its_picture_and_the_table_of_results_have_the_names(data):
    found, plain = clone(search(names=NAMES)).fit(*data), search().fit(*data)
    assert found.race_.names == tuple(NAMES) and found.cv_results_["name"].tolist() == NAMES
    assert "best arm best" in str(found.race_) and "column=" not in str(found.race_)
    assert list(plain.race_.names) == plain.cv_results_["name"].tolist() == ["column=1", "column=2", "column=3"]
    assert np.array_equal(plain.race_.mean, found.race_.mean) and found.best_index_ == plain.best_index_ == 2
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    axes = np.ravel(found.race_.plot())[0]
    assert set(NAMES) <= {label.get_text() for label in axes.get_yticklabels()}
    pyplot.close(axes.figure)


def test_costs_go_by_the_names(data):
    pandas = pytest.importorskip("pandas")
    found = search(names=NAMES, cost=pandas.Series([10.0, 2.0, 1.0], index=NAMES[::-1])).fit(*data)
    assert found.race_.cost == found.race_.pulls @ [1.0, 2.0, 10.0]


def test_errors_and_warnings_have_the_names(data):
    both = search({"fail": ["predict"] * 2}, names=["one", "two"])
    with pytest.warns(UserWarning, match="'one'"), pytest.raises(ValueError, match="one: OSError.*two: OSError"):
        both.fit(*data)
    with pytest.warns(UserWarning, match=r"candidate 1 \('two'\) is out of the race, its predictions failed"):
        search({"fail": ["", "predict"]}, names=["one", "two"]).fit(*data)
    with pytest.raises(ValueError, match="^RacingSearchCV: names has 2 entries; one per arm is needed"):
        search(names=["one", "two"]).fit(*data)


@pytest.mark.parametrize("order", ["random", "given"])
def test_the_order_given_reads_each_split_in_its_order(data, order):
    Right.seen.clear()
    with pytest.warns(UserWarning, match="max_pulls"):
        found = search({"column": [1, 1]}, order=order, max_pulls=900).fit(*data)
    rows = np.array(Right.seen)
    assert np.unique(rows).size * 2 == rows.size == found.race_.n_read      # each by two candidates, none twice
    gaps = [np.diff(np.unique(rows[rows // 300 == k])) for k in range(3)]
    windows = [(gap > 1).sum() <= 1 for gap in gaps]                # of a circle, so with one gap at most
    assert all(windows) if order == "given" else not any(windows)


@pytest.mark.parametrize("missing", ["raise", "drop"])
def test_the_order_given_is_exact_where_all_rows_are_read(data, missing):
    twins = {"column": [2, 2]}
    found = search(twins, order="given", missing=missing).fit(*data)
    assert found.fraction_read_ == 1.0 and found.race_.stopped_by == "exact"
    exact = GridSearchCV(Right(), twins, cv=KFold(3), refit=False).fit(*data)
    for name in ("mean_test_score", "split0_test_score", "split2_test_score"):
        assert np.allclose(found.cv_results_[name], exact.cv_results_[name])


def test_a_search_in_the_order_given_goes_on_from_where_it_stopped(data):
    with pytest.warns(UserWarning, match="max_seconds"):
        stopped = search({"column": [2, 2]}, order="given", max_seconds=1e-9).fit(*data)
    assert stopped.race_.stopped_by == "max_seconds"
    Right.seen.clear()
    stopped.set_params(max_seconds=None).fit(*data)
    whole = search({"column": [2, 2]}, order="given").fit(*data)
    assert stopped.fraction_read_ == 1.0 and np.array_equal(stopped.race_.mean, whole.race_.mean)
    assert len(Right.seen) < 4 * 900            # the second search asked for all 1800 predictions, the first for less


def test_rows_in_random_order_within_splits_are_read_in_random_order():
    """Of all orders of the draws and all orders of the rows within splits, each order of the line comes as often."""
    starts, found = np.array([0, 3, 5]), Counter()
    for seed in range(3):
        for drawn in permutations(range(5)):
            turns = Turns(starts, seed)
            read = np.concatenate([turns.take(np.array(part)) for part in (drawn[:2], drawn[2:])])
            assert sorted(read) == list(range(5))
            for first in permutations(range(3)):
                for second in permutations(range(3, 5)):
                    found[tuple(np.array(first + second)[read].tolist())] += 1
    assert len(found) == 120 and set(found.values()) == {3 * 12}
    read = Turns(np.array([0, 10]), 1).take(np.random.default_rng(0).permutation(10))
    assert (np.diff(read) % 10 == 1).all()
