"""A search that `max_seconds` ended goes on in another `fit`, and pays for nothing twice."""

import pickle
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.base import BaseEstimator, ClassifierMixin, clone

from fastrace._base import _clock
from fastrace.model_selection import DAUBSearchCV, RacingSearchCV
from fastrace.model_selection.searches._daub_search import METHODS


class Counted(ClassifierMixin, BaseEstimator):
    """Guesses the label, right more often for a larger `skill`; every training and prediction is counted."""

    trained: ClassVar[list] = []
    predicted: ClassVar[list] = []
    now = 0.0

    def __init__(self, skill=0, fails=False):
        self.skill, self.fails = skill, fails

    def fit(self, X, y):
        self.trained.append(self.skill)
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        type(self).now += 1.0
        rows = X[:, 0].astype(int)
        if self.fails and len(rows) > 25:
            raise ValueError("too many rows at once")
        self.predicted.extend((self.skill, row) for row in rows.tolist())
        luck = np.random.default_rng(5).random(len(LABELS))[rows]
        return np.where(luck < 0.5 + 0.08 * self.skill, LABELS[rows], 1 - LABELS[rows])


LABELS = np.random.default_rng(3).integers(0, 2, 3000)
COUNTED = np.arange(3000.0)[:, None]


@pytest.fixture
def counted(monkeypatch):
    """A clock that each call of a prediction moves on by a second, and counts from nothing."""
    monkeypatch.setattr(_clock, "time", SimpleNamespace(monotonic=lambda: Counted.now))
    monkeypatch.setattr(Counted, "now", 0.0)
    Counted.trained.clear()
    Counted.predicted.clear()


def timeless(search):
    """All that a search found, but for times."""
    table = {name: np.asarray(column).tolist() for name, column in search.cv_results_.items() if "time" not in name}
    return repr((table, search.race_.to_dict(), search.fraction_read_, search.best_index_, search.best_params_))


def slices(search, seconds, most=40):
    """Fits of so many seconds each, until the race is over."""
    search.set_params(max_seconds=seconds)
    for fits in range(1, most):
        search.fit(COUNTED, LABELS)
        if search.race_.stopped_by != "max_seconds":
            return fits
        assert len(search.trainings_) == len(Counted.trained)
    raise AssertionError("it does not end")


@pytest.mark.filterwarnings("ignore:the race is not as promised")
@pytest.mark.parametrize("seconds", [8.0, 1e-6])
@pytest.mark.parametrize("through", ["memory", "pickle"])
def test_a_search_out_of_time_goes_on_and_pays_for_nothing_twice(counted, seconds, through):
    def search():
        return RacingSearchCV(Counted(), {"skill": [0, 1, 2, 3]}, cv=2, first_look=50, random_state=1, refit=False)

    whole = search().fit(COUNTED, LABELS)
    trained, predicted = sorted(Counted.trained), sorted(Counted.predicted)
    Counted.trained.clear()
    Counted.predicted.clear()
    part = search().set_params(max_seconds=seconds).fit(COUNTED, LABELS)
    assert part.race_.stopped_by == "max_seconds" and len(part.trainings_) == 8
    if through == "pickle":
        part = pickle.loads(pickle.dumps(part))
    assert slices(part, seconds) > 1
    assert timeless(part) == timeless(whole) and not hasattr(part, "trainings_")
    assert sorted(Counted.trained) == trained and sorted(Counted.predicted) == predicted
    assert len(predicted) == len(set(predicted)) == round(whole.fraction_read_ * 4 * 3000)


@pytest.mark.filterwarnings("ignore")
def test_what_is_kept_serves_another_question_about_the_same_scores(counted):
    search = RacingSearchCV(Counted(), {"skill": [0, 1, 2, 3]}, cv=2, first_look=50, random_state=1, refit=False,
                            max_seconds=8.0).fit(COUNTED, LABELS)
    search.set_params(delta=1e-6, growth=2.0, max_seconds=None).fit(COUNTED, LABELS)
    assert len(Counted.predicted) == len(set(Counted.predicted)) == round(search.fraction_read_ * 4 * 3000)
    fresh = RacingSearchCV(Counted(), {"skill": [0, 1, 2, 3]}, cv=2, first_look=50, random_state=1, refit=False,
                           delta=1e-6, growth=2.0).fit(COUNTED, LABELS)
    assert search.race_ == fresh.race_
    again = RacingSearchCV(Counted(), {"skill": [0, 1, 2, 3]}, cv=2, first_look=50, random_state=1, refit=False,
                           max_seconds=8.0).fit(COUNTED, LABELS)
    again.set_params(scoring="neg_mean_squared_error", support=(-1, 0), max_seconds=None).fit(COUNTED, LABELS)
    other = RacingSearchCV(Counted(), {"skill": [0, 1, 2, 3]}, cv=2, first_look=50, random_state=1, refit=False,
                           scoring="neg_mean_squared_error", support=(-1, 0)).fit(COUNTED, LABELS)
    assert again.race_ == other.race_ and again.fraction_read_ == other.fraction_read_     # other scores: none is used


@pytest.mark.filterwarnings("ignore")
def test_other_data_and_a_search_that_is_over_begin_anew(counted):
    search = RacingSearchCV(Counted(), {"skill": [0, 1, 2, 3]}, cv=2, first_look=50, random_state=1, refit=False,
                            max_seconds=1e-6).fit(COUNTED, LABELS)
    kept = search.trainings_
    search.fit(COUNTED, 1 - LABELS)
    assert search.trainings_ is not kept and len(Counted.trained) == 16
    del search.trainings_
    search.set_params(max_seconds=None).fit(COUNTED, LABELS)
    assert len(Counted.trained) == 24 and not hasattr(search, "trainings_")
    assert not hasattr(clone(search), "trainings_")


@pytest.mark.filterwarnings("ignore")
def test_predictions_of_others_are_kept_where_one_fails(counted):
    grid = [{"skill": [1, 2, 3]}, {"skill": [0], "fails": [True]}]
    search = RacingSearchCV(Counted(), grid, cv=2, first_look=100, random_state=1, refit=False).fit(COUNTED, LABELS)
    assert search.race_.best == 2 and len(Counted.predicted) == len(set(Counted.predicted))
    failed = 4 * 3000 * search.fraction_read_ - len(Counted.predicted)
    assert 0 < failed < 200             # those of the calls that raised were asked for, too


@pytest.mark.parametrize("method", METHODS)
def test_a_search_by_learning_curves_goes_on(counted, method):
    def search(**more):
        return DAUBSearchCV(Counted(), {"skill": [0, 1, 2, 3]}, method=method, cv=2, random_state=1, refit=False,
                            **more)

    whole = search().fit(COUNTED, LABELS)
    trained = sorted(Counted.trained)
    Counted.trained.clear()
    part = search(max_seconds=3.0)
    fits = 0
    while fits == 0 or part.result_.stopped_by == "max_seconds":
        assert fits == 0 or len(part.trainings_) == len(Counted.trained)
        part.fit(COUNTED, LABELS)
        fits += 1
    assert 2 < fits < 60 and not hasattr(part, "trainings_") and sorted(Counted.trained) == trained
    assert repr(part.result_.history) == repr(whole.result_.history) and part.best_index_ == whole.best_index_
