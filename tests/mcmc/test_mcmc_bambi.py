"""Formulas have the answers of bambi on bambi's own example tables, within the Monte Carlo error of both.

Skipped without bambi and NumPyro, and without the folder BAMBI_TABLES of the tables in bambi's source distribution.
"""

import os
import pathlib
import warnings

import numpy as np
import pytest
from scipy import stats

from bench import bambi_answers

# Not "sleepstudy", whose table `bambi.load_data` downloads, nor models in which NUTS sticks (three or four groups).
MODELS = ["pigs", "cars, Student", "cars, gamma, no groups", "cars, yes or no", "roaches, Poisson", "roaches",
          "crossed", "faces"]


def refuted(pairs, alpha=1e-6):
    """Means and spreads that differ by more than Monte Carlo error; of equal laws any do once in 1 / alpha sets."""
    limit = stats.norm.isf(alpha / (4 * len(pairs)))
    both = {"mean": bambi_answers.z_of_means, "spread": bambi_answers.z_of_spreads}
    z = {(name, what): of(*logs(name, pair)) for name, pair in pairs.items() for what, of in both.items()}
    return {key: value for key, value in z.items() if not abs(value) < limit}


def logs(name, pair):
    """A scale by its logarithm: the mean of a tail without moments has no Monte Carlo error."""
    return [np.log(draws) for draws in pair] if name.endswith("sigma") or name in ("scale", "dispersion") else pair


@pytest.mark.parametrize("name", MODELS)
def test_answers_are_those_of_bambi(name):
    for library in ("bambi", "formulae", "numpyro"):
        pytest.importorskip(library)
    if "BAMBI_TABLES" not in os.environ:
        pytest.skip("BAMBI_TABLES names no folder of tables")
    frame = bambi_answers.table(bambi_answers.MODELS[name][0], pathlib.Path(os.environ["BAMBI_TABLES"]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pairs, trace, without, _ = bambi_answers.fitted(name, frame, draws=1500)
    assert not without and trace.rhat().max() < 1.01
    assert refuted(pairs) == {}


@pytest.mark.parametrize(("shift", "spread", "there"), [
    (0.0, 1.0, set()), (0.3, 1.0, {"mean"}), (0.0, 1.3, {"spread"}), (0.0, 0.75, {"spread"})])
def test_the_comparison_tells_other_answers(shift, spread, there):
    rng, pairs = np.random.default_rng(3), {}
    for k in range(20):
        ours, theirs = rng.standard_normal((4, 6000)), rng.standard_normal((2, 1501))
        theirs = (theirs[:, 1:] + 0.5 * theirs[:, :-1]) / np.sqrt(1.25)
        pairs[f"b{k}"] = ours, theirs
    assert refuted(pairs) == {}
    pairs["b7"] = shift + spread * pairs["b7"][0], pairs["b7"][1]
    assert {what for _, what in refuted(pairs)} >= there and {name for name, _ in refuted(pairs)} <= {"b7"}
