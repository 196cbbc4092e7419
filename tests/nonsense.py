"""Good arguments of every public name, and calls of it with one of them replaced by nonsense.

`CALLS` has a line for what the names of parameters in `catalogue.ARGUMENTS` do not say. `walk(name)` goes through all
parameters and all nonsense in a process of its own, under a limit of memory and time, and returns what went wrong.
"""

import asyncio
import contextlib
import dataclasses
import functools
import inspect
import io
import os
import pickle
import re
import resource
import select
import signal
import sys
import tempfile
import traceback
import warnings

import numpy as np

import catalogue
import fastrace as fr
from fastrace import mcmc

SECONDS, ROOM = 10, 3 << 29         # of a call; bytes beyond what the process has
TABLE, SHORT = catalogue.VALUES * 0.7, catalogue.VALUES[:, :2] * 0.7
X, Y = catalogue.X[:60], catalogue.Y[:60]
REWARDS = np.random.default_rng(1).random(200)


class Odd:
    def __repr__(self):
        return "<odd>"


NONSENSE = {
    "None": None, "nan": np.nan, "inf": np.inf, "-1": -1, "0": 0, "0.5": 0.5, "1e9": 10**9, "1e18": 10**18,
    "1e30": 10**30, "1e400": 10**400, "float 1e308": 1e308, "text": "abc", "bytes": b"abc", "[]": [], "{}": {},
    "object": Odd(),
    "True": True, "complex": 1j, "no numbers": np.empty(0), "three axes": np.zeros((2, 3, 4)), "ragged": [[1], [2, 3]],
    "words": np.array(["a", "b"]), "objects": np.array([None, Odd()]), "with nan": np.array([np.nan, 1.0, 0.5]),
    "dates": np.array(["2020-01-01"], "datetime64[D]"), "function": lambda: 1,
}


def pull(arms, counts):
    return catalogue.pull(arms, counts)


def statistic(x, y, axis=-1):
    return np.mean(x, axis=axis) - np.mean(y, axis=axis)


def glm():
    return mcmc.GLM(X, Y, prior_sd=2.0)


def by_race_async(**given):
    async def run():
        return await fr.race_async(**given)

    return asyncio.run(run())


def sampled(kernel):
    """A kernel that makes a step."""
    kernel.run(np.random.default_rng(1), kernel.init(rng=1), 2)
    return kernel


def fitted(search):
    return search.fit(X, Y)


def _learners():
    from sklearn.naive_bayes import GaussianNB
    from sklearn.tree import DecisionTreeClassifier

    return [("bayes", GaussianNB()), ("tree", DecisionTreeClassifier(max_depth=2))]


def _trace():
    return mcmc.sample(mcmc.Metropolis(glm()), n_draws=20, n_chains=2, n_tune=20, rng=1)


