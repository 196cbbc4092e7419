"""Every public class of the package, found by inspection, as an object that works step by step.

`made(name)` makes an object from the names of the parameters that its class requires; `MADE` makes those needing more.
`step(thing, k)` does the k-th piece of work by the methods that the object has, and returns the facts that it shows.
So a new class takes part in the tests of saving, copying, threads and damaged states before its author writes a line. A
class that these rules cannot make fails `test_saving.py` until it stands in `MADE`, or with a reason in `LEFT_OUT`.
"""

import dataclasses
import functools
import importlib
import inspect
import math
import pkgutil
import types

import numpy as np

import fastrace as fr
from fastrace import mcmc

SEED = 20160619
STEPS = 12
DOORS = "doors"      # of other libraries: their own tests save and copy them


@functools.cache
def public():
    """What a user can name, {dotted name: object}: defined in a public module, or in the `__all__` of one."""
    found = {}
    modules = (module.name for module in pkgutil.walk_packages(fr.__path__, "fastrace."))
    for name in ["fastrace", *modules]:
        if any(part.startswith("_") or part in (DOORS, "cli", "demo") for part in name.split(".")[1:]):
            continue
        module = importlib.import_module(name)
        exported = getattr(module, "__all__", ())
        for key in {*exported, *vars(module)}:
            value = getattr(module, key)
            if key.startswith("_") or not callable(value) or isinstance(value, types.GenericAlias):
                continue
            home = getattr(value, "__module__", None) or ""
            if home == name or key in exported and home.startswith("fastrace"):
                found.setdefault(value, f"{name}.{key}".removeprefix("fastrace."))
    return {name: value for value, name in found.items()}


def public_classes():
    return {name: value for name, value in public().items() if inspect.isclass(value)}


def public_functions():
    return {name: value for name, value in public().items() if not inspect.isclass(value)}


# Data, and functions that pickle.

VALUES = np.random.default_rng(SEED).random((400, 4)) + [0.0, 0.01, 0.1, 0.02]
STREAM = np.random.default_rng(SEED + 1).random(60 * STEPS) * 0.9 + 0.05
X = np.random.default_rng(SEED + 2).standard_normal((300, 2))
Y = (np.random.default_rng(SEED + 3).random(300) < 1.0 / (1.0 + np.exp(-X[:, 0]))).astype(float)


STARTS = np.array([[0.0, 0.0], [0.3, -0.3]])            # of two chains


def rewards_of(arms, rows):
    return VALUES[np.ix_(rows, arms)]


def pulls_of(arms, counts):
    return np.repeat(VALUES[7, arms], counts)


def terms(theta, rows):
    return -0.5 * (Y[rows] - X[rows] @ np.ravel(theta)) ** 2


def curve(eta, y):
    return -0.5 * (y - eta) ** 2


def slope(eta, y):
    return y - eta


def bend(eta, y):
    return np.full_like(eta, -1.0)


def flat(eta, y):
    return np.zeros_like(eta)


CURVE = [curve, slope, bend, flat, flat]


def terms_of(theta, arms, rows):
    return np.stack([terms(theta[arm], rows) for arm in arms], axis=1)


def make_source():
    theta = np.zeros((2, 2))
    return fr.sources.CallableSource(functools.partial(terms_of, theta), 2, 300), theta


def factors(states, rows, z):
    return VALUES[np.ix_(rows, states)] * 0.05


def gradients(at):
    """An expansion for `BinnedTaylor`: value, gradient and curvature of the sums of each arm's terms."""
    return (np.stack([-0.5 * (at[:, 0] - a) ** 2 for a in range(2)], axis=1),
            np.stack([np.stack([a - at[:, 0], 0.0 * at[:, 0]], axis=1) for a in range(2)], axis=1),
            np.tile(np.diag([-1.0, 0.0]), (len(at), 2, 1, 1)))


def scores_of(learner, n):
    """Training and validation score of a learner trained on n rows."""
    return 0.95 - 0.02 * learner, 0.9 - 0.01 * learner - 1.0 / math.sqrt(n)


def glm():
    return fr.likelihoods.GLMSource(X, Y, np.array([[0.1, 0.2], [0.3, -0.1]]), "logistic")


def trace():
    made = mcmc.sample(mcmc.Metropolis(mcmc.GLM(X, Y)), STARTS, n_draws=5, n_chains=2, rng=SEED)
    return dataclasses.replace(made, seconds=1.0)


def search(name, **options):
    """A fitted search over two learners."""
    from sklearn.naive_bayes import GaussianNB
    from sklearn.tree import DecisionTreeClassifier

    from fastrace import model_selection

    kind = getattr(model_selection, name)
    found = kind([("bayes", GaussianNB()), ("tree", DecisionTreeClassifier(max_depth=2))], **options, random_state=1)
    return found.fit(X, Y)


