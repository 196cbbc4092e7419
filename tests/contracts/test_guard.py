"""One use of an object at a time, after it has been set up, once: whoever comes in between is refused.

Who may come in between: another thread, a callback, `__array__` or `__float__` of what the user passes, a signal
handler, pickling. What a subclass may forget: `super().__init__()`.
"""

import copy
import ctypes
import importlib
import pickle
import pkgutil
import threading
import types

import numpy as np
import pytest

import fastrace as fr
from fastrace.likelihoods import GLMSource

NEVER_SET_UP = "never set up: a subclass must call super"


def in_threads(*calls):
    """Run the calls at once, each in a thread of its own; return what each raised, or None."""
    raised = [None] * len(calls)
    start = threading.Barrier(len(calls))

    def guarded(k):
        start.wait()
        try:
            calls[k]()
        except BaseException as error:
            raised[k] = error

    threads = [threading.Thread(target=guarded, args=(k,)) for k in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


class Reenters:
    """An array_like or number that runs `act` while it is converted, the first time."""

    def __init__(self, value, act):
        self.value, self.acts = value, [act]

    def __array__(self, dtype=None, copy=None):
        if self.acts:
            self.acts.pop()()
        return np.array(self.value, dtype=dtype)

    def __float__(self):
        if self.acts:
            self.acts.pop()()
        return float(self.value)


# Moments.

class Forgetful(fr.RunningMoments):
    def __init__(self):
        pass


class ForgetfulComoments(fr.RunningComoments):
    def __init__(self):
        pass


@pytest.mark.parametrize("use", [
    lambda m: m.update(1.0), lambda m: m.update_many([1.0]), lambda m: m.merge(fr.RunningMoments()),
    lambda m: fr.RunningMoments().merge(m), lambda m: m + m, lambda m: m.count, lambda m: m.mean,
    lambda m: m.variance(), lambda m: m.std(), repr, pickle.dumps, copy.copy, lambda m: m.copy()])
def test_moments_that_were_never_set_up_are_refused(use):
    with pytest.raises(RuntimeError, match=NEVER_SET_UP):
        use(Forgetful())


@pytest.mark.parametrize("use", [
    lambda m: m.update_many([[1.0]]), lambda m: m.merge(fr.RunningComoments(1)), lambda m: m.count,
    lambda m: m.leader, lambda m: m.difference_mean, lambda m: m.difference_variance(), repr, pickle.dumps])
def test_comoments_that_were_never_set_up_are_refused(use):
    with pytest.raises(RuntimeError, match=NEVER_SET_UP):
        use(ForgetfulComoments())


def test_moments_count_what_comes_in_while_an_argument_is_converted():
    m = fr.RunningMoments()
    m.update(Reenters(2.0, lambda: m.update_many([1.0, 3.0])))
    m.update_many(Reenters([4.0], lambda: m.update(0.0)))
    assert m.count == 5 and m.mean == 2.0


def test_moments_of_two_threads_are_all_counted():
    m, other = fr.RunningMoments(), fr.RunningMoments()
    x = np.arange(300_000.0)

    def one_by_one():
        for value in range(20_000):
            m.update(value)

    def in_blocks():
        for _ in range(10):
            m.update_many(x)

    def looks():
        for _ in range(2000):
            other.merge(m)
            pickle.loads(pickle.dumps(m))

    assert in_threads(one_by_one, in_blocks, in_blocks, looks) == [None] * 4
    assert m.count == 20_000 + 20 * x.size
    assert m.mean == pytest.approx((20 * x.sum() + sum(range(20_000))) / m.count, rel=1e-12)


# Selections.

RULES = {
    "direct": lambda: fr.Direct(3, 1, 0.1, 0.1),
    "median": lambda: fr.Halving(3, 1, 0.3, 0.1),
    "adapt": lambda: fr.Adapt(3, 1, 0.1, rng=1),
    "blocks": lambda: fr.Adapt(3, 1, 0.1, batch=50, rng=1),
    "ocba": lambda: fr.OCBA(3, 1, 5000, rng=1),
    "subset race": lambda: fr.SubsetRace(3, 1, 500, rng=1),
    "lucb": lambda: fr.LUCB(3, 1, 0.1),
    "kl-lucb": lambda: fr.KLLUCB(3, 1, 0.1),
}


def bernoulli(arms, counts):
    return np.random.default_rng(1).random(int(counts.sum())) < 0.5


@pytest.mark.parametrize("make", RULES.values(), ids=RULES)
def test_rewards_that_tell_while_they_are_converted_are_counted_once(make):
    rule, raised = make(), []
    arms, counts = rule.ask()
    rewards = bernoulli(arms, counts)

    def again():
        for use in (lambda: rule.tell(rewards), rule.ask, rule.result, lambda: pickle.dumps(rule),
                    lambda: rule.run(bernoulli, 5)):
            with pytest.raises(RuntimeError, match="in use"):
                use()
            raised.append(use)

    rule.tell(Reenters(rewards, again))
    assert len(raised) == 5
    assert rule.n_pulls == counts.sum()
    assert rule.result().pulls.sum() == counts.sum()


@pytest.mark.parametrize("make", RULES.values(), ids=RULES)
def test_two_threads_that_tell_are_counted_or_refused(make):
    rule = make()
    told = [0, 0]

    def tell(k):
        for _ in range(300):
            try:
                if rule.done:
                    return
                arms, counts = rule.ask()
                rewards = Reenters(bernoulli(arms, counts), lambda: threading.Event().wait(1e-5))
                rule.tell(rewards)
                told[k] += counts.sum()
            except RuntimeError as error:
                assert "in use" in str(error)
            except ValueError as error:     # the other thread's rewards came in between
                assert "needed" in str(error) or "over" in str(error)

    assert in_threads(lambda: tell(0), lambda: tell(1)) == [None, None]
    assert rule.n_pulls == sum(told) == rule.result().pulls.sum()


def test_a_selection_is_not_pickled_in_the_middle_of_a_run():
    rule, raised = fr.Adapt(3, 1, 0.1, rng=1), []

    def pull(arms, counts):
        for use in (lambda: pickle.dumps(rule), lambda: copy.copy(rule), rule.result, lambda: rule.error_bound):
            with pytest.raises(RuntimeError, match="in use"):
                use()
            raised.append(use)
        return bernoulli(arms, counts)

    rule.run(pull, 100)
    assert raised
    rebuilt = pickle.loads(pickle.dumps(rule))
    assert rebuilt.run(bernoulli, 500).pulls.tolist() == rule.run(bernoulli, 500).pulls.tolist()


def test_selectors_are_set_up_once_and_never_used_before():
    from fastrace.select import _adapt, _allocate, _lucb, _paired, _pairs, _plans, _selector, _unbounded

    class Skips(_lucb.SarSelector):
        def __init__(self, n_arms, n_best):
            rng = np.random.default_rng(1)
            _selector.Selector.__init__(self, n_arms, n_best, low=np.zeros(n_arms), high=np.ones(n_arms), rng=rng)

    with pytest.raises(TypeError, match="budget"):
        Skips(3, 1)
    for cls in (_adapt.Adapt, _allocate.Ocba, _allocate.Race, _lucb.LucbSelector, _lucb.SarSelector,
                _paired.PairedSelector, _pairs.PairSelector, _unbounded.UnboundedSelector, _plans.Direct,
                _plans.Elimination):
        new = cls.__new__(cls, 3, 1)
        for use in (new.ask, new.get_state, new.answer, new.chosen, lambda new=new: new.tell([1.0]),
                    lambda new=new: new.run(fr.pulls.BernoulliPulls([0.1, 0.2, 0.3]), 100)):
            with pytest.raises(RuntimeError, match=NEVER_SET_UP):
                use()
        with pytest.raises((RuntimeError, TypeError)):
            new.start()
        with pytest.raises(RuntimeError, match=NEVER_SET_UP):
            new.ask()
    core = fr.Adapt(3, 1, 0.1)._core
    state = core.get_state()
    for again in (core.start, lambda: core.set_state(state),
                  lambda: _selector.Selector.__init__(core, 3, 1, low=np.zeros(3), high=np.ones(3),
                                                      rng=np.random.default_rng(1))):
        with pytest.raises((TypeError, ValueError), match="in use"):
            again()


# Decisions and chains.

def test_the_source_of_a_test_is_not_replaced_in_the_middle_of_a_decision():
    raised = []

    def differences(arms, rows):
        for use in (lambda: setattr(test, "source", other), lambda: pickle.dumps(test), lambda: test.set_support(0, 1),
                    lambda: test.draw_noise(False), lambda: test.decide(0.0), test.result, lambda: test.warnings):
            with pytest.raises(RuntimeError, match="in use"):
                use()
            raised.append(use)
        return np.ones((len(rows), 1))

    test = fr.AcceptTest(fr.sources.CallableSource(differences, 1, 1000), rng=1)
    other = fr.sources.ArraySource(np.ones((1000, 1)))
    assert test.decide(0.0) and len(raised) % 7 == 0 and raised
    test.source = other
    assert test.source is other and test.decide(0.0)


def test_sources_replaced_by_another_thread_are_refused_or_used_by_the_next_decision():
    tables = [np.full((200_000, 1), float(k)) for k in (1, 2)]
    test = fr.AcceptTest(tables[0], rng=1, scan_advantage=1.0, first_look=200_000)
    stop = threading.Event()

    def decide():
        try:
            for _ in range(60):
                try:
                    assert test.decide(0.0) and test.result().mean in (1.0, 2.0)
                except RuntimeError as error:
                    assert "in use" in str(error)
        finally:
            stop.set()

    def replace():
        while not stop.is_set():
            try:
                test.source = fr.sources.ArraySource(tables[0] + np.random.default_rng().integers(2))
                pickle.loads(pickle.dumps(test))
            except RuntimeError as error:
                assert "in use" in str(error)

    assert in_threads(decide, replace) == [None, None]


def test_the_result_of_a_test_is_of_one_decision():
    test = fr.AcceptTest(np.ones(500), rng=1)
    stop = threading.Event()
    seen = []

    def decide():
        try:
            for k in range(3000):
                try:
                    test.decide(500.0 * (k % 2) + 1.0)      # accepted, rejected, ...
                except RuntimeError as error:
                    assert "in use" in str(error)
        finally:
            stop.set()

    def look():
        while not stop.is_set():
            try:
                result = test.result()
            except (RuntimeError, ValueError) as error:
                assert "in use" in str(error) or "nothing has been decided" in str(error)
            else:
                seen.append(result)
                assert result.accepted == (result.threshold == 1.0) and result.mean == 1.0

    assert in_threads(decide, look) == [None, None]
    assert test.result().accepted == (test.result().threshold == 1.0)


def test_a_threshold_race_is_set_up_once_and_never_used_before():
    from fastrace.races._threshold import ThresholdRace

    class Bare(ThresholdRace):
        def __init__(self):
            pass

    test = Bare()
    for use in (lambda: test.run(0.0), lambda: setattr(test, "source", fr.sources.ArraySource([[1.0]])),
                lambda: test.set_support(0.0, 1.0), lambda: test.draw_noise(True), lambda: test._get_order(),
                lambda: test._set_order(("none", None, None, None))):
        with pytest.raises(RuntimeError, match=NEVER_SET_UP):
            use()
    test = fr.AcceptTest(np.ones(100), rng=1)
    with pytest.raises(TypeError, match="in use"):
        test.__init__(np.ones(50))
    assert test.n_rows == 100 and test.decide(0.0)


@pytest.fixture
def glm():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 2))
    y = (rng.random(200) < 0.5).astype(float)
    return GLMSource(X, y, np.zeros((2, 2)))


