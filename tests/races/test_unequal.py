"""Sums over populations of different size: equal to the twin, exact where it must be, error below delta."""

import numpy as np
import pytest

import fastrace as fr
from clusters import by_hand, clusters, exact, racer, same, sampled
from fastrace.control_variates import ControlVariate
from fastrace.sources import ArraySource, as_source
from reference import lil as reference


@pytest.mark.parametrize("options", [
    {}, {"kind": "union"}, {"student": True}, {"first": 3}, {"temperature": 0.2}, {"delta": 0.4}, {"delta": 1e-10},
])
def test_equals_the_plain_twin(options, seed):
    for k in range(25):
        vectors, offset = clusters(np.random.default_rng([seed, k]), most=300)
        delta = options.get("delta", 0.05)
        rest = {name: value for name, value in options.items() if name != "delta"}
        best, pulls, n_looks = reference.race_unequal(vectors, offset, delta, np.random.default_rng(k), **rest)
        rest["first_look"] = rest.pop("first", 10)
        result = sampled(vectors, delta=delta, offset=offset, rng=k, **rest)
        assert (result.best, result.n_looks) == (best, n_looks)
        assert result.pulls.tolist() == pulls


@pytest.mark.parametrize("options", [
    {}, {"kind": "union"}, {"student": True}, {"first": 3}, {"temperature": 0.2}, {"delta": 1e-10},
    {"support": (-7, 7)}, {"support": (-7, 7), "first": 3, "pooling": 4.0}, {"support": (-7, 7), "temperature": 3.0},
])
def test_adaptive_race_equals_the_plain_twin(options, seed):
    for k in range(25):
        vectors, offset = clusters(np.random.default_rng([seed, k]), most=300)
        rest = dict(options)
        delta, shared = rest.pop("delta", 0.05), rest.pop("pooling", 0.0)
        best, pulls, n_looks = reference.race_unequal_adaptive(vectors, offset, delta, np.random.default_rng(k),
                                                               shared=shared, **rest)
        rest["first_look"] = rest.pop("first", 10)
        result = sampled(vectors, delta=delta, offset=offset, rng=k, allocation="adaptive", pooling=shared,
                         bound="normal", **rest)
        assert (result.best, result.n_looks) == (best, n_looks)
        assert result.pulls.tolist() == pulls


@pytest.mark.parametrize("options", [
    {}, {"bound": "serfling", "support": (-10, 10)}, {"bound": "hoeffding-serfling", "support": (-10, 10)},
    {"bound": "empirical-bernstein-serfling", "support": (-10, 10)}, {"student": True, "temperature": 3.0},
    {"pooling": 3.0}, {"allocation": "adaptive"},
    {"allocation": "adaptive", "bound": "normal", "support": (-10, 10), "pooling": 3.0},
    {"allocation": "adaptive", "bound": "serfling", "support": (-10, 10)},
])
def test_ask_tell_equals_run(options, seed):
    for k in range(10):
        vectors, offset = clusters(np.random.default_rng([seed, k]))
        sizes = [len(v) for v in vectors]
        race = racer(sizes, offset=offset, rng=k, **options)
        same(by_hand(race, vectors), sampled(vectors, offset=offset, rng=k, **options))


def test_every_kind_of_rewards_gives_the_same_race(seed):
    vectors, offset = clusters(np.random.default_rng(seed), 12)
    vectors = [v.astype(np.float32) for v in vectors]
    sizes = [len(v) for v in vectors]
    wanted = sampled([v.astype(float) for v in vectors], offset=offset, rng=1)
    table = np.full((max(sizes), len(sizes)), np.nan)
    for i, v in enumerate(vectors):
        table[: len(v), i] = v
    read_only = [v.copy() for v in vectors]
    for v in read_only:
        v.setflags(write=False)
    strided = [np.repeat(v, 3)[::3] for v in vectors]
    backward = [v[::-1].copy()[::-1] for v in vectors]
    for rewards in (
        vectors,
        tuple(vectors),
        read_only,
        strided,
        backward,
        [v.astype(">f8") for v in vectors],
        [v.tolist() for v in vectors],
        np.concatenate(vectors),
        lambda arm, rows: vectors[arm][rows],
        as_source(table),
    ):
        same(sampled(rewards, sizes, offset=offset, rng=1), wanted)


@pytest.mark.parametrize("temperature", [0.25, 4.0])
def test_temperature_divides_rewards_and_not_offsets(temperature, seed):
    differ = 0
    for k in range(100):
        vectors, offset = clusters(np.random.default_rng([seed, k]), 10, most=50)
        result = sampled(vectors, delta=1e-12, offset=offset, temperature=temperature, rng=k)
        assert result.best == exact(vectors, offset, temperature)
        full = result.pulls == result.n_rows
        totals = np.array([c + v.sum() / temperature for v, c in zip(vectors, offset, strict=True)])
        assert np.allclose(result.total[full], totals[full])
        differ += result.best != exact(vectors, offset)
    assert differ


