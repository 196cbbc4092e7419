"""What races over finite populations say: names of arms, warnings, errors of options, settings, progress."""

import math
from dataclasses import replace

import numpy as np
import pytest

import fastrace as fr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"delta": 0.0}, "delta is 0.0"),
        ({"delta": 1.0}, "delta is 1.0"),
        ({"delta": -0.1}, "delta is -0.1"),
        ({"delta": math.nan}, "delta is nan"),
        ({"bound": "betting"}, "needs support"),
        ({"bound": "hoeffding"}, "bound is 'hoeffding'"),
        ({"support": (1, 0)}, "low <= high"),
        ({"support": 3.0}, "support is 3.0"),
        ({"support": (0, math.nan)}, "finite"),
        ({"support": ([0, 0], 1)}, r"support\[0\] has shape"),
        ({"first_look": 1}, "first_look is 1"),
        ({"growth": 1.0}, "growth is 1.0"),
        ({"order": "sorted"}, "order is 'sorted'"),
        ({"variance": "joint"}, "variance is 'joint'"),
        ({"bound": "betting", "support": (0, 1), "variance": "marginal"}, "paired differences"),
        ({"offset": [0.0, 1.0]}, "offset has shape"),
        ({"offset": math.nan}, "offset is nan"),
    ],
)
def test_bad_arguments_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        fr.race(np.random.default_rng(0).random((100, 3)), **options)


def test_wrong_types_are_named():
    for options in ({"delta": "0.1"}, {"first_look": 2.5}, {"bound": 3}, {"growth": "2"}):
        with pytest.raises(TypeError, match=next(iter(options))):
            fr.race(np.zeros((100, 3)), **options)
    assert fr.race(np.random.default_rng(0).random((100, 3)), delta=1e-300).stopped_by == "exact"


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow", "dict"])
def test_arms_are_called_by_the_names_of_columns(library, rng):
    columns = {"old": rng.random(300), "new": rng.random(300) + 0.5, "best": rng.random(300) + 1}
    if library == "dict":
        table = columns
    else:
        module = pytest.importorskip(library)
        table = {"pandas": "DataFrame", "polars": "DataFrame", "pyarrow": "table"}[library]
        table = getattr(module, table)(columns)
    for result in (fr.race(table, rng=1), fr.FiniteRace(3, 300, rng=1).run(table),
                   fr.LilUCB(3, 300, support=(0, 2), rng=1).run(table),
                   fr.BettingRace(3, support=(0, 2)).run(table)):
        assert result.names == ("old", "new", "best")
        assert result.best == 2
        assert "best arm best:" in str(result)
    assert fr.race(np.column_stack(list(columns.values())), rng=1).names is None


@pytest.mark.parametrize("make", [
    lambda: fr.FiniteRace(2, 300, rng=1), lambda: fr.LilUCB(2, 300, support=(0, 2), rng=1),
    lambda: fr.BettingRace(2, support=(0, 2)), lambda: fr.LUCB(2, 1, support=(0, 2), rng=1),
], ids=["FiniteRace", "LilUCB", "BettingRace", "LUCB"])
def test_a_table_that_is_refused_does_not_name_the_arms(make, rng):
    columns = {"old": rng.random(300), "new": rng.random(300) + 0.9}
    race = make()
    with pytest.raises(ValueError, match="arm . is '[ab]'.* nan"):
        race.run({"a": np.where(np.arange(300) % 4, columns["old"], np.nan), "b": columns["new"]})
    assert race.result().names is None
    assert race.run(columns).names == race.result().names == ("old", "new")
    assert race.run({"x": columns["old"], "y": columns["new"]}).names == ("old", "new")


def test_a_race_that_ctrl_c_ends_keeps_the_names_of_its_table(monkeypatch, rng):
    race = fr.LUCB(2, 1, rng=1)
    columns = {"old": rng.random(300), "new": rng.random(300)}
    assert race.run(columns, 100).names == race.result().names == ("old", "new")
    race = fr.FiniteRace(2, 300, rng=1)

    class Interrupted:
        def run(self, source, *options):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(race, "_race", Interrupted())
        race.run(columns)
    assert race.result().names == ("old", "new")


def test_results_count_in_singular_and_plural(seed):
    result = fr.race(np.zeros((10, 1)), rng=seed)
    assert str(result).splitlines()[0].endswith(f"after {result.n_looks} looks, stopped by single")
    assert "after 1 look," in str(replace(result, n_looks=1))
    assert str(replace(result, stopped_by="")).splitlines()[0].endswith("still running")
    race = fr.BettingRace(1, support=(0, 1))
    assert "of 1 arm left" in str(race.result()) and " arms " not in repr(race)


