"""Effective draws a CPU second of posteriors over tall data, ours beside released peers, in one table.

    python bench/chains.py [ROW ...] [--limit SECONDS] [--output FOLDER]

Each cell runs in a process of its own on one thread. It counts the smallest effective number of draws over all
parameters, scales included. "set-up" is what comes before the first draw that counts, but tuning of our chains, which
is part of their draws; of NUTS it is compiling and warming up. A cell that takes longer than the limit says so. Peers:
weighted draws without a chain (`mcmc.laplace`), NUTS of NumPyro on all rows, HMCECS of NumPyro (a subsample of 200 rows
with a second-order proxy; plain posteriors alone), nutpie on a PyMC model. They are left out where they are not
installed. `python -m benchmarks.wide` and `python -m benchmarks.mixtures` in bench/ measure hundreds of parameters and
labels of groups; papers/chen_2016/arch_selection.py the order of ARCH models.
"""

import argparse
import csv
import json
import os
import pathlib
import resource
import subprocess
import sys
import time
import warnings

import numpy as np
from benchmarks import hierarchies, without_chains
from benchmarks import mcmc as near_normal

from fastrace import mcmc

PYMC = "PyMC model, 50 groups"
RARE = ("20 positives", "100 positives", "500 positives")
# What is measured, and the goal: effective draws a second.
GOALS = {
    "50 groups": 10_000, "200 groups": 2_000, "200 groups, many empty": 2_000, "1,000 + 200 crossed groups": 50,
    "horseshoe": 1_000, "laplace prior": 50_000, "poisson with offset": 100_000, "negative binomial": 20_000,
    "unknown sigma": 100_000, "20 positives": 2_000, "100 positives": 10_000, "500 positives": 150_000,
    "softmax": 15_000, "near-normal, 10": 1_000_000, PYMC: 1_000,
}
OURS = ("sample", "kernel")         # what mcmc.sample chooses, and the kernel that suits the row
HOW = (*OURS, "laplace", "nuts", "hmcecs", "nutpie")
N_NUTS = 200                        # draws of NUTS, and steps of its warm-up


def data_of(row):
    """What `mcmc.GLM` takes."""
    if row == PYMC:
        return hierarchies.data_of("50 groups")
    if row in hierarchies.PROBLEMS:
        return hierarchies.data_of(row)
    if row in RARE:
        return without_chains.data_of(row if row == "20 positives" else f"{row}, 10")
    X, y = near_normal.logistic(100_000, 10)
    return {"X": X, "y": y, "prior_sd": 10.0}


def model_of(row):
    if row == "softmax":
        rng = np.random.default_rng(20161125)
        X = np.column_stack([np.ones(100_000), rng.standard_normal((100_000, 19))])
        utility = X @ (0.3 * rng.standard_normal((20, 5))) + rng.gumbel(size=(100_000, 5))
        return mcmc.Softmax(X, utility.argmax(axis=1), prior_sd=2.5)
    if row == PYMC:
        return mcmc.from_pymc(pymc_of(data_of(row)))
    return mcmc.GLM(**data_of(row))


def pymc_of(data):
    """Varying intercepts, not centred, with the priors that `mcmc.GLM` takes by default for columns of unit spread."""
    import pymc as pm

    with pm.Model() as model:
        X, y = pm.Data("X", data["X"]), pm.Data("y", data["y"].astype(float))
        group = pm.Data("g", data["groups"]["group"])
        beta = pm.Normal("beta", 0.0, 2.5, shape=data["X"].shape[1])
        sd, z = pm.HalfNormal("sd", 2.5), pm.Normal("z", shape=50)
        pm.Bernoulli("obs", logit_p=X @ beta + (sd * z)[group], observed=y)
    return model


