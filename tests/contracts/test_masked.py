"""Masked arrays: no public name and no method reads what stands behind a mask; each refuses it in words.

`np.asarray` drops a mask without a word, so each door has to look. Functions and classes are found by inspection, with
the good arguments of `tests/nonsense.py`; methods that take arrays, by the names of their parameters.
"""

import inspect
import itertools
import re

import nonsense
import numpy as np
import pytest

import catalogue
import fastrace as fr
from catalogue import STREAM, VALUES, X, Y
from fastrace import mcmc
from fastrace.streams._stopping import Stream


@pytest.mark.parametrize("name", list(nonsense.names()))
def test_no_argument_is_read_behind_its_mask(name):
    if name.startswith(nonsense.OF_SKLEARN):
        pytest.importorskip("sklearn")
    wrong, _count = nonsense.walk_masked(name)
    assert not wrong, "\n".join(f"{name}({key}={what}): {words}" for (key, what), words in wrong.items())


# Methods.


def shaped(thing, asked, arms=4):
    """Rewards of the shape that a race has asked for, and what came with the request."""
    first, second = asked
    if isinstance(thing, fr.select.selection.Selection):
        return catalogue.pull(first, second)
    if isinstance(thing, fr.UnequalRace):
        return VALUES[second, first]
    return VALUES[np.ix_(second % 400, first)]


def told(thing):
    yield "tell", {"rewards": shaped(thing, thing.ask())}
    if "pending" in inspect.signature(thing.ask).parameters and not isinstance(
            thing, (fr.HoeffdingRace, fr.BernsteinRace)):
        third = list(inspect.signature(thing.tell).parameters)[2]
        arms, numbers = thing.ask(2, pending=True)
        rewards = shaped(thing, (arms, numbers)) if third == "rows" else VALUES[7, arms]
        yield "tell", {"rewards": rewards, "arms": arms, third: numbers}


def given(name, thing):
    """Methods of an object, each with good arguments."""
    point = np.array([0.1, 0.2])
    if isinstance(thing, Stream):
        yield "update_many", {"xs": STREAM[:9]}
    elif isinstance(thing, (fr.RunningMoments, fr.RunningComoments)):
        yield "update_many", {"xs": VALUES[:9]}
    elif isinstance(thing, fr.Comparison):
        yield "observe_many", {"arms": ["a"] * 9, "rewards": STREAM[:9]}
    elif isinstance(thing, fr.Proxy):
        yield "adjust", {"rewards": STREAM[:9], "scores": STREAM[9:18]}
    elif isinstance(thing, fr.PermutationTest):
        yield "tell", {"statistics": VALUES[:9, :3]}
        yield "run", {"resample": lambda k, hypotheses: np.resize(STREAM, (k, len(hypotheses)))}
    elif isinstance(thing, fr.sources.Source):
        arms = np.arange(min(2, thing.n_arms))
        yield "read", {"rows": np.arange(5), "arms": arms}
        for method in ("shifts", "totals"):
            yield method, {"arms": arms}
        if hasattr(thing, "set_theta"):
            yield "set_theta", {"values": np.array([[0.1, 0.2], [0.3, 0.1]])}
        if isinstance(thing, fr.likelihoods.GLMSource):
            yield "derivatives", {"theta_hat": point}
            yield "expand", {"y": Y[:5], "eta": X[:5, 0]}
            yield "third_derivatives", {"low": X[:5, 0] - 9.0, "high": X[:5, 0] + 9.0, "y": Y[:5]}
        for method in ("residual_bound", "change_bound", "changes_from_hat"):
            if hasattr(thing, method):
                third = {"third_derivative": np.ones(2)} if name.endswith("BinnedTaylor") else {}
                yield method, third | {"always_read": np.array([3, 5])}
    elif isinstance(thing, fr.pulls.PullSource):
        yield "read", {"arms": np.array([0, 1]), "counts": np.array([2, 1])}
    elif isinstance(thing, (fr.FiniteRace, fr.LilUCB, fr.streams.stream_race.StreamRace, fr.UnequalRace)):
        table = VALUES if not isinstance(thing, fr.UnequalRace) else [VALUES[:size, i] for i, size in enumerate(
            catalogue.ARGUMENTS["sizes"])]
        yield "run", {"rewards" if "rewards" in inspect.signature(thing.run).parameters else "source": table}
        if not isinstance(thing, fr.UnequalRace):
            yield "run", {"rewards" if "rewards" in inspect.signature(thing.run).parameters else "source":
                          lambda arms, rows: VALUES[np.ix_(rows % 400, arms)]}
        yield from told(thing)
    elif isinstance(thing, fr.select.selection.Selection):
        yield "run", {"pull": lambda arms, counts: catalogue.pull(arms, counts), "max_pulls": 200}
        yield "run", {"pull": VALUES / 1.2, "max_pulls": 200, "order": "given"}
        yield from told(thing)
    elif isinstance(thing, mcmc.Compressed):
        for method, key in (("distance", "psi"), ("gradient", "psi"), ("log_likelihood", "psi"),
                            ("hessian_product", "vector")):
            yield method, {key: point}
    elif isinstance(thing, mcmc.Model):
        width = np.full(thing.dim, 0.2)
        for method, key in (("constrain", "theta"), ("possible", "theta"), ("unconstrain", "values")):
            yield method, {key: width}
        if thing.has_derivatives:
            yield "reference", {"theta_hat": width}
        yield "log_posteriors", {"theta": width[None]}
        if isinstance(thing, (mcmc.GLM, mcmc.Softmax)):
            yield "expand_seen", {"psi": width}
            trace = mcmc.sample(mcmc.RacingMetropolis(thing), n_draws=2, n_chains=1, n_tune=0, rng=1)
            yield "predict", {"trace": trace, "X": X[:5]}
        if isinstance(thing, mcmc.PredictorModel):
            yield "curve", {"order": 1, "eta": X[:5, 0], "rows": np.arange(5)}
            yield "predictors", {"theta": width, "rows": np.arange(5)}
    elif hasattr(thing, "init") and hasattr(thing, "step"):
        start = thing.init(rng=1).position
        yield "init", {"position": np.array(start)}
    elif name == "boosting.FilterBoostClassifier":
        yield "fit", {"X": X, "y": Y, "sample_weight": np.ones(300)}
        yield "partial_fit", {"X": X, "y": Y, "classes": np.array([0.0, 1.0])}
        for method in ("predict", "predict_proba", "predict_log_proba", "decision_function", "staged_predict"):
            yield method, {"X": X}
    elif name.endswith("SearchCV"):
        yield "fit", {"X": X, "y": Y}


