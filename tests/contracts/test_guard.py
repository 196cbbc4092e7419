"""One use of an object at a time, after it has been set up, once: whoever comes in between is refused.

Who may come in between: another thread, a callback, `__array__` or `__float__` of what the user passes, a signal
handler, pickling. What a subclass may forget: `super().__init__()`.
"""

import copy
import ctypes
import importlib
import pickle
import pkgutil

import numpy as np
import pytest

import fastrace as fr
from fastrace.likelihoods import GLMSource
from in_use import NEVER_SET_UP, bernoulli, generator

# Every compiled class.


def compiled_classes():
    """{dotted name: extension type} of all modules, private ones too; types of optional packages where they are."""
    found = {}
    for module in pkgutil.walk_packages(fr.__path__, "fastrace."):
        try:
            loaded = importlib.import_module(module.name)
        except ImportError:
            continue
        for name, value in vars(loaded).items():
            if isinstance(value, type) and value.__module__ == loaded.__name__ and not value.__flags__ & HEAP_TYPE:
                found[f"{module.name.rpartition('.')[2]}.{name}"] = value
    return found


HEAP_TYPE = 1 << 9      # of CPython: set for classes made by a class statement in Python
COMPILED = compiled_classes()
ENDS = {"low": np.zeros(3), "high": np.ones(3)}
ROWS = np.random.default_rng(1).normal(size=(200, 2))
WINS = (ROWS[:, 0] > 0.0).astype(float)


def model():
    return GLMSource(ROWS, WINS, np.zeros((2, 2)))


def expansion(at):
    return np.zeros((len(at), 2)), np.zeros((len(at), 2, 2)), np.zeros((len(at), 2, 2, 2))


def selector(rule, **more):
    low, high = rule._support
    return lambda: ((3, 1), {"rng": generator(), "low": low, "high": high, **rule._options, **more})


def chain():
    from fastrace.mcmc.kernels import _chain, _proposal

    source = model()
    return (source, _chain.parameters_of(source), np.zeros(2), np.eye(2), _proposal.Proposal()), {"surrogate": False}


def call(*arguments, **options):
    return lambda: (arguments, options)


def compiled_function(returns, *types):
    """A compiled callback for `CallbackSource` and `CallbackPulls`."""
    from scipy import LowLevelCallable

    return LowLevelCallable(ctypes.CFUNCTYPE(returns, *types)(lambda *given: 0))


def rewards_callback():
    return (compiled_function(ctypes.c_int, ctypes.POINTER(ctypes.c_double), ctypes.c_ssize_t,
                              ctypes.POINTER(ctypes.c_int64), ctypes.c_ssize_t), 2, 100), {}


def pulls_callback():
    return (compiled_function(ctypes.c_int, ctypes.POINTER(ctypes.c_ssize_t), ctypes.POINTER(ctypes.c_int64),
                              ctypes.c_ssize_t, ctypes.POINTER(ctypes.c_double)), 2), {}


def stumps():
    from fastrace.boosting import _boost, _edges

    return ([0, 1], [0, 0], [0, 0], [0, 2, 4], _edges.EdgeRule(2, "nas", 0.2, 3.0),
            _boost.Filter(0.1, generator())), {}


def weighted():
    from fastrace.races import _weighted

    return (_weighted.AliasTable(np.ones(5)), [10, 20], 0.05, 1.0), {}


def expansions():
    """Two groups of 100 rows, expanded at 0."""
    return ([0, 100, 200], np.zeros((2, 2)), np.zeros(2), np.zeros((2, 6)), np.stack([np.eye(2)] * 2), np.ones(200),
            np.ones(2), np.zeros(2))


def sweeps():
    from fastrace._models._group_expansions import GroupExpansions
    from fastrace.mcmc.kernels import _chain

    source = model()
    return (source, _chain.parameters_of(source), GroupExpansions(*expansions()), 2, 0.0, 1.0), {
        "moves": (True, True, False), "concentration": 1.0, "sd_scale": 1.0, "most": 0.3, "order_by": -1}


def class_at():
    from fastrace._models._group_expansions import GroupExpansions

    glm = GLMSource(np.ones((200, 1)), np.arange(200.0), family="gaussian", learn_scale=True)
    return (glm, GroupExpansions(*expansions()), 100), {}


