"""Progress bars, by rich."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


def track(items: Sequence[T], shown: bool, title: str) -> Iterator[T]:
    """Iterate over `items`, with a bar on standard error if `shown`."""
    if not shown:
        yield from items
        return
    try:
        from rich.console import Console
        from rich.progress import track as bar
    except ImportError as error:
        raise ImportError('progress bars need rich: python -m pip install "rich"') from error
    yield from bar(items, description=title, console=Console(stderr=True))


@contextmanager
def meter(title: str, total: int | None, shown: bool) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes how much is done: a bar on standard error if `shown`, moving without total."""
    if not shown:
        yield lambda done: None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    except ImportError as error:
        raise ImportError('progress bars need rich: python -m pip install "rich"') from error
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.update(task, completed=done)
