"""Scores that are means over rows: scikit-learn's own to rounding, and races over given predictions."""

import pickle

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import fbeta_score, get_scorer, make_scorer, mean_squared_error

import fastrace as fr
from fastrace.model_selection import RowScore, race_predictions
from fastrace.model_selection._row_scores import NAMED, named, row_score
from guarantee import assert_rate_at_most, few_or_many

CLASSES = ("accuracy", "balanced_accuracy", "neg_log_loss", "neg_brier_score")


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(600, 4))
    y = np.array(["a", "b", "c"])[np.clip((x[:, 0] + 0.5 * rng.normal(size=600)).round() + 1, 0, 2).astype(int)]
    z = np.exp(0.3 * x[:, 1] + 0.1 * rng.normal(size=600))

    class Positive(Ridge):
        def predict(self, X):
            return np.maximum(super().predict(X), 0.05)

    return x, y, z, LogisticRegression().fit(x, y), Positive().fit(x, z), rng.random(600)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", NAMED)
def test_names_are_the_scores_of_scikit_learn(fitted, name, weighted):
    x, y, z, classifier, regressor, weights = fitted
    target, model = (y, classifier) if name in CLASSES else (z, regressor)
    if name == "neg_brier_score":                   # of three classes in newer releases only
        target, model = y != "a", LogisticRegression().fit(x, y != "a")
    more = {"sample_weight": weights} if weighted else {}
    wanted = get_scorer(name)(model, x, target, **more)
    score = named(name)
    assert score(model, x, target, **more) == pytest.approx(wanted, rel=1e-10)
    assert row_score(get_scorer(name)).name == pickle.loads(pickle.dumps(score)).name == name
    if name not in CLASSES and "deviance" not in name:      # several outputs at once
        both, model = np.column_stack([z, 2.0 * z[::-1] + 1.0]), type(regressor)().fit(x, np.column_stack([z, z]))
        assert score(model, x, both, **more) == pytest.approx(get_scorer(name)(model, x, both, **more), rel=1e-10)


@pytest.mark.parametrize("name", NAMED)
def test_tables_equal_rows(fitted, name):
    x, y, z, classifier, regressor, _ = fitted
    score = named(name)
    target, labels = (y, classifier.classes_) if name in CLASSES else (z, None)
    one = getattr(classifier if name in CLASSES else regressor, score.response_method)(x)
    block = np.stack([one, one[::-1]], axis=1)
    fold = score.fold(target, 600)
    found = score.table(target, block, labels, fold.constants)
    for k in range(2):
        assert found[:, k] == pytest.approx(score.rows(target, block[:, k], labels, fold.constants), rel=1e-12)
    support = score.support_for(labels)
    assert support is None or (found.min() >= support[0] and found.max() <= support[1])


def test_what_is_not_a_mean_over_rows_is_refused():
    for scoring in ("f1", "roc_auc", "explained_variance", {"a": "accuracy"}, ["accuracy"],
                    make_scorer(fbeta_score, beta=2), make_scorer(mean_squared_error), lambda e, X, y: 0.0):
        with pytest.raises(ValueError, match="mean of one number per row"):
            row_score(scoring)
    with pytest.raises(ValueError, match="r2 is not a mean over rows in a fold of 1 rows"):
        named("r2").fold(np.ones(1), 1)
    constant = named("r2").fold(np.ones(3), 3).constants
    assert named("r2").rows(np.ones(3), np.array([1.0, 0.9, 1.0]), None, constant).tolist() == [1.0, 0.0, 1.0]
    with pytest.raises(ValueError, match="response_method is 'transform'"):
        RowScore(np.equal, "transform")
    with pytest.raises(TypeError, match="function is 3"):
        RowScore(3)
    with pytest.raises(ValueError, match="gave shape"):
        race_predictions(np.ones(9), np.ones((9, 2)), RowScore(lambda y, p: 1.0))


def binary(rng, n_rows, rates):
    """Right or wrong, by candidate; candidates are right on much the same rows."""
    hard = rng.random((n_rows, 1))
    return (0.7 * hard + 0.3 * rng.random((n_rows, len(rates)))) < np.quantile(
        0.7 * hard[:, 0] + 0.3 * rng.random(n_rows), rates)


