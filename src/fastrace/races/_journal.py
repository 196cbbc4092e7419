"""The journal of a race: what was paid for, a line of JSON per call, in a file that outlives the process.

The first line says which race it is: its options and its seed. Each further line is an arm, a row and a reward, null
where the answer is missing. Of a `LUCB`, which has no rows and draws nothing, it is an arm, a pull and a reward; of a
`BettingRace`, an arm, a round and a reward. A line is in the file before the race takes its reward. A call that failed
has a line with the class of its error, "failed", in place of the reward. If its answer comes after all, the line of the
reward says that it was "late", and the call counts once, also where no line says that it failed. Each call has a line
"sent" before it is made, and one that was still under way as the race ended has a line "unused". So a call that was
sent, and has no further line, was lost as the process ended. Where what a `LUCB` asks for depends on `max_pulls`, a
line with that number stands before what was asked for with it. Journals of earlier versions have no lines of failed
calls, or none of calls sent and of `max_pulls`. A last line that was torn, because the process or the disk gave up in
it, is cut off.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any, BinaryIO

from fastrace._base._checks import shown

try:
    import fcntl
except ImportError:             # Windows: two processes on one journal are not noticed there
    fcntl = None  # type: ignore[assignment]

VERSION = 1
BEGINNING = b'{"fastrace":'
FARTHEST, FIRST = 100, 10_000   # of one line in so many at least, and of so many more, a pull is in the file
Rewards = dict[int, dict[int, float]]       # by row or pull, and arm


class Journal:
    """An open journal, to which lines are added: use it in a ``with`` block.

    `race` is what the first line says of a new journal, `seed` included; an old one must say the same. A `seed` of None
    is drawn for a new journal and taken from an old one: `race` holds it afterwards. `rewards` is what the file held,
    and `parts` the same in the order in which it was asked for, with the `max_pulls` on which a part depends.
    By arm, `failed` is how many calls gave no reward, those that were lost included, and `unused` how many were under
    way as an earlier run ended. `n_lost` counts calls that were lost.
    """

    def __init__(
        self, path: str | os.PathLike[str], race: dict[str, Any], fresh_seed: dict[str, Any] | None = None
    ) -> None:
        try:
            self.path = Path(path)
        except TypeError:
            raise TypeError(f"journal is {shown(path)}; the path of a file is needed") from None
        self.race = race
        self.unit = "row" if "n_rows" in race else race.get("unit", "pull")
        self.rewards: Rewards = {}
        self.parts: list[tuple[int | None, Rewards]] = [(None, {})]
        self.failed, self.unused = [0] * race["n_arms"], [0] * race["n_arms"]
        self.n_lost = 0
        self.lock = threading.Lock()            # threads that make calls write, too
        if not self.path.parent.is_dir():
            raise ValueError(f"journal is {str(self.path)!r}, and {str(self.path.parent)!r} is no folder; make it "
                             f"before the race, so that nothing is paid for that cannot be written down")
        if self.path.is_dir():
            raise ValueError(f"journal is {str(self.path)!r}, which is a folder; the path of a file is needed")
        self.file: BinaryIO = os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666), "r+b", buffering=0)
        try:
            self._lock()
            lines = self._lines()
            if lines:
                self._compare(lines[0])
                self._read(lines[1:])
            else:
                if "seed" in race:
                    self.race["seed"] = race["seed"] or fresh_seed
                self._write({"fastrace": "race", "journal": VERSION, "race": self.race})
        except BaseException:
            self.file.close()
            raise

    @property
    def n_rewards(self) -> int:
        """Rewards that the file held when it was opened, missing ones included."""
        return sum(len(of_row) for of_row in self.rewards.values())

    @property
    def n_calls(self) -> int:
        """Calls that were made before it was opened."""
        return self.n_rewards + sum(self.failed) + sum(self.unused)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()

    def _lock(self) -> None:
        if fcntl is None:
            return
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"journal {str(self.path)!r} is in use by another race; two races on one journal would "
                             f"pay twice, so give each its own") from None

    def _lines(self) -> list[bytes]:
        """The whole lines of the file, from which a torn last one is cut off."""
        text = self.file.read()
        self.end = text.rfind(b"\n") + 1
        torn = text[self.end :]
        if torn:
            if _whole(torn):                # only its end of line is missing
                text += b"\n"
                self.file.write(b"\n")
                self.end = len(text)
            elif not self.end and not torn.startswith(BEGINNING) and not BEGINNING.startswith(torn):
                raise self._no_journal(torn)
            else:
                self._cut()
        return text[: self.end].splitlines()

    def _no_journal(self, line: bytes) -> ValueError:
        text = shown(line[:100].decode(errors="replace"))
        return ValueError(f"{str(self.path)!r} is not a journal of a race: it begins with {text}; choose another path")

    def _cut(self) -> None:
        self.file.truncate(self.end)
        self.file.seek(self.end)

    def _compare(self, line: bytes) -> None:
        """Refuse the journal of another race, and say what is different."""
        name = f"journal {str(self.path)!r}"
        try:
            head = json.loads(line)
            there, version = dict(head["race"]), head["journal"]
        except (ValueError, KeyError, TypeError):
            raise self._no_journal(line) from None
        if version != VERSION:
            raise ValueError(f"{name} is of version {version}; this fastrace reads version {VERSION}")
        if "seed" in self.race and self.race["seed"] is None:
            self.race["seed"] = there.get("seed")
        here = json.loads(json.dumps(self.race))
        if _kind(there) != _kind(here):
            raise ValueError(f"{name} was written by a race of {_kind(there)}, and the one to go on with is of "
                             f"{_kind(here)}; choose another path, or make the race that wrote it")
        other = [f"{key} is {shown(there.get(key))} there and {shown(here.get(key))} here"
                 for key in {**here, **there} if there.get(key) != here.get(key)]
        if other:
            raise ValueError(f"{name} is of another race: {'; '.join(other)}; choose another path, or the options of "
                             f"the journal to go on with its race")

    def _read(self, lines: list[bytes]) -> None:
        n_arms, unit = self.race["n_arms"], self.unit
        n_rows = self.race.get("n_rows", FARTHEST * (len(lines) + FIRST))
        under_way: Counter[tuple[int, int]] = Counter()         # calls, by row or pull and arm; and those that failed
        gave_none: Counter[tuple[int, int]] = Counter()
        for number, line in enumerate(lines, 2):
            try:
                entry = json.loads(line)
                if "max_pulls" in entry and _is_limit(entry["max_pulls"]):
                    self.parts.append((entry["max_pulls"], {}))
                    continue
                arm, row, failed = entry["arm"], entry[unit], entry.get("failed")
                sent, unused, late = (entry.get(name, False) for name in ("sent", "unused", "late"))
                reward = None if sent or unused or failed is not None else entry["reward"]
                good = type(arm) is int and type(row) is int and 0 <= arm < n_arms and 0 <= row < n_rows
                good = good and (reward is None or type(reward) in (int, float) or reward in ("inf", "-inf"))
                good = good and (failed is None or type(failed) is str)
                good = good and all(type(flag) is bool for flag in (sent, unused, late))
                value = math.nan if reward is None else float(reward)
            except (ValueError, KeyError, TypeError, OverflowError):
                good = False
            if not good:
                raise ValueError(f"line {number} of journal {str(self.path)!r} is "
                                 f"{shown(line.decode(errors='replace'))}; an arm below {n_arms} and a {unit} below "
                                 f"{n_rows}, whole numbers, and a reward, a number or null, are needed: mend that "
                                 f"line, or remove it, and what it paid for is asked again")
            if sent:
                under_way[row, arm] += 1
                continue
            if late and gave_none[row, arm] > 0:                # the call has a line "failed", and is no more under way
                gave_none[row, arm] -= 1
                self.failed[arm] -= 1
            elif under_way[row, arm] > 0 or not (unused or failed is not None):
                under_way[row, arm] -= 1    # below 0 until the line of a call is there, as an earlier one was answered
            if unused or failed is not None:
                (self.unused if unused else self.failed)[arm] += 1
                gave_none[row, arm] += not unused
                continue
            if arm not in self.rewards.setdefault(row, {}):
                self.parts[-1][1].setdefault(row, {})[arm] = value
            before = self.rewards[row].setdefault(arm, value)
            if before != value and not (math.isnan(before) and math.isnan(value)):
                raise ValueError(f"line {number} of journal {str(self.path)!r} says that the reward of arm {arm} on "
                                 f"{unit} {row} is {_said(value)}, and an earlier line that it is {_said(before)}; "
                                 f"nobody can tell which was paid for: remove the wrong line, or both, and it is asked "
                                 f"again")
        for (_, arm), count in (+under_way).items():
            self.failed[arm] += count
            self.n_lost += count

    def _write(self, entry: dict[str, Any]) -> None:
        line = json.dumps(entry).encode() + b"\n"
        with self.lock:
            try:
                done = 0
                while done < len(line):
                    done += self.file.write(line[done:]) or 0
            except BaseException:           # half a line would spoil the next one
                with contextlib.suppress(OSError):
                    self._cut()
                raise
            self.end += len(line)

    def send(self, arm: int, row: int) -> None:
        """Write that a call is about to be made."""
        self._write({self.unit: row, "arm": arm, "sent": True})

    def waste(self, arm: int, row: int) -> None:
        """Write that nobody needs the answer of a call that is under way, as the race is over."""
        self._write({self.unit: row, "arm": arm, "unused": True})

    def add(self, arm: int, row: int, reward: float, late: bool = False) -> None:
        """Write a reward, nan where the answer is missing; it may be that of a call that was taken to have failed."""
        value = None if math.isnan(reward) else reward if math.isfinite(reward) else str(reward)
        self._write({self.unit: row, "arm": arm, "reward": value} | ({"late": True} if late else {}))

    def suit(self, max_pulls: int | None) -> None:
        """Write the limit on which depends what is asked for from here on; None where it does not."""
        if max_pulls != self.parts[-1][0]:
            self._write({"max_pulls": max_pulls})

    def fail(self, arm: int, row: int, error: str) -> None:
        """Write that a call has failed, by an error of this class."""
        self._write({self.unit: row, "arm": arm, "failed": error})


def _kind(race: dict[str, Any]) -> str:
    """The class of a race, as the first line of a journal tells it."""
    words = str(race.get("race") or race.get("rule")).split()
    return "FiniteRace" if "n_rows" in race else words[0]


def _is_limit(value: Any) -> bool:
    return value is None or type(value) is int and value > 0


def _said(reward: float) -> str:
    return "missing" if math.isnan(reward) else f"{reward:g}"


def _whole(line: bytes) -> bool:
    """Whether a line is whole: what is torn lacks its closing brace."""
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False
