"""DAUB and its rivals: allocations equal to plain twins, the paper's bound, faults, interruption, load."""

import copy
import importlib.util
import inspect
import math
import pickle
import re
import sys
import threading
import time
from unittest import mock

import numpy as np
import pytest

from fastrace.model_selection import (
    ASHA,
    DAUB,
    DAUBHalving,
    FixedSubset,
    Hyperband,
    RandomChoice,
    SuccessiveHalving,
)
from fastrace.model_selection.schedulers import _daub
from guarantee import few_or_many
from reference import daub as twin


def tables(rng, n_learners, sizes, noise=0.01):
    """Training and validation scores with power-law curves and noise, shape (learners, sizes)."""
    n = np.asarray(sizes, float)
    top = rng.uniform(0.6, 1.0, (n_learners, 1))
    gap = rng.uniform(0.0, 2.0, (n_learners, 1)) * n ** -rng.uniform(0.2, 0.8, (n_learners, 1))
    valid = top - gap + noise * rng.standard_normal((n_learners, n.size))
    return np.minimum(top + gap, 1.0), valid


def drive(method, train, valid, sizes):
    place = {n: k for k, n in enumerate(sizes)}
    return method.run(lambda i, n: (train[i][place[n]], valid[i][place[n]]))


def methods(n_learners, n_rows, **options):
    """One of each, for what must hold of all."""
    return [
        DAUB(n_learners, n_rows, 50, 2.0, **options),
        DAUB(n_learners, n_rows, 50, 1.5, verify=True, curve=0.0, **options),
        SuccessiveHalving(n_learners, n_rows, **options),
        DAUBHalving(n_learners, n_rows, 100, growth=2.0, **options),
        FixedSubset(n_learners, n_rows, 100, **options),
        RandomChoice(n_learners, n_rows, 4, rng=1, **options),
        Hyperband(n_learners, n_rows, 100, rng=1, **options),
        ASHA(n_learners, n_rows, 100, **options),
    ]


def scores(learner, n):
    """A curve for each learner; the larger ones are better in the end."""
    final = 0.5 + 0.01 * learner
    return final + 1.0 / n, final - 0.1 * (1.0 + 7 * learner % 5) / n**0.5


def test_by_hand():
    train = [[0.99] * 5] * 2
    valid = [[0.60, 0.70, 0.75, 0.78, 0.79], [0.65, 0.64, 0.66, 0.67, 0.67]]
    result = drive(DAUB(2, 1000, 100, 2.0, capped=False), train, valid, [100, 200, 400, 800, 1000])
    assert result.allocations == [(0, 100), (0, 200), (0, 400), (1, 100), (1, 200), (1, 400), (0, 800), (0, 1000)]
    assert (result.best, result.score, result.stopped_by) == (0, 0.79, "complete")
    assert result.rows.tolist() == [2500, 700]


@pytest.mark.parametrize("options", [
    {},
    {"clip_slope": False},
    {"training_bound": False},
    {"verify": True},
    {"curve": 0.0},
    {"curve": -1.0, "verify": True},
    {"clip_slope": False, "training_bound": False, "verify": True},
    {"clip_slope": False, "training_bound": False, "verify": True, "capped": False},
    {"capped": False},
])
@few_or_many("searches", 30, 300)
def test_allocations_are_those_of_the_twin(rng, options, searches):
    for _ in range(searches):
        n_rows, b, r = int(rng.integers(100, 20_000)), int(rng.integers(1, 400)), float(rng.uniform(1.2, 3.0))
        method = DAUB(int(rng.integers(1, 20)), n_rows, b, r, **options)
        sizes = twin.grid(b, r, n_rows)
        assert method.sizes in (sizes, [n_rows]) and (options.get("capped", True) or method.sizes == sizes)
        train, valid = tables(rng, method.n_learners, sizes, noise=float(rng.choice([0.0, 0.01, 0.1])))
        if rng.random() < 0.3:
            valid = valid[:, -1:].mean() + 0.1 * (valid - valid[:, -1:])         # nearly as good as each other
        result = drive(method, train, valid, sizes)
        assert result.fraction <= 1.0 or not options.get("capped", True)
        log, winner = twin.daub(train, valid, sizes, **options)
        assert result.allocations == log
        assert result.best == winner
        assert result.stopped_by == "complete"


def test_sizes_of_the_paper():
    """Its own rule, ceil(r n), and the multiples of b that its experiments print, but for two of ten steps."""
    assert DAUB(1, 1000, 100, 1.5, capped=False).sizes == [100, 150, 225, 338, 507, 761, 1000]
    found = DAUB(9, 38_500, 500, 1.5, rounding="multiple").sizes
    assert found[:5] == [500, 1000, 1500, 2500, 4000] and found[-1] == 38_500
    assert all(n % 500 == 0 for n in found)


@pytest.mark.parametrize("curve", [1.0, 0.0, -0.5])
def test_scores_of_any_scale_and_direction(rng, curve):
    for _ in range(20):
        sizes = twin.grid(64, 1.5, 9000)
        train, valid = tables(rng, 6, sizes)
        wanted = drive(DAUB(6, 9000, 64, curve=curve), train, valid, sizes).allocations
        scaled = drive(DAUB(6, 9000, 64, curve=curve), 256 * train - 1792, 256 * valid - 1792, sizes)
        loss = drive(DAUB(6, 9000, 64, curve=curve, direction="minimize"), -train, -valid, sizes)
        assert scaled.allocations == loss.allocations == wanted
        assert loss.score == -drive(DAUB(6, 9000, 64, curve=curve), train, valid, sizes).score