def chain_of(kind, glm, **options):
    from fastrace.mcmc.kernels import _chain, _proposal

    options = {"surrogate": False} | options
    return kind(glm, _chain.parameters_of(glm), np.zeros(2), np.eye(2), _proposal.Proposal(), **options)


def run(chain, n=10):
    chain.run(np.random.default_rng(1), np.empty((n, 2)), np.empty(n, np.int64), np.empty(n, np.int32),
              np.empty(n, np.uint8))


def test_a_chain_is_refused_to_a_proposal_that_uses_it(glm):
    from fastrace.mcmc.kernels import _chain, _proposal

    raised = []

    def log_prior(theta):
        for use in (lambda: run(chain), lambda: chain.load(np.zeros(2), np.zeros(2), None),
                    lambda: chain.set_coordinates(np.ones(2), np.eye(2)), lambda: chain.use(_proposal.Proposal())):
            with pytest.raises(RuntimeError, match="in use"):
                use()
            raised.append(use)
        return 0.0

    chain = chain_of(_chain.ExactChain, glm, log_prior=log_prior)
    chain.load(np.zeros(2), np.zeros(2), None)
    run(chain)
    assert raised


def test_chains_without_their_race_or_table_and_points_of_another_length_are_refused(glm):
    from fastrace.mcmc.kernels import _chain, _minibatch, _proposal
    from fastrace.races import _weighted

    for kind in (_chain.RaceChain, _minibatch.PoissonChain, _minibatch.TunaChain,
                 _minibatch.FireflyChain):
        with pytest.raises(RuntimeError, match=NEVER_SET_UP):
            run(chain_of(kind, glm))
        with pytest.raises(RuntimeError, match=NEVER_SET_UP):
            run(kind.__new__(kind))
    chain = chain_of(_chain.ExactChain, glm)
    for bad in (np.zeros(1), np.zeros((2, 2)), []):
        for use in (lambda bad=bad: chain.load(bad, np.zeros(2), None), lambda bad=bad: chain.whiten(bad),
                    lambda bad=bad: chain.load(np.zeros(2), bad, None)):
            with pytest.raises(ValueError, match="shape"):
                use()
    with pytest.raises(TypeError, match="in use"):
        chain.__init__(glm, _chain.parameters_of(glm), np.zeros(2), np.eye(2), _proposal.Proposal(), surrogate=False)
    firefly = chain_of(_minibatch.FireflyChain, glm)
    firefly.set_table(_weighted.AliasTable(np.ones(200)), 100.0)
    for bad in ((200,), (-1,), (5, 3), (3, 3)):
        with pytest.raises(ValueError, match="bright row"):
            firefly.load(np.zeros(2), np.zeros(2), bad)
    with pytest.raises(RuntimeError, match=NEVER_SET_UP):
        firefly.set_table(_weighted.AliasTable.__new__(_weighted.AliasTable), 100.0)