@few_or_many("trials", 60, 200)
def test_promise_and_price_with_gaps_of_three_standard_errors(trials):
    """The full comparison's winner in at least 1 - delta of the races, at most a fifth of the predictions read."""
    delta, missed, read = 0.05, 0, []
    rng = np.random.default_rng(17)
    n_rows, k = 100_000, 50
    error = np.sqrt(0.1 / n_rows)                   # about that of a paired difference
    right = binary(rng, n_rows, 0.9 - 3.0 * error * np.arange(k))
    y = rng.integers(0, 5, n_rows)
    predicted = np.where(right, y[:, None], (y[:, None] + 1) % 5).astype(np.int8)
    best = right.mean(axis=0).argmax()
    for child in np.random.SeedSequence(5).spawn(trials):
        result = race_predictions(y, predicted, delta=delta, rng=np.random.default_rng(child))
        missed += result.best != best
        read.append(result.fraction_read)
    assert_rate_at_most(missed, trials, delta)
    assert np.mean(read) <= 0.2


@pytest.mark.parametrize("name", ["accuracy", "balanced_accuracy", "neg_mean_squared_error"])
def test_predictions_that_are_nan_are_refused(rng, name):
    y = rng.integers(0, 2, 1000)
    table = np.column_stack([y, y, y]).astype(float)
    table[:, 1] = np.nan
    with pytest.raises(ValueError, match="reward of arm 1 on row .* is nan"):
        race_predictions(y, table, name, rng=0)
    with pytest.raises(ValueError, match="reward of arm . on row .* is nan"):
        race_predictions(y, np.full((1000, 3), np.nan), name, rng=0)
    with pytest.raises(ValueError, match="support is 3"):
        race_predictions(y, table, name, support=3)


def test_a_callable_is_asked_for_no_more_than_max_pulls(rng):
    y = rng.integers(0, 2, 5000)
    table = np.where(binary(rng, 5000, [0.9, 0.895, 0.89, 0.6]), y[:, None], 1 - y[:, None])
    asked = []

    def read(arms, rows):
        asked.append(len(arms) * len(rows))
        return table[np.ix_(rows, arms)]

    result = race_predictions(y, read, n_candidates=4, max_pulls=4000, rng=1)
    assert result.stopped_by == "max_pulls"
    assert sum(asked) == result.pulls.sum() <= 4000
    assert result.best in result.active and 3 not in result.active
    asked.clear()
    result = race_predictions(y, read, n_candidates=4, rng=1)       # never to the end to save the race's own work
    assert sum(asked) == result.pulls.sum()


def test_predictions_come_in_every_form(rng):
    n_rows = 5000
    y = rng.integers(0, 3, n_rows)
    right = binary(rng, n_rows, [0.6, 0.9, 0.5])
    table = np.where(right, y[:, None], (y[:, None] + 1) % 3)
    asked = []

    def read(arms, rows):
        asked.append(len(arms) * len(rows))
        return table[np.ix_(rows, arms)]

    wanted = race_predictions(y, table, rng=1)
    for one in (list(table.T), table.astype(np.float32), table[:, ::-1][:, ::-1]):
        assert race_predictions(y, one, rng=1).pulls.tolist() == wanted.pulls.tolist()
    called = race_predictions(y, read, n_candidates=3, rng=1)
    assert called.best == wanted.best == 1
    assert sum(asked) == called.pulls.sum() < 3 * n_rows
    equal = fr.race((table == y[:, None]).astype(float), support=(0, 1), first_look=200, rng=1)
    assert equal.pulls.tolist() == wanted.pulls.tolist()
    proba = np.full((n_rows, 3, 3), 0.1)
    np.put_along_axis(proba, table[:, :, None], 0.8, axis=2)
    for scoring in ("neg_log_loss", "neg_brier_score"):
        assert race_predictions(y, proba, scoring, rng=1).best == 1
    weights = np.where(right[:, 0], 100.0, 0.01)       # rows on which the first one is right
    assert race_predictions(y, table, sample_weight=weights, rng=1).best == 0
    for wrong, said in ((table[:5], "y_pred has shape"), ([table[:, 0], table[:5, 1]], r"y_pred\[1\] has shape")):
        with pytest.raises(ValueError, match=said):
            race_predictions(y, wrong)
    with pytest.raises(ValueError, match="n_candidates is None"):
        race_predictions(y, read)
    with pytest.raises(ValueError, match="sample_weight has shape"):
        race_predictions(y, table, sample_weight=-np.ones(n_rows))


