"""Chains over tall data beside their rivals: effective draws a CPU second, with and without set-up, one table.

    python bench/chains.py [ROW ...] [--only WAY] [--limit SECONDS]
    python bench/chains.py --list

A row is a posterior, or a mixture. Ours and each rival that is installed run one after the other, each in a
process of its own with one thread; models and data are those of `bench/benchmarks`. Effective draws are the
smallest number over all parameters, scales included. A goal is the row's: a way of ours that misses it stands
beside the one that reaches it, where one does. "Set-up" is all that comes before the first step: modes,
expansions, bounds, pilots; of NumPyro, PyMC and nutpie compiling and warm-up. PyTensor starts with the compiler
that it finds, without PYTENSOR_FLAGS, and with no code that it compiled before. "Draws" of ours holds tuning and
the checks of the draws. A rival that has no answer after `--limit` CPU seconds (300 by default) is stopped, and
the table says so. A row where a rival is faster, set-up left out or counted, is marked. Prints Markdown, and
writes `bench/results/chains.csv`; rows that are not asked for stay as they are there, and so do ways beside those
of `--only`, which are "ours", "rivals", or one by its name. All rows take about an hour and three quarters.
"""

# ruff: noqa: E402    (threads are limited before NumPy and JAX are imported)

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false --xla_force_host_platform_device_count=1"
os.environ["JAX_PLATFORMS"] = "cpu"

import argparse
import csv
import json
import math
import pathlib
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))

from benchmarks import _peers, hierarchies, mixtures, rare, wide, without_chains
from benchmarks import mcmc as headline

from fastrace import mcmc

LONG_ENOUGH = 0.5  # seconds of sweeps, which take 20 microseconds and more
FILE = HERE / "results" / "chains.csv"
PYMC = {"PyMC NUTS": _peers.by_pymc, "nutpie": _peers.by_nutpie}
NUTS = ("NumPyro NUTS", *PYMC)
HMCECS = "NumPyro HMCECS, 200 rows"
COLUMNS = ("row", "way", "ours", "set_up_seconds", "seconds", "effective", "per_second", "per_second_with_set_up",
           "milliseconds", "goal", "words")
Figure = dict[str, Any]  # "effective" and "seconds", or a "rate", or "milliseconds" a sweep; "set_up", "words"


# Ways to draw. Each gives the effective draws, the seconds of set-up and of the draws, and words on it.


def chains(make: Callable[[], Any], n_draws: int = 4000, kept: list[Any] | None = None) -> Figure:
    """Two chains of a kernel, or of what `mcmc.sample` chooses for a model; set-up ends with the first step.

    `kept` is given the trace.
    """
    begun: list[float] = []

    def first(chain: int, steps: Any) -> None:
        if not begun:
            begun.append(_peers.cpu())

    start = _peers.cpu()
    trace = mcmc.sample(make(), n_draws=n_draws, n_chains=2, rng=1, threads=1, callback=first)
    end = _peers.cpu()
    if kept is not None:
        kept.append(trace)
    words = f"{trace.kernel['kernel']}, R-hat {trace.rhat().max():.3f}, {trace.rows.mean():,.0f} rows a step"
    return {"effective": trace.ess().min(), "set_up": begun[0] - start, "seconds": end - begun[0], "words": words}


def laplace(make: Callable[[], Any]) -> Figure:
    """Weighted draws without a chain; all of it counts as draws, since the passes for weights are most of it."""
    of, start = make(), time.process_time()
    answer = mcmc.laplace(of, 1000, rng=1)
    return {
        "effective": answer.ess,
        "set_up": 0.0,
        "seconds": time.process_time() - start,
        "words": f"Pareto k {answer.pareto_k:.2f}",
    }


def given(found: tuple[float, float, float], words: str = "") -> Figure:
    return {"effective": found[0], "set_up": found[1], "seconds": found[2], "words": words}


