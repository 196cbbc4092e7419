"""What users of scikit-learn may count on in a search, held against both of ours: facts that its own tests check."""

import pickle
import warnings

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, clone, is_classifier, is_regressor
from sklearn.cluster import KMeans
from sklearn.datasets import make_classification
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, cross_val_score, train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from fastrace.model_selection import DAUBSearchCV, RacingSearchCV

BOTH = pytest.mark.parametrize("search", [DAUBSearchCV, RacingSearchCV])
GRID = {"var_smoothing": [1e-9, 1e-3, 10.0]}
X, Y = make_classification(300, 5, random_state=0)


class Recording(ClassifierMixin, BaseEstimator):
    """Remembers what `fit` was given; fails on request."""

    def __init__(self, choice=0, fail=False):
        self.choice = choice
        self.fail = fail

    def fit(self, X, y=None, sample_weight=None, **other):
        if self.fail:
            raise ValueError("asked to fail")
        self.X_, self.classes_, self.weights_, self.other_ = X, np.unique(y), sample_weight, other
        return self

    def predict(self, X):
        return np.full(len(X), self.classes_[self.choice])

    def transform(self, X):
        return X + self.choice

    def inverse_transform(self, X):
        return X - self.choice


def made(search, estimator=None, grid=None, **options):
    return search(GaussianNB() if estimator is None else estimator, GRID if grid is None else grid,
                  **({"cv": 2, "random_state": 0} | options))


@BOTH
def test_parameters_are_untouched_and_copied(search):
    estimator, grid = GaussianNB(var_smoothing=0.5), {"var_smoothing": [1e-9, 10.0]}
    one = made(search, estimator, grid)
    before = one.get_params()
    one.fit(X, Y)
    assert one.get_params() == before and not hasattr(estimator, "classes_") and estimator.var_smoothing == 0.5
    assert one.estimator is estimator and one.param_grid is grid
    other = clone(one)
    assert not hasattr(other, "cv_results_") and other.estimator is not estimator
    other.set_params(estimator__var_smoothing=3.0, cv=3)
    assert other.estimator.var_smoothing == 3.0 and other.fit(X, Y).n_splits_ == 3
    assert is_classifier(one) and is_regressor(made(search, Ridge(), {"alpha": [1.0]}))


@BOTH
def test_what_a_fitted_search_offers(search):
    one = made(search)
    for name in ("predict", "score", "n_features_in_", "classes_", "best_estimator_"):
        with pytest.raises((NotFittedError, AttributeError)):
            value = getattr(one, name)
            value(X, Y) if name == "score" else value(X)
    one.fit(X, Y)
    best = one.best_estimator_
    assert one.n_features_in_ == 5 and one.classes_.tolist() == [0, 1] and one.refit_time_ >= 0.0
    for name in ("predict", "predict_proba", "predict_log_proba"):
        np.testing.assert_array_equal(getattr(one, name)(X), getattr(best, name)(X))
    assert not hasattr(one, "decision_function") and not hasattr(one, "transform")
    assert one.score(X, Y) == best.score(X, Y)
    assert one.best_params_ == one.cv_results_["params"][one.best_index_]
    assert best.var_smoothing == one.best_params_["var_smoothing"]
    turned = made(search, Recording(), {"choice": [1]}, scoring="accuracy").fit(X, Y)
    np.testing.assert_allclose(turned.inverse_transform(turned.transform(X)), X)
    plain = made(search, refit=False).fit(X, Y)
    assert plain.best_params_ == one.best_params_ and plain.best_score_ == one.best_score_
    assert not hasattr(plain, "best_estimator_") and not hasattr(plain, "refit_time_")
    with pytest.raises(AttributeError, match="predict"):
        plain.predict(X)
    restored = pickle.loads(pickle.dumps(one))
    np.testing.assert_array_equal(restored.predict(X), one.predict(X))