# Races and streams.

def once(use, found):
    """A function of (arms, rows) that refuses to be used inside itself."""
    def function(arms, rows):
        with pytest.raises(RuntimeError, match="in use"):
            use()
        found.append(use)
        return np.random.default_rng(int(rows[0])).random((len(rows), len(arms)))
    return function


@pytest.mark.parametrize("use", ["ask", "tell", "pickle", "run", "set_support", "plan"])
def test_a_race_in_use_is_refused(use):
    found = []
    race = fr.FiniteRace(2, 500, rng=1)
    core = race._race
    act = {"ask": race.ask, "tell": lambda: race.tell(np.ones((50, 2))), "pickle": lambda: pickle.dumps(race),
           "run": lambda: race.run(np.ones((500, 2))), "set_support": lambda: core.set_support(0, 1),
           "plan": lambda: core.plan([50, 500], [2.0, 2.0], 3.0)}[use]
    race.run(fr.sources.CallableSource(once(act, found), 2, 500))
    assert found


@pytest.mark.parametrize("make", [
    lambda: fr.LilUCB(2, 50, support=(0, 1)), lambda: fr.UnequalRace([50, 50], support=(0, 1))], ids=["lil", "unequal"])
@pytest.mark.parametrize("act", [lambda race: race.ask(), pickle.dumps, lambda race: race.result()], ids=range(3))
def test_other_races_in_use_are_refused(make, act):
    found, race = [], make()
    race.run(fr.sources.CallableSource(once(lambda: act(race), found), 2, 50))
    assert found


