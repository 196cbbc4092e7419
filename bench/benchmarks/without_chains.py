"""`mcmc.laplace`, which needs no chain, beside the chain that `mcmc.sample` chooses; where its weights may be trusted.

Pareto k below 0.5 is good; above 0.7 (`trusted` False) the weights, and so the answer, are not to be trusted.
`python -m benchmarks.without_chains` in bench/ prints a table.
"""

import functools
import time
import warnings

import numpy as np

from fastrace import mcmc

from .hierarchies import model_of

PROBLEMS = ("near-normal, 10", "near-normal, 100", "20 positives", "100 positives, 30 columns", "50 groups",
            "200 groups, many empty", "20 columns, 100 rows", "30 groups, 200 rows")


def table(name, n_rows=100_000):
    """Columns and outcomes; "20 positives" and the like have about so many, in ten columns where it does not say."""
    rng = np.random.default_rng(20161124)
    dim = {"near-normal, 10": 10, "near-normal, 100": 100}.get(name, 30 if "30 columns" in name else 10)
    X = np.column_stack([np.ones(n_rows), rng.standard_normal((n_rows, dim - 1))])
    theta = rng.standard_normal(dim) / np.sqrt(dim)
    if "positives" in name:
        theta[0] = np.log(int(name.split()[0]) / n_rows) - 0.5 * float(theta[1:] @ theta[1:])
    return X, rng.random(n_rows) < 1.0 / (1.0 + np.exp(-X @ theta))


@functools.lru_cache(maxsize=1)
def model(name, n_rows=100_000):
    """A logistic model; those of few rows have posteriors that are far from normal."""
    if "groups" in name and "rows" not in name:
        return model_of(name, 2 * n_rows)
    rng = np.random.default_rng(1)
    if name == "20 columns, 100 rows":
        X = np.column_stack([np.ones(100), rng.standard_normal((100, 19))])
        return mcmc.GLM(X, np.arange(100) < 3, prior_sd=10.0)
    if name == "30 groups, 200 rows":
        group = np.arange(200) % 30
        y = rng.random(200) < 1.0 / (1.0 + np.exp(2.0 - 2.0 * rng.standard_normal(30)[group]))
        return mcmc.GLM(np.ones((200, 1)), y, groups={"g": group})
    X, y = table(name, n_rows)
    return mcmc.GLM(X, y, prior_sd=2.5)


def by_laplace(name, n_draws=1000):
    """Pareto k, effective draws, CPU seconds."""
    of, start = model(name), time.process_time()
    answer = mcmc.laplace(of, n_draws, rng=1)
    return answer.pareto_k, answer.ess, time.process_time() - start


def by_chain(name, n_draws=4000):
    """Kernel, smallest effective number of draws, CPU seconds, set-up included."""
    of, start = model(name), time.process_time()
    trace = mcmc.sample(of, n_draws=n_draws, n_chains=2, rng=1, threads=1)
    return trace.kernel["kernel"], trace.ess().min(), time.process_time() - start


class WithoutChains:
    """Effective draws a CPU second, set-up included, and Pareto k."""

    params = list(PROBLEMS)
    param_names = ["problem"]
    timeout = 300.0

    def setup(self, problem):
        model(problem)

    def track_laplace(self, problem):
        _, effective, took = by_laplace(problem)
        return effective / took

    def track_pareto_k(self, problem):
        return by_laplace(problem)[0]

    def track_chain(self, problem):
        _, effective, took = by_chain(problem)
        return effective / took


def main():
    print(f"{'posterior':28} {'k':>5} {'trusted':>7} {'eff. of 1000':>12} {'s':>6} {'ESS/s':>8}   chain: ESS/s")
    for name in PROBLEMS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            k, effective, took = by_laplace(name)
            kernel, least, spent = by_chain(name)
        print(f"{name:28} {k:5.2f} {k < 0.7!s:>7} {effective:12.0f} {took:6.2f} {effective / took:8.0f}   "
              f"{least / spent:8.0f} in {spent:.2f} s, {kernel}", flush=True)


if __name__ == "__main__":
    main()
