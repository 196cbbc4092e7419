"""`max_seconds`: a call that asks for rewards ends in time, says so, loses nothing, and goes on as if uninterrupted."""

import asyncio
import dataclasses
import itertools
import math
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin

import fastrace as fr
from fastrace._base import _clock
from fastrace.model_selection import DAUBHalving, DAUBSearchCV, RacingSearchCV, race_predictions
from fastrace.races import flight

ROWS = np.random.default_rng(0).random((4000, 3)) * 0.9 + [0.0, 0.04, 0.02]


class Clock:
    """A clock that moves on by a second for each reward that is asked for."""

    def __init__(self, monkeypatch):
        self.now, self.asked = 0.0, []
        monkeypatch.setattr(_clock, "time", SimpleNamespace(monotonic=lambda: self.now))

    def rows(self, arms, rows):
        self.now += len(arms) * len(rows)
        self.asked += [(int(arm), int(row)) for row in rows for arm in arms]
        return ROWS[np.ix_(np.asarray(rows) % len(ROWS), arms)]

    def pulls(self, arms, counts):
        self.now += counts.sum()
        drawn = [ROWS[[sum(a == arm for a, _ in self.asked) + k for k in range(count)], arm]
                 for arm, count in zip(arms, counts, strict=True)]
        self.asked += [(int(arm), 0) for arm, count in zip(arms, counts, strict=True) for _ in range(count)]
        return drawn

    def values(self, count):
        self.now += count
        self.asked += [(0, len(self.asked) + k) for k in range(count)]
        return ROWS[[row for _, row in self.asked[-count:]], 0]


def finite():
    return fr.FiniteRace(3, len(ROWS), support=(0, 1), first_look=20, rng=1)


# A race or rule, what it is run on, and the seconds of its calls.
RUNS = {
    "FiniteRace": (finite, "rows", 300),
    "BettingRace": (lambda: fr.BettingRace(3, support=(0, 1), epsilon=0.02), "rows", 300),
    "BernsteinRace": (lambda: fr.BernsteinRace(3, 3000, support=(0, 1)), "rows", 300),
    "LUCB": (lambda: fr.LUCB(3, 1, 0.02), "pulls", 300),
    "Direct": (lambda: fr.baselines.Direct(3, 1, 0.1, 0.1), "pulls", 300),
}


def as_known(result):
    return {name: np.asarray(getattr(result, name)).tolist() for name in ("best", "mean", "pulls", "lower", "upper")
            } | {"stopped_by": result.stopped_by, "error_bound": getattr(result, "error_bound", 0.0)}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_ends_in_time_and_goes_on_as_if_nothing_had_been(name, monkeypatch):
    make, kind, seconds = RUNS[name]
    clock = Clock(monkeypatch)
    race = make()
    result, calls = race.run(getattr(clock, kind), max_seconds=seconds), 1
    assert result.stopped_by == "max_seconds" and "max_seconds was reached" in result.warnings[0]
    assert seconds <= clock.now and race.result().stopped_by == "" and not race.done
    if name != "Direct":                # which asks for all that it needs in three calls
        assert clock.now <= 1.3 * seconds
    while not race.done:
        result, calls = race.run(getattr(clock, kind), max_seconds=seconds), calls + 1
    assert calls > 2
    asked, clock.asked, clock.now = clock.asked, [], 0.0
    whole = make().run(getattr(clock, kind))
    assert as_known(result) == as_known(whole) and result.stopped_by
    if kind == "rows" and name == "FiniteRace":
        assert len(set(asked)) == len(asked) and set(asked) == set(clock.asked)


class EnoughError(Exception):
    """What a function of the user raises when it has had enough."""


