"""LUCB and select_best with missing rewards: pull by pull beside the twins, and true of the means they name."""

import asyncio
import math
import pickle
import unittest.mock
import warnings

import numpy as np
import pytest
from following import assert_follows, reader

import fastrace as fr
import reference.lucb
import reference.pairs
from fastrace.pulls import BernoulliPulls
from guarantee import assert_rate_at_most

WARN = warnings.warn
KINDS = {
    "pairs": {}, "intervals": {"rule": "intervals"}, "hoeffding": {"bound": "hoeffding-mix"},
    "symmetric": {"symmetric": True}, "sub-Gaussian": {"sub_gaussian": 0.5}, "asymptotic": {"support": None},
    "paired": {"paired": True},
}


def gappy(rng, shape, share=0.3):
    values = rng.random(shape)
    return np.where(rng.random(shape) < share * values, np.nan, values)


@pytest.mark.parametrize(("n_arms", "n_best", "batch"), [(2, 1, 1), (6, 2, 3), (7, 6, "auto")])
@pytest.mark.parametrize("kind", ["pairs", "hoeffding", "symmetric", "asymptotic"])
def test_every_pull_equals_the_plain_twin_where_missing_rewards_are_dropped(n_arms, n_best, batch, kind, seed):
    rng = np.random.default_rng([seed, n_arms])
    low, high = np.zeros(n_arms), np.ones(n_arms)
    values = gappy(rng, (4000, n_arms))
    values[:3, 1] = np.nan                  # the first rewards of an arm
    options = KINDS[kind] | {"batch": batch, "missing": "drop"}
    size, arms = 0 if batch == "auto" else batch, None
    if kind == "hoeffding":
        scales = fr.LUCB(n_arms, n_best, 0.1, 0.1, **options)._options["scales"]
        share = (0.1 / n_arms,) * 2
        options["split"] = "equal"
        twin = reference.lucb.lucb(reader(values), low, high, n_best, 0.1, share, "hoeffding-mix", scales, size, 300)
    else:
        if kind == "symmetric":
            arms = reference.pairs.FreeArms(n_arms, None, n_best, 0.1, 0.1)
        if kind == "asymptotic":
            arms, options["first_look"] = reference.pairs.AsymptoticArms(n_arms, 10, n_best, 0.1, 0.1), 10
        twin = reference.pairs.pairs(reader(values), low, high, n_best, 0.1, 0.1, size, 200, arms=arms)
    assert_follows(lambda: fr.LUCB(n_arms, n_best, 0.1, 0.1, **options), values, twin)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("missing", ["drop", "worst"])
def test_missing_rewards_are_counted_and_said(kind, missing, rng):
    free = kind in ("symmetric", "sub-Gaussian", "asymptotic")
    if (kind, missing) == ("paired", "drop") or (missing == "worst" and free):
        with pytest.raises(ValueError, match="missing is '(drop|worst)' and (paired|support)"):
            fr.LUCB(3, 1, missing=missing, **KINDS[kind])
        return
    table = gappy(rng, (3000, 3)) * [0.6, 0.8, 1.0]
    rule = fr.LUCB(3, 1, 0.02, missing=missing, cost=[1.0, 2.0, 3.0], **KINDS[kind])
    result = rule.run(table, 4000, order="given") if kind == "paired" else rule.run(table, 2400, order="given")
    used = [table[:n, i] for i, n in enumerate(result.pulls)]
    lost = sum(int(np.isnan(column).sum()) for column in used)
    filled = [np.where(np.isnan(column), 0.0, column) if missing == "worst" else column for column in used]
    assert result.n_missing > 0 and result.cost == result.pulls @ [1.0, 2.0, 3.0]
    if kind != "paired":                    # rounds pass over rows of arms that are not asked about
        assert result.n_missing == lost
        np.testing.assert_allclose(result.mean, [np.nanmean(column) for column in filled])
    assert any(("low end" if missing == "worst" else "gave no reward") in said for said in result.warnings)


@pytest.mark.parametrize("kind", ["pairs", "intervals", "paired"])
def test_the_worst_is_the_low_end_of_each_arm(kind, rng):
    low, high = np.array([0.0, -0.2, 0.1]), np.ones(3)
    table = np.clip(gappy(rng, (3000, 3)) * [0.6, 0.8, 1.0], low, high)
    whole = np.where(np.isnan(table), low, table)
    found, plain = (fr.LUCB(3, 1, 0.02, 0.05, (low, high), missing=missing, **KINDS[kind]).run(
        values, 3000, order="given") for missing, values in (("worst", table), ("raise", whole)))
    for name in ("best", "mean", "lower", "upper", "pulls", "error_bound", "stopped_by"):
        np.testing.assert_array_equal(getattr(found, name), getattr(plain, name), err_msg=name)


