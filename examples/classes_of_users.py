"""Which users behave alike? A mixture of logistic regressions: every user is of one of a few unknown classes.

`MixtureOf` expands the log-likelihood of each user once. `SurrogateGibbs` then draws the class of every user and the
coefficients of every class from these expansions, and corrects each draw exactly by a few of the user's rows.

The dull way sums the terms of all rows at all classes in every sweep. It wins where users have few rows each: those
are read whole anyway.
"""

import argparse
import time

import numpy as np

from fastrace import mcmc


def main(plot=None):
    rng = np.random.default_rng(12)
    n_users, n_events, dim, n_classes = 40, 2000, 6, 4
    theta = 0.3 * rng.standard_normal((n_classes, dim))
    label = rng.integers(n_classes, size=n_users)
    user = np.repeat(np.arange(n_users), n_events)
    X = rng.standard_normal((len(user), dim))
    y = (rng.random(len(user)) < 1.0 / (1.0 + np.exp(-(X * theta[label[user]]).sum(axis=1)))).astype(float)

    start = time.process_time()
    mixture = mcmc.MixtureOf(mcmc.GLM(X, y, prior_sd=1.0), groups=user, n_classes=8, concentration=0.1)
    seconds = time.process_time() - start
    kernel = mcmc.SurrogateGibbs(mixture, order_by=0)
    start = time.process_time()
    trace = mcmc.sample(kernel, n_draws=1000, n_chains=1, n_tune=1000, rng=1, threads=1)
    took = 1e3 * (time.process_time() - start) / 2000
    print(f"expansions {seconds:.2f} s, then {took:.3f} ms and {trace.rows.mean():.0f} of {len(user)} rows a sweep; "
          f"accepted {kernel.acceptance(trace)['parameters']:.2f} of the proposed coefficients")

    start = time.process_time()
    eta = X @ theta.T
    sums = (y[:, None] * eta - np.logaddexp(0.0, eta)).reshape(n_users, n_events, -1).sum(axis=1)
    drawn = (sums + rng.gumbel(size=sums.shape)).argmax(axis=1)
    print(f"the dull way: {1e3 * (time.process_time() - start):.1f} ms for the classes of all users alone; "
          f"{(drawn == label).mean():.0%} of them right, the coefficients given")

    same = mixture.together(trace)
    right = (same > 0.5) == np.equal.outer(label, label)
    found = np.bincount(mixture.occupied(trace).ravel(), minlength=9)
    print(f"{found.argmax()} classes in use, {n_classes} made; {right.mean():.1%} of the pairs of users are told right")

    if plot:
        from matplotlib import pyplot

        order = np.argsort(label)
        figure, panel = pyplot.subplots(figsize=(5, 4), layout="constrained")
        shown = panel.imshow(same[np.ix_(order, order)], vmin=0.0, vmax=1.0)
        figure.colorbar(shown, label="probability to be of one class")
        panel.set(xlabel="user, by true class", ylabel="user, by true class")
        figure.savefig(plot)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", metavar="PNG", help="draw what was found into this file; needs matplotlib")
    main(parser.parse_args().plot)
