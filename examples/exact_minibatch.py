"""A chain without any bias that reads a handful of rows per step.

The dull way to be exact is to read all rows. `PoissonMinibatchMetropolis` reads a random few of them, in such
a way that the posterior is exactly that of all rows; it needs a bound on the third derivatives of the terms,
which generalised linear models have.

The dull way wins where no such bound is known, or where the posterior is far from normal: the kernel then
reads most rows in most steps, and says so in a warning.
"""

import argparse
import time

import numpy as np

from fastrace import mcmc


def main(plot=None):
    rng = np.random.default_rng(7)
    sizes, rows, rates = (2_000, 20_000, 200_000), [], []
    print("   rows  rows read a step  effective samples a second: minibatch     all rows")
    for n_rows in sizes:
        X = rng.normal(size=(n_rows, 4))
        y = rng.random(n_rows) < 1 / (1 + np.exp(-X @ [0.5, -0.5, 0.2, 0.1]))
        model = mcmc.GLM(X, y.astype(float), family="logistic", prior_sd=10.0)
        reference, pair = model.reference(), []
        for kernel, n_draws in (
            (mcmc.PoissonMinibatchMetropolis(model, control_variate=reference), 4000),
            (mcmc.Metropolis(model, control_variate=reference), 200),
        ):
            start = time.process_time()
            trace = mcmc.sample(kernel, n_draws=n_draws, n_chains=1, n_tune=50, rng=1)
            pair.append((trace.rows.mean(), trace.ess().min() / (time.process_time() - start)))
        rows.append(pair[0][0])
        rates.append([rate for _, rate in pair])
        print(f"{n_rows:7d} {rows[-1]:17.2f} {rates[-1][0]:38.0f} {rates[-1][1]:12.0f}")

    if plot:
        from matplotlib import pyplot

        figure, panel = pyplot.subplots(figsize=(6, 4), layout="constrained")
        panel.plot(sizes, rates, "o-", label=["minibatch", "all rows"])
        panel.set(xlabel="rows", ylabel="effective samples a CPU second", xscale="log", yscale="log")
        panel.legend()
        figure.savefig(plot)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", metavar="PNG", help="draw what was found into this file; needs matplotlib")
    main(parser.parse_args().plot)