def core_of(race):
    """The arguments of the core of a race over 200 rows."""
    options = race._options
    return call(2, 200, bound=options.bound, pairwise=options.variance == "pairwise",
                shuffled=options.order == "given", guarded=options.skewness_guard, tails=options.tail_guard,
                scan_advantage=options.scan_advantage, max_pulls=-1, strict=True, low=None, high=None, rng=generator())


def expanded():
    """An expansion that a surrogate is made of, and a prior of as many parameters."""
    from fastrace._models._arrow import Arrow, Quadratic
    from fastrace._models._priors import JointPrior

    return Quadratic(np.zeros(2), 0.0, np.zeros(2), Arrow(np.eye(2))), JointPrior([("normal", 0.0, 1.0, 0.0, -1)] * 2)


def group_blocks():
    """Two groups of two rows each, whose effects stand after one coefficient."""
    from fastrace._models._arrow import Arrow, Quadratic
    from fastrace._models._priors import JointPrior
    from fastrace._models.grouping import Factor

    curvature = Arrow(np.eye(1), np.zeros((1, 2)), np.ones((2, 1, 1)), 1)
    prior = JointPrior([("normal", 0.0, 1.0, 0.0, -1)] * 3)
    factor = Factor("group", np.array([0, 0, 1, 1], dtype=np.int32), ("0", "1"), 1, ("1",), True, (), None, False)
    return (Quadratic(np.zeros(3), 0.0, np.zeros(3), curvature), prior, factor, [0, 1], 1, np.ones((4, 1))), {}


def scaled_inner():
    """Two coordinates that rows see, the second the logarithm of a scale."""
    from fastrace._models._arrow import Arrow, Quadratic
    from fastrace._models._priors import JointPrior

    whole = Quadratic(np.zeros(2), 0.0, np.zeros(2), Arrow(np.eye(2)))
    return (whole, whole, JointPrior([("normal", 0.0, 1.0, 0.0, -1)], aux=("half-normal", 1.0, 0.0))), {}


def inner_move():
    from fastrace.mcmc.kernels import _nested_normal

    return (_nested_normal.NormalInner(*expanded()),), {}


def row_inner():
    from fastrace._models import _slopes

    return (_slopes.GLMSlopes(model()), *expanded(), np.zeros(2), 0.5, 1.5, np.ones(2)), {}


def row_move():
    from fastrace.mcmc.kernels import _row_hamiltonian

    return (_row_hamiltonian.RowInner(*row_inner()[0]),), {}


def urns():
    from fastrace.mcmc.kernels import _chain
    from fastrace.races import _weighted

    source, *others = chain()[0]
    return (_chain.ExactChain(source, *others, surrogate=False), _weighted.AliasTable(np.ones(source.n_rows))), {}