@BOTH
def test_keys_and_kinds_of_the_table_of_results(search):
    grid = [{"kernel": ["rbf"], "C": [1.0, 10.0]}, {"kernel": ["poly"], "degree": [1, 2]}]
    results = made(search, SVC(), grid).fit(X, Y).cv_results_
    wanted = GridSearchCV(SVC(), grid, cv=2).fit(X, Y).cv_results_
    rows = len(results["params"])
    assert set(wanted) <= set(results) and all(len(column) == rows for column in results.values())
    for name in ("C", "degree", "kernel"):
        column = results[f"param_{name}"]
        assert isinstance(column, np.ma.MaskedArray) and column.dtype == wanted[f"param_{name}"].dtype
        absent = [name not in one for one in results["params"]]
        assert np.ma.getmaskarray(column).tolist() == absent
    for name in set(wanted) - {"params", "param_C", "param_degree", "param_kernel"}:
        assert results[name].dtype == wanted[name].dtype, name
    assert results["rank_test_score"].min() == 1
    splits = np.array([results["split0_test_score"], results["split1_test_score"]])
    if search is DAUBSearchCV:
        np.testing.assert_allclose(results["mean_test_score"], splits.mean(axis=0))
        np.testing.assert_allclose(results["std_test_score"], splits.std(axis=0))
    assert not [name for name in results if "train" in name]
    chosen = made(search).fit(X, Y)
    assert chosen.cv_results_["rank_test_score"][chosen.best_index_] == 1
    assert np.sum(chosen.cv_results_["rank_test_score"] == 1) == 1


def test_scores_at_all_rows_are_those_of_cross_validation():
    found = made(DAUBSearchCV, first=10**6, return_train_score=True).fit(X, Y)
    assert (found.cv_results_["n_resources"] == 150).all()
    wanted = GridSearchCV(GaussianNB(), GRID, cv=2, return_train_score=True).fit(X, Y)
    for name in ("mean_test_score", "mean_train_score", "split1_train_score", "std_train_score"):
        np.testing.assert_allclose(found.cv_results_[name], wanted.cv_results_[name])
    assert found.best_params_ == wanted.best_params_


@BOTH
def test_splits_of_every_kind(search):
    plan = list(KFold(3).split(X))
    masks = [tuple(np.isin(np.arange(300), part) for part in pair) for pair in plan]
    scores = {made(search, cv=cv).fit(X, Y).best_score_ for cv in (KFold(3), plan, iter(plan), masks)}
    assert len(scores) == 1
    groups = np.repeat(np.arange(30), 10)
    assert made(search, cv=GroupKFold(5)).fit(X, Y, groups=groups).n_splits_ == 5
    with pytest.raises(ValueError, match="groups"):
        made(search, cv=GroupKFold(5)).fit(X, Y)
    with pytest.raises(ValueError, match="Was the CV iterator empty|No fits were performed"):
        made(search, cv=iter([])).fit(X, Y)
    with pytest.raises(ValueError, match="held-out rows"):
        made(search, cv=[(np.arange(200), np.arange(0))]).fit(X, Y)

    class Short(KFold):
        def get_n_splits(self, *args, **kwargs):
            return 7

    with pytest.raises(ValueError, match="Expected 7 splits, got 3"):
        made(search, cv=Short(3)).fit(X, Y)
    for wrong in (1, 0, -0.5, 1.0, "all"):
        with pytest.raises(ValueError, match="cv"):
            made(search, cv=wrong).fit(X, Y)