def penalty():
    from fastrace.model_selection import RootPenalty

    return RootPenalty(0.1)


def display(name, *arguments):
    from fastrace import model_selection

    return getattr(model_selection, name)(*arguments)


# Values of parameters, by name. Functions give them where they are to be fresh.
ARGUMENTS = {
    "n_arms": 4, "n_rows": 400, "n_best": 2, "n_learners": 5, "first": 50, "epsilon": 0.2, "delta": 0.05, "budget": 900,
    "horizon": 400, "sizes": [400, 300, 200, 100], "source": VALUES[:, :2], "rewards": VALUES * 0.01, "rng": SEED,
    "rows_per_quantum": [10, 20, 30], "penalties": lambda: [penalty()] * 3, "order": 2, "dim": 2,
    "returns": VALUES[:300, 0] - 0.5, "X": X, "y": Y, "terms": terms, "make": make_source, "n_states": 3,
    "factors": factors, "model": lambda: mcmc.GLM(X, Y, prior_sd=2.0), "function": rewards_of, "values": VALUES,
    "groups": np.repeat(np.arange(6), 50), "n_classes": 2,
    "mixture": lambda: mcmc.MixtureOf(mcmc.GLM(X, Y, prior_sd=2.0), np.repeat(np.arange(6), 50), 2),
    "variables": lambda: [mcmc.Categorical(3, factors, 400), mcmc.Categorical(2, factors, 400)], "support": (0.0, 1.2),
    "bound": "normal",
}
OPTIONAL = ("rng", "random_state")          # given wherever a class takes them

MADE = {        # what the names of parameters do not make
    "ConfidenceSequence": lambda: fr.ConfidenceSequence("empirical-bernstein-mixture"),     # as golden pickles have it
    "Comparison": lambda: fr.Comparison(["a", "b", "c"], support=(0.0, 1.0)),
    "RunningMoments": lambda: fr.RunningMoments(n_arms=4),
    "RunningComoments": lambda: fr.RunningComoments(n_arms=4),
    "HoeffdingRace": lambda: fr.HoeffdingRace(4, 400, support=(0.0, 1.2)),
    "RaceOptions": lambda: fr.RaceOptions(delta=0.1, first_look=30),
    "BernsteinRace": lambda: fr.BernsteinRace(4, 400, support=(0.0, 1.2)),
    "BettingRace": lambda: fr.BettingRace(4, support=(0.0, 1.2)),
    "LilUCB": lambda: fr.LilUCB(4, 400, support=(0.0, 1.2), rng=SEED),
    "control_variates.BinnedTaylor": lambda: fr.control_variates.BinnedTaylor(X, gradients, 2, n_bins=3),
    "control_variates.ControlVariate": lambda: fr.control_variates.taylor_glm(glm(), [0.2, 0.1], 0.1),
    "control_variates.TaylorSurrogate": lambda: fr.control_variates.TaylorSurrogate(glm(), [0.2, 0.1]),
    "control_variates.SoftmaxSource": lambda: fr.control_variates.SoftmaxSource(X, Y, np.array([[0.1, 0.2], [0.3, 0]])),
    "likelihoods.GLMSource": glm,
    "likelihoods.PairSource": lambda: fr.likelihoods.PairSource(fr.sources.ArraySource(VALUES), 1, 2),
    "mcmc.Compressed": lambda: mcmc.compress(mcmc.GLM(X, Y, prior_sd=2.0)),
    "mcmc.Categorical": lambda: mcmc.Categorical(3, factors, 400),
    "mcmc.FunctionModel": lambda: mcmc.FunctionModel(terms, 2, 300),
    "mcmc.Groups": lambda: mcmc.Groups(np.arange(300) % 3, slopes=[1], name="site"),
    "mcmc.Horseshoe": lambda: mcmc.Horseshoe(2.0),
    "mcmc.LogDensity": lambda: mcmc.LogDensity(math.fsum, names=("x0",)),
    "mcmc.PredictorModel": lambda: mcmc.PredictorModel(CURVE, X, [Y], backend="numpy", prior_sd=2.0),
    "mcmc.Trace": trace,
    "mcmc.LaplaceResult": lambda: mcmc.laplace(mcmc.GLM(X, Y, prior_sd=2.0), 100, rng=SEED),
    "mcmc.Reference": lambda: mcmc.GLM(X, Y).reference(),
    "mcmc.PoissonMinibatchGibbs": lambda: mcmc.PoissonMinibatchGibbs(ARGUMENTS["variables"](), (0.0, 0.06)),
    "model_selection.ASHA": lambda: fr.model_selection.ASHA(5, 400, 50),
    "model_selection.DAUBSearchCV": lambda: search("DAUBSearchCV", first=60),
    "model_selection.RacingSearchCV": lambda: search("RacingSearchCV"),
    "model_selection.RegretDisplay": lambda: display("RegretDisplay", "ab", [0.1, 0.2], [0.3, 0.4]),
    "PermutationTest": lambda: fr.PermutationTest([0.5, 0.94, 0.99], 0.1, alternative="greater", n_resamples=400),
    "Proxy": lambda: fr.Proxy(mean=0.5),
    "pulls.BernoulliPulls": lambda: fr.pulls.BernoulliPulls([0.2, 0.5, 0.7, 0.4], rng=SEED),
    "pulls.CallablePulls": lambda: fr.pulls.CallablePulls(pulls_of, 4),
    "pulls.RecordedPulls": lambda: fr.pulls.RecordedPulls(VALUES),
    "pulls.ResampledPulls": lambda: fr.pulls.ResampledPulls(VALUES, rng=SEED),
    "pulls.UniformPulls": lambda: fr.pulls.UniformPulls([0.0, 0.1, 0.2, 0.0], [0.8, 0.9, 1.0, 0.7], rng=SEED),
    "sources.ArraySource": lambda: fr.sources.ArraySource(VALUES),
    "sources.CallableSource": lambda: fr.sources.CallableSource(rewards_of, 4, 400),
}
BASE = "has no rewards or rules of its own; its subclasses do"
LEFT_OUT = {
    "mcmc.Kernel": BASE, "mcmc.Model": BASE, "model_selection.Scheduler": BASE, "pulls.PullSource": BASE,
    "pulls.RandomPulls": BASE, "results.ArmsResult": BASE, "results.ComparedResult": BASE,
    "results.Column": "part of a printed table",
    "results.Table": "part of a printed table", "results.Result": BASE,
    "select.selection.Selection": BASE, "sources.Source": BASE,
    "streams.stream_race.StreamRace": BASE,
    "pulls.CallbackPulls": "a compiled function cannot be saved",
    "sources.CallbackSource": "a compiled function cannot be saved",
    "mcmc.models.priors.Scale": BASE,
    "mcmc.PyMCModel": "tests/mcmc/test_mcmc_pymc.py saves it", "model_selection.ParquetRows": "stands for a file",
    "model_selection.SelectionCurveDisplay": "holds a result and drawings",
}
OBJECTS = sorted(set(public_classes()) - set(LEFT_OUT))


