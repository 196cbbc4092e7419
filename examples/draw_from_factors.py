"""Draw a state with probability proportional to a product of 200,000 factors, from few of them.

The dull way adds up all log-factors of every state. `DiscreteSampler` perturbs the states with Gumbel noise
and races them: its draw differs from the exact one with probability at most `delta`. Here the states are four
candidate regressions, whose factors are computed only for the rows that a draw asks for.

The dull way wins where factors do not change between draws: add them up once. It wins too where two states
are nearly equally likely at large N, unless a control variate takes the bulk of the factors away (see
`tall_metropolis.py`).
"""

import argparse

import numpy as np

import fastrace as fr


def main(plot=None):
    rng = np.random.default_rng(5)
    n_rows, n_draws = 200_000, 60
    X = rng.normal(size=(n_rows, 3))
    y = X @ [1.0, -0.5, 0.25] + rng.normal(size=n_rows)
    weights = np.array([1.0, -0.5, 0.25]) + np.array([[0.0], [0.004], [0.05], [0.5]])
    log_prior = np.log([0.1, 0.2, 0.3, 0.4])

    def log_factors(states, rows):              # shape (rows, states)
        return -0.5 * (y[rows, None] - X[rows] @ weights[states].T) ** 2

    sampler = fr.DiscreteSampler(log_factors, log_prior, delta=0.05, n_arms=4, n_rows=n_rows, rng=1)
    draws = sampler.draw_many(n_draws)
    sums = log_factors(np.arange(4), np.arange(n_rows)).sum(axis=0) + log_prior
    exact = np.exp(sums - sums.max())
    exact /= exact.sum()
    share = np.bincount(draws, minlength=4) / n_draws
    print(f"shares of {n_draws} draws: {share.round(3)}; exact probabilities: {exact.round(3)}")
    print(f"log-factors read: {sampler.stats.fraction_read:.2%} of those that an exact draw reads")

    if plot:
        from matplotlib import pyplot

        figure, panel = pyplot.subplots(figsize=(5, 4), layout="constrained")
        panel.bar(np.arange(4) - 0.2, exact, 0.4, label="exact")
        panel.bar(np.arange(4) + 0.2, share, 0.4, label=f"raced, {sampler.stats.fraction_read:.2%} read")
        panel.set(xlabel="state", ylabel="probability")
        panel.legend()
        figure.savefig(plot)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", metavar="PNG", help="draw what was found into this file; needs matplotlib")
    main(parser.parse_args().plot)