@pytest.mark.parametrize("name", [*RUNS, "HoeffdingRace", "LUCB, paired", "LUCB by intervals", "Adapt"])
def test_a_function_that_asks_to_stop_leaves_an_honest_answer_and_a_run_that_goes_on(name, monkeypatch):
    """An error of one's own is how a function stops a run; it may do so before any call."""
    make, kind, _ = (RUNS | {
        "HoeffdingRace": (lambda: fr.HoeffdingRace(3, 3000, support=(0, 1)), "rows", 0),
        "LUCB, paired": (lambda: fr.LUCB(3, 1, 0.02, paired=True), "pulls", 0),
        "LUCB by intervals": (lambda: fr.LUCB(3, 1, 0.02, rule="intervals"), "pulls", 0),
        "Adapt": (lambda: fr.Adapt(3, 1, 0.1, rng=1), "pulls", 0),
    })[name]
    clock = Clock(monkeypatch)
    race, calls, ends = make(), 0, 0

    def until_it_has_had_enough(arms, amounts):
        nonlocal calls, ends
        calls += 1
        if calls in (1, 2, 5, 6, 30):
            ends += 1
            raise EnoughError
        return getattr(clock, kind)(arms, amounts)

    while not race.done:
        try:
            race.run(until_it_has_had_enough)
        except EnoughError:
            known = race.result()
            assert known.stopped_by == "" and not race.done
            assert known.pulls.sum() + getattr(known, "n_unused", 0) == clock.now == len(clock.asked)
            assert not getattr(known, "error_bound", 1.0) <= 0.05          # nan: not known yet
            if known.lower is not None:
                assert (known.lower <= ROWS.mean(0)).all() and (ROWS.mean(0) <= known.upper).all()
    assert ends >= 2
    found = as_known(race.result())
    clock.asked, clock.now = [], 0.0
    assert found == as_known(make().run(getattr(clock, kind)))


def test_a_race_in_one_call_ends_at_a_look(monkeypatch):
    clock = Clock(monkeypatch)
    known = {"n_arms": 3, "n_rows": len(ROWS), "support": (0, 1), "first_look": 20, "rng": 1}
    result = fr.race(clock.rows, max_seconds=300, **known)
    assert result.stopped_by == "max_seconds" and result.n_looks >= 1 and result.n_read <= len(clock.asked)
    assert (result.lower < ROWS.mean(0)).all() and (ROWS.mean(0) < result.upper).all() and result.error_bound > 0.05
    whole = fr.race(clock.rows, max_seconds=1e9, **known)
    assert as_known(whole) == as_known(fr.race(clock.rows, **known)) and whole.race is None is whole.source


def gone_on(result, source, seconds):
    """The result after as many calls as it takes."""
    race, calls = result.race, 1
    while result.stopped_by == "max_seconds":
        result, calls = race.run(source, max_seconds=seconds), calls + 1
    assert calls > 2
    return result


