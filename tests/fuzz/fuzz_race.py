"""Random arguments, calls in random order and damaged saved states, held against the plain twin of a race.

Bytes choose everything, so that a fuzzer can steer by them:

    python tests/fuzz/fuzz_race.py -max_total_time=60 CORPUS_DIRECTORY       (needs atheris)
    python tests/fuzz/fuzz_race.py FILE                                      (repeats one input)

`tests/contracts/test_reliability.py` runs the same on random bytes.
"""

import copy
import math
import pickle
import sys
from pathlib import Path

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    FILES = [path for path in sys.argv[1:] if Path(path).is_file()]
    if not FILES:
        import atheris

        with atheris.instrument_imports(include=["fastrace", "reference"]):
            import fastrace.races.racing
            import reference.racing  # noqa: F401

import fastrace as fr
from fastrace.races._options import BOUNDS
from reference import racing as twin
from reference.draws import Order, Window

RULES = [bound for bound in BOUNDS if bound != "auto"]
NAMED = (ValueError, TypeError)         # what a bad argument may raise

ODD = [0, 1, -1, 2, 3, 50, 2**31, 2**62, 2**63, -(2**63), 0.5, -0.0, 1e-300, 1e300, math.nan, math.inf, -math.inf,
       None, True, "", "0.1", "betting", "normal", "shuffled", b"x", 1j, (), (0, 1), (1, 0), (0.0, math.inf),
       ([0, 0], [1, 1]), ([0, 0, 0], 1), [], [0.0], [[1.0]], np.array(0.5), np.zeros(3), np.zeros((2, 2)),
       np.float32(0.1), np.int8(3), object()]


class Chooser:
    """Choices made by bytes; zeros once they have run out."""

    def __init__(self, data):
        self.data = data
        self.at = 0

    def below(self, n):
        raw = self.data[self.at : self.at + 2]
        self.at += 2
        return int.from_bytes(raw, "little") % n

    def of(self, options):
        return options[self.below(len(options))]

    def chance(self, one_in):
        return self.below(one_in) == one_in - 1

    @property
    def over(self):
        return self.at >= len(self.data)


def fuzz(data):
    choose = Chooser(data)
    choose.of([arguments, sequences, sequences, restores, others])(choose)


def arguments(choose):
    """Odd arguments raise ValueError or TypeError, or make something that works."""
    values = np.random.default_rng(choose.below(100)).random((60, 3))
    makers = {
        "FiniteRace": (lambda **o: fr.FiniteRace(**({"n_arms": 3, "n_rows": 60} | o)).run(values),
                       "n_arms n_rows delta bound variance first_look growth support offset order student "
                       "epsilon n_best cost skewness_guard scan_advantage rng"),
        "race": (lambda **o: fr.race(values, **o),
                 "delta bound support n_arms n_rows offset variance first_look growth order epsilon n_best cost rng"),
        "DiscreteSampler": (lambda **o: fr.DiscreteSampler(values, **o).draw_many(2),
                            "log_prior bound delta support variance first_look growth order rng"),
        "AcceptTest": (lambda **o: fr.AcceptTest(values[:, :2], **o).accept(),
                       "bound delta support noise access first_look growth schedule student scan_advantage rng"),
        "LilUCB": (lambda **o: fr.LilUCB(**({"n_arms": 3, "n_rows": 60, "support": (0, 1)} | o)).run(values),
                   "n_arms n_rows delta support setting offset rng"),
        "UnequalRace": (lambda **o: fr.UnequalRace(**({"sizes": [60, 30, 5]} | o)).run(
                            [values[:, 0], values[:30, 1], values[:5, 2]]),
                        "sizes delta bound first_look support offset temperature kind student scan_advantage rng"),
    }
    make, names = makers[choose.of(list(makers))]
    names = names.split()
    options = {choose.of(names): choose.of(ODD) for _ in range(1 + choose.below(3))}
    if isinstance(options.get("n_arms"), int) and options["n_arms"] >= 2**31:       # they would get their memory
        del options["n_arms"]
    try:
        make(**options)
    except NAMED as error:
        assert str(error)


