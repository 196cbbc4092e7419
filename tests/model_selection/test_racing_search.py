"""RacingSearchCV: scikit-learn's checks, the winner of GridSearchCV, few predictions, failures, data of every kind."""

import pickle
import warnings

import numpy as np
import pytest

pytest.importorskip("sklearn")

from joblib import parallel_config
from scipy import sparse
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, make_classification
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, PoissonRegressor, Ridge
from sklearn.metrics import accuracy_score, make_scorer
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, PredefinedSplit, ShuffleSplit
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import check_estimator

from fastrace.model_selection import RacingSearchCV, RowScore
from fastrace.model_selection.searches._racing_search import _default_score
from guarantee import assert_rate_at_most

LEARNERS = [("bayes", GaussianNB()), ("dummy", DummyClassifier()), ("tree", DecisionTreeClassifier(random_state=0)),
            ("one", KNeighborsClassifier(1))]


@pytest.fixture(scope="module")
def digits():
    return load_digits(return_X_y=True)


class Right(ClassifierMixin, BaseEstimator):
    """Knows from column `column` of X whether it is right; counts the rows it predicts."""

    asked = 0

    def __init__(self, column=0, fail=""):
        self.column = column
        self.fail = fail

    def fit(self, X, y, sample_weight=None):
        if self.fail == "fit":
            raise MemoryError("too many rows")
        if self.fail == "interrupt" and Right.patience == 0:
            raise KeyboardInterrupt
        if self.fail == "interrupt":
            Right.patience -= 1
        self.classes_ = np.unique(y)
        self.weighted_ = sample_weight is not None
        return self

    def predict(self, X):
        Right.asked += len(X)
        if self.fail == "predict":
            raise OSError("no answer")
        if self.fail == "break":
            raise KeyboardInterrupt
        return np.where(X[:, self.column] > 0, X[:, -1], X[:, -1] + 1).astype(int)


def truth(rng, n_rows, rates):
    """Rows on which candidate j is right with its rate; the last column is y."""
    hard = rng.random((n_rows, 1))
    level = 0.6 * hard + 0.4 * rng.random((n_rows, len(rates)))
    right = level < np.array([np.quantile(level[:, j], rate) for j, rate in enumerate(rates)])
    y = rng.integers(0, 3, n_rows)
    return np.column_stack([right, y]).astype(float), y


def rights(count, **options):
    options = {"cv": 0.8, "random_state": 0, "refit": False} | options
    return RacingSearchCV(Right(), {"column": list(range(count))}, **options)


def test_passes_the_checks_of_scikit_learn():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for made in (
            RacingSearchCV(GaussianNB(), {"var_smoothing": [1e-9, 1e-3]}, cv=2, error_score="raise", random_state=0),
            RacingSearchCV(Ridge(), {"alpha": [0.1, 1.0]}, cv=2, error_score="raise", random_state=0),
        ):
            check_estimator(made)


