"""A limit on the seconds of one call, `max_seconds`, and how far loops go before they look at the clock."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from fastrace._base import _checks

QUICK, SLOW = 0.02, 0.1     # seconds of a part: those that took less grow, those that took more shrink


class OutOfTime(Exception):
    """The seconds of a call are over. It ends loops from within, and reaches no user."""


def deadline(max_seconds: float | None) -> float:
    """When a call that begins now must end, by `time.monotonic`."""
    if max_seconds is None:
        return math.inf
    return time.monotonic() + seconds(max_seconds, "max_seconds")


def seconds(value: float, name: str) -> float:
    """A time that has some length, where None stands for no limit; True is no second."""
    found = 0.0 if isinstance(value, (bool, np.bool_)) else _checks.real(value, name)
    if not found > 0.0:
        raise ValueError(f"{name} is {value!r}; a number of seconds above 0, or None, is needed")
    return found


def over(end: float) -> bool:
    """Whether that time has come."""
    return end < math.inf and time.monotonic() >= end


def left(end: float) -> float | None:
    """Seconds until that time; None if there is no end."""
    return None if end == math.inf else max(0.0, end - time.monotonic())


def until(end: float, report: Callable[..., Any]) -> Callable[..., Any]:
    """What reports, and raises `OutOfTime` from that time on."""
    if end == math.inf:
        return report

    def looking(*args: Any) -> None:
        report(*args)
        if time.monotonic() >= end:
            raise OutOfTime

    return looking


class Parts:
    """Parts of a run that stop at limits, each so long that the clock is looked at some twenty times a second.

    Without a clock to look at there is one part, to the end.
    """

    def __init__(self, least: int, end: float, shown: bool) -> None:
        self.end = end
        self.least = self.size = least if shown or end < math.inf else 1 << 62
        self.made, self.began = 0, time.monotonic()

    def next(self, made: int) -> int:
        """How many rewards the run may have made after the next part; raises `OutOfTime` where none may begin."""
        self.made, self.began = made, time.monotonic()
        if self.began >= self.end:
            raise OutOfTime
        return made + self.size

    def over(self, made: int) -> None:
        """A part is over: the next one is longer where it was quick, or too short for what the run makes at once."""
        took = time.monotonic() - self.began
        if made == self.made or took < QUICK:
            self.size = min(2 * self.size, 1 << 62)
        elif took > SLOW:
            self.size = max(self.size // 2, self.least)