def test_a_table_that_is_read_to_the_end_has_the_means_of_what_is_there(rng):
    table = np.repeat(gappy(rng, (60, 1)), 3, axis=1)
    table[:, 0] = np.where(rng.random(60) < 0.3, np.nan, 0.4)
    for missing in ("drop", "worst"):
        result = fr.select_best(table, missing=missing, rng=1, cost=2.0)
        filled = np.where(np.isnan(table), 0.0, table) if missing == "worst" else table
        assert result.stopped_by == "exact" and result.cost == 2.0 * result.pulls.sum()
        np.testing.assert_allclose(result.mean, np.nanmean(filled, axis=0))
        assert result.n_missing >= np.isnan(table).sum() and len(result.warnings) == 2


def test_none_is_missing_and_missing_is_refused_by_default():
    rule = fr.LUCB(2, 1)
    with pytest.raises(ValueError, match="arm 1 is nan.*missing='drop'"):
        rule.tell([1.0, None])
    assert rule.n_pulls == 0
    given = np.array([1.0, np.nan])
    rule = fr.LUCB(2, 1, missing="worst")
    rule.tell(given)
    assert np.isnan(given[1]) and rule.result().mean.tolist() == [1.0, 0.0]
    rule = fr.LUCB(2, 1, missing="drop")
    rule.tell([[1.0], [None]])
    assert rule.ask()[0].tolist() == [1] and rule.result().pulls.tolist() == [1, 1]
    assert "no reward" in fr.LUCB(2, 1, missing="drop").run(lambda arms, counts: [1.0, None], 2).warnings[0]
    with pytest.raises(ValueError, match="outside support"):
        fr.LUCB(2, 1, missing="drop").tell([2.0, None])


def test_an_arm_that_never_answers_is_named():
    """Nothing of the batch that is refused is used, however often it is told."""

    def pull(arms, counts):
        return np.where(np.repeat(arms, counts) == 1, np.nan, 0.5)

    with pytest.raises(ValueError, match="5000 pulls of arm 1 gave no reward") as caught, \
            pytest.warns(RuntimeWarning, match="arm 1 gave no reward in") as said:
        fr.select_best(pull, 3, missing="drop")
    assert {warning.filename for warning in said} == {__file__}
    rule = caught.value.rule
    for copy in (pickle.loads(pickle.dumps(rule)), rule):
        for _ in range(2):
            with pytest.raises(ValueError, match="5000 pulls of arm 1 gave no reward"):
                copy.tell([None])
            assert copy.ask()[0].tolist() == [1] and copy.result().pulls.tolist() == [1, 4_999, 1]
        copy.tell([0.5])
        assert copy.result().pulls.tolist() == [1, 5_000, 1] and copy.result().mean[1] == 0.5


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "paired"])
@pytest.mark.parametrize("door", ["run", "tell", "in flight"])
def test_silent_arms_are_not_paid_for_without_end(door, kind):
    """Nor is it paid for in silence: a warning at 100 and at 1,000 pulls of all arms together."""
    rule, paid = fr.LUCB(3, 1, missing="drop", **KINDS[kind]), [0]

    def pull(arms, counts):
        paid[0] += int(np.sum(counts))
        return np.full(int(np.sum(counts)), np.nan)

    def go_on():
        while True:
            if door == "run":
                rule.run(pull)
            elif door == "tell":
                rule.tell(pull(*rule.ask()))
            else:
                arms, pulls = rule.ask(20, pending=True)
                if not arms.size:
                    arms, pulls = rule.pending
                rule.tell(pull(arms, np.ones(arms.size)), arms, pulls)

    with pytest.warns(RuntimeWarning, match="no arm gave a reward in the first") as said, pytest.raises(
            ValueError, match="no arm gave a reward in the first 5[0-9]{3} pulls"):
        go_on()
    assert len(said) == 2 and 5000 <= paid[0] <= 5700 and rule.n_pulls >= 5000 - 700
    assert "no arm gave a reward" in "".join(rule.result().warnings)
    again = pickle.loads(pickle.dumps(rule))
    assert again.result() == rule.result() and again.n_pulls == rule.n_pulls


def one_by_one(rule, pull):
    while not rule.done:
        arms, pulls = rule.ask(20, pending=True)
        if not arms.size:
            arms, pulls = rule.pending
        rule.tell(pull(arms, np.ones(arms.size, int)), arms, pulls)


def by_hand(rule, pull):
    while not rule.done:
        rule.tell(pull(*rule.ask()))


def saved_and_told(rule, pull):
    while not rule.done:
        again = pickle.loads(pickle.dumps(rule))
        again.tell(pull(*again.ask()))
        rule.__dict__.update(again.__dict__)


def by_requests(rule, pull):
    asyncio.run(fr.race_async(lambda arm, k: pull(np.array([arm]), np.array([1]))[0], race=rule, concurrency=1))


DOORS = {"run": lambda rule, pull: rule.run(pull), "tell": by_hand, "saved": saved_and_told, "in flight": one_by_one,
         "race_async": by_requests}


