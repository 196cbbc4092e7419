"""Odd things at doors outside `mcmc`: refused in words, of which none is read as a number or a label in silence."""

import datetime as dt

import numpy as np
import pytest
from scipy import sparse

import fastrace as fr
from fastrace.mcmc import GLM
from fastrace.model_selection import race_predictions

pd = pytest.importorskip("pandas")

TABLE = np.random.default_rng(0).random((300, 2))
CATEGORIES = pd.DataFrame({"a": pd.Categorical([1, 2] * 150), "b": TABLE[:, 1]})


def polars():
    return pytest.importorskip("polars")


def dated():
    """A frame of dates and floats, of which polars makes an array of floats."""
    return polars().DataFrame({"a": [dt.date(2026, 1, 1)] * 300, "b": [0.1] * 300})


def between(a, b, axis):
    return a.mean(axis) - b.mean(axis)


ODD = {
    "dates as samples": (lambda: fr.permutation_test((dated(), dated()), between, n_resamples=99),
                         r"data\[0\] holds values of type Date; real numbers are needed"),
    "dates as moments": (lambda: fr.RunningMoments(2).update_many(dated()), "xs holds values of type Date"),
    "dates told": (lambda: fr.BettingRace(2, support=(0, 1)).tell(dated()), "rewards holds values of type Date"),
    "durations told": (lambda: fr.BettingRace(2, support=(0, 1)).tell(
        polars().DataFrame({"a": [dt.timedelta(1)], "b": [0.1]})), "rewards holds values of type Duration"),
    "categories as moments": (lambda: fr.RunningMoments(2).update_many(CATEGORIES), "xs holds values of type category"),
    "categories as a stream": (lambda: fr.EBStop(0.1, 0.1, (0, 5)).update_many(CATEGORIES["a"]),
                               "xs holds values of type category"),
    "categories as costs": (lambda: fr.race(TABLE, support=(0, 1), cost=pd.Series([1, 2], dtype="category")),
                            "cost holds values of type category"),
    "a frame of sums": (lambda: fr.race_sums(polars().DataFrame(TABLE)), r"rewards is a table of shape \(300, 2\)"),
    "an Arrow table of sums": (lambda: fr.race_sums(pytest.importorskip("pyarrow").table({"a": [1.0], "b": [2.0]})),
                               r"rewards is a table of shape \(1, 2\)"),
    "huge labels": (lambda: race_predictions(np.zeros(300), [[10**400, 1]] * 300), "no label that was predicted"),
    "dicts as labels": (lambda: race_predictions([{"a": 1}] * 300, np.zeros((300, 2))), "y_true holds no labels"),
    "series as labels of arms": (lambda: fr.Comparison((pd.Series(TABLE[:, 0]), pd.Series(TABLE[:, 1]))),
                                 "arms has <Series of shape .300,.> of type Series; a word or a number is needed"),
    "a frame as labels of arms": (lambda: fr.Comparison(polars().DataFrame(TABLE)), "arms has <Series of shape"),
    "a sparse matrix of labels": (lambda: fr.Comparison(sparse.csr_matrix(TABLE)), "arms has <csr_matrix of shape"),
    "a set of labels": (lambda: fr.Comparison({"a", "b"}), "arms is {.*}; a number of arms, or a sequence of labels"),
    "sparse arms of rewards": (lambda: fr.Comparison(2).observe_many(sparse.csr_matrix(TABLE), TABLE[:, 0]),
                               "arms is <csr_matrix of shape .*>; a label for each reward"),
    "a table of clusters": (lambda: fr.Comparison(2, clusters=True).observe_many(0, TABLE[:, 0], clusters=TABLE),
                            "clusters holds .* of type list; a key per reward is needed"),
    "a list as a cluster": (lambda: fr.Comparison(2, clusters=True).observe(0, 0.5, cluster=[1]),
                            r"clusters holds \[1\] of type list; a key per reward is needed"),
    "a frame of names": (lambda: fr.race(TABLE, names=polars().DataFrame(TABLE)), "names is <DataFrame .*; a seq"),
    "a frame of pandas of names": (lambda: fr.race(TABLE, names=CATEGORIES), "names is <DataFrame of shape .*; a seq"),
}


@pytest.mark.parametrize("what", ODD)
def test_odd_input_is_refused_in_words(what):
    call, words = ODD[what]
    with pytest.raises((TypeError, ValueError), match=words):
        call()


def test_what_looks_odd_and_is_good():
    moments = fr.RunningMoments(2)
    for table in (polars().DataFrame(TABLE, schema=["a", "b"]),
                  polars().DataFrame({"b": TABLE[:, 1], "a": TABLE[:, 0]}),
                  CATEGORIES.assign(a=TABLE[:, 0]), pd.DataFrame(TABLE, dtype="Float64").set_axis(["a", "b"], axis=1)):
        moments.update_many(table)
    np.testing.assert_allclose(moments.mean, TABLE.mean(axis=0))
    labels = pd.Series(pd.Categorical(["x", "y"] * 150))
    made = fr.Comparison(labels.cat.categories, support=(0, 1))
    made.observe_many(labels, TABLE[:, 0], clusters=None)
    assert made.result().mean.tolist() == pytest.approx([TABLE[::2, 0].mean(), TABLE[1::2, 0].mean()])
    assert race_predictions(labels, pd.DataFrame({"m": labels, "n": labels[::-1].to_numpy()})).best == 0


DOORS = {
    "race": fr.race, "select_best": fr.select_best, "estimate_mean": fr.estimate_mean,
    "from_frame": lambda frame: fr.Comparison.from_frame(frame, arm="a", reward="b"),
    "race_predictions": lambda frame: race_predictions(TABLE[:, 0] > 0.5, frame),
    "GLM": lambda frame: GLM(frame, TABLE[:, 0] > 0.5, "logistic"),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.filterwarnings("error")
def test_a_frame_that_is_not_read_yet_is_refused_in_words(door):
    lazy = polars().LazyFrame({"a": TABLE[:, 0], "b": TABLE[:, 1]})
    with pytest.raises(TypeError, match=r"is a LazyFrame, which has no rows yet; give \w+\.collect\(\)"):
        DOORS[door](lazy)
