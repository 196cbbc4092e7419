"""Which setting of a learner that is slow to predict is best? Predict few of the held-out rows.

The dull way, `GridSearchCV`, predicts all held-out rows by every setting. `RacingSearchCV` trains every
setting once, then races them over the held-out rows. With probability 0.95 it chooses what the dull way would
choose.

The dull way wins where predictions are quick (linear models, small trees), or where the best settings are
equally good: the race then reads all rows as well.
"""

import argparse
import time

from sklearn.datasets import make_classification
from sklearn.model_selection import GridSearchCV, ShuffleSplit
from sklearn.neighbors import KNeighborsClassifier

from fastrace.model_selection import RacingSearchCV


def main(plot=None):
    X, y = make_classification(4_000, 12, n_informative=8, flip_y=0.2, random_state=0)
    grid = {"n_neighbors": [1, 3, 40, 2000], "weights": ["uniform", "distance"]}
    split = ShuffleSplit(1, test_size=0.5, random_state=0)
    learner = KNeighborsClassifier(algorithm="brute")

    start = time.process_time()
    race = RacingSearchCV(learner, grid, cv=split, refit=False, random_state=0).fit(X, y)
    middle = time.process_time()
    dull = GridSearchCV(learner, grid, cv=split, refit=False).fit(X, y)
    end = time.process_time()
    print(f"RacingSearchCV: {race.best_params_}, {race.fraction_read_:.1%} of the predictions, {middle - start:.1f} s")
    print(f"GridSearchCV:   {dull.best_params_}, all predictions, {end - middle:.1f} s")
    scores = dull.cv_results_["mean_test_score"]
    print(f"accuracy lost by racing: {scores.max() - scores[race.best_index_]:.4f}")

    if plot:
        from matplotlib import pyplot

        figure, panel = pyplot.subplots(figsize=(7, 4), layout="constrained")
        names = [f"{params['n_neighbors']}, {params['weights']}" for params in dull.cv_results_["params"]]
        panel.barh(names, race.race_.pulls)
        panel.axvline(len(y) / 2, color="k", ls=":", label="all held-out rows")
        panel.set(xlabel="predictions asked for", ylabel="neighbours, weights")
        panel.legend()
        figure.savefig(plot)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", metavar="PNG", help="draw what was found into this file; needs matplotlib")
    main(parser.parse_args().plot)
