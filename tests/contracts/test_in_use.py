"""Moments, selections, decisions, chains, races and streams in use: a second use at once is refused or waits."""

import copy
import pickle
import threading

import numpy as np
import pytest

import fastrace as fr
from fastrace.likelihoods import GLMSource
from in_use import NEVER_SET_UP, bernoulli, in_threads


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