@BOTH
@pytest.mark.parametrize("error_score", [np.nan, 0.0, 1e9])
def test_what_fails_is_never_chosen(search, error_score):
    grid = {"fail": [True, False], "choice": [0]}
    one = made(search, Recording(), grid, scoring="accuracy", error_score=error_score)
    with pytest.warns(Warning, match="(?s)fits failed.*asked to fail") as said:
        one.fit(X, Y)
    assert any("will be set to" in str(entry.message) for entry in said)
    assert one.best_params_ == {"choice": 0, "fail": False}
    rows = np.array([params["fail"] for params in one.cv_results_["params"]])
    assert one.cv_results_["mean_test_score"][rows] == pytest.approx(error_score, nan_ok=True)
    assert one.cv_results_["rank_test_score"][rows].min() > one.cv_results_["rank_test_score"][~rows].min()
    with pytest.raises(ValueError, match="(?s)All the .* fits failed.*asked to fail"):
        made(search, Recording(), {"fail": [True]}, scoring="accuracy", error_score=error_score).fit(X, Y)
    with pytest.raises(ValueError, match="^asked to fail"):
        made(search, Recording(), grid, scoring="accuracy", error_score="raise").fit(X, Y)
    with pytest.raises(ValueError, match="error_score"):
        made(search, error_score="bad").fit(X, Y)


def test_a_scorer_of_several_values_survives_failures():
    """The first training fails, so that nobody knows yet what the scorer returns."""
    def several(model, X, y):
        return {"a": model.score(X, y), "b": 0.0}

    grid = {"fail": [True, False]}
    with pytest.warns(Warning, match="fits failed"):
        one = made(DAUBSearchCV, Recording(), grid, scoring=several, refit="a", error_score=0.25).fit(X, Y)
    assert one.multimetric_ and one.best_params_ == {"fail": False}
    rows = np.array([params["fail"] for params in one.cv_results_["params"]])
    assert (one.cv_results_["mean_test_b"][rows] == 0.25).all() and (one.cv_results_["mean_test_b"][~rows] == 0.0).all()
    for refit in (True, "c"):
        with warnings.catch_warnings(), pytest.raises(ValueError, match="refit must be set to a scorer key"):
            warnings.simplefilter("ignore")
            made(DAUBSearchCV, scoring=several, refit=refit).fit(X, Y)
    loose = made(DAUBSearchCV, scoring=several, refit=False).fit(X, Y)
    assert loose.multimetric_ and not hasattr(loose, "best_index_")
    bad = made(DAUBSearchCV, scoring=lambda model, X, y: "high", error_score="raise")
    with pytest.raises(ValueError, match="scoring must return a number"):
        bad.fit(X, Y)


@BOTH
def test_refit_by_a_function(search):
    one = made(search, refit=lambda results: int(np.argmin(results["mean_test_score"]))).fit(X, Y)
    assert one.best_index_ == np.argmin(one.cv_results_["mean_test_score"]) and not hasattr(one, "best_score_")
    for answer, wrong in ((-1, IndexError), (10**6, IndexError), (0.5, TypeError)):
        with pytest.raises(wrong, match="best_index_"):
            made(search, refit=lambda results, answer=answer: answer).fit(X, Y)


@BOTH
def test_several_scores(search):
    names = ["accuracy", "balanced_accuracy"]
    one = made(search, scoring=names, refit="balanced_accuracy").fit(X, Y)
    for name in names:
        for prefix in ("mean_test", "std_test", "rank_test", "split0_test"):
            assert f"{prefix}_{name}" in one.cv_results_
    assert "mean_test_score" not in one.cv_results_ and one.multimetric_ and set(one.scorer_) == set(names)
    assert one.score(X, Y) == get_scorer("balanced_accuracy")(one.best_estimator_, X, Y)
    assert one.best_score_ == one.cv_results_["mean_test_balanced_accuracy"][one.best_index_]
    for refit in (True, "f1"):
        with pytest.raises(ValueError, match="refit"):
            made(search, scoring=names, refit=refit).fit(X, Y)
    with pytest.raises(ValueError):
        made(search, scoring=["accuracy", "none such"], refit="accuracy").fit(X, Y)