# How each compiled class is made: arguments and options of its __init__. Streams and chains share theirs with the root.
ARGUMENTS = {
    "moments._Running": call(), "moments.RunningMoments": call(2), "moments.RunningComoments": call(2),
    "_adapt.Adapt": selector(fr.Adapt(3, 1, 0.1)), "_allocate.Ocba": selector(fr.OCBA(3, 1, 5000)),
    "_allocate.Race": selector(fr.SubsetRace(3, 1, 500)), "_lucb.LucbSelector": selector(fr.KLLUCB(3, 1, 0.1)),
    "_duels.Duels": lambda: ((1, 0.0, np.zeros(3), np.ones(3)), {}),
    "_duels.AsymptoticDuels": lambda: ((1, 0.0, np.zeros(3), np.ones(3), 3.0, 20, 60.0), {}),
    "_paired.PairedSelector": selector(fr.LUCB(3, 1, 0.1, paired=True)),
    "_pairs.PairSelector": selector(fr.LUCB(3, 1, 0.1)),
    "_unbounded.UnboundedSelector": selector(fr.LUCB(3, 1, 0.1, symmetric=True)),
    "_lucb.SarSelector": selector(fr.SAR(3, 1, 5000)), "_plans.Direct": selector(fr.Direct(3, 1, 0.1, 0.1)),
    "_plans.Elimination": selector(fr.Halving(3, 1, 0.3, 0.1)),
    "_selector.Selector": lambda: ((3, 1), {**ENDS, "rng": generator()}),
    "_arch.ArchSource": call(WINS, 2, np.zeros((2, 4))),
    "_edges.EdgeRule": call(2, "target-eb", 0.2, 3.0), "_boost.Filter": lambda: ((0.1, generator()), {}),
    "_boost.StumpStream": stumps,
    "_arrow.Arrow": call(np.eye(2)), "_arrow.Quadratic": lambda: (
        (np.zeros(2), 0.0, np.zeros(2), expanded()[0].curvature), {}),
    "_arrow.ArrowFactor": lambda: ((expanded()[0].curvature, [(2, 1)]), {}),
    "_hamiltonian.HamiltonianInner": lambda: (expanded(), {}), "_nested_normal.NormalInner": lambda: (expanded(), {}),
    "_group_blocks.ClassBlocks": group_blocks, "_group_blocks.GroupBlocks": group_blocks,
    "_scaled.ScaledInner": scaled_inner,
    "_slopes.Slopes": call(2, 4), "_slopes.GLMSlopes": lambda: ((model(),), {}),
    "_slopes.AskedSlopes": call(lambda theta: (0.0, theta), 2, 4),
    "_row_hamiltonian.RowInner": row_inner, "_row_hamiltonian.RowMove": row_move,
    "_class_at.ClassAt": class_at, "_surrogate.Inner": lambda: (expanded()[:1], {}),
    "_surrogate.GivenMove": call(np.zeros((3, 2))), "_surrogate.SurrogateMove": inner_move, "_chain.Urns": urns,
    "_inclusion.InclusionMove": call(np.eye(2), np.zeros(2), np.zeros(2), np.array([1]), np.zeros(2), 1),
    "_minibatch.BlockTable": call(np.ones(4), np.array([0, 1, 1, 0]), 2),
    "_chain.Move": call(), "_proposal.Proposal": call(), "_slice.Sweep": call(1.0, 4),
    "_core.Race": core_of(fr.FiniteRace(2, 200)),
    "_expanded.TermSource": call(2, 100),
    "_expanded.Expanded": lambda: ((model(), np.zeros(2)), {}),
    "_expanded.Expansion": lambda: ((model(), np.zeros(2)), {}),
    "_expanded.OwnTerms": lambda: ((fr.sources.ArraySource(ROWS), np.zeros((2, 2)), np.zeros((200, 6))), {}),
    "_group_expansions.GroupExpansions": lambda: (expansions(), {}), "_mixture_memory.MixtureMemory": sweeps,
    "_surrogate_gibbs.SurrogateGibbsCore": sweeps,
    "_answers.RaceAnswers": call(2, 200, bound="normal", pairwise=True, shuffled=False, guarded=False, tails=False,
                                 low=None, high=None, rng=generator()),
    "_judge.RaceJudge": call(2, 200, bound="normal", pairwise=True, shuffled=False, guarded=False, tails=False,
                             low=None, high=None, rng=generator()),
    "_lil.LilRace": lambda: ((2, 200), dict(fr.LilUCB(2, 200, support=(0, 1))._options)),
    "_memory.RaceMemory": lambda: (
        (2, 200), {"pairwise": True, "shuffled": False, "betting": True, "low": np.zeros(2), "high": np.ones(2),
                   "rng": generator()}),
    "_scores.RaceScores": lambda: (
        (2, 200), {"pairwise": True, "shuffled": False, "betting": True, "low": np.zeros(2), "high": np.ones(2),
                   "rng": generator(), "proxy": ROWS}),
    "_priors.JointPrior": call([("normal", 0.0, 1.0, 0.0, -1)] * 2),
    "_row_order.RowOrder": lambda: ((200, generator()), {}),
    "_softmax.SoftmaxSource": call(ROWS, WINS, np.zeros((2, 2)), 2),
    "_rounds.Rounds": call(3, "hoeffding", 100, 1, 0.1, 3.0, np.zeros(3), np.ones(3)),
    "_stream_race.StreamRace": call(3, "hoeffding", 100, 1, 0.1, 3.0, np.zeros(3), np.ones(3)),
    "_threshold.ThresholdRace": lambda: (
        (fr.sources.ArraySource(ROWS), "normal", [50, 200], [3.0, 3.0], [2.0, 2.0]),
        {"shuffled": False, "guard": False, "advantage": 1.0, "rng": generator()}),
    "_ragged.Ragged": call([np.ones(3), np.ones(5)]),
    "_unequal.UnequalCore": lambda: (([3, 5],), dict(fr.UnequalRace([3, 5], support=(0, 1))._options)),
    "_unequal_judge.UnequalJudge": lambda: (([3, 5],), dict(fr.UnequalRace([3, 5], support=(0, 1))._options)),
    "_weighted.AliasTable": call(np.ones(5)), "_weighted.WeightedRace": weighted,
    "_xla_chain.Crew": call(lambda: None, True),
    "control_variates.ControlVariate": lambda: ((model(), fr.sources.ArraySource(ROWS)), {"always_read": [3]}),
    "control_variates.TaylorSurrogate": lambda: ((model(), np.zeros(2)), {}),
    "_binned.BinnedTaylor": call(ROWS, expansion, 2, n_bins=4),
    "likelihoods.GLMSource": call(ROWS, WINS, np.zeros((2, 2))),
    "likelihoods.PairSource": lambda: ((fr.sources.ArraySource(ROWS),), {}),
    "_pull_source.PullSource": call(2), "_pull_source.RandomPulls": call(2),
    "_pull_source.BernoulliPulls": call([0.1, 0.2]), "_pull_source.UniformPulls": call([0.0, 0.1], [0.5, 0.6]),
    "pulls.ResampledPulls": call(ROWS),
    "pulls.RecordedPulls": call(ROWS), "pulls.CallablePulls": call(bernoulli, 2), "pulls.CallbackPulls": pulls_callback,
    "sources.Source": call(2, 100), "sources._BlockSource": call(2, 100), "sources.ArraySource": call(ROWS),
    "sources.CallableSource": call(lambda arms, rows: np.ones((len(rows), len(arms))), 2, 100),
    "_ledger.Ledger": call(2, 100, True), "sources.CallbackSource": rewards_callback,
}


