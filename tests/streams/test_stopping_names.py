"""Stopping rules: the names of the rules and of their arguments, in results, errors and documents."""

import functools
from pathlib import Path

import numpy as np
import pytest

import fastrace as fr
from fastrace.streams._mean_stops import BernsteinStop
from fastrace.streams._rules import StoppingRule
from fastrace.streams.estimating import METHODS
from fastrace.streams.sequences import SHORT


def test_results_and_names():
    rule = fr.EBGStop(0.1, 0.05, (0, 1), max_samples=5000)
    rule.update_many(np.full(1000, 0.5))
    result = rule.result()
    assert (result.rule, result.stopped_by, result.n_samples, result.stopped) == ("EBGStop", "epsilon", 738, True)
    assert (result.estimate, result.interval) == (rule.estimate, rule.interval)
    assert (rule.epsilon, rule.delta, rule.support, rule.max_samples) == (0.1, 0.05, (0.0, 1.0), 5000)
    assert rule.criterion == "relative" and "EBGStop(epsilon=0.1" in repr(rule)
    with pytest.raises(AttributeError):
        result.estimate = 1.0
    with pytest.raises(TypeError, match="in use"):
        rule.__init__(0.2)
    assert "side of the threshold" in str(_decided())


def _decided():
    rule = fr.SignStop(bound="empirical-bernstein")
    rule.update_many(np.full(1000, 0.5))
    return rule.result()


@pytest.mark.parametrize(("accuracy", "method"), [
    ("relative", "auto"), ("relative", "betting"), ("absolute", "auto"), ("absolute", "hoeffding"),
])
def test_estimate_mean_says_by_its_own_name_that_an_option_is_unknown(accuracy, method):
    with pytest.raises(TypeError, match=r"^estimate_mean: unexpected keyword argument 'nonsense'"):
        fr.estimate_mean(np.linspace(0.1, 0.9, 20), accuracy=accuracy, method=method, nonsense=1)


PUBLIC = [cls for cls in (getattr(fr, name) for name in fr.__all__)
          if isinstance(cls, type) and cls.__module__.startswith("fastrace.streams.")]


@pytest.mark.parametrize("cls", PUBLIC)
def test_errors_about_arguments_name_the_class_that_was_called(cls):
    class Own(cls):
        pass

    for called in (cls, Own):
        with pytest.raises(TypeError, match=rf"\b{called.__name__}(:|\.__init__\(\) got an) unexpected keyword"):
            called(nonsense=1)


STOPPING = [cls for cls in PUBLIC if issubclass(cls, StoppingRule)]


@pytest.mark.parametrize("cls", STOPPING)
def test_each_rule_says_whether_it_holds_without_replacement(cls):
    own = next(part for part in cls.__mro__ if "_holds_once" in vars(part))
    assert type(cls._holds_once) is bool
    assert own is cls or own.__name__.startswith("_"), f"{cls.__name__} takes {own.__name__}'s word: judge it by itself"


def test_a_rule_that_does_not_say_whether_it_holds_without_replacement_is_no_class():
    with pytest.raises(TypeError, match="Forgetful does not set _holds_once"):
        class Forgetful(StoppingRule, BernsteinStop):
            pass


@pytest.mark.parametrize("short", SHORT)
@pytest.mark.parametrize("make", [functools.partial(fr.AbsoluteStop, 0.05, support=(-1, 1)), fr.SignStop])
def test_rules_over_bounds_take_the_short_names_of_bounds(make, short):
    brief, full = make(bound=short), make(bound=SHORT[short])
    assert repr(brief) == repr(full)
    values = np.random.default_rng(1).uniform(-0.5, 0.9, 3000)
    assert brief.update_many(values) == full.update_many(values) and brief.result().to_dict() == full.result().to_dict()
    assert fr.estimate_mean(iter(values), 0.1, support=(-1, 1), accuracy="absolute", method=short).stopped


def test_every_rule_is_named_where_users_look_for_it():
    guide = Path(__file__).parents[2].joinpath("docs", "streams.md").read_text(encoding="utf-8")
    assert [cls.__name__ for cls in STOPPING if f"`{cls.__name__}`" not in guide.replace("fr.", "")] == []
    own_calls = {fr.GBAS, fr.AbsoluteStop, fr.SignStop, fr.ConfidenceSequence}      # not of relative accuracy by name
    assert set(METHODS.values()) == set(STOPPING) - own_calls
    assert {cls.__name__ for cls in leaves(StoppingRule) if cls.__module__.startswith("fastrace.")} == {
        cls.__name__ for cls in STOPPING}, "a rule is not exported"


def leaves(cls):
    """Subclasses without an underscore."""
    for part in cls.__subclasses__():
        if not part.__name__.startswith("_"):
            yield part
        yield from leaves(part)
