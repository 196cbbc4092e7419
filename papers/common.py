"""What the scripts share: options, progress bars, tables, pictures, and results that are kept for the next run."""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

OUTPUT = Path(__file__).resolve().parent / "output"
T = TypeVar("T")


def parser(
    text: str | None, quick: str, *, seed: int = 0, data: str = "", download: bool = False, fresh: str = ""
) -> argparse.ArgumentParser:
    """Return a parser with the options that scripts share; `data`, `download` and `fresh` add those of some scripts."""
    made = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = made.add_argument
    add("--quick", action="store_true", help=quick)
    add("--seed", type=int, default=seed, help="seed of all random numbers (%(default)s)")
    add("--output", type=Path, default=OUTPUT, metavar="DIR", help="folder for tables and pictures (%(default)s)")
    add("--no-progress", dest="progress", action="store_false", help="show no progress bar")
    if data:
        add("--data", type=Path, metavar="DIR", help=f"folder with {data} (default: the variable FASTRACE_DATA)")
    if download:
        add("--download", action="store_true", help="let scikit-learn fetch data sets that are not there")
    if fresh:
        add("--fresh", action="store_true", help=f"{fresh} again, whatever an earlier run left")
    return made


@contextmanager
def meter(title: str, total: int | None, shown: bool) -> Iterator[Callable[..., None]]:
    """Yield a function that takes how much is done, and new words if any: a bar on standard error if `shown`."""
    if not shown:
        yield lambda done, words=None: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done, words=None: bar.update(task, completed=done, description=words or title)


def track(items: Iterable[T], shown: bool, title: str, total: int | None = None,
          words: Callable[[T], str] | None = None) -> Iterator[T]:
    """Iterate over `items` behind a progress bar; `words` describes an item beside the bar."""
    if total is None and isinstance(items, Sequence):
        total = len(items)
    with meter(title, total, shown) as done:
        for count, item in enumerate(items):
            done(count, words and words(item))
            yield item
            done(count + 1, words and words(item))


def read_table(path: Path) -> list[dict[str, str]]:
    """Return the lines of a csv file that are whole; none if there is no file."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [line for line in csv.DictReader(file) if None not in line.values()]


def write_table(path: Path, lines: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> None:
    """Write lines to a csv file, whole or not at all, with six digits of each float."""
    part = path.with_name(path.name + ".part")
    with part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(columns or lines[0]))
        writer.writeheader()
        writer.writerows(_rounded(line) for line in lines)
    part.replace(path)


def add_lines(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Append lines to a csv file, with a head if it is new."""
    new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        if new:
            writer.writeheader()
        writer.writerows(_rounded(line) for line in lines)


def _rounded(line: Mapping[str, Any]) -> dict[str, Any]:
    return {name: f"{value:.6g}" if isinstance(value, float) else value for name, value in line.items()}


def show_table(title: str, head: Sequence[str], lines: Iterable[Sequence[Any]]) -> None:
    """Print a table in columns as wide as they need, the first to the left."""
    words = [list(head), *([f"{v:.4g}" if isinstance(v, float) else str(v) for v in line] for line in lines)]
    width = [max(len(row[i]) for row in words) for i in range(len(head))]
    print(f"\n{title}")
    for row in words:
        cells = [word.ljust(w) if i == 0 else word.rjust(w) for i, (word, w) in enumerate(zip(row, width, strict=True))]
        print("  " + "  ".join(cells))


def settings(options: argparse.Namespace, *names: str) -> str:
    """Return the options that a result depends on, in one word that is kept beside it."""
    return ";".join(f"{name}={getattr(options, name)}" for name in names)


def save_arrays(path: Path, **arrays: Any) -> None:
    """Write an npz file, whole or not at all."""
    part = path.with_name(path.stem + ".part.npz")
    np.savez_compressed(part, **arrays)
    part.replace(path)


def sheet(rows: int, columns: int, size: tuple[float, float], **options: Any) -> tuple[Any, Any]:
    """Return a figure that needs no display, and its panels as an array of shape (rows, columns)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)
