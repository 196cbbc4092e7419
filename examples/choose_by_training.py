"""Which of 12 learners is best on all rows? Train all on few rows, and the promising ones on more.

The dull way is `GridSearchCV`: every learner trained on all rows. `DAUBSearchCV` trains on growing subsets,
and projects from the learning curves who can still win.

The dull way wins where training is quick or rows are few: a training that takes milliseconds is not worth
predicting. So does one plain subset of the rows for all learners where the best is best by far.
"""

import argparse
import time

import numpy as np
from sklearn.datasets import make_classification
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import ShuffleSplit, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from fastrace.model_selection import DAUBSearchCV


def main(plot=None):
    X, y = make_classification(12_000, 20, n_informative=12, flip_y=0.05, random_state=0)
    learners = [("bayes", GaussianNB()), ("logistic", LogisticRegression())]
    learners += [(f"{k} neighbours", KNeighborsClassifier(k)) for k in (1, 15)]
    learners += [(f"tree {depth}", DecisionTreeClassifier(max_depth=depth, random_state=0)) for depth in (3, 8, None)]
    learners += [(f"extra trees {leaf}", ExtraTreesClassifier(30, min_samples_leaf=leaf, random_state=0))
                 for leaf in (1, 5, 20)]
    learners += [(f"boosting {n}", HistGradientBoostingClassifier(max_iter=n, early_stopping=False, random_state=0))
                 for n in (10, 40)]
    split = ShuffleSplit(1, test_size=0.25, random_state=0)

    start = time.process_time()
    search = DAUBSearchCV(learners, cv=split, refit=False, random_state=0).fit(X, y)
    middle = time.process_time()
    full = {name: cross_val_score(learner, X, y, cv=split).mean() for name, learner in learners}
    end = time.process_time()
    chosen, best = search.best_params_["choice"], max(full, key=lambda name: full[name])
    rows = np.sum(search.rows_) / (len(learners) * 9000)
    print(f"DAUBSearchCV: {chosen:16s} {full[chosen]:.4f} on all rows; {middle - start:5.1f} s, {rows:.0%} of the rows")
    print(f"all in full:  {best:16s} {full[best]:.4f} on all rows; {end - middle:5.1f} s")

    if plot:
        from matplotlib import pyplot

        figure, panel = pyplot.subplots(figsize=(7, 4), layout="constrained")
        panel.barh([name for name, _ in learners], search.result_.rows)
        panel.axvline(9000, color="k", ls=":", label="all rows once")
        panel.set(xlabel="rows trained on")
        panel.legend()
        figure.savefig(plot)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", metavar="PNG", help="draw what was found into this file; needs matplotlib")
    main(parser.parse_args().plot)