@pytest.mark.parametrize("allocation", ["even", "adaptive"])
def test_nothing_is_decided_before_what_a_source_knows_is_known(allocation):
    """Arms without rows could win by the support alone; the source knows that the first is ahead by fifty."""
    rewards = np.column_stack([np.full(5, 9.5), np.zeros(5), np.zeros(5)])
    known = np.column_stack([np.full(5, 10.0), np.zeros(5), np.zeros(5)])
    source = ControlVariate(ArraySource(rewards), ArraySource(known), totals=[50.0, 0.0, 0.0])
    race = fr.UnequalRace([5, 0, 0], support=(-1, 0), offset=[0.0, 1.0, 0.5], allocation=allocation, rng=1)
    assert race.run(source).best == 0


def test_an_arm_that_cannot_win_is_never_read():
    race = fr.UnequalRace([5, 0], support=(-1, 0), offset=[0.0, 1.0], allocation="adaptive", rng=1)
    assert race.done and race.result().best == 1
    result = fr.UnequalRace([5, 0, 4], support=(-1, 0), offset=[0.0, 1.0, 2.0], allocation="adaptive", rng=1).run(
        [np.full(5, -0.1), np.empty(0), np.full(4, -0.5)])
    assert result.best == 1 and result.pulls.tolist() == [0, 0, 4]


def test_adaptive_race_does_not_read_what_cannot_win(seed):
    rng = np.random.default_rng(seed)
    vectors = [rng.uniform(0, 1, n) for n in (5000, 40, 30, 0)]
    result = sampled(vectors, bound="normal", support=(0, 1), allocation="adaptive", rng=1)
    assert (result.best, result.stopped_by) == (0, "bound")
    assert result.pulls.tolist() == [10, 0, 0, 0]
    assert np.isnan(result.total[1:3]).all()
    assert result.total[3] == 0.0
    assert sampled(vectors, rng=1).pulls.tolist() == [10, 10, 10, 0]
    # Without a support nothing is known of an arm that has not been read.
    assert (sampled(vectors, allocation="adaptive", rng=1).pulls[:3] >= 10).all()


def test_adaptive_race_ties_constants_and_impossible_arms(seed):
    equal = [np.full(300, 0.1)] * 3
    result = sampled(equal, allocation="adaptive", rng=1)
    assert (result.best, result.stopped_by) == (0, "exact")
    assert result.pulls.tolist() == [300] * 3
    assert sampled([np.zeros(0)] * 3, offset=[0, 2, 1], allocation="adaptive").best == 1
    # A support, or the variance of the other arms, speaks where an arm's own rewards do not differ.
    vectors = [np.random.default_rng(seed).normal(1.0, 0.1, 1000).clip(0, 2), np.full(800, 0.5)]
    for options in ({"support": (0, 0.9), "offset": [0, -500], "outside": "warn"}, {"pooling": 4.0}):
        assert sampled(vectors, allocation="adaptive", rng=1, **options).pulls.sum() < 200
    vectors[0][:] = -np.inf
    assert sampled(vectors, allocation="adaptive", rng=1).best == 1
    race = racer([500] * 3, allocation="adaptive", rng=1)
    for _ in range(2):
        with pytest.raises(ValueError, match="no arm is possible"):
            race.run([np.full(500, -np.inf)] * 3)


def test_small_arms_are_exact_at_the_first_look(seed):
    vectors = [np.arange(n, dtype=float) for n in (0, 1, 2, 10)]
    result = sampled(vectors, offset=[3.0, 2.5, 0.0, -50.0], rng=1)
    assert (result.best, result.stopped_by, result.n_looks) == (0, "exact", 1)
    assert result.total.tolist() == [3.0, 2.5, 1.0, -5.0]
    assert result.pulls.tolist() == result.n_rows.tolist() == [0, 1, 2, 10]
    assert (result.half_width[1:] == 0).all()
    assert "sum" in str(result)


def test_every_look_reads_more_until_all_is_read(seed):
    for size in (11, 12, 15, 20, 29, 1000, 12345):
        race = racer([size, size], 1e-300, rng=1)
        seen = [0]
        rows = [set(), set()]
        while not race.done:
            arms, row = race.ask()
            assert np.array_equal(race.ask()[1], row)
            for arm, r in zip(arms, row, strict=True):
                assert r not in rows[arm]
                rows[arm].add(int(r))
            race.tell(np.where(row % 2, 1.0, -1.0))
            seen.append(int(race.result().pulls[0]))
        assert seen[1:] == sorted(set(reference.looks(size, 10)))
        assert all(r == set(range(size)) for r in rows)
        assert race.result().stopped_by == "exact"


def test_ties_go_to_the_lowest_arm():
    for value in (0.1, 1 / 3):
        vectors = [np.full(300, value), np.full(300, value), np.full(300, value)]
        result = sampled(vectors, rng=1)
        assert (result.best, result.stopped_by) == (0, "exact")
        assert "equal at a look" in result.warnings[0]
    assert sampled([np.zeros(0), np.zeros(0)], offset=[1.0, 1.0]).best == 0


