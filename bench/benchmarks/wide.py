"""Hundreds of parameters: chains whose steps share rows, or passes over all, beside weighted draws without a chain.

Effective draws a CPU second, after set-up, by the error of averages over many batches of draws: the variance of a
coordinate over that of its average in a batch. Of squares likewise, and of whether a coordinate is in its lower
twentieth. So many independent draws would have the same error. Effective sizes by autocorrelation, which stand beside
them, see nothing of what frames do for squares; of chains they are those of the slowest coordinate.
`python -m benchmarks.wide` in bench/ prints a table in ten minutes.
"""

import functools
import time

import numpy as np
from scipy import stats

from fastrace import mcmc

N_ROWS = 100_000
KINDS = {
    "laplace": None,
    "single": {"batch": 128, "walk_share": 0.01, "mirror": False},
    "pairs": {"batch": 128, "walk_share": 0.01},
    "frames": {"walk_share": 0.001, "mirror": False, "frames": True},
    "frames of pairs": {"walk_share": 0.001, "frames": True},
    "minibatches": {"batch": 256, "walk_share": 0.001},             # what mcmc.sample takes
}


def table(dim):
    rng = np.random.default_rng(20161124)
    X = np.column_stack([np.ones(N_ROWS), rng.standard_normal((N_ROWS, dim - 1))])
    theta = rng.standard_normal(dim) / np.sqrt(dim)
    return X, rng.random(N_ROWS) < 1.0 / (1.0 + np.exp(-X @ theta))


@functools.lru_cache(maxsize=1)
def model(dim):
    of = mcmc.GLM(*table(dim), prior_sd=2.5)
    return of, of.reference()


def drawn(kind, dim, n_draws):
    """Draws and their weights, and CPU seconds for them."""
    of, reference = model(dim)
    if kind == "laplace":
        start = time.process_time()
        of.reference()
        middle = time.process_time()
        answer = mcmc.laplace(of, n_draws, rng=1)
        return answer.draws, answer.weights, (time.process_time() - middle) - (middle - start)
    options = dict(KINDS[kind])
    if options.get("frames"):
        options["batch"] = dim * (1 + options.get("mirror", True))
    make = mcmc.PoissonMinibatchMetropolis if kind == "minibatches" else mcmc.Metropolis
    kernel = make(of, proposal="independent", control_variate=reference, **options)
    state = kernel.init(rng=1)
    start = time.process_time()
    _, steps = kernel.run(np.random.default_rng(1), state, n_draws)
    return steps.draws, np.ones(n_draws), time.process_time() - start


def measured(kind, dim, batches):
    """Effective draws a second of means, squares, tails and by autocorrelation of coordinates and of their squares.

    Those by autocorrelation are the least of all coordinates; of weighted draws, by their weights.
    """
    draws, weights, took = drawn(kind, dim, 2 * dim * batches)
    z = (draws - weights @ draws / weights.sum()) / np.sqrt(np.square(model(dim)[1].factor).sum(axis=1))
    out = []
    for value in (z, np.square(z), z < stats.norm.ppf(0.05)):
        mean, share = weights @ value / weights.sum(), weights.reshape(batches, -1)
        parts = (share[:, :, None] * value.reshape(batches, -1, dim)).sum(axis=1) / share.sum(axis=1)[:, None]
        spread = (weights @ np.square(value - mean) / weights.sum()).mean()
        out.append(batches * spread / np.var(parts, axis=0, ddof=1).mean())
    if kind == "laplace":
        out += 2 * [weights.sum() ** 2 / np.square(weights).sum()]
    else:
        out += [min(mcmc.effective_sample_size(x[None]) for x in value.T) for value in (z, np.square(z))]
    return [x / took for x in out]


class Wide:
    """Effective draws a CPU second of squares, by their errors."""

    params = (list(KINDS), [200, 500])
    param_names = ["kind", "dim"]
    timeout = 600.0

    def setup(self, kind, dim):
        model(dim)

    def track_squares(self, kind, dim):
        return measured(kind, dim, 6)[1]


def main():
    print(f"{'effective draws a CPU second, by errors of':46} means  squares    tails  "
          f"  by autocorrelation: means squares")
    for dim, batches in ((200, 24), (500, 10)):
        for kind in KINDS:
            found = measured(kind, dim, batches)
            print(f"{dim:5} parameters  {kind:26}" + "".join(f"{x:9.0f}" for x in found[:3])
                  + f"{found[3]:26.0f}{found[4]:8.0f}", flush=True)


if __name__ == "__main__":
    main()
