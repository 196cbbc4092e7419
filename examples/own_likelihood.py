"""Your own likelihood in NumPy: centre and scale of 300,000 numbers with Student-t errors.

A model needs one function, the log-likelihood of the rows it is asked for. The dull way asks for all of them
in each step. With the derivatives as a second function, which is asked once at the mode, a race reads a
handful of rows.

The dull way wins without derivatives: what is raced then varies so much that most rows are read near the
mode. For Numba, C and Cython see `own_likelihood_compiled.py`.
"""

import argparse
import time

import numpy as np

from fastrace import mcmc


def student_terms(y):
    """Log-likelihoods of rows, and their gradients and Hessians by centre and log scale."""

    def terms(theta, rows):
        z = (y[rows] - theta[0]) * np.exp(-theta[1])
        return -theta[1] - 2.5 * np.log1p(0.25 * z * z)

    def derivatives(theta, rows):
        s = np.exp(-theta[1])
        z = (y[rows] - theta[0]) * s
        first, second = -5.0 * z / (4.0 + z * z), -5.0 * (4.0 - z * z) / (4.0 + z * z) ** 2
        hessian = np.empty((len(rows), 2, 2))
        hessian[:, 0, 0] = s * s * second
        hessian[:, 0, 1] = hessian[:, 1, 0] = s * (first + z * second)
        hessian[:, 1, 1] = z * first + z * z * second
        return np.stack([-s * first, -1.0 - z * first], axis=1), hessian

    return terms, derivatives


def main(plot=None):
    n_rows = 300_000
    y = 1.0 + 2.0 * np.random.default_rng(9).standard_t(4.0, n_rows)
    terms, derivatives = student_terms(y)
    model = mcmc.FunctionModel(terms, 2, n_rows, derivatives=derivatives)
    reference, traces = model.reference(), {}
    print(f"true centre 1, log scale {np.log(2.0):.4f}")
    for name, kernel, n_draws in (
        ("race", mcmc.RacingMetropolis(model, control_variate=reference), 1000),
        ("all rows", mcmc.Metropolis(model, control_variate=reference), 40),
    ):
        start = time.process_time()
        traces[name] = trace = mcmc.sample(kernel, n_draws=n_draws, n_chains=1, n_tune=0, rng=1)
        rate = trace.ess().min() / (time.process_time() - start)
        print(f"{name:9s} {trace.rows.mean():9.0f} rows a step, {rate:8.1f} effective samples a second, "
              f"means {trace.draws.mean(axis=(0, 1)).round(4)}")

    if plot:
        from matplotlib import pyplot

        figure, panel = pyplot.subplots(figsize=(6, 4), layout="constrained")
        panel.plot(*traces["race"].draws[0].T, ".", ms=3)
        panel.set(xlabel="centre", ylabel="log scale")
        figure.savefig(plot)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", metavar="PNG", help="draw what was found into this file; needs matplotlib")
    main(parser.parse_args().plot)