@BOTH
def test_rows_of_frames_in_different_orders_are_refused(search):
    """scikit-learn matches them by position, without a word."""
    pd = pytest.importorskip("pandas")
    X_, y_ = pd.DataFrame(X).add_prefix("x"), pd.Series(Y)
    fitted = search(GaussianNB(), GRID, cv=3).fit(X_.iloc[::-1], y_.iloc[::-1])
    assert fitted.best_params_ == search(GaussianNB(), GRID, cv=3).fit(X[::-1], Y[::-1]).best_params_
    with pytest.raises(ValueError, match="the pandas indexes of X and y differ: row 0 is 299 in the one and 0 in the"):
        search(GaussianNB(), GRID, cv=3).fit(X_.iloc[::-1], y_)
    search(GaussianNB(), GRID, cv=3).fit(X_.iloc[::-1].reset_index(drop=True), y_)


@BOTH
def test_grids(search):
    assert made(search, grid={}).fit(X, Y).best_params_ == {}
    for grid, wrong in (({"var_smoothing": 1.0}, TypeError), ({"var_smoothing": []}, ValueError),
                        ({"none": [1]}, ValueError), ({"var_smoothing": np.ones((2, 2))}, ValueError)):
        with pytest.raises(wrong):
            made(search, grid=grid).fit(X, Y)
    steps = Pipeline([("scale", StandardScaler()), ("model", GaussianNB())])
    grid = [{"model": [GaussianNB(), DecisionTreeClassifier(max_depth=2)], "scale": ["passthrough", StandardScaler()]}]
    one = made(search, steps, grid).fit(X, Y)
    held = one.best_params_["model"]
    assert not hasattr(held, "classes_") and one.best_estimator_.named_steps["model"] is not held    # clones are fitted
    none = made(search, LogisticRegression(), {"class_weight": [None, "balanced"]}).fit(X, Y)
    assert set(none.cv_results_["param_class_weight"]) == {None, "balanced"}


@BOTH
def test_nested_in_other_tools(search):
    assert cross_val_score(made(search), X, Y, cv=2).shape == (2,)
    whole = make_pipeline(StandardScaler(), made(search)).fit(X, Y)
    assert whole.score(X, Y) > 0.7
    inner = GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, cv=2)
    assert made(search, inner, {"cv": [2, 3]}).fit(X, Y).best_params_["cv"] in (2, 3)
    again = made(search).fit(X, Y).fit(X[:200, :3], Y[:200])
    assert again.n_features_in_ == 3 and again.predict(X[:2, :3]).shape == (2,)
    assert f"{search.__name__}" in again._repr_html_() and f"{search.__name__}(" in repr(again)


