"""DAUB: allocations equal to its plain twin, the bound of the paper, noise, costs and budgets."""

import math
import time

import numpy as np
import pytest

from fastrace.model_selection import (
    DAUB,
    DAUBHalving,
    FixedSubset,
    Hyperband,
    RandomChoice,
    SuccessiveHalving,
)
from guarantee import few_or_many
from reference import daub as twin
from trainings import drive, methods, scores, tables


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
