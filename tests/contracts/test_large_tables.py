"""Tables larger than memory: Parquet by row groups and memory maps; the same choice, and no copy of the whole."""

import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

import pandas
from joblib import parallel_config
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.compose import make_column_transformer
from sklearn.datasets import make_classification
from sklearn.linear_model import Ridge, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier

from fastrace.model_selection import DAUBSearchCV, ParquetRows

LEARNERS = [("bayes", GaussianNB()), ("linear", SGDClassifier(random_state=0)),
            ("tree", DecisionTreeClassifier(max_depth=4, random_state=0))]


@pytest.fixture(scope="module")
def table():
    frame = pandas.DataFrame(np.random.default_rng(0).normal(size=(1000, 3)), columns=list("abc"))
    frame["n"], frame["word"] = np.arange(1000), np.array(["x", "y", "z"])[np.arange(1000) % 3]
    frame.loc[3, "a"] = np.nan
    return frame


def test_subsets_are_those_of_an_array(table, tmp_path, rng):
    table[:600].to_parquet(tmp_path / "1.parquet", row_group_size=70)
    table[600:].to_parquet(tmp_path / "2.parquet", row_group_size=1000)
    rows = ParquetRows([tmp_path / "1.parquet", tmp_path / "2.parquet"], ["n", "a"])
    wanted = table[["n", "a"]].to_numpy()
    assert rows.shape == (1000, 2) and rows.ndim == 2 and rows.dtype == np.float64
    assert repr(rows) == "ParquetRows(1000 rows, 2 columns, 2 files)"
    np.testing.assert_array_equal(np.asarray(rows), wanted)
    keys = [slice(33, 950), slice(590, 610), slice(None, None, 7), slice(5, 2), rng.permutation(1000)[:300],
            rng.random(1000) < 0.3, [5, -1, 5], np.arange(100, 700), []]
    for key in keys:
        part = rows[key]
        found = wanted[np.array(key, int) if isinstance(key, list) else key]
        np.testing.assert_array_equal(part.read(), found)
        np.testing.assert_array_equal(part[1:-1].read(), found[1:-1])
        np.testing.assert_array_equal(part.column("n"), found[:, 0])
        pieces = np.full(part.shape, -1.0)
        for at in part.blocks():
            pieces[at] = part[at].read()
        np.testing.assert_array_equal(pieces, found)
    frames = ParquetRows(tmp_path / "1.parquet", ["word", "n"], frame=True)
    order = rng.permutation(600)[:50]
    pandas.testing.assert_frame_equal(frames[order].read(), table[["word", "n"]].iloc[order].reset_index(drop=True))
    assert frames[order].column("word").tolist() == table["word"].to_numpy()[order].tolist()
    assert len(frames[:0].read()) == 0
    table[["a"]].astype("float32").to_parquet(tmp_path / "3.parquet")
    assert ParquetRows(tmp_path / "3.parquet").read().dtype == np.float32


def test_bad_files_and_rows_are_refused(table, tmp_path):
    table.to_parquet(tmp_path / "t.parquet")
    rows = ParquetRows(tmp_path / "t.parquet", ["a"])
    for call, said in (
        (lambda: ParquetRows(tmp_path / "t.parquet"), r"columns word \(\w+\) of .* are not numbers"),
        (lambda: ParquetRows(tmp_path / "t.parquet", ["d"]), "has no column 'd'; it has a, b, c"),
        (lambda: ParquetRows(tmp_path / "t.parquet", "ab"), "columns is 'ab'"),
        (lambda: ParquetRows([]), "path is empty"),
        (lambda: rows.column("d"), "has no column 'd'"),
        (lambda: rows[1], "a slice, numbers of rows or a mask"),
        (lambda: rows[:, 0], "rows are chosen by"),
    ):
        with pytest.raises(ValueError, match=said):
            call()
    for key in ([1000], [-1001], np.ones(9, bool)):
        with pytest.raises(IndexError):
            rows[key]
    with pytest.raises(ValueError, match="without copying"):
        rows.__array__(copy=False)


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    X, y = make_classification(2000, 8, flip_y=0.1, random_state=0)
    path = tmp_path_factory.mktemp("big") / "t.parquet"
    pandas.DataFrame(X, columns=[f"p{k}" for k in range(8)]).assign(y=y).to_parquet(path, row_group_size=150)
    return X, y, path