@pytest.mark.parametrize("kind", ["pairs", "intervals", "symmetric", "asymptotic"])
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("silent", [0, 150, 480], ids=lambda n: f"all arms silent for {n} pulls each")
def test_an_arm_is_warned_of_and_refused_whenever_the_others_begin_to_answer(door, kind, silent):
    """However long all arms were silent before, and whatever the order in which they are asked."""
    if door == "saved" and (kind, silent) != ("pairs", 150):
        pytest.skip("slow")
    made, rng = np.zeros(3, int), np.random.default_rng(2)

    def pull(arms, counts):
        found = []
        for arm, count in zip(arms, counts, strict=True):
            ks = np.arange(made[arm], made[arm] + count)
            made[arm] += count
            found.append(np.where((arm == 1) | (ks < silent), math.nan, 0.5 + 0.1 * rng.random(count)))
        return np.concatenate(found)

    rule = fr.LUCB(3, 1, missing="drop", batch=5, **KINDS[kind])
    first = []
    with pytest.warns(RuntimeWarning) as said, pytest.raises(ValueError, match="50.. pulls of arm 1 gave no reward"):
        with unittest.mock.patch.object(warnings, "warn", lambda text, *rest, **more: (
                first.append((text, int(made[1]))), WARN(text, *rest, **more))):
            DOORS[door](rule, pull)
    named = [asked for text, asked in first if "arm 1 gave no reward in" in text]
    at_once = 200 if kind == "asymptotic" else 20
    assert named[0] <= max(silent, 100) + 2 * at_once and len(named) >= 2 and len(said) == len(first)
    assert 5000 <= made[1] <= 5060 and "arm 1 gave no reward" in "".join(rule.result().warnings)


def test_other_rules_say_who_takes_missing_rewards():
    with pytest.raises(ValueError, match="only LUCB, the default"):
        fr.select_best(BernoulliPulls([0.1, 0.9]), method="halving", epsilon=0.1, missing="drop")
    with pytest.raises(ValueError, match="missing is 'lose'"):
        fr.select_best(BernoulliPulls([0.1, 0.9]), missing="lose")
    with pytest.raises(ValueError, match="low end of a support"):
        fr.select_best(BernoulliPulls([0.1, 0.9]), support=None, missing="worst")


@pytest.mark.parametrize("kind", ["pairs", "intervals", "paired", "sub-Gaussian"])
@pytest.mark.parametrize("missing", ["drop", "worst"])
def test_the_answer_is_about_the_means_it_names(kind, missing, seed):
    """Arm 0 is best over all draws, arm 1 where failures are the worst, arm 2 among the rewards that come."""
    if (kind, missing) in (("paired", "drop"), ("sub-Gaussian", "worst")):
        pytest.skip("refused")
    trials, delta, wrong = 100, 0.1, 0
    for child in np.random.SeedSequence(seed).spawn(trials):
        rng = np.random.default_rng(child)

        def pull(arms, counts, rng=rng):
            arm = np.repeat(arms, counts)
            hard = rng.random(arm.size) < 0.5
            means = np.where(hard, np.array([0.4, 0.45, 0.0])[arm], np.array([0.6, 0.45, 0.8])[arm])
            gone = hard & (rng.random(arm.size) < np.array([0.5, 0.0, 1.0])[arm])
            return np.where(gone, np.nan, rng.random(arm.size) < means)

        result = fr.LUCB(3, 1, delta=delta, missing=missing, **KINDS[kind]).run(pull, 100_000)
        wrong += result.stopped_by == "bound" and result.best != (1 if missing == "worst" else 2)
    assert_rate_at_most(wrong, trials, delta)


@pytest.mark.parametrize("rule", ["pairs", "intervals"])
def test_an_arm_that_falls_silent_is_named(rule):
    """It would be asked for ever."""
    rng, given = np.random.default_rng(5), np.zeros(2, int)

    def pull(arms, counts):
        out = []
        for arm, count in zip(arms, counts, strict=True):
            rewards = (rng.random(count) < 0.5).astype(float)
            rewards[np.arange(given[arm], given[arm] + count) >= (100 if arm else 10**9)] = math.nan
            given[arm] += count
            out.append(rewards)
        return np.concatenate(out)

    with pytest.raises(ValueError, match=r"the last 1\d+ pulls of arm 1 gave no reward"):
        fr.LUCB(2, 1, delta=1e-6, rule=rule, missing="drop", support=(0, 1)).run(pull)


@pytest.mark.parametrize("rule", ["pairs", "intervals"])
@pytest.mark.parametrize("rate", [0.003, 0.01, 0.02])
def test_arms_that_answer_rarely_are_waited_for(rate, rule, seed):
    trials, refused = 20, 0
    for child in np.random.SeedSequence(seed).spawn(trials):
        rng, rare = np.random.default_rng(child), fr.LUCB(2, 1, rule=rule, missing="drop", support=(0, 1), batch=500)

        def pull(arms, counts, rng=rng):
            return np.where(rng.random(counts.sum()) < rate, np.repeat(arms, counts) * 0.9, math.nan)

        try:
            rare.run(pull)
            assert rare.result().best == 1 and rare.result().stopped_by in ("bound", "delta")
        except ValueError as error:
            refused += "no more becomes known" in str(error)
    assert_rate_at_most(refused, trials, 2 / 4000)


def test_a_table_without_rewards_of_an_arm_is_refused():
    table = np.random.default_rng(0).random((40, 2))
    table[:, 1] = math.nan
    with pytest.raises(ValueError, match="arm 1"):
        fr.select_best(table, missing="drop", support=(0, 1))
