"""Progress bars, by rich."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
