"""Options said once: everything that spells the options of a race takes them as one object too."""

import inspect
import pickle

import numpy as np
import pytest

import catalogue
import fastrace as fr
from fastrace import mcmc, model_selection

SPELLED = {"delta", "bound", "first_look"}
# scikit-learn clones a search from its parameters, each by its name; JAX's kernels fix their looks while tracing.
APART = {"model_selection.RacingSearchCV"}
SETTINGS = {"RaceSettings", "RaceOptions"}
VALUES = np.random.default_rng(1).random((20_000, 3)) + [0.0, 0.1, 0.05]


def races():
    found = {}
    for name, value in catalogue.public().items():
        try:
            given = inspect.signature(value).parameters
        except ValueError:                  # a compiled class without a signature
            continue
        if set(given) >= SPELLED and name not in APART and name.split(".")[-1] not in SETTINGS:
            found[name] = given
    return found


def test_whatever_spells_the_options_of_a_race_takes_them_as_one_object():
    assert len(races()) > 8
    for name, given in races().items():
        assert "options" in given and given["options"].default is None, name
        fields = set(inspect.signature(fr.RaceOptions).parameters)
        assert len(fields & set(given)) >= 5, name


def test_options_are_those_that_are_spelled_and_what_is_spelled_goes_first():
    options = fr.RaceOptions(delta=0.01, support=(0, 1.1), first_look=30, bound="serfling")
    spelled = fr.race(VALUES, 0.01, "serfling", support=(0, 1.1), first_look=30, rng=1)
    assert catalogue.plain(fr.race(VALUES, options=options, rng=1)) == catalogue.plain(spelled)
    mixed = fr.race(VALUES, 0.2, options=options, first_look=40, rng=1)      # delta by its place
    alone = fr.race(VALUES, 0.2, "serfling", support=(0, 1.1), first_look=40, rng=1)
    assert catalogue.plain(mixed) == catalogue.plain(alone)


def test_every_race_takes_options():
    options = fr.RaceOptions(delta=0.01, student=True, first_look=64, bound="normal")
    differences = np.random.default_rng(0).normal(0.1, 1.0, 10_000)
    model = mcmc.GLM(catalogue.X, catalogue.Y, prior_sd=2.0)
    made = [
        fr.FiniteRace(3, 100, options=options), fr.UnequalRace([10, 20], options=options),
        fr.AcceptTest(differences, options=options), fr.DiscreteSampler(VALUES * 0.01, options=options),
        mcmc.RacingMetropolis(model, options=options), mcmc.RacingSlice(model, options=options),
        mcmc.RacingGibbs(catalogue.ARGUMENTS["variables"](), options=options),
    ]
    for race in made:
        assert "0.01" in repr(race) or getattr(race, "delta", 0.01) == 0.01, type(race)
    for answer in [
        fr.race_sums(list(VALUES.T), options=options, rng=1),
        model_selection.race_predictions(catalogue.Y, np.ones((300, 2)), options=fr.RaceOptions(first_look=64), rng=1),
        fr.metropolis_accept(differences, 0.0, options=options, rng=1), fr.in_slice(differences, 0.0, options=options),
        fr.gibbs_binary(differences, options=options, rng=1),
    ]:
        assert answer is not None


def test_what_a_race_lacks_is_refused_and_the_race_names_itself():
    with pytest.raises(ValueError, match="AcceptTest: options has tail_guard, which this race does not have"):
        fr.AcceptTest(np.ones(10), options=fr.RaceOptions(tail_guard=False))
    with pytest.raises(ValueError, match="race: options has scan_advantage, which"):
        fr.race(VALUES, options=fr.RaceOptions(scan_advantage=2.0))
    with pytest.raises(ValueError, match="RacingGibbs: options has access, which"):
        mcmc.RacingGibbs(catalogue.ARGUMENTS["variables"](), options=fr.RaceOptions(access="random"))
    with pytest.raises(TypeError, match="FiniteRace: options is of type dict; RaceOptions"):
        fr.FiniteRace(3, 100, options={"delta": 0.1})


@pytest.mark.parametrize("bad", [
    {"delta": 0.0}, {"bound": "none"}, {"first_look": 1}, {"growth": 1.0}, {"access": "any"}, {"scan_advantage": 0.5},
    {"outside": "pass"}])
def test_options_out_of_range_are_refused_where_they_are_said(bad):
    with pytest.raises(ValueError, match=f"RaceOptions: {next(iter(bad))} is"):
        fr.RaceOptions(**bad)


def test_options_show_what_was_said_and_pickle():
    options = fr.RaceOptions(delta=0.1, access="shuffled")
    assert repr(options) == "RaceOptions(delta=0.1, access='shuffled')"
    assert pickle.loads(pickle.dumps(options)).given() == options.given() == {"delta": 0.1, "access": "shuffled"}