TAKES_ARRAYS = re.compile(
    r"^(rewards|xs|statistics|arms|rows|pulls|rounds|counts|theta|theta_hat|psi|vector|position|values|X|y|eta|low|"
    r"high|third_derivative|always_read|q|scores|clusters|sample_weight|response|resample|classes|source)$")
LEFT_OUT = {        # methods whose arrays the package made itself, or that hand them to a method of the table
    "FilterBoostClassifier.fit_chunks": "hands each chunk to what partial_fit calls",
    "FilterBoostClassifier.staged_decision_function": "as staged_predict",
    "FilterBoostClassifier.staged_predict_proba": "as staged_predict",
    "GLMSource.mixed_derivatives": "as derivatives", "GLMSource.mixed_third_derivatives": "as third_derivatives",
    "PredictorModel.terms": "calls predictors and curve",
    "RowScore.rows": "tested below", "RowScore.fold": "tested below", "RowScore.table": "as rows",
    "LogDensity.evaluate": "of points that kernels make", "ThresholdRace.set_support": "of plain numbers",
    "RacePlan.quantile": "tested below",
}
SKLEARN = re.compile(r"^(Base|Classifier|Callback|RequestMethod)")     # of scikit-learn


def made(name):
    if name.startswith(nonsense.OF_SKLEARN):
        pytest.importorskip("sklearn")
    return catalogue.made(name)


WITH_METHODS = [name for name in catalogue.OBJECTS if not name.startswith(("results.", "mcmc.trace"))]


@pytest.mark.parametrize("name", WITH_METHODS)
def test_no_method_reads_behind_a_mask(name):
    for place, (method, arguments) in enumerate(list(given(name, made(name)))):
        def call(arguments, method=method, place=place):
            thing = made(name)
            if hasattr(thing, "fit") and method.startswith(("predict", "decision", "staged")):
                thing.fit(X, Y)
            others = next(itertools.islice(given(name, thing), place, None))[1]
            found = getattr(thing, method)(**others | arguments)
            next(found) if hasattr(found, "__next__") else found

        for key, value in arguments.items():
            if nonsense.masked(value) is None:
                continue
            call({})            # good arguments are taken
            words = nonsense.said_of_masked(lambda value, key=key, call=call: call({key: value}), value)
            assert not words, f"{name}.{method}({key}): {words}"


