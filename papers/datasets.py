"""Data sets for the experiments: found on disk by name, or taken from scikit-learn."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

VARIABLE = "FASTRACE_DATA"
SUFFIXES = (".parquet", ".csv", ".npy", ".mat")
NEEDS = "python -m pip install pandas pyarrow scikit-learn"

# Columns that are not for learning: other targets, sampling weights, times.
LEFT_OUT = {
    "sarcos_test": ("tau2", "tau3", "tau4", "tau5", "tau6", "tau7"),
    "census_kdd": ("instance_weight",),
    "fin_csi300fut_5m": ("ts",),
    "fin_btcperp_1m": ("ts",),
    "fin_eurusd_1h": ("ts",),
    "fin_spy_1h": ("ts",),
    "fin_gbpusd_1m": ("ts",),
    "fin_usdjpy_1m": ("ts",),
}


@dataclass(frozen=True, eq=False)
class Dataset:
    """A table to learn from.

    Attributes
    ----------
    X : ndarray, shape (n_rows, n_columns)
        Inputs, in the smallest dtype that holds every column. A column of words holds codes: places in
        ``categories[name]``, -1 where the word is missing.
    y : ndarray, shape (n_rows,)
        What to predict; codes if it is a word.
    names : tuple of str
        Names of the columns of `X`.
    split : ndarray of str, shape (n_rows,), or None
        "train", "valid" or "test", where the origin of the data fixes it.
    source : str
        Where the data came from: a path, or the scikit-learn function.
    categories : dict of str to tuple of str
        The words of each column that has words, sorted; that of `y` under "y".
    """

    X: NDArray[Any]
    y: NDArray[Any]
    names: tuple[str, ...]
    split: NDArray[np.str_] | None
    source: str
    categories: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rows = self.X.shape[0]
        if self.X.ndim != 2 or self.y.shape != (rows,) or self.X.shape[1] != len(self.names):
            raise ValueError(
                f"X has shape {self.X.shape}, y {self.y.shape}, and there are {len(self.names)} names; a table with a "
                f"value of y per row and a name per column is needed"
            )
        if self.split is not None and self.split.shape != (rows,):
            raise ValueError(f"split has shape {self.split.shape}; ({rows},), one word per row, is needed")

    def __str__(self) -> str:
        parts = ""
        if self.split is not None:
            words, counts = np.unique(self.split, return_counts=True)
            parts = "; " + ", ".join(f"{count} {word}" for word, count in zip(words, counts, strict=True))
        return f"{len(self.X)} rows, {self.X.shape[1]} columns ({self.X.dtype}){parts}; from {self.source}"

    def take(self, rows: Any) -> Dataset:
        """Return the rows that an index, slice or mask picks."""
        split = None if self.split is None else self.split[rows]
        return dataclasses.replace(self, X=self.X[rows], y=self.y[rows], split=split)

    def part(self, word: str) -> Dataset:
        """Return the rows of one part of the split: "train", "valid" or "test"."""
        if self.split is None or not (self.split == word).any():
            known = "no split" if self.split is None else "parts " + ", ".join(np.unique(self.split))
            raise ValueError(f"part is {word!r}; this data set has {known}")
        return self.take(self.split == word)

    def sample(self, n_rows: int, rng: int | np.random.Generator | None = None) -> Dataset:
        """Return `n_rows` different rows in random order."""
        if not 0 < n_rows <= self.X.shape[0]:
            raise ValueError(f"n_rows is {n_rows}; the data set has {self.X.shape[0]}")
        return self.take(np.random.default_rng(rng).choice(self.X.shape[0], n_rows, replace=False))

    def one_against_rest(self, value: Any) -> Dataset:
        """Return the data with y = 1 where it was `value` (a number, or a word of ``categories["y"]``), else 0."""
        code = value
        if isinstance(value, str):
            words = self.categories.get("y", ())
            if value not in words:
                raise ValueError(f"value is {value!r}; y has the words {words}")
            code = words.index(value)
        chosen = self.y == code
        if not np.any(chosen):
            raise ValueError(f"value is {value!r}; no row has it, y begins with {np.unique(self.y)[:10].tolist()}")
        left = {name: words for name, words in self.categories.items() if name != "y"}
        return dataclasses.replace(self, y=chosen.astype(np.int8), categories=left)

    def one_hot(self) -> Dataset:
        """Return the data with a 0/1 column, named ``column=word``, per word of each column of words.

        A missing word has 0 in all of them. Columns of numbers stay, in front and in their order.
        """
        coded = [i for i, name in enumerate(self.names) if name in self.categories]
        plain = [i for i in range(len(self.names)) if i not in coded]
        blocks, names = [self.X[:, plain]], [self.names[i] for i in plain]
        for i in coded:
            words = self.categories[self.names[i]]
            blocks.append((self.X[:, i, None] == np.arange(len(words))).astype(np.uint8))
            names += [f"{self.names[i]}={word}" for word in words]
        left = {name: words for name, words in self.categories.items() if name == "y"}
        return dataclasses.replace(self, X=np.hstack(blocks), names=tuple(names), categories=left)

    def standardized(self) -> Dataset:
        """Return the data with mean 0 and standard deviation 1 in each column of `X` (0 where it is constant)."""
        x = self.X.astype(np.float64)
        x -= x.mean(axis=0)
        scale = x.std(axis=0)
        return dataclasses.replace(self, X=x / np.where(scale > 0, scale, 1.0))


def folders(folder: str | os.PathLike[str] | None = None) -> list[Path]:
    """Return where data sets are looked for: `folder`, else those of the environment variable FASTRACE_DATA."""
    if folder is not None:
        return [Path(folder).expanduser()]
    return [Path(part).expanduser() for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part]


def find(name: str | os.PathLike[str], folder: str | os.PathLike[str] | None = None) -> Path | None:
    """Return the file of a data set, None if there is none.

    Parameters
    ----------
    name : str or path
        A file, or the name of a file in the folders without its ending.
    folder : str or path, optional
        Where to look; the environment variable FASTRACE_DATA by default, folders divided as in PATH.
    """
    path = Path(name).expanduser()
    if path.suffix in SUFFIXES and path.is_file():
        return path
    for place in folders(folder):
        for suffix in ("", *SUFFIXES):
            found = place / f"{os.fspath(name)}{suffix}"
            if found.suffix in SUFFIXES and found.is_file():
                return found
    return None


def available(folder: str | os.PathLike[str] | None = None) -> tuple[str, ...]:
    """Return the names of the data sets in the folders, and of those that scikit-learn brings along."""
    found = {file.stem for place in folders(folder) if place.is_dir()
             for file in place.iterdir() if file.suffix in SUFFIXES}
    return tuple(sorted(found | set(BUNDLED)))


def read_frame(
    name: str | os.PathLike[str], folder: str | os.PathLike[str] | None = None, columns: Sequence[str] | None = None
) -> Any:
    """Read a data set as it stands, as a pandas DataFrame.

    Parameters
    ----------
    name, folder
        See `find`.
    columns : sequence of str, optional
        Read these only.

    Raises
    ------
    FileNotFoundError
        If there is no such file; the message says where it was looked for.
    """
    path = find(name, folder)
    if path is None:
        raise FileNotFoundError(_missing(os.fspath(name), folder))
    pandas = _pandas()
    if path.suffix == ".parquet":
        return pandas.read_parquet(path, columns=None if columns is None else list(columns))
    if path.suffix == ".csv":
        return pandas.read_csv(path, usecols=columns)
    table = np.load(path, mmap_mode="r") if path.suffix == ".npy" else _matlab_table(path)
    if table.ndim != 2:
        raise ValueError(f"{path} holds an array of shape {table.shape}; a table, rows by columns, is needed")
    frame = pandas.DataFrame(table, columns=[f"x{i}" for i in range(table.shape[1])])
    return frame if columns is None else frame[list(columns)]


def load(
    name: str | os.PathLike[str],
    folder: str | os.PathLike[str] | None = None,
    *,
    target: str | int | None = None,
    inputs: Sequence[str | int] | None = None,
    download: bool = False,
) -> Dataset:
    """Load a data set by its name, or a file of one's own.

    Parameters
    ----------
    name : str or path
        A name, such as "covertype" or "adult", or the path of a parquet, csv, npy or mat file.
    folder : str or path, optional
        Folder with the named files; the environment variable FASTRACE_DATA by default.
    target : str or int, optional
        Name or number of the column to predict. By default the column "y", the last one if there is none.
    inputs : sequence of str or int, optional
        Names or numbers of the columns of `X`; by default all others but "split".
    download : bool, default False
        Whether scikit-learn may fetch the set from the internet if it is neither on disk nor in its cache.

    Returns
    -------
    Dataset

    Raises
    ------
    FileNotFoundError
        If the set is not to be had without a download.
    ImportError
        If pandas, pyarrow or scikit-learn is needed and missing.
    ValueError
        If the table has no such column, or one that is neither numbers nor words.

    Notes
    -----
    The files that the scripts know, with their columns: ``covertype`` (54 inputs, 7 classes), ``adult``,
    ``census_kdd``, ``kin40k``, ``protein``, ``sarcos_test``, ``higgs_7500``, ``sensorless``, ``electricity``,
    ``magic04``, ``mnist``, ``a9a``, ``skin``, ``kdd99_http``, ``buzz_toms``, ``msd_subset_4680``, ``fin_*``. Without a
    file, "covertype", "kdd99", "california_housing", "adult", "mnist", "electricity" and "kin8nm" come from
    scikit-learn's fetchers, and "digits", "breast_cancer", "diabetes", "iris" and "wine" from scikit-learn itself.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from papers import datasets
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "small.csv").write_text("size,colour,y\\n1,red,0\\n2,blue,1\\n3,red,1\\n")
    ...     data = datasets.load("small", folder)
    >>> data.categories
    {'colour': ('blue', 'red')}
    >>> data.one_hot().names
    ('size', 'colour=blue', 'colour=red')
    """
    path = find(name, folder)
    if path is None:
        return _from_sklearn(os.fspath(name), folder, download)
    frame = read_frame(path)
    if "pixels" in frame:
        frame = _spread_pixels(frame)
    goal = _column(frame, "y" if target is None and "y" in frame else -1 if target is None else target, path)
    if inputs is not None:
        columns = [_column(frame, column, path) for column in inputs]
    else:
        left_out = {goal, "split", *LEFT_OUT.get(path.stem, ())}
        columns = [column for column in frame.columns if column not in left_out]
    split = frame["split"].to_numpy().astype(str) if "split" in frame else None
    return _dataset(frame, columns, goal, split, str(path))


def _dataset(frame: Any, columns: Sequence[Any], goal: Any, split: Any, source: str) -> Dataset:
    categories: dict[str, tuple[str, ...]] = {}
    values = [_values(frame[column], str(column), source, categories) for column in columns]
    dtype = np.result_type(*values) if values else np.dtype(np.float64)
    x = np.empty((len(frame), len(values)), dtype=dtype)
    for i, column in enumerate(values):
        x[:, i] = column
    y = _values(frame[goal], "y", source, categories)
    return Dataset(x, y, tuple(str(column) for column in columns), split, source, categories)


def _values(series: Any, name: str, source: str, categories: dict[str, tuple[str, ...]]) -> NDArray[Any]:
    """Numbers as they are; words as codes, and the words in `categories`."""
    dtype = series.dtype
    if isinstance(dtype, np.dtype) and dtype.kind in "fiub":
        return np.asarray(series.to_numpy())
    if isinstance(dtype, np.dtype) and dtype.kind not in "OUS":
        raise ValueError(
            f"column {name} of {source} has dtype {dtype}; numbers or words are needed: choose other `inputs`, or "
            f"read it with read_frame"
        )
    pandas = _pandas()
    words = series.astype("string")
    coded = pandas.Categorical(words, categories=sorted(words.dropna().unique()))
    categories[name] = tuple(str(word) for word in coded.categories)
    return np.asarray(coded.codes, dtype=np.int8 if len(coded.categories) <= 127 else np.int32)


def _column(frame: Any, column: str | int, path: Path) -> Any:
    if isinstance(column, (int, np.integer)) and column not in frame.columns:
        if -frame.shape[1] <= column < frame.shape[1]:
            return frame.columns[column]
    elif column in frame.columns:
        return column
    raise ValueError(f"{path} has no column {column!r}; it has {', '.join(map(str, frame.columns[:12]))} ...")


def _spread_pixels(frame: Any) -> Any:
    """Images kept as bytes, one column per pixel."""
    pixels = np.frombuffer(b"".join(frame["pixels"]), dtype=np.uint8).reshape(len(frame), -1)
    table = _pandas().DataFrame(pixels, columns=[f"pixel{i}" for i in range(pixels.shape[1])])
    return table.assign(**{name: frame[name].to_numpy() for name in frame.columns if name != "pixels"})


def _matlab_table(path: Path) -> NDArray[Any]:
    from scipy.io import loadmat

    tables = [value for key, value in loadmat(path).items() if not key.startswith("__") and np.ndim(value) == 2]
    if len(tables) != 1:
        raise ValueError(f"{path} holds {len(tables)} tables; exactly one is needed")
    return np.asarray(tables[0])


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise ImportError(f"reading data sets needs pandas and pyarrow: {NEEDS}") from error
    return pandas


def _missing(name: str, folder: str | os.PathLike[str] | None) -> str:
    looked = [str(place) for place in folders(folder)]
    where = ", ".join(looked) if looked else f"no folder (neither `folder` nor {VARIABLE} is set)"
    return (
        f"no data set {name!r}: looked for {name}.parquet, .csv, .npy or .mat in {where}; give the path of a file, "
        f"`folder`, or the environment variable {VARIABLE}"
    )


def _from_sklearn(name: str, folder: str | os.PathLike[str] | None, download: bool) -> Dataset:
    if name not in BUNDLED and name not in FETCHED:
        raise FileNotFoundError(_missing(name, folder))
    try:
        from sklearn import datasets as library
    except ImportError as error:
        raise ImportError(f"{_missing(name, folder)}; scikit-learn has it too: {NEEDS}") from error
    if name in BUNDLED:
        bunch = getattr(library, f"load_{name}")()
        return _plain(bunch.data, bunch.target, bunch.feature_names, f"sklearn.datasets.load_{name}")
    try:
        return FETCHED[name](library, download)
    except OSError as error:
        why = f"scikit-learn could not fetch it: {error}" if download else "scikit-learn can fetch it: download=True"
        raise FileNotFoundError(f"{_missing(name, folder)}; {why}") from error


def _plain(x: Any, y: Any, names: Sequence[Any], source: str) -> Dataset:
    return Dataset(np.asarray(x), np.asarray(y), tuple(str(name) for name in names), None, source)


def _covertype(library: Any, download: bool) -> Dataset:
    bunch = library.fetch_covtype(download_if_missing=download)
    x = bunch.data.astype(np.int16)
    split = np.full(len(x), "test", dtype="<U5")         # as the set's documentation divides it
    split[:15120] = "valid"
    split[:11340] = "train"
    names = getattr(bunch, "feature_names", None) or [f"x{i}" for i in range(x.shape[1])]
    return dataclasses.replace(_plain(x, bunch.target, names, "sklearn.datasets.fetch_covtype"), split=split)


def _kdd99(library: Any, download: bool) -> Dataset:
    bunch = library.fetch_kddcup99(percent10=True, as_frame=True, download_if_missing=download)
    frame = bunch.frame.copy()
    for name in frame.columns:
        frame[name] = [item.decode() if isinstance(item, bytes) else item for item in frame[name]]
    frame = frame.infer_objects()
    columns = [name for name in frame.columns if name != "labels"]
    return _dataset(frame, columns, "labels", None, "sklearn.datasets.fetch_kddcup99")


def _california(library: Any, download: bool) -> Dataset:
    bunch = library.fetch_california_housing(download_if_missing=download)
    return _plain(bunch.data, bunch.target, bunch.feature_names, "sklearn.datasets.fetch_california_housing")


def _openml(label: str, version: int) -> Callable[[Any, bool], Dataset]:
    def fetch(library: Any, download: bool) -> Dataset:
        if not download:
            raise OSError("not on disk")
        bunch = library.fetch_openml(label, version=version, as_frame=True, parser="auto")
        goal = bunch.target_names[0]
        columns = [name for name in bunch.frame.columns if name != goal]
        source = f"sklearn.datasets.fetch_openml({label!r}, version={version})"
        return _dataset(bunch.frame, columns, goal, None, source)

    return fetch


BUNDLED = ("breast_cancer", "diabetes", "digits", "iris", "wine")
FETCHED: dict[str, Callable[[Any, bool], Dataset]] = {
    "covertype": _covertype,
    "kdd99": _kdd99,
    "california_housing": _california,
    "adult": _openml("adult", 2),
    "electricity": _openml("electricity", 1),
    "kin8nm": _openml("kin8nm", 1),
    "mnist": _openml("mnist_784", 1),
}