def test_cores_of_races_are_set_up_once_and_never_used_before():
    from fastrace import _core
    from fastrace.races import _lil, _unequal
    from fastrace.streams import _stream_race

    rng = np.random.default_rng(1)
    made = {_core.Race: (2, 10), _lil.LilRace: (2,), _unequal.UnequalCore: ([3, 3],), _stream_race.StreamRace: ()}
    source = fr.sources.ArraySource(np.ones((10, 2)))
    for cls, arguments in made.items():
        new = cls.__new__(cls, *arguments)
        uses = {"ask": (), "tell": (np.ones((1, 2)),), "run": (source, 1), "answer": (), "saved": (), "_get_state": (),
                "seed": (rng,), "begin": (rng,), "start_afresh": (rng,)}
        if cls is _core.Race:
            uses |= {"run": (source,), "begin": (np.zeros(2),)}
            uses.pop("answer")
        if cls is _lil.LilRace:
            uses["tell"] = (1.0,)
        if cls is _unequal.UnequalCore:
            uses |= {"tell": (np.ones(2),), "answer": (3.0, 3.0)}
        for name, given in uses.items():
            if hasattr(new, name):
                with pytest.raises(RuntimeError, match=NEVER_SET_UP):
                    getattr(new, name)(*given)
                if hasattr(new, "ask"):
                    with pytest.raises(RuntimeError, match=NEVER_SET_UP):
                        new.ask()
    race = fr.FiniteRace(2, 500, rng=1)._race
    with pytest.raises(TypeError, match="in use"):
        race.__init__(2, 500, bound="normal", pairwise=True, shuffled=False, guarded=False, tails=False,
                      scan_advantage=0.0, max_pulls=-1, strict=True, low=None, high=None, rng=rng)


