"""A hundred decision trees on Covertype, and which of their answers on held-out rows are right: trained once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from papers import datasets
from papers.common import save_arrays

DEPTHS, LEAVES = (2, 3, 4, 5, 6, 8, 10, 13, 17, 25), (1, 2, 3, 5, 8, 13, 20, 40, 80, 160)
SETTINGS = [(depth, leaf) for depth in DEPTHS for leaf in LEAVES]
Bar = Callable[[Sequence[Any], str], Iterator[Any]]


def table(data: Path | None, quick: bool, seed: int) -> tuple[np.ndarray, np.ndarray, str]:
    """Inputs, classes and a name: Covertype where it is at hand, else made data."""
    try:
        found = datasets.load("covertype", data)
        return np.asarray(found.X, dtype=np.float32), np.asarray(found.y), "Covertype"
    except (ImportError, OSError, ValueError):
        from sklearn.datasets import make_classification

        size = 30_000 if quick else 200_000
        x, y = make_classification(size, 30, n_informative=12, n_classes=4, flip_y=0.05, random_state=seed)
        return x.astype(np.float32), y, "made data"


def answers(folder: Path, data: Path | None, quick: bool, seed: int, bar: Bar) -> tuple[np.ndarray, str]:
    """Whether each tree is right on each held-out row, shape (n_rows, 100), and the name of the data.

    The file in `folder` has a bit per answer: 7 MB for 561,012 rows of Covertype.
    """
    path = folder / f"subset_selection_trees{'_quick' if quick else ''}_{seed}.npz"
    if not path.exists():
        from sklearn.tree import DecisionTreeClassifier

        x, y, name = table(data, quick, seed)
        order = np.random.default_rng(seed).permutation(len(y))
        n_train, n_held = (2000, 20_000) if quick else (20_000, len(y))
        train, held = order[:n_train], order[n_train:n_train + n_held]
        x_train, y_train, x_held, y_held = x[train], y[train], x[held], y[held]
        del x, y
        bits = []
        for depth, leaf in bar(SETTINGS, "training 100 trees, and recording what they answer"):
            tree = DecisionTreeClassifier(max_depth=depth, min_samples_leaf=leaf, random_state=0).fit(x_train, y_train)
            bits.append(np.packbits(tree.predict(x_held) == y_held))
        save_arrays(path, bits=np.stack(bits), n_rows=len(held), name=name)
    with np.load(path) as kept:
        right = np.unpackbits(kept["bits"], axis=1, count=int(kept["n_rows"]))
        return np.ascontiguousarray(right.T).view(bool), str(kept["name"])
