"""Model selection under a budget of time: decisions equal to plain twins, counts of queries, grids, penalties."""

import itertools
import math
import pickle

import numpy as np
import pytest

from fastrace.model_selection import (
    BudgetedUCB,
    CoarseGrid,
    RootPenalty,
    cover,
    gap_penalty,
    max_discrepancy_penalty,
    norm_ball_penalty,
    rademacher_penalty,
    vc_penalty,
)
from reference import daub as twin


@pytest.mark.parametrize("log_term", ["T", "t"])
@pytest.mark.parametrize("n_rows", [None, 300])
def test_queries_are_those_of_the_twin(rng, log_term, n_rows):
    for _ in range(20):
        k, quanta = int(rng.integers(1, 7)), int(rng.integers(10, 200))
        rates = rng.integers(1, 50, k)
        penalties = [vc_penalty(d, float(rng.uniform(0.01, 1.0))) for d in rng.integers(1, 10, k)]
        limits, kappa2 = rng.random(k), float(rng.choice([0.0, 0.1, 1.4]))
        noise = rng.normal(0, 0.02, (k, quanta + 2))

        def risk(i, n, limits=limits, noise=noise, rates=rates):
            return limits[i] - 0.1 / math.sqrt(n) + noise[i, math.ceil(n / rates[i])]

        method = BudgetedUCB(rates, quanta, penalties, kappa2=kappa2, log_term=log_term, n_rows=n_rows)
        result = method.run(lambda i, n, risk=risk: (risk(i, n), None))
        wanted = twin.budgeted_ucb(risk, rates, quanta, penalties, kappa2, log_term, n_rows or math.inf)
        assert result.allocations == wanted
        counts = np.bincount([i for i, _ in wanted], minlength=k)
        assert method.queries.tolist() == counts.tolist()
        if all(method._asked[i] < method.n_rows for i in range(k)):
            assert result.best == counts.argmax()


def test_the_worse_of_two_classes_is_queried_logarithmically_often():
    counts = []
    for quanta in (200, 2000, 20_000):
        method = BudgetedUCB([50, 50], quanta, [vc_penalty(2, 0.1)] * 2, kappa2=0.5)
        result = method.run(lambda i, n: ((0.2, 0.5)[i] - 0.05 / math.sqrt(n), None))
        assert result.best == 0
        counts.append(method.queries[1])
    assert counts[-1] < 12
    assert counts[2] - counts[1] <= 2 * (counts[1] - counts[0]) + 2


def test_the_mean_of_models_and_the_class_queried_most():
    risks = {0: 0.3, 1: 0.1}
    method = BudgetedUCB([10, 10], 60, [RootPenalty(0.1)] * 2, kappa2=0.05)
    while not method.done:
        i, n = method.ask()
        method.tell(i, n, risks[i], model=[1.0] if i == 0 else [2.0, 4.0])
    assert method.result().best == 1
    share = method.queries / 60
    assert method.average == pytest.approx([share[0] + 2 * share[1], 4 * share[1]])
    assert BudgetedUCB([1], 1, [RootPenalty(1.0)]).run(lambda i, n: (0.5, None)).best == 0
    with pytest.raises(RuntimeError, match="no model"):
        _ = BudgetedUCB([1], 1, [RootPenalty(1.0)]).average


def test_a_class_that_fails_and_one_that_runs_out_of_rows():
    def train(i, n):
        if i == 0:
            raise FloatingPointError("overflow")
        return (0.1 if i == 1 else 0.4), None

    method = BudgetedUCB([10, 40, 10], 50, [RootPenalty(0.1)] * 3, n_rows=200, kappa2=0.01)
    result = method.run(train)
    assert list(result.dropped) == [0] and result.best in (1, 2)
    assert result.reached[1] == 200 and "ran out of rows" in result.warnings[0]
    restored = pickle.loads(pickle.dumps(method))
    assert restored.result().allocations == result.allocations
    everything = BudgetedUCB([100, 100], 50, [RootPenalty(0.1)] * 2, n_rows=100).run(lambda i, n: ((0.2, 0.1)[i], None))
    assert everything.best == 1 and len(everything.history) == 2


