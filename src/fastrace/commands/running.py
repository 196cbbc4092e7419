"""What the command `fastrace` does once its arguments are read; `cli` reads them."""

from __future__ import annotations

import argparse
import contextlib
import csv
import dataclasses
import html
import io
import itertools
import json
import math
import sys
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np

import fastrace._math._half_widths as _half_widths
from fastrace._base._progress import patient, samples
from fastrace._base._tables import (
    data_or_names,
    is_text,
    kind_of,
    load,
    load_table,
    number_in,
    numbers_of_csv,
    places,
    refuse_other_sign,
    sign_hint,
    some,
    spells_number,
    text_of,
    twice,
)
from fastrace._base._words import counted, one_line
from fastrace.races.racing import race
from fastrace.results import Result, StopResult
from fastrace.streams.estimating import estimate_mean, start_rule

DRAWS, QUICK_DRAWS = 2000, 200
CHECKED = 1 << 30       # bytes of an npy file that are read whole to be checked: about a second's work
ROWS = 1 << 14          # of a file between two reports of progress
CELLS = 1 << 20         # numbers checked at a time
NO_NUMBER = "a finite number is needed: fill or drop such rows"


def run_estimate(options: argparse.Namespace) -> int:
    """Estimate a mean; the exit status says whether it is known."""
    if options.file is None and (sys.stdin is None or sys.stdin.closed):
        raise ValueError("standard input is closed; pipe numbers into it, or name a FILE")
    if options.file is None and options.order == "random":
        raise ValueError("--order is random; standard input is read as it comes: name a FILE to read at random")
    if options.file is not None and options.file.is_dir():
        raise ValueError(f"{options.file} is a folder; a file is needed")
    order = options.order or ("given" if options.file is None else "random")
    if order == "random":
        _choose_seed(options)
    if options.file is not None and (order == "random" or not is_text(options.file)):
        result, problem = _of_file(options, order), ""
    else:
        result, problem = _of_lines(options)
    if not result.n_samples and not problem:
        problem = f"{options.file or 'standard input'} holds no numbers"
    if problem and not result.n_samples:
        print(f"fastrace: {problem}", file=sys.stderr)
        return 130 if problem == "interrupted" else 2
    if not result.stopped_by:           # a rule that waits for more says so; nobody will give it any
        result = dataclasses.replace(result, stopped_by="exhausted")
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
    quiet = contextlib.nullcontext(lambda done: None)
    with quiet if options.quiet else patient("rows read", False, in_files=True) as show:
        values, name_of = _column_of(options.file, options.column, options.delimiter, show, options.header)
    low, high = options.support
    slack = _half_widths.stream_slack(low, high)
    good = np.isfinite(values) if options.clip else (values >= low - slack) & (values <= high + slack)
    if not good.all():
        first = int(np.argmin(good))
        raise _misfit(name_of(first), float(values[first]), options)
    if not len(values):
        raise ValueError(f"{options.file} holds no numbers")
    more: dict[str, Any] = {"outside": "clip"} if options.clip else {}
    return estimate_mean(
        values, options.epsilon, options.delta, tuple(options.support), accuracy=options.accuracy,
        method=options.method, max_samples=options.max_samples, order=order, rng=options.seed,
        progress=not options.quiet, **more,
    )


def _misfit(place: str, value: float, options: argparse.Namespace) -> ValueError:
    """What to say of a number that cannot be a reward."""
    low, high = options.support
    needed = f"a number inside the support, {low:g} to {high:g}, is needed: widen --support, or say --clip for " \
        f"numbers outside it"
    return ValueError(f"{place} is {value!r}; {needed if math.isfinite(value) else NO_NUMBER}")


def _part(path: Path | None, column: str | None) -> str:
    """The file and the column in which a line stands, for messages; nothing of a plain standard input."""
    return ("" if path is None else f" of {path}") + ("" if column is None else f", column {column!r},")


