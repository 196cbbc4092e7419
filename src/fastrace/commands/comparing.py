"""What `fastrace compare` does: events in a table, or timings that pyperf or pytest-benchmark saved."""

from __future__ import annotations

import argparse
import base64
import dataclasses
import gzip
import html
import io
import json
import math
import sys
import zlib
from pathlib import Path
from typing import Any

from fastrace._base import _checks
from fastrace._base._tables import GZIP, load, places
from fastrace._base._words import counted
from fastrace.results import ComparisonResult
from fastrace.streams.comparison import Comparison

FEW_PROCESSES = 30      # below which the mean over processes need not be nearly normal
FIRST_PROCESSES = 5     # before which nothing is said
WORDS = ("file", "time")                # what is compared, and what it consists of


def run_compare(options: argparse.Namespace) -> None:
    """Compare and print; write the page if one was asked for."""
    if options.pyperf:
        answers = _of_timings(options)
    else:
        answers = {"": _of_events(options)}
    if options.html is not None:
        options.html.write_text(_page(answers), encoding="utf-8")
    if options.json:
        found = answers[""].to_dict() if "" in answers else {name: answer.to_dict() for name, answer in answers.items()}
        json.dump(found, sys.stdout, indent=2, allow_nan=False)
        print()
        return
    print("\n\n".join(f"{name}: {answer}" if name else str(answer) for name, answer in answers.items()))
    if options.html is not None:
        print(f"Page: {options.html}")


def _of_events(options: argparse.Namespace) -> ComparisonResult:
    """The arms of a table with one row per event."""
    if len(options.files) != 1:
        raise ValueError(f"{counted(len(options.files), 'file')} given; one table of events is needed: name two or "
                         f"more with --pyperf")
    if options.arm is None or options.reward is None:
        raise ValueError("--arm and --reward are needed: the columns that hold the arm and the reward of each event")
    path = options.files[0]
    frame = load(path, options.delimiter, header=options.header,
                 texts=[options.arm] if options.cluster is None else [options.arm, options.cluster])
    if not hasattr(frame, "columns"):
        raise ValueError(f"{path} holds an array without names; a text or Arrow file with columns is needed")
    names = [str(name) for name in frame.columns]
    columns: dict[str, Any] = {what: None if name is None else names[places(name, names, path)[0]] for what, name in (
        ("arm", options.arm), ("reward", options.reward), ("cluster", options.cluster), ("time", options.time))}
    labels = {str(label): label for label in set(frame[columns["arm"]].dropna().tolist())}
    if len(labels) == 1:
        raise ValueError(f"{path} has one arm, {next(iter(labels))}, in column {columns['arm']}; two or more are "
                         f"needed, as one is compared with another")
    if options.reference is not None and options.reference not in labels:
        raise ValueError(f"--reference is {options.reference!r}; one of the arms {', '.join(sorted(labels)[:10])} is "
                         f"needed")
    reference = None if options.reference is None else labels[options.reference]
    try:
        made = Comparison.from_frame(
            frame, **columns, delta=options.delta, support=_support(options), reference=reference,
            epsilon=options.epsilon, smaller_is_better=options.smaller_is_better, first_look=options.first_look,
        )
    except ValueError as error:         # in words of the command line
        raise ValueError(str(error).replace("say reference=,", "say --reference,")) from error
    return made.result()


def _support(options: argparse.Namespace) -> tuple[float, float] | None:
    return None if options.support is None else (options.support[0], options.support[1])


def _of_timings(options: argparse.Namespace) -> dict[str, ComparisonResult]:
    """Each benchmark that all files hold, the first file being the reference; delta is shared by the benchmarks."""
    if len(options.files) < 2:
        raise ValueError("--pyperf needs two files or more: the reference first")
    unfit = [f"--{name}" for name in ("arm", "reward", "cluster", "time", "reference", "support")
             if getattr(options, name) is not None]
    if unfit:
        raise ValueError(f"{unfit[0]} does not go with --pyperf: files are the arms, and timings the rewards")
    delta = _checks.probability(options.delta, "delta")
    arms = _arm_names(options.files)
    suites = [timings(path) for path in options.files]
    shared = [name for name in suites[0] if all(name in suite for suite in suites)]
    if not shared:
        held = "; ".join(f"{path} has {', '.join(list(suite)[:3])}{' ...' if len(suite) > 3 else ''}"
                         for path, suite in zip(options.files, suites, strict=True))
        raise ValueError(f"the files have no benchmark in common: {held}")
    for name in shared:
        units = [suite[name].unit for suite in suites]
        if len(set(units)) > 1:
            raise ValueError(f"{name!r} is in units of {', '.join(units)}; files of one unit are needed")
    alone = dict.fromkeys(name for suite in suites for name in suite if name not in shared)
    if alone:
        print(f"fastrace: left out, as not all files have them: {', '.join(alone)}", file=sys.stderr)
    answers = {}
    for name in shared:
        made = Comparison(
            arms, delta / len(shared), clusters=True, reference=arms[0], smaller_is_better=True,
            epsilon=options.epsilon, first_look=FIRST_PROCESSES if options.first_look is None else options.first_look,
        )
        for arm, suite in zip(arms, suites, strict=True):
            for key, values in enumerate(suite[name].processes):
                made.observe_many(arm, values, clusters=[(arm, key)] * len(values))
        answers[name] = _with_doubts(made, [suite[name] for suite in suites])
    return answers


