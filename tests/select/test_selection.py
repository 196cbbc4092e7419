"""The m best of n arms: equal to the twins pull for pull, right as often as promised, and undisturbed by faults."""

import copy
import ctypes
import math
import pickle

import numpy as np
import pytest
from scipy import LowLevelCallable, optimize, stats

import ctrl_c
import fastrace as fr
from fastrace.pulls import BernoulliPulls, RecordedPulls, ResampledPulls, UniformPulls, as_pulls
from fastrace.select._adapt import _level, _log_level, _width_at
from fastrace.select.selection import scales
from guarantee import assert_fits, assert_rate_at_most, few_or_many
from reference import lucb as lucb_twin
from reference import selection as twin

RULES = {
    "direct": lambda n, m, rng=1, **kw: fr.Direct(n, m, 0.4, 0.1, rng=rng, **kw),
    "halving": lambda n, m, rng=1, **kw: fr.Halving(n, m, 0.9, 0.3, rng=rng, **kw),
    "incremental": lambda n, m, rng=1, **kw: fr.Incremental(n, m, 0.9, 0.3, const=2, rng=rng, **kw),
    "adapt": lambda n, m, rng=1, **kw: fr.Adapt(n, m, 0.1, 0.1, rng=rng, **kw),
    "adapt in blocks": lambda n, m, rng=1, **kw: fr.Adapt(n, m, 0.1, 0.1, batch=20, rng=rng, **kw),
    "adapt by shares": lambda n, m, rng=1, **kw: fr.Adapt(n, m, 0.1, 0.1, batch=0.05, rng=rng, **kw),
    "adapt anytime": lambda n, m, rng=1, **kw: fr.Adapt(n, m, 0.1, 0.1, anytime=True, rng=rng, **kw),
    "colliding": lambda n, m, rng=1, **kw: fr.Adapt(n, m, 0.3, 0.1, policy="colliding", rng=rng, **kw),
    "uniform": lambda n, m, rng=1, **kw: fr.Adapt(n, m, 0.4, 0.1, policy="uniform", batch=7, rng=rng, **kw),
    "optimal": lambda n, m, rng=1, **kw: fr.Adapt(n, m, 0.3, 0.1, cutoff="optimal", batch=10, rng=rng, **kw),
    "ocba": lambda n, m, rng=1, **kw: fr.OCBA(n, m, 900, batch=3, rng=rng, **kw),
    "ocba deficit": lambda n, m, rng=1, **kw: fr.OCBA(n, m, 900, n0=5, batch=10, draw="deficit", rng=rng, **kw),
    "race": lambda n, m, rng=1, **kw: fr.SubsetRace(n, m, 400, 0.1, rng=rng, **kw),
    "race by variance": lambda n, m, rng=1, **kw: fr.SubsetRace(n, m, 400, 0.1, bound="bernstein", rng=rng, **kw),
}
MEANS = np.array([0.15, 0.85, 0.4, 0.7, 0.3, 0.2])
every_rule = pytest.mark.parametrize("make", RULES.values(), ids=RULES)


def same(a, b):
    assert np.ravel(a.best).tolist() == np.ravel(b.best).tolist()
    assert a.pulls.tolist() == b.pulls.tolist()
    assert np.array_equal(a.mean, b.mean, equal_nan=True)
    assert a.stopped_by == b.stopped_by
    assert a.error_bound == b.error_bound or math.isnan(a.error_bound) and math.isnan(b.error_bound)


def drive(rule, source):
    while not rule.done:
        rule.tell(source.read(*rule.ask()))
    return rule.result()


def pulls_in_order(rule, table):
    """Drive a rule that asks for one pull at a time, from recorded rewards: the arms in order."""
    source, made = RecordedPulls(table), []
    while not rule.done:
        arms, counts = rule.ask()
        made += np.repeat(arms, counts).tolist()
        rule.tell(source.read(arms, counts))
    return made


# The frame.


@every_rule
def test_by_hand_equals_run(make, seed):
    by_run = make(6, 2).run(BernoulliPulls(MEANS, rng=seed))
    same(drive(make(6, 2), BernoulliPulls(MEANS, rng=seed)), by_run)
    assert sorted(np.ravel(by_run.best).tolist()) == [1, 3]
    assert np.ravel(by_run.best)[0] == by_run.mean.argmax()
    assert by_run.stopped_by and by_run.n_read == by_run.pulls.sum()
    assert f"{by_run.n_read} pulls" in str(by_run)


@every_rule
def test_a_saved_rule_goes_on_as_the_original(make, seed):
    wanted = make(6, 2).run(BernoulliPulls(MEANS, rng=seed))
    for cut in np.random.default_rng(seed).integers(0, wanted.n_read, 8):
        rule, source = make(6, 2), BernoulliPulls(MEANS, rng=seed)
        rule.run(source, max_pulls=int(cut))
        assert rule.n_pulls == cut
        again, its_source = pickle.loads(pickle.dumps((rule, source)))
        twin_rule = copy.deepcopy(rule)
        copied = copy.copy(rule)
        same(rule.run(source), wanted)
        same(again.run(its_source), wanted)
        assert twin_rule.n_pulls == copied.n_pulls == cut


@every_rule
def test_a_bad_call_changes_nothing_and_names_the_arm(make, seed):
    wanted = make(6, 2).run(BernoulliPulls(MEANS, rng=seed))
    rule, source, source_left = make(6, 2), BernoulliPulls(MEANS, rng=seed), 40
    while not rule.done:
        arms, counts = rule.ask()
        rewards = source.read(arms, counts)
        if source_left:
            source_left -= 1
            at = int(np.random.default_rng(source_left).integers(len(rewards)))
            arm = np.repeat(arms, counts)[at]
            for bad, text in ((np.nan, f"of arm {arm} is nan"), (1.5, f"of arm {arm} is 1.5, outside support"),
                              (-np.inf, f"of arm {arm} is -inf, outside")):
                spoiled = rewards.copy()
                spoiled[at] = bad
                with pytest.raises(ValueError, match=text):
                    rule.tell(spoiled)
            for wrong in (rewards[:-1], np.append(rewards, 0.5), rewards.reshape(-1, 1), rewards.astype(complex), "x"):
                with pytest.raises(ValueError, match="rewards"):
                    rule.tell(wrong)
            assert [part.tolist() for part in rule.ask()] == [arms.tolist(), counts.tolist()]
        rule.tell(rewards)
    same(rule.result(), wanted)
    with pytest.raises(ValueError, match="over"):
        rule.ask()
    with pytest.raises(ValueError, match="over"):
        rule.tell([0.5])


