"""The best m of n arms in one call: every method, every kind of source, tables to their end, ties without one."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

import ctrl_c
import fastrace as fr
from fastrace._base import _clock
from fastrace.pulls import BernoulliPulls
from fastrace.select import _ending
from fastrace.select._ledger import Ledger
from selections import assert_same


@pytest.mark.parametrize("method", ["auto", "lucb", "kl-lucb", "adapt", "direct", "halving", "incremental", "sar"])
def test_select_best_by_every_method(method):
    means = np.array([0.1, 0.9, 0.5, 0.95, 0.2])
    result = fr.select_best(BernoulliPulls(means, rng=1), 5, 2, 0.3, method=method,
                            max_pulls=3000 if method == "sar" else None)
    assert set(np.ravel(result.best).tolist()) == {1, 3}
    assert "best 2 of 5 arms" in str(result)


def test_select_best_sees_how_many_arms_a_table_has():
    pandas = pytest.importorskip("pandas")
    table = np.random.default_rng(1).random((300, 4)) * [0.2, 0.5, 1.0, 0.3]
    for pull in (table, table.tolist(), pandas.DataFrame(table), {str(k): table[:, k] for k in range(4)},
                 fr.sources.ArraySource(table), fr.pulls.ResampledPulls(table, rng=1)):
        assert fr.select_best(pull, epsilon=0.2, rng=1).best == 2
    with pytest.raises(ValueError, match="select_best: n_arms is missing; a function or an object does not show"):
        fr.select_best(lambda arms, counts: np.ones(counts.sum()))
    with pytest.raises(ValueError, match="n_arms is 5, but the rewards have 4: make them agree"):
        fr.select_best(table, 5)
    with pytest.raises(TypeError, match="n_arms is '4' of type str; an integer is needed"):
        fr.select_best(table, "4")


@pytest.mark.parametrize("limit", [1, 3])
def test_select_best_refuses_a_budget_that_leaves_arms_without_a_pull(limit):
    with pytest.raises(ValueError, match=f"select_best: max_pulls is {limit}; at least 4 is needed, one reward"):
        fr.select_best(BernoulliPulls([0.2, 0.5, 0.8, 0.1], rng=1), 4, max_pulls=limit)
    assert fr.select_best(BernoulliPulls([0.2, 0.5], rng=1), 2, 2, max_pulls=limit).stopped_by == "single"
    result = fr.select_best(BernoulliPulls([0.2, 0.5, 0.8, 0.1], rng=1), 4, max_pulls=4)
    assert result.pulls.tolist() == [1, 1, 1, 1] and "max_pulls was reached" in result.warnings[0]


def test_select_best_takes_every_kind_of_source():
    means = np.array([0.1, 0.9, 0.5])
    table = (np.random.default_rng(1).random((5000, 3)) < means).astype(float)

    class Simulator:
        used = np.zeros(3, int)

        def pull(self, arms, counts):
            parts = []
            for i, count in zip(arms, counts, strict=True):
                parts.append(table[self.used[i] : self.used[i] + count, i])
                self.used[i] += count
            return parts

    simulator = Simulator()
    wanted = fr.select_best(table, 3, 1, 0.1, order="given")
    assert_same(fr.select_best(simulator, 3, 1, 0.1), wanted)
    Simulator.used[:] = 0
    assert_same(fr.select_best(lambda arms, counts: np.concatenate(simulator.pull(arms, counts)), 3, 1, 0.1), wanted)
    drawn = fr.select_best(fr.sources.as_source(table), 3, 1, 0.1, rng=5)
    assert_same(drawn, fr.select_best(fr.sources.as_source(table), 3, 1, 0.1, rng=5))
    assert np.ravel(drawn.best).tolist() == [1]
    assert_same(drawn, fr.select_best(table, 3, 1, 0.1, rng=5))           # a table is a population


def test_the_order_of_a_table_does_not_decide_the_selection(seed):
    rng = np.random.default_rng(seed)
    a = np.sort(rng.beta(2, 2, 20_000) * 0.8)
    b = rng.permutation(rng.beta(2, 2, 20_000) * 0.6)
    for table in (np.c_[a, b], np.c_[a, b][::-1]):
        result = fr.select_best(table, 2, rng=seed)
        assert (np.ravel(result.best).tolist(), result.stopped_by) == ([0], "bound")
    assert np.ravel(fr.select_best(np.c_[a, b], 2, order="given").best).tolist() == [1]      # all it reads is the top
    with pytest.raises(ValueError, match="order is 'sorted'"):
        fr.select_best(table, 2, order="sorted")


@pytest.mark.parametrize("method", ["auto", "kl-lucb", "adapt", "direct"])
def test_a_selection_from_a_table_ends_exactly(method, seed):
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(seed)
    table = np.round(rng.random((300, 5)), 3)
    table[:, 3] = rng.permutation(table[:, 1])      # a tie
    mean = table.mean(axis=0)
    for n_best in (1, 2):
        result = fr.select_best(pd.DataFrame(table, columns=list("abcde")), 5, n_best, 1e-4, method=method, rng=1)
        assert result.stopped_by == "exact" and result.error_bound == 0.0
        assert mean[result.best].min() >= np.sort(mean)[-n_best] - 1e-12
        assert result.mean == pytest.approx(mean) and result.pulls.tolist() == [300] * 5 and result.n_repeated > 300
        assert bool(result.warnings) == (np.sort(mean)[-n_best] - np.sort(mean)[-n_best - 1] < 1e-12)
        assert "stopped by exact" in str(result) and result.names == tuple("abcde")
    result = fr.select_best(table, 5, 1, 1e-4, method=method, rng=1, max_pulls=1000)
    assert (result.stopped_by, result.n_read) == ("max_pulls", 1000)
    assert fr.select_best(table, 5, 1, 1e-4, method=method, rng=1, max_pulls=1500).stopped_by == "exact"
    table[250, 2] = 2.0
    with pytest.raises(ValueError, match="arm 2"):
        fr.select_best(table, 5, 1, 1e-4, method=method, rng=1)


def test_the_cost_of_an_exact_selection_is_what_was_asked_for():
    asked = []

    def rewards(arms, rows):
        asked.extend((arm, row) for arm in arms.tolist() for row in rows.tolist())
        return (0.4 + 0.2 * (rows % 2)[:, None]) * np.ones(len(arms))

    result = fr.select_best(fr.sources.as_source(rewards, 5, 300), 5, rng=1)
    assert result.stopped_by == "exact" and result.n_read == len(asked) == len(set(asked)) == 1500
    assert result.pulls.tolist() == [300] * 5
    assert result.warnings == ("arms 1, 2, 3, 4 have the same mean as the last selected arm and were left out",)


def test_arms_are_named_by_the_columns_of_any_table():
    pd, pa = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    columns = {"x": np.linspace(0, 0.5, 400), "y": np.linspace(0.5, 1, 400)}
    for table in (columns, pd.DataFrame(columns), pa.table(columns)):
        for order in ("random", "given"):
            result = fr.select_best(table, 2, epsilon=0.1, order=order, rng=1)
            assert (result.names, np.ravel(result.best).tolist()) == (("x", "y"), [1])
    with pytest.raises(TypeError, match="order is 'given' and pull is a ArraySource"):
        fr.select_best(fr.sources.as_source(columns), 2, order="given")

    class Simulator:
        columns = 3     # no table: what it is called means nothing here

        def pull(self, arms, counts):
            return np.repeat(arms, counts) * 1.0

    assert fr.select_best(Simulator(), 2).names is None


def test_a_reward_outside_is_named_in_plain_numbers_when_a_table_is_read_in_full():
    table = np.full((3000, 2), 0.5)
    table[2999, 1] = -5e-13                 # rounding
    result = fr.select_best(table, 2, rng=1)
    assert result.stopped_by == "exact"
    for bad in (1.5, np.nan):
        table[2998, 1] = bad
        rule = fr.LUCB(2, 1, rng=1)
        ledger = Ledger(2, 3000, False).over(fr.sources.as_source(table))
        with pytest.raises(ValueError, match=rf"arm 1 on row 2998 is {bad}, outside support=\(0.0, 1.0\)") as caught:
            _ending.read_in_full(rule._core, ledger, np.array([1]), (np.zeros(2), np.ones(2)), "raise", np.inf)
        assert "outside='warn'" not in str(caught.value)
    assert fr.sources.first_outside(table, np.zeros(2), np.ones(2)) == (2998, 1)
    table[7, 0] = 2.0
    assert fr.sources.first_outside(table, np.zeros(2), np.ones(2)) == (7, 0)


def test_progress_changes_nothing(capsys, recwarn):
    pytest.importorskip("rich")
    means = np.linspace(0.1, 0.9, 10)
    a = fr.select_best(BernoulliPulls(means, rng=1), 10, 3, 0.05)
    b = fr.select_best(BernoulliPulls(means, rng=1), 10, 3, 0.05, progress=True)
    assert_same(a, b)
    c = fr.select_best(BernoulliPulls(means, rng=1), 10, 3, 0.05, progress=True, max_pulls=777)
    assert (c.n_read, c.stopped_by) == (777, "max_pulls")
    assert not [w for w in recwarn if "never ends" in str(w.message)]
    assert "pulls" in capsys.readouterr().err


def test_plots(tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    result = fr.LUCB(6, 2, 0.05, rule="intervals").run(BernoulliPulls(np.linspace(0.2, 0.8, 6), rng=1))
    panels = result.plot()
    assert [panel.get_xlabel() for panel in panels] == ["mean reward and interval", "pulls", "pulls"]
    panels[0].figure.savefig(tmp_path / "all.png")
    line = panels[0].get_lines()
    assert any(np.allclose(one.get_xdata(), result.cutoff) for one in line if len(one.get_xdata()) == 2)
    heights = sorted(patch.get_width() for patch in panels[1].patches)
    assert heights == sorted(result.pulls.tolist())
    pulls, value = result.trace
    assert (np.diff(pulls) > 0).all()
    assert value[-1] < 0.05 <= value[:-1].min()
    assert result.plot("pulls", plt.figure().add_subplot()).get_xlabel() == "pulls"
    pulls, value = fr.LUCB(6, 2, 0.05).run(BernoulliPulls(np.linspace(0.2, 0.8, 6), rng=1)).trace
    assert (np.diff(pulls) > 0).all() and value[-1] <= 0.05 < value[:-1].min() and value.max() == 1.0
    sar = fr.SAR(6, 2, 500).run(BernoulliPulls(np.linspace(0.2, 0.8, 6), rng=1))
    assert len(sar.plot()) == 2
    with pytest.raises(ValueError, match="keeps no trace"):
        sar.plot("trace")
    cut = fr.LUCB(6, 2).run(BernoulliPulls(np.linspace(0.2, 0.8, 6), rng=1), 6)
    cut.plot()[0].figure.savefig(tmp_path / "cut.png")
    plt.close("all")

# Without an end.


class Enough(Exception):
    """Of a simulator that has been asked too often."""


@pytest.mark.parametrize("method", ["auto", "kl-lucb"])
def test_a_tie_is_said_to_have_no_end_and_keeps_its_pulls(method):
    source = BernoulliPulls([0.5, 0.2, 0.5], rng=1)

    def pull(arms, counts):
        if made[0] > 1_100_000:
            raise Enough("enough")
        made[0] += int(counts.sum())
        return source.read(arms, counts)

    made = [0]
    with pytest.warns(RuntimeWarning, match=r"1,0\d\d,\d\d\d pulls have not told arm [02].*never ends"), \
            pytest.raises(Enough, match=r"^enough") as raised:
        fr.select_best(pull, 3, method=method, batch=1000)
    rule = raised.value.rule
    assert "error.rule.run(pull) goes on" in "".join(raised.value.__notes__)
    assert rule.n_pulls == made[0] > 1_100_000
    assert np.ravel(rule.result().best)[0] in (0, 2)
    assert rule.run(source, rule.n_pulls + 2000).stopped_by == "max_pulls"


@pytest.mark.parametrize(("rule", "options"), [(fr.LUCB, {}), (fr.LUCB, {"paired": True}), (fr.KLLUCB, {}),
                                               (fr.LUCB, {"bound": "eb-mix"})], ids=str)
def test_a_rule_says_itself_that_a_tie_has_no_end(rule, options):
    """With the interval of the difference, where the rule has one; where its caller stands."""
    source, made = BernoulliPulls([0.5, 0.2, 0.5], rng=1), [0]

    def pull(arms, counts):
        made[0] += int(counts.sum())
        if made[0] > 1_100_000:
            raise Enough("enough")
        return source.read(arms, counts)

    rule = rule(3, 1, batch=1000, names=["a", "b", "c"], **options)
    with pytest.warns(RuntimeWarning, match=r"1,0\d\d,\d\d\d pulls have not told arm [ac] .* from arm [ac] .*"
                                            r"never ends.*give epsilon.*or max_pulls") as said, pytest.raises(Enough):
        rule.run(pull)
    assert len(said) == 1 and said[0].filename == __file__
    found = re.search(r"less the first lies between (-0\.\d+) and (0\.\d+)\.", str(said[0].message))
    assert found and "select_best" not in str(said[0].message)


def test_a_tie_with_seconds_is_said_to_end_by_them(monkeypatch):
    """The clock here counts pulls, so that no machine is too slow for it."""
    source, made = BernoulliPulls([0.5, 0.2, 0.5], rng=1), [0]
    monkeypatch.setattr(_clock, "time", SimpleNamespace(monotonic=lambda: made[0] / 1e6))

    def pull(arms, counts):
        made[0] += int(counts.sum())
        return source.read(arms, counts)

    with pytest.warns(RuntimeWarning, match="equal, only max_seconds ends this, with intervals that hold") as said:
        result = fr.LUCB(3, 1, batch=1000).run(pull, max_seconds=1.5)
    assert len(said) == 1 and "never ends" not in str(said[0].message)
    assert result.stopped_by == "max_seconds" and 1_500_000 <= made[0] < 1_600_000
    assert (result.lower[[0, 2]] < 0.5).all() and (result.upper[[0, 2]] > 0.5).all()


def test_a_tied_table_ends_every_rule(recwarn):
    table = np.tile([[0.0, 1.0], [1.0, 0.0]], (500, 1))
    for rule in (fr.LUCB(2, 1, rng=1), fr.LUCB(2, 1, paired=True, rng=1), fr.KLLUCB(2, 1, rng=1)):
        assert (rule.run(table).stopped_by, rule.run(table).n_read) == ("exact", 2000)
    assert not [w for w in recwarn if "never ends" in str(w.message)]


def test_what_ends_is_not_doubted(recwarn):
    source = BernoulliPulls([0.5, 0.2, 0.5], rng=1)
    assert fr.select_best(source, 3, max_pulls=1_200_000).stopped_by == "max_pulls"
    assert fr.select_best(source, 3, epsilon=0.05).stopped_by == "epsilon"
    assert fr.select_best(source, 3, 2).stopped_by == "bound"
    assert fr.SAR(3, 1, 1_200_000).run(source).stopped_by == "budget"
    table = np.tile([[0.0, 1.0], [1.0, 0.0]], (500, 1))
    assert np.ravel(fr.select_best(table, 2).best).tolist() == [0]            # equal means, known exactly
    assert not [w for w in recwarn if "never ends" in str(w.message)]


def test_ctrl_c_in_one_call_gives_the_rule():
    raised = []

    def run():
        try:
            fr.select_best(BernoulliPulls([0.5, 0.5], rng=1), 2)
        except KeyboardInterrupt as error:
            raised.append(error)
            raise

    with pytest.warns(RuntimeWarning, match="never ends"):
        assert ctrl_c.press(run, 1, 0.3) == 1
    assert raised[0].rule.n_pulls > 1_000_000


# Words and doors that people have tripped over


@pytest.mark.parametrize("method", ["lucb", "adapt", "direct"])
def test_a_random_state_seeds_a_selection_and_its_calls(method):
    """Its generator knows no seed to spawn from."""
    table = np.random.default_rng(3).random((300, 3))
    found = [fr.select_best(table, epsilon=0.4, method=method, rng=np.random.RandomState(seed)) for seed in (1, 1, 2)]
    assert found[0].mean.tolist() == found[1].mean.tolist() != found[2].mean.tolist()
    rule = fr.LUCB(3, 1, 0.1, rng=np.random.RandomState(1))
    first, second = (rule.run(table, max_pulls=100 * k) for k in (1, 2))
    assert second.n_read > first.n_read         # a call that goes on draws rows of its own


@pytest.mark.parametrize("options", [{}, {"paired": True}])
@pytest.mark.parametrize("bad", [np.nan, 7.0])
def test_the_row_of_a_bad_reward_of_a_table_is_said(bad, options):
    table = np.random.default_rng(3).random((3000, 3))
    spoilt = range(7, 3000, 80)
    table[spoilt, 1] = bad
    for seed in range(5):
        with pytest.raises(ValueError, match=f"reward .* of arm 1 is {bad}") as caught:
            fr.select_best(table, epsilon=0.001, rng=seed, **options)
        assert int(re.search(r"of arm 1 is in row (\d+) of the table", caught.value.__notes__[0])[1]) in spoilt


@pytest.mark.parametrize("door", [lambda table: fr.race(table), lambda table: fr.select_best(table),
                                  lambda table: fr.BettingRace(3, support=(0, 1)).run(table)])
def test_a_sparse_table_is_refused_in_words(door):
    sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(TypeError, match=r"a sparse csr_array of shape \(40, 3\).*toarray\(\)"):
        door(sparse.csr_array(np.eye(40)[:, :3]))