def made(choose):
    """A race, its twin's arguments, and its table."""
    seed = choose.below(1000)
    rng = np.random.default_rng(seed)
    n_arms, n_rows = 1 + choose.below(5), choose.of([1, 2, 3, 7, 40, 200, 500])
    values = rng.random((n_rows, n_arms)) + rng.random(n_arms) * choose.of([0.0, 0.1, 0.5, 3.0])
    if choose.chance(4):
        values[:, choose.below(n_arms)] = choose.of([0.0, 0.3, 1.0])
    values *= 2.0 ** choose.of([0, 0, -30, 20])
    offset = rng.normal(size=n_arms) * choose.of([0.0, 1.0, 30.0])
    if n_arms > 1 and choose.chance(5):
        offset[choose.below(n_arms)] = -math.inf
    bound, variance = choose.of(RULES), choose.of(["pairwise", "marginal"])
    if bound == "betting":
        variance = "pairwise"
    support = (values.min(axis=0), values.max(axis=0))
    options = {"delta": choose.of([0.05, 0.4, 1e-6, 1e-100]), "bound": bound, "variance": variance,
               "first_look": choose.of([2, 5, 20, 50]), "growth": choose.of([None, 1.3, 3.0]), "support": support,
               "offset": offset, "order": choose.of(["random", "given"]), "epsilon": choose.of([0.0, 0.0, 0.02]),
               "skewness_guard": bool(choose.below(2)), "tail_guard": bool(choose.below(2)),
               "scan_advantage": choose.of([1.0, 1.0, 5.0])}
    return fr.FiniteRace(n_arms, n_rows, rng=copy.deepcopy(rng), **options), values, options, rng


def expected(race, values, options, rng):
    n_rows, n_arms = values.shape
    offset = options["offset"]
    looks, quantiles, log_inv_delta = race._options.plan(int(np.isfinite(offset).sum()))
    return twin.race(values, looks, quantiles, log_inv_delta, bound=options["bound"],
                     pairwise=options["variance"] == "pairwise", rng=rng, offset=offset, low=options["support"][0],
                     high=options["support"][1], guarded=options["skewness_guard"],
                     tails=options["tail_guard"],
                     order=Order(n_rows) if options["order"] == "random" else Window(n_rows),
                     advantage=options["scan_advantage"], epsilon=options["epsilon"])


def bad_calls(choose, race, rows, arms):
    """What is refused changes nothing."""
    shape = (len(rows), len(arms))
    spoilt = np.zeros(shape)
    spoilt[choose.below(shape[0]), choose.below(shape[1])] = choose.of([math.nan, math.inf])
    bad = choose.of([spoilt, np.zeros((shape[0] + 1, shape[1])), np.zeros((shape[0], shape[1] + 1)), np.zeros(shape[0]),
                     None, "x", np.zeros(shape, complex), np.zeros(shape, object), [], 1.0,
                     np.ma.masked_array(np.zeros(shape), mask=True)])
    try:
        race.tell(bad)
    except NAMED:
        return
    raise AssertionError(f"tell() took {bad!r}")


def sequences(choose):
    """Calls in any order, saved and restored anywhere, end where the twin ends."""
    race, values, options, rng = made(choose)
    wanted = expected(race, values, options, rng)
    steps = 0
    while not race.done:
        steps += 1
        action = choose.below(8) if steps < 200 else 0
        if action == 1:
            race = pickle.loads(pickle.dumps(race))
        elif action == 2:
            race = choose.of([copy.copy, copy.deepcopy])(race)
        elif action == 3:
            bad_calls(choose, race, *race.ask()[::-1])
        elif action == 4:
            str(race.result()), repr(race)
        elif action == 5 and options["scan_advantage"] == 1.0:
            race.run(values)
        else:
            arms, rows = race.ask()
            assert rows.min() >= 0 and rows.max() < values.shape[0] and np.unique(rows).size == rows.size
            block = values[np.ix_(rows, arms)]
            race.tell(np.asfortranarray(block) if choose.below(2) else block)
    found = race.result()
    assert (found.best, found.stopped_by, found.n_looks) == (wanted.best, wanted.stopped_by, wanted.n_looks), (
        found, wanted)
    np.testing.assert_array_equal(found.pulls, wanted.pulls)


def leaves(state, path=()):
    """Every place in nested plain objects."""
    if isinstance(state, dict):
        for key in state:
            yield from leaves(state[key], (*path, key))
    elif isinstance(state, (tuple, list)):
        for k in range(len(state)):
            yield from leaves(state[k], (*path, k))
    else:
        yield path


def replaced(state, path, change):
    """A copy of nested plain objects with one leaf changed."""
    if not path:
        return change(state)
    if isinstance(state, dict):
        return {**state, path[0]: replaced(state[path[0]], path[1:], change)}
    items = list(state)
    items[path[0]] = replaced(items[path[0]], path[1:], change)
    return type(state)(items)


def damage(choose, leaf):
    if isinstance(leaf, np.ndarray) and leaf.size and choose.below(3):
        leaf = leaf.copy()
        leaf.flat[choose.below(leaf.size)] = np.array(choose.of([0, 1, 2, 100, 2**31 - 1])).astype(leaf.dtype)
        return leaf if choose.below(3) or not leaf.ndim else leaf[: choose.below(leaf.size)]
    if isinstance(leaf, bytes) and leaf and choose.below(3):
        at = choose.below(len(leaf))
        return choose.of([leaf[:at], leaf[:at] + bytes([choose.below(256)]) + leaf[at + 1 :], leaf + leaf])
    if isinstance(leaf, (int, np.integer)) and choose.below(3):
        return int(leaf) + choose.of([-1, 1, 7, -1000, 2**31, 2**62])
    return choose.of(ODD)


