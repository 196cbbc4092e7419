"""Progress on standard error: bars, by rich, and a count of samples where no end is known."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, TypeVar

from fastrace._base import _checks
from fastrace._base._words import counted

T = TypeVar("T")

_begun: ContextVar[float | None] = ContextVar("_begun", default=None)  # when the phase began that is shown, if any is


def track(items: Sequence[T], shown: bool, title: str) -> Iterator[T]:
    """Iterate over `items`, with a bar on standard error if `shown`."""
    if not _checks.flag(shown, "progress"):
        yield from items
        return
    try:
        from rich.console import Console
        from rich.progress import track as bar
    except ImportError as error:
        raise ImportError('progress bars need rich: python -m pip install rich') from error
    yield from bar(items, description=title, console=Console(stderr=True))


@contextmanager
def meter(title: str, total: int | None, shown: bool) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes how much is done: a bar on standard error if `shown`, moving without total.

    Where standard error is a file or a pipe, in which nothing moves, a line says it every ten seconds.
    """
    if not _checks.flag(shown, "progress"):
        yield lambda done: None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    except ImportError as error:
        raise ImportError('progress bars need rich: python -m pip install rich') from error
    console = Console(stderr=True)
    if not (console.is_terminal or console.is_jupyter):
        with _lines(title, total, True) as say:
            yield say
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.update(task, completed=done)


@contextmanager
def _lines(title: str, total: int | None, always: bool, wait: float = 10.0) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes how much is done, and says so in a line every `wait` seconds.

    The end has a line too, if there was one before or `always`.
    """
    began = time.monotonic()
    due, most, said = began + wait, 0, -1

    def write() -> None:
        nonlocal said
        sys.stderr.write(f"{title} {most}/{'?' if total is None else total}, {time.monotonic() - began:.0f} s\n")
        sys.stderr.flush()
        said = most

    def say(done: int) -> None:
        nonlocal due, most
        most = done
        if time.monotonic() >= due:
            write()
            due = time.monotonic() + wait

    try:
        yield say
    finally:
        if most != said and (always or said >= 0):
            write()


@contextmanager
def phase(title: str, shown: bool) -> Iterator[None]:
    """Say on standard error that work of unknown length begins, and how long it took, if `shown`."""
    if not _checks.flag(shown, "progress"):
        yield
        return
    began = time.monotonic()
    sys.stderr.write(f"{title}\n")
    sys.stderr.flush()
    token = _begun.set(began)
    try:
        yield
    finally:
        _begun.reset(token)
    sys.stderr.write(f"{title}: {time.monotonic() - began:.1f} s\n")


def stage(title: str) -> None:
    """Say what work begins now within a `phase`, and how long after it, if that is shown."""
    began = _begun.get()
    if began is not None:
        sys.stderr.write(f"  {time.monotonic() - began:.1f} s: {title}\n")
        sys.stderr.flush()


@contextmanager
def patient(
    title: str, shown: bool, wait: float = 2.0, in_files: bool = False, total: int | None = None,
) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes how much is done, as `meter` does if `shown`.

    Else a line on standard error says it, once `wait` seconds have passed, where that is a terminal. Nothing is said
    in a file or a pipe; a line every ten seconds if `in_files`. `total` is the most that there is to do, if that is
    known.
    """
    if shown:
        with meter(title, total, True) as show:
            yield show
        return
    if not sys.stderr.isatty():
        with _lines(title, total, False) if in_files else nullcontext(lambda done: None) as show:
            yield show
        return
    due, written = time.monotonic() + wait, False

    def say(done: int) -> None:
        nonlocal due, written
        if time.monotonic() >= due:
            sys.stderr.write(f"\r{title}: {done:,}" + (f" of {total:,}" if total is not None else ""))
            sys.stderr.flush()
            due, written = time.monotonic() + 0.2, True

    try:
        yield say
    finally:
        if written:
            sys.stderr.write("\n")


@contextmanager
def samples(shown: bool) -> Iterator[Callable[[Any, bool], None]]:
    """Give a function of a stream, and whether it is the last report: what is known, on one line, if `shown`.

    Five times a second on a terminal, where the line is written over; every ten seconds elsewhere. Nothing is said
    before the first sample.
    """
    if not _checks.flag(shown, "progress"):
        yield lambda rule, last: None
        return
    terminal = sys.stderr.isatty()
    wait = 0.2 if terminal else 10.0
    due = time.monotonic() + wait
    calls, skip, width = 0, 0, 0

    def report(rule: Any, last: bool) -> None:
        nonlocal due, calls, skip, width
        calls += 1
        if not last and calls < skip:           # the clock is not asked for every sample
            return
        now = time.monotonic()
        if not rule.n_samples or not last and now < due:
            skip = calls + (1 if due - now < 0.01 else 20)
            return
        due, skip = now + wait, calls + 20
        low, high = rule.interval
        line = f"{counted(rule.n_samples, 'sample', ',')}, estimate {rule.estimate:.6g} in [{low:.6g}, {high:.6g}]"
        sys.stderr.write(f"\r{line:<{width}}" if terminal else f"{line}\n")
        if terminal and last:
            sys.stderr.write("\n")
        width = len(line)
        sys.stderr.flush()

    yield report