def test_unknown_training_scores_do_not_bound():
    known, unknown = DAUB(3, 5000, 100), DAUB(3, 5000, 100, training_bound=False)
    assert known.run(lambda i, n: (None, scores(i, n)[1])).allocations == unknown.run(scores).allocations


@pytest.mark.parametrize("ratio", [1.5, 2.0])
def test_theorem_2_without_noise(rng, ratio):
    """Suboptimal learners cost at most r / (r - 1) c(r n^Delta); the one chosen that and c(N) more, as the size before
    N may be as large as N."""
    n_rows, b, checked = 100_000, 100, 0
    for _ in range(40):
        n_learners = 8
        top, scale = rng.uniform(0.6, 1.0, n_learners), rng.uniform(0.5, 5.0, n_learners)
        power = rng.uniform(0.3, 1.0, n_learners)

        def f(i, n, top=top, scale=scale, power=power):
            return top[i] - scale[i] * n ** -power[i]

        method = DAUB(n_learners, n_rows, b, ratio, training_bound=False, capped=False)
        result = method.run(lambda i, n, f=f: (None, f(i, n)))
        ends = np.array([f(i, n_rows) for i in range(n_learners)])
        delta = max(1e-3, 0.5 * np.median(ends.max() - ends))
        # The slope is a difference over at most two steps: of a concave curve it is at most f'(n / r^2).
        n_delta = (scale * power * n_rows / delta) ** (1 / (1 + power))
        reach = np.minimum(n_rows, ratio**3 * np.maximum(n_delta, b)) * 1.05      # sizes are rounded up
        bad = ends.max() - ends >= delta
        assert (result.rows[bad] <= ratio / (ratio - 1) * reach[bad]).all()
        assert result.rows[result.best] <= (1 + ratio / (ratio - 1)) * n_rows * 1.05
        assert not bad[result.best] or reach[result.best] >= n_rows
        checked += (bad & (reach < 0.5 * n_rows)).sum()
    assert checked > 20


def test_a_late_bloomer_wins():
    """Curves that cross: the worst on few rows is the best on all, its curve concave."""
    curves = [lambda n: 0.80 - 0.5 / n, lambda n: 0.82 - 4.0 / n, lambda n: 0.95 - 180 / (n + 500)]
    for ratio in (1.5, 2.0, 3.0):
        result = DAUB(3, 50_000, 200, ratio, capped=False).run(lambda i, n: (1.0, curves[i](n)))
        assert result.best == 2 and result.rows[0] < 5000
        assert DAUB(3, 50_000, 200, ratio).run(lambda i, n: (1.0, curves[i](n))).best == 2
    early = [curves[i](200) for i in range(3)]
    assert np.argmin(early) == 2
    nine = [lambda n: 0.4, *curves[:1], lambda n: 0.85 - 60.0 / n, *[lambda n: 0.3] * 6]
    assert SuccessiveHalving(9, 50_000, 200, growth=3.0).run(lambda i, n: (1.0, nine[i](n))).best == 1
    assert DAUBHalving(9, 50_000, 200, growth=3.0).run(lambda i, n: (1.0, nine[i](n))).best == 2
    assert FixedSubset(3, 50_000, 200).run(lambda i, n: (1.0, curves[i](n))).best == 1


def test_noise_costs_little(rng):
    lost = []
    for _ in range(50):
        sizes = twin.grid(100, 1.5, 20_000)
        train, valid = tables(rng, 12, sizes, noise=0.003)
        won = drive(DAUB(12, 20_000, 100), train, valid, sizes)
        lost.append(valid[:, -1].max() - valid[won.best, -1])
    assert np.mean(lost) < 0.01 and np.median(lost) < 0.003


def test_few_sizes_and_few_learners():
    everything = DAUB(3, 100, 200)
    assert everything.sizes == [100]
    assert everything.run(scores).allocations == [(0, 100), (1, 100), (2, 100)]
    cheaper = DAUB(2, 1000, 500, 1.5)
    assert cheaper.run(scores).allocations == [(0, 1000), (1, 1000)]
    assert "trained in full at once" in cheaper.result().warnings[0]
    short = DAUB(2, 1000, 500, 1.5, capped=False)
    assert short.run(scores).allocations == [(i, n) for i in range(2) for n in (500, 750, 1000)]
    assert short.result().best == 1 and "little can be won" in short.result().warnings[0]
    for method in methods(1, 1000):
        result = method.run(scores)
        assert result.best == 0 and result.reached[0] == 1000
    assert DAUB(1, 1, 1).run(lambda i, n: (1.0, 0.0)).best == 0


def test_ties_go_to_the_first():
    for method in methods(6, 5000):
        best = method.run(lambda i, n: (1.0, 0.5)).best
        if not isinstance(method, (RandomChoice, Hyperband)):
            assert best == 0, method


@pytest.mark.parametrize("kind", ["raises", "nan", "inf", "late"])
def test_learners_that_fail_are_dropped(kind):
    def train(i, n):
        if i == 8 and (kind != "late" or n > 2000):     # it would have won
            if kind == "raises" or kind == "late":
                raise MemoryError("too many rows")
            return 0.5, math.nan if kind == "nan" else math.inf
        return scores(i, n)

    for method in methods(9, 5000):
        result = method.run(train)
        assert result.best != 8 and 8 not in result.dropped or "8" not in result.dropped
        assert result.reached[result.best] == 5000
        if not isinstance(method, RandomChoice) or 8 in result.dropped:
            why = {"raises": "MemoryError: too many rows", "late": "MemoryError", "nan": "nan", "inf": "inf"}[kind]
            assert list(result.dropped) == [8] and why in result.dropped[8]
        assert "dropped 8" in str(result) or not result.dropped