def restores(choose):
    """A damaged state is refused, or makes a race that still does nothing worse than answer wrongly."""
    rng = np.random.default_rng(choose.below(1000))
    values = rng.random((200, 3)) + [0.0, 0.02, 0.3]
    kind = choose.below(4)
    if kind == 0:
        race = fr.LilUCB(3, 200, support=(0, 1.3), rng=1)
        race.run(values, max_pulls=choose.below(60))

        def go_on(other):
            other.run(values, max_pulls=500)
    elif kind == 1:
        race = fr.UnequalRace([200, 100, 50], rng=1)
        for _ in range(choose.below(3)):
            if not race.done:
                arms, rows = race.ask()
                race.tell(values[rows, arms])

        def go_on(other):
            other.run([values[:, 0], values[:100, 1], values[:50, 2]])
    else:
        n_rows = 200 if kind == 2 else choose.of([70_000, 2**32])
        missing = choose.of(["raise", "drop", "worst"])
        if missing != "raise":
            values[rng.random(values.shape) < choose.of([0.01, 0.2])] = np.nan
        race = fr.FiniteRace(3, n_rows, bound=choose.of(RULES), support=(0, 1.3), first_look=10, missing=missing,
                             order=choose.of(["random", "random", "given"]), rng=1)
        for _ in range(choose.below(4)):
            if not race.done:
                arms, rows = race.ask()
                race.tell(values[np.ix_(rows % 200, arms)])

        def go_on(other):
            for _ in range(6 if n_rows < 2**31 else 0):     # what is damaged may ask for all rows
                if not other.done:
                    arms, rows = other.ask()
                    other.tell(values[np.ix_(rows % 200, arms)])
            other.result()

    rebuild, known = race.__reduce__()
    known = copy.deepcopy(known)
    n_whole = 4 if kind > 1 else 3              # version, class and options stay as they are
    saved = known[n_whole:]
    saved = replaced(saved, choose.of(list(leaves(saved))), lambda leaf: damage(choose, leaf))
    try:
        go_on(rebuild(*known[:n_whole], *saved))
    except ValueError as error:
        assert str(error)


def others(choose):
    """Draws, decisions and lil'UCB that read everything are exact."""
    rng = np.random.default_rng(choose.below(1000))
    n_rows, n_arms = choose.of([1, 2, 30, 120]), 2 + choose.below(3)
    values = rng.normal(size=(n_rows, n_arms)) * choose.of([1e-3, 1.0, 1e6])
    span = float(np.abs(values).max())
    best = int(values.sum(axis=0).argmax())
    prior = np.zeros(n_arms)
    sampler = fr.DiscreteSampler(values * 1e-9 / span, np.where(np.arange(n_arms) == best, 0.0, -500.0),
                                 delta=1e-200, bound="serfling", support=(-1.0, 1.0), rng=choose.below(9))
    if choose.below(2):
        sampler = pickle.loads(pickle.dumps(sampler))
    assert sampler.draw() == best
    sampler.log_prior = prior
    assert 0 <= sampler.draw() < n_arms
    lil = fr.LilUCB(n_arms, n_rows, 1e-200, (-span, span), "theory", rng=choose.below(9))
    while not lil.done:
        lil.run(values, max_pulls=choose.below(200) + 1)
        if choose.chance(3):
            lil = pickle.loads(pickle.dumps(lil))
        if choose.over:
            lil.run(values)
    assert lil.result().best == best
    d = values[:, 1] - values[:, 0]
    test = fr.AcceptTest(values[:, :2], bound=choose.of(RULES), delta=1e-200, support=(-2 * span, 2 * span),
                         access=choose.of(["random", "shuffled"]), rng=choose.below(9))
    total = math.fsum(d)
    near = choose.of([1e-6, 1e-2, 1.0]) * span
    for sign in (1, -1):
        if test.bound != "normal" or n_rows < 50:
            assert test.decide(total + sign * near) == (sign < 0)
        test = pickle.loads(pickle.dumps(test))


if __name__ == "__main__":
    for path in FILES:
        fuzz(Path(path).read_bytes())
    if not FILES:
        for case in (arguments, sequences, restores, others, made, bad_calls, damage):
            globals()[case.__name__] = atheris.instrument_func(case)
        atheris.Setup(sys.argv, fuzz)
        atheris.Fuzz()