class ForgetfulStream(fr.EBGStop):
    def __init__(self):
        pass


class ForgetfulBets(fr.BettingStop):
    def __init__(self):
        pass


class ForgetfulGBAS(fr.GBAS):
    def __init__(self):
        pass


class ForgetfulAbsolute(fr.AbsoluteStop):
    def __init__(self):
        pass


@pytest.mark.parametrize("cls", [ForgetfulStream, ForgetfulBets, ForgetfulGBAS, ForgetfulAbsolute])
@pytest.mark.parametrize("use", [lambda s: s.update(0.5), lambda s: s.update_many([0.5]), lambda s: s.interval,
                                 lambda s: s.estimate, pickle.dumps, copy.copy], ids=range(6))
def test_streams_that_were_never_set_up_are_refused(cls, use):
    with pytest.raises(RuntimeError, match=NEVER_SET_UP):
        use(cls())


def test_a_stream_counts_each_reward_that_comes_in_while_another_is_converted():
    rule = fr.ConfidenceSequence()
    rule.update(Reenters(0.5, lambda: rule.update(0.25)))
    rule.update_many(Reenters([0.5, 0.75], lambda: rule.update_many([0.5])))
    assert rule.n_samples == 5


def test_a_stream_read_while_another_thread_updates_it_says_so_or_answers():
    rule = fr.ConfidenceSequence("betting")
    x = np.random.default_rng(1).random(400_000)
    found = {"answers": 0, "refused": 0}
    running = threading.Thread(target=lambda: rule.update_many(x))
    running.start()
    going = True
    while going:                        # and once more after the end
        going = running.is_alive()
        try:
            lower, upper = rule.interval
            pickle.loads(pickle.dumps(rule))
            assert 0.0 <= lower <= upper <= 1.0
            found["answers"] += 1
        except RuntimeError as error:
            assert "in use" in str(error)
            found["refused"] += 1
    running.join()
    assert rule.n_samples == x.size and sum(found.values())


