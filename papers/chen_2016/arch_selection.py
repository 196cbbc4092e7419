"""Which order of an ARCH model? Chains that read few returns, as in Figure 2 of Chen & Ghahramani (2016).

    python -m papers.chen_2016.arch_selection --quick

Returns have Student-t errors and a variance that is linear in the squares of the last q returns; q is one of 5, 10,
..., 30, and it and the parameters of all models are sampled together (Carlin & Chib 1995), pseudo-priors being the
normal approximations at the modes in softplus coordinates. A step draws q by a race of Gumbel-perturbed models, moves
the parameters of model q by stochastic-gradient Langevin proposals that a race accepts, and draws the parameters of the
others from their pseudo-priors. A first phase tunes prior weights of the models by the Wang-Landau algorithm, and
thereby estimates their posterior; a second one holds them fixed.

Four samplers: ``exact`` reads all returns; ``binned`` races what second-order expansions about the means of 100 bins
leave, and always reads the 20 % of returns that lie farthest from them, as in the paper; ``expanded`` is the compiled
race of `fastrace.demo`, less expansions in the parameters, with the worst 4 % always read. Proposals have the shape of
the pseudo-priors; those of ``exact`` follow the gradient, those of ``binned`` a gradient from 500 returns, and those of
``expanded`` the gradient of the expansion. ``independent`` is another chain: it proposes order and parameters together
from one expansion of each order, whatever its state is, and one race accepts; see `_independent`. An evaluation is
a likelihood term or its gradient, of one model and return; those before a chain begins are shown apart.

Series: five-minute returns of CSI 300 futures (``csi300``, one year without the bars that follow a gap), hourly ones of
EUR/USD (``eurusd``), from the folder in FASTRACE_DATA or ``--data``; and simulated ones of order 10 (``simulated``).

Prints a table beside the paper's figures; writes ``arch_selection.csv`` (a line per run), and per series a figure.
Runs are kept and not made again, unless ``--fresh``. Needs the extras ``data`` and ``demo``.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from fastrace import mcmc
from papers import datasets
from papers.chen_2016._arch_chains import DELTA, ENGINES, Augmented, Binned, Posterior
from papers.chen_2016._independent import Independent, Surrogates
from papers.common import meter, parser, save_arrays, settings, sheet, write_table

Array = NDArray[np.float64]
SAMPLERS = {"exact": ("exact", "C0", "-"), "binned": ("race, binned (the paper's)", "C1", "--"),
            "expanded": ("race, expanded (ours)", "C3", "--"),
            "independent": ("race, independent (ours)", "C2", "-.")}
TARGET = 0.36               # acceptance, as in the paper
WITHIN = 3.0                # of that of the fixed runs: where the tuned log posterior counts as settled
NEAR = 0.1                  # total variation to the exact runs: where the adjusted posterior counts as known
COLUMNS = ("series", "sampler", "run", "iterations", "evaluations", "evaluations_per_iteration", "cpu_seconds",
           "set_up", "settled_at", "ess", "ess_per_million", "total_variation", "accepted", "order_checked",
           "order_wrong", "move_checked", "move_wrong", "settings")


@dataclass
class Trail:
    """What a chain did, step by step."""

    orders: NDArray[np.int8]
    evaluations: NDArray[np.int64]          # so far
    log_weights: Array                      # (steps, orders): of the prior, as tuned
    accepted: NDArray[np.bool_]
    wrong: NDArray[np.int64]                # orders checked and wrong, moves checked and wrong
    sizes: Array
    seconds: float


def run(
    posterior: Posterior, sampler: str, seed: Sequence[int], steps: int, options: argparse.Namespace,
    start: Array, sizes: Array, tune: bool,
) -> Trail:
    """A chain; every `--check-every` steps its decisions are made exactly besides, which is not counted or timed."""
    rng, walk = (np.random.default_rng(child) for child in np.random.SeedSequence(list(seed)).spawn(2))
    n = len(posterior.orders)
    out = Trail(np.zeros(steps, np.int8), np.zeros(steps, np.int64), np.zeros((steps, n)), np.zeros(steps, bool),
                np.zeros(4, np.int64), sizes.copy(), 0.0)
    log_weights = start.copy()
    chain: Augmented | Independent
    if sampler == "independent":
        chain = Independent(posterior, DELTA, rng, walk)
    else:
        chain = Augmented(posterior, ENGINES[sampler](posterior, options.batch, rng), walk, out.sizes)
    tried = np.zeros(n, np.int64)
    begin = time.process_time()
    for t in range(steps):
        check = bool(options.check_every) and t % options.check_every == 0 and sampler != "exact"
        yes, wrong = chain.step(log_weights, check)
        out.wrong += wrong
        j = chain.order
        if tune:
            tried[j] += 1
            out.sizes[j] *= math.exp((yes - TARGET) / (1.0 + tried[j] / 10.0) ** 0.6)
            log_weights[j] -= 1.0 / (1.0 + t / 100.0)
            log_weights -= log_weights.mean()
        out.orders[t], out.accepted[t], out.evaluations[t], out.log_weights[t] = j, yes, chain.evaluations, log_weights
    out.seconds = time.process_time() - begin - chain.aside
    return out


def series(name: str, options: argparse.Namespace) -> Array:
    """Returns without mean, of standard deviation 1."""
    if name == "simulated":
        rng = np.random.default_rng([options.seed, 7])
        order = 4 if options.quick else 10
        weights = np.r_[0.2, np.linspace(1.0, 0.5, order) * 0.7 / order]
        n = options.length or (1500 if options.quick else 12_000)
        noise = rng.standard_t(6.0, n + 500)
        y = np.zeros(n + 500)
        for t in range(order, n + 500):
            y[t] = math.sqrt(weights[0] + weights[1:] @ y[t - order : t][::-1] ** 2) * noise[t]
        y = y[500:]
    else:
        file, begin, end = {"csi300": ("fin_csi300fut_5m", "2016", "2017"),
                            "eurusd": ("fin_eurusd_1h", "2014", "2016")}[name]
        frame = datasets.read_frame(file, options.data)
        inside = (frame.ts >= begin) & (frame.ts < end) & (frame.gap == 0) & frame.y.notna()
        y = frame.y[inside].to_numpy(dtype=np.float64)[: options.length]
    y = y - y.mean()
    return np.asarray(y / y.std())


def kept(options: argparse.Namespace, phase: int = 1) -> str:
    """What a run depends on, in one word; tuning does not depend on what follows."""
    names = ["adapt", "orders", "batch", "check_every", "length", "start", "quick", "seed"]
    return settings(options, *names, *(["steps", "runs"] if phase else []))


def saved(file: Path, options: argparse.Namespace, phase: int) -> Trail | None:
    """A run made before with these settings."""
    if options.fresh or not file.exists():
        return None
    with np.load(file) as found:
        if str(found["settings"]) != kept(options, phase):
            return None
        parts = {name: found[name] for name in Trail.__dataclass_fields__}
    return Trail(**{**parts, "seconds": float(parts["seconds"])})


def phases(
    name: str, posterior: Posterior, options: argparse.Namespace, advance: Any
) -> tuple[dict[str, list[Trail]], dict[str, list[Trail]]]:
    """Tuning and fixed runs of every sampler."""
    n = len(posterior.orders)
    start = -posterior.laplace + posterior.laplace.mean() if options.start == "laplace" else np.zeros(n)
    place = {sampler: k for k, sampler in enumerate(SAMPLERS)}

    def each(phase: int, steps: int, begin: Array, sizes: dict[str, Array]) -> dict[str, list[Trail]]:
        found: dict[str, list[Trail]] = {}
        for sampler in options.samplers:
            for k in range(options.runs):
                file = options.output / f"arch_selection_{name}_{sampler}_{'tune' if phase == 0 else 'fixed'}_{k}.npz"
                path = saved(file, options, phase)
                if path is None:
                    path = run(posterior, sampler, (options.seed, phase, place[sampler], k), steps, options, begin,
                               sizes[sampler], tune=phase == 0)
                    save_arrays(file, settings=kept(options, phase), **vars(path))
                found.setdefault(sampler, []).append(path)
                advance()
        return found

    sizes = {sampler: np.full(n, 0.5) for sampler in options.samplers}
    tuned = each(0, options.adapt, start, sizes)
    # The same fixed weights for all: those that exact chains, if there are any, have come to.
    sources = tuned.get("exact") or [path for paths in tuned.values() for path in paths]
    weights = np.mean([path.log_weights[len(path.log_weights) // 2 :].mean(axis=0) for path in sources], axis=0)
    sizes = {sampler: np.mean([path.sizes for path in tuned[sampler]], axis=0) for sampler in options.samplers}
    return tuned, each(1, options.steps, weights, sizes)


def log_posterior(path: Trail) -> Array:
    """Estimates from the weights so far: (steps, orders)."""
    return np.asarray(-path.log_weights - special.logsumexp(-path.log_weights, axis=1, keepdims=True))


def settled(path: Trail, final: Array) -> float:
    """Evaluations after which the estimate stays within `WITHIN` of `final`; infinity if it never does."""
    off = np.abs(log_posterior(path) - final).max(axis=1) > WITHIN
    last = int(np.flatnonzero(off)[-1]) + 1 if off.any() else 0
    return float(path.evaluations[last]) if last < len(path.evaluations) else math.inf


def autocorrelation(orders: NDArray[np.int8], most: int) -> Array:
    """Of the order, up to a lag."""
    x = orders.astype(float) - orders.mean()
    size = 1 << (2 * len(x) - 1).bit_length()
    found = np.fft.irfft(np.abs(np.fft.rfft(x, size)) ** 2, size)[: most + 1]
    return np.asarray(found / found[0]) if found[0] > 0 else np.ones(most + 1)


def frequencies(path: Trail, n: int) -> Array:
    """Share of steps in each order."""
    return np.bincount(path.orders, minlength=n) / len(path.orders)


def distances(fixed: dict[str, list[Trail]], n: int) -> dict[str, tuple[Array, Array]]:
    """Evaluations, and the total variation between a run so far and the exact runs, itself left out: means over runs.

    Without exact runs, those of the first sampler take their place. Shape (steps,) each.
    """
    base = fixed.get("exact") or next(iter(fixed.values()))
    shares = np.array([frequencies(path, n) for path in base])
    found = {}
    for sampler, paths in fixed.items():
        apart = []
        for k, path in enumerate(paths):
            others = np.delete(shares, k, axis=0) if paths is base and len(base) > 1 else shares
            visits = np.cumsum(path.orders[:, None] == np.arange(n), axis=0)
            so_far = visits / np.arange(1, len(visits) + 1)[:, None]
            apart.append(0.5 * np.abs(so_far - others.mean(axis=0)).sum(axis=1))
        found[sampler] = np.mean([path.evaluations for path in paths], axis=0), np.mean(apart, axis=0)
    return found


def near(evaluations: Array, apart: Array) -> float:
    """Evaluations after which runs are within `NEAR` of the exact ones on average; infinity if they never are."""
    off = apart > NEAR
    last = int(np.flatnonzero(off)[-1]) + 1 if off.any() else 0
    return float(evaluations[last]) if last < len(evaluations) else math.inf


def adjusted(paths: list[Trail], n: int) -> Array:
    """Log posterior from runs with fixed weights; half a visit more per order keeps it finite."""
    visits = np.sum([np.bincount(path.orders, minlength=n) for path in paths], axis=0) + 0.5
    found = np.log(visits) - paths[0].log_weights[-1]
    return np.asarray(found - special.logsumexp(found))


def reduction(posterior: Posterior, sampler: str, rng: np.random.Generator, batch: int) -> float:
    """Variance of the differences of models' terms over that of what the race reads of them; median over draws."""
    ratios = []
    independent = sampler == "independent"
    engine = None if independent else ENGINES[sampler](posterior, batch, rng)
    surrogates = Surrogates(posterior, rng) if independent else None
    for _ in range(8):
        x, offset = posterior.parameters(posterior.fresh(rng))
        if surrogates is not None:
            for j, used in enumerate(posterior.used):
                x[j, used] = surrogates.cuts[j].draws(1, rng)[0][0]
        posterior.set(x, offset)
        source: Any = posterior.raced
        if surrogates is not None:
            source = surrogates.residuals()
        elif isinstance(engine, Binned):
            for j, used in enumerate(posterior.used):
                _, engine.known[j] = engine._expand(j, x[j][used])
            source = engine.models
        left = source.read(np.arange(source.n_rows))
        whole = posterior.plain.read(np.arange(posterior.n_terms))
        for i in range(len(posterior.orders) - 1):
            ratios.append((whole[:, i] - whole[:, i + 1]).var() / (left[:, i] - left[:, i + 1]).var())
    return float(np.median(ratios))