@pytest.mark.parametrize("name", ["adapt", "adapt in blocks", "direct", "race", "ocba"])
def test_a_source_that_raises_or_returns_nan_mid_run(name, seed):
    class Own(Exception):
        pass

    wanted = RULES[name](6, 2).run(BernoulliPulls(MEANS, rng=seed))
    for kind in ("raise", "nan"):
        source = BernoulliPulls(MEANS, rng=seed)
        rule, calls = RULES[name](6, 2), 0
        error = Own("mine")
        kept = []

        def pull(arms, counts, source=source, kept=kept, kind=kind, error=error):
            nonlocal calls
            calls += 1
            rewards = kept.pop() if kept else source.read(arms, counts)
            if calls in (1, 2, 5):
                kept.append(rewards)            # so that the second attempt sees the same rewards
                if kind == "raise":
                    raise error
                spoiled = rewards.copy()
                spoiled[0] = np.nan
                return spoiled
            return rewards

        for _ in range(3):
            try:
                rule.run(pull)
            except Own as caught:
                assert caught is error
            except ValueError as caught:
                assert kind == "nan" and "of arm" in str(caught) and "nan" in str(caught)
        assert rule.result().n_read == rule.n_pulls
        same(rule.run(pull), wanted)


def test_sources_of_every_kind_give_the_same(seed):
    table = np.random.default_rng(seed).random((4000, 4)) * [0.5, 0.9, 1.0, 0.6]

    class Simulator:
        def __init__(self):
            self.source = RecordedPulls(table)

        def pull(self, arms, counts):
            return self.source.read(arms, counts).astype("f8")

    def listed():
        simulator = Simulator()
        return lambda arms, counts: np.split(simulator.pull(arms, counts), counts.cumsum()[:-1])

    used = [0] * 4

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_ssize_t), ctypes.POINTER(ctypes.c_int64), ctypes.c_ssize_t,
                      ctypes.POINTER(ctypes.c_double))
    def compiled(arms, counts, n, out):
        at = 0
        for k in range(n):
            for _ in range(counts[k]):
                out[at] = table[used[arms[k]], arms[k]]
                used[arms[k]] += 1
                at += 1
        return 0

    def make():
        return fr.Adapt(4, 2, 0.1, 0.1, batch=9, rng=3)

    wanted = make().run(table, order="given")
    for source in (RecordedPulls(table), Simulator(), Simulator().pull, listed(), LowLevelCallable(compiled),
                   np.asfortranarray(table), table.tolist()):
        same(make().run(source, order="given"), wanted)


def test_rows_drawn_with_replacement(seed):
    table = np.random.default_rng(seed).random((50, 3))
    drawn = ResampledPulls(table, rng=1).read([2, 0], [3000, 500])
    assert set(drawn[:3000]) <= set(table[:, 2]) and set(drawn[3000:]) <= set(table[:, 0])
    counts = [(drawn[:3000] == x).sum() for x in table[:, 2]]
    assert_fits(counts, [1 / 50] * 50)
    again = ResampledPulls(lambda arms, rows: table[np.ix_(rows, arms)], rng=1, n_arms=3, n_rows=50)
    assert np.array_equal(again.read([2, 0], [3000, 500]), drawn)
    with pytest.raises(TypeError, match="ResampledPulls"):
        as_pulls(fr.sources.ArraySource(table), 3, order="given")
    for source in (table, table.tolist(), fr.sources.ArraySource(table), dict(enumerate(table.T))):
        assert np.array_equal(as_pulls(source, 3, rng=1).read([2, 0], [3000, 500]), drawn)


TABLE_RULES = RULES | {
    "KLLUCB": lambda n, m: fr.KLLUCB(n, m, 0.3, 0.1, rng=1), "LUCB": lambda n, m: fr.LUCB(n, m, 0.3, 0.1, rng=1),
    "SAR": lambda n, m: fr.SAR(n, m, 3000, rng=1), "SubsetRace": lambda n, m: fr.SubsetRace(n, m, 4000, rng=1),
}


@pytest.mark.parametrize("name", TABLE_RULES)
def test_a_sorted_table_is_read_at_random(name):
    """Row by row from the top, arm 1 would win: its column is shuffled, that of the best arm begins with zeros."""
    table = np.c_[np.sort(np.arange(20_000) % 10 < 8), np.arange(20_000) % 10 < 3].astype(float)
    for source in (table, table[::-1], fr.sources.as_source(table)):
        assert np.ravel(TABLE_RULES[name](2, 1).run(source, 30_000).best).tolist() == [0]
    assert np.ravel(TABLE_RULES[name](2, 1).run(table, 2000, order="given").best).tolist() == [1]


def test_rows_of_a_table_are_drawn_by_the_rule_or_as_told(seed):
    table = np.random.default_rng(seed).random((500, 3))
    whole, child = fr.LUCB(3, 1, rng=5), np.random.default_rng(5).spawn(1)[0]
    first = whole.run(table, 1000)
    same(first, fr.LUCB(3, 1, rng=5).run(ResampledPulls(table, child), 1000))
    same(fr.LUCB(3, 1).run(table, 1000, rng=7), fr.LUCB(3, 1).run(ResampledPulls(table, 7), 1000))
    again = pickle.loads(pickle.dumps(whole))
    on = whole.run(table, 2000)
    same(on, again.run(table, 2000))
    drawn_later = (on.mean * on.pulls - first.mean * first.pulls) / (on.pulls - first.pulls)
    assert not np.isclose(drawn_later, first.mean).any()        # a call that goes on draws rows of its own
    columns = {"a": table[:, 0], "b": table[:, 1], "c": table[:, 2]}
    for order in ("random", "given"):
        assert fr.LUCB(3, 1).run(columns, 100, order=order).names == ("a", "b", "c")
    with pytest.raises(TypeError, match="order is 'given' and pull is a ArraySource"):
        fr.LUCB(3, 1).run(fr.sources.as_source(table), order="given")
    with pytest.raises(ValueError, match="order is 'sorted'"):
        fr.LUCB(3, 1).run(table, order="sorted")
    with pytest.raises(ValueError, match="masked"):
        fr.LUCB(3, 1).run(np.ma.masked_less(table, 0.1), order="given")