def table_of(name: str) -> tuple[Any, Any, dict[str, Any]]:
    """Columns, outcomes, and the options of `_peers.regression` that give it priors like ours."""
    if name == "headline":
        X, y = headline.logistic(100_000, 10)
        options = {"sd": 10.0}
    elif name in rare.TABLES:
        X, y = rare.table(name)
        options = {"sd": rare.PRIOR_SD}
    elif "positives" in name:
        X, y = without_chains.table(name)
        options = {}
    elif name.isdecimal():
        X, y = wide.table(int(name))
        options = {}
    else:
        X, y, options = hierarchies.table_of(name)
        if name == "horseshoe":
            options["spread"] = 1.0 / math.sqrt(y.mean() * (1.0 - y.mean()))
        elif name == "unknown sigma":
            options["spread"] = float(y.std())
    return X, y.astype(np.float64 if name == "unknown sigma" else np.int32), options


def by_peer(peer: str, name: str) -> Figure:
    """A sampler of another library on a regression without groups."""
    X, y, options = table_of(name)
    n_tune, n_draws = (300, 200) if name == "horseshoe" else (200, 500)
    words = f"{n_tune} steps of warm-up, {n_draws} draws"
    if peer == "NumPyro NUTS":
        return given(_peers.by_numpyro(_peers.regression(**options), (X, y), n_tune, n_draws), words)
    if peer == HMCECS:
        if name == "headline":
            of = near_normal()
        else:
            of = without_chains.model(name) if "positives" in name else hierarchies.model_of(name)
        return given(_peers.by_hmcecs(X, y, of.reference().theta_hat, **options), "not exact")
    return given(PYMC[peer](_peers.pymc_regression(X, y, **options), n_tune, n_draws), words)


def by_peer_of_groups(peer: str, name: str, centred: bool = True) -> Figure:
    """The same with intercepts that vary; those of PyMC and nutpie by one factor."""
    n_tune, n_draws = (40, 20) if "crossed" in name else (300, 200)
    words = f"{'' if centred else 'not '}centred, {n_tune} steps of warm-up, {n_draws} draws"
    if peer == "NumPyro NUTS":
        return given(hierarchies.by_nuts(name, n_draws, n_tune, centred), words)
    X, y, (code,) = hierarchies.varying_intercepts(name, hierarchies.N_ROWS)
    return given(PYMC[peer](_peers.pymc_regression(X, y, code=code, centred=centred), n_tune, n_draws), words)


def positives(name: str) -> Callable[[], Any]:
    return partial(mcmc.PoissonMinibatchMetropolis, without_chains.model(name))


def wide_by(kind: str, dim: int) -> Figure:
    """By the errors of averages over batches and by autocorrelation: the least of all, of means, squares and tails."""
    start = time.process_time()
    wide.model(dim)
    set_up, n = time.process_time() - start, {200: 24, 500: 10}[dim]
    found = wide.measured(kind, dim, n)
    return {
        "rate": min(found),
        "set_up": set_up,
        "words": f"means {found[0]:,.0f}, squares {found[1]:,.0f}, lower twentieths {found[2]:,.0f}; "
        f"by autocorrelation {found[3]:,.0f}, of squares {found[4]:,.0f}",
    }


def wide_chains(dim: int) -> Figure:
    """By autocorrelation as elsewhere: the least of all parameters and their squares."""
    of, _ = wide.model(dim)
    return with_squares(lambda: of, 20_000)


def with_squares(make: Callable[[], Any], n_draws: int) -> Figure:
    """Chains, and the least effective draws of all parameters and of their squares."""
    kept: list[Any] = []
    found = chains(make, n_draws, kept)
    least = rare.effective_of_squares(kept[0].draws)
    words = f"{found['words']}; of squares {least / found['seconds']:,.0f}"
    return found | {"effective": min(found["effective"], least), "words": words}


def labels(kernel: str, problem: str) -> Figure:
    bench, start = mixtures.Labels(), time.process_time()
    bench.setup(kernel, problem)
    set_up = time.process_time() - start
    took, runs, start = 0.0, 0, time.process_time()
    while took < LONG_ENOUGH:
        bench.run()
        took, runs = time.process_time() - start, runs + 1
    took *= 1e3 / (runs * bench.n)
    words = f"accepted {bench.track_acceptance(kernel, problem):.3f}" if kernel.startswith("surrogate") else ""
    return {"milliseconds": took, "set_up": set_up, "words": words}


