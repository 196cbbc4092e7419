"""Hyperband, ASHA and budgets: the brackets, the twins, learners that crash."""

import pytest

from fastrace.model_selection import (
    ASHA,
    Hyperband,
    RandomChoice,
    SuccessiveHalving,
)
from reference import daub as twin
from trainings import scores


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
