"""FilterBoost: edges against the plain twin, promises, scikit-learn's contract, streams and memory maps."""

import functools
import math
import pickle
import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

import fastrace as fr
from fastrace.boosting import FilterBoostClassifier, Stump, _boost, _committee, _edges, filterboost
from fastrace.boosting._bins import Bins
from guarantee import assert_rate_at_most
from reference import boosting as twin

RULES = _edges.RULES


def noisy(rng, n=20_000, d=4):
    X = rng.random((n, d))
    y = (X[:, 0] + 0.3 * X[:, 1] > 0.7) ^ (rng.random(n) < 0.05)
    return X, y.astype(int)


@parametrize_with_checks(
    [
        FilterBoostClassifier(n_estimators=12),
        FilterBoostClassifier(DecisionTreeClassifier(max_depth=2), n_estimators=5, learner_samples=100),
    ]
)
def test_contract_of_scikit_learn(estimator, check):
    check(estimator)


# Edges.


@pytest.mark.parametrize("selection", ["first", "leader"])
@pytest.mark.parametrize("name", RULES)
def test_race_of_edges_equals_the_twin(name, selection, seed):
    rng = np.random.default_rng(seed)
    for tau, delta, chances in [
        (0.25, 0.1, [0.5, 0.9, 0.3]), (0.5, 0.01, [0.25, 0.6]), (0.9, 0.5, [0.52]), (0.3, 0.1, [1.0, 0.0]),
    ]:
        wins = (rng.random((6000, len(chances))) < chances).astype(np.int8)
        wanted = twin.race_of_edges(wins.tolist()[:1500], name, tau, delta, selection)
        rule = _edges.EdgeRule(len(chances), name, tau, -math.log(delta), selection=selection, growth=1.0)
        used = rule.update_many(wins[:700])
        used += rule.update_many(wins[700:1500]) if not rule.status else 0
        if wanted is None:
            assert (used, rule.status) == (1500, "")
        else:
            n, best, low = wanted
            assert (used, rule.status, rule.best) == (n, "fired", best)
            assert rule.lower[best] == pytest.approx(low, rel=1e-9)
            assert rule.update_many(wins[used:]) == 0


ON_STREAMS = {
    "nas": functools.partial(fr.NAS, two_sided=False),
    "geometric-nas": functools.partial(fr.GeometricNAS, two_sided=False),
    "ebstop": functools.partial(fr.EBStop, use_support=True),
    "ebgstop": functools.partial(fr.EBGStop, preset="plain", use_support=True),
    "ebgstop-star": functools.partial(fr.EBGStop, use_support=True),
    "target-eb": fr.TargetEBStop,
}


@pytest.mark.parametrize("name", RULES)
def test_an_edge_asked_after_every_example_is_the_rule_for_streams(name, seed):
    """They stop at the same example, with the same bits but where moments are added up in blocks."""
    rng = np.random.default_rng(seed)
    for tau, delta, chance in [(0.25, 0.1, 0.8), (0.5, 0.01, 0.35), (0.1, 0.05, 0.9), (0.9, 0.5, 0.55), (0.3, 0.1, 1)]:
        wins = (rng.random((20_000, 1)) < chance).astype(np.int8)
        edge = _edges.EdgeRule(1, name, tau, -math.log(delta), growth=1.0)
        rule = ON_STREAMS[name](tau, delta, (-0.5, 0.5))
        used = edge.update_many(wins)
        assert (used, edge.status) == (rule.update_many(wins[:, 0] - 0.5), "fired" if rule.stopped else "")
        low, high = rule.interval
        if not rule.stopped:
            continue
        if "nas" in name:
            assert edge.lower[0] == abs(rule.estimate) / (1 + tau)
        elif name == "target-eb":
            assert (edge.lower[0], edge.upper[0]) == (max(low, -high), max(-low, high))
        else:
            assert (edge.lower[0], edge.upper[0]) == pytest.approx((max(low, -high), max(-low, high)), rel=1e-12)