def mixture(problem: str) -> Figure:
    bench = mixtures.Mixtures()
    bench.setup(problem)
    return {
        "milliseconds": bench.track_milliseconds_per_sweep(problem),
        "set_up": bench.seconds,
        "words": f"labels, parameters and weights; accepted {bench.track_acceptance(problem):.3f}",
    }


def softmax() -> Any:
    return mcmc.Softmax(*headline.softmax(), prior_sd=10.0)


def softmax_by_pymc(peer: str) -> Figure:
    model = _peers.pymc_classes(*headline.softmax(), 5)
    return given(PYMC[peer](model, 300, 200), "300 steps of warm-up, 200 draws")


def softmax_of_groups(n_groups: int, n_classes: int, correlated: bool = False, **options: Any) -> Any:
    X, y, codes = headline.softmax_of_groups(n_groups, n_classes, **options)
    prior = {"group": {"correlation": mcmc.LKJ(2.0)}} if correlated else None
    return mcmc.Softmax(X, y, n_classes, groups=codes, group_prior=prior)


def hmc_of_classes(n_groups: int, n_classes: int, options: dict[str, Any]) -> Figure:
    return chains(lambda: mcmc.HMC(softmax_of_groups(n_groups, n_classes, **options)), 500)


def softmax_of_groups_by_nuts(n_groups: int, n_classes: int) -> Figure:
    model, kept = _peers.classes_of_groups(n_classes, n_groups), {}
    found = _peers.by_numpyro(model, headline.softmax_of_groups(n_groups, n_classes), 300, 200, kept=kept)
    return given(found, f"not centred, 300 steps of warm-up, 200 draws, R-hat {_peers.largest_rhat(kept):.3f}")


def near_normal() -> Any:
    return mcmc.GLM(*headline.logistic(100_000, 10), prior_sd=10.0, shuffle=1)


def at_the_mode(kernel: str, bound: str | None = None) -> Figure:
    """As `benchmarks.mcmc` times it: steps from the mode on, without tuning and checks."""
    of, start = near_normal(), time.process_time()
    if bound:
        made = mcmc.RacingMetropolis(of, bound=bound, control_variate=of.reference())
    else:
        made = headline.kernel_of(kernel, of, of.reference())
    set_up = time.process_time() - start
    per_second, rows, _ = headline.Logistic().figures(made)
    return {"rate": per_second, "set_up": set_up, "words": f"{rows:.1f} rows a step; no tuning"}


def from_pymc(centred: bool) -> Figure:
    X, y, (code,) = hierarchies.varying_intercepts("50 groups", hierarchies.N_ROWS)
    model = _peers.pymc_regression(X, y, code=code, centred=centred)
    return chains(lambda: mcmc.from_pymc(model))


def memory_map(n_rows: str) -> Figure:
    """By `bench/memory_map.py`, in a process of its own."""
    done = subprocess.run(
        [sys.executable, str(HERE / "memory_map.py"), n_rows], check=True, capture_output=True, text=True
    )
    _, made, kernel, draws, rate, _, more, *_ = map(float, done.stdout.splitlines()[-1].split())
    return {
        "effective": rate * draws,
        "set_up": made + kernel,
        "seconds": draws,
        "words": f"{more:.0f} MB beside the map",
    }


# Rows.


@dataclass(frozen=True)
class Row:
    """A question, what is to be reached, and ways to it; the first ones are ours."""

    title: str
    goal: float  # effective draws a CPU second at least, or milliseconds at most
    ours: dict[str, Callable[[], Figure]]
    rivals: dict[str, Callable[[], Figure]] = field(default_factory=dict)

    @property
    def ways(self) -> dict[str, Callable[[], Figure]]:
        return self.ours | self.rivals


def peers(name: str, which: tuple[str, ...] = NUTS) -> dict[str, Callable[[], Figure]]:
    by = by_peer_of_groups if name in hierarchies.GROUPS else by_peer
    return {peer: partial(by, peer, name) for peer in which}