def test_random_sources_draw_what_they_say(seed):
    source = BernoulliPulls([0.2, 0.7], rng=seed)
    ones = int(source.read([1], [20_000]).sum())
    assert_fits([ones, 20_000 - ones], [0.7, 0.3])
    rewards = UniformPulls([0.0, -2.0], [1.0, 4.0], rng=seed).read([1], [5000])
    assert stats.kstest((rewards + 2) / 6, "uniform").pvalue > 1e-6
    one, two = BernoulliPulls([0.5], rng=seed), BernoulliPulls([0.5], rng=seed)
    pieces = [one.read([0], [k]) for k in (1, 300, 7)]
    assert np.array_equal(np.concatenate(pieces), two.read([0], [308]))
    assert np.array_equal(pickle.loads(pickle.dumps(one)).read([0], [400]), one.read([0], [400]))


@pytest.mark.parametrize("method", ["auto", "kl-lucb", "sar", "median-elimination"])
def test_select_best_says_by_its_own_name_that_an_option_is_unknown(method):
    with pytest.raises(TypeError, match=r"^select_best: unexpected keyword argument 'nonsense'"):
        fr.select_best(np.full((20, 3), 0.5), method=method, max_pulls=100, nonsense=1)


def test_recorded_rewards_that_run_out_name_the_arm():
    rule = fr.Direct(2, 1, 0.5)
    with pytest.raises(ValueError, match=r"arm 0 .* has 20 of its 20|arm 0 is to be pulled"):
        rule.run(np.full((20, 2), 0.5), order="given")
    assert rule.run(np.full((20, 2), 0.5), max_pulls=30, order="given").stopped_by == "max_pulls"


@pytest.mark.parametrize("change", [
    {"n_arms": 0}, {"n_best": 0}, {"n_best": 4}, {"epsilon": -0.1}, {"epsilon": np.inf}, {"epsilon": np.nan},
    {"delta": 0.0}, {"delta": 1.0}, {"delta": np.nan}, {"support": (1, 0)}, {"support": (0, 0)},
    {"support": (0, np.inf)},
    {"support": (0, [1, 1])}, {"support": 3}, {"batch": 0}, {"batch": 1.5}, {"n0": 0}, {"policy": "best"},
    {"cutoff": "c"}, {"rng": "x"}, {"epsilon": 0.0, "policy": "uniform"}, {"epsilon": 1e-10},
])
def test_bad_parameters_are_refused(change):
    with pytest.raises((ValueError, TypeError), match=r"is |has "):
        fr.Adapt(**({"n_arms": 3, "n_best": 1, "epsilon": 0.1} | change))


@pytest.mark.parametrize("call", [
    lambda: fr.Direct(3, 1, 0.0), lambda: fr.Halving(3, 1, 0.0), lambda: fr.Incremental(3, 1, 0.0),
    lambda: fr.MedianElimination(3, 0.1, const=1.9), lambda: fr.Direct(3, 1, 1e-12), lambda: fr.OCBA(3, 1, 5),
    lambda: fr.OCBA(3, 1, 100, n0=1), lambda: fr.OCBA(3, 1, 100, n0=40), lambda: fr.OCBA(3, 1, 100, draw="all"),
    lambda: fr.SubsetRace(3, 1, 0), lambda: fr.SubsetRace(3, 1, 5, bound="kl"), lambda: BernoulliPulls([0.5, 1.1]),
    lambda: UniformPulls([0.0], [-1.0]), lambda: RecordedPulls([1.0]), lambda: as_pulls(np.zeros((3, 2)), 3),
    lambda: fr.Direct(3, 1, 0.1).run(np.zeros((3, 3)), max_pulls=-1),
])
def test_bad_parameters_of_the_other_rules(call):
    with pytest.raises((ValueError, TypeError)):
        call()


@every_rule
def test_all_arms_one_arm_and_m_of_one(make, seed):
    for n in (1, 6):
        result = make(n, n).run(lambda arms, counts: 1 / 0)
        assert np.ravel(result.best).tolist() == list(range(n)) and result.stopped_by == "single"
        assert result.n_read == 0 and result.error_bound == 0.0
    assert np.ravel(make(6, 1).run(BernoulliPulls(MEANS, rng=seed)).best).tolist() == [1]
    assert 0 not in np.ravel(make(6, 5).run(BernoulliPulls(MEANS, rng=seed)).best)


@every_rule
def test_the_support_may_be_anywhere(make, seed):
    # Binary fractions, so that scaling is exact and every decision is the same.
    rewards = np.random.default_rng(seed).integers(0, 257, (20_000, 6)) / 256 * np.array([16, 63, 32, 56, 24, 8]) / 64
    wanted = make(6, 2).run(rewards)
    for low, high in ((0.0, 8.0), (-2.0, 2.0)):
        scale = high - low
        rule = make(6, 2, support=(low, high))
        if rule._epsilon > 0:
            rule = _scaled(make, scale, (low, high))
        result = rule.run(low + scale * rewards)
        assert result.pulls.tolist() == wanted.pulls.tolist()
        assert np.ravel(result.best).tolist() == np.ravel(wanted.best).tolist()
        assert np.allclose(result.mean, low + scale * wanted.mean, rtol=1e-12, atol=1e-12)


def _scaled(make, scale, support):
    """The same rule for another support: its epsilon grows with the width."""
    classes = {name: getattr(fr, name) for name in ("Direct", "Halving", "Incremental", "Adapt")}
    try:
        for name, cls in classes.items():
            def larger(n, m, epsilon, *args, cls=cls, **kw):
                return cls(n, m, epsilon * scale, *args, **kw)
            setattr(fr, name, larger)
        return make(6, 2, support=support)
    finally:
        for name, cls in classes.items():
            setattr(fr, name, cls)


