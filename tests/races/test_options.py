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
# The first look of a confidence sequence and what is built on it is where asymptotic intervals begin.
APART = {"model_selection.RacingSearchCV", "AbsoluteStop", "ConfidenceSequence", "estimate_mean", "Comparison",
         "BettingRace", "LUCB", "select_best", "StreamRaceResult", "SelectionResult"}
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
    """Each is what it is where the same options are spelled, and not what it is without."""
    given = {"delta": 0.01, "student": True, "first_look": 64, "bound": "normal"}
    differences = np.random.default_rng(0).normal(0.001, 1.0, 10_000)
    model, scores = mcmc.GLM(catalogue.X, catalogue.Y, prior_sd=2.0), (np.arange(600).reshape(300, 2) % 7 < 3) * 1.0
    sums = [column * (1.0 + 0.01 * arm) for arm, column in enumerate(VALUES.T)]

    def kernel(cls, **options):
        return mcmc.sample(cls(model, **options), n_draws=20, n_chains=1, n_tune=0, rng=1).rows

    def told(race):
        while not race.done and race.result().pulls.sum() < 600:
            arms, rows = race.ask()
            race.tell(VALUES[np.ix_(rows, arms)])
        return race.result()

    makers = {
        "FiniteRace": lambda **o: told(fr.FiniteRace(3, 20_000, rng=1, **o)),
        "UnequalRace": lambda **o: fr.UnequalRace([10_000, 9_000], rng=1, **o).run(lambda arm, rows: VALUES[rows, arm]),
        "AcceptTest": lambda **o: repr(fr.AcceptTest(differences, **o)),
        "DiscreteSampler": lambda **o: repr(fr.DiscreteSampler(VALUES * 0.01, **o)),
        "race": lambda **o: fr.race(VALUES, rng=1, **o),
        "race_sums": lambda **o: fr.race_sums(sums, rng=1, **o),
        "metropolis_accept": lambda **o: fr.metropolis_accept(differences, 0.0, rng=1, **o),
        "in_slice": lambda **o: fr.in_slice(differences, 0.0, rng=1, **o),
        "RacingMetropolis": lambda **o: kernel(mcmc.RacingMetropolis, **o),
        "RacingSlice": lambda **o: kernel(mcmc.RacingSlice, **o),
        "race_predictions": lambda **o: model_selection.race_predictions(
            catalogue.Y, scores, rng=1, **{key: value for key, value in o.items() if key != "student"}),
    }
    for name, make in makers.items():
        words = {key: value for key, value in given.items() if name != "race_predictions" or key != "student"}
        spelled = catalogue.plain(make(**words))
        whole = {"options": fr.RaceOptions(**words)}
        assert catalogue.plain(make(**whole)) == spelled, name
        assert catalogue.plain(make()) != spelled, name


def test_what_a_race_lacks_is_refused_and_the_race_names_itself():
    with pytest.raises(ValueError, match="AcceptTest: options has tail_guard, which this race does not have"):
        fr.AcceptTest(np.ones(10), options=fr.RaceOptions(tail_guard=False))
    with pytest.raises(ValueError, match="race: options has scan_advantage, which"):
        fr.race(VALUES, options=fr.RaceOptions(scan_advantage=2.0))
    with pytest.raises(ValueError, match="RacingGibbs: options has access, which"):
        mcmc.RacingGibbs(catalogue.ARGUMENTS["variables"](), options=fr.RaceOptions(access="random"))
    with pytest.raises(TypeError, match=r"race\(\) got an unexpected keyword argument 'size'"):
        fr.race(VALUES, options=fr.RaceOptions(delta=0.1), size=1)
    with pytest.raises(TypeError, match="FiniteRace: options is of type dict; RaceOptions"):
        fr.FiniteRace(3, 100, options={"delta": 0.1})


@pytest.mark.parametrize("bad", [
    {"delta": 0.0}, {"bound": "none"}, {"first_look": 1}, {"growth": 1.0}, {"access": "any"}, {"order": "any"},
    {"scan_advantage": 0.5}, {"outside": "pass"}, {"support": (1, 0)}, {"support": 5}])
def test_options_out_of_range_are_refused_where_they_are_said(bad):
    with pytest.raises((TypeError, ValueError), match=f"RaceOptions: {next(iter(bad))}"):
        fr.RaceOptions(**bad)


def test_options_show_what_was_said_and_pickle():
    options = fr.RaceOptions(delta=0.1, access="shuffled")
    assert repr(options) == "RaceOptions(delta=0.1, access='shuffled')"
    assert pickle.loads(pickle.dumps(options)).given() == options.given() == {"delta": 0.1, "access": "shuffled"}


def test_order_has_its_former_name_with_a_warning():
    """`access` was its name in races over a table; kernels and tests still have it."""
    expected = fr.race(VALUES, order="given", rng=1)
    with pytest.warns(FutureWarning, match="access='shuffled' is now order='given'"):
        assert fr.race(VALUES, access="shuffled", rng=1) == expected
    with pytest.warns(FutureWarning, match="access='shuffled' is now order='given'"):
        assert fr.race(VALUES, options=fr.RaceOptions(access="shuffled"), rng=1) == expected
    with pytest.warns(FutureWarning, match="access='random' is now order='random'"):
        fr.FiniteRace(3, 100, access="random")
    assert fr.race(VALUES, options=fr.RaceOptions(order="given"), rng=1) == expected
    assert "access='shuffled'" in repr(fr.AcceptTest(np.ones(10), options=fr.RaceOptions(order="given")))
    with pytest.raises(TypeError, match="order and access both came"):
        fr.race(VALUES, order="given", access="random")
    with pytest.raises(ValueError, match="access is 'any'"):
        fr.race(VALUES, access="any")
