"""Memory: nothing is kept by calls, updates allocate nothing, and what a rule holds depends on its arms alone.

Classes and functions are found by inspection, so a new one is held to this without a line of its own.
"""

import functools
import inspect
import tracemalloc

import numpy as np
import pytest

import catalogue
import fastrace as fr
from catalogue import STARTS, VALUES, X, Y
from fastrace import bounds, mcmc
from fastrace.pulls import BernoulliPulls
from fastrace.streams._stopping import Stream
from resident import assert_allocates_at_most, assert_calls_keep_nothing, assert_grows_at_most

pytest.importorskip("psutil")


# Calls keep nothing.

D = VALUES[:, :2] * 0.01
VARIANCES = np.array([0.5, 0.3, 0.1])
FUNCTIONS = {           # every public function, called
    "bounds.crossing_probability": lambda: bounds.crossing_probability(2.0, VARIANCES),
    "bounds.empirical_bernstein": lambda: bounds.empirical_bernstein(50, 0.3, 0.1, (0, 1)),
    "bounds.empirical_bernstein_serfling": lambda: bounds.empirical_bernstein_serfling(50, 400, 0.3, 0.1, (0, 1)),
    "bounds.hoeffding": lambda: bounds.hoeffding(50, 0.1, (0, 1)),
    "bounds.hoeffding_serfling": lambda: bounds.hoeffding_serfling(50, 400, 0.1, (0, 1)),
    "bounds.look_delta": lambda: bounds.look_delta(3, 0.1),
    "bounds.looks": lambda: bounds.looks(1000),
    "bounds.normal": lambda: bounds.normal(50, 400, 0.3, 0.1),
    "bounds.normal_quantile": lambda: bounds.normal_quantile(0.1, 400),
    "bounds.normal_quantile_from_variances": lambda: bounds.normal_quantile_from_variances(0.1, VARIANCES),
    "bounds.serfling": lambda: bounds.serfling(50, 400, 0.3, 0.1, (0, 1)),
    "bounds.serfling_factor": lambda: bounds.serfling_factor(50, 400),
    "bounds.skewness_inflation": lambda: bounds.skewness_inflation(0.5, 50, 400, 2.0),
    "bounds.student_quantile": lambda: bounds.student_quantile(2.0, 10),
    "bounds.variance_factor": lambda: bounds.variance_factor(50, 400),
    "control_variates.taylor_glm": lambda: fr.control_variates.taylor_glm(catalogue.glm(), [0.2, 0.1], 0.1),
    "estimate_mean": lambda: fr.estimate_mean(VALUES[:, 0], 0.3, support=(0, 1.2)),
    "gibbs_binary": lambda: fr.gibbs_binary(D, rng=1),
    "in_slice": lambda: fr.in_slice(D, 0.0, rng=1),
    "mcmc.check_bias": lambda: mcmc.check_bias(kernel(), trace(), n=3, rng=1),
    "mcmc.compress": lambda: mcmc.compress(kernel().model),
    "mcmc.correct": lambda: mcmc.correct(VALUES[:40, :2], kernel().model.reference(), kernel().model, 1),
    "mcmc.effective_sample_size": lambda: mcmc.effective_sample_size(VALUES[:, 0]),
    "mcmc.laplace": lambda: mcmc.laplace(kernel().model, 40, 1),
    "mcmc.sample": lambda: mcmc.sample(kernel(), STARTS, n_draws=3, n_chains=2, rng=1),
    "metropolis_accept": lambda: fr.metropolis_accept(D, rng=1),
    "model_selection.cover": lambda: fr.model_selection.cover([0.3, 0.6, 1.0]),
    "model_selection.gap_penalty": lambda: fr.model_selection.gap_penalty(0.1, 0.2, 100),
    "model_selection.max_discrepancy_penalty": lambda: fr.model_selection.max_discrepancy_penalty(
        lambda x, y: float(y.mean() > 0.5), X, np.where(Y > 0, 1, -1)),
    "model_selection.norm_ball_penalty": lambda: fr.model_selection.norm_ball_penalty(1.0, 2.0),
    "model_selection.race_predictions": lambda: fr.model_selection.race_predictions(
        Y, np.stack([Y, 1 - Y], 1), rng=1),
    "model_selection.rademacher_penalty": lambda: fr.model_selection.rademacher_penalty(
        lambda x, y: float(y.mean() > 0.5), X, 1, rng=1),
    "model_selection.vc_penalty": lambda: fr.model_selection.vc_penalty(3),
    "permutation_test": lambda: fr.permutation_test(
        (D[:9], D[9:20]), lambda x, y, axis: x.mean(axis) - y.mean(axis), n_resamples=99, rng=1),
    "plan_race": lambda: fr.plan_race(0.2, 0.3, 200, support=(0, 1), n_races=2, rng=1),
    "pulls.as_pulls": lambda: fr.pulls.as_pulls(catalogue.pulls_of, 4),
    "race": lambda: fr.race(D, rng=1),
    "race_sums": lambda: fr.race_sums([VALUES[:, 0], VALUES[:100, 1]], rng=1),
    "select_best": lambda: fr.select_best(catalogue.pull, 4, 1, 0.3, 0.1, rng=1),
    "sources.as_source": lambda: fr.sources.as_source(VALUES),
}
NOT_CALLED = {
    "mcmc.from_pymc": "needs PyMC",
    "control_variates.residual_rounding": "part of taylor_glm",
    "pulls.is_population": "part of as_pulls", "sources.first_outside": "part of select_best",
    "sources.reward_outside": "words of an error",
    "race_async": "event loops keep blocks of their own; tests/races/test_flight.py looks for what is left of a race",
}