def lines(name: str, posterior: Posterior, tuned: dict[str, list[Trail]], fixed: dict[str, list[Trail]],
          final: Array, options: argparse.Namespace) -> list[dict[str, str]]:
    """A line of the csv file per run."""
    found = []
    n = len(final)
    for sampler, paths in fixed.items():
        paid = posterior.set_up(sampler)
        for k, path in enumerate(paths):
            base = [one for one in fixed.get("exact", paths) if one is not path] or [path]
            apart = np.abs(frequencies(path, n) - np.mean([frequencies(one, n) for one in base], axis=0)).sum() / 2
            ess = mcmc.effective_sample_size(path.orders[None])
            wrong = path.wrong + tuned[sampler][k].wrong
            found.append({
                "series": name, "sampler": sampler, "run": str(k), "iterations": str(len(path.orders)),
                "evaluations": str(int(path.evaluations[-1])),
                "evaluations_per_iteration": f"{path.evaluations[-1] / len(path.orders):.5g}",
                "cpu_seconds": f"{path.seconds:.4g}", "set_up": str(paid),
                "settled_at": f"{settled(tuned[sampler][k], final):.5g}",
                "ess": f"{ess:.5g}", "ess_per_million": f"{1e6 * ess / path.evaluations[-1]:.5g}",
                "total_variation": f"{apart:.4f}", "accepted": f"{path.accepted.mean():.4f}",
                "order_checked": str(wrong[0]), "order_wrong": str(wrong[1]),
                "move_checked": str(wrong[2]), "move_wrong": str(wrong[3]), "settings": kept(options),
            })
    return found