@pytest.mark.parametrize("warm_start", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_search_over_a_file_is_that_over_the_array(big, shuffle, warm_start):
    X, y, path = big
    rows = ParquetRows(path, [f"p{k}" for k in range(8)])
    target = ParquetRows(path, ["y"]).column("y")
    options = {"cv": 0.2, "first": 100, "ratio": 3.0, "shuffle": shuffle, "warm_start": warm_start, "random_state": 0}
    learners = [LEARNERS[0], LEARNERS[2]]         # their partial_fit does not depend on the size of blocks
    wanted = DAUBSearchCV(learners, **options).fit(X, y)
    found = DAUBSearchCV(learners, **options).fit(rows, target)
    assert found.result_.allocations == wanted.result_.allocations
    assert found.cv_results_["mean_test_score"] == pytest.approx(wanted.cv_results_["mean_test_score"])
    assert (found.predict(X) == wanted.predict(X)).all() and (found.predict(rows) == wanted.predict(X)).all()
    for scoring in ("neg_log_loss", "roc_auc") if shuffle == warm_start else ():
        one = DAUBSearchCV(learners, scoring=scoring, refit=False, **options).fit(rows, target)
        assert one.best_score_ == pytest.approx(
            DAUBSearchCV(learners, scoring=scoring, refit=False, **options).fit(X, y).best_score_)
    if shuffle and warm_start:
        with parallel_config(backend="threading", n_jobs=2):
            other = DAUBSearchCV(learners, **options).fit(rows, target)
        assert other.result_.allocations == found.result_.allocations


def test_regression_weights_and_frames(big, table, tmp_path):
    X, _, path = big
    rows = ParquetRows(path, [f"p{k}" for k in range(8)])
    y = X @ np.arange(8.0)
    weights = np.random.default_rng(0).random(2000)
    options = {"cv": 0.2, "first": 100, "shuffle": False}
    wanted = DAUBSearchCV(Ridge(), {"alpha": [1.0, 1e5]}, **options).fit(X, y, sample_weight=weights)
    found = DAUBSearchCV(Ridge(), {"alpha": [1.0, 1e5]}, **options).fit(rows, y, sample_weight=weights)
    assert found.best_params_ == {"alpha": 1.0} and found.best_score_ == pytest.approx(wanted.best_score_)
    table.to_parquet(tmp_path / "t.parquet", row_group_size=100)
    frames = ParquetRows(tmp_path / "t.parquet", ["word", "b"], frame=True)
    one_hot = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["word"]), remainder="passthrough")
    made = DAUBSearchCV([("tree", make_pipeline(one_hot, DecisionTreeClassifier(random_state=0))), ("stump",
                        make_pipeline(one_hot, DecisionTreeClassifier(max_depth=1)))], **options)
    made.fit(frames, table["word"].to_numpy() == "y")
    assert made.best_score_ == 1.0 and made.best_estimator_.predict(table[["word", "b"]][:3]).tolist() == [
        False, True, False]


class Sums(ClassifierMixin, BaseEstimator):
    """Looks at every row trained on, allocates next to nothing."""

    def __init__(self, weight=1.0):
        self.weight = weight

    def fit(self, X, y):
        self.classes_, self.base_ = np.unique(y), X
        while self.base_.base is not None and not isinstance(self.base_, np.memmap):
            self.base_ = self.base_.base
        self.view_ = np.shares_memory(self.base_, X)
        self.mean_ = self.weight * sum(X[k : k + 1000].sum() for k in range(0, len(X), 1000)) / len(X)
        del self.base_
        assert self.view_
        return self

    def predict(self, X):
        return np.array([self.classes_[0]]).repeat(len(X))


def test_memory_maps_are_cut_without_copies(tmp_path):
    shape = 400_000, 20                                              # 64 MB
    made = np.lib.format.open_memmap(tmp_path / "x.npy", mode="w+", dtype=np.float64, shape=shape)
    for k in range(0, shape[0], 50_000):
        made[k : k + 50_000] = k
    made.flush()
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    y = (np.arange(shape[0]) % 2).astype(np.int8)
    search = DAUBSearchCV(Sums(), {"weight": [1.0, 2.0]}, cv=0.01, shuffle=False, refit=True)
    tracemalloc.start()
    try:
        found = search.fit(mapped, y)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.cv_results_["n_resources"].max() == 396_000
    assert peak < 24e6, peak                                         # row numbers, targets; the table takes 64


FIT = """
import numpy as np, os, pyarrow as pa, pyarrow.parquet as pq, sys, threading, time
import psutil
from sklearn.linear_model import SGDClassifier
from sklearn.naive_bayes import GaussianNB
from fastrace.model_selection import DAUBSearchCV, ParquetRows

path, n, columns = sys.argv[1], 320_000, 60                         # 154 MB
rng = np.random.default_rng(0)
names = [f"p{k}" for k in range(columns)]
schema = pa.schema([(name, pa.float64()) for name in names] + [("y", pa.int8())])
def group(rows):
    x = rng.random((rows, columns))
    data = [pa.array(x[:, k]) for k in range(columns)] + [pa.array((x[:, 0] > 0.5).astype(np.int8))]
    return pa.table(data, schema=schema)
def search(rows):
    made = DAUBSearchCV([("bayes", GaussianNB()), ("linear", SGDClassifier())], cv=0.1, shuffle=False, warm_start=True,
                        first=5000, random_state=0)
    return made.fit(rows, rows.column("y"))
with pq.ParquetWriter(path, schema, use_dictionary=False, compression="none") as file:
    file.write_table(group(20_000), row_group_size=10_000)
search(ParquetRows(path, names))                                    # imports, pools
with pq.ParquetWriter(path, schema, use_dictionary=False, compression="none") as file:
    for k in range(0, n, 20_000):
        file.write_table(group(20_000), row_group_size=10_000)
process, peak, ended = psutil.Process(), [0], threading.Event()
before = process.memory_info().rss
def watch():
    while not ended.wait(0.005):
        peak[0] = max(peak[0], process.memory_info().rss)
watcher = threading.Thread(target=watch)
watcher.start()
found = search(ParquetRows(path, names))
ended.set()
watcher.join()
print(n * columns * 8, peak[0] - before, found.best_score_, found.cv_results_["n_resources"].max())
"""


def test_a_file_larger_than_what_is_held_of_it(tmp_path):
    pytest.importorskip("psutil")
    said = subprocess.run([sys.executable, "-c", FIT, str(tmp_path / "t.parquet")], capture_output=True, text=True,
                          timeout=180, check=False)
    assert said.returncode == 0, said.stderr
    table, grown, score, rows = (float(word) for word in said.stdout.split())
    assert rows == 288_000 and score > 0.9
    assert grown < table / 3, (grown, table)
