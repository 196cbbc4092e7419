"""Arguments that make no sense are refused in words of the package, which name the argument and say what is needed."""

import asyncio
import subprocess
import sys

import numpy as np
import pytest

import fastrace as fr
from fastrace import mcmc

RNG = np.random.default_rng(1)
VALUES = RNG.random((300, 3))
X = RNG.normal(size=(200, 2))
Y = RNG.random(200) < 0.5


def race_async(evaluate, **options):
    return asyncio.run(fr.race_async(evaluate, 3, 300, support=(0, 1), rng=1, **options))


def given(arm, row):
    return VALUES[row, arm]


async def awaited(arm, row):
    await asyncio.sleep(0)
    return VALUES[row, arm]


REFUSED = [
    (lambda: race_async(lambda arm, row: None), ValueError, "missing='drop'"),
    (lambda: race_async(lambda arm, row: "x"), TypeError, "gave 'x'"),
    (lambda: race_async(given, journal="/no-such-folder/race.jsonl"), ValueError, "is no folder; make it"),
    (lambda: race_async(given, journal="/"), ValueError, "is a folder"),
    (lambda: fr.estimate_mean("abc"), TypeError, "rewards is 'abc'"),
    (lambda: fr.estimate_mean({}), TypeError, "of type dict"),
    (lambda: fr.permutation_test((X[:, 0], X[:, 1]), lambda x, y: np.zeros(3), rng=1), ValueError, "one number"),
    (lambda: mcmc.GLM(X * 1e300, Y), ValueError, "overflow"),
    (lambda: mcmc.GLM(X, X[:, 0] * 1e200, "gaussian"), ValueError, "overflow"),
    (lambda: mcmc.GLM(X, Y, groups=[1, "1"] * 100), ValueError, "look alike"),
    (lambda: mcmc.Softmax(X, [1, "1"] * 100), ValueError, "classes are whole numbers"),
    (lambda: mcmc.Softmax(X, np.arange(200) * 10**6), ValueError, "without gaps"),
    (lambda: mcmc.effective_sample_size(np.zeros((4, 10, 2))), ValueError, "one coordinate at a time"),
    (lambda: mcmc.effective_sample_size([]), ValueError, "are needed"),
    (lambda: mcmc.effective_sample_size("abc"), TypeError, "real numbers"),
    (lambda: mcmc.effective_sample_size(np.full((4, 10), np.nan)), ValueError, "finite"),
    (lambda: mcmc.VariableSelection(mcmc.GLM(X, Y, prior_sd=1.0), always=[5]), ValueError, "holds 5; the model has 2"),
    (lambda: mcmc.sample(mcmc.Metropolis(mcmc.GLM(X, Y)), {"x0": "word"}), TypeError, r"init\['x0'\] is"),
    (lambda: mcmc.sample(mcmc.Metropolis(mcmc.GLM(X, Y)), [["a", "b"]] * 4), TypeError, "init is"),
    (lambda: mcmc.sample(mcmc.Metropolis(mcmc.GLM(X, Y)), threads=0), ValueError, "threads is 0"),
]


@pytest.mark.parametrize(("call", "kind", "words"), REFUSED)
def test_nonsense_is_refused_in_words(call, kind, words):
    with pytest.raises(kind, match=words) as raised:
        call()
    assert type(raised.value) is kind


def test_frames_that_hold_nothing_or_a_name_twice_are_refused():
    pd = pytest.importorskip("pandas")
    for frame, words in [(pd.DataFrame(), "no columns"), (pd.DataFrame({"a": [], "r": []}), "no rows"),
                         (pd.DataFrame([["x", 1.0, 0.0]], columns=["a", "r", "r"]), "2 columns are called so")]:
        with pytest.raises(ValueError, match=words):
            fr.Comparison.from_frame(frame, arm="a", reward="r", support=(0, 1))


def test_what_is_no_frame_is_refused_by_a_formula():
    pd = pytest.importorskip("pandas")
    pytest.importorskip("formulae")
    for frame in ({"y": Y, "x": X[:, 0]}, X, None, "abc"):
        with pytest.raises(TypeError, match="a pandas.DataFrame"):
            mcmc.GLM.from_formula("y ~ x", frame)
    with pytest.raises(ValueError, match="no rows"):
        mcmc.GLM.from_formula("y ~ x", pd.DataFrame({"y": [], "x": []}))


@pytest.mark.parametrize("evaluate", [awaited, given])
def test_more_concurrency_than_there_are_requests_changes_nothing(evaluate):
    """No worker is made that has nothing to do; a million of them would take minutes."""
    assert race_async(evaluate, concurrency=10**6).best == race_async(awaited, concurrency=4).best


def test_arms_that_tie_exactly_are_equivalent():
    column = VALUES[:, 0]
    assert fr.race(np.stack([column, column], axis=1), support=(0, 1), rng=1).verdict == ("equivalent", "equivalent")
    table = np.stack([column, column[::-1], 0.2 * column], axis=1)
    table = np.round(table * 256) / 256                 # sums are exact in any order
    assert fr.race(table, support=(0, 1), rng=1).verdict == ("equivalent", "equivalent", "worse")
    table = np.stack([column, 0.2 * column, 0.2 * column], axis=1)
    assert fr.race(table, support=(0, 1), n_best=2, rng=1).verdict == ("better", "equivalent", "equivalent")


def test_a_race_of_rewards_whose_squares_overflow_has_an_answer():
    race = fr.HoeffdingRace(2, 10, 0.05, (0, 1e300))
    assert race.run(lambda arms, rounds: np.full((len(rounds), len(arms)), 1e299)).n_rounds == 10


def test_the_package_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "fastrace", "--help"], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0 and "race" in done.stdout