def test_every_method_that_takes_arrays_is_called_with_a_mask():
    called, there = set(), set()
    for name in WITH_METHODS:
        cls = catalogue.public_classes()[name]
        thing = made(name)
        called |= {getattr(cls, method).__qualname__ for method, _ in given(name, thing)}
        for method in dir(cls):
            function = getattr(cls, method)
            if method.startswith("_") or not callable(function) or not hasattr(function, "__qualname__"):
                continue
            try:
                keys = inspect.signature(function).parameters
            except ValueError:
                continue
            if any(TAKES_ARRAYS.match(key) for key in keys) and not SKLEARN.match(function.__qualname__):
                there.add(function.__qualname__)
    assert not there - called - set(LEFT_OUT), sorted(there - called - set(LEFT_OUT))
    assert not set(LEFT_OUT) - there, sorted(set(LEFT_OUT) - there)


def test_frames_with_masks_are_refused():
    rewards = np.ma.masked_array([0.2, 0.9], [False, True])
    with pytest.raises(ValueError, match="column 'r' has masked entries"):
        fr.Comparison.from_frame({"a": np.array(["x", "y"]), "r": rewards}, arm="a", reward="r", support=(0, 1))
    with pytest.raises(ValueError, match="rewards has masked entries"):
        fr.race({"a": rewards, "b": rewards}, support=(0, 1))


def test_rewards_of_requests_say_what_is_masked():
    race = fr.FiniteRace(2, 1000, support=(0, 1), rng=1)
    arms, rows = race.ask(4, pending=True)
    block = np.ma.masked_array(np.full((len(rows), len(arms)), 0.5), np.eye(len(rows), len(arms)))
    with pytest.raises(ValueError, match="rewards has masked entries"):
        race.tell(block, arms, rows)
    race.tell(block.data, arms, rows)
    assert not len(race.pending[0])


def test_a_masked_answer_of_a_request_is_no_number():
    with pytest.raises(TypeError, match="gave masked; a number is needed"):
        nonsense.by_race_async(evaluate=lambda arm, row: np.ma.masked, n_arms=2, n_rows=50, support=(0, 1), rng=1)


def test_scores_of_rows_know_masks():
    model_selection = pytest.importorskip("fastrace.model_selection")
    score = model_selection.RowScore(lambda y, response: -abs(y - response))
    masked = nonsense.masked(Y)
    with pytest.raises(ValueError, match="response has masked entries"):
        score.rows(Y, masked, None, None)
    with pytest.raises(ValueError, match="what RowScore.* gave has masked entries"):
        score.rows(masked, Y, None, None)
    with pytest.raises(ValueError, match="sample_weight has masked entries"):
        score.fold(Y, 300, nonsense.masked(np.ones(300)))


def test_a_proxy_of_estimates_and_single_rewards_know_masks():
    masked = np.ma.masked_array([0.2, 0.9, 0.4], [False, True, False])
    with pytest.raises(ValueError, match="scores has masked entries"):
        fr.Proxy(masked)
    with pytest.raises(ValueError, match="q has masked entries"):
        fr.plan_race(0.3, 0.3, n_rows=200, n_races=2, rng=1).quantile(masked)
    with pytest.raises(ValueError, match="mask"):
        fr.estimate_mean(lambda rows: np.ma.masked_array(np.full(len(rows), 0.5), True), 0.1, accuracy="absolute",
                         proxy=np.linspace(0, 1, 900), rng=1)
    with pytest.raises(ValueError, match="mask"):
        fr.permutation_test((masked, np.array([0.1, 0.3, 0.5])), nonsense.statistic, rng=1)
    with pytest.raises(ValueError, match="mask"):
        fr.select_best(lambda arms, counts: np.ma.masked_array(np.full(counts.sum(), 0.5), True), 3, rng=1)


def test_masked_rewards_are_pointed_to_nan_which_may_be_missing():
    table = np.ma.masked_array(VALUES[:, :3].copy(), False)
    table[:200, 1] = np.ma.masked
    with pytest.raises(ValueError, match=r"rewards has masked entries.*\.filled\(numpy\.nan\).*missing='drop'"):
        fr.race(table, missing="drop")
    assert fr.race(table.filled(np.nan), missing="drop", rng=1).n_missing > 0
    with pytest.raises(ValueError, match="fill them first$"):
        mcmc.GLM(nonsense.masked(X), Y, "gaussian", scale=1.0)