LABELS = np.arange(900) % 3
RIGHT = np.array([0.2, 0.6])[None, :, None]
CHANCES = RIGHT * np.eye(3)[LABELS][:, None, :] + (1.0 - RIGHT) / 3.0


@pytest.mark.parametrize("scoring", ["accuracy", "balanced_accuracy"])
@pytest.mark.parametrize(("y", "predicted", "said"), [
    (LABELS % 2, CHANCES[:, :, 0], "a prediction is .*, which is no class: .*neg_log_loss"),
    (LABELS % 2, CHANCES[:, :, 0].astype(object), "a prediction is .*, which is no class"),
    (LABELS.astype(str), np.column_stack([LABELS, LABELS]),
     "y_true holds strings, such as '.', and the predictions hold numbers"),
    (LABELS.astype(str).astype(object), np.column_stack([LABELS, LABELS]), "holds strings"),
    (LABELS, np.column_stack([LABELS, LABELS]).astype(str), "y_true holds numbers.*hold strings"),
    (LABELS, np.column_stack([LABELS, LABELS]).astype("S"), "y_true holds numbers.*hold bytes"),
    (LABELS == 1, np.column_stack([LABELS, LABELS]).astype(str), "y_true holds numbers.*hold strings"),
    (LABELS, CHANCES, r"predictions of shape \(\d+, 3\) for true values of shape \(\d+,\)"),
    (np.column_stack([LABELS, LABELS]), np.column_stack([LABELS, LABELS]), "a prediction for each true value"),
])
def test_what_cannot_be_equal_is_refused(scoring, y, predicted, said):
    """It used to be wrong on every row, with the first candidate the best and not a word."""
    if scoring == "balanced_accuracy" and np.ndim(y) == 2:
        pytest.skip("of one output only")
    with pytest.raises(ValueError, match=said):
        race_predictions(y, predicted, scoring, rng=0)


def test_labels_of_the_same_kind_are_compared():
    wanted = race_predictions(LABELS, np.column_stack([LABELS + 1, LABELS]), rng=0)
    assert wanted.best == 1
    words = np.array(["a", "b", "c"])
    for convert in (np.float32, np.uint8, lambda x: np.asarray(x, object), lambda x: words[x],
                    lambda x: words.astype(object)[x],
                    lambda x: 0.5 * x, lambda x: x + 0.25):
        y, p = convert(LABELS), np.column_stack([convert((LABELS + 1) % 3), convert(LABELS)])
        assert race_predictions(y, p, rng=0).pulls.tolist() == wanted.pulls.tolist()
    both = np.column_stack([LABELS, LABELS[::-1]])
    assert race_predictions(both, np.stack([both + 1, both], axis=1), rng=0).best == 1
    assert race_predictions(LABELS == 1, np.column_stack([LABELS == 2, (LABELS == 1).astype(int)]), rng=0).best == 1