POINT = {"psi_hat": np.zeros(2)}
KERNEL = {"model": glm}
SUMS = {"n": 20, "n_rows": 50, "std": 0.3, "delta": 0.05, "support": (0.0, 1.0)}
# Arguments; functions without a name are called for them.
CALLS = {
    "race": {"rewards": TABLE, "support": (0.0, 1.0), "rng": 1},
    "race_async": {"evaluate": lambda: catalogue_evaluate, "n_arms": 4, "n_rows": 40, "support": (0.0, 1.0), "rng": 1,
                   "max_pulls": 60},
    "race_sums": {"rewards": lambda: [TABLE[:200, 0], TABLE[:, 1]], "first_look": 20},
    "plan_race": {"gap": 0.1, "sd": 0.3, "n_rows": 200, "support": (0.0, 1.0), "n_races": 3, "rng": 1},
    "select_best": {"pull": lambda: pull, "n_arms": 4, "n_best": 1, "epsilon": 0.1, "max_pulls": 3000, "rng": 1},
    "estimate_mean": {"rewards": REWARDS, "epsilon": 0.3, "rng": 1},
    "permutation_test": {"data": lambda: (X[:, 0], X[:, 1]), "statistic": lambda: statistic, "n_resamples": 200,
                         "rng": 1},
    "in_slice": {"source": SHORT, "log_u": -1.0, "support": (-1.0, 1.0)},
    "gibbs_binary": {"source": SHORT, "support": (-1.0, 1.0)},
    "metropolis_accept": {"source": SHORT, "support": (-1.0, 1.0), "rng": 1},
    "AcceptTest": {"source": SHORT, "support": (-1.0, 1.0), "rng": 1},
    "BettingRace": {"n_arms": 4, "support": (0.0, 1.2)}, "BernsteinRace": {
        "n_arms": 4, "horizon": 400, "support": (0.0, 1.2)},
    "HoeffdingRace": {"n_arms": 4, "horizon": 400, "support": (0.0, 1.2)},
    "LilUCB": {"n_arms": 4, "n_rows": 400, "support": (0.0, 1.2), "rng": 1},
    "Comparison": {"arms": ["a", "b", "c"], "support": (0.0, 1.0)},
    "Proxy": {"mean": 0.5}, "PermutationTest": {"observed": [0.5, 0.94, 0.99], "n_resamples": 400},
    "RunningMoments": {"n_arms": 4}, "RunningComoments": {"n_arms": 4},
    "DiscreteSampler": {"rewards": TABLE * 0.01, "support": (0.0, 1.0), "rng": 1},
    "UnequalRace": {"sizes": [400, 300, 200, 100]},
    "bounds.crossing_probability": {"quantile": 2.0, "variances": [3.0, 2.0, 1.0]},
    "bounds.look_delta": {"look": 3, "delta": 0.05},
    "bounds.normal_quantile_from_variances": {"delta": 0.05, "variances": [3.0, 2.0, 1.0]},
    "bounds.skewness_inflation": {"skewness": 1.0, "n": 20, "n_rows": 50, "quantile": 2.0},
    "bounds.student_quantile": {"quantile": 2.0, "n": 20},
    "boosting.FilterBoostClassifier": {"n_estimators": 2, "random_state": 1},
    "control_variates.taylor_glm": {"glm": catalogue.glm, "theta_hat": [0.2, 0.1]},
    "control_variates.BinnedTaylor": {"y": catalogue.X, "expansion": lambda: catalogue.gradients, "n_arms": 2,
                                      "n_bins": 3},
    "control_variates.TaylorSurrogate": {"glm": catalogue.glm, "theta_hat": [0.2, 0.1]},
    "control_variates.SoftmaxSource": {"X": X, "y": Y, "theta": np.array([[0.1, 0.2], [0.3, -0.1]])},
    "likelihoods.GLMSource": {"X": X, "y": Y, "theta": np.array([[0.1, 0.2], [0.3, -0.1]]), "family": "logistic"},
    "likelihoods.PairSource": {"source": lambda: fr.sources.ArraySource(TABLE), "arm_a": 1, "arm_b": 2},
    "mcmc.ARCH": {"returns": X[:, 0], "order": 2}, "mcmc.Binned": KERNEL | {"n_bins": 5},
    "mcmc.Categorical": {"n_states": 3, "factors": lambda: catalogue.factors, "n_factors": 400},
    "mcmc.Gamma": {"shape": 2.0, "rate": 1.0}, "mcmc.GLM": {"X": X, "y": Y, "prior_sd": 2.0},
    "mcmc.Softmax": {"X": X, "y": lambda: Y.astype(int), "prior_sd": 2.0},
    "mcmc.FunctionModel": {"terms": lambda: catalogue.terms, "dim": 2, "n_rows": 300},
    "mcmc.Groups": {"codes": np.arange(60) % 3}, "mcmc.LogDensity": {
        "function": lambda: catalogue_density, "names": ("a",)},
    "mcmc.MixtureOf": {"model": glm, "groups": np.repeat(np.arange(6), 10), "n_classes": 2},
    "mcmc.PoissonMinibatchGibbs": {"variables": catalogue.ARGUMENTS["variables"], "support": (0.0, 0.06)},
    "mcmc.PredictorModel": {"term": catalogue.CURVE, "X": X, "columns": [Y], "backend": "numpy", "prior_sd": 2.0},
    "mcmc.SourceModel": {"make": lambda: catalogue.make_source},
    "mcmc.SurrogateGibbs": {"mixture": lambda: mcmc.MixtureOf(glm(), np.repeat(np.arange(6), 10), 2)},
    "mcmc.check_bias": {"kernel": lambda: mcmc.RacingMetropolis(glm()), "trace": _trace, "n": 20, "rng": 1},
    "mcmc.compress": {"model": glm}, "mcmc.laplace": {"model": glm, "n_draws": 50, "rng": 1},
    "mcmc.correct": {"draws": lambda: np.random.default_rng(1).normal(size=(50, 2)) * 0.3, "model": glm, "rng": 1,
                     "surrogate": lambda: mcmc.compress(glm())},
    "mcmc.effective_sample_size": {"chains": lambda: np.random.default_rng(1).normal(size=(2, 50))},
    "mcmc.sample": {"kernel": lambda: mcmc.Metropolis(glm()), "n_draws": 10, "n_chains": 2, "n_tune": 10, "rng": 1},
    "model_selection.ASHA": {"n_learners": 5, "n_rows": 400, "first": 50},
    "model_selection.RootPenalty": {"constant": 0.1},
    "model_selection.RowScore": {"function": lambda: statistic},
    "model_selection.DAUBSearchCV": {"estimator": _learners, "first": 30, "random_state": 1},
    "model_selection.RacingSearchCV": {"estimator": _learners, "cv": 2, "random_state": 1},
    "model_selection.cover": {"g": [0.1, 0.2, 0.4]},
    "model_selection.gap_penalty": {"train_risk": 0.1, "valid_risk": 0.2, "n": 100},
    "model_selection.max_discrepancy_penalty": {"training_error": lambda: catalogue_error, "X": X, "y": 2 * Y - 1},
    "model_selection.norm_ball_penalty": {"radius": 1.0, "row_norm": 2.0},
    "model_selection.race_predictions": {"y_true": Y, "y_pred": np.stack([Y, 1 - Y], axis=1), "rng": 1},
    "model_selection.rademacher_penalty": {"training_error": lambda: catalogue_error, "X": X, "rng": 1},
    "model_selection.vc_penalty": {"dimension": 3.0},
    "model_selection.RegretDisplay": {"names": "ab", "regret": [0.1, 0.2], "fraction": [0.3, 0.4]},
    "pulls.BernoulliPulls": {"mean": [0.2, 0.5], "rng": 1},
    "pulls.CallablePulls": {"function": lambda: pull, "n_arms": 4},
    "pulls.RecordedPulls": {"values": TABLE, "paired": False},
    "pulls.ResampledPulls": {"source": TABLE, "rng": 1, "n_arms": 4, "n_rows": 400, "paired": False},
    "pulls.UniformPulls": {"low": [0.0, 0.1], "high": [0.8, 0.9], "rng": 1},
    "pulls.as_pulls": {"pull": TABLE, "n_arms": 4, "rng": 1}, "pulls.is_population": {"pull": TABLE},
    "sources.ArraySource": {"values": TABLE}, "sources.CallableSource": {
        "function": lambda: catalogue.rewards_of, "n_arms": 4, "n_rows": 400},
    "sources.as_source": {"rewards": TABLE, "n_arms": 4, "n_rows": 400},
}
INSIDE = re.compile(r"^(commands|results|streams|select|races)\.|^mcmc\.[a-z_]+\.|\.(first_outside|reward_outside|"
                    r"residual_rounding)$")      # not for users