def test_columns_that_look_like_an_index_are_warned_of(rng):
    columns = {"a": rng.random(3000), "b": rng.random(3000) + 1.0}
    late = np.arange(3000.0)
    late[500:] = 0.0
    support, wide = (0.0, 3001.0), {"support": (0.0, 3001.0), "delta": 0.1}
    named = np.repeat(rng.integers(0, 9, 1500), 2)
    for extra, said in [({"k": np.arange(3000)}, "column 'k' holds running numbers"), ({"k": late}, ""),
                        ({"id": named}, "column 'id' is named like an index"),
                        ({"Unnamed: 0": named}, "column 'Unnamed: 0' is named like an index")]:
        table = columns | extra
        for result in (
            fr.race(table, rng=1),
            fr.FiniteRace(3, 3000, rng=1).run(table),
            fr.BettingRace(3, **wide).run(table, rng=1),
            fr.HoeffdingRace(3, 5000, **wide).run(table, rng=1),
            fr.BernsteinRace(3, 5000, **wide).run(table, rng=1, order="given"),
            fr.LilUCB(3, 3000, support=support, rng=1).run(table, max_pulls=100),
            fr.LUCB(3, 1, 10.0, 0.1, support, rng=1).run(table),
            fr.Direct(3, 1, 1000.0, 0.1, support, rng=1).run(table),
            fr.Adapt(3, 1, 1000.0, 0.1, support, rng=1).run(table, order="given", max_pulls=500),
            fr.select_best(table, 3, 1, 10.0, support=support, rng=1),
            fr.select_best(table, 3, 1, 10.0, support=support, rng=1, order="given", max_pulls=500),
            fr.select_best(table, 3, 1, 10.0, support=support, rng=1, method="sar", max_pulls=300),
        ):
            assert result.names == tuple(table)
            found = [text for text in result.warnings if "leave it out if it is no arm" in text]
            assert len(found) == bool(said), (result, found)
            assert not said or (said in found[0] and f"warning: {found[0]}" in str(result))
    bare = np.column_stack([*columns.values(), late])
    assert "running" not in str(fr.race(bare, rng=1).warnings)
    assert "running" not in str(fr.BettingRace(3, **wide).run(bare, rng=1).warnings)


@pytest.mark.parametrize(("caller", "call"), [
    ("FiniteRace", lambda **options: fr.FiniteRace(2, 100, **options)),
    ("race", lambda **options: fr.race(np.ones((10, 2)), **options)),
    ("AcceptTest", lambda **options: fr.AcceptTest(np.ones(10), **options)),
    ("metropolis_accept", lambda **options: fr.metropolis_accept(np.ones(10), **options)),
    ("gibbs_binary", lambda **options: fr.gibbs_binary(np.ones(10), **options)),
    ("in_slice", lambda **options: fr.in_slice(np.ones(10), -1.0, **options)),
    ("UnequalRace", lambda **options: fr.UnequalRace([3, 4], **options)),
    ("race_sums", lambda **options: fr.race_sums([np.ones(3), np.ones(4)], **options)),
    ("DiscreteSampler", lambda **options: fr.DiscreteSampler(np.ones((10, 2)), **options)),
    ("LilUCB", lambda **options: fr.LilUCB(2, 100, **{"support": (0, 1), **options})),
])
def test_an_error_about_an_option_begins_with_what_was_called(caller, call):
    for options, words in (({"delta": 2.0}, "delta is 2.0"), ({"outside": "ignore"}, "outside is 'ignore'"),
                           ({"first_look": 1}, "first_look is 1"),
                           ({"bound": "serfling"}, "a rigorous bound needs support"),
                           ({"scan_advantage": 0.5}, "scan_advantage is 0.5")):
        if caller == "LilUCB" and not {"delta", "outside"} & set(options):
            continue
        if caller in ("race", "DiscreteSampler") and "scan_advantage" in options:
            continue
        with pytest.raises(ValueError) as raised:
            call(**options)
        assert str(raised.value).startswith(f"{caller}: ") and words in str(raised.value)