def test_all_learners_crash():
    def train(i, n):
        raise OSError(f"no {i}")

    for method in methods(5, 5000):
        with pytest.raises(RuntimeError, match="no learner is left.*no 3") if not isinstance(
                method, RandomChoice) else pytest.raises(RuntimeError):
            method.run(train)
        assert method.done
        with pytest.raises(RuntimeError, match="over"):
            method.ask()


def test_answers_without_both_scores_are_named():
    for answer in (0.5, "0.5", (0.5,), None):
        with pytest.raises(RuntimeError, match=r"train returned .*; \(training score or None, validation score\)"):
            DAUB(2, 1000).run(lambda i, n, answer=answer: answer)


def test_the_error_where_no_learner_is_left_says_why_and_what_to_do():
    def train(learner, n):
        raise ValueError("the data are empty\nsecond line")

    for method in methods(12, 5000):
        with pytest.raises(RuntimeError) as caught:
            method.run(train)
        words = str(caught.value)
        assert "ValueError: the data are empty on" in words and words.count("the data are empty") == 1
        assert re.search(r"; train\(\d+, \d+\) raised the last of these errors: call it yourself", words)
        assert "second line" not in words and isinstance(caught.value.__cause__, ValueError)


def test_a_function_that_is_called_wrongly_is_refused_before_any_training():
    for wrong in (lambda n: (None, 0.5), lambda learner, n, extra: (None, 0.5)):
        method = DAUB(3, 1000, 50)
        with pytest.raises(TypeError, match=r"train is called as train\(learner, n\), and it takes"):
            method.run(wrong)
        assert not method.dropped and not method.done


@pytest.mark.parametrize("make", [
    lambda: DAUB(3, 400, 500), lambda: SuccessiveHalving(3, 400, 500), lambda: DAUBHalving(3, 400, 500),
    lambda: FixedSubset(3, 400, 500), lambda: Hyperband(3, 400, 500, rng=0), lambda: ASHA(3, 400, 500),
])
def test_a_first_size_above_all_rows_is_said(make):
    result = make().run(lambda learner, n: (None, learner))
    assert {n for _, n in result.allocations} == {400}
    assert "first is 500 and there are 400 rows" in result.warnings[0] and result.warnings[0] in str(result)


def test_options_of_all_methods_stand_in_every_signature_and_errors_name_the_class():
    for method in methods(4, 5000):
        kind = type(method)
        given = inspect.signature(kind).parameters
        assert ["direction", "cost", "budget", "names"] == list(given)[-4:] and "common" not in given
        assert ("growth" in given) is (kind in (SuccessiveHalving, DAUBHalving))
        with pytest.raises(TypeError, match=rf"^{kind.__name__}: there is no parameter 'sise'; there are n_learners"):
            kind(4, 5000, 100, sise=3)
        with pytest.raises(ValueError, match=rf"^{kind.__name__}: budget is -1"):
            kind(4, 5000, 100, budget=-1)
    with pytest.raises(TypeError, match=r"^FixedSubset: there is no parameter 'growth'"):
        FixedSubset(4, 5000, 100, growth=2.0)


def test_what_is_printed_is_called_as_in_the_table():
    result = DAUB(4, 5000, 50).run(scores)
    heads = str(result).splitlines()[1].split()[1:]
    assert set(heads) <= set(result.to_frame().columns) and {"rows", "reached"} <= set(heads)


def test_a_learner_that_hangs_is_dropped():
    let_go, awake = threading.Event(), []

    def train(i, n):
        if i == 4 and not let_go.wait(60.0):
            awake.append(i)
        return scores(i, n)

    try:
        result = DAUB(5, 1000, 300).run(train, time_limit=1.0)
        assert result.best == 3 and "TimeoutError: took longer than 1 s" in result.dropped[4]
        assert not awake                # it did not wait for the end of the training
    finally:
        let_go.set()


def test_an_interrupted_run_goes_on():
    for method, other in zip(methods(9, 5000), methods(9, 5000), strict=True):
        wanted = method.run(scores)
        calls = []

        def train(i, n, calls=calls):
            calls.append((i, n))
            if len(calls) % 3 == 0:
                raise KeyboardInterrupt
            return scores(i, n)

        while not other.done:
            try:
                other.run(train)
            except KeyboardInterrupt:
                other = pickle.loads(pickle.dumps(other))
        assert other.result().allocations == wanted.allocations
        assert other.result().best == wanted.best


def test_pickles_and_copies_at_any_point(rng):
    for made in methods(7, 5000):
        wanted = copy.deepcopy(made).run(scores)
        steps = 0
        while not made.done:
            i, n = made.ask()
            if steps % 5 == 2:
                for restored in (pickle.loads(pickle.dumps(made)), copy.copy(made)):
                    assert restored.outstanding == [(i, n)]
                    assert restored.run(scores).allocations == wanted.allocations
                assert made.outstanding == [(i, n)]
            made.tell(i, n, *scores(i, n))
            steps += 1
        assert made.result().allocations == wanted.allocations
    with pytest.raises(ValueError, match="version 99"):
        rebuild, (version, *rest) = DAUB(2, 1000).__reduce__()
        rebuild(99, *rest)


