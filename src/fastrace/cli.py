"""The command `fastrace`."""

from __future__ import annotations

import argparse
import csv
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
from fastrace._progress import samples
from fastrace.racing import BOUNDS, race
from fastrace.results import StopResult
from fastrace.stopping import METHODS, start_rule

DRAWS, QUICK_DRAWS = 2000, 200


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status: 0, 1 if `estimate` is not settled, 2 after bad arguments or input."""
    options = _parser().parse_args(arguments)
    try:
        status: int | None = options.run(options)
    except (ValueError, TypeError, OSError, ImportError) as error:
        print(f"fastrace: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return status or 0


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

    estimate = commands.add_parser(
        "estimate",
        help="estimate the mean of numbers from standard input, and stop reading as soon as it is known",
        description="Estimate the mean of numbers from standard input (one per line, or a column of csv), and stop "
        "reading as soon as it is known to the accuracy wanted. The exit status is 0 if it is, 1 if the numbers ended "
        "first, 2 after a bad line or argument; what is known is printed in every case.",
    )
    estimate.add_argument("file", type=Path, nargs="?", metavar="FILE", help="where to read (standard input)")
    estimate.add_argument("--epsilon", type=float, default=0.1, help="accuracy (%(default)s)")
    estimate.add_argument("--delta", type=float, default=0.05,
                          help="probability that the estimate misses the accuracy (%(default)s)")
    estimate.add_argument("--support", type=float, nargs=2, metavar=("LO", "HI"), default=(0.0, 1.0),
                          help="interval that holds every number (0 1)")
    estimate.add_argument("--accuracy", choices=("relative", "absolute"), default="relative",
                          help="whether epsilon is a share of the mean or in its own units (%(default)s)")
    estimate.add_argument("--method", choices=("auto", *METHODS), default="auto", help="the rule (%(default)s)")
    estimate.add_argument("--max-samples", type=int, metavar="K", help="give up after this many numbers")
    estimate.add_argument("--clip", action="store_true", help="move numbers outside the support to its nearer end")
    estimate.add_argument("--column", metavar="NAME", help="csv: the column, by its name in the first line or by its "
                          "number from 0")
    estimate.add_argument("--delimiter", default=",", metavar="CHAR", help="csv: what separates columns (%(default)s)")
    estimate.add_argument("--json", action="store_true", help="print JSON instead of a table")
    estimate.add_argument("--quiet", action="store_true", help="show no progress on standard error")
    estimate.set_defaults(run=_estimate)
    return parser


def _estimate(options: argparse.Namespace) -> int:
    rule: Any = start_rule(
        options.method, options.epsilon, options.delta, tuple(options.support), options.accuracy, options.max_samples,
        {"outside": "clip"} if options.clip else {},
    )
    if len(options.delimiter) != 1:
        raise ValueError(f"--delimiter is {options.delimiter!r}; one character is needed")
    problem = ""
    try:
        with _open(options.file) as lines, samples(not options.quiet) as report:
            for number, value in _numbers(lines, options.column, options.delimiter):
                try:
                    over = rule.update(value)
                except ValueError as error:
                    raise ValueError(f"line {number}: {error}") from None
                report(rule, False)
                if over:
                    break
            report(rule, True)
    except (ValueError, csv.Error) as error:
        problem = str(error)
    except KeyboardInterrupt:
        problem = "interrupted"
    result = rule.result()
    if options.json:
        answer = {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
        json.dump({name: _plain(value) for name, value in answer.items()}, sys.stdout, indent=2, allow_nan=False)
        print()
    else:
        print(result)
    if problem:
        print(f"fastrace: {problem}; what the {rule.n_samples} numbers before it say is above", file=sys.stderr)
        return 130 if problem == "interrupted" else 2
    if not result.stopped:
        print(f"fastrace: {_unsettled(result)}", file=sys.stderr)
    return 0 if result.stopped else 1


def _unsettled(result: StopResult) -> str:
    """Why there is no promised estimate."""
    if result.status == "running":
        return f"the numbers ended before the mean was known: {result.n_samples} were read"
    if result.status == "max_samples":
        return f"gave up after {result.n_samples} numbers, as asked"
    return "no mean fits the numbers: are they independent, and inside the support?"


@contextmanager
def _open(path: Path | None) -> Iterator[Iterator[str]]:
    if path is None:
        yield iter(sys.stdin.readline, "")      # each line as it comes: whoever writes them may wait for us to end
    else:
        with path.open(encoding="utf-8", newline="") as file:
            yield iter(file.readline, "")


def _numbers(lines: Iterator[str], column: str | None, delimiter: str) -> Iterator[tuple[int, float]]:
    """Numbers with the numbers of their lines. Empty lines are passed over."""
    if column is None:
        for number, line in enumerate(lines, 1):
            text = line.strip().lstrip("\ufeff")
            if text:
                yield number, _number(number, text, delimiter)
        return
    rows = csv.reader(lines, delimiter=delimiter)
    place = int(column) if column.isdecimal() else -1
    first = True
    for row in rows:
        if not any(cell.strip() for cell in row):
            continue
        if first:
            first = False
            names = [cell.strip().lstrip("\ufeff") for cell in row]
            if column in names:
                place = names.index(column)
                continue
            if place < 0:
                raise ValueError(f"line {rows.line_num}: no column is named {column!r}; there are {', '.join(names)}")
            if place < len(row) and not _is_number(row[place]):
                continue                        # a line of names
        if place >= len(row):
            raise ValueError(f"line {rows.line_num} has {len(row)} columns; column {place}, counted from 0, is wanted")
        yield rows.line_num, _number(rows.line_num, row[place].strip(), "")


def _number(number: int, text: str, delimiter: str) -> float:
    try:
        if "_" in text:
            raise ValueError
        return float(text)
    except ValueError:
        hint = "; choose a column with --column" if delimiter and delimiter in text else ""
        shown = text if len(text) <= 60 else text[:57] + "..."
        raise ValueError(f"line {number} is {shown!r}; a number is needed{hint}") from None


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
        raise ImportError('the demo needs rich: python -m pip install rich') from error
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
        raise ImportError(f'{suffix} files need pandas: python -m pip install pandas pyarrow') from error
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
