"""Data sets: found where they should be, coded as said, and missed with a message that helps."""

import os
import sys

import numpy as np
import pytest

from papers import datasets

pandas = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

needs_data = pytest.mark.skipif(not os.environ.get(datasets.VARIABLE), reason="needs the folder of data sets")


@pytest.fixture
def folder(tmp_path):
    frame = pandas.DataFrame({
        "size": np.array([1, 2, 3, 4], dtype=np.int16),
        "colour": pandas.Categorical(["red", "blue", None, "red"], categories=["red", "blue", "green"]),
        "flag": np.array([0, 1, 1, 0], dtype=np.uint8),
        "y": ["no", "yes", "yes", "no"],
        "split": ["train", "train", "test", "valid"],
    })
    frame.to_parquet(tmp_path / "made.parquet")
    frame.drop(columns="split").to_csv(tmp_path / "plain.csv", index=False)
    np.save(tmp_path / "table.npy", np.arange(12.0).reshape(4, 3))
    return tmp_path


def test_a_named_set_is_coded_and_split(folder):
    data = datasets.load("made", folder)
    assert data.names == ("size", "colour", "flag")
    assert data.X.dtype == np.int16
    assert data.X.tolist() == [[1, 1, 0], [2, 0, 1], [3, -1, 1], [4, 1, 0]]
    assert data.y.tolist() == [0, 1, 1, 0]
    assert data.categories == {"colour": ("blue", "red"), "y": ("no", "yes")}     # words that occur, sorted
    assert data.part("train").X[:, 0].tolist() == [1, 2]
    assert data.source == str(folder / "made.parquet")
    assert "4 rows, 3 columns (int16); 1 test, 2 train, 1 valid" in str(data)


def test_the_variable_names_folders(folder, monkeypatch, tmp_path_factory):
    monkeypatch.setenv(datasets.VARIABLE, os.pathsep.join([str(tmp_path_factory.mktemp("empty")), str(folder)]))
    assert datasets.load("made").X.shape == (4, 3)
    assert {"made", "plain", "table", "digits"} <= set(datasets.available())
    assert datasets.find("absent") is None


def test_one_hot_and_one_against_rest(folder):
    data = datasets.load("made", folder)
    hot = data.one_hot()
    assert hot.names == ("size", "flag", "colour=blue", "colour=red")
    assert hot.X.tolist() == [[1, 0, 0, 1], [2, 1, 1, 0], [3, 1, 0, 0], [4, 0, 0, 1]]
    assert data.one_against_rest("no").y.tolist() == data.one_against_rest(0).y.tolist() == [1, 0, 0, 1]
    with pytest.raises(ValueError, match="y has the words"):
        data.one_against_rest("maybe")
    with pytest.raises(ValueError, match="no row has it"):
        data.one_against_rest(7)


def test_samples_are_distinct_rows_and_repeat(folder):
    data = datasets.load("made", folder)
    rows = data.sample(4, rng=1)
    assert sorted(rows.X[:, 0].tolist()) == [1, 2, 3, 4]
    assert np.array_equal(rows.X, data.sample(4, rng=1).X)
    with pytest.raises(ValueError, match="has 4"):
        data.sample(5)


def test_files_of_ones_own(folder):
    csv = datasets.load(folder / "plain.csv", target="size", inputs=["flag", 1])
    assert csv.names == ("flag", "colour")
    assert csv.y.tolist() == [1, 2, 3, 4]
    array = datasets.load(folder / "table.npy")
    assert array.y.tolist() == [2, 5, 8, 11]            # the last column, where none is called y
    assert array.X.tolist() == [[0, 1], [3, 4], [6, 7], [9, 10]]
    assert datasets.load(folder / "table.npy", target=0, inputs=range(1, 3)).y.tolist() == [0, 3, 6, 9]
    assert datasets.read_frame("table", folder, columns=["x1"]).columns.tolist() == ["x1"]


def test_matlab_files(tmp_path):
    from scipy.io import savemat

    table = np.random.default_rng(0).random((5, 4))
    savemat(tmp_path / "robot.mat", {"robot": table})
    data = datasets.load(tmp_path / "robot.mat", target=3, inputs=range(3))
    assert np.array_equal(data.X, table[:, :3])
    assert np.array_equal(data.y, table[:, 3])
    savemat(tmp_path / "two.mat", {"a": table, "b": table})
    with pytest.raises(ValueError, match="2 tables"):
        datasets.load(tmp_path / "two.mat")


def test_pixels_kept_as_bytes_are_spread(tmp_path):
    frame = pandas.DataFrame({"pixels": [bytes([1, 2, 3, 4]), bytes([5, 6, 7, 255])], "y": [0, 1]})
    frame.to_parquet(tmp_path / "images.parquet")
    data = datasets.load("images", tmp_path)
    assert data.X.dtype == np.uint8
    assert data.X.tolist() == [[1, 2, 3, 4], [5, 6, 7, 255]]
    assert data.names[0] == "pixel0"


