"""Bayesian logistic regression on Covertype: samplers that read few rows, and their peers, against a long exact run.

    python -m papers.chen_2016.logistic_tall --quick

Lodgepole pine against the other covers, from the ten measured columns (``--columns all`` adds the wilderness areas and
soils) and an intercept; normal priors of standard deviation 10. A long run of exact Metropolis-Hastings gives means and
standard deviations of the posterior. Every sampler is then timed by effective samples (the smallest over the
coefficients) per CPU second and per evaluation of a row's likelihood or gradient, and its means are compared with those
of the exact run. Samplers of `fastrace` run one chain in one thread. NumPyro, BlackJAX and emcee take part if they are
installed (``python -m pip install numpyro blackjax emcee``).

Prints a table; writes ``logistic_tall.csv`` (a line per sampler) and ``logistic_tall.png``. Samplers that are in the
csv file already are not run again, unless ``--fresh``; the exact run goes on where it was stopped. Needs the extras
``data`` and ``demo``; Covertype comes from the folder in FASTRACE_DATA or ``--data``, or with ``--download`` from the
internet. ``--quick`` uses made data.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":                  # before NumPy and JAX: CPU seconds of one core
    for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(_name, "1")
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false --xla_force_host_platform_device_count=1")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np
from numpy.typing import NDArray

from fastrace import mcmc
from papers import datasets
from papers.common import meter, parser, read_table, settings, sheet, write_table

PRIOR_SD = 10.0
MEASURED = 10       # columns of Covertype that are quantities
COLUMNS = ("data", "sampler", "exact", "draws", "cpu_seconds", "setup_seconds", "ess", "ess_per_second",
           "evaluations_per_ess", "evaluations_per_draw", "full_passes", "mean_error", "mean_z", "sd_low", "sd_high",
           "settings")

# What the makers of each promise, for the table.
PROMISES = {"yes": "exact", "delta": "within delta a step", "no": "none"}


@dataclass(frozen=True)
class Task:
    """The regression, and its exact answer."""

    name: str
    X: NDArray[np.float64]
    y: NDArray[np.float64]
    model: mcmc.GLM
    setup: float                            # seconds to find the mode and expand there
    reference: mcmc.Reference
    mean: NDArray[np.float64]
    sd: NDArray[np.float64]
    ess: NDArray[np.float64]                # of the exact run


@dataclass(frozen=True)
class Run:
    """What a sampler did."""

    draws: NDArray[np.float64]              # (chains, draws, coefficients)
    cpu: float
    evaluations: float
    setup: float = 0.0                      # beside finding the mode
    full_passes: float = math.nan


def rows(options: argparse.Namespace) -> tuple[str, NDArray[np.float64], NDArray[np.float64]]:
    """Name, standardised columns with an intercept in front, and the outcome."""
    rng = np.random.default_rng([options.seed, 1])
    if options.quick:
        X = rng.standard_normal((options.rows or 30_000, 6))
        X[:, 0] = 1.0
        y = rng.random(len(X)) < 1.0 / (1.0 + np.exp(-X @ rng.normal(0.0, 0.5, X.shape[1])))
        return f"made, {len(X)} rows", X, y.astype(np.float64)
    data = datasets.load("covertype", options.data, download=options.download)
    y = (np.asarray(data.y) == 2).astype(np.float64)
    X = data.X[:, :MEASURED].astype(np.float64)
    if options.columns == "all":            # the last area and the commonest soil are left out: the rest sum to one
        coded = data.X[:, MEASURED:].astype(np.float64)
        soils = coded[:, 4:]
        kept = np.delete(soils, soils.sum(axis=0).argmax(), axis=1)
        X = np.hstack([X, coded[:, :3], kept[:, kept.sum(axis=0) >= 1000.0]])
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    X = np.hstack([np.ones((len(X), 1)), X])
    order = rng.permutation(len(X))[: options.rows]
    return f"covertype, {len(order)} rows", np.ascontiguousarray(X[order]), y[order]


def solve(options: argparse.Namespace) -> Task:
    """Load the data and run the exact chain, going on where it was stopped."""
    name, X, y = rows(options)
    name += f", {X.shape[1]} coefficients"
    begin = time.process_time()
    model = mcmc.GLM(X, y, prior_sd=PRIOR_SD)
    reference = model.reference()
    setup = time.process_time() - begin
    kernel = mcmc.Metropolis(model, control_variate=reference)
    saved = options.output / f"logistic_tall_{len(X)}_{X.shape[1]}_{options.exact_draws}_{options.seed}.chain"
    if options.fresh:
        saved.unlink(missing_ok=True)
    trace = mcmc.sample(kernel, n_draws=options.exact_draws, n_chains=2, rng=options.seed, n_tune=options.tune,
                        progress=options.progress, checkpoint=saved)
    flat = trace.draws.reshape(-1, X.shape[1])
    print(f"{name}\nexact run: {len(flat)} draws in {trace.seconds:.0f} s, smallest effective size "
          f"{trace.ess().min():.0f}, R-hat at most {trace.rhat().max():.4f}")
    return Task(name, X, y, model, setup, reference, flat.mean(axis=0), flat.std(axis=0), trace.ess())


def ours(kernel: Callable[[Task], mcmc.Kernel], draws: int, per_row: int = 2) -> Callable[..., Run]:
    """A sampler of `fastrace`; `per_row` likelihoods are evaluated for a row that is read."""
    def run(task: Task, options: argparse.Namespace) -> Run:
        begin = time.process_time()
        made = kernel(task)
        setup = time.process_time() - begin
        tuned = mcmc.sample(made, n_draws=0, n_chains=1, rng=options.seed + 1, n_tune=options.tune, threads=1)
        begin = time.process_time()
        trace = mcmc.sample(made, tuned, n_draws=max(int(draws * options.work), 200), threads=1)
        cpu = time.process_time() - begin
        return Run(trace.draws, cpu, per_row * float(trace.rows.sum()), setup, float(trace.full_pass.mean()))
    return run


def hmcecs(task: Task, options: argparse.Namespace) -> Run:
    """Energy-conserving subsampling with a Taylor proxy, NumPyro."""
    from numpyro.infer import HMCECS, NUTS

    subsample = 200
    mode = {"b": np.asarray(task.reference.theta_hat)}
    kernel = HMCECS(NUTS(_numpyro_model, dense_mass=True), num_blocks=10, proxy=HMCECS.taylor_proxy(mode, degree=2))
    draws, steps, cpu = _numpyro(kernel, task, options, 500, 6000, subsample, "hmc_state.num_steps")
    return Run(draws, cpu, float(steps + draws.shape[1]) * subsample)


def nuts(task: Task, options: argparse.Namespace) -> Run:
    """No-U-turn sampler on all rows, NumPyro; given the covariance at the mode, which takes long to learn."""
    from numpyro.infer import NUTS

    kernel = NUTS(_numpyro_model, inverse_mass_matrix={("b",): task.reference.factor @ task.reference.factor.T},
                  dense_mass=True, adapt_mass_matrix=False)
    draws, steps, cpu = _numpyro(kernel, task, options, 50, 100, None, "num_steps")
    return Run(draws, cpu, float(steps) * len(task.X))


def _numpyro_model(x: Any, y: Any, subsample: int | None = None) -> None:
    import numpyro
    import numpyro.distributions as dist

    b = numpyro.sample("b", dist.Normal(np.zeros(x.shape[1]), PRIOR_SD).to_event(1))
    with numpyro.plate("rows", x.shape[0], subsample_size=subsample):
        xs, ys = numpyro.subsample(x, event_dim=1), numpyro.subsample(y, event_dim=0)
        numpyro.sample("y", dist.Bernoulli(logits=xs @ b), obs=ys)


def _numpyro(
    kernel: Any, task: Task, options: argparse.Namespace, warm: int, draws: int, subsample: int | None, steps: str
) -> tuple[NDArray[np.float64], int, float]:
    """Draws, gradient evaluations and CPU seconds; compiling is not timed."""
    import jax
    from numpyro.infer import MCMC

    jax.config.update("jax_enable_x64", True)
    chain = MCMC(kernel, num_warmup=warm, num_samples=max(int(draws * options.work), 50), progress_bar=False)
    data = jax.numpy.asarray(task.X), jax.numpy.asarray(task.y), subsample
    chain.warmup(jax.random.key(1), *data, init_params={"b": jax.numpy.asarray(task.reference.theta_hat)})
    for seed in (2, 3):                     # the first run compiles
        chain.post_warmup_state = chain.last_state
        begin = time.process_time()
        chain.run(jax.random.key(seed), *data, extra_fields=(steps,))
        found = np.asarray(chain.get_samples()["b"])
        cpu = time.process_time() - begin
    return found[None], int(np.sum(chain.get_extra_fields()[steps])), cpu


def sgld(task: Task, options: argparse.Namespace) -> Run:
    """Langevin dynamics by minibatch gradients with a control variate and no accept test, BlackJAX."""
    import blackjax
    import jax
    import jax.numpy as jnp
    from blackjax.sgmcmc.gradients import control_variates, grad_estimator

    jax.config.update("jax_enable_x64", True)
    batch, draws, n = 1000, max(int(10_000 * options.work), 50), len(task.X)
    X, y, mode = jnp.asarray(task.X), jnp.asarray(task.y), jnp.asarray(task.reference.theta_hat)
    covariance = task.reference.factor @ task.reference.factor.T
    size = 0.2 * float(np.linalg.eigvalsh(covariance)[0])

    def row(b: Any, data: Any) -> Any:
        eta = data[0] @ b
        return data[1] * eta - jnp.logaddexp(0.0, eta)

    plain = grad_estimator(lambda b: -0.5 * jnp.sum(b * b) / PRIOR_SD**2, row, n)
    step = blackjax.sgld(control_variates(plain, mode, (X, y))).step

    def one(b: Any, key: Any) -> Any:
        pick, move = jax.random.split(key)
        chosen = jax.random.randint(pick, (batch,), 0, n)
        b = step(move, b, (X[chosen], y[chosen]), size)
        return b, b

    many = jax.jit(lambda b, key: jax.lax.scan(one, b, jax.random.split(key, draws)))
    start, _ = jax.block_until_ready(many(mode, jax.random.key(1)))
    begin = time.process_time()
    _, found = jax.block_until_ready(many(start, jax.random.key(2)))
    return Run(np.asarray(found)[None], time.process_time() - begin, 2.0 * draws * batch)


def stretch(task: Task, options: argparse.Namespace) -> Run:
    """Stretch moves on all rows, emcee."""
    import emcee

    rng = np.random.default_rng(options.seed)
    n, d = task.X.shape
    walkers = 2 * d + 2

    def log_posterior(b: NDArray[np.float64]) -> NDArray[np.float64]:
        eta = task.X @ b.T
        return np.asarray(task.y @ eta - np.logaddexp(0.0, eta).sum(axis=0) - 0.5 * (b * b).sum(axis=1) / PRIOR_SD**2)

    start = task.reference.center + rng.standard_normal((walkers, d)) @ task.reference.factor.T
    sampler = emcee.EnsembleSampler(walkers, d, log_posterior, vectorize=True)
    state = sampler.run_mcmc(start, 5)
    sampler.reset()
    steps = max(int(60 * options.work), 20)
    begin = time.process_time()
    sampler.run_mcmc(state, steps)
    cpu = time.process_time() - begin
    return Run(np.swapaxes(sampler.get_chain(), 0, 1), cpu, float(steps * walkers * n))


@dataclass(frozen=True)
class Sampler:
    """A line of the table."""

    name: str
    exact: str
    needs: str
    colour: str
    run: Callable[[Task, argparse.Namespace], Run]


SAMPLERS = {
    "race": Sampler("race, control variate", "delta", "", "C3",
                    ours(lambda t: mcmc.RacingMetropolis(t.model, control_variate=t.reference), 40_000)),
    "race-10": Sampler("race, first look 10", "delta", "", "C3", ours(
        lambda t: mcmc.RacingMetropolis(t.model, control_variate=t.reference, first_look=10), 40_000)),
    "race-betting": Sampler("race, betting", "delta", "", "C3", ours(
        lambda t: mcmc.RacingMetropolis(t.model, bound="betting", control_variate=t.reference), 2_000)),
    "poisson": Sampler("Poisson minibatch", "yes", "", "C3", ours(
        lambda t: mcmc.PoissonMinibatchMetropolis(t.model, control_variate=t.reference), 40_000)),
    "race-slice": Sampler("slice sampling by races", "delta", "", "C3", ours(
        lambda t: mcmc.RacingSlice(t.model, control_variate=t.reference), 2_000)),
    "firefly": Sampler("Firefly", "yes", "", "C1", ours(
        lambda t: mcmc.FireflyMetropolis(t.model, control_variate=t.reference), 20_000, per_row=1)),
    "tuna": Sampler("TunaMH, small steps", "yes", "", "C1", ours(
        lambda t: mcmc.TunaMetropolis(t.model, size=0.1), 600)),
    "race-plain": Sampler("race, no control variate", "delta", "", "C1", ours(
        lambda t: mcmc.RacingMetropolis(t.model, control_variate=None, proposal="random-walk"), 600)),
    "exact": Sampler("all rows, control variate first", "yes", "", "C0", ours(
        lambda t: mcmc.Metropolis(t.model, control_variate=t.reference), 600, per_row=1)),
    "exact-plain": Sampler("all rows, random walk", "yes", "", "C0", ours(
        lambda t: mcmc.Metropolis(t.model, control_variate=None, proposal="random-walk"), 600, per_row=1)),
    "hmcecs": Sampler("NumPyro HMCECS 200", "no", "numpyro", "0.6", hmcecs),
    "nuts": Sampler("NumPyro NUTS", "yes", "numpyro", "0.6", nuts),
    "sgld": Sampler("BlackJAX SGLD, control variate", "no", "blackjax", "0.6", sgld),
    "emcee": Sampler("emcee", "yes", "emcee", "0.6", stretch),
}


def line(task: Task, name: str, run: Run, options: argparse.Namespace) -> dict[str, str]:
    """What the table says of a run."""
    flat = run.draws.reshape(-1, run.draws.shape[-1])
    sizes = np.array([mcmc.effective_sample_size(run.draws[:, :, j]) for j in range(flat.shape[1])])
    error = (flat.mean(axis=0) - task.mean) / task.sd
    ratio = flat.std(axis=0) / task.sd
    ess = sizes.min()
    numbers = {
        "cpu_seconds": run.cpu, "setup_seconds": task.setup + run.setup, "ess": ess, "ess_per_second": ess / run.cpu,
        "evaluations_per_ess": run.evaluations / ess, "evaluations_per_draw": run.evaluations / len(flat),
        "full_passes": run.full_passes, "mean_error": np.abs(error).max(),
        "mean_z": np.abs(error / np.sqrt(1.0 / sizes + 1.0 / task.ess)).max(), "sd_low": ratio.min(),
        "sd_high": ratio.max(),
    }
    return {"data": task.name, "sampler": name, "exact": SAMPLERS[name].exact, "draws": str(len(flat)),
            **{key: f"{value:.5g}" for key, value in numbers.items()}, "settings": settings(options, *KEPT)}


KEPT = ("rows", "columns", "exact_draws", "tune", "work", "seed")       # what a line of the csv file depends on


def measure(task: Task, path: Path, options: argparse.Namespace) -> Iterator[tuple[str, dict[str, str]]]:
    """A line per sampler, each written to the csv file as soon as it is there; those that are there already first."""
    found = {entry["sampler"]: entry for entry in ([] if options.fresh else read_table(path))
             if (entry["data"], entry["settings"]) == (task.name, settings(options, *KEPT))}
    for name in options.samplers:
        if name not in found:
            sampler = SAMPLERS[name]
            if sampler.needs and importlib.util.find_spec(sampler.needs) is None:
                print(f"{sampler.name}: not run, {sampler.needs} is not installed", file=sys.stderr)
                continue
            found[name] = line(task, name, sampler.run(task, options), options)
            write_table(path, list(found.values()), COLUMNS)
        yield name, found[name]


def print_table(found: dict[str, dict[str, str]], d: int) -> None:
    """Rates and errors of every sampler."""
    best = {kind: max((float(entry["ess_per_second"]) for name, entry in found.items()
                       if bool(SAMPLERS[name].needs) == kind), default=math.nan) for kind in (False, True)}
    print(f"\n{'sampler':<33}{'bias':>20}{'ESS/CPU s':>11}{'evals/ESS':>12}{'evals/draw':>12}{'full':>8}{'set-up':>8}"
          f"{'mean off':>10}{'|z|':>6}{'sd ratio':>14}")
    for name, entry in sorted(found.items(), key=lambda pair: -float(pair[1]["ess_per_second"])):
        v = {key: float(entry[key]) for key in COLUMNS[4:-1]}
        full = "" if math.isnan(v["full_passes"]) else f"{v['full_passes']:.3f}"
        print(f"{SAMPLERS[name].name:<33}{PROMISES[entry['exact']]:>20}{v['ess_per_second']:>11.4g}"
              f"{v['evaluations_per_ess']:>12.4g}{v['evaluations_per_draw']:>12.4g}{full:>8}"
              f"{v['setup_seconds']:>7.2f}s{v['mean_error']:>10.4f}{v['mean_z']:>6.1f}"
              f"{v['sd_low']:>7.3f}-{v['sd_high']:.3f}")
    print(f"mean off: largest error of a mean in posterior standard deviations; |z|: in standard errors of both runs, "
          f"about {math.sqrt(2 * math.log(2 * d)):.1f} or less by chance. Set-up: mode, expansion and tables, once.")
    if not math.isnan(best[True]):
        print(f"best of ours {best[False]:.4g} effective samples per CPU second, best peer {best[True]:.4g}: "
              f"{best[False] / best[True]:.1f} times")
    print("Chen & Ghahramani (2016) has no such table: for ARCH models it reports twice the effective samples per "
          "evaluation (papers.chen_2016.arch_selection).")


def draw_figure(found: dict[str, dict[str, str]], title: str, path: Path) -> None:
    """Rates, costs and errors of every sampler as bars."""
    names = sorted(found, key=lambda name: float(found[name]["ess_per_second"]))
    at = np.arange(len(names))
    figure, (panels,) = sheet(1, 3, (14.0, 1.6 + 0.36 * len(names)), sharey=True)
    columns = (("ess_per_second", "effective samples per CPU second"),
               ("evaluations_per_ess", "evaluations per effective sample"),
               ("mean_error", "largest error of a mean, posterior standard deviations"))
    for panel, (column, words) in zip(panels, columns, strict=True):
        values = [max(float(found[name][column]), 1e-3) for name in names]
        panel.barh(at, values, color=[SAMPLERS[name].colour for name in names])
        panel.set(xlabel=words, xscale="log")
        panel.grid(axis="x", alpha=0.3)
    panels[2].plot([1.0 / math.sqrt(float(found[name]["ess"])) for name in names], at, "k|", ms=12,
                   label="standard error of a mean")
    panels[2].legend(fontsize=8)
    panels[0].set_yticks(at, [SAMPLERS[name].name for name in names])
    figure.suptitle(f"logistic regression, {title}")
    figure.savefig(path, dpi=110)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the options."""
    made = parser(__doc__, "made data, short runs, no peers", data="covertype", download=True, fresh="run everything")
    add = made.add_argument
    add("--samplers", nargs="+", choices=SAMPLERS, metavar="SAMPLER",
        help=f"of {', '.join(SAMPLERS)} (default: all)")
    add("--columns", choices=("measured", "all"), default="measured", help="of Covertype: 10 or all that vary")
    add("--rows", type=int, help="most rows (default: all of them, quick 30000)")
    add("--exact-draws", type=int, help="draws of each of the two exact chains (default 4000, quick 1000)")
    add("--tune", type=int, default=500, help="steps of tuning")
    add("--work", type=float, help="draws of each sampler, as a multiple of the default (quick 0.05)")
    options = made.parse_args(arguments)
    options.exact_draws = options.exact_draws or (1000 if options.quick else 4000)
    options.work = options.work or (0.05 if options.quick else 1.0)
    options.samplers = options.samplers or [name for name in SAMPLERS if not (options.quick and SAMPLERS[name].needs)]
    if options.exact_draws < 100 or options.work <= 0.0 or (options.rows or 1000) < 1000:
        made.error("at least 100 exact draws, work above 0 and 1000 rows are needed")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiment; return the exit status."""
    options = parse(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    table, picture = options.output / "logistic_tall.csv", options.output / "logistic_tall.png"
    try:
        task = solve(options)
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 1
    found: dict[str, dict[str, str]] = {}
    with meter("samplers", len(options.samplers), options.progress) as done:
        for name, entry in measure(task, table, options):
            found[name] = entry
            done(len(found))
    print_table(found, task.X.shape[1])
    draw_figure(found, task.name, picture)
    print(f"\nwrote {table}, {picture}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
