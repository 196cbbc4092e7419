"""Which of 20 trained models predicts best? Compare saved predictions on few of the held-out rows.

The dull way scores every model on every row. `race_predictions` reads rows at random until one model is left.
The rows are shared by all models, so it compares differences of losses, which vary less than the losses.

The dull way wins where predictions are in memory already, since scoring them all takes milliseconds. The race
pays off where each prediction is bought: a remote model, a large ensemble, a person who labels rows.
"""

import argparse

import numpy as np
from sklearn.datasets import make_classification
from sklearn.tree import DecisionTreeClassifier

from fastrace.model_selection import race_predictions


def main(plot=None):
    X, y = make_classification(60_000, 20, n_informative=8, flip_y=0.1, random_state=0)
    train = np.arange(len(y)) < 4000
    models = {f"depth {depth}": DecisionTreeClassifier(max_depth=depth, random_state=0).fit(X[train], y[train])
              for depth in range(1, 21)}
    predicted = np.column_stack([model.predict(X[~train]) for model in models.values()])

    result = race_predictions(y[~train], predicted, delta=0.05, rng=1)
    accuracy = (predicted == y[~train, None]).mean(axis=0)
    names = list(models)
    print(f"race: {names[result.best]}, from {result.fraction_read:.1%} of {predicted.size} predictions")
    print(f"all:  {names[accuracy.argmax()]}, accuracy {accuracy.max():.4f}")
    print(f"lost by racing: {accuracy.max() - accuracy[result.best]:.4f}; stopped by {result.stopped_by!r}")

    if plot:
        from matplotlib import pyplot

        figure, panel = pyplot.subplots(figsize=(7, 4), layout="constrained")
        panel.bar(names, result.pulls, color=["C3" if j == result.best else "C0" for j in range(len(names))])
        panel.axhline((~train).sum(), color="k", ls=":", label="all held-out rows")
        panel.set(ylabel="predictions asked for")
        panel.tick_params(axis="x", rotation=90)
        panel.legend()
        figure.savefig(plot)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", metavar="PNG", help="draw what was found into this file; needs matplotlib")
    main(parser.parse_args().plot)
