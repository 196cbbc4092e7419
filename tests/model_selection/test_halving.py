"""Successive halving: scikit-learn's plan, the twins, and never more than training all in full."""

import numpy as np
import pytest

from fastrace.model_selection import (
    ASHA,
    DAUB,
    DAUBHalving,
    FixedSubset,
    Hyperband,
    SuccessiveHalving,
)
from reference import daub as twin
from trainings import drive, scores, tables


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