def made(name, **options):
    """An object of the public class of this dotted name, fresh and always the same; options that it need not have."""
    if name in MADE:
        return MADE[name]()
    cls = public_classes()[name]
    if issubclass(cls, BaseException):
        return cls("words")
    if dataclasses.is_dataclass(cls):
        return cls(*(_of_type(str(field.type)) for field in dataclasses.fields(cls) if field.init))
    parameters = inspect.signature(cls).parameters
    required = {key for key, parameter in parameters.items() if parameter.default is parameter.empty
                and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)}
    given = {key: _argument(parameters[key]) for key in parameters if key in required or key in OPTIONAL}
    try:
        return cls(**given, **options)
    except (TypeError, ValueError) as error:
        raise LookupError(f"{name} cannot be made of {given}: give it a line in MADE of tests/catalogue.py") from error


def _argument(parameter):
    key = parameter.name
    value = SEED if key in OPTIONAL else ARGUMENTS.get(key, _of_type(str(parameter.annotation)))
    return value() if isinstance(value, types.FunctionType) and value.__name__ == "<lambda>" else value


def _of_type(annotation):
    """A value of an annotated type."""
    for words, value in [("NDArray", np.arange(3.0)), ("tuple", ()), ("Mapping", {}), ("dict", {}), ("str", "words"),
                         ("bool", True), ("int", 3), ("float", 0.5)]:
        if words in annotation:
            return value
    return None


# Work.


def step(thing, k):
    """Do piece k of the work, from 0 to STEPS - 1; what the object shows then, as plain values."""
    return plain(work(thing, k))


def work(thing, k):
    """The same, as the object shows it."""
    for methods, of_family in WORK.items():
        if all(hasattr(thing, part) for part in methods.split()):
            return of_family(thing, k)
    if dataclasses.is_dataclass(thing) or isinstance(thing, tuple):
        return thing
    return thing.args if isinstance(thing, BaseException) else vars(thing)


def _stream(rule, k):
    part = STREAM[60 * k : 60 * (k + 1)]
    if not rule.done:
        rule.update_many(part) if k % 2 else [rule.update(x) for x in part.tolist() if not rule.done]
    return rule.n_samples, rule.estimate, rule.interval, rule.stopped_by


def _proxy(proxy, k):
    rows = slice(30 * k, 30 * (k + 1))
    return proxy.adjust(STREAM[rows], scores=STREAM[::-1][rows]), proxy.coefficient, proxy.n_rewards


