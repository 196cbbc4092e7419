"""Races on streams: equal to testing every bound after every round, whatever the source and the blocks."""

import math
import pickle
import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import fastrace as fr
from fastrace._base import _clock
from fastrace.sources import CallableSource
from guarantee import few_or_many
from stream_races import EXACT, RACES, assert_equals_twin, assert_same, drive


def golden_stream(t, m):
    return np.modf(t * 0.6180339887498949 + 0.37 * m)[0]


@pytest.fixture(scope="module")
def golden():
    t = np.arange(1, 4001)
    bases, widths = (0.5, 0.48, 0.45, 0.4, 0.3), (0.1, 0.1, 0.3, 0.6, 0.6)
    streams = enumerate(zip(bases, widths, strict=True))
    return np.stack([b + w * (golden_stream(t, m) - 0.5) for m, (b, w) in streams], axis=1)


@pytest.mark.parametrize(("race", "epsilon", "pulls", "active", "why"), [
    (fr.HoeffdingRace, 0.0, [4000, 4000, 4000, 2720, 679], [0, 1, 2], "horizon"),
    (fr.BernsteinRace, 0.0, [4000, 4000, 2261, 1215, 548], [0, 1], "horizon"),
    (fr.BernsteinRace, 0.05, [1950, 1950, 1950, 1215, 548], [0, 1, 2], "epsilon"),
])
def test_known_answers(golden, race, epsilon, pulls, active, why):
    result = race(5, 4000, 0.05, (0, 1), epsilon=epsilon).run(golden, order="given")
    assert result.pulls.tolist() == pulls
    assert result.active.tolist() == active
    assert (result.best, result.stopped_by) == (0, why)
    assert result.work_saved == 1 - sum(pulls) / 20000


def test_bets_need_far_fewer_rewards(golden):
    result = fr.BettingRace(5, support=(0, 1)).run(golden, order="given")
    assert (result.best, result.stopped_by) == (0, "bound")
    assert result.pulls.sum() * 6 < 12024


