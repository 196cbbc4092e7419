"""Every rule refuses a reward that is nan, infinite or outside the support, and is as it was before.

Where a rule called the user's function, it holds what came beside the bad reward: see `test_beside_bad_rewards`.

Rules are found by inspection, so a new one is held to this without a line here.
"""

import copy
import inspect
import math

import numpy as np
import pytest

import catalogue
import fastrace as fr
from catalogue import STEPS, VALUES
from fastrace.streams._stopping import Stream
from resident import assert_calls_keep_nothing

SUPPORT = (0.0, 1.2)
NOT_FINITE = [math.nan, math.inf, -math.inf]
OUTSIDE = [SUPPORT[1] + 0.3, SUPPORT[0] - 0.1, SUPPORT[1] * (1 + 1e-9)]


def with_support(cls, name):
    """A fresh object whose rewards lie in SUPPORT; None if the class knows no support."""
    try:
        parameters = inspect.signature(cls).parameters
    except ValueError:
        return None
    if "support" not in parameters:
        return None
    given = {key: catalogue.ARGUMENTS[key] for key, parameter in parameters.items()
             if parameter.default is parameter.empty and key in catalogue.ARGUMENTS}
    given |= {"support": SUPPORT} | ({"rng": 1} if "rng" in parameters else {})
    if issubclass(cls, fr.SignStop):
        given["threshold"] = 0.5
    return cls(**given)