def rate(wrong: float, checked: float) -> str:
    """Errors over checks, with the 95 % interval."""
    if not checked:
        return "-"
    low, high = stats.binomtest(int(wrong), int(checked)).proportion_ci(0.95)
    return f"{wrong / checked:.1e} ({low:.0e}, {high:.0e})"


def print_table(
    name: str, posterior: Posterior, found: list[dict[str, str]], fixed: dict[str, list[Trail]], final: Array,
    options: argparse.Namespace,
) -> None:
    """What the paper reports, beside it."""
    n = len(posterior.orders)
    by = {s: {c: np.array([float(e[c]) for e in found if e["sampler"] == s]) for c in COLUMNS[3:-1]}
          for s in options.samplers}
    base = by.get("exact", next(iter(by.values())))
    shares = {s: np.mean([frequencies(path, n) for path in paths], axis=0) for s, paths in fixed.items()}
    rng = np.random.default_rng(options.seed)
    paper = {"cost": "", "settled": "about 3 times fewer", "ess": "over twice", "order": "4e-4", "move": "2e-3",
             "accepted": "about 36 %", "variance": "100 to 1000 times"}

    def row(words: str, cells: list[str], said: str = "") -> None:
        print(f"{words:<44}" + "".join(f"{cell:>28}" for cell in cells) + f"{said:>24}")

    print(f"\n{name}: {posterior.n_terms} returns, orders {', '.join(map(str, posterior.orders))}; {options.runs} runs "
          f"of {options.adapt} tuning and {options.steps} fixed steps")
    row("", [SAMPLERS[s][0] for s in by], "paper, racing")
    row("evaluations per step", [f"{v['evaluations_per_iteration'].mean():.0f}" for v in by.values()])
    each = {s: v["evaluations_per_iteration"].mean() for s, v in by.items()}
    row("  times fewer than exact", [f"{next(iter(each.values())) / value:.2f}" for value in each.values()])
    row(f"evaluations until within {WITHIN:g} of log posterior",
        [f"{np.median(v['settled_at']):.3g}".replace("inf", "not reached") for v in by.values()])
    until = {s: float(np.median(v["settled_at"])) for s, v in by.items()}
    first = next(iter(until.values()))
    row("  times fewer than exact", [f"{first / value:.2f}" if max(first, value) < math.inf else "-"
                                      for value in until.values()], paper["settled"])
    known = {s: near(*pair) for s, pair in distances(fixed, n).items()}
    first = next(iter(known.values()))
    row(f"evaluations to total variation {NEAR:g} from exact",
        [f"{value:.3g}".replace("inf", "not reached") for value in known.values()])
    row("  times fewer than exact", [f"{first / value:.2f}" if max(first, value) < math.inf else "-"
                                      for value in known.values()], "")
    paid = {s: float(v["set_up"].mean()) for s, v in by.items()}
    row("  evaluations of the set-up", [f"{value:.3g}" for value in paid.values()])
    whole = {s: known[s] + paid[s] for s in by}
    first = next(iter(whole.values()))
    row("  times fewer than exact, set-up counted", [f"{first / value:.2f}" if max(first, value) < math.inf else "-"
                                                      for value in whole.values()])
    row("effective samples of q per run", [f"{v['ess'].mean():.1f}" for v in by.values()])
    row("  per million evaluations", [f"{v['ess_per_million'].mean():.3g}" for v in by.values()])
    row("  times that of exact", [f"{v['ess_per_million'].mean() / base['ess_per_million'].mean():.2f}"
                                   for v in by.values()], paper["ess"])
    row("  per CPU second", [f"{(v['ess'] / v['cpu_seconds']).mean():.3g}" for v in by.values()])
    row("wrong orders (promised: 0.05)", [rate(v["order_wrong"].sum(), v["order_checked"].sum()) for v in by.values()],
        paper["order"])
    row("wrong moves (promised: 0.05)", [rate(v["move_wrong"].sum(), v["move_checked"].sum()) for v in by.values()],
        paper["move"])
    row("moves accepted", [f"{v['accepted'].mean():.3f}" for v in by.values()], paper["accepted"])
    row("variance of what is raced, times smaller",
        ["" if s == "exact" else f"{reduction(posterior, s, rng, options.batch):.0f}" for s in by],
        paper["variance"])
    if "exact" in shares:
        row("adjusted posterior: total variation to exact",
            [f"{0.5 * np.abs(share - shares['exact']).sum():.3f}" for share in shares.values()], "no noticeable bias")
    spread = [np.mean([0.5 * np.abs(frequencies(path, n) - shares[s]).sum() for path in fixed[s]]) for s in by]
    row("  of its runs to their mean", [f"{value:.3f}" for value in spread])
    row("  a run to the exact runs, itself left out", [f"{v['total_variation'].mean():.3f}" for v in by.values()])
    print(f"{'log posterior of q':<28}" + "".join(f"{q:>10}" for q in posterior.orders))
    print(f"{'  normal approximation':<28}" + "".join(f"{value:>10.2f}" for value in posterior.laplace))
    for s, paths in fixed.items():
        print(f"{'  ' + SAMPLERS[s][0]:<28}" + "".join(f"{v:>10.2f}" for v in adjusted(paths, n)))


