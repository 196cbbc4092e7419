"""Streams that are observed, and journals of races by requests: random calls, saves, failures and torn files.

Bytes choose everything, so that a fuzzer can steer by them:

    python tests/fuzz/fuzz_observed.py -max_total_time=60 CORPUS_DIRECTORY    (needs atheris)
    python tests/fuzz/fuzz_observed.py FILE                                   (repeats one input)

`tests/contracts/test_fuzz.py` runs the same on random bytes and on mutations of them.
"""

import asyncio
import copy
import json
import math
import pickle
import sys
import tempfile
from pathlib import Path

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    FILES = [path for path in sys.argv[1:] if Path(path).is_file()]
    if not FILES:
        import atheris

        with atheris.instrument_imports(include=["fastrace", "reference"]):
            import reference.comparison  # noqa: F401

import fastrace as fr
from fuzz.fuzz_race import NAMED, Chooser
from reference import bounds, sequences
from reference import comparison as twin

LABELS = ("a", "b", 7, ("c", 1))


def fuzz(data):
    choose = Chooser(data)
    choose.of([comparisons, comparisons, journals])(choose)


# Comparisons, whose oracle keeps all rewards in lists.


def comparisons(choose):
    """Events in any portions, by any labels, between saves, merges and bad calls: the intervals of the plain twin."""
    kind, n_arms = choose.of(["exact", "asymptotic", "clusters"]), 1 + choose.below(4)
    reference = choose.of([None, LABELS[choose.below(n_arms)]])
    options = {"reference": reference, "delta": choose.of([0.3, 0.05, 1e-4])}
    if kind == "exact":
        low, high = options["support"] = choose.of([(0.0, 1.0), (-3.0, 5.0)])
    else:
        low, high, options["first_look"] = choose.of([-1.0, 1e6]), 0.0, choose.of([2, 10, 40])
        high = low + choose.of([1.0, 30.0])
    options["clusters"] = kind == "clusters"
    rng = np.random.default_rng(choose.below(1000))
    n = choose.of([0, 1, 5, 40, 150])
    shares = rng.dirichlet(np.full(n_arms, choose.of([0.3, 5.0])))
    codes = rng.choice(n_arms, size=n, p=shares)
    z = (rng.random(n), (rng.random(n) < 0.2).astype(float), rng.beta(0.3, 2.0, n), np.full(n, 0.25))[choose.below(4)]
    x, keys = low + (high - low) * z, rng.integers(0, max(1, n // choose.of([1, 4])), size=n).tolist()
    test, first = fr.Comparison(LABELS[:n_arms], **options), 0
    while first < n:
        action = 9 if choose.over else choose.below(10)
        count = 1 if action < 3 else n - first if choose.over else 1 + choose.below(40)
        part = slice(first, first + count)
        labels, key = [LABELS[code] for code in codes[part]], keys[part] if kind == "clusters" else None
        if action == 0:
            test.observe(labels[0], choose.of([x[first], float(x[first])]), cluster=key and key[0])
        elif action == 1:
            test = choose.of([copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])(test)
            continue
        elif action == 2:
            refused(choose, test, labels[0], float(x[first]), key)
            continue
        elif action == 3:
            other = fr.Comparison(LABELS[:n_arms], **options)
            other.observe_many(labels, x[part], clusters=key)
            test.merge(other)
        else:
            many = np.empty(len(labels), dtype=object)
            many[:] = labels
            test.observe_many(choose.of([labels, many]), choose.of([x[part], x[part].tolist()]), clusters=key)
        first += count
    agrees(choose, test, kind, codes, x, np.array(keys, dtype=int), options)


def refused(choose, test, label, reward, key):
    """What is refused, or is cut short by Ctrl-C, changes nothing."""
    before = test.result()
    bad = choose.of([
        lambda: test.observe("nobody", reward), lambda: test.observe(label, math.nan),
        lambda: test.observe_many([label, "nobody"], [reward, reward], clusters=key and [1, 2]),
        lambda: test.observe_many([label] * 2, [reward, math.inf], clusters=key and [1, 2]),
        lambda: test.observe_many([label], [reward, reward], clusters=key and [1, 2]),
        lambda: test.observe_many([label] * 2, [reward, None], clusters=key and [1, 2]),
        lambda: test.observe_many([label], [reward], clusters=None if key else [1]),
        lambda: test.observe(label, 1j), lambda: test.merge(test),
        lambda: test.merge(fr.Comparison(LABELS[:3], 0.01)), lambda: interrupted(test, label, reward, key)])
    try:
        bad()
    except (*NAMED, KeyboardInterrupt):
        assert test.result() == before
        return
    raise AssertionError("it was taken")


def interrupted(test, label, reward, key):
    def cut(time):
        raise KeyboardInterrupt

    test._look = cut
    try:
        test.observe_many([label] * 200, [reward] * 200, clusters=key and list(range(-200, 0)))
    finally:
        del test._look


def agrees(choose, test, kind, codes, x, keys, options):
    result, n_arms = test.result(), len(test.names)
    rewards = [x[codes == k] for k in range(n_arms)]
    assert result.pulls.tolist() == [len(part) for part in rewards] and test.n_read == x.size
    for k, part in enumerate(rewards):
        assert not part.size or math.isclose(result.mean[k], part.mean(), rel_tol=1e-9, abs_tol=1e-9)
    base = options["reference"]
    pairs = [(a, b) for a in range(n_arms) for b in range(n_arms)
             if (b < a if base is None else b == LABELS.index(base) != a)]
    assert result.pairs.tolist() == [list(pair) for pair in pairs]
    delta = options["delta"]
    if kind == "exact":
        exact(choose, result, rewards, pairs, delta, *options["support"])
        return
    if min(map(len, rewards)) < 2 or kind == "clusters" and min(
            np.unique(keys[codes == k]).size for k in range(n_arms)) < 2:
        return
    moments, common = [], None
    for k, part in enumerate(rewards):
        if np.ptp(part) == 0.0:
            return                      # the twin divides by the variance
        moments.append(twin.by_cluster(part, keys[codes == k].tolist()) if kind == "clusters" else
                       (part.size, part.mean(), part.var(ddof=1), bounds.sample_skewness(part)))
    if kind == "clusters":
        common = {(a, b): twin.shared(rewards[a], keys[codes == a], rewards[b], keys[codes == b]) for a, b in pairs}
    if min(found[2] for found in moments) < 1e-9 * np.ptp(x) ** 2:
        return
    with np.errstate(invalid="ignore", divide="ignore"):
        own, apart = twin.asymptotic(moments, delta, options["first_look"], pairs or [(0, 0)], common or (
            {(0, 0): (0, 0.0)} if kind == "clusters" else None))
    scale = 1e-6 * np.ptp(x)
    assert np.allclose(np.c_[result.lower, result.upper], own, rtol=1e-7, atol=scale), (result, own)
    if pairs:
        assert np.allclose(np.c_[result.difference_lower, result.difference_upper], apart, rtol=1e-6, atol=scale)


def exact(choose, result, rewards, pairs, delta, low, high):
    """Each interval holds where the twin says; the twin is slow, so of one pair."""
    span = high - low
    scaled = [((part - low) / span).tolist() for part in rewards]
    if not pairs or sum(map(len, rewards)) > 60:
        return
    k = choose.below(len(pairs))
    a, b = pairs[k]
    if not scaled[a] or not scaled[b]:
        assert (result.difference_lower[k], result.difference_upper[k]) == (
            max(-span, result.lower[a] - result.upper[b]), min(span, result.upper[a] - result.lower[b]))
        return
    lower, upper, *_ = sequences.portfolio_difference(
        np.array(scaled[a]), np.array(scaled[b]), math.log(2 * len(pairs) / (0.8 * delta)))
    wanted = (max(span * lower, result.lower[a] - result.upper[b]),
              min(span * upper, result.upper[a] - result.lower[b]))
    assert np.allclose([result.difference_lower[k], result.difference_upper[k]], wanted, rtol=0, atol=1e-6 * span), (
        result, wanted)


# Journals of races by requests, whose oracle is the same race in turn, without a journal.


class Cut(Exception):
    """What a request fails by."""


def journals(choose):
    """Runs that fail, are cut off, and leave torn files: the last one ends as if nothing had happened, and what stands
    in the journal is asked for only once."""
    rng = np.random.default_rng(choose.below(1000))
    n_arms, n_rows = 2 + choose.below(3), choose.of([20, 60, 200])
    values = np.clip(rng.random((n_rows, n_arms)) * 0.4 + rng.permutation(n_arms) / n_arms * 0.6, 0.0, 1.0)
    kind, seed, limit = choose.of(["FiniteRace", "LUCB", "BettingRace"]), choose.below(100), choose.of([1, 3, 16])
    n_best = 1 + choose.below(n_arms - 1)

    def race():
        if kind == "FiniteRace":
            return fr.FiniteRace(n_arms, n_rows, 0.2, support=(0, 1), first_look=5, n_best=n_best, rng=seed)
        if kind == "LUCB":
            return fr.LUCB(n_arms, n_best, 0.1, 0.2, batch=1 if seed % 2 else "auto")
        return fr.BettingRace(n_arms, delta=0.2, epsilon=0.1, support=(0, 1), n_best=n_best)

    def reward(arm, unit):
        return float(values[unit % n_rows, arm])

    expected = asyncio.run(fr.race_async(lambda arm, unit: answered(reward(arm, unit)), race=race(), concurrency=1))
    with tempfile.TemporaryDirectory() as folder:
        path, asked = Path(folder) / "race.jsonl", []
        for run in range(6):
            kept = lines(path)
            assert len(set(kept)) == len(kept)
            left = math.inf if run == 5 else choose.of([0, 1, 5, 30, 200])
            counted = iter(range(10**9))

            async def evaluate(arm, unit, left=left, counted=counted, kept=frozenset(kept)):
                asked.append((arm, unit))
                assert (arm, unit) not in kept
                if next(counted) >= left:
                    raise Cut
                await asyncio.sleep(0)
                return reward(arm, unit)

            try:
                result = asyncio.run(begun(kind, race, evaluate, path, limit, n_arms, n_rows, n_best, seed))
            except Cut:
                damaged(choose, path, kind, race, limit, n_arms, n_rows, n_best, seed)
                continue
            break
        assert result.best == expected.best if n_best == 1 else np.array_equal(result.best, expected.best)
        assert (result.stopped_by, result.pulls.tolist()) == (expected.stopped_by, expected.pulls.tolist())
        assert np.array_equal(result.mean, expected.mean) and np.array_equal(result.lower, expected.lower)


async def answered(value):
    return value


def begun(kind, race, evaluate, path, limit, n_arms, n_rows, n_best, seed):
    """The race with its journal, new or gone on."""
    given = {"concurrency": limit, "retries": 0, "journal": path}
    if kind == "FiniteRace":
        return fr.race_async(evaluate, n_arms, n_rows, 0.2, support=(0, 1), first_look=5, n_best=n_best, rng=seed,
                             **given)
    return fr.race_async(evaluate, race=race(), **given)


def lines(path):
    """Arm, and row, pull or round, of each reward in the whole lines of a journal; other calls have lines too."""
    entries = [json.loads(line) for line in path.read_bytes().split(b"\n")[1:-1]] if path.exists() else []
    return [(entry["arm"], next(entry[unit] for unit in ("row", "pull", "round") if unit in entry))
            for entry in entries if "reward" in entry]


def damaged(choose, path, kind, race, limit, n_arms, n_rows, n_best, seed):
    """Tear the last line, or spoil a line: then the file is refused, left as it is, and made whole again."""
    whole = path.read_bytes()
    action = choose.below(4)
    if action == 0:
        path.write_bytes(whole[: len(whole) - 1 - choose.below(30)])
    elif action == 1:
        path.write_bytes(whole + choose.of([b"{", b'{"arm": 0, "ro', b'{"arm": 1']))
    elif action == 2:
        spoilt = whole + choose.of([b"rubbish\n", b'{"arm": 99, "row": 0, "pull": 0, "round": 0, "reward": 0.5}\n',
                                    b'{"arm": 0, "row": 0, "pull": 0, "round": 0, "reward": "x"}\n', b"[]\n"])
        path.write_bytes(spoilt)
        try:
            asyncio.run(begun(kind, race, lambda arm, unit: answered(0.5), path, limit, n_arms, n_rows, n_best, seed))
        except ValueError as error:
            assert path.name in str(error) and path.read_bytes() == spoilt
        else:
            raise AssertionError("a spoilt journal was taken")
        path.write_bytes(whole)


if __name__ == "__main__":
    for path in FILES:
        fuzz(Path(path).read_bytes())
    if not FILES:
        for case in (comparisons, refused, journals, damaged):
            globals()[case.__name__] = atheris.instrument_func(case)
        atheris.Setup(sys.argv, fuzz)
        atheris.Fuzz()