@pytest.mark.parametrize("scoring", ["accuracy", "balanced_accuracy"])
@pytest.mark.parametrize(("y", "said"), [
    (np.full(900, np.nan), "y_true is nan on row 0, and 900 of its 900 values are missing"),
    (np.full(900, None), "y_true is None on row 0"),
    (np.where(LABELS[::-1] == 2, np.nan, LABELS), "y_true is nan on row 0, and 300 of its 900"),
    (np.where(np.arange(900) == 7, None, LABELS), "y_true is None on row 7, and 1 of its 900"),
    (np.random.default_rng(0).normal(size=900), "y_true is continuous: .*neg_mean_squared_error"),
])
def test_true_values_that_no_label_can_equal_are_refused(scoring, y, said):
    """It used to answer that all means are 0 and candidate 0 is the best."""
    with pytest.raises(ValueError, match=said):
        race_predictions(y, np.column_stack([LABELS % 2, LABELS // 2]), scoring, rng=0)


def test_a_true_value_that_is_nan_is_refused_by_losses_too():
    y = np.where(np.arange(900) == 7, np.nan, LABELS)
    with pytest.raises(ValueError, match="y_true is nan on row 7"):
        race_predictions(y, np.column_stack([LABELS, LABELS + 1]), "neg_mean_squared_error", rng=0)


@pytest.mark.parametrize("convert", [np.asarray, lambda x: np.asarray(x, object)])
def test_labels_of_which_none_occurs_are_refused(convert):
    y = convert(np.array(["0", "1"])[LABELS % 2])
    floats = convert(np.array(["0.0", "1.0"])[LABELS % 2])
    with pytest.raises(ValueError, match=r"no label .*such as '.\.0', occurs in y_true, which holds '0', '1'"):
        race_predictions(y, np.column_stack([floats, floats]), rng=0)


def test_a_label_that_never_occurs_is_named():
    """One class has other numbers in y_true: its predictions are all wrong, and the answer says so."""
    signs = np.where(LABELS == 1, 1, -1)
    zeros = (LABELS == 1).astype(int)
    result = race_predictions(signs, {"signs": np.where(LABELS == 0, 1, signs), "zeros": zeros}, rng=0)
    assert result.names == ("signs", "zeros")
    assert "candidate zeros predicted labels that never occur in y_true, such as 0" in result.warnings[-1]
    assert "y_true holds -1, 1" in result.warnings[-1]
    absent = race_predictions(LABELS[LABELS < 2], np.column_stack([LABELS, (LABELS + 1) % 3])[LABELS < 2], rng=0)
    assert absent.best == 0
    assert "candidate 1 predicted labels" in absent.warnings[-1]
    assert not any("labels" in one for one in race_predictions(LABELS, np.column_stack([LABELS, 0 * LABELS])).warnings)


def test_names_are_those_of_the_columns():
    pandas = pytest.importorskip("pandas")
    table = {"old": 0 * LABELS, "new": LABELS}
    for one in (table, pandas.DataFrame(table), {name: list(values) for name, values in table.items()}):
        result = race_predictions(LABELS, one, rng=0)
        assert result.names == ("old", "new") and result.best == 1
    chances = {"old": CHANCES[:, 0], "new": CHANCES[:, 1]}
    assert race_predictions(LABELS, chances, "neg_brier_score", rng=0).names == ("old", "new")


@pytest.mark.parametrize("scoring", ["neg_log_loss", "neg_brier_score"])
def test_probabilities_of_all_classes_are_needed(scoring):
    assert race_predictions(LABELS, CHANCES, scoring, rng=0).best == 1
    assert race_predictions(LABELS, list(CHANCES.swapaxes(0, 1)), scoring, rng=0).best == 1
    for wrong, said in (
        (CHANCES[:, 0], r"y_pred has shape \(900, 3\); .* needs the probabilities of all 3 classes.*a list of arrays "
                        r"of shape \(900, 3\)"),
        (CHANCES[:, :, :2], r"y_pred has shape \(900, 2, 2\).*name them by labels"),
        (np.column_stack([LABELS, LABELS]), "needs the probabilities of all 3 classes"),
        (CHANCES / 2.0, "the probabilities by candidate . on row .* sum to 0.5; 1 is needed"),
        (np.log(CHANCES), "sum to"),
        (CHANCES * np.array([2.0, 2.0, -1.0]) + np.array([-1.0, 0.0, 1.0]), "sum to|a probability of"),
    ):
        with pytest.raises(ValueError, match=said):
            race_predictions(LABELS, wrong, scoring, rng=0)
    outside = CHANCES + np.array([-0.5, 0.5, 0.0])
    with pytest.raises(ValueError, match="probabilities lie between 0 and 1"):
        race_predictions(LABELS, outside, scoring, rng=0)
    bad = CHANCES.copy()
    bad[:, 1] = np.nan
    with pytest.raises(ValueError, match="reward of arm 1 on row .* is nan"):
        race_predictions(LABELS, bad, scoring, rng=0)


@pytest.mark.parametrize("scoring", ["neg_log_loss", "neg_brier_score"])
def test_columns_are_those_of_the_labels_in_any_order(scoring):
    words = np.array(["x", "a", "m"])
    wanted = race_predictions(LABELS, CHANCES, scoring, rng=0)
    found = race_predictions(words[LABELS], CHANCES, scoring, labels=words, rng=0)
    np.testing.assert_allclose(found.mean, wanted.mean)
    few = LABELS[LABELS > 0]
    named = race_predictions(few, CHANCES[LABELS > 0], scoring, labels=[0, 1, 2], rng=0)
    assert named.best == 1
    for labels, said in ((["x", "a"], "y_true also holds 'm'"), (["x", "x", "a"], "different classes"),
                         ([0, 1, 2], "y_true also holds 'a'")):
        with pytest.raises(ValueError, match=said):
            race_predictions(words[LABELS], CHANCES, scoring, labels=labels, rng=0)


def test_regression_needs_a_prediction_for_each_value(rng):
    y = rng.normal(size=600)
    for name in ("r2", "neg_mean_squared_error"):
        with pytest.raises(ValueError, match="a prediction for each true value is needed"):
            race_predictions(y, np.zeros((600, 2, 200)), name, rng=0)
        assert race_predictions(y, np.stack([y + 1, y], axis=1)[:, :, None], name, rng=0).best == 1


def test_a_column_of_predictions_that_looks_like_an_index_is_warned_of(rng):
    y = rng.random(3000)
    predictions = {"a": y + 0.1, "b": y + 0.2, "id": np.arange(3000)}
    result = race_predictions(y, predictions, scoring="neg_mean_squared_error", rng=1)
    assert result.names == ("a", "b", "id")
    assert [text for text in result.warnings if "column 'id' holds running numbers: leave it out" in text]
    result = race_predictions(y, {"a": y + 0.1, "b": y + 0.2}, scoring="neg_mean_squared_error", rng=1)
    assert "leave it out" not in str(result)


def test_errors_of_options_name_the_function_that_was_called():
    y = np.arange(200) % 2
    with pytest.raises(ValueError, match=r"^race_predictions: delta is 2"):
        race_predictions(y, np.column_stack([y, 1 - y]), delta=2)

    def raises(arms, rows):
        raise ValueError("of the user")

    with pytest.raises(ValueError, match=r"^of the user"):
        race_predictions(y, raises, n_candidates=2)


@pytest.mark.parametrize("kind", [float, object, str])
def test_missing_predictions_are_dropped_or_count_as_wrong(kind):
    rng = np.random.default_rng(5)
    y = rng.integers(0, 2, 6000)
    right = rng.random((6000, 4)) < 0.6 + 0.05 * np.arange(4)
    p = np.where(right, y[:, None], 1 - y[:, None]).astype(float)
    p[rng.random(6000) < 0.3, 3] = np.nan               # the most often right, but of the rows that it answers
    labels = np.nan_to_num(p).astype(int).astype(str if kind is str else object)
    table = p if kind is float else np.where(np.isnan(p), None, labels)
    target = y.astype(str) if kind is str else y
    dropped = race_predictions(target, table, missing="drop", rng=1)
    worst = race_predictions(target, table, missing="worst", n_best=2, names=list("abcd"), rng=1)
    assert dropped.best == 3 and dropped.n_missing > 0
    assert worst.best.tolist() == [2, 1] and worst.names == tuple("abcd")
    assert any("low end of the support" in text for text in worst.warnings)
    counted = np.where(np.isnan(p), 0.0, p == y[:, None])
    exact = race_predictions(target, table, missing="worst", bound="serfling", first_look=6000, rng=1)
    np.testing.assert_allclose(exact.mean, counted.mean(axis=0))
    kept = ~np.isnan(p).any(axis=1)
    exact = race_predictions(target, table, missing="drop", bound="serfling", first_look=6000, rng=1)
    np.testing.assert_allclose(exact.mean, (p == y[:, None])[kept].mean(axis=0))
    with pytest.raises(ValueError, match="nan"):
        race_predictions(y, p, rng=1)


def test_a_missing_prediction_costs_the_worst_score_whatever_the_weight_of_its_row():
    rng = np.random.default_rng(6)
    y, weight = rng.integers(0, 2, 500), rng.uniform(0.5, 2.0, 500)
    p = np.stack([y, 1 - y, y], axis=1).astype(float)
    p[:100, 0] = np.nan
    brier = RowScore(lambda y, p: -np.square(y - p), support=(-3.0, 0.0))
    found = race_predictions(y, p, brier, missing="worst", sample_weight=weight, first_look=500, rng=1)
    np.testing.assert_allclose(found.mean[0], -3.0 * weight[:100].sum() / weight.sum())
    assert found.best == 2


def test_rows_of_different_weight_are_not_dropped():
    y, p = np.zeros(50, int), np.zeros((50, 2))
    with pytest.raises(ValueError, match="rows have different weights"):
        race_predictions(y, p, missing="drop", sample_weight=np.arange(1.0, 51.0), rng=1)
    assert race_predictions(y, p, missing="drop", sample_weight=np.full(50, 2.0), rng=1).n_rows == 50


def pure(rng, n=3000):
    """True classes, and probabilities by two models, of which the better one is sure of a few wrong classes.

    So few rows decide that a race by the normal rule reads none of them.
    """
    y = rng.integers(0, 2, n)
    p = np.where(y == 1, 0.72, 0.28) + rng.normal(0.0, 0.02, n)
    rare = rng.permutation(n)[:8]
    sure = np.where(y == 1, 0.74, 0.26) + rng.normal(0.0, 0.02, n)
    sure[rare] = 1.0 - y[rare]
    return y, np.stack([np.column_stack([1.0 - q, q]) for q in (sure, p)], axis=1)


@pytest.mark.parametrize("how", ["array", "function", "weights"])
def test_log_loss_keeps_its_promise_where_rare_rows_decide(how):
    trials, wrong, by_normal = 100, 0, 0
    for child in np.random.SeedSequence(5).spawn(trials):
        y, table = pure(np.random.default_rng(child))
        weight = np.ones(len(y)) if how != "weights" else 0.5 + np.arange(len(y)) % 2
        score = np.log(np.clip(table[np.arange(len(y)), :, y], 2.220446e-16, 1.0))
        best = (weight @ score).argmax()
        given = {"y_pred": table, "sample_weight": weight, "rng": 1} if how != "function" else {
            "y_pred": lambda arms, rows, table=table: table[np.ix_(rows, arms)], "n_candidates": 2, "rng": 1}
        wrong += race_predictions(y, scoring="neg_log_loss", **given).best != best
        by_normal += race_predictions(y, scoring="neg_log_loss", bound="normal", **given).best != best
    assert_rate_at_most(wrong, trials, 0.05)
    assert by_normal > 0.3 * trials


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_ends_of_log_loss_are_those_of_the_probabilities(kind, tmp_path):
    """Of arrays in memory: their ends hold every score, whatever the type; a memory map is not read for them."""
    rng = np.random.default_rng(3)
    y, p = rng.integers(0, 3, 4000), rng.dirichlet([1.0, 2.0, 3.0], (4000, 4))
    p[:, 1], p[:, 2, :] = [0.2, 0.3, 0.5], np.eye(3)[rng.integers(0, 3, 4000)]
    p = p.astype(kind)
    score = named("neg_log_loss")
    table = score.table(y, p, np.arange(3), None).astype(np.float64)
    for held in ([p], [p[:, k] for k in range(4)]):
        parts = [(part.min(axis=0).min(axis=-1), part.max(axis=0).max(axis=-1)) for part in held]
        least, most = (np.concatenate([np.atleast_1d(end) for end in ends]) for ends in zip(*parts, strict=True))
        low, high = score.ends_of(least, most)
        assert (low <= table.min(axis=0)).all() and (table.max(axis=0) <= high).all() and (low < high).all()
    assert low[1] > -2.0 and low[3] > -36.0 and low[2] == pytest.approx(np.log(np.finfo(kind).eps), rel=0.02)
    np.save(tmp_path / "p.npy", p)
    known = {"scoring": "neg_log_loss", "rng": 1, "max_pulls": 4000}
    far = race_predictions(y, np.load(tmp_path / "p.npy", mmap_mode="r"), **known)
    wide = race_predictions(y, lambda arms, rows: p[np.ix_(rows, arms)], n_candidates=4, first_look=200, **known)
    assert far.lower.tolist() == wide.lower.tolist()
    near = race_predictions(y, p, **known)
    assert near.lower[1] > far.lower[1] and near.bound == far.bound == "betting"


@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_a_score_does_not_hang_on_the_candidates_that_are_read_with_it(kind):
    """Types of probabilities may differ. Once the others are out, those left were cut off as their own type is."""
    rng = np.random.default_rng(2)
    y = rng.integers(0, 3, 3000)
    wide, short = np.full((3000, 3), 0.01), np.full((3000, 3), 0.35, dtype=kind)
    wide[:, 0], short[:, 0] = 0.98, 0.3                 # out at the first look; and one whose logarithms are rounded
    sure = np.eye(3, dtype=kind)[np.where(rng.random(3000) < 0.98, y, (y + 1) % 3)]
    table = [wide, short, sure, sure]
    score = np.stack([np.log(np.clip(p[np.arange(3000), y].astype(float), 2.220446e-16, 1.0)) for p in table], axis=1)
    found = race_predictions(y, table, "neg_log_loss", rng=1)
    assert found.pulls[0] < 1000 and (found.pulls[2:] == 3000).all()
    assert found.mean[2:] == pytest.approx(score[:, 2:].mean(axis=0))
    close = race_predictions(y, [wide, short, short], "neg_log_loss", rng=1)
    assert close.pulls[0] < 1000 and close.mean[1:] == pytest.approx(score[:, [1, 1]].mean(axis=0))


def test_no_probability_is_cut_off_below_the_support():
    """A longer type than double has an epsilon of its own, whose logarithm is -43.7."""
    y = np.arange(400) % 2
    p = np.stack([np.eye(2)[1 - y], np.full((400, 2), 0.5)], axis=1).astype(np.longdouble)
    found = race_predictions(y, lambda arms, rows: p[np.ix_(rows, arms)], "neg_log_loss", n_candidates=2,
                             first_look=400, rng=1)
    assert found.best == 1 and found.mean[0] == pytest.approx(np.log(2.220446e-16))


def test_missing_probabilities_count_as_the_worst_that_may_be():
    y, p = np.arange(1000) % 2, np.full((1000, 2, 2), 0.5)
    p[:100, 0] = np.nan
    found = race_predictions(y, p, "neg_log_loss", missing="worst", first_look=1000, rng=1)
    assert found.best == 1 and found.mean[0] == pytest.approx(0.1 * -36.05 + 0.9 * np.log(0.5))
    dropped = race_predictions(y, p, "neg_log_loss", missing="drop", rng=1)
    assert dropped.mean == pytest.approx(np.log([0.5, 0.5]))


def test_log_loss_by_the_normal_rule_is_warned_of():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 5_000)
    good, bad = (np.where(y == 1, p, 1.0 - p) for p in (0.9, 0.6))
    noisy = [np.clip(p + rng.normal(0.0, 0.02, len(y)), 0.01, 0.99) for p in (good, bad)]
    tables = [np.column_stack([1.0 - p, p]) for p in noisy]
    said = race_predictions(y, tables, "neg_log_loss", bound="normal", rng=1)
    assert said.fraction_read < 1.0 and any("bound='auto' keeps the promise" in word for word in said.warnings)
    for sure in (race_predictions(y, tables, "neg_log_loss", rng=1),
                 race_predictions(y, tables, "neg_log_loss", support=(-36.05, 0.0), rng=1)):
        assert sure.best == said.best == 0 and not sure.warnings and sure.bound == "betting"
    read = race_predictions(y[:100], [table[:100] for table in tables], "neg_log_loss", bound="normal")
    assert read.fraction_read == 1.0 and not any("log loss" in word for word in read.warnings)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_function_whose_range_is_said_reads_what_arrays_do(weighted):
    rng = np.random.default_rng(4)
    y = rng.integers(0, 2, 20_000)
    hits = rng.random((len(y), 3)) < [0.72, 0.76, 0.80]
    sure = np.array([0.7, 0.75, 0.8])
    p = np.where(hits, sure, 1.0 - sure)
    table = np.stack([np.where(y[:, None] == k, p, 1.0 - p) for k in (0, 1)], axis=2)
    least = np.log(1.0 - sure) - 1e-6
    known = {"scoring": "neg_log_loss", "first_look": 50, "rng": 1,
             "sample_weight": rng.integers(1, 3, len(y)) if weighted else None}

    def race(**more):
        return race_predictions(y, lambda arms, rows: table[np.ix_(rows, arms)], n_candidates=3, **known, **more)

    of_arrays = race_predictions(y, table, cost=1.0, **known)
    unsaid, joint, own = race(), race(support=(least.min(), 0.0)), race(support=(least, np.zeros(3)))
    assert own.best == joint.best == of_arrays.best == 2
    np.testing.assert_allclose(own.pulls, of_arrays.pulls, rtol=0.1)
    assert own.n_read <= joint.n_read < 0.8 * unsaid.n_read
    pd = pytest.importorskip("pandas")
    named_ends = pd.Series(least, ["a", "b", "c"])
    assert race(names=["a", "b", "c"], support=(named_ends[["c", "a", "b"]], 0.0)).pulls.tolist() == own.pulls.tolist()
    with pytest.raises(ValueError, match=r"support\[0\] has the names 'a', 'b', 'x'; those of the arms, 'a', 'b', 'c'"):
        race(names=["a", "b", "c"], support=(named_ends.set_axis(["a", "b", "x"]), 0.0))


def test_scores_outside_the_support_that_was_said():
    y = np.arange(4000) % 2
    table = np.stack([np.where(y[:, None] == k, [[0.6, 0.7]], [[0.4, 0.3]]) for k in (0, 1)], axis=2)
    table[::50, :, :] = [0.5, 0.5]
    given = {"scoring": "neg_log_loss", "support": (-0.65, 0.0), "rng": 1}
    with pytest.raises(ValueError, match=r"outside support=\(-0.65, 0.0\).* or say outside='warn'"):
        race_predictions(y, table, **given)
    result = race_predictions(y, table, outside="warn", **given)
    assert result.best == 1 and any("outside the support" in said for said in result.warnings)
    for wrong, words in (((np.zeros(2), 0.0), "low < high is needed for each candidate"),
                         ((np.zeros(3), 1.0), "one value per arm"), (([-1.0, -2.0], np.nan), "support is"),
                         ((-1.0,), "a pair"), ("ab", "real number")):
        with pytest.raises((ValueError, TypeError), match=words):
            race_predictions(y, table, "neg_log_loss", support=wrong)
    with pytest.raises(ValueError, match="missing is 'worst', rows have different weights, and support has an end per"):
        race_predictions(y, table, "neg_log_loss", support=([-1.0, -2.0], 0.0), missing="worst", sample_weight=y + 1.0)


def test_labels_that_numpy_would_make_one_are_refused():
    """In a list with numbers beyond 2**63 it makes floats of all; an array holds them."""
    y = [2**63, 2**63 + 1] * 100
    right, wrong = np.array(y, dtype=object), np.array([2**63] * 200, dtype=object)
    with pytest.raises(ValueError, match=f"y_true holds {2**63 + 1}, which no float64 holds"):
        race_predictions([*y[:-1], -1], [right, wrong], rng=1)
    with pytest.raises(ValueError, match=rf"y_pred\['a'\] holds {2**63 + 1}, which no float64 holds"):
        race_predictions(np.array(y, dtype=object), {"a": [*y[:-1], -1], "b": wrong}, rng=1)
    assert race_predictions(np.array(y, dtype=object), [right, wrong], rng=1).best == 0


def test_labels_that_numpy_would_round_are_refused_at_every_door():
    """Whole numbers beyond 2**53 beside floats: two classes would be one, and wrong predictions right."""
    first = 2**53
    y = np.array([first, first + 1] * 100)
    some, all_ = np.full(200, float(first)), y.copy()
    rows = [[float(one), int(other)] for one, other in zip(some, y, strict=True)]
    for y_true, y_pred, whose in (
        (y, rows, "y_pred"),
        (y, lambda arms, rows_: [[rows[i][k] for k in arms] for i in rows_], "what y_pred returned"),
        (y, [some, all_], r"y_pred\[1\]"), (y, [all_, all_.astype(np.uint64)], r"y_pred\[[01]\]"),
        (y, [some, some], "y_true"), (y, lambda arms, rows_: np.c_[some, some][np.ix_(rows_, arms)], "y_true"),
        (some, np.c_[y, y], "y_pred"),
    ):
        n_candidates = 2 if callable(y_pred) else None
        with pytest.raises(ValueError, match=rf"^{whose} holds {first + 1}, which no float64 holds"):
            race_predictions(y_true, y_pred, n_candidates=n_candidates, rng=1)
    with pytest.raises(ValueError, match=f"^labels holds {first + 1}, which no float64 holds"):
        race_predictions(y, np.full((200, 2, 3), 1 / 3), "neg_log_loss", labels=[first, first + 1, 0.5], rng=1)
    held = 2 * y - first                                                # by floats, too
    assert race_predictions(held, [some, held.astype(float)], rng=1).best == 1