def hierarchy(title: str, name: str, goal: float, n_draws: int = 4000) -> Row:
    of = partial(hierarchies.model_of, name)
    rivals: dict[str, Callable[[], Figure]] = {}
    if name in hierarchies.GROUPS:
        if "crossed" not in name:
            rivals["mcmc.laplace"] = partial(laplace, of)
        rivals |= peers(name, NUTS if name == "50 groups" else NUTS[:1])
    else:
        rivals |= peers(name, (*NUTS, HMCECS) if name == "laplace prior" else NUTS)
    return Row(title, goal, {"mcmc.sample": partial(chains, of, n_draws)}, rivals)


def hard(title: str, name: str) -> Row:
    """Groups that ours is weak at, without a goal."""
    of, tiny = partial(hierarchies.model_of, name), name == "200 groups of 10 rows"
    return Row(
        title,
        math.nan,
        {"mcmc.sample": partial(chains, of)} | ({"mcmc.HMC": partial(chains, lambda: mcmc.HMC(of()))} if tiny else {}),
        {
            "mcmc.laplace": partial(laplace, of),
            "NumPyro NUTS": partial(by_peer_of_groups, "NumPyro NUTS", name),
            "NumPyro NUTS, not centred": partial(by_peer_of_groups, "NumPyro NUTS", name, False),
        },
    )


def few_positives(count: int, goal: float) -> Row:
    name = f"{count} positives"
    return Row(
        f"logistic, {count} positives in 1e5 rows, d = 10, exact",
        goal,
        {
            "mcmc.sample": partial(chains, partial(without_chains.model, name), 20_000),
            "PoissonMinibatchMetropolis": partial(chains, positives(name), 20_000),
        },
        {"mcmc.laplace": partial(laplace, partial(without_chains.model, name))} | peers(name, (*NUTS, HMCECS)),
    )


def rare_columns(name: str) -> Row:
    """What `mcmc.sample` took before `HMC` is a rival. By the least of parameters and squares, but for NUTS."""
    dim, of = rare.TABLES[name][1], partial(rare.model, name)
    batches = {"proposal": "independent", "walk_share": 0.001}
    return Row(
        f"logistic, {name}, some of rare ones",
        math.nan,
        {"mcmc.sample": partial(with_squares, of, 2000), "HMC": partial(with_squares, lambda: mcmc.HMC(of()), 2000)},
        {
            "Metropolis(frames=True)": partial(
                with_squares, lambda: mcmc.Metropolis(of(), batch=2 * dim, frames=True, **batches), 2000),
            "PoissonMinibatchMetropolis(batch=256)": partial(
                with_squares, lambda: mcmc.PoissonMinibatchMetropolis(of(), batch=256, **batches), 2000),
            "mcmc.laplace": partial(laplace, of),
            "HMC on a page of NumPy": partial(by_page_of_numpy, name),
        }
        | peers(name, ("NumPyro NUTS", "nutpie")),
    )


def by_page_of_numpy(name: str) -> Figure:
    effective, squares, set_up, seconds = rare.by_numpy(name)
    words = f"{rare.CHAINS} chains, {rare.TUNED} steps of warm-up, {rare.KEPT} draws; "
    words += f"of squares {squares / seconds:,.0f}, of parameters {effective / seconds:,.0f}"
    return given((min(effective, squares), set_up, seconds), words)


def of_labels(problem: str, title: str) -> Row:
    return Row(
        title,
        1.0,
        {"SurrogateGibbs": partial(labels, "surrogate", problem)},
        {"all rows, NumPy": partial(labels, "numpy", problem), "RacingGibbs": partial(labels, "race", problem)},
    )