def test_several_at_once(rng):
    """Workers that answer in any order: nothing is lost or made twice, and the first sizes are those of one worker."""
    for _ in range(10):
        for method in methods(9, 5000):
            flying, seen = [], set()
            while not method.done:
                item = method.ask() if len(flying) < 4 else None
                if item is not None:
                    assert item not in seen
                    seen.add(item)
                    flying.append(item)
                    continue
                assert flying, "nothing to do and not done"
                i, n = flying.pop(int(rng.integers(len(flying))))
                if i == 2 and n > 500:
                    method.fail(i, n, "lost")
                else:
                    method.tell(i, n, *scores(i, n))
            result = method.result()
            assert result.reached[result.best] == 5000
            if isinstance(method, (DAUB, SuccessiveHalving)) and not isinstance(method, RandomChoice):
                assert result.best == 8 or isinstance(method, FixedSubset | SuccessiveHalving | DAUB)


def test_cancelled_trainings_are_asked_again():
    daub = DAUB(2, 1000, 100)
    first = [daub.ask(), daub.ask()]
    daub.cancel()
    assert daub.outstanding == []
    assert [daub.ask(), daub.ask()] == first
    assert daub.ask() == (0, 225)


def test_peek_tells_what_comes_next(rng):
    sizes = twin.grid(50, 1.5, 5000)
    train, valid = tables(rng, 6, sizes)
    place = {n: k for k, n in enumerate(sizes)}
    for capped in (False, True):
        daub = DAUB(6, 5000, 50, capped=capped)
        while not daub.done:
            ahead = daub.peek(1)
            i, n = daub.ask()
            assert ahead == [(i, n)] or capped and n == 5000
            daub.tell(i, n, train[i][place[n]], valid[i][place[n]])
        assert daub.peek(3) == [] or all(n <= 5000 for _, n in daub.peek(3))


def test_costs_and_budgets():
    rows = DAUB(4, 10_000, 100).run(scores)
    assert rows.cost.tolist() == rows.rows.tolist()
    own = DAUB(4, 10_000, 100, cost=lambda i, n: (i + 1) * n).run(scores)
    assert own.cost.tolist() == [(i + 1) * n for i, n in enumerate(own.rows)]
    given = DAUB(4, 10_000, 100).run(lambda i, n: (*scores(i, n), 2.5))
    assert given.cost.sum() == 2.5 * len(given.history)
    slow = DAUB(2, 1000, 300, cost="seconds").run(lambda i, n: time.sleep(0.002) or scores(i, n))
    assert (slow.cost >= 0.002).all()
    for budget in (300, 2000, 5000):
        for method in methods(4, 10_000, budget=budget):
            try:
                result = method.run(scores)
            except RuntimeError:
                assert method.spent == 0        # not one training fits
                continue
            assert result.rows.sum() == method.spent <= budget
            assert result.stopped_by == "budget"
            assert not math.isnan(result.score)


def test_the_best_so_far_is_that_of_the_best_last_score():
    daub = DAUB(2, 1000, 100)
    for _ in range(3):
        daub.tell(*daub.ask(), 1.0, 0.5)
    daub.tell(*daub.ask(), 1.0, 0.6)                        # on fewer rows
    assert daub.result().best == 1 and daub.result().reached[0] > daub.result().reached[1]


def test_callback_stops_with_the_best_so_far():
    seen = []
    result = DAUB(4, 100_000, 100).run(scores, callback=lambda method: seen.append(method.spent) or len(seen) == 13)
    assert len(result.history) == len(seen) == 13 and result.stopped_by == "callback"
    assert seen == sorted(seen)


def test_bad_input_changes_nothing():
    daub = DAUB(2, 1000, 100)
    item = daub.ask()
    for call, wrong in (
        (lambda: daub.tell(1, 100, 0.5, 0.5), "was not asked for"),
        (lambda: daub.tell(0, 150, 0.5, 0.5), "was not asked for"),
        (lambda: daub.tell(*item, 0.5, 0.5, -1.0), "cost is -1"),
        (lambda: daub.tell(*item, 0.5, 0.5, math.nan), "cost is nan"),
        (lambda: daub.fail(1, 100, "no"), "was not asked for"),
    ):
        with pytest.raises(ValueError, match=wrong):
            call()
    for score in ("0.5", None, [0.5]):
        with pytest.raises(TypeError, match="valid_score"):
            daub.tell(*item, 0.5, score)
    assert daub.outstanding == [item] and daub.spent == 0 and not daub.dropped
    daub.tell(np.int64(item[0]), np.int64(item[1]), np.float32(0.5), np.float64(0.5))
    with pytest.raises(ValueError, match="was not asked for"):
        daub.tell(*item, 0.5, 0.5)
    with pytest.raises(RuntimeError, match="no training has ended"):
        DAUB(2, 1000).result()
    for arguments, options, wrong in (
        ((0, 10), {}, "n_learners is 0"),
        ((2, 0), {}, "n_rows is 0"),
        ((2, 10, 0), {}, "first is 0"),
        ((2, 10, 1, 1.0), {}, "ratio is 1.0"),
        ((2, 10, 1, math.inf), {}, "ratio is inf"),
        ((2, 10), {"curve": math.nan}, "curve is nan"),
        ((2, 10), {"curve": 11}, "curve is 11"),
        ((2, 10), {"direction": "up"}, "direction is 'up'"),
        ((2, 10), {"rounding": "down"}, "rounding is 'down'"),
        ((2, 10), {"cost": "money"}, "cost is 'money'"),
        ((2, 10), {"budget": 0}, "budget is 0"),
        ((2, 10), {"names": ["a"]}, "names has 1 entries"),
        ((2, 10), {"names": ["a", "a"]}, "names has 'a' more than once"),
        ((2, 10), {"sizes": [5, 3, 10]}, "increasing sizes"),
        ((2, 10), {"sizes": [5, 9]}, "increasing sizes"),
        ((2, 10), {"sizes": []}, "increasing sizes"),
    ):
        with pytest.raises(ValueError, match=wrong.replace("(", r"\(")):
            DAUB(*arguments, **options)
    with pytest.raises(ValueError, match="factor is 1"):
        SuccessiveHalving(3, 100, factor=1.0)
    with pytest.raises(ValueError, match="first is 'all'"):
        SuccessiveHalving(3, 100, "all")
    with pytest.raises(TypeError, match="n_learners"):
        DAUB(2.5, 10)
    with pytest.raises(ValueError, match="time_limit is 0"):
        DAUB(2, 1000).run(lambda i, n: 1 / 0, time_limit=0)