def arguments_of(name):
    """Arguments and options that make an object of this compiled class."""
    if name in ARGUMENTS:
        return ARGUMENTS[name]()
    from fastrace.mcmc.kernels import _chain
    from fastrace.streams import _stopping

    if issubclass(COMPILED[name], _chain.Chain):
        return chain()
    assert issubclass(COMPILED[name], _stopping.Stream), f"{name}: say in ARGUMENTS how it is made"
    return (), {}


# What methods are called with, by kind, until one fits or all have been refused.
GIVEN = [(), (0.5,), (2,), ([0],), (np.ones((2, 2)),), (np.zeros(2),), (np.zeros(2), np.zeros(2), None), (None,),
         ("never",), (generator(),), (np.array([0, 1]), np.array([1, 1])), (np.zeros((2, 2), np.uint8),
         np.ones(2, np.int8)), (np.zeros((2, 2), np.uint8), np.ones(2, np.int8), np.ones(2)), (1, 0.5),
         (np.ones((3, 2), np.int8),), (np.ones((2, 2)), np.full(2, 5.0)), (fr.sources.ArraySource(ROWS),),
         (fr.sources.ArraySource(ROWS), 1), (fr.pulls.BernoulliPulls([0.1, 0.2, 0.3]), 100),
         ([50, 200], [2.0, 2.0], 3.0),
         (generator(), np.empty((2, 2)), np.empty(2, np.int64), np.empty(2, np.int32), np.empty(2, np.uint8))]


def use_everything(thing):
    """Read every attribute, call every method and pickle; the errors. A crash ends the test run."""
    raised = []

    def tried(use):
        try:
            return use()
        except Exception as error:
            raised.append(error)

    for name in sorted(set(dir(type(thing)))):
        if name.startswith("__") and name not in ("__reduce__", "__copy__", "__len__", "__repr__", "__add__"):
            continue
        if name in ("start", "plan", "begin") or name.startswith(("_configure", "_open")):     # these are set-up
            continue
        found = tried(lambda name=name: getattr(thing, name))
        if callable(found):
            for given in GIVEN:
                tried(lambda found=found, given=given: found(*given))
    for use in (lambda: pickle.dumps(thing), lambda: copy.copy(thing), lambda: repr(thing), lambda: thing + thing):
        tried(lambda use=use: use())
    return raised


