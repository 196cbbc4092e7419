"""Ctrl-C in every compiled loop: heard within 0.1 s of work, and whatever was running can be used again.

Classes are found by inspection, so a new one is held to this without a line here.
"""

import inspect

import numpy as np
import pytest

import catalogue
import ctrl_c
import fastrace as fr
from catalogue import SEED, X, Y
from fastrace import mcmc
from fastrace.pulls import BernoulliPulls, RandomPulls
from fastrace.streams._stopping import Stream

LONG = 1 << 40
FLAT = np.broadcast_to(np.float64(0.5), (LONG,))
TABLE = np.broadcast_to(np.float64(0.5), (LONG, 4))


def endless(name):
    """An object of the class, work for it that takes far longer than anyone waits, and a short use of it afterwards."""
    cls = catalogue.public_classes()[name]
    if issubclass(cls, Stream):
        rule = catalogue.made(name)
        if "epsilon" in inspect.signature(cls).parameters:
            options = {"rng": 1} if "rng" in inspect.signature(cls).parameters else {}
            rule = cls(epsilon=1e-6, delta=1e-100, **options)
        flat = FLAT if "Sign" not in name else np.broadcast_to(np.float64(0.0), (LONG,))
        return rule, lambda: rule.update_many(flat), lambda: rule.update(0.5 if "Sign" not in name else 0.0)
    if name in ("RunningMoments", "RunningComoments"):
        moments = getattr(fr, name)(4)
        return moments, lambda: moments.update_many(TABLE), lambda: moments.update_many(TABLE[:5])
    if issubclass(cls, fr.select.selection.Selection):
        rule = _tied(cls)
        pulls = BernoulliPulls([0.5] * 4, rng=SEED)
        return pulls, lambda: rule.run(pulls), lambda: rule.run(pulls, max_pulls=rule.n_pulls + 10)
    if issubclass(cls, RandomPulls):
        pulls = catalogue.made(name)
        return pulls, lambda: pulls.read([0, 1], [10**9, 10**9]), lambda: pulls.read([0, 1], [2, 3])
    if issubclass(cls, fr.streams.stream_race.StreamRace):
        race = cls(4, LONG, support=(0, 1))
        return race, lambda: race.run(TABLE, order="given"), lambda: race.tell(TABLE[: 1, : race.ask()[0].size])
    if name in ("FiniteRace", "LilUCB"):
        options = {"setting": "theory"} if name == "LilUCB" else {"bound": "serfling"}
        race = cls(4, LONG, 1e-9, support=(0, 1), rng=SEED, **options)
        return race, lambda: race.run(TABLE), race.ask
    if name == "UnequalRace":
        races = []          # one for each Ctrl-C, since arms of this size are soon read in full

        def work():
            races[:] = [fr.UnequalRace([1 << 26] * 4, 1e-9, rng=SEED)]
            races[0].run([FLAT[: 1 << 26]] * 4)

        return races, work, lambda: races[0].ask()
    if name == "AcceptTest":
        test = fr.AcceptTest(TABLE[:, :1], bound="serfling", support=(0, 1), rng=SEED)
        return test, lambda: test.decide(0.5 * LONG), lambda: test.decide(-1.0)
    if name == "DiscreteSampler":
        sampler = fr.DiscreteSampler(np.zeros((1000, 4)), rng=SEED)
        return sampler, lambda: sampler.draw_many(10**7), sampler.draw
    if hasattr(cls, "step") and hasattr(cls, "init"):
        kernel = catalogue.made(name)
        state, rng = kernel.init(rng=1), np.random.default_rng(1)
        return rng, lambda: kernel.run(rng, state, 10**8), lambda: kernel.step(rng, state)
    return None


def _tied(cls):
    """A selection that nothing but Ctrl-C ends soon, over arms that tie."""
    parameters = inspect.signature(cls).parameters
    given = {"n_arms": 4, "n_best": 2, "epsilon": 1e-6, "delta": 1e-9, "support": (0, 1), "budget": 10**11,
             "horizon": 10**11, "rng": SEED}
    return cls(**{key: value for key, value in given.items() if key in parameters})


LOOPS = [name for name in catalogue.OBJECTS if endless(name) is not None]


def generators(thing):
    """Random generators that an object holds."""
    if isinstance(thing, list):
        return [generator for item in thing for generator in generators(item)]
    found = [thing] if isinstance(thing, np.random.Generator) else []
    for holder in (thing, getattr(thing, "_core", None)):
        if isinstance(getattr(holder, "rng", None), np.random.Generator):
            found.append(holder.rng)
    return found


def test_loops_of_every_family_are_among_them():
    assert {"EBGStop", "RunningMoments", "Adapt", "LUCB", "OCBA", "BettingRace", "FiniteRace", "LilUCB", "UnequalRace",
            "AcceptTest", "DiscreteSampler", "mcmc.RacingMetropolis", "mcmc.Gibbs", "mcmc.Slice",
            "pulls.BernoulliPulls"} <= set(LOOPS)


