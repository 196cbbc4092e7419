"""CPU seconds before the first draw, and effective draws a CPU second, of horseshoes written in PyMC.

``python -m benchmarks.pymc_horseshoes`` prints the table of bench/README.md; with ``nuts`` also rows of PyMC's own NUTS
and of nutpie for each model, which take minutes.
"""

import sys
import warnings

import numpy as np

from fastrace import mcmc

from . import _peers
from .pymc_steps import pm_or_skip

N_ROWS = 20_000
MODELS = {  # family, columns, standardised, with a slab, global scale in units of sigma
    "logistic, 50 columns, regularised, z * tau * lam": ("logistic", 50, True, True, False),
    "logistic, 10 columns, plain, centred": ("logistic", 10, False, False, False),
    "Gaussian, 10 columns, regularised, tau in units of sigma": ("gaussian", 10, True, True, True),
}


def written(family, p, standardised, slab, in_units):
    pm, rng = pm_or_skip(), np.random.default_rng(0)
    X = rng.normal(size=(N_ROWS, p))
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
            pm.Normal("obs", mean, sigma, observed=eta + rng.normal(size=N_ROWS))
        else:
            pm.Bernoulli("obs", logit_p=mean, observed=rng.random(N_ROWS) < 1.0 / (1.0 + np.exp(-eta)))
    return model


def measured(name, n_draws=2000):
    """CPU seconds of `from_pymc` and of the kernel; of 4 chains, with their least effective size and largest R-hat."""
    model, began = written(*MODELS[name]), _peers.cpu()
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


def by_nuts(name, sampler, n_tune=100, n_draws=100):
    """CPU seconds of compiling and tuning, and of the draws, of two chains, shared out by gradients.

    With their least effective size, largest R-hat, and number of divergences.
    """
    import arviz

    pm, model, began = pm_or_skip(), written(*MODELS[name]), _peers.cpu()
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
            max(float(rhats[v].max()) for v in own), int(found.sample_stats.diverging.sum()))


def main(names):
    words = "from_pymc, CPU s | kernel, CPU s | draws, CPU s | least ESS | ESS a second | R-hat | divergences"
    print(f"| model | {words} |\n" + "|---" * 8 + "|")
    warnings.simplefilter("ignore")
    for name in MODELS:
        made, set_up, seconds, least, rhat = measured(name)
        cells = f"{made:.1f} | {set_up:.1f} | {seconds:.2f} | {least:.0f} | {least / seconds:.0f} | {rhat:.3f}"
        print(f"| {name} | {cells} | - |", flush=True)
        for sampler in ("PyMC", "nutpie") if "nuts" in names else ():
            set_up, seconds, least, rhat, divergent = by_nuts(name, sampler)
            cells = f"{set_up:.0f} | {seconds:.0f} | {least:.0f} | {least / seconds:.2g} | {rhat:.3f} | {divergent}"
            print(f"|  NUTS of {sampler} | - | {cells} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