def test_interval_per_arm_only_its_width_counts(seed):
    shift = np.array([3.0, -7.0, 0.0, 100.0])
    rewards = np.random.default_rng(seed).integers(0, 257, (4000, 4)) / 1024
    means = np.array([0.0, 0.25, 0.5, 0.75])
    result = fr.Adapt(4, 2, 0.125, 0.1, (means, means + 0.25), rng=1).run(rewards + means)
    assert sorted(np.ravel(result.best).tolist()) == [2, 3] and result.n_read < 100
    assert (result.lower >= means).all() and (result.upper <= means + 0.25).all()
    wide = fr.Direct(4, 2, 0.5, 0.1, (shift, shift + [1.0, 2.0, 1.0, 4.0]))
    assert wide.ask()[1].tolist() == [16] * 4
    counts = wide.run(lambda arms, counts: np.repeat(shift[arms], counts)).pulls
    assert counts.tolist() == [math.ceil(2 * (r / 0.5) ** 2 * math.log(4 / 0.1)) for r in (1, 2, 1, 4)]


@pytest.mark.resources
def test_interrupt_leaves_the_rule_usable():
    source = BernoulliPulls([0.5, 0.5, 0.5], rng=1)
    rule = fr.Adapt(3, 1, 0.0, 1e-9, rng=1)
    for _ in range(3):
        assert ctrl_c.press(lambda: rule.run(source), 1, 0.05) == 1
        before = rule.n_pulls
        assert rule.result().n_read == before
        assert rule.run(source, max_pulls=before + 1000).n_read == before + 1000
    assert rule._core.get_state()["rng"].bit_generator.lock.acquire(blocking=False)


def test_a_rule_is_not_entered_twice():
    rule = fr.Adapt(3, 1, 0.1)

    def pull(arms, counts):
        rule.ask()

    with pytest.raises(RuntimeError, match="in use"):
        rule.run(pull)
    assert rule.n_pulls == 0


def test_a_damaged_saved_rule_is_refused():
    rule = fr.Adapt(3, 1, 0.1, rng=1)
    rule.run(BernoulliPulls([0.1, 0.5, 0.6]), max_pulls=50)
    rebuild, (version, cls, known, state) = rule.__reduce__()
    with pytest.raises(ValueError, match="version 1"):
        rebuild(1, cls, known, state)
    for name, value in (("pulls", np.array([1, 2])), ("asked", np.array([7])), ("owed", np.array([0])),
                        ("status", 99), ("pulls", np.array([0, -1, 3])), ("rng", None),
                        ("pulls", np.array([2**64 - 1, 2**63, 1], dtype=np.uint64))):
        with pytest.raises(ValueError, match="damaged"):
            rebuild(version, cls, known, state | {name: value})
    del state["error"]
    with pytest.raises(ValueError, match="damaged"):
        rebuild(version, cls, known, state)


@every_rule
def test_damaged_arguments_of_a_saved_rule_are_refused(make, seed):
    rule = make(6, 2)
    rule.run(BernoulliPulls(MEANS, rng=seed), max_pulls=50)
    rebuild, (version, cls, known, state) = rule.__reduce__()
    low, high = known["given"]["support"]
    damaged = [{"n_arms": 7}, {"n_arms": 2**62}, {"n_arms": -6}, {"n_arms": None}, {"n_best": 0}, {"n_best": 7},
               {"support": (low, low)}, {"support": (low[:3], high)}, {"support": (low, high * np.nan)}, {"no": 1}]
    for name, bad in (("delta", 0.0), ("delta", math.nan), ("epsilon", -1.0), ("epsilon", math.inf), ("batch", 0),
                      ("budget", 5), ("horizon", 0), ("const", 1.0), ("n0", 0), ("policy", "best"), ("bound", "kl")):
        if name in known["given"]:
            damaged.append({name: bad})
    for change in damaged:
        with pytest.raises(ValueError, match="damaged"):
            rebuild(version, cls, known | {"given": known["given"] | change}, state)
    for change in ({"maker": dict}, {"maker": None}, {"maker": fr.SAR}, {"given": None}, {"added": None}):
        with pytest.raises(ValueError, match="damaged"):
            rebuild(version, cls, known | change, state)
    with pytest.raises(ValueError, match="damaged"):
        rebuild(version, dict, known, state)
    for change in ({"rng": 1}, {"rng": None}, {"pulls": None}):
        with pytest.raises(ValueError, match="damaged"):
            rebuild(version, cls, known, state | change)


class Named(fr.LUCB):
    """A user's rule with an argument list and an attribute of its own."""

    def __init__(self, name):
        super().__init__(4, 1, 0.1)
        self.name = name


def test_a_subclass_with_arguments_of_its_own_is_saved(seed):
    rule, source = Named("mine"), BernoulliPulls([0.1, 0.5, 0.6, 0.2], rng=seed)
    rule.run(source, 50)
    again, its_source = pickle.loads(pickle.dumps((rule, source)))
    assert (type(again), again.name) == (Named, "mine")
    same(again.run(its_source), rule.run(source))


# Fixed plans.


@every_rule
def test_a_spent_budget_is_said_in_a_warning(make):
    rule = make(6, 2)
    assert rule.result().warnings == () and rule.result().stopped_by == ""
    result = rule.run(BernoulliPulls(MEANS, rng=1), max_pulls=3)
    assert any("max_pulls was reached" in text and "had no pull" in text for text in result.warnings)
    result = rule.run(BernoulliPulls(MEANS, rng=1), max_pulls=60)
    assert any("max_pulls was reached" in text for text in result.warnings)
    assert "had no pull" not in str(result) or not result.pulls.all()
    assert "warning: max_pulls was reached" in str(pickle.loads(pickle.dumps(rule)).result())


def test_a_budget_that_bought_the_promise_is_no_reason_to_warn():
    easy = BernoulliPulls([0.0, 1.0, 0.0], rng=1)
    assert fr.SAR(3, 1, 900).run(easy).warnings == ()
    assert "budget was reached before the answer was safe" in str(fr.SAR(6, 2, 60).run(BernoulliPulls(MEANS, rng=1)))
    assert "nothing is promised" in str(fr.OCBA(6, 2, 60, n0=5).run(BernoulliPulls(MEANS, rng=1)))