@pytest.mark.parametrize("name", RULES)
def test_rare_looks_stop_hardly_later(name, rng):
    wins = (rng.random((60_000, 5)) < [0.5, 0.55, 0.45, 0.6, 0.52]).astype(np.int8)
    used = [_edges.EdgeRule(5, name, 0.25, 5.0, growth=growth).update_many(wins) for growth in (1.0, 1.01)]
    assert used[0] <= used[1] <= 1.1 * used[0] + 1


@pytest.mark.parametrize("name", RULES)
def test_certified_edges_keep_the_promise(name, rng):
    """Too large an edge, or a wrong sign, at most as often as promised; the printed NAS has delta for either side."""
    trials, delta = 1500, 0.1
    chances = np.array([0.5, 0.58, 0.62, 0.42, 0.36])
    missed = 0
    for _ in range(trials):
        rule = _edges.EdgeRule(5, name, 0.5, -math.log(delta))
        while not rule.status:
            rule.update_many((rng.random((500, 5)) < chances).astype(np.int8))
        edge = chances[rule.best] - 0.5
        missed += rule.lower[rule.best] > abs(edge) + 1e-12 or (rule.edges[rule.best] > 0) != (edge > 0)
    assert_rate_at_most(missed, trials, delta)


def test_bets_take_far_fewer_examples_than_the_rules_of_the_paper(rng):
    wins = (rng.random((400_000, 20)) < np.linspace(0.45, 0.56, 20)).astype(np.int8)
    used = {name: _edges.EdgeRule(20, name, 0.25, 4.0).update_many(wins) for name in RULES}
    assert used["target-eb"] * 2 < used["ebgstop-star"] < used["nas"]


def test_an_edge_of_nothing_never_fires_and_a_floor_says_so():
    wins = np.tile(np.array([[0], [1]], dtype=np.int8), (200_000, 1))
    rule = _edges.EdgeRule(1, "target-eb", 0.25, 3.0)
    assert rule.update_many(wins) == len(wins) and rule.status == ""
    floor = _edges.EdgeRule(1, "nas", 0.25, 3.0, min_edge=0.02)
    assert floor.update_many(wins) < len(wins) and floor.status == "no edge"


def test_sorted_wins_are_found_inconsistent(rng):
    """The first hypothesis is right 600 times, then wrong; the second needs longer than that to be known to 0.3 %."""
    wins = np.column_stack([np.arange(6000) < 600, rng.random(6000) < 0.97]).astype(np.int8)
    for name in ("ebstop", "ebgstop", "ebgstop-star", "target-eb"):
        rule = _edges.EdgeRule(2, name, 0.003, 3.0, selection="leader")
        rule.update_many(wins)
        assert rule.status == "inconsistent", name


@pytest.mark.parametrize("name", RULES)
def test_fewest_examples(name):
    fewest = _edges.fewest_examples(7, name, 0.25, 4.0, 1.0)
    rule = _edges.EdgeRule(7, name, 0.25, 4.0, growth=1.0)
    wins = np.tile(np.array([1] + [0, 1, 0, 1, 0, 1], dtype=np.int8), (10_000, 1))
    assert rule.update_many(wins) == fewest


# The committee.


@pytest.mark.parametrize("name", ["nas", "ebgstop", "target-eb"])
def test_committee_equals_the_twin(name, seed):
    rng = np.random.default_rng(seed)
    n, d, rounds = 400, 3, 4
    codes = rng.integers(0, 4, (n, d)).astype(np.uint8)
    y = np.where((codes[:, 0] + codes[:, 1] > 3) ^ (rng.random(n) < 0.1), 1, -1).astype(np.int8)
    stumps = [(j, 0, v) for j in range(d) for v in range(3)] + [(j, v, v) for j in range(d) for v in (1, 2)]
    draws = rng.integers(0, n, 60_000)
    wanted, why = twin.committee(
        codes.tolist(), y.tolist(), stumps, draws.tolist(), np.random.default_rng(5).random(60_000).tolist(), name,
        0.5, 0.02, 0.1, rounds,
    )
    assert why == "n_estimators"
    stream = _boost.StumpStream(
        *np.array(stumps).T, np.arange(0, 4 * d + 1, 4),
        _edges.EdgeRule(len(stumps), name, 0.5, 0.0, growth=1.0), _boost.Filter(0.02, np.random.default_rng(5)),
    )
    place = 0
    for t, (best, sign, weight, passed, drawn) in enumerate(wanted, 1):
        stream.restart(math.log(3 * t * (t + 1) / 0.1))
        while not stream.status:
            place = stream.consume(codes, y, draws, place, 777)
            if t % 2:
                stream = pickle.loads(pickle.dumps(stream))
        rule = stream.rule
        assert (stream.status, rule.best, stream.filter.passed, stream.filter.drawn) == ("fired", best, passed, drawn)
        edge = rule.lower[best]
        assert 0.5 * math.log((0.5 + edge) / (0.5 - edge)) == pytest.approx(weight, rel=1e-9)
        stream.add(best, sign * weight)


