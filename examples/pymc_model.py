"""A PyMC model as it stands, sampled by reading few of its rows.

`from_pymc` finds which arrays of the model run over rows, and hands its likelihood to the kernels of
`fastrace.mcmc`. The dull way is PyMC's own sampler, NUTS, which reads all rows some dozen times for each
draw.

The dull way wins for hierarchies and other posteriors far from normal, and for data of less than some ten
thousand rows.
Needs PyMC: python -m pip install pymc
"""

import argparse
import time

import numpy as np
import pymc as pm

from fastrace import mcmc


def main(plot=None):
    rng = np.random.default_rng(10)
    x = rng.normal(size=(50_000, 4))
    y = (rng.random(len(x)) < 1 / (1 + np.exp(-x @ [0.5, -0.5, 0.2, 0.0]))).astype(float)
    with pm.Model() as pymc_model:
        b = pm.Normal("b", 0.0, 10.0, shape=4)
        pm.Bernoulli("obs", logit_p=x @ b, observed=y)

    model = mcmc.from_pymc(pymc_model)
    start = time.process_time()
    trace = mcmc.sample(mcmc.RacingMetropolis(model, delta=0.05), n_draws=1000, n_chains=2, rng=1)
    raced = trace.ess().min() / (time.process_time() - start)
    start = time.process_time()
    with pymc_model:
        dull = pm.sample(draws=50, tune=100, chains=1, cores=1, random_seed=1, progressbar=False,
                         compute_convergence_checks=False)
    draws = np.asarray(dull.posterior["b"])
    nuts = min(mcmc.effective_sample_size(draws[:, :, j]) for j in range(4)) / (time.process_time() - start)
    print(f"race: {raced:8.1f} effective samples a second, {trace.rows.mean():.0f} of {len(x)} rows a step, "
          f"means {trace.draws.mean(axis=(0, 1)).round(3)}")
    print(f"NUTS: {nuts:8.1f} effective samples a second, tuning included, means {draws.mean(axis=(0, 1)).round(3)}")

    if plot:
        from matplotlib import pyplot

        figure, panel = pyplot.subplots(figsize=(6, 4), layout="constrained")
        for name, found in (("race", trace.draws), ("NUTS", draws)):
            means, spreads = found.mean(axis=(0, 1)), found.std(axis=(0, 1))
            panel.errorbar(range(4), means, 2 * spreads, fmt="o", capsize=4, label=name)
        panel.set(xlabel="coefficient", ylabel="mean and two standard deviations")
        panel.legend()
        figure.savefig(plot)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", metavar="PNG", help="draw what was found into this file; needs matplotlib")
    main(parser.parse_args().plot)