FLAGS = {
    "race": lambda **flag: fr.race(np.ones((60, 2)), **flag),
    "FiniteRace": lambda **flag: fr.FiniteRace(2, 60, **flag),
    "DiscreteSampler": lambda **flag: fr.DiscreteSampler(np.ones((60, 2)), **flag),
    "AcceptTest": lambda **flag: fr.AcceptTest(np.ones(60), **flag),
    "UnequalRace": lambda **flag: fr.UnequalRace([3, 4], **flag),
    "race_sums": lambda **flag: fr.race_sums([np.ones(3), np.ones(4)], **flag),
    "RaceOptions": lambda **flag: fr.RaceOptions(**flag),
}


@pytest.mark.parametrize("value", ["yes", "no", 2, [True], np.ones(2)])
@pytest.mark.parametrize("name", FLAGS)
def test_a_flag_that_is_no_truth_value_is_refused(name, value):
    with pytest.raises(TypeError, match=f"^{name}: student is .*; True or False is needed"):
        FLAGS[name](student=value)
    FLAGS[name](student=np.True_)


def test_rewards_that_are_no_vectors_are_named():
    for rewards in (5, None, "abc", 3.0):
        with pytest.raises(TypeError, match="^race_sums: rewards is .*a list of vectors, one per arm, is needed"):
            fr.race_sums(rewards)


def test_what_decides_and_draws_says_its_settings():
    test = fr.AcceptTest(np.linspace(0, 1, 60), delta=0.1, bound="betting", support=(0, 1), noise="barker", rng=1)
    for text in ("n_rows=60", "delta=0.1", "bound='betting'", "noise='barker'", "access='random'"):
        assert text in repr(test)
    sampler = fr.DiscreteSampler(np.ones((60, 2)), delta=0.1, rng=1)
    sampler.draw_many(3)
    assert repr(sampler) == ("DiscreteSampler(n_arms=2, n_rows=60, delta=0.1, bound='normal', variance='pairwise', "
                             "order='random'): 3 draws so far")


def test_arguments_that_do_not_fit_name_the_class_once():
    with pytest.raises(TypeError, match=r"^FiniteRace\.__init__\(\) got an unexpected keyword argument 'row'"):
        fr.FiniteRace(2, 60, row=3)


def test_an_object_in_use_is_called_what_users_call_it():
    race = fr.FiniteRace(2, 60, rng=1)

    class Nested(fr.sources.CallableSource):
        pass

    def rewards(arms, rows):
        return race.run(source)

    source = Nested(rewards, 2, 60)
    with pytest.raises(RuntimeError, match="^this race is in use"):
        race.run(source)


@pytest.mark.parametrize("build", ["array", "function"])
def test_progress_shows_the_rewards_and_changes_nothing(build, capsys):
    pytest.importorskip("rich")
    values = np.random.default_rng(0).random((20_000, 3)) + [0.0, 0.4, 0.0]
    rewards = values if build == "array" else lambda arms, rows: values[np.ix_(rows, arms)]
    options = {"n_arms": 3, "n_rows": 20_000, "support": (0, 1.4), "rng": 1}
    quiet = fr.race(rewards, **options)
    assert fr.race(rewards, progress=True, **options) == quiet
    assert f"{quiet.n_read}/" in capsys.readouterr().err
    cut = fr.FiniteRace(3, 20_000, support=(0, 1.4), max_pulls=15, first_look=10, rng=1).run(values, progress=True)
    assert cut.stopped_by == "max_pulls" and "15/15" in capsys.readouterr().err
    with pytest.raises(TypeError, match="progress"):
        fr.race(rewards, progress=2, **options)


@pytest.mark.parametrize(("given", "said"), [
    ((6, 2000), r"delta is 6 and bound is 2000.*go by name: race\(rewards, n_arms=6, n_rows=2000\)"),
    ((6,), r"delta is 6, as .*race\(rewards, n_arms=6, n_rows=...\)"),
    ((0.1,), "n_arms is None and n_rows is None"),
])
def test_sizes_given_by_position_are_pointed_to_their_names(given, said):
    with pytest.raises(ValueError, match=f"^race: {said}"):
        fr.race(lambda arms, rows: np.zeros((len(rows), len(arms))), *given)


def test_a_budget_below_the_first_look_says_that_nothing_was_compared(rng):
    values = rng.random((400, 3))
    for options, look in (({"support": (0, 1)}, 50), ({}, 50), ({"first_look": 20}, 20)):
        (warning,) = fr.race(values, max_pulls=3 * look - 3, rng=1, **options).warnings
        assert f"max_pulls was reached before the first look, which takes {look} rows of each arm" in warning
        assert "before the first look" not in "".join(fr.race(values, max_pulls=3 * look, rng=1, **options).warnings)
