"""The command `fastrace`."""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import secrets
import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np

import fastrace._math._half_widths as _half_widths
from fastrace import __version__
from fastrace._base._progress import samples
from fastrace._base._tables import is_number, load, load_table, one_line, places, some
from fastrace._base._words import counted
from fastrace.races._options import BOUNDS
from fastrace.races.racing import race
from fastrace.results import Result, StopResult
from fastrace.streams.estimating import NAMES, estimate_mean, start_rule

DRAWS, QUICK_DRAWS = 2000, 200
COLUMNS_HELP = "the columns to use, by name or by number from 0, separated by commas: a,b,2 (all)"
SEED_HELP = "seed of the order in which rows are read (a new one, which is printed)"
CHECKED = 1 << 30       # bytes of an npy file that are read whole to be checked: about a second's work
CELLS = 1 << 20         # numbers checked at a time


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status.

    0; 1 if `estimate` is not settled, 2 after bad arguments or input, 130 after Ctrl-C, 141 if nobody reads the output.
    """
    options = _parser().parse_args(arguments)
    try:
        if options.seed is not None and options.seed < 0:
            raise ValueError(f"--seed is {options.seed}; a whole number of at least 0 is needed")
        if getattr(options, "file", None) == Path("-"):
            raise ValueError("FILE is '-'; " + (
                "leave it out to read standard input" if options.run is _estimate else
                "a race reads a table, so the path of a file is needed"))
        if getattr(options, "support", None) is not None and not options.support[0] <= options.support[1]:
            raise ValueError(f"--support is {options.support[0]:g} {options.support[1]:g}; LO <= HI is needed")
        status: int | None = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:         # whoever read standard output has gone, and needs no more
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        return 141
    except (ValueError, TypeError, OSError, ImportError, csv.Error) as error:
        print(f"fastrace: {one_line(error)}", file=sys.stderr)
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
    demo.add_argument("--columns", metavar="NAMES", help=COLUMNS_HELP)
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
        description="Race the columns of a table and print what was found. All numbers of a file are checked first; an "
        "npy file of more than 1 GiB is read where it lies, and only the numbers that the race reads are checked.",
    )
    run.add_argument("file", type=Path, metavar="FILE", help="npy, csv or parquet, rows x arms")
    run.add_argument("--columns", metavar="NAMES", help=COLUMNS_HELP)
    run.add_argument("--delta", type=float, default=0.05, help="probability that the answer is wrong (%(default)s)")
    run.add_argument("--bound", choices=BOUNDS, default="auto", help="rule that drops arms (%(default)s)")
    run.add_argument("--support", type=float, nargs=2, metavar=("LO", "HI"), help="interval that holds every number")
    run.add_argument("--access", choices=("random", "shuffled"), default="random",
                     help="shuffled: the rows are in random order already, read them in windows (%(default)s)")
    run.add_argument("--seed", type=int, help=SEED_HELP)
    run.add_argument("--json", action="store_true", help="print JSON instead of a table")
    run.set_defaults(run=_race)

    estimate = commands.add_parser(
        "estimate",
        help="estimate the mean of numbers, and stop reading as soon as it is known",
        description="Estimate the mean of numbers: of a FILE (npy, csv, parquet, or text with one number per line), "
        "whose rows are read in random order, or of standard input (one number per line, or a column of csv), which is "
        "read as it comes and no further than needed. What comes from standard input must be independent draws. The "
        "exit status is 0 if the mean is known to the accuracy wanted, 1 if the numbers ended first, 2 after a bad "
        "line or argument.",
    )
    estimate.add_argument("file", type=Path, nargs="?", metavar="FILE", help="where to read (standard input)")
    estimate.add_argument("--order", choices=("random", "given"),
                          help="order of the rows of a FILE; given: they are independent draws as they stand (random)")
    estimate.add_argument("--seed", type=int, help=SEED_HELP)
    estimate.add_argument("--epsilon", type=float, default=0.1, help="accuracy (%(default)s)")
    estimate.add_argument("--delta", type=float, default=0.05,
                          help="probability that the estimate misses the accuracy (%(default)s)")
    estimate.add_argument("--support", type=float, nargs=2, metavar=("LO", "HI"), default=(0.0, 1.0),
                          help="interval that holds every number (0 1)")
    estimate.add_argument("--accuracy", choices=("relative", "absolute"), default="relative",
                          help="whether epsilon is a share of the mean or in its own units (%(default)s)")
    estimate.add_argument("--method", choices=NAMES, default="auto", help="the rule (%(default)s)")
    estimate.add_argument("--max-samples", type=int, metavar="K", help="give up after this many numbers")
    estimate.add_argument("--clip", action="store_true", help="move numbers outside the support to its nearer end")
    estimate.add_argument("--column", metavar="NAME", help="the column of a table, by its name or by its number from 0")
    estimate.add_argument("--delimiter", default=",", metavar="CHAR", help="csv: what separates columns (%(default)s)")
    estimate.add_argument("--json", action="store_true", help="print JSON instead of a table")
    estimate.add_argument("--quiet", action="store_true", help="show no progress on standard error")
    estimate.set_defaults(run=_estimate)
    return parser


def _estimate(options: argparse.Namespace) -> int:
    if len(options.delimiter) != 1:
        raise ValueError(f"--delimiter is {options.delimiter!r}; one character is needed")
    if options.file is None and (sys.stdin is None or sys.stdin.closed):
        raise ValueError("standard input is closed; pipe numbers into it, or name a FILE")
    if options.file is None and options.order == "random":
        raise ValueError("--order is random; standard input is read as it comes: name a FILE to read at random")
    if options.file is not None and options.file.is_dir():
        raise ValueError(f"{options.file} is a folder; a file is needed")
    order = options.order or ("given" if options.file is None else "random")
    if order == "random":
        _choose_seed(options)
    if options.file is not None and (order == "random" or options.file.suffix.lower() in (".npy", ".parquet")):
        result, problem = _of_file(options, order), ""
    else:
        result, problem = _of_lines(options)
    if problem and not result.n_samples:
        print(f"fastrace: {problem}", file=sys.stderr)
        return 130 if problem == "interrupted" else 2
    _show(result, options)
    if problem:
        before = counted(result.n_samples, "number")
        print(f"fastrace: {problem}; the result above is that of the {before} before it", file=sys.stderr)
        return 130 if problem == "interrupted" else 2
    if not result.stopped:
        print(f"fastrace: {_unsettled(result)}", file=sys.stderr)
    return 0 if result.stopped else 1


def _of_file(options: argparse.Namespace, order: str) -> StopResult:
    """The mean of the numbers in a file, all of which are there before the first is used."""
    values, name_of = _column_of(options.file, options.column, options.delimiter)
    low, high = options.support
    slack = _half_widths.stream_slack(low, high)
    good = np.isfinite(values) if options.clip else (values >= low - slack) & (values <= high + slack)
    if not good.all():
        first = int(np.argmin(good))
        raise _misfit(name_of(first), float(values[first]), options)
    more: dict[str, Any] = {"outside": "clip"} if options.clip else {}
    return estimate_mean(
        values, options.epsilon, options.delta, tuple(options.support), accuracy=options.accuracy,
        method=options.method, max_samples=options.max_samples, order=order, rng=options.seed,
        progress=not options.quiet, **more,
    )


def _misfit(place: str, value: float, options: argparse.Namespace) -> ValueError:
    """What to say of a number that cannot be a reward."""
    low, high = options.support
    advice = "widen --support, or say --clip for numbers outside it"
    needed = "a finite number is needed" if options.clip else (
        f"a number inside the support, {low:g} to {high:g}, is needed: {advice}")
    return ValueError(f"{place} is {value!r}; {needed}")


def _column_of(path: Path, column: str | None, delimiter: str) -> tuple[Any, Callable[[int], str]]:
    """Numbers of a file, and what to call the place of each."""
    if path.suffix.lower() in (".npy", ".parquet"):
        table = load(path)
        if table.ndim == 1:
            if column is not None:
                raise ValueError(f"--column is {column!r}; {path} holds one column, of shape {table.shape}")
            return table, lambda row: f"number {row} of {path}, counted from 0,"
        names = [str(name) for name in getattr(table, "columns", range(table.shape[1]))]
        if column is None and len(names) > 1:
            raise ValueError(f"{path} has {len(names)} columns; choose one with --column: {some(names)}")
        place = places(column or names[0], names, path)[0]
        values = table[:, place] if isinstance(table, np.ndarray) else table.iloc[:, place].to_numpy()
        if values.dtype.kind not in "fiub":
            raise ValueError(f"column {names[place]!r} of {path} has dtype {values.dtype}; numbers are needed")
        return values, lambda row: f"row {row} of {path}, counted from 0,"
    if column is None and path.suffix.lower() == ".csv":
        with _open(path) as lines:
            names = next(csv.reader(lines, delimiter=delimiter), [])
        if len(names) > 1:
            raise ValueError(f"{path} has {len(names)} columns; choose one with --column: {some(names)}")
        column = "0"
    with _open(path) as lines:
        numbers, found = array("q"), array("d")
        for number, value in _numbers(lines, column, delimiter):
            numbers.append(number)
            found.append(value)
    return np.frombuffer(found) if found else np.zeros(0), lambda row: f"line {numbers[row]}"


def _of_lines(options: argparse.Namespace) -> tuple[StopResult, str]:
    """The mean of numbers that are read as they come, and what went wrong."""
    rule: Any = start_rule(
        options.method, options.epsilon, options.delta, tuple(options.support), options.accuracy, options.max_samples,
        {"outside": "clip"} if options.clip else {},
    )
    problem = ""
    low, high = options.support
    slack = _half_widths.stream_slack(low, high)
    least, most = (-sys.float_info.max, sys.float_info.max) if options.clip else (low - slack, high + slack)
    try:
        with _open(options.file) as lines, samples(not options.quiet) as report:
            for number, value in _numbers(lines, options.column, options.delimiter):
                if not least <= value <= most:
                    raise _misfit(f"line {number}", value, options)
                over = rule.update(value)
                report(rule, False)
                if over:
                    break
            report(rule, True)
    except (ValueError, csv.Error) as error:
        problem = one_line(error)
    except KeyboardInterrupt:
        problem = "interrupted"
    return rule.result(), problem


def _unsettled(result: StopResult) -> str:
    """Why there is no promised estimate."""
    if not result.stopped_by:
        return f"the numbers ended before the mean was known, after {result.n_samples}"
    if result.stopped_by == "max_samples":
        return f"gave up after {counted(result.n_samples, 'number')}, as asked"
    return "no mean fits the numbers: are they independent, and inside the support?"


@contextmanager
def _open(path: Path | None) -> Iterator[Iterator[str]]:
    if path is None:
        yield _lines(sys.stdin, "standard input")
    else:
        with path.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
            yield _lines(file, str(path))


def _lines(file: TextIO, name: str) -> Iterator[str]:
    """Each line as it comes, since whoever writes them may wait for us to end; bytes that are no text are refused."""
    number = 1
    try:
        while line := file.readline():
            if not line.isascii():
                line.encode()           # refuses the surrogates that stand for such bytes
            yield line
            number += 1
    except UnicodeError as error:
        raise ValueError(
            f"{name} is no text in UTF-8 from line {number} on, or is compressed: save it as UTF-8, or unpack it"
        ) from error


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
    first, width = True, 0
    for row in rows:
        if not any(cell.strip() for cell in row):
            continue
        if first:
            first = False
            names = [cell.strip().lstrip("\ufeff") for cell in row]
            if column in names:
                place, width = names.index(column), len(names)
                continue
            if place < 0:
                raise ValueError(f"line {rows.line_num}: no column is named {column!r}; there are {', '.join(names)}")
            if place < len(row) and not is_number(row[place]):
                width = len(names)
                continue                        # a line of names
        if place >= len(row):
            raise ValueError(
                f"line {rows.line_num} has {counted(len(row), 'column')}; column {place}, counted from 0, is wanted"
            )
        if 0 < width < len(row):
            raise ValueError(
                f"line {rows.line_num} has {counted(len(row), 'cell')} and the first line names {width}, so that names "
                f"and numbers do not match: name every column in the first line"
            )
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
    table, names = load_table(options.file, options.columns)
    _choose_seed(options)
    support = None if options.support is None else tuple(options.support)
    _check_cells(options.file, table, names, support)
    if table.shape[1] < 2:
        print(f"fastrace: {options.file} gives one column to race, which leaves nothing to choose", file=sys.stderr)
    result = race(
        table,
        names=names if len(set(names)) == len(names) else None,
        delta=options.delta,
        bound=options.bound,
        support=support,
        access=options.access,
        rng=options.seed,
    )
    _show(result, options)


def _choose_seed(options: argparse.Namespace) -> None:
    if options.seed is None:
        options.seed = secrets.randbelow(1 << 32)


def _show(result: Result, options: argparse.Namespace) -> None:
    """Print an answer, and the seed of what was random."""
    if options.json:
        json.dump(result.to_dict() | {"seed": options.seed}, sys.stdout, indent=2, allow_nan=False)
        print()
        return
    print(result)
    if options.seed is not None:
        print(f"  seed {options.seed}")


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

        table, names = (None, []) if options.data is None else load_table(options.data, options.columns)
    if table is not None:
        _check_cells(options.data, table, names, None)
    with _progress(n_draws) as advance:
        if table is None:
            comparison = demo.compare_orders(n_draws, options.delta, options.seed, advance)
        else:
            comparison = demo.compare_table(table, names, n_draws, options.delta, options.seed, advance)
    shown = Table(title=f"{counted(comparison.n_draws, 'draw')} of the {comparison.title}", title_justify="left")
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


def _check_cells(path: Path, table: Any, names: list[str], support: tuple[float, float] | None) -> None:
    """Refuse numbers that a race would refuse where it reads them: all of them, unless the file is too large for that.
    """
    if isinstance(table, np.memmap) and table.nbytes > CHECKED:
        print(f"fastrace: {path} holds {table.nbytes / 1e9:.3g} GB and is read where it lies, so only the numbers that "
              f"are used are checked", file=sys.stderr)
        return
    low, high = (-math.inf, math.inf) if support is None else support
    least, most = _half_widths.lower_end(low, high), _half_widths.upper_end(low, high)
    step = max(1, CELLS // table.shape[1]) if table.shape[1] else len(table)
    for first in range(0, len(table), max(1, step)):
        rows = slice(first, first + step)
        block = np.asarray(table[rows] if isinstance(table, np.ndarray) else table.iloc[rows], dtype=np.float64)
        bad = ~((block >= least) & (block <= most)) | (block == math.inf)
        if bad.any():
            row, place = np.argwhere(bad)[0]
            value = block[row, place]
            odd = math.isnan(value) or value == math.inf
            why = "finite numbers are needed" if odd else f"outside --support {low:g} {high:g}"
            column = names[place] if isinstance(table, np.ndarray) else repr(names[place])
            raise ValueError(f"{path} has {value:g} in row {first + row}, counted from 0, of column {column}: {why}")


if __name__ == "__main__":
    sys.exit(main())