def test_a_missing_set_says_where_it_looked(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match=rf"adult\.parquet.*{tmp_path.name}.*FASTRACE_DATA.*download=True"):
        datasets.load("adult", tmp_path)
    monkeypatch.delenv(datasets.VARIABLE, raising=False)
    with pytest.raises(FileNotFoundError, match="neither `folder` nor FASTRACE_DATA is set"):
        datasets.load("nothing-of-the-kind")
    with pytest.raises(FileNotFoundError, match="looked for absent"):
        datasets.read_frame("absent", tmp_path)


def test_nothing_is_downloaded_unless_asked(tmp_path, monkeypatch):
    library = pytest.importorskip("sklearn.datasets")
    asked = []

    def fetch(*args, download_if_missing=True, **kwargs):
        asked.append(download_if_missing)
        raise OSError("Data not found and `download_if_missing` is False")

    for name in ("fetch_covtype", "fetch_kddcup99", "fetch_california_housing"):
        monkeypatch.setattr(library, name, fetch)
    monkeypatch.setattr(library, "fetch_openml", lambda *args, **kwargs: pytest.fail("asked the internet"))
    for name in datasets.FETCHED:
        with pytest.raises(FileNotFoundError, match="download=True"):
            datasets.load(name, tmp_path)
    assert asked == [False, False, False]
    with pytest.raises(FileNotFoundError, match="could not fetch it"):
        datasets.load("covertype", tmp_path, download=True)
    assert asked[-1] is True


def test_fetched_sets_take_the_same_form(monkeypatch, tmp_path):
    library = pytest.importorskip("sklearn.datasets")
    from sklearn.utils import Bunch

    x = np.zeros((20000, 54))
    monkeypatch.setattr(library, "fetch_covtype", lambda **k: Bunch(data=x, target=np.ones(20000, dtype=np.int32)))
    data = datasets.load("covertype", tmp_path)
    assert data.X.dtype == np.int16
    assert [len(data.part(word).y) for word in ("train", "valid", "test")] == [11340, 3780, 4880]
    frame = pandas.DataFrame({"duration": [1, 2], "protocol": [b"tcp", b"udp"], "labels": [b"normal.", b"smurf."]})
    monkeypatch.setattr(library, "fetch_kddcup99", lambda **k: Bunch(frame=frame))
    data = datasets.load("kdd99", tmp_path)
    assert data.X.tolist() == [[1, 0], [2, 1]]
    assert data.categories == {"protocol": ("tcp", "udp"), "y": ("normal.", "smurf.")}


def test_sets_that_scikit_learn_brings_along(tmp_path):
    pytest.importorskip("sklearn")
    data = datasets.load("digits", tmp_path)
    assert data.X.shape == (1797, 64)
    assert data.source == "sklearn.datasets.load_digits"
    scaled = data.standardized().X
    assert np.allclose(scaled.mean(axis=0), 0, atol=1e-12)
    assert set(np.round(scaled.std(axis=0), 9)) <= {0.0, 1.0}


def test_missing_packages_are_named(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"needs pandas and pyarrow: .*install pandas pyarrow"):
        datasets.load("made", folder)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ImportError, match="scikit-learn has it too"):
        datasets.load("digits", folder)


def test_columns_that_cannot_be_learnt_from_are_named(tmp_path):
    frame = pandas.DataFrame({"when": pandas.to_datetime(["2020-01-01", "2020-01-02"]), "y": [0, 1]})
    frame.to_parquet(tmp_path / "times.parquet")
    with pytest.raises(ValueError, match="column when .*datetime64"):
        datasets.load("times", tmp_path)
    with pytest.raises(ValueError, match="no column 'z'"):
        datasets.load("times", tmp_path, target="z")
    with pytest.raises(ValueError, match="no column 5"):
        datasets.load("times", tmp_path, target=5)
    np.save(tmp_path / "flat.npy", np.arange(3))
    with pytest.raises(ValueError, match="shape \\(3,\\)"):
        datasets.load("flat", tmp_path)
    with pytest.raises(ValueError, match="no split"):
        datasets.load(tmp_path / "times.parquet", inputs=[]).part("train")


@needs_data
@pytest.mark.parametrize(("name", "rows", "columns", "kind"), [
    ("covertype", 581012, 54, "i"), ("adult", 48842, 14, "i"), ("sarcos_test", 4449, 21, "f"),
    ("kin40k", 40000, 8, "f"), ("protein", 45730, 9, "f"), ("census_kdd", 299285, 40, "i"), ("mnist", 70000, 784, "u"),
])
def test_the_real_files(name, rows, columns, kind):
    data = datasets.load(name)
    assert data.X.shape == (rows, columns)
    assert data.X.dtype.kind == kind
    if name == "covertype":
        assert int(data.one_against_rest(2).y.sum()) == 283301
    if name == "adult":
        assert data.part("train").one_hot().X.shape == (32561, 6 + sum(len(w) for w in data.categories.values()))