def _moments(moments, k):
    moments.update_many(VALUES[30 * k : 30 * (k + 1)])
    if isinstance(moments, fr.RunningComoments):
        return moments.count, moments.difference_mean, moments.difference_variance()
    return moments.count, moments.mean, moments.variance()


def _race(race, k):
    """Any race that asks and is told."""
    if not race.done:
        if isinstance(race, fr.streams.stream_race.StreamRace):
            arms, rounds = race.ask(5)
            race.tell(VALUES[np.ix_(rounds % 400, arms)])
        elif isinstance(race, fr.select.selection.Selection):
            for _ in range(6 * k):
                if not race.done:
                    race.tell(pull(*race.ask()))
        elif isinstance(race, fr.UnequalRace):
            arms, rows = race.ask()
            race.tell(VALUES[rows, arms])
        else:
            arms, rows = race.ask()
            race.tell(VALUES[np.ix_(rows, arms)])
    return race.done, race.result()


def pull(arms, counts):
    """Rewards in [0, 1] that do not depend on what was pulled before."""
    return np.concatenate([np.resize(VALUES[:200, arm], count) for arm, count in zip(arms, counts, strict=True)]) / 1.2


def _permutation_test(test, k):
    """A column of the stream per hypothesis; now and then more or fewer rows than are asked for."""
    if not test.done:
        count, hypotheses = test.ask()
        rows = np.resize(STREAM, (400, 3))[test.n_read : test.n_read + count + 3 * (k % 3) - 3]
        test.tell(rows[:, hypotheses])
    return test.decisions, test.n_read, test.result()


def _comparison(comparison, k):
    part = STREAM[60 * k : 60 * (k + 1)]
    keys = {"clusters": np.arange(60) // 2 + 25 * k} if comparison.clusters else {}
    comparison.observe_many(np.array(["a", "b", "c"])[np.arange(60) * (k + 1) % 3], part, **keys)
    comparison.observe("b", 0.5, **({"cluster": k} if keys else {}))
    return comparison.result()


def _scheduler(scheduler, k):
    for _ in range(3):
        if not scheduler.done:
            item = scheduler.ask()
            if item is not None:            # another thread is training what there is
                scheduler.tell(*item, *scores_of(*item))
    return scheduler.done, scheduler.outstanding, scheduler.result() if scheduler.done else None


def _sampler(sampler, k):
    return sampler.draw_many(k), sampler.stats


def _decisions(test, k):
    return test.decide(-3.0 + 0.5 * k), test.accept(), test.result()


def _kernel(kernel, k):
    state, steps = kernel.run(np.random.default_rng(k), kernel.init(rng=k), 3)
    return steps, kernel.step(np.random.default_rng(k), state)[1]


def _pulls(pulls, k):
    return pulls.read(np.array([k % 4, (k + 1) % 4]), np.array([k + 1, 3]))


def _source(source, k):
    return source.read(np.arange(k, source.n_rows, 7)), source.totals()


def _estimator(model, k):
    if k == 0 and hasattr(model, "partial_fit"):
        model.fit(X, Y)
    return model.predict(X[:30])


def _lil(race, k):
    return race.run(VALUES, max_pulls=3 * k)


def _model(model, k):
    source, theta = model.engine(model.reference() if model.has_derivatives and k % 2 else None)
    theta[:] = 0.1 * k
    return source.read(np.arange(k, source.n_rows, 7)), theta


def _states(variable, k):
    return variable.n_states, variable.n_factors


WORK = {            # methods that tell a family: its work
    "predict fit": _estimator,
    "update_many interval": _stream,
    "update_many merge": _moments,
    "adjust coefficient": _proxy,
    "observe_many history": _comparison,
    "ask tell outstanding": _scheduler,
    "ask tell decisions": _permutation_test,
    "ask tell": _race,
    "draw_many stats": _sampler,
    "decide accept": _decisions,
    "init step run": _kernel,
    "engine reference": _model,
    "run result": _lil,
    "n_arms n_rows read": _source,
    "n_arms read": _pulls,
    "n_states factors": _states,
}


def plain(value):
    """Values that compare: arrays as bytes, objects by what they hold, nan equal to itself."""
    if isinstance(value, np.ndarray):
        return ("array", str(value.dtype), value.shape,
                plain(value.tolist()) if value.dtype == object else value.tobytes())
    if isinstance(value, (float, np.floating)):
        return float(value).hex()
    if isinstance(value, np.random.Generator):
        return plain(value.bit_generator.state)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [plain(getattr(value, field.name)) for field in dataclasses.fields(value)]
    if value is None or isinstance(value, (bool, int, np.integer, np.bool_, str, bytes)):
        return value
    if hasattr(value, "__dict__") and vars(value) and not callable(value):
        return type(value).__name__, plain(vars(value))
    return type(value).__name__
