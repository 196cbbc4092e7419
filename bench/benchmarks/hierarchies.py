"""Chains where the prior is what makes them hard: effective draws a CPU second, the smallest over all parameters.

Beside `SurrogateMetropolis` stand weighted draws without a chain (`mcmc.laplace`) and, where NumPyro is installed, NUTS
on all rows. Draws of NUTS are few: it takes minutes for them. `python -m benchmarks.hierarchies` in bench/ prints all.
"""

import functools
import os
import time

import numpy as np

from fastrace import mcmc

from . import _peers

N_ROWS, SLOPES = 200_000, 7
GROUPS = {  # of each factor: how many, and the concentration of their sizes
    "50 groups": [(50, 0.5)], "200 groups": [(200, 5.0)], "200 groups, many empty": [(200, 0.15)],
    "1,000 + 200 crossed groups": [(1000, 50.0), (200, 3.0)],
}
CROSSED_ROWS = 1_000_000  # where factors cross
HARD = {  # of small or rare groups: family, how many, rows of each, mean and deviation of their predictors
    "300 groups of 20 rows": ("poisson", 300, 20, -2.0, 0.7), "100 groups of 60 rows": ("logistic", 100, 60, -4.5, 0.8),
    "200 groups of 10 rows": ("logistic", 200, 10, -0.5, 0.7),
}
NESTED = "15 groups of 3"  # and 2e5 rows of counts
WIDE = ("horseshoe", "laplace prior", "negative binomial", "unknown sigma", "poisson with offset")
PROBLEMS = (*GROUPS, *WIDE)
KERNELS = ("surrogate", "laplace", "nuts")


def varying_intercepts(name, n_rows):
    """Columns, outcomes, and the codes of each factor."""
    rng = np.random.default_rng(20161122)
    n_rows = CROSSED_ROWS if len(GROUPS[name]) > 1 else n_rows
    codes = [rng.choice(n_groups, n_rows, p=rng.dirichlet(np.full(n_groups, concentration)))
             for n_groups, concentration in GROUPS[name]]
    X = np.column_stack([np.ones(n_rows), rng.standard_normal((n_rows, SLOPES))])
    eta = X @ (0.5 * rng.standard_normal(SLOPES + 1))
    for (n_groups, _), group in zip(GROUPS[name], codes, strict=True):
        eta += (0.6 * rng.standard_normal(n_groups))[group]
    return X, rng.random(n_rows) < 1.0 / (1.0 + np.exp(-eta)), codes