def test_halving_is_that_of_scikit_learn():
    pytest.importorskip("sklearn")
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.experimental import enable_halving_search_cv  # noqa: F401
    from sklearn.model_selection import HalvingGridSearchCV

    class Free(ClassifierMixin, BaseEstimator):
        def __init__(self, a=0):
            self.a = a

        def fit(self, X, y):
            self.classes_ = np.unique(y)
            return self

        def score(self, X, y):
            return self.a

    for n_learners, n_rows, factor, first, aggressive in (
        (2, 100, 3, "exhaust", False), (9, 1000, 3, "exhaust", False), (20, 1234, 2, "exhaust", False),
        (20, 300, 3, "smallest", False), (40, 300, 2, 20, True), (27, 12345, 3, 60, False), (5, 100, 3, 90, False),
    ):
        X, y = np.zeros((n_rows, 1)), np.arange(n_rows) % 2
        search = HalvingGridSearchCV(
            Free(), {"a": np.arange(n_learners)}, factor=factor, min_resources=first, cv=2, refit=False,
            aggressive_elimination=aggressive,
        ).fit(X, y)
        method = SuccessiveHalving(
            n_learners, n_rows, first, factor, smallest=8, aggressive=aggressive, finish=False
        )
        assert method.plan == list(zip(search.n_resources_, search.n_candidates_, strict=True))
        assert method.run(lambda i, n: (None, i)).best == n_learners - 1


def test_halving_equals_its_twin(rng):
    for _ in range(30):
        n_learners, n_rows = int(rng.integers(2, 30)), int(rng.integers(300, 10_000))
        table = rng.random((n_learners, n_rows + 1))
        for method in (
            SuccessiveHalving(n_learners, n_rows, 20, 3.0, growth=2.0),
            SuccessiveHalving(n_learners, n_rows, factor=2.0),
            SuccessiveHalving(n_learners, n_rows, sizes=[100, 250, n_rows]),
            FixedSubset(n_learners, n_rows, 50),
        ):
            result = method.run(lambda i, n, table=table: (None, table[i, n]))
            log, winner = twin.halving(lambda i, n, table=table: table[i, n], n_learners, method.plan)
            assert (result.allocations, result.best) == (log, winner)
            assert result.reached[winner] == n_rows


@pytest.mark.parametrize("options", [{}, {"curve": -1.0}, {"curve": 0.0}, {"curve": 1.0, "training_bound": True}])
def test_halving_by_projection_equals_its_twin(rng, options):
    for _ in range(30):
        n_learners, n_rows = int(rng.integers(2, 40)), int(rng.integers(300, 10_000))
        # ends that differ less than the way there, so that the projection decides
        final, speed = 0.8 + 0.05 * rng.random(n_learners), rng.random(n_learners) * 2.0
        noise = 0.01 * rng.random((n_learners, n_rows + 1))
        valid = lambda i, n, v=(final, speed, noise): float(v[0][i] - v[1][i] / n**0.5 + v[2][i, n])  # noqa: E731
        train = lambda i, n, v=(final, speed): float(v[0][i] + 0.3 * v[1][i] / n**0.5)  # noqa: E731
        for made in ({"first": 20}, {"first": 20, "growth": 2.0, "factor": 2.0}, {"sizes": [50, 130, n_rows]}, {}):
            method = DAUBHalving(n_learners, n_rows, **made, **options)
            result = method.run(lambda i, n, valid=valid, train=train: (train(i, n), valid(i, n)))
            log, winner = twin.daub_halving(
                train, valid, n_learners, method.plan, options.get("curve", -0.5), "training_bound" in options)
            assert (result.allocations, result.best) == (log, winner)


def test_halving_by_projection_needs_no_more_rows(rng):
    for _ in range(20):
        sizes = twin.grid(50, 2.0, 6000)
        train, valid = tables(rng, 15, sizes)
        plain = drive(SuccessiveHalving(15, 6000, 50, 4.0, growth=2.0), train, valid, sizes)
        projected = drive(DAUBHalving(15, 6000, 50, growth=2.0), train, valid, sizes)
        assert plain.rows.sum() == projected.rows.sum()
        flat = np.repeat(valid[:, -1:], len(sizes), axis=1)
        assert drive(DAUBHalving(15, 6000, 50, growth=2.0), train, flat, sizes).best == flat[:, 0].argmax()


