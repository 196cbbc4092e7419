"""Objects saved in mid-run by each release, and how each goes on. `python tests/golden/make.py` adds new ones.

What stands in a file is never made again: it is what a user may have on disk. Every class of `tests/catalogue.py` is in
it, but for those that hold objects of other libraries, which those libraries save in their own way.
"""

import asyncio
import dataclasses
import gzip
import json
import math
import pickle
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[1])]

import catalogue  # noqa: E402
import fastrace as fr  # noqa: E402
from catalogue import VALUES  # noqa: E402

HERE = Path(__file__).parent
SAVED_AFTER, STEPS = 5, 8                       # pieces of work before the object is saved, and in all
FOREIGN = {"boosting.FilterBoostClassifier", "model_selection.DAUBSearchCV", "model_selection.RacingSearchCV"}
NAMES = [name for name in catalogue.OBJECTS if name not in FOREIGN and not name.endswith("Display")]
# Further kinds of a class; and, of a class with another default than once, which files hold by its name, the object as
# it was and as it is.
MADE = {
    "BettingRace": lambda: fr.BettingRace(4, support=(0.0, 1.2), rule="brackets"),
    "BettingRace by differences": lambda: catalogue.made("BettingRace"),
    "ConfidenceSequence universal": lambda: fr.ConfidenceSequence("universal"),
    "ConfidenceSequence universal, a population": lambda: fr.ConfidenceSequence("universal", n_rows=500),
    "AcceptTest": lambda: after_decisions(),
    "AcceptTest that reads all rows first": lambda: catalogue.made("AcceptTest"),
    "RaceResult": lambda: dataclasses.replace(catalogue.made("RaceResult"), best=3),
    "LUCB": lambda: catalogue.made("LUCB", rule="intervals"),
    "LUCB by pairs": lambda: catalogue.made("LUCB"),
    "mcmc.RacingGibbs": lambda: catalogue.made("mcmc.RacingGibbs", tail_guard=False),
    "mcmc.RacingGibbs that looks at all factors": lambda: catalogue.made("mcmc.RacingGibbs"),
    "mcmc.RacingSlice": lambda: catalogue.made("mcmc.RacingSlice", growth=1.1),
    "mcmc.RacingSlice at fewer looks": lambda: catalogue.made("mcmc.RacingSlice"),
    "mcmc.LaplaceResult": lambda: fr.mcmc.laplace(
        fr.mcmc.GLM(catalogue.X, catalogue.Y, prior_sd=2.0), 100, rng=catalogue.SEED, df=math.inf),
    "mcmc.LaplaceResult of Student-t draws": lambda: catalogue.made("mcmc.LaplaceResult"),
    "LUCB in rounds, one joint mixture": lambda: catalogue.made("LUCB", paired=True),
    "LUCB with missing rewards": lambda: catalogue.made("LUCB", missing="drop"),
    "BettingRace with missing rewards": lambda: fr.BettingRace(4, support=(0.0, 1.2), missing="drop"),
    "LUCB without a support": lambda: catalogue.made("LUCB", support=None),
    "BettingRace without a support": lambda: fr.BettingRace(4, support=None),
    "ConfidenceSequence without a support": lambda: fr.ConfidenceSequence(support=None),
    "LUCB of symmetric rewards": lambda: catalogue.made("LUCB", symmetric=True),
    "AbsoluteStop": lambda: catalogue.made("AbsoluteStop", bound="target"),
    "AbsoluteStop by odds": lambda: catalogue.made("AbsoluteStop", bound="target-odds"),
    "Comparison without a support": lambda: fr.Comparison(["a", "b", "c"], support=None, first_look=40),
    "Comparison of clusters": lambda: fr.Comparison(["a", "b", "c"], support=(0.0, 1.0), clusters=True, first_look=30),
    "Comparison of clusters without a support": lambda: fr.Comparison(
        ["a", "b", "c"], support=None, clusters=True, first_look=40),
    "FiniteRace by betting": lambda: betting(),
    "FiniteRace of the best two within epsilon": lambda: betting(n_best=2, epsilon=0.02),
    "FiniteRace that drops missing rewards": lambda: with_gaps(betting(missing="drop")),
    "FiniteRace with missing rewards as the worst": lambda: with_gaps(betting(missing="worst")),
    "FiniteRace with a proxy": lambda: betting(proxy=VALUES.mean(axis=1)),
    "FiniteRace with requests in flight": lambda: in_flight(betting()),
    "LUCB with requests in flight": lambda: in_flight(catalogue.made("LUCB")),
    "BettingRace with requests in flight": lambda: in_flight(fr.BettingRace(4, support=(0.0, 1.2))),
}


def after_decisions():
    """A test after decisions that left nothing to the next."""
    test = catalogue.made("AcceptTest")
    test._set_kurtosis(0.0)
    return test


def betting(**options):
    return fr.FiniteRace(4, 400, delta=1e-3, support=(0.0, 1.2), first_look=10, growth=1.2, rng=catalogue.SEED,
                         **options)


