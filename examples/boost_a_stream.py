"""Train a boosted classifier from a stream of chunks, and stop reading when it is good enough.

The dull way collects all rows and trains gradient boosting on them. `FilterBoostClassifier` reads, for each
round, only until the edge of some stump is known; it holds one chunk at a time.

The dull way wins where the rows fit in memory and accuracy counts more than rows: its trees are better than
stumps.
"""

import argparse

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

from fastrace.boosting import FilterBoostClassifier


def chunks(seed, n_chunks=60, size=10_000):
    """Rows as they come: sensors, and whether the machine failed."""
    rng = np.random.default_rng(seed)
    for _ in range(n_chunks):
        X = rng.random((size, 8))
        yield X, X[:, 0] + X[:, 1] * (X[:, 2] > 0.5) + 0.1 * rng.normal(size=size) > 0.8


def main(plot=None):
    model = FilterBoostClassifier(n_estimators=8, epsilon=0.05, random_state=1)
    model.fit_chunks(chunks(1), classes=[False, True])
    X, y = next(chunks(2, 1, 20_000))
    read = int(model.n_samples_read_.sum())
    print(f"FilterBoost: accuracy {model.score(X, y):.4f} from {read} of 600000 rows, {model.n_iter_} rounds, "
          f"stopped by {model.stopped_by_!r}")
    whole = [np.concatenate(parts) for parts in zip(*chunks(1), strict=True)]
    dull = HistGradientBoostingClassifier(max_iter=8, random_state=1).fit(*whole)
    print(f"all rows:    accuracy {dull.score(X, y):.4f} from 600000 rows, 8 rounds of trees")

    if plot:
        from matplotlib import pyplot

        figure, panel = pyplot.subplots(figsize=(6, 4), layout="constrained")
        panel.bar(np.arange(model.n_iter_) + 1, model.n_samples_read_)
        panel.set(xlabel="round", ylabel="rows read until the edge was known")
        figure.savefig(plot)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", metavar="PNG", help="draw what was found into this file; needs matplotlib")
    main(parser.parse_args().plot)