class ForgetfulTable(fr.sources.ArraySource):
    def __init__(self):
        pass


class ShallowTable(fr.sources.ArraySource):
    def __init__(self):
        fr.sources.Source.__init__(self, 2, 100)


@pytest.mark.parametrize("cls", [ForgetfulTable, ShallowTable])
def test_sources_that_were_never_set_up_are_refused(cls):
    for use in (lambda s: s.read([0]), lambda s: s.totals(), lambda s: s.shifts(), fr.race,
                lambda s: fr.FiniteRace(2, 100).run(s)):
        with pytest.raises(RuntimeError, match=NEVER_SET_UP):
            use(cls())


def test_a_table_is_set_up_once():
    source = fr.sources.ArraySource(np.ones((1000, 2)))
    test = fr.AcceptTest(source, rng=1)
    with pytest.raises(TypeError, match="in use"):
        source.__init__(np.zeros((10, 2)))
    assert source.n_rows == 1000 and not test.decide(0.0) and source.totals().tolist() == [1000.0, 1000.0]


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


def generator():
    return np.random.default_rng(1)


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


def scaled_inner():
    """Two coordinates that rows see, the second the logarithm of a scale."""
    from fastrace._models._arrow import Arrow, Quadratic
    from fastrace._models._priors import JointPrior

    whole = Quadratic(np.zeros(2), 0.0, np.zeros(2), Arrow(np.eye(2)))
    return (whole, whole, JointPrior([("normal", 0.0, 1.0, 0.0, -1)], aux=("half-normal", 1.0, 0.0))), {}


def inner_move():
    from fastrace.mcmc.kernels import _nested_normal

    return (_nested_normal.NormalInner(*expanded()),), {}


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
    "_scaled.ScaledInner": scaled_inner,
    "_surrogate.Inner": lambda: (expanded()[:1], {}), "_surrogate.SurrogateMove": inner_move,
    "_chain.Urns": urns,
    "_inclusion.InclusionMove": call(np.eye(2), np.zeros(2), np.zeros(2), np.array([1]), np.zeros(2), 1),
    "_minibatch.BlockTable": call(np.ones(4), np.array([0, 1, 1, 0]), 2),
    "_chain.Move": call(), "_proposal.Proposal": call(), "_slice.Sweep": call(1.0, 4),
    "_core.Race": core_of(fr.FiniteRace(2, 200)),
    "_expanded.TermSource": call(2, 100),
    "_expanded.Expanded": lambda: ((model(), np.zeros(2)), {}),
    "_expanded.Expansion": lambda: ((model(), np.zeros(2)), {}),
    "_expanded.OwnTerms": lambda: ((fr.sources.ArraySource(ROWS), np.zeros((2, 2)), np.zeros((200, 6))), {}),
    "_group_expansions.GroupExpansions": lambda: (expansions(), {}), "_surrogate_gibbs.SurrogateGibbsCore": sweeps,
    "_answers.RaceAnswers": call(2, 200, bound="normal", pairwise=True, shuffled=False, guarded=False, tails=False,
                                 low=None, high=None, rng=generator()),
    "_judge.RaceJudge": call(2, 200, bound="normal", pairwise=True, shuffled=False, guarded=False, tails=False,
                             low=None, high=None, rng=generator()),
    "_lil.LilRace": lambda: ((2, 200), dict(fr.LilUCB(2, 200, support=(0, 1))._options)),
    "_memory.RaceMemory": lambda: (
        (2, 200), {"pairwise": True, "shuffled": False, "betting": True, "low": np.zeros(2), "high": np.ones(2),
                   "rng": generator()}),
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
    "_weighted.AliasTable": call(np.ones(5)), "_weighted.WeightedRace": weighted,
    "_xla_chain.Crew": call(lambda: None, True),
    "control_variates.ControlVariate": lambda: ((model(), fr.sources.ArraySource(ROWS)), {"always_read": [3]}),
    "control_variates.TaylorSurrogate": lambda: ((model(), np.zeros(2)), {}),
    "_binned.BinnedTaylor": call(ROWS, expansion, 2, n_bins=4),
    "likelihoods.GLMSource": call(ROWS, WINS, np.zeros((2, 2))),
    "likelihoods.PairSource": lambda: ((fr.sources.ArraySource(ROWS),), {}),
    "pulls.PullSource": call(2), "pulls.RandomPulls": call(2), "pulls.BernoulliPulls": call([0.1, 0.2]),
    "pulls.UniformPulls": call([0.0, 0.1], [0.5, 0.6]), "pulls.ResampledPulls": call(ROWS),
    "pulls.RecordedPulls": call(ROWS), "pulls.CallablePulls": call(bernoulli, 2), "pulls.CallbackPulls": pulls_callback,
    "sources.Source": call(2, 100), "sources._BlockSource": call(2, 100), "sources.ArraySource": call(ROWS),
    "sources.CallableSource": call(lambda arms, rows: np.ones((len(rows), len(arms))), 2, 100),
    "sources.CallbackSource": rewards_callback,
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
         "_chain.Urns", "_inclusion.InclusionMove", "_minibatch.BlockTable", "_surrogate.SurrogateMove"}
