"""What every rule for the m best arms does: the same by hand and by run(), saved, for any support, at any cost."""

import copy
import math
import pickle

import numpy as np
import pytest

import fastrace as fr
from fastrace.pulls import BernoulliPulls, RecordedPulls
from selections import MEANS, assert_same, drive, every_rule


@every_rule
def test_by_hand_equals_run(make, seed):
    by_run = make(6, 2).run(BernoulliPulls(MEANS, rng=seed))
    assert_same(drive(make(6, 2), BernoulliPulls(MEANS, rng=seed)), by_run)
    assert sorted(np.ravel(by_run.best).tolist()) == [1, 3]
    assert np.ravel(by_run.best)[0] == by_run.mean.argmax()
    assert by_run.stopped_by and by_run.n_read == by_run.pulls.sum()
    assert f"{by_run.n_read} pulls" in str(by_run)


@every_rule
def test_a_saved_rule_goes_on_as_the_original(make, seed):
    rewards = (np.random.default_rng(seed).random((20_000, 6)) < MEANS).astype(float)   # the same in any order of arms
    wanted = make(6, 2).run(RecordedPulls(rewards))
    for cut in np.random.default_rng(seed).integers(0, wanted.n_read, 8):
        rule, source = make(6, 2), RecordedPulls(rewards)
        rule.run(source, max_pulls=int(cut))
        assert rule.n_pulls == cut
        again, its_source = pickle.loads(pickle.dumps((rule, source)))
        twin_rule = copy.deepcopy(rule)
        copied = copy.copy(rule)
        assert_same(rule.run(source), wanted)
        assert_same(again.run(its_source), wanted)
        assert twin_rule.n_pulls == copied.n_pulls == cut


class Named(fr.LUCB):
    """A user's rule with an argument list and an attribute of its own."""

    def __init__(self, name):
        super().__init__(4, 1, 0.1)
        self.name = name


def test_a_subclass_with_arguments_of_its_own_is_saved(seed):
    rule, source = Named("mine"), BernoulliPulls([0.1, 0.5, 0.6, 0.2], rng=seed)
    rule.run(source, 50)
    again, its_source = pickle.loads(pickle.dumps((rule, source)))
    assert (type(again), again.name) == (Named, "mine")
    assert_same(again.run(its_source), rule.run(source))


@every_rule
def test_all_arms_one_arm_and_m_of_one(make, seed):
    for n in (1, 6):
        result = make(n, n).run(lambda arms, counts: 1 / 0)
        assert np.ravel(result.best).tolist() == list(range(n)) and result.stopped_by == "single"
        assert result.n_read == 0 and result.error_bound == 0.0
    assert np.ravel(make(6, 1).run(BernoulliPulls(MEANS, rng=seed)).best).tolist() == [1]
    assert 0 not in np.ravel(make(6, 5).run(BernoulliPulls(MEANS, rng=seed)).best)


@every_rule
def test_the_support_may_be_anywhere(make, seed):
    # Binary fractions, so that scaling is exact and every decision is the same.
    rewards = np.random.default_rng(seed).integers(0, 257, (20_000, 6)) / 256 * np.array([16, 63, 32, 56, 24, 8]) / 64
    wanted = make(6, 2).run(rewards)
    for low, high in ((0.0, 8.0), (-2.0, 2.0)):
        scale = high - low
        rule = make(6, 2, support=(low, high))
        if rule._epsilon > 0:
            rule = _scaled(make, scale, (low, high))
        result = rule.run(low + scale * rewards)
        assert result.pulls.tolist() == wanted.pulls.tolist()
        assert np.ravel(result.best).tolist() == np.ravel(wanted.best).tolist()
        assert np.allclose(result.mean, low + scale * wanted.mean, rtol=1e-12, atol=1e-12)


def _scaled(make, scale, support):
    """The same rule for another support: its epsilon grows with the width."""
    classes = {name: getattr(fr, name) for name in ("Direct", "Halving", "Incremental", "Adapt")}
    try:
        for name, cls in classes.items():
            def larger(n, m, epsilon, *args, cls=cls, **kw):
                return cls(n, m, epsilon * scale, *args, **kw)
            setattr(fr, name, larger)
        return make(6, 2, support=support)
    finally:
        for name, cls in classes.items():
            setattr(fr, name, cls)


def test_interval_per_arm_only_its_width_counts(seed):
    shift = np.array([3.0, -7.0, 0.0, 100.0])
    rewards = np.random.default_rng(seed).integers(0, 257, (4000, 4)) / 1024
    means = np.array([0.0, 0.25, 0.5, 0.75])
    result = fr.Adapt(4, 2, 0.125, 0.1, (means, means + 0.25), rng=1).run(rewards + means)
    assert sorted(np.ravel(result.best).tolist()) == [2, 3] and result.n_read < 100
    assert (result.lower >= means).all() and (result.upper <= means + 0.25).all()
    wide = fr.Direct(4, 2, 0.5, 0.1, (shift, shift + [1.0, 2.0, 1.0, 4.0]))
    assert wide.ask()[1].tolist() == [16] * 4
    counts = wide.run(lambda arms, counts: np.repeat(shift[arms], counts)).pulls
    assert counts.tolist() == [math.ceil(2 * (r / 0.5) ** 2 * math.log(4 / 0.1)) for r in (1, 2, 1, 4)]