@BOTH
def test_data_that_learners_must_see_as_it_is(search):
    """Frames stay frames, lists of words lists, and precomputed kernels lose columns with rows."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcde"), index=np.arange(300)[::-1])
    one = made(search, Recording(), {"choice": [0]}, scoring="accuracy")
    one.fit(frame, pandas.Series(Y, index=frame.index))
    assert one.best_estimator_.X_ is frame
    named = made(search).fit(frame, Y)
    assert named.feature_names_in_.tolist() == list("abcde")
    assert not hasattr(named.fit(X, Y), "feature_names_in_")
    pandas.DataFrame(named.cv_results_)
    kernel = X @ X.T
    grid = {"C": [0.1, 1.0]}
    linear = made(search, SVC(kernel="linear"), grid).fit(X, Y)
    given = made(search, SVC(kernel="precomputed"), grid).fit(kernel, Y)
    np.testing.assert_array_equal(given.predict(kernel), linear.predict(X))
    assert given.best_params_ == linear.best_params_
    with pytest.raises(ValueError, match="square"):
        made(search, SVC(kernel="precomputed"), grid, error_score="raise").fit(kernel[:, :9], Y)
    for bad in ((X, Y[:-1]), (X[:0], Y[:0])):
        with pytest.raises(ValueError):
            made(search).fit(*bad)


def test_without_targets():
    one = made(DAUBSearchCV, KMeans(n_init=1, random_state=0), {"n_clusters": [1, 2, 4]}).fit(X)
    assert one.best_params_ == {"n_clusters": 4} and one.score(X) <= 0.0
    assert made(DAUBSearchCV, PCA(), {"n_components": [1, 2]}).fit(X).transform(X).shape[0] == 300
    with pytest.raises(ValueError, match="name a score"):
        made(RacingSearchCV, KMeans(), {"n_clusters": [2]}).fit(X)


@BOTH
def test_weights_and_other_fit_parameters(search):
    weights = np.linspace(0.1, 1.0, 300)
    one = made(search, Recording(), {"choice": [0, 1]}, scoring="accuracy").fit(X, Y, sample_weight=weights, more="yes")
    np.testing.assert_array_equal(one.best_estimator_.weights_, weights)
    assert one.best_estimator_.other_ == {"more": "yes"}
    heavy = np.where(Y == 1, 100.0, 1e-3)
    assert made(search, Recording(), {"choice": [0, 1]}, scoring="accuracy").fit(
        X, Y, sample_weight=heavy).best_params_ == {"choice": 1}
    with config_context(enable_metadata_routing=True):
        with pytest.raises(ValueError, match="sample_weight.*not explicitly set"):
            made(search, Recording(), {"choice": [0]}).fit(X, Y, sample_weight=weights)
        asking = Recording().set_fit_request(sample_weight=True).set_score_request(sample_weight=False)
        groups = np.repeat(np.arange(30), 10)
        cv = GroupKFold(3)
        routed = made(search, asking, {"choice": [0]}, cv=cv).fit(X, Y, sample_weight=weights, groups=groups)
        np.testing.assert_array_equal(routed.best_estimator_.weights_, weights)


def test_learners_without_what_the_score_needs():
    """AUC takes decision values or probabilities; a learner with neither is out, and the others go on."""
    learners = [("neither", Recording()), ("values", LinearSVC()), ("chances", GaussianNB())]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = DAUBSearchCV(learners, scoring="roc_auc", cv=2, random_state=0).fit(X, Y)
        assert list(one.result_.dropped) == [0] and one.best_params_["choice"] != "neither"
        assert "has none of the following attributes: decision_function, predict_proba" in one.result_.dropped[0]
        loss = RacingSearchCV(learners, scoring="neg_log_loss", cv=2, random_state=0).fit(X, Y)
        assert loss.best_params_ == {"choice": "chances"}
        with pytest.raises(ValueError, match="no learner is left: neither: .*; error_score='raise' shows where"):
            DAUBSearchCV(learners[:1], scoring="roc_auc", cv=2).fit(X, Y)


@BOTH
def test_callbacks(search):
    """Of scikit-learn 1.9: begun and ended as often as each other, told of weights, torn down once."""
    if not hasattr(search, "set_callbacks"):
        pytest.skip("this scikit-learn has no callbacks")

    class Counting:
        max_estimator_depth = 0

        def __init__(self):
            self.seen, self.told = [], []

        def setup(self, *args, **kwargs):
            self.seen.append("setup")

        def on_fit_task_begin(self, estimator, context, *, X=None, y=None, metadata=None, fitted_estimator=None):
            self.seen.append("begin")
            self.told.append((context.task_name, metadata))

        def on_fit_task_end(self, estimator, context, *, X=None, y=None, metadata=None, fitted_estimator=None):
            self.seen.append("end")

        def teardown(self, *args, **kwargs):
            self.seen.append("teardown")

    for refit in (True, False):
        counting = Counting()
        one = made(search, refit=refit).set_callbacks(counting)
        one.fit(X, Y, sample_weight=np.ones(300))
        trainings = 2 * len(one.cv_results_["params"])
        assert counting.seen.count("begin") == counting.seen.count("end") == trainings + 2 + refit
        assert counting.seen.count("setup") == counting.seen.count("teardown") == 1 and counting.seen[-1] == "teardown"
        for name, metadata in counting.told:
            assert name == "search" or "sample_weight" in metadata, name
    broken = Counting()
    with pytest.raises(ValueError, match="asked to fail"):
        made(search, Recording(fail=True), {"choice": [0]}, scoring="accuracy", error_score="raise").set_callbacks(
            broken).fit(X, Y)
    assert broken.seen[-1] == "teardown"


def test_held_out_data_agree_with_the_choice():
    """End to end: a clear winner is found by both, and predicts as its own score said."""
    big, target = make_classification(4000, 8, n_informative=6, flip_y=0.02, random_state=1)
    train, test, y_train, y_test = train_test_split(big, target, random_state=0)
    learners = [("bayes", GaussianNB()), ("linear", LogisticRegression()), ("kernel", SVC())]
    for search in (DAUBSearchCV, RacingSearchCV):
        one = search(learners, cv=0.3, random_state=0).fit(train, y_train)
        assert one.best_params_ == {"choice": "kernel"}
        assert one.score(test, y_test) == pytest.approx(one.best_score_, abs=0.04)


@BOTH
@pytest.mark.parametrize("error_score", [np.nan, "raise"])
def test_errors_are_of_the_types_that_scikit_learn_checks_for(search, error_score):
    """Its checks call searches with error_score="raise"; what nan leaves to be said must be of the same types."""
    import sklearn.utils.estimator_checks as checks

    for estimator, grid in ((Ridge(), {"alpha": [0.1, 1.0]}), (LogisticRegression(), {"C": [0.1, 1.0]})):
        one = made(search, estimator, grid, error_score=error_score)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name in ("check_dtype_object", "check_estimators_nan_inf", "check_fit2d_1sample",
                         "check_fit2d_1feature", "check_fit1d", "check_complex_data"):
                getattr(checks, name)(search.__name__, one)


class Refusing(ClassifierMixin, BaseEstimator):
    """Raises an error of several lines."""

    def __init__(self, error=TypeError):
        self.error = error

    def fit(self, X, y):
        raise self.error("rows are of a wrong kind\nValueError: see elsewhere")


@BOTH
@pytest.mark.filterwarnings("ignore::Warning")
@pytest.mark.parametrize(("errors", "raised"), [
    ((TypeError,), TypeError), ((ValueError,), ValueError), ((TypeError, ValueError), ValueError)])
def test_where_none_is_left_the_type_of_the_errors_is_kept_not_read_out_of_their_words(search, errors, raised):
    """Some fail in `fit` and the others in predictions, so that scikit-learn does not end the search itself."""
    class Predicting(Refusing):
        def fit(self, X, y):
            self.classes_ = np.unique(y)
            return self

        def predict(self, X):
            raise self.error("rows are of a wrong kind\nValueError: see elsewhere")

    kinds = Refusing, Predicting
    learners = [(f"{kind.__name__}{error.__name__}", kind(error)) for error in errors for kind in kinds]
    with pytest.raises(raised, match="of a wrong kind.*of a wrong kind.*; error_score='raise'") as said:
        search(learners, cv=2, scoring="accuracy", random_state=0).fit(X, Y)
    assert type(said.value) is raised


class Quiet(GaussianNB):
    """Returns nothing from `fit`."""

    def fit(self, X, y, sample_weight=None):
        super().fit(X, y, sample_weight)


@BOTH
def test_what_fit_returns_does_not_matter(search):
    one = made(search, Quiet()).fit(X, Y)
    assert type(one.best_estimator_) is Quiet and one.predict(X).shape == Y.shape
    assert type(made(search, [("a", Quiet())], {}).fit(X, Y).best_estimator_) is Quiet
    if search is DAUBSearchCV:
        assert type(made(search, Quiet(), warm_start=True).fit(X, Y).best_estimator_) is Quiet


LEARNERS = [("bayes", GaussianNB()), ("tree", DecisionTreeClassifier(random_state=0)), ("line", LogisticRegression())]


@BOTH
@pytest.mark.parametrize(("grid", "wanted"), [
    (None, ["bayes", "tree", "line"]), ({}, ["bayes", "tree", "line"]), ([{}], ["bayes", "tree", "line"]),
    ({"tree__max_depth": [1, 3]}, ["bayes", "tree 1", "tree 3", "line"]),
    ({"tree__max_depth": [1, 3], "line__C": [0.1, 1.0]}, ["bayes", "tree 1", "tree 3", "line 0.1", "line 1.0"]),
    ([{"tree__max_depth": [1]}, {"line__C": [0.1]}, {"tree__max_depth": [3]}],
     ["bayes", "tree 1", "tree 3", "line 0.1"]),
    ([{"choice": ["tree"], "tree__max_depth": [1, 3]}, {"choice": ["line"]}], ["tree 1", "tree 3", "line"]),
    ({"choice": ["bayes", "tree"], "tree__max_depth": [1, 3]}, ["bayes", "tree 1", "tree 3"]),
    ([{"choice": ["line"]}, {"tree__max_depth": [1]}], ["tree 1", "line"]),
    ({"tree": [DecisionTreeClassifier(max_depth=2)], "tree__max_features": [1, 2]},
     ["bayes", "tree DecisionTreeClassifier(max_depth=2) 1", "tree DecisionTreeClassifier(max_depth=2) 2", "line"]),
])
def test_every_learner_of_a_list_is_combined_with_its_own_grid(search, grid, wanted):
    one = made(search, LEARNERS)
    one.param_grid = grid                          # made() would put its own in the place of None
    settings = one.fit(X, Y).candidates_ if search is DAUBSearchCV else one.fit(X, Y).cv_results_["params"]
    said = [" ".join([setting["choice"], *(str(value) for key, value in setting.items() if key != "choice")])
            for setting in settings]
    assert said == wanted
    assert type(one.best_estimator_) is type(dict(LEARNERS)[one.best_params_["choice"]])
    best = {key.partition("__")[2]: value for key, value in one.best_params_.items() if "__" in key}
    assert best.items() <= one.best_estimator_.get_params().items()


@BOTH
def test_distributions_are_drawn_for_each_learner_that_has_some(search):
    uniform = pytest.importorskip("scipy.stats").uniform
    one = made(search, LEARNERS, {"line__C": uniform(0.1, 2.0), "tree__max_depth": [1, 2]}, n_candidates=4).fit(X, Y)
    settings = one.candidates_ if search is DAUBSearchCV else one.cv_results_["params"]
    assert [setting["choice"] for setting in settings] == ["bayes", "tree", "tree", "line", "line", "line", "line"]
    assert len({setting["line__C"] for setting in settings[3:]}) == 4


@BOTH
@pytest.mark.parametrize(("grid", "said"), [
    ({"max_depth": [1, 3]}, "has 'max_depth', which is a parameter of no learner; the learners are bayes, tree, line"),
    ({"forest__max_depth": [1]}, "'forest__max_depth', which is a parameter of no learner"),
    ({"learners": [[]]}, "'learners', which is a parameter of no learner"),
    ({"choice": ["forest"]}, "'forest' under 'choice', which is no learner"),
    ({"choice": ["bayes"], "tree__max_depth": [1]}, "parameters of tree in a dict whose 'choice' leaves it out"),
    ({"tree__none": [1]}, "Invalid parameter 'none'"),
])
def test_grids_that_fit_no_learner_are_refused(search, grid, said):
    with pytest.raises(ValueError, match=said):
        made(search, LEARNERS, grid).fit(X, Y)


@pytest.mark.parametrize(("kind", "option"), [
    (DAUBSearchCV, {"curve": 99}), (RacingSearchCV, {"first_look": 1}), (RacingSearchCV, {"growth": 0.5}),
])
def test_errors_of_options_name_the_search_that_was_called(kind, option):
    with pytest.raises(ValueError, match=rf"^{kind.__name__}: {next(iter(option))} is"):
        kind(LogisticRegression(), {"C": [0.1, 1.0]}, cv=0.5, **option).fit(X, Y)