def ours(row, how):
    """Smallest effective number of draws, seconds to set up, seconds to draw, and what was run."""
    model, start = model_of(row), time.process_time()
    n_draws = 20_000 if row in ("near-normal, 10", "500 positives", *hierarchies.WIDE) else 4_000
    if how == "laplace":
        answer = mcmc.laplace(model, 1000, rng=1)
        return answer.ess, 0.0, time.process_time() - start, f"Pareto k {answer.pareto_k:.2f}"
    if how == "kernel":
        single = row in RARE or row in ("softmax", "near-normal, 10")
        model = (mcmc.PoissonMinibatchMetropolis if single else mcmc.SurrogateMetropolis)(model)
    begun = time.process_time()
    trace = mcmc.sample(model, n_draws=n_draws, n_chains=2, rng=1, threads=1)
    warned = "; warned" if trace.warnings else ""
    return trace.ess().min(), begun - start, time.process_time() - begun, trace.kernel["kernel"] + warned


def numpyro_model(data, dist, numpyro, jnp, subsample=None):
    """The model of `data` in NumPyro; priors that a row leaves to our defaults are normal with sd 2.5, half-normal."""
    n_rows, dim = data["X"].shape
    family, prior = data.get("family", "logistic"), data.get("prior")
    X, y = jnp.asarray(data["X"]), jnp.asarray(np.asarray(data["y"], dtype=float))
    offset = jnp.asarray(data.get("offset", np.zeros(n_rows)))
    codes = [(jnp.asarray(code), int(code.max()) + 1) for code in data.get("groups", {}).values()]

    def model():
        if isinstance(prior, mcmc.Horseshoe):
            tau = numpyro.sample("tau", dist.HalfCauchy(prior.expected_nonzero / (dim - prior.expected_nonzero)
                                                        * 2.0 / np.sqrt(n_rows)))
            local = numpyro.sample("local", dist.HalfCauchy(1.0).expand([dim]).to_event(1))
            c2 = numpyro.sample("c2", dist.InverseGamma(2.0, 2.0 * 2.5**2))
            z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([dim]).to_event(1))
            beta = z * tau * local * jnp.sqrt(c2 / (c2 + (tau * local) ** 2))
        else:
            of = dist.Laplace(0.0, 0.1) if prior is not None else dist.Normal(0.0, data.get("prior_sd", 2.5))
            beta = numpyro.sample("beta", of.expand([dim]).to_event(1))
        effects = []
        for k, (_, n_groups) in enumerate(codes):
            sd = numpyro.sample(f"sd{k}", dist.HalfNormal(2.5))
            effects.append(numpyro.sample(f"effect{k}", dist.Normal(0.0, sd).expand([n_groups]).to_event(1)))
        scale = numpyro.sample("scale", dist.HalfCauchy(1.0)) if family in ("gaussian", "negative-binomial") else 1.0
        with numpyro.plate("rows", n_rows, subsample_size=subsample) as rows:
            eta = X[rows] @ beta + offset[rows]
            for effect, (code, _) in zip(effects, codes, strict=True):
                eta += effect[code[rows]]
            numpyro.sample("y", {
                "logistic": lambda: dist.Bernoulli(logits=eta), "gaussian": lambda: dist.Normal(eta, scale),
                "poisson": lambda: dist.Poisson(jnp.exp(eta)),
                "negative-binomial": lambda: dist.NegativeBinomial2(jnp.exp(eta), 1.0 / scale)}[family](), obs=y[rows])
    return model


def by_numpyro(row, how):
    import jax
    import jax.numpy as jnp
    import numpyro
    from numpyro import distributions as dist
    from numpyro.infer import HMCECS, MCMC, NUTS

    jax.config.update("jax_enable_x64", True)
    data, start = data_of(row), time.process_time()
    if how == "nuts":
        kernel, n_draws = NUTS(numpyro_model(data, dist, numpyro, jnp)), N_NUTS
    else:
        mode = {"beta": jnp.asarray(mcmc.GLM(**data).reference().theta_hat)}
        inner = NUTS(numpyro_model(data, dist, numpyro, jnp, 200))
        kernel, n_draws = HMCECS(inner, num_blocks=10, proxy=HMCECS.taylor_proxy(mode)), 2000
    chain = MCMC(kernel, num_warmup=N_NUTS if how == "nuts" else 1000, num_samples=n_draws, progress_bar=False)
    chain.warmup(jax.random.key(0))
    begun = time.process_time()
    chain.run(jax.random.key(1))
    took = time.process_time() - begun
    draws = [np.reshape(np.asarray(part), (1, n_draws, -1)) for part in chain.get_samples().values()]
    return hierarchies.smallest(np.concatenate(draws, 2)), begun - start, took, f"{n_draws} draws"


