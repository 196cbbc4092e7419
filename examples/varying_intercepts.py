"""How do clinics differ? A logistic regression with an effect for each clinic, whose spread is learned too.

The rows see coefficients and effects, not the spread behind them. `SurrogateMetropolis` expands the likelihood once in
what the rows see, draws from prior times expansion without a row, and corrects each draw exactly by a few rows.

The dull way takes no chain: weigh draws of a normal density by all rows. `mcmc.laplace` does it. It wins where rows are
so few that reading all of them costs nothing, and where one answer of a thousand draws is enough.
"""

import argparse
import time

import numpy as np

from fastrace import mcmc


def main(plot=None):
    rng = np.random.default_rng(7)
    n_rows, n_clinics = 50_000, 30
    clinic = rng.choice(n_clinics, n_rows, p=rng.dirichlet(np.full(n_clinics, 0.5)))
    age, dose = rng.standard_normal((2, n_rows))
    effect = 0.6 * rng.standard_normal(n_clinics)
    eta = -1.0 + 0.4 * age - 0.2 * dose + effect[clinic]
    y = rng.random(n_rows) < 1.0 / (1.0 + np.exp(-eta))

    X = np.column_stack([np.ones(n_rows), age, dose])
    model = mcmc.GLM(X, y, groups={"clinic": clinic})
    start = time.process_time()
    trace = mcmc.sample(mcmc.SurrogateMetropolis(model), n_draws=2000, n_chains=2, rng=1, threads=1)
    seconds = time.process_time() - start
    spread = trace.draws[:, :, trace.names.index("sd(1|clinic)")]
    print(f"{spread.size / seconds:,.0f} draws a second, {trace.rows.mean():.0f} of {n_rows} rows each; "
          f"spread of clinics {spread.mean():.2f} +- {spread.std():.2f}, 0.6 made")

    start = time.process_time()
    weighed = mcmc.laplace(model, 500, rng=1)
    seconds = time.process_time() - start
    print(f"the dull way: {weighed.ess / seconds:,.0f} effective draws a second, all rows for each")

    first = [j for j, name in enumerate(trace.names) if name.startswith("1|clinic")]
    levels = [int(trace.names[j].split("[")[1].rstrip("]")) for j in first]
    draws = trace.draws[:, :, first].reshape(-1, len(first))
    low, high = np.quantile(draws, [0.05, 0.95], axis=0)
    held = ((low <= effect[levels]) & (effect[levels] <= high)).mean()
    print(f"{held:.0%} of the clinics' effects lie in their intervals of 90 %")

    if plot:
        from matplotlib import pyplot

        order = np.argsort(draws.mean(axis=0))
        figure, panel = pyplot.subplots(figsize=(6, 4), layout="constrained")
        panel.vlines(np.arange(len(order)), low[order], high[order], label="90 % interval")
        panel.plot(np.arange(len(order)), effect[levels][order], "kx", label="made")
        panel.set(xlabel="clinic, by estimate", ylabel="effect on the log odds")
        panel.legend()
        figure.savefig(plot)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", metavar="PNG", help="draw what was found into this file; needs matplotlib")
    main(parser.parse_args().plot)