@pytest.mark.parametrize("race", RACES)
@pytest.mark.parametrize("n_best", [1, 3])
@few_or_many("tables", 12, 100)
def test_every_drop_equals_the_plain_twin(race, n_best, tables, seed):
    for k in range(tables):
        rng = np.random.default_rng([seed, k])
        n_arms, n_rows = int(rng.integers(n_best, 9)), int(rng.choice([1, 64, 200, 400]))
        noise = rng.choice([0.02, 0.3, 1.0])
        rewards = np.clip(rng.random(n_arms) + noise * (rng.random((n_rows, n_arms)) - 0.5), 0, 1)
        if k % 3 == 0:
            rewards = np.round(rewards, 1)      # ties
        support = (0, 1) if k % 2 else (-0.5 * rng.random(n_arms), 1 + rng.random(n_arms))
        epsilon = float(rng.choice([0.0, 0.1, 0.3])) if n_best == 1 else 0.0
        horizon = int(rng.choice([n_rows, n_rows + 5, max(n_rows // 2, 1)]))
        result = race(n_arms, horizon, 0.05, support, epsilon=epsilon, n_best=n_best).run(rewards, order="given")
        assert_equals_twin(race, result, rewards, horizon, support, epsilon, n_best)


@pytest.mark.parametrize("race", EXACT)
def test_several_best_arms_are_found_by_brackets_intersected_over_time(race, seed):
    # The brackets of the last round alone would take more rewards. Hundreds of blocks equal single rounds.
    rng = np.random.default_rng(seed)
    rewards = (rng.random((6000, 12)) < np.linspace(0.9, 0.1, 12)).astype(float)
    result = race(12, 6000, 0.05, (0, 1), n_best=5).run(rewards, order="given")
    assert_equals_twin(race, result, rewards, 6000, (0, 1), 0.0, 5)
    assert_same(result, drive(race(12, 6000, 0.05, (0, 1), n_best=5), rewards))
    for arm in range(12):
        assert result.lower[arm] <= result.mean[arm] <= result.upper[arm]


@pytest.mark.parametrize("race", EXACT)
@pytest.mark.parametrize("batch", [1, 100])
def test_an_empty_intersection_ends_a_race_for_several_arms(race, batch):
    # Four equal arms, of which no bound can tell two: but their mean moves.
    rewards = np.repeat([1.0, 0.0], [2000, 4000])[:, None] * np.ones(4)
    result = drive(race(4, 6000, 0.05, (0, 1), n_best=2), rewards, batch)
    assert result.stopped_by == "inconsistent"
    assert 2000 < result.n_rounds < 6000
    assert "a bracket became empty" in result.promise
    assert_same(result, race(4, 6000, 0.05, (0, 1), n_best=2).run(rewards, order="given"))


@pytest.mark.parametrize("race", EXACT)
def test_blocks_that_cannot_decide_are_told_from_those_that_can(race, seed):
    # Many arms leave at many different rounds, over hundreds of blocks: testing round by round is the judge.
    rng = np.random.default_rng(seed)
    rewards = np.clip(np.linspace(0.2, 0.8, 60) + 0.3 * (rng.random((12000, 60)) - 0.5), 0, 1)
    result = race(60, 12000, 0.05, (0, 1)).run(rewards, order="given")
    assert len(set(result.pulls)) > 25
    assert_same(result, drive(race(60, 12000, 0.05, (0, 1)), rewards))


@pytest.mark.parametrize("race", RACES)
@pytest.mark.parametrize("n_best", [1, 2])
def test_ask_tell_equals_run_in_any_blocks(race, n_best, seed):
    rewards = np.random.default_rng(seed).random((2000, 6)) ** np.linspace(0.4, 3, 6)
    wanted = race(6, 2000, 0.05, (0, 1), n_best=n_best).run(rewards, order="given")
    for batch in (1, 7, 64, 100, 2000):
        assert_same(drive(race(6, 2000, 0.05, (0, 1), n_best=n_best), rewards, batch), wanted)
    part = race(6, 2000, 0.05, (0, 1), n_best=n_best)
    for end in (5, 64, 150, 151, 2000):
        result = part.run(rewards[:end], order="given")
    assert_same(result, wanted)


@pytest.mark.parametrize("race", RACES)
def test_every_kind_of_source_gives_the_same_race(race, seed):
    rewards = np.random.default_rng(seed).random((1500, 5)).astype("f4") * np.linspace(0.3, 1, 5, dtype="f4")
    wanted = race(5, 1500, 0.05, (0, 1)).run(rewards.astype(np.float64), order="given")
    wide = np.zeros((3000, 10), dtype=np.float32)
    wide[::2, ::2] = rewards
    read_only = rewards.copy()
    read_only.setflags(write=False)
    for table in (rewards, np.asfortranarray(rewards), wide[::2, ::2], read_only, rewards.astype(">f8"),
                  rewards[::-1].copy()[::-1], rewards.tolist()):
        assert_same(race(5, 1500, 0.05, (0, 1)).run(table, order="given"), wanted)
    asked = []

    def function(arms, rows):
        asked.append((len(arms), len(rows)))
        return rewards[np.ix_(rows, arms)].astype(np.float64)

    for batch in (1, 50, 10000):
        assert_same(race(5, 1500, 0.05, (0, 1)).run(function, batch=batch), wanted)
        assert_same(race(5, 1500, 0.05, (0, 1)).run(CallableSource(function, 5, 1500), batch, order="given"), wanted)
    asked.clear()
    race(5, 1500, 0.05, (0, 1)).run(function)
    assert sum(arms * rows for arms, rows in asked) == wanted.pulls.sum()      # nothing is paid for that is not used


@pytest.mark.parametrize("race", RACES)
def test_one_arm_and_all_arms(race):
    result = race(1, 100, 0.05, (0, 1)).run(np.ones((100, 1)))
    assert (result.best, result.stopped_by, result.n_rounds, result.pulls.sum()) == (0, "single", 0, 0)
    assert "there is one arm only" in str(result)
    result = race(3, 100, 0.05, (0, 1), n_best=3).result()
    assert (np.atleast_1d(result.best).tolist(), result.stopped_by, result.n_rounds) == ([0, 1, 2], "single", 0)


@pytest.mark.parametrize("race", RACES)
def test_ties_stay_to_the_horizon(race, seed):
    rewards = np.repeat(np.random.default_rng(seed).random((900, 1)), 3, axis=1)
    rewards[:, 1] *= 0.1
    result = race(3, 900, 0.05, (0, 1)).run(rewards, order="given")
    assert (result.stopped_by, result.n_rounds, result.best) == ("horizon", 900, 0)
    (spent,) = result.warnings
    assert spent.startswith("horizon was reached: best is the arm with the largest mean so far")
    assert f"among the {result.active.size} that" in spent and f"warning: {spent}" in str(result)
    assert result.active.tolist() == [0, 2]
    result = race(4, 50, 0.05, (0, 1)).run(np.full((50, 4), 0.25), order="given")
    assert (result.stopped_by, result.active.size, result.work_saved) == ("horizon", 4, 0.0)


def test_constant_rewards_separate_by_the_range_term():
    rewards = np.full((4000, 3), 0.2)
    rewards[:, 1] = 0.7
    result = fr.BernsteinRace(3, 4000, 0.05, (0, 1)).run(rewards, order="given")
    share = math.log(3 * 3 * 4000 / 0.05)
    assert result.pulls.tolist() == [math.floor(6 * share / 0.5) + 1] * 3       # 2 (3 R L / t) < gap
    assert (result.std < 1e-12).all()
    bets = fr.BettingRace(3, support=(0, 1)).run(rewards, order="given")
    assert (bets.best, bets.stopped_by) == (1, "bound")
    assert bets.n_rounds < 40


@pytest.mark.parametrize("race", RACES)
@pytest.mark.parametrize(("a", "b"), [(0, 10), (-5, 5), (1e6, 1e6 + 1), (-1e-6, 1e-6)])
def test_affine_invariance(race, a, b, seed):
    rewards = np.random.default_rng(seed).integers(0, 1 << 20, (1500, 5)) / float(1 << 20) * np.linspace(0.3, 1, 5)
    plain = race(5, 1500, 0.05, (0, 1)).run(rewards, order="given")
    mapped = race(5, 1500, 0.05, (a, b)).run(a + (b - a) * rewards, order="given")
    assert abs(mapped.pulls - plain.pulls).max() <= (0 if abs(a) < 100 else 1)
    assert np.allclose((mapped.mean - a) / (b - a), plain.mean, atol=1e-9 + 1e-15 * abs(a) / (b - a))


@pytest.mark.parametrize("race", RACES)
def test_permuted_arms_give_permuted_answers(race, seed):
    rng = np.random.default_rng(seed)
    rewards = rng.random((1500, 7)) * np.linspace(0.3, 1, 7)
    order = rng.permutation(7)
    for n_best in (1, 3):
        plain = race(7, 1500, 0.05, (0, 1), n_best=n_best).run(rewards, order="given")
        moved = race(7, 1500, 0.05, (0, 1), n_best=n_best).run(rewards[:, order], order="given")
        assert np.array_equal(moved.pulls, plain.pulls[order])
        assert sorted(order[np.atleast_1d(moved.best)]) == np.sort(np.atleast_1d(plain.best)).tolist()


def test_long_races_keep_their_accuracy():
    # A mean far from zero beside a small variance, over many blocks.
    rewards = np.broadcast_to(np.float64(1e9 + 0.1), (1 << 22, 2))
    result = fr.BernsteinRace(2, 1 << 22, 0.05, (1e9, 1e9 + 1)).run(rewards, order="given")
    assert (result.mean == 1e9 + 0.1).all()
    assert (result.std < 1e-6).all()
    assert result.n_rounds == 1 << 22


def test_results_print_and_plot(seed):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    pandas = pytest.importorskip("pandas")
    rewards = np.random.default_rng(seed).random((500, 12)) * np.linspace(0.3, 1, 12)
    frame = pandas.DataFrame(rewards, columns=[f"arm{i}" for i in range(12)])
    for race in RACES:
        result = race(12, 500, 0.05, (0, 1)).run(frame)
        text = str(result)
        assert "arm11" in text and "2 more arms" in text and "promise:" in text
        assert result.plot()[0].get_xlabel() == "mean reward and interval"
        assert "after" in repr(race(12, 500, 0.05, (0, 1)))


def test_selection_in_ranks(seed):
    # The k-th largest, ties and all, through races that need it: equal lower bounds must not confuse it.
    rng = np.random.default_rng(seed)
    rewards = rng.integers(0, 2, (300, 9)) * np.linspace(0.2, 1, 9)
    for n_best in range(1, 9):
        result = fr.HoeffdingRace(9, 300, 0.05, (0, 1), n_best=n_best).run(rewards, order="given")
        assert_equals_twin(fr.HoeffdingRace, result, rewards, 300, (0, 1), 0.0, n_best)


@pytest.mark.parametrize("kind", [fr.HoeffdingRace, fr.BernsteinRace, fr.BettingRace])
def test_brackets_stay_within_the_support(kind):
    low, high = [0.0, -1.0, 2.0], [1.0, 1.0, 3.0]
    race = kind(3, 300, support=(low, high))
    while not race.done and race.result().n_rounds < 5:
        race.ask()
        race.tell([[0.5, 0.9, 2.1]])
        result = race.result()
        assert (low <= result.lower).all() and (result.upper <= high).all()
        assert (result.lower < result.mean).all() and (result.mean < result.upper).all()
        assert np.nanmax(result.shortfall) <= 4.0


@pytest.mark.parametrize("race", RACES)
def test_a_budget_stops_a_race_that_may_go_on(race, seed):
    rewards = np.random.default_rng(seed).random((3000, 5)) * [0.6, 0.7, 0.8, 0.9, 1.0]
    wanted = race(5, 3000, 0.05, (0, 1)).run(rewards, order="given")
    for pay in (lambda: rewards, lambda: lambda arms, rounds: rewards[np.ix_(rounds, arms)]):
        part = race(5, 3000, 0.05, (0, 1))
        spent = 0
        for limit in (0, 3):
            with pytest.raises(ValueError, match=f"max_pulls is {limit}; at least"):
                part.run(pay(), batch=9, max_pulls=limit, order="given")
        for budget in (5, 57, 400, int(wanted.pulls.sum()) - 1):
            result = part.run(pay(), batch=9, max_pulls=budget, order="given")
            assert result.stopped_by == "max_pulls" and not part.done
            assert spent <= result.pulls.sum() <= budget < result.pulls.sum() + result.active.size
            assert "max_pulls was reached" in result.warnings[0]
            assert len(result.verdict) == 5 and result.differences.shape == (5, 2)
            spent = result.pulls.sum()
            part = pickle.loads(pickle.dumps(part))
        assert_same(part.run(pay(), order="given"), wanted)
    with pytest.raises(ValueError, match="max_pulls is -1"):
        part.run(rewards, max_pulls=-1)


@pytest.mark.parametrize("order", ["random", "given"])
@pytest.mark.parametrize("build", [
    lambda **more: fr.BettingRace(4, None, 0.05, (0, 1), **more),
    lambda **more: fr.BernsteinRace(4, 20_000, 0.05, (0, 1), n_best=2, **more),
    lambda **more: fr.HoeffdingRace(4, 20_000, 0.05, (0, 1), **more)])
def test_costs_are_added_up_and_progress_changes_nothing(build, order, capsys):
    pytest.importorskip("rich")
    values = 0.6 * np.random.default_rng(0).random((20_000, 4)) + [0.0, 0.1, 0.2, 0.4]
    plain = build().run(values, order=order, rng=1)
    race = build(cost=[1, 2, 3, 4])
    found = race.run(values, order=order, rng=1, progress=True)
    assert f"{found.n_read}/" in capsys.readouterr().err
    assert plain.cost is None and found.cost == found.pulls @ [1, 2, 3, 4] and f"cost {found.cost:g}" in str(found)
    assert replace(found, cost=None) == plain
    assert pickle.loads(pickle.dumps(race)).result() == found
    calls = []

    def function(arms, rows):
        calls.append(len(rows))
        return values[np.ix_(rows, arms)]

    batches = [(build().run(function, 7, progress=shown).n_read, calls[:], calls.clear()) for shown in (False, True)]
    assert batches[0][0] == batches[1][0]
    cut = build().run(values, max_pulls=81, order=order, rng=1, progress=True)
    assert cut.stopped_by == "max_pulls" and cut.n_read == 80
    short = build().run(values[:10], order="given", progress=True)
    assert short.stopped_by == "" and short.n_rounds == 10
    with pytest.raises(ValueError, match="cost"):
        build(cost=[1, 2])


class Enough(Exception):
    """Stands for Ctrl-C."""


def test_a_tie_with_seconds_is_said_to_end_by_them(monkeypatch):
    """The clock here counts rounds, so that no machine is too slow for it."""
    rng, made = np.random.default_rng(3), [0]
    monkeypatch.setattr(_clock, "time", SimpleNamespace(monotonic=lambda: made[0] / 1e6))

    def rewards(arms, rounds):
        made[0] = int(rounds[-1])
        return rng.random((len(rounds), len(arms))) < 0.5

    with pytest.warns(RuntimeWarning, match="equal, only max_seconds ends this, with intervals that hold") as said:
        result = fr.BettingRace(2, support=(0, 1)).run(rewards, 5000, max_seconds=0.6)
    assert len(said) == 1 and "never ends" not in str(said[0].message)
    assert result.stopped_by == "max_seconds" and 600_000 <= result.n_rounds < 700_000
    assert (result.lower < 0.5).all() and (result.upper > 0.5).all()


@pytest.mark.parametrize("options", [{}, {"n_best": 2}, {"rule": "brackets"}, {"missing": "drop"}], ids=str)
def test_a_tie_is_said_to_have_no_end(options):
    """Once, with the arms and the interval of their difference; not where a budget, a horizon or epsilon ends it."""
    rng, n_best = np.random.default_rng(3), options.get("n_best", 1)
    means = np.array([0.5, 0.9, 0.5] if n_best == 2 else [0.5, 0.2, 0.5])

    def rewards(arms, rounds):
        if rounds[-1] > 600_000:
            raise Enough("enough")
        return rng.random((len(rounds), len(arms))) < means[arms]

    def make(**more):
        return fr.BettingRace(3, support=(0, 1), names=["a", "b", "c"], **options, **more)

    race = make()
    with pytest.warns(RuntimeWarning, match=r"rewards have not told arm [ac] .* from arm [ac] .*; the second less the "
                                            r"first lies between -0\.0\d+ and 0\.0\d+\. .*give epsilon.*or max_pulls"
                      ) as said, pytest.raises(Enough):
        race.run(rewards, 5000)
    assert len(said) == 1 and said[0].filename == __file__
    assert int(str(said[0].message).split()[0].replace(",", "")) in range(1_000_000, 1_020_000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert make().run(rewards, 5000, max_pulls=1_100_000).stopped_by == "max_pulls"
        if options.get("rule") is None:
            assert make(epsilon=0.05).run(rewards, 5000).stopped_by == "epsilon"
        assert make(horizon=550_000).run(rewards, 5000).stopped_by == "horizon"
