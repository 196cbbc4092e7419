"""The face of the package: DESIGN.md's table of words, held to by every public class and function."""

import copy
import dataclasses
import importlib
import inspect
import json
import pickle
import pkgutil
import re
from pathlib import Path

import numpy as np
import pytest

import catalogue
import fastrace as fr
from fastrace.results import STOPPED_BY, ArmsResult, Result

DESIGN = (Path(__file__).parents[1] / "DESIGN.md").read_text()
RESULTS = sorted(name for name, cls in catalogue.public_classes().items()
                 if issubclass(cls, Result) and dataclasses.is_dataclass(cls))
RACES = ["RaceResult", "SelectionResult", "StreamRaceResult", "UnequalResult"]
ORDER = ("epsilon", "delta", "support", "max_pulls", "max_samples", "rng", "progress")
PAPERS = {"boosting.FilterBoostClassifier"}     # delta is that of its paper's experiments, 0.1


def signatures():
    found = {}
    for name, value in catalogue.public().items():
        if dataclasses.is_dataclass(value) or name.startswith("bounds."):   # formulas take delta as data
            continue
        try:
            found[name] = inspect.signature(value).parameters
        except ValueError:              # a compiled class without a signature
            continue
    return found


SIGNATURES = signatures()
TAKING = {word: sorted(name for name, given in SIGNATURES.items() if word in given) for word in ORDER}


RACERS = sorted(name for name, cls in catalogue.public_classes().items()
                if name == "DiscreteSampler" or hasattr(cls, "result") and hasattr(cls, "ask")
                and not name.startswith("model_selection.") and name in catalogue.OBJECTS
                and {"n_arms", "sizes"} & set(SIGNATURES.get(name, ())))


def endings():
    """Every list of endings in a compiled module."""
    found = {}
    for module in pkgutil.walk_packages(fr.__path__, "fastrace."):
        if re.search(r"doors|\.demo|_by_numpy", module.name):  # these need extras
            continue
        for key, value in vars(importlib.import_module(module.name)).items():
            if key == "STOPPED_BY":
                found[module.name] = value
    return found


def asked_for(n_best):
    """Answers about the best n_best of four arms, by every class that can be asked so."""
    for name in sorted(catalogue.public_classes()):
        given = SIGNATURES.get(name, {})
        if "n_best" in given and "n_arms" in given and name in catalogue.OBJECTS:
            own = {key: catalogue._argument(value) for key, value in given.items()
                   if value.default is value.empty or key == "support"}
            yield name, catalogue.public_classes()[name](**(own | {"n_best": n_best})).result()


@pytest.mark.parametrize("word", ["best", "names", "n_rows", "n_read", "stopped_by", "lower", "upper", *ORDER])
def test_the_table_names_the_word(word):
    assert re.search(rf"^\| `[^|]*\b{word}\b", DESIGN, re.MULTILINE)


def test_there_is_one_list_of_endings():
    for module, words in endings().items():
        assert set(words) <= set(STOPPED_BY), module
    assert len(set(STOPPED_BY)) == len(STOPPED_BY)


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_is_frozen_and_has_the_methods_of_all_results(name):
    cls = catalogue.public_classes()[name]
    assert cls.__dataclass_params__.frozen
    for method in ("to_dict", "to_frame", "plot", "_repr_html_", "__str__"):
        assert getattr(cls, method) is not getattr(object, method, None), method
    fields = {field.name for field in dataclasses.fields(cls)}
    assert not fields & {"status", "n_pulls", "sizes", "selected", "fraction", "reason"}
    if issubclass(cls, ArmsResult):
        assert {"best", "names", "stopped_by"} <= fields and hasattr(cls, "n_read")


@pytest.mark.parametrize("name", RACES)
def test_every_race_gives_an_interval_for_each_arm(name):
    fields = {field.name for field in dataclasses.fields(catalogue.public_classes()[name])}
    assert {"lower", "upper", "pulls"} <= fields


@pytest.mark.parametrize("n_best", [1, 2])
def test_best_is_an_int_where_one_arm_is_asked_for_and_an_array_where_several_are(n_best):
    seen = 0
    for name, result in asked_for(n_best):
        seen += 1
        assert isinstance(result.best, int) if n_best == 1 else np.shape(result.best) == (2,), name
    assert seen > 5


