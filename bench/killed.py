"""A race of 12 models on 50,000 prompts whose process is killed, and that goes on from its journal; for README.md.

    python bench/killed.py

Each line is a race by `race_async`, 64 evaluations in flight, in a process of its own. Its parent sends SIGKILL after
so many evaluations, lets the race go on in its place, and compares the answer with that of one that nobody disturbed.
"""

import asyncio
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
from benchmarks import paid

import fastrace as fr

SEED = 0
INSTANCE, EASY = "one is .005 ahead, sd .1", "steps of .02, sd .2"
AFTER = 2_000, 10_000, 20_000       # evaluations


def table(instance):
    return paid.scores(SEED, 50_000, *paid.INSTANCES[instance])


def race(values, journal, heard):
    """The answer; `heard` is told each evaluation that is asked for, before its answer."""

    async def evaluate(arm, row):
        heard(arm, row)
        await asyncio.sleep(0)
        return values[row, arm]

    n_rows, n_arms = values.shape
    return asyncio.run(fr.race_async(evaluate, n_arms, n_rows, support=(0, 1), rng=SEED, concurrency=64,
                                     journal=journal))


def child(journal, log, instance):
    """Write down what is asked for, until the end or the parent's signal."""
    with open(log, "ab", buffering=0) as file:
        race(table(instance), journal, lambda arm, row: file.write(b"%d %d\n" % (arm, row)))


def killed(after, instance=INSTANCE):
    """What an undisturbed race found, what the race found that was killed, and evaluations: asked for before the
    signal, answered in the journal, asked for afterwards, of those: answered before, asked for before in vain; and
    charged to the race in all."""
    values = table(instance)
    with tempfile.TemporaryDirectory() as folder:
        journal, log = pathlib.Path(folder, "race.jsonl"), pathlib.Path(folder, "asked.txt")
        log.touch()
        process = subprocess.Popen([sys.executable, __file__, str(journal), str(log), instance])
        while log.read_bytes().count(b"\n") < after:
            assert process.poll() is None, "the race was over before the signal"
            time.sleep(0.01)
        process.kill()
        assert process.wait() == -9
        asked = {tuple(map(int, line.split())) for line in log.read_text().splitlines()}
        lines = map(json.loads, journal.read_text().splitlines()[1:])
        answered = {(line["arm"], line["row"]) for line in lines if "reward" in line}
        again = []
        found = race(values, journal, lambda arm, row: again.append((arm, row)))
    assert answered <= asked and len(set(again)) == len(again)
    assert any("under way when the process ended" in words for words in found.warnings)
    return race(values, None, lambda arm, row: None), found, {
        "asked for before": len(asked), "answered": len(answered), "asked for after": len(again),
        "answered before": len(answered & set(again)), "in vain before": len(asked.intersection(again)),
        "charged": int(found.n_read + found.n_unused + found.n_failed)}


def same(one, other):
    """Whether two races gave the same answer, to the last bit of their intervals."""
    return (one.best, one.n_read) == (other.best, other.n_read) and all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in ("lower", "upper", "pulls"))


def quick():
    whole, found, counts = killed(500, EASY)
    assert same(whole, found) and not counts["answered before"] and counts["answered"]
    assert counts["charged"] == counts["asked for before"] + counts["asked for after"]


def main():
    print("| SIGKILL after | answers in the journal | evaluations afterwards | of those, answered before "
          "| of those, asked for before in vain | charged in all | the same answer |\n|---|---|---|---|---|---|---|")
    for after in AFTER:
        whole, found, counts = killed(after)
        before, *others = (f"{count:,}" for count in counts.values())
        print(f"| {before} | " + " | ".join(others) + f" | {'yes' if same(whole, found) else 'NO'} |", flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 4:
        child(*sys.argv[1:])
    else:
        main()