def test_the_filter_gives_up_only_below_epsilon(rng):
    """A committee with error 0.04 under epsilon = 0.02: stopping for a small error is a mistake of at most delta."""
    trials, delta, gave_up = 2000, 0.3, 0
    share = -math.log(delta)
    for _ in range(trials):
        sieve = _boost.Filter(0.02, rng)
        sieve.restart(share)
        margins = np.where(rng.random(5000) < 0.04, -6.0, 6.0)
        sieve.accept(margins)
        gave_up += sieve.over
    assert_rate_at_most(gave_up, trials, delta)
    sieve = _boost.Filter(0.02, rng)
    sieve.restart(share)
    places, tried = sieve.accept(np.full(100_000, 60.0))
    assert sieve.over and len(places) == 0 and tried == twin.filter_limit(0.02, delta, 1)


def test_a_committee_without_errors_stops_itself(rng):
    X = rng.random((50_000, 3))
    y = X[:, 1] > 0.4
    for full_pass in ("auto", "never"):
        model = FilterBoostClassifier(epsilon=0.05, full_pass=full_pass, random_state=1).fit(X, y)
        assert model.stopped_by_ == "error" and model.n_iter_ < 20
        assert model.score(X, y) == 1.0


@pytest.mark.parametrize("rule", RULES)
def test_learns(rule, rng):
    X, y = noisy(rng)
    model = FilterBoostClassifier(n_estimators=10, rule=rule, n_bins=20, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.88
    assert (model.n_samples_ <= model.n_samples_read_).all() and model.stopped_by_ == "n_estimators"
    assert model.n_samples_read_.max() <= 2 * len(X)
    assert model.feature_importances_[:2].sum() > 0.9


def test_more_rows_cost_no_more_reading(rng):
    read = []
    for n in (100_000, 1_000_000):
        X, y = noisy(rng, n, 2)
        read.append(FilterBoostClassifier(n_estimators=5, random_state=0).fit(X, y).n_samples_read_.sum())
    assert read[1] < 2 * read[0] < 100_000


def test_other_weak_learners(rng):
    X, y = noisy(rng)
    for estimator in (LogisticRegression(), DecisionTreeClassifier(max_depth=3)):
        model = FilterBoostClassifier(estimator, n_estimators=4, random_state=0).fit(X, y)
        assert model.score(X, y) > 0.92
        assert type(model.estimators_[0]) is type(estimator)
    with pytest.raises(AttributeError, match="partial_fit"):
        model.partial_fit(X, y)
    with pytest.raises(AttributeError, match="stumps"):
        _ = model.feature_importances_


def test_missing_values_are_boosted_by_stumps_and_refused_for_other_learners(rng):
    X, y = noisy(rng, 2000)
    X[::7, 0] = np.nan
    model = FilterBoostClassifier(n_estimators=3, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.7 and np.isfinite(model.decision_function(np.full((1, 4), np.nan))).all()
    assert "nan" in FilterBoostClassifier.__doc__ and "nan" in FilterBoostClassifier.fit.__doc__
    with pytest.raises(ValueError, match="contains NaN"):
        FilterBoostClassifier(LogisticRegression()).fit(X, y)


def test_a_weak_learner_reads_no_further_than_its_rule_asks(rng):
    """What passes after the rule has fired belongs to the next round."""
    X, y = noisy(rng, 50_000)
    options = {"n_estimators": 3, "tau": 0.5, "full_pass": "never", "learner_samples": 100, "random_state": 0}
    model = FilterBoostClassifier(LogisticRegression(), **options).fit(X, y)
    rule, looks = _edges.EdgeRule(1, "target-eb", 0.5, 50.0, growth=1.01), {1}
    while rule.n < model.n_samples_.max():
        rule.update_many(np.zeros((rule.next_look - rule.n, 1), np.int8) + rule.n % 2)
        looks.add(rule.next_look)
    assert set(model.n_samples_ - 100) <= looks


def test_more_than_two_classes():
    X, y = load_iris(return_X_y=True)
    model = FilterBoostClassifier(n_estimators=10, n_bins=10, random_state=0)
    assert cross_val_score(model, X, y).mean() > 0.9
    model.fit(X, np.array(["a", "b", "c"])[y])
    assert model.n_samples_read_.shape == (3, model.n_iter_) and len(model.stopped_by_) == 3
    assert model.predict_proba(X).sum(axis=1) == pytest.approx(1.0)
    *_, last = model.staged_predict(X)
    assert (last == model.predict(X)).all()


def test_stages_end_in_the_answer(rng):
    X, y = noisy(rng, 5000)
    for estimator in (None, DecisionTreeClassifier(max_depth=1)):
        model = FilterBoostClassifier(estimator, n_estimators=6, random_state=3).fit(X, y)
        scores = list(model.staged_decision_function(X))
        assert len(scores) == model.n_iter_ == len(model.estimators_) == len(model.estimator_weights_)
        assert scores[-1] == pytest.approx(model.decision_function(X))
        chances = list(model.staged_predict_proba(X))[-1]
        assert chances == pytest.approx(model.predict_proba(X))
        assert chances[:, 1] == pytest.approx(1 / (1 + np.exp(-scores[-1])))
        assert model.predict_log_proba(X) == pytest.approx(np.log(chances))


def test_same_seed_same_answer_and_pickles(rng):
    X, y = noisy(rng)
    one, two = (FilterBoostClassifier(n_estimators=5, random_state=11).fit(X, y) for _ in range(2))
    assert one.estimators_ == two.estimators_ and (one.n_samples_read_ == two.n_samples_read_).all()
    again = pickle.loads(pickle.dumps(one))
    assert (again.decision_function(X) == one.decision_function(X)).all()
    by_generator = [FilterBoostClassifier(random_state=np.random.default_rng(4), n_estimators=3).fit(X, y)
                    for _ in range(2)]
    assert by_generator[0].estimators_ == by_generator[1].estimators_


def test_weights_are_rows(rng):
    X, y = noisy(rng, 3000, 3)
    weights = rng.integers(0, 4, len(y))
    repeated = np.repeat(np.arange(len(y)), weights)
    exact = {"n_estimators": 6, "rule": "nas", "random_state": 0}
    one = FilterBoostClassifier(**exact).fit(X[:200], y[:200], weights[:200])
    few = repeated[repeated < 200]
    two = FilterBoostClassifier(**exact).fit(X[few], y[few])
    assert one.decision_function(X) == pytest.approx(two.decision_function(X))
    heavy = FilterBoostClassifier(n_estimators=6, full_pass="never", random_state=0)
    heavy.fit(X, y, np.where(X[:, 0] < 0.5, 0.0, 1.0))
    assert all(stump.text.split()[0] != "0" for stump in heavy.estimators_)
    assert heavy.score(X[X[:, 0] > 0.5], y[X[:, 0] > 0.5]) > 0.85
    with pytest.raises(ValueError, match="non-zero"):
        heavy.fit(X, y, np.zeros(len(y)))


# Bins.


def test_bins_and_their_stumps():
    x = np.array([[0.0, 1.0, 7.0, 3.0], [10.0, 1.0, 5.0, 4.0], [4.0, 1.0, 9.0, 4.0], [np.nan, 1.0, 5.0, 3.0]])
    bins = Bins.learn(x, 5, "uniform", np.array([False, False, True, False]))
    assert bins.transform(x).tolist() == [[0, 0, 1, 0], [4, 0, 0, 1], [2, 0, 2, 1], [5, 0, 0, 0]]
    assert list(zip(*(column.tolist() for column in bins.stumps), strict=True)) == [
        (0, 0, 0), (0, 0, 1), (0, 0, 2), (0, 0, 3), (0, 1, 1), (0, 2, 2), (0, 3, 3), (0, 5, 5),
        (2, 0, 0), (2, 1, 1), (2, 2, 2), (3, 0, 0),
    ]
    far = np.array([[-np.inf, 2.0, 6.0, 99.0], [np.inf, 0.0, np.nan, -99.0]])
    assert bins.transform(far).tolist() == [[0, 0, 3, 1], [4, 0, 3, 0]]
    names = ["w", "x", "y", "z"]
    assert [str(bins.stump(k, 1, names)) for k in (0, 5, 7, 9, 11)] == [
        "+1 where w < 2", "+1 where 4 <= w < 6", "+1 where w is missing", "+1 where y = 7", "+1 where z < 4",
    ]
    for k in range(len(bins.stumps[0])):
        assert bins.number(bins.stump(k, -1, names)) == k


def test_binning_agrees_with_searchsorted(rng):
    for dtype, order in ((np.float64, "C"), (np.float32, "F"), (">f8", "C"), (np.int16, "C")):
        x = np.asarray(rng.normal(size=(500, 3)) * 9, dtype=dtype, order=order)
        for binning in ("uniform", "quantile"):
            bins = Bins.learn(x, 7, binning, np.zeros(3, dtype=bool))
            wanted = [np.searchsorted(bins.edges[j], x[:, j], side="right") for j in range(3)]
            assert (bins.transform(x) == np.column_stack(wanted)).all()
            if binning == "quantile" and x.dtype.kind == "f":
                assert np.bincount(bins.transform(x)[:, 0]).min() >= 70


def test_missing_values_and_categories(rng):
    n = 6000
    kind = rng.integers(0, 6, n)
    X = np.column_stack([np.where(rng.random(n) < 0.3, np.nan, rng.random(n)), kind])
    y = np.isnan(X[:, 0]) | (kind == 3)
    model = FilterBoostClassifier(n_estimators=20, categorical_features=[1], random_state=0).fit(X, y)
    assert model.score(X, y) > 0.99
    texts = {stump.text for stump in model.estimators_}
    assert "x0 is missing" in texts and "x1 = 3" in texts
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["amount", "kind"])
    named = FilterBoostClassifier(n_estimators=20, categorical_features=["kind"], random_state=0).fit(frame, y)
    assert (named.predict(frame) == model.predict(X)).all()
    assert "kind = 3" in {stump.text for stump in named.estimators_}
    with pytest.raises(ValueError, match="255 categories; at most 254"):
        FilterBoostClassifier(categorical_features=[0]).fit(np.arange(255.0)[:, None], np.arange(255) % 2)


def test_features_that_tell_nothing():
    y = np.arange(100) % 2
    for X in (np.ones((100, 2)), np.repeat(np.arange(50.0), 2)[:, None]):
        model = FilterBoostClassifier(random_state=0).fit(X, y)
        assert model.stopped_by_ == "no edge" and model.n_iter_ == 0
        assert (model.predict_proba(X) == 0.5).all()


# Memory maps and chunks.


def test_a_memory_map_is_read_where_rows_are_drawn(tmp_path, rng, monkeypatch):
    X, y = noisy(rng, 300_000, 3)
    mapped = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", X.dtype, X.shape)
    mapped[:] = X
    mapped.flush()
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    options = {"n_estimators": 5, "full_pass": "never", "random_state": 2}
    whole = FilterBoostClassifier(**options).fit(X, y)
    monkeypatch.setattr(filterboost, "SMALL_MAP", 0)
    read = []
    plain = _committee.Rows.read
    monkeypatch.setattr(_committee.Rows, "read", lambda self, rows: read.append(len(rows)) or plain(self, rows))
    monkeypatch.setattr(filterboost, "ROWS_FOR_BINS", 10**9)
    same_bins = FilterBoostClassifier(**options).fit(mapped, y)
    assert same_bins.estimators_ == whole.estimators_ and (same_bins.n_samples_read_ == whole.n_samples_read_).all()
    wanted = whole.n_samples_read_.sum()
    assert wanted <= sum(read) < wanted + _committee.ROWS_PER_BLOCK < 60_000
    assert (same_bins.predict(mapped) == whole.predict(X)).all()
    monkeypatch.setattr(filterboost, "ROWS_FOR_BINS", 1000)
    assert FilterBoostClassifier(**options).fit(mapped, y).score(X, y) > whole.score(X, y) - 0.05
    passed = FilterBoostClassifier(n_estimators=3, tau=0.02, random_state=2).fit(mapped, y)    # needs all rows
    assert passed.n_samples_read_.max() > len(X) and passed.score(X, y) > 0.8


def test_chunks_of_any_size_give_one_answer(rng):
    X, y = noisy(rng, 40_000)
    options = {"n_estimators": 4, "random_state": 5}
    one = FilterBoostClassifier(**options).partial_fit(X[:5000], y[:5000], classes=[0, 1])
    one.partial_fit(X[5000:], y[5000:])
    two = FilterBoostClassifier(**options).partial_fit(X[:5000], y[:5000], classes=[0, 1])
    for part in np.array_split(np.arange(5000, 40_000), 23):
        two = pickle.loads(pickle.dumps(two)).partial_fit(X[part], y[part])
    assert one.estimators_ == two.estimators_ and one.stopped_by_ == two.stopped_by_ == "n_estimators"
    assert (one.n_samples_read_ == two.n_samples_read_).all()
    assert one.score(X, y) > 0.85


def test_fit_chunks_reads_no_further_than_it_must(rng):
    X, y = noisy(rng, 40_000)
    read = []

    def chunks():
        for start in range(0, len(X), 2000):
            read.append(start)
            yield X[start:start + 2000], y[start:start + 2000]

    model = FilterBoostClassifier(n_estimators=2, random_state=5).fit_chunks(chunks)
    assert model.stopped_by_ == "n_estimators" and 0 < len(read) < 8
    short = FilterBoostClassifier(n_estimators=50, random_state=5).fit_chunks(chunks())
    assert short.stopped_by_ == "exhausted" and 0 < short.n_iter_ < 50 and len(read) >= 20
    longer = FilterBoostClassifier(n_estimators=50, random_state=5).fit_chunks(chunks, max_passes=3)
    assert longer.n_iter_ > short.n_iter_ and longer.estimators_[:short.n_iter_] == short.estimators_
    with pytest.raises(ValueError, match="can be read once"):
        FilterBoostClassifier().fit_chunks(chunks(), max_passes=2)
    with pytest.raises(ValueError, match="chunks is empty"):
        FilterBoostClassifier().fit_chunks([])


def test_partial_fit_goes_on_after_fit(rng):
    X, y = noisy(rng)
    model = FilterBoostClassifier(n_estimators=2, random_state=5).fit(X, y)
    before = list(model.estimators_)
    model.partial_fit(X, y)
    assert model.estimators_ == before
    model.set_params(n_estimators=4).partial_fit(X, y)
    assert model.estimators_[:2] == before and model.n_iter_ > 2


def test_sorted_chunks_are_found_out(rng):
    n = 12_000
    y = rng.random(n) < 0.5
    X = np.column_stack([y ^ (np.arange(n) >= 1200), y ^ (rng.random(n) < 0.03)]).astype(float)
    model = FilterBoostClassifier(tau=0.003, selection="leader", random_state=0)
    with pytest.warns(RuntimeWarning, match="not independent"):
        model.fit_chunks([(X, y)])
    assert model.stopped_by_ == "inconsistent"


def test_budget(rng):
    X, y = noisy(rng)
    for estimator in (None, DecisionTreeClassifier(max_depth=1)):
        model = FilterBoostClassifier(estimator, max_samples=9000, full_pass="never", random_state=0).fit(X, y)
        assert model.stopped_by_ == "max_samples" and 0 < model.n_samples_read_.sum() <= 9000
    model = FilterBoostClassifier(max_samples=9000, random_state=0).partial_fit(X, y, classes=[0, 1])
    assert model.stopped_by_ == "max_samples" and 0 < model.n_samples_read_.sum() <= 9000


def test_progress(rng, capsys):
    pytest.importorskip("rich")
    X, y = noisy(rng, 3000)
    FilterBoostClassifier(n_estimators=3, verbose=1, random_state=0).fit(X, y)
    assert "FilterBoost" in capsys.readouterr().err


# What is refused.


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"rule": "AA"}, ValueError, "never negative, and an edge has a sign"),
        ({"rule": "gbas"}, ValueError, "never negative"),
        ({"rule": "foo"}, ValueError, "one of nas"),
        ({"delta": 0.0}, ValueError, "delta is 0.0"),
        ({"tau": 1.0}, ValueError, "tau is 1.0"),
        ({"epsilon": float("nan")}, ValueError, "epsilon is nan"),
        ({"n_bins": 1}, ValueError, "n_bins is 1"),
        ({"n_bins": 300}, ValueError, "at most 254"),
        ({"n_estimators": 0}, ValueError, "n_estimators is 0"),
        ({"n_estimators": 2.0}, TypeError, "an integer is needed"),
        ({"binning": "x"}, ValueError, "binning is 'x'"),
        ({"selection": "x"}, ValueError, "selection is 'x'"),
        ({"full_pass": "x"}, ValueError, "full_pass is 'x'"),
        ({"min_edge": 0.5}, ValueError, "min_edge is 0.5"),
        ({"max_samples": 0}, ValueError, "max_samples is 0"),
        ({"categorical_features": [7]}, ValueError, "a mask of 2 features"),
        ({"rule": fr.TargetEBStop}, TypeError, "one of nas"),
    ],
)
def test_bad_parameters(options, error, message):
    X = np.random.default_rng(0).random((50, 2))
    with pytest.raises(error, match=message):
        FilterBoostClassifier(**options).fit(X, X[:, 0] > 0.5)