def says_never_set_up(errors):
    return any(isinstance(error, RuntimeError) and NEVER_SET_UP in str(error) for error in errors)


# Set up whole by __new__, so that no subclass can forget it.
WHOLE = {"_row_order.RowOrder", "_chain.Move", "_priors.JointPrior", "_proposal.Proposal", "_slice.Sweep",
         "_chain.Urns", "_inclusion.InclusionMove", "_minibatch.BlockTable", "_row_hamiltonian.RowMove",
         "_surrogate.GivenMove", "_surrogate.SurrogateMove"}
# No method of its own; whoever takes one looks at its guard.
NO_METHODS = {"_class_at.ClassAt", "_group_blocks.ClassBlocks", "_group_blocks.GroupBlocks", "_weighted.WeightedRace",
              "_xla_chain.Crew"}


@pytest.mark.parametrize("name", sorted(COMPILED))
def test_a_compiled_class_whose_subclass_forgets_its_set_up_is_refused(name):
    cls = COMPILED[name]
    arguments, options = arguments_of(name)

    class Bare(cls):
        def __init__(self, *arguments, **options):
            pass

    thing = Bare(*arguments, **options)
    assert name in WHOLE | NO_METHODS or says_never_set_up(use_everything(thing))
    refused_by_all_that_take(thing)


def refused_by_all_that_take(thing):
    """Give an object that was never set up to what takes one of its kind."""
    from fastrace._models import _expanded
    from fastrace.races import _weighted

    if isinstance(thing, fr.sources.Source):
        for take in (fr.race, fr.AcceptTest, fr.likelihoods.PairSource, fr.pulls.ResampledPulls,
                     lambda s: fr.FiniteRace(2, 200).run(s), lambda s: fr.DiscreteSampler(s).draw(),
                     lambda s: fr.control_variates.ControlVariate(s, fr.sources.ArraySource(ROWS)),
                     lambda s: fr.control_variates.ControlVariate(fr.sources.ArraySource(ROWS), s),
                     lambda s: fr.control_variates.TaylorSurrogate(s, np.zeros(2)),
                     lambda s: _expanded.Expanded(s, np.zeros(2))):
            with pytest.raises((RuntimeError, TypeError), match=f"{NEVER_SET_UP}|expected|a GLMSource or a"):
                take(thing)
    if isinstance(thing, fr.pulls.PullSource):
        with pytest.raises(RuntimeError, match=NEVER_SET_UP):
            fr.LUCB(2, 1, 0.1).run(thing, 100)
    if isinstance(thing, _weighted.AliasTable):
        with pytest.raises(RuntimeError, match=NEVER_SET_UP):
            _weighted.WeightedRace(thing, [10], 0.1, 1.0)


def pairs_with_bases():
    return [(name, base) for name, cls in sorted(COMPILED.items()) if "__init__" in vars(cls)
            for base in cls.__mro__[1:-1] if "__init__" in vars(base)]


@pytest.mark.parametrize(("name", "base"), pairs_with_bases(), ids=lambda part: getattr(part, "__name__", part))
def test_a_compiled_class_whose_subclass_calls_the_set_up_of_a_base_alone_is_refused(name, base):
    cls = COMPILED[name]
    arguments, options = arguments_of(name)
    of_base, base_options = arguments_of(next(key for key, value in COMPILED.items() if value is base))

    class Shallow(cls):
        def __init__(self, *arguments, **options):
            base.__init__(self, *of_base, **base_options)

    thing = Shallow(*arguments, **options)
    assert says_never_set_up(use_everything(thing))
    refused_by_all_that_take(thing)


@pytest.mark.parametrize("name", sorted(COMPILED))
def test_a_compiled_class_is_set_up_once(name):
    cls = COMPILED[name]
    arguments, options = arguments_of(name)
    thing = cls(*arguments, **options)
    for key, base in COMPILED.items():
        if base in cls.__mro__ and "__init__" in vars(base):
            again, more = arguments_of(key)
            with pytest.raises(TypeError, match="in use: __init__ runs once"):
                base.__init__(thing, *again, **more)
    use_everything(thing)