def with_gaps(race):
    """The race after a look in which rewards were missing."""
    arms, rows = race.ask()
    block = VALUES[np.ix_(rows, arms)]
    block[1, 0] = block[3] = np.nan
    race.tell(block)
    return race


def in_flight(race):
    race.ask(60, pending=True)
    return race


def work(thing, k):
    """The work of `catalogue.work`; of a race with requests in flight, answers in another order and more requests."""
    if not len(getattr(thing, "pending", ((),))[0]):
        return catalogue.work(thing, k)
    for arm, number in list(zip(*map(np.ndarray.tolist, thing.pending), strict=True))[-6::-1]:
        if not thing.done:
            thing.tell(VALUES[number % 400, arm] / 1.2, arm, number)
    if not thing.done:
        thing.ask(60, pending=True)
    return thing.done, thing.result(), thing.pending


NAMES += sorted(set(MADE) - set(NAMES))


def facts(value):
    """The numbers in an answer: words may change from one release to the next, and fields may be added."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        return facts(value.tolist())
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value)
    if isinstance(value, (tuple, list, np.ndarray)):
        return [facts(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        found = {str(key): facts(item) for key, item in value.items() if "seconds" not in str(key)}
        return {key: item for key, item in found.items() if item is not None and item != []}
    return None


def agree(expected, found):
    """Whether all that a release found is found today, floats to nine digits: the last ones depend on BLAS."""
    if isinstance(expected, dict):
        return isinstance(found, dict) and all(key in found and agree(expected[key], found[key]) for key in expected)
    if isinstance(expected, list):
        return isinstance(found, list) and len(expected) == len(found) and all(map(agree, expected, found))
    if isinstance(expected, float) and isinstance(found, float):
        return math.isclose(expected, found, rel_tol=1e-9, abs_tol=1e-12) or math.isnan(expected) and math.isnan(found)
    return expected == found


def goes_on(thing, first=SAVED_AFTER):
    return [facts(work(thing, k)) for k in range(first, STEPS)]


def halfway(name):
    thing = MADE[name]() if name in MADE else catalogue.made(name)
    for k in range(SAVED_AFTER):
        work(thing, k)
    return thing


# Journals of `race_async`, one request at a time, so that the file is always the same.
JOURNALS = {
    "race": lambda evaluate, path: fr.race_async(
        evaluate, 4, 400, 1e-3, support=(0.0, 1.2), first_look=10, growth=1.1, missing="drop", n_best=2, epsilon=0.01,
        names=["a", "b", "c", "d"], concurrency=1, rng=catalogue.SEED, journal=path),
    "LUCB": lambda evaluate, path: fr.race_async(
        evaluate, race=fr.LUCB(4, 1, 0.05, missing="worst"), concurrency=1, journal=path, max_pulls=2048),
    "BettingRace": lambda evaluate, path: fr.race_async(
        evaluate, race=fr.BettingRace(4, support=(0.0, 1.0)), concurrency=1, journal=path, max_pulls=600),
}
LINES = 80              # of a journal that are kept, as if the process had died there


def run_journaled(kind, path):
    """Run a race with its journal at `path` to the end; its requests, and what it found."""
    asked = []

    async def evaluate(arm, number):
        asked.append([arm, number])
        missing = kind != "BettingRace" and (arm + number) % 13 == 0
        return None if missing else float(VALUES[number % 400, arm]) / 1.2

    return asked, facts(asyncio.run(JOURNALS[kind](evaluate, path)))


def without_sent(lines):
    """The lines of a journal as they were before calls had a line before they are made."""
    return [line for line in lines if '"sent"' not in line]


def save_journals():
    path = HERE / f"{fr.__version__}.journals.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    for kind in [kind for kind in JOURNALS if "sent" not in kept.get(kind, ())]:
        with tempfile.TemporaryDirectory() as folder:
            journal = Path(folder) / "journal"
            asked, found = run_journaled(kind, journal)
            lines = journal.read_text().splitlines(keepends=True)
        older = "".join(without_sent(lines)[:LINES])
        kept[kind] = {"journal": older, "asked": asked, "found": found} | kept.get(kind, {})
        kept[kind]["sent"] = "".join(lines[: 2 * LINES - 1])
    path.write_text(json.dumps(kept) + "\n")


def save():
    path = HERE / f"{fr.__version__}.pickle.gz"
    kept = load(path) if path.exists() else {}
    for name in [name for name in NAMES if name not in kept]:
        saved = pickle.dumps(halfway(name), protocol=4)
        kept[name] = saved, goes_on(pickle.loads(saved))
    with gzip.GzipFile(path, "wb", mtime=0) as file:
        pickle.dump(kept, file, protocol=4)


def load(file):
    return pickle.loads(gzip.decompress(file.read_bytes()))


if __name__ == "__main__":
    save()
    save_journals()
