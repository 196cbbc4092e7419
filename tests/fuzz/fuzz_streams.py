"""Rules over streams: odd arguments, and rewards in any portions between saves and bad calls, held against plain twins.

Bytes choose everything, so that a fuzzer can steer by them:

    python tests/fuzz/fuzz_streams.py -max_total_time=60 CORPUS_DIRECTORY    (needs atheris)
    python tests/fuzz/fuzz_streams.py FILE                                   (repeats one input)

`tests/contracts/test_fuzz.py` runs the same on random bytes and on mutations of them.
"""

import copy
import inspect
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
            import reference.paired
            import reference.sequences
            import reference.stopping  # noqa: F401

import catalogue
import fastrace as fr
from fuzz.fuzz_race import NAMED, ODD, Chooser
from reference import paired, sequences, stopping

TWINS = {           # rule, and what its twin says: rewards used, estimate or None
    "NAS": (fr.NAS, lambda x, e, d, low, high: stopping.nas(x, e, d, high - low)[:2]),
    "EBStop": (fr.EBStop, lambda x, e, d, low, high: stopping.bernstein(x, e, d, high - low)[:2]),
    "EBGStop": (fr.EBGStop, lambda x, e, d, low, high: stopping.bernstein(x, e, d, high - low, beta=1.1)[:2]),
    "SRA": (fr.SRA, lambda x, e, d, low, high: stopping.sra(x, e, d, high)[:2]),
    "AA": (fr.AA, lambda x, e, d, low, high: stopping.aa(x, e, d, high)[:2]),
}
BOUNDS = {"empirical-bernstein-plug-in": sequences.plug_in, "empirical-bernstein-stitched": sequences.stitched,
          "hoeffding": sequences.hoeffding, "universal": sequences.universal}


def fuzz(data):
    choose = Chooser(data)
    choose.of([arguments, stops, intervals, rounds])(choose)


def arguments(choose):
    """Odd arguments of any class raise ValueError or TypeError, or make something that works."""
    name = choose.of(NAMES)
    cls = catalogue.public_classes()[name]
    parameters = [key for key, parameter in inspect.signature(cls).parameters.items()
                  if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)]
    options = {key: catalogue.ARGUMENTS[key] for key in parameters
               if key in ("n_arms", "n_best", "epsilon", "n_rows", "sizes", "budget", "horizon", "support")}
    if "threshold" in parameters:
        options["threshold"] = 0.5
    for _ in range(1 + choose.below(3)):
        options[choose.of(parameters)] = choose.of(ODD)
    if isinstance(options.get("n_arms"), int) and options["n_arms"] >= 2**31:       # they would get their memory
        del options["n_arms"]
    try:
        thing = cls(**options)
        if options.get("n_arms", 4) in (1, 2, 3, 4):        # the catalogue has rewards of four arms
            if isinstance(thing, fr.select.selection.Selection):
                for _ in range(choose.below(6)):
                    if not thing.done and thing.ask()[1].max() < 10**5:
                        thing.tell(catalogue.pull(*thing.ask()))
            else:
                catalogue.step(thing, choose.below(2))
        pickle.loads(pickle.dumps(thing))
        repr(thing)
    except NAMED as error:
        assert str(error)


# Races and tests have a target of their own.
OTHERS = ("RunningMoments", "RunningComoments", "AcceptTest", "DiscreteSampler", "FiniteRace", "LilUCB", "UnequalRace")
NAMES = [name for name in catalogue.OBJECTS
         if "." not in name and name not in OTHERS and not name.endswith(("Result", "Stats"))]


def rewards(choose, low, high):
    """A stream of rewards, and its length."""
    rng = np.random.default_rng(choose.below(1000))
    n = choose.of([1, 2, 3, 17, 200, 1500])
    law = choose.below(5)
    x = (rng.random(n), np.full(n, rng.random()), (rng.random(n) < rng.random()).astype(float), rng.beta(0.2, 0.3, n),
         np.round(rng.random(n), 1))[law]
    x = low + (high - low) * x
    return np.minimum(np.maximum(x, low), high)


def feed(choose, stream, x):
    """Rewards in portions that the bytes choose, with saves, copies and bad calls between; the object at the end."""
    first = 0
    while first < len(x) and not stream.done:
        action = 4 if choose.over else choose.below(8)
        if action == 0:
            stream = pickle.loads(pickle.dumps(stream))
        elif action == 1:
            stream = choose.of([copy.copy, copy.deepcopy])(stream)
        elif action == 2:
            before = stream.n_samples, stream.interval
            bad = choose.of([math.nan, math.inf, -math.inf, None, "x", 1j, [], x[:3], np.ones((2, 2))])
            for call in (stream.update, stream.update_many):
                try:
                    if not (call == stream.update_many and isinstance(bad, (list, np.ndarray)) and np.ndim(bad) == 1):
                        call(bad)
                        raise AssertionError(f"{call} took {bad!r}")
                except NAMED:
                    pass
            assert (stream.n_samples, stream.interval) == before
        elif action == 3:
            stream.update(float(x[first]))
            first += 1
        else:
            count = len(x) if choose.over else 1 + choose.below(400)
            part = x[first : first + count]
            part = choose.of([part, part.tolist(), np.repeat(part, 2)[::2], part[::-1].copy()[::-1]])
            first += stream.update_many(part)
    return stream


