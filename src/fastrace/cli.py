"""The command `fastrace`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fastrace import __version__
from fastrace.racing import BOUNDS, race

DRAWS, QUICK_DRAWS = 2000, 200


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status: 0, or 2 after a bad argument or file."""
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except (ValueError, TypeError, OSError, ImportError) as error:
        print(f"fastrace: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fastrace", description="Answers to questions about means from as few samples as possible."
    )
    parser.add_argument("--version", action="version", version=f"fastrace {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")

    demo = commands.add_parser(
        "demo",
        help="draw a posterior on real data by racing and exactly, and compare",
        description="Draw the order of an ARCH model of daily oil prices by racing and exactly, print what was read, "
        "how long it took and how far the two differ, and draw both.",
    )
    demo.add_argument("--data", type=Path, metavar="FILE", help="your log-factors: npy, csv or parquet, rows x states")
    demo.add_argument("--draws", type=int, metavar="K", help=f"number of draws ({DRAWS}; with --quick {QUICK_DRAWS})")
    demo.add_argument("--delta", type=float, default=0.05, help="probability of error of a raced draw (%(default)s)")
    demo.add_argument("--seed", type=int, default=1, help="seed of all random numbers (%(default)s)")
    demo.add_argument("--output", type=Path, default=Path("fastrace-demo.png"), metavar="PNG",
                      help="where the picture goes (%(default)s)")
    demo.add_argument("--quick", action="store_true", help="fewer draws")
    demo.set_defaults(run=_demo)

    run = commands.add_parser(
        "race",
        help="find the column with the largest mean",
        description="Race the columns of a table and print what was found. An npy file is read where it lies.",
    )
    run.add_argument("file", type=Path, metavar="FILE", help="npy, csv or parquet, rows x arms")
    run.add_argument("--delta", type=float, default=0.05, help="probability that the answer is wrong (%(default)s)")
    run.add_argument("--bound", choices=BOUNDS, default="auto", help="rule that drops arms (%(default)s)")
    run.add_argument("--support", type=float, nargs=2, metavar=("LO", "HI"), help="interval that holds every number")
    run.add_argument("--access", choices=("random", "shuffled"), default="random",
                     help="shuffled: the rows are in random order already, read them in windows (%(default)s)")
    run.add_argument("--seed", type=int, help="seed of the order in which rows are read")
    run.add_argument("--json", action="store_true", help="print JSON instead of a table")
    run.set_defaults(run=_race)
    return parser


def _race(options: argparse.Namespace) -> None:
    result = race(
        load_table(options.file),
        delta=options.delta,
        bound=options.bound,
        support=None if options.support is None else tuple(options.support),
        access=options.access,
        rng=options.seed,
    )
    if not options.json:
        print(result)
        return
    answer = {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
    json.dump({name: _plain(value) for name, value in answer.items()}, sys.stdout, indent=2, allow_nan=False)
    print()


def _plain(value: Any) -> Any:
    """The same for JSON: arrays as lists, nan and infinities as null."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _demo(options: argparse.Namespace) -> None:
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError as error:
        raise ImportError('the demo needs rich: python -m pip install ".[demo]"') from error
    n_draws = options.draws if options.draws is not None else QUICK_DRAWS if options.quick else DRAWS
    if n_draws < 1:
        raise ValueError(f"--draws is {n_draws}; at least 1 draw is needed")
    if not options.output.absolute().parent.is_dir():
        raise ValueError(f"--output is {options.output}; its folder does not exist")
    console = Console()
    with Console(stderr=True).status("reading"):
        from fastrace import demo

        table = None if options.data is None else load_table(options.data)
    with _progress(n_draws) as advance:
        if table is None:
            comparison = demo.compare_orders(n_draws, options.delta, options.seed, advance)
        else:
            names = [str(name) for name in getattr(table, "columns", range(table.shape[1]))]
            comparison = demo.compare_table(table, names, n_draws, options.delta, options.seed, advance)
    shown = Table(title=f"{comparison.n_draws} draws of the {comparison.title}", title_justify="left")
    for name in ("", "racing", "exactly"):
        shown.add_column(name, justify="right" if name else "left")
    for row in comparison.rows():
        shown.add_row(*row)
    console.print(shown)
    for note in comparison.notes:
        console.print(note, soft_wrap=True, highlight=False)
    demo.figure(comparison).savefig(options.output, dpi=120)
    console.print(f"Picture: {options.output}", soft_wrap=True, highlight=False)


@contextmanager
def _progress(n_draws: int) -> Iterator[Any]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    step = max(1, n_draws // 100)
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False) as progress:
        task = progress.add_task("fitting", total=n_draws)
        progress.refresh()

        def advance(done: int) -> None:
            if done % step == 0 or done == n_draws:
                progress.update(task, description="drawing", completed=done, refresh=True)

        yield advance


def load_table(path: Path) -> Any:
    """The table in a file: an npy file memory-mapped, csv and parquet as a pandas frame with numbers only."""
    suffix = path.suffix.lower()
    if path.is_dir():
        raise ValueError(f"{path} is a folder; a file ending in .npy, .csv or .parquet is needed")
    if suffix == ".npy":
        table = np.load(path, mmap_mode="r", allow_pickle=False)
        if table.ndim != 2:
            raise ValueError(f"{path} holds an array of shape {table.shape}; a table, rows x arms, is needed")
        return table
    if suffix not in (".csv", ".parquet"):
        raise ValueError(f"{path} ends in {suffix or 'nothing'!r}; .npy, .csv or .parquet is needed")
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError(f'{suffix} files need pandas: python -m pip install ".[demo]"') from error
    try:
        frame = pd.read_csv(path) if suffix == ".csv" else pd.read_parquet(path)
    except ValueError as error:
        raise ValueError(f"{path} cannot be read as a table: {error}") from error
    if suffix == ".csv" and all(_is_number(name) for name in frame.columns):
        raise ValueError(f"{path} starts with a row of numbers; name the columns in its first line")
    if not len(frame):
        raise ValueError(f"{path} has no rows under its header")
    if suffix == ".csv" and frame.shape[1] == 1 and ";" in str(frame.columns[0]):
        raise ValueError(f"{path} has one column, named {frame.columns[0]!r}; commas must separate the columns")
    words = [str(name) for name in frame.columns if not pd.api.types.is_numeric_dtype(frame[name])]
    if words:
        raise ValueError(f"{path} has columns that are not numbers: {', '.join(words[:5])}; leave them out")
    return frame


def _is_number(name: Any) -> bool:
    try:
        float(str(name))
    except ValueError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
