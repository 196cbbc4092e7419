"""Promises of races of sums: how often they err, on which rewards, and what the guards cost."""

import numpy as np
import pytest

import fastrace as fr
from clusters import clusters, exact, sampled
from guarantee import assert_rate_at_most, few_or_many


def test_small_delta_is_exact(seed):
    for k in range(300):
        vectors, offset = clusters(np.random.default_rng([seed, k]), most=200)
        result = sampled(vectors, delta=1e-300, offset=offset, rng=k)
        assert result.best == exact(vectors, offset)


@pytest.mark.parametrize(("first_look", "most_missed", "least_saved"), [(3, 0.05, 0.25), (10, 0.01, 0.2)])
def test_error_and_cost_on_clusters_of_power_law_sizes(first_look, most_missed, least_saved, seed):
    trials, missed, read, rows = 600, 0, 0, 0
    for child in np.random.SeedSequence(seed).spawn(trials):
        vectors, offset = clusters(np.random.default_rng(child))
        result = sampled(vectors, offset=offset, kind="union", first_look=first_look, rng=child)
        missed += result.best != exact(vectors, offset)
        read += result.pulls.sum()
        rows += result.n_rows.sum()
    assert_rate_at_most(missed, trials, most_missed)
    assert read / rows < 1 - least_saved


@few_or_many("trials", 200, 2000)
@pytest.mark.parametrize("pooling", [0.0, 4.0])
def test_adaptive_race_errs_no_more_and_reads_less(pooling, trials, seed):
    missed, read, even = 0, 0, 0
    for child in np.random.SeedSequence(seed).spawn(trials):
        vectors, offset = clusters(np.random.default_rng(child))
        vectors = [v.clip(-3.0, 3.0) for v in vectors]
        result = sampled(vectors, offset=offset, allocation="adaptive", bound="normal",
                         support=(-3, 3), pooling=pooling, rng=child)
        missed += result.best != exact(vectors, offset)
        read += result.pulls.sum()
        even += sampled(vectors, offset=offset, rng=child).pulls.sum()
    assert_rate_at_most(missed, trials, 0.01)
    assert read < 0.95 * even


@pytest.mark.parametrize("allocation", ["even", "adaptive"])
@pytest.mark.parametrize("law", ["uniform", "skewed", "rare"])
@pytest.mark.parametrize("bound", ["hoeffding-serfling", "empirical-bernstein-serfling", "serfling"])
@few_or_many("trials", 100, 1000)
def test_rigorous_bounds_keep_their_promise(bound, law, allocation, trials, seed):
    delta, missed, saved = 0.1, 0, 0
    for child in np.random.SeedSequence(seed).spawn(trials):
        rng = np.random.default_rng(child)
        draw = {
            "uniform": lambda n, rng=rng: rng.random(n),
            "skewed": lambda n, rng=rng: rng.random(n) ** 20,
            "rare": lambda n, rng=rng: (rng.random(n) < 0.01).astype(float),
        }[law]
        vectors = [draw(n) for n in (1500, 900, 1500, 40)]
        offset = np.array([0.0, vectors[0].sum() - vectors[1].sum() + 1.0, -600.0, -900.0])
        result = sampled(vectors, delta=delta, bound=bound, support=(0, 1), offset=offset, allocation=allocation,
                         rng=rng)
        missed += result.best != exact(vectors, offset)
        saved += result.fraction_read < 1
        assert result.warnings == ()
    assert saved == trials
    assert_rate_at_most(missed, trials, delta)


def test_normal_rule_with_student_quantiles_keeps_delta_at_a_first_look_of_three(seed):
    # Two arms, equal sums: the worst case. Three rewards are too few for their own standard deviation.
    trials, missed = 1500, {False: 0, True: 0}
    for child in np.random.SeedSequence(seed).spawn(trials):
        rng = np.random.default_rng(child)
        a, b = rng.normal(size=(2, 400))
        vectors = [a - a.mean(), b - b.mean() - 1e-6]
        for student in missed:
            missed[student] += sampled(vectors, first_look=3, student=student, rng=rng).best != 0
    assert_rate_at_most(missed[True], trials, 0.05)
    assert missed[False] > 0.05 * trials


@pytest.mark.parametrize("allocation", ["even", "adaptive"])
def test_tail_guard_keeps_delta_where_few_rows_carry_a_sum(allocation, seed):
    """A sum of rare large rewards beside a regular one: the first looks have seen little of what carries it."""
    trials, delta, n_rows, wrong, held = 100, 0.05, 10_000, dict.fromkeys((False, True), 0), 0
    for child in np.random.SeedSequence(seed).spawn(trials):
        rng = np.random.default_rng(child)
        rare, noise = np.zeros(n_rows), rng.normal(size=n_rows)
        rare[rng.choice(n_rows, n_rows // 500, replace=False)] = rng.exponential(size=n_rows // 500) + 0.2
        rare *= 1.0 / rare.mean()
        vectors = [0.8 + 0.1 * (noise - noise.mean()), rare]
        for guard, options in ((True, {}), (False, {"tail_guard": False})):
            result = sampled(vectors, delta=delta, allocation=allocation, rng=child, **options)
            wrong[guard] += result.best != exact(vectors, [0.0, 0.0])
            if guard and result.held_back.size:
                assert any("held back" in text for text in result.warnings)
                held += 1
            assert guard or not result.held_back.size
    assert wrong[True] <= wrong[False] and held > 0
    assert_rate_at_most(wrong[True], trials, delta)


def test_tail_guard_costs_next_to_nothing_on_normal_rewards(seed):
    rows = dict.fromkeys((False, True), 0)
    for k in range(60):
        rng = np.random.default_rng([seed, k])
        vectors = [rng.normal(rng.normal(0.0, 0.2), 1.0, int(rng.integers(300, 2000))) for _ in range(4)]
        for guard in rows:
            rows[guard] += sampled(vectors, rng=k, tail_guard=guard).pulls.sum()
    assert rows[True] <= 1.03 * rows[False]


@pytest.mark.parametrize("allocation", ["even", "adaptive"])
def test_a_support_makes_the_promise_rigorous_by_default(allocation):
    def wrong(seed, **options):
        draw = np.random.default_rng(seed)
        table = np.column_stack([draw.random(20_000) * 0.5 + (draw.random(20_000) < 0.002) * 100,
                                 draw.random(20_000) * 0.7])
        result = fr.race_sums(lambda arm, rows: table[rows, arm], [20_000, 20_000], rng=seed, allocation=allocation,
                              **options)
        assert result.bound == ("serfling" if options else "normal")
        return result.best != table.sum(0).argmax()

    # By the normal rule one in five is wrong, as few samples hold one of the 40 rewards that carry the sum.
    assert sum(wrong(seed) for seed in range(20)) >= 1
    assert sum(wrong(seed, support=(0, 101)) for seed in range(20)) == 0