def spoilt(rewards, bad):
    """The rewards with one of them bad, and its place."""
    rewards = np.array(rewards, dtype=float)
    rewards.flat[rewards.size // 2] = bad
    return rewards


def steady(arms, counts):
    """Rewards that are the same in every call, however many are asked for."""
    return np.repeat(VALUES[7, arms] / 1.2, counts)


def doors(thing):
    """Every way to hand rewards to an object: functions of a bad reward."""
    if isinstance(thing, Stream):
        return {"update": lambda bad: thing.update(bad),
                "update_many": lambda bad: thing.update_many(spoilt(VALUES[:9, 0], bad))}
    if isinstance(thing, fr.RunningMoments | fr.RunningComoments):
        return {"update_many": lambda bad: thing.update_many(spoilt(VALUES[:9], bad))}
    if isinstance(thing, fr.select.selection.Selection):
        return {"tell": lambda bad: thing.tell(spoilt(catalogue.pull(*thing.ask()), bad)),
                "run": lambda bad: thing.run(lambda arms, counts: spoilt(steady(arms, counts), bad))}
    if isinstance(thing, fr.UnequalRace):
        return {"tell": lambda bad: thing.tell(spoilt(VALUES[thing.ask()[1], thing.ask()[0]], bad)),
                "run": lambda bad: thing.run([np.full(size, bad) for size in catalogue.ARGUMENTS["sizes"]])}
    if isinstance(thing, fr.FiniteRace | fr.streams.stream_race.StreamRace | fr.LilUCB):
        table = np.full((400, 4), np.nan)
        given = {"order": "given"} if isinstance(thing, fr.streams.stream_race.StreamRace) else {}    # it has begun
        return {"tell": lambda bad: thing.tell(spoilt(VALUES[np.ix_(*(part % (400, 4)[k] for k, part in
                                                                      enumerate(thing.ask()[::-1])))], bad)),
                "run": lambda bad: thing.run(np.where(np.isnan(table), bad, table), **given),
                "run of a function": lambda bad: thing.run(
                    lambda arms, rows: spoilt(VALUES[np.ix_(rows % 400, arms)], bad))}
    return {}


RULES = [name for name in catalogue.OBJECTS if doors(catalogue.made(name))]


def test_every_kind_of_rule_is_among_them():
    assert {"EBGStop", "SignStop", "GBAS", "ConfidenceSequence", "RunningMoments", "FiniteRace", "LilUCB",
            "UnequalRace", "BettingRace", "Adapt", "LUCB", "SubsetRace"} <= set(RULES)
    left = [name for name in set(catalogue.OBJECTS) - set(RULES) - {"PermutationTest"}      # takes statistics
            if hasattr(catalogue.public_classes()[name], "tell") and "model_selection" not in name]
    assert not left


def refuse(name, thing, fresh, bad, words):
    for door, call in doors(thing).items():
        with pytest.raises(ValueError) as raised:
            call(bad)
        said = str(raised.value)
        assert any(word in said for word in words), (name, door, said)
        assert any(mark in said for mark in ("reward", "xs", "x is", "values")), (name, door, said)
    # What the function answered beside the bad reward is kept.
    if isinstance(thing, fr.FiniteRace | fr.streams.stream_race.StreamRace):
        def good(arms, rows):
            return VALUES[np.ix_(rows % 400, arms)]
        most = {} if isinstance(thing, fr.FiniteRace) else {"max_pulls": 3000}
        assert catalogue.plain(thing.run(good, **most)) == catalogue.plain(fresh.run(good, **most)), name
        return
    if isinstance(thing, fr.select.selection.Selection):
        most = fresh.n_pulls + 20_000       # above the first request: a smaller one is shared out, less what was paid
        assert catalogue.plain(thing.run(steady, most)) == catalogue.plain(fresh.run(steady, most)), name
        return
    for k in range(STEPS):
        assert catalogue.step(thing, k) == catalogue.step(fresh, k), (name, k)


# In a race over rows a reward of -inf is a factor of probability 0: it takes its arm out, and the result says so.
IMPOSSIBLE = ("FiniteRace", "LilUCB", "UnequalRace")


@pytest.mark.parametrize(("name", "bad"), [
    (name, bad) for name in RULES for bad in NOT_FINITE if not (bad == -math.inf and name in IMPOSSIBLE)])
def test_rewards_that_are_not_finite_are_refused_and_change_nothing(name, bad):
    thing, fresh = catalogue.made(name), catalogue.made(name)
    for k in range(2):
        catalogue.step(thing, k), catalogue.step(fresh, k)
    if getattr(thing, "done", False):
        thing, fresh = catalogue.made(name), catalogue.made(name)
    refuse(name, thing, fresh, bad, ["nan", "inf"])


def place_told(thing, bad):
    """Tell rewards with a bad one in their middle; words for where it stands."""
    if isinstance(thing, Stream):
        return lambda: thing.update_many(spoilt(VALUES[:9, 0], bad)), "xs[4]"
    if isinstance(thing, fr.RunningMoments | fr.RunningComoments):
        return lambda: thing.update_many(spoilt(VALUES[:9], bad)), "xs[4, 2]"
    if isinstance(thing, fr.select.selection.Selection):
        arms, counts = thing.ask()
        arm = np.repeat(arms, counts)[counts.sum() // 2]
        before = thing.result().pulls[arm] + counts.sum() // 2 - counts[: arms.tolist().index(arm)].sum()
        return lambda: thing.tell(spoilt(catalogue.pull(arms, counts), bad)), f"reward {before} of arm {arm} is"
    arms, rows = thing.ask()
    pairs = isinstance(thing, fr.LilUCB | fr.UnequalRace)
    told = spoilt(VALUES[rows % 400, arms] if pairs else VALUES[np.ix_(rows % 400, arms)], bad)
    row, arm = [told.size // 2] * 2 if pairs else np.unravel_index(told.size // 2, told.shape)
    where = (f"in round {rows[row]}, counted from 0," if isinstance(thing, fr.streams.stream_race.StreamRace)
             else f"on row {rows[row]}")
    return lambda: thing.tell(told), f"the reward of arm {arms[arm]} {where} is"


@pytest.mark.parametrize("steps", [0, 2])
@pytest.mark.parametrize("name", RULES)
def test_the_error_says_where_the_bad_reward_stands(name, steps):
    for bad in (math.nan, math.inf):
        thing = catalogue.made(name)
        for k in range(steps):
            catalogue.step(thing, k)
        if getattr(thing, "done", False):
            thing = catalogue.made(name)
        tell, place = place_told(thing, bad)
        with pytest.raises(ValueError) as raised:
            tell()
        assert place in str(raised.value), (place, str(raised.value))


WITHOUT_SUPPORT = {"RunningComoments", "RunningMoments"}


def test_every_other_kind_of_rule_has_a_support():
    assert {name for name in RULES if with_support(catalogue.public_classes()[name], name) is None} == WITHOUT_SUPPORT


@pytest.mark.parametrize("bad", OUTSIDE)
@pytest.mark.parametrize("name", [name for name in RULES if name not in WITHOUT_SUPPORT])
def test_rewards_outside_the_support_are_refused_and_change_nothing(name, bad):
    cls = catalogue.public_classes()[name]
    refuse(name, with_support(cls, name), with_support(cls, name), bad, ["support"])


@pytest.mark.parametrize("most", [300, pytest.param(10**6, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", RULES)
def test_refused_rewards_keep_no_memory(name, most, settled):
    """Errors leave compiled code by ways of their own, each of which must let go of what it holds."""
    fresh = catalogue.made(name)

    def life():
        thing = copy.copy(fresh)
        for call in doors(thing).values():
            try:
                call(math.nan)
            except ValueError:
                continue
            raise AssertionError("a reward that is nan was taken")

    assert_calls_keep_nothing(life, most)