@every_rule
def test_a_spent_budget_is_said_in_a_warning(make):
    rule = make(6, 2)
    assert rule.result().warnings == () and rule.result().stopped_by == ""
    asked = rule.ask()
    for limit, said in ((0, "it counts rewards"), (5, "at least 6 is needed, one reward of each arm")):
        with pytest.raises(ValueError, match=f"max_pulls is {limit}.*{said}"):
            rule.run(BernoulliPulls(MEANS, rng=1), max_pulls=limit)
    assert rule.n_pulls == 0 and all(map(np.array_equal, rule.ask(), asked))
    result = rule.run(BernoulliPulls(MEANS, rng=1), max_pulls=6)
    assert any("max_pulls was reached" in text for text in result.warnings)
    assert any("had no pull" in text for text in result.warnings) == (not result.pulls.all())
    result = rule.run(BernoulliPulls(MEANS, rng=3), max_pulls=40)
    assert any("max_pulls was reached" in text for text in result.warnings)
    assert "had no pull" not in str(result) or not result.pulls.all()
    assert "warning: max_pulls was reached" in str(pickle.loads(pickle.dumps(rule)).result())


@every_rule
def test_a_budget_below_the_first_request_is_shared_out(make, rng):
    """Arms have had equally many pulls, and a later call makes up for what it left out."""
    rewards = rng.random((20_000, 6)) * MEANS
    rule, whole, source = make(6, 2), make(6, 2), RecordedPulls(rewards)
    n_first = int(whole.ask()[1].sum())
    for budget in (6, 7, 15, 16):
        result = rule.run(source, budget)
        assert result.n_read == budget
        if budget <= n_first:
            assert result.pulls.max() - result.pulls.min() <= 1
            assert np.ravel(result.best).tolist() == np.argsort(-result.mean, kind="stable")[:2].tolist()
    if n_first >= 16:
        assert_same(rule.run(source), whole.run(RecordedPulls(rewards)))


def test_a_small_budget_without_a_support_is_shared_out(rng):
    rewards = rng.normal([0.0, 1.0, 2.0], 0.1, (1000, 3))
    for budget in (3, 15, 50, 150, 599):
        source = RecordedPulls(rewards)
        result = fr.select_best(source, 3, 1, support=None, max_pulls=budget)
        assert result.pulls.max() - result.pulls.min() <= 1 and result.best == 2
    assert_same(result.race.run(source, 600), fr.LUCB(3, 1, support=None).run(RecordedPulls(rewards), 600))


@pytest.mark.parametrize(("budget", "least", "without"), [(5000, 11, 0), (4300, 2, 0), (4150, 0, 25)])
def test_a_small_budget_after_a_bad_reward_leaves_pulls_for_all_arms(rng, budget, least, without):
    """A larger first request has paid for 4,096 pulls of the first 21 arms by then; 54 more are had for 79 arms."""
    asked = []

    def pull(arms, counts):
        asked.append(counts.sum())
        rewards = rng.normal(np.repeat(arms, counts) / 100.0)
        if len(asked) == 1:
            rewards[100] = np.nan
        return rewards

    rule = fr.LUCB(100, 1, support=None)
    with pytest.raises(ValueError, match="reward 100 of arm 0 is nan"):
        rule.run(pull, 20_000)
    result = rule.run(pull, budget)
    assert sum(asked) == budget + 1 and result.stopped_by == "max_pulls"
    assert result.pulls.min() == least and (result.pulls == 0).sum() == without
    assert any("25 arms had no pull" in words for words in result.warnings) == (without > 0)


def test_a_budget_that_bought_the_promise_is_no_reason_to_warn():
    easy = BernoulliPulls([0.0, 1.0, 0.0], rng=1)
    assert fr.SAR(3, 1, 900).run(easy).warnings == ()
    assert "budget was reached before the answer was safe" in str(fr.SAR(6, 2, 60).run(BernoulliPulls(MEANS, rng=1)))
    assert "nothing is promised" in str(fr.OCBA(6, 2, 60, n0=5).run(BernoulliPulls(MEANS, rng=1)))


def test_costs_are_added_up_and_progress_changes_nothing(capsys):
    pytest.importorskip("rich")
    values = np.random.default_rng(0).random((400, 4)) * 0.6 + [0.0, 0.1, 0.2, 0.4]
    plain = fr.LUCB(4, 1, rng=1).run(values)
    rule = fr.LUCB(4, 1, cost=[1, 2, 3, 4], rng=1)
    found = rule.run(values, progress=True)
    assert f"{found.n_read}/" in capsys.readouterr().err
    assert plain.cost is None and (plain.pulls == found.pulls).all() and plain.best == found.best
    assert found.cost == found.pulls @ [1, 2, 3, 4] and f"cost {found.cost:g}" in str(found)
    assert pickle.loads(pickle.dumps(rule)).result() == found
    for method in ("auto", "halving", "adapt"):
        result = fr.select_best(values, epsilon=0.1, method=method, cost=2.0, rng=1)
        assert result.cost == 2.0 * result.n_read
    exact = fr.select_best(np.repeat(values[:20, :1], 3, axis=1), cost=[1, 0, 5], rng=1)
    assert exact.stopped_by == "exact" and exact.cost == exact.pulls @ [1, 0, 5]
    for make in (lambda cost: fr.LUCB(4, 1, cost=cost), lambda cost: fr.select_best(values, cost=cost)):
        with pytest.raises(ValueError, match="cost is -1"):
            make(-1.0)