def _column_of(
    path: Path, column: str | None, delimiter: str, show: Callable[[int], None], header: bool | None = None
) -> tuple[Any, Callable[[int], str]]:
    """The numbers of a file, and a function that names the place of each in messages.

    `show` gets the number of rows read so far.
    """
    if not is_text(path):
        table = load(path, column=column)
        if table.ndim == 1:
            if column is not None:
                raise ValueError(f"--column is {column!r}; {path} holds one column, of shape {table.shape}")
            return table, lambda row: f"number {row}, counted from 0, of {path}"
        names = [str(name) for name in getattr(table, "columns", range(table.shape[1]))]
        if column is None and len(names) > 1:
            raise ValueError(f"{path} has {len(names)} columns; choose one with --column: {some(names)}")
        place = places(column or names[0], names, path)[0]
        values = table[:, place] if isinstance(table, np.ndarray) else table.iloc[:, place].to_numpy()
        if values.dtype.kind not in "fiub":
            raise ValueError(f"column {names[place]!r} of {path} has dtype {values.dtype}; numbers are needed")
        return values, lambda row: f"row {row}, counted from 0, of {path}, column {names[place]!r},"
    refuse_other_sign(path, delimiter)
    if column is None and kind_of(path) in (".csv", ".tsv", ".tab"):
        with _open(path) as lines:
            names = next(csv.reader(lines, delimiter=delimiter), [])
        if len(names) > 1:
            raise ValueError(f"{path} has {len(names)} columns; choose one with --column: {some(names)}")
        column = "0"

    def by_line() -> Iterator[tuple[int, float]]:
        with _open(path) as lines:
            yield from _numbers(lines, column, delimiter, path, header)

    def name_of(row: int) -> str:
        return f"line {next(itertools.islice(by_line(), row, None))[0]}{_part(path, column)}"

    first = _first_line(path, column, delimiter, header)
    found = None if first is None else numbers_of_csv(path, *first, delimiter, show)
    if found is not None:
        return found, name_of
    taken = array("d")
    for _, value in by_line():
        taken.append(value)
        if len(taken) % ROWS == 0:
            show(len(taken))
    return np.frombuffer(taken) if taken else np.zeros(0), name_of


def _first_line(
    path: Path, column: str | None, delimiter: str, header: bool | None = None
) -> tuple[int, int, bool] | None:
    """The number of the column to read, how many columns there are, and whether the first line holds their names.

    None where the first line does not show that; `_numbers` then reads the file, and says what is wrong with it.
    """
    with text_of(path, "utf-8-sig", "surrogateescape") as file:
        rows = csv.reader(file, delimiter=delimiter)
        names = [cell.strip() for cell in next(rows, [])]
        if rows.line_num != 1 or not any(names):
            return None
    if column is None:
        return (0, 1, bool(header)) if len(names) == 1 and (header or spells_number(names[0])) else None
    named = _names_column(names, column, header, str(path))
    if named and names.count(column) == 1:
        return names.index(column), len(names), True
    place = int(column) if column.isdecimal() and not named else len(names)
    if place >= len(names):
        return None
    return place, len(names), not spells_number(names[place]) if header is None else header


def _names_column(names: list[str], column: str, header: bool | None, where: str) -> bool:
    """Whether the cells of a first line name columns, and one of them this; refuses what may be a name or a number."""
    if header is False or column not in names:
        return False
    if header or not column.isdecimal() or int(column) >= len(names):
        return True
    if all(map(spells_number, names)):
        return False
    raise ValueError(data_or_names(where, column))


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
            part = _part(options.file, options.column)
            for number, value in _numbers(lines, options.column, options.delimiter, options.file, options.header):
                if not least <= value <= most:
                    raise _misfit(f"line {number}{part}", value, options)
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
    if result.stopped_by == "exhausted":
        return f"the numbers ended before the mean was known, after {result.n_samples}"
    if result.stopped_by == "max_samples":
        return f"gave up after {counted(result.n_samples, 'number')}, as asked"
    return "no mean fits the numbers: are they independent, and inside the support?"


@contextmanager
def _open(path: Path | None) -> Iterator[Iterator[str]]:
    if path is None:
        yield _lines(sys.stdin, "standard input")
    else:
        with text_of(path, "utf-8", "surrogateescape") as file:
            yield _lines(file, str(path))