def test_the_price_of_plans_is_known_beforehand():
    root = math.sqrt(12)
    for width, direct, halving, incremental, single in (
        (1.0, 58_100, 2_031_925, 166_692_244, 8_491_933),
        (root, 697_100, 24_382_550, None, 101_902_841),
        (1 + root, 1_157_700, 40_491_650, None, 169_228_367),
    ):
        support = (0.0, width)
        assert fr.Direct(50, 15, 0.1, 0.15, support).planned_pulls == direct
        assert fr.Halving(50, 15, 0.1, 0.15, support).planned_pulls == halving
        assert incremental in (None, fr.Incremental(50, 15, 0.1, 0.15, support).planned_pulls)
        assert fr.MedianElimination(50, 0.1, 0.15, support).planned_pulls == single


class Streams:
    """Uniform rewards of each arm from a generator of its own: one by one, or as a selection asks."""

    def __init__(self, n, seed):
        self.rngs = [np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(n)]

    def one(self, arm):
        return self.rngs[arm].random()

    def pull(self, arms, counts):
        return [self.rngs[arm].random(count) for arm, count in zip(arms, counts, strict=True)]


@pytest.mark.parametrize(("n", "m"), [(8, 2), (8, 1), (7, 3), (5, 4), (4, 4)])
def test_direct_and_incremental_equal_their_twins(n, m, seed):
    for cls, line in ((fr.Direct, twin.direct), (fr.Incremental, twin.incremental)):
        rule = cls(n, m, 0.9, 0.5)
        chosen, pulls = line(Streams(n, seed).one, n, m, 0.9, 0.5)
        if m == n:
            pulls = [0] * n             # there is nothing to find, so our rules pull nothing
        result = rule.run(Streams(n, seed).pull)
        assert set(np.ravel(result.best).tolist()) == chosen and result.pulls.tolist() == pulls
        assert rule.planned_pulls == sum(pulls)
    pulls = [0] * n
    chosen = twin.median_elimination(Streams(n, seed).one, range(n), 0.9, 0.5, pulls)
    result = fr.MedianElimination(n, 0.9, 0.5).run(Streams(n, seed).pull)
    assert (result.best, result.pulls.tolist()) == (chosen, pulls)


@pytest.mark.parametrize(("n", "m", "batch"), [(6, 2, 1), (6, 1, 7), (5, 4, 20), (12, 5, 50)])
def test_every_batch_of_ocba_is_what_its_twin_lacks_rounded(n, m, batch, seed):
    # Of two arms next to the cutoff with as many pulls both lack the same: which one comes first is up to rounding.
    streams, rule = Streams(n, seed), fr.OCBA(n, m, 600, n0=10, batch=batch, draw="deficit")
    rewards = [[] for _ in range(n)]
    while not rule.done:
        arms, counts = rule.ask()
        if rewards[0]:
            lacks, given = np.array(twin.ocba_lacks(rewards, m, int(counts.sum()))), np.zeros(n, int)
            given[arms] = counts
            assert counts.sum() == min(batch, 600 - rule.n_pulls)
            assert (np.floor(lacks - 1e-9) <= given).all() and (given <= np.ceil(lacks + 1e-9)).all()
            rest, up = lacks - np.floor(lacks + 1e-9), given > lacks + 1e-9         # the largest remainders
            assert rest[up].min(initial=1.0) >= rest[~up].max(initial=0.0) - 1e-9
        for arm, part in zip(arms, streams.pull(arms, counts), strict=True):
            rewards[arm] += part.tolist()
        rule.tell([rewards[arm][-count:] for arm, count in zip(arms, counts, strict=True)])
    assert rule.result().pulls.tolist() == [len(part) for part in rewards]


@pytest.mark.parametrize(("n", "m"), [(8, 2), (8, 1), (7, 3), (5, 4), (64, 4), (9, 9)])
def test_halving_equals_its_twin(n, m, seed):
    table = np.random.default_rng(seed).random((fr.Halving(n, m, 0.9, 0.5).planned_pulls, n))
    columns = [iter(column) for column in table.T.tolist()]
    wanted, pulls = twin.halving(lambda i: next(columns[i]), n, m, 0.9, 0.5)
    result = fr.Halving(n, m, 0.9, 0.5).run(table, order="given")
    assert set(np.ravel(result.best).tolist()) == wanted and result.pulls.tolist() == pulls
    assert fr.Halving(n, m, 0.9, 0.5).planned_pulls == sum(pulls)


def test_ties_go_to_the_lower_numbers_and_plans_end():
    for make in (RULES["direct"], RULES["halving"], RULES["incremental"], RULES["uniform"]):
        assert set(make(6, 2).run(lambda arms, counts: np.full(counts.sum(), 0.25)).best) == {0, 1}


# Bounds turned round.


@pytest.mark.parametrize("kind", ["hoeffding", "bernstein", "normal-mixture", "gamma-mixture"])
def test_levels_equal_root_finding_on_the_widths(kind, seed):
    rng = np.random.default_rng(seed)
    for _ in range(60):
        R, u = 10 ** rng.uniform(-2, 2), int(10 ** rng.uniform(0.3, 6))
        variance = rng.choice([0.0, 0.01, 0.25]) * R**2
        level = 10 ** rng.uniform(-8, -0.7)
        arm, mixtures = (u, u * variance, u * variance, R), scales(R, 1, 0.1 * R, 0.05)
        if kind == "hoeffding":
            width = R * math.sqrt(math.log(1 / level) / (2 * u))
        elif kind == "bernstein":
            width = twin.bernstein_width(u, math.sqrt(variance), R, level)
        else:
            aim = math.log(level)
            width = optimize.brentq(
                lambda g, arm=arm, aim=aim, mixtures=mixtures: _log_level(kind, arm, g, mixtures) - aim,
                1e-12 * R, 1e3 * R, xtol=1e-300)
        assert _log_level(kind, arm, width, mixtures) == pytest.approx(math.log(level), rel=1e-10)
        if width < 2 * R:
            assert _width_at(kind, arm, math.log(level), mixtures) == pytest.approx(width, rel=1e-10)
        gaps = np.geomspace(1e-6 * R, 10 * R, 50)
        levels = [_log_level(kind, arm, g, mixtures) for g in gaps]
        assert (np.diff(levels) <= 1e-12).all() and max(levels) <= 0
        assert _log_level(kind, arm, 0.0, mixtures) == _log_level(kind, arm, -1.0, mixtures) == 0.0
    assert math.isfinite(_log_level(kind, (10**9, 0.0, 0.0, 1.0), 0.5, scales(1.0, 1, 0.1, 0.05)))