@pytest.mark.parametrize("cut", [{}, {"max_pulls": 900}])
def test_names_of_a_frame_are_in_everything_that_a_result_shows(cut):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(catalogue.VALUES / 1.2, columns=["north", "east", "south", "west"])
    parts = {name: frame[name].to_numpy() for name in frame}
    answers = [fr.race(frame, rng=1, **cut), fr.select_best(frame, 4, 2, epsilon=0.2, rng=1),
               fr.LilUCB(4, 400, support=(0, 1), rng=1).run(frame),
               fr.HoeffdingRace(4, 400, support=(0, 1)).run(frame, rng=1),
               fr.race_sums(parts, rng=1)]
    for answer in answers:
        assert answer.names == tuple(frame), type(answer)
        for name in frame:
            assert name in str(answer) and name in answer._repr_html_() and name in answer.to_frame()["arm"].tolist()
        assert json.loads(json.dumps(answer.to_dict()))["names"] == list(frame)
        plt = pytest.importorskip("matplotlib.pyplot")
        panel = answer.plot("means", plt.figure().add_subplot())
        assert {label.get_text() for label in panel.get_yticklabels()} == set(frame)
        plt.close("all")


@pytest.mark.parametrize("name", sorted({name for names in TAKING.values() for name in names}))
def test_shared_parameters_stand_in_one_order_with_one_default(name):
    given = SIGNATURES[name]
    positional = [key for key, value in given.items() if key in ORDER and value.kind is value.POSITIONAL_OR_KEYWORD]
    assert positional == sorted(positional, key=ORDER.index)
    if "delta" in given and name not in PAPERS:
        assert given["delta"].default in (0.05, inspect.Parameter.empty)
    for word, default in (("rng", None), ("progress", False), ("max_pulls", None), ("max_samples", None)):
        if word in given and given[word].default is not inspect.Parameter.empty:
            assert given[word].default is default, word


def named_race(name, names):
    """An object of a class that races arms, with these names of them."""
    given = SIGNATURES[name]
    own = {key: catalogue._argument(value) for key, value in given.items()
           if value.default is value.empty or key == "support"}
    return catalogue.public_classes()[name](**(own | {"names": names}))


@pytest.mark.parametrize("name", RACERS)
def test_every_race_takes_names_and_keeps_them(name):
    race = named_race(name, ["north", "east", "south", "west"])
    for answer in (race, pickle.loads(pickle.dumps(race)), copy.deepcopy(race)):
        found = answer.stats if name == "DiscreteSampler" else answer.result()
        assert found.names == ("north", "east", "south", "west")
        assert found.to_dict()["names"] == ["north", "east", "south", "west"]


@pytest.mark.parametrize("name", RACERS)
@pytest.mark.parametrize(("names", "error", "said"), [
    (3, TypeError, "names is 3; a sequence of names is needed, one for each of 4 arms"),
    ("abcd", TypeError, "names is 'abcd'; a sequence of names is needed"),
    ({"a", "b", "c", "d"}, TypeError, "a sequence of names is needed"),
    (["a", "b", "c"], ValueError, "names has 3 entries; one per arm is needed, and there are 4"),
    (["a", "b", "a", "c"], ValueError, "names has 'a' more than once; different names are needed"),
])
def test_names_that_do_not_name_each_arm_are_refused(name, names, error, said):
    with pytest.raises(error, match=said):
        named_race(name, names)


@pytest.mark.parametrize("name", RACERS)
def test_a_race_remembers_the_names_of_its_table(name):
    if name in ("UnequalRace", "DiscreteSampler"):
        return          # one takes no tables, the other has its table from the start
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(catalogue.VALUES / 1.2, columns=["north", "east", "south", "west"])
    takes_budget = "max_pulls" in inspect.signature(catalogue.public_classes()[name].run).parameters
    given = {"max_pulls": 100} if takes_budget else {}
    race = named_race(name, None)
    race.run(frame, **given)
    assert race.result().names == pickle.loads(pickle.dumps(race)).result().names == tuple(frame)
    race = named_race(name, list("abcd"))
    assert race.run(frame, **given).names == tuple("abcd")


def test_an_error_about_a_reward_names_its_column():
    pandas = pytest.importorskip("pandas")
    values = catalogue.VALUES / 1.2
    values[:, 2] = np.nan
    frame = pandas.DataFrame(values, columns=["north", "east", "south", "west"])
    for call in (lambda: fr.race(frame, rng=1), lambda: fr.race(values, names=list(frame), rng=1),
                 lambda: fr.FiniteRace(4, 400, rng=1).run(frame), lambda: fr.LUCB(4, 1, 0.1).run(frame),
                 lambda: fr.select_best(frame, epsilon=0.1, rng=1),
                 lambda: fr.race_sums({name: frame[name].to_numpy() for name in frame}, rng=1),
                 lambda: fr.HoeffdingRace(4, 400, support=(0, 1)).run(frame),
                 lambda: fr.LilUCB(4, 400, support=(0, 1)).run(frame),
                 lambda: fr.DiscreteSampler(frame, rng=1).draw()):
        with pytest.raises(ValueError, match="^arm 2 is 'south': .*reward.* of arm 2.* is nan"):
            call()
    with pytest.raises(ValueError, match="^the reward of arm 2 on row"):
        fr.race(values, rng=1)