def _lines(file: TextIO, name: str) -> Iterator[str]:
    """Each line as it comes, since whoever writes them may wait for us to end; bytes that are no text are refused.

    A byte order mark is no part of the first.
    """
    number = 1
    try:
        while line := file.readline():
            if not line.isascii():
                line.encode()           # refuses the surrogates that stand for such bytes
            yield line.removeprefix("\ufeff") if number == 1 else line
            number += 1
    except UnicodeError as error:
        raise ValueError(
            f"{name} is no text in UTF-8 from line {number} on, or is compressed: save it as UTF-8, or unpack it"
        ) from error


def _numbers(
    lines: Iterator[str], column: str | None, delimiter: str, path: Path | None, header: bool | None = None
) -> Iterator[tuple[int, float]]:
    """Numbers with the numbers of their lines. Empty lines are passed over; messages name the file, if there is one.

    `header` says whether the first line names the columns; None, that it does where it has no number in this column.
    """
    of, part = _part(path, None), _part(path, column)
    first = True
    if column is None:
        for number, line in enumerate(lines, 1):
            text = line.strip()
            if text and not (first and header):
                yield number, _number(f"line {number}{part}", text, delimiter)
            first = first and not text
        return
    rows = csv.reader(lines, delimiter=delimiter)
    place = int(column) if column.isdecimal() else -1
    width = 0
    for row in rows:
        if not row or len(row) == 1 and row[0] and not row[0].strip():      # `""` is an entry that is missing
            continue
        if first:
            first = False
            names = [cell.strip() for cell in row]
            if header is None and not any(names):
                raise ValueError(f"line {rows.line_num}{of} is empty where names or numbers are needed: say --header "
                                 f"if it stands for names, or drop it")
            if header is False and place < 0:
                raise ValueError(f"--column is {column!r} and --no-header is said; the number of the column, from 0, "
                                 f"is needed")
            named = _names_column(names, column, header, "standard input" if path is None else str(path))
            if named and names.count(column) > 1:
                raise ValueError(twice(f"line {rows.line_num}{of}", column, names.count(column)))
            if named:
                place, width = names.index(column), len(names)
                continue
            if place < 0:
                raise ValueError(f"line {rows.line_num}{of}: no column is named {column!r}; there are "
                                 f"{', '.join(names)}{sign_hint(''.join(names), delimiter)}")
            if place < len(row) and (not spells_number(row[place]) if header is None else header):
                width = len(names)
                continue                        # a line of names
        if place >= len(row):
            raise ValueError(
                f"line {rows.line_num}{of} has {counted(len(row), 'column')}; column {place}, counted from 0, is "
                f"needed{sign_hint(''.join(row), delimiter)}"
            )
        if 0 < width < len(row):
            raise ValueError(
                f"line {rows.line_num}{of} has {counted(len(row), 'cell')} and the first line names {width}, so that "
                f"names and numbers do not match: name every column in the first line"
                f"{sign_hint(''.join(row), delimiter)}"
            )
        yield rows.line_num, _number(f"line {rows.line_num}{part}", row[place].strip(), "")


def _number(place: str, text: str, delimiter: str) -> float:
    try:
        if "_" in text:
            raise ValueError
        return number_in(text)
    except ValueError:
        if not text:
            raise ValueError(f"{place} is empty; {NO_NUMBER}") from None
        hint = "; choose a column with --column" if delimiter and delimiter in text else ""
        if not hint and delimiter and len(text.split()) > 1:
            hint = "; choose a column with --column, and say --delimiter ' ' if spaces separate them"
        hint = hint or sign_hint(text, delimiter)
        shown = text if len(text) <= 60 else text[:57] + "..."
        raise ValueError(f"{place} is {shown!r}; a number is needed{hint}") from None