def test_equal_rewards_say_nothing_of_the_rest(seed):
    # The first look sees only zeros; one large reward decides. Without the tolerance arm 1 would win at once.
    for k in range(20):
        rare = np.zeros(3000)
        rare[np.random.default_rng([seed, k]).integers(3000)] = 1e6
        result = sampled([rare, np.random.default_rng(k).normal(0.01, 0.001, 3000)], rng=k)
        assert result.best == 0


def test_one_arm_no_rows_and_impossible_arms():
    one = sampled([np.arange(5.0)])
    assert (one.best, one.stopped_by, one.pulls.sum()) == (0, "single", 0)
    none = sampled([np.zeros(0)] * 3, offset=[0, 2, 1])
    assert (none.best, none.stopped_by, none.fraction_read) == (1, "exact", 0.0)
    vectors = [np.full(100, 5.0) + np.arange(100), np.zeros(100), np.ones(100)]
    dropped = sampled(vectors, offset=[-np.inf, 0.0, 0.0], rng=1)
    assert (dropped.best, dropped.pulls[0], dropped.total[0]) == (2, 0, -np.inf)
    left = sampled(vectors, offset=[-np.inf, 0.0, -np.inf])
    assert (left.best, left.stopped_by, left.pulls.sum()) == (1, "single", 0)
    with pytest.raises(ValueError, match="every arm"):
        sampled(vectors, offset=-np.inf)


def test_minus_infinity_takes_an_arm_out(seed):
    rng = np.random.default_rng(seed)
    vectors = [rng.normal(5, 1, 500), rng.normal(0, 1, 500), rng.normal(-1, 1, 500)]
    vectors[0][:] = -np.inf
    result = sampled(vectors, rng=1)
    assert result.best == 1
    assert (result.total[0], result.pulls[0]) == (-np.inf, 10)
    same(by_hand(racer([500] * 3, rng=1), vectors), result)
    race = racer([500] * 3, rng=1)
    for _ in range(2):
        with pytest.raises(ValueError, match="no arm is possible"):
            race.run([np.full(500, -np.inf)] * 3)


def test_known_parts_of_a_source_count(seed):
    from fastrace.sources import ArraySource

    values = np.random.default_rng(seed).normal(size=(400, 3))

    class Known(ArraySource):
        def shifts(self, arms=None):
            return np.array([0.0, 0.0, 600.0])

    race = racer([400, 200, 300], temperature=2.0, rng=1)
    offset = racer([400, 200, 300], temperature=2.0, offset=[0, 0, 300], rng=1)
    result = race.run(Known(values))
    same(result, offset.run(as_source(values)))
    assert result.best == 2


def test_a_look_asked_for_in_parts_equals_run(seed):
    vectors = [np.random.default_rng([seed, i]).normal(size=n) for i, n in enumerate((700_000, 3_000_000, 900_000))]
    race = racer([len(v) for v in vectors], 1e-9, rng=3)
    asked = []
    while not race.done:
        arms, rows = race.ask()
        asked.append(arms.size)
        race.tell(np.concatenate([vectors[arm][rows[arms == arm]] for arm in range(3)]))
    same(race.result(), racer([len(v) for v in vectors], 1e-9, rng=3).run(vectors))
    assert len(asked) > race.result().n_looks and max(asked) <= 1 << 20


def test_arms_are_read_in_full_where_that_is_cheaper(seed):
    # 8 times cheaper in order: an arm is read in full at its first look of more than an eighth of its rows.
    vectors = [np.random.default_rng([seed, i]).normal(size=n) for i, n in enumerate((3000, 60, 3000, 12))]
    result = fr.race_sums(vectors, delta=1e-9, scan_advantage=8, rng=1)
    assert result.stopped_by == "exact"
    assert np.allclose(result.total, [v.sum() for v in vectors], rtol=1e-13)
    assert result.n_looks == 4                  # a fifth of the rest
    assert sampled(vectors, delta=1e-9, rng=1).n_looks == 6
    easy = fr.race_sums([vectors[0] + 9, *vectors[1:]], scan_advantage=8, rng=1)
    assert (easy.best, easy.pulls.tolist()) == (0, [10, 60, 10, 12])
    # In memory the default is to read in full unless the first look decides.
    assert fr.race_sums(vectors, delta=1e-9, rng=1).n_looks == 2
    for k in range(200):
        vectors, offset = clusters(np.random.default_rng([seed, k]))
        result = fr.race_sums(vectors, delta=1e-300, offset=offset, rng=k)
        assert result.best == exact(vectors, offset)
        assert (result.pulls <= result.n_rows).all()


def test_the_largest_sum_wins_not_the_largest_mean():
    few, many = np.full(10, 5.0), np.full(1000, 1.0)
    assert fr.race_sums([few, many], rng=1).best == 1
    assert "largest sum" in fr.race_sums.__doc__.splitlines()[0]
    with pytest.warns(DeprecationWarning, match="race_sums"):
        assert fr.race_unequal([few, many], rng=1).best == 1