def test_the_mean_of_gamma_mixtures_is_a_little_more_careful_than_its_formula(seed):
    for _ in range(200):
        rng = np.random.default_rng(seed)
        best, v, s = 10 ** rng.uniform(0, 4), 10 ** rng.uniform(-3, 5), 10 ** rng.uniform(-1, 3)
        seed += 1
        mixtures = ((best, 0.9), (0.02 * best, 0.1))
        exact = lucb_twin.log_mean_of_mixtures(s, v, mixtures, 6.0)
        ours = -_log_level("gamma-mixture", (1000, 0.0, v, 1.0), s / 1000, mixtures, 6.0)
        assert ours <= max(exact, 0.0) + 1e-8 * (1 + abs(v))
        if exact > 3.0:
            assert ours >= exact - 0.06
        level = _level("gamma-mixture", (1000, 0.0, v, 1.0), s / 1000, mixtures, 6.0)      # the quick way, to rounding
        assert level == pytest.approx(math.exp(-ours), rel=1e-11 * (1 + ours), abs=0.0)


@pytest.mark.parametrize("kind", ["normal-mixture", "gamma-mixture"])
@pytest.mark.parametrize("p", [0.5, 0.05])
def test_mixtures_hold_at_all_times(kind, p, seed):
    alpha, failed, trials = 0.1, 0, 400
    mixtures = scales(1.0, 1, 0.05, alpha)
    for child in np.random.SeedSequence(seed).spawn(trials):
        x = (np.random.default_rng(child).random(2000) < p).astype(float)
        sums = x.cumsum()
        predicted = np.concatenate([[0.5], sums[:-1] / np.arange(1, 2000)])
        spread = ((x - predicted) ** 2).cumsum()
        for u in np.unique(np.geomspace(1, 2000, 60).astype(int)):
            level = _log_level(kind, (int(u), 0.0, spread[u - 1], 1.0), sums[u - 1] / u - p, mixtures, -math.log(alpha))
            if level <= math.log(alpha):
                failed += 1
                break
    assert_rate_at_most(failed, trials, alpha)


@pytest.mark.parametrize(("policy", "anytime"), [("hoeffding", False), ("tightest", False), ("tightest", True)])
def test_the_optimal_cutoff_against_brute_force(policy, anytime, seed):
    for k in range(2):
        rng = np.random.default_rng([seed, k])
        means = rng.random(8)
        rule = fr.Adapt(8, 3, 0.1, 1e-6, policy=policy, cutoff="optimal", anytime=anytime, batch=50, rng=1)
        rule.run(BernoulliPulls(means, rng=k), max_pulls=1500)
        state = rule._core.get_state()
        order = np.lexsort((np.arange(8), -state["mean"]))
        high = order[:3]
        kind, share = rule._options["kind"], rule._options["log_share"]

        def bound(c, state=state, high=high, kind=kind, share=share, rule=rule):
            levels = []
            for i in range(8):
                gap = state["mean"][i] + 0.1 - c if i in high else c - state["mean"][i]
                levels.append(math.exp(_log_level(
                    kind, (int(state["pulls"][i]), state["m2"][i], state["error"][i], 1.0), gap,
                    rule._options["scales"], share)))
            return min(1, 8 * max(levels)) if rule._anytime else -math.expm1(sum(math.log1p(-min(d, 1 - 1e-16))
                                                                              for d in levels))

        grid = np.linspace(state["mean"][order[3]], state["mean"][order[2]] + 0.1, 301)
        best = min(bound(c) for c in grid)
        assert rule.error_bound == pytest.approx(bound(rule.cutoff), rel=1e-9)
        assert rule.error_bound <= best * (1 + 1e-9) + 1e-15


# ADAPT.


@pytest.mark.parametrize("policy", ["tightest", "hoeffding"])
@pytest.mark.parametrize(("n", "m", "epsilon", "capped"), [(7, 3, 0.1, True), (2, 1, 0.0, False), (12, 1, 0.25, True)])
def test_every_pull_equals_the_plain_twin(policy, n, m, epsilon, capped, seed):
    rng = np.random.default_rng(seed)
    table = (rng.random((6000, n)) < np.linspace(0.2, 0.8, n)).astype(float)
    cap = math.ceil(2 / epsilon**2 * math.log(n / 0.1)) if capped else math.inf
    for batch, function in ((1, twin.adapt_by_envelope), (1e-9, twin.adapt)):
        used = [0] * n

        def pull(i, used=used):
            used[i] += 1
            return float(table[used[i] - 1, i])

        wanted = function(pull, n, m, epsilon, 0.1, [1.0] * n, policy, cap=cap,
                          uniform=twin.Uniforms(np.random.default_rng(5)))
        rule = fr.Adapt(n, m, epsilon, 0.1, policy=policy, cap=capped, batch=batch, rng=np.random.default_rng(5))
        assert pulls_in_order(rule, table) == wanted[0]
        assert (np.ravel(rule.result().best).tolist(), rule.result().stopped_by) == (wanted[1], wanted[2])


def test_the_error_bound_after_every_pull_is_that_of_the_product(seed):
    rng = np.random.default_rng(seed)
    rule, plain = fr.Adapt(5, 2, 0.1, 0.01, rng=1), twin.State(5, 2, 0.1, [1.0] * 5)
    assert rule.error_bound == 1.0 and math.isnan(rule.cutoff)
    for _ in range(600):
        arms, counts = rule.ask()
        rewards = rng.random(counts.sum()) * np.repeat([0.2, 0.9, 0.5, 0.2, 1.0], 1)[np.repeat(arms, counts)]
        for i, x in zip(np.repeat(arms, counts).tolist(), rewards.tolist(), strict=True):
            plain.tell(i, x)
        rule.tell(rewards)
        c = plain.cutoff()
        assert rule.cutoff == pytest.approx(c, rel=1e-12)
        assert rule.error_bound == pytest.approx(plain.error(c), rel=1e-10, abs=1e-14)
        assert rule.result().arm_error == pytest.approx(plain.levels(c), rel=1e-10, abs=1e-300)
        if rule.done:
            break