@pytest.mark.parametrize("proxy", [None, ROWS.mean(1)])
@pytest.mark.parametrize("again", ["function", "source", "pickled"])
def test_the_race_of_one_call_goes_on_and_nothing_is_asked_twice(again, proxy, monkeypatch):
    clock = Clock(monkeypatch)
    known = {"n_arms": 3, "n_rows": len(ROWS), "support": (0, 1), "first_look": 20, "rng": 1, "cost": 2.0,
             "proxy": proxy, "names": ["a", "b", "c"]}
    result = fr.race(clock.rows, max_seconds=300, **known)
    assert result.cost == 2.0 * len(clock.asked) >= 2.0 * result.n_read
    assert "result.race.run(result.source) goes on" in str(result)
    assert result == fr.race(clock.rows, max_seconds=300, **known) and clock.asked[: len(clock.asked) // 2] == (
        clock.asked[len(clock.asked) // 2 :])
    clock.asked = clock.asked[: len(clock.asked) // 2]
    if again == "pickled":
        result = pickle.loads(pickle.dumps(dataclasses.replace(result, source=None)))
        assert result.source is None and "result.race.run(...) or race_async" in str(result)
    whole = gone_on(result, result.source if again == "source" else clock.rows, 300)
    asked, clock.asked = clock.asked, []
    expected = fr.race(clock.rows, **known)
    assert whole == expected and len(set(asked)) == len(asked) and set(asked) == set(clock.asked)


def test_a_result_pickles_without_what_was_raced_on(monkeypatch):
    clock = Clock(monkeypatch)
    result = fr.race(lambda arms, rows: clock.rows(arms, rows), n_arms=3, n_rows=len(ROWS), support=(0, 1),
                     first_look=20, max_seconds=300, rng=1)
    copied = pickle.loads(pickle.dumps(result))
    assert result.source is not None is copied.source and copied == result and copied.to_dict() == result.to_dict()
    assert not {"race", "source"} & set(result.to_dict())
    assert as_known(copied.race.run(clock.rows)) == as_known(result.race.run(result.source))


def test_a_race_on_a_table_goes_on(monkeypatch):
    ticks = iter(range(10**9))
    monkeypatch.setattr(_clock, "time", SimpleNamespace(monotonic=lambda: float(next(ticks))))
    table = {name: ROWS[:, k].repeat(500) for k, name in enumerate("abc")}
    result = fr.race(table, first_look=50, max_seconds=1.5, rng=1, support=(0, 1))
    assert result.stopped_by == "max_seconds"
    whole = gone_on(result, result.source, 2.5)
    assert as_known(whole) == as_known(fr.race(table, first_look=50, rng=1, support=(0, 1)))
    assert whole.names == ("a", "b", "c")


def test_before_its_first_look_a_race_says_that_it_knows_nothing(monkeypatch):
    clock = Clock(monkeypatch)
    result = fr.race(clock.rows, n_arms=3, n_rows=40_000, support=(0, 1), first_look=30_000,
                     max_seconds=1.0, rng=1)
    assert result.stopped_by == "max_seconds" and result.n_looks == 0 and result.error_bound == 1.0
    assert "before the first look, which takes 30000 rows of each arm" in result.warnings[0]


def test_a_race_whose_last_answer_came_too_late_is_over_all_the_same(monkeypatch):
    clock = Clock(monkeypatch)
    apart = np.array([[0.0, 0.5, 1.0]])
    result = fr.race(lambda arms, rows: (clock.rows(arms, rows), np.repeat(apart[:, arms], len(rows), 0))[1],
                     n_arms=3, n_rows=4000, support=(0, 1), max_seconds=0.5)
    assert result.stopped_by == "bound" and result.best == 2 and not result.warnings


def test_a_selection_in_one_call(monkeypatch):
    clock = Clock(monkeypatch)
    result = fr.select_best(clock.pulls, 3, epsilon=0.02, max_seconds=300)
    assert result.stopped_by == "max_seconds" and 300 <= result.n_read <= 400 and 0.05 < result.error_bound <= 1.0
    assert "result.race.run(...) goes on" in str(result) and pickle.loads(pickle.dumps(result)) == result
    whole, asked = gone_on(result, clock.pulls, 300), len(clock.asked)
    clock.asked = []
    expected = fr.select_best(clock.pulls, 3, epsilon=0.02)
    assert whole == expected and asked == len(clock.asked) and expected.race is None


def test_a_selection_that_spent_its_budget_goes_on(monkeypatch):
    clock = Clock(monkeypatch)
    known = {"epsilon": 0.02, "bound": "eb-mix"}         # a rule that asks for the same with and without a budget
    result = fr.select_best(clock.pulls, 3, **known, max_pulls=500)
    assert result.stopped_by == "max_pulls" and result.n_read == 500
    again = result.race.run(clock.pulls, max_pulls=800)
    assert again.n_read == 800 and again.race is None
    whole, asked = result.race.run(clock.pulls), len(clock.asked)
    clock.asked = []
    assert whole == fr.select_best(clock.pulls, 3, **known) and asked == len(clock.asked)


@pytest.mark.parametrize("proxy", [None, ROWS[:, 0] + np.random.default_rng(1).normal(0, 0.2, len(ROWS))])
def test_a_mean(proxy, monkeypatch):
    clock = Clock(monkeypatch)
    if proxy is None:
        result = fr.estimate_mean(clock.values, epsilon=0.03, batch=10, max_seconds=200)
    else:
        result = fr.estimate_mean(lambda rows: clock.rows([0], rows)[:, 0], epsilon=0.01, accuracy="absolute",
                                  proxy=np.clip(proxy, 0, 1), max_seconds=200, rng=1)
    assert result.stopped_by == "max_seconds" and not result.stopped and 200 <= result.n_samples <= 210
    assert result.interval[0] < ROWS[:, 0].mean() < result.interval[1]
    assert "max_seconds was reached: estimate is the mean so far" in result.warnings[0]
    assert "not stopped: out of time after 2" in str(result)


def test_an_array_that_is_read_in_time_has_its_answer():
    result = fr.estimate_mean(ROWS[:, 0], epsilon=0.05, max_seconds=1e6, rng=1)
    assert result.stopped and result.n_samples == fr.estimate_mean(ROWS[:, 0], epsilon=0.05, rng=1).n_samples


def test_a_race_of_predictions_ends_at_a_look(monkeypatch):
    clock = Clock(monkeypatch)
    y = np.zeros(len(ROWS), int)

    def predictions(arms, rows):
        return (clock.rows(arms, rows) > 0.5).astype(int)

    known = {"n_candidates": 3, "first_look": 20, "rng": 1}
    result = race_predictions(y, predictions, max_seconds=300, **known)
    right = (ROWS <= 0.5).mean(0)
    assert result.stopped_by == "max_seconds" and result.n_looks >= 1 and 300 <= clock.now <= 2000
    assert (result.lower < right).all() and (right < result.upper).all() and result.error_bound > 0.05
    whole = race_predictions(y, predictions, max_seconds=1e9, **known)
    assert as_known(whole) == as_known(race_predictions(y, predictions, **known))


@pytest.mark.parametrize("missing", ["raise", "worst"])
def test_a_race_of_predictions_goes_on_with_all_that_it_has_to_say(missing, monkeypatch):
    clock = Clock(monkeypatch)
    y, weight = np.zeros(len(ROWS)), 1.0 + np.arange(len(ROWS)) % 2

    def predictions(arms, rows):
        found = (clock.rows(arms, rows) > 0.5).astype(float)
        found[:, np.asarray(arms) == 2] = 7.0
        return np.where((np.asarray(rows) % 5 == 0)[:, None], np.nan, found) if missing == "worst" else found

    known = {"n_candidates": 3, "first_look": 20, "names": ["a", "b", "c"], "rng": 1, "missing": missing,
             "sample_weight": weight}
    result = race_predictions(y, predictions, max_seconds=300, **known)
    assert result.stopped_by == "max_seconds" and "never occur" in " ".join(result.warnings)
    whole = gone_on(result, result.source, 300)
    asked, clock.asked = clock.asked, []
    expected = race_predictions(y, predictions, **known)
    assert whole == expected and len(set(asked)) == len(asked) and set(asked) == set(clock.asked)
    assert any("c" in said and "never occur" in said for said in whole.warnings)
    assert (whole.n_missing > 0) == (missing == "worst")


class Requests:
    """Answers to requests, each a second of a clock later; `fails` says of which requests, by their number."""

    def __init__(self, monkeypatch, fails=lambda count: False):
        self.now, self.asked, self.answered, self.fails = 0.0, [], [], fails
        monkeypatch.setattr(_clock, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(flight, "FIRST_WAIT", 0.0)

    async def __call__(self, arm, row):
        self.asked.append((arm, row))
        count = len(self.asked)
        await asyncio.sleep(0)
        self.now += 1.0
        if self.fails(count):
            raise OSError("no route")
        self.answered.append((arm, row))
        return ROWS[row % len(ROWS), arm]


def by_requests(requests, **options):
    return asyncio.run(fr.race_async(requests, **{"concurrency": 16, **options}))


SIZES = {"n_arms": 3, "n_rows": len(ROWS), "support": (0, 1), "first_look": 20, "rng": 1}


@pytest.mark.parametrize("threads", [False, True])
@pytest.mark.parametrize("by", ["race", "journal"])
def test_a_race_of_requests_ends_in_time_keeps_what_is_under_way_and_goes_on(by, threads, tmp_path, monkeypatch):
    requests = Requests(monkeypatch)

    def plain(arm, row):
        requests.asked.append((arm, row))
        requests.now += 1.0
        return float(ROWS[row, arm])

    evaluate = plain if threads else requests
    kept = {"journal": tmp_path / "race.jsonl"} if by == "journal" else {}
    result, calls = by_requests(evaluate, max_seconds=300, cost=1.0, **SIZES, **kept), 1
    assert result.stopped_by == "max_seconds" and 300 <= requests.now <= 300 + 16
    assert len(requests.asked) == requests.now == result.cost       # all that were sent are answered, and paid
    assert result.n_looks >= 1 and "max_seconds was reached" in result.warnings[0] and "race=result.race" in str(result)
    race = result.race
    assert race.pending[0].size == 0 and not race.done
    while result.stopped_by == "max_seconds":
        known = {"race": race} if by == "race" else {"cost": 1.0, **SIZES, **kept}
        result, calls = by_requests(evaluate, max_seconds=300, **known), calls + 1
    assert calls > 2 and len(set(requests.asked)) == len(requests.asked) and result.race is None
    whole = fr.race(ROWS, support=(0, 1), first_look=20, rng=1, cost=1.0)
    assert as_known(result) == as_known(whole)
    assert 0 <= result.cost - len(requests.asked) <= 16 * threads   # at the end some wait for a thread


@pytest.mark.parametrize("make", [
    lambda: fr.LUCB(3, 1, 0.02), lambda: fr.BettingRace(3, support=(0, 1), epsilon=0.02)])
def test_rules_by_requests_end_in_time_and_go_on(make, monkeypatch):
    requests, rule = Requests(monkeypatch), make()
    result = by_requests(requests, race=rule, max_seconds=300)
    assert result.stopped_by == "max_seconds" and 300 <= requests.now <= 300 + 16 and not rule.done
    again = by_requests(requests, race=rule)
    assert len(set(requests.asked)) == len(requests.asked) and rule.done
    assert as_known(again) == as_known(by_requests(Requests(monkeypatch), race=make()))


def test_requests_that_fail_when_time_is_over_are_asked_again_by_the_next_call(monkeypatch):
    requests = Requests(monkeypatch, lambda count: 290 < count <= 320)
    result = by_requests(requests, max_seconds=300, missing="worst", retries=50, **SIZES)
    sent_again = [said for said in result.warnings if "could not be sent again before max_seconds" in said]
    assert len(sent_again) == 1 and "OSError: no route" in sent_again[0] and result.stopped_by == "max_seconds"
    assert result.n_missing == 0 and result.race.pending[0].size == int(sent_again[0].split()[0]) > 0
    whole = by_requests(requests, race=result.race)
    assert len(set(requests.answered)) == len(requests.answered) and whole.n_missing == 0
    assert as_known(whole) == as_known(fr.race(ROWS, support=(0, 1), first_look=20, rng=1, cost=1.0))


def test_requests_that_wait_for_one_that_was_given_up_wait_until_the_time_is_over():
    """The retry would come too late. The others have asked as far ahead as they may, and no look comes to wake them."""
    failed = []

    async def evaluate(arm, row):
        await asyncio.sleep(0)
        if not failed:
            failed.append((arm, row))
            raise OSError("no route")
        return ROWS[row, arm]

    async def race():
        return await asyncio.wait_for(fr.race_async(evaluate, max_seconds=0.4, concurrency=4, **SIZES), 60.0)

    result = asyncio.run(race())
    assert result.stopped_by == "max_seconds" and result.race.pending[0].size == 1
    assert any("1 request failed and could not be sent again before max_seconds" in said for said in result.warnings)
    whole = asyncio.run(fr.race_async(evaluate, race=result.race))
    assert as_known(whole) == as_known(fr.race(ROWS, support=(0, 1), first_look=20, rng=1, cost=1.0))


def test_so_little_time_that_nothing_is_asked(monkeypatch):
    requests = Requests(monkeypatch)
    ticks = iter(range(1000))
    monkeypatch.setattr(_clock, "time", SimpleNamespace(monotonic=lambda: float(next(ticks))))
    result = by_requests(requests, max_seconds=1e-9, **SIZES)
    assert result.stopped_by == "max_seconds" and result.n_looks == 0 and not requests.asked


class Slow(ClassifierMixin, BaseEstimator):
    """Predictions of a table, a second each."""

    def __init__(self, arm=0, clock=None):
        self.arm, self.clock = arm, clock

    def fit(self, X, y):
        self.classes_ = np.array([0, 1])
        return self

    def predict(self, X):
        return (self.clock.rows([self.arm], X[:, 0].astype(int))[:, 0] > 0.5).astype(int)


class Ticking(Clock):
    """A clock that copies of an estimator share, and that moves on when it is looked at, too."""

    def __init__(self, monkeypatch):
        super().__init__(monkeypatch)
        self.looks = itertools.count()
        monkeypatch.setattr(_clock, "time", SimpleNamespace(monotonic=lambda: self.now + 1e-6 * next(self.looks)))

    def __deepcopy__(self, memo):
        return self

    def __sklearn_clone__(self):
        return self

    def __getstate__(self):         # by which a checkpoint knows the estimator
        return {}


@pytest.mark.parametrize("seconds", [300, 1e-9, None])
def test_a_racing_search_ends_at_a_look(seconds, monkeypatch):
    clock = Ticking(monkeypatch)
    X, y = np.arange(len(ROWS))[:, None], (np.arange(len(ROWS)) == 0).astype(int)
    search = RacingSearchCV(Slow(clock=clock), {"arm": [0, 1, 2]}, first_look=20, cv=0.5, random_state=0, refit=False,
                            max_seconds=seconds)
    if seconds is None:
        assert search.fit(X, y).race_.stopped_by in ("bound", "exact")
        return
    with pytest.warns(UserWarning, match="max_seconds was reached"):
        search.fit(X, y)
    assert search.race_.stopped_by == "max_seconds" and search.race_.n_looks >= 1 and search.race_.error_bound > 0.05
    assert clock.now == 60 if seconds < 1 else 300 <= clock.now < 600
    assert search.best_index_ == search.race_.best and search.race_.active.size > 1


def test_trainings_end_in_time_and_go_on(monkeypatch):
    clock = Clock(monkeypatch)

    def train(learner, n):
        clock.now += n
        if learner == 0 and n == 100:           # before anything is known, time does not end it
            raise ValueError("too few rows")
        return None, 0.5 + 0.1 * learner - 1.0 / n

    def make():
        return DAUBHalving(4, 6400, sizes=[100, 400, 1600, 6400])

    method = make()
    first = method.run(train, max_seconds=1.0)
    assert first.stopped_by == "max_seconds" and first.best == 1 and clock.now == 200 and not method.done
    assert first.warnings[-1] == "max_seconds was reached: best is the best of the trainings so far"
    second = method.run(train, max_seconds=150)
    assert second.stopped_by == "max_seconds" and second.best == 3 and clock.now == 400
    assert method.result().stopped_by == "" and not method.result().warnings
    last, whole = method.run(train), make().run(train)
    assert (last.best, last.history, last.stopped_by) == (whole.best, whole.history, whole.stopped_by)


def test_a_search_by_learning_curves_ends_in_time(monkeypatch):
    clock = Ticking(monkeypatch)
    X, y = np.arange(len(ROWS))[:, None], (np.arange(len(ROWS)) % 2).astype(int)
    search = DAUBSearchCV(Slow(clock=clock), {"arm": [0, 1, 2]}, cv=0.5, random_state=0, refit=False, max_seconds=3000)
    search.fit(X, y)
    assert search.result_.stopped_by == "max_seconds" and len(search.result_.history) == 2 and clock.now == 4000
    assert search.best_index_ in (0, 1) and "max_seconds was reached" in search.result_.warnings[-1]


def test_a_search_uses_all_trainings_that_it_has_whatever_the_time(monkeypatch, tmp_path):
    clock = Ticking(monkeypatch)
    X, y = np.arange(len(ROWS))[:, None], (np.arange(len(ROWS)) % 2).astype(int)

    def search(seconds):
        found = DAUBSearchCV(Slow(clock=clock), {"arm": [0, 1, 2]}, cv=0.5, random_state=0, refit=False,
                             max_seconds=seconds, checkpoint=tmp_path / "trainings")
        return found.fit(X, y).result_

    part = search(3000)
    again = search(1e-9)
    assert part.stopped_by == again.stopped_by == "max_seconds" and len(again.history) == len(part.history) > 1
    whole, now = search(None), clock.now
    kept = search(1e-9)
    assert clock.now == now and kept.stopped_by == "complete" and kept.history == whole.history


@pytest.mark.parametrize("seconds", [0, -1.0, math.nan, "1 min", [1.0], True, np.True_])
@pytest.mark.parametrize("call", [
    lambda seconds: fr.race(ROWS, max_seconds=seconds),
    lambda seconds: finite().run(ROWS, max_seconds=seconds),
    lambda seconds: fr.select_best(ROWS, max_seconds=seconds),
    lambda seconds: fr.LUCB(3, 1).run(ROWS, max_seconds=seconds),
    lambda seconds: asyncio.run(fr.race_async(lambda arm, row: 0.5, 3, 100, max_seconds=seconds)),
    lambda seconds: fr.BettingRace(3, support=(0, 1)).run(ROWS, max_seconds=seconds),
    lambda seconds: fr.estimate_mean(ROWS[:, 0], max_seconds=seconds),
    lambda seconds: race_predictions(ROWS[:, 0] > 0.5, ROWS > 0.5, max_seconds=seconds),
    lambda seconds: RacingSearchCV(Slow(), {"arm": [0]}, max_seconds=seconds).fit(ROWS, ROWS[:, 0] > 0.5),
    lambda seconds: DAUBSearchCV(Slow(), {"arm": [0]}, max_seconds=seconds).fit(ROWS, ROWS[:, 0] > 0.5),
    lambda seconds: DAUBHalving(2, 100).run(lambda learner, n: (None, 0.5), max_seconds=seconds),
])
def test_seconds_that_are_none_are_refused(call, seconds):
    with pytest.raises((ValueError, TypeError), match="max_seconds is "):
        call(seconds)


@pytest.mark.parametrize("name", RUNS)
def test_a_race_that_is_over_says_so_however_little_time_there_is(name, monkeypatch):
    make, kind, _ = RUNS[name]
    clock = Clock(monkeypatch)
    race = make()
    whole = race.run(getattr(clock, kind))
    ticks = iter(range(1000))
    monkeypatch.setattr(_clock, "time", SimpleNamespace(monotonic=lambda: float(next(ticks))))
    assert as_known(race.run(getattr(clock, kind), max_seconds=1e-9)) == as_known(whole)


@pytest.mark.parametrize("pickled", [False, True])
def test_a_race_of_predictions_goes_on_over_their_scores_alone(pickled):
    """Labels of 0 and 1 lie in the support of accuracies, and were read as such."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 20_000)
    right = rng.random((20_000, 3)) < [0.60, 0.62, 0.64]
    predictions = np.where(right, y[:, None], 1 - y[:, None])
    result = race_predictions(y, predictions, max_seconds=1e-9, rng=1)
    assert result.stopped_by == "max_seconds"
    going = pickle.loads(pickle.dumps(result.race)) if pickled else result.race
    for wrong in (predictions, lambda arms, rows: predictions[np.ix_(rows, arms)]):
        with pytest.raises(ValueError, match="over the scores of predictions.*result.source"):
            going.run(wrong)
    ended = going.run(result.source)
    assert ended.best == 2 and ended.n_read == race_predictions(y, predictions, rng=1).n_read
