"""CPU seconds before the first draw, and effective draws a CPU second, of horseshoes written in PyMC.

``python -m benchmarks.pymc_horseshoes`` prints the table of bench/README.md; with ``nuts`` also a row of PyMC's own
NUTS for each model, which takes minutes.
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
    """CPU seconds of `from_pymc` and of the kernel; of 4 chains, with their least effective size."""
    model, began = written(*MODELS[name]), _peers.cpu()
    ours = mcmc.from_pymc(model)
    made = _peers.cpu()
    kernel = mcmc.SurrogateMetropolis(ours)
    set_up = _peers.cpu()
    trace = mcmc.sample(kernel, n_draws=n_draws, n_chains=4, rng=1)
    return made - began, set_up - made, _peers.cpu() - set_up, float(trace.ess().min())


class HorseshoesOfPyMC:
    """CPU seconds before the first draw, of which 10 are the goal, and effective draws a second of chains."""

    params = (list(MODELS),)
    param_names = ["model"]
    timeout = 600

    def track_seconds_of_set_up(self, name):
        return sum(measured(name, 100)[:2])

    def track_effective_a_second(self, name):
        _, _, seconds, least = measured(name)
        return least / seconds


def by_nuts(name, n_draws=500):
    """CPU seconds of PyMC's NUTS, tuning included, and its least effective size."""
    pm, began = pm_or_skip(), _peers.cpu()
    with written(*MODELS[name]):
        idata = pm.sample(n_draws, tune=n_draws, chains=2, cores=1, random_seed=1, progressbar=False,
                          target_accept=0.95)
    import arviz

    sizes = arviz.ess(idata)
    return _peers.cpu() - began, min(float(sizes[v].min()) for v in sizes.data_vars)


def main(names):
    words = "from_pymc, CPU s | kernel, CPU s | 8000 draws, CPU s | least ESS | ESS a second"
    print(f"| model | {words} |\n" + "|---" * 6 + "|")
    warnings.simplefilter("ignore")
    for name in MODELS:
        made, set_up, seconds, least = measured(name)
        cells = f"{made:.1f} | {set_up:.1f} | {seconds:.2f} | {least:.0f} | {least / seconds:.0f}"
        print(f"| {name} | {cells} |", flush=True)
        if "nuts" in names:
            seconds, least = by_nuts(name)
            print(f"|  NUTS of PyMC | - | - | {seconds:.0f} | {least:.0f} | {least / seconds:.2g} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