def _with_doubts(made: Comparison, runs: list[_Timings]) -> ComparisonResult:
    """The result in words of timings, with a warning of too few processes, or of timings of a single one."""
    result = made.result()
    known = all(read.grouped for read in runs)      # else processes are not spoken of
    units = "processes" if known else "times"
    said = [text.replace("arm", "file", 1).replace("clusters", units).replace(
        "give a support, or wait for more", "run more") for text in result.warnings]
    for name, read in zip(result.names, runs, strict=True):
        processes = read.processes
        if not read.grouped:
            said.append(f"file {name!r}: nothing says which times share a process, so each counts as independent; "
                        f"processes differ, so run several, with pyperf")
        elif len(processes) < made.first_look:
            said.append(f"file {name!r}: it has times of {counted(len(processes), 'process')}, and nothing is said "
                        f"before {made.first_look}; run more of them, {FEW_PROCESSES} if you can (pyperf --processes)")
        elif len(processes) < FEW_PROCESSES:
            said.append(f"file {name!r}: it has times of {counted(len(processes), 'process')}; with fewer than "
                        f"{FEW_PROCESSES} the promise rests on their means being nearly normal")
    note = result.note.replace("clusters of each arm", f"{units} of each file")
    return dataclasses.replace(result, warnings=tuple(said), note=note, words=(*WORDS, "process" if known else ""))


def _arm_names(files: list[Path]) -> list[str]:
    """The files' names, as short as tells them apart."""
    for names in ([path.stem for path in files], [str(path) for path in files]):
        if len(set(names)) == len(names):
            return names
    raise ValueError("a file is given twice; each can be used once")


@dataclasses.dataclass(frozen=True)
class _Timings:
    """What one file holds of one benchmark."""

    processes: list[list[float]]    # the timings of each process
    unit: str                       # of pyperf: "second", "byte" or "integer"
    grouped: bool                   # whether the file says which timings share a process


def timings(path: Path) -> dict[str, _Timings]:
    """Timings of each benchmark in a file of pyperf's JSON, also compressed, or of pytest-benchmark's.

    Warm-ups and the runs that calibrate a benchmark of pyperf are left out. pytest-benchmark keeps timings of one
    process, with ``--benchmark-save-data``; each stands alone then.
    """
    if path.is_dir():
        raise ValueError(f"{path} is a folder; a JSON file of pyperf or pytest-benchmark is needed")
    try:
        written = path.read_bytes()
        held = json.loads(gzip.decompress(written) if written.startswith(GZIP) else written)
    except (ValueError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} is no JSON file, as pyperf and pytest-benchmark save them: {error}") from None
    found: dict[str, _Timings] = {}
    benchmarks = held.get("benchmarks") if isinstance(held, dict) else None
    for place, benchmark in enumerate(benchmarks if isinstance(benchmarks, list) else []):
        try:
            name, read = _one_benchmark(held, benchmark, f"benchmark {place}")
        except (AttributeError, KeyError, TypeError, ValueError):
            raise ValueError(f"{path} is damaged: benchmark {place} is not as pyperf or pytest-benchmark save one: "
                             f"\"runs\", each with \"values\", or \"stats\" with \"data\", timings in both, are needed"
                             ) from None
        if not read.processes and not read.grouped:
            raise ValueError(f"{path} holds no timings of {name!r}, only their summary; save them with "
                             f"pytest --benchmark-save-data or --benchmark-json")
        if not all(0.0 <= value < math.inf for process in read.processes for value in process):
            raise ValueError(f"{path} is damaged: a timing of {name!r} is negative, nan or infinite")
        if name in found:
            raise ValueError(f"{path} is damaged: it holds {name!r} twice")
        if read.processes:
            found[name] = read
    if not found:
        raise ValueError(f"{path} holds no timings; the JSON of pyperf (-o FILE) or of pytest-benchmark "
                         f"(--benchmark-json FILE) is needed")
    return found


def _one_benchmark(held: dict[str, Any], benchmark: dict[str, Any], unnamed: str) -> tuple[str, _Timings]:
    """Name and timings of one benchmark; pyperf keeps at the top what all benchmarks of a file share."""
    if "runs" in benchmark:
        said = held.get("metadata", {}) | benchmark.get("metadata", {})
        processes = [list(map(float, run["values"])) for run in benchmark["runs"] if run.get("values")]
        return str(said.get("name", unnamed)), _Timings(processes, str(said.get("unit", "second")), True)
    data = benchmark["stats"].get("data") or []
    name = str(benchmark.get("fullname") or benchmark.get("name") or unnamed)
    return name, _Timings([[float(value)] for value in data], "second", False)


def _page(answers: dict[str, ComparisonResult]) -> str:
    """One HTML page with every answer, and its picture where Matplotlib is installed."""
    parts = []
    for name, answer in answers.items():
        head = f"<h2>{html.escape(name)}</h2>" if name else ""
        parts.append(f"<section>{head}{answer._repr_html_()}{_picture(answer)}</section>")
    style = ("body{font-family:sans-serif;max-width:60em;margin:2em auto}table{border-collapse:collapse}"
             "th,td{padding:.2em .6em;text-align:right;border-bottom:1px solid #ddd}img{max-width:100%}")
    return (f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>fastrace compare</title>'
            f"<style>{style}</style></head><body><h1>fastrace compare</h1>{''.join(parts)}</body></html>\n")


def _picture(answer: ComparisonResult) -> str:
    """The plot as an image inside the page; empty without Matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return ""
    panels: dict[str, Any] = dict(answer._panels())
    if not len(answer.history.get("n_read", ())):
        panels.pop("history")
    figure = Figure(layout="tight", figsize=(9.0, answer._height() * len(panels)))
    for k, draw in enumerate(panels.values()):
        draw(figure.add_subplot(len(panels), 1, k + 1))
    held = io.BytesIO()
    figure.savefig(held, format="png", dpi=100)
    return f'<p><img alt="intervals" src="data:image/png;base64,{base64.b64encode(held.getvalue()).decode()}"></p>'