def test_the_cover_is_valid_and_the_smallest(rng):
    for _ in range(60):
        g = np.sort(rng.lognormal(0, 1.0, int(rng.integers(1, 9))))
        slack = float(rng.choice([0.3, 1.0, 3.0]))
        chosen = cover(g, slack)
        assert twin.covers(g, chosen, slack)
        for size in range(1, len(chosen)):
            assert not any(twin.covers(g, other, slack) for other in itertools.combinations(range(g.size), size))
        other = twin.recursion(g, slack)
        assert not twin.covers(g, other, slack) or len(other) >= len(chosen)
    assert [i + 1 for i in twin.recursion(range(1, 41), 1.0)] == [40, 20, 10, 5, 3, 2, 1]
    assert [i + 1 for i in cover(range(1, 41), 1.0)] == [40, 19, 9, 4, 1]
    assert cover([1.0, 1.0, 1.0]) == [2]


@pytest.mark.parametrize("slack", [0.2, 1.0, 3.0])
def test_the_coarse_grid_meets_its_condition(rng, slack):
    for _ in range(30):
        k, quanta = int(rng.integers(1, 15)), float(rng.uniform(500, 5000))
        rates = np.sort(rng.integers(5, 100, k))[::-1]
        penalties = [vc_penalty(d) for d in np.sort(rng.integers(1, 60, k))]
        method = CoarseGrid(rates, quanta, penalties, slack=slack)
        s = len(method.grid)
        g = np.maximum.accumulate([penalties[i](quanta * rates[i] // s) for i in range(k)])
        assert twin.covers(g, method.grid, slack)
        assert method.share == {i: math.floor(quanta * rates[i] / s) for i in method.grid}
        time = sum(method.share[i] / rates[i] for i in method.grid)
        assert time <= quanta
        result = method.run(lambda i, n: (0.5 - 0.01 * i, None))
        assert result.allocations == [(i, method.share[i]) for i in method.grid]
        wanted = min(method.grid, key=lambda i: (0.5 - 0.01 * i + penalties[i](method.share[i]), i))
        assert result.best == wanted


def test_the_coarse_grid_has_the_fewest_shares_there_are(rng):
    for _ in range(25):
        k, quanta, slack = int(rng.integers(1, 8)), float(rng.uniform(500, 5000)), float(rng.choice([0.2, 1.0, 3.0]))
        rates = np.sort(rng.integers(5, 100, k))[::-1]
        penalties = [vc_penalty(d) for d in np.sort(rng.integers(1, 60, k))]
        found = CoarseGrid(rates, quanta, penalties, slack=slack).grid
        assert len(found) == twin.coarse_shares(penalties, rates, quanta, slack)


def test_the_coarse_grid_by_held_out_risk_and_with_failures():
    penalties = [vc_penalty(d) for d in (1, 4, 16, 64)]
    method = CoarseGrid([64, 16, 4, 1], 1000, penalties, slack=0.5, criterion="held-out")
    risks = [0.4, 0.2, 0.3, 0.5]
    assert method.run(lambda i, n: (0.0, risks[i])).best == 1
    with pytest.raises(TypeError, match="valid_score is None"):
        other = CoarseGrid([64, 16, 4, 1], 1000, penalties, slack=0.5, criterion="held-out")
        other.tell(*other.ask(), 0.5)

    def train(i, n):
        if i == 1:
            raise ValueError("no")
        return 0.0, risks[i]

    method = CoarseGrid([64, 16, 4, 1], 1000, penalties, slack=0.5, criterion="held-out")
    assert method.run(train).best == 2 and list(method.dropped) == [1]
    paid = CoarseGrid([64, 16, 4, 1], 1000, penalties, slack=0.5, kappa2_select=1.0)
    assert paid.run(lambda i, n: (risks[i], None)).bound[paid.grid[-1]] > risks[paid.grid[-1]]


def test_penalties(rng):
    assert vc_penalty(9, 0.5, 2.0)(100) == pytest.approx(0.3)
    assert norm_ball_penalty(2.0, 3.0, 0.5)(36) == pytest.approx(1.0)
    assert gap_penalty(0.1, 0.3, 400)(100) == pytest.approx(0.4)
    assert gap_penalty(0.3, 0.1, 400)(100) == 0.0
    X, y = rng.normal(size=(400, 3)), np.where(rng.random(400) < 0.5, 1, -1)

    def by_sign_of_best_column(X, labels):
        return min(np.mean(np.sign(s * X[:, j]) != labels) for j in range(X.shape[1]) for s in (-1, 1))

    for made in (rademacher_penalty(by_sign_of_best_column, X, 5, rng=rng),
                 max_discrepancy_penalty(by_sign_of_best_column, X, y)):
        assert 0.0 <= made(400) < 0.25
    assert rademacher_penalty(lambda X, labels: 0.0, X)(400) == 1.0
    assert pickle.loads(pickle.dumps(vc_penalty(3))) == vc_penalty(3)


@pytest.mark.parametrize(("change", "wrong"), [
    ({"rows_per_quantum": [0, 1]}, "at least one row"),
    ({"rows_per_quantum": [1.5, 1]}, "whole numbers"),
    ({"rows_per_quantum": []}, "whole numbers"),
    ({"budget": 1}, "budget is 1"),
    ({"penalties": [RootPenalty(1.0)]}, "penalties has 1 entries"),
    ({"penalties": [RootPenalty(1.0), lambda n: math.nan]}, "penalty of class 1 on"),
    ({"penalties": [lambda n: -1.0, RootPenalty(1.0)]}, "penalty of class 0 on"),
    ({"loss_bound": 0.0}, "loss_bound is 0"),
    ({"kappa2": -1.0}, "kappa2 is -1"),
    ({"log_term": "n"}, "log_term is 'n'"),
    ({"risk": "test"}, "risk is 'test'"),
])
def test_bad_options_are_refused(change, wrong):
    options = {"rows_per_quantum": [10, 5], "budget": 20, "penalties": [RootPenalty(1.0)] * 2} | change
    with pytest.raises(ValueError, match=wrong):
        BudgetedUCB(**options)


def test_increasing_penalties_are_refused():
    method = BudgetedUCB([10, 10], 50, [lambda n: n / 1000, RootPenalty(0.1)])
    with pytest.raises(ValueError, match="penalty of class 0 is .* must not increase"):
        method.run(lambda i, n: (0.1, None))
    with pytest.raises(ValueError, match="does not do for one row"):
        CoarseGrid([3, 1], 0.5, [vc_penalty(1), vc_penalty(2)])
    with pytest.raises(ValueError, match="slack is 0"):
        CoarseGrid([3, 1], 5, [vc_penalty(1), vc_penalty(2)], slack=0)
    with pytest.raises(TypeError, match="train_score is None"):
        other = BudgetedUCB([10], 5, [RootPenalty(0.1)])
        other.tell(*other.ask(), None, 0.5)
    with pytest.raises(TypeError, match="penalty 0"):
        BudgetedUCB([10], 5, [0.1])


def test_an_error_of_a_penalty_keeps_its_arguments():
    class DiskError(ValueError):
        pass

    for error in (DiskError(7, "disk"), DiskError("disk"), ValueError(7, "disk"), ValueError(7),
                  UnicodeDecodeError("utf-8", b"x", 0, 1, "odd")):
        def penalty(n, error=error):
            raise error

        said = error.args
        with pytest.raises(ValueError) as caught:
            BudgetedUCB([100, 100], 4, [penalty] * 2)
        assert caught.value is error and error.args == said
