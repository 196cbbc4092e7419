"""Gibbs sampling of a discrete variable with 100,000 factors: which degree of freedom have the errors?

The dull way, `mcmc.Gibbs`, computes all factors of all states in every sweep. `RacingGibbs` races the states
and reads what each draw needs. Each draw is within `delta` of the exact one.

The dull way wins where two states are about equally likely, as happens near the middle of a posterior: the
race then reads nearly all factors. After some such draws the kernel turns to full passes by itself, and the
trace says how often.
"""

import argparse
import time

import numpy as np
from scipy import stats

from fastrace import mcmc


def main(plot=None):
    rng = np.random.default_rng(8)
    y = rng.standard_t(5.0, 100_000)
    for freedom in (np.array([2.0, 3.0, 5.0, 9.0, 30.0]), np.array([4.8, 4.9, 5.0, 5.1, 5.2])):

        def log_factors(states, rows, z, freedom=freedom):      # z holds all variables; there is only one here
            return stats.t.logpdf(y[rows, None], freedom[states])

        variable, counts = mcmc.Categorical(len(freedom), log_factors, len(y)), {}
        print(f"states {freedom.tolist()}")
        for name, kernel in (("RacingGibbs", mcmc.RacingGibbs([variable], delta=0.05)),
                             ("Gibbs", mcmc.Gibbs([variable]))):
            start = time.process_time()
            trace = mcmc.sample(kernel, n_draws=20, n_chains=1, n_tune=0, rng=1)
            milliseconds = 1e3 * (time.process_time() - start) / 20
            counts[name] = np.bincount(trace.draws.ravel().astype(int), minlength=len(freedom)) / 20
            print(f"  {name:12s} {trace.rows.mean():7.0f} of {len(freedom) * len(y)} factors a sweep, "
                  f"{milliseconds:6.1f} ms, full passes {trace.full_pass.mean():4.0%}, shares {counts[name]}")

    if plot:
        from matplotlib import pyplot

        figure, panel = pyplot.subplots(figsize=(6, 4), layout="constrained")
        for k, (name, share) in enumerate(counts.items()):
            panel.bar(np.arange(len(freedom)) + 0.4 * k - 0.2, share, 0.4, label=name)
        panel.set_xticks(range(len(freedom)), [f"{nu:g}" for nu in freedom])
        panel.set(xlabel="degrees of freedom", ylabel="share of draws")
        panel.legend()
        figure.savefig(plot)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", metavar="PNG", help="draw what was found into this file; needs matplotlib")
    main(parser.parse_args().plot)