@functools.cache
def kernel():
    return mcmc.RacingMetropolis(mcmc.GLM(X, Y, prior_sd=2.0))


@functools.cache
def trace():
    return mcmc.sample(kernel(), STARTS, n_draws=5, n_chains=2, rng=1)


def public_functions():
    """Functions of the modules that users name; those of other modules are parts of classes."""
    names = {name for name in catalogue.public_functions()
             if name.split(".")[0] in ("bounds", "control_variates", "pulls", "sources") or "." not in name}
    return names | {f"{part}.{name}" for part in ("mcmc", "model_selection")
                    for name in getattr(fr, part).__all__ if f"{part}.{name}" in catalogue.public_functions()}


def test_every_public_function_is_called():
    import fastrace.model_selection

    assert public_functions() == {*FUNCTIONS, *NOT_CALLED}, fastrace.model_selection


def lives(name):
    """The life of an object: made, worked, saved, restored; bad calls are in test_bad_rewards.py."""
    import copy

    fresh = catalogue.made(name)

    def life():
        thing = copy.copy(fresh)
        for k in range(3):
            catalogue.step(thing, k)
        repr(thing)
    return life


SLOW = ("model_selection.DAUBSearchCV", "model_selection.RacingSearchCV", "boosting.FilterBoostClassifier")


OBJECTS = [name for name in catalogue.OBJECTS if name not in SLOW]