@pytest.mark.parametrize(
    ("cv", "weighted"),
    [(3, False), (3, True), (0.3, True), (KFold(15), False), (PredefinedSplit(np.arange(200) % 7 // 3), True)],
)
def test_rows_read_to_the_end_give_the_scores_of_grid_search(cv, weighted):
    X, y = make_classification(200, 5, flip_y=0.4, random_state=1)
    grid = {"C": [0.01, 0.1, 1.0]}
    found = RacingSearchCV(LogisticRegression(), grid, delta=1e-300, cv=cv, random_state=2)
    splits = cv
    if cv == 0.3:
        splits = list(found._splitter(X, y, int(np.random.RandomState(2).randint(np.iinfo(np.int32).max, size=3)[1]))
                      .split(X, y))
    more = {"sample_weight": np.random.default_rng(0).random(200) + 0.01} if weighted else {}
    found.fit(X, y, **more)
    wanted = GridSearchCV(LogisticRegression(), grid, cv=splits).fit(X, y, **more)
    read = found.cv_results_["n_predictions"] == found.race_.n_rows
    assert read.sum() >= 2 and read[found.best_index_]      # a candidate that cannot catch up is left, for certain
    for key in ("mean_test_score", "std_test_score", "split0_test_score"):
        assert found.cv_results_[key][read] == pytest.approx(wanted.cv_results_[key][read], rel=1e-9, abs=1e-12)
    assert wanted.best_score_ == pytest.approx(found.best_score_)
    assert found.cv_results_["rank_test_score"][found.best_index_] == 1
    assert set(wanted.cv_results_) <= set(found.cv_results_)


def test_regression_is_raced_by_r2(rng):
    X = rng.normal(size=(4000, 3))
    y = X[:, 0] + 0.2 * rng.normal(size=4000)
    grid = {"alpha": [1e-3, 3e3, 1e5]}
    found = RacingSearchCV(Ridge(), grid, cv=4, random_state=0).fit(X, y)
    wanted = GridSearchCV(Ridge(), grid, cv=4).fit(X, y)
    assert found.best_params_ == wanted.best_params_ and found.race_.bound == "normal"
    assert found.best_score_ == pytest.approx(wanted.best_score_, abs=0.01)
    assert found.fraction_read_ < 0.5
    assert found.score(X, y) == pytest.approx(wanted.score(X, y))
    rigorous = RacingSearchCV(Ridge(), grid, cv=4, scoring="neg_mean_squared_error", support=(-40.0, 0.0),
                              random_state=0).fit(X, y)
    assert rigorous.best_params_ == wanted.best_params_ and rigorous.race_.bound == "betting"


def test_promise_against_the_full_comparison(rng):
    X, y = truth(rng, 4000, [0.70, 0.80, 0.60, 0.5])
    trials, delta, missed, read = 30, 0.1, 0, 0.0
    for seed in range(trials):
        made = rights(4, delta=delta, random_state=seed).fit(X, y)
        test = next(made._splitter(X, y, int(np.random.RandomState(seed).randint(np.iinfo(np.int32).max, size=3)[1]))
                    .split(X, y))[1]
        missed += made.best_index_ != (X[test, :4] > 0).mean(axis=0).argmax()
        read += made.fraction_read_ / trials
    assert_rate_at_most(missed, trials, delta)
    assert read < 0.6


def test_only_the_predictions_needed_are_asked_for(rng):
    X, y = truth(rng, 20_000, [0.9, *[0.5] * 9])
    Right.asked = 0
    found = rights(10).fit(X, y)
    assert found.best_index_ == 0 and not hasattr(found, "best_estimator_")
    assert Right.asked == found.cv_results_["n_predictions"].sum() == round(found.fraction_read_ * 160_000)
    assert found.fraction_read_ < 0.05
    out = found.cv_results_["eliminated_at"]
    assert out[0] == -1 and (out[1:] == found.cv_results_["n_predictions"][1:]).all()
    assert "best arm column=0:" in str(found.race_) and found.race_.delta == 0.05


def test_a_budget_of_predictions_is_kept(rng):
    X, y = truth(rng, 20_000, [0.9, 0.899, 0.898, 0.5])
    Right.asked = 0
    found = rights(4, max_pulls=5000).fit(X, y)
    assert Right.asked <= 5000
    assert found.race_.stopped_by == "max_pulls"
    assert found.best_index_ == found.race_.best and found.race_.active.tolist() == [0, 1, 2]
    assert found.cv_results_["eliminated_at"].tolist()[:3] == [-1, -1, -1]
    with pytest.raises(ValueError, match="max_pulls is 3"):
        rights(4, max_pulls=3).fit(X, y)


def test_the_answer_does_not_depend_on_jobs(digits):
    X, y = digits
    one = RacingSearchCV(LEARNERS, cv=3, random_state=0).fit(X, y)
    assert one.best_params_ == {"choice": "one"} and isinstance(one.best_estimator_, KNeighborsClassifier)
    with parallel_config(backend="threading"):
        other = RacingSearchCV(LEARNERS, cv=3, random_state=0, n_jobs=2).fit(X, y)
    for key in ("mean_test_score", "n_predictions", "eliminated_at", "rank_test_score"):
        assert one.cv_results_[key].tolist() == other.cv_results_[key].tolist()
    restored = pickle.loads(pickle.dumps(one))
    assert (restored.predict(X) == one.predict(X)).all() and "RacingSearchCV" in one._repr_html_()
    assert one.classes_.tolist() == list(range(10)) and clone(one).estimator.learners[0][0] == "bayes"


@pytest.mark.parametrize("fail", ["fit", "predict"])
@pytest.mark.parametrize("error_score", [np.nan, 0.25, "raise"])
def test_failures_leave_the_race(rng, fail, error_score):
    X, y = truth(rng, 3000, [0.7, 0.95, 0.5])
    learners = [("good", Right(0)), ("bad", Right(1, fail)), ("fair", Right(2))]
    made = RacingSearchCV(learners, cv=2, scoring="accuracy", error_score=error_score, random_state=0)
    if error_score == "raise":
        with pytest.raises(MemoryError if fail == "fit" else OSError):
            made.fit(X, y)
        return
    with pytest.warns(Warning, match="fits failed|out of the race"):
        made.fit(X, y)
    results = made.cv_results_
    assert made.best_params_ == {"choice": "good"} and results["rank_test_score"].tolist() == [1, 3, 2]
    assert results["mean_test_score"][1] == pytest.approx(error_score, nan_ok=True)
    assert results["mean_test_score"][0] == pytest.approx(0.7, abs=0.1)
    all_bad = RacingSearchCV([("a", Right(0, fail)), ("b", Right(1, fail))], cv=2, scoring="accuracy")
    with warnings.catch_warnings(), pytest.raises(ValueError, match="fits failed|failed to predict"):
        warnings.simplefilter("ignore")
        all_bad.fit(X, y)
    alone = RacingSearchCV([("good", Right(0)), ("bad", Right(1, fail))], cv=2, scoring="accuracy", random_state=0)
    with pytest.warns(Warning, match="fits failed|out of the race"):
        alone.fit(X, y)
    assert alone.best_score_ == pytest.approx((X[:, 0] > 0).mean(), abs=1e-3)


def test_an_interrupted_search_goes_on(rng):
    X, y = truth(rng, 2000, [0.7, 0.9, 0.5])
    Right.patience = 10**9
    grid = {"column": [0, 1, 2], "fail": ["interrupt"]}
    whole = RacingSearchCV(Right(), grid, cv=3, random_state=0, refit=False).fit(X, y)
    made = RacingSearchCV(Right(), grid, cv=3, random_state=0, refit=False)
    Right.patience = 5
    with pytest.raises(KeyboardInterrupt):
        made.fit(X, y)
    assert len(made.trainings_.parts) == len(made.trainings_) == 5 and "5 trainings" in repr(made.trainings_)
    assert len(pickle.loads(pickle.dumps(made)).trainings_) == 5
    Right.patience = 4                          # enough for what is left
    made.fit(X, y)
    assert Right.patience == 0 and not hasattr(made, "trainings_")
    assert made.cv_results_["mean_test_score"].tolist() == whole.cv_results_["mean_test_score"].tolist()
    broken = RacingSearchCV(Right(), {"fail": ["", "break"]}, cv=2, random_state=0)
    with pytest.raises(KeyboardInterrupt):
        broken.fit(X, y)
    assert len(broken.trainings_.parts) == 4
    assert all(one["estimator"] is not None for one in broken.trainings_.parts.values())


def test_data_of_every_kind(digits):
    X, y = digits[0][:600], digits[1][:600]
    words = np.array([f"d{k}" for k in y])
    wanted = RacingSearchCV(LEARNERS[2:], cv=0.5, random_state=0).fit(X, words)
    assert set(wanted.predict(X[:20])) <= set(words)
    pandas, polars = pytest.importorskip("pandas"), None
    frame = pandas.DataFrame(X, columns=[f"p{k}" for k in range(64)])
    found = RacingSearchCV(LEARNERS[2:], cv=0.5, random_state=0).fit(frame, pandas.Series(words))
    assert found.race_.pulls.tolist() == wanted.race_.pulls.tolist()
    assert found.feature_names_in_.tolist() == list(frame.columns)
    try:
        import polars
    except ImportError:
        pass
    if polars is not None:
        found = RacingSearchCV(LEARNERS[2:], cv=0.5, random_state=0).fit(polars.DataFrame(X), words)
        assert found.race_.pulls.tolist() == wanted.race_.pulls.tolist()
    found = RacingSearchCV(LEARNERS[3:], cv=0.5, random_state=0).fit(sparse.csr_matrix(X), words)
    assert found.n_features_in_ == 64 and found.best_score_ > 0.9      # one candidate: scored on all rows
    assert found.race_.stopped_by == "single" and found.cv_results_["n_predictions"].tolist() == [300]
    kernel = RacingSearchCV(SVC(kernel="precomputed"), {"C": [1e-6, 1e-2]}, cv=0.5, random_state=0).fit(X @ X.T, y)
    assert kernel.best_params_ == {"C": 1e-2} and kernel.predict(X[:3] @ X.T).shape == (3,)


def test_weights_groups_and_metadata(rng):
    X, y = truth(rng, 2000, [0.6, 0.9])
    heavy = np.where(X[:, 0] > 0, 100.0, 1e-3)            # where the first is right
    assert rights(2, cv=2).fit(X, y).best_index_ == 1
    assert rights(2, cv=2).fit(X, y, sample_weight=heavy).best_index_ == 0
    assert rights(2, cv=GroupKFold(2)).fit(X, y, groups=np.arange(2000) // 10).n_splits_ == 2
    with config_context(enable_metadata_routing=True):
        rule = Right().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        found = RacingSearchCV(rule, {"column": [0, 1]}, cv=2, random_state=0).fit(X, y, sample_weight=heavy)
        assert found.best_estimator_.weighted_ and found.best_params_ == {"column": 0}
        rule = Right().set_fit_request(sample_weight=True).set_score_request(sample_weight=False)
        found = RacingSearchCV(rule, {"column": [0, 1]}, cv=2, random_state=0).fit(X, y, sample_weight=heavy)
        assert found.best_params_ == {"column": 1}


def test_scores(digits):
    X, y = digits
    learners = [("a", make_pipeline(StandardScaler(), GaussianNB(var_smoothing=0.1))), ("b", DummyClassifier())]
    for scoring in (None, "accuracy", "balanced_accuracy", "neg_log_loss", "neg_brier_score",
                    RowScore(lambda y, p: y == p, support=(0, 1))):
        found = RacingSearchCV(learners, scoring=scoring, cv=0.5, random_state=0).fit(X, y)
        assert found.best_params_ == {"choice": "a"} and callable(found.scorer_)
        assert np.isfinite(found.score(X, y)) and not found.multimetric_
    picked = RacingSearchCV(learners, cv=0.5, refit=lambda results: 1, random_state=0).fit(X, y)
    assert picked.best_index_ == 1 and not hasattr(picked, "best_score_")
    assert isinstance(picked.best_estimator_, DummyClassifier)


def test_several_scores_of_which_one_is_raced(digits):
    X, y = digits[0], digits[1] > 4           # Brier scores of two classes are in older releases too
    learners = [("a", GaussianNB(var_smoothing=0.1)), ("b", GaussianNB(var_smoothing=0.1001)),
                ("c", KNeighborsClassifier(1))]
    names = ["accuracy", "neg_log_loss", "neg_brier_score", "balanced_accuracy"]
    weights = np.random.default_rng(0).random(y.size) + 0.5
    options = {"delta": 1e-300, "cv": 2, "random_state": 0}
    for params in ({}, {"sample_weight": weights}):
        some = learners if not params else learners[:2]           # neighbours take no weights
        found = RacingSearchCV(some, scoring=names, refit="neg_brier_score", **options).fit(X, y, **params)
        wanted = GridSearchCV(found.estimator, {"choice": [name for name, _ in some]}, scoring=names,
                              refit="neg_brier_score", cv=2).fit(X, y, **params)
        read = found.cv_results_["n_predictions"] == y.size
        assert found.multimetric_ and set(found.scorer_) == set(names) and read.any()
        for name in names:
            for key in (f"mean_test_{name}", f"std_test_{name}", f"split1_test_{name}"):
                assert found.cv_results_[key][read] == pytest.approx(wanted.cv_results_[key][read], rel=1e-6)
        assert found.best_score_ == found.cv_results_["mean_test_neg_brier_score"][found.best_index_]
        assert found.cv_results_["rank_test_neg_brier_score"][found.best_index_] == 1
        assert set(wanted.cv_results_) <= set(found.cv_results_)
        assert found.score(X, y) == pytest.approx(wanted.score(X, y))
    alone = RacingSearchCV(learners, scoring="neg_brier_score", cv=2, random_state=0).fit(X, y)
    both = RacingSearchCV(learners, scoring={"own": RowScore(np.equal), "neg_brier_score": "neg_brier_score"}, cv=2,
                          refit="neg_brier_score", random_state=0).fit(X, y)
    assert both.race_.pulls.tolist() == alone.race_.pulls.tolist() and both.best_score_ == alone.best_score_
    assert 0.9 < both.cv_results_["mean_test_own"][both.best_index_] < 1.0


def test_scores_of_the_eliminated_are_possible_and_near_the_truth(rng):
    X, y = truth(rng, 20_000, [0.9, 0.5, 0.1])
    y = y.astype(float)
    names = {"accuracy": RowScore(np.equal, support=(0, 1)),
             "heavy": RowScore(lambda y, p: -np.abs(y - p) * 2.0)}
    found = rights(3, scoring=names, refit="accuracy", cv=2).fit(X, y)
    results, right = found.cv_results_, (X[:, :3] > 0).mean(axis=0)
    assert found.best_index_ == 0 and (results["eliminated_at"][1:] > 0).all()
    sums = results["mean_test_heavy"]
    assert (sums <= 0.0).all() and sums == pytest.approx(-2.0 * (1.0 - right), abs=0.25)
    accuracy = results["mean_test_accuracy"]
    assert accuracy.argmax() == 0 and ((accuracy >= 0.0) & (accuracy <= 1.0)).all()
    assert results["rank_test_accuracy"].tolist() == [1, 2, 3]


def test_scores_that_are_not_raced_are_means_of_the_rows_read(rng):
    X, y = truth(rng, 20_000, [0.9, 0.5])
    tail = RowScore(lambda y, p: -np.where(p == y, 1.0, 0.0) - 5.0 * (p != y))
    found = rights(2, scoring={"raced": "accuracy", "tail": tail}, refit="raced").fit(X, y)
    other = found.cv_results_["mean_test_tail"][1]
    assert -5.0 <= other <= -1.0 and found.cv_results_["n_predictions"][1] < 2000
    share = -(other + 1.0) / 4.0                            # of wrong rows: a count of those read
    assert share * found.cv_results_["n_predictions"][1] == pytest.approx(
        round(share * found.cv_results_["n_predictions"][1]), abs=1e-6)


def test_a_score_that_fails_and_is_not_raced_does_no_harm():
    X = np.random.default_rng(0).normal(size=(2000, 3))
    y = X[:, 0] + 3.0
    names = ["r2", "neg_mean_poisson_deviance"]
    learners = [("good", Ridge()), ("low", Ridge(fit_intercept=False))]           # predicts numbers below 0
    with pytest.warns(UserWarning, match="candidate 1 has no neg_mean_poisson_deviance: ValueError"):
        found = RacingSearchCV(learners, scoring=names, refit="r2", cv=2, random_state=0).fit(X, y + 5.0)
    assert found.best_params_ == {"choice": "good"}
    assert np.isnan(found.cv_results_["mean_test_neg_mean_poisson_deviance"][1])
    assert np.isfinite(found.cv_results_["mean_test_r2"]).all()
    with pytest.raises(ValueError, match="a score is nan"):
        RacingSearchCV(learners, scoring=names, refit="r2", cv=2, error_score="raise", random_state=0).fit(X, y + 5.0)


def test_the_range_of_scores_is_that_of_the_split_with_most_classes(rng):
    X = rng.normal(size=(3000, 2))
    y = (X[:, 0] + 0.5 * rng.normal(size=3000) > 0).astype(int)
    y[1500:][rng.random(1500) < 0.3] = 2                    # none where the first split is trained
    rows = np.arange(3000)
    two, three = (rows[:1000], rows[1000:1500]), (rows[1000:2500], rows[2500:])
    for cv in ([two, three], [three, two]):
        found = RacingSearchCV(KNeighborsClassifier(), {"n_neighbors": [1, 5, 25]}, scoring="neg_brier_score", cv=cv,
                               random_state=0, refit=False)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found.fit(X, y)
        assert found.race_.bound == "betting" and not found.race_.warnings
    narrow = RacingSearchCV(KNeighborsClassifier(), {"n_neighbors": [1, 25]}, scoring="neg_brier_score", cv=[three],
                            support=(-1.0, 0.0), random_state=0, refit=False)
    with pytest.warns(UserWarning, match="not as promised: a reward lay outside the support") as said:
        narrow.fit(X, y)
    assert narrow.race_.warnings and any(one.filename == __file__ for one in said)


def test_each_score_gets_the_weights_it_asks_for(rng):
    X, y = truth(rng, 2000, [0.6, 0.9])
    heavy = np.where(X[:, 0] > 0, 100.0, 1e-3)
    from sklearn.metrics import accuracy_score, make_scorer

    with config_context(enable_metadata_routing=True):
        rule = Right().set_fit_request(sample_weight=False)
        scoring = {"heavy": make_scorer(accuracy_score).set_score_request(sample_weight=True),
                   "plain": make_scorer(accuracy_score).set_score_request(sample_weight=False)}
        found = {}
        for refit in scoring:
            made = RacingSearchCV(rule, {"column": [0, 1]}, scoring=scoring, refit=refit, cv=2, random_state=0)
            found[refit] = made.fit(X, y, sample_weight=heavy)
        assert found["heavy"].best_params_ == {"column": 0} and found["plain"].best_params_ == {"column": 1}
        assert found["heavy"].cv_results_["mean_test_plain"][0] == pytest.approx(0.6, abs=0.1)


def test_bad_options(rng):
    X, y = truth(rng, 200, [0.6, 0.9])
    for options, said in (
        ({"delta": 0.0}, "delta is 0.0"), ({"scoring": "f1"}, "mean of one number per row"), ({"cv": 1.5}, "cv"),
        ({"scoring": ["accuracy", "r2"]}, "refit is False; with several scores it must name"),
        ({"scoring": ["accuracy", "roc_auc"], "refit": "accuracy"}, "scoring is 'roc_auc'; a race compares"),
        ({"scoring": ["accuracy", "r2"], "refit": "f1"}, "refit is 'f1'"), ({"scoring": []}, r"scoring is \[\]"),
        ({"scoring": [lambda e, X, y: 0.0], "refit": "a"}, "names, or a dict"), ({"time_limit": -1.0}, "time_limit is"),
        ({"first_look": 1}, "first_look is 1"),
        ({"support": (1, 0)}, r"support is \(1, 0\); finite ends with low < high"),
        ({"support": (0, np.nan)}, "support is .*nan.*finite ends|support.1. is nan"),
        ({"support": 3}, r"support is 3; a pair \(low, high\)"),
        ({"growth": 1.0}, "growth is 1.0"), ({"bound": "wide"}, "bound is 'wide'"),
        ({"scoring": "neg_log_loss"}, "predict_proba"), ({"scoring": "r2", "bound": "betting"}, "support is None"),
    ):
        with pytest.raises((ValueError, AttributeError), match=said):
            rights(2, **options).fit(X, y)
    with pytest.raises(ValueError, match="neither all accuracy nor all R2"):
        RacingSearchCV(PoissonRegressor(), {"alpha": [1.0]}).fit(X, y)
    with pytest.raises(ValueError, match="neither all accuracy nor all R2"):
        RacingSearchCV([("a", GaussianNB()), ("b", DummyRegressor())]).fit(X, y)
    with pytest.raises(ValueError, match="param_grid is None"):
        RacingSearchCV(GaussianNB()).fit(X, y)
    with pytest.raises(ValueError, match="different ones"):
        RacingSearchCV([("a", GaussianNB()), ("a", GaussianNB())]).fit(X, y)
    assert rights(2, cv=ShuffleSplit(3)).fit(X, y).n_splits_ == 3
    X[3, 0] = np.nan
    with warnings.catch_warnings(), pytest.raises(ValueError, match="failed to train on some split"):
        warnings.simplefilter("ignore")
        RacingSearchCV([("a", LogisticRegression()), ("b", GaussianNB())], cv=2).fit(X, y)


class Wrapped(ClassifierMixin, BaseEstimator):
    """Its score is a property: a method of the model inside."""

    def __init__(self, inner=None, early=True):
        self.inner = inner
        self.early = early

    def fit(self, X, y):
        self.model_ = clone(self.inner).fit(X, y)
        self.classes_ = self.model_.classes_
        return self

    def predict(self, X):
        return self.model_.predict(X)

    @property
    def score(self):
        return (getattr(self, "model_", self.inner) if self.early else self.model_).score


@pytest.mark.parametrize("learner", [
    HistGradientBoostingClassifier(max_iter=5),                  # its scoring is for stopping early
    HistGradientBoostingClassifier(max_iter=5, scoring="roc_auc"),
    GridSearchCV(GaussianNB(), {"var_smoothing": [1e-9, 1e-3]}, cv=2), Wrapped(GaussianNB()),
    make_pipeline(StandardScaler(), Wrapped(KNeighborsClassifier(3))), KNeighborsClassifier(3), DummyClassifier(),
])
def test_the_default_score_is_that_of_the_method(learner):
    assert _default_score(learner) == "accuracy"
    X, y = make_classification(200, 5, random_state=0)
    fitted = clone(learner).fit(X[::2], y[::2])
    assert fitted.score(X, y) == np.mean(fitted.predict(X) == y)


@pytest.mark.parametrize(("learner", "name"), [
    (HistGradientBoostingRegressor(scoring="neg_mean_absolute_error"), "r2"), (Ridge(), "r2"), (DummyRegressor(), "r2"),
    (GridSearchCV(Ridge(), {"alpha": [1.0, 2.0]}), "r2"), (PoissonRegressor(), ""), (KMeans(), ""),
    (GridSearchCV(GaussianNB(), {}, scoring="roc_auc"), ""), (LogisticRegressionCV(scoring="neg_log_loss"), ""),
    (Wrapped(GaussianNB(), early=False), ""), (GridSearchCV(PoissonRegressor(), {}), ""),
])
def test_default_scores_that_are_not_accuracy(learner, name):
    assert _default_score(learner) == name


def test_a_learner_with_a_scoring_of_its_own_is_raced():
    X, y = make_classification(300, 5, random_state=0)
    found = RacingSearchCV(HistGradientBoostingClassifier(max_iter=5), {"max_depth": [1, 3]}, cv=2, random_state=0)
    assert found.fit(X, y).best_score_ == pytest.approx(
        GridSearchCV(HistGradientBoostingClassifier(max_iter=5), {"max_depth": [1, 3]}, cv=2).fit(X, y).best_score_)


def test_predictions_that_are_no_classes_leave_the_race():
    """A regressor among classifiers predicts what equals no class: out, with the reason, instead of a score of 0."""
    X, y = make_classification(300, 5, random_state=0)
    learners = [("line", Ridge()), ("bayes", GaussianNB())]
    with pytest.warns(UserWarning, match="candidate 0 is out of the race.*which is no class"):
        found = RacingSearchCV(learners, scoring="accuracy", cv=2, random_state=0).fit(X, y)
    assert found.best_params_ == {"choice": "bayes"} and np.isnan(found.cv_results_["mean_test_score"][0])
    with pytest.raises(ValueError, match="failed to predict, or to train: line: ValueError: a pred"), \
            warnings.catch_warnings():
        warnings.simplefilter("ignore")
        RacingSearchCV(learners[:1], scoring="accuracy", cv=2, random_state=0).fit(X, y)


class Gappy(DecisionTreeClassifier):
    """Gives no answer, nan, where column 0 of X is large."""

    def predict(self, X):
        return np.where(np.asarray(X)[:, 0] > 1.0, np.nan, super().predict(X))


GAPPY = [("gappy", Gappy(max_depth=6, random_state=0)), ("stump", DecisionTreeClassifier(max_depth=1)),
         ("dummy", DummyClassifier())]


@pytest.mark.filterwarnings("ignore:the race is not as promised")
@pytest.mark.parametrize("cv", [KFold(3), KFold(7), 0.5])
def test_rows_without_a_score_are_dropped_or_count_as_wrong(cv):
    X, y = make_classification(900, 5, flip_y=0.1, random_state=1)
    for missing in ("drop", "worst"):
        found = RacingSearchCV(GAPPY, cv=cv, missing=missing, bound="serfling", first_look=900,
                               random_state=0).fit(X, y)
        splits = list(cv.split(X, y)) if cv != 0.5 else None
        result = found.race_
        np.testing.assert_allclose(found.cv_results_["mean_test_score"], result.mean)
        assert result.stopped_by == "exact" and result.n_missing > 0 and (result.n_dropped > 0) == (missing == "drop")
        if splits is not None:
            right = np.full((900, 3), np.nan)
            scale = np.zeros(900)
            for train, test in splits:
                scale[test] = 1.0 if missing == "drop" else 900 / (len(splits) * len(test))
                for j, (_, learner) in enumerate(GAPPY):
                    p = clone(learner).fit(X[train], y[train]).predict(X[test])
                    right[test, j] = np.where(np.isnan(p), np.nan, p == y[test])
            kept = ~np.isnan(right).any(axis=1) if missing == "drop" else np.ones(900, bool)
            means = (np.nan_to_num(right) * scale[:, None])[kept].sum(axis=0) / scale[kept].sum()
            np.testing.assert_allclose(found.cv_results_["mean_test_score"], means)
    with pytest.warns(UserWarning, match="out of the race"):
        out = RacingSearchCV(GAPPY, cv=cv, random_state=0).fit(X, y)
    assert np.isnan(out.cv_results_["mean_test_score"][0]) and out.best_index_ == 1


def test_several_best_candidates_are_ranked_as_the_race_found_them():
    X, y = make_classification(3000, 6, flip_y=0.3, random_state=0)
    grid = {"n_neighbors": [1, 5, 25, 1200]}
    found = RacingSearchCV(KNeighborsClassifier(), grid, cv=0.5, n_best=2, random_state=0).fit(X, y)
    full = GridSearchCV(KNeighborsClassifier(), grid, cv=ShuffleSplit(1, test_size=0.5, random_state=0)).fit(X, y)
    best, ranks = found.race_.best, found.cv_results_["rank_test_score"]
    assert best.shape == (2,) and found.best_index_ == best[0] and isinstance(found.best_index_, int)
    assert ranks[best].tolist() == [1, 2] and sorted(ranks) == [1, 2, 3, 4]
    assert set(full.cv_results_["rank_test_score"].argsort()[:2]) == set(best)
    assert found.best_params_ == {"n_neighbors": grid["n_neighbors"][best[0]]}


@pytest.mark.parametrize(("options", "said"), [
    ({"n_best": 4}, "n_best is 4"), ({"missing": "worst", "scoring": "r2"}, "low end of a support"),
    ({"missing": "lose"}, "missing is 'lose'"), ({"epsilon": -1.0}, "epsilon is -1"), ({"cost": [1.0]}, "cost has"),
])
def test_what_the_race_cannot_do_is_said_before_anything_is_trained(options, said):
    X, y = make_classification(100, random_state=0)
    Right.patience = 0
    with pytest.raises(ValueError, match=said):
        RacingSearchCV([("a", Right(fail="interrupt")), ("b", Right(1)), ("c", Right(2))], **options).fit(X, y)


@pytest.mark.parametrize("weights", ["different", "equal"])
def test_rows_are_not_dropped_where_their_weights_differ(weights):
    """The mean would not be in units of the score, nor epsilon, by a factor that is known only when all is read."""
    X, y = make_classification(300, 5, flip_y=0.1, random_state=1)
    with config_context(enable_metadata_routing=True):
        score = make_scorer(accuracy_score).set_score_request(sample_weight=True)
        search = RacingSearchCV(GAPPY, scoring=score, cv=3, missing="drop", bound="serfling", first_look=300,
                                random_state=0)
        if weights == "equal":
            found = search.fit(X, y, sample_weight=np.full(300, 2.0))
            np.testing.assert_allclose(found.cv_results_["mean_test_score"], found.race_.mean)
            return
        with pytest.raises(ValueError, match="missing is 'drop' and rows have different weights"):
            search.fit(X, y, sample_weight=np.arange(1.0, 301.0))


@pytest.mark.parametrize("max_pulls", [None, 90])
def test_all_candidates_may_be_asked_for(max_pulls):
    """Nothing is raced; they are scored, as far as the budget goes, and the best mean comes first."""
    X, y = make_classification(100, random_state=0)
    learners = [("a", Right(2)), ("b", Right(1)), ("c", DummyClassifier())]
    found = RacingSearchCV(learners, n_best=3, max_pulls=max_pulls, cv=2, random_state=0).fit(X, y)
    means = found.cv_results_["mean_test_score"]
    assert found.race_.stopped_by == "single"
    assert found.cv_results_["n_predictions"].tolist() == [100 if max_pulls is None else 30] * 3
    assert found.race_.best.tolist() == np.argsort(-means, kind="stable").tolist()
    assert found.best_index_ == means.argmax()


def test_fewer_candidates_left_than_wanted_are_named():
    X, y = make_classification(100, random_state=0)
    with pytest.warns(Warning), pytest.raises(ValueError, match="n_best is 2 and only 1 candidate"):
        RacingSearchCV([("a", Right(fail="fit")), ("b", Right(1)), ("c", Right(2, fail="fit"))], n_best=2).fit(X, y)


@pytest.mark.parametrize("state", range(3))
def test_several_are_found_where_the_best_is_known_before_the_last(state):
    """The best is read no further then. The search ended with an IndexError, after all trainings."""
    X, y = make_classification(3000, 6, flip_y=0.3, random_state=0)
    grid = {"n_neighbors": [1, 25, 400, 1400]}
    search = RacingSearchCV(KNeighborsClassifier(), grid, cv=0.5, random_state=state, n_best=2).fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