@pytest.mark.parametrize("times", [1, pytest.param(100, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", LOOPS)
def test_ctrl_c_is_heard_and_leaves_what_can_be_used(name, times):
    thing, work, use = endless(name)
    assert ctrl_c.press(work, times) == times
    for generator in generators(thing):
        assert generator.bit_generator.lock.acquire(blocking=False)
        generator.bit_generator.lock.release()
    use()


# Nothing is lost: what is there after Ctrl-C is what it would be after as many rewards without.

N = 1 << 18
ARMS, KEYS = np.arange(N) * 7 % 4, np.arange(N) * 13 % 20_011
ONES = (np.random.default_rng(1).random(N) < 0.3).astype(float)
ROWS = 0.5 + 0.3 * np.random.default_rng(2).choice([-1.0, 1.0], size=(1000, 4))


def tied_difference(x, y, axis):
    return x.mean(axis) - y.mean(axis)


def comparison(n_arms=4, **options):
    """Portions of rewards again and again; a portion that was cut short is as if it had not come."""
    def observe(test):
        keys = KEYS if test.clusters else None
        test.observe_many(ARMS if n_arms == 4 else np.arange(N) % n_arms, ONES, clusters=keys)

    def work(test):
        while True:
            observe(test)

    def again(test):
        fresh = fr.Comparison(n_arms, **options)
        assert test.n_read % N == 0
        for _ in range(test.n_read // N):
            observe(fresh)
        return fresh

    return lambda: fr.Comparison(n_arms, **options), work, again, lambda test: test.result()


def universal():
    def again(stream):
        fresh = fr.ConfidenceSequence("universal")
        fresh.update_many(FLAT[:stream.n_samples])
        return fresh

    return (lambda: fr.ConfidenceSequence("universal"), lambda stream: stream.update_many(FLAT), again,
            lambda stream: (stream.n_samples, stream.interval))


def rounds():
    def made():
        return fr.LUCB(4, 2, 0.0, 1e-300, paired=True)

    def source():
        return fr.pulls.ResampledPulls(ROWS, paired=True, rng=SEED)

    def again(rule):
        fresh = made()
        fresh.run(source(), max_pulls=rule.n_pulls)
        return fresh

    return made, lambda rule: rule.run(source()), again, lambda rule: (
        rule.result().pulls.tolist(), rule.result().mean.tolist(), rule.result().differences.tolist())


def permutations():
    """Of a function: the exception has the rule."""
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(2, 200))
    data, options = (x, y - y.mean() + x.mean()), {"n_resamples": 2**31 - 1, "risk": 0.0, "alpha": 0.999}

    def work(kept):
        try:
            fr.permutation_test(data, tied_difference, rng=1, **options)
        except KeyboardInterrupt as error:
            kept[:] = [error.rule]
            raise

    def again(kept):
        generator, read = np.random.default_rng(1), kept[0].n_read
        assert read > 0
        fresh = fr.PermutationTest(kept[0].observed[0], kept[0].alpha, n_resamples=2**31 - 1, risk=0.0)
        pooled = np.concatenate(data)
        while fresh.n_read < read:
            k, _ = fresh.ask()
            for count in [min(10_000, k - start) for start in range(0, k, 10_000)]:
                drawn = pooled[generator.permuted(np.broadcast_to(np.arange(400), (count, 400)), axis=-1)]
                fresh.tell(tied_difference(drawn[:, :200], drawn[:, 200:], -1))
        return [fresh]

    return list, work, again, lambda kept: (kept[0].n_read, kept[0].result().lower, kept[0].result().upper)


KEEPERS = {
    "Comparison, exact": lambda: comparison(support=(0, 1)),
    "Comparison, asymptotic": comparison,
    "Comparison, clusters": lambda: comparison(clusters=True),
    "Comparison, many pairs": lambda: comparison(100, support=(0, 1)),
    "ConfidenceSequence, universal": universal,
    "LUCB in common rounds": rounds,
    "permutation_test": permutations,
}


@pytest.mark.parametrize("after", [0.02, 0.2])
@pytest.mark.parametrize("name", KEEPERS)
def test_after_ctrl_c_nothing_is_lost(name, after):
    make, work, again, facts = KEEPERS[name]()
    thing = make()
    assert ctrl_c.press(lambda: work(thing), 1, after) == 1
    assert facts(thing) == facts(again(thing))


@pytest.mark.parametrize("times", [1, pytest.param(100, marks=pytest.mark.long)])
def test_ctrl_c_in_chains_returns_to_the_prompt(times):
    kernel = mcmc.RacingMetropolis(mcmc.GLM(X, Y, prior_sd=2.0))
    assert ctrl_c.press(lambda: mcmc.sample(kernel, np.zeros(2), n_draws=10**6, n_chains=1, rng=1), times) == times