def test_the_envelope_holds_the_levels(seed):
    rule, source = fr.Adapt(30, 8, 0.05, 0.01, rng=1), BernoulliPulls(np.linspace(0.1, 0.9, 30), rng=seed)
    for top in range(100, 6000, 117):
        rule.run(source, max_pulls=top)
        above, below, levels, (low, high), cutoff, below_sum = rule._core._envelope()
        assert low <= cutoff <= high
        assert (above >= levels * (1 - 1e-12)).all() and (below <= levels * (1 + 1e-12)).all()
        assert below_sum == pytest.approx(below.sum(), rel=1e-6, abs=1e-9)
        state = rule._core.get_state()
        assert set(rule._core.chosen()) == set(np.lexsort((np.arange(30), -state["mean"]))[:8])


def test_drawing_one_by_one_in_blocks_and_plainly_takes_as_many_pulls(seed):
    means, found = np.linspace(0.9, 0.1, 9), {}
    for name, batch in (("one", 1), ("plain", 1e-9), ("blocks", 0.01)):
        found[name] = [
            fr.Adapt(9, 3, 0.1, 0.1, batch=batch, rng=[1, k]).run(BernoulliPulls(means, rng=[seed, k])).n_read
            for k in range(150)
        ]
    spread = np.std(found["plain"]) * math.sqrt(2 / 150)
    assert abs(np.mean(found["one"]) - np.mean(found["plain"])) < 5 * spread
    assert abs(np.mean(found["blocks"]) - np.mean(found["plain"])) < 5 * spread + 0.02 * np.mean(found["plain"])


def test_the_papers_instance_takes_the_pulls_of_the_plain_policy(seed):
    rng = np.random.default_rng(20100621)
    means, half = rng.random(50), math.sqrt(12) / 2
    support = (means - half, means + half)
    ours = [fr.Adapt(50, 15, 0.1, 0.15, support, rng=[1, k]).run(UniformPulls(*support, rng=[2, k])).n_read
            for k in range(24)]
    plain = [
        fr.Adapt(50, 15, 0.1, 0.15, support, batch=1e-9, rng=[3, k]).run(UniformPulls(*support, rng=[4, k])).n_read
        for k in range(5)
    ]
    error = math.hypot(np.std(ours) / math.sqrt(24), np.std(plain) / math.sqrt(5))
    assert abs(np.mean(ours) / np.mean(plain) - 1) < 0.05 + 3 * error / np.mean(plain)
    assert 20_000 < np.mean(ours) < 80_000


def test_the_cap_is_never_passed_and_tied_arms_stop(seed):
    for kw in ({}, {"batch": 100}, {"strict": True}, {"anytime": True}, {"policy": "colliding", "batch": 0.01}):
        rule = fr.Adapt(6, 2, 0.2, 0.1, rng=1, **kw)
        result = rule.run(BernoulliPulls([0.5] * 6, rng=seed))
        share = 0.05 if kw.get("strict") or kw.get("anytime") else 0.1
        assert result.pulls.max() <= math.ceil(2 / 0.04 * math.log(6 / share))
        assert result.stopped_by in ("delta", "cap", "bound")
        assert result.error_bound <= 0.1
    endless = fr.Adapt(2, 1, 0.0, 0.05, rng=1).run(lambda arms, counts: np.full(counts.sum(), 0.5), max_pulls=5000)
    assert endless.stopped_by == "max_pulls" and endless.error_bound == 1.0 and np.ravel(endless.best).tolist() == [0]


def test_constant_arms_stop_soon():
    values = np.array([0.7, 0.5, 0.3, 0.1])
    for kw in ({}, {"batch": 0.05}, {"anytime": True}, {"policy": "hoeffding"}):
        result = fr.Adapt(4, 2, 0.05, 0.1, rng=1, **kw).run(lambda arms, counts: np.repeat(values[arms], counts))
        assert sorted(np.ravel(result.best).tolist()) == [0, 1] and result.stopped_by == "delta"
        assert result.n_read < (5000 if kw.get("policy") else 900)


@pytest.mark.resources
def test_many_arms_cost_little(seed):
    n = 100_000
    means = np.full(n, 0.1)
    means[::1000] = 0.9
    rule = fr.Adapt(n, 100, 0.1, 0.1, rng=1)
    result = rule.run(BernoulliPulls(means, rng=seed), max_pulls=3 * n)
    assert result.n_read == 3 * n and result.stopped_by == "max_pulls"
    result = fr.Adapt(n, 100, 0.5, 0.1, batch=0.1, rng=1).run(BernoulliPulls(means, rng=seed))
    assert set(np.ravel(result.best).tolist()) == set(range(0, n, 1000)) and result.stopped_by == "delta"
    assert set(fr.Halving(n, 100, 3.0, 0.5, (0, 1)).ask()[1].tolist()) == {
        math.ceil(2 / 0.75**2 * math.log(300 / 0.25))}


INSTANCES = {
    "easy": ([0.9, 0.8, 0.3, 0.2], 2, 0.1),
    "hard": ([0.6] * 4 + [0.6 - 0.101] * 4, 4, 0.1),
    "two arms, no epsilon": ([0.53, 0.47], 1, 0.0),
    "tied at the cut": ([0.8, 0.5, 0.5, 0.5, 0.2], 2, 0.05),
    "rare rewards": ([0.05, 0.01], 1, 0.0),
    "one best": ([0.6] + [0.45] * 7, 1, 0.05),
}


@pytest.mark.parametrize("kw", [{}, {"anytime": True}, {"policy": "hoeffding", "cutoff": "optimal", "batch": 0.05},
                                {"batch": 0.02}], ids=str)
@pytest.mark.parametrize("instance", INSTANCES.values(), ids=INSTANCES)
@few_or_many("trials", 30, 600)
def test_the_stop_keeps_its_promise_under_optional_stopping(instance, kw, trials, seed):
    means, m, epsilon = np.array(instance[0]), instance[1], instance[2]
    good_enough = np.sort(means)[-m] - epsilon - 1e-12
    delta, wrong = 0.15, 0
    for k in range(trials):
        rule = fr.Adapt(len(means), m, epsilon, delta, rng=[seed, k, 1], **kw)
        result = rule.run(BernoulliPulls(means, rng=[seed, k, 2]), max_pulls=10**6)
        wrong += (means[result.best] < good_enough).any()
    assert_rate_at_most(wrong, trials, delta)