def run_race(options: argparse.Namespace) -> int:
    """Race the columns of a table; the exit status says whether the answer has its promise."""
    if options.missing == "worst" and options.support is None:
        raise ValueError("--missing is worst; it counts missing numbers as the low end of --support LO HI: give it")
    gaps = options.missing != "raise"
    table, names = load_table(options.file, options.columns, "allowed" if gaps else ", or give --missing drop or worst",
                              options.delimiter, options.header)
    _choose_seed(options)
    support = None if options.support is None else tuple(options.support)
    _check_cells(options.file, table, names, support, gaps)
    if table.shape[1] < 2:
        print(f"fastrace: {options.file} gives one column to race, which leaves nothing to choose", file=sys.stderr)
    if options.names is not None:
        names = _renamed(options.names, table.shape[1])
    if options.max_rows is not None and options.max_rows < 1:
        raise ValueError(f"--max-rows is {options.max_rows}; at least 1 is needed")
    if options.html is not None and not options.html.absolute().parent.is_dir():
        raise ValueError(f"--html is {options.html}; its folder does not exist")
    result = race(
        table,
        names=names,
        delta=options.delta,
        bound=options.bound,
        support=support,
        epsilon=options.epsilon,
        n_best=options.best,
        max_pulls=None if options.max_rows is None else options.max_rows * table.shape[1],
        missing=options.missing,
        order=options.order,
        rng=options.seed,
    )
    _show(result, options)
    if options.html is not None:
        options.html.write_text(_page(result, f"{options.file.name}, seed {options.seed}"), encoding="utf-8")
        print(f"  page {options.html}")
    if result.stopped_by == "max_pulls":
        print("fastrace: stopped by --max-rows before the answer was known", file=sys.stderr)
        return 1
    return 0


def _renamed(names: str, n_arms: int) -> list[str]:
    """The names in an option, one per column."""
    found = [name.strip() for name in next(csv.reader([names]))]
    if len(found) != n_arms or len(set(found)) < n_arms or not all(found):
        raise ValueError(f"--names is {names!r}; {counted(n_arms, 'different name')}, separated by commas, are needed")
    return found


def _page(result: Result, title: str) -> str:
    """One HTML page with an answer and its plot, which needs no other file."""
    try:
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("--html needs matplotlib: python -m pip install matplotlib") from error
    figure, drawing = Figure(figsize=(9.0, 7.0), layout="tight"), io.StringIO()
    canvas = FigureCanvasSVG(figure)
    result.plot(ax=[figure.add_subplot(2, 1, 1), figure.add_subplot(2, 1, 2)])
    canvas.print_svg(drawing)
    svg = drawing.getvalue()
    style = "body{font:15px sans-serif;max-width:60em;margin:2em auto}td,th{padding:.2em .8em;text-align:right}"
    return (f"<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{html.escape(title)}</title>"
            f"<style>{style}</style></head><body><h1>{html.escape(title)}</h1>{result._repr_html_()}"
            f"{svg[svg.index('<svg'):]}</body></html>\n")


def _choose_seed(options: argparse.Namespace) -> None:
    if options.seed is None:
        options.seed = int(np.random.default_rng().integers(1 << 32))


def _show(result: Result, options: argparse.Namespace) -> None:
    """Print an answer, and the seed of what was random."""
    if options.json:
        json.dump(result.to_dict() | {"seed": options.seed}, sys.stdout, indent=2, allow_nan=False)
        print()
        return
    print(result)
    if options.seed is not None:
        print(f"  seed {options.seed}")


def run_demo(options: argparse.Namespace) -> None:
    """Draw by racing and exactly, and compare."""
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

        table, names = (None, []) if options.data is None else load_table(
            options.data, options.columns, delimiter=options.delimiter, header=options.header)
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


def _check_cells(
    path: Path, table: Any, names: list[str], support: tuple[float, float] | None, gaps: bool = False
) -> None:
    """Refuse numbers that a race would refuse where it reads them: all of them, unless the file is too large for that.

    With `gaps`, numbers may be missing.
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
        bad &= ~np.isnan(block) if gaps else True
        if bad.any():
            row, place = np.argwhere(bad)[0]
            value = block[row, place]
            odd = math.isnan(value) or value == math.inf
            why = "finite numbers are needed" if odd else f"outside --support {low:g} {high:g}"
            column = names[place] if isinstance(table, np.ndarray) else repr(names[place])
            raise ValueError(f"{path} has {value:g} in row {first + row}, counted from 0, of column {column}: {why}")