@pytest.mark.parametrize("made", [
    lambda m, n, b, r: DAUB(m, n, b, r), lambda m, n, b, r: DAUB(m, n, b, r, verify=True),
    lambda m, n, b, r: DAUBHalving(m, n, sizes=twin.grid(b, r, n)),
    lambda m, n, b, r: SuccessiveHalving(m, n, b, 2.0, growth=r),
    lambda m, n, b, r: SuccessiveHalving(m, n, factor=r, smallest=b),
    lambda m, n, b, r: SuccessiveHalving(m, n, "smallest", r, smallest=b, aggressive=True),
    lambda m, n, b, r: DAUBHalving(m, n, b, r),
], ids=["daub", "verified", "daub-halving", "halving", "exhaust", "aggressive", "quarters"])
@pytest.mark.parametrize("workers", [1, 4])
def test_never_more_than_training_all_in_full(rng, made, workers):
    """Whatever the curves, also where learners fail on few rows and are tried again on more."""
    highest = 0.0
    for k in range(150):
        n_rows, b, r = int(rng.integers(20, 5000)), int(rng.integers(1, 300)), float(rng.uniform(1.1, 5.0))
        n_learners = int(rng.integers(1, 12))
        method, needs = made(n_learners, n_rows, b, r), np.zeros(n_learners)
        if k % 2:
            needs = np.where(rng.random(n_learners) < 0.4, rng.uniform(0, 1, n_learners) * n_rows, 0.0)
        level, noise, flying = rng.normal(0.0, 0.05, n_learners), float(rng.choice([0.0, 0.05])), []
        while not method.done:
            while len(flying) < workers and not method.done and (item := method.ask()) is not None:
                flying.append(item)
            if method.done:
                break
            i, n = flying.pop(int(rng.integers(len(flying))))
            if n < needs[i]:
                method.fail(i, n, "too few rows", defer=True)
            else:
                method.tell(i, n, None, level[i] - (n / n_rows) ** -0.3 + noise * rng.normal())
        result = method.result()
        assert method.spent <= n_learners * n_rows and result.fraction <= 1.0
        assert result.reached[result.best] == n_rows
        for i, why in result.dropped.items():
            assert needs[i] > 0 and "no rows are left within the cost of training all in full" in why
        highest = max(highest, result.fraction)
    assert highest > 0.8                       # the limit was near


@pytest.mark.parametrize("verify", [False, True])
def test_a_learner_that_fails_on_few_rows_is_tried_on_more(verify):
    def train(method, i, n, least):
        if i == 3 and n < least:
            method.fail(i, n, "expected more neighbours", defer=True)
        else:
            method.tell(i, n, *scores(i + 10 * (i == 3), n))

    for least in (60, 150, 700, 2000, 4900, 5000):
        for method in (DAUB(9, 5000, 50, verify=verify), DAUBHalving(9, 5000, sizes=[78, 312, 1250, 5000]),
                       SuccessiveHalving(9, 5000), SuccessiveHalving(9, 5000, 100, growth=2.0)):
            while not method.done:
                train(method, *method.ask(), least)
            result = method.result()
            assert result.best == 3 and not result.dropped, (method, least)
            tries = [one for one in result.history if one.failure]
            assert [one.n for one in tries] == sorted({one.n for one in tries}) and all(one.n < least for one in tries)
            assert result.rows.sum() == sum(one.n for one in result.history if not one.failure) == method.spent
    for method in (DAUB(9, 5000, 50), DAUBHalving(9, 5000, sizes=[78, 312, 1250, 5000])):
        while not method.done:
            train(method, *method.ask(), 5001)
        assert method.result().best == 8 and method.dropped == {3: "expected more neighbours on 5000 rows"}
    for method in (ASHA(9, 5000, 50), Hyperband(9, 5000, 50, rng=0)):          # these have no place for a second try
        while not method.done:
            train(method, *method.ask(), 200)
        assert method.result().best == 8 and list(method.dropped) == [3]


def test_a_schedule_that_costs_more_than_all_in_full_is_not_begun():
    for method in (SuccessiveHalving(3, 1000, 900, 1.1, growth=1.05), DAUBHalving(2, 1000, 900, 1.5, growth=1.01),
                   DAUB(4, 1000, 300)):
        result = method.run(scores)
        assert result.allocations == [(i, 1000) for i in range(method.n_learners)]
        assert result.best == method.n_learners - 1 and "trained in full at once" in result.warnings[0]


def test_no_plan_of_halving_needs_more_rows_than_training_all_in_full(rng):
    for _ in range(1000):
        n_learners, n_rows = int(rng.integers(1, 40)), int(10 ** rng.uniform(0.0, 4.0))
        options = {
            "first": ("exhaust", "smallest", int(10 ** rng.uniform(0.0, 4.0)))[int(rng.integers(3))],
            "factor": float(rng.uniform(1.2, 5.0)), "smallest": int(10 ** rng.uniform(0.0, 3.0)),
            "aggressive": bool(rng.integers(2)), "finish": bool(rng.integers(2)),
        }
        if rng.integers(2):
            method = SuccessiveHalving(n_learners, n_rows, **options)
        else:
            method = DAUBHalving(n_learners, n_rows, **options)
        result = method.run(lambda i, n: (None, i - 1.0 / n))
        assert result.rows.sum() <= n_learners * n_rows, (n_learners, n_rows, options)
        assert result.rows.sum() == n_learners * n_rows or not result.warnings
    for method in (SuccessiveHalving(4, 2983), DAUBHalving(1, 2609, first=2508), SuccessiveHalving(1, 100, "smallest")):
        assert method.plan == [(method.n_rows, method.n_learners)]
        assert "trained in full at once" in method.run(scores).warnings[0]


