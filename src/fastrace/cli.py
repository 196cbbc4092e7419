"""The command `fastrace`: its arguments. What it does stands in `commands`, loaded once a command is named."""

from __future__ import annotations

import argparse
import csv
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from fastrace import __version__
from fastrace._base._words import one_line

COLUMNS_HELP = "the columns to use, by name or by number from 0, separated by commas: a,b,2 (all)"
FILES = "npy, csv, tsv, txt (also .gz), parquet, feather or arrow"
EXITS = ("Exit status: 0 with an answer that holds as promised; 1 without one, where the numbers, --max-samples or "
         "--max-rows ended first; 2 after bad arguments or input; 130 after Ctrl-C; 141 if nobody reads the output.")
SEED_HELP = "seed of the order in which rows are read (a new one, which is printed)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status; see `EXITS`."""
    try:
        options = _read(sys.argv[1:] if arguments is None else arguments)
        status: int | None = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:         # whoever read standard output has gone, and needs no more
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        return 141
    except (ValueError, TypeError, OSError, ImportError, csv.Error) as error:
        said = one_line(error)
        if isinstance(error, OSError) and error.filename and error.strerror:
            said = f"{error.filename}: {error.strerror}"
        elif isinstance(error, FileNotFoundError) and "No such file" not in said:   # Arrow says the name alone
            said = f"{said}: No such file or directory"
        print(f"fastrace: {said}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return status or 0


def _read(arguments: Sequence[str]) -> argparse.Namespace:
    """The options in these arguments. Only a command that is named loads what its options can be."""
    parser = argparse.ArgumentParser(
        prog="fastrace", description="Answers to questions about means from as few samples as possible.", epilog=EXITS
    )
    parser.add_argument("--version", action="version", version=f"fastrace {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")
    for name, (add_options, words, description) in COMMANDS.items():
        command = commands.add_parser(name, help=words, description=description, epilog=EXITS)
        if name in arguments:
            add_options(command)
    options = parser.parse_args(arguments)
    if options.seed is not None and options.seed < 0:
        raise ValueError(f"--seed is {options.seed}; a whole number of at least 0 is needed")
    if hasattr(options, "delimiter"):
        from fastrace._base._tables import delimiter_of

        held = getattr(options, "data", None) or getattr(options, "file", None) or getattr(options, "files", [None])[0]
        sign = delimiter_of(held) if options.delimiter is None else options.delimiter
        sign = "\t" if sign in ("tab", "\\t") else sign
        if len(sign) != 1 or sign in '\r\n"':
            raise ValueError(f"--delimiter is {options.delimiter!r}; one character that separates columns, or tab, is "
                             f"needed")
        options.delimiter = sign
    if getattr(options, "file", None) == Path("-"):
        raise ValueError("FILE is '-'; " + (
            "leave it out to read standard input" if hasattr(options, "column") else
            "a race reads a table, so the path of a file is needed"))
    if getattr(options, "support", None) is not None and not options.support[0] <= options.support[1]:
        raise ValueError(f"--support is {options.support[0]:g} {options.support[1]:g}; LO <= HI is needed")
    return options


def _of_text(command: argparse.ArgumentParser) -> None:
    """The options that say how a text file is written."""
    command.add_argument("--delimiter", metavar="CHAR",
                         help="text: what separates columns, a character or tab (tab for tsv, else a comma)")
    command.add_argument("--header", action=argparse.BooleanOptionalAction, default=None,
                         help="text: the first line names the columns, or holds data (names, unless there are numbers)")


def _demo(demo: argparse.ArgumentParser) -> None:
    from fastrace.commands import running

    draws, quick = running.DRAWS, running.QUICK_DRAWS
    demo.add_argument("--data", type=Path, metavar="FILE", help=f"your log-factors: {FILES}, rows x states")
    demo.add_argument("--columns", metavar="NAMES", help=COLUMNS_HELP)
    _of_text(demo)
    demo.add_argument("--draws", type=int, metavar="K", help=f"number of draws ({draws}; with --quick {quick})")
    demo.add_argument("--delta", type=float, default=0.05, help="probability of error of a raced draw (%(default)s)")
    demo.add_argument("--seed", type=int, default=1, help="seed of all random numbers (%(default)s)")
    demo.add_argument("--output", type=Path, default=Path("fastrace-demo.png"), metavar="PNG",
                      help="where the picture goes (%(default)s)")
    demo.add_argument("--quick", action="store_true", help="fewer draws")
    demo.set_defaults(run=running.run_demo)


def _race(race: argparse.ArgumentParser) -> None:
    from fastrace.commands import running
    from fastrace.races._options import BOUNDS

    race.add_argument("file", type=Path, metavar="FILE", help=f"{FILES}, rows x arms")
    race.add_argument("--columns", metavar="NAMES", help=COLUMNS_HELP)
    _of_text(race)
    race.add_argument("--delta", type=float, default=0.05, help="probability that the answer is wrong (%(default)s)")
    race.add_argument("--bound", choices=BOUNDS, default="auto", help="rule that drops arms (%(default)s)")
    race.add_argument("--support", type=float, nargs=2, metavar=("LO", "HI"), help="interval that holds every number")
    race.add_argument("--order", choices=("random", "given"), default="random",
                      help="given: the rows are in random order already, read them in windows (%(default)s)")
    race.add_argument("--epsilon", type=float, default=0.0,
                      help="stop once no column can be better by this much; in units of the numbers (%(default)s)")
    race.add_argument("--best", type=int, default=1, metavar="M", help="how many columns to find (%(default)s)")
    race.add_argument("--max-rows", type=int, metavar="R",
                      help="read at most as many numbers as R whole rows hold (as many as needed)")
    race.add_argument("--missing", choices=("raise", "drop", "worst"), default="raise",
                      help="an empty cell or nan is refused, drops its row, or counts as LO of --support (%(default)s)")
    race.add_argument("--names", metavar="NAMES", help="what to call the columns in the report: x,y,z")
    race.add_argument("--seed", type=int, help=SEED_HELP)
    report = race.add_mutually_exclusive_group()
    report.add_argument("--json", action="store_true", help="print JSON instead of a table")
    report.add_argument("--html", type=Path, metavar="PAGE", help="write one HTML page with the plot, too")
    race.set_defaults(run=running.run_race)


def _compare(compare: argparse.ArgumentParser) -> None:
    from fastrace.commands import comparing

    compare.add_argument("files", type=Path, nargs="+", metavar="FILE",
                         help=f"a file with one row per event ({FILES.removeprefix('npy, ')}); with --pyperf, JSON "
                              f"files")
    compare.add_argument("--arm", metavar="COLUMN", help="the column that holds the arm of each event")
    compare.add_argument("--reward", metavar="COLUMN", help="the column that holds its reward")
    compare.add_argument("--cluster", metavar="COLUMN",
                         help="the column of the user or block whose rewards are not independent")
    compare.add_argument("--time", metavar="COLUMN", help="the column of the time, by which rows are observed")
    _of_text(compare)
    compare.add_argument("--reference", metavar="ARM", help="compare each arm with this one (all pairs)")
    compare.add_argument("--delta", type=float, default=0.05, help="probability that any interval misses (%(default)s)")
    compare.add_argument("--support", type=float, nargs=2, metavar=("LO", "HI"),
                         help="interval that holds every reward, for exact intervals (without it, or with --cluster: "
                              "asymptotic)")
    compare.add_argument("--epsilon", type=float, default=0.0,
                         help="largest difference that makes no difference (%(default)s)")
    compare.add_argument("--smaller-is-better", action="store_true", help="as for seconds or errors")
    compare.add_argument("--first-look", type=int, metavar="K",
                         help="rewards, or clusters, of each arm before asymptotic intervals (200; with --pyperf 5)")
    compare.add_argument("--pyperf", action="store_true",
                         help="files are timings that pyperf or pytest-benchmark saved, the reference first")
    compare.add_argument("--json", action="store_true", help="print JSON instead of tables")
    compare.add_argument("--html", type=Path, metavar="FILE", help="write one HTML page with the plots, too")
    compare.set_defaults(run=comparing.run_compare, seed=None)


def _estimate(estimate: argparse.ArgumentParser) -> None:
    from fastrace.commands import running
    from fastrace.streams.estimating import NAMES

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
    _of_text(estimate)
    estimate.add_argument("--json", action="store_true", help="print JSON instead of a table")
    estimate.add_argument("--quiet", action="store_true", help="show no progress on standard error")
    estimate.set_defaults(run=running.run_estimate)


# Each command: what adds its options, one line for the list of commands, and what it does.
COMMANDS = {
    "demo": (
        _demo,
        "draw a posterior on real data by racing and exactly, and compare",
        "Draw the order of an ARCH model of daily oil prices by racing and exactly, print what was read, how long it "
        "took and how far the two differ, and draw both.",
    ),
    "race": (
        _race,
        "find the column with the largest mean",
        "Race the columns of a table and print what was found. All numbers of a file are checked first; an npy file of "
        "more than 1 GiB is read where it lies, and only the numbers that the race reads are checked.",
    ),
    "compare": (
        _compare,
        "compare the arms of an A/B test, or timings, at any time",
        "Compare the means of the arms of a table with one row per event, or of benchmarks in several JSON files of "
        "pyperf or pytest-benchmark, by process. The intervals hold at all times: look as often as you like.",
    ),
    "estimate": (
        _estimate,
        "estimate the mean of numbers, and stop reading as soon as it is known",
        "Estimate the mean of numbers: of a FILE (npy, csv, tsv, parquet, feather, arrow, or text with one number per "
        "line; text also compressed, .gz), whose rows are read in random order, or of standard input (one number per "
        "line, or a column of csv), which is read as it comes and no further than needed. What comes from standard "
        "input must be independent draws.",
    ),
}


if __name__ == "__main__":
    sys.exit(main())