def draw_figure(
    name: str, posterior: Posterior, tuned: dict[str, list[Trail]], fixed: dict[str, list[Trail]], final: Array,
    path: Path,
) -> None:
    """The four panels of the paper's figure, and how far estimates are off after so many evaluations."""
    figure, ((a, b, c), (d, e, f)) = sheet(2, 3, (19.0, 9.0))
    n = len(posterior.orders)
    a.plot(posterior.returns, lw=0.3, color="0.3")
    a.set(title=f"(a) {name}", xlabel="bar", ylabel="return, standard deviations")
    for sampler, paths in tuned.items():
        _, _, dash = SAMPLERS[sampler]
        for j, q in enumerate(posterior.orders):
            curve = log_posterior(paths[0])[:, j]
            b.plot(paths[0].evaluations, curve, dash, color=f"C{j}", lw=1.0 if sampler != "expanded" else 1.6,
                   alpha=0.5 if sampler == "expanded" else 1.0, label=f"q = {q}" if sampler == "exact" else None)
    b.set(title="(b) log posterior of q while tuning; solid: exact, dashed: races", xlabel="evaluations",
          ylabel="log posterior", xscale="log")
    b.legend(fontsize=8)
    for k, (sampler, paths) in enumerate(fixed.items()):
        words, colour, dash = SAMPLERS[sampler]
        share = np.array([frequencies(one, n) for one in paths])
        c.errorbar(np.arange(n) + 0.12 * (k - 1), share.mean(axis=0), share.std(axis=0), fmt="o", color=colour,
                   capsize=3, label=words)
        curve = np.mean([autocorrelation(one.orders, min(100, len(one.orders) // 4)) for one in paths], axis=0)
        cost = np.mean([one.evaluations[-1] / len(one.orders) for one in paths])
        d.plot(np.arange(len(curve)) * cost, curve, dash, color=colour, label=words)
    c.set_xticks(np.arange(n), [str(q) for q in posterior.orders])
    c.set(title=f"(c) adjusted posterior, {len(next(iter(fixed.values())))} runs", xlabel="q", ylabel="share of steps")
    c.legend()
    d.set(title="(d) autocorrelation of q", xlabel="evaluations between two steps", ylabel="autocorrelation")
    d.legend()
    for sampler, paths in tuned.items():
        words, colour, dash = SAMPLERS[sampler]
        off = np.median([np.abs(log_posterior(one) - final).max(axis=1) for one in paths], axis=0)
        e.plot(np.mean([one.evaluations for one in paths], axis=0), off, dash, color=colour, label=words)
    e.axhline(WITHIN, color="0.5", lw=0.8)
    e.set(title="(e) log posterior while tuning: largest error, median of runs", xlabel="evaluations",
          ylabel="error", xscale="log", yscale="log")
    e.legend()
    for sampler, (evaluations, apart) in distances(fixed, n).items():
        words, colour, dash = SAMPLERS[sampler]
        f.plot(evaluations, apart, dash, color=colour, label=words)
    f.axhline(NEAR, color="0.5", lw=0.8)
    f.set(title="(f) adjusted posterior: mean distance of a run to the exact ones", xlabel="evaluations",
          ylabel="total variation", xscale="log", yscale="log")
    f.legend()
    for panel in (a, b, c, d, e, f):
        panel.grid(alpha=0.3)
    figure.savefig(path, dpi=110)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the options."""
    made = parser(__doc__, "a short simulated series and short runs", data="the series", fresh="make all runs")
    add = made.add_argument
    add("--series", nargs="+", choices=("csi300", "eurusd", "simulated"), metavar="SERIES",
        help="of csi300, eurusd and simulated (default: all)")
    add("--samplers", nargs="+", choices=SAMPLERS, default=list(SAMPLERS), metavar="SAMPLER",
        help=f"of {', '.join(SAMPLERS)} (default: all)")
    add("--orders", nargs="+", type=int, metavar="Q",
        help="orders to choose from (default 5 10 15 20 25 30, quick 2 4 6)")
    add("--runs", type=int, help="runs of each sampler (default 5, quick 2)")
    add("--adapt", type=int, help="steps of tuning (default 10000, quick 300)")
    add("--steps", type=int, help="steps with fixed weights (default 100000, quick 400)")
    add("--batch", type=int, default=500, help="returns of a stochastic gradient")
    add("--start", choices=("uniform", "laplace"), default="laplace",
        help="prior weights to start from: equal, or those that the normal approximation calls for")
    add("--check-every", type=int, default=5, help="steps between two checks of the races' decisions; 0 for none")
    add("--length", type=int, help="most returns of a series")
    options = made.parse_args(arguments)
    quick = options.quick
    options.series = options.series or (["simulated"] if quick else ["csi300", "eurusd", "simulated"])
    options.orders = options.orders or ([2, 4, 6] if quick else [5, 10, 15, 20, 25, 30])
    options.runs = options.runs or (2 if quick else 5)
    options.adapt = options.adapt or (300 if quick else 10_000)
    options.steps = options.steps or (400 if quick else 100_000)
    if min(options.runs, options.adapt, options.steps, options.batch) < 1 or len(options.orders) < 2:
        made.error("at least two orders, and one run, step and return, are needed")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiment; return the exit status."""
    options = parse(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    table: list[dict[str, str]] = []
    for name in options.series:
        try:
            returns = series(name, options)
        except FileNotFoundError as error:
            print(error, file=sys.stderr)
            return 1
        posterior = Posterior(returns, options.orders, np.random.default_rng([options.seed, 3]))
        made = 0
        with meter(name, 2 * options.runs * len(options.samplers), options.progress) as done:
            def advance() -> None:
                nonlocal made
                made += 1
                done(made)
            tuned, fixed = phases(name, posterior, options, advance)
        final = adjusted(next(iter(fixed.values())), len(posterior.orders))
        found = lines(name, posterior, tuned, fixed, final, options)
        table += found
        print_table(name, posterior, found, fixed, final, options)
        picture = options.output / f"arch_selection_{name}.png"
        draw_figure(name, posterior, tuned, fixed, final, picture)
        print(f"wrote {picture}")
    write_table(options.output / "arch_selection.csv", table, COLUMNS)
    print(f"wrote {options.output / 'arch_selection.csv'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