def by_nutpie(row, how):
    import nutpie

    model, start = pymc_of(data_of(row)), time.process_time()
    compiled = nutpie.compile_pymc_model(model)
    begun = time.process_time()
    answer = nutpie.sample(compiled, draws=N_NUTS, tune=2 * N_NUTS, chains=1, cores=1, seed=1, progress_bar=False)
    took = time.process_time() - begun
    draws = [answer.posterior[name].to_numpy().reshape(1, N_NUTS, -1) for name in ("beta", "sd", "z")]
    return hierarchies.smallest(np.concatenate(draws, 2)), begun - start, took, f"{N_NUTS} draws, tuned in their time"


def applies(row, how):
    """Peers that can run the row as it is."""
    if how == "nutpie":
        return row == PYMC
    if how == "hmcecs":
        return row in RARE or row in ("near-normal, 10", "poisson with offset")
    if how == "nuts":
        return row not in (PYMC, "softmax")
    return how != "laplace" or row not in ("horseshoe", "laplace prior", PYMC)


def cell(row, how, limit):
    """The figures of a cell, from a process of its own, or why there are none."""
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
               "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    command = [sys.executable, __file__, row, "--one", how]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | threads,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5)))
    if done.returncode < 0:
        return {"note": f"no end in {limit} CPU s"}
    if done.returncode:
        return {"note": (done.stderr.strip().splitlines() or ["failed"])[-1][:90]}
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(GOALS))
    parser.add_argument("--limit", type=int, default=300, help="CPU seconds for a cell (300)")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path(__file__).parent / "results")
    parser.add_argument("--one", choices=HOW, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := set(options.rows) - set(GOALS):
        parser.error(f"no rows {sorted(unknown)}; there are {', '.join(GOALS)}")
    if options.one:
        warnings.simplefilter("ignore")
        by = by_nutpie if options.one == "nutpie" else by_numpyro if options.one in ("nuts", "hmcecs") else ours
        effective, setup, took, note = by(options.rows[0], options.one)
        print(json.dumps({"effective": float(effective), "set_up": setup, "seconds": took, "note": note}))
        return
    lines = []
    for row in options.rows or GOALS:
        for how in HOW:
            if not applies(row, how):
                continue
            found = cell(row, how, options.limit)
            if "effective" in found:
                found["per_second"] = found["effective"] / found["seconds"]
                found["with_set_up"] = found["effective"] / (found["seconds"] + found["set_up"])
            lines.append({"row": row, "goal": GOALS[row], "how": how} | found)
            print(f"{row:28} goal {GOALS[row]:9,} {how:8} {found.get('per_second', np.nan):12,.1f} "
                  f"{found.get('with_set_up', np.nan):12,.1f} with set-up of {found.get('set_up', np.nan):6.2f} s   "
                  f"{found['note']}", flush=True)
    options.output.mkdir(parents=True, exist_ok=True)
    with open(options.output / "chains.csv", "w", newline="") as file:
        names = ("row", "goal", "how", "per_second", "with_set_up", "effective", "set_up", "seconds", "note")
        table = csv.DictWriter(file, names, lineterminator="\n")
        table.writeheader()
        table.writerows({key: f"{value:.4g}" if isinstance(value, float) else value for key, value in line.items()}
                        for line in lines)


if __name__ == "__main__":
    main()