# No method of its own; whoever takes one looks at its guard.
NO_METHODS = {"_weighted.WeightedRace", "_xla_chain.Crew"}


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
            with pytest.raises((RuntimeError, TypeError), match=f"{NEVER_SET_UP}|expected"):
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


# Boosting.

CODES = np.random.default_rng(1).integers(0, 2, size=(60_000, 2), dtype=np.uint8)
SIGNS = np.where(np.random.default_rng(2).random(60_000) < 0.5, 1, -1).astype(np.int8)


class ActingLock:
    """The lock of a generator of the user's: `act` runs when it is taken."""

    def __init__(self):
        self.act = None

    def __enter__(self):
        if self.act is not None:
            self.act()

    def __exit__(self, *error):
        pass


def stream_of_stumps(rng):
    from fastrace.boosting import _boost, _edges

    return _boost.StumpStream([0, 1], [0, 0], [0, 0], [0, 2, 4], _edges.EdgeRule(2, "nas", 0.01, 30.0),
                              _boost.Filter(0.1, rng))


def test_a_stream_of_stumps_in_use_is_refused():
    lock, bits, refused = ActingLock(), np.random.PCG64(1), []
    own = types.SimpleNamespace(lock=lock, capsule=bits.capsule)
    stream = stream_of_stumps(types.SimpleNamespace(bit_generator=own))
    rule, sieve = stream.rule, stream.filter

    def again():
        for use in (lambda: stream.consume(CODES, SIGNS), lambda: stream.restart(1.0), lambda: stream.add(0, 1.0),
                    lambda: stream.full_pass(CODES, SIGNS, np.ones(len(SIGNS))), lambda: stream.table,
                    lambda: pickle.dumps(stream), lambda: rule.restart(1.0), lambda: rule.edges, lambda: rule.lower,
                    lambda: rule.update_many(np.ones((3, 2), np.int8)), lambda: sieve.accept(np.zeros(3)),
                    lambda: sieve.restart(1.0)):
            with pytest.raises(RuntimeError, match="in use"):
                use()
            refused.append(use)

    lock.act = again
    assert stream.consume(CODES[:100], SIGNS[:100]) == 100
    assert len(refused) == 12 and stream.total_drawn == sieve.drawn == 100
    lock.act = None
    with pytest.raises(ValueError, match="start is"):
        stream.consume(CODES, SIGNS, None, -1)
    with pytest.raises(ValueError, match="stump is 2"):
        stream.add(2, 1.0)
    assert stream.consume(CODES, SIGNS, None, 0, 50) == 50 and stream.total_drawn == 150