ROWS = {
    "groups-50": hierarchy("logistic, 2e5 rows, 7 slopes, 50 intercepts", "50 groups", 10_000),
    "groups-200": hierarchy("the same, 200 intercepts", "200 groups", 2_000),
    "groups-empty": hierarchy("the same, 200 intercepts, many without rows", "200 groups, many empty", 2_000),
    "crossed": hierarchy("logistic, 1e6 rows, 1,000 + 200 crossed intercepts", "1,000 + 200 crossed groups", 50),
    "horseshoe": hierarchy("horseshoe logistic, 2e4 rows, 50 columns", "horseshoe", 1_000, 10_000),
    "laplace": hierarchy("Laplace prior, logistic, 1e5 rows, d = 10", "laplace prior", 50_000, 40_000),
    "poisson": hierarchy("Poisson with offset, 1e5 rows, d = 10", "poisson with offset", 100_000, 40_000),
    "negative-binomial": hierarchy("negative binomial, 1e5 rows, d = 10 + 1", "negative binomial", 20_000, 10_000),
    "sigma": hierarchy("Gaussian with unknown sigma, 1e5 rows, d = 10 + 1", "unknown sigma", 100_000, 40_000),
    "positives-20": few_positives(20, 2_000),
    "positives-100": few_positives(100, 10_000),
    "positives-500": few_positives(500, 150_000),
    **{
        f"wide-{dim}": Row(
            f"logistic, 1e5 rows, d = {dim}",
            goal,
            {
                "mcmc.sample": partial(wide_chains, dim),
                "PoissonMinibatchMetropolis(batch=256)": partial(wide_by, "minibatches", dim),
                "Metropolis(frames=True)": partial(wide_by, "frames of pairs", dim),
            },
            {"mcmc.laplace, batches by BLAS": partial(wide_by, "laplace", dim)} | peers(str(dim), NUTS[:1]),
        )
        for dim, goal in ((200, 1_500), (500, 300))
    },
    "rare-100": rare_columns("4,000 rows, 100 columns"),
    "rare-120": rare_columns("10,000 rows, 120 columns"),
    **{
        f"labels-{apart}": of_labels(
            f"logistic {apart}", f"labels of 100 users x 1e4 events, 20 logistic regressions, d = 20, {apart} apart"
        )
        for apart in mixtures.APART["logistic"]
    },
    **{
        f"labels-t-{apart}": of_labels(
            f"student-t {apart}", f"labels of 60 groups x 1e4, 8 Student-t regressions, d = 5, {apart} apart"
        )
        for apart in mixtures.APART["student-t"]
    },
    "mixture": Row(
        "whole mixture of 20 logistic regressions, .03 apart",
        5.0,
        {"SurrogateGibbs": partial(mixture, "logistic 0.03")},
    ),
    "softmax": Row(
        "softmax, 1e5 rows, 5 classes x 20 columns",
        15_000,
        {
            "mcmc.sample": partial(chains, softmax, 10_000),
            "SurrogateMetropolis": partial(chains, lambda: mcmc.SurrogateMetropolis(softmax()), 10_000),
        },
        {
            "mcmc.laplace": partial(laplace, softmax),
            "NumPyro NUTS": lambda: given(
                _peers.by_numpyro(_peers.classes(5), headline.softmax(), 300, 200), "300 steps of warm-up, 200 draws"
            ),
        }
        | {peer: partial(softmax_by_pymc, peer) for peer in PYMC},
    ),
    **{
        f"softmax-{n_groups}-groups": Row(
            f"softmax, 1e5 rows, {n_groups:,} groups x {n_classes} classes",
            math.nan,
            {"mcmc.sample": partial(chains, partial(softmax_of_groups, n_groups, n_classes), 10_000)},
            {"NumPyro NUTS": partial(softmax_of_groups_by_nuts, n_groups, n_classes)},
        )
        for n_groups, n_classes in ((200, 5), (1000, 3))
    },
    **{
        f"softmax-{n_groups}-{name}": Row(
            f"softmax, {n_rows:,} rows, {n_groups:,} groups x {n_classes} classes, {words}",
            math.nan,
            {
                "mcmc.sample": partial(chains, partial(softmax_of_groups, n_groups, n_classes, **options), n_draws),
                "HMC": partial(hmc_of_classes, n_groups, n_classes, options),
            },
            {},
        )
        for n_groups, n_classes, n_rows, n_draws, name, words, options in (
            (200, 5, 100_000, 10_000, "correlated", "LKJ", {"correlated": True}),
            (199, 3, 6000, 4000, "skewed", "of very different size", {"n_rows": 6000, "sd": 1.5, "skewed": True}),
            (199, 5, 6000, 4000, "correlated-skewed", "the same with LKJ",
             {"n_rows": 6000, "sd": 1.0, "skewed": True, "correlated": True}),
        )
    },
    "headline": Row(
        "near-normal logistic, 1e5 rows, d = 10, exact",
        1_000_000,
        {"PoissonMinibatchMetropolis": partial(at_the_mode, "poisson")},
        {"mcmc.laplace": partial(laplace, near_normal)} | peers("headline", (*NUTS, HMCECS)),
    ),
    "headline-race": Row(
        "the same, by races, wrong with probability .05",
        270_000,
        {
            "RacingMetropolis": partial(at_the_mode, "race"),
            'RacingMetropolis(bound="normal")': partial(at_the_mode, "race", "normal"),
        },
    ),
    "pymc": Row(
        "the first row as a PyMC model, not centred, unchanged",
        1_000,
        {"mcmc.sample(from_pymc)": partial(from_pymc, False), "the same, centred": partial(from_pymc, True)},
        {peer: partial(by_peer_of_groups, peer, "50 groups", False) for peer in PYMC},
    ),
    "small-groups": hard("Poisson, 6,000 rows, 300 groups of 20", "300 groups of 20 rows"),
    "rare-groups": hard("logistic, 6,000 rows, 100 groups of 60, 1 % positives", "100 groups of 60 rows"),
    "tiny-groups": hard("logistic, 2,000 rows, 200 groups of 10", "200 groups of 10 rows"),
    "nested": hard("Poisson, 2e5 rows, 15 groups of 3 nested ones", hierarchies.NESTED),
    "memory-map": Row(
        "the first row's model, 1e7 rows of a float32 memory map",
        20_000,
        {"SurrogateMetropolis": partial(memory_map, "1e7")},
    ),
}


