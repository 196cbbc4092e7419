"""DAUBSearchCV: scikit-learn's checks, data of every kind, failures, interruption, any number of jobs."""

import pickle
import sys
import warnings

import numpy as np
import pytest

pytest.importorskip("sklearn")

from joblib import parallel_config
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import load_digits, make_classification
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils.estimator_checks import check_estimator

from fastrace.model_selection import DAUB, DAUBSearchCV
from fastrace.model_selection.searches._checkpoint import load
from fastrace.model_selection.searches._daub_search import _nested
from guarantee import few_or_many

LEARNERS = [("bayes", GaussianNB()), ("dummy", DummyClassifier()), ("tree", DecisionTreeClassifier(random_state=0)),
            ("one", KNeighborsClassifier(1))]


@pytest.fixture(scope="module")
def digits():
    return load_digits(return_X_y=True)


def search(learners=LEARNERS, grid=None, **options):
    return DAUBSearchCV(learners, grid, **({"cv": 0.3, "first": 40, "random_state": 0} | options))


class Rule(ClassifierMixin, BaseEstimator):
    """Knows its score beforehand: `final - 1 / sqrt(n)`."""

    def __init__(self, final=0.5, fail=""):
        self.final = final
        self.fail = fail

    def fit(self, X, y, sample_weight=None):
        self.n_, self.classes_, self.weighted_ = len(y), np.unique(y), sample_weight is not None
        if self.fail == "raise" and self.n_ > 60:
            raise MemoryError("too many rows")
        if self.fail == "interrupt" and self.n_ > 200:
            Rule.calls += 1
            if Rule.calls == 2:
                raise KeyboardInterrupt
        return self

    def predict(self, X):
        return np.full(X.shape[0], self.classes_[0])

    def score(self, X, y, sample_weight=None):
        return np.nan if self.fail == "nan" else self.final - 1.0 / np.sqrt(self.n_)


def rules(**options):
    options = {"method": "daub", "cv": 2, "first": 20, "random_state": 0, "training_bound": False} | options
    return DAUBSearchCV([(f"r{k}", Rule(0.5 + 0.02 * k)) for k in range(5)], **options)


@pytest.fixture(scope="module")
def table():
    return np.random.default_rng(0).normal(size=(1000, 3)), np.arange(1000) % 3


def test_passes_the_checks_of_scikit_learn():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_estimator(DAUBSearchCV(Ridge(), {"alpha": [0.1, 1.0]}, cv=2, error_score="raise", random_state=0))


def test_chooses_among_learners(digits):
    X, y = digits
    found = search().fit(X, y)
    assert found.best_params_ == {"choice": "one"}
    assert isinstance(found.best_estimator_, KNeighborsClassifier) and found.best_estimator_.n_neighbors == 1
    results = found.cv_results_
    rows = len(results["params"])
    for name in ("mean_test_score", "std_test_score", "rank_test_score", "split0_test_score", "mean_fit_time",
                 "param_choice", "candidate", "n_resources", "iter", "upper_bound"):
        assert len(results[name]) == rows
    assert results["mean_test_score"][found.best_index_] == found.best_score_ == found.result_.score
    assert results["n_resources"][found.best_index_] == 1257
    assert found.rows_.tolist() == found.result_.rows.tolist() and (found.seconds_ > 0).all()
    assert found.predict(X[:5]).shape == (5,) and found.score(X, y) > 0.95
    assert "DAUBSearchCV" in found._repr_html_() and "best learner one" in str(found.result_)
    assert found.classes_.tolist() == list(range(10))
    restored = pickle.loads(pickle.dumps(found))
    assert (restored.predict(X) == found.predict(X)).all()
    assert clone(found).estimator.learners[0][0] == "bayes"


def test_decides_as_daub_does(table):
    X, y = table
    for options in ({}, {"verify": True}, {"curve": 0.0, "ratio": 2.0}):
        found = rules(**options).fit(X, y)
        daub = DAUB(5, 500, 20, options.get("ratio", 1.5), training_bound=False,
                    **{k: v for k, v in options.items() if k != "ratio"})
        wanted = daub.run(lambda i, n: (None, 0.5 + 0.02 * i - 1 / np.sqrt(n)))
        assert found.result_.allocations == wanted.allocations
        assert found.best_params_ == {"choice": f"r{wanted.best}"}