@pytest.mark.parametrize("most", [300, pytest.param(10**6, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", [*FUNCTIONS, *(f"life of {name}" for name in OBJECTS)])
def test_calls_keep_nothing(name, most, settled):
    """Also on errors: `test_bad_rewards` has the lives of objects that refuse rewards."""
    call = FUNCTIONS[name] if name in FUNCTIONS else lives(name.removeprefix("life of "))
    assert_calls_keep_nothing(call, most)


# Updates allocate nothing.

STREAMS = [name for name in catalogue.OBJECTS if issubclass(catalogue.public_classes()[name], Stream)]


@pytest.mark.parametrize("name", [*STREAMS, "RunningMoments"])
def test_updates_allocate_nothing(name):
    stream = fr.RunningMoments() if name == "RunningMoments" else catalogue.public_classes()[name](
        **{"epsilon": 1e-6} if name not in ("ConfidenceSequence", "SignStop") else {})
    update, values = stream.update, [0.4, -0.4] * 50_000 if "Sign" in name else [0.4, 0.6] * 50_000
    block, some = np.array(values), values[:5000]
    for value in some:
        update(value)
    stream.update_many(block[:1000])
    found = []
    tracemalloc.start()
    try:
        for _ in range(5):                      # other threads, such as that of a test runner, may allocate meanwhile
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            for value in some:
                update(value)
            stream.update_many(block)
            now, peak = tracemalloc.get_traced_memory()
            found.append((now - before, peak - before))
            if found[-1][0] <= 1024 and found[-1][1] <= 4096:
                return
    finally:
        tracemalloc.stop()
    raise AssertionError(f"bytes kept, and at most at a time: {found}")


# Many arms, and many rows.


def of_many_arms(name, n):
    """A rule with this many arms, and a function that pulls each arm about once."""
    if name in ("RunningMoments", "RunningComoments"):
        moments, row = getattr(fr, name)(n), np.ones((1, n))
        return moments, lambda: moments.update_many(row)
    cls = catalogue.public_classes()[name]
    if name == "PermutationTest":
        rule = cls(np.zeros(n))
        return rule, lambda: (rule.tell(np.ones((1, n))), rule.ask())
    parameters = inspect.signature(cls).parameters
    given = {"n_arms": n, "n_rows": 100, "n_best": 10, "epsilon": 0.2, "support": (0, 1), "horizon": 100,
             "budget": 3 * n, "rng": 1, "sizes": np.full(n, 5) if name == "UnequalRace" else None}
    if issubclass(cls, fr.streams.stream_race.StreamRace):
        given["epsilon"] = 0.0
    rule = cls(**{key: value for key, value in given.items() if key in parameters})
    table = np.broadcast_to(np.linspace(0.0, 1.0, n), (100, n))
    if isinstance(rule, fr.select.selection.Selection):
        return rule, lambda: rule.run(BernoulliPulls(np.linspace(0.0, 1.0, n), rng=1), max_pulls=n + 1000)
    if name == "LilUCB":
        return rule, lambda: rule.run(table, max_pulls=n + 1000)
    if isinstance(rule, fr.streams.stream_race.StreamRace):
        return rule, lambda: rule.run(table[:1])
    return rule, lambda: rule.ask()


WITH_ARMS = [name for name in catalogue.OBJECTS if hasattr(catalogue.public_classes()[name], "ask")
             and "model_selection" not in name] + ["RunningMoments", "RunningComoments"]
# Bytes an arm, result included, once each arm has been pulled: moments take 40. Rules add bounds, an order, places in
# heaps and the arrays of a result, some 100 to 250 in all. Selections have 120 to 195 of these when they are made, 8 of
# them rewards of the test.
MADE = 200
BYTES = {"RunningMoments": 64, "RunningComoments": 64, "Direct": 176, "OCBA": 176, "BettingRace": 640,
         "HoeffdingRace": 640, "BernsteinRace": 640}         # races over streams keep a block of rounds


@pytest.mark.parametrize("n", [50_000, pytest.param(1_000_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", WITH_ARMS)
def test_rules_of_very_many_arms_hold_little_of_each(name, n):
    most = BYTES.get(name, 272)

    def worked():
        rule, pull = of_many_arms(name, n)
        return rule, pull()

    assert_grows_at_most(most * n + 2**22, worked)
    if issubclass(catalogue.public_classes()[name], fr.select.selection.Selection):
        assert_allocates_at_most(MADE * n + 2**16, lambda: of_many_arms(name, n))


@pytest.mark.parametrize("order", ["random", "given"])
@pytest.mark.parametrize("bound", ["serfling", "betting"])
def test_a_race_over_10_to_8_rows_allocates_by_its_arms(bound, order, tmp_path):
    """Rows that the file system has hardly stored: what grows is no more than 16 bytes for each of 8 arms, and 1 MB."""
    n_rows, k = 10**8, 2
    with open(tmp_path / "rows", "wb") as file:
        file.truncate(4 * k * n_rows)
    values = np.memmap(tmp_path / "rows", np.float32, "r", shape=(n_rows, k))
    def race():
        return fr.race(values, bound=bound, support=(0, 1), offset=[0.0, 0.5 * n_rows], order=order, rng=1)

    race()
    tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        result = race()
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert result.best == 1 and result.pulls.max() < n_rows / 1000
    assert peak <= 8 * k * 16 + 2**20