def test_bad_labels():
    X = np.random.default_rng(0).random((50, 2))
    with pytest.raises(ValueError, match="one class only"):
        FilterBoostClassifier().fit(X, np.zeros(50))
    with pytest.raises(ValueError, match="needs all classes"):
        FilterBoostClassifier().partial_fit(X, X[:, 0] > 0.5)
    model = FilterBoostClassifier().partial_fit(X, X[:, 0] > 0.5, classes=[False, True])
    before = pickle.dumps(model)
    with pytest.raises(ValueError, match="not among the classes"):
        model.partial_fit(X, np.full(50, 2))
    with pytest.raises(ValueError, match="infinity"):
        model.partial_fit(np.full((50, 2), np.inf), np.full(50, True))
    assert pickle.dumps(model) == before


def test_a_damaged_stream_is_refused(rng):
    X, y = noisy(rng, 500)
    model = FilterBoostClassifier(random_state=0).partial_fit(X, y, classes=[0, 1])
    rebuild, (_, *rest) = model._streams[0].__reduce__()
    with pytest.raises(ValueError, match="pickled as version 2"):
        rebuild(2, *rest)


def test_real_data_beside_logistic_regression(seed):
    X, y = load_breast_cancer(return_X_y=True)
    model = FilterBoostClassifier(n_estimators=60, n_bins=20, random_state=seed)
    assert cross_val_score(model, X, y).mean() > 0.93
    model.fit(X, y)
    assert isinstance(model.estimators_[0], Stump)


@pytest.mark.parametrize("missing", ["sklearn", "sklearn.utils.validation"])
def test_the_room_without_scikit_learn_says_what_to_install(missing):
    code = f"""
import sys
sys.modules[{missing!r}] = None
try:
    import fastrace.boosting
except ImportError as error:
    print(error)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == 'fastrace.boosting needs scikit-learn 1.6: python -m pip install "scikit-learn>=1.6"\n'