@pytest.mark.parametrize("method", ["daub", "daub-halving", "halving"])
@pytest.mark.parametrize("backend", ["threading"])
def test_the_answer_does_not_depend_on_jobs(table, method, backend):
    X, y = table
    one = rules(method=method).fit(X, y)
    with parallel_config(backend=backend):
        other = rules(method=method, n_jobs=7).fit(X, y)
    assert one.result_.allocations == other.result_.allocations
    assert one.best_params_ == other.best_params_ == {"choice": "r4"}


@pytest.mark.parametrize("fail", ["raise", "nan"])
def test_failures_are_dropped(table, fail):
    X, y = table
    learners = [("good", Rule(0.6)), ("bad", Rule(0.9, fail)), ("fair", Rule(0.5))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = DAUBSearchCV(learners, cv=2, first=20, training_bound=False, random_state=0).fit(X, y)
        assert found.best_params_ == {"choice": "good"} and list(found.result_.dropped) == [1]
        everyone = DAUBSearchCV([("a", Rule(0.5, fail)), ("b", Rule(0.5, fail))], cv=2, first=20, random_state=0)
        with pytest.raises((RuntimeError, ValueError), match="no learner is left|fits failed"):
            everyone.fit(X, y)
    if fail == "raise":
        with pytest.raises(MemoryError):
            DAUBSearchCV(learners, cv=2, first=20, error_score="raise", random_state=0).fit(X, y)


def test_an_interrupted_search_goes_on(table, tmp_path):
    X, y = table
    learners = [("a", Rule(0.6, "interrupt")), ("b", Rule(0.55, "interrupt"))]
    options = {"method": "daub", "cv": 2, "first": 20, "training_bound": False, "random_state": 0}
    Rule.calls = 10
    whole = DAUBSearchCV(learners, **options).fit(X, y)
    for path in (None, tmp_path / "kept.pickle"):
        Rule.calls = 0
        made = DAUBSearchCV(learners, checkpoint=path, **options)
        with pytest.raises(KeyboardInterrupt):
            made.fit(X, y)
        assert Rule.calls == 2
        before = len(made.trainings_.parts)
        if path is not None:
            made = DAUBSearchCV(learners, checkpoint=path, **options)
        made.fit(X, y)
        assert before >= 12 and not hasattr(made, "trainings_")
        assert made.result_.allocations == whole.result_.allocations
        assert made.cv_results_["mean_test_score"].tolist() == whole.cv_results_["mean_test_score"].tolist()
    other = DAUBSearchCV(learners[:1], checkpoint=path, **options)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="is of another search.*neither used nor overwritten"):
        other.fit(X, y)
    assert path.read_bytes() == before
    path.write_bytes(before[:-50])
    with pytest.raises(ValueError, match="is damaged"):
        other.fit(X, y)


