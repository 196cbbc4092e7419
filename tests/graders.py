"""Rewards of a table as requests in flight, by hand or of an event loop, and a process that is killed meanwhile."""

import asyncio
import heapq
import json
import pickle
import signal
import subprocess
import sys
import textwrap

import numpy as np


def all_at_once(rule, values, rng, most=64, check=None):
    """Answers take a time of an exponential law, rewards of 1 six times as long as those of 0; also what is left."""
    out, now, asked = [], 0.0, []
    while not rule.done:
        arms, pulls = rule.ask(most - len(out), pending=True) if len(out) < most else ([], [])
        for arm, k in zip(arms, pulls, strict=True):
            asked.append((int(arm), int(k)))
            heapq.heappush(out, (now + rng.exponential(1.0 + 5.0 * (values[k, arm] == 1.0)), int(arm), int(k)))
        now, arm, k = heapq.heappop(out)
        rule.tell(values[k, arm], arm, k)
        rule = check(rule) if check else rule
    return rule, [(arm, k) for _, arm, k in out], asked


def pickled_at_times(rng):
    """For `check` of `all_at_once`: one answer in ten is followed by a pickle, which has the same requests out."""

    def check(rule):
        if rng.random() > 0.1:
            return rule
        again = pickle.loads(pickle.dumps(rule))
        for mine, its in zip(rule.pending, again.pending, strict=True):
            np.testing.assert_array_equal(mine, its)
        return again

    return check


def same_answer(one, other):
    left, right = one.to_dict(), other.to_dict()
    for name in ("n_unused", "n_failed", "cost"):
        left.pop(name), right.pop(name)
    left["warnings"] = [words for words in left["warnings"] if "under way when the process ended" not in words]
    assert left == right


class Grader:
    """Rewards of the table, after a random number of turns of the event loop; it keeps what it was asked."""

    def __init__(self, values, seed=0, fails=lambda count: False):
        self.values, self.rng, self.fails = values, np.random.default_rng(seed), fails
        self.asked, self.answered, self.under_way, self.most = [], [], 0, 0

    async def __call__(self, arm, row):
        self.asked.append((arm, row))
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            for _ in range(self.rng.integers(6)):
                await asyncio.sleep(0)
            if self.fails(len(self.asked)):
                raise ConnectionError("no answer")
            self.answered.append((arm, row))
            return self.values[row, arm]
        finally:
            self.under_way -= 1


def written(path, unit="row"):
    """Arms and rows, or pulls, of the rewards in a journal."""
    lines = map(json.loads, path.read_text().splitlines()[1:])
    return [(line["arm"], line[unit]) for line in lines if "reward" in line]


def killed(call, journal, log, after, first="pass"):
    """Arms and rows that a process asked for which kills itself at so many requests; `call` has the race as text.

    Each request runs the statement `first`, which may raise.
    """
    code = f"""
        import asyncio, os, signal
        import numpy as np
        import fastrace as fr
        values = (np.random.default_rng(5).random((3000, 4)) < [0.5, 0.55, 0.72, 0.55]).astype(float)
        asked = 0
        async def grade(arm, row):
            global asked
            asked += 1
            with open({str(log)!r}, "a") as file:
                file.write(f"{{arm}} {{row}}\\n")
            await asyncio.sleep(0)
            if asked >= {after}:        # calls that begin at once step over it
                os.kill(os.getpid(), signal.SIGKILL)
            {first}
            return values[row, arm]
        asyncio.run(fr.race_async(grade, {call}, journal={str(journal)!r}))
    """
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False, capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    return [tuple(map(int, line.split())) for line in log.read_text().splitlines()]