def test_hyperband_brackets():
    method = Hyperband(100, 81, 1, 3.0, rng=0)
    assert method.brackets == [
        [(1, 81), (3, 27), (9, 9), (27, 3), (81, 1)],
        [(3, 34), (9, 11), (27, 3), (81, 1)],
        [(9, 15), (27, 5), (81, 1)],
        [(27, 8), (81, 2)],
        [(81, 5)],
    ]
    result = method.run(lambda i, n: (None, i / 100 - 1 / n))
    assert len(set(result.allocations)) == len(result.allocations)
    assert Hyperband(100, 81, 1, rng=7).run(scores).allocations == Hyperband(100, 81, 1, rng=7).run(scores).allocations


def test_asha_promotes_the_best_third():
    result = ASHA(9, 900, 100).run(lambda i, n: (None, i - 1 / n))
    assert result.best == 8
    climbed = [i for i, n in result.allocations if n == 300]
    assert 3 <= len(climbed) <= 7 and (8, 900) in result.allocations


def test_asha_equals_its_twin(rng):
    for _ in range(60):
        n_learners, factor = int(rng.integers(1, 40)), float(rng.choice([1.5, 2.0, 3.0]))
        n_rows = int(rng.integers(50, 3000))
        levels = int(rng.choice([3, 10**6]))                    # ties, or none
        values = {}

        def score(i, n, values=values, levels=levels):
            return values.setdefault((i, n), float(rng.integers(levels)))

        method = ASHA(n_learners, n_rows, 20, factor)
        sizes = method._sizes
        if len(sizes) == 1:
            continue
        wanted, best = twin.asha(score, n_learners, sizes, factor)
        for made in (method, ASHA(n_learners, n_rows, factor=factor, sizes=sizes)):
            result = made.run(lambda i, n, score=score: (None, score(i, n)))
            assert result.allocations == wanted and result.best == best
    with pytest.raises(ValueError, match="first and sizes are None"):
        ASHA(3, 100)