class Lost(ValueError):
    """An error of a user, which has an arm of its own."""

    def __init__(self, arm):
        super().__init__("the store is gone", arm)
        self.arm = arm


@pytest.mark.parametrize("arm", [1, 7, "left"])
def test_an_error_of_the_reward_function_leaves_a_race_with_names_unchanged(arm):
    def lost(*given):
        raise error

    names, error = ["x", "y"], Lost(arm)
    for call in (lambda: fr.race(lost, n_arms=2, n_rows=50, names=names, rng=1),
                 lambda: fr.race_sums(lost, [50, 50], names=names, rng=1),
                 lambda: fr.select_best(lost, 2, epsilon=0.1, names=names, rng=1),
                 lambda: fr.HoeffdingRace(2, 50, support=(0, 1), names=names).run(lost),
                 lambda: fr.LilUCB(2, 50, support=(0, 1), names=names).run(lost)):
        with pytest.raises(Lost) as caught:
            call()
        assert caught.value is error and error.args == ("the store is gone", arm)


@pytest.mark.parametrize("inner", [
    lambda table: fr.race(table, rng=1), lambda table: fr.race(table, names=list("abcd"), rng=1),
    lambda table: fr.metropolis_accept(table[:, 3], 0.5, rng=1),
    lambda table: fr.HoeffdingRace(4, 400, support=(0, 2)).run(table, rng=1),
])
def test_an_error_of_a_race_that_a_reward_function_runs_is_not_named_by_the_outer_race(inner):
    table = catalogue.VALUES.copy()
    table[:, 3] = np.nan
    with pytest.raises(ValueError, match="reward") as alone:
        inner(table)

    def rewards(arms, rows):
        return inner(table)

    for n_arms in (2, 4):
        with pytest.raises(ValueError, match="reward") as caught:
            fr.race(rewards, n_arms=n_arms, n_rows=50, names=list("pqrs")[:n_arms], rng=1)
        assert type(caught.value) is ValueError and caught.value.args == alone.value.args


def test_columns_of_one_name_are_told_apart_by_number_with_a_warning():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(catalogue.VALUES, columns=["x", "y", "x", "z"])
    for race in (fr.FiniteRace(4, 400), fr.LUCB(4, 1, 0.2, support=(0, 1.2))):
        assert any("more than one column is named 'x'" in text for text in race.run(frame).warnings)
        assert pickle.loads(pickle.dumps(race)).result().names is None


def test_names_may_be_given_where_rewards_have_none():
    pull = fr.pulls.BernoulliPulls([0.2, 0.5, 0.8], rng=1)
    values, names = catalogue.VALUES[:, :3], ["x", "y", "z"]
    for call in (lambda names: fr.race(values, names=names, rng=1),
                 lambda names: fr.race_sums(list(values.T), names=names, rng=1),
                 lambda names: fr.select_best(pull, 3, epsilon=0.2, names=names, rng=1)):
        assert call(names).names == ("x", "y", "z")
        for bad, said in ((names[:2], "names has 2 entries; one per arm is needed, and there are 3"),
                          ("xyz", "^(race|race_sums|select_best): names is 'xyz'; a sequence of names is needed"),
                          (5, "names is 5; a sequence of names"), (["x", "y", "x"], "names has 'x' more than once")):
            with pytest.raises((TypeError, ValueError), match=said):
                call(bad)


@pytest.mark.parametrize("base", ["AbsoluteStop", "HoeffdingRace", "LUCB", "model_selection.DAUB"])
def test_a_subclass_of_a_user_may_have_braces_in_its_docstring(base):
    page = "Mine.\n\n    {alpha}\n    {alpha} {beta}\n    "
    assert type("Own", (catalogue.public_classes()[base],), {"__doc__": page}).__doc__ == page


@pytest.mark.parametrize("name", sorted(catalogue.public_classes()))
def test_no_docstring_holds_the_name_of_a_shared_paragraph(name):
    assert not re.search(r"^ *(\{[\w ]+\} ?)+$", catalogue.public_classes()[name].__doc__ or "", flags=re.M)


@pytest.mark.parametrize("name", sorted(catalogue.public_classes()))
def test_no_docstring_holds_a_control_character(name):
    r"""As the tab that is left of \text where a backslash is not doubled."""
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", catalogue.public_classes()[name].__doc__ or "")
