"""Where the time of chains goes, for the rows of `bench/chains.py` that miss their goal: a profile and a floor.

    python bench/profile_chains.py [ROW ...]

A chain of each row runs for some seconds under `perf` (of Linux; only its own loops count, set-up does not). Columns:
microseconds a step, rows a step and effective draws a step; the shares of rows' terms, random numbers and proposals in
the loops; what the same rows cost NumPy, `X[rows] @ theta` with rows at random, which has neither bounds nor decisions;
and the microseconds a step that the goal asks for. Prints Markdown.
"""

# ruff: noqa: E402    (threads are limited before NumPy is imported)

from __future__ import annotations

import argparse
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

SECONDS = 6.0
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


ROWS = {
    "500 positives": (lambda: minibatch(without_chains.model("500 positives")), 150_000, 10),
    "softmax": (lambda: minibatch(chains.softmax()), 15_000, 20),
    "softmax, SurrogateMetropolis": (lambda: mcmc.SurrogateMetropolis(chains.softmax()), 15_000, 20),
    "near-normal, exact": (near_normal, 1_000_000, 10),
    "near-normal, race": (lambda: race("auto"), 270_000, 10),
    'near-normal, race, bound="normal"': (lambda: race("normal"), 270_000, 10),
}


def part_of(line: str) -> str:
    return next((part for part, names in PARTS.items() if any(name in line for name in names)), "the rest")


def profiled(kernel: Any, state: Any, rng: np.random.Generator) -> tuple[list[Any], float, dict[str, float]]:
    """Steps, CPU seconds, and the share of each part."""
    with tempfile.TemporaryDirectory() as folder:
        file = str(pathlib.Path(folder) / "perf")
        watch = subprocess.Popen(["perf", "record", "-q", "-F", "997", "-o", file, "-p", str(os.getpid())],
                                 stderr=subprocess.DEVNULL)
        time.sleep(1.0)
        parts, start = [], time.process_time()
        while time.process_time() - start < SECONDS:
            state, steps = kernel.run(rng, state, 20_000)
            parts.append(steps)
        spent = time.process_time() - start
        watch.send_signal(signal.SIGINT)
        watch.wait()
        report = subprocess.run(["perf", "report", "-i", file, "--stdio", "--no-children", "--sort", "dso,symbol"],
                                capture_output=True, text=True, check=True).stdout
    shares: dict[str, float] = {}
    for line in report.splitlines():
        if line.strip() and not line.startswith("#"):
            part = part_of(line)
            shares[part] = shares.get(part, 0.0) + float(line.split("%")[0])
    return parts, spent, shares


def by_numpy(n_rows: float, dim: int) -> float:
    """Microseconds of a gather and a product for so many rows of 1e5, at random."""
    rng = np.random.default_rng(1)
    X, theta = rng.normal(size=(100_000, dim)), rng.normal(size=dim)
    n = max(1, round(n_rows))
    picks = rng.integers(len(X), size=(max(20, 200_000 // n), n))
    start = time.process_time()
    for rows in picks:
        X[rows] @ theta
    return 1e6 * (time.process_time() - start) / len(picks) * n_rows / n


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(ROWS)}; all by default")
    shown = ("rows' terms", "random numbers", "proposals", "the rest")
    print("| row | us a step | rows a step | effective draws a step | rows' terms | random numbers | proposals | "
          "the rest | the same rows by NumPy, us | goal, us a step |\n" + "|---" * 10 + "|", flush=True)
    for name in parser.parse_args().rows or ROWS:
        make, goal, dim = ROWS[name]
        kernel, rng = make(), np.random.default_rng(1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            state = mcmc.sample(kernel, n_draws=200, n_chains=1, rng=1).states[0]
        parts, spent, shares = profiled(kernel, state, rng)
        draws = np.concatenate([steps.draws for steps in parts])
        rows = float(np.concatenate([steps.rows for steps in parts]).mean())
        ess = min(mcmc.effective_sample_size(draws[:, j]) for j in range(draws.shape[1])) / len(draws)
        cells = [f"{1e6 * spent / len(draws):.2f}", f"{rows:.1f}", f"{ess:.3f}"]
        cells += [f"{shares.get(part, 0.0):.0f} %" for part in shown]
        cells += [f"{by_numpy(rows, dim):.2f}", f"{1e6 * ess / goal:.2f}"]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