# Of scikit-learn and joblib; and numbers of steps that take as long as they say.
FOREIGN_PARAMETERS = {"cv", "n_jobs", "pre_dispatch", "refit", "scoring", "verbose"}
LONG = {("mcmc.check_bias", "n"), ("mcmc.sample", "n_tune"), ("boosting.FilterBoostClassifier", "n_estimators"),
        ("race_async", "n_rows"), ("mcmc.FunctionModel", "n_rows"), ("model_selection.rademacher_penalty", "n_draws")}
LEFT_OUT = {
    "control_variates.ControlVariate": "made by taylor_glm", "mcmc.from_pymc": "tests/mcmc/test_mcmc_pymc.py",
    "mcmc.Compressed": "made by compress", "mcmc.Reference": "made by models", "boosting.Stump": "made by fits",
}


def catalogue_evaluate(arm, row):
    return float(TABLE[row, arm])


def catalogue_density(theta):
    return -0.5 * float(np.sum(theta * theta))


def catalogue_error(X, y):
    return 0.25


def names():
    """Every public name that takes arguments, but for results, which are made by others."""
    for name, thing in sorted(catalogue.public().items()):
        record = dataclasses.is_dataclass(thing) and name != "RaceOptions" or inspect.isclass(thing) and (
            issubclass(thing, (tuple, BaseException)))
        if not (record or INSIDE.search(name) or name in LEFT_OUT or name in catalogue.LEFT_OUT):
            yield name


