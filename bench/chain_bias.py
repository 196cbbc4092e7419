"""Whether chains are where exact answers are: means of three posteriors of `bench/chains.py` by two ways each.

    python bench/chain_bias.py [--draws N]

The posterior of 50 groups by `mcmc.sample`, beside weighted draws (`mcmc.laplace`, which reads all rows for each
weight), and that of 20 positives by `RacingMetropolis`, whose decisions may be wrong with probability .05, beside
exact minibatches. Of 200 parameters means and squares by minibatches that decide batches, whose bounds may fail, beside
frames, which read all rows; their errors are those of averages over batches. Prints the largest distance of two means,
in posterior standard deviations, with its standard error, and the largest of all distances over their standard errors:
of d parameters some 2 to 3 by chance. Some five minutes.
"""

# ruff: noqa: E402    (threads are limited before NumPy is imported)

from __future__ import annotations

import argparse
import math
import os
import pathlib
import sys

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from benchmarks import hierarchies, wide, without_chains

from fastrace import mcmc


def compared(title: str, ours: mcmc.Trace, means: np.ndarray, sizes: np.ndarray | float) -> None:
    draws = ours.draws.reshape(-1, ours.draws.shape[-1])
    distance = np.abs(draws.mean(axis=0) - means) / draws.std(axis=0)
    error = np.sqrt(1.0 / ours.ess() + 1.0 / np.asarray(sizes))
    worst = int(np.argmax(distance))
    print(f"{title}: {len(means)} parameters, {ours.rows.mean():,.0f} rows a step, R-hat {ours.rhat().max():.3f}; "
          f"largest distance {distance[worst]:.3f} +- {error[worst]:.3f} sd, largest z {np.max(distance / error):.1f}"
          f", by chance some {math.sqrt(2.0 * math.log(len(means))):.1f}", flush=True)


def of_batches(dim: int = 200) -> None:
    about = wide.model(dim)[1]
    sd, sizes = np.sqrt(np.square(about.factor).sum(axis=1)), {"minibatches": 60_000, "frames of pairs": 9_600}
    z = [(wide.drawn(kind, dim, n)[0] - about.center) / sd for kind, n in sizes.items()]
    for name, value in (("means", np.array), ("squares", np.square)):
        ours, exact = (value(x).reshape(parts, -1, dim).mean(axis=1) for x, parts in zip(z, (60, 24), strict=True))
        distance = np.abs(ours.mean(axis=0) - exact.mean(axis=0))
        error = np.sqrt(ours.var(axis=0, ddof=1) / len(ours) + exact.var(axis=0, ddof=1) / len(exact))
        worst = int(np.argmax(distance))
        print(f"{dim} parameters, {name} by minibatches of batches beside frames: largest distance "
              f"{distance[worst]:.3f} +- {error[worst]:.3f} sd, largest z {np.max(distance / error):.1f}, by chance "
              f"some {math.sqrt(2.0 * math.log(dim)):.1f}; mean square of z {np.square(distance / error).mean():.2f}",
              flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=4000, help="of each of two chains")
    n = parser.parse_args().draws
    of = hierarchies.model_of("50 groups")
    weighted = mcmc.laplace(of, n, rng=2)
    ours = mcmc.sample(of, n_draws=n, n_chains=2, rng=1)
    compared("50 groups, mcmc.sample beside mcmc.laplace", ours, weighted.mean, weighted.ess)
    of = without_chains.model("20 positives")
    exact = mcmc.sample(mcmc.PoissonMinibatchMetropolis(of), n_draws=5 * n, n_chains=2, rng=2)
    raced = mcmc.sample(mcmc.RacingMetropolis(of), n_draws=2 * n, n_chains=2, rng=1)
    compared("20 positives, RacingMetropolis beside exact minibatches", raced,
             exact.draws.mean(axis=(0, 1)), exact.ess())
    of_batches()


if __name__ == "__main__":
    main()
