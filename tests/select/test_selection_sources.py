"""Where rewards of a selection come from: every kind of source gives the same, tables are read at random."""

import ctypes
import pickle

import numpy as np
import pytest
from scipy import LowLevelCallable, stats

import fastrace as fr
from fastrace.pulls import BernoulliPulls, RecordedPulls, ResampledPulls, UniformPulls, as_pulls
from guarantee import assert_fits
from selections import RULES, assert_same


def test_sources_of_every_kind_give_the_same(seed):
    table = np.random.default_rng(seed).random((4000, 4)) * [0.5, 0.9, 1.0, 0.6]

    class Simulator:
        def __init__(self):
            self.source = RecordedPulls(table)

        def pull(self, arms, counts):
            return self.source.read(arms, counts).astype("f8")

    def listed():
        simulator = Simulator()
        return lambda arms, counts: np.split(simulator.pull(arms, counts), counts.cumsum()[:-1])

    used = [0] * 4

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_ssize_t), ctypes.POINTER(ctypes.c_int64), ctypes.c_ssize_t,
                      ctypes.POINTER(ctypes.c_double))
    def compiled(arms, counts, n, out):
        at = 0
        for k in range(n):
            for _ in range(counts[k]):
                out[at] = table[used[arms[k]], arms[k]]
                used[arms[k]] += 1
                at += 1
        return 0

    def make():
        return fr.Adapt(4, 2, 0.1, 0.1, batch=9, rng=3)

    wanted = make().run(table, order="given")
    for source in (RecordedPulls(table), Simulator(), Simulator().pull, listed(), LowLevelCallable(compiled),
                   np.asfortranarray(table), table.tolist()):
        assert_same(make().run(source, order="given"), wanted)


def test_rows_drawn_with_replacement(seed):
    table = np.random.default_rng(seed).random((50, 3))
    drawn = ResampledPulls(table, rng=1).read([2, 0], [3000, 500])
    assert set(drawn[:3000]) <= set(table[:, 2]) and set(drawn[3000:]) <= set(table[:, 0])
    counts = [(drawn[:3000] == x).sum() for x in table[:, 2]]
    assert_fits(counts, [1 / 50] * 50)
    again = ResampledPulls(lambda arms, rows: table[np.ix_(rows, arms)], rng=1, n_arms=3, n_rows=50)
    assert np.array_equal(again.read([2, 0], [3000, 500]), drawn)
    with pytest.raises(TypeError, match="ResampledPulls"):
        as_pulls(fr.sources.ArraySource(table), 3, order="given")
    for source in (table, table.tolist(), fr.sources.ArraySource(table), dict(enumerate(table.T))):
        assert np.array_equal(as_pulls(source, 3, rng=1).read([2, 0], [3000, 500]), drawn)


TABLE_RULES = RULES | {
    "KLLUCB": lambda n, m: fr.KLLUCB(n, m, 0.3, 0.1, rng=1), "LUCB": lambda n, m: fr.LUCB(n, m, 0.3, 0.1, rng=1),
    "SAR": lambda n, m: fr.SAR(n, m, 3000, rng=1), "SubsetRace": lambda n, m: fr.SubsetRace(n, m, 4000, rng=1),
}


@pytest.mark.parametrize("name", TABLE_RULES)
def test_a_sorted_table_is_read_at_random(name):
    """Row by row from the top, arm 1 would win: its column is shuffled, that of the best arm begins with zeros."""
    table = np.c_[np.sort(np.arange(20_000) % 10 < 8), np.arange(20_000) % 10 < 3].astype(float)
    for source in (table, table[::-1], fr.sources.as_source(table)):
        assert np.ravel(TABLE_RULES[name](2, 1).run(source, 30_000).best).tolist() == [0]
    assert np.ravel(TABLE_RULES[name](2, 1).run(table, 2000, order="given").best).tolist() == [1]


def assert_same_means(result, other):
    for name in ("best", "mean", "lower", "upper", "error_bound"):
        assert np.array_equal(getattr(result, name), getattr(other, name)), name


def test_rows_of_a_table_are_drawn_by_the_rule_or_as_told(seed):
    table = np.random.default_rng(seed).random((500, 3))
    whole, child = fr.LUCB(3, 1, rng=5), np.random.default_rng(5).spawn(1)[0]
    first = whole.run(table, 400)
    same, drawn = fr.LUCB(3, 1, rng=5), whole.n_pulls
    assert_same_means(first, same.run(ResampledPulls(table, child), drawn))
    told = fr.LUCB(3, 1)
    assert_same_means(told.run(table, 400, rng=7), fr.LUCB(3, 1).run(ResampledPulls(table, 7), told.n_pulls))
    again = pickle.loads(pickle.dumps(whole))
    made = whole._core._made()
    on = whole.run(table, 480)
    assert_same(on, again.run(table, 480))
    later = whole._core._made()
    drawn_later = (on.mean * later - first.mean * made) / (later - made)
    assert not np.isclose(drawn_later, first.mean).any()        # a call that goes on draws rows of its own
    columns = {"a": table[:, 0], "b": table[:, 1], "c": table[:, 2]}
    for order in ("random", "given"):
        assert fr.LUCB(3, 1).run(columns, 100, order=order).names == ("a", "b", "c")
    with pytest.raises(TypeError, match="order is 'given' and pull is a ArraySource"):
        fr.LUCB(3, 1).run(fr.sources.as_source(table), order="given")
    with pytest.raises(ValueError, match="order is 'sorted'"):
        fr.LUCB(3, 1).run(table, order="sorted")
    with pytest.raises(ValueError, match="masked"):
        fr.LUCB(3, 1).run(np.ma.masked_less(table, 0.1), order="given")


def test_random_sources_draw_what_they_say(seed):
    source = BernoulliPulls([0.2, 0.7], rng=seed)
    ones = int(source.read([1], [20_000]).sum())
    assert_fits([ones, 20_000 - ones], [0.7, 0.3])
    rewards = UniformPulls([0.0, -2.0], [1.0, 4.0], rng=seed).read([1], [5000])
    assert stats.kstest((rewards + 2) / 6, "uniform").pvalue > 1e-6
    one, two = BernoulliPulls([0.5], rng=seed), BernoulliPulls([0.5], rng=seed)
    pieces = [one.read([0], [k]) for k in (1, 300, 7)]
    assert np.array_equal(np.concatenate(pieces), two.read([0], [308]))
    assert np.array_equal(pickle.loads(pickle.dumps(one)).read([0], [400]), one.read([0], [400]))


def test_recorded_rewards_that_run_out_name_the_arm():
    rule = fr.Direct(2, 1, 0.5)
    with pytest.raises(ValueError, match=r"arm 0 .* has 20 of its 20|arm 0 is to be pulled"):
        rule.run(np.full((20, 2), 0.5), order="given")
    assert rule.run(np.full((20, 2), 0.5), max_pulls=30, order="given").stopped_by == "max_pulls"