def stops(choose):
    cls, twin = TWINS[choose.of(list(TWINS))]
    low, high = choose.of([(0.0, 1.0), (0.0, 10.0), (0.5, 2.0), (0.0, 1e-6), (0.0, 1e6)])
    epsilon, delta = choose.of([0.05, 0.3, 0.5, 0.9]), choose.of([0.4, 0.1, 1e-4, 1e-30])
    x = rewards(choose, low, high)
    used, estimate = twin(x.tolist(), epsilon, delta, low, high)
    rule = feed(choose, cls(epsilon, delta, (low, high)), x)
    assert rule.stopped == (estimate is not None), (rule, used, estimate)
    if estimate is not None:
        assert rule.n_samples == used, (rule, used)
        assert math.isclose(rule.estimate, estimate, rel_tol=1e-9, abs_tol=1e-300), (rule.estimate, estimate)


def intervals(choose):
    bound = choose.of(list(BOUNDS))
    low, high = choose.of([(0.0, 1.0), (-3.0, 5.0), (1e6, 1e6 + 1.0)])
    delta = choose.of([0.4, 0.1, 1e-4])
    z = rewards(choose, 0.0, 1.0)[:300]
    *_, (lower, upper) = sequences.running(BOUNDS[bound](z, delta), (low, high))
    sequence = fr.ConfidenceSequence(bound, delta, (low, high))
    sequence = feed(choose, sequence, np.clip(low + (high - low) * z, low, high))
    if not sequence.stopped_by:
        slack = 1e-6 * (high - low)
        short = slack + 0.02 * (upper - lower) * (bound == "universal")     # whose earlier looks take tangents
        assert -slack <= lower - sequence.interval[0] <= short and -slack <= sequence.interval[1] - upper <= short, (
            sequence.interval, (lower, upper))


def rounds(choose):
    """LUCB in common rounds asks for what its twin asks for, saved and told nonsense on the way."""
    n_arms = 2 + choose.below(4)
    n_best, epsilon = 1 + choose.below(n_arms - 1), choose.of([0.0, 0.1, 0.3])
    batch, missing = choose.of([1, 2, 7]), choose.of(["raise", "worst"])
    rng, most = np.random.default_rng(choose.below(1000)), 10 + choose.below(200)
    values = np.clip(rng.random(n_arms) + rng.normal(0.0, choose.of([0.0, 0.3]), (1000, 1))
                     + rng.normal(0.0, choose.of([0.0, 0.1, 0.5]), (1000, n_arms)), 0.0, 1.0)
    gone = (rng.random(values.shape) < 0.1) & (missing == "worst")
    rule = fr.LUCB(n_arms, n_best, epsilon, 0.1, batch=batch, paired=True, missing=missing)
    best, made, _, arms = paired.paired(
        np.where(gone, 0.0, values), np.zeros(n_arms), np.ones(n_arms), n_best, epsilon, 0.1, batch, most)
    row, asked = 0, []
    while not rule.done and rule.n_pulls <= most:
        wanted, counts = rule.ask()
        asked.append((tuple(wanted.tolist()), int(counts[0])))
        block = np.where(gone, np.nan, values)[row : row + counts[0]][:, wanted].T.ravel()
        action = 3 if choose.over else choose.below(6)
        if action == 0:
            rule = pickle.loads(pickle.dumps(rule))
        elif action == 1:
            rule.result()
        elif action == 2:
            for bad in (block[1:], np.where(np.arange(block.size) == 0, 2.0, block), "x", 1j * np.ones(block.size)):
                try:
                    rule.tell(bad)
                    raise AssertionError(f"tell took {bad!r}")
                except NAMED:
                    pass
        rule.tell(block)
        row += int(counts[0])
    both = min(len(asked), len(made))       # at the limit, the twin makes both requests of two arms, or none
    assert asked[:both] == made[:both] and abs(len(asked) - len(made)) <= 1, (asked, made)
    if asked != made:
        return
    assert set(np.ravel(rule.result().best).tolist()) == best and rule.result().pulls.tolist() == arms.pulls.tolist()


if __name__ == "__main__":
    for path in FILES:
        fuzz(Path(path).read_bytes())
    if not FILES:
        for case in (arguments, stops, intervals, rounds, feed, rewards):
            globals()[case.__name__] = atheris.instrument_func(case)
        atheris.Setup(sys.argv, fuzz)
        atheris.Fuzz()
