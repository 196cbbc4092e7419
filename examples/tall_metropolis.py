"""Metropolis-Hastings over tall data: accept or reject a step after reading a few of 200,000 rows.

The dull way evaluates the likelihood of all rows in every step. `RacingMetropolis` races what a second-order
expansion at the mode leaves of the terms; a step then differs from the exact one with probability at most
`delta`.

The dull way wins where data are few: below some thousand rows one pass over all of them is as quick, and has
no error.
"""

import argparse
import time

import numpy as np

from fastrace import mcmc


def main(plot=None):
    rng = np.random.default_rng(6)
    X = rng.normal(size=(200_000, 5))
    truth = np.array([0.5, -0.5, 0.2, 0.0, 1.0])
    y = rng.random(len(X)) < 1 / (1 + np.exp(-X @ truth))
    model = mcmc.GLM(X, y.astype(float), family="logistic", prior_sd=10.0)
    reference = model.reference()               # mode and expansion: once, for both

    found = {}
    for name, kernel, n_draws in (
        ("RacingMetropolis", mcmc.RacingMetropolis(model, delta=0.05, control_variate=reference), 3000),
        ("Metropolis", mcmc.Metropolis(model, control_variate=reference), 150),
    ):
        start = time.process_time()
        trace = mcmc.sample(kernel, n_draws=n_draws, n_chains=2, n_tune=50, rng=1)
        seconds = time.process_time() - start
        found[name] = trace
        print(f"{name:17s} {trace.rows.mean():9.0f} rows a step, {trace.ess().min() / seconds:9.1f} effective samples "
              f"a second, means {trace.draws.mean(axis=(0, 1)).round(3)}")

    if plot:
        from matplotlib import pyplot

        figure, panel = pyplot.subplots(figsize=(7, 4), layout="constrained")
        for name, trace in found.items():
            panel.hist(trace.draws[:, :, 0].ravel(), 30, density=True, histtype="step", label=name)
        panel.set(xlabel="first coefficient", ylabel="density")
        panel.legend()
        figure.savefig(plot)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", metavar="PNG", help="draw what was found into this file; needs matplotlib")
    main(parser.parse_args().plot)