def hard(name):
    """Outcomes, family and codes of each factor of `HARD` and `NESTED`; the only column is a constant one."""
    rng = np.random.default_rng(20161126)
    if name == NESTED:
        inner = rng.integers(45, size=N_ROWS)
        eta = -0.3 + (0.4 * rng.standard_normal(15))[inner // 3] + (0.3 * rng.standard_normal(45))[inner]
        return rng.poisson(np.exp(eta)), "poisson", [inner // 3, inner]
    family, n_groups, size, mean, sd = HARD[name]
    code = np.repeat(np.arange(n_groups), size)
    eta = mean + (sd * rng.standard_normal(n_groups))[code]
    y = rng.poisson(np.exp(eta)) if family == "poisson" else rng.random(len(eta)) < 1.0 / (1.0 + np.exp(-eta))
    return y, family, [code]


def table_of(name, n_rows=N_ROWS):
    """Columns, outcomes and the options of `mcmc.GLM` for a problem of `WIDE`."""
    rng = np.random.default_rng(20161123)
    dim = 50 if name == "horseshoe" else 10
    n_rows = min(n_rows, 20_000 if name == "horseshoe" else 100_000)
    X = rng.standard_normal((n_rows, dim))
    theta = np.where(np.arange(dim) < 5, 0.5, 0.0)
    eta = X @ theta
    if name in ("horseshoe", "laplace prior"):
        y = rng.random(n_rows) < 1.0 / (1.0 + np.exp(-eta))
        return X, y, {"prior": mcmc.Horseshoe(expected_nonzero=5) if name == "horseshoe" else mcmc.Laplace(0.0, 0.1)}
    if name == "negative binomial":
        return X, rng.poisson(np.exp(0.3 * eta) * rng.gamma(2.0, 0.5, n_rows)), {"family": "negative-binomial"}
    if name == "unknown sigma":
        return X, eta + 2.0 * rng.standard_normal(n_rows), {"family": "gaussian"}
    exposure = rng.uniform(0.5, 2.0, n_rows)
    return X, rng.poisson(exposure * np.exp(0.3 * eta)), {"family": "poisson", "offset": np.log(exposure)}


@functools.lru_cache(maxsize=1)
def model_of(name, n_rows=N_ROWS):
    if name in GROUPS:
        X, y, codes = varying_intercepts(name, n_rows)
        names = ("group", "other")
        return mcmc.GLM(X, y, groups=dict(zip(names, codes, strict=False)))
    if name == NESTED or name in HARD:
        y, family, codes = hard(name)
        return mcmc.GLM(np.ones((len(y), 1)), y, family, groups=dict(zip(("group", "inner"), codes, strict=False)))
    X, y, options = table_of(name, n_rows)
    return mcmc.GLM(X, y, **options)


def smallest(draws):
    return min(mcmc.effective_sample_size(draws[:, :, j]) for j in range(draws.shape[2]))


def by_surrogate(name, n_draws):
    """Effective draws, seconds to set up and to draw."""
    model, start = model_of(name), time.process_time()
    kernel = mcmc.SurrogateMetropolis(model)
    begun = time.process_time()
    trace = mcmc.sample(kernel, n_draws=n_draws, n_chains=2, rng=1, threads=1)
    return smallest(trace.draws), begun - start, time.process_time() - begun


def by_laplace(name, n_draws):
    model, start = model_of(name), time.process_time()
    return mcmc.laplace(model, n_draws, rng=1).ess, 0.0, time.process_time() - start


def by_nuts(name, n_draws, n_warmup=300, centred=True):
    """Groups alone; compiling counts as set-up, with warm-up."""
    if name in GROUPS:
        X, y, codes = varying_intercepts(name, N_ROWS)
        family, n_levels = "logistic", [n for n, _ in GROUPS[name]]
    else:
        y, family, codes = hard(name)
        X, n_levels = np.ones((len(y), 1)), [int(code.max()) + 1 for code in codes]
    model = _peers.groups_of(n_levels, family, centred)
    return _peers.by_numpyro(model, (X, y.astype(np.int32), *codes), n_warmup, n_draws)


HOW = {"surrogate": (by_surrogate, 4000), "laplace": (by_laplace, 1000), "nuts": (by_nuts, 200)}


class Hierarchies:
    """Smallest effective number of draws a CPU second, and seconds to set a kernel up."""

    params = (["surrogate", "laplace"], list(PROBLEMS))
    param_names = ["kernel", "problem"]
    timeout = 600.0

    def setup(self, kernel, problem):
        model_of(problem)

    def track_effective_draws_per_second(self, kernel, problem):
        how, n_draws = HOW[kernel]
        try:
            effective, _, took = how(problem, n_draws)
        except ValueError:  # laplace refuses priors that are not normal given their scales
            return np.nan
        return effective / took

    def track_rows_per_step(self, kernel, problem):
        if kernel != "surrogate":
            return np.nan
        made = mcmc.SurrogateMetropolis(model_of(problem))
        return float(mcmc.sample(made, n_draws=200, n_chains=1, rng=1).rows.mean())


class RealTables:
    """The same on real data, where a row lies at 97 deviations (electricity) or groups have one outcome (covertype).

    It needs the folder of FASTRACE_DATA, with electricity.parquet and covertype.parquet.
    """

    params = ["electricity", "covertype"]
    param_names = ["table"]
    timeout = 600.0

    def setup(self, table):
        folder = os.environ.get("FASTRACE_DATA")
        if not folder or not os.path.exists(os.path.join(folder, f"{table}.parquet")):
            raise NotImplementedError("no such data here")
        import pandas as pd

        frame = pd.read_parquet(os.path.join(folder, f"{table}.parquet"))
        if table == "electricity":
            names = ["date", "nswprice", "nswdemand", "vicprice", "vicdemand", "transfer"]
            y, groups = frame["y"].to_numpy(float), {"hour": np.arange(len(frame)) % 48}
        else:
            names, y = list(frame.columns[:10]), (frame["y"] == 2).to_numpy(float)
            soil = frame.filter(like="oil")
            groups = {"soil": soil.to_numpy().argmax(axis=1) if soil.shape[1] > 1 else soil.to_numpy()[:, 0]}
        X = frame[names].to_numpy(float)
        X = (X - X.mean(axis=0)) / X.std(axis=0)
        self.model = mcmc.GLM(np.column_stack([np.ones(len(X)), X]), y, groups=groups)

    def track_effective_draws_per_second(self, table):
        kernel, start = mcmc.SurrogateMetropolis(self.model), time.process_time()
        trace = mcmc.sample(kernel, n_draws=2000, n_chains=2, rng=1, threads=1)
        return smallest(trace.draws) / (time.process_time() - start)


def main():
    for problem in PROBLEMS:
        line = []
        for kernel in KERNELS if problem in GROUPS else KERNELS[:2]:
            how, n_draws = HOW[kernel]
            try:
                effective, setup, took = how(problem, n_draws)
                line.append(f"{kernel} {effective / took:9,.0f}/s (set-up {setup:.2f} s)")
            except (ImportError, ValueError) as error:
                line.append(f"{kernel} -: {str(error)[:60]}")
        print(f"{problem:24s}", *line, flush=True)


if __name__ == "__main__":
    main()
