"""Where the time of chains goes, for ways of `bench/chains.py` that miss their goal or missed it: profiles and floors.

    python bench/profile_chains.py [ROW ...]

A chain of each row runs for some seconds under `perf` (of Linux; only its own loops count, set-up does not). Columns:
microseconds a step, rows a step and effective draws a step; the shares of rows' terms, random numbers and proposals in
the loops; two floors, what the same numbers of rows take in C (`floor.c`, needs gcc), drawn with the same probabilities
or as windows, full passes included: to fetch them and to multiply them with the parameters of both states, and to take
a logistic term of each product besides, without bounds, expansions and decisions; and the microseconds a step that the
goal asks for. Steps and floors take turns; all three are the best of them, as other work only adds. Prints Markdown.
"""

# ruff: noqa: E402    (threads are limited before NumPy is imported)

from __future__ import annotations

import argparse
import ctypes
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from benchmarks import mcmc as headline
from benchmarks import without_chains

import chains
from fastrace import mcmc

SECONDS = 2.0
N_FLOOR, TURNS = 20_000, 8  # steps whose rows are timed in C, and how often, beside as many of the kernel
# Names of functions or modules, in the order they are tried.
PARTS = {
    "random numbers": ("random_", "pcg64", "_generator"),
    "rows' terms": ("likelihoods", "_softmax", "_minibatch", "_seen", "control_variates", "sources", "_weighted",
                    "_core", "_judge", "_reading", "predict", "openblas", "gemm", "gemv", "_row_order"),
    "proposals": ("_proposal", "lower_product", "_nested_normal", "_arrow", "_hamiltonian", "_expanded", "_chain",
                  "_surrogate", "_priors"),
}


def minibatch(model: Any) -> Any:
    return mcmc.PoissonMinibatchMetropolis(model)


def race(bound: str) -> Any:
    of = chains.near_normal()
    return mcmc.RacingMetropolis(of, control_variate=of.reference(), bound=bound)


def near_normal() -> Any:
    of = chains.near_normal()
    return headline.kernel_of("poisson", of, of.reference())


# Kernel, goal, columns, products of a row: two states, for softmax of four classes each.
ROWS = {
    "500 positives": (lambda: minibatch(without_chains.model("500 positives")), 150_000, 10, 2),
    "softmax, SurrogateMetropolis": (lambda: mcmc.SurrogateMetropolis(chains.softmax()), 15_000, 20, 8),
    "near-normal, exact": (near_normal, 1_000_000, 10, 2),
    "near-normal, race": (lambda: race("auto"), 270_000, 10, 2),
    'near-normal, race, bound="normal"': (lambda: race("normal"), 270_000, 10, 2),
}


def part_of(line: str) -> str:
    return next((part for part, names in PARTS.items() if any(name in line for name in names)), "the rest")


def profiled(kernel: Any, state: Any, rng: np.random.Generator) -> tuple[list[Any], dict[str, float]]:
    """Steps, and the share of each part."""
    with tempfile.TemporaryDirectory() as folder:
        file = str(pathlib.Path(folder) / "perf")
        watch = subprocess.Popen(["perf", "record", "-q", "-F", "997", "-o", file, "-p", str(os.getpid())],
                                 stderr=subprocess.DEVNULL)
        time.sleep(1.0)
        parts, start = [], time.process_time()
        while time.process_time() - start < SECONDS:
            state, steps = kernel.run(rng, state, 20_000)
            parts.append(steps)
        watch.send_signal(signal.SIGINT)
        watch.wait()
        report = subprocess.run(["perf", "report", "-i", file, "--stdio", "--no-children", "--sort", "dso,symbol"],
                                capture_output=True, text=True, check=True).stdout
    shares: dict[str, float] = {}
    for line in report.splitlines():
        if line.strip() and not line.startswith("#"):
            part = part_of(line)
            shares[part] = shares.get(part, 0.0) + float(line.split("%")[0])
    return parts, shares


class Floor:
    """The rows of recorded steps of a kernel, fetched and multiplied in C, and a term of each product."""

    def __init__(self, kernel: Any, counts: np.ndarray, dim: int, products: int, folder: str) -> None:
        library = str(pathlib.Path(folder) / "floor.so")
        subprocess.run(["gcc", "-O3", "-march=native", "-ffast-math", "-shared", "-fPIC", f"-DDIM={dim}",
                        f"-DSTATES={products}", "-o", library, str(pathlib.Path(__file__).with_name("floor.c")),
                        "-lm"], check=True)
        self.function = ctypes.CDLL(library).steps
        self.function.restype = ctypes.c_double
        rng = np.random.default_rng(1)
        n = kernel.model.n_rows
        self.X, self.theta = rng.normal(size=(n, dim)), rng.normal(size=(products, dim))
        counts = counts[:N_FLOOR]
        if getattr(kernel, "_table", None) is not None:
            weights = kernel._innermost
            rows = rng.choice(n, counts.sum(), p=weights / weights.sum())
        else:  # windows of rows in random order
            rows = np.concatenate([(rng.integers(n) + np.arange(count)) % n for count in counts])
        first = np.cumsum(counts) - counts
        for t in np.flatnonzero(counts >= n):  # a full pass, in order
            rows[first[t] : first[t] + n] = np.arange(n)
        self.rows, self.ends = rows.astype(np.int64), np.cumsum(counts).astype(np.int64)

    def seconds(self, terms: bool) -> float:
        """CPU seconds a step."""
        start = time.process_time()
        self.function(*(ctypes.c_void_p(x.ctypes.data) for x in (self.X, self.rows, self.ends)),
                      ctypes.c_int64(len(self.ends)), ctypes.c_void_p(self.theta.ctypes.data), ctypes.c_int(terms))
        return (time.process_time() - start) / len(self.ends)


def best_of_turns(kernel: Any, state: Any, rng: np.random.Generator, floor: Floor) -> tuple[float, float, float]:
    """CPU seconds a step, of the kernel and of its two floors."""
    found = []
    for _ in range(TURNS):
        start = time.process_time()
        state, _ = kernel.run(rng, state, N_FLOOR)
        own = (time.process_time() - start) / N_FLOOR
        found.append((own, floor.seconds(False), floor.seconds(True)))
    own, products, terms = (min(column) for column in zip(*found, strict=True))
    return own, products, terms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(ROWS)}; all by default")
    shown = ("rows' terms", "random numbers", "proposals", "the rest")
    print("| row | us a step | rows a step | effective draws a step | rows' terms | random numbers | proposals | "
          "the rest | floor: rows in C, us | rows and terms | goal, us a step |\n" + "|---" * 11 + "|", flush=True)
    for name in parser.parse_args().rows or ROWS:
        make, goal, dim, products = ROWS[name]
        kernel, rng = make(), np.random.default_rng(1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            state = mcmc.sample(kernel, n_draws=200, n_chains=1, rng=1).states[0]
        parts, shares = profiled(kernel, state, rng)
        draws = np.concatenate([steps.draws for steps in parts])
        counts = np.concatenate([steps.rows for steps in parts])
        ess = min(mcmc.effective_sample_size(draws[:, j]) for j in range(draws.shape[1])) / len(draws)
        with tempfile.TemporaryDirectory() as folder:
            own, *least = best_of_turns(kernel, state, rng, Floor(kernel, counts, dim, products, folder))
        cells = [f"{1e6 * own:.2f}", f"{counts.mean():.1f}", f"{ess:.3f}"]
        cells += [f"{shares.get(part, 0.0):.0f} %" for part in shown]
        cells += [f"{1e6 * x:.2f}" for x in (*least, ess / goal)]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
