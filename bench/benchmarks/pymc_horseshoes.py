"""CPU seconds before the first draw, and effective draws a CPU second, of horseshoes written in PyMC.

``python -m benchmarks.pymc_horseshoes`` prints the first table of bench/README.md, and
``python -m benchmarks.pymc_horseshoes nuts [ROWS [SECONDS [MODEL]]]`` the one beside NUTS of PyMC and of nutpie: by
default of 1,000 rows, each way at most 300 CPU seconds in a process of its own, and all models. MODEL is how a name
begins.
"""

import json
import sys
import warnings

import numpy as np

from fastrace import mcmc

from . import _peers
from .pymc_steps import pm_or_skip

N_ROWS = 20_000
FEW_ROWS, LIMIT = 1_000, 300  # beside NUTS, and CPU seconds of each way
OURS = "mcmc.sample"
MODELS = {  # family, columns, standardised, with a slab, global scale in units of sigma
    "logistic, 50 columns, regularised, z * tau * lam": ("logistic", 50, True, True, False),
    "logistic, 10 columns, plain, centred": ("logistic", 10, False, False, False),
    "Gaussian, 10 columns, regularised, tau in units of sigma": ("gaussian", 10, True, True, True),
}


def written(family, p, standardised, slab, in_units, n_rows=N_ROWS):
    pm, rng = pm_or_skip(), np.random.default_rng(0)
    X = rng.normal(size=(n_rows, p))
    eta = X[:, :3] @ [1.0, -0.5, 0.2] - 0.3
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", 2.5) if family == "gaussian" else 1.0
        tau = pm.HalfCauchy("tau", 0.02 * sigma if in_units else 0.02)
        lam = pm.HalfCauchy("lam", 1.0, shape=p)
        wide = tau * lam
        if slab:
            c2 = pm.InverseGamma("c2", 2.0, 8.0)
            wide = tau * lam * pm.math.sqrt(c2 / (c2 + tau**2 * lam**2))
        beta = pm.Normal("z", shape=p) * wide if standardised else pm.Normal("beta", 0.0, wide, shape=p)
        mean = pm.Normal("a", 0.0, 5.0) + pm.math.dot(X, beta)
        if family == "gaussian":
            pm.Normal("obs", mean, sigma, observed=eta + rng.normal(size=n_rows))
        else:
            pm.Bernoulli("obs", logit_p=mean, observed=rng.random(n_rows) < 1.0 / (1.0 + np.exp(-eta)))
    return model


def measured(name, n_draws=2000, n_rows=N_ROWS):
    """CPU seconds of `from_pymc` and of the kernel; of 4 chains, with their least effective size and largest R-hat."""
    model, began = written(*MODELS[name], n_rows), _peers.cpu()
    ours = mcmc.from_pymc(model)
    made = _peers.cpu()
    kernel = mcmc.SurrogateMetropolis(ours)
    set_up = _peers.cpu()
    trace = mcmc.sample(kernel, n_draws=n_draws, n_chains=4, rng=1)
    seconds = _peers.cpu() - set_up
    return made - began, set_up - made, seconds, float(trace.ess().min()), float(trace.rhat().max())


class HorseshoesOfPyMC:
    """CPU seconds before the first draw, of which 10 are the goal, and effective draws a second of chains."""

    params = (list(MODELS),)
    param_names = ["model"]
    timeout = 600

    def track_seconds_of_set_up(self, name):
        return sum(measured(name, 100)[:2])

    def track_effective_a_second(self, name):
        _, _, seconds, least, _ = measured(name)
        return least / seconds


def by_nuts(name, sampler, n_rows, n_tune=100, n_draws=100):
    """CPU seconds of compiling and tuning, and of the draws, of two chains, shared out by gradients.

    With their least effective size, largest R-hat, number of divergences, and gradients a draw.
    """
    import arviz

    pm, model, began = pm_or_skip(), written(*MODELS[name], n_rows), _peers.cpu()
    if sampler == "nutpie":
        import nutpie

        compiled = nutpie.compile_pymc_model(model)
        ready = _peers.cpu()
        found = nutpie.sample(compiled, draws=n_draws, tune=n_tune, chains=2, cores=1, seed=1, progress_bar=False,
                              target_accept=0.95)
    else:
        ready = began  # it compiles when it samples
        found = pm.sample(n_draws, tune=n_tune, chains=2, cores=1, random_seed=1, progressbar=False, model=model,
                          target_accept=0.95, discard_tuned_samples=False, compute_convergence_checks=False)
    took = _peers.cpu() - ready
    tuning, drawing = (int(stats.n_steps.sum()) for stats in (found.warmup_sample_stats, found.sample_stats))
    own = [v for v in found.posterior.data_vars if not v.endswith("__")]
    sizes, rhats = arviz.ess(found, var_names=own), arviz.rhat(found, var_names=own)
    drawn = took * drawing / (tuning + drawing)
    return (ready - began + took - drawn, drawn, min(float(sizes[v].min()) for v in own),
            max(float(rhats[v].max()) for v in own), int(found.sample_stats.diverging.sum()), drawing / (2.0 * n_draws))


def one(name, way, n_rows):
    """The figures of `by_nuts`, and of ours those that there are."""
    if way != OURS:
        return by_nuts(name, way, n_rows)
    made, set_up, *rest = measured(name, n_rows=n_rows)
    return made + set_up, *rest


def shown(rate):
    return f"{rate:,.0f}" if rate >= 10.0 else f"{rate:.2g}"


def beside_nuts(n_rows=FEW_ROWS, limit=LIMIT, of=""):
    """Each way in a process of its own, with a limit of CPU seconds."""
    words = "set-up, CPU s | draws, CPU s | least ESS | ESS a second | with set-up | R-hat | divergences | gradients"
    print(f"| {int(n_rows):,} rows | way | {words} a draw |\n" + "|---" * 10 + "|")
    for name in (name for name in MODELS if name.startswith(of)):
        for way in (OURS, "PyMC", "nutpie"):
            command = [sys.executable, "-m", "benchmarks.pymc_horseshoes", "one", name, way, n_rows]
            done, stopped = _peers.limited(list(map(str, command)), int(limit))
            if stopped or done.returncode:
                why = (done.stderr.strip() or "ended").splitlines()[-1][:100]
                cells = [f"no answer in {limit} CPU s" if stopped else why]
            else:
                set_up, seconds, least, rhat, *rest = json.loads(done.stdout.strip().splitlines()[-1])
                cells = [f"{set_up:.1f}", f"{seconds:.2f}", f"{least:.0f}", *map(shown, (least / seconds,
                         least / (seconds + set_up))), f"{rhat:.3f}", *(f"{x:.0f}" for x in rest)]
            cells = [name if way == OURS else "", way if way == OURS else f"NUTS of {way}", *cells]
            print("| " + " | ".join(cells + ["-"] * (10 - len(cells))) + " |", flush=True)


def main(names):
    warnings.simplefilter("ignore")
    if names[:1] == ["one"]:
        return print(json.dumps(one(names[1], names[2], int(names[3]))))
    if names[:1] == ["nuts"]:
        return beside_nuts(*names[1:])
    words = "from_pymc, CPU s | kernel, CPU s | draws, CPU s | least ESS | ESS a second | R-hat"
    print(f"| model | {words} |\n" + "|---" * 7 + "|")
    for name in MODELS:
        made, set_up, seconds, least, rhat = measured(name)
        cells = f"{made:.1f} | {set_up:.1f} | {seconds:.2f} | {least:.0f} | {least / seconds:.0f} | {rhat:.3f}"
        print(f"| {name} | {cells} |", flush=True)
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