@few_or_many("changes", 50, 1500)
def test_checkpoints_are_checked_byte_by_byte(table, tmp_path, rng, changes):
    """Of 3000 files with one byte changed 517 used to be loaded, with other scores."""
    path = tmp_path / "kept"
    rules(checkpoint=path, scoring=["accuracy"], refit="accuracy", return_train_score=True).fit(*table)
    whole = path.read_bytes()
    kept = load(path)
    assert len(kept) > 20 and all(isinstance(one["test_scores"]["accuracy"], float) for one in kept.parts.values())
    assert {one.name for one in tmp_path.iterdir()} == {"kept"}            # nothing is left beside it
    places = rng.choice(len(whole), changes, replace=False)
    for place in [*range(150), *places]:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ int(rng.integers(1, 256))]) + whole[place + 1 :])
        with pytest.raises(ValueError, match="is damaged|holds no searches|of version|holds .*, not "):
            load(path)
    for cut in (0, 1, 80, 200, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(ValueError, match="is damaged|holds no searches"):
            rules(checkpoint=path).fit(*table)
    path.write_bytes(pickle.dumps((2, "key", [], {})))
    with pytest.raises(ValueError, match="holds no searches of this fastrace"):
        rules(checkpoint=path).fit(*table)
    path.write_bytes(whole)
    assert load(path).parts == kept.parts


def test_a_checkpoint_that_cannot_be_written_costs_nothing(table, tmp_path, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    wanted = rules().fit(*table)
    monkeypatch.setattr("fastrace._base._files.write", full)
    with pytest.warns(UserWarning, match="kept' cannot be written .*No space left.*the search goes on") as said:
        found = rules(checkpoint=tmp_path / "kept").fit(*table)
    assert len([one for one in said if "cannot be written" in str(one.message)]) == 1
    assert found.result_.allocations == wanted.result_.allocations


def test_failures_in_checkpoints_are_kept_as_such(table, tmp_path):
    X, y = table
    learners = [("good", Rule(0.6)), ("bad", Rule(0.9, "raise")), ("nan", Rule(0.9, "nan"))]
    path, results = tmp_path / "kept", []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            one = DAUBSearchCV(learners, method="daub", cv=2, first=20, random_state=None, checkpoint=path).fit(X, y)
            results.append((one.result_.dropped, one.result_.allocations, one.best_score_))
    assert results[0] == results[1] and "MemoryError" in results[0][0][1] and "nan" in results[0][0][2]


def test_data_of_every_kind(digits):
    X, y = digits[0][:500], digits[1][:500]
    words = np.array([f"d{k}" for k in y])
    wanted = search().fit(X, words)
    assert set(wanted.predict(X[:20])) <= set(words)
    grid = {"C": [0.01, 1.0]}
    dense = DAUBSearchCV(LogisticRegression(max_iter=20), grid, cv=2, first=40, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = dense.fit(X, y).result_.allocations
        assert clone(dense).fit(sparse.csr_matrix(X), y).result_.allocations == one
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=[f"p{k}" for k in range(64)])
    found = search().fit(frame, pandas.Series(words))
    assert found.result_.allocations == wanted.result_.allocations
    assert found.feature_names_in_.tolist() == list(frame.columns)
    polars = pytest.importorskip("polars")
    assert search().fit(polars.DataFrame(X), words).result_.allocations == wanted.result_.allocations


def test_memory_maps_are_cut_without_copies(tmp_path, digits):
    X, y = digits
    order = np.random.default_rng(0).permutation(y.size)
    np.save(tmp_path / "x.npy", X[order])
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    found = search(shuffle=False, training_bound=False).fit(mapped, y[order])
    assert found.best_params_ == {"choice": "one"}
    assert found.cv_results_["n_resources"][found.best_index_] == 1257


def test_weights_and_metadata(table):
    X, y = table
    found = rules().fit(X, y, sample_weight=np.ones(1000))
    assert found.best_estimator_.weighted_
    groups = np.arange(1000) // 10
    from sklearn.model_selection import GroupKFold

    found = rules(cv=GroupKFold(2)).fit(X, y, groups=groups)
    assert found.n_splits_ == 2
    import sklearn

    with sklearn.config_context(enable_metadata_routing=True):
        rule = Rule(0.5).set_fit_request(sample_weight=True).set_score_request(sample_weight=False)
        found = DAUBSearchCV(rule, {"final": [0.4, 0.6]}, cv=2, random_state=0).fit(X, y, sample_weight=np.ones(1000))
        assert found.best_estimator_.weighted_ and found.best_params_ == {"final": 0.6}


def test_many_metrics_and_refits(digits):
    X, y = digits[0][:500], digits[1][:500]
    found = search(scoring=["accuracy", "f1_macro"], refit="f1_macro", return_train_score=True).fit(X, y)
    assert found.best_score_ == found.cv_results_["mean_test_f1_macro"][found.best_index_] and found.multimetric_
    assert "mean_train_accuracy" in found.cv_results_ and set(found.scorer_) == {"accuracy", "f1_macro"}
    plain = search(refit=False).fit(X, y)
    assert not hasattr(plain, "best_estimator_") and plain.best_params_ == {"choice": "one"}
    last = search(refit=lambda results: len(results["params"]) - 1).fit(X, y)
    assert last.best_index_ == len(last.cv_results_["params"]) - 1 and not hasattr(last, "best_score_")
    loss = search(scoring="neg_log_loss").fit(X, y)
    assert loss.best_score_ < 0
    own = search(scoring=lambda model, X, y: {"a": model.score(X, y), "b": 0.0}, refit="a").fit(X, y)
    assert own.multimetric_ and own.best_params_ == {"choice": "one"}


def test_grids_distributions_and_regression():
    X, y = make_classification(600, 8, random_state=0)
    from scipy.stats import randint

    drawn = DAUBSearchCV(DecisionTreeClassifier(random_state=0), {"max_depth": randint(1, 9)}, n_candidates=4, cv=2,
                         random_state=3)
    assert len(drawn.fit(X, y).candidates_) == 4
    assert clone(drawn).fit(X, y).candidates_ == drawn.candidates_
    nested = DAUBSearchCV(LEARNERS[2:], [{"choice": ["tree"], "tree__max_depth": [1, 3]}, {"choice": ["one"]}], cv=2,
                          random_state=0).fit(X, y)
    assert len(nested.candidates_) == 3
    tree = DAUBSearchCV(DecisionTreeRegressor(random_state=0), {"max_depth": [1, 6]}, cv=0.25, random_state=0)
    assert tree.fit(X, 3.0 * X[:, 0]).best_params_ == {"max_depth": 6}


def test_partial_fit_reads_only_new_rows(digits):
    X, y = digits
    seen = []

    class Counted(SGDClassifier):
        def partial_fit(self, X, y, classes=None, sample_weight=None):
            seen.append(X.shape[0])
            return super().partial_fit(X, y, classes=classes, sample_weight=sample_weight)

    made = search([("sgd", Counted(random_state=0)), ("bayes", GaussianNB())], warm_start=True)
    found = made.fit(X, y)
    reached = found.result_.reached[0]
    assert sum(seen) == reached and len(seen) == sum(i == 0 for i, _ in found.result_.allocations)


def test_nested_rows_are_stratified(rng):
    classes = np.sort(rng.choice(4, 2000, p=[0.7, 0.2, 0.09, 0.01]))
    train = np.flatnonzero(rng.random(2000) < 0.8)
    order = _nested(train, classes, np.random.RandomState(0))
    assert sorted(order) == train.tolist()
    assert set(classes[order[:4]]) == {0, 1, 2, 3}
    share = np.bincount(classes[train]) / train.size
    for n in (50, 200, 1000):
        counts = np.bincount(classes[order[:n]], minlength=4)
        assert np.abs(counts - n * share).max() <= 3


def test_budgets_and_bad_options(table, tmp_path):
    X, y = table
    cheap = rules(budget=800).fit(X, y)
    assert cheap.result_.stopped_by == "budget" and cheap.rows_.sum() <= 800
    for options, wrong in (
        ({"time_limit": 0}, "time_limit is 0"), ({"cv": 1.5}, "cv"),
        ({"first": 0}, "first is 0"), ({"first": "all"}, "first is 'all'; a number of rows"),
        ({"method": "asha"}, "method is 'asha'"), ({"ratio": 1.0}, "ratio is 1.0"), ({"budget": -1}, "budget is -1"),
    ):
        with pytest.raises(ValueError, match=wrong):
            rules(**options).fit(X, y)
    with pytest.raises(ValueError, match="param_grid is None"):
        DAUBSearchCV(GaussianNB()).fit(X, y)
    with pytest.raises(ValueError, match="different ones"):
        DAUBSearchCV([("a", GaussianNB()), ("a", GaussianNB())]).fit(X, y)
    for learners, wrong in (
        ([GaussianNB()], "list of"), ([("choice", GaussianNB())], "the name 'choice'"),
        ([("a__b", GaussianNB())], "the name 'a__b'"), ([("a", GaussianNB)], "under the name 'a'"),
        ([("a", None)], "under the name 'a'"), ([], "list of"),
    ):
        with pytest.raises(ValueError, match=wrong):
            DAUBSearchCV(learners).fit(X, y)
    with pytest.raises(ValueError, match="budget is 3; the first training takes 20 rows"):
        rules(budget=3).fit(X, y)
    with pytest.raises(ValueError, match="a folder; the path of a file is needed"):
        rules(checkpoint=tmp_path).fit(X, y)
    with pytest.raises(ValueError, match="its folder does not exist"):
        rules(checkpoint=tmp_path / "none" / "kept").fit(X, y)
    rare = np.where(np.arange(1000) == 3, 7, y)
    assert rules(cv=0.3).fit(X, rare).n_splits_ == 1       # one row of a class cannot be on both sides
    from sklearn.model_selection import ShuffleSplit

    with pytest.raises(ValueError, match="other splits each time"):
        rules(cv=ShuffleSplit(3), checkpoint=tmp_path / "kept").fit(X, y)
    assert rules(cv=ShuffleSplit(3)).fit(X, y).n_splits_ == 3       # drawn once, and the same for all
    twice = DAUBSearchCV(GaussianNB(), [{"var_smoothing": [1e-9]}, {"var_smoothing": [1e-9]}], first=20).fit(X, y)
    assert twice.result_.names == ("var_smoothing=1e-09 (0)", "var_smoothing=1e-09 (1)")
    alone = DAUBSearchCV(GaussianNB(), {"var_smoothing": [1e-9]}).fit(X, y)
    assert alone.best_index_ == 0 and alone.result_.allocations == [(0, 800)]


@pytest.mark.parametrize(("count", "share"), [(2, 4), (4, 4), (5, 16), (16, 16), (17, 64), (70, 64)])
def test_the_default_is_halving_by_projections(count, share):
    """The more candidates, the fewer rows to begin with: a round of a quarter of them each leaves one for all rows."""
    n_rows = 12_800
    X, y = np.zeros((2 * n_rows, 1), np.float32), np.arange(2 * n_rows) % 2
    found = DAUBSearchCV(Rule(), {"final": list(0.5 + 0.001 * np.arange(count))}, cv=0.5, random_state=0).fit(X, y)
    sizes = sorted({n for _, n in found.result_.allocations})
    assert sizes == [n_rows // 4**k for k in range(4) if 4**k <= share][::-1]
    assert "DAUBHalving" in found.result_.method and found.best_params_ == {"final": 0.5 + 0.001 * (count - 1)}
    assert found.rows_.sum() <= 0.75 * count * n_rows


@pytest.mark.parametrize("method", ["daub-halving", "daub", "halving"])
def test_never_more_rows_than_a_full_search(method):
    """Neighbours about as good as each other made DAUB climb with all of them: 184 % of training all in full."""
    X, y = make_classification(3000, 6, n_informative=4, flip_y=0.2, random_state=0)
    near = [(f"near{k}", KNeighborsClassifier(k)) for k in (7, 9, 11, 13)]
    found = DAUBSearchCV(near, method=method, cv=0.3, first=50, random_state=0, refit=False).fit(X, y)
    assert found.result_.fraction <= 1.0 and found.result_.reached.max() == 2100
    twice = DAUBSearchCV(near[:2], method=method, cv=0.3, first=1500, ratio=1.1, random_state=0).fit(X, y)
    assert twice.result_.allocations == [(0, 2100), (1, 2100)]
    assert "trained in full at once" in str(twice.result_)


@pytest.mark.parametrize("method", ["daub-halving", "daub", "halving"])
def test_a_learner_that_needs_more_rows_is_tried_on_them(method):
    X, y = make_classification(3000, 6, n_informative=4, class_sep=0.5, flip_y=0.3, random_state=1)
    learners = [("dummy", DummyClassifier()), ("one", KNeighborsClassifier(1)), ("many", KNeighborsClassifier(60)),
                ("too many", KNeighborsClassifier(2500))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = DAUBSearchCV(learners, method=method, cv=0.3, first=50, random_state=0).fit(X, y)
    assert found.best_params_ == {"choice": "many"} and list(found.result_.dropped) == [3]
    many = found.cv_results_["candidate"] == 2
    sizes, scores = found.cv_results_["n_resources"][many], found.cv_results_["mean_test_score"][many]
    assert sizes[0] == 50 and (np.isnan(scores) == (sizes < 60)).all()
    assert "Expected n_neighbors" in found.result_.dropped[3] or "no rows are left" in found.result_.dropped[3]
    assert found.result_.fraction <= 1.0 and found.cv_results_["rank_test_score"][found.best_index_] == 1
    assert found.rows_[2] == sizes[sizes >= 60].sum()


def test_what_more_rows_cannot_mend_is_dropped_at_once(table):
    X, y = table
    learners = [("good", Rule(0.6)), ("bad", Rule(0.9, "raise")), ("fair", Rule(0.5))]
    with pytest.warns(UserWarning, match="candidate bad was dropped on 125 of 500 rows: MemoryError"), \
            warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*fits failed")
        found = DAUBSearchCV(learners, cv=2, random_state=0).fit(X, y)
    assert sum(i == 1 for i, _ in found.result_.allocations) == 1 and found.best_params_ == {"choice": "good"}


def test_a_budget_that_ends_after_a_failure_reports_the_last_score(table):
    """The best so far failed on its largest size, and that training has no score."""
    X, y = table

    class Odd(Rule):
        def score(self, X, y, sample_weight=None):
            if self.n_ > 100 and self.final > 0.5:
                raise ValueError("an odd number")
            return super().score(X, y)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = DAUBSearchCV(Odd(), {"final": [0.4, 0.9]}, method="daub", first=20, training_bound=False, cv=2,
                             budget=400, random_state=0).fit(X, y)
    assert found.best_params_ == {"final": 0.9} and np.isfinite(found.best_score_)


@pytest.mark.long
def test_the_work_of_a_search_does_not_grow_with_its_rounds(monkeypatch):
    """Lines run for each training by the search itself, after 100, 1000 and 10 000 of them."""
    found, count, lines = [], 0, 0
    before = sys.gettrace()
    out = {"fit_error": None, "failure": None, "test_scores": 0.5, "train_scores": 0.5, "fit_time": 0.0,
           "score_time": 0.0, "n_test_samples": 1}

    def watch(frame, event, arg):
        nonlocal lines
        lines += event == "line"
        return watch

    def run(self, crew, batch):
        nonlocal count, lines
        count += 1
        for i, n in batch:
            self.parts[i, n, 0] = {**out, "test_scores": 0.5 + 1e-9 * (i * 7919 % 4000), "train_scores": 1.0}
        if count in (100, 1000, 10_000):
            lines = 0
            sys.settrace(watch)
            sys._getframe(1).f_trace = watch
        if count in (200, 1100, 10_100):
            sys.settrace(before)
            sys._getframe(1).f_trace = None
            found.append(lines / 100)

    monkeypatch.setattr("fastrace.model_selection.searches._trainings.Trainings.run", run)
    X, y = np.zeros((2000, 1)), np.arange(2000) % 2
    many = DAUBSearchCV(Rule(), {"final": list(np.linspace(0.0, 1.0, 3500))}, method="daub", first=50, ratio=1.01,
                        cv=0.5, budget=51.0 * 10_150, refit=False, random_state=0)
    many.fit(X, y)
    assert len(found) == 3 and many.result_.stopped_by == "budget"
    assert found[2] < 1.5 * found[0] + 20.0, found


@pytest.mark.parametrize("method", ["daub", "halving", "daub-halving"])
def test_a_first_size_above_all_rows_is_in_the_result(method):
    search = DAUBSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, method=method, first=5000, cv=0.3, random_state=0)
    X, y = make_classification(100, random_state=0)
    assert search.fit(X, y).result_.warnings[0].startswith("first is 5000 and there are 70 rows")