def test_a_stream_of_stumps_counts_what_two_threads_read():
    stream = stream_of_stumps(np.random.default_rng(1))
    read = [0, 0]

    def consume(k):
        for _ in range(30):
            try:
                read[k] += stream.consume(CODES, SIGNS)
            except RuntimeError as error:
                assert "in use" in str(error)

    assert in_threads(lambda: consume(0), lambda: consume(1)) == [None, None]
    assert stream.total_drawn == sum(read) and stream.filter.drawn == sum(read)


def test_stumps_that_do_not_fit_are_refused():
    from fastrace.boosting import _boost, _edges

    for bad in (([0, 1], [0, 0], [0, 2], [0, 2, 4]), ([0, 2], [0, 0], [0, 0], [0, 2, 4]),
                ([0], [0], [0], [0, 2, 4]), ([0, 1], [0, 0], [0, 0], [0, 4, 2]), ([0, 1], [0, -1], [0, 0], [0, 2, 4])):
        with pytest.raises(ValueError):
            _boost.StumpStream(*bad, _edges.EdgeRule(2, "nas", 0.2, 3.0), _boost.Filter(0.1, generator()))


@pytest.mark.parametrize("at", [0, 37, 99])
def test_examples_that_do_not_fit_the_stumps_are_refused(at):
    from fastrace.boosting import _boost

    codes, signs = CODES[:100].copy(), SIGNS[:100].copy()
    wrong = {"code 2 of feature 1": (at, 1, 2), "code 255 of feature 0": (at, 0, 255)}
    for match, (row, feature, code) in wrong.items():
        broken = codes.copy()
        broken[row, feature] = code
        stream = stream_of_stumps(np.random.default_rng(1))
        with pytest.raises(ValueError, match=f"row {row} has {match}"):
            stream.consume(broken, signs)
        assert stream.total_drawn == stream.filter.drawn == at
        with pytest.raises(ValueError, match=f"row {row} has {match}"):
            stream.full_pass(broken, signs, np.ones(100))
        assert stream.total_drawn == at
        with pytest.raises(ValueError, match=f"row {row} has {match}"):
            _boost.scores(broken, np.array([0, 2, 4]), np.ones(4))
        assert stream.consume(codes, signs, None, at) == 100 and stream.total_drawn == 100
    for row in (-1, 100, 2**40):
        rows = np.arange(100)
        rows[at] = row
        stream = stream_of_stumps(np.random.default_rng(1))
        with pytest.raises(ValueError, match=f"rows holds {row}"):
            stream.consume(codes, signs, rows)
        assert stream.total_drawn == at
    signs[at] = 3
    with pytest.raises(ValueError, match=f"label of row {at} is 3"):
        stream_of_stumps(np.random.default_rng(1)).consume(codes, signs)
    for offset, table in (([0, 2], np.ones(2)), ([0, 2, 4], np.ones(3)), ([0, 4, 2], np.ones(2))):
        with pytest.raises(ValueError):
            _boost.scores(codes, np.array(offset), table)


def test_an_order_of_rows_is_taken_by_two_threads_once():
    from fastrace._draws._row_order import RowOrder

    order = RowOrder(400_000, np.random.default_rng(1))
    taken = [[], []]

    def take(k):
        while order.drawn < order.n_rows:
            try:
                taken[k].append(order.take(5000))
            except RuntimeError as error:
                assert "in use" in str(error)

    assert in_threads(lambda: take(0), lambda: take(1)) == [None, None]
    assert np.array_equal(np.sort(np.concatenate(taken[0] + taken[1])), np.arange(400_000))
    with pytest.raises(ValueError, match="count is -1"):
        order.take(-1)