def good(name):
    """Good arguments, fresh."""
    thing = catalogue.public()[name]
    if name in CALLS:
        given = CALLS[name]
    elif name.startswith("bounds."):
        given = {key: value for key, value in SUMS.items() if key in inspect.signature(thing).parameters}
    elif name.startswith("mcmc.") and "model" in inspect.signature(thing).parameters:
        given = KERNEL
    else:
        parameters = inspect.signature(thing).parameters.values()
        given = {one.name: catalogue._argument(one) for one in parameters
                 if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)}
        given |= {key: 1 for key in ("rng", "random_state") if key in inspect.signature(thing).parameters}
    return {key: value() if inspect.isfunction(value) and value.__name__ in ("<lambda>", "glm", "_trace", "_learners")
            else value for key, value in given.items()}


def parameters(name):
    thing = catalogue.public()[name]
    try:
        found = inspect.signature(thing).parameters.values()
    except ValueError:
        return list(CALLS[name])
    known = [one.name for one in found if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    return known + [key for key in CALLS.get(name, ()) if key not in known]


def call(name, given):
    """Call it, and let what it makes do a little work."""
    thing = catalogue.public()[name]
    if name == "race_async":
        return by_race_async(**given)
    made = thing(**given)
    if inspect.isclass(thing):
        if name.endswith(("SearchCV", "Classifier")):
            fitted(made)
        elif hasattr(made, "init") and hasattr(made, "run"):
            sampled(made)
        elif isinstance(made, fr.select.selection.Selection):
            if not made.done and made.ask()[1].sum() < 10**5 and made._n_arms <= 4:
                made.tell(pull(*made.ask()))
        elif name in catalogue.OBJECTS and getattr(made, "n_arms", 4) == 4 and given.get("n_rows", 400) == 400:
            with contextlib.suppress(ValueError, TypeError, AssertionError, RuntimeError):      # nothing trained yet
                catalogue.work(made, 1)
        pickle.dumps(made) if name.startswith(("AA", "EB")) else None
    repr(made)
    return made


class TooSlow(BaseException):
    pass


# Words of NumPy, Python and Cython where those of the package are missing.
FOREIGN = re.compile("|".join((
    "could not convert", "ufunc", "has no len", "unsupported operand", "not supported between", "NoneType",
    "object is not", "has no attribute", "an integer is required", "must be real number", "expected .* got",
    "cannot be interpreted", "ambiguous", "inhomogeneous", "could not be broadcast", "not iterable",
    "not subscriptable", "Cannot c(onver|as)t", "can't convert", "can only", "Buffer (dtype|has)",
    "setting an array element", "unhashable", "invalid literal", "bad operand", "cannot unpack", "not enough values",
    "too many values", "Maximum allowed", "negative dimensions", "array is too big", "casting rule", "truth value",
    "out of bounds", "invalid value", "maximum recursion", "memoryview", "required positional argument",
    "'(float|int|str)' object")))


OWN = re.compile(r"need|give|is no |at most|at least|one of|must|none|instead|cannot")


def in_words(error, key):
    """Whether an error names the argument and says what is needed, in words of the package."""
    said = str(error)
    if not said:
        return False
    if re.match(r"Argument '\w+' has incorrect type \(expected", said):      # of Cython, and clear
        return True
    return bool(key and re.search(rf"\b{key}\b", said) and OWN.search(said)) or not FOREIGN.search(said)


def judged(name, given, key=""):
    """What is wrong with a call, in words; None if it is right."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            call(name, given)
        except (ValueError, TypeError, ImportError, FileNotFoundError) as error:
            if not in_words(error, key):
                last = traceback.extract_tb(error.__traceback__)[-1]
                return f"{type(error).__name__} in foreign words: {error} ({last.name}:{last.lineno})"
        except MemoryError as error:
            if not str(error):
                return "MemoryError without words"
        except TooSlow:
            return f"took more than {SECONDS} s"
        except BaseException as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            return f"{type(error).__name__}: {error} ({last.name}:{last.lineno})"
    for one in said:
        leaks = re.search("encountered|Mean of empty|Degrees of", str(one.message))
        if leaks and issubclass(one.category, RuntimeWarning):
            return f"warning leaks: {one.message} (line {one.lineno} of {one.filename})"
    return None


def cases(name):
    """Parameter and nonsense of each call; the first is of good arguments."""
    search = name.endswith(("SearchCV", "Classifier"))
    return [("", "good"), *((key, what) for key in parameters(name) for what in NONSENSE
                            if not (search and key in FOREIGN_PARAMETERS)
                            and not ((name, key) in LONG and what in ("1e9", "1e18")))]


def walk(name, only=lambda key, what: True):
    """What went wrong, by parameter and nonsense, and how many calls there were."""
    left = [case for case in cases(name) if only(*case)]
    wrong, count = {}, len(left)
    while left:
        left = left[_walked(name, left, wrong):]
    return wrong, count


# Arrays with masked entries. What is read behind a mask has no meaning, and nobody notices.

ARRAYS = {          # tried for each parameter; there is nothing odd behind the mask
    "of 2": np.array([0.1, 0.2]), "of 4": np.array([0.1, 0.2, 0.3, 0.4]), "of 60": np.arange(60) % 3,
    "of 400": TABLE[:, 0], "numbers of 2": np.array([0, 1]), "table": TABLE, "pair": np.array([[0.1, 0.2], [0.3, 0.4]]),
    "ends of 4": (np.full(4, -0.2), np.full(4, 1.2)), "table of 60": X,
}
OF_SKLEARN = ("model_selection.", "boosting.")
WITH_MASKS = {      # names of any kind; what is not read, or by the user's own function
    "names", "name", ("pulls.is_population", "pull"), ("model_selection.rademacher_penalty", "X"),
    ("model_selection.max_discrepancy_penalty", "X"), ("mcmc.SourceModel", "make"),
}


def masked(value):
    """The same value with an entry masked of each array in it, or of what a function in it returns; else None."""
    if isinstance(value, np.ndarray):
        mask = np.arange(value.size).reshape(value.shape) == value.size - 1
        return np.ma.masked_array(value, mask) if value.size and value.ndim and value.dtype.kind in "fiub" else None
    if inspect.isfunction(value):
        def changed(*args, **options):
            found = value(*args, **options)
            other = masked(found)
            changed.did = other is not None
            return found if other is None else other

        changed.did = False
        return functools.wraps(value)(changed)
    if isinstance(value, dict):
        parts = {key: masked(part) for key, part in value.items()}
        return None if all(part is None for part in parts.values()) else {
            key: value[key] if part is None else part for key, part in parts.items()}
    if type(value) in (list, tuple) and value:
        if all(isinstance(part, (int, float)) for part in value):
            return masked(np.array(value))
        parts = [masked(part) for part in value]
        return None if all(part is None for part in parts) else type(value)(
            part if other is None else other for part, other in zip(value, parts, strict=True))
    return None


def said_of_masked(call, value):
    """What is wrong with how a call meets a mask in this value; None if it is refused, or refused without one too."""
    def said(value):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                call(value)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return ""

    other = masked(value)
    if other is None or said(value):
        return None
    words = said(other)
    parts = other if isinstance(other, (list, tuple)) else [other]
    asked = not all(inspect.isfunction(part) for part in parts) or any(part.did for part in parts)
    if "mask" in words.lower() or "nan" in words or not (words or asked):
        return None
    return words or "reads behind the mask"


def walk_masked(name):
    """What went wrong with masked arrays, by parameter and array, and how many were tried."""
    wrong, count = {}, 0
    given = good(name)
    for key in parameters(name):
        def tried(value, key=key):
            made = call(name, good(name) | {key: value})
            if name in catalogue.OBJECTS and key in given and not isinstance(value, np.ndarray) and not isinstance(
                    made, fr.select.selection.Selection):
                catalogue.work(made, 1)

        if key in WITH_MASKS or (name, key) in WITH_MASKS or key not in given and _takes(tried, Odd()):
            continue            # read nowhere
        for what, value in {**({"good": given[key]} if key in given else {}), **ARRAYS}.items():
            count += masked(value) is not None
            words = said_of_masked(tried, value)
            if words:
                wrong[key, what] = words
    return wrong, count


# Durations and dates are counts of a unit that no door knows. NumPy makes numbers of them without a word.

WITH_UNITS = {      # labels of any kind; what is not read, or by the user's own function
    "names", "name", "arms", ("mcmc.Groups", "codes"), ("mcmc.MixtureOf", "groups"), ("mcmc.Softmax", "y"),
    ("model_selection.rademacher_penalty", "X"), ("model_selection.max_discrepancy_penalty", "X"),
    ("model_selection.race_predictions", "y_pred"),
    ("model_selection.race_predictions", "y_true"), ("model_selection.race_predictions", "labels"),
    ("model_selection.RegretDisplay", "names"), ("mcmc.SourceModel", "make"), ("pulls.is_population", "pull"),
}


def with_unit(value, kind):
    """The same value with each array of numbers in it as one of durations or dates; None if it has none."""
    if isinstance(value, np.ndarray):
        plain = value.size and value.ndim and value.dtype.kind in "fiub"
        return value.astype(np.int64).astype(f"{kind}8[s]") if plain else None
    if isinstance(value, dict):
        parts = {key: with_unit(part, kind) for key, part in value.items()}
        return None if all(part is None for part in parts.values()) else {
            key: value[key] if part is None else part for key, part in parts.items()}
    if type(value) in (list, tuple) and value:
        if all(isinstance(part, (int, float)) for part in value):
            return with_unit(np.array(value), kind)
        parts = [with_unit(part, kind) for part in value]
        return None if all(part is None for part in parts) else type(value)(
            part if other is None else other for part, other in zip(value, parts, strict=True))
    return None


def walk_units(name):
    """What went wrong with durations and dates, by parameter and array, and how many were tried."""
    wrong, count, given = {}, 0, good(name)

    def said(key, value):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                call(name, good(name) | {key: value})
        except Exception as error:
            return f"{type(error).__name__}: {error}", in_words(error, key)
        return "", False

    for key in parameters(name):
        if key in WITH_UNITS or (name, key) in WITH_UNITS or key not in given and not said(key, Odd())[0]:
            continue
        for what, value in {**({"good": given[key]} if key in given else {}), **ARRAYS}.items():
            others = {kind: with_unit(value, kind) for kind in "mM"}
            if others["m"] is None or said(key, value)[0]:
                continue
            for kind, other in others.items():
                count += 1
                words, own = said(key, other)
                if not own:
                    wrong[key, f"{what} as {kind}8"] = words or "reads it as numbers"
    return wrong, count


def _takes(call, value):
    try:
        call(value)
    except Exception:
        return False
    return True


def _walked(name, left, wrong):
    """Go through the cases in a process of its own; how many it came through, one that it did not survive included."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            _walk(name, write, left)
        finally:
            os._exit(0)
    os.close(write)
    text, done = b"", 0
    while select.select([read], [], [], 3.0 * SECONDS)[0] and (part := os.read(read, 1 << 16)):
        *lines, text = (text + part).split(b"\n")
        for line in lines:
            if line:
                wrong[left[done]] = line.decode()
            done += 1
    os.close(read)
    if done < len(left):
        os.kill(child, signal.SIGKILL)
        wrong[left[done]] = "hangs, or ends the process"
        done += 1
    os.waitpid(child, 0)
    return done


def _walk(name, write, left):
    def late(*_):
        raise TooSlow

    signal.signal(signal.SIGALRM, late)
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + ROOM, size + ROOM))
    sys.stderr = sys.stdout = io.StringIO()
    os.chdir(tempfile.mkdtemp())        # "abc" may be a file
    for key, what in left:
        given = good(name)
        if key:
            given[key] = NONSENSE[what]
        signal.alarm(SECONDS)
        try:
            words = judged(name, given, "scores|proxy" if key == "proxy" else key)
            if not key and words is None:
                call(name, good(name))
        except TooSlow:
            words = f"took more than {SECONDS} s"
        except Exception as error:
            words = f"good arguments are refused: {error}"
        signal.alarm(0)
        os.write(write, (words or "").replace("\n", " ").encode(errors="replace") + b"\n")