# One way in one process, and the table.


def one(name: str, way: str) -> None:
    """Print the figure of one way as JSON."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = ROWS[name].ways[way]()
    ours = [str(w.message) for w in told if w.category is UserWarning and "R-hat" in str(w.message)]
    if ours:
        found["words"] += "; warned of its R-hat"
    print(json.dumps({key: value if isinstance(value, str) else float(value) for key, value in found.items()}))


def run(name: str, way: str, limit: int) -> Figure:
    """The figure of one way, or the words that say why there is none."""
    done, stopped = _peers.limited([sys.executable, __file__, "--one", name, way], limit)
    if stopped:
        return {"words": f"no answer in {limit} CPU seconds"}
    if done.returncode:
        error = (done.stderr.strip() or f"ended by signal {-done.returncode}").splitlines()[-1]
        return {"words": "not installed" if "ModuleNotFoundError" in error or "ImportError" in error else error[:100]}
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def rates(found: Figure) -> tuple[float, float]:
    """Effective draws a second without and with set-up, or minus the milliseconds; nan where there is no figure."""
    if "effective" in found:
        return found["effective"] / found["seconds"], found["effective"] / (found["seconds"] + found["set_up"])
    return found.get("rate", -found.get("milliseconds", math.nan)), math.nan


def shown(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:,.0f}" if abs(value) >= 10.0 else f"{value:.2g}"


def table(name: str, found: dict[str, Figure]) -> list[list[str]]:
    """Lines of the printed table: ours, then rivals; a mark where a rival is faster than all of ours."""
    row, lines = ROWS[name], []
    ours = [way for way in row.ours if way in found]
    best = [max((rates(found[way])[k] for way in ours), default=math.nan) for k in (0, 1)]
    by_sweeps = any("milliseconds" in figure for figure in found.values())
    goal = -row.goal if by_sweeps else row.goal
    reaches = next((way for way in ours if rates(found[way])[0] >= goal), "")
    for way, figure in found.items():
        values = rates(figure)
        marks = []
        if way in row.ours:
            if not math.isnan(goal):
                word = "reached" if values[0] >= goal else f"by {reaches}" if reaches else "MISSED"
                marks = [f"goal {shown(row.goal)}{' ms' * by_sweeps}: {word}"]
        elif values[0] > best[0] or values[1] > best[1]:
            marks = ["**faster than ours" + ("**" if values[0] > best[0] else ", set-up counted**")]
        cells = [f"{-values[0]:.3g} ms a sweep", ""] if by_sweeps else [shown(v) for v in values]
        cells = ["-", "-"] if math.isnan(values[0]) else cells
        set_up = f"{figure['set_up']:.2f}" if "set_up" in figure else "-"
        words = "; ".join([*marks, *filter(None, [figure["words"]])])
        lines.append([row.title if way == next(iter(found)) else "", way, set_up, *cells, words])
    return lines


def records(name: str, found: dict[str, Figure]) -> list[dict[str, Any]]:
    out = []
    for way, figure in found.items():
        rate = ("", "") if "milliseconds" in figure else ["" if math.isnan(x) else x for x in rates(figure)]
        out.append(
            {
                "row": name,
                "way": way,
                "ours": int(way in ROWS[name].ours),
                "set_up_seconds": figure.get("set_up", ""),
                "seconds": figure.get("seconds", ""),
                "effective": figure.get("effective", ""),
                "per_second": rate[0],
                "per_second_with_set_up": rate[1],
                "milliseconds": figure.get("milliseconds", ""),
                "goal": "" if math.isnan(ROWS[name].goal) else ROWS[name].goal,
                "words": figure["words"],
            }
        )
    return [
        {key: f"{value:.9g}" if isinstance(value, float) else value for key, value in line.items()} for line in out
    ]


def kept_figures(name: str) -> dict[str, Figure]:
    """Those of a row in the file, by way."""
    out: dict[str, Figure] = {}
    for line in in_file().get(name, []):
        numbers = {"effective": line["effective"], "seconds": line["seconds"], "set_up": line["set_up_seconds"],
                   "milliseconds": line["milliseconds"]}
        if not line["effective"]:
            numbers["rate"] = line["per_second"]
        out[line["way"]] = {key: float(value) for key, value in numbers.items() if value} | {"words": line["words"]}
    return out


def in_file() -> dict[str, list[dict[str, Any]]]:
    kept: dict[str, list[dict[str, Any]]] = {}
    if FILE.exists():
        with FILE.open(newline="") as file:
            for line in csv.DictReader(file):
                kept.setdefault(line["row"], []).append(line)
    return kept


def write(new: dict[str, list[dict[str, Any]]]) -> None:
    """Rows in their order; those that were not run stay as they are in the file."""
    kept = in_file() | new
    with FILE.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for name in ROWS:
            writer.writerows(kept.get(name, []))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help="names of rows; all by default")
    parser.add_argument("--only", action="append", metavar="WAY", help='"ours", "rivals" or a way; more than once')
    parser.add_argument("--limit", type=int, default=300, help="CPU seconds of each way")
    parser.add_argument("--list", action="store_true", help="show the names of the rows")
    parser.add_argument("--one", nargs=2, metavar=("ROW", "WAY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        return one(*options.one)
    if options.list:
        return print("\n".join(f"{name:20} {row.title}" for name, row in ROWS.items()))
    unknown = [name for name in options.rows if name not in ROWS]
    if unknown:
        parser.error(f"there is no row {unknown[0]!r}; --list shows their names")
    print(
        "| posterior | way | set-up, CPU s | a CPU second | set-up counted | |\n|---|---|---|---|---|---|", flush=True
    )
    for name in options.rows or ROWS:
        row, before = ROWS[name], {} if options.only is None else kept_figures(name)
        found = {}
        for way in row.ways:
            asked = options.only is None or {way, "ours" if way in row.ours else "rivals"} & {*options.only}
            if asked:
                found[way] = run(name, way, options.limit)
            elif way in before:
                found[way] = before[way]
        for line in table(name, found):
            print("| " + " | ".join(line) + " |", flush=True)
        write({name: records(name, found)})
    return None


if __name__ == "__main__":
    main()