def test_asha_forgets_who_was_dropped(rng):
    """Against plain sorting of each rung: whoever is promoted is among the best share of those that are left."""
    for _ in range(30):
        method, values, promoted, waiting = ASHA(40, 900, 100), {}, set(), []
        while not method.done:
            while len(waiting) < 4 and (item := method.ask()) is not None:
                waiting.append(item)
                i, n = item
                if n > 100:
                    rung = sorted((j for j, m in values if m == n // 3), key=lambda j: (-values[j, n // 3], j))
                    if len({j for j, m in values if m == 100} | method.dropped.keys()) < 40:
                        assert i in rung[: len(rung) // 3], (item, rung)
                    assert item not in promoted
                    promoted.add(item)
            i, n = waiting.pop(int(rng.integers(len(waiting))))
            if rng.random() < 0.3:
                method.fail(i, n, "crashed")
                values = {(j, m): value for (j, m), value in values.items() if j != i}
            else:
                values[i, n] = float(rng.integers(5))
                method.tell(i, n, None, values[i, n])


@pytest.mark.parametrize("method", [Hyperband(9, 900, 300, rng=0), RandomChoice(9, 900, 2, rng=0)])
def test_learners_that_were_not_drawn_stand_in_for_those_that_crash(method):
    drawn = {item[0] for item in iter(method.ask, None)}
    method.cancel()
    assert len(drawn) < 9
    result = method.run(lambda i, n: (None, "no number") if i in drawn else (None, i))
    assert result.best == max(set(range(9)) - drawn) and set(result.dropped) == drawn


def test_budgets_with_many_outstanding():
    """What is outstanding counts at its price, each asked for once."""
    priced = []

    def price(i, n):
        priced.append((i, n))
        return 0.5

    method = SuccessiveHalving(100, 1000, sizes=[10, 1000], cost=price, budget=20.0)
    asked = list(iter(method.ask, None))
    assert len(asked) == 40 and len(priced) == 41 and not method.done
    method.cancel()
    assert len(list(iter(method.ask, None))) == 40
    for i, n in asked:
        method.tell(i, n, None, float(i))
    assert method.ask() is None and method.result().stopped_by == "budget" and method.spent == 20.0


def test_a_table_prints():
    result = DAUB(12, 5000, 100, names=[f"forest {i}" for i in range(12)]).run(scores)
    text = str(result)
    assert text.startswith("best learner forest 11: DAUB, 100 to 5000 rows") and "... 2 more learners" in text
    assert "* forest 11" in text
    sizes, train, valid = result.curve(11)
    assert sizes[-1] == 5000 and valid[-1] == result.score and train.shape == sizes.shape


def plain_heapq():
    """The standard library's heap in Python, whose steps can be counted."""
    spec = importlib.util.find_spec("heapq")
    module = importlib.util.module_from_spec(spec)
    with mock.patch.dict(sys.modules, {"_heapq": None}):
        spec.loader.exec_module(module)
    return module


def decide(method, count, watch=None):
    """Make decisions on curves whose training scores fall, so that whoever was trained goes to the end of the queue."""
    before = sys.gettrace()
    for _ in range(count):
        sys.settrace(watch or before)
        try:
            i, n = method.ask()
            method.tell(i, n, 1e-6 / n, 1e-18 * n)
        finally:
            sys.settrace(before)
    assert not method.done


def work(method, count):
    """Lines of Python that a decision runs on average, those of the heap among them."""
    lines = 0

    def watch(frame, event, arg):
        nonlocal lines
        lines += event == "line"
        return watch

    heap = plain_heapq()
    with mock.patch.object(_daub, "heapq", heap):
        decide(method, count, watch)
    return lines / count


@few_or_many("many", 10_000, 100_000)
def test_decisions_do_not_slow_down(many):
    """The work of a decision among many learners grows as logarithms do, and not at all with the number of rounds."""
    found = []
    for n_learners in (1000, many):
        method = DAUB(n_learners, 10**15, 100, 1.02)
        decide(method, 3 * n_learners)
        found.append(work(method, 500))
        assert len({i for i, _ in method.result().allocations[-500:]}) == 500
    method = DAUB(1000, 10**15, 100, 1.02)
    decide(method, 20_000)
    assert work(method, 500) < 1.1 * found[0]
    assert found[1] < 1.1 * found[0] * math.log(many) / math.log(1000)


@pytest.mark.parametrize("made", [
    lambda **more: DAUB(20_000, 10**9, 100, 1.5, **more),
    lambda **more: ASHA(20_000, 10**9, 100, **more),
    lambda **more: SuccessiveHalving(20_000, 10**9, 100, **more),
    lambda **more: DAUBHalving(20_000, 10**9, 100, **more),
    lambda **more: Hyperband(20_000, 3**8, 1, rng=0, **more),
], ids=["daub", "asha", "halving", "daub-halving", "hyperband"])
@pytest.mark.parametrize("budget", [None, 1e30])
def test_the_work_of_a_decision_does_not_grow_with_rounds(made, budget, rng):
    """Lines run for a decision after 100, 1000 and 10 000 of them, several outstanding: no slope but of logarithms."""
    method, found, waiting, count, lines = made(budget=budget), [], [], 0, 0

    def watch(frame, event, arg):
        nonlocal lines
        lines += event == "line"
        return watch

    heap, before = plain_heapq(), sys.gettrace()
    with mock.patch.object(_daub, "heapq", heap):
        for rounds in (100, 1000, 10_000):
            while count < rounds + 200:
                if count == rounds:
                    lines = 0
                    sys.settrace(watch)
                while len(waiting) < 8 and (item := method.ask()) is not None:
                    waiting.append(item)
                i, n = waiting.pop(0)
                method.tell(i, n, None, float(rng.integers(10**6)))
                count += 1
            sys.settrace(before)
            found.append(lines / 200)
    assert not method.done
    slope = (found[2] - found[0]) / math.log2(10_000 / 100)
    assert slope < 20.0, found           # a step more down each of a few heaps when the number of rounds doubles


def test_a_run_without_learners_left_names_the_last_error_as_its_cause():
    def train(learner, n):
        raise KeyError(f"column of learner {learner}")

    with pytest.raises(RuntimeError, match="no learner is left") as caught:
        DAUB(3, 1000, 100).run(train)
    assert isinstance(caught.value.__cause__, KeyError)


class Any(DAUB):
    """Passes everything on."""

    def __init__(self, *args, extra=None, **options):
        super().__init__(*args, **options)
        self.extra = extra


class Renamed(DAUB):
    def __init__(self, learners, **common):
        super().__init__(learners, 1000, **common)


def test_a_subclass_of_a_user_passes_its_arguments_on():
    for method in (Any(3, 1000, first=10), Any(3, 1000, 10), Any(n_learners=3, n_rows=1000, first=10, extra=5),
                   Renamed(3, first=10, budget=100.0)):
        assert method.ask() == (0, 10)
        assert pickle.loads(pickle.dumps(method)).outstanding == [(0, 10)]
    assert list(inspect.signature(Any).parameters) == ["args", "extra", "options"]
    assert list(inspect.signature(Renamed).parameters) == ["learners", "common"]
    with pytest.raises(TypeError, match="^Any: there is no parameter 'sise'; there are n_learners"):
        Any(3, 1000, sise=3)


@pytest.mark.parametrize("kind", [DAUB, SuccessiveHalving, DAUBHalving, FixedSubset, Hyperband, ASHA])
def test_a_training_whose_cost_raises_is_asked_again(kind):
    fails = [True, False, True]

    def cost(learner, n):
        if fails and fails.pop(0):
            raise OSError("no price yet")
        return float(n)

    options = {"rng": 0} if kind is Hyperband else {}
    method, plain = kind(4, 5000, 100, cost=cost, budget=1e9, **options), kind(4, 5000, 100, **options)
    asked = []
    while len(asked) < 8:
        try:
            asked.append(method.ask())
        except OSError:
            assert len(method.outstanding) == len(asked)
            continue
        if asked[-1] is None:
            break
    expected = [plain.ask() for _ in asked]
    assert asked == expected and not fails


def test_the_error_where_no_learner_is_left_names_the_training_that_raised():
    def train(learner, n):
        if learner == 0:
            raise KeyError("no column")
        return None, math.nan

    with pytest.raises(RuntimeError, match=r"; train\(0, 10\) raised the last of these errors") as caught:
        DAUB(2, 1000, first=10).run(train)
    assert isinstance(caught.value.__cause__, KeyError)