# OCBA and the race.


def test_ocba_follows_its_shares(seed):
    table = np.random.default_rng(seed).random((3000, 6)) * [0.3, 1, 0.5, 0.9, 0.6, 0.4]
    rule = fr.OCBA(6, 2, 1500, n0=10, batch=1, draw="deficit", rng=1)
    source = RecordedPulls(table)
    rule.tell(source.read(*rule.ask()))
    for _ in range(300):
        state = rule._core.get_state()
        u = state["pulls"]
        share, c = twin.ocba_shares(state["mean"], np.sqrt(state["m2"] / (u - 1)), u, 2)
        assert rule.result().cutoff == pytest.approx(c, rel=1e-9)
        lacking = np.array(share) * (u.sum() + 1) - u
        arms, counts = rule.ask()
        assert counts.tolist() == [1] and lacking[arms[0]] == pytest.approx(lacking.max())
        rule.tell(source.read(arms, counts))
    rule = fr.OCBA(6, 2, 1500, n0=10, batch=40, rng=1)
    source = RecordedPulls(table)
    rule.tell(source.read(*rule.ask()))
    state = rule._core.get_state()
    share, _ = twin.ocba_shares(state["mean"], np.sqrt(state["m2"] / 9), state["pulls"], 2)
    lacking = np.array(share) * 100 - 10
    assert set(rule.ask()[0].tolist()) <= set(np.flatnonzero(lacking > 0)) and rule.ask()[1].sum() == 40
    assert drive(rule, source).n_read == 1500


def test_ocba_survives_ties_and_constants():
    for draw in ("proportional", "deficit"):
        result = fr.OCBA(4, 2, 500, draw=draw, rng=1).run(lambda arms, counts: np.full(counts.sum(), 0.5))
        assert result.n_read == 500 and np.ravel(result.best).tolist() == [0, 1]


@pytest.mark.parametrize("horizon", [1, 40, 300])
def test_the_race_equals_counting_pairs(horizon, seed):
    for k in range(5):
        table = np.random.default_rng([seed, k]).random((horizon, 9)) * np.linspace(0.2, 1.0, 9)
        selected, discarded, pulls = twin.race(table, 3, horizon, 0.2, 1.0)
        rule = fr.SubsetRace(9, 3, horizon, 0.2)
        result = rule.run(table, order="given")
        state = rule._core.decided()[0]
        assert set(np.flatnonzero(state == 1)) == selected and set(np.flatnonzero(state == -1)) == discarded
        assert result.pulls.tolist() == pulls
        over = len(selected) == 3 or len(discarded) == 6
        assert result.stopped_by == ("bound" if over else "horizon")
        assert over or "not decided" in str(result)


def test_the_race_keeps_its_promise_and_may_go_beyond(seed):
    wrong = 0
    for k in range(150):
        result = fr.SubsetRace(5, 2, 1000, 0.1, bound="bernstein").run(BernoulliPulls(MEANS[:5], rng=[seed, k]))
        wrong += result.stopped_by == "bound" and set(np.ravel(result.best).tolist()) != {1, 3}
    assert_rate_at_most(wrong, 150, 0.1)
    beyond = fr.SubsetRace(5, 2, 1, 0.1, beyond=True).run(BernoulliPulls(MEANS[:5], rng=seed), max_pulls=10**6)
    assert beyond.stopped_by == "bound" and "beyond its horizon" in str(beyond)
    assert math.isnan(beyond.error_bound)


@pytest.mark.parametrize("make", [fr.Adapt, fr.OCBA])
def test_a_decision_of_too_many_pulls_is_refused(make):
    with pytest.raises(ValueError, match="at most 16777216 pulls"):
        make(3, 1, 1000, batch=2**24 + 1)


@pytest.mark.parametrize("make", [fr.Direct, fr.Halving, fr.Incremental])
def test_accuracies_that_cannot_be_reached_are_refused(make):
    for epsilon in (1e-300, 5e-324, 1e-160):
        with pytest.raises(ValueError, match=r"at most 2\*\*62"):
            make(3, 1, epsilon)


@pytest.mark.parametrize("call", [
    lambda n: fr.Adapt(4, 2, 0.2, n0=n), lambda n: fr.OCBA(4, 2, n), lambda n: fr.SubsetRace(4, 2, n),
    lambda n: fr.LUCB(4, 2, batch=n)])
def test_numbers_beyond_64_bits_are_refused_by_name(call):
    for n in (2**63, 2**70):
        with pytest.raises(ValueError, match=f"is {n}"):
            call(n)


def test_costs_are_added_up_and_progress_changes_nothing(capsys):
    pytest.importorskip("rich")
    values = np.random.default_rng(0).random((400, 4)) * 0.6 + [0.0, 0.1, 0.2, 0.4]
    plain = fr.LUCB(4, 1, rng=1).run(values)
    rule = fr.LUCB(4, 1, cost=[1, 2, 3, 4], rng=1)
    found = rule.run(values, progress=True)
    assert f"{found.n_read}/" in capsys.readouterr().err
    assert plain.cost is None and (plain.pulls == found.pulls).all() and plain.best == found.best
    assert found.cost == found.pulls @ [1, 2, 3, 4] and f"cost {found.cost:g}" in str(found)
    assert pickle.loads(pickle.dumps(rule)).result() == found
    for method in ("auto", "halving", "adapt"):
        result = fr.select_best(values, epsilon=0.1, method=method, cost=2.0, rng=1)
        assert result.cost == 2.0 * result.n_read
    exact = fr.select_best(np.repeat(values[:20, :1], 3, axis=1), cost=[1, 0, 5], rng=1)
    assert exact.stopped_by == "exact" and exact.cost == exact.pulls @ [1, 0, 5]
    for make in (lambda cost: fr.LUCB(4, 1, cost=cost), lambda cost: fr.select_best(values, cost=cost)):
        with pytest.raises(ValueError, match="cost is -1"):
            make(-1.0)
